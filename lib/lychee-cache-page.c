/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* The pages of a cache, and the memory that they may take together. */

#include "lychee-cache-object.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define HUGE_PAGE ((gsize) 2 << 20)
#define SYSTEM_PAGE ((gsize) 64 << 10) /* the largest that Linux has */

LycheeCacheBudget *
lychee_cache_budget_ref (LycheeCacheBudget *budget)
{
  g_atomic_ref_count_inc (&budget->refs);
  return budget;
}

void
lychee_cache_budget_unref (LycheeCacheBudget *budget)
{
  if (g_atomic_ref_count_dec (&budget->refs)) {
    g_mutex_clear (&budget->lock);
    g_free (budget);
  }
}

static gboolean
budget_take (LycheeCacheBudget *budget, gsize bytes, GError **error)
{
  guint64 taken;
  gboolean fits;

  g_mutex_lock (&budget->lock);
  taken = budget->bytes + budget->index_bytes;
  fits = budget->max_bytes == 0 || bytes <= budget->max_bytes - MIN (budget->max_bytes, taken);
  if (fits)
    budget->bytes += bytes;
  else
    g_set_error (error, LYCHEE_CACHE_ERROR, LYCHEE_CACHE_ERROR_NO_MEMORY,
        "The KV cache needs %.1f MB more, and %.1f of the %.1f MB that it may use are taken: raise "
        "max-memory or read less",
        bytes / 1e6, taken / 1e6, budget->max_bytes / 1e6);
  g_mutex_unlock (&budget->lock);
  return fits;
}

static void
budget_give (LycheeCacheBudget *budget, gsize bytes)
{
  g_mutex_lock (&budget->lock);
  budget->bytes -= bytes;
  g_mutex_unlock (&budget->lock);
}

gsize
lychee_cache_page_size (LycheeCache *cache, guint kind)
{
  return cache->n_of_kind[kind] * cache->n_kv_heads * 2 * lychee_cache_head_size (cache) *
         sizeof (guint16);
}

/* Rows are read here and there: in huge pages, to the last one, there are far fewer TLB misses.
 * Where that would add more than an eighth, the last rows go without. */
gsize
lychee_cache_page_memory (gsize bytes)
{
  gsize more = -bytes % HUGE_PAGE;

  if (more <= bytes / 8)
    return bytes + more;
  return bytes < HUGE_PAGE ? bytes : bytes + -bytes % SYSTEM_PAGE;
}

/* Large ones are not the allocator's: an answer's copy of the last page comes and goes, and would
 * leave holes between what stays. NULL: there is no memory. */
static gpointer
take_memory (gsize bytes)
{
  gpointer data = NULL;
  guint8 *begin;
  gsize before;

  if (bytes < HUGE_PAGE)
    return posix_memalign (&data, 4096, bytes) == 0 ? data : NULL;
  begin =
      mmap (NULL, bytes + HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (begin == MAP_FAILED)
    return NULL;
  before = -GPOINTER_TO_SIZE (begin) % HUGE_PAGE;
  if (before > 0)
    munmap (begin, before);
  munmap (begin + before + bytes, HUGE_PAGE - before);
#ifdef MADV_HUGEPAGE
  madvise (begin + before, bytes, MADV_HUGEPAGE);
#endif
  return begin + before;
}

static void
give_memory (gpointer data, gsize bytes)
{
  if (bytes < HUGE_PAGE)
    free (data);
  else
    munmap (data, bytes);
}

LycheeCachePage *
lychee_cache_page_new (LycheeCache *cache, guint kind, GError **error)
{
  gsize bytes = lychee_cache_page_memory (lychee_cache_page_size (cache, kind));
  LycheeCachePage *page;
  gpointer data;

  if (!budget_take (cache->budget, bytes, error))
    return NULL;
  data = bytes > 0 ? take_memory (bytes) : NULL;
  if (bytes > 0 && !data) {
    budget_give (cache->budget, bytes);
    g_set_error (error, LYCHEE_CACHE_ERROR, LYCHEE_CACHE_ERROR_NO_MEMORY,
        "The system has no memory for %.1f MB more of KV cache", bytes / 1e6);
    return NULL;
  }
  page = g_new0 (LycheeCachePage, 1);
  g_atomic_ref_count_init (&page->refs);
  page->budget = lychee_cache_budget_ref (cache->budget);
  page->bytes = bytes;
  page->data = data;
  page->file = NULL;
  return page;
}

/* A page whose data is in a file. It counts as memory, which it takes once it is read. */
LycheeCachePage *
lychee_cache_page_new_in_file (
    LycheeCache *cache, guint kind, LycheeFile *file, gpointer data, GError **error)
{
  LycheeCachePage *page;

  if (!budget_take (cache->budget, lychee_cache_page_size (cache, kind), error))
    return NULL;
  page = g_new (LycheeCachePage, 1);
  *page = (LycheeCachePage){ .budget = lychee_cache_budget_ref (cache->budget),
    .bytes = lychee_cache_page_size (cache, kind),
    .data = data,
    .file = lychee_file_ref (file) };
  g_atomic_ref_count_init (&page->refs);
  return page;
}

void
lychee_cache_page_unref (LycheeCachePage *page)
{
  if (g_atomic_ref_count_dec (&page->refs)) {
    budget_give (page->budget, page->bytes);
    lychee_cache_budget_unref (page->budget);
    for (GSList *l = page->peers; l; l = l->next) {
      LycheePeer *peer = l->data;

      if (peer->data)
        peer->free (peer->owner, peer->data);
      g_free (peer);
    }
    g_slist_free (page->peers);
    if (page->file)
      lychee_file_unref (page->file);
    else
      give_memory (page->data, page->bytes);
    g_free (page);
  }
}

/* Devices have at most @n rows of it that are still right. */
void
lychee_cache_page_limit_peers (LycheeCachePage *page, guint n)
{
  for (GSList *l = page->peers; l; l = l->next) {
    LycheePeer *peer = l->data;

    peer->rows = MIN (peer->rows, n);
  }
}

/* 16-bit units of one head's keys (or values) in a page. */
gsize
lychee_cache_head_size (LycheeCache *cache)
{
  return (gsize) LYCHEE_CACHE_PAGE_TOKENS * cache->row_size;
}

/* Copies the first @n tokens of a page. */
void
lychee_cache_page_copy_rows (
    LycheeCache *cache, guint kind, const LycheeCachePage *from, LycheeCachePage *to, guint n)
{
  guint parts = cache->n_of_kind[kind] * cache->n_kv_heads * 2;

  for (guint i = 0; i < parts; i++)
    memcpy (to->data + i * lychee_cache_head_size (cache),
        from->data + i * lychee_cache_head_size (cache),
        (gsize) n * cache->row_size * sizeof (guint16));
}
