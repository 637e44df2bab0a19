/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "lychee-sampler.h"

G_BEGIN_DECLS

#define LYCHEE_TYPE_QUESTION (lychee_question_get_type ())
LYCHEE_API
G_DECLARE_FINAL_TYPE (LycheeQuestion, lychee_question, LYCHEE, QUESTION, GObject)

LYCHEE_API LycheeQuestion *lychee_question_new (const char *prompt);
LYCHEE_API LycheeQuestion *lychee_question_copy (LycheeQuestion *question);

LYCHEE_API void lychee_question_set_prompt (LycheeQuestion *question, const char *prompt);
LYCHEE_API const char *lychee_question_get_prompt (LycheeQuestion *question);
LYCHEE_API void lychee_question_set_system_prompt (
    LycheeQuestion *question, const char *system_prompt);
LYCHEE_API const char *lychee_question_get_system_prompt (LycheeQuestion *question);
LYCHEE_API void lychee_question_set_range (LycheeQuestion *question, guint64 from, guint64 to);
LYCHEE_API void lychee_question_get_range (LycheeQuestion *question, guint64 *from, guint64 *to);
LYCHEE_API void lychee_question_set_max_tokens (LycheeQuestion *question, guint max_tokens);
LYCHEE_API guint lychee_question_get_max_tokens (LycheeQuestion *question);
LYCHEE_API void lychee_question_set_sampler (LycheeQuestion *question, LycheeSampler *sampler);
LYCHEE_API LycheeSampler *lychee_question_get_sampler (LycheeQuestion *question);
LYCHEE_API void lychee_question_set_stop (LycheeQuestion *question, const char *const *stop);
LYCHEE_API const char *const *lychee_question_get_stop (LycheeQuestion *question);
LYCHEE_API void lychee_question_set_language (LycheeQuestion *question, const char *language);
LYCHEE_API const char *lychee_question_get_language (LycheeQuestion *question);
LYCHEE_API void lychee_question_set_evidence (LycheeQuestion *question, guint evidence);
LYCHEE_API guint lychee_question_get_evidence (LycheeQuestion *question);
LYCHEE_API
void lychee_question_set_contrast (LycheeQuestion *question, double contrast);
LYCHEE_API
double lychee_question_get_contrast (LycheeQuestion *question);
LYCHEE_API void lychee_question_set_quotes (LycheeQuestion *question, guint quotes);
LYCHEE_API guint lychee_question_get_quotes (LycheeQuestion *question);

G_END_DECLS
