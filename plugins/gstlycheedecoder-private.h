/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "gstlycheedecoder.h"

#include "lychee-answer-queue.h"
#include "lychee-answer-writer.h"
#include "lychee-kv-memory.h"
#include "lychee-model-context.h"
#include "lychee-rolling.h"
#include "lychee-session.h"
#include "lychee-settings.h"

G_BEGIN_DECLS

/* What the parts of the element share: gstlycheedecoder.c is the object with its properties and
 * states, -answer.c asks and answers, -flow.c takes what comes through the pads. */

GST_DEBUG_CATEGORY_EXTERN (lychee_decoder_debug);
#define GST_CAT_DEFAULT lychee_decoder_debug

struct _GstLycheeDecoder {
  GstElement parent;

  GstPad *sinkpad;
  GstPad *srcpad;
  LycheeAnswerQueue *queue;

  /* under the object lock: settings */
  LycheeModelSlot slot;
  LycheeSettings settings;
  LycheeQuestion *question; /* what is asked at the end, and how; its sampler has its settings */
  char *summary_prompt;
  GstClockTime interval;
  guint64 interval_tokens;
  guint max_answers;
  LycheeStream stream;
  gboolean marks;

  /* under the object lock: the transcript, since anyone may ask */
  LycheeCache *cache; /* (nullable): nothing was read yet */
  LycheeChatFormat format;
  guint64 tokens;
  gboolean truncated;
  GstClockTime start; /* of the segment */
  gboolean json;      /* what downstream takes */
  guint64 n_asked;

  gint
      ends_waiting; /* atomic: somebody sees to it that questions do not wait for a word for ever */

  /* under the object lock: what was done */
  GstStructure *last; /* (nullable): figures of the last answer */
  guint n_answers;
  guint n_cancelled;
  guint n_empty;
  guint n_failed;

  /* of the streaming thread */
  LycheeKVAllocator *allocator; /* (nullable): that was proposed upstream */
  LycheeRolling rolling;
  LycheeAsk *summary; /* the last rolling summary that was asked for */
  GstClockTime summary_from;
  guint64 summary_since; /* tokens */
  gboolean flushed;      /* the next segment tells whether the transcript goes on */
  gboolean live;
};

GstFlowReturn gst_lychee_decoder_chain (GstPad *pad, GstObject *parent, GstBuffer *buffer);
GstFlowReturn gst_lychee_decoder_sink_event (GstPad *pad, GstObject *parent, GstEvent *event);
gboolean gst_lychee_decoder_src_event (GstPad *pad, GstObject *parent, GstEvent *event);
gboolean gst_lychee_decoder_sink_query (GstPad *pad, GstObject *parent, GstQuery *query);
gboolean gst_lychee_decoder_src_query (GstPad *pad, GstObject *parent, GstQuery *query);
gboolean gst_lychee_decoder_src_activate_mode (
    GstPad *pad, GstObject *parent, GstPadMode mode, gboolean active);
/* Of the streaming thread, or while there is none. */
void gst_lychee_decoder_forget_transcript (GstLycheeDecoder *self);

/* The signals, in any thread. */
char *gst_lychee_decoder_ask (
    GstLycheeDecoder *self, const char *prompt, const GstStructure *options);
/* What waited upstream when a question was asked has been read, up to @event. Takes it. */
void gst_lychee_decoder_end_drain (GstLycheeDecoder *self, GstEvent *event);
/* The transcript has ended: nothing waits upstream any more, and what was to say so may have come
 * there too late. */
void gst_lychee_decoder_end_drains (GstLycheeDecoder *self);
/* Something has been read: what is asked waits for little more. */
void gst_lychee_decoder_limit_drains (GstLycheeDecoder *self);
guint gst_lychee_decoder_cancel (GstLycheeDecoder *self, const char *id);
/* Takes @event if it is one by which to ask or cancel. @in_order: all that was said before it has
 * been read. */
gboolean gst_lychee_decoder_take_event (GstLycheeDecoder *self, GstEvent *event, gboolean in_order);

/* A question as the properties have it. (transfer full) */
LycheeAsk *gst_lychee_decoder_new_ask (GstLycheeDecoder *self, LycheeAskKind kind);
/* Puts @ask into the queue; @drain (nullable) goes upstream, and the answer does not begin before
 * it comes back with all words that wait. Takes it. FALSE where nothing is taken. That there is no
 * memory for the snapshot is reported as the answer. */
gboolean gst_lychee_decoder_submit (GstLycheeDecoder *self, LycheeAsk *ask, GstEvent *drain);
/* Makes the answer of a job of the queue, in a thread of the queue. */
void gst_lychee_decoder_make_answer (LycheeJob *job, gpointer user_data);

G_END_DECLS
