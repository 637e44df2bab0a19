/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* lycheetokenizer: what comes in as text, in any pieces, comes out as the ids of the whole, each
 * with the time of its own cue. */

#include "lychee-model-tokenizer.h"
#include "test-elements-common.h"

#include <string.h>

#define MARKUP_CAPS "text/x-raw, format=(string)pango-markup"
#define NONE GST_CLOCK_TIME_NONE
#define TOKENIZER "lycheetokenizer name=t model=MODEL"

typedef struct {
  const char *text;
  gssize length; /* -1: up to NUL; of an input NULL text ends the list */
  gint second;   /* -1: no time */
} Cue;

typedef struct {
  const char *name;
  const char *caps;
  const char *separator; /* NULL: the default */
  Cue in[8];
  Cue out[8]; /* all the text of each time, in order */
} Case;

static const Case cases[] = {
  { "one", TEST_TEXT_CAPS, NULL, { { "The hat", -1, 3 } }, { { "The hat", -1, 3 } } },
  { "two-cues", TEST_TEXT_CAPS, NULL, { { "the hat", -1, 0 }, { "and the cat", -1, 1 } },
      { { "the hat\n", -1, 0 }, { "and the cat", -1, 1 } } },
  { "space", TEST_TEXT_CAPS, " ", { { "the", -1, 0 }, { "sand", -1, 1 }, { "and", -1, 2 } },
      { { "the", -1, 0 }, { " sand", -1, 1 }, { " and", -1, 2 } } },
  { "no-separator", TEST_TEXT_CAPS, "", { { "th", -1, 0 }, { "e", -1, 0 } }, { { "the", -1, 0 } } },
  { "ends-in-space", TEST_TEXT_CAPS, NULL, { { "the hat\n", -1, 0 }, { "and", -1, 1 } },
      { { "the hat\n", -1, 0 }, { "and", -1, 1 } } },
  { "begins-with-space", TEST_TEXT_CAPS, NULL, { { "the", -1, 0 }, { " hat", -1, 1 } },
      { { "the", -1, 0 }, { " hat", -1, 1 } } },
  { "wide-space", TEST_TEXT_CAPS, NULL, { { "the\u3000", -1, 0 }, { "hat", -1, 1 } },
      { { "the\u3000", -1, 0 }, { "hat", -1, 1 } } },
  { "blocks-of-a-file", TEST_TEXT_CAPS, NULL, { { "the h", -1, -1 }, { "at", -1, -1 } },
      { { "the hat", -1, -1 } } },
  { "split-character", TEST_TEXT_CAPS, NULL, { { "caf\xc3", -1, -1 }, { "\xa9 au", -1, -1 } },
      { { "café au", -1, -1 } } },
  { "split-character-timed", TEST_TEXT_CAPS, NULL, { { "caf\xc3", -1, 0 }, { "\xa9 au", -1, 1 } },
      { { "caf", -1, 0 }, { "é au", -1, 1 } } },
  { "split-in-four", TEST_TEXT_CAPS, NULL,
      { { "x\xf0", -1, -1 }, { "\x9f", -1, -1 }, { "\xa6", -1, -1 }, { "\x93y", -1, -1 } },
      { { "x🦓y", -1, -1 } } },
  { "nul-at-the-end", TEST_TEXT_CAPS, NULL, { { "the\0", 4, 0 }, { "hat\0\0", 5, 1 } },
      { { "the ", -1, 0 }, { "hat", -1, 1 } } },
  { "nul-inside", TEST_TEXT_CAPS, NULL, { { "a\0b", 3, 0 } }, { { "ab", -1, 0 } } },
  { "empty", TEST_TEXT_CAPS, NULL, { { "the", -1, 0 }, { "", 0, 1 }, { "hat", -1, 2 } },
      { { "the ", -1, 0 }, { "hat", -1, 2 } } },
  { "plain-text", "text/plain", NULL, { { "a <b> &amp; c", -1, 0 } },
      { { "a <b> &amp; c", -1, 0 } } },
  { "utf8-is-not-markup", TEST_TEXT_CAPS, NULL, { { "a <i>b</i>", -1, 0 } },
      { { "a <i>b</i>", -1, 0 } } },
  { "markup", MARKUP_CAPS, NULL, { { "<i>the</i> h&amp;<b>a<u>t</u></b>&#233;", -1, 0 } },
      { { "the h&até", -1, 0 } } },
  { "markup-attributes", MARKUP_CAPS, NULL,
      { { "<span foreground=\"red\" size='x'>the</span> hat", -1, 0 } }, { { "the hat", -1, 0 } } },
  { "markup-open-tag", MARKUP_CAPS, NULL, { { "<i>the", -1, 0 } }, { { "<i>the", -1, 0 } } },
  { "markup-invalid", MARKUP_CAPS, NULL, { { "a < b & c", -1, 0 } }, { { "a < b & c", -1, 0 } } },
  { "markup-escapes-root", MARKUP_CAPS, NULL, { { "a</markup><markup>b", -1, 0 } },
      { { "ab", -1, 0 } } },
  { "markup-of-nothing", MARKUP_CAPS, NULL, { { "<i></i>", -1, 0 }, { "hat", -1, 1 } },
      { { "hat", -1, 1 } } },
  { "control-tokens-are-text", TEST_TEXT_CAPS, NULL, { { "a<|im_end|>b", -1, 0 } },
      { { "a<|im_end|>b", -1, 0 } } },
  { "not-utf8", TEST_TEXT_CAPS, NULL,
      { { "a\xff\xfe"
          "b",
          -1, 0 } },
      { { "a\xff\xfe"
          "b",
          -1, 0 } } },
};

static GstClockTime
time_of (const Cue *cue)
{
  return cue->second >= 0 ? (guint) cue->second * GST_SECOND : NONE;
}

/* One buffer's place, its tokens and its text hang together. */
static void
check_buffer (GstBuffer *buffer, GArray *ids)
{
  LycheeTextMeta *meta = test_text_meta (buffer);
  gsize end = 0;
  GstMapInfo map;

  g_assert_nonnull (meta);
  g_assert_true (gst_buffer_map (buffer, &map, GST_MAP_READ));
  g_assert_cmpuint (map.size, ==, meta->n_tokens * sizeof (gint32));
  for (guint i = 0; i < meta->n_tokens; i++) {
    g_assert_cmpint (((gint32 *) map.data)[i], ==, meta->tokens[i].id);
    if (meta->tokens[i].length > 0)
      g_assert_cmpuint (meta->tokens[i].offset, ==, end);
    end += meta->tokens[i].length;
  }
  g_assert_cmpuint (end, ==, meta->text_length);
  g_array_append_vals (ids, map.data, meta->n_tokens);
  gst_buffer_unmap (buffer, &map);
}

static void
test_case (gconstpointer data)
{
  const Case *c = data;
  LycheeTokenizer *tokenizer = lychee_model_get_tokenizer (test_get_model ());
  GArray *ids = g_array_new (FALSE, FALSE, sizeof (gint32));
  GArray *expected = g_array_new (FALSE, FALSE, sizeof (gint32));
  GString *whole = g_string_new (NULL);
  Chain chain;
  GstBuffer *buffer;

  test_chain_init (&chain, TOKENIZER, c->caps);
  if (c->separator != NULL) {
    GstElement *tokenizer_element = test_chain_get (&chain, "t");

    g_object_set (tokenizer_element, "separator", c->separator, NULL);
    gst_object_unref (tokenizer_element);
  }
  for (guint i = 0; c->in[i].text != NULL; i++)
    g_assert_cmpint (gst_harness_push (chain.harness,
                         test_text_buffer (c->in[i].text, c->in[i].length, time_of (&c->in[i]),
                             c->in[i].second >= 0 ? GST_SECOND : NONE)),
        ==, GST_FLOW_OK);
  g_assert_true (gst_harness_push_event (chain.harness, gst_event_new_eos ()));

  buffer = gst_harness_try_pull (chain.harness);
  for (guint i = 0; c->out[i].text != NULL; i++) {
    GstClockTime pts = time_of (&c->out[i]);
    GString *text = g_string_new (NULL);

    while (buffer != NULL && GST_BUFFER_PTS (buffer) == pts) {
      LycheeTextMeta *meta = test_text_meta (buffer);

      g_assert_cmpuint (GST_BUFFER_DURATION (buffer), ==, pts == NONE ? NONE : GST_SECOND);
      check_buffer (buffer, ids);
      g_string_append_len (text, meta->text, meta->text_length);
      gst_buffer_unref (buffer);
      buffer = gst_harness_try_pull (chain.harness);
    }
    g_assert_cmpstr (text->str, ==, c->out[i].text);
    g_string_append_len (whole, text->str, text->len);
    g_string_free (text, TRUE);
  }
  g_assert_null (buffer);

  lychee_tokenizer_encode (tokenizer, whole->str, whole->len, LYCHEE_TOKENIZER_NONE, expected);
  g_assert_cmpmem (
      ids->data, ids->len * sizeof (gint32), expected->data, expected->len * sizeof (gint32));
  for (guint i = 0; i < ids->len; i++)
    g_assert_false (lychee_tokenizer_is_control (tokenizer, g_array_index (ids, gint32, i)));

  g_string_free (whole, TRUE);
  g_array_unref (ids);
  g_array_unref (expected);
  test_chain_clear (&chain);
}

/* All text that is out by now. */
static char *
text_so_far (Chain *chain)
{
  GString *text = g_string_new (NULL);
  GstBuffer *buffer;

  while ((buffer = gst_harness_try_pull (chain->harness)) != NULL) {
    LycheeTextMeta *meta = test_text_meta (buffer);

    g_string_append_len (text, meta->text, meta->text_length);
    gst_buffer_unref (buffer);
  }
  return g_string_free (text, FALSE);
}

#define assert_text(chain, expected)                                                               \
  G_STMT_START                                                                                     \
  {                                                                                                \
    char *text_ = text_so_far (chain);                                                             \
    g_assert_cmpstr (text_, ==, expected);                                                         \
    g_free (text_);                                                                                \
  }                                                                                                \
  G_STMT_END

static void
test_caps (void)
{
  Chain chain;
  GstCaps *caps;
  GstPad *pad;

  test_chain_init (&chain, TOKENIZER, TEST_TEXT_CAPS);
  test_chain_say (&chain, "the", 0);
  pad = gst_element_get_static_pad (chain.harness->element, "src");
  caps = gst_pad_get_current_caps (pad);
  g_assert_true (
      gst_structure_has_name (gst_caps_get_structure (caps, 0), "application/x-lychee-tokens"));
  g_assert_cmpstr (gst_structure_get_string (gst_caps_get_structure (caps, 0), "model"), ==,
      lychee_model_get_id (test_get_model ()));
  gst_caps_unref (caps);
  gst_object_unref (pad);
  test_chain_clear (&chain);
}

/* The last word waits for what comes after it, unless something says that nothing does. */
static void
test_drain (gconstpointer data)
{
  const char *how = data;
  Chain chain;

  test_chain_init (&chain, TOKENIZER, TEST_TEXT_CAPS);
  test_chain_say (&chain, "the hat", 0);
  char *before = text_so_far (&chain);
  g_assert_cmpstr (before, !=, "the hat");

  if (g_str_equal (how, "gap"))
    gst_harness_push_event (chain.harness, gst_event_new_gap (GST_SECOND, GST_SECOND));
  else if (g_str_equal (how, "segment"))
    test_chain_segment (&chain, 0);
  else if (g_str_equal (how, "segment-done"))
    gst_harness_push_event (
        chain.harness, gst_event_new_segment_done (GST_FORMAT_TIME, GST_SECOND));
  else if (g_str_equal (how, "final"))
    gst_harness_push_event (
        chain.harness, gst_event_new_custom (GST_EVENT_CUSTOM_DOWNSTREAM,
                           gst_structure_new_empty ("rstranscribe/final-transcript")));
  else if (g_str_equal (how, "eos"))
    gst_harness_push_event (chain.harness, gst_event_new_eos ());
  else {
    GstBuffer *buffer = test_text_buffer ("", 0, GST_SECOND, 0);

    GST_BUFFER_FLAG_SET (buffer, GST_BUFFER_FLAG_DISCONT);
    gst_harness_push (chain.harness, buffer);
  }
  char *after = text_so_far (&chain);
  char *all = g_strconcat (before, after, NULL);
  g_assert_cmpstr (all, ==, "the hat");
  g_free (all);
  g_free (after);
  g_free (before);
  test_chain_clear (&chain);
}

static void
test_flush (void)
{
  Chain chain;

  test_chain_init (&chain, TOKENIZER, TEST_TEXT_CAPS);
  test_chain_say (&chain, "the ca\xc3", 0);
  g_free (text_so_far (&chain));
  test_chain_flush (&chain);
  test_chain_segment (&chain, 0);
  test_chain_say (&chain, "new", 0);
  gst_harness_push_event (chain.harness, gst_event_new_eos ());
  assert_text (&chain, "new");
  test_chain_clear (&chain);
}

static void
test_replaced_warning (void)
{
  Chain chain;

  test_chain_init (&chain, TOKENIZER, TEST_TEXT_CAPS);
  test_chain_say (&chain,
      "a\xff"
      "b",
      0);
  g_assert_null (test_pop (chain.bus, GST_MESSAGE_WARNING));
  gst_harness_push_event (chain.harness, gst_event_new_eos ());
  test_assert_error (test_pop (chain.bus, GST_MESSAGE_WARNING), GST_STREAM_ERROR,
      GST_STREAM_ERROR_DECODE, "1 bytes");
  test_chain_clear (&chain);
}

static void
test_speaker (void)
{
  static const char *const names[] = { NULL, "Ann", "Bob" };
  Chain chain;
  GstBuffer *buffer;
  guint seen = 0;

  test_chain_init (&chain, TOKENIZER, TEST_TEXT_CAPS);
  for (guint i = 0; i < 3; i++) {
    if (names[i] != NULL)
      gst_harness_push_event (chain.harness, gst_event_new_custom (GST_EVENT_CUSTOM_DOWNSTREAM,
                                                 gst_structure_new ("rstranscribe/speaker-change",
                                                     "speaker", G_TYPE_STRING, names[i], NULL)));
    test_chain_say (&chain, "the hat", i);
  }
  gst_harness_push_event (chain.harness, gst_event_new_eos ());
  while ((buffer = gst_harness_try_pull (chain.harness)) != NULL) {
    guint i = GST_BUFFER_PTS (buffer) / GST_SECOND;

    g_assert_cmpstr (test_text_meta (buffer)->speaker, ==, names[i]);
    seen |= 1u << i;
    gst_buffer_unref (buffer);
  }
  g_assert_cmpuint (seen, ==, 7);
  test_chain_clear (&chain);
}

/* Turns of talk: "NAME=text" is told by a meta, "NAME>text" by an event before; "=text" by nobody.
 */
typedef struct {
  const char *name;
  gboolean labels;
  const char *turns[6];
  const char *text;
} LabelCase;

static const LabelCase label_cases[] = {
  { "meta", TRUE, { "Ann=the hat", "Ann=and", "Bob=so", NULL }, "Ann: the hat and\nBob: so" },
  { "event", TRUE, { "Ann>the hat", "=and", "Bob>so", NULL }, "Ann: the hat and\nBob: so" },
  { "text-has-it", TRUE, { "Ann=Ann: the hat", "Ann=and", "Bob=Bob: so", NULL },
      "Ann: the hat\nand\nBob: so" },
  { "text-has-another", TRUE, { "Ann=Bob: said he", NULL }, "Ann: Bob: said he" },
  { "back-again", TRUE, { "Ann=a", "Bob=b", "Ann=c", NULL }, "Ann: a\nBob: b\nAnn: c" },
  { "nobody-first", TRUE, { "=a", "Ann=b", NULL }, "a\nAnn: b" },
  { "nobody-then", TRUE, { "Ann=a", "=b", "=c", "Ann=d", NULL }, "Ann: a\nb c\nAnn: d" },
  { "meta-over-event", TRUE, { "Ann>a", "Bob=b", "=c", NULL }, "Ann: a\nBob: b\nAnn: c" },
  { "off", FALSE, { "Ann=the hat", "Ann=and", "Bob=so", NULL }, "the hat and\nso" },
};

static void
add_speaker (GstBuffer *buffer, const char *speaker)
{
  LycheeTextMeta *meta =
      (LycheeTextMeta *) gst_buffer_add_meta (buffer, gst_meta_get_info ("LycheeTextMeta"), NULL);

  meta->speaker = g_strdup (speaker);
}

static void
test_labels (gconstpointer data)
{
  const LabelCase *c = data;
  GstElement *tokenizer;
  Chain chain;

  test_chain_init (&chain, TOKENIZER, TEST_TEXT_CAPS);
  tokenizer = test_chain_get (&chain, "t");
  g_object_set (tokenizer, "speaker-labels", c->labels, NULL);
  gst_object_unref (tokenizer);
  for (guint i = 0; c->turns[i] != NULL; i++) {
    gsize n = strcspn (c->turns[i], "=>");
    char *speaker = g_strndup (c->turns[i], n);
    GstBuffer *buffer = test_text_buffer (c->turns[i] + n + 1, -1, i * GST_SECOND, GST_SECOND);

    if (c->turns[i][n] == '>')
      gst_harness_push_event (chain.harness, gst_event_new_custom (GST_EVENT_CUSTOM_DOWNSTREAM,
                                                 gst_structure_new ("rstranscribe/speaker-change",
                                                     "speaker", G_TYPE_STRING, speaker, NULL)));
    else if (n > 0)
      add_speaker (buffer, speaker);
    g_assert_cmpint (gst_harness_push (chain.harness, buffer), ==, GST_FLOW_OK);
    g_free (speaker);
  }
  gst_harness_push_event (chain.harness, gst_event_new_eos ());
  assert_text (&chain, c->text);
  test_chain_clear (&chain);
}

/* Words that come one by one, a second each: their text, and the times of the whole. */
typedef struct {
  const char *name;
  const char *caps;
  const char *pieces; /* parted by '|' */
  const char *text;
} WordsCase;

static const WordsCase words_cases[] = {
  { "english", TEST_TEXT_CAPS, "so|,|the|hat|and|it|'s|.", "so, the hat and it's." },
  { "plain", "text/plain", "the|hat", "the hat" },
  { "markup", MARKUP_CAPS, "<b>the</b>|<i>hat</i>|.", "the hat." },
  { "chinese", TEST_TEXT_CAPS, "我们|明天|走|。", "我们明天走。" },
  { "korean", TEST_TEXT_CAPS, "나는|간다|.", "나는 간다." },
};

static void
test_words (gconstpointer data)
{
  const WordsCase *c = data;
  char **pieces = g_strsplit (c->pieces, "|", -1);
  guint n = g_strv_length (pieces);
  LycheeChunk *chunk;
  GstBuffer *buffer;
  Chain chain;

  test_chain_init (&chain,
      TOKENIZER " ! lycheechunker detector=structure min-tokens=100 max-tokens=100", c->caps);
  for (guint i = 0; i < n; i++)
    g_assert_cmpint (test_chain_say (&chain, pieces[i], 5 + i), ==, GST_FLOW_OK);
  gst_harness_push_event (chain.harness, gst_event_new_eos ());
  buffer = gst_harness_try_pull (chain.harness);
  g_assert_nonnull (buffer);
  chunk = test_chunk_meta (buffer)->chunk;
  g_assert_cmpstr (chunk->text, ==, c->text);
  g_assert_cmpuint (GST_BUFFER_PTS (buffer), ==, 5 * GST_SECOND);
  g_assert_cmpuint (GST_BUFFER_DURATION (buffer), ==, n * GST_SECOND);
  gst_buffer_unref (buffer);
  g_assert_null (gst_harness_try_pull (chain.harness));
  g_strfreev (pieces);
  test_chain_clear (&chain);
}

/* As pocketsphinx has it: no caps, no times, a line a buffer. */
static void
test_no_caps (void)
{
  Chain chain;

  test_chain_init_without_caps (&chain, TOKENIZER);
  gst_harness_push_event (chain.harness, gst_event_new_stream_start ("speech"));
  test_chain_segment (&chain, 0);
  gst_harness_push (chain.harness, test_text_buffer ("the <b>hat</b>\n", -1, NONE, NONE));
  gst_harness_push (chain.harness, test_text_buffer ("and so\n", -1, NONE, NONE));
  gst_harness_push_event (chain.harness, gst_event_new_eos ());
  assert_text (&chain, "the <b>hat</b>\nand so\n");
  test_chain_clear (&chain);
}

/* A gap between words leaves them as they are. */
static void
test_gap_between_words (void)
{
  Chain chain;

  test_chain_init (&chain, TOKENIZER, TEST_TEXT_CAPS);
  test_chain_say (&chain, "the", 0);
  gst_harness_push_event (chain.harness, gst_event_new_gap (GST_SECOND, GST_SECOND));
  assert_text (&chain, "the");
  test_chain_say (&chain, "hat", 2);
  gst_harness_push_event (chain.harness, gst_event_new_eos ());
  assert_text (&chain, " hat");
  test_chain_clear (&chain);
}

/* However much text a cue is, it goes through once. */
static void
test_long_text (void)
{
  GString *text = g_string_new (NULL);
  Chain chain;

  for (guint i = 0; i < 20000; i++)
    g_string_append (text, "the hat and ");
  test_chain_init (&chain, TOKENIZER, TEST_TEXT_CAPS);
  for (gsize at = 0; at < text->len; at += 4096)
    gst_harness_push (
        chain.harness, test_text_buffer (text->str + at, MIN (4096, text->len - at), NONE, NONE));
  gst_harness_push_event (chain.harness, gst_event_new_eos ());
  char *out = text_so_far (&chain);
  g_assert_cmpstr (out, ==, text->str);
  g_free (out);
  g_string_free (text, TRUE);
  test_chain_clear (&chain);
}

static void
add_tests (void)
{
  for (guint i = 0; i < G_N_ELEMENTS (cases); i++) {
    char *path = g_strconcat ("/tokenizer/text/", cases[i].name, NULL);

    g_test_add_data_func (path, &cases[i], test_case);
    g_free (path);
  }
  g_test_add_func ("/tokenizer/caps", test_caps);
  g_test_add_data_func ("/tokenizer/drain/gap", "gap", test_drain);
  g_test_add_data_func ("/tokenizer/drain/segment", "segment", test_drain);
  g_test_add_data_func ("/tokenizer/drain/segment-done", "segment-done", test_drain);
  g_test_add_data_func ("/tokenizer/drain/discont", "discont", test_drain);
  g_test_add_data_func ("/tokenizer/drain/final-transcript", "final", test_drain);
  g_test_add_data_func ("/tokenizer/drain/eos", "eos", test_drain);
  g_test_add_func ("/tokenizer/flush", test_flush);
  g_test_add_func ("/tokenizer/replaced-warning", test_replaced_warning);
  g_test_add_func ("/tokenizer/speaker", test_speaker);
  for (guint i = 0; i < G_N_ELEMENTS (label_cases); i++) {
    char *name = g_strconcat ("/tokenizer/labels/", label_cases[i].name, NULL);

    g_test_add_data_func (name, &label_cases[i], test_labels);
    g_free (name);
  }
  for (guint i = 0; i < G_N_ELEMENTS (words_cases); i++) {
    char *name = g_strconcat ("/tokenizer/words/", words_cases[i].name, NULL);

    g_test_add_data_func (name, &words_cases[i], test_words);
    g_free (name);
  }
  g_test_add_func ("/tokenizer/no-caps", test_no_caps);
  g_test_add_func ("/tokenizer/words/gap", test_gap_between_words);
  g_test_add_func ("/tokenizer/long-text", test_long_text);
}

int
main (int argc, char **argv)
{
  return test_main (argc, argv, add_tests);
}
