/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "lychee-element.h"

#include "lychee-session.h"

/* Which GStreamer error says the same as one of the library's. */
static void
map_error (const GError *error, GQuark *domain, int *code)
{
  *domain = GST_LIBRARY_ERROR;
  *code = GST_LIBRARY_ERROR_FAILED;
  if (error == NULL)
    return;

  if (error->domain == LYCHEE_MODEL_ERROR) {
    switch ((LycheeModelError) error->code) {
    case LYCHEE_MODEL_ERROR_OPEN:
      *domain = GST_RESOURCE_ERROR;
      *code = GST_RESOURCE_ERROR_NOT_FOUND;
      break;
    case LYCHEE_MODEL_ERROR_FORMAT:
      *domain = GST_STREAM_ERROR;
      *code = GST_STREAM_ERROR_WRONG_TYPE;
      break;
    case LYCHEE_MODEL_ERROR_TRUNCATED:
    case LYCHEE_MODEL_ERROR_INVALID:
      *domain = GST_STREAM_ERROR;
      *code = GST_STREAM_ERROR_FORMAT;
      break;
    case LYCHEE_MODEL_ERROR_UNSUPPORTED:
      *domain = GST_STREAM_ERROR;
      *code = GST_STREAM_ERROR_NOT_IMPLEMENTED;
      break;
    case LYCHEE_MODEL_ERROR_COMPUTE:
      break;
    }
  } else if (error->domain == LYCHEE_CACHE_ERROR) {
    *domain = GST_RESOURCE_ERROR;
    *code = GST_RESOURCE_ERROR_NO_SPACE_LEFT;
  } else if (error->domain == LYCHEE_BACKEND_ERROR) {
    switch ((LycheeBackendError) error->code) {
    case LYCHEE_BACKEND_ERROR_UNAVAILABLE:
      *domain = GST_RESOURCE_ERROR;
      *code = GST_RESOURCE_ERROR_NOT_FOUND;
      break;
    case LYCHEE_BACKEND_ERROR_UNSUPPORTED:
      *code = GST_LIBRARY_ERROR_SETTINGS;
      break;
    case LYCHEE_BACKEND_ERROR_NO_MEMORY:
      *domain = GST_RESOURCE_ERROR;
      *code = GST_RESOURCE_ERROR_NO_SPACE_LEFT;
      break;
    case LYCHEE_BACKEND_ERROR_COMPUTE:
      *domain = GST_RESOURCE_ERROR;
      *code = GST_RESOURCE_ERROR_FAILED;
      break;
    }
  } else if (error->domain == LYCHEE_SESSION_ERROR) {
    switch ((LycheeSessionError) error->code) {
    case LYCHEE_SESSION_ERROR_EMPTY:
      *domain = GST_STREAM_ERROR;
      *code = GST_STREAM_ERROR_WRONG_TYPE;
      break;
    case LYCHEE_SESSION_ERROR_CACHE:
    case LYCHEE_SESSION_ERROR_TEMPLATE:
      *code = GST_LIBRARY_ERROR_SETTINGS;
      break;
    case LYCHEE_SESSION_ERROR_NO_ROOM:
      *domain = GST_RESOURCE_ERROR;
      *code = GST_RESOURCE_ERROR_NO_SPACE_LEFT;
      break;
    case LYCHEE_SESSION_ERROR_WRITE:
      *domain = GST_RESOURCE_ERROR;
      *code = GST_RESOURCE_ERROR_WRITE;
      break;
    case LYCHEE_SESSION_ERROR_READ:
    case LYCHEE_SESSION_ERROR_DAMAGED:
    case LYCHEE_SESSION_ERROR_VERSION:
    case LYCHEE_SESSION_ERROR_MODEL:
      *domain = GST_RESOURCE_ERROR;
      *code = GST_RESOURCE_ERROR_READ;
      break;
    }
  }
}

static void
post (GstElement *element, GstMessageType type, const GError *error, const char *text)
{
  const char *message = error != NULL ? error->message : "for a reason that was not given";
  char *whole = text != NULL ? g_strdup_printf ("%s: %s", text, message) : g_strdup (message);
  char *debug = error != NULL ? g_strdup_printf (
                                    "%s, code %d", g_quark_to_string (error->domain), error->code)
                              : NULL;
  GQuark domain;
  int code;

  map_error (error, &domain, &code);
  gst_element_message_full (
      element, type, domain, code, whole, debug, __FILE__, GST_FUNCTION, __LINE__);
}

/**
 * lychee_element_post_error:
 * @element: who reports it; its object lock is not held
 * @error: (nullable): an error of the library
 * @text: (nullable): what could not be done, put in front of the error's own message
 *
 * Posts @error with the GStreamer domain and code that fit it.
 */
void
lychee_element_post_error (GstElement *element, const GError *error, const char *text)
{
  post (element, GST_MESSAGE_ERROR, error, text);
}

/**
 * lychee_element_post_warning:
 * @element: who reports it; its object lock is not held
 * @error: (nullable): an error of the library
 * @text: (nullable): what could not be done, put in front of the error's own message
 *
 * Posts @error as a warning: the stream goes on.
 */
void
lychee_element_post_warning (GstElement *element, const GError *error, const char *text)
{
  post (element, GST_MESSAGE_WARNING, error, text);
}

typedef struct {
  GstPadEventFunction function;
  GstPad *srcpad;
  LycheeModelSlot *slot;
} EventFunction;

static GstFlowReturn
on_event (GstPad *pad, GstObject *parent, GstEvent *event)
{
  EventFunction *data = pad->eventdata;
  gboolean caps = GST_EVENT_TYPE (event) == GST_EVENT_CAPS;

  if (data->slot != NULL)
    lychee_model_slot_note_event (data->slot, GST_ELEMENT (parent), event);
  if (data->function (pad, parent, event))
    return GST_FLOW_OK;
  if (GST_PAD_IS_FLUSHING (data->srcpad) ||
      (data->slot != NULL && lychee_model_slot_is_flushing (data->slot)))
    return GST_FLOW_FLUSHING;
  return caps ? GST_FLOW_NOT_NEGOTIATED : GST_FLOW_ERROR;
}

/**
 * lychee_pad_set_event_function:
 * @sinkpad: a pad
 * @srcpad: the pad on the other side of the same element
 * @slot: (nullable): the element's model, which a flush ends the waiting for
 * @function: the event function of @sinkpad
 *
 * Sets an event function of which upstream can tell that it fails because the element is being shut
 * down: on the way from PAUSED to READY the source pad is flushing first.
 */
void
lychee_pad_set_event_function (
    GstPad *sinkpad, GstPad *srcpad, LycheeModelSlot *slot, GstPadEventFunction function)
{
  EventFunction *data = g_new (EventFunction, 1);

  data->function = function;
  data->srcpad = srcpad;
  data->slot = slot;
  gst_pad_set_event_full_function_full (sinkpad, on_event, data, g_free);
}

/**
 * lychee_segment_goes_back:
 * @segment: the segment after a flush
 *
 * Returns: whether @segment has a place in time at which the transcript can be cut, to go on from
 *   there; if not, what comes is a new one
 */
gboolean
lychee_segment_goes_back (const GstSegment *segment)
{
  return segment->format == GST_FORMAT_TIME && segment->rate > 0 &&
         GST_CLOCK_TIME_IS_VALID (segment->start);
}

/**
 * lychee_segment_goes_on:
 * @segment: the segment after a flush
 * @end: when the last word before the flush ended, or %GST_CLOCK_TIME_NONE
 *
 * Returns: whether @segment only goes on with the transcript (a seek forward)
 */
gboolean
lychee_segment_goes_on (const GstSegment *segment, GstClockTime end)
{
  return segment->format == GST_FORMAT_TIME && segment->rate > 0 && GST_CLOCK_TIME_IS_VALID (end) &&
         GST_CLOCK_TIME_IS_VALID (segment->start) && segment->start >= end;
}

/* (transfer full): "1:02:03", for people. */
char *
lychee_format_time (GstClockTime time)
{
  guint64 seconds;

  if (!GST_CLOCK_TIME_IS_VALID (time))
    return g_strdup ("an unknown time");
  seconds = time / GST_SECOND;
  return g_strdup_printf ("%" G_GUINT64_FORMAT ":%02u:%02u", seconds / 3600,
      (guint) (seconds / 60 % 60), (guint) (seconds % 60));
}
