/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* This project's own: LycheeIndex as a session uses it, fed as tokens leave the window. */

#include "lychee-index-private.h"
#include "policies.h"

/* As in lychee-attention.c: how many tokens are indexed at a time, and of an item where the text
 * has no chunk. */
#define UPKEEP_STEP 16
#define PLAIN_ITEM 12

typedef struct {
  LycheeGranularity granularity;
  gboolean rest;
} IndexParams;

typedef struct {
  PolicySpec spec;
  const IndexParams *params;
  LycheeIndex *index;
  LycheeSelection *selection;
  LycheeIndexQuery query; /* the last one */
  guint n_seen;           /* queries that the index was shown */
} IndexState;

static gpointer
index_open (const PolicySpec *spec, gconstpointer params)
{
  IndexState *state = g_new0 (IndexState, 1);
  LycheeIndexParams index_params = { 0 };

  state->spec = *spec;
  state->params = params;
  index_params.granularity = state->params->granularity;
  index_params.head_dim = spec->head_dim;
  index_params.scale = spec->scale;
  index_params.seed = spec->seed;
  state->index = lychee_index_new (&index_params);
  state->selection = lychee_selection_new ();
  return state;
}

static gpointer
index_copy (gconstpointer from)
{
  IndexState *state = g_memdup2 (from, sizeof *state);

  state->index = lychee_index_copy (state->index);
  state->selection = lychee_selection_new ();
  return state;
}

static void
index_close (gpointer data)
{
  IndexState *state = data;

  lychee_index_free (state->index);
  lychee_selection_free (state->selection);
  g_free (state);
}

/* Where the item ends that begins at @row. */
static guint
item_end (const IndexState *state, guint row)
{
  guint low = 0, high = state->spec.n_item_ends;

  if (state->params->granularity == LYCHEE_GRANULARITY_TOKEN)
    return row + UPKEEP_STEP;
  while (low < high) {
    guint middle = (low + high) / 2;

    if (state->spec.item_ends[middle] > row)
      high = middle;
    else
      low = middle + 1;
  }
  return low < state->spec.n_item_ends ? state->spec.item_ends[low] : row + PLAIN_ITEM;
}

static guint
index_next (const IndexState *state)
{
  return MAX (lychee_index_get_end (state->index), state->spec.sinks);
}

/* Shows the index those queries that were asked before row @end. */
static void
observe (IndexState *state, guint end)
{
  const PolicyQueriesSeen *seen = state->spec.seen;

  for (; seen && state->n_seen < seen->rows->len; state->n_seen++) {
    guint row = g_array_index (seen->rows, guint, state->n_seen);

    if (row >= end)
      break;
    lychee_index_observe (state->index, row,
        &g_array_index (seen->q, float, (gsize) state->n_seen * state->spec.head_dim));
  }
}

static void
append (IndexState *state, const LycheeRows *rows, guint end)
{
  g_autoptr (GError) error = NULL;
  guint first = index_next (state);

  if (!lychee_index_append (state->index, rows, first, end - first, &error))
    g_error ("%s", error->message);
}

static void
index_feed (gpointer data, const LycheeRows *rows, guint n_tokens)
{
  IndexState *state = data;

  for (;;) {
    guint end = item_end (state, index_next (state));

    if (end + state->spec.window > n_tokens)
      break;
    observe (state, end + state->spec.window);
    append (state, rows, end);
  }
}

static void
index_build (gpointer data, const LycheeRows *rows, guint n_tokens)
{
  IndexState *state = data;

  if (n_tokens <= index_next (state) + state->spec.window)
    return;
  append (state, rows, n_tokens - state->spec.window);
  observe (state, n_tokens);
  lychee_tree_rebuild (state->index, rows);
}

static gsize
index_get_bytes (gconstpointer data)
{
  const IndexState *state = data;

  return lychee_index_get_bytes (state->index);
}

static void
index_select (gpointer data, const PolicyQuery *query, guint begin, guint end, guint budget,
    PolicyChoice *choice)
{
  IndexState *state = data;

  /* Those that are not in the index yet are few. */
  for (guint row = end; row > index_next (state) && choice->n_rows < budget; row--)
    choice->rows[choice->n_rows++] = row - 1;
  state->query = (LycheeIndexQuery){
    .n_queries = query->queries->n_queries,
    .q = query->queries->q,
    .budget = budget - choice->n_rows,
    .rest = state->params->rest,
    .logits = TRUE,
  };
  lychee_index_search (state->index, query->rows, &state->query, state->selection);
  for (guint i = 0; i < state->selection->n_rows; i++)
    choice->rows[choice->n_rows++] = state->selection->rows[i];
  choice->nodes_scored = state->selection->nodes_scored;
}

static void
index_rest (gpointer data, const PolicyQuery *query, LycheeSoftmax *softmax)
{
  IndexState *state = data;

  lychee_index_attend_rest (state->index, &state->query, state->selection, softmax);
}

static const IndexParams chunk_params = { LYCHEE_GRANULARITY_CHUNK, FALSE };
static const IndexParams token_params = { LYCHEE_GRANULARITY_TOKEN, TRUE };
static const IndexParams token_drop_params = { LYCHEE_GRANULARITY_TOKEN, FALSE };

#define INDEX_FUNCTIONS                                                                            \
  .open = index_open, .copy = index_copy, .close = index_close, .prefill = index_feed,             \
  .feed = index_feed, .get_bytes = index_get_bytes, .select = index_select

const Policy policy_chunk = {
  .name = "lycheecluster",
  .summary = "LycheeCluster as published: this index with granularity chunk",
  .params = &chunk_params,
  INDEX_FUNCTIONS,
};

const Policy policy_token = {
  .name = "token",
  .summary = "this index with granularity token, the rest estimated: the default",
  .params = &token_params,
  .build = index_build,
  .rest = index_rest,
  INDEX_FUNCTIONS,
};

const Policy policy_token_drop = {
  .name = "token-drop",
  .summary = "the same, the rest dropped instead",
  .params = &token_drop_params,
  .build = index_build,
  INDEX_FUNCTIONS,
};
