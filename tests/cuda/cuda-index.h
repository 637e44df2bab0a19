/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <algorithm>

#include "cuda-test.h"
#include "lychee-cuda-kernels.h"

namespace test {

/* An index that is made up: nodes with leaves of rows @begin .. @end - 1, in any order. */
struct Index {
  struct Leaf {
    std::vector<int> ids;
    float scale, spread;
    std::vector<int> code; /* -8 .. 7 */
  };
  struct Node {
    float scale, value_scale;
    std::vector<int> code, value;
    std::vector<Leaf> leaves;
    int n_rows;
  };
  int dim, begin, end;
  std::vector<Node> nodes;
  std::vector<Array<uint8_t> *> records;
  Array<const LycheeCudaNode *> *list = nullptr;

  Index (Random &random, int dim_, int begin_, int end_, int node_rows, int leaf_rows)
      : dim (dim_), begin (begin_), end (end_)
  {
    std::vector<int> ids;
    std::vector<const LycheeCudaNode *> addresses;

    for (int i = begin; i < end; i++)
      ids.push_back (i);
    random.shuffle (ids);
    for (size_t at = 0; at < ids.size ();) {
      Node node;
      int n = std::min ((int) (ids.size () - at), 1 + random.below (node_rows));

      node.n_rows = n;
      node.scale = 0.02f * (float) (0.5 + random.uniform ());
      node.value_scale = 0.01f * (float) (0.5 + random.uniform ());
      for (int d = 0; d < dim; d++) {
        node.code.push_back (random.below (255) - 127);
        node.value.push_back (random.below (255) - 127);
      }
      while (n > 0) {
        Leaf leaf;
        int rows = std::min (n, 1 + random.below (leaf_rows));

        leaf.ids.assign (ids.begin () + (long) at, ids.begin () + (long) at + rows);
        leaf.scale = 0.1f * (float) random.uniform ();
        leaf.spread = 0.3f * (float) random.uniform ();
        for (int d = 0; d < dim; d++)
          leaf.code.push_back (random.below (15) - 7);
        at += (size_t) rows;
        n -= rows;
        node.leaves.push_back (leaf);
      }
      nodes.push_back (node);
    }
    for (const Node &node : nodes) {
      records.push_back (new Array<uint8_t> (pack (node)));
      addresses.push_back (reinterpret_cast<const LycheeCudaNode *> (records.back ()->data));
    }
    if (!addresses.empty ())
      list = new Array<const LycheeCudaNode *> (addresses);
  }
  ~Index ()
  {
    for (Array<uint8_t> *record : records)
      delete record;
    delete list;
  }
  std::vector<uint8_t>
  pack (const Node &node) const
  {
    std::vector<uint8_t> bytes;
    LycheeCudaNode head = { node.scale, logf ((float) node.n_rows), node.value_scale,
      (uint32_t) node.n_rows, (uint32_t) node.leaves.size (), {} };
    auto add = [&bytes] (const void *from, size_t size) {
      bytes.insert (bytes.end (), (const uint8_t *) from, (const uint8_t *) from + size);
    };
    uint16_t first = 0;

    add (&head, sizeof head);
    for (int x : node.code)
      bytes.push_back ((uint8_t) x);
    for (int x : node.value)
      bytes.push_back ((uint8_t) x);
    for (const Leaf &leaf : node.leaves) {
      LycheeCudaLeaf l = { leaf.scale, leaf.spread, (uint16_t) leaf.ids.size (), first };

      first = (uint16_t) (first + leaf.ids.size ());
      add (&l, sizeof l);
    }
    for (const Leaf &leaf : node.leaves)
      for (int d = 0; d < dim / 2; d++)
        bytes.push_back ((uint8_t) ((leaf.code[d] + 8) | (leaf.code[d + dim / 2] + 8) << 4));
    for (const Leaf &leaf : node.leaves)
      for (int id : leaf.ids)
        add (&id, sizeof id);
    return bytes;
  }
};

}
