/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* What counts as saying the same again and again, and what an answer may well repeat. */

#include "lychee-repeats.h"

#include <string.h>

/* The token after which it is enough, read off the description of lychee-repeats.h; 0: none. */
static guint
find_plainly (const gint32 *ids, const gboolean *words, guint n)
{
  for (guint end = 1; end <= n; end++) {
    guint length = 0, n_words = 0, times = 0;

    for (guint period = 1; period <= LYCHEE_REPEATS_MAX_PERIOD; period++) {
      guint same = MAX (2 * period, LYCHEE_REPEATS_CIRCLE), i = 0;

      while (i < same && end > i + period && ids[end - 1 - i] == ids[end - 1 - i - period])
        i++;
      if (i == same)
        return end;
    }
    while (length < end && n_words < LYCHEE_REPEATS_WORDS)
      n_words += words[end - 1 - length++];
    for (guint to = end; n_words == LYCHEE_REPEATS_WORDS && to >= length;) {
      gboolean same = memcmp (ids + to - length, ids + end - length, length * sizeof *ids) == 0;

      times += same;
      to -= same ? length : 1;
    }
    if (times >= 3)
      return end;
  }
  return 0;
}

static guint
find (const gint32 *ids, const gboolean *words, guint n)
{
  g_autoptr (LycheeRepeats) repeats = lychee_repeats_new ();

  for (guint i = 0; i < n; i++)
    if (lychee_repeats_note (repeats, ids[i], words[i] ? " ön" : i % 2 ? "" : " 12,|"))
      return i + 1;
  return 0;
}

/* Random ids with pieces of what was before in them, long and short, once and often. */
static void
test_plainly (void)
{
  guint n_found = 0, n_not = 0;

  for (guint round = 0; round < 600; round++) {
    gint32 ids[400];
    gboolean words[400];
    guint n = 0, n_ids = g_test_rand_int_range (1, 60), found;
    guint n_all = g_test_rand_int_range (60, G_N_ELEMENTS (ids));
    gboolean structured = g_test_rand_bit ();

    while (n < n_all) {
      guint from = n > 0 ? g_test_rand_int_range (0, n) : 0, times = g_test_rand_int_range (1, 3);
      guint length = MIN (n - from, (guint) g_test_rand_int_range (1, 40));

      for (guint i = 0; n < n_all && i < times * length; i++)
        ids[n++] = ids[from + i % length];
      for (guint i = g_test_rand_int_range (0, 9); n < n_all && i > 0; i--)
        ids[n++] = g_test_rand_int_range (0, n_ids);
      if (round % 3 == 0)
        n_ids += 5;
    }
    for (guint i = 0; i < n; i++)
      words[i] = structured ? ids[i] % 3 == 0 : ids[i] % 8 != 0;
    found = find_plainly (ids, words, n);
    g_assert_cmpuint (find (ids, words, n), ==, found);
    *(found ? &n_found : &n_not) += 1;
  }
  g_test_message ("%u with repeats, %u without", n_found, n_not);
  g_assert_cmpuint (n_found, >, 50);
  g_assert_cmpuint (n_not, >, 50);
}

/* Words with the space before them, each other character, and in scripts without spaces each
 * character, are tokens: as most vocabularies have it. */
static guint
count_until_enough (const char *text)
{
  g_autoptr (LycheeRepeats) repeats = lychee_repeats_new ();
  guint n = 0;

  for (const char *at = text; *at;) {
    const char *end = at + (*at == ' ' && g_ascii_isalpha (at[1]));
    g_autofree char *token = NULL;

    if (g_ascii_isalpha (*end))
      while (g_ascii_isalpha (*end))
        end++;
    else
      end = g_utf8_next_char (at);
    token = g_strndup (at, end - at);
    at = end;
    n++;
    if (lychee_repeats_note (repeats, g_str_hash (token), token))
      return n;
  }
  return 0;
}

#define SENTENCE                                                                                   \
  " The animals that live in the pools must hold on when the tide goes out, and they must not "    \
  "dry "                                                                                           \
  "out before the sea comes back."
#define CLAUSE " The animals that live in the pools must hold on."
#define DONE                                                                                       \
  "{\"type\": \"decision\", \"speaker\": \"Ann Example, chair of the council\", \"status\": "      \
  "\"open\", \"due\": null, \"text\": \""
#define CHAPTER " - The chair opens the discussion about the "

static const struct {
  const char *name, *text;
  gboolean enough;
} texts[] = {
  { "sentence/thrice", SENTENCE " Snails close." SENTENCE "\n\nCrabs hide." SENTENCE, TRUE },
  { "sentence/in-a-row", SENTENCE SENTENCE SENTENCE, TRUE },
  { "sentence/twice", SENTENCE " Snails close." SENTENCE "\n\nCrabs hide.", FALSE },
  { "clause", CLAUSE " Snails close." CLAUSE " Crabs hide." CLAUSE " Fish swim." CLAUSE, FALSE },
  { "json", DONE "Mend it.\"}\n" DONE "Sell it.\"}\n" DONE "Paint the door.\"}\n" DONE "Wait.\"}\n",
      FALSE },
  { "chapters",
      "00:00:01.000" CHAPTER "pump.\n00:04:12.000" CHAPTER "gate.\n00:31:00.500" CHAPTER
      "hedge.\n01:02:03.000" CHAPTER "bees.\n",
      FALSE },
  { "table",
      "| who | what | when |\n|---|---|---|\n| Ann | mends | May |\n| Bo | mends | May |\n"
      "| Ann | digs | May |\n| Cy | mends | May |\n| Bo | digs | May |\n| Dee | mends | May |\n",
      FALSE },
  { "numbers", "1, 2, 3, 4, 5, 6, 7. Or 1, 2, 3, 4, 5, 6, 7, yes 1, 2, 3, 4, 5, 6, 7, 8.", FALSE },
  { "circle/short",
      "no no no no no no no no no no no no no no no no no no no no no no no no no no "
      "no no no no no no no no no",
      TRUE },
  { "circle/numbers", "1, 2. 1, 2. 1, 2. 1, 2. 1, 2. 1, 2. 1, 2. 1, 2.", TRUE },
  { "name",
      "国際連合教育科学文化機関は来た。国際連合教育科学文化機関は見た。国際連合教育科学文化機関は勝"
      "った。",
      FALSE },
  { "characters",
      "池の生き物は潮が引くときにしっかりつかまらなければならない。貝は閉じる。"
      "池の生き物は潮が引くときにしっかりつかまらなければならない。蟹は隠れる。"
      "池の生き物は潮が引くときにしっかりつかまらなければならない。",
      TRUE },
  { "nothing", "", FALSE },
};

static void
test_text (gconstpointer data)
{
  guint i = GPOINTER_TO_UINT (data);

  g_assert_cmpint (count_until_enough (texts[i].text) > 0, ==, texts[i].enough);
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, NULL);
  g_test_add_func ("/repeats/plainly", test_plainly);
  for (guint i = 0; i < G_N_ELEMENTS (texts); i++) {
    g_autofree char *path = g_strconcat ("/repeats/", texts[i].name, NULL);

    g_test_add_data_func (path, GUINT_TO_POINTER (i), test_text);
  }
  return g_test_run ();
}
