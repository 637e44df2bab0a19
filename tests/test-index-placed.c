/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* An index whose rows' places were found elsewhere is the one that finds them itself. */
#include "index-store.h"

#define STEP 16

/* What a device does, and lib/lychee-index-tree.c where there is one branch. */
static void
find_places (
    LycheeIndex *index, Store *store, guint first, guint n, LycheeIndexPlace *place, float *sums)
{
  const LycheeBranch *root = index->root;
  guint dim = store->dim;
  g_autofree float *x = g_new (float, dim), *mean = g_new (float, dim);
  LycheeOpenNode *open = lychee_open_node_new (
      dim, index->params.leaf_capacity, index->params.coarse_capacity + LYCHEE_APPEND_BATCH);

  g_assert_cmpuint (root->level, ==, 1);
  for (guint i = 0; i < n; i++) {
    float best = -G_MAXFLOAT, least = G_MAXFLOAT;

    index->kernels->f16_to_f32 (lychee_rows_key (&store->rows, dim, first + i), x, dim);
    for (guint c = 0; c < root->n; c++) {
      double near = root->minus_half[c];

      for (guint d = 0; d < dim; d++)
        near += root->scale[c] * x[d] * root->code[(gsize) c * dim + d];
      if ((float) near > best) {
        best = (float) near;
        place[i].node = (gint32) c;
      }
    }
    lychee_open_node_read (open, index, root->child[place[i].node],
        root->code + (gsize) place[i].node * dim, root->scale[place[i].node]);
    for (guint leaf = 0; leaf < open->n_leaves; leaf++) {
      float distance = lychee_distance (x, open->mean + (gsize) leaf * dim, dim);

      if (distance < least) {
        least = distance;
        place[i].leaf = (gint32) leaf;
      }
    }
  }
  for (guint i = 0; i < n; i++) {
    const guint16 *key[512];
    float *sum = sums + (gsize) i * (dim + 2);
    guint n_keys = 0;

    memset (sum, 0xff, (dim + 2) * sizeof *sum);
    for (guint j = 0; j < i; j++)
      if (memcmp (&place[j], &place[i], sizeof *place) == 0)
        n_keys++;
    if (n_keys > 0) /* not the first */
      continue;
    lychee_open_node_read (open, index, root->child[place[i].node],
        root->code + (gsize) place[i].node * dim, root->scale[place[i].node]);
    for (guint j = 0; j < open->count[place[i].leaf]; j++)
      key[n_keys++] =
          lychee_rows_key (&store->rows, dim, open->id[(gsize) place[i].leaf * open->stride + j]);
    for (guint j = i; j < n; j++)
      if (memcmp (&place[j], &place[i], sizeof *place) == 0)
        key[n_keys++] = lychee_rows_key (&store->rows, dim, first + j);
    memset (sum, 0, dim * sizeof *sum);
    index->kernels->sum_rows (key, n_keys, dim, sum, sum + dim);
    sum[dim + 1] = n_keys;
  }
  lychee_open_node_free (open);
}

static void
test_same (gconstpointer data)
{
  const guint dim = 64, n = 1600;
  g_autoptr (Store) store = store_new (dim, 7);
  LycheeIndexParams params = { .head_dim = dim, .scale = 0.125f };
  g_autoptr (LycheeIndex) plain = lychee_index_new (&params), placed = lychee_index_new (&params);
  LycheeIndex *both[] = { plain, placed };
  g_autoptr (GByteArray) wanted = g_byte_array_new (), got = g_byte_array_new ();
  g_autofree float *sums = g_new (float, STEP *(dim + 2));
  LycheeIndexPlace place[STEP];
  LycheeIndexPlaces places = { place, sums };
  g_autoptr (GError) error = NULL;
  guint n_given = 0;

  store_fill (store, 0, n, *(const Keys *) data);
  for (guint i = 0; i < 2; i++)
    lychee_index_append (both[i], &store->rows, 0, 40, &error);
  for (guint first = 40; first + STEP <= n; first += STEP) {
    gboolean bad = first % 5 == 0; /* nonsense is not believed */

    lychee_index_append (plain, &store->rows, first, STEP, &error);
    g_assert_no_error (error);
    find_places (placed, store, first, STEP, place, sums);
    if (bad)
      place[first % STEP].node = first % 2 ? -1 : 1000;
    else
      n_given += STEP;
    lychee_index_append_placed (placed, &store->rows, first, STEP, &places, &error);
    g_assert_no_error (error);
  }
  g_assert_cmpuint (placed->placed, ==, n_given);
  lychee_index_write (plain, wanted);
  lychee_index_write (placed, got);
  g_assert_cmpmem (got->data, got->len, wanted->data, wanted->len);
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, NULL);
  for (guint i = 0; i < G_N_ELEMENTS (patterns); i++) {
    g_autofree char *name = g_strdup_printf ("/index/placed/%s", patterns[i].name);

    if (patterns[i].keys == KEYS_RANDOM || patterns[i].keys == KEYS_CLUSTERS ||
        patterns[i].keys == KEYS_OUTLIERS)
      g_test_add_data_func (name, &patterns[i].keys, test_same);
  }
  return g_test_run ();
}
