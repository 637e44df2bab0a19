/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "lychee-transcript-parser-json.h"

#include <string.h>

/* Containers within containers; what is deeper is passed over. */
#define MAX_DEPTH 64
#define MAX_KEY_LENGTH 64
#define MAX_LITERAL_LENGTH 64
/* A string that is longer is handed out in pieces. */
#define MAX_STRING_LENGTH (1024 * 1024)

typedef enum {
  STATE_VALUE, /* between values */
  STATE_STRING,
  STATE_ESCAPE,
  STATE_UNICODE,
  STATE_LITERAL,
  STATE_SLASH, /* of a comment, which JSON has none of, and files have */
  STATE_LINE_COMMENT,
  STATE_COMMENT,
  STATE_COMMENT_STAR,
} State;

typedef struct {
  gboolean array;
  gboolean after_colon; /* in an object: a value comes, not a key */
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
  guint n_digits; /* of an escape */
  gunichar code;
  gunichar high; /* first half of a character beyond the BMP */
  GString *literal;
  guint64 n_replaced;
};

LycheeJsonScanner *
lychee_json_scanner_new (const LycheeJsonEvents *events, gpointer user_data)
{
  LycheeJsonScanner *self = g_new0 (LycheeJsonScanner, 1);

  self->events = events;
  self->user_data = user_data;
  self->string = g_string_new (NULL);
  self->literal = g_string_new (NULL);
  return self;
}

void
lychee_json_scanner_free (LycheeJsonScanner *scanner)
{
  g_string_free (scanner->string, TRUE);
  g_string_free (scanner->literal, TRUE);
  g_free (scanner);
}

guint64
lychee_json_scanner_get_n_replaced (LycheeJsonScanner *scanner)
{
  return scanner->n_replaced;
}

static Level *
top (LycheeJsonScanner *self)
{
  return self->depth > 0 ? &self->levels[self->depth - 1] : NULL;
}

/* The key of the value that comes. */
static const char *
current_key (LycheeJsonScanner *self)
{
  Level *level = top (self);

  return level != NULL && !level->array ? level->key : NULL;
}

static void
begin_container (LycheeJsonScanner *self, gboolean array)
{
  if (self->passed > 0 || self->depth == MAX_DEPTH ||
      !self->events->begin (self->user_data, current_key (self), array)) {
    self->passed++;
    return;
  }
  self->levels[self->depth++] = (Level){ .array = array };
}

static void
end_container (LycheeJsonScanner *self)
{
  if (self->passed > 0) {
    self->passed--;
  } else if (self->depth > 0) {
    self->depth--;
    self->events->end (self->user_data);
  }
}

static void
begin_string (LycheeJsonScanner *self, char quote)
{
  Level *level = top (self);

  self->quote = quote;
  self->state = STATE_STRING;
  self->is_key = level != NULL && !level->array && !level->after_colon;
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
  if (!self->wanted)
    return;
  if (self->is_key)
    length = MIN (length, MAX_KEY_LENGTH - MIN (self->string->len, MAX_KEY_LENGTH));
  g_string_append_len (self->string, text, length);
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
end_string (LycheeJsonScanner *self)
{
  Level *level = top (self);

  end_high (self);
  if (self->is_key && self->passed == 0)
    g_strlcpy (level->key, self->string->str, sizeof level->key);
  give_string (self);
  self->state = STATE_VALUE;
}

static void
end_literal (LycheeJsonScanner *self)
{
  Level *level = top (self);

  if (self->passed == 0 && (level == NULL || level->array || level->after_colon))
    self->events->literal (self->user_data, current_key (self), self->literal->str);
  self->state = STATE_VALUE;
}

static void
take_structure (LycheeJsonScanner *self, char c)
{
  Level *level = self->passed > 0 ? NULL : top (self);

  switch (c) {
  case '{':
  case '[':
    begin_container (self, c == '[');
    break;
  case '}':
  case ']':
    end_container (self);
    break;
  case '"':
  case '\'':
    begin_string (self, c);
    break;
  case '/':
    self->state = STATE_SLASH;
    break;
  case ':':
    if (level != NULL)
      level->after_colon = TRUE;
    break;
  case ',':
    if (level != NULL)
      level->after_colon = FALSE;
    break;
  default:
    if (g_ascii_isalnum (c) || c == '-' || c == '.' || c == '+') {
      self->state = STATE_LITERAL;
      g_string_truncate (self->literal, 0);
      g_string_append_c (self->literal, c);
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
  case STATE_SLASH:
    self->state = c == '/' ? STATE_LINE_COMMENT : c == '*' ? STATE_COMMENT : STATE_VALUE;
    break;
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

void
lychee_json_scanner_push (LycheeJsonScanner *scanner, const char *text, gsize length)
{
  const char *end = text + length;

  while (text < end) {
    const char *run = text;

    switch (scanner->state) {
    case STATE_VALUE:
      take_structure (scanner, *text++);
      break;
    case STATE_STRING:
      while (text < end && *text != scanner->quote && *text != '\\')
        text++;
      if (text > run) {
        end_high (scanner);
        append_to_string (scanner, run, text - run);
        if (scanner->string->len > MAX_STRING_LENGTH && !scanner->is_key)
          give_string (scanner);
      }
      if (text < end && *text == '\\')
        scanner->state = STATE_ESCAPE;
      else if (text < end)
        end_string (scanner);
      text += text < end;
      break;
    case STATE_ESCAPE:
      take_escape (scanner, *text++);
      break;
    case STATE_UNICODE:
      if (take_unicode (scanner, *text))
        text++;
      break;
    case STATE_LITERAL:
      if (g_ascii_isalnum (*text) || strchr ("+-._", *text) != NULL) {
        if (scanner->literal->len < MAX_LITERAL_LENGTH)
          g_string_append_c (scanner->literal, *text);
        text++;
      } else {
        end_literal (scanner);
      }
      break;
    default:
      take_comment (scanner, *text++);
      break;
    }
  }
}

void
lychee_json_scanner_finish (LycheeJsonScanner *scanner)
{
  if (scanner->state == STATE_LITERAL)
    end_literal (scanner);
  else if (scanner->state >= STATE_STRING && scanner->state <= STATE_UNICODE && !scanner->is_key)
    end_string (scanner);
  scanner->state = STATE_VALUE;
  scanner->passed = 0;
  while (scanner->depth > 0)
    end_container (scanner);
}
