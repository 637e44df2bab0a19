/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* lychee-bench decode, ingest: how fast. */

#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WARM_UP 4

static int
compare_doubles (const void *a, const void *b)
{
  double x = *(const double *) a, y = *(const double *) b;

  return x < y ? -1 : x > y;
}

static double
median (double *x, guint n)
{
  qsort (x, n, sizeof *x, compare_doubles);
  return x[n / 2];
}

static void
run (LycheeForward *forward, LycheeCache *cache, const gint32 *ids, guint n, LycheeOutput output)
{
  g_autoptr (GError) error = NULL;

  if (!lychee_forward_run (forward, cache, ids, n, output, NULL, NULL, &error))
    bench_fail ("%s", error->message);
}

/* Reading memory as fast as all threads together can: what attention is measured against. */

#define READ_BYTES ((gsize) 256 << 20)
#define READ_ROUNDS 6

typedef guint64 Vector __attribute__ ((vector_size (64)));

static gpointer
read_memory (gpointer data)
{
  const Vector *v = data;
  Vector a = { 0 }, b = { 0 }, c = { 0 }, d = { 0 };

  for (gsize i = 0; i < READ_BYTES / sizeof *v; i += 4) {
    a += v[i];
    b += v[i + 1];
    c += v[i + 2];
    d += v[i + 3];
  }
  a += b + c + d;
  return GSIZE_TO_POINTER (a[0] + a[7]);
}

/* Bytes per second. */
static double
measure_bandwidth (guint n_threads)
{
  g_autofree GThread **threads = g_new (GThread *, n_threads);
  g_autofree guint8 **buffers = g_new (guint8 *, n_threads);
  double best = 0;

  for (guint i = 0; i < n_threads; i++) {
    buffers[i] = g_aligned_alloc (READ_BYTES, 1, 64);
    memset (buffers[i], i, READ_BYTES);
  }
  for (guint round = 0; round < READ_ROUNDS; round++) {
    double before = bench_now ();

    for (guint i = 0; i < n_threads; i++)
      threads[i] = g_thread_new ("read", read_memory, buffers[i]);
    for (guint i = 0; i < n_threads; i++)
      g_thread_join (threads[i]);
    best = MAX (best, n_threads * (double) READ_BYTES / (bench_now () - before) * 1e3);
  }
  for (guint i = 0; i < n_threads; i++)
    g_aligned_free (buffers[i]);
  return best;
}

/* Milliseconds of a token, and of its parts. */
enum { WHOLE, SEARCH, READ, REST, MERGE, UPKEEP, ATTENTION, REMAINDER, N_PARTS };

typedef struct {
  guint depth;
  gboolean sparse;
  gboolean packed;
  const char *cache_type;
  gboolean bound; /* measure what loading alone takes, too */
  guint budget;
  guint n_tokens;
  double bandwidth;
} Decode;

/* Parts are the times of all threads together, each of which works for as long as the pass takes.
 */
static void
split_time (
    const LycheeAttentionStats *stats, double whole, guint n_threads, guint token, double **times)
{
  const double part[] = { [SEARCH] = stats->ns_search,
    [READ] = stats->ns_read,
    [REST] = stats->ns_rest,
    [MERGE] = stats->ns_merge,
    [UPKEEP] = stats->ns_upkeep };

  times[WHOLE][token] = whole;
  times[ATTENTION][token] = 0;
  for (guint i = SEARCH; i <= UPKEEP; i++) {
    times[i][token] = part[i] / 1e6 / n_threads;
    if (i != UPKEEP)
      times[ATTENTION][token] += times[i][token];
  }
  times[REMAINDER][token] = whole - times[ATTENTION][token] - times[UPKEEP][token];
}

static void
decode_at (Bench *bench, LycheeModel *model, LycheeExecutor *executor, const Decode *run_what)
{
  const guint n = run_what->n_tokens, depth = run_what->depth;
  g_autoptr (LycheeForward) forward = lychee_forward_new (model, executor);
  g_autoptr (LycheeCache) cache = bench_new_cache (model, depth + 2 * (n + WARM_UP));
  LycheeAttention *attention = lychee_forward_get_attention (forward);
  LycheeAttentionOptions options = {
    .sparse = run_what->sparse, .budget = run_what->budget, .rest = TRUE
  };
  double *times[N_PARTS], ms[N_PARTS], sum = 0, bytes, floor_ms, loads = 0;
  guint n_threads = lychee_executor_get_n_threads (executor);
  guint rows_per_token = lychee_model_get_n_layers (model) * lychee_model_get_n_kv_heads (model);
  LycheeAttentionStats stats, total = { 0 };

  lychee_cache_set_packed (cache, run_what->packed);
  if (run_what->packed && depth > lychee_model_get_n_context (model))
    lychee_cache_set_bare (cache, G_MAXUINT);
  bench_set_cache_type (cache, run_what->cache_type);
  for (guint i = 0; i < N_PARTS; i++)
    times[i] = g_new (double, n);
  if (run_what->sparse)
    bench_enable_index (model, cache);
  bench_fill (model, forward, cache, depth);
  lychee_attention_set_options (attention, &options);
  lychee_attention_set_timing (attention, TRUE);
  for (gint t = -WARM_UP; t < (gint) n; t++) {
    gint32 id = (t + WARM_UP) * 31 % lychee_model_get_n_vocab (model);
    double before = bench_now (), whole;

    lychee_attention_reset_stats (attention);
    run (forward, cache, &id, 1, LYCHEE_OUTPUT_LAST);
    whole = bench_now () - before;
    if (t < 0)
      continue;
    sum += whole;
    lychee_attention_get_stats (attention, &stats);
    lychee_attention_add_stats (&total, &stats);
    split_time (&stats, whole, n_threads, t, times);
  }
  for (guint i = 0; i < N_PARTS; i++) {
    ms[i] = median (times[i], n);
    g_free (times[i]);
  }
  if (run_what->bound && total.sparse > 0)
    loads = bench_bound (model, forward, cache, &options, n) / n_threads;

  bytes =
      total.sparse > 0 ? (double) total.rows_read / n : (double) rows_per_token * (depth + n / 2);
  bytes *= lychee_row_size (lychee_cache_get_form (cache), lychee_model_get_head_dim (model)) * 2 *
           sizeof (guint16);
  bytes += (double) total.nodes_scored / n * lychee_model_get_head_dim (model);
  floor_ms = bytes / run_what->bandwidth * 1e3;
  if (bench->json)
    printf ("{\"depth\": %u, \"attention\": \"%s\", \"budget\": %u, \"ms_per_token\": %.3f, "
            "\"median_ms\": %.3f, \"tokens_per_second\": %.2f, \"search_ms\": %.3f, "
            "\"read_ms\": %.3f, \"rest_ms\": %.3f, \"merge_ms\": %.3f, \"upkeep_ms\": %.3f, "
            "\"remainder_ms\": %.3f, \"bytes_read\": %.0f, \"bandwidth\": %.3g, "
            "\"attention_over_bandwidth\": %.2f, \"loads_ms\": %.3f, \"dense_fallbacks\": "
            "%" G_GUINT64_FORMAT
            ", \"tokens\": %u, \"threads\": %u, \"cache\": \"real keys repeated with noise\"}\n",
        depth, total.sparse > 0 ? "sparse" : "dense", run_what->sparse ? run_what->budget : 0,
        sum / n, ms[WHOLE], 1e3 * n / sum, ms[SEARCH], ms[READ], ms[REST], ms[MERGE], ms[UPKEEP],
        ms[REMAINDER], bytes, run_what->bandwidth, ms[ATTENTION] / floor_ms, loads,
        total.dense_fallback, n, n_threads);
  else
    printf ("%7u  %-6s %8.2f %8.2f %8.1f | %7.2f %7.2f %7.2f %7.2f %8.2f | %7.2f %6.2f\n", depth,
        total.sparse > 0 ? "sparse" : "dense", sum / n, ms[WHOLE], 1e3 * n / sum, ms[SEARCH],
        ms[READ], ms[REST] + ms[MERGE], ms[UPKEEP], ms[REMAINDER], bytes / 1e6,
        ms[ATTENTION] / floor_ms);
  if (loads > 0 && !bench->json)
    printf ("%7u  loading the same rows, with no arithmetic: %.2f ms\n", depth, loads);
  fflush (stdout);
}

int
bench_decode (int argc, char **argv)
{
  Bench bench = { 0 };
  char *list = NULL, *modes = NULL;
  gint n_tokens = 32, budget = LYCHEE_DEFAULT_BUDGET;
  gboolean bound = FALSE, packed = FALSE;
  g_autofree char *cache_type = NULL;
  const GOptionEntry entries[] = { { "depths", 'd', 0, G_OPTION_ARG_STRING, &list,
                                       "tokens in the cache (default 0,2048,8192)", "N,N,..." },
    { "bound", 0, 0, G_OPTION_ARG_NONE, &bound,
        "also load what sparse attention reads, and compute nothing: what memory alone takes",
        NULL },
    { "attention", 'a', 0, G_OPTION_ARG_STRING, &modes, "dense, sparse or both (default dense)",
        "MODE" },
    { "packed", 0, 0, G_OPTION_ARG_NONE, &packed, "with packed positions", NULL },
    { "cache-type", 0, 0, G_OPTION_ARG_STRING, &cache_type, "f16 or q8_0 (default f16)", "TYPE" },
    { "budget", 'b', 0, G_OPTION_ARG_INT, &budget, "tokens that sparse attention reads", "N" },
    { "tokens", 'n', 0, G_OPTION_ARG_INT, &n_tokens, "tokens to decode (default 32)", "N" },
    { NULL } };
  g_autoptr (LycheeModel) model = NULL;
  g_autoptr (LycheeExecutor) executor = NULL;
  g_autoptr (GArray) depths = NULL;
  Decode decode;

  bench_parse (&bench, entries,
      "Decodes single tokens over a cache of keys that were really computed for the first 512 "
      "tokens "
      "and are repeated with noise from there on: right for timing, not for anything else.",
      &argc, &argv);
  depths = bench_parse_numbers ("--depths", list ? list : "0,2048,8192");
  if (!modes)
    modes = g_strdup ("dense");
  if (!g_str_equal (modes, "dense") && !g_str_equal (modes, "sparse") &&
      !g_str_equal (modes, "both"))
    bench_fail ("--attention: “%s” is none of dense, sparse, both", modes);
  model = bench_load (&bench);
  executor = lychee_executor_get (bench.threads);
  decode = (Decode){
    .packed = packed,
    .cache_type = cache_type,
    .bound = bound,
    .budget = MAX (budget, 0),
    .n_tokens = CLAMP (n_tokens, 1, 100000),
    .bandwidth = measure_bandwidth (lychee_executor_get_n_threads (executor)),
  };
  if (!bench.json)
    printf (
        "%u threads, reading memory at %.1f GB/s; milliseconds a token (parts: medians), MB read "
        "for attention, and "
        "its time over what that takes to read\n"
        "  depth  attn      mean   median tokens/s |  search    read    rest  upkeep     else |    "
        "  MB  ratio\n",
        lychee_executor_get_n_threads (executor), decode.bandwidth / 1e9);
  for (guint i = 0; i < depths->len; i++) {
    decode.depth = g_array_index (depths, guint, i);
    for (guint sparse = 0; sparse < 2; sparse++) {
      decode.sparse = sparse;
      if (g_str_equal (modes, "both") || sparse == g_str_equal (modes, "sparse"))
        decode_at (&bench, model, executor, &decode);
    }
  }
  g_free (modes);
  g_free (list);
  return 0;
}

int
bench_ingest (int argc, char **argv)
{
  Bench bench = { 0 };
  char *list = NULL, *mode = NULL;
  gint n_tokens = 600, chunk = 12;
  LycheeAttentionOptions options = { .budget = LYCHEE_DEFAULT_BUDGET, .rest = TRUE };
  gboolean indexed;
  const GOptionEntry entries[] = { { "depths", 'd', 0, G_OPTION_ARG_STRING, &list,
                                       "tokens in the cache (default 0,2048,8192)", "N,N,..." },
    { "tokens", 'n', 0, G_OPTION_ARG_INT, &n_tokens, "tokens to read (default 600)", "N" },
    { "chunk", 'c', 0, G_OPTION_ARG_INT, &chunk, "tokens a chunk (default 12)", "N" },
    { "attention", 'a', 0, G_OPTION_ARG_STRING, &mode,
        "dense, indexed (dense, and the index is kept) or sparse (default indexed)", "MODE" },
    { NULL } };
  g_autoptr (LycheeModel) model = NULL;
  g_autoptr (LycheeExecutor) executor = NULL;
  g_autoptr (GArray) depths = NULL;
  gint32 ids[LYCHEE_FORWARD_MAX_TOKENS];

  bench_parse (&bench, entries, "Reads tokens in chunks, as a transcript is read.", &argc, &argv);
  depths = bench_parse_numbers ("--depths", list ? list : "0,2048,8192");
  chunk = CLAMP (chunk, 1, LYCHEE_FORWARD_MAX_TOKENS);
  n_tokens = MAX (n_tokens, chunk) / chunk * chunk;
  if (!mode)
    mode = g_strdup ("indexed");
  if (!g_str_equal (mode, "dense") && !g_str_equal (mode, "indexed") &&
      !g_str_equal (mode, "sparse"))
    bench_fail ("--attention: “%s” is none of dense, indexed, sparse", mode);
  indexed = !g_str_equal (mode, "dense");
  options.sparse = g_str_equal (mode, "sparse");
  model = bench_load (&bench);
  executor = lychee_executor_get (bench.threads);
  for (gint i = 0; i < chunk; i++)
    ids[i] = i * 31 % lychee_model_get_n_vocab (model);
  for (guint i = 0; i < depths->len; i++) {
    guint depth = g_array_index (depths, guint, i);
    g_autoptr (LycheeForward) forward = lychee_forward_new (model, executor);
    g_autoptr (LycheeCache) cache = bench_new_cache (model, depth + n_tokens + chunk);
    LycheeAttention *attention = lychee_forward_get_attention (forward);
    LycheeAttentionStats stats;
    double before, seconds, upkeep;

    if (indexed)
      bench_enable_index (model, cache);
    bench_fill (model, forward, cache, depth);
    lychee_attention_set_options (attention, &options);
    run (forward, cache, ids, chunk, LYCHEE_OUTPUT_NONE);
    lychee_attention_reset_stats (attention);
    lychee_attention_set_timing (attention, TRUE);
    before = bench_now ();
    for (gint done = 0; done < n_tokens; done += chunk)
      run (forward, cache, ids, chunk, LYCHEE_OUTPUT_NONE);
    seconds = (bench_now () - before) / 1e3;
    lychee_attention_get_stats (attention, &stats);
    upkeep = stats.ns_upkeep / 1e9 / lychee_executor_get_n_threads (executor) / seconds;
    if (bench.json)
      printf ("{\"depth\": %u, \"attention\": \"%s\", \"chunk\": %d, \"tokens\": %d, "
              "\"ms_per_chunk\": %.3f, \"tokens_per_second\": %.2f, \"upkeep_share\": %.4f, "
              "\"threads\": %u}\n",
          depth, mode, chunk, n_tokens, seconds * 1e3 / (n_tokens / chunk), n_tokens / seconds,
          upkeep, lychee_executor_get_n_threads (executor));
    else
      printf (
          "depth %6u  %-8s chunks of %d: %8.3f ms a chunk  %8.2f tokens/s, index upkeep %.1f %%\n",
          depth, mode, chunk, seconds * 1e3 / (n_tokens / chunk), n_tokens / seconds, upkeep * 100);
    fflush (stdout);
  }
  g_free (mode);
  g_free (list);
  return 0;
}
