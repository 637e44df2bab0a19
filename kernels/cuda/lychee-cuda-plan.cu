/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What a pass is like: how attention is split, and what there has to be room for. */

#include "lychee-cuda-worker.h"

#include <math.h>
#include <string.h>

#define SPLIT_KEYS 256 /* of dense attention, at least */
#define GATHER_KEYS 64 /* of sparse attention */
#define REST_NODES 64  /* of a split of the rest */
#define MAX_REST_SPLITS 16
#define FEW_QUERIES 32 /* of a KV head, for which lychee_cuda_attend is better */

bool
lychee_cuda_has_local (const LycheeCudaModel *m)
{
  for (int i = 0; i < m->hparams.n_layers; i++)
    if (m->layers[i].local)
      return true;
  return false;
}

/* Shapes */

static int
clamp (int x, int least, int most)
{
  return x < least ? least : x > most ? most : x;
}

int
lychee_cuda_divide_up (int x, int y)
{
  return (x + y - 1) / y;
}

/* At least @n, in steps of an eighth: what is captured for it stays right for a while. */
int
lychee_cuda_round_up (int n)
{
  int step = 64;

  while (step * 8 < n)
    step *= 2;
  return lychee_cuda_divide_up (n, step) * step;
}

/* Splits that occupy the device, if there are keys enough for them, and in one go: a few blocks
 * that come after the others would take as long as all of these. */
static int
plan_splits (const LycheeCudaWorker *w, int n_keys, int least, int n_blocks)
{
  const LycheeCudaDevice *device = w->model->device;
  const LycheeCudaHparams &h = w->model->hparams;
  int resident = lychee_cuda_attend_blocks (h.head_dim, device->shared);
  int most = device->n_processors * resident / (h.n_kv_heads * n_blocks);

  return clamp (lychee_cuda_divide_up (n_keys, least), 1, most < 1 ? 1 : most);
}

/* Whether lychee_cuda_attend () takes them, or has to. */
bool
lychee_cuda_has_few_queries (const LycheeCudaWorker *w, LycheeCudaType type, int n_tokens)
{
  const LycheeCudaHparams &h = w->model->hparams;

  return n_tokens * (h.n_heads / h.n_kv_heads) <= FEW_QUERIES ||
         lychee_cuda_attend_chunk_shared (type, h.head_dim) > w->model->device->block_shared;
}

LycheeCudaPlan
lychee_cuda_make_plan (LycheeCudaWorker *w, const LycheeCudaPass *pass)
{
  const LycheeCudaHparams &h = w->model->hparams;
  int group = h.n_heads / h.n_kv_heads, n = pass->n_tokens, n_keys = 0;
  bool separate = pass->n_sequences > 1, few = lychee_cuda_has_few_queries (w, pass->type, n);
  LycheeCudaPlan plan;

  for (int i = 0; i < pass->n_sequences; i++) {
    const LycheeCudaSequence &s = pass->sequences[i];
    int own = s.first - s.skip + (separate ? 1 : n);

    n_keys = own > n_keys ? own : n_keys;
  }
  auto count_blocks = [=] (bool of_few) {
    return separate ? n * lychee_cuda_divide_up (group, 8)
                    : lychee_cuda_divide_up (n * group, of_few ? 8 : 64);
  };
  memset (&plan, 0, sizeof plan); /* plans are compared by their bytes */
  plan.type = pass->type;
  plan.n_tokens = n;
  plan.n_sequences = pass->n_sequences;
  plan.output = pass->output;
  plan.sparse = pass->sparse;
  plan.n_pages = w->n_pages;
  plan.n_history = w->n_history;
  if (pass->weigh && w->weights.n_rows > 0) {
    plan.weigh = 1;
    plan.weigh_first = w->weights.first;
    plan.weigh_rows = w->weights.n_rows;
    plan.weigh_bins = w->weights.n_bins;
    plan.weigh_begin = w->weights.layer_begin;
    plan.weigh_end = w->weights.layer_end;
  }
  plan.range = pass->range;
  plan.window = pass->window;
  plan.n_fresh = pass->n_fresh;
  plan.n_splits = plan_splits (w, lychee_cuda_round_up (n_keys), SPLIT_KEYS,
      count_blocks (few || lychee_cuda_is_packed (plan)));
  if (lychee_cuda_has_local (w->model))
    plan.n_window_splits = plan_splits (w, h.window + n, SPLIT_KEYS, count_blocks (few));
  if (pass->sparse) {
    double open = pass->beam > 0
                      ? (double) pass->beam * pass->budget
                      : LYCHEE_OPEN_ROWS (h.head_dim) + (double) LYCHEE_OPEN_BEAM * pass->budget;

    plan.sinks = pass->sinks;
    plan.budget = pass->budget;
    plan.rest = pass->rest && !pass->chunks;
    plan.chunks = pass->chunks;
    plan.beam = pass->beam;
    plan.block_tokens = n == 1 || separate
                            ? 1
                            : lychee_cuda_search_block_tokens (h.head_dim, h.n_heads, h.n_kv_heads);
    if (plan.block_tokens > n)
      plan.block_tokens = n;
    plan.max_nodes = lychee_cuda_round_up (pass->max_nodes + 1);
    /* A leaf has a row at least, and the last node that is opened may hold more than was asked. */
    plan.max_leaves =
        lychee_cuda_round_up (pass->chunks ? pass->max_clusters + 1
                                           : (int) fmin (open, n_keys) + pass->max_node_rows + 1);
    plan.n_sparse_splits = plan_splits (w, plan.budget + (separate ? 1 : n), GATHER_KEYS,
        lychee_cuda_divide_up (n, plan.block_tokens) *
            lychee_cuda_divide_up (plan.block_tokens * group, 8));
    plan.n_rest_splits =
        plan.rest ? clamp (lychee_cuda_divide_up (plan.max_nodes, REST_NODES), 1, MAX_REST_SPLITS)
                  : 0;
  }
  return plan;
}
