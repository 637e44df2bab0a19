/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The cutting of text into words: tables by hand, and random texts against the published regular
 * expressions themselves, run by GLib's regex engine. */
#include "lychee-pretokenizer.h"
#include <string.h>
#include <unicode/uchar.h>

typedef struct {
  const char *name;
  LycheePretokenizerKind kind;
  const char *words; /* with a | where it is to be cut */
} Case;

#define GPT2 LYCHEE_PRETOKENIZER_GPT2
#define SMOLLM LYCHEE_PRETOKENIZER_SMOLLM
#define LLAMA3 LYCHEE_PRETOKENIZER_LLAMA3
#define QWEN2 LYCHEE_PRETOKENIZER_QWEN2
#define QWEN35 LYCHEE_PRETOKENIZER_QWEN35
#define SEED_CODER LYCHEE_PRETOKENIZER_SEED_CODER
#define MINICPM5 LYCHEE_PRETOKENIZER_MINICPM5
#define DEEPSEEK_CODER LYCHEE_PRETOKENIZER_DEEPSEEK_CODER
#define GPT4O LYCHEE_PRETOKENIZER_GPT4O
#define TEKKEN LYCHEE_PRETOKENIZER_TEKKEN

static const Case cases[] = {
  { "gpt2/empty", GPT2, "" },
  { "gpt2/sentence", GPT2, "Hello|,| world|!" },
  { "gpt2/contractions", GPT2, "I|'m| sure| they|'re| what|'s|'ll|'ve|'d|'t" },
  { "gpt2/no-contraction", GPT2, "YOU|'|RE| o|'|rs|'|vx|'|lel|'|r" },
  { "gpt2/contraction-after-space", GPT2, " '|s| '|re" },
  { "gpt2/contraction-after-punctuation", GPT2, "!'|s" },
  { "gpt2/numbers", GPT2, "in| 2026| 12345|a|1" },
  { "gpt2/spaces-before-word", GPT2, "a|   | b" },
  { "gpt2/spaces-at-end", GPT2, "a|   " },
  { "gpt2/tab-before-word", GPT2, "a|\t|b" },
  { "gpt2/spaces-and-tab", GPT2, "a|  |\t|b" },
  { "gpt2/newlines", GPT2, "a|\n|\n|b|\r|\n|c" },
  { "gpt2/no-break-space", GPT2, "x|\u00a0|y" },
  { "gpt2/accents", GPT2, "na\u00efve| caf\u00e9" },
  { "gpt2/combining-mark-is-no-letter", GPT2, "e|\u0301|a" },
  { "gpt2/other-scripts", GPT2, "\u65e5\u672c\u8a9e|\u3002|\u0645\u0631\u062d\u0628\u0627|\u060c" },
  { "gpt2/apostrophe-run", GPT2, "'''" },
  { "gpt2/apostrophe-at-end", GPT2, "a|'" },
  { "gpt2/apostrophe-number", GPT2, "'|90|s" },
  { "smollm/digits", SMOLLM, "was| |1|,|2|3|4|.|5" },
  { "smollm/spaces-before-digit", SMOLLM, "a|   |1" },
  { "smollm/spaces-before-word", SMOLLM, "1|  | a" },
  { "smollm/half", SMOLLM, " |\u00bd| x" },
  { "smollm/apostrophe-digit", SMOLLM, "'|r|1|'s" },
  { "smollm/newline-digit", SMOLLM, "\n \n|7" },
  { "llama3/contractions", LLAMA3, "I|'M| you|'RE|'ll|'S|'Ve|'d" },
  { "llama3/apostrophe-word", LLAMA3, "O|'Brien|'s| '|rx|'rx|'r" },
  { "llama3/prefix", LLAMA3, "(a|,b| c|\td|\u00a0e|$f" },
  { "llama3/no-prefix", LLAMA3, "((|a| (|b|\n|c|!!|d" },
  { "llama3/numbers", LLAMA3, "123|456|7| |89|a|1\u00bd" },
  { "llama3/punctuation-newlines", LLAMA3, "a|,\n\n|b| !\r\n| ,|1" },
  { "llama3/newlines", LLAMA3, "a|\n\n|b| \n \n|  |\tc" },
  { "llama3/spaces", LLAMA3, "a|   | b|  | |1|  | !" },
  { "llama3/newline-space-number", LLAMA3, "\n| | |1" },
  { "llama3/spaces-at-end", LLAMA3, "a|\n|  " },
  { "llama3/tab-punctuation", LLAMA3, "\t|!| |\t|!" },
  { "llama3/apostrophe-newline", LLAMA3, "'\n|'\r\n|a" },
  { "qwen2/numbers", QWEN2, "in| |2|0|2|6" },
  { "qwen2/newline-space-number", QWEN2, "\n| | |1" },
  { "qwen2/mark-ends-word", QWEN2, "\u0939|\u093f\u0928" },
  { "gpt4o/sentence", GPT4O, "Hello|,| world|!\n| Bye" },
  { "gpt4o/case", GPT4O, "get|Name|HTTPServer| i|Phone|ABC| ABCdef|DEF" },
  { "gpt4o/contractions", GPT4O, "don't| I'LL|you'RE|x|'x're| '|s" },
  { "gpt4o/no-contraction", GPT4O, "O|'Brien's|'rx| a|'r|A'lL| b|'" },
  { "gpt4o/without-case", GPT4O, "\u65e5\u672c|AB| \u65e5AB\u672cA\u65e5ab|A" },
  { "gpt4o/marks", GPT4O, "e\u0301|A|!\u0301|!!\u0301\u0301|a| \u0301|A" },
  { "gpt4o/numbers", GPT4O, "123|456|7| |89|a|1\u00bd" },
  { "gpt4o/slashes", GPT4O, "a|//\n/\n|b| /|b|!\n/|b|\n|/b" },
  { "gpt4o/spaces", GPT4O, "a|   | b|  | |1|  | !|\t|!|\tA" },
  { "tekken/no-contraction", TEKKEN, "don|'t| I|'LL|1|2|3" },
  { "tekken/case", TEKKEN, "get|Name|HTTPServer\u65e5\u672c|AB\u65e5|AB" },
  { "qwen35/mark-in-word", QWEN35, "\u0939\u093f\u0928| \u0301|!" },
  { "seed-coder/newlines", SEED_CODER, "a|,|\n\n|b| !|\r\n|'|\n|1|2" },
  { "minicpm5/numbers", MINICPM5, "in| |202|6|a|1\u00bd" },
  { "minicpm5/spaces-before-number", MINICPM5, "a|   |1|   | b|\n|  |7" },
  { "minicpm5/words", MINICPM5, "I|'M|(a|,\n\n|b|'r|1|'s" },
  { "deepseek-coder/sentence", DEEPSEEK_CODER, "Hello|,| world|!|\n|\r| Bye" },
  { "deepseek-coder/spaces", DEEPSEEK_CODER, "a|  | b|\t.|  | ...| |1|2|   |\n| x|  " },
  { "deepseek-coder/rest", DEEPSEEK_CODER, "a| +| b|$|x| |1|= |2|  ~|e|\u0301|a" },
  { "deepseek-coder/eastern", DEEPSEEK_CODER,
      "ab|\u65e5\u672c|c| |\uc5ec\uae30|\u3002\u300c|.| |\u3001|\u3000\u65e5| "
      "|\u0939|\u093f|\u0967" },
};

/* The words of @text, with a | between them. */
static char *
cut (LycheePretokenizerKind kind, const char *text, gsize length)
{
  LycheePretokenizer pretokenizer = { .kind = kind };
  GString *words = g_string_new (NULL);
  gsize start = 0, pending = 0;

  for (const char *p = text; p <= text + length;) {
    gsize ends[LYCHEE_PRETOKENIZER_MAX_ENDS];
    gboolean at_end = p == text + length;
    guint n_bytes = at_end ? 0 : g_utf8_skip[(guint8) *p];
    guint n = at_end ? lychee_pretokenizer_finish (&pretokenizer, ends)
                     : lychee_pretokenizer_push (&pretokenizer, g_utf8_get_char (p), n_bytes, ends);
    g_assert_cmpuint (n, <=, LYCHEE_PRETOKENIZER_MAX_ENDS);
    pending += n_bytes;
    for (guint i = 0; i < n; i++) {
      gsize from = i == 0 ? 0 : ends[i - 1];
      g_assert_cmpuint (ends[i], >, from);
      g_assert_cmpuint (ends[i], <=, pending);
      if (words->len > 0)
        g_string_append_c (words, '|');
      g_string_append_len (words, text + start + from, ends[i] - from);
    }
    if (n > 0) {
      start += ends[n - 1];
      pending -= ends[n - 1];
    }
    g_assert_cmpuint (pretokenizer.length, ==, pending);
    if (at_end)
      break;
    p += n_bytes;
  }
  g_assert_cmpuint (start, ==, length);
  return g_string_free (words, FALSE);
}

static void
test_case (gconstpointer data)
{
  const Case *c = data;
  g_auto (GStrv) words = g_strsplit (c->words, "|", -1);
  g_autofree char *text = g_strjoinv ("", words);
  g_autofree char *found = cut (c->kind, text, strlen (text));

  g_assert_cmpstr (found, ==, c->words);
}

/* A word is given out with the character that settles it, not later. */
static void
test_prompt (void)
{
  static const struct {
    LycheePretokenizerKind kind;
    const char *text;
    gsize first_end;
  } prompt[] = {
    { GPT2, "'s", 2 },
    { GPT2, "'ll", 3 },
    { GPT2, "a ", 1 },
    { SMOLLM, "7", 1 },
    { LLAMA3, "123", 3 },
    { QWEN2, "7", 1 },
    { LLAMA3, "!\na", 2 },
  };

  for (guint i = 0; i < G_N_ELEMENTS (prompt); i++) {
    LycheePretokenizer pretokenizer = { .kind = prompt[i].kind };
    gsize ends[LYCHEE_PRETOKENIZER_MAX_ENDS];
    gsize length = strlen (prompt[i].text);
    for (gsize j = 0; j + 1 < length; j++)
      g_assert_cmpuint (
          lychee_pretokenizer_push (&pretokenizer, prompt[i].text[j], 1, ends), ==, 0);
    g_assert_cmpuint (
        lychee_pretokenizer_push (&pretokenizer, prompt[i].text[length - 1], 1, ends), ==, 1);
    g_assert_cmpuint (ends[0], ==, prompt[i].first_end);
  }
}

/* Every match of @pattern in @text up to @length, one after the other. */
static void
append_matches (GString *words, const char *pattern, const char *text, gsize length)
{
  g_autoptr (GError) error = NULL;
  g_autoptr (GRegex) regex = g_regex_new (pattern, 0, 0, &error);
  g_assert_no_error (error);
  gsize done = 0;

  while (done < length) {
    g_autoptr (GMatchInfo) match = NULL;
    int from, to;
    g_assert_true (g_regex_match_full (
        regex, text + done, length - done, 0, G_REGEX_MATCH_ANCHORED, &match, &error));
    g_assert_no_error (error);
    g_assert_true (g_match_info_fetch_pos (match, 0, &from, &to));
    g_assert_cmpint (from, ==, 0);
    g_assert_cmpint (to, >, 0);
    if (words->len > 0)
      g_string_append_c (words, '|');
    g_string_append_len (words, text + done, to);
    done += to;
  }
}

/* The expressions as published; U+0085 is white space to Unicode but not to this engine. */
#define SPACE "\\s\\x{85}"
#define GPT2_REGEX                                                                                 \
  "(*UTF)(*UCP)'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^" SPACE "\\p{L}\\p{N}]+|[" SPACE    \
  "]+(?![^" SPACE "])|[" SPACE "]+"
#define LLAMA3_REGEX(letter, number, newlines)                                                     \
  "(*UTF)(*UCP)'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]|[^\\r\\n\\p{L}\\p{N}]?"       \
  "[" letter "]+|" number "| ?[^" SPACE letter "\\p{N}]+" newlines "|[" SPACE                      \
  "]*[\\r\\n]+|[" SPACE "]+(?![^" SPACE "])|[" SPACE "]+"

#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define GPT4O_REGEX(end, number)                                                                   \
  "(*UTF)(*UCP)[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+" end "|[^\\r\\n\\p{L}\\p{N}]?" UPPER     \
  "+" LOWER "*" end "|" number "| ?[^" SPACE "\\p{L}\\p{N}]+[\\r\\n/]*|[" SPACE                    \
  "]*[\\r\\n]+|[" SPACE "]+(?![^" SPACE "])|[" SPACE "]+"

/* Splits @words where @pattern matches; what matches is a word, too. */
static void
isolate (GPtrArray **words, const char *pattern)
{
  g_autoptr (GPtrArray) from = g_steal_pointer (words);
  g_autoptr (GError) error = NULL;
  g_autoptr (GRegex) regex = g_regex_new (pattern, 0, 0, &error);

  g_assert_no_error (error);
  *words = g_ptr_array_new_with_free_func (g_free);
  for (guint i = 0; i < from->len; i++) {
    const char *word = from->pdata[i];
    g_autoptr (GMatchInfo) match = NULL;
    int done = 0, begin, end;

    for (g_regex_match (regex, word, 0, &match); g_match_info_matches (match);
         g_match_info_next (match, &error), done = end) {
      g_match_info_fetch_pos (match, 0, &begin, &end);
      if (begin > done)
        g_ptr_array_add (*words, g_strndup (word + done, begin - done));
      g_ptr_array_add (*words, g_strndup (word + begin, end - begin));
    }
    g_assert_no_error (error);
    if (word[done])
      g_ptr_array_add (*words, g_strdup (word + done));
  }
}

static char *
cut_in_turn (const char *const *patterns, const char *text)
{
  g_autoptr (GPtrArray) words = g_ptr_array_new_with_free_func (g_free);

  g_ptr_array_add (words, g_strdup (text));
  for (; *patterns; patterns++)
    isolate (&words, *patterns);
  g_ptr_array_add (words, NULL);
  return g_strjoinv ("|", (char **) words->pdata);
}

static char *
cut_by_regex (LycheePretokenizerKind kind, const char *text, gsize length)
{
  static const char *const minicpm5[] = { "(*UTF)(*UCP)\\p{N}{1,3}",
    LLAMA3_REGEX ("\\p{L}", "\\p{N}+", "[\\r\\n]*"), NULL };
  static const char *const deepseek_coder[] = { "(*UTF)[\\r\\n]", "(*UTF)(*UCP)[" SPACE "]?\\p{L}+",
    "(*UTF)(*UCP)[" SPACE "]?\\p{P}+",
    "(*UTF)[\\x{4e00}-\\x{9fa5}\\x{0800}-\\x{4e00}\\x{ac00}-\\x{d7ff}]+", "(*UTF)(*UCP)\\p{N}",
    NULL };
  GString *words;
  const char *start = text;

  if (kind == LYCHEE_PRETOKENIZER_MINICPM5 || kind == LYCHEE_PRETOKENIZER_DEEPSEEK_CODER)
    return cut_in_turn (kind == LYCHEE_PRETOKENIZER_MINICPM5 ? minicpm5 : deepseek_coder, text);
  words = g_string_new (NULL);
  switch (kind) {
  case LYCHEE_PRETOKENIZER_GPT2:
    append_matches (words, GPT2_REGEX, text, length);
    break;
  case LYCHEE_PRETOKENIZER_SMOLLM:
    for (const char *p = text; p <= text + length; p = g_utf8_next_char (p)) {
      gboolean at_end = p == text + length;
      GUnicodeType type = at_end ? G_UNICODE_UNASSIGNED : g_unichar_type (g_utf8_get_char (p));
      gboolean number = type == G_UNICODE_DECIMAL_NUMBER || type == G_UNICODE_LETTER_NUMBER ||
                        type == G_UNICODE_OTHER_NUMBER;
      if (!number && !at_end)
        continue;
      append_matches (words, GPT2_REGEX, start, p - start);
      if (at_end)
        break;
      if (words->len > 0)
        g_string_append_c (words, '|');
      start = g_utf8_next_char (p);
      g_string_append_len (words, p, start - p);
    }
    break;
  case LYCHEE_PRETOKENIZER_LLAMA3:
    append_matches (words, LLAMA3_REGEX ("\\p{L}", "\\p{N}{1,3}", "[\\r\\n]*"), text, length);
    break;
  case LYCHEE_PRETOKENIZER_QWEN2:
    append_matches (words, LLAMA3_REGEX ("\\p{L}", "\\p{N}", "[\\r\\n]*"), text, length);
    break;
  case LYCHEE_PRETOKENIZER_QWEN35:
    append_matches (words, LLAMA3_REGEX ("\\p{L}\\p{M}", "\\p{N}", "[\\r\\n]*"), text, length);
    break;
  case LYCHEE_PRETOKENIZER_SEED_CODER:
    append_matches (words, LLAMA3_REGEX ("\\p{L}", "\\p{N}", ""), text, length);
    break;
  case LYCHEE_PRETOKENIZER_GPT4O:
    append_matches (words,
        GPT4O_REGEX ("('[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])?", "\\p{N}{1,3}"),
        text, length);
    break;
  case LYCHEE_PRETOKENIZER_TEKKEN:
    append_matches (words, GPT4O_REGEX ("", "\\p{N}"), text, length);
    break;
  case LYCHEE_PRETOKENIZER_MINICPM5:
  case LYCHEE_PRETOKENIZER_DEEPSEEK_CODER:
    g_assert_not_reached ();
  }
  return g_string_free (words, FALSE);
}

static void
test_random (gconstpointer data)
{
  LycheePretokenizerKind kind = GPOINTER_TO_UINT (data);
  static const char *const parts[] = { " ", " ", "  ", "\n", "\r\n", "\t", "\u00a0", "\xc2\x85",
    "\u2028", "\u3000", "'", "'", "s", "r", "e", "v", "l", "L", "E", "S", "t", "word", "7", "12",
    "R", "\u01c5", "\u02b0", "/", "\u00bd", "\u2167", "\u0663", "!", "-", "\u2014", "$", "\u0301",
    "\u093f", "\u00e9", "\u00df", "\u017f", "\u212a", "\u65e5", "\u0645", "\U0001f600",
    "\U0001d7d9", "\U0001d400", "\u200b", "\ufffd", "\x01" };
  g_autoptr (GRand) rand = g_rand_new_with_seed (7);

  for (guint i = 0; i < 4000; i++) {
    g_autoptr (GString) text = g_string_new (NULL);
    guint n = g_rand_int_range (rand, 1, 14);
    for (guint j = 0; j < n; j++)
      g_string_append (text, parts[g_rand_int_range (rand, 0, G_N_ELEMENTS (parts))]);
    g_autofree char *found = cut (kind, text->str, text->len);
    g_autofree char *expected = cut_by_regex (kind, text->str, text->len);
    g_assert_cmpstr (found, ==, expected);
  }
}

/* Every character of the classes' own blocks, alone between two words. */
static void
test_classes (gconstpointer data)
{
  LycheePretokenizerKind kind = GPOINTER_TO_UINT (data);

  for (gunichar c = 1; c < 0x3100; c++) {
    char text[16] = "a ", *end = text + 2;
    UVersionInfo age;
    /* The regex engine knows Unicode 14, and takes U+180E for white space, which it has not been
     * since Unicode 6.3. */
    u_charAge ((UChar32) c, age);
    if (age[0] == 0 || age[0] > 14 || c == '|' || c == 0x180e)
      continue;
    end += g_unichar_to_utf8 (c, end);
    strcpy (end, "b");
    g_autofree char *found = cut (kind, text, strlen (text));
    g_autofree char *expected = cut_by_regex (kind, text, strlen (text));
    if (strcmp (found, expected) != 0)
      g_error ("U+%04X: \"%s\", not \"%s\"", c, found, expected);
  }
}

int
main (int argc, char *argv[])
{
  static const char *const kinds[] = { "gpt2", "smollm", "llama3", "qwen2", "qwen35", "seed-coder",
    "minicpm5", "deepseek-coder", "gpt4o", "tekken" };

  g_test_init (&argc, &argv, NULL);
  for (guint i = 0; i < G_N_ELEMENTS (cases); i++) {
    g_autofree char *path = g_strdup_printf ("/pretokenizer/%s", cases[i].name);
    g_test_add_data_func (path, &cases[i], test_case);
  }
  for (guint i = 0; i < G_N_ELEMENTS (kinds); i++) {
    g_autofree char *random = g_strdup_printf ("/pretokenizer/%s/as-regex", kinds[i]);
    g_autofree char *classes = g_strdup_printf ("/pretokenizer/%s/classes", kinds[i]);
    g_test_add_data_func (random, GUINT_TO_POINTER (i), test_random);
    g_test_add_data_func (classes, GUINT_TO_POINTER (i), test_classes);
  }
  g_test_add_func ("/pretokenizer/prompt", test_prompt);
  return g_test_run ();
}
