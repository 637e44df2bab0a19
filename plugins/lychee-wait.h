/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <gst/gst.h>

G_BEGIN_DECLS

/* Text of a live stream that waits for what comes behind it must not wait for ever: nobody may say
 * another word. An element has one of these, says since when it holds something, and is told when
 * that has waited for the maximum, which is part of the element's latency. Only a live stream in
 * PLAYING is waited for; time is running time, so that a pause does not count. */
typedef struct {
  GstElement *element; /* which this is a part of */
  GstPad *sinkpad;
  void (*expire) (GstElement *element);

  gboolean live; /* of the streaming thread */
  /*< private >*/
  GMutex lock; /* of all below */
  gboolean playing;
  GstClockTime max;      /* none: for ever */
  GstClockTime deadline; /* running time, or none */
  GstClockID id;         /* what tells of it, or NULL */
} LycheeWait;

/* @expire is called with the stream lock of @sinkpad, as a chain function is, from a thread of its
 * own; it hands on what has waited and sets another deadline, or none. */
void lychee_wait_init (LycheeWait *wait, GstElement *element, GstPad *sinkpad, GstClockTime max,
    void (*expire) (GstElement *element));
void lychee_wait_clear (LycheeWait *wait);
/* How long something may wait at most; none: for ever. What is held already keeps its time. Not
 * under the element's object lock, here and below. */
void lychee_wait_set_max (LycheeWait *wait, GstClockTime max);
GstClockTime lychee_wait_get_max (LycheeWait *wait);

/* Of the streaming thread. A segment has begun: is its source live? */
void lychee_wait_note_segment (LycheeWait *wait);
/* The running time, or none where nothing is waited for. */
GstClockTime lychee_wait_get_now (LycheeWait *wait);
/* When what has been held since @since has waited long enough; none: it may wait for ever. */
GstClockTime lychee_wait_get_end (LycheeWait *wait, GstClockTime since);
/* Since when something is held; none: nothing is, or nothing that must not wait. */
void lychee_wait_since (LycheeWait *wait, GstClockTime since);

/* After the parent class changed the state. */
void lychee_wait_change_state (LycheeWait *wait, GstStateChange transition);
/* Answers a LATENCY query on the source pad: upstream's, and the maximum more. */
gboolean lychee_wait_query_latency (LycheeWait *wait, GstQuery *query);

G_END_DECLS
