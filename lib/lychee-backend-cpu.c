/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The processor: a LycheeForward a worker, over the executor that all share. */

#include "lychee-backend-private.h"
#include "lychee-executor.h"

/* About a tenth of a second of the default model. */
#define PIECE_TOKENS 32

typedef struct {
  LycheeBackend parent;
  LycheeModel *model;
  LycheeExecutor *executor;
} CpuBackend;

typedef struct {
  LycheeWorker parent;
  LycheeForward *forward;
  LycheeAttentionWeights weights; /* no rows: not wanted */
} CpuWorker;

static void
cpu_free (LycheeBackend *backend)
{
  CpuBackend *cpu = (CpuBackend *) backend;

  lychee_executor_unref (cpu->executor);
  g_object_unref (cpu->model);
  g_free (cpu);
}

static LycheeWorker *
cpu_new_worker (LycheeBackend *backend, GError **error)
{
  CpuBackend *cpu = (CpuBackend *) backend;
  CpuWorker *worker = g_new0 (CpuWorker, 1);

  worker->forward = lychee_forward_new (cpu->model, cpu->executor);
  return &worker->parent;
}

static void
cpu_free_worker (LycheeWorker *worker)
{
  lychee_forward_free (((CpuWorker *) worker)->forward);
  g_free (worker);
}

static LycheeAttention *
get_attention (LycheeWorker *worker)
{
  return lychee_forward_get_attention (((CpuWorker *) worker)->forward);
}

static void
cpu_set_options (LycheeWorker *worker, const LycheeAttentionOptions *options)
{
  lychee_attention_set_options (get_attention (worker), options);
}

static void
cpu_take_stats (LycheeWorker *worker, LycheeAttentionStats *stats)
{
  lychee_attention_get_stats (get_attention (worker), stats);
  lychee_attention_reset_stats (get_attention (worker));
}

static void
cpu_set_weights (LycheeWorker *worker, const LycheeAttentionWeights *weights)
{
  ((CpuWorker *) worker)->weights = weights ? *weights : (LycheeAttentionWeights){ 0 };
  lychee_attention_set_weights (get_attention (worker), weights);
}

static void
cpu_pause_weights (LycheeWorker *worker, gboolean pause)
{
  lychee_attention_set_weights (
      get_attention (worker), pause ? NULL : &((CpuWorker *) worker)->weights);
}

/* They are added up in place. */
static gboolean
cpu_collect_weights (LycheeWorker *worker, GError **error)
{
  return TRUE;
}

static gsize
cpu_get_bytes (LycheeWorker *worker)
{
  return lychee_forward_get_bytes (((CpuWorker *) worker)->forward);
}

static gboolean
cpu_run (LycheeWorker *worker, LycheeCache *cache, const gint32 *ids, guint n, LycheeOutput output,
    const float **logits, GCancellable *cancellable, GError **error)
{
  return lychee_forward_run (
      ((CpuWorker *) worker)->forward, cache, ids, n, output, logits, cancellable, error);
}

static const LycheeBackendClass cpu_class = {
  .type = LYCHEE_BACKEND_CPU,
  .piece_tokens = PIECE_TOKENS,
  .free = cpu_free,
  .new_worker = cpu_new_worker,
  .free_worker = cpu_free_worker,
  .set_options = cpu_set_options,
  .take_stats = cpu_take_stats,
  .set_weights = cpu_set_weights,
  .pause_weights = cpu_pause_weights,
  .collect_weights = cpu_collect_weights,
  .get_bytes = cpu_get_bytes,
  .run = cpu_run,
};

LycheeBackend *
lychee_backend_new_cpu (LycheeModel *model, guint threads)
{
  CpuBackend *cpu = g_new0 (CpuBackend, 1);

  cpu->parent.klass = &cpu_class;
  g_atomic_ref_count_init (&cpu->parent.refs);
  cpu->model = g_object_ref (model);
  cpu->parent.n_vocab = lychee_model_get_n_vocab (model);
  cpu->executor = lychee_executor_get (threads);
  cpu->parent.name =
      g_strdup_printf ("CPU (%u threads)", lychee_executor_get_n_threads (cpu->executor));
  return &cpu->parent;
}
