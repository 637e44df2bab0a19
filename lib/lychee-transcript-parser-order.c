/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "lychee-transcript-parser-private.h"

#include <string.h>

/* Puts cues in order of the time they begin at, as far as patience allows: a cue is held until
 * another begins so much later that none before it can be missing, or until too much is held. */

/* How long a text is said or read for, where nothing tells: 60 ms a character is slow speech. */
#define CHARACTER_TIME G_GUINT64_CONSTANT (60000000)
#define MIN_ESTIMATE G_GUINT64_CONSTANT (500000000)
#define MAX_ESTIMATE G_GUINT64_CONSTANT (10000000000)

typedef struct {
  LycheeCue *cue;
  guint64 number; /* of equals, the first comes first */
} Held;

struct _LycheeTranscriptOrder {
  LycheeTranscriptReport *report;
  GArray *heap; /* of Held, the first at the root */
  gsize bytes;
  guint64 number;
  guint64 patience_time;
  gsize patience_bytes;
  guint64 offset;       /* of the times that come, after a restart */
  guint64 latest;       /* start of all that came */
  guint64 released;     /* start of the last that was handed out */
  guint64 previous_end; /* of the one that came last */
  guint64 end_time;
  guint64 disorder;
};

LycheeTranscriptOrder *
lychee_transcript_order_new (LycheeTranscriptReport *report)
{
  LycheeTranscriptOrder *order = g_new0 (LycheeTranscriptOrder, 1);

  order->report = report;
  order->heap = g_array_new (FALSE, FALSE, sizeof (Held));
  return order;
}

void
lychee_transcript_order_free (LycheeTranscriptOrder *order)
{
  for (guint i = 0; i < order->heap->len; i++)
    lychee_cue_free (g_array_index (order->heap, Held, i).cue);
  g_array_unref (order->heap);
  g_free (order);
}

void
lychee_transcript_order_set_patience (LycheeTranscriptOrder *order, guint64 time, gsize bytes)
{
  order->patience_time = time;
  order->patience_bytes = bytes;
}

static gboolean
is_before (const Held *a, const Held *b)
{
  return a->cue->start != b->cue->start ? a->cue->start < b->cue->start : a->number < b->number;
}

static void
heap_push (GArray *heap, Held held)
{
  guint at = heap->len;
  Held *items;

  g_array_append_val (heap, held);
  items = (Held *) heap->data;
  while (at > 0 && is_before (&held, &items[(at - 1) / 2])) {
    items[at] = items[(at - 1) / 2];
    at = (at - 1) / 2;
  }
  items[at] = held;
}

static LycheeCue *
heap_pop (GArray *heap)
{
  Held *items = (Held *) heap->data;
  LycheeCue *first = items[0].cue;
  Held last = items[heap->len - 1];
  guint n = heap->len - 1;
  guint at = 0;

  while (2 * at + 1 < n) {
    guint child = 2 * at + 1;

    if (child + 1 < n && is_before (&items[child + 1], &items[child]))
      child++;
    if (!is_before (&items[child], &last))
      break;
    items[at] = items[child];
    at = child;
  }
  items[at] = last;
  g_array_set_size (heap, n);
  return first;
}

static gsize
size_of (const LycheeCue *cue)
{
  return sizeof (Held) + sizeof *cue + strlen (cue->text) + 1;
}

/* Gives a cue that has no sane end one: as long as its text takes, until the next one begins. */
static void
estimate_end (LycheeTranscriptOrder *order, LycheeCue *cue)
{
  guint64 estimate =
      CLAMP ((guint64) g_utf8_strlen (cue->text, -1) * CHARACTER_TIME, MIN_ESTIMATE, MAX_ESTIMATE);

  if (cue->end != LYCHEE_TIME_NONE)
    order->report->backward++;
  cue->end = cue->start + estimate;
  if (order->heap->len > 0) {
    guint64 next = g_array_index (order->heap, Held, 0).cue->start;

    if (next > cue->start)
      cue->end = MIN (cue->end, next);
  }
}

static void
release_first (LycheeTranscriptOrder *order, GPtrArray *cues)
{
  LycheeCue *cue = heap_pop (order->heap);

  order->bytes -= size_of (cue);
  if (cue->end == LYCHEE_TIME_NONE || cue->end <= cue->start)
    estimate_end (order, cue);
  order->end_time = MAX (order->end_time, cue->end);
  if (cue->start < order->released)
    order->report->late++;
  order->released = MAX (order->released, cue->start);
  g_ptr_array_add (cues, cue);
}

void
lychee_transcript_order_drain (LycheeTranscriptOrder *order, GPtrArray *cues)
{
  while (order->heap->len > 0)
    release_first (order, cues);
}

void
lychee_transcript_order_restart (LycheeTranscriptOrder *order, GPtrArray *cues)
{
  lychee_transcript_order_drain (order, cues);
  order->offset = MAX (order->end_time, order->latest);
  order->latest = order->offset;
  order->previous_end = order->offset;
  order->report->restarts++;
}

void
lychee_transcript_order_add (LycheeTranscriptOrder *order, LycheeCue *cue, GPtrArray *cues)
{
  Held held = { cue, order->number++ };

  if (cue->start == LYCHEE_TIME_NONE && cue->end == LYCHEE_TIME_NONE) {
    cue->start = order->previous_end;
    order->report->untimed++;
  } else if (cue->start == LYCHEE_TIME_NONE) {
    cue->end += order->offset;
    cue->start = MIN (order->previous_end, cue->end);
    order->report->untimed++;
  } else {
    cue->start += order->offset;
    if (cue->end != LYCHEE_TIME_NONE) /* there are formats without */
      cue->end += order->offset;
  }
  order->previous_end =
      cue->end != LYCHEE_TIME_NONE && cue->end > cue->start ? cue->end : cue->start;

  if (cue->start < order->latest) {
    order->report->reordered++;
    order->disorder = MAX (order->disorder, order->latest - cue->start);
  }
  order->latest = MAX (order->latest, cue->start);
  order->bytes += size_of (cue);
  heap_push (order->heap, held);

  while (order->heap->len > 0) {
    guint64 first = g_array_index (order->heap, Held, 0).cue->start;

    /* The last one waits for the next, which may limit its duration. */
    if (order->bytes <= order->patience_bytes &&
        (order->latest == first || order->latest - first <= order->patience_time))
      break;
    release_first (order, cues);
  }
}

guint64
lychee_transcript_order_get_disorder (LycheeTranscriptOrder *order)
{
  return order->disorder;
}

guint64
lychee_transcript_order_get_end_time (LycheeTranscriptOrder *order)
{
  return order->end_time;
}
