/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Choice of the kernels at run time, and the softmax state that they share. */

#include <math.h>

#include "lychee-cpu-kernels-private.h"

#if defined(LYCHEE_HAVE_AVX2) || defined(LYCHEE_HAVE_AVX512)
#include <cpuid.h>

/* __builtin_cpu_supports() reports AVX and up only if the system saves the registers too (XGETBV);
 * F16C, which not every compiler's list has, needs the registers of AVX. */
static gboolean
have_avx2 (void)
{
  guint eax, ebx, ecx = 0, edx;

  __builtin_cpu_init ();
  return __builtin_cpu_supports ("avx2") && __builtin_cpu_supports ("fma") &&
         __get_cpuid (1, &eax, &ebx, &ecx, &edx) && (ecx & bit_F16C);
}
#endif

#ifdef LYCHEE_HAVE_AVX512
static gboolean
have_avx512 (void)
{
  return have_avx2 () && __builtin_cpu_supports ("avx512f") &&
         __builtin_cpu_supports ("avx512bw") && __builtin_cpu_supports ("avx512vl") &&
         __builtin_cpu_supports ("avx512dq");
}
#endif

#ifdef LYCHEE_HAVE_AVX512VNNI
static const LycheeCpuKernels *
get_vnni (void)
{
  static LycheeCpuKernels kernels, q8_0;

  q8_0 = *lychee_cpu_kernels_avx512.q8_0;
  q8_0.name = "avx512vnni";
  q8_0.score_packed = lychee_vnni_score_packed;
  kernels = lychee_cpu_kernels_avx512;
  kernels.name = q8_0.name;
  kernels.q8_0 = &q8_0;
  kernels.score_packed = q8_0.score_packed;
  return &kernels;
}
#endif

/**
 * lychee_cpu_kernels_list:
 *
 * The sets of kernels that were built and that this processor and system run, best first; the plain
 * reference is the last.
 *
 * Returns: (array zero-terminated=1) (transfer none): the sets
 */
const LycheeCpuKernels *const *
lychee_cpu_kernels_list (void)
{
  static const LycheeCpuKernels *list[7];
  static gsize once;

  if (g_once_init_enter (&once)) {
    guint n = 0;

#ifdef LYCHEE_HAVE_AVX512VNNI
    if (have_avx512 () && __builtin_cpu_supports ("avx512vnni"))
      list[n++] = get_vnni ();
#endif
#ifdef LYCHEE_HAVE_AVX512
    if (have_avx512 ())
      list[n++] = &lychee_cpu_kernels_avx512;
#endif
#ifdef LYCHEE_HAVE_AVX2
    if (have_avx2 ())
      list[n++] = &lychee_cpu_kernels_avx2;
#endif
#ifdef LYCHEE_HAVE_NEON /* part of every 64-bit ARM */
    list[n++] = &lychee_cpu_kernels_neon;
#endif
    list[n++] = &lychee_cpu_kernels_generic;
    list[n++] = &lychee_cpu_kernels_reference;
    g_once_init_leave (&once, 1);
  }
  return list;
}

/**
 * lychee_cpu_kernels_get:
 *
 * The best set of kernels that this processor runs, or the one named by the environment variable
 * `LYCHEE_CPU_KERNELS`; if that one cannot be had, warns and takes the best. Chosen once.
 *
 * Returns: (transfer none): the kernels
 */
const LycheeCpuKernels *
lychee_cpu_kernels_get (void)
{
  static gsize once;

  if (g_once_init_enter (&once)) {
    const LycheeCpuKernels *const *list = lychee_cpu_kernels_list ();
    const LycheeCpuKernels *chosen = list[0];
    const char *name = g_getenv ("LYCHEE_CPU_KERNELS");

    if (name && *name) {
      guint i = 0;

      while (list[i] && !g_str_equal (list[i]->name, name))
        i++;
      if (list[i])
        chosen = list[i];
      else
        g_warning ("LYCHEE_CPU_KERNELS=%s is not built or not for this processor; taking %s", name,
            chosen->name);
    }
    g_once_init_leave (&once, (gsize) chosen);
  }
  return (const LycheeCpuKernels *) once;
}

/**
 * lychee_cpu_kernels_get_reference:
 *
 * Returns: (transfer none): the plain C kernels that all others are tested against
 */
const LycheeCpuKernels *
lychee_cpu_kernels_get_reference (void)
{
  return &lychee_cpu_kernels_reference;
}

/**
 * lychee_softmax_init:
 * @softmax: arrays for @n_queries queries
 * @n_queries: how many
 * @head_dim: length of a row of o
 *
 * Sets @softmax to the state that has seen nothing.
 */
void
lychee_softmax_init (LycheeSoftmax *softmax, guint n_queries, guint head_dim)
{
  for (guint i = 0; i < n_queries; i++) {
    softmax->m[i] = -INFINITY;
    softmax->l[i] = 0;
  }
  memset (softmax->o, 0, (gsize) n_queries * head_dim * sizeof *softmax->o);
}

/**
 * lychee_softmax_merge:
 * @into: the state that is added to
 * @from: the state that is added
 * @n_queries: how many queries both have
 * @head_dim: length of a row of o
 *
 * Makes @into what it were, up to rounding, had it also seen all that @from has seen.
 */
void
lychee_softmax_merge (
    LycheeSoftmax *into, const LycheeSoftmax *from, guint n_queries, guint head_dim)
{
  for (guint i = 0; i < n_queries; i++) {
    float *o = into->o + (gsize) i * head_dim;
    const float *add = from->o + (gsize) i * head_dim;
    float m = from->m[i] > into->m[i] ? from->m[i] : into->m[i], a, b;

    if (isnan (from->m[i]))
      m = from->m[i];
    if (from->m[i] == -INFINITY) /* nothing to add, and inf - inf is NaN */
      continue;
    a = into->m[i] == -INFINITY ? 0 : expf (into->m[i] - m);
    b = expf (from->m[i] - m);
    into->m[i] = m;
    into->l[i] = a * into->l[i] + b * from->l[i];
    for (guint d = 0; d < head_dim; d++)
      o[d] = a * o[d] + b * add[d];
  }
}

/**
 * lychee_softmax_finish:
 * @softmax: a state
 * @n_queries: how many queries it has
 * @head_dim: length of a row of o
 * @output: (out caller-allocates): [n_queries][head_dim]
 *
 * Writes o / l, or zeros for a query that has seen nothing.
 */
void
lychee_softmax_finish (const LycheeSoftmax *softmax, guint n_queries, guint head_dim, float *output)
{
  for (guint i = 0; i < n_queries; i++) {
    gsize at = (gsize) i * head_dim;
    float l = softmax->l[i], factor = 1.0f / l;

    for (guint d = 0; d < head_dim; d++)
      output[at + d] = l == 0 ? 0 : softmax->o[at + d] * factor;
  }
}
