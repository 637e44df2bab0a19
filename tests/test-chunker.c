/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "lychee-chunker.h"
#include "lychee-text-properties.h"

#include <math.h>
#include <string.h>

#define NONE LYCHEE_BOUNDARY_NONE
#define SENTENCE LYCHEE_BOUNDARY_SENTENCE
#define PARAGRAPH LYCHEE_BOUNDARY_PARAGRAPH

/* Chunks: tokens are parted by '|' in the input ("\\n" is a newline in both), chunks by '|' in
 * what is expected, each ending in "~" and its boundary's nick. '@NAME@' changes the speaker
 * from that token on, '#' marks a paragraph; "!2!" hastens the first two open tokens before it. */

typedef struct {
  const char *name;
  guint min, max;
  const char *tokens;
  const char *chunks;
} ChunkCase;

static const ChunkCase chunk_cases[] = {
  { "short", 3, 6, "a| b| c", "a b c~end" },
  { "none", 3, 6, "", "" },
  { "exactly-max", 3, 6, "a| b| c| d| e| f", "a b c d e f~end" },
  { "latest-word", 3, 6, "a| b| c| d| e| f| g| h| i| j", "a b c d e f~word| g h i j~end" },
  { "tail", 3, 6, "a| b| c| d| e| f| g", "a b c d e f~word| g~end" },
  { "tail-has-minimum", 3, 6, "a| b| c| d| e| f| ", "a b c d~word| e f ~end" },
  { "sentence-before-word", 3, 6, "a| b| c|.| E| f| g| h", "a b c.~sentence| E f g h~end" },
  { "latest-sentence", 2, 6, "a| b|.| Cat|.| F| g| h", "a b. Cat.~sentence| F g h~end" },
  { "sentence-before-clause", 2, 6, "a|.| B|,| c|,| d| e| f",
      "a.~sentence| B, c,~clause| d e f~end" },
  { "clause-before-word", 3, 6, "a| b| c|,| e| f| g| h", "a b c,~clause| e f g h~end" },
  { "too-early", 4, 6, "a|.| c| d| e| f| g| h| i", "a. c d e f~word| g h i~end" },
  { "waits-for-decimal", 2, 4, "a| 3|.|14| b| c", "a 3.14~word| b c~end" },
  { "waits-for-quote", 2, 4, " \"| a|.|\"| B| c| d", " \" a.\"~sentence| B c d~end" },
  { "in-word", 2, 4, "ab|cd|ef|gh|ij|kl| m", "abcdefgh~none|ijkl m~end" },
  { "in-word-tail", 2, 4, "ab|cd|ef|gh|ij|kl", "abcdefgh~none|ijkl~end" },
  { "no-punctuation", 3, 4, "the| cat| sat| on| the| mat| and| then| it| went| a|way| home",
      "the cat sat on~word| the mat and then~word| it went away~word| home~end" },
  { "space-token", 2, 4, "a| b| | c| d| e| f", "a b  c~word| d e f~end" },
  { "before-space-preferred", 2, 3, "a| b|  | c| d", "a b~word|   c d~end" },
  { "trailing-spaces", 2, 4, "a |b. |C |d |E |f ", "a b. ~sentence|C d E f ~end" },
  { "newline", 2, 6, "a| b|\\n|c| d| e| f| g", "a b\\n~sentence|c d e f g~end" },
  { "empty-line", 4, 8, "a|\\n\\n|b| c", "a\\n\\n~paragraph|b c~end" },
  { "empty-line-two-tokens", 4, 8, "a|\\n|\\n|b| c", "a\\n\\n~paragraph|b c~end" },
  { "empty-lines", 4, 8, "a|\\n\\n|\\n|b| c", "a\\n\\n\\n~paragraph|b c~end" },
  { "empty-line-crlf", 4, 8, "a|\\r|\\n|\\r|\\n|b| c", "a\\r\\n\\r\\n~paragraph|b c~end" },
  { "empty-line-indented", 4, 8, "a|\\n\\n|  | b| c", "a\\n\\n~paragraph|   b c~end" },
  { "empty-lines-first", 2, 8, "\\n\\n|\\n\\n|b| c", "\\n\\n\\n\\nb c~end" },
  { "empty-line-last", 2, 8, "a| b|\\n\\n", "a b\\n\\n~end" },
  { "empty-line-in-token", 2, 8, "a| b|\\n\\nc| d", "a b~paragraph|\\n\\nc d~end" },
  { "speaker", 4, 8, "@A@a| b|@B@c|@A@ d", "a b~speaker|c~speaker| d~end" },
  { "speaker-none", 4, 8, "a| b|@B@c|@B@ d|@@ e", "a b~speaker|c d~speaker| e~end" },
  { "paragraph-mark", 4, 8, "a| b|#c| d", "a b~paragraph|c d~end" },
  { "paragraph-mark-first", 4, 8, "#a| b", "a b~end" },
  { "paragraph-over-speaker", 4, 8, "@A@a| b|#@B@c| d", "a b~paragraph|c d~end" },
  { "hard-end-shares-rest", 3, 4, "a| \\n|\\n| c| d", "a \\n\\n~paragraph| c d~end" },
  { "min-above-max", 9, 3, "a| b| c| d| e", "a b c~word| d e~end" },
  { "one", 1, 1, "a| b| c", "a~word| b~word| c~end" },
  { "empty-tokens-stay", 1, 3, "a| b|[]|[]| c| d", "a~word| b~word| c d~end" },
  { "only-empty-tokens", 1, 3, "[]|[]|[]|[]|[]", "~none|~end" },
  { "hasten-best-place", 3, 6, "a| b| c|.| E| f|!2! g| h", "a b c.~sentence| E f g h~end" },
  { "hasten-no-more-than-asked", 3, 6, "a| b| c|.| E| f|!0! g| h", "a b c.~sentence| E f g h~end" },
  { "hasten-all-asked", 3, 9, "a| b| c|.| E| f| G|!6! h| i",
      "a b c.~sentence| E f G~word| h i~end" },
  { "hasten-last-place-unknown", 2, 6, "a| b| 3|.|!3!14| c", "a b~word| 3.~sentence|14 c~end" },
  { "hasten-judged-again", 2, 6, "a| b| 3|.|!2!14| c", "a b~word| 3.14 c~end" },
  { "hasten-few", 4, 6, "a| b|!1! c| d", "a b~word| c d~end" },
  { "hasten-all", 2, 6, "a| b.| C|!3! D| e", "a b. C~end| D e~end" },
  { "hasten-nothing", 4, 6, "!3!a| b", "a b~end" },
  { "hasten-more-than-open", 2, 4, "a| b| c|!9! d", "a b c~end| d~end" },
  { "hasten-hard-end", 4, 6, "a| b|\\n\\n|c|!1! d", "a b\\n\\n~paragraph|c~end| d~end" },
  { "context-over-chunks", 1, 2, " e|.|g|.| This| is", " e.~none|g.~word| This is~end" },
};

static void
push (LycheeChunker *chunker, gint32 id, const char *text, gsize length, GPtrArray *chunks)
{
  LycheeChunkerToken token = { id, text, length, NULL, LYCHEE_TIME_NONE, LYCHEE_TIME_NONE, FALSE };

  lychee_chunker_push (chunker, &token, chunks);
}

static GPtrArray *
new_chunks (void)
{
  return g_ptr_array_new_with_free_func ((GDestroyNotify) lychee_chunk_unref);
}

static char *
unescape (const char *text)
{
  return g_strcompress (text);
}

static void
test_chunks (gconstpointer data)
{
  const ChunkCase *c = data;
  g_autoptr (LycheeChunker) chunker = lychee_chunker_new (c->min, c->max);
  g_autoptr (GPtrArray) chunks = new_chunks ();
  g_autoptr (GString) result = g_string_new (NULL);
  g_autofree char *expected = unescape (c->chunks);
  g_auto (GStrv) tokens = g_strsplit (c->tokens, "|", -1);
  g_autofree char *speaker = NULL;
  gint32 id = 0;

  for (guint i = 0; tokens[i] != NULL; i++) {
    const char *at = tokens[i];
    g_autofree char *text = NULL;
    LycheeChunkerToken token = { 0 };

    if (*at == '!' && g_ascii_isdigit (at[1])) {
      lychee_chunker_hasten (chunker, g_ascii_strtoull (at + 1, (char **) &at, 10), chunks);
      at++;
    }
    if (*at == '#') {
      token.paragraph = TRUE;
      at++;
    }
    if (*at == '@') {
      const char *end = strchr (at + 1, '@');

      g_free (speaker);
      speaker = end > at + 1 ? g_strndup (at + 1, end - at - 1) : NULL;
      at = end + 1;
    }
    text = unescape (strcmp (at, "[]") == 0 ? "" : at);
    token.id = i;
    token.text = text;
    token.text_length = strlen (text);
    token.speaker = speaker;
    token.pts = token.duration = LYCHEE_TIME_NONE;
    lychee_chunker_push (chunker, &token, chunks);
    g_assert_cmpuint (lychee_chunker_get_n_open (chunker), <=, c->max + 8);
  }
  lychee_chunker_drain (chunker, chunks);
  g_assert_cmpuint (lychee_chunker_get_n_open (chunker), ==, 0);

  for (guint i = 0; i < chunks->len; i++) {
    const LycheeChunk *chunk = g_ptr_array_index (chunks, i);

    g_assert_cmpuint (chunk->number, ==, i);
    g_assert_cmpuint (chunk->n_ids, <=, c->max);
    g_assert_true (isnan (chunk->drift));
    for (guint j = 0; j < chunk->n_ids; j++)
      g_assert_cmpint (chunk->ids[j], ==, id++);
    g_string_append_printf (result, "%s%s~%s", i > 0 ? "|" : "", chunk->text,
        lychee_boundary_to_string (chunk->boundary));
  }
  g_assert_cmpint (id, ==, g_strv_length (tokens));
  g_assert_cmpstr (result->str, ==, expected);
}

/* Languages: text as an assortment of tokenizers would give it, with the chunks' properties. */

typedef struct {
  const char *name;
  const char *text;
  guint n_sentences; /* sentence ends inside */
} Language;

static const Language languages[] = {
  { "english",
      "Good morning, everyone. Dr. Miller paid $3.50 for 1,234 pens, e.g. blue ones! Did the U.S. "
      "office reply? \"Not yet,\" she said. We will wait until Monday; then we go on.",
      4 },
  { "german",
      "Guten Morgen zusammen. Am 3. Mai kommt Dr. Weber, z.B. mit dem Zug. „Ist das sicher?“ Ja, "
      "sicher – er hat es gesagt. Wir warten also bis Montag und reden dann weiter.",
      4 },
  { "japanese",
      "皆さん、おはようございます。今日の議題は三つあります。「予算は足りますか？」と部長が聞きまし"
      "た。"
      "まだ分かりません、でも来週には決まるでしょう。スキー旅行の話は後にしましょう！",
      5 },
  { "chinese",
      "大家早上好。今天我们讨论三个问题：预算、人员和时间。预算够吗？他说：“现在还不清楚。”"
      "我们用Python算了一下，大约是3.14万元。下周一再决定吧！",
      5 },
  { "arabic",
      "صباح الخير جميعا. اليوم لدينا ثلاثة أسئلة، أولها عن الميزانية؛ هل تكفي؟ لا نعرف بعد. "
      "سننتظر حتى يوم الاثنين، ثم نقرر ما نفعل في هذا الموضوع.",
      3 },
  { "hindi",
      "सबको सुप्रभात। आज हमारे पास तीन सवाल हैं, पहला बजट के बारे में है। क्या वह काफी है? अभी हमें "
      "नहीं पता। हम सोमवार तक रुकेंगे और फिर तय करेंगे।",
      4 },
  { "thai",
      "สวัสดีตอนเช้าทุกคน วันนี้เรามีคำถามสามข้อ ข้อแรกเกี่ยวกับงบประมาณ เรายังไม่รู้ว่าพอหรือไม่ "
      "เราจะรอจนถึงวันจันทร์แล้วค่อยตัดสินใจ",
      0 },
  { "korean",
      "여러분, 안녕하세요. 오늘은 질문이 세 개 있습니다. 예산은 충분합니까? 아직 모릅니다. "
      "월요일까지 기다렸다가, 그때 결정합시다!",
      4 },
  { "russian",
      "Доброе утро всем. Сегодня у нас три вопроса: бюджет, люди и сроки. Хватит ли денег? Пока не "
      "знаем. Подождём до понедельника, а потом решим.",
      4 },
  { "unpunctuated",
      "so what we did then was we went over to the other office and they told us that nobody had "
      "ever seen the plan and that was the moment when i knew we had a problem",
      0 },
};

typedef enum {
  SPLIT_WORDS, /* space and letters, at most six; each other character alone */
  SPLIT_CHARACTERS,
  SPLIT_BYTES,      /* characters cut into bytes */
  SPLIT_FIRST_PART, /* the same, all of the text with the first part, as LycheeToken has it */
} Split;

static const char *const split_names[] = { "words", "characters", "bytes", "first-part" };

/* Pushes @text as tokens with ids from @first on; returns how many. */
static guint
push_text (LycheeChunker *chunker, const char *text, Split split, gint32 first, GPtrArray *chunks)
{
  gint32 id = first;

  while (*text != '\0') {
    const char *end = g_utf8_next_char (text);

    switch (split) {
    case SPLIT_WORDS:
      if (*text == ' ' || g_unichar_isalpha (g_utf8_get_char (text)))
        for (guint n = 0; n < 6 && g_unichar_isalpha (g_utf8_get_char (end)); n++)
          end = g_utf8_next_char (end);
      push (chunker, id++, text, end - text, chunks);
      break;
    case SPLIT_CHARACTERS:
      push (chunker, id++, text, end - text, chunks);
      break;
    case SPLIT_BYTES:
      for (const char *at = text; at < end; at++)
        push (chunker, id++, at, 1, chunks);
      break;
    case SPLIT_FIRST_PART:
      push (chunker, id++, text, end - text, chunks);
      for (const char *at = text + 1; at < end; at++)
        push (chunker, id++, "", 0, chunks);
      break;
    }
    text = end;
  }
  return id - first;
}

static void
check_chunks (GPtrArray *chunks, const char *text, guint n_ids, guint min, guint max)
{
  g_autoptr (GString) all = g_string_new (NULL);
  gint32 id = 0;

  for (guint i = 0; i < chunks->len; i++) {
    const LycheeChunk *chunk = g_ptr_array_index (chunks, i);

    g_assert_cmpuint (chunk->number, ==, i);
    g_assert_cmpuint (chunk->n_ids, >, 0);
    g_assert_cmpuint (chunk->n_ids, <=, max);
    if (chunk->boundary != PARAGRAPH && chunk->boundary != LYCHEE_BOUNDARY_SPEAKER &&
        chunk->boundary != LYCHEE_BOUNDARY_END)
      g_assert_cmpuint (chunk->n_ids, >=, min);
    g_assert_true (g_utf8_validate (chunk->text, -1, NULL));
    for (guint j = 0; j < chunk->n_ids; j++)
      g_assert_cmpint (chunk->ids[j], ==, id++);
    g_string_append (all, chunk->text);
  }
  g_assert_cmpint (id, ==, n_ids);
  g_assert_cmpstr (all->str, ==, text);
}

static void
test_language (gconstpointer data)
{
  const Language *language = &languages[GPOINTER_TO_UINT (data) / 4];
  Split split = GPOINTER_TO_UINT (data) % 4;
  g_autoptr (LycheeChunker) chunker = lychee_chunker_new (8, 16);
  g_autoptr (GPtrArray) chunks = new_chunks ();
  guint n = push_text (chunker, language->text, split, 0, chunks), n_none = 0;

  lychee_chunker_drain (chunker, chunks);
  check_chunks (chunks, language->text, n, 8, 16);
  for (guint i = 0; i < chunks->len; i++) {
    const LycheeChunk *chunk = g_ptr_array_index (chunks, i);
    const char *last = chunk->text + strlen (chunk->text);

    n_none += chunk->boundary == NONE;
    /* The space belongs to the next word, a delimiter to the one before it. */
    last = g_utf8_find_prev_char (chunk->text, last);
    if (split == SPLIT_WORDS && chunk->boundary != LYCHEE_BOUNDARY_END)
      g_assert_cmpint (*last, !=, ' ');
    g_assert_null (strchr (",.!?;:", *chunk->text == '\0' ? 'x' : *chunk->text));
  }
  /* A word longer than a chunk is met only where tokens are bytes. */
  if (split == SPLIT_WORDS || split == SPLIT_CHARACTERS)
    g_assert_cmpuint (n_none, ==, 0);
}

/* Talk without marks and spaces, as recognisers give it; its words are parted by '|'. */

typedef struct {
  const char *name;
  const char *words;
} UnspacedCase;

static const UnspacedCase unspaced_cases[] = {
  { "chinese", "我们|明天|早上|去|学校|开会|老师|说|今年|的|考试|比较|简单|但是|学生|还是|需要|"
               "认真|复习|下午|超市|关门|以后|大家|一起|去|公园|看|电影" },
  { "japanese", "明日|学校|図書館|友達|電話|番号|日本語|勉強|時間|来週|東京|大阪|会社|新聞|先生|"
                "電車|飛行機|自転車" },
  { "thai", "วันนี้|เรา|ไป|ตลาด|ด้วย|กัน|พรุ่งนี้|อากาศ|ร้อน|มาก|คุณ|ชอบ|กิน|ข้าว|หรือ|ก๋วยเตี๋ยว|"
            "ผม|อยาก|ซื้อ|เสื้อ|สอง|ตัว" },
};

static void
test_unspaced (gconstpointer data)
{
  const UnspacedCase *c = data;
  g_auto (GStrv) words = g_strsplit (c->words, "|", -1);
  g_autofree char *text = g_strjoinv ("", words);

  for (guint max = 12; max <= 24; max += 4) {
    g_autoptr (LycheeChunker) chunker = lychee_chunker_new (4, max);
    g_autoptr (GPtrArray) chunks = new_chunks ();
    guint n = push_text (chunker, text, SPLIT_CHARACTERS, 0, chunks), i_word = 0;
    gsize cut = 0, word_end = 0;

    lychee_chunker_drain (chunker, chunks);
    check_chunks (chunks, text, n, 4, max);
    for (guint i = 0; i < chunks->len; i++) {
      cut += strlen (((LycheeChunk *) chunks->pdata[i])->text);
      while (word_end < cut)
        word_end += strlen (words[i_word++]);
      g_assert_cmpuint (cut, ==, word_end);
    }
  }
}

/* With room enough every chunk ends with a sentence. */
static void
test_language_sentences (gconstpointer data)
{
  const Language *language = data;
  g_autoptr (LycheeChunker) chunker = lychee_chunker_new (1, 60);
  g_autoptr (GPtrArray) chunks = new_chunks ();
  const char *at = language->text;
  guint n = 0;

  for (gsize position = 1; position < strlen (at); position++) {
    if (((guchar) at[position] & 0xC0) == 0x80)
      continue;
    if (lychee_text_examine (at, strlen (at), position, position).boundary == SENTENCE &&
        !lychee_text_is_space (g_utf8_get_char (g_utf8_prev_char (at + position))))
      n++;
  }
  g_assert_cmpuint (n, ==, language->n_sentences);
  push_text (chunker, at, SPLIT_WORDS, 0, chunks);
  for (guint i = 0; i < chunks->len && language->n_sentences > 0; i++) {
    const LycheeChunk *chunk = g_ptr_array_index (chunks, i);

    g_assert_cmpint (chunk->boundary, ==, SENTENCE);
  }
}

/* A character stays whole wherever the range allows a place that leaves it so. */
static void
test_character_whole (gconstpointer data)
{
  Split split = GPOINTER_TO_UINT (data);
  static const char text[] = "🙂漢字🙂é漢🙂🙂ab字漢漢é🙂c🙂漢";

  for (guint max = 4; max <= 20; max++) {
    g_autoptr (LycheeChunker) chunker = lychee_chunker_new (max - 3, max);
    g_autoptr (GPtrArray) chunks = new_chunks ();
    guint n = push_text (chunker, text, split, 0, chunks);
    gsize position = 0, length = 0;

    lychee_chunker_drain (chunker, chunks);
    check_chunks (chunks, text, n, max - 3, max);
    /* A byte a token: a chunk has as many tokens as its text has bytes. */
    for (guint i = 0; i < chunks->len; i++) {
      const LycheeChunk *chunk = g_ptr_array_index (chunks, i);

      position += chunk->n_ids;
      length += strlen (chunk->text);
      g_assert_cmpuint (position, ==, length);
    }
  }
}

static void
test_character_cut (void)
{
  g_autoptr (LycheeChunker) chunker = lychee_chunker_new (2, 2);
  g_autoptr (GPtrArray) chunks = new_chunks ();
  const LycheeChunk *chunk;

  push_text (chunker, "漢字", SPLIT_BYTES, 0, chunks);
  lychee_chunker_drain (chunker, chunks);
  check_chunks (chunks, "漢字", 6, 2, 2);
  chunk = g_ptr_array_index (chunks, 0);
  g_assert_cmpstr (chunk->text, ==, "");
  g_assert_cmpint (chunk->boundary, ==, NONE);
  chunk = g_ptr_array_index (chunks, 1);
  g_assert_cmpstr (chunk->text, ==, "漢");
}

/* Bytes that are not UTF-8: U+FFFD, and nothing around them is lost. */

typedef struct {
  const char *name;
  const char *tokens; /* parted by '|' */
  const char *text;
} InvalidCase;

static const InvalidCase invalid_cases[] = {
  { "lone-continuation", "a|\x80|b", "a\uFFFDb" },
  { "never", "a|\xFF|b", "a\uFFFDb" },
  { "cut", "a|\xE6\xBC|b", "a\uFFFD\uFFFDb" },
  { "cut-at-end", "a|\xE6\xBC", "a\uFFFD" },
  { "cut-then-whole", "\xE6|\xE6\xBC\xA2", "\uFFFD漢" },
  { "surrogate", "\xED\xA0\x80", "\uFFFD\uFFFD\uFFFD" },
  { "overlong", "\xC0\xAFz", "\uFFFD\uFFFDz" },
  { "five-bytes", "\xF8\x88\x80\x80\x80z", "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFDz" },
};

static void
test_invalid (gconstpointer data)
{
  const InvalidCase *c = data;
  g_autoptr (LycheeChunker) chunker = lychee_chunker_new (8, 16);
  g_autoptr (GPtrArray) chunks = new_chunks ();
  g_auto (GStrv) tokens = g_strsplit (c->tokens, "|", -1);

  for (guint i = 0; tokens[i] != NULL; i++)
    push (chunker, i, tokens[i], strlen (tokens[i]), chunks);
  lychee_chunker_drain (chunker, chunks);
  check_chunks (chunks, c->text, g_strv_length (tokens), 8, 16);
}

static void
test_nul (void)
{
  g_autoptr (LycheeChunker) chunker = lychee_chunker_new (8, 16);
  g_autoptr (GPtrArray) chunks = new_chunks ();

  push (chunker, 0, "a\0b", 3, chunks);
  push (chunker, 1, "\0", 1, chunks);
  push (chunker, 2, "c\xE6", 2, chunks);
  push (chunker, 3, "\0d", 2, chunks);
  lychee_chunker_drain (chunker, chunks);
  check_chunks (chunks, "a\uFFFDb\uFFFDc\uFFFD\uFFFDd", 4, 8, 16);
}

/* Times */

typedef struct {
  const char *name;
  guint64 pts[3], duration[3];
  guint64 chunk_pts, chunk_duration;
} TimeCase;

#define NO LYCHEE_TIME_NONE
static const TimeCase time_cases[] = {
  { "none", { NO, NO, NO }, { NO, NO, NO }, NO, NO },
  { "all", { 10, 20, 30 }, { 5, 5, 7 }, 10, 27 },
  { "first-untimed", { NO, 20, 30 }, { NO, 5, 7 }, 20, 17 },
  { "last-untimed", { 10, 20, NO }, { 5, 5, NO }, 10, 15 },
  { "duration-without-pts", { 10, NO, NO }, { 5, 9, 9 }, 10, 5 },
  { "no-durations", { 10, 20, 30 }, { NO, NO, NO }, 10, NO },
  { "same-cue", { 10, 10, 10 }, { 50, 50, 50 }, 10, 50 },
  { "nested", { 10, 20, 30 }, { 100, 5, 5 }, 10, 100 },
  { "backwards", { 30, 20, 10 }, { NO, 5, 5 }, 30, 0 },
  { "zero", { 0, 0, 0 }, { 0, 0, 0 }, 0, 0 },
  { "overflow", { 10, 20, NO - 5 }, { 1, 1, NO - 5 }, 10, NO - 11 },
};

static void
test_times (gconstpointer data)
{
  const TimeCase *c = data;
  g_autoptr (LycheeChunker) chunker = lychee_chunker_new (8, 16);
  g_autoptr (GPtrArray) chunks = new_chunks ();
  const LycheeChunk *chunk;

  for (guint i = 0; i < 3; i++) {
    LycheeChunkerToken token = { i, " a", 2, NULL, c->pts[i], c->duration[i], FALSE };

    lychee_chunker_push (chunker, &token, chunks);
  }
  lychee_chunker_drain (chunker, chunks);
  g_assert_cmpuint (chunks->len, ==, 1);
  chunk = g_ptr_array_index (chunks, 0);
  g_assert_cmpuint (chunk->pts, ==, c->chunk_pts);
  g_assert_cmpuint (chunk->duration, ==, c->chunk_duration);
}

/* A chunk's times are those of its own tokens. */
static void
test_times_per_chunk (void)
{
  g_autoptr (LycheeChunker) chunker = lychee_chunker_new (2, 4);
  g_autoptr (GPtrArray) chunks = new_chunks ();

  for (guint i = 0; i < 8; i++) {
    LycheeChunkerToken token = { i, " a", 2, NULL, 10 * i, 10, FALSE };

    lychee_chunker_push (chunker, &token, chunks);
  }
  lychee_chunker_drain (chunker, chunks);
  g_assert_cmpuint (chunks->len, ==, 2);
  g_assert_cmpuint (((LycheeChunk *) g_ptr_array_index (chunks, 0))->pts, ==, 0);
  g_assert_cmpuint (((LycheeChunk *) g_ptr_array_index (chunks, 0))->duration, ==, 40);
  g_assert_cmpuint (((LycheeChunk *) g_ptr_array_index (chunks, 1))->pts, ==, 40);
  g_assert_cmpuint (((LycheeChunk *) g_ptr_array_index (chunks, 1))->duration, ==, 40);
}

/* State */

static void
test_speaker_in_chunk (void)
{
  g_autoptr (LycheeChunker) chunker = lychee_chunker_new (2, 4);
  g_autoptr (GPtrArray) chunks = new_chunks ();
  char name[] = "Ann";
  LycheeChunkerToken token = { 0, " a", 2, name, 0, 0, FALSE };

  lychee_chunker_push (chunker, &token, chunks);
  memset (name, 'x', 3); /* the chunker has its own copy */
  token.speaker = "Bob";
  lychee_chunker_push (chunker, &token, chunks);
  lychee_chunker_drain (chunker, chunks);
  g_assert_cmpuint (chunks->len, ==, 2);
  g_assert_cmpstr (((LycheeChunk *) g_ptr_array_index (chunks, 0))->speaker, ==, "Ann");
  g_assert_cmpstr (((LycheeChunk *) g_ptr_array_index (chunks, 1))->speaker, ==, "Bob");
}

static void
test_drain_goes_on (void)
{
  g_autoptr (LycheeChunker) chunker = lychee_chunker_new (2, 4);
  g_autoptr (GPtrArray) chunks = new_chunks ();

  lychee_chunker_drain (chunker, chunks);
  g_assert_cmpuint (chunks->len, ==, 0);
  push (chunker, 0, "a", 1, chunks);
  lychee_chunker_drain (chunker, chunks);
  lychee_chunker_drain (chunker, chunks);
  push (chunker, 1, " b", 2, chunks);
  lychee_chunker_drain (chunker, chunks);
  g_assert_cmpuint (chunks->len, ==, 2);
  check_chunks (chunks, "a b", 2, 2, 4);
}

static void
test_reset (void)
{
  g_autoptr (LycheeChunker) chunker = lychee_chunker_new (2, 4);
  g_autoptr (GPtrArray) chunks = new_chunks ();

  push_text (chunker, "one two three four five six", SPLIT_WORDS, 7, chunks);
  push (chunker, 99, "\xE6", 1, chunks);
  g_assert_cmpuint (chunks->len, >, 0);
  g_ptr_array_set_size (chunks, 0);
  lychee_chunker_reset (chunker);
  g_assert_cmpuint (lychee_chunker_get_n_open (chunker), ==, 0);
  push (chunker, 0, "a", 1, chunks);
  g_assert_cmpuint (lychee_chunker_get_n_open (chunker), ==, 1);
  lychee_chunker_drain (chunker, chunks);
  check_chunks (chunks, "a", 1, 2, 4);
}

static void
test_properties (void)
{
  g_autoptr (LycheeChunker) chunker = g_object_new (LYCHEE_TYPE_CHUNKER, NULL);
  g_autoptr (GPtrArray) chunks = new_chunks ();
  guint min, max;

  g_object_get (chunker, "min-tokens", &min, "max-tokens", &max, NULL);
  g_assert_cmpuint (min, ==, 8);
  g_assert_cmpuint (max, ==, 16);
  for (guint i = 0; i < 15; i++)
    push (chunker, i, " a", 2, chunks);
  g_assert_cmpuint (chunks->len, ==, 0);
  g_object_set (chunker, "min-tokens", 2, "max-tokens", 4, NULL);
  push (chunker, 15, " a", 2, chunks);
  g_assert_cmpuint (chunks->len, ==, 3);
  g_object_get (chunker, "min-tokens", &min, "max-tokens", &max, NULL);
  g_assert_cmpuint (min, ==, 2);
  g_assert_cmpuint (max, ==, 4);
}

/* A chunk comes no later than it must: with the first word behind its longest form. */
static void
test_prompt (void)
{
  g_autoptr (LycheeChunker) chunker = lychee_chunker_new (8, 16);
  g_autoptr (GPtrArray) chunks = new_chunks ();

  for (guint i = 0; i < 16; i++)
    push (chunker, i, " a", 2, chunks);
  g_assert_cmpuint (chunks->len, ==, 0);
  push (chunker, 16, " a", 2, chunks);
  g_assert_cmpuint (chunks->len, ==, 1);
}

/* Spaces without end are cut, too. */
static void
test_only_spaces (void)
{
  g_autoptr (LycheeChunker) chunker = lychee_chunker_new (8, 16);
  g_autoptr (GPtrArray) chunks = new_chunks ();
  g_autoptr (GString) text = g_string_new (NULL);

  for (guint i = 0; i < 1000; i++) {
    push (chunker, i, i % 3 == 0 ? "\n" : " ", 1, chunks);
    g_string_append_c (text, i % 3 == 0 ? '\n' : ' ');
    g_assert_cmpuint (lychee_chunker_get_n_open (chunker), <=, 16 + 8);
  }
  lychee_chunker_drain (chunker, chunks);
  check_chunks (chunks, text->str, 1000, 8, 16);
}

/* Any text, in any tokens; of every third, some may not wait. */
static void
test_random (gconstpointer data)
{
  static const char *const pieces[] = { "a", "b", " ", " ", " the", "Word", ".", ",", "?", "!",
    "\"", "'", "”", "“", "。", "、", "漢", "字", "か", "ー", "ก", "เ", "่", "🙂", "\u200D", "\n",
    "\n\n", "\r\n", "3", "1.5", "—", "-", "(", ")", "ه", "؟", "।", "हूँ", "…", "\u00A0", "\u2029" };
  g_autoptr (GRand) rand = g_rand_new_with_seed (GPOINTER_TO_UINT (data));

  for (guint round = 0; round < 100; round++) {
    guint max = g_rand_int_range (rand, 1, 20), min = g_rand_int_range (rand, 1, max + 1);
    g_autoptr (LycheeChunker) chunker = lychee_chunker_new (min, max);
    g_autoptr (GPtrArray) chunks = new_chunks ();
    g_autoptr (GString) text = g_string_new (NULL);
    guint n = g_rand_int_range (rand, 0, 300);
    gint32 id = 0;

    for (guint i = 0; i < n; i++)
      g_string_append (text, pieces[g_rand_int_range (rand, 0, G_N_ELEMENTS (pieces))]);
    for (gsize at = 0; at < text->len;) {
      gsize length = g_rand_int_range (rand, 0, 6);

      length = MIN (length, text->len - at);
      push (chunker, id++, text->str + at, length, chunks);
      at += length;
      g_assert_cmpuint (lychee_chunker_get_n_open (chunker), <=, max + 8);
      if (round % 3 == 0 && g_rand_int_range (rand, 0, 6) == 0) {
        guint n_open = lychee_chunker_get_n_open (chunker);
        guint n_hasten = g_rand_int_range (rand, 0, n_open + 2);

        lychee_chunker_hasten (chunker, n_hasten, chunks);
        g_assert_cmpuint (lychee_chunker_get_n_open (chunker), <=, n_open - MIN (n_hasten, n_open));
      }
    }
    lychee_chunker_drain (chunker, chunks);
    check_chunks (chunks, text->str, id, round % 3 == 0 ? 1 : min, max);
  }
}

/* Bytes at random: always valid text out, every id once. */
static void
test_random_bytes (void)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed (1);

  for (guint round = 0; round < 200; round++) {
    g_autoptr (LycheeChunker) chunker = lychee_chunker_new (8, 16);
    g_autoptr (GPtrArray) chunks = new_chunks ();
    g_autoptr (GString) all = g_string_new (NULL);
    gint32 n = g_rand_int_range (rand, 0, 200);

    for (gint32 id = 0; id < n; id++) {
      char bytes[5];
      guint length = g_rand_int_range (rand, 0, 6);

      for (guint i = 0; i < length; i++)
        bytes[i] = g_rand_int_range (rand, 0, 256);
      push (chunker, id, bytes, length, chunks);
    }
    lychee_chunker_drain (chunker, chunks);
    for (guint i = 0; i < chunks->len; i++)
      g_string_append (all, ((LycheeChunk *) g_ptr_array_index (chunks, i))->text);
    check_chunks (chunks, all->str, n, 8, 16);
  }
}

/* A megabyte: linear time, bounded memory. */
static void
test_megabyte (gconstpointer data)
{
  const char *unit = data;
  g_autoptr (LycheeChunker) chunker = lychee_chunker_new (8, 16);
  g_autoptr (GPtrArray) chunks = new_chunks ();
  g_autoptr (GString) text = g_string_new (NULL);
  gint32 n;

  while (text->len < 1 << 20)
    g_string_append (text, unit);
  n = push_text (chunker, text->str, SPLIT_WORDS, 0, chunks);
  lychee_chunker_drain (chunker, chunks);
  check_chunks (chunks, text->str, n, 8, 16);
}

/* A token of a megabyte is one token of a chunk. */
static void
test_megabyte_token (gconstpointer data)
{
  const char *unit = data;
  g_autoptr (LycheeChunker) chunker = lychee_chunker_new (8, 16);
  g_autoptr (GPtrArray) chunks = new_chunks ();
  g_autoptr (GString) text = g_string_new (NULL), all = g_string_new (NULL);

  while (text->len < 1 << 20)
    g_string_append (text, unit);
  for (guint i = 0; i < 20; i++) {
    push (chunker, i, text->str, text->len, chunks);
    g_string_append_len (all, text->str, text->len);
  }
  lychee_chunker_drain (chunker, chunks);
  check_chunks (chunks, all->str, 20, 8, 16);
}

#define ADD_TABLE(path, table, func)                                                               \
  for (guint i = 0; i < G_N_ELEMENTS (table); i++) {                                               \
    g_autofree char *name = g_strconcat (path, (table)[i].name, NULL);                             \
    g_test_add_data_func (name, &(table)[i], func);                                                \
  }

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, NULL);
  g_test_set_nonfatal_assertions ();
  ADD_TABLE ("/chunker/chunks/", chunk_cases, test_chunks)
  for (guint i = 0; i < 4 * G_N_ELEMENTS (languages); i++) {
    g_autofree char *name =
        g_strdup_printf ("/chunker/language/%s/%s", languages[i / 4].name, split_names[i % 4]);

    g_test_add_data_func (name, GUINT_TO_POINTER (i), test_language);
  }
  ADD_TABLE ("/chunker/language/sentences/", languages, test_language_sentences)
  ADD_TABLE ("/chunker/language/unspaced/", unspaced_cases, test_unspaced)
  g_test_add_data_func (
      "/chunker/character/whole/bytes", GUINT_TO_POINTER (SPLIT_BYTES), test_character_whole);
  g_test_add_data_func ("/chunker/character/whole/first-part", GUINT_TO_POINTER (SPLIT_FIRST_PART),
      test_character_whole);
  g_test_add_func ("/chunker/character/cut", test_character_cut);
  ADD_TABLE ("/chunker/invalid/", invalid_cases, test_invalid)
  g_test_add_func ("/chunker/invalid/nul", test_nul);
  ADD_TABLE ("/chunker/times/", time_cases, test_times)
  g_test_add_func ("/chunker/times/per-chunk", test_times_per_chunk);
  g_test_add_func ("/chunker/speaker", test_speaker_in_chunk);
  g_test_add_func ("/chunker/drain", test_drain_goes_on);
  g_test_add_func ("/chunker/reset", test_reset);
  g_test_add_func ("/chunker/properties", test_properties);
  g_test_add_func ("/chunker/prompt", test_prompt);
  g_test_add_func ("/chunker/only-spaces", test_only_spaces);
  g_test_add_data_func ("/chunker/random/1", GUINT_TO_POINTER (1), test_random);
  g_test_add_data_func ("/chunker/random/2", GUINT_TO_POINTER (2), test_random);
  g_test_add_func ("/chunker/random/bytes", test_random_bytes);
  g_test_add_data_func ("/chunker/megabyte/words", "and then we went. ", test_megabyte);
  g_test_add_data_func ("/chunker/megabyte/letters", "a", test_megabyte);
  g_test_add_data_func ("/chunker/megabyte/spaces", " ", test_megabyte);
  g_test_add_data_func ("/chunker/megabyte/quotes", "\"", test_megabyte);
  g_test_add_data_func ("/chunker/megabyte/newlines", "\n", test_megabyte);
  g_test_add_data_func ("/chunker/megabyte/marks", "\u0301", test_megabyte);
  g_test_add_data_func ("/chunker/megabyte/flags", "🇩", test_megabyte);
  g_test_add_data_func ("/chunker/megabyte/han", "漢字。", test_megabyte);
  g_test_add_data_func ("/chunker/megabyte/token-letters", "ab", test_megabyte_token);
  g_test_add_data_func ("/chunker/megabyte/token-spaces", " ", test_megabyte_token);
  g_test_add_data_func ("/chunker/megabyte/token-quotes", "\"", test_megabyte_token);
  g_test_add_data_func ("/chunker/megabyte/token-newlines", "\n", test_megabyte_token);
  return g_test_run ();
}
