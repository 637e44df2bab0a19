/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Live streams: what waits for words that come behind it waits no longer than it may, by the clock,
 * and the latency tells so. The clock is the tests'. */

#include "test-elements-common.h"

#include <gst/check/gsttestclock.h>

#define TOKEN_CAPS "application/x-lychee-tokens, model=(string)some-id"
#define TOKENIZER "lycheetokenizer name=e model=MODEL max-wait=1000000000"
#define CHUNKER "lycheechunker name=e detector=structure min-tokens=8 max-tokens=64"
#define PARSE "lycheetranscriptparse name=e"

typedef struct {
  Chain chain;
  GstTestClock *clock;
} Live;

static void
start (Live *live, const char *description, gboolean is_live, const char *caps)
{
  test_chain_init_without_caps (&live->chain, description);
  gst_harness_use_testclock (live->chain.harness);
  gst_harness_set_live (live->chain.harness, is_live);
  gst_harness_set_src_caps_str (live->chain.harness, caps);
  live->clock = gst_harness_get_testclock (live->chain.harness);
}

static void
stop (Live *live)
{
  gst_object_unref (live->clock);
  test_chain_clear (&live->chain);
}

/* Until whoever is at work in element "e" has done. */
static void
settle (Live *live)
{
  GstElement *element = test_chain_get (&live->chain, "e");
  GstPad *pad = gst_element_get_static_pad (element, "sink");

  GST_PAD_STREAM_LOCK (pad);
  GST_PAD_STREAM_UNLOCK (pad);
  gst_object_unref (pad);
  gst_object_unref (element);
}

/* What is held in "e" waits until @time, or nothing is held (none). */
static void
assert_waits (Live *live, GstClockTime time)
{
  GstClockID id = NULL;

  settle (live);
  g_assert_cmpuint (
      gst_test_clock_peek_id_count (live->clock), ==, GST_CLOCK_TIME_IS_VALID (time) ? 1 : 0);
  if (!GST_CLOCK_TIME_IS_VALID (time))
    return;
  g_assert_true (gst_test_clock_peek_next_pending_id (live->clock, &id));
  g_assert_cmpuint (gst_clock_id_get_time (id), ==, time);
  gst_clock_id_unref (id);
}

/* The clock goes on to the next time that somebody waits for. */
static void
pass_time (Live *live)
{
  g_assert_true (gst_test_clock_crank (live->clock));
}

static void
push_ids (Live *live, guint n)
{
  gint32 *ids = g_new0 (gint32, n);

  g_assert_cmpint (
      gst_harness_push (live->chain.harness, gst_buffer_new_wrapped (ids, n * sizeof (gint32))), ==,
      GST_FLOW_OK);
}

/* Waits for the next buffer, which has @n ids. */
static void
assert_ids (Live *live, guint n)
{
  GstBuffer *buffer = gst_harness_pull (live->chain.harness);

  g_assert_nonnull (buffer);
  g_assert_cmpuint (gst_buffer_get_size (buffer), ==, n * sizeof (gint32));
  gst_buffer_unref (buffer);
}

static void
assert_text (Live *live, const char *text)
{
  GstBuffer *buffer = gst_harness_pull (live->chain.harness);
  GstMapInfo map;

  g_assert_nonnull (buffer);
  g_assert_true (gst_buffer_map (buffer, &map, GST_MAP_READ));
  g_assert_cmpmem (map.data, map.size, text, strlen (text));
  gst_buffer_unmap (buffer, &map);
  gst_buffer_unref (buffer);
}

static void
set_time (Live *live, guint seconds)
{
  g_assert_true (gst_harness_set_time (live->chain.harness, seconds * GST_SECOND));
}

/* Each token may wait for five seconds from when it came. */
static void
test_chunker (void)
{
  Live live;

  start (&live, CHUNKER, TRUE, TOKEN_CAPS);
  assert_waits (&live, GST_CLOCK_TIME_NONE);
  set_time (&live, 1);
  push_ids (&live, 12);
  set_time (&live, 3);
  push_ids (&live, 8);
  assert_waits (&live, 6 * GST_SECOND);
  pass_time (&live);
  assert_ids (&live, 19); /* the last one may be the beginning of a word */
  assert_waits (&live, 8 * GST_SECOND);
  pass_time (&live);
  assert_ids (&live, 1);
  assert_waits (&live, GST_CLOCK_TIME_NONE);

  /* What is closed in another way waits no more. */
  push_ids (&live, 12);
  assert_waits (&live, 13 * GST_SECOND);
  gst_harness_push_event (live.chain.harness, gst_event_new_gap (0, GST_CLOCK_TIME_NONE));
  assert_ids (&live, 12);
  assert_waits (&live, GST_CLOCK_TIME_NONE);
  push_ids (&live, 3);
  test_chain_flush (&live.chain);
  assert_waits (&live, GST_CLOCK_TIME_NONE);
  test_chain_segment (&live.chain, 0);
  push_ids (&live, 3);
  assert_waits (&live, 13 * GST_SECOND);
  stop (&live);
}

/* Whether and how long it waits: not where the source is not live, or max-wait is -1. */
static void
test_not_at_all (gconstpointer data)
{
  const char *description = data;
  Live live;

  start (&live, description, strstr (description, "max-wait") != NULL, TOKEN_CAPS);
  set_time (&live, 1);
  push_ids (&live, 12);
  assert_waits (&live, GST_CLOCK_TIME_NONE);
  gst_harness_push_event (live.chain.harness, gst_event_new_eos ());
  assert_ids (&live, 12);
  stop (&live);
}

/* A pause does not count. */
static void
test_pause (void)
{
  GstElement *bin;
  Live live;

  start (&live, CHUNKER, TRUE, TOKEN_CAPS);
  bin = live.chain.harness->element;
  set_time (&live, 1);
  push_ids (&live, 12);
  set_time (&live, 3);
  g_assert_cmpint (gst_element_set_state (bin, GST_STATE_PAUSED), ==, GST_STATE_CHANGE_SUCCESS);
  assert_waits (&live, GST_CLOCK_TIME_NONE);
  set_time (&live, 100);
  gst_element_set_base_time (bin, 97 * GST_SECOND);
  g_assert_cmpint (gst_element_set_state (bin, GST_STATE_PLAYING), ==, GST_STATE_CHANGE_SUCCESS);
  assert_waits (&live, 103 * GST_SECOND);
  pass_time (&live);
  assert_ids (&live, 12);
  g_assert_cmpint (gst_element_set_state (bin, GST_STATE_READY), ==, GST_STATE_CHANGE_SUCCESS);
  assert_waits (&live, GST_CLOCK_TIME_NONE);
  stop (&live);
}

/* Also where a change of subject is looked for, which takes many more words: with nothing said any
 * more, all of it comes as time passes. */
static void
test_words (void)
{
  const gint64 until = g_get_monotonic_time () + TEST_TIMEOUT / 1000;
  GString *said = g_string_new (NULL), *expected = g_string_new (NULL);
  Live live;

  start (&live, "lycheetokenizer model=MODEL ! lycheechunker name=e min-tokens=4 max-tokens=8",
      TRUE, TEST_TEXT_CAPS);
  for (guint i = 0; i < 5; i++) {
    char *text = g_strdup_printf ("the hat %u", i);

    set_time (&live, i);
    g_assert_cmpint (test_chain_say (&live.chain, text, i), ==, GST_FLOW_OK);
    g_string_append_printf (expected, "%s%s", i > 0 ? "\n" : "", text);
    g_free (text);
  }
  while (said->len < expected->len) {
    GstBuffer *buffer = gst_harness_try_pull (live.chain.harness);

    g_assert_cmpint (g_get_monotonic_time (), <, until);
    if (buffer != NULL) {
      g_string_append (said, test_chunk_meta (buffer)->chunk->text);
      gst_buffer_unref (buffer);
    } else if (gst_test_clock_timed_wait_for_multiple_pending_ids (live.clock, 1, 5, NULL)) {
      pass_time (&live);
    }
  }
  g_assert_cmpstr (said->str, ==, expected->str);
  g_string_free (said, TRUE);
  g_string_free (expected, TRUE);
  stop (&live);
}

static void
test_tokenizer (void)
{
  LycheeTextMeta *meta;
  GstBuffer *buffer;
  Live live;

  start (&live, TOKENIZER, TRUE, TEST_TEXT_CAPS);
  set_time (&live, 1);
  test_chain_say (&live.chain, "hat", 0);
  assert_waits (&live, 2 * GST_SECOND);
  pass_time (&live);
  buffer = gst_harness_pull (live.chain.harness);
  meta = test_text_meta (buffer);
  g_assert_cmpmem (meta->text, meta->text_length, "hat", 3);
  g_assert_cmpuint (GST_BUFFER_PTS (buffer), ==, 0);
  gst_buffer_unref (buffer);
  assert_waits (&live, GST_CLOCK_TIME_NONE);
  test_chain_say (&live.chain, "hat", 2);
  assert_waits (&live, 3 * GST_SECOND);
  test_chain_flush (&live.chain);
  assert_waits (&live, GST_CLOCK_TIME_NONE);
  stop (&live);
}

/* A hypothesis is final when it has not been replaced for two seconds. */
static void
test_hypothesis (void)
{
  Live live;

  start (&live, PARSE, TRUE, TEST_TEXT_CAPS);
  set_time (&live, 1);
  test_chain_say (&live.chain, "good mor", 0);
  assert_waits (&live, 3 * GST_SECOND);
  set_time (&live, 2);
  test_chain_say (&live.chain, "good morning", 0);
  assert_waits (&live, 4 * GST_SECOND);
  pass_time (&live);
  assert_text (&live, "good morning");
  assert_waits (&live, GST_CLOCK_TIME_NONE);

  /* Whoever says what is final is waited for. */
  gst_harness_push_event (
      live.chain.harness, gst_event_new_custom (GST_EVENT_CUSTOM_DOWNSTREAM,
                              gst_structure_new_empty ("rstranscribe/final-transcript")));
  test_chain_say (&live.chain, "yes", 3);
  assert_waits (&live, GST_CLOCK_TIME_NONE);
  gst_harness_push_event (live.chain.harness, gst_event_new_eos ());
  assert_text (&live, "yes");
  stop (&live);
}

/* Subtitles as bytes from a live source: one that is whole does not wait for the next. */
static void
test_bytes (void)
{
  static const char *const cues[] = { "1\n00:00:01,000 --> 00:00:02,000\none\n\n",
    "2\n00:00:03,000 --> 00:00:04,000\ntwo\n\n" };
  GstSegment segment;
  Live live;

  test_chain_init_without_caps (&live.chain, PARSE);
  gst_harness_use_testclock (live.chain.harness);
  live.clock = gst_harness_get_testclock (live.chain.harness);
  gst_segment_init (&segment, GST_FORMAT_BYTES);
  gst_harness_push_event (live.chain.harness, gst_event_new_stream_start ("test"));
  gst_harness_push_event (live.chain.harness, gst_event_new_segment (&segment));
  for (guint i = 0; i < G_N_ELEMENTS (cues); i++) {
    gst_harness_push (live.chain.harness,
        test_text_buffer (cues[i], -1, GST_CLOCK_TIME_NONE, GST_CLOCK_TIME_NONE));
    assert_waits (&live, (2 + 2 * i) * GST_SECOND);
    pass_time (&live);
    assert_text (&live, i == 0 ? "one" : "two");
    assert_waits (&live, GST_CLOCK_TIME_NONE);
  }
  stop (&live);
}

/* Latency in milliseconds, upstream's being 300 at least, without a limit. */
typedef struct {
  const char *name;
  const char *description;
  const char *caps;
  gboolean live;
  guint expected;
} LatencyCase;

static const LatencyCase latency_cases[] = {
  { "chunker", CHUNKER, TOKEN_CAPS, TRUE, 5300 },
  { "chunker-short", CHUNKER " max-wait=700000000", TOKEN_CAPS, TRUE, 1000 },
  { "chunker-none", CHUNKER " max-wait=0", TOKEN_CAPS, TRUE, 300 },
  { "chunker-for-ever", CHUNKER " max-wait=18446744073709551615", TOKEN_CAPS, TRUE, 300 },
  { "chunker-not-live", CHUNKER, TOKEN_CAPS, FALSE, 0 },
  { "tokenizer", TOKENIZER, TEST_TEXT_CAPS, TRUE, 1300 },
  { "parse", PARSE, TEST_TEXT_CAPS, TRUE, 2300 },
  { "all", PARSE " ! lycheetokenizer model=MODEL ! lycheechunker", TEST_TEXT_CAPS, TRUE, 7800 },
};

static void
test_latency (gconstpointer data)
{
  const LatencyCase *c = data;
  GstQuery *query = gst_query_new_latency ();
  GstClockTime min, max;
  gboolean live;
  Chain chain;

  test_chain_init_without_caps (&chain, c->description);
  gst_harness_set_live (chain.harness, c->live);
  gst_harness_set_upstream_latency (chain.harness, 300 * GST_MSECOND);
  gst_harness_set_src_caps_str (chain.harness, c->caps);
  g_assert_true (gst_pad_peer_query (chain.harness->sinkpad, query));
  gst_query_parse_latency (query, &live, &min, &max);
  g_assert_cmpint (live, ==, c->live);
  g_assert_cmpuint (min, ==, c->expected * GST_MSECOND);
  g_assert_cmpuint (max, ==, GST_CLOCK_TIME_NONE);
  gst_query_unref (query);
  test_chain_clear (&chain);
}

/* Who changes it while the pipeline runs is heard of. */
static void
test_latency_changed (gconstpointer data)
{
  GstElement *element;
  Chain chain;

  test_chain_init_without_caps (&chain, data);
  element = test_chain_get (&chain, "e");
  g_object_set (element, "max-wait", (guint64) 123, NULL);
  GstMessage *message = test_pop (chain.bus, GST_MESSAGE_LATENCY);
  g_assert_nonnull (message);
  gst_message_unref (message);
  g_object_set (element, "max-wait", (guint64) 123, NULL);
  g_assert_null (test_pop (chain.bus, GST_MESSAGE_LATENCY));
  gst_object_unref (element);
  test_chain_clear (&chain);
}

#define NOT_SAID G_MAXUINT64

/* Says a cue that ends at @end when the clock shows @now, in milliseconds, and has it read at once.
 * How far behind the reading says it is, in milliseconds. */
static guint64
read_at (Live *live, guint end, guint now)
{
  guint64 behind = NOT_SAID;
  GstMessage *message;

  g_assert_true (gst_harness_set_time (live->chain.harness, now * GST_MSECOND));
  g_assert_cmpint (
      gst_harness_push (live->chain.harness, test_text_buffer ("This is a line of the talk.", -1,
                                                 (end - 1000) * GST_MSECOND, GST_SECOND)),
      ==, GST_FLOW_OK);
  g_assert_true (gst_harness_push_event (
      live->chain.harness, gst_event_new_gap (end * GST_MSECOND, GST_CLOCK_TIME_NONE)));
  while ((message = test_pop (live->chain.bus, GST_MESSAGE_ELEMENT)) != NULL) {
    if (gst_message_has_name (message, "lychee-behind"))
      g_assert_true (
          gst_structure_get_uint64 (gst_message_get_structure (message), "behind", &behind));
    gst_message_unref (message);
  }
  return behind == NOT_SAID ? behind : behind / GST_MSECOND;
}

/* What was said in the latency, that words wait for others, is not behind; and where that changes,
 * the figure does. */
static void
test_behind (void)
{
  const guint wait = 300 + 500 + 5000;
  GstElement *chunker;
  Live live;

  test_chain_init_without_caps (&live.chain,
      "lycheetokenizer model=MODEL ! lycheechunker name=e detector=structure ! lycheeindexer");
  gst_harness_use_testclock (live.chain.harness);
  gst_harness_set_live (live.chain.harness, TRUE);
  gst_harness_set_upstream_latency (live.chain.harness, 300 * GST_MSECOND);
  gst_harness_set_src_caps_str (live.chain.harness, TEST_TEXT_CAPS);
  live.clock = gst_harness_get_testclock (live.chain.harness);

  g_assert_cmpuint (read_at (&live, 1000, 1000), ==, NOT_SAID);
  g_assert_cmpuint (read_at (&live, 2000, 2000 + wait), ==, NOT_SAID);
  g_assert_cmpuint (read_at (&live, 10000, 10000 + wait + 4999), ==, NOT_SAID);
  g_assert_cmpuint (read_at (&live, 20000, 20000 + wait + 5001), ==, 5001);
  g_assert_cmpuint (read_at (&live, 30000, 30000 + wait + 2499), ==, 2499);

  chunker = test_chain_get (&live.chain, "e");
  g_object_set (chunker, "max-wait", GST_SECOND, NULL);
  gst_object_unref (chunker);
  /* As a pipeline does whose application takes note of LATENCY messages. */
  gst_harness_push_upstream_event (live.chain.harness, gst_event_new_latency (0));
  g_assert_cmpuint (read_at (&live, 40000, 40000 + wait - 4000 + 4999), ==, NOT_SAID);
  g_assert_cmpuint (read_at (&live, 50000, 50000 + wait - 4000 + 5001), ==, 5001);
  stop (&live);
}

static void
add_tests (void)
{
  g_test_add_func ("/wait/chunker", test_chunker);
  g_test_add_data_func ("/wait/not-live", CHUNKER, test_not_at_all);
  g_test_add_data_func (
      "/wait/for-ever", CHUNKER " max-wait=18446744073709551615", test_not_at_all);
  g_test_add_func ("/wait/pause", test_pause);
  g_test_add_func ("/wait/words", test_words);
  g_test_add_func ("/wait/tokenizer", test_tokenizer);
  g_test_add_func ("/wait/hypothesis", test_hypothesis);
  g_test_add_func ("/wait/bytes", test_bytes);
  for (guint i = 0; i < G_N_ELEMENTS (latency_cases); i++) {
    char *name = g_strconcat ("/wait/latency/", latency_cases[i].name, NULL);

    g_test_add_data_func (name, &latency_cases[i], test_latency);
    g_free (name);
  }
  g_test_add_func ("/wait/behind", test_behind);
  g_test_add_data_func ("/wait/latency-changed/chunker", CHUNKER, test_latency_changed);
  g_test_add_data_func ("/wait/latency-changed/tokenizer", TOKENIZER, test_latency_changed);
}

int
main (int argc, char **argv)
{
  return test_main (argc, argv, add_tests);
}
