/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* lychee-bench: what the parts do, in figures. Each command prints text for people, or with --json
 * one JSON object a line for programs. */

#include "bench.h"

#include "lychee-cache-private.h"
#include "lychee-cpu-kernels.h"
#include "lychee-model-private.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
  const char *name;
  int (*run) (int argc, char **argv);
  const char *summary;
} commands[] = {
  { "tokens", bench_tokens, "ids of the text on standard input, as a JSON array" },
  { "logits", bench_logits, "the ten best ids at each position of --ids" },
  { "perplexity", bench_perplexity, "how surprising a text is, read dense or sparse" },
  { "decode", bench_decode, "time per decoded token, by depth" },
  { "index", bench_index, "what the index costs to keep and to search, as it grows" },
  { "ingest", bench_ingest, "tokens per second while reading chunks, by depth" },
  { "evidence", bench_evidence, "how often the right turn is among an answer's evidence" },
  { "chunks", bench_chunks, "where a text is cut, and how well" },
  { "fidelity", bench_fidelity, "how close sparse attention stays to dense, beside other methods" },
  { "needle", bench_needle, "whether facts in a long text are found, by depth and method" },
};

void
bench_fail (const char *format, ...)
{
  va_list args;

  va_start (args, format);
  fputs ("lychee-bench: error: ", stderr);
  vfprintf (stderr, format, args);
  fputc ('\n', stderr);
  va_end (args);
  exit (1);
}

double
bench_now (void)
{
  return g_get_monotonic_time () / 1e3;
}

void
bench_parse (
    Bench *bench, const GOptionEntry *entries, const char *summary, int *argc, char ***argv)
{
  g_autoptr (GOptionContext) context = g_option_context_new (NULL);
  g_autoptr (GError) error = NULL;
  const GOptionEntry common[] = { { "model", 'm', 0, G_OPTION_ARG_FILENAME, &bench->model_path,
                                      "GGUF file of the model", "FILE" },
    { "threads", 't', 0, G_OPTION_ARG_INT, &bench->threads, "threads (default: one a core)", "N" },
    { "json", 0, 0, G_OPTION_ARG_NONE, &bench->json, "one JSON object a line", NULL }, { NULL } };

  g_option_context_set_summary (context, summary);
  g_option_context_add_main_entries (context, common, NULL);
  if (entries)
    g_option_context_add_main_entries (context, entries, NULL);
  if (!g_option_context_parse (context, argc, argv, &error))
    bench_fail ("%s", error->message);
  if (*argc > 1)
    bench_fail ("“%s” is not an option", (*argv)[1]);
  if (!bench->model_path)
    bench->model_path = g_strdup (g_getenv ("LYCHEE_MODEL"));
  if (!bench->model_path)
    bench->model_path = g_strdup (LYCHEE_DEFAULT_MODEL);
}

LycheeModel *
bench_load (Bench *bench)
{
  g_autoptr (GError) error = NULL;
  LycheeModel *model = lychee_model_new_from_file (bench->model_path, &error);

  if (!model)
    bench_fail ("%s", error->message);
  g_clear_pointer (&bench->model_path, g_free);
  for (const char *const *w = lychee_model_get_warnings (model); *w; w++)
    fprintf (stderr, "lychee-bench: %s\n", *w);
  return model;
}

GArray *
bench_parse_numbers (const char *option, const char *list)
{
  g_auto (GStrv) parts = g_strsplit (list, ",", -1);
  GArray *numbers = g_array_new (FALSE, FALSE, sizeof (guint));

  for (char **part = parts; *part; part++) {
    guint64 n;
    guint value;

    if (!g_ascii_string_to_unsigned (g_strstrip (*part), 10, 0, 1u << 24, &n, NULL))
      bench_fail ("%s: “%s” is not a number", option, *part);
    value = n;
    g_array_append_val (numbers, value);
  }
  return numbers;
}

gboolean
bench_parse_prefill (const char *mode)
{
  if (mode && !g_str_equal (mode, "dense") && !g_str_equal (mode, "sparse"))
    bench_fail ("--prefill: “%s” is none of dense, sparse", mode);
  return g_strcmp0 (mode, "sparse") == 0;
}

LycheeCache *
bench_new_cache (LycheeModel *model, guint max_tokens)
{
  return lychee_cache_new (lychee_model_get_n_layers (model), lychee_model_get_n_kv_heads (model),
      lychee_model_get_head_dim (model), max_tokens, 0);
}

void
bench_set_cache_type (LycheeCache *cache, const char *type)
{
  LycheeRowForm form = g_strcmp0 (type, "q8_0") == 0 ? LYCHEE_ROW_Q8_0 : LYCHEE_ROW_F16;

  if (type && !g_str_equal (type, "f16") && form == LYCHEE_ROW_F16)
    bench_fail ("--cache-type: “%s” is neither f16 nor q8_0", type);
  if (!lychee_cache_has_form (lychee_cache_get_head_dim (cache), form))
    bench_fail ("--cache-type: the model's heads are no multiple of 32 dimensions");
  lychee_cache_set_form (cache, form);
}

void
bench_enable_index (LycheeModel *model, LycheeCache *cache)
{
  LycheeCacheIndexing indexing = { .sinks = LYCHEE_DEFAULT_SINKS, .window = LYCHEE_DEFAULT_WINDOW };

  lychee_model_describe_indexing (model, &indexing);
  lychee_cache_enable_index (cache, &indexing);
}

#define FILL_TOKENS 512
#define INDEX_STEP 16

typedef struct {
  LycheeCache *cache;
  guint end;
} IndexBuild;

/* Streams the rows of one layer and head into its index, as reading a transcript does. */
static void
build_one (gpointer data, gpointer user_data)
{
  IndexBuild *b = user_data;
  guint n_heads = lychee_cache_get_n_kv_heads (b->cache), which = GPOINTER_TO_UINT (data) - 1;
  LycheeIndex *index = lychee_cache_get_index (b->cache, which / n_heads, which % n_heads);
  guint at = MAX (lychee_index_get_end (index), lychee_cache_get_indexing (b->cache)->sinks);
  g_autoptr (GError) error = NULL;
  LycheeRows rows;

  lychee_cache_get_rows (b->cache, which / n_heads, which % n_heads, &rows);
  for (; at + INDEX_STEP <= b->end; at += INDEX_STEP)
    if (!lychee_index_append (index, &rows, at, INDEX_STEP, &error))
      bench_fail ("%s", error->message);
}

static void
build_index (LycheeCache *cache, guint depth)
{
  guint window = lychee_cache_get_indexing (cache)->window;
  guint n_heads = lychee_cache_get_n_kv_heads (cache);
  IndexBuild build = { cache, depth > window ? depth - window : 0 };
  GThreadPool *pool = g_thread_pool_new (build_one, &build, g_get_num_processors (), FALSE, NULL);

  for (guint i = 0; i < lychee_cache_get_n_layers (cache) * n_heads; i++)
    if (lychee_cache_get_index (cache, i / n_heads, i % n_heads))
      g_thread_pool_push (pool, GUINT_TO_POINTER (i + 1), NULL);
  g_thread_pool_free (pool, FALSE, TRUE);
}

void
bench_fill (LycheeModel *model, LycheeForward *forward, LycheeCache *cache, guint depth)
{
  const LycheeCpuKernels *kernels =
      lychee_cpu_kernels_for (lychee_cpu_kernels_get (), lychee_cache_get_form (cache));
  g_autoptr (GRand) rand = g_rand_new_with_seed (1);
  g_autoptr (GError) error = NULL;
  gint32 ids[FILL_TOKENS];
  guint real = MIN (depth, FILL_TOKENS), d = lychee_cache_get_head_dim (cache);

  if (depth == 0)
    return;
  for (guint i = 0; i < real; i++)
    ids[i] = g_rand_int_range (rand, 0, lychee_model_get_n_vocab (model));
  if (!lychee_forward_run (forward, cache, ids, real, LYCHEE_OUTPUT_NONE, NULL, NULL, &error) ||
      !lychee_cache_reserve (cache, depth - real, &error))
    bench_fail ("%s", error->message);
  for (guint layer = 0; layer < lychee_cache_get_n_layers (cache); layer++)
    for (guint head = 0; head < lychee_cache_get_n_kv_heads (cache); head++) {
      LycheeRows rows;

      lychee_cache_get_rows (cache, layer, head, &rows);
      for (guint token = real; token < depth; token++) {
        guint16 *to = lychee_cache_get_writable (cache, layer, head, token);
        const guint16 *from = lychee_cache_get_writable (cache, layer, head, token % real);

        for (guint part = 0; part < 2; part++) {
          float row[256];
          gsize offset = part * rows.value_offset;

          kernels->read_row (from + offset, d, row);
          for (guint i = 0; i < d; i++)
            row[i] *= 0.9f + 0.2f * (g_rand_int (rand) >> 8) / (float) (1 << 24);
          kernels->write_row (row, d, to + offset);
        }
      }
    }
  lychee_cache_commit (cache, depth - real);
  if (lychee_cache_get_indexing (cache))
    build_index (cache, depth);
}

int
main (int argc, char **argv)
{
  for (guint i = 0; argc > 1 && i < G_N_ELEMENTS (commands); i++)
    if (g_str_equal (argv[1], commands[i].name))
      return commands[i].run (argc - 1, argv + 1);

  if (argc > 1 && g_str_equal (argv[1], "--version")) {
    puts ("lychee-bench " PACKAGE_VERSION);
    return 0;
  }
  if (argc > 1 && !g_str_equal (argv[1], "--help") && !g_str_equal (argv[1], "-h"))
    bench_fail ("“%s” is not a command; see lychee-bench --help", argv[1]);
  puts ("Usage: lychee-bench COMMAND [--model FILE] [--threads N] [--json] ...\n\nCommands:");
  for (guint i = 0; i < G_N_ELEMENTS (commands); i++)
    printf ("  %-10s %s\n", commands[i].name, commands[i].summary);
  puts ("\nlychee-bench COMMAND --help lists a command's options.");
  return argc > 1 ? 0 : 1;
}
