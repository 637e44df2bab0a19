/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <gio/gio.h>

#include "lychee-attention.h"
#include "lychee-cache.h"
#include "lychee-executor.h"
#include "lychee-model.h"
#include "lychee-packed.h"

G_BEGIN_DECLS

/* The forward pass of a model over a cache, as a ggml graph whose attention is ours. Not thread
 * safe: each thread that runs passes has one of its own; they share model and executor. */
typedef struct _LycheeForward LycheeForward;

typedef enum {
  LYCHEE_OUTPUT_NONE,   /* only keys and values: reading a transcript */
  LYCHEE_OUTPUT_LAST,   /* logits of the last token */
  LYCHEE_OUTPUT_ALL,    /* logits of every token */
  LYCHEE_OUTPUT_STATES, /* what the last layer makes of every token, [n_embd] each, in place of
                           logits */
} LycheeOutput;

/* Tokens of one pass at the most; more are for the caller to cut. */
#define LYCHEE_FORWARD_MAX_TOKENS 512

LycheeForward *lychee_forward_new (LycheeModel *model, LycheeExecutor *executor);
/* Of the model's first @n_layers layers alone; its caches have as many. */
LycheeForward *lychee_forward_new_shallow (
    LycheeModel *model, LycheeExecutor *executor, guint n_layers);
void lychee_forward_free (LycheeForward *forward);

/* Its attention, for options and counters; dense by default. (transfer none) */
LycheeAttention *lychee_forward_get_attention (LycheeForward *forward);

/* Bytes of its own buffers. The graph's are shared by all forwards of a model over one executor,
 * and not in it. */
gsize lychee_forward_get_bytes (LycheeForward *forward);

/* Computes @n tokens behind those that @cache holds, and commits them. FALSE: the cache is as
 * before. @logits: (out) (optional) (transfer none): [rows][n_vocab] of @output, until the next
 * pass. Ids out of range are LYCHEE_MODEL_ERROR_INVALID; other errors are those of the cache and of
 * the executor. */
gboolean lychee_forward_run (LycheeForward *forward, LycheeCache *cache, const gint32 *ids, guint n,
    LycheeOutput output, const float **logits, GCancellable *cancellable, GError **error);

/* How keys are kept, for a pass of @n tokens: with packed positions, they are turned back when
 * there are more than the model was trained for. @packed: (inout): NULL, until it is needed.
 * Returns it, or NULL: keys have positions. (transfer none) */
const LycheePacked *lychee_forward_pack (
    LycheeModel *model, LycheePacked **packed, LycheeCache *cache, guint n);

G_DEFINE_AUTOPTR_CLEANUP_FUNC (LycheeForward, lychee_forward_free)

G_END_DECLS
