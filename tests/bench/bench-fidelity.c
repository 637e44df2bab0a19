/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* lychee-bench fidelity: how close sparse attention stays to dense, ours and published ways side by
 * side, on real keys, values and queries of a model that reads a text. */

#include "fidelity.h"
#include "log-sum-exp.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
  guint n_vocab, n_queries;
  const gint32 *next; /* [n_queries] the text's next tokens; -1 where it ends */
  float *logits;      /* [n_queries][n_vocab] of the dense run */
  double *lse;        /* [n_queries] ln of the sum of their exponentials */
} Reference;

/* A run under a policy beside the dense one. */
typedef struct {
  const Reference *reference;
  double *kl; /* [n_queries] */
  double nll;
  guint n_agree, n_next;
} Comparison;

static guint
find_largest (const float *logits, guint n)
{
  guint best = 0;

  for (guint i = 1; i < n; i++)
    best = logits[i] > logits[best] ? i : best;
  return best;
}

static void
keep_logits (guint i, const float *logits, gpointer data)
{
  Reference *reference = data;

  memcpy (reference->logits + (gsize) i * reference->n_vocab, logits,
      reference->n_vocab * sizeof *logits);
  reference->lse[i] = log_sum_exp (logits, reference->n_vocab);
}

static void
compare_logits (guint i, const float *logits, gpointer data)
{
  Comparison *comparison = data;
  const Reference *reference = comparison->reference;
  guint n = reference->n_vocab;
  const float *dense = reference->logits + (gsize) i * n;
  double lse = log_sum_exp (logits, n);

  comparison->kl[i] = 0;
  for (guint id = 0; id < n; id++) {
    double log_p = dense[id] - reference->lse[i];

    comparison->kl[i] += exp (log_p) * (log_p - (logits[id] - lse));
  }
  comparison->n_agree += find_largest (logits, n) == find_largest (dense, n);
  if (reference->next[i] >= 0) {
    comparison->nll += lse - logits[reference->next[i]];
    comparison->n_next++;
  }
}

static int
by_size (gconstpointer a, gconstpointer b)
{
  const double *x = a, *y = b;

  return *x < *y ? -1 : *x > *y;
}

/* The mean and the median: a few tokens make half of the mean. */
static void
average (double *x, guint n, double *mean, double *median)
{
  *mean = 0;
  for (guint i = 0; i < n; i++)
    *mean += x[i] / n;
  qsort (x, n, sizeof *x, by_size);
  *median = (x[(n - 1) / 2] + x[n / 2]) / 2;
}

static LycheeCache *
fork_cache (Fidelity *f)
{
  g_autoptr (GError) error = NULL;
  LycheeCache *fork = lychee_cache_fork (f->cache, &error);

  if (!fork)
    bench_fail ("%s", error->message);
  return fork;
}

static void
print_head (Fidelity *f, double dense_perplexity)
{
  if (f->bench.json)
    return;
  printf ("%s, %u tokens and %u queries of “%s”; perplexity of dense attention %.4f\n"
          "%u sinks and a window of %u are inside every budget; one choice serves the %u query "
          "heads of a KV head,\nranked by their shares of attention per token, summed over the "
          "heads\n\n",
      lychee_model_get_name (f->model), f->n_tokens, f->n_queries, f->text_path, dense_perplexity,
      FIDELITY_SINKS, FIDELITY_WINDOW, f->group);
  printf ("%-14s %7s %7s %8s %10s %10s %7s %11s %8s %9s\n", "policy", "budget", "mass", "error",
      "KL", "median", "top-1", "perplexity", "nodes", "metadata");
}

static void
print_row (Fidelity *f, const Policy *policy, guint budget, const FidelityScore *score,
    const Comparison *comparison, double dense_perplexity, double metadata)
{
  double top1 = (double) comparison->n_agree / f->n_queries, kl, median;
  double perplexity = exp (comparison->nll / comparison->n_next);

  average (comparison->kl, f->n_queries, &kl, &median);
  if (f->bench.json)
    printf (
        "{\"policy\": \"%s\", \"budget\": %u, \"mass\": %.6f, \"error\": %.6f, \"kl\": %.8f, "
        "\"kl_median\": %.8f, \"top1\": %.6f, \"perplexity\": %.5f, \"dense_perplexity\": %.5f, "
        "\"nodes_scored\": %.1f, \"metadata\": %.6f, \"tokens\": %u, \"queries\": %u, "
        "\"model\": \"%s\"}\n",
        policy->name, budget, score->mass, score->error, kl, median, top1, perplexity,
        dense_perplexity, score->nodes_scored, metadata, f->n_tokens, f->n_queries,
        lychee_model_get_id (f->model));
  else
    printf ("%-14s %7u %7.4f %8.4f %10.6f %10.6f %7.4f %11.4f %8.1f %8.2f%%\n", policy->name,
        budget, score->mass, score->error, kl, median, top1, perplexity, score->nodes_scored,
        100 * metadata);
  fflush (stdout);
}

static void
compare (Fidelity *f, const char *dump_path)
{
  guint n_banks = f->policies->len, n_vocab = lychee_model_get_n_vocab (f->model);
  g_autoptr (GPtrArray) banks = g_ptr_array_new_with_free_func ((GDestroyNotify) policy_bank_free);
  g_autoptr (GPtrArray) copies = g_ptr_array_new_with_free_func ((GDestroyNotify) policy_bank_free);
  g_autoptr (LycheeCache) dense = NULL;
  g_autofree float *logits = g_new (float, (gsize) f->n_queries *n_vocab);
  g_autofree double *lse = g_new (double, f->n_queries);
  g_autofree gint32 *next = g_new (gint32, f->n_queries);
  g_autoptr (FidelityDump) dump = NULL;
  Reference reference = { n_vocab, f->n_queries, next, logits, lse };
  FidelityMeasure measure;
  double nll = 0, dense_perplexity;
  guint n_next = 0;

  fidelity_read (f, f->n_tokens);
  for (guint b = 0; b < n_banks; b++) {
    PolicyBank *bank = fidelity_new_bank (f, f->policies->pdata[b], FALSE);

    policy_bank_update (bank, f->cache, policy_state_prefill);
    g_ptr_array_add (banks, bank);
    g_ptr_array_add (copies, policy_bank_copy (bank));
  }

  dense = fork_cache (f);
  fidelity_measure_init (&measure, f, (PolicyBank *const *) copies->pdata, n_banks);
  if (dump_path)
    measure.dump = dump = fidelity_dump_new (f, measure.banks, n_banks);
  fidelity_decode (f, dense, f->n_queries, fidelity_measure, &measure, keep_logits, &reference);
  if (dump_path)
    fidelity_dump_save (dump, dense, dump_path);
  for (guint i = 0; i < f->n_queries; i++) {
    guint at = f->n_tokens + i + 1;

    next[i] = at < f->ids->len ? g_array_index (f->ids, gint32, at) : -1;
    if (next[i] >= 0) {
      nll += lse[i] - logits[(gsize) i * n_vocab + next[i]];
      n_next++;
    }
  }
  dense_perplexity = exp (nll / n_next);

  print_head (f, dense_perplexity);
  for (guint b = 0; b < n_banks; b++) {
    PolicyBank *bank = banks->pdata[b];
    double metadata = policy_bank_get_metadata (bank, f, f->n_tokens);

    for (guint k = 0; k < fidelity_get_n_budgets (f, bank->policy); k++) {
      g_autoptr (LycheeCache) cache = fork_cache (f);
      g_autoptr (PolicyBank) fresh = policy_bank_copy (bank);
      FidelityRun run = { fresh, f->budgets[k], f->n_kv_heads };
      g_autofree double *kl = g_new (double, f->n_queries);
      Comparison comparison = { &reference, kl };
      FidelityScore score = fidelity_measure_get (&measure, b, k);

      fidelity_decode (f, cache, f->n_queries, fidelity_answer, &run, compare_logits, &comparison);
      print_row (f, bank->policy, bank->policy->whole ? f->n_tokens + f->n_queries : run.budget,
          &score, &comparison, dense_perplexity, metadata);
    }
  }
  fidelity_measure_clear (&measure);
}

static char *
describe (void)
{
  GString *text = g_string_new ("Policies:\n");

  for (const Policy *const *policy = policy_list (); *policy; policy++)
    g_string_append_printf (text, "  %-14s %s\n", (*policy)->name, (*policy)->summary);
  g_string_append_printf (
      text, "  %-14s %s (only where it is named)\n", policy_q8_0.name, policy_q8_0.summary);
  g_string_append (text,
      "\nA model reads the text's first tokens; then the text's next tokens are queries, "
      "one by one.\n"
      "mass: softmax weight of what is read exactly; error: |o - o'| / |o| of the attention's "
      "output; means over\nheads, layers and queries of a dense run. KL (dense || policy), in "
      "nats, its median, top-1 agreement and perplexity of\nthe next token, when the whole model "
      "runs under "
      "the policy over those tokens. The row of dense says what of these is rounding: quantised "
      "models round their\nactivations to 8 bits, which makes much of a last bit.");
  return g_string_free (text, FALSE);
}

int
bench_fidelity (int argc, char **argv)
{
  Fidelity f = { 0 };
  g_autofree char *layers = NULL, *policies = NULL, *budgets = NULL, *dump = NULL, *from = NULL;
  g_autofree char *summary = describe ();
  g_autofree char *prefill = NULL;
  gint n_tokens = 0, n_queries = 0, n_points = 8;
  gboolean drift = FALSE;
  const GOptionEntry entries[] = { { "text", 0, 0, G_OPTION_ARG_FILENAME, &f.text_path,
                                       "what the model reads", "FILE" },
    { "tokens", 'n', 0, G_OPTION_ARG_INT, &n_tokens,
        "tokens before the first query (default 8000, with --drift 30000)", "N" },
    { "queries", 'q', 0, G_OPTION_ARG_INT, &n_queries,
        "tokens that are queries (default 96, with --drift 32 at each point)", "N" },
    { "budgets", 'b', 0, G_OPTION_ARG_STRING, &budgets, "keys that are read (default 256,512,1024)",
        "N,N,..." },
    { "layers", 'l', 0, G_OPTION_ARG_STRING, &layers,
        "layers whose attention is measured (default all)", "N,N,..." },
    { "policies", 'p', 0, G_OPTION_ARG_STRING, &policies, "which (default all)", "NAME,..." },
    { "drift", 0, 0, G_OPTION_ARG_NONE, &drift,
        "instead: the error at points of a long text, beside that of what is built afresh there",
        NULL },
    { "prefill", 0, 0, G_OPTION_ARG_STRING, &prefill,
        "how the text is read, dense or sparse (default dense): long texts take a while", "MODE" },
    { "points", 0, 0, G_OPTION_ARG_INT, &n_points, "how many points (default 8)", "N" },
    { "dump", 0, 0, G_OPTION_ARG_FILENAME, &dump,
        "write the measured layers' queries, keys, values and answers", "FILE" },
    { "from", 0, 0, G_OPTION_ARG_FILENAME, &from,
        "instead: attention alone, of what --dump wrote, without a model", "FILE" },
    { NULL } };

  bench_parse (&f.bench, entries, summary, &argc, &argv);
  f.sparse = bench_parse_prefill (prefill);
  f.stretch = drift;
  f.n_tokens = n_tokens > 0 ? n_tokens : drift ? 30000 : 8000;
  f.n_queries = n_queries > 0 ? n_queries : drift ? 32 : 96;
  fidelity_choose (&f, policies, budgets ? budgets : "256,512,1024");
  if (from)
    fidelity_open_dump (&f, from, f.n_queries);
  else
    fidelity_open (&f, layers);
  if (from)
    fidelity_replay (&f, from, dump);
  else if (drift)
    fidelity_drift (&f, CLAMP (n_points, 1, 1000));
  else
    compare (&f, dump);
  fidelity_close (&f);
  return 0;
}
