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

/* Threads that spin at a barrier lose a time slice each time one of them was taken off its core: on
 * a busy machine two threads are then many times slower than one. So an executor whose threads are
 * preempted again and again goes on with one thread for a while, then tries again; results do not
 * depend on the number. */
typedef struct {
  guint preempted; /* passes in a row, more or less */
  guint alone;     /* passes still to be run on one thread */
  guint pause;     /* how many it was the last time */
} LycheeContention;

/* Whether the next pass should run on one thread. */
gboolean lychee_contention_is_alone (const LycheeContention *contention);
/* Notes a pass, and how often threads were taken off their cores by force in it. */
void lychee_contention_note (LycheeContention *contention, guint n_preemptions);

G_DEFINE_AUTOPTR_CLEANUP_FUNC (LycheeExecutor, lychee_executor_unref)

G_END_DECLS
