/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include "lychee-backend-private.h"

/* The formatter would take the name for an expression. */
/* clang-format off */
G_DEFINE_QUARK (lychee-backend-error-quark, lychee_backend_error)
/* clang-format on */

LycheeBackend *
lychee_backend_new (
    LycheeBackendType type, LycheeModel *model, guint threads, guint cuda_device, GError **error)
{
  g_autoptr (GError) local = NULL;
  LycheeBackend *backend;
  gboolean built;

  if (type == LYCHEE_BACKEND_CPU)
    return lychee_backend_new_cpu (model, threads);
  backend = lychee_backend_new_cuda (model, threads, cuda_device, &built, &local);
  if (backend)
    return backend;
  if (type == LYCHEE_BACKEND_CUDA) {
    g_propagate_error (error, g_steal_pointer (&local));
    return NULL;
  }
  backend = lychee_backend_new_cpu (model, threads);
  if (built) { /* else nobody expects it */
    backend->note = g_strdup_printf ("The processor computes. %s", local->message);
    g_info ("%s", backend->note);
  }
  return backend;
}

LycheeBackend *
lychee_backend_ref (LycheeBackend *backend)
{
  g_atomic_ref_count_inc (&backend->refs);
  return backend;
}

void
lychee_backend_unref (LycheeBackend *backend)
{
  if (!g_atomic_ref_count_dec (&backend->refs))
    return;
  g_free (backend->name);
  g_free (backend->note);
  backend->klass->free (backend);
}

LycheeBackendType
lychee_backend_get_kind (LycheeBackend *backend)
{
  return backend->klass->type;
}

guint
lychee_backend_get_piece_tokens (LycheeBackend *backend)
{
  return backend->klass->piece_tokens;
}

const char *
lychee_backend_get_name (LycheeBackend *backend)
{
  return backend->name;
}

const char *
lychee_backend_get_note (LycheeBackend *backend)
{
  return backend->note;
}

void
lychee_backend_get_sharing (LycheeBackend *backend, guint *n_decoding, guint64 *n_shared)
{
  *n_decoding = 0;
  *n_shared = 0;
  if (backend->klass->get_sharing)
    backend->klass->get_sharing (backend, n_decoding, n_shared);
}

LycheeWorker *
lychee_worker_new (LycheeBackend *backend, GError **error)
{
  LycheeWorker *worker = backend->klass->new_worker (backend, error);

  if (worker)
    worker->backend = lychee_backend_ref (backend);
  return worker;
}

void
lychee_worker_free (LycheeWorker *worker)
{
  LycheeBackend *backend = worker->backend;

  backend->klass->free_worker (worker);
  lychee_backend_unref (backend);
}

void
lychee_worker_set_options (LycheeWorker *worker, const LycheeAttentionOptions *options)
{
  worker->backend->klass->set_options (worker, options);
}

void
lychee_worker_take_stats (LycheeWorker *worker, LycheeAttentionStats *stats)
{
  worker->backend->klass->take_stats (worker, stats);
}

gssize
lychee_worker_take_bytes (LycheeWorker *worker)
{
  const LycheeBackendClass *klass = worker->backend->klass;
  gsize bytes = klass->get_bytes ? klass->get_bytes (worker) : 0;
  gssize more = (gssize) bytes - (gssize) worker->told_bytes;

  worker->told_bytes = bytes;
  return more;
}

void
lychee_worker_set_weights (LycheeWorker *worker, const LycheeAttentionWeights *weights)
{
  worker->backend->klass->set_weights (worker, weights);
}

void
lychee_worker_pause_weights (LycheeWorker *worker, gboolean pause)
{
  worker->backend->klass->pause_weights (worker, pause);
}

gboolean
lychee_worker_collect_weights (LycheeWorker *worker, GError **error)
{
  return worker->backend->klass->collect_weights (worker, error);
}

gboolean
lychee_worker_run (LycheeWorker *worker, LycheeCache *cache, const gint32 *ids, guint n,
    LycheeOutput output, const float **logits, GCancellable *cancellable, GError **error)
{
  g_return_val_if_fail (n > 0 && n <= LYCHEE_FORWARD_MAX_TOKENS, FALSE);

  return worker->backend->klass->run (worker, cache, ids, n, output, logits, cancellable, error);
}

gboolean
lychee_worker_run_choosing (LycheeWorker *worker, LycheeCache *cache, const gint32 *ids, guint n,
    LycheeSampler *sampler, gint32 *id, GCancellable *cancellable, GError **error)
{
  const LycheeBackendClass *klass = worker->backend->klass;
  const float *logits;

  g_return_val_if_fail (n > 0 && n <= LYCHEE_FORWARD_MAX_TOKENS, FALSE);

  if (klass->run_choosing)
    return klass->run_choosing (worker, cache, ids, n, sampler, id, cancellable, error);
  if (!klass->run (worker, cache, ids, n, LYCHEE_OUTPUT_LAST, &logits, cancellable, error))
    return FALSE;
  *id = lychee_sampler_sample (sampler, logits, worker->backend->n_vocab);
  return TRUE;
}
