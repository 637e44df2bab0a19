/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* The CUDA kernels, for the backend and for tests. A launcher takes a structure of parameters and a
 * stream, waits for nothing, allocates nothing, and returns a cudaError as a number (0: launched).
 * Pointers are to device memory, shapes are row-major with the innermost dimension last. */

#include <cuda_runtime.h>

#include "../lychee-ranking.h"
#include "../lychee-sampling.h"
#include "lychee-cuda.h"

#define LYCHEE_CUDA_PAGE_SHIFT 8
static_assert (1 << LYCHEE_CUDA_PAGE_SHIFT == LYCHEE_CUDA_PAGE_TOKENS, "pages");

/* What host and device both read is laid out alike, whatever compiles it. */
static_assert (sizeof (LycheeCudaNode) == 32 && sizeof (LycheeCudaLeaf) == 12, "records of nodes");
static_assert (sizeof (LycheeCudaUnit) == 32 && sizeof (LycheeCudaCluster) == 16 &&
                   sizeof (LycheeCudaItem) == 8,
    "records of units");
static_assert (sizeof (LycheeCudaHead) == 24 && sizeof (LycheeCudaPlace) == 8 &&
                   sizeof (LycheeCudaSampling) == 48 && sizeof (LycheeCudaCounters) == 32,
    "what the host says, and is told");

/* What changes from pass to pass, in device memory, so that a captured graph stays right.
 *
 * A pass's tokens follow each other in one sequence, or, where a structure of parameters has
 * @separate, each is the next one of a sequence of its own: then there is a step for each of them,
 * and tables of pages and of heads lie behind each other. */
typedef struct {
  int first;      /* row of the sequence's first token in the pass */
  int n_tokens;   /* that it has: never more than the launch was made for */
  int head, skip; /* rows head .. head + skip - 1 were forgotten */
  int origin;     /* position of row 0 */
} LycheeCudaStep;

/* Rows that are held are numbered without gaps by their place. */
static inline __host__ __device__ int
lychee_cuda_row (int place, int head, int skip)
{
  return place < head ? place : place + skip;
}

/* x[token] = scale embedding[ids[token]] */
typedef struct {
  LycheeCudaType type; /* of the embedding */
  int n_tokens, n_embd;
  const int *ids;        /* [n_tokens] */
  const void *embedding; /* [vocabulary][n_embd] */
  float scale;
  float *x; /* [n_tokens][n_embd] */
} LycheeCudaEmbed;
int lychee_cuda_embed (const LycheeCudaEmbed *params, cudaStream_t stream);

/* output = weight (x + bias) / rms (x + bias), or, where @add is one, add += factor times that. */
typedef struct {
  LycheeCudaType type; /* of the output */
  int n_rows, n;
  float eps;
  const float *x;      /* [n_rows][n] */
  const float *bias;   /* [n], or NULL */
  const float *weight; /* [n], or NULL: not normed */
  void *output;        /* [n_rows][n], or NULL */
  float *add;          /* [n_rows][n], or NULL */
  float factor;
} LycheeCudaNorm;
int lychee_cuda_norm (const LycheeCudaNorm *params, cudaStream_t stream);

/* Cosines and sines of the rotary embedding, times a scale, for the positions of a pass. */
typedef struct {
  int n_tokens, n_pairs;
  const LycheeCudaStep *step;
  const double *frequency; /* [n_pairs] angle per position, and the scale */
  float *table;            /* [n_tokens][n_pairs][2] */
  int separate;            /* with @step [n_tokens] */
} LycheeCudaRopeTable;
int lychee_cuda_rope_table (const LycheeCudaRopeTable *params, cudaStream_t stream);

/* Packed positions. Keys stand nowhere, and get positions when they are read: their distance from
 * an origin behind the queries, counted back from the last position, @range + LYCHEE_CUDA_BEHIND.
 * See lib/lychee-attention-rows.c for which distances are kept. */
#define LYCHEE_CUDA_BEHIND 16 /* the origin behind the first token of a block of a search, */
                              /* as it is on the processor: its BLOCK_TOKENS */
typedef struct {
  int range;  /* positions that the model knows; 0: keys have their positions */
  int behind; /* the origin is so many places behind the first token of a block */
  int n_rot, neox;
  const float *low, *high; /* see LycheeCudaTurns */
} LycheeCudaTurn;

/* Cosines and sines of all positions, in two steps: position p is turned by low p % LOW and by high
 * p / LOW. */
#define LYCHEE_CUDA_TURN_BITS 6
#define LYCHEE_CUDA_TURN_LOW (1 << LYCHEE_CUDA_TURN_BITS)
typedef struct {
  int n_pairs, n_high;
  const double *frequency; /* [n_pairs] angle per position, and the scale */
  float *low;              /* [LYCHEE_CUDA_TURN_LOW][n_pairs][2], times the scale */
  float *high;             /* [n_high][n_pairs][2] */
} LycheeCudaTurns;
int lychee_cuda_turns (const LycheeCudaTurns *params, cudaStream_t stream);
static inline int
lychee_cuda_count_high (int range)
{
  return ((range + LYCHEE_CUDA_BEHIND) >> LYCHEE_CUDA_TURN_BITS) + 1;
}

/* What queries are rotated by then: to their position, and to be compared with keys that stand
 * nowhere, as they are on average for all distances at which these may be. */
typedef struct {
  int n_tokens, n_pairs;
  const LycheeCudaStep *step;
  const double *frequency;
  int separate;
  int range, behind, block_tokens;
  int window;   /* the least of those distances */
  float *query; /* [n_tokens][n_pairs][2] */
  float *aim;   /* the same */
} LycheeCudaPackedTable;
int lychee_cuda_packed_table (const LycheeCudaPackedTable *params, cudaStream_t stream);

/* From the product of the projections: biases, norms of heads, rotation; queries go to @q, keys and
 * values into the pages, and in @copy to where the host reads them from. */
typedef struct {
  LycheeCudaType type; /* of keys and values */
  int head_dim, n_heads, n_kv_heads, n_tokens;
  int n_rot;
  int neox; /* pairs are dims i and i + n_rot / 2; else 2 i and 2 i + 1 */
  float eps;
  const float *qkv;             /* [n_tokens][n_heads + 2 n_kv_heads][head_dim]: Q, K, V */
  const float *bias;            /* [n_heads + 2 n_kv_heads][head_dim], or NULL */
  const float *q_norm, *k_norm; /* [head_dim], or NULL */
  const float *table;           /* [n_tokens][n_rot / 2][2] */
  const LycheeCudaStep *step;
  void *const *pages;  /* [pages] */
  size_t layer_offset; /* bytes from a page's begin to the layer's parts */
  float *q;            /* [n_tokens][n_heads][head_dim] */
  uint16_t *copy;      /* [K, V][n_kv_heads][n_tokens][row units], as the host has rows */
  int separate, page_stride;
  int packed;             /* keys are not rotated */
  const float *aim_table; /* as @table: what queries are searched with */
  float *aim;             /* [n_tokens][n_heads][head_dim], or NULL */
} LycheeCudaRope;
int lychee_cuda_rope (const LycheeCudaRope *params, cudaStream_t stream);

/* output = activation (gate) up */
typedef struct {
  LycheeCudaType type; /* of the output */
  LycheeCudaActivation activation;
  int n_rows, n;
  const float *gate_up; /* [n_rows][2][n] */
  const float *bias;    /* [2][n], or NULL */
  void *output;         /* [n_rows][n] */
} LycheeCudaGate;
int lychee_cuda_gate (const LycheeCudaGate *params, cudaStream_t stream);

/* logits = cap tanh (scale (logits + bias) / cap) */
typedef struct {
  int n_rows, n;
  const float *bias; /* [n], or NULL */
  float scale, cap;  /* cap 0: none */
  float *logits;     /* [n_rows][n] */
} LycheeCudaLogits;
int lychee_cuda_logits (const LycheeCudaLogits *params, cudaStream_t stream);

/* Chooses a token from logits, which are changed: four launches. */
#define LYCHEE_CUDA_SAMPLE_TILE 256
typedef struct {
  int n;                              /* logits */
  const LycheeCudaSampling *sampling; /* in device memory, as all */
  const int *history;
  const unsigned long long *table; /* [LYCHEE_TABLE_SIZE] */
  float *logits;                   /* [n] */
  /* For the kernels: */
  float *penalised;           /* [n_history] */
  float *tile_max;            /* [tiles] */
  unsigned long long *masses; /* [LYCHEE_N_BUCKETS] */
  unsigned *counts;           /* the same */
  int *members;               /* [n] */
  int *chosen;                /* [1] its id; INT_MAX: no logit is a number */
  int n_sequences;            /* that a token is chosen for, each array once for each; 0: one */
  int history_stride;         /* of these, @history and @penalised */
} LycheeCudaSample;
int lychee_cuda_sample (const LycheeCudaSample *params, cudaStream_t stream);

/* float32 to @type and back */
typedef struct {
  LycheeCudaType type;
  size_t n;
  const void *from;
  void *to;
} LycheeCudaConvert;
int lychee_cuda_from_float (const LycheeCudaConvert *params, cudaStream_t stream);
int lychee_cuda_to_float (const LycheeCudaConvert *params, cudaStream_t stream);

/* Pieces of one block of memory to where they belong; sizes, offsets and addresses are multiples of
 * 4. */
typedef struct {
  void *to;
  unsigned offset, size; /* bytes */
} LycheeCudaPiece;
typedef struct {
  int n;
  const LycheeCudaPiece *pieces; /* [n] */
  const void *from;
} LycheeCudaScatter;
int lychee_cuda_scatter (const LycheeCudaScatter *params, cudaStream_t stream);

/* Search: one for all queries of a KV head and a block of tokens ("job": kv_head x blocks + block;
 * its queries are [tokens of the block][heads of the group]). What a search found: */
typedef struct {
  int n_rows;  /* selected, in ascending order */
  int n_sinks; /* rows 0 .. n_sinks - 1 are read besides, */
  int recent;  /* and those from here on */
  int n_rest;  /* coarse nodes whose weights count as the rest; 0: there is no rest */
} LycheeCudaSelection;

typedef struct {
  int head_dim, n_heads, n_kv_heads, n_tokens, block_tokens;
  float scale;    /* of q.k */
  const float *q; /* [n_tokens][n_heads][head_dim] */
  const LycheeCudaStep *step;
  const LycheeCudaHead *heads;    /* [n_kv_heads] of the layer */
  int sinks, budget;              /* tokens */
  float beam;                     /* 0: the default */
  int rest;                       /* whether what is not read counts */
  int max_nodes, max_leaves;      /* room in the arrays below */
  LycheeCudaSelection *selection; /* [jobs] */
  int *selected;                  /* [jobs][budget] */
  /* Of coarse nodes: */
  float *z;      /* [jobs][queries of a block][max_nodes] logits */
  float *weight; /* the same: exp (logit - most), in the end of what is unread of it */
  float *most;   /* [jobs][queries of a block] */
  int *count;    /* [jobs][max_nodes] rows */
  int *opened;   /* [jobs][max_nodes][2] node, first leaf */
  /* Of the leaves of nodes that were opened: */
  float *leaf_weight;           /* [jobs][queries of a block][max_leaves] */
  float *leaf_rank;             /* the same, of what they are ranked by */
  int *leaf_node;               /* [jobs][max_leaves] which of the opened nodes */
  int *leaf_count;              /* [jobs][max_leaves] rows */
  int *leaf_read;               /* [jobs][max_leaves] how many of them are selected */
  float *density;               /* [jobs][max (max_nodes, max_leaves)] */
  unsigned long long *counters; /* [3] nodes scored, rows read, rows estimated; added to */
  int separate, head_stride;    /* blocks are of one token, and counters [n_tokens][4] */
} LycheeCudaSearch;
/* How many tokens a block can have at most. */
int lychee_cuda_search_block_tokens (int head_dim, int n_heads, int n_kv_heads);
int lychee_cuda_search (const LycheeCudaSearch *params, cudaStream_t stream);
/* The same for indexes with granularity chunk, whose nodes are units and leaves clusters; without a
 * rest. Of the arrays, weight, most, count, opened and leaf_weight are not used. */
int lychee_cuda_search_chunks (const LycheeCudaSearch *params, cudaStream_t stream);

/* Upkeep: where rows @first .. @first + @n_rows - 1 go in each of @n_indexes indexes. */
#define LYCHEE_CUDA_MAX_PLACED 64
typedef struct {
  LycheeCudaType type; /* of keys: F16 or Q8_0 */
  int head_dim, n_indexes, n_rows, first;
  const LycheeCudaHead *heads; /* [n_indexes]; no nodes: no place, node -1 */
  const void *const *pages;    /* parts for each of the indexes, [n_indexes][K, V] */
  LycheeCudaPlace *places;     /* [n_indexes][n_rows] */
  /* For the first of the rows that go to a leaf: the sum of the keys that this then has, the sum of
   * their squares, their number. Others are not written. */
  float *sums; /* [n_indexes][n_rows][head_dim + 2] */
} LycheeCudaAssign;
int lychee_cuda_assign (const LycheeCudaAssign *params, cudaStream_t stream);
/* After that. */
int lychee_cuda_leaf_sums (const LycheeCudaAssign *params, cudaStream_t stream);

/* Attention. Rows of queries are [n_kv_heads][n_tokens][heads of the group]; keys are split, and
 * each split gives a running softmax: m (largest logit, in units of ln 2), l, o. */
typedef struct {
  LycheeCudaType type; /* of keys and values */
  int head_dim, n_heads, n_kv_heads, n_tokens;
  float scale;    /* of q.k */
  const float *q; /* [n_tokens][n_heads][head_dim] */
  const LycheeCudaStep *step;
  const void *const *pages;
  size_t layer_offset; /* bytes */
  int window;          /* tokens that a token sees, its own included; 0: all */
  int n_splits;        /* of the keys */
  /* Sparse only (selection NULL: dense): */
  int block_tokens;
  const LycheeCudaSelection *selection; /* [jobs] */
  const int *selected;                  /* [jobs][budget] */
  int budget;
  int n_rest_splits;           /* splits more for the rest; 0: there is none */
  const LycheeCudaHead *heads; /* [n_kv_heads] */
  const float *weight;         /* as in the search */
  const float *most;
  int max_nodes;
  float *m, *l; /* [splits][n_heads n_tokens] */
  float *o;     /* [splits][n_heads n_tokens][head_dim] */
  int separate; /* blocks are of one token; not for many queries */
  int page_stride, head_stride;
  LycheeCudaTurn turn; /* with packed positions; not for many queries */
} LycheeCudaAttend;
/* Few queries: a block a split, a KV head and 8 queries. In effect float32 throughout, but that
 * keys and values of Q8_0 are rounded to 16 bits when they are read. */
int lychee_cuda_attend (const LycheeCudaAttend *params, cudaStream_t stream);
/* The part of it that is for packed positions. */
int lychee_cuda_attend_turned (const LycheeCudaAttend *params, cudaStream_t stream);
/* How many of its blocks a processor with so many bytes of shared memory runs at a time. */
int lychee_cuda_attend_blocks (int head_dim, size_t shared);
/* Many queries, dense: 64 a block; queries and weights are rounded to @type. */
int lychee_cuda_attend_chunk (const LycheeCudaAttend *params, cudaStream_t stream);
/* Bytes of shared memory that a block of that takes: more than some devices have. */
size_t lychee_cuda_attend_chunk_shared (LycheeCudaType type, int head_dim);

typedef struct {
  LycheeCudaType type; /* of the output */
  int head_dim, n_heads, n_kv_heads, n_tokens, n_splits;
  const float *m, *l, *o;
  void *output;    /* [n_tokens][n_heads][head_dim] */
  float *log_mass; /* [n_heads n_tokens] ln of the sum of weights of the first @n_exact splits, or
                      NULL */
  int n_exact;
} LycheeCudaMerge;
int lychee_cuda_merge (const LycheeCudaMerge *params, cudaStream_t stream);

/* After a layer's merge: which part of the queries' attention rows @first .. @first + @n_rows - 1
 * got, as far as they were read, added up by bins. They stand before the pass's tokens. */
#define LYCHEE_CUDA_WEIGHT_ONE 4294967296.0f
typedef struct {
  LycheeCudaType type; /* of keys: F16 or Q8_0 */
  int head_dim, n_heads, n_kv_heads, n_tokens, block_tokens;
  float scale;
  const float *q; /* [n_tokens][n_heads][head_dim] */
  const LycheeCudaStep *step;
  const void *const *pages;
  size_t layer_offset;                  /* bytes */
  const LycheeCudaSelection *selection; /* NULL: all were read */
  const int *selected;
  int budget;
  const float *log_mass; /* as the merge leaves it */
  int first, n_rows, n_bins;
  const unsigned *bins; /* [n_rows], runs of equal ones */
  unsigned long long
      *sums; /* [n_heads][n_bins], in units of 1 / LYCHEE_CUDA_WEIGHT_ONE; added to */
  LycheeCudaTurn turn;
} LycheeCudaWeigh;
int lychee_cuda_weigh (const LycheeCudaWeigh *params, cudaStream_t stream);

/* Whether there are kernels for heads of this size. */
int lychee_cuda_has_head_dim (int head_dim);
