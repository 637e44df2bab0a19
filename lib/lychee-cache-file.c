/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* A cache in a file: its pages and its indexes. */

#include "lychee-cache-object.h"

#include <string.h>

static const guint32 page_sections[] = { LYCHEE_CACHE_FILE_PAGE, LYCHEE_CACHE_FILE_LOCAL };

/* Bytes of @n rows of all of a page's parts, and how many parts there are. */
static gsize
rows_size (LycheeCache *cache, guint kind, guint n, guint *n_parts)
{
  *n_parts = cache->n_of_kind[kind] * cache->n_kv_heads * 2;
  return (gsize) *n_parts * n * cache->row_size * sizeof (guint16);
}

/* The first @n rows of a page: of the last one, which may not be full, its rows alone. */
static gboolean
save_page (
    LycheeCache *cache, guint kind, guint at, guint n, LycheeFileWriter *writer, GError **error)
{
  guint n_parts;
  gsize size = rows_size (cache, kind, n, &n_parts), part = n_parts > 0 ? size / n_parts : 0;
  const guint16 *data = cache->pages[kind][at]->data;
  g_autofree guint8 *packed = NULL;

  if (n < LYCHEE_CACHE_PAGE_TOKENS) {
    packed = g_malloc (size);
    for (guint i = 0; i < n_parts; i++)
      memcpy (packed + i * part, data + i * lychee_cache_head_size (cache), part);
  }
  lychee_file_writer_begin (writer, page_sections[kind], at);
  return lychee_file_writer_write (writer, packed ? (gconstpointer) packed : data, size, error) &&
         lychee_file_writer_end (writer, error);
}

gboolean
lychee_cache_save (
    LycheeCache *cache, LycheeFileWriter *writer, GCancellable *cancellable, GError **error)
{
  guint length = lychee_cache_get_length (cache), heads = cache->n_layers * cache->n_kv_heads;

  for (guint at = 0; at << LYCHEE_CACHE_PAGE_SHIFT < length; at++)
    for (guint kind = 0; kind < 2; kind++) {
      guint n = MIN (length - (at << LYCHEE_CACHE_PAGE_SHIFT), LYCHEE_CACHE_PAGE_TOKENS);

      if (g_cancellable_set_error_if_cancelled (cancellable, error))
        return FALSE;
      if (cache->pages[kind][at] && cache->n_of_kind[kind] > 0 &&
          !save_page (cache, kind, at, n, writer, error))
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

void
lychee_cache_get_extent (LycheeCache *cache, LycheeCacheExtent *extent)
{
  *extent = (LycheeCacheExtent){ lychee_cache_get_length (cache), cache->head, cache->skip,
    cache->local_begin };
}

static gboolean
set_damaged (GError **error)
{
  g_set_error_literal (error, LYCHEE_FILE_ERROR, LYCHEE_FILE_ERROR_DAMAGED,
      "The file cannot be used: what is in it does not fit together");
  return FALSE;
}

/* Whether every row of an index is one of a page. */
static gboolean
covers (LycheeCache *cache, LycheeIndex *index)
{
  guint begin = lychee_index_get_begin (index), end = lychee_index_get_end (index);
  guint first = cache->skip > 0 ? cache->head + cache->skip : 0;

  return begin == end || (begin >= first && end <= (guint) cache->length);
}

/* Whether there are caches of that extent. */
static gboolean
is_possible (LycheeCache *cache, const LycheeCacheExtent *e)
{
  if (e->length > 1u << 30 || e->skip > e->length || e->head > e->length - e->skip ||
      (e->skip == 0 && e->head > 0) || e->length - e->skip > cache->max_tokens)
    return FALSE;
  return e->local_begin == 0 ||
         (cache->local_window > 0 && e->local_begin <= e->length &&
             (e->skip == 0 || e->local_begin <= e->head || e->local_begin >= e->head + e->skip));
}

/* Page @at, where rows of it are held: the file has its first @n. A full one stays in the file; the
 * last one, of which the file has no more than these, is written to soon. */
static gboolean
load_page (LycheeCache *cache, LycheeFile *file, guint kind, guint at, guint n, GError **error)
{
  guint first = at << LYCHEE_CACHE_PAGE_SHIFT, end = first + LYCHEE_CACHE_PAGE_TOKENS, n_parts;
  gsize wanted = rows_size (cache, kind, n, &n_parts), part = n_parts > 0 ? wanted / n_parts : 0;
  gsize size = 0;
  guint8 *data = NULL;
  LycheeCachePage *page;

  if (first >= cache->head && end <= cache->head + cache->skip) /* forgotten */
    return TRUE;
  if (kind == 1 && end <= cache->local_begin) /* let go */
    return TRUE;
  if (n_parts > 0)
    data = lychee_file_get (file, page_sections[kind], at, &size);
  if (size != wanted || (!data && n_parts > 0))
    return set_damaged (error);
  if (n == LYCHEE_CACHE_PAGE_TOKENS)
    page = lychee_cache_page_new_in_file (cache, kind, file, data, error);
  else
    page = lychee_cache_page_new (cache, kind, error);
  if (!page)
    return FALSE;
  for (guint i = 0; n < LYCHEE_CACHE_PAGE_TOKENS && i < n_parts; i++)
    memcpy (page->data + i * lychee_cache_head_size (cache), data + i * part, part);
  lychee_cache_put_page (cache, kind, at, page);
  return TRUE;
}

gboolean
lychee_cache_load (
    LycheeCache *cache, LycheeFile *file, const LycheeCacheExtent *extent, GError **error)
{
  guint heads = cache->n_layers * cache->n_kv_heads, length = extent->length;
  guint n_pages = (length + LYCHEE_CACHE_PAGE_MASK) >> LYCHEE_CACHE_PAGE_SHIFT;

  g_return_val_if_fail (lychee_cache_get_length (cache) == 0, FALSE);

  if (!is_possible (cache, extent))
    return set_damaged (error);
  g_mutex_lock (&cache->lock);
  lychee_cache_grow_tables (cache, n_pages);
  g_mutex_unlock (&cache->lock);
  cache->head = extent->head;
  cache->skip = extent->skip;
  cache->local_begin = extent->local_begin;
  for (guint at = 0; at < n_pages; at++) {
    guint n = MIN (length - (at << LYCHEE_CACHE_PAGE_SHIFT), LYCHEE_CACHE_PAGE_TOKENS);

    cache->n_pages = at + 1;
    if (!load_page (cache, file, 0, at, n, error) || !load_page (cache, file, 1, at, n, error))
      return FALSE;
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
