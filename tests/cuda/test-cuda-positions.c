/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Packed positions on an emulated device, against the processor: up to what the model was trained
 * for, where keys are turned back, and beyond. */

#include "backend-fixture.h"
#include "lychee-sampler-private.h"

#include <string.h>

#define RANGE 128

typedef struct {
  const char *name, *architecture, *scaling;
  guint head_dim, window;
  LycheeGranularity granularity;
  LycheeRowForm form;
  gboolean keys_only;
} Case;

static const Case cases[] = {
  { "neighbours", NULL, NULL, 64 },
  { "halves", "qwen3", NULL, 64, .keys_only = TRUE },
  { "yarn", NULL, "yarn", 64, .keys_only = TRUE },
  { "window", "gemma3", NULL, 64, 40 },
  { "chunks", NULL, NULL, 64, 0, LYCHEE_GRANULARITY_CHUNK },
  { "q8_0", NULL, NULL, 64, 0, 0, LYCHEE_ROW_Q8_0 },
};

static LycheeModel *
load_case (const Case *c)
{
  LycheeTinyModel tiny = plain_model ();

  tiny.architecture = c->architecture;
  tiny.scaling = c->scaling;
  tiny.scaling_factor = 4;
  tiny.n_original = RANGE / 4;
  tiny.head_dim = c->head_dim;
  tiny.window = c->window;
  tiny.n_layers = c->window ? 6 : 2; /* a period of windows */
  tiny.n_context = RANGE;
  return load (&tiny, "positions.gguf");
}

static Side
new_side (LycheeBackendType type, LycheeModel *model, const Case *c, guint budget)
{
  LycheeAttentionOptions options = { .sparse = TRUE, .budget = budget, .rest = TRUE };
  Side side = { new_worker (type, model), new_cache_with (model, c->granularity, c->form) };

  lychee_worker_set_options (side.worker, &options);
  lychee_cache_set_packed (side.cache, TRUE);
  return side;
}

static void
side_clear (Side *side)
{
  lychee_worker_free (side->worker);
  g_object_unref (side->cache);
}

/* All is read, so that it is about keys and nothing else. */
static void
test_keys (gconstpointer data)
{
  const Case *c = data;
  g_autoptr (LycheeModel) model = load_case (c);
  Side cpu = new_side (LYCHEE_BACKEND_CPU, model, c, 4096);
  Side cuda = new_side (LYCHEE_BACKEND_CUDA, model, c, 4096);
  guint n_vocab = lychee_model_get_n_vocab (model);
  gint32 ids[RANGE + 40];
  double worst = 0;

  make_ids (ids, G_N_ELEMENTS (ids), 17);
  for (guint at = 0, n; at < G_N_ELEMENTS (ids); at += n) {
    n = at + 16 <= RANGE - 2 ? 16 : at < RANGE + 2 ? 1 : 7;
    n = MIN (n, G_N_ELEMENTS (ids) - at);
    run (&cpu, ids + at, n, LYCHEE_OUTPUT_LAST);
    run (&cuda, ids + at, n, LYCHEE_OUTPUT_LAST);
    g_assert_cmpint (lychee_cache_is_bare (cuda.cache), ==, at + n > RANGE);
    worst = MAX (worst, distance (cuda.logits, cpu.logits, n_vocab));
  }
  g_test_message ("logits differ by %.2e at most", worst);
  g_assert_cmpfloat (worst, <, c->window ? 1e-2 : 4e-3);
  side_clear (&cpu);
  side_clear (&cuda);
}

/* The processor reads beyond the model's range; both go on with what it made. */
static void
test_beyond (gconstpointer data)
{
  const Case *c = data;
  g_autoptr (LycheeModel) model = load_case (c);
  Side reader = new_side (LYCHEE_BACKEND_CPU, model, c, 120);
  Side cpu = new_side (LYCHEE_BACKEND_CPU, model, c, 120);
  Side cuda = new_side (LYCHEE_BACKEND_CUDA, model, c, 120);
  Side *sides[] = { &cpu, &cuda };
  LycheeAttentionStats stats[2];
  guint n_vocab = lychee_model_get_n_vocab (model), n_far = 0;
  gint32 ids[2 * RANGE + 40]; /* of which none is one whose query an index is shown */

  make_ids (ids, G_N_ELEMENTS (ids), 23);
  for (guint at = 0; at < 2 * RANGE; at += 16)
    run (&reader, ids + at, 16, LYCHEE_OUTPUT_NONE);
  g_assert_true (lychee_cache_is_bare (reader.cache));
  for (guint i = 0; i < 2; i++) {
    g_object_unref (sides[i]->cache);
    sides[i]->cache = lychee_cache_fork (reader.cache, NULL);
  }
  for (guint i = 0, at = 2 * RANGE, n; i < 18; i++, at += n) {
    double away;

    n = i == 5 ? 20 : 1; /* blocks of tokens, too */
    run (&cpu, ids + at, n, LYCHEE_OUTPUT_LAST);
    run (&cuda, ids + at, n, LYCHEE_OUTPUT_LAST);
    away = distance (cuda.logits, cpu.logits, n_vocab);
    g_test_message ("step %u: logits differ by %.2e", i, away);
    n_far += away > 1e-2;
    g_assert_cmpfloat (away, <, 0.2);
  }
  /* Leaves that are as good as equally dense fall here and there. */
  g_assert_cmpuint (n_far, <=, 4);
  for (guint i = 0; i < 2; i++)
    lychee_worker_take_stats (sides[i]->worker, &stats[i]);
  g_assert_cmpuint (stats[1].sparse, >, 0);
  g_assert_cmpuint (stats[1].sparse, ==, stats[0].sparse);
  g_assert_cmpuint (stats[1].dense, ==, 0);
  g_assert_cmpuint (stats[1].rows_read, ==, stats[0].rows_read);
  side_clear (&reader);
  side_clear (&cpu);
  side_clear (&cuda);
}

/* The device goes over the range itself: keys are turned back there, and indexes begin anew, layer
 * by layer; decoding goes through the index though there is less than it is worth it for. */
static void
test_over (gconstpointer data)
{
  const Case *c = data;
  g_autoptr (LycheeModel) model = load_case (c);
  guint n_layers = lychee_model_get_n_layers (model), n_vocab = lychee_model_get_n_vocab (model);
  Side cpu = new_side (LYCHEE_BACKEND_CPU, model, c, 4096); /* all of it */
  Side cuda = new_side (LYCHEE_BACKEND_CUDA, model, c, RANGE - 8);
  guint n_stale = 0;
  gint32 ids[RANGE + 30];

  make_ids (ids, G_N_ELEMENTS (ids), 29);
  for (guint at = 0, n; at < G_N_ELEMENTS (ids); at += n) {
    n = at < RANGE ? 16 : at < RANGE + 8 ? 1 : 11;
    run (&cpu, ids + at, n, LYCHEE_OUTPUT_LAST);
    run (&cuda, ids + at, n, LYCHEE_OUTPUT_LAST);
    g_assert_cmpfloat (distance (cuda.logits, cpu.logits, n_vocab), <, 0.3);
    for (guint layer = 0; layer < n_layers; layer++)
      n_stale += lychee_cache_get_index (cuda.cache, layer, 0) &&
                 lychee_cache_is_index_stale (cuda.cache, layer);
  }
  for (guint layer = 0; layer < n_layers; layer++) {
    g_assert_false (lychee_cache_is_index_stale (cuda.cache, layer));
    if (lychee_cache_get_index (cuda.cache, layer, 0))
      g_assert_cmpuint (
          lychee_index_get_end (lychee_cache_get_index (cuda.cache, layer, 0)), >, RANGE - 80);
  }
  g_assert_true (n_stale > 0 || c->window); /* one global layer */
  side_clear (&cpu);
  side_clear (&cuda);
}

#define N_STEPS 8

/* Several sequences, of which each is at another place, in one pass: @budget that of all rows, or
 * less. The processor reads their beginnings, and computes each one alone. */
static void
check_together (const Case *c, guint budget, double close)
{
  /* So that after the first token none has an index to bring up to date, which it does alone. */
  static const guint begins[N_TOGETHER] = { RANGE + 21, RANGE + 85, 2 * RANGE + 37 };
  g_autoptr (LycheeModel) model = NULL;
  g_autoptr (LycheeBackend) backend = NULL;
  LycheeAttentionOptions options = { .sparse = TRUE, .budget = budget, .rest = TRUE };
  Decoding all[N_TOGETHER] = { { NULL } };
  guint n_vocab, n_compared, n_decoding;
  guint64 n_shared;
  Side reader;
  gint32 ids[2 * RANGE + 40 + N_STEPS];

  g_setenv ("LYCHEE_CUDA_PATIENCE", "60000000", TRUE); /* nobody goes on without the others */
  model = load_case (c);
  backend = lychee_backend_new (LYCHEE_BACKEND_CUDA, model, 1, 0, NULL);
  g_unsetenv ("LYCHEE_CUDA_PATIENCE");
  n_vocab = lychee_model_get_n_vocab (model);
  make_ids (ids, G_N_ELEMENTS (ids), 31);
  reader = new_side (LYCHEE_BACKEND_CPU, model, c, budget);
  for (guint i = 0, at = 0; i < N_TOGETHER; i++) {
    Side alone = new_side (LYCHEE_BACKEND_CPU, model, c, budget);

    for (guint n; at < begins[i]; at += n) {
      n = MIN (16, begins[i] - at);
      run (&reader, ids + at, n, LYCHEE_OUTPUT_NONE);
    }
    g_assert_true (lychee_cache_is_bare (reader.cache));
    all[i] = (Decoding){ .model = model,
      .backend = backend,
      .cache = lychee_cache_fork (reader.cache, NULL),
      .options = &options,
      .ids = ids + begins[i] - RANGE,
      .n_steps = N_STEPS };
    g_object_unref (alone.cache);
    alone.cache = lychee_cache_fork (reader.cache, NULL);
    for (guint step = 0; step < N_STEPS; step++) {
      run (&alone, all[i].ids + step, 1, LYCHEE_OUTPUT_LAST);
      all[i].wanted[step] = find_largest (alone.logits, n_vocab, &all[i].gap[step]);
    }
    side_clear (&alone);
  }
  n_compared = decode_together (all, close);
  for (guint i = 0; i < N_TOGETHER; i++) {
    g_assert_cmpuint (lychee_cache_get_length (all[i].cache), ==, begins[i] + N_STEPS);
    g_object_unref (all[i].cache);
  }
  lychee_backend_get_sharing (backend, &n_decoding, &n_shared);
  g_test_message ("%u tokens compared, %" G_GUINT64_FORMAT " shared", n_compared, n_shared);
  g_assert_cmpuint (n_decoding, ==, 0);
  g_assert_cmpuint (n_compared, >=, N_TOGETHER * N_STEPS / 2);
  g_assert_cmpuint (n_shared, >=, N_TOGETHER * (N_STEPS - 2));
  side_clear (&reader);
}

static void
test_together (gconstpointer data)
{
  check_together (data, 120, 0.05);
  if (data == &cases[0]) /* reading all of it differs from that by the search alone */
    check_together (data, 4096, 0.02);
}

int
main (int argc, char **argv)
{
  static const struct {
    const char *name;
    void (*test) (gconstpointer data);
  } tests[] = { { "keys", test_keys }, { "beyond", test_beyond }, { "over", test_over },
    { "together", test_together } };
  int result;

  g_test_init (&argc, &argv, NULL);
  dir = g_dir_make_tmp ("lychee-cuda-XXXXXX", NULL);
  for (guint i = 0; i < G_N_ELEMENTS (cases); i++)
    for (guint j = 0; j < (cases[i].keys_only ? 1 : G_N_ELEMENTS (tests)); j++) {
      g_autofree char *name =
          g_strdup_printf ("/cuda/positions/%s/%s", cases[i].name, tests[j].name);

      g_test_add_data_func (name, &cases[i], tests[j].test);
    }
  result = g_test_run ();
  lychee_test_remove_dir (dir);
  g_free (dir);
  return result;
}
