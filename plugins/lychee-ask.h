/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <gst/gst.h>

#include "lychee-cache.h"
#include "lychee-chat-template.h"
#include "lychee-question.h"

G_BEGIN_DECLS

/* The events by which lycheedecoder is asked and told to stop, from either side. */
#define LYCHEE_ASK_EVENT "lychee-ask"
#define LYCHEE_CANCEL_EVENT "lychee-cancel"

/* Why something is asked. */
typedef enum {
  LYCHEE_ASK_QUESTION, /* somebody asked */
  LYCHEE_ASK_SUMMARY,  /* a rolling summary */
  LYCHEE_ASK_FINAL,    /* at the end of the transcript */
} LycheeAskKind;

/* A question, and the moment at which it was asked. Made by one thread, then immutable, but that
 * the snapshot is taken again, and json with it, when words that waited have been read; reference
 * counted. */
typedef struct {
  char *id;
  LycheeAskKind kind;
  LycheeQuestion *question;
  GstClockTime last; /* only so much of the end, or none */
  gboolean json;     /* what downstream takes */
  guint32 drain;     /* what brings the words that wait upstream: its sequence number; 0: none */

  LycheeCache *snapshot; /* (nullable): what had been read; NULL: nothing */
  LycheeChatFormat format;
  GstClockTime time; /* until when it had been read */
  gboolean truncated;

  /*< private >*/
  gatomicrefcount refs;
} LycheeAsk;

/* Takes @question. */
LycheeAsk *lychee_ask_new (LycheeAskKind kind, LycheeQuestion *question);
LycheeAsk *lychee_ask_ref (LycheeAsk *ask);
void lychee_ask_unref (LycheeAsk *ask);
const char *lychee_ask_get_kind_name (LycheeAsk *ask);

/* Sets what @options say. Fields are those of LycheeQuestion and LycheeSampler under their own
 * names, `id` (string) and `last` (nanoseconds); numbers may be of any type. FALSE with a
 * GST_LIBRARY_ERROR that names the field that is wrong. */
gboolean lychee_ask_set_options (LycheeAsk *ask, const GstStructure *options, GError **error);

/* Notes what has been read up to now: a snapshot of @cache (nullable), its end (@start where it has
 * no times), and the range that `last` means. FALSE with a LYCHEE_CACHE_ERROR: an earlier one
 * stays. */
gboolean lychee_ask_take_snapshot (LycheeAsk *ask, LycheeCache *cache, LycheeChatFormat format,
    GstClockTime start, GError **error);

/* The end of the last chunk of @cache that has a time, or none. */
GstClockTime lychee_cache_get_end_time (LycheeCache *cache);

G_DEFINE_AUTOPTR_CLEANUP_FUNC (LycheeAsk, lychee_ask_unref)

G_END_DECLS
