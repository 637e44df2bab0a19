/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* The indexes over the keys of a cache. */

#include "lychee-cache-object.h"

#include <math.h>
#include <string.h>

void
lychee_cache_get_index_params (LycheeCache *cache, guint i, LycheeIndexParams *params)
{
  *params = (LycheeIndexParams){
    .granularity = cache->indexing.granularity,
    .head_dim = cache->head_dim,
    .scale = cache->indexing.scale > 0 ? cache->indexing.scale : 1 / sqrtf (cache->head_dim),
    .cap = cache->indexing.cap,
    .seed = i,
  };
}

/* What was indexed and is now inside the window comes out again. */
void
lychee_cache_truncate_indexes (LycheeCache *cache, guint length)
{
  guint end = length > cache->indexing.window ? length - cache->indexing.window : 0;

  for (guint layer = 0; layer < cache->n_layers; layer++)
    for (guint head = 0; head < cache->n_kv_heads; head++) {
      LycheeIndex *index = lychee_cache_get_index (cache, layer, head);
      LycheeRows rows;

      if (!index)
        continue;
      lychee_cache_get_rows (cache, layer, head, &rows);
      if (lychee_index_get_end (index) > end)
        lychee_index_truncate (index, &rows, end);
    }
}

void
lychee_cache_enable_index (LycheeCache *cache, const LycheeCacheIndexing *indexing)
{
  guint n = cache->n_layers * cache->n_kv_heads;

  g_return_if_fail (cache->indexes == NULL && lychee_cache_get_length (cache) == 0);

  cache->indexing = *indexing;
  if (indexing->local)
    cache->indexing.local = g_memdup2 (indexing->local, cache->n_layers * sizeof *indexing->local);
  cache->indexes = g_new0 (LycheeIndex *, n);
  for (guint i = 0; i < n; i++) {
    LycheeIndexParams params;

    lychee_cache_get_index_params (cache, i, &params);
    if (!indexing->local || !indexing->local[i / cache->n_kv_heads])
      cache->indexes[i] = lychee_index_new (&params);
  }
}

const LycheeCacheIndexing *
lychee_cache_get_indexing (LycheeCache *cache)
{
  return cache->indexes ? &cache->indexing : NULL;
}

LycheeIndex *
lychee_cache_get_index (LycheeCache *cache, guint layer, guint kv_head)
{
  return cache->indexes[layer * cache->n_kv_heads + kv_head];
}

guint64
lychee_cache_get_index_bytes (LycheeCache *cache)
{
  guint64 bytes = 0;

  g_mutex_lock (&cache->index_lock);
  for (guint i = 0; cache->indexes && i < cache->n_layers * cache->n_kv_heads; i++)
    if (cache->indexes[i])
      bytes += lychee_index_get_bytes (cache->indexes[i]);
  g_mutex_unlock (&cache->index_lock);
  return bytes;
}

void
lychee_cache_describe_index (LycheeCache *cache, LycheeIndexStats *sum, guint64 *n_coarse)
{
  *sum = (LycheeIndexStats){ 0 };
  if (n_coarse)
    memset (n_coarse, 0, cache->n_layers * sizeof *n_coarse);
  g_mutex_lock (&cache->index_lock);
  for (guint i = 0; cache->indexes && i < cache->n_layers * cache->n_kv_heads; i++) {
    LycheeIndexStats stats;

    if (!cache->indexes[i])
      continue;
    lychee_index_get_stats (cache->indexes[i], &stats);
    sum->n_leaves += stats.n_leaves;
    sum->n_coarse += stats.n_coarse;
    if (n_coarse)
      n_coarse[i / cache->n_kv_heads] += stats.n_coarse;
    sum->depth = MAX (sum->depth, stats.depth);
  }
  g_mutex_unlock (&cache->index_lock);
}

void
lychee_cache_lock_index (LycheeCache *cache)
{
  g_mutex_lock (&cache->index_lock);
}

void
lychee_cache_unlock_index (LycheeCache *cache)
{
  g_mutex_unlock (&cache->index_lock);
}
