/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "lychee-sampler.h"

#include <float.h>
#include <math.h>
#include <string.h>

#define N_DRAWS 20000

static LycheeSampler *
new_sampler (double temperature, guint top_k, double top_p, double min_p, guint64 seed)
{
  return g_object_new (LYCHEE_TYPE_SAMPLER, "temperature", temperature, "top-k", top_k, "top-p",
      top_p, "min-p", min_p, "repetition-penalty", 1.0, "seed", seed, NULL);
}

/* Greedy: exactly the best, the lowest id of equals. */

typedef struct {
  const char *name;
  guint n;
  float logits[12];
  gint32 id;
} GreedyCase;

static const GreedyCase greedy_cases[] = {
  { "best", 4, { 1, 3, 2, 0 }, 1 },
  { "first", 3, { 3, 2, 1 }, 0 },
  { "last", 3, { 1, 2, 3 }, 2 },
  { "equal", 4, { 1, 3, 3, 3 }, 1 },
  { "all-equal", 3, { 2, 2, 2 }, 0 },
  { "equal-far", 12, { 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 5, 5 }, 3 },
  { "equal-other-lane", 12, { 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 5, 0 }, 7 },
  { "negative", 3, { -3, -1, -2 }, 1 },
  { "one-ulp", 2, { 1, 1.00000012f }, 1 },
  { "tail", 9, { 0, 0, 0, 0, 0, 0, 0, 0, 1 }, 8 },
  { "zeros", 2, { -0.0f, 0.0f }, 0 },
  { "nan", 4, { NAN, 1, NAN, 2 }, 3 },
  { "nan-first-of-lane", 12, { NAN, 0, 0, 0, 0, 0, 0, 0, 7, NAN, 0, 0 }, 8 },
  { "infinite", 3, { INFINITY, 1, 2 }, 2 },
  { "minus-infinite", 3, { -INFINITY, -1, -INFINITY }, 1 },
  { "lowest-finite", 3, { -INFINITY, -FLT_MAX, NAN }, 1 },
  { "highest-finite", 3, { 0, FLT_MAX, NAN }, 1 },
  { "none-finite", 3, { NAN, INFINITY, -INFINITY }, -1 },
  { "all-nan", 2, { NAN, NAN }, -1 },
  { "no-tokens", 0, { 0 }, -1 },
  { "one-token", 1, { -5 }, 0 },
};

static void
test_greedy (gconstpointer data)
{
  const GreedyCase *c = data;
  g_autoptr (LycheeSampler) sampler = new_sampler (0, 0, 1, 0, 0);

  g_assert_cmpint (lychee_sampler_sample (sampler, c->logits, c->n), ==, c->id);
}

/* What is no logit is not chosen at any temperature, and -1 is said in the same cases. */
static void
test_greedy_case_sampled (gconstpointer data)
{
  const GreedyCase *c = data;
  g_autoptr (LycheeSampler) sampler = new_sampler (1, 0, 1, 0, 3);

  for (guint i = 0; i < 200; i++) {
    gint32 id = lychee_sampler_sample (sampler, c->logits, c->n);

    if (c->id < 0)
      g_assert_cmpint (id, ==, -1);
    else
      g_assert_true (id >= 0 && (guint) id < c->n && isfinite (c->logits[id]));
  }
}

/* top-k 1, top-p 0, min-p 1 and a temperature of almost 0 are greedy, too: but for equals, which
 * min-p and temperature leave equal. */
static void
test_nearly_greedy (void)
{
  for (guint i = 0; i < G_N_ELEMENTS (greedy_cases); i++) {
    const GreedyCase *c = &greedy_cases[i];
    g_autoptr (LycheeSampler) k = new_sampler (1, 1, 1, 0, i);
    g_autoptr (LycheeSampler) p = new_sampler (1, 0, 0, 0, i);
    g_autoptr (LycheeSampler) m = new_sampler (1, 0, 1, 1, i);
    g_autoptr (LycheeSampler) t = new_sampler (1e-300, 0, 1, 0, i);
    gint32 id;

    if (strcmp (c->name, "one-ulp") != 0) {
      g_assert_cmpint (lychee_sampler_sample (k, c->logits, c->n), ==, c->id);
      g_assert_cmpint (lychee_sampler_sample (p, c->logits, c->n), ==, c->id);
    }
    id = lychee_sampler_sample (t, c->logits, c->n);
    g_assert_true (id == c->id || c->logits[id] == c->logits[c->id]);
    id = lychee_sampler_sample (m, c->logits, c->n);
    g_assert_true (id == c->id || fabsf (c->logits[id] - c->logits[c->id]) < 1e-6f);
  }
}

static void
test_one_ulp_top_k (void)
{
  const float logits[2] = { 1, 1.00000012f };
  g_autoptr (LycheeSampler) sampler = new_sampler (1000, 1, 1, 0, 0);

  for (guint i = 0; i < 50; i++)
    g_assert_cmpint (lychee_sampler_sample (sampler, logits, 2), ==, 1);
}

/* Penalty */

typedef struct {
  const char *name;
  double penalty;
  guint window;
  gint32 accepted[4]; /* up to the first -9 */
  float logits[4];
  gint32 id;
} PenaltyCase;

static const PenaltyCase penalty_cases[] = {
  { "off", 1.0, 64, { 1, -9 }, { 1, 2, 1.9f, 0 }, 1 },
  { "lowers", 1.1, 64, { 1, -9 }, { 1, 2, 1.9f, 0 }, 2 },
  { "too-little", 1.04, 64, { 1, -9 }, { 1, 2, 1.9f, 0 }, 1 },
  { "once-for-each", 1.04, 64, { 1, 1, 1, -9 }, { 1, 2, 1.9f, 0 }, 1 },
  { "negative-lowered", 1.1, 64, { 1, -9 }, { -3, -2, -2.1f, -4 }, 2 },
  { "zero", 1.1, 64, { 1, -9 }, { -3, 0, -0.1f, -4 }, 1 },
  { "several", 2, 64, { 1, 2, -9 }, { 1.5f, 2, 2.5f, 0 }, 0 },
  { "below-one-raises", 0.5, 64, { 2, -9 }, { 1, 2, 1.9f, 0 }, 2 },
  { "window-holds", 1.1, 2, { 1, 3, -9 }, { 1, 2, 1.9f, 0 }, 2 },
  { "window-forgets", 1.1, 2, { 1, 3, 3, -9 }, { 1, 2, 1.9f, 0 }, 1 },
  { "no-window", 1.1, 0, { 1, -9 }, { 1, 2, 1.9f, 0 }, 1 },
  { "foreign-ids", 1.1, 64, { -1, 4, G_MAXINT32, -9 }, { 1, 2, 1.9f, 0 }, 1 },
  { "equal-after", 2, 64, { 3, -9 }, { 1, 2, 0, 4 }, 1 },
};

static void
test_penalty (gconstpointer data)
{
  const PenaltyCase *c = data;
  g_autoptr (LycheeSampler) sampler = g_object_new (
      LYCHEE_TYPE_SAMPLER, "repetition-penalty", c->penalty, "repetition-window", c->window, NULL);
  float logits[4];

  memcpy (logits, c->logits, sizeof logits);
  for (guint i = 0; i < 4 && c->accepted[i] != -9; i++)
    lychee_sampler_accept (sampler, c->accepted[i]);
  g_assert_cmpint (lychee_sampler_sample (sampler, logits, 4), ==, c->id);
  /* Read only. */
  g_assert_cmpmem (logits, sizeof logits, c->logits, sizeof logits);
}

static void
test_penalty_own_tokens (void)
{
  const float logits[3] = { 2, 1.9f, 1.8f };
  g_autoptr (LycheeSampler) sampler = lychee_sampler_new ();

  g_assert_cmpint (lychee_sampler_sample (sampler, logits, 3), ==, 0);
  g_assert_cmpint (lychee_sampler_sample (sampler, logits, 3), ==, 1);
  g_assert_cmpint (lychee_sampler_sample (sampler, logits, 3), ==, 0);
  lychee_sampler_reset (sampler);
  g_assert_cmpint (lychee_sampler_sample (sampler, logits, 3), ==, 0);
}

static void
test_penalty_sampled (void)
{
  const float logits[2] = { 2, 2 };
  g_autoptr (LycheeSampler) sampler = g_object_new (LYCHEE_TYPE_SAMPLER, "temperature", 1.0,
      "repetition-penalty", 100.0, "repetition-window", 1, "seed", G_GUINT64_CONSTANT (1), NULL);
  gint32 last = lychee_sampler_sample (sampler, logits, 2);
  guint n_changes = 0;

  /* e^2 : e^0.02, so that some 88 % differ from the one before. */
  for (guint i = 0; i < 1000; i++) {
    gint32 id = lychee_sampler_sample (sampler, logits, 2);

    n_changes += id != last;
    last = id;
  }
  g_assert_cmpuint (n_changes, >, 830);
  g_assert_cmpuint (n_changes, <, 930);
}

static void
test_penalty_makes_infinite (void)
{
  const float logits[2] = { -FLT_MAX, NAN };
  g_autoptr (LycheeSampler) sampler =
      g_object_new (LYCHEE_TYPE_SAMPLER, "repetition-penalty", 2.0, NULL);

  lychee_sampler_accept (sampler, 0);
  g_assert_cmpint (lychee_sampler_sample (sampler, logits, 2), ==, -1);
}

/* Distributions: which tokens are drawn, and how often. */

typedef struct {
  const char *name;
  double temperature;
  guint top_k;
  double top_p;
  double min_p;
  double p[6];        /* logits are their logarithms; 0 ends them */
  double expected[6]; /* how often, or 0 for never */
} DrawCase;

static const DrawCase draw_cases[] = {
  { "all", 1, 0, 1, 0, { .4, .3, .2, .1 }, { .4, .3, .2, .1 } },
  { "order-of-ids-is-nothing", 1, 0, 1, 0, { .1, .4, .2, .3 }, { .1, .4, .2, .3 } },
  { "not-normalised", 1, 0, 1, 0, { 40, 30, 20, 10 }, { .4, .3, .2, .1 } },
  { "cold", 0.5, 0, 1, 0, { .4, .2 }, { .8, .2 } },
  { "hot", 2, 0, 1, 0, { .64, .04 }, { .8, .2 } },
  { "very-hot", 1000, 0, 1, 0, { .9, .1 }, { .5, .5 } },
  { "very-cold", 1e-6, 0, 1, 0, { .4, .39 }, { 1 } },
  { "top-k", 1, 2, 1, 0, { .1, .4, .2, .3 }, { 0, 4 / 7., 0, 3 / 7. } },
  { "top-k-of-equals", 1, 2, 1, 0, { .25, .25, .25, .25 }, { .5, .5 } },
  { "top-k-between-equals", 1, 2, 1, 0, { .2, .4, .2, .2 }, { 1 / 3., 2 / 3. } },
  { "top-k-near-equals", 1, 2, 1, 0, { .25, .2501, .2502, .2499 }, { 0, .5, .5 } },
  { "top-k-all", 1, 9, 1, 0, { .4, .3, .2, .1 }, { .4, .3, .2, .1 } },
  { "top-p", 1, 0, .65, 0, { .1, .4, .2, .3 }, { 0, 4 / 7., 0, 3 / 7. } },
  { "top-p-reaches", 1, 0, .75, 0, { .1, .4, .2, .3 }, { 0, 4 / 9., 2 / 9., 3 / 9. } },
  { "top-p-one-at-least", 1, 0, .1, 0, { .1, .4, .2, .3 }, { 0, 1 } },
  { "top-p-in-equals", 1, 0, .6, 0, { .25, .25, .25, .25 }, { 1 / 3., 1 / 3., 1 / 3. } },
  { "top-p-almost-all", 1, 0, .9999, 0, { .4, .3, .2, .1 }, { .4, .3, .2, .1 } },
  { "min-p", 1, 0, 1, .6, { .1, .4, .2, .3 }, { 0, 4 / 7., 0, 3 / 7. } },
  { "min-p-exact", 1, 0, 1, .5, { .1, .4, .201, .3 }, { 0, .444, .223, .333 } },
  { "top-p-after-top-k", 1, 3, .7, 0, { .1, .4, .2, .3 }, { 0, 4 / 7., 0, 3 / 7. } },
  { "top-p-after-min-p", 1, 0, .7, .4, { .1, .4, .2, .3 }, { 0, 4 / 7., 0, 3 / 7. } },
  { "min-p-after-top-k", 1, 1, 1, .1, { .1, .4, .2, .3 }, { 0, 1 } },
  { "top-p-after-temperature", 2, 0, .75, 0, { .64, .04, .01 }, { .8, .2 } },
  { "rare", 1, 0, 1, 0, { .999, .001 }, { .999, .001 } },
};

static void
test_draw (gconstpointer data)
{
  const DrawCase *c = data;
  g_autoptr (LycheeSampler) sampler =
      new_sampler (c->temperature, c->top_k, c->top_p, c->min_p, 42);
  float logits[6];
  guint counts[6] = { 0 }, n = 0;

  for (; n < 6 && c->p[n] > 0; n++)
    logits[n] = logf (c->p[n]);
  for (guint i = 0; i < N_DRAWS; i++) {
    gint32 id = lychee_sampler_sample (sampler, logits, n);

    g_assert_true (id >= 0 && (guint) id < n);
    counts[id]++;
  }
  for (guint i = 0; i < n; i++) {
    double mean = c->expected[i] * N_DRAWS;
    double deviation = sqrt (N_DRAWS * c->expected[i] * (1 - c->expected[i]));

    if (c->expected[i] == 0)
      g_assert_cmpuint (counts[i], ==, 0);
    else
      g_assert_cmpfloat_with_epsilon (counts[i], mean, 4.5 * deviation + 10);
  }
}

/* The sets that top-k, min-p and top-p leave, against the plain definition, over many logits. */

typedef struct {
  float logit;
  gint32 id;
} Ranked;

static int
compare_ranked (const void *a, const void *b)
{
  const Ranked *x = a, *y = b;

  return x->logit != y->logit ? (x->logit < y->logit ? 1 : -1) : x->id - y->id;
}

static void
test_sets (void)
{
  enum { N = 500 };
  g_autoptr (GRand) rand = g_rand_new_with_seed (5);

  for (guint round = 0; round < 60; round++) {
    float logits[N];
    Ranked ranked[N];
    gboolean allowed[N] = { FALSE }, sure[N] = { FALSE };
    guint top_k = round % 3 == 0 ? 0 : (guint) g_rand_int_range (rand, 1, 30);
    double top_p = round % 2 == 0 ? 1 : g_rand_double_range (rand, 0.1, 0.99);
    double min_p = round % 5 < 3 ? 0 : g_rand_double_range (rand, 0.001, 0.3);
    double temperature = g_rand_double_range (rand, 0.3, 2), total = 0, sum = 0;
    guint n = 0;
    g_autoptr (LycheeSampler) sampler = new_sampler (temperature, top_k, top_p, min_p, round);

    for (guint i = 0; i < N; i++) {
      /* Coarse, so that many are equal. */
      logits[i] = roundf (g_rand_double_range (rand, 0, 8) * 8) / 8;
      ranked[i] = (Ranked){ logits[i], i };
    }
    qsort (ranked, N, sizeof *ranked, compare_ranked);
    for (; n < (top_k > 0 ? MIN (top_k, N) : N); n++) {
      double weight = exp ((ranked[n].logit - ranked[0].logit) / temperature);

      if (weight < min_p)
        break;
      total += weight;
    }
    for (guint i = 0; i < n; i++) {
      double weight = exp ((ranked[i].logit - ranked[0].logit) / temperature);

      allowed[ranked[i].id] = i == 0 || sum < top_p * total * (1 + 1e-6);
      sure[ranked[i].id] = i == 0 || sum < top_p * total * (1 - 1e-6);
      sum += weight;
    }
    for (guint i = 0; i < 3000; i++)
      g_assert_true (allowed[lychee_sampler_sample (sampler, logits, N)]);
    if (top_k > 0 && top_k <= 5) {
      gboolean seen[N] = { FALSE };

      for (guint i = 0; i < 3000; i++)
        seen[lychee_sampler_sample (sampler, logits, N)] = TRUE;
      for (guint i = 0; i < N; i++)
        g_assert_true (seen[i] || !sure[i] || min_p == 0);
    }
  }
}

/* The same seed, the same tokens: these, on every machine. */
static void
test_golden (void)
{
  static const gint32 golden[] = { 57, 76, 5, 35, 43, 90, 32, 19, 87, 54, 90, 79, 65, 60, 98, 19,
    60, 46, 73, 16, 57, 98, 60, 38 };
  g_autoptr (LycheeSampler) sampler = g_object_new (LYCHEE_TYPE_SAMPLER, "temperature", 0.8,
      "top-p", 0.95, "min-p", 0.01, "top-k", 50, "seed", G_GUINT64_CONSTANT (42), NULL);
  float logits[100];

  for (guint i = 0; i < 100; i++)
    logits[i] = (float) (i * 37 % 101) / 16;
  for (guint i = 0; i < G_N_ELEMENTS (golden); i++)
    g_assert_cmpint (lychee_sampler_sample (sampler, logits, 100), ==, golden[i]);
}

/* With equal weights the token is the random number's high bits: the generator's published first
 * numbers for seed 42, stream 54 (pcg32-demo) are 0xa15c02b7 0x7b47f409 0xba1d3330 0x83d2f293. */
static void
test_generator (void)
{
  enum { N = 1 << 16 };
  g_autoptr (LycheeSampler) sampler = new_sampler (1, 0, 1, 0, 42);
  g_autofree float *logits = g_new0 (float, N);

  g_assert_cmpint (lychee_sampler_sample (sampler, logits, N), ==, 0xa15c);
  g_assert_cmpint (lychee_sampler_sample (sampler, logits, N), ==, 0xba1d);
}

static void
test_seed (void)
{
  g_autoptr (LycheeSampler) a = new_sampler (1, 0, 1, 0, 7);
  g_autoptr (LycheeSampler) b = new_sampler (1, 0, 1, 0, 7);
  g_autoptr (LycheeSampler) c = new_sampler (1, 0, 1, 0, 8);
  float logits[64] = { 0 };
  guint n_same = 0;

  for (guint i = 0; i < 100; i++) {
    gint32 id = lychee_sampler_sample (a, logits, 64);

    g_assert_cmpint (lychee_sampler_sample (b, logits, 64), ==, id);
    n_same += lychee_sampler_sample (c, logits, 64) == id;
  }
  g_assert_cmpuint (n_same, <, 20);
}

static void
test_reset (void)
{
  g_autoptr (LycheeSampler) sampler = new_sampler (1, 0, 1, 0, 7);
  float logits[64] = { 0 };
  gint32 first[20];

  for (guint i = 0; i < 20; i++)
    first[i] = lychee_sampler_sample (sampler, logits, 64);
  lychee_sampler_reset (sampler);
  for (guint i = 0; i < 20; i++)
    g_assert_cmpint (lychee_sampler_sample (sampler, logits, 64), ==, first[i]);
}

static void
test_copy (void)
{
  g_autoptr (LycheeSampler) sampler =
      g_object_new (LYCHEE_TYPE_SAMPLER, "temperature", 0.5, "top-k", 3, "top-p", 0.25, "min-p",
          0.125, "repetition-penalty", 1.5, "repetition-window", 9, "seed", G_MAXUINT64, NULL);
  g_autoptr (LycheeSampler) copy = NULL;
  double temperature, top_p, min_p, penalty;
  guint top_k, window;
  guint64 seed;

  lychee_sampler_accept (sampler, 1);
  copy = lychee_sampler_copy (sampler);
  g_object_get (copy, "temperature", &temperature, "top-k", &top_k, "top-p", &top_p, "min-p",
      &min_p, "repetition-penalty", &penalty, "repetition-window", &window, "seed", &seed, NULL);
  g_assert_cmpfloat (temperature, ==, 0.5);
  g_assert_cmpuint (top_k, ==, 3);
  g_assert_cmpfloat (top_p, ==, 0.25);
  g_assert_cmpfloat (min_p, ==, 0.125);
  g_assert_cmpfloat (penalty, ==, 1.5);
  g_assert_cmpuint (window, ==, 9);
  g_assert_cmpuint (seed, ==, G_MAXUINT64);
}

/* A copy is fresh: it has noted nothing, and starts from the seed. */
static void
test_copy_state (void)
{
  const float logits[2] = { 2, 1.9f };
  g_autoptr (LycheeSampler) sampler = lychee_sampler_new ();
  g_autoptr (LycheeSampler) copy = NULL;

  g_assert_cmpint (lychee_sampler_sample (sampler, logits, 2), ==, 0);
  copy = lychee_sampler_copy (sampler);
  g_assert_cmpint (lychee_sampler_sample (copy, logits, 2), ==, 0);
  g_assert_cmpint (lychee_sampler_sample (sampler, logits, 2), ==, 1);
}

static void
test_defaults (void)
{
  g_autoptr (LycheeSampler) sampler = lychee_sampler_new ();
  double temperature, top_p, min_p, penalty;
  guint top_k, window;

  g_object_get (sampler, "temperature", &temperature, "top-k", &top_k, "top-p", &top_p, "min-p",
      &min_p, "repetition-penalty", &penalty, "repetition-window", &window, NULL);
  g_assert_cmpfloat (temperature, ==, 0);
  g_assert_cmpuint (top_k, ==, 0);
  g_assert_cmpfloat (top_p, ==, 1);
  g_assert_cmpfloat (min_p, ==, 0);
  g_assert_cmpfloat (penalty, ==, 1.1);
  g_assert_cmpuint (window, ==, 64);
}

/* Vocabularies of other sizes, with one sampler. */
static void
test_vocabulary_changes (void)
{
  g_autoptr (LycheeSampler) sampler = lychee_sampler_new ();
  float logits[300];

  for (guint n = 1; n <= 300; n++) {
    memset (logits, 0, sizeof logits);
    logits[n - 1] = 9;
    g_object_set (sampler, "temperature", n % 2 ? 0.0 : 0.1, NULL);
    g_assert_cmpint (lychee_sampler_sample (sampler, logits, n), ==, n - 1);
  }
}

/* 256k tokens: a millisecond would be a tenth of a small model's time. The bound is lax, as tests
 * run on busy machines and under sanitizers; the figure is printed. */
static void
test_speed (gconstpointer data)
{
  enum { N = 1 << 18, ROUNDS = 50 };
  guint kind = GPOINTER_TO_UINT (data);
  g_autoptr (LycheeSampler) sampler = kind == 0   ? lychee_sampler_new ()
                                      : kind == 1 ? new_sampler (0.8, 40, 0.95, 0.05, 1)
                                      : kind == 2 ? new_sampler (1, 0, 0.95, 0, 1)
                                                  : new_sampler (1, 0, 1, 0, 1);
  g_autoptr (GRand) rand = g_rand_new_with_seed (2);
  g_autofree float *logits = g_new (float, N);
  double ms = G_MAXDOUBLE;

  /* Near to normal, with a few that stand out, as logits are. */
  for (guint i = 0; i < N; i++) {
    logits[i] = -6;
    for (guint j = 0; j < 12; j++)
      logits[i] += g_rand_double (rand);
    logits[i] = 2 * logits[i] + (i % 30011 == 0 ? 14 : 0);
  }
  lychee_sampler_sample (sampler, logits, N);
  /* The best of several: what the machine does otherwise counts for nothing. */
  for (guint i = 0; i < ROUNDS; i++) {
    gint64 start = g_get_monotonic_time ();

    lychee_sampler_sample (sampler, logits, N);
    ms = MIN (ms, (g_get_monotonic_time () - start) / 1000.0);
  }
  g_test_minimized_result (ms, "%.3f ms a token of 262144", ms);
  g_assert_cmpfloat (ms, <, 50);
}

#define ADD_TABLE(path, table, func)                                                               \
  for (guint i = 0; i < G_N_ELEMENTS (table); i++) {                                               \
    g_autofree char *name = g_strconcat (path, (table)[i].name, NULL);                             \
    g_test_add_data_func (name, &(table)[i], func);                                                \
  }

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, NULL);
  g_test_set_nonfatal_assertions ();
  ADD_TABLE ("/sampler/greedy/", greedy_cases, test_greedy)
  ADD_TABLE ("/sampler/not-greedy/", greedy_cases, test_greedy_case_sampled)
  g_test_add_func ("/sampler/nearly-greedy", test_nearly_greedy);
  g_test_add_func ("/sampler/one-ulp-top-k", test_one_ulp_top_k);
  ADD_TABLE ("/sampler/penalty/", penalty_cases, test_penalty)
  g_test_add_func ("/sampler/penalty/own-tokens", test_penalty_own_tokens);
  g_test_add_func ("/sampler/penalty/sampled", test_penalty_sampled);
  g_test_add_func ("/sampler/penalty/infinite", test_penalty_makes_infinite);
  ADD_TABLE ("/sampler/draw/", draw_cases, test_draw)
  g_test_add_func ("/sampler/sets", test_sets);
  g_test_add_func ("/sampler/golden", test_golden);
  g_test_add_func ("/sampler/generator", test_generator);
  g_test_add_func ("/sampler/seed", test_seed);
  g_test_add_func ("/sampler/reset", test_reset);
  g_test_add_func ("/sampler/copy", test_copy);
  g_test_add_func ("/sampler/copy-state", test_copy_state);
  g_test_add_func ("/sampler/defaults", test_defaults);
  g_test_add_func ("/sampler/vocabulary-changes", test_vocabulary_changes);
  g_test_add_data_func ("/sampler/speed/greedy", GUINT_TO_POINTER (0), test_speed);
  g_test_add_data_func ("/sampler/speed/all-on", GUINT_TO_POINTER (1), test_speed);
  g_test_add_data_func ("/sampler/speed/top-p", GUINT_TO_POINTER (2), test_speed);
  g_test_add_data_func ("/sampler/speed/temperature", GUINT_TO_POINTER (3), test_speed);
  return g_test_run ();
}
