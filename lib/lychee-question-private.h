/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "lychee-answer.h"
#include "lychee-question.h"

G_BEGIN_DECLS

/* Whether somebody is connected to the signal "progress"; from any thread. */
gboolean lychee_question_is_watched (LycheeQuestion *question);
void lychee_question_emit_progress (LycheeQuestion *question, LycheeAnswer *so_far);

/* Only about the chunks that begin in these tokens of the transcript, counted from its beginning,
 * whatever their times: for a transcript that has none. All: 0 and the largest number. */
LYCHEE_API void lychee_question_set_tokens (LycheeQuestion *question, guint64 from, guint64 to);
void lychee_question_get_tokens (LycheeQuestion *question, guint64 *from, guint64 *to);

G_END_DECLS
