/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Every set of CPU kernels, the plain reference among them, against float64 written out here. All
 * arrays end at a page that cannot be touched, so reading or writing past an end is a crash. */

#include <math.h>
#include <string.h>

#include "kernels-cases.h"

/* Half floats. */

static void
test_f16_to_f32 (gconstpointer data)
{
  const LycheeCpuKernels *kernels = ((const Case *) data)->kernels;
  guint16 *from = GUARDED (guint16, 65536);
  float *to = GUARDED (float, 65536);

  for (guint i = 0; i < 65536; i++)
    from[i] = (guint16) i;
  kernels->f16_to_f32 (from, to, 65536);
  for (guint i = 0; i < 65536; i++) {
    float want = (float) half_value ((guint16) i);

    if (isnan (want)) {
      g_assert_true (isnan (to[i]));
      g_assert_cmpint (!!signbit (to[i]), ==, i >> 15);
    } else {
      g_assert_cmpmem (&to[i], sizeof (float), &want, sizeof want);
    }
  }

  for (guint n = 0; n < 40; n++) {
    guint16 *some = GUARDED (guint16, n);
    float *f = GUARDED (float, n);

    for (guint i = 0; i < n; i++)
      some[i] = (guint16) (0x3c00 + 7 * i);
    kernels->f16_to_f32 (some, f, n);
    for (guint i = 0; i < n; i++)
      g_assert_cmpfloat (f[i], ==, half_value (some[i]));
  }
  free_memory ();
}

/* For every half that is finite: itself, the tie with the next one, and the floats around both. */
static void
test_f32_to_f16 (gconstpointer data)
{
  const LycheeCpuKernels *kernels = ((const Case *) data)->kernels;
  static const float special[] = { 0.0f, -0.0f, INFINITY, -INFINITY, 65504, 65519.996f, 65520,
    65536, -65520, 66000, 70000, 3e38f, 1e-45f, -1e-45f, 1e-38f, 0x1p-25f, 0x1.000002p-25f,
    0x1p-24f, 0x1.8p-24f, 0x1.fffp-15f, 0x1.ffdp-15f, 0x1.ffffffp-15f, 1 + 0x1p-11f, 1 + 0x3p-11f };
  guint n = 0, size = 2 * 31744 * 6 + G_N_ELEMENTS (special) + 50000 + 1;
  float *from = GUARDED (float, size);
  guint16 *to = GUARDED (guint16, size);

  for (guint s = 0; s < 2; s++)
    for (guint h = 0; h < 31744; h++) {
      float x = (float) half_value ((guint16) (h | s << 15));
      double next = h == 31743 ? 65536 : half_value ((guint16) (h + 1));
      float tie = (float) ((fabs (x) + next) / 2 * (s ? -1 : 1));

      from[n++] = x;
      from[n++] = nextafterf (x, INFINITY);
      from[n++] = nextafterf (x, -INFINITY);
      from[n++] = tie;
      from[n++] = nextafterf (tie, INFINITY);
      from[n++] = nextafterf (tie, -INFINITY);
    }
  for (guint i = 0; i < G_N_ELEMENTS (special); i++)
    from[n++] = special[i];
  for (guint i = 0; i < 50000; i++)
    from[n++] = (float) ldexp (uniform (), (int) (24 * uniform ()) - 8);
  from[n++] = NAN;
  g_assert_cmpuint (n, ==, size);

  kernels->f32_to_f16 (from, to, n);
  for (guint i = 0; i + 1 < n; i++)
    if (to[i] != nearest_half (from[i]))
      g_error ("%.9g became %04x, not %04x", from[i], to[i], nearest_half (from[i]));
  g_assert_true (isnan (half_value (to[n - 1])));

  for (guint m = 0; m < 40; m++) {
    float *f = random_floats (m, -10, 10);
    guint16 *h = GUARDED (guint16, m);

    kernels->f32_to_f16 (f, h, m);
    for (guint i = 0; i < m; i++)
      g_assert_cmphex (h[i], ==, nearest_half (f[i]));
  }
  free_memory ();
}

/* Attention. */

typedef enum { DENSE, GATHER, GROUPS } Source;

static void
check_attention (const Case *c, Source source, guint n_queries, guint n_keys)
{
  guint head_dim = c->head_dim, n_elements = n_keys * head_dim;
  LycheeQueries queries = new_queries (n_queries, head_dim);
  LycheeSoftmax softmax = new_state (n_queries, head_dim);
  g_autofree Exact *exact = g_new (Exact, 1);

  queries.cap = n_keys % 2 ? 2 : 0;
  if (source == GROUPS) {
    float *k = random_floats (n_elements, -1, 1), *v = random_floats (n_elements, -1, 1);
    float *log_n = random_floats (n_keys, 0, 5);

    c->kernels->attend_groups (&queries, k, v, log_n, n_keys, &softmax);
    for (guint i = 0; i < n_queries; i++) {
      exact_init (exact);
      for (guint t = 0; t < n_keys; t++)
        exact_add_group (exact, &queries, i, k + t * head_dim, v + t * head_dim, log_n[t]);
      assert_state (&softmax, i, exact, head_dim);
    }
  } else {
    guint16 *k = random_halves (n_elements), *v = random_halves (n_elements);

    if (source == DENSE) {
      c->kernels->attend (&queries, k, v, n_keys, NULL, &softmax);
      for (guint i = 0; i < n_queries; i++) {
        exact_init (exact);
        for (guint t = 0; t < n_keys; t++)
          exact_add_halves (exact, &queries, i, k + t * head_dim, v + t * head_dim);
        assert_state (&softmax, i, exact, head_dim);
      }
    } else {
      /* Rows from a pool, some twice; values after all the keys. */
      guint16 *pool = random_halves (2 * (n_elements + head_dim));
      const guint16 **rows = GUARDED (const guint16 *, n_keys);
      gsize offset = n_elements + head_dim;

      for (guint t = 0; t < n_keys; t++)
        rows[t] = pool + (gsize) ((uniform () + 1) / 2 * n_keys) * head_dim;
      c->kernels->attend_gather (&queries, rows, offset, n_keys, &softmax);
      for (guint i = 0; i < n_queries; i++) {
        exact_init (exact);
        for (guint t = 0; t < n_keys; t++)
          exact_add_halves (exact, &queries, i, rows[t], rows[t] + offset);
        assert_state (&softmax, i, exact, head_dim);
      }
    }
  }
  free_memory ();
}

static void
check_shapes (const Case *c, Source source)
{
  for (guint i = 0; i < G_N_ELEMENTS (query_counts); i++)
    for (guint j = 0; j < G_N_ELEMENTS (key_counts); j++)
      if (query_counts[i] <= 9 || key_counts[j] <= 65 ||
          (query_counts[i] == 36 && c->head_dim <= 80))
        check_attention (c, source, query_counts[i], key_counts[j]);
}

static void
test_attend (gconstpointer data)
{
  check_shapes (data, DENSE);
}

static void
test_gather (gconstpointer data)
{
  check_shapes (data, GATHER);
}

static void
test_groups (gconstpointer data)
{
  check_shapes (data, GROUPS);
}

/* Groups whose weights are known, and 8-bit values. */
static void
test_values (gconstpointer data)
{
  const Case *c = data;
  guint head_dim = c->head_dim;

  for (guint i = 0; i < G_N_ELEMENTS (query_counts); i++)
    for (guint j = 0; j < G_N_ELEMENTS (key_counts); j++) {
      guint n_queries = query_counts[i], n = key_counts[j], stride = n + 3;
      gsize n_o = (gsize) n_queries * head_dim;
      float *weight = random_floats ((gsize) (n_queries - 1) * stride + n, 0, 1);
      float *factor = random_floats (n_queries, 0, 2), *scale = random_floats (n, 0, 0.1);
      float *o = random_floats (n_o, -1, 1);
      g_autofree float *before = g_memdup2 (o, n_o * sizeof *o);
      gint8 *v = GUARDED (gint8, (gsize) n * head_dim);

      if (n_queries > 9 && n > 65)
        continue;
      for (guint t = 0; t < n * head_dim; t++)
        v[t] = (gint8) (127 * uniform ());
      c->kernels->add_values (n_queries, head_dim, weight, stride, factor, v, scale, n, o);
      for (gsize at = 0; at < n_o; at++) {
        guint q = at / head_dim, d = at % head_dim;
        double want = before[at], size = fabs (want);

        for (guint t = 0; t < n; t++) {
          double x = (double) factor[q] * weight[q * stride + t] * scale[t] * v[t * head_dim + d];

          want += x;
          size += fabs (x);
        }
        assert_near ("o", o[at], want, 2e-6 * size);
      }
      free_memory ();
    }
}

/* Keys that a query may not see are poison to it: NaN and infinity, keys and values. */
static void
check_visible (const Case *c, guint n_queries, guint n_keys, guint pattern)
{
  guint head_dim = c->head_dim;
  LycheeQueries queries = new_queries (n_queries, head_dim);
  guint16 *k = random_halves (n_keys * head_dim), *v = random_halves (n_keys * head_dim);
  guint32 *visible = GUARDED (guint32, n_queries);
  g_autofree Exact *exact = g_new (Exact, 1);
  LycheeSoftmax softmax = new_state (n_queries, head_dim);

  for (guint i = 0; i < n_queries; i++) {
    switch (pattern) {
    case 0: /* three heads of each token, causal */
      visible[i] = n_keys - MIN (n_keys, (n_queries - 1 - i) / 3);
      break;
    case 1:
      visible[i] = (guint32) ((uniform () + 1) / 2 * (n_keys + 1));
      break;
    default: /* every other query none, the others more than there is */
      visible[i] = i % 2 ? 0 : n_keys + 5;
    }
    softmax.m[i] = 0.25f;
    softmax.l[i] = 1;
    for (guint d = 0; d < head_dim; d++)
      softmax.o[i * head_dim + d] = (float) i;
  }

  /* Poison all keys that nobody sees, and the last one, whoever sees it. */
  for (guint t = 0; t < n_keys; t++) {
    gboolean seen = FALSE;

    for (guint i = 0; i < n_queries; i++)
      seen |= visible[i] > t;
    for (guint d = 0; !seen && d < head_dim; d++)
      k[t * head_dim + d] = v[t * head_dim + d] = 0x7e00;
  }
  if (n_keys > 0)
    for (guint d = 0; d < head_dim; d++)
      k[(n_keys - 1) * head_dim + d] = v[(n_keys - 1) * head_dim + d] = 0x7c00;

  c->kernels->attend (&queries, k, v, n_keys, visible, &softmax);
  for (guint i = 0; i < n_queries; i++) {
    if (n_keys > 0 && visible[i] >= n_keys) {
      g_assert_true (isnan (softmax.o[i * head_dim]) || softmax.m[i] == INFINITY ||
                     isinf (softmax.o[i * head_dim]));
      continue;
    }
    exact_init (exact);
    exact->m = 0.25;
    exact->l = 1;
    for (guint d = 0; d < head_dim; d++)
      exact->o[d] = exact->size[d] = i;
    for (guint t = 0; t < MIN (visible[i], n_keys); t++)
      exact_add_halves (exact, &queries, i, k + t * head_dim, v + t * head_dim);
    if (visible[i] == 0 || n_keys == 0) {
      g_assert_true (softmax.m[i] == 0.25f && softmax.l[i] == 1);
      for (guint d = 0; d < head_dim; d++)
        g_assert_true (softmax.o[i * head_dim + d] == (float) i);
    } else {
      assert_state (&softmax, i, exact, head_dim);
    }
  }
  free_memory ();
}

static void
test_visible (gconstpointer data)
{
  for (guint i = 0; i < G_N_ELEMENTS (query_counts); i++)
    for (guint j = 0; j < G_N_ELEMENTS (key_counts); j++)
      for (guint pattern = 0; pattern < 3; pattern++)
        if (key_counts[j] <= 65 || query_counts[i] == 36)
          check_visible (data, query_counts[i], key_counts[j], pattern);
}

/* The same state fed by all three calls, and the same split over two states and merged. */
static void
test_accumulate (gconstpointer data)
{
  const Case *c = data;
  guint head_dim = c->head_dim;
  static const guint counts[] = { 1, 3, 8, 36 };

  for (guint j = 0; j < G_N_ELEMENTS (counts); j++) {
    guint n_queries = counts[j], n = 100;
    LycheeQueries queries = new_queries (n_queries, head_dim);
    guint16 *k = random_halves (n * head_dim), *v = random_halves (n * head_dim);
    guint16 *pool = random_halves (2 * n * head_dim);
    const guint16 **rows = GUARDED (const guint16 *, n);
    float *gk = random_floats (n * head_dim, -2, 2), *gv = random_floats (n * head_dim, -2, 2);
    float *log_n = random_floats (n, 0, 6);
    LycheeSoftmax one = new_state (n_queries, head_dim), a = new_state (n_queries, head_dim);
    LycheeSoftmax b = new_state (n_queries, head_dim), none = new_state (n_queries, head_dim);
    float *output = GUARDED (float, n_queries *head_dim);
    g_autofree Exact *exact = g_new (Exact, 1);

    for (guint t = 0; t < n; t++)
      rows[t] = pool + 2 * (n - 1 - t) * head_dim;
    c->kernels->attend (&queries, k, v, n, NULL, &one);
    c->kernels->attend_groups (&queries, gk, gv, log_n, n, &one);
    c->kernels->attend_gather (&queries, rows, head_dim, n, &one);

    c->kernels->attend_groups (&queries, gk, gv, log_n, n, &a);
    c->kernels->attend (&queries, k + 33 * head_dim, v + 33 * head_dim, n - 33, NULL, &a);
    c->kernels->attend_gather (&queries, rows, head_dim, n, &b);
    c->kernels->attend (&queries, k, v, 33, NULL, &b);
    lychee_softmax_merge (&a, &none, n_queries, head_dim);
    lychee_softmax_merge (&a, &b, n_queries, head_dim);
    lychee_softmax_merge (&none, &a, n_queries, head_dim);
    lychee_softmax_finish (&none, n_queries, head_dim, output);

    for (guint i = 0; i < n_queries; i++) {
      exact_init (exact);
      for (guint t = 0; t < n; t++) {
        guint at = t * head_dim;

        exact_add_halves (exact, &queries, i, k + at, v + at);
        exact_add_halves (exact, &queries, i, rows[t], rows[t] + head_dim);
        exact_add_group (exact, &queries, i, gk + at, gv + at, log_n[t]);
      }
      assert_state (&one, i, exact, head_dim);
      assert_state (&a, i, exact, head_dim);
      assert_state (&none, i, exact, head_dim);
      for (guint d = 0; d < head_dim; d++)
        assert_near ("output", output[i * head_dim + d], exact->o[d] / exact->l,
            2e-5 * exact->size[d] / exact->l);
    }
  }
  free_memory ();
}

/* Two groups with logits 0 and x: o = (1, exp (x)). */
static void
test_exp (gconstpointer data)
{
  const Case *c = data;
  float *q = GUARDED (float, 9 * 64), *k = GUARDED (float, 128), *v = GUARDED (float, 128);
  float *log_n = GUARDED (float, 2);
  static const guint counts[] = { 1, 9 };

  v[0] = v[64 + 1] = 1;
  for (guint j = 0; j < G_N_ELEMENTS (counts); j++)
    for (guint i = 0; i <= 20000; i++) {
      LycheeQueries queries = { counts[j], 64, 0.125f, q };
      float m[9], l[9], o[9 * 64], x = -88.0f * i / 20000;
      LycheeSoftmax softmax = { m, l, o };

      lychee_softmax_init (&softmax, counts[j], 64);
      log_n[1] = x;
      c->kernels->attend_groups (&queries, k, v, log_n, 2, &softmax);
      g_assert_true (m[0] == 0 && o[0] == 1);
      assert_near ("exp", o[1], exp (x), 1e-6 * exp (x) + (x < -87 ? 2e-38 : 0));
    }
  free_memory ();
}

/* Logits that no softmax likes. Query and keys are constant rows: logit = scale d a b. */
static void
test_extremes (gconstpointer data)
{
  const Case *c = data;
  static const struct {
    const char *name;
    float q;
    guint16 k[4]; /* of keys 0, 20, 64, 69 of 70; the others are like key 0 */
    guint16 v;    /* of key 69; the others are 1 */
    float output; /* per element */
  } rows[] = {
    { "large", 100, { 0x7800, 0x7bff, 0x7bff, 0x7bff }, 0x4200, 1 + 2.0f / 3 },
    { "large negative", -100, { 0x7800, 0x7bff, 0x7bff, 0x7bff }, 0x4200, 1 },
    { "huge", 1e30f, { 0x7800, 0x7bff, 0x7bff, 0x7bff }, 0x4200, 1 + 2.0f / 3 },
    { "all -inf", 1, { 0xfc00, 0xfc00, 0xfc00, 0xfc00 }, 0x4200, 0 },
    { "-inf first", 1, { 0xfc00, 0xfc00, 0xfc00, 0x3c00 }, 0x4200, 3 },
    { "-inf last", 1, { 0x3c00, 0x3c00, 0xfc00, 0xfc00 }, 0x4200, 1 },
    { "+inf", 1, { 0x3c00, 0x7c00, 0x3c00, 0x3c00 }, 0x3c00, NAN },
    { "NaN key", 1, { 0x3c00, 0x7e00, 0x3c00, 0x3c00 }, 0x3c00, NAN },
    { "NaN key late", 1, { 0x3c00, 0x3c00, 0x3c00, 0x7e00 }, 0x3c00, NAN },
    { "NaN among -inf", 1, { 0xfc00, 0x7e00, 0xfc00, 0xfc00 }, 0x3c00, NAN },
    { "NaN query", NAN, { 0x3c00, 0x3c00, 0x3c00, 0x3c00 }, 0x3c00, NAN },
    { "NaN value", 1, { 0x3c00, 0x3c00, 0x3c00, 0x3c00 }, 0x7e00, NAN },
    { "inf value", 1, { 0x3c00, 0x3c00, 0x3c00, 0x3c00 }, 0x7c00, INFINITY },
  };
  static const guint counts[] = { 1, 3, 9, 36 }, head_dim = 64, n = 70;

  for (guint r = 0; r < G_N_ELEMENTS (rows); r++)
    for (guint j = 0; j < G_N_ELEMENTS (counts); j++) {
      LycheeQueries queries = { counts[j], head_dim, 0.125f,
        random_floats (counts[j] * head_dim, rows[r].q, rows[r].q) };
      LycheeSoftmax softmax = new_state (counts[j], head_dim);
      guint16 *k = GUARDED (guint16, n * head_dim), *v = GUARDED (guint16, n * head_dim);
      float *output = GUARDED (float, counts[j] * head_dim);

      for (guint i = 0; i < counts[j] * head_dim; i++)
        ((float *) queries.q)[i] = rows[r].q;
      for (guint t = 0; t < n; t++)
        for (guint d = 0; d < head_dim; d++) {
          k[t * head_dim + d] = rows[r].k[t == 20 ? 1 : t == 64 ? 2 : t == 69 ? 3 : 0];
          v[t * head_dim + d] = t == 69 ? rows[r].v : 0x3c00;
        }
      c->kernels->attend (&queries, k, v, n, NULL, &softmax);
      lychee_softmax_finish (&softmax, counts[j], head_dim, output);
      for (guint i = 0; i < counts[j] * head_dim; i++)
        if (isnan (rows[r].output) ? !isnan (output[i])
            : isinf (rows[r].output)
                ? output[i] != rows[r].output
                : !(fabsf (output[i] - rows[r].output) <= 1e-5f * fabsf (rows[r].output)))
          g_error ("%s, %u queries: got %g, want %g", rows[r].name, counts[j], output[i],
              rows[r].output);
      free_memory ();
    }
}

/* The same call gives the same bits wherever its arrays lie. */
static void
test_alignment (gconstpointer data)
{
  const Case *c = data;
  static const guint counts[] = { 3, 36, 2000 };
  guint head_dim = c->head_dim, n = 70;

  for (guint j = 0; j < G_N_ELEMENTS (counts); j++) {
    LycheeQueries queries = new_queries (counts[j], head_dim);
    gsize bytes = n * head_dim * sizeof (guint16), q_bytes = counts[j] * head_dim * sizeof (float);
    guint16 *k = random_halves (n * head_dim), *v = random_halves (n * head_dim);
    LycheeSoftmax first = new_state (counts[j], head_dim);
    const float *q = queries.q;

    c->kernels->attend (&queries, k, v, n, NULL, &first);
    for (guint shift = 2; shift < 64; shift += 22) {
      LycheeSoftmax other = new_state (counts[j], head_dim);
      gpointer k2 = guarded (bytes, shift), v2 = guarded (bytes, 3 * shift);
      gpointer q2 = guarded (q_bytes, 4 * shift);

      memcpy (k2, k, bytes);
      memcpy (v2, v, bytes);
      memcpy (q2, q, q_bytes);
      queries.q = q2;
      c->kernels->attend (&queries, k2, v2, n, NULL, &other);
      g_assert_cmpmem (first.o, q_bytes, other.o, q_bytes);
      g_assert_cmpmem (first.l, counts[j] * 4, other.l, counts[j] * 4);
      g_assert_cmpmem (first.m, counts[j] * 4, other.m, counts[j] * 4);
    }
    free_memory ();
  }
}

/* The choice, and states without a kernel. */

static void
test_list (void)
{
  const LycheeCpuKernels *const *list = lychee_cpu_kernels_list ();
  guint n = 0;

  while (list[n])
    n++;
  g_assert_cmpuint (n, >=, 2);
  g_assert_true (list[n - 1] == lychee_cpu_kernels_get_reference ());
  g_assert_cmpstr (list[n - 1]->name, ==, "reference");
  g_assert_cmpstr (list[n - 2]->name, ==, "generic");
  for (guint i = 0; i < n; i++)
    for (guint j = 0; j < i; j++)
      g_assert_cmpstr (list[i]->name, !=, list[j]->name);
}

/* The choice is made once, so each is made in a process of its own. */
static void
test_choice (gconstpointer data)
{
  const char *name = data;

  if (g_test_subprocess ()) {
    const LycheeCpuKernels *best = lychee_cpu_kernels_list ()[0];

    if (name)
      g_setenv ("LYCHEE_CPU_KERNELS", name, TRUE);
    else
      g_unsetenv ("LYCHEE_CPU_KERNELS");
    if (name && g_str_equal (name, "abacus"))
      g_test_expect_message ("Lychee", G_LOG_LEVEL_WARNING, "*abacus*");
    if (name && g_str_equal (name, "reference"))
      g_assert_true (lychee_cpu_kernels_get () == lychee_cpu_kernels_get_reference ());
    else if (name && g_str_equal (name, "generic"))
      g_assert_cmpstr (lychee_cpu_kernels_get ()->name, ==, "generic");
    else
      g_assert_true (lychee_cpu_kernels_get () == best);
    g_test_assert_expected_messages ();
    g_unsetenv ("LYCHEE_CPU_KERNELS");
    g_assert_true (lychee_cpu_kernels_get () == lychee_cpu_kernels_get ());
    return;
  }
  g_test_trap_subprocess (NULL, 0, G_TEST_SUBPROCESS_DEFAULT);
  g_test_trap_assert_passed ();
}

/* What is turned, in rows and in place, is what complex numbers say; the rest is left alone. */
static void
test_turn (gconstpointer data)
{
  const Case *c = data;
  guint d = c->head_dim, n_rows = 5;
  const guint pair_counts[] = { 1, 3, d / 4, d / 2 };

  for (guint i = 0; i < 2 * G_N_ELEMENTS (pair_counts); i++) {
    guint n_pairs = MIN (pair_counts[i / 2], 128), halves = i % 2;
    guint n = halves ? n_pairs : 2 * n_pairs;
    guint16 *rows = random_halves ((gsize) n_rows * d), *to = GUARDED (guint16, n_rows * d);
    float *keys = GUARDED (float, n_rows *d);
    const guint16 *row[5];
    const float *low[5], *high[5];

    c->kernels->f16_to_f32 (rows, keys, (gsize) n_rows * d);
    for (guint k = 0; k < n_rows; k++) {
      float *turns[2] = { GUARDED (float, 2 * n), GUARDED (float, 2 * n) };

      for (guint t = 0; t < 2; t++)
        for (guint j = 0; j < n_pairs; j++) {
          double angle = (k + 1) * (t + 0.3) / (j + 1), x = 0.7 * cos (angle),
                 y = 0.7 * sin (angle);

          if (halves) {
            turns[t][j] = x;
            turns[t][n + j] = y;
          } else {
            turns[t][2 * j] = turns[t][2 * j + 1] = x;
            turns[t][n + 2 * j] = -y;
            turns[t][n + 2 * j + 1] = y;
          }
        }
      row[k] = rows + (gsize) k * d;
      low[k] = turns[0];
      high[k] = turns[1];
    }
    c->kernels->turn_rows (row, n_rows, d, n_pairs, halves, low, high, to);
    c->kernels->turn_keys (keys, n_rows, d, n_pairs, halves, low, high);
    for (guint k = 0; k < n_rows; k++) {
      float *got = GUARDED (float, d), *was = GUARDED (float, d);
      double *wanted = GUARDED (double, d);

      c->kernels->f16_to_f32 (row[k], was, d);
      c->kernels->f16_to_f32 (to + (gsize) k * d, got, d);
      for (guint j = 0; j < d; j++)
        wanted[j] = was[j];
      for (guint j = 0; j < n_pairs; j++) {
        guint a = halves ? j : 2 * j, b = halves ? j + n_pairs : 2 * j + 1;
        double angle = (k + 1) * (1.3 + 0.3) / (j + 1), x = 0.49 * cos (angle);
        double y = 0.49 * sin (angle);

        wanted[a] = was[a] * x - was[b] * y;
        wanted[b] = was[a] * y + was[b] * x;
      }
      for (guint j = 0; j < d; j++) {
        g_assert_cmpfloat_with_epsilon (keys[(gsize) k * d + j], wanted[j], 2e-6);
        g_assert_cmpfloat_with_epsilon (got[j], wanted[j], 1e-3);
      }
    }
    free_memory ();
  }
}

static void
test_merge_empty (void)
{
  LycheeSoftmax a = new_state (3, 8), b = new_state (3, 8);
  float *output = random_floats (24, 5, 5);

  lychee_softmax_merge (&a, &b, 3, 8);
  lychee_softmax_finish (&a, 3, 8, output);
  for (guint i = 0; i < 24; i++)
    g_assert_true (output[i] == 0 && a.o[i] == 0);

  b.m[1] = NAN;
  b.l[1] = NAN;
  b.m[2] = -1e30f;
  b.l[2] = 2;
  b.o[2 * 8] = 3;
  lychee_softmax_merge (&a, &b, 3, 8);
  lychee_softmax_finish (&a, 3, 8, output);
  g_assert_true (output[0] == 0 && isnan (output[8]));
  g_assert_true (output[16] == 1.5f && output[17] == 0);
  free_memory ();
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, NULL);
  cases = g_ptr_array_new_with_free_func (g_free);
  mappings = g_ptr_array_new_with_free_func (free_mapping);

  add_cases ("f16-to-f32", test_f16_to_f32, FALSE);
  add_cases ("f32-to-f16", test_f32_to_f16, FALSE);
  add_cases ("attend", test_attend, TRUE);
  add_cases ("gather", test_gather, TRUE);
  add_cases ("groups", test_groups, TRUE);
  add_cases ("values", test_values, TRUE);
  add_cases ("visible", test_visible, TRUE);
  add_cases ("accumulate", test_accumulate, TRUE);
  add_cases ("exp", test_exp, FALSE);
  add_cases ("extremes", test_extremes, FALSE);
  add_cases ("alignment", test_alignment, TRUE);
  add_cases ("turn", test_turn, TRUE);
  g_test_add_func ("/kernels/list", test_list);
  g_test_add_data_func ("/kernels/choice/best", NULL, test_choice);
  g_test_add_data_func ("/kernels/choice/generic", "generic", test_choice);
  g_test_add_data_func ("/kernels/choice/reference", "reference", test_choice);
  g_test_add_data_func ("/kernels/choice/unknown", "abacus", test_choice);
  g_test_add_data_func ("/kernels/choice/empty", "", test_choice);
  g_test_add_func ("/kernels/merge-empty", test_merge_empty);
  return g_test_run ();
}
