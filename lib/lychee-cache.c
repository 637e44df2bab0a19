/* SPDX-License-Identifier: LGPL-2.1-or-later */

/**
 * LycheeCache:
 *
 * An append-only store of the keys and values that a model computed for a transcript.
 *
 * The cache grows by pages of 256 tokens, up to a number of tokens and a number of bytes that are
 * fixed when it is made. A fork ([method@Cache.fork]) is a snapshot with a tail of its own: it
 * shares every full page with the cache that it came from, which goes on growing. That is how
 * questions are asked while a transcript is still being read.
 */

#include "lychee-cache-object.h"

#include <string.h>

G_DEFINE_FINAL_TYPE (LycheeCache, lychee_cache, G_TYPE_OBJECT)

void
lychee_cache_put_page (LycheeCache *cache, guint kind, guint at, LycheeCachePage *page)
{
  cache->pages[kind][at] = page;
  for (guint layer = 0; layer < cache->n_layers; layer++)
    for (guint head = 0; head < cache->n_kv_heads && cache->kind[layer] == kind; head++)
      cache->table[(gsize) (layer * cache->n_kv_heads + head) * cache->max_pages + at] =
          page->data + (gsize) (cache->slot[layer] * cache->n_kv_heads + head) * 2 *
                           lychee_cache_head_size (cache);
}

/* Makes room for @n pages in the tables. With the lock, or before anyone else has the cache. */
void
lychee_cache_grow_tables (LycheeCache *cache, guint n)
{
  guint heads = cache->n_layers * cache->n_kv_heads, old = cache->max_pages;
  const guint16 **table;

  if (n <= old)
    return;
  cache->max_pages = MAX (n, old + old / 2);
  for (guint kind = 0; kind < 2; kind++) {
    cache->pages[kind] = g_renew (LycheeCachePage *, cache->pages[kind], cache->max_pages);
    memset (cache->pages[kind] + old, 0, (cache->max_pages - old) * sizeof *cache->pages[kind]);
  }
  table = g_new0 (const guint16 *, (gsize) heads * cache->max_pages);
  for (guint i = 0; i < heads; i++)
    memcpy (
        table + (gsize) i * cache->max_pages, cache->table + (gsize) i * old, old * sizeof *table);
  g_free (cache->table);
  cache->table = table;
}

void
lychee_cache_drop_page (LycheeCache *cache, guint kind, guint at)
{
  for (guint layer = 0; layer < cache->n_layers; layer++)
    for (guint head = 0; head < cache->n_kv_heads && cache->kind[layer] == kind; head++)
      cache->table[(gsize) (layer * cache->n_kv_heads + head) * cache->max_pages + at] = NULL;
  g_clear_pointer (&cache->pages[kind][at], lychee_cache_page_unref);
}

/* Lets go of a page in all layers. */
static void
drop_pages (LycheeCache *cache, guint at)
{
  lychee_cache_drop_page (cache, 0, at);
  lychee_cache_drop_page (cache, 1, at);
}

static void
lychee_cache_init (LycheeCache *cache)
{
  g_mutex_init (&cache->lock);
  g_mutex_init (&cache->index_lock);
  cache->chunks = lychee_cache_chunks_new ();
  cache->start = g_array_new (FALSE, FALSE, sizeof (gint32));
}

static void
lychee_cache_finalize (GObject *object)
{
  LycheeCache *cache = LYCHEE_CACHE (object);

  for (guint i = 0; cache->indexes && i < cache->n_layers * cache->n_kv_heads; i++)
    lychee_index_free (cache->indexes[i]);
  g_free (cache->indexes);
  g_free ((gpointer) cache->indexing.local);
  for (guint kind = 0; kind < 2; kind++) {
    for (guint i = 0; i < cache->n_pages; i++)
      g_clear_pointer (&cache->pages[kind][i], lychee_cache_page_unref);
    g_free (cache->pages[kind]);
  }
  g_free (cache->kind);
  g_free (cache->slot);
  g_free (cache->table);
  lychee_cache_chunks_unref (cache->chunks);
  g_array_unref (cache->start);
  lychee_cache_budget_unref (cache->budget);
  g_mutex_clear (&cache->lock);
  g_mutex_clear (&cache->index_lock);
  G_OBJECT_CLASS (lychee_cache_parent_class)->finalize (object);
}

static void
lychee_cache_class_init (LycheeCacheClass *klass)
{
  G_OBJECT_CLASS (klass)->finalize = lychee_cache_finalize;
}

static LycheeCache *
cache_new (
    guint n_layers, guint n_kv_heads, guint head_dim, guint max_tokens, LycheeCacheBudget *budget)
{
  LycheeCache *cache = g_object_new (LYCHEE_TYPE_CACHE, NULL);

  cache->n_layers = n_layers;
  cache->n_kv_heads = n_kv_heads;
  cache->head_dim = head_dim;
  cache->row_size = lychee_row_size (LYCHEE_ROW_F16, head_dim);
  cache->max_tokens = max_tokens;
  cache->max_pages = (max_tokens + LYCHEE_CACHE_PAGE_MASK) >> LYCHEE_CACHE_PAGE_SHIFT;
  cache->budget = budget;
  cache->pages[0] = g_new0 (LycheeCachePage *, cache->max_pages);
  cache->pages[1] = g_new0 (LycheeCachePage *, cache->max_pages);
  lychee_cache_set_layers (cache, NULL);
  cache->table = g_new0 (const guint16 *, (gsize) n_layers *n_kv_heads * cache->max_pages);
  return cache;
}

/**
 * lychee_cache_new:
 * @n_layers: layers of the model
 * @n_kv_heads: KV heads in a layer
 * @head_dim: size of a head
 * @max_tokens: how many tokens it may ever hold, at most 16 million
 * @max_bytes: how many bytes it and all its forks may use together, or 0 for no limit
 *
 * Makes an empty cache. Memory is taken as it grows.
 *
 * Returns: (transfer full): a new cache
 */
LycheeCache *
lychee_cache_new (
    guint n_layers, guint n_kv_heads, guint head_dim, guint max_tokens, guint64 max_bytes)
{
  LycheeCacheBudget *budget;

  g_return_val_if_fail (n_layers > 0 && n_kv_heads > 0 && head_dim > 0, NULL);
  g_return_val_if_fail (max_tokens > 0 && max_tokens <= 1u << 24, NULL);

  budget = g_new0 (LycheeCacheBudget, 1);
  g_atomic_ref_count_init (&budget->refs);
  g_mutex_init (&budget->lock);
  budget->max_bytes = max_bytes;
  return cache_new (n_layers, n_kv_heads, head_dim, max_tokens, budget);
}

/**
 * lychee_cache_get_n_layers:
 * @cache: a cache
 *
 * Gets how many layers the model has.
 *
 * Returns: layers
 */
guint
lychee_cache_get_n_layers (LycheeCache *cache)
{
  return cache->n_layers;
}

/**
 * lychee_cache_get_n_kv_heads:
 * @cache: a cache
 *
 * Gets how many key and value heads a layer has.
 *
 * Returns: heads
 */
guint
lychee_cache_get_n_kv_heads (LycheeCache *cache)
{
  return cache->n_kv_heads;
}

/**
 * lychee_cache_get_head_dim:
 * @cache: a cache
 *
 * Gets how long a key is.
 *
 * Returns: components
 */
guint
lychee_cache_get_head_dim (LycheeCache *cache)
{
  return cache->head_dim;
}

/**
 * lychee_cache_get_length:
 * @cache: a cache
 *
 * Gets how many tokens the cache has, whole in every layer.
 *
 * Returns: tokens
 */
guint
lychee_cache_get_length (LycheeCache *cache)
{
  return g_atomic_int_get (&cache->length);
}

guint
lychee_cache_get_n_held (LycheeCache *cache)
{
  guint n;

  g_mutex_lock (&cache->lock);
  n = lychee_cache_get_length (cache) - cache->skip;
  g_mutex_unlock (&cache->lock);
  return n;
}

void
lychee_cache_count_lost (LycheeCache *cache, guint64 n_left_out, guint64 n_forgotten)
{
  g_mutex_lock (&cache->lock);
  cache->n_left_out += n_left_out;
  cache->n_forgotten += n_forgotten;
  g_mutex_unlock (&cache->lock);
}

void
lychee_cache_get_lost (LycheeCache *cache, guint64 *n_left_out, guint64 *n_forgotten)
{
  g_mutex_lock (&cache->lock);
  *n_left_out = cache->n_left_out;
  *n_forgotten = cache->n_forgotten;
  g_mutex_unlock (&cache->lock);
}

/**
 * lychee_cache_get_max_tokens:
 * @cache: a cache
 *
 * Gets how many tokens the cache may have.
 *
 * Returns: tokens
 */
guint
lychee_cache_get_max_tokens (LycheeCache *cache)
{
  return cache->max_tokens;
}

/* With the lock. Adds up the memory of pages of a kind, and (out) (optional) how many there are. */
static guint64
count_pages (LycheeCache *cache, guint kind, guint *n)
{
  guint64 bytes = 0;

  for (guint i = 0; i < cache->n_pages; i++)
    if (cache->pages[kind][i]) {
      bytes += cache->pages[kind][i]->bytes;
      if (n)
        ++*n;
    }
  return bytes;
}

/**
 * lychee_cache_get_bytes:
 *
 * Gets how much memory the cache holds.
 *
 * Returns: bytes that its keys and values take, shared pages and what is still free in the last one
 *   included
 */
guint64
lychee_cache_get_bytes (LycheeCache *cache)
{
  guint64 bytes;

  g_mutex_lock (&cache->lock);
  bytes = count_pages (cache, 0, NULL) + count_pages (cache, 1, NULL);
  g_mutex_unlock (&cache->lock);
  return bytes;
}

guint64
lychee_cache_get_bytes_with (LycheeCache *cache, guint n)
{
  guint64 index_bytes = lychee_cache_get_index_bytes (cache), bytes;
  guint length, n_pages, n_more, n_local = 0, n_more_local;

  g_mutex_lock (&cache->lock);
  length = lychee_cache_get_length (cache) + n;
  n_pages = (length + LYCHEE_CACHE_PAGE_MASK) >> LYCHEE_CACHE_PAGE_SHIFT;
  n_more = n_pages - MIN (n_pages, cache->n_pages);
  bytes = count_pages (cache, 0, NULL) + count_pages (cache, 1, &n_local);
  n_more_local = n_more;
  if (cache->local_window > 0) {
    guint wanted = lychee_cache_count_local_pages (cache, length);

    n_more_local = wanted - MIN (wanted, n_local);
  }
  bytes += n_more * lychee_cache_page_memory (lychee_cache_page_size (cache, 0)) +
           n_more_local * lychee_cache_page_memory (lychee_cache_page_size (cache, 1));
  g_mutex_unlock (&cache->lock);
  g_mutex_lock (&cache->budget->lock);
  cache->budget->index_bytes = index_bytes;
  g_mutex_unlock (&cache->budget->lock);
  return bytes + index_bytes;
}

/**
 * lychee_cache_get_max_bytes:
 * @cache: a cache
 *
 * Gets how much memory the cache may take.
 *
 * Returns: bytes, or 0 for no limit
 */
guint64
lychee_cache_get_max_bytes (LycheeCache *cache)
{
  return cache->budget->max_bytes;
}

/**
 * lychee_cache_get_token_bytes:
 *
 * Gets how much memory a token takes.
 *
 * Returns: bytes of one token's keys and values in all layers
 */
gsize
lychee_cache_get_token_bytes (LycheeCache *cache)
{
  return (gsize) cache->n_layers * cache->n_kv_heads * 2 * cache->row_size * sizeof (guint16);
}

/**
 * lychee_cache_fork:
 * @error: return location for a %LYCHEE_CACHE_ERROR
 *
 * Takes a snapshot that can grow a tail of its own. It holds what @cache holds now, shares every
 * full page with it, and never sees what is appended to @cache later. May be called in any thread.
 *
 * Returns: (transfer full) (nullable): the fork
 */
LycheeCache *
lychee_cache_fork (LycheeCache *cache, GError **error)
{
  LycheeCache *fork = cache_new (cache->n_layers, cache->n_kv_heads, cache->head_dim,
      cache->max_tokens, lychee_cache_budget_ref (cache->budget));
  guint length, n_full, n_open;

  g_mutex_lock (&cache->index_lock);
  g_mutex_lock (&cache->lock);
  lychee_cache_copy_form (cache, fork);
  lychee_cache_grow_tables (fork, cache->n_pages);
  length = lychee_cache_get_length (cache);
  n_full = length >> LYCHEE_CACHE_PAGE_SHIFT;
  n_open = length & LYCHEE_CACHE_PAGE_MASK;
  fork->n_pages = n_full + (n_open > 0);
  for (guint kind = 0; n_open > 0 && kind < 2; kind++) {
    LycheeCachePage *open = lychee_cache_page_new (fork, kind, error);

    if (!open) {
      g_mutex_unlock (&cache->lock);
      g_mutex_unlock (&cache->index_lock);
      g_object_unref (fork);
      return NULL;
    }
    lychee_cache_page_copy_rows (cache, kind, cache->pages[kind][n_full], open, n_open);
    lychee_cache_put_page (fork, kind, n_full, open);
  }
  for (guint i = 0; i < 2 * n_full; i++) {
    LycheeCachePage *page = cache->pages[i % 2][i / 2];

    if (!page)
      continue;
    g_atomic_ref_count_inc (&page->refs);
    lychee_cache_put_page (fork, i % 2, i / 2, page);
  }
  fork->head = cache->head;
  fork->skip = cache->skip;
  fork->local_begin = cache->local_begin;
  fork->n_left_out = cache->n_left_out;
  fork->n_forgotten = cache->n_forgotten;
  g_array_append_vals (fork->start, cache->start->data, cache->start->len);
  lychee_cache_chunks_unref (fork->chunks);
  fork->chunks = lychee_cache_chunks_ref (cache->chunks);
  fork->n_chunks = cache->n_chunks;
  g_mutex_unlock (&cache->lock);
  if (cache->indexes) {
    guint n = cache->n_layers * cache->n_kv_heads;

    fork->indexing = cache->indexing;
    fork->indexes = g_new (LycheeIndex *, n);
    if (cache->indexing.local)
      fork->indexing.local =
          g_memdup2 (cache->indexing.local, cache->n_layers * sizeof *cache->indexing.local);
    for (guint i = 0; i < n; i++)
      fork->indexes[i] = cache->indexes[i] ? lychee_index_copy (cache->indexes[i]) : NULL;
  }
  g_mutex_unlock (&cache->index_lock);
  g_atomic_int_set (&fork->length, length);
  return fork;
}

/**
 * lychee_cache_reserve:
 * @n: a number of tokens
 * @error: return location for a %LYCHEE_CACHE_ERROR
 *
 * Makes room for @n tokens behind the length.
 *
 * Returns: FALSE if there is none: nothing has changed then
 */
gboolean
lychee_cache_reserve (LycheeCache *cache, guint n, GError **error)
{
  guint length = lychee_cache_get_length (cache), held = length - cache->skip;
  guint n_before, n_after;
  gboolean ok = TRUE;

  if (n > cache->max_tokens - held) {
    g_set_error (error, LYCHEE_CACHE_ERROR, LYCHEE_CACHE_ERROR_FULL,
        "The context is full: %u of %u tokens are used and %u more are needed", held,
        cache->max_tokens, n);
    return FALSE;
  }

  g_mutex_lock (&cache->lock);
  n_before = cache->n_pages;
  n_after = (length + n + LYCHEE_CACHE_PAGE_MASK) >> LYCHEE_CACHE_PAGE_SHIFT;
  lychee_cache_grow_tables (cache, n_after);
  for (; ok && cache->n_pages < n_after; cache->n_pages++)
    for (guint kind = 0; ok && kind < 2; kind++) {
      LycheeCachePage *page = lychee_cache_page_new (cache, kind, error);

      if (page)
        lychee_cache_put_page (cache, kind, cache->n_pages, page);
      else
        ok = FALSE;
    }
  if (!ok) {
    while (cache->n_pages > n_before)
      drop_pages (cache, --cache->n_pages);
  }
  g_mutex_unlock (&cache->lock);
  return ok;
}

/**
 * lychee_cache_commit:
 * @cache: a cache
 * @n: a number of tokens
 *
 * Publishes tokens that were written behind the length.
 */
void
lychee_cache_commit (LycheeCache *cache, guint n)
{
  guint length = lychee_cache_get_length (cache) + n;

  g_return_if_fail (length <= cache->n_pages * LYCHEE_CACHE_PAGE_TOKENS);
  g_atomic_int_set (&cache->length, length);
  lychee_cache_drop_behind (cache);
}

gboolean
lychee_cache_own_page (LycheeCache *cache, guint kind, guint at, guint n, GError **error)
{
  LycheeCachePage *page = cache->pages[kind][at], *own;

  if (page && g_atomic_ref_count_compare (&page->refs, 1))
    return TRUE;
  own = lychee_cache_page_new (cache, kind, error);
  if (!own)
    return FALSE;
  if (page)
    lychee_cache_page_copy_rows (cache, kind, page, own, n);
  lychee_cache_put_page (cache, kind, at, own);
  if (page)
    lychee_cache_page_unref (page);
  return TRUE;
}

static gboolean
own_pages (LycheeCache *cache, guint at, guint n, GError **error)
{
  return lychee_cache_own_page (cache, 0, at, n, error) &&
         lychee_cache_own_page (cache, 1, at, n, error);
}

/**
 * lychee_cache_truncate:
 * @cache: a cache
 * @length: the new length, at most the present one
 *
 * Cuts the cache. Forks keep what they have. Belongs to the appending thread. Where the cut goes
 * through a page that is shared, and there is no memory for a copy, it goes back to the page's
 * beginning; where it would go into what was forgotten, to the end of that. Layers that are limited
 * to a window may have less of it than they see.
 */
void
lychee_cache_truncate (LycheeCache *cache, guint length)
{
  guint n_pages;

  g_return_if_fail (length <= lychee_cache_get_length (cache));

  g_mutex_lock (&cache->index_lock);
  g_mutex_lock (&cache->lock);
  if (length == 0)
    cache->head = cache->skip = 0;
  else if (cache->skip > 0)
    length = MAX (length, cache->head + cache->skip);
  n_pages = (length + LYCHEE_CACHE_PAGE_MASK) >> LYCHEE_CACHE_PAGE_SHIFT;
  /* The page becomes the open one again, which is written to. */
  if ((length & LYCHEE_CACHE_PAGE_MASK) != 0 &&
      !own_pages (cache, n_pages - 1, length & LYCHEE_CACHE_PAGE_MASK, NULL)) {
    n_pages--;
    length = n_pages << LYCHEE_CACHE_PAGE_SHIFT;
  }
  g_atomic_int_set (&cache->length, length);
  cache->local_begin = MIN (cache->local_begin, length);
  if ((length & LYCHEE_CACHE_PAGE_MASK) != 0)
    lychee_cache_page_limit_peers (cache->pages[0][n_pages - 1], length & LYCHEE_CACHE_PAGE_MASK);
  lychee_cache_empty_stale (cache);
  if (cache->indexes)
    lychee_cache_truncate_indexes (cache, length);
  while (cache->n_pages > n_pages)
    drop_pages (cache, --cache->n_pages);
  lychee_cache_forget_chunks (cache, length, G_MAXUINT);
  if (length == 0) { /* what comes is as in a new one */
    g_array_set_size (cache->start, 0);
    cache->bare = FALSE;
    cache->n_bare_indexes = 0;
  }
  g_mutex_unlock (&cache->lock);
  g_mutex_unlock (&cache->index_lock);
}

void
lychee_cache_set_start (LycheeCache *cache, const gint32 *ids, guint n)
{
  g_mutex_lock (&cache->lock);
  g_array_set_size (cache->start, 0);
  g_array_append_vals (cache->start, ids, n);
  g_mutex_unlock (&cache->lock);
}

const gint32 *
lychee_cache_get_start (LycheeCache *cache, guint *n)
{
  *n = cache->start->len;
  return (const gint32 *) (gpointer) cache->start->data;
}

void
lychee_cache_get_hole (LycheeCache *cache, guint *begin, guint *n)
{
  *begin = cache->head;
  *n = cache->skip;
}

void
lychee_cache_set_origin (LycheeCache *cache, guint origin)
{
  cache->origin = origin;
}

guint
lychee_cache_get_origin (LycheeCache *cache)
{
  return cache->origin;
}

/* Copies the rows of @start over the first ones. With the lock, and pages of its own. */
static void
put_start (LycheeCache *cache, LycheeCache *start, guint kind)
{
  for (guint at = 0; at < start->n_pages; at++) {
    lychee_cache_page_limit_peers (cache->pages[kind][at], 0);
    lychee_cache_page_copy_rows (cache, kind, start->pages[kind][at], cache->pages[kind][at],
        MIN (LYCHEE_CACHE_PAGE_TOKENS, start->length - at * LYCHEE_CACHE_PAGE_TOKENS));
  }
}

gboolean
lychee_cache_forget (LycheeCache *cache, LycheeCache *start, guint end, GError **error)
{
  guint head = lychee_cache_get_length (start), length = lychee_cache_get_length (cache);
  guint heads = cache->n_layers * cache->n_kv_heads;
  /* Local layers that hold all that stays hold the start, too: their window may reach it. */
  gboolean with_local = cache->local_begin <= end, ok = TRUE;

  g_return_val_if_fail (head <= end && end <= length, FALSE);
  g_return_val_if_fail (cache->skip == 0 || head == cache->head, FALSE);

  if (end < head + cache->skip || (end == head + cache->skip && cache->local_begin == 0))
    return TRUE;
  g_mutex_lock (&cache->index_lock);
  g_mutex_lock (&cache->lock);
  for (guint at = 0; ok && at < start->n_pages; at++)
    ok = lychee_cache_own_page (cache, 0, at, LYCHEE_CACHE_PAGE_TOKENS, error) &&
         (!with_local || lychee_cache_own_page (cache, 1, at, LYCHEE_CACHE_PAGE_TOKENS, error));
  if (ok) {
    lychee_cache_empty_stale (cache);
    for (guint i = 0; cache->indexes && i < heads; i++)
      if (cache->indexes[i]) {
        LycheeRows rows;

        lychee_cache_get_rows (cache, i / cache->n_kv_heads, i % cache->n_kv_heads, &rows);
        lychee_index_forget (cache->indexes[i], &rows, end);
      }
    put_start (cache, start, 0);
    if (with_local) {
      put_start (cache, start, 1);
      cache->local_begin = 0;
    }
    cache->head = head;
    cache->skip = end - head;
    for (guint at = start->n_pages; (at + 1) << LYCHEE_CACHE_PAGE_SHIFT <= end; at++)
      drop_pages (cache, at);
    lychee_cache_forget_chunks (cache, head, end);
  }
  g_mutex_unlock (&cache->lock);
  g_mutex_unlock (&cache->index_lock);
  return ok;
}

/**
 * lychee_cache_read:
 * @first: first token
 * @n: number of tokens
 * @to: (out caller-allocates): room for @n times [method@Cache.get_token_bytes]
 *
 * Copies keys and values as `[layer][K then V][kv-head][token][head-dim]`, half floats; in a cache
 * of the form q8_0, as the blocks of 34 bytes that hold 32 values each. Tokens that the cache does
 * not hold (any more) read as zero.
 */
void
lychee_cache_read (LycheeCache *cache, guint first, guint n, guint16 *to)
{
  gsize d = cache->row_size;
  guint length;

  g_mutex_lock (&cache->lock);
  length = lychee_cache_get_length (cache);
  for (guint layer = 0; layer < cache->n_layers; layer++)
    for (guint v = 0; v < 2; v++)
      for (guint head = 0; head < cache->n_kv_heads; head++)
        for (guint t = first; t < first + n; t++, to += d) {
          if (t >= length || (t >= cache->head && t < cache->head + cache->skip) ||
              (t < cache->local_begin && cache->kind[layer] == 1)) {
            memset (to, 0, d * sizeof *to);
            continue;
          }
          memcpy (to,
              cache->table[(gsize) (layer * cache->n_kv_heads + head) * cache->max_pages +
                           (t >> LYCHEE_CACHE_PAGE_SHIFT)] +
                  v * lychee_cache_head_size (cache) + (t & LYCHEE_CACHE_PAGE_MASK) * d,
              d * sizeof *to);
        }
  g_mutex_unlock (&cache->lock);
}

void
lychee_cache_get_rows (LycheeCache *cache, guint layer, guint kv_head, LycheeRows *rows)
{
  rows->pages = cache->table + (gsize) (layer * cache->n_kv_heads + kv_head) * cache->max_pages;
  rows->page_shift = LYCHEE_CACHE_PAGE_SHIFT;
  rows->value_offset = lychee_cache_head_size (cache);
  rows->form = cache->form;
}

LycheePeer *
lychee_cache_get_peer (LycheeCache *cache, guint at, gconstpointer owner)
{
  LycheeCachePage *page = cache->pages[0][at];
  LycheePeer *peer;

  if (!page)
    return NULL;
  for (GSList *l = page->peers; l; l = l->next)
    if (((LycheePeer *) l->data)->owner == owner)
      return l->data;
  peer = g_new0 (LycheePeer, 1);
  peer->owner = owner;
  page->peers = g_slist_prepend (page->peers, peer);
  return peer;
}

const guint16 *
lychee_cache_get_part (LycheeCache *cache, guint at, guint layer)
{
  return cache->table[(gsize) layer * cache->n_kv_heads * cache->max_pages + at];
}

guint16 *
lychee_cache_get_writable (LycheeCache *cache, guint layer, guint kv_head, guint token)
{
  guint kind = cache->kind[layer];
  gsize part = (gsize) (cache->slot[layer] * cache->n_kv_heads + kv_head) * 2;

  return cache->pages[kind][token >> LYCHEE_CACHE_PAGE_SHIFT]->data +
         part * lychee_cache_head_size (cache) +
         (gsize) (token & LYCHEE_CACHE_PAGE_MASK) * cache->row_size;
}

void
lychee_cache_set_form (LycheeCache *cache, LycheeRowForm form)
{
  g_return_if_fail (cache->n_pages == 0);
  g_return_if_fail (lychee_cache_has_form (cache->head_dim, form));

  cache->form = form;
  cache->row_size = lychee_row_size (form, cache->head_dim);
}

gboolean
lychee_cache_has_form (guint head_dim, LycheeRowForm form)
{
  return form == LYCHEE_ROW_F16 || head_dim % LYCHEE_Q8_VALUES == 0;
}

LycheeRowForm
lychee_cache_get_form (LycheeCache *cache)
{
  return cache->form;
}

void
lychee_cache_set_rope_context (LycheeCache *cache, guint n_context)
{
  g_return_if_fail (lychee_cache_get_length (cache) == 0);

  cache->rope_context = n_context;
}

guint
lychee_cache_get_rope_context (LycheeCache *cache)
{
  return cache->rope_context;
}
