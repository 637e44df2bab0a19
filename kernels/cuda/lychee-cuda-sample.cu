/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Choosing a token: what lib/lychee-sampler.c does, in the same whole numbers, so that it chooses
 * the same one. Sums of weights are exact in any order; where order matters (the last token that
 * top-k or top-p lets in, the token that is drawn) it is that of logits and ids. */

#include "lychee-cuda-device.cuh"

#define THREADS 256
#define WARPS (THREADS / 32)
#define CHOOSE_THREADS 1024
#define TILE LYCHEE_CUDA_SAMPLE_TILE
#define MAX_FLOAT 3.402823466e+38f
#define NOBODY 0x7fffffff

typedef unsigned long long Weight;

/* What belongs to the sequence that a block chooses for. */
static __device__ __forceinline__ void
find_sequence (LycheeCudaSample *p, int sequence)
{
  size_t at = (size_t) sequence;

  p->sampling += at;
  p->history += at * p->history_stride;
  p->logits += at * p->n;
  p->penalised += at * p->history_stride;
  p->tile_max += at * ((p->n + TILE - 1) / TILE);
  p->masses += at * LYCHEE_N_BUCKETS;
  p->counts += at * LYCHEE_N_BUCKETS;
  p->members += at * p->n;
  p->chosen += at;
}

/* The penalties, first all read and then all written: a token counts once however often it is
 * there.
 */
__global__ void
__launch_bounds__ (CHOOSE_THREADS) penalise_kernel (LycheeCudaSample p)
{
  find_sequence (&p, blockIdx.y);
  LycheeCudaSampling s = *p.sampling;

  if (s.penalty == 1)
    return;
  for (int i = threadIdx.x; i < s.n_history; i += CHOOSE_THREADS) {
    int id = p.history[i];
    float x = id >= 0 && id < p.n ? p.logits[id] : 0;

    p.penalised[i] = x > 0 ? x / s.penalty : x * s.penalty;
  }
  __syncthreads ();
  for (int i = threadIdx.x; i < s.n_history; i += CHOOSE_THREADS) {
    int id = p.history[i];

    if (id >= 0 && id < p.n)
      p.logits[id] = p.penalised[i];
  }
}

/* The best logit of each tile, a warp a tile; NaN and infinity are no logits. */
__global__ void
__launch_bounds__ (THREADS) tile_max_kernel (LycheeCudaSample p)
{
  int tile = (int) (blockIdx.x * WARPS + threadIdx.x / 32), n_tiles = (p.n + TILE - 1) / TILE;
  float most = -INFINITY;

  find_sequence (&p, blockIdx.y);
  for (int i = blockIdx.x * THREADS + threadIdx.x; i < LYCHEE_N_BUCKETS; i += gridDim.x * THREADS) {
    p.masses[i] = 0;
    p.counts[i] = 0;
  }
  if (blockIdx.x == 0 && threadIdx.x == 0)
    *p.chosen = NOBODY;
  if (tile >= n_tiles)
    return;
  for (int i = tile * TILE + threadIdx.x % 32; i < min (p.n, (tile + 1) * TILE); i += 32) {
    float x = p.logits[i];

    if (x > most && x <= MAX_FLOAT)
      most = x;
  }
  most = lychee_warp_max (most);
  if (threadIdx.x % 32 == 0)
    p.tile_max[tile] = most;
}

/* The best of all, in every thread; @scratch is [32], in shared memory. */
static __device__ __forceinline__ float
find_best (const LycheeCudaSample &p, float *scratch)
{
  int n_tiles = (p.n + TILE - 1) / TILE, n_warps = blockDim.x / 32;
  float most = -INFINITY;

  for (int i = threadIdx.x; i < n_tiles; i += blockDim.x)
    most = fmaxf (most, p.tile_max[i]);
  most = lychee_warp_max (most);
  if (threadIdx.x % 32 == 0)
    scratch[threadIdx.x / 32] = most;
  __syncthreads ();
  for (int i = 0; i < n_warps; i++)
    most = fmaxf (most, scratch[i]);
  return most;
}

/* How far below the best a logit is; -1: too far, or none. */
static __device__ __forceinline__ int
get_distance (float logit, float best, float scale)
{
  const float limit = (float) LYCHEE_MAX_OCTAVES * (1 << LYCHEE_OCTAVE_BITS);
  float distance;

  if (!(logit <= MAX_FLOAT))
    return -1;
  /* A difference and a product, each rounded once, as on the processor. */
  distance = logit == best ? 0 : __fmul_rn (best - logit, scale);
  return distance < limit ? (int) (unsigned) distance : -1;
}

static __device__ __forceinline__ Weight
get_weight (const LycheeCudaSample &p, int distance)
{
  int at = distance >> LYCHEE_TABLE_FRACTION_BITS & ((1 << LYCHEE_TABLE_BITS) - 1);
  Weight fraction = (Weight) (distance & ((1 << LYCHEE_TABLE_FRACTION_BITS) - 1));
  Weight weight = p.table[at], step = weight - p.table[at + 1];

  return (weight - ((step * fraction) >> LYCHEE_TABLE_FRACTION_BITS)) >>
         (distance >> LYCHEE_OCTAVE_BITS);
}

/* Sums up the weights and counts the tokens of each bucket; without a temperature finds the first
 * of the best. */
__global__ void
__launch_bounds__ (THREADS) weigh_kernel (LycheeCudaSample p)
{
  LYCHEE_SHARED (float, scratch, 32);
  LYCHEE_SHARED (Weight, masses, LYCHEE_N_BUCKETS);
  LYCHEE_SHARED (unsigned, counts, LYCHEE_N_BUCKETS);
  find_sequence (&p, blockIdx.y);
  LycheeCudaSampling s = *p.sampling;
  float best = find_best (p, scratch);

  for (int i = threadIdx.x; i < LYCHEE_N_BUCKETS; i += THREADS) {
    masses[i] = 0;
    counts[i] = 0;
  }
  __syncthreads ();
  for (int i = blockIdx.x * THREADS + threadIdx.x; i < p.n; i += gridDim.x * THREADS) {
    float x = p.logits[i];
    int distance;

    if (s.greedy) {
      if (x == best && best > -INFINITY)
        atomicMin (p.chosen, i);
      continue;
    }
    distance = get_distance (x, best, s.scale);
    if (distance >= 0) {
      Weight weight = get_weight (p, distance);

      if (weight >= s.min_weight)
        atomicAdd (&masses[distance >> LYCHEE_BUCKET_SHIFT], weight);
      atomicAdd (&counts[distance >> LYCHEE_BUCKET_SHIFT], 1u);
    }
  }
  __syncthreads ();
  for (int i = threadIdx.x; i < LYCHEE_N_BUCKETS; i += THREADS)
    if (counts[i] > 0) {
      atomicAdd (&p.masses[i], masses[i]);
      atomicAdd (&p.counts[i], counts[i]);
    }
}

/* What the threads of the last kernel know. */
struct Choice {
  float best;
  LycheeCudaSampling s;
  Weight *scratch, *bins, *found; /* [32], [256], [2], in shared memory */
  int *n;                         /* [32], the same */
  /* The last token that is still in: */
  unsigned last_key;
  int last_id;
};

/* A key that ascends as @logit descends. */
static __device__ __forceinline__ unsigned
get_key (float logit)
{
  unsigned bits = __float_as_uint (logit + 0.0f);

  return ~(bits >> 31 ? ~bits : bits | 0x80000000u);
}

static __device__ __forceinline__ bool
is_in (const Choice &c, unsigned key, int id)
{
  return key < c.last_key || (key == c.last_key && id <= c.last_id);
}

static __device__ __forceinline__ bool
is_member (const LycheeCudaSample &p, const Choice &c, int id, int bucket)
{
  float x = p.logits[id];
  int distance = get_distance (x, c.best, c.s.scale);

  return distance >= 0 && distance >> LYCHEE_BUCKET_SHIFT == bucket && is_in (c, get_key (x), id);
}

/* Lists the tokens of a bucket that are still in, by their ids; returns how many. A warp takes
 * every 32nd part of the vocabulary, and passes by tiles whose best is not as good. */
static __device__ __forceinline__ int
list_bucket (const LycheeCudaSample &p, const Choice &c, int bucket)
{
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32, n_tiles = (p.n + TILE - 1) / TILE;
  int own = (n_tiles + CHOOSE_THREADS / 32 - 1) / (CHOOSE_THREADS / 32), at = 0, all = 0;

  for (int turn = 0; turn < 2; turn++) {
    for (int tile = warp * own; tile < min (n_tiles, (warp + 1) * own); tile++) {
      int distance = get_distance (p.tile_max[tile], c.best, c.s.scale);

      if (distance < 0 || distance >> LYCHEE_BUCKET_SHIFT > bucket)
        continue;
      for (int base = tile * TILE; base < min (p.n, (tile + 1) * TILE); base += 32) {
        bool in = base + lane < p.n && is_member (p, c, base + lane, bucket);
        unsigned mask = __ballot_sync (LYCHEE_ALL_LANES, in);

        if (turn && in)
          p.members[at + __popc (mask & ((1u << lane) - 1))] = base + lane;
        at += __popc (mask);
      }
    }
    if (turn == 0) {
      __syncthreads ();
      if (lane == 0)
        c.n[warp] = at;
      __syncthreads ();
      at = 0;
      for (int i = 0; i < CHOOSE_THREADS / 32; i++) {
        at += i < warp ? c.n[i] : 0;
        all += c.n[i];
      }
    }
  }
  __syncthreads ();
  return all;
}

/* What a token counts where @weighted, and where not: 1. */
static __device__ __forceinline__ Weight
count_member (const LycheeCudaSample &p, const Choice &c, int id, bool weighted)
{
  Weight weight;

  if (!weighted)
    return 1;
  weight = get_weight (p, get_distance (p.logits[id], c.best, c.s.scale));
  return weight >= c.s.min_weight ? weight : 0;
}

/* Makes that token of the listed ones the last one with which they count @target, best first; the
 * lower id of equals. @target is at least 1, and not more than all count. */
static __device__ __forceinline__ void
keep_best (const LycheeCudaSample &p, Choice &c, int n, bool weighted, Weight target)
{
  unsigned prefix = 0, mask = 0;
  Weight before = 0, total;

  for (int shift = 24; shift >= 0; shift -= 8) {
    Weight x;

    if (threadIdx.x < 256)
      c.bins[threadIdx.x] = 0;
    __syncthreads ();
    for (int i = threadIdx.x; i < n; i += CHOOSE_THREADS) {
      unsigned key = get_key (p.logits[p.members[i]]);

      if ((key & mask) == prefix)
        atomicAdd (&c.bins[key >> shift & 255], count_member (p, c, p.members[i], weighted));
    }
    __syncthreads ();
    x = threadIdx.x < 256 ? c.bins[threadIdx.x] : 0;
    before = lychee_block_scan (x, c.scratch, &total);
    if (x > 0 && before < target && before + x >= target) {
      c.found[0] = threadIdx.x;
      c.found[1] = target - before;
    }
    __syncthreads ();
    prefix |= (unsigned) c.found[0] << shift;
    mask |= 255u << shift;
    target = c.found[1];
    __syncthreads ();
  }
  /* Of equals the first ones. */
  before = 0;
  for (int base = 0; base < n; base += CHOOSE_THREADS) {
    int i = base + threadIdx.x;
    Weight x = 0, own;

    if (i < n && get_key (p.logits[p.members[i]]) == prefix)
      x = count_member (p, c, p.members[i], weighted);
    own = before + lychee_block_scan (x, c.scratch, &total);
    if (x > 0 && own < target && own + x >= target)
      c.found[0] = (Weight) p.members[i];
    before += total;
  }
  __syncthreads ();
  c.last_key = prefix;
  c.last_id = (int) c.found[0];
  __syncthreads ();
}

/* What the listed tokens that are in weigh. */
static __device__ __forceinline__ Weight
sum_members (const LycheeCudaSample &p, const Choice &c, int n)
{
  Weight sum = 0, total;

  for (int i = threadIdx.x; i < n; i += CHOOSE_THREADS)
    if (is_in (c, get_key (p.logits[p.members[i]]), p.members[i]))
      sum += count_member (p, c, p.members[i], true);
  lychee_block_scan (sum, c.scratch, &total);
  return total;
}

/* The bucket for whose thread @mine is true, and what is before it; -1: none. */
static __device__ __forceinline__ int
find_bucket (const Choice &c, bool mine, Weight before, Weight *sum)
{
  int bucket;

  if (threadIdx.x == 0)
    c.found[0] = NOBODY;
  __syncthreads ();
  if (mine) {
    c.found[0] = threadIdx.x;
    c.found[1] = before;
  }
  __syncthreads ();
  bucket = c.found[0] == NOBODY ? -1 : (int) c.found[0];
  *sum = c.found[1];
  __syncthreads ();
  return bucket;
}

__global__ void
__launch_bounds__ (CHOOSE_THREADS) choose_kernel (LycheeCudaSample p)
{
  LYCHEE_SHARED (float, best_scratch, 32);
  LYCHEE_SHARED (Weight, scratch, 32);
  LYCHEE_SHARED (Weight, bins, 256);
  LYCHEE_SHARED (Weight, found, 2);
  LYCHEE_SHARED (int, n_listed, 32);
  Weight mass = 0, before, total, sum, target;
  bool mine;
  int bucket, n;
  Choice c;

  find_sequence (&p, blockIdx.y);
  c.s = *p.sampling;
  c.best = find_best (p, best_scratch);
  c.scratch = scratch;
  c.bins = bins;
  c.found = found;
  c.n = n_listed;
  c.last_key = 0xffffffffu;
  c.last_id = NOBODY;
  if (c.s.greedy || !(c.best > -INFINITY))
    return;
  if (threadIdx.x < 2)
    found[threadIdx.x] = 0;

  /* A thread a bucket. */
  if (threadIdx.x < LYCHEE_N_BUCKETS)
    mass = p.masses[threadIdx.x];
  if (c.s.top_k > 0) {
    Weight count = threadIdx.x < LYCHEE_N_BUCKETS ? p.counts[threadIdx.x] : 0;

    before = lychee_block_scan (count, scratch, &total);
    mine = before < c.s.top_k && before + count >= c.s.top_k;
    bucket = find_bucket (c, mine, before, &sum);
    if (bucket >= 0) {
      n = list_bucket (p, c, bucket);
      keep_best (p, c, n, false, c.s.top_k - sum);
      sum = sum_members (p, c, n);
      if ((int) threadIdx.x >= bucket)
        mass = (int) threadIdx.x == bucket ? sum : 0;
    }
  }
  before = lychee_block_scan (mass, scratch, &total);
  target = (Weight) (c.s.top_p * (double) total);
  if (c.s.top_p < 1 && target < total) {
    mine = mass > 0 && before + mass >= target && (before < target || before == 0);
    bucket = find_bucket (c, mine, before, &sum);
    n = list_bucket (p, c, bucket);
    /* Where the share is next to nothing the best one is in all the same. */
    keep_best (p, c, n, true, target > sum ? target - sum : 1);
    sum = sum_members (p, c, n);
    if ((int) threadIdx.x >= bucket)
      mass = (int) threadIdx.x == bucket ? sum : 0;
    before = lychee_block_scan (mass, scratch, &total);
  }

  /* Which bucket, then which of it in the order of ids. */
  target = __umul64hi (c.s.random, total);
  bucket = find_bucket (c, before <= target && target < before + mass, before, &sum);
  n = list_bucket (p, c, bucket);
  target -= sum;
  sum = 0;
  for (int base = 0; base < n; base += CHOOSE_THREADS) {
    int i = base + threadIdx.x;
    Weight x = i < n ? count_member (p, c, p.members[i], true) : 0;

    before = sum + lychee_block_scan (x, scratch, &total);
    if (before <= target && target < before + x)
      *p.chosen = p.members[i];
    sum += total;
  }
}

int
lychee_cuda_sample (const LycheeCudaSample *p, cudaStream_t stream)
{
  int n_tiles = (p->n + TILE - 1) / TILE, blocks = (n_tiles + WARPS - 1) / WARPS, status;
  int n = p->n_sequences > 0 ? p->n_sequences : 1;

  if (p->n < 1)
    return (int) cudaErrorInvalidValue;
  status = lychee_launch (penalise_kernel, dim3 (1, n), CHOOSE_THREADS, 0, stream, *p);
  if (!status)
    status = lychee_launch (tile_max_kernel, dim3 (blocks, n), THREADS, 0, stream, *p);
  if (!status)
    status = lychee_launch (weigh_kernel, dim3 (blocks, n), THREADS, 0, stream, *p);
  if (!status)
    status = lychee_launch (choose_kernel, dim3 (1, n), CHOOSE_THREADS, 0, stream, *p);
  return status;
}
