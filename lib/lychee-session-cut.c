/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Cutting what was read: local layers hold only the window before its end, and what they would need
 * before an earlier end is read again. */

#include "lychee-session-private.h"

/* So many windows are read again: the first one for those that follow, which see only a part of
 * theirs while it is read. */
#define WINDOWS_AGAIN 2

/* Where reading begins again for a cut to @length: at a chunk's beginning, or at 0. @chunks: gets
 * those from there to @length. */
static guint
get_restart (LycheeCache *cache, guint length, GPtrArray *chunks)
{
  guint again = WINDOWS_AGAIN * lychee_cache_get_local_window (cache), position, from = 0;
  guint head, skip;
  LycheeChunk *chunk;

  for (guint i = 0; (chunk = lychee_cache_get_chunk (cache, i, &position)); i++) {
    if (position + chunk->n_ids > length || position + chunk->n_ids + again <= length) {
      lychee_chunk_unref (chunk);
      continue;
    }
    if (chunks->len == 0 && i > 0)
      from = position;
    g_ptr_array_add (chunks, chunk);
  }
  lychee_cache_get_hole (cache, &head, &skip);
  return skip > 0 ? MAX (from, head + skip) : from;
}

/* The prompt's beginning is in reach of the windows, and has to be there again. */
static gboolean
restore_start (LycheeSession *s, LycheeWorker *worker, LycheeCache *cache, const GArray *ids,
    GCancellable *cancellable, GError **error)
{
  guint length = lychee_cache_get_length (cache);

  if (length > 0)
    return lychee_session_forget (s, worker, cache, length, cancellable, error);
  if (!lychee_session_prefill (s, worker, cache, (const gint32 *) ids->data, ids->len,
          LYCHEE_OUTPUT_NONE, NULL, cancellable, error))
    return FALSE;
  lychee_cache_set_start (cache, (const gint32 *) ids->data, ids->len);
  return TRUE;
}

gboolean
lychee_session_cut (LycheeSession *s, LycheeWorker *worker, LycheeCache *cache, guint length,
    GCancellable *cancellable, GError **error)
{
  g_autoptr (GPtrArray) chunks = NULL;
  g_autoptr (GArray) start = NULL;
  guint from, head, skip, n;
  const gint32 *ids;

  if (lychee_cache_has_window (cache, length)) {
    lychee_cache_truncate (cache, length);
    return TRUE;
  }
  ids = lychee_cache_get_start (cache, &n);
  start = g_array_sized_new (FALSE, FALSE, sizeof *ids, n);
  g_array_append_vals (start, ids, n);
  chunks = g_ptr_array_new_with_free_func ((GDestroyNotify) lychee_chunk_unref);
  from = get_restart (cache, length, chunks);
  lychee_cache_get_hole (cache, &head, &skip);
  lychee_cache_truncate (cache, from);
  if ((from == 0 || (skip > 0 && from == head + skip)) &&
      !restore_start (s, worker, cache, start, cancellable, error))
    return FALSE;
  for (guint i = 0; i < chunks->len; i++) {
    LycheeChunk *chunk = chunks->pdata[i];
    guint before = lychee_cache_get_length (cache);

    if (!lychee_session_prefill (s, worker, cache, chunk->ids, chunk->n_ids, LYCHEE_OUTPUT_NONE,
            NULL, cancellable, error)) {
      lychee_cache_truncate (cache, before);
      return FALSE;
    }
    lychee_cache_add_chunk (cache, chunk, before);
  }
  return TRUE;
}
