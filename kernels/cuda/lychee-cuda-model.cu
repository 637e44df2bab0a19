/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A model's weights on the device: one allocation, so that there is all of it or nothing. */

#include "lychee-cuda-private.h"

#include <string.h>

#define STAGING (1 << 20) /* elements that are converted at a time */
#define ALIGN 256

/* Hands out memory, or with no memory yet counts it. */
struct Layout {
  char *memory;
  size_t used;

  void *
  take (size_t size)
  {
    void *at = memory ? memory + used : nullptr;

    used += (size + ALIGN - 1) / ALIGN * ALIGN;
    return at;
  }
  float *
  take_floats (bool wanted, size_t n)
  {
    return wanted ? static_cast<float *> (take (n * sizeof (float))) : nullptr;
  }
};

static void
lay_out (LycheeCudaModel *m, const unsigned char *present, Layout *layout)
{
  const LycheeCudaHparams &h = m->hparams;
  size_t n_q = (size_t) h.n_heads * h.head_dim, n_kv = (size_t) h.n_kv_heads * h.head_dim;
  size_t embd = (size_t) h.n_embd, ff = (size_t) h.n_ff;

  m->embedding = layout->take ((size_t) h.n_vocab * embd * 2);
  m->output = h.tied ? m->embedding : layout->take ((size_t) h.n_vocab * embd * 2);
  m->output_norm = layout->take_floats (present[LYCHEE_CUDA_OUTPUT_NORM], embd);
  m->output_b = layout->take_floats (present[LYCHEE_CUDA_OUTPUT_B], (size_t) h.n_vocab);
  m->staging = layout->take_floats (true, STAGING);
  for (int i = 0; i < h.n_layers; i++) {
    LycheeCudaLayer &l = m->layers[i];

    l.qkv = layout->take ((n_q + 2 * n_kv) * embd * 2);
    l.o = layout->take (n_q * embd * 2);
    l.gate_up = layout->take (2 * ff * embd * 2);
    l.down = layout->take (ff * embd * 2);
    l.attn_norm = layout->take_floats (present[LYCHEE_CUDA_ATTN_NORM], embd);
    l.ffn_norm = layout->take_floats (present[LYCHEE_CUDA_FFN_NORM], embd);
    l.qkv_b = layout->take_floats (
        present[LYCHEE_CUDA_Q_B] || present[LYCHEE_CUDA_K_B] || present[LYCHEE_CUDA_V_B],
        n_q + 2 * n_kv);
    l.o_b = layout->take_floats (present[LYCHEE_CUDA_O_B], embd);
    l.gate_up_b =
        layout->take_floats (present[LYCHEE_CUDA_GATE_B] || present[LYCHEE_CUDA_UP_B], 2 * ff);
    l.down_b = layout->take_floats (present[LYCHEE_CUDA_DOWN_B], embd);
    l.q_norm = layout->take_floats (present[LYCHEE_CUDA_Q_NORM], (size_t) h.head_dim);
    l.k_norm = layout->take_floats (present[LYCHEE_CUDA_K_NORM], (size_t) h.head_dim);
    l.attn_post_norm = layout->take_floats (present[LYCHEE_CUDA_ATTN_POST_NORM], embd);
    l.ffn_post_norm = layout->take_floats (present[LYCHEE_CUDA_FFN_POST_NORM], embd);
  }
}

int
lychee_cuda_model_new (LycheeCudaDevice *device, const LycheeCudaHparams *hparams,
    const unsigned char *present, LycheeCudaModel **model, LycheeCudaError *error)
{
  LycheeCudaModel *m;
  Layout layout = { nullptr, 0 };
  size_t free, total;

  *model = nullptr;
  if (!lychee_cuda_has_head_dim (hparams->head_dim))
    return lychee_cuda_fail (error, LYCHEE_CUDA_UNSUPPORTED,
        "the model's heads have %d dimensions, and the CUDA kernels are for 64, 80, 96, 128 and "
        "256",
        hparams->head_dim);
  if (hparams->n_embd % 8 != 0 || hparams->n_ff % 8 != 0)
    return lychee_cuda_fail (error, LYCHEE_CUDA_UNSUPPORTED,
        "the model is %d wide, and %d in the feed-forward part: CUDA wants multiples of 8",
        hparams->n_embd, hparams->n_ff);
  lychee_cuda_use (device);
  m = new LycheeCudaModel ();
  m->device = device;
  m->hparams = *hparams;
  m->layers = new LycheeCudaLayer[hparams->n_layers]();
  for (int i = 0; i < hparams->n_layers; i++)
    m->layers[i].local = hparams->local && hparams->local[i];
  lay_out (m, present, &layout);
  m->bytes = layout.used;
  if (lychee_cuda_check ((int) cudaMemGetInfo (&free, &total), "cudaMemGetInfo", error)) {
    lychee_cuda_model_free (m);
    return error->status;
  }
  if (m->bytes > free || cudaMalloc (&m->memory, m->bytes) != cudaSuccess) {
    cudaGetLastError ();
    lychee_cuda_fail (error, LYCHEE_CUDA_NO_MEMORY,
        "the model takes %.2f GB of the device's memory, and %.2f of its %.2f GB are free: take a "
        "smaller one, or set backend to cpu",
        m->bytes / 1e9, free / 1e9, total / 1e9);
    m->memory = nullptr;
    lychee_cuda_model_free (m);
    return error->status;
  }
  layout = { static_cast<char *> (m->memory), 0 };
  lay_out (m, present, &layout);
  /* Where only one of several biases that lie together is there, the others are 0. */
  if (lychee_cuda_check ((int) cudaStreamCreateWithFlags (&m->stream, cudaStreamNonBlocking),
          "no CUDA stream", error) ||
      lychee_cuda_check (
          (int) cudaMemsetAsync (m->memory, 0, m->bytes, m->stream), "cudaMemset", error) ||
      lychee_cuda_check ((int) cudaStreamSynchronize (m->stream), "cudaMemset", error)) {
    lychee_cuda_model_free (m);
    return error->status;
  }
  m->hparams.local = nullptr;
  *model = m;
  return 0;
}

void
lychee_cuda_model_free (LycheeCudaModel *m)
{
  std::lock_guard<std::mutex> guard (m->device->whole);

  lychee_cuda_use (m->device);
  if (m->stream)
    cudaStreamDestroy (m->stream);
  if (m->memory)
    cudaFree (m->memory);
  delete[] m->layers;
  delete m;
}

size_t
lychee_cuda_model_get_bytes (LycheeCudaModel *model)
{
  return model->bytes;
}

/* Where a tensor begins: as a matrix, by elements of 16 bits, else floats. */
static void *
find_tensor (LycheeCudaModel *m, int layer, LycheeCudaTensor tensor)
{
  const LycheeCudaHparams &h = m->hparams;
  LycheeCudaLayer &l = m->layers[layer];
  size_t n_q = (size_t) h.n_heads * h.head_dim, n_kv = (size_t) h.n_kv_heads * h.head_dim;
  size_t embd = (size_t) h.n_embd, ff = (size_t) h.n_ff;
  auto rows = [embd] (void *matrix, size_t first) {
    return static_cast<uint16_t *> (matrix) + first * embd;
  };
  auto at = [] (float *vector, size_t first) { return vector ? vector + first : nullptr; };

  switch (tensor) {
  case LYCHEE_CUDA_Q:
    return l.qkv;
  case LYCHEE_CUDA_K:
    return rows (l.qkv, n_q);
  case LYCHEE_CUDA_V:
    return rows (l.qkv, n_q + n_kv);
  case LYCHEE_CUDA_O:
    return l.o;
  case LYCHEE_CUDA_GATE:
    return l.gate_up;
  case LYCHEE_CUDA_UP:
    return rows (l.gate_up, ff);
  case LYCHEE_CUDA_DOWN:
    return l.down;
  case LYCHEE_CUDA_ATTN_NORM:
    return l.attn_norm;
  case LYCHEE_CUDA_FFN_NORM:
    return l.ffn_norm;
  case LYCHEE_CUDA_Q_B:
    return l.qkv_b;
  case LYCHEE_CUDA_K_B:
    return at (l.qkv_b, n_q);
  case LYCHEE_CUDA_V_B:
    return at (l.qkv_b, n_q + n_kv);
  case LYCHEE_CUDA_O_B:
    return l.o_b;
  case LYCHEE_CUDA_GATE_B:
    return l.gate_up_b;
  case LYCHEE_CUDA_UP_B:
    return at (l.gate_up_b, ff);
  case LYCHEE_CUDA_DOWN_B:
    return l.down_b;
  case LYCHEE_CUDA_Q_NORM:
    return l.q_norm;
  case LYCHEE_CUDA_K_NORM:
    return l.k_norm;
  case LYCHEE_CUDA_ATTN_POST_NORM:
    return l.attn_post_norm;
  case LYCHEE_CUDA_FFN_POST_NORM:
    return l.ffn_post_norm;
  case LYCHEE_CUDA_EMBEDDING:
    return m->embedding;
  case LYCHEE_CUDA_OUTPUT:
    return m->output;
  case LYCHEE_CUDA_OUTPUT_NORM:
    return m->output_norm;
  case LYCHEE_CUDA_OUTPUT_B:
    return m->output_b;
  case LYCHEE_CUDA_N_TENSORS:
    break;
  }
  return nullptr;
}

int
lychee_cuda_model_set (LycheeCudaModel *m, int layer, LycheeCudaTensor tensor, size_t first,
    size_t n, const float *values, LycheeCudaError *error)
{
  void *to = find_tensor (m, layer, tensor);

  lychee_cuda_use (m->device);
  if (!to)
    return lychee_cuda_fail (
        error, LYCHEE_CUDA_UNSUPPORTED, "a tensor (%d) of which nothing was said", (int) tensor);
  for (size_t at = 0; at < n; at += STAGING) {
    size_t now = n - at < STAGING ? n - at : STAGING;
    float *vector = static_cast<float *> (to) + first + at;
    LycheeCudaConvert convert = { m->hparams.type, now, m->staging,
      static_cast<uint16_t *> (to) + first + at };
    bool matrix = lychee_cuda_is_matrix (tensor);

    if (lychee_cuda_check ((int) cudaMemcpyAsync (matrix ? m->staging : vector, values + at,
                               now * sizeof (float), cudaMemcpyHostToDevice, m->stream),
            "weights cannot be copied", error) ||
        (matrix && lychee_cuda_check (lychee_cuda_from_float (&convert, m->stream),
                       "weights cannot be converted", error)) ||
        lychee_cuda_check (
            (int) cudaStreamSynchronize (m->stream), "weights cannot be copied", error)) {
      cudaStreamSynchronize (m->stream); /* the caller's memory is its own again */
      return error->status;
    }
  }
  return 0;
}
