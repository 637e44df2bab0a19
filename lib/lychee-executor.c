/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include "lychee-executor.h"

#include "lychee-model.h"

#include <ggml-cpu.h>
#include <sys/resource.h>

/* Now and then the system needs a core for a moment: that is not yet a busy machine. */
#define MANY_PREEMPTIONS 3
#define PREEMPTED_LIMIT 3
#define FIRST_PAUSE 16
#define LONGEST_PAUSE 512

struct _LycheeExecutor {
  guint refs; /* under the registry's lock */
  guint n_threads;
  struct ggml_threadpool *pool;

  GMutex lock;
  GCond turn;
  GQueue waiting; /* of whoever waits for a turn, in order; their stacks */
  gboolean busy;
  LycheeContention contention;
  guint8 *work;
  gsize work_size;
};

static GMutex registry_lock;
static GHashTable *registry; /* n_threads -> LycheeExecutor, not owned */

LycheeExecutor *
lychee_executor_get (guint threads)
{
  LycheeExecutor *executor;

  if (threads == 0 && g_getenv ("LYCHEE_THREADS"))
    threads = g_ascii_strtoull (g_getenv ("LYCHEE_THREADS"), NULL, 10);
  if (threads == 0)
    threads = g_get_num_processors ();
  threads = MIN (threads, GGML_MAX_N_THREADS);

  g_mutex_lock (&registry_lock);
  if (!registry)
    registry = g_hash_table_new (NULL, NULL);
  executor = g_hash_table_lookup (registry, GUINT_TO_POINTER (threads));
  if (!executor) {
    struct ggml_threadpool_params params = ggml_threadpool_params_default (threads);

    executor = g_new0 (LycheeExecutor, 1);
    executor->n_threads = threads;
    executor->pool = ggml_threadpool_new (&params);
    g_mutex_init (&executor->lock);
    g_cond_init (&executor->turn);
    g_hash_table_insert (registry, GUINT_TO_POINTER (threads), executor);
  }
  executor->refs++;
  g_mutex_unlock (&registry_lock);
  return executor;
}

LycheeExecutor *
lychee_executor_ref (LycheeExecutor *executor)
{
  g_mutex_lock (&registry_lock);
  executor->refs++;
  g_mutex_unlock (&registry_lock);
  return executor;
}

void
lychee_executor_unref (LycheeExecutor *executor)
{
  gboolean last;

  g_mutex_lock (&registry_lock);
  last = --executor->refs == 0;
  if (last) {
    g_hash_table_remove (registry, GUINT_TO_POINTER (executor->n_threads));
    if (g_hash_table_size (registry) == 0)
      g_clear_pointer (&registry, g_hash_table_unref);
  }
  g_mutex_unlock (&registry_lock);
  if (!last)
    return;
  ggml_threadpool_free (executor->pool);
  g_mutex_clear (&executor->lock);
  g_cond_clear (&executor->turn);
  g_free (executor->work);
  g_free (executor);
}

guint
lychee_executor_get_n_threads (LycheeExecutor *executor)
{
  return executor->n_threads;
}

static bool
is_cancelled (void *data)
{
  return g_cancellable_is_cancelled (data);
}

gboolean
lychee_contention_is_alone (const LycheeContention *contention)
{
  return contention->alone > 0;
}

void
lychee_contention_note (LycheeContention *contention, guint n_preemptions)
{
  if (contention->alone > 0) {
    contention->alone--;
    return;
  }
  if (n_preemptions < MANY_PREEMPTIONS) {
    if (contention->preempted > 0)
      contention->preempted--;
    else
      contention->pause = 0;
    return;
  }
  if (++contention->preempted < PREEMPTED_LIMIT)
    return;
  contention->preempted = PREEMPTED_LIMIT - 1; /* one bad pass decides the next trial */
  contention->pause = CLAMP (contention->pause * 2, FIRST_PAUSE, LONGEST_PAUSE);
  contention->alone = contention->pause;
}

/* How often this process's threads were taken off their cores by force. Of the threads that wait
 * for each other any one may be the one that was. */
static glong
count_preemptions (void)
{
  struct rusage usage;

  return getrusage (RUSAGE_SELF, &usage) == 0 ? usage.ru_nivcsw : 0;
}

static void
wake (GCancellable *cancellable, LycheeExecutor *executor)
{
  g_mutex_lock (&executor->lock);
  g_cond_broadcast (&executor->turn);
  g_mutex_unlock (&executor->lock);
}

gboolean
lychee_executor_begin (LycheeExecutor *executor, GCancellable *cancellable, GError **error)
{
  GList turn = { NULL };
  gulong id =
      cancellable ? g_cancellable_connect (cancellable, G_CALLBACK (wake), executor, NULL) : 0;
  gboolean cancelled;

  g_mutex_lock (&executor->lock);
  g_queue_push_tail_link (&executor->waiting, &turn);
  while (!(cancelled = g_cancellable_is_cancelled (cancellable)) &&
         (executor->busy || executor->waiting.head != &turn))
    g_cond_wait (&executor->turn, &executor->lock);
  g_queue_unlink (&executor->waiting, &turn);
  if (cancelled)
    g_cond_broadcast (&executor->turn); /* it may have been the next */
  else
    executor->busy = TRUE;
  g_mutex_unlock (&executor->lock);
  if (cancellable)
    g_cancellable_disconnect (cancellable, id);
  if (cancelled)
    g_set_error_literal (error, G_IO_ERROR, G_IO_ERROR_CANCELLED, "Cancelled");
  return !cancelled;
}

void
lychee_executor_end (LycheeExecutor *executor)
{
  g_mutex_lock (&executor->lock);
  executor->busy = FALSE;
  g_cond_broadcast (&executor->turn);
  g_mutex_unlock (&executor->lock);
}

gboolean
lychee_executor_compute (
    LycheeExecutor *executor, struct ggml_cgraph *graph, GCancellable *cancellable, GError **error)
{
  struct ggml_cplan plan;
  enum ggml_status status;
  glong preemptions;

  plan = ggml_graph_plan (graph,
      lychee_contention_is_alone (&executor->contention) ? 1 : executor->n_threads, executor->pool);
  plan.abort_callback = cancellable ? is_cancelled : NULL;
  plan.abort_callback_data = cancellable;
  if (executor->work_size < plan.work_size) {
    g_free (executor->work);
    executor->work = g_malloc (plan.work_size);
    executor->work_size = plan.work_size;
  }
  plan.work_data = executor->work;
  preemptions = count_preemptions ();
  status = ggml_graph_compute (graph, &plan);
  if (executor->n_threads > 1)
    lychee_contention_note (&executor->contention, count_preemptions () - preemptions);

  if (status == GGML_STATUS_SUCCESS)
    return TRUE;
  if (!g_cancellable_set_error_if_cancelled (cancellable, error))
    g_set_error (error, LYCHEE_MODEL_ERROR, LYCHEE_MODEL_ERROR_COMPUTE,
        "The forward pass failed: %s", ggml_status_to_string (status));
  return FALSE;
}
