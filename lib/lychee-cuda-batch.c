/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include "lychee-cuda-batch.h"

#include "lychee-sampler-private.h"

#include <string.h>

#define LONGEST_WAIT 20000 /* microseconds */

struct _LycheeCudaBatch {
  LycheeCuda *cuda;
  LycheeCudaModel *model;
  gsize frequency_size;
  gint64 patience; /* microseconds to wait for others; -1: a quarter of what a pass takes */

  GMutex lock; /* not held while the device computes */
  GCond changed;
  GPtrArray *joined;        /* LycheeCudaMember, not owned: those that are decoding */
  GPtrArray *waiting;       /* those with a pass, in the order in which they came */
  gboolean busy;            /* a member leads: waits for others, or has the device compute */
  guint n_held;             /* shares of the worker's last result that were not released */
  gint64 took;              /* the last pass of several, microseconds */
  LycheeCudaWorker *worker; /* for passes of several sequences; NULL: there was none yet */
  gboolean too_large;       /* there is no memory for them */
  guint64 n_shared;
};

LycheeCudaBatch *
lychee_cuda_batch_new (LycheeCuda *cuda, LycheeCudaModel *model, guint n_frequency)
{
  LycheeCudaBatch *batch = g_new0 (LycheeCudaBatch, 1);
  const char *patience = g_getenv ("LYCHEE_CUDA_PATIENCE");

  batch->cuda = cuda;
  batch->model = model;
  batch->frequency_size = n_frequency * sizeof (double);
  batch->patience = patience ? g_ascii_strtoll (patience, NULL, 10) : -1;
  g_mutex_init (&batch->lock);
  g_cond_init (&batch->changed);
  batch->joined = g_ptr_array_new ();
  batch->waiting = g_ptr_array_new ();
  return batch;
}

void
lychee_cuda_batch_free (LycheeCudaBatch *batch)
{
  if (batch->worker)
    batch->cuda->api->worker_free (batch->worker);
  g_ptr_array_unref (batch->joined);
  g_ptr_array_unref (batch->waiting);
  g_mutex_clear (&batch->lock);
  g_cond_clear (&batch->changed);
  g_free (batch);
}

/* Whether two sequences' passes differ in nothing but the sequence. */
static gboolean
go_together (LycheeCudaBatch *batch, const LycheeCudaPass *a, const LycheeCudaPass *b)
{
  return a->type == b->type && a->output == b->output && a->sparse == b->sparse &&
         a->sinks == b->sinks && a->budget == b->budget && a->beam == b->beam &&
         a->rest == b->rest && a->chunks == b->chunks && a->range == b->range &&
         a->n_fresh == b->n_fresh && a->window == b->window &&
         memcmp (a->frequency[0], b->frequency[0], batch->frequency_size) == 0 &&
         memcmp (a->frequency[1], b->frequency[1], batch->frequency_size) == 0;
}

/* Takes the members out of those that wait whose passes go with @leader's. With the lock. */
static guint
take_members (LycheeCudaBatch *batch, LycheeCudaMember *leader, LycheeCudaMember **members)
{
  guint n = 0, most = batch->too_large ? 1 : LYCHEE_CUDA_MAX_SEQUENCES;

  members[n++] = leader;
  for (guint i = 0; i < batch->waiting->len && n < most; i++) {
    LycheeCudaMember *member = batch->waiting->pdata[i];

    if (member != leader && go_together (batch, leader->pass, member->pass))
      members[n++] = member;
  }
  for (guint i = 0; i < n; i++) {
    g_ptr_array_remove (batch->waiting, members[i]);
    members[i]->state = LYCHEE_CUDA_MEMBER_RUNS;
  }
  return n;
}

/* One pass of all members' tokens. */
static int
run_together (LycheeCudaBatch *batch, LycheeCudaMember **members, guint n, LycheeCudaResult *result,
    LycheeCudaError *error)
{
  const LycheeCudaApi *api = batch->cuda->api;
  LycheeCudaPass pass = *members[0]->pass;
  LycheeCudaSequence sequences[LYCHEE_CUDA_MAX_SEQUENCES];
  int ids[LYCHEE_CUDA_MAX_SEQUENCES];

  if (!batch->worker &&
      api->worker_new (batch->model, (const unsigned long long *) lychee_sampler_get_weights (),
          &batch->worker, error) != 0)
    return error->status;
  for (guint i = 0; i < n; i++) {
    const LycheeCudaPass *own = members[i]->pass;

    ids[i] = own->ids[0];
    sequences[i] = own->sequences[0];
    pass.max_nodes = MAX (pass.max_nodes, own->max_nodes);
    pass.max_node_rows = MAX (pass.max_node_rows, own->max_node_rows);
    pass.max_clusters = MAX (pass.max_clusters, own->max_clusters);
  }
  pass.ids = ids;
  pass.n_tokens = pass.n_sequences = n;
  pass.sequences = sequences;
  return api->worker_run (batch->worker, &pass, result, error);
}

static void
run_alone (LycheeCudaBatch *batch, LycheeCudaMember *member)
{
  member->status =
      batch->cuda->api->worker_run (member->worker, member->pass, &member->result, &member->error);
  member->at = 0;
  member->n = 1;
}

/* Waits for the others that decode, but not for long. With the lock. */
static void
gather (LycheeCudaBatch *batch)
{
  gint64 patience = batch->patience >= 0 ? batch->patience : MIN (batch->took / 4, LONGEST_WAIT);
  gint64 end = g_get_monotonic_time () + patience;

  while (batch->waiting->len < MIN (batch->joined->len, LYCHEE_CUDA_MAX_SEQUENCES) &&
         g_cond_wait_until (&batch->changed, &batch->lock, end))
    ;
  /* Who does not come is not waited for again before it has. */
  for (guint i = batch->joined->len; i > 0; i--) {
    LycheeCudaMember *member = batch->joined->pdata[i - 1];

    if (member->state == LYCHEE_CUDA_MEMBER_AWAY && !member->holds) {
      member->joined = FALSE;
      g_ptr_array_remove_index_fast (batch->joined, i - 1);
    }
  }
}

/* Has the pass of @leader computed, and of all that go with it. With the lock. */
static void
lead (LycheeCudaBatch *batch, LycheeCudaMember *leader)
{
  LycheeCudaMember *members[LYCHEE_CUDA_MAX_SEQUENCES];
  LycheeCudaResult result;
  LycheeCudaError error = { 0 };
  gint64 begun;
  guint n;
  int status = 0;

  batch->busy = TRUE;
  gather (batch);
  n = take_members (batch, leader, members);
  g_mutex_unlock (&batch->lock);
  begun = g_get_monotonic_time ();
  if (n > 1)
    status = run_together (batch, members, n, &result, &error);
  if (n == 1 || status == LYCHEE_CUDA_NO_MEMORY)
    for (guint i = 0; i < n; i++)
      run_alone (batch, members[i]);
  g_mutex_lock (&batch->lock);
  batch->took = g_get_monotonic_time () - begun;
  if (status == LYCHEE_CUDA_NO_MEMORY) {
    batch->too_large = TRUE;
  } else if (n > 1) {
    batch->n_shared += status == 0 ? n : 0;
    batch->n_held = n;
    for (guint i = 0; i < n; i++) {
      members[i]->status = status;
      members[i]->error = error;
      members[i]->result = result;
      members[i]->at = i;
      members[i]->n = n;
      members[i]->holds = TRUE;
      if (status == 0) {
        members[i]->result.chosen = result.chosen + i;
        members[i]->result.counters = result.counters + i;
      }
    }
  }
  for (guint i = 0; i < n; i++)
    members[i]->state = LYCHEE_CUDA_MEMBER_AWAY;
  batch->busy = FALSE;
  g_cond_broadcast (&batch->changed);
}

int
lychee_cuda_batch_run (LycheeCudaBatch *batch, LycheeCudaMember *member, LycheeCudaWorker *worker,
    const LycheeCudaPass *pass, LycheeCudaShare *share, LycheeCudaError *error)
{
  g_mutex_lock (&batch->lock);
  member->pass = pass;
  member->worker = worker;
  member->state = LYCHEE_CUDA_MEMBER_WAITS;
  if (!member->joined) {
    member->joined = TRUE;
    g_ptr_array_add (batch->joined, member);
  }
  g_ptr_array_add (batch->waiting, member);
  g_cond_broadcast (&batch->changed);
  while (member->state != LYCHEE_CUDA_MEMBER_AWAY)
    if (member->state == LYCHEE_CUDA_MEMBER_WAITS && !batch->busy && batch->n_held == 0)
      lead (batch, member);
    else
      g_cond_wait (&batch->changed, &batch->lock);
  *share = (LycheeCudaShare){ member->result, member->at, member->n };
  *error = member->error;
  g_mutex_unlock (&batch->lock);
  return member->status;
}

void
lychee_cuda_batch_release (LycheeCudaBatch *batch, LycheeCudaMember *member)
{
  g_mutex_lock (&batch->lock);
  if (member->holds) {
    member->holds = FALSE;
    if (--batch->n_held == 0)
      g_cond_broadcast (&batch->changed);
  }
  g_mutex_unlock (&batch->lock);
}

void
lychee_cuda_batch_leave (LycheeCudaBatch *batch, LycheeCudaMember *member)
{
  g_mutex_lock (&batch->lock);
  if (member->joined) {
    member->joined = FALSE;
    g_ptr_array_remove (batch->joined, member);
    g_cond_broadcast (&batch->changed);
  }
  g_mutex_unlock (&batch->lock);
}

guint
lychee_cuda_batch_count (LycheeCudaBatch *batch, const LycheeCudaMember *member)
{
  guint n;

  g_mutex_lock (&batch->lock);
  n = batch->joined->len + !member->joined;
  g_mutex_unlock (&batch->lock);
  return n;
}

void
lychee_cuda_batch_describe (LycheeCudaBatch *batch, guint *n_decoding, guint64 *n_shared)
{
  g_mutex_lock (&batch->lock);
  *n_decoding = batch->joined->len;
  *n_shared = batch->n_shared;
  g_mutex_unlock (&batch->lock);
}
