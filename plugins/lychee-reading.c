/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "lychee-reading.h"

#define PROGRESS_INTERVAL (G_USEC_PER_SEC / 4)
/* Later than this is behind, sooner than half of it no more. */
#define BEHIND (5 * GST_SECOND)
#define BEHIND_INTERVAL (5 * G_USEC_PER_SEC)
void
lychee_reading_init (LycheeReading *reading)
{
  *reading = (LycheeReading){ .end = GST_CLOCK_TIME_NONE };
}

/* How much of the transcript has been read, 0 .. 1; -1 where upstream does not know its length. By
 * what was read, not by what upstream has handed on: between the two there may be all of it. Of a
 * file whose length in time is not known, the bytes of the text count, which are not all. */
static double
get_share (LycheeReading *reading, GstPad *sinkpad)
{
  gint64 length;

  if (GST_CLOCK_TIME_IS_VALID (reading->end) &&
      gst_pad_peer_query_duration (sinkpad, GST_FORMAT_TIME, &length) && length > 0)
    return CLAMP ((double) reading->end / length, 0, 1);
  if (gst_pad_peer_query_duration (sinkpad, GST_FORMAT_BYTES, &length) && length > 0)
    return CLAMP ((double) reading->bytes / length, 0, 1);
  return -1;
}

void
lychee_reading_progress (
    LycheeReading *reading, GstElement *element, GstPad *sinkpad, gboolean finished)
{
  gint64 now = g_get_monotonic_time ();
  double seconds = reading->busy / (double) G_USEC_PER_SEC, share;
  GstStructure *structure;

  if (!finished && now - reading->progress_time < PROGRESS_INTERVAL)
    return;
  reading->progress_time = now;
  structure = gst_structure_new ("lychee-progress", "tokens", G_TYPE_UINT, (guint) reading->tokens,
      "chunks", G_TYPE_UINT, (guint) reading->chunks, "rate", G_TYPE_DOUBLE,
      seconds > 0 ? reading->tokens / seconds : 0.0, "seconds", G_TYPE_DOUBLE, seconds, NULL);
  share = finished ? 1 : get_share (reading, sinkpad);
  if (share >= 0)
    gst_structure_set (structure, "percent", G_TYPE_DOUBLE, 100 * share, NULL);
  if (share > 0)
    gst_structure_set (
        structure, "seconds-left", G_TYPE_DOUBLE, seconds * (1 - share) / share, NULL);
  gst_element_post_message (
      element, gst_message_new_element (GST_OBJECT_CAST (element), structure));
}

gboolean
lychee_reading_is_live (GstPad *sinkpad, GstClockTime *latency)
{
  GstQuery *query = gst_query_new_latency ();
  gboolean live = FALSE;

  *latency = 0;
  if (gst_pad_peer_query (sinkpad, query))
    gst_query_parse_latency (query, &live, latency, NULL);
  gst_query_unref (query);
  return live;
}

static void
post_behind (LycheeReading *reading, GstElement *element, GstClockTime behind)
{
  double seconds = reading->busy / (double) G_USEC_PER_SEC;

  gst_element_post_message (
      element, gst_message_new_element (GST_OBJECT_CAST (element),
                   gst_structure_new ("lychee-behind", "behind", G_TYPE_UINT64, behind, "tokens",
                       G_TYPE_UINT, (guint) reading->tokens, "rate", G_TYPE_DOUBLE,
                       seconds > 0 ? reading->tokens / seconds : 0.0, NULL)));
}

void
lychee_reading_lateness (
    LycheeReading *reading, GstElement *element, GstClockTime time, GstClockTime latency)
{
  GstClock *clock = gst_element_get_clock (element);
  GstClockTime now, behind = 0;
  gint64 posted = reading->behind_time, present = g_get_monotonic_time ();

  if (clock == NULL || !GST_CLOCK_TIME_IS_VALID (time)) {
    gst_clear_object (&clock);
    return;
  }
  now = gst_clock_get_time (clock);
  time += gst_element_get_base_time (element) + latency;
  gst_object_unref (clock);
  if (now > time)
    behind = now - time;

  if (behind >= BEHIND && (posted == 0 || present - posted >= BEHIND_INTERVAL)) {
    reading->behind_time = present;
    post_behind (reading, element, behind);
  } else if (behind < BEHIND / 2 && posted != 0) {
    reading->behind_time = 0;
    post_behind (reading, element, behind);
  }
}
