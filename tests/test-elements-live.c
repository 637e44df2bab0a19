/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* lycheedecoder and time: questions see what had been said by then, summaries come as it goes on,
 * the reading goes first, and nobody waits for an answer who need not. */

#include "test-elements-common.h"

#define READ                                                                                       \
  "lycheetokenizer model=MODEL ! lycheechunker detector=structure ! lycheeindexer name=i "         \
  "model=MODEL "                                                                                   \
  "system-prompt=\"\" "
/* Nothing is asked at the end. */
#define CHAIN READ "! lycheedecoder name=d model=MODEL prompt=\"\" max-tokens=20 "

/* Counts, at the decoder, what was sent upstream to fetch the last words. */
typedef struct {
  GMutex lock;
  GCond changed;
  guint seen;
  gboolean lose; /* none arrives */
} Drains;

static GstPadProbeReturn
on_drain (GstPad *pad, GstPadProbeInfo *info, gpointer user_data)
{
  Drains *drains = user_data;

  if (!gst_event_has_name (GST_PAD_PROBE_INFO_EVENT (info), "lychee-drain"))
    return GST_PAD_PROBE_OK;
  g_mutex_lock (&drains->lock);
  drains->seen++;
  g_cond_signal (&drains->changed);
  g_mutex_unlock (&drains->lock);
  return drains->lose ? GST_PAD_PROBE_DROP : GST_PAD_PROBE_OK;
}

static void
watch_drains (Chain *chain, Drains *drains)
{
  GstElement *decoder = test_chain_get (chain, "d");
  GstPad *pad = gst_element_get_static_pad (decoder, "sink");

  g_mutex_init (&drains->lock);
  g_cond_init (&drains->changed);
  gst_pad_add_probe (pad, GST_PAD_PROBE_TYPE_EVENT_DOWNSTREAM, on_drain, drains, NULL);
  gst_object_unref (pad);
  gst_object_unref (decoder);
}

static void
wait_drains (Drains *drains, guint n)
{
  gint64 until = g_get_monotonic_time () + TEST_TIMEOUT / 1000;

  g_mutex_lock (&drains->lock);
  while (drains->seen < n)
    g_assert_true (g_cond_wait_until (&drains->changed, &drains->lock, until));
  g_mutex_unlock (&drains->lock);
}

typedef enum {
  DRAIN_ARRIVES,
  DRAIN_IS_LOST,
  DRAIN_IS_LOST_AT_THE_END, /* as where the end was faster */
} DrainFate;

/* What was said last waits for what follows it, unless somebody asks. */
static void
test_last_words (gconstpointer data)
{
  DrainFate fate = GPOINTER_TO_INT (data);
  Drains drains = { .lose = fate != DRAIN_ARRIVES };
  GstMessage *message = NULL;
  Chain chain;

  test_chain_init (&chain,
      "lycheetokenizer model=MODEL ! lycheechunker detector=both ! lycheeindexer ! "
      "lycheedecoder name=d prompt=\"\" max-tokens=4",
      TEST_TEXT_CAPS);
  watch_drains (&chain, &drains);
  test_chain_say_much (&chain, 0, 5);
  g_assert_cmpint (test_chain_say (&chain, "The code of the door is", 5), ==, GST_FLOW_OK);
  /* On a machine that is busy with other things even what arrives may come after the limit. */
  do {
    g_clear_pointer (&message, gst_message_unref);
    g_free (test_chain_ask (&chain, "What is the code?", "o, last=(guint64)1000000000"));
    if (fate == DRAIN_IS_LOST_AT_THE_END)
      test_chain_end (&chain);
    message = test_wait_element (chain.bus, "lychee-answer");
  } while (fate == DRAIN_ARRIVES && test_get_time (message, "time") < 6 * GST_SECOND);
  if (fate == DRAIN_IS_LOST) {
    /* It does not wait for ever: what had been read is asked, or that is nothing. */
    g_assert_cmpuint (test_get_time (message, "time"), <, 6 * GST_SECOND);
  } else {
    g_assert_cmpuint (test_get_time (message, "time"), ==, 6 * GST_SECOND);
    g_assert_cmpuint (test_get_time (message, "from"), ==, 5 * GST_SECOND);
    g_assert_cmpstr (test_get_string (message, "finish"), !=, "empty");
    g_assert_cmpuint (test_get_uint (message, "transcript-tokens"), >, 4);
  }
  gst_message_unref (message);

  if (fate != DRAIN_IS_LOST_AT_THE_END) {
    wait_drains (&drains, 1);
    test_chain_end (&chain);
  }
  test_chain_clear (&chain);
}

/* Each question sees what had been read when it was asked, in order, and the transcript goes on
 * meanwhile. */
static void
test_snapshots (void)
{
  static const guint moments[] = { 3, 6, 12 };
  char *ids[G_N_ELEMENTS (moments)];
  Drains drains = { 0 };
  Chain chain;
  Hold hold;
  guint said = 0;

  test_chain_init (&chain, CHAIN, TEST_TEXT_CAPS);
  test_hold_at (&hold, &chain, 1);
  watch_drains (&chain, &drains);
  for (guint i = 0; i < G_N_ELEMENTS (moments); i++) {
    test_chain_say_much (&chain, said, moments[i] - said);
    said = moments[i];
    test_chain_settle (&chain, said);
    ids[i] = test_chain_ask (&chain, "What is said?", NULL);
    g_assert_nonnull (ids[i]);
    wait_drains (&drains, i + 1);
  }
  /* The first answer cannot go on; reading can. */
  test_hold_wait (&hold);
  test_chain_say_much (&chain, said, 10);
  test_hold_release (&hold);

  for (guint i = 0; i < G_N_ELEMENTS (moments); i++) {
    GstMessage *message = test_chain_wait_answer (&chain, ids[i], NULL);

    g_assert_cmpstr (test_get_string (message, "kind"), ==, "question");
    g_assert_cmpstr (test_get_string (message, "prompt"), ==, "What is said?");
    g_assert_cmpuint (test_get_time (message, "time"), ==, moments[i] * GST_SECOND);
    g_assert_cmpstr (test_get_string (message, "reason"), ==, NULL);
    if (i == 0) {
      char *expected = test_own_answer (0, moments[i], "What is said?", NULL, 20);

      g_assert_cmpstr (test_get_string (message, "text"), ==, expected);
      g_free (expected);
    }
    gst_message_unref (message);
    g_free (ids[i]);
  }
  test_chain_end (&chain);
  test_hold_clear (&hold);
  test_chain_clear (&chain);
}

static gulong
add_probe (Chain *chain, const char *name, const char *pad_name, GstPadProbeType type,
    GstPadProbeCallback callback, gpointer data)
{
  GstElement *element = test_chain_get (chain, name);
  GstPad *pad = gst_element_get_static_pad (element, pad_name);
  gulong id = gst_pad_add_probe (pad, type, callback, data, NULL);

  gst_object_unref (pad);
  gst_object_unref (element);
  return id;
}

static GstPadProbeReturn
block (GstPad *pad, GstPadProbeInfo *info, gpointer user_data)
{
  return GST_PAD_PROBE_OK;
}

/* What is asked before anything has been read, as while the model is loaded, waits for the first
 * words: nobody says that nothing was said. */
static void
test_first_words (void)
{
  Drains drains = { .lose = TRUE }; /* it is not for them that it waits */
  GstElement *indexer;
  GstMessage *message;
  GstPad *pad;
  gulong blocked;
  Chain chain;

  test_chain_init (&chain,
      "lycheetokenizer model=MODEL ! lycheechunker detector=structure ! queue max-size-time=0 ! "
      "lycheeindexer name=i ! lycheedecoder name=d prompt=\"\" max-tokens=4",
      TEST_TEXT_CAPS);
  watch_drains (&chain, &drains);
  blocked = add_probe (&chain, "i", "sink", GST_PAD_PROBE_TYPE_BLOCK_DOWNSTREAM, block, NULL);
  test_chain_say_much (&chain, 0, 5);
  g_free (test_chain_ask (&chain, "What is said?", NULL));
  indexer = test_chain_get (&chain, "i");
  pad = gst_element_get_static_pad (indexer, "sink");
  gst_pad_remove_probe (pad, blocked);
  message = test_chain_wait_answer (&chain, "1", NULL);
  g_assert_cmpstr (test_get_string (message, "finish"), !=, "empty");
  g_assert_cmpuint (test_get_uint (message, "transcript-tokens"), >, 0);
  gst_message_unref (message);
  gst_object_unref (pad);
  gst_object_unref (indexer);
  test_chain_end (&chain);
  test_chain_clear (&chain);
}

/* What the decoder is told of chunks that wait to be read. */
typedef struct {
  GstElement *decoder;
  guint n, most; /* of the streaming thread */
  gint over;     /* atomic: none waits any more */
} Backlog;

static GstPadProbeReturn
on_backlog (GstPad *pad, GstPadProbeInfo *info, gpointer user_data)
{
  Backlog *backlog = user_data;
  GstEvent *event = GST_PAD_PROBE_INFO_EVENT (info);
  guint chunks;

  if (!gst_event_has_name (event, "lychee-backlog"))
    return GST_PAD_PROBE_OK;
  g_assert_true (gst_structure_get_uint (gst_event_get_structure (event), "chunks", &chunks));
  backlog->n++;
  backlog->most = MAX (backlog->most, chunks);
  g_atomic_int_set (&backlog->over, chunks == 0);
  return GST_PAD_PROBE_OK;
}

static guint64
count_pauses (GstElement *decoder)
{
  GstStructure *stats = NULL;
  guint64 pauses = 0;

  g_object_get (decoder, "stats", &stats, NULL);
  g_assert_true (gst_structure_get_uint64 (stats, "pauses", &pauses));
  gst_structure_free (stats);
  return pauses;
}

/* Reading goes on when the answer has let it go first. */
static GstPadProbeReturn
on_read (GstPad *pad, GstPadProbeInfo *info, gpointer user_data)
{
  Backlog *backlog = user_data;
  gint64 until = g_get_monotonic_time () + TEST_TIMEOUT / 1000;

  while (backlog->n > 0 && count_pauses (backlog->decoder) == 0) {
    g_assert_cmpint (g_get_monotonic_time (), <, until);
    g_thread_yield ();
  }
  return GST_PAD_PROBE_OK;
}

/* A live transcript that waits to be read goes first: answers are told of it, and pause. For how
 * long is a matter of LycheeAnswerQueue. */
static void
test_backlog (void)
{
  Backlog backlog = { 0 };
  Drains drains = { 0 };
  Chain chain;
  GstElement *indexer;
  GstPad *pad;
  gulong blocked;
  Hold hold;

  test_chain_init_without_caps (&chain,
      "lycheetokenizer model=MODEL ! lycheechunker detector=structure ! queue max-size-buffers=0 "
      "max-size-bytes=0 max-size-time=0 ! lycheeindexer name=i system-prompt=\"\" "
      "max-context=8192 ! lycheedecoder name=d prompt=\"\" max-tokens=0 temperature=2 top-k=0");
  gst_harness_set_live (chain.harness, TRUE);
  gst_harness_set_src_caps_str (chain.harness, TEST_TEXT_CAPS);
  gst_harness_set_drop_buffers (chain.harness, TRUE);
  backlog.decoder = test_chain_get (&chain, "d");
  test_chain_say_much (&chain, 0, 5);
  test_hold_at (&hold, &chain, 2);
  watch_drains (&chain, &drains);
  for (guint i = 0; i < 50; i++)
    g_free (test_chain_ask (&chain, "What is said?", NULL));
  test_hold_wait (&hold);
  wait_drains (&drains, 50);

  /* All of the beginning was read before the answer began. */
  blocked = add_probe (&chain, "i", "sink", GST_PAD_PROBE_TYPE_BLOCK_DOWNSTREAM, block, NULL);
  add_probe (&chain, "d", "sink", GST_PAD_PROBE_TYPE_EVENT_DOWNSTREAM, on_backlog, &backlog);
  add_probe (&chain, "d", "sink", GST_PAD_PROBE_TYPE_BUFFER, on_read, &backlog);
  test_chain_say_much (&chain, 5, 200);
  indexer = test_chain_get (&chain, "i");
  pad = gst_element_get_static_pad (indexer, "sink");
  gst_pad_remove_probe (pad, blocked);
  test_hold_release (&hold);
  while (!g_atomic_int_get (&backlog.over))
    g_thread_yield ();
  g_test_message ("told %u times of up to %u chunks, %" G_GUINT64_FORMAT " pauses", backlog.n,
      backlog.most, count_pauses (backlog.decoder));
  g_assert_cmpuint (backlog.n, >, 100);
  g_assert_cmpuint (backlog.most, >, 100);
  test_chain_cancel (&chain, NULL);
  gst_object_unref (backlog.decoder);
  gst_object_unref (pad);
  gst_object_unref (indexer);
  test_hold_clear (&hold);
  test_chain_clear (&chain);
}

/* Segments and events go between the answers that were asked before and after them. */
static void
test_order (void)
{
  Chain chain;
  Hold hold;
  GstEvent *event;
  gboolean seen = FALSE;

  test_chain_init (&chain, CHAIN, TEST_TEXT_CAPS);
  test_hold_at (&hold, &chain, 1);
  test_chain_say_much (&chain, 0, 5);
  test_chain_settle (&chain, 5);
  g_free (test_chain_ask (&chain, "What?", NULL));
  test_hold_wait (&hold);
  /* None of these waits. */
  g_assert_true (gst_harness_push_event (chain.harness,
      gst_event_new_custom (GST_EVENT_CUSTOM_DOWNSTREAM, gst_structure_new_empty ("mark"))));
  test_chain_segment (&chain, 6 * GST_SECOND);
  while ((event = gst_harness_try_pull_event (chain.harness)) != NULL) {
    seen |= gst_event_has_name (event, "mark");
    gst_event_unref (event);
  }
  g_assert_false (seen);
  test_hold_release (&hold);
  gst_message_unref (test_chain_wait_answer (&chain, "1", NULL));
  while (!seen) {
    event = gst_harness_pull_event (chain.harness);
    g_assert_nonnull (event);
    seen = gst_event_has_name (event, "mark");
    gst_event_unref (event);
  }
  event = gst_harness_pull_event (chain.harness);
  g_assert_cmpint (GST_EVENT_TYPE (event), ==, GST_EVENT_SEGMENT);
  gst_event_unref (event);
  test_chain_end (&chain);
  test_hold_clear (&hold);
  test_chain_clear (&chain);
}

/* Time */

/* Live or not, as upstream says; how long an answer waits has no limit. */
static void
test_latency (gconstpointer data)
{
  gboolean live = data != NULL;
  Chain chain;
  GstQuery *query = gst_query_new_latency ();
  GstClockTime min, max;
  gboolean is_live;

  test_chain_init (&chain, CHAIN, TEST_TEXT_CAPS);
  if (live)
    gst_harness_set_live (chain.harness, TRUE);
  else
    gst_harness_set_live (chain.harness, FALSE);
  gst_harness_set_upstream_latency (chain.harness, 300 * GST_MSECOND);
  g_assert_true (gst_pad_peer_query (chain.harness->sinkpad, query));
  gst_query_parse_latency (query, &is_live, &min, &max);
  g_assert_cmpint (is_live, ==, live);
  /* Tokenizer and chunker hold words for a while. */
  g_assert_cmpuint (min, ==, live ? (300 + 500 + 5000) * GST_MSECOND : 0);
  g_assert_cmpuint (max, ==, GST_CLOCK_TIME_NONE);
  gst_query_unref (query);
  test_chain_clear (&chain);
}

/* That it is late is no reason for anybody to leave words out. */
static void
test_qos (void)
{
  Chain chain;
  guint n;

  test_chain_init (&chain, CHAIN, TEST_TEXT_CAPS);
  n = gst_harness_upstream_events_received (chain.harness);
  g_assert_true (gst_harness_push_upstream_event (
      chain.harness, gst_event_new_qos (GST_QOS_TYPE_UNDERFLOW, 0.1, 10 * GST_SECOND, GST_SECOND)));
  g_assert_cmpuint (gst_harness_upstream_events_received (chain.harness), ==, n);
  test_chain_clear (&chain);
}

/* In PAUSED, sinks are given something to preroll with, and no more is generated; then it goes on
 * as if nothing had been. */
static void
test_pause (gconstpointer data)
{
  char *description = g_strdup_printf (READ
      "! lycheedecoder name=d model=MODEL prompt=\"What?\" max-tokens=30 stream=%s",
      (const char *) data);
  Chain chain;
  Hold hold;
  GstElement *decoder;
  GstMessage *message;
  char *expected = test_own_answer (0, 5, "What?", NULL, 30);
  GstState state;

  test_chain_init (&chain, description, TEST_TEXT_CAPS);
  test_hold_at (&hold, &chain, 2);
  decoder = test_chain_get (&chain, "d");
  test_chain_say_much (&chain, 0, 5);
  g_assert_true (gst_harness_push_event (chain.harness, gst_event_new_eos ()));
  if (g_str_equal (data, "token"))
    test_hold_wait (&hold);
  gst_element_set_state (decoder, GST_STATE_PAUSED);
  test_hold_release (&hold);
  g_assert_cmpint (
      gst_element_get_state (decoder, &state, NULL, TEST_TIMEOUT), ==, GST_STATE_CHANGE_SUCCESS);
  gst_element_set_state (decoder, GST_STATE_PLAYING);
  g_assert_true (test_chain_wait_eos (&chain));
  message = test_chain_wait_answer (&chain, NULL, NULL);
  g_assert_cmpstr (test_get_string (message, "text"), ==, expected);
  gst_message_unref (message);
  gst_object_unref (decoder);
  g_free (expected);
  g_free (description);
  test_hold_clear (&hold);
  test_chain_clear (&chain);
}

/* Rolling summaries */

/* One for each interval, whatever lies in it, and one of all at the end. */
static void
test_interval (void)
{
  static const guint64 ends[] = { 10, 20, 60 };
  Chain chain;
  GstMessage *message;
  guint64 from = 0;

  test_chain_init (&chain,
      READ "! lycheedecoder name=d model=MODEL prompt=\"All?\" summary-prompt=\"New?\" "
           "max-tokens=5 interval=10000000000",
      TEST_TEXT_CAPS);
  /* The second would make one with the first if that had not begun. */
  for (guint i = 0; i < 2; i++) {
    test_chain_say_much (&chain, 13 * i, 13);
    gst_message_unref (test_chain_wait_answer (&chain, NULL, NULL));
  }
  /* Nothing is said for a while: one summary of what there was, and then an honest nothing. */
  test_chain_settle (&chain, 61);
  gst_message_unref (test_chain_wait_answer (&chain, NULL, NULL));
  test_chain_settle (&chain, 75);
  message = test_chain_wait_answer (&chain, NULL, NULL);
  g_assert_cmpuint (test_get_time (message, "from"), ==, 60 * GST_SECOND);
  g_assert_cmpuint (test_get_time (message, "to"), ==, 70 * GST_SECOND);
  gst_message_unref (message);
  test_chain_end (&chain);
  message = test_chain_wait_answer (&chain, NULL, NULL);
  g_assert_cmpstr (test_get_string (message, "kind"), ==, "final");
  g_assert_cmpstr (test_get_string (message, "prompt"), ==, "All?");
  gst_message_unref (message);
  test_chain_clear (&chain);

  /* The same once more, for what they say. */
  test_chain_init (&chain,
      READ "! lycheedecoder name=d model=MODEL prompt=\"\" summary-prompt=\"New?\" max-tokens=5 "
           "interval=10000000000",
      TEST_TEXT_CAPS);
  test_chain_say_much (&chain, 0, 10);
  for (guint i = 0; i < G_N_ELEMENTS (ends); i++) {
    if (i < 2)
      test_chain_say_much (&chain, 10 + 10 * i, 10);
    else
      test_chain_settle (&chain, 61);
    message = test_chain_wait_answer (&chain, NULL, NULL);
    g_assert_cmpstr (test_get_string (message, "kind"), ==, "summary");
    g_assert_cmpstr (test_get_string (message, "prompt"), ==, "New?");
    g_assert_cmpuint (test_get_time (message, "from"), ==, from * GST_SECOND);
    g_assert_cmpuint (test_get_time (message, "to"), ==, ends[i] * GST_SECOND);
    gst_message_unref (message);
    from = ends[i];
  }
  test_chain_end (&chain);
  g_assert_null (test_pop (chain.bus, GST_MESSAGE_ERROR));
  test_chain_clear (&chain);
}

/* Where answers are slower than the interval, those that wait become one. */
static void
test_interval_merged (void)
{
  Chain chain;
  Hold hold;
  GstMessage *message;

  test_chain_init (&chain,
      READ "! lycheedecoder name=d model=MODEL prompt=\"\" max-tokens=5 interval=5000000000",
      TEST_TEXT_CAPS);
  test_hold_at (&hold, &chain, 1);
  test_chain_say_much (&chain, 0, 7);
  test_hold_wait (&hold);
  test_chain_say_much (&chain, 7, 30);
  test_hold_release (&hold);
  message = test_chain_wait_answer (&chain, NULL, NULL);
  g_assert_cmpuint (test_get_time (message, "to"), ==, 5 * GST_SECOND);
  gst_message_unref (message);
  message = test_chain_wait_answer (&chain, NULL, NULL);
  g_assert_cmpuint (test_get_time (message, "from"), ==, 5 * GST_SECOND);
  g_assert_cmpuint (test_get_time (message, "to"), ==, 35 * GST_SECOND);
  gst_message_unref (message);
  test_chain_end (&chain);
  g_assert_null (gst_bus_pop_filtered (chain.bus, GST_MESSAGE_ERROR));
  test_hold_clear (&hold);
  test_chain_clear (&chain);
}

/* By tokens; each begins where the one before ended, also where some were merged. */
static void
test_interval_tokens (void)
{
  Chain chain;
  GstMessage *message;
  guint64 from = 0;
  guint n = 0;

  test_chain_init (&chain,
      READ "! lycheedecoder name=d model=MODEL prompt=\"\" max-tokens=5 interval-tokens=100",
      TEST_TEXT_CAPS);
  test_chain_say_much (&chain, 0, 50);
  test_chain_end (&chain);
  while ((message = gst_bus_pop_filtered (chain.bus, GST_MESSAGE_ELEMENT)) != NULL) {
    if (gst_message_has_name (message, "lychee-answer")) {
      g_assert_cmpstr (test_get_string (message, "kind"), ==, "summary");
      g_assert_cmpuint (test_get_time (message, "from"), ==, from);
      g_assert_cmpuint (test_get_time (message, "to"), >, from);
      from = test_get_time (message, "to");
      n++;
    }
    gst_message_unref (message);
  }
  g_assert_cmpuint (n, >=, 1);
  g_assert_cmpuint (n, <=, 13);
  g_assert_cmpuint (from, >, 30 * GST_SECOND);
  g_assert_cmpuint (from, <=, 50 * GST_SECOND);
  test_chain_clear (&chain);
}

/* A text without times is summarised by its tokens, each part once. */
static void
test_interval_without_times (void)
{
  Chain chain;
  GstMessage *message;
  guint n = 0, all = 0;

  test_chain_init (&chain,
      READ "! lycheedecoder name=d model=MODEL prompt=\"\" max-tokens=5 interval-tokens=100",
      TEST_TEXT_CAPS);
  for (guint i = 0; i < 50; i++)
    g_assert_cmpint (
        gst_harness_push (chain.harness, test_text_buffer ("This is a line of the talk. ", -1,
                                             GST_CLOCK_TIME_NONE, GST_CLOCK_TIME_NONE)),
        ==, GST_FLOW_OK);
  test_chain_end (&chain);
  while ((message = gst_bus_pop_filtered (chain.bus, GST_MESSAGE_ELEMENT)) != NULL) {
    if (gst_message_has_name (message, "lychee-answer")) {
      guint tokens = test_get_uint (message, "transcript-tokens");

      g_assert_cmpuint (tokens, >=, 100);
      g_assert_cmpuint (test_get_time (message, "to"), ==, GST_CLOCK_TIME_NONE);
      all += tokens;
      n++;
    } else if (gst_message_has_name (message, "lychee-progress")) {
      /* What no summary is about yet is less than is new for one. */
      g_assert_cmpuint (all, <=, test_get_uint (message, "tokens"));
    }
    gst_message_unref (message);
  }
  g_assert_cmpuint (n, >=, 2);
  test_chain_clear (&chain);
}

static void
add_tests (void)
{
  g_test_add_func ("/live/backlog", test_backlog);
  g_test_add_func ("/live/first-words", test_first_words);
  g_test_add_data_func ("/live/last-words", GINT_TO_POINTER (DRAIN_ARRIVES), test_last_words);
  g_test_add_data_func ("/live/last-words/late", GINT_TO_POINTER (DRAIN_IS_LOST), test_last_words);
  g_test_add_data_func (
      "/live/last-words/end", GINT_TO_POINTER (DRAIN_IS_LOST_AT_THE_END), test_last_words);
  g_test_add_func ("/live/snapshots", test_snapshots);
  g_test_add_func ("/live/interval/time", test_interval);
  g_test_add_func ("/live/interval/merged", test_interval_merged);
  g_test_add_func ("/live/interval/tokens", test_interval_tokens);
  g_test_add_func ("/live/interval/without-times", test_interval_without_times);
  g_test_add_data_func ("/live/latency/live", "", test_latency);
  g_test_add_data_func ("/live/latency/not-live", NULL, test_latency);
  g_test_add_func ("/live/qos", test_qos);
  g_test_add_func ("/live/order", test_order);
  g_test_add_data_func ("/live/pause/token", "token", test_pause);
  g_test_add_data_func ("/live/pause/answer", "answer", test_pause);
}

int
main (int argc, char **argv)
{
  return test_main (argc, argv, add_tests);
}
