/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Layers with a sliding window that hold only the window: the same logits, to the bit, as where
 * they hold everything, whatever becomes of the cache; and little memory. */

#include "model-logits.h"
#include "session-fixture.h"
#include "tiny-model.h"

#include "lychee-memory.h"
#include "lychee-model-private.h"

#include <math.h>

#define WINDOW 40
#define STEP 12
#define SECOND G_GUINT64_CONSTANT (1000000000)

static char *dir;
static LycheeModel *model;

/* Caches that read the same. */
typedef struct {
  LycheeForward *forward;
  LycheeCache *limited, *whole;
  GRand *rand;
} Twins;

static void
twins_init (Twins *t)
{
  g_autoptr (LycheeExecutor) executor = lychee_executor_get (1);

  t->forward = lychee_forward_new (model, executor);
  t->limited = test_model_cache (model, 2000);
  t->whole = test_model_cache (model, 2000);
  t->rand = g_rand_new_with_seed (5);
  lychee_model_limit_layers (model, t->limited);
}

static void
twins_clear (Twins *t)
{
  lychee_forward_free (t->forward);
  g_object_unref (t->limited);
  g_object_unref (t->whole);
  g_rand_free (t->rand);
}

static float *
run (LycheeForward *forward, LycheeCache *cache, const gint32 *ids, guint n)
{
  g_autoptr (GError) error = NULL;
  const float *logits;

  lychee_forward_run (forward, cache, ids, n, LYCHEE_OUTPUT_LAST, &logits, NULL, &error);
  g_assert_no_error (error);
  return g_memdup2 (logits, lychee_model_get_n_vocab (model) * sizeof *logits);
}

static void
run_both (Twins *t, guint n, guint step)
{
  gsize size = lychee_model_get_n_vocab (model) * sizeof (float);

  for (guint at = 0; at < n; at += step) {
    gint32 ids[64];
    g_autofree float *one = NULL, *other = NULL;

    for (guint i = 0; i < step; i++)
      ids[i] = g_rand_int_range (t->rand, 3, 200);
    one = run (t->forward, t->limited, ids, step);
    other = run (t->forward, t->whole, ids, step);
    g_assert_cmpmem (one, size, other, size);
  }
}

/* Bytes of whole pages in one layer. */
static guint64
layer_bytes (LycheeCache *cache, guint n_tokens)
{
  guint n_pages = (n_tokens + LYCHEE_CACHE_PAGE_TOKENS - 1) / LYCHEE_CACHE_PAGE_TOKENS;

  return (guint64) n_pages * LYCHEE_CACHE_PAGE_TOKENS * lychee_cache_get_token_bytes (cache) /
         lychee_cache_get_n_layers (cache);
}

static void
test_stream (void)
{
  Twins t;

  twins_init (&t);
  for (guint n = 120; n <= 1440; n += 120) {
    run_both (&t, 108, STEP);
    run_both (&t, 12, 1);
    g_assert_cmpuint (lychee_cache_get_bytes (t.whole), ==, 7 * layer_bytes (t.whole, n));
    g_assert_cmpuint (lychee_cache_get_bytes (t.limited), <=,
        layer_bytes (t.limited, n) +
            6 * layer_bytes (t.limited, lychee_cache_get_local_tokens (WINDOW, STEP)));
    g_assert_cmpuint (
        lychee_cache_get_bytes_with (t.limited, 0), ==, lychee_cache_get_bytes (t.limited));
  }
  /* The window reaches the page before, which the tokens to come will not. */
  g_assert_cmpuint (lychee_cache_get_bytes (t.limited), ==,
      layer_bytes (t.limited, 1440) + 6 * layer_bytes (t.limited, 512));
  g_assert_cmpuint (lychee_cache_get_local_begin (t.limited), ==, 1024);
  twins_clear (&t);
}

/* What is said before loading is what it takes in the end. */
static void
test_estimate (void)
{
  const guint n = 1920;
  LycheeMemoryNeed need, whole;
  Twins t;

  twins_init (&t);
  lychee_memory_estimate (model, n, FALSE, LYCHEE_ROW_F16, 0, &need);
  lychee_memory_estimate (model, n, TRUE, LYCHEE_ROW_F16, 0, &whole);
  for (guint at = 0; at < n; at += 480)
    run_both (&t, 480, 48);
  g_assert_cmpuint (whole.cache, ==, n * lychee_cache_get_token_bytes (t.whole));
  g_assert_cmpuint (need.cache, <, whole.cache * 2 / 3);
  g_assert_cmpuint (
      need.cache + layer_bytes (t.limited, 1), >=, lychee_cache_get_bytes (t.limited));
  g_assert_cmpuint (need.index, ==, whole.index);
  twins_clear (&t);
}

/* A fork keeps what it has, and each goes on by itself. */
static void
test_fork (void)
{
  Twins t, old;

  twins_init (&t);
  run_both (&t, 696, STEP);
  old = t;
  old.limited = lychee_cache_fork (t.limited, NULL);
  old.whole = lychee_cache_fork (t.whole, NULL);
  run_both (&t, 600, STEP);
  run_both (&old, 300, STEP);
  run_both (&t, 12, 1);
  g_object_unref (t.limited);
  g_object_unref (t.whole);
  run_both (&old, 300, STEP);
  twins_clear (&old);
}

/* A cut by a chunk or two leaves the window whole. One that goes further leaves what there is, and
 * that is what is read. */
static void
test_cut (void)
{
  Twins t;

  twins_init (&t);
  run_both (&t, 996, STEP);
  for (guint cut = 1; cut <= 230; cut += 100) {
    guint length = lychee_cache_get_length (t.limited) - cut;

    g_assert_true (lychee_cache_has_window (t.limited, length));
    lychee_cache_truncate (t.limited, length);
    lychee_cache_truncate (t.whole, length);
    run_both (&t, 240, STEP);
  }
  g_assert_false (lychee_cache_has_window (t.limited, 300));
  g_assert_true (lychee_cache_has_window (t.limited, 0));
  lychee_cache_truncate (t.limited, 300);
  g_assert_cmpuint (lychee_cache_get_local_begin (t.limited), ==, 300);
  for (guint turn = 0; turn < 2; turn++) {
    const gint32 ids[STEP] = { 5, 6, 7 };
    g_autofree float *logits = NULL;

    /* What was never written must not be seen: it differs from time to time. */
    logits = run (t.forward, t.limited, ids, STEP);
    for (guint i = 0; i < 20; i++)
      g_assert_true (isfinite (logits[i]));
    lychee_cache_truncate (t.limited, 300);
  }
  lychee_cache_truncate (t.limited, 0);
  lychee_cache_truncate (t.whole, 0);
  run_both (&t, 480, STEP);
  twins_clear (&t);
}

/* What is oldest is forgotten, and the window reaches the prompt's beginning or does not. */
static void
test_forget (gconstpointer data)
{
  guint left = GPOINTER_TO_UINT (data);
  Twins t;

  twins_init (&t);
  run_both (&t, 36, STEP);
  run_both (&t, 960, STEP);
  for (guint turn = 0; turn < 2; turn++) {
    guint end = lychee_cache_get_length (t.limited) - left;
    LycheeCache *caches[] = { t.limited, t.whole };

    for (guint i = 0; i < 2; i++) {
      g_autoptr (LycheeCache) start = lychee_cache_new_like (caches[i], 36);
      const gint32 ids[36] = { 9, 8, 7 };
      g_autofree float *logits = NULL;
      g_autoptr (GError) error = NULL;

      lychee_cache_set_origin (start, end - 36);
      logits = run (t.forward, start, ids, 36);
      g_assert_true (lychee_cache_forget (caches[i], start, end, &error));
      g_assert_no_error (error);
    }
    run_both (&t, 60, 1);
    run_both (&t, 360, STEP);
  }
  twins_clear (&t);
}

/* Sessions. */

static LycheeSession *
new_session (guint n_context)
{
  return g_object_new (LYCHEE_TYPE_SESSION, "model", model, "max-context", n_context, "reserve",
      200, "budget", 200, "overflow", LYCHEE_OVERFLOW_FORGET_OLDEST, "template",
      LYCHEE_CHAT_FORMAT_CHATML, NULL);
}

/* |a - b| / |b| of the logits of what follows */
static double
get_distance (LycheeSession *a, LycheeSession *b)
{
  g_autoptr (LycheeExecutor) executor = lychee_executor_get (1);
  LycheeForward *forward = lychee_forward_new (model, executor);
  LycheeSession *sessions[] = { a, b };
  const gint32 ids[] = { 40, 41, 42 };
  float *logits[2];
  double distance = 0, length = 0;

  for (guint i = 0; i < 2; i++) {
    g_autoptr (LycheeCache) fork = lychee_cache_fork (lychee_session_get_cache (sessions[i]), NULL);

    logits[i] = run (forward, fork, ids, G_N_ELEMENTS (ids));
  }
  for (guint i = 0; i < lychee_model_get_n_vocab (model); i++) {
    distance += (logits[0][i] - logits[1][i]) * (logits[0][i] - logits[1][i]);
    length += logits[1][i] * logits[1][i];
  }
  g_free (logits[0]);
  g_free (logits[1]);
  lychee_forward_free (forward);
  return sqrt (distance / length);
}

static void
assert_is_limited (LycheeSession *session)
{
  LycheeCache *cache = lychee_session_get_cache (session);

  g_assert_cmpuint (lychee_cache_get_local_window (cache), ==, WINDOW);
  g_assert_true (lychee_cache_has_window (cache, lychee_cache_get_length (cache)));
}

/* What is loaded goes on as what was saved, a beginning that was forgotten or not. */
static void
test_save (void)
{
  const guint n_chunks[] = { 2, 60, 200 };

  for (guint i = 0; i < G_N_ELEMENTS (n_chunks); i++) {
    g_autoptr (LycheeSession) session = new_session (1200), loaded = new_session (1200);
    g_autofree char *path = g_build_filename (dir, "session", NULL);
    g_autoptr (GError) error = NULL;

    append_chunks (session, 0, n_chunks[i], STEP);
    assert_is_limited (session);
    lychee_session_save (session, path, NULL, &error);
    g_assert_no_error (error);
    lychee_session_load (loaded, path, NULL, &error);
    g_assert_no_error (error);
    assert_is_limited (loaded);
    g_assert_cmpuint (lychee_cache_get_bytes (lychee_session_get_cache (loaded)), ==,
        lychee_cache_get_bytes (lychee_session_get_cache (session)));
    g_assert_cmpfloat (get_distance (loaded, session), ==, 0);
    append_chunks (session, n_chunks[i], n_chunks[i] + 40, STEP);
    append_chunks (loaded, n_chunks[i], n_chunks[i] + 40, STEP);
    g_assert_cmpfloat (get_distance (loaded, session), ==, 0);
  }
}

/* After a seek far back, what the windows need is there again: exactly where that is all that was
 * read, and nearly elsewhere. */
static void
test_rewind (void)
{
  const struct {
    guint left;
    double distance;
  } cases[] = { { 95, 0 }, { 60, 0.02 }, { 5, 0 }, { 1, 0 } };
  g_autoptr (LycheeSession) session = new_session (2000);

  for (guint i = 0; i < G_N_ELEMENTS (cases); i++) {
    g_autoptr (LycheeSession) fresh = new_session (2000);
    LycheeCache *cache = lychee_session_get_cache (session);
    guint left = cases[i].left, n = lychee_cache_get_n_chunks (cache);

    append_chunks (session, n, 100, STEP);
    g_assert_cmpuint (lychee_session_truncate (session, left * SECOND), ==, left * SECOND);
    assert_is_limited (session);
    append_chunks (fresh, 0, left, STEP);
    g_assert_cmpuint (lychee_cache_get_n_chunks (cache), ==, left);
    g_assert_cmpuint (lychee_cache_get_length (cache), ==,
        lychee_cache_get_length (lychee_session_get_cache (fresh)));
    g_assert_cmpfloat (get_distance (session, fresh), <=, cases[i].distance);
  }
}

/* The same where the beginning was forgotten, up to where that ends: the prompt's beginning is in
 * the windows again. */
static void
test_rewind_to_hole (void)
{
  g_autoptr (LycheeSession) session = new_session (900);
  LycheeCache *cache = lychee_session_get_cache (session);
  g_autoptr (LycheeChunk) first = NULL;
  guint position, begin, n;

  append_chunks (session, 0, 200, STEP);
  first = lychee_cache_get_chunk (cache, 0, &position);
  g_assert_cmpuint (lychee_cache_get_local_begin (cache), >, 0);
  lychee_session_truncate (session, first->pts + 2 * SECOND);
  lychee_cache_get_hole (cache, &begin, &n);
  g_assert_cmpuint (lychee_cache_get_length (cache), ==, position + 2 * STEP);
  g_assert_cmpuint (begin + n, ==, position);
  g_assert_cmpuint (lychee_cache_get_local_begin (cache), ==, 0);
  assert_is_limited (session);
  append_chunks (session, 200, 220, STEP);
  assert_is_limited (session);
}

/* A question about a part that is long past is answered, and changes nothing. */
static void
test_ask_part (void)
{
  g_autoptr (LycheeSession) session = new_session (2000), same = new_session (2000);

  append_chunks (session, 0, 100, STEP);
  append_chunks (same, 0, 100, STEP);
  for (guint from = 0; from < 90; from += 30) {
    g_autoptr (LycheeQuestion) question =
        g_object_new (LYCHEE_TYPE_QUESTION, "prompt", "Well?", "max-tokens", 8, NULL);
    g_autoptr (LycheeAnswer) answer = NULL;
    g_autoptr (GError) error = NULL;

    lychee_question_set_range (question, from * SECOND, (from + 10) * SECOND);
    answer = lychee_session_ask (session, question, NULL, NULL, NULL, &error);
    g_assert_no_error (error);
    g_assert_cmpuint (lychee_answer_get_transcript_tokens (answer), >=, 10 * STEP);
  }
  g_assert_cmpfloat (get_distance (session, same), ==, 0);
}

int
main (int argc, char **argv)
{
  LycheeTinyModel tiny = LYCHEE_TINY_MODEL_INIT;
  g_autofree char *path = NULL;
  int result;

  g_test_init (&argc, &argv, NULL);
  dir = g_dir_make_tmp ("lychee-test-XXXXXX", NULL);
  /* Seven layers, of which the sixth sees everything. */
  tiny.architecture = "gemma3";
  tiny.n_layers = 7;
  tiny.window = WINDOW;
  path = lychee_tiny_model_write (&tiny, dir, "model.gguf");
  model = test_model_load (path);
  g_test_add_func ("/local/stream", test_stream);
  g_test_add_func ("/local/estimate", test_estimate);
  g_test_add_func ("/local/fork", test_fork);
  g_test_add_func ("/local/cut", test_cut);
  g_test_add_data_func ("/local/forget/all-but-a-few", GUINT_TO_POINTER (20), test_forget);
  g_test_add_data_func ("/local/forget/near", GUINT_TO_POINTER (200), test_forget);
  g_test_add_data_func ("/local/forget/far", GUINT_TO_POINTER (700), test_forget);
  g_test_add_func ("/local/save", test_save);
  g_test_add_func ("/local/rewind", test_rewind);
  g_test_add_func ("/local/rewind/to-hole", test_rewind_to_hole);
  g_test_add_func ("/local/ask-part", test_ask_part);
  result = g_test_run ();
  g_object_unref (model);
  lychee_test_remove_dir (dir);
  g_free (dir);
  return result;
}
