/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "lychee-wait.h"

#include "lychee-reading.h"

void
lychee_wait_init (LycheeWait *wait, GstElement *element, GstPad *sinkpad, GstClockTime max,
    void (*expire) (GstElement *element))
{
  *wait = (LycheeWait){ .element = element,
    .sinkpad = sinkpad,
    .expire = expire,
    .max = max,
    .deadline = GST_CLOCK_TIME_NONE };
  g_mutex_init (&wait->lock);
}

/* Under the lock. */
static void
unschedule (LycheeWait *wait)
{
  if (wait->id == NULL)
    return;
  gst_clock_id_unschedule (wait->id);
  g_clear_pointer (&wait->id, gst_clock_id_unref);
}

void
lychee_wait_clear (LycheeWait *wait)
{
  unschedule (wait);
  g_mutex_clear (&wait->lock);
}

static void
hand_on (GstElement *element, gpointer data)
{
  LycheeWait *wait = data;
  gboolean due;

  GST_PAD_STREAM_LOCK (wait->sinkpad);
  /* It may have been put off meanwhile. */
  g_mutex_lock (&wait->lock);
  due = wait->playing && GST_CLOCK_TIME_IS_VALID (wait->deadline) &&
        gst_element_get_current_running_time (element) >= wait->deadline;
  g_mutex_unlock (&wait->lock);
  if (due && !GST_PAD_IS_FLUSHING (wait->sinkpad)) {
    GST_DEBUG_OBJECT (element, "what is held has waited long enough");
    wait->expire (element);
  }
  GST_PAD_STREAM_UNLOCK (wait->sinkpad);
}

/* What the clock's thread knows of the wait: whether it is still there, and where. */
typedef struct {
  GWeakRef element;
  LycheeWait *wait;
} Alarm;

static void
alarm_free (gpointer data)
{
  Alarm *alarm = data;

  g_weak_ref_clear (&alarm->element);
  g_free (alarm);
}

/* The clock's thread must not wait for a stream lock: another one does. */
static gboolean
on_time (GstClock *clock, GstClockTime time, GstClockID id, gpointer data)
{
  Alarm *alarm = data;
  GstElement *element = g_weak_ref_get (&alarm->element);

  if (element != NULL) {
    gst_element_call_async (element, hand_on, alarm->wait, NULL);
    gst_object_unref (element);
  }
  return TRUE;
}

/* Under the lock. */
static void
schedule (LycheeWait *wait)
{
  GstClock *clock = gst_element_get_clock (wait->element);
  Alarm *alarm;

  if (clock == NULL)
    return;
  alarm = g_new0 (Alarm, 1);
  g_weak_ref_init (&alarm->element, wait->element);
  alarm->wait = wait;
  wait->id = gst_clock_new_single_shot_id (
      clock, gst_element_get_base_time (wait->element) + wait->deadline);
  gst_clock_id_wait_async (wait->id, on_time, alarm, alarm_free);
  gst_object_unref (clock);
}

/* Under the lock. */
static void
reschedule (LycheeWait *wait)
{
  unschedule (wait);
  if (wait->playing && GST_CLOCK_TIME_IS_VALID (wait->deadline))
    schedule (wait);
}

void
lychee_wait_note_segment (LycheeWait *wait)
{
  GstClockTime latency;

  wait->live = lychee_reading_is_live (wait->sinkpad, &latency);
}

GstClockTime
lychee_wait_get_now (LycheeWait *wait)
{
  return wait->live ? gst_element_get_current_running_time (wait->element) : GST_CLOCK_TIME_NONE;
}

void
lychee_wait_set_max (LycheeWait *wait, GstClockTime max)
{
  gboolean changed;

  g_mutex_lock (&wait->lock);
  changed = wait->max != max;
  wait->max = max;
  g_mutex_unlock (&wait->lock);
  if (changed)
    gst_element_post_message (
        wait->element, gst_message_new_latency (GST_OBJECT_CAST (wait->element)));
}

GstClockTime
lychee_wait_get_max (LycheeWait *wait)
{
  GstClockTime max;

  g_mutex_lock (&wait->lock);
  max = wait->max;
  g_mutex_unlock (&wait->lock);
  return max;
}

/* None where one of them is, or both are too much. */
static GstClockTime
add_times (GstClockTime a, GstClockTime b)
{
  return GST_CLOCK_TIME_IS_VALID (a) && b < GST_CLOCK_TIME_NONE - a ? a + b : GST_CLOCK_TIME_NONE;
}

GstClockTime
lychee_wait_get_end (LycheeWait *wait, GstClockTime since)
{
  return add_times (since, lychee_wait_get_max (wait));
}

void
lychee_wait_since (LycheeWait *wait, GstClockTime since)
{
  GstClockTime deadline;

  g_mutex_lock (&wait->lock);
  deadline = add_times (since, wait->max);
  if (deadline != wait->deadline) {
    wait->deadline = deadline;
    reschedule (wait);
  }
  g_mutex_unlock (&wait->lock);
}

void
lychee_wait_change_state (LycheeWait *wait, GstStateChange transition)
{
  switch (transition) {
  case GST_STATE_CHANGE_PAUSED_TO_PLAYING:
  case GST_STATE_CHANGE_PLAYING_TO_PAUSED:
    g_mutex_lock (&wait->lock);
    wait->playing = transition == GST_STATE_CHANGE_PAUSED_TO_PLAYING;
    reschedule (wait);
    g_mutex_unlock (&wait->lock);
    break;
  case GST_STATE_CHANGE_PAUSED_TO_READY:
    lychee_wait_since (wait, GST_CLOCK_TIME_NONE);
    wait->live = FALSE;
    break;
  default:
    break;
  }
}

gboolean
lychee_wait_query_latency (LycheeWait *wait, GstQuery *query)
{
  GstClockTime max_wait = lychee_wait_get_max (wait);
  GstClockTime min, max;
  gboolean live;

  if (!gst_pad_peer_query (wait->sinkpad, query))
    return FALSE;
  gst_query_parse_latency (query, &live, &min, &max);
  if (!live)
    return TRUE;
  /* What may wait for ever is no part of what can be waited for, but sets no limit either. */
  if (GST_CLOCK_TIME_IS_VALID (max_wait))
    min += max_wait;
  max = add_times (max, max_wait);
  gst_query_set_latency (query, live, min, max);
  return TRUE;
}
