/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* The policies that lychee-bench fidelity compares, each against a plain twin in float64, and the
 * measures themselves against sums by hand. */

#include "exact-attention.h"
#include "lychee-index-private.h"
#include "policies-data.h"
/* The measures */

static void
test_exact_output (void)
{
  g_autoptr (Data) data = data_new (300, 24, 3, 1);
  g_autoptr (ExactAttention) exact = exact_attention_new (&data->queries, &data->rows, 277);
  g_autofree guint32 *rows = all_rows (277);
  double weights[277], output[24];

  for (guint h = 0; h < 3; h++) {
    attend (data, h, rows, 277, weights, output);
    for (guint i = 0; i < 277; i++) {
      g_assert_cmpfloat_with_epsilon (exact->logits[h * 277 + i], logit (data, h, i), 1e-4);
      g_assert_cmpfloat_with_epsilon (exact->weights[h * 277 + i], weights[i], 1e-5);
    }
    for (guint j = 0; j < 24; j++)
      g_assert_cmpfloat_with_epsilon (exact->output[h * 24 + j], output[j], 1e-4);
  }
}

static void
test_exact_mass (void)
{
  g_autoptr (Data) data = data_new (120, 16, 2, 2);
  g_autoptr (ExactAttention) exact = exact_attention_new (&data->queries, &data->rows, 120);
  g_autofree guint32 *rows = all_rows (120);
  const guint32 some[] = { 3, 119, 50, 51, 52, 7 };
  double weights[120], mass = 0;

  for (guint h = 0; h < 2; h++) {
    attend (data, h, rows, 120, weights, NULL);
    for (guint i = 0; i < G_N_ELEMENTS (some); i++)
      mass += weights[some[i]] / 2;
  }
  g_assert_cmpfloat_with_epsilon (
      exact_attention_get_mass (exact, some, G_N_ELEMENTS (some)), mass, 1e-5);
  g_assert_cmpfloat_with_epsilon (exact_attention_get_mass (exact, rows, 120), 1, 1e-12);
  g_assert_cmpfloat (exact_attention_get_mass (exact, rows, 0), ==, 0);
}

static void
test_exact_error (void)
{
  double truth[] = { 3, 4, 0, 0, 0, 0, 0, 0, /**/ 0, 0, 1, 0, 0, 0, 0, 0 };
  float same[16], other[16] = { 3, 4, 0, 0, 0, 1, 0, 0, /**/ 0, 0, 0.5f, 0, 0, 0, 0, 0 };
  ExactAttention exact = { 2, 0, 8, NULL, NULL, truth };

  for (guint i = 0; i < 16; i++)
    same[i] = truth[i];
  g_assert_cmpfloat (exact_attention_get_error (&exact, same), ==, 0);
  /* 1 / 5 and 0.5 / 1 */
  g_assert_cmpfloat_with_epsilon (exact_attention_get_error (&exact, other), 0.35, 1e-9);
  memset (truth, 0, sizeof truth);
  memset (same, 0, sizeof same);
  g_assert_cmpfloat (exact_attention_get_error (&exact, same), ==, 0);
}

/* Ranking */

static void
test_rank_brute (void)
{
  static const struct {
    guint n_queries, n, n_best;
  } cases[] = { { 1, 1, 1 }, { 1, 2, 1 }, { 3, 50, 50 }, { 3, 50, 7 }, { 2, 400, 33 },
    { 9, 300, 299 }, { 1, 20, 60 } };

  for (guint c = 0; c < G_N_ELEMENTS (cases); c++) {
    guint n = cases[c].n, n_queries = cases[c].n_queries;
    g_autoptr (GRand) rand = g_rand_new_with_seed (c);
    g_autofree float *z = g_new (float, n_queries *n);
    g_autofree double *plain = g_new (double, n_queries *n);
    g_autofree guint *sizes = g_new (guint, n);
    g_autofree gboolean *taken = g_new0 (gboolean, n);
    g_autofree guint32 *order = g_new (guint32, n);
    g_autofree double *shares = NULL;

    for (guint i = 0; i < n_queries * n; i++)
      plain[i] = z[i] = 3 * next_normal (rand);
    for (guint i = 0; i < n; i++)
      sizes[i] = g_rand_int_range (rand, 1, 30);
    shares = plain_shares (plain, n_queries, n, sizes);
    policy_rank (z, n_queries, n, sizes, cases[c].n_best, order);
    for (guint i = 0; i < MIN (n, cases[c].n_best); i++) {
      guint best = find_best (shares, n, taken);

      g_assert_cmpuint (order[i], ==, best);
      taken[best] = TRUE;
    }
  }
}

static void
test_rank_equals (void)
{
  float z[100];
  guint32 order[100];

  for (guint i = 0; i < 100; i++)
    z[i] = i % 2;
  policy_rank (z, 1, 100, NULL, 100, order);
  for (guint i = 0; i < 50; i++) {
    g_assert_cmpuint (order[i], ==, 2 * i + 1);
    g_assert_cmpuint (order[50 + i], ==, 2 * i);
  }
}

/* One head is sure, the other is not: what the first wants comes first, though the second's logits
 * are larger. */
static void
test_rank_heads (void)
{
  const float z[] = { 0, 0, 6, /**/ 20, 21, 20 };
  guint32 order[3];

  policy_rank (z, 2, 3, NULL, 3, order);
  g_assert_cmpuint (order[0], ==, 2);
  g_assert_cmpuint (order[1], ==, 1);
  g_assert_cmpuint (order[2], ==, 0);
}

/* Every policy */

typedef struct {
  const Policy *policy;
  guint n_prompt, n_keys, budget, dim, group;
} Case;

static const struct {
  guint n_prompt, n_keys, budget, dim, group;
} shapes[] = {
  { 600, 600, 256, 16, 3 },
  { 500, 601, 200, 16, 1 },
  { 300, 900, 129, 32, 2 },
  { 900, 1300, 512, 16, 4 },
  { 100, 1000, 81, 64, 3 },
  { 200, 230, 230, 16, 2 }, /* all of it fits */
  { 100, 150, 256, 16, 2 },
};

static PolicyState *
make_state (const Policy *policy, const Data *data, guint n_prompt, guint n_keys)
{
  PolicyState *state = state_new (policy, data);

  policy_state_prefill (state, &data->rows, n_prompt);
  for (guint n = n_prompt + 1; n <= n_keys; n++)
    policy_state_feed (state, &data->rows, n);
  return state;
}

static guint32 *
answer (PolicyState *state, const Data *data, guint n_keys, guint budget, float *output, guint *n)
{
  g_autofree float *logits = attention_logits (&data->queries, &data->rows, n_keys);
  PolicyQuery query = { &data->queries, &data->rows, n_keys, budget, logits };
  PolicyChoice choice = { g_new (guint32, n_keys) };

  policy_state_answer (state, &query, output, &choice);
  *n = choice.n_rows;
  return choice.rows;
}

/* Reads exactly its budget, each row once, sinks and window among them, none that is not there. */
static void
test_budget (gconstpointer user_data)
{
  const Case *c = user_data;
  g_autoptr (Data) data = data_new (c->n_keys, c->dim, c->group, c->budget);
  g_autoptr (PolicyState) state = make_state (c->policy, data, c->n_prompt, c->n_keys);
  float output[4 * MAX_DIM];
  guint n, expected = c->policy->whole ? c->n_keys : MIN (c->budget, c->n_keys);
  g_autofree guint32 *rows = answer (state, data, c->n_keys, c->budget, output, &n);

  g_assert_cmpuint (n, ==, expected);
  qsort (rows, n, sizeof *rows, compare_rows);
  for (guint i = 1; i < n; i++)
    g_assert_cmpuint (rows[i - 1], <, rows[i]);
  for (guint i = 0; i < SINKS; i++)
    g_assert_cmpuint (rows[i], ==, i);
  for (guint i = 0; i < WINDOW; i++)
    g_assert_cmpuint (rows[n - 1 - i], ==, c->n_keys - 1 - i);
}

/* The answer is the attention over what was read; where the rest is estimated, the answer is closer
 * than that. */
static void
test_output (gconstpointer user_data)
{
  const Case *c = user_data;
  g_autoptr (Data) data = data_new (c->n_keys, c->dim, c->group, c->budget);
  g_autoptr (PolicyState) state = make_state (c->policy, data, c->n_prompt, c->n_keys);
  g_autoptr (ExactAttention) exact = exact_attention_new (&data->queries, &data->rows, c->n_keys);
  float output[4 * MAX_DIM], dropped[4 * MAX_DIM];
  double by_hand[MAX_DIM];
  guint n;
  g_autofree guint32 *rows = answer (state, data, c->n_keys, c->budget, output, &n);

  for (guint h = 0; h < c->group; h++) {
    attend (data, h, rows, n, NULL, by_hand);
    for (guint j = 0; j < c->dim; j++) {
      dropped[h * c->dim + j] = by_hand[j];
      if (!c->policy->rest || n == c->n_keys)
        g_assert_cmpfloat_with_epsilon (output[h * c->dim + j], by_hand[j], 1e-4);
    }
  }
  if (n == c->n_keys)
    g_assert_cmpfloat (exact_attention_get_error (exact, output), <, 1e-4);
  else if (c->policy->rest)
    g_assert_cmpfloat (
        exact_attention_get_error (exact, output), <, exact_attention_get_error (exact, dropped));
}

/* Asked for all, it finds each row once: no row is lost in its pages, clusters or leaves. */
static void
test_partition (gconstpointer user_data)
{
  const Case *c = user_data;
  g_autoptr (Data) data = data_new (c->n_keys, c->dim, c->group, c->budget);
  PolicySpec spec = { c->dim, data->queries.scale, SINKS, WINDOW, 3, data->item_ends,
    data->n_item_ends };
  gpointer state = c->policy->open ? c->policy->open (&spec, c->policy->params) : NULL;
  g_autofree float *logits = attention_logits (&data->queries, &data->rows, c->n_keys);
  g_autofree guint32 *expected = g_new (guint32, c->n_keys);
  g_autofree guint32 *rows = g_new (guint32, c->n_keys);
  PolicyQuery query = { &data->queries, &data->rows, c->n_keys, c->budget, logits };
  PolicyChoice choice = { rows };
  guint end = c->n_keys - WINDOW, n = end - SINKS;

  if (state) {
    c->policy->prefill (state, &data->rows, c->n_prompt);
    c->policy->feed (state, &data->rows, c->n_keys);
  }
  for (guint i = 0; i < n; i++)
    expected[i] = SINKS + i;
  c->policy->select (state, &query, SINKS, end, n, &choice);
  assert_same_rows (rows, choice.n_rows, expected, n);
  if (state)
    c->policy->close (state);
}

/* A copy goes its own way: what it is fed does not change the original. */
static void
test_copy (gconstpointer user_data)
{
  const Case *c = user_data;
  g_autoptr (Data) data = data_new (c->n_keys + 400, c->dim, c->group, c->budget);
  g_autoptr (PolicyState) state = make_state (c->policy, data, c->n_prompt, c->n_keys);
  PolicyState *copy = policy_state_copy (state);
  float output[4 * MAX_DIM], again[4 * MAX_DIM], copied[4 * MAX_DIM];
  guint n, n_again, n_copied;
  g_autofree guint32 *rows = answer (state, data, c->n_keys, c->budget, output, &n);
  g_autofree guint32 *copied_rows = answer (copy, data, c->n_keys, c->budget, copied, &n_copied);
  g_autofree guint32 *rows_again = NULL;

  policy_state_feed (copy, &data->rows, c->n_keys + 400);
  policy_state_free (copy);
  rows_again = answer (state, data, c->n_keys, c->budget, again, &n_again);
  g_assert_cmpmem (rows, n * sizeof *rows, rows_again, n_again * sizeof *rows);
  g_assert_cmpmem (rows, n * sizeof *rows, copied_rows, n_copied * sizeof *rows);
  g_assert_cmpmem (
      output, c->group * c->dim * sizeof *output, again, c->group * c->dim * sizeof *output);
  g_assert_cmpmem (
      output, c->group * c->dim * sizeof *output, copied, c->group * c->dim * sizeof *output);
}

/* Built afresh, it answers within its budget too. */
static void
test_build (gconstpointer user_data)
{
  const Case *c = user_data;
  g_autoptr (Data) data = data_new (c->n_keys, c->dim, c->group, c->budget);
  g_autoptr (PolicyState) state = state_new (c->policy, data);
  float output[4 * MAX_DIM];
  guint n, expected = c->policy->whole ? c->n_keys : MIN (c->budget, c->n_keys);
  g_autofree guint32 *rows = NULL;

  policy_state_build (state, &data->rows, c->n_keys);
  rows = answer (state, data, c->n_keys, c->budget, output, &n);
  g_assert_cmpuint (n, ==, expected);
}

/* Twins */

static void
test_window (void)
{
  g_autoptr (Data) data = data_new (700, 16, 2, 5);
  g_autoptr (PolicyState) state = make_state (&policy_window, data, 600, 700);
  float output[2 * 16];
  guint n;
  g_autofree guint32 *rows = answer (state, data, 700, 300, output, &n);

  qsort (rows, n, sizeof *rows, compare_rows);
  for (guint i = SINKS; i < n; i++)
    g_assert_cmpuint (rows[i], ==, 700 - n + i);
}

static void
test_oracle (void)
{
  g_autoptr (Data) data = data_new (800, 16, 3, 6);
  g_autoptr (PolicyState) state = make_state (&policy_oracle, data, 800, 800);
  guint n, n_middle = 800 - SINKS - WINDOW;
  float output[3 * 16];
  g_autofree guint32 *rows = answer (state, data, 800, 256, output, &n);
  g_autofree guint32 *middle = all_rows (n_middle);
  g_autofree double *shares = g_new0 (double, 800);
  g_autofree double *weights = g_new (double, n_middle);
  g_autofree gboolean *read = g_new0 (gboolean, 800);
  double least = INFINITY, most = 0;

  for (guint i = 0; i < n_middle; i++)
    middle[i] += SINKS;
  for (guint h = 0; h < 3; h++) {
    attend (data, h, middle, n_middle, weights, NULL);
    for (guint i = 0; i < n_middle; i++)
      shares[middle[i]] += weights[i];
  }
  for (guint i = 0; i < n; i++)
    read[rows[i]] = TRUE;
  for (guint i = 0; i < n_middle; i++) {
    double share = shares[middle[i]];

    if (read[middle[i]])
      least = MIN (least, share);
    else
      most = MAX (most, share);
  }
  g_assert_cmpfloat (least, >=, most * (1 - 1e-5));
}

/* No other choice of the policies here has more of the true attention. */
static void
test_oracle_beats_all (void)
{
  g_autoptr (Data) data = data_new (900, 32, 1, 8);
  g_autoptr (ExactAttention) exact = exact_attention_new (&data->queries, &data->rows, 900);
  double best = 0;

  for (const Policy *const *policy = policy_list (); *policy; policy++) {
    g_autoptr (PolicyState) state = make_state (*policy, data, 800, 900);
    float output[32];
    guint n;
    g_autofree guint32 *rows = answer (state, data, 900, 200, output, &n);
    double mass = exact_attention_get_mass (exact, rows, n);

    if (*policy == &policy_oracle)
      best = mass;
    g_test_message ("%s: mass %.4f", (*policy)->name, mass);
  }
  for (const Policy *const *policy = policy_list (); *policy; policy++) {
    g_autoptr (PolicyState) state = make_state (*policy, data, 800, 900);
    float output[32];
    guint n;
    g_autofree guint32 *rows = answer (state, data, 900, 200, output, &n);

    if (!(*policy)->whole)
      g_assert_cmpfloat (exact_attention_get_mass (exact, rows, n), <=, best + 1e-9);
  }
}

/* Takes units in the order of their shares until @budget rows are read. */
static guint
take_units (
    const double *shares, guint n, guint **units, const guint *sizes, guint budget, guint32 *rows)
{
  g_autofree gboolean *taken = g_new0 (gboolean, n);
  guint n_rows = 0;

  for (guint i = 0; i < n && n_rows < budget; i++) {
    guint best = find_best (shares, n, taken);

    taken[best] = TRUE;
    for (guint j = 0; j < sizes[best] && n_rows < budget; j++)
      rows[n_rows++] = units[best][j];
  }
  return n_rows;
}

static void
test_quest (gconstpointer user_data)
{
  const Case *c = user_data;
  g_autoptr (Data) data = data_new (c->n_keys, c->dim, c->group, c->budget + 1);
  g_autoptr (PolicyState) state = make_state (&policy_quest, data, c->n_prompt, c->n_keys);
  float output[4 * MAX_DIM];
  guint n, end = c->n_keys - WINDOW, n_pages = (end - SINKS + 15) / 16, budget;
  g_autofree guint32 *rows = answer (state, data, c->n_keys, c->budget, output, &n);
  g_autofree guint32 *twin = g_new (guint32, c->n_keys);
  g_autofree double *z = g_new0 (double, c->group *n_pages);
  g_autofree guint *sizes = g_new (guint, n_pages);
  g_autofree guint *numbers = all_rows (c->n_keys);
  g_autofree guint **pages = g_new (guint *, n_pages);
  g_autofree double *shares = NULL;

  for (guint p = 0; p < n_pages; p++) {
    guint first = SINKS + 16 * p, after = MIN (first + 16, end);

    pages[p] = numbers + first;
    sizes[p] = after - first;
    for (guint h = 0; h < c->group; h++) {
      double *bound = &z[h * n_pages + p];

      for (guint j = 0; j < c->dim; j++) {
        double most = -INFINITY;

        for (guint row = first; row < after; row++)
          most = MAX (most, (double) data->q[h * c->dim + j] * data->k[row * c->dim + j]);
        *bound += most * data->queries.scale;
      }
      /* It is a bound. */
      for (guint row = first; row < after; row++)
        g_assert_cmpfloat (logit (data, h, row), <=, *bound + 1e-9);
    }
  }
  shares = plain_shares (z, c->group, n_pages, sizes);
  budget = c->budget - SINKS - WINDOW;
  assert_same_rows (rows + SINKS, n - SINKS - WINDOW, twin,
      take_units (shares, n_pages, pages, sizes, budget, twin));
}

/* k-means by cosine over rows first .. first + n - 1, as in the paper; centres start at keys that
 * @rand draws. Appends rows' lists to @clusters and means to @means. */
static void
plain_kmeans (const Data *data, guint first, guint n, guint n_clusters, GRand *rand,
    GPtrArray *clusters, GPtrArray *means)
{
  guint d = data->dim;
  g_autofree guint *place = g_new (guint, n);
  g_autofree guint32 *shuffled = all_rows (n);
  g_autofree double *centers = g_new (double, n_clusters *d);

  for (guint c = 0; c < n_clusters; c++) {
    guint at = g_rand_int_range (rand, c, n), drawn = shuffled[at];

    shuffled[at] = shuffled[c];
    shuffled[c] = drawn;
    memcpy (centers + c * d, data->k + (first + drawn) * d, d * sizeof *centers);
  }
  for (guint round = 0; round < 20; round++) {
    for (guint i = 0; i < n; i++) {
      double best = -INFINITY;

      for (guint c = 0; c < n_clusters; c++) {
        double dot = 0, square = 0;

        for (guint j = 0; j < d; j++) {
          dot += data->k[(first + i) * d + j] * centers[c * d + j];
          square += centers[c * d + j] * centers[c * d + j];
        }
        if (dot / sqrt (square) > best) {
          best = dot / sqrt (square);
          place[i] = c;
        }
      }
    }
    for (guint c = 0; c < n_clusters; c++) {
      double sum[MAX_DIM] = { 0 };
      guint count = 0;

      for (guint i = 0; i < n; i++)
        for (guint j = 0; j < d && place[i] == c; j++) {
          sum[j] += data->k[(first + i) * d + j];
          count += j == 0;
        }
      for (guint j = 0; j < d && count > 0; j++)
        centers[c * d + j] = sum[j] / count;
    }
  }
  for (guint c = 0; c < n_clusters; c++) {
    GArray *rows = g_array_new (FALSE, FALSE, sizeof (guint));

    for (guint i = 0; i < n; i++) {
      guint row = first + i;

      if (place[i] == c)
        g_array_append_val (rows, row);
    }
    if (rows->len == 0) {
      g_array_unref (rows);
      continue;
    }
    g_ptr_array_add (clusters, rows);
    g_ptr_array_add (means, g_memdup2 (centers + c * d, d * sizeof *centers));
  }
}

static void
test_clusterkv (gconstpointer user_data)
{
  const Case *c = user_data;
  g_autoptr (Data) data = data_new (c->n_keys, c->dim, c->group, c->budget + 2);
  g_autoptr (PolicyState) state = make_state (&policy_clusterkv, data, c->n_prompt, c->n_keys);
  float output[4 * MAX_DIM];
  guint n, n_clusters, end = c->n_keys - WINDOW, clustered = c->n_prompt, n_new, n_twin = 0;
  guint budget = c->budget - SINKS - WINDOW;
  g_autofree guint32 *rows = answer (state, data, c->n_keys, c->budget, output, &n);
  g_autofree guint32 *twin = g_new (guint32, c->n_keys);
  g_autoptr (GRand) rand = g_rand_new_with_seed (7);
  g_autoptr (GPtrArray) clusters = g_ptr_array_new_with_free_func ((GDestroyNotify) g_array_unref);
  g_autoptr (GPtrArray) means = g_ptr_array_new_with_free_func (g_free);
  g_autofree double *z = NULL, *shares = NULL;
  g_autofree guint *sizes = NULL, **units = NULL;

  plain_kmeans (
      data, SINKS, c->n_prompt - SINKS, MAX ((c->n_prompt - SINKS) / 80, 1), rand, clusters, means);
  for (; clustered + 320 <= c->n_keys; clustered += 320)
    plain_kmeans (data, clustered, 320, 4, rand, clusters, means);
  /* What is in no cluster is read, the newest first. */
  n_new = clustered < end ? MIN (end - clustered, budget) : 0;
  for (guint i = 0; i < n_new; i++)
    twin[n_twin++] = end - 1 - i;

  n_clusters = clusters->len;
  z = g_new0 (double, c->group *n_clusters);
  sizes = g_new0 (guint, n_clusters);
  units = g_new (guint *, n_clusters);
  for (guint i = 0; i < n_clusters; i++) {
    GArray *all = clusters->pdata[i];
    const double *mean = means->pdata[i];

    sizes[i] = all->len;
    units[i] = (guint *) (gpointer) all->data;
    for (guint h = 0; h < c->group; h++)
      for (guint j = 0; j < c->dim; j++)
        z[h * n_clusters + i] += data->q[h * c->dim + j] * mean[j] * data->queries.scale;
  }
  shares = plain_shares (z, c->group, n_clusters, sizes);
  /* The window's rows are in clusters, but read already. */
  for (guint i = 0; i < n_clusters; i++) {
    guint kept = 0;

    for (guint j = 0; j < sizes[i]; j++)
      if (units[i][j] < end)
        units[i][kept++] = units[i][j];
    sizes[i] = kept;
  }
  n_twin += take_units (shares, n_clusters, units, sizes, budget - n_twin, twin + n_twin);
  assert_same_rows (rows + SINKS, n - SINKS - WINDOW, twin, n_twin);
}

/* What has left the window and is not in the index yet is read: nothing falls between. */
static void
test_index_lag (void)
{
  static const Policy *const policies[] = { &policy_token, &policy_token_drop, &policy_chunk };

  for (guint p = 0; p < G_N_ELEMENTS (policies); p++)
    for (guint n_keys = 600; n_keys < 640; n_keys++) {
      g_autoptr (Data) data = data_new (n_keys, 16, 1, 9);
      g_autoptr (PolicyState) state = make_state (policies[p], data, 500, n_keys);
      float output[16];
      guint n, n_recent = 0;
      g_autofree guint32 *rows = answer (state, data, n_keys, 200, output, &n);
      guint end = n_keys - WINDOW, indexed = SINKS;

      if (policies[p] == &policy_chunk)
        for (guint i = 0; data->item_ends[i] <= end; i++)
          indexed = data->item_ends[i];
      else
        indexed = SINKS + (end - SINKS) / 16 * 16;
      for (guint i = 0; i < n; i++)
        n_recent += rows[i] >= indexed && rows[i] < end;
      g_assert_cmpuint (n_recent, ==, end - indexed);
    }
}

/* Fed one by one or read at once as a prompt, it is the same. */
static void
test_streamed (void)
{
  static const Policy *const policies[] = { &policy_quest, &policy_token, &policy_token_drop,
    &policy_chunk };

  for (guint p = 0; p < G_N_ELEMENTS (policies); p++) {
    g_autoptr (Data) data = data_new (1000, 16, 2, 10);
    g_autoptr (PolicyState) one = make_state (policies[p], data, 1000, 1000);
    g_autoptr (PolicyState) other = make_state (policies[p], data, 100, 1000);
    float output[2 * 16], streamed[2 * 16];
    guint n, n_streamed;
    g_autofree guint32 *rows = answer (one, data, 1000, 222, output, &n);
    g_autofree guint32 *others = answer (other, data, 1000, 222, streamed, &n_streamed);

    assert_same_rows (rows, n, others, n_streamed);
    g_assert_cmpmem (output, sizeof output, streamed, sizeof streamed);
  }
}

static void
test_bytes (void)
{
  g_autoptr (Data) data = data_new (16 + 64 + 160, 32, 1, 11);
  g_autoptr (PolicyState) quest = make_state (&policy_quest, data, data->n, data->n);
  g_autoptr (PolicyState) clusterkv = make_state (&policy_clusterkv, data, data->n, data->n);
  g_autoptr (PolicyState) window = make_state (&policy_window, data, data->n, data->n);

  g_assert_cmpuint (policy_state_get_bytes (quest), ==, 10 * 2 * 32 * 2);
  /* 224 tokens in two clusters: means, where they begin, and row numbers */
  g_assert_cmpuint (policy_state_get_bytes (clusterkv), ==, 2 * (2 * 32 + 2 + 224));
  g_assert_cmpuint (policy_state_get_bytes (window), ==, 0);
}

static void
test_names (void)
{
  for (const Policy *const *policy = policy_list (); *policy; policy++)
    g_assert_true (policy_find ((*policy)->name) == *policy);
  g_assert_null (policy_find ("queste"));
}

static void
add_case (const char *group, const Policy *policy, guint shape, GTestDataFunc func)
{
  Case *c = g_new (Case, 1);
  g_autofree char *path = g_strdup_printf (
      "/policies/%s/%s/%u-of-%u", group, policy->name, shapes[shape].budget, shapes[shape].n_keys);

  *c = (Case){ policy, shapes[shape].n_prompt, shapes[shape].n_keys, shapes[shape].budget,
    shapes[shape].dim, shapes[shape].group };
  g_test_add_data_func_full (path, c, func, g_free);
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, NULL);
  g_test_add_func ("/policies/exact/output", test_exact_output);
  g_test_add_func ("/policies/exact/mass", test_exact_mass);
  g_test_add_func ("/policies/exact/error", test_exact_error);
  g_test_add_func ("/policies/rank/brute", test_rank_brute);
  g_test_add_func ("/policies/rank/equals", test_rank_equals);
  g_test_add_func ("/policies/rank/heads", test_rank_heads);
  g_test_add_func ("/policies/window", test_window);
  g_test_add_func ("/policies/oracle", test_oracle);
  g_test_add_func ("/policies/oracle-beats-all", test_oracle_beats_all);
  g_test_add_func ("/policies/index-lag", test_index_lag);
  g_test_add_func ("/policies/streamed", test_streamed);
  g_test_add_func ("/policies/bytes", test_bytes);
  g_test_add_func ("/policies/names", test_names);
  for (guint shape = 0; shape < G_N_ELEMENTS (shapes); shape++) {
    for (const Policy *const *policy = policy_list (); *policy; policy++) {
      add_case ("budget", *policy, shape, test_budget);
      add_case ("output", *policy, shape, test_output);
      add_case ("build", *policy, shape, test_build);
      add_case ("copy", *policy, shape, test_copy);
      if ((*policy)->select)
        add_case ("partition", *policy, shape, test_partition);
    }
    if (shapes[shape].n_keys > shapes[shape].budget) {
      add_case ("twin", &policy_quest, shape, test_quest);
      add_case ("twin", &policy_clusterkv, shape, test_clusterkv);
    }
  }
  return g_test_run ();
}
