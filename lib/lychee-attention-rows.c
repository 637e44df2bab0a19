/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Rows that cannot be read where they lie: what is kept of a key is not what queries are compared
 * with. */

#include "lychee-attention-private.h"

#include <string.h>

void
lychee_attention_set_key_func (LycheeAttention *a, LycheeKeyFunc func, gpointer user_data)
{
  a->key_func = func;
  a->key_data = user_data;
  for (guint i = 0; i < a->n_threads && func; i++) {
    LycheeLoadedRows *loaded = &a->loaded[i];

    if (loaded->k)
      continue;
    loaded->keys = g_new (float, (gsize) LYCHEE_LOAD_ROWS * a->head_dim);
    loaded->k = g_new (guint16, (gsize) 2 * LYCHEE_LOAD_ROWS * a->head_dim);
    loaded->v = loaded->k + (gsize) LYCHEE_LOAD_ROWS * a->head_dim;
  }
}

const LycheeLoadedRows *
lychee_attention_load (LycheeAttention *a, guint layer, const LycheeRows *rows, const guint32 *ids,
    const guint32 *places, guint n, guint thread)
{
  const LycheeLoadedRows *to = &a->loaded[thread];
  guint mask = (1u << rows->page_shift) - 1;
  gsize d = a->head_dim;

  for (guint i = 0; i < n; i++) {
    const guint16 *key = rows->pages[ids[i] >> rows->page_shift] + (ids[i] & mask) * d;

    a->kernels->f16_to_f32 (key, to->keys + i * d, d);
    memcpy (to->v + i * d, key + rows->value_offset, d * sizeof *key);
  }
  a->key_func (layer, places, n, to->keys, a->key_data);
  a->kernels->f32_to_f16 (to->keys, to->k, n * d);
  return to;
}
