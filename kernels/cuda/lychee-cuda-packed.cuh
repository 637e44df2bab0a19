/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Positions of keys that stand nowhere, when they are read (lychee-cuda-kernels.h,
 * LycheeCudaTurn): with what is far standing close together behind what is near, in order, and the
 * sinks behind that. */

#include "lychee-cuda-rows.cuh"

/* How a block of queries reads them. */
struct LycheeDistances {
  int last;      /* position of the origin */
  int origin;    /* the same as a place: what is before it is so far away */
  int near;      /* so far is kept, */
  int most;      /* and nothing is farther */
  int n_far;     /* selected rows that are farther than @near: the first ones */
  int sinks_end; /* distance of what stands behind the sinks */
};

/* For a block whose first token stands at place @first, of a pass of @n_tokens that begins at place
 * @pass. */
static __device__ __forceinline__ LycheeDistances
lychee_distances_begin (const LycheeCudaTurn &turn, int first, int pass, int n_tokens)
{
  bool all_known = pass + n_tokens <= turn.range;
  LycheeDistances d;

  d.last = turn.range + LYCHEE_CUDA_BEHIND;
  d.origin = first + turn.behind;
  d.near = all_known ? 0x7fffffff : turn.range / 2;
  d.most = all_known ? d.last : turn.range;
  d.n_far = 0;
  d.sinks_end = d.origin;
  return d;
}

/* What was found: rows in ascending order, of which @skip were forgotten before. By all threads;
 * @count is shared memory. */
static __device__ __forceinline__ void
lychee_distances_select (
    LycheeDistances *d, const int *selected, int n_rows, int n_sinks, int skip, int *count)
{
  int own = 0;

  if (threadIdx.x == 0)
    *count = 0;
  __syncthreads ();
  for (int i = threadIdx.x; i < n_rows; i += blockDim.x)
    own += d->origin - (selected[i] - skip) > d->near;
  if (own > 0)
    atomicAdd (count, own);
  __syncthreads ();
  d->n_far = *count;
  if (d->near < 0x7fffffff)
    d->sinks_end = min (d->origin, min (min (d->near + d->n_far, d->most) + n_sinks, d->most));
}

static __device__ __forceinline__ int
lychee_distances_get (const LycheeDistances &d, int distance)
{
  return max (0, d.last - min (distance, d.most));
}

/* Positions of the three kinds of rows: sink @i, what is at a place, and the @i'th selected row. */
static __device__ __forceinline__ int
lychee_position_of_sink (const LycheeDistances &d, int i)
{
  return lychee_distances_get (d, d.sinks_end - i);
}

static __device__ __forceinline__ int
lychee_position_of_place (const LycheeDistances &d, int place)
{
  return lychee_distances_get (d, d.origin - place);
}

static __device__ __forceinline__ int
lychee_position_of_selected (const LycheeDistances &d, int i, int place)
{
  return i < d.n_far ? lychee_distances_get (d, d.near + d.n_far - i)
                     : lychee_position_of_place (d, place);
}

/* A pair of elements, turned to @position. */
static __device__ __forceinline__ float2
lychee_turn_pair (const LycheeCudaTurn &turn, int position, int pair, float2 x)
{
  const int n_pairs = turn.n_rot / 2;
  float2 low = lychee_load<float2> (
      turn.low + (size_t) ((position & (LYCHEE_CUDA_TURN_LOW - 1)) * n_pairs + pair) * 2);
  float2 high = lychee_load<float2> (
      turn.high + ((size_t) (position >> LYCHEE_CUDA_TURN_BITS) * n_pairs + pair) * 2);
  float c = low.x * high.x - low.y * high.y, s = low.y * high.x + low.x * high.y;
  float2 turned = { x.x * c - x.y * s, x.y * c + x.x * s };

  return turned;
}

/* Which elements pair @pair of a row is, and whether it is rotated. */
static __device__ __forceinline__ bool
lychee_find_pair (int n_rot, int neox, int pair, int *first, int *second)
{
  bool rotates = pair < n_rot / 2;

  *first = 2 * pair;
  *second = 2 * pair + 1;
  if (neox && rotates) {
    *first = pair;
    *second = pair + n_rot / 2;
  }
  return rotates;
}
