/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "lychee-enums.h"
#include "lychee-tokenizer.h"

G_BEGIN_DECLS

/* Which format a GGUF's tokenizer.chat_template (Jinja source) is; AUTO for NULL or another. */
LYCHEE_API LycheeChatFormat lychee_chat_format_detect (const char *template_source);
/* "chatml", "llama2", ...: the nick of the enum; AUTO where it is none of them. */
LYCHEE_API LycheeChatFormat lychee_chat_format_from_string (const char *name);
LYCHEE_API const char *lychee_chat_format_to_string (LycheeChatFormat format);

/* The prompt is   prefix (system) | transcript | suffix (question)   with the transcript and the
 * question inside one user turn, so that the cached prefix + transcript serves every question.
 * Control tokens come only from here; @system and @question are always plain text.
 * BOS is put in front of the prefix exactly as the tokenizer's metadata says. */

/* Appends gint32 ids. @system: (nullable): no system message (formats without a system role put it
 * at the start of the user's turn). @lead: (nullable): plain text before the transcript, such as
 * "Transcript:\n". */
LYCHEE_API void lychee_chat_format_append_prefix (LycheeChatFormat format,
    LycheeTokenizer *tokenizer, const char *system, const char *lead, GArray *ids);
/* Appends gint32 ids: end of transcript, the question, end of turn, start of the assistant's. */
LYCHEE_API void lychee_chat_format_append_suffix (
    LycheeChatFormat format, LycheeTokenizer *tokenizer, const char *question, GArray *ids);

G_END_DECLS
