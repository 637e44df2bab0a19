/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* When an executor keeps to one thread. */

#include "lychee-executor.h"

static void
test_calm (void)
{
  LycheeContention c = { 0 };

  /* Now and then a preemption, as on any machine. */
  for (guint i = 0; i < 1000; i++) {
    g_assert_false (lychee_contention_is_alone (&c));
    lychee_contention_note (&c, i % 4 == 0 ? 10 : i % 3);
  }
}

/* Passes until it is no longer alone. */
static guint
run_alone (LycheeContention *c)
{
  guint n = 0;

  while (lychee_contention_is_alone (c)) {
    lychee_contention_note (c, 10);
    g_assert_cmpuint (n++, <, 10000);
  }
  return n;
}

static void
test_busy (void)
{
  LycheeContention c = { 0 };
  guint first, again, n = 0;

  while (!lychee_contention_is_alone (&c)) {
    lychee_contention_note (&c, 10);
    n++;
  }
  g_assert_cmpuint (n, <=, 4);
  first = run_alone (&c);
  /* One trial; it is still busy: a longer pause, but never without an end. */
  lychee_contention_note (&c, 10);
  g_assert_true (lychee_contention_is_alone (&c));
  again = run_alone (&c);
  g_assert_cmpuint (again, ==, 2 * first);
  for (guint i = 0; i < 20; i++) {
    lychee_contention_note (&c, 10);
    g_assert_cmpuint (run_alone (&c), <=, 1000);
  }
}

static void
test_calm_again (void)
{
  LycheeContention c = { 0 };

  for (guint i = 0; i < 6; i++) {
    lychee_contention_note (&c, 10);
    run_alone (&c);
  }
  for (guint i = 0; i < 20; i++) {
    g_assert_false (lychee_contention_is_alone (&c));
    lychee_contention_note (&c, 2);
  }
  /* What was is forgotten: the next pause is a short one. */
  while (!lychee_contention_is_alone (&c))
    lychee_contention_note (&c, 10);
  g_assert_cmpuint (run_alone (&c), <=, 16);
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
  g_test_add_func ("/executor/shared", test_shared);
  g_test_add_func ("/executor/environment", test_environment);
  g_test_add_func ("/executor/cancel", test_cancel);
  return g_test_run ();
}
