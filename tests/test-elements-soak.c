/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* A long meeting: the transcript streams, and every thousand tokens somebody asks. Memory grows
 * with the cache only, a word of an answer costs the same all along, and the last answer still
 * rests on the first minute.
 *
 * With LYCHEE_SOAK_TOKENS the meeting is as long as that, and with LYCHEE_SOAK_SPEED it comes at so
 * many times the speed of speech (4 tokens a second): tests/test-elements-soak prints a table.
 * LYCHEE_SOAK_MODEL names another model than a tiny one. */

#include "test-elements-common.h"

#include "tiny-model.h"

#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

#define DEFAULT_TOKENS 10000
#define ASK_EVERY 1000
#define TOKENS_A_SECOND 4
#define LINE_TOKENS 51 /* about: each answer tells how many there are */

static guint64
get_setting (const char *name, guint64 otherwise)
{
  const char *value = g_getenv (name);

  return value != NULL ? g_ascii_strtoull (value, NULL, 10) : otherwise;
}

/* Resident bytes of this process. */
static guint64
get_resident (void)
{
  g_autofree char *text = NULL;
  guint64 pages = 0;

  if (g_file_get_contents ("/proc/self/statm", &text, NULL, NULL))
    sscanf (text, "%*u %" G_GUINT64_FORMAT, &pages);
  return pages * sysconf (_SC_PAGESIZE);
}

typedef struct {
  guint64 tokens; /* of the transcript */
  guint64 resident;
  guint64 kept;         /* bytes of cache and index */
  double milliseconds;  /* of the processor, for a token of question and answer */
  double read, scored;  /* rows and nodes, for a token, layer and KV head */
  guint64 first_second; /* of the earliest evidence */
} Moment;

static guint64
get_first (const GValue *evidence)
{
  guint64 first = GST_CLOCK_TIME_NONE;

  for (guint i = 0; i < gst_value_array_get_size (evidence); i++) {
    guint64 start;

    if (gst_structure_get_uint64 (
            gst_value_get_structure (gst_value_array_get_value (evidence, i)), "start", &start))
      first = MIN (first, start);
  }
  return GST_CLOCK_TIME_IS_VALID (first) ? first / GST_SECOND : first;
}

/* Milliseconds of the processor that this process has used: other processes do not count. */
static double
get_processor_time (void)
{
  struct rusage usage;

  g_assert_cmpint (getrusage (RUSAGE_SELF, &usage), ==, 0);
  return (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1e3 +
         (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e3;
}

/* The layers' coarse nodes are all that there are. */
static void
assert_layers (const GstStructure *stats)
{
  const GValue *layers = gst_structure_get_value (stats, "index-coarse-of-layers");
  guint64 coarse = 0, sum = 0;

  g_assert_true (gst_structure_get_uint64 (stats, "index-coarse", &coarse));
  g_assert_nonnull (layers);
  g_assert_cmpuint (gst_value_array_get_size (layers), >, 1);
  for (guint i = 0; i < gst_value_array_get_size (layers); i++)
    sum += g_value_get_uint64 (gst_value_array_get_value (layers, i));
  g_assert_cmpuint (sum, ==, coarse);
}

/* Asks, and waits for the answer while nothing else happens. */
static Moment
ask (Chain *chain, GstElement *decoder, guint n_evidence)
{
  g_autoptr (GstStructure) options =
      gst_structure_new ("ask", "evidence", G_TYPE_UINT, n_evidence, NULL);
  Moment moment = { 0 };
  GstMessage *message;
  GstStructure *stats = NULL;
  guint64 cache = 0, index = 0, queries = 0, dense = 0, read = 0, scored = 0;
  double begun = get_processor_time ();
  char *id = NULL;

  g_signal_emit_by_name (decoder, "ask", "What was said?", options, &id);
  g_assert_nonnull (id);
  g_free (id);
  message = test_wait_element (chain->bus, "lychee-answer");
  moment.milliseconds =
      (get_processor_time () - begun) /
      (test_get_uint (message, "prompt-tokens") + test_get_uint (message, "answer-tokens"));
  g_assert_cmpstr (test_get_string (message, "finish"), !=, "failed");
  moment.tokens = test_get_uint (message, "transcript-tokens");
  moment.first_second =
      get_first (gst_structure_get_value (gst_message_get_structure (message), "evidence"));
  gst_message_unref (message);

  g_object_get (decoder, "stats", &stats, NULL);
  g_assert_true (
      gst_structure_get (stats, "cache-bytes", G_TYPE_UINT64, &cache, "index-bytes", G_TYPE_UINT64,
          &index, "sparse-queries", G_TYPE_UINT64, &queries, "dense-queries", G_TYPE_UINT64, &dense,
          "rows-read", G_TYPE_UINT64, &read, "nodes-scored", G_TYPE_UINT64, &scored, NULL));
  assert_layers (stats);
  gst_structure_free (stats);
  if (dense == 0 && queries > 0) {
    moment.read = (double) read / queries;
    moment.scored = (double) scored / queries;
  }
  moment.kept = cache + index;
  moment.resident = get_resident ();
  return moment;
}

/* A token of an answer reads as much late as early. What it scores grows by the coarse nodes alone,
 * each of which has 50 tokens and more. */
static void
assert_same_work (const Moment *early, const Moment *late)
{
  g_assert_cmpfloat (early->read, >, 0);
  g_assert_cmpfloat (late->read, <, 1.02 * early->read);
  g_assert_cmpfloat (late->scored, <, 1.5 * early->scored + (late->tokens - early->tokens) / 50.);
}

static void
test_soak (void)
{
  guint64 n_tokens = get_setting ("LYCHEE_SOAK_TOKENS", DEFAULT_TOKENS);
  guint64 speed = get_setting ("LYCHEE_SOAK_SPEED", 0);
  LycheeTinyModel tiny = LYCHEE_TINY_MODEL_INIT;
  g_autoptr (GArray) moments = g_array_new (FALSE, FALSE, sizeof (Moment));
  g_autofree char *path = NULL;
  g_autofree char *description = NULL;
  GstElement *decoder;
  gint64 begun = g_get_monotonic_time ();
  guint64 said = 0, asked = 0;
  Moment *first, *last, whole;
  Chain chain;

  tiny.n_context = n_tokens + n_tokens / 4 + 4096;
  path = g_strdup (g_getenv ("LYCHEE_SOAK_MODEL"));
  if (path == NULL)
    path = lychee_tiny_model_write (&tiny, test_dir (), "soak.gguf");
  description = g_strdup_printf (
      "lycheetokenizer model=%s ! lycheechunker detector=structure ! lycheeindexer prefill=sparse "
      "! lycheedecoder name=d prompt=\"\" max-tokens=32 prefill=sparse",
      path);
  test_chain_init (&chain, description, TEST_TEXT_CAPS);
  gst_harness_set_drop_buffers (chain.harness, TRUE);
  decoder = test_chain_get (&chain, "d");

  for (guint i = 0; said < n_tokens; i++) {
    g_autofree char *line =
        g_strdup_printf ("%c: And point %u of the list is about the %s of plot %u.", 'A' + i % 7, i,
            i % 3 ? "fence" : "water", i * 7 % 101);
    GstClockTime time = i * LINE_TOKENS * GST_SECOND / TOKENS_A_SECOND;

    g_assert_cmpint (
        gst_harness_push (chain.harness, test_text_buffer (line, -1, time, GST_SECOND)), ==,
        GST_FLOW_OK);
    said += LINE_TOKENS;
    if (said - asked >= ASK_EVERY) {
      Moment moment = ask (&chain, decoder, 3);

      g_array_append_val (moments, moment);
      asked = said = moment.tokens;
      alarm (240);
    }
    /* As fast as it is spoken, times the speed; only where somebody wants to see that. */
    if (speed > 0) {
      gint64 due = begun + (gint64) (time / speed / 1000), now = g_get_monotonic_time ();

      if (due > now)
        g_usleep (due - now);
    }
  }
  /* To list all of it costs more than to answer. */
  whole = ask (&chain, decoder, G_MAXUINT);
  g_assert_true (gst_harness_push_event (chain.harness, gst_event_new_eos ()));
  g_assert_true (test_chain_wait_eos (&chain));
  gst_object_unref (decoder);
  test_chain_clear (&chain);

  for (guint i = 0; i < moments->len; i++) {
    Moment *m = &g_array_index (moments, Moment, i);

    g_test_message (
        "%7" G_GUINT64_FORMAT " tokens: %6.1f MB resident, %6.1f MB of cache and "
        "index, %.3f ms a token, %.0f rows and %.0f nodes, evidence from second %" G_GUINT64_FORMAT
        " on",
        m->tokens, m->resident / 1e6, m->kept / 1e6, m->milliseconds, m->read, m->scored,
        m->first_second);
  }
  g_test_message ("%.1f s in all", (g_get_monotonic_time () - begun) / 1e6);
  g_assert_cmpuint (moments->len, >=, 4);
  first = &g_array_index (moments, Moment, moments->len / 4);
  last = &g_array_index (moments, Moment, moments->len - 1);
  g_assert_cmpuint (last->tokens, >, n_tokens / 2);
  g_assert_cmpuint (whole.first_second, <, 60);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  /* Its evidence, messages and the like are a few megabytes. */
  g_assert_cmpuint (last->resident, <,
      first->resident + 2 * (last->kept - MIN (last->kept, first->kept)) + 16000000);
#endif
  assert_same_work (first, last);
}

static void
add_tests (void)
{
  g_test_add_func ("/soak/meeting", test_soak);
}

int
main (int argc, char **argv)
{
  return test_main (argc, argv, add_tests);
}
