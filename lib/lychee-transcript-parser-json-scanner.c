/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "lychee-transcript-parser-json.h"

#include <string.h>

/* What is broken is read as what it was meant to be, as far as that shows: a quote within a string
 * that nobody escaped, a string that nobody closed, a missing comma or bracket, an end too early.
 * The first such place is kept. */

/* Containers within containers; what is deeper is passed over. */
#define MAX_DEPTH 64
#define MAX_KEY_LENGTH 64
#define MAX_LITERAL_LENGTH 64
/* A string that is longer is handed out in pieces. */
#define MAX_STRING_LENGTH (1024 * 1024)
/* Of a string that nobody wants, what is kept to see where it should have ended. */
#define MAX_TAIL_LENGTH 4096
/* Behind a quote, until it is known what that was. */
#define MAX_PENDING_LENGTH 4096

typedef enum {
  STATE_VALUE, /* between values */
  STATE_STRING,
  STATE_QUOTE, /* behind a quote, which ends the string unless it goes on */
  STATE_ESCAPE,
  STATE_UNICODE,
  STATE_LITERAL,
  STATE_SLASH, /* of a comment, which JSON has none of, and files have */
  STATE_LINE_COMMENT,
  STATE_COMMENT,
  STATE_COMMENT_STAR,
} State;

typedef enum {
  NEXT_ITEM, /* a key, or a value in an array */
  NEXT_COLON,
  NEXT_VALUE,
  NEXT_COMMA,
} Next;

typedef struct {
  gboolean array;
  Next next;
  char key[MAX_KEY_LENGTH];
} Level;

struct _LycheeJsonScanner {
  const LycheeJsonEvents *events;
  gpointer user_data;

  State state;
  Level levels[MAX_DEPTH];
  guint depth;
  guint passed; /* containers open inside one that is of no interest */
  GString *string;
  char quote; /* Python prints single ones */
  gboolean is_key;
  gboolean wanted;
  GString *pending;   /* what is behind a quote */
  gboolean has_comma; /* a comma among it */
  guint n_digits;     /* of an escape */
  gunichar code;
  gunichar high; /* first half of a character beyond the BMP */
  GString *literal;
  guint64 n_replaced;

  /* The place of the last byte that was asked for, and of where the string begins. */
  const char *located;
  guint64 line;
  guint64 column;
  guint64 string_line;
  guint64 string_column;
  LycheeJsonFault fault;
  gboolean quote_fault; /* which is of a quote in the string */
};

LycheeJsonScanner *
lychee_json_scanner_new (const LycheeJsonEvents *events, gpointer user_data)
{
  LycheeJsonScanner *self = g_new0 (LycheeJsonScanner, 1);

  self->events = events;
  self->user_data = user_data;
  self->string = g_string_new (NULL);
  self->pending = g_string_new (NULL);
  self->literal = g_string_new (NULL);
  self->line = self->column = 1;
  return self;
}

void
lychee_json_scanner_free (LycheeJsonScanner *scanner)
{
  g_string_free (scanner->string, TRUE);
  g_string_free (scanner->pending, TRUE);
  g_string_free (scanner->literal, TRUE);
  g_free (scanner);
}

guint64
lychee_json_scanner_get_n_replaced (LycheeJsonScanner *scanner)
{
  return scanner->n_replaced;
}

const LycheeJsonFault *
lychee_json_scanner_get_fault (LycheeJsonScanner *scanner)
{
  return scanner->fault.what != NULL ? &scanner->fault : NULL;
}

/* Moves on to @at, in the text that is scanned. */
static void
locate (LycheeJsonScanner *self, const char *at)
{
  const char *newline;

  while ((newline = memchr (self->located, '\n', at - self->located)) != NULL) {
    self->line++;
    self->column = 1;
    self->located = newline + 1;
  }
  for (; self->located < at; self->located++)
    self->column += ((guchar) *self->located & 0xc0) != 0x80;
}

static void
note_fault (LycheeJsonScanner *self, const char *at, const char *what)
{
  if (self->fault.what != NULL)
    return;
  locate (self, at);
  self->fault = (LycheeJsonFault){ what, self->line, self->column };
}

/* The level that values come into; NULL outside of all, and in one of no interest. */
static Level *
top (LycheeJsonScanner *self)
{
  return self->depth > 0 && self->passed == 0 ? &self->levels[self->depth - 1] : NULL;
}

/* The key of the value that comes. */
static const char *
current_key (LycheeJsonScanner *self)
{
  Level *level = top (self);

  return level != NULL && !level->array ? level->key : NULL;
}

static void
begin_value (LycheeJsonScanner *self, const char *at)
{
  Level *level = top (self);

  if (level == NULL)
    return;
  if (level->next == NEXT_COMMA)
    note_fault (self, at, "a comma is missing before this");
  else if (level->next == NEXT_COLON)
    note_fault (self, at, "a colon is missing before this");
  else if (level->next == NEXT_ITEM && !level->array)
    note_fault (self, at, "a key is missing before this");
  level->next = NEXT_COMMA;
}

static void
end_container (LycheeJsonScanner *self)
{
  self->depth--;
  self->events->end (self->user_data);
}

static void
begin_container (LycheeJsonScanner *self, const char *at, gboolean array)
{
  Level *level = top (self);

  /* An object in the place of a key is no member of the object before it. */
  if (!array && level != NULL && !level->array && level->next != NEXT_VALUE) {
    note_fault (self, at, "the object before this is not closed");
    end_container (self);
  }
  begin_value (self, at);
  if (self->passed > 0 || self->depth == MAX_DEPTH ||
      !self->events->begin (self->user_data, current_key (self), array)) {
    self->passed++;
    return;
  }
  self->levels[self->depth++] = (Level){ .array = array };
}

/* Closes the innermost container of the kind, with all that nobody closed in it. */
static void
close_container (LycheeJsonScanner *self, const char *at, gboolean array)
{
  guint depth = self->depth;

  if (self->passed > 0) {
    self->passed--;
    return;
  }
  if (depth == 0)
    return;
  if (self->levels[depth - 1].next == NEXT_COLON || self->levels[depth - 1].next == NEXT_VALUE)
    note_fault (self, at, "a value is missing before this");
  while (depth > 0 && self->levels[depth - 1].array != array)
    depth--;
  if (depth < self->depth)
    note_fault (self, at,
        array ? "this closes an array, and an object is open"
              : "this closes an object, and an array is open");
  while (depth > 0 && self->depth >= depth)
    end_container (self);
}

static void
begin_string (LycheeJsonScanner *self, const char *at)
{
  Level *level = top (self);

  self->quote = *at;
  self->state = STATE_STRING;
  locate (self, at);
  self->string_line = self->line;
  self->string_column = self->column;
  self->quote_fault = FALSE;
  self->is_key =
      level != NULL && !level->array && level->next != NEXT_VALUE && level->next != NEXT_COLON;
  if (self->is_key) {
    if (level->next == NEXT_COMMA)
      note_fault (self, at, "a comma is missing before this");
  } else {
    begin_value (self, at);
  }
  self->wanted = self->passed == 0 &&
                 (self->is_key || self->events->wants_string (self->user_data, current_key (self)));
  self->high = 0;
  g_string_truncate (self->string, 0);
}

static void
give_string (LycheeJsonScanner *self)
{
  if (self->wanted && !self->is_key)
    self->events->string (
        self->user_data, current_key (self), self->string->str, self->string->len);
  g_string_truncate (self->string, 0);
}

static void
append_to_string (LycheeJsonScanner *self, const char *text, gsize length)
{
  if (self->passed > 0)
    return;
  if (self->is_key)
    length = MIN (length, MAX_KEY_LENGTH - MIN (self->string->len, MAX_KEY_LENGTH));
  g_string_append_len (self->string, text, length);
  if (!self->wanted && self->string->len > MAX_TAIL_LENGTH)
    g_string_erase (self->string, 0, self->string->len - MAX_TAIL_LENGTH / 2);
  else if (!self->is_key && self->string->len > MAX_STRING_LENGTH)
    give_string (self);
}

/* Half of a character without its other half. */
static void
end_high (LycheeJsonScanner *self)
{
  if (self->high == 0)
    return;
  self->high = 0;
  self->n_replaced += self->wanted;
  append_to_string (self, "\xef\xbf\xbd", 3);
}

static void
append_code (LycheeJsonScanner *self)
{
  gunichar c = self->code;
  char utf8[6];

  if (self->high != 0 && c >= 0xdc00 && c < 0xe000) {
    c = 0x10000 + ((self->high - 0xd800) << 10) + (c - 0xdc00);
    self->high = 0;
  }
  end_high (self);
  if (c >= 0xd800 && c < 0xdc00) {
    self->high = c;
    return;
  }
  if (c >= 0xdc00 && c < 0xe000) {
    c = 0xfffd;
    self->n_replaced += self->wanted;
  }
  if (c < 0x20 && c != '\n' && c != '\t' && c != '\r')
    return;
  append_to_string (self, utf8, g_unichar_to_utf8 (c, utf8));
}

static void
set_key (LycheeJsonScanner *self, const char *key)
{
  Level *level = top (self);

  g_strlcpy (level->key, key, sizeof level->key);
  level->next = NEXT_COLON;
}

static void
end_string (LycheeJsonScanner *self)
{
  end_high (self);
  if (self->is_key)
    set_key (self, self->string->str);
  give_string (self);
  self->state = STATE_VALUE;
}

static void
end_literal (LycheeJsonScanner *self, const char *at)
{
  Level *level = top (self);

  self->state = STATE_VALUE;
  if (level != NULL && !level->array &&
      (level->next == NEXT_ITEM || level->next == NEXT_COMMA)) { /* a key without quotes */
    if (level->next == NEXT_COMMA)
      note_fault (self, at, "a comma is missing before this");
    set_key (self, self->literal->str);
    return;
  }
  begin_value (self, at);
  if (self->passed == 0)
    self->events->literal (self->user_data, current_key (self), self->literal->str);
}

static void
take_comma (LycheeJsonScanner *self, const char *at)
{
  Level *level = top (self);

  if (level == NULL)
    return;
  if (level->next == NEXT_COLON || level->next == NEXT_VALUE)
    note_fault (self, at, "a value is missing before this");
  level->next = NEXT_ITEM;
}

static void
take_colon (LycheeJsonScanner *self, const char *at)
{
  Level *level = top (self);

  if (level == NULL)
    return;
  if (level->array || level->next != NEXT_COLON)
    note_fault (self, at, "a colon does not belong here");
  if (!level->array)
    level->next = NEXT_VALUE;
}

static void
take_structure (LycheeJsonScanner *self, const char *at)
{
  switch (*at) {
  case '{':
  case '[':
    begin_container (self, at, *at == '[');
    break;
  case '}':
  case ']':
    close_container (self, at, *at == ']');
    break;
  case '(': /* Python's tuples; not what JSON is an argument in */
  case ')':
    if (self->depth > 0 && *at == '(')
      begin_container (self, at, TRUE);
    else if (self->depth > 0)
      close_container (self, at, TRUE);
    break;
  case '"':
  case '\'':
    begin_string (self, at);
    break;
  case '/':
    self->state = STATE_SLASH;
    break;
  case ':':
    take_colon (self, at);
    break;
  case ',':
    take_comma (self, at);
    break;
  default:
    if (g_ascii_isalnum (*at) || strchr ("-.+_$", *at) != NULL) {
      self->state = STATE_LITERAL;
      g_string_truncate (self->literal, 0);
      g_string_append_c (self->literal, *at);
    } else if (!g_ascii_isspace (*at) && top (self) != NULL && ((guchar) *at & 0xc0) != 0x80) {
      note_fault (self, at, "this does not belong here");
    }
    break;
  }
}

static void
take_escape (LycheeJsonScanner *self, char c)
{
  static const char from[] = "bfnrt";
  static const char to[] = "  \n\n\t";
  const char *found = strchr (from, c);

  self->state = STATE_STRING;
  if (c == 'u') {
    self->state = STATE_UNICODE;
    self->n_digits = 0;
    self->code = 0;
    return;
  }
  end_high (self);
  append_to_string (self, found != NULL ? &to[found - from] : &c, 1);
}

/* Returns whether @c was one of the digits. */
static gboolean
take_unicode (LycheeJsonScanner *self, char c)
{
  if (!g_ascii_isxdigit (c)) {
    self->code = 0xfffd;
    self->n_replaced += self->wanted;
  } else {
    self->code = self->code << 4 | g_ascii_xdigit_value (c);
    if (++self->n_digits < 4)
      return TRUE;
  }
  self->state = STATE_STRING;
  append_code (self);
  return g_ascii_isxdigit (c);
}

static void
take_comment (LycheeJsonScanner *self, char c)
{
  switch (self->state) {
  case STATE_LINE_COMMENT:
    if (c == '\n' || c == '\r')
      self->state = STATE_VALUE;
    break;
  default:
    if (c == '*')
      self->state = STATE_COMMENT_STAR;
    else
      self->state = c == '/' && self->state == STATE_COMMENT_STAR ? STATE_VALUE : STATE_COMMENT;
    break;
  }
}

static void scan (LycheeJsonScanner *self, const char *text, const char *end);

/* Scans text that was held back, in the place of the byte at @at. */
static void
scan_held (LycheeJsonScanner *self, const char *at, const char *held)
{
  guint64 line, column;

  locate (self, at);
  line = self->line;
  column = self->column;
  self->located = held;
  scan (self, held, held + strlen (held));
  self->located = at;
  self->line = line;
  self->column = column;
}

/* The quote ended the string. */
static void
accept_quote (LycheeJsonScanner *self, const char *at)
{
  g_autofree char *pending = g_strdup (self->pending->str);

  end_string (self);
  scan_held (self, at, pending);
}

/* The quote is part of the string. */
static void
keep_quote (LycheeJsonScanner *self, const char *at)
{
  self->quote_fault |= self->fault.what == NULL;
  note_fault (self, at, "a quote before this is not escaped");
  append_to_string (self, &self->quote, 1);
  append_to_string (self, self->pending->str, self->pending->len);
  self->state = STATE_STRING;
}

/* Behind a quote is a colon: where what is before that ends like the beginning of a member, nobody
 * closed the string, and that is the next key. Returns whether it is so. */
static gboolean
split_string (LycheeJsonScanner *self, const char *at)
{
  char *text = self->string->str;
  char *quote = text + self->string->len;
  char *from;
  g_autofree char *tail = NULL;

  do {
    if (quote == text || text + self->string->len - quote > MAX_KEY_LENGTH)
      return FALSE;
    quote--;
    if (!g_ascii_isalnum (*quote) && strchr ("_-$", *quote) == NULL && *quote != self->quote)
      return FALSE;
  } while (*quote != self->quote);
  if (quote[1] == '\0')
    return FALSE;
  from = quote;
  while (from > text && quote - from < MAX_PENDING_LENGTH &&
         (g_ascii_isspace (from[-1]) || strchr ("{}[],", from[-1]) != NULL))
    from--;
  if (strcspn (from, "{,") >= (gsize) (quote - from))
    return FALSE;
  if (self->fault.what == NULL || self->quote_fault)
    self->fault =
        (LycheeJsonFault){ "this string is not closed", self->string_line, self->string_column };
  tail = g_strdup_printf ("%s%c%s", from, self->quote, self->pending->str);
  g_string_truncate (self->string, from - text);
  end_string (self);
  /* A line that begins with an object is the next of JSON lines. */
  if (strstr (tail, "\n{") != NULL)
    while (self->depth > 0)
      end_container (self);
  scan_held (self, at, tail);
  return TRUE;
}

/* Takes the byte at @at, behind a quote, if the quote is not decided on by it. */
static gboolean
take_behind_quote (LycheeJsonScanner *self, const char *at)
{
  Level *level = top (self);
  gboolean word = g_ascii_isalnum (*at) || *at == '_' || *at == '$';

  if (self->pending->len >= MAX_PENDING_LENGTH) {
    accept_quote (self, at);
  } else if (g_ascii_isspace (*at) || (self->has_comma && word)) {
    g_string_append_c (self->pending, *at);
    return TRUE;
  } else if (self->has_comma) {
    /* The next member has to follow; its key may be without quotes. */
    gboolean key = self->pending->len > 0 && !g_ascii_isspace (*at) &&
                   (g_ascii_isalnum (self->pending->str[self->pending->len - 1]) ||
                       strchr ("_$", self->pending->str[self->pending->len - 1]) != NULL);

    if (key ? *at == ':' : strchr ("\"'}]/,{", *at) != NULL)
      accept_quote (self, at);
    else
      keep_quote (self, at);
  } else if (*at == ',' && level != NULL && !level->array) {
    self->has_comma = TRUE;
    g_string_append_c (self->pending, *at);
    return TRUE;
  } else if (strchr (",}])", *at) != NULL || level == NULL) {
    accept_quote (self, at);
  } else if (strchr ("\"'/{", *at) != NULL && self->pending->len > 0) {
    accept_quote (self, at); /* a comma or a brace is missing, or a comment follows */
  } else if (*at != ':' || level->array || !split_string (self, at)) {
    keep_quote (self, at);
  }
  return FALSE;
}

static void
scan (LycheeJsonScanner *self, const char *text, const char *end)
{
  while (text < end) {
    const char *run = text;

    switch (self->state) {
    case STATE_VALUE:
      take_structure (self, text++);
      break;
    case STATE_STRING:
      while (text < end && *text != self->quote && *text != '\\')
        text++;
      if (text > run) {
        end_high (self);
        append_to_string (self, run, text - run);
      }
      if (text == end)
        break;
      if (*text == '\\') {
        self->state = STATE_ESCAPE;
      } else if (self->passed > 0 || self->is_key) {
        end_string (self);
      } else {
        end_high (self);
        self->state = STATE_QUOTE;
        self->has_comma = FALSE;
        g_string_truncate (self->pending, 0);
      }
      text++;
      break;
    case STATE_QUOTE:
      text += take_behind_quote (self, text);
      break;
    case STATE_ESCAPE:
      take_escape (self, *text++);
      break;
    case STATE_UNICODE:
      text += take_unicode (self, *text);
      break;
    case STATE_LITERAL:
      if (g_ascii_isalnum (*text) || strchr ("+-._$", *text) != NULL) {
        if (self->literal->len < MAX_LITERAL_LENGTH)
          g_string_append_c (self->literal, *text);
        text++;
      } else {
        end_literal (self, text);
      }
      break;
    case STATE_SLASH:
      self->state = *text == '/' ? STATE_LINE_COMMENT : *text == '*' ? STATE_COMMENT : STATE_VALUE;
      text += self->state != STATE_VALUE;
      break;
    default:
      take_comment (self, *text++);
      break;
    }
  }
}

void
lychee_json_scanner_push (LycheeJsonScanner *scanner, const char *text, gsize length)
{
  scanner->located = text;
  scan (scanner, text, text + length);
  locate (scanner, text + length);
}

/* Of a string that nobody closed, what closes the object that it is in, and all around. */
static void
cut_closing (GString *string)
{
  gsize length = string->len;
  gsize end = length;

  while (length > 0 &&
         (g_ascii_isspace (string->str[length - 1]) || strchr ("}],", string->str[length - 1])))
    if (string->str[--length] == '}')
      end = length;
  if (end < string->len)
    g_string_truncate (string, length);
}

void
lychee_json_scanner_finish (LycheeJsonScanner *scanner)
{
  static const char nothing[] = "";
  gboolean in_string = scanner->state == STATE_STRING || scanner->state == STATE_ESCAPE ||
                       scanner->state == STATE_UNICODE;

  scanner->located = nothing;
  if (scanner->state == STATE_QUOTE)
    accept_quote (scanner, nothing);
  if (scanner->state == STATE_LITERAL)
    end_literal (scanner, nothing);
  if (scanner->depth > 0 || scanner->passed > 0)
    note_fault (scanner, nothing,
        in_string ? "it ends here, within a string" : "it ends here, before all is closed");
  if (in_string && !scanner->is_key) {
    if (scanner->passed == 0)
      cut_closing (scanner->string);
    end_string (scanner);
  }
  scanner->state = STATE_VALUE;
  scanner->passed = 0;
  while (scanner->depth > 0)
    end_container (scanner);
}
