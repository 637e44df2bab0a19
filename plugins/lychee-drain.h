/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <gst/gst.h>

G_BEGIN_DECLS

/* Text that waits for what comes behind it can be asked for. A custom event `lychee-drain` goes
 * upstream, to the first element of the chain that holds text, and from there downstream, behind
 * all that it made the elements hand on: whoever sent it knows, when it comes back, that nothing is
 * held any more. */
#define LYCHEE_DRAIN_EVENT "lychee-drain"

gboolean lychee_drain_src_event (
    GstPad *pad, GstObject *parent, GstPad *sinkpad, gboolean first, GstEvent *event);

G_END_DECLS
