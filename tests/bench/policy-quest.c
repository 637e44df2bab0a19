/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Quest (Tang et al. 2024, arXiv 2406.10774): pages of 16 consecutive tokens, of each the least and
 * the largest value of every element of its keys; a page ranks by the largest q.k that a key inside
 * this box could have. */

#include "lychee-index-private.h"
#include "policies.h"

#include <string.h>

#define PAGE_TOKENS 16

typedef struct {
  PolicySpec spec;
  guint end;   /* rows that are in a page */
  GArray *box; /* of float [page][least, largest][head_dim] */
} Quest;

static gpointer
quest_open (const PolicySpec *spec, gconstpointer params)
{
  Quest *quest = g_new (Quest, 1);

  *quest = (Quest){ *spec, spec->sinks, g_array_new (FALSE, FALSE, sizeof (float)) };
  return quest;
}

static gpointer
quest_copy (gconstpointer state)
{
  Quest *quest = g_memdup2 (state, sizeof *quest);

  quest->box = g_array_copy (quest->box);
  return quest;
}

static void
quest_close (gpointer state)
{
  Quest *quest = state;

  g_array_unref (quest->box);
  g_free (quest);
}

/* Rows go into the open page when they leave the window. */
static void
quest_feed (gpointer state, const LycheeRows *rows, guint n_tokens)
{
  const LycheeCpuKernels *kernels = lychee_cpu_kernels_get ();
  Quest *quest = state;
  guint d = quest->spec.head_dim;

  for (; quest->end + quest->spec.window < n_tokens; quest->end++) {
    guint place = quest->end - quest->spec.sinks;
    gsize at = (gsize) place / PAGE_TOKENS * 2 * d;
    float key[256], *low, *high;

    kernels->f16_to_f32 (lychee_rows_key (rows, d, quest->end), key, d);
    if (place % PAGE_TOKENS == 0) {
      g_array_append_vals (quest->box, key, d);
      g_array_append_vals (quest->box, key, d);
    }
    low = &g_array_index (quest->box, float, at);
    high = low + d;
    for (guint i = 0; i < d; i++) {
      low[i] = MIN (low[i], key[i]);
      high[i] = MAX (high[i], key[i]);
    }
  }
}

static gsize
quest_get_bytes (gconstpointer state)
{
  const Quest *quest = state;

  return (gsize) quest->box->len * sizeof (guint16);
}

static void
quest_select (gpointer state, const PolicyQuery *query, guint begin, guint end, guint budget,
    PolicyChoice *choice)
{
  Quest *quest = state;
  const LycheeQueries *queries = query->queries;
  guint d = queries->head_dim, n_pages = quest->box->len / (2 * d);
  guint n_best = MIN (n_pages, budget / PAGE_TOKENS + 2); /* the open page may be among them */
  g_autofree float *z = g_new (float, (gsize) queries->n_queries *n_pages);
  g_autofree guint *sizes = g_new (guint, n_pages);
  g_autofree guint32 *order = g_new (guint32, n_best);

  for (guint page = 0; page < n_pages; page++) {
    const float *low = &g_array_index (quest->box, float, (gsize) page * 2 * d), *high = low + d;

    sizes[page] = MIN (PAGE_TOKENS, end - begin - page * PAGE_TOKENS);
    for (guint h = 0; h < queries->n_queries; h++) {
      const float *q = queries->q + (gsize) h * d;
      float bound = 0;

      for (guint i = 0; i < d; i++)
        bound += MAX (q[i] * low[i], q[i] * high[i]);
      z[(gsize) h * n_pages + page] = queries->scale * bound;
    }
  }
  policy_rank (z, queries->n_queries, n_pages, sizes, n_best, order);
  for (guint i = 0; i < n_best; i++)
    for (guint j = 0; j < sizes[order[i]] && choice->n_rows < budget; j++)
      choice->rows[choice->n_rows++] = begin + order[i] * PAGE_TOKENS + j;
  choice->nodes_scored = n_pages;
}

const Policy policy_quest = {
  .name = "quest",
  .summary = "Quest: pages of 16 tokens, ranked by their least and largest elements",
  .open = quest_open,
  .copy = quest_copy,
  .close = quest_close,
  .prefill = quest_feed,
  .feed = quest_feed,
  .get_bytes = quest_get_bytes,
  .select = quest_select,
};
