/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "lychee-transcript-parser-json-held.h"

#include <string.h>

/* Those of a day, as a rule. */
#define MAX_BYTES (4 * 1024 * 1024)

/* From when until when something is said. */
typedef struct {
  guint64 first; /* LYCHEE_TIME_NONE where there is nothing */
  guint64 latest;
} Span;

struct _LycheeJsonHeld {
  LycheeTranscriptOutput *output;
  LycheeJsonTurns *turns;
  GPtrArray *cues;
  gsize bytes;
  guint64 n_given;
  gboolean gave; /* some of this object's */
  Span span;     /* of all of this object's */
};

static const Span nothing = { LYCHEE_TIME_NONE, 0 };

LycheeJsonHeld *
lychee_json_held_new (LycheeTranscriptOutput *output)
{
  LycheeJsonHeld *held = g_new0 (LycheeJsonHeld, 1);

  held->output = output;
  held->turns = lychee_json_turns_new ();
  held->cues = g_ptr_array_new ();
  held->span = nothing;
  return held;
}

static void
forget (LycheeJsonHeld *held)
{
  for (guint i = 0; i < held->cues->len; i++)
    lychee_cue_free (g_ptr_array_index (held->cues, i));
  g_ptr_array_set_size (held->cues, 0);
  held->bytes = 0;
}

void
lychee_json_held_free (LycheeJsonHeld *held)
{
  forget (held);
  g_ptr_array_unref (held->cues);
  lychee_json_turns_free (held->turns);
  g_free (held);
}

guint64
lychee_json_held_get_n (LycheeJsonHeld *held)
{
  return held->n_given + held->cues->len;
}

LycheeJsonTurns *
lychee_json_held_get_turns (LycheeJsonHeld *held)
{
  return held->turns;
}

static void
extend (Span *span, const LycheeCue *cue)
{
  span->first = MIN (span->first, cue->start);
  span->latest = MAX (span->latest, cue->end != LYCHEE_TIME_NONE ? cue->end : cue->start);
}

void
lychee_json_held_add (LycheeJsonHeld *held, LycheeCue *cue, gboolean milliseconds)
{
  if (lychee_transcript_is_blank (cue->text, strlen (cue->text))) {
    held->output->report->empty++;
    lychee_cue_free (cue);
    return;
  }
  if (cue->start != LYCHEE_TIME_NONE)
    extend (&held->span, cue);
  g_ptr_array_add (held->cues, cue);
  held->bytes += sizeof *cue + strlen (cue->text);
  if (held->bytes > MAX_BYTES)
    lychee_json_held_give (held, milliseconds);
}

void
lychee_json_held_amend (LycheeJsonHeld *held, guint64 from, const char *speaker, gboolean partial)
{
  for (guint i = from > held->n_given ? from - held->n_given : 0; i < held->cues->len; i++) {
    LycheeCue *cue = g_ptr_array_index (held->cues, i);

    if (cue->speaker == NULL)
      cue->speaker = g_strdup (speaker);
    if (partial)
      cue->flags |= LYCHEE_CUE_PARTIAL;
  }
}

void
lychee_json_held_yield_to (LycheeJsonHeld *held, GPtrArray *cues)
{
  Span span = nothing;
  gboolean named = FALSE;

  for (guint i = 0; i < cues->len; i++) {
    const LycheeCue *cue = g_ptr_array_index (cues, i);

    if (cue->start == LYCHEE_TIME_NONE)
      return;
    extend (&span, cue);
    named |= cue->speaker != NULL;
  }
  if (!held->gave && named && span.first <= held->span.first && span.latest >= held->span.latest)
    forget (held);
}

void
lychee_json_held_give (LycheeJsonHeld *held, gboolean milliseconds)
{
  LycheeTranscriptOutput *output = held->output;

  lychee_json_turns_apply (held->turns, held->cues, milliseconds);
  held->gave |= held->cues->len > 0;
  held->n_given += held->cues->len;
  for (guint i = 0; i < held->cues->len; i++) {
    LycheeCue *cue = g_ptr_array_index (held->cues, i);

    if (cue->start == LYCHEE_TIME_NONE && cue->end == LYCHEE_TIME_NONE) {
      lychee_transcript_order_drain (output->order, output->cues);
      g_ptr_array_add (output->cues, cue);
    } else {
      lychee_transcript_order_add (output->order, cue, output->cues);
    }
  }
  g_ptr_array_set_size (held->cues, 0);
  held->bytes = 0;
}

void
lychee_json_held_end (LycheeJsonHeld *held, gboolean milliseconds)
{
  lychee_json_held_give (held, milliseconds);
  held->gave = FALSE;
  held->span = nothing;
}
