/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "lychee-cache.h"
#include "lychee-file.h"
#include "lychee-index.h"
#include "lychee-packed.h"

G_BEGIN_DECLS

#define LYCHEE_CACHE_PAGE_SHIFT 8
#define LYCHEE_CACHE_PAGE_TOKENS (1u << LYCHEE_CACHE_PAGE_SHIFT)

/* Inside a page: [layer][kv-head][K then V][token][head-dim], so that the keys of a head that one
 * page holds are one run, and a key's value lies a fixed distance behind it. Local layers whose
 * rows are let go behind their window have pages of their own. */

/* Bytes of memory that a page takes whose rows are of @bytes. */
gsize lychee_cache_page_memory (gsize bytes);

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
/* A layer's part of a page, [kv-head][K then V][token][head-dim]. (nullable): where it was let go.
 */
const guint16 *lychee_cache_get_part (LycheeCache *cache, guint page, guint layer);

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
/* Leaves and coarse nodes of all indexes, and the greatest depth; @n_coarse: (nullable): [n_layers]
 * the coarse nodes of each. */
void lychee_cache_describe_index (LycheeCache *cache, LycheeIndexStats *sum, guint64 *n_coarse);

/* How keys and values are kept, f16 unless set. Only while the cache is empty; forks have the same.
 */
void lychee_cache_set_form (LycheeCache *cache, LycheeRowForm form);
LycheeRowForm lychee_cache_get_form (LycheeCache *cache);
/* Whether heads of @head_dim can be of that form. */
gboolean lychee_cache_has_form (guint head_dim, LycheeRowForm form);

/* Lets layers that are local keep only the last @window rows and some more, to the page. Only while
 * the cache is empty; forks are the same. Unless this is called all layers keep all. */
void lychee_cache_limit_layers (LycheeCache *cache, const gboolean *local, guint window);
/* 0: all layers keep all */
guint lychee_cache_get_local_window (LycheeCache *cache);
/* First place (a row less what was forgotten before it) that local layers hold. */
guint lychee_cache_get_local_begin (LycheeCache *cache);
/* Whether local layers would have all that they see if the cache were cut to @length rows. Where
 * they have not, tokens that follow see what there is of their window. */
gboolean lychee_cache_has_window (LycheeCache *cache, guint length);
/* Tokens that a layer with such a window keeps at most, before the next page is full: @n of them in
 * the pass under way. */
guint lychee_cache_get_local_tokens (guint window, guint n);
/* An empty cache of the same form, whose local layers keep all their rows: for
 * lychee_cache_forget (). */
LycheeCache *lychee_cache_new_like (LycheeCache *cache, guint max_tokens);
/* An empty cache of the same form, whose memory is of what @cache and its forks may use together.
 */
LycheeCache *lychee_cache_new_beside (LycheeCache *cache, guint max_tokens);

/* The context that its keys are rotated for, 0: as the model was trained (see
 * lychee_model_get_stretch ()). Forks have the same. Only while the cache is empty. */
void lychee_cache_set_rope_context (LycheeCache *cache, guint n_context);
guint lychee_cache_get_rope_context (LycheeCache *cache);

/* Whether keys are turned back to before their rotation, and get positions when they are read, once
 * there are more than the model was trained for. Forks are the same. */
void lychee_cache_set_packed (LycheeCache *cache, gboolean packed);
gboolean lychee_cache_get_packed (LycheeCache *cache);
/* Turns back all keys but those of @local layers [n_layers] (nullable), which @packed says how to.
 * FALSE with NO_MEMORY, which can only be where forks share pages: nothing has changed then.
 * Belongs to the appending thread. Only emptying the cache undoes it. */
gboolean lychee_cache_turn_back (
    LycheeCache *cache, const LycheePacked *packed, const gboolean *local, GError **error);
gboolean lychee_cache_is_bare (LycheeCache *cache);
/* The indexes of a layer whose keys were turned back are stale: they are searched as they are, and
 * not brought up to date, until their turn comes to begin anew. Empties those of the next layer;
 * FALSE: there was none. With the lock of the indexes. */
gboolean lychee_cache_renew_index (LycheeCache *cache);
gboolean lychee_cache_is_index_stale (LycheeCache *cache, guint layer);
/* For a file: the first so many layers have indexes that are not stale; an empty cache becomes like
 * the one that had as many. */
guint lychee_cache_get_n_bare_indexes (LycheeCache *cache);
void lychee_cache_set_bare (LycheeCache *cache, guint n_indexes);

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
#define LYCHEE_CACHE_FILE_LOCAL 3 /* number: of the page of layers that are limited */

/* Writes keys, values and indexes: of a fork, which nobody else changes. */
gboolean lychee_cache_save (
    LycheeCache *cache, LycheeFileWriter *writer, GCancellable *cancellable, GError **error);
/* What a cache's pages do not say of it. */
typedef struct {
  guint length, head, skip;
  guint local_begin; /* row, 0 where all layers keep all */
} LycheeCacheExtent;

void lychee_cache_get_extent (LycheeCache *cache, LycheeCacheExtent *extent);
/* Fills an empty cache, whose indexes are enabled and layers limited as the saved one's were. Keys
 * and values stay in the file until they are read, or written over. On an error the cache can only
 * be freed. Does not set start, chunks and what was lost. */
gboolean lychee_cache_load (
    LycheeCache *cache, LycheeFile *file, const LycheeCacheExtent *extent, GError **error);

/* Where each chunk begins and ends, one after the other: [n_chunks][2] tokens. */
guint *lychee_cache_list_chunks (LycheeCache *cache, guint *n_chunks);
/* Where the chunk ends that token @position belongs to; @position + 1 or more, in steps of at most
 * @otherwise where no chunk was noted. */
guint lychee_cache_get_item_end (LycheeCache *cache, guint position, guint otherwise);

G_END_DECLS
