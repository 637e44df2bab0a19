/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Measures what tests/gpu-check reports: the device's bandwidth, attention and search for the head
 * layout of Llama 3.1 8B, and whole tokens of a model of that size with random weights. A table
 * goes to stderr, and each result, as soon as it is there, to stdout, as a line of JSON: what was
 * measured before something failed is not lost. With --small: shapes for the emulator, to see that
 * it runs. */

#include <time.h>

#include <memory>

#include "cuda-index.h"
#include "cuda-model.h"

using test::Array;
using test::Index;
using test::Model;
using test::Pages;
using test::Random;

static bool small;

static double
now_ms ()
{
  struct timespec t;

  clock_gettime (CLOCK_MONOTONIC, &t);
  return (double) t.tv_sec * 1e3 + (double) t.tv_nsec / 1e6;
}

/* Microseconds of @what (i, stream), the mean of @n after a few to warm up. As a graph, as they are
 * launched when a token is decoded: from the host, short kernels would wait for their launches. */
template <typename What>
static double
measure (int n, What what)
{
  cudaStream_t stream;
  cudaEvent_t begin, end;
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  float ms;

  test::must (cudaStreamCreateWithFlags (&stream, cudaStreamNonBlocking), "stream");
  test::must (cudaEventCreate (&begin), "event");
  test::must (cudaEventCreate (&end), "event");
  for (int i = 0; i < 3; i++)
    what (i, stream);
  test::must (cudaStreamSynchronize (stream), "kernels");
  test::must (cudaStreamBeginCapture (stream, cudaStreamCaptureModeThreadLocal), "capture");
  for (int i = 0; i < n; i++)
    what (i, stream);
  test::must (cudaStreamEndCapture (stream, &graph), "capture");
  test::must (cudaGraphInstantiate (&exec, graph, 0), "graph");
  test::must (cudaGraphLaunch (exec, stream), "graph");
  test::must (cudaEventRecord (begin, stream), "event");
  test::must (cudaGraphLaunch (exec, stream), "graph");
  test::must (cudaEventRecord (end, stream), "event");
  test::must (cudaEventSynchronize (end), "measurement");
  test::must (cudaEventElapsedTime (&ms, begin, end), "measurement");
  cudaGraphExecDestroy (exec);
  cudaGraphDestroy (graph);
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

/* Copies of an index for the heads of a model, which have one each: more than a cache holds. */
struct Indexes {
  std::vector<void *> arenas;
  std::vector<std::unique_ptr<Array<const LycheeCudaNode *> > > lists;
  LycheeCudaHead head;

  Indexes (const Index &index, int n)
  {
    size_t size = 0;

    head = LycheeCudaHead{ nullptr, (int) index.nodes.size (), index.begin, index.end, 0 };
    for (const Array<uint8_t> *record : index.records)
      size += (record->n + 255) / 256 * 256;
    for (int i = 0; i < n; i++) {
      std::vector<const LycheeCudaNode *> addresses;
      void *arena;
      char *to;

      test::must (cudaMalloc (&arena, size), "indexes");
      to = static_cast<char *> (arena);
      for (const Array<uint8_t> *record : index.records) {
        test::must (cudaMemcpy (to, record->data, record->n, cudaMemcpyDeviceToDevice), "indexes");
        addresses.push_back (reinterpret_cast<const LycheeCudaNode *> (to));
        to += (record->n + 255) / 256 * 256;
      }
      arenas.push_back (arena);
      lists.emplace_back (new Array<const LycheeCudaNode *> (addresses));
    }
    test::must (cudaDeviceSynchronize (), "indexes");
  }
  Indexes (const Indexes &) = delete;
  Indexes &operator= (const Indexes &) = delete;
  ~Indexes ()
  {
    for (void *arena : arenas)
      cudaFree (arena);
  }
  LycheeCudaHead
  get (size_t i) const
  {
    LycheeCudaHead own = head;

    own.nodes = lists[i % lists.size ()]->data;
    return own;
  }
};

static const int sinks = 16, window = 64, budget = 1024;

/* A layer's attention of @batch sequences of @n tokens: to the kernels so many more heads. */
static void
bench_attention (int n, int batch, double bandwidth, const cudaDeviceProp &device)
{
  const int kv_heads = batch * (small ? 2 : 8), heads = kv_heads * 4, total = heads;
  Random random (1);
  size_t layer = (size_t) kv_heads * 2 * lychee_cuda_part_size (LYCHEE_CUDA_F16, head_dim);
  double layer_bytes = (double) layer * ((n + 255) / 256);
  /* Enough layers that none is still in the cache when its turn comes. */
  int n_layers = small ? 2 : (int) fmax (2, fmin (32, 4e9 / layer_bytes));
  int resident = lychee_cuda_attend_blocks (head_dim, device.sharedMemPerMultiprocessor);
  int own_budget = small ? 200 : budget, iterations = small ? 1 : 50;
  Pages pages (random, n, n_layers, kv_heads, head_dim);
  Array<const void *> page_table (
      std::vector<const void *> (pages.memory.begin (), pages.memory.end ()));
  Index index (random, head_dim, sinks, n - window, 224, 36);
  int max_nodes = (int) index.nodes.size (), max_leaves = 0;

  for (const Index::Node &node : index.nodes)
    max_leaves += (int) node.leaves.size ();
  Array<float> q (random.normals ((size_t) heads * head_dim));
  Array<LycheeCudaStep> step (std::vector<LycheeCudaStep>{ { n - 1, 1, 0, 0, 0 } });
  Indexes indexes (index, small ? 3 : 256);
  const int index_layers = std::max (2, 256 / kv_heads);
  std::vector<LycheeCudaHead> all_heads;
  for (int i = 0; i < index_layers * kv_heads; i++)
    all_heads.push_back (indexes.get ((size_t) i));
  Array<LycheeCudaHead> head_array (all_heads);
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
  attend.pages = page_table.data;
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
  double search_us = measure (iterations, [&] (int i, cudaStream_t stream) {
    search.heads = head_array.data + i % index_layers * kv_heads;
    test::must (lychee_cuda_search (&search, stream), "search");
  });
  double sparse_us = measure (iterations, [&] (int i, cudaStream_t stream) {
    sparse.layer_offset = (size_t) (i % n_layers) * layer;
    sparse.heads = search.heads = head_array.data + i % index_layers * kv_heads;
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
}

/* Milliseconds that a token of each of @batch sequences of @n tokens takes, decoded in one pass. */
static double
bench_tokens (Model &model, const std::vector<std::unique_ptr<Pages> > &pages,
    const Indexes &indexes, int n, int batch, bool sparse)
{
  const LycheeCudaHparams &h = model.h;
  size_t n_heads = (size_t) h.n_layers * h.n_kv_heads;
  std::vector<LycheeCudaHead> heads;
  std::vector<LycheeCudaSequence> sequences ((size_t) batch);
  std::vector<LycheeCudaSampling> sampling ((size_t) batch);
  std::vector<int> ids ((size_t) batch, 1);
  LycheeCudaError error = {};
  LycheeCudaResult result;
  LycheeCudaPass pass = { LYCHEE_CUDA_F16 };
  int tokens = small ? 2 : 24;
  double begun = 0;

  for (size_t i = 0; i < n_heads * (size_t) batch; i++)
    heads.push_back (indexes.get (i));
  for (size_t i = 0; i < (size_t) batch; i++) {
    sampling[i] = LycheeCudaSampling{ 1, 0, 1, 0, 0, 1, 1, 0 }; /* greedy */
    sequences[i] = LycheeCudaSequence{ n, 0, 0, 0, pages[i]->memory.data (),
      (int) pages[i]->memory.size (), &heads[i * n_heads], &sampling[i], nullptr };
  }
  pass.ids = ids.data ();
  pass.n_tokens = pass.n_sequences = batch;
  pass.sequences = sequences.data ();
  pass.output = LYCHEE_CUDA_OUTPUT_CHOSEN;
  pass.frequency[0] = pass.frequency[1] = model.frequency.data ();
  pass.sparse = sparse;
  pass.sinks = sinks;
  pass.budget = small ? 200 : budget;
  pass.rest = 1;
  pass.max_nodes = indexes.head.n_nodes;
  pass.max_node_rows = 288;
  pass.audit_layer = -1;
  for (int t = -3; t < tokens; t++) { /* as it is, captured, from the graph */
    for (LycheeCudaSequence &s : sequences)
      s.first = n + t + 3;
    if (t == 0)
      begun = now_ms ();
    test::must_api (model.api->worker_run (model.worker, &pass, &result, &error), error);
    for (size_t i = 0; i < (size_t) batch; i++)
      ids[i] = result.chosen[i] < 0 ? 1 : result.chosen[i];
  }
  return (now_ms () - begun) / tokens;
}

/* Tokens of a whole model: one sequence of each length, and several of one length in one pass. */
static void
bench_model (const std::vector<int> &lengths, const std::vector<int> &batches, int batch_tokens)
{
  Random random (2);
  double begun = now_ms ();
  Model model (random, small ? 2 : 32, small ? 64 : 4096, small ? 96 : 14336, small ? 4 : 32,
      small ? 2 : 8, head_dim, small ? 300 : 128256);
  const LycheeCudaHparams &h = model.h;
  std::vector<std::pair<int, int> > cases;

  printf ("{\"what\": \"load\", \"model_gb\": %.2f, \"load_ms\": %.0f}\n",
      (double) model.api->model_get_bytes (model.model) / 1e9, now_ms () - begun);
  fprintf (stderr,
      "a model of %.1f GB with random weights; milliseconds for a token of each sequence\n"
      "%9s %9s %9s %9s %9s\n",
      (double) model.api->model_get_bytes (model.model) / 1e9, "sequences", "tokens", "dense",
      "sparse", "speed-up");
  for (int n : lengths)
    cases.push_back ({ 1, n });
  for (int batch : batches)
    cases.push_back ({ batch, batch_tokens });
  for (auto &c : cases) {
    int batch = c.first, n = c.second;
    std::vector<std::unique_ptr<Pages> > pages;
    size_t free_memory, all;
    double wanted = (double) batch * (n + 512) * h.n_layers * h.n_kv_heads * head_dim * 4.0, ms[2];

    test::must_api (
        model.api->get_memory (model.device, &free_memory, &all, &model.error), model.error);
    if (wanted + 2e9 > (double) free_memory && !small) {
      printf ("{\"what\": \"left out\", \"batch\": %d, \"tokens\": %d, \"gb\": %.0f, "
              "\"free_gb\": %.0f}\n",
          batch, n, wanted / 1e9, (double) free_memory / 1e9);
      fprintf (stderr, "%9d %9d: left out, it takes %.0f GB and %.0f are free\n", batch, n,
          wanted / 1e9, (double) free_memory / 1e9);
      continue;
    }
    for (int i = 0; i < batch; i++) /* of its own, so that no cache serves two of them */
      pages.emplace_back (new Pages (random, n + 64, h.n_layers, h.n_kv_heads, head_dim));
    Index index (random, head_dim, sinks, n - window, 224, 36);
    Indexes indexes (index, small ? 3 : 256);
    for (int sparse = 0; sparse < 2; sparse++)
      ms[sparse] = bench_tokens (model, pages, indexes, n, batch, sparse);
    printf ("{\"what\": \"model\", \"batch\": %d, \"tokens\": %d, \"dense_ms\": %.3f, "
            "\"sparse_ms\": %.3f, \"speedup\": %.2f}\n",
        batch, n, ms[0], ms[1], ms[0] / ms[1]);
    fflush (stdout);
    fprintf (stderr, "%9d %9d %9.3f %9.3f %9.2f\n", batch, n, ms[0], ms[1], ms[0] / ms[1]);
  }
}

int
main (int argc, char **argv)
{
  cudaDeviceProp properties;
  double bandwidth;

  small = argc > 1 && strcmp (argv[1], "--small") == 0;
  std::vector<int> lengths =
      small ? std::vector<int>{ 300, 600 }
            : std::vector<int>{ 2048, 4096, 8192, 16384, 32768, 65536, 131072 };
  std::vector<int> batches = small ? std::vector<int>{ 2 } : std::vector<int>{ 4, 8 };
  const int batch_tokens = small ? 300 : 65536;
  test::must (cudaGetDeviceProperties (&properties, 0), "the device");
  bandwidth = measure_bandwidth ();
  printf ("{\"what\": \"device\", \"name\": \"%s\", \"bandwidth_gb_s\": %.0f}\n", properties.name,
      bandwidth);
  fflush (stdout);
  fprintf (stderr, "%s: %.0f GB/s (a copy, reading and writing)\n", properties.name, bandwidth);
  fprintf (stderr,
      "attention of a layer, 32 heads, 8 KV heads, 128 dimensions; microseconds\n"
      "%6s %8s %9s %9s %9s %9s %20s\n",
      "batch", "tokens", "dense", "search", "sparse", "speed-up", "dense, of bandwidth");
  for (int n : lengths)
    bench_attention (n, 1, bandwidth, properties);
  for (int batch : batches)
    bench_attention (batch_tokens, batch, bandwidth, properties);
  bench_attention (batch_tokens, small ? 2 : 16, bandwidth, properties);
  bench_model (lengths, batches, batch_tokens);
  return 0;
}
