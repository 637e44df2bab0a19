/* SPDX-License-Identifier: LGPL-2.1-or-later */

/**
 * LycheeSession:
 *
 * A transcript that is being read, and questions about it.
 *
 * The transcript goes in as text, as it comes ([method@Session.append_text]); each word is computed
 * once, and its keys and values stay in the session's cache. A question ([method@Session.ask]) is
 * answered over a snapshot of that, while the transcript may go on being read in another thread,
 * and other questions be answered in others.
 *
 * |[<!-- language="C" -->
 * g_autoptr (LycheeModel) model = lychee_model_new_from_file (path, &error);
 * g_autoptr (LycheeSession) session = lychee_session_new (model);
 * g_autoptr (LycheeQuestion) question = lychee_question_new ("What was decided?");
 * g_autoptr (LycheeAnswer) answer = NULL;
 *
 * if (lychee_session_append_text (session, text, NULL, LYCHEE_TIME_NONE, LYCHEE_TIME_NONE, NULL,
 *         &error) &&
 *     lychee_session_flush (session, NULL, &error))
 *   answer = lychee_session_ask (session, question, NULL, NULL, NULL, &error);
 * if (answer)
 *   g_print ("%s\n", lychee_answer_get_text (answer));
 * ]|
 *
 * What computes (properties "backend" and "cuda-device") is chosen when something is computed
 * first, which can fail with %LYCHEE_BACKEND_ERROR.
 *
 * All methods may be called in any thread. Those that read the transcript or cut it take turns; any
 * number of questions are answered meanwhile, word by word in turn with each other and with the
 * reading.
 */

#include "lychee-session-private.h"

#include "lychee-model-private.h"

#include <string.h>

/* It must not speak of transcripts: a small model then speaks of itself. */
#define DEFAULT_SYSTEM_PROMPT "You are a helpful assistant."
#define DEFAULT_RESERVE 1024

/* The formatter would take the name for an expression. */
/* clang-format off */
/**
 * lychee_session_error_quark:
 *
 * The domain of errors of the kind LycheeSessionError.
 *
 * Returns: a quark
 */
G_DEFINE_QUARK (lychee-session-error-quark, lychee_session_error)
/* clang-format on */

G_DEFINE_ENUM_TYPE (LycheeSessionError, lychee_session_error,
    { LYCHEE_SESSION_ERROR_EMPTY, "There is nothing to answer from", "empty" },
    { LYCHEE_SESSION_ERROR_TEMPLATE, "The model's chat template is not known", "template" },
    { LYCHEE_SESSION_ERROR_NO_ROOM, "The question does not fit", "no-room" },
    { LYCHEE_SESSION_ERROR_CACHE, "Keys and values are of another model", "cache" },
    { LYCHEE_SESSION_ERROR_WRITE, "The file cannot be written", "write" },
    { LYCHEE_SESSION_ERROR_READ, "The file cannot be read", "read" },
    { LYCHEE_SESSION_ERROR_DAMAGED, "The file is damaged", "damaged" },
    { LYCHEE_SESSION_ERROR_VERSION, "The file is of another version", "version" },
    { LYCHEE_SESSION_ERROR_MODEL, "The file is of another model", "model" })

enum {
  PROP_0,
  PROP_MODEL,
  PROP_TEMPLATE,
  PROP_SYSTEM_PROMPT,
  PROP_MAX_CONTEXT,
  PROP_MAX_MEMORY,
  PROP_RESERVE,
  PROP_THREADS,
  PROP_GRANULARITY,
  PROP_SINKS,
  PROP_WINDOW,
  PROP_PREFILL,
  PROP_OVERFLOW,
  PROP_POSITIONS,
  PROP_CACHE_TYPE,
  PROP_BACKEND,
  PROP_CUDA_DEVICE,
  PROP_ATTENTION,
  PROP_BUDGET,
  PROP_BEAM,
  PROP_REST,
  PROP_AUDIT,
  N_PROPS
};

static GParamSpec *props[N_PROPS];

G_DEFINE_FINAL_TYPE (LycheeSession, lychee_session, G_TYPE_OBJECT)

static void
lychee_session_init (LycheeSession *session)
{
  g_mutex_init (&session->lock);
  g_mutex_init (&session->reading);
  g_queue_init (&session->idle);
}

static void
lychee_session_constructed (GObject *object)
{
  LycheeSession *s = LYCHEE_SESSION (object);

  G_OBJECT_CLASS (lychee_session_parent_class)->constructed (object);
  g_return_if_fail (s->model != NULL);

  if (s->template == LYCHEE_CHAT_FORMAT_AUTO)
    s->template = lychee_chat_format_detect (lychee_model_get_chat_template (s->model));
  s->memory_available = lychee_memory_get_available ("");
  lychee_session_make_cache (s);
}

static void
lychee_session_finalize (GObject *object)
{
  LycheeSession *s = LYCHEE_SESSION (object);

  /* Nothing is in it, for all that were held the session; but this may be its thread. */
  if (s->queue)
    g_thread_pool_free (s->queue, FALSE, FALSE);
  g_queue_clear_full (&s->idle, (GDestroyNotify) lychee_worker_free);
  g_clear_pointer (&s->reader, lychee_worker_free);
  g_clear_pointer (&s->text, lychee_session_text_free);
  g_clear_pointer (&s->backend, lychee_backend_unref);
  g_clear_object (&s->cache);
  g_clear_object (&s->model);
  g_free (s->system_prompt);
  g_mutex_clear (&s->lock);
  g_mutex_clear (&s->reading);
  G_OBJECT_CLASS (lychee_session_parent_class)->finalize (object);
}

static void
set_attention (LycheeAttentionOptions *options, guint id, const GValue *value)
{
  if (id == PROP_ATTENTION)
    options->sparse = g_value_get_enum (value) == LYCHEE_ATTENTION_SPARSE;
  else if (id == PROP_BUDGET)
    options->budget = g_value_get_uint (value);
  else if (id == PROP_BEAM)
    options->beam = g_value_get_double (value);
  else if (id == PROP_REST)
    options->rest = g_value_get_enum (value) == LYCHEE_REST_ESTIMATE;
  else
    options->audit = g_value_get_uint (value);
}

static void
get_attention (const LycheeAttentionOptions *options, guint id, GValue *value)
{
  if (id == PROP_ATTENTION)
    g_value_set_enum (value, options->sparse ? LYCHEE_ATTENTION_SPARSE : LYCHEE_ATTENTION_DENSE);
  else if (id == PROP_BUDGET)
    g_value_set_uint (value, options->budget);
  else if (id == PROP_BEAM)
    g_value_set_double (value, options->beam);
  else if (id == PROP_REST)
    g_value_set_enum (value, options->rest ? LYCHEE_REST_ESTIMATE : LYCHEE_REST_DROP);
  else
    g_value_set_uint (value, options->audit);
}

static void
lychee_session_set_property (GObject *object, guint id, const GValue *value, GParamSpec *pspec)
{
  LycheeSession *s = LYCHEE_SESSION (object);

  switch (id) {
  case PROP_MODEL:
    s->model = g_value_dup_object (value);
    break;
  case PROP_TEMPLATE:
    s->template = g_value_get_enum (value);
    break;
  case PROP_SYSTEM_PROMPT:
    s->system_prompt = g_value_dup_string (value);
    break;
  case PROP_MAX_CONTEXT:
    s->max_context = g_value_get_uint (value);
    break;
  case PROP_MAX_MEMORY:
    s->max_memory = g_value_get_uint64 (value);
    break;
  case PROP_RESERVE:
    s->reserve = g_value_get_uint (value);
    break;
  case PROP_THREADS:
    s->threads = g_value_get_uint (value);
    break;
  case PROP_GRANULARITY:
    s->granularity = g_value_get_enum (value);
    break;
  case PROP_SINKS:
    s->sinks = g_value_get_uint (value);
    break;
  case PROP_WINDOW:
    s->window = g_value_get_uint (value);
    break;
  case PROP_PREFILL:
    s->prefill = g_value_get_enum (value);
    break;
  case PROP_OVERFLOW:
    s->overflow = g_value_get_enum (value);
    break;
  case PROP_POSITIONS:
    s->positions = g_value_get_enum (value);
    break;
  case PROP_CACHE_TYPE:
    s->cache_type = g_value_get_enum (value);
    break;
  case PROP_BACKEND:
    s->backend_type = g_value_get_enum (value);
    break;
  case PROP_CUDA_DEVICE:
    s->cuda_device = g_value_get_uint (value);
    break;
  case PROP_ATTENTION:
  case PROP_BUDGET:
  case PROP_BEAM:
  case PROP_REST:
  case PROP_AUDIT:
    g_mutex_lock (&s->lock);
    set_attention (&s->attention, id, value);
    g_mutex_unlock (&s->lock);
    break;
  default:
    G_OBJECT_WARN_INVALID_PROPERTY_ID (object, id, pspec);
  }
}

static void
lychee_session_get_property (GObject *object, guint id, GValue *value, GParamSpec *pspec)
{
  LycheeSession *s = LYCHEE_SESSION (object);

  g_mutex_lock (&s->lock); /* loading in another thread replaces some */
  switch (id) {
  case PROP_MODEL:
    g_value_set_object (value, s->model);
    break;
  case PROP_TEMPLATE:
    g_value_set_enum (value, s->template);
    break;
  case PROP_SYSTEM_PROMPT:
    g_value_set_string (value, s->system_prompt);
    break;
  case PROP_MAX_CONTEXT:
    g_value_set_uint (value, lychee_cache_get_max_tokens (s->cache));
    break;
  case PROP_MAX_MEMORY:
    g_value_set_uint64 (value, lychee_cache_get_max_bytes (s->cache));
    break;
  case PROP_RESERVE:
    g_value_set_uint (value, s->reserve);
    break;
  case PROP_THREADS:
    g_value_set_uint (value, s->threads);
    break;
  case PROP_GRANULARITY:
    g_value_set_enum (value, s->granularity);
    break;
  case PROP_SINKS:
    g_value_set_uint (value, s->sinks);
    break;
  case PROP_WINDOW:
    g_value_set_uint (value, s->window);
    break;
  case PROP_PREFILL:
    g_value_set_enum (value, s->prefill);
    break;
  case PROP_OVERFLOW:
    g_value_set_enum (value, s->overflow);
    break;
  case PROP_POSITIONS:
    g_value_set_enum (value,
        lychee_cache_get_packed (s->cache) ? LYCHEE_POSITIONS_PACKED : LYCHEE_POSITIONS_ABSOLUTE);
    break;
  case PROP_CACHE_TYPE:
    g_value_set_enum (value, lychee_cache_get_form (s->cache) == LYCHEE_ROW_Q8_0
                                 ? LYCHEE_CACHE_TYPE_Q8_0
                                 : LYCHEE_CACHE_TYPE_F16);
    break;
  case PROP_BACKEND:
    g_value_set_enum (value, s->backend_type);
    break;
  case PROP_CUDA_DEVICE:
    g_value_set_uint (value, s->cuda_device);
    break;
  case PROP_ATTENTION:
  case PROP_BUDGET:
  case PROP_BEAM:
  case PROP_REST:
  case PROP_AUDIT:
    get_attention (&s->attention, id, value);
    break;
  default:
    G_OBJECT_WARN_INVALID_PROPERTY_ID (object, id, pspec);
  }
  g_mutex_unlock (&s->lock);
}

static void
lychee_session_class_init (LycheeSessionClass *klass)
{
  GObjectClass *object = G_OBJECT_CLASS (klass);
  GParamFlags flags = G_PARAM_READWRITE | G_PARAM_CONSTRUCT_ONLY | G_PARAM_STATIC_STRINGS;
  GParamFlags any_time = G_PARAM_READWRITE | G_PARAM_CONSTRUCT | G_PARAM_STATIC_STRINGS;

  object->constructed = lychee_session_constructed;
  object->finalize = lychee_session_finalize;
  object->set_property = lychee_session_set_property;
  object->get_property = lychee_session_get_property;

  /**
   * LycheeSession:model:
   *
   * The language model.
   */
  props[PROP_MODEL] =
      g_param_spec_object ("model", "Model", "The language model", LYCHEE_TYPE_MODEL, flags);
  /**
   * LycheeSession:template:
   *
   * Chat template; auto: the one in the model file.
   */
  props[PROP_TEMPLATE] =
      g_param_spec_enum ("template", "Template", "Chat template; auto: the one in the model file",
          LYCHEE_TYPE_CHAT_FORMAT, LYCHEE_CHAT_FORMAT_AUTO, flags);
  /**
   * LycheeSession:system-prompt:
   *
   * What the model is told before the transcript; empty: nothing.
   */
  props[PROP_SYSTEM_PROMPT] = g_param_spec_string ("system-prompt", "System prompt",
      "What the model is told before the transcript; empty: nothing", DEFAULT_SYSTEM_PROMPT, flags);
  /**
   * LycheeSession:max-context:
   *
   * Tokens of prompt, transcript and answer together; 0: what memory has room for, or with absolute
   * "positions" as many as the model was trained for. For more than these YaRN stretches absolute
   * positions.
   */
  props[PROP_MAX_CONTEXT] = g_param_spec_uint ("max-context", "Maximum context",
      "Tokens of prompt, transcript and answer together; 0: what memory has room for, or with "
      "absolute positions as many as the model was trained for; for more, YaRN stretches these",
      0, 1u << 24, 0, flags);
  /**
   * LycheeSession:max-memory:
   *
   * Bytes of keys, values and index, with those of all answers under way; 0: no limit.
   */
  props[PROP_MAX_MEMORY] = g_param_spec_uint64 ("max-memory", "Maximum memory",
      "Bytes of keys, values and index, with those of all answers under way; 0: no limit", 0,
      G_MAXUINT64, 0, flags);
  /**
   * LycheeSession:reserve:
   *
   * Tokens of the context that the transcript leaves free for a question and its answer.
   */
  props[PROP_RESERVE] = g_param_spec_uint ("reserve", "Reserve",
      "Tokens of the context that the transcript leaves free for a question and its answer", 0,
      1u << 24, DEFAULT_RESERVE, flags);
  /**
   * LycheeSession:threads:
   *
   * Threads that compute; 0: as many as LYCHEE_THREADS says, or one for each processor core.
   */
  props[PROP_THREADS] = g_param_spec_uint ("threads", "Threads",
      "Threads that compute; 0: as many as LYCHEE_THREADS says, or one for each processor core", 0,
      512, 0, flags);
  /**
   * LycheeSession:granularity:
   *
   * What the index finds: tokens, or chunks as LycheeCluster was published.
   */
  props[PROP_GRANULARITY] = g_param_spec_enum ("granularity", "Granularity",
      "What the index finds: tokens, or chunks as LycheeCluster was published",
      LYCHEE_TYPE_GRANULARITY, LYCHEE_GRANULARITY_TOKEN, flags);
  /**
   * LycheeSession:sinks:
   *
   * Tokens at the beginning that sparse attention always reads.
   */
  props[PROP_SINKS] = g_param_spec_uint ("sinks", "Sinks",
      "Tokens at the beginning that sparse attention always reads", 0, 65536, LYCHEE_DEFAULT_SINKS,
      flags);
  /**
   * LycheeSession:window:
   *
   * Tokens at the end that sparse attention always reads.
   */
  props[PROP_WINDOW] =
      g_param_spec_uint ("window", "Window", "Tokens at the end that sparse attention always reads",
          0, 65536, LYCHEE_DEFAULT_WINDOW, flags);
  /**
   * LycheeSession:prefill:
   *
   * How transcript and questions are read: dense, or sparse at a flat cost.
   */
  props[PROP_PREFILL] = g_param_spec_enum ("prefill", "Prefill",
      "How transcript and questions are read: dense, or sparse at a flat cost",
      LYCHEE_TYPE_ATTENTION_MODE, LYCHEE_ATTENTION_DENSE, flags);
  /**
   * LycheeSession:overflow:
   *
   * What happens when context or memory is used up.
   */
  props[PROP_OVERFLOW] =
      g_param_spec_enum ("overflow", "Overflow", "What happens when context or memory is used up",
          LYCHEE_TYPE_OVERFLOW, LYCHEE_OVERFLOW_ERROR, flags);
  /**
   * LycheeSession:positions:
   *
   * Absolute, or packed: for transcripts of any length, whatever the model was trained for. "auto"
   * is packed where "max-context" is not given; once the session is made the property says which
   * it is. With packed positions, max-context 0 is a million tokens, and memory is the limit.
   */
  props[PROP_POSITIONS] = g_param_spec_enum ("positions", "Positions",
      "Absolute, or packed: for transcripts of any length, whatever the model was trained for",
      LYCHEE_TYPE_POSITIONS, LYCHEE_POSITIONS_AUTO, flags);
  /**
   * LycheeSession:cache-type:
   *
   * How keys and values are kept: q8_0 takes 53 % of the memory of f16, and of a saved file.
   */
  props[PROP_CACHE_TYPE] = g_param_spec_enum ("cache-type", "Cache type",
      "How keys and values are kept: q8_0 takes half the memory of f16", LYCHEE_TYPE_CACHE_TYPE,
      LYCHEE_CACHE_TYPE_F16, flags);
  /**
   * LycheeSession:backend:
   *
   * What computes; auto: a CUDA device where there is a usable one.
   */
  props[PROP_BACKEND] = g_param_spec_enum ("backend", "Backend",
      "What computes; auto: a CUDA device where there is a usable one", LYCHEE_TYPE_BACKEND_TYPE,
      LYCHEE_BACKEND_AUTO, flags);
  /**
   * LycheeSession:cuda-device:
   *
   * Number of the CUDA device, as nvidia-smi counts them.
   */
  props[PROP_CUDA_DEVICE] = g_param_spec_uint ("cuda-device", "CUDA device",
      "Number of the CUDA device, as nvidia-smi counts them", 0, 255, 0, flags);
  /**
   * LycheeSession:attention:
   *
   * How each token of an answer reads the transcript: sparse at a flat cost, or dense.
   */
  props[PROP_ATTENTION] = g_param_spec_enum ("attention", "Attention",
      "How each token of an answer reads the transcript: sparse at a flat cost, or dense",
      LYCHEE_TYPE_ATTENTION_MODE, LYCHEE_ATTENTION_SPARSE, any_time);
  /**
   * LycheeSession:budget:
   *
   * Tokens that sparse attention reads, sinks and window included; up to this length it is dense.
   */
  props[PROP_BUDGET] = g_param_spec_uint ("budget", "Budget",
      "Tokens that sparse attention reads, sinks and window included; up to this length it is "
      "dense",
      1, 1u << 24, LYCHEE_DEFAULT_BUDGET, any_time);
  /**
   * LycheeSession:beam:
   *
   * Coarse nodes of the index are opened until they hold beam times the budget; 0: the default.
   */
  props[PROP_BEAM] = g_param_spec_double ("beam", "Beam",
      "Coarse nodes of the index are opened until they hold beam times the budget; 0: the "
      "default",
      0, 1000, 0, any_time);
  /**
   * LycheeSession:rest:
   *
   * What becomes of the tokens that sparse attention does not read.
   */
  props[PROP_REST] = g_param_spec_enum ("rest", "Rest",
      "What becomes of the tokens that sparse attention does not read", LYCHEE_TYPE_REST,
      LYCHEE_REST_ESTIMATE, any_time);
  /**
   * LycheeSession:audit:
   *
   * Every so many tokens of an answer one layer is answered densely too, to record in the
   * statistics what sparse attention missed; 0: never.
   */
  props[PROP_AUDIT] = g_param_spec_uint ("audit", "Audit",
      "Every so many tokens of an answer one layer is answered densely too, to record in the "
      "statistics what sparse attention missed; 0: never",
      0, G_MAXUINT, 0, any_time);
  g_object_class_install_properties (object, N_PROPS, props);
}

/**
 * lychee_session_new:
 * @model: a model
 *
 * Makes a session with default settings.
 *
 * Returns: (transfer full): a session
 */
LycheeSession *
lychee_session_new (LycheeModel *model)
{
  return g_object_new (LYCHEE_TYPE_SESSION, "model", model, NULL);
}

/**
 * lychee_session_get_model:
 * @session: a session
 *
 * Gets the model. May be called in any thread.
 *
 * Returns: (transfer none): the model
 */
LycheeModel *
lychee_session_get_model (LycheeSession *session)
{
  return session->model;
}

LycheeCache *
lychee_session_get_cache (LycheeSession *session)
{
  return session->cache;
}

void
lychee_session_set_cache (LycheeSession *session, LycheeCache *cache)
{
  g_return_if_fail (LYCHEE_IS_SESSION (session));
  g_return_if_fail (cache != NULL && !session->begun && !session->reader);

  g_set_object (&session->cache, cache);
  session->need = (LycheeMemoryNeed){ 0 };
}

LycheeCache *
lychee_session_ref_cache (LycheeSession *session, LycheeChatFormat *template)
{
  LycheeCache *cache;

  g_mutex_lock (&session->lock);
  cache = g_object_ref (session->cache);
  if (template)
    *template = session->template;
  g_mutex_unlock (&session->lock);
  return cache;
}

/**
 * lychee_session_fork:
 * @session: a session
 * @error: return location for an error
 *
 * Makes a session that has read what this one has, and goes its own way from there: what either
 * reads later the other does not see. It has the same settings, and shares all full pages of keys
 * and values; max-memory holds for both together. What [method@Session.append_text] holds back is
 * not in it: call [method@Session.flush] before.
 *
 * May be called in any thread.
 *
 * Returns: (transfer full): the new session; %NULL with %LYCHEE_CACHE_ERROR_NO_MEMORY
 */
LycheeSession *
lychee_session_fork (LycheeSession *session, GError **error)
{
  LycheeChatFormat template;
  g_autoptr (LycheeCache) cache = NULL, own = NULL;
  LycheeSession *fork;

  g_return_val_if_fail (LYCHEE_IS_SESSION (session), NULL);

  cache = lychee_session_ref_cache (session, &template);
  own = lychee_cache_fork (cache, error);
  if (!own)
    return NULL;
  g_mutex_lock (&session->lock);
  fork = g_object_new (LYCHEE_TYPE_SESSION, "model", session->model, "template", template,
      "system-prompt", session->system_prompt, "reserve", session->reserve, "threads",
      session->threads, "granularity", session->granularity, "sinks", session->sinks, "window",
      session->window, "prefill", session->prefill, "overflow", session->overflow, "backend",
      session->backend_type, "cuda-device", session->cuda_device, NULL);
  fork->attention = session->attention;
  if (session->backend)
    fork->backend = lychee_backend_ref (session->backend);
  g_mutex_unlock (&session->lock);
  lychee_session_set_cache (fork, own);
  fork->max_memory = lychee_cache_get_max_bytes (own);
  fork->begun = lychee_cache_get_length (own) > 0;
  return fork;
}

guint
lychee_session_count_transcript (LycheeCache *cache)
{
  guint position, length = lychee_cache_get_length (cache);
  g_autoptr (LycheeChunk) first = lychee_cache_get_chunk (cache, 0, &position);

  return first && position < length ? length - position : 0;
}

static void
add_seconds (GVariantBuilder *b, const LycheeAttentionStats *stats)
{
  const struct {
    const char *name;
    guint64 ns;
  } parts[] = { { "seconds-upkeep", stats->ns_upkeep }, { "seconds-search", stats->ns_search },
    { "seconds-read", stats->ns_read }, { "seconds-rest", stats->ns_rest },
    { "seconds-merge", stats->ns_merge } };

  for (guint i = 0; i < G_N_ELEMENTS (parts); i++)
    if (parts[i].ns > 0)
      g_variant_builder_add (b, "{sv}", parts[i].name, g_variant_new_double (parts[i].ns / 1e9));
}

/**
 * lychee_session_get_stats:
 * @session: a session
 *
 * What was done so far, as a dictionary (`a{sv}`):
 *
 * * `transcript-tokens`, `chunks` (`u`): what is held
 * * `backend` (`s`): what computes, for people; empty before anything was computed; `backend-note`
 *   (`s`): why it is not what "auto" would rather have, or empty
 * * `tokens-left-out`, `tokens-forgotten` (`t`): what there was no room for
 * * `cache-bytes`, `index-bytes` (`t`): what keys and values, and the index over them, take by now;
 *   `buffer-bytes` (`t`): what reading and answering compute in. That is the session's memory but
 * for the chunks' texts; the model's weights, and some megabytes that are computed in by all in
 * turn, are shared by all sessions of a model
 * * `index-leaves`, `index-coarse` (`t`): of the indexes of all layers and KV heads;
 *   `index-coarse-of-layers` (`at`): each layer's, 0 where it has none; `index-depth` (`t`): of the
 *   deepest
 * * `context` (`u`): tokens that prompt, transcript and answer may have together; `stretch` (`d`):
 *   by how much YaRN stretches the model's positions for it, 1: not at all; `positions` (`s`):
 *   "absolute" or "packed"; `packed` (`b`): there is more than the model was trained for, and what
 *   is read of it has packed positions
 * * `memory-weights`, `memory-cache`, `memory-index` (`t`): bytes that a full context will take;
 *   `memory-available` (`t`): what there was when the session was made
 * * of all answers and chunks, where a query is one token, layer and KV head: `dense-queries`,
 *   `dense-fallbacks` (sparse was asked for, and the transcript shorter than the budget),
 *   `sparse-queries`; for these `rows-visible` (keys that dense attention would have read),
 *   `rows-read`, `rows-estimated`, `nodes-scored` (`t`)
 * * `audits` (`t`), and their means `missed-mass` and `error` (`d`)
 * * with "audit", seconds that all threads together spent in attention: `seconds-upkeep` of the
 *   index, `seconds-search`, `seconds-read`, `seconds-rest` (what is estimated), `seconds-merge`
 *   (`d`)
 *
 * May be called in any thread.
 *
 * Returns: (transfer full): the dictionary
 */
GVariant *
lychee_session_get_stats (LycheeSession *session)
{
  g_autoptr (LycheeCache) cache = lychee_session_ref_cache (session, NULL);
  g_autofree guint64 *coarse = NULL;
  guint64 left_out, forgotten;
  GVariantBuilder b;
  LycheeAttentionStats stats;
  LycheeIndexStats index;
  const char *backend, *note;
  guint64 buffers;

  g_mutex_lock (&session->lock);
  stats = session->stats;
  buffers = session->buffer_bytes;
  note = session->backend ? lychee_backend_get_note (session->backend) : NULL;
  backend = session->backend ? lychee_backend_get_name (session->backend) : "";
  g_mutex_unlock (&session->lock);
  g_variant_builder_init (&b, G_VARIANT_TYPE_VARDICT);
  g_variant_builder_add (&b, "{sv}", "transcript-tokens",
      g_variant_new_uint32 (lychee_session_count_transcript (cache)));
  lychee_cache_get_lost (cache, &left_out, &forgotten);
  g_variant_builder_add (&b, "{sv}", "tokens-left-out", g_variant_new_uint64 (left_out));
  g_variant_builder_add (&b, "{sv}", "tokens-forgotten", g_variant_new_uint64 (forgotten));
  g_variant_builder_add (&b, "{sv}", "backend", g_variant_new_string (backend));
  g_variant_builder_add (&b, "{sv}", "backend-note", g_variant_new_string (note ? note : ""));
  g_variant_builder_add (
      &b, "{sv}", "context", g_variant_new_uint32 (lychee_cache_get_max_tokens (cache)));
  g_variant_builder_add (&b, "{sv}", "stretch",
      g_variant_new_double (
          lychee_model_get_stretch (session->model, lychee_cache_get_rope_context (cache))));
  g_variant_builder_add (&b, "{sv}", "positions",
      g_variant_new_string (lychee_cache_get_packed (cache) ? "packed" : "absolute"));
  g_variant_builder_add (
      &b, "{sv}", "packed", g_variant_new_boolean (lychee_cache_is_bare (cache)));
  g_variant_builder_add (
      &b, "{sv}", "memory-weights", g_variant_new_uint64 (session->need.weights));
  g_variant_builder_add (&b, "{sv}", "memory-cache", g_variant_new_uint64 (session->need.cache));
  g_variant_builder_add (&b, "{sv}", "memory-index", g_variant_new_uint64 (session->need.index));
  g_variant_builder_add (
      &b, "{sv}", "memory-available", g_variant_new_uint64 (session->memory_available));
  g_variant_builder_add (
      &b, "{sv}", "chunks", g_variant_new_uint32 (lychee_cache_get_n_chunks (cache)));
  g_variant_builder_add (
      &b, "{sv}", "cache-bytes", g_variant_new_uint64 (lychee_cache_get_bytes (cache)));
  g_variant_builder_add (
      &b, "{sv}", "index-bytes", g_variant_new_uint64 (lychee_cache_get_index_bytes (cache)));
  g_variant_builder_add (&b, "{sv}", "buffer-bytes", g_variant_new_uint64 (buffers));
  coarse = g_new (guint64, lychee_cache_get_n_layers (cache));
  lychee_cache_describe_index (cache, &index, coarse);
  g_variant_builder_add (&b, "{sv}", "index-leaves", g_variant_new_uint64 (index.n_leaves));
  g_variant_builder_add (&b, "{sv}", "index-coarse", g_variant_new_uint64 (index.n_coarse));
  g_variant_builder_add (&b, "{sv}", "index-coarse-of-layers",
      g_variant_new_fixed_array (
          G_VARIANT_TYPE_UINT64, coarse, lychee_cache_get_n_layers (cache), sizeof *coarse));
  g_variant_builder_add (&b, "{sv}", "index-depth", g_variant_new_uint64 (index.depth));
  add_seconds (&b, &stats);
  g_variant_builder_add (&b, "{sv}", "dense-queries", g_variant_new_uint64 (stats.dense));
  g_variant_builder_add (
      &b, "{sv}", "dense-fallbacks", g_variant_new_uint64 (stats.dense_fallback));
  g_variant_builder_add (&b, "{sv}", "sparse-queries", g_variant_new_uint64 (stats.sparse));
  g_variant_builder_add (&b, "{sv}", "rows-visible", g_variant_new_uint64 (stats.rows_visible));
  g_variant_builder_add (&b, "{sv}", "rows-read", g_variant_new_uint64 (stats.rows_read));
  g_variant_builder_add (&b, "{sv}", "rows-estimated", g_variant_new_uint64 (stats.rows_estimated));
  g_variant_builder_add (&b, "{sv}", "nodes-scored", g_variant_new_uint64 (stats.nodes_scored));
  g_variant_builder_add (&b, "{sv}", "audits", g_variant_new_uint64 (stats.audits));
  g_variant_builder_add (&b, "{sv}", "missed-mass",
      g_variant_new_double (stats.audits > 0 ? stats.missed_mass / stats.audits : 0));
  g_variant_builder_add (&b, "{sv}", "error",
      g_variant_new_double (stats.audits > 0 ? stats.error / stats.audits : 0));
  return g_variant_ref_sink (g_variant_builder_end (&b));
}

LycheeAttentionOptions
lychee_session_get_options (LycheeSession *s, gboolean for_prefill)
{
  LycheeAttentionOptions options;

  g_mutex_lock (&s->lock);
  options = s->attention;
  g_mutex_unlock (&s->lock);
  if (for_prefill)
    options.sparse = s->prefill == LYCHEE_ATTENTION_SPARSE;
  return options;
}

void
lychee_session_collect_stats (LycheeSession *s, LycheeWorker *worker)
{
  LycheeAttentionStats stats;
  gssize more = lychee_worker_take_bytes (worker);

  lychee_worker_take_stats (worker, &stats);
  g_mutex_lock (&s->lock);
  s->buffer_bytes += more;
  lychee_attention_add_stats (&s->stats, &stats);
  g_mutex_unlock (&s->lock);
}

gboolean
lychee_session_prefill (LycheeSession *s, LycheeWorker *worker, LycheeCache *cache,
    const gint32 *ids, guint n, LycheeOutput output, const float **logits,
    GCancellable *cancellable, GError **error)
{
  LycheeAttentionOptions options = lychee_session_get_options (s, TRUE);
  guint most = lychee_backend_get_piece_tokens (s->backend);

  lychee_worker_set_options (worker, &options);
  while (n > 0) {
    guint now = MIN (n, most);

    if (!lychee_worker_run (worker, cache, ids, now, n == now ? output : LYCHEE_OUTPUT_NONE, logits,
            cancellable, error))
      return FALSE;
    ids += now;
    n -= now;
  }
  return TRUE;
}

static gboolean
open_backend (LycheeSession *s, GError **error)
{
  gboolean ok;

  g_mutex_lock (&s->lock);
  if (!s->backend)
    s->backend = lychee_backend_new (s->backend_type, s->model, s->threads, s->cuda_device, error);
  ok = s->backend != NULL;
  g_mutex_unlock (&s->lock);
  return ok;
}

gboolean
lychee_session_check_ready (LycheeSession *s, GError **error)
{
  LycheeChatFormat template;
  g_autoptr (LycheeCache) cache = lychee_session_ref_cache (s, &template);

  if (lychee_cache_get_n_layers (cache) != lychee_model_get_n_layers (s->model) ||
      lychee_cache_get_n_kv_heads (cache) != lychee_model_get_n_kv_heads (s->model) ||
      lychee_cache_get_head_dim (cache) != lychee_model_get_head_dim (s->model)) {
    g_set_error (error, LYCHEE_SESSION_ERROR, LYCHEE_SESSION_ERROR_CACHE,
        "The cache is that of another model: it has %u layers, %u KV heads and %u dimensions, and "
        "“%s” "
        "has %u, %u and %u",
        lychee_cache_get_n_layers (cache), lychee_cache_get_n_kv_heads (cache),
        lychee_cache_get_head_dim (cache), lychee_model_get_path (s->model),
        lychee_model_get_n_layers (s->model), lychee_model_get_n_kv_heads (s->model),
        lychee_model_get_head_dim (s->model));
    return FALSE;
  }
  if (s->cache_type == LYCHEE_CACHE_TYPE_Q8_0 &&
      !lychee_cache_has_form (lychee_model_get_head_dim (s->model), LYCHEE_ROW_Q8_0)) {
    g_set_error (error, LYCHEE_SESSION_ERROR, LYCHEE_SESSION_ERROR_CACHE,
        "A cache of the type q8_0 needs heads of a multiple of 32 dimensions, and those of “%s” "
        "have "
        "%u: set cache-type to f16",
        lychee_model_get_path (s->model), lychee_model_get_head_dim (s->model));
    return FALSE;
  }
  if (template != LYCHEE_CHAT_FORMAT_AUTO)
    return open_backend (s, error) && lychee_session_check_memory (s, cache, error);
  g_set_error (error, LYCHEE_SESSION_ERROR, LYCHEE_SESSION_ERROR_TEMPLATE,
      "The model “%s” has %s; set template to chatml, llama2, llama3, gemma, mistral, qwen3, phi3, "
      "phi4, granite or plain",
      lychee_model_get_path (s->model),
      lychee_model_get_chat_template (s->model) ? "a chat template that is not known"
                                                : "no chat template");
  return FALSE;
}
