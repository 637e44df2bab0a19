/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <gst/gst.h>

G_BEGIN_DECLS

#define GST_TYPE_LYCHEE_CHUNKER (gst_lychee_chunker_get_type ())
G_DECLARE_FINAL_TYPE (GstLycheeChunker, gst_lychee_chunker, GST, LYCHEE_CHUNKER, GstElement)

GST_ELEMENT_REGISTER_DECLARE (lycheechunker)

G_END_DECLS
