/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include "lychee-contention.h"

#define WINDOW (100 * 1000) /* microseconds that are looked at together, at least */
#define SHORTEST_PAUSE (2 * WINDOW)
#define LARGEST_FACTOR 16 /* so that trials take a sixteenth of the time at most */

static guint
fewer (guint n_threads)
{
  return n_threads - (n_threads + 3) / 4;
}

guint
lychee_contention_get_n_threads (const LycheeContention *contention, guint n_threads)
{
  for (guint i = 0; i < contention->steps && n_threads > 1; i++)
    n_threads = fewer (n_threads);
  return n_threads;
}

void
lychee_contention_note (LycheeContention *contention, guint n_threads, gint64 time, gint64 lost)
{
  guint n = lychee_contention_get_n_threads (contention, n_threads);

  contention->time += time;
  contention->lost += MAX (lost, 0);
  if (contention->time < WINDOW)
    return;
  time = contention->time;
  lost = contention->lost;
  contention->time = contention->lost = 0;

  /* While one is off its core the others wait: without that it would have taken time - lost, and
   * fewer (n) undisturbed threads take n / fewer (n) times as long as that. */
  if (n > 1 && lost * n > time * (n - fewer (n))) {
    contention->steps++;
    contention->factor = CLAMP (contention->factor * 2, 2, LARGEST_FACTOR);
    contention->pause = MAX (contention->factor * time, SHORTEST_PAUSE);
  } else if (contention->steps == 0) {
    contention->factor = 0;
  } else {
    contention->pause -= time;
    if (contention->pause <= 0) {
      contention->steps--;
      contention->pause = SHORTEST_PAUSE;
    }
  }
}
