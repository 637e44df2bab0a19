/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A CUDA device: passes are computed by the module; cache and index are the library's own, and the
 * device has a copy of them (lychee-cuda-mirror.h). */

#include "lychee-backend-private.h"
#include "lychee-cuda-batch.h"
#include "lychee-cuda-mirror.h"
#include "lychee-cuda-weights.h"
#include "lychee-executor.h"
#include "lychee-forward.h"
#include "lychee-index-chunks-private.h"
#include "lychee-sampler-private.h"

#include <string.h>

/* More upkeep than so many rows is done before a pass, for then it is not known how many nodes
 * there will be; less of it while the device computes. */
#define LITTLE_UPKEEP 256

/* A token is decoded densely up to so many: a search takes as long whatever the length, and reading
 * this many keys does not take longer (docs/cuda.md counts it). LYCHEE_CUDA_SPARSE_FROM sets
 * another number. */
#define SPARSE_FROM 16384

typedef struct {
  LycheeBackend parent;
  LycheeCuda *cuda;
  LycheeModel *model;
  LycheeCudaModel *weights; /* of the model, */
  LycheeCudaBatch *batch;   /* and where all that decode it meet: not owned */
  guint n_threads;          /* for upkeep */
  guint sparse_from;        /* tokens */
} CudaBackend;

/* Upkeep of one pass, by several threads, layer by layer. */
typedef struct {
  LycheeAttention *attention;
  guint n_layers;
  GMutex lock;
  GCond cond;
  guint *done;     /* [n_layers] KV heads, under lock */
  guint n_running; /* threads, under lock */
} Upkeep;

typedef struct {
  LycheeWorker parent;
  LycheeCudaWorker *worker;
  LycheeAttention *attention;
  LycheeAttentionOptions options;
  Upkeep upkeep;
  GThreadPool *pool;
  GPtrArray *pages;
  LycheeCudaHead *heads; /* [layers][KV heads] */
  LycheeCudaSequence sequence;
  LycheeCudaMember member;
  double *frequency[2];     /* [n_rot / 2 + 1] */
  gboolean knows_frequency; /* for a context of: */
  guint n_context;
  LycheePacked *packed;           /* NULL until it is needed */
  LycheeCache *cache;             /* of the pass under way, not owned */
  GError *error;                  /* of its callback */
  LycheeAttentionWeights weights; /* no rows: not wanted */
  gboolean paused;
  float *pending; /* where what the device has added up goes, or NULL: nothing has */
} CudaWorker;

static CudaBackend *
get_backend (CudaWorker *worker)
{
  return (CudaBackend *) worker->parent.backend;
}

static void
cuda_free (LycheeBackend *backend)
{
  CudaBackend *b = (CudaBackend *) backend;

  g_object_unref (b->model);
  lychee_cuda_unref (b->cuda);
  g_free (b);
}

/* Upkeep */

static void
upkeep_thread (gpointer data, gpointer user_data)
{
  Upkeep *upkeep = user_data;

  for (guint layer = 0; layer < upkeep->n_layers; layer++) {
    guint n = lychee_attention_upkeep (upkeep->attention, layer);

    g_mutex_lock (&upkeep->lock);
    upkeep->done[layer] += n;
    g_cond_broadcast (&upkeep->cond);
    g_mutex_unlock (&upkeep->lock);
  }
  g_mutex_lock (&upkeep->lock);
  upkeep->n_running--;
  g_cond_broadcast (&upkeep->cond);
  g_mutex_unlock (&upkeep->lock);
}

/* @layer's indexes, or with n_layers all of them, are up to date when this returns. */
static void
wait_for_upkeep (CudaWorker *w, guint layer)
{
  guint n_heads = lychee_model_get_n_kv_heads (get_backend (w)->model);
  Upkeep *upkeep = &w->upkeep;

  g_mutex_lock (&upkeep->lock);
  while (layer < upkeep->n_layers ? upkeep->done[layer] < n_heads : upkeep->n_running > 0)
    g_cond_wait (&upkeep->cond, &upkeep->lock);
  g_mutex_unlock (&upkeep->lock);
}

static void
begin_upkeep (CudaWorker *w)
{
  guint n = get_backend (w)->n_threads;
  Upkeep *upkeep = &w->upkeep;

  /* Layers without an index have nothing to be waited for. */
  for (guint i = 0; i < upkeep->n_layers; i++)
    upkeep->done[i] = 0;
  upkeep->n_running = n;
  for (guint i = 0; i < n; i++)
    g_thread_pool_push (w->pool, upkeep, NULL);
}

/* Workers */

static void
cuda_free_worker (LycheeWorker *worker)
{
  CudaWorker *w = (CudaWorker *) worker;

  lychee_cuda_batch_leave (get_backend (w)->batch, &w->member);
  if (w->worker)
    get_backend (w)->cuda->api->worker_free (w->worker);
  g_thread_pool_free (w->pool, FALSE, TRUE);
  lychee_attention_free (w->attention);
  g_ptr_array_unref (w->pages);
  g_free (w->heads);
  g_free (w->frequency[0]);
  g_free (w->frequency[1]);
  g_clear_pointer (&w->packed, lychee_packed_free);
  g_free (w->upkeep.done);
  g_mutex_clear (&w->upkeep.lock);
  g_cond_clear (&w->upkeep.cond);
  g_free (w);
}

static LycheeWorker *
cuda_new_worker (LycheeBackend *backend, GError **error)
{
  CudaBackend *b = (CudaBackend *) backend;
  const LycheeHparams *hp = lychee_model_get_hparams (b->model);
  LycheeCudaError local = { 0 };
  LycheeCudaWorker *on_device;
  CudaWorker *w;

  if (b->cuda->api->worker_new (b->weights,
          (const unsigned long long *) lychee_sampler_get_weights (), &on_device, &local) != 0) {
    lychee_cuda_set_error (error, &local, "Nothing can be computed on the CUDA device");
    return NULL;
  }
  w = g_new0 (CudaWorker, 1);
  w->worker = on_device;
  w->attention = lychee_attention_new (hp->n_layers, hp->n_heads, hp->n_kv_heads, hp->head_dim, 1);
  lychee_attention_set_layers (
      w->attention, lychee_model_get_local_layers (b->model), hp->window, hp->attention_scale, 0);
  w->upkeep.attention = w->attention;
  w->upkeep.n_layers = hp->n_layers;
  w->upkeep.done = g_new0 (guint, hp->n_layers);
  g_mutex_init (&w->upkeep.lock);
  g_cond_init (&w->upkeep.cond);
  w->pool = g_thread_pool_new (upkeep_thread, &w->upkeep, b->n_threads, FALSE, NULL);
  w->pages = g_ptr_array_new ();
  w->heads = g_new0 (LycheeCudaHead, (gsize) hp->n_layers * hp->n_kv_heads);
  for (guint i = 0; i < 2; i++)
    w->frequency[i] = g_new (double, hp->n_rot / 2 + 1);
  return &w->parent;
}

static void
cuda_set_options (LycheeWorker *worker, const LycheeAttentionOptions *options)
{
  lychee_attention_set_options (((CudaWorker *) worker)->attention, options);
  ((CudaWorker *) worker)->options = *options;
}

static void
cuda_take_stats (LycheeWorker *worker, LycheeAttentionStats *stats)
{
  CudaWorker *w = (CudaWorker *) worker;

  lychee_attention_get_stats (w->attention, stats);
  lychee_attention_reset_stats (w->attention);
}

/* Called by the module before a layer's search. */
static int
prepare_layer (void *data, int layer, LycheeCudaHead *heads)
{
  CudaWorker *w = data;

  if (!lychee_cache_is_index_stale (w->cache, layer)) /* else there is none */
    wait_for_upkeep (w, layer);
  return !lychee_cuda_mirror_index (
      get_backend (w)->cuda, w->worker, w->cache, layer, heads, &w->error);
}

static guint
count_nodes (const LycheeBranch *branch)
{
  guint n = 0;

  if (!branch || branch->level == 1)
    return branch ? branch->n : 0;
  for (guint i = 0; i < branch->n; i++)
    n += count_nodes (branch->child[i]);
  return n;
}

/* What the largest index is like: nodes, and rows of a node at most; with chunks units, and
 * clusters at most. */
static void
measure_indexes (CudaWorker *w, LycheeCudaPass *pass)
{
  const LycheeHparams *hp = lychee_model_get_hparams (get_backend (w)->model);

  for (guint layer = 0; layer < hp->n_layers; layer++)
    for (guint head = 0; head < hp->n_kv_heads; head++) {
      const LycheeIndex *index = lychee_cache_get_index (w->cache, layer, head);
      guint rows;

      if (!index)
        continue;
      pass->chunks = index->chunks != NULL;
      if (pass->chunks) {
        guint items = 0;

        for (guint i = 0; i < index->chunks->n; i++)
          items += index->chunks->block[i]->n_items;
        pass->max_nodes = MAX (pass->max_nodes, (int) index->chunks->n);
        pass->max_clusters = MAX (pass->max_clusters, (int) items);
        continue;
      }
      rows = index->params.coarse_capacity + LYCHEE_APPEND_BATCH;
      pass->max_nodes = MAX (pass->max_nodes, (int) count_nodes (index->root));
      pass->max_node_rows = MAX (pass->max_node_rows, (int) rows);
    }
}

static gboolean
has_chunks (CudaWorker *w)
{
  const LycheeCacheIndexing *indexing = lychee_cache_get_indexing (w->cache);

  return indexing && indexing->granularity == LYCHEE_GRANULARITY_CHUNK;
}

/* Has the device find where the rows that are due go, if it has all indexes as they are. */
static gboolean
place_rows (CudaWorker *w, guint first, guint n, GError **error)
{
  CudaBackend *b = get_backend (w);
  const LycheeHparams *hp = lychee_model_get_hparams (b->model);
  LycheeCudaUpkeep upkeep = {
    .type = lychee_cuda_mirror_get_type (w->cache),
    .first = first,
    .n_rows = n,
    .pages = w->sequence.pages,
    .n_pages = w->sequence.n_pages,
    .heads = w->heads,
  };
  LycheeCudaError local = { 0 };
  LycheeCudaPlaces places;

  G_STATIC_ASSERT (sizeof (LycheeIndexPlace) == sizeof (LycheeCudaPlace));
  if (n > LYCHEE_APPEND_BATCH || has_chunks (w) ||
      !lychee_cuda_mirror_find_indexes (b->cuda, w->cache, w->heads))
    return TRUE;
  for (guint i = 0; i < hp->n_layers * hp->n_kv_heads; i++) /* else a pass was given up half-way */
    if (w->heads[i].n_nodes > 0 && (guint) w->heads[i].end != first)
      return TRUE;
  if (b->cuda->api->worker_place (w->worker, &upkeep, &places, &local) != 0) {
    lychee_cuda_set_error (error, &local, "The index cannot be kept up");
    return FALSE;
  }
  lychee_attention_set_places (
      w->attention, &(LycheeIndexPlaces){ (const LycheeIndexPlace *) places.places, places.sums });
  return TRUE;
}

/* Settles how the pass gets at the indexes. @others: more sequences are being decoded, which need
 * not wait for this one's upkeep. */
static gboolean
prepare_indexes (CudaWorker *w, LycheeCudaPass *pass, gboolean others, GError **error)
{
  CudaBackend *b = get_backend (w);
  const LycheeHparams *hp = lychee_model_get_hparams (b->model);
  guint first, n_upkeep = lychee_attention_get_n_upkeep (w->attention, &first);
  gboolean little = n_upkeep > 0 && n_upkeep <= LITTLE_UPKEEP && pass->n_tokens == 1;
  gboolean later = little && !others;

  if (n_upkeep > 0)
    lychee_cuda_batch_leave (b->batch, &w->member);
  /* Before the threads begin: they change what is measured. */
  if (pass->sparse && (later || n_upkeep == 0))
    measure_indexes (w, pass);
  if (little && !place_rows (w, first, n_upkeep, error))
    return FALSE;
  if (n_upkeep > 0)
    begin_upkeep (w);
  if (!pass->sparse)
    return TRUE;
  if (later) {
    pass->max_nodes += n_upkeep;    /* at most: each of them splits one, */
    pass->max_clusters += n_upkeep; /* or is an item */
    pass->index = prepare_layer;
    pass->index_data = w;
    return TRUE;
  }
  if (n_upkeep > 0) {
    wait_for_upkeep (w, hp->n_layers);
    measure_indexes (w, pass);
  }
  for (guint layer = 0; layer < hp->n_layers; layer++)
    if (lychee_cache_get_index (w->cache, layer, 0) &&
        !lychee_cuda_mirror_index (
            b->cuda, w->worker, w->cache, layer, w->heads + (gsize) layer * hp->n_kv_heads, error))
      return FALSE;
  w->sequence.heads = w->heads;
  return TRUE;
}

static void
prepare_rope (CudaWorker *w, LycheeCudaPass *pass)
{
  guint n_context = lychee_cache_get_rope_context (w->cache);

  for (guint local = 0; local < 2; local++) {
    if (!w->knows_frequency || w->n_context != n_context)
      lychee_model_get_frequencies (get_backend (w)->model, local, n_context, w->frequency[local]);
    pass->frequency[local] = w->frequency[local];
  }
  w->knows_frequency = TRUE;
  w->n_context = n_context;
}

static void
count (CudaWorker *w, const LycheeCudaResult *result)
{
  LycheeAttentionStats stats = {
    .nodes_scored = result->counters->nodes_scored,
    .rows_read = result->counters->rows_read,
    .rows_estimated = result->counters->rows_estimated,
    .audits = result->audited ? 1 : 0,
    .missed_mass = result->missed_mass,
    .error = result->error,
  };

  lychee_attention_count (w->attention, &stats);
}

/* Has the device compute the pass: together with those of others, if it goes with them. */
static int
run_prepared (
    CudaWorker *w, const LycheeCudaPass *pass, LycheeCudaShare *share, LycheeCudaError *error)
{
  CudaBackend *b = get_backend (w);

  if (pass->n_tokens == 1 && pass->output == LYCHEE_CUDA_OUTPUT_CHOSEN && !pass->index &&
      !pass->weigh && pass->audit_layer < 0)
    return lychee_cuda_batch_run (b->batch, &w->member, w->worker, pass, share, error);
  lychee_cuda_batch_leave (b->batch, &w->member);
  share->at = 0;
  share->n = pass->n_tokens;
  return b->cuda->api->worker_run (w->worker, pass, &share->result, error);
}

/* With packed positions not everything can be read where it is, if there is more than the model
 * knows. */
static gboolean
needs_search (CudaWorker *w)
{
  return lychee_cache_is_bare (w->cache) &&
         lychee_cache_get_n_held (w->cache) >= lychee_model_get_n_context (get_backend (w)->model);
}

/* With the cache's index locked. The share is to be released in any case. */
static gboolean
run_locked (CudaWorker *w, LycheeCudaPass *pass, LycheeCudaShare *share, GError **error)
{
  CudaBackend *b = get_backend (w);
  guint n_sequences = lychee_cuda_batch_count (b->batch, &w->member);
  const LycheeHparams *hp = lychee_model_get_hparams (b->model);
  const LycheeCacheIndexing *indexing = lychee_cache_get_indexing (w->cache);
  LycheeCudaError local = { 0 };
  LycheeAttentionOptions options;
  guint audit_layer;
  gboolean ok;

  /* Counted as dense answers where sparse ones were asked for, as those within the budget are. */
  options = w->options;
  if (pass->n_tokens == 1 &&
      !needs_search (w)) /* of several sequences, searches cost as much as one's */
    options.budget = MAX (options.budget, b->sparse_from / n_sequences);
  lychee_attention_set_options (w->attention, &options);
  lychee_attention_plan (w->attention, w->cache, pass->n_tokens);
  audit_layer = lychee_attention_get_audit_layer (w->attention);
  pass->audit_layer = audit_layer < hp->n_layers ? (int) audit_layer : -1;
  pass->sparse = lychee_attention_is_sparse (w->attention);
  if (pass->sparse) {
    pass->sinks = indexing->sinks;
    pass->budget = w->options.budget;
    pass->beam = w->options.beam;
    pass->rest = w->options.rest;
  }
  if (lychee_cache_is_bare (w->cache)) {
    pass->range = (int) lychee_model_get_n_context (b->model);
    pass->n_fresh = (int) lychee_cache_get_n_bare_indexes (w->cache);
    pass->window = indexing ? (int) indexing->window : 0;
  }
  ok = prepare_indexes (w, pass, n_sequences > 1, error);
  if (ok && run_prepared (w, pass, share, &local) != 0) {
    ok = FALSE;
    if (w->error)
      g_propagate_error (error, g_steal_pointer (&w->error));
    else
      lychee_cuda_set_error (error, &local, "The pass failed");
  }
  wait_for_upkeep (w, hp->n_layers);
  return lychee_attention_finish (w->attention, ok ? error : NULL) && ok;
}

/* Weights */

static gboolean
cuda_collect_weights (LycheeWorker *worker, GError **error)
{
  CudaWorker *w = (CudaWorker *) worker;
  LycheeCudaError local = { 0 };
  float *sum = g_steal_pointer (&w->pending);

  if (!sum || get_backend (w)->cuda->api->worker_add_weights (w->worker, sum, &local) == 0)
    return TRUE;
  lychee_cuda_set_error (error, &local, "What the answer rests on cannot be said");
  return FALSE;
}

static void
cuda_set_weights (LycheeWorker *worker, const LycheeAttentionWeights *weights)
{
  CudaWorker *w = (CudaWorker *) worker;

  /* A device that failed says so in the next pass. */
  if (weights)
    cuda_collect_weights (worker, NULL);
  w->pending = NULL;
  w->paused = FALSE;
  w->weights = weights ? *weights : (LycheeAttentionWeights){ 0 };
}

static void
cuda_pause_weights (LycheeWorker *worker, gboolean pause)
{
  ((CudaWorker *) worker)->paused = pause;
}

/* Has the pass add up weights, if they are wanted. */
static gboolean
prepare_weights (CudaWorker *w, LycheeCudaPass *pass, GError **error)
{
  LycheeCudaWeights weights = { w->weights.first, w->weights.n_rows, w->weights.n_bins,
    w->weights.bins, w->weights.layer_begin, w->weights.layer_end };
  LycheeCudaError local = { 0 };

  pass->weigh = w->weights.n_rows > 0 && !w->paused;
  if (!pass->weigh || w->pending)
    return TRUE;
  if (get_backend (w)->cuda->api->worker_set_weights (w->worker, &weights, &local) != 0) {
    lychee_cuda_set_error (error, &local, "Attention cannot be added up on the CUDA device");
    return FALSE;
  }
  w->pending = w->weights.sum;
  return TRUE;
}

/* A pass whose output @pass says. */
static gboolean
run_pass (CudaWorker *w, LycheeCache *cache, LycheeCudaPass *pass, LycheeCudaShare *share,
    GCancellable *cancellable, GError **error)
{
  CudaBackend *b = get_backend (w);
  gint32 n_vocab = lychee_model_get_n_vocab (b->model);
  guint head, skip, n = pass->n_tokens;
  gboolean ok;

  for (guint i = 0; i < n; i++)
    if (pass->ids[i] < 0 || pass->ids[i] >= n_vocab) {
      g_set_error (error, LYCHEE_MODEL_ERROR, LYCHEE_MODEL_ERROR_INVALID,
          "Token id %d is not in the model's vocabulary of %d", pass->ids[i], n_vocab);
      return FALSE;
    }
  if (!lychee_cache_has_window (cache, lychee_cache_get_length (cache))) {
    g_set_error_literal (error, LYCHEE_BACKEND_ERROR, LYCHEE_BACKEND_ERROR_UNSUPPORTED,
        "The CUDA backend cannot read again what another backend let go of layers with a sliding "
        "window: read the transcript with the same backend");
    return FALSE;
  }
  if (g_cancellable_set_error_if_cancelled (cancellable, error))
    return FALSE;
  lychee_attention_set_packed (w->attention, lychee_forward_pack (b->model, &w->packed, cache, n),
      lychee_model_get_n_context (b->model));
  if (!lychee_cache_reserve (cache, n, error) ||
      !lychee_cuda_mirror_pages (b->cuda, w->worker, cache, n, w->pages, error) ||
      !prepare_weights (w, pass, error))
    return FALSE;
  w->cache = cache;
  lychee_cache_get_hole (cache, &head, &skip);
  w->sequence.first = lychee_cache_get_length (cache);
  w->sequence.origin = lychee_cache_get_origin (cache);
  w->sequence.head = head;
  w->sequence.skip = skip;
  w->sequence.pages = w->pages->pdata;
  w->sequence.n_pages = w->pages->len;
  w->sequence.heads = NULL;
  pass->type = lychee_cuda_mirror_get_type (cache);
  pass->n_sequences = 1;
  pass->sequences = &w->sequence;
  prepare_rope (w, pass);
  lychee_cache_lock_index (cache);
  ok = run_locked (w, pass, share, error);
  lychee_cache_unlock_index (cache);
  w->cache = NULL;
  if (!ok || g_cancellable_set_error_if_cancelled (cancellable, error))
    return FALSE;
  count (w, &share->result);
  lychee_cuda_mirror_store (b->cuda, cache, share->result.rows, n, share->at, share->n);
  lychee_cache_commit (cache, n);
  return TRUE;
}

static gboolean
cuda_run (LycheeWorker *worker, LycheeCache *cache, const gint32 *ids, guint n, LycheeOutput output,
    const float **logits, GCancellable *cancellable, GError **error)
{
  LycheeCudaShare share;
  LycheeCudaPass pass = {
    .ids = ids,
    .n_tokens = n,
    .output = output == LYCHEE_OUTPUT_NONE   ? LYCHEE_CUDA_OUTPUT_NONE
              : output == LYCHEE_OUTPUT_LAST ? LYCHEE_CUDA_OUTPUT_LAST
                                             : LYCHEE_CUDA_OUTPUT_ALL,
  };

  if (!run_pass ((CudaWorker *) worker, cache, &pass, &share, cancellable, error))
    return FALSE;
  if (logits)
    *logits = share.result.logits;
  return TRUE;
}

static gboolean
cuda_run_choosing (LycheeWorker *worker, LycheeCache *cache, const gint32 *ids, guint n,
    LycheeSampler *sampler, gint32 *id, GCancellable *cancellable, GError **error)
{
  CudaWorker *w = (CudaWorker *) worker;
  LycheeCudaSampling sampling;
  LycheeCudaShare share;
  LycheeSampling s;
  LycheeCudaPass pass = {
    .ids = ids,
    .n_tokens = n,
    .output = LYCHEE_CUDA_OUTPUT_CHOSEN,
  };
  gboolean ok;

  lychee_sampler_describe (sampler, &s);
  sampling = (LycheeCudaSampling){ s.greedy, s.scale, s.penalty, s.n_history, s.top_k, s.top_p,
    s.min_weight, s.random };
  w->sequence.sampling = &sampling;
  w->sequence.history = s.history;
  ok = run_pass (w, cache, &pass, &share, cancellable, error);
  if (ok)
    *id = share.result.chosen[0];
  lychee_cuda_batch_release (get_backend (w)->batch, &w->member);
  w->sequence.sampling = NULL;
  if (ok && *id >= 0)
    lychee_sampler_accept (sampler, *id);
  return ok;
}

static guint
cuda_hold (LycheeWorker *worker, LycheeCache *cache, GError **error)
{
  CudaWorker *w = (CudaWorker *) worker;
  guint length = lychee_cache_get_length (cache);

  if (!lychee_cache_has_window (cache, length) ||
      !lychee_cuda_mirror_pages (get_backend (w)->cuda, w->worker, cache, 0, w->pages, error))
    return 0;
  return length;
}

static void
cuda_get_sharing (LycheeBackend *backend, guint *n_decoding, guint64 *n_shared)
{
  lychee_cuda_batch_describe (((CudaBackend *) backend)->batch, n_decoding, n_shared);
}

static const LycheeBackendClass cuda_class = {
  .type = LYCHEE_BACKEND_CUDA,
  .piece_tokens = LYCHEE_FORWARD_MAX_TOKENS,
  .free = cuda_free,
  .new_worker = cuda_new_worker,
  .free_worker = cuda_free_worker,
  .set_options = cuda_set_options,
  .take_stats = cuda_take_stats,
  .set_weights = cuda_set_weights,
  .pause_weights = cuda_pause_weights,
  .collect_weights = cuda_collect_weights,
  .run = cuda_run,
  .run_choosing = cuda_run_choosing,
  .get_sharing = cuda_get_sharing,
  .hold = cuda_hold,
};

LycheeBackend *
lychee_backend_new_cuda (
    LycheeModel *model, guint threads, guint device, gboolean *built, GError **error)
{
  g_autoptr (LycheeCuda) cuda = lychee_cuda_open (device, built, error);
  g_autoptr (LycheeExecutor) executor = NULL;
  const char *from = g_getenv ("LYCHEE_CUDA_SPARSE_FROM");
  LycheeCudaModel *weights;
  LycheeCudaBatch *batch;
  CudaBackend *b;

  G_STATIC_ASSERT (LYCHEE_CUDA_MAX_TOKENS == LYCHEE_FORWARD_MAX_TOKENS);
  if (!cuda)
    return NULL;
  if (lychee_model_get_hparams (model)->attention_cap > 0) {
    g_set_error_literal (error, LYCHEE_BACKEND_ERROR, LYCHEE_BACKEND_ERROR_UNSUPPORTED,
        "The CUDA backend has no attention that caps its logits, as this model's does: set backend "
        "to cpu");
    return NULL;
  }
  weights = lychee_cuda_weights_get (cuda, model, &batch, error);
  if (!weights)
    return NULL;
  executor = lychee_executor_get (threads); /* knows how many threads are wanted */
  b = g_new0 (CudaBackend, 1);
  b->parent.klass = &cuda_class;
  g_atomic_ref_count_init (&b->parent.refs);
  b->parent.name = g_strdup (cuda->api->get_name (cuda->device));
  b->model = g_object_ref (model);
  b->parent.n_vocab = lychee_model_get_n_vocab (model);
  b->weights = weights;
  b->batch = batch;
  b->n_threads = lychee_executor_get_n_threads (executor);
  b->sparse_from = from ? (guint) g_ascii_strtoull (from, NULL, 10) : SPARSE_FROM;
  b->cuda = g_steal_pointer (&cuda);
  return &b->parent;
}
