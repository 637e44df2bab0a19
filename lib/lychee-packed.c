/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "lychee-packed.h"

#include <math.h>
#include <string.h>

/* A distance is turned by in two steps, whose tables stay in a processor's cache. */
#define LOW_BITS 6
#define LOW (1u << LOW_BITS)
#define MAX_PAIRS 128

struct _LycheePacked {
  const LycheeCpuKernels *kernels;
  guint head_dim;
  guint n_pairs;
  gboolean halves;
  guint farthest;
  double frequency[MAX_PAIRS];
  double factor;
  /* [distance][2][n]: cosines, sines of turning back by it, as turn_rows of LycheeCpuKernels has
   * them */
  guint n;
  float *low;  /* of 0 .. LOW - 1, times the factor */
  float *high; /* of 0, LOW, 2 LOW, ... */
};

static inline void
set_angle (const LycheePacked *p, guint pair, double angle, double size, float *turn)
{
  float c = size * cos (angle), s = size * sin (angle);

  if (p->halves) {
    turn[pair] = c;
    turn[p->n + pair] = s;
  } else {
    turn[2 * pair] = turn[2 * pair + 1] = c;
    turn[p->n + 2 * pair] = -s;
    turn[p->n + 2 * pair + 1] = s;
  }
}

static void
set_angles (const LycheePacked *p, double position, double factor, float *turn)
{
  for (guint i = 0; i < p->n_pairs; i++)
    set_angle (p, i, fmod (position * p->frequency[i], 2 * G_PI), factor, turn);
}

LycheePacked *
lychee_packed_new (
    const double *frequency, guint n_pairs, gboolean halves, guint head_dim, guint farthest)
{
  LycheePacked *p = g_new0 (LycheePacked, 1);
  guint n_high = (farthest >> LOW_BITS) + 1;

  g_assert (n_pairs <= MAX_PAIRS && 2 * n_pairs <= head_dim);
  p->kernels = lychee_cpu_kernels_get ();
  p->head_dim = head_dim;
  p->n_pairs = n_pairs;
  p->halves = halves;
  p->farthest = farthest;
  memcpy (p->frequency, frequency, n_pairs * sizeof *frequency);
  p->factor = frequency[n_pairs];
  p->n = halves ? n_pairs : 2 * n_pairs;
  p->low = g_new (float, (gsize) LOW * 2 * p->n);
  p->high = g_new (float, (gsize) n_high * 2 * p->n);
  for (guint i = 0; i < LOW; i++)
    set_angles (p, -(double) i, p->factor, p->low + (gsize) i * 2 * p->n);
  for (guint i = 0; i < n_high; i++)
    set_angles (p, -(double) i * LOW, 1, p->high + (gsize) i * 2 * p->n);
  return p;
}

void
lychee_packed_free (LycheePacked *p)
{
  g_free (p->low);
  g_free (p->high);
  g_free (p);
}

#define KEYS 64 /* at a time */

void
lychee_packed_turn_rows (const LycheePacked *p, LycheeRowForm form, const guint16 *const *rows,
    const guint32 *distances, guint n, guint16 *to)
{
  const LycheeCpuKernels *kernels = lychee_cpu_kernels_for (p->kernels, form);

  for (guint from = 0, some; from < n; from += some) {
    const float *low[KEYS], *high[KEYS];

    some = MIN (n - from, KEYS);
    for (guint k = 0; k < some; k++) {
      guint distance = MIN (distances[from + k], p->farthest);

      low[k] = p->low + (gsize) (distance & (LOW - 1)) * 2 * p->n;
      high[k] = p->high + (gsize) (distance >> LOW_BITS) * 2 * p->n;
    }
    kernels->turn_rows (rows + from, some, p->head_dim, p->n_pairs, p->halves, low, high,
        to + (gsize) from * p->head_dim);
  }
}

guint
lychee_packed_turn_size (const LycheePacked *p)
{
  return 2 * p->n;
}

void
lychee_packed_set_turn (const LycheePacked *p, gint64 position, guint behind, float *turn)
{
  set_angles (p, -(double) position - behind, 1, turn);
}

void
lychee_packed_set_back (const LycheePacked *p, gint64 position, float *turn)
{
  set_angles (p, -(double) position, 1 / p->factor, turn);
}

void
lychee_packed_set_aim (
    const LycheePacked *p, gint64 position, guint nearest, guint farthest, float *turn)
{
  double middle = (nearest + (double) farthest) / 2, width = (double) farthest - nearest + 1;

  for (guint i = 0; i < p->n_pairs; i++) {
    /* The mean of exp (i f d) over the distances: a sum of a geometric series, divided by how many
     * they are. Keys are not multiplied with the factor, which the query has once. */
    double half = p->frequency[i] / 2, below = sin (half);
    double size = p->factor * (fabs (below) < 1e-12 ? 1 : sin (width * half) / (width * below));

    set_angle (p, i, fmod ((middle - position) * p->frequency[i], 2 * G_PI), size, turn);
  }
}

void
lychee_packed_turn (const LycheePacked *p, const float *turn, const float *q, guint n, float *to)
{
  if (to != q)
    memcpy (to, q, (gsize) n * p->head_dim * sizeof *q);
  for (guint i = 0; i < n; i++, to += p->head_dim)
    p->kernels->turn_keys (
        to, 1, p->head_dim, p->n_pairs, p->halves, &turn, (const float *const[]){ p->high });
}

void
lychee_packed_turn_back (const LycheePacked *p, gint64 position, guint n, float *keys)
{
  g_autofree float *high = g_new (float, 2 * (gsize) p->n);

  for (guint from = 0, some; from < n; from += some) {
    const float *lows[KEYS], *highs[KEYS];

    some = MIN (n - from, MIN (KEYS, LOW));
    /* The keys have the factor, and the table has it again. */
    set_angles (p, -(double) (position + from), 1 / (p->factor * p->factor), high);
    for (guint k = 0; k < some; k++) {
      lows[k] = p->low + (gsize) k * 2 * p->n;
      highs[k] = high;
    }
    p->kernels->turn_keys (
        keys + (gsize) from * p->head_dim, some, p->head_dim, p->n_pairs, p->halves, lows, highs);
  }
}

void
lychee_places_clear (LycheePlaces *places)
{
  g_clear_pointer (&places->bits, g_free);
  g_clear_pointer (&places->behind, g_free);
  places->n_words = 0;
}

guint
lychee_places_pack (LycheePlaces *places, const guint32 *from, guint n, guint origin, guint near,
    guint most, guint32 *distances)
{
  gsize n_words = origin > near ? (origin - near) / 64 + 1 : 0;
  guint32 n_far = 0;

  if (n_words > places->n_words) {
    places->n_words = n_words + n_words / 4;
    places->bits = g_renew (guint64, places->bits, places->n_words);
    places->behind = g_renew (guint32, places->behind, places->n_words);
  }
  if (n_words)
    memset (places->bits, 0, n_words * sizeof *places->bits);
  for (guint i = 0; i < n; i++)
    if (origin - from[i] > near)
      places->bits[from[i] / 64] |= G_GUINT64_CONSTANT (1) << from[i] % 64;
  for (gsize word = n_words; word-- > 0;) {
    places->behind[word] = n_far;
    n_far += __builtin_popcountll (places->bits[word]);
  }
  for (guint i = 0; i < n; i++) {
    guint distance = origin - from[i];

    if (distance > near) {
      guint64 word = places->bits[from[i] / 64];
      /* those of the same word that stand behind it */
      guint newer = __builtin_popcountll (word >> from[i] % 64 >> 1);

      distance = near + 1 + newer + places->behind[from[i] / 64];
    }
    distances[i] = MIN (distance, most);
  }
  return MIN (near + n_far, most);
}
