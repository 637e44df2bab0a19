/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* lycheetranscriptparse: what is in a file or stream comes out, with its times, whichever way it is
 * read. What is in transcripts is tested with the parser and the hygiene. */

#include "test-elements-common.h"

#include <string.h>

#define PARSE "lycheetranscriptparse name=p"

#define SRT                                                                                        \
  "1\n00:00:01,000 --> 00:00:02,000\nAnn: <i>one</i>\n\n"                                          \
  "2\n00:00:05,000 --> 00:00:06,000\nBob: three\n\n"                                               \
  "3\n00:00:03,000 --> 00:00:04,000\ntwo\n\n"                                                      \
  "4\n00:00:07,000 --> 00:00:08,000\nfour"

#define SRT_CUES "1+1 Ann|Ann: one\n3+1 Ann|two\n5+1 Bob|Bob: three\n7+1 Bob|four\n"

/* A buffer as "1+1 Ann|text", with whole seconds. */
static void
describe_buffer (GString *out, GstBuffer *buffer)
{
  GstMapInfo map;
  LycheeTextMeta *meta = test_text_meta (buffer);

  g_assert_true (gst_buffer_map (buffer, &map, GST_MAP_READ));
  g_assert_true (g_utf8_validate_len ((const char *) map.data, map.size, NULL));
  if (GST_BUFFER_PTS_IS_VALID (buffer))
    g_string_append_printf (out, "%d", (int) (GST_BUFFER_PTS (buffer) / GST_SECOND));
  if (GST_BUFFER_DURATION_IS_VALID (buffer))
    g_string_append_printf (out, "+%d", (int) (GST_BUFFER_DURATION (buffer) / GST_SECOND));
  g_string_append_printf (out, " %s|%.*s\n",
      meta != NULL && meta->speaker != NULL ? meta->speaker : "", (int) map.size, map.data);
  gst_buffer_unmap (buffer, &map);
}

/* All that the harness has got. */
static char *
describe_pulled (GstHarness *harness)
{
  GString *out = g_string_new (NULL);
  GstBuffer *buffer;

  while ((buffer = gst_harness_try_pull (harness)) != NULL) {
    describe_buffer (out, buffer);
    gst_buffer_unref (buffer);
  }
  return g_string_free (out, FALSE);
}

static void
push_bytes (Chain *chain, const char *text, gsize length, gsize piece)
{
  for (gsize at = 0; at < length; at += piece)
    g_assert_cmpint (
        gst_harness_push (chain->harness, test_text_buffer (text + at, MIN (piece, length - at),
                                              GST_CLOCK_TIME_NONE, GST_CLOCK_TIME_NONE)),
        ==, GST_FLOW_OK);
}

static void
start_bytes (Chain *chain, const char *caps)
{
  GstSegment segment;

  test_chain_init_without_caps (chain, PARSE);
  gst_segment_init (&segment, GST_FORMAT_BYTES);
  g_assert_true (gst_harness_push_event (chain->harness, gst_event_new_stream_start ("test")));
  if (caps != NULL) {
    g_autoptr (GstCaps) parsed = gst_caps_from_string (caps);

    g_assert_true (gst_harness_push_event (chain->harness, gst_event_new_caps (parsed)));
  }
  g_assert_true (gst_harness_push_event (chain->harness, gst_event_new_segment (&segment)));
}

static guint64
get_stat (GstElement *element, const char *name)
{
  GstStructure *stats = NULL;
  guint64 value = G_MAXUINT64;

  g_object_get (element, "stats", &stats, NULL);
  g_assert_true (gst_structure_get_uint64 (stats, name, &value));
  gst_structure_free (stats);
  return value;
}

static void
test_push (void)
{
  const gsize pieces[] = { 1, 5, 4096 };

  for (guint i = 0; i < G_N_ELEMENTS (pieces); i++) {
    Chain chain;
    g_autofree char *cues = NULL;
    GstElement *parse;

    start_bytes (&chain, i == 0 ? "application/x-subtitle" : NULL);
    push_bytes (&chain, SRT, strlen (SRT), pieces[i]);
    g_assert_true (gst_harness_push_event (chain.harness, gst_event_new_eos ()));
    cues = describe_pulled (chain.harness);
    g_assert_cmpstr (cues, ==, SRT_CUES);
    parse = test_chain_get (&chain, "p");
    g_assert_cmpuint (get_stat (parse, "cues"), ==, 4);
    g_assert_cmpuint (get_stat (parse, "bytes"), ==, strlen (SRT));
    g_assert_cmpuint (get_stat (parse, "markup"), ==, 2);
    g_assert_cmpuint (get_stat (parse, "speakers"), ==, 2);
    g_assert_cmpuint (get_stat (parse, "reordered"), ==, 1);
    gst_object_unref (parse);
    test_chain_clear (&chain);
  }
}

/* Cues come while the stream goes on, as soon as none can come before them. */
static void
test_live (void)
{
  Chain chain;
  g_autofree char *before = NULL;
  g_autofree char *after = NULL;
  const char *rest = strstr (SRT, "4\n00:00:07");

  start_bytes (&chain, NULL);
  push_bytes (&chain, SRT, rest - SRT, 7);
  before = describe_pulled (chain.harness);
  g_assert_cmpstr (before, ==, "1+1 Ann|Ann: one\n");
  push_bytes (&chain, rest, strlen (rest), 7);
  g_assert_true (gst_harness_push_event (chain.harness, gst_event_new_eos ()));
  after = describe_pulled (chain.harness);
  g_assert_cmpstr (after, ==, "3+1 Ann|two\n5+1 Bob|Bob: three\n7+1 Bob|four\n");
  test_chain_clear (&chain);
}

static void
test_flush (void)
{
  Chain chain;
  g_autofree char *cues = NULL;
  GstSegment segment;

  start_bytes (&chain, NULL);
  push_bytes (&chain, SRT, 60, 60);
  g_assert_true (gst_harness_push_event (chain.harness, gst_event_new_flush_start ()));
  g_assert_true (gst_harness_push_event (chain.harness, gst_event_new_flush_stop (TRUE)));
  gst_segment_init (&segment, GST_FORMAT_BYTES);
  g_assert_true (gst_harness_push_event (chain.harness, gst_event_new_segment (&segment)));
  push_bytes (&chain, SRT, strlen (SRT), 9);
  g_assert_true (gst_harness_push_event (chain.harness, gst_event_new_eos ()));
  cues = describe_pulled (chain.harness);
  g_assert_cmpstr (cues, ==, SRT_CUES);
  test_chain_clear (&chain);
}

/* Plain text keeps its line ends, since its buffers have no times to part them. */
static void
test_text (void)
{
  Chain chain;
  g_autofree char *cues = NULL;
  const char *text = "Good morning.\nIt rains.\n\nA paragraph.";

  start_bytes (&chain, "text/plain");
  push_bytes (&chain, text, strlen (text), 6);
  g_assert_true (gst_harness_push_event (chain.harness, gst_event_new_eos ()));
  cues = describe_pulled (chain.harness);
  g_assert_cmpstr (cues, ==, " |Good morning.\n\n |It rains.\n\n |\nA paragraph.\n\n");
  test_chain_clear (&chain);
}

static void
test_warning (void)
{
  Chain chain;
  GstMessage *message;
  GError *error = NULL;
  const char *text = "1\n00:00:05,000 --> 00:00:02,000\ncaf\xc3\xa9 \xff\n";

  start_bytes (&chain, NULL);
  push_bytes (&chain, text, strlen (text), 100);
  g_assert_null (test_pop (chain.bus, GST_MESSAGE_WARNING));
  g_assert_true (gst_harness_push_event (chain.harness, gst_event_new_eos ()));
  message = test_pop (chain.bus, GST_MESSAGE_WARNING);
  g_assert_nonnull (message);
  gst_message_parse_warning (message, &error, NULL);
  g_assert_nonnull (strstr (error->message, "1 byte is not of its encoding"));
  g_assert_nonnull (strstr (error->message, "1 cue did not end after it began"));
  g_error_free (error);
  gst_message_unref (message);
  g_assert_null (test_pop (chain.bus, GST_MESSAGE_WARNING));
  test_chain_clear (&chain);
}

/* What of broken JSON can be read is read, with a warning; else that is an error. JSON without
 * words is neither. */
static void
test_broken_json (void)
{
  static const struct {
    const char *json;
    const char *cues;
    const char *warning;
    const char *error;
  } cases[] = {
    { "{\"segments\": [\n{\"start\": 1.5, \"end\": 2.5, \"text\": \"One.\"},\n{\"sta",
        "1+1 |One.\n", "broken at line 3, character 6: it ends here", NULL },
    { "{\"segments\": [\n{\"sta", "", NULL, "JSON that is broken at line 2, character 6" },
    { "[]", "", NULL, NULL },
    { "{\"text\": \"\", \"segments\": []}\n", "", NULL, NULL },
  };

  for (guint i = 0; i < G_N_ELEMENTS (cases); i++) {
    Chain chain;
    GstMessage *message;
    g_autofree char *cues = NULL;

    start_bytes (&chain, NULL);
    push_bytes (&chain, cases[i].json, strlen (cases[i].json), 7);
    g_assert_true (gst_harness_push_event (chain.harness, gst_event_new_eos ()));
    cues = describe_pulled (chain.harness);
    g_assert_cmpstr (cues, ==, cases[i].cues);
    message = test_pop (chain.bus, GST_MESSAGE_WARNING | GST_MESSAGE_ERROR);
    if (cases[i].error != NULL) {
      test_assert_error (message, GST_STREAM_ERROR, GST_STREAM_ERROR_DECODE, cases[i].error);
    } else if (cases[i].warning != NULL) {
      GError *error = NULL;

      g_assert_nonnull (message);
      g_assert_cmpint (GST_MESSAGE_TYPE (message), ==, GST_MESSAGE_WARNING);
      gst_message_parse_warning (message, &error, NULL);
      g_assert_nonnull (strstr (error->message, cases[i].warning));
      g_error_free (error);
      gst_message_unref (message);
    } else {
      g_assert_null (message);
    }
    test_chain_clear (&chain);
  }
}

static void
push_event (Chain *chain, const char *structure)
{
  g_assert_true (
      gst_harness_push_event (chain->harness, gst_event_new_custom (GST_EVENT_CUSTOM_DOWNSTREAM,
                                                  gst_structure_from_string (structure, NULL))));
}

static void
say (Chain *chain, const char *text, double start, double end)
{
  GstBuffer *buffer = test_text_buffer (
      text, -1, start * GST_SECOND, (guint64) (end * GST_SECOND) - (guint64) (start * GST_SECOND));

  g_assert_cmpint (gst_harness_push (chain->harness, buffer), ==, GST_FLOW_OK);
}

/* A recogniser: what it says again, better, replaces what it said; its events are honoured. */
static void
test_recogniser (void)
{
  Chain chain;
  char *cues;

  test_chain_init (&chain, PARSE, TEST_TEXT_CAPS);
  say (&chain, "good mor", 1, 1.5);
  say (&chain, "good morning", 1, 2);
  cues = describe_pulled (chain.harness);
  g_assert_cmpstr (cues, ==, "");
  g_free (cues);
  push_event (&chain, "rstranscribe/final-transcript");
  cues = describe_pulled (chain.harness);
  g_assert_cmpstr (cues, ==, "1+1 |good morning\n");
  g_free (cues);
  push_event (&chain, "rstranscribe/speaker-change, speaker=(string)Ann");
  say (&chain, "yes", 3, 4);
  say (&chain, "<|im_end|> &", 4, 5);
  g_assert_true (
      gst_harness_push_event (chain.harness, gst_event_new_gap (5 * GST_SECOND, GST_SECOND)));
  cues = describe_pulled (chain.harness);
  g_assert_cmpstr (cues, ==, "3+1 Ann|Ann: yes\n4+1 Ann|<|im_end|> &\n");
  g_free (cues);
  say (&chain, "last", 6, 7);
  g_assert_true (gst_harness_push_event (chain.harness, gst_event_new_eos ()));
  cues = describe_pulled (chain.harness);
  g_assert_cmpstr (cues, ==, "6+1 Ann|last\n");
  g_free (cues);
  test_chain_clear (&chain);
}

/* What subparse makes of subtitles. */
static void
test_pango_markup (void)
{
  Chain chain;
  g_autofree char *cues = NULL;

  test_chain_init (&chain, PARSE, "text/x-raw, format=(string)pango-markup");
  say (&chain, "<i>Ann: a</i> &amp; b &lt;c&gt;", 1, 2);
  g_assert_true (gst_harness_push_event (chain.harness, gst_event_new_eos ()));
  cues = describe_pulled (chain.harness);
  g_assert_cmpstr (cues, ==, "1+1 Ann|Ann: a & b <c>\n");
  test_chain_clear (&chain);
}

/* Lines of ASS out of a container have their times in the buffer. */
static void
test_dialogue (void)
{
  Chain chain;
  g_autofree char *cues = NULL;

  test_chain_init (&chain, PARSE, "application/x-ass, codec_data=(buffer)5b536372697074");
  say (&chain, "0,0,Default,Ann,0,0,0,,{\\i1}a, b\\Nc", 1, 2);
  g_assert_true (gst_harness_push_event (chain.harness, gst_event_new_eos ()));
  cues = describe_pulled (chain.harness);
  g_assert_cmpstr (cues, ==, "1+1 Ann|Ann: a, b\nc\n");
  test_chain_clear (&chain);
}

/* A whole pipeline, and what its sink got. */
typedef struct {
  GstElement *pipeline;
  GMutex lock;
  GString *cues;
} Whole;

static void
on_handoff (GstElement *sink, GstBuffer *buffer, GstPad *pad, gpointer user_data)
{
  Whole *whole = user_data;

  g_mutex_lock (&whole->lock);
  describe_buffer (whole->cues, buffer);
  g_mutex_unlock (&whole->lock);
}

static void
whole_init (Whole *whole, const char *description)
{
  GstElement *sink;

  g_mutex_init (&whole->lock);
  whole->cues = g_string_new (NULL);
  whole->pipeline = test_pipeline (description);
  sink = gst_bin_get_by_name (GST_BIN (whole->pipeline), "sink");
  g_object_set (sink, "signal-handoffs", TRUE, "sync", FALSE, NULL);
  g_signal_connect (sink, "handoff", G_CALLBACK (on_handoff), whole);
  gst_object_unref (sink);
}

static void
whole_wait (Whole *whole, GstMessageType types)
{
  GstBus *bus = gst_element_get_bus (whole->pipeline);
  GstMessage *message = gst_bus_timed_pop_filtered (bus, TEST_TIMEOUT, types | GST_MESSAGE_ERROR);

  g_assert_nonnull (message);
  g_assert_cmpint (GST_MESSAGE_TYPE (message), !=, GST_MESSAGE_ERROR);
  gst_message_unref (message);
  gst_object_unref (bus);
}

static void
whole_clear (Whole *whole)
{
  gst_element_set_state (whole->pipeline, GST_STATE_NULL);
  gst_object_unref (whole->pipeline);
  g_string_free (whole->cues, TRUE);
  g_mutex_clear (&whole->lock);
}

typedef struct {
  const char *name;
  const char *file;
  const char *contents;
  const char *launch;
  const char *expected;
} PipelineCase;

static const PipelineCase pipeline_cases[] = {
  { "pull", "pull.srt", SRT, "filesrc location=DIR/pull.srt ! " PARSE, SRT_CUES },
  { "push", "push.srt", SRT, "filesrc location=DIR/push.srt blocksize=5 ! queue ! " PARSE,
      SRT_CUES },
  { "decodebin-srt", "d.srt", SRT,
      "filesrc location=DIR/d.srt ! decodebin expose-all-streams=false", SRT_CUES },
  { "decodebin-vtt", "d.vtt", "WEBVTT\n\n00:01.000 --> 00:02.000\n<v Ann>a &amp; b\n",
      "filesrc location=DIR/d.vtt ! decodebin", "1+1 Ann|Ann: a & b\n" },
  { "decodebin-ass", "d.ass",
      "[Script Info]\nScriptType: v4.00+\n[Events]\nDialogue: "
      "0,0:00:01.00,0:00:02.00,D,Ann,0,0,0,,a\n",
      "filesrc location=DIR/d.ass ! decodebin", "1+1 Ann|Ann: a\n" },
  { "decodebin-json", "d.json",
      "{\"text\": \"a b\", \"segments\": [{\"start\": 1.0, \"end\": 2.0, \"text\": \" a b\"}]}",
      "filesrc location=DIR/d.json ! decodebin", "1+1 |a b\n" },
  { "decodebin-names", "d.txt", "Ann: Good morning.\nBob: Morning.\nAnn: Well.\nBob: Well.\n",
      "filesrc location=DIR/d.txt ! decodebin",
      " Ann|Ann: Good morning.\n\n Bob|Bob: Morning.\n\n Ann|Ann: Well.\n\n Bob|Bob: Well.\n\n" },
  { "decodebin-no-header", "h.vtt",
      "00:00:01.000 --> 00:00:02.000\na\n\n00:00:03.000 --> 00:00:04.000\nb\n",
      "filesrc location=DIR/h.vtt ! decodebin", "1+1 |a\n3+1 |b\n" },
  { "decodebin-text-behind-times", "b.srt",
      "1\n00:00:01,000 --> 00:00:02,000 a\n\n2\n00:00:03,000 --> 00:00:04,000 b\n",
      "filesrc location=DIR/b.srt ! decodebin", "1+1 |a\n3+1 |b\n" },
  { "decodebin-json-array", "a.json", "[{\"start\": 1.0, \"end\": 2.0, \"text\": \"a\"}]",
      "filesrc location=DIR/a.json ! decodebin", "1+1 |a\n" },
  { "empty", "empty.srt", "", "filesrc location=DIR/empty.srt ! " PARSE, "" },
};

static void
test_whole (gconstpointer data)
{
  const PipelineCase *c = data;
  g_autofree char *path = test_write_file (c->file, c->contents);
  g_autofree char *launch = g_strconcat (c->launch, " ! fakesink name=sink", NULL);
  Whole whole;

  whole_init (&whole, launch);
  gst_element_set_state (whole.pipeline, GST_STATE_PLAYING);
  whole_wait (&whole, GST_MESSAGE_EOS);
  g_assert_cmpstr (whole.cues->str, ==, c->expected);
  whole_clear (&whole);
}

/* By time, when pulling and when pushed to; the speaker is as it would be without. */
static void
test_seek (gconstpointer launch)
{
  g_autofree char *path = test_write_file ("seek.srt", SRT);
  Whole whole;
  gint64 position = 0;
  gint64 duration = 0;

  whole_init (&whole, launch);
  gst_element_set_state (whole.pipeline, GST_STATE_PAUSED);
  whole_wait (&whole, GST_MESSAGE_ASYNC_DONE);
  if (strstr (launch, "queue") == NULL) {
    g_assert_true (gst_element_query_duration (whole.pipeline, GST_FORMAT_TIME, &duration));
    g_assert_cmpint (duration, ==, 8 * GST_SECOND);
  }
  g_assert_true (gst_element_seek (whole.pipeline, 1.0, GST_FORMAT_TIME, GST_SEEK_FLAG_FLUSH,
      GST_SEEK_TYPE_SET, 3500 * GST_MSECOND, GST_SEEK_TYPE_SET, 6 * GST_SECOND));
  whole_wait (&whole, GST_MESSAGE_ASYNC_DONE);
  g_assert_true (gst_element_query_position (whole.pipeline, GST_FORMAT_TIME, &position));
  g_assert_cmpint (position, >=, 3 * GST_SECOND);
  g_mutex_lock (&whole.lock);
  g_string_truncate (whole.cues, 0);
  g_mutex_unlock (&whole.lock);
  gst_element_set_state (whole.pipeline, GST_STATE_PLAYING);
  whole_wait (&whole, GST_MESSAGE_EOS);
  /* The first one was handed over while the sink was paused. */
  g_assert_true (g_str_has_suffix ("3+1 Ann|two\n5+1 Bob|Bob: three\n", whole.cues->str));
  g_assert_true (g_str_has_suffix (whole.cues->str, "5+1 Bob|Bob: three\n"));
  whole_clear (&whole);
}

static void
test_unknown_encoding (void)
{
  GstElement *pipeline = test_pipeline ("fakesrc ! " PARSE " encoding=klingon ! fakesink");
  GstBus *bus = gst_element_get_bus (pipeline);

  g_assert_cmpint (
      gst_element_set_state (pipeline, GST_STATE_PAUSED), ==, GST_STATE_CHANGE_FAILURE);
  test_assert_error (
      test_wait_error (bus), GST_LIBRARY_ERROR, GST_LIBRARY_ERROR_SETTINGS, "klingon");
  gst_object_unref (bus);
  gst_element_set_state (pipeline, GST_STATE_NULL);
  gst_object_unref (pipeline);
}

/* What is no text is refused, with one message. */
static void
test_binary (gconstpointer source)
{
  g_autofree char *path = g_build_filename (test_dir (), "sound.raw", NULL);
  g_autofree char *launch = g_strdup_printf ("%s ! " PARSE " ! fakesink", (const char *) source);
  guint8 data[6000];
  GstElement *pipeline;
  GstBus *bus;

  for (guint i = 0; i < sizeof data; i++)
    data[i] = i * 37 + i / 7;
  g_assert_true (g_file_set_contents (path, (const char *) data, sizeof data, NULL));
  pipeline = test_pipeline (launch);
  bus = gst_element_get_bus (pipeline);
  gst_element_set_state (pipeline, GST_STATE_PLAYING);
  test_assert_error (
      test_wait_error (bus), GST_STREAM_ERROR, GST_STREAM_ERROR_WRONG_TYPE, "no transcript");
  gst_element_set_state (pipeline, GST_STATE_NULL);
  gst_object_unref (bus);
  gst_object_unref (pipeline);
}

static void
add_tests (void)
{
  g_test_add_func ("/transcriptparse/push", test_push);
  g_test_add_func ("/transcriptparse/live", test_live);
  g_test_add_func ("/transcriptparse/flush", test_flush);
  g_test_add_func ("/transcriptparse/text", test_text);
  g_test_add_func ("/transcriptparse/warning", test_warning);
  g_test_add_func ("/transcriptparse/broken-json", test_broken_json);
  g_test_add_func ("/transcriptparse/recogniser", test_recogniser);
  g_test_add_func ("/transcriptparse/pango-markup", test_pango_markup);
  g_test_add_func ("/transcriptparse/dialogue", test_dialogue);
  for (guint i = 0; i < G_N_ELEMENTS (pipeline_cases); i++) {
    g_autofree char *path = g_strconcat ("/transcriptparse/whole/", pipeline_cases[i].name, NULL);

    g_test_add_data_func (path, &pipeline_cases[i], test_whole);
  }
  g_test_add_data_func ("/transcriptparse/seek/pull",
      "filesrc location=DIR/seek.srt ! " PARSE " ! fakesink name=sink", test_seek);
  g_test_add_data_func ("/transcriptparse/seek/push",
      "filesrc location=DIR/seek.srt ! queue ! " PARSE " ! fakesink name=sink", test_seek);
  g_test_add_data_func (
      "/transcriptparse/binary/pull", "filesrc location=DIR/sound.raw", test_binary);
  g_test_add_data_func ("/transcriptparse/binary/push",
      "filesrc location=DIR/sound.raw blocksize=100 ! queue", test_binary);
  g_test_add_func ("/transcriptparse/unknown-encoding", test_unknown_encoding);
}

int
main (int argc, char **argv)
{
  return test_main (argc, argv, add_tests);
}
