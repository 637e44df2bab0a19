/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "lychee-transcript-parser-private.h"

#include "lychee-hygiene-private.h"

#include <string.h>

/* Plain text: each line a cue. What is laid out around the words is told from them: a time before
 * them, on a line of its own, behind or below the name of who speaks; who writes to whom in a chat;
 * and the numbers of lines and pages of a record of proceedings. */

/* A long line, such as a whole speech, is handed out in pieces as they come. */
#define PIECE_LENGTH (16 * 1024)
/* Lines that must be numbered, one after the other from 1 on, before that is a margin. */
#define MARGIN_LINES 6
/* Bytes of who writes to whom. */
#define MAX_SENDER 160

typedef struct {
  LycheeTranscriptReader reader;
  gboolean may_be_other;
  char *held; /* a line that is a number: with a line of times behind it, it is SubRip's */
  gboolean paragraph;
  gboolean began;

  char *header;        /* (nullable) a line of a time, with or without a name, as it is */
  guint64 header_time; /* which is that of the next line */
  char *header_label;  /* (nullable) and what that begins with */
  char *sender;        /* (nullable) of a chat: who writes, until the next time */
  gboolean is_name;    /* it may also be speech: a word or two, below or behind a time */

  char *above; /* (nullable) a line that may be the name of who speaks, if a time comes next */
  gboolean has_short_times; /* lines begin with minutes and seconds, and who speaks */
  guint64 short_time;       /* the last of them */

  gboolean has_margin; /* lines have numbers */
  guint64 margin;      /* of the last one that has */
  GPtrArray *numbered; /* lines that may have a margin, or none if there are too few of them */
} TextReader;

static const char *
skip_spaces (const char *at)
{
  while (*at == ' ' || *at == '\t')
    at++;
  return at;
}

/* Reads a time in brackets, such as "[00:01:02]" and "(1:02.5)", or one that nothing else looks
 * like
 * ("00:01:02", or "1:02" if @alone), and moves on over it. LYCHEE_TIME_NONE where there is none. */
static guint64
take_time (const char **line, gboolean alone)
{
  const char *at = *line;
  char close = *at == '[' ? ']' : *at == '(' ? ')' : '\0';
  gsize length;
  guint n_colons = 0;
  guint64 time;

  at += close != '\0';
  length = strspn (at, "0123456789:.,");
  for (gsize i = 0; i < length; i++)
    n_colons += at[i] == ':';
  if (close != '\0') {
    if (memchr (at, ':', strcspn (at, "])")) == NULL ||
        !lychee_transcript_parse_time (&at, &time) || *at != close)
      return LYCHEE_TIME_NONE;
    at++;
  } else {
    const char *end = at + length;

    if (!g_ascii_isdigit (*at) || n_colons < (alone ? 1 : 2) || n_colons > 2 ||
        (*end != '\0' && *end != ' ' && *end != '\t') ||
        !lychee_transcript_parse_time (&at, &time) || at != end)
      return LYCHEE_TIME_NONE;
  }
  at = skip_spaces (at);
  *line = at;
  return time;
}

/* (transfer full): "Ann Lee: " where @name looks like that of a person, or NULL. */
static char *
label_of_name (const char *name, gsize length)
{
  g_autofree char *label = g_strdup_printf ("%.*s: ", (int) length, name);
  g_autofree char *probe = g_strconcat (label, "x", NULL);
  g_autoptr (GArray) labels = lychee_hygiene_find_labels (probe, TRUE);

  if (labels->len != 1 || g_array_index (labels, LycheeLabel, 0).start != 0 ||
      g_array_index (labels, LycheeLabel, 0).end != strlen (label))
    return NULL;
  return g_steal_pointer (&label);
}

/* Reads "Ann Lee (00:01:02):", "Ann Lee  1:02": (transfer full) the label "Ann Lee: ", or NULL. */
static char *
read_header (const char *line, guint64 *time)
{
  gsize end = strlen (line), start, name_end;
  gboolean bracketed;
  const char *at;
  g_autofree char *time_text = NULL;

  while (end > 0 && strchr (" \t:", line[end - 1]) != NULL)
    end--;
  start = end;
  if (start > 0 && strchr (")]", line[start - 1]) != NULL)
    start--;
  bracketed = start < end;
  while (start > 0 && (g_ascii_isdigit (line[start - 1]) || strchr (":.", line[start - 1]) != NULL))
    start--;
  if (bracketed && (start == 0 || strchr ("([", line[--start]) == NULL))
    return NULL;
  name_end = start;
  while (name_end > 0 && (line[name_end - 1] == ' ' || line[name_end - 1] == '\t'))
    name_end--;
  if (name_end == 0 || name_end == start)
    return NULL;
  time_text = g_strndup (line + start, end - start);
  at = time_text;
  *time = take_time (&at, bracketed || start - name_end >= 2 || line[name_end] == '\t');
  if (*time == LYCHEE_TIME_NONE || *at != '\0')
    return NULL;
  return label_of_name (line, name_end);
}

static void
give_text (TextReader *self, const char *text, gsize length, guint64 time)
{
  while (length > 0 && (text[length - 1] == ' ' || text[length - 1] == '\t'))
    length--;
  while (length > 0) {
    gsize piece =
        length > PIECE_LENGTH ? lychee_transcript_cut (text, length, PIECE_LENGTH) : length;
    LycheeCue *cue = lychee_cue_new (text, piece, self->sender, time, LYCHEE_TIME_NONE);

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
clear_header (TextReader *self)
{
  g_clear_pointer (&self->header, g_free);
  g_clear_pointer (&self->header_label, g_free);
  self->is_name = FALSE;
}

/* Nothing is below the last header: it was said, unless it is a time in brackets. */
static void
give_header (TextReader *self)
{
  if (self->is_name)
    give_text (self, self->header, strlen (self->header), self->header_time);
  else if (self->header != NULL && strchr ("[(", *skip_spaces (self->header)) == NULL)
    give_text (self, self->header, strlen (self->header), LYCHEE_TIME_NONE);
  clear_header (self);
}

static void
set_header (TextReader *self, const char *line, guint64 time, char *label, gboolean is_name)
{
  clear_header (self);
  self->header = g_strdup (line);
  self->header_time = time;
  self->header_label = label;
  self->is_name = is_name;
}

/* (transfer full): the label where @text, which has a time, may be the name of who says the next
 * line, or NULL. */
static char *
read_name (const char *text)
{
  gsize length = strlen (text);

  while (length > 0 && strchr (" \t:", text[length - 1]) != NULL)
    length--;
  return length > 0 && length < 60 && strchr (".!?", text[length - 1]) == NULL
             ? label_of_name (text, length)
             : NULL;
}

/* (transfer full) (nullable): "Bob" of "Bob(Direct Message)"; NULL for all. */
static char *
read_recipient (const char *text)
{
  static const char *const marks[] = { "(direct message)", "(privately)" };
  char *name = g_strstrip (g_strdup (text));
  gsize length = strlen (name);

  for (guint i = 0; i < G_N_ELEMENTS (marks); i++) {
    gsize n = strlen (marks[i]);

    if (length > n && g_ascii_strcasecmp (name + length - n, marks[i]) == 0) {
      name[length - n] = '\0';
      return g_strchomp (name);
    }
  }
  if (g_ascii_strncasecmp (name, "everyone", 8) == 0)
    g_clear_pointer (&name, g_free);
  return name;
}

/* Reads who writes, behind a time, as chats are saved: "From Ann to Everyone:", "From  Ann : ", and
 * "Ann:" between tabs. (transfer full) (nullable): the name; @recipient: (nullable): the one who
 * alone is to read it; @text: moves on. */
static char *
read_sender (const char **text, gboolean after_tab, char **recipient)
{
  const char *colon = *text, *to = NULL;
  gboolean from = g_str_has_prefix (*text, "From ");
  g_autofree char *name = NULL;

  do
    colon += strcspn (colon, ":") + 1;
  while (colon[-1] == ':' && strchr ("\t ", *colon) == NULL);
  colon--;
  if (*colon != ':' || colon == *text || colon - *text > MAX_SENDER)
    return NULL;
  name = g_strndup (*text, colon - *text);
  if (from) {
    for (const char *at = name; (at = strstr (at, " to ")) != NULL; at++)
      to = at;
    /* "From here on: ..." */
    if (to == NULL && !after_tab && colon[-1] != ' ' && colon[1] != '\t')
      return NULL;
    if (to != NULL) {
      *recipient = read_recipient (to + 4);
      name[to - name] = '\0';
    }
    memmove (name, name + 5, strlen (name + 5) + 1);
  } else if (!after_tab || colon[1] != '\t' || strchr (name, '\t') != NULL) {
    return NULL;
  }
  g_strstrip (name);
  if (*name == '\0') {
    g_clear_pointer (recipient, g_free);
    return NULL;
  }
  *text = skip_spaces (colon + 1);
  return g_steal_pointer (&name);
}

/* "0:05 Ann Lee: ...": minutes and seconds could also be a time of day, in minutes of a meeting or
 * an agenda; so the first such line must begin with no hour, and none goes back. */
static guint64
take_short_time (TextReader *self, const char **line)
{
  const char *at = *line;
  guint64 time = take_time (&at, TRUE);
  g_autoptr (GArray) labels = NULL;

  if (time == LYCHEE_TIME_NONE || *at == '\0' ||
      !(self->has_short_times ? time >= self->short_time : time < G_GUINT64_CONSTANT (60000000000)))
    return LYCHEE_TIME_NONE;
  labels = lychee_hygiene_find_labels (at, TRUE);
  if (labels->len == 0 || g_array_index (labels, LycheeLabel, 0).start != 0 ||
      g_array_index (labels, LycheeLabel, 0).name == NULL)
    return LYCHEE_TIME_NONE;
  self->has_short_times = TRUE;
  self->short_time = time;
  *line = at;
  return time;
}

static void
give_message (TextReader *self, const char *line, const char *text, guint64 time, char *speaker,
    const char *recipient)
{
  g_autofree char *message =
      recipient != NULL ? g_strdup_printf ("(to %s) %s", recipient, text) : g_strdup (text);

  give_header (self);
  g_free (self->sender);
  self->sender = speaker;
  if (*text != '\0')
    give_text (self, message, strlen (message), time);
  else /* It is below. */
    set_header (self, line, time, recipient != NULL ? g_steal_pointer (&message) : NULL, FALSE);
}

static void
give_line (TextReader *self, const char *line, gsize length)
{
  g_autofree char *label = NULL, *labelled = NULL, *speaker = NULL, *recipient = NULL;
  const char *text = skip_spaces (line), *end = text;
  guint64 time = take_time (&end, TRUE), header_time = LYCHEE_TIME_NONE;

  if (*end != '\0') { /* it is not alone */
    end = text;
    time = take_time (&end, FALSE);
    if (time == LYCHEE_TIME_NONE)
      time = take_short_time (self, &end);
  }
  if (time != LYCHEE_TIME_NONE)
    text = end;
  else if (length < 200)
    label = read_header (text, &header_time);
  if (label != NULL || (time != LYCHEE_TIME_NONE && *text == '\0')) {
    give_header (self);
    if (label != NULL)
      time = header_time;
    set_header (self, line, time, g_steal_pointer (&label), FALSE);
    g_clear_pointer (&self->sender, g_free);
    return;
  }
  if (time != LYCHEE_TIME_NONE)
    speaker = read_sender (&text, text[-1] == '\t', &recipient);
  if (speaker != NULL) {
    give_message (self, line, text, time, g_steal_pointer (&speaker), recipient);
    return;
  }
  if (time != LYCHEE_TIME_NONE)
    g_clear_pointer (&self->sender, g_free);
  if (time != LYCHEE_TIME_NONE ||
      (self->header != NULL && self->header_label == NULL && self->sender == NULL))
    label = read_name (text);
  if (self->header != NULL && time == LYCHEE_TIME_NONE) {
    time = self->header_time;
    if (self->header_label != NULL)
      text = labelled = g_strconcat (self->header_label, text, NULL);
    clear_header (self);
  }
  give_header (self);
  if (label != NULL)
    set_header (self, text, time, g_steal_pointer (&label), TRUE);
  else
    give_text (self, text, strlen (text), time);
}

static void
give_above (TextReader *self)
{
  g_autofree char *line = g_steal_pointer (&self->above);

  if (line != NULL)
    give_line (self, line, strlen (line));
}

/* A name at the beginning of a paragraph waits for a time below it. Whether @line waits. */
static gboolean
take_above (TextReader *self, const char *line, gsize length)
{
  g_autofree char *name = NULL;
  const char *at = skip_spaces (line);
  guint64 time;

  if (self->above != NULL) {
    time = take_time (&at, TRUE);
    name = time != LYCHEE_TIME_NONE && *at == '\0' ? read_name (skip_spaces (self->above)) : NULL;
    if (name != NULL) {
      g_autofree char *both = g_strconcat (self->above, "\n", line, NULL);

      g_clear_pointer (&self->above, g_free);
      give_header (self);
      set_header (self, both, time, g_steal_pointer (&name), FALSE);
      return TRUE;
    }
    give_above (self);
    return FALSE;
  }
  if ((self->began && !self->paragraph) || self->header != NULL ||
      take_time (&at, TRUE) != LYCHEE_TIME_NONE)
    return FALSE;
  name = read_name (at);
  if (name == NULL)
    return FALSE;
  self->above = g_strndup (line, length);
  return TRUE;
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

  if (lychee_transcript_is_table_head (line))
    return LYCHEE_TRANSCRIPT_FORMAT_CSV;
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
take_line (TextReader *self, const char *line, gsize length)
{
  guint64 number;

  if (lychee_transcript_is_blank (line, length)) {
    give_above (self);
    if (self->is_name)
      give_header (self);
    self->paragraph = TRUE;
  } else if (take_above (self, line, length)) {
    return;
  } else if (self->may_be_other && lychee_transcript_is_number (line, length, &number)) {
    self->held = g_strndup (line, length);
  } else {
    give_line (self, line, length);
  }
}

/* Over a line's number, if it has one; 0: it has none. @wide: more than one space is behind it. */
static guint64
read_margin (const char **line, gboolean *wide)
{
  const char *at = skip_spaces (*line), *end = at;
  guint64 number = 0;

  for (; g_ascii_isdigit (*end) && end - at < 3; end++)
    number = number * 10 + (*end - '0');
  if (end == at || (*end != ' ' && *end != '\t' && *end != '\0'))
    return 0;
  *wide = *end == '\t' || (*end == ' ' && (end[1] == ' ' || end[1] == '\t'));
  *line = skip_spaces (end);
  return number;
}

/* "Page 12", "12" */
static gboolean
is_page_number (const char *line)
{
  const char *at = skip_spaces (line);
  guint64 number;

  if (g_ascii_strncasecmp (at, "page", 4) == 0)
    at += 4;
  return lychee_transcript_is_number (at, strlen (at), &number);
}

/* Gives the lines that are held, with or without their numbers. */
static void
give_numbered (TextReader *self)
{
  g_autoptr (GPtrArray) lines = g_steal_pointer (&self->numbered);

  self->numbered = g_ptr_array_new_with_free_func (g_free);
  for (guint i = 0; i < lines->len; i++) {
    const char *line = g_ptr_array_index (lines, i);
    gboolean wide;

    if (self->has_margin)
      read_margin (&line, &wide);
    take_line (self, line, strlen (line));
  }
}

/* Whether the line is held, or was given without its number. */
static gboolean
take_numbered (TextReader *self, const char *line, gsize length)
{
  gboolean wide = FALSE, blank = lychee_transcript_is_blank (line, length);
  const char *text = line;
  guint64 number = read_margin (&text, &wide);

  if (self->has_margin) {
    if (number != 0 && (number == self->margin + 1 || number == 1)) {
      self->margin = number;
      take_line (self, text, strlen (text));
      return TRUE;
    }
    return is_page_number (line);
  }
  if (self->numbered->len > 0 && blank) {
    g_ptr_array_add (self->numbered, g_strndup (line, length));
    return TRUE;
  }
  if (self->numbered->len > 0 && number == self->margin + 1 && (wide || *text == '\0')) {
    g_ptr_array_add (self->numbered, g_strndup (line, length));
    self->margin = number;
    self->has_margin = number == MARGIN_LINES;
    if (self->has_margin)
      give_numbered (self);
    return TRUE;
  }
  give_numbered (self);
  if (number != 1 || !wide || *text == '\0')
    return FALSE;
  g_ptr_array_add (self->numbered, g_strndup (line, length));
  self->margin = number;
  return TRUE;
}

static void
text_reader_push (LycheeTranscriptReader *reader, const char *line, gsize length)
{
  TextReader *self = (TextReader *) reader;

  if (self->may_be_other) {
    reader->becomes = shows_other (line);
    if (reader->becomes != LYCHEE_TRANSCRIPT_FORMAT_AUTO) {
      if (reader->becomes != LYCHEE_TRANSCRIPT_FORMAT_SUBRIP)
        give_held (self);
      give_numbered (self);
      give_above (self);
      give_header (self);
      return;
    }
    give_held (self);
  }
  if (!take_numbered (self, line, length))
    take_line (self, line, length);
}

static void
text_reader_finish (LycheeTranscriptReader *reader)
{
  TextReader *self = (TextReader *) reader;

  give_numbered (self);
  give_held (self);
  give_above (self);
  give_header (self);
}

/* A line that is a time alone still waits for its text. */
static void
text_reader_release (LycheeTranscriptReader *reader)
{
  TextReader *self = (TextReader *) reader;

  give_numbered (self);
  give_above (self);
  if (self->is_name)
    give_header (self);
}

static void
text_reader_free (LycheeTranscriptReader *reader)
{
  TextReader *self = (TextReader *) reader;

  g_free (self->held);
  g_free (self->above);
  g_free (self->sender);
  clear_header (self);
  g_ptr_array_unref (self->numbered);
  g_free (self);
}

LycheeTranscriptReader *
lychee_transcript_reader_new_text (LycheeTranscriptOutput *output, gboolean may_be_other)
{
  TextReader *self = g_new0 (TextReader, 1);

  self->reader.push = text_reader_push;
  self->reader.finish = text_reader_finish;
  self->reader.release = text_reader_release;
  self->reader.free = text_reader_free;
  self->reader.output = output;
  self->may_be_other = may_be_other;
  self->numbered = g_ptr_array_new_with_free_func (g_free);
  return &self->reader;
}
