/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <gst/gst.h>

#include "gstlycheechunker.h"
#include "gstlycheedecoder.h"
#include "gstlycheeindexer.h"
#include "gstlycheetokenizer.h"
#include "gstlycheetranscriptparse.h"

static gboolean
plugin_init (GstPlugin *plugin)
{
  gboolean registered = FALSE;

  registered |= GST_TYPE_FIND_REGISTER (lycheetranscript, plugin);
  registered |= GST_ELEMENT_REGISTER (lycheetranscriptparse, plugin);
  registered |= GST_ELEMENT_REGISTER (lycheetokenizer, plugin);
  registered |= GST_ELEMENT_REGISTER (lycheechunker, plugin);
  registered |= GST_ELEMENT_REGISTER (lycheeindexer, plugin);
  registered |= GST_ELEMENT_REGISTER (lycheedecoder, plugin);
  return registered;
}

GST_PLUGIN_DEFINE (GST_VERSION_MAJOR, GST_VERSION_MINOR, lychee,
    "Answers and summaries of long live transcripts by a language model, from an indexed KV cache",
    plugin_init, PACKAGE_VERSION, "LGPL", PACKAGE, PACKAGE_ORIGIN)
