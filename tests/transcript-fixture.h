/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "lychee-hygiene.h"

#include <string.h>

/* Reads transcripts and writes down what came of them, for tests and fuzzers. */

/* A cue as "1.000-2.000 Ann|text"; newlines in the text as "/", times that are not known as "?". */
static inline void
describe_cue (GString *out, const LycheeCue *cue)
{
  g_autofree char *text = g_strdelimit (g_strdup (cue->text), "\n", '/');
  guint64 times[2] = { cue->start, cue->end };

  for (guint i = 0; i < 2; i++) {
    if (times[i] == LYCHEE_TIME_NONE)
      g_string_append (out, "?");
    else
      g_string_append_printf (out, "%" G_GUINT64_FORMAT ".%03u", times[i] / 1000000000,
          (guint) (times[i] / 1000000 % 1000));
    g_string_append_c (out, i == 0 ? '-' : ' ');
  }
  g_string_append_printf (out, "%s|%s\n", cue->speaker != NULL ? cue->speaker : "", text);
}

typedef struct {
  LycheeTranscriptFormat format;
  const char *encoding;
  gboolean raw;     /* without hygiene */
  gboolean stream;  /* without a survey */
  guint64 patience; /* of a stream; 0 for the usual one */
} ReadOptions;

typedef struct {
  LycheeTranscriptReport report;
  LycheeHygieneReport hygiene;
  LycheeTranscriptFormat format;
  char *language;
} ReadResult;

/* Pushes @length bytes in pieces of @piece bytes, the first of @first. */
static inline void
push_pieces (const char *data, gsize length, gsize first, gsize piece,
    void (*push) (gpointer object, const char *data, gsize length), gpointer object)
{
  gsize at = MIN (first, length);

  push (object, data, at);
  for (; at < length; at += MIN (piece, length - at))
    push (object, data + at, MIN (piece, length - at));
}

typedef struct {
  LycheeTranscriptParser *parser;
  LycheeHygiene *hygiene; /* NULL for none */
  GPtrArray *parsed;
  GPtrArray *cues;
} Reading;

static inline void
clean_parsed (Reading *reading)
{
  for (guint i = 0; i < reading->parsed->len; i++)
    if (reading->hygiene != NULL)
      lychee_hygiene_push (reading->hygiene, g_ptr_array_index (reading->parsed, i), reading->cues);
    else
      g_ptr_array_add (reading->cues, g_ptr_array_index (reading->parsed, i));
  g_ptr_array_set_size (reading->parsed, 0);
}

static inline void
push_to_reading (gpointer object, const char *data, gsize length)
{
  Reading *reading = object;

  lychee_transcript_parser_push (reading->parser, data, length, reading->parsed);
  clean_parsed (reading);
}

static inline void
push_to_survey (gpointer object, const char *data, gsize length)
{
  lychee_transcript_survey_push (object, data, length);
}

/* Reads a transcript in pieces. Returns the cues; @result: (nullable). */
static inline GPtrArray *
read_transcript (const char *data, gsize length, gsize first, gsize piece,
    const ReadOptions *options, ReadResult *result)
{
  Reading reading = { 0 };
  g_autoptr (LycheeTranscriptSurvey) survey = NULL;

  reading.parser = lychee_transcript_parser_new (options->format, options->encoding);
  reading.hygiene = options->raw ? NULL : lychee_hygiene_new ();
  reading.parsed = g_ptr_array_new ();
  reading.cues = g_ptr_array_new_with_free_func ((GDestroyNotify) lychee_cue_free);
  if (options->stream) {
    if (options->patience > 0)
      lychee_transcript_parser_set_patience (reading.parser, options->patience, 1024 * 1024);
  } else {
    survey = lychee_transcript_survey_new (options->format, options->encoding);
    do
      push_pieces (data, length, first, piece, push_to_survey, survey);
    while (lychee_transcript_survey_end (survey));
    lychee_transcript_parser_set_survey (reading.parser, survey);
    if (reading.hygiene != NULL)
      lychee_hygiene_set_survey (reading.hygiene, survey);
  }
  push_pieces (data, length, first, piece, push_to_reading, &reading);
  lychee_transcript_parser_finish (reading.parser, reading.parsed);
  clean_parsed (&reading);
  if (reading.hygiene != NULL)
    lychee_hygiene_drain (reading.hygiene, reading.cues);
  if (result != NULL) {
    result->report = lychee_transcript_parser_get_report (reading.parser);
    result->format = lychee_transcript_parser_get_format (reading.parser);
    result->language = g_strdup (lychee_transcript_parser_get_language (reading.parser));
    if (reading.hygiene != NULL)
      result->hygiene = lychee_hygiene_get_report (reading.hygiene);
  }
  g_object_unref (reading.parser);
  g_clear_object (&reading.hygiene);
  g_ptr_array_unref (reading.parsed);
  return reading.cues;
}

static inline char *
describe_transcript (
    const char *data, gsize length, gsize first, gsize piece, const ReadOptions *options)
{
  g_autoptr (GPtrArray) cues = read_transcript (data, length, first, piece, options, NULL);
  GString *out = g_string_new (NULL);

  for (guint i = 0; i < cues->len; i++)
    describe_cue (out, g_ptr_array_index (cues, i));
  return g_string_free (out, FALSE);
}
