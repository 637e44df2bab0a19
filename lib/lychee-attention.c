/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include "lychee-attention.h"

#include "lychee-cpu-kernels.h"

#include <math.h>
#include <string.h>
#include <time.h>

/* Tokens whose queries are answered together, sharing each read of a key. */
#define BLOCK_TOKENS 16
/* Keys of a unit where there are few queries: split over keys ("flash decoding"). */
#define SPLIT_KEYS 512
/* Keys of a unit of sparse attention. */
#define GATHER_KEYS 256
/* Tokens that leave the window are indexed so many at a time: one by one would cost more. */
#define UPKEEP_STEP 16
/* Tokens of an item with granularity chunk where no chunk was noted: prompts and answers. */
#define PLAIN_ITEM 12
#define CACHE_LINE 64

/* A thread's share of the counters, on cache lines of its own. */
typedef struct {
  LycheeAttentionStats stats;
  guint8 padding[2 * CACHE_LINE - sizeof (LycheeAttentionStats) % CACHE_LINE];
} Counters;

/* The tokens of a block and a KV head: one selection. */
typedef struct {
  LycheeSelection *selection;
  float *q;     /* [queries][head_dim] */
  guint sinks;  /* tokens at the beginning that are always read */
  guint recent; /* place of the run at the end that is read without the index */
} Job;

/* How the layers of one kind are answered in a pass. */
typedef struct {
  gboolean func;   /* by the function: a unit is a whole job */
  gboolean sparse; /* through the index */
  guint split_keys;
  guint n_splits; /* units of a job */
} Plan;

struct _LycheeAttention {
  const LycheeCpuKernels *kernels;
  guint n_layers;
  guint n_heads;
  guint n_kv_heads;
  guint group; /* query heads that share a KV head */
  guint head_dim;
  float scale;
  gboolean *local; /* [n_layers] */
  guint window;    /* keys that a local layer's token sees, its own included */
  guint *global;   /* [n_global] the layers that are not local, ascending */
  guint n_global;
  LycheeAttentionOptions options;
  guint n_threads;
  Counters *counters; /* [n_threads] */
  gboolean timing;
  LycheeAttentionFunc func;
  gpointer func_data;
  LycheeAttentionWeights weights; /* n_rows is 0: not wanted */

  LycheeCache *cache; /* of the pass under way, not owned */
  guint first;        /* row of the pass's first token */
  /* A token's place is its row less the rows before it that were forgotten: @skip of them, behind
   * the @head first ones. */
  guint head;
  guint skip;
  guint place; /* of the pass's first token */
  guint n_tokens;
  guint n_blocks; /* of tokens */
  guint n_jobs;   /* KV heads x blocks */
  Plan plans[2];  /* of global and of local layers */
  guint unit_queries;
  guint audit_layer; /* of this pass, n_layers: none */
  guint64 n_sparse;  /* passes of one token */

  gint *next_unit;   /* [n_layers], atomic */
  gint *next_upkeep; /* [n_layers], atomic */
  gint *found;       /* [n_layers][n_jobs], atomic: the job's search is done */
  gsize found_size;
  Job *jobs;
  guint jobs_size;
  float *partial; /* [job][split] { m [queries], l [queries], o [queries][head_dim] } */
  gsize partial_size;

  GArray *item_ends; /* of guint: items to be indexed in this pass end here */
  gboolean placed;   /* a device has found where they go: */
  LycheeIndexPlaces places;
  GMutex error_lock;
  GError *error;
};

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
  a->next_unit = g_new0 (gint, n_layers);
  a->next_upkeep = g_new0 (gint, n_layers);
  a->local = g_new0 (gboolean, n_layers);
  a->global = g_new (guint, n_layers);
  lychee_attention_set_layers (a, NULL, 0, 0);
  a->item_ends = g_array_new (FALSE, FALSE, sizeof (guint));
  g_mutex_init (&a->error_lock);
  return a;
}

void
lychee_attention_set_layers (LycheeAttention *a, const gboolean *local, guint window, float scale)
{
  a->scale = scale > 0 ? scale : 1.0f / sqrtf (a->head_dim);
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
    g_free (a->jobs[i].q);
  }
  g_free (a->jobs);
  g_free (a->counters);
  g_free (a->local);
  g_free (a->global);
  g_free (a->next_unit);
  g_free (a->next_upkeep);
  g_free (a->found);
  g_free (a->partial);
  g_array_unref (a->item_ends);
  g_clear_error (&a->error);
  g_mutex_clear (&a->error_lock);
  g_free (a);
}

void
lychee_attention_set_options (LycheeAttention *a, const LycheeAttentionOptions *options)
{
  a->options = *options;
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

/* Whether the weights of the layer's tokens are wanted. */
static gboolean
are_weights_wanted (LycheeAttention *a, guint layer)
{
  return a->weights.n_rows > 0 && layer >= a->weights.layer_begin && layer < a->weights.layer_end &&
         !a->local[layer] && !a->plans[0].func;
}

static guint64
now (LycheeAttention *a)
{
  struct timespec t;

  if (!a->timing)
    return 0;
  clock_gettime (CLOCK_MONOTONIC, &t);
  return (guint64) t.tv_sec * 1000000000 + t.tv_nsec;
}

static gsize
unit_size (LycheeAttention *a)
{
  return (gsize) a->unit_queries * (a->head_dim + 2);
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

/* First row that is in an index or will be. */
static guint
index_begin (LycheeAttention *a)
{
  return a->skip > 0 ? a->head + a->skip : lychee_cache_get_indexing (a->cache)->sinks;
}

/* Which tokens go into the indexes in this pass: those that have left the window by now. */
static void
plan_upkeep (LycheeAttention *a)
{
  const LycheeCacheIndexing *indexing = lychee_cache_get_indexing (a->cache);
  guint end, target;

  g_array_set_size (a->item_ends, 0);
  if (!indexing || a->n_global == 0 || a->first <= indexing->sinks + indexing->window)
    return;
  target = a->first - indexing->window;
  /* A pass that was cancelled leaves the last layers behind, and items end where theirs do. */
  end = lychee_index_get_end (lychee_cache_get_index (a->cache, a->global[a->n_global - 1], 0));
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
    a->jobs[i].selection = lychee_selection_new ();
    a->jobs[i].q = g_new (float, (gsize) BLOCK_TOKENS * a->group * a->head_dim);
  }
  a->jobs_size = n;
}

/* First key that a local layer's token at @position sees. */
static guint
window_begin (LycheeAttention *a, guint position)
{
  return position + 1 - MIN (position + 1, a->window);
}

static void
plan_dense (LycheeAttention *a, Plan *plan, guint n_keys)
{
  /* Many blocks are units enough; one block has to be split over its keys to occupy the threads. */
  plan->split_keys = plan->func || a->n_blocks > 1 ? n_keys : SPLIT_KEYS;
  plan->n_splits = (n_keys + plan->split_keys - 1) / plan->split_keys;
}

static void
plan_global (LycheeAttention *a)
{
  guint n_keys = a->place + a->n_tokens, n_queries = a->n_tokens * a->n_global * a->n_kv_heads;
  LycheeAttentionStats *stats = &a->counters[0].stats;
  Plan *plan = &a->plans[0];

  plan->func = a->func && a->n_tokens == 1;
  plan->sparse = !plan->func && a->options.sparse && lychee_cache_get_indexing (a->cache) &&
                 n_keys > a->options.budget;
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

  if (a->item_ends->len == 0 || a->local[layer])
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
  guint last = a->item_ends->len, end;

  if (last == 0)
    return 0;
  end = lychee_index_get_end (lychee_cache_get_index (a->cache, a->global[0], 0));
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
    guint16 *to;

    head = i % a->n_kv_heads;
    to = lychee_cache_get_writable (a->cache, layer, head, a->first + i / a->n_kv_heads);
    lychee_cache_get_rows (a->cache, layer, head, &rows);
    a->kernels->f32_to_f16 (k + (gsize) i * a->head_dim, to, a->head_dim);
    a->kernels->f32_to_f16 (v + (gsize) i * a->head_dim, to + rows.value_offset, a->head_dim);
  }
  /* Older tokens go into the index: nothing of what was written above is touched. */
  if (a->item_ends->len == 0)
    return;
  begun = now (a);
  lychee_attention_upkeep (a, layer);
  a->counters[thread].stats.ns_upkeep += now (a) - begun;
}

/* The queries of a block's tokens for one KV head, [token][group][head_dim]; in place where there
 * is one token. */
static const float *
gather_queries (
    LycheeAttention *a, const float *q, guint head, guint first_token, guint n_tokens, float *to)
{
  gsize row = (gsize) a->group * a->head_dim;

  q += ((gsize) first_token * a->n_heads + (gsize) head * a->group) * a->head_dim;
  if (n_tokens == 1)
    return q;
  for (guint t = 0; t < n_tokens; t++)
    memcpy (to + t * row, q + (gsize) t * a->n_heads * a->head_dim, row * sizeof *to);
  return to;
}

/* Keys begin .. end - 1 (places, as all here), each by the queries whose token stands at or after
 * it. The queries are those of @n_tokens tokens from @first_position on. */
static void
attend_run (LycheeAttention *a, const LycheeQueries *queries, const LycheeRows *rows, guint begin,
    guint end, guint first_position, guint n_tokens, LycheeSoftmax *state)
{
  guint32 visible[BLOCK_TOKENS * LYCHEE_ATTENTION_MAX_GROUP];

  end = MIN (end, first_position + n_tokens);
  for (guint at = begin; at < end;) {
    guint row = at < a->head ? at : at + a->skip;
    guint in_page = row & (LYCHEE_CACHE_PAGE_TOKENS - 1);
    guint n =
        MIN (LYCHEE_CACHE_PAGE_TOKENS - in_page, (at < a->head ? MIN (a->head, end) : end) - at);
    const guint16 *k = rows->pages[row >> rows->page_shift] + (gsize) in_page * a->head_dim;
    const guint32 *mask = NULL;

    if (at + n > first_position + 1) {
      mask = visible;
      for (guint t = 0; t < n_tokens; t++) {
        guint position = first_position + t;
        guint sees = position < at ? 0 : MIN (position + 1 - at, n);

        for (guint g = 0; g < a->group; g++)
          visible[t * a->group + g] = sees;
      }
    }
    a->kernels->attend (queries, k, k + rows->value_offset, n, mask, state);
    at += n;
  }
}

/* The same for the keys that a local layer's tokens see. */
static void
attend_window (LycheeAttention *a, const LycheeQueries *queries, const LycheeRows *rows,
    guint begin, guint end, guint first_position, guint n_tokens, LycheeSoftmax *state)
{
  /* From here on all of the tokens see the keys, as far as they are not behind themselves. */
  guint common = CLAMP (window_begin (a, first_position + n_tokens - 1), begin, end);

  for (guint t = 0; begin < common && t < n_tokens; t++) {
    gsize at = (gsize) t * a->group;
    LycheeSoftmax own = { state->m + at, state->l + at, state->o + at * a->head_dim };
    LycheeQueries of_token = *queries;

    of_token.n_queries = a->group;
    of_token.q += at * a->head_dim;
    attend_run (a, &of_token, rows, MAX (begin, window_begin (a, first_position + t)), common,
        first_position + t, 1, &own);
  }
  attend_run (a, queries, rows, common, end, first_position, n_tokens, state);
}

static void
attend_gathered (LycheeAttention *a, const LycheeQueries *queries, const LycheeRows *rows,
    const guint32 *tokens, guint n, LycheeSoftmax *state)
{
  const guint16 *keys[GATHER_KEYS];
  guint mask = (1u << rows->page_shift) - 1;

  for (guint i = 0; i < n; i++)
    keys[i] = rows->pages[tokens[i] >> rows->page_shift] + (gsize) (tokens[i] & mask) * a->head_dim;
  a->kernels->attend_gather (queries, keys, rows->value_offset, n, state);
}

typedef struct {
  guint head, first_token, n_tokens, first_position;
  LycheeQueries queries;
  LycheeRows rows;
} Block;

static void
get_block (LycheeAttention *a, guint layer, guint job, Block *b)
{
  b->head = job / a->n_blocks;
  b->first_token = job % a->n_blocks * BLOCK_TOKENS;
  b->n_tokens = MIN (BLOCK_TOKENS, a->n_tokens - b->first_token);
  /* What is before it is visible to all of the block. */
  b->first_position = a->place + b->first_token;
  b->queries = (LycheeQueries){ b->n_tokens * a->group, a->head_dim, a->scale, NULL };
  lychee_cache_get_rows (a->cache, layer, b->head, &b->rows);
}

/* The scoring half of a sparse job. */
static void
search (LycheeAttention *a, guint layer, const float *q, guint job, LycheeAttentionStats *stats)
{
  const LycheeCacheIndexing *indexing = lychee_cache_get_indexing (a->cache);
  LycheeIndex *index;
  LycheeIndexQuery query;
  Job *j = &a->jobs[job];
  guint sinks = a->skip > 0 ? a->head : MIN (indexing->sinks, a->first), certain;
  Block b;

  get_block (a, layer, job, &b);
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
  lychee_index_search (index, &b.rows, &query, j->selection);
  stats->nodes_scored += j->selection->nodes_scored;
  stats->rows_estimated += (guint64) j->selection->rows_estimated * b.n_tokens;
  stats->rows_read += (guint64) (certain + b.n_tokens + j->selection->n_rows) * b.n_tokens;
}

static void
attend_sparse (LycheeAttention *a, guint layer, const float *q, guint job, guint split,
    LycheeAttentionStats *stats)
{
  Job *j = &a->jobs[job];
  guint n_splits = get_plan (a, layer)->n_splits;
  LycheeSelection *found = j->selection;
  guint64 begun = now (a);
  LycheeSoftmax state;
  Block b;

  get_block (a, layer, job, &b);
  b.queries.q = gather_queries (a, q, b.head, b.first_token, b.n_tokens, j->q);
  state = unit_state (a, job * n_splits + split, b.queries.n_queries);
  lychee_softmax_init (&state, b.queries.n_queries, a->head_dim);
  if (split == 0) {
    attend_run (a, &b.queries, &b.rows, 0, j->sinks, b.first_position, b.n_tokens, &state);
    attend_run (a, &b.queries, &b.rows, j->recent, a->place + a->n_tokens, b.first_position,
        b.n_tokens, &state);
    stats->ns_read += now (a) - begun;
  } else if (split < n_splits - 1) {
    guint from = (split - 1) * GATHER_KEYS;

    if (from < found->n_rows)
      attend_gathered (a, &b.queries, &b.rows, found->rows + from,
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
    float *scratch, LycheeAttentionStats *stats)
{
  const Plan *plan = get_plan (a, layer);
  guint begin = split * plan->split_keys;
  guint64 begun = now (a);
  LycheeSoftmax state;
  Block b;

  get_block (a, layer, job, &b);
  b.queries.q = gather_queries (a, q, b.head, b.first_token, b.n_tokens, scratch);
  if (split == 0 && are_weights_wanted (a, layer))
    memcpy (a->jobs[job].q, b.queries.q,
        (gsize) b.queries.n_queries * a->head_dim * sizeof *b.queries.q);
  state = unit_state (a, job * plan->n_splits + split, b.queries.n_queries);
  lychee_softmax_init (&state, b.queries.n_queries, a->head_dim);
  if (a->local[layer]) {
    begin += window_begin (a, b.first_position);
    attend_window (a, &b.queries, &b.rows, begin, begin + plan->split_keys, b.first_position,
        b.n_tokens, &state);
  } else {
    attend_run (a, &b.queries, &b.rows, begin, begin + plan->split_keys, b.first_position,
        b.n_tokens, &state);
  }
  stats->ns_read += now (a) - begun;
}

static void
attend_func (LycheeAttention *a, guint layer, const float *q, guint job)
{
  LycheeSoftmax state;
  Block b;

  get_block (a, layer, job, &b);
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

      search (a, layer, q, unit, stats);
      stats->ns_search += now (a) - begun;
      g_atomic_int_set (&found[unit], TRUE);
      continue;
    }
    job = (unit - n_searches) / plan->n_splits;
    split = (unit - n_searches) % plan->n_splits;
    if (plan->func) {
      attend_func (a, layer, q, job);
    } else if (plan->sparse) {
      wait_for (&found[job]);
      attend_sparse (a, layer, q, job, split, stats);
    } else {
      attend_dense (a, layer, q, job, split, scratch, stats);
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
  attend_run (a, &b->queries, &b->rows, 0, a->place + 1, b->first_position, 1, &all);
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
  guint begin = sparse ? MAX (w->first, j->recent + a->skip) : w->first;
  float *sum =
      w->sum +
      ((gsize) (layer - w->layer_begin) * a->n_heads + (gsize) b->head * a->group) * w->n_bins;

  lychee_attention_weigh (w, &b->queries, a->group, &b->rows, all, begin,
      sparse ? j->selection->rows : NULL, sparse ? j->selection->n_rows : 0, sum);
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

    get_block (a, layer, job, &b);
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
    if (weighed)
      weigh (a, layer, job, &b, &sum);
    if (audited)
      audit (a, &b, log_read, sum.o, &a->counters[thread].stats);
    for (guint t = 0; t < b.n_tokens; t++)
      memcpy (to + (gsize) t * a->n_heads * a->head_dim, sum.o + t * row, row * sizeof *to);
  }
  a->counters[thread].stats.ns_merge += now (a) - begun;
}
