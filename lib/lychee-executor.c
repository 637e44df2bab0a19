/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include "lychee-executor.h"

#include "lychee-contention.h"
#include "lychee-model.h"

#include <ggml-cpu.h>
#include <pthread.h>
#include <time.h>

struct _LycheeExecutor {
  guint refs; /* under the registry's lock */
  guint n_threads;
  struct ggml_threadpool *pool;
  clockid_t *clocks; /* [n_threads], of the processor time of each; the caller's is the first */

  GMutex lock;
  GCond turn;
  GQueue waiting; /* of whoever waits for a turn, in order; their stacks */
  gboolean busy;
  LycheeContention contention;
  guint8 *work;
  gsize work_size;
};

#define NO_CLOCK ((clockid_t) -1)

static GMutex registry_lock;
static GHashTable *registry; /* n_threads -> LycheeExecutor, not owned */

/* A node of a graph that every thread of the pool runs. */
static void
take_clock (struct ggml_tensor *dst, int thread, int n_threads, void *data)
{
  clockid_t *clocks = data;

  if (pthread_getcpuclockid (pthread_self (), &clocks[thread]) != 0)
    clocks[thread] = NO_CLOCK;
}

static void
take_clocks (LycheeExecutor *executor)
{
  struct ggml_init_params params = { .mem_size = 8 * ggml_tensor_overhead () +
                                                 ggml_graph_overhead_custom (8, false) + 1024 };
  struct ggml_context *c = ggml_init (params);
  struct ggml_cgraph *graph = ggml_new_graph_custom (c, 8, false);
  struct ggml_tensor *one = ggml_new_tensor_1d (c, GGML_TYPE_F32, 1);
  struct ggml_cplan plan;

  executor->clocks = g_new (clockid_t, executor->n_threads);
  for (guint i = 0; i < executor->n_threads; i++)
    executor->clocks[i] = NO_CLOCK;
  ggml_build_forward_expand (graph, ggml_custom_4d (c, GGML_TYPE_F32, 1, 1, 1, 1, &one, 1,
                                        take_clock, GGML_N_TASKS_MAX, executor->clocks));
  plan = ggml_graph_plan (graph, executor->n_threads, executor->pool);
  plan.work_data = g_malloc (plan.work_size);
  ggml_graph_compute (graph, &plan);
  g_free (plan.work_data);
  ggml_free (c);
}

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
    take_clocks (executor);
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
  g_free (executor->clocks);
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

/* Processor time of the first @n threads, added up, in microseconds. */
static gint64
get_processor_time (LycheeExecutor *executor, guint n)
{
  gint64 time = 0;
  struct timespec t;

  for (guint i = 0; i < n; i++)
    if (clock_gettime (i == 0 ? CLOCK_THREAD_CPUTIME_ID : executor->clocks[i], &t) == 0)
      time += t.tv_sec * G_USEC_PER_SEC + t.tv_nsec / 1000;
  return time;
}

gboolean
lychee_executor_compute (
    LycheeExecutor *executor, struct ggml_cgraph *graph, GCancellable *cancellable, GError **error)
{
  struct ggml_cplan plan;
  enum ggml_status status;
  guint n = lychee_contention_get_n_threads (&executor->contention, executor->n_threads);
  gint64 time, ran;

  plan = ggml_graph_plan (graph, n, executor->pool);
  plan.abort_callback = cancellable ? is_cancelled : NULL;
  plan.abort_callback_data = cancellable;
  if (executor->work_size < plan.work_size) {
    g_free (executor->work);
    executor->work = g_malloc (plan.work_size);
    executor->work_size = plan.work_size;
  }
  plan.work_data = executor->work;
  time = g_get_monotonic_time ();
  ran = get_processor_time (executor, n);
  status = ggml_graph_compute (graph, &plan);
  ran = get_processor_time (executor, n) - ran;
  time = g_get_monotonic_time () - time;
  lychee_contention_note (&executor->contention, executor->n_threads, time, n * time - ran);

  if (status == GGML_STATUS_SUCCESS)
    return TRUE;
  if (!g_cancellable_set_error_if_cancelled (cancellable, error))
    g_set_error (error, LYCHEE_MODEL_ERROR, LYCHEE_MODEL_ERROR_COMPUTE,
        "The forward pass failed: %s", ggml_status_to_string (status));
  return FALSE;
}
