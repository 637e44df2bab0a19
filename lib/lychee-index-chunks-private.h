/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "lychee-index-private.h"

/* How the index with granularity chunk lies in memory; see lychee-index-chunks.c. */

G_BEGIN_DECLS

#define LYCHEE_CHUNKS_MAX_UNITS 64
#define LYCHEE_CHUNKS_MAX_ITEMS 8 /* of a cluster */
#define LYCHEE_CHUNKS_MAX_ROWS 64 /* a longer run that is appended at once is cut */

typedef struct {
  gint refs;
  guint16 n_clusters;
  guint8 id_bytes;
  guint32 n_items, n_rows;
  /* guint16 scale[n_clusters], radius[n_clusters], half floats; guint8 count[n_clusters]; guint8
   * code[n_clusters][dim / 2] as in a LycheeNode, the difference from the unit's base;
   * guint8 item[n_items][id_bytes + 1]: first row, little endian, and number of rows. */
  guint8 data[];
} LycheeChunkBlock;

struct _LycheeChunkIndex {
  guint n, capacity;
  LycheeChunkBlock **block; /* [capacity] */
  float *scale, *radius, *base_scale;
  gint8 *code; /* [capacity][dim] centroids */
  gint8 *base; /* [capacity][dim] what the clusters' codes are differences from */
};

static inline gsize
lychee_chunk_block_size (guint dim, guint n_clusters, guint n_items, guint id_bytes)
{
  return sizeof (LycheeChunkBlock) + n_clusters * (5 + dim / 2) + (gsize) n_items * (id_bytes + 1);
}

/* They never change: whoever has a reference may read one. */
LycheeChunkBlock *lychee_chunk_block_ref (LycheeChunkBlock *block);
void lychee_chunk_block_unref (LycheeChunkBlock *block);
/* Room for @capacity units. */
void lychee_chunks_reserve (LycheeChunkIndex *chunks, guint dim, guint capacity);

G_END_DECLS
