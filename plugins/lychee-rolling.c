/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "lychee-rolling.h"

void
lychee_rolling_restart (LycheeRolling *rolling, GstClockTime from, guint64 tokens)
{
  rolling->from = from;
  rolling->from_tokens = tokens;
}

gboolean
lychee_rolling_advance (LycheeRolling *rolling, GstClockTime time, GstClockTime end, guint64 tokens,
    GstClockTime *from, GstClockTime *to)
{
  GstClockTime until = GST_CLOCK_TIME_NONE;

  if (!GST_CLOCK_TIME_IS_VALID (rolling->from))
    rolling->from = time;
  /* A flush may have taken tokens away. */
  rolling->from_tokens = MIN (rolling->from_tokens, tokens);

  if (rolling->interval > 0 && GST_CLOCK_TIME_IS_VALID (time) && time > rolling->from &&
      time - rolling->from >= rolling->interval)
    /* In a silence several intervals may have passed: they become one. */
    until = time - (time - rolling->from) % rolling->interval;
  else if (rolling->tokens > 0 && tokens - rolling->from_tokens >= rolling->tokens)
    until = end;
  else
    return FALSE;

  *from = rolling->from;
  *to = until;
  rolling->since = rolling->from_tokens;
  rolling->from = until;
  rolling->from_tokens = tokens;
  return TRUE;
}
