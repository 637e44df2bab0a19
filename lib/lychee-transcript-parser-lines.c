/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "lychee-transcript-parser-private.h"

#include <string.h>

/* Subtitles of a line each, with their times before them: MicroDVD, "{25}{50}text|second line" in
 * frames; MPL2, "[10]" likewise in tenths of a second; LRC, "[01:02.50]text", once for each time
 * that the line is sung. A line without times goes on from the one before. */

/* Of films, where MicroDVD does not say: "{1}{1}25" does. */
#define DEFAULT_RATE (24000.0 / 1001)
#define SECOND G_GUINT64_CONSTANT (1000000000)
#define MAX_STAMPS 64

typedef struct {
  LycheeTranscriptReader reader;
  double rate;
  gint64 offset;   /* LRC's, in nanoseconds: the lines are shown so much earlier */
  guint64 waiting; /* LRC: a time without a text, LYCHEE_TIME_NONE for none */
} LinesReader;

/* "{25}" or "[25]", or "{}", whose number is not known. */
static gboolean
read_number (const char **text, char open, char close, gint64 *number)
{
  const char *at = *text;
  gsize n;

  if (*at++ != open)
    return FALSE;
  n = strspn (at, "0123456789");
  if (n > 9 || at[n] != close)
    return FALSE;
  *number = n > 0 ? (gint64) g_ascii_strtoull (at, NULL, 10) : -1;
  *text = at + n + 1;
  return TRUE;
}

/* "{25}{50}", "[25][50]"; @open: of which kind. */
static gboolean
read_span (const char **text, char *open, gint64 *start, gint64 *end)
{
  const char *at = *text;
  char close = *at == '{' ? '}' : ']';

  *open = *at;
  if ((*at != '{' && *at != '[') || !read_number (&at, *open, close, start) || *start < 0 ||
      !read_number (&at, *open, close, end))
    return FALSE;
  *text = at;
  return TRUE;
}

/* "[01:02.50]", which has no hours. "[01:02:50]" is of an ordinary transcript, and in hours. */
static gboolean
read_stamp (const char **text, guint64 *time)
{
  const char *at = *text;
  gsize minutes, seconds, fraction;

  if (*at++ != '[')
    return FALSE;
  minutes = strspn (at, "0123456789");
  if (minutes == 0 || minutes > 3 || at[minutes] != ':')
    return FALSE;
  seconds = strspn (at + minutes + 1, "0123456789");
  if (seconds != 2 || at[minutes + 3] != '.')
    return FALSE;
  fraction = strspn (at + minutes + 4, "0123456789");
  if (fraction < 2 || fraction > 3 || at[minutes + 4 + fraction] != ']')
    return FALSE;
  *time = (g_ascii_strtoull (at, NULL, 10) * 60 + g_ascii_strtoull (at + minutes + 1, NULL, 10)) *
              SECOND +
          g_ascii_strtoull (at + minutes + 4, NULL, 10) * (fraction == 2 ? 10000000 : 1000000);
  *text = at + minutes + 5 + fraction;
  return TRUE;
}

/* "[ti:A song]": what LRC says about itself. */
static gboolean
is_tag (const char *line, const char **value)
{
  static const char *const names[] = { "ti", "ar", "al", "au", "by", "lr", "re", "ve", "la", "tool",
    "length", "offset", "id", "encoding" };
  gsize length = strcspn (line, ":");

  if (*line != '[' || line[length] != ':' || line[strlen (line) - 1] != ']')
    return FALSE;
  *value = line + length + 1;
  for (guint i = 0; i < G_N_ELEMENTS (names); i++)
    if (strlen (names[i]) == length - 1 &&
        g_ascii_strncasecmp (line + 1, names[i], length - 1) == 0)
      return TRUE;
  return FALSE;
}

/* Whether @line is one of these formats'. @start: of MicroDVD and MPL2, in its units; -1: of LRC.
 */
static gboolean
is_line (const char *line, char *open, gint64 *start)
{
  const char *at = line, *value;
  guint64 time;
  gint64 end;

  if (read_span (&at, open, start, &end))
    return end < 0 || end >= *start;
  *open = '\0';
  *start = -1;
  at = line;
  return is_tag (line, &value) || read_stamp (&at, &time);
}

/* Footnotes, citations and times in ordinary text are in brackets, too: there must be two lines of
 * the kind, the second not before the first. */
LycheeTranscriptFormat
lychee_transcript_detect_lines (const char *text, gsize length, gboolean at_end)
{
  const char *at = text, *end = text + length;
  gint64 first = -1;
  guint n_lines = 0;

  while (at < end) {
    gsize n = strcspn (at, "\r\n");
    g_autofree char *line = g_strndup (at, n);
    gint64 start;
    char open;

    if (at + n >= end && !at_end)
      return LYCHEE_TRANSCRIPT_FORMAT_AUTO;
    at += n;
    while (at < end && (*at == '\r' || *at == '\n'))
      at++;
    if (!is_line (line, &open, &start) || start < first)
      return LYCHEE_TRANSCRIPT_FORMAT_TEXT;
    first = start;
    n_lines++;
    if (open == '{' || n_lines == 2)
      return LYCHEE_TRANSCRIPT_FORMAT_LINES;
  }
  return at_end ? LYCHEE_TRANSCRIPT_FORMAT_TEXT : LYCHEE_TRANSCRIPT_FORMAT_AUTO;
}

/* Of the text of a line: "|" parts lines, "/" slants one, "{y:i}" and "<01:02.50>" are not said. */
static char *
clean (const char *text, gboolean lyrics)
{
  GString *out = g_string_new (NULL);

  while (*text != '\0') {
    gsize length = 0;

    if (!lyrics && *text == '/' && (out->len == 0 || out->str[out->len - 1] == '\n')) {
      text++;
      continue;
    }
    if (!lyrics && *text == '{' && g_ascii_isalpha (text[1]) && text[2] == ':')
      length = strcspn (text, "}");
    else if (lyrics && *text == '<' && g_ascii_isdigit (text[1]))
      length = 1 + strspn (text + 1, "0123456789:.");
    if (length > 0 && text[length] == (lyrics ? '>' : '}')) {
      text += length + 1;
      continue;
    }
    g_string_append_c (out, !lyrics && *text == '|' ? '\n' : *text);
    text++;
  }
  return g_strstrip (g_string_free (out, FALSE));
}

static void
give (LinesReader *self, const char *text, guint64 start, guint64 end, gboolean lyrics)
{
  LycheeTranscriptOutput *output = self->reader.output;
  g_autofree char *said = clean (text, lyrics);

  if (lychee_transcript_is_blank (said, strlen (said))) {
    output->report->empty++;
    return;
  }
  lychee_transcript_order_add (
      output->order, lychee_cue_new (said, -1, NULL, start, end), output->cues);
}

static void
give_lyrics (LinesReader *self, const char *line)
{
  guint64 times[MAX_STAMPS];
  guint n = 0;
  const char *value;

  if (is_tag (line, &value)) {
    if (g_ascii_strncasecmp (line, "[offset:", 8) == 0)
      self->offset = CLAMP (g_ascii_strtoll (value, NULL, 10), -3600000, 3600000) * 1000000;
    return;
  }
  while (n < MAX_STAMPS && read_stamp (&line, &times[n])) {
    gint64 shifted = (gint64) times[n] - self->offset;

    times[n++] = MAX (shifted, 0);
    line += strspn (line, " \t");
  }
  if (*line == '\0') { /* the line before has been sung, or the next line is sung then */
    self->waiting = times[0];
    return;
  }
  if (n == 0)
    times[n++] = self->waiting;
  self->waiting = LYCHEE_TIME_NONE;
  for (guint i = 0; i < n; i++)
    give (self, line, times[i], LYCHEE_TIME_NONE, TRUE);
}

static guint64
scale (double units, double rate)
{
  return (guint64) (units / rate * SECOND + 0.5);
}

static void
lines_reader_push (LycheeTranscriptReader *reader, const char *line, gsize length)
{
  LinesReader *self = (LinesReader *) reader;
  const char *at;
  gint64 start, end;
  char open;
  double rate;

  line += strspn (line, " \t");
  if (lychee_transcript_is_blank (line, strlen (line)))
    return;
  at = line;
  if (!read_span (&at, &open, &start, &end)) {
    if (!g_str_has_prefix (line, "{DEFAULT}"))
      give_lyrics (self, line);
    return;
  }
  if (open == '{' && start == end && start <= 1) {
    char *behind;

    rate = g_ascii_strtod (at, &behind);
    if (behind > at && rate >= 1 && rate <= 1000) {
      self->rate = rate;
      return;
    }
  }
  rate = open == '{' ? self->rate : 10;
  give (self, at, scale (start, rate), end >= 0 ? scale (end, rate) : LYCHEE_TIME_NONE, FALSE);
}

static void
lines_reader_finish (LycheeTranscriptReader *reader)
{}

static void
lines_reader_free (LycheeTranscriptReader *reader)
{
  g_free (reader);
}

LycheeTranscriptReader *
lychee_transcript_reader_new_lines (LycheeTranscriptOutput *output)
{
  LinesReader *self = g_new0 (LinesReader, 1);

  self->reader.push = lines_reader_push;
  self->reader.finish = lines_reader_finish;
  self->reader.free = lines_reader_free;
  self->reader.output = output;
  self->rate = DEFAULT_RATE;
  self->waiting = LYCHEE_TIME_NONE;
  return &self->reader;
}
