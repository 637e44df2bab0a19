/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What reads the transcript. */
#include "lychee-chunk-private.h"
#include "lychee-model-private.h"
#include "lychee-session-private.h"

#define LEAD "Transcript:\n\n"
/* What is forgotten at a time: an eighth of what there is room for. Each time the indexes of all
 * that stays are gone through. */
#define FORGET_PART 8

/* Computes the prompt's beginning. With reading held. */
static gboolean
begin (LycheeSession *s, GCancellable *cancellable, GError **error)
{
  const char *system = s->system_prompt;
  g_autoptr (GArray) ids = NULL;

  if (s->begun && s->reader)
    return TRUE;
  if (!lychee_session_check_ready (s, error))
    return FALSE;
  if (!s->reader)
    s->reader = lychee_worker_new (s->backend, error);
  if (!s->reader)
    return FALSE;
  if (s->begun) /* another session did it */
    return TRUE;
  /* A device's copy of the cache has all layers. */
  if (lychee_backend_get_kind (s->backend) == LYCHEE_BACKEND_CPU &&
      lychee_cache_get_length (s->cache) == 0)
    lychee_model_limit_layers (s->model, s->cache);
  ids = g_array_new (FALSE, FALSE, sizeof (gint32));
  lychee_chat_format_append_prefix (s->template, lychee_model_get_tokenizer (s->model),
      system && *system ? system : NULL, LEAD, ids);
  if (!lychee_session_prefill (s, s->reader, s->cache, (const gint32 *) ids->data, ids->len,
          LYCHEE_OUTPUT_NONE, NULL, cancellable, error)) {
    lychee_cache_truncate (s->cache, 0);
    return FALSE;
  }
  lychee_cache_set_start (s->cache, (const gint32 *) ids->data, ids->len);
  s->begun = TRUE;
  return TRUE;
}

/**
 * lychee_session_begin:
 * @session: a session
 * @cancellable: (nullable): a cancellable
 * @error: return location for an error
 *
 * Computes what stands before the transcript: the system prompt and the beginning of the user's
 * turn. [method@Session.append] does it when it was not done before.
 *
 * May be called in any thread; calls of it and of what reads the transcript take turns.
 *
 * Returns: FALSE with %LYCHEE_SESSION_ERROR_TEMPLATE (the model's chat template is not
 *   known), %LYCHEE_CACHE_ERROR_NO_MEMORY (max-memory, or the machine's), any code of
 *   %LYCHEE_BACKEND_ERROR, %LYCHEE_MODEL_ERROR_COMPUTE,
 *   %LYCHEE_CACHE_ERROR_FULL (the context is shorter than that), or %G_IO_ERROR_CANCELLED: the
 *   session may be begun again
 */
gboolean
lychee_session_begin (LycheeSession *session, GCancellable *cancellable, GError **error)
{
  gboolean ok;

  g_return_val_if_fail (LYCHEE_IS_SESSION (session), FALSE);

  g_mutex_lock (&session->reading);
  ok = begin (session, cancellable, error);
  g_mutex_unlock (&session->reading);
  return ok;
}

/* Tokens that prompt and transcript may have together: a reserve larger than half of a small
 * context would leave nothing to read. */
static guint
get_room (LycheeSession *s)
{
  guint max = lychee_cache_get_max_tokens (s->cache);

  return max - MIN (s->reserve, max / 2);
}

/* Whether @n tokens more leave the context that an answer needs. */
static gboolean
leaves_context (LycheeSession *s, guint n, GError **error)
{
  guint held = lychee_cache_get_n_held (s->cache);

  if (n <= get_room (s) - MIN (held, get_room (s)))
    return TRUE;
  g_set_error (error, LYCHEE_CACHE_ERROR, LYCHEE_CACHE_ERROR_FULL,
      "The context of %u tokens is full: the transcript has %u of them, and the rest is kept free "
      "for question and answer",
      lychee_cache_get_max_tokens (s->cache), held);
  return FALSE;
}

/* Whether @n tokens more leave the memory that an answer needs under max-memory: a copy of the open
 * page and room for the reserve, at most half of all. */
static gboolean
leaves_memory (LycheeSession *s, guint n, GError **error)
{
  guint64 max = lychee_cache_get_max_bytes (s->cache);
  guint64 page =
      lychee_cache_page_memory (lychee_cache_get_token_bytes (s->cache) * LYCHEE_CACHE_PAGE_TOKENS);
  guint64 answer =
      1 + ((guint64) s->reserve + LYCHEE_CACHE_PAGE_TOKENS - 1) / LYCHEE_CACHE_PAGE_TOKENS;

  if (max == 0 || lychee_cache_get_bytes_with (s->cache, n) <= max - MIN (answer * page, max / 2))
    return TRUE;
  g_set_error (error, LYCHEE_CACHE_ERROR, LYCHEE_CACHE_ERROR_NO_MEMORY,
      "The KV cache may use %.1f MB and has %.1f; the rest is kept free for question and answer: "
      "raise max-memory or read less",
      max / 1e6, lychee_cache_get_bytes_with (s->cache, 0) / 1e6);
  return FALSE;
}

gboolean
lychee_session_forget (LycheeSession *s, LycheeWorker *worker, LycheeCache *cache, guint end,
    GCancellable *cancellable, GError **error)
{
  guint n;
  const gint32 *ids = lychee_cache_get_start (cache, &n);
  g_autoptr (LycheeCache) start = lychee_cache_new_like (cache, MAX (n, 1));

  lychee_cache_set_origin (start, end - n);
  return (n == 0 || lychee_session_prefill (
                        s, worker, start, ids, n, LYCHEE_OUTPUT_NONE, NULL, cancellable, error)) &&
         lychee_cache_forget (cache, start, end, error);
}

/* Forgets the oldest chunks: @n tokens or more. */
static gboolean
forget_oldest (LycheeSession *s, guint n, GCancellable *cancellable, GError **error)
{
  guint first = 0, end = 0, length = lychee_cache_get_length (s->cache);
  LycheeChunk *chunk;

  for (guint i = 0; (chunk = lychee_cache_get_chunk (s->cache, i, &end)); i++) {
    if (i == 0)
      first = end;
    end += chunk->n_ids;
    lychee_chunk_unref (chunk);
    if (end - first >= n)
      break;
  }
  /* What is behind the last chunk is of a pass that was cancelled, or nothing. */
  end = MIN (end, length);
  if (end == first)
    return FALSE;
  if (!lychee_session_forget (s, s->reader, s->cache, end, cancellable, error))
    return FALSE;
  lychee_cache_count_lost (s->cache, 0, end - first);
  return TRUE;
}

/* Makes room for @n tokens as "overflow" says. */
static gboolean
make_room (LycheeSession *s, guint n, GCancellable *cancellable, GError **error)
{
  g_autoptr (GError) full = NULL;

  while (!leaves_context (s, n, &full) || !leaves_memory (s, n, &full)) {
    guint held = lychee_cache_get_n_held (s->cache);
    g_autoptr (GError) failed = NULL;

    if (s->overflow != LYCHEE_OVERFLOW_FORGET_OLDEST ||
        (!forget_oldest (s, MAX (n, held / FORGET_PART), cancellable, &failed) && !failed)) {
      g_propagate_error (error, g_steal_pointer (&full));
      return FALSE;
    }
    if (failed) {
      g_propagate_error (error, g_steal_pointer (&failed));
      return FALSE;
    }
    g_clear_error (&full);
  }
  return TRUE;
}

gboolean
lychee_session_read_chunk (
    LycheeSession *s, LycheeChunk *chunk, GCancellable *cancellable, GError **error)
{
  g_autoptr (GError) full = NULL;
  guint before;

  if (!begin (s, cancellable, error))
    return FALSE;
  if (chunk->n_ids == 0)
    return TRUE;
  if (!make_room (s, chunk->n_ids, cancellable, &full)) {
    if (s->overflow == LYCHEE_OVERFLOW_STOP_READING && full->domain == LYCHEE_CACHE_ERROR) {
      lychee_cache_count_lost (s->cache, chunk->n_ids, 0);
      return TRUE;
    }
    g_propagate_error (error, g_steal_pointer (&full));
    return FALSE;
  }
  before = lychee_cache_get_length (s->cache);
  if (!lychee_session_prefill (s, s->reader, s->cache, chunk->ids, chunk->n_ids, LYCHEE_OUTPUT_NONE,
          NULL, cancellable, error)) {
    lychee_session_cut (s, s->reader, s->cache, before, NULL, NULL);
    return FALSE;
  }
  lychee_cache_add_chunk (s->cache, chunk, before);
  lychee_session_collect_stats (s, s->reader);
  return TRUE;
}

/**
 * lychee_session_append:
 * @session: a session
 * @chunk: the next chunk of the transcript
 * @cancellable: (nullable): a cancellable
 * @error: return location for an error
 *
 * Reads a chunk. Its keys and values are in the cache when this returns. Where there is no room for
 * it, "overflow" says what happens.
 *
 * May be called in any thread; calls of it and of what reads the transcript take turns.
 *
 * Returns: FALSE with an error as from [method@Session.begin], or %LYCHEE_CACHE_ERROR_FULL when
 *   only the reserve is left; nothing of the chunk was read then
 */
gboolean
lychee_session_append (
    LycheeSession *session, LycheeChunk *chunk, GCancellable *cancellable, GError **error)
{
  gboolean ok;

  g_return_val_if_fail (LYCHEE_IS_SESSION (session), FALSE);
  g_return_val_if_fail (chunk != NULL, FALSE);

  g_mutex_lock (&session->reading);
  ok = lychee_session_read_chunk (session, chunk, cancellable, error);
  g_mutex_unlock (&session->reading);
  return ok;
}

/* With reading held. */
static gboolean
cut (LycheeSession *s, guint length, GError **error)
{
  if (lychee_cache_has_window (s->cache, length)) {
    lychee_cache_truncate (s->cache, length);
    return TRUE;
  }
  if (!begin (s, NULL, error)) {
    lychee_cache_truncate (s->cache, 0);
    return FALSE;
  }
  return lychee_session_cut (s, s->reader, s->cache, length, NULL, error);
}

/**
 * lychee_session_truncate:
 * @session: a session
 * @time: in nanoseconds of stream time
 *
 * Forgets what was said at @time and later, as after a seek back: the chunks that begin then, what
 * of a chunk is of a text that begins then, and text that is held back. Answers under way are not
 * affected. Waits for what is being read in another thread. With models whose layers see a sliding
 * window, a cut that is further back than the window is kept takes the time of reading the last two
 * windows again.
 *
 * Returns: when what is left of the transcript ends, in nanoseconds of stream time;
 *   %LYCHEE_TIME_NONE where nothing with a time is left
 */
guint64
lychee_session_truncate (LycheeSession *session, guint64 time)
{
  g_return_val_if_fail (LYCHEE_IS_SESSION (session), LYCHEE_TIME_NONE);

  return lychee_session_truncate_from (session, 0, time);
}

guint64
lychee_session_truncate_from (LycheeSession *session, guint first, guint64 time)
{
  guint position, length;
  guint64 end = LYCHEE_TIME_NONE;
  g_autoptr (GError) error = NULL;
  g_autoptr (LycheeChunk) beginning = NULL; /* of one that lies over the time */
  LycheeChunk *chunk;

  g_mutex_lock (&session->reading);
  lychee_session_text_forget (session);
  length = lychee_cache_get_length (session->cache);
  for (guint i = first; (chunk = lychee_cache_get_chunk (session->cache, i, &position)); i++) {
    gboolean later = chunk->pts != LYCHEE_TIME_NONE && chunk->pts >= time;

    beginning = lychee_chunk_new_beginning (chunk, time);
    lychee_chunk_unref (chunk);
    if (later || beginning) {
      length = position;
      break;
    }
  }
  if (!cut (session, length, &error) ||
      (beginning && !lychee_session_read_chunk (session, beginning, NULL, &error)))
    g_warning ("The transcript was cut further back than asked: %s", error->message);
  for (guint i = first; (chunk = lychee_cache_get_chunk (session->cache, i, NULL)); i++) {
    guint64 until = lychee_chunk_get_end (chunk);

    if (until != LYCHEE_TIME_NONE)
      end = end == LYCHEE_TIME_NONE ? until : MAX (end, until);
    lychee_chunk_unref (chunk);
  }
  g_mutex_unlock (&session->reading);
  return end;
}

/**
 * lychee_session_get_chunks:
 * @session: a session
 *
 * Gets what was read of the transcript and is not forgotten, as it was cut: the chunks that
 * evidence cites. The position of a chunk, as [struct@Evidence] has it, is the sum of the tokens of
 * those before it. Text that [method@Session.append_text] holds back is not in it.
 *
 * May be called in any thread.
 *
 * Returns: (transfer container) (element-type LycheeChunk): the chunks, oldest first; the array has
 *   references of its own to them
 */
GPtrArray *
lychee_session_get_chunks (LycheeSession *session)
{
  GPtrArray *chunks = g_ptr_array_new_with_free_func ((GDestroyNotify) lychee_chunk_unref);
  g_autoptr (LycheeCache) cache = NULL;
  LycheeChunk *chunk;

  g_return_val_if_fail (LYCHEE_IS_SESSION (session), chunks);

  cache = lychee_session_ref_cache (session, NULL);
  for (guint i = 0; (chunk = lychee_cache_get_chunk (cache, i, NULL)); i++)
    g_ptr_array_add (chunks, chunk);
  return chunks;
}
