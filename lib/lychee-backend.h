/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <gio/gio.h>

#include "lychee-attention.h"
#include "lychee-cache.h"
#include "lychee-enums.h"
#include "lychee-forward.h"
#include "lychee-model.h"
#include "lychee-sampler.h"

G_BEGIN_DECLS

/* What computes: the one seam between a session and the processor or a CUDA device. A backend runs
 * one model; it is immutable and may be used by any thread. Passes are computed by its workers. */

typedef struct _LycheeBackend LycheeBackend;
typedef struct _LycheeWorker LycheeWorker;

/* @threads: of the processor, see lychee_executor_get (). AUTO never fails: where it takes the
 * processor although a CUDA device was built for, lychee_backend_get_note () says why. CUDA loads
 * the model's weights onto the device, once for all backends of a model. (transfer full) */
LycheeBackend *lychee_backend_new (
    LycheeBackendType type, LycheeModel *model, guint threads, guint cuda_device, GError **error);
LycheeBackend *lychee_backend_ref (LycheeBackend *backend);
void lychee_backend_unref (LycheeBackend *backend);

LycheeBackendType lychee_backend_get_kind (LycheeBackend *backend); /* CPU or CUDA */
/* Tokens of a pass in reading: few enough that whoever waits for a turn does not wait long. */
guint lychee_backend_get_piece_tokens (LycheeBackend *backend);
/* For people: "CPU (2 threads)", "NVIDIA H200 (CUDA device 0)". (transfer none) */
const char *lychee_backend_get_name (LycheeBackend *backend);
/* (nullable) (transfer none) */
const char *lychee_backend_get_note (LycheeBackend *backend);

/* Who decodes a model at the same time, in several threads, shares each read of its weights where
 * the backend can do that: workers that are at it, and tokens that were decoded together with those
 * of others. */
void lychee_backend_get_sharing (LycheeBackend *backend, guint *n_decoding, guint64 *n_shared);

/* A worker belongs to one thread at a time; its attention is dense until it is told otherwise.
 * (transfer full) (nullable): NO_MEMORY */
LycheeWorker *lychee_worker_new (LycheeBackend *backend, GError **error);
void lychee_worker_free (LycheeWorker *worker);
void lychee_worker_set_options (LycheeWorker *worker, const LycheeAttentionOptions *options);
/* What was done since the last call. */
void lychee_worker_take_stats (LycheeWorker *worker, LycheeAttentionStats *stats);

/* Bytes of the host's memory that its buffers have taken since the last call; fewer: negative. */
gssize lychee_worker_take_bytes (LycheeWorker *worker);

/* Where softmax weights of the passes that follow add up: see lychee_attention_set_weights (). The
 * sums are there when they are collected, or other weights are set. NULL: not any more, and what
 * was not collected is lost. */
void lychee_worker_set_weights (LycheeWorker *worker, const LycheeAttentionWeights *weights);
/* Whether passes add nothing up for a while. */
void lychee_worker_pause_weights (LycheeWorker *worker, gboolean pause);
gboolean lychee_worker_collect_weights (LycheeWorker *worker, GError **error);

/* Computes @n tokens (at most LYCHEE_FORWARD_MAX_TOKENS) behind those that @cache holds, and
 * commits them: see lychee_forward_run (), with LYCHEE_BACKEND_ERROR besides. */
gboolean lychee_worker_run (LycheeWorker *worker, LycheeCache *cache, const gint32 *ids, guint n,
    LycheeOutput output, const float **logits, GCancellable *cancellable, GError **error);

/* The same, and chooses the token that follows the last one: where the logits are, so that they
 * need not leave a device. @id: (out): what lychee_sampler_sample () gives for them. */
gboolean lychee_worker_run_choosing (LycheeWorker *worker, LycheeCache *cache, const gint32 *ids,
    guint n, LycheeSampler *sampler, gint32 *id, GCancellable *cancellable, GError **error);

G_DEFINE_AUTOPTR_CLEANUP_FUNC (LycheeBackend, lychee_backend_unref)
G_DEFINE_AUTOPTR_CLEANUP_FUNC (LycheeWorker, lychee_worker_free)

G_END_DECLS
