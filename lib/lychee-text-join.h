/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "lychee-types.h"

G_BEGIN_DECLS

/* What goes between two pieces of a transcript (words, sentences, lines) that were given apart: "",
 * " " or "\n"; a static string. Neither piece has white space where they meet. */
LYCHEE_API const char *lychee_text_get_separator (
    const char *before, gsize before_length, const char *after, gsize after_length);

/* Whether @text begins by naming @speaker: "Ann: good morning". */
LYCHEE_API gboolean lychee_text_names_speaker (const char *text, gsize length, const char *speaker);

/* Pieces on their way into one running text, each with who says it. */
typedef struct _LycheeTextJoiner LycheeTextJoiner;

LYCHEE_API LycheeTextJoiner *lychee_text_joiner_new (void);
LYCHEE_API void lychee_text_joiner_free (LycheeTextJoiner *joiner);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (LycheeTextJoiner, lychee_text_joiner_free)
/* Forgets all text: nothing that comes is joined to what was. */
LYCHEE_API void lychee_text_joiner_reset (LycheeTextJoiner *joiner);
/* Takes in @text, the next piece, which is not empty. @speaker: (nullable): who says it. @timed:
 * whether it is a cue of its own, and not how the text happens to be cut. @labels: whether the
 * speaker's name goes in front of @text where that is news. @separator: (nullable): what goes
 * between cues, instead of what lychee_text_get_separator() says.
 *
 * Returns what goes in front of @text and is of the piece before: "", "\n", " " or @separator. */
LYCHEE_API const char *lychee_text_joiner_add (LycheeTextJoiner *joiner, GString *text,
    const char *speaker, gboolean timed, gboolean labels, const char *separator);

G_END_DECLS
