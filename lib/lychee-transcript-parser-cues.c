/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "lychee-transcript-parser-private.h"

#include <string.h>

/* SubRip and WebVTT: blocks of a number or name, a line of times, lines of text, an empty line.
 *
 * In the wild, empty lines are where they should not be, or missing; so a cue's text goes on until
 * the next line of times, and the line before that one is its number where it can be one.
 *
 * Whether the line before a cue's times is its name, which is not said, or speech whose empty line
 * was lost, is a matter of judgement, and speech must not be lost: see is_name(). A style sheet
 * goes on over an empty line while a brace is open. */

typedef enum {
  STATE_HEADER,
  STATE_BODY,
  STATE_SKIPPING, /* a comment, a style sheet, a region: until the next empty line */
  STATE_STYLE,    /* a style sheet: likewise, but not within braces */
} State;

typedef struct {
  LycheeTranscriptReader reader;
  gboolean webvtt;
  State state;

  gboolean has_header;
  gboolean open; /* a line of times has been */
  guint64 start;
  guint64 end;
  char *speaker;     /* (nullable) that the cue's name tells */
  gboolean preamble; /* what SubViewer says about itself */
  GString *text;
  gsize last_line;           /* where the last line of it begins */
  gboolean last_after_empty; /* and whether an empty line is before that */
  gboolean after_empty;      /* the line before was empty */

  guint64 number; /* of the last cue that had one */
  gboolean has_number;
  guint n_cues;
  guint n_names;  /* that are no numbers */
  guint n_braces; /* open in a style sheet */
  gboolean had_first;
  gboolean new_header; /* the next cue is the first of another file */
  guint64 latest;      /* start of the cues so far */
} CueReader;

/* Whether @line begins a block of this kind. */
static gboolean
begins_block (const char *line, const char *kind)
{
  gsize length = strlen (kind);

  return strncmp (line, kind, length) == 0 &&
         (line[length] == '\0' || line[length] == ' ' || line[length] == '\t');
}

static void
give_text (CueReader *self, gsize length, guint flags)
{
  LycheeCue *cue;
  gsize start = 0;

  while (start < length && strchr (" \t\n", self->text->str[start]) != NULL)
    start++;
  while (flags == 0 && length > start && strchr (" \t\n", self->text->str[length - 1]) != NULL)
    length--;
  if (lychee_transcript_is_blank (self->text->str + start, length - start)) {
    if (self->open && flags == 0)
      self->reader.output->report->empty++;
    return;
  }
  cue = lychee_cue_new (self->text->str + start, length - start, self->open ? self->speaker : NULL,
      self->open ? self->start : LYCHEE_TIME_NONE, self->open ? self->end : LYCHEE_TIME_NONE);
  cue->markup = self->webvtt ? LYCHEE_CUE_MARKUP_WEBVTT : LYCHEE_CUE_MARKUP_SUBRIP;
  cue->flags = flags;
  if (cue->start != LYCHEE_TIME_NONE && cue->end == LYCHEE_TIME_NONE)
    self->reader.output->report->untimed++;
  lychee_transcript_order_add (self->reader.output->order, cue, self->reader.output->cues);
}

static void
close_cue (CueReader *self)
{
  give_text (self, self->text->len, 0);
  g_string_truncate (self->text, 0);
  self->last_line = 0;
  self->last_after_empty = TRUE;
  self->after_empty = FALSE;
  self->open = FALSE;
  g_clear_pointer (&self->speaker, g_free);
}

static void
append_line (CueReader *self, const char *line)
{
  if (self->text->len > 0)
    g_string_append (self->text, self->after_empty ? "\n\n" : "\n");
  self->last_after_empty = self->after_empty || self->text->len == 0;
  self->last_line = self->text->len;
  g_string_append (self->text, line);
  if (!self->webvtt) /* SubViewer's */
    for (char *at = self->text->str + self->last_line; (at = strstr (at, "[br]")) != NULL;)
      g_string_overwrite_len (self->text, at - self->text->str, "  \n ", 4);
  while (self->text->len > self->last_line &&
         strchr (" \t", self->text->str[self->text->len - 1]) != NULL)
    g_string_truncate (self->text, self->text->len - 1);
  self->after_empty = FALSE;

  while (self->text->len > LYCHEE_CUE_MAX_LENGTH) {
    gsize cut = lychee_transcript_cut (self->text->str, self->text->len, LYCHEE_CUE_MAX_LENGTH / 2);

    give_text (self, cut, LYCHEE_CUE_CONTINUES);
    g_string_erase (self->text, 0, cut);
    self->last_line -= MIN (cut, self->last_line);
  }
}

/* Whether @line, between an empty line and a cue's times, is the cue's name. Where others have
 * names it is, whatever it looks like; where they have none it is only if it looks like what
 * programs write. The first cue's is, if it is one word. @all: there is nothing else that the cue
 * before can say, so that it must look like nothing but a name. */
static gboolean
is_name (CueReader *self, const char *line, gboolean all)
{
  if (self->n_names > 0)
    return TRUE;
  if (strpbrk (line, " \t") != NULL)
    return FALSE;
  if (all)
    return strpbrk (line, "0123456789") != NULL && strpbrk (line, "-_/#") != NULL &&
           strspn (line, "0123456789abcdefABCDEF-_/#") == strlen (line);
  return self->n_cues == 0 || strpbrk (line, "0123456789_/#") != NULL;
}

/* Reads "12 "Ann Lee" (3456)", which is how Webex names cues. */
static gboolean
read_voice (const char *line, guint64 *number, char **speaker)
{
  gsize n = strspn (line, "0123456789");
  const char *open = line + n + 1, *close = strrchr (line, '"');

  if (n == 0 || line[n] != ' ' || *open != '"' || close == open ||
      !lychee_transcript_is_number (line, n, number) ||
      (close[1] != '\0' && !(close[1] == ' ' && close[2] == '(' && strchr (close, ')') != NULL)))
    return FALSE;
  *speaker = close > open + 1 ? g_strndup (open + 1, close - open - 1) : NULL;
  return TRUE;
}

/* Whether the last line of the text is the number or name of the cue whose times come next.
 * @speaker: (out) (nullable): who speaks then, where it tells. */
static gboolean
last_line_is_name (CueReader *self, char **speaker)
{
  const char *line = self->text->str + self->last_line;
  gboolean adjacent = !self->after_empty;
  gboolean next;
  guint64 number;

  if (self->text->len == 0 || self->last_line >= self->text->len)
    return FALSE;
  if (lychee_transcript_is_number (line, self->text->len - self->last_line, &number)) {
    next = self->has_number && number == self->number + 1;
    if (adjacent ? self->last_after_empty || next || (self->has_number && !self->webvtt)
                 : self->last_after_empty && (next || (!self->has_number && !self->open))) {
      self->number = number;
      self->has_number = TRUE;
      return TRUE;
    }
    return FALSE;
  }
  if (adjacent && self->webvtt && read_voice (line, &number, speaker)) {
    self->number = number;
    self->has_number = TRUE;
    return TRUE;
  }
  if (!self->webvtt || !adjacent || !self->last_after_empty ||
      !is_name (self, line, self->last_line == 0 && self->open))
    return FALSE;
  self->n_names++;
  return TRUE;
}

/* Takes the lines out that begin with a name in brackets. */
static void
drop_preamble (CueReader *self)
{
  g_auto (GStrv) lines = g_strsplit (self->text->str, "\n", -1);

  g_string_truncate (self->text, 0);
  self->last_line = 0;
  for (guint i = 0; lines[i] != NULL; i++)
    if (*lines[i] != '[' && *lines[i] != '\0')
      append_line (self, lines[i]);
}

static void
begin_cue (CueReader *self, guint64 start, guint64 end, const char *rest)
{
  gboolean first = self->new_header;
  guint64 before = self->number;
  g_autofree char *speaker = NULL;
  gboolean named = last_line_is_name (self, &speaker);

  if (self->preamble && self->n_cues == 0)
    drop_preamble (self);

  if (named)
    g_string_truncate (self->text, self->last_line);
  close_cue (self);
  self->speaker = g_steal_pointer (&speaker);

  if (named && self->number == 1 && before != 1) {
    first |= self->had_first;
    self->had_first = TRUE;
  }
  if (first && start != LYCHEE_TIME_NONE && start < self->latest) {
    lychee_transcript_order_restart (self->reader.output->order, self->reader.output->cues);
    self->latest = 0;
  }
  self->new_header = FALSE;
  self->n_cues++;
  if (start != LYCHEE_TIME_NONE)
    self->latest = MAX (self->latest, start);
  self->open = TRUE;
  self->start = start;
  self->end = end;
  rest = lychee_transcript_skip_settings (rest);
  if (!lychee_transcript_is_blank (rest, strlen (rest)))
    append_line (self, rest);
}

static void
read_header (CueReader *self, const char *line)
{
  LycheeTranscriptOutput *output = self->reader.output;

  if (g_ascii_strncasecmp (line, "Language:", 9) == 0 && output->language == NULL)
    output->language = g_strstrip (g_strdup (line + 9));
}

static void
count_braces (CueReader *self, const char *line)
{
  for (; *line != '\0'; line++) {
    if (*line == '{')
      self->n_braces++;
    else if (*line == '}' && self->n_braces > 0)
      self->n_braces--;
  }
}

static void
cue_reader_push (LycheeTranscriptReader *reader, const char *line, gsize length)
{
  CueReader *self = (CueReader *) reader;
  gboolean blank = lychee_transcript_is_blank (line, length);
  guint64 start;
  guint64 end;
  const char *rest;

  if (!blank && lychee_transcript_parse_times (line, &start, &end, &rest)) {
    self->state = STATE_BODY;
    self->n_braces = 0;
    /* WebVTT without its header: SubRip has commas. */
    if (self->n_cues == 0 && !self->webvtt)
      self->webvtt =
          memchr (line, '.', rest - line) != NULL && memchr (line, ',', rest - line) == NULL;
    begin_cue (self, start, end, rest);
    return;
  }
  self->preamble |= self->n_cues == 0 && g_str_has_prefix (line, "[INFORMATION]");
  if (self->state == STATE_HEADER && !self->has_header) {
    if (blank)
      return;
    self->has_header = TRUE;
    if (lychee_transcript_detect (line, length, TRUE) != LYCHEE_TRANSCRIPT_FORMAT_WEBVTT)
      self->state = STATE_BODY;
  }
  if (self->state != STATE_BODY) {
    if (self->state == STATE_STYLE)
      count_braces (self, line);
    if (blank && self->n_braces == 0) {
      self->state = STATE_BODY;
      self->after_empty = TRUE;
    } else if (self->state == STATE_HEADER) {
      read_header (self, line);
    }
    return;
  }
  if (blank) {
    self->after_empty = TRUE;
    return;
  }
  if (self->webvtt && (self->after_empty || (self->text->len == 0 && !self->open))) {
    if (begins_block (line, "NOTE") || begins_block (line, "REGION")) {
      self->state = STATE_SKIPPING;
      return;
    }
    if (begins_block (line, "STYLE") || g_str_has_prefix (line, "::cue")) {
      self->state = STATE_STYLE;
      count_braces (self, line);
      return;
    }
    if (begins_block (line, "WEBVTT")) {
      self->state = STATE_HEADER;
      self->new_header = TRUE;
      return;
    }
  }
  while (*line == ' ' || *line == '\t')
    line++;
  append_line (self, line);
}

static void
cue_reader_finish (LycheeTranscriptReader *reader)
{
  CueReader *self = (CueReader *) reader;
  guint64 number;

  /* The number of a cue that is no more. */
  if (self->text->len > 0 && self->last_after_empty && self->last_line > 0 && self->has_number &&
      lychee_transcript_is_number (
          self->text->str + self->last_line, self->text->len - self->last_line, &number) &&
      number == self->number + 1)
    g_string_truncate (self->text, self->last_line);
  close_cue (self);
}

/* An empty line is inside of a cue only where something has gone wrong. */
static void
cue_reader_release (LycheeTranscriptReader *reader)
{
  CueReader *self = (CueReader *) reader;

  if (self->open && self->after_empty && self->text->len > 0)
    close_cue (self);
}

static void
cue_reader_free (LycheeTranscriptReader *reader)
{
  CueReader *self = (CueReader *) reader;

  g_string_free (self->text, TRUE);
  g_free (self->speaker);
  g_free (self);
}

LycheeTranscriptReader *
lychee_transcript_reader_new_cues (LycheeTranscriptOutput *output, gboolean webvtt)
{
  CueReader *self = g_new0 (CueReader, 1);

  self->reader.push = cue_reader_push;
  self->reader.finish = cue_reader_finish;
  self->reader.release = cue_reader_release;
  self->reader.free = cue_reader_free;
  self->reader.output = output;
  self->webvtt = webvtt;
  self->state = webvtt ? STATE_HEADER : STATE_BODY;
  self->text = g_string_new (NULL);
  self->last_after_empty = TRUE;
  return &self->reader;
}
