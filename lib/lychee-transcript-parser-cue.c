/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "lychee-transcript-parser.h"

#include <string.h>

G_DEFINE_BOXED_TYPE (LycheeCue, lychee_cue, lychee_cue_copy, lychee_cue_free)

/**
 * lychee_cue_new:
 * @text: the text, valid UTF-8, copied
 * @length: its bytes, or -1 where it ends in NUL
 * @speaker: (nullable): who speaks, copied
 * @start: in nanoseconds, or %LYCHEE_TIME_NONE
 * @end: in nanoseconds, or %LYCHEE_TIME_NONE
 *
 * Returns: (transfer full): a cue
 */
LycheeCue *
lychee_cue_new (const char *text, gssize length, const char *speaker, guint64 start, guint64 end)
{
  LycheeCue *cue;

  g_return_val_if_fail (text != NULL, NULL);

  cue = g_new0 (LycheeCue, 1);
  cue->text = g_strndup (text, length < 0 ? strlen (text) : (gsize) length);
  cue->speaker = g_strdup (speaker);
  cue->start = start;
  cue->end = end;
  return cue;
}

/**
 * lychee_cue_copy:
 * @cue: a cue
 *
 * Returns: (transfer full): a copy
 */
LycheeCue *
lychee_cue_copy (const LycheeCue *cue)
{
  LycheeCue *copy;

  g_return_val_if_fail (cue != NULL, NULL);

  copy = lychee_cue_new (cue->text, -1, cue->speaker, cue->start, cue->end);
  copy->markup = cue->markup;
  copy->flags = cue->flags;
  return copy;
}

/**
 * lychee_cue_free:
 * @cue: (transfer full): a cue
 */
void
lychee_cue_free (LycheeCue *cue)
{
  g_return_if_fail (cue != NULL);

  g_free (cue->text);
  g_free (cue->speaker);
  g_free (cue);
}
