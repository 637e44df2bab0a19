/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "lychee-cache-private.h"

G_BEGIN_DECLS

/* Attention of one forward pass over a cache, as three steps that any number of threads share. The
 * caller (the ggml graph's custom nodes) puts a barrier between the steps. Work is cut into units
 * that depend on the shape alone, and units are merged in order, so that the result does not depend
 * on the number of threads. Not thread safe beyond that: one pass at a time. */
typedef struct _LycheeAttention LycheeAttention;

/* Query heads that may share a KV head. */
#define LYCHEE_ATTENTION_MAX_GROUP 64

LycheeAttention *lychee_attention_new (
    guint n_layers, guint n_heads, guint n_kv_heads, guint head_dim);
void lychee_attention_free (LycheeAttention *attention);

/* Before the pass: its @n_tokens follow the cache's present length, and are reserved. */
void lychee_attention_prepare (LycheeAttention *attention, LycheeCache *cache, guint n_tokens);

/* Step 1: keys and values [n_tokens][kv-heads][head-dim] of the new tokens go into the cache. */
void lychee_attention_store (LycheeAttention *attention, guint layer, const float *k,
    const float *v, guint thread, guint n_threads);
/* Step 2: each token's queries [n_tokens][heads][head-dim] over the keys up to its own. */
void lychee_attention_attend (LycheeAttention *attention, guint layer, const float *q);
/* Step 3: output [n_tokens][heads][head-dim]. */
void lychee_attention_merge (
    LycheeAttention *attention, guint layer, float *output, guint thread, guint n_threads);

G_END_DECLS
