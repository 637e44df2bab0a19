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
 * `positions`, "absolute" or "packed" (string; see #lycheeindexer:positions); `weights`, `cache`,
 * `index` and `available`, bytes that a full context will take, and that there are (guint64). Where
 * there is a CUDA device and `backend=auto` cannot use it, an INFO message says why when the first
 * chunk has been read.
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
 * small). While chunks wait in such a queue, and upstream is live, reading goes first: answers are
 * made for every fourth chunk only, until it has caught up.
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

#include "gstlycheeindexer-private.h"

#include "lychee-element.h"

GST_DEBUG_CATEGORY (lychee_indexer_debug);

#define KV_FIELDS                                                                                  \
  "layers = (int) [ 1, MAX ], kv-heads = (int) [ 1, MAX ], head-dim = (int) [ 1, MAX ], "          \
  "type = (string) { f16, q8_0 }"

enum {
  PROP_0,
  PROP_MODEL,
  PROP_LOCATION,
  PROP_SETTINGS,
};

static const char *const settings_names[] = { "system-prompt", "template", "max-context",
  "max-memory", "cache-type", "overflow", "positions", "reserve", "threads", "backend",
  "cuda-device", "granularity", "sinks", "window", "prefill", "budget", "beam", "rest", NULL };

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
static gboolean gst_lychee_indexer_query (GstPad *pad, GstObject *parent, GstQuery *query);
static gboolean gst_lychee_indexer_src_event (GstPad *pad, GstObject *parent, GstEvent *event);

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
   *
   * A seek back cuts what was saved as it cuts what was read. Where the times of what comes begin
   * anew, it is about these, and what was saved stays.
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
void
gst_lychee_indexer_reset (GstLycheeIndexer *self)
{
  g_clear_object (&self->session);
  g_clear_pointer (&self->saved, lychee_chunk_unref);
  lychee_reading_init (&self->reading);
  self->full = FALSE;
  self->failed = FALSE;
  self->forgot = FALSE;
  self->left_tokens = 0;
  self->left_chunks = 0;
  self->left_end = GST_CLOCK_TIME_NONE;
  self->flushed = FALSE;
  self->eos = FALSE;
  self->resumed = FALSE;
  self->unsaved = FALSE;
  self->discont = TRUE;
  self->cut = FALSE;
  self->behind = FALSE;
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
  gst_pad_set_event_function (self->srcpad, gst_lychee_indexer_src_event);
  gst_pad_use_fixed_caps (self->srcpad);
  lychee_pad_set_event_function (
      self->sinkpad, self->srcpad, &self->slot, gst_lychee_indexer_sink_event);
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

void
gst_lychee_indexer_cancel_reading (GstLycheeIndexer *self)
{
  GCancellable *cancellable;

  GST_OBJECT_LOCK (self);
  cancellable = g_object_ref (self->cancellable);
  GST_OBJECT_UNLOCK (self);
  g_cancellable_cancel (cancellable);
  g_object_unref (cancellable);
}

void
gst_lychee_indexer_allow_reading (GstLycheeIndexer *self)
{
  GCancellable *old;

  GST_OBJECT_LOCK (self);
  old = self->cancellable;
  self->cancellable = g_cancellable_new ();
  GST_OBJECT_UNLOCK (self);
  g_object_unref (old);
}

static gboolean
gst_lychee_indexer_src_event (GstPad *pad, GstObject *parent, GstEvent *event)
{
  if (GST_EVENT_TYPE (event) == GST_EVENT_LATENCY)
    g_atomic_int_set (&GST_LYCHEE_INDEXER (parent)->latency_stale, TRUE);
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

  lychee_model_slot_before_change (&self->slot, element, transition);
  switch (transition) {
  case GST_STATE_CHANGE_READY_TO_PAUSED:
    self->resume = TRUE;
    self->told = FALSE;
    gst_lychee_indexer_allow_reading (self);
    break;
  case GST_STATE_CHANGE_PAUSED_TO_READY:
    gst_lychee_indexer_cancel_reading (self);
    break;
  default:
    break;
  }

  ret = GST_ELEMENT_CLASS (parent_class)->change_state (element, transition);

  switch (transition) {
  case GST_STATE_CHANGE_PAUSED_TO_READY:
    gst_lychee_indexer_save_session (self);
    gst_lychee_indexer_reset (self);
    g_clear_pointer (&self->stream_id, g_free);
    gst_clear_object (&self->allocator);
    break;
  default:
    break;
  }
  lychee_model_slot_after_change (&self->slot, element, transition);
  return ret;
}
