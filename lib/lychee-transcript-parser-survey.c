/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "lychee-transcript-parser-private.h"

#include "lychee-hygiene-private.h"

/**
 * LycheeTranscriptSurvey:
 *
 * Looks a whole transcript over before it is read, so that its encoding is decided by all of its
 * bytes, its cues come in order of time however they are mixed, and what repeats in it is known.
 *
 * It reads the transcript twice:
 *
 * |[<!-- language="C" -->
 * do {
 *   rewind (file);
 *   while ((n = fread (buffer, 1, sizeof buffer, file)) > 0)
 *     lychee_transcript_survey_push (survey, buffer, n);
 * } while (lychee_transcript_survey_end (survey));
 * lychee_transcript_parser_set_survey (parser, survey);
 * ]|
 */

/* Cues are of no use here: the order keeps few. */
#define PATIENCE_BYTES (64 * 1024)

struct _LycheeTranscriptSurvey {
  GObject parent;

  LycheeTranscriptFormat format;
  char *requested;
  LycheeEncodingSurvey *first; /* NULL in the second pass */
  const char *encoding;
  gboolean guessed;
  LycheeTranscriptParser *parser;
  GPtrArray *cues;
  LycheeHygieneEvidence *evidence;
};

G_DEFINE_FINAL_TYPE (LycheeTranscriptSurvey, lychee_transcript_survey, G_TYPE_OBJECT)

static void
lychee_transcript_survey_init (LycheeTranscriptSurvey *self)
{
  self->cues = g_ptr_array_new_with_free_func ((GDestroyNotify) lychee_cue_free);
  self->evidence = lychee_hygiene_evidence_new ();
}

static void
lychee_transcript_survey_finalize (GObject *object)
{
  LycheeTranscriptSurvey *self = LYCHEE_TRANSCRIPT_SURVEY (object);

  g_clear_pointer (&self->first, lychee_encoding_survey_free);
  g_clear_object (&self->parser);
  g_ptr_array_unref (self->cues);
  lychee_hygiene_evidence_free (self->evidence);
  g_free (self->requested);
  G_OBJECT_CLASS (lychee_transcript_survey_parent_class)->finalize (object);
}

static void
lychee_transcript_survey_class_init (LycheeTranscriptSurveyClass *klass)
{
  G_OBJECT_CLASS (klass)->finalize = lychee_transcript_survey_finalize;
}

/**
 * lychee_transcript_survey_new:
 * @format: as for the parser
 * @encoding: (nullable): as for the parser
 *
 * Returns: (transfer full): a survey
 */
LycheeTranscriptSurvey *
lychee_transcript_survey_new (LycheeTranscriptFormat format, const char *encoding)
{
  LycheeTranscriptSurvey *self = g_object_new (LYCHEE_TYPE_TRANSCRIPT_SURVEY, NULL);

  self->format = format;
  self->requested = g_strdup (encoding);
  self->first = lychee_encoding_survey_new (encoding);
  return self;
}

static void
look_at_cues (LycheeTranscriptSurvey *self)
{
  for (guint i = 0; i < self->cues->len; i++)
    lychee_hygiene_evidence_learn (self->evidence, g_ptr_array_index (self->cues, i));
  g_ptr_array_set_size (self->cues, 0);
}

/**
 * lychee_transcript_survey_push:
 * @survey: a survey
 * @data: (array length=length) (element-type guint8): the next bytes of the transcript
 * @length: how many
 */
void
lychee_transcript_survey_push (LycheeTranscriptSurvey *survey, const void *data, gsize length)
{
  g_return_if_fail (LYCHEE_IS_TRANSCRIPT_SURVEY (survey));
  g_return_if_fail (data != NULL || length == 0);

  if (survey->first != NULL) {
    lychee_encoding_survey_push (survey->first, data, length);
  } else if (survey->parser != NULL) {
    lychee_transcript_parser_push (survey->parser, data, length, survey->cues);
    look_at_cues (survey);
  }
}

/**
 * lychee_transcript_survey_end:
 * @survey: a survey
 *
 * To be called at the end of the transcript.
 *
 * Returns: whether the transcript is to be pushed again, from its beginning
 */
gboolean
lychee_transcript_survey_end (LycheeTranscriptSurvey *survey)
{
  g_return_val_if_fail (LYCHEE_IS_TRANSCRIPT_SURVEY (survey), FALSE);

  if (survey->first != NULL) {
    survey->encoding = lychee_encoding_survey_end (survey->first, &survey->guessed);
    g_clear_pointer (&survey->first, lychee_encoding_survey_free);
    survey->parser = lychee_transcript_parser_new (survey->format, survey->requested);
    lychee_transcript_parser_set_patience (survey->parser, G_MAXUINT64, PATIENCE_BYTES);
    lychee_transcript_parser_preset_encoding (survey->parser, survey->encoding, survey->guessed);
    return TRUE;
  }
  lychee_transcript_parser_finish (survey->parser, survey->cues);
  look_at_cues (survey);
  return FALSE;
}

/**
 * lychee_transcript_survey_get_end_time:
 * @survey: a survey that has ended
 *
 * Returns: when the last cue ends, in nanoseconds; 0 where none has a time
 */
guint64
lychee_transcript_survey_get_end_time (LycheeTranscriptSurvey *survey)
{
  g_return_val_if_fail (LYCHEE_IS_TRANSCRIPT_SURVEY (survey), 0);

  return survey->parser != NULL ? lychee_transcript_parser_get_end_time (survey->parser) : 0;
}

const char *
lychee_transcript_survey_get_encoding (LycheeTranscriptSurvey *survey, gboolean *guessed)
{
  *guessed = survey->guessed;
  return survey->encoding;
}

guint64
lychee_transcript_survey_get_disorder (LycheeTranscriptSurvey *survey)
{
  return survey->parser != NULL ? lychee_transcript_parser_get_disorder (survey->parser) : 0;
}

LycheeHygieneEvidence *
lychee_transcript_survey_get_evidence (LycheeTranscriptSurvey *survey)
{
  return survey->evidence;
}
