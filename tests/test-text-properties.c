/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "lychee-text-properties.h"

#include <string.h>

/* Places in text: '|' marks the place, the rest is the text. */

typedef struct {
  const char *name;
  const char *text;
  LycheeBoundary boundary;
} PlaceCase;

#define NONE LYCHEE_BOUNDARY_NONE
#define WORD LYCHEE_BOUNDARY_WORD
#define CLAUSE LYCHEE_BOUNDARY_CLAUSE
#define SENTENCE LYCHEE_BOUNDARY_SENTENCE
#define PARAGRAPH LYCHEE_BOUNDARY_PARAGRAPH

static const PlaceCase place_cases[] = {
  { "english/stop", "We met.| Then", SENTENCE },
  { "english/before-stop", "We met|. Then", NONE },
  { "english/question", "Really?| Yes", SENTENCE },
  { "english/question-exclamation", "Really?|! Yes", NONE },
  { "english/question-exclamation-end", "Really?!| Yes", SENTENCE },
  { "english/in-quotation", "\"We met.|\" Then", NONE },
  { "english/after-quotation", "\"We met.\"| Then", SENTENCE },
  { "english/after-curly-quotation", "“We met.”| Then", SENTENCE },
  { "english/after-bracket", "(We met.)| Then", SENTENCE },
  { "english/after-bracket-and-quote", "(\"We met.\")| Then", SENTENCE },
  { "english/before-opening-quote", "We met.| \"Then", SENTENCE },
  { "english/opening-quote", "We met. \"|Then", NONE },
  { "english/comma", "yes,| we", CLAUSE },
  { "english/colon", "thus:| we", CLAUSE },
  { "english/semicolon", "thus;| we", CLAUSE },
  { "english/word", "the| house", WORD },
  { "english/after-space", "the |house", WORD },
  { "english/in-word", "ho|use", NONE },
  { "english/apostrophe", "don|'t", NONE },
  { "english/apostrophe-after", "don'|t", NONE },
  { "english/curly-apostrophe", "don’|t", NONE },
  { "english/possessive", "the dogs'| bones", WORD },
  { "english/hyphen", "well-|known", NONE },
  { "english/spaced-hyphen", "well -| known", CLAUSE },
  { "english/double-hyphen", "well --| known", CLAUSE },
  { "english/in-double-hyphen", "well -|- known", NONE },
  { "english/em-dash", "well—|known", CLAUSE },
  { "english/before-em-dash", "well|—known", NONE },
  { "english/en-dash-spaced", "well –| known", CLAUSE },
  { "english/en-dash-range", "10–|20", NONE },
  { "english/ellipsis", "well...| Then", SENTENCE },
  { "english/in-ellipsis", "well.|.. Then", NONE },
  { "english/ellipsis-goes-on", "well...| then", CLAUSE },
  { "english/ellipsis-one-char", "well…| Then", SENTENCE },
  { "english/ellipsis-after-I", "I...| Then", SENTENCE },
  { "english/opening-bracket", "the| (house", WORD },
  { "english/emoji", "Great!| 🙂 So", SENTENCE },
  { "not-end/decimal", "3.|14", NONE },
  { "not-end/decimal-before", "3|.14", NONE },
  { "not-end/thousands", "1,|234", NONE },
  { "not-end/clock", "12:|30", NONE },
  { "not-end/decimal-long", "it was 1999.| Then", SENTENCE },
  { "not-end/eg-inside", "e.|g. this", NONE },
  { "not-end/eg", "e.g.| This", WORD },
  { "not-end/us-inside", "the U.|S. army", NONE },
  { "not-end/us", "the U.S.| Army", WORD },
  { "not-end/initial", "J.| Smith", WORD },
  { "not-end/title", "Dr.| Smith", WORD },
  { "not-end/title-capitals", "MR.| Smith", WORD },
  { "not-end/title-is-whole-word", "First.| Then", SENTENCE },
  { "not-end/small-letter", "etc.| and", CLAUSE },
  { "not-end/address", "example.|com", NONE },
  { "not-end/url", "a?|b=1", NONE },
  { "not-end/comma-in-word", "a,|b", NONE },
  { "not-end/dot-word", "the .|NET", NONE },
  { "not-end/arabic-digits", "٣،|١٤", NONE },
  { "not-end/fullwidth-decimal", "３．|１４", NONE },
  { "joined/question", "Really?|Yes", SENTENCE },
  { "german/ordinal", "am 3.| Mai", CLAUSE },
  { "german/abbreviation", "z.B.| Hunde", WORD },
  { "german/bzw", "bzw.| Hunde", WORD },
  { "german/quotation", "„Wir kamen.“| Dann", SENTENCE },
  { "german/in-quotation", "„Wir kamen.|“ Dann", NONE },
  { "german/guillemets", "»Wir kamen.«| Dann", SENTENCE },
  { "german/in-guillemets", "»Wir kamen.|« Dann", NONE },
  { "french/space-before-mark", "Ça va| ?", NONE },
  { "french/after-spaced-mark", "Ça va ?| Oui", SENTENCE },
  { "french/no-break-space", "Ça va|\u00A0?", NONE },
  { "french/after-no-break-space", "Ça va\u00A0|?", NONE },
  { "spanish/opening", "Hola.| ¿Qué", SENTENCE },
  { "spanish/after-opening", "Hola. ¿|Qué", NONE },
  { "greek/question", "Τι είναι;| Ναι", SENTENCE },
  { "greek/question-mark", "Τι είναι\u037E| Ναι", SENTENCE },
  { "japanese/stop", "行きます。|明日", SENTENCE },
  { "japanese/before-stop", "行きます|。明日", NONE },
  { "japanese/comma", "今日は、|明日", CLAUSE },
  { "japanese/words", "今日|行きます", WORD },
  { "japanese/in-word", "行|きます", NONE },
  { "japanese/small-kana", "ち|ょっと", NONE },
  { "japanese/long-vowel", "スキ|ー場", NONE },
  { "japanese/after-long-vowel", "スキー|場", WORD },
  { "japanese/in-brackets", "「行きます。|」と", NONE },
  { "japanese/after-brackets", "「行きます。」|と", SENTENCE },
  { "japanese/before-bracket", "彼は|「行き", WORD },
  { "japanese/after-opening-bracket", "彼は「|行き", NONE },
  { "japanese/pause", "行きます| 明日", CLAUSE },
  { "japanese/combining-voice", "か|\u3099き", NONE },
  { "japanese/fullwidth-exclamation", "行こう！|明日", SENTENCE },
  { "chinese/stop", "我们走。|明天", SENTENCE },
  { "chinese/question", "走吗？|明天", SENTENCE },
  { "chinese/comma", "今天，|明天", CLAUSE },
  { "chinese/enumeration-comma", "今天、|明天", CLAUSE },
  { "chinese/ascii-comma", "今天,|明天", CLAUSE },
  { "chinese/ascii-stop", "我们走.|明天", SENTENCE },
  { "chinese/words", "我们|走了", WORD },
  { "chinese/in-word", "我|们走了", NONE },
  { "chinese/latin", "我用|Python", WORD },
  { "chinese/in-latin", "我用Py|thon", NONE },
  { "chinese/dash", "今天——|明天", CLAUSE },
  { "chinese/in-dash", "今天—|—明天", NONE },
  { "chinese/before-dash", "今天|——明天", NONE },
  { "chinese/opening-quote", "他说。|“明天", SENTENCE },
  { "chinese/closing-quote", "他说。|”明天", NONE },
  { "chinese/after-closing-quote", "“走。”|明天", SENTENCE },
  { "arabic/question", "هل أنت هنا؟| نعم", SENTENCE },
  { "arabic/stop", "أنا هنا.| نعم", SENTENCE },
  { "arabic/comma", "نعم،| أنا", CLAUSE },
  { "arabic/semicolon", "نعم؛| أنا", CLAUSE },
  { "arabic/word", "أنا| هنا", WORD },
  { "arabic/right-to-left-mark", "هنا؟\u200F| نعم", SENTENCE },
  { "arabic/before-right-to-left-mark", "هنا؟|\u200F نعم", NONE },
  { "arabic/vowel-sign", "ه\u064E|نا", NONE },
  { "urdu/stop", "میں ہوں۔| ہاں", SENTENCE },
  { "hindi/danda", "मैं हूँ।| हाँ", SENTENCE },
  { "hindi/danda-joined", "मैं हूँ।|हाँ", SENTENCE },
  { "hindi/double-danda", "मैं हूँ॥| हाँ", SENTENCE },
  { "hindi/vowel-sign", "ह|ूँ", NONE },
  { "hindi/word", "मैं| हूँ", WORD },
  { "thai/words", "สวัสดี|ครับ", WORD },
  { "thai/in-word", "สวัส|ดีครับ", NONE },
  { "thai/pause", "สวัสดี| ครับ", CLAUSE },
  { "thai/vowel-before", "เ|ธอ", NONE },
  { "thai/vowel-after", "ม|าก", NONE },
  { "thai/tone-mark", "ก|่อน", NONE },
  { "khmer/stop", "ខ្ញុំទៅ។| គាត់", SENTENCE },
  { "khmer/zero-width-space", "ខ្ញុំ|\u200Bទៅ", CLAUSE },
  { "burmese/stop", "သွားမယ်။| သူ", SENTENCE },
  { "korean/stop", "갑니다.| 내일", SENTENCE },
  { "korean/word", "나는| 내일", WORD },
  { "korean/in-word", "나|는", NONE },
  { "korean/comma", "나는,| 내일", CLAUSE },
  { "armenian/stop", "գնում եմ։| Վաղը", SENTENCE },
  { "ethiopic/stop", "እሄዳለሁ።| ነገ", SENTENCE },
  { "tibetan/shad", "འགྲོ།| ང", CLAUSE },
  { "lines/newline", "one\n|two", SENTENCE },
  { "lines/before-newline", "one|\ntwo", WORD },
  { "lines/carriage-return", "one\r|\ntwo", NONE },
  { "lines/crlf", "one\r\n|two", SENTENCE },
  { "lines/empty", "one\n\n|two", PARAGRAPH },
  { "lines/empty-crlf", "one\r\n\r\n|two", PARAGRAPH },
  { "lines/in-empty", "one\n|\ntwo", WORD },
  { "lines/empty-with-spaces", "one\n  \n|two", PARAGRAPH },
  { "lines/indented-after-empty", "one\n\n|  two", PARAGRAPH },
  { "lines/paragraph-separator", "one\u2029|two", PARAGRAPH },
  { "lines/line-separator", "one\u2028|two", SENTENCE },
  { "lines/nothing-before-empty", "\n\n|two", WORD },
  { "emoji/joined", "👩\u200D|🚀", NONE },
  { "emoji/skin", "👍|🏽", NONE },
  { "emoji/flag", "🇩|🇪", NONE },
  { "emoji/flags", "🇩🇪|🇫🇷", NONE },
  { "start", "|one", NONE },
  { "end", "one|", WORD },
  { "end/stop", "one.|", SENTENCE },
};

static void
test_place (gconstpointer data)
{
  const PlaceCase *c = data;
  const char *bar = strchr (c->text, '|');
  g_autoptr (GString) text = g_string_new_len (c->text, bar - c->text);
  gsize position = text->len;
  LycheeTextPlace place;

  g_string_append (text, bar + 1);
  place = lychee_text_examine (text->str, text->len, position, position);
  g_assert_cmpstr (
      lychee_boundary_to_string (place.boundary), ==, lychee_boundary_to_string (c->boundary));
}

/* A token that holds a line's end and the next words: the place is before it. */
static void
test_place_newline_in_token (void)
{
  g_assert_cmpint (lychee_text_examine ("a\n\nb", 4, 1, 4).boundary, ==, PARAGRAPH);
  g_assert_cmpint (lychee_text_examine ("a\nb", 3, 1, 3).boundary, ==, SENTENCE);
  g_assert_cmpint (lychee_text_examine ("a\n\nb", 4, 1, 3).boundary, ==, WORD);
}

static void
test_place_after_space (void)
{
  g_assert_true (lychee_text_examine ("a b", 3, 2, 3).after_space);
  g_assert_false (lychee_text_examine ("a b", 3, 1, 3).after_space);
  g_assert_false (lychee_text_examine ("a\nb", 3, 2, 3).after_space);
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, NULL);
  for (guint i = 0; i < G_N_ELEMENTS (place_cases); i++) {
    g_autofree char *name = g_strconcat ("/text/place/", place_cases[i].name, NULL);

    g_test_add_data_func (name, &place_cases[i], test_place);
  }
  g_test_add_func ("/text/place/newline-in-token", test_place_newline_in_token);
  g_test_add_func ("/text/place/after-space", test_place_after_space);
  return g_test_run ();
}
