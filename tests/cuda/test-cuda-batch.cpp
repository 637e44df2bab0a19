/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Several sequences in one pass: each gets what it gets on its own, whatever the others are. */

#include <memory>

#include "cuda-index.h"
#include "cuda-model.h"

using test::Array;
using test::Index;
using test::Model;
using test::Pages;
using test::Random;

/* A sequence: rows that were forgotten, an index of its own, a place. */
struct Sequence {
  int first, head, skip, origin, id, index_end;
  double temperature;
  unsigned long long random;
};

static const Sequence sequences[] = {
  { 700, 0, 0, 0, 5, 640, 0, 0 },
  { 300, 0, 0, 0, 9, 230, 1, 1ull << 63 },
  { 1030, 0, 0, 11, 5, 960, 0, 0 },
  { 600, 20, 200, 0, 40, 530, 2, 12345 },
  { 512, 0, 0, 0, 77, 440, 1, ~0ull },
};
static const int n_sequences = 5, sinks = 16, max_nodes = 400, max_node_rows = 60;

struct Result {
  std::vector<float> logits, rows; /* rows: [layers][K, V][kv_heads][dim] */
  LycheeCudaCounters counters;
  int chosen;
};

/* |a - b| / |b| */
static double
distance (const std::vector<float> &a, const std::vector<float> &b)
{
  double away = 0, length = 1e-12;

  for (size_t i = 0; i < b.size (); i++) {
    away += (a[i] - b[i]) * (a[i] - b[i]);
    length += b[i] * b[i];
  }
  return a.size () == b.size () && isfinite (away) ? sqrt (away / length) : INFINITY;
}

struct Fixture {
  Random random{ 11 };
  LycheeCudaType type;
  Model model;
  std::vector<std::unique_ptr<Pages> > pages;
  std::vector<std::unique_ptr<Index> > indexes;
  std::vector<std::vector<LycheeCudaHead> > heads;

  Fixture (int window, LycheeCudaType type_)
      : type (type_), model (random, 2, 64, 96, 6, 2, 64, 300, window)
  {
    for (const Sequence &s : sequences) {
      int begin = s.skip > 0 ? s.head + s.skip : sinks;

      pages.emplace_back (new Pages (random, s.first + 1, 2, 2, 64, type));
      heads.emplace_back ();
      for (int i = 0; i < 4; i++) {
        indexes.emplace_back (new Index (random, 64, begin, s.index_end, 40, 9));
        heads.back ().push_back (LycheeCudaHead{ indexes.back ()->list->data,
            (int) indexes.back ()->nodes.size (), begin, s.index_end, 0 });
      }
    }
  }

  /* Of the sequences in @which, in one pass. */
  std::vector<Result>
  run (
      LycheeCudaWorker *worker, const std::vector<int> &which, bool sparse, LycheeCudaOutput output)
  {
    std::vector<LycheeCudaSequence> all;
    std::vector<LycheeCudaSampling> sampling;
    std::vector<int> ids, history = { 3, 70, 71 };
    std::vector<Result> results;
    LycheeCudaError error = {};
    LycheeCudaResult result;
    LycheeCudaPass pass = {};
    size_t n = which.size (), units = (size_t) lychee_cuda_row_units (type, 64);

    for (int i : which) {
      const Sequence &s = sequences[i];

      sampling.push_back (LycheeCudaSampling{ s.temperature == 0,
          s.temperature > 0 ? (float) (M_LOG2E * (1 << LYCHEE_OCTAVE_BITS) / s.temperature) : 0,
          i % 2 ? 1.3f : 1.0f, i % 4, 0, 1, 1, s.random });
      ids.push_back (s.id);
    }
    for (size_t i = 0; i < n; i++) {
      const Sequence &s = sequences[which[i]];
      size_t at = (size_t) which[i];

      all.push_back (
          LycheeCudaSequence{ s.first, s.head, s.skip, s.origin, pages[at]->memory.data (),
              (int) pages[at]->memory.size (), heads[at].data (), &sampling[i], history.data () });
    }
    pass.type = type;
    pass.ids = ids.data ();
    pass.n_tokens = pass.n_sequences = (int) n;
    pass.sequences = all.data ();
    pass.output = output;
    pass.frequency[0] = pass.frequency[1] = model.frequency.data ();
    pass.sparse = sparse;
    pass.sinks = sinks;
    pass.budget = 160;
    pass.beam = 2;
    pass.rest = 1;
    pass.max_nodes = max_nodes;
    pass.max_node_rows = max_node_rows;
    pass.audit_layer = -1;
    test::must_api (model.api->worker_run (worker, &pass, &result, &error), error);
    for (size_t i = 0; i < n; i++) {
      Result own = {};

      own.counters = result.counters[i];
      own.chosen = result.chosen ? result.chosen[i] : -2;
      if (result.logits)
        own.logits.assign (result.logits + i * 300, result.logits + (i + 1) * 300);
      for (size_t part = 0; part < 2 * 2 * 2; part++)
        for (size_t d = 0; d < 64; d++)
          own.rows.push_back (get_element (result.rows + (part * n + i) * units, d));
      results.push_back (own);
    }
    return results;
  }
  float
  get_element (const uint16_t *row, size_t d) const
  {
    const uint16_t *block = row + d / LYCHEE_CUDA_BLOCK_VALUES * LYCHEE_CUDA_BLOCK_UNITS;

    if (type == LYCHEE_CUDA_F16)
      return test::from_bits (false, row[d]);
    return test::from_bits (false, *block) *
           reinterpret_cast<const int8_t *> (block + 1)[d % LYCHEE_CUDA_BLOCK_VALUES];
  }
};

static void
test_together (int window, bool sparse, LycheeCudaOutput output, const char *name,
    LycheeCudaType type = LYCHEE_CUDA_F16)
{
  Fixture f (window, type);
  const std::vector<std::vector<int> > groups = { { 0, 1, 2, 3, 4 }, { 3, 3, 4 } };
  std::vector<Result> alone;
  double worst = 0;

  for (int i = 0; i < n_sequences; i++)
    alone.push_back (f.run (f.model.worker, { i }, sparse, output)[0]);
  for (const std::vector<int> &group : groups)
    for (int turn = 0; turn < (group.size () == 3 ? 3 : 1);
         turn++) { /* as it is, captured, again */
      std::vector<Result> got = f.run (f.model.worker, group, sparse, output);

      for (size_t i = 0; i < group.size (); i++) {
        const Result &wanted = alone[(size_t) group[i]];

        worst = std::max (worst, distance (got[i].rows, wanted.rows));
        if (output != LYCHEE_CUDA_OUTPUT_CHOSEN)
          worst = std::max (worst, distance (got[i].logits, wanted.logits));
        CHECK (got[i].chosen == wanted.chosen);
        CHECK (got[i].counters.nodes_scored == wanted.counters.nodes_scored);
        CHECK (got[i].counters.rows_read == wanted.counters.rows_read);
        CHECK (got[i].counters.rows_estimated == wanted.counters.rows_estimated);
        if (sparse)
          CHECK (got[i].counters.rows_read > 0);
      }
    }
  /* Their keys differ, or this would compare nothing. */
  CHECK (distance (alone[0].rows, alone[2].rows) > 0.1);
  /* Rows are of 16 bits; of a byte a value one may round to the next here and there. */
  CHECK (worst < (type == LYCHEE_CUDA_F16 ? 2e-3 : 1e-2));
  test::result ("%s (%.1e)", name, worst);
}

/* A driver that captures no graph only makes it slower. */
static void
test_no_capture ()
{
  setenv ("LYCHEE_EMULATED_NO_CAPTURE", "1", 1); /* a real device does not look there */
  test_together (0, true, LYCHEE_CUDA_OUTPUT_LAST, "no graphs");
  unsetenv ("LYCHEE_EMULATED_NO_CAPTURE");
}

/* An error that other code of this thread left is not this one's. */
static void
test_others_error ()
{
  Fixture f (0, LYCHEE_CUDA_F16);

  CHECK (cudaSetDevice (1000) != cudaSuccess);
  f.run (f.model.worker, { 0 }, false, LYCHEE_CUDA_OUTPUT_LAST); /* ends the test if it fails */
  test::result ("an error of somebody else's");
}

static void
test_refused ()
{
  Fixture f (0, LYCHEE_CUDA_F16);
  LycheeCudaSequence two[2] = { { 0, 0, 0, 0, f.pages[0]->memory.data (), 1, {}, {}, {} },
    { 0, 0, 0, 0, f.pages[1]->memory.data (), 1, {}, {}, {} } };
  const int ids[3] = { 1, 2, 3 };
  LycheeCudaError error = {};
  LycheeCudaResult result;
  LycheeCudaPass pass = {};

  pass.type = LYCHEE_CUDA_F16;
  pass.ids = ids;
  pass.sequences = two;
  pass.frequency[0] = pass.frequency[1] = f.model.frequency.data ();
  for (int wrong = 0; wrong < 3; wrong++) {
    pass.n_sequences = 2;
    pass.n_tokens = wrong == 0 ? 3 : 2;
    pass.weigh = wrong == 1;
    pass.audit_layer = wrong == 2 ? 0 : -1;
    CHECK (f.model.api->worker_run (f.model.worker, &pass, &result, &error) ==
           LYCHEE_CUDA_UNSUPPORTED);
  }
  pass.n_tokens = pass.n_sequences = 1;
  pass.weigh = 0;
  pass.audit_layer = -1;
  pass.type = LYCHEE_CUDA_BF16; /* of which the host has none */
  CHECK (
      f.model.api->worker_run (f.model.worker, &pass, &result, &error) == LYCHEE_CUDA_UNSUPPORTED);
  test::result ("what is refused");
}

int
main ()
{
  test_together (0, false, LYCHEE_CUDA_OUTPUT_LAST, "dense");
  test_together (0, true, LYCHEE_CUDA_OUTPUT_LAST, "sparse");
  test_together (100, true, LYCHEE_CUDA_OUTPUT_ALL, "a layer with a window");
  test_together (0, false, LYCHEE_CUDA_OUTPUT_CHOSEN, "tokens are chosen, dense");
  test_together (0, true, LYCHEE_CUDA_OUTPUT_CHOSEN, "tokens are chosen, sparse");
  test_together (0, false, LYCHEE_CUDA_OUTPUT_NONE, "without an output");
  test_together (0, false, LYCHEE_CUDA_OUTPUT_LAST, "dense, q8_0", LYCHEE_CUDA_Q8_0);
  test_together (100, true, LYCHEE_CUDA_OUTPUT_CHOSEN, "sparse, q8_0", LYCHEE_CUDA_Q8_0);
  test_no_capture ();
  test_others_error ();
  test_refused ();
  return test::finish ();
}
