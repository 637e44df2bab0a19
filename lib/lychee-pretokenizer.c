/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "lychee-pretokenizer.h"
#include <unicode/uchar.h>

typedef enum {
  CLASS_LETTER,
  CLASS_NUMBER,
  CLASS_SPACE,
  CLASS_OTHER,
  /* In place of the first, where case counts: */
  CLASS_CAPITAL,
  CLASS_SMALL,
  CLASS_CASELESS, /* marks, too */
} CharClass;

/* What the pending text is. */
typedef enum {
  STATE_START,         /* nothing */
  STATE_APOSTROPHE,    /* one ' at the start of a word */
  STATE_CONTRACTION,   /* ' and the r, v or l that may become 're, 've or 'll */
  STATE_SPACE,         /* white space only */
  STATE_LETTER,        /* ends with a letter */
  STATE_NUMBER,        /* ends with a number */
  STATE_OTHER,         /* ends with something else */
  STATE_OTHER_ONE,     /* one such character, which may still become the first of a word */
  STATE_OTHER_NEWLINE, /* such characters, then newlines */
  STATE_CAPITALS /* GPT-4o: letters, none of them small; STATE_LETTER: a small one among them */
} State;

static CharClass
classify (gunichar c)
{
  if (c < 0x80) {
    if (g_ascii_isalpha (c))
      return CLASS_LETTER;
    if (g_ascii_isdigit (c))
      return CLASS_NUMBER;
    return c == ' ' || (c >= '\t' && c <= '\r') ? CLASS_SPACE : CLASS_OTHER;
  }
  guint32 category = U_MASK (u_charType ((UChar32) c));
  if (category & U_GC_L_MASK)
    return CLASS_LETTER;
  if (category & U_GC_N_MASK)
    return CLASS_NUMBER;
  return u_isUWhiteSpace ((UChar32) c) ? CLASS_SPACE : CLASS_OTHER;
}

/* The same where case counts. */
static CharClass
classify_by_case (gunichar c)
{
  switch (u_charType ((UChar32) c)) {
  case U_UPPERCASE_LETTER:
  case U_TITLECASE_LETTER:
    return CLASS_CAPITAL;
  case U_LOWERCASE_LETTER:
    return CLASS_SMALL;
  case U_MODIFIER_LETTER:
  case U_OTHER_LETTER:
  case U_NON_SPACING_MARK:
  case U_ENCLOSING_MARK:
  case U_COMBINING_SPACING_MARK:
    return CLASS_CASELESS;
  default:
    return classify (c);
  }
}

static gboolean
is_mark (gunichar c)
{
  return (U_MASK (u_charType ((UChar32) c)) & U_GC_M_MASK) != 0;
}

static gboolean
is_newline (gunichar c)
{
  return c == '\n' || c == '\r';
}

/* The letter that must follow @c in 're, 've and 'll. */
static char
contraction_rest (gunichar c)
{
  return c == 'l' ? 'l' : 'e';
}

/* A word starts with @c, which is its only character so far and is not yet counted in length. */
static void
begin (LycheePretokenizer *self, gunichar c, CharClass char_class, State other)
{
  switch (char_class) {
  case CLASS_LETTER:
    self->state = STATE_LETTER;
    break;
  case CLASS_NUMBER:
    self->state = STATE_NUMBER;
    self->n_digits = 1;
    break;
  case CLASS_SPACE:
    self->state = STATE_SPACE;
    self->last = self->length;
    self->newline = 0;
    break;
  case CLASS_OTHER:
    self->state = c == '\'' ? STATE_APOSTROPHE : other;
    break;
  default:
    break;
  }
}

/* One more character of white space. */
static void
extend_space (LycheePretokenizer *self)
{
  self->last = self->length;
}

/* Everything in @ends is given out: offsets count from the last end now. */
static void
settle (LycheePretokenizer *self, const gsize *ends, guint n_ends)
{
  if (n_ends == 0)
    return;
  gsize done = ends[n_ends - 1];
  self->length -= done;
  self->last = self->last > done ? self->last - done : 0;
  self->newline = self->newline > done ? self->newline - done : 0;
}

/* @c is one character more of what is pending, in the state that it has led to, before which there
 * were @n ends: how many there are with it. Numbers end after @max_digits. */
static guint
take (LycheePretokenizer *self, gunichar c, guint n_bytes, guint max_digits, gsize *ends, guint n)
{
  self->length += n_bytes;
  if (self->state == STATE_SPACE && is_newline (c))
    self->newline = self->length;
  if (self->state == STATE_NUMBER && self->n_digits == max_digits) {
    ends[n++] = self->length;
    self->state = STATE_START;
  }
  settle (self, ends, n);
  return n;
}

/* @c after a lone run of white space that ends with it: in `\s+(?!\S)` the last space is left for
 * the word that follows. Gives the end before that space; pending is then that one space. */
static guint
leave_last_space (LycheePretokenizer *self, gsize start, gsize *ends)
{
  if (self->last <= start)
    return 0;
  ends[0] = self->last;
  return 1;
}

/* What the two contraction states have in common. Returns whether @c completes one. */
static gboolean
completes_contraction (LycheePretokenizer *self, gunichar c, gboolean *may_go_on)
{
  *may_go_on = FALSE;
  if (self->state == STATE_CONTRACTION)
    return c == (gunichar) contraction_rest (self->previous);
  *may_go_on = c == 'r' || c == 'v' || c == 'l';
  return c == 's' || c == 't' || c == 'm' || c == 'd';
}

static guint
gpt2_push (LycheePretokenizer *self, gunichar c, CharClass char_class, guint n_bytes, gsize *ends)
{
  guint n = 0;
  gboolean may_go_on;

  switch ((State) self->state) {
  case STATE_APOSTROPHE:
  case STATE_CONTRACTION:
    if (completes_contraction (self, c, &may_go_on)) {
      ends[n++] = self->length + n_bytes;
      self->state = STATE_START;
      break;
    }
    if (may_go_on) {
      self->state = STATE_CONTRACTION;
      break;
    }
    if (self->state == STATE_CONTRACTION) {
      ends[n++] = 1;
      if (char_class != CLASS_LETTER)
        ends[n++] = self->length;
      begin (self, c, char_class, STATE_OTHER);
    } else if (char_class == CLASS_OTHER) {
      self->state = STATE_OTHER;
    } else {
      ends[n++] = self->length;
      begin (self, c, char_class, STATE_OTHER);
    }
    break;
  case STATE_SPACE:
    if (char_class == CLASS_SPACE) {
      extend_space (self);
      break;
    }
    n = leave_last_space (self, 0, ends);
    if (self->previous == ' ') {
      self->state = char_class == CLASS_LETTER   ? STATE_LETTER
                    : char_class == CLASS_NUMBER ? STATE_NUMBER
                                                 : STATE_OTHER;
    } else {
      ends[n++] = self->length;
      begin (self, c, char_class, STATE_OTHER);
    }
    break;
  case STATE_LETTER:
  case STATE_NUMBER:
  case STATE_OTHER:
    if ((self->state == STATE_LETTER && char_class == CLASS_LETTER) ||
        (self->state == STATE_NUMBER && char_class == CLASS_NUMBER) ||
        (self->state == STATE_OTHER && char_class == CLASS_OTHER))
      break;
    ends[n++] = self->length;
    begin (self, c, char_class, STATE_OTHER);
    break;
  default:
    begin (self, c, char_class, STATE_OTHER);
    break;
  }
  self->length += n_bytes;
  settle (self, ends, n);
  return n;
}

static guint
smollm_push (LycheePretokenizer *self, gunichar c, CharClass char_class, guint n_bytes, gsize *ends)
{
  if (char_class != CLASS_NUMBER)
    return gpt2_push (self, c, char_class, n_bytes, ends);

  gsize length = self->length;
  guint n = lychee_pretokenizer_finish (self, ends);
  ends[n++] = length + n_bytes;
  return n;
}

static guint
llama3_push (LycheePretokenizer *self, gunichar c, CharClass char_class, guint n_bytes, gsize *ends)
{
  guint n = 0;
  gboolean threes =
      self->kind == LYCHEE_PRETOKENIZER_LLAMA3 || self->kind == LYCHEE_PRETOKENIZER_MINICPM5;
  gboolean may_go_on;

  switch ((State) self->state) {
  case STATE_CONTRACTION:
  case STATE_APOSTROPHE:
    if (completes_contraction (self, c < 0x80 ? (gunichar) g_ascii_tolower (c) : c, &may_go_on)) {
      ends[n++] = self->length + n_bytes;
      self->state = STATE_START;
      break;
    }
    if (may_go_on) {
      self->state = STATE_CONTRACTION;
      break;
    }
    if (self->state == STATE_CONTRACTION) {
      /* No contraction: the apostrophe is the one character that a word may start with. */
      self->state = STATE_LETTER;
      if (char_class == CLASS_LETTER)
        break;
      ends[n++] = self->length;
      begin (self, c, char_class, STATE_OTHER_ONE);
      break;
    }
    G_GNUC_FALLTHROUGH;
  case STATE_OTHER_ONE:
    if (char_class == CLASS_LETTER) {
      self->state = STATE_LETTER;
      break;
    }
    G_GNUC_FALLTHROUGH;
  case STATE_OTHER:
    if (char_class == CLASS_OTHER) {
      self->state = STATE_OTHER;
      break;
    }
    G_GNUC_FALLTHROUGH;
  case STATE_OTHER_NEWLINE:
    if (is_newline (c) && self->kind != LYCHEE_PRETOKENIZER_SEED_CODER) {
      self->state = STATE_OTHER_NEWLINE;
      break;
    }
    ends[n++] = self->length;
    begin (self, c, char_class, STATE_OTHER_ONE);
    break;
  case STATE_SPACE: {
    if (char_class == CLASS_SPACE) {
      extend_space (self);
      break;
    }
    /* `\s*[\r\n]+` first takes all up to the last newline. */
    gsize start = self->newline;
    if (start > 0)
      ends[n++] = start;
    if (start < self->length) {
      n += leave_last_space (self, start, ends + n);
      if (char_class == CLASS_LETTER) {
        self->state = STATE_LETTER;
        break;
      }
      if (self->previous == ' ' && char_class == CLASS_OTHER) {
        self->state = STATE_OTHER;
        break;
      }
      ends[n++] = self->length;
    }
    begin (self, c, char_class, STATE_OTHER_ONE);
    break;
  }
  case STATE_LETTER:
    if (char_class == CLASS_LETTER)
      break;
    ends[n++] = self->length;
    begin (self, c, char_class, STATE_OTHER_ONE);
    break;
  case STATE_NUMBER:
    if (char_class == CLASS_NUMBER) {
      self->n_digits++;
      break;
    }
    ends[n++] = self->length;
    begin (self, c, char_class, STATE_OTHER_ONE);
    break;
  default:
    begin (self, c, char_class, STATE_OTHER_ONE);
    break;
  }
  return take (self, c, n_bytes, threes ? 3 : 1, ends, n);
}

static guint
minicpm5_push (
    LycheePretokenizer *self, gunichar c, CharClass char_class, guint n_bytes, gsize *ends)
{
  guint n = 0;

  if (char_class == CLASS_NUMBER && self->state != STATE_NUMBER)
    n = lychee_pretokenizer_finish (self, ends);
  return n + llama3_push (self, c, char_class, n_bytes, ends + n);
}

/* Of what is pending, STATE_SPACE is what no expression takes: white space, too, but the last of it
 * before a letter or a punctuation mark, which is of their word. */
static guint
deepseek_coder_push (
    LycheePretokenizer *self, gunichar c, CharClass char_class, guint n_bytes, gsize *ends)
{
  guint eastern = (c >= 0x800 && c <= 0x9fa5) || (c >= 0xac00 && c <= 0xd7ff);
  gboolean alone = is_newline (c) || char_class == CLASS_NUMBER;
  State state = STATE_SPACE;
  guint n = 0;

  if (char_class == CLASS_LETTER)
    state = STATE_LETTER;
  else if (U_MASK (u_charType ((UChar32) c)) & U_GC_P_MASK)
    state = STATE_OTHER;
  if (self->state == STATE_SPACE && state != STATE_SPACE && !alone && self->last < self->length) {
    n = leave_last_space (self, 0, ends);
    self->state = state;
  }
  if (self->length > 0 && (alone || self->state != state || self->eastern != eastern))
    ends[n++] = self->length;
  self->state = state;
  self->eastern = eastern;
  self->last = self->length + (char_class == CLASS_SPACE ? 0 : n_bytes);
  self->length += n_bytes;
  if (alone) {
    ends[n++] = self->length;
    self->state = STATE_START;
  }
  settle (self, ends, n);
  return n;
}

/* A letter or mark is the first of a word, but for the one character that may stand before it. */
static void
begin_cased (LycheePretokenizer *self, CharClass char_class, guint n_bytes)
{
  self->state = char_class == CLASS_SMALL ? STATE_LETTER : STATE_CAPITALS;
  self->last = char_class == CLASS_CASELESS ? self->length + n_bytes : 0;
}

/* A word begins with @c, as in begin (). */
static void
begin_word (LycheePretokenizer *self, gunichar c, CharClass char_class, guint n_bytes)
{
  if (char_class >= CLASS_CAPITAL)
    begin_cased (self, char_class, n_bytes);
  else if (char_class == CLASS_OTHER)
    self->state = STATE_OTHER_ONE;
  else
    begin (self, c, char_class, STATE_OTHER_ONE);
}

/* Capitals at the end of a word that has no small letter are a word of their own where something
 * without case stands before them: `U*L+` ends with that. */
static guint
leave_capitals (LycheePretokenizer *self, gsize *ends)
{
  if (self->state != STATE_CAPITALS || self->last == 0 || self->last == self->length)
    return 0;
  ends[0] = self->last;
  return 1;
}

static guint
gpt4o_push (LycheePretokenizer *self, gunichar c, CharClass char_class, guint n_bytes, gsize *ends)
{
  guint n = 0, max_digits = self->kind == LYCHEE_PRETOKENIZER_GPT4O ? 3 : 1;
  gboolean is_letter = char_class >= CLASS_CAPITAL, may_go_on;

  switch ((State) self->state) {
  case STATE_APOSTROPHE:
  case STATE_CONTRACTION:
    if (completes_contraction (self, c < 0x80 ? (gunichar) g_ascii_tolower (c) : c, &may_go_on)) {
      ends[n++] = self->length + n_bytes;
      self->state = STATE_START;
      break;
    }
    if (may_go_on) {
      self->state = STATE_CONTRACTION;
      break;
    }
    /* No contraction: the word ends before the apostrophe, which another may start with. */
    ends[n++] = self->last;
    if (self->state == STATE_CONTRACTION) {
      self->state = self->capital ? STATE_CAPITALS : STATE_LETTER;
      self->last = 0;
    } else {
      self->state = STATE_OTHER_ONE;
    }
    settle (self, ends, n);
    {
      gsize done = ends[0];

      /* at most two more; offsets count from what was pending before */
      guint more = gpt4o_push (self, c, char_class, n_bytes, ends + n);
      for (guint i = 0; i < more; i++)
        ends[n++] += done;
      return n;
    }
  case STATE_CAPITALS:
    if (is_letter) {
      if (char_class == CLASS_SMALL)
        self->state = STATE_LETTER;
      else if (char_class == CLASS_CASELESS)
        self->last = self->length + n_bytes;
      break;
    }
    n = leave_capitals (self, ends);
    G_GNUC_FALLTHROUGH;
  case STATE_LETTER:
    if (is_letter && char_class != CLASS_CAPITAL)
      break;
    if (c == '\'' && self->kind == LYCHEE_PRETOKENIZER_GPT4O) {
      self->state = STATE_APOSTROPHE;
      self->last = self->length;
      break;
    }
    ends[n++] = self->length;
    begin_word (self, c, char_class, n_bytes);
    break;
  case STATE_OTHER_ONE:
    if (is_letter) {
      begin_cased (self, char_class, n_bytes);
      break;
    }
    G_GNUC_FALLTHROUGH;
  case STATE_OTHER:
    /* a mark is one of these, but for the first */
    if (char_class == CLASS_OTHER || (char_class == CLASS_CASELESS && is_mark (c))) {
      self->state = STATE_OTHER;
      break;
    }
    G_GNUC_FALLTHROUGH;
  case STATE_OTHER_NEWLINE:
    if (is_newline (c) || (c == '/' && self->state == STATE_OTHER_NEWLINE)) {
      self->state = STATE_OTHER_NEWLINE;
      break;
    }
    ends[n++] = self->length;
    begin_word (self, c, char_class, n_bytes);
    break;
  case STATE_SPACE:
    if (char_class == CLASS_SPACE) {
      extend_space (self);
      break;
    }
    if (self->newline > 0)
      ends[n++] = self->newline;
    if (self->newline < self->length) {
      n += leave_last_space (self, self->newline, ends + n);
      if (is_letter) {
        begin_cased (self, char_class, n_bytes);
        break;
      }
      if (self->previous == ' ' && char_class == CLASS_OTHER) {
        self->state = STATE_OTHER;
        break;
      }
      ends[n++] = self->length;
    }
    begin_word (self, c, char_class, n_bytes);
    break;
  case STATE_NUMBER:
    if (char_class == CLASS_NUMBER) {
      self->n_digits++;
      break;
    }
    ends[n++] = self->length;
    begin_word (self, c, char_class, n_bytes);
    break;
  case STATE_START:
    begin_word (self, c, char_class, n_bytes);
    break;
  }
  return take (self, c, n_bytes, max_digits, ends, n);
}

guint
lychee_pretokenizer_push (
    LycheePretokenizer *self, gunichar c, guint n_bytes, gsize ends[LYCHEE_PRETOKENIZER_MAX_ENDS])
{
  CharClass char_class = classify (c);
  guint n = 0;

  switch (self->kind) {
  case LYCHEE_PRETOKENIZER_GPT2:
    n = gpt2_push (self, c, char_class, n_bytes, ends);
    break;
  case LYCHEE_PRETOKENIZER_SMOLLM:
    n = smollm_push (self, c, char_class, n_bytes, ends);
    break;
  case LYCHEE_PRETOKENIZER_QWEN35:
    if (char_class == CLASS_OTHER && is_mark (c))
      char_class = CLASS_LETTER;
    G_GNUC_FALLTHROUGH;
  case LYCHEE_PRETOKENIZER_LLAMA3:
  case LYCHEE_PRETOKENIZER_QWEN2:
  case LYCHEE_PRETOKENIZER_SEED_CODER:
    n = llama3_push (self, c, char_class, n_bytes, ends);
    break;
  case LYCHEE_PRETOKENIZER_MINICPM5:
    n = minicpm5_push (self, c, char_class, n_bytes, ends);
    break;
  case LYCHEE_PRETOKENIZER_DEEPSEEK_CODER:
    n = deepseek_coder_push (self, c, char_class, n_bytes, ends);
    break;
  case LYCHEE_PRETOKENIZER_GPT4O:
  case LYCHEE_PRETOKENIZER_TEKKEN:
    n = gpt4o_push (self, c, classify_by_case (c), n_bytes, ends);
    self->capital = g_ascii_isupper ((char) MIN (c, 0x7f));
    break;
  }
  self->previous = c < 0x80 ? (gunichar) g_ascii_tolower (c) : c;
  return n;
}

guint
lychee_pretokenizer_finish (LycheePretokenizer *self, gsize ends[LYCHEE_PRETOKENIZER_MAX_ENDS])
{
  gboolean gpt2 =
      self->kind == LYCHEE_PRETOKENIZER_GPT2 || self->kind == LYCHEE_PRETOKENIZER_SMOLLM;
  guint n = 0;

  if (self->length == 0)
    return 0;
  if (gpt2 && self->state == STATE_CONTRACTION)
    ends[n++] = 1;
  if (self->kind >= LYCHEE_PRETOKENIZER_GPT4O &&
      (self->state == STATE_APOSTROPHE || self->state == STATE_CONTRACTION))
    ends[n++] = self->last;
  n += leave_capitals (self, ends + n);
  if (!gpt2 && self->state == STATE_SPACE && self->newline > 0 && self->newline < self->length)
    ends[n++] = self->newline;
  ends[n++] = self->length;
  self->state = STATE_START;
  self->length = 0;
  self->last = 0;
  self->newline = 0;
  return n;
}
