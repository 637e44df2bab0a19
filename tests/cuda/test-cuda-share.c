/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* How sequences that are decoded at the same time come to share passes: with a module that computes
 * nothing, but says who was in which pass, and holds one until others wait. */

#include "lychee-cuda-batch.h"

#include <string.h>

#define N_FREQUENCIES 3
#define LONGEST (60 * G_USEC_PER_SEC)

struct LycheeCudaWorker {
  guint n_passes; /* under lock, as all that follows */
  guint sizes[64];
};

static struct {
  GMutex lock;
  LycheeCudaWorker *shared; /* that of passes of several sequences */
  guint n_made;
  LycheeCudaStatus status; /* of these */
  LycheeCudaBatch *batch;
  guint wait_for; /* members; the first pass goes on when there are so many */
  guint n_passes;
} fake;

static const double frequency[N_FREQUENCIES] = { 1, 0.5, 1 };
static const double other_frequency[N_FREQUENCIES] = { 1, 0.25, 1 };
static int chosen[LYCHEE_CUDA_MAX_SEQUENCES];
static LycheeCudaCounters counters[LYCHEE_CUDA_MAX_SEQUENCES];

static int
fake_worker_new (LycheeCudaModel *model, const unsigned long long *weights,
    LycheeCudaWorker **worker, LycheeCudaError *error)
{
  fake.n_made++;
  *worker = fake.shared = g_new0 (LycheeCudaWorker, 1);
  return 0;
}

static void
fake_worker_free (LycheeCudaWorker *worker)
{
  g_free (worker);
}

/* Chooses token id + 1 of each sequence. */
static int
fake_worker_run (LycheeCudaWorker *worker, const LycheeCudaPass *pass, LycheeCudaResult *result,
    LycheeCudaError *error)
{
  LycheeCudaStatus status = LYCHEE_CUDA_OK;
  gboolean first;

  g_mutex_lock (&fake.lock);
  first = fake.n_passes++ == 0;
  g_assert_cmpint (pass->n_tokens, ==, pass->n_sequences);
  g_assert_cmpint (pass->n_sequences > 1, ==, worker == fake.shared);
  worker->sizes[worker->n_passes++ % G_N_ELEMENTS (worker->sizes)] = pass->n_sequences;
  if (worker == fake.shared)
    status = fake.status;
  g_mutex_unlock (&fake.lock);
  for (guint n = 0; first && n < fake.wait_for; g_usleep (100)) {
    guint64 n_shared;

    lychee_cuda_batch_describe (fake.batch, &n, &n_shared);
  }
  if (status != LYCHEE_CUDA_OK) {
    error->status = status;
    strcpy (error->message, "this is feigned");
    return status;
  }
  for (int i = 0; i < pass->n_sequences; i++) {
    /* Each sequence's own things lie where its token does. */
    g_assert_cmpint (pass->sequences[i].first, ==, pass->ids[i]);
    if (pass->n_sequences > 1) {
      chosen[i] = pass->ids[i] + 1;
      counters[i].rows_read = pass->sequences[i].first;
    }
  }
  /* A worker's results are its own. */
  result->chosen = pass->n_sequences > 1 ? chosen : NULL;
  result->counters = pass->n_sequences > 1 ? counters : NULL;
  return 0;
}

static const LycheeCudaApi api = {
  .abi = LYCHEE_CUDA_ABI,
  .worker_new = fake_worker_new,
  .worker_free = fake_worker_free,
  .worker_run = fake_worker_run,
};

static void
begin (guint n_members, const char *patience, LycheeCudaStatus status)
{
  static LycheeCuda cuda = { .api = &api };

  g_setenv ("LYCHEE_CUDA_PATIENCE", patience, TRUE);
  fake.batch = lychee_cuda_batch_new (&cuda, NULL, N_FREQUENCIES);
  g_unsetenv ("LYCHEE_CUDA_PATIENCE");
  fake.shared = NULL;
  fake.n_made = fake.n_passes = 0;
  fake.wait_for = n_members;
  fake.status = status;
}

static void
end (void)
{
  lychee_cuda_batch_free (fake.batch);
}

typedef struct {
  guint number, n_steps;
  gboolean sparse;
  const double *frequency;
  LycheeCudaStatus wanted;
  guint n_together; /* of its passes, those that others were in */
  LycheeCudaWorker own;
} Decoding;

static gpointer
decode (gpointer data)
{
  Decoding *d = data;
  LycheeCudaMember member = { 0 };
  int id = d->number * 1000;

  for (guint i = 0; i < d->n_steps; i++) {
    LycheeCudaSequence sequence = { .first = id };
    LycheeCudaPass pass = { .ids = &id,
      .n_tokens = 1,
      .n_sequences = 1,
      .sequences = &sequence,
      .output = LYCHEE_CUDA_OUTPUT_CHOSEN,
      .frequency = { d->frequency, frequency },
      .sparse = d->sparse,
      .audit_layer = -1 };
    LycheeCudaError error = { 0 };
    LycheeCudaShare share = { 0 };
    int status = lychee_cuda_batch_run (fake.batch, &member, &d->own, &pass, &share, &error);

    if (share.n > 1 && status == 0) {
      d->n_together++;
      g_assert_cmpuint (share.at, <, share.n);
      g_assert_cmpint (share.result.chosen[0], ==, id + 1);
      g_assert_cmpuint (share.result.counters->rows_read, ==, id);
    }
    g_assert_cmpint (status, ==, share.n > 1 ? d->wanted : LYCHEE_CUDA_OK);
    if (status != 0)
      g_assert_cmpstr (error.message, ==, "this is feigned");
    lychee_cuda_batch_release (fake.batch, &member);
    id++;
  }
  lychee_cuda_batch_leave (fake.batch, &member);
  return NULL;
}

static void
run_all (Decoding *all, guint n)
{
  g_autofree GThread **threads = g_new (GThread *, n);
  guint n_decoding;
  guint64 n_shared;

  for (guint i = 0; i < n; i++)
    threads[i] = g_thread_new ("decoding", decode, &all[i]);
  for (guint i = 0; i < n; i++)
    g_thread_join (threads[i]);
  lychee_cuda_batch_describe (fake.batch, &n_decoding, &n_shared);
  g_assert_cmpuint (n_decoding, ==, 0);
}

/* More than go into one pass; after the first one nobody goes on without the others. */
static void
test_together (gconstpointer data)
{
  guint n = GPOINTER_TO_UINT (data), most = MIN (n, LYCHEE_CUDA_MAX_SEQUENCES), largest = 0;
  g_autofree Decoding *all = g_new0 (Decoding, n);

  begin (n, "60000000", LYCHEE_CUDA_OK);
  for (guint i = 0; i < n; i++)
    all[i] = (Decoding){ .number = i + 1, .n_steps = 10, .frequency = frequency };
  run_all (all, n);
  for (guint i = 0; i < n; i++)
    g_assert_cmpuint (all[i].n_together, >=, n > LYCHEE_CUDA_MAX_SEQUENCES ? 1 : 8);
  g_assert_cmpuint (fake.n_made, ==, 1);
  for (guint i = 0; i < MIN (fake.shared->n_passes, G_N_ELEMENTS (fake.shared->sizes)); i++)
    largest = MAX (largest, fake.shared->sizes[i]);
  g_assert_cmpuint (largest, ==, most);
  end ();
}

/* Who is alone does not wait, and has its own worker compute. */
static void
test_alone (void)
{
  Decoding one = { .number = 1, .n_steps = 50, .frequency = frequency };
  gint64 begun = g_get_monotonic_time ();

  begin (1, "60000000", LYCHEE_CUDA_OK);
  run_all (&one, 1);
  g_assert_cmpint (g_get_monotonic_time () - begun, <, LONGEST);
  g_assert_cmpuint (one.own.n_passes, ==, 50);
  g_assert_cmpuint (one.n_together, ==, 0);
  g_assert_cmpuint (fake.n_made, ==, 0);
  end ();
}

/* Sequences of different kinds are computed one after the other. */
static void
test_kinds (void)
{
  Decoding all[3] = {
    { .number = 1, .n_steps = 10, .frequency = frequency },
    { .number = 2, .n_steps = 10, .frequency = frequency, .sparse = TRUE },
    { .number = 3, .n_steps = 10, .frequency = other_frequency },
  };

  begin (3, "60000000", LYCHEE_CUDA_OK);
  run_all (all, 3);
  for (guint i = 0; i < 3; i++) {
    g_assert_cmpuint (all[i].n_together, ==, 0);
    g_assert_cmpuint (all[i].own.n_passes, ==, 10);
  }
  end ();
}

/* Nobody waits long for who does not come. */
static void
test_patience (void)
{
  Decoding all[2] = {
    { .number = 1, .n_steps = 1, .frequency = frequency },
    { .number = 2, .n_steps = 20, .frequency = frequency },
  };
  LycheeCudaMember away = { 0 };
  int id = 7000;
  LycheeCudaSequence sequence = { .first = id };
  LycheeCudaPass pass = { .ids = &id,
    .n_tokens = 1,
    .n_sequences = 1,
    .sequences = &sequence,
    .output = LYCHEE_CUDA_OUTPUT_CHOSEN,
    .frequency = { frequency, frequency },
    .audit_layer = -1 };
  LycheeCudaWorker own = { 0 };
  LycheeCudaShare share;
  LycheeCudaError error;
  guint n_decoding;
  guint64 n_shared;

  begin (1, "1000", LYCHEE_CUDA_OK);
  g_assert_cmpint (lychee_cuda_batch_run (fake.batch, &away, &own, &pass, &share, &error), ==, 0);
  lychee_cuda_batch_release (fake.batch, &away);
  lychee_cuda_batch_describe (fake.batch, &n_decoding, &n_shared);
  g_assert_cmpuint (n_decoding, ==, 1);
  g_assert_cmpuint (lychee_cuda_batch_count (fake.batch, &away), ==, 1);
  run_all (all, 2); /* none of them is left, nor the one that did not come again */
  g_assert_cmpuint (all[1].own.n_passes + all[1].n_together, ==, 20);
  lychee_cuda_batch_leave (fake.batch, &away);
  end ();
}

/* Without memory for several, each is computed alone, for good; and what fails is all members'
 * error. */
static void
test_failures (gconstpointer data)
{
  LycheeCudaStatus status = GPOINTER_TO_INT (data);
  Decoding all[3] = { { 0 } };
  guint n_together = 0;

  for (guint i = 0; i < 3; i++)
    all[i] = (Decoding){ .number = i + 1, .n_steps = 6, .frequency = frequency, .wanted = status };
  begin (3, "60000000", status);
  run_all (all, 3);
  for (guint i = 0; i < 3; i++) {
    n_together += all[i].n_together;
    if (status == LYCHEE_CUDA_NO_MEMORY)
      g_assert_cmpuint (all[i].own.n_passes, ==, 6);
  }
  g_assert_cmpuint (n_together, ==, 0);
  if (status == LYCHEE_CUDA_NO_MEMORY)
    g_assert_cmpuint (fake.shared->n_passes, ==, 1);
  end ();
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, NULL);
  g_test_add_func ("/cuda/share/alone", test_alone);
  g_test_add_data_func ("/cuda/share/two", GUINT_TO_POINTER (2), test_together);
  g_test_add_data_func ("/cuda/share/five", GUINT_TO_POINTER (5), test_together);
  g_test_add_data_func ("/cuda/share/twenty", GUINT_TO_POINTER (20), test_together);
  g_test_add_func ("/cuda/share/kinds", test_kinds);
  g_test_add_func ("/cuda/share/patience", test_patience);
  g_test_add_data_func (
      "/cuda/share/no-memory", GINT_TO_POINTER (LYCHEE_CUDA_NO_MEMORY), test_failures);
  g_test_add_data_func ("/cuda/share/failed", GINT_TO_POINTER (LYCHEE_CUDA_FAILED), test_failures);
  return g_test_run ();
}
