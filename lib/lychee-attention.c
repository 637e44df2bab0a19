/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include "lychee-attention-private.h"

#include <math.h>
#include <string.h>

/* Keys of a unit where there are few queries: split over keys ("flash decoding"). */
#define SPLIT_KEYS 512
/* Tokens that leave the window are indexed so many at a time: one by one would cost more. */
#define UPKEEP_STEP 16
/* When keys have been turned back, all indexes are over such ones so many tokens later. */
#define RENEW_TOKENS 256
/* Tokens of an item with granularity chunk where no chunk was noted: prompts and answers. */
#define PLAIN_ITEM 12

LycheeAttention *
lychee_attention_new (
    guint n_layers, guint n_heads, guint n_kv_heads, guint head_dim, guint n_threads)
{
  LycheeAttention *a = g_new0 (LycheeAttention, 1);

  a->kernels = lychee_cpu_kernels_get ();
  a->n_layers = n_layers;
  a->n_heads = n_heads;
  a->n_kv_heads = n_kv_heads;
  a->group = n_heads / n_kv_heads;
  a->head_dim = head_dim;
  a->n_threads = n_threads;
  a->counters = g_new0 (Counters, n_threads);
  a->loaded = g_new0 (LycheeLoadedRows, n_threads);
  a->next_unit = g_new0 (gint, n_layers);
  a->next_upkeep = g_new0 (gint, n_layers);
  a->local = g_new0 (gboolean, n_layers);
  a->global = g_new (guint, n_layers);
  lychee_attention_set_layers (a, NULL, 0, 0, 0);
  a->item_ends = g_array_new (FALSE, FALSE, sizeof (guint));
  g_mutex_init (&a->error_lock);
  return a;
}

void
lychee_attention_set_layers (
    LycheeAttention *a, const gboolean *local, guint window, float scale, float cap)
{
  a->scale = scale > 0 ? scale : 1.0f / sqrtf (a->head_dim);
  a->cap = cap;
  a->window = window;
  a->n_global = 0;
  for (guint i = 0; i < a->n_layers; i++) {
    a->local[i] = local && local[i];
    if (!a->local[i])
      a->global[a->n_global++] = i;
  }
}

void
lychee_attention_free (LycheeAttention *a)
{
  for (guint i = 0; i < a->jobs_size; i++) {
    lychee_selection_free (a->jobs[i].selection);
    lychee_places_clear (&a->jobs[i].places);
    g_free (a->jobs[i].distances);
    g_free (a->jobs[i].q);
  }
  for (guint i = 0; i < a->n_threads; i++) {
    g_free (a->loaded[i].keys);
    g_free (a->loaded[i].k);
    g_free (a->loaded[i].queries);
  }
  g_free (a->loaded);
  g_free (a->jobs);
  g_free (a->counters);
  g_free (a->local);
  g_free (a->global);
  g_free (a->next_unit);
  g_free (a->next_upkeep);
  g_free (a->found);
  g_free (a->partial);
  g_free (a->turns);
  g_array_unref (a->item_ends);
  g_clear_error (&a->error);
  g_mutex_clear (&a->error_lock);
  g_free (a);
}

gsize
lychee_attention_get_bytes (LycheeAttention *a)
{
  gsize q = (gsize) BLOCK_TOKENS * a->group * a->head_dim * sizeof (float), bytes = sizeof *a;

  for (guint i = 0; i < a->jobs_size; i++)
    bytes += sizeof (Job) + q + lychee_selection_get_bytes (a->jobs[i].selection) +
             a->jobs[i].n_distances * 2 * sizeof (guint32);
  return bytes + (a->partial_size + a->turns_size) * sizeof (float) +
         a->found_size * sizeof (gint) + a->n_threads * sizeof (Counters);
}

void
lychee_attention_set_options (LycheeAttention *a, const LycheeAttentionOptions *options)
{
  a->options = *options;
  /* Who wants to know what is missed wants to know what it costs, too. */
  a->timing |= options->audit > 0;
}

void
lychee_attention_set_timing (LycheeAttention *a, gboolean timing)
{
  a->timing = timing;
}

void
lychee_attention_add_stats (LycheeAttentionStats *to, const LycheeAttentionStats *more)
{
  to->dense += more->dense;
  to->dense_fallback += more->dense_fallback;
  to->sparse += more->sparse;
  to->local += more->local;
  to->rows_visible += more->rows_visible;
  to->rows_read += more->rows_read;
  to->rows_estimated += more->rows_estimated;
  to->nodes_scored += more->nodes_scored;
  to->ns_upkeep += more->ns_upkeep;
  to->ns_search += more->ns_search;
  to->ns_read += more->ns_read;
  to->ns_rest += more->ns_rest;
  to->ns_merge += more->ns_merge;
  to->audits += more->audits;
  to->missed_mass += more->missed_mass;
  to->error += more->error;
}

void
lychee_attention_get_stats (LycheeAttention *a, LycheeAttentionStats *stats)
{
  memset (stats, 0, sizeof *stats);
  for (guint t = 0; t < a->n_threads; t++)
    lychee_attention_add_stats (stats, &a->counters[t].stats);
}

void
lychee_attention_reset_stats (LycheeAttention *a)
{
  memset (a->counters, 0, a->n_threads * sizeof *a->counters);
}

void
lychee_attention_set_func (LycheeAttention *a, LycheeAttentionFunc func, gpointer user_data)
{
  a->func = func;
  a->func_data = user_data;
}

void
lychee_attention_set_weights (LycheeAttention *a, const LycheeAttentionWeights *weights)
{
  a->weights = weights ? *weights : (LycheeAttentionWeights){ 0 };
}

/* First row that is in an index or will be. */
static guint
index_begin (LycheeAttention *a)
{
  return a->skip > 0 ? a->head + a->skip : lychee_cache_get_indexing (a->cache)->sinks;
}

/* Indexes over keys that have been turned back begin anew, so many at a time that all have before
 * much is read without them. */
static void
renew_indexes (LycheeAttention *a)
{
  guint n = (a->n_tokens * a->n_global + RENEW_TOKENS - 1) / RENEW_TOKENS;

  while (n > 0 && lychee_cache_renew_index (a->cache))
    n--;
}

/* Which tokens go into the indexes in this pass: those that have left the window by now. */
static void
plan_upkeep (LycheeAttention *a)
{
  const LycheeCacheIndexing *indexing = lychee_cache_get_indexing (a->cache);
  guint end = G_MAXUINT, target;

  g_array_set_size (a->item_ends, 0);
  if (!indexing || a->n_global == 0 || a->first <= indexing->sinks + indexing->window)
    return;
  if (a->packed)
    renew_indexes (a);
  target = a->first - indexing->window;
  /* A pass that was cancelled leaves the last layers behind, and items end where theirs do. */
  for (guint i = 0; i < a->n_global; i++)
    if (!lychee_cache_is_index_stale (a->cache, a->global[i]))
      end = MIN (end, lychee_index_get_end (lychee_cache_get_index (a->cache, a->global[i], 0)));
  end = MAX (end, index_begin (a));
  if (target < end + UPKEEP_STEP)
    return;
  if (indexing->granularity == LYCHEE_GRANULARITY_TOKEN) {
    g_array_append_val (a->item_ends, target);
    return;
  }
  while (end < target) {
    end = lychee_cache_get_item_end (a->cache, end, PLAIN_ITEM);
    if (end > target)
      break;
    g_array_append_val (a->item_ends, end);
  }
}

static void
grow_jobs (LycheeAttention *a, guint n)
{
  if (n <= a->jobs_size)
    return;
  a->jobs = g_renew (Job, a->jobs, n);
  for (guint i = a->jobs_size; i < n; i++) {
    a->jobs[i] = (Job){ .selection = lychee_selection_new () };
    a->jobs[i].q = g_new (float, (gsize) BLOCK_TOKENS * a->group * a->head_dim);
  }
  a->jobs_size = n;
}

static void
plan_dense (LycheeAttention *a, Plan *plan, guint n_keys)
{
  /* Many blocks are units enough; one block has to be split over its keys to occupy the threads. */
  plan->split_keys = plan->func || a->n_blocks > 1 ? n_keys : SPLIT_KEYS;
  plan->n_splits = (n_keys + plan->split_keys - 1) / plan->split_keys;
}

/* With packed positions all of it cannot be read where it is. */
static gboolean
is_out_of_range (LycheeAttention *a)
{
  return a->packed && a->place + a->n_tokens > a->range;
}

static void
plan_global (LycheeAttention *a)
{
  guint n_keys = a->place + a->n_tokens, n_queries = a->n_tokens * a->n_global * a->n_kv_heads;
  LycheeAttentionStats *stats = &a->counters[0].stats;
  Plan *plan = &a->plans[0];

  plan->func = a->func && a->n_tokens == 1;
  plan->sparse = !plan->func && (a->options.sparse || is_out_of_range (a)) &&
                 lychee_cache_get_indexing (a->cache) && n_keys > a->options.budget;
  if (!plan->sparse) {
    plan_dense (a, plan, n_keys);
    stats->dense += n_queries;
    if (a->options.sparse)
      stats->dense_fallback += n_queries;
    return;
  }
  /* sinks and recent tokens; what the index finds; the rest. */
  plan->n_splits = 1 + (a->options.budget + GATHER_KEYS - 1) / GATHER_KEYS + 1;
  if (a->options.audit > 0 && a->n_tokens == 1 && a->n_global > 0 &&
      a->n_sparse++ % a->options.audit == 0)
    a->audit_layer = a->global[a->n_sparse / a->options.audit % a->n_global];
  stats->sparse += n_queries;
  stats->rows_visible += (guint64) n_queries * n_keys;
}

static void
plan_local (LycheeAttention *a)
{
  a->plans[1] = (Plan){ FALSE };
  if (a->n_global == a->n_layers)
    return;
  plan_dense (a, &a->plans[1], a->place + a->n_tokens - window_begin (a, a->place));
  a->counters[0].stats.local += a->n_tokens * (a->n_layers - a->n_global) * a->n_kv_heads;
}

void
lychee_attention_plan (LycheeAttention *a, LycheeCache *cache, guint n_tokens)
{
  a->cache = cache;
  a->first = lychee_cache_get_length (cache);
  lychee_cache_get_hole (cache, &a->head, &a->skip);
  a->place = a->first - a->skip;
  a->local_begin = lychee_cache_get_local_begin (cache);
  a->n_tokens = n_tokens;
  a->n_blocks = (n_tokens + BLOCK_TOKENS - 1) / BLOCK_TOKENS;
  a->n_jobs = a->n_kv_heads * a->n_blocks;
  a->placed = FALSE;
  plan_upkeep (a);
  a->audit_layer = a->n_layers;
  plan_global (a);
  plan_local (a);
  memset (a->next_upkeep, 0, a->n_layers * sizeof *a->next_upkeep);
}

void
lychee_attention_prepare (LycheeAttention *a, LycheeCache *cache, guint n_tokens)
{
  gsize need;

  lychee_attention_plan (a, cache, n_tokens);
  if (a->packed)
    lychee_attention_plan_turns (a);
  a->unit_queries = MIN (n_tokens, BLOCK_TOKENS) * a->group;
  need = a->n_jobs * MAX (a->plans[0].n_splits, a->plans[1].n_splits) * unit_size (a);
  if (need > a->partial_size) {
    g_free (a->partial);
    a->partial_size = need + need / 4;
    a->partial = g_new (float, a->partial_size);
  }
  grow_jobs (a, a->n_jobs);
  need = (gsize) a->n_layers * a->n_jobs;
  if (need > a->found_size) {
    a->found = g_renew (gint, a->found, need);
    a->found_size = need;
  }
  memset (a->found, 0, need * sizeof *a->found);
  memset (a->next_unit, 0, a->n_layers * sizeof *a->next_unit);
}

gboolean
lychee_attention_finish (LycheeAttention *a, GError **error)
{
  a->cache = NULL;
  if (!a->error)
    return TRUE;
  g_propagate_error (error, g_steal_pointer (&a->error));
  return FALSE;
}

static void
upkeep (LycheeAttention *a, guint layer, guint head)
{
  LycheeIndex *index = lychee_cache_get_index (a->cache, layer, head);
  g_autoptr (GError) error = NULL;
  guint begin = lychee_index_get_end (index);
  LycheeIndexPlaces places = a->places;
  LycheeRows rows;

  lychee_cache_get_rows (a->cache, layer, head, &rows);
  begin = MAX (begin, index_begin (a));
  for (guint i = 0; i < a->item_ends->len; i++) {
    guint end = g_array_index (a->item_ends, guint, i);

    if (end <= begin) /* done by a pass that was cancelled later */
      continue;
    if (a->placed) {
      gsize at = ((gsize) layer * a->n_kv_heads + head) * (end - begin);

      places.place += at;
      places.sums += at * (a->head_dim + 2);
    }
    if (!lychee_index_append_placed (
            index, &rows, begin, end - begin, a->placed ? &places : NULL, &error)) {
      g_mutex_lock (&a->error_lock);
      if (!a->error)
        a->error = g_steal_pointer (&error);
      g_mutex_unlock (&a->error_lock);
      return;
    }
    begin = end;
  }
}

guint
lychee_attention_upkeep (LycheeAttention *a, guint layer)
{
  guint head, n = 0;

  if (a->item_ends->len == 0 || a->local[layer] || lychee_cache_is_index_stale (a->cache, layer))
    return 0;
  for (; (head = g_atomic_int_add (&a->next_upkeep[layer], 1)) < a->n_kv_heads; n++)
    upkeep (a, layer, head);
  return n;
}

gboolean
lychee_attention_is_sparse (LycheeAttention *a)
{
  return a->plans[0].sparse;
}

guint
lychee_attention_get_n_upkeep (LycheeAttention *a, guint *first)
{
  guint last = a->item_ends->len, end = G_MAXUINT;

  if (last == 0)
    return 0;
  for (guint i = 0; i < a->n_global; i++)
    if (!lychee_cache_is_index_stale (a->cache, a->global[i]))
      end = MIN (end, lychee_index_get_end (lychee_cache_get_index (a->cache, a->global[i], 0)));
  *first = MAX (end, index_begin (a));
  return g_array_index (a->item_ends, guint, last - 1) - *first;
}

void
lychee_attention_set_places (LycheeAttention *a, const LycheeIndexPlaces *places)
{
  a->places = *places;
  a->placed = TRUE;
}

guint
lychee_attention_get_audit_layer (LycheeAttention *a)
{
  return a->audit_layer;
}

void
lychee_attention_count (LycheeAttention *a, const LycheeAttentionStats *stats)
{
  lychee_attention_add_stats (&a->counters[0].stats, stats);
}

void
lychee_attention_store (
    LycheeAttention *a, guint layer, const float *k, const float *v, guint thread, guint n_threads)
{
  LycheeRows rows;
  guint64 begun;
  guint head;

  for (guint i = thread; i < a->n_tokens * a->n_kv_heads; i += n_threads) {
    const LycheeCpuKernels *kernels;
    const float *key;
    guint16 *to;

    head = i % a->n_kv_heads;
    to = lychee_cache_get_writable (a->cache, layer, head, a->first + i / a->n_kv_heads);
    lychee_cache_get_rows (a->cache, layer, head, &rows);
    kernels = lychee_cpu_kernels_for (a->kernels, rows.form);
    key = k + (gsize) i * a->head_dim;
    if (a->packed && !a->local[layer])
      key = lychee_attention_turn_back (a, key, i / a->n_kv_heads, thread);
    kernels->write_row (key, a->head_dim, to);
    kernels->write_row (v + (gsize) i * a->head_dim, a->head_dim, to + rows.value_offset);
  }
  /* Older tokens go into the index: nothing of what was written above is touched. */
  if (a->item_ends->len == 0)
    return;
  begun = now (a);
  lychee_attention_upkeep (a, layer);
  a->counters[thread].stats.ns_upkeep += now (a) - begun;
}
