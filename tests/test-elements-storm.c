/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Whatever comes, in whatever order: seeks, questions, cancellations and changes of state at random
 * (the seeds are fixed), from two threads. Nothing hangs, each question is answered once, and in
 * the end all of the transcript has been read, as if nothing had happened.
 *
 * With LYCHEE_STORM_SEED, a number, it is another storm. */

#include "test-elements-common.h"

#include <string.h>

#define N_CUES 40
#define PIPELINE                                                                                   \
  "appsrc name=source stream-type=seekable format=time caps=text/x-raw,format=utf8 ! "             \
  "lycheetokenizer model=MODEL ! lycheechunker detector=structure ! lycheeindexer "                \
  "system-prompt=\"\" ! %s "                                                                       \
  "lycheedecoder name=d model=MODEL prompt=\"What is said?\" max-tokens=12 max-answers=2 %s ! "    \
  "fakesink name=s sync=false"

typedef struct {
  GstElement *pipeline;
  GstElement *decoder;
  gint next; /* line, atomic */

  GMutex lock; /* of what follows */
  GCond changed;
  GHashTable *asked; /* id -> how often it was answered, less one */
  guint n_final;
  char *text; /* of the last final answer that was not cancelled */
  guint transcript_tokens;
  gboolean eos;
  char *error;
} Storm;

static void
note_answer (Storm *storm, const GstStructure *structure)
{
  const char *id = gst_structure_get_string (structure, "id");

  if (g_str_equal (gst_structure_get_string (structure, "kind"), "question")) {
    gpointer times = NULL;

    /* It may be answered before asking returns. */
    g_hash_table_lookup_extended (storm->asked, id, NULL, &times);
    g_hash_table_insert (
        storm->asked, g_strdup (id), GINT_TO_POINTER (GPOINTER_TO_INT (times) + 1));
  } else if (g_str_equal (gst_structure_get_string (structure, "kind"), "final") &&
             !g_str_equal (gst_structure_get_string (structure, "finish"), "cancelled")) {
    g_free (storm->text);
    storm->text = g_strdup (gst_structure_get_string (structure, "text"));
    gst_structure_get_uint (structure, "transcript-tokens", &storm->transcript_tokens);
    storm->n_final++;
  }
}

/* In any thread. */
static GstBusSyncReply
on_message (GstBus *bus, GstMessage *message, gpointer user_data)
{
  Storm *storm = user_data;

  g_mutex_lock (&storm->lock);
  if (gst_message_has_name (message, "lychee-answer")) {
    note_answer (storm, gst_message_get_structure (message));
  } else if (GST_MESSAGE_TYPE (message) == GST_MESSAGE_EOS &&
             GST_MESSAGE_SRC (message) == GST_OBJECT_CAST (storm->pipeline)) {
    storm->eos = TRUE;
  } else if (GST_MESSAGE_TYPE (message) == GST_MESSAGE_ERROR && storm->error == NULL) {
    g_autoptr (GError) error = NULL;
    g_autofree char *debug = NULL;

    gst_message_parse_error (message, &error, &debug);
    storm->error =
        g_strdup_printf ("%s: %s (%s)", GST_MESSAGE_SRC_NAME (message), error->message, debug);
  }
  g_cond_broadcast (&storm->changed);
  g_mutex_unlock (&storm->lock);
  gst_message_unref (message);
  return GST_BUS_DROP;
}

/* The source: a line each second. */

static void
on_need_data (GstElement *source, guint length, gpointer user_data)
{
  Storm *storm = user_data;
  guint line = g_atomic_int_add (&storm->next, 1);
  GstFlowReturn ret;

  if (line < N_CUES) {
    g_autofree char *text = g_strdup_printf ("This is line %u of the talk.", line);
    GstBuffer *buffer = test_text_buffer (text, -1, line * GST_SECOND, GST_SECOND);

    g_signal_emit_by_name (source, "push-buffer", buffer, &ret);
    gst_buffer_unref (buffer);
  } else if (line == N_CUES) {
    g_signal_emit_by_name (source, "end-of-stream", &ret);
  }
}

static gboolean
on_seek_data (GstElement *source, guint64 time, gpointer user_data)
{
  Storm *storm = user_data;

  g_atomic_int_set (&storm->next, (time + GST_SECOND - 1) / GST_SECOND);
  return TRUE;
}

static void
storm_begin (Storm *storm, const char *before, const char *settings)
{
  g_autofree char *description = g_strdup_printf (PIPELINE, before, settings);
  GstElement *source;
  GstBus *bus;

  memset (storm, 0, sizeof *storm);
  g_mutex_init (&storm->lock);
  g_cond_init (&storm->changed);
  storm->asked = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, NULL);
  storm->pipeline = test_pipeline (description);
  storm->decoder = gst_bin_get_by_name (GST_BIN (storm->pipeline), "d");
  source = gst_bin_get_by_name (GST_BIN (storm->pipeline), "source");
  g_signal_connect (source, "need-data", G_CALLBACK (on_need_data), storm);
  g_signal_connect (source, "seek-data", G_CALLBACK (on_seek_data), storm);
  gst_object_unref (source);
  bus = gst_element_get_bus (storm->pipeline);
  gst_bus_set_sync_handler (bus, on_message, storm, NULL);
  gst_object_unref (bus);
}

static void
set_state (Storm *storm, GstState state)
{
  g_assert_cmpint (gst_element_set_state (storm->pipeline, state), !=, GST_STATE_CHANGE_FAILURE);
}

/* Waits until the transcript has been read from its beginning and answered. */
static void
storm_wait_end (Storm *storm)
{
  gint64 until = g_get_monotonic_time () + TEST_TIMEOUT / 1000;

  g_mutex_lock (&storm->lock);
  while (!storm->eos && storm->error == NULL)
    g_assert_true (g_cond_wait_until (&storm->changed, &storm->lock, until));
  g_assert_cmpstr (storm->error, ==, NULL);
  g_mutex_unlock (&storm->lock);
}

static void
storm_end (Storm *storm)
{
  GHashTableIter iter;
  gpointer id, times;

  set_state (storm, GST_STATE_NULL);
  g_hash_table_iter_init (&iter, storm->asked);
  while (g_hash_table_iter_next (&iter, &id, &times)) {
    g_test_message ("%s: %d", (char *) id, GPOINTER_TO_INT (times));
    g_assert_cmpint (GPOINTER_TO_INT (times), ==, 0);
  }
  gst_object_unref (storm->decoder);
  test_unref_last (storm->pipeline);
  g_hash_table_unref (storm->asked);
  g_free (storm->text);
  g_free (storm->error);
  g_mutex_clear (&storm->lock);
  g_cond_clear (&storm->changed);
}

static void
ask (Storm *storm, GRand *random, const char *prefix, guint n)
{
  g_autofree char *name = g_strdup_printf ("%s-%u", prefix, n);
  GstStructure *options = gst_structure_new ("x", "id", G_TYPE_STRING, name, "max-tokens",
      G_TYPE_UINT, g_rand_int_range (random, 1, 40), NULL);
  char *id = NULL;

  if (g_rand_int_range (random, 0, 3) == 0)
    gst_structure_set (options, "last", G_TYPE_UINT64,
        (guint64) g_rand_int_range (random, 1, N_CUES) * GST_SECOND, NULL);
  g_signal_emit_by_name (storm->decoder, "ask", "What?", options, &id);
  gst_structure_free (options);
  if (id != NULL) {
    gpointer times = NULL;

    g_mutex_lock (&storm->lock);
    g_hash_table_lookup_extended (storm->asked, id, NULL, &times);
    g_hash_table_insert (storm->asked, id, GINT_TO_POINTER (GPOINTER_TO_INT (times) - 1));
    g_mutex_unlock (&storm->lock);
  }
}

static void
cancel (Storm *storm, GRand *random, const char *prefix, guint n)
{
  g_autofree char *id = g_strdup_printf ("%s-%d", prefix, g_rand_int_range (random, 0, n + 1));
  guint count;

  g_signal_emit_by_name (
      storm->decoder, "cancel", g_rand_int_range (random, 0, 4) == 0 ? NULL : id, &count);
}

static gboolean
seek (Storm *storm, GstClockTime time)
{
  return gst_element_seek_simple (
      storm->pipeline, GST_FORMAT_TIME, GST_SEEK_FLAG_FLUSH | GST_SEEK_FLAG_KEY_UNIT, time);
}

typedef struct {
  Storm *storm;
  guint32 seed;
  gint over;
} Other;

/* Asks and cancels meanwhile. */
static gpointer
ask_and_cancel (gpointer user_data)
{
  Other *other = user_data;
  GRand *random = g_rand_new_with_seed (other->seed);

  for (guint i = 0; !g_atomic_int_get (&other->over); i++) {
    if (i < 1000) {
      if (g_rand_int_range (random, 0, 3) > 0)
        ask (other->storm, random, "b", i);
      else
        cancel (other->storm, random, "b", i);
    }
    g_thread_yield ();
  }
  g_rand_free (random);
  return NULL;
}

typedef struct {
  guint32 seed;
  guint n;
  gboolean two; /* threads */
  const char *before;
  const char *settings;
} Weather;

static void
rage (Storm *storm, const Weather *weather)
{
  GRand *random = g_rand_new_with_seed (weather->seed);
  Other other = { storm, weather->seed + 1, FALSE };
  GThread *thread = weather->two ? g_thread_new ("asks", ask_and_cancel, &other) : NULL;

  for (guint i = 0; i < weather->n; i++) {
    switch (g_rand_int_range (random, 0, 12)) {
    case 0:
    case 1:
      set_state (storm, GST_STATE_PAUSED);
      break;
    case 2:
    case 3:
      set_state (storm, GST_STATE_PLAYING);
      break;
    case 4:
      set_state (storm, g_rand_int_range (random, 0, 2) ? GST_STATE_READY : GST_STATE_NULL);
      set_state (storm, GST_STATE_PLAYING);
      break;
    case 5:
    case 6:
      /* Where it is on its way up or down there is nothing to seek in. */
      seek (storm, g_rand_int_range (random, 0, N_CUES) * GST_SECOND);
      break;
    case 7:
    case 8:
      cancel (storm, random, "a", i);
      break;
    default:
      ask (storm, random, "a", i);
    }
    /* Now and then it gets somewhere. */
    if (g_rand_int_range (random, 0, 8) == 0)
      gst_element_get_state (storm->pipeline, NULL, NULL, 20 * GST_MSECOND);
  }
  g_rand_free (random);
  if (thread != NULL) {
    g_atomic_int_set (&other.over, TRUE);
    g_thread_join (thread);
  }
}

static void
test_storm (gconstpointer data)
{
  const Weather *weather = data;
  GstTracer *tracer = test_find_leaks_tracer ();
  guint before = tracer != NULL ? test_count_live (tracer) : 0;
  g_autofree char *expected = NULL;
  guint expected_tokens;
  Storm storm;

  /* How it is in fair weather. */
  storm_begin (&storm, weather->before, weather->settings);
  set_state (&storm, GST_STATE_PLAYING);
  storm_wait_end (&storm);
  g_assert_cmpuint (storm.n_final, ==, 1);
  expected = g_strdup (storm.text);
  expected_tokens = storm.transcript_tokens;
  storm_end (&storm);

  storm_begin (&storm, weather->before, weather->settings);
  set_state (&storm, GST_STATE_PLAYING);
  rage (&storm, weather);
  /* From the beginning: what is left of before is cut, nothing is lost, nothing is there twice. */
  set_state (&storm, GST_STATE_PAUSED);
  g_assert_cmpint (gst_element_get_state (storm.pipeline, NULL, NULL, TEST_TIMEOUT), ==,
      GST_STATE_CHANGE_SUCCESS);
  g_assert_true (seek (&storm, 0));
  g_mutex_lock (&storm.lock);
  storm.eos = FALSE;
  g_clear_pointer (&storm.text, g_free);
  g_mutex_unlock (&storm.lock);
  set_state (&storm, GST_STATE_PLAYING);
  storm_wait_end (&storm);
  g_assert_cmpuint (storm.transcript_tokens, ==, expected_tokens);
  g_assert_cmpstr (storm.text, ==, expected);
  storm_end (&storm);
  if (tracer != NULL) {
    test_assert_none_left (tracer, before);
    gst_object_unref (tracer);
  }
}

static void
add_tests (void)
{
  const char *shift = g_getenv ("LYCHEE_STORM_SEED");
  static Weather weathers[] = {
    { 1, 250, FALSE, "", "" },
    { 2, 250, TRUE, "", "stream=sentence ! application/x-json" },
    { 3, 250, TRUE, "queue !", "interval=3000000000" },
    { 4, 250, TRUE, "", "stream=answer max-answers=1" },
  };

  for (guint i = 0; i < G_N_ELEMENTS (weathers); i++) {
    g_autofree char *name = g_strdup_printf ("/storm/%u", weathers[i].seed);

    weathers[i].seed += shift != NULL ? 10 * (guint) g_ascii_strtoull (shift, NULL, 10) : 0;
    g_test_add_data_func (name, &weathers[i], test_storm);
  }
}

int
main (int argc, char **argv)
{
  return test_main (argc, argv, add_tests);
}
