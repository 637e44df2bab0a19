/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <gst/gst.h>

#include "lychee-model-context.h"

G_BEGIN_DECLS

/* What the elements do alike. */

void lychee_element_post_error (GstElement *element, const GError *error, const char *text);
void lychee_element_post_warning (GstElement *element, const GError *error, const char *text);
void lychee_pad_set_event_function (
    GstPad *sinkpad, GstPad *srcpad, LycheeModelSlot *slot, GstPadEventFunction function);
gboolean lychee_segment_goes_back (const GstSegment *segment);
gboolean lychee_segment_goes_on (const GstSegment *segment, GstClockTime end);
char *lychee_format_time (GstClockTime time);

G_END_DECLS
