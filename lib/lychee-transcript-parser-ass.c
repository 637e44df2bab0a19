/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "lychee-transcript-parser-private.h"

#include <string.h>

/* Advanced SubStation Alpha and its forerunner: lines "Dialogue: field,field,...,text", whose
 * fields a line "Format:" names. Only the last field, the text, may have commas. */

typedef struct {
  LycheeTranscriptReader reader;
  gboolean events; /* inside the section that dialogue is in, or there are no sections */
  guint n_fields;
  guint start;
  guint end;
  guint name;
} AssReader;

static void
set_default_format (AssReader *self)
{
  self->n_fields = 10;
  self->start = 1;
  self->end = 2;
  self->name = 4;
}

static void
read_format (AssReader *self, const char *line)
{
  g_auto (GStrv) fields = g_strsplit (line, ",", -1);
  AssReader found = *self;

  found.name = G_MAXUINT;
  found.start = G_MAXUINT;
  found.end = G_MAXUINT;
  for (found.n_fields = 0; fields[found.n_fields] != NULL; found.n_fields++) {
    const char *field = g_strstrip (fields[found.n_fields]);

    if (g_ascii_strcasecmp (field, "Start") == 0)
      found.start = found.n_fields;
    else if (g_ascii_strcasecmp (field, "End") == 0)
      found.end = found.n_fields;
    else if (g_ascii_strcasecmp (field, "Name") == 0 || g_ascii_strcasecmp (field, "Actor") == 0)
      found.name = found.n_fields;
  }
  if (found.start < found.n_fields && found.end < found.n_fields)
    *self = found;
}

static guint64
read_time (const char *text)
{
  guint64 time;

  return lychee_transcript_parse_time (&text, &time) ? time : LYCHEE_TIME_NONE;
}

static void
read_dialogue (AssReader *self, const char *line)
{
  g_auto (GStrv) fields = g_strsplit (line, ",", MAX (self->n_fields, 2));
  guint n = g_strv_length (fields);
  const char *text;
  const char *speaker;
  LycheeCue *cue;

  if (n == 0)
    return;
  text = g_strstrip (fields[n - 1]);
  if (*text == '\0') {
    self->reader.output->report->empty++;
    return;
  }
  speaker = self->name < n - 1 ? g_strstrip (fields[self->name]) : "";
  cue = lychee_cue_new (text, -1, *speaker != '\0' ? speaker : NULL,
      self->start < n - 1 ? read_time (fields[self->start]) : LYCHEE_TIME_NONE,
      self->end < n - 1 ? read_time (fields[self->end]) : LYCHEE_TIME_NONE);
  cue->markup = LYCHEE_CUE_MARKUP_ASS;
  if (cue->start != LYCHEE_TIME_NONE && cue->end == LYCHEE_TIME_NONE)
    self->reader.output->report->untimed++;
  lychee_transcript_order_add (self->reader.output->order, cue, self->reader.output->cues);
}

static void
ass_reader_push (LycheeTranscriptReader *reader, const char *line, gsize length)
{
  AssReader *self = (AssReader *) reader;

  while (*line == ' ' || *line == '\t')
    line++;
  if (*line == '[')
    self->events = g_ascii_strncasecmp (line, "[Events]", 8) == 0;
  else if (!self->events)
    return;
  else if (g_ascii_strncasecmp (line, "Dialogue:", 9) == 0)
    read_dialogue (self, line + 9);
  else if (g_ascii_strncasecmp (line, "Format:", 7) == 0)
    read_format (self, line + 7);
}

static void
ass_reader_finish (LycheeTranscriptReader *reader)
{}

static void
ass_reader_free (LycheeTranscriptReader *reader)
{
  g_free (reader);
}

LycheeTranscriptReader *
lychee_transcript_reader_new_ass (LycheeTranscriptOutput *output)
{
  AssReader *self = g_new0 (AssReader, 1);

  self->reader.push = ass_reader_push;
  self->reader.finish = ass_reader_finish;
  self->reader.free = ass_reader_free;
  self->reader.output = output;
  self->events = TRUE;
  set_default_format (self);
  return &self->reader;
}

/**
 * lychee_transcript_parse_dialogue:
 * @line: (array length=length): a line of dialogue as containers such as Matroska have it
 * @length: its bytes
 *
 * Reads a line of ASS that has its number in place of its times: number, layer, style, name, three
 * margins, effect, text.
 *
 * Returns: (transfer full): a cue without times
 */
LycheeCue *
lychee_transcript_parse_dialogue (const char *line, gsize length)
{
  LycheeCue *cue = lychee_transcript_parse_text (line, length);
  g_auto (GStrv) fields = g_strsplit (cue->text, ",", 9);

  cue->markup = LYCHEE_CUE_MARKUP_ASS;
  if (g_strv_length (fields) == 9) {
    g_free (cue->text);
    cue->text = g_strdup (g_strstrip (fields[8]));
    if (*g_strstrip (fields[3]) != '\0')
      cue->speaker = g_strdup (fields[3]);
  }
  return cue;
}
