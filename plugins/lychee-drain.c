/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "lychee-drain.h"

typedef struct {
  GstPad *sinkpad;
  GstEvent *event;
} Turn;

static void
turn_free (gpointer data)
{
  Turn *turn = data;

  gst_object_unref (turn->sinkpad);
  gst_clear_event (&turn->event);
  g_free (turn);
}

static void
turn_round (GstElement *element, gpointer data)
{
  Turn *turn = data;

  gst_pad_send_event (turn->sinkpad, g_steal_pointer (&turn->event));
}

/* Sends @event, its fields and sequence number kept, through @element as if upstream had. Whoever
 * sent it may be in the streaming thread, or one that must not wait for it: another thread does
 * this, in order with the buffers. FALSE where nothing can come of it, as no stream has begun or it
 * has ended. */
static gboolean
turn_event_round (GstElement *element, GstPad *sinkpad, GstEvent *event)
{
  const GstStructure *structure = gst_event_get_structure (event);
  GstEvent *segment;
  Turn *turn;

  if (GST_PAD_IS_FLUSHING (sinkpad) || GST_PAD_IS_EOS (sinkpad))
    return FALSE;
  segment = gst_pad_get_sticky_event (sinkpad, GST_EVENT_SEGMENT, 0);
  if (segment == NULL)
    return FALSE;
  gst_event_unref (segment);

  turn = g_new (Turn, 1);
  turn->sinkpad = gst_object_ref (sinkpad);
  turn->event = gst_event_new_custom (GST_EVENT_CUSTOM_DOWNSTREAM, gst_structure_copy (structure));
  gst_event_set_seqnum (turn->event, gst_event_get_seqnum (event));
  gst_element_call_async (element, turn_round, turn, turn_free);
  return TRUE;
}

/**
 * lychee_drain_src_event:
 * @pad: a source pad
 * @parent: its element, which holds text
 * @sinkpad: the element's sink pad, whose event function takes #LYCHEE_DRAIN_EVENT
 * @first: whether nobody upstream holds text
 * @event: (transfer full): an event from downstream
 *
 * Handles #LYCHEE_DRAIN_EVENT, as an event function does: it goes to the first element that holds
 * text, and turns round there. Other events go the usual way.
 *
 * Returns: whether the event was handled
 */
gboolean
lychee_drain_src_event (
    GstPad *pad, GstObject *parent, GstPad *sinkpad, gboolean first, GstEvent *event)
{
  gboolean handled;

  if (GST_EVENT_TYPE (event) != GST_EVENT_CUSTOM_UPSTREAM ||
      !gst_event_has_name (event, LYCHEE_DRAIN_EVENT))
    return gst_pad_event_default (pad, parent, event);
  handled = (!first && gst_pad_push_event (sinkpad, gst_event_ref (event))) ||
            turn_event_round (GST_ELEMENT (parent), sinkpad, event);
  gst_event_unref (event);
  return handled;
}
