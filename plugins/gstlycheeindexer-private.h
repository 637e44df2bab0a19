/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "gstlycheeindexer.h"

#include "lychee-kv-memory.h"
#include "lychee-model-context.h"
#include "lychee-reading.h"
#include "lychee-session-cache.h"
#include "lychee-settings.h"

G_BEGIN_DECLS

/* What the parts of the element share: gstlycheeindexer.c is the object with its properties and
 * states, -flow.c reads what comes, -session.c makes the session, resumes and saves it. */

GST_DEBUG_CATEGORY_EXTERN (lychee_indexer_debug);
#define GST_CAT_DEFAULT lychee_indexer_debug

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
  GstClockTime latency;   /* of upstream */
  gboolean latency_stale; /* atomic: upstream may have another one now */

  /* the transcript being read, of the streaming thread */
  LycheeSession *session;
  LycheeChatFormat format; /* that the session found */
  LycheeReading reading;
  LycheeChunk *saved; /* (nullable): the last one that was loaded, where what follows counts time
                       * anew */
  gboolean full;
  gboolean failed; /* and said so: what follows is not tried */
  gboolean forgot; /* and said so */
  guint64 left_tokens;
  guint64 left_chunks;
  GstClockTime left_end;
  gboolean discont;
  gboolean cut;    /* at a place that a seek led to; nothing came since */
  gboolean behind; /* chunks waited when the last one was read */
  gboolean told;   /* what computes, where that is not what was asked for */
};

GstFlowReturn gst_lychee_indexer_chain (GstPad *pad, GstObject *parent, GstBuffer *buffer);
gboolean gst_lychee_indexer_sink_event (GstPad *pad, GstObject *parent, GstEvent *event);

/* Forgets the transcript: what comes is a new one. */
void gst_lychee_indexer_reset (GstLycheeIndexer *self);
/* After a seek back: what was said from @time on is forgotten, and read again; what was said before
 * stays as it is. */
void gst_lychee_indexer_cut (GstLycheeIndexer *self, GstClockTime time);
/* Ends the reading under way, in any thread; and what comes is read again. */
void gst_lychee_indexer_cancel_reading (GstLycheeIndexer *self);
void gst_lychee_indexer_allow_reading (GstLycheeIndexer *self);

/* Makes the session where there is none, and goes on with the saved one. FALSE: said why. */
gboolean gst_lychee_indexer_ensure_session (GstLycheeIndexer *self);
const char *gst_lychee_indexer_get_cache_type (GstLycheeIndexer *self);
/* What cannot be saved is said, and goes on. */
void gst_lychee_indexer_save_session (GstLycheeIndexer *self);
/* Counts what the session holds, and when it ends. */
void gst_lychee_indexer_count_read (GstLycheeIndexer *self);

G_END_DECLS
