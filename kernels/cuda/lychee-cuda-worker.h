/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* A worker, as the files know it that do its work: its memory and what goes to and fro
 * (lychee-cuda-worker.cu), and passes (lychee-cuda-plan.cu, lychee-cuda-pass.cu). */

#include "lychee-cuda-private.h"

#define LYCHEE_CUDA_N_GRAPHS 8

/* Memory that grows to what passes need. */
struct LycheeCudaBuffer {
  void *data = nullptr;
  size_t size = 0;
  bool host = false;
};

/* What attention of a pass is like: also what tells one graph from another. */
struct LycheeCudaPlan {
  LycheeCudaType type; /* of keys and values */
  int n_tokens, n_sequences, output;
  int sparse, sinks, budget, rest, chunks;
  float beam;
  int block_tokens, max_nodes, max_leaves;
  int n_splits, n_window_splits, n_sparse_splits, n_rest_splits;
  int n_pages;                /* room in the table */
  int n_history;              /* and in what was chosen before */
  int range, window, n_fresh; /* of packed positions, as the pass has them */
  int weigh;                  /* where attention is added up: */
  int weigh_first, weigh_rows, weigh_bins, weigh_begin, weigh_end;
  unsigned generation; /* of the worker's memory */
};

struct LycheeCudaGraph {
  LycheeCudaPlan plan;
  cudaGraphExec_t exec;         /* NULL: such a pass was run once, or the place is free */
  unsigned long long last_used; /* 0: free */
};

struct LycheeCudaWorker {
  LycheeCudaModel *model;
  cudaStream_t stream, uploads;
  cublasHandle_t blas;
  unsigned generation;
  unsigned long long n_runs;
  LycheeCudaGraph graphs[LYCHEE_CUDA_N_GRAPHS];
  bool no_graphs;  /* capturing one failed */
  int turns_range; /* @low and @high are for so many positions; 0: not there yet */
  /* Of the pass, on the device: */
  LycheeCudaBuffer control; /* what the host says: see Control */
  LycheeCudaBuffer x, normed, qkv, q, attended, gate_up, activated, y;
  /* What is rotated by: ordinary ones of layers, local ones of layers, and with packed positions of
   * queries, and of what they search with; all positions' then. */
  LycheeCudaBuffer turns[4], low, high, aim, rows, logits, counters;
  LycheeCudaBuffer m, l, o, workspace;
  LycheeCudaBuffer selection, selected, z, weight, most, count, opened, leaf_weight, leaf_rank,
      leaf_node, leaf_count, leaf_read, density;
  LycheeCudaBuffer audit, audit_mass;
  /* And pinned, on the host: */
  LycheeCudaBuffer control_host, heads_host, rows_host, logits_host, counters_host, audit_host,
      upload_host;
  LycheeCudaBuffer upload, pieces;
  /* Of sampling, the last two of them on the host and on the device: */
  LycheeCudaBuffer table, penalised, tile_max, masses, counts, members, chosen, chosen_host;
  LycheeCudaBuffer bins, sums, log_mass, sums_host;
  LycheeCudaWeights weights; /* without the bins; no rows: nothing is added up */
  LycheeCudaBuffer upkeep, placed, upkeep_host, placed_host;
  /* Where things are in the control block: */
  size_t sampling_at, ids_at, frequency_at, heads_at, history_at, pages_at, control_size;
  int n_pages, n_history; /* of a sequence, that there is room for */
};

/* Sees to it that @buffer has @size bytes. What was in it is lost when it grows. */
int lychee_cuda_need (LycheeCudaWorker *worker, LycheeCudaBuffer *buffer, size_t size, bool host,
    LycheeCudaError *error);
/* What passes need, and workers that only copy do not. */
int lychee_cuda_need_blas (LycheeCudaWorker *worker, LycheeCudaError *error);
/* The memory that depends on the number of tokens only. */
int lychee_cuda_need_tokens (LycheeCudaWorker *worker, int n_tokens, LycheeCudaError *error);

/* What the pass is like. */
LycheeCudaPlan lychee_cuda_make_plan (LycheeCudaWorker *worker, const LycheeCudaPass *pass);
/* Whether lychee_cuda_attend () takes a pass of so many tokens, or has to. */
bool lychee_cuda_has_few_queries (
    const LycheeCudaWorker *worker, LycheeCudaType type, int n_tokens);
bool lychee_cuda_has_local (const LycheeCudaModel *model);
int lychee_cuda_divide_up (int x, int y);
/* At least @n, in steps of an eighth: what is captured for it stays right for a while. */
int lychee_cuda_round_up (int n);

/* Whether keys of layers that are not local get positions when they are read. */
static inline bool
lychee_cuda_is_packed (const LycheeCudaPlan &plan)
{
  return plan.range > 0;
}

/* Whether each token is of a sequence of its own. */
static inline bool
lychee_cuda_is_separate (const LycheeCudaPlan &plan)
{
  return plan.n_sequences > 1;
}

template <typename T>
static inline T *
lychee_cuda_get (const LycheeCudaBuffer &buffer)
{
  return static_cast<T *> (buffer.data);
}
