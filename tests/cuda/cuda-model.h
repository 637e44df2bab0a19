/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <algorithm>

#include "cuda-rows.h"
#include "lychee-cuda.h"

namespace test {

static void __attribute__ ((unused)) must_api (int status, const LycheeCudaError &error)
{
  if (status) {
    printf ("Bail out! %s\n", error.message);
    exit (1);
  }
}

/* A model with random weights, on the device, and a worker for it. */
struct Model {
  const LycheeCudaApi *api = lychee_cuda_get_api ();
  LycheeCudaHparams h = {};
  LycheeCudaError error = {};
  LycheeCudaDevice *device = nullptr;
  LycheeCudaModel *model = nullptr;
  LycheeCudaWorker *worker = nullptr;
  std::vector<double> frequency; /* angles per position, and the scale */

  Model (Random &random, int layers, int embd, int ff, int heads, int kv_heads, int head_dim,
      int vocab, int window = 0)
  {
    unsigned char present[LYCHEE_CUDA_N_TENSORS] = {};
    std::vector<unsigned char> local ((size_t) layers, 0);

    h.n_layers = layers;
    h.n_embd = embd;
    h.n_ff = ff;
    h.n_heads = heads;
    h.n_kv_heads = kv_heads;
    h.head_dim = head_dim;
    h.n_vocab = vocab;
    h.type = LYCHEE_CUDA_F16;
    h.norm_eps = 1e-5f;
    h.embedding_scale = h.residual_scale = h.logit_scale = 1;
    h.attention_scale = 1 / sqrtf ((float) head_dim);
    h.n_rot = head_dim;
    h.window = window;
    h.local = local.data ();
    local[0] = window > 0;
    for (int i = 0; i < head_dim / 2; i++)
      frequency.push_back (pow (500000, -2.0 * i / head_dim));
    frequency.push_back (1);
    present[LYCHEE_CUDA_ATTN_NORM] = present[LYCHEE_CUDA_FFN_NORM] = 1;
    present[LYCHEE_CUDA_OUTPUT_NORM] = 1;
    must_api (api->open (0, &device, &error), error);
    must_api (api->model_new (device, &h, present, &model, &error), error);
    fill (random);
    worker = new_worker ();
  }
  Model (const Model &) = delete;
  Model &operator= (const Model &) = delete;
  ~Model ()
  {
    api->worker_free (worker);
    api->model_free (model);
    api->close (device);
  }

  LycheeCudaWorker *
  new_worker ()
  {
    std::vector<unsigned long long> weights (LYCHEE_TABLE_SIZE);
    LycheeCudaWorker *made;

    /* As lib/lychee-sampler.c has it, nearly. */
    for (int i = 0; i < LYCHEE_TABLE_SIZE; i++)
      weights[(size_t) i] = (unsigned long long) ldexp (
          exp2 (-i / (double) (LYCHEE_TABLE_SIZE - 1)), LYCHEE_WEIGHT_BITS);
    must_api (api->worker_new (model, weights.data (), &made, &error), error);
    return made;
  }

private:
  std::vector<float> values;

  void
  fill (int layer, LycheeCudaTensor tensor, size_t n)
  {
    for (size_t at = 0; at < n; at += values.size ())
      must_api (api->model_set (model, layer, tensor, at, std::min (values.size (), n - at),
                    values.data (), &error),
          error);
  }
  void
  fill (Random &random)
  {
    size_t embd = (size_t) h.n_embd, ff = (size_t) h.n_ff, vocab = (size_t) h.n_vocab;
    size_t nq = (size_t) h.n_heads * h.head_dim, kv = (size_t) h.n_kv_heads * h.head_dim;
    std::vector<float> ones (embd, 1);

    /* One piece over and over, of a length that no row is a multiple of. */
    values = random.normals (std::min (((size_t) 1 << 20) - 1, vocab * embd - 1),
        std::min (0.5f, 1 / sqrtf ((float) embd)));
    fill (0, LYCHEE_CUDA_EMBEDDING, vocab * embd);
    fill (0, LYCHEE_CUDA_OUTPUT, vocab * embd);
    must_api (
        api->model_set (model, 0, LYCHEE_CUDA_OUTPUT_NORM, 0, embd, ones.data (), &error), error);
    for (int i = 0; i < h.n_layers; i++) {
      fill (i, LYCHEE_CUDA_Q, nq * embd);
      fill (i, LYCHEE_CUDA_K, kv * embd);
      fill (i, LYCHEE_CUDA_V, kv * embd);
      fill (i, LYCHEE_CUDA_O, nq * embd);
      fill (i, LYCHEE_CUDA_GATE, ff * embd);
      fill (i, LYCHEE_CUDA_UP, ff * embd);
      fill (i, LYCHEE_CUDA_DOWN, ff * embd);
      must_api (
          api->model_set (model, i, LYCHEE_CUDA_ATTN_NORM, 0, embd, ones.data (), &error), error);
      must_api (
          api->model_set (model, i, LYCHEE_CUDA_FFN_NORM, 0, embd, ones.data (), &error), error);
    }
  }
};

/* The pages of a sequence: random numbers, the same in all of them, and in all layers. */
struct Pages {
  std::vector<void *> memory;

  Pages (Random &random, int n_tokens, int n_layers, int kv_heads, int head_dim,
      LycheeCudaType type = LYCHEE_CUDA_F16)
  {
    Parts parts (type, head_dim, 2 * kv_heads, 1);
    size_t layer = parts.size * 2 * (size_t) kv_heads, size = layer * (size_t) n_layers;

    parts.fill (random, 2 * kv_heads, LYCHEE_CUDA_PAGE_TOKENS);
    Array<uint8_t> one (parts.host[0]);

    for (int at = 0; at < n_tokens; at += LYCHEE_CUDA_PAGE_TOKENS) {
      void *page;

      must (cudaMalloc (&page, size), "pages");
      for (int i = 0; at == 0 && i < n_layers; i++)
        must (cudaMemcpy (static_cast<char *> (page) + (size_t) i * layer, one.data, layer,
                  cudaMemcpyDeviceToDevice),
            "pages");
      if (at > 0)
        must (cudaMemcpy (page, memory[0], size, cudaMemcpyDeviceToDevice), "pages");
      memory.push_back (page);
    }
    must (cudaDeviceSynchronize (), "pages");
  }
  Pages (const Pages &) = delete;
  Pages &operator= (const Pages &) = delete;
  ~Pages ()
  {
    for (void *page : memory)
      cudaFree (page);
  }
};

}
