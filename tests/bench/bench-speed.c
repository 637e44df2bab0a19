/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* lychee-bench decode, ingest: how fast. */

#include "bench.h"

#include <stdio.h>
#include <stdlib.h>

#define WARM_UP 4

static int
compare_doubles (const void *a, const void *b)
{
  double x = *(const double *) a, y = *(const double *) b;

  return x < y ? -1 : x > y;
}

static void
run (LycheeForward *forward, LycheeCache *cache, const gint32 *ids, guint n, LycheeOutput output)
{
  g_autoptr (GError) error = NULL;

  if (!lychee_forward_run (forward, cache, ids, n, output, NULL, NULL, &error))
    bench_fail ("%s", error->message);
}

int
bench_decode (int argc, char **argv)
{
  Bench bench = { 0 };
  char *list = NULL;
  gint n_tokens = 32;
  const GOptionEntry entries[] = { { "depths", 'd', 0, G_OPTION_ARG_STRING, &list,
                                       "tokens in the cache (default 0,2048,8192)", "N,N,..." },
    { "tokens", 'n', 0, G_OPTION_ARG_INT, &n_tokens, "tokens to decode (default 32)", "N" },
    { NULL } };
  g_autoptr (LycheeModel) model = NULL;
  g_autoptr (LycheeExecutor) executor = NULL;
  g_autoptr (GArray) depths = NULL;

  bench_parse (&bench, entries,
      "Decodes single tokens over a cache that is filled with real keys repeated with noise.",
      &argc, &argv);
  depths = bench_parse_numbers ("--depths", list ? list : "0,2048,8192");
  n_tokens = CLAMP (n_tokens, 1, 100000);
  model = bench_load (&bench);
  executor = lychee_executor_get (bench.threads);
  for (guint i = 0; i < depths->len; i++) {
    guint depth = g_array_index (depths, guint, i);
    g_autoptr (LycheeForward) forward = lychee_forward_new (model, executor);
    g_autoptr (LycheeCache) cache = bench_new_cache (model, depth + n_tokens + WARM_UP);
    g_autofree double *times = g_new (double, n_tokens);
    double sum = 0;

    bench_fill (model, forward, cache, depth);
    for (gint t = -WARM_UP; t < n_tokens; t++) {
      gint32 id = (t + WARM_UP) * 31 % lychee_model_get_n_vocab (model);
      double before = bench_now ();

      run (forward, cache, &id, 1, LYCHEE_OUTPUT_LAST);
      if (t >= 0)
        sum += times[t] = bench_now () - before;
    }
    qsort (times, n_tokens, sizeof *times, compare_doubles);
    if (bench.json)
      printf ("{\"depth\": %u, \"attention\": \"dense\", \"ms_per_token\": %.3f, "
              "\"median_ms\": %.3f, \"tokens_per_second\": %.2f, \"tokens\": %d, \"threads\": %u, "
              "\"cache\": \"real keys repeated with noise\"}\n",
          depth, sum / n_tokens, times[n_tokens / 2], 1e3 * n_tokens / sum, n_tokens,
          lychee_executor_get_n_threads (executor));
    else
      printf ("depth %6u  dense   %8.3f ms a token (median %.3f)  %8.2f tokens/s\n", depth,
          sum / n_tokens, times[n_tokens / 2], 1e3 * n_tokens / sum);
    fflush (stdout);
  }
  return 0;
}

int
bench_ingest (int argc, char **argv)
{
  Bench bench = { 0 };
  char *list = NULL;
  gint n_tokens = 600, chunk = 12;
  const GOptionEntry entries[] = { { "depths", 'd', 0, G_OPTION_ARG_STRING, &list,
                                       "tokens in the cache (default 0,2048,8192)", "N,N,..." },
    { "tokens", 'n', 0, G_OPTION_ARG_INT, &n_tokens, "tokens to read (default 600)", "N" },
    { "chunk", 'c', 0, G_OPTION_ARG_INT, &chunk, "tokens a chunk (default 12)", "N" }, { NULL } };
  g_autoptr (LycheeModel) model = NULL;
  g_autoptr (LycheeExecutor) executor = NULL;
  g_autoptr (GArray) depths = NULL;
  gint32 ids[LYCHEE_FORWARD_MAX_TOKENS];

  bench_parse (&bench, entries, "Reads tokens in chunks, as a transcript is read.", &argc, &argv);
  depths = bench_parse_numbers ("--depths", list ? list : "0,2048,8192");
  chunk = CLAMP (chunk, 1, LYCHEE_FORWARD_MAX_TOKENS);
  n_tokens = MAX (n_tokens, chunk) / chunk * chunk;
  model = bench_load (&bench);
  executor = lychee_executor_get (bench.threads);
  for (gint i = 0; i < chunk; i++)
    ids[i] = i * 31 % lychee_model_get_n_vocab (model);
  for (guint i = 0; i < depths->len; i++) {
    guint depth = g_array_index (depths, guint, i);
    g_autoptr (LycheeForward) forward = lychee_forward_new (model, executor);
    g_autoptr (LycheeCache) cache = bench_new_cache (model, depth + n_tokens + chunk);
    double before, seconds;

    bench_fill (model, forward, cache, depth);
    run (forward, cache, ids, chunk, LYCHEE_OUTPUT_NONE);
    before = bench_now ();
    for (gint done = 0; done < n_tokens; done += chunk)
      run (forward, cache, ids, chunk, LYCHEE_OUTPUT_NONE);
    seconds = (bench_now () - before) / 1e3;
    if (bench.json)
      printf ("{\"depth\": %u, \"attention\": \"dense\", \"chunk\": %d, \"tokens\": %d, "
              "\"ms_per_chunk\": %.3f, \"tokens_per_second\": %.2f, \"threads\": %u}\n",
          depth, chunk, n_tokens, seconds * 1e3 / (n_tokens / chunk), n_tokens / seconds,
          lychee_executor_get_n_threads (executor));
    else
      printf ("depth %6u  dense   chunks of %d: %8.3f ms a chunk  %8.2f tokens/s\n", depth, chunk,
          seconds * 1e3 / (n_tokens / chunk), n_tokens / seconds);
    fflush (stdout);
  }
  return 0;
}
