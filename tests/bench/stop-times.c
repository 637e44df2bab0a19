/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* How long it takes until everything stops: a cancellation, a flush and a change to NULL, while the
 * model is loaded, the transcript is read, a question is read and an answer is given. As TAP, which
 * fails only where something does not come to rest; the times are for docs/benchmarks.md.
 *
 * stop-times [--model FILE] [--runs N] [--tokens N] [--only N]: without a model, a tiny one. */

#include "tiny-model.h"

#include <gst/gst.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PATIENCE (300 * GST_SECOND)

typedef enum { LOADING, READING, ASKING, ANSWERING, N_MOMENTS } Moment;
typedef enum { CANCEL, FLUSH, STOP, N_WAYS } Way;
static const char *const moments[] = { "loading", "reading", "reading the question", "answering" };
static const char *const ways[] = { "cancel", "flush", "NULL" };

typedef struct {
  GstElement *pipeline, *decoder, *tokenizer;
  GstPad *sink; /* of the tokenizer */
  GstBus *bus;
  gint pieces;   /* of an answer, atomic */
  gint loading;  /* atomic */
  gint tokens;   /* that were read, atomic */
  gint finished; /* atomic: whoever talks goes */
  gint most;     /* tokens that are to be read */
} Run;

G_NORETURN static void
bail_out (const char *why)
{
  printf ("Bail out! %s\n", why);
  exit (1);
}

static void
on_handoff (GstElement *sink, GstBuffer *buffer, GstPad *pad, gpointer run)
{
  g_atomic_int_inc (&((Run *) run)->pieces);
}

static GstPadProbeReturn
on_chunk (GstPad *pad, GstPadProbeInfo *info, gpointer run)
{
  g_atomic_int_set (
      &((Run *) run)->tokens, (gint) GST_BUFFER_OFFSET_END (GST_PAD_PROBE_INFO_BUFFER (info)));
  return GST_PAD_PROBE_OK;
}

static GstBusSyncReply
on_message (GstBus *bus, GstMessage *message, gpointer user_data)
{
  Run *run = user_data;
  GstProgressType type;

  if (GST_MESSAGE_TYPE (message) == GST_MESSAGE_PROGRESS) {
    gst_message_parse_progress (message, &type, NULL, NULL);
    if (type == GST_PROGRESS_TYPE_CONTINUE)
      g_atomic_int_set (&run->loading, TRUE);
  }
  return GST_BUS_PASS;
}

static void
wait_for_answer (Run *run)
{
  for (;;) {
    GstMessage *message =
        gst_bus_timed_pop_filtered (run->bus, PATIENCE, GST_MESSAGE_ELEMENT | GST_MESSAGE_ERROR);
    gboolean found;

    if (message == NULL)
      bail_out ("nothing comes any more");
    if (GST_MESSAGE_TYPE (message) == GST_MESSAGE_ERROR) {
      GError *error = NULL;

      gst_message_parse_error (message, &error, NULL);
      bail_out (error->message);
    }
    found = gst_message_has_name (message, "lychee-answer");
    gst_message_unref (message);
    if (found)
      return;
  }
}

/* A thread that talks, as filesrc would, until it is told to stop. */
static gpointer
talk (gpointer user_data)
{
  Run *run = user_data;
  g_autoptr (GstCaps) caps = gst_caps_from_string ("text/x-raw, format=(string)utf8");
  GstSegment segment;

  gst_segment_init (&segment, GST_FORMAT_TIME);
  gst_pad_send_event (run->sink, gst_event_new_stream_start ("talk"));
  gst_pad_send_event (run->sink, gst_event_new_caps (caps));
  gst_pad_send_event (run->sink, gst_event_new_segment (&segment));
  for (guint i = 0;; i++) {
    char *line = g_strdup_printf ("Item %u: the %s of plot %u has to be seen to.\n", i,
        i % 3 ? "fence" : "well", i * 7 % 101);
    GstBuffer *buffer = gst_buffer_new_wrapped (line, strlen (line));

    GST_BUFFER_PTS (buffer) = i * GST_SECOND;
    GST_BUFFER_DURATION (buffer) = GST_SECOND;
    while (g_atomic_int_get (&run->tokens) > run->most && !g_atomic_int_get (&run->finished))
      g_usleep (1000);
    if (gst_pad_chain (run->sink, buffer) != GST_FLOW_OK || g_atomic_int_get (&run->finished))
      return NULL;
  }
}

static void
begin (Run *run, const char *model, guint tokens)
{
  g_autofree char *line = g_strdup_printf (
      "lycheetokenizer name=t model=\"%s\" ! lycheechunker detector=structure ! lycheeindexer "
      "max-context=%u ! lycheedecoder name=d prompt=\"\" max-tokens=0 temperature=1.5 ! fakesink "
      "name=s sync=false async=false signal-handoffs=true",
      model, tokens + 2048);
  GError *error = NULL;
  GstElement *sink;
  GstPad *pad;

  *run = (Run){ gst_parse_launch (line, &error) };
  if (run->pipeline == NULL)
    bail_out (error->message);
  run->decoder = gst_bin_get_by_name (GST_BIN (run->pipeline), "d");
  run->tokenizer = gst_bin_get_by_name (GST_BIN (run->pipeline), "t");
  run->sink = gst_element_get_static_pad (run->tokenizer, "sink");
  run->bus = gst_element_get_bus (run->pipeline);
  gst_bus_set_sync_handler (run->bus, on_message, run, NULL);
  sink = gst_bin_get_by_name (GST_BIN (run->pipeline), "s");
  g_signal_connect (sink, "handoff", G_CALLBACK (on_handoff), run);
  gst_object_unref (sink);
  pad = gst_element_get_static_pad (run->decoder, "sink");
  gst_pad_add_probe (pad, GST_PAD_PROBE_TYPE_BUFFER, on_chunk, run, NULL);
  gst_object_unref (pad);
  run->most = tokens + 500;
  gst_element_set_state (run->pipeline, GST_STATE_PLAYING);
}

static void
end (Run *run)
{
  gst_element_set_state (run->pipeline, GST_STATE_NULL);
  gst_bus_set_sync_handler (run->bus, NULL, NULL, NULL);
  gst_object_unref (run->bus);
  gst_object_unref (run->sink);
  gst_object_unref (run->tokenizer);
  gst_object_unref (run->decoder);
  gst_object_unref (run->pipeline);
}

static guint
count_running (Run *run, guint *ended)
{
  GstStructure *stats = NULL;
  guint running = 0;

  g_object_get (run->decoder, "stats", &stats, NULL);
  gst_structure_get (stats, "running", G_TYPE_UINT, &running, "answers", G_TYPE_UINT, ended, NULL);
  gst_structure_free (stats);
  return running;
}

/* Asks, until an answer is under way: one may be over before anybody looks. */
static void
ask (Run *run, Moment moment)
{
  guint asked = 0, ended = 0, running;
  GstMessage *message;

  do {
    if (asked == ended) {
      char *id = NULL;

      g_signal_emit_by_name (run->decoder, "ask", "What has to be seen to?", NULL, &id);
      g_free (id);
      asked++;
    }
    g_usleep (100);
    running = count_running (run, &ended);
  } while (running == 0 || (moment == ANSWERING && g_atomic_int_get (&run->pieces) < 3));
  /* Into the first pass. */
  if (moment == ASKING)
    g_usleep (20000);
  /* Of those that are over nobody needs to know. */
  while ((message = gst_bus_pop (run->bus)) != NULL)
    gst_message_unref (message);
}

/* Milliseconds until all is quiet. */
static double
measure (const char *model, Moment moment, Way way, guint tokens)
{
  GThread *thread;
  gint64 begun;
  double ms;
  guint n = 0;
  Run run;

  begin (&run, model, tokens);
  thread = g_thread_new ("talk", talk, &run);
  while (!g_atomic_int_get (&run.loading))
    g_usleep (100);
  while (moment != LOADING && (guint) g_atomic_int_get (&run.tokens) < tokens)
    g_usleep (100);
  if (moment >= ASKING)
    ask (&run, moment);

  begun = g_get_monotonic_time ();
  switch (way) {
  case CANCEL:
    g_signal_emit_by_name (run.decoder, "cancel", NULL, &n);
    if (n > 0)
      wait_for_answer (&run);
    break;
  case FLUSH:
    gst_pad_send_event (run.sink, gst_event_new_flush_start ());
    g_atomic_int_set (&run.finished, TRUE);
    g_thread_join (g_steal_pointer (&thread));
    gst_pad_send_event (run.sink, gst_event_new_flush_stop (TRUE));
    while (count_running (&run, &n) > 0)
      g_usleep (100);
    break;
  default:
    gst_element_set_state (run.pipeline, GST_STATE_NULL);
    break;
  }
  ms = (g_get_monotonic_time () - begun) / 1e3;
  g_atomic_int_set (&run.finished, TRUE);
  if (thread != NULL && way == CANCEL)
    gst_element_set_state (run.pipeline, GST_STATE_NULL);
  if (thread != NULL)
    g_thread_join (thread);
  end (&run);
  return ms;
}

static int
compare (gconstpointer a, gconstpointer b)
{
  double x = *(const double *) a, y = *(const double *) b;

  return (x > y) - (x < y);
}

int
main (int argc, char **argv)
{
  g_autofree char *model = NULL, *dir = NULL;
  gint runs = 1, tokens = 500, only = 0;
  const GOptionEntry entries[] = { { "model", 'm', 0, G_OPTION_ARG_FILENAME, &model,
                                       "GGUF file of the model (default: a tiny one)", "FILE" },
    { "runs", 'n', 0, G_OPTION_ARG_INT, &runs, "times that each is done (1)", "N" },
    { "only", 0, 0, G_OPTION_ARG_INT, &only, "the number of one to do (0: all)", "N" },
    { "tokens", 0, 0, G_OPTION_ARG_INT, &tokens, "of transcript before (500)", "N" }, { NULL } };
  g_autoptr (GOptionContext) context = g_option_context_new (NULL);
  g_autoptr (GError) error = NULL;
  guint n = 0;

  g_option_context_add_main_entries (context, entries, NULL);
  g_option_context_add_group (context, gst_init_get_option_group ());
  if (!g_option_context_parse (context, &argc, &argv, &error))
    bail_out (error->message);
  if (model == NULL) {
    LycheeTinyModel tiny = LYCHEE_TINY_MODEL_INIT;

    dir = g_dir_make_tmp ("lychee-stop-XXXXXX", NULL);
    model = lychee_tiny_model_write (&tiny, dir, "tiny.gguf");
  }
  if (only == 0)
    printf ("1..%u\n", N_MOMENTS * N_WAYS - 2);
  for (Moment moment = 0; moment < N_MOMENTS; moment++)
    for (Way way = moment < ASKING ? FLUSH : CANCEL; way < N_WAYS; way++) {
      g_autofree double *ms = g_new (double, runs);

      n++;
      if (only > 0 && n != (guint) only)
        continue;
      for (gint i = 0; i < runs; i++)
        ms[i] = measure (model, moment, way, MAX (tokens, 1));
      qsort (ms, runs, sizeof *ms, compare);
      printf ("ok %u %s, %s: %.1f ms (median of %d), %.1f at most\n", n, moments[moment], ways[way],
          ms[runs / 2], runs, ms[runs - 1]);
      fflush (stdout);
    }
  if (dir != NULL)
    lychee_test_remove_dir (dir);
  return 0;
}
