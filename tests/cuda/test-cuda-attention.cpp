/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Attention and search, against float64: dense over a table of shapes; a search's choice; and what
 * sparse attention makes of it. */

#include <algorithm>
#include <iterator>

#include "cuda-index.h"
#include "cuda-rows.h"
#include "lychee-cuda-kernels.h"

using test::Array;
using test::Index;
using test::Random;

/* Keys and values of the second of two layers. */
struct Cache {
  int dim, kv_heads;
  size_t layer; /* bytes */
  test::Parts parts;

  Cache (Random &random, LycheeCudaType type, int dim_, int kv_heads_, int n, float scale = 1)
      : dim (dim_), kv_heads (kv_heads_),
        layer ((size_t) kv_heads_ * 2 * lychee_cuda_part_size (type, dim_)),
        parts (type, dim_, 4 * kv_heads_, n)
  {
    for (int head = 0; head < kv_heads; head++)
      for (int value = 0; value < 2; value++)
        for (int row = 0; row < n; row++)
          parts.put (find (head, value), row, random.normals (dim, value ? 1 : scale).data ());
    parts.upload ();
  }
  int
  find (int head, int value) const
  {
    return 2 * (kv_heads + head) + value;
  }
  /* As it is read: of q8_0 rounded to 16 bits. */
  double
  get (int head, int value, int row, int d)
  {
    double x = parts.get (find (head, value), row, d);

    return parts.type == LYCHEE_CUDA_Q8_0
               ? test::from_bits (false, test::to_bits (false, (float) x))
               : x;
  }
};

static const LycheeCudaType types[] = { LYCHEE_CUDA_F16, LYCHEE_CUDA_BF16, LYCHEE_CUDA_Q8_0 };

/* Softmax over rows, with groups besides: mean logit and value, weight exp (logit). */
struct Group {
  double logit;
  std::vector<double> value;
};

static std::vector<double>
reference (Cache &cache, int head, const float *q, double scale, const std::vector<int> &rows,
    const std::vector<Group> &groups, double *log_mass = nullptr)
{
  std::vector<double> logits (rows.size ()), o (cache.dim, 0);
  double most = -INFINITY, sum = 0, exact;

  for (size_t i = 0; i < rows.size (); i++) {
    double x = 0;

    for (int d = 0; d < cache.dim; d++)
      x += q[d] * cache.get (head, 0, rows[i], d);
    logits[i] = scale * x;
    most = std::max (most, logits[i]);
  }
  for (const Group &g : groups)
    most = std::max (most, g.logit);
  for (size_t i = 0; i < rows.size (); i++) {
    double weight = exp (logits[i] - most);

    sum += weight;
    for (int d = 0; d < cache.dim; d++)
      o[d] += weight * cache.get (head, 1, rows[i], d);
  }
  exact = sum;
  for (const Group &g : groups) {
    double weight = exp (g.logit - most);

    sum += weight;
    for (int d = 0; d < cache.dim; d++)
      o[d] += weight * g.value[d];
  }
  for (double &x : o)
    x /= sum;
  if (log_mass)
    *log_mass = most + log (exact);
  return o;
}

/* |o - o'| / |o| */
static double
distance (const float *got, const std::vector<double> &wanted)
{
  double away = 0, length = 1e-12;

  for (size_t d = 0; d < wanted.size (); d++) {
    away += (got[d] - wanted[d]) * (got[d] - wanted[d]);
    length += wanted[d] * wanted[d];
  }
  return isfinite (away) ? sqrt (away / length) : INFINITY;
}

/* Attends and merges. */
static std::vector<float>
attend (LycheeCudaAttend *params, bool chunk, std::vector<float> *log_mass = nullptr)
{
  int total = params->n_heads * params->n_tokens;
  int n = params->n_splits + (params->selection ? params->n_rest_splits : 0);
  Array<float> m ((size_t) n * total), l ((size_t) n * total),
      o ((size_t) n * total * params->head_dim);
  Array<float> output ((size_t) total * params->head_dim), mass (total);
  LycheeCudaMerge merge = { LYCHEE_CUDA_F32, params->head_dim, params->n_heads, params->n_kv_heads,
    params->n_tokens, n, m.data, l.data, o.data, output.data, mass.data, params->n_splits };

  params->m = m.data;
  params->l = l.data;
  params->o = o.data;
  CHECK ((chunk ? lychee_cuda_attend_chunk (params, nullptr)
                : lychee_cuda_attend (params, nullptr)) == 0);
  CHECK (lychee_cuda_merge (&merge, nullptr) == 0);
  if (log_mass)
    *log_mass = mass.get ();
  return output.get ();
}

static void
test_dense ()
{
  const struct {
    int dim, heads, kv_heads, n_tokens, first, n_splits, window, head, skip;
  } cases[] = {
    { 64, 1, 1, 1, 0, 1, 0 },  /* a single key */
    { 64, 9, 3, 1, 0, 4, 0 },  /* splits without keys */
    { 64, 9, 3, 1, 63, 1, 0 }, /* exactly a tile */
    { 64, 9, 3, 1, 64, 2, 0 }, /* one more */
    { 80, 6, 2, 1, 300, 3, 0 },
    { 96, 5, 1, 1, 257, 2, 0 },
    { 128, 8, 2, 1, 511, 4, 0 },  /* exactly two pages */
    { 128, 16, 1, 1, 700, 5, 0 }, /* two blocks of queries */
    { 128, 4, 4, 1, 200, 2, 0 },  /* no group */
    { 256, 4, 1, 1, 333, 3, 0 },
    { 256, 11, 1, 1, 40, 1, 0 },
    { 64, 6, 2, 7, 250, 2, 0 }, /* tokens of a chunk, over a page's end */
    { 80, 4, 2, 13, 0, 1, 0 },
    { 96, 3, 1, 66, 30, 2, 0 },
    { 128, 8, 2, 33, 100, 3, 0 },
    { 256, 2, 1, 40, 17, 2, 0 },
    { 64, 4, 2, 1, 600, 3, 100 }, /* a window */
    { 128, 4, 1, 20, 150, 2, 37 },
    { 64, 2, 1, 3, 5, 1, 1 }, /* a token sees itself only */
    { 64, 9, 3, 1, 4200, 9, 0 },
    { 64, 9, 3, 1, 700, 3, 0, 20, 300 }, /* rows were forgotten */
    { 128, 4, 2, 5, 700, 2, 200, 20, 500 },
    { 64, 4, 1, 30, 600, 2, 60, 5, 560 }, /* a window over both ends of them */
    { 96, 2, 1, 1, 512, 2, 0, 1, 510 },
  };

  for (auto &c : cases)
    for (LycheeCudaType type : types)
      for (int chunk = 0; chunk < 2; chunk++) {
        const bool bf16 = type == LYCHEE_CUDA_BF16;

        if (!test::has_form (type, c.dim) ||
            (c.first > 2000 && (chunk || type == LYCHEE_CUDA_Q8_0)) ||
            (bf16 && c.first * c.heads > 2000 && !test::is_long ()))
          continue;
        Random random (c.dim * 1000 + c.first);
        Cache cache (random, type, c.dim, c.kv_heads, c.first + c.n_tokens, 2);
        std::vector<float> q = random.normals ((size_t) c.n_tokens * c.heads * c.dim), used, mass;
        Array<float> q_array (q);
        Array<LycheeCudaStep> step (
            std::vector<LycheeCudaStep>{ { c.first, c.n_tokens, c.head, c.skip, 0 } });
        LycheeCudaAttend params = {};
        double worst = 0, scale = 1 / sqrt (c.dim);
        /* A chunk's queries are rounded; its weights too, with errors that even out. */
        double tolerance = chunk ? (bf16 ? 4e-3 : 5e-4) : (bf16 ? 3e-5 : 3e-6);

        params.type = type;
        params.head_dim = c.dim;
        params.n_heads = c.heads;
        params.n_kv_heads = c.kv_heads;
        params.n_tokens = params.block_tokens = c.n_tokens;
        params.scale = (float) scale;
        params.q = q_array.data;
        params.step = step.data;
        params.pages = cache.parts.table->data;
        params.layer_offset = cache.layer;
        params.window = c.window;
        params.n_splits = c.n_splits;
        std::vector<float> got = attend (&params, chunk, &mass);
        for (float &x : q)
          used.push_back (chunk ? test::from_bits (bf16, test::to_bits (bf16, x)) : x);
        for (int token = 0; token < c.n_tokens; token++)
          for (int head = 0; head < c.heads; head++) {
            int place = c.first - c.skip + token, group = c.heads / c.kv_heads;
            std::vector<int> rows;
            size_t at = ((size_t) token * c.heads + head) * c.dim;
            double log_mass;

            if (c.n_tokens > 20 && token % 7 != 0 && token != c.n_tokens - 1)
              continue;
            for (int i = c.window ? std::max (0, place + 1 - c.window) : 0; i <= place; i++)
              rows.push_back (lychee_cuda_row (i, c.head, c.skip));
            worst = std::max (worst, distance (&got[at], reference (cache, head / group, &used[at],
                                                             scale, rows, {}, &log_mass)));
            CHECK (fabs (mass[((size_t) head / group * c.n_tokens + token) * group + head % group] -
                         log_mass) < (chunk ? 0.05 : 1e-3));
          }
        CHECK (worst < tolerance);
        test::result ("%s: dim %d, %d/%d heads, %d tokens at %d, %d splits, window %d, %s (%.1e)",
            chunk ? "chunk" : "dense", c.dim, c.heads, c.kv_heads, c.n_tokens, c.first, c.n_splits,
            c.window, test::name_type (type), worst);
      }
}

/* What a search should find, in float64 (DESIGN.md section 4, lychee-index-search.c). */
struct Found {
  std::vector<int> rows;
  std::vector<std::vector<double> > logits; /* [query][node] of what is unread; -inf: nothing */
  unsigned long long scored = 0;
};

struct Choice {
  double density;
  int rows, at;
};

/* How many rows of each are taken, the densest first. */
static std::vector<int>
choose (std::vector<Choice> choices, int target, bool whole)
{
  std::vector<int> taken (choices.size (), 0);

  std::stable_sort (choices.begin (), choices.end (),
      [] (const Choice &a, const Choice &b) { return a.density > b.density; });
  for (const Choice &c : choices) {
    if (target <= 0)
      break;
    taken[(size_t) c.at] = whole ? c.rows : std::min (c.rows, target);
    target -= c.rows;
  }
  return taken;
}

static std::vector<double>
densities (const std::vector<std::vector<double> > &z, const std::vector<int> &count)
{
  std::vector<double> density (count.size (), 0);

  for (const std::vector<double> &row : z) {
    double most = -INFINITY, sum = 0;

    for (double x : row)
      most = x > most ? x : most;
    for (double x : row)
      sum += exp (x - most);
    if (!(sum > 0))
      continue;
    for (size_t i = 0; i < count.size (); i++)
      density[i] += exp (row[i] - most) / sum / count[i];
  }
  return density;
}

static Found
search_reference (const Index &index, const std::vector<const float *> &queries, double scale,
    int budget, double beam, bool rest)
{
  Found found;
  size_t n = index.nodes.size (), n_queries = queries.size ();
  int total = index.end - index.begin;
  std::vector<std::vector<double> > z (n_queries), leaf_z (n_queries), leaf_rank (n_queries);
  std::vector<int> count, leaf_count, leaf_node;
  std::vector<const Index::Leaf *> leaves;
  std::vector<Choice> choices;

  found.logits.resize (n_queries);
  if (total <= budget) {
    for (int i = index.begin; i < index.end; i++)
      found.rows.push_back (i);
    return found;
  }
  for (const Index::Node &node : index.nodes)
    count.push_back (node.n_rows);
  for (size_t q = 0; q < n_queries; q++)
    for (const Index::Node &node : index.nodes) {
      double x = 0;

      for (int d = 0; d < index.dim; d++)
        x += queries[q][d] * (double) node.scale * node.code[(size_t) d];
      z[q].push_back (scale * x + log (node.n_rows));
    }
  for (size_t q = 0; q < n_queries; q++)
    found.logits[q] = z[q];
  found.scored = n;
  if (budget == 0)
    return found;
  std::vector<double> density = densities (z, count);
  for (size_t i = 0; i < n; i++)
    choices.push_back (Choice{ density[i], count[i], (int) i });
  double open = std::min (
      beam > 0 ? beam * budget : LYCHEE_OPEN_ROWS (index.dim) + (double) LYCHEE_OPEN_BEAM * budget,
      (double) total);
  std::vector<int> opened = choose (choices, (int) ceil (open), true);
  for (size_t i = 0; i < n; i++)
    for (size_t l = 0; opened[i] && l < index.nodes[i].leaves.size (); l++) {
      const Index::Leaf &leaf = index.nodes[i].leaves[l];

      leaves.push_back (&leaf);
      leaf_count.push_back ((int) leaf.ids.size ());
      leaf_node.push_back ((int) i);
      for (size_t q = 0; q < n_queries; q++) {
        double x = 0;

        for (int d = 0; d < index.dim; d++)
          x += queries[q][d] * ((double) index.nodes[i].scale * index.nodes[i].code[(size_t) d] +
                                   (double) leaf.scale * leaf.code[(size_t) d]);
        leaf_z[q].push_back (scale * x + log ((double) leaf.ids.size ()));
        x = 0;
        for (int d = 0; d < index.dim; d++)
          x += (double) queries[q][d] * queries[q][d];
        leaf_rank[q].push_back (
            leaf_z[q].back () + LYCHEE_LEAF_SPREADS * scale * sqrt (x) * leaf.spread);
      }
    }
  found.scored += leaves.size ();
  density = densities (rest ? leaf_rank : leaf_z, leaf_count);
  choices.clear ();
  for (size_t i = 0; i < leaves.size (); i++)
    choices.push_back (Choice{ density[i], leaf_count[i], (int) i });
  std::vector<int> read = choose (choices, budget, false);
  for (size_t i = 0; i < leaves.size (); i++)
    for (int r = 0; r < read[i]; r++)
      found.rows.push_back (leaves[i]->ids[(size_t) r]);
  std::sort (found.rows.begin (), found.rows.end ());
  for (size_t q = 0; q < n_queries; q++) {
    std::vector<double> sum (n, 0);

    for (size_t i = 0; i < leaves.size (); i++)
      sum[(size_t) leaf_node[i]] += exp (leaf_z[q][i]) * (leaf_count[i] - read[i]) / leaf_count[i];
    for (size_t i = 0; i < n; i++)
      if (opened[i])
        found.logits[q][i] = log (sum[i]);
  }
  return found;
}

struct Case {
  const char *name;
  int dim, heads, kv_heads, n_tokens, block_tokens, first, index_end, sinks, budget;
  float beam;
  int rest, node_rows, leaf_rows, special, head,
      skip; /* 1: all queries are 0; 2: one is not a number */
};

static void
test_sparse ()
{
  const Case cases[] = {
    { "default", 64, 9, 3, 1, 1, 3000, 2930, 16, 256, 0, 1, 136, 24, 0 },
    { "many queries a head", 128, 8, 1, 1, 1, 2500, 2430, 16, 300, 0, 1, 224, 36, 0 },
    { "80 dims", 80, 4, 2, 1, 1, 1500, 1400, 16, 200, 2, 1, 60, 9, 0 },
    { "96 dims", 96, 3, 1, 1, 1, 1200, 1130, 16, 150, 1, 1, 136, 24, 0 },
    { "256 dims", 256, 4, 1, 1, 1, 1400, 1300, 4, 200, 1.5f, 1, 224, 36, 0 },
    { "no rest", 64, 4, 2, 1, 1, 1500, 1400, 16, 200, 2, 0, 136, 24, 0 },
    { "a beam of everything", 64, 4, 2, 1, 1, 800, 700, 16, 200, 1000, 1, 136, 24, 0 },
    { "no index yet", 64, 4, 2, 1, 1, 90, 0, 16, 256, 0, 1, 136, 24, 0 },
    { "index within the budget", 64, 4, 2, 1, 1, 300, 200, 16, 300, 0, 1, 136, 24, 0 },
    { "exactly the budget", 64, 4, 2, 1, 1, 300, 236, 16, 300, 0, 1, 136, 24, 0 },
    { "one more than the budget", 64, 4, 2, 1, 1, 301, 237, 16, 300, 0, 1, 136, 24, 0 },
    { "no budget for the index", 64, 4, 2, 1, 1, 600, 500, 16, 100, 0, 1, 136, 24, 0 },
    { "a budget of one row", 64, 4, 2, 1, 1, 600, 530, 16, 87, 0, 1, 136, 24, 0 },
    { "single rows", 64, 4, 2, 1, 1, 700, 600, 16, 200, 1, 1, 1, 1, 0 },
    { "one node", 64, 4, 2, 1, 1, 400, 330, 16, 200, 0, 1, 4000, 30, 0 },
    { "no sinks", 64, 4, 2, 1, 1, 600, 530, 0, 200, 0, 1, 136, 24, 0 },
    { "all alike", 64, 4, 2, 1, 1, 1500, 1400, 16, 200, 1, 1, 1, 1, 1 },
    { "not a number", 64, 4, 2, 1, 1, 1500, 1400, 16, 200, 1, 1, 136, 24, 2 },
    { "blocks of tokens", 64, 6, 2, 21, 8, 1200, 1130, 16, 256, 1, 1, 136, 24, 0 },
    { "blocks, large heads", 128, 8, 2, 5, 4, 900, 820, 16, 200, 1, 1, 224, 36, 0 },
    { "rows forgotten", 64, 4, 2, 1, 1, 3000, 2930, 16, 256, 0, 1, 136, 24, 0, 30, 1000 },
    { "most rows forgotten", 64, 4, 2, 3, 2, 1500, 1430, 16, 300, 0, 1, 136, 24, 0, 30, 1390 },
    { "long", 64, 2, 1, 1, 1, 140000, 139930, 16, 1024, 0, 1, 136, 24, 0 },
  };

  for (const Case &c : cases) {
    Random random ((uint64_t) c.first + c.dim);
    int group = c.heads / c.kv_heads, n_blocks = (c.n_tokens + c.block_tokens - 1) / c.block_tokens;
    int n_jobs = c.kv_heads * n_blocks, block_queries = c.block_tokens * group;
    bool is_long = c.first > 100000;
    int cached = c.first + c.n_tokens;
    double scale = 1 / sqrt (c.dim);
    std::vector<Index *> indexes;
    std::vector<LycheeCudaHead> heads;
    int max_nodes = 1, max_leaves = 1;

    for (int i = 0; i < c.kv_heads; i++) {
      int begin = c.skip > 0 ? c.head + c.skip : c.index_end > 0 ? c.sinks : 0;
      Index *index = new Index (random, c.dim, begin, c.index_end, c.node_rows, c.leaf_rows);
      int leaves = 0;

      for (const Index::Node &node : index->nodes)
        leaves += (int) node.leaves.size ();
      indexes.push_back (index);
      heads.push_back (LycheeCudaHead{ index->list ? index->list->data : nullptr,
          (int) index->nodes.size (), begin, c.index_end, 0 });
      max_nodes = std::max (max_nodes, (int) index->nodes.size ());
      max_leaves = std::max (max_leaves, leaves);
    }
    std::vector<float> q =
        random.normals ((size_t) c.n_tokens * c.heads * c.dim, c.special == 1 ? 0 : 1);
    if (c.special == 2)
      q[0] = NAN;
    Array<float> q_array (q);
    Array<LycheeCudaHead> head_array (heads);
    Array<LycheeCudaStep> step (
        std::vector<LycheeCudaStep>{ { c.first, c.n_tokens, c.head, c.skip, 0 } });
    Array<LycheeCudaSelection> selection (n_jobs);
    size_t jobs = (size_t) n_jobs, nodes = (size_t) max_nodes, all_leaves = (size_t) max_leaves;
    Array<int> selected (jobs * c.budget), count (jobs * nodes), opened (jobs * nodes * 2);
    Array<float> z (jobs * block_queries * nodes), weight (z.n), most (jobs * block_queries);
    Array<float> leaf_weight (jobs * block_queries * all_leaves), leaf_rank (leaf_weight.n);
    Array<int> leaf_node (jobs * all_leaves), leaf_count (leaf_node.n), leaf_read (leaf_node.n);
    Array<float> density (jobs * std::max (nodes, all_leaves));
    Array<unsigned long long> counters (std::vector<unsigned long long>{ 0, 0, 0 });
    LycheeCudaSearch params = { c.dim, c.heads, c.kv_heads, c.n_tokens, c.block_tokens,
      (float) scale, q_array.data, step.data, head_array.data, c.sinks, c.budget, c.beam, c.rest,
      max_nodes, max_leaves, selection.data, selected.data, z.data, weight.data, most.data,
      count.data, opened.data, leaf_weight.data, leaf_rank.data, leaf_node.data, leaf_count.data,
      leaf_read.data, density.data, counters.data };

    CHECK (lychee_cuda_search (&params, nullptr) == 0);
    std::vector<LycheeCudaSelection> got = selection.get ();
    std::vector<int> got_rows = selected.get ();
    std::vector<unsigned long long> counted = counters.get ();
    std::vector<Found> wanted;
    unsigned long long scored = 0, read = 0, estimated = 0;
    for (int job = 0; job < n_jobs; job++) {
      const Index &index = *indexes[(size_t) (job / n_blocks)];
      int first_token = job % n_blocks * c.block_tokens;
      int n_tokens = std::min (c.block_tokens, c.n_tokens - first_token);
      int sinks = c.skip > 0 ? c.head : std::min (c.sinks, c.first);
      int recent = std::max (c.index_end, sinks + c.skip), certain = sinks + c.first - recent;
      std::vector<const float *> queries;

      for (int r = 0; r < n_tokens * group; r++)
        queries.push_back (
            &q[((size_t) (first_token + r / group) * c.heads + job / n_blocks * group + r % group) *
                c.dim]);
      Found f = search_reference (
          index, queries, scale, std::max (0, c.budget - certain), c.beam, c.rest);
      scored += f.scored;
      read += (unsigned long long) (certain + n_tokens + (int) f.rows.size ()) * n_tokens;
      if (f.scored > 0 && c.rest)
        estimated +=
            (unsigned long long) (c.index_end - index.begin - (int) f.rows.size ()) * n_tokens;
      CHECK (got[job].n_rows == (int) f.rows.size ());
      CHECK (got[job].recent == recent && got[job].n_sinks == sinks);
      got_rows.resize (std::max (got_rows.size (), (size_t) (job + 1) * c.budget));
      std::vector<int> rows (
          &got_rows[(size_t) job * c.budget], &got_rows[(size_t) job * c.budget] + got[job].n_rows),
          more;
      std::set_difference (
          rows.begin (), rows.end (), f.rows.begin (), f.rows.end (), std::back_inserter (more));
      if (rows != f.rows)
        test::fail (
            "head %d: %zu of %zu rows are others", job / n_blocks, more.size (), rows.size ());
      wanted.push_back (f);
    }
    CHECK (counted[0] == scored && counted[1] == read && counted[2] == estimated);
    test::result ("search: %s (%llu nodes scored)", c.name, counted[0]);

    /* Sparse attention over what was found. The long one has no cache: it would take the test's
     * time. */
    if (is_long) {
      for (Index *index : indexes)
        delete index;
      continue;
    }
    /* What is found does not depend on the type, and the heads' sizes are all above. */
    for (LycheeCudaType type : types) {
      if (!test::has_form (type, c.dim) ||
          (type == LYCHEE_CUDA_BF16 && c.n_tokens > 1 && !test::is_long ()))
        continue;
      Cache cache (random, type, c.dim, c.kv_heads, cached);
      LycheeCudaAttend a = {};
      double worst = 0;

      a.type = type;
      a.head_dim = c.dim;
      a.n_heads = c.heads;
      a.n_kv_heads = c.kv_heads;
      a.n_tokens = c.n_tokens;
      a.block_tokens = c.block_tokens;
      a.scale = (float) scale;
      a.q = q_array.data;
      a.step = step.data;
      a.pages = cache.parts.table->data;
      a.layer_offset = cache.layer;
      a.n_splits = 3;
      a.selection = selection.data;
      a.selected = selected.data;
      a.budget = c.budget;
      a.n_rest_splits = 2;
      a.heads = head_array.data;
      a.weight = weight.data;
      a.most = most.data;
      a.max_nodes = max_nodes;
      std::vector<float> output = attend (&a, false);
      for (int token = 0; token < c.n_tokens; token++)
        for (int head = 0; head < c.heads; head++) {
          int kv = head / group, block = token / c.block_tokens, job = kv * n_blocks + block;
          const Found &f = wanted[(size_t) job];
          const Index &index = *indexes[(size_t) kv];
          std::vector<int> rows = f.rows;
          std::vector<Group> groups;
          size_t at = ((size_t) token * c.heads + head) * c.dim;
          size_t query = (size_t) ((token - block * c.block_tokens) * group + head % group);

          if (c.special == 2 && head == 0)
            continue;
          for (int i = 0; i < got[job].n_sinks; i++)
            rows.push_back (i);
          for (int i = got[job].recent; i <= c.first + token; i++)
            rows.push_back (i);
          for (size_t i = 0; c.rest && i < f.logits[query].size (); i++)
            if (f.logits[query][i] > -INFINITY) {
              Group g = { f.logits[query][i], {} };

              for (int d = 0; d < c.dim; d++)
                g.value.push_back (
                    (double) index.nodes[i].value_scale * index.nodes[i].value[(size_t) d]);
              groups.push_back (g);
            }
          worst = std::max (
              worst, distance (&output[at], reference (cache, kv, &q[at], scale, rows, groups)));
        }
      CHECK (worst < (type == LYCHEE_CUDA_BF16 ? 3e-5 : 5e-6));
      test::result ("sparse: %s, %s (%.1e)", c.name, test::name_type (type), worst);
    }
    for (Index *index : indexes)
      delete index;
  }
}

/* What no kernel can do is refused, and nothing to do is nothing. */
static void
test_refused ()
{
  LycheeCudaAttend params = {};

  CHECK (lychee_cuda_attend (&params, nullptr) == 0);
  CHECK (lychee_cuda_attend_chunk (&params, nullptr) == 0);
  params.n_tokens = params.block_tokens = params.n_heads = params.n_kv_heads = params.n_splits = 1;
  params.type = LYCHEE_CUDA_F16;
  for (int dim : { 0, 16, 72, 112, 512 }) {
    params.head_dim = dim;
    CHECK (!lychee_cuda_has_head_dim (dim));
    CHECK (lychee_cuda_attend (&params, nullptr) != 0);
    CHECK (lychee_cuda_attend_chunk (&params, nullptr) != 0);
  }
  params.head_dim = 64;
  params.type = LYCHEE_CUDA_F32;
  CHECK (lychee_cuda_attend (&params, nullptr) != 0);
  params.head_dim = 80;
  params.type = LYCHEE_CUDA_Q8_0; /* no whole blocks */
  CHECK (lychee_cuda_attend (&params, nullptr) != 0);
  CHECK (lychee_cuda_attend_chunk (&params, nullptr) != 0);
  CHECK (lychee_cuda_search_block_tokens (128, 32, 8) == 16);
  CHECK (lychee_cuda_search_block_tokens (256, 64, 1) >= 1);
  test::result ("what is refused");
}

int
main ()
{
  test_dense ();
  test_sparse ();
  test_refused ();
  return test::finish ();
}
