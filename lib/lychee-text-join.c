/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "lychee-text-join.h"

#include "lychee-text-properties.h"

#include <string.h>

/* A piece of so many words is a line or a sentence, and not a word that somebody gave by itself. */
#define LINE_WORDS 3
/* And so is a longer one in bytes. */
#define LINE_BYTES 96

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
