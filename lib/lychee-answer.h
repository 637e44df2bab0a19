/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "lychee-types.h"

G_BEGIN_DECLS

/**
 * LycheeFinish:
 * @LYCHEE_FINISH_STOP: the model ended it, or a stop string did
 * @LYCHEE_FINISH_LENGTH: max-tokens, or the context is full
 * @LYCHEE_FINISH_CANCELLED: by the caller: what was said so far is in the text
 * @LYCHEE_FINISH_REPETITION: it went in circles, or said some twenty words for the third time
 *
 * Why an answer ended.
 */
typedef enum {
  LYCHEE_FINISH_STOP,
  LYCHEE_FINISH_LENGTH,
  LYCHEE_FINISH_CANCELLED,
  LYCHEE_FINISH_REPETITION,
} LycheeFinish;

#define LYCHEE_TYPE_FINISH (lychee_finish_get_type ())
LYCHEE_API GType lychee_finish_get_type (void);
LYCHEE_API const char *lychee_finish_to_string (LycheeFinish finish);

/**
 * LycheeEvidence:
 * @position: the first of its tokens in the transcript that was asked about
 * @n_tokens: how many they are
 * @start: when it was said, in nanoseconds of stream time, or %LYCHEE_TIME_NONE
 * @end: until when, or %LYCHEE_TIME_NONE
 * @speaker: (nullable): who said it
 * @text: what was said, as the model read it: behind the name where another speaker begins; a quote
 *   is the sentence alone
 * @weight: its share of the attention that question and answer paid to the transcript (a quote's:
 * to the part that it is from) beyond what any question does; above 0, at most 1
 *
 * A chunk of the transcript that an answer rests on, or a sentence that it quotes. It is found in
 * the attention of the question's and the answer's tokens, and never made by the model.
 */
typedef struct {
  guint64 position;
  guint n_tokens;
  guint64 start;
  guint64 end;
  const char *speaker;
  const char *text;
  double weight;
} LycheeEvidence;

#define LYCHEE_TYPE_EVIDENCE (lychee_evidence_get_type ())
LYCHEE_API GType lychee_evidence_get_type (void);
LYCHEE_API LycheeEvidence *lychee_evidence_ref (LycheeEvidence *evidence);
LYCHEE_API void lychee_evidence_unref (LycheeEvidence *evidence);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (LycheeEvidence, lychee_evidence_unref)

#define LYCHEE_TYPE_ANSWER (lychee_answer_get_type ())
LYCHEE_API
G_DECLARE_FINAL_TYPE (LycheeAnswer, lychee_answer, LYCHEE, ANSWER, GObject)

LYCHEE_API const char *lychee_answer_get_text (LycheeAnswer *answer);
LYCHEE_API LycheeFinish lychee_answer_get_finish (LycheeAnswer *answer);
LYCHEE_API gboolean lychee_answer_get_truncated (LycheeAnswer *answer);
LYCHEE_API GPtrArray *lychee_answer_get_evidence (LycheeAnswer *answer);
LYCHEE_API guint lychee_answer_get_transcript_tokens (LycheeAnswer *answer);
LYCHEE_API guint lychee_answer_get_prompt_tokens (LycheeAnswer *answer);
LYCHEE_API guint lychee_answer_get_answer_tokens (LycheeAnswer *answer);
LYCHEE_API double lychee_answer_get_seconds_to_first (LycheeAnswer *answer);
LYCHEE_API double lychee_answer_get_seconds (LycheeAnswer *answer);

G_END_DECLS
