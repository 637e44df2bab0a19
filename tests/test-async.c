/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* What LycheeSession and LycheeModel do without blocking: order, contexts, cancelling. */

#include "lychee-cache-private.h"
#include "lychee-session-cache.h"
#include "tiny-model.h"

#include <string.h>

static char *dir, *path;
static LycheeModel *model;

typedef struct {
  GMainContext *context;
  GThread *thread; /* all callbacks come in it */
  GString *told;
  LycheeAnswer *answer;
  LycheeModel *loaded;
  GError *error;
  guint n_done;
  guint stop_after; /* pieces, 0: never */
  guint n_pieces;
  gboolean freed;
  LycheeAnswer *so_far;
  guint n_progress, n_changed; /* how often it was told, and was not the same */
} Fixture;

static void
fixture_init (Fixture *f)
{
  *f = (Fixture){ g_main_context_new (), g_thread_self (), g_string_new (NULL) };
  g_main_context_push_thread_default (f->context);
}

static void
fixture_clear (Fixture *f)
{
  g_main_context_pop_thread_default (f->context);
  while (g_main_context_iteration (f->context, FALSE))
    ;
  g_main_context_unref (f->context);
  g_string_free (f->told, TRUE);
  g_clear_object (&f->answer);
  g_clear_object (&f->so_far);
  g_clear_object (&f->loaded);
  g_clear_error (&f->error);
}

static void
wait_until (Fixture *f, guint n_done)
{
  while (f->n_done < n_done)
    g_main_context_iteration (f->context, TRUE);
}

static gboolean
note_piece (const char *text, gpointer data)
{
  Fixture *f = data;

  g_assert_true (g_thread_self () == f->thread);
  g_assert_cmpuint (f->n_done, ==, 0);
  g_assert_false (f->freed);
  g_string_append (f->told, text);
  return ++f->n_pieces != f->stop_after;
}

static void
note_freed (gpointer data)
{
  Fixture *f = data;

  g_assert_true (g_thread_self () == f->thread);
  g_assert_false (f->freed);
  f->freed = TRUE;
}

static void
note_answer (GObject *source, GAsyncResult *result, gpointer data)
{
  Fixture *f = data;

  g_assert_true (g_thread_self () == f->thread);
  g_assert_false (f->freed);
  f->answer = lychee_session_ask_finish (LYCHEE_SESSION (source), result, &f->error);
  f->n_done++;
}

static void
note_read (GObject *source, GAsyncResult *result, gpointer data)
{
  Fixture *f = data;

  g_assert_true (g_thread_self () == f->thread);
  lychee_session_append_text_finish (LYCHEE_SESSION (source), result, &f->error);
  f->n_done++;
}

static void
note_model (GObject *source, GAsyncResult *result, gpointer data)
{
  Fixture *f = data;

  g_assert_true (g_thread_self () == f->thread);
  f->loaded = lychee_model_new_finish (result, &f->error);
  f->n_done++;
}

static void
give_text (LycheeSession *session, const char *text)
{
  g_assert_true (lychee_session_append_text (
      session, text, NULL, LYCHEE_TIME_NONE, LYCHEE_TIME_NONE, NULL, NULL));
  g_assert_true (lychee_session_flush (session, NULL, NULL));
}

static LycheeQuestion *
new_question (guint max_tokens)
{
  return g_object_new (
      LYCHEE_TYPE_QUESTION, "prompt", "What was decided?", "max-tokens", max_tokens, NULL);
}

/* The same answer as without waiting, told piece by piece before its end. */
static void
test_ask (void)
{
  g_autoptr (LycheeSession) session = lychee_session_new (model);
  g_autoptr (LycheeQuestion) question = new_question (40);
  g_autoptr (LycheeAnswer) answer = NULL;
  Fixture f;

  fixture_init (&f);
  give_text (session, "The pump will be mended on Monday, and paid from the reserve.");
  answer = lychee_session_ask (session, question, NULL, NULL, NULL, NULL);
  lychee_session_ask_async (session, question, note_piece, &f, note_freed, NULL, note_answer, &f);
  /* It is the question of that moment. */
  lychee_question_set_prompt (question, "And then?");
  wait_until (&f, 1);
  g_assert_no_error (f.error);
  g_assert_cmpstr (lychee_answer_get_text (f.answer), ==, lychee_answer_get_text (answer));
  g_assert_cmpstr (lychee_answer_get_text (f.answer), ==, f.told->str);
  while (!f.freed)
    g_main_context_iteration (f.context, TRUE);
  fixture_clear (&f);
}

static double
sum_weights (LycheeAnswer *answer)
{
  GPtrArray *evidence = lychee_answer_get_evidence (answer);
  double sum = 0;

  for (guint i = 0; i < evidence->len; i++)
    sum += ((LycheeEvidence *) evidence->pdata[i])->weight;
  return sum;
}

static void
note_progress (LycheeQuestion *question, LycheeAnswer *so_far, gpointer data)
{
  Fixture *f = data;

  g_assert_true (g_thread_self () == f->thread);
  g_assert_null (f->answer);
  g_assert_cmpint (lychee_answer_get_finish (so_far), ==, LYCHEE_FINISH_CANCELLED);
  /* What is told in pieces is told before. */
  if (f->n_pieces > 0)
    g_assert_cmpstr (lychee_answer_get_text (so_far), ==, f->told->str);
  g_assert_cmpuint (
      lychee_answer_get_answer_tokens (so_far), ==, f->n_progress == 0 ? 0 : 4 * f->n_progress - 3);
  g_assert_cmpuint (lychee_answer_get_evidence (so_far)->len, ==, 2);
  g_assert_cmpfloat (sum_weights (so_far), >, 0);
  g_assert_cmpfloat (sum_weights (so_far), <=, 1.0001);
  if (f->so_far && sum_weights (f->so_far) != sum_weights (so_far))
    f->n_changed++;
  g_set_object (&f->so_far, so_far);
  f->n_progress++;
}

/* While an answer comes about it is told what it rests on so far, which changes; and what comes
 * about is not changed by that. */
static void
test_progress (void)
{
  g_autoptr (LycheeSession) session = lychee_session_new (model);
  g_autoptr (LycheeQuestion) question = new_question (30);
  g_autoptr (LycheeAnswer) plain = NULL, watched = NULL;
  Fixture f;
  guint n;
  gulong handler;

  give_text (session,
      "The pump will be mended on Monday, and paid from the reserve. The caretaker has the key. "
      "The council meets again in spring, when the frost is gone and the road is dry again.");
  lychee_question_set_evidence (question, 2);
  plain = lychee_session_ask (session, question, NULL, NULL, NULL, NULL);

  fixture_init (&f);
  handler = g_signal_connect (question, "progress", G_CALLBACK (note_progress), &f);
  lychee_session_ask_async (session, question, note_piece, &f, NULL, NULL, note_answer, &f);
  wait_until (&f, 1);
  g_assert_no_error (f.error);
  g_assert_cmpstr (lychee_answer_get_text (f.answer), ==, lychee_answer_get_text (plain));
  g_assert_cmpfloat (sum_weights (f.answer), ==, sum_weights (plain));
  n = f.n_progress;
  g_assert_cmpuint (n, >=, 4);
  g_assert_cmpuint (f.n_changed, >=, 2);
  fixture_clear (&f);
  g_signal_handler_disconnect (question, handler);

  fixture_init (&f);
  g_signal_connect (question, "progress", G_CALLBACK (note_progress), &f);
  watched = lychee_session_ask (session, question, NULL, NULL, NULL, NULL);
  g_assert_cmpuint (f.n_progress, ==, n);
  g_assert_cmpstr (lychee_answer_get_text (watched), ==, lychee_answer_get_text (plain));
  fixture_clear (&f);
}

static void
test_ask_stop (void)
{
  g_autoptr (LycheeSession) session = lychee_session_new (model);
  g_autoptr (LycheeQuestion) question = new_question (0);
  g_autoptr (LycheeSampler) sampler = lychee_sampler_new ();
  Fixture f;

  fixture_init (&f);
  f.stop_after = 3;
  g_object_set (sampler, "temperature", 2.0, NULL);
  lychee_question_set_sampler (question, sampler);
  give_text (session, "Hm.");
  lychee_session_ask_async (session, question, note_piece, &f, NULL, NULL, note_answer, &f);
  wait_until (&f, 1);
  g_assert_cmpint (lychee_answer_get_finish (f.answer), ==, LYCHEE_FINISH_CANCELLED);
  g_assert_cmpuint (f.n_pieces, ==, 3);
  fixture_clear (&f);
}

static void
test_ask_error (void)
{
  g_autoptr (LycheeSession) session = lychee_session_new (model);
  g_autoptr (LycheeQuestion) question = new_question (5);
  Fixture f;

  fixture_init (&f);
  lychee_session_ask_async (session, question, note_piece, &f, NULL, NULL, note_answer, &f);
  wait_until (&f, 1);
  g_assert_error (f.error, LYCHEE_SESSION_ERROR, LYCHEE_SESSION_ERROR_EMPTY);
  fixture_clear (&f);
}

/* Many questions and much text at the same time: all come back, each once. */
static void
test_many (void)
{
  g_autoptr (LycheeSession) session = lychee_session_new (model);
  g_autoptr (LycheeQuestion) question = new_question (8);
  g_autoptr (LycheeAnswer) last = NULL;
  Fixture f, asked[12];

  fixture_init (&f);
  give_text (session, "It begins.");
  for (guint i = 0; i < G_N_ELEMENTS (asked); i++) {
    asked[i] = (Fixture){ f.context, f.thread, g_string_new (NULL) };
    lychee_session_append_text_async (session, " And it goes on, more or less.", NULL,
        LYCHEE_TIME_NONE, LYCHEE_TIME_NONE, NULL, note_read, &f);
    lychee_session_ask_async (
        session, question, note_piece, &asked[i], note_freed, NULL, note_answer, &asked[i]);
  }
  wait_until (&f, G_N_ELEMENTS (asked));
  g_assert_no_error (f.error);
  for (guint i = 0; i < G_N_ELEMENTS (asked); i++) {
    wait_until (&asked[i], 1);
    while (!asked[i].freed)
      g_main_context_iteration (f.context, TRUE);
    g_assert_cmpstr (lychee_answer_get_text (asked[i].answer), ==, asked[i].told->str);
    g_string_free (asked[i].told, TRUE);
    g_object_unref (asked[i].answer);
  }
  fixture_clear (&f);
}

/* Text is read in the order in which it was given. The session lives as long as it is needed. */
static void
test_append (void)
{
  LycheeSession *session = lychee_session_new (model);
  g_autoptr (LycheeCache) cache = g_object_ref (lychee_session_get_cache (session));
  g_autoptr (GString) given = g_string_new (NULL), read = g_string_new (NULL);
  LycheeChunk *chunk;
  Fixture f;

  fixture_init (&f);
  for (guint i = 0; i < 40; i++) {
    g_autofree char *text = g_strdup_printf ("%u words, ", i);

    g_string_append (given, text);
    lychee_session_append_text_async (
        session, text, NULL, LYCHEE_TIME_NONE, LYCHEE_TIME_NONE, NULL, note_read, &f);
  }
  lychee_session_flush_async (session, NULL, note_read, &f);
  g_object_unref (session);
  wait_until (&f, 41);
  g_assert_no_error (f.error);
  for (guint i = 0; (chunk = lychee_cache_get_chunk (cache, i, NULL)); i++) {
    g_string_append (read, chunk->text);
    lychee_chunk_unref (chunk);
  }
  g_assert_cmpstr (read->str, ==, given->str);
  fixture_clear (&f);
}

static void
test_append_cancel (void)
{
  g_autoptr (LycheeSession) session = lychee_session_new (model);
  g_autoptr (GCancellable) cancelled = g_cancellable_new ();
  Fixture f;

  fixture_init (&f);
  g_cancellable_cancel (cancelled);
  lychee_session_append_text_async (session,
      "A long enough piece of text to be cut into two chunks or three, if it were read.", NULL,
      LYCHEE_TIME_NONE, LYCHEE_TIME_NONE, cancelled, note_read, &f);
  wait_until (&f, 1);
  g_assert_error (f.error, G_IO_ERROR, G_IO_ERROR_CANCELLED);
  fixture_clear (&f);
}

static void
test_model (void)
{
  g_autoptr (GCancellable) cancelled = g_cancellable_new ();
  Fixture f;

  fixture_init (&f);
  lychee_model_new_async (path, NULL, note_model, &f);
  wait_until (&f, 1);
  g_assert_no_error (f.error);
  g_assert_cmpstr (lychee_model_get_id (f.loaded), ==, lychee_model_get_id (model));
  lychee_model_new_async ("/nowhere/at/all.gguf", NULL, note_model, &f);
  g_clear_object (&f.loaded);
  wait_until (&f, 2);
  g_assert_error (f.error, LYCHEE_MODEL_ERROR, LYCHEE_MODEL_ERROR_OPEN);
  g_clear_error (&f.error);
  g_cancellable_cancel (cancelled);
  lychee_model_new_async (path, cancelled, note_model, &f);
  wait_until (&f, 3);
  g_assert_error (f.error, G_IO_ERROR, G_IO_ERROR_CANCELLED);
  fixture_clear (&f);
}

int
main (int argc, char **argv)
{
  g_autoptr (GError) error = NULL;
  int result;

  g_test_init (&argc, &argv, NULL);
  dir = g_dir_make_tmp ("lychee-async-XXXXXX", NULL);
  path = lychee_test_write_tiny_model (dir, 1, NULL);
  model = lychee_model_new_from_file (path, &error);
  g_assert_no_error (error);
  g_test_add_func ("/async/progress", test_progress);
  g_test_add_func ("/async/ask", test_ask);
  g_test_add_func ("/async/ask/stop", test_ask_stop);
  g_test_add_func ("/async/ask/error", test_ask_error);
  g_test_add_func ("/async/many", test_many);
  g_test_add_func ("/async/append", test_append);
  g_test_add_func ("/async/append/cancel", test_append_cancel);
  g_test_add_func ("/async/model", test_model);
  result = g_test_run ();
  g_object_unref (model);
  lychee_test_remove_dir (dir);
  g_free (path);
  g_free (dir);
  return result;
}
