/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <gst/gst.h>

G_BEGIN_DECLS

/* A custom event: so many `chunks` (uint) of a live transcript wait to be read. */
#define LYCHEE_BACKLOG_EVENT "lychee-backlog"

/* How the reading of a transcript goes, and what is said of it on the bus. Of the streaming thread.
 */
typedef struct {
  guint64 tokens;
  guint64 chunks;
  guint64 bytes;    /* of text */
  GstClockTime end; /* of the last word read */
  gint64 busy;      /* microseconds of reading */
  /*< private >*/
  gint64 progress_time; /* monotonic */
  gint64 behind_time;   /* when it was last said, 0: it is not behind */
} LycheeReading;

/* A new transcript. */
void lychee_reading_init (LycheeReading *reading);

/* Posts an element message `lychee-progress`: now and then, and always with @finished. */
void lychee_reading_progress (
    LycheeReading *reading, GstElement *element, GstPad *sinkpad, gboolean finished);

/* Whether upstream is live, and its latency. */
gboolean lychee_reading_is_live (GstPad *sinkpad, GstClockTime *latency);

/* After a chunk that ends at running time @time has been read: posts an element message
 * `lychee-behind` where that is long after it was said, and when that is over. @latency: of
 * upstream. */
void lychee_reading_lateness (
    LycheeReading *reading, GstElement *element, GstClockTime time, GstClockTime latency);

G_END_DECLS
