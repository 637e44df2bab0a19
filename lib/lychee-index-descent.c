/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Where in the tree of an index with granularity token a key belongs. */
#pragma GCC optimize("O3", "no-trapping-math") /* comparisons in vectors */
#include "lychee-index-private.h"

#include <math.h>
#include <string.h>

#define DESCENT_BEAM 2 /* branches that a descent keeps */

/* Keeps the @n nearest of the places seen. */
static void
keep_place (LycheePlace *places, guint *n, guint most, const LycheePlace *place)
{
  guint i = *n;

  if (*n < most)
    (*n)++;
  else if (place->nearness <= places[--i].nearness)
    return;
  for (; i > 0 && places[i - 1].nearness < place->nearness; i--)
    places[i] = places[i - 1];
  places[i] = *place;
}

void
lychee_tree_descend (const LycheeIndex *index, const float *x, guint n, LycheePlace *found)
{
  guint dim = index->params.head_dim;
  LycheePlace held[LYCHEE_APPEND_BATCH][DESCENT_BEAM], next[LYCHEE_APPEND_BATCH][DESCENT_BEAM];
  guint n_held[LYCHEE_APPEND_BATCH], n_next[LYCHEE_APPEND_BATCH];
  guint most = MAX (LYCHEE_BRANCH_MAX, index->root->n);
  g_autofree float *near = g_new (float, (gsize) n *most);
  g_autofree float *gathered = g_new (float, (gsize) n *dim);
  guint token[LYCHEE_APPEND_BATCH];

  for (guint i = 0; i < n; i++) {
    held[i][0] = (LycheePlace){ .branch = index->root };
    n_held[i] = 1;
  }
  for (guint level = index->root->level; level > 0; level--) {
    guint keep = level == 1 ? 1 : DESCENT_BEAM;

    memset (n_next, 0, sizeof n_next);
    for (guint i = 0; i < n; i++)
      for (guint k = 0; k < n_held[i]; k++) {
        LycheeBranch *branch = held[i][k].branch;
        LycheeQueries queries = { .head_dim = dim, .scale = 1, .q = gathered };

        if (!branch) /* done with those of a token before */
          continue;
        /* All tokens that are to look into this branch, at once. */
        for (guint j = i; j < n; j++)
          for (guint l = 0; l < n_held[j]; l++)
            if (held[j][l].branch == branch) {
              memcpy (gathered + (gsize) queries.n_queries * dim, x + (gsize) j * dim,
                  dim * sizeof *gathered);
              token[queries.n_queries++] = j;
              held[j][l].branch = NULL;
            }
        index->kernels->score_leaves (
            &queries, branch->code, branch->scale, branch->minus_half, branch->n, near, most);
        for (guint q = 0; q < queries.n_queries; q++) {
          float *row = near + (gsize) q * most;

          for (guint b = 0; b < MIN (keep, branch->n); b++) {
            guint c = lychee_find_largest (row, branch->n);
            LycheePlace place = { branch, c, row[c] };

            keep_place (next[token[q]], &n_next[token[q]], keep, &place);
            row[c] = -INFINITY;
          }
        }
      }
    for (guint i = 0; i < n; i++) {
      n_held[i] = n_next[i];
      for (guint k = 0; k < n_next[i]; k++) {
        held[i][k] = next[i][k];
        if (level > 1)
          held[i][k].branch = next[i][k].branch->child[next[i][k].child];
      }
    }
  }
  for (guint i = 0; i < n; i++)
    found[i] = held[i][0];
}
