/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <glib.h>

G_BEGIN_DECLS

/* How many threads compute on a machine that is busy with other things too. Threads that wait for
 * each other at barriers all stand still while one of them is off its core; from some loss on,
 * fewer are faster, down to one, which waits for nobody. After a while one step more is tried
 * again. Results do not depend on the number. */
typedef struct {
  guint steps;  /* down from all threads */
  gint64 time;  /* microseconds of the last passes, */
  gint64 lost;  /* and how long threads were off their cores in them, added up */
  gint64 pause; /* microseconds to compute until the next trial */
  guint factor; /* of that pause: times what went wrong */
} LycheeContention;

/* How many of @n_threads the next pass should use. */
guint lychee_contention_get_n_threads (const LycheeContention *contention, guint n_threads);
/* Notes a pass by so many: how long it took, and how much less than that each of its threads ran,
 * added up; in microseconds. */
void lychee_contention_note (
    LycheeContention *contention, guint n_threads, gint64 time, gint64 lost);

G_END_DECLS
