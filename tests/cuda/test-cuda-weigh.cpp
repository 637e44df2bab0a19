/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* What rows got of attention, added up by bins, against float64. */

#include "cuda-rows.h"
#include "lychee-cuda-kernels.h"

using test::Array;
using test::Random;

struct Case {
  int dim, heads, kv_heads, n_tokens, block_tokens;
  int first, n_rows, begin; /* rows that count, and the pass's first one */
  int head, skip;           /* rows that were forgotten, all before those that count */
  bool sparse;
};

static const Case cases[] = {
  { 64, 3, 1, 1, 1, 0, 1, 1, 0, 0, false },
  { 64, 3, 1, 1, 1, 5, 200, 210, 0, 0, false },
  { 80, 4, 2, 7, 7, 16, 130, 200, 0, 0, false },
  { 128, 8, 2, 1, 1, 20, 300, 330, 0, 0, true },
  { 96, 4, 2, 19, 8, 20, 300, 330, 0, 0, true },
  { 256, 2, 1, 3, 2, 40, 100, 160, 16, 20, true },
};

static void
test_case (const Case &c, LycheeCudaType type)
{
  const int group = c.heads / c.kv_heads, n_bins = c.n_rows / 9 + 1, budget = 60;
  const int n_blocks = (c.n_tokens + c.block_tokens - 1) / c.block_tokens;
  const int n_parts = 2 * c.kv_heads, n = c.begin + c.n_tokens; /* of a layer; rows */
  Random random ((uint64_t) c.dim + c.n_rows);
  test::Parts pages (type, c.dim, 2 * n_parts, n); /* two layers */
  std::vector<unsigned> bins ((size_t) c.n_rows);
  std::vector<LycheeCudaSelection> selection;
  std::vector<int> selected ((size_t) c.kv_heads * n_blocks * budget, -1);
  std::vector<float> log_mass ((size_t) c.heads * c.n_tokens);
  std::vector<float> q = random.normals ((size_t) c.n_tokens * c.heads * c.dim);
  std::vector<double> wanted ((size_t) c.heads * n_bins, 0);
  float scale = 1 / sqrtf ((float) c.dim);

  pages.fill (random, 2 * n_parts, n);
  pages.upload ();
  for (int i = 0; i < c.n_rows; i++) /* runs of different lengths; one bin stays empty */
    bins[i] = (unsigned) (i / 9 + (i % 9 > 6 && i / 9 + 2 < n_bins));
  for (float &x : log_mass)
    x = 3 + random.normal ();
  for (int job = 0; job < c.kv_heads * n_blocks; job++) {
    int n = 0, recent = c.begin - 7 - job;

    for (int row = c.first - 2; row < recent && n < budget; row++) /* some of them do not count */
      if (random.below (4) == 0)
        selected[(size_t) job * budget + n++] = row;
    selection.push_back ({ n, 16, recent, 0 });
  }
  for (int kv = 0; kv < c.kv_heads; kv++)
    for (int token = 0; token < c.n_tokens; token++) {
      int job = kv * n_blocks + token / c.block_tokens;

      for (int row = c.first; row < c.first + c.n_rows; row++) {
        const LycheeCudaSelection &s = selection[job];
        bool read = !c.sparse || (row >= s.recent && row < c.begin);

        for (int i = 0; i < s.n_rows; i++)
          read = read || selected[(size_t) job * budget + i] == row;
        for (int g = 0; read && g < group; g++) {
          int head = kv * group + g;
          double dot = 0;

          for (int d = 0; d < c.dim; d++)
            dot += (double) q[((size_t) token * c.heads + head) * c.dim + d] *
                   pages.get (n_parts + 2 * kv, row, d);
          wanted[(size_t) head * n_bins + bins[row - c.first]] +=
              exp (scale * dot - log_mass[((size_t) kv * c.n_tokens + token) * group + g]);
        }
      }
    }
  Array<float> q_array (q), mass_array (log_mass);
  Array<LycheeCudaStep> step (
      std::vector<LycheeCudaStep>{ { c.begin, c.n_tokens, c.head, c.skip, 0 } });
  Array<LycheeCudaSelection> selection_array (selection);
  Array<int> selected_array (selected);
  Array<unsigned> bins_array (bins);
  Array<unsigned long long> sums (std::vector<unsigned long long> (wanted.size (), 5));
  LycheeCudaWeigh params = { type, c.dim, c.heads, c.kv_heads, c.n_tokens, c.block_tokens, scale,
    q_array.data, step.data, pages.table->data, n_parts * pages.size,
    c.sparse ? selection_array.data : nullptr, selected_array.data, budget, mass_array.data,
    c.first, c.n_rows, n_bins, bins_array.data, sums.data };

  CHECK (lychee_cuda_weigh (&params, nullptr) == 0);
  std::vector<unsigned long long> got = sums.get ();
  for (size_t i = 0; i < wanted.size (); i++)
    CHECK (fabs ((double) (got[i] - 5) / LYCHEE_CUDA_WEIGHT_ONE - wanted[i]) <=
           1e-5 * wanted[i] + 1e-8);
  test::result ("%s, %d rows of %d dimensions, %d tokens, %s", c.sparse ? "sparse" : "dense",
      c.n_rows, c.dim, c.n_tokens, test::name_type (type));
}

int
main ()
{
  LycheeCudaWeigh params = {};

  for (const Case &c : cases)
    for (LycheeCudaType type : { LYCHEE_CUDA_F16, LYCHEE_CUDA_Q8_0 })
      if (test::has_form (type, c.dim))
        test_case (c, type);
  CHECK (lychee_cuda_weigh (&params, nullptr) == 0); /* nothing to do */
  params.n_tokens = params.n_rows = params.block_tokens = 1;
  params.type = LYCHEE_CUDA_F16;
  params.n_heads = 200;
  params.n_kv_heads = 1;
  params.head_dim = 64;
  CHECK (lychee_cuda_weigh (&params, nullptr) != 0);
  params.n_heads = 1;
  params.head_dim = 72;
  CHECK (lychee_cuda_weigh (&params, nullptr) != 0);
  test::result ("what is refused");
  return test::finish ();
}
