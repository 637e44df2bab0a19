/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include "lychee-attention.h"

#include "lychee-cpu-kernels.h"

#include <math.h>
#include <string.h>

/* Tokens whose queries are answered together, sharing each read of a key. */
#define BLOCK_TOKENS 16
/* Keys of a unit where there are few queries: split over keys ("flash decoding"). */
#define SPLIT_KEYS 512

struct _LycheeAttention {
  const LycheeCpuKernels *kernels;
  guint n_layers;
  guint n_heads;
  guint n_kv_heads;
  guint group; /* query heads that share a KV head */
  guint head_dim;

  LycheeCache *cache; /* of the pass under way, not owned */
  guint first;        /* position of the pass's first token */
  guint n_tokens;
  guint n_blocks; /* of tokens */
  guint n_splits; /* of keys */
  guint split_keys;
  guint n_units; /* KV heads x blocks x splits */
  guint unit_queries;

  gint *next_unit; /* [n_layers], atomic */
  float *partial;  /* [unit] { m [queries], l [queries], o [queries][head_dim] } */
  gsize partial_size;
};

LycheeAttention *
lychee_attention_new (guint n_layers, guint n_heads, guint n_kv_heads, guint head_dim)
{
  LycheeAttention *a = g_new0 (LycheeAttention, 1);

  a->kernels = lychee_cpu_kernels_get ();
  a->n_layers = n_layers;
  a->n_heads = n_heads;
  a->n_kv_heads = n_kv_heads;
  a->group = n_heads / n_kv_heads;
  a->head_dim = head_dim;
  a->next_unit = g_new0 (gint, n_layers);
  return a;
}

void
lychee_attention_free (LycheeAttention *a)
{
  g_free (a->next_unit);
  g_free (a->partial);
  g_free (a);
}

static gsize
unit_size (LycheeAttention *a)
{
  return (gsize) a->unit_queries * (a->head_dim + 2);
}

static LycheeSoftmax
unit_state (LycheeAttention *a, guint unit, guint n_queries)
{
  float *base = a->partial + unit * unit_size (a);

  return (LycheeSoftmax){ base, base + n_queries, base + 2 * (gsize) n_queries };
}

void
lychee_attention_prepare (LycheeAttention *a, LycheeCache *cache, guint n_tokens)
{
  guint n_keys;
  gsize need;

  a->cache = cache;
  a->first = lychee_cache_get_length (cache);
  a->n_tokens = n_tokens;
  a->n_blocks = (n_tokens + BLOCK_TOKENS - 1) / BLOCK_TOKENS;
  n_keys = a->first + n_tokens;
  /* Many blocks are units enough; one block has to be split over its keys to occupy the threads. */
  a->split_keys = a->n_blocks > 1 ? n_keys : SPLIT_KEYS;
  a->n_splits = (n_keys + a->split_keys - 1) / a->split_keys;
  a->n_units = a->n_kv_heads * a->n_blocks * a->n_splits;
  a->unit_queries = MIN (n_tokens, BLOCK_TOKENS) * a->group;
  need = a->n_units * unit_size (a);
  if (need > a->partial_size) {
    g_free (a->partial);
    a->partial_size = need + need / 4;
    a->partial = g_new (float, a->partial_size);
  }
  memset (a->next_unit, 0, a->n_layers * sizeof *a->next_unit);
}

void
lychee_attention_store (
    LycheeAttention *a, guint layer, const float *k, const float *v, guint thread, guint n_threads)
{
  LycheeRows rows;

  /* A pair of rows is a few hundred bytes: not worth waking threads for, but they are awake. */
  for (guint i = thread; i < a->n_tokens * a->n_kv_heads; i += n_threads) {
    guint head = i % a->n_kv_heads, token = i / a->n_kv_heads;
    guint16 *to = lychee_cache_get_writable (a->cache, layer, head, a->first + token);

    lychee_cache_get_rows (a->cache, layer, head, &rows);
    a->kernels->f32_to_f16 (k + (gsize) i * a->head_dim, to, a->head_dim);
    a->kernels->f32_to_f16 (v + (gsize) i * a->head_dim, to + rows.value_offset, a->head_dim);
  }
}

/* The queries of a block's tokens for one KV head, [token][group][head_dim]; in place where there
 * is one token. */
static const float *
gather_queries (
    LycheeAttention *a, const float *q, guint head, guint first_token, guint n_tokens, float *to)
{
  gsize row = (gsize) a->group * a->head_dim;

  q += ((gsize) first_token * a->n_heads + (gsize) head * a->group) * a->head_dim;
  if (n_tokens == 1)
    return q;
  for (guint t = 0; t < n_tokens; t++)
    memcpy (to + t * row, q + (gsize) t * a->n_heads * a->head_dim, row * sizeof *to);
  return to;
}

static void
attend_unit (LycheeAttention *a, guint layer, const float *q, guint unit, float *scratch)
{
  guint split = unit % a->n_splits;
  guint block = unit / a->n_splits % a->n_blocks;
  guint head = unit / a->n_splits / a->n_blocks;
  guint first_token = block * BLOCK_TOKENS;
  guint n_tokens = MIN (BLOCK_TOKENS, a->n_tokens - first_token);
  guint first_position =
      a->first + first_token; /* of the block: what is before it is all visible */
  guint begin = split * a->split_keys;
  guint end = MIN (begin + a->split_keys, first_position + n_tokens);
  LycheeQueries queries = { n_tokens * a->group, a->head_dim, 1.0f / sqrtf (a->head_dim), NULL };
  LycheeSoftmax state = unit_state (a, unit, queries.n_queries);
  guint32 visible[BLOCK_TOKENS * LYCHEE_ATTENTION_MAX_GROUP];
  LycheeRows rows;

  queries.q = gather_queries (a, q, head, first_token, n_tokens, scratch);
  lychee_softmax_init (&state, queries.n_queries, a->head_dim);
  lychee_cache_get_rows (a->cache, layer, head, &rows);

  for (guint at = begin; at < end;) {
    guint page_end = (at | (LYCHEE_CACHE_PAGE_TOKENS - 1)) + 1;
    guint n = MIN (page_end, end) - at;
    const guint16 *k = rows.pages[at >> rows.page_shift] +
                       (gsize) (at & (LYCHEE_CACHE_PAGE_TOKENS - 1)) * a->head_dim;
    const guint32 *mask = NULL;

    if (at + n > first_position + 1) {
      mask = visible;
      for (guint t = 0; t < n_tokens; t++) {
        guint position = first_position + t;
        guint sees = position < at ? 0 : MIN (position + 1 - at, n);

        for (guint g = 0; g < a->group; g++)
          visible[t * a->group + g] = sees;
      }
    }
    a->kernels->attend (&queries, k, k + rows.value_offset, n, mask, &state);
    at += n;
  }
}

void
lychee_attention_attend (LycheeAttention *a, guint layer, const float *q)
{
  g_autofree float *scratch = NULL;
  guint unit;

  if (a->n_tokens > 1)
    scratch = g_new (float, (gsize) a->unit_queries * a->head_dim);
  while ((unit = g_atomic_int_add (&a->next_unit[layer], 1)) < a->n_units)
    attend_unit (a, layer, q, unit, scratch);
}

void
lychee_attention_merge (
    LycheeAttention *a, guint layer, float *output, guint thread, guint n_threads)
{
  gsize row = (gsize) a->group * a->head_dim;

  for (guint i = thread; i < a->n_kv_heads * a->n_blocks; i += n_threads) {
    guint head = i / a->n_blocks, first_token = i % a->n_blocks * BLOCK_TOKENS;
    guint n_tokens = MIN (BLOCK_TOKENS, a->n_tokens - first_token);
    guint n_queries = n_tokens * a->group;
    LycheeSoftmax sum = unit_state (a, i * a->n_splits, n_queries);
    float *to = output + ((gsize) first_token * a->n_heads + (gsize) head * a->group) * a->head_dim;

    for (guint split = 1; split < a->n_splits; split++) {
      LycheeSoftmax part = unit_state (a, i * a->n_splits + split, n_queries);

      lychee_softmax_merge (&sum, &part, n_queries, a->head_dim);
    }
    lychee_softmax_finish (&sum, n_queries, a->head_dim, sum.o);
    for (guint t = 0; t < n_tokens; t++)
      memcpy (to + (gsize) t * a->n_heads * a->head_dim, sum.o + t * row, row * sizeof *to);
  }
}
