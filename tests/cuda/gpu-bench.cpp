/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Measures what tests/gpu-check reports: the device's bandwidth, attention and search for the head
 * layout of Llama 3.1 8B, and whole tokens of a model of that size with random weights. A table
 * goes to stderr, and each result, as soon as it is there, to stdout, as a line of JSON: what was
 * measured before something failed is not lost. With --small: shapes for the emulator, to see that
 * it runs. */

#include <time.h>

#include "cuda-index.h"
#include "lychee-cuda.h"

using test::Array;
using test::Index;
using test::Random;

static bool small;

static double
now_ms ()
{
  struct timespec t;

  clock_gettime (CLOCK_MONOTONIC, &t);
  return (double) t.tv_sec * 1e3 + (double) t.tv_nsec / 1e6;
}

static void
must_api (int status, const LycheeCudaError &error)
{
  if (status) {
    fprintf (stderr, "gpu-bench: %s\n", error.message);
    exit (1);
  }
}

/* Microseconds of @what (i), the mean of @n after a few to warm up. */
template <typename What>
static double
measure (int n, What what)
{
  cudaStream_t stream;
  cudaEvent_t begin, end;
  float ms;

  test::must (cudaStreamCreateWithFlags (&stream, cudaStreamNonBlocking), "stream");
  cudaEventCreate (&begin);
  cudaEventCreate (&end);
  for (int i = 0; i < 3; i++)
    what (i, stream);
  cudaEventRecord (begin, stream);
  for (int i = 0; i < n; i++)
    what (i, stream);
  cudaEventRecord (end, stream);
  test::must (cudaEventSynchronize (end), "measurement");
  cudaEventElapsedTime (&ms, begin, end);
  cudaEventDestroy (begin);
  cudaEventDestroy (end);
  cudaStreamDestroy (stream);
  return ms * 1e3 / n;
}

/* GB/s that a copy within the device moves, reading and writing. */
static double
measure_bandwidth ()
{
  size_t size = small ? 1 << 20 : (size_t) 1 << 30;
  Array<uint8_t> from (size), to (size);
  double us = measure (10, [&] (int, cudaStream_t stream) {
    cudaMemcpyAsync (to.data, from.data, size, cudaMemcpyDeviceToDevice, stream);
  });

  return 2.0 * (double) size / us / 1e3;
}

static const int head_dim = 128;

/* Pages of @n_layers layers, all with the same random numbers. */
struct Pages {
  std::vector<void *> memory;
  Array<const void *> *table;

  Pages (Random &random, int n_tokens, int n_layers, int kv_heads)
  {
    size_t layer = (size_t) kv_heads * 2 * LYCHEE_CUDA_PAGE_TOKENS * head_dim;
    std::vector<float> values = random.normals (layer);
    Array<uint16_t> one (test::to_bits (false, values));
    std::vector<const void *> addresses;

    for (int at = 0; at < n_tokens; at += LYCHEE_CUDA_PAGE_TOKENS) {
      void *page;

      test::must (cudaMalloc (&page, layer * 2 * (size_t) n_layers), "pages");
      for (int i = 0; i < n_layers; i++)
        test::must (cudaMemcpy (static_cast<uint16_t *> (page) + (size_t) i * layer, one.data,
                        layer * 2, cudaMemcpyDeviceToDevice),
            "pages");
      memory.push_back (page);
      addresses.push_back (page);
    }
    table = new Array<const void *> (addresses);
  }
  Pages (const Pages &) = delete;
  Pages &operator= (const Pages &) = delete;
  ~Pages ()
  {
    for (void *page : memory)
      cudaFree (page);
    delete table;
  }
};

static const int sinks = 16, window = 64, budget = 1024;

struct Attention {
  double dense_us, search_us, sparse_us;
};

/* A layer's attention of @batch sequences of @n tokens: to the kernels so many more heads. */
static Attention
bench_attention (int n, int batch, double bandwidth, const cudaDeviceProp &device)
{
  const int kv_heads = batch * (small ? 2 : 8), heads = kv_heads * 4, total = heads;
  Random random (1);
  size_t layer = (size_t) kv_heads * 2 * LYCHEE_CUDA_PAGE_TOKENS * head_dim;
  double layer_bytes = (double) layer * 2 * ((n + 255) / 256);
  /* Enough layers that none is still in the cache when its turn comes. */
  int n_layers = small ? 2 : (int) fmax (2, fmin (32, 4e9 / layer_bytes));
  int resident = lychee_cuda_attend_blocks (head_dim, device.sharedMemPerMultiprocessor);
  int own_budget = small ? 200 : budget, iterations = small ? 1 : 50;
  Pages pages (random, n, n_layers, kv_heads);
  Index index (random, head_dim, sinks, n - window, 224, 36);
  int max_nodes = (int) index.nodes.size (), max_leaves = 0;

  for (const Index::Node &node : index.nodes)
    max_leaves += (int) node.leaves.size ();
  Array<float> q (random.normals ((size_t) heads * head_dim));
  Array<LycheeCudaStep> step (std::vector<LycheeCudaStep>{ { n - 1, 1, 0, 0, 0 } });
  Array<LycheeCudaHead> head_array (std::vector<LycheeCudaHead> (
      (size_t) kv_heads, LycheeCudaHead{ index.list->data, max_nodes, sinks, n - window, 0 }));
  /* As kernels/cuda/lychee-cuda-pass.cu plans it. */
  int room = std::max (1, device.multiProcessorCount * resident / kv_heads);
  int splits = small ? 2 : std::min (room, (n + 255) / 256);
  int sparse_splits = small ? 3 : std::min (room, 17);
  int rest_splits = small ? 1 : std::max (1, std::min (16, max_nodes / 64));
  size_t most_splits = (size_t) (splits + sparse_splits + rest_splits);
  Array<float> m (most_splits * total), l (m.n), o (m.n * head_dim);
  Array<uint16_t> output ((size_t) total * head_dim);
  size_t jobs = (size_t) kv_heads, nodes = (size_t) max_nodes, leaves = (size_t) max_leaves;
  size_t group = (size_t) (heads / kv_heads);
  Array<LycheeCudaSelection> selection (jobs);
  Array<int> selected (jobs * own_budget), count (jobs * nodes), opened (jobs * nodes * 2);
  Array<float> z (jobs * group * nodes), weight (z.n), most (jobs * group);
  Array<float> leaf_weight (jobs * group * leaves), leaf_rank (leaf_weight.n),
      density (jobs * std::max (nodes, leaves));
  Array<int> leaf_node (jobs * leaves), leaf_count (leaf_node.n), leaf_read (leaf_node.n);
  Array<unsigned long long> counters (std::vector<unsigned long long>{ 0, 0, 0 });
  LycheeCudaSearch search = { head_dim, heads, kv_heads, 1, 1, 1 / sqrtf (head_dim), q.data,
    step.data, head_array.data, sinks, own_budget, 0, 1, max_nodes, max_leaves, selection.data,
    selected.data, z.data, weight.data, most.data, count.data, opened.data, leaf_weight.data,
    leaf_rank.data, leaf_node.data, leaf_count.data, leaf_read.data, density.data, counters.data };
  LycheeCudaAttend attend = {};

  attend.type = LYCHEE_CUDA_F16;
  attend.head_dim = head_dim;
  attend.n_heads = heads;
  attend.n_kv_heads = kv_heads;
  attend.n_tokens = attend.block_tokens = 1;
  attend.scale = search.scale;
  attend.q = q.data;
  attend.step = step.data;
  attend.pages = pages.table->data;
  attend.n_splits = splits;
  attend.m = m.data;
  attend.l = l.data;
  attend.o = o.data;
  LycheeCudaAttend sparse = attend;
  sparse.n_splits = sparse_splits;
  sparse.n_rest_splits = rest_splits;
  sparse.selection = selection.data;
  sparse.selected = selected.data;
  sparse.budget = own_budget;
  sparse.heads = head_array.data;
  sparse.weight = weight.data;
  sparse.most = most.data;
  sparse.max_nodes = max_nodes;
  auto merge = [&] (int n_splits, cudaStream_t stream) {
    LycheeCudaMerge params = { LYCHEE_CUDA_F16, head_dim, heads, kv_heads, 1, n_splits, m.data,
      l.data, o.data, output.data, nullptr, 0 };

    test::must (lychee_cuda_merge (&params, stream), "merge");
  };
  double dense_us = measure (iterations, [&] (int i, cudaStream_t stream) {
    attend.layer_offset = (size_t) (i % n_layers) * layer;
    test::must (lychee_cuda_attend (&attend, stream), "attend");
    merge (attend.n_splits, stream);
  });
  double search_us = measure (iterations, [&] (int, cudaStream_t stream) {
    test::must (lychee_cuda_search (&search, stream), "search");
  });
  double sparse_us = measure (iterations, [&] (int i, cudaStream_t stream) {
    sparse.layer_offset = (size_t) (i % n_layers) * layer;
    test::must (lychee_cuda_search (&search, stream), "search");
    test::must (lychee_cuda_attend (&sparse, stream), "attend");
    merge (sparse_splits + rest_splits, stream);
  });
  double bytes = (double) n * kv_heads * head_dim * 4;

  printf ("{\"what\": \"attention\", \"batch\": %d, \"tokens\": %d, \"dense_us\": %.1f, "
          "\"search_us\": %.1f, \"sparse_us\": %.1f, \"speedup\": %.2f, \"dense_gb_s\": %.0f, "
          "\"of_bandwidth\": %.2f, \"nodes\": %d}\n",
      batch, n, dense_us, search_us, sparse_us, dense_us / sparse_us, bytes / dense_us / 1e3,
      bytes / dense_us / 1e3 / bandwidth, max_nodes);
  fflush (stdout);
  fprintf (stderr, "%6d %8d %9.1f %9.1f %9.1f %9.2f %19.0f%%\n", batch, n, dense_us, search_us,
      sparse_us, dense_us / sparse_us, 100 * bytes / dense_us / 1e3 / bandwidth);
  return { dense_us, search_us, sparse_us };
}

/* Tokens of a whole model, decoded one by one; and, put together from parts that are measured, of a
 * batch of sequences, of which the backend computes one at a time yet: @parts is a layer's
 * attention of @batch sequences of @batch_tokens tokens. */
static void
bench_model (const LycheeCudaApi *api, const std::vector<int> &lengths, int batch, int batch_tokens,
    const Attention &parts)
{
  LycheeCudaHparams h = {};
  LycheeCudaError error = {};
  LycheeCudaDevice *device;
  LycheeCudaModel *model;
  LycheeCudaWorker *worker;
  unsigned char present[LYCHEE_CUDA_N_TENSORS] = {};
  std::vector<double> frequency ((size_t) head_dim / 2 + 1, 1);
  Random random (2);
  double begun = now_ms ();

  h.n_layers = small ? 2 : 32;
  h.n_embd = small ? 64 : 4096;
  h.n_ff = small ? 96 : 14336;
  h.n_heads = small ? 4 : 32;
  h.n_kv_heads = small ? 2 : 8;
  h.head_dim = head_dim;
  h.n_vocab = small ? 300 : 128256;
  h.type = LYCHEE_CUDA_F16;
  h.norm_eps = 1e-5f;
  h.embedding_scale = h.residual_scale = h.logit_scale = 1;
  h.attention_scale = 1 / sqrtf (head_dim);
  h.n_rot = head_dim;
  for (int i = 0; i < head_dim / 2; i++)
    frequency[(size_t) i] = pow (500000, -2.0 * i / head_dim);
  present[LYCHEE_CUDA_ATTN_NORM] = present[LYCHEE_CUDA_FFN_NORM] = 1;
  present[LYCHEE_CUDA_OUTPUT_NORM] = 1;
  must_api (api->open (0, &device, &error), error);
  must_api (api->model_new (device, &h, present, &model, &error), error);
  size_t embd = (size_t) h.n_embd, ff = (size_t) h.n_ff, kv = (size_t) h.n_kv_heads * head_dim;
  size_t nq = (size_t) h.n_heads * head_dim, vocab = (size_t) h.n_vocab;
  std::vector<float> values = random.normals (1 << 20, 0.02f), ones (embd, 1);
  auto fill = [&] (int layer, LycheeCudaTensor tensor, size_t n) {
    for (size_t at = 0; at < n; at += values.size ())
      must_api (api->model_set (model, layer, tensor, at, std::min (values.size (), n - at),
                    values.data (), &error),
          error);
  };
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
  /* As lib/lychee-sampler.c has it, nearly. */
  std::vector<unsigned long long> weights (LYCHEE_TABLE_SIZE);
  for (int i = 0; i < LYCHEE_TABLE_SIZE; i++)
    weights[(size_t) i] = (unsigned long long) ldexp (
        exp2 (-i / (double) (LYCHEE_TABLE_SIZE - 1)), LYCHEE_WEIGHT_BITS);
  must_api (api->worker_new (model, weights.data (), &worker, &error), error);
  printf ("{\"what\": \"load\", \"model_gb\": %.2f, \"load_ms\": %.0f}\n",
      (double) api->model_get_bytes (model) / 1e9, now_ms () - begun);
  fprintf (stderr,
      "a model of %.1f GB with random weights; milliseconds a token\n%15s %9s %9s %9s\n",
      (double) api->model_get_bytes (model) / 1e9, "tokens", "dense", "sparse", "speed-up");
  for (size_t i = 0; i < lengths.size (); i++) {
    int n = lengths[i], tokens = small ? 2 : 24, own_budget = small ? 200 : budget;
    size_t free_memory, all;
    double wanted = (double) (n + 256) * h.n_layers * (double) kv * 4;

    must_api (api->get_memory (device, &free_memory, &all, &error), error);
    if (wanted > (double) free_memory * 0.95)
      break;
    Pages pages (random, n + tokens + 8, h.n_layers, h.n_kv_heads);
    Index index (random, head_dim, sinks, n - window, 224, 36);
    std::vector<LycheeCudaHead> heads ((size_t) h.n_layers * h.n_kv_heads,
        LycheeCudaHead{ index.list->data, (int) index.nodes.size (), sinks, n - window, 0 });
    double ms[2];
    for (int sparse = 0; sparse < 2; sparse++) {
      LycheeCudaPass pass = {};
      LycheeCudaResult result;
      int id = 1;

      pass.ids = &id;
      pass.n_tokens = 1;
      pass.output = LYCHEE_CUDA_OUTPUT_LAST;
      pass.frequency[0] = frequency.data ();
      pass.pages = pages.memory.data ();
      pass.n_pages = (int) pages.memory.size ();
      pass.sparse = sparse;
      pass.sinks = sinks;
      pass.budget = own_budget;
      pass.rest = 1;
      pass.heads = sparse ? heads.data () : nullptr;
      pass.max_nodes = (int) index.nodes.size ();
      pass.max_node_rows = 288;
      pass.audit_layer = -1;
      for (int t = -2; t < tokens; t++) {
        pass.first = n + t + 2;
        if (t == 0)
          ms[sparse] = now_ms ();
        must_api (api->worker_run (worker, &pass, &result, &error), error);
        id = (id + 7) % h.n_vocab;
      }
      ms[sparse] = (now_ms () - ms[sparse]) / tokens;
    }
    printf ("{\"what\": \"model\", \"tokens\": %d, \"dense_ms\": %.3f, \"sparse_ms\": %.3f, "
            "\"speedup\": %.2f}\n",
        n, ms[0], ms[1], ms[0] / ms[1]);
    fflush (stdout);
    fprintf (stderr, "%15d %9.3f %9.3f %9.2f\n", n, ms[0], ms[1], ms[0] / ms[1]);
  }
  /* Everything but attention: the products of as many tokens, which see next to nothing. */
  {
    Pages pages (random, 256, h.n_layers, h.n_kv_heads);
    std::vector<int> ids ((size_t) batch, 1);
    int turns = small ? 1 : 20;
    LycheeCudaPass pass = {};
    LycheeCudaResult result;
    double ms = 0;

    pass.ids = ids.data ();
    pass.n_tokens = batch;
    pass.output = LYCHEE_CUDA_OUTPUT_ALL;
    pass.frequency[0] = frequency.data ();
    pass.pages = pages.memory.data ();
    pass.n_pages = (int) pages.memory.size ();
    pass.audit_layer = -1;
    for (int t = -1; t < turns; t++) {
      if (t == 0)
        ms = now_ms ();
      must_api (api->worker_run (worker, &pass, &result, &error), error);
    }
    ms = (now_ms () - ms) / turns;
    double dense = ms + h.n_layers * parts.dense_us / 1e3;
    double sparse = ms + h.n_layers * parts.sparse_us / 1e3;
    printf ("{\"what\": \"batch\", \"batch\": %d, \"tokens\": %d, \"rest_ms\": %.3f, "
            "\"dense_ms\": %.3f, \"sparse_ms\": %.3f, \"speedup\": %.2f}\n",
        batch, batch_tokens, ms, dense, sparse, dense / sparse);
    fprintf (stderr, "%d sequences of %d tokens, from parts: %.3f dense, %.3f sparse, %.2f times\n",
        batch, batch_tokens, dense, sparse, dense / sparse);
  }
  api->worker_free (worker);
  api->model_free (model);
  api->close (device);
}

int
main (int argc, char **argv)
{
  cudaDeviceProp properties;
  double bandwidth;
  Attention parts;

  small = argc > 1 && strcmp (argv[1], "--small") == 0;
  std::vector<int> lengths =
      small ? std::vector<int>{ 300, 600 }
            : std::vector<int>{ 2048, 4096, 8192, 16384, 32768, 65536, 131072 };
  const int batch = small ? 2 : 16, batch_tokens = small ? 300 : 65536;
  test::must (cudaGetDeviceProperties (&properties, 0), "the device");
  bandwidth = measure_bandwidth ();
  printf ("{\"what\": \"device\", \"name\": \"%s\", \"bandwidth_gb_s\": %.0f}\n", properties.name,
      bandwidth);
  fprintf (stderr, "%s: %.0f GB/s (a copy, reading and writing)\n", properties.name, bandwidth);
  fprintf (stderr,
      "attention of a layer, 32 heads, 8 KV heads, 128 dimensions; microseconds\n"
      "%6s %8s %9s %9s %9s %9s %20s\n",
      "batch", "tokens", "dense", "search", "sparse", "speed-up", "dense, of bandwidth");
  for (int n : lengths)
    bench_attention (n, 1, bandwidth, properties);
  parts = bench_attention (batch_tokens, batch, bandwidth, properties);
  bench_model (lychee_cuda_get_api (), lengths, batch, batch_tokens, parts);
  return 0;
}
