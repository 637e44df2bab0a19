/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Which chunks a cache has, and where. */

#include "lychee-cache-object.h"

typedef struct {
  LycheeChunk *chunk;
  guint begin, end; /* tokens, so that nobody who looks for a place has to fetch the chunks */
} Entry;

/* A list that only grows at its end. Forks share it, each knowing how many of its entries are its
 * own: a snapshot of a long transcript costs no more than that of a short one. Who has to change
 * what another one may see makes a list of its own. */
struct _LycheeCacheChunks {
  gatomicrefcount refs;
  GMutex lock;     /* taken after that of a cache */
  GArray *entries; /* of Entry, ascending */
};

static void
clear_entry (gpointer data)
{
  lychee_chunk_unref (((Entry *) data)->chunk);
}

LycheeCacheChunks *
lychee_cache_chunks_new (void)
{
  LycheeCacheChunks *chunks = g_new0 (LycheeCacheChunks, 1);

  g_atomic_ref_count_init (&chunks->refs);
  g_mutex_init (&chunks->lock);
  chunks->entries = g_array_new (FALSE, FALSE, sizeof (Entry));
  g_array_set_clear_func (chunks->entries, clear_entry);
  return chunks;
}

LycheeCacheChunks *
lychee_cache_chunks_ref (LycheeCacheChunks *chunks)
{
  g_atomic_ref_count_inc (&chunks->refs);
  return chunks;
}

void
lychee_cache_chunks_unref (LycheeCacheChunks *chunks)
{
  if (!g_atomic_ref_count_dec (&chunks->refs))
    return;
  g_array_unref (chunks->entries);
  g_mutex_clear (&chunks->lock);
  g_free (chunks);
}

/* The entries that the cache has, in a list of its own. With the lock of the cache. */
static GArray *
make_own (LycheeCache *cache)
{
  LycheeCacheChunks *shared = cache->chunks;
  gboolean alone = g_atomic_ref_count_compare (&shared->refs, 1);

  if (!alone) {
    cache->chunks = lychee_cache_chunks_new ();
    g_mutex_lock (&shared->lock);
    g_array_append_vals (cache->chunks->entries, shared->entries->data, cache->n_chunks);
    for (guint i = 0; i < cache->n_chunks; i++)
      lychee_chunk_ref (g_array_index (shared->entries, Entry, i).chunk);
    g_mutex_unlock (&shared->lock);
    lychee_cache_chunks_unref (shared);
  }
  g_array_set_size (cache->chunks->entries, cache->n_chunks);
  return cache->chunks->entries;
}

/* Appends to the list that others see the beginning of, unless one of them has done so. */
static gboolean
append_shared (LycheeCache *cache, const Entry *entry)
{
  LycheeCacheChunks *chunks = cache->chunks;
  gboolean is_end;

  g_mutex_lock (&chunks->lock);
  is_end = chunks->entries->len == cache->n_chunks;
  if (is_end)
    g_array_append_vals (chunks->entries, entry, 1);
  g_mutex_unlock (&chunks->lock);
  return is_end;
}

/* The first of its entries that ends behind @position, or n_chunks. With both locks. */
static guint
find_entry (LycheeCache *cache, guint position)
{
  guint low = 0, high = cache->n_chunks;

  while (low < high) {
    guint middle = (low + high) / 2;
    const Entry *entry = &g_array_index (cache->chunks->entries, Entry, middle);

    if (entry->end > position)
      high = middle;
    else
      low = middle + 1;
  }
  return low;
}

/* Forgets the chunks that have tokens in begin .. end - 1. With the lock. */
void
lychee_cache_forget_chunks (LycheeCache *cache, guint begin, guint end)
{
  GArray *entries;
  guint first, last;

  g_mutex_lock (&cache->chunks->lock);
  first = last = find_entry (cache, begin);
  while (last < cache->n_chunks && g_array_index (cache->chunks->entries, Entry, last).begin < end)
    last++;
  g_mutex_unlock (&cache->chunks->lock);
  if (last == first)
    return;
  entries = make_own (cache);
  g_array_remove_range (entries, first, last - first);
  cache->n_chunks = entries->len;
}

/**
 * lychee_cache_add_chunk:
 * @cache: a cache
 * @chunk: a chunk
 * @position: where its tokens begin
 *
 * Notes where the tokens of a chunk are.
 */
void
lychee_cache_add_chunk (LycheeCache *cache, LycheeChunk *chunk, guint position)
{
  Entry entry = { lychee_chunk_ref (chunk), position, position + chunk->n_ids };

  g_mutex_lock (&cache->lock);
  if (!append_shared (cache, &entry))
    g_array_append_val (make_own (cache), entry);
  cache->n_chunks++;
  g_mutex_unlock (&cache->lock);
}

/**
 * lychee_cache_get_n_chunks:
 * @cache: a cache
 *
 * Gets how many chunks the cache knows.
 *
 * Returns: chunks
 */
guint
lychee_cache_get_n_chunks (LycheeCache *cache)
{
  guint n;

  g_mutex_lock (&cache->lock);
  n = cache->n_chunks;
  g_mutex_unlock (&cache->lock);
  return n;
}

/**
 * lychee_cache_get_chunk:
 * @i: which, from 0
 * @position: (out) (optional): where its tokens begin
 *
 * Gets a chunk, and where its tokens are.
 *
 * Returns: (transfer full) (nullable): the chunk, or NULL if there are not so many
 */
LycheeChunk *
lychee_cache_get_chunk (LycheeCache *cache, guint i, guint *position)
{
  LycheeChunk *chunk = NULL;

  g_mutex_lock (&cache->lock);
  if (i < cache->n_chunks) {
    const Entry *entry;

    g_mutex_lock (&cache->chunks->lock);
    entry = &g_array_index (cache->chunks->entries, Entry, i);
    chunk = lychee_chunk_ref (entry->chunk);
    if (position)
      *position = entry->begin;
    g_mutex_unlock (&cache->chunks->lock);
  }
  g_mutex_unlock (&cache->lock);
  return chunk;
}

guint *
lychee_cache_list_chunks (LycheeCache *cache, guint *n_chunks)
{
  guint *places;

  g_mutex_lock (&cache->lock);
  places = g_new (guint, 2 * (gsize) cache->n_chunks + 1);
  g_mutex_lock (&cache->chunks->lock);
  for (guint i = 0; i < cache->n_chunks; i++) {
    const Entry *entry = &g_array_index (cache->chunks->entries, Entry, i);

    places[2 * i] = entry->begin;
    places[2 * i + 1] = entry->end;
  }
  g_mutex_unlock (&cache->chunks->lock);
  *n_chunks = cache->n_chunks;
  g_mutex_unlock (&cache->lock);
  return places;
}

guint
lychee_cache_get_item_end (LycheeCache *cache, guint position, guint otherwise)
{
  guint end = position + otherwise, i;

  g_mutex_lock (&cache->lock);
  g_mutex_lock (&cache->chunks->lock);
  i = find_entry (cache, position);
  if (i < cache->n_chunks) {
    const Entry *entry = &g_array_index (cache->chunks->entries, Entry, i);

    end = entry->begin <= position ? entry->end : MIN (end, entry->begin);
  }
  g_mutex_unlock (&cache->chunks->lock);
  g_mutex_unlock (&cache->lock);
  return end;
}
