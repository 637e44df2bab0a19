/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "lychee-answer.h"
#include "lychee-question.h"

G_BEGIN_DECLS

/* Whether somebody is connected to the signal "progress"; from any thread. */
gboolean lychee_question_is_watched (LycheeQuestion *question);
void lychee_question_emit_progress (LycheeQuestion *question, LycheeAnswer *so_far);

G_END_DECLS
