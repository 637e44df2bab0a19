/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* lychee-bench tokens, logits, perplexity: what the tokenizer and the model say. */

#include "bench.h"
#include "log-sum-exp.h"

#include "lychee-cache-private.h"

#include "lychee-sampler.h"

#include <math.h>
#include <stdio.h>
#include <unistd.h>

#define N_BEST 10

int
bench_tokens (int argc, char **argv)
{
  Bench bench = { 0 };
  gboolean special = FALSE;
  const GOptionEntry entries[] = { { "special", 0, 0, G_OPTION_ARG_NONE, &special,
                                       "parse control tokens in the text", NULL },
    { NULL } };
  g_autoptr (LycheeModel) model = NULL;
  g_autoptr (GString) text = g_string_new (NULL);
  g_autoptr (GArray) ids = g_array_new (FALSE, FALSE, sizeof (gint32));
  char buffer[65536];
  gssize n;

  bench_parse (
      &bench, entries, "Prints the token ids of the text on standard input.", &argc, &argv);
  model = bench_load (&bench);
  while ((n = read (STDIN_FILENO, buffer, sizeof buffer)) > 0)
    g_string_append_len (text, buffer, n);
  if (n < 0)
    bench_fail ("cannot read standard input: %s", g_strerror (errno));
  lychee_tokenizer_encode (lychee_model_get_tokenizer (model), text->str, text->len,
      special ? LYCHEE_TOKENIZER_SPECIAL : LYCHEE_TOKENIZER_NONE, ids);
  putchar ('[');
  for (guint i = 0; i < ids->len; i++)
    printf ("%s%d", i > 0 ? ", " : "", g_array_index (ids, gint32, i));
  puts ("]");
  return 0;
}

static void
print_row (guint position, const float *logits, guint n_vocab, double lse)
{
  gint32 best[N_BEST];
  guint n = 0;

  for (guint id = 0; id < n_vocab; id++) {
    guint at = n;

    if (n == N_BEST && logits[id] <= logits[best[n - 1]])
      continue;
    while (at > 0 && logits[id] > logits[best[at - 1]])
      at--;
    for (guint i = MIN (n, N_BEST - 1); i > at; i--)
      best[i] = best[i - 1];
    best[at] = id;
    n = MIN (n + 1, N_BEST);
  }
  printf ("{\"position\": %u, \"top_ids\": [", position);
  for (guint i = 0; i < n; i++)
    printf ("%s%d", i > 0 ? ", " : "", best[i]);
  printf ("], \"top_logits\": [");
  for (guint i = 0; i < n; i++)
    printf ("%s%.4f", i > 0 ? ", " : "", logits[best[i]]);
  printf ("], \"logsumexp\": %.4f}\n", lse);
}

int
bench_logits (int argc, char **argv)
{
  Bench bench = { 0 };
  g_autofree char *list = NULL, *raw = NULL;
  gint n_greedy = 0, n_context = 0;
  FILE *file = NULL;
  const GOptionEntry entries[] = { { "ids", 'i', 0, G_OPTION_ARG_STRING, &list, "token ids",
                                       "1,2,3" },
    { "greedy", 'g', 0, G_OPTION_ARG_INT, &n_greedy, "continue with the N best tokens", "N" },
    { "context", 0, 0, G_OPTION_ARG_INT, &n_context, "positions to stretch the model for", "N" },
    { "raw", 0, 0, G_OPTION_ARG_FILENAME, &raw, "write all logits there, float32", "FILE" },
    { NULL } };
  g_autoptr (LycheeModel) model = NULL;
  g_autoptr (LycheeExecutor) executor = NULL;
  g_autoptr (LycheeForward) forward = NULL;
  g_autoptr (LycheeCache) cache = NULL;
  g_autoptr (LycheeSampler) sampler = NULL;
  g_autoptr (GArray) ids = NULL;
  g_autoptr (GError) error = NULL;
  const float *logits;
  double nll = 0;
  guint n_vocab;

  bench_parse (&bench, entries,
      "Prints for each position the ten best next ids, their logits and the logarithm of the sum "
      "of "
      "all exponentials; then the mean negative log-likelihood of the ids.",
      &argc, &argv);
  if (!list)
    bench_fail ("--ids is missing");
  ids = bench_parse_numbers ("--ids", list);
  model = bench_load (&bench);
  executor = lychee_executor_get (bench.threads);
  forward = lychee_forward_new (model, executor);
  cache = bench_new_cache (model, ids->len + MAX (n_greedy, 0) + 1);
  lychee_cache_set_rope_context (cache, MAX (n_context, 0));
  if (bench.json)
    printf ("{\"stretch\": %g}\n", lychee_model_get_stretch (model, MAX (n_context, 0)));
  if (raw && !(file = fopen (raw, "wb")))
    bench_fail ("cannot write “%s”: %s", raw, g_strerror (errno));
  n_vocab = lychee_model_get_n_vocab (model);
  for (guint first = 0; first < ids->len; first += LYCHEE_FORWARD_MAX_TOKENS) {
    guint n = MIN (ids->len - first, LYCHEE_FORWARD_MAX_TOKENS);

    if (!lychee_forward_run (forward, cache, (gint32 *) ids->data + first, n, LYCHEE_OUTPUT_ALL,
            &logits, NULL, &error))
      bench_fail ("%s", error->message);
    for (guint i = 0; i < n; i++) {
      const float *row = logits + (gsize) i * n_vocab;
      double lse = log_sum_exp (row, n_vocab);

      print_row (first + i, row, n_vocab, lse);
      if (file && fwrite (row, sizeof *row, n_vocab, file) != n_vocab)
        bench_fail ("cannot write “%s”: %s", raw, g_strerror (errno));
      if (first + i + 1 < ids->len)
        nll += lse - row[g_array_index (ids, gint32, first + i + 1)];
    }
    logits += (gsize) (n - 1) * n_vocab;
  }
  if (file && fclose (file) != 0)
    bench_fail ("cannot write “%s”: %s", raw, g_strerror (errno));
  if (ids->len > 1)
    printf ("{\"mean_nll\": %.5f}\n", nll / (ids->len - 1));
  if (n_greedy > 0) {
    printf ("{\"greedy\": [");
    sampler = lychee_sampler_new ();
    g_object_set (sampler, "temperature", 0.0, "repetition-penalty", 1.0, NULL);
    for (gint i = 0; i < n_greedy; i++) {
      gint32 id = lychee_sampler_sample (sampler, logits, n_vocab);

      printf ("%s%d", i > 0 ? ", " : "", id);
      if (!lychee_forward_run (forward, cache, &id, 1, LYCHEE_OUTPUT_LAST, &logits, NULL, &error))
        bench_fail ("%s", error->message);
    }
    puts ("]}");
  }
  return 0;
}

/* Reads a text in chunks, as a transcript is read, and sums up how surprising it was. */
int
bench_perplexity (int argc, char **argv)
{
  Bench bench = { 0 };
  char *path = NULL, *mode = NULL;
  g_autofree char *cache_type = NULL;
  gboolean packed = FALSE;
  gint n_tokens = 4096, chunk = 12, budget = LYCHEE_DEFAULT_BUDGET, step = 2048, n_context = 0;
  const GOptionEntry entries[] = { { "text", 'f', 0, G_OPTION_ARG_FILENAME, &path, "text to read",
                                       "FILE" },
    { "tokens", 'n', 0, G_OPTION_ARG_INT, &n_tokens, "tokens to read (default 4096)", "N" },
    { "chunk", 'c', 0, G_OPTION_ARG_INT, &chunk, "tokens a chunk (default 12)", "N" },
    { "prefill", 'p', 0, G_OPTION_ARG_STRING, &mode, "dense or sparse (default dense)", "MODE" },
    { "budget", 'b', 0, G_OPTION_ARG_INT, &budget, "tokens that sparse attention reads", "N" },
    { "step", 's', 0, G_OPTION_ARG_INT, &step, "print a mean every so many tokens", "N" },
    { "context", 0, 0, G_OPTION_ARG_INT, &n_context, "positions to stretch the model for", "N" },
    { "cache-type", 0, 0, G_OPTION_ARG_STRING, &cache_type, "f16 or q8_0 (default f16)", "TYPE" },
    { "packed", 0, 0, G_OPTION_ARG_NONE, &packed, "packed positions instead", NULL }, { NULL } };

  LycheeAttentionOptions options = { .rest = TRUE };
  g_autoptr (LycheeModel) model = NULL;
  g_autoptr (LycheeExecutor) executor = NULL;
  g_autoptr (LycheeForward) forward = NULL;
  g_autoptr (LycheeCache) cache = NULL;
  g_autoptr (GArray) ids = g_array_new (FALSE, FALSE, sizeof (gint32));
  g_autoptr (GError) error = NULL;
  g_autofree char *text = NULL;
  double all = 0, since = 0;
  guint n_vocab, n_since = 0, n_all = 0;
  gsize length;

  bench_parse (&bench, entries,
      "Reads a text in chunks and prints the mean negative log-likelihood of its tokens, by "
      "position.",
      &argc, &argv);
  if (!path)
    bench_fail ("--text is missing");
  options.sparse = bench_parse_prefill (mode);
  if (!g_file_get_contents (path, &text, &length, &error))
    bench_fail ("%s", error->message);
  chunk = CLAMP (chunk, 1, LYCHEE_FORWARD_MAX_TOKENS);
  options.budget = MAX (budget, 1);
  model = bench_load (&bench);
  lychee_tokenizer_encode (
      lychee_model_get_tokenizer (model), text, length, LYCHEE_TOKENIZER_NONE, ids);
  if ((gint) ids->len < n_tokens)
    bench_fail ("%s has %u tokens, and %d are wanted", path, ids->len, n_tokens);
  executor = lychee_executor_get (bench.threads);
  forward = lychee_forward_new (model, executor);
  cache = bench_new_cache (model, n_tokens);
  lychee_cache_set_rope_context (cache, packed ? 0 : MAX (n_context, 0));
  lychee_cache_set_packed (cache, packed);
  bench_set_cache_type (cache, cache_type);
  bench_enable_index (model, cache);
  lychee_attention_set_options (lychee_forward_get_attention (forward), &options);
  n_vocab = lychee_model_get_n_vocab (model);
  for (gint first = 0; first < n_tokens; first += chunk) {
    guint n = MIN (chunk, n_tokens - first);
    const float *logits;

    if (!lychee_forward_run (forward, cache, (gint32 *) ids->data + first, n, LYCHEE_OUTPUT_ALL,
            &logits, NULL, &error))
      bench_fail ("%s", error->message);
    for (guint i = 0; i < n && first + (gint) i + 1 < n_tokens; i++) {
      const float *row = logits + (gsize) i * n_vocab;

      since += log_sum_exp (row, n_vocab) - row[g_array_index (ids, gint32, first + i + 1)];
      n_since++;
    }
    if (first / step != (first + (gint) n) / step || first + (gint) n >= n_tokens) {
      all += since;
      n_all += n_since;
      if (bench.json)
        printf ("{\"position\": %u, \"nll\": %.5f, \"mean_nll\": %.5f, \"prefill\": \"%s\", "
                "\"budget\": %u}\n",
            first + n, since / n_since, all / n_all, options.sparse ? "sparse" : "dense",
            options.budget);
      else
        printf ("up to %7u: %.4f, all %.4f (perplexity %.3f)\n", first + n, since / n_since,
            all / n_all, exp (all / n_all));
      fflush (stdout);
      since = 0;
      n_since = 0;
    }
  }
  g_free (path);
  g_free (mode);
  return 0;
}
