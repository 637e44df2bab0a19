/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "lychee-backend.h"
#include "lychee-cache-private.h"
#include "lychee-chat-template.h"
#include "lychee-memory.h"
#include "lychee-model-tokenizer.h"
#include "lychee-session-cache.h"

G_BEGIN_DECLS

typedef struct _LycheeSessionText LycheeSessionText;

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
  LycheeOverflow overflow;
  LycheePositions positions;
  LycheeCacheType cache_type; /* that was asked for */
  LycheeMemoryNeed need;      /* with a context that is full */
  guint64 memory_available;   /* when the session was made */
  LycheeBackendType backend_type;
  guint cuda_device;

  GMutex reading;       /* held by whoever appends to the cache, or cuts it */
  LycheeWorker *reader; /* with it */
  LycheeSessionText *text;
  gboolean begun;

  GMutex lock;            /* taken last; also of cache and template */
  GThreadPool *queue;     /* of GTask: text that is given asynchronously, one after the other */
  LycheeBackend *backend; /* NULL until something is computed */
  GQueue idle;            /* of LycheeWorker: those of earlier answers, for the next */
  LycheeAttentionOptions attention;
  LycheeAttentionStats stats;
  gint64 buffer_bytes; /* of all workers */
};

/* The cache, which loading replaces; and (out) (optional) the template that it was read with.
 * (transfer full) */
LycheeCache *lychee_session_ref_cache (LycheeSession *session, LycheeChatFormat *template);
/* Makes the cache that the settings ask for. */
void lychee_session_make_cache (LycheeSession *session);
/* Whether there is memory for it, on the processor. */
gboolean lychee_session_check_memory (LycheeSession *session, LycheeCache *cache, GError **error);
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
/* Forgets what @cache has of the transcript before token @end, with the prompt's beginning moved to
 * right before it. */
gboolean lychee_session_forget (LycheeSession *session, LycheeWorker *worker, LycheeCache *cache,
    guint end, GCancellable *cancellable, GError **error);
/* Cuts @cache at @length, which is 0 or where a chunk begins or ends. What local layers need and do
 * not hold any more is read again from the chunks' text; on an error less is left than @length. */
gboolean lychee_session_cut (LycheeSession *session, LycheeWorker *worker, LycheeCache *cache,
    guint length, GCancellable *cancellable, GError **error);
/* With reading held: reads a chunk. */
gboolean lychee_session_read_chunk (
    LycheeSession *session, LycheeChunk *chunk, GCancellable *cancellable, GError **error);

/* The answer so far, on its way to the caller. */
typedef void (*LycheeProgressFunc) (LycheeAnswer *so_far, gpointer user_data);
/* lychee_session_ask() as @asked says. @progress is called with what is to be told to those who
 * watch @watched, when there are some. */
LycheeAnswer *lychee_session_answer (LycheeSession *session, LycheeQuestion *asked,
    LycheeTextFunc func, LycheeQuestion *watched, LycheeProgressFunc progress, gpointer user_data,
    GCancellable *cancellable, GError **error);

/* Text on its way to chunks. With reading held. */
void lychee_session_text_free (LycheeSessionText *text);
void lychee_session_text_forget (LycheeSession *session);

/* Tokens of a transcript: those behind the prompt's beginning. */
guint lychee_session_count_transcript (LycheeCache *cache);

G_END_DECLS
