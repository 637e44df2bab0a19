/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "lychee-cuda-device.h"

G_BEGIN_DECLS

/* Sequences of one model that are decoded at the same time, each by a thread of its own: their
 * passes of a token meet here and are computed as one, which reads the weights once for all of
 * them. A pass that comes while another one is computed waits for its end, and then for the others
 * that were in that one, for a quarter of the time that it took: who answers alone never waits. */
typedef struct _LycheeCudaBatch LycheeCudaBatch;

/* @n_frequency: numbers in each of a pass's two tables. @model outlives it. */
LycheeCudaBatch *lychee_cuda_batch_new (
    LycheeCuda *cuda, LycheeCudaModel *model, guint n_frequency);
void lychee_cuda_batch_free (LycheeCudaBatch *batch);

/* A sequence, in the structure of whoever decodes it; zeros at first. */
typedef struct {
  /*< private >*/
  gboolean joined, holds;
  enum { LYCHEE_CUDA_MEMBER_AWAY, LYCHEE_CUDA_MEMBER_WAITS, LYCHEE_CUDA_MEMBER_RUNS } state;
  const LycheeCudaPass *pass;
  LycheeCudaWorker *worker;
  LycheeCudaResult result;
  guint at, n;
  int status;
  LycheeCudaError error;
} LycheeCudaMember;

/* What a pass gave. */
typedef struct {
  LycheeCudaResult result; /* chosen and counters are this sequence's */
  guint at, n;             /* result.rows are of @n tokens, of which this sequence's is @at */
} LycheeCudaShare;

/* Computes @pass, of one token of one sequence that is chosen, where nothing of the index is to be
 * brought up to date: with others, or with @worker. Returns 0 or sets @error, as worker_run ()
 * does. The share is valid until it is released, which nobody may wait with. */
int lychee_cuda_batch_run (LycheeCudaBatch *batch, LycheeCudaMember *member,
    LycheeCudaWorker *worker, const LycheeCudaPass *pass, LycheeCudaShare *share,
    LycheeCudaError *error);
void lychee_cuda_batch_release (LycheeCudaBatch *batch, LycheeCudaMember *member);
/* The others need not wait for it: something else comes first. */
void lychee_cuda_batch_leave (LycheeCudaBatch *batch, LycheeCudaMember *member);
/* How many sequences are being decoded; @member counts in any case. */
guint lychee_cuda_batch_count (LycheeCudaBatch *batch, const LycheeCudaMember *member);
/* How many are decoding, and tokens that were decoded together with others. */
void lychee_cuda_batch_describe (LycheeCudaBatch *batch, guint *n_decoding, guint64 *n_shared);

G_END_DECLS
