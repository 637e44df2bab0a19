/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <gst/gst.h>

G_BEGIN_DECLS

#define GST_TYPE_LYCHEE_DECODER (gst_lychee_decoder_get_type ())
G_DECLARE_FINAL_TYPE (GstLycheeDecoder, gst_lychee_decoder, GST, LYCHEE_DECODER, GstElement)

GST_ELEMENT_REGISTER_DECLARE (lycheedecoder)

G_END_DECLS
