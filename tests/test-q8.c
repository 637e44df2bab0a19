/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Caches of the type q8_0: near to f16, in half the memory, in all that a session does. */

#include "model-logits.h"
#include "session-fixture.h"
#include "tiny-model.h"

#include "lychee-memory.h"
#include "lychee-model-private.h"

#include <math.h>

#define STEP 12
#define SECOND G_GUINT64_CONSTANT (1000000000)

static char *dir;

static LycheeModel *
load_model (const char *architecture, guint head_dim)
{
  LycheeTinyModel tiny = LYCHEE_TINY_MODEL_INIT;
  g_autofree char *path = NULL;

  tiny.architecture = architecture;
  tiny.head_dim = head_dim;
  if (architecture) { /* the sixth layer sees everything */
    tiny.n_layers = 7;
    tiny.window = 40;
  }
  path = lychee_tiny_model_write (&tiny, dir, "model.gguf");
  return test_model_load (path);
}

static LycheeSession *
new_session (LycheeModel *model, LycheeCacheType type, LycheeGranularity granularity,
    LycheePositions positions)
{
  return g_object_new (LYCHEE_TYPE_SESSION, "model", model, "max-context", 1500, "reserve", 200,
      "budget", 200, "cache-type", type, "granularity", granularity, "positions", positions,
      "overflow", LYCHEE_OVERFLOW_FORGET_OLDEST, "template", LYCHEE_CHAT_FORMAT_CHATML, NULL);
}

/* |a - b| / |b| of the logits of what follows, read as @options say. */
static double
get_distance (LycheeSession *a, LycheeSession *b, gboolean sparse)
{
  const LycheeAttentionOptions options = { .sparse = sparse, .budget = 200, .rest = TRUE };
  g_autoptr (LycheeExecutor) executor = lychee_executor_get (1);
  LycheeModel *model = lychee_session_get_model (a);
  LycheeSession *sessions[] = { a, b };
  const gint32 ids[] = { 40, 41, 42 };
  float *all[2];
  double distance = 0, length = 0;

  for (guint i = 0; i < 2; i++) {
    g_autoptr (LycheeCache) fork = lychee_cache_fork (lychee_session_get_cache (sessions[i]), NULL);
    LycheeForward *forward = lychee_forward_new (model, executor);
    g_autoptr (GError) error = NULL;
    const float *logits;

    lychee_attention_set_options (lychee_forward_get_attention (forward), &options);
    lychee_forward_run (forward, fork, ids, 3, LYCHEE_OUTPUT_LAST, &logits, NULL, &error);
    g_assert_no_error (error);
    all[i] = g_memdup2 (logits, lychee_model_get_n_vocab (model) * sizeof *logits);
    lychee_forward_free (forward);
  }
  for (guint i = 0; i < lychee_model_get_n_vocab (model); i++) {
    distance += (all[0][i] - all[1][i]) * (all[0][i] - all[1][i]);
    length += all[1][i] * all[1][i];
  }
  g_free (all[0]);
  g_free (all[1]);
  return sqrt (distance / length);
}

typedef struct {
  const char *name, *architecture;
  guint head_dim;
  LycheeGranularity granularity;
  LycheePositions positions;
} Case;

static const Case cases[] = {
  { "token", NULL, 32, LYCHEE_GRANULARITY_TOKEN, LYCHEE_POSITIONS_ABSOLUTE },
  { "chunk", NULL, 64, LYCHEE_GRANULARITY_CHUNK, LYCHEE_POSITIONS_ABSOLUTE },
  { "packed", NULL, 32, LYCHEE_GRANULARITY_TOKEN, LYCHEE_POSITIONS_PACKED },
  { "local", "gemma3", 32, LYCHEE_GRANULARITY_TOKEN, LYCHEE_POSITIONS_ABSOLUTE },
};

/* Read, forked, forgotten, cut, saved and loaded, dense and sparse: at each step near to f16, and
 * a copy is the same to the bit. */
static void
test_session (gconstpointer data)
{
  const Case *c = data;
  g_autoptr (LycheeModel) model = load_model (c->architecture, c->head_dim);
  g_autoptr (LycheeSession) f16 =
      new_session (model, LYCHEE_CACHE_TYPE_F16, c->granularity, c->positions);
  g_autoptr (LycheeSession) q8 =
      new_session (model, LYCHEE_CACHE_TYPE_Q8_0, c->granularity, c->positions);
  g_autoptr (LycheeSession) loaded =
      new_session (model, LYCHEE_CACHE_TYPE_F16, c->granularity, c->positions);
  g_autoptr (LycheeSession) fork = NULL;
  g_autofree char *path = g_build_filename (dir, "session", NULL);
  g_autoptr (GError) error = NULL;
  LycheeCacheType type;

  for (guint n = 60; n <= 120; n += 60) { /* in the end the oldest are forgotten */
    append_chunks (f16, n - 60, n, STEP);
    append_chunks (q8, n - 60, n, STEP);
    for (guint sparse = 0; sparse < 2; sparse++) {
      double distance = get_distance (q8, f16, sparse);

      g_test_message ("%u chunks, sparse %u: %.4f", n, sparse, distance);
      g_assert_cmpfloat (distance, >, 0);
      g_assert_cmpfloat (distance, <, sparse ? 0.1 : 0.003);
    }
    g_assert_cmpuint (lychee_cache_get_bytes (lychee_session_get_cache (q8)) * 32, ==,
        lychee_cache_get_bytes (lychee_session_get_cache (f16)) * 17);
  }
  g_assert_cmpuint (lychee_session_truncate (f16, 115 * SECOND), ==, 115 * SECOND);
  g_assert_cmpuint (lychee_session_truncate (q8, 115 * SECOND), ==, 115 * SECOND);
  g_assert_cmpfloat (get_distance (q8, f16, FALSE), <, 0.003);
  fork = lychee_session_fork (q8, &error);
  g_assert_no_error (error);
  lychee_session_save (q8, path, NULL, &error);
  g_assert_no_error (error);
  lychee_session_load (loaded, path, NULL, &error);
  g_assert_no_error (error);
  g_object_get (loaded, "cache-type", &type, NULL);
  g_assert_cmpint (type, ==, LYCHEE_CACHE_TYPE_Q8_0);
  append_chunks (q8, 115, 122, STEP);
  append_chunks (fork, 115, 122, STEP);
  append_chunks (loaded, 115, 122, STEP);
  for (guint sparse = 0; sparse < 2; sparse++) {
    g_assert_cmpfloat (get_distance (fork, q8, sparse), ==, 0);
    g_assert_cmpfloat (get_distance (loaded, q8, sparse), ==, 0);
  }
}

/* What is copied out of the cache is ggml's blocks, and says what f16 says. */
static void
test_read (void)
{
  g_autoptr (LycheeModel) model = load_model (NULL, 32);
  g_autoptr (LycheeSession) f16 = new_session (model, LYCHEE_CACHE_TYPE_F16, 0, 0);
  g_autoptr (LycheeSession) q8 = new_session (model, LYCHEE_CACHE_TYPE_Q8_0, 0, 0);
  const LycheeCpuKernels *kernels = lychee_cpu_kernels_get_reference ();
  LycheeCache *from[2];
  guint n = 30, n_rows;
  g_autofree guint16 *halves = NULL, *blocks = NULL;

  append_chunks (f16, 0, 10, STEP);
  append_chunks (q8, 0, 10, STEP);
  from[0] = lychee_session_get_cache (f16);
  from[1] = lychee_session_get_cache (q8);
  n_rows = n * lychee_cache_get_n_layers (from[0]) * lychee_cache_get_n_kv_heads (from[0]) * 2;
  g_assert_cmpuint (lychee_cache_get_token_bytes (from[0]) * n, ==, n_rows * 64);
  g_assert_cmpuint (lychee_cache_get_token_bytes (from[1]) * n, ==, n_rows * 34);
  halves = g_malloc (n_rows * 64);
  blocks = g_malloc (n_rows * 34);
  lychee_cache_read (from[0], 70, n, halves);
  lychee_cache_read (from[1], 70, n, blocks);
  for (guint i = 0; i < n_rows / 2; i++) { /* those of the first layer do not depend on others */
    float a[32], b[32], most = 0;

    kernels->f16_to_f32 (halves + i * 32, a, 32);
    kernels->q8_0->read_row (blocks + i * 17, 32, b);
    for (guint d = 0; d < 32; d++)
      most = MAX (most, fabsf (a[d]));
    for (guint d = 0; d < 32; d++)
      g_assert_cmpfloat_with_epsilon (a[d], b[d], most / 127 * 0.6f + 2e-3f * most);
  }
}

static void
test_estimate (void)
{
  g_autoptr (LycheeModel) model = load_model (NULL, 64);
  LycheeMemoryNeed f16, q8;

  lychee_memory_estimate (model, 3200, FALSE, LYCHEE_ROW_F16, 0, &f16);
  lychee_memory_estimate (model, 3200, FALSE, LYCHEE_ROW_Q8_0, 0, &q8);
  g_assert_cmpuint (q8.cache * 32, ==, f16.cache * 17);
  g_assert_cmpuint (q8.index, ==, f16.index);
}

/* Heads that are no multiple of a block: refused, with the way out. */
static void
test_refused (void)
{
  g_autoptr (LycheeModel) model = load_model (NULL, 16);
  g_autoptr (LycheeSession) session = new_session (model, LYCHEE_CACHE_TYPE_Q8_0, 0, 0);
  g_autoptr (LycheeChunk) chunk = new_chunk (0, STEP);
  g_autoptr (GError) error = NULL;

  g_assert_false (lychee_session_append (session, chunk, NULL, &error));
  g_assert_error (error, LYCHEE_SESSION_ERROR, LYCHEE_SESSION_ERROR_CACHE);
  g_assert_nonnull (strstr (error->message, "cache-type to f16"));
}

int
main (int argc, char **argv)
{
  int result;

  g_test_init (&argc, &argv, NULL);
  dir = g_dir_make_tmp ("lychee-test-XXXXXX", NULL);
  for (guint i = 0; i < G_N_ELEMENTS (cases); i++) {
    g_autofree char *path = g_strconcat ("/q8/session/", cases[i].name, NULL);

    g_test_add_data_func (path, &cases[i], test_session);
  }
  g_test_add_func ("/q8/read", test_read);
  g_test_add_func ("/q8/estimate", test_estimate);
  g_test_add_func ("/q8/refused", test_refused);
  result = g_test_run ();
  lychee_test_remove_dir (dir);
  g_free (dir);
  return result;
}
