/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The same without blocking: work is done in threads of the library, and callbacks come in the
 * caller's main context. */
#include "lychee-question-private.h"
#include "lychee-session-private.h"

typedef struct {
  LycheeQuestion *question; /* that was given: its signal is emitted */
  LycheeQuestion *asked;
  LycheeTextFunc func;
  gpointer func_data;
  GDestroyNotify func_destroy;
  gint stopped; /* atomic: the function does not want more */
} Asking;

typedef struct {
  char *text; /* NULL: flush */
  char *speaker;
  guint64 start, end;
} Reading;

/* A piece of an answer on its way to the caller's context. */
typedef struct {
  GTask *task;
  char *text; /* NULL: progress */
  LycheeAnswer *so_far;
} Telling;

static void
asking_free (gpointer data)
{
  Asking *asking = data;

  if (asking->func_destroy)
    asking->func_destroy (asking->func_data);
  g_object_unref (asking->question);
  g_object_unref (asking->asked);
  g_free (asking);
}

static void
reading_free (gpointer data)
{
  Reading *reading = data;

  g_free (reading->text);
  g_free (reading->speaker);
  g_free (reading);
}

/* Has @func called in the task's context, behind what was sent there before. */
static void
send (GTask *task, GSourceFunc func, gpointer data, GDestroyNotify destroy)
{
  GSource *source = g_idle_source_new ();

  g_source_set_priority (source, g_task_get_priority (task));
  g_source_set_callback (source, func, data, destroy);
  g_source_attach (source, g_task_get_context (task));
  g_source_unref (source);
}

static gboolean
nothing (gpointer data)
{
  return G_SOURCE_REMOVE;
}

/* The task's last reference goes in its own context: what is freed with it is the caller's. */
static void
let_go (GTask *task)
{
  send (task, nothing, task, g_object_unref);
}

static gboolean
tell (gpointer data)
{
  Telling *telling = data;
  Asking *asking = g_task_get_task_data (telling->task);

  if (g_atomic_int_get (&asking->stopped))
    return G_SOURCE_REMOVE;
  if (telling->so_far)
    lychee_question_emit_progress (asking->question, telling->so_far);
  else if (!asking->func (telling->text, asking->func_data))
    g_atomic_int_set (&asking->stopped, TRUE);
  return G_SOURCE_REMOVE;
}

static void
telling_free (gpointer data)
{
  Telling *telling = data;

  g_object_unref (telling->task);
  g_free (telling->text);
  g_clear_object (&telling->so_far);
  g_free (telling);
}

static void
send_telling (GTask *task, char *text, LycheeAnswer *so_far)
{
  Telling *telling = g_new (Telling, 1);

  *telling = (Telling){ g_object_ref (task), text, so_far };
  send (task, tell, telling, telling_free);
}

/* In the asking thread. */
static gboolean
send_piece (const char *text, gpointer user_data)
{
  Asking *asking = g_task_get_task_data (user_data);

  if (asking->func)
    send_telling (user_data, g_strdup (text), NULL);
  return !g_atomic_int_get (&asking->stopped);
}

static void
send_progress (LycheeAnswer *so_far, gpointer user_data)
{
  send_telling (user_data, NULL, g_object_ref (so_far));
}

static void
run_asking (gpointer data, gpointer unused)
{
  GTask *task = data;
  Asking *asking = g_task_get_task_data (task);
  GError *error = NULL;
  LycheeAnswer *answer = lychee_session_answer (g_task_get_source_object (task), asking->asked,
      send_piece, asking->question, send_progress, task, g_task_get_cancellable (task), &error);

  if (answer)
    g_task_return_pointer (task, answer, g_object_unref);
  else
    g_task_return_error (task, error);
  let_go (task);
}

/* Those who ask wait for each other no more than if each had a thread. */
static GThreadPool *
get_asking_pool (void)
{
  static GThreadPool *pool;

  if (g_once_init_enter (&pool))
    g_once_init_leave (&pool, g_thread_pool_new (run_asking, NULL, -1, FALSE, NULL));
  return pool;
}

static void
run_reading (gpointer data, gpointer unused)
{
  GTask *task = data;
  LycheeSession *session = g_task_get_source_object (task);
  GCancellable *cancellable = g_task_get_cancellable (task);
  Reading *reading = g_task_get_task_data (task);
  GError *error = NULL;
  gboolean ok = reading->text
                    ? lychee_session_append_text (session, reading->text, reading->speaker,
                          reading->start, reading->end, cancellable, &error)
                    : lychee_session_flush (session, cancellable, &error);

  if (ok)
    g_task_return_boolean (task, TRUE);
  else
    g_task_return_error (task, error);
  let_go (task);
}

/* What was asked for was done or not, whatever was cancelled since. */
static GTask *
new_task (LycheeSession *session, GCancellable *cancellable, GAsyncReadyCallback callback,
    gpointer user_data, gpointer tag, const char *name)
{
  GTask *task = g_task_new (session, cancellable, callback, user_data);

  g_task_set_source_tag (task, tag);
  g_task_set_name (task, name);
  g_task_set_check_cancellable (task, FALSE);
  return task;
}

/* One after the other, in the order in which they were given. */
static void
queue_reading (LycheeSession *session, GTask *task, Reading *reading)
{
  g_task_set_task_data (task, reading, reading_free);
  g_mutex_lock (&session->lock);
  if (!session->queue)
    session->queue = g_thread_pool_new (run_reading, NULL, 1, FALSE, NULL);
  g_thread_pool_push (session->queue, task, NULL);
  g_mutex_unlock (&session->lock);
}

/**
 * lychee_session_ask_async:
 * @session: a session
 * @question: what to ask about the transcript; it may be changed afterwards
 * @func: (nullable) (scope notified) (closure func_data) (destroy func_destroy): called with each
 *   piece of the answer
 * @func_data: for @func; in Python a tuple of more arguments, `()` for none
 * @func_destroy: (nullable): frees @func_data
 * @cancellable: (nullable): a cancellable
 * @callback: (nullable) (scope async) (closure user_data): called when the answer is complete
 * @user_data: for @callback
 *
 * Asks as [method@Session.ask] does, without blocking.
 *
 * All that is called is called in the thread-default main context of the moment; @func not after
 * @callback, and no more once it has returned %FALSE. May be called in any thread.
 */
void
lychee_session_ask_async (LycheeSession *session, LycheeQuestion *question, LycheeTextFunc func,
    gpointer func_data, GDestroyNotify func_destroy, GCancellable *cancellable,
    GAsyncReadyCallback callback, gpointer user_data)
{
  Asking *asking;
  GTask *task;

  g_return_if_fail (LYCHEE_IS_SESSION (session));
  g_return_if_fail (LYCHEE_IS_QUESTION (question));
  g_return_if_fail (cancellable == NULL || G_IS_CANCELLABLE (cancellable));

  asking = g_new (Asking, 1);
  *asking = (Asking){ g_object_ref (question), lychee_question_copy (question), func, func_data,
    func_destroy, FALSE };
  task = new_task (session, cancellable, callback, user_data, lychee_session_ask_async,
      "lychee_session_ask_async");
  g_task_set_task_data (task, asking, asking_free);
  g_thread_pool_push (get_asking_pool (), task, NULL);
}

/**
 * lychee_session_ask_finish:
 * @session: a session
 * @result: what the callback was given
 * @error: return location for an error
 *
 * Ends [method@Session.ask_async].
 *
 * Returns: (transfer full): the answer, as from [method@Session.ask]
 */
LycheeAnswer *
lychee_session_ask_finish (LycheeSession *session, GAsyncResult *result, GError **error)
{
  g_return_val_if_fail (g_task_is_valid (result, session), NULL);

  return g_task_propagate_pointer (G_TASK (result), error);
}

/**
 * lychee_session_append_text_async:
 * @session: a session
 * @text: the next piece of the transcript
 * @speaker: (nullable): who says it
 * @start: when it begins, in nanoseconds of stream time, or %LYCHEE_TIME_NONE
 * @end: when it ends, or %LYCHEE_TIME_NONE
 * @cancellable: (nullable): a cancellable
 * @callback: (nullable) (scope async) (closure user_data): called when it is read
 * @user_data: for @callback
 *
 * Reads as [method@Session.append_text] does, without blocking. Pieces are read in the order in
 * which they were given, here and with [method@Session.flush_async]; there is no need to wait for
 * one before the next is given. @callback is called in the thread-default main context of the
 * moment. May be called in any thread.
 */
void
lychee_session_append_text_async (LycheeSession *session, const char *text, const char *speaker,
    guint64 start, guint64 end, GCancellable *cancellable, GAsyncReadyCallback callback,
    gpointer user_data)
{
  Reading *reading;

  g_return_if_fail (LYCHEE_IS_SESSION (session));
  g_return_if_fail (text != NULL);
  g_return_if_fail (cancellable == NULL || G_IS_CANCELLABLE (cancellable));

  reading = g_new (Reading, 1);
  *reading = (Reading){ g_strdup (text), g_strdup (speaker), start, end };
  queue_reading (session,
      new_task (session, cancellable, callback, user_data, lychee_session_append_text_async,
          "lychee_session_append_text_async"),
      reading);
}

/**
 * lychee_session_append_text_finish:
 * @session: a session
 * @result: what the callback was given
 * @error: return location for an error
 *
 * Ends [method@Session.append_text_async].
 *
 * Returns: FALSE with an error as from [method@Session.append_text]
 */
gboolean
lychee_session_append_text_finish (LycheeSession *session, GAsyncResult *result, GError **error)
{
  g_return_val_if_fail (g_task_is_valid (result, session), FALSE);

  return g_task_propagate_boolean (G_TASK (result), error);
}

/**
 * lychee_session_flush_async:
 * @session: a session
 * @cancellable: (nullable): a cancellable
 * @callback: (nullable) (scope async) (closure user_data): called when all is read
 * @user_data: for @callback
 *
 * Reads what was held back, as [method@Session.flush] does, without blocking, when all pieces given
 * before are read. @callback is called in the thread-default main context of the moment. May be
 * called in any thread.
 */
void
lychee_session_flush_async (LycheeSession *session, GCancellable *cancellable,
    GAsyncReadyCallback callback, gpointer user_data)
{
  g_return_if_fail (LYCHEE_IS_SESSION (session));
  g_return_if_fail (cancellable == NULL || G_IS_CANCELLABLE (cancellable));

  queue_reading (session,
      new_task (session, cancellable, callback, user_data, lychee_session_flush_async,
          "lychee_session_flush_async"),
      g_new0 (Reading, 1));
}

/**
 * lychee_session_flush_finish:
 * @session: a session
 * @result: what the callback was given
 * @error: return location for an error
 *
 * Ends [method@Session.flush_async].
 *
 * Returns: FALSE with an error as from [method@Session.append_text]
 */
gboolean
lychee_session_flush_finish (LycheeSession *session, GAsyncResult *result, GError **error)
{
  g_return_val_if_fail (g_task_is_valid (result, session), FALSE);

  return g_task_propagate_boolean (G_TASK (result), error);
}
