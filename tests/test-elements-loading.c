/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* While the model is being loaded: nobody waits for it who need not, and what is asked meanwhile is
 * answered from what is said by the time that it is there, or honestly by nothing. */

#include "test-elements-common.h"

#include <string.h>

#define FILE_SOURCE                                                                                \
  "filesrc location=DIR/loading.srt ! subparse subtitle-encoding=UTF-8 ! lycheetokenizer name=t "
#define LIVE_SOURCE                                                                                \
  "appsrc name=source is-live=true format=time caps=text/x-raw,format=utf8 ! queue name=q ! "      \
  "lycheetokenizer name=t "
#define REST                                                                                       \
  "! lycheechunker detector=structure ! lycheeindexer system-prompt=\"\" ! "                       \
  "lycheedecoder name=d model=MODEL max-tokens=4 prompt=\"%s\" %s ! fakesink name=s sync=false "   \
  "signal-handoffs=true"

typedef struct {
  GstElement *pipeline;
  GstElement *decoder;
  GstBus *bus;
} Talk;

/* Holds the thread that loads. */
typedef struct {
  GMutex lock;
  GCond changed;
  gboolean held;
  gboolean released;
  guint started, cancelled, completed;
} Loading;

/* The thread may come here when a test is over. */
static Loading loading;

static GstBusSyncReply
hold_loading (GstBus *bus, GstMessage *message, gpointer user_data)
{
  GstProgressType type;

  if (GST_MESSAGE_TYPE (message) != GST_MESSAGE_PROGRESS)
    return GST_BUS_PASS;
  gst_message_parse_progress (message, &type, NULL, NULL);
  g_mutex_lock (&loading.lock);
  loading.started += type == GST_PROGRESS_TYPE_START;
  loading.cancelled += type == GST_PROGRESS_TYPE_CANCELED;
  loading.completed += type == GST_PROGRESS_TYPE_COMPLETE;
  if (type == GST_PROGRESS_TYPE_CONTINUE) {
    loading.held = TRUE;
    g_cond_broadcast (&loading.changed);
    while (!loading.released)
      g_cond_wait (&loading.changed, &loading.lock);
  }
  g_mutex_unlock (&loading.lock);
  return GST_BUS_PASS;
}

static void
let_load (void)
{
  g_mutex_lock (&loading.lock);
  loading.released = TRUE;
  g_cond_broadcast (&loading.changed);
  g_mutex_unlock (&loading.lock);
}

static void
play (Talk *talk)
{
  g_assert_cmpint (
      gst_element_set_state (talk->pipeline, GST_STATE_PLAYING), !=, GST_STATE_CHANGE_FAILURE);
}

/* Until the model is being loaded. */
static void
begin (Talk *talk, const char *source, const char *prompt, const char *output)
{
  g_autofree char *rest = g_strdup_printf (REST, prompt, output);
  g_autofree char *line = g_strconcat (source, rest, NULL);
  g_autofree char *srt = test_srt (3);
  g_autofree char *path = test_write_file ("loading.srt", srt);

  talk->pipeline = test_pipeline (line);
  talk->decoder = gst_bin_get_by_name (GST_BIN (talk->pipeline), "d");
  talk->bus = gst_element_get_bus (talk->pipeline);
  g_mutex_lock (&loading.lock);
  loading.held = loading.released = FALSE;
  loading.started = loading.cancelled = loading.completed = 0;
  g_mutex_unlock (&loading.lock);
  gst_bus_set_sync_handler (talk->bus, hold_loading, NULL, NULL);
  play (talk);
  g_mutex_lock (&loading.lock);
  while (!loading.held)
    g_cond_wait (&loading.changed, &loading.lock);
  g_mutex_unlock (&loading.lock);
}

static void
stop (Talk *talk)
{
  g_assert_cmpint (
      gst_element_set_state (talk->pipeline, GST_STATE_NULL), ==, GST_STATE_CHANGE_SUCCESS);
  gst_object_unref (talk->bus);
  test_unref_last (talk->pipeline);
  test_unref_last (talk->decoder); /* the thread that loads has it */
}

static void
wait_end (Talk *talk)
{
  GstMessage *message =
      gst_bus_timed_pop_filtered (talk->bus, TEST_TIMEOUT, GST_MESSAGE_EOS | GST_MESSAGE_ERROR);

  g_assert_nonnull (message);
  g_assert_cmpint (GST_MESSAGE_TYPE (message), ==, GST_MESSAGE_EOS);
  gst_message_unref (message);
}

static void
say (Talk *talk, const char *text, GstClockTime time)
{
  GstElement *source = gst_bin_get_by_name (GST_BIN (talk->pipeline), "source");
  GstBuffer *buffer = test_text_buffer (text, -1, time, GST_SECOND);
  GstFlowReturn ret;

  g_signal_emit_by_name (source, "push-buffer", buffer, &ret);
  g_assert_cmpint (ret, ==, GST_FLOW_OK);
  gst_buffer_unref (buffer);
  gst_object_unref (source);
}

static void
ask (Talk *talk, const char *expected_id)
{
  g_autofree char *id = NULL;

  g_signal_emit_by_name (talk->decoder, "ask", "What is said?", NULL, &id);
  g_assert_cmpstr (id, ==, expected_id);
}

static GstMessage *
wait_answer (Talk *talk, const char *id)
{
  GstMessage *message = test_wait_element (talk->bus, "lychee-answer");

  g_assert_cmpstr (test_get_string (message, "id"), ==, id);
  return message;
}

/* A change of state neither waits for the model nor keeps it from being loaded again. */
static void
test_stop (void)
{
  Talk talk;

  begin (&talk, FILE_SOURCE, "What?", "");
  g_assert_cmpint (
      gst_element_set_state (talk.pipeline, GST_STATE_NULL), ==, GST_STATE_CHANGE_SUCCESS);
  g_assert_cmpuint (loading.started, ==, 1);
  g_assert_cmpuint (loading.cancelled, ==, 1);
  g_assert_cmpuint (loading.completed, ==, 0);
  let_load ();
  play (&talk);
  gst_message_unref (wait_answer (&talk, "1"));
  wait_end (&talk);
  g_assert_cmpuint (loading.started, ==, 2);
  g_assert_cmpuint (loading.completed, ==, 1);
  stop (&talk);
}

/* A flush ends the waiting for it, at once and without an error. */
static void
test_flush (void)
{
  GstElement *element;
  GstMessage *message;
  GstPad *pad;
  Talk talk;

  begin (&talk, FILE_SOURCE, "What?", "");
  element = gst_bin_get_by_name (GST_BIN (talk.pipeline), "t");
  pad = gst_element_get_static_pad (element, "sink");
  g_assert_true (gst_pad_send_event (pad, gst_event_new_flush_start ()));
  GST_PAD_STREAM_LOCK (pad);
  GST_PAD_STREAM_UNLOCK (pad);
  g_assert_true (gst_pad_send_event (pad, gst_event_new_flush_stop (TRUE)));
  message = test_pop (talk.bus, GST_MESSAGE_ERROR);
  g_assert_null (message);
  g_assert_cmpuint (loading.completed, ==, 0);
  let_load ();
  gst_object_unref (pad);
  gst_object_unref (element);
  stop (&talk);
}

/* What is asked meanwhile is answered from what is said then. */
static void
test_ask (gconstpointer data)
{
  gboolean is_live = data != NULL;
  gboolean empty;

  /* Where threads get no time for two seconds, even what is on its way is too late. */
  do {
    g_autoptr (GString) said = g_string_new (NULL);
    GstElement *sink;
    GstMessage *message;
    Talk talk;

    begin (&talk, is_live ? LIVE_SOURCE : FILE_SOURCE, "", "! application/x-json ");
    sink = gst_bin_get_by_name (GST_BIN (talk.pipeline), "s");
    g_signal_connect (sink, "handoff", G_CALLBACK (test_append_handoff), said);
    gst_object_unref (sink);
    if (is_live) /* too few words for a chunk: it is closed for the question */
      say (&talk, "The code of the door is", 0);
    ask (&talk, "1");
    let_load ();
    message = wait_answer (&talk, "1");
    empty = g_str_equal (test_get_string (message, "finish"), "empty");
    g_assert_true (empty || test_get_uint (message, "transcript-tokens") > 0);
    gst_message_unref (message);
    if (!is_live)
      wait_end (&talk);
    stop (&talk);
    /* As what downstream takes, which was not known then. */
    if (!empty && !is_live)
      g_assert_true (g_str_has_prefix (said->str, "{\"version\""));
    g_assert_null (strstr (said->str, "\n\n"));
  } while (empty);
}

/* Where nobody says a word, that is the answer soon after the model is there: to each question, and
 * not to what is asked when there is something to answer from. */
static void
test_silence (void)
{
  GstMessage *message;
  Talk talk;

  begin (&talk, LIVE_SOURCE, "", "");
  ask (&talk, "1");
  ask (&talk, "2");
  let_load ();
  for (guint i = 1; i <= 2; i++) {
    message = wait_answer (&talk, i == 1 ? "1" : "2");
    g_assert_cmpstr (test_get_string (message, "finish"), ==, "empty");
    g_assert_nonnull (strstr (test_get_string (message, "reason"), "nothing was said"));
    gst_message_unref (message);
  }
  for (guint i = 0; i < 5; i++)
    say (&talk, "This is a line of the talk.", i * GST_SECOND);
  while (gst_bus_have_pending (talk.bus))
    gst_message_unref (gst_bus_pop (talk.bus));
  gst_message_unref (test_wait_element (talk.bus, "lychee-progress"));
  ask (&talk, "3");
  message = wait_answer (&talk, "3");
  g_assert_cmpstr (test_get_string (message, "finish"), !=, "empty");
  gst_message_unref (message);
  stop (&talk);
}

/* Who cancels, or stops all, does not wait for that. */
static void
test_cancel (gconstpointer data)
{
  gboolean all = data != NULL;
  GstMessage *message;
  guint n = 0;
  Talk talk;

  begin (&talk, LIVE_SOURCE, "", "");
  ask (&talk, "1");
  if (all)
    gst_element_set_state (talk.pipeline, GST_STATE_READY);
  else
    g_signal_emit_by_name (talk.decoder, "cancel", "1", &n);
  g_assert_cmpuint (n, ==, all ? 0 : 1);
  message = wait_answer (&talk, "1");
  g_assert_cmpstr (test_get_string (message, "finish"), ==, "cancelled");
  gst_message_unref (message);
  let_load ();
  stop (&talk);
}

static void
add_tests (void)
{
  g_test_add_func ("/loading/stop", test_stop);
  g_test_add_func ("/loading/flush", test_flush);
  g_test_add_data_func ("/loading/ask/file", NULL, test_ask);
  g_test_add_data_func ("/loading/ask/live", "", test_ask);
  g_test_add_func ("/loading/silence", test_silence);
  g_test_add_data_func ("/loading/cancel/one", NULL, test_cancel);
  g_test_add_data_func ("/loading/cancel/ready", "", test_cancel);
}

int
main (int argc, char **argv)
{
  return test_main (argc, argv, add_tests);
}
