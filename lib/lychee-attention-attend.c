/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Steps 2 and 3 of a pass: its queries over the keys, and the sum of what they found. */

#include "lychee-attention-private.h"

#include <math.h>
#include <string.h>

/* Whether the weights of the layer's tokens are wanted. */
static gboolean
are_weights_wanted (LycheeAttention *a, guint layer)
{
  return a->weights.n_rows > 0 && layer >= a->weights.layer_begin && layer < a->weights.layer_end &&
         !a->local[layer] && !a->plans[0].func;
}

static LycheeSoftmax
unit_state (LycheeAttention *a, guint unit, guint n_queries)
{
  float *base = a->partial + unit * unit_size (a);

  return (LycheeSoftmax){ base, base + n_queries, base + 2 * (gsize) n_queries };
}

static const Plan *
get_plan (LycheeAttention *a, guint layer)
{
  return &a->plans[a->local[layer] ? 1 : 0];
}

static const float *
get_query (LycheeAttention *a, const float *q, guint head, guint token)
{
  return q + ((gsize) token * a->n_heads + (gsize) head * a->group) * a->head_dim;
}

/* The queries of a block's tokens for one KV head, [token][group][head_dim]; in place where there
 * is one token. */
static const float *
gather_queries (
    LycheeAttention *a, const float *q, guint head, guint first_token, guint n_tokens, float *to)
{
  gsize row = (gsize) a->group * a->head_dim;

  q = get_query (a, q, head, first_token);
  if (n_tokens == 1)
    return q;
  for (guint t = 0; t < n_tokens; t++)
    memcpy (to + t * row, q + (gsize) t * a->n_heads * a->head_dim, row * sizeof *to);
  return to;
}

/* A job at work. */
typedef struct {
  guint layer, thread;
  guint head, first_token, n_tokens, first_position;
  guint moved; /* with packed positions: rows are read so many places farther on than they stand */
  LycheeQueries queries;
  LycheeRows rows;
} Block;

static const LycheeLoadedRows *
load_run (LycheeAttention *a, const Block *b, guint row, guint place, guint n)
{
  guint32 ids[LYCHEE_LOAD_ROWS], places[LYCHEE_LOAD_ROWS];

  for (guint i = 0; i < n; i++) {
    ids[i] = row + i;
    places[i] = place + i;
    if (a->packed)
      places[i] = MIN (
          b->first_position + BLOCK_TOKENS - place - i - b->moved, lychee_attention_get_most (a));
  }
  return lychee_attention_load (a, b->layer, &b->rows, ids, places, n, b->thread);
}

/* Keys begin .. end - 1 (places, as all here), each by the queries whose token stands at or after
 * it. The queries are those of @n_tokens tokens from @first_position on. */
static void
attend_run (LycheeAttention *a, const Block *b, const LycheeQueries *queries, guint begin,
    guint end, guint first_position, guint n_tokens, LycheeSoftmax *state)
{
  guint32 visible[BLOCK_TOKENS * LYCHEE_ATTENTION_MAX_GROUP];
  const LycheeRows *rows = &b->rows;

  end = MIN (end, first_position + n_tokens);
  for (guint at = begin; at < end;) {
    guint row = at < a->head ? at : at + a->skip;
    guint in_page = row & (LYCHEE_CACHE_PAGE_TOKENS - 1);
    guint n =
        MIN (LYCHEE_CACHE_PAGE_TOKENS - in_page, (at < a->head ? MIN (a->head, end) : end) - at);
    const LycheeCpuKernels *kernels = lychee_cpu_kernels_for (a->kernels, rows->form);
    const guint16 *k = lychee_rows_key (rows, a->head_dim, row);
    const guint16 *v = k + rows->value_offset;
    const guint32 *mask = NULL;

    if (loads_rows (a, b->layer)) {
      const LycheeLoadedRows *loaded;

      n = MIN (n, LYCHEE_LOAD_ROWS);
      loaded = load_run (a, b, row, at, n);
      k = loaded->k;
      v = loaded->v;
      kernels = a->kernels;
    }
    if (at + n > first_position + 1) {
      mask = visible;
      for (guint t = 0; t < n_tokens; t++) {
        guint position = first_position + t;
        guint sees = position < at ? 0 : MIN (position + 1 - at, n);

        for (guint g = 0; g < a->group; g++)
          visible[t * a->group + g] = sees;
      }
    }
    kernels->attend (queries, k, v, n, mask, state);
    at += n;
  }
}

/* The same for the keys that a local layer's tokens see. */
static void
attend_window (LycheeAttention *a, const Block *b, guint begin, guint end, LycheeSoftmax *state)
{
  const LycheeQueries *queries = &b->queries;
  guint first_position = b->first_position, n_tokens = b->n_tokens;
  /* From here on all of the tokens see the keys, as far as they are not behind themselves. */
  guint common = CLAMP (window_begin (a, first_position + n_tokens - 1), begin, end);

  for (guint t = 0; begin < common && t < n_tokens; t++) {
    gsize at = (gsize) t * a->group;
    LycheeSoftmax own = { state->m + at, state->l + at, state->o + at * a->head_dim };
    LycheeQueries of_token = *queries;

    of_token.n_queries = a->group;
    of_token.q += at * a->head_dim;
    attend_run (a, b, &of_token, MAX (begin, window_begin (a, first_position + t)), common,
        first_position + t, 1, &own);
  }
  attend_run (a, b, queries, common, end, first_position, n_tokens, state);
}

/* @distances: with packed positions */
static void
attend_gathered (LycheeAttention *a, const Block *b, const guint32 *tokens,
    const guint32 *distances, guint n, LycheeSoftmax *state)
{
  const LycheeRows *rows = &b->rows;
  const guint16 *keys[GATHER_KEYS];
  gboolean loads = loads_rows (a, b->layer);

  for (guint from = 0, some; loads && from < n; from += some) {
    guint32 places[LYCHEE_LOAD_ROWS];
    const LycheeLoadedRows *loaded;

    some = MIN (n - from, LYCHEE_LOAD_ROWS);
    for (guint i = 0; i < some; i++)
      places[i] = a->packed                    ? distances[from + i]
                  : tokens[from + i] < a->head ? tokens[from + i]
                                               : tokens[from + i] - a->skip;
    loaded = lychee_attention_load (a, b->layer, rows, tokens + from, places, some, b->thread);
    a->kernels->attend (&b->queries, loaded->k, loaded->v, some, NULL, state);
  }
  if (loads)
    return;
  for (guint i = 0; i < n; i++)
    keys[i] = lychee_rows_key (rows, a->head_dim, tokens[i]);
  lychee_cpu_kernels_for (a->kernels, rows->form)
      ->attend_gather (&b->queries, keys, rows->value_offset, n, state);
}

static void
get_block (LycheeAttention *a, guint layer, guint job, guint thread, Block *b)
{
  b->layer = layer;
  b->thread = thread;
  b->head = job / a->n_blocks;
  b->first_token = job % a->n_blocks * BLOCK_TOKENS;
  b->n_tokens = MIN (BLOCK_TOKENS, a->n_tokens - b->first_token);
  /* What is before it is visible to all of the block. */
  b->first_position = a->place + b->first_token;
  b->moved = 0;
  b->queries =
      (LycheeQueries){ b->n_tokens * a->group, a->head_dim, a->scale, NULL, .cap = a->cap };
  lychee_cache_get_rows (a->cache, layer, b->head, &b->rows);
}

/* Shows the head's index a query of the block, whose queries for its index are @q, where it is
 * one's turn. A pass that is repeated shows the same. */
static void
observe (LycheeAttention *a, const Block *b, const float *q)
{
  guint first = a->first + b->first_token, step = LYCHEE_INDEX_QUERY_STEP;
  guint token = step - 1 - first % step, number = (first + token) / step;

  G_STATIC_ASSERT (BLOCK_TOKENS <= LYCHEE_INDEX_QUERY_STEP);
  /* Threads must not put two into the same place: those that the pass itself replaces are left. */
  if (token < b->n_tokens &&
      a->first + a->n_tokens - (first + token) <= LYCHEE_QUERIES_SEEN * step &&
      lychee_cache_get_indexing (a->cache))
    lychee_index_observe (lychee_cache_get_index (a->cache, b->layer, b->head), first + token,
        q + (gsize) (token * a->group + number % a->group) * a->head_dim);
}

/* The scoring half of a sparse job. */
static void
search (LycheeAttention *a, guint layer, const float *q, guint job, guint thread)
{
  LycheeAttentionStats *stats = &a->counters[thread].stats;
  const LycheeCacheIndexing *indexing = lychee_cache_get_indexing (a->cache);
  LycheeIndex *index;
  LycheeIndexQuery query;
  Job *j = &a->jobs[job];
  guint sinks = a->skip > 0 ? a->head : MIN (indexing->sinks, a->first), certain;
  Block b;

  get_block (a, layer, job, thread, &b);
  index = lychee_cache_get_index (a->cache, layer, b.head);
  j->sinks = sinks;
  j->recent = MAX (lychee_index_get_end (index), sinks + a->skip) - a->skip;
  certain = sinks + a->place - j->recent;
  query = (LycheeIndexQuery){
    .n_queries = b.queries.n_queries,
    .q = gather_queries (a, q, b.head, b.first_token, b.n_tokens, j->q),
    .budget = a->options.budget > certain ? a->options.budget - certain : 0,
    .beam = a->options.beam,
    .rest = a->options.rest,
    .logits = TRUE,
  };
  /* ggml may use the queries' memory again before they are looked at once more. */
  if ((layer == a->audit_layer || are_weights_wanted (a, layer)) && query.q != j->q)
    memcpy (j->q, query.q, (gsize) b.queries.n_queries * a->head_dim * sizeof *j->q);
  /* A stale index is over rotated keys, which the query is as it is. */
  if (a->packed && !lychee_cache_is_index_stale (a->cache, layer))
    query.q =
        lychee_attention_turn (a, LYCHEE_TURN_AIM, query.q, b.first_token, b.n_tokens, thread);
  observe (a, &b, query.q);
  lychee_index_search (index, &b.rows, &query, j->selection);
  if (a->packed)
    lychee_attention_pack (a, j, b.first_position);
  stats->nodes_scored += j->selection->nodes_scored;
  stats->rows_estimated += (guint64) j->selection->rows_estimated * b.n_tokens;
  stats->rows_read += (guint64) (certain + b.n_tokens + j->selection->n_rows) * b.n_tokens;
}

static void
attend_sparse (
    LycheeAttention *a, guint layer, const float *q, guint job, guint split, guint thread)
{
  LycheeAttentionStats *stats = &a->counters[thread].stats;
  Job *j = &a->jobs[job];
  guint n_splits = get_plan (a, layer)->n_splits;
  LycheeSelection *found = j->selection;
  guint64 begun = now (a);
  LycheeSoftmax state;
  Block b;

  get_block (a, layer, job, thread, &b);
  /* The search has gathered them; other threads read them now, too. */
  b.queries.q = b.n_tokens == 1 ? get_query (a, q, b.head, b.first_token) : j->q;
  if (a->packed)
    b.queries.q = lychee_attention_turn (
        a, LYCHEE_TURN_QUERY, b.queries.q, b.first_token, b.n_tokens, thread);
  state = unit_state (a, job * n_splits + split, b.queries.n_queries);
  lychee_softmax_init (&state, b.queries.n_queries, a->head_dim);
  if (split == 0) {
    if (a->packed)
      b.moved = lychee_attention_get_shift (a, j, b.first_position);
    attend_run (a, &b, &b.queries, 0, j->sinks, b.first_position, b.n_tokens, &state);
    b.moved = 0;
    attend_run (
        a, &b, &b.queries, j->recent, a->place + a->n_tokens, b.first_position, b.n_tokens, &state);
    stats->ns_read += now (a) - begun;
  } else if (split < n_splits - 1) {
    guint from = (split - 1) * GATHER_KEYS;

    if (from < found->n_rows)
      attend_gathered (a, &b, found->rows + from, a->packed ? j->distances + from : NULL,
          MIN (GATHER_KEYS, found->n_rows - from), &state);
    stats->ns_read += now (a) - begun;
  } else {
    LycheeIndexQuery query = { .n_queries = b.queries.n_queries, .q = b.queries.q, .logits = TRUE };

    lychee_index_attend_rest (
        lychee_cache_get_index (a->cache, layer, b.head), &query, found, &state);
    stats->ns_rest += now (a) - begun;
  }
}

static void
attend_dense (LycheeAttention *a, guint layer, const float *q, guint job, guint split,
    float *scratch, guint thread)
{
  LycheeAttentionStats *stats = &a->counters[thread].stats;
  const Plan *plan = get_plan (a, layer);
  guint begin = split * plan->split_keys;
  guint64 begun = now (a);
  LycheeSoftmax state;
  Block b;

  get_block (a, layer, job, thread, &b);
  b.queries.q = gather_queries (a, q, b.head, b.first_token, b.n_tokens, scratch);
  if (split == 0 && are_weights_wanted (a, layer))
    memcpy (a->jobs[job].q, b.queries.q,
        (gsize) b.queries.n_queries * a->head_dim * sizeof *b.queries.q);
  if (a->packed && !a->local[layer])
    b.queries.q = lychee_attention_turn (
        a, LYCHEE_TURN_QUERY, b.queries.q, b.first_token, b.n_tokens, thread);
  else if (split == 0 && !a->local[layer])
    observe (a, &b, b.queries.q);
  state = unit_state (a, job * plan->n_splits + split, b.queries.n_queries);
  lychee_softmax_init (&state, b.queries.n_queries, a->head_dim);
  if (a->local[layer]) {
    begin += window_begin (a, b.first_position);
    attend_window (a, &b, begin, begin + plan->split_keys, &state);
  } else {
    attend_run (
        a, &b, &b.queries, begin, begin + plan->split_keys, b.first_position, b.n_tokens, &state);
  }
  stats->ns_read += now (a) - begun;
}

static void
attend_func (LycheeAttention *a, guint layer, const float *q, guint job, guint thread)
{
  LycheeSoftmax state;
  Block b;

  get_block (a, layer, job, thread, &b);
  b.queries.q = gather_queries (a, q, b.head, 0, 1, NULL);
  state = unit_state (a, job, b.queries.n_queries);
  for (guint i = 0; i < b.queries.n_queries; i++) {
    state.m[i] = 0;
    state.l[i] = 1;
  }
  a->func (layer, b.head, &b.queries, &b.rows, a->first + 1, state.o, a->func_data);
}

/* Another thread searches; it has begun, so this is short, unless it was taken off its core. */
static void
wait_for (gint *found)
{
  for (guint spins = 0; !g_atomic_int_get (found); spins++) {
    if (spins > 10000)
      g_thread_yield ();
#if defined(__x86_64__)
    else
      __builtin_ia32_pause ();
#endif
  }
}

void
lychee_attention_attend (LycheeAttention *a, guint layer, const float *q, guint thread)
{
  LycheeAttentionStats *stats = &a->counters[thread].stats;
  gint *found = a->found + (gsize) layer * a->n_jobs;
  const Plan *plan = get_plan (a, layer);
  guint n_searches = plan->sparse ? a->n_jobs : 0;
  guint n_units = n_searches + a->n_jobs * plan->n_splits;
  g_autofree float *scratch = NULL;
  guint unit;

  if (!plan->sparse && a->n_tokens > 1)
    scratch = g_new (float, (gsize) a->unit_queries * a->head_dim);
  /* Searches are handed out first, so that whoever waits for one knows it to be under way. */
  while ((unit = g_atomic_int_add (&a->next_unit[layer], 1)) < n_units) {
    guint job, split;

    if (unit < n_searches) {
      guint64 begun = now (a);

      search (a, layer, q, unit, thread);
      stats->ns_search += now (a) - begun;
      g_atomic_int_set (&found[unit], TRUE);
      continue;
    }
    job = (unit - n_searches) / plan->n_splits;
    split = (unit - n_searches) % plan->n_splits;
    if (plan->func) {
      attend_func (a, layer, q, job, thread);
    } else if (plan->sparse) {
      wait_for (&found[job]);
      attend_sparse (a, layer, q, job, split, thread);
    } else {
      attend_dense (a, layer, q, job, split, scratch, thread);
    }
  }
}

/* ln of the mass that a state has seen. */
static double
log_mass (const LycheeSoftmax *state, guint query)
{
  return state->m[query] + log (state->l[query]);
}

/* What the sparse answer of a job missed: @log_read is ln of the mass that was read exactly,
 * @output is the answer. */
static void
audit (LycheeAttention *a, const Block *b, const double *log_read, const float *output,
    LycheeAttentionStats *stats)
{
  guint n = b->queries.n_queries, d = a->head_dim;
  g_autofree float *memory = g_new (float, (gsize) n *(d + 2));
  LycheeSoftmax all = { memory, memory + n, memory + 2 * n };

  lychee_softmax_init (&all, n, d);
  attend_run (a, b, &b->queries, 0, a->place + 1, b->first_position, 1, &all);
  for (guint i = 0; i < n; i++) {
    double missed = 1 - exp (log_read[i] - log_mass (&all, i)), distance = 0, length = 0;

    for (guint j = 0; j < d; j++) {
      double wanted = all.o[(gsize) i * d + j] / all.l[i], got = output[(gsize) i * d + j];

      distance += (got - wanted) * (got - wanted);
      length += wanted * wanted;
    }
    stats->missed_mass += MAX (missed, 0) / n;
    stats->error += length > 0 ? sqrt (distance / length) / n : 0;
  }
  stats->audits++;
}

/* What the transcript's rows got of a job's attention: those that it read. */
static void
weigh (LycheeAttention *a, guint layer, guint job, const Block *b, const LycheeSoftmax *all)
{
  const LycheeAttentionWeights *w = &a->weights;
  const Job *j = &a->jobs[job];
  gboolean sparse = get_plan (a, layer)->sparse;
  LycheeWeighing weighing;
  guint begin = sparse ? MAX (w->first, j->recent + a->skip) : w->first;
  float *sum =
      w->sum +
      ((gsize) (layer - w->layer_begin) * a->n_heads + (gsize) b->head * a->group) * w->n_bins;

  weighing = (LycheeWeighing){ w, b->queries, &b->rows, layer, b->thread,
    a->packed ? b->first_position + BLOCK_TOKENS : 0 };
  lychee_attention_weigh (a, &weighing, all, begin, sparse ? j->selection->rows : NULL,
      j->distances, sparse ? j->selection->n_rows : 0, sum);
}

void
lychee_attention_merge (
    LycheeAttention *a, guint layer, float *output, guint thread, guint n_threads)
{
  gsize row = (gsize) a->group * a->head_dim;
  guint n_splits = get_plan (a, layer)->n_splits;
  gboolean audited = layer == a->audit_layer, weighed = are_weights_wanted (a, layer);
  double log_read[LYCHEE_ATTENTION_MAX_GROUP];
  guint64 begun = now (a);

  for (guint job = 0; job < a->n_jobs; job++) {
    LycheeSoftmax sum;
    float *to;
    Block b;

    /* A head's weights are added up by one thread, in order. */
    if ((weighed ? job / a->n_blocks : job) % n_threads != thread)
      continue;

    get_block (a, layer, job, thread, &b);
    sum = unit_state (a, job * n_splits, b.queries.n_queries);
    to = output + ((gsize) b.first_token * a->n_heads + (gsize) b.head * a->group) * a->head_dim;
    for (guint split = 1; split < n_splits; split++) {
      LycheeSoftmax part = unit_state (a, job * n_splits + split, b.queries.n_queries);

      /* The last unit of a sparse job is the rest, which was not read. */
      if (audited && split == n_splits - 1)
        for (guint i = 0; i < b.queries.n_queries; i++)
          log_read[i] = log_mass (&sum, i);
      lychee_softmax_merge (&sum, &part, b.queries.n_queries, a->head_dim);
    }
    lychee_softmax_finish (&sum, b.queries.n_queries, a->head_dim, sum.o);
    b.queries.q = a->jobs[job].q;
    if (a->packed && (weighed || audited))
      b.queries.q = lychee_attention_turn (
          a, LYCHEE_TURN_QUERY, b.queries.q, b.first_token, b.n_tokens, thread);
    if (weighed)
      weigh (a, layer, job, &b, &sum);
    if (audited)
      audit (a, &b, log_read, sum.o, &a->counters[thread].stats);
    for (guint t = 0; t < b.n_tokens; t++)
      memcpy (to + (gsize) t * a->n_heads * a->head_dim, sum.o + t * row, row * sizeof *to);
  }
  a->counters[thread].stats.ns_merge += now (a) - begun;
}
