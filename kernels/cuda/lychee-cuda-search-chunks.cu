/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Search of an index with granularity chunk: what lib/lychee-index-chunks-search.c finds. There
 * units are opened best bound first until no other can win; here all clusters are scored, which is
 * as exact: they are few, and to prune them would be one more step that waits for the one before.
 */

#include "lychee-cuda-search.cuh"

#define SCORE_THREADS 128
#define MOST_EXPONENT 80.0f /* beyond which a bound grows no more */

/* The parts of a unit's record: see lychee-cuda.h. */
struct UnitParts {
  const LycheeCudaUnit *unit;
  const unsigned *code, *base;
  const LycheeCudaCluster *clusters;
  const unsigned char *cluster_codes;
  const LycheeCudaItem *items;
};

static __device__ __forceinline__ UnitParts
find_parts (const LycheeCudaHead &head, int unit, int dim)
{
  UnitParts parts;

  parts.unit = reinterpret_cast<const LycheeCudaUnit *> (head.nodes[unit]);
  parts.code = reinterpret_cast<const unsigned *> (parts.unit + 1);
  parts.base = parts.code + dim / 4;
  parts.clusters = reinterpret_cast<const LycheeCudaCluster *> (parts.base + dim / 4);
  parts.cluster_codes =
      reinterpret_cast<const unsigned char *> (parts.clusters + parts.unit->n_clusters);
  parts.items = reinterpret_cast<const LycheeCudaItem *> (
      parts.cluster_codes + (size_t) parts.unit->n_clusters * (dim / 2));
  return parts;
}

/* The number of the first cluster of each unit, behind the list of units; and of all. */
static __device__ __forceinline__ const unsigned *
get_firsts (const LycheeCudaHead &head)
{
  return reinterpret_cast<const unsigned *> (head.nodes + head.n_nodes);
}

/* Upper bounds of what the queries may have for an item, but for their largest: s q c + s |q| r. A
 * block a unit, 8 lanes a cluster; the unit's own bounds go to z. */
__global__ void
__launch_bounds__ (SCORE_THREADS) score_chunks_kernel (LycheeCudaSearch p)
{
  LYCHEE_DYNAMIC_SHARED (memory);
  float *q = reinterpret_cast<float *> (memory);
  LycheeSearch s = lychee_search_begin (p, blockIdx.y, gridDim.y / p.n_kv_heads);
  int block_queries = p.block_tokens * (p.n_heads / p.n_kv_heads);
  float *length = q + block_queries * s.dim, *base_z = length + block_queries;
  int part = threadIdx.x % 8, group = threadIdx.x / 8, words = s.dim / 4;
  LycheeCudaSelection selection;
  int certain;

  if (lychee_search_budget (p, s, &selection, &certain) < 0)
    return;
  lychee_search_load_queries (p, s, q);
  for (int i = threadIdx.x / 32; i < s.n_queries; i += SCORE_THREADS / 32) {
    float sum = 0;

    for (int d = threadIdx.x % 32; d < s.dim; d += 32)
      sum += q[i * s.dim + d] * q[i * s.dim + d];
    sum = lychee_warp_sum (sum);
    if (threadIdx.x % 32 == 0)
      length[i] = p.scale * sqrtf (sum);
  }
  __syncthreads ();
  for (int unit = blockIdx.x; unit < s.head.n_nodes; unit += gridDim.x) {
    UnitParts parts = find_parts (s.head, unit, s.dim);
    int first = (int) get_firsts (s.head)[unit], n = (int) parts.unit->n_clusters;
    unsigned bits[8];

    /* 8 lanes a query: of the middle that the clusters' codes are differences from, and of the
     * unit's own. */
    for (int at = 0; at < s.n_queries; at += SCORE_THREADS / 8) {
      int i = at + group;
      const float *own = q + min (i, s.n_queries - 1) * s.dim;
      float base, center;

#pragma unroll
      for (int w = 0; w < 8; w++)
        bits[w] = part + 8 * w < words ? parts.base[part + 8 * w] : 0;
      base = lychee_search_dot_8 (own, bits, part, words);
#pragma unroll
      for (int w = 0; w < 8; w++)
        bits[w] = part + 8 * w < words ? parts.code[part + 8 * w] : 0;
      center = lychee_search_dot_8 (own, bits, part, words);
      if (part == 0 && i < s.n_queries) {
        base_z[i] = p.scale * parts.unit->base_scale * base;
        p.z[((size_t) s.job * block_queries + i) * p.max_nodes + unit] =
            p.scale * parts.unit->scale * center + length[i] * parts.unit->radius;
      }
    }
    __syncthreads ();
    for (int base = 0; base < n; base += SCORE_THREADS / 8) {
      int i = base + group;
      bool there = i < n;
      LycheeCudaCluster cluster = parts.clusters[there ? i : 0];
      const unsigned *code = reinterpret_cast<const unsigned *> (
          parts.cluster_codes + (size_t) (there ? i : 0) * (s.dim / 2));

#pragma unroll
      for (int w = 0; w < 4; w++)
        bits[w] = part + 8 * w < s.dim / 8 ? code[part + 8 * w] : 0x88888888u;
      for (int at = 0; at < s.n_queries; at++) {
        float sum = lychee_search_dot_4 (q + at * s.dim, bits, part, s.dim);

        if (part == 0 && there)
          p.leaf_rank[((size_t) s.job * block_queries + at) * p.max_leaves + first + i] =
              base_z[at] + p.scale * cluster.scale * sum + length[at] * cluster.radius;
      }
      if (part == 0 && there) {
        p.leaf_count[(size_t) s.job * p.max_leaves + first + i] = (int) cluster.n_rows;
        p.leaf_node[(size_t) s.job * p.max_leaves + first + i] = unit;
      }
    }
    __syncthreads ();
  }
}

/* score = sum over the queries of exp (bound - the largest bound of a unit): it grows with each
 * query's bound. */
static __device__ __forceinline__ void
find_scores (const LycheeCudaSearch &p, const LycheeSearch &s, int n, float *score)
{
  int block_queries = p.block_tokens * (p.n_heads / p.n_kv_heads);
  const float *z = p.z + (size_t) s.job * block_queries * p.max_nodes;
  const float *bound = p.leaf_rank + (size_t) s.job * block_queries * p.max_leaves;

  for (int q = threadIdx.x / 32; q < s.n_queries; q += SEARCH_WARPS) {
    float most = -INFINITY;

    for (int i = threadIdx.x % 32; i < s.head.n_nodes; i += 32)
      most = fmaxf (most, z[(size_t) q * p.max_nodes + i]);
    most = lychee_warp_max (most);
    if (threadIdx.x % 32 == 0)
      s.most[q] = most;
  }
  __syncthreads ();
  for (int i = threadIdx.x; i < n; i += SEARCH_THREADS) {
    float sum = 0;

    for (int q = 0; q < s.n_queries; q++)
      sum += expf (fminf (bound[(size_t) q * p.max_leaves + i] - s.most[q], MOST_EXPONENT));
    score[i] = sum >= 0 ? sum : 0; /* a query that is not a number */
  }
  __syncthreads ();
}

/* The first @read rows of each cluster, in the order of its items. */
static __device__ __forceinline__ void
list_rows (const LycheeCudaSearch &p, const LycheeSearch &s, const int *read, int n)
{
  const int *unit = p.leaf_node + (size_t) s.job * p.max_leaves;
  const unsigned *firsts = get_firsts (s.head);

  lychee_search_list (s, p.selected + (size_t) s.job * p.budget, [&] (int base) {
    for (int i = threadIdx.x / 8; i < n; i += SEARCH_THREADS / 8) {
      int left = read[i];

      if (left == 0)
        continue;
      UnitParts parts = find_parts (s.head, unit[i], s.dim);
      LycheeCudaCluster cluster = parts.clusters[i - (int) firsts[unit[i]]];

      for (unsigned j = 0; j < cluster.n_items && left > 0; j++) {
        LycheeCudaItem item = parts.items[cluster.first_item + j];
        int rows = min ((int) item.n_rows, left);

        for (int r = threadIdx.x % 8; r < rows; r += 8)
          lychee_search_mark (s, (int) item.first + r, base);
        left -= rows;
      }
    }
  });
}

__global__ void
__launch_bounds__ (SEARCH_THREADS, 1) search_chunks_kernel (LycheeCudaSearch p, int n_pool)
{
  LYCHEE_SHARED (int, scratch, 32);
  LYCHEE_SHARED (int, bins, 256);
  LYCHEE_SHARED (int, found, 2);
  LYCHEE_DYNAMIC_SHARED (memory);
  int certain, budget, n = 0, n_rows = 0;
  LycheeCudaSelection selection;
  LycheeSearch s = lychee_search_begin (p, blockIdx.x, gridDim.x / p.n_kv_heads);

  s.scratch = scratch;
  s.bins = bins;
  s.found = found;
  budget = lychee_search_budget (p, s, &selection, &certain);
  if (budget < 0) {
    lychee_search_list_all (p, s);
    n_rows = s.head.end - s.head.begin;
  } else {
    size_t at = (size_t) s.job * p.max_leaves;
    const int *global_count = p.leaf_count + at;

    lychee_search_lay_out (p, &s, memory, n_pool, 0);
    n = (int) get_firsts (s.head)[s.head.n_nodes];
    if (budget > 0) {
      float *score =
          lychee_search_take (&s, n, p.density + (size_t) s.job * max (p.max_nodes, p.max_leaves));
      int *read = lychee_search_take (&s, n, p.leaf_read + at);
      int *count = lychee_search_take<int> (&s, n, nullptr);

      for (int i = threadIdx.x; i < n && count; i += SEARCH_THREADS)
        count[i] = global_count[i];
      find_scores (p, s, n, score);
      n_rows = lychee_search_read (s, score, count ? count : global_count, n, budget, read);
      list_rows (p, s, read, n);
    }
  }
  lychee_search_finish (p, s, selection, certain, n_rows, budget < 0 ? 0 : s.head.n_nodes + n, 0);
}

int
lychee_cuda_search_chunks (const LycheeCudaSearch *p, cudaStream_t stream)
{
  int status, n_blocks, jobs, score_blocks, most, n_pool;
  int queries;
  size_t fixed;

  if (p->n_tokens == 0)
    return 0;
  queries = p->block_tokens * (p->n_heads / p->n_kv_heads);
  fixed = lychee_search_fixed (p->head_dim, queries);
  if (p->head_dim % 16 != 0 || p->head_dim > 256 || fixed > SEARCH_MAX_SHARED || p->rest ||
      (p->separate && p->block_tokens != 1))
    return (int) cudaErrorInvalidValue;
  n_blocks = (p->n_tokens + p->block_tokens - 1) / p->block_tokens;
  jobs = p->n_kv_heads * n_blocks;
  status = lychee_allow_shared (search_chunks_kernel, SEARCH_MAX_SHARED);
  if (!status)
    status = lychee_allow_shared (score_chunks_kernel, SEARCH_MAX_SHARED);
  if (status)
    return status;
  most = SEARCH_SCORE_BLOCKS / jobs > 1 ? SEARCH_SCORE_BLOCKS / jobs : 1;
  score_blocks = p->max_nodes < most ? p->max_nodes : most;
  status = lychee_launch (score_chunks_kernel, dim3 (score_blocks, jobs), SCORE_THREADS,
      queries * (p->head_dim + 2) * sizeof (float), stream, *p);
  if (status)
    return status;
  n_pool = lychee_search_pool (p->head_dim, queries, 3 * (size_t) p->max_leaves + 64);
  return lychee_launch (search_chunks_kernel, jobs, SEARCH_THREADS,
      fixed + (size_t) n_pool * sizeof (float), stream, *p, n_pool);
}
