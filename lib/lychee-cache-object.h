/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "lychee-cache-private.h"

G_BEGIN_DECLS

/* What the parts of the cache share: lychee-cache.c is the object, which grows, forks and forgets;
 * -page.c has its memory, -turn.c turns its keys, -local.c what is let go of it, -index.c its
 * indexes, -chunks.c its chunks, -file.c saves and loads. */

#define LYCHEE_CACHE_PAGE_MASK (LYCHEE_CACHE_PAGE_TOKENS - 1)

/* What all forks of one cache have taken together: the limit holds for the family. */
typedef struct {
  gatomicrefcount refs;
  guint64 max_bytes;
  GMutex lock;
  guint64 bytes;       /* of pages */
  guint64 index_bytes; /* of the indexes of the cache that grows */
} LycheeCacheBudget;

/* Full pages are shared between forks and never written again. */
typedef struct {
  gatomicrefcount refs;
  LycheeCacheBudget *budget;
  gsize bytes; /* of memory, which can be more than its rows need */
  guint16 *data;
  LycheeFile *file; /* that the data lies in, or NULL */
  GSList *peers;    /* of LycheePeer; usually none or one */
} LycheeCachePage;

/* A cache's chunks; see lychee-cache-chunks.c. */
typedef struct _LycheeCacheChunks LycheeCacheChunks;

struct _LycheeCache {
  GObject parent_instance;

  guint n_layers;
  guint n_kv_heads;
  guint head_dim;
  LycheeRowForm form;
  gsize row_size; /* of a key, in 16-bit units */
  guint max_tokens;
  guint max_pages; /* that there is room for in the tables: grows where much was forgotten */
  guint rope_context;
  gboolean packed;      /* keys are turned back when they are more than the model knows */
  gboolean bare;        /* they were */
  guint n_bare_indexes; /* layers whose indexes are over such keys, the first ones */
  LycheeCacheBudget *budget;

  /* Pages are of two kinds: 0 of layers that keep all their rows, 1 of local ones. */
  guint8 *kind;       /* [n_layers] */
  guint *slot;        /* [n_layers]: which layer of its pages it is */
  guint n_of_kind[2]; /* layers */
  guint local_window; /* tokens that a local layer sees; 0: all layers keep all rows */
  guint local_keep;   /* tokens that it keeps at least, G_MAXUINT: all */
  guint local_begin;  /* rows before it were let go by local layers; of the appending thread */

  gint length; /* atomic: readers see rows below it complete */
  /* Rows @head .. @head + @skip - 1 were forgotten; of the appending thread, as the length is. */
  guint head;
  guint skip;
  guint origin;                    /* position of row 0 */
  guint64 n_left_out, n_forgotten; /* tokens, see count_lost() */
  GArray *start; /* of gint32: the tokens that the prompt begins with, see set_start() */

  GMutex lock;                /* pages, n_pages and chunks, against fork */
  LycheeCachePage **pages[2]; /* [kind][max_pages] */
  const guint16 **table; /* [layer][kv-head][max_pages]: where the page's keys of that head begin */
  guint n_pages;
  LycheeCacheChunks *chunks; /* of which this cache has the first: */
  guint n_chunks;

  GMutex index_lock; /* taken before lock */
  LycheeCacheIndexing indexing;
  LycheeIndex **indexes; /* [layer][kv-head], NULL: none */
};

LycheeCacheBudget *lychee_cache_budget_ref (LycheeCacheBudget *budget);
void lychee_cache_budget_unref (LycheeCacheBudget *budget);

/* Bytes of a page's rows. */
gsize lychee_cache_page_size (LycheeCache *cache, guint kind);
/* 16-bit units of one head's keys (or values) in a page. */
gsize lychee_cache_head_size (LycheeCache *cache);
/* A page for the budget of @cache, uninitialized. */
LycheeCachePage *lychee_cache_page_new (LycheeCache *cache, guint kind, GError **error);
/* A page whose data is in a file. It counts as memory, which it takes once it is read. */
LycheeCachePage *lychee_cache_page_new_in_file (
    LycheeCache *cache, guint kind, LycheeFile *file, gpointer data, GError **error);
void lychee_cache_page_unref (LycheeCachePage *page);
/* Devices have at most @n rows of it that are still right. */
void lychee_cache_page_limit_peers (LycheeCachePage *page, guint n);
/* Gives the cache a page of its own: of one that it shares a copy, with the first @n rows; of one
 * that was let go an empty one. With the lock. */
gboolean lychee_cache_own_page (LycheeCache *cache, guint kind, guint at, guint n, GError **error);
/* Copies the first @n tokens of a page. */
void lychee_cache_page_copy_rows (
    LycheeCache *cache, guint kind, const LycheeCachePage *from, LycheeCachePage *to, guint n);

/* Makes room for @n pages in the tables. With the lock, or before anyone else has the cache. */
void lychee_cache_grow_tables (LycheeCache *cache, guint n);
/* Takes @page. */
void lychee_cache_put_page (LycheeCache *cache, guint kind, guint at, LycheeCachePage *page);
/* Lets go of a page, if there is one. */
void lychee_cache_drop_page (LycheeCache *cache, guint kind, guint at);

/* Which layers are local (NULL: none). */
void lychee_cache_set_layers (LycheeCache *cache, const gboolean *local);
/* How its rows are kept, and for what they are rotated; @to is empty. */
void lychee_cache_copy_form (LycheeCache *from, LycheeCache *to);
/* Lets go of what local layers need no more. By the appending thread, without the lock. */
void lychee_cache_drop_behind (LycheeCache *cache);
/* Pages of local layers that are kept when there are @length rows. */
guint lychee_cache_count_local_pages (LycheeCache *cache, guint length);

/* The parameters of index @i, of [layer][kv-head]. */
void lychee_cache_get_index_params (LycheeCache *cache, guint i, LycheeIndexParams *params);
/* Empties indexes over keys that have been turned back since: their means are never brought up to
 * date. */
void lychee_cache_empty_stale (LycheeCache *cache);
/* What was indexed and is now inside the window comes out again. */
void lychee_cache_truncate_indexes (LycheeCache *cache, guint length);

LycheeCacheChunks *lychee_cache_chunks_new (void);
LycheeCacheChunks *lychee_cache_chunks_ref (LycheeCacheChunks *chunks);
void lychee_cache_chunks_unref (LycheeCacheChunks *chunks);
/* Forgets the chunks that have tokens in begin .. end - 1. With the lock. */
void lychee_cache_forget_chunks (LycheeCache *cache, guint begin, guint end);

G_END_DECLS
