/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "lychee-backend.h"

G_BEGIN_DECLS

/* What an implementation provides; the first members of its own structures. */
typedef struct {
  LycheeBackendType type;
  guint piece_tokens;
  void (*free) (LycheeBackend *backend);
  LycheeWorker *(*new_worker) (LycheeBackend *backend, GError **error);
  void (*free_worker) (LycheeWorker *worker);
  void (*set_options) (LycheeWorker *worker, const LycheeAttentionOptions *options);
  void (*take_stats) (LycheeWorker *worker, LycheeAttentionStats *stats);
  void (*set_weights) (LycheeWorker *worker, const LycheeAttentionWeights *weights);
  void (*pause_weights) (LycheeWorker *worker, gboolean pause);
  gboolean (*collect_weights) (LycheeWorker *worker, GError **error);
  gsize (*get_bytes) (LycheeWorker *worker); /* NULL: little of the host's memory */
  gboolean (*run) (LycheeWorker *worker, LycheeCache *cache, const gint32 *ids, guint n,
      LycheeOutput output, const float **logits, GCancellable *cancellable, GError **error);
  /* NULL: the sampler chooses from the logits. -1: none of these is a number. */
  gboolean (*run_choosing) (LycheeWorker *worker, LycheeCache *cache, const gint32 *ids, guint n,
      LycheeSampler *sampler, gint32 *id, GCancellable *cancellable, GError **error);
  /* NULL: each token is computed on its own */
  void (*get_sharing) (LycheeBackend *backend, guint *n_decoding, guint64 *n_shared);
  /* NULL: caches are where they are; see lychee_holder_hold () */
  guint (*hold) (LycheeWorker *worker, LycheeCache *cache, GError **error);
} LycheeBackendClass;

struct _LycheeBackend {
  const LycheeBackendClass *klass;
  gatomicrefcount refs;
  char *name;
  char *note;
  guint n_vocab;
};

struct _LycheeWorker {
  LycheeBackend *backend; /* (owned) */
  gsize told_bytes;       /* by lychee_worker_take_bytes () */
};

LycheeBackend *lychee_backend_new_cpu (LycheeModel *model, guint threads);
/* @built: (out): whether there is a module for CUDA devices at all */
LycheeBackend *lychee_backend_new_cuda (
    LycheeModel *model, guint threads, guint device, gboolean *built, GError **error);

G_END_DECLS
