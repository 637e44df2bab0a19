/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <gst/gst.h>

G_BEGIN_DECLS

#define GST_TYPE_LYCHEE_INDEXER (gst_lychee_indexer_get_type ())
G_DECLARE_FINAL_TYPE (GstLycheeIndexer, gst_lychee_indexer, GST, LYCHEE_INDEXER, GstElement)

GST_ELEMENT_REGISTER_DECLARE (lycheeindexer)

G_END_DECLS
