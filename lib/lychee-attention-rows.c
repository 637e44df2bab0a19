/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Rows that cannot be read where they lie: what is kept of a key is not what queries are compared
 * with. */

#include "lychee-attention-private.h"

#include <string.h>

/* Where there is more than the model knows, tokens keep their distance up to half of what it knows.
 * (SmolLM2, to 12,000 tokens: 2.768 nats a token; 2.776 where all is used for it that is not needed
 * for what is read.) Indexes are searched as if what is sought were anywhere in it. */
#define NEAR_PART 0.5

static void
make_memory (LycheeAttention *a)
{
  for (guint i = 0; i < a->n_threads; i++) {
    LycheeLoadedRows *loaded = &a->loaded[i];

    if (loaded->k)
      continue;
    loaded->keys = g_new (float, (gsize) LYCHEE_LOAD_ROWS * a->head_dim);
    loaded->k = g_new (guint16, (gsize) 2 * LYCHEE_LOAD_ROWS * a->head_dim);
    loaded->v = loaded->k + (gsize) LYCHEE_LOAD_ROWS * a->head_dim;
    loaded->queries = g_new (float, (gsize) BLOCK_TOKENS * a->group * a->head_dim);
  }
}

void
lychee_attention_set_key_func (LycheeAttention *a, LycheeKeyFunc func, gpointer user_data)
{
  a->key_func = func;
  a->key_data = user_data;
  if (func)
    make_memory (a);
}

void
lychee_attention_set_packed (LycheeAttention *a, const LycheePacked *packed, guint range)
{
  a->packed = packed;
  a->range = range;
  if (packed)
    make_memory (a);
}

guint
lychee_attention_get_farthest (guint range)
{
  return range + BLOCK_TOKENS;
}

void
lychee_attention_plan_turns (LycheeAttention *a)
{
  const LycheeCacheIndexing *indexing = lychee_cache_get_indexing (a->cache);
  guint size = lychee_packed_turn_size (a->packed), nearest = indexing ? indexing->window : 0;
  gsize need = (gsize) LYCHEE_TURNS * a->n_tokens * size;
  /* positions are those of rows, and what a forgotten one had is not given to another */
  gint64 first = (gint64) lychee_cache_get_origin (a->cache) + a->first;

  if (need > a->turns_size) {
    a->turns = g_renew (float, a->turns, need);
    a->turns_size = need;
  }
  a->near = a->place + a->n_tokens <= a->range ? G_MAXUINT : NEAR_PART * a->range;
  for (guint t = 0; t < a->n_tokens; t++) {
    guint in_block = t % BLOCK_TOKENS;
    float *turn = a->turns + (gsize) LYCHEE_TURNS * t * size;

    /* All tokens of a block are turned to the same origin. */
    lychee_packed_set_turn (
        a->packed, first + t - in_block, BLOCK_TOKENS, turn + LYCHEE_TURN_QUERY * size);
    lychee_packed_set_aim (a->packed, first + t, nearest,
        MAX (nearest, MIN (a->place + t, NEAR_PART * a->range)), turn + LYCHEE_TURN_AIM * size);
    lychee_packed_set_back (a->packed, first + t, turn + LYCHEE_TURN_BACK * size);
  }
}

guint
lychee_attention_get_most (LycheeAttention *a)
{
  return a->near == G_MAXUINT ? lychee_attention_get_farthest (a->range) : a->range;
}

static const float *
get_turn (LycheeAttention *a, LycheeTurn turn, guint token)
{
  return a->turns + ((gsize) LYCHEE_TURNS * token + turn) * lychee_packed_turn_size (a->packed);
}

const float *
lychee_attention_turn (LycheeAttention *a, LycheeTurn turn, const float *q, guint first_token,
    guint n_tokens, guint thread)
{
  float *to = a->loaded[thread].queries;

  for (guint t = 0; t < n_tokens; t++) {
    gsize at = (gsize) t * a->group * a->head_dim;

    lychee_packed_turn (a->packed, get_turn (a, turn, first_token + t), q + at, a->group, to + at);
  }
  return to;
}

const float *
lychee_attention_turn_back (LycheeAttention *a, const float *key, guint token, guint thread)
{
  float *to = a->loaded[thread].queries;

  lychee_packed_turn (a->packed, get_turn (a, LYCHEE_TURN_BACK, token), key, 1, to);
  return to;
}

void
lychee_attention_pack (LycheeAttention *a, Job *j, guint first_position)
{
  const LycheeSelection *found = j->selection;

  if (found->n_rows > j->n_distances) {
    j->n_distances = found->n_rows;
    j->distances = g_renew (guint32, j->distances, 2 * (gsize) j->n_distances);
  }
  for (guint i = 0; i < found->n_rows; i++)
    j->distances[j->n_distances + i] = found->rows[i] - a->skip;
  j->farthest = lychee_places_pack (&j->places, j->distances + j->n_distances, found->n_rows,
      first_position + BLOCK_TOKENS, a->near, lychee_attention_get_most (a), j->distances);
}

const LycheeLoadedRows *
lychee_attention_load (LycheeAttention *a, guint layer, const LycheeRows *rows, const guint32 *ids,
    const guint32 *places, guint n, guint thread)
{
  const LycheeLoadedRows *to = &a->loaded[thread];
  const LycheeCpuKernels *kernels = lychee_cpu_kernels_for (a->kernels, rows->form);
  gsize d = a->head_dim, size = lychee_row_size (rows->form, d);
  const guint16 *keys[LYCHEE_LOAD_ROWS];

  for (guint i = 0; i < n; i++) {
    keys[i] = lychee_rows_key (rows, d, ids[i]);
    for (gsize at = 0; at < size; at += CACHE_LINE / sizeof **keys) {
      __builtin_prefetch (keys[i] + at, 0, 2);
      __builtin_prefetch (keys[i] + rows->value_offset + at, 0, 2);
    }
  }
  for (guint i = 0; i < n; i++) {
    const guint16 *value = keys[i] + rows->value_offset;

    if (rows->form == LYCHEE_ROW_F16) {
      memcpy (to->v + i * d, value, d * sizeof *value);
    } else {
      kernels->read_row (value, d, to->keys);
      a->kernels->f32_to_f16 (to->keys, to->v + i * d, d);
    }
  }
  if (a->packed) {
    lychee_packed_turn_rows (a->packed, rows->form, keys, places, n, to->k);
    return to;
  }
  for (guint i = 0; i < n; i++)
    kernels->read_row (keys[i], d, to->keys + i * d);
  a->key_func (layer, places, n, to->keys, a->key_data);
  a->kernels->f32_to_f16 (to->keys, to->k, n * d);
  return to;
}

guint
lychee_attention_get_shift (LycheeAttention *a, const Job *j, guint first_position)
{
  guint first = first_position + BLOCK_TOKENS;
  guint read = MIN (j->farthest + j->sinks, lychee_attention_get_most (a));

  return a->near == G_MAXUINT ? 0 : first - MIN (first, read);
}
