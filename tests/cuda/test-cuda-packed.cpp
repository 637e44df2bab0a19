/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Packed positions, against float64: what queries are rotated by, keys that get positions when they
 * are read, and what rows get of attention then. */

#include <algorithm>

#include "cuda-rows.h"

using test::Array;
using test::Random;

static const double frequency_scale = 1.25;

static std::vector<double>
make_frequencies (int n_rot)
{
  std::vector<double> frequency;

  for (int i = 0; i < n_rot / 2; i++)
    frequency.push_back (pow (10000, -2.0 * i / n_rot));
  frequency.push_back (frequency_scale);
  return frequency;
}

/* Turns a row to a position. */
static void
turn (std::vector<double> &x, double position, const std::vector<double> &frequency, bool neox,
    double scale = frequency_scale)
{
  size_t n = frequency.size () - 1;

  for (size_t i = 0; i < n; i++) {
    size_t a = neox ? i : 2 * i, b = neox ? i + n : 2 * i + 1;
    double c = scale * cos (position * frequency[i]), s = scale * sin (position * frequency[i]);
    double turned = x[a] * c - x[b] * s;

    x[b] = x[a] * s + x[b] * c;
    x[a] = turned;
  }
}

struct Turns {
  Array<double> frequency;
  Array<float> low, high;

  Turns (int n_rot, int range)
      : frequency (make_frequencies (n_rot)), low ((size_t) LYCHEE_CUDA_TURN_LOW * n_rot),
        high ((size_t) lychee_cuda_count_high (range) * n_rot)
  {
    LycheeCudaTurns params = { n_rot / 2, lychee_cuda_count_high (range), frequency.data, low.data,
      high.data };

    CHECK (lychee_cuda_turns (&params, nullptr) == 0);
  }
};

static void
test_tables ()
{
  const int n_rot = 24, n = n_rot / 2, range = 700, window = 30;
  std::vector<double> frequency = make_frequencies (n_rot);
  Turns turns (n_rot, range);
  std::vector<float> low = turns.low.get (), high = turns.high.get ();

  for (int position : { 0, 1, 63, 64, 65, 500, range + LYCHEE_CUDA_BEHIND })
    for (int i = 0; i < n; i++) {
      const float *l = &low[(size_t) (position % LYCHEE_CUDA_TURN_LOW * n + i) * 2];
      const float *h = &high[(size_t) (position / LYCHEE_CUDA_TURN_LOW * n + i) * 2];

      CHECK (fabs (l[0] * h[0] - l[1] * h[1] -
                   frequency_scale * cos (position * frequency[(size_t) i])) < 1e-6);
      CHECK (fabs (l[0] * h[1] + l[1] * h[0] -
                   frequency_scale * sin (position * frequency[(size_t) i])) < 1e-6);
    }
  for (int separate = 0; separate < 2; separate++)
    for (int first : { 20, 31, 900 }) {
      const int n_tokens = 5, block = separate ? 1 : 3, skip = first > 500 ? 100 : 0;
      std::vector<LycheeCudaStep> steps;
      Array<float> query ((size_t) n_tokens * n * 2), aim (query.n);

      for (int i = 0; i < n_tokens; i++)
        steps.push_back (LycheeCudaStep{ first + i, 1, 0, skip, 3 });
      Array<LycheeCudaStep> step (steps);
      LycheeCudaPackedTable params = { n_tokens, n, step.data, turns.frequency.data, separate,
        range, LYCHEE_CUDA_BEHIND, block, window, query.data, aim.data };
      CHECK (lychee_cuda_packed_table (&params, nullptr) == 0);
      std::vector<float> got_query = query.get (), got_aim = aim.get ();
      for (int t = 0; t < n_tokens; t++)
        for (int i = 0; i < n; i++) {
          int farthest = std::max (window, std::min (first + t - skip, range / 2));
          double f = frequency[(size_t) i], c = 0, s = 0, position = range + t % block;

          for (int d = window; d <= farthest; d++) { /* the mean itself */
            c += cos (f * d) / (farthest - window + 1);
            s += sin (f * d) / (farthest - window + 1);
          }
          const float *q = &got_query[(size_t) (t * n + i) * 2];
          const float *a = &got_aim[(size_t) (t * n + i) * 2];
          CHECK (fabs (q[0] - frequency_scale * cos (position * f)) < 1e-6);
          CHECK (fabs (q[1] - frequency_scale * sin (position * f)) < 1e-6);
          CHECK (fabs (a[0] - frequency_scale * frequency_scale * c) < 1e-5);
          CHECK (fabs (a[1] - frequency_scale * frequency_scale * s) < 1e-5);
        }
    }
  test::result ("tables");
}

/* Queries are rotated by two tables, and keys by none. */
static void
test_rope ()
{
  const int dim = 64, heads = 2, n_tokens = 3, n_rot = 32, all = heads + 2;
  Random random (4);
  std::vector<float> qkv = random.normals ((size_t) n_tokens * all * dim);
  std::vector<float> tables[2];
  test::Parts pages (LYCHEE_CUDA_F16, dim, 2, n_tokens);

  for (std::vector<float> &table : tables)
    table = random.normals ((size_t) n_tokens * n_rot);
  pages.upload ();
  Array<float> qkv_array (qkv), query_table (tables[0]), aim_table (tables[1]);
  Array<float> q ((size_t) n_tokens * heads * dim), aim (q.n);
  Array<uint16_t> copy ((size_t) 2 * n_tokens * dim);
  Array<void *> page_table (std::vector<void *>{ pages.pages[0]->data });
  Array<LycheeCudaStep> step (std::vector<LycheeCudaStep>{ { 0, n_tokens, 0, 0, 0 } });
  LycheeCudaRope params = {};

  params.type = LYCHEE_CUDA_F16;
  params.head_dim = dim;
  params.n_heads = heads;
  params.n_kv_heads = 1;
  params.n_tokens = n_tokens;
  params.n_rot = n_rot;
  params.qkv = qkv_array.data;
  params.table = query_table.data;
  params.step = step.data;
  params.pages = page_table.data;
  params.q = q.data;
  params.copy = copy.data;
  params.packed = 1;
  params.aim_table = aim_table.data;
  params.aim = aim.data;
  for (int neox = 0; neox < 2; neox++) {
    params.neox = neox;
    CHECK (lychee_cuda_rope (&params, nullptr) == 0);
    std::vector<float> got[2] = { q.get (), aim.get () };
    pages.download ();
    for (int token = 0; token < n_tokens; token++)
      for (int head = 0; head < all; head++) {
        const float *x = &qkv[(size_t) (token * all + head) * dim];

        for (int d = 0; d < dim; d++)
          if (head >= heads)
            CHECK (pages.get (head - heads, token, d) ==
                   test::from_bits (false, test::to_bits (false, x[d])));
        for (int which = 0; head < heads && which < 2; which++)
          for (int i = 0; i < dim / 2; i++) {
            bool rotates = i < n_rot / 2;
            int a = neox && rotates ? i : 2 * i, b = neox && rotates ? i + n_rot / 2 : 2 * i + 1;
            const float *t = &tables[which][(size_t) (token * (n_rot / 2) + i % (n_rot / 2)) * 2];
            double c = rotates ? t[0] : 1, s = rotates ? t[1] : 0;
            const float *to = &got[which][(size_t) (token * heads + head) * dim];

            CHECK (fabs (to[a] - (x[a] * c - x[b] * s)) < 1e-5);
            CHECK (fabs (to[b] - (x[a] * s + x[b] * c)) < 1e-5);
          }
      }
  }
  test::result ("rope");
}

struct Case {
  const char *name;
  LycheeCudaType type;
  int dim, heads, kv_heads, n_tokens, block_tokens, first, head, skip, range, n_rot, neox;
  int n_selected; /* 0: dense */
};

static const Case cases[] = {
  { "dense", LYCHEE_CUDA_F16, 64, 4, 2, 1, 1, 300, 0, 0, 512, 64, 0, 0 },
  { "dense, tokens", LYCHEE_CUDA_F16, 80, 4, 2, 37, 37, 90, 0, 0, 128, 80, 1, 0 },
  { "dense, q8_0", LYCHEE_CUDA_Q8_0, 128, 4, 1, 3, 3, 270, 0, 0, 300, 64, 1, 0 },
  { "dense, forgotten", LYCHEE_CUDA_F16, 96, 3, 1, 2, 2, 700, 20, 400, 400, 96, 1, 0 },
  { "all known", LYCHEE_CUDA_F16, 64, 4, 2, 1, 1, 500, 0, 0, 600, 64, 0, 90 },
  { "beyond", LYCHEE_CUDA_F16, 64, 6, 2, 1, 1, 900, 0, 0, 256, 64, 0, 120 },
  { "beyond, halves", LYCHEE_CUDA_F16, 128, 8, 2, 1, 1, 1200, 0, 0, 400, 128, 1, 200 },
  { "beyond, blocks of tokens", LYCHEE_CUDA_F16, 80, 4, 2, 21, 8, 800, 0, 0, 300, 40, 1, 100 },
  { "beyond, 96", LYCHEE_CUDA_Q8_0, 96, 3, 3, 2, 2, 700, 0, 0, 200, 96, 0, 80 },
  { "beyond, 256", LYCHEE_CUDA_F16, 256, 4, 1, 1, 1, 600, 0, 0, 300, 256, 1, 70 },
  { "beyond, q8_0", LYCHEE_CUDA_Q8_0, 256, 2, 1, 1, 1, 600, 0, 0, 300, 256, 1, 70 },
  /* So much is read that not all of it can stand apart. */
  { "beyond, crowded", LYCHEE_CUDA_F16, 64, 2, 1, 1, 1, 900, 0, 0, 128, 64, 1, 300 },
  { "beyond, forgotten", LYCHEE_CUDA_Q8_0, 64, 4, 2, 5, 4, 1500, 30, 500, 300, 64, 1, 150 },
  { "nothing selected", LYCHEE_CUDA_F16, 64, 4, 2, 1, 1, 400, 0, 0, 128, 64, 1, -1 },
};

/* What a block of tokens reads, and how far from its origin: rows up to @end. */
struct Read {
  int row, distance;
};

static std::vector<Read>
find_distances (const Case &c, const LycheeCudaSelection &s, const std::vector<int> &selected,
    int first_token, int behind)
{
  int pass = c.first - c.skip, place = pass + first_token, origin = place + behind;
  bool known = pass + c.n_tokens <= c.range;
  int near = known ? 1 << 30 : c.range / 2, most = known ? c.range + 16 : c.range, farthest = near;
  std::vector<Read> rows;

  for (int i = (int) selected.size () - 1; i >= 0; i--) { /* the newest first */
    int distance = origin - (selected[(size_t) i] - c.skip);

    if (distance > near)
      distance = ++farthest;
    rows.push_back ({ selected[(size_t) i], std::min (distance, most) });
  }
  farthest = std::min (farthest, most);
  for (int i = 0; i < s.n_sinks; i++)
    rows.push_back (
        { i, known ? origin - i : std::min (origin, std::min (farthest + s.n_sinks, most)) - i });
  for (int row = s.recent; row < c.first + c.n_tokens; row++) {
    int own = row < c.head ? row : row - c.skip;

    if (row < c.head || row >= c.head + c.skip)
      rows.push_back ({ row, std::min (origin - own, most) });
  }
  return rows;
}

static void
test_case (const Case &c)
{
  const bool sparse = c.n_selected != 0;
  const int group = c.heads / c.kv_heads, budget = std::max (c.n_selected, 1), n_splits = 3;
  const int n_blocks = (c.n_tokens + c.block_tokens - 1) / c.block_tokens, n_bins = 20;
  const int behind = sparse ? LYCHEE_CUDA_BEHIND : c.n_tokens, total = c.heads * c.n_tokens;
  const double scale = 1 / sqrt (c.dim);
  Random random ((uint64_t) c.first + c.dim);
  std::vector<double> frequency = make_frequencies (c.n_rot);
  test::Parts parts (c.type, c.dim, 4 * c.kv_heads, c.first + c.n_tokens); /* two layers */
  std::vector<LycheeCudaSelection> selection;
  std::vector<std::vector<int> > rows;
  std::vector<int> selected ((size_t) c.kv_heads * n_blocks * budget, -1);
  std::vector<float> q;
  Turns turns (c.n_rot, c.range);
  int begin = c.skip > 0 ? c.head + c.skip : 16, recent = c.first - 40;
  int weigh_first = begin + 10, weigh_rows = c.first - weigh_first - 5;
  std::vector<unsigned> bins ((size_t) weigh_rows);
  std::vector<double> sums ((size_t) c.heads * n_bins, 0);
  double worst = 0;

  parts.fill (random, 4 * c.kv_heads, c.first + c.n_tokens);
  parts.upload ();
  for (int i = 0; i < weigh_rows; i++)
    bins[(size_t) i] = (unsigned) (i * n_bins / weigh_rows);
  for (int token = 0; token < c.n_tokens; token++)
    for (int head = 0; head < c.heads; head++) {
      std::vector<double> x;

      for (int d = 0; d < c.dim; d++)
        x.push_back (random.normal ());
      turn (x, c.range + LYCHEE_CUDA_BEHIND - behind + token % c.block_tokens, frequency, c.neox);
      q.insert (q.end (), x.begin (), x.end ());
    }
  for (int job = 0; job < c.kv_heads * n_blocks; job++) {
    std::vector<int> all;

    for (int row = begin; row < recent; row++)
      all.push_back (row);
    random.shuffle (all);
    all.resize ((size_t) std::max (0, c.n_selected));
    std::sort (all.begin (), all.end ());
    std::copy (all.begin (), all.end (), selected.begin () + job * budget);
    rows.push_back (all);
    selection.push_back (
        sparse ? LycheeCudaSelection{ (int) all.size (), c.skip > 0 ? c.head : 16, recent, 0 }
               : LycheeCudaSelection{ 0, 0, 0, 0 });
  }
  Array<float> q_array (q), m ((size_t) n_splits * total), l (m.n), o (m.n * c.dim);
  Array<float> output ((size_t) total * c.dim), mass ((size_t) total);
  Array<LycheeCudaStep> step (
      std::vector<LycheeCudaStep>{ { c.first, c.n_tokens, c.head, c.skip, 0 } });
  Array<LycheeCudaSelection> selection_array (selection);
  Array<int> selected_array (selected);
  Array<unsigned> bins_array (bins);
  Array<unsigned long long> sums_array (std::vector<unsigned long long> (sums.size (), 0));
  LycheeCudaAttend a = {};

  a.type = c.type;
  a.head_dim = c.dim;
  a.n_heads = c.heads;
  a.n_kv_heads = c.kv_heads;
  a.n_tokens = c.n_tokens;
  a.block_tokens = c.block_tokens;
  a.scale = (float) scale;
  a.q = q_array.data;
  a.step = step.data;
  a.pages = parts.table->data;
  a.layer_offset = 2 * (size_t) c.kv_heads * parts.size;
  a.n_splits = n_splits;
  a.selection = sparse ? selection_array.data : nullptr;
  a.selected = selected_array.data;
  a.budget = budget;
  a.m = m.data;
  a.l = l.data;
  a.o = o.data;
  a.turn = { c.range, behind, c.n_rot, c.neox, turns.low.data, turns.high.data };
  LycheeCudaMerge merge = { LYCHEE_CUDA_F32, c.dim, c.heads, c.kv_heads, c.n_tokens, n_splits,
    m.data, l.data, o.data, output.data, mass.data, n_splits };
  LycheeCudaWeigh weigh = { c.type, c.dim, c.heads, c.kv_heads, c.n_tokens, c.block_tokens, a.scale,
    a.q, a.step, a.pages, a.layer_offset, a.selection, a.selected, budget, mass.data, weigh_first,
    weigh_rows, n_bins, bins_array.data, sums_array.data, a.turn };

  CHECK (lychee_cuda_attend (&a, nullptr) == 0);
  CHECK (lychee_cuda_merge (&merge, nullptr) == 0);
  CHECK (lychee_cuda_weigh (&weigh, nullptr) == 0);
  CHECK (lychee_cuda_attend_chunk (&a, nullptr) != 0);
  std::vector<float> got = output.get ();
  for (int kv = 0; kv < c.kv_heads; kv++)
    for (int block = 0; block < n_blocks; block++) {
      size_t job = (size_t) (kv * n_blocks + block);
      int first_token = block * c.block_tokens;
      std::vector<Read> read = find_distances (c, selection[job], rows[job], first_token, behind);
      std::vector<std::vector<double> > keys;

      for (const Read &r : read) {
        std::vector<double> key;

        for (int d = 0; d < c.dim; d++)
          key.push_back (parts.get (2 * (c.kv_heads + kv), r.row, d));
        turn (key, std::max (0, c.range + LYCHEE_CUDA_BEHIND - r.distance), frequency, c.neox);
        keys.push_back (key);
      }
      for (int token = first_token; token < std::min (first_token + c.block_tokens, c.n_tokens);
           token++)
        for (int g = 0; g < group; g++) {
          int head = kv * group + g;
          size_t at = ((size_t) token * c.heads + head) * c.dim;
          std::vector<double> logits, value (c.dim, 0);
          double most = -INFINITY, sum = 0, away = 0, length = 0;

          for (size_t i = 0; i < read.size (); i++) {
            double x = 0;

            for (int d = 0; d < c.dim; d++)
              x += q[at + (size_t) d] * keys[i][(size_t) d];
            logits.push_back (read[i].row <= c.first + token ? scale * x : -INFINITY);
            most = std::max (most, logits.back ());
          }
          for (double x : logits)
            sum += exp (x - most);
          for (size_t i = 0; i < read.size (); i++) {
            double weight = exp (logits[i] - most) / sum;
            int counted = read[i].row - weigh_first;

            if (counted >= 0 && counted < weigh_rows)
              sums[(size_t) head * n_bins + bins[(size_t) counted]] += weight;
            for (int d = 0; d < c.dim; d++)
              value[(size_t) d] += weight * parts.get (2 * (c.kv_heads + kv) + 1, read[i].row, d);
          }
          for (int d = 0; d < c.dim; d++) {
            away += pow (got[at + (size_t) d] - value[(size_t) d], 2);
            length += pow (value[(size_t) d], 2);
          }
          worst = std::max (worst, isfinite (away) ? sqrt (away / length) : INFINITY);
        }
    }
  CHECK (worst < 2e-3); /* keys are rounded to 16 bits when they were turned */
  std::vector<unsigned long long> got_sums = sums_array.get ();
  double most_off = 0;
  for (size_t i = 0; i < sums.size (); i++)
    most_off = std::max (most_off,
        fabs ((double) got_sums[i] / LYCHEE_CUDA_WEIGHT_ONE - sums[i]) / (sums[i] + 1e-3));
  CHECK (most_off < 5e-3);
  test::result ("%s, %s (%.1e, weights %.1e)", c.name, test::name_type (c.type), worst, most_off);
}

int
main ()
{
  test_tables ();
  test_rope ();
  for (const Case &c : cases)
    test_case (c);
  return test::finish ();
}
