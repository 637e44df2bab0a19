/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Choosing tokens on the device, against the definition written down plainly: sort, cut, sum up.
 * The same tokens as LycheeSampler's, exactly: test-cuda-backend. */

#include <algorithm>

#include "cuda-test.h"
#include "lychee-cuda-kernels.h"

using test::Array;
using test::Random;

typedef unsigned long long Weight;

static std::vector<Weight>
make_table ()
{
  std::vector<Weight> table (LYCHEE_TABLE_SIZE);

  for (int i = 0; i < LYCHEE_TABLE_SIZE; i++)
    table[(size_t) i] =
        (Weight) ldexp (exp2 (-i / (double) (LYCHEE_TABLE_SIZE - 1)), LYCHEE_WEIGHT_BITS);
  return table;
}

struct Token {
  int id;
  float logit;
  unsigned distance;
  Weight weight;
};

static int
choose (const LycheeCudaSampling &s, const std::vector<int> &history,
    const std::vector<Weight> &table, const std::vector<float> &given)
{
  std::vector<float> logits = given;
  std::vector<Token> tokens;
  float best = -INFINITY;
  Weight total = 0, at;

  for (int id : history)
    if (id >= 0 && id < (int) given.size ())
      logits[id] = given[id] > 0 ? given[id] / s.penalty : given[id] * s.penalty;
  for (float x : logits)
    if (std::isfinite (x) && x > best)
      best = x;
  if (best == -INFINITY)
    return 0x7fffffff;
  if (s.greedy)
    return (int) (std::find (logits.begin (), logits.end (), best) - logits.begin ());
  for (int i = 0; i < (int) logits.size (); i++) {
    double exact;
    float distance = logits[i] == best ? 0 : (best - logits[i]) * s.scale;

    if (!std::isfinite (logits[i]) || !(distance < ldexp (LYCHEE_MAX_OCTAVES, LYCHEE_OCTAVE_BITS)))
      continue;
    Token t = { i, logits[i], (unsigned) distance, 0 };
    int entry = (int) (t.distance >> LYCHEE_TABLE_FRACTION_BITS) % (LYCHEE_TABLE_SIZE - 1);
    Weight part = t.distance % (1u << LYCHEE_TABLE_FRACTION_BITS);
    t.weight = (table[entry] -
                   (((table[entry] - table[entry + 1]) * part) >> LYCHEE_TABLE_FRACTION_BITS)) >>
               (t.distance >> LYCHEE_OCTAVE_BITS);
    exact = exp2 (LYCHEE_WEIGHT_BITS - t.distance / ldexp (1, LYCHEE_OCTAVE_BITS));
    CHECK (fabs ((double) t.weight - exact) <= 1.01 + 1e-7 * exact);
    tokens.push_back (t);
  }
  std::stable_sort (tokens.begin (), tokens.end (),
      [] (const Token &a, const Token &b) { return a.logit > b.logit; });
  if (s.top_k > 0 && tokens.size () > s.top_k)
    tokens.resize (s.top_k);
  while (tokens.back ().weight < s.min_weight)
    tokens.pop_back ();
  for (const Token &t : tokens)
    total += t.weight;
  Weight wanted = (Weight) (s.top_p * (double) total);
  if (s.top_p < 1 && wanted < total) {
    size_t n = 0;

    for (total = 0; n == 0 || total < wanted; n++)
      total += tokens[n].weight;
    tokens.resize (n);
  }
  std::sort (tokens.begin (), tokens.end (), [] (const Token &a, const Token &b) {
    unsigned x = a.distance >> LYCHEE_BUCKET_SHIFT, y = b.distance >> LYCHEE_BUCKET_SHIFT;

    return x != y ? x < y : a.id < b.id;
  });
  at = (Weight) ((unsigned __int128) s.random * total >> 64);
  for (const Token &t : tokens) {
    if (at < t.weight)
      return t.id;
    at -= t.weight;
  }
  return -2;
}

enum Kind { NORMAL, TIED, EQUAL, BROKEN, NOTHING, ONE, FAR };

static std::vector<float>
make_logits (Random &random, Kind kind, int n)
{
  std::vector<float> x = random.normals ((size_t) n, 3);

  for (int i = 0; i < n; i++)
    switch (kind) {
    case NORMAL:
      break;
    case TIED: /* few values */
      x[i] = rintf (x[i]);
      break;
    case EQUAL:
      x[i] = -1.5f;
      break;
    case BROKEN:
      if (i % 3 == 0)
        x[i] = i % 2 ? NAN : INFINITY;
      if (i % 5 == 0)
        x[i] = -INFINITY;
      break;
    case NOTHING:
      x[i] = i % 2 ? NAN : -INFINITY;
      break;
    case ONE:
      x[i] = i == n / 2 ? 30 : -3e38f;
      break;
    case FAR: /* zeros of both signs, and a wide range */
      x[i] = i % 4 == 0 ? 0.0f : i % 4 == 1 ? -0.0f : 20 * x[i] - 60;
      break;
    }
  return x;
}

struct Settings {
  double temperature;
  unsigned top_k;
  double top_p, min_p;
  float penalty;
};

static const Settings settings[] = {
  { 0, 0, 1, 0, 1 },
  { 0, 0, 1, 0, 1.1f },
  { 1, 0, 1, 0, 1 },
  { 0.7, 40, 0.95, 0.05, 1.1f },
  { 1, 1, 1, 0, 1 },
  { 1, 7, 1, 0, 1.3f },
  { 1.5, 0, 0.9, 0, 1 },
  { 1, 0, 1e-30, 0, 1 },
  { 2, 300, 0.5, 0, 1 },
  { 1, 0, 1, 1, 1 },
  { 5, 1000000, 0.999, 1e-3, 0.9f },
  { 1e-30, 0, 1, 0, 1 },
};

static void
test_table (Kind kind, const char *name)
{
  std::vector<Weight> table = make_table ();
  Array<Weight> table_array (table);
  Random random ((uint64_t) kind + 1);

  /* One more than a block has threads with all settings, and a history that is longer; one, and six
   * tiles of which the last is not full, with each setting and each kind, but not all of both. */
  for (int n : { 1, 1025, 1400 })
    for (int i_set = 0; i_set < (int) (sizeof settings / sizeof *settings); i_set++) {
      const Settings &set = settings[i_set];

      if (n != 1025 && (i_set + kind) % 4 != 0 && !test::is_long ())
        continue;
      std::vector<float> logits = make_logits (random, kind, n);
      std::vector<int> history;
      int n_history = set.penalty == 1 ? 0 : n == 1025 ? 1100 : 3;

      for (int i = 0; i < n_history; i++) /* some of them twice, and some that are no tokens */
        history.push_back (random.below (n + 2) - 1);
      LycheeCudaSampling s = { set.temperature == 0,
        set.temperature > 0 ? (float) (M_LOG2E * (1 << LYCHEE_OCTAVE_BITS) / set.temperature) : 0,
        set.penalty, n_history, set.top_k, set.top_p,
        std::max ((Weight) (set.min_p * ldexp (1, LYCHEE_WEIGHT_BITS)), (Weight) 1),
        random.next () };
      Array<LycheeCudaSampling> sampling (std::vector<LycheeCudaSampling>{ s });
      Array<int> history_array (history), members ((size_t) n), chosen (1);
      Array<float> logits_array (logits), penalised (history.size ()),
          tiles ((size_t) (n + LYCHEE_CUDA_SAMPLE_TILE - 1) / LYCHEE_CUDA_SAMPLE_TILE);
      Array<Weight> masses (LYCHEE_N_BUCKETS);
      Array<unsigned> counts (LYCHEE_N_BUCKETS);
      LycheeCudaSample params = { n, sampling.data, history_array.data, table_array.data,
        logits_array.data, penalised.data, tiles.data, masses.data, counts.data, members.data,
        chosen.data };

      CHECK (lychee_cuda_sample (&params, nullptr) == 0);
      int got = chosen.get ()[0], wanted = choose (s, history, table, logits);
      if (got != wanted)
        test::fail ("%d logits, temperature %g, top-k %u, top-p %g, min-p %g: %d, not %d", n,
            set.temperature, set.top_k, set.top_p, set.min_p, got, wanted);
    }
  test::result ("%s", name);
}

/* Each token is drawn as often as it is likely. */
static void
test_distribution ()
{
  std::vector<Weight> table = make_table ();
  const std::vector<float> logits = { 0, logf (2), logf (4), -INFINITY, logf (3) };
  const double wanted[] = { 0.1, 0.2, 0.4, 0, 0.3 };
  Array<Weight> table_array (table), masses (LYCHEE_N_BUCKETS);
  Array<float> logits_array (logits), tiles (1), penalised (1);
  Array<unsigned> counts (LYCHEE_N_BUCKETS);
  Array<int> history (1), members (5), chosen (1);
  LycheeCudaSampling s = { 0, (float) (M_LOG2E * (1 << LYCHEE_OCTAVE_BITS)), 1, 0, 0, 1, 1, 0 };
  const int n = test::is_long () ? 1000 : 40;
  int times[5] = {};

  for (int i = 0; i < n; i++) {
    s.random = (Weight) i * (~0ull / n); /* evenly, instead of by chance */
    Array<LycheeCudaSampling> sampling (std::vector<LycheeCudaSampling>{ s });
    LycheeCudaSample params = { 5, sampling.data, history.data, table_array.data, logits_array.data,
      penalised.data, tiles.data, masses.data, counts.data, members.data, chosen.data };

    CHECK (lychee_cuda_sample (&params, nullptr) == 0);
    int id = chosen.get ()[0];
    CHECK (id >= 0 && id < 5);
    if (id >= 0 && id < 5)
      times[id]++;
  }
  for (int i = 0; i < 5; i++)
    CHECK (fabs (times[i] / (double) n - wanted[i]) < 1.01 / n); /* they are evenly spread */
  test::result ("as often as it is likely");
}

int
main ()
{
  test_table (NORMAL, "normal");
  test_table (TIED, "many ties");
  test_table (EQUAL, "all are equal");
  test_table (BROKEN, "some are no numbers");
  test_table (NOTHING, "none is a number");
  test_table (ONE, "one stands out");
  test_table (FAR, "far apart, and zeros of both signs");
  test_distribution ();
  return test::finish ();
}
