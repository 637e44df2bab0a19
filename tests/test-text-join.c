/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "lychee-text-join.h"

#include <string.h>

/* Pieces parted by '|', and what they are joined to. */
typedef struct {
  const char *name;
  const char *pieces;
  const char *joined;
} JoinCase;

static const JoinCase join_cases[] = {
  { "english/words", "the|cat|sat", "the cat sat" },
  { "english/marks", "yes|,|we|know|.|why|?", "yes, we know. why?" },
  { "english/mark-after-line", "so we went home again|.|And then",
      "so we went home again. And then" },
  { "english/clitic", "it|'s|what|we|'ll|do|n't", "it's what we'll don't" },
  { "english/curly-clitic", "it|’s", "it’s" },
  { "english/quote", "she said|'|no|'", "she said ' no '" },
  { "english/brackets", "(|the|end|)", "(the end)" },
  { "english/curly-quotes", "“|the|end|”", "“the end”" },
  { "english/money", "$|5|and|20|%", "$5 and 20%" },
  { "english/lines", "we went home early|and then we slept",
      "we went home early\nand then we slept" },
  { "english/short-after-line", "did you really say that|no", "did you really say that\nno" },
  { "english/short-before-line", "no|I did not say", "no\nI did not say" },
  { "english/two-words", "New York|and|San Francisco", "New York and San Francisco" },
  { "english/long-word", "a|Donaudampfschifffahrtsgesellschaft",
      "a Donaudampfschifffahrtsgesellschaft" },
  { "space-there", "the |cat| sat", "the cat sat" },
  { "newline-there", "the cat sat down\n|on the mat again", "the cat sat down\non the mat again" },
  { "wide-space-there", "今日\u3000|晴れ", "今日\u3000晴れ" },
  { "no-break-space", "the\u00A0|cat", "the\u00A0 cat" },
  { "spanish", "¿|qué|?", "¿qué?" },
  { "german", "das|Haus|,|das", "das Haus, das" },
  { "korean", "나는|학교|에|간다|.", "나는 학교 에 간다." },
  { "arabic", "هل|أنت|هنا|؟", "هل أنت هنا؟" },
  { "hindi", "मैं|घर|जाता|हूँ|।", "मैं घर जाता हूँ।" },
  { "chinese/words", "我们|明天|去|公园|。", "我们明天去公园。" },
  { "chinese/lines", "我们明天早上去学校开会|老师说今年的考试比较简单",
      "我们明天早上去学校开会\n老师说今年的考试比较简单" },
  { "chinese/latin", "我|用|Python|写|程序", "我用Python写程序" },
  { "chinese/number", "2024|年", "2024年" },
  { "japanese/words", "今日|は|東京|へ|行きます|。", "今日は東京へ行きます。" },
  { "japanese/brackets", "「|はい|」|と", "「はい」と" },
  { "japanese/lines", "今日は東京へ行きます。|明日は大阪へ行きます。",
      "今日は東京へ行きます。\n明日は大阪へ行きます。" },
  { "thai/words", "เรา|ไป|ตลาด", "เราไปตลาด" },
  { "cut-character", "caf\xc3|\xa9", "café" },
  { "not-utf8", "caf\xe9 noir|et th\xe9", "caf\xe9 noir\net th\xe9" },
  { "empty", "|a||b|", "ab" },
};

static void
test_join (gconstpointer data)
{
  const JoinCase *c = data;
  g_auto (GStrv) pieces = g_strsplit (c->pieces, "|", -1);
  g_autoptr (GString) joined = g_string_new (pieces[0]);

  for (guint i = 1; pieces[i] != NULL; i++) {
    g_string_append (joined, lychee_text_get_separator (pieces[i - 1], strlen (pieces[i - 1]),
                                 pieces[i], strlen (pieces[i])));
    g_string_append (joined, pieces[i]);
  }
  g_assert_cmpstr (joined->str, ==, c->joined);
}

static void
test_names_speaker (void)
{
  static const struct {
    const char *text, *speaker;
    gboolean names;
  } cases[] = {
    { "Ann: yes", "Ann", TRUE },
    { "Ann:", "Ann", TRUE },
    { "Ann", "Ann", FALSE },
    { "Anna: yes", "Ann", FALSE },
    { "Ann yes", "Ann", FALSE },
    { "ann: yes", "Ann", FALSE },
    { "安：是", "安", TRUE },
    { ": yes", "", FALSE },
    { "", "Ann", FALSE },
  };

  for (guint i = 0; i < G_N_ELEMENTS (cases); i++)
    g_assert_cmpint (
        lychee_text_names_speaker (cases[i].text, strlen (cases[i].text), cases[i].speaker), ==,
        cases[i].names);
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, NULL);
  g_test_set_nonfatal_assertions ();
  for (guint i = 0; i < G_N_ELEMENTS (join_cases); i++) {
    g_autofree char *name = g_strconcat ("/text/join/", join_cases[i].name, NULL);

    g_test_add_data_func (name, &join_cases[i], test_join);
  }
  g_test_add_func ("/text/names-speaker", test_names_speaker);
  return g_test_run ();
}
