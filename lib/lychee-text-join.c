/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "lychee-text-join.h"

#include "lychee-text-properties.h"

#include <string.h>

/* A piece of so many words is a line or a sentence, and not a word that somebody gave by itself. */
#define LINE_WORDS 3
/* And so is a longer one in bytes. */
#define LINE_BYTES 96
/* Of a piece, what is kept to join the next one to it. */
#define KEPT_BYTES 256

/* Whether a piece is so short that words seem to be given one by one. Where words are not spaced,
 * ICU tells them apart. */
static gboolean
is_short (const char *text, gsize length)
{
  guint n_words = 0;
  gboolean in_word = FALSE;

  if (length > LINE_BYTES)
    return FALSE;
  for (gsize at = 0; at < length; at += g_utf8_skip[(guchar) text[at]]) {
    gunichar c = g_utf8_get_char (text + at);
    gboolean letter = g_unichar_isalnum (c) || g_unichar_ismark (c);

    if (lychee_text_is_space (c))
      in_word = FALSE;
    else if (letter && (!in_word || (lychee_text_is_unspaced (c) && at > 0 &&
                                        lychee_text_examine (text, length, at, at).boundary !=
                                            LYCHEE_BOUNDARY_NONE))) {
      n_words++;
      in_word = TRUE;
    }
  }
  return n_words < LINE_WORDS;
}

/* Whether a space is missing between words that end and begin so. */
static gboolean
needs_space (gunichar last, const char *after, gsize length)
{
  gunichar first = g_utf8_get_char (after);

  if (lychee_text_is_unspaced (last) || lychee_text_is_unspaced (first) ||
      lychee_text_opens (last) || lychee_text_closes (first))
    return FALSE;
  /* "'s", "’ll", "n't", as some recognisers part them from their word. */
  if ((first == '\'' || first == 0x2019) && length > (gsize) g_utf8_skip[(guchar) *after])
    return FALSE;
  return !(length == 3 && memcmp (after, "n't", 3) == 0);
}

/* The last character, (gunichar) -2 where it is not whole, (gunichar) -1 where there is none. */
static gunichar
last_character (const char *text, gsize length)
{
  for (gsize n = 1; n <= MIN (length, 4); n++)
    if (((guchar) text[length - n] & 0xC0) != 0x80)
      return g_utf8_get_char_validated (text + length - n, n);
  return (gunichar) -1;
}

/**
 * lychee_text_get_separator:
 * @before: (array length=before_length): a piece of a transcript
 * @before_length: its bytes
 * @after: (array length=after_length): the piece that follows
 * @after_length: its bytes
 *
 * Lines and sentences are parted by newlines. Words that come one by one are joined as their script
 * has it: by a space, but nothing in Chinese, Japanese, Thai and other scripts without spaces,
 * nothing before a closing mark and nothing behind an opening one.
 *
 * A character that is cut between the pieces is put together.
 *
 * Returns: (transfer none): "", " " or "\n"
 */
const char *
lychee_text_get_separator (
    const char *before, gsize before_length, const char *after, gsize after_length)
{
  gunichar last, first;

  if (before_length == 0 || after_length == 0)
    return "";
  last = last_character (before, before_length);
  first = g_utf8_get_char_validated (after, after_length);
  if (last == (gunichar) -2 || ((guchar) *after & 0xC0) == 0x80)
    return "";
  if (!g_utf8_validate_len (before, before_length, NULL) ||
      !g_utf8_validate_len (after, after_length, NULL))
    return "\n";
  if (lychee_text_is_space (last) || lychee_text_is_space (first))
    return "";
  if (!is_short (before, before_length) || !is_short (after, after_length))
    return lychee_text_closes (first) && is_short (after, after_length) ? "" : "\n";
  return needs_space (last, after, after_length) ? " " : "";
}

/**
 * lychee_text_names_speaker:
 * @text: (array length=length): what is said
 * @length: its bytes
 * @speaker: who says it
 *
 * Returns: whether @text begins with @speaker and a colon, or with the mark of a speaker whose name
 * is not known
 */
gboolean
lychee_text_names_speaker (const char *text, gsize length, const char *speaker)
{
  gsize n = strlen (speaker);

  if (strcmp (speaker, ">>") == 0)
    return length >= n && memcmp (text, speaker, n) == 0;
  return n > 0 && length > n && memcmp (text, speaker, n) == 0 &&
         (text[n] == ':' || (length >= n + 3 && memcmp (text + n, "\uFF1A", 3) == 0));
}

struct _LycheeTextJoiner {
  GString *piece;   /* the end of the last one, without a label */
  char tail[4];     /* the last bytes of the running text: a character may come in four pieces */
  gsize n_tail;     /* how many they are */
  char *last_named; /* who speaks, "" for nobody known */
};

LycheeTextJoiner *
lychee_text_joiner_new (void)
{
  LycheeTextJoiner *joiner = g_new0 (LycheeTextJoiner, 1);

  joiner->piece = g_string_new (NULL);
  joiner->last_named = g_strdup ("");
  return joiner;
}

void
lychee_text_joiner_free (LycheeTextJoiner *joiner)
{
  g_string_free (joiner->piece, TRUE);
  g_free (joiner->last_named);
  g_free (joiner);
}

void
lychee_text_joiner_reset (LycheeTextJoiner *joiner)
{
  g_string_truncate (joiner->piece, 0);
  joiner->n_tail = 0;
  g_free (joiner->last_named);
  joiner->last_named = g_strdup ("");
}

/* Keeps what the next piece is joined to. */
static void
keep_piece (LycheeTextJoiner *joiner, const char *from, gsize length)
{
  gsize n = MIN (length, sizeof joiner->tail), had = MIN (joiner->n_tail, sizeof joiner->tail - n);

  memmove (joiner->tail, joiner->tail + joiner->n_tail - had, had);
  memcpy (joiner->tail + had, from + length - n, n);
  joiner->n_tail = had + n;
  while (length > KEPT_BYTES || (length > 0 && (*from & 0xC0) == 0x80)) {
    from++;
    length--;
  }
  g_string_truncate (joiner->piece, 0);
  g_string_append_len (joiner->piece, from, length);
}

const char *
lychee_text_joiner_add (LycheeTextJoiner *joiner, GString *text, const char *speaker,
    gboolean timed, gboolean labels, const char *separator)
{
  gunichar last = last_character (joiner->tail, joiner->n_tail), first;
  gboolean turn;
  const char *between = "";
  gsize label = 0;

  if (!speaker)
    speaker = "";
  turn = !g_str_equal (speaker, joiner->last_named);
  if (turn) {
    g_free (joiner->last_named);
    joiner->last_named = g_strdup (speaker);
    if (labels && *speaker && !lychee_text_names_speaker (text->str, text->len, speaker)) {
      g_string_prepend (text, ": ");
      g_string_prepend (text, speaker);
      label = strlen (speaker) + 2;
    }
  }
  first = g_utf8_get_char_validated (text->str, text->len);
  if ((timed || turn) && joiner->n_tail > 0 && last != (gunichar) -2 &&
      !(last != (gunichar) -1 && g_unichar_isspace (last)) &&
      !(first < (gunichar) -2 && g_unichar_isspace (first)))
    between = separator ? separator
              : turn    ? "\n"
                        : lychee_text_get_separator (
                              joiner->piece->str, joiner->piece->len, text->str, text->len);
  keep_piece (joiner, text->str + label, text->len - label);
  return between;
}
