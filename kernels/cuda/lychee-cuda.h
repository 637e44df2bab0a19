/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* The interface of the CUDA module (liblychee-cuda.so): a device, a model's weights on it, and
 * workers that compute passes. It is plain C, and neither side knows more of the other: the library
 * loads the module when a CUDA device is asked for, and the module links to CUDA only.
 *
 * Functions return 0, or say in LycheeCudaError what went wrong. Any thread may call them; a worker
 * belongs to one thread at a time. */

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define LYCHEE_CUDA_ABI 4

typedef enum {
  LYCHEE_CUDA_OK,
  LYCHEE_CUDA_UNAVAILABLE, /* no driver, no device, or one that is too old */
  LYCHEE_CUDA_UNSUPPORTED, /* the kernels cannot do this */
  LYCHEE_CUDA_NO_MEMORY,
  LYCHEE_CUDA_FAILED,
} LycheeCudaStatus;

typedef struct {
  LycheeCudaStatus status;
  char message[240];
} LycheeCudaError;

typedef enum {
  LYCHEE_CUDA_F32,
  LYCHEE_CUDA_F16,
  LYCHEE_CUDA_BF16,
  LYCHEE_CUDA_Q8_0, /* of keys and values: blocks of 32 values, a byte each and a scale */
} LycheeCudaType;

/* A page, in device memory: [layers][kv_heads][K, V], and in each of these parts the page's rows:
 * [page tokens][head_dim] elements of 16 bits, or of Q8_0 int8_t [page tokens][head_dim] and behind
 * them their scales, half floats [page tokens][lychee_cuda_scales ()] of which the first head_dim /
 * 32 count. All of it can so be read in vectors. */
#define LYCHEE_CUDA_PAGE_TOKENS 256
#define LYCHEE_CUDA_BLOCK_VALUES 32 /* of Q8_0 */
#define LYCHEE_CUDA_BLOCK_UNITS 17  /* 16-bit units of a block on the host: scale, values */

#ifdef __CUDACC__
#define LYCHEE_CUDA_BOTH __host__ __device__
#else
#define LYCHEE_CUDA_BOTH
#endif
#ifdef __cplusplus
#define LYCHEE_CUDA_CONST constexpr LYCHEE_CUDA_BOTH
#else
#define LYCHEE_CUDA_CONST
#endif

/* Scales of a row of Q8_0: a power of two. */
static inline LYCHEE_CUDA_CONST int
lychee_cuda_scales (int head_dim)
{
  return head_dim <= 64 ? 2 : head_dim <= 128 ? 4 : 8;
}

/* Bytes of a part of a page. */
static inline LYCHEE_CUDA_CONST size_t
lychee_cuda_part_size (LycheeCudaType type, int head_dim)
{
  return (size_t) LYCHEE_CUDA_PAGE_TOKENS *
         (size_t) (type == LYCHEE_CUDA_Q8_0 ? head_dim + 2 * lychee_cuda_scales (head_dim)
                                            : 2 * head_dim);
}

/* 16-bit units of a row on the host, where blocks of Q8_0 follow each other. */
static inline LYCHEE_CUDA_CONST int
lychee_cuda_row_units (LycheeCudaType type, int head_dim)
{
  return type == LYCHEE_CUDA_Q8_0 ? head_dim / LYCHEE_CUDA_BLOCK_VALUES * LYCHEE_CUDA_BLOCK_UNITS
                                  : head_dim;
}

typedef enum {
  LYCHEE_CUDA_SILU,
  LYCHEE_CUDA_GELU, /* by tanh */
} LycheeCudaActivation;

typedef struct LycheeCudaDevice LycheeCudaDevice;
typedef struct LycheeCudaModel LycheeCudaModel;
typedef struct LycheeCudaWorker LycheeCudaWorker;

/* A coarse node of an index (lychee-index-private.h) as the device reads it, a record of its own,
 * aligned to 256 bytes:
 *   LycheeCudaNode; int8_t code[head_dim]; int8_t value_code[head_dim];
 *   LycheeCudaLeaf leaf[n_leaves]; uint8_t leaf_code[n_leaves][head_dim / 2];
 *   uint32_t id[n_rows], leaf by leaf */
typedef struct {
  float scale, log_count, value_scale;
  uint32_t n_rows, n_leaves;
  uint32_t padding[3];
} LycheeCudaNode;

typedef struct {
  float scale, spread;
  uint16_t count, first; /* of its rows */
} LycheeCudaLeaf;

/* A unit of an index with granularity chunk (lychee-index-chunks-private.h), a record likewise:
 *   LycheeCudaUnit; int8_t code[head_dim]; int8_t base[head_dim];
 *   LycheeCudaCluster cluster[n_clusters]; uint8_t cluster_code[n_clusters][head_dim / 2];
 *   LycheeCudaItem item[n_items], cluster by cluster */
typedef struct {
  float scale, radius, base_scale;
  uint32_t n_clusters, n_items;
  uint32_t padding[3];
} LycheeCudaUnit;

typedef struct {
  float scale, radius;
  uint32_t n_rows;
  uint16_t n_items, first_item;
} LycheeCudaCluster;

typedef struct {
  uint32_t first, n_rows;
} LycheeCudaItem;

/* The index of a layer and KV head. */
typedef struct {
  /* [n_nodes], all in device memory; with granularity chunk they are LycheeCudaUnits, and behind
   * them is uint32_t first[n_nodes + 1], the number of each one's first cluster and of all. */
  const LycheeCudaNode *const *nodes;
  int n_nodes;
  int begin, end; /* rows that it holds */
  int padding;
} LycheeCudaHead;

/* Where a row goes in an index: which of its nodes, and which leaf of that. */
typedef struct {
  int node, leaf; /* -1: nowhere */
} LycheeCudaPlace;

#define LYCHEE_CUDA_MAX_TOKENS 512   /* of a pass */
#define LYCHEE_CUDA_MAX_SEQUENCES 16 /* the same */

typedef struct {
  int n_layers, n_embd, n_ff, n_heads, n_kv_heads, head_dim, n_vocab;
  LycheeCudaType type; /* of matrices: F16 or BF16 */
  LycheeCudaActivation activation;
  float norm_eps;
  float embedding_scale, attention_scale, residual_scale, logit_scale;
  float logit_cap;            /* 0: none */
  int window;                 /* of local layers */
  const unsigned char *local; /* [n_layers], or NULL: none is */
  int n_rot, neox;
  int tied; /* the output matrix is the embedding */
} LycheeCudaHparams;

/* The tensors of a model; matrices are [rows][columns]. Those of a layer come in this order: */
typedef enum {
  LYCHEE_CUDA_Q, /* matrices */
  LYCHEE_CUDA_K,
  LYCHEE_CUDA_V,
  LYCHEE_CUDA_O,
  LYCHEE_CUDA_GATE,
  LYCHEE_CUDA_UP,
  LYCHEE_CUDA_DOWN,
  LYCHEE_CUDA_N_MATRICES,
  LYCHEE_CUDA_ATTN_NORM = LYCHEE_CUDA_N_MATRICES, /* vectors, all but the norms optional */
  LYCHEE_CUDA_FFN_NORM,
  LYCHEE_CUDA_Q_B,
  LYCHEE_CUDA_K_B,
  LYCHEE_CUDA_V_B,
  LYCHEE_CUDA_O_B,
  LYCHEE_CUDA_GATE_B,
  LYCHEE_CUDA_UP_B,
  LYCHEE_CUDA_DOWN_B,
  LYCHEE_CUDA_Q_NORM,
  LYCHEE_CUDA_K_NORM,
  LYCHEE_CUDA_ATTN_POST_NORM,
  LYCHEE_CUDA_FFN_POST_NORM,
  LYCHEE_CUDA_N_LAYER_TENSORS,
  LYCHEE_CUDA_EMBEDDING = LYCHEE_CUDA_N_LAYER_TENSORS, /* of no layer */
  LYCHEE_CUDA_OUTPUT,
  LYCHEE_CUDA_OUTPUT_NORM,
  LYCHEE_CUDA_OUTPUT_B,
  LYCHEE_CUDA_N_TENSORS,
} LycheeCudaTensor;

typedef enum {
  LYCHEE_CUDA_OUTPUT_NONE,
  LYCHEE_CUDA_OUTPUT_LAST,
  LYCHEE_CUDA_OUTPUT_ALL,
  LYCHEE_CUDA_OUTPUT_CHOSEN, /* a token that is chosen from the logits of the last */
} LycheeCudaOutput;

/* How a token is chosen: see lib/lychee-sampler.c. */
typedef struct {
  int greedy;
  float scale;   /* of distances from the best logit, in units of sampling's octaves */
  float penalty; /* of tokens in the history; 1: none */
  int n_history;
  unsigned long long top_k; /* 0: all */
  double top_p;             /* 1: all */
  unsigned long long min_weight;
  unsigned long long random; /* 64 bits */
} LycheeCudaSampling;

/* Called before a layer's search in passes that are not captured, while the device computes the
 * layers before it: brings the layer's index up to date and puts its heads into @heads
 * [n_kv_heads]. Returns 0, or not 0 to give up the pass. */
typedef int (*LycheeCudaIndexFunc) (void *data, int layer, LycheeCudaHead *heads);

/* What a pass goes on with. */
typedef struct {
  int first;          /* row of its first token of the pass */
  int head, skip;     /* rows head .. head + skip - 1 were forgotten */
  int origin;         /* position of row 0 */
  void *const *pages; /* [n_pages] device memory, which has room for the tokens */
  int n_pages;
  const LycheeCudaHead *heads; /* [n_layers][n_kv_heads], if the pass is sparse and has no @index */
  const LycheeCudaSampling *sampling; /* for OUTPUT_CHOSEN */
  const int *history;                 /* [n_history] of it */
} LycheeCudaSequence;

typedef struct {
  LycheeCudaType type; /* of keys and values: F16 or Q8_0 */
  const int *ids;
  int n_tokens;
  /* One, or as many as there are tokens, each of which is then the next one of a sequence of its
   * own: weights are read once for all of them. There is no @index, @weigh or audit then, and every
   * token is the last one of its sequence. */
  int n_sequences;
  const LycheeCudaSequence *sequences;
  LycheeCudaOutput output;
  /* Rotary embedding of global and of local layers: [n_rot / 2 + 1] angles per position, and last
   * what cosine and sine are multiplied by. */
  const double *frequency[2];
  /* Sparse attention; sparse 0: dense. */
  int sparse;
  int sinks, budget;
  float beam;
  int rest;
  int chunks;                /* indexes are of granularity chunk: without @rest */
  LycheeCudaIndexFunc index; /* (nullable): asked layer by layer, if not all is up to date */
  void *index_data;
  int max_nodes;     /* of all heads, */
  int max_node_rows; /* rows of a node, */
  int max_clusters;  /* and clusters */
  int weigh;         /* attention is added up: see worker_set_weights () */
  int audit_layer;   /* answered densely too; -1: none */
  /* Packed positions (lib/lychee-packed.h): keys of layers that are not local stand nowhere, and
   * the model knows @range positions; 0: keys have theirs. */
  int range;
  int n_fresh; /* so many layers, the first ones, have indexes over such keys; others look for */
  int window;  /* queries as they are. Searches look behind so many tokens. */
} LycheeCudaPass;

typedef struct {
  unsigned long long nodes_scored, rows_read, rows_estimated, nothing;
} LycheeCudaCounters;

typedef struct {
  const float *logits; /* [rows of the output][n_vocab], NULL for OUTPUT_NONE and _CHOSEN */
  const int *chosen;   /* [n_sequences] -1: no logit is a number; NULL but for OUTPUT_CHOSEN */
  /* [n_layers][K, V][n_kv_heads][n_tokens][row units] what was computed */
  const uint16_t *rows;
  const LycheeCudaCounters *counters; /* [n_sequences] */
  int audited;                        /* whether these are there: means over all heads */
  double missed_mass, error;
} LycheeCudaResult; /* valid until the worker's next pass */

/* Where attention is added up, by runs of rows. */
typedef struct {
  int first, n_rows, n_bins;
  const unsigned *bins;       /* [n_rows] */
  int layer_begin, layer_end; /* of these layers, less local ones */
} LycheeCudaWeights;

/* Rows that are to go into the indexes of all layers. */
typedef struct {
  LycheeCudaType type; /* of keys, as of a pass */
  int first, n_rows;   /* at most 64 */
  void *const *pages;  /* [n_pages] device memory */
  int n_pages;
  const LycheeCudaHead *heads; /* [n_layers][n_kv_heads]; no nodes: none goes there */
} LycheeCudaUpkeep;

typedef struct {
  const LycheeCudaPlace *places; /* [n_layers][n_kv_heads][n_rows] */
  /* Of the leaf, where a row is the first one that goes there: sum of keys, of their squares, their
   * number */
  const float *sums; /* [n_layers][n_kv_heads][n_rows][head_dim + 2] */
} LycheeCudaPlaces;  /* valid until the worker's next upkeep */

typedef struct {
  int abi; /* LYCHEE_CUDA_ABI */

  int (*open) (int ordinal, LycheeCudaDevice **device, LycheeCudaError *error);
  void (*close) (LycheeCudaDevice *device);
  const char *(*get_name) (LycheeCudaDevice *device);
  int (*get_memory) (LycheeCudaDevice *device, size_t *free, size_t *total, LycheeCudaError *error);

  /* Memory for pages and records, aligned to 256 bytes; workers fill it. */
  int (*alloc) (LycheeCudaDevice *device, size_t size, void **memory, LycheeCudaError *error);
  void (*free) (LycheeCudaDevice *device, void *memory);

  int (*has_head_dim) (int head_dim); /* whether there are kernels for it */

  /* Takes all memory that the model needs, or none. */
  int (*model_new) (LycheeCudaDevice *device, const LycheeCudaHparams *hparams,
      const unsigned char *present, /* [LYCHEE_CUDA_N_TENSORS], of layers if any has it */
      LycheeCudaModel **model, LycheeCudaError *error);
  void (*model_free) (LycheeCudaModel *model);
  size_t (*model_get_bytes) (LycheeCudaModel *model);
  /* Elements @first .. @first + @n - 1 of a tensor. */
  int (*model_set) (LycheeCudaModel *model, int layer, LycheeCudaTensor tensor, size_t first,
      size_t n, const float *values, LycheeCudaError *error);

  /* @weights: [LYCHEE_TABLE_SIZE] of lychee-sampling.h */
  int (*worker_new) (LycheeCudaModel *model, const unsigned long long *weights,
      LycheeCudaWorker **worker, LycheeCudaError *error);
  void (*worker_free) (LycheeCudaWorker *worker);
  /* Copies @n blocks; to[i] is in device memory, sizes are multiples of 4. */
  int (*worker_upload) (LycheeCudaWorker *worker, int n, void *const *to, const void *const *from,
      const size_t *sizes, LycheeCudaError *error);
  int (*worker_place) (LycheeCudaWorker *worker, const LycheeCudaUpkeep *upkeep,
      LycheeCudaPlaces *places, LycheeCudaError *error);
  /* Begins sums anew. */
  int (*worker_set_weights) (
      LycheeCudaWorker *worker, const LycheeCudaWeights *weights, LycheeCudaError *error);
  /* Adds them to @sum, [layers][n_heads][n_bins]. */
  int (*worker_add_weights) (LycheeCudaWorker *worker, float *sum, LycheeCudaError *error);
  int (*worker_run) (LycheeCudaWorker *worker, const LycheeCudaPass *pass, LycheeCudaResult *result,
      LycheeCudaError *error);
} LycheeCudaApi;

/* The module's only symbol. */
#define LYCHEE_CUDA_SYMBOL "lychee_cuda_get_api"
typedef const LycheeCudaApi *(*LycheeCudaGetApi) (void);
__attribute__ ((visibility ("default"))) const LycheeCudaApi *lychee_cuda_get_api (void);

#ifdef __cplusplus
}
#endif
