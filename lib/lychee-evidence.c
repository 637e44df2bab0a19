/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include "lychee-evidence.h"

#include "lychee-answer-private.h"

#include <math.h>

/* The first layers look at what is near and at how words are written, the last ones at what comes
 * next; those from 3 to 7 tenths of the depth find things. */
#define FIRST_TENTH 3
#define LAST_TENTH 7
#define ANSWER_FACTOR 0.1
/* Shares so far below a chunk's fair one count as that: the logarithm of nothing says nothing. */
#define LEAST_SHARE 0.04
/* So few of many are inserted one by one into what is to be the best. */
#define MAX_INSERTED 32

struct _LycheeEvidenceFinder {
  LycheeCache *cache;
  guint *places; /* [chunks][2]: where they begin and end */
  guint32 *bins;
  LycheeAttentionWeights weights;
  guint n_rows;                           /* [layers in the middle][heads] distributions */
  float *sums[LYCHEE_EVIDENCE_N_SOURCES]; /* [n_rows][chunks] */
};

LycheeEvidenceFinder *
lychee_evidence_finder_new (LycheeCache *cache, guint n_heads)
{
  LycheeEvidenceFinder *f = g_new0 (LycheeEvidenceFinder, 1);
  guint n_layers = lychee_cache_get_n_layers (cache);
  LycheeAttentionWeights *w = &f->weights;

  f->cache = g_object_ref (cache);
  f->places = lychee_cache_list_chunks (cache, &w->n_bins);
  w->first = f->places[0];
  w->n_rows = f->places[2 * w->n_bins - 1] - w->first;
  f->bins = g_new0 (guint32, w->n_rows);
  for (guint i = 0; i < w->n_bins; i++)
    for (guint at = f->places[2 * i]; at < f->places[2 * i + 1]; at++)
      f->bins[at - w->first] = i;
  w->bins = f->bins;
  w->layer_begin = n_layers * FIRST_TENTH / 10;
  w->layer_end = MAX (n_layers * LAST_TENTH / 10, w->layer_begin + 1);
  f->n_rows = (w->layer_end - w->layer_begin) * n_heads;
  for (guint i = 0; i < LYCHEE_EVIDENCE_N_SOURCES; i++)
    f->sums[i] = g_new0 (float, (gsize) f->n_rows * w->n_bins);
  return f;
}

void
lychee_evidence_finder_free (LycheeEvidenceFinder *f)
{
  for (guint i = 0; i < LYCHEE_EVIDENCE_N_SOURCES; i++)
    g_free (f->sums[i]);
  g_free (f->bins);
  g_free (f->places);
  g_object_unref (f->cache);
  g_free (f);
}

void
lychee_evidence_finder_watch (
    LycheeEvidenceFinder *f, LycheeWorker *worker, LycheeEvidenceSource source)
{
  f->weights.sum = f->sums[source];
  lychee_worker_set_weights (worker, &f->weights);
}

/* Adds what each chunk adds to the divergence of @sum from @base, a head's weights. */
static void
add_divergence (const float *sum, const float *base, guint n, double factor, double *score)
{
  double all = 0, all_base = 0, least = LEAST_SHARE / n;

  for (guint i = 0; i < n; i++) {
    all += sum[i];
    all_base += base[i];
  }
  if (!(all > 0 && all_base > 0))
    return;
  for (guint i = 0; i < n; i++) {
    double share = sum[i] / all;

    if (share == 0) /* sparse attention reads few chunks */
      continue;
    score[i] += factor * share * log ((share + least) / (base[i] / all_base + least));
  }
}

typedef struct {
  double weight;
  guint chunk;
} Found;

/* Best first; of equals the earlier. */
static int
compare_found (gconstpointer a, gconstpointer b)
{
  const Found *one = a, *other = b;

  if (one->weight != other->weight)
    return one->weight > other->weight ? -1 : 1;
  return one->chunk < other->chunk ? -1 : one->chunk > other->chunk;
}

/* Moves the best of @found to its front: not more than @n are wanted, of many. */
static void
sort_best (GArray *found, guint n)
{
  Found *best = (Found *) found->data;

  if (n > MAX_INSERTED) {
    g_array_sort (found, compare_found);
    return;
  }
  for (guint i = 0, n_best = 0; i < found->len; i++) {
    Found next = best[i];
    guint at = n_best;

    if (n_best == n && (n == 0 || compare_found (&best[n - 1], &next) < 0))
      continue;
    if (n_best < n)
      n_best++;
    else
      at--;
    for (; at > 0 && compare_found (&next, &best[at - 1]) < 0; at--)
      best[at] = best[at - 1];
    best[at] = next;
  }
}

double *
lychee_evidence_finder_get_weights (LycheeEvidenceFinder *f)
{
  guint n_chunks = f->weights.n_bins;
  double *weight = g_new0 (double, n_chunks), all = 0;

  for (guint row = 0; row < f->n_rows; row++) {
    gsize at = (gsize) row * n_chunks;
    const float *base = f->sums[LYCHEE_EVIDENCE_NOTHING] + at;

    add_divergence (f->sums[LYCHEE_EVIDENCE_QUESTION] + at, base, n_chunks, 1, weight);
    add_divergence (f->sums[LYCHEE_EVIDENCE_ANSWER] + at, base, n_chunks, ANSWER_FACTOR, weight);
  }
  for (guint i = 0; i < n_chunks; i++)
    all += MAX (weight[i], 0);
  for (guint i = 0; i < n_chunks; i++)
    weight[i] = weight[i] > 0 ? weight[i] / all : 0;
  return weight;
}

void
lychee_evidence_finder_get (LycheeEvidenceFinder *f, guint n, GPtrArray *evidence)
{
  g_autofree double *weight = lychee_evidence_finder_get_weights (f);
  g_autoptr (GArray) found = g_array_new (FALSE, FALSE, sizeof (Found));

  for (guint i = 0; i < f->weights.n_bins; i++)
    if (weight[i] > 0)
      g_array_append_val (found, ((Found){ weight[i], i }));
  sort_best (found, n);
  for (guint i = 0; i < MIN (n, found->len); i++) {
    const Found *next = &g_array_index (found, Found, i);
    g_autoptr (LycheeChunk) chunk = lychee_cache_get_chunk (f->cache, next->chunk, NULL);

    g_ptr_array_add (evidence,
        lychee_evidence_new (chunk, f->places[2 * next->chunk] - f->weights.first, next->weight));
  }
}
