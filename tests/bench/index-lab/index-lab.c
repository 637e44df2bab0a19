/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Error of the index's selections on real queries, keys and values that dump_qkv.py wrote.
 *
 * index-lab FILE [--budgets 256,512,1024] [--beam X] [--leaf N] [--coarse N] [--chunk N]
 *           [--granularity token|chunk] [--norest] [--fresh]
 *
 * Rows 16 .. first query - 64 are streamed into one index per head, @chunk at a time; sinks and the
 * window are read exactly and are inside the budget, as in a session. Error: |o - o'| / |o|, mean
 * over heads, queries and the group. */
#include "lychee-cpu-kernels.h"
#include "lychee-index-private.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define SINKS 16
#define WINDOW 64
#define PAGE_SHIFT 8

typedef struct {
  guint32 n_layers, n_kv, group, dim, n_tokens, n_queries;
  guint32 *layer, *position;
} Header;

static gchar *budgets_arg, *granularity_arg;
static gdouble beam;
static gint leaf, coarse, chunk = 12, bench, n_heads = 90, grow;
static gboolean norest, fresh, per_layer, expand;

static const GOptionEntry entries[] = { { "budgets", 0, 0, G_OPTION_ARG_STRING, &budgets_arg, NULL,
                                            NULL },
  { "granularity", 0, 0, G_OPTION_ARG_STRING, &granularity_arg, NULL, NULL },
  { "beam", 0, 0, G_OPTION_ARG_DOUBLE, &beam, NULL, NULL },
  { "leaf", 0, 0, G_OPTION_ARG_INT, &leaf, NULL, NULL },
  { "coarse", 0, 0, G_OPTION_ARG_INT, &coarse, NULL, NULL },
  { "chunk", 0, 0, G_OPTION_ARG_INT, &chunk, NULL, NULL },
  { "per-layer", 0, 0, G_OPTION_ARG_NONE, &per_layer, NULL, NULL },
  { "grow", 0, 0, G_OPTION_ARG_INT, &grow,
      "stream the first head's rows, over and over with noise, "
      "until there are N, and time that instead",
      "N" },
  { "heads", 0, 0, G_OPTION_ARG_INT, &n_heads, "heads to time", "N" },
  { "bench", 0, 0, G_OPTION_ARG_INT, &bench, "time N tokens instead", "N" },
  { "expand", 0, 0, G_OPTION_ARG_NONE, &expand, NULL, NULL },
  { "norest", 0, 0, G_OPTION_ARG_NONE, &norest, NULL, NULL },
  { "fresh", 0, 0, G_OPTION_ARG_NONE, &fresh, NULL, NULL }, { NULL } };

static double
now (void)
{
  struct timespec t;

  clock_gettime (CLOCK_THREAD_CPUTIME_ID, &t); /* others may be using the machine */
  return t.tv_sec + t.tv_nsec * 1e-9;
}

static void
attend_rows (const LycheeCpuKernels *kernels, const LycheeQueries *queries, const LycheeRows *rows,
    const guint32 *row, guint n, LycheeSoftmax *softmax)
{
  g_autofree const guint16 **keys = g_new (const guint16 *, n + 1);

  for (guint i = 0; i < n; i++)
    keys[i] = lychee_rows_key (rows, queries->head_dim, row[i]);
  kernels->attend_gather (queries, keys, rows->value_offset, n, softmax);
}

/* Times decoding: @bench tokens, 90 heads each, every head with an index and rows of its own, laid
 * out as a cache lays them out, and as much read in between as a layer's weights: caches are as
 * cold as they would be. Medians: the machine has other things to do. */
typedef struct {
  const guint16 *k, *v; /* [n_tokens][dim] */
  const float *q;
} Source;

#define WEIGHT_BYTES ((gsize) 3 << 20) /* of a layer, read by two threads */

typedef struct {
  GArray *search, *read, *rest;
} Times;

static int
compare_doubles (gconstpointer a, gconstpointer b)
{
  double x = *(const double *) a, y = *(const double *) b;

  return (x > y) - (x < y);
}

static double
median (GArray *times)
{
  g_array_sort (times, compare_doubles);
  return g_array_index (times, double, times->len / 2) * 1e6;
}

static void
run_bench (GArray *sources, const Header *h, guint end, char **budgets)
{
  const LycheeCpuKernels *kernels = lychee_cpu_kernels_get ();
  g_autoptr (LycheeSelection) selection = lychee_selection_new ();
  guint gn = h->group, dim = h->dim, n_pages = (h->n_tokens >> PAGE_SHIFT) + 1;
  g_autofree float *m = g_new (float, gn), *l = g_new (float, gn);
  g_autofree float *o = g_new (float, gn *dim);
  g_autofree LycheeIndex **index = g_new (LycheeIndex *, n_heads);
  g_autofree const guint16 **pages = g_new (const guint16 *, (gsize) n_heads *n_pages);
  g_autofree guint64 *weights = g_malloc (WEIGHT_BYTES * n_heads / 3);
  LycheeSoftmax softmax = { m, l, o };
  gsize head_size = (gsize) dim << PAGE_SHIFT, page_size = head_size * 2 * n_heads;
  volatile guint64 sink = 0;
  double append = 0;

  memset (weights, 1, WEIGHT_BYTES * n_heads / 3);
  for (guint p = 0; p < n_pages; p++) {
    gpointer page;

    if (posix_memalign (&page, 2 << 20, page_size * 2 + (2 << 20)) != 0)
      g_error ("no memory");
    madvise (page, page_size * 2 + (2 << 20), MADV_HUGEPAGE);
    for (gint i = 0; i < n_heads; i++)
      pages[(gsize) i * n_pages + p] = (guint16 *) page + i * 2 * head_size;
  }
  for (gint i = 0; i < n_heads; i++) {
    const Source *source = &g_array_index (sources, Source, i % sources->len);
    LycheeRows rows = { pages + (gsize) i * n_pages, PAGE_SHIFT, head_size };
    LycheeIndexParams params = { .granularity = LYCHEE_GRANULARITY_TOKEN,
      .head_dim = dim,
      .scale = 1 / sqrtf (dim),
      .leaf_capacity = leaf,
      .coarse_capacity = coarse,
      .seed = i };

    for (guint row = 0; row < h->n_tokens; row++) {
      guint16 *to = (guint16 *) lychee_rows_key (&rows, dim, row);

      memcpy (to, source->k + (gsize) row * dim, 2 * dim);
      memcpy (to + head_size, source->v + (gsize) row * dim, 2 * dim);
    }
    index[i] = lychee_index_new (&params);
  }
  for (guint row = SINKS; row < end; row += chunk)
    for (gint i = 0; i < n_heads; i++) {
      LycheeRows rows = { pages + (gsize) i * n_pages, PAGE_SHIFT, head_size };
      GError *error = NULL;
      double t = now ();

      if (!lychee_index_append (index[i], &rows, row, MIN ((guint) chunk, end - row), &error))
        g_error ("%s", error->message);
      if (row + 1200 > end)
        append += (now () - t) / MIN (1200, end - SINKS) / n_heads;
    }
  g_print ("append %.2f us a row and head\n", append * 1e6);
  for (; *budgets; budgets++) {
    Times times;
    double scored = 0, groups = 0;
    guint budget = atoi (*budgets) - SINKS - WINDOW;

    times.search = g_array_new (FALSE, FALSE, sizeof (double));
    times.read = g_array_new (FALSE, FALSE, sizeof (double));
    times.rest = g_array_new (FALSE, FALSE, sizeof (double));
    for (gint token = 0; token < bench; token++)
      for (gint i = 0; i < n_heads; i++) {
        const Source *source = &g_array_index (sources, Source, i % sources->len);
        LycheeRows rows = { pages + (gsize) i * n_pages, PAGE_SHIFT, head_size };
        const float *q = source->q + (gsize) (token % h->n_queries) * gn * dim;
        LycheeIndexQuery query = { gn, q, budget, beam, !norest, TRUE };
        LycheeQueries queries = { gn, dim, index[i]->params.scale, q };
        double t0, t1, t2, t3;

        if (i % 3 == 0)
          for (gsize w = 0; w < WEIGHT_BYTES / 8; w += 8)
            sink += weights[(i / 3 * WEIGHT_BYTES) / 8 + w];
        t0 = now ();
        lychee_index_search (index[i], &rows, &query, selection);
        t1 = now ();
        lychee_softmax_init (&softmax, gn, dim);
        attend_rows (kernels, &queries, &rows, selection->rows, selection->n_rows, &softmax);
        t2 = now ();
        lychee_index_attend_rest (index[i], &query, selection, &softmax);
        t3 = now ();
        t3 -= t2;
        t2 -= t1;
        t1 -= t0;
        g_array_append_val (times.search, t1);
        g_array_append_val (times.read, t2);
        g_array_append_val (times.rest, t3);
        scored += selection->nodes_scored;
        groups += selection->n_rest;
      }
    g_print (
        "%u rows a head, budget %u, a head and token: search %.1f us, read %.1f us, rest %.1f us; "
        "scored %.0f, groups %.0f\n",
        lychee_index_get_end (index[0]), budget, median (times.search), median (times.read),
        median (times.rest), scored / bench / n_heads, groups / bench / n_heads);
  }
}

static void
run_grow (const LycheeIndexParams *params, const guint16 *k, const guint16 *v, guint n_tokens)
{
  const LycheeCpuKernels *kernels = lychee_cpu_kernels_get ();
  g_autoptr (LycheeIndex) index = lychee_index_new (params);
  g_autoptr (GPtrArray) pages = g_ptr_array_new_with_free_func (g_free);
  g_autoptr (GRand) rand = g_rand_new_with_seed (1);
  guint dim = params->head_dim, last = 0;
  LycheeRows rows = { NULL, PAGE_SHIFT, (gsize) dim << PAGE_SHIFT };
  g_autofree float *x = g_new (float, dim);
  double time = 0, longest = 0;

  for (guint first = 0; first < (guint) grow; first += chunk) {
    GError *error = NULL;
    double t;

    for (guint i = first; i < first + chunk; i++) {
      guint16 *at;

      if (i >> PAGE_SHIFT == pages->len)
        g_ptr_array_add (pages, g_new (guint16, (gsize) dim << (PAGE_SHIFT + 1)));
      rows.pages = (const guint16 *const *) pages->pdata;
      at = (guint16 *) lychee_rows_key (&rows, dim, i);
      kernels->f16_to_f32 (k + (gsize) (i % n_tokens) * dim, x, dim);
      for (guint d = 0; d < dim; d++)
        x[d] += (float) g_rand_double_range (rand, -0.3, 0.3);
      kernels->f32_to_f16 (x, at, dim);
      memcpy (at + rows.value_offset, v + (gsize) (i % n_tokens) * dim, 2 * dim);
    }
    t = now ();
    if (!lychee_index_append (index, &rows, first, chunk, &error))
      g_error ("%s", error->message);
    t = now () - t;
    time += t;
    longest = MAX (longest, t);
    if ((first + chunk) / 31250 != first / 31250 &&
        !((first + chunk) / 31250 & ((first + chunk) / 31250 - 1))) {
      LycheeIndexStats stats;

      lychee_index_get_stats (index, &stats);
      g_print ("%7u rows: append %.2f us a row, longest %.0f us; %.2f bytes a row; depth %u\n",
          first + chunk, time / (first + chunk - last) * 1e6, longest * 1e6,
          (double) lychee_index_get_bytes (index) / (first + chunk), stats.depth);
      time = longest = 0;
      last = first + chunk;
    }
  }
}

int
main (int argc, char **argv)
{
  g_autoptr (GOptionContext) context = g_option_context_new ("FILE");
  g_autoptr (GError) error = NULL;
  g_autoptr (LycheeSelection) selection = lychee_selection_new ();
  const LycheeCpuKernels *kernels = lychee_cpu_kernels_get ();
  g_auto (GStrv) budgets = NULL;
  Header h;
  FILE *file;
  char magic[8];
  gsize page_rows = 1u << PAGE_SHIFT, bytes = 0;
  double errors[8] = { 0 }, layer_errors[8] = { 0 }, scored[8] = { 0 }, rests[8] = { 0 };
  double append_time = 0, search_time[8] = { 0 }, longest = 0;
  double refs = 0, n_appends = 0;
  guint n_budgets, end;
  LycheeIndexStats sum = { 0 };

  g_option_context_add_main_entries (context, entries, NULL);
  if (!g_option_context_parse (context, &argc, &argv, &error) || argc != 2)
    g_error ("%s", error ? error->message : "usage: index-lab FILE");
  budgets = g_strsplit (budgets_arg ? budgets_arg : "256,512,1024", ",", 8);
  n_budgets = g_strv_length (budgets);
  file = fopen (argv[1], "rb");
  if (!file || fread (magic, 8, 1, file) != 1 || memcmp (magic, "LYQKV1\0", 8) ||
      fread (&h, 24, 1, file) != 1)
    g_error ("%s: no such file, or not ours", argv[1]);
  h.layer = g_new (guint32, h.n_layers);
  h.position = g_new (guint32, h.n_queries);
  if (fread (h.layer, 4, h.n_layers, file) != h.n_layers ||
      fread (h.position, 4, h.n_queries, file) != h.n_queries)
    g_error ("cut short");
  end = h.position[0] - WINDOW;

  {
    gsize row = h.dim, head = (gsize) h.n_tokens * row,
          n_pages = (h.n_tokens + page_rows - 1) / page_rows;
    g_autofree guint16 *k = g_new (guint16, h.n_kv * head);
    g_autofree guint16 *v = g_new (guint16, h.n_kv * head);
    g_autofree float *q = g_new (float, (gsize) h.n_kv *h.n_queries *h.group *row);
    guint16 *store = NULL;
    const guint16 **pages = NULL;
    g_autoptr (GArray) sources = g_array_new (FALSE, FALSE, sizeof (Source));
    g_autofree guint32 *list = g_new (guint32, h.n_tokens);
    guint gn = h.group;
    g_autofree float *m = g_new (float, 2 * gn), *l = g_new (float, 2 * gn);
    g_autofree float *o = g_new (float, 4 * gn * row);
    LycheeSoftmax exact = { m, l, o }, ours = { m + gn, l + gn, o + gn * row };
    float *out = o + 2 * gn * row, *out2 = out + gn * row;

    for (guint layer = 0; layer < h.n_layers; layer++) {
      if (fread (k, 2, h.n_kv * head, file) != h.n_kv * head ||
          fread (v, 2, h.n_kv * head, file) != h.n_kv * head ||
          fread (q, 4, (gsize) h.n_kv * h.n_queries * gn * row, file) == 0)
        g_error ("cut short");
      memset (layer_errors, 0, sizeof layer_errors);
      for (guint head_i = 0; head_i < h.n_kv; head_i++) {
        LycheeRows rows = { NULL, PAGE_SHIFT, page_rows * row };
        LycheeIndexParams params = { .granularity = g_strcmp0 (granularity_arg, "chunk")
                                                        ? LYCHEE_GRANULARITY_TOKEN
                                                        : LYCHEE_GRANULARITY_CHUNK,
          .head_dim = h.dim,
          .scale = 1 / sqrtf (h.dim),
          .leaf_capacity = leaf,
          .coarse_capacity = coarse,
          .seed = layer * h.n_kv + head_i };
        LycheeIndex *index = lychee_index_new (&params);
        LycheeIndexStats stats;
        double t;

        if (grow) {
          run_grow (&params, k + head_i * head, v + head_i * head, h.n_tokens);
          return 0;
        }
        if (bench) {
          Source source = { g_memdup2 (k + head_i * head, head * sizeof *k),
            g_memdup2 (v + head_i * head, head * sizeof *v),
            g_memdup2 (q + (gsize) head_i * h.n_queries * gn * row,
                (gsize) h.n_queries * gn * row * sizeof *q) };

          g_array_append_val (sources, source);
          lychee_index_free (index);
          continue;
        }
        if (!store) {
          store = g_new (guint16, n_pages * page_rows * 2 * row);
          pages = g_new (const guint16 *, n_pages);
          for (gsize p = 0; p < n_pages; p++)
            pages[p] = store + p * page_rows * 2 * row;
        }
        rows.pages = pages;
        for (guint i = 0; i < h.n_tokens; i++) {
          guint16 *at = (guint16 *) lychee_rows_key (&rows, h.dim, i);

          memcpy (at, k + head_i * head + i * row, row * 2);
          memcpy (at + rows.value_offset, v + head_i * head + i * row, row * 2);
        }
        for (guint i = SINKS; i < end; i += chunk) {
          t = now ();
          if (!lychee_index_append (index, &rows, i, MIN ((guint) chunk, end - i), &error))
            g_error ("%s", error->message);
          t = now () - t;
          append_time += t;
          longest = MAX (longest, t);
          n_appends++;
        }
        if (fresh && !index->chunks)
          lychee_tree_rebuild (index, &rows);
        bytes += lychee_index_get_bytes (index);
        lychee_index_get_stats (index, &stats);
        sum.n_leaves += stats.n_leaves;
        sum.n_coarse += stats.n_coarse;
        sum.depth = MAX (sum.depth, stats.depth);
        sum.splits += stats.splits;
        sum.rebuilds += stats.rebuilds;
        sum.rows_rebuilt += stats.rows_rebuilt;
        for (guint qi = 0; qi < h.n_queries; qi++) {
          const float *query = q + ((gsize) head_i * h.n_queries + qi) * gn * row;
          LycheeQueries queries = { gn, h.dim, params.scale, query };
          guint p = h.position[qi], n_exact = 0;

          for (guint i = 0; i <= p; i++)
            list[i] = i;
          lychee_softmax_init (&exact, gn, h.dim);
          attend_rows (kernels, &queries, &rows, list, p + 1, &exact);
          lychee_softmax_finish (&exact, gn, h.dim, out);
          for (guint i = 0; i <= p; i = i + 1 == SINKS ? end : i + 1)
            list[n_exact++] = i;
          for (guint b = 0; b < n_budgets; b++) {
            LycheeIndexQuery search = { gn, query, atoi (budgets[b]) - SINKS - WINDOW, beam,
              !norest, !expand };
            double err = 0;

            t = now ();
            lychee_index_search (index, &rows, &search, selection);
            search_time[b] += now () - t;
            scored[b] += selection->nodes_scored;
            rests[b] += selection->n_rest;
            lychee_softmax_init (&ours, gn, h.dim);
            attend_rows (kernels, &queries, &rows, list, n_exact, &ours);
            attend_rows (kernels, &queries, &rows, selection->rows, selection->n_rows, &ours);
            if (expand)
              kernels->attend_groups (&queries, selection->rest_k, selection->rest_v,
                  selection->rest_log_n, selection->n_rest, &ours);
            else
              lychee_index_attend_rest (index, &search, selection, &ours);
            lychee_softmax_finish (&ours, gn, h.dim, out2);
            for (guint g = 0; g < gn; g++) {
              double d2 = 0, o2 = 0;

              for (guint d = 0; d < h.dim; d++) {
                double x = out[g * row + d], y = out2[g * row + d];

                d2 += (x - y) * (x - y);
                o2 += x * x;
              }
              err += sqrt (d2 / o2) / gn;
            }
            errors[b] += err;
            layer_errors[b] += err / h.n_queries / h.n_kv;
          }
          refs++;
        }
        lychee_index_free (index);
      }
      if (per_layer) {
        g_print ("layer %2u:", h.layer[layer]);
        for (guint b = 0; b < n_budgets; b++)
          g_print (" %.4f", layer_errors[b]);
        g_print ("\n");
      }
    }
    if (bench) {
      run_bench (sources, &h, end, budgets);
      return 0;
    }
  }
  {
    double heads = h.n_layers * h.n_kv, tokens = heads * (end - SINKS);

    g_print ("%s: %u rows a head, %s\n", argv[1], end - SINKS, fresh ? "built afresh" : "streamed");
    for (guint b = 0; b < n_budgets; b++)
      g_print ("budget %5s: error %.4f, scored %.0f, rest groups %.0f, search %.1f us\n",
          budgets[b], errors[b] / refs, scored[b] / refs, rests[b] / refs,
          search_time[b] / refs * 1e6);
    g_print (
        "leaves %.0f, coarse %.0f, depth %u, splits %.0f, rebuilds %.0f, 2-means visits %.1f a "
        "token\n",
        sum.n_leaves / heads, sum.n_coarse / heads, sum.depth, sum.splits / heads,
        sum.rebuilds / heads, sum.rows_rebuilt / tokens);
    g_print (
        "%.2f bytes a token: %.2f %% of the f16 cache; append %.2f us a token, longest %.0f us\n",
        bytes / tokens, 100 * bytes / tokens / (4 * h.dim), append_time / tokens * 1e6,
        longest * 1e6);
  }
  return 0;
}
