/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Runs a pipeline and shows what its Lychee elements do, as top shows processes: tokens read and
 * how fast, what cache and index hold, what answers cost and what attention read for them. */

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "program.h"

typedef struct {
  Program program;
  gboolean loading;
  gboolean terminal;
  gint64 begun;
  guint tokens, chunks;
  double rate, seconds, percent, left;
  guint64 behind;
  char *said; /* the last answer */
} Monitor;

static guint64
get (const GstStructure *stats, const char *name)
{
  const GValue *value = gst_structure_get_value (stats, name);
  GValue number = G_VALUE_INIT;
  guint64 result;

  if (value == NULL)
    return 0;
  g_value_init (&number, G_TYPE_UINT64);
  g_value_transform (value, &number);
  result = g_value_get_uint64 (&number);
  g_value_unset (&number);
  return result;
}

static double
get_double (const GstStructure *stats, const char *name)
{
  double value = 0;

  gst_structure_get_double (stats, name, &value);
  return value;
}

static void
show_reading (Monitor *self)
{
  if (self->loading) {
    printf ("loading   the model\n");
    return;
  }
  printf ("reading   %8u tokens in %u chunks, %.0f tokens/s, %.1f s of reading", self->tokens,
      self->chunks, self->rate, self->seconds);
  if (self->percent >= 0)
    printf (", %.0f %%, %.0f s left", self->percent, self->left);
  if (self->behind > 0)
    printf (", %.0f s behind", self->behind / 1e9);
  printf ("\n");
}

/* Milliseconds a token of question and answer, by what they went to. Threads that work at the same
 * time count each, so parts may be more than the whole. */
static void
show_parts (const GstStructure *stats)
{
  static const char *const parts[] = { "search", "read", "rest", "merge", "upkeep" };
  guint64 tokens = get (stats, "prompt-tokens") + get (stats, "answer-tokens");
  double all = get_double (stats, "seconds"), sum = 0;

  if (tokens == 0)
    return;
  printf ("a token   %8.2f ms:", 1000 * all / tokens);
  for (guint i = 0; i < G_N_ELEMENTS (parts); i++) {
    g_autofree char *name = g_strconcat ("seconds-", parts[i], NULL);
    double seconds = get_double (stats, name);

    sum += seconds;
    printf (" %s %.2f,", parts[i], 1000 * seconds / tokens);
  }
  printf (" else %.2f\n", 1000 * MAX (all - sum, 0) / tokens);
}

/* Of the last answer. */
static void
show_attention (const GstStructure *stats)
{
  guint64 sparse = get (stats, "sparse-queries"), visible = get (stats, "rows-visible");

  printf ("attention %8" G_GUINT64_FORMAT " sparse queries, %" G_GUINT64_FORMAT " dense\n", sparse,
      get (stats, "dense-queries"));
  if (sparse > 0)
    printf ("          %8.0f tokens read of %.0f, %.0f by their groups' means, %.0f nodes scored a "
            "query\n",
        get (stats, "rows-read") / (double) sparse, visible / (double) sparse,
        get (stats, "rows-estimated") / (double) sparse,
        get (stats, "nodes-scored") / (double) sparse);
  if (get (stats, "audits") > 0)
    printf ("          %8.2f %% of the mass not read exactly, error %.4f (%" G_GUINT64_FORMAT
            " audits)\n",
        100 * get_double (stats, "missed-mass"), get_double (stats, "error"),
        get (stats, "audits"));
}

/* Coarse nodes of each layer's trees; a layer with a sliding window has none. */
static void
show_layers (const GstStructure *stats)
{
  const GValue *layers = gst_structure_get_value (stats, "index-coarse-of-layers");

  if (layers == NULL)
    return;
  printf ("          coarse nodes by layer:");
  for (guint i = 0; i < gst_value_array_get_size (layers); i++)
    printf (" %" G_GUINT64_FORMAT, g_value_get_uint64 (gst_value_array_get_value (layers, i)));
  putchar ('\n');
}

static void
show_decoder (GstElement *decoder)
{
  GstStructure *stats = NULL;
  double rate;

  g_object_get (decoder, "stats", &stats, NULL);
  rate = get_double (stats, "tokens-per-second");
  printf ("%-9.9s %8" G_GUINT64_FORMAT " answers, %" G_GUINT64_FORMAT
          " under way, %" G_GUINT64_FORMAT " waiting; %" G_GUINT64_FORMAT
          " cancelled, %" G_GUINT64_FORMAT " empty, %" G_GUINT64_FORMAT " failed\n",
      GST_OBJECT_NAME (decoder), get (stats, "answers"), get (stats, "running"),
      get (stats, "waiting"), get (stats, "cancelled"), get (stats, "empty"),
      get (stats, "failed"));
  if (get (stats, "cache-bytes") > 0) {
    printf ("cache     %8.1f MB of keys and values, %.2f MB of index (%.2f %%)\n",
        get (stats, "cache-bytes") / 1e6, get (stats, "index-bytes") / 1e6,
        100.0 * get (stats, "index-bytes") / get (stats, "cache-bytes"));
    if (gst_structure_has_field (stats, "index-leaves"))
      printf ("tree      %8" G_GUINT64_FORMAT " leaves in %" G_GUINT64_FORMAT
              " coarse nodes, depth %" G_GUINT64_FORMAT "\n",
          get (stats, "index-leaves"), get (stats, "index-coarse"), get (stats, "index-depth"));
    show_layers (stats);
    printf ("answer    %8" G_GUINT64_FORMAT
            " tokens, %.1f ms a token, first after %.2f s, over %" G_GUINT64_FORMAT
            " of transcript%s\n",
        get (stats, "answer-tokens"), rate > 0 ? 1000 / rate : 0.0,
        get_double (stats, "seconds-to-first"), get (stats, "transcript-tokens"),
        gst_structure_has_field_typed (stats, "truncated", G_TYPE_BOOLEAN) &&
                g_value_get_boolean (gst_structure_get_value (stats, "truncated"))
            ? ", which is not whole"
            : "");
    show_parts (stats);
    show_attention (stats);
  }
  gst_structure_free (stats);
}

static void
show (Monitor *self)
{
  GstIterator *elements = gst_bin_iterate_recurse (GST_BIN (self->program.pipeline));
  GValue item = G_VALUE_INIT;

  printf ("%slychee-monitor, %.0f s\n", self->terminal ? "\033[H\033[J" : "",
      (g_get_monotonic_time () - self->begun) / 1e6);
  show_reading (self);
  while (gst_iterator_next (elements, &item) == GST_ITERATOR_OK) {
    GstElement *element = g_value_get_object (&item);

    if (g_str_equal (G_OBJECT_TYPE_NAME (element), "GstLycheeDecoder"))
      show_decoder (element);
    g_value_reset (&item);
  }
  gst_iterator_free (elements);
  g_value_unset (&item);
  if (self->said != NULL)
    printf ("\n%s\n", self->said);
  printf (self->terminal ? "" : "\n");
  fflush (stdout);
}

static gboolean
on_time (gpointer user_data)
{
  show (user_data);
  return G_SOURCE_CONTINUE;
}

static gboolean
on_message (GstMessage *message, gpointer user_data)
{
  Monitor *self = user_data;
  const GstStructure *structure = gst_message_get_structure (message);

  if (program_tells_of_loading (message, &self->loading) ||
      GST_MESSAGE_TYPE (message) != GST_MESSAGE_ELEMENT)
    return FALSE;
  if (gst_structure_has_name (structure, "lychee-progress")) {
    gst_structure_get (structure, "tokens", G_TYPE_UINT, &self->tokens, "chunks", G_TYPE_UINT,
        &self->chunks, "rate", G_TYPE_DOUBLE, &self->rate, "seconds", G_TYPE_DOUBLE, &self->seconds,
        NULL);
    self->percent = self->left = -1;
    gst_structure_get_double (structure, "percent", &self->percent);
    self->left = get_double (structure, "seconds-left");
  } else if (gst_structure_has_name (structure, "lychee-behind")) {
    gst_structure_get_uint64 (structure, "behind", &self->behind);
  } else if (gst_structure_has_name (structure, "lychee-answer")) {
    g_free (self->said);
    self->said = g_strdup_printf ("%s\n%s", gst_structure_get_string (structure, "prompt"),
        gst_structure_get_string (structure, "text"));
    /* A model may say what moves a terminal's cursor. */
    for (char *at = self->said; *at != '\0'; at++)
      if (g_ascii_iscntrl (*at) && *at != '\n')
        *at = ' ';
  }
  return TRUE;
}

static void
watch (Monitor *self, double every, int interval, int audit)
{
  Program *program = &self->program;
  GstElement *decoder;
  guint timer;

  if (!program_open (program, NULL,
          "lycheetokenizer ! lycheechunker ! lycheeindexer ! lycheedecoder name=decoder ! fakesink "
          "sync=false async=false"))
    return;
  decoder = program_get (program, "decoder");
  g_object_set (decoder, "prompt", program->prompt, "max-tokens", program->max_tokens, "audit",
      audit, "interval", (guint64) interval * 60 * GST_SECOND, NULL);
  gst_object_unref (decoder);
  self->begun = g_get_monotonic_time ();
  timer = g_timeout_add (every * 1000, on_time, self);
  program_run (program);
  g_source_remove (timer);
  if (program->status != 1)
    show (self);
}

int
main (int argc, char **argv)
{
  Monitor self = { .terminal = console_is_screen (STDOUT_FILENO),
    .percent = -1,
    .program = { .name = "lychee-monitor",
        .default_prompt = PROGRAM_PROMPT,
        .max_tokens = 256,
        .takes_source = TRUE,
        .on_message = on_message,
        .user_data = &self } };
  double every = 1;
  int interval = 0, audit = 16;
  const GOptionEntry options[] = {
    { "every", 'e', 0, G_OPTION_ARG_DOUBLE, &every, "Seconds between two looks (1)", "SECONDS" },
    { "interval", 'i', 0, G_OPTION_ARG_INT, &interval,
        "Minutes from one rolling summary to the next (0: none)", "MINUTES" },
    { "audit", 'a', 0, G_OPTION_ARG_INT, &audit,
        "Measure what is missed, each so many tokens (16; 0: never)", "N" },
    { NULL },
  };

  if (program_parse (&self.program,
          "Shows what the elements do while a transcript is read and answered from.", options, argc,
          argv) &&
      ((every >= 0.05 && every < 1e6 && interval >= 0 && audit >= 0) ||
          program_refuse (
              &self.program, "--every must be 0.05 or more, --interval and --audit 0 or more")) &&
      program_check (&self.program))
    watch (&self, every, interval, audit);
  g_free (self.said);
  return program_close (&self.program);
}
