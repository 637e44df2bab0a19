/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* This project's own: LycheeIndex as a session uses it, fed as tokens leave the window. */

#include "lychee-index-private.h"
#include "policies.h"

#include <string.h>

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

/* The tree as lists: of coarse nodes, of leaves and of rows, each in the order of those above. */
typedef struct {
  LycheeOpenNode *open;
  GArray *key, *value; /* of float [coarse node][head_dim] */
  GArray *n_leaves;    /* of guint32 */
  GArray *leaf_key;    /* of float [leaf][head_dim] */
  GArray *leaf_spread; /* of float */
  GArray *leaf_count;  /* of guint32 */
  GArray *row;         /* of guint32 */
} TreeLists;

static void
list_tree (TreeLists *lists, const LycheeIndex *index, const LycheeBranch *branch)
{
  guint dim = index->params.head_dim;
  LycheeOpenNode *open = lists->open;

  for (guint i = 0; i < branch->n; i++) {
    const LycheeNode *node = branch->child[i];
    const gint8 *code = branch->code + (gsize) i * dim;
    float mean[256];

    if (branch->level > 1) {
      list_tree (lists, index, branch->child[i]);
      continue;
    }
    lychee_code_decode (code, branch->scale[i], dim, mean);
    g_array_append_vals (lists->key, mean, dim);
    lychee_code_decode (branch->value_code + (gsize) i * dim, branch->value_scale[i], dim, mean);
    g_array_append_vals (lists->value, mean, dim);
    lychee_open_node_read (open, index, node, code, branch->scale[i]);
    g_array_append_val (lists->n_leaves, open->n_leaves);
    g_array_append_vals (lists->leaf_key, open->mean, open->n_leaves * dim);
    g_array_append_vals (lists->leaf_count, open->count, open->n_leaves);
    for (guint leaf = 0; leaf < open->n_leaves; leaf++) {
      g_array_append_val (lists->leaf_spread, lychee_spreads[open->spread[leaf]]);
      g_array_append_vals (lists->row, open->id + (gsize) leaf * open->stride, open->count[leaf]);
    }
  }
}

/* u32 n_coarse, n_leaves, n_rows; then what TreeLists has, in its order. */
static void
token_write (gconstpointer data, GByteArray *to)
{
  const LycheeIndex *index = ((const IndexState *) data)->index;
  const LycheeIndexParams *params = &index->params;
  TreeLists lists = { lychee_open_node_new (
      params->head_dim, params->leaf_capacity, params->coarse_capacity + LYCHEE_APPEND_BATCH) };
  GArray **parts[] = { &lists.key, &lists.value, &lists.n_leaves, &lists.leaf_key,
    &lists.leaf_spread, &lists.leaf_count, &lists.row };
  guint32 header[3];

  for (guint i = 0; i < G_N_ELEMENTS (parts); i++)
    *parts[i] = g_array_new (FALSE, FALSE, sizeof (guint32));
  if (index->root)
    list_tree (&lists, index, index->root);
  header[0] = lists.n_leaves->len;
  header[1] = lists.leaf_count->len;
  header[2] = lists.row->len;
  g_byte_array_append (to, (const guint8 *) header, sizeof header);
  for (guint i = 0; i < G_N_ELEMENTS (parts); i++) {
    const GArray *part = *parts[i];

    g_byte_array_append (to, (const guint8 *) part->data, part->len * sizeof (guint32));
    g_array_unref (*parts[i]);
  }
  lychee_open_node_free (lists.open);
}

typedef struct {
  GByteArray *to;
  guint head_dim, n;
} ItemWriter;

static void
write_item (const LycheeChunksItem *item, gpointer data)
{
  ItemWriter *writer = data;
  const guint32 place[4] = { item->unit, item->cluster, item->first, item->n };
  const float radius[2] = { item->radius, item->unit_radius };

  g_byte_array_append (writer->to, (const guint8 *) place, sizeof place);
  g_byte_array_append (writer->to, (const guint8 *) radius, sizeof radius);
  g_byte_array_append (
      writer->to, (const guint8 *) item->center, writer->head_dim * sizeof *item->center);
  g_byte_array_append (
      writer->to, (const guint8 *) item->unit_center, writer->head_dim * sizeof *item->center);
  writer->n++;
}

/* u32 n_items; of each u32 unit, cluster, first row, rows; f32 radius of the cluster, of the unit;
 * f32 center[head_dim] of the cluster, of the unit. */
static void
chunk_write (gconstpointer data, GByteArray *to)
{
  const LycheeIndex *index = ((const IndexState *) data)->index;
  ItemWriter writer = { to, index->params.head_dim, 0 };
  guint at = to->len;

  g_byte_array_append (to, (const guint8 *) &writer.n, sizeof writer.n);
  lychee_chunks_foreach (index, write_item, &writer);
  memcpy (to->data + at, &writer.n, sizeof writer.n);
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
  .write = chunk_write,
  INDEX_FUNCTIONS,
};

const Policy policy_token = {
  .name = "token",
  .summary = "this index with granularity token, the rest estimated: the default",
  .params = &token_params,
  .build = index_build,
  .write = token_write,
  .rest = index_rest,
  INDEX_FUNCTIONS,
};

const Policy policy_token_drop = {
  .name = "token-drop",
  .summary = "the same, the rest dropped instead",
  .params = &token_drop_params,
  .build = index_build,
  .write = token_write,
  INDEX_FUNCTIONS,
};
