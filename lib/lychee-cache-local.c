/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Layers that see only a window of the last tokens: pages that lie behind it are let go. */

#include "lychee-cache-object.h"

/* Tokens that are kept behind the window, so that a cut by a chunk or two leaves it whole. */
#define SLACK LYCHEE_CACHE_PAGE_TOKENS

void
lychee_cache_set_layers (LycheeCache *cache, const gboolean *local)
{
  cache->kind = g_renew (guint8, cache->kind, cache->n_layers);
  cache->slot = g_renew (guint, cache->slot, cache->n_layers);
  cache->n_of_kind[0] = cache->n_of_kind[1] = 0;
  for (guint i = 0; i < cache->n_layers; i++) {
    cache->kind[i] = local && local[i];
    cache->slot[i] = cache->n_of_kind[cache->kind[i]]++;
  }
}

void
lychee_cache_limit_layers (LycheeCache *cache, const gboolean *local, guint window)
{
  g_return_if_fail (cache->n_pages == 0);
  g_return_if_fail (window > 0);

  g_mutex_lock (&cache->lock);
  lychee_cache_set_layers (cache, local);
  cache->local_window = window;
  cache->local_keep = window + SLACK;
  g_mutex_unlock (&cache->lock);
}

guint
lychee_cache_get_local_window (LycheeCache *cache)
{
  return cache->local_window;
}

guint
lychee_cache_get_local_tokens (guint window, guint n)
{
  return window + SLACK + LYCHEE_CACHE_PAGE_TOKENS + n;
}

LycheeCache *
lychee_cache_new_like (LycheeCache *cache, guint max_tokens)
{
  LycheeCache *like =
      lychee_cache_new (cache->n_layers, cache->n_kv_heads, cache->head_dim, max_tokens, 0);

  lychee_cache_copy_form (cache, like);
  like->local_keep = G_MAXUINT;
  return like;
}

LycheeCache *
lychee_cache_new_beside (LycheeCache *cache, guint max_tokens)
{
  LycheeCache *beside =
      lychee_cache_new (cache->n_layers, cache->n_kv_heads, cache->head_dim, max_tokens, 0);

  lychee_cache_copy_form (cache, beside);
  lychee_cache_budget_unref (beside->budget);
  beside->budget = lychee_cache_budget_ref (cache->budget);
  return beside;
}

void
lychee_cache_copy_form (LycheeCache *from, LycheeCache *to)
{
  g_autofree gboolean *local = g_new (gboolean, from->n_layers);

  for (guint i = 0; i < from->n_layers; i++)
    local[i] = from->kind[i];
  lychee_cache_set_layers (to, local);
  to->local_window = from->local_window;
  to->local_keep = from->local_keep;
  to->form = from->form;
  to->row_size = from->row_size;
  to->rope_context = from->rope_context;
  to->packed = from->packed;
  to->bare = from->bare;
  to->n_bare_indexes = from->n_bare_indexes;
}

/* Rows of local layers from here on are held when there are @length. */
static guint
kept_from (LycheeCache *cache, guint length)
{
  guint place = length - cache->skip, begin = place - MIN (place, cache->local_keep);
  guint row = begin < cache->head ? begin : begin + cache->skip;

  return row >> LYCHEE_CACHE_PAGE_SHIFT << LYCHEE_CACHE_PAGE_SHIFT;
}

guint
lychee_cache_count_local_pages (LycheeCache *cache, guint length)
{
  guint n_pages = (length + LYCHEE_CACHE_PAGE_MASK) >> LYCHEE_CACHE_PAGE_SHIFT;

  return n_pages - (kept_from (cache, length) >> LYCHEE_CACHE_PAGE_SHIFT);
}

void
lychee_cache_drop_behind (LycheeCache *cache)
{
  guint length = lychee_cache_get_length (cache), from = kept_from (cache, length);

  if (cache->local_window == 0 || from <= cache->local_begin)
    return;
  g_mutex_lock (&cache->lock);
  for (guint at = 0; at < from >> LYCHEE_CACHE_PAGE_SHIFT; at++)
    lychee_cache_drop_page (cache, 1, at);
  cache->local_begin = from;
  if (from > cache->head && from < cache->head + cache->skip)
    cache->local_begin = cache->head + cache->skip;
  g_mutex_unlock (&cache->lock);
}

guint
lychee_cache_get_local_begin (LycheeCache *cache)
{
  guint begin = cache->local_begin;

  return begin > cache->head ? begin - cache->skip : begin;
}

gboolean
lychee_cache_has_window (LycheeCache *cache, guint length)
{
  guint begin = lychee_cache_get_local_begin (cache);

  if (length == 0 || begin == 0)
    return TRUE;
  if (cache->skip > 0) /* no cut goes further */
    length = MAX (length, cache->head + cache->skip);
  /* The next token sees itself, too. */
  return begin + cache->local_window <= length - cache->skip + 1;
}
