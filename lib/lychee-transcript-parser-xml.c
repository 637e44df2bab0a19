/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "lychee-transcript-parser-private.h"

#include <string.h>

/* Subtitles as XML: TTML (DFXP, EBU-TT), YouTube's, Transcriber's; and SAMI, which looks like it.
 *
 * They all have elements with a beginning in an attribute, whose text is a cue, or empty elements
 * from which on a time counts. Nothing needs to be closed, quoted or declared. Entities stay, for
 * the hygiene. Text without a time is said as well, unless it is about the file. */

/* A tag that is longer is none. */
#define MAX_TAG_LENGTH 4096
#define MAX_NAME 16
#define MAX_DEPTH 256
#define MAX_TIME (G_GUINT64_CONSTANT (3153600000) * 1000000000)
#define MAX_SPEAKERS 4096

typedef enum {
  STATE_TEXT,
  STATE_TAG,
  STATE_QUOTED, /* within an attribute's value */
  STATE_COMMENT,
  STATE_CDATA,
} State;

typedef struct {
  char name[MAX_NAME];
  gboolean ignored;
  gboolean timed;
  guint64 start;
  guint64 end;
  char *speaker;
} Element;

typedef struct {
  LycheeTranscriptReader reader;
  State state;
  char quote;
  GString *tag; /* from behind its bracket on; of a comment, its last bytes */
  GString *text;
  gboolean space; /* to be put before what comes */
  GArray *elements;
  guint n_deeper; /* open beyond the maximal depth */
  gboolean sami;
  gboolean escaped_twice; /* as YouTube does it */
  double tick_rate;
  double frame_rate;
  guint64 mark; /* from which on a time counts */
  guint n_timed;
  char *agent;          /* whose name comes */
  GHashTable *speakers; /* id -> name */
} XmlReader;

static void
clear_element (gpointer data)
{
  g_free (((Element *) data)->speaker);
}

static gboolean
is_one_of (const char *name, const char *const *names)
{
  return g_strv_contains (names, name);
}

/* What is within text, and no part of its own. */
static gboolean
is_inline (const char *name)
{
  static const char *const names[] = { "span", "s", "b", "i", "u", "c", "em", "strong", "font",
    "br", "ruby", "rt", "rb", "a", "set", "event", NULL };

  return is_one_of (name, names);
}

/* What is about the file. */
static gboolean
is_about (const char *name)
{
  static const char *const names[] = { "head", "metadata", "style", "styling", "layout", "title",
    "script", "desc", "copyright", "speakers", "topics", NULL };

  return is_one_of (name, names);
}

/* (transfer full) (nullable): the value of the attribute @name, whatever its namespace. */
static char *
get_attribute (const char *tag, const char *name)
{
  const char *at = tag + strcspn (tag, " \t\r\n/");

  while (*at != '\0') {
    const char *colon;
    const char *key;
    gsize length;
    char quote = '\0';
    gboolean same;
    const char *value;

    at += strspn (at, " \t\r\n/");
    key = at;
    at += strcspn (at, " \t\r\n=/");
    colon = memchr (key, ':', at - key);
    if (colon != NULL)
      key = colon + 1;
    length = at - key;
    same = length == strlen (name) && g_ascii_strncasecmp (key, name, length) == 0;
    at += strspn (at, " \t\r\n");
    if (*at != '=') {
      at += *at != '\0' && at == key;
      continue;
    }
    at += 1 + strspn (at + 1, " \t\r\n");
    if (*at == '"' || *at == '\'')
      quote = *at++;
    value = at;
    at += quote != '\0' ? strcspn (at, quote == '"' ? "\"" : "'") : strcspn (at, " \t\r\n");
    if (same)
      return g_strndup (value, at - value);
    at += *at != '\0' && quote != '\0';
  }
  return NULL;
}

/* @unit: nanoseconds, of a plain number. */
static gboolean
read_time (XmlReader *self, const char *text, double unit, guint64 *time)
{
  double value;
  char *end;

  if (strchr (text, ':') != NULL)
    return lychee_transcript_parse_time (&text, time);
  value = g_ascii_strtod (text, &end);
  if (end == text || !(value >= 0))
    return FALSE;
  if (g_str_has_prefix (end, "ms"))
    unit = 1e6;
  else if (*end == 's')
    unit = 1e9;
  else if (*end == 'm')
    unit = 60e9;
  else if (*end == 'h')
    unit = 3600e9;
  else if (*end == 'f')
    unit = 1e9 / self->frame_rate;
  else if (*end == 't')
    unit = 1e9 / self->tick_rate;
  *time = (guint64) MIN (value * unit + 0.5, (double) MAX_TIME);
  return TRUE;
}

static gboolean
take_time (XmlReader *self, const char *tag, const char *attribute, double unit, guint64 *time)
{
  g_autofree char *value = get_attribute (tag, attribute);

  return value != NULL && read_time (self, value, unit, time);
}

static double
take_rate (const char *tag, const char *attribute, double rate)
{
  g_autofree char *value = get_attribute (tag, attribute);
  double found = value != NULL ? g_ascii_strtod (value, NULL) : 0;

  return found > 0 && found <= 1e9 ? found : rate;
}

static Element *
get_element (XmlReader *self, guint i)
{
  return &g_array_index (self->elements, Element, i);
}

/* The innermost element that has a time, or NULL. */
static Element *
find_timed (XmlReader *self)
{
  for (guint i = self->elements->len; i > 0; i--)
    if (get_element (self, i - 1)->timed)
      return get_element (self, i - 1);
  return NULL;
}

static const char *
find_speaker (XmlReader *self)
{
  for (guint i = self->elements->len; i > 0; i--)
    if (get_element (self, i - 1)->speaker != NULL)
      return get_element (self, i - 1)->speaker;
  return NULL;
}

static gboolean
is_ignored (XmlReader *self)
{
  return self->elements->len > 0 && get_element (self, self->elements->len - 1)->ignored;
}

/* Gives the text so far, with @length bytes. */
static void
give_text (XmlReader *self, gsize length, guint64 until, guint flags)
{
  LycheeTranscriptOutput *output = self->reader.output;
  Element *timed = find_timed (self);
  LycheeCue *cue = lychee_cue_new (
      self->text->str, length, find_speaker (self), LYCHEE_TIME_NONE, LYCHEE_TIME_NONE);

  cue->flags = flags;
  if (self->escaped_twice)
    cue->markup = LYCHEE_CUE_MARKUP_SUBRIP;
  if (self->mark != LYCHEE_TIME_NONE) {
    cue->start = self->mark;
    cue->end = until != LYCHEE_TIME_NONE || timed == NULL ? until : timed->end;
  } else if (timed != NULL) {
    cue->start = timed->start;
    cue->end = timed->end;
  }
  g_strstrip (cue->text);
  if (lychee_transcript_is_blank (cue->text, strlen (cue->text)) ||
      strcmp (cue->text, "&nbsp;") == 0) {
    lychee_cue_free (cue);
  } else if (cue->start == LYCHEE_TIME_NONE) {
    lychee_transcript_order_drain (output->order, output->cues);
    g_ptr_array_add (output->cues, cue);
  } else {
    lychee_transcript_order_add (output->order, cue, output->cues);
  }
}

/* What comes is no part of the text before. @until: when that ends, if nothing else tells. */
static void
flush (XmlReader *self, guint64 until)
{
  if (!is_ignored (self))
    give_text (self, self->text->len, until, 0);
  g_string_truncate (self->text, 0);
  self->space = FALSE;
}

static void
append (XmlReader *self, const char *text, gsize length)
{
  for (gsize i = 0; i < length; i++) {
    if (g_ascii_isspace (text[i])) {
      self->space = TRUE;
      continue;
    }
    if (self->space && self->text->len > 0 && self->text->str[self->text->len - 1] != '\n')
      g_string_append_c (self->text, ' ');
    self->space = FALSE;
    g_string_append_c (self->text, text[i]);
    if (self->escaped_twice && text[i] == ';' && self->text->len >= 5 &&
        strcmp (self->text->str + self->text->len - 5, "&amp;") == 0)
      g_string_truncate (self->text, self->text->len - strlen ("amp;"));
  }
  while (self->text->len > LYCHEE_CUE_MAX_LENGTH) {
    gsize cut = lychee_transcript_cut (self->text->str, self->text->len, LYCHEE_CUE_MAX_LENGTH / 2);

    if (!is_ignored (self))
      give_text (self, cut, LYCHEE_TIME_NONE, LYCHEE_CUE_CONTINUES);
    g_string_erase (self->text, 0, cut);
  }
}

static void
pop_element (XmlReader *self)
{
  const Element *last = get_element (self, self->elements->len - 1);

  if (last->timed)
    self->mark = LYCHEE_TIME_NONE;
  g_array_set_size (self->elements, self->elements->len - 1);
}

static void
end_element (XmlReader *self, const char *name)
{
  guint depth = self->elements->len;

  if (strcmp (name, "name") == 0 && self->agent != NULL) {
    if (g_hash_table_size (self->speakers) < MAX_SPEAKERS)
      g_hash_table_replace (self->speakers, g_strdup (self->agent),
          g_strstrip (g_strndup (self->text->str, self->text->len)));
    g_clear_pointer (&self->agent, g_free);
  }
  if (self->n_deeper > 0) {
    self->n_deeper--;
    return;
  }
  while (depth > 0 && strcmp (get_element (self, depth - 1)->name, name) != 0)
    depth--;
  if (depth == 0)
    return;
  if (!is_inline (name) || get_element (self, depth - 1)->timed)
    flush (self, LYCHEE_TIME_NONE);
  while (self->elements->len >= depth)
    pop_element (self);
}

/* The time that an element has, relative to those around it. */
static void
read_times (XmlReader *self, const char *tag, Element *element)
{
  const Element *around = find_timed (self);
  guint64 base = around != NULL ? around->start : 0;
  guint64 time;
  gboolean milliseconds = FALSE;

  element->end = LYCHEE_TIME_NONE;
  if (strcmp (element->name, "s") == 0) /* when a word begins */
    return;
  element->timed = take_time (self, tag, "begin", 1e9, &element->start) ||
                   take_time (self, tag, "start", 1e9, &element->start) ||
                   take_time (self, tag, "startTime", 1e9, &element->start);
  if (!element->timed && (strcmp (element->name, "p") == 0 || strcmp (element->name, "text") == 0))
    element->timed = milliseconds = take_time (self, tag, "t", 1e6, &element->start);
  if (!element->timed)
    return;
  self->n_timed++;
  element->start = MIN (element->start + base, MAX_TIME);
  if (take_time (self, tag, "end", 1e9, &time) || take_time (self, tag, "stop", 1e9, &time) ||
      take_time (self, tag, "endTime", 1e9, &time))
    element->end = time + base;
  else if (take_time (self, tag, milliseconds ? "d" : "dur", milliseconds ? 1e6 : 1e9, &time))
    element->end = element->start + time;
  else if (around != NULL)
    element->end = around->end;
}

/* Who an attribute says it is, by name where that is known. */
static char *
read_speaker (XmlReader *self, const char *tag)
{
  g_autofree char *id = get_attribute (tag, "agent");
  const char *name;

  if (id == NULL)
    id = get_attribute (tag, "speaker");
  if (id == NULL || *id == '\0')
    return NULL;
  name = g_hash_table_lookup (self->speakers, id);
  return g_strdup (name != NULL ? name : id);
}

static void
note_root (XmlReader *self, const char *tag, const char *name)
{
  LycheeTranscriptOutput *output = self->reader.output;
  g_autofree char *language = get_attribute (tag, "lang");

  self->sami |= strcmp (name, "sami") == 0;
  self->escaped_twice |= strcmp (name, "transcript") == 0;
  self->tick_rate = take_rate (tag, "tickRate", self->tick_rate);
  self->frame_rate = take_rate (tag, "frameRate", self->frame_rate);
  if (output->language == NULL && language != NULL && *language != '\0')
    output->language = g_steal_pointer (&language);
}

static void
begin_element (XmlReader *self, const char *tag, const char *name)
{
  gboolean closed = g_str_has_suffix (tag, "/");
  Element element = { 0 };

  if (self->elements->len == 0)
    note_root (self, tag, name);
  if (strcmp (name, "sync") == 0) { /* empty, or never closed */
    guint64 mark = LYCHEE_TIME_NONE;

    if (take_time (self, tag, "start", self->sami ? 1e6 : 1e9, &mark) ||
        take_time (self, tag, "time", 1e9, &mark)) {
      flush (self, mark);
      self->mark = mark;
      self->n_timed++;
    }
    return;
  }
  if (strcmp (name, "br") == 0) {
    if (self->text->len > 0)
      g_string_append_c (self->text, '\n');
    self->space = FALSE;
    return;
  }
  if (strcmp (name, "agent") == 0 || strcmp (name, "speaker") == 0) {
    g_autofree char *label = get_attribute (tag, "name");

    g_free (self->agent);
    self->agent = get_attribute (tag, "id");
    if (self->agent != NULL && label != NULL && g_hash_table_size (self->speakers) < MAX_SPEAKERS)
      g_hash_table_replace (self->speakers, g_strdup (self->agent), g_steal_pointer (&label));
  }
  if (strcmp (name, "p") == 0 || strcmp (name, "text") == 0)
    end_element (self, name); /* one that nobody closed */
  g_strlcpy (element.name, name, sizeof element.name);
  element.ignored = is_ignored (self) || is_about (name);
  read_times (self, tag, &element);
  if (!is_inline (name) || element.timed)
    flush (self, LYCHEE_TIME_NONE);
  if (closed || (self->sami && !is_about (name)))
    return;
  if (self->elements->len == MAX_DEPTH) {
    self->n_deeper++;
    return;
  }
  element.speaker = read_speaker (self, tag);
  g_array_append_val (self->elements, element);
}

/* A tag has ended; what is none is text. */
static void
take_tag (XmlReader *self)
{
  const char *tag = self->tag->str;
  gboolean end = *tag == '/';
  const char *name = tag + end;
  gsize length = strcspn (name, " \t\r\n/>");
  const char *colon = memchr (name, ':', length);
  g_autofree char *lower = NULL;

  if (*tag == '!' || *tag == '?')
    return;
  if (colon != NULL) {
    length -= colon + 1 - name;
    name = colon + 1;
  }
  lower = g_ascii_strdown (name, MIN (length, MAX_NAME - 1));
  if (end)
    end_element (self, lower);
  else
    begin_element (self, tag, lower);
}

/* It was no tag. */
static void
keep_tag (XmlReader *self)
{
  g_autofree char *text = g_strconcat ("<", self->tag->str, NULL);

  self->state = STATE_TEXT;
  append (self, text, strlen (text));
  g_string_truncate (self->tag, 0);
}

static void
take_in_tag (XmlReader *self, char c)
{
  if (self->tag->len == 0 && !g_ascii_isalpha (c) && strchr ("/!?", c) == NULL) {
    keep_tag (self);
    append (self, &c, 1);
  } else if (c == '>') {
    self->state = STATE_TEXT;
    take_tag (self);
  } else if (c == '<') { /* the one before has no end */
    take_tag (self);
    self->state = STATE_TAG;
    g_string_truncate (self->tag, 0);
  } else {
    g_string_append_c (self->tag, c);
    if ((c == '"' || c == '\'') && strchr (self->tag->str, '=') != NULL) {
      self->state = STATE_QUOTED;
      self->quote = c;
    } else if (strcmp (self->tag->str, "!--") == 0) {
      self->state = STATE_COMMENT;
      g_string_truncate (self->tag, 0);
    } else if (strcmp (self->tag->str, "![CDATA[") == 0) {
      self->state = STATE_CDATA;
      g_string_truncate (self->tag, 0);
    } else if (self->tag->len > MAX_TAG_LENGTH) {
      keep_tag (self);
    }
  }
}

/* In a value comes what begins a tag: a quote is missing, and the tag ended where it could. */
static void
end_spoilt_tag (XmlReader *self)
{
  char *close = strchr (self->tag->str, '>');
  g_autofree char *text = close != NULL ? g_strdup (close + 1) : NULL;

  if (close != NULL)
    g_string_truncate (self->tag, close - self->tag->str);
  take_tag (self);
  if (text != NULL)
    append (self, text, strlen (text));
  self->state = STATE_TAG;
  g_string_truncate (self->tag, 0);
}

static void
xml_reader_push (LycheeTranscriptReader *reader, const char *text, gsize length)
{
  XmlReader *self = (XmlReader *) reader;
  const char *end = text + length;

  for (; text < end; text++) {
    const char *run = text;

    switch (self->state) {
    case STATE_TEXT:
      while (text < end && *text != '<')
        text++;
      append (self, run, text - run);
      if (text < end) {
        self->state = STATE_TAG;
        g_string_truncate (self->tag, 0);
      } else {
        text--;
      }
      break;
    case STATE_TAG:
      take_in_tag (self, *text);
      break;
    case STATE_QUOTED:
      if (*text == '<') {
        end_spoilt_tag (self);
        break;
      }
      g_string_append_c (self->tag, *text);
      if (*text == self->quote)
        self->state = STATE_TAG;
      else if (self->tag->len > MAX_TAG_LENGTH)
        keep_tag (self);
      break;
    default: { /* until its end, of which the last bytes are kept */
      const char *close = self->state == STATE_COMMENT ? "-->" : "]]>";

      g_string_append_c (self->tag, *text);
      if (g_str_has_suffix (self->tag->str, close)) {
        if (self->state == STATE_CDATA)
          append (self, self->tag->str, self->tag->len - 3);
        self->state = STATE_TEXT;
      } else if (self->tag->len > MAX_TAG_LENGTH) {
        gsize n = self->tag->len - 2;

        if (self->state == STATE_CDATA)
          append (self, self->tag->str, n);
        g_string_erase (self->tag, 0, n);
      }
      break;
    }
    }
  }
}

static void
xml_reader_finish (LycheeTranscriptReader *reader)
{
  XmlReader *self = (XmlReader *) reader;

  if (self->state == STATE_CDATA)
    append (self, self->tag->str, self->tag->len);
  else if (self->state == STATE_QUOTED)
    end_spoilt_tag (self);
  flush (self, LYCHEE_TIME_NONE);
}

static void
xml_reader_free (LycheeTranscriptReader *reader)
{
  XmlReader *self = (XmlReader *) reader;

  g_string_free (self->tag, TRUE);
  g_string_free (self->text, TRUE);
  g_array_unref (self->elements);
  g_hash_table_unref (self->speakers);
  g_free (self->agent);
  g_free (self);
}

LycheeTranscriptReader *
lychee_transcript_reader_new_xml (LycheeTranscriptOutput *output)
{
  XmlReader *self = g_new0 (XmlReader, 1);

  self->reader.push = xml_reader_push;
  self->reader.finish = xml_reader_finish;
  self->reader.free = xml_reader_free;
  self->reader.output = output;
  self->reader.takes_text = TRUE;
  self->tag = g_string_new (NULL);
  self->text = g_string_new (NULL);
  self->elements = g_array_new (FALSE, FALSE, sizeof (Element));
  g_array_set_clear_func (self->elements, clear_element);
  self->speakers = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, g_free);
  self->tick_rate = 1;
  self->frame_rate = 30; /* as TTML has it where none is given */
  self->mark = LYCHEE_TIME_NONE;
  return &self->reader;
}
