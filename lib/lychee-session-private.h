/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "lychee-backend.h"
#include "lychee-cache-private.h"
#include "lychee-session.h"

G_BEGIN_DECLS

struct _LycheeSession {
  GObject parent_instance;

  LycheeModel *model;
  LycheeCache *cache;
  LycheeChatFormat template;
  char *system_prompt;
  guint max_context;
  guint64 max_memory;
  guint reserve;
  guint threads;
  LycheeGranularity granularity;
  guint sinks;
  guint window;
  LycheeAttentionMode prefill;
  LycheeBackendType backend_type;
  guint cuda_device;

  LycheeWorker *reader; /* of the appending thread */
  gboolean begun;

  GMutex lock;
  LycheeBackend *backend; /* NULL until something is computed */
  GQueue idle;            /* of LycheeWorker: those of earlier answers, for the next */
  LycheeAttentionOptions attention;
  LycheeAttentionStats stats;
};

/* Whether the session can be used at all; makes the backend when nothing was computed before. */
gboolean lychee_session_check_ready (LycheeSession *session, GError **error);
/* The settings for answers, with those of reading for @prefill. */
LycheeAttentionOptions lychee_session_get_options (LycheeSession *session, gboolean prefill);
/* Computes ids of any number, in pieces small enough that whoever waits for the backend, or
 * cancels, does not wait long. */
gboolean lychee_session_prefill (LycheeSession *session, LycheeWorker *worker, LycheeCache *cache,
    const gint32 *ids, guint n, LycheeOutput output, const float **logits,
    GCancellable *cancellable, GError **error);
/* Counts what @worker did. */
void lychee_session_collect_stats (LycheeSession *session, LycheeWorker *worker);
/* Tokens of a transcript: those behind the prompt's beginning. */
guint lychee_session_count_transcript (LycheeCache *cache);

G_END_DECLS
