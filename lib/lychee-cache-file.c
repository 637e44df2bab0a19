/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* A cache in a file: its pages and its indexes. */

#include "lychee-cache-object.h"

#include <string.h>

gboolean
lychee_cache_save (
    LycheeCache *cache, LycheeFileWriter *writer, GCancellable *cancellable, GError **error)
{
  guint length = lychee_cache_get_length (cache), heads = cache->n_layers * cache->n_kv_heads;
  gsize row = cache->head_dim * sizeof (guint16);
  g_autofree guint16 *packed = NULL; /* the last page, which may not be full: its rows alone */

  for (guint at = 0; at << LYCHEE_CACHE_PAGE_SHIFT < length; at++) {
    guint n = MIN (length - (at << LYCHEE_CACHE_PAGE_SHIFT), LYCHEE_CACHE_PAGE_TOKENS);
    const guint16 *data;

    if (g_cancellable_set_error_if_cancelled (cancellable, error))
      return FALSE;
    if (!cache->pages[at])
      continue;
    data = cache->pages[at]->data;
    if (n < LYCHEE_CACHE_PAGE_TOKENS) {
      packed = g_malloc (n * lychee_cache_get_token_bytes (cache));
      for (guint i = 0; i < heads * 2; i++)
        memcpy (
            (guint8 *) packed + i * n * row, data + i * lychee_cache_head_size (cache), n * row);
      data = packed;
    }
    lychee_file_writer_begin (writer, LYCHEE_CACHE_FILE_PAGE, at);
    if (!lychee_file_writer_write (writer, data, n * lychee_cache_get_token_bytes (cache), error) ||
        !lychee_file_writer_end (writer, error))
      return FALSE;
  }
  for (guint i = 0; cache->indexes && i < heads; i++) {
    g_autoptr (GByteArray) bytes = NULL;

    if (!cache->indexes[i])
      continue;
    bytes = g_byte_array_new ();
    lychee_index_write (cache->indexes[i], bytes);
    lychee_file_writer_begin (writer, LYCHEE_CACHE_FILE_INDEX, i);
    if (!lychee_file_writer_write (writer, bytes->data, bytes->len, error) ||
        !lychee_file_writer_end (writer, error))
      return FALSE;
  }
  return TRUE;
}

static gboolean
set_damaged (GError **error)
{
  g_set_error_literal (error, LYCHEE_FILE_ERROR, LYCHEE_FILE_ERROR_DAMAGED,
      "The file cannot be used: what is in it does not fit together");
  return FALSE;
}

/* (transfer full) (nullable): page @at, whose first @n rows the file has. A full one stays in the
 * file; the last one, of which the file has no more than these, is written to soon. */
static LycheeCachePage *
load_page (LycheeCache *cache, LycheeFile *file, guint at, guint n, GError **error)
{
  gsize size, row = cache->head_dim * sizeof (guint16);
  guint8 *data = lychee_file_get (file, LYCHEE_CACHE_FILE_PAGE, at, &size);
  LycheeCachePage *page;

  if (!data || size != n * lychee_cache_get_token_bytes (cache)) {
    set_damaged (error);
    return NULL;
  }
  if (n == LYCHEE_CACHE_PAGE_TOKENS)
    return lychee_cache_page_new_in_file (cache, file, data, error);
  page = lychee_cache_page_new (cache, error);
  for (guint i = 0; page && i < cache->n_layers * cache->n_kv_heads * 2; i++)
    memcpy (page->data + i * lychee_cache_head_size (cache), data + i * n * row, n * row);
  return page;
}

/* Whether every row of an index is one of a page. */
static gboolean
covers (LycheeCache *cache, LycheeIndex *index)
{
  guint begin = lychee_index_get_begin (index), end = lychee_index_get_end (index);
  guint first = cache->skip > 0 ? cache->head + cache->skip : 0;

  return begin == end || (begin >= first && end <= (guint) cache->length);
}

gboolean
lychee_cache_load (
    LycheeCache *cache, LycheeFile *file, guint length, guint head, guint skip, GError **error)
{
  guint heads = cache->n_layers * cache->n_kv_heads;
  guint n_pages = (length + LYCHEE_CACHE_PAGE_MASK) >> LYCHEE_CACHE_PAGE_SHIFT;

  g_return_val_if_fail (lychee_cache_get_length (cache) == 0, FALSE);

  if (length > 1u << 30 || skip > length || head > length - skip || (skip == 0 && head > 0) ||
      length - skip > cache->max_tokens)
    return set_damaged (error);
  g_mutex_lock (&cache->lock);
  lychee_cache_grow_tables (cache, n_pages);
  g_mutex_unlock (&cache->lock);
  cache->head = head;
  cache->skip = skip;
  for (guint at = 0; at < n_pages; at++) {
    guint first = at << LYCHEE_CACHE_PAGE_SHIFT, end = first + LYCHEE_CACHE_PAGE_TOKENS;
    LycheeCachePage *page;

    cache->n_pages = at + 1;
    if (first >= head && end <= head + skip) /* forgotten */
      continue;
    page = load_page (cache, file, at, MIN (length - first, LYCHEE_CACHE_PAGE_TOKENS), error);
    if (!page)
      return FALSE;
    lychee_cache_put_page (cache, at, page);
  }
  g_atomic_int_set (&cache->length, length);
  for (guint i = 0; cache->indexes && i < heads; i++) {
    LycheeIndexParams params;
    LycheeIndex *index;
    gconstpointer data;
    gsize size;

    if (!cache->indexes[i])
      continue;
    data = lychee_file_get (file, LYCHEE_CACHE_FILE_INDEX, i, &size);
    lychee_cache_get_index_params (cache, i, &params);
    index = data ? lychee_index_read (&params, data, size) : NULL;
    if (!index || !covers (cache, index)) {
      lychee_index_free (index);
      return set_damaged (error);
    }
    lychee_index_free (cache->indexes[i]);
    cache->indexes[i] = index;
  }
  return TRUE;
}
