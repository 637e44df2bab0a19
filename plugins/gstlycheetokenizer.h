/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <gst/gst.h>

G_BEGIN_DECLS

#define GST_TYPE_LYCHEE_TOKENIZER (gst_lychee_tokenizer_get_type ())
G_DECLARE_FINAL_TYPE (GstLycheeTokenizer, gst_lychee_tokenizer, GST, LYCHEE_TOKENIZER, GstElement)

GST_ELEMENT_REGISTER_DECLARE (lycheetokenizer)

G_END_DECLS
