/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* LycheeSession: reading, asking, cancelling and running out of room, on a tiny random model. */

#include "session-fixture.h"
#include "tiny-model.h"

#include <string.h>

static char *dir;
static LycheeModel *model;

static void
read_chunks (LycheeSession *session, guint first, guint n)
{
  for (guint i = first; i < first + n; i++) {
    g_autoptr (LycheeChunk) chunk = new_chunk (i, 12);
    g_autoptr (GError) error = NULL;

    lychee_session_append (session, chunk, NULL, &error);
    g_assert_no_error (error);
  }
}

static LycheeSession *
new_session (guint max_context)
{
  return g_object_new (
      LYCHEE_TYPE_SESSION, "model", model, "max-context", max_context, "reserve", 100, NULL);
}

static LycheeSampler *
new_sampler (double temperature, guint64 seed)
{
  LycheeSampler *sampler = lychee_sampler_new ();

  g_object_set (sampler, "temperature", temperature, "seed", seed, NULL);
  return sampler;
}

static LycheeQuestion *
new_question (const char *prompt, LycheeSampler *sampler, guint max_tokens)
{
  return g_object_new (
      LYCHEE_TYPE_QUESTION, "prompt", prompt, "sampler", sampler, "max-tokens", max_tokens, NULL);
}

static LycheeAnswer *
ask (LycheeSession *session, LycheeSampler *sampler, guint max_tokens)
{
  g_autoptr (LycheeQuestion) question = new_question ("What was decided?", sampler, max_tokens);
  g_autoptr (GError) error = NULL;
  LycheeAnswer *answer = lychee_session_ask (session, question, NULL, NULL, NULL, &error);

  g_assert_no_error (error);
  g_assert_nonnull (answer);
  return answer;
}

static void
test_ask (void)
{
  g_autoptr (LycheeSession) session = new_session (0);
  g_autoptr (LycheeAnswer) answer = NULL;
  LycheeCache *cache = lychee_session_get_cache (session);
  guint length;

  read_chunks (session, 0, 10);
  length = lychee_cache_get_length (cache);
  g_assert_cmpuint (lychee_cache_get_n_chunks (cache), ==, 10);
  answer = ask (session, NULL, 20);
  g_assert_true (g_utf8_validate (lychee_answer_get_text (answer), -1, NULL));
  g_assert_cmpuint (lychee_answer_get_transcript_tokens (answer), ==, 120);
  g_assert_cmpuint (lychee_answer_get_prompt_tokens (answer), >, 5);
  g_assert_cmpuint (lychee_answer_get_answer_tokens (answer), <=, 20);
  g_assert_cmpfloat (
      lychee_answer_get_seconds (answer), >=, lychee_answer_get_seconds_to_first (answer));
  /* Asking leaves no trace in the transcript. */
  g_assert_cmpuint (lychee_cache_get_length (cache), ==, length);
}

/* The same text, in other chunks, asked twice: the same answer; another seed, another. */
static void
test_same (void)
{
  g_autoptr (LycheeSession) session = new_session (0);
  g_autoptr (LycheeSampler) warm = new_sampler (1.5, 1), other = new_sampler (1.5, 2);
  g_autoptr (LycheeAnswer) a = NULL, b = NULL, c = NULL, d = NULL, e = NULL;

  read_chunks (session, 0, 30);
  a = ask (session, NULL, 40);
  b = ask (session, NULL, 40);
  g_assert_cmpstr (lychee_answer_get_text (a), ==, lychee_answer_get_text (b));
  c = ask (session, warm, 40);
  d = ask (session, warm, 40);
  g_assert_cmpstr (lychee_answer_get_text (c), ==, lychee_answer_get_text (d));
  e = ask (session, other, 40);
  g_assert_cmpstr (lychee_answer_get_text (c), !=, lychee_answer_get_text (e));
}

static void
test_stream (void)
{
  g_autoptr (LycheeSession) session = new_session (0);
  g_autoptr (LycheeSampler) sampler = new_sampler (2, 5);
  g_autoptr (LycheeQuestion) question = new_question ("And?", sampler, 100);
  g_autoptr (GString) text = g_string_new (NULL);
  g_autoptr (LycheeAnswer) answer = NULL;
  g_autoptr (GError) error = NULL;

  read_chunks (session, 0, 10);
  answer = lychee_session_ask (session, question, collect, text, NULL, &error);
  g_assert_no_error (error);
  g_assert_cmpstr (lychee_answer_get_text (answer), ==, text->str);
}

/* An answer is about the moment it was asked. */
static void
test_snapshot (void)
{
  g_autoptr (LycheeSession) session = new_session (0), other = new_session (0);
  g_autoptr (LycheeAnswer) before = NULL, after = NULL, fresh = NULL;

  read_chunks (session, 0, 20);
  before = ask (session, NULL, 30);
  read_chunks (session, 20, 20);
  after = ask (session, NULL, 30);
  read_chunks (other, 0, 40);
  fresh = ask (other, NULL, 30);
  g_assert_cmpstr (lychee_answer_get_text (after), ==, lychee_answer_get_text (fresh));
  g_assert_cmpuint (lychee_answer_get_transcript_tokens (after), ==,
      lychee_answer_get_transcript_tokens (before) + 240);
}

static void
test_empty (void)
{
  g_autoptr (LycheeQuestion) question = lychee_question_new ("?");
  g_autoptr (LycheeSession) session = new_session (0);
  g_autoptr (GError) error = NULL;

  g_assert_null (lychee_session_ask (session, question, NULL, NULL, NULL, &error));
  g_assert_error (error, LYCHEE_SESSION_ERROR, LYCHEE_SESSION_ERROR_EMPTY);
}

/* White space alone is nothing to answer from. */
static void
test_blank (void)
{
  g_autoptr (LycheeQuestion) question = new_question ("?", NULL, 5);
  g_autoptr (LycheeSession) session = new_session (0);
  gint32 ids[] = { 35, 35, 35 };
  g_autoptr (LycheeChunk) blank =
      lychee_chunk_new (ids, 3, " \n\u00a0", NULL, 0, 0, LYCHEE_BOUNDARY_WORD, 0, 0);
  g_autoptr (LycheeAnswer) answer = NULL;
  g_autoptr (GError) error = NULL;

  g_assert_true (lychee_session_append (session, blank, NULL, &error));
  g_assert_no_error (error);
  g_assert_null (lychee_session_ask (session, question, NULL, NULL, NULL, &error));
  g_assert_error (error, LYCHEE_SESSION_ERROR, LYCHEE_SESSION_ERROR_EMPTY);
  read_chunks (session, 1, 1);
  answer = ask (session, NULL, 5);
  g_assert_cmpuint (lychee_answer_get_transcript_tokens (answer), ==, 15);
}

static void
test_full (void)
{
  g_autoptr (LycheeSession) session = new_session (400);
  g_autoptr (LycheeAnswer) answer = NULL;
  g_autoptr (GError) error = NULL;
  guint n = 0, length;

  for (;; n++) {
    g_autoptr (LycheeChunk) chunk = new_chunk (n, 12);

    if (!lychee_session_append (session, chunk, NULL, &error))
      break;
  }
  g_assert_error (error, LYCHEE_CACHE_ERROR, LYCHEE_CACHE_ERROR_FULL);
  g_assert_nonnull (strstr (error->message, "400"));
  length = lychee_cache_get_length (lychee_session_get_cache (session));
  g_assert_cmpuint (length, <=, 300);
  g_assert_cmpuint (length, >, 288);
  g_assert_cmpuint (lychee_cache_get_n_chunks (lychee_session_get_cache (session)), ==, n);
  /* It still answers, up to the context's end. */
  answer = ask (session, NULL, 0);
  g_assert_cmpuint (lychee_answer_get_transcript_tokens (answer), ==, n * 12);
  if (lychee_answer_get_finish (answer) == LYCHEE_FINISH_LENGTH)
    g_assert_cmpuint (length + lychee_answer_get_prompt_tokens (answer) +
                          lychee_answer_get_answer_tokens (answer),
        >=, 400);
}

static void
test_no_room (void)
{
  g_autoptr (LycheeSession) session = new_session (300);
  g_autofree char *prompt = g_strnfill (1000, 'x');
  g_autoptr (LycheeQuestion) question = new_question (prompt, NULL, 5);
  g_autoptr (GError) error = NULL;

  read_chunks (session, 0, 3);
  g_assert_null (lychee_session_ask (session, question, NULL, NULL, NULL, &error));
  g_assert_error (error, LYCHEE_SESSION_ERROR, LYCHEE_SESSION_ERROR_NO_ROOM);
}

static void
test_no_memory (void)
{
  g_autoptr (LycheeSession) session =
      g_object_new (LYCHEE_TYPE_SESSION, "model", model, "max-memory", (guint64) 1000, NULL);
  g_autoptr (LycheeChunk) chunk = new_chunk (0, 12);
  g_autoptr (GError) error = NULL;

  g_assert_false (lychee_session_append (session, chunk, NULL, &error));
  g_assert_error (error, LYCHEE_CACHE_ERROR, LYCHEE_CACHE_ERROR_NO_MEMORY);
}

static void
test_no_template (void)
{
  LycheeTinyModel tiny = LYCHEE_TINY_MODEL_INIT;
  g_autofree char *path = NULL;
  g_autoptr (LycheeModel) bare = NULL;
  g_autoptr (LycheeSession) session = NULL, told = NULL;
  g_autoptr (LycheeChunk) chunk = new_chunk (0, 12);
  g_autoptr (GError) error = NULL;

  tiny.no_template = TRUE;
  path = lychee_tiny_model_write (&tiny, dir, "bare.gguf");
  bare = lychee_model_new_from_file (path, &error);
  g_assert_no_error (error);
  session = lychee_session_new (bare);
  g_assert_false (lychee_session_append (session, chunk, NULL, &error));
  g_assert_error (error, LYCHEE_SESSION_ERROR, LYCHEE_SESSION_ERROR_TEMPLATE);
  g_assert_nonnull (strstr (error->message, "chatml"));
  g_clear_error (&error);
  told = g_object_new (
      LYCHEE_TYPE_SESSION, "model", bare, "template", LYCHEE_CHAT_FORMAT_CHATML, NULL);
  g_assert_true (lychee_session_append (told, chunk, NULL, &error));
  g_assert_no_error (error);
}

static gboolean
stop_after_three (const char *text, gpointer user_data)
{
  return ++*(guint *) user_data < 3;
}

static gboolean
cancel_after_three (const char *text, gpointer user_data)
{
  if (g_cancellable_is_cancelled (user_data))
    g_error ("text after the cancel");
  g_object_set_data (
      user_data, "n", GUINT_TO_POINTER (GPOINTER_TO_UINT (g_object_get_data (user_data, "n")) + 1));
  if (GPOINTER_TO_UINT (g_object_get_data (user_data, "n")) == 3)
    g_cancellable_cancel (user_data);
  return TRUE;
}

static void
test_cancel (void)
{
  g_autoptr (LycheeSession) session = new_session (0);
  g_autoptr (LycheeSampler) sampler = new_sampler (2, 9);
  g_autoptr (LycheeQuestion) question = new_question ("Go on.", sampler, 0);
  g_autoptr (GCancellable) cancellable = g_cancellable_new ();
  g_autoptr (LycheeAnswer) stopped = NULL, cancelled = NULL, before = NULL;
  g_autoptr (LycheeChunk) chunk = new_chunk (99, 12);
  g_autoptr (GError) error = NULL;
  guint n = 0, length;

  read_chunks (session, 0, 10);
  stopped = lychee_session_ask (session, question, stop_after_three, &n, NULL, &error);
  g_assert_no_error (error);
  g_assert_cmpint (lychee_answer_get_finish (stopped), ==, LYCHEE_FINISH_CANCELLED);
  g_assert_cmpuint (n, ==, 3);
  cancelled =
      lychee_session_ask (session, question, cancel_after_three, cancellable, cancellable, &error);
  g_assert_no_error (error);
  g_assert_cmpint (lychee_answer_get_finish (cancelled), ==, LYCHEE_FINISH_CANCELLED);
  g_assert_cmpstr (lychee_answer_get_text (cancelled), ==, lychee_answer_get_text (stopped));
  /* Cancelled before it began. */
  before = lychee_session_ask (session, question, NULL, NULL, cancellable, &error);
  g_assert_no_error (error);
  g_assert_cmpint (lychee_answer_get_finish (before), ==, LYCHEE_FINISH_CANCELLED);
  g_assert_cmpstr (lychee_answer_get_text (before), ==, "");
  /* A cancelled chunk leaves nothing behind. */
  length = lychee_cache_get_length (lychee_session_get_cache (session));
  g_assert_false (lychee_session_append (session, chunk, cancellable, &error));
  g_assert_error (error, G_IO_ERROR, G_IO_ERROR_CANCELLED);
  g_assert_cmpuint (lychee_cache_get_length (lychee_session_get_cache (session)), ==, length);
  g_assert_cmpuint (lychee_cache_get_n_chunks (lychee_session_get_cache (session)), ==, 10);
}

static gpointer
cancel_when_growing (gpointer data)
{
  LycheeSession *session = data;
  LycheeCache *cache = lychee_session_get_cache (session);
  GCancellable *cancellable = g_object_get_data (G_OBJECT (session), "cancellable");
  guint length = GPOINTER_TO_UINT (g_object_get_data (G_OBJECT (session), "length"));

  /* The first of two passes is committed: the second is under way or about to be. */
  while (lychee_cache_get_length (cache) == length)
    g_thread_yield ();
  g_cancellable_cancel (cancellable);
  return NULL;
}

/* Cancelled between two passes of one chunk, nothing of it is left, and reading goes on as if it
 * had never been. */
static void
test_cancel_between (void)
{
  g_autoptr (LycheeSession) session = new_session (0), other = new_session (0);
  g_autoptr (LycheeAnswer) a = NULL, b = NULL;

  read_chunks (session, 0, 5);
  for (guint i = 0; i < 5; i++) {
    g_autoptr (LycheeChunk) large = new_chunk (50, 1400);
    g_autoptr (GCancellable) cancellable = g_cancellable_new ();
    g_autoptr (GError) error = NULL;
    guint length = lychee_cache_get_length (lychee_session_get_cache (session));
    GThread *thread;

    g_object_set_data (G_OBJECT (session), "cancellable", cancellable);
    g_object_set_data (G_OBJECT (session), "length", GUINT_TO_POINTER (length));
    thread = g_thread_new ("cancel", cancel_when_growing, session);
    g_assert_false (lychee_session_append (session, large, cancellable, &error));
    g_thread_join (thread);
    g_assert_error (error, G_IO_ERROR, G_IO_ERROR_CANCELLED);
    g_assert_cmpuint (lychee_cache_get_length (lychee_session_get_cache (session)), ==, length);
    g_assert_cmpuint (lychee_cache_get_n_chunks (lychee_session_get_cache (session)), ==, 5);
  }
  read_chunks (session, 5, 60);
  read_chunks (other, 0, 65);
  a = ask (session, NULL, 30);
  b = ask (other, NULL, 30);
  g_assert_cmpstr (lychee_answer_get_text (a), ==, lychee_answer_get_text (b));
}

/* The same for the prompt's beginning. */
static void
test_cancel_begin (void)
{
  g_autofree char *prompt = g_strnfill (1200, 'x');
  LycheeSession *sessions[2];
  g_autoptr (GCancellable) cancellable = g_cancellable_new ();
  g_autoptr (LycheeAnswer) a = NULL, b = NULL;
  g_autoptr (GError) error = NULL;
  GThread *thread;

  for (guint i = 0; i < 2; i++)
    sessions[i] = g_object_new (
        LYCHEE_TYPE_SESSION, "model", model, "system-prompt", prompt, "reserve", 100, NULL);
  g_object_set_data (G_OBJECT (sessions[0]), "cancellable", cancellable);
  thread = g_thread_new ("cancel", cancel_when_growing, sessions[0]);
  g_assert_false (lychee_session_begin (sessions[0], cancellable, &error));
  g_thread_join (thread);
  g_assert_error (error, G_IO_ERROR, G_IO_ERROR_CANCELLED);
  g_assert_cmpuint (lychee_cache_get_length (lychee_session_get_cache (sessions[0])), ==, 0);
  for (guint i = 0; i < 2; i++)
    read_chunks (sessions[i], 0, 10);
  g_assert_cmpuint (lychee_cache_get_length (lychee_session_get_cache (sessions[0])), ==,
      lychee_cache_get_length (lychee_session_get_cache (sessions[1])));
  a = ask (sessions[0], NULL, 20);
  b = ask (sessions[1], NULL, 20);
  g_assert_cmpstr (lychee_answer_get_text (a), ==, lychee_answer_get_text (b));
  for (guint i = 0; i < 2; i++)
    g_object_unref (sessions[i]);
}

/* A cache of other dimensions is refused before anything is written into it. */
static void
test_wrong_cache (void)
{
  g_autoptr (LycheeQuestion) question = new_question ("?", NULL, 5);
  g_autoptr (LycheeCache) cache = lychee_cache_new (1, 1, 8, 500, 0);
  g_autoptr (LycheeSession) session = lychee_session_new (model);
  g_autoptr (LycheeChunk) chunk = new_chunk (0, 12);
  g_autoptr (GError) error = NULL;

  lychee_session_set_cache (session, cache);
  g_assert_false (lychee_session_append (session, chunk, NULL, &error));
  g_assert_error (error, LYCHEE_SESSION_ERROR, LYCHEE_SESSION_ERROR_CACHE);
  g_clear_error (&error);
  g_assert_null (lychee_session_ask (session, question, NULL, NULL, NULL, &error));
  g_assert_error (error, LYCHEE_SESSION_ERROR, LYCHEE_SESSION_ERROR_CACHE);
}

/* A second session over the first one's cache: a decoder over an indexer's. */
static void
test_shared_cache (void)
{
  g_autoptr (LycheeSession) session = new_session (0), reader = NULL;
  g_autoptr (LycheeAnswer) a = NULL, b = NULL;

  read_chunks (session, 0, 10);
  reader = lychee_session_new (model);
  lychee_session_set_cache (reader, lychee_session_get_cache (session));
  a = ask (session, NULL, 20);
  b = ask (reader, NULL, 20);
  g_assert_cmpstr (lychee_answer_get_text (a), ==, lychee_answer_get_text (b));
}

static gpointer
ask_often (gpointer data)
{
  for (guint i = 0; i < 6; i++) {
    g_autoptr (LycheeSampler) sampler = new_sampler (1, i);
    g_autoptr (LycheeAnswer) answer = ask (data, sampler, 10);

    g_assert_cmpuint (lychee_answer_get_answer_tokens (answer), <=, 10);
  }
  return NULL;
}

static void
test_threads (void)
{
  g_autoptr (LycheeSession) session = new_session (0);
  GThread *threads[2];

  read_chunks (session, 0, 1);
  for (guint i = 0; i < 2; i++)
    threads[i] = g_thread_new ("ask", ask_often, session);
  read_chunks (session, 1, 40);
  for (guint i = 0; i < 2; i++)
    g_thread_join (threads[i]);
}

static double
get_number (LycheeSession *session, const char *name)
{
  g_autoptr (GVariant) stats = lychee_session_get_stats (session);
  double n;

  g_assert_true (g_variant_lookup (stats, name, "d", &n));
  return n;
}

/* Up to the budget sparse is dense, to the letter, and the counters say so. */
static void
test_below_budget (void)
{
  g_autoptr (LycheeSession) session = new_session (0);
  g_autoptr (LycheeAnswer) sparse = NULL, dense = NULL;

  read_chunks (session, 0, 30);
  sparse = ask (session, NULL, 30);
  g_assert_cmpuint (get_count (session, "sparse-queries"), ==, 0);
  g_assert_cmpuint (get_count (session, "dense-fallbacks"), >, 0);
  g_object_set (session, "attention", LYCHEE_ATTENTION_DENSE, NULL);
  dense = ask (session, NULL, 30);
  g_assert_cmpstr (lychee_answer_get_text (sparse), ==, lychee_answer_get_text (dense));
}

/* Beyond it fewer tokens are read than there are, and the audit has small figures. */
static void
test_sparse (void)
{
  g_autoptr (LycheeSession) session = new_session (0);
  g_autoptr (LycheeAnswer) answer = NULL;
  guint64 visible, read, estimated, queries;

  read_chunks (session, 0, 100);
  g_object_set (session, "budget", 256, "audit", 1, NULL);
  answer = ask (session, NULL, 40);
  queries = get_count (session, "sparse-queries");
  visible = get_count (session, "rows-visible");
  read = get_count (session, "rows-read");
  estimated = get_count (session, "rows-estimated");
  g_assert_cmpuint (queries, >, 0);
  g_assert_cmpuint (read, <=, queries * 257);
  g_assert_cmpuint (read, >, queries * 200);
  g_assert_cmpuint (read + estimated, ==, visible);
  g_assert_cmpuint (get_count (session, "nodes-scored"), >, 0);
  g_assert_cmpuint (get_count (session, "audits"), >, 0);
  g_assert_cmpfloat (get_number (session, "missed-mass"), >, 0);
  g_assert_cmpfloat (get_number (session, "missed-mass"), <, 0.8);
  g_assert_cmpfloat (get_number (session, "error"), >, 0);
  g_assert_cmpfloat (get_number (session, "error"), <, 0.5);
}

/* Each way of reading works, and stays within its budget. */
static void
test_settings (void)
{
  const struct {
    const char *granularity;
    const char *rest;
    const char *prefill;
  } cases[] = { { "token", "estimate", "dense" }, { "token", "drop", "dense" },
    { "chunk", "estimate", "dense" }, { "chunk", "drop", "sparse" },
    { "token", "estimate", "sparse" } };

  for (guint i = 0; i < G_N_ELEMENTS (cases); i++) {
    g_autoptr (LycheeAnswer) answer = NULL;
    g_autoptr (LycheeSession) session = g_object_new (LYCHEE_TYPE_SESSION, "model", model,
        "granularity",
        g_str_equal (cases[i].granularity, "chunk") ? LYCHEE_GRANULARITY_CHUNK
                                                    : LYCHEE_GRANULARITY_TOKEN,
        "prefill",
        g_str_equal (cases[i].prefill, "sparse") ? LYCHEE_ATTENTION_SPARSE : LYCHEE_ATTENTION_DENSE,
        "rest", g_str_equal (cases[i].rest, "drop") ? LYCHEE_REST_DROP : LYCHEE_REST_ESTIMATE,
        "budget", 256, "audit", 3, NULL);
    read_chunks (session, 0, 60);
    answer = ask (session, NULL, 40);
    g_assert_cmpuint (get_count (session, "sparse-queries"), >, 0);
    g_assert_cmpuint (
        get_count (session, "rows-read"), <=, get_count (session, "sparse-queries") * (256 + 12));
    if (g_str_equal (cases[i].rest, "drop"))
      g_assert_cmpuint (get_count (session, "rows-estimated"), ==, 0);
    g_assert_cmpfloat (get_number (session, "error"), <, 1);
  }
}

/* What computes is in the statistics, and what cannot is a clear error. */
static void
test_backend (void)
{
  const LycheeBackendType types[] = { LYCHEE_BACKEND_AUTO, LYCHEE_BACKEND_CPU,
    LYCHEE_BACKEND_CUDA };

  for (guint i = 0; i < G_N_ELEMENTS (types); i++) {
    g_autoptr (LycheeSession) session =
        g_object_new (LYCHEE_TYPE_SESSION, "model", model, "backend", types[i], NULL);
    g_autoptr (GVariant) before = lychee_session_get_stats (session);
    g_autoptr (GVariant) after = NULL;
    g_autoptr (GError) error = NULL;
    const char *name;

    g_assert_true (g_variant_lookup (before, "backend", "&s", &name));
    g_assert_cmpstr (name, ==, "");
    if (!lychee_session_begin (session, NULL, &error)) {
      g_assert_error (error, LYCHEE_BACKEND_ERROR, LYCHEE_BACKEND_ERROR_UNAVAILABLE);
      g_assert_cmpint (types[i], ==, LYCHEE_BACKEND_CUDA);
      continue;
    }
    after = lychee_session_get_stats (session);
    g_assert_true (g_variant_lookup (after, "backend", "&s", &name));
    if (types[i] == LYCHEE_BACKEND_CPU)
      g_assert_true (g_str_has_prefix (name, "CPU"));
    g_assert_cmpstr (name, !=, "");
  }
}

int
main (int argc, char **argv)
{
  g_autofree char *path = NULL;
  g_autoptr (GError) error = NULL;
  int result;

  g_test_init (&argc, &argv, NULL);
  dir = g_dir_make_tmp ("lychee-session-XXXXXX", NULL);
  path = lychee_test_write_tiny_model (dir, 1, NULL);
  model = lychee_model_new_from_file (path, &error);
  g_assert_no_error (error);
  g_test_add_func ("/session/ask", test_ask);
  g_test_add_func ("/session/same", test_same);
  g_test_add_func ("/session/stream", test_stream);
  g_test_add_func ("/session/snapshot", test_snapshot);
  g_test_add_func ("/session/empty", test_empty);
  g_test_add_func ("/session/blank", test_blank);
  g_test_add_func ("/session/full", test_full);
  g_test_add_func ("/session/no-room", test_no_room);
  g_test_add_func ("/session/no-memory", test_no_memory);
  g_test_add_func ("/session/no-template", test_no_template);
  g_test_add_func ("/session/cancel", test_cancel);
  g_test_add_func ("/session/cancel-between", test_cancel_between);
  g_test_add_func ("/session/cancel-begin", test_cancel_begin);
  g_test_add_func ("/session/wrong-cache", test_wrong_cache);
  g_test_add_func ("/session/shared-cache", test_shared_cache);
  g_test_add_func ("/session/threads", test_threads);
  g_test_add_func ("/session/below-budget", test_below_budget);
  g_test_add_func ("/session/sparse", test_sparse);
  g_test_add_func ("/session/settings", test_settings);
  g_test_add_func ("/session/backend", test_backend);
  result = g_test_run ();
  g_object_unref (model);
  lychee_test_remove_dir (dir);
  g_free (dir);
  return result;
}
