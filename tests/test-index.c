/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* LycheeIndex with granularity token, against a brute-force twin. */
#include "index-checks.h"
/* Sequences of appends, truncations, rebuilds, refreshes and copies */

typedef struct {
  Keys keys;
  guint dim, leaf, coarse;
} Sequence;

static void
test_sequence (gconstpointer data)
{
  const Sequence *sequence = data;
  g_autoptr (Store) store = store_new (sequence->dim, 7 + sequence->keys);
  g_autoptr (LycheeIndex) index = index_new (sequence->dim, sequence->leaf, sequence->coarse);
  g_autoptr (LycheeIndex) copy = NULL;
  g_autoptr (Store) copied = NULL;
  guint end = 16;

  for (guint step = 0; step < 150; step++) {
    guint op = g_rand_int_range (store->rand, 0, 20), n;

    if (op == 0) {
      n = g_rand_int_range (store->rand, 0, end + 1);
      n = op % 2 ? n : MAX (n, end - MIN (end, 200));
      lychee_index_truncate (index, &store->rows, n);
      end = lychee_index_get_end (index);
      if (end == 0)
        end = 16;
    } else if (op == 1) {
      lychee_tree_refresh (index, &store->rows);
      check_index (index, store, TRUE);
    } else if (op == 2 && lychee_index_get_end (index) > 0) {
      lychee_tree_rebuild (index, &store->rows);
      check_index (index, store, TRUE);
    } else {
      n = op < 5 ? g_rand_int_range (store->rand, 60, 400) : g_rand_int_range (store->rand, 1, 30);
      store_fill (store, end, n, sequence->keys);
      append (index, store, end, n);
      end += n;
      for (guint row = end - n; n < 30 && row < end; row++) {
        float q[256];

        for (guint d = 0; d < sequence->dim; d++)
          q[d] = (float) g_rand_double_range (store->rand, -9, 9);
        if (row % LYCHEE_INDEX_QUERY_STEP == 0)
          lychee_index_observe (index, row, q);
      }
    }
    if (step % 10 == 0)
      check_index (index, store, FALSE);
    if (step == 75) {
      copy = lychee_index_copy (index);
      copied = store_new (sequence->dim, 0);
      for (guint row = 0; row < store->n; row++)
        memcpy (store_row (copied, row), store_row (store, row), sequence->dim * 2);
      for (guint row = 0; row < store->n; row++)
        memcpy (store_row (copied, row) + copied->rows.value_offset,
            store_row (store, row) + store->rows.value_offset, sequence->dim * 2);
    }
  }
  check_index (index, store, FALSE);
  check_index (copy, copied, FALSE);
  /* The copy can grow on its own. */
  end = MAX (lychee_index_get_end (copy), 1);
  store_fill (copied, end, 40, sequence->keys);
  append (copy, copied, end, 40);
  check_index (copy, copied, FALSE);
  check_index (index, store, FALSE);
}

/* No operation takes more than a bounded time, counted in rows that 2-means reads. */
static void
test_bounded (gconstpointer data)
{
  Keys keys = GPOINTER_TO_UINT (data);
  guint coarse = 64, n = 6000, chunk = 12;
  g_autoptr (Store) store = store_new (16, 5);
  g_autoptr (LycheeIndex) index = index_new (16, 8, coarse);
  LycheeIndexStats stats;
  guint64 before = 0, most = 0;

  store_fill (store, 0, n, keys);
  for (guint i = 0; i < n; i += chunk) {
    append (index, store, i, chunk);
    lychee_index_get_stats (index, &stats);
    most = MAX (most, stats.rows_rebuilt - before);
    before = stats.rows_rebuilt;
  }
  check_index (index, store, FALSE);
  /* A token can at worst cause one coarse node to be rebuilt, which takes its depth in passes. */
  g_assert_cmpuint (most, <=, chunk * (coarse + chunk) * 12);
  g_assert_cmpuint (stats.rows_rebuilt / n, <=, 60);
  g_assert_cmpuint (stats.n_coarse, <=, n / (coarse / 8) + 1);
}

/* 2-means keeps all rows, and leaves no side with next to nothing. */
static void
test_split (gconstpointer data)
{
  Keys keys = GPOINTER_TO_UINT (data);
  g_autoptr (Store) store = store_new (16, 77);
  g_autoptr (LycheeIndex) index = index_new (16, 0, 0);
  LycheeSorter *sorter;

  store_fill (store, 0, 500, keys);
  /* the one that is apart */
  for (guint d = 0; d < 16; d++)
    store_row (store, 3)[d] = 0x7800;
  sorter = lychee_sorter_new (index, &store->rows, 500);
  for (guint n = 2; n <= 500; n += n < 20 ? 1 : 79)
    for (guint least = 2; least <= 16; least *= 2) {
      g_autofree guint8 *seen = g_new0 (guint8, 500);
      guint left;

      for (guint i = 0; i < n; i++)
        lychee_sorter_set (sorter, i, i);
      left = lychee_sorter_split (sorter, 0, n, least);
      g_assert_cmpuint (left, >=, MAX (1, n / least));
      g_assert_cmpuint (left, <=, n - MAX (1, n / least));
      for (guint i = 0; i < n; i++) {
        g_assert_cmpuint (sorter->id[i], <, n);
        g_assert_false (seen[sorter->id[i]]);
        seen[sorter->id[i]] = 1;
        g_assert_true (sorter->key[i] == lychee_rows_key (&store->rows, 16, sorter->id[i]));
        g_assert_true (i == 0 || i == left || sorter->id[i] > sorter->id[i - 1]);
      }
    }
  lychee_sorter_free (sorter);
}

/* Search */

static void
check_rows_once (const LycheeSelection *selection, const LycheeIndex *index)
{
  g_autofree guint8 *seen = g_new0 (guint8, index->end + 1);

  for (guint i = 0; i < selection->n_rows; i++) {
    g_assert_cmpuint (selection->rows[i], >=, index->begin);
    g_assert_cmpuint (selection->rows[i], <, index->end);
    g_assert_false (seen[selection->rows[i]]);
    seen[selection->rows[i]] = 1;
  }
}

static void
fill_queries (Store *store, guint n, float size, float *q)
{
  for (guint i = 0; i < n * store->dim; i++)
    q[i] = size * gaussian (store->rand);
}

/* A leaf or coarse node as the twin sees it. */
typedef struct {
  guint node, n, first, unread;
  double density, spread; /* the latter of leaves only */
  guint order;            /* the index's own, to break ties */
} TwinGroup;

typedef struct {
  const LycheeIndex *index;
  GArray *nodes, *leaves; /* TwinGroup */
  GArray *rows;           /* guint32 */
  GPtrArray *means;       /* float, of leaves */
  GPtrArray *node_means, *node_values;
} Twin;

static void
twin_add (Twin *twin, const LycheeBranch *branch)
{
  guint dim = twin->index->params.head_dim;

  for (guint i = 0; i < branch->n; i++) {
    const LycheeNode *node = branch->child[i];
    const guint8 *count, *ids;
    g_autofree gint8 *code = NULL;
    g_autofree float *scale = NULL;
    float *base, *value;
    TwinGroup group = { 0 };
    guint row = 0;

    if (branch->level > 1) {
      twin_add (twin, branch->child[i]);
      continue;
    }
    count = lychee_node_get_counts (node);
    ids = lychee_node_get_ids (node, dim);
    code = g_new (gint8, (gsize) node->n_leaves * dim);
    scale = g_new (float, node->n_leaves);
    base = g_new (float, dim);
    value = g_new (float, dim);
    lychee_code_decode (branch->code + (gsize) i * dim, branch->scale[i], dim, base);
    lychee_code_decode (branch->value_code + (gsize) i * dim, branch->value_scale[i], dim, value);
    g_ptr_array_add (twin->node_means, base);
    g_ptr_array_add (twin->node_values, value);
    lychee_code_unpack (lychee_node_get_codes (node), node->n_leaves, dim, code);
    twin->index->kernels->f16_to_f32 (lychee_node_get_scales (node), scale, node->n_leaves);
    group = (TwinGroup){ twin->nodes->len, node->n_rows, twin->leaves->len, node->n_rows, 0, 0,
      twin->nodes->len };
    g_array_append_val (twin->nodes, group);
    for (guint leaf = 0; leaf < node->n_leaves; leaf++) {
      float *mean = g_new (float, dim);

      for (guint d = 0; d < dim; d++)
        mean[d] = base[d] + scale[leaf] * code[leaf * dim + d];
      g_ptr_array_add (twin->means, mean);
      group = (TwinGroup){ twin->nodes->len - 1, count[leaf], twin->rows->len, count[leaf], 0,
        lychee_spreads[lychee_node_get_spreads (node)[leaf]], twin->leaves->len };
      g_array_append_val (twin->leaves, group);
      for (guint j = 0; j < count[leaf]; j++, row++) {
        guint32 id = lychee_node_id (ids, node->id_bytes, row);

        g_array_append_val (twin->rows, id);
      }
    }
  }
}

static double
dot (const float *x, const float *y, guint n)
{
  double sum = 0;

  for (guint i = 0; i < n; i++)
    sum += (double) x[i] * y[i];
  return sum;
}

static int
by_density (gconstpointer a, gconstpointer b)
{
  const TwinGroup *x = a, *y = b;

  if (x->density != y->density)
    return x->density > y->density ? -1 : 1;
  return x->order < y->order ? -1 : 1;
}

static double
twin_logit (const LycheeIndexParams *params, const float *q, const float *k)
{
  double z = params->scale * dot (q, k, params->head_dim);

  return params->cap > 0 ? params->cap * tanh (z / params->cap) : z;
}

/* The score of docs/architecture.md, with doubles and a sort. */
static void
twin_rank (const Twin *twin, const LycheeIndexQuery *query, GArray *groups, GPtrArray *means)
{
  guint dim = twin->index->params.head_dim;

  for (guint h = 0; h < query->n_queries; h++) {
    g_autofree double *z = g_new (double, groups->len);
    const float *q = query->q + (gsize) h * dim;
    double most = -INFINITY, sum = 0, length = sqrt (dot (q, q, dim));

    for (guint i = 0; i < groups->len; i++) {
      TwinGroup *group = &g_array_index (groups, TwinGroup, i);

      z[i] = twin_logit (&twin->index->params, q, means->pdata[group->order]) + log (group->n);
      if (query->rest)
        z[i] += twin->index->params.scale * LYCHEE_LEAF_SPREADS * length * group->spread;
      most = MAX (most, z[i]);
    }
    for (guint i = 0; i < groups->len; i++)
      sum += exp (z[i] - most);
    for (guint i = 0; i < groups->len; i++)
      g_array_index (groups, TwinGroup, i).density +=
          exp (z[i] - most) / sum / g_array_index (groups, TwinGroup, i).n;
  }
  g_array_sort (groups, by_density);
}

static void
twin_attend (const LycheeIndexQuery *query, const LycheeIndexParams *params, const float *k,
    const float *v, double log_n, double *logits, double (*out)[256], double *weight,
    gboolean count)
{
  for (guint h = 0; h < query->n_queries; h++) {
    double z = twin_logit (params, query->q + (gsize) h * params->head_dim, k) + log_n, w;

    if (count) {
      logits[h] = MAX (logits[h], z);
      continue;
    }
    w = exp (z - logits[h]);
    weight[h] += w;
    for (guint d = 0; d < params->head_dim; d++)
      out[h][d] += w * v[d];
  }
}

/* What attention gives with the index's selection, and what it should give: compared to 1e-4. */
static void
check_against_twin (LycheeIndex *index, Store *store, LycheeIndexQuery *query)
{
  guint dim = index->params.head_dim, held = 0, read = 0;
  g_autoptr (LycheeSelection) selection = lychee_selection_new ();
  g_autoptr (GArray) nodes = g_array_new (FALSE, FALSE, sizeof (TwinGroup));
  g_autoptr (GArray) leaves = g_array_new (FALSE, FALSE, sizeof (TwinGroup));
  g_autoptr (GArray) open = g_array_new (FALSE, FALSE, sizeof (TwinGroup));
  g_autoptr (GArray) rows = g_array_new (FALSE, FALSE, sizeof (guint32));
  g_autoptr (GPtrArray) means = g_ptr_array_new_with_free_func (g_free);
  g_autoptr (GPtrArray) node_means = g_ptr_array_new_with_free_func (g_free);
  g_autoptr (GPtrArray) node_values = g_ptr_array_new_with_free_func (g_free);
  Twin twin = { index, nodes, leaves, rows, means, node_means, node_values };
  g_autofree guint8 *opened = NULL, *chosen = g_new0 (guint8, index->end);
  g_autofree guint *left = NULL;
  g_autofree float *k = g_new (float, dim), *v = g_new (float, dim);
  double most[8], weight[8] = { 0 }, n_estimated = 0;
  double (*out)[256] = g_malloc0 (8 * sizeof *out);
  float m[8], l[8];
  g_autofree float *o = g_new (float, 8 * dim), *result = g_new (float, 8 * dim);
  g_autofree const guint16 **keys = NULL;
  LycheeSoftmax softmax = { m, l, o };
  LycheeQueries queries = { query->n_queries, dim, index->params.scale, query->q,
    index->params.cap };

  lychee_index_search (index, &store->rows, query, selection);
  check_rows_once (selection, index);
  g_assert_cmpuint (selection->n_rows, ==, MIN (query->budget, index->end - index->begin));
  for (guint i = 0; i < selection->n_rest && !query->logits; i++)
    n_estimated += exp (selection->rest_log_n[i]);
  if (!query->logits)
    g_assert_cmpfloat (fabs (n_estimated - selection->rows_estimated), <, 1e-3 * index->end);
  g_assert_cmpuint (selection->rows_estimated, ==,
      query->rest ? index->end - index->begin - selection->n_rows : 0);

  twin_add (&twin, index->root);
  opened = g_new0 (guint8, nodes->len);
  left = g_new (guint, leaves->len);
  twin_rank (&twin, query, nodes, node_means);
  for (guint i = 0; i < nodes->len && held < query->beam * query->budget; i++) {
    held += g_array_index (nodes, TwinGroup, i).n;
    opened[g_array_index (nodes, TwinGroup, i).node] = 1;
  }
  for (guint i = 0; i < leaves->len; i++) {
    left[i] = g_array_index (leaves, TwinGroup, i).n;
    if (opened[g_array_index (leaves, TwinGroup, i).node])
      g_array_append_val (open, g_array_index (leaves, TwinGroup, i));
  }
  twin_rank (&twin, query, open, means);
  for (guint i = 0; i < open->len && read < query->budget; i++) {
    TwinGroup *group = &g_array_index (open, TwinGroup, i);
    guint n = MIN (group->n, query->budget - read);

    left[group->order] -= n;
    for (guint j = 0; j < n; j++, read++)
      chosen[g_array_index (rows, guint32, group->first + j)] = 1;
  }
  for (guint i = 0; i < selection->n_rows; i++)
    g_assert_true (chosen[selection->rows[i]]);

  for (guint h = 0; h < query->n_queries; h++)
    most[h] = -INFINITY;
  for (guint count = 2; count-- > 0;) {
    for (guint row = index->begin; row < index->end; row++) {
      if (!chosen[row])
        continue;
      store_read (store, row, FALSE, k);
      store_read (store, row, TRUE, v);
      twin_attend (query, &index->params, k, v, 0, most, out, weight, count);
    }
    for (guint node = 0; node < node_means->len && query->rest; node++) {
      guint n = 0;

      memset (k, 0, dim * sizeof *k);
      for (guint i = 0; i < leaves->len; i++) {
        const float *mean = means->pdata[i];

        if (g_array_index (leaves, TwinGroup, i).node != node || left[i] == 0)
          continue;
        n += left[i];
        for (guint d = 0; d < dim; d++)
          k[d] += left[i] * mean[d];
        if (query->logits && opened[node])
          twin_attend (query, &index->params, mean, node_values->pdata[node], log (left[i]), most,
              out, weight, count);
      }
      if (n == 0 || (query->logits && opened[node]))
        continue;
      for (guint d = 0; d < dim; d++)
        k[d] = opened[node] ? k[d] / n : ((float *) node_means->pdata[node])[d];
      twin_attend (
          query, &index->params, k, node_values->pdata[node], log (n), most, out, weight, count);
    }
  }

  keys = g_new (const guint16 *, selection->n_rows + 1);
  for (guint i = 0; i < selection->n_rows; i++)
    keys[i] = lychee_rows_key (&store->rows, dim, selection->rows[i]);
  lychee_softmax_init (&softmax, query->n_queries, dim);
  index->kernels->attend_gather (
      &queries, keys, store->rows.value_offset, selection->n_rows, &softmax);
  if (query->logits)
    lychee_index_attend_rest (index, query, selection, &softmax);
  else
    index->kernels->attend_groups (&queries, selection->rest_k, selection->rest_v,
        selection->rest_log_n, selection->n_rest, &softmax);
  lychee_softmax_finish (&softmax, query->n_queries, dim, result);
  for (guint h = 0; h < query->n_queries; h++)
    for (guint d = 0; d < dim; d++)
      g_assert_cmpfloat (fabs (result[h * dim + d] - out[h][d] / weight[h]), <, 1e-4);
  g_free (out);
}

typedef struct {
  Keys keys;
  guint dim, n, n_queries, budget;
  float beam;
  gboolean rest, fresh;
  float size; /* of the queries, 0 = 1; little ones make all densities much alike */
  float cap;
} SearchCase;

static const SearchCase searches[] = {
  { KEYS_RANDOM, 64, 900, 3, 100, 2, TRUE, FALSE },
  { KEYS_RANDOM, 64, 900, 3, 100, 4, FALSE, FALSE },
  { KEYS_RANDOM, 64, 900, 1, 37, 4, TRUE, TRUE },
  { KEYS_RANDOM, 16, 3000, 4, 1, 1, TRUE, FALSE },
  { KEYS_RANDOM, 16, 3000, 4, 0, 4, TRUE, FALSE },
  { KEYS_RANDOM, 128, 500, 8, 499, 4, TRUE, FALSE },
  { KEYS_RANDOM, 256, 500, 2, 64, 3, TRUE, FALSE },
  { KEYS_RANDOM, 8, 12000, 3, 256, 4, TRUE, FALSE },
  { KEYS_CLUSTERS, 64, 2000, 3, 200, 4, TRUE, FALSE },
  { KEYS_CLUSTERS, 80, 2000, 3, 200, 4, TRUE, TRUE },
  { KEYS_CLUSTERS, 96, 2000, 6, 500, 100, TRUE, FALSE },
  { KEYS_SORTED, 64, 1500, 3, 128, 4, TRUE, FALSE },
  { KEYS_RANDOM, 64, 6000, 1, 700, 2, TRUE, FALSE, 0.03f },
  { KEYS_RANDOM, 64, 6000, 3, 700, 3, TRUE, TRUE, 0.1f },
  { KEYS_RANDOM, 64, 2000, 3, 200, 4, TRUE, FALSE, .cap = 10 },
  { KEYS_CLUSTERS, 128, 1500, 2, 100, 2, FALSE, FALSE, .cap = 6 },
};

static void
test_search (gconstpointer data)
{
  const SearchCase *search = data;
  g_autoptr (Store) store = store_new (search->dim, 99);
  g_autoptr (LycheeIndex) index = index_new (search->dim, 0, 0);
  g_autofree float *q = g_new (float, (gsize) search->n_queries * search->dim);

  store_fill (store, 0, search->n, search->keys);
  for (guint i = 4; i < search->n; i += 11)
    append (index, store, i, MIN (11, search->n - i));
  index->params.cap = search->cap;
  if (search->fresh)
    lychee_tree_rebuild (index, &store->rows);
  for (guint i = 0; i < 6; i++) {
    LycheeIndexQuery query = { search->n_queries, q, search->budget, search->beam, search->rest };

    fill_queries (store, search->n_queries, (i + 0.5f) * (search->size > 0 ? search->size : 1), q);
    check_against_twin (index, store, &query);
    query.logits = TRUE;
    check_against_twin (index, store, &query);
  }
}

/* A budget that covers everything reads everything, and estimates nothing. */
static void
test_search_all (void)
{
  g_autoptr (Store) store = store_new (64, 3);
  g_autoptr (LycheeIndex) index = index_new (64, 0, 0);
  g_autoptr (LycheeSelection) selection = lychee_selection_new ();
  float q[64] = { 1 };
  LycheeIndexQuery query = { 1, q, 1000, 0, TRUE };

  lychee_index_search (index, &store->rows, &query, selection);
  g_assert_cmpuint (selection->n_rows, ==, 0);
  g_assert_cmpuint (selection->n_rest, ==, 0);
  store_fill (store, 0, 1010, KEYS_RANDOM);
  append (index, store, 10, 1000);
  lychee_index_search (index, &store->rows, &query, selection);
  check_rows_once (selection, index);
  g_assert_cmpuint (selection->n_rows, ==, 1000);
  g_assert_cmpuint (selection->n_rest, ==, 0);
  g_assert_cmpuint (selection->rows_estimated, ==, 0);
  query.budget = G_MAXUINT;
  lychee_index_search (index, &store->rows, &query, selection);
  g_assert_cmpuint (selection->n_rows, ==, 1000);
  query.budget = 999;
  lychee_index_search (index, &store->rows, &query, selection);
  g_assert_cmpuint (selection->n_rows, ==, 999);
  g_assert_cmpuint (selection->n_rest, ==, 1);
  g_assert_cmpfloat (selection->rest_log_n[0], ==, 0);
}

/* The index finds a needle: one key that a query asks for among many others. */
static void
test_search_needle (void)
{
  g_autoptr (Store) store = store_new (64, 11);
  g_autoptr (LycheeIndex) index = index_new (64, 0, 0);
  g_autoptr (LycheeSelection) selection = lychee_selection_new ();
  float q[64], key[64];
  guint found = 0;

  store_fill (store, 0, 8000, KEYS_RANDOM);
  append (index, store, 0, 8000);
  for (guint i = 0; i < 50; i++) {
    guint needle = g_rand_int_range (store->rand, 0, 8000);
    LycheeIndexQuery query = { 1, q, 512, 0, TRUE };

    store_read (store, needle, FALSE, key);
    for (guint d = 0; d < 64; d++)
      q[d] = 6 * key[d];
    lychee_index_search (index, &store->rows, &query, selection);
    for (guint r = 0; r < selection->n_rows; r++)
      found += selection->rows[r] == needle;
  }
  g_assert_cmpuint (found, >=, 40); /* keys without any structure: chance alone would give 3 */
}

/* Whatever keys are like, a search finds as many rows as it may, looks at no more nodes than it has
 * to, and what it leads to is a mean of values. */
static void
test_search_hard (gconstpointer data)
{
  Keys keys = GPOINTER_TO_UINT (data);
  guint n = 3000, dim = 64, budget = 200, beam = 2, n_queries = 3;
  g_autoptr (Store) store = store_new (dim, 41);
  g_autoptr (LycheeIndex) index = index_new (dim, 0, 0);
  g_autoptr (LycheeSelection) selection = lychee_selection_new ();
  float q[3 * 64], m[3], l[3], o[3 * 64], least = INFINITY, most = -INFINITY, value[64];
  LycheeSoftmax softmax = { m, l, o };
  LycheeIndexQuery query = { n_queries, q, budget, beam, TRUE, TRUE };
  LycheeQueries queries = { n_queries, dim, index->params.scale, q };
  LycheeIndexStats stats;

  store_fill (store, 0, n, keys);
  for (guint i = 0; i < n; i += 12)
    append (index, store, i, 12);
  for (guint row = 0; row < n; row++) {
    store_read (store, row, TRUE, value);
    for (guint d = 0; d < dim; d++) {
      least = MIN (least, value[d]);
      most = MAX (most, value[d]);
    }
  }
  lychee_index_get_stats (index, &stats);
  for (guint turn = 0; turn < 6; turn++) {
    const guint16 *rows[200];

    if (turn == 0)
      memset (q, 0, sizeof q);
    else
      fill_queries (store, n_queries, powf (10, (float) turn - 3), q);
    lychee_index_search (index, &store->rows, &query, selection);
    check_rows_once (selection, index);
    g_assert_cmpuint (selection->n_rows, ==, budget);
    g_assert_cmpuint (selection->rows_estimated, ==, n - budget);
    /* Nodes are opened until they hold enough; the last one may hold more, and no leaf nothing. */
    g_assert_cmpuint (selection->nodes_scored, <=,
        stats.n_coarse + MIN (beam * budget + index->params.coarse_capacity, stats.n_leaves));
    for (guint i = 0; i < budget; i++)
      rows[i] = lychee_rows_key (&store->rows, dim, selection->rows[i]);
    lychee_softmax_init (&softmax, n_queries, dim);
    index->kernels->attend_gather (&queries, rows, store->rows.value_offset, budget, &softmax);
    lychee_index_attend_rest (index, &query, selection, &softmax);
    lychee_softmax_finish (&softmax, n_queries, dim, o);
    for (guint i = 0; i < n_queries * dim; i++) {
      g_assert_cmpfloat (o[i], >=, least - 0.02f * (most - least));
      g_assert_cmpfloat (o[i], <=, most + 0.02f * (most - least));
    }
  }
}

static void
test_broken_query (void)
{
  g_autoptr (Store) store = store_new (64, 3);
  g_autoptr (LycheeIndex) index = index_new (64, 0, 0);
  g_autoptr (LycheeSelection) selection = lychee_selection_new ();
  float q[64];
  LycheeIndexQuery query = { 1, q, 100, 0, TRUE };
  const float broken[] = { NAN, INFINITY, -INFINITY, 3e38f };

  store_fill (store, 0, 2000, KEYS_RANDOM);
  append (index, store, 0, 2000);
  for (guint i = 0; i < G_N_ELEMENTS (broken); i++) {
    for (guint d = 0; d < 64; d++)
      q[d] = broken[i];
    lychee_index_search (index, &store->rows, &query, selection);
    check_rows_once (selection, index);
    g_assert_cmpuint (selection->n_rows, ==, 100);
  }
}

static const struct {
  const char *name;
  guint16 bits;
  gboolean value;
} not_finite[] = {
  { "nan-key", 0x7e00, FALSE },
  { "inf-key", 0x7c00, FALSE },
  { "minus-inf-key", 0xfc00, FALSE },
  { "nan-value", 0xfe01, TRUE },
  { "inf-value", 0x7c00, TRUE },
};

static void
test_not_finite (gconstpointer data)
{
  guint i = GPOINTER_TO_UINT (data);
  g_autoptr (Store) store = store_new (64, 3);
  g_autoptr (LycheeIndex) index = index_new (64, 0, 0);
  g_autoptr (GError) error = NULL;
  gsize bytes;
  guint16 *at, good;

  store_fill (store, 0, 200, KEYS_RANDOM);
  append (index, store, 0, 100);
  bytes = lychee_index_get_bytes (index);
  at = store_row (store, 150) + (not_finite[i].value ? store->rows.value_offset : 0) + 63;
  good = *at;
  *at = not_finite[i].bits;
  g_assert_false (lychee_index_append (index, &store->rows, 100, 100, &error));
  g_assert_error (error, LYCHEE_INDEX_ERROR, LYCHEE_INDEX_ERROR_NOT_FINITE);
  g_assert_cmpuint (lychee_index_get_bytes (index), ==, bytes);
  g_assert_cmpuint (lychee_index_get_end (index), ==, 100);
  check_index (index, store, FALSE);
  *at = good;
  append (index, store, 100, 100);
  check_index (index, store, FALSE);
}

/* Of rows that differ alike in all directions, an index that has seen queries look in one makes
 * groups that are narrow there, and finds more of what they ask for. */
static void
test_metric (void)
{
  enum { DIM = 64, N = 3000, STEP = LYCHEE_INDEX_QUERY_STEP };
  g_autoptr (Store) store = store_new (DIM, 4);
  double mean[2] = { 0 };

  for (guint row = 0; row < N; row++) {
    float x[DIM];

    for (guint d = 0; d < DIM; d++)
      x[d] = gaussian (store->rand);
    lychee_cpu_kernels_get_reference ()->f32_to_f16 (x, store_row (store, row), DIM);
  }
  for (guint seen = 0; seen < 2; seen++) {
    g_autoptr (LycheeIndex) index = index_new (DIM, 0, 0);
    g_autoptr (LycheeSelection) selection = lychee_selection_new ();
    float q[DIM] = { 0 };
    LycheeIndexQuery query = { 1, q, 300, 1e6f, FALSE };

    q[5] = 3;
    for (guint row = 0; row < N; row += 16) {
      if (seen && row % STEP == 48)
        lychee_index_observe (index, row + 15, q);
      append (index, store, row, MIN (16, N - row));
    }
    check_index (index, store, FALSE);
    /* The keys with the largest products are what is found. */
    q[5] = 1;
    lychee_index_search (index, &store->rows, &query, selection);
    for (guint i = 0; i < selection->n_rows; i++) {
      float x[DIM];

      store_read (store, selection->rows[i], FALSE, x);
      mean[seen] += x[5] / selection->n_rows;
    }
  }
  g_assert_cmpfloat (mean[1], >, 1.3 * mean[0]);
}

/* Queries that are as wrong as they can be: what they say is not used. */
static void
test_metric_broken (void)
{
  g_autoptr (Store) store = store_new (64, 21);
  g_autoptr (LycheeIndex) plain = index_new (64, 0, 0);
  g_autoptr (LycheeIndex) index = index_new (64, 0, 0);
  g_autoptr (GByteArray) wanted = g_byte_array_new (), got = g_byte_array_new ();
  float q[64];

  store_fill (store, 0, 1000, KEYS_RANDOM);
  for (guint row = 0; row < 1000; row += 20) {
    const float values[] = { 0, NAN, INFINITY, 1e30f, 1e-30f };

    for (guint d = 0; d < 64; d++)
      q[d] = values[row / 20 % 5];
    append (plain, store, row, 20);
    append (index, store, row, 20);
    lychee_index_observe (index, row + 19, q);
    if (row == 500) { /* of rows that are taken out nothing is known any more */
      for (guint d = 0; d < 64; d++) {
        q[d] = d;
        lychee_index_observe (index, 500 + d, q);
      }
      for (guint i = 0; i < 2; i++) {
        LycheeIndex *cut = i ? index : plain;

        lychee_index_truncate (cut, &store->rows, 500);
        append (cut, store, 500, 20);
      }
    }
  }
  memset (index->seen, 0, lychee_queries_seen_size (64));
  lychee_index_write (plain, wanted);
  lychee_index_write (index, got);
  g_assert_cmpmem (got->data, got->len, wanted->data, wanted->len);
}

/* An index that was written and read goes on as it would have, what it has seen included. */
static void
test_metric_written (void)
{
  g_autoptr (Store) store = store_new (64, 22);
  g_autoptr (LycheeIndex) index = index_new (64, 0, 0);
  g_autoptr (LycheeIndex) copy = NULL;
  g_autoptr (LycheeIndex) back = NULL;
  LycheeIndex *all[3];
  g_autoptr (GByteArray) bytes = g_byte_array_new ();

  store_fill (store, 0, 3000, KEYS_RANDOM);
  for (guint row = 0; row < 3000; row += 20) {
    float q[64];

    if (row == 1500) {
      lychee_index_write (index, bytes);
      back = lychee_index_read (&index->params, bytes->data, bytes->len);
      g_assert_nonnull (back);
      for (guint cut = 1; cut < bytes->len; cut += 97)
        g_assert_null (lychee_index_read (&index->params, bytes->data, bytes->len - cut));
      copy = lychee_index_copy (index);
    }
    fill_queries (store, 1, 2, q);
    all[0] = index;
    all[1] = copy;
    all[2] = back;
    for (guint i = 0; i < (row < 1500 ? 1 : 3); i++) {
      append (all[i], store, row, 20);
      if (row < 1500)
        lychee_index_observe (all[i], row + 19, q);
    }
  }
  check_index (back, store, FALSE);
  g_byte_array_set_size (bytes, 0);
  lychee_index_write (index, bytes);
  for (guint i = 1; i < 3; i++) {
    g_autoptr (GByteArray) got = g_byte_array_new ();

    lychee_index_write (all[i], got);
    g_assert_cmpmem (got->data, got->len, bytes->data, bytes->len);
  }
}

/* Same appends, same answers. */
static void
test_deterministic (void)
{
  g_autoptr (Store) store = store_new (64, 21);
  g_autoptr (LycheeIndex) a = index_new (64, 0, 0);
  g_autoptr (LycheeIndex) b = index_new (64, 0, 0);
  g_autoptr (LycheeSelection) x = lychee_selection_new ();
  g_autoptr (LycheeSelection) y = lychee_selection_new ();
  float q[64];
  LycheeIndexQuery query = { 1, q, 300, 0, TRUE };

  store_fill (store, 0, 3000, KEYS_RANDOM);
  for (guint i = 0; i < 3000; i += 4) {
    append (a, store, i, 4);
    append (b, store, i, 4);
  }
  g_assert_cmpuint (lychee_index_get_bytes (a), ==, lychee_index_get_bytes (b));
  fill_queries (store, 1, 2, q);
  lychee_index_search (a, &store->rows, &query, x);
  lychee_index_search (b, &store->rows, &query, y);
  g_assert_cmpmem (x->rows, x->n_rows * 4, y->rows, y->n_rows * 4);
  g_assert_cmpmem (x->rest_k, x->n_rest * 256, y->rest_k, y->n_rest * 256);
}

/* The whole heads-of-a-model case: not all may split in the same append. */
static void
test_staggered (void)
{
  g_autoptr (Store) store = store_new (16, 2);
  guint splits[64] = { 0 }, most = 0;

  store_fill (store, 0, 160, KEYS_RANDOM);
  for (guint seed = 0; seed < 60; seed++) {
    LycheeIndexParams params = { .head_dim = 16, .scale = 0.25f, .seed = seed };
    g_autoptr (LycheeIndex) index = lychee_index_new (&params);

    for (guint i = 0; i < 160; i += 4) {
      LycheeIndexStats stats;

      append (index, store, i, 4);
      lychee_index_get_stats (index, &stats);
      if (stats.n_coarse > 1) {
        splits[i / 4]++;
        break;
      }
    }
  }
  for (guint i = 0; i < G_N_ELEMENTS (splits); i++)
    most = MAX (most, splits[i]);
  g_assert_cmpuint (most, <=, 20);
}

/* Beyond 65,536 rows, numbers take three bytes. */
static void
test_many_rows (void)
{
  g_autoptr (Store) store = store_new (8, 2);
  g_autoptr (LycheeIndex) index = index_new (8, 0, 0);
  guint first = 65536 - 700;

  store_fill (store, first, 1500, KEYS_RANDOM);
  for (guint i = first; i < first + 1500; i += 50)
    append (index, store, i, 50);
  check_index (index, store, FALSE);
  lychee_index_truncate (index, &store->rows, 65600);
  check_index (index, store, FALSE);
  g_assert_cmpuint (lychee_index_get_begin (index), ==, first);
  g_assert_cmpuint (lychee_index_get_end (index), ==, 65600);
}

static void
test_truncate (void)
{
  g_autoptr (Store) store = store_new (16, 2);
  g_autoptr (LycheeIndex) index = index_new (16, 0, 0);

  store_fill (store, 0, 5000, KEYS_CLUSTERS);
  append (index, store, 16, 4984);
  lychee_index_truncate (index, &store->rows, 5000);
  g_assert_cmpuint (lychee_index_get_end (index), ==, 5000);
  lychee_index_truncate (index, &store->rows, 2500);
  check_index (index, store, FALSE);
  lychee_index_truncate (index, &store->rows, 100);
  check_index (index, store, FALSE);
  lychee_index_truncate (index, &store->rows, 17);
  check_index (index, store, FALSE);
  lychee_index_truncate (index, &store->rows, 3);
  check_index (index, store, FALSE);
  /* Empty: it may begin anywhere again. */
  append (index, store, 40, 100);
  g_assert_cmpuint (lychee_index_get_begin (index), ==, 40);
  check_index (index, store, FALSE);
}

/* A snapshot is searched while the original grows (for the thread sanitizer). */

static void
test_threads (void)
{
  g_autoptr (Store) store = store_new (64, 8);
  g_autoptr (LycheeIndex) index = index_new (64, 0, 0);
  Reader readers[6];
  GThread *threads[6];

  store_fill (store, 0, 3000, KEYS_RANDOM);
  append (index, store, 0, 1500);
  for (guint i = 0; i < 6; i++) {
    /* pairs see the same snapshot */
    readers[i] = (Reader){ lychee_index_copy (index), store, 60, 0 };
    threads[i] = g_thread_new ("reader", read_copy, &readers[i]);
    if (i % 2)
      for (guint row = lychee_index_get_end (index), end = row + 400; row < end; row += 10)
        append (index, store, row, 10);
  }
  for (guint i = 0; i < 6; i++)
    g_thread_join (threads[i]);
  for (guint i = 0; i < 6; i += 2)
    g_assert_cmpuint (readers[i].sum, ==, readers[i + 1].sum);
  check_index (index, store, FALSE);
}

/* Bytes beside those of the cache, f16 keys and values. */
static const struct {
  guint dim;
  double most;
} sizes[] = { { 64, 0.027 }, { 128, 0.015 }, { 256, 0.016 } };

static void
test_bytes (gconstpointer data)
{
  guint i = GPOINTER_TO_UINT (data), n = 8000;
  g_autoptr (Store) store = store_new (sizes[i].dim, 8);
  g_autoptr (LycheeIndex) index = index_new (sizes[i].dim, 0, 0);
  double share;

  store_fill (store, 0, n, KEYS_CLUSTERS);
  for (guint row = 0; row < n; row += 10)
    append (index, store, row, 10);
  share = (double) lychee_index_get_bytes (index) / n / (4 * sizes[i].dim);
  g_test_message ("%.2f %% of the cache", 100 * share);
  g_assert_cmpfloat (share, <, sizes[i].most);
}

int
main (int argc, char **argv)
{
  static const struct {
    guint dim, leaf, coarse;
  } shapes[] = { { 64, 0, 0 }, { 16, 4, 16 }, { 8, 1, 8 }, { 128, 32, 256 } };

  g_test_init (&argc, &argv, NULL);
  for (guint i = 0; i < G_N_ELEMENTS (patterns); i++) {
    for (guint j = 0; j < G_N_ELEMENTS (shapes); j++) {
      g_autofree gchar *path = g_strdup_printf ("/index/sequence/%s/%u-%u-%u", patterns[i].name,
          shapes[j].dim, shapes[j].leaf, shapes[j].coarse);
      Sequence sequence = { patterns[i].keys, shapes[j].dim, shapes[j].leaf, shapes[j].coarse };

      g_test_add_data_func_full (
          path, g_memdup2 (&sequence, sizeof sequence), test_sequence, g_free);
    }
    {
      g_autofree gchar *path = g_strdup_printf ("/index/split/%s", patterns[i].name);

      g_test_add_data_func (path, GUINT_TO_POINTER (patterns[i].keys), test_split);
    }
    {
      g_autofree gchar *path = g_strdup_printf ("/index/bounded/%s", patterns[i].name);

      g_test_add_data_func (path, GUINT_TO_POINTER (patterns[i].keys), test_bounded);
    }
  }
  for (guint i = 0; i < G_N_ELEMENTS (searches); i++) {
    g_autofree gchar *path = g_strdup_printf ("/index/search/%u", i);

    g_test_add_data_func (path, &searches[i], test_search);
  }
  for (guint i = 0; i < G_N_ELEMENTS (patterns); i++) {
    g_autofree char *path = g_strdup_printf ("/index/search/hard/%s", patterns[i].name);

    g_test_add_data_func (path, GUINT_TO_POINTER (patterns[i].keys), test_search_hard);
  }
  g_test_add_func ("/index/search/all", test_search_all);
  g_test_add_func ("/index/search/needle", test_search_needle);
  g_test_add_func ("/index/search/broken-query", test_broken_query);
  for (guint i = 0; i < G_N_ELEMENTS (not_finite); i++) {
    g_autofree gchar *path = g_strdup_printf ("/index/not-finite/%s", not_finite[i].name);

    g_test_add_data_func (path, GUINT_TO_POINTER (i), test_not_finite);
  }
  g_test_add_func ("/index/metric", test_metric);
  g_test_add_func ("/index/metric/broken", test_metric_broken);
  g_test_add_func ("/index/metric/written", test_metric_written);
  g_test_add_func ("/index/deterministic", test_deterministic);
  g_test_add_func ("/index/staggered", test_staggered);
  g_test_add_func ("/index/many-rows", test_many_rows);
  g_test_add_func ("/index/truncate", test_truncate);
  g_test_add_func ("/index/threads", test_threads);
  for (guint i = 0; i < G_N_ELEMENTS (sizes); i++) {
    g_autofree gchar *path = g_strdup_printf ("/index/bytes/%u", sizes[i].dim);

    g_test_add_data_func (path, GUINT_TO_POINTER (i), test_bytes);
  }
  return g_test_run ();
}
