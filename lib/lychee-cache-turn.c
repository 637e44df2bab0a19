/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Keys that are turned back to before their rotation, once, when there are more of them than the
 * model was trained for; and their indexes, which begin anew, a few layers at a time. */

#include "lychee-cache-object.h"

/* Rows that are turned together. */
#define ROWS 64

void
lychee_cache_set_packed (LycheeCache *cache, gboolean packed)
{
  cache->packed = packed;
}

gboolean
lychee_cache_get_packed (LycheeCache *cache)
{
  return cache->packed;
}

void
lychee_cache_set_bare (LycheeCache *cache, guint n_indexes)
{
  g_return_if_fail (cache->packed && lychee_cache_get_length (cache) == 0);

  cache->bare = TRUE;
  cache->n_bare_indexes = MIN (n_indexes, cache->n_layers);
}

gboolean
lychee_cache_is_bare (LycheeCache *cache)
{
  return cache->bare;
}

guint
lychee_cache_get_n_bare_indexes (LycheeCache *cache)
{
  return cache->n_bare_indexes;
}

/* The position of a row's token. What the prompt begins with moved to right before what was not
 * forgotten. */
static gint64
get_position (LycheeCache *cache, guint row)
{
  return (gint64) cache->origin + row + (row < cache->head ? cache->skip : 0);
}

/* Rows @begin .. @end - 1, of one page and one run of positions. */
static void
turn_run (LycheeCache *cache, const LycheePacked *packed, guint layer, guint begin, guint end,
    float *keys)
{
  const LycheeCpuKernels *kernels = lychee_cpu_kernels_for (lychee_cpu_kernels_get (), cache->form);
  gsize d = cache->head_dim;

  for (guint head = 0; head < cache->n_kv_heads; head++)
    for (guint from = begin, n; from < end; from += n) {
      guint16 *key = lychee_cache_get_writable (cache, layer, head, from);

      n = MIN (end - from, ROWS);
      for (guint i = 0; i < n; i++)
        kernels->read_row (key + i * cache->row_size, d, keys + i * d);
      lychee_packed_turn_back (packed, get_position (cache, from), n, keys);
      for (guint i = 0; i < n; i++)
        kernels->write_row (keys + i * d, d, key + i * cache->row_size);
    }
}

static void
turn_page (
    LycheeCache *cache, const LycheePacked *packed, const gboolean *local, guint at, float *keys)
{
  guint begin = at << LYCHEE_CACHE_PAGE_SHIFT, forgotten = cache->head + cache->skip;
  guint end = MIN (begin + LYCHEE_CACHE_PAGE_TOKENS, lychee_cache_get_length (cache));

  for (guint layer = 0; layer < cache->n_layers; layer++) {
    if (local && local[layer])
      continue;
    turn_run (cache, packed, layer, begin, CLAMP (cache->head, begin, end), keys);
    turn_run (cache, packed, layer, CLAMP (forgotten, begin, end), end, keys);
  }
}

gboolean
lychee_cache_turn_back (
    LycheeCache *cache, const LycheePacked *packed, const gboolean *local, GError **error)
{
  g_autofree float *keys = g_new (float, (gsize) ROWS * cache->head_dim);
  gboolean ok = TRUE;

  g_return_val_if_fail (cache->packed && !cache->bare, FALSE);

  g_mutex_lock (&cache->lock);
  /* Forks have theirs as they were. */
  for (guint at = 0; ok && at < cache->n_pages; at++)
    ok = !cache->pages[0][at] ||
         lychee_cache_own_page (cache, 0, at, LYCHEE_CACHE_PAGE_TOKENS, error);
  for (guint at = 0; ok && at < cache->n_pages; at++)
    if (cache->pages[0][at]) {
      lychee_cache_page_limit_peers (cache->pages[0][at], 0);
      turn_page (cache, packed, local, at, keys);
    }
  if (ok)
    cache->bare = TRUE;
  g_mutex_unlock (&cache->lock);
  return ok;
}

static void
renew (LycheeCache *cache, guint layer)
{
  for (guint i = layer * cache->n_kv_heads; i < (layer + 1) * cache->n_kv_heads; i++) {
    LycheeIndexParams params;

    if (!cache->indexes[i])
      continue;
    lychee_index_free (cache->indexes[i]);
    lychee_cache_get_index_params (cache, i, &params);
    cache->indexes[i] = lychee_index_new (&params);
  }
}

gboolean
lychee_cache_renew_index (LycheeCache *cache)
{
  while (cache->bare && cache->n_bare_indexes < cache->n_layers) {
    guint layer = cache->n_bare_indexes++;

    if (cache->indexes[layer * cache->n_kv_heads]) {
      renew (cache, layer);
      return TRUE;
    }
  }
  return FALSE;
}

gboolean
lychee_cache_is_index_stale (LycheeCache *cache, guint layer)
{
  return cache->bare && layer >= cache->n_bare_indexes;
}

void
lychee_cache_empty_stale (LycheeCache *cache)
{
  if (cache->bare && cache->indexes)
    for (guint layer = cache->n_bare_indexes; layer < cache->n_layers; layer++)
      renew (cache, layer);
}
