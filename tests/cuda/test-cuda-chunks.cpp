/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Search of an index with granularity chunk, against float64: which rows it finds, in which order,
 * and what it counts. */

#include <algorithm>
#include <memory>

#include "cuda-test.h"
#include "lychee-cuda-kernels.h"

using test::Array;
using test::Random;

struct Item {
  int first, n_rows;
};
struct Cluster {
  float scale, radius;
  std::vector<int> code; /* -8 .. 7 */
  std::vector<Item> items;
};
struct Unit {
  float scale, radius, base_scale;
  std::vector<int> code, base;
  std::vector<Cluster> clusters;
};

/* An index that is made up: items of rows @begin .. @end - 1, in any order. */
struct Chunks {
  int dim, begin, end, n_clusters = 0;
  std::vector<Unit> units;
  std::vector<std::unique_ptr<Array<uint8_t> > > records;
  std::unique_ptr<Array<uint8_t> > list;

  Chunks (Random &random, int dim_, int begin_, int end_, int n_units, int most_rows)
      : dim (dim_), begin (begin_), end (end_)
  {
    std::vector<Item> items;

    for (int at = begin; at < end;) {
      int n = std::min (end - at, 1 + random.below (most_rows));

      items.push_back (Item{ at, n });
      at += n;
    }
    random.shuffle (items);
    for (int u = 0; u < n_units && !items.empty (); u++) {
      Unit unit = { 0.005f, 0.1f + (float) random.uniform (), 0.004f, codes (random, 127),
        codes (random, 127), {} };
      size_t own = u == n_units - 1 ? items.size () : (items.size () + 3) / 4;

      while (own > 0) {
        Cluster cluster = { 0.02f * (float) random.uniform (), (float) random.uniform (),
          codes (random, 7), {} };

        for (int n = 1 + random.below (8); n > 0 && own > 0; n--, own--) {
          cluster.items.push_back (items.back ());
          items.pop_back ();
        }
        unit.clusters.push_back (cluster);
        n_clusters++;
      }
      units.push_back (unit);
    }
    pack ();
  }

private:
  std::vector<int>
  codes (Random &random, int most)
  {
    std::vector<int> code;

    for (int d = 0; d < dim; d++)
      code.push_back (random.below (2 * most + 1) - most);
    return code;
  }
  void
  pack ()
  {
    std::vector<uint8_t> addresses;
    uint32_t first = 0;
    auto add = [] (std::vector<uint8_t> &to, const void *from, size_t size) {
      to.insert (to.end (), (const uint8_t *) from, (const uint8_t *) from + size);
    };

    for (const Unit &unit : units) {
      LycheeCudaUnit head = { unit.scale, unit.radius, unit.base_scale,
        (uint32_t) unit.clusters.size (), 0, {} };
      std::vector<uint8_t> bytes, items;
      uint16_t n_items = 0;

      for (const Cluster &cluster : unit.clusters)
        head.n_items += (uint32_t) cluster.items.size ();
      add (bytes, &head, sizeof head);
      for (int x : unit.code)
        bytes.push_back ((uint8_t) x);
      for (int x : unit.base)
        bytes.push_back ((uint8_t) x);
      for (const Cluster &cluster : unit.clusters) {
        LycheeCudaCluster c = { cluster.scale, cluster.radius, 0, (uint16_t) cluster.items.size (),
          n_items };

        n_items = (uint16_t) (n_items + cluster.items.size ());
        for (const Item &item : cluster.items) {
          LycheeCudaItem i = { (uint32_t) item.first, (uint32_t) item.n_rows };

          c.n_rows += i.n_rows;
          add (items, &i, sizeof i);
        }
        add (bytes, &c, sizeof c);
      }
      for (const Cluster &cluster : unit.clusters)
        for (int d = 0; d < dim / 2; d++)
          bytes.push_back (
              (uint8_t) ((cluster.code[d] + 8) | (cluster.code[d + dim / 2] + 8) << 4));
      bytes.insert (bytes.end (), items.begin (), items.end ());
      records.emplace_back (new Array<uint8_t> (bytes));
      add (addresses, &records.back ()->data, sizeof (void *));
    }
    for (const Unit &unit : units) {
      add (addresses, &first, sizeof first);
      first += (uint32_t) unit.clusters.size ();
    }
    add (addresses, &first, sizeof first);
    list.reset (new Array<uint8_t> (addresses));
  }
};

/* The rows of the best clusters, ascending. */
static std::vector<int>
reference (const Chunks &index, const std::vector<const float *> &queries, double scale, int budget)
{
  struct Found {
    double score;
    int place;
    const Cluster *cluster;
  };
  std::vector<Found> found;
  std::vector<double> most (queries.size (), -INFINITY);
  std::vector<int> rows;
  auto product = [&] (const float *q, const std::vector<int> &code, double step) {
    double sum = 0;

    for (int d = 0; d < index.dim; d++)
      sum += q[d] * step * code[(size_t) d];
    return sum;
  };
  auto length = [&] (const float *q) {
    double sum = 0;

    for (int d = 0; d < index.dim; d++)
      sum += (double) q[d] * q[d];
    return sqrt (sum);
  };

  for (const Unit &unit : index.units)
    for (size_t q = 0; q < queries.size (); q++)
      most[q] = std::max (most[q], scale * (product (queries[q], unit.code, unit.scale) +
                                               length (queries[q]) * unit.radius));
  for (const Unit &unit : index.units)
    for (const Cluster &cluster : unit.clusters) {
      double score = 0;

      for (size_t q = 0; q < queries.size (); q++) {
        double bound = scale * (product (queries[q], unit.base, unit.base_scale) +
                                   product (queries[q], cluster.code, cluster.scale) +
                                   length (queries[q]) * cluster.radius);

        score += exp (std::min (bound - most[q], 80.0));
      }
      found.push_back (Found{ score >= 0 ? score : 0, (int) found.size (), &cluster });
    }
  std::sort (found.begin (), found.end (), [] (const Found &a, const Found &b) {
    return a.score != b.score ? a.score > b.score : a.place < b.place;
  });
  for (const Found &f : found)
    for (const Item &item : f.cluster->items)
      for (int r = 0; r < item.n_rows && (int) rows.size () < budget; r++)
        rows.push_back (item.first + r);
  std::sort (rows.begin (), rows.end ());
  return rows;
}

struct Case {
  const char *name;
  int dim, heads, kv_heads, n_tokens, block_tokens, first, index_end, sinks, budget, units,
      most_rows, special; /* 1: all queries are 0; 2: one is not a number */
};

static const Case cases[] = {
  { "default", 64, 6, 2, 1, 1, 3000, 2930, 16, 256, 12, 16, 0 },
  { "many queries a head", 128, 8, 1, 1, 1, 2500, 2430, 16, 300, 8, 16, 0 },
  { "80 dims", 80, 4, 2, 1, 1, 1500, 1400, 16, 200, 5, 16, 0 },
  { "96 dims", 96, 3, 1, 1, 1, 1200, 1130, 16, 150, 6, 12, 0 },
  { "256 dims", 256, 4, 1, 1, 1, 1400, 1300, 4, 200, 6, 16, 0 },
  { "long items", 64, 4, 2, 1, 1, 2000, 1900, 16, 200, 4, 64, 0 },
  { "single rows", 64, 4, 2, 1, 1, 700, 600, 16, 200, 7, 1, 0 },
  { "one unit", 64, 4, 2, 1, 1, 700, 600, 16, 200, 1, 16, 0 },
  { "all units", 64, 4, 1, 1, 1, 6000, 5930, 16, 512, 64, 2, 0 },
  { "no index yet", 64, 4, 2, 1, 1, 90, 0, 16, 256, 4, 16, 0 },
  { "exactly the budget", 64, 4, 2, 1, 1, 300, 236, 16, 300, 4, 16, 0 },
  { "one more than the budget", 64, 4, 2, 1, 1, 301, 237, 16, 300, 4, 16, 0 },
  { "no budget for the index", 64, 4, 2, 1, 1, 600, 500, 16, 100, 4, 16, 0 },
  { "a budget of one row", 64, 4, 2, 1, 1, 600, 530, 16, 87, 4, 16, 0 },
  { "all alike", 64, 4, 2, 1, 1, 1500, 1400, 16, 200, 5, 16, 1 },
  { "not a number", 64, 4, 2, 1, 1, 1500, 1400, 16, 200, 5, 16, 2 },
  { "blocks of tokens", 64, 6, 2, 21, 8, 1200, 1130, 16, 256, 5, 16, 0 },
  { "more than fits into shared memory", 64, 4, 1, 1, 1, 60000, 59900, 16, 1024, 30, 2, 0 },
};

static void
test_search (const Case &c)
{
  Random random ((uint64_t) c.first + (uint64_t) c.dim);
  int group = c.heads / c.kv_heads, n_blocks = (c.n_tokens + c.block_tokens - 1) / c.block_tokens;
  size_t n_jobs = (size_t) (c.kv_heads * n_blocks), queries = (size_t) (c.block_tokens * group);
  double scale = 1 / sqrt (c.dim);
  std::vector<std::unique_ptr<Chunks> > indexes;
  std::vector<LycheeCudaHead> heads;
  size_t nodes = 1, clusters = 1;

  for (int i = 0; i < c.kv_heads; i++) {
    int begin = c.index_end > 0 ? c.sinks : 0;

    indexes.emplace_back (new Chunks (random, c.dim, begin, c.index_end, c.units, c.most_rows));
    heads.push_back (LycheeCudaHead{
        reinterpret_cast<const LycheeCudaNode *const *> (indexes.back ()->list->data),
        (int) indexes.back ()->units.size (), begin, c.index_end, 0 });
    nodes = std::max (nodes, indexes.back ()->units.size ());
    clusters = std::max (clusters, (size_t) indexes.back ()->n_clusters);
  }
  std::vector<float> q =
      random.normals ((size_t) c.n_tokens * c.heads * c.dim, c.special == 1 ? 0 : 3);
  if (c.special == 2)
    q[0] = NAN;
  Array<float> q_array (q), z (n_jobs * queries * nodes), rank (n_jobs * queries * clusters),
      density (n_jobs * std::max (nodes, clusters));
  Array<LycheeCudaHead> head_array (heads);
  Array<LycheeCudaStep> step (std::vector<LycheeCudaStep>{ { c.first, c.n_tokens, 0, 0, 0 } });
  Array<LycheeCudaSelection> selection (n_jobs);
  Array<int> selected (n_jobs * (size_t) c.budget), node (n_jobs * clusters), count (node.n),
      read (node.n);
  Array<unsigned long long> counters (std::vector<unsigned long long>{ 0, 0, 0 });
  LycheeCudaSearch params = {};
  unsigned long long scored = 0, n_read = 0;

  params.head_dim = c.dim;
  params.n_heads = c.heads;
  params.n_kv_heads = c.kv_heads;
  params.n_tokens = c.n_tokens;
  params.block_tokens = c.block_tokens;
  params.scale = (float) scale;
  params.q = q_array.data;
  params.step = step.data;
  params.heads = head_array.data;
  params.sinks = c.sinks;
  params.budget = c.budget;
  params.max_nodes = (int) nodes;
  params.max_leaves = (int) clusters;
  params.selection = selection.data;
  params.selected = selected.data;
  params.z = z.data;
  params.leaf_rank = rank.data;
  params.leaf_node = node.data;
  params.leaf_count = count.data;
  params.leaf_read = read.data;
  params.density = density.data;
  params.counters = counters.data;
  CHECK (lychee_cuda_search_chunks (&params, nullptr) == 0);
  std::vector<LycheeCudaSelection> got = selection.get ();
  std::vector<int> got_rows = selected.get ();
  std::vector<unsigned long long> counted = counters.get ();
  for (size_t job = 0; job < n_jobs; job++) {
    int head = (int) job / n_blocks, first_token = (int) job % n_blocks * c.block_tokens;
    const Chunks &index = *indexes[(size_t) head];
    int n_tokens = std::min (c.block_tokens, c.n_tokens - first_token);
    int sinks = std::min (c.sinks, c.first), recent = std::max (c.index_end, sinks);
    int certain = sinks + c.first - recent, budget = std::max (0, c.budget - certain);
    std::vector<const float *> own;
    std::vector<int> wanted;
    bool all = index.end - index.begin <= budget;

    for (int r = 0; r < n_tokens * group; r++)
      own.push_back (
          &q[((size_t) (first_token + r / group) * c.heads + head * group + r % group) * c.dim]);
    wanted = reference (index, own, scale, budget);
    scored += all ? 0 : index.units.size () + (size_t) index.n_clusters;
    n_read += (unsigned long long) (certain + n_tokens + (int) wanted.size ()) * n_tokens;
    CHECK (got[job].n_rows == (int) wanted.size ());
    CHECK (got[job].recent == recent && got[job].n_sinks == sinks && got[job].n_rest == 0);
    std::vector<int> rows (got_rows.begin () + (long) job * c.budget,
        got_rows.begin () + (long) job * c.budget + got[job].n_rows);
    if (rows != wanted)
      test::fail ("job %zu: other rows are read", job);
  }
  CHECK (counted[0] == scored && counted[1] == n_read && counted[2] == 0);
  test::result ("%s (%llu nodes scored)", c.name, counted[0]);
}

int
main ()
{
  LycheeCudaSearch refused = {};

  for (const Case &c : cases)
    test_search (c);
  CHECK (lychee_cuda_search_chunks (&refused, nullptr) == 0);
  refused.n_tokens = refused.block_tokens = refused.n_heads = refused.n_kv_heads = 1;
  refused.head_dim = 72;
  CHECK (lychee_cuda_search_chunks (&refused, nullptr) != 0);
  refused.head_dim = 64;
  refused.rest = 1;
  CHECK (lychee_cuda_search_chunks (&refused, nullptr) != 0);
  test::result ("what is refused");
  return test::finish ();
}
