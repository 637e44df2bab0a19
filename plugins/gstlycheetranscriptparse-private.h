/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "gstlycheetranscriptparse.h"

#include "lychee-hygiene.h"
#include "lychee-wait.h"

G_BEGIN_DECLS

/* What the parts of the element share: gstlycheetranscriptparse.c is the object with its
 * properties, -flow.c makes buffers of input, -seek.c pulls, seeks and answers queries. */

#define LYCHEE_TRANSCRIPT_BLOCK_SIZE (64 * 1024)

typedef enum {
  INPUT_BYTES,
  INPUT_CUES,     /* a buffer is a cue, with its times */
  INPUT_DIALOGUE, /* a buffer is a line of ASS, without its times, as Matroska has it */
} Input;

struct _GstLycheeTranscriptParse {
  GstElement parent;

  GstPad *sinkpad;
  GstPad *srcpad;

  /* under the object lock */
  LycheeTranscriptFormat format;
  char *encoding;
  LycheeTranscriptReport report;
  LycheeHygieneReport hygiene_report;
  LycheeTranscriptFormat found_format;
  guint64 n_bytes;
  GstClockTime position;
  GstClockTime end_time; /* of a transcript that was surveyed */
  gboolean pulling;
  GstSegment sought; /* when pushed to: what a seek that is under way leads to */
  gboolean is_sought;

  /* of the streaming thread */
  LycheeTranscriptParser *parser; /* NULL until the first byte */
  LycheeTranscriptSurvey *survey; /* of a file */
  GByteArray *collected;          /* of a file that is pushed, until its end; or NULL */
  LycheeHygiene *hygiene;
  GPtrArray *parsed; /* cues */
  GPtrArray *clean;
  Input input;
  gboolean markup; /* cues are of pango-markup */
  gboolean stream_started;
  gboolean caps_sent;
  GstSegment segment; /* TIME, as sent downstream */
  gboolean segment_pending;
  gboolean upstream_timed; /* upstream's segment is the one downstream */
  gboolean discont;
  gboolean language_sent;
  gboolean warned;
  gboolean refused; /* it is no text, which was told */
  gboolean is_file; /* upstream can be read again */
  guint64 offset;   /* of the next byte to pull */
  guint32 seqnum;   /* of the segment, and of what ends it */
  LycheeWait wait;
  gboolean finals; /* the recogniser tells what is final */
};

GstFlowReturn gst_lychee_transcript_parse_chain (GstPad *pad, GstObject *parent, GstBuffer *buffer);
gboolean gst_lychee_transcript_parse_sink_event (GstPad *pad, GstObject *parent, GstEvent *event);
gboolean gst_lychee_transcript_parse_activate (GstPad *pad, GstObject *parent);
gboolean gst_lychee_transcript_parse_activate_mode (
    GstPad *pad, GstObject *parent, GstPadMode mode, gboolean active);
gboolean gst_lychee_transcript_parse_src_event (GstPad *pad, GstObject *parent, GstEvent *event);
gboolean gst_lychee_transcript_parse_src_query (GstPad *pad, GstObject *parent, GstQuery *query);

/* Hands on what is held of a live stream. */
void gst_lychee_transcript_parse_hasten (GstElement *element);
void gst_lychee_transcript_parse_reset (GstLycheeTranscriptParse *self);
LycheeTranscriptSurvey *gst_lychee_transcript_parse_new_survey (GstLycheeTranscriptParse *self);
gboolean gst_lychee_transcript_parse_begins_with_text (
    GstLycheeTranscriptParse *self, const guint8 *data, gsize size);
GstFlowReturn gst_lychee_transcript_parse_bytes (GstLycheeTranscriptParse *self, GstBuffer *buffer);
void gst_lychee_transcript_parse_end_survey (GstLycheeTranscriptParse *self);
/* Ends the transcript: pushes what is held. */
GstFlowReturn gst_lychee_transcript_parse_finish (GstLycheeTranscriptParse *self);
/* The events that go before the first buffer, where they have not. */
void gst_lychee_transcript_parse_send_events (GstLycheeTranscriptParse *self);

G_END_DECLS
