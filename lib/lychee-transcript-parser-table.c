/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "lychee-transcript-parser-table.h"
#include "lychee-transcript-parser-private.h"

#include <string.h>

/* Tables: a line of titles, then a line for each thing that is said, with commas, semicolons or
 * tabs between the columns (RFC 4180, and what spreadsheets and Whisper make of it). Audacity's
 * labels have no titles.
 *
 * A row is an object whose keys are the titles: it is given to the reader of JSON, which knows how
 * times and speakers are written.
 *
 * A quote begins a field that may have anything in it, newlines too, up to a quote before the next
 * column; but there are texts that begin with a quote, and writers that quote nothing. So where the
 * next line is a row of its own, or the quote is never closed, it was part of the text. A line that
 * is no row is said. */

/* Titles are no sentences. */
#define MAX_TITLE 48
#define MAX_COLUMNS 64
#define MAX_HEAD 2048
/* The longest text in quotes. */
#define MAX_QUOTED (256 * 1024)
#define NONE G_MAXUINT

typedef struct {
  char delimiter;
  guint n;
  guint at[LYCHEE_TABLE_N_ROLES]; /* NONE where there is no such column */
  LycheeJsonUnit unit[LYCHEE_TABLE_N_ROLES];
  gboolean qualifies; /* it is one of what is said */
  gboolean full;      /* quite certainly so */
} Columns;

typedef struct {
  LycheeTranscriptReader reader;
  LycheeTranscriptReader *json;
  Columns columns;
  gboolean has_columns;
  GString *record; /* what is held of one, where a quote is open */
} TableReader;

/* Whether the quote at @at is before the next column, or at the end of a line. */
static gboolean
closes (const char *at, char delimiter)
{
  do
    at++;
  while (*at == ' ');
  return *at == '\0' || *at == '\n' || *at == delimiter;
}

/* Over a field, which is appended to @field without its quotes, up to the delimiter or the end.
 * @open: (inout): a quote is, at the beginning and at the end. */
static const char *
read_field (const char *at, char delimiter, gboolean quotes, gboolean *open, GString *field)
{
  if (!*open) {
    const char *start = at;

    while (*at == ' ')
      at++;
    *open = quotes && *at == '"';
    at = *open ? at + 1 : start;
  }
  for (; *open && *at != '\0'; at++) {
    if (*at == '"' && at[1] == '"' && !closes (at, delimiter))
      at++;
    else if (*at == '"' && closes (at, delimiter))
      *open = FALSE;
    if (*open)
      g_string_append_c (field, *at);
  }
  if (!*open) {
    gsize length = 0;

    while (at[length] != '\0' && at[length] != delimiter)
      length++;
    g_string_append_len (field, at, length);
    at += length;
  }
  return at;
}

static GPtrArray *
split (const char *record, char delimiter, gboolean quotes)
{
  GPtrArray *cells = g_ptr_array_new_with_free_func (g_free);
  const char *at = record;

  for (;;) {
    GString *field = g_string_new (NULL);
    gboolean open = FALSE;

    at = read_field (at, delimiter, quotes, &open, field);
    g_ptr_array_add (cells, g_strstrip (g_string_free (field, FALSE)));
    if (*at == '\0')
      return cells;
    at++;
  }
}

static const char *
cell (GPtrArray *cells, guint i)
{
  return i < cells->len ? g_ptr_array_index (cells, i) : "";
}

/* Whether a quote is open at the end of @line, if it was at its beginning. */
static gboolean
stays_open (const char *line, char delimiter, gboolean open)
{
  g_autoptr (GString) field = g_string_new (NULL);

  for (;;) {
    line = read_field (line, delimiter, TRUE, &open, field);
    if (*line == '\0')
      return open;
    line++;
    g_string_truncate (field, 0);
  }
}

/* Hours of a clock with a morning and an afternoon. */
static guint64
add_half_day (const char *rest, guint64 time)
{
  const guint64 hour = G_GUINT64_CONSTANT (3600000000000);

  while (*rest == ' ' || *rest == '.')
    rest++;
  if (g_ascii_strncasecmp (rest, "pm", 2) == 0 && time < 12 * hour)
    return time + 12 * hour;
  if (g_ascii_strncasecmp (rest, "am", 2) == 0 && time >= 12 * hour && time < 13 * hour)
    return time - 12 * hour;
  return time;
}

static char *
seconds_of (guint64 time)
{
  return g_strdup_printf (
      "%" G_GUINT64_FORMAT ".%09us", time / 1000000000, (guint) (time % 1000000000));
}

/* (transfer full): the time in a cell as the reader of JSON understands it, NULL where there is
 * none. @second: (nullable): the other one of "00:01 - 00:03". */
static char *
read_time (const char *text, LycheeJsonUnit unit, char **second)
{
  g_autofree char *plain = NULL;
  const char *at;
  LycheeJsonTime time;
  guint64 clock;
  guint n_letters = 0;

  text += strspn (text, "\"'[( ");
  if (!g_ascii_isdigit (*text) && !(*text == '-' && g_ascii_isdigit (text[1])) &&
      !g_str_has_prefix (text, "PT"))
    return NULL;
  for (at = text; *at != '\0'; at++)
    n_letters += !g_ascii_isdigit (*at) && strchr (":.,;-+/ \t\"')]>", *at) == NULL;
  if (n_letters > 6)
    return NULL;
  if (strlen (text) >= 16 && text[4] == '-' && lychee_json_time_parse (text, unit, &time) &&
      time.unit == LYCHEE_JSON_DATE)
    return g_strdup (text);
  at = strchr (text, ':');
  if (at != NULL) { /* behind a date, as the case may be */
    while (at > text && g_ascii_isdigit (at[-1]))
      at--;
    if (!lychee_transcript_parse_time (&at, &clock))
      return NULL;
    if (second != NULL) {
      const char *next = at;
      guint64 end;

      while (*next != '\0' && !g_ascii_isdigit (*next) && !g_ascii_isalpha (*next))
        next = g_utf8_next_char (next);
      if (next > at && strchr (next, ':') != NULL && lychee_transcript_parse_time (&next, &end))
        *second = seconds_of (end);
    }
    return seconds_of (add_half_day (at, clock));
  }
  plain = g_strndup (text, strcspn (text, "\"')]"));
  g_strchomp (plain);
  g_strdelimit (plain, ",", '.'); /* as spreadsheets write numbers in half of the world */
  if (!lychee_json_time_parse (plain, unit, &time))
    return NULL;
  if (unit != LYCHEE_JSON_UNKNOWN && g_ascii_isdigit (plain[strlen (plain) - 1]))
    return g_strconcat (plain, unit == LYCHEE_JSON_MILLISECONDS ? "ms" : "s", NULL);
  return g_steal_pointer (&plain);
}

static gboolean
is_time (const char *text)
{
  g_autofree char *time = read_time (text, LYCHEE_JSON_UNKNOWN, NULL);

  return time != NULL;
}

/* "0.000000	2.500000	what is said", as Audacity exports labels. */
static gboolean
is_label (const char *line)
{
  const char *at = line;

  for (guint i = 0; i < 2; i++) {
    gsize n = strspn (at, "0123456789");

    if (n == 0 || (at[n] != '.' && at[n] != ','))
      return FALSE;
    at += n + 1;
    n = strspn (at, "0123456789");
    if (n < 2 || at[n] != '\t')
      return FALSE;
    at += n + 1;
  }
  return TRUE;
}

static void
read_titles (const char *line, char delimiter, Columns *columns)
{
  g_autoptr (GPtrArray) cells = split (line, delimiter, TRUE);
  gboolean weak[LYCHEE_TABLE_N_ROLES] = { FALSE };
  guint *at = columns->at, n_known = 0;

  *columns = (Columns){ .delimiter = delimiter, .n = cells->len };
  for (guint i = 0; i < LYCHEE_TABLE_N_ROLES; i++)
    at[i] = NONE;
  if (cells->len < 2 || cells->len > MAX_COLUMNS)
    return;
  for (guint i = 0; i < cells->len; i++) {
    gboolean is_weak = FALSE;
    LycheeJsonUnit unit = LYCHEE_JSON_UNKNOWN;
    LycheeTableRole role;

    if (strlen (cell (cells, i)) > MAX_TITLE)
      return;
    role = lychee_table_role_of (cell (cells, i), &unit, &is_weak);
    if (role == LYCHEE_TABLE_OTHER || (at[role] != NONE && (is_weak || !weak[role])))
      continue;
    n_known += at[role] == NONE;
    at[role] = i;
    weak[role] = is_weak;
    columns->unit[role] = unit;
  }
  if (at[LYCHEE_TABLE_FROM] != NONE) {
    LycheeTableRole role =
        at[LYCHEE_TABLE_START] == NONE ? LYCHEE_TABLE_START : LYCHEE_TABLE_SPEAKER;

    if (at[role] == NONE) {
      at[role] = at[LYCHEE_TABLE_FROM];
      weak[role] = TRUE;
    }
    if (role == LYCHEE_TABLE_START && at[LYCHEE_TABLE_END] == NONE)
      at[LYCHEE_TABLE_END] = at[LYCHEE_TABLE_TO];
  }
  if (at[LYCHEE_TABLE_TEXT] == NONE && at[LYCHEE_TABLE_WORD] != NONE)
    weak[LYCHEE_TABLE_TEXT] = TRUE;
  else if (at[LYCHEE_TABLE_TEXT] == NONE)
    return;
  columns->qualifies =
      weak[LYCHEE_TABLE_TEXT]
          ? at[LYCHEE_TABLE_START] != NONE &&
                (at[LYCHEE_TABLE_SPEAKER] != NONE || at[LYCHEE_TABLE_END] != NONE ||
                    at[LYCHEE_TABLE_DURATION] != NONE)
          : at[LYCHEE_TABLE_START] != NONE ||
                (at[LYCHEE_TABLE_SPEAKER] != NONE && !weak[LYCHEE_TABLE_SPEAKER]);
  columns->full = columns->qualifies && !weak[LYCHEE_TABLE_TEXT] &&
                  at[LYCHEE_TABLE_START] != NONE && n_known >= 3 && n_known * 2 > columns->n;
}

static gboolean
find_columns (const char *line, Columns *columns)
{
  static const char delimiters[] = "\t;,";

  if (strlen (line) > MAX_HEAD)
    return FALSE;
  if (is_label (line)) {
    read_titles ("start\tend\ttext", '\t', columns);
    return TRUE;
  }
  for (const char *at = delimiters; *at != '\0'; at++)
    if (strchr (line, *at) != NULL) {
      read_titles (line, *at, columns);
      if (columns->qualifies)
        return TRUE;
    }
  return FALSE;
}

gboolean
lychee_transcript_is_table_head (const char *line)
{
  Columns columns;

  return find_columns (line, &columns) && columns.full;
}

/* Whether @line, without regard to quotes, is a row. */
static gboolean
is_row (const Columns *columns, const char *line)
{
  g_autoptr (GPtrArray) cells = split (line, columns->delimiter, FALSE);
  guint start = columns->at[LYCHEE_TABLE_START];

  if (start != NONE)
    return cells->len >= columns->n && is_time (cell (cells, start));
  return columns->delimiter == '\t' && cells->len == columns->n;
}

/* "sep=;", for Excel. */
static gboolean
names_delimiter (const char *line)
{
  return g_ascii_strncasecmp (line, "sep=", 4) == 0 && strlen (line) == 5;
}

LycheeTranscriptFormat
lychee_transcript_detect_table (const char *text, gsize length, gboolean at_end)
{
  const char *at = text, *end = text + length;
  Columns columns = { 0 };
  gboolean found = FALSE;

  while (at < end) {
    gsize n = strcspn (at, "\r\n");
    g_autofree char *line = g_strndup (at, n);

    if (at + n >= end && !at_end)
      return LYCHEE_TRANSCRIPT_FORMAT_AUTO;
    at += n;
    while (at < end && (*at == '\r' || *at == '\n'))
      at++;
    if (lychee_transcript_is_blank (line, strlen (line)) || (!found && names_delimiter (line)))
      continue;
    if (!found) {
      found = find_columns (line, &columns);
      if (!found)
        return LYCHEE_TRANSCRIPT_FORMAT_TEXT;
      if (is_label (line))
        return LYCHEE_TRANSCRIPT_FORMAT_CSV;
    } else {
      /* The first row shows that the titles are some; only its beginning is looked at. */
      g_autoptr (GPtrArray) cells = split (line, columns.delimiter, TRUE);
      guint start = columns.at[LYCHEE_TABLE_START];

      return cells->len >= 2 && (start == NONE || *cell (cells, start) == '\0' ||
                                    is_time (cell (cells, start)))
                 ? LYCHEE_TRANSCRIPT_FORMAT_CSV
                 : LYCHEE_TRANSCRIPT_FORMAT_TEXT;
    }
  }
  return !at_end ? LYCHEE_TRANSCRIPT_FORMAT_AUTO
         : found ? LYCHEE_TRANSCRIPT_FORMAT_CSV
                 : LYCHEE_TRANSCRIPT_FORMAT_TEXT;
}

static void
append_member (GString *out, const char *key, const char *value)
{
  if (value == NULL || *value == '\0')
    return;
  g_string_append_printf (out, "%s\"%s\":\"", out->len > 1 ? "," : "", key);
  for (; *value != '\0'; value++) {
    if (*value == '"' || *value == '\\')
      g_string_append_c (out, '\\');
    if ((guchar) *value < 0x20)
      g_string_append_printf (out, "\\u%04x", (guchar) *value);
    else
      g_string_append_c (out, *value);
  }
  g_string_append_c (out, '"');
}

static void
give_text (TableReader *self, const char *text)
{
  g_autoptr (GString) object = g_string_new ("{");

  if (lychee_transcript_is_blank (text, strlen (text)))
    return;
  append_member (object, "text", text);
  g_string_append (object, "}\n");
  self->json->push (self->json, object->str, object->len);
}

/* Where a text has delimiters that nobody quoted, a row has more cells than there are titles. */
static char *
join_text (TableReader *self, GPtrArray *cells, guint at, guint excess)
{
  GString *text = g_string_new (cell (cells, at));

  for (guint i = 1; i <= excess; i++)
    g_string_append_printf (text, "%c%s%s", self->columns.delimiter,
        self->columns.delimiter == '\t' ? "" : " ", cell (cells, at + i));
  return g_string_free (text, FALSE);
}

static void
give_record (TableReader *self, const char *record, gboolean quotes)
{
  const Columns *columns = &self->columns;
  g_autoptr (GPtrArray) cells = split (record, columns->delimiter, quotes);
  g_autoptr (GString) object = g_string_new ("{");
  g_autofree char *text = NULL, *start = NULL, *end = NULL, *duration = NULL;
  guint shift[LYCHEE_TABLE_N_ROLES];
  gboolean word = columns->at[LYCHEE_TABLE_TEXT] == NONE;
  guint text_at = columns->at[word ? LYCHEE_TABLE_WORD : LYCHEE_TABLE_TEXT];
  guint excess = cells->len > columns->n ? cells->len - columns->n : 0;
  Columns again;

  for (guint i = 0; i < LYCHEE_TABLE_N_ROLES; i++)
    shift[i] = columns->at[i] + (columns->at[i] != NONE && columns->at[i] > text_at ? excess : 0);
  start = read_time (cell (cells, shift[LYCHEE_TABLE_START]), columns->unit[LYCHEE_TABLE_START],
      columns->at[LYCHEE_TABLE_END] == NONE ? &end : NULL);
  if (start == NULL && *cell (cells, shift[LYCHEE_TABLE_START]) != '\0') {
    if (find_columns (record, &again)) /* files put together */
      self->columns = again;
    else
      give_text (self, record);
    return;
  }
  if (text_at >= cells->len) {
    /* An empty row, or what is left of a text that was cut in two. */
    if (strspn (record, ",;\t \n") < strlen (record))
      give_text (self, record);
    return;
  }
  text = join_text (self, cells, text_at, excess);
  if (*text == '\0') {
    self->reader.output->report->empty++;
    return;
  }
  if (end == NULL)
    end = read_time (cell (cells, shift[LYCHEE_TABLE_END]), columns->unit[LYCHEE_TABLE_END], NULL);
  duration = read_time (
      cell (cells, shift[LYCHEE_TABLE_DURATION]), columns->unit[LYCHEE_TABLE_DURATION], NULL);
  append_member (object, "speaker", cell (cells, shift[LYCHEE_TABLE_SPEAKER]));
  append_member (object, "start", start);
  append_member (object, "end", end);
  append_member (object, "duration", duration);
  append_member (object, word ? "word" : "text", text);
  g_string_append (object, "}\n");
  self->json->push (self->json, object->str, object->len);
}

/* What is held, whose quote is none: line by line. */
static void
give_held (TableReader *self)
{
  g_auto (GStrv) lines = g_strsplit (self->record->str, "\n", -1);

  g_string_truncate (self->record, 0);
  for (guint i = 0; lines[i] != NULL; i++)
    if (!lychee_transcript_is_blank (lines[i], strlen (lines[i])))
      give_record (self, lines[i], FALSE);
}

static void
table_reader_push (LycheeTranscriptReader *reader, const char *line, gsize length)
{
  TableReader *self = (TableReader *) reader;
  char delimiter = self->columns.delimiter;
  gboolean held = self->record->len > 0;

  if (held && (is_row (&self->columns, line) || self->record->len > MAX_QUOTED)) {
    give_held (self);
    held = FALSE;
  }
  if (!held && (lychee_transcript_is_blank (line, length) || *line == '\\'))
    return;
  if (!self->has_columns) {
    if (names_delimiter (line))
      return;
    self->has_columns = find_columns (line, &self->columns);
    if (!self->has_columns)
      give_text (self, line);
    if (!self->has_columns || !is_label (line))
      return;
    delimiter = self->columns.delimiter;
  }
  if (held)
    g_string_append_c (self->record, '\n');
  g_string_append_len (self->record, line, length);
  if (stays_open (line, delimiter, held))
    return;
  give_record (self, self->record->str, TRUE);
  g_string_truncate (self->record, 0);
}

static void
table_reader_finish (LycheeTranscriptReader *reader)
{
  TableReader *self = (TableReader *) reader;

  give_held (self);
  self->json->finish (self->json);
}

static void
table_reader_release (LycheeTranscriptReader *reader)
{
  TableReader *self = (TableReader *) reader;

  give_held (self);
  self->json->release (self->json);
}

static void
table_reader_free (LycheeTranscriptReader *reader)
{
  TableReader *self = (TableReader *) reader;

  self->json->free (self->json);
  g_string_free (self->record, TRUE);
  g_free (self);
}

LycheeTranscriptReader *
lychee_transcript_reader_new_table (LycheeTranscriptOutput *output)
{
  TableReader *self = g_new0 (TableReader, 1);

  self->reader.push = table_reader_push;
  self->reader.finish = table_reader_finish;
  self->reader.release = table_reader_release;
  self->reader.free = table_reader_free;
  self->reader.output = output;
  self->json = lychee_transcript_reader_new_json (output);
  self->record = g_string_new (NULL);
  return &self->reader;
}
