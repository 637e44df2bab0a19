/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Which chunks a cache has, and where. */

#include "lychee-cache-object.h"

void
lychee_cache_entry_clear (gpointer data)
{
  lychee_chunk_unref (((LycheeCacheEntry *) data)->chunk);
}

/* Forgets the chunks that have tokens in begin .. end - 1. With the lock. */
void
lychee_cache_forget_chunks (LycheeCache *cache, guint begin, guint end)
{
  guint first = 0, last;

  while (first < cache->entries->len) {
    LycheeCacheEntry *entry = &g_array_index (cache->entries, LycheeCacheEntry, first);

    if (entry->position + entry->chunk->n_ids > begin)
      break;
    first++;
  }
  for (last = first; last < cache->entries->len; last++)
    if (g_array_index (cache->entries, LycheeCacheEntry, last).position >= end)
      break;
  if (last > first)
    g_array_remove_range (cache->entries, first, last - first);
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
  LycheeCacheEntry entry = { lychee_chunk_ref (chunk), position };

  g_mutex_lock (&cache->lock);
  g_array_append_val (cache->entries, entry);
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
  n = cache->entries->len;
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
  if (i < cache->entries->len) {
    LycheeCacheEntry *entry = &g_array_index (cache->entries, LycheeCacheEntry, i);

    chunk = lychee_chunk_ref (entry->chunk);
    if (position)
      *position = entry->position;
  }
  g_mutex_unlock (&cache->lock);
  return chunk;
}

guint
lychee_cache_get_item_end (LycheeCache *cache, guint position, guint otherwise)
{
  guint low = 0, high, end = position + otherwise;

  g_mutex_lock (&cache->lock);
  high = cache->entries->len;
  while (low < high) { /* the first chunk that ends behind the position */
    guint middle = (low + high) / 2;
    LycheeCacheEntry *entry = &g_array_index (cache->entries, LycheeCacheEntry, middle);

    if (entry->position + entry->chunk->n_ids > position)
      high = middle;
    else
      low = middle + 1;
  }
  if (low < cache->entries->len) {
    LycheeCacheEntry *entry = &g_array_index (cache->entries, LycheeCacheEntry, low);

    if (entry->position <= position)
      end = entry->position + entry->chunk->n_ids;
    else
      end = MIN (end, entry->position);
  }
  g_mutex_unlock (&cache->lock);
  return end;
}
