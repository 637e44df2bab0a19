/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <glib-object.h>

#include "lychee-cpu-kernels.h"
#include "lychee-enums.h"

G_BEGIN_DECLS

/* A hierarchical index over the keys of one layer and KV head, lazily updated
 * (docs/architecture.md; the idea is LycheeCluster's, arXiv 2603.08453). Private to the library: it
 * knows nothing of GStreamer, of a model or of a cache, only rows.
 *
 * Leaves' means are always those of their rows; a coarse node's may lag by an eighth of them. No
 * append does more than sort the rows of the coarse nodes that it touches, except one of at least
 * 1,024 rows that doubles the index, which builds it anew. The same appends make the same index.
 *
 * Threads: an index is not locked. One thread at a time may change it; any number may search it
 * while none changes it. A snapshot is a copy (lychee_index_copy), which shares all coarse nodes
 * with the original until either replaces one of its own: the writer never touches what a copy can
 * see. */

#define LYCHEE_INDEX_ERROR (lychee_index_error_quark ())

typedef enum {
  LYCHEE_INDEX_ERROR_NOT_FINITE, /* a key or value is NaN or infinite: a broken model */
} LycheeIndexError;

GQuark lychee_index_error_quark (void);

/* Where the keys and values lie: rows of one form in pages of 1 << page_shift rows. Row i's key is
 * lychee_rows_key (); its value lies @value_offset 16-bit units on. */
typedef struct {
  const guint16 *const *pages;
  guint page_shift;
  gsize value_offset;
  LycheeRowForm form;
} LycheeRows;

static inline const guint16 *
lychee_rows_key (const LycheeRows *rows, guint head_dim, guint32 row)
{
  return rows->pages[row >> rows->page_shift] +
         (gsize) (row & ((1u << rows->page_shift) - 1)) * lychee_row_size (rows->form, head_dim);
}

typedef struct {
  LycheeGranularity granularity;
  guint head_dim;
  float scale;           /* s: 1 / sqrt (head_dim) as a rule */
  float cap;             /* logits are cap tanh (s q.k / cap); 0: s q.k as it is */
  guint leaf_capacity;   /* tokens in a leaf, 0 = default */
  guint coarse_capacity; /* tokens under a coarse node, 0 = default */
  guint32 seed;          /* staggers splits: give each head of a model another */
} LycheeIndexParams;

typedef struct _LycheeIndex LycheeIndex;

LycheeIndex *lychee_index_new (const LycheeIndexParams *params);
LycheeIndex *lychee_index_copy (const LycheeIndex *index);
void lychee_index_free (LycheeIndex *index);

/* Appends rows first .. first + n - 1, which follow those already there (the first append says
 * where the index begins: sinks before it are not in it). With granularity chunk, one call is one
 * item, and more than 64 rows are cut into items of 16. On error nothing was appended. */
gboolean lychee_index_append (
    LycheeIndex *index, const LycheeRows *rows, guint first, guint n, GError **error);

/* Where rows of an index with granularity token go, as a device has found it: the coarse node, by
 * its number in the order of the tree, and the leaf in it. A leaf that rows go to has, at the first
 * of them, the sum of the keys that it then holds and the sum of their squares. */
typedef struct {
  gint32 node, leaf; /* -1: nowhere */
} LycheeIndexPlace;
typedef struct {
  const LycheeIndexPlace *place; /* [n] */
  const float *sums;             /* [n][head_dim + 2] */
} LycheeIndexPlaces;
/* The same as lychee_index_append (); with @places (nullable) at most 64 rows, each of which goes
 * there. Places that are none of the index's are found anew. */
gboolean lychee_index_append_placed (LycheeIndex *index, const LycheeRows *rows, guint first,
    guint n, const LycheeIndexPlaces *places, GError **error);

/* Shows the index a query that was asked at @row, [head_dim], one for every
 * LYCHEE_INDEX_QUERY_STEP rows: of late ones it keeps 6, and sorts rows into groups which these
 * tell apart as little as possible. Has no effect before the first row is appended, nor with
 * granularity chunk. No append, copy or write may run meanwhile; searches may, and other queries
 * may be shown. */
#define LYCHEE_INDEX_QUERY_STEP 64
#define LYCHEE_QUERIES_SEEN 6
void lychee_index_observe (LycheeIndex *index, guint row, const float *q);

/* Takes out all rows >= end (a seek back). */
void lychee_index_truncate (LycheeIndex *index, const LycheeRows *rows, guint end);
/* Takes out all rows < begin (what is oldest is forgotten). */
void lychee_index_forget (LycheeIndex *index, const LycheeRows *rows, guint begin);
/* First row, and one past the last row, that the index holds (both 0 when it is empty). */
guint lychee_index_get_begin (const LycheeIndex *index);
guint lychee_index_get_end (const LycheeIndex *index);
gsize lychee_index_get_bytes (const LycheeIndex *index); /* all memory that it asked for; what a
                                                      copy shares counts in both */

/* An index as bytes, and back: the same to the bit. NULL: these are no bytes of an index with
 * @params. Whoever has the bytes of somebody else may try. */
void lychee_index_write (const LycheeIndex *index, GByteArray *to);
LycheeIndex *lychee_index_read (const LycheeIndexParams *params, gconstpointer data, gsize size);

typedef struct {
  guint n_queries; /* of one KV group (decode), or group x tokens of a chunk (sparse ingest) */
  const float *q;  /* [n_queries][head_dim] */
  guint budget;    /* rows to read, exactly or fewer */
  float beam;      /* coarse nodes are opened until they hold beam x budget rows; 0: until they
                      hold 3,072 + 2 x budget, 6,144 where heads have 128
                      dimensions or more */
  gboolean rest;   /* estimate what is not read */
  gboolean logits; /* keep the rest for lychee_index_attend_rest () instead of expanding it: less
                      work, and closer, since each query has its own logits */
} LycheeIndexQuery;

/* What a search found; reused from search to search, owned by the caller. */
typedef struct {
  guint32 *rows; /* [n_rows] to read exactly, each once; order is the index's choice */
  guint n_rows;
  float *rest_k;      /* [n_rest][head_dim] mean keys of the unread groups */
  float *rest_v;      /* [n_rest][head_dim] their mean values */
  float *rest_log_n;  /* [n_rest] ln of their counts */
  guint n_rest;       /* with @logits, the rest_ arrays are not filled */
  guint nodes_scored; /* counters of this search */
  guint rows_estimated;
  /*< private >*/
  gpointer scratch;
} LycheeSelection;

LycheeSelection *lychee_selection_new (void);
void lychee_selection_free (LycheeSelection *selection);
/* All memory that it holds. */
gsize lychee_selection_get_bytes (const LycheeSelection *selection);

/* One selection for all queries of @query. */
void lychee_index_search (const LycheeIndex *index, const LycheeRows *rows,
    const LycheeIndexQuery *query, LycheeSelection *selection);

/* Adds the rest that the search with @query (whose @logits was set) left in @selection to @softmax,
 * the states of the same queries. The index must not have changed since. */
void lychee_index_attend_rest (const LycheeIndex *index, const LycheeIndexQuery *query,
    const LycheeSelection *selection, LycheeSoftmax *softmax);

typedef struct {
  guint n_leaves, n_coarse, depth;
  guint64 splits, rebuilds, rows_rebuilt;
} LycheeIndexStats;
void lychee_index_get_stats (const LycheeIndex *index, LycheeIndexStats *stats);

G_DEFINE_AUTOPTR_CLEANUP_FUNC (LycheeIndex, lychee_index_free)
G_DEFINE_AUTOPTR_CLEANUP_FUNC (LycheeSelection, lychee_selection_free)

G_END_DECLS
