/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include "lychee-holder.h"

#include "lychee-backend-private.h"

struct _LycheeHolder {
  LycheeBackend *backend;
  LycheeWorker *worker; /* NULL: nothing was held yet */
};

LycheeHolder *
lychee_holder_new (LycheeModel *model, LycheeBackendType type, guint cuda_device, GError **error)
{
  LycheeBackend *backend;
  LycheeHolder *holder;
  gboolean built;

  if (type == LYCHEE_BACKEND_CPU)
    return NULL;
  backend = lychee_backend_new_cuda (
      model, 0, cuda_device, &built, type == LYCHEE_BACKEND_CUDA ? error : NULL);
  if (!backend)
    return NULL;
  holder = g_new0 (LycheeHolder, 1);
  holder->backend = backend;
  return holder;
}

void
lychee_holder_free (LycheeHolder *holder)
{
  g_clear_pointer (&holder->worker, lychee_worker_free);
  lychee_backend_unref (holder->backend);
  g_free (holder);
}

const char *
lychee_holder_get_name (LycheeHolder *holder)
{
  return lychee_backend_get_name (holder->backend);
}

guint
lychee_holder_hold (LycheeHolder *holder, LycheeCache *cache, GError **error)
{
  if (!holder->backend->klass->hold)
    return 0;
  if (!holder->worker)
    holder->worker = lychee_worker_new (holder->backend, error);
  return holder->worker ? holder->backend->klass->hold (holder->worker, cache, error) : 0;
}
