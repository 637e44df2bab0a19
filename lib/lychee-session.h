/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <gio/gio.h>

#include "lychee-answer.h"
#include "lychee-cache.h"
#include "lychee-chat-template.h"
#include "lychee-enums.h"
#include "lychee-model.h"
#include "lychee-question.h"

G_BEGIN_DECLS

#define LYCHEE_SESSION_ERROR (lychee_session_error_quark ())

/**
 * LycheeSessionError:
 * @LYCHEE_SESSION_ERROR_EMPTY: there is no transcript to answer from
 * @LYCHEE_SESSION_ERROR_TEMPLATE: the model's chat template is not known: set "template"
 * @LYCHEE_SESSION_ERROR_NO_ROOM: question and answer do not fit into the context any more
 * @LYCHEE_SESSION_ERROR_CACHE: the cache that the session was given is that of another model
 *
 * Why a session cannot read or answer.
 */
typedef enum {
  LYCHEE_SESSION_ERROR_EMPTY,
  LYCHEE_SESSION_ERROR_TEMPLATE,
  LYCHEE_SESSION_ERROR_NO_ROOM,
  LYCHEE_SESSION_ERROR_CACHE,
} LycheeSessionError;

#define LYCHEE_TYPE_SESSION_ERROR (lychee_session_error_get_type ())
LYCHEE_API GType lychee_session_error_get_type (void);
LYCHEE_API GQuark lychee_session_error_quark (void);

#define LYCHEE_TYPE_SESSION (lychee_session_get_type ())
LYCHEE_API
G_DECLARE_FINAL_TYPE (LycheeSession, lychee_session, LYCHEE, SESSION, GObject)

/* A transcript being read, and questions about it.
 *
 * Properties, construct only: "model" (LycheeModel), "cache" (LycheeCache; made for the model if
 * NULL: a decoder gives the indexer's), "template" (LycheeChatFormat, UNKNOWN = the model's own),
 * "system-prompt" (string), "max-context" (guint, tokens, 0 = as trained), "max-memory" (guint64,
 * bytes of cache, 0 = no limit), "reserve" (guint, tokens left for question and answer), "threads"
 * (guint, 0 = all cores), "granularity" (LycheeGranularity), "sinks" and "window" (guint, tokens at
 * the beginning and the end that are always read), "prefill" (LycheeAttentionMode: how the
 * transcript and questions are read), "backend" (LycheeBackendType) and "cuda-device" (guint): what
 * computes, chosen when something is computed first (LYCHEE_BACKEND_ERROR). Properties that may be
 * set at any time, for the answers that follow: "attention" (LycheeAttentionMode), "budget" (guint,
 * tokens to read for each token of the answer), "beam" (double), "rest" (LycheeRest), "audit"
 * (guint).
 *
 * One thread at a time may append. Any number may ask at the same time, meanwhile. */
LYCHEE_API LycheeSession *lychee_session_new (LycheeModel *model);
LYCHEE_API LycheeModel *lychee_session_get_model (LycheeSession *session);
LYCHEE_API LycheeCache *lychee_session_get_cache (LycheeSession *session);

/* What was done so far, as a{sv} (transfer floating: g_variant_ref_sink): "transcript-tokens" (u),
 * "chunks" (u), "backend" (s, for people, "" before anything was computed), "cache-bytes" (t),
 * "index-bytes" (t); and of all answers and chunks:
 * "dense-queries", "dense-fallbacks", "sparse-queries", "rows-visible", "rows-read",
 * "rows-estimated", "nodes-scored", "audits" (t), "missed-mass", "error" (d, means of the audits).
 * A query is one token, layer and KV head. */
LYCHEE_API GVariant *lychee_session_get_stats (LycheeSession *session);

/* Prefills the prompt's beginning (once; append does it when nobody did). Errors: TEMPLATE, those
 * of the cache and model. */
LYCHEE_API gboolean lychee_session_begin (
    LycheeSession *session, GCancellable *cancellable, GError **error);

/* Reads a chunk: its K and V are in the cache when this returns TRUE, and nothing of it otherwise.
 * Keeps "reserve" tokens of the context free for question and answer: LYCHEE_CACHE_ERROR_FULL. */
LYCHEE_API gboolean lychee_session_append (
    LycheeSession *session, LycheeChunk *chunk, GCancellable *cancellable, GError **error);

/**
 * LycheeTextFunc:
 * @text: a new piece of the answer: whole UTF-8 characters, never empty
 * @user_data: what was given with the function
 *
 * Called with each new piece of an answer.
 *
 * Returns: FALSE to stop: the answer is then %LYCHEE_FINISH_CANCELLED
 */
typedef gboolean (*LycheeTextFunc) (const char *text, gpointer user_data);

LYCHEE_API LycheeAnswer *lychee_session_ask (LycheeSession *session, LycheeQuestion *question,
    LycheeTextFunc func, gpointer user_data, GCancellable *cancellable, GError **error);

G_END_DECLS
