/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "lychee-transcript-parser-private.h"

#include <string.h>

/* Plain text: each line a cue, which has a time where it begins with one in brackets. */

/* A long line, such as a whole speech, is handed out in pieces as they come. */
#define PIECE_LENGTH (16 * 1024)

typedef struct {
  LycheeTranscriptReader reader;
  gboolean may_be_other;
  char *held; /* a line that is a number: with a line of times behind it, it is SubRip's */
  gboolean paragraph;
  gboolean began;
} TextReader;

/* Moves on over "[00:01:02]", "(1:02.5)". */
static guint64
take_time (const char **line)
{
  const char *at = *line;
  char close = *at == '[' ? ']' : *at == '(' ? ')' : '\0';
  guint64 time;

  if (close == '\0')
    return LYCHEE_TIME_NONE;
  at++;
  if (memchr (at, ':', strcspn (at, "])")) == NULL || !lychee_transcript_parse_time (&at, &time) ||
      *at != close)
    return LYCHEE_TIME_NONE;
  at++;
  while (*at == ' ' || *at == '\t')
    at++;
  *line = at;
  return time;
}

static void
give_line (TextReader *self, const char *line, gsize length)
{
  guint64 time = LYCHEE_TIME_NONE;
  const char *text = line;

  while (*text == ' ' || *text == '\t')
    text++;
  time = take_time (&text);
  length -= text - line;
  while (length > 0 && (text[length - 1] == ' ' || text[length - 1] == '\t'))
    length--;
  while (length > 0) {
    gsize piece =
        length > PIECE_LENGTH ? lychee_transcript_cut (text, length, PIECE_LENGTH) : length;
    LycheeCue *cue = lychee_cue_new (text, piece, NULL, time, LYCHEE_TIME_NONE);

    if (piece < length)
      cue->flags |= LYCHEE_CUE_CONTINUES;
    if (self->paragraph && self->began)
      cue->flags |= LYCHEE_CUE_PARAGRAPH;
    self->paragraph = FALSE;
    self->began = TRUE;
    g_ptr_array_add (self->reader.output->cues, cue);
    text += piece;
    length -= piece;
  }
}

static void
give_held (TextReader *self)
{
  if (self->held != NULL)
    give_line (self, self->held, strlen (self->held));
  g_clear_pointer (&self->held, g_free);
}

/* What a line in the midst of text shows it to be: more must speak for it than at the beginning,
 * where nothing has been taken for speech yet. */
static LycheeTranscriptFormat
shows_other (const char *line)
{
  LycheeTranscriptFormat format = lychee_transcript_format_of_line (line);
  guint64 start = LYCHEE_TIME_NONE;
  guint64 end = LYCHEE_TIME_NONE;
  const char *rest;

  switch (format) {
  case LYCHEE_TRANSCRIPT_FORMAT_SUBRIP:
    lychee_transcript_parse_times (line, &start, &end, &rest);
    return start != LYCHEE_TIME_NONE && end != LYCHEE_TIME_NONE ? format
                                                                : LYCHEE_TRANSCRIPT_FORMAT_AUTO;
  case LYCHEE_TRANSCRIPT_FORMAT_WEBVTT:
    return g_str_has_prefix (line, "WEBVTT") ? format : LYCHEE_TRANSCRIPT_FORMAT_AUTO;
  case LYCHEE_TRANSCRIPT_FORMAT_ASS:
    rest = strchr (line, ',');
    if (rest != NULL)
      rest++;
    return g_str_has_prefix (line, "[Script Info]") ||
                   (g_str_has_prefix (line, "Dialogue:") && rest != NULL &&
                       memchr (rest, ':', strcspn (rest, ",")) != NULL &&
                       lychee_transcript_parse_time (&rest, &start))
               ? format
               : LYCHEE_TRANSCRIPT_FORMAT_AUTO;
  default:
    return LYCHEE_TRANSCRIPT_FORMAT_AUTO;
  }
}

static void
text_reader_push (LycheeTranscriptReader *reader, const char *line, gsize length)
{
  TextReader *self = (TextReader *) reader;
  guint64 number;

  if (self->may_be_other) {
    reader->becomes = shows_other (line);
    if (reader->becomes != LYCHEE_TRANSCRIPT_FORMAT_AUTO) {
      if (reader->becomes != LYCHEE_TRANSCRIPT_FORMAT_SUBRIP)
        give_held (self);
      return;
    }
    give_held (self);
  }
  if (lychee_transcript_is_blank (line, length)) {
    self->paragraph = TRUE;
  } else if (self->may_be_other && lychee_transcript_is_number (line, length, &number)) {
    self->held = g_strndup (line, length);
  } else {
    give_line (self, line, length);
  }
}

static void
text_reader_finish (LycheeTranscriptReader *reader)
{
  give_held ((TextReader *) reader);
}

static void
text_reader_free (LycheeTranscriptReader *reader)
{
  TextReader *self = (TextReader *) reader;

  g_free (self->held);
  g_free (self);
}

LycheeTranscriptReader *
lychee_transcript_reader_new_text (LycheeTranscriptOutput *output, gboolean may_be_other)
{
  TextReader *self = g_new0 (TextReader, 1);

  self->reader.push = text_reader_push;
  self->reader.finish = text_reader_finish;
  self->reader.free = text_reader_free;
  self->reader.output = output;
  self->may_be_other = may_be_other;
  return &self->reader;
}
