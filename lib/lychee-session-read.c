/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What reads the transcript. */
#include "lychee-session-private.h"

#define LEAD "Transcript:\n\n"

/**
 * lychee_session_begin:
 * @cancellable: (nullable): a cancellable
 * @error: return location for an error
 *
 * Computes what stands before the transcript: the system prompt and the beginning of the user's
 * turn. [method@Session.append] does it when it was not done before.
 *
 * Returns: FALSE with an error of %LYCHEE_SESSION_ERROR, %LYCHEE_CACHE_ERROR,
 * %LYCHEE_BACKEND_ERROR, %LYCHEE_MODEL_ERROR, or %G_IO_ERROR_CANCELLED: the session may be begun
 * again
 */
gboolean
lychee_session_begin (LycheeSession *session, GCancellable *cancellable, GError **error)
{
  g_autoptr (GArray) ids = NULL;
  const char *system = session->system_prompt;

  if (session->begun)
    return TRUE;
  if (!lychee_session_check_ready (session, error))
    return FALSE;
  if (!session->reader)
    session->reader = lychee_worker_new (session->backend, error);
  if (!session->reader)
    return FALSE;
  ids = g_array_new (FALSE, FALSE, sizeof (gint32));
  lychee_chat_format_append_prefix (session->template, lychee_model_get_tokenizer (session->model),
      system && *system ? system : NULL, LEAD, ids);
  if (!lychee_session_prefill (session, session->reader, session->cache, (const gint32 *) ids->data,
          ids->len, LYCHEE_OUTPUT_NONE, NULL, cancellable, error)) {
    lychee_cache_truncate (session->cache, 0);
    return FALSE;
  }
  session->begun = TRUE;
  return TRUE;
}

/* Whether a transcript of @length leaves the memory that an answer needs under max-memory: a copy
 * of the open page and room for the reserve, at most half of all. */
static gboolean
leaves_memory (LycheeSession *s, guint64 length, GError **error)
{
  guint64 max = lychee_cache_get_max_bytes (s->cache);
  guint64 page = lychee_cache_get_token_bytes (s->cache) * LYCHEE_CACHE_PAGE_TOKENS;
  guint64 n_pages = (length + LYCHEE_CACHE_PAGE_TOKENS - 1) / LYCHEE_CACHE_PAGE_TOKENS;
  guint64 answer =
      1 + ((guint64) s->reserve + LYCHEE_CACHE_PAGE_TOKENS - 1) / LYCHEE_CACHE_PAGE_TOKENS;

  if (max == 0 || n_pages * page <= max - MIN (answer * page, max / 2))
    return TRUE;
  g_set_error (error, LYCHEE_CACHE_ERROR, LYCHEE_CACHE_ERROR_NO_MEMORY,
      "The KV cache may use %.1f MB and has %.1f; the rest is kept free for question and answer: "
      "raise max-memory or read less",
      max / 1e6, lychee_cache_get_bytes (s->cache) / 1e6);
  return FALSE;
}

/**
 * lychee_session_append:
 * @chunk: the next chunk of the transcript
 * @cancellable: (nullable): a cancellable
 * @error: return location for an error
 *
 * Reads a chunk. Its keys and values are in the cache when this returns.
 *
 * Returns: FALSE with an error of %LYCHEE_CACHE_ERROR (FULL when only the reserve is left),
 *   %LYCHEE_MODEL_ERROR, %LYCHEE_SESSION_ERROR or %G_IO_ERROR_CANCELLED; nothing of the chunk is
 * in the cache then
 */
gboolean
lychee_session_append (
    LycheeSession *session, LycheeChunk *chunk, GCancellable *cancellable, GError **error)
{
  guint before, max;

  if (!lychee_session_begin (session, cancellable, error))
    return FALSE;
  if (chunk->n_ids == 0)
    return TRUE;
  before = lychee_cache_get_length (session->cache);
  max = lychee_cache_get_max_tokens (session->cache);
  /* A reserve larger than half of a small context would leave nothing to read. */
  max -= MIN (session->reserve, max / 2);
  if (before + chunk->n_ids > max) {
    g_set_error (error, LYCHEE_CACHE_ERROR, LYCHEE_CACHE_ERROR_FULL,
        "The context of %u tokens is full: the transcript has %u of them, and the rest is kept "
        "free "
        "for question and answer",
        lychee_cache_get_max_tokens (session->cache), before);
    return FALSE;
  }
  if (!leaves_memory (session, (guint64) before + chunk->n_ids, error))
    return FALSE;
  if (!lychee_session_prefill (session, session->reader, session->cache, chunk->ids, chunk->n_ids,
          LYCHEE_OUTPUT_NONE, NULL, cancellable, error)) {
    lychee_cache_truncate (session->cache, before);
    return FALSE;
  }
  lychee_cache_add_chunk (session->cache, chunk, before);
  lychee_session_collect_stats (session, session->reader);
  return TRUE;
}
