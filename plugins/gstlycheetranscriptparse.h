/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <gst/gst.h>

G_BEGIN_DECLS

#define GST_TYPE_LYCHEE_TRANSCRIPT_PARSE (gst_lychee_transcript_parse_get_type ())
G_DECLARE_FINAL_TYPE (
    GstLycheeTranscriptParse, gst_lychee_transcript_parse, GST, LYCHEE_TRANSCRIPT_PARSE, GstElement)

GST_ELEMENT_REGISTER_DECLARE (lycheetranscriptparse)
GST_TYPE_FIND_REGISTER_DECLARE (lycheetranscript)

G_END_DECLS
