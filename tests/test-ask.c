/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* LycheeSession: text in, questions about parts of it, and what happens when room runs out. */

#include "lychee-cache-private.h"
#include "session-fixture.h"
#include "tiny-model.h"

#include <glib/gstdio.h>
#include <string.h>

#define SECOND G_GUINT64_CONSTANT (1000000000)

static char *dir;
static LycheeModel *model;
/* With one layer a token's keys and values do not depend on what was before it: what is left of a
 * longer transcript is the same as if it had been read alone. */
static LycheeModel *shallow;

static LycheeModel *
load (guint n_layers, guint n_context)
{
  LycheeTinyModel tiny = LYCHEE_TINY_MODEL_INIT;
  g_autofree char *path = NULL;
  g_autoptr (GError) error = NULL;
  LycheeModel *loaded;

  tiny.n_layers = n_layers;
  tiny.n_context = n_context;
  path = lychee_tiny_model_write (&tiny, dir, "model.gguf");
  loaded = lychee_model_new_from_file (path, &error);
  g_assert_no_error (error);
  g_unlink (path);
  return loaded;
}

static gboolean
read_chunks (LycheeSession *session, guint first, guint n, GError **error)
{
  for (guint i = first; i < first + n; i++) {
    g_autoptr (LycheeChunk) chunk = new_chunk (i, 12);

    if (!lychee_session_append (session, chunk, NULL, error))
      return FALSE;
  }
  return TRUE;
}

static LycheeAnswer *
ask (LycheeSession *session, LycheeQuestion *question)
{
  g_autoptr (GError) error = NULL;
  LycheeAnswer *answer = lychee_session_ask (session, question, NULL, NULL, NULL, &error);

  g_assert_no_error (error);
  return answer;
}

static LycheeQuestion *
new_question (guint max_tokens)
{
  return g_object_new (
      LYCHEE_TYPE_QUESTION, "prompt", "What was decided?", "max-tokens", max_tokens, NULL);
}

static void
assert_same_answer (LycheeSession *a, LycheeQuestion *of_a, LycheeSession *b, LycheeQuestion *of_b)
{
  g_autoptr (LycheeAnswer) one = ask (a, of_a), other = ask (b, of_b);

  g_assert_cmpstr (lychee_answer_get_text (one), ==, lychee_answer_get_text (other));
  g_assert_cmpuint (
      lychee_answer_get_transcript_tokens (one), ==, lychee_answer_get_transcript_tokens (other));
}

/* An answer about a part is that of a session that read nothing else. */
static void
test_range (void)
{
  const struct {
    guint64 from, to;
    guint first, n;
  } cases[] = {
    { 20 * SECOND, 40 * SECOND, 20, 20 },
    { 20 * SECOND + 1, 40 * SECOND + 1, 20, 21 },
    { 21 * SECOND - 1, LYCHEE_TIME_NONE, 20, 40 },
    { LYCHEE_TIME_NONE, 30 * SECOND, 0, 30 },
    { 59 * SECOND, 9999 * SECOND, 59, 1 },
    { 0, LYCHEE_TIME_NONE, 0, 60 },
  };
  g_autoptr (LycheeSession) whole = lychee_session_new (shallow);

  g_assert_true (read_chunks (whole, 0, 60, NULL));
  for (guint i = 0; i < G_N_ELEMENTS (cases); i++) {
    g_autoptr (LycheeSession) part = lychee_session_new (shallow);
    g_autoptr (LycheeQuestion) about = new_question (30), plain = new_question (30);

    lychee_question_set_range (about, cases[i].from, cases[i].to);
    g_assert_true (read_chunks (part, cases[i].first, cases[i].n, NULL));
    assert_same_answer (whole, about, part, plain);
    /* And leaves no trace. */
    g_assert_cmpuint (lychee_cache_get_n_chunks (lychee_session_get_cache (whole)), ==, 60);
  }
}

static void
test_range_empty (void)
{
  g_autoptr (LycheeSession) session = lychee_session_new (model);
  g_autoptr (LycheeQuestion) question = new_question (5);
  g_autoptr (GError) error = NULL;

  g_assert_true (read_chunks (session, 0, 10, NULL));
  lychee_question_set_range (question, 3600 * SECOND, 3660 * SECOND);
  g_assert_null (lychee_session_ask (session, question, NULL, NULL, NULL, &error));
  g_assert_error (error, LYCHEE_SESSION_ERROR, LYCHEE_SESSION_ERROR_EMPTY);
  g_assert_nonnull (strstr (error->message, "from 01:00:00 to 01:01:00"));
}

/* Sparse attention sees the same part, and no more of it. */
static void
test_range_sparse (void)
{
  g_autoptr (LycheeSession) session = lychee_session_new (model);
  g_autoptr (LycheeQuestion) question = new_question (20);
  g_autoptr (LycheeAnswer) answer = NULL;
  g_autoptr (GVariant) stats = NULL;
  guint64 queries, visible, read, estimated;

  g_assert_true (read_chunks (session, 0, 80, NULL));
  g_object_set (session, "budget", 200, NULL);
  lychee_question_set_range (question, 30 * SECOND, 60 * SECOND);
  answer = ask (session, question);
  g_assert_cmpuint (lychee_answer_get_transcript_tokens (answer), ==, 360);
  stats = lychee_session_get_stats (session);
  g_assert_true (g_variant_lookup (stats, "sparse-queries", "t", &queries));
  g_assert_true (g_variant_lookup (stats, "rows-visible", "t", &visible));
  g_assert_true (g_variant_lookup (stats, "rows-read", "t", &read));
  g_assert_true (g_variant_lookup (stats, "rows-estimated", "t", &estimated));
  g_assert_cmpuint (queries, >, 0);
  g_assert_cmpuint (visible, ==, read + estimated);
  g_assert_cmpuint (read, <=, queries * 201);
  g_assert_cmpuint (visible, <, queries * 700);
}

static void
test_overflow_error (void)
{
  g_autoptr (LycheeSession) session =
      g_object_new (LYCHEE_TYPE_SESSION, "model", model, "max-context", 500, "reserve", 100, NULL);
  g_autoptr (GError) error = NULL;

  g_assert_false (read_chunks (session, 0, 100, &error));
  g_assert_error (error, LYCHEE_CACHE_ERROR, LYCHEE_CACHE_ERROR_FULL);
}

static void
test_overflow_stop (void)
{
  g_autoptr (LycheeSession) session = g_object_new (LYCHEE_TYPE_SESSION, "model", model,
      "max-context", 500, "reserve", 100, "overflow", LYCHEE_OVERFLOW_STOP_READING, NULL);
  g_autoptr (LycheeQuestion) question = new_question (5);
  g_autoptr (LycheeAnswer) before = NULL, after = NULL;

  g_assert_true (read_chunks (session, 0, 10, NULL));
  before = ask (session, question);
  g_assert_false (lychee_answer_get_truncated (before));
  g_assert_true (read_chunks (session, 10, 90, NULL));
  after = ask (session, question);
  g_assert_true (lychee_answer_get_truncated (after));
  g_assert_cmpuint (
      lychee_answer_get_transcript_tokens (after) + get_count (session, "tokens-left-out"), ==,
      1200);
}

/* What is remembered answers as if the rest had never been said, for as long as one likes. */
static void
test_overflow_forget (void)
{
  g_autoptr (LycheeSession) session = g_object_new (LYCHEE_TYPE_SESSION, "model", shallow,
      "max-context", 500, "reserve", 100, "overflow", LYCHEE_OVERFLOW_FORGET_OLDEST, NULL);
  g_autoptr (LycheeQuestion) question = new_question (30);

  for (guint n = 0; n < 300; n += 50) {
    g_autoptr (LycheeSession) rest = lychee_session_new (shallow);
    g_autoptr (LycheeAnswer) answer = NULL;
    guint tokens;

    g_assert_true (read_chunks (session, n, 50, NULL));
    answer = ask (session, question);
    tokens = lychee_answer_get_transcript_tokens (answer);
    g_assert_true (lychee_answer_get_truncated (answer));
    g_assert_cmpuint (tokens, >, 250);
    g_assert_cmpuint (tokens + get_count (session, "tokens-forgotten"), ==, (n + 50) * 12);
    g_assert_true (read_chunks (rest, n + 50 - tokens / 12, tokens / 12, NULL));
    assert_same_answer (session, question, rest, question);
  }
}

/* The same where memory runs out. Cache and index together keep to the limit. */
static void
test_overflow_memory (void)
{
  const guint64 limit = 1200000;
  g_autoptr (LycheeSession) session = g_object_new (LYCHEE_TYPE_SESSION, "model", model,
      "max-memory", limit, "overflow", LYCHEE_OVERFLOW_FORGET_OLDEST, NULL);
  g_autoptr (LycheeQuestion) question = new_question (10);
  g_autoptr (GError) error = NULL;

  for (guint n = 0; n < 600; n += 50) {
    g_autoptr (LycheeAnswer) answer = NULL;

    g_assert_true (read_chunks (session, n, 50, &error));
    g_assert_no_error (error);
    g_assert_cmpuint (
        get_count (session, "cache-bytes") + get_count (session, "index-bytes"), <=, limit);
    answer = ask (session, question);
    g_assert_cmpint (
        lychee_answer_get_truncated (answer), ==, get_count (session, "tokens-forgotten") > 0);
  }
  g_assert_cmpuint (get_count (session, "tokens-forgotten"), >, 0);
}

static void
test_truncate (void)
{
  g_autoptr (LycheeSession) session = lychee_session_new (model),
                            other = lychee_session_new (model);
  g_autoptr (LycheeQuestion) question = new_question (30);

  g_assert_true (read_chunks (session, 0, 50, NULL));
  g_assert_cmpuint (lychee_session_truncate (session, 20 * SECOND), ==, 20 * SECOND);
  g_assert_true (read_chunks (other, 0, 20, NULL));
  assert_same_answer (session, question, other, question);
  /* And goes on from there. */
  g_assert_true (read_chunks (session, 20, 5, NULL));
  g_assert_true (read_chunks (other, 20, 5, NULL));
  assert_same_answer (session, question, other, question);
  g_assert_cmpuint (lychee_session_truncate (session, 99 * SECOND), ==, 25 * SECOND);
  g_assert_cmpuint (lychee_session_truncate (session, 0), ==, LYCHEE_TIME_NONE);
  g_assert_cmpuint (lychee_cache_get_n_chunks (lychee_session_get_cache (session)), ==, 0);
}

/* All that the session has read, and the times of its chunks. */
static char *
get_text (LycheeSession *session)
{
  GString *text = g_string_new (NULL);
  LycheeChunk *chunk;

  for (guint i = 0; (chunk = lychee_cache_get_chunk (lychee_session_get_cache (session), i, NULL));
       i++) {
    g_string_append (text, chunk->text);
    lychee_chunk_unref (chunk);
  }
  return g_string_free (text, FALSE);
}

static const char words[] =
    "We ought to mend the pump before the frost. It held all winter, said the caretaker, but the "
    "seal is worn.\n\nThe council agreed: two hundred euros, no more. Überdies ist es kalt – "
    "零下。";

/* However it is cut, the text is read as a whole. */
static void
test_append_text (void)
{
  g_autoptr (LycheeSession) whole = lychee_session_new (model);
  g_autoptr (LycheeQuestion) question = new_question (30);
  g_autofree char *read = NULL;

  g_assert_true (lychee_session_append_text (
      whole, words, NULL, LYCHEE_TIME_NONE, LYCHEE_TIME_NONE, NULL, NULL));
  g_assert_true (lychee_session_flush (whole, NULL, NULL));
  read = get_text (whole);
  g_assert_cmpstr (read, ==, words);
  for (guint step = 1; step < 30; step += 7) {
    g_autoptr (LycheeSession) session = lychee_session_new (model);

    for (const char *at = words; *at;) {
      const char *end = at;

      for (guint i = 0; i < step && *end; i++)
        end = g_utf8_next_char (end);
      {
        g_autofree char *piece = g_strndup (at, end - at);

        g_assert_true (lychee_session_append_text (
            session, piece, NULL, LYCHEE_TIME_NONE, LYCHEE_TIME_NONE, NULL, NULL));
      }
      at = end;
    }
    g_assert_true (lychee_session_flush (session, NULL, NULL));
    assert_same_answer (whole, question, session, question);
  }
}

static void
test_append_speakers (void)
{
  g_autoptr (LycheeSession) session = lychee_session_new (model);
  LycheeCache *cache = lychee_session_get_cache (session);
  g_autoptr (GPtrArray) chunks = NULL;
  g_autofree char *read = NULL;
  LycheeChunk *chunk;
  guint n = 0;

  g_assert_true (lychee_session_append_text (
      session, "Is it mended?", "Ann", 1 * SECOND, 2 * SECOND, NULL, NULL));
  g_assert_true (lychee_session_append_text (
      session, "The pump, I mean.", "Ann", 2 * SECOND, 3 * SECOND, NULL, NULL));
  g_assert_true (
      lychee_session_append_text (session, "No.\xff", "Bo", 5 * SECOND, 6 * SECOND, NULL, NULL));
  g_assert_true (lychee_session_flush (session, NULL, NULL));
  g_assert_true (lychee_session_append_text (
      session, "Not yet.", NULL, LYCHEE_TIME_NONE, LYCHEE_TIME_NONE, NULL, NULL));
  g_assert_true (lychee_session_flush (session, NULL, NULL));
  read = get_text (session);
  g_assert_cmpstr (read, ==, "Ann: Is it mended?\nThe pump, I mean.\nBo: No.\uFFFD\nNot yet.");
  chunks = lychee_session_get_chunks (session);
  g_assert_cmpuint (chunks->len, ==, lychee_cache_get_n_chunks (cache));
  for (; (chunk = lychee_cache_get_chunk (cache, n, NULL)); n++) {
    gboolean of_bo = chunk->pts == 5 * SECOND;

    g_assert_true (chunks->pdata[n] == chunk);
    if (chunk->pts == LYCHEE_TIME_NONE)
      g_assert_null (chunk->speaker);
    else
      g_assert_cmpstr (chunk->speaker, ==, of_bo ? "Bo" : "Ann");
    lychee_chunk_unref (chunk);
  }
  g_assert_cmpuint (n, >=, 3);
}

/* What could not be read for a while is read later, once. */
static void
test_append_again (void)
{
  g_autoptr (LycheeSession) session = lychee_session_new (model);
  g_autoptr (GCancellable) cancelled = g_cancellable_new ();
  g_autoptr (GError) error = NULL;
  g_autofree char *read = NULL;

  g_cancellable_cancel (cancelled);
  g_assert_false (lychee_session_append_text (
      session, words, NULL, LYCHEE_TIME_NONE, LYCHEE_TIME_NONE, cancelled, &error));
  g_assert_error (error, G_IO_ERROR, G_IO_ERROR_CANCELLED);
  g_assert_true (lychee_session_append_text (
      session, " Done.", NULL, LYCHEE_TIME_NONE, LYCHEE_TIME_NONE, NULL, NULL));
  g_assert_true (lychee_session_flush (session, NULL, NULL));
  read = get_text (session);
  g_assert_true (g_str_has_prefix (read, words));
  g_assert_true (g_str_has_suffix (read, "零下。 Done."));
  g_assert_cmpuint (strlen (read), ==, strlen (words) + strlen (" Done."));
}

/* Each string of an answer, made a stop string, ends it before itself. */
static void
test_stop (void)
{
  g_autoptr (LycheeSession) session = lychee_session_new (model);
  g_autoptr (LycheeQuestion) question = new_question (60);
  g_autoptr (LycheeSampler) sampler = lychee_sampler_new ();
  g_autoptr (LycheeAnswer) whole = NULL;
  const char *text;
  guint n_stopped = 0;

  g_object_set (sampler, "temperature", 1.0, "seed", (guint64) 3, NULL);
  lychee_question_set_sampler (question, sampler);
  g_assert_true (read_chunks (session, 0, 10, NULL));
  whole = ask (session, question);
  text = lychee_answer_get_text (whole);
  for (const char *at = text; *at; at = g_utf8_next_char (at)) {
    g_autofree char *stop =
        g_strndup (at, g_utf8_offset_to_pointer (at, MIN (3, g_utf8_strlen (at, -1))) - at);
    const char *stops[] = { "", "no such thing", stop, NULL };
    g_autofree char *expected = g_strndup (text, strstr (text, stop) - text);
    g_autoptr (GString) told = g_string_new (NULL);
    g_autoptr (LycheeAnswer) answer = NULL;

    lychee_question_set_stop (question, stops);
    answer = lychee_session_ask (session, question, collect, told, NULL, NULL);
    g_assert_cmpstr (lychee_answer_get_text (answer), ==, expected);
    g_assert_cmpstr (told->str, ==, expected);
    g_assert_cmpint (lychee_answer_get_finish (answer), ==, LYCHEE_FINISH_STOP);
    n_stopped++;
  }
  g_assert_cmpuint (n_stopped, >, 10);
}

/* A model without chance or penalty comes to say the same for ever. */
static void
test_repetition (void)
{
  g_autoptr (LycheeSession) session = lychee_session_new (model);
  g_autoptr (LycheeQuestion) question = new_question (0);
  g_autoptr (LycheeSampler) sampler = lychee_sampler_new ();
  g_autoptr (LycheeAnswer) answer = NULL;

  g_object_set (sampler, "repetition-penalty", 1.0, NULL);
  lychee_question_set_sampler (question, sampler);
  g_assert_true (read_chunks (session, 0, 10, NULL));
  answer = ask (session, question);
  g_assert_cmpint (lychee_answer_get_finish (answer), ==, LYCHEE_FINISH_REPETITION);
  g_assert_cmpstr (lychee_finish_to_string (lychee_answer_get_finish (answer)), ==, "repetition");
  g_assert_cmpuint (lychee_answer_get_answer_tokens (answer), >, 32);
}

/* Language and system prompt are part of what is read for the question. */
static void
test_instructions (void)
{
  const struct {
    const char *language, *same_as;
  } cases[] = { { "fr", " Answer in French." }, { "pt-BR", " Answer in Portuguese (Brazil)." },
    { "Klingon", " Answer in Klingon." }, { NULL, "" }, { "", "" } };
  g_autoptr (LycheeSession) session = lychee_session_new (model);

  g_assert_true (read_chunks (session, 0, 5, NULL));
  for (guint i = 0; i < G_N_ELEMENTS (cases); i++) {
    g_autofree char *prompt = g_strconcat ("Be brief.\n\nWhy?", cases[i].same_as, NULL);
    g_autoptr (LycheeQuestion) told = g_object_new (LYCHEE_TYPE_QUESTION, "prompt", "Why?",
        "system-prompt", "Be brief.", "language", cases[i].language, "max-tokens", 20, NULL);
    g_autoptr (LycheeQuestion) written =
        g_object_new (LYCHEE_TYPE_QUESTION, "prompt", prompt, "max-tokens", 20, NULL);
    g_autoptr (LycheeAnswer) one = ask (session, told), other = ask (session, written);

    g_assert_cmpuint (
        lychee_answer_get_prompt_tokens (one), ==, lychee_answer_get_prompt_tokens (other));
    g_assert_cmpstr (lychee_answer_get_text (one), ==, lychee_answer_get_text (other));
  }
}

/* Evidence is of the transcript, from the part that was asked about, and does not change what is
 * answered. */
static void
test_evidence (void)
{
  g_autoptr (LycheeSession) session =
      g_object_new (LYCHEE_TYPE_SESSION, "model", model, "reserve", 200, NULL);
  g_autofree char *without = NULL;

  g_assert_true (read_chunks (session, 0, 100, NULL));
  g_object_set (session, "budget", 300, NULL);
  for (guint n = 0; n < 200; n = 3 * n + 1) {
    g_autoptr (LycheeQuestion) question = new_question (30);
    g_autoptr (LycheeAnswer) answer = NULL;
    GPtrArray *evidence;
    double before = 1, all = 0;

    lychee_question_set_evidence (question, n);
    lychee_question_set_range (question, 20 * SECOND, 90 * SECOND);
    answer = ask (session, question);
    if (n == 0)
      without = g_strdup (lychee_answer_get_text (answer));
    g_assert_cmpstr (lychee_answer_get_text (answer), ==, without);
    evidence = lychee_answer_get_evidence (answer);
    g_assert_cmpuint (evidence->len, <=, MIN (n, 70));
    g_assert_cmpuint (evidence->len, >=, MIN (n, 5));
    for (guint i = 0; i < evidence->len; i++) {
      LycheeEvidence *e = evidence->pdata[i];

      g_assert_cmpfloat (e->weight, >, 0);
      g_assert_cmpfloat (e->weight, <=, before);
      g_assert_cmpstr (e->text, ==, "words");
      g_assert_cmpuint (e->n_tokens, ==, 12);
      g_assert_cmpuint (e->start, >=, 20 * SECOND);
      g_assert_cmpuint (e->end, <=, 90 * SECOND);
      g_assert_cmpuint (e->position, ==, 12 * (e->start / SECOND - 20));
      before = e->weight;
      all += e->weight;
    }
    g_assert_cmpfloat (all, <, 1.0001);
  }
}

/* The same with any number of threads. */
static void
test_evidence_threads (void)
{
  g_autoptr (GPtrArray) first = NULL;

  for (guint threads = 1; threads <= 2; threads++) {
    g_autoptr (LycheeSession) session =
        g_object_new (LYCHEE_TYPE_SESSION, "model", model, "threads", threads, "budget", 200, NULL);
    g_autoptr (LycheeQuestion) question = new_question (20);
    g_autoptr (LycheeAnswer) answer = NULL;
    GPtrArray *evidence;

    g_assert_true (read_chunks (session, 0, 50, NULL));
    answer = ask (session, question);
    evidence = lychee_answer_get_evidence (answer);
    g_assert_cmpuint (evidence->len, ==, 3);
    if (!first)
      first = g_ptr_array_copy (evidence, (GCopyFunc) (void (*) (void)) lychee_evidence_ref, NULL);
    for (guint i = 0; i < 3; i++) {
      LycheeEvidence *one = first->pdata[i], *other = evidence->pdata[i];

      g_assert_cmpuint (one->position, ==, other->position);
      g_assert_cmpfloat (one->weight, ==, other->weight);
    }
  }
  g_ptr_array_set_free_func (first, (GDestroyNotify) lychee_evidence_unref);
}

int
main (int argc, char **argv)
{
  int result;

  g_test_init (&argc, &argv, NULL);
  dir = g_dir_make_tmp ("lychee-ask-XXXXXX", NULL);
  model = load (2, 2048);
  shallow = load (1, 2048);
  g_test_add_func ("/ask/range", test_range);
  g_test_add_func ("/ask/range/empty", test_range_empty);
  g_test_add_func ("/ask/range/sparse", test_range_sparse);
  g_test_add_func ("/ask/overflow/error", test_overflow_error);
  g_test_add_func ("/ask/overflow/stop-reading", test_overflow_stop);
  g_test_add_func ("/ask/overflow/forget-oldest", test_overflow_forget);
  g_test_add_func ("/ask/overflow/memory", test_overflow_memory);
  g_test_add_func ("/ask/truncate", test_truncate);
  g_test_add_func ("/ask/append-text", test_append_text);
  g_test_add_func ("/ask/append-text/speakers", test_append_speakers);
  g_test_add_func ("/ask/append-text/again", test_append_again);
  g_test_add_func ("/ask/stop", test_stop);
  g_test_add_func ("/ask/repetition", test_repetition);
  g_test_add_func ("/ask/instructions", test_instructions);
  g_test_add_func ("/ask/evidence", test_evidence);
  g_test_add_func ("/ask/evidence/threads", test_evidence_threads);
  result = g_test_run ();
  g_object_unref (model);
  g_object_unref (shallow);
  lychee_test_remove_dir (dir);
  g_free (dir);
  return result;
}
