/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* lycheedecoder: the answer is the library's, it comes from a thread of its own, and whatever
 * happens in the middle of it ends it within a token. */

#include "test-elements-common.h"

#include <string.h>

#define READ                                                                                       \
  "lycheetokenizer model=MODEL ! lycheechunker detector=structure ! lycheeindexer name=i "         \
  "model=MODEL "                                                                                   \
  "system-prompt=\"\" "
#define CHAIN READ "! lycheedecoder name=d model=MODEL prompt=\"What is said?\" "
/* So long that nothing of it is ever over by itself. */
#define ENDLESS CHAIN "max-tokens=0 "

static void
read_and_ask (Chain *chain, guint first, guint n)
{
  test_chain_say_much (chain, first, n);
  g_assert_true (gst_harness_push_event (chain->harness, gst_event_new_eos ()));
}

static gboolean
get_truncated (GstMessage *message)
{
  gboolean value = FALSE;

  g_assert_true (
      gst_structure_get_boolean (gst_message_get_structure (message), "truncated", &value));
  return value;
}

static void
test_answer (void)
{
  Chain chain;
  GstMessage *message;
  GstElement *decoder;
  GstStructure *stats = NULL;
  char *text, *expected;
  double seconds = 0, to_first = 0;
  guint n, answers = 0;

  test_chain_init (&chain, CHAIN "max-tokens=30", TEST_TEXT_CAPS);
  test_chain_say_much (&chain, 0, 10);
  g_assert_null (gst_harness_try_pull (chain.harness));
  gst_harness_push_event (chain.harness, gst_event_new_eos ());
  text = test_chain_pull_text (&chain, &n);
  message = test_wait_element (chain.bus, "lychee-answer");

  expected = test_own_answer (0, 10, "What is said?", NULL, 30);
  test_assert_same_answer (text, expected);
  g_assert_cmpuint (n, >, 1);
  test_assert_same_answer (text, test_get_string (message, "text"));
  g_assert_cmpstr (test_get_string (message, "prompt"), ==, "What is said?");
  g_assert_cmpstr (test_get_string (message, "finish"), ==, "length");
  g_assert_cmpuint (test_get_uint (message, "answer-tokens"), ==, 30);
  g_assert_cmpuint (test_get_uint (message, "prompt-tokens"), >, 0);
  g_assert_cmpuint (test_get_uint (message, "transcript-tokens"), >, 100);
  g_assert_false (get_truncated (message));
  g_assert_true (gst_structure_get (gst_message_get_structure (message), "seconds", G_TYPE_DOUBLE,
      &seconds, "seconds-to-first", G_TYPE_DOUBLE, &to_first, NULL));
  g_assert_cmpfloat (to_first, >, 0);
  g_assert_cmpfloat (seconds, >=, to_first);

  decoder = test_chain_get (&chain, "d");
  g_object_get (decoder, "stats", &stats, NULL);
  g_assert_true (gst_structure_get_uint (stats, "answers", &answers));
  g_assert_cmpuint (answers, ==, 1);
  g_assert_true (gst_structure_get_uint (stats, "answer-tokens", &answers));
  g_assert_cmpuint (answers, ==, 30);
  gst_structure_free (stats);
  gst_object_unref (decoder);

  gst_message_unref (message);
  g_free (text);
  g_free (expected);
  test_chain_clear (&chain);
}

/* Quotes: sentences that were said, each with its time, which no marks are put to. */
static void
test_quotes (gconstpointer data)
{
  g_autofree char *description =
      g_strdup_printf (CHAIN "quotes=4 marks=true stream=%s", (const char *) data);
  g_auto (GStrv) lines = NULL;
  GstMessage *message;
  Chain chain;
  char *text;
  guint n;

  test_chain_init (&chain, description, TEST_TEXT_CAPS);
  read_and_ask (&chain, 0, 20);
  text = test_chain_pull_text (&chain, &n);
  message = test_wait_element (chain.bus, "lychee-answer");
  test_assert_same_answer (text, test_get_string (message, "text"));
  g_assert_cmpstr (test_get_string (message, "finish"), ==, "stop");
  g_assert_cmpuint (test_get_uint (message, "answer-tokens"), ==, 0);
  lines = g_strsplit (g_strchomp (text), "\n", -1);
  g_assert_cmpuint (g_strv_length (lines), >, 1);
  for (guint i = 0; lines[i]; i++)
    g_assert_true (g_regex_match_simple ("^\\[00:00:[0-9]{2}\\] [^[]+$", lines[i], 0, 0));
  gst_message_unref (message);
  g_free (text);
  test_chain_clear (&chain);
}

/* Stream start, caps and segment come first; the answer has the time of the transcript's end. */
static void
test_stream (void)
{
  static const GstEventType types[] = { GST_EVENT_STREAM_START, GST_EVENT_CAPS, GST_EVENT_SEGMENT };
  const GstSegment *segment;
  Chain chain;
  GstBuffer *buffer;
  GstEvent *event;
  GstCaps *caps, *expected;

  test_chain_init (&chain, CHAIN "max-tokens=5", TEST_TEXT_CAPS);
  read_and_ask (&chain, 7, 5);
  for (guint i = 0; i < G_N_ELEMENTS (types); i++) {
    event = gst_harness_pull_event (chain.harness);
    g_assert_nonnull (event);
    g_assert_cmpint (GST_EVENT_TYPE (event), ==, types[i]);
    if (types[i] == GST_EVENT_CAPS) {
      gst_event_parse_caps (event, &caps);
      expected = gst_caps_from_string (TEST_TEXT_CAPS);
      g_assert_true (gst_caps_is_equal (caps, expected));
      gst_caps_unref (expected);
    } else if (types[i] == GST_EVENT_SEGMENT) {
      gst_event_parse_segment (event, &segment);
      g_assert_cmpint (segment->format, ==, GST_FORMAT_TIME);
      g_assert_cmpuint (segment->stop, ==, GST_CLOCK_TIME_NONE);
    }
    gst_event_unref (event);
  }
  buffer = gst_harness_pull (chain.harness);
  g_assert_nonnull (buffer);
  g_assert_cmpuint (GST_BUFFER_PTS (buffer), ==, 12 * GST_SECOND);
  g_assert_true (GST_BUFFER_FLAG_IS_SET (buffer, GST_BUFFER_FLAG_DISCONT));
  gst_buffer_unref (buffer);
  g_assert_true (test_chain_wait_eos (&chain));
  test_chain_clear (&chain);
}

/* The properties reach the sampler: the answer is that of a sampler with the same settings. */
static void
test_sampling (gconstpointer data)
{
  char *settings = g_strdup_printf (CHAIN
      "max-tokens=30 temperature=0.8 top-k=40 top-p=0.95 min-p=0.01 repetition-penalty=1.1 "
      "seed=%u",
      GPOINTER_TO_UINT (data));
  LycheeSampler *sampler = lychee_sampler_new ();
  char *text, *expected;
  Chain chain;

  g_object_set (sampler, "temperature", 0.8, "top-k", 40u, "top-p", 0.95, "min-p", 0.01,
      "repetition-penalty", 1.1, "seed", (guint64) GPOINTER_TO_UINT (data), NULL);
  test_chain_init (&chain, settings, TEST_TEXT_CAPS);
  read_and_ask (&chain, 0, 5);
  text = test_chain_pull_text (&chain, NULL);
  expected = test_own_answer (0, 5, "What is said?", sampler, 30);
  test_assert_same_answer (text, expected);
  g_free (text);
  g_free (expected);
  g_free (settings);
  g_object_unref (sampler);
  test_chain_clear (&chain);
}

/* Nothing was read: nothing is made up. One warning, an empty answer that says why, and the stream
 * ends. */
static void
test_empty (gconstpointer data)
{
  Chain chain;
  GstMessage *message;
  char *text;

  test_chain_init (&chain, CHAIN, TEST_TEXT_CAPS);
  if (data != NULL)
    test_chain_say (&chain, data, 0);
  gst_harness_push_event (chain.harness, gst_event_new_eos ());
  text = test_chain_pull_text (&chain, NULL);
  g_assert_cmpstr (text, ==, "");
  message = test_pop (chain.bus, GST_MESSAGE_WARNING | GST_MESSAGE_ERROR);
  test_assert_error (message, GST_STREAM_ERROR, GST_STREAM_ERROR_WRONG_TYPE, "to answer from");
  message = test_wait_element (chain.bus, "lychee-answer");
  g_assert_cmpstr (test_get_string (message, "finish"), ==, "empty");
  g_assert_cmpstr (test_get_string (message, "text"), ==, "");
  g_assert_nonnull (test_get_string (message, "reason"));
  gst_message_unref (message);
  g_assert_null (test_pop (chain.bus, GST_MESSAGE_ERROR));
  g_free (text);
  test_chain_clear (&chain);
}

/* A transcript that was cut still gets its answer, which says so. */
static void
test_too_long (gconstpointer data)
{
  char *description =
      g_strdup_printf (READ "%s ! lycheedecoder model=MODEL max-tokens=10", (const char *) data);
  Chain chain;
  GstMessage *message;
  char *text;

  test_chain_init (&chain, description, TEST_TEXT_CAPS);
  read_and_ask (&chain, 0, 80);
  text = test_chain_pull_text (&chain, NULL);
  message = test_wait_element (chain.bus, "lychee-answer");
  g_assert_true (get_truncated (message));
  g_assert_cmpuint (test_get_uint (message, "answer-tokens"), ==, 10);
  g_assert_cmpuint (strlen (text), >, 0);
  g_free (text);
  g_free (description);
  gst_message_unref (message);
  test_chain_clear (&chain);
}

/* A question that is longer than what is left of the context. */
static void
test_no_room_for_question (void)
{
  GString *question = g_string_new (NULL);
  Chain chain;
  GstElement *decoder;
  char *text;

  for (guint i = 0; i < 100; i++)
    g_string_append (question, "Who said what? ");
  test_chain_init (
      &chain, READ "max-context=300 reserve=50 ! lycheedecoder name=d model=MODEL", TEST_TEXT_CAPS);
  decoder = test_chain_get (&chain, "d");
  g_object_set (decoder, "prompt", question->str, NULL);
  gst_object_unref (decoder);
  read_and_ask (&chain, 0, 40);
  text = test_chain_pull_text (&chain, NULL);
  g_assert_cmpstr (text, ==, "");
  test_assert_error (test_wait_error (chain.bus), GST_RESOURCE_ERROR,
      GST_RESOURCE_ERROR_NO_SPACE_LEFT, "There is no answer");
  g_free (text);
  g_string_free (question, TRUE);
  test_chain_clear (&chain);
}

static void
test_other_model_refused (void)
{
  Chain chain;

  test_chain_init (&chain, READ "! lycheedecoder model=OTHER", TEST_TEXT_CAPS);
  g_assert_cmpint (test_chain_say (&chain, "This is the first line of the talk.", 0), ==,
      GST_FLOW_NOT_NEGOTIATED);
  test_assert_error (
      test_wait_error (chain.bus), GST_CORE_ERROR, GST_CORE_ERROR_NEGOTIATION, test_other_model ());
  g_assert_null (test_pop (chain.bus, GST_MESSAGE_ERROR));
  test_chain_clear (&chain);
}

/* In the middle of an answer.
 *
 * A probe holds the answering thread at a piece of the answer until what the test does has reached
 * the pad (flush start has passed it, or it has been deactivated), and then lets it go: the answer
 * must be over with that piece. */

/* The answer ended at the piece where it was held: its text has no more than that, and of tokens
 * only those that had no whole character yet. */
static void
assert_cancelled (Chain *chain, Hold *hold)
{
  GstMessage *message = test_wait_element (chain->bus, "lychee-answer");

  g_assert_cmpstr (test_get_string (message, "finish"), ==, "cancelled");
  g_assert_cmpuint (hold->seen, ==, hold->at);
  g_assert_cmpuint (test_get_uint (message, "answer-tokens"), >=, hold->at);
  g_assert_cmpuint (test_get_uint (message, "answer-tokens"), <=, 4 * hold->at + 4);
  gst_message_unref (message);
}

static void
pull_all (Chain *chain)
{
  GstBuffer *buffer;
  GstEvent *event;

  while ((buffer = gst_harness_try_pull (chain->harness)) != NULL)
    gst_buffer_unref (buffer);
  while ((event = gst_harness_try_pull_event (chain->harness)) != NULL) {
    g_assert_cmpint (GST_EVENT_TYPE (event), !=, GST_EVENT_EOS);
    gst_event_unref (event);
  }
}

static void
drop_all (Chain *chain)
{
  GstBuffer *buffer;
  GstEvent *event;

  while ((buffer = gst_harness_try_pull (chain->harness)) != NULL)
    gst_buffer_unref (buffer);
  while ((event = gst_harness_try_pull_event (chain->harness)) != NULL)
    gst_event_unref (event);
}

/* A flush ends the answer, and what comes then is answered for itself. */
static void
test_flush (gconstpointer data)
{
  guint at = GPOINTER_TO_UINT (data);
  Chain chain;
  Hold hold;
  GstMessage *message;
  GstElement *decoder;
  char *text, *expected;

  test_chain_init (&chain, ENDLESS, TEST_TEXT_CAPS);
  test_hold_at (&hold, &chain, at);
  read_and_ask (&chain, 0, 10);
  test_hold_wait (&hold);
  test_chain_flush (&chain);
  assert_cancelled (&chain, &hold);
  pull_all (&chain);

  test_hold_clear (&hold);
  decoder = test_chain_get (&chain, "d");
  g_object_set (decoder, "max-tokens", 20, "prompt", "And now?", NULL);
  gst_object_unref (decoder);
  test_chain_segment (&chain, 0);
  read_and_ask (&chain, 3, 5);
  text = test_chain_pull_text (&chain, NULL);
  expected = test_own_answer (3, 5, "And now?", NULL, 20);
  test_assert_same_answer (text, expected);
  message = test_wait_element (chain.bus, "lychee-answer");
  g_assert_cmpstr (test_get_string (message, "finish"), ==, "length");
  gst_message_unref (message);
  g_free (text);
  g_free (expected);
  test_chain_clear (&chain);
}

/* A flush that comes before the answer has begun, or right after it was asked for: no answer of
 * before comes after it. */
static void
test_flush_at_once (void)
{
  Chain chain;
  char *text, *expected = test_own_answer (50, 5, "What is said?", NULL, 10);

  test_chain_init (&chain, CHAIN "max-tokens=10", TEST_TEXT_CAPS);
  for (guint i = 0; i < 20; i++) {
    read_and_ask (&chain, 0, 3);
    test_chain_flush (&chain);
    test_chain_segment (&chain, 0);
  }
  /* All that is left is what came before the flushes. */
  drop_all (&chain);
  read_and_ask (&chain, 50, 5);
  text = test_chain_pull_text (&chain, NULL);
  test_assert_same_answer (text, expected);
  g_free (expected);
  g_free (text);
  test_chain_clear (&chain);
}

/* To READY or NULL in the middle of the answer, and up again. */
static void
test_state (gconstpointer data)
{
  GstState to = GPOINTER_TO_INT (data);
  Chain chain;
  Hold hold;

  test_chain_init (&chain, ENDLESS, TEST_TEXT_CAPS);
  test_hold_at (&hold, &chain, 3);
  read_and_ask (&chain, 0, 10);
  test_hold_wait (&hold);
  g_assert_cmpint (
      gst_element_set_state (chain.harness->element, to), ==, GST_STATE_CHANGE_SUCCESS);
  assert_cancelled (&chain, &hold);
  test_hold_clear (&hold);
  test_chain_clear (&chain);
}

/* The elements go away in the middle of the answer. */
static void
test_dispose (void)
{
  Chain chain;
  Hold hold;

  test_chain_init (&chain, ENDLESS, TEST_TEXT_CAPS);
  test_hold_at (&hold, &chain, 2);
  read_and_ask (&chain, 0, 10);
  test_hold_wait (&hold);
  gst_pad_remove_probe (hold.pad, hold.probe);
  gst_pad_remove_probe (hold.pad, hold.flush_probe);
  gst_object_unref (hold.pad);
  test_chain_clear (&chain);
  g_mutex_clear (&hold.lock);
  g_cond_clear (&hold.changed);
}

/* A transcript that follows without a flush waits for the answer before it, and so do its events.
 */
static void
test_next_transcript (void)
{
  static const char *const ids[] = { "one", "two", "three" };
  Chain chain;
  GstCaps *caps = gst_caps_from_string (TEST_TEXT_CAPS);
  GstEvent *event;
  guint n_started = 0, n_ended = 0;

  test_chain_init (&chain, CHAIN "max-tokens=20", TEST_TEXT_CAPS);
  for (guint i = 0; i < G_N_ELEMENTS (ids); i++) {
    gst_harness_push_event (chain.harness, gst_event_new_stream_start (ids[i]));
    gst_harness_push_event (chain.harness, gst_event_new_caps (caps));
    test_chain_segment (&chain, 0);
    read_and_ask (&chain, 10 * i, 5);
  }
  for (guint i = 0; i < G_N_ELEMENTS (ids); i++) {
    GstMessage *message = test_wait_element (chain.bus, "lychee-answer");
    char *expected = test_own_answer (10 * i, 5, "What is said?", NULL, 20);

    g_assert_cmpstr (test_get_string (message, "text"), ==, expected);
    gst_message_unref (message);
    g_free (expected);
  }

  while (n_ended < G_N_ELEMENTS (ids)) {
    event = gst_harness_pull_event (chain.harness);
    g_assert_nonnull (event);
    if (GST_EVENT_TYPE (event) == GST_EVENT_STREAM_START) {
      const char *id;

      gst_event_parse_stream_start (event, &id);
      /* The harness's own one was before. */
      if (g_strv_contains ((const char *const[]){ "one", "two", "three", NULL }, id)) {
        g_assert_cmpuint (n_ended, ==, n_started);
        g_assert_cmpstr (id, ==, ids[n_started++]);
      }
    } else if (GST_EVENT_TYPE (event) == GST_EVENT_EOS) {
      n_ended++;
      g_assert_cmpuint (n_ended, ==, n_started);
    }
    gst_event_unref (event);
  }
  gst_caps_unref (caps);
  test_chain_clear (&chain);
}

/* Downstream has enough, or fails. */
static void
test_downstream_eos (void)
{
  Chain chain;
  GstMessage *message;
  char *text;

  test_chain_init (&chain, ENDLESS "! identity eos-after=3", TEST_TEXT_CAPS);
  read_and_ask (&chain, 0, 5);
  text = test_chain_pull_text (&chain, NULL);
  message = test_wait_element (chain.bus, "lychee-answer");
  g_assert_cmpstr (test_get_string (message, "finish"), ==, "cancelled");
  g_assert_null (test_pop (chain.bus, GST_MESSAGE_ERROR));
  gst_message_unref (message);
  g_free (text);
  test_chain_clear (&chain);
}

static void
test_downstream_error (void)
{
  Chain chain;
  GstMessage *message;
  gboolean ours = FALSE;

  test_chain_init (&chain, ENDLESS "! identity error-after=3", TEST_TEXT_CAPS);
  read_and_ask (&chain, 0, 5);
  g_assert_true (test_chain_wait_eos (&chain));
  while (!ours) {
    message = test_wait_error (chain.bus);
    ours = g_str_equal (GST_OBJECT_NAME (GST_MESSAGE_SRC (message)), "d");
    if (ours)
      test_assert_error (message, GST_STREAM_ERROR, GST_STREAM_ERROR_FAILED, "");
    else
      gst_message_unref (message);
  }
  test_chain_clear (&chain);
}

/* Keys and values from elsewhere, without the cache. */
static void
test_without_meta (void)
{
  LycheeModel *model = test_get_model ();
  char *caps = g_strdup_printf (
      "application/x-lychee-kv(memory:LycheeKV), model=(string)%s, layers=(int)%u, "
      "kv-heads=(int)%u, head-dim=(int)%u, type=(string)f16",
      lychee_model_get_id (model), lychee_model_get_n_layers (model),
      lychee_model_get_n_kv_heads (model), lychee_model_get_head_dim (model));
  Chain chain;

  test_chain_init (&chain, "lycheedecoder model=MODEL", caps);
  g_assert_cmpint (
      gst_harness_push (chain.harness, gst_buffer_new_memdup ("abcd", 4)), ==, GST_FLOW_ERROR);
  test_assert_error (
      test_wait_error (chain.bus), GST_STREAM_ERROR, GST_STREAM_ERROR_FORMAT, "without the cache");
  g_free (caps);
  test_chain_clear (&chain);
}

static void
add_tests (void)
{
  g_test_add_func ("/decoder/answer", test_answer);
  g_test_add_data_func ("/decoder/quotes/token", "token", test_quotes);
  g_test_add_data_func ("/decoder/quotes/sentence", "sentence", test_quotes);
  g_test_add_data_func ("/decoder/quotes/answer", "answer", test_quotes);
  g_test_add_func ("/decoder/stream", test_stream);
  g_test_add_data_func ("/decoder/sampling/seed-1", GUINT_TO_POINTER (1), test_sampling);
  g_test_add_data_func ("/decoder/sampling/seed-2", GUINT_TO_POINTER (2), test_sampling);
  g_test_add_data_func ("/decoder/empty/no-text", NULL, test_empty);
  g_test_add_data_func ("/decoder/empty/empty-text", "", test_empty);
  g_test_add_data_func ("/decoder/too-long/context", "max-context=300 reserve=100", test_too_long);
  g_test_add_data_func ("/decoder/too-long/memory", "max-memory=700000", test_too_long);
  g_test_add_func ("/decoder/no-room-for-question", test_no_room_for_question);
  g_test_add_func ("/decoder/other-model", test_other_model_refused);
  g_test_add_data_func ("/decoder/flush/first-piece", GUINT_TO_POINTER (1), test_flush);
  g_test_add_data_func ("/decoder/flush/fifth-piece", GUINT_TO_POINTER (5), test_flush);
  g_test_add_func ("/decoder/flush/at-once", test_flush_at_once);
  g_test_add_data_func ("/decoder/state/ready", GINT_TO_POINTER (GST_STATE_READY), test_state);
  g_test_add_data_func ("/decoder/state/null", GINT_TO_POINTER (GST_STATE_NULL), test_state);
  g_test_add_func ("/decoder/state/dispose", test_dispose);
  g_test_add_func ("/decoder/next-transcript", test_next_transcript);
  g_test_add_func ("/decoder/downstream/eos", test_downstream_eos);
  g_test_add_func ("/decoder/downstream/error", test_downstream_error);
  g_test_add_func ("/decoder/without-meta", test_without_meta);
}

int
main (int argc, char **argv)
{
  return test_main (argc, argv, add_tests);
}
