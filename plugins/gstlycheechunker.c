/* SPDX-License-Identifier: LGPL-2.1-or-later */

/**
 * SECTION:element-lycheechunker
 * @title: lycheechunker
 *
 * Cuts a stream of tokens into chunks at natural places.
 *
 * Chunks have #lycheechunker:min-tokens to #lycheechunker:max-tokens tokens and end at the
 * strongest boundary in that range: a paragraph, a change of speaker, the end of a sentence, a
 * clause mark, the end of a word. Only at a paragraph, a change of speaker or the end is one
 * shorter. A chunk is the unit in which the transcript is read, indexed and cited.
 *
 * Besides, with #lycheechunker:detector as it is, a chunk ends where the subject changes, which
 * speech recognisers do not mark: where the tokens before and after a place differ much more in
 * meaning than is usual in this talk (see #lycheechunker:threshold). This takes the model, which
 * the elements around have; where they have none, or another one than the tokens are of, a warning
 * message says so, and chunks are cut by structure alone.
 *
 * A silence of #lycheechunker:silence or more that gap events tell of closes what is open: the
 * words before it need not wait for the words after it. One that is seen between the times of two
 * buffers starts a paragraph. In a live stream no word waits here for longer than
 * #lycheechunker:max-wait, which is part of the pipeline's latency. Everything open is closed on
 * end of stream, discontinuity and a new segment, and when somebody downstream wants it: at a
 * custom event `lychee-drain`, which is sent upstream and comes back behind the last chunk.
 *
 * Each output buffer is one chunk: its ids, the time of its first word as timestamp, a duration
 * that lasts to the end of its last word, and a LycheeChunkMeta with text, speaker, kind of
 * boundary, drift and number.
 *
 * ## Example launch line
 * |[
 * gst-launch-1.0 filesrc location=talk.srt ! subparse subtitle-encoding=UTF-8 ! lycheetokenizer !
 *     lycheechunker min-tokens=8 max-tokens=16 ! fakesink dump=true
 * ]|
 */

#include "gstlycheechunker.h"

#include "lychee-ask.h"
#include "lychee-chunker.h"
#include "lychee-drain.h"
#include "lychee-element.h"
#include "lychee-meta.h"
#include "lychee-model-context.h"
#include "lychee-wait.h"

GST_DEBUG_CATEGORY_STATIC (lychee_chunker_debug);
#define GST_CAT_DEFAULT lychee_chunker_debug

#define DEFAULT_MIN_TOKENS 8
#define DEFAULT_MAX_TOKENS 16
#define DEFAULT_SILENCE (2 * GST_SECOND)
#define DEFAULT_DETECTOR LYCHEE_DETECTOR_BOTH
#define DEFAULT_EMBEDDING LYCHEE_EMBEDDING_TABLE
#define DEFAULT_THRESHOLD 1.75
#define DEFAULT_LOOKAHEAD 32
#define DEFAULT_MAX_WAIT (5 * GST_SECOND)

enum {
  PROP_0,
  PROP_MIN_TOKENS,
  PROP_MAX_TOKENS,
  PROP_SILENCE,
  PROP_DETECTOR,
  PROP_EMBEDDING,
  PROP_THRESHOLD,
  PROP_LOOKAHEAD,
  PROP_MAX_WAIT,
};

/* When tokens came. */
typedef struct {
  guint64 end; /* how many there were with these */
  GstClockTime time;
} Arrival;

struct _GstLycheeChunker {
  GstElement parent;

  GstPad *sinkpad;
  GstPad *srcpad;

  /* under the object lock */
  guint min_tokens;
  guint max_tokens;
  GstClockTime silence;
  LycheeDetector detector;
  LycheeEmbedding embedding;
  double threshold;
  guint lookahead;

  /* of the streaming thread */
  LycheeModel *model; /* that the tokens are of, NULL where structure alone counts */
  LycheeChunker *chunker;
  GPtrArray *chunks;     /* LycheeChunk: settled, not pushed yet */
  GstClockTime said_end; /* when the last word ended */
  gboolean paragraph;    /* the next token starts one */
  gboolean flushed;      /* the next segment tells whether the transcript goes on */
  gboolean discont;
  LycheeWait wait;
  guint64 n_tokens; /* that came */
  GArray *arrivals; /* Arrival, oldest first: of the open tokens, where the stream is live */
};

static GstStaticPadTemplate sink_template = GST_STATIC_PAD_TEMPLATE (
    "sink", GST_PAD_SINK, GST_PAD_ALWAYS, GST_STATIC_CAPS ("application/x-lychee-tokens"));

static GstStaticPadTemplate src_template = GST_STATIC_PAD_TEMPLATE (
    "src", GST_PAD_SRC, GST_PAD_ALWAYS, GST_STATIC_CAPS ("application/x-lychee-chunks"));

#define gst_lychee_chunker_parent_class parent_class
G_DEFINE_TYPE_WITH_CODE (GstLycheeChunker, gst_lychee_chunker, GST_TYPE_ELEMENT,
    GST_DEBUG_CATEGORY_INIT (lychee_chunker_debug, "lycheechunker", 0, "Tokens to chunks"))
GST_ELEMENT_REGISTER_DEFINE (lycheechunker, "lycheechunker", GST_RANK_NONE, GST_TYPE_LYCHEE_CHUNKER)

static void gst_lychee_chunker_finalize (GObject *object);
static void gst_lychee_chunker_set_property (
    GObject *object, guint id, const GValue *value, GParamSpec *pspec);
static void gst_lychee_chunker_get_property (
    GObject *object, guint id, GValue *value, GParamSpec *pspec);
static GstStateChangeReturn gst_lychee_chunker_change_state (
    GstElement *element, GstStateChange transition);
static GstFlowReturn gst_lychee_chunker_chain (GstPad *pad, GstObject *parent, GstBuffer *buffer);
static gboolean gst_lychee_chunker_sink_event (GstPad *pad, GstObject *parent, GstEvent *event);
static gboolean gst_lychee_chunker_src_event (GstPad *pad, GstObject *parent, GstEvent *event);
static gboolean gst_lychee_chunker_src_query (GstPad *pad, GstObject *parent, GstQuery *query);
static void gst_lychee_chunker_hasten (GstElement *element);

static void
gst_lychee_chunker_class_init (GstLycheeChunkerClass *klass)
{
  GObjectClass *object_class = G_OBJECT_CLASS (klass);
  GstElementClass *element_class = GST_ELEMENT_CLASS (klass);

  object_class->finalize = gst_lychee_chunker_finalize;
  object_class->set_property = gst_lychee_chunker_set_property;
  object_class->get_property = gst_lychee_chunker_get_property;
  element_class->change_state = gst_lychee_chunker_change_state;

  /**
   * lycheechunker:min-tokens:
   *
   * Fewest tokens in a chunk, except at a paragraph, a change of speaker or the end. Where it is
   * more than #lycheechunker:max-tokens, that one counts.
   */
  g_object_class_install_property (object_class, PROP_MIN_TOKENS,
      g_param_spec_uint ("min-tokens", "Fewest tokens",
          "Fewest tokens in a chunk, except at a paragraph, a change of speaker or the end", 1,
          4096, DEFAULT_MIN_TOKENS,
          G_PARAM_READWRITE | G_PARAM_STATIC_STRINGS | GST_PARAM_MUTABLE_READY));

  /**
   * lycheechunker:max-tokens:
   *
   * Most tokens in a chunk.
   */
  g_object_class_install_property (object_class, PROP_MAX_TOKENS,
      g_param_spec_uint ("max-tokens", "Most tokens", "Most tokens in a chunk", 1, 4096,
          DEFAULT_MAX_TOKENS,
          G_PARAM_READWRITE | G_PARAM_STATIC_STRINGS | GST_PARAM_MUTABLE_READY));

  /**
   * lycheechunker:silence:
   *
   * Nanoseconds without words after which a paragraph starts.
   */
  g_object_class_install_property (object_class, PROP_SILENCE,
      g_param_spec_uint64 ("silence", "Silence",
          "Nanoseconds without words that close the open chunk and start a paragraph (0: any gap "
          "does)",
          0, G_MAXUINT64, DEFAULT_SILENCE,
          G_PARAM_READWRITE | G_PARAM_STATIC_STRINGS | GST_PARAM_MUTABLE_PLAYING));

  /**
   * lycheechunker:detector:
   *
   * What chunks are cut by.
   */
  g_object_class_install_property (object_class, PROP_DETECTOR,
      g_param_spec_enum ("detector", "Detector",
          "What chunks are cut by: what is written (structure), what is said (semantic), or both",
          LYCHEE_TYPE_DETECTOR, DEFAULT_DETECTOR,
          G_PARAM_READWRITE | G_PARAM_STATIC_STRINGS | GST_PARAM_MUTABLE_READY));

  /**
   * lycheechunker:embedding:
   *
   * What stands for a token's meaning where changes of subject are looked for: the model's table,
   * which is cheap and finds more, or what the model's first layer makes of the token among those
   * before it. With the latter, chunks come up to 16 tokens later.
   */
  g_object_class_install_property (object_class, PROP_EMBEDDING,
      g_param_spec_enum ("embedding", "Embedding",
          "What stands for a token's meaning: the model's table, or what its first layer makes of "
          "it among others (shallow)",
          LYCHEE_TYPE_EMBEDDING, DEFAULT_EMBEDDING,
          G_PARAM_READWRITE | G_PARAM_STATIC_STRINGS | GST_PARAM_MUTABLE_READY));

  /**
   * lycheechunker:threshold:
   *
   * How many standard deviations drift must be above its mean for a change of subject; mean and
   * deviation are those of the talk so far. Less finds more changes, and more that are none.
   */
  g_object_class_install_property (object_class, PROP_THRESHOLD,
      g_param_spec_double ("threshold", "Threshold",
          "Standard deviations above the mean drift at which the subject changes", 0, 100,
          DEFAULT_THRESHOLD, G_PARAM_READWRITE | G_PARAM_STATIC_STRINGS | GST_PARAM_MUTABLE_READY));

  /**
   * lycheechunker:lookahead:
   *
   * Tokens behind a place that are read to judge drift. A chunk comes when so many tokens and 40
   * more are there, or at a silence; with detector=structure, without that delay.
   */
  g_object_class_install_property (object_class, PROP_LOOKAHEAD,
      g_param_spec_uint ("lookahead", "Lookahead",
          "Tokens behind a place that are read to judge whether the subject changes there", 8, 512,
          DEFAULT_LOOKAHEAD, G_PARAM_READWRITE | G_PARAM_STATIC_STRINGS | GST_PARAM_MUTABLE_READY));

  /**
   * lycheechunker:max-wait:
   *
   * In a live stream, how long a token waits at most for those that decide where its chunk ends;
   * then it ends at the best place up to there. Changes of subject are found where that is long
   * enough for #lycheechunker:lookahead: some 25 s of talk with the lookahead as it is.
   */
  g_object_class_install_property (object_class, PROP_MAX_WAIT,
      g_param_spec_uint64 ("max-wait", "Maximum wait",
          "In a live stream, nanoseconds that a token waits at most for what decides where its "
          "chunk ends; part of the latency (-1: for ever, which is not)",
          0, G_MAXUINT64, DEFAULT_MAX_WAIT,
          G_PARAM_READWRITE | G_PARAM_STATIC_STRINGS | GST_PARAM_MUTABLE_PLAYING));

  gst_element_class_add_static_pad_template (element_class, &sink_template);
  gst_element_class_add_static_pad_template (element_class, &src_template);
  gst_element_class_set_static_metadata (element_class, "Lychee chunker", "Filter/Text",
      "Cuts a stream of tokens into chunks at natural places", "The Lychee authors");
}

static void
gst_lychee_chunker_init (GstLycheeChunker *self)
{
  self->min_tokens = DEFAULT_MIN_TOKENS;
  self->max_tokens = DEFAULT_MAX_TOKENS;
  self->silence = DEFAULT_SILENCE;
  self->detector = DEFAULT_DETECTOR;
  self->embedding = DEFAULT_EMBEDDING;
  self->threshold = DEFAULT_THRESHOLD;
  self->lookahead = DEFAULT_LOOKAHEAD;
  self->arrivals = g_array_new (FALSE, FALSE, sizeof (Arrival));
  self->chunks = g_ptr_array_new_with_free_func ((GDestroyNotify) lychee_chunk_unref);
  self->said_end = GST_CLOCK_TIME_NONE;
  self->discont = TRUE;

  self->sinkpad = gst_pad_new_from_static_template (&sink_template, "sink");
  gst_pad_set_chain_function (self->sinkpad, gst_lychee_chunker_chain);
  gst_element_add_pad (GST_ELEMENT (self), self->sinkpad);
  lychee_wait_init (
      &self->wait, GST_ELEMENT (self), self->sinkpad, DEFAULT_MAX_WAIT, gst_lychee_chunker_hasten);

  self->srcpad = gst_pad_new_from_static_template (&src_template, "src");
  gst_pad_use_fixed_caps (self->srcpad);
  gst_pad_set_event_function (self->srcpad, gst_lychee_chunker_src_event);
  gst_pad_set_query_function (self->srcpad, gst_lychee_chunker_src_query);
  lychee_pad_set_event_function (self->sinkpad, self->srcpad, NULL, gst_lychee_chunker_sink_event);
  gst_element_add_pad (GST_ELEMENT (self), self->srcpad);
}

/* How many of the @n_open tokens have waited for long enough at @now. */
static guint
count_overdue (GstLycheeChunker *self, guint n_open, GstClockTime now)
{
  guint64 n_closed = self->n_tokens - n_open, n_overdue = n_closed;

  for (guint i = 0; i < self->arrivals->len; i++) {
    const Arrival *arrival = &g_array_index (self->arrivals, Arrival, i);

    if (lychee_wait_get_end (&self->wait, arrival->time) > now)
      break;
    n_overdue = MAX (arrival->end, n_closed);
  }
  return n_overdue - n_closed;
}

/* Forgets when tokens came that are in chunks now; the first of the others is what is waited for.
 */
static void
update_wait (GstLycheeChunker *self)
{
  guint n_open = self->chunker != NULL ? lychee_chunker_get_n_open (self->chunker) : 0;
  guint64 n_closed = self->n_tokens - n_open;
  guint n_gone = 0;
  GstClockTime first = GST_CLOCK_TIME_NONE;

  while (n_gone < self->arrivals->len &&
         g_array_index (self->arrivals, Arrival, n_gone).end <= n_closed)
    n_gone++;
  g_array_remove_range (self->arrivals, 0, n_gone);
  if (self->arrivals->len > 0)
    first = g_array_index (self->arrivals, Arrival, 0).time;
  lychee_wait_since (&self->wait, first);
}

static void
note_arrival (GstLycheeChunker *self, gsize n)
{
  Arrival arrival;

  self->n_tokens += n;
  arrival.end = self->n_tokens;
  arrival.time = lychee_wait_get_now (&self->wait);
  if (GST_CLOCK_TIME_IS_VALID (arrival.time) && n > 0)
    g_array_append_val (self->arrivals, arrival);
}

/* Forgets what is open, and begins to count chunks again. */
static void
gst_lychee_chunker_reset (GstLycheeChunker *self)
{
  g_clear_object (&self->chunker);
  g_ptr_array_set_size (self->chunks, 0);
  update_wait (self);
  self->said_end = GST_CLOCK_TIME_NONE;
  self->paragraph = FALSE;
  self->flushed = FALSE;
  self->discont = TRUE;
}

/* Throws away what is open. */
static void
gst_lychee_chunker_flush (GstLycheeChunker *self)
{
  if (self->chunker != NULL)
    lychee_chunker_drain (self->chunker, self->chunks);
  g_ptr_array_set_size (self->chunks, 0);
  update_wait (self);
  self->flushed = TRUE;
  self->discont = TRUE;
}

static void
gst_lychee_chunker_finalize (GObject *object)
{
  GstLycheeChunker *self = GST_LYCHEE_CHUNKER (object);

  gst_lychee_chunker_reset (self);
  g_clear_object (&self->model);
  g_ptr_array_unref (self->chunks);
  g_array_unref (self->arrivals);
  lychee_wait_clear (&self->wait);
  G_OBJECT_CLASS (parent_class)->finalize (object);
}

static void
gst_lychee_chunker_set_property (GObject *object, guint id, const GValue *value, GParamSpec *pspec)
{
  GstLycheeChunker *self = GST_LYCHEE_CHUNKER (object);

  if (id == PROP_MAX_WAIT) { /* it has a lock of its own, which this one does not go around */
    lychee_wait_set_max (&self->wait, g_value_get_uint64 (value));
    return;
  }
  GST_OBJECT_LOCK (self);
  switch (id) {
  case PROP_MIN_TOKENS:
    self->min_tokens = g_value_get_uint (value);
    break;
  case PROP_MAX_TOKENS:
    self->max_tokens = g_value_get_uint (value);
    break;
  case PROP_SILENCE:
    self->silence = g_value_get_uint64 (value);
    break;
  case PROP_DETECTOR:
    self->detector = g_value_get_enum (value);
    break;
  case PROP_EMBEDDING:
    self->embedding = g_value_get_enum (value);
    break;
  case PROP_THRESHOLD:
    self->threshold = g_value_get_double (value);
    break;
  case PROP_LOOKAHEAD:
    self->lookahead = g_value_get_uint (value);
    break;
  default:
    G_OBJECT_WARN_INVALID_PROPERTY_ID (object, id, pspec);
  }
  GST_OBJECT_UNLOCK (self);
}

static void
gst_lychee_chunker_get_property (GObject *object, guint id, GValue *value, GParamSpec *pspec)
{
  GstLycheeChunker *self = GST_LYCHEE_CHUNKER (object);

  if (id == PROP_MAX_WAIT) {
    g_value_set_uint64 (value, lychee_wait_get_max (&self->wait));
    return;
  }
  GST_OBJECT_LOCK (self);
  switch (id) {
  case PROP_MIN_TOKENS:
    g_value_set_uint (value, self->min_tokens);
    break;
  case PROP_MAX_TOKENS:
    g_value_set_uint (value, self->max_tokens);
    break;
  case PROP_SILENCE:
    g_value_set_uint64 (value, self->silence);
    break;
  case PROP_DETECTOR:
    g_value_set_enum (value, self->detector);
    break;
  case PROP_EMBEDDING:
    g_value_set_enum (value, self->embedding);
    break;
  case PROP_THRESHOLD:
    g_value_set_double (value, self->threshold);
    break;
  case PROP_LOOKAHEAD:
    g_value_set_uint (value, self->lookahead);
    break;
  default:
    G_OBJECT_WARN_INVALID_PROPERTY_ID (object, id, pspec);
  }
  GST_OBJECT_UNLOCK (self);
}

static GstClockTime
get_silence (GstLycheeChunker *self)
{
  GstClockTime silence;

  GST_OBJECT_LOCK (self);
  silence = self->silence;
  GST_OBJECT_UNLOCK (self);
  return silence;
}

static void
ensure_chunker (GstLycheeChunker *self)
{
  LycheeDetector detector;
  LycheeEmbedding embedding;
  guint min_tokens, max_tokens, lookahead;
  double threshold;

  if (self->chunker != NULL)
    return;
  GST_OBJECT_LOCK (self);
  max_tokens = self->max_tokens;
  min_tokens = MIN (self->min_tokens, max_tokens);
  detector = self->detector;
  embedding = self->embedding;
  threshold = self->threshold;
  lookahead = self->lookahead;
  GST_OBJECT_UNLOCK (self);
  self->chunker = g_object_new (LYCHEE_TYPE_CHUNKER, "min-tokens", min_tokens, "max-tokens",
      max_tokens, "model", self->model, "detector", detector, "embedding", embedding, "threshold",
      threshold, "lookahead", lookahead, NULL);
}

static GstFlowReturn
push_chunk (GstLycheeChunker *self, LycheeChunk *chunk)
{
  gsize size = chunk->n_ids * sizeof (gint32);
  /* The buffer shows the chunk's own ids, which never change. */
  GstBuffer *buffer = gst_buffer_new_wrapped_full (GST_MEMORY_FLAG_READONLY, (gpointer) chunk->ids,
      size, 0, size, lychee_chunk_ref (chunk), (GDestroyNotify) lychee_chunk_unref);

  GST_BUFFER_PTS (buffer) = chunk->pts;
  GST_BUFFER_DURATION (buffer) = chunk->duration;
  GST_BUFFER_OFFSET (buffer) = chunk->number;
  if (self->discont) {
    GST_BUFFER_FLAG_SET (buffer, GST_BUFFER_FLAG_DISCONT);
    self->discont = FALSE;
  }
  lychee_buffer_add_chunk_meta (buffer, chunk);
  GST_LOG_OBJECT (self, "chunk %" G_GUINT64_FORMAT ": %u tokens, ends at %s", chunk->number,
      chunk->n_ids, lychee_boundary_to_string (chunk->boundary));
  return gst_pad_push (self->srcpad, buffer);
}

static GstFlowReturn
push_settled (GstLycheeChunker *self)
{
  GstFlowReturn ret = GST_FLOW_OK;

  for (guint i = 0; i < self->chunks->len && ret == GST_FLOW_OK; i++)
    ret = push_chunk (self, g_ptr_array_index (self->chunks, i));
  g_ptr_array_set_size (self->chunks, 0);
  update_wait (self);
  return ret;
}

/* Closes what has waited for long enough. */
static void
gst_lychee_chunker_hasten (GstElement *element)
{
  GstLycheeChunker *self = GST_LYCHEE_CHUNKER (element);
  guint n_open = self->chunker != NULL ? lychee_chunker_get_n_open (self->chunker) : 0;

  if (n_open > 0)
    lychee_chunker_hasten (self->chunker,
        count_overdue (self, n_open, lychee_wait_get_now (&self->wait)), self->chunks);
  push_settled (self);
}

/* Closes what is open. */
static GstFlowReturn
gst_lychee_chunker_drain (GstLycheeChunker *self)
{
  if (self->chunker == NULL)
    return GST_FLOW_OK;
  lychee_chunker_drain (self->chunker, self->chunks);
  return push_settled (self);
}

/* The buffer's ids are tokens with text of the meta; FALSE where they contradict each other. */
static gboolean
push_tokens (GstLycheeChunker *self, GstBuffer *buffer, const gint32 *ids, gsize n)
{
  LycheeTextMeta *meta = lychee_buffer_get_text_meta (buffer);
  LycheeChunkerToken token = { 0 };

  if (meta != NULL && meta->n_tokens != n)
    return FALSE;
  token.pts = GST_BUFFER_PTS (buffer);
  token.duration = GST_BUFFER_DURATION (buffer);
  token.speaker = meta != NULL ? meta->speaker : NULL;

  for (gsize i = 0; i < n; i++) {
    token.id = ids[i];
    token.text = "";
    token.text_length = 0;
    if (meta != NULL) {
      const LycheeToken *place = &meta->tokens[i];

      if (place->id != ids[i] || place->offset > meta->text_length ||
          place->length > meta->text_length - place->offset)
        return FALSE;
      token.text = meta->text + place->offset;
      token.text_length = place->length;
    }
    token.paragraph = self->paragraph;
    self->paragraph = FALSE;
    lychee_chunker_push (self->chunker, &token, self->chunks);
  }
  return TRUE;
}

static void
note_silence (GstLycheeChunker *self, GstBuffer *buffer)
{
  GstClockTime pts = GST_BUFFER_PTS (buffer);

  if (!GST_CLOCK_TIME_IS_VALID (pts))
    return;
  if (GST_CLOCK_TIME_IS_VALID (self->said_end) && pts > self->said_end &&
      pts - self->said_end >= get_silence (self))
    self->paragraph = TRUE;
  if (GST_BUFFER_DURATION_IS_VALID (buffer))
    pts += GST_BUFFER_DURATION (buffer);
  /* Cues may overlap. */
  if (!GST_CLOCK_TIME_IS_VALID (self->said_end) || pts > self->said_end)
    self->said_end = pts;
}

static GstFlowReturn
gst_lychee_chunker_chain (GstPad *pad, GstObject *parent, GstBuffer *buffer)
{
  GstLycheeChunker *self = GST_LYCHEE_CHUNKER (parent);
  GstFlowReturn ret = GST_FLOW_OK;
  GstMapInfo map;
  gboolean valid;
  gsize n;

  if (!gst_pad_has_current_caps (self->srcpad)) {
    gst_buffer_unref (buffer);
    /* Shutting down takes the caps away too. */
    return GST_PAD_IS_FLUSHING (self->srcpad) ? GST_FLOW_FLUSHING : GST_FLOW_NOT_NEGOTIATED;
  }
  if (GST_BUFFER_IS_DISCONT (buffer)) {
    ret = gst_lychee_chunker_drain (self);
    self->discont = TRUE;
    if (ret != GST_FLOW_OK) {
      gst_buffer_unref (buffer);
      return ret;
    }
  }

  ensure_chunker (self);
  if (!gst_buffer_map (buffer, &map, GST_MAP_READ)) {
    GST_ELEMENT_ERROR (
        self, RESOURCE, READ, ("The tokens could not be read."), ("gst_buffer_map failed"));
    gst_buffer_unref (buffer);
    return GST_FLOW_ERROR;
  }
  note_silence (self, buffer);
  n = map.size / sizeof (gint32);
  valid =
      map.size % sizeof (gint32) == 0 && push_tokens (self, buffer, (const gint32 *) map.data, n);
  gst_buffer_unmap (buffer, &map);

  if (valid) {
    note_arrival (self, n);
    ret = push_settled (self);
  } else {
    GST_ELEMENT_ERROR (self, STREAM, FORMAT,
        ("What arrives here as tokens is broken: the ids and what is said about them differ."),
        ("%" GST_PTR_FORMAT, buffer));
    ret = GST_FLOW_ERROR;
  }
  gst_buffer_unref (buffer);
  return ret;
}

/* Drift is measured with the model that the tokens are of. */
static void
find_model (GstLycheeChunker *self, const char *id)
{
  LycheeModel *model = NULL;
  LycheeDetector detector;

  GST_OBJECT_LOCK (self);
  detector = self->detector;
  GST_OBJECT_UNLOCK (self);
  if (detector != LYCHEE_DETECTOR_STRUCTURE) {
    model = lychee_model_find (GST_ELEMENT (self), id);
    if (model == NULL)
      GST_ELEMENT_WARNING (self, LIBRARY, SETTINGS,
          ("Changes of subject are not looked for: no element beside this one has the model that "
           "the tokens are of. Chunks are cut by structure alone."),
          ("model %s", id != NULL ? id : "(none)"));
  }
  if (model != self->model)
    g_clear_object (&self->chunker);
  g_clear_object (&self->model);
  self->model = model;
}

static gboolean
gst_lychee_chunker_set_caps (GstLycheeChunker *self, GstCaps *caps)
{
  const char *model = gst_structure_get_string (gst_caps_get_structure (caps, 0), "model");
  GstCaps *src_caps = gst_caps_new_empty_simple ("application/x-lychee-chunks");
  gboolean ret;

  find_model (self, model);
  if (model != NULL)
    gst_caps_set_simple (src_caps, "model", G_TYPE_STRING, model, NULL);
  ret = gst_pad_set_caps (self->srcpad, src_caps);
  gst_caps_unref (src_caps);
  return ret;
}

static void
gst_lychee_chunker_segment (GstLycheeChunker *self, GstEvent *event)
{
  const GstSegment *segment;

  gst_event_parse_segment (event, &segment);
  if (self->flushed && !lychee_segment_goes_on (segment, self->said_end))
    gst_lychee_chunker_reset (self);
  else
    gst_lychee_chunker_drain (self);
  self->flushed = FALSE;
  lychee_wait_note_segment (&self->wait);
}

/* A gap that lasts as long as a silence, counted from the last word on, closes what is open. */
static void
gst_lychee_chunker_gap (GstLycheeChunker *self, GstEvent *event)
{
  GstClockTime pts, duration, end;

  gst_event_parse_gap (event, &pts, &duration);
  if (GST_CLOCK_TIME_IS_VALID (duration) && GST_CLOCK_TIME_IS_VALID (self->said_end)) {
    end = pts + duration;
    if (end < self->said_end || end - self->said_end < get_silence (self))
      return;
  }
  gst_lychee_chunker_drain (self);
}

static gboolean
gst_lychee_chunker_sink_event (GstPad *pad, GstObject *parent, GstEvent *event)
{
  GstLycheeChunker *self = GST_LYCHEE_CHUNKER (parent);

  GST_LOG_OBJECT (self, "%" GST_PTR_FORMAT, event);

  switch (GST_EVENT_TYPE (event)) {
  case GST_EVENT_STREAM_START:
    gst_lychee_chunker_drain (self);
    gst_lychee_chunker_reset (self);
    break;
  case GST_EVENT_CAPS: {
    GstCaps *caps;
    gboolean ret;

    gst_event_parse_caps (event, &caps);
    gst_lychee_chunker_drain (self);
    ret = gst_lychee_chunker_set_caps (self, caps);
    gst_event_unref (event);
    return ret;
  }
  case GST_EVENT_SEGMENT:
    gst_lychee_chunker_segment (self, event);
    break;
  case GST_EVENT_EOS:
  case GST_EVENT_SEGMENT_DONE:
    gst_lychee_chunker_drain (self);
    break;
  case GST_EVENT_CUSTOM_DOWNSTREAM:
    /* What was said before a question is part of what it is about. */
    if (gst_event_has_name (event, LYCHEE_ASK_EVENT) ||
        gst_event_has_name (event, LYCHEE_DRAIN_EVENT))
      gst_lychee_chunker_drain (self);
    break;
  case GST_EVENT_GAP:
    gst_lychee_chunker_gap (self, event);
    break;
  case GST_EVENT_FLUSH_STOP:
    gst_lychee_chunker_flush (self);
    break;
  default:
    break;
  }
  return gst_pad_event_default (pad, parent, event);
}

/* A tokenizer upstream has text to hand on first. */
static gboolean
gst_lychee_chunker_src_event (GstPad *pad, GstObject *parent, GstEvent *event)
{
  return lychee_drain_src_event (pad, parent, GST_LYCHEE_CHUNKER (parent)->sinkpad, FALSE, event);
}

static gboolean
gst_lychee_chunker_src_query (GstPad *pad, GstObject *parent, GstQuery *query)
{
  GstLycheeChunker *self = GST_LYCHEE_CHUNKER (parent);

  if (GST_QUERY_TYPE (query) == GST_QUERY_LATENCY)
    return lychee_wait_query_latency (&self->wait, query);
  return gst_pad_query_default (pad, parent, query);
}

static GstStateChangeReturn
gst_lychee_chunker_change_state (GstElement *element, GstStateChange transition)
{
  GstStateChangeReturn ret = GST_ELEMENT_CLASS (parent_class)->change_state (element, transition);

  lychee_wait_change_state (&GST_LYCHEE_CHUNKER (element)->wait, transition);
  if (transition == GST_STATE_CHANGE_PAUSED_TO_READY) {
    gst_lychee_chunker_reset (GST_LYCHEE_CHUNKER (element));
    g_clear_object (&GST_LYCHEE_CHUNKER (element)->model);
  }
  return ret;
}
