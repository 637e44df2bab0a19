/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "lychee-text-properties.h"

#include <string.h>
#include <unicode/ubrk.h>
#include <unicode/uchar.h>
#include <unicode/uscript.h>

/* How far back the word before a full stop is read; longer words are no abbreviations. */
#define MAX_ABBREVIATION 12
/* How many spaces and closing marks are read back over. */
#define MAX_BACK 64
/* Characters before and behind a place that ICU finds the words of. */
#define WORDS_BACK 16
#define WORDS_ON 12

gboolean
lychee_text_is_newline (gunichar c)
{
  return (c >= '\n' && c <= '\r') || c == 0x85 || c == 0x2028 || c == 0x2029;
}

gboolean
lychee_text_is_space (gunichar c)
{
  if (c < 0x80)
    return c == ' ' || (c >= '\t' && c <= '\r');
  if (c == 0xA0 || c == 0x2007 || c == 0x202F)
    return FALSE;
  return c == 0x200B || u_isUWhiteSpace (c);
}

/* Opens or closes, by language: German closes with what English opens with. */
static gboolean
is_quote (gunichar c)
{
  return c == '"' || c == '\'' || u_charType (c) == U_INITIAL_PUNCTUATION;
}

gboolean
lychee_text_is_decisive (gunichar c)
{
  return !lychee_text_is_space (c) && !is_quote (c);
}

static gboolean
is_closer (gunichar c)
{
  int type;

  if (is_quote (c))
    return TRUE;
  type = u_charType (c);
  return type == U_END_PUNCTUATION || type == U_FINAL_PUNCTUATION;
}

/* Marks of direction and joining that are not seen, such as RIGHT-TO-LEFT MARK. */
static gboolean
is_unseen (gunichar c)
{
  return c != 0x200B && c >= 0xAD && u_charType (c) == U_FORMAT_CHAR;
}

static gboolean
is_digit (gunichar c)
{
  return u_charType (c) == U_DECIMAL_DIGIT_NUMBER;
}

static gboolean
is_word (gunichar c)
{
  return c != 0 && (u_isalnum (c) || c == '_');
}

/* Full stops that are also decimal points and signs of abbreviation. */
static gboolean
is_stop (gunichar c)
{
  return c == '.' || c == 0x2024 || c == 0xFE52 || c == 0xFF0E;
}

static gboolean
is_terminal (gunichar c)
{
  /* The Greek question mark is no Sentence_Terminal, as it is canonically a semicolon; Khmer's
   * full stops are one in newer versions of Unicode only. */
  return c == 0x37E || c == 0x17D4 || c == 0x17D5 || u_hasBinaryProperty (c, UCHAR_S_TERM);
}

static gboolean
is_dash (gunichar c)
{
  return c >= 0x80 && c != 0x2010 && c != 0x2011 && c != 0x2212 &&
         u_hasBinaryProperty (c, UCHAR_DASH);
}

/* Commas, colons, semicolons of all scripts; dashes and hyphens are looked at apart. */
static gboolean
is_clause_mark (gunichar c)
{
  return c == 0x2026 || c == 0x22EF || u_hasBinaryProperty (c, UCHAR_TERMINAL_PUNCTUATION);
}

/* Scripts that put no space between words. */
static gboolean
is_unspaced (gunichar c)
{
  UErrorCode status = U_ZERO_ERROR;

  if (c < 0xE00)
    return FALSE;
  /* Sound marks, iteration marks and the like, which kana share. */
  if ((c >= 0x3005 && c <= 0x3007) || (c >= 0x3031 && c <= 0x3035) || c == 0x30FC || c == 0xFF70)
    return TRUE;
  switch (uscript_getScript (c, &status)) {
  case USCRIPT_HAN:
  case USCRIPT_HIRAGANA:
  case USCRIPT_KATAKANA:
  case USCRIPT_BOPOMOFO:
  case USCRIPT_YI:
  case USCRIPT_THAI:
  case USCRIPT_LAO:
  case USCRIPT_KHMER:
  case USCRIPT_MYANMAR:
  case USCRIPT_TIBETAN:
  case USCRIPT_TAI_LE:
  case USCRIPT_NEW_TAI_LUE:
  case USCRIPT_LANNA:
  case USCRIPT_TAI_VIET:
  case USCRIPT_JAVANESE:
  case USCRIPT_BALINESE:
    return TRUE;
  default:
    return FALSE;
  }
}

gboolean
lychee_text_is_unspaced (gunichar c)
{
  /* Its punctuation is wide, and brings its own space. */
  return is_unspaced (c) || (c >= 0x3001 && c <= 0x301F) || (c >= 0xFF01 && c <= 0xFF65);
}

gboolean
lychee_text_closes (gunichar c)
{
  int type = u_charType (c);

  return type == U_END_PUNCTUATION || type == U_FINAL_PUNCTUATION || c == '%' || c == 0xB0 ||
         is_terminal (c) || is_clause_mark (c);
}

gboolean
lychee_text_opens (gunichar c)
{
  int type = u_charType (c);

  return type == U_START_PUNCTUATION || type == U_INITIAL_PUNCTUATION ||
         type == U_CURRENCY_SYMBOL || c == 0xBF || c == 0xA1;
}

static gunichar
char_before (const char *text, gsize position)
{
  if (position == 0)
    return 0;
  return g_utf8_get_char (g_utf8_prev_char (text + position));
}

static gunichar
char_at (const char *text, gsize length, gsize position)
{
  return position < length ? g_utf8_get_char (text + position) : 0;
}

static gsize
step_back (const char *text, gsize position)
{
  return g_utf8_prev_char (text + position) - text;
}

static gsize
step_on (const char *text, gsize position)
{
  return position + g_utf8_skip[(guchar) text[position]];
}

/* Whether a quotation mark at @position, right behind a delimiter, closes: nothing that it could
 * open follows it. */
static gboolean
quote_closes (const char *text, gsize length, gsize position)
{
  gunichar c;

  do {
    position = step_on (text, position);
    c = char_at (text, length, position);
  } while (c != 0 && is_quote (c));
  return !is_word (c) && !is_unspaced (c);
}

/* Joins what is before it into one character. */
static gboolean
extends (gunichar c)
{
  if (c < 0x300)
    return FALSE;
  return c == 0x200D || u_hasBinaryProperty (c, UCHAR_GRAPHEME_EXTEND) ||
         u_charType (c) == U_COMBINING_SPACING_MARK;
}

static gboolean
is_regional (gunichar c)
{
  return c >= 0x1F1E6 && c <= 0x1F1FF;
}

/* Whether @before and @next (both not 0) make one character to a reader. */
static gboolean
is_inside (const char *text, gsize position, gunichar before, gunichar next)
{
  if (extends (next) || before == 0x200D || (before == '\r' && next == '\n'))
    return TRUE;
  if (is_regional (before) && is_regional (next)) {
    /* Flags are pairs: inside after an odd number of them. */
    gboolean odd = FALSE;

    for (guint i = 0; i < MAX_BACK && is_regional (char_before (text, position)); i++) {
      odd = !odd;
      position = step_back (text, position);
    }
    return odd;
  }
  return FALSE;
}

static void
close_words (gpointer words)
{
  ubrk_close (words);
}

/* Whether a word ends at @position, between two characters of scripts without spaces: ICU has
 * dictionaries of them. Without its data, everywhere. */
static gboolean
is_word_end (const char *text, gsize length, gsize position)
{
  static GPrivate words_of_thread = G_PRIVATE_INIT (close_words);
  UBreakIterator *words = g_private_get (&words_of_thread);
  UErrorCode status = U_ZERO_ERROR;
  UText window = UTEXT_INITIALIZER;
  gsize from = position, to = position;
  gboolean is_end;

  if (words == NULL) {
    words = ubrk_open (UBRK_WORD, "", NULL, 0, &status);
    if (U_FAILURE (status))
      return TRUE;
    g_private_set (&words_of_thread, words);
  }
  for (guint i = 0; i < WORDS_BACK && from > 0 && !lychee_text_is_space (char_before (text, from));
       i++)
    from = step_back (text, from);
  for (guint i = 0;
       i < WORDS_ON && to < length && !lychee_text_is_space (char_at (text, length, to)); i++)
    to = step_on (text, to);
  utext_openUTF8 (&window, text + from, to - from, &status);
  ubrk_setUText (words, &window, &status);
  is_end = U_FAILURE (status) || ubrk_isBoundary (words, position - from);
  utext_close (&window);
  return is_end;
}

/* A place between two characters where an unspaced script would allow a line to end. */
static gboolean
parts_unspaced (gunichar before, gunichar next)
{
  int type, line_break;

  if (!is_unspaced (before) && !is_unspaced (next))
    return FALSE;
  /* Vowels of Thai and Lao that are written before their consonant, and those behind it. */
  if (u_hasBinaryProperty (before, UCHAR_LOGICAL_ORDER_EXCEPTION))
    return FALSE;
  if (next == 0xE30 || next == 0xE32 || next == 0xE33 || next == 0xE45 || next == 0xEB0 ||
      next == 0xEB2 || next == 0xEB3)
    return FALSE;
  if (is_closer (next) || is_clause_mark (next) || is_dash (next))
    return FALSE;
  type = u_charType (before);
  if (type == U_START_PUNCTUATION || type == U_INITIAL_PUNCTUATION)
    return FALSE;
  line_break = u_getIntPropertyValue (next, UCHAR_LINE_BREAK);
  return line_break != U_LB_NONSTARTER && line_break != U_LB_CONDITIONAL_JAPANESE_STARTER;
}

/* Titles and the like that a name or number follows, in the languages where they end in a full
 * stop; short on purpose. Those that may well end a sentence ("etc.", "No.") are not among them. */
static const char *const abbreviations[] = { "Mr", "Mrs", "Ms", "Dr", "Prof", "St", "Mt", "Sr",
  "Jr", "Gen", "Sen", "Rep", "Gov", "Lt", "Col", "Capt", "Sgt", "Rev", "Hon", "vs", "Fig", "approx",
  "Hr", "Fr", "Nr", "bzw", "ca", "Abb", "Bd", "Mme", "Mlle", "Sra", "Dra", "Ing", "Sig", "Dott" };

/* What precedes a full stop at @position. */
typedef enum {
  BEFORE_STOP_WORD,
  BEFORE_STOP_ABBREVIATION,
  BEFORE_STOP_ORDINAL, /* one or two digits: "3." may be "third", or number a list */
} BeforeStop;

static BeforeStop
classify_before_stop (const char *text, gsize position)
{
  gsize start = position;
  guint n = 0, n_letters = 0, n_digits = 0, n_stops = 0, part = 0, longest = 0;
  gunichar c = char_before (text, position);

  if (is_stop (c)) /* "..." */
    return BEFORE_STOP_WORD;
  while (n < MAX_ABBREVIATION && start > 0) {
    c = char_before (text, start);
    if (is_stop (c)) {
      n_stops++;
      part = 0;
    } else if (is_digit (c)) {
      n_digits++;
    } else if (u_isalpha (c) && !is_unspaced (c)) {
      n_letters++;
      part++;
      longest = MAX (longest, part);
    } else if (!extends (c)) {
      break;
    }
    start = step_back (text, start);
    n++;
  }
  if (n == MAX_ABBREVIATION)
    return BEFORE_STOP_WORD;
  if (n_digits > 0)
    return n_letters == 0 && n_stops == 0 && n_digits <= 2 ? BEFORE_STOP_ORDINAL : BEFORE_STOP_WORD;
  /* "e.g", "U.S", "z.B"; and an initial, "J". */
  if (n_letters > 0 && longest == 1 && (n_stops > 0 || u_isupper (char_before (text, position))))
    return BEFORE_STOP_ABBREVIATION;
  if (n_stops == 0)
    for (guint i = 0; i < G_N_ELEMENTS (abbreviations); i++)
      if (strlen (abbreviations[i]) == position - start &&
          g_ascii_strncasecmp (abbreviations[i], text + start, position - start) == 0)
        return BEFORE_STOP_ABBREVIATION;
  return BEFORE_STOP_WORD;
}

/* What the delimiter that ends at @end is worth: any closing marks of it have been read over.
 * @next: what follows the closing marks at once; @later: what follows behind any space. */
static LycheeBoundary
classify_delimiter (const char *text, gsize end, gunichar next, gunichar later)
{
  gunichar mark = char_before (text, end);
  gsize start;
  gunichar before;
  gboolean joined;

  if (mark == 0)
    return LYCHEE_BOUNDARY_NONE;
  start = step_back (text, end);
  before = char_before (text, start);
  /* "3.14", "1,234", "12:30" in any digits. */
  if (is_digit (before) && is_digit (next))
    return LYCHEE_BOUNDARY_NONE;
  /* Marks that scripts with spaces use inside words, names and addresses too. */
  joined = is_word (next) && !is_unspaced (next) && !is_unspaced (before);

  if (is_stop (mark)) {
    if (joined)
      return LYCHEE_BOUNDARY_NONE;
    switch (classify_before_stop (text, start)) {
    case BEFORE_STOP_ABBREVIATION:
      return LYCHEE_BOUNDARY_NONE;
    case BEFORE_STOP_ORDINAL:
      return later != 0 ? LYCHEE_BOUNDARY_CLAUSE : LYCHEE_BOUNDARY_SENTENCE;
    default:
      /* As rule SB8 of UAX #29: a small letter goes on with the sentence. */
      return u_islower (later) ? LYCHEE_BOUNDARY_CLAUSE : LYCHEE_BOUNDARY_SENTENCE;
    }
  }
  if (is_terminal (mark))
    return mark < 0x80 && joined && !u_isupper (next) ? LYCHEE_BOUNDARY_NONE
                                                      : LYCHEE_BOUNDARY_SENTENCE;
  if (mark == ';' && u_getIntPropertyValue (before, UCHAR_SCRIPT) == USCRIPT_GREEK)
    return LYCHEE_BOUNDARY_SENTENCE;
  if (mark == 0x2026)
    return next == 0 || lychee_text_is_space (next)
               ? (u_islower (later) ? LYCHEE_BOUNDARY_CLAUSE : LYCHEE_BOUNDARY_SENTENCE)
               : LYCHEE_BOUNDARY_CLAUSE;
  /* A hyphen is a dash when it stands alone or is doubled; an en dash joins "10–20". */
  if (mark == '-') {
    gboolean alone = (before == 0 || lychee_text_is_space (before)) && lychee_text_is_space (next);

    return alone || before == '-' ? LYCHEE_BOUNDARY_CLAUSE : LYCHEE_BOUNDARY_NONE;
  }
  if (is_dash (mark))
    return mark == 0x2013 && is_word (before) && joined ? LYCHEE_BOUNDARY_NONE
                                                        : LYCHEE_BOUNDARY_CLAUSE;
  if (is_clause_mark (mark))
    return mark < 0x80 && joined ? LYCHEE_BOUNDARY_NONE : LYCHEE_BOUNDARY_CLAUSE;
  return LYCHEE_BOUNDARY_NONE;
}

/* Counts the empty lines' newlines: CR LF is one, a paragraph separator or form feed two. */
static guint
count_newlines (const char *text, gsize from, gsize to)
{
  guint n = 0;
  gunichar last = 0;

  while (from < to) {
    gunichar c = g_utf8_get_char (text + from);

    if (c == 0x2029 || c == '\f')
      n += 2;
    else if (lychee_text_is_newline (c) && !(c == '\n' && last == '\r'))
      n++;
    last = c;
    from = step_on (text, from);
  }
  return n;
}

LycheeTextPlace
lychee_text_examine (const char *text, gsize length, gsize position, gsize next_place)
{
  LycheeTextPlace place = { LYCHEE_BOUNDARY_NONE, LYCHEE_TEXT_JOINT_NONE, FALSE };
  gsize word_end = position, delimiter_end, later_at = position;
  gunichar before = char_before (text, position), next = char_at (text, length, position);
  gunichar direct, later, last;
  guint n_newlines;
  gboolean spaced;

  if (position == 0)
    return place;
  if (next != 0 && is_inside (text, position, before, next)) {
    place.joint = LYCHEE_TEXT_JOINT_CHARACTER;
    return place;
  }

  /* The space around the place, and the words (or ends) beyond it. */
  for (guint i = 0; i < MAX_BACK && word_end > 0; i++) {
    if (!lychee_text_is_space (char_before (text, word_end)))
      break;
    word_end = step_back (text, word_end);
  }
  while (later_at < length && lychee_text_is_space (g_utf8_get_char (text + later_at)))
    later_at = step_on (text, later_at);
  later = char_at (text, length, later_at);
  last = char_before (text, word_end);
  spaced = word_end < position || later_at > position;
  place.after_space = word_end < position && !lychee_text_is_newline (before);

  /* A newline ends at least a sentence; it belongs to what is before it, unless its token holds
   * the next words too. */
  if (next_place > later_at || later_at == position)
    n_newlines = count_newlines (text, word_end, later_at);
  else
    n_newlines = count_newlines (text, position, later_at) > 0
                     ? 0
                     : count_newlines (text, word_end, position);
  if (n_newlines >= 2 && last != 0) {
    place.boundary = LYCHEE_BOUNDARY_PARAGRAPH;
    return place;
  }
  if (n_newlines == 1) {
    place.boundary = LYCHEE_BOUNDARY_SENTENCE;
    return place;
  }

  /* The delimiter goes on: "?!", ".)", ",«". */
  if (!spaced && next != 0) {
    if (is_unseen (next) || (is_quote (next) && quote_closes (text, length, position)) ||
        (!is_quote (next) && is_closer (next)) || is_clause_mark (next) ||
        (next == '-' && before == '-') || (is_dash (next) && is_dash (before))) {
      place.joint = LYCHEE_TEXT_JOINT_MARK;
      return place;
    }
  }
  /* "Ça va ?": the mark behind the space belongs to what is before it. */
  if (later_at > position && later < 0x80 && later != 0 && strchr ("?!:;,", (int) later) != NULL) {
    place.joint = LYCHEE_TEXT_JOINT_MARK;
    return place;
  }

  delimiter_end = word_end;
  for (guint i = 0; i < MAX_BACK && delimiter_end > 0; i++) {
    gunichar c = char_before (text, delimiter_end);

    if (!is_closer (c) && !is_unseen (c))
      break;
    delimiter_end = step_back (text, delimiter_end);
  }
  direct = spaced ? ' ' : next;
  place.boundary = classify_delimiter (text, delimiter_end, direct, later);
  if (place.boundary != LYCHEE_BOUNDARY_NONE)
    return place;

  if (spaced)
    /* Where words are not spaced, a space is a pause. */
    place.boundary =
        is_unspaced (last) && is_unspaced (later) ? LYCHEE_BOUNDARY_CLAUSE : LYCHEE_BOUNDARY_WORD;
  else if (next == 0 ||
           (parts_unspaced (before, next) && (!is_unspaced (before) || !is_unspaced (next) ||
                                                 is_word_end (text, length, position))))
    place.boundary = LYCHEE_BOUNDARY_WORD;
  return place;
}
