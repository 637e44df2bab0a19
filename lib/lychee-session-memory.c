/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* What a session's cache will be, and whether there is memory for it. */

#include "lychee-memory.h"
#include "lychee-model-private.h"
#include "lychee-session-private.h"

/* Tokens without an end: a hundred hours of talk. Memory is the limit before. */
#define PACKED_CONTEXT (1u << 20)

/* That of the caches that it makes: f16 where q8_0 was asked for and cannot be, which is an error
 * before anything is read. */
static LycheeRowForm
get_form (LycheeSession *s)
{
  if (s->cache_type == LYCHEE_CACHE_TYPE_Q8_0 &&
      lychee_cache_has_form (lychee_model_get_head_dim (s->model), LYCHEE_ROW_Q8_0))
    return LYCHEE_ROW_Q8_0;
  return LYCHEE_ROW_F16;
}

/* Makes the cache. A context that was asked for must fit; that of the model is large with many, and
 * may stay larger than the memory, which is then the limit. */
void
lychee_session_make_cache (LycheeSession *s)
{
  LycheeCacheIndexing indexing = { s->granularity, s->sinks, s->window };
  gboolean whole = s->backend_type == LYCHEE_BACKEND_CUDA;
  gboolean packed = s->positions == LYCHEE_POSITIONS_PACKED ||
                    (s->positions == LYCHEE_POSITIONS_AUTO && s->max_context == 0);
  LycheeRowForm form = get_form (s);
  guint n_context = s->max_context;

  if (n_context == 0)
    n_context = packed ? PACKED_CONTEXT : lychee_model_get_n_context (s->model);
  lychee_memory_estimate (s->model, n_context, whole, form, s->max_memory, &s->need);
  if (s->max_context == 0 && s->max_memory == 0 &&
      lychee_memory_sum (&s->need) > s->memory_available && s->need.weights < s->memory_available) {
    s->max_memory = (s->memory_available - s->need.weights) / 10 * 9;
    lychee_memory_estimate (s->model, n_context, whole, form, s->max_memory, &s->need);
  }
  s->cache = lychee_cache_new (lychee_model_get_n_layers (s->model),
      lychee_model_get_n_kv_heads (s->model), lychee_model_get_head_dim (s->model), n_context,
      s->max_memory);
  lychee_cache_set_rope_context (s->cache, packed ? 0 : n_context);
  lychee_cache_set_packed (s->cache, packed);
  lychee_cache_set_form (s->cache, form);
  lychee_model_describe_indexing (s->model, &indexing);
  lychee_cache_enable_index (s->cache, &indexing);
}

/* The largest context that fits. */
static guint
find_context (LycheeSession *s, guint n_tokens)
{
  guint fits = 0;

  while (fits < n_tokens) {
    guint middle = fits + (n_tokens - fits + 1) / 2;
    LycheeMemoryNeed need;

    lychee_memory_estimate (s->model, middle, FALSE, get_form (s), 0, &need);
    if (lychee_memory_sum (&need) <= s->memory_available)
      fits = middle;
    else
      n_tokens = middle - 1;
  }
  return fits;
}

/* Whether the session fits into the memory of the machine. A session over another's cache adds
 * nothing to it. */
gboolean
lychee_session_check_memory (LycheeSession *s, LycheeCache *cache, GError **error)
{
  guint n_tokens = lychee_cache_get_max_tokens (cache);
  guint64 need = lychee_memory_sum (&s->need), spare;

  if (need <= s->memory_available || lychee_backend_get_kind (s->backend) != LYCHEE_BACKEND_CPU)
    return TRUE;
  if (s->need.weights >= s->memory_available) {
    g_set_error (error, LYCHEE_CACHE_ERROR, LYCHEE_CACHE_ERROR_NO_MEMORY,
        "The model needs %.0f MB, and %.0f MB of memory are available: take a smaller model",
        s->need.weights / 1e6, s->memory_available / 1e6);
    return FALSE;
  }
  spare = s->memory_available - s->need.weights;
  g_set_error (error, LYCHEE_CACHE_ERROR, LYCHEE_CACHE_ERROR_NO_MEMORY,
      "The model needs %.0f MB, the KV cache of %u tokens %.0f MB and its index %.0f MB, and %.0f "
      "MB of memory are available: set max-context to %u or less, or max-memory to %.0f MB or less",
      s->need.weights / 1e6, n_tokens, s->need.cache / 1e6, s->need.index / 1e6,
      s->memory_available / 1e6, find_context (s, n_tokens), spare / 1e6);
  return FALSE;
}
