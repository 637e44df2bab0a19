/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include "policies.h"

#include <math.h>
#include <string.h>

const Policy *const *
policy_list (void)
{
  static const Policy *const list[] = { &policy_dense, &policy_window, &policy_chunk, &policy_quest,
    &policy_clusterkv, &policy_oracle, &policy_token, &policy_token_drop, NULL };

  return list;
}

const Policy *
policy_find (const char *name)
{
  for (const Policy *const *policy = policy_list (); *policy; policy++)
    if (g_str_equal ((*policy)->name, name))
      return *policy;
  return g_str_equal (name, policy_q8_0.name) ? &policy_q8_0 : NULL;
}

/* State */

struct _PolicyState {
  const Policy *policy;
  PolicySpec spec;
  gpointer data;
};

PolicyState *
policy_state_new (const Policy *policy, const PolicySpec *spec)
{
  PolicyState *state = g_new0 (PolicyState, 1);

  state->policy = policy;
  state->spec = *spec;
  if (policy->open)
    state->data = policy->open (spec, policy->params);
  return state;
}

PolicyState *
policy_state_copy (const PolicyState *state)
{
  PolicyState *copy = g_memdup2 (state, sizeof *state);

  if (state->data)
    copy->data = state->policy->copy (state->data);
  return copy;
}

void
policy_state_free (PolicyState *state)
{
  if (state->data)
    state->policy->close (state->data);
  g_free (state);
}

void
policy_state_prefill (PolicyState *state, const LycheeRows *rows, guint n_tokens)
{
  if (state->policy->prefill)
    state->policy->prefill (state->data, rows, n_tokens);
}

void
policy_state_feed (PolicyState *state, const LycheeRows *rows, guint n_tokens)
{
  if (state->policy->feed)
    state->policy->feed (state->data, rows, n_tokens);
}

void
policy_state_build (PolicyState *state, const LycheeRows *rows, guint n_tokens)
{
  if (state->policy->build)
    state->policy->build (state->data, rows, n_tokens);
  else
    policy_state_prefill (state, rows, n_tokens);
}

gsize
policy_state_get_bytes (const PolicyState *state)
{
  return state->policy->get_bytes ? state->policy->get_bytes (state->data) : 0;
}

void
policy_state_write (const PolicyState *state, GByteArray *to)
{
  if (state->policy->write)
    state->policy->write (state->data, to);
}

/* Answering */

static void
take_run (PolicyChoice *choice, guint begin, guint end)
{
  while (begin < end)
    choice->rows[choice->n_rows++] = begin++;
}

/* Writes @n keys, and the values behind them, into @to as q8_0, and has @keys point there. */
static void
round_rows (const LycheeCpuKernels *from, const LycheeCpuKernels *q8_0, gsize value_offset, guint d,
    guint n, const guint16 **keys, guint16 *to)
{
  gsize size = lychee_row_size (LYCHEE_ROW_Q8_0, d);
  g_autofree float *row = g_new (float, d);

  for (guint i = 0; i < n; i++, to += 2 * size) {
    from->f16_to_f32 (keys[i], row, d);
    q8_0->write_row (row, d, to);
    from->f16_to_f32 (keys[i] + value_offset, row, d);
    q8_0->write_row (row, d, to + size);
    keys[i] = to;
  }
}

void
policy_state_answer (
    PolicyState *state, const PolicyQuery *query, float *output, PolicyChoice *choice)
{
  const LycheeCpuKernels *kernels = lychee_cpu_kernels_get ();
  const PolicySpec *spec = &state->spec;
  guint n = query->queries->n_queries, d = query->queries->head_dim;
  guint mask = (1u << query->rows->page_shift) - 1;
  gboolean all = query->n_keys <= query->budget || state->policy->whole;
  g_autofree float *memory = g_new (float, (gsize) n *(d + 2));
  LycheeSoftmax softmax = { memory, memory + n, memory + 2 * n };
  g_autofree const guint16 **keys = NULL;
  g_autofree guint16 *rounded = NULL;
  gsize value_offset = query->rows->value_offset;

  choice->n_rows = choice->nodes_scored = 0;
  if (all) {
    take_run (choice, 0, query->n_keys);
  } else {
    guint begin = spec->sinks, end = query->n_keys - spec->window;
    PolicyChoice middle = { choice->rows + begin };

    take_run (choice, 0, begin);
    state->policy->select (
        state->data, query, begin, end, query->budget - spec->sinks - spec->window, &middle);
    choice->n_rows += middle.n_rows;
    choice->nodes_scored = middle.nodes_scored;
    take_run (choice, end, query->n_keys);
  }

  keys = g_new (const guint16 *, choice->n_rows);
  for (guint i = 0; i < choice->n_rows; i++)
    keys[i] = query->rows->pages[choice->rows[i] >> query->rows->page_shift] +
              (gsize) (choice->rows[i] & mask) * d;
  if (state->policy->q8_0) {
    const LycheeCpuKernels *q8_0 = lychee_cpu_kernels_for (kernels, LYCHEE_ROW_Q8_0);

    rounded = g_new (guint16, 2 * lychee_row_size (LYCHEE_ROW_Q8_0, d) * choice->n_rows);
    round_rows (kernels, q8_0, value_offset, d, choice->n_rows, keys, rounded);
    value_offset = lychee_row_size (LYCHEE_ROW_Q8_0, d);
    kernels = q8_0;
  }
  lychee_softmax_init (&softmax, n, d);
  kernels->attend_gather (query->queries, keys, value_offset, choice->n_rows, &softmax);
  if (!all && state->policy->rest)
    state->policy->rest (state->data, query, &softmax);
  lychee_softmax_finish (&softmax, n, d, output);
}

/* Ranking: a share that is not negative and its unit, as a number that sorts by both. */

static guint64
rank_key (float share, guint unit)
{
  guint32 bits;

  memcpy (&bits, &share, sizeof bits);
  return (guint64) bits << 32 | (G_MAXUINT32 - unit);
}

static void
swap_keys (guint64 *a, guint64 *b)
{
  guint64 key = *a;

  *a = *b;
  *b = key;
}

/* Quicksort, descending, of which only the first @n_best need be in order. Keys differ. */
static void
sort_best (guint64 *keys, guint n, guint n_best)
{
  while (n > 1 && n_best > 0) {
    guint left = 0;

    /* The middle one is the pivot, at the end until its place is known. */
    swap_keys (&keys[n / 2], &keys[n - 1]);
    for (guint i = 0; i < n - 1; i++)
      if (keys[i] > keys[n - 1])
        swap_keys (&keys[i], &keys[left++]);
    swap_keys (&keys[left], &keys[n - 1]);
    sort_best (keys, left, n_best);
    keys += left + 1;
    n -= left + 1;
    n_best -= MIN (n_best, left + 1);
  }
}

void
policy_rank (
    const float *z, guint n_queries, guint n, const guint *sizes, guint n_best, guint32 *order)
{
  g_autofree double *shares = g_new0 (double, n);
  g_autofree double *weights = g_new (double, n);
  g_autofree guint64 *keys = g_new (guint64, n);

  for (guint h = 0; h < n_queries; h++, z += n) {
    double max = -INFINITY, sum = 0;

    for (guint i = 0; i < n; i++)
      max = MAX (max, z[i]);
    for (guint i = 0; i < n; i++) {
      weights[i] = exp (z[i] - max);
      sum += weights[i] * (sizes ? sizes[i] : 1);
    }
    for (guint i = 0; i < n; i++)
      shares[i] += weights[i] / sum;
  }
  for (guint i = 0; i < n; i++)
    keys[i] = rank_key (shares[i], i);
  n_best = MIN (n_best, n);
  sort_best (keys, n, n_best);
  for (guint i = 0; i < n_best; i++)
    order[i] = G_MAXUINT32 - (guint32) keys[i];
}

/* Dense: everything. */

const Policy policy_dense = {
  .name = "dense",
  .summary = "all keys",
  .whole = TRUE,
};

const Policy policy_q8_0 = {
  .name = "q8_0",
  .summary = "all keys, kept as cache-type=q8_0",
  .whole = TRUE,
  .q8_0 = TRUE,
};

/* Sinks and window only (Xiao et al. 2023, StreamingLLM): the newest rows. */

static void
select_newest (gpointer state, const PolicyQuery *query, guint begin, guint end, guint budget,
    PolicyChoice *choice)
{
  take_run (choice, end - MIN (budget, end - begin), end);
}

const Policy policy_window = {
  .name = "window",
  .summary = "sinks and the newest keys",
  .select = select_newest,
};

/* Oracle: the rows that get most of the true attention; the best that dropping the rest can do. */

static void
select_largest (gpointer state, const PolicyQuery *query, guint begin, guint end, guint budget,
    PolicyChoice *choice)
{
  guint n = end - begin;
  g_autofree float *z = g_new (float, (gsize) query->queries->n_queries *n);

  for (guint h = 0; h < query->queries->n_queries; h++)
    memcpy (z + (gsize) h * n, query->logits + (gsize) h * query->n_keys + begin, n * sizeof *z);
  choice->n_rows = MIN (budget, n);
  choice->nodes_scored = n;
  policy_rank (z, query->queries->n_queries, n, NULL, choice->n_rows, choice->rows);
  for (guint i = 0; i < choice->n_rows; i++)
    choice->rows[i] += begin;
}

const Policy policy_oracle = {
  .name = "oracle",
  .summary = "the keys with the largest true weights",
  .exact = TRUE,
  .select = select_largest,
};
