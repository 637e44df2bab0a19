/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "lychee-cache.h"
#include "lychee-file.h"
#include "lychee-index.h"

G_BEGIN_DECLS

#define LYCHEE_CACHE_PAGE_SHIFT 8
#define LYCHEE_CACHE_PAGE_TOKENS (1u << LYCHEE_CACHE_PAGE_SHIFT)

/* Inside a page: [layer][kv-head][K then V][token][head-dim], so that the keys of a head that one
 * page holds are one run, and a key's value lies a fixed distance behind it. */

/* The rows of a layer and KV head. Valid as long as the cache is, for tokens that are reserved. */
void lychee_cache_get_rows (LycheeCache *cache, guint layer, guint kv_head, LycheeRows *rows);

/* The key of a token that is reserved but not yet committed, for writing (its value lies
 * @value_offset of the rows behind it). */
guint16 *lychee_cache_get_writable (LycheeCache *cache, guint layer, guint kv_head, guint token);

/* What a device holds of a page that is in the host's memory too. It goes with the page, to forks
 * also. @rows: so many of the page's first rows are there; cutting the cache and writing over rows
 * lowers it. Whoever @owner is guards against other threads: full pages are shared between forks.
 */
typedef struct {
  gconstpointer owner;
  gpointer data;
  guint rows;
  void (*free) (gconstpointer owner, gpointer data); /* in any thread */
} LycheePeer;

/* (nullable): where the page was forgotten. Makes an empty one (no @data) if need be. */
LycheePeer *lychee_cache_get_peer (LycheeCache *cache, guint page, gconstpointer owner);
/* The page as a whole, [layer][kv-head][K then V][token][head-dim]. */
const guint16 *lychee_cache_get_page (LycheeCache *cache, guint page);

/* The index over the keys, one for each layer and KV head. The first @sinks tokens are never in it,
 * and the last @window ones and a few more are not in it yet. Only while the cache is empty. */
typedef struct {
  LycheeGranularity granularity;
  guint sinks;
  guint window;
  float scale;           /* of q.k; 0: 1 / sqrt (head_dim) */
  float cap;             /* cap tanh (scale q.k / cap); 0: none */
  const gboolean *local; /* (nullable): [n_layers], those that have no index; copied */
} LycheeCacheIndexing;

void lychee_cache_enable_index (LycheeCache *cache, const LycheeCacheIndexing *indexing);
const LycheeCacheIndexing *lychee_cache_get_indexing (LycheeCache *cache); /* NULL: no index */
/* NULL: a local layer */
LycheeIndex *lychee_cache_get_index (LycheeCache *cache, guint layer, guint kv_head);
guint64 lychee_cache_get_index_bytes (LycheeCache *cache);

/* The context that its keys are rotated for, 0: as the model was trained (see
 * lychee_model_get_stretch ()). Forks have the same. Only while the cache is empty. */
void lychee_cache_set_rope_context (LycheeCache *cache, guint n_context);
guint lychee_cache_get_rope_context (LycheeCache *cache);

/* Whether keys are kept before rotation, and get positions when they are read. Forks are the same.
 * Only while the cache is empty. */
void lychee_cache_set_packed (LycheeCache *cache, gboolean packed);
gboolean lychee_cache_get_packed (LycheeCache *cache);

/* Around anything that changes the indexes: a fork in another thread waits for it. */
void lychee_cache_lock_index (LycheeCache *cache);
void lychee_cache_unlock_index (LycheeCache *cache);

/* The tokens that the prompt begins with, before the transcript: the system's turn and what leads
 * to the transcript. (transfer none), until the cache is set another start or cut to nothing. */
void lychee_cache_set_start (LycheeCache *cache, const gint32 *ids, guint n);
const gint32 *lychee_cache_get_start (LycheeCache *cache, guint *n);

/* Position of the first token, 0 unless set: that of row r is @origin + r. */
void lychee_cache_set_origin (LycheeCache *cache, guint origin);
guint lychee_cache_get_origin (LycheeCache *cache);

/* Forgets the rows up to @end, but for those of the prompt's start, which move to right before
 * @end: @start holds them, computed at these positions (its origin is @end less its length). Frees
 * the pages that nothing is left in. Rows keep their numbers, and the length what it is; what
 * counts for the context is the number held. FALSE, and nothing has changed, with NO_MEMORY, which
 * can only be where a fork shares the pages of the start. Belongs to the appending thread. */
gboolean lychee_cache_forget (LycheeCache *cache, LycheeCache *start, guint end, GError **error);
/* Rows @begin .. @begin + @n - 1 were forgotten; both 0 where none were. */
void lychee_cache_get_hole (LycheeCache *cache, guint *begin, guint *n);
/* The length less what was forgotten. */
guint lychee_cache_get_n_held (LycheeCache *cache);

/* Tokens of the transcript that were not read for want of room, and that were forgotten for it. A
 * fork has the numbers of the moment it was made. */
void lychee_cache_count_lost (LycheeCache *cache, guint64 n_left_out, guint64 n_forgotten);
void lychee_cache_get_lost (LycheeCache *cache, guint64 *n_left_out, guint64 *n_forgotten);
/* Bytes of pages and indexes when there will be @n tokens more. Counts the indexes for the family's
 * limit: call it on the cache that grows. */
guint64 lychee_cache_get_bytes_with (LycheeCache *cache, guint n);

/* Kinds of sections. */
#define LYCHEE_CACHE_FILE_PAGE 1  /* number: of the page */
#define LYCHEE_CACHE_FILE_INDEX 2 /* number: layer x KV heads + KV head */

/* Writes keys, values and indexes: of a fork, which nobody else changes. */
gboolean lychee_cache_save (
    LycheeCache *cache, LycheeFileWriter *writer, GCancellable *cancellable, GError **error);
/* Fills an empty cache, whose indexes are enabled as the saved one's were. Keys and values stay in
 * the file until they are read, or written over. On an error the cache can only be freed. Does not
 * set start, chunks and what was lost. */
gboolean lychee_cache_load (
    LycheeCache *cache, LycheeFile *file, guint length, guint head, guint skip, GError **error);

/* Where the chunk ends that token @position belongs to; @position + 1 or more, in steps of at most
 * @otherwise where no chunk was noted. */
guint lychee_cache_get_item_end (LycheeCache *cache, guint position, guint otherwise);

G_END_DECLS
