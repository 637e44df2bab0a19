/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "lychee-transcript-parser.h"

G_BEGIN_DECLS

/**
 * LycheeSpeakerLabels:
 * @LYCHEE_SPEAKER_LABELS_NONE: no cue's text names its speaker
 * @LYCHEE_SPEAKER_LABELS_CHANGE: where another speaker begins, and where the source has a label
 * @LYCHEE_SPEAKER_LABELS_ALWAYS: every cue whose speaker is known
 *
 * Which cues begin with their speaker's name, as in "Ann: Good morning".
 */
typedef enum {
  LYCHEE_SPEAKER_LABELS_NONE,
  LYCHEE_SPEAKER_LABELS_CHANGE,
  LYCHEE_SPEAKER_LABELS_ALWAYS,
} LycheeSpeakerLabels;

#define LYCHEE_TYPE_SPEAKER_LABELS (lychee_speaker_labels_get_type ())
LYCHEE_API GType lychee_speaker_labels_get_type (void);

/**
 * LycheeHygieneReport:
 * @markup: tags, override blocks and escapes taken out
 * @entities: entities decoded
 * @speakers: labels and voices found
 * @rolling: cues that repeated, all or in part, what was on the screen already
 * @loops: repetitions of a recogniser that got stuck, left out
 * @duplicates: cues that were there twice, left out
 * @partials: hypotheses that a later one replaced
 *
 * What was cleaned, so far.
 */
typedef struct {
  guint64 markup;
  guint64 entities;
  guint64 speakers;
  guint64 rolling;
  guint64 loops;
  guint64 duplicates;
  guint64 partials;
} LycheeHygieneReport;

#define LYCHEE_TYPE_HYGIENE (lychee_hygiene_get_type ())
LYCHEE_API
G_DECLARE_FINAL_TYPE (LycheeHygiene, lychee_hygiene, LYCHEE, HYGIENE, GObject)

LYCHEE_API LycheeHygiene *lychee_hygiene_new (void);
LYCHEE_API void lychee_hygiene_set_survey (LycheeHygiene *hygiene, LycheeTranscriptSurvey *survey);
LYCHEE_API void lychee_hygiene_push (LycheeHygiene *hygiene, LycheeCue *cue, GPtrArray *cues);
LYCHEE_API void lychee_hygiene_end_hypothesis (LycheeHygiene *hygiene, GPtrArray *cues);
LYCHEE_API void lychee_hygiene_set_speaker (
    LycheeHygiene *hygiene, const char *speaker, GPtrArray *cues);
LYCHEE_API void lychee_hygiene_drain (LycheeHygiene *hygiene, GPtrArray *cues);
LYCHEE_API void lychee_hygiene_reset (LycheeHygiene *hygiene);
LYCHEE_API LycheeHygieneReport lychee_hygiene_get_report (LycheeHygiene *hygiene);

G_END_DECLS
