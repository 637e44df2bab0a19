/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Search of an index with granularity token: what lib/lychee-index-search.c does, with the same
 * formulas and choices. Coarse nodes are scored by as many blocks as there is work for; what
 * follows is one kernel, a block a KV head: its steps are short, and each needs all of the one
 * before. */

#include "lychee-cuda-search.cuh"

#define SCORE_THREADS 128
#define SCORE_NODES (SCORE_THREADS / 8) /* that a block scores at a time */
#define LEAVES_AHEAD 4                  /* that 8 lanes load before they score the first of them */

/* Logits of coarse nodes: 8 lanes a node, each code read once for all queries. */
static __device__ __forceinline__ void
score_nodes (const LycheeCudaSearch &p, const LycheeSearch &s)
{
  int part = threadIdx.x % 8, words = s.dim / 4;

  for (int base = blockIdx.x * SCORE_NODES; base < s.head.n_nodes;
       base += gridDim.x * SCORE_NODES) {
    int at = base + threadIdx.x / 8;
    bool there = at < s.head.n_nodes;
    const LycheeCudaNode *node = s.head.nodes[there ? at : 0];
    const unsigned *code = reinterpret_cast<const unsigned *> (lychee_node_codes (node));
    unsigned bits[8];

#pragma unroll
    for (int w = 0; w < 8; w++)
      bits[w] = part + 8 * w < words ? code[part + 8 * w] : 0;
    for (int q = 0; q < s.n_queries; q++) {
      float sum = lychee_search_dot_8 (s.q + q * s.dim, bits, part, words);

      if (part == 0 && there)
        p.z[((size_t) s.job * p.block_tokens * (p.n_heads / p.n_kv_heads) + q) * p.max_nodes + at] =
            p.scale * node->scale * sum + node->log_count;
    }
    if (part == 0 && there)
      p.count[(size_t) s.job * p.max_nodes + at] = (int) (node->n_rows | node->n_leaves << 16);
  }
}

__global__ void
__launch_bounds__ (SCORE_THREADS) score_kernel (LycheeCudaSearch p)
{
  LYCHEE_DYNAMIC_SHARED (memory);
  float *q = reinterpret_cast<float *> (memory);
  LycheeSearch s = lychee_search_begin (p, blockIdx.y, gridDim.y / p.n_kv_heads);
  LycheeCudaSelection selection;
  int certain;

  if (lychee_search_budget (p, s, &selection, &certain) < 0)
    return;
  lychee_search_load_queries (p, s, q);
  s.q = q;
  score_nodes (p, s);
}

/* Entries of an array a row a query, whose rows are @stride apart. */
struct Rows {
  float *at;
  int stride;
};

/* Room for @n entries of each query: in shared memory, or in @global's. */
static __device__ __forceinline__ Rows
take_rows (LycheeSearch *s, int n, float *global, int stride)
{
  float *at = lychee_search_take (s, s->n_queries * n, global);
  Rows rows = { at, at == global ? stride : n };

  return rows;
}

/* weight = exp (z - most), a warp a query; @z and @weight may be the same. */
static __device__ __forceinline__ void
weigh (const LycheeSearch &s, Rows z, Rows weight, int n)
{
  for (int q = threadIdx.x / 32; q < s.n_queries; q += SEARCH_WARPS) {
    const float *from = z.at + (size_t) q * z.stride;
    float *to = weight.at + (size_t) q * weight.stride;
    float most = -INFINITY, sum = 0;

    for (int i = threadIdx.x % 32; i < n; i += 32)
      most = fmaxf (most, from[i]);
    most = lychee_warp_max (most);
    for (int i = threadIdx.x % 32; i < n; i += 32) {
      float x = expf (from[i] - most);

      to[i] = x;
      sum += x;
    }
    sum = lychee_warp_sum (sum);
    if (threadIdx.x % 32 == 0) {
      s.most[q] = most;
      /* Nothing of a query whose logits are not numbers. */
      s.inverse_sum[q] = sum > 0 && sum <= n * 1.001f ? 1 / sum : 0;
    }
  }
  __syncthreads ();
}

/* Which part of the queries' attention each row of an entry gets. */
static __device__ __forceinline__ void
find_densities (const LycheeSearch &s, Rows weight, const int *count, int n, float *density)
{
  for (int i = threadIdx.x; i < n; i += SEARCH_THREADS) {
    float sum = 0;

    for (int q = 0; q < s.n_queries; q++)
      if (s.inverse_sum[q] > 0)
        sum += weight.at[(size_t) q * weight.stride + i] * s.inverse_sum[q];
    density[i] = sum / SEARCH_ROWS (count[i]);
  }
  __syncthreads ();
}

/* The nodes that are opened, in their order. */
struct Opened {
  int n, n_leaves;
  int *list;                      /* [n][2] node, first leaf */
  const LycheeCudaNode **records; /* [n] in shared memory, or NULL */
};

static __device__ __forceinline__ const LycheeCudaNode *
get_record (const LycheeSearch &s, const Opened &opened, int i)
{
  return opened.records ? opened.records[i] : s.head.nodes[opened.list[2 * i]];
}

/* Lists the nodes that are opened, and where their leaves are to stand. */
static __device__ __forceinline__ void
open_nodes (const LycheeSearch &s, const float *density, const int *count, unsigned threshold,
    int left, Opened *opened)
{
  int ties = 0, n = 0, n_leaves = 0;

  for (int base = 0; base < s.head.n_nodes; base += SEARCH_THREADS) {
    int i = base + threadIdx.x, total, leaves;
    int chosen =
        lychee_search_choose (s, density, count, s.head.n_nodes, i, threshold, left, &ties) > 0;
    int own = chosen ? count[i] >> 16 & 0xffff : 0;
    int place = n + lychee_block_scan (chosen, s.scratch, &total);
    int leaf = n_leaves + lychee_block_scan (own, s.scratch, &leaves);

    if (chosen) {
      opened->list[2 * place] = i;
      opened->list[2 * place + 1] = leaf;
      if (opened->records)
        opened->records[place] = s.head.nodes[i];
    }
    n += total;
    n_leaves += leaves;
  }
  opened->n = n;
  opened->n_leaves = n_leaves;
  __syncthreads ();
}

/* The leaves of opened nodes. */
struct Leaves {
  Rows weight, rank; /* of these, logits at first */
  int *node;         /* which of the opened ones */
  int *count;        /* rows, and above the first one's number in the node */
  int *read;
  float *density;
};

/* What is read of a leaf to score it. */
struct LoadedLeaf {
  LycheeCudaLeaf leaf;
  float log_count; /* of the node */
  unsigned bits[4];
};

/* Logits of the leaves, 8 lanes a leaf. Codes are 4 bits: differences from the node's mean, whose
 * logit is known. */
static __device__ __forceinline__ void
score_leaves (const LycheeCudaSearch &p, const LycheeSearch &s, Rows z, const int *node_count,
    const Opened &opened, const Leaves &leaves)
{
  const int step = SEARCH_THREADS / 8;
  int part = threadIdx.x % 8;

  /* Which node each leaf is of, a warp a node. */
  for (int i = threadIdx.x / 32; i < opened.n; i += SEARCH_WARPS) {
    int n = node_count[opened.list[2 * i]] >> 16 & 0xffff;

    for (int j = threadIdx.x % 32; j < n; j += 32)
      leaves.node[opened.list[2 * i + 1] + j] = i;
  }
  __syncthreads ();
  for (int base = 0; base < opened.n_leaves; base += step * LEAVES_AHEAD) {
    LoadedLeaf loaded[LEAVES_AHEAD];

#pragma unroll
    for (int k = 0; k < LEAVES_AHEAD; k++) {
      int at = base + k * step + threadIdx.x / 8, last = opened.n_leaves - 1;
      int i = leaves.node[min (at, last)], j = min (at, last) - opened.list[2 * i + 1];
      int n = node_count[opened.list[2 * i]] >> 16 & 0xffff;
      const LycheeCudaNode *node = get_record (s, opened, i);
      const LycheeCudaLeaf *leaf = lychee_node_leaves (node, s.dim);
      const unsigned *code = reinterpret_cast<const unsigned *> (
          reinterpret_cast<const unsigned char *> (leaf + n) + (size_t) j * (s.dim / 2));

      loaded[k].leaf = leaf[j];
      loaded[k].log_count = node->log_count;
#pragma unroll
      for (int w = 0; w < 4; w++)
        loaded[k].bits[w] = part + 8 * w < s.dim / 8 ? code[part + 8 * w] : 0x88888888u;
    }
#pragma unroll
    for (int k = 0; k < LEAVES_AHEAD; k++) {
      int at = base + k * step + threadIdx.x / 8;
      bool writes = part == 0 && at < opened.n_leaves;
      int place = opened.list[2 * leaves.node[min (at, opened.n_leaves - 1)]];

      for (int q = 0; q < s.n_queries; q++) {
        float sum = lychee_search_dot_4 (s.q + q * s.dim, loaded[k].bits, part, s.dim);

        if (writes) {
          float x = logf (loaded[k].leaf.count) + z.at[(size_t) q * z.stride + place] -
                    loaded[k].log_count + p.scale * loaded[k].leaf.scale * sum;

          leaves.weight.at[(size_t) q * leaves.weight.stride + at] = x;
          leaves.rank.at[(size_t) q * leaves.rank.stride + at] =
              x + s.length[q] * loaded[k].leaf.spread;
        }
      }
      if (writes)
        leaves.count[at] = loaded[k].leaf.count | loaded[k].leaf.first << 16;
    }
  }
  __syncthreads ();
}

/* The rows of the leaves, as far as they are chosen. */
static __device__ __forceinline__ void
list_rows (
    const LycheeCudaSearch &p, const LycheeSearch &s, const Opened &opened, const Leaves &leaves)
{
  lychee_search_list (s, p.selected + (size_t) s.job * p.budget, [&] (int base) {
    /* 8 threads a leaf: few have many rows, and most are not read. */
    for (int leaf = threadIdx.x / 8; leaf < opened.n_leaves; leaf += SEARCH_THREADS / 8) {
      int read = leaves.read[leaf], i = leaves.node[leaf];

      if (read == 0)
        continue;
      const int *ids = lychee_node_ids (get_record (s, opened, i), s.dim);

      ids += leaves.count[leaf] >> 16 & 0xffff;
      for (int r = threadIdx.x % 8; r < read; r += 8)
        lychee_search_mark (s, ids[r], base);
    }
  });
}

/* Weights of what is not read, where the attention will look for them: those of nodes, of opened
 * ones lowered to what is left of their leaves; all relative to the larger of the largest logits of
 * nodes (other_most) and of leaves. */
static __device__ __forceinline__ void
lower_weights (const LycheeCudaSearch &p, const LycheeSearch &s, Rows weight, const int *node_count,
    const Opened &opened, const Leaves &leaves, float *to)
{
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32;

  for (int q = 0; q < s.n_queries; q++) {
    float lower = opened.n > 0 ? expf (fminf (0, s.other_most[q] - s.most[q])) : 1;

    for (int i = threadIdx.x; i < s.head.n_nodes; i += SEARCH_THREADS)
      to[(size_t) q * p.max_nodes + i] = weight.at[(size_t) q * weight.stride + i] * lower;
  }
  __syncthreads ();
  for (int i = warp; i < opened.n; i += SEARCH_WARPS) {
    int place = opened.list[2 * i], first = opened.list[2 * i + 1];
    int n = node_count[place] >> 16 & 0xffff;

    for (int q = 0; q < s.n_queries; q++) {
      const float *leaf_weight = leaves.weight.at + (size_t) q * leaves.weight.stride + first;
      float sum = 0, factor = fminf (1, expf (s.most[q] - s.other_most[q]));

      for (int j = lane; j < n; j += 32) {
        int count = SEARCH_ROWS (leaves.count[first + j]), read = leaves.read[first + j];

        sum += leaf_weight[j] * ((float) (count - read) / count);
      }
      sum = lychee_warp_sum (sum);
      if (lane == 0)
        to[(size_t) q * p.max_nodes + place] = sum * factor;
    }
  }
  __syncthreads ();
}

/* Opens the best nodes, and reads the best leaves of these; returns how many rows are read. */
static __device__ __forceinline__ int
read_leaves (const LycheeCudaSearch &p, LycheeSearch *s, Rows z, Rows weight, const int *node_count,
    int budget, Opened *opened, Leaves *leaves)
{
  int block_queries = p.block_tokens * (p.n_heads / p.n_kv_heads), n_nodes = s->head.n_nodes;
  int total = s->head.end - s->head.begin, left;
  size_t at_leaf = (size_t) s->job * p.max_leaves, row = at_leaf * block_queries;
  float open = p.beam > 0 ? p.beam * budget
                          : LYCHEE_OPEN_ROWS (p.head_dim) + (float) LYCHEE_OPEN_BEAM * budget;
  float *density = p.density + (size_t) s->job * max (p.max_nodes, p.max_leaves);
  float *node_density = lychee_search_take (s, n_nodes, density);
  unsigned threshold;

  opened->list = lychee_search_take (s, 2 * n_nodes, p.opened + (size_t) s->job * p.max_nodes * 2);
  opened->records = lychee_search_take<const LycheeCudaNode *> (s, 2 * n_nodes, nullptr);
  find_densities (*s, weight, node_count, n_nodes, node_density);
  threshold = lychee_search_threshold (
      *s, node_density, node_count, n_nodes, (int) ceilf (fminf (open, (float) total)), &left);
  open_nodes (*s, node_density, node_count, threshold, left, opened);

  leaves->node = lychee_search_take (s, opened->n_leaves, p.leaf_node + at_leaf);
  leaves->count = lychee_search_take (s, opened->n_leaves, p.leaf_count + at_leaf);
  leaves->read = lychee_search_take (s, opened->n_leaves, p.leaf_read + at_leaf);
  leaves->density = lychee_search_take (s, opened->n_leaves, density);
  leaves->weight = take_rows (s, opened->n_leaves, p.leaf_weight + row, p.max_leaves);
  leaves->rank = take_rows (s, opened->n_leaves, p.leaf_rank + row, p.max_leaves);
  score_leaves (p, *s, z, node_count, *opened, *leaves);
  /* If what is not read is lost, the weights themselves are the better order. */
  if (p.rest) {
    weigh (*s, leaves->rank, leaves->rank, opened->n_leaves);
    find_densities (*s, leaves->rank, leaves->count, opened->n_leaves, leaves->density);
  }
  weigh (*s, leaves->weight, leaves->weight, opened->n_leaves);
  if (!p.rest)
    find_densities (*s, leaves->weight, leaves->count, opened->n_leaves, leaves->density);
  return lychee_search_read (
      *s, leaves->density, leaves->count, opened->n_leaves, budget, leaves->read);
}

__global__ void
__launch_bounds__ (SEARCH_THREADS, 1) search_kernel (LycheeCudaSearch p, int n_pool)
{
  LYCHEE_SHARED (int, scratch, 32);
  LYCHEE_SHARED (int, bins, 256);
  LYCHEE_SHARED (int, found, 2);
  LYCHEE_DYNAMIC_SHARED (memory);
  int block_queries = p.block_tokens * (p.n_heads / p.n_kv_heads), certain, budget, total;
  int n_rows = 0, n_scored = 0, n_estimated = 0;
  LycheeCudaSelection selection;
  LycheeSearch s = lychee_search_begin (p, blockIdx.x, gridDim.x / p.n_kv_heads);

  s.scratch = scratch;
  s.bins = bins;
  s.found = found;
  total = s.head.end - s.head.begin;
  budget = lychee_search_budget (p, s, &selection, &certain);
  if (budget < 0) {
    lychee_search_list_all (p, s);
    n_rows = total;
  } else {
    int n_nodes = s.head.n_nodes;
    float *global_z = p.z + (size_t) s.job * block_queries * p.max_nodes;
    float *global_weight = p.weight + (size_t) s.job * block_queries * p.max_nodes;
    int *global_count = p.count + (size_t) s.job * p.max_nodes;
    Opened opened = { 0, 0, nullptr, nullptr };
    Leaves leaves = {};

    lychee_search_lay_out (p, &s, memory, n_pool, LYCHEE_LEAF_SPREADS * p.scale);
    int *count = lychee_search_take (&s, n_nodes, global_count);
    Rows z = take_rows (&s, n_nodes, global_z, p.max_nodes);
    Rows weight = take_rows (&s, n_nodes, global_weight, p.max_nodes);
    for (int i = threadIdx.x; i < n_nodes && count != global_count; i += SEARCH_THREADS)
      count[i] = global_count[i];
    for (int i = threadIdx.x; i < s.n_queries * n_nodes && z.at != global_z; i += SEARCH_THREADS)
      z.at[i] = global_z[(size_t) (i / n_nodes) * p.max_nodes + i % n_nodes];
    __syncthreads ();
    weigh (s, z, weight, n_nodes);
    for (int i = threadIdx.x; i < s.n_queries; i += SEARCH_THREADS)
      s.other_most[i] = s.most[i];
    __syncthreads ();
    if (budget > 0) {
      n_rows = read_leaves (p, &s, z, weight, count, budget, &opened, &leaves);
      list_rows (p, s, opened, leaves);
    }
    if (p.rest)
      lower_weights (p, s, weight, count, opened, leaves, global_weight);
    for (int i = threadIdx.x; i < s.n_queries; i += SEARCH_THREADS)
      p.most[(size_t) s.job * block_queries + i] = fmaxf (s.other_most[i], s.most[i]);
    if (p.rest) {
      selection.n_rest = n_nodes;
      n_estimated = total - n_rows;
    }
    n_scored = n_nodes + opened.n_leaves;
  }
  lychee_search_finish (p, s, selection, certain, n_rows, n_scored, n_estimated);
}

int
lychee_cuda_search_block_tokens (int dim, int n_heads, int n_kv_heads)
{
  int tokens = 16;

  while (
      tokens > 1 && lychee_search_fixed (dim, tokens * (n_heads / n_kv_heads)) > SEARCH_MAX_SHARED)
    tokens /= 2;
  return tokens;
}

int
lychee_cuda_search (const LycheeCudaSearch *p, cudaStream_t stream)
{
  int status, n_blocks, jobs, score_blocks, most, n_pool;
  int queries;
  size_t fixed, nodes, leaves;

  if (p->n_tokens == 0)
    return 0;
  queries = p->block_tokens * (p->n_heads / p->n_kv_heads);
  fixed = lychee_search_fixed (p->head_dim, queries);
  if (p->head_dim % 16 != 0 || p->head_dim > 256 || fixed > SEARCH_MAX_SHARED ||
      (p->separate && p->block_tokens != 1))
    return (int) cudaErrorInvalidValue;
  n_blocks = (p->n_tokens + p->block_tokens - 1) / p->block_tokens;
  jobs = p->n_kv_heads * n_blocks;
  status = lychee_allow_shared (search_kernel, SEARCH_MAX_SHARED);
  if (!status)
    status = lychee_allow_shared (score_kernel, SEARCH_MAX_SHARED);
  if (status)
    return status;
  score_blocks = (p->max_nodes + SCORE_NODES - 1) / SCORE_NODES;
  most = SEARCH_SCORE_BLOCKS / jobs > 1 ? SEARCH_SCORE_BLOCKS / jobs : 1;
  status = lychee_launch (score_kernel, dim3 (score_blocks < most ? score_blocks : most, jobs),
      SCORE_THREADS, queries * p->head_dim * sizeof (float), stream, *p);
  if (status)
    return status;
  /* Of a node: count, density, place, record; of a leaf: node, count, read, density; of both: two
   * numbers a query. A few more for rounding up. */
  nodes = (size_t) p->max_nodes;
  leaves = (size_t) p->max_leaves;
  n_pool = lychee_search_pool (
      p->head_dim, queries, nodes * (6 + 2 * queries) + leaves * (4 + 2 * queries) + 64);
  return lychee_launch (search_kernel, jobs, SEARCH_THREADS,
      fixed + (size_t) n_pool * sizeof (float), stream, *p, n_pool);
}
