/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* The cases of the kernels' tests: every set of them, every head size, and how many queries and
 * keys. */

#include "kernels-float64.h"

static const guint head_dims[] = { 8, 16, 24, 64, 80, 96, 128, 256 };
static const guint query_counts[] = { 1, 3, 4, 5, 8, 9, 36, 100 };
static const guint key_counts[] = { 0, 1, 15, 16, 17, 63, 64, 65, 1000 };

typedef struct {
  const LycheeCpuKernels *kernels;
  guint head_dim;
} Case;

static inline LycheeSoftmax
new_state (guint n_queries, guint head_dim)
{
  LycheeSoftmax softmax = { GUARDED (float, n_queries), GUARDED (float, n_queries),
    GUARDED (float, n_queries *head_dim) };

  lychee_softmax_init (&softmax, n_queries, head_dim);
  return softmax;
}

static inline LycheeQueries
new_queries (guint n_queries, guint head_dim)
{
  return (LycheeQueries){ n_queries, head_dim, 1.0f / sqrtf (head_dim),
    random_floats ((gsize) n_queries * head_dim, -3, 3) };
}

static GPtrArray *cases; /* what all cases are about, run or not */

static inline void
add_cases (const char *name, GTestDataFunc func, gboolean per_head_dim)
{
  const LycheeCpuKernels *const *list = lychee_cpu_kernels_list ();

  for (guint i = 0; list[i]; i++)
    for (guint j = 0; j < (per_head_dim ? G_N_ELEMENTS (head_dims) : 1); j++) {
      Case *c = g_new0 (Case, 1);
      g_autofree char *path = NULL;

      c->kernels = list[i];
      c->head_dim = per_head_dim ? head_dims[j] : 64;
      path = per_head_dim ? g_strdup_printf ("/kernels/%s/%s/%u", name, list[i]->name, head_dims[j])
                          : g_strdup_printf ("/kernels/%s/%s", name, list[i]->name);
      g_ptr_array_add (cases, c);
      g_test_add_data_func (path, c, func);
    }
}
