/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <gio/gio.h>

#include <ggml.h>

G_BEGIN_DECLS

/* The threads that compute. ggml's threads spin while they wait for each other, so two graphs at a
 * time would steal each other's cores: all sessions that want the same number of threads share one
 * executor, which runs one graph at a time, first come, first served. A graph is short (a decoded
 * token, a chunk), so an answer and the transcript being read take turns. */
typedef struct _LycheeExecutor LycheeExecutor;

/* @threads: 0 for $LYCHEE_THREADS, or one a core. (transfer full) */
LycheeExecutor *lychee_executor_get (guint threads);
LycheeExecutor *lychee_executor_ref (LycheeExecutor *executor);
void lychee_executor_unref (LycheeExecutor *executor);
guint lychee_executor_get_n_threads (LycheeExecutor *executor);

/* Waits for the caller's turn; what is the executor's, and whatever else its users share, is the
 * caller's until lychee_executor_end (). FALSE with G_IO_ERROR_CANCELLED: it was not waited for,
 * and there is nothing to end. */
gboolean lychee_executor_begin (
    LycheeExecutor *executor, GCancellable *cancellable, GError **error);
void lychee_executor_end (LycheeExecutor *executor);

/* In the caller's turn. Errors: G_IO_ERROR_CANCELLED, taken note of between any two nodes;
 * LYCHEE_MODEL_ERROR_COMPUTE. */
gboolean lychee_executor_compute (
    LycheeExecutor *executor, struct ggml_cgraph *graph, GCancellable *cancellable, GError **error);

G_DEFINE_AUTOPTR_CLEANUP_FUNC (LycheeExecutor, lychee_executor_unref)

G_END_DECLS
