/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "lychee-hygiene.h"

G_BEGIN_DECLS

/* Markup: lychee-hygiene-markup.c. */

/* Appends to @parts (LycheeCue, transfer full) the text of @cue without markup: one for each voice
 * in it, none where nothing is left. */
void lychee_hygiene_strip (const LycheeCue *cue, GPtrArray *parts, LycheeHygieneReport *report);

/* Speakers: lychee-hygiene-speakers.c. */

typedef enum {
  LYCHEE_LABEL_LETTER,  /* "Q." or "A.": one where both are, again and again */
  LYCHEE_LABEL_BRACKET, /* "[Ann] ": one where most lines begin so, with several names */
  LYCHEE_LABEL_WEAK,    /* a word before a colon, in a script without capitals */
  LYCHEE_LABEL_NORMAL,  /* like a name */
  LYCHEE_LABEL_STRONG,  /* nothing else looks so */
} LycheeLabelStrength;

/* What begins a turn of speech at some place of a text. */
typedef struct {
  gsize start; /* where it begins */
  gsize end;   /* where the speech begins */
  char *name;  /* NULL where only the turn is marked */
  LycheeLabelStrength strength;
} LycheeLabel;

/* What labels there are in a transcript: whether a word before a colon is one depends on it. */
typedef struct _LycheeSpeakerEvidence LycheeSpeakerEvidence;
LycheeSpeakerEvidence *lychee_speaker_evidence_new (void);
void lychee_speaker_evidence_free (LycheeSpeakerEvidence *evidence);
/* @labels: of LycheeLabel, those of one cue. */
void lychee_speaker_evidence_learn (LycheeSpeakerEvidence *evidence, GArray *labels);
gboolean lychee_speaker_evidence_accepts (
    LycheeSpeakerEvidence *evidence, const LycheeLabel *label, gboolean complete);

/* Whether it is one for certain. */
gboolean lychee_speaker_evidence_recurs (LycheeSpeakerEvidence *evidence, const LycheeLabel *label);

GArray *lychee_hygiene_find_labels (const char *text, gboolean at_line_start);

/* Repetitions: lychee-hygiene-repeats.c. */

typedef struct _LycheeRolling LycheeRolling;
LycheeRolling *lychee_rolling_new (void);
void lychee_rolling_free (LycheeRolling *rolling);
/* What a whole transcript has shown, or NULL. */
void lychee_rolling_set_known (LycheeRolling *rolling, LycheeRolling *known);
/* Takes out of the text of @cue what the screen shows already. Returns FALSE where nothing is left.
 * @changed: whether something was taken out. @doubtful: (nullable): how many bytes would be, if the
 * next cue shows that this one rolls; at the beginning of a stream, of which nothing is known. */
gboolean lychee_rolling_reduce (
    LycheeRolling *rolling, LycheeCue *cue, gboolean *changed, gsize *doubtful);

/* Takes out of @text the repetitions of a phrase that is said over and over; returns how many. */
guint lychee_hygiene_collapse (char *text);

/* What a survey learns for the hygiene. */
typedef struct {
  LycheeSpeakerEvidence *speakers;
  LycheeRolling *rolling;
  GPtrArray *parts;
} LycheeHygieneEvidence;

LycheeHygieneEvidence *lychee_hygiene_evidence_new (void);
void lychee_hygiene_evidence_free (LycheeHygieneEvidence *evidence);
void lychee_hygiene_evidence_learn (LycheeHygieneEvidence *evidence, const LycheeCue *cue);
LycheeHygieneEvidence *lychee_transcript_survey_get_evidence (LycheeTranscriptSurvey *survey);

G_END_DECLS
