/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "lychee-cache-private.h"
#include "lychee-cpu-kernels.h"
#include "lychee-packed.h"

G_BEGIN_DECLS

/* Attention of one forward pass over a cache, as three steps that any number of threads share. The
 * caller (the ggml graph's custom nodes) puts a barrier between the steps. Work is cut into units
 * that depend on the shape alone, and units are merged in order, so that the result does not depend
 * on the number of threads. Not thread safe beyond that: one pass at a time. */
typedef struct _LycheeAttention LycheeAttention;

/* Query heads that may share a KV head. */
#define LYCHEE_ATTENTION_MAX_GROUP 64

#define LYCHEE_DEFAULT_BUDGET 1024
#define LYCHEE_DEFAULT_SINKS 16
#define LYCHEE_DEFAULT_WINDOW 64

typedef struct {
  gboolean sparse; /* read what the cache's index finds; needs a cache with an index */
  guint budget;  /* tokens to read in all, sinks and window included; shorter contexts are dense */
  float beam;    /* see LycheeIndexQuery, 0 = its default */
  gboolean rest; /* what is not read counts as the mean of its group */
  guint audit;   /* every so many sparse tokens one layer is also answered densely; 0: never */
} LycheeAttentionOptions;

/* What was done since the last reset. A "query" is one token, layer and KV head. */
typedef struct {
  guint64 dense; /* queries answered from all keys */
  guint64
      dense_fallback; /* of these, those for which sparse was asked, and the context was short */
  guint64 local;      /* queries of local layers, which are neither: all of their window is read */
  guint64 sparse;     /* queries answered through the index */
  guint64 rows_visible;   /* keys that dense attention would have read for the sparse ones */
  guint64 rows_read;      /* keys that they did read */
  guint64 rows_estimated; /* keys that counted as a mean */
  guint64 nodes_scored;
  /* Nanoseconds of all threads together; only while timing is on. */
  guint64 ns_upkeep, ns_search, ns_read, ns_rest, ns_merge;
  /* Of the audits, summed up: softmax mass that was not read exactly, and |o - o'| / |o| of the
   * output, both means over the heads of a group. */
  guint64 audits;
  double missed_mass;
  double error;
} LycheeAttentionStats;

LycheeAttention *lychee_attention_new (
    guint n_layers, guint n_heads, guint n_kv_heads, guint head_dim, guint n_threads);
/* Bytes of its buffers. */
gsize lychee_attention_get_bytes (LycheeAttention *attention);
void lychee_attention_free (LycheeAttention *attention);

/* What the model's layers are like. @local: (nullable): [n_layers], those whose tokens see only the
 * last @window ones, their own included; they have no index. @scale: of q.k, 0 = 1 / sqrt
 * (head_dim). @cap: of the logits, see LycheeQueries. */
void lychee_attention_set_layers (
    LycheeAttention *attention, const gboolean *local, guint window, float scale, float cap);

void lychee_attention_set_options (
    LycheeAttention *attention, const LycheeAttentionOptions *options);
void lychee_attention_set_timing (LycheeAttention *attention, gboolean timing);
void lychee_attention_get_stats (LycheeAttention *attention, LycheeAttentionStats *stats);
void lychee_attention_add_stats (LycheeAttentionStats *to, const LycheeAttentionStats *more);
void lychee_attention_reset_stats (LycheeAttention *attention);

/* For measurements: @func answers the queries of one KV head over the keys 0 .. n_keys - 1 in place
 * of what is built in, in every pass of a single token. Called in any of the threads, for several
 * heads at a time. @output is [n_queries][head_dim]. NULL takes it away again. */
typedef void (*LycheeAttentionFunc) (guint layer, guint kv_head, const LycheeQueries *queries,
    const LycheeRows *rows, guint n_keys, float *output, gpointer user_data);
void lychee_attention_set_func (
    LycheeAttention *attention, LycheeAttentionFunc func, gpointer user_data);

/* For keys that are not kept as queries are compared with them: @func makes of @n of them, [n]
 * [head_dim], which stand at @places (rows less what was forgotten before them), what they are
 * there. Called in any of the threads. NULL: they are taken as they are kept. The index, the
 * estimates of what is not read and the weights of rows go by what is kept. */
typedef void (*LycheeKeyFunc) (
    guint layer, const guint32 *places, guint n, float *keys, gpointer user_data);
void lychee_attention_set_key_func (
    LycheeAttention *attention, LycheeKeyFunc func, gpointer user_data);

/* For keys of global layers that are kept before rotation: @packed (not owned) turns them when they
 * are read, in place of a LycheeKeyFunc, and with it the queries for the index. Queries are turned
 * to their positions: a token's place, less what was forgotten, plus that, plus the cache's origin.
 * Where there are more places than the @range positions that the model knows, reading is sparse in
 * any case. NULL: keys are kept as they are compared. */
void lychee_attention_set_packed (
    LycheeAttention *attention, const LycheePacked *packed, guint range);
/* The longest distance that it asks @packed for. */
guint lychee_attention_get_farthest (guint range);

/* For a backend that attends on a device: plan () in place of prepare () decides what the pass is
 * like and counts it; upkeep () brings a layer's indexes up to date, and may be called for all
 * layers by several threads, each of which does some of the KV heads: it returns how many. finish
 * () ends the pass here too. */
void lychee_attention_plan (LycheeAttention *attention, LycheeCache *cache, guint n_tokens);
gboolean lychee_attention_is_sparse (LycheeAttention *attention);
/* Rows that upkeep puts into each index, and the first of them; 0: there is none in this pass. */
guint lychee_attention_get_n_upkeep (LycheeAttention *attention, guint *first);
/* Where they go, [n_layers][n_kv_heads] times what lychee_index_append_placed () takes, for indexes
 * that all end where the first row stands, and for this pass only. Else trees are descended. */
void lychee_attention_set_places (LycheeAttention *attention, const LycheeIndexPlaces *places);
guint lychee_attention_upkeep (LycheeAttention *attention, guint layer);
/* n_layers: none */
guint lychee_attention_get_audit_layer (LycheeAttention *attention);
/* Adds what the device counted. */
void lychee_attention_count (LycheeAttention *attention, const LycheeAttentionStats *stats);

/* Where the softmax weights of the rows that are read add up, by bins (chunks, say): rows @first ..
 * @first + @n_rows - 1 count, each in the bin that @bins [n_rows] has for it. Of the layers
 * @layer_begin .. @layer_end - 1, less local ones; @sum is [layers][heads][n_bins], all owned by
 * the caller. All rows stand before the tokens of the passes that are weighed. */
typedef struct {
  guint first, n_rows; /* no rows: nothing is added up */
  const guint32 *bins;
  guint n_bins;
  guint layer_begin, layer_end;
  float *sum;
} LycheeAttentionWeights;

/* For the passes that follow; NULL: not any more. */
void lychee_attention_set_weights (
    LycheeAttention *attention, const LycheeAttentionWeights *weights);

/* Before the pass: its @n_tokens follow the cache's present length, and are reserved. */
void lychee_attention_prepare (LycheeAttention *attention, LycheeCache *cache, guint n_tokens);
/* After it: whether a key or value was not a number (LYCHEE_INDEX_ERROR). */
gboolean lychee_attention_finish (LycheeAttention *attention, GError **error);

/* Step 1: keys and values [n_tokens][kv-heads][head-dim] of the new tokens go into the cache, and
 * those that have left the window into the index. */
void lychee_attention_store (LycheeAttention *attention, guint layer, const float *k,
    const float *v, guint thread, guint n_threads);
/* Step 2: each token's queries [n_tokens][heads][head-dim] over the keys up to its own. */
void lychee_attention_attend (
    LycheeAttention *attention, guint layer, const float *q, guint thread);
/* Step 3: output [n_tokens][heads][head-dim]. */
void lychee_attention_merge (
    LycheeAttention *attention, guint layer, float *output, guint thread, guint n_threads);

G_END_DECLS
