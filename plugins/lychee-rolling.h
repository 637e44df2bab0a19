/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <gst/gst.h>

G_BEGIN_DECLS

/* When a summary of what is new is due. Zero-initialised: never. */
typedef struct {
  GstClockTime interval; /* of stream time; 0: no matter */
  guint64 tokens;        /* of the transcript; 0: no matter */
  guint64 since;         /* at so many tokens the summary begins that was last due */
  /*< private >*/
  GstClockTime from;   /* where the next one begins, or none */
  guint64 from_tokens; /* at so many tokens */
} LycheeRolling;

/* A new transcript, or another place in this one. */
void lychee_rolling_restart (LycheeRolling *rolling, GstClockTime from, guint64 tokens);
/* That the transcript goes on at @time (or there is nothing up to then), when it has @tokens, and
 * that what goes on ends at @end. TRUE: a summary of @from up to @to is due. */
gboolean lychee_rolling_advance (LycheeRolling *rolling, GstClockTime time, GstClockTime end,
    guint64 tokens, GstClockTime *from, GstClockTime *to);

G_END_DECLS
