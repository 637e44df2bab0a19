/* SPDX-License-Identifier: LGPL-2.1-or-later */

/**
 * SECTION:element-lycheeindexer
 * @title: lycheeindexer
 *
 * Reads a transcript with a language model, chunk by chunk, and keeps the keys and values (KV
 * cache) of all of it.
 *
 * Each chunk is computed once, in the streaming thread, and goes downstream as one buffer: its keys
 * and values. The memory is a view into the cache (`memory:LycheeKV`), which costs nothing; mapping
 * it for reading makes a copy as `[layer][K then V][kv-head][token][head-dim]`, 16-bit floats.
 * Offset and offset end of the buffer are token positions in the cache, which also holds the system
 * prompt. A LycheeKVMeta has the cache and the chunk. An allocator that downstream proposes is used
 * if it is of this kind.
 *
 * A transcript begins with a stream. After a seek back it is cut to the new place and goes on from
 * there; what was said before is not read again.
 *
 * Where the context (#lycheeindexer:max-context) or the memory (#lycheeindexer:max-memory) is used
 * up, #lycheeindexer:overflow says what happens: an error; or (`stop-reading`) the transcript up to
 * there is kept and the rest is left out; or (`forget-oldest`) what is oldest makes room. A warning
 * message (#GST_RESOURCE_ERROR_NO_SPACE_LEFT) says so at once, and where the rest is left out
 * another one at the end how much that was; a `lychee-truncated` event tells downstream.
 *
 * ## Messages
 * At the start, an element message `lychee-session`: `context` and `trained`, the tokens that there
 * is room for and those that the model was trained for (guint); `stretch`, by how much YaRN
 * stretches the model's positions (gdouble, 1: not at all), which an INFO message says, too;
 * `weights`, `cache`, `index` and `available`, bytes that a full context will take, and that there
 * are (guint64).
 *
 * A few times a second and at the end, an element message `lychee-progress`:
 *
 * * `tokens` (uint): tokens of the transcript read so far
 * * `chunks` (uint): in so many chunks
 * * `rate` (double): tokens a second of reading
 * * `seconds` (double): spent reading, without waiting for input
 * * `percent` (double): of the transcript, where upstream knows its length
 * * `seconds-left` (double): of reading, likewise
 *
 * In a live pipeline, when what is read was said more than five seconds ago (and what upstream's
 * latency is), every five seconds, and once when that is over, an element message `lychee-behind`:
 * no text is lost, it waits in the queue before this element (let that have no limits, for text is
 * small).
 *
 * * `behind` (uint64): nanoseconds
 * * `tokens` (uint), `rate` (double): read so far, and tokens a second of reading
 *
 * With `overflow=forget-oldest`, each time that something is forgotten, `lychee-forgotten`:
 *
 * * `tokens` (uint64): forgotten so far
 * * `from` (uint64): when what is left begins
 *
 * ## Example launch line
 * |[
 * gst-launch-1.0 filesrc location=talk.srt ! subparse subtitle-encoding=UTF-8 ! lycheetokenizer !
 *     lycheechunker ! lycheeindexer max-context=4096 ! lycheedecoder ! fdsink
 * ]|
 */

#include "gstlycheeindexer.h"

#include <math.h>

#include "lychee-element.h"
#include "lychee-kv-memory.h"
#include "lychee-meta.h"
#include "lychee-model-context.h"
#include "lychee-reading.h"
#include "lychee-session.h"
#include "lychee-settings.h"

GST_DEBUG_CATEGORY_STATIC (lychee_indexer_debug);
#define GST_CAT_DEFAULT lychee_indexer_debug

#define KV_FIELDS                                                                                  \
  "layers = (int) [ 1, MAX ], kv-heads = (int) [ 1, MAX ], head-dim = (int) [ 1, MAX ], "          \
  "type = (string) f16"

enum {
  PROP_0,
  PROP_MODEL,
  PROP_LOCATION,
  PROP_SETTINGS,
};

static const char *const settings_names[] = { "system-prompt", "template", "max-context",
  "max-memory", "overflow", "reserve", "threads", "backend", "cuda-device", "granularity", "sinks",
  "window", "prefill", "budget", "beam", "rest", NULL };

struct _GstLycheeIndexer {
  GstElement parent;

  GstPad *sinkpad;
  GstPad *srcpad;

  /* under the object lock */
  LycheeModelSlot slot;
  LycheeSettings settings;
  char *location;
  GCancellable *cancellable; /* of the reading under way; flush and shutdown cancel it */

  /* of the streaming thread */
  LycheeKVAllocator *allocator;
  char *stream_id;
  gboolean flushed; /* the next segment tells whether the transcript goes on */
  gboolean eos;
  gboolean resume;  /* the first transcript goes on where the saved one stopped */
  gboolean resumed; /* what was loaded is not yet told downstream */
  gboolean unsaved; /* something was read since */
  GstSegment segment;
  gboolean live;
  GstClockTime latency; /* of upstream */

  /* the transcript being read, of the streaming thread */
  LycheeSession *session;
  LycheeChatFormat format; /* that the session found */
  LycheeReading reading;
  gboolean full;
  gboolean forgot; /* and said so */
  guint64 left_tokens;
  guint64 left_chunks;
  GstClockTime left_end;
  gboolean discont;
};

static GstStaticPadTemplate sink_template = GST_STATIC_PAD_TEMPLATE (
    "sink", GST_PAD_SINK, GST_PAD_ALWAYS, GST_STATIC_CAPS ("application/x-lychee-chunks"));

static GstStaticPadTemplate src_template =
    GST_STATIC_PAD_TEMPLATE ("src", GST_PAD_SRC, GST_PAD_ALWAYS,
        GST_STATIC_CAPS ("application/x-lychee-kv(" LYCHEE_CAPS_FEATURE_MEMORY_KV "), " KV_FIELDS
                         "; application/x-lychee-kv, " KV_FIELDS));

#define gst_lychee_indexer_parent_class parent_class
G_DEFINE_TYPE_WITH_CODE (GstLycheeIndexer, gst_lychee_indexer, GST_TYPE_ELEMENT,
    GST_DEBUG_CATEGORY_INIT (lychee_indexer_debug, "lycheeindexer", 0, "Chunks to keys and values"))
GST_ELEMENT_REGISTER_DEFINE (lycheeindexer, "lycheeindexer", GST_RANK_NONE, GST_TYPE_LYCHEE_INDEXER)

static void gst_lychee_indexer_finalize (GObject *object);
static void gst_lychee_indexer_set_property (
    GObject *object, guint id, const GValue *value, GParamSpec *pspec);
static void gst_lychee_indexer_get_property (
    GObject *object, guint id, GValue *value, GParamSpec *pspec);
static GstStateChangeReturn gst_lychee_indexer_change_state (
    GstElement *element, GstStateChange transition);
static GstFlowReturn gst_lychee_indexer_chain (GstPad *pad, GstObject *parent, GstBuffer *buffer);
static gboolean gst_lychee_indexer_sink_event (GstPad *pad, GstObject *parent, GstEvent *event);
static gboolean gst_lychee_indexer_query (GstPad *pad, GstObject *parent, GstQuery *query);

static void
gst_lychee_indexer_class_init (GstLycheeIndexerClass *klass)
{
  GObjectClass *object_class = G_OBJECT_CLASS (klass);
  GstElementClass *element_class = GST_ELEMENT_CLASS (klass);

  object_class->finalize = gst_lychee_indexer_finalize;
  object_class->set_property = gst_lychee_indexer_set_property;
  object_class->get_property = gst_lychee_indexer_get_property;
  element_class->change_state = gst_lychee_indexer_change_state;

  lychee_model_slot_install_property (object_class, PROP_MODEL);

  /**
   * lycheeindexer:location:
   *
   * A file to keep the session in. If it is there when reading begins, the transcript goes on where
   * the saved one stopped, with nothing read again: the first buffer is then that of its last
   * chunk. It is saved at the end of the stream, and when the element stops. Only the first
   * transcript after a start resumes; a later stream begins anew, and takes the file's place. A
   * session of another model, or a file that was cut or altered, is an error.
   */
  g_object_class_install_property (object_class, PROP_LOCATION,
      g_param_spec_string ("location", "Location",
          "File that the session is saved to, and resumed from if it is there", NULL,
          G_PARAM_READWRITE | G_PARAM_STATIC_STRINGS | GST_PARAM_MUTABLE_READY));

  /* What a session is made with: see LycheeSession. */
  lychee_settings_install (
      object_class, LYCHEE_TYPE_SESSION, PROP_SETTINGS, settings_names, GST_PARAM_MUTABLE_READY);

  gst_element_class_add_static_pad_template (element_class, &sink_template);
  gst_element_class_add_static_pad_template (element_class, &src_template);
  gst_element_class_set_static_metadata (element_class, "Lychee indexer", "Filter/Text",
      "Reads a transcript with a language model and keeps its KV cache", "The Lychee authors");
}

/* Forgets the transcript: what comes is a new one. */
static void
gst_lychee_indexer_reset (GstLycheeIndexer *self)
{
  g_clear_object (&self->session);
  lychee_reading_init (&self->reading);
  self->full = FALSE;
  self->forgot = FALSE;
  self->left_tokens = 0;
  self->left_chunks = 0;
  self->left_end = GST_CLOCK_TIME_NONE;
  self->flushed = FALSE;
  self->eos = FALSE;
  self->resumed = FALSE;
  self->unsaved = FALSE;
  self->discont = TRUE;
}

static void
gst_lychee_indexer_init (GstLycheeIndexer *self)
{
  lychee_settings_init (&self->settings, PROP_SETTINGS, settings_names);
  self->cancellable = g_cancellable_new ();
  gst_lychee_indexer_reset (self);

  self->sinkpad = gst_pad_new_from_static_template (&sink_template, "sink");
  gst_pad_set_chain_function (self->sinkpad, gst_lychee_indexer_chain);
  gst_pad_set_query_function (self->sinkpad, gst_lychee_indexer_query);
  gst_element_add_pad (GST_ELEMENT (self), self->sinkpad);

  self->srcpad = gst_pad_new_from_static_template (&src_template, "src");
  gst_pad_set_query_function (self->srcpad, gst_lychee_indexer_query);
  gst_pad_use_fixed_caps (self->srcpad);
  lychee_pad_set_event_function (self->sinkpad, self->srcpad, gst_lychee_indexer_sink_event);
  gst_element_add_pad (GST_ELEMENT (self), self->srcpad);
}

static void
gst_lychee_indexer_finalize (GObject *object)
{
  GstLycheeIndexer *self = GST_LYCHEE_INDEXER (object);

  gst_lychee_indexer_reset (self);
  lychee_model_slot_clear (&self->slot);
  g_clear_object (&self->cancellable);
  gst_clear_object (&self->allocator);
  lychee_settings_clear (&self->settings);
  g_free (self->location);
  g_free (self->stream_id);
  G_OBJECT_CLASS (parent_class)->finalize (object);
}

static void
gst_lychee_indexer_set_property (GObject *object, guint id, const GValue *value, GParamSpec *pspec)
{
  GstLycheeIndexer *self = GST_LYCHEE_INDEXER (object);

  if (id == PROP_MODEL) {
    lychee_model_slot_set_path (&self->slot, GST_ELEMENT (self), g_value_get_string (value));
    return;
  }

  GST_OBJECT_LOCK (self);
  if (id == PROP_LOCATION) {
    g_free (self->location);
    self->location = g_value_dup_string (value);
  } else if (!lychee_settings_set (&self->settings, id, value))
    G_OBJECT_WARN_INVALID_PROPERTY_ID (object, id, pspec);
  GST_OBJECT_UNLOCK (self);
}

static void
gst_lychee_indexer_get_property (GObject *object, guint id, GValue *value, GParamSpec *pspec)
{
  GstLycheeIndexer *self = GST_LYCHEE_INDEXER (object);

  if (id == PROP_MODEL) {
    g_value_take_string (value, lychee_model_slot_dup_path (&self->slot, GST_ELEMENT (self)));
    return;
  }

  GST_OBJECT_LOCK (self);
  if (id == PROP_LOCATION)
    g_value_set_string (value, self->location);
  else if (!lychee_settings_get (&self->settings, id, value))
    G_OBJECT_WARN_INVALID_PROPERTY_ID (object, id, pspec);
  GST_OBJECT_UNLOCK (self);
}

static void
cancel_reading (GstLycheeIndexer *self)
{
  GCancellable *cancellable;

  GST_OBJECT_LOCK (self);
  cancellable = g_object_ref (self->cancellable);
  GST_OBJECT_UNLOCK (self);
  g_cancellable_cancel (cancellable);
  g_object_unref (cancellable);
}

static void
allow_reading (GstLycheeIndexer *self)
{
  GCancellable *old;

  GST_OBJECT_LOCK (self);
  old = self->cancellable;
  self->cancellable = g_cancellable_new ();
  GST_OBJECT_UNLOCK (self);
  g_object_unref (old);
}

/* Chooses the caps and the allocator that downstream can take. */
static gboolean
gst_lychee_indexer_negotiate (GstLycheeIndexer *self)
{
  LycheeModel *model = lychee_model_slot_ref_model (&self->slot, GST_ELEMENT (self));
  LycheeKVAllocator *allocator = NULL;
  GstCaps *caps, *plain;
  GstQuery *query;
  gboolean ret;

  if (model == NULL)
    return FALSE;
  plain = gst_caps_new_simple ("application/x-lychee-kv", "model", G_TYPE_STRING,
      lychee_model_get_id (model), "layers", G_TYPE_INT, (int) lychee_model_get_n_layers (model),
      "kv-heads", G_TYPE_INT, (int) lychee_model_get_n_kv_heads (model), "head-dim", G_TYPE_INT,
      (int) lychee_model_get_head_dim (model), "type", G_TYPE_STRING, "f16", NULL);
  g_object_unref (model);
  caps = gst_caps_copy (plain);
  gst_caps_set_features (caps, 0, gst_caps_features_new (LYCHEE_CAPS_FEATURE_MEMORY_KV, NULL));
  if (gst_pad_is_linked (self->srcpad) && !gst_pad_peer_query_accept_caps (self->srcpad, caps) &&
      gst_pad_peer_query_accept_caps (self->srcpad, plain))
    gst_caps_replace (&caps, plain);
  gst_caps_unref (plain);

  ret = gst_pad_set_caps (self->srcpad, caps);
  query = gst_query_new_allocation (caps, FALSE);
  if (ret && gst_pad_peer_query (self->srcpad, query)) {
    for (guint i = 0; i < gst_query_get_n_allocation_params (query) && allocator == NULL; i++) {
      GstAllocator *proposed = NULL;

      gst_query_parse_nth_allocation_param (query, i, &proposed, NULL);
      if (proposed != NULL && LYCHEE_IS_KV_ALLOCATOR (proposed))
        allocator = LYCHEE_KV_ALLOCATOR (proposed);
      else
        gst_clear_object (&proposed);
    }
  }
  gst_query_unref (query);
  gst_caps_unref (caps);

  GST_DEBUG_OBJECT (
      self, "%s allocator", allocator != NULL ? "takes downstream's" : "makes its own");
  gst_clear_object (&self->allocator);
  self->allocator = allocator != NULL ? allocator : lychee_kv_allocator_new ();
  return ret;
}

/* What the session will be: how long, how large, and what that does to the model. */
static void
post_session (GstLycheeIndexer *self)
{
  g_autoptr (GVariant) stats = g_variant_ref_sink (lychee_session_get_stats (self->session));
  guint trained = lychee_model_get_n_context (lychee_session_get_model (self->session));
  guint64 weights = 0, cache = 0, index = 0, available = 0;
  guint context = 0;
  double stretch = 1;

  g_variant_lookup (stats, "context", "u", &context);
  g_variant_lookup (stats, "stretch", "d", &stretch);
  g_variant_lookup (stats, "memory-weights", "t", &weights);
  g_variant_lookup (stats, "memory-cache", "t", &cache);
  g_variant_lookup (stats, "memory-index", "t", &index);
  g_variant_lookup (stats, "memory-available", "t", &available);
  gst_element_post_message (GST_ELEMENT (self),
      gst_message_new_element (GST_OBJECT (self),
          gst_structure_new ("lychee-session", "context", G_TYPE_UINT, context, "trained",
              G_TYPE_UINT, trained, "stretch", G_TYPE_DOUBLE, stretch, "weights", G_TYPE_UINT64,
              weights, "cache", G_TYPE_UINT64, cache, "index", G_TYPE_UINT64, index, "available",
              G_TYPE_UINT64, available, NULL)));
  if (stretch > 1)
    GST_ELEMENT_INFO (self, LIBRARY, SETTINGS,
        ("A context of %u tokens is more than the %u that the model was trained for: YaRN "
         "stretches "
         "its positions by %.3g.",
            context, trained, stretch),
        (NULL));
}

static char *
dup_location (GstLycheeIndexer *self)
{
  char *location;

  GST_OBJECT_LOCK (self);
  location = g_strdup (self->location);
  GST_OBJECT_UNLOCK (self);
  return location;
}

static GstClockTime
end_of_chunk (LycheeChunk *chunk)
{
  if (chunk->pts == LYCHEE_TIME_NONE)
    return GST_CLOCK_TIME_NONE;
  return chunk->pts + (chunk->duration != LYCHEE_TIME_NONE ? chunk->duration : 0);
}

/* Counts what the session holds. */
static void
count_read (GstLycheeIndexer *self)
{
  LycheeCache *cache = lychee_session_get_cache (self->session);
  LycheeChunk *chunk;

  self->reading.tokens = self->reading.chunks = 0;
  for (; (chunk = lychee_cache_get_chunk (cache, self->reading.chunks, NULL)) != NULL;
       self->reading.chunks++) {
    GstClockTime end = end_of_chunk (chunk);

    self->reading.tokens += chunk->n_ids;
    if (GST_CLOCK_TIME_IS_VALID (end) &&
        (!GST_CLOCK_TIME_IS_VALID (self->reading.end) || end > self->reading.end))
      self->reading.end = end;
    lychee_chunk_unref (chunk);
  }
}

/* Goes on with the saved session, if there is one. */
static gboolean
resume_session (GstLycheeIndexer *self)
{
  g_autofree char *location = dup_location (self);
  g_autoptr (GError) error = NULL;

  self->resume = FALSE;
  if (location == NULL || !g_file_test (location, G_FILE_TEST_EXISTS))
    return TRUE;
  if (!lychee_session_load (self->session, location, NULL, &error)) {
    lychee_element_post_error (GST_ELEMENT (self), error, "The session cannot be resumed");
    return FALSE;
  }
  count_read (self);
  self->resumed = self->reading.chunks > 0;
  GST_INFO_OBJECT (self, "resumed %" G_GUINT64_FORMAT " tokens, up to %" GST_TIME_FORMAT,
      self->reading.tokens, GST_TIME_ARGS (self->reading.end));
  return TRUE;
}

/* What cannot be saved is said, and goes on. */
static void
save_session (GstLycheeIndexer *self)
{
  g_autofree char *location = dup_location (self);
  g_autoptr (GError) error = NULL;

  if (location == NULL || self->session == NULL || !self->unsaved)
    return;
  self->unsaved = FALSE;
  if (!lychee_session_save (self->session, location, NULL, &error))
    lychee_element_post_warning (GST_ELEMENT (self), error, "The session could not be saved");
}

static gboolean
ensure_session (GstLycheeIndexer *self)
{
  LycheeModel *model;

  if (self->session != NULL)
    return TRUE;
  model = lychee_model_slot_ref_model (&self->slot, GST_ELEMENT (self));
  if (model == NULL)
    return FALSE;
  self->session =
      lychee_settings_new_session (&self->settings, self, model, NULL, LYCHEE_CHAT_FORMAT_UNKNOWN);
  g_object_unref (model);
  if (self->resume && !resume_session (self)) {
    g_clear_object (&self->session);
    return FALSE;
  }
  g_object_get (self->session, "template", &self->format, NULL);
  post_session (self);
  return TRUE;
}

/* The chunk that @buffer is: its meta's, or one made of its ids where it has none. (transfer full)
 * (nullable) */
static LycheeChunk *
chunk_of_buffer (GstLycheeIndexer *self, GstBuffer *buffer)
{
  LycheeChunkMeta *meta = lychee_buffer_get_chunk_meta (buffer);
  LycheeChunk *chunk = NULL;
  GstMapInfo map;

  if (meta != NULL)
    return lychee_chunk_ref (meta->chunk);
  if (!gst_buffer_map (buffer, &map, GST_MAP_READ))
    return NULL;
  if (map.size % sizeof (gint32) == 0 && map.size / sizeof (gint32) <= G_MAXUINT)
    chunk = lychee_chunk_new ((const gint32 *) map.data, map.size / sizeof (gint32), "", NULL,
        GST_BUFFER_PTS (buffer), GST_BUFFER_DURATION (buffer), LYCHEE_BOUNDARY_NONE, NAN,
        self->reading.chunks);
  gst_buffer_unmap (buffer, &map);
  return chunk;
}

static gboolean
ids_are_valid (GstLycheeIndexer *self, LycheeChunk *chunk)
{
  guint n_vocab = lychee_model_get_n_vocab (lychee_session_get_model (self->session));

  for (guint i = 0; i < chunk->n_ids; i++)
    if (chunk->ids[i] < 0 || (guint) chunk->ids[i] >= n_vocab)
      return FALSE;
  return TRUE;
}

static void
leave_out (GstLycheeIndexer *self, LycheeChunk *chunk)
{
  GstClockTime end = end_of_chunk (chunk);

  self->left_tokens += chunk->n_ids;
  self->left_chunks++;
  if (GST_CLOCK_TIME_IS_VALID (end))
    self->left_end = end;
}

/* Tells downstream, for the answers that follow. */
static void
push_truncated (GstLycheeIndexer *self)
{
  gst_pad_push_event (self->srcpad,
      gst_event_new_custom (GST_EVENT_CUSTOM_DOWNSTREAM,
          gst_structure_new ("lychee-truncated", "tokens", G_TYPE_UINT64, self->reading.tokens,
              "left-out", G_TYPE_UINT64, self->left_tokens, NULL)));
}

/* Says at once that the transcript does not fit; what was left out in the end is said at the end.
 * FALSE: nothing fits. */
static gboolean
begin_to_leave_out (GstLycheeIndexer *self)
{
  char *until;

  if (self->reading.tokens == 0) {
    GST_ELEMENT_ERROR (self, RESOURCE, NO_SPACE_LEFT,
        ("The transcript cannot be read: not even its beginning fits. Raise max-context or "
         "max-memory."),
        (NULL));
    return FALSE;
  }
  until = lychee_format_time (self->reading.end);
  self->full = TRUE;
  GST_ELEMENT_WARNING (self, RESOURCE, NO_SPACE_LEFT,
      ("The transcript is longer than what fits: %" G_GUINT64_FORMAT
       " tokens were read, up to %s; what follows is left out.",
          self->reading.tokens, until),
      (NULL));
  g_free (until);
  push_truncated (self);
  return TRUE;
}

static void
say_what_was_left_out (GstLycheeIndexer *self)
{
  char *from = lychee_format_time (self->reading.end);
  char *until = lychee_format_time (self->left_end);

  GST_ELEMENT_WARNING (self, RESOURCE, NO_SPACE_LEFT,
      ("The transcript did not fit: %" G_GUINT64_FORMAT " of its %" G_GUINT64_FORMAT
       " tokens were read, up to %s; the last %" G_GUINT64_FORMAT ", up to %s, were left out.",
          self->reading.tokens, self->reading.tokens + self->left_tokens, from, self->left_tokens,
          until),
      (NULL));
  g_free (from);
  g_free (until);
}

/* That the beginning was forgotten: the first time as a warning, and always as a message. */
static void
say_what_was_forgotten (GstLycheeIndexer *self)
{
  g_autoptr (LycheeChunk) first =
      lychee_cache_get_chunk (lychee_session_get_cache (self->session), 0, NULL);
  g_autoptr (GVariant) stats = g_variant_ref_sink (lychee_session_get_stats (self->session));
  GstClockTime from = first != NULL ? first->pts : GST_CLOCK_TIME_NONE;
  guint64 forgotten = 0;

  g_variant_lookup (stats, "tokens-forgotten", "t", &forgotten);
  if (!self->forgot) {
    char *time = lychee_format_time (from);

    GST_ELEMENT_WARNING (self, RESOURCE, NO_SPACE_LEFT,
        ("The transcript is longer than what fits: from now on the oldest part of it is "
         "forgotten, now what was said before %s.",
            time),
        (NULL));
    g_free (time);
    self->forgot = TRUE;
    push_truncated (self);
  }
  gst_element_post_message (
      GST_ELEMENT (self), gst_message_new_element (GST_OBJECT (self),
                              gst_structure_new ("lychee-forgotten", "tokens", G_TYPE_UINT64,
                                  forgotten, "from", G_TYPE_UINT64, from, NULL)));
}

static GstFlowReturn
push_view (GstLycheeIndexer *self, LycheeChunk *chunk)
{
  LycheeCache *cache = lychee_session_get_cache (self->session);
  guint position = lychee_cache_get_length (cache) - chunk->n_ids;
  GstBuffer *buffer = gst_buffer_new ();

  gst_buffer_append_memory (
      buffer, lychee_kv_memory_new (self->allocator, cache, position, chunk->n_ids));
  GST_BUFFER_PTS (buffer) = chunk->pts;
  GST_BUFFER_DURATION (buffer) = chunk->duration;
  GST_BUFFER_OFFSET (buffer) = position;
  GST_BUFFER_OFFSET_END (buffer) = position + chunk->n_ids;
  if (self->discont) {
    GST_BUFFER_FLAG_SET (buffer, GST_BUFFER_FLAG_DISCONT);
    self->discont = FALSE;
  }
  lychee_buffer_add_kv_meta (buffer, cache, chunk, position, self->format, self->reading.tokens);
  return gst_pad_push (self->srcpad, buffer);
}

/* Whether @chunk is the last one that @cache has: else it was left out. */
static gboolean
is_last_chunk (LycheeCache *cache, LycheeChunk *chunk)
{
  guint n = lychee_cache_get_n_chunks (cache);
  g_autoptr (LycheeChunk) last = n > 0 ? lychee_cache_get_chunk (cache, n - 1, NULL) : NULL;

  return last == chunk;
}

/* Counts a chunk that has been read. */
static void
note_chunk (GstLycheeIndexer *self, LycheeChunk *chunk)
{
  GstClockTime end = end_of_chunk (chunk);

  self->unsaved = TRUE;
  self->reading.tokens += chunk->n_ids;
  self->reading.chunks++;
  if (!GST_CLOCK_TIME_IS_VALID (end))
    return;
  if (!GST_CLOCK_TIME_IS_VALID (self->reading.end) || end > self->reading.end)
    self->reading.end = end;
  if (self->live)
    lychee_reading_lateness (&self->reading, GST_ELEMENT (self),
        gst_segment_to_running_time (&self->segment, GST_FORMAT_TIME, end), self->latency);
}

/* Tells downstream what was loaded, by its last chunk. */
static GstFlowReturn
push_resumed (GstLycheeIndexer *self)
{
  LycheeCache *cache = lychee_session_get_cache (self->session);
  g_autoptr (LycheeChunk) last =
      lychee_cache_get_chunk (cache, lychee_cache_get_n_chunks (cache) - 1, NULL);

  self->resumed = FALSE;
  return push_view (self, last);
}

static GstFlowReturn
read_chunk (GstLycheeIndexer *self, LycheeChunk *chunk)
{
  LycheeCache *cache = lychee_session_get_cache (self->session);
  guint n_chunks = lychee_cache_get_n_chunks (cache);
  GError *error = NULL;
  GCancellable *cancellable;
  GstFlowReturn ret = GST_FLOW_ERROR;
  gint64 begun = g_get_monotonic_time ();
  gboolean ok;

  GST_OBJECT_LOCK (self);
  cancellable = g_object_ref (self->cancellable);
  GST_OBJECT_UNLOCK (self);
  ok = lychee_session_append (self->session, chunk, cancellable, &error);
  g_object_unref (cancellable);
  self->reading.busy += g_get_monotonic_time () - begun;

  if (ok && !is_last_chunk (cache, chunk)) {
    if (begin_to_leave_out (self)) {
      leave_out (self, chunk);
      ret = GST_FLOW_OK;
    }
  } else if (ok) {
    note_chunk (self, chunk);
    if (lychee_cache_get_n_chunks (cache) <= n_chunks)
      say_what_was_forgotten (self);
    lychee_reading_progress (&self->reading, GST_ELEMENT (self), self->sinkpad, FALSE);
    ret = push_view (self, chunk);
  } else if (g_error_matches (error, G_IO_ERROR, G_IO_ERROR_CANCELLED)) {
    ret = GST_FLOW_FLUSHING;
  } else {
    lychee_element_post_error (GST_ELEMENT (self), error, "The transcript cannot be read");
  }
  g_clear_error (&error);
  return ret;
}

static GstFlowReturn
gst_lychee_indexer_chain (GstPad *pad, GstObject *parent, GstBuffer *buffer)
{
  GstLycheeIndexer *self = GST_LYCHEE_INDEXER (parent);
  GstFlowReturn ret = GST_FLOW_OK;
  LycheeChunk *chunk;

  if (!gst_pad_has_current_caps (self->sinkpad) || !ensure_session (self) ||
      (gst_pad_check_reconfigure (self->srcpad) && !gst_lychee_indexer_negotiate (self))) {
    gst_buffer_unref (buffer);
    /* Shutting down makes the negotiation fail too. */
    return GST_PAD_IS_FLUSHING (self->srcpad) ? GST_FLOW_FLUSHING : GST_FLOW_NOT_NEGOTIATED;
  }

  chunk = chunk_of_buffer (self, buffer);
  if (chunk == NULL || !ids_are_valid (self, chunk)) {
    GST_ELEMENT_ERROR (self, STREAM, FORMAT,
        ("What arrives here as a chunk is broken: it has ids that the model does not know."),
        ("%" GST_PTR_FORMAT, buffer));
    ret = GST_FLOW_ERROR;
  } else if (self->resumed && (ret = push_resumed (self)) != GST_FLOW_OK) {
    GST_DEBUG_OBJECT (self, "downstream takes nothing: %s", gst_flow_get_name (ret));
  } else if (self->full) {
    leave_out (self, chunk);
  } else if (chunk->n_ids > 0) {
    ret = read_chunk (self, chunk);
  }
  g_clear_pointer (&chunk, lychee_chunk_unref);
  gst_buffer_unref (buffer);
  return ret;
}

static void
gst_lychee_indexer_finish (GstLycheeIndexer *self)
{
  self->eos = TRUE;
  /* Nothing may have come since the start. */
  if (self->resume && gst_pad_has_current_caps (self->srcpad) && ensure_session (self) &&
      self->resumed)
    push_resumed (self);
  save_session (self);
  lychee_reading_progress (&self->reading, GST_ELEMENT (self), self->sinkpad, TRUE);
  if (!self->full)
    return;
  say_what_was_left_out (self);
  push_truncated (self);
}

/* After a seek back: what was said from @time on is forgotten, and read again; what was said before
 * stays as it is. */
static void
gst_lychee_indexer_cut (GstLycheeIndexer *self, GstClockTime time)
{
  LycheeReading reading = self->reading;

  if (self->session == NULL)
    return;
  self->unsaved = TRUE;
  lychee_reading_init (&self->reading);
  self->reading.busy = reading.busy;
  self->reading.end = lychee_session_truncate (self->session, time);
  count_read (self);
  self->full = FALSE;
  self->left_tokens = self->left_chunks = 0;
  self->left_end = GST_CLOCK_TIME_NONE;
  self->discont = TRUE;
  GST_INFO_OBJECT (self, "cut to %" G_GUINT64_FORMAT " tokens, up to %" GST_TIME_FORMAT,
      self->reading.tokens, GST_TIME_ARGS (self->reading.end));
}

static void
gst_lychee_indexer_segment (GstLycheeIndexer *self, const GstSegment *segment)
{
  if (self->flushed && !lychee_segment_goes_on (segment, self->reading.end)) {
    if (lychee_segment_goes_back (segment))
      gst_lychee_indexer_cut (self, segment->start);
    else
      gst_lychee_indexer_reset (self);
  }
  self->flushed = FALSE;
  self->eos = FALSE;
  self->segment = *segment;
  self->live = lychee_reading_is_live (self->sinkpad, &self->latency);
}

static void
gst_lychee_indexer_stream_start (GstLycheeIndexer *self, GstEvent *event)
{
  const char *id;

  gst_event_parse_stream_start (event, &id);
  if (self->eos || g_strcmp0 (id, self->stream_id) != 0)
    gst_lychee_indexer_reset (self);
  g_free (self->stream_id);
  self->stream_id = g_strdup (id);
}

static gboolean
gst_lychee_indexer_sink_event (GstPad *pad, GstObject *parent, GstEvent *event)
{
  GstLycheeIndexer *self = GST_LYCHEE_INDEXER (parent);

  GST_LOG_OBJECT (self, "%" GST_PTR_FORMAT, event);

  switch (GST_EVENT_TYPE (event)) {
  case GST_EVENT_STREAM_START:
    gst_lychee_indexer_stream_start (self, event);
    break;
  case GST_EVENT_CAPS: {
    GstCaps *caps;
    gboolean ret;

    gst_event_parse_caps (event, &caps);
    ret = lychee_model_slot_check_caps (&self->slot, GST_ELEMENT (self), pad, caps) &&
          gst_lychee_indexer_negotiate (self);
    gst_event_unref (event);
    return ret;
  }
  case GST_EVENT_SEGMENT: {
    const GstSegment *segment;

    gst_event_parse_segment (event, &segment);
    gst_lychee_indexer_segment (self, segment);
    break;
  }
  case GST_EVENT_EOS:
    gst_lychee_indexer_finish (self);
    break;
  case GST_EVENT_FLUSH_START:
    cancel_reading (self);
    break;
  case GST_EVENT_FLUSH_STOP:
    allow_reading (self);
    self->flushed = TRUE;
    self->discont = TRUE;
    break;
  default:
    break;
  }
  return gst_pad_event_default (pad, parent, event);
}

static gboolean
gst_lychee_indexer_query (GstPad *pad, GstObject *parent, GstQuery *query)
{
  GstLycheeIndexer *self = GST_LYCHEE_INDEXER (parent);

  return lychee_model_slot_answer_query (&self->slot, GST_ELEMENT (self), query) ||
         gst_pad_query_default (pad, parent, query);
}

static GstStateChangeReturn
gst_lychee_indexer_change_state (GstElement *element, GstStateChange transition)
{
  GstLycheeIndexer *self = GST_LYCHEE_INDEXER (element);
  GstStateChangeReturn ret;

  switch (transition) {
  case GST_STATE_CHANGE_NULL_TO_READY:
    if (!lychee_model_slot_open (&self->slot, element))
      return GST_STATE_CHANGE_FAILURE;
    break;
  case GST_STATE_CHANGE_READY_TO_PAUSED:
    self->resume = TRUE;
    allow_reading (self);
    break;
  case GST_STATE_CHANGE_PAUSED_TO_READY:
    cancel_reading (self);
    break;
  default:
    break;
  }

  ret = GST_ELEMENT_CLASS (parent_class)->change_state (element, transition);

  switch (transition) {
  case GST_STATE_CHANGE_PAUSED_TO_READY:
    save_session (self);
    gst_lychee_indexer_reset (self);
    g_clear_pointer (&self->stream_id, g_free);
    lychee_model_slot_forget_caps (&self->slot, element);
    gst_clear_object (&self->allocator);
    break;
  case GST_STATE_CHANGE_READY_TO_NULL:
    lychee_model_slot_close (&self->slot, element);
    break;
  default:
    break;
  }
  return ret;
}
