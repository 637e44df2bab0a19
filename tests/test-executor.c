/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* How many threads an executor uses, and turns. */

#include "lychee-contention.h"
#include "lychee-executor.h"

#define MS (G_USEC_PER_SEC / 1000)

static void
test_calm (void)
{
  LycheeContention c = { 0 };

  /* Now and then a thread is off its core, in short passes and in long ones. */
  for (guint i = 0; i < 1000; i++) {
    gint64 time = i % 10 == 9 ? 2000 * MS : 10 * MS;

    g_assert_cmpuint (lychee_contention_get_n_threads (&c, 2), ==, 2);
    lychee_contention_note (&c, 2, time, i % 7 ? time / 4 : time / 2);
  }
}

/* Time computed on one thread, in passes of 20 ms on a machine that has other things to do. */
static gint64
run_alone (LycheeContention *c)
{
  gint64 time = 0;

  while (lychee_contention_get_n_threads (c, 2) == 1) {
    lychee_contention_note (c, 2, 20 * MS, 5 * MS);
    g_assert_cmpint (time += 20 * MS, <, 1000 * G_USEC_PER_SEC);
  }
  return time;
}

static void
test_busy (void)
{
  LycheeContention c = { 0 };
  gint64 time = 0, first, again;

  while (lychee_contention_get_n_threads (&c, 2) == 2) {
    lychee_contention_note (&c, 2, 40 * MS, 25 * MS);
    g_assert_cmpint (time += 40 * MS, <=, 200 * MS);
  }
  first = run_alone (&c);
  /* One trial; it is still busy: a longer pause, but never so long that nobody notices calm. */
  lychee_contention_note (&c, 2, 240 * MS, 250 * MS);
  g_assert_cmpuint (lychee_contention_get_n_threads (&c, 2), ==, 1);
  again = run_alone (&c);
  g_assert_cmpint (again, >=, 2 * first);
  for (guint i = 0; i < 20; i++) {
    lychee_contention_note (&c, 2, 240 * MS, 250 * MS);
    again = run_alone (&c);
    g_assert_cmpint (again, <=, 5 * G_USEC_PER_SEC);
  }
  g_assert_cmpint (again, >=, 15 * 240 * MS);
}

static void
test_calm_again (void)
{
  LycheeContention c = { 0 };

  for (guint i = 0; i < 6; i++) {
    lychee_contention_note (&c, 2, 240 * MS, 250 * MS);
    run_alone (&c);
  }
  for (guint i = 0; i < 20; i++) {
    g_assert_cmpuint (lychee_contention_get_n_threads (&c, 2), ==, 2);
    lychee_contention_note (&c, 2, 10 * MS, 0);
  }
  /* What was is forgotten: the next pause is a short one. */
  while (lychee_contention_get_n_threads (&c, 2) == 2)
    lychee_contention_note (&c, 2, 40 * MS, 25 * MS);
  g_assert_cmpint (run_alone (&c), <=, 300 * MS);
}

/* Of many threads, one that has to wait costs a few, not all others. */
static void
test_many (void)
{
  static const guint steps[] = { 16, 12, 9, 6, 4, 3, 2, 1, 1 };
  LycheeContention c = { 0 };
  guint n;

  for (guint i = 0; i + 1 < G_N_ELEMENTS (steps); i++) {
    n = lychee_contention_get_n_threads (&c, 16);
    g_assert_cmpuint (n, ==, steps[i]);
    lychee_contention_note (&c, 16, 240 * MS, 200 * MS);
  }

  /* And back, step by step. */
  for (gint64 time = 0; (n = lychee_contention_get_n_threads (&c, 16)) < 16; time += 10 * MS) {
    lychee_contention_note (&c, 16, 10 * MS, 0);
    g_assert_cmpuint (lychee_contention_get_n_threads (&c, 16), >=, n);
    g_assert_cmpint (time, <, 10 * G_USEC_PER_SEC);
  }
  /* A seventh of the time, of one of them: not worth a step. */
  lychee_contention_note (&c, 16, 240 * MS, 35 * MS);
  g_assert_cmpuint (lychee_contention_get_n_threads (&c, 16), ==, 16);
}

static void
test_shared (void)
{
  LycheeExecutor *a = lychee_executor_get (2), *b = lychee_executor_get (2);
  LycheeExecutor *c = lychee_executor_get (1);

  g_assert_true (a == b);
  g_assert_true (a != c);
  g_assert_cmpuint (lychee_executor_get_n_threads (a), ==, 2);
  lychee_executor_unref (a);
  lychee_executor_unref (b);
  lychee_executor_unref (c);
}

static void
test_environment (void)
{
  LycheeExecutor *executor;

  g_setenv ("LYCHEE_THREADS", "3", TRUE);
  executor = lychee_executor_get (0);
  g_assert_cmpuint (lychee_executor_get_n_threads (executor), ==, 3);
  lychee_executor_unref (executor);
  g_unsetenv ("LYCHEE_THREADS");
  executor = lychee_executor_get (0);
  g_assert_cmpuint (lychee_executor_get_n_threads (executor), ==, g_get_num_processors ());
  lychee_executor_unref (executor);
}

typedef struct {
  LycheeExecutor *executor;
  GCancellable *cancellable;
  GError *error;
} Waiter;

static gpointer
take_turn (gpointer user_data)
{
  Waiter *waiter = user_data;

  if (lychee_executor_begin (waiter->executor, waiter->cancellable, &waiter->error))
    lychee_executor_end (waiter->executor);
  return NULL;
}

/* Who is cancelled does not wait for a turn, wherever in the row; those behind get theirs. */
static void
test_cancel (void)
{
  LycheeExecutor *executor = lychee_executor_get (1);
  g_autoptr (GCancellable) cancellable = g_cancellable_new ();
  Waiter waiters[3] = { { executor, NULL, NULL }, { executor, cancellable, NULL },
    { executor, NULL, NULL } };
  GThread *threads[3];

  g_assert_true (lychee_executor_begin (executor, NULL, NULL));
  for (guint i = 0; i < 3; i++)
    threads[i] = g_thread_new ("waiter", take_turn, &waiters[i]);
  g_cancellable_cancel (cancellable);
  g_thread_join (threads[1]); /* nobody has ended */
  g_assert_error (waiters[1].error, G_IO_ERROR, G_IO_ERROR_CANCELLED);
  g_clear_error (&waiters[1].error);
  g_assert_false (lychee_executor_begin (executor, cancellable, NULL));

  lychee_executor_end (executor);
  g_thread_join (threads[0]);
  g_thread_join (threads[2]);
  g_assert_no_error (waiters[0].error);
  g_assert_no_error (waiters[2].error);
  g_assert_true (lychee_executor_begin (executor, NULL, NULL));
  lychee_executor_end (executor);
  lychee_executor_unref (executor);
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, NULL);
  g_test_add_func ("/executor/calm", test_calm);
  g_test_add_func ("/executor/busy", test_busy);
  g_test_add_func ("/executor/calm-again", test_calm_again);
  g_test_add_func ("/executor/many", test_many);
  g_test_add_func ("/executor/shared", test_shared);
  g_test_add_func ("/executor/environment", test_environment);
  g_test_add_func ("/executor/cancel", test_cancel);
  return g_test_run ();
}
