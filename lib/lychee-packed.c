/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma GCC optimize("O3", "no-math-errno") /* pairs in vectors */
#include "lychee-packed.h"

#include "lychee-cpu-kernels.h"

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
  /* [distance][2][n_pairs]: cosines, sines of turning back by it */
  float *low;  /* of 0 .. LOW - 1, times the factor */
  float *high; /* of 0, LOW, 2 LOW, ... */
};

static void
set_angles (const LycheePacked *p, double position, double factor, float *turn)
{
  for (guint i = 0; i < p->n_pairs; i++) {
    double angle = fmod (position * p->frequency[i], 2 * G_PI);

    turn[i] = factor * cos (angle);
    turn[p->n_pairs + i] = factor * sin (angle);
  }
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
  p->low = g_new (float, (gsize) LOW * 2 * n_pairs);
  p->high = g_new (float, (gsize) n_high * 2 * n_pairs);
  for (guint i = 0; i < LOW; i++)
    set_angles (p, -(double) i, p->factor, p->low + (gsize) i * 2 * n_pairs);
  for (guint i = 0; i < n_high; i++)
    set_angles (p, -(double) i * LOW, 1, p->high + (gsize) i * 2 * n_pairs);
  return p;
}

void
lychee_packed_free (LycheePacked *p)
{
  g_free (p->low);
  g_free (p->high);
  g_free (p);
}

/* x + iy, times c + is, for each pair */
static inline void
turn_pairs (const LycheePacked *p, const float *restrict c, const float *restrict s,
    const float *from, float *to)
{
  guint n = p->n_pairs;

  if (p->halves) {
    for (guint i = 0; i < n; i++) {
      float x = from[i], y = from[i + n];

      to[i] = x * c[i] - y * s[i];
      to[i + n] = x * s[i] + y * c[i];
    }
  } else {
    for (guint i = 0; i < n; i++) {
      float x = from[2 * i], y = from[2 * i + 1];

      to[2 * i] = x * c[i] - y * s[i];
      to[2 * i + 1] = x * s[i] + y * c[i];
    }
  }
}

#define KEYS 64 /* at a time */

void
lychee_packed_turn_keys (const LycheePacked *p, const guint32 *distances, guint n, float *keys)
{
  for (guint from = 0, some; from < n; from += some) {
    const float *low[KEYS], *high[KEYS];

    some = MIN (n - from, KEYS);
    for (guint k = 0; k < some; k++) {
      guint distance = MIN (distances[from + k], p->farthest);

      low[k] = p->low + (gsize) (distance & (LOW - 1)) * 2 * p->n_pairs;
      high[k] = p->high + (gsize) (distance >> LOW_BITS) * 2 * p->n_pairs;
    }
    p->kernels->turn_keys (
        keys + (gsize) from * p->head_dim, some, p->head_dim, p->n_pairs, p->halves, low, high);
  }
}

guint
lychee_packed_turn_size (const LycheePacked *p)
{
  return 2 * p->n_pairs;
}

void
lychee_packed_set_turn (const LycheePacked *p, gint64 position, guint behind, float *turn)
{
  set_angles (p, -(double) position - behind, 1, turn);
}

void
lychee_packed_set_aim (
    const LycheePacked *p, gint64 position, guint nearest, guint farthest, float *turn)
{
  guint n = p->n_pairs;
  double middle = (nearest + (double) farthest) / 2, width = (double) farthest - nearest + 1;

  for (guint i = 0; i < n; i++) {
    /* The mean of exp (i f d) over the distances: a sum of a geometric series, divided by how many
     * they are. Keys are not multiplied with the factor, which the query has once. */
    double half = p->frequency[i] / 2, below = sin (half), angle;
    double size = p->factor * (fabs (below) < 1e-12 ? 1 : sin (width * half) / (width * below));

    angle = fmod ((middle - position) * p->frequency[i], 2 * G_PI);
    turn[i] = size * cos (angle);
    turn[n + i] = size * sin (angle);
  }
}

void
lychee_packed_turn (const LycheePacked *p, const float *turn, const float *q, guint n, float *to)
{
  guint turned = 2 * p->n_pairs;

  for (guint i = 0; i < n; i++, q += p->head_dim, to += p->head_dim) {
    turn_pairs (p, turn, turn + p->n_pairs, q, to);
    memcpy (to + turned, q + turned, (p->head_dim - turned) * sizeof *q);
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
