/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include "fidelity.h"

#include "lychee-index-private.h"
#include "lychee-model-private.h"

#include <math.h>
#include <string.h>

static void
add_bos (Fidelity *f, GArray *ids)
{
  LycheeTokenizer *tokenizer = lychee_model_get_tokenizer (f->model);
  gint32 bos = lychee_tokenizer_get_bos (tokenizer);

  if (lychee_tokenizer_get_add_bos (tokenizer))
    g_array_append_val (ids, bos);
}

void
fidelity_cut (Fidelity *f, LycheeChunker *chunker)
{
  g_autoptr (GPtrArray) chunks = NULL;
  g_autofree char *text = NULL;
  g_autoptr (GError) error = NULL;
  gsize length;
  guint end;

  if (!g_file_get_contents (f->text_path, &text, &length, &error))
    bench_fail ("%s", error->message);
  g_clear_pointer (&f->ids, g_array_unref);
  g_clear_pointer (&f->item_ends, g_array_unref);
  f->ids = g_array_new (FALSE, FALSE, sizeof (gint32));
  f->item_ends = g_array_new (FALSE, FALSE, sizeof (guint));
  add_bos (f, f->ids);
  end = f->ids->len;
  chunks = bench_chunk (lychee_model_get_tokenizer (f->model), chunker, text, length, f->ids);
  for (guint i = 0; i < chunks->len; i++) {
    end += ((LycheeChunk *) chunks->pdata[i])->n_ids;
    g_array_append_val (f->item_ends, end);
  }
}

static void
choose_layers (Fidelity *f, const char *list)
{
  g_autoptr (GArray) layers = NULL;

  f->measured = g_new0 (gboolean, f->n_layers);
  if (!list || g_str_equal (list, "all")) {
    for (guint i = 0; i < f->n_layers; i++)
      f->measured[i] = !lychee_model_get_local_layers (f->model)[i];
    return;
  }
  layers = bench_parse_numbers ("--layers", list);
  for (guint i = 0; i < layers->len; i++) {
    guint layer = g_array_index (layers, guint, i);

    if (layer >= f->n_layers)
      bench_fail ("--layers: the model has layers 0 to %u", f->n_layers - 1);
    if (lychee_model_get_local_layers (f->model)[layer])
      bench_fail ("--layers: layer %u sees only a window, and all of it", layer);
    f->measured[layer] = TRUE;
  }
}

static void
choose_policies (Fidelity *f, const char *list)
{
  g_auto (GStrv) names = g_strsplit (list ? list : "", ",", -1);

  f->policies = g_ptr_array_new ();
  for (const Policy *const *policy = policy_list (); !list && *policy; policy++)
    g_ptr_array_add (f->policies, (gpointer) *policy);
  for (char **name = names; *name; name++) {
    const Policy *policy = policy_find (g_strstrip (*name));

    if (!policy)
      bench_fail ("--policies: “%s” is none of them; see --help", *name);
    g_ptr_array_add (f->policies, (gpointer) policy);
  }
}

void
fidelity_choose (Fidelity *f, const char *policies, const char *budgets)
{
  g_autoptr (GArray) numbers = bench_parse_numbers ("--budgets", budgets);

  for (guint i = 0; i < numbers->len; i++)
    if (g_array_index (numbers, guint, i) <= FIDELITY_SINKS + FIDELITY_WINDOW)
      bench_fail ("--budgets: %u sinks and a window of %u are inside the budget", FIDELITY_SINKS,
          FIDELITY_WINDOW);
  f->n_budgets = numbers->len;
  f->budgets = (guint *) (gpointer) g_array_free (g_steal_pointer (&numbers), FALSE);
  choose_policies (f, policies);
}

void
fidelity_new_seen (Fidelity *f)
{
  f->seen = g_new (PolicyQueriesSeen, f->n_layers * f->n_kv_heads);
  for (guint i = 0; i < f->n_layers * f->n_kv_heads; i++)
    f->seen[i] = (PolicyQueriesSeen){ g_array_new (FALSE, FALSE, sizeof (guint)),
      g_array_new (FALSE, FALSE, sizeof (float)) };
}

void
fidelity_get_rows (Fidelity *f, LycheeCache *cache, guint layer, guint kv_head, LycheeRows *rows)
{
  if (f->dumped)
    *rows = f->dumped[layer * f->n_kv_heads + kv_head].rows;
  else
    lychee_cache_get_rows (cache, layer, kv_head, rows);
}

void
fidelity_open (Fidelity *f, const char *layers)
{
  g_autoptr (LycheeChunker) chunker = lychee_chunker_new (8, 16);

  if (!f->text_path)
    bench_fail ("--text is missing");
  f->model = bench_load (&f->bench);
  f->executor = lychee_executor_get (f->bench.threads);
  f->forward = lychee_forward_new (f->model, f->executor);
  f->n_layers = lychee_model_get_n_layers (f->model);
  f->n_kv_heads = lychee_model_get_n_kv_heads (f->model);
  f->group = lychee_model_get_n_heads (f->model) / f->n_kv_heads;
  f->head_dim = lychee_model_get_head_dim (f->model);
  if (g_ptr_array_find (f->policies, &policy_q8_0, NULL) &&
      !lychee_cache_has_form (f->head_dim, LYCHEE_ROW_Q8_0))
    bench_fail (
        "--policies: q8_0 needs heads of a multiple of 32 dimensions, and the model's have %u",
        f->head_dim);
  choose_layers (f, layers);
  fidelity_cut (f, chunker);
  if (f->ids->len < f->n_tokens + f->n_queries)
    bench_fail ("“%s” has %u tokens, which is not %u and %u queries", f->text_path, f->ids->len,
        f->n_tokens, f->n_queries);
  f->cache = bench_new_cache (f->model, f->n_tokens + f->n_queries);
  lychee_cache_set_packed (f->cache, f->packed);
  bench_enable_index (f->model, f->cache);
  fidelity_new_seen (f);
  if (f->stretch)
    lychee_cache_set_rope_context (f->cache, f->n_tokens + f->n_queries);
}

void
fidelity_close (Fidelity *f)
{
  for (guint i = 0; i < f->n_layers * f->n_kv_heads; i++) {
    g_array_unref (f->seen[i].rows);
    g_array_unref (f->seen[i].q);
    if (f->dumped) {
      g_free (f->dumped[i].page);
      g_free (f->dumped[i].q);
    }
  }
  g_clear_pointer (&f->dumped, g_free);
  g_clear_pointer (&f->seen, g_free);
  g_clear_object (&f->cache);
  g_clear_pointer (&f->forward, lychee_forward_free);
  g_clear_pointer (&f->executor, lychee_executor_unref);
  g_clear_object (&f->model);
  g_clear_pointer (&f->ids, g_array_unref);
  g_clear_pointer (&f->item_ends, g_array_unref);
  g_clear_pointer (&f->policies, g_ptr_array_unref);
  g_clear_pointer (&f->measured, g_free);
  g_clear_pointer (&f->budgets, g_free);
  g_clear_pointer (&f->text_path, g_free);
}

/* Keeps the queries that the cache's indices have been shown in the last pass, of @n tokens. */
static void
keep_seen (Fidelity *f, guint n)
{
  guint end = lychee_cache_get_length (f->cache);

  for (guint i = 0; i < f->n_layers * f->n_kv_heads; i++) {
    const LycheeIndex *index =
        lychee_cache_get_index (f->cache, i / f->n_kv_heads, i % f->n_kv_heads);
    PolicyQueriesSeen *seen = &f->seen[i];

    if (!index || !index->seen)
      continue;
    for (guint row = end - n; row < end; row++) {
      guint place = row / LYCHEE_INDEX_QUERY_STEP % LYCHEE_QUERIES_SEEN;
      float q[256];

      if (index->seen->end[place] != row + 1)
        continue;
      index->kernels->f16_to_f32 (index->seen->q + (gsize) place * f->head_dim, q, f->head_dim);
      g_array_append_val (seen->rows, row);
      g_array_append_vals (seen->q, q, f->head_dim);
    }
  }
}

void
fidelity_read (Fidelity *f, guint n_tokens)
{
  LycheeAttentionOptions options = {
    .sparse = f->sparse || f->packed, .budget = LYCHEE_DEFAULT_BUDGET, .rest = TRUE
  };
  g_autoptr (GError) error = NULL;

  lychee_attention_set_options (lychee_forward_get_attention (f->forward), &options);
  for (guint at = lychee_cache_get_length (f->cache); at < n_tokens;) {
    guint n = MIN (n_tokens - at, LYCHEE_FORWARD_MAX_TOKENS);

    if (!lychee_forward_run (f->forward, f->cache, &g_array_index (f->ids, gint32, at), n,
            LYCHEE_OUTPUT_NONE, NULL, NULL, &error))
      bench_fail ("%s", error->message);
    keep_seen (f, n);
    at += n;
  }
}

/* Banks */

PolicyBank *
fidelity_new_bank (Fidelity *f, const Policy *policy, gboolean only_measured)
{
  PolicyBank *bank = g_new (PolicyBank, 1);

  *bank = (PolicyBank){ policy, f->n_layers * f->n_kv_heads, NULL };
  bank->states = g_new0 (PolicyState *, bank->n);
  for (guint i = 0; i < bank->n; i++) {
    PolicySpec spec = {
      .head_dim = f->head_dim,
      .scale = 1 / sqrtf (f->head_dim),
      .sinks = FIDELITY_SINKS,
      .window = FIDELITY_WINDOW,
      .seed = i,
      .item_ends = (const guint *) (gpointer) f->item_ends->data,
      .n_item_ends = f->item_ends->len,
      .seen = &f->seen[i],
    };

    if (!only_measured || f->measured[i / f->n_kv_heads])
      bank->states[i] = policy_state_new (policy, &spec);
  }
  return bank;
}

PolicyBank *
policy_bank_copy (const PolicyBank *bank)
{
  PolicyBank *copy = g_memdup2 (bank, sizeof *bank);

  copy->states = g_new0 (PolicyState *, bank->n);
  for (guint i = 0; i < bank->n; i++)
    if (bank->states[i])
      copy->states[i] = policy_state_copy (bank->states[i]);
  return copy;
}

void
policy_bank_free (PolicyBank *bank)
{
  for (guint i = 0; i < bank->n; i++)
    g_clear_pointer (&bank->states[i], policy_state_free);
  g_free (bank->states);
  g_free (bank);
}

void
policy_bank_update (PolicyBank *bank, LycheeCache *cache, PolicyStateFunc func)
{
  guint n_heads = lychee_cache_get_n_kv_heads (cache);

  for (guint i = 0; i < bank->n; i++) {
    LycheeRows rows;

    if (!bank->states[i])
      continue;
    lychee_cache_get_rows (cache, i / n_heads, i % n_heads, &rows);
    func (bank->states[i], &rows, lychee_cache_get_length (cache));
  }
}

double
policy_bank_get_metadata (const PolicyBank *bank, const Fidelity *f, guint n_tokens)
{
  double bytes = 0, rows = 0;

  for (guint i = 0; i < bank->n; i++)
    if (bank->states[i]) {
      bytes += policy_state_get_bytes (bank->states[i]);
      rows += n_tokens;
    }
  return rows > 0 ? bytes / (rows * 2 * f->head_dim * sizeof (guint16)) : 0;
}

/* Decoding and measuring */

guint
fidelity_get_n_budgets (const Fidelity *f, const Policy *policy)
{
  return policy->whole ? 1 : f->n_budgets;
}

void
fidelity_decode (Fidelity *f, LycheeCache *cache, guint n, LycheeAttentionFunc func,
    gpointer func_data, FidelityLogitsFunc logits_func, gpointer logits_data)
{
  LycheeAttention *attention = lychee_forward_get_attention (f->forward);
  g_autoptr (GError) error = NULL;

  lychee_attention_set_func (attention, func, func_data);
  for (guint i = 0; i < n; i++) {
    guint at = lychee_cache_get_length (cache);
    const float *logits;

    if (!lychee_forward_run (f->forward, cache, &g_array_index (f->ids, gint32, at), 1,
            logits_func ? LYCHEE_OUTPUT_LAST : LYCHEE_OUTPUT_NONE, logits_func ? &logits : NULL,
            NULL, &error))
      bench_fail ("%s", error->message);
    if (logits_func)
      logits_func (i, logits, logits_data);
  }
  lychee_attention_set_func (attention, NULL, NULL);
}

void
fidelity_answer (guint layer, guint kv_head, const LycheeQueries *queries, const LycheeRows *rows,
    guint n_keys, float *output, gpointer data)
{
  FidelityRun *run = data;
  const Policy *policy = run->bank->policy;
  PolicyState *state = run->bank->states[layer * run->n_kv_heads + kv_head];
  g_autofree float *logits = policy->exact ? attention_logits (queries, rows, n_keys) : NULL;
  g_autofree guint32 *chosen = g_new (guint32, n_keys);
  PolicyQuery query = { queries, rows, n_keys, run->budget, logits };
  PolicyChoice choice = { chosen };

  policy_state_feed (state, rows, n_keys);
  policy_state_answer (state, &query, output, &choice);
}

void
fidelity_measure_init (
    FidelityMeasure *measure, Fidelity *f, PolicyBank *const *banks, guint n_banks)
{
  *measure = (FidelityMeasure){ f, banks, n_banks, NULL, NULL };
  measure->sums =
      g_new0 (FidelityScore, (gsize) f->n_layers * f->n_kv_heads * n_banks * f->n_budgets);
}

void
fidelity_measure_clear (FidelityMeasure *measure)
{
  g_clear_pointer (&measure->sums, g_free);
}

static FidelityScore *
get_sums (const FidelityMeasure *measure, guint state, guint bank, guint budget)
{
  return &measure->sums[((gsize) state * measure->n_banks + bank) * measure->fidelity->n_budgets +
                        budget];
}

/* Dense attention in float32. */
static void
attend (const LycheeQueries *queries, const LycheeRows *rows, guint n_keys, float *output)
{
  const LycheeCpuKernels *kernels = lychee_cpu_kernels_get ();
  guint n = queries->n_queries, dim = queries->head_dim, page = 1u << rows->page_shift;
  g_autofree float *memory = g_new (float, (gsize) n *(dim + 2));
  LycheeSoftmax softmax = { memory, memory + n, memory + 2 * n };

  lychee_softmax_init (&softmax, n, dim);
  for (guint at = 0; at < n_keys; at += page) {
    const guint16 *k = rows->pages[at >> rows->page_shift];

    kernels->attend (queries, k, k + rows->value_offset, MIN (page, n_keys - at), NULL, &softmax);
  }
  lychee_softmax_finish (&softmax, n, dim, output);
}

/* Several heads at a time: each touches only what is its own. */
void
fidelity_measure (guint layer, guint kv_head, const LycheeQueries *queries, const LycheeRows *rows,
    guint n_keys, float *output, gpointer data)
{
  FidelityMeasure *measure = data;
  Fidelity *f = measure->fidelity;
  g_autoptr (ExactAttention) exact = NULL;
  g_autofree float *answer = g_new (float, (gsize) queries->n_queries * queries->head_dim);
  g_autofree guint32 *chosen = g_new (guint32, n_keys);
  guint i_state = layer * f->n_kv_heads + kv_head;

  if (!f->measured[layer]) {
    attend (queries, rows, n_keys, output);
    return;
  }
  exact = exact_attention_new (queries, rows, n_keys);
  for (guint i = 0; i < queries->n_queries * queries->head_dim; i++)
    output[i] = exact->output[i];
  if (measure->dump)
    fidelity_dump_query (measure->dump, i_state, queries, n_keys);
  for (guint b = 0; b < measure->n_banks; b++) {
    PolicyBank *bank = measure->banks[b];
    PolicyState *state = bank->states[i_state];

    policy_state_feed (state, rows, n_keys);
    if (measure->dump && !bank->policy->whole)
      fidelity_dump_state (measure->dump, i_state, b);
    for (guint k = 0; k < fidelity_get_n_budgets (f, bank->policy); k++) {
      PolicyQuery query = { queries, rows, n_keys, f->budgets[k], exact->logits };
      PolicyChoice choice = { chosen };
      FidelityScore *sum = get_sums (measure, i_state, b, k);

      policy_state_answer (state, &query, answer, &choice);
      if (measure->dump && !bank->policy->whole)
        fidelity_dump_answer (measure->dump, i_state, &choice, answer);
      sum->mass += exact_attention_get_mass (exact, choice.rows, choice.n_rows);
      sum->error += exact_attention_get_error (exact, answer);
      sum->nodes_scored += choice.nodes_scored;
      sum->n++;
    }
  }
}

FidelityScore
fidelity_measure_get (const FidelityMeasure *measure, guint bank, guint budget)
{
  FidelityScore mean = { 0 };

  for (guint state = 0; state < measure->fidelity->n_layers * measure->fidelity->n_kv_heads;
       state++) {
    const FidelityScore *sum = get_sums (measure, state, bank, budget);

    mean.mass += sum->mass;
    mean.error += sum->error;
    mean.nodes_scored += sum->nodes_scored;
    mean.n += sum->n;
  }
  mean.mass /= MAX (mean.n, 1);
  mean.error /= MAX (mean.n, 1);
  mean.nodes_scored /= MAX (mean.n, 1);
  return mean;
}
