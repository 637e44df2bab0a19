/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* What test-kernels.c measures the kernels with: memory that notices reads past its ends, random
 * numbers, and attention in float64. */

#include <math.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "lychee-cpu-kernels.h"

/* Memory. */

static GPtrArray *mappings;

typedef struct {
  guint8 *start;
  gsize size;
} Mapping;

/* @bytes zero bytes between two pages that cannot be touched, right before the second one, less
 * @shift bytes. */
static inline gpointer
guarded (gsize bytes, gsize shift)
{
  gsize page = (gsize) sysconf (_SC_PAGESIZE);
  gsize inner = (bytes + shift + page - 1) / page * page;
  Mapping *mapping = g_new (Mapping, 1);

  mapping->size = inner + 2 * page;
  mapping->start =
      mmap (NULL, mapping->size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  g_assert_true (mapping->start != MAP_FAILED);
  g_assert_cmpint (mprotect (mapping->start, page, PROT_NONE), ==, 0);
  g_assert_cmpint (mprotect (mapping->start + page + inner, page, PROT_NONE), ==, 0);
  g_ptr_array_add (mappings, mapping);
  return mapping->start + page + inner - bytes - shift;
}

#define GUARDED(type, n) ((type *) guarded ((gsize) (n) * sizeof (type), 0))

static inline void
free_mapping (gpointer data)
{
  Mapping *mapping = data;

  munmap (mapping->start, mapping->size);
  g_free (mapping);
}

static inline void
free_memory (void)
{
  g_ptr_array_set_size (mappings, 0);
}

/* Random numbers; the same ones in every run. */

static guint32 seed;

static inline double
uniform (void) /* -1 .. 1 */
{
  seed = seed * 1664525u + 1013904223u;
  return (double) (gint32) seed / 2147483648.0;
}

static inline float *
random_floats (gsize n, double from, double to)
{
  float *f = GUARDED (float, n);

  for (gsize i = 0; i < n; i++)
    f[i] = (float) (from + (to - from) * (uniform () + 1) / 2);
  return f;
}

static inline guint16 *
random_halves (gsize n)
{
  guint16 *h = GUARDED (guint16, n);

  for (gsize i = 0; i < n; i++) /* exponents 2^-7 .. 2^0, both signs */
    h[i] = (guint16) (0x2000 + (guint) ((uniform () + 1) * 0x1000) + (uniform () < 0 ? 0x8000 : 0));
  return h;
}

/* float64. */

static inline double
half_value (guint16 h)
{
  guint exponent = (h >> 10) & 31, mantissa = h & 0x3ff;
  double x;

  if (exponent == 31)
    x = mantissa ? NAN : INFINITY;
  else if (exponent == 0)
    x = ldexp (mantissa, -24);
  else
    x = ldexp (1024 + mantissa, (int) exponent - 25);
  return h & 0x8000 ? -x : x;
}

/* The half nearest to @f, by arithmetic in float64. */
static inline guint16
nearest_half (float f)
{
  guint16 sign = signbit (f) ? 0x8000 : 0;
  double x = fabs ((double) f), unit;
  int exponent;

  if (isnan (f))
    return 0x7e00;
  if (x >= 65520)
    return sign | 0x7c00;
  frexp (x, &exponent);
  unit = ldexp (1, MAX (exponent - 11, -24));
  x = nearbyint (x / unit) * unit; /* the default mode: ties to even */
  if (x >= 65536)
    return sign | 0x7c00;
  if (x < 0x1p-14)
    return sign | (guint16) (x * 0x1p24);
  frexp (x, &exponent);
  return sign | (guint16) (((exponent + 14) << 10) + (guint) (ldexp (x, 11 - exponent) - 1024));
}

typedef struct {
  double m, l, o[256], size[256]; /* size: the sum of |weight value| */
} Exact;

static inline void
exact_init (Exact *exact)
{
  memset (exact, 0, sizeof *exact);
  exact->m = -INFINITY;
}

static inline void
exact_add (Exact *exact, double logit, const double *value, guint head_dim)
{
  double weight;

  if (logit > exact->m) {
    double factor = exp (exact->m - logit);

    exact->l *= factor;
    for (guint d = 0; d < head_dim; d++) {
      exact->o[d] *= factor;
      exact->size[d] *= factor;
    }
    exact->m = logit;
  }
  weight = exp (logit - exact->m);
  exact->l += weight;
  for (guint d = 0; d < head_dim; d++) {
    exact->o[d] += weight * value[d];
    exact->size[d] += weight * fabs (value[d]);
  }
}

static inline double
exact_logit (const LycheeQueries *queries, double dot)
{
  double logit = dot * queries->scale;

  return queries->cap > 0 ? queries->cap * tanh (logit / queries->cap) : logit;
}

static inline void
exact_add_halves (
    Exact *exact, const LycheeQueries *queries, guint query, const guint16 *k, const guint16 *v)
{
  double logit = 0, value[256];

  for (guint d = 0; d < queries->head_dim; d++) {
    logit += (double) queries->q[query * queries->head_dim + d] * half_value (k[d]);
    value[d] = half_value (v[d]);
  }
  exact_add (exact, exact_logit (queries, logit), value, queries->head_dim);
}

static inline void
exact_add_group (Exact *exact, const LycheeQueries *queries, guint query, const float *k,
    const float *v, float log_n)
{
  double logit = 0, value[256];

  for (guint d = 0; d < queries->head_dim; d++) {
    logit += (double) queries->q[query * queries->head_dim + d] * k[d];
    value[d] = v[d];
  }
  exact_add (exact, exact_logit (queries, logit) + log_n, value, queries->head_dim);
}

#define assert_near(what, got, want, tolerance)                                                    \
  G_STMT_START                                                                                     \
  {                                                                                                \
    double got_ = (got), want_ = (want), tolerance_ = (tolerance);                                 \
    if (!(fabs (got_ - want_) <= tolerance_))                                                      \
      g_error ("%s:%d: %s: got %.9g, want %.9g within %.3g", __FILE__, __LINE__, what, got_,       \
          want_, tolerance_);                                                                      \
  }                                                                                                \
  G_STMT_END

/* A state against the exact one: m to 1e-5 of the logits' size, l and o to 1e-5. */
static inline void
assert_state (const LycheeSoftmax *softmax, guint query, const Exact *exact, guint head_dim)
{
  const float *o = softmax->o + (gsize) query * head_dim;
  double factor;

  if (exact->l == 0) {
    g_assert_true (softmax->m[query] == -INFINITY);
    g_assert_true (softmax->l[query] == 0);
    for (guint d = 0; d < head_dim; d++)
      g_assert_true (o[d] == 0);
    return;
  }
  assert_near ("m", softmax->m[query], exact->m, 1e-5 * (1 + fabs (exact->m)));
  factor = exp (softmax->m[query] - exact->m);
  assert_near ("l", softmax->l[query] * factor, exact->l, 1e-5 * exact->l);
  for (guint d = 0; d < head_dim; d++)
    assert_near ("o", o[d] * factor, exact->o[d], 1e-5 * exact->size[d] + 1e-30);
}
