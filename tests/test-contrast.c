/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* What a model says of a transcript against what it says without one. */

#include "lychee-contrast.h"
#include "lychee-question-private.h"
#include "session-fixture.h"

#include <math.h>

static LycheeModel *model;

/* The formula in float64, read off its description. */
static double *
mix_plainly (const float *with, const float *without, guint n, double strength)
{
  double *mixed = g_new (double, n), sum = 0, other = 0, most = 0;

  for (guint i = 0; i < n; i++) {
    sum += exp (with[i]);
    other += exp (without[i]);
  }
  for (guint i = 0; i < n; i++)
    most = MAX (most, exp (with[i]) / sum);
  for (guint i = 0; i < n; i++) {
    double p = exp (with[i]) / sum, q = exp (without[i]) / other;

    mixed[i] = p < most / 20 ? -INFINITY : with[i] + strength * (log (p) - log (q));
  }
  return mixed;
}

static void
test_formula (void)
{
  const guint sizes[] = { 1, 2, 7, 100, 1000 };
  const double strengths[] = { 0, 0.5, 1, 10 };

  for (guint s = 0; s < G_N_ELEMENTS (sizes); s++)
    for (guint t = 0; t < G_N_ELEMENTS (strengths); t++) {
      guint n = sizes[s], n_candidates = 0;
      g_autofree float *with = g_new (float, n), *without = g_new (float, n),
                       *mixed = g_new (float, n);
      g_autofree double *expected = NULL;

      for (guint i = 0; i < n; i++) {
        with[i] = g_test_rand_double_range (-8, 8);
        without[i] = g_test_rand_double_range (-8, 8);
      }
      expected = mix_plainly (with, without, n, strengths[t]);
      lychee_contrast_mix (with, without, n, strengths[t], mixed);
      for (guint i = 0; i < n; i++) {
        if (isinf (expected[i])) {
          g_assert_true (isinf (mixed[i]) && mixed[i] < 0);
          continue;
        }
        g_assert_cmpfloat_with_epsilon (mixed[i], expected[i], 1e-3);
        n_candidates++;
      }
      g_assert_cmpuint (n_candidates, >, 0);
    }
}

/* Not a number on either side is never chosen; large logits do not overflow. */
static void
test_odd (void)
{
  const float with[] = { 1000, 999, NAN, -INFINITY, 1000 };
  const float without[] = { 1000, 900, 1, 1, NAN };
  float mixed[5];

  lychee_contrast_mix (with, without, 5, 0.5, mixed);
  g_assert_true (isfinite (mixed[0]) && isfinite (mixed[1]));
  g_assert_cmpfloat (mixed[1], >, mixed[0]);
  g_assert_false (isfinite (mixed[2]) || isfinite (mixed[3]) || isfinite (mixed[4]));
}

static LycheeSession *
new_session (void)
{
  LycheeSession *session = lychee_session_new (model);

  append_chunks (session, 0, 20, 12);
  return session;
}

static char *
ask (LycheeSession *session, double strength, guint max_tokens, guint evidence)
{
  g_autoptr (LycheeQuestion) question = g_object_new (LYCHEE_TYPE_QUESTION, "prompt", "Who spoke?",
      "contrast", strength, "max-tokens", max_tokens, "evidence", evidence, NULL);
  g_autoptr (GError) error = NULL;
  g_autoptr (LycheeAnswer) answer =
      lychee_session_ask (session, question, NULL, NULL, NULL, &error);

  g_assert_no_error (error);
  return g_strdup (lychee_answer_get_text (answer));
}

/* Generates by two passes a token over caches of its own. */
static char *
ask_plainly (LycheeSession *session, double strength, guint n_tokens)
{
  LycheeTokenizer *tokenizer = lychee_model_get_tokenizer (model);
  g_autoptr (LycheeDecoder) decoder = lychee_decoder_new (tokenizer);
  g_autoptr (LycheeSampler) sampler = lychee_sampler_new ();
  LycheeChatFormat template;
  g_autoptr (LycheeCache) cache = lychee_session_ref_cache (session, &template);
  g_autoptr (LycheeCache) tail = lychee_cache_fork (cache, NULL);
  g_autoptr (LycheeCache) bare = lychee_cache_new_like (cache, 500);
  g_autoptr (LycheeWorker) one = lychee_worker_new (session->backend, NULL);
  g_autoptr (LycheeWorker) other = lychee_worker_new (session->backend, NULL);
  g_autoptr (GArray) ids = g_array_new (FALSE, FALSE, sizeof (gint32));
  GString *text = g_string_new (NULL);
  guint n_start, n = lychee_model_get_n_vocab (model);
  const gint32 *start = lychee_cache_get_start (cache, &n_start);
  const float *with, *without;

  lychee_chat_format_append_suffix (template, tokenizer, "Who spoke?", ids);
  g_assert_true (
      lychee_worker_run (other, bare, start, n_start, LYCHEE_OUTPUT_NONE, NULL, NULL, NULL));
  for (guint i = 0; i < n_tokens; i++) {
    g_autofree double *mixed = NULL;
    g_autofree float *logits = g_new (float, n);
    gint32 id;

    g_assert_true (lychee_worker_run (
        one, tail, (gint32 *) ids->data, ids->len, LYCHEE_OUTPUT_LAST, &with, NULL, NULL));
    g_assert_true (lychee_worker_run (
        other, bare, (gint32 *) ids->data, ids->len, LYCHEE_OUTPUT_LAST, &without, NULL, NULL));
    mixed = mix_plainly (with, without, n, strength);
    for (guint j = 0; j < n; j++)
      logits[j] = mixed[j];
    id = lychee_sampler_sample (sampler, logits, n);
    if (lychee_tokenizer_is_end (tokenizer, id))
      break;
    lychee_decoder_push (decoder, id, text);
    g_array_set_size (ids, 0);
    g_array_append_val (ids, id);
  }
  lychee_decoder_finish (decoder, text);
  return g_string_free (text, FALSE);
}

static void
test_answer (void)
{
  g_autoptr (LycheeSession) session = new_session ();
  g_autofree char *none = ask (session, 0, 30, 0);
  const double strengths[] = { 0, 0.5, 2 };

  for (guint i = 0; i < G_N_ELEMENTS (strengths); i++) {
    g_autofree char *expected = ask_plainly (session, strengths[i], 30);
    g_autofree char *answer = ask (session, strengths[i], 30, 0);
    g_autofree char *again = ask (session, strengths[i], 30, 3);

    if (strengths[i] > 0) {
      g_assert_cmpstr (answer, ==, expected);
      g_assert_cmpstr (answer, !=, none);
    }
    g_assert_cmpstr (again, ==, answer);
  }
}

/* (nullable) (transfer full): a long answer under @max_memory. */
static LycheeAnswer *
ask_within (guint64 max_memory, double strength)
{
  g_autoptr (LycheeSession) session = g_object_new (
      LYCHEE_TYPE_SESSION, "model", model, "max-memory", max_memory, "reserve", 300, NULL);
  g_autoptr (LycheeSampler) sampler = g_object_new (LYCHEE_TYPE_SAMPLER, "temperature", 2.0, NULL);
  g_autoptr (LycheeQuestion) question = g_object_new (LYCHEE_TYPE_QUESTION, "prompt", "Who spoke?",
      "contrast", strength, "max-tokens", 300, "evidence", 0, "sampler", sampler, NULL);

  for (guint i = 0; i < 20; i++) {
    g_autoptr (LycheeChunk) chunk = new_chunk (i, 12);

    if (!lychee_session_append (session, chunk, NULL, NULL))
      return NULL;
  }
  return lychee_session_ask (session, question, NULL, NULL, NULL, NULL);
}

/* Where the memory that is allowed has no room for it, there is an answer all the same. */
static void
test_no_memory (void)
{
  guint n_same = 0, n_other = 0;

  for (guint64 bytes = 100000; bytes < 1200000; bytes += 75000) {
    g_autoptr (LycheeAnswer) without = ask_within (bytes, 0), with = NULL;

    if (!without)
      continue;
    with = ask_within (bytes, 1);
    g_assert_nonnull (with);
    if (g_str_equal (lychee_answer_get_text (with), lychee_answer_get_text (without)))
      n_same++;
    else
      n_other++;
  }
  g_assert_cmpuint (n_other, >, 0);
  g_test_message ("%u without, %u with", n_same, n_other);
}

int
main (int argc, char **argv)
{
  LycheeTinyModel tiny = LYCHEE_TINY_MODEL_INIT;
  int result;

  g_test_init (&argc, &argv, NULL);
  model = load_tiny_model (&tiny);
  g_test_add_func ("/contrast/formula", test_formula);
  g_test_add_func ("/contrast/odd", test_odd);
  g_test_add_func ("/contrast/answer", test_answer);
  g_test_add_func ("/contrast/no-memory", test_no_memory);
  result = g_test_run ();
  g_object_unref (model);
  return result;
}
