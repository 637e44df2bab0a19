/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <string.h>

#include "lychee-cpu-kernels.h"
#include "lychee-index.h"
#include "lychee-ranking.h"

G_BEGIN_DECLS

/* How the index with granularity token is built.
 *
 *   branch -> ... -> branch of level 1 -> coarse node -> leaf -> rows
 *
 * A branch keeps what a search and a descent need of its children in contiguous arrays, so that one
 * kernel call scores all of them: mean keys in 8 bits with one scale each, and, at level 1, the
 * children's mean values likewise. A coarse node holds its leaves and its rows' numbers in one
 * block of memory that never changes once it is published: copies of an index share it. A leaf's
 * mean key is its difference from the coarse node's, in 4 bits with one scale, which measures as
 * well as 8 bits do; and it knows how far its keys are from their mean, by which it is ranked.
 *
 * Nothing is ever rebuilt that is larger than a coarse node (or than one branch's children), which
 * bounds every step. */

#define LYCHEE_BRANCH_MAX 64   /* children of a branch */
#define LYCHEE_APPEND_BATCH 64 /* rows that are put in together */
#define LYCHEE_NODE_LEAST 24   /* bytes in one at least: a search looks at 8 leaves at a time */

/* A coarse node: immutable while more than one index refers to it. */
typedef struct {
  gint refs;
  guint16 n_rows, n_leaves;
  guint16 fresh; /* rows that the coarse mean key and value count in */
  guint16 built; /* rows when its leaves were last built by recursive 2-means */
  guint16 limit; /* rows beyond which it splits: below the capacity, by chance */
  guint8 id_bytes;
  guint8 padding;
  /* guint16 scale[n_leaves], half floats; guint8 count[n_leaves]; guint8 spread[n_leaves], see
   * lychee_spreads; guint8 code[n_leaves][dim / 2], element i in the low half of byte i, element
   * i + dim / 2 in the high half, each + 8;
   * guint8 id[n_rows][id_bytes], little endian, leaf by leaf. */
  guint8 data[];
} LycheeNode;

typedef struct _LycheeBranch LycheeBranch;
struct _LycheeBranch {
  guint level; /* 1: the children are coarse nodes */
  guint n, capacity;
  guint n_rows;       /* below it */
  guint fresh;        /* n_rows when the parent last computed its mean */
  gboolean changed;   /* a child has changed since the parent last looked */
  float *scale;       /* [capacity] */
  float *minus_half;  /* [capacity] minus half the squared length of the mean key */
  float *count;       /* [capacity] rows below the child */
  float *log_count;   /* [capacity] */
  float *value_scale; /* [capacity], level 1 only */
  gpointer *child;    /* [capacity] LycheeNode or LycheeBranch */
  gint8 *code;        /* [capacity][head_dim] */
  gint8 *value_code;  /* [capacity][head_dim], level 1 only */
  guint16 *n_leaves;  /* [capacity] those of the child, level 1 only: known before it is fetched */
  gpointer block;     /* where these arrays lie */
};

/* ln of 0 .. 255, rows of a leaf; and what the byte of a leaf's spread stands for: the root of the
 * mean square of an element of (key - mean), in eighths of octaves, 0 for next to nothing. Filled
 * by the first lychee_index_new (). */
extern float lychee_log_counts[256], lychee_spreads[256];

typedef struct _LycheeChunkIndex LycheeChunkIndex;

/* Queries that the index has seen, each in the place that its row gives it. */
typedef struct {
  guint32 end[LYCHEE_QUERIES_SEEN]; /* row + 1; 0: none */
  guint16 q[];                      /* [LYCHEE_QUERIES_SEEN][head_dim], half floats */
} LycheeQueriesSeen;

/* lychee-index-metric.c */
gsize lychee_queries_seen_size (guint head_dim);
/* As what rows are sorted by: [n][head_dim] vectors u, so that of two keys that differ by x the
 * distance is |x|^2 + the sum of (u.x)^2. */
guint lychee_index_get_metric (const LycheeIndex *index, float *metric);

struct _LycheeIndex {
  LycheeIndexParams params;
  const LycheeCpuKernels *kernels;
  guint begin, end;
  gsize bytes;
  guint64 n_made; /* coarse nodes ever made: what staggers their limits */
  guint64 splits, rebuilds, rows_rebuilt;
  guint64 placed;           /* rows whose places were given */
  guint64 version;          /* counts changes */
  LycheeBranch *root;       /* NULL: empty */
  LycheeQueriesSeen *seen;  /* NULL: no row yet, or granularity chunk */
  LycheeChunkIndex *chunks; /* granularity chunk; else NULL */
};

/* What a parent keeps of a child. */
typedef struct {
  gpointer child;
  guint n_rows;
  float scale, value_scale;
  gint8 *code, *value_code; /* [head_dim] each */
} LycheeSummary;

/* lychee-index-kmeans.c: rows being sorted into leaves, and the memory for it. */
typedef struct {
  const LycheeCpuKernels *kernels;
  const LycheeRows *rows;
  guint head_dim, size;
  guint32 *id;         /* [size] row numbers, */
  const guint16 **key; /* [size] their keys, */
  float *norm;         /* [size] and their keys' squared lengths */
  float *dot;          /* [size] */
  guint32 *id_spare;
  const guint16 **key_spare;
  float *norm_spare;
  guint8 *side;
  float *vector; /* [5][head_dim] */
  float *metric; /* [n_metric][head_dim], see lychee_index_get_metric () */
  guint n_metric;
  guint64 visits; /* rows read by 2-means */
} LycheeSorter;

LycheeSorter *lychee_sorter_new (const LycheeIndex *index, const LycheeRows *rows, guint size);
void lychee_sorter_free (LycheeSorter *sorter);
/* Sets row @at. */
void lychee_sorter_set (LycheeSorter *sorter, guint at, guint32 row);
/* Reorders rows at .. at + n - 1 into two alike groups; returns how many are in the first, which is
 * at least n / @least and at most n - n / @least (and never 0 or n, for n > 1). */
guint lychee_sorter_split (LycheeSorter *sorter, guint at, guint n, guint least);

/* Sums and maxima in eight lanes, whatever vectors there are; @n is a multiple of 8. */
typedef float LycheeLanes __attribute__ ((vector_size (32), aligned (4), may_alias));
typedef gint32 LycheeBits __attribute__ ((vector_size (32), aligned (4), may_alias));

static inline float
lychee_sum_lanes (const LycheeLanes *sums)
{
  const float *s = (const float *) sums;

  return ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]));
}

static inline float
lychee_square (const float *x, guint n)
{
  LycheeLanes sums = { 0 };

  for (guint i = 0; i < n; i += 8) {
    LycheeLanes a = *(const LycheeLanes *) (x + i);

    sums += a * a;
  }
  return lychee_sum_lanes (&sums);
}

static inline float
lychee_dot (const float *x, const float *y, guint n)
{
  LycheeLanes sums = { 0 };

  for (guint i = 0; i < n; i += 8)
    sums += *(const LycheeLanes *) (x + i) * *(const LycheeLanes *) (y + i);
  return lychee_sum_lanes (&sums);
}

static inline float
lychee_distance (const float *x, const float *y, guint n)
{
  LycheeLanes sums = { 0 };

  for (guint i = 0; i < n; i += 8) {
    LycheeLanes a = *(const LycheeLanes *) (x + i) - *(const LycheeLanes *) (y + i);

    sums += a * a;
  }
  return lychee_sum_lanes (&sums);
}

/* The largest size of a number in @x: floats without their signs are in the order of their bits. */
static inline float
lychee_largest (const float *x, guint n)
{
  LycheeBits most = { 0 };
  gint32 largest = 0;
  float size;

  for (guint i = 0; i < n; i += 8) {
    LycheeBits bits = *(const LycheeBits *) (x + i) & 0x7fffffff, larger = bits > most;

    most = (bits & larger) | (most & ~larger);
  }
  for (guint j = 0; j < 8; j++)
    largest = MAX (largest, most[j]);
  memcpy (&size, &largest, sizeof size);
  return size;
}

/* The first of the largest of @n numbers (any n > 0). */
static inline guint
lychee_find_largest (const float *x, guint n)
{
  float most = x[0];
  guint i = 0;

  if (n >= 8) {
    LycheeLanes lanes = *(const LycheeLanes *) x;

    for (i = 8; i + 8 <= n; i += 8) {
      LycheeBits larger = *(const LycheeLanes *) (x + i) > lanes;

      lanes =
          (LycheeLanes) ((*(const LycheeBits *) (x + i) & larger) | ((LycheeBits) lanes & ~larger));
    }
    for (guint j = 0; j < 8; j++)
      most = lanes[j] > most ? lanes[j] : most;
  }
  for (; i < n; i++)
    most = x[i] > most ? x[i] : most;
  for (i = 0; i < n - 1 && x[i] < most; i++)
    ;
  return i;
}

static inline void
lychee_prefetch (gconstpointer p, gsize size)
{
  const guint8 *end = (const guint8 *) p + size;

  for (const guint8 *line = (const guint8 *) p - ((guintptr) p & 63); line < end; line += 64)
    __builtin_prefetch (line, 0, 2);
}

/* To the nearest whole number, for |x| below 2^22. */
static inline gint
lychee_round (float x)
{
  return (gint) (x + (x < 0 ? -0.5f : 0.5f));
}

/* lychee-index-node.c */
gsize lychee_node_get_size (guint head_dim, guint n_rows, guint n_leaves, guint id_bytes);
LycheeNode *lychee_node_ref (LycheeNode *node);
void lychee_node_unref (LycheeNode *node);
const guint16 *lychee_node_get_scales (const LycheeNode *node);
const guint8 *lychee_node_get_counts (const LycheeNode *node);
const guint8 *lychee_node_get_spreads (const LycheeNode *node);
const guint8 *lychee_node_get_codes (const LycheeNode *node);
const guint8 *lychee_node_get_ids (const LycheeNode *node, guint head_dim);
static inline guint32
lychee_node_id (const guint8 *ids, guint id_bytes, guint i)
{
  const guint8 *p = ids + (gsize) i * id_bytes;
  guint32 id = p[0] | (guint32) p[1] << 8;

  if (id_bytes > 2)
    id |= (guint32) p[2] << 16;
  if (id_bytes > 3)
    id |= (guint32) p[3] << 24;
  return id;
}

/* A coarse node taken apart, to be changed. */
typedef struct {
  guint head_dim, stride, max_leaves;
  guint n_leaves, n_rows, fresh, built, limit;
  guint32 *id;       /* [max_leaves][stride], more than a leaf may keep */
  guint *count;      /* [max_leaves] */
  guint8 *touched;   /* [max_leaves] the mean has to be computed anew, */
  const float **sum; /* [max_leaves] from this, [head_dim + 1], or where NULL from rows */
  float *mean;       /* [max_leaves][head_dim] */
  guint8 *spread;    /* [max_leaves] */
  guint8 *code;      /* [max_leaves][head_dim / 2] */
  guint16 *scale;    /* [max_leaves] */
} LycheeOpenNode;

LycheeOpenNode *lychee_open_node_new (guint head_dim, guint leaf_capacity, guint max_rows);
void lychee_open_node_free (LycheeOpenNode *open);
void lychee_open_node_read (LycheeOpenNode *open, const LycheeIndex *index, const LycheeNode *node,
    const gint8 *code, float scale);
/* Closes it again: leaves that are not touched keep their codes. */
LycheeNode *lychee_open_node_pack (const LycheeOpenNode *open, const LycheeIndex *index);
void lychee_open_node_encode (
    LycheeOpenNode *open, const LycheeIndex *index, guint leaf, const gint8 *code, float scale);

guint8 lychee_spread_encode (float spread);
void lychee_code_encode (const float *x, guint n, gint8 *code, float *scale);
void lychee_code_decode (const gint8 *code, float scale, guint n, float *x);
/* 4-bit codes [n][head_dim / 2] to 8-bit ones [n][head_dim]. */
void lychee_code_unpack (const guint8 *code, guint n, guint head_dim, gint8 *to);

/* lychee-index-branch.c */
LycheeBranch *lychee_branch_new (LycheeIndex *index, guint level, guint capacity);
/* Without its children. */
void lychee_branch_free_shell (LycheeIndex *index, LycheeBranch *branch);
LycheeBranch *lychee_branch_copy (const LycheeIndex *index, const LycheeBranch *branch);
void lychee_branch_free (LycheeBranch *branch);
gsize lychee_node_bytes (const LycheeIndex *index, const LycheeNode *node);
gsize lychee_branch_get_bytes (const LycheeIndex *index, const LycheeBranch *branch);
void lychee_branch_set (
    LycheeIndex *index, LycheeBranch *branch, guint i, const LycheeSummary *summary);
void lychee_branch_add (LycheeIndex *index, LycheeBranch *branch, const LycheeSummary *summary);
/* Copies what @from keeps of its child @j over what @to keeps of its child @i. */
void lychee_branch_move (
    const LycheeIndex *index, LycheeBranch *to, guint i, const LycheeBranch *from, guint j);
/* The weighted mean of its children's means, in 8 bits. */
void lychee_branch_summarise (
    const LycheeIndex *index, LycheeBranch *branch, LycheeSummary *summary);
void lychee_branch_count (LycheeBranch *branch);
/* 2-means over the children, each as heavy as its rows; returns the new sibling. */
LycheeBranch *lychee_branch_split (LycheeIndex *index, LycheeBranch *branch);

/* lychee-index-descent.c: a coarse node, by its place in a branch of level 1. */
typedef struct {
  LycheeBranch *branch;
  guint child;
  float nearness;
} LycheePlace;

/* The coarse node nearest to each of @n keys [n][head_dim], at most LYCHEE_APPEND_BATCH. */
void lychee_tree_descend (const LycheeIndex *index, const float *x, guint n, LycheePlace *found);

/* lychee-index-tree.c */
/* @places: (nullable) */
void lychee_tree_append (LycheeIndex *index, const LycheeRows *rows, guint first, guint n,
    const LycheeIndexPlaces *places);
void lychee_tree_cut (LycheeIndex *index, const LycheeRows *rows, guint begin, guint end);
/* Builds everything anew by recursive 2-means. */
void lychee_tree_rebuild (LycheeIndex *index, const LycheeRows *rows);
/* Brings all means up to date. */
void lychee_tree_refresh (LycheeIndex *index, const LycheeRows *rows);
void lychee_tree_get_stats (const LycheeBranch *branch, LycheeIndexStats *stats);

/* lychee-index-chunks.c: the other granularity */
LycheeChunkIndex *lychee_chunks_new (void);
LycheeChunkIndex *lychee_chunks_copy (const LycheeIndex *index);
void lychee_chunks_free (LycheeChunkIndex *chunks);
gsize lychee_chunks_get_bytes (const LycheeIndex *index);
void lychee_chunks_get_stats (const LycheeIndex *index, LycheeIndexStats *stats);
void lychee_chunks_append (LycheeIndex *index, const LycheeRows *rows, guint first, guint n);
void lychee_chunks_cut (LycheeIndex *index, const LycheeRows *rows, guint begin, guint end);
/* lychee-index-file.c: bytes being read; whoever takes more than there are gets NULL or FALSE. */
typedef struct {
  const guint8 *at, *end;
} LycheeBytes;

void lychee_put_bytes (GByteArray *to, gconstpointer data, gsize size);
gconstpointer lychee_take_bytes (LycheeBytes *from, gsize size);
gboolean lychee_copy_bytes (LycheeBytes *from, gpointer to, gsize size);
void lychee_chunks_write (const LycheeIndex *index, GByteArray *to);
gboolean lychee_chunks_read (LycheeIndex *index, LycheeBytes *from);

/* Into selection->rows, which has room for the budget. */
void lychee_chunks_search (
    const LycheeIndex *index, const LycheeIndexQuery *query, LycheeSelection *selection);

typedef struct {
  guint unit, cluster;
  guint32 first; /* rows */
  guint n;
  const float *unit_center, *center;
  float unit_radius, radius;
} LycheeChunksItem;
typedef void (*LycheeChunksFunc) (const LycheeChunksItem *item, gpointer data);
void lychee_chunks_foreach (const LycheeIndex *index, LycheeChunksFunc func, gpointer data);

/* lychee-index-search.c */
void lychee_tree_search (
    const LycheeIndex *index, const LycheeIndexQuery *query, LycheeSelection *selection);
void lychee_tree_attend_rest (const LycheeIndex *index, const LycheeIndexQuery *query,
    const LycheeSelection *selection, LycheeSoftmax *softmax);

G_END_DECLS
