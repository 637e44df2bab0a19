/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "gstlycheetranscriptparse.h"

#include "lychee-transcript-parser.h"

/* Finds transcripts that no other typefinder knows: the JSON of recognisers, plain text in which
 * people speak by turns, subtitles of a legacy encoding or UTF-16, and damaged ones. Text in which
 * nobody is seen to speak is left to others: it could be anything. */

#define MAX_LENGTH 8192

static void
find (GstTypeFind *type_find, gpointer user_data)
{
  static const char *const names[] = { NULL, "subrip", "webvtt", "ass", "json", "text", "xml",
    "csv", "lines", "scc" };
  guint64 total = gst_type_find_get_length (type_find);
  guint length = total > 0 ? MIN (total, MAX_LENGTH) : MAX_LENGTH;
  const guint8 *data = NULL;
  LycheeTranscriptFormat format;

  while (length >= 16 && (data = gst_type_find_peek (type_find, 0, length)) == NULL)
    length /= 2;
  if (data == NULL)
    return;
  format = lychee_transcript_recognise (data, length);
  if (format == LYCHEE_TRANSCRIPT_FORMAT_AUTO)
    return;
  /* Others are quite as certain of what is text to this one, or take "0:00:01" at the beginning of
   * a line for a format that has nothing else. */
  gst_type_find_suggest_simple (type_find,
      format == LYCHEE_TRANSCRIPT_FORMAT_TEXT ? GST_TYPE_FIND_NEARLY_CERTAIN
                                              : GST_TYPE_FIND_MAXIMUM,
      "application/x-lychee-transcript", "format", G_TYPE_STRING, names[format], NULL);
}

static gboolean
lychee_transcript_register_type_find (GstPlugin *plugin)
{
  g_autoptr (GstCaps) caps = gst_caps_from_string ("application/x-lychee-transcript");

  return gst_type_find_register (plugin, "application/x-lychee-transcript", GST_RANK_PRIMARY, find,
      "srt,vtt,ass,ssa,json,jsonl,txt,ttml,dfxp,smi,sami,csv,tsv,sub,mpl,lrc,scc", caps, NULL,
      NULL);
}

GST_TYPE_FIND_REGISTER_DEFINE_CUSTOM (lycheetranscript, lychee_transcript_register_type_find)
