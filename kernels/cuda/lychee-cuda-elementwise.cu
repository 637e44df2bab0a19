/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What goes over each element once: embedding, norms, rotation and storing, gates, conversions. */

#include "lychee-cuda-packed.cuh"

#define THREADS 256

static int
blocks_for (size_t n)
{
  return (int) ((n + THREADS - 1) / THREADS);
}

/* Calls a template for the type of the elements. */
#define FOR_TYPE(type, call)                                                                       \
  switch (type) {                                                                                  \
  case LYCHEE_CUDA_F32: {                                                                          \
    typedef float T;                                                                               \
    return call;                                                                                   \
  }                                                                                                \
  case LYCHEE_CUDA_F16: {                                                                          \
    typedef __half T;                                                                              \
    return call;                                                                                   \
  }                                                                                                \
  case LYCHEE_CUDA_BF16: {                                                                         \
    typedef __nv_bfloat16 T;                                                                       \
    return call;                                                                                   \
  }                                                                                                \
  case LYCHEE_CUDA_Q8_0:                                                                           \
    break;                                                                                         \
  }                                                                                                \
  return (int) cudaErrorInvalidValue

template <typename T>
__global__ void
embed_kernel (LycheeCudaEmbed p)
{
  const T *from = static_cast<const T *> (p.embedding) + (size_t) p.ids[blockIdx.x] * p.n_embd;

  for (int i = threadIdx.x; i < p.n_embd; i += blockDim.x)
    p.x[(size_t) blockIdx.x * p.n_embd + i] = p.scale * LycheeElement<T>::get (from[i]);
}

int
lychee_cuda_embed (const LycheeCudaEmbed *p, cudaStream_t stream)
{
  if (p->n_tokens == 0)
    return 0;
  FOR_TYPE (p->type, lychee_launch (embed_kernel<T>, p->n_tokens, THREADS, 0, stream, *p));
}

/* The nearest that there is: what is beyond half floats' range would be infinite, and all that
 * follows from it no number. What is none already stays so. */
template <typename T>
static __device__ __forceinline__ T
make_finite (float x)
{
  const float most = 65504;

  if (std::is_same<T, __half>::value)
    x = x > most ? most : x < -most ? -most : x;
  return LycheeElement<T>::make (x);
}

/* A block a row. */
template <typename T>
__global__ void
__launch_bounds__ (THREADS) norm_kernel (LycheeCudaNorm p)
{
  LYCHEE_SHARED (float, scratch, 32);
  size_t row = (size_t) blockIdx.x * p.n;
  float sum = 0, factor = 1;

  if (p.weight) {
    for (int i = threadIdx.x; i < p.n; i += blockDim.x) {
      float x = p.x[row + i] + (p.bias ? p.bias[i] : 0);

      sum += x * x;
    }
    factor = rsqrtf (lychee_block_sum (sum, scratch) / p.n + p.eps);
  }
  for (int i = threadIdx.x; i < p.n; i += blockDim.x) {
    float x = (p.x[row + i] + (p.bias ? p.bias[i] : 0)) * factor * (p.weight ? p.weight[i] : 1);

    if (p.output)
      static_cast<T *> (p.output)[row + i] = make_finite<T> (x);
    if (p.add)
      p.add[row + i] += p.factor * x;
  }
}

int
lychee_cuda_norm (const LycheeCudaNorm *p, cudaStream_t stream)
{
  if (p->n_rows == 0)
    return 0;
  FOR_TYPE (p->type, lychee_launch (norm_kernel<T>, p->n_rows, THREADS, 0, stream, *p));
}

/* In double: at a position of 100,000 a float32 angle is off by hundredths. Once a pass. */
__global__ void
rope_table_kernel (LycheeCudaRopeTable p)
{
  int i = blockIdx.x * blockDim.x + threadIdx.x;

  if (i < p.n_tokens * p.n_pairs) {
    int token = i / p.n_pairs;
    LycheeCudaStep step = p.step[p.separate ? token : 0];
    double angle =
        (double) (step.origin + step.first + (p.separate ? 0 : token)) * p.frequency[i % p.n_pairs];

    p.table[2 * i] = (float) (p.frequency[p.n_pairs] * cos (angle));
    p.table[2 * i + 1] = (float) (p.frequency[p.n_pairs] * sin (angle));
  }
}

int
lychee_cuda_rope_table (const LycheeCudaRopeTable *p, cudaStream_t stream)
{
  if (p->n_tokens == 0)
    return 0;
  return lychee_launch (
      rope_table_kernel, blocks_for ((size_t) p->n_tokens * p->n_pairs), THREADS, 0, stream, *p);
}

__global__ void
turns_kernel (LycheeCudaTurns p)
{
  int i = blockIdx.x * blockDim.x + threadIdx.x, n_low = LYCHEE_CUDA_TURN_LOW * p.n_pairs;

  if (i < n_low + p.n_high * p.n_pairs) {
    bool is_low = i < n_low;
    int at = is_low ? i : i - n_low, pair = at % p.n_pairs;
    double position = (double) (at / p.n_pairs) * (is_low ? 1 : LYCHEE_CUDA_TURN_LOW);
    double angle = position * p.frequency[pair], size = is_low ? p.frequency[p.n_pairs] : 1;
    float *to = (is_low ? p.low : p.high) + (size_t) at * 2;

    to[0] = (float) (size * cos (angle));
    to[1] = (float) (size * sin (angle));
  }
}

int
lychee_cuda_turns (const LycheeCudaTurns *p, cudaStream_t stream)
{
  size_t n = (size_t) (LYCHEE_CUDA_TURN_LOW + p->n_high) * p->n_pairs;

  if (n == 0)
    return 0;
  return lychee_launch (turns_kernel, blocks_for (n), THREADS, 0, stream, *p);
}

/* The mean of exp (i f d) over distances is the sum of a geometric series over their number. Keys
 * are not multiplied with the scale, which queries have twice instead. */
__global__ void
packed_table_kernel (LycheeCudaPackedTable p)
{
  int i = blockIdx.x * blockDim.x + threadIdx.x;

  if (i < p.n_tokens * p.n_pairs) {
    int token = i / p.n_pairs;
    LycheeCudaStep step = p.step[p.separate ? token : 0];
    int place = step.first - step.skip + (p.separate ? 0 : token);
    int farthest = max (p.window, min (place, p.range / 2));
    double frequency = p.frequency[i % p.n_pairs], scale = p.frequency[p.n_pairs];
    double at = p.range + LYCHEE_CUDA_BEHIND - p.behind + token % p.block_tokens;
    double middle = (p.window + (double) farthest) / 2, width = (double) farthest - p.window + 1;
    double below = sin (frequency / 2);
    double size = fabs (below) < 1e-12 ? 1 : sin (width * frequency / 2) / (width * below);

    p.query[2 * i] = (float) (scale * cos (at * frequency));
    p.query[2 * i + 1] = (float) (scale * sin (at * frequency));
    p.aim[2 * i] = (float) (scale * scale * size * cos (middle * frequency));
    p.aim[2 * i + 1] = (float) (scale * scale * size * sin (middle * frequency));
  }
}

int
lychee_cuda_packed_table (const LycheeCudaPackedTable *p, cudaStream_t stream)
{
  if (p->n_tokens == 0)
    return 0;
  if (p->range < 1 || p->block_tokens < 1)
    return (int) cudaErrorInvalidValue;
  return lychee_launch (
      packed_table_kernel, blocks_for ((size_t) p->n_tokens * p->n_pairs), THREADS, 0, stream, *p);
}

/* Elements @first and @second of a row, where they are this thread's own: into the page's part, and
 * for the host. */
template <typename F> struct RowWriter {
  static __device__ __forceinline__ void
  write (char *part, int row, uint16_t *copy, int dim, bool mine, int first, int second, float x,
      float y)
  {
    F *to = reinterpret_cast<F *> (part) + (size_t) row * dim;
    F *host = reinterpret_cast<F *> (copy);

    if (!mine)
      return;
    to[first] = host[first] = LycheeElement<F>::make (x);
    to[second] = host[second] = LycheeElement<F>::make (y);
  }
};

/* A warp a block of 32 values, as lychee_q8_encode () rounds them (lychee-cpu-kernels-private.h);
 * all threads. */
template <> struct RowWriter<LycheeQ8> {
  static __device__ __forceinline__ void
  write (char *part, int row, uint16_t *copy, int dim, bool mine, int first, int second, float x,
      float y)
  {
    LYCHEE_SHARED (float, values, 256);
    signed char *to = reinterpret_cast<signed char *> (part) + (size_t) row * dim;
    __half *scales = reinterpret_cast<__half *> (part + (size_t) LYCHEE_CUDA_PAGE_TOKENS * dim) +
                     row * lychee_cuda_scales (dim);
    int lane = threadIdx.x % 32;

    if (mine) {
      values[first] = x;
      values[second] = y;
    }
    __syncthreads ();
    for (int block = threadIdx.x / 32; block < dim / 32; block += blockDim.x / 32) {
      uint16_t *host = copy + block * LYCHEE_CUDA_BLOCK_UNITS;
      float value = values[block * 32 + lane], size = fabsf (value);
      bool bad = __any_sync (LYCHEE_ALL_LANES, !(size < INFINITY));
      __half scale = __float2half_rn (bad ? NAN : lychee_warp_max (size) / 127);
      float step = __half2float (scale), inverse = step > 0 ? 1 / step : 0;
      float scaled = bad ? 0 : rintf (__fmul_rn (value, inverse));
      signed char byte = (signed char) fminf (fmaxf (scaled, -127), 127);

      to[block * 32 + lane] = byte;
      reinterpret_cast<signed char *> (host + 1)[lane] = byte;
      if (lane == 0) {
        scales[block] = scale;
        *reinterpret_cast<__half *> (host) = scale;
      }
    }
  }
};

static __device__ __forceinline__ float2
rotate (const float *table, int at, float2 x)
{
  float c = table[2 * at], s = table[2 * at + 1];

  return float2{ x.x * c - x.y * s, x.x * s + x.y * c };
}

/* A block a token and head, a thread a pair of elements. */
template <typename F> __global__ void __launch_bounds__ (128) rope_kernel (LycheeCudaRope p)
{
  LYCHEE_SHARED (float, scratch, 32);
  int token = blockIdx.x, head = blockIdx.y, i = threadIdx.x, d = p.head_dim;
  int is_query = head < p.n_heads, is_value = head >= p.n_heads + p.n_kv_heads;
  int kv_head = is_value ? head - p.n_heads - p.n_kv_heads : head - p.n_heads;
  const float *norm = is_query ? p.q_norm : is_value ? nullptr : p.k_norm;
  int first, second;
  bool mine = i < d / 2;
  bool rotates = lychee_find_pair (is_value ? 0 : p.n_rot, p.neox, i, &first, &second);
  float x = 0, y = 0;

  if (mine) {
    const float *from = p.qkv + ((size_t) token * (p.n_heads + 2 * p.n_kv_heads) + head) * d;

    x = from[first];
    y = from[second];
    if (p.bias) {
      x += p.bias[(size_t) head * d + first];
      y += p.bias[(size_t) head * d + second];
    }
  }
  if (norm) {
    float factor = rsqrtf (lychee_block_sum (x * x + y * y, scratch) / d + p.eps);

    if (mine) {
      x *= factor * norm[first];
      y *= factor * norm[second];
    }
  }
  if (mine && is_query && p.aim) {
    float *to = p.aim + ((size_t) token * p.n_heads + head) * d;
    float2 aim = { x, y };

    if (rotates)
      aim = rotate (p.aim_table, token * (p.n_rot / 2) + i, aim);
    to[first] = aim.x;
    to[second] = aim.y;
  }
  if (mine && rotates && (is_query || !p.packed)) {
    float2 turned = rotate (p.table, token * (p.n_rot / 2) + i, float2{ x, y });

    x = turned.x;
    y = turned.y;
  }
  if (is_query) {
    float *to = p.q + ((size_t) token * p.n_heads + head) * d;

    if (mine) {
      to[first] = x;
      to[second] = y;
    }
  } else {
    int row = p.separate ? p.step[token].first : p.step->first + token;
    void *const *pages = p.pages + (p.separate ? (size_t) token * p.page_stride : 0);
    LycheeCudaType type = LycheeForm<F>::type;
    char *part = static_cast<char *> (pages[row >> LYCHEE_CUDA_PAGE_SHIFT]) + p.layer_offset +
                 (size_t) (2 * kv_head + is_value) * lychee_cuda_part_size (type, d);
    uint16_t *copy = p.copy + (((size_t) is_value * p.n_kv_heads + kv_head) * p.n_tokens + token) *
                                  lychee_cuda_row_units (type, d);

    RowWriter<F>::write (
        part, row & (LYCHEE_CUDA_PAGE_TOKENS - 1), copy, d, mine, first, second, x, y);
  }
}

int
lychee_cuda_rope (const LycheeCudaRope *p, cudaStream_t stream)
{
  dim3 grid (p->n_tokens, p->n_heads + 2 * p->n_kv_heads);
  int threads = (p->head_dim / 2 + 31) / 32 * 32;

  if (p->n_tokens == 0)
    return 0;
  if (p->head_dim % 2 != 0 || p->head_dim > 256 || p->n_rot > p->head_dim || p->n_rot % 2 != 0)
    return (int) cudaErrorInvalidValue;
  return lychee_with_form (p->type, p->head_dim, [=] (auto form) {
    return lychee_launch (rope_kernel<decltype (form)>, grid, threads, 0, stream, *p);
  });
}

__device__ __forceinline__ float
activate (LycheeCudaActivation activation, float x)
{
  if (activation == LYCHEE_CUDA_SILU)
    return x / (1 + expf (-x));
  return 0.5f * x * (1 + tanhf (0.797884560802865f * x * (1 + 0.044715f * x * x)));
}

template <typename T>
__global__ void
gate_kernel (LycheeCudaGate p)
{
  int i = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y;

  if (i < p.n) {
    const float *from = p.gate_up + (size_t) row * 2 * p.n + i;
    float gate = from[0] + (p.bias ? p.bias[i] : 0);
    float up = from[p.n] + (p.bias ? p.bias[p.n + i] : 0);

    static_cast<T *> (p.output)[(size_t) row * p.n + i] =
        make_finite<T> (activate (p.activation, gate) * up);
  }
}

int
lychee_cuda_gate (const LycheeCudaGate *p, cudaStream_t stream)
{
  if (p->n_rows == 0)
    return 0;
  FOR_TYPE (p->type,
      lychee_launch (gate_kernel<T>, dim3 (blocks_for (p->n), p->n_rows), THREADS, 0, stream, *p));
}

__global__ void
logits_kernel (LycheeCudaLogits p)
{
  int i = blockIdx.x * blockDim.x + threadIdx.x;

  if (i < p.n) {
    float *at = p.logits + (size_t) blockIdx.y * p.n + i;
    float x = p.scale * (*at + (p.bias ? p.bias[i] : 0));

    *at = p.cap > 0 ? p.cap * tanhf (x / p.cap) : x;
  }
}

int
lychee_cuda_logits (const LycheeCudaLogits *p, cudaStream_t stream)
{
  if (p->n_rows == 0)
    return 0;
  return lychee_launch (logits_kernel, dim3 (blocks_for (p->n), p->n_rows), THREADS, 0, stream, *p);
}

template <typename T>
__global__ void
from_float_kernel (LycheeCudaConvert p)
{
  size_t i = (size_t) blockIdx.x * blockDim.x + threadIdx.x;

  if (i < p.n)
    static_cast<T *> (p.to)[i] = LycheeElement<T>::make (static_cast<const float *> (p.from)[i]);
}

template <typename T>
__global__ void
to_float_kernel (LycheeCudaConvert p)
{
  size_t i = (size_t) blockIdx.x * blockDim.x + threadIdx.x;

  if (i < p.n)
    static_cast<float *> (p.to)[i] = LycheeElement<T>::get (static_cast<const T *> (p.from)[i]);
}

int
lychee_cuda_from_float (const LycheeCudaConvert *p, cudaStream_t stream)
{
  if (p->n == 0)
    return 0;
  FOR_TYPE (
      p->type, lychee_launch (from_float_kernel<T>, blocks_for (p->n), THREADS, 0, stream, *p));
}

int
lychee_cuda_to_float (const LycheeCudaConvert *p, cudaStream_t stream)
{
  if (p->n == 0)
    return 0;
  FOR_TYPE (p->type, lychee_launch (to_float_kernel<T>, blocks_for (p->n), THREADS, 0, stream, *p));
}

/* A block a piece. */
__global__ void
scatter_kernel (LycheeCudaScatter p)
{
  LycheeCudaPiece piece = p.pieces[blockIdx.x];
  const unsigned *from =
      reinterpret_cast<const unsigned *> (static_cast<const char *> (p.from) + piece.offset);
  unsigned *to = static_cast<unsigned *> (piece.to);

  for (unsigned i = threadIdx.x; i < piece.size / 4; i += blockDim.x)
    to[i] = from[i];
}

int
lychee_cuda_scatter (const LycheeCudaScatter *p, cudaStream_t stream)
{
  if (p->n == 0)
    return 0;
  return lychee_launch (scatter_kernel, p->n, 128, 0, stream, *p);
}
