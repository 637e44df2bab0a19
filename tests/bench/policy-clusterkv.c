/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* ClusterKV (Liu et al. 2024, arXiv 2412.03213): the keys of the prompt are clustered once, by
 * k-means with cosine similarity, 80 tokens a cluster; later keys when 320 more are there, into 4
 * clusters of their own, and until then they are read. A cluster ranks by q times its mean key. */

#include "lychee-index-private.h"
#include "policies.h"

#include <math.h>
#include <string.h>

#define CLUSTER_TOKENS 80
#define STEP_TOKENS 320
#define MAX_ROUNDS 20
#define BLOCK_ROWS 256

typedef struct {
  PolicySpec spec;
  GRand *rand;
  guint end;      /* rows that are in a cluster */
  GArray *means;  /* of float [cluster][head_dim] */
  GArray *starts; /* of guint: where a cluster's rows begin in @rows; the next one's is their end */
  GArray *rows;   /* of guint32 */
} ClusterKV;

static gpointer
clusterkv_open (const PolicySpec *spec, gconstpointer params)
{
  ClusterKV *state = g_new (ClusterKV, 1);

  *state = (ClusterKV){ *spec, g_rand_new_with_seed (spec->seed), spec->sinks,
    g_array_new (FALSE, FALSE, sizeof (float)), g_array_new (FALSE, FALSE, sizeof (guint)),
    g_array_new (FALSE, FALSE, sizeof (guint32)) };
  return state;
}

static gpointer
clusterkv_copy (gconstpointer from)
{
  ClusterKV *state = g_memdup2 (from, sizeof *state);

  state->rand = g_rand_copy (state->rand);
  state->means = g_array_copy (state->means);
  state->starts = g_array_copy (state->starts);
  state->rows = g_array_copy (state->rows);
  return state;
}

static void
clusterkv_close (gpointer data)
{
  ClusterKV *state = data;

  g_rand_free (state->rand);
  g_array_unref (state->means);
  g_array_unref (state->starts);
  g_array_unref (state->rows);
  g_free (state);
}

/* Puts each key to the centre of the smallest angle; returns how many went elsewhere than before.
 * @units: the centres' directions. */
static guint
assign (const guint16 *const *keys, guint n, const float *units, guint n_clusters, guint d,
    guint *cluster)
{
  const LycheeCpuKernels *kernels = lychee_cpu_kernels_get ();
  g_autofree float *dots = g_new (float, (gsize) BLOCK_ROWS *n_clusters);
  guint n_moved = 0;

  for (guint at = 0; at < n; at += BLOCK_ROWS) {
    guint n_block = MIN (BLOCK_ROWS, n - at);

    kernels->dot_rows (keys + at, n_block, units, n_clusters, d, dots);
    for (guint i = 0; i < n_block; i++) {
      const float *dot = dots + (gsize) i * n_clusters;
      guint best = 0;

      for (guint c = 1; c < n_clusters; c++)
        best = dot[c] > dot[best] ? c : best;
      n_moved += cluster[at + i] != best;
      cluster[at + i] = best;
    }
  }
  return n_moved;
}

/* Means of the clusters that have keys; the others stay what they were. */
static void
average (const guint16 *const *keys, guint n, guint n_clusters, guint d, const guint *cluster,
    guint *sizes, float *means)
{
  const LycheeCpuKernels *kernels = lychee_cpu_kernels_get ();
  g_autofree double *sums = g_new0 (double, (gsize) n_clusters *d);

  memset (sizes, 0, n_clusters * sizeof *sizes);
  for (guint i = 0; i < n; i++) {
    double *sum = sums + (gsize) cluster[i] * d;
    float key[256];

    kernels->f16_to_f32 (keys[i], key, d);
    for (guint j = 0; j < d; j++)
      sum[j] += key[j];
    sizes[cluster[i]]++;
  }
  for (guint c = 0; c < n_clusters; c++)
    for (guint j = 0; j < d && sizes[c] > 0; j++)
      means[(gsize) c * d + j] = sums[(gsize) c * d + j] / sizes[c];
}

static void
normalise (const float *means, guint n_clusters, guint d, float *units)
{
  for (guint c = 0; c < n_clusters; c++, means += d, units += d) {
    double square = 0;

    for (guint j = 0; j < d; j++)
      square += (double) means[j] * means[j];
    for (guint j = 0; j < d; j++)
      units[j] = square > 0 ? means[j] / sqrt (square) : 0;
  }
}

/* Clusters the next @n rows among themselves. */
static void
cluster_rows (ClusterKV *state, const LycheeRows *rows, guint n, guint n_clusters)
{
  const LycheeCpuKernels *kernels = lychee_cpu_kernels_get ();
  guint d = state->spec.head_dim, first = state->end;
  g_autofree const guint16 **keys = g_new (const guint16 *, n);
  g_autofree guint32 *shuffled = g_new (guint32, n);
  g_autofree guint *cluster = g_new (guint, n);
  g_autofree guint *sizes = g_new (guint, n_clusters);
  g_autofree float *means = g_new (float, (gsize) n_clusters *d);
  g_autofree float *units = g_new (float, (gsize) n_clusters *d);

  for (guint i = 0; i < n; i++) {
    keys[i] = lychee_rows_key (rows, d, first + i);
    shuffled[i] = i;
    cluster[i] = G_MAXUINT;
  }
  /* The first centres are keys drawn at random, each once. */
  for (guint c = 0; c < n_clusters; c++) {
    guint at = g_rand_int_range (state->rand, c, n);
    guint32 drawn = shuffled[at];

    shuffled[at] = shuffled[c];
    shuffled[c] = drawn;
    kernels->f16_to_f32 (keys[drawn], means + (gsize) c * d, d);
  }
  for (guint round = 0; round < MAX_ROUNDS; round++) {
    normalise (means, n_clusters, d, units);
    if (assign (keys, n, units, n_clusters, d, cluster) == 0)
      break;
    average (keys, n, n_clusters, d, cluster, sizes, means);
  }
  for (guint c = 0; c < n_clusters; c++) {
    if (sizes[c] == 0)
      continue;
    g_array_append_vals (state->means, means + (gsize) c * d, d);
    g_array_append_val (state->starts, state->rows->len);
    for (guint i = 0; i < n; i++)
      if (cluster[i] == c) {
        guint32 row = first + i;

        g_array_append_val (state->rows, row);
      }
  }
  state->end += n;
}

static void
clusterkv_prefill (gpointer data, const LycheeRows *rows, guint n_tokens)
{
  ClusterKV *state = data;
  guint n = n_tokens > state->end ? n_tokens - state->end : 0;

  if (n > 0)
    cluster_rows (state, rows, n, MAX (n / CLUSTER_TOKENS, 1));
}

static void
clusterkv_feed (gpointer data, const LycheeRows *rows, guint n_tokens)
{
  ClusterKV *state = data;

  while (n_tokens >= state->end + STEP_TOKENS)
    cluster_rows (state, rows, STEP_TOKENS, STEP_TOKENS / CLUSTER_TOKENS);
}

static gsize
clusterkv_get_bytes (gconstpointer data)
{
  const ClusterKV *state = data;

  return ((gsize) state->means->len + state->rows->len + state->starts->len) * sizeof (guint16);
}

static void
clusterkv_select (gpointer data, const PolicyQuery *query, guint begin, guint end, guint budget,
    PolicyChoice *choice)
{
  const LycheeCpuKernels *kernels = lychee_cpu_kernels_get ();
  ClusterKV *state = data;
  guint n = state->starts->len, n_heads = query->queries->n_queries;
  const guint *starts = (const guint *) (gconstpointer) state->starts->data;
  g_autofree float *zeros = g_new0 (float, n);
  g_autofree float *z = g_new (float, (gsize) n_heads *n);
  g_autofree guint *sizes = g_new (guint, n);
  g_autofree guint32 *order = g_new (guint32, n);

  /* Those in no cluster yet, the newest if there are too many. */
  for (guint row = end; row > MAX (state->end, begin) && choice->n_rows < budget; row--)
    choice->rows[choice->n_rows++] = row - 1;
  if (choice->n_rows == budget)
    return;
  for (guint c = 0; c < n; c++)
    sizes[c] = (c + 1 < n ? starts[c + 1] : state->rows->len) - starts[c];
  kernels->score_nodes (
      query->queries, (const float *) (gconstpointer) state->means->data, NULL, zeros, n, z, n);
  policy_rank (z, n_heads, n, sizes, n, order);
  for (guint i = 0; i < n; i++)
    for (guint j = 0; j < sizes[order[i]] && choice->n_rows < budget; j++) {
      guint32 row = g_array_index (state->rows, guint32, starts[order[i]] + j);

      if (row < end) /* else it is read with the window */
        choice->rows[choice->n_rows++] = row;
    }
  choice->nodes_scored = n;
}

/* u32 n_clusters, n_rows; u32 start[n_clusters]; u32 row[n_rows]. */
static void
clusterkv_write (gconstpointer data, GByteArray *to)
{
  const ClusterKV *state = data;
  const guint32 header[2] = { state->starts->len, state->rows->len };

  g_byte_array_append (to, (const guint8 *) header, sizeof header);
  g_byte_array_append (
      to, (const guint8 *) state->starts->data, state->starts->len * sizeof (guint));
  g_byte_array_append (to, (const guint8 *) state->rows->data, state->rows->len * sizeof (guint32));
}

const Policy policy_clusterkv = {
  .name = "clusterkv",
  .summary = "ClusterKV: k-means clusters of 80 tokens, ranked by their mean keys",
  .open = clusterkv_open,
  .copy = clusterkv_copy,
  .close = clusterkv_close,
  .prefill = clusterkv_prefill,
  .feed = clusterkv_feed,
  .build = clusterkv_prefill,
  .get_bytes = clusterkv_get_bytes,
  .select = clusterkv_select,
  .write = clusterkv_write,
};
