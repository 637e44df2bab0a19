/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Where new rows go in an index, and the sums of the leaves that they go to, against float64. */

#include "cuda-index.h"
#include "cuda-rows.h"

using test::Array;
using test::Index;
using test::Random;

/* Keys and values for several indexes. */
struct Pages {
  int dim;
  test::Parts parts;

  Pages (Random &random, LycheeCudaType type, int dim_, int n_indexes, int n_rows)
      : dim (dim_), parts (type, dim_, 2 * n_indexes, n_rows)
  {
    parts.fill (random, 2 * n_indexes, n_rows);
    parts.upload ();
  }
  double
  key (int index, int row, int d)
  {
    return parts.get (2 * index, row, d);
  }
};

static double
node_nearness (Pages &pages, int index, int row, const Index::Node &node)
{
  double dot = 0, squares = 0;

  for (int d = 0; d < pages.dim; d++) {
    double c = (double) node.scale * node.code[d];

    dot += pages.key (index, row, d) * c;
    squares += c * c;
  }
  return dot - squares / 2;
}

static double
leaf_distance (Pages &pages, int index, int row, const Index::Node &node, int leaf)
{
  double sum = 0;

  for (int d = 0; d < pages.dim; d++) {
    double x = pages.key (index, row, d) - (double) node.scale * node.code[d] -
               (double) node.leaves[leaf].scale * node.leaves[leaf].code[d];

    sum += x * x;
  }
  return sum;
}

struct Case {
  int dim, n_held, n_rows, node_rows, leaf_rows;
};

static const Case cases[] = {
  { 64, 0, 3, 8, 4 },      /* nothing is there yet */
  { 64, 1, 1, 8, 4 },      /* one of each */
  { 64, 300, 16, 40, 9 },  /* as when a token is decoded */
  { 80, 200, 17, 30, 24 }, /* one row more than a block takes */
  { 96, 500, 33, 5, 2 },   /* many small nodes */
  { 128, 700, 64, 224, 36 },
  { 256, 270, 5, 100, 36 },
};

static void
check_sums (const Case &c, Pages &pages, const Index &index, int which,
    const std::vector<LycheeCudaPlace> &places, const std::vector<float> &sums)
{
  const LycheeCudaPlace *place = places.data () + (size_t) which * c.n_rows;

  for (int i = 0; i < c.n_rows; i++) {
    const float *got = sums.data () + ((size_t) which * c.n_rows + i) * (c.dim + 2);
    auto same = [&] (int j) {
      return place[j].node == place[i].node && place[j].leaf == place[i].leaf;
    };
    std::vector<int> rows;
    bool first = true;
    double squares = 0;

    for (int j = 0; j < i; j++)
      first = first && !same (j);
    if (!first || place[i].node < 0) {
      CHECK (isnan (got[0]) && isnan (got[c.dim + 1])); /* as it was */
      continue;
    }
    rows = index.nodes[place[i].node].leaves[place[i].leaf].ids;
    for (int j = i; j < c.n_rows; j++)
      if (same (j))
        rows.push_back (index.end + j);
    for (int d = 0; d < c.dim; d++) {
      double sum = 0, size = 0;

      for (int row : rows) {
        double x = pages.key (which, row, d);

        sum += x;
        size += fabs (x);
        squares += x * x;
      }
      CHECK (fabs (got[d] - sum) <= 1e-6 * (size + 1));
    }
    CHECK (fabs (got[c.dim] - squares) <= 1e-5 * squares);
    CHECK (got[c.dim + 1] == (float) rows.size ());
  }
}

static void
test_case (const Case &c, LycheeCudaType type)
{
  const int n_indexes = 3, begin = 16; /* the second one is of a layer without an index */
  Random random ((uint64_t) c.dim * 1000 + c.n_held);
  Index index (random, c.dim, begin, begin + c.n_held, c.node_rows, c.leaf_rows);
  Pages pages (random, type, c.dim, n_indexes, index.end + c.n_rows);
  int n_nodes = (int) index.nodes.size ();
  LycheeCudaHead head = { n_nodes ? index.list->data : nullptr, n_nodes, begin, index.end, 0 };
  Array<LycheeCudaHead> heads (std::vector<LycheeCudaHead>{ head, { nullptr, 0, 0, 0, 0 }, head });
  Array<LycheeCudaPlace> places ((size_t) n_indexes * c.n_rows);
  Array<float> sums (places.n * (c.dim + 2));
  LycheeCudaAssign params = { type, c.dim, n_indexes, c.n_rows, index.end, heads.data,
    pages.parts.table->data, places.data, sums.data };

  CHECK (lychee_cuda_assign (&params, nullptr) == 0);
  CHECK (lychee_cuda_leaf_sums (&params, nullptr) == 0);
  std::vector<LycheeCudaPlace> got = places.get ();
  for (int which = 0; which < n_indexes; which++)
    for (int i = 0; i < c.n_rows; i++) {
      LycheeCudaPlace place = got[(size_t) which * c.n_rows + i];

      if (which == 1 || n_nodes == 0) {
        CHECK (place.node == -1);
        continue;
      }
      CHECK (place.node >= 0 && place.node < n_nodes);
      if (place.node < 0 || place.node >= n_nodes)
        continue;
      const Index::Node &node = index.nodes[place.node];
      double own = node_nearness (pages, which, index.end + i, node);
      CHECK (place.leaf >= 0 && place.leaf < (int) node.leaves.size ());
      if (place.leaf < 0 || place.leaf >= (int) node.leaves.size ())
        continue;
      double distance = leaf_distance (pages, which, index.end + i, node, place.leaf);
      for (const Index::Node &other : index.nodes)
        CHECK (node_nearness (pages, which, index.end + i, other) <= own + 1e-4 * (1 + fabs (own)));
      for (int leaf = 0; leaf < (int) node.leaves.size (); leaf++)
        CHECK (leaf_distance (pages, which, index.end + i, node, leaf) >= distance * (1 - 1e-5));
    }
  for (int which = 0; which < n_indexes; which++)
    check_sums (c, pages, index, which, got, sums.get ());
  test::result (
      "%d rows into %d of %d dimensions, %s", c.n_rows, c.n_held, c.dim, test::name_type (type));
}

/* Of equal nodes and leaves the first is taken; a key that is not a number goes nowhere. */
static void
test_ties ()
{
  const int dim = 64, n = 4;
  Random random (5);
  Index index (random, dim, 0, 200, 1, 1); /* 200 nodes of a row */
  Pages pages (random, LYCHEE_CUDA_F16, dim, 1, 200 + n);
  std::vector<const LycheeCudaNode *> list;

  for (size_t i = 0; i < 200; i++) /* every node is there four times */
    list.push_back (reinterpret_cast<const LycheeCudaNode *> (index.records[i % 50]->data));
  std::vector<uint8_t> bytes = pages.parts.host[0];
  bytes[((200 + 2) * dim + 5) * 2 + 1] = 0x7e; /* NaN */
  pages.parts.pages[0]->put (bytes);
  Array<const LycheeCudaNode *> nodes (list);
  Array<LycheeCudaHead> heads (std::vector<LycheeCudaHead>{ { nodes.data, 200, 0, 200, 0 } });
  Array<LycheeCudaPlace> places (n);
  Array<float> sums ((size_t) n * (dim + 2));
  LycheeCudaAssign params = { LYCHEE_CUDA_F16, dim, 1, n, 200, heads.data, pages.parts.table->data,
    places.data, sums.data };

  CHECK (lychee_cuda_assign (&params, nullptr) == 0);
  CHECK (lychee_cuda_leaf_sums (&params, nullptr) == 0);
  std::vector<LycheeCudaPlace> got = places.get ();
  for (int i = 0; i < n; i++)
    CHECK (i == 2 ? got[i].node == -1 : got[i].node >= 0 && got[i].node < 50 && got[i].leaf == 0);
  CHECK (isnan (sums.get ()[2 * (dim + 2)]));
  test::result ("ties, and keys that are not numbers");
}

static void
test_refused ()
{
  LycheeCudaAssign params = {};

  CHECK (lychee_cuda_assign (&params, nullptr) == 0);
  params.n_indexes = 1;
  params.head_dim = 64;
  params.type = LYCHEE_CUDA_F16;
  params.n_rows = LYCHEE_CUDA_MAX_PLACED + 1;
  CHECK (lychee_cuda_assign (&params, nullptr) != 0);
  CHECK (lychee_cuda_leaf_sums (&params, nullptr) != 0);
  params.n_rows = 1;
  params.head_dim = 72;
  CHECK (lychee_cuda_assign (&params, nullptr) != 0);
  params.head_dim = 64;
  params.type = LYCHEE_CUDA_BF16;
  CHECK (lychee_cuda_assign (&params, nullptr) != 0);
  params.head_dim = 80;
  params.type = LYCHEE_CUDA_Q8_0;
  CHECK (lychee_cuda_assign (&params, nullptr) != 0);
  test::result ("what is refused");
}

int
main ()
{
  for (const Case &c : cases)
    for (LycheeCudaType type : { LYCHEE_CUDA_F16, LYCHEE_CUDA_Q8_0 })
      if (test::has_form (type, c.dim))
        test_case (c, type);
  test_ties ();
  test_refused ();
  return test::finish ();
}
