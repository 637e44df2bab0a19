/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* A seek back, in a transcript that was read and in one that was saved and resumed: what was said
 * before its place stays, what is said from there on is read once. */

#include "test-elements-common.h"

#include <glib/gstdio.h>

#define CHAIN                                                                                      \
  "lycheetokenizer model=MODEL ! lycheechunker detector=structure ! lycheeindexer name=i "         \
  "system-prompt=\"\" "

#define N_CUES 3
#define CUE_SECONDS 4

static const char *const sentences[] = {
  "The first of us says that the harvest was late this year.",
  "The second one answers that the rain came when nobody wanted it.",
  "Then the third has to go, and asks for the minutes to be sent.",
};

/* As recognisers give it: chunks lie over two cues. */
static const char *const speech[] = { "the first of us says that the harvest", "no",
  "and then the third has to go" };

/* Where the transcript is that is cut. */
typedef enum {
  READ,         /* by this pipeline */
  SAVED,        /* by another one; this one has heard nothing yet */
  SAVED_AND_ON, /* and this one has gone on */
} Where;

static const char *const where_names[] = { "read", "saved", "saved-and-on" };

typedef struct {
  Where where;
  const char *const *cues; /* [N_CUES] */
  guint second;            /* sought */
} Seek;

/* Says the cues from @first to before @end, and ends them. */
static void
say_cues (Chain *chain, const char *const *cues, guint first, guint end)
{
  for (guint i = first; i < end; i++)
    g_assert_cmpint (
        gst_harness_push (chain->harness,
            test_text_buffer (cues[i], -1, CUE_SECONDS * i * GST_SECOND, CUE_SECONDS * GST_SECOND)),
        ==, GST_FLOW_OK);
  g_assert_true (gst_harness_push_event (
      chain->harness, gst_event_new_gap (CUE_SECONDS * end * GST_SECOND, GST_CLOCK_TIME_NONE)));
}

/* The text of all that was read; without white space, which depends on where a stream begins. */
static char *
pull_read_text (Chain *chain)
{
  g_autoptr (GString) text = g_string_new (NULL);
  g_autoptr (LycheeCache) cache = NULL;
  GstBuffer *buffer;
  LycheeChunk *chunk;

  while ((buffer = gst_harness_try_pull (chain->harness)) != NULL) {
    g_set_object (&cache, test_kv_meta (buffer)->cache);
    gst_buffer_unref (buffer);
  }
  g_assert_nonnull (cache);
  for (guint i = 0; (chunk = lychee_cache_get_chunk (cache, i, NULL)) != NULL; i++) {
    for (const char *at = chunk->text; *at != '\0'; at++)
      if (!g_ascii_isspace (*at))
        g_string_append_c (text, *at);
    lychee_chunk_unref (chunk);
  }
  return g_string_free (g_steal_pointer (&text), FALSE);
}

static void
seek (Chain *chain, guint second)
{
  test_chain_flush (chain);
  test_chain_segment (chain, second * GST_SECOND);
}

static char *
new_path (void)
{
  char *path = g_build_filename (test_dir (), "session", NULL);

  g_unlink (path);
  return path;
}

/* A pipeline that keeps its session in @path. */
static void
begin (Chain *chain, const char *path)
{
  g_autofree char *description = g_strconcat (CHAIN "location=", path, NULL);

  test_chain_init (chain, description, TEST_TEXT_CAPS);
}

/* A seek into the middle of a cue has all of it said again, and it is read once. */
static void
test_seek (gconstpointer data)
{
  const Seek *c = data;
  guint saved = c->where == SAVED_AND_ON ? 2 : N_CUES;
  g_autofree char *path = new_path (), *expected = NULL, *text = NULL;
  Chain chain;

  begin (&chain, path);
  say_cues (&chain, c->cues, 0, N_CUES);
  expected = pull_read_text (&chain);
  if (c->where != READ) {
    test_chain_clear (&chain);
    g_unlink (path);
    begin (&chain, path);
    say_cues (&chain, c->cues, 0, saved);
    test_chain_clear (&chain);
    begin (&chain, path);
    if (c->where == SAVED_AND_ON)
      say_cues (&chain, c->cues, saved, N_CUES);
  }
  seek (&chain, c->second);
  say_cues (&chain, c->cues, c->second / CUE_SECONDS, N_CUES);
  text = pull_read_text (&chain);
  g_assert_cmpstr (text, ==, expected);
  test_chain_clear (&chain);
}

/* Where what follows a saved transcript counts time anew, as a second file does, a seek is about
 * that. */
static void
test_times_anew (void)
{
  g_autofree char *path = new_path (), *first = NULL, *second = NULL, *text = NULL;
  g_autofree char *expected = NULL;
  Chain chain;

  begin (&chain, path);
  say_cues (&chain, sentences, 0, N_CUES);
  first = pull_read_text (&chain);
  test_chain_clear (&chain);

  test_chain_init (&chain, CHAIN, TEST_TEXT_CAPS);
  say_cues (&chain, speech, 0, N_CUES);
  second = pull_read_text (&chain);
  test_chain_clear (&chain);
  expected = g_strconcat (first, second, NULL);

  begin (&chain, path);
  say_cues (&chain, speech, 0, N_CUES);
  text = pull_read_text (&chain);
  g_assert_cmpstr (text, ==, expected);
  for (guint to = 0; to < N_CUES; to++) {
    g_autofree char *again = NULL;

    seek (&chain, CUE_SECONDS * to + 1);
    say_cues (&chain, speech, to, N_CUES);
    again = pull_read_text (&chain);
    g_assert_cmpstr (again, ==, expected);
  }
  test_chain_clear (&chain);

  /* And it is saved as a whole. */
  begin (&chain, path);
  g_assert_true (gst_harness_push_event (chain.harness, gst_event_new_eos ()));
  g_free (text);
  text = pull_read_text (&chain);
  g_assert_cmpstr (text, ==, expected);
  test_chain_clear (&chain);
}

/* In a pipeline, where seeks have rates and loops: an answer has its time in the transcript, and
 * its turn in running time. */
typedef struct {
  const char *name;
  double rate;
  gint start, stop; /* seconds; -1: the end */
  gboolean loop;    /* once more, without a flush */
  double time, running_time;
} Turn;

static const Turn turns[] = {
  { "forward", 1, 10, -1, FALSE, 20, 10 },
  { "fast", 2, 10, -1, FALSE, 20, 5 },
  { "slow", 0.5, 0, 10, FALSE, 10, 20 },
  { "loop", 1, 5, 10, TRUE, 10, 10 },
};

static void
on_handoff (GstElement *sink, GstBuffer *buffer, GstPad *pad, gpointer last)
{
  gst_buffer_replace (last, buffer);
}

static void
wait_message (GstElement *pipeline, GstMessageType type)
{
  g_autoptr (GstBus) bus = gst_element_get_bus (pipeline);
  GstMessage *message = gst_bus_timed_pop_filtered (bus, TEST_TIMEOUT, type | GST_MESSAGE_ERROR);

  g_assert_nonnull (message);
  g_assert_cmpint (GST_MESSAGE_TYPE (message), ==, type);
  gst_message_unref (message);
}

static gboolean
seek_pipeline (GstElement *pipeline, const Turn *turn, GstSeekFlags flags)
{
  return gst_element_seek (pipeline, turn->rate, GST_FORMAT_TIME, flags, GST_SEEK_TYPE_SET,
      turn->start * GST_SECOND, GST_SEEK_TYPE_SET,
      turn->stop < 0 ? -1 : (gint64) (turn->stop * GST_SECOND));
}

static void
test_turn (gconstpointer data)
{
  const Turn *turn = data;
  g_autofree char *srt = test_srt (20);
  g_autofree char *path = test_write_file ("turn.srt", srt);
  GstElement *pipeline = test_pipeline (
      "filesrc location=DIR/turn.srt ! lycheetranscriptparse ! " CHAIN
      "! lycheedecoder model=MODEL max-tokens=2 stream=answer ! fakesink name=s sync=false "
      "signal-handoffs=true");
  GstElement *sink = gst_bin_get_by_name (GST_BIN (pipeline), "s");
  GstPad *pad = gst_element_get_static_pad (sink, "sink");
  GstSeekFlags loop = turn->loop ? GST_SEEK_FLAG_SEGMENT : 0;
  GstBuffer *answer = NULL;
  GstEvent *event;
  const GstSegment *segment;

  g_signal_connect (sink, "handoff", G_CALLBACK (on_handoff), &answer);
  gst_element_set_state (pipeline, GST_STATE_PAUSED);
  g_assert_cmpint (
      gst_element_get_state (pipeline, NULL, NULL, TEST_TIMEOUT), ==, GST_STATE_CHANGE_SUCCESS);
  g_assert_true (seek_pipeline (pipeline, turn, GST_SEEK_FLAG_FLUSH | loop));
  gst_element_set_state (pipeline, GST_STATE_PLAYING);
  if (turn->loop) {
    wait_message (pipeline, GST_MESSAGE_SEGMENT_DONE);
    g_assert_null (answer); /* it is not the end */
    g_assert_true (seek_pipeline (pipeline, turn, 0));
  }
  wait_message (pipeline, GST_MESSAGE_EOS);
  g_assert_nonnull (answer);
  g_assert_cmpuint (GST_BUFFER_PTS (answer), ==, turn->time * GST_SECOND);
  event = gst_pad_get_sticky_event (pad, GST_EVENT_SEGMENT, 0);
  gst_event_parse_segment (event, &segment);
  g_assert_cmpuint (gst_segment_to_stream_time (segment, GST_FORMAT_TIME, GST_BUFFER_PTS (answer)),
      ==, turn->time * GST_SECOND);
  g_assert_cmpuint (gst_segment_to_running_time (segment, GST_FORMAT_TIME, GST_BUFFER_PTS (answer)),
      ==, turn->running_time * GST_SECOND);
  gst_event_unref (event);
  gst_element_set_state (pipeline, GST_STATE_NULL);
  gst_buffer_unref (answer);
  gst_object_unref (pad);
  gst_object_unref (sink);
  test_unref_last (pipeline);
}

static void
add_tests (void)
{
  static const guint seconds[] = { 0, 1, 4, 5, 7, 8, 11 };
  static Seek seeks[G_N_ELEMENTS (where_names)][2][G_N_ELEMENTS (seconds)];

  for (guint i = 0; i < G_N_ELEMENTS (where_names); i++)
    for (guint j = 0; j < 2; j++)
      for (guint k = 0; k < G_N_ELEMENTS (seconds); k++) {
        g_autofree char *name = g_strdup_printf (
            "/seek/%s/%s/%u", where_names[i], j == 0 ? "sentences" : "speech", seconds[k]);

        seeks[i][j][k] = (Seek){ i, j == 0 ? sentences : speech, seconds[k] };
        g_test_add_data_func (name, &seeks[i][j][k], test_seek);
      }
  g_test_add_func ("/seek/times-anew", test_times_anew);
  for (guint i = 0; i < G_N_ELEMENTS (turns); i++) {
    g_autofree char *name = g_strconcat ("/seek/turn/", turns[i].name, NULL);

    g_test_add_data_func (name, &turns[i], test_turn);
  }
}

int
main (int argc, char **argv)
{
  return test_main (argc, argv, add_tests);
}
