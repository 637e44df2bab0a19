/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* LycheeIndex with granularity chunk, against a brute-force twin. */
#include "index-store.h"

static LycheeIndex *
index_new (guint dim)
{
  LycheeIndexParams params = {
    .granularity = LYCHEE_GRANULARITY_CHUNK, .head_dim = dim, .scale = 1 / sqrtf (dim)
  };

  return lychee_index_new (&params);
}

static void
append (LycheeIndex *index, Store *store, guint first, guint n)
{
  GError *error = NULL;

  g_assert_true (lychee_index_append (index, &store->rows, first, n, &error));
  g_assert_no_error (error);
}

/* The mean of the item's keys, at unit length. */
static void
item_key (Store *store, const LycheeChunksItem *item, double *x)
{
  g_autofree float *key = g_new (float, store->dim);
  double length = 0;

  memset (x, 0, store->dim * sizeof *x);
  for (guint row = item->first; row < item->first + item->n; row++) {
    store_read (store, row, FALSE, key);
    for (guint d = 0; d < store->dim; d++)
      x[d] += key[d];
  }
  for (guint d = 0; d < store->dim; d++)
    length += x[d] * x[d];
  for (guint d = 0; d < store->dim && length > 0; d++)
    x[d] /= sqrt (length);
}

static double
distance (const double *x, const float *y, guint n)
{
  double sum = 0;

  for (guint i = 0; i < n; i++)
    sum += (x[i] - y[i]) * (x[i] - y[i]);
  return sqrt (sum);
}

typedef struct {
  LycheeIndex *index;
  Store *store;
  guint8 *seen;
  guint n_seen, unit, cluster, in_cluster, n_clusters;
} Walk;

static void
check_item (const LycheeChunksItem *item, gpointer data)
{
  Walk *walk = data;
  g_autofree double *x = g_new (double, walk->store->dim);

  g_assert_cmpuint (item->unit, <, 64);
  if (walk->n_seen == 0 || item->unit != walk->unit || item->cluster != walk->cluster) {
    walk->in_cluster = 0;
    walk->n_clusters++;
  }
  walk->unit = item->unit;
  walk->cluster = item->cluster;
  g_assert_cmpuint (++walk->in_cluster, <=, 8);
  g_assert_cmpuint (item->n, >, 0);
  for (guint row = item->first; row < item->first + item->n; row++) {
    g_assert_cmpuint (row, >=, walk->index->begin);
    g_assert_cmpuint (row, <, walk->index->end);
    g_assert_false (walk->seen[row]);
    walk->seen[row] = 1;
    walk->n_seen++;
  }
  /* Both radii are bounds, whatever the centers were rounded to. */
  item_key (walk->store, item, x);
  g_assert_cmpfloat (distance (x, item->center, walk->store->dim), <=, item->radius + 1e-6);
  g_assert_cmpfloat (
      distance (x, item->unit_center, walk->store->dim), <=, item->unit_radius + 1e-6);
}

static void
check_index (LycheeIndex *index, Store *store)
{
  g_autofree guint8 *seen = g_new0 (guint8, index->end + 1);
  Walk walk = { .index = index, .store = store, .seen = seen };
  LycheeIndexStats stats;

  lychee_chunks_foreach (index, check_item, &walk);
  g_assert_cmpuint (walk.n_seen, ==, index->end - index->begin);
  lychee_index_get_stats (index, &stats);
  g_assert_cmpuint (stats.n_leaves, ==, walk.n_clusters);
  g_assert_cmpuint (stats.n_coarse, <=, 64);
  g_assert_cmpuint (stats.depth, <=, 3);
}

static void
test_sequence (gconstpointer data)
{
  Keys keys = GPOINTER_TO_UINT (data);
  g_autoptr (Store) store = store_new (64, 31 + keys);
  g_autoptr (LycheeIndex) index = index_new (64);
  g_autoptr (LycheeIndex) copy = NULL;
  guint end = 16, copied_end = 0;

  for (guint step = 0; step < 400; step++) {
    guint op = g_rand_int_range (store->rand, 0, 40), n;

    if (op == 0) {
      n = MAX ((gint) end - g_rand_int_range (store->rand, 0, 300), 0);
      /* rows that the copy holds must stay as they are */
      n = MAX (n, copied_end);
      lychee_index_truncate (index, &store->rows, n);
      end = lychee_index_get_end (index);
      end = end == 0 ? 16 : end;
    } else {
      n = op == 1 ? g_rand_int_range (store->rand, 65, 200) : g_rand_int_range (store->rand, 1, 17);
      store_fill (store, end, n, keys);
      append (index, store, end, n);
      end += n;
    }
    if (step % 20 == 0)
      check_index (index, store);
    if (step == 200) {
      copy = lychee_index_copy (index);
      copied_end = lychee_index_get_end (copy);
    }
  }
  check_index (index, store);
  g_assert_cmpuint (lychee_index_get_end (copy), ==, copied_end);
  check_index (copy, store);
}

/* The twin of a search: every cluster's bound, no pruning. */

typedef struct {
  guint unit, cluster, n;
  float center[64], unit_center[64], radius, unit_radius;
  double score;
} TwinCluster;

typedef struct {
  GArray *clusters;
  guint *of_row; /* which of them a row is in */
} Twin;

static void
add_item (const LycheeChunksItem *item, gpointer data)
{
  Twin *twin = data;
  guint last = twin->clusters->len;

  if (last == 0 || g_array_index (twin->clusters, TwinCluster, last - 1).unit != item->unit ||
      g_array_index (twin->clusters, TwinCluster, last - 1).cluster != item->cluster) {
    TwinCluster one = { .unit = item->unit,
      .cluster = item->cluster,
      .radius = item->radius,
      .unit_radius = item->unit_radius };

    memcpy (one.center, item->center, sizeof one.center);
    memcpy (one.unit_center, item->unit_center, sizeof one.unit_center);
    g_array_append_val (twin->clusters, one);
    last++;
  }
  g_array_index (twin->clusters, TwinCluster, last - 1).n += item->n;
  for (guint row = item->first; row < item->first + item->n; row++)
    twin->of_row[row] = last - 1;
}

/* q.c + |q| r */
static double
bound (const float *q, const float *center, double radius)
{
  double sum = 0, length = 0;

  for (guint d = 0; d < 64; d++) {
    sum += (double) q[d] * center[d];
    length += (double) q[d] * q[d];
  }
  return (sum + sqrt (length) * radius) / 8;
}

static int
by_score (gconstpointer a, gconstpointer b)
{
  double x = *(const double *) a, y = *(const double *) b;

  return x > y ? -1 : x < y;
}

typedef struct {
  Keys keys;
  guint n_queries, budget;
} SearchCase;

static const SearchCase searches[] = {
  { KEYS_RANDOM, 1, 300 },
  { KEYS_RANDOM, 3, 300 },
  { KEYS_RANDOM, 3, 5 },
  { KEYS_CLUSTERS, 1, 300 },
  { KEYS_CLUSTERS, 4, 900 },
  { KEYS_SORTED, 3, 300 },
  { KEYS_ZERO, 3, 300 },
};

static void
test_search (gconstpointer data)
{
  const SearchCase *search = data;
  g_autoptr (Store) store = store_new (64, 3);
  g_autoptr (LycheeIndex) index = index_new (64);
  g_autoptr (LycheeSelection) selection = lychee_selection_new ();
  g_autoptr (GArray) clusters = g_array_new (FALSE, TRUE, sizeof (TwinCluster));
  g_autofree guint *of_row = g_new (guint, 6000);
  g_autofree double *order = NULL;
  Twin twin = { clusters, of_row };
  float q[4 * 64];

  store_fill (store, 0, 6000, search->keys);
  for (guint row = 16; row < 6000; row += 12)
    append (index, store, row, MIN (12, 6000 - row));
  lychee_chunks_foreach (index, add_item, &twin);
  order = g_new (double, clusters->len * 2);
  for (guint round = 0; round < 6; round++) {
    LycheeIndexQuery query = { search->n_queries, q, search->budget, 0, TRUE };
    g_autofree guint8 *seen = g_new0 (guint8, 6000);
    double needed;
    guint held = 0;

    for (guint i = 0; i < G_N_ELEMENTS (q); i++)
      q[i] = (round + 1) * gaussian (store->rand);
    for (guint i = 0; i < clusters->len; i++)
      g_array_index (clusters, TwinCluster, i).score = 0;
    for (guint h = 0; h < search->n_queries; h++) {
      double most = -INFINITY;

      for (guint i = 0; i < clusters->len; i++) {
        const TwinCluster *one = &g_array_index (clusters, TwinCluster, i);

        most = MAX (most, bound (q + h * 64, one->unit_center, one->unit_radius));
      }
      for (guint i = 0; i < clusters->len; i++) {
        TwinCluster *one = &g_array_index (clusters, TwinCluster, i);

        one->score += exp (bound (q + h * 64, one->center, one->radius) - most);
      }
    }
    /* The score of the last cluster that the budget lets in: no row of a worse one is read. */
    for (guint i = 0; i < clusters->len; i++) {
      order[2 * i] = g_array_index (clusters, TwinCluster, i).score;
      order[2 * i + 1] = g_array_index (clusters, TwinCluster, i).n;
    }
    qsort (order, clusters->len, 2 * sizeof *order, by_score);
    needed = order[0];
    for (guint i = 0; held < search->budget; i++) {
      needed = order[2 * i];
      held += (guint) order[2 * i + 1];
    }
    lychee_index_search (index, &store->rows, &query, selection);
    g_assert_cmpuint (selection->n_rows, ==, search->budget);
    g_assert_cmpuint (selection->n_rest, ==, 0);
    g_assert_cmpuint (selection->rows_estimated, ==, 0);
    for (guint i = 0; i < selection->n_rows; i++) {
      guint row = selection->rows[i];

      g_assert_cmpuint (row, >=, 16);
      g_assert_cmpuint (row, <, 6000);
      g_assert_false (seen[row]);
      seen[row] = 1;
      g_assert_cmpfloat (
          g_array_index (clusters, TwinCluster, of_row[row]).score, >=, needed * (1 - 1e-4));
    }
  }
}

static void
test_search_all (void)
{
  g_autoptr (Store) store = store_new (64, 3);
  g_autoptr (LycheeIndex) index = index_new (64);
  g_autoptr (LycheeSelection) selection = lychee_selection_new ();
  float q[64] = { 1 };
  LycheeIndexQuery query = { 1, q, 600, 0, TRUE };

  lychee_index_search (index, &store->rows, &query, selection);
  g_assert_cmpuint (selection->n_rows, ==, 0);
  store_fill (store, 0, 600, KEYS_RANDOM);
  for (guint row = 0; row < 600; row += 10)
    append (index, store, row, 10);
  lychee_index_search (index, &store->rows, &query, selection);
  g_assert_cmpuint (selection->n_rows, ==, 600);
  query.budget = 0;
  lychee_index_search (index, &store->rows, &query, selection);
  g_assert_cmpuint (selection->n_rows, ==, 0);
}

/* Bounds prune where there are clusters to tell apart. */
static void
test_pruned (void)
{
  g_autoptr (Store) store = store_new (64, 3);
  g_autoptr (LycheeIndex) index = index_new (64);
  g_autoptr (LycheeSelection) selection = lychee_selection_new ();
  LycheeIndexStats stats;
  float q[64];
  LycheeIndexQuery query = { 1, q, 100, 0, FALSE };

  store_fill (store, 0, 12000, KEYS_TWO_FAR);
  /* items of one kind each: rows that are even, then rows that are odd, have the same keys */
  for (guint row = 0; row < 12000; row++)
    if (row / 10 % 2 != row % 2)
      memcpy (store_row (store, row), store_row (store, row ^ 1), 128);
  for (guint row = 0; row < 12000; row += 10)
    append (index, store, row, 10);
  store_read (store, 10, FALSE, q);
  lychee_index_search (index, &store->rows, &query, selection);
  lychee_index_get_stats (index, &stats);
  g_assert_cmpuint (selection->n_rows, ==, 100);
  g_assert_cmpuint (selection->nodes_scored, <, (stats.n_coarse + stats.n_leaves) * 2 / 3);
}

static void
test_broken (void)
{
  g_autoptr (Store) store = store_new (64, 3);
  g_autoptr (LycheeIndex) index = index_new (64);
  g_autoptr (LycheeSelection) selection = lychee_selection_new ();
  g_autoptr (GError) error = NULL;
  const float broken[] = { NAN, INFINITY, -INFINITY, 3e38f };
  float q[64];
  LycheeIndexQuery query = { 1, q, 100, 0, TRUE };
  gsize bytes;

  store_fill (store, 0, 2000, KEYS_RANDOM);
  for (guint row = 0; row < 1000; row += 10)
    append (index, store, row, 10);
  for (guint i = 0; i < G_N_ELEMENTS (broken); i++) {
    for (guint d = 0; d < 64; d++)
      q[d] = broken[i];
    lychee_index_search (index, &store->rows, &query, selection);
    g_assert_cmpuint (selection->n_rows, ==, 100);
  }
  bytes = lychee_index_get_bytes (index);
  store_row (store, 1005)[5] = 0x7e00;
  g_assert_false (lychee_index_append (index, &store->rows, 1000, 10, &error));
  g_assert_error (error, LYCHEE_INDEX_ERROR, LYCHEE_INDEX_ERROR_NOT_FINITE);
  g_assert_cmpuint (lychee_index_get_bytes (index), ==, bytes);
  g_assert_cmpuint (lychee_index_get_end (index), ==, 1000);
  check_index (index, store);
}

static void
test_bytes (gconstpointer data)
{
  guint dim = GPOINTER_TO_UINT (data), n = 8000;
  g_autoptr (Store) store = store_new (dim, 8);
  g_autoptr (LycheeIndex) index = index_new (dim);
  double share;

  store_fill (store, 0, n, KEYS_RANDOM);
  for (guint row = 0; row < n; row += 12)
    append (index, store, row, MIN (12, n - row));
  share = (double) lychee_index_get_bytes (index) / n / (4 * dim);
  g_test_message ("%.3f %% of the cache", 100 * share);
  g_assert_cmpfloat (share, <, 0.005);
}

static void
test_threads (void)
{
  g_autoptr (Store) store = store_new (64, 8);
  g_autoptr (LycheeIndex) index = index_new (64);
  Reader readers[4];
  GThread *threads[4];

  store_fill (store, 0, 3000, KEYS_RANDOM);
  for (guint row = 0; row < 1500; row += 10)
    append (index, store, row, 10);
  for (guint i = 0; i < 4; i++) {
    readers[i] = (Reader){ lychee_index_copy (index), store, 40, 0 };
    threads[i] = g_thread_new ("reader", read_copy, &readers[i]);
    if (i % 2)
      for (guint row = lychee_index_get_end (index), end = row + 400; row < end; row += 10)
        append (index, store, row, 10);
  }
  for (guint i = 0; i < 4; i++)
    g_thread_join (threads[i]);
  for (guint i = 0; i < 4; i += 2)
    g_assert_cmpuint (readers[i].sum, ==, readers[i + 1].sum);
  check_index (index, store);
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, NULL);
  for (guint i = 0; i < G_N_ELEMENTS (patterns); i++) {
    g_autofree gchar *path = g_strdup_printf ("/index-chunks/sequence/%s", patterns[i].name);

    g_test_add_data_func (path, GUINT_TO_POINTER (patterns[i].keys), test_sequence);
  }
  for (guint i = 0; i < G_N_ELEMENTS (searches); i++) {
    g_autofree gchar *path = g_strdup_printf ("/index-chunks/search/%u", i);

    g_test_add_data_func (path, &searches[i], test_search);
  }
  g_test_add_func ("/index-chunks/search/all", test_search_all);
  g_test_add_func ("/index-chunks/search/pruned", test_pruned);
  g_test_add_func ("/index-chunks/broken", test_broken);
  g_test_add_func ("/index-chunks/threads", test_threads);
  for (guint dim = 64; dim <= 128; dim += 64) {
    g_autofree gchar *path = g_strdup_printf ("/index-chunks/bytes/%u", dim);

    g_test_add_data_func (path, GUINT_TO_POINTER (dim), test_bytes);
  }
  return g_test_run ();
}
