/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <glib.h>

#include "lychee-cpu-kernels.h"

G_BEGIN_DECLS

/* Packed positions: of a transcript longer than the model was trained for, keys are kept before
 * rotation, and what is read of them gets its distance from the query when it is read. What is near
 * keeps its distance; behind it, what is read stands close together, in order, so that no distance
 * is longer than those that the model knows. (Positions by what is kept rather than by what was
 * said are StreamingLLM's, arXiv 2309.17453; found tokens that are moved near are InfLLM's,
 * 2402.04617.) Up to what the model was trained for, keys are kept rotated, as with absolute
 * positions; when there is more they are turned back, once.
 *
 * A distance counts from an origin that is the same for all queries of a block, behind the last of
 * them, and is never negative: queries are turned to stand relative to it, and keys by their
 * distance. */
typedef struct _LycheePacked LycheePacked;

/* @frequency: [n_pairs + 1] by what each pair of elements turns a position, and what it is
 * multiplied with; @halves: element i is paired with i + n_pairs, not with its neighbour. Distances
 * up to @farthest can be asked for. */
LycheePacked *lychee_packed_new (
    const double *frequency, guint n_pairs, gboolean halves, guint head_dim, guint farthest);
void lychee_packed_free (LycheePacked *packed);

/* Keys that stand nowhere, turned to their distances: half floats [n][head_dim]. */
void lychee_packed_turn_rows (const LycheePacked *packed, LycheeRowForm form,
    const guint16 *const *rows, const guint32 *distances, guint n, guint16 *to);
/* Keys [n][head_dim] that stand at @position and the places behind it, turned to stand nowhere. */
void lychee_packed_turn_back (const LycheePacked *packed, gint64 position, guint n, float *keys);

/* Floats of a turn. */
guint lychee_packed_turn_size (const LycheePacked *packed);
/* From a query that stands at @position to one that stands @behind positions before the origin. */
void lychee_packed_set_turn (
    const LycheePacked *packed, gint64 position, guint behind, float *turn);
/* From a query that stands at @position to one that is compared with keys that stand nowhere: what
 * it is on average for all distances from @nearest to @farthest. That turns back the pairs that
 * turn slowly, and takes out those that turn often on the way. Indexes are searched with it. */
void lychee_packed_set_aim (
    const LycheePacked *packed, gint64 position, guint nearest, guint farthest, float *turn);
/* From a key that stands at @position to one that stands nowhere. */
void lychee_packed_set_back (const LycheePacked *packed, gint64 position, float *turn);
/* @n queries or keys [n][head_dim]; @to may be @q */
void lychee_packed_turn (
    const LycheePacked *packed, const float *turn, const float *q, guint n, float *to);

G_DEFINE_AUTOPTR_CLEANUP_FUNC (LycheePacked, lychee_packed_free)

/* Memory for lychee_places_pack(), used again. */
typedef struct {
  guint64 *bits;   /* one a place */
  guint32 *behind; /* [word] how many bits the words behind it have */
  gsize n_words;
} LycheePlaces;

void lychee_places_clear (LycheePlaces *places);
/* The distances from @origin at which places @from [n] are read, which are in no order, each before
 * @origin and there once: their own up to @near; farther ones stand one by one behind that, in
 * order, but never farther than @most. Returns how far away the farthest one is, at least @near. */
guint lychee_places_pack (LycheePlaces *places, const guint32 *from, guint n, guint origin,
    guint near, guint most, guint32 *distances);

G_END_DECLS
