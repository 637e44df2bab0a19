/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* lychee-bench fidelity --dump: what the dense run saw, and what policies made of it, in a file
 * that fidelity-check.py and index-lab read. Little endian, all of it:
 *
 *     "LYQKV1\0\0"; u32 n_layers, n_kv_heads, group, head_dim, n_keys, n_queries
 *     u32 layer[n_layers]; u32 position[n_queries]
 *     for each layer: f16 K [kv-head][key][head_dim], V likewise,
 *       f32 Q [kv-head][query][group][head_dim]
 *
 *     "LYSEEN1\0"; u32 n_chunks; u32 end[n_chunks]
 *     for each layer and KV head: u32 n; u32 row[n]; f32 q[n][head_dim], queries that were asked
 *       before and shown to the index
 *
 * and, unless all policies read everything,
 *
 *     "LYPOL1\0\0"; u32 n_policies, n_budgets; u32 budget[n_budgets]; char name[n_policies][16]
 *     for each layer, KV head, query and policy:
 *       u32 n_bytes; what the policy goes by (0 bytes: the same as at the query before)
 *       for each budget: u32 n_rows; u32 row[n_rows]; f32 output[group][head_dim] */

#include "fidelity.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define NAME_SIZE 16

struct _FidelityDump {
  Fidelity *fidelity;
  PolicyBank *const *banks; /* not owned */
  guint n_banks;
  float *q;             /* [layer][kv-head][query][group][head_dim] */
  GByteArray **answers; /* [layer][kv-head] the second part of the file */
  GByteArray **states;  /* [layer][kv-head][bank] as they were written last */
};

FidelityDump *
fidelity_dump_new (Fidelity *f, PolicyBank *const *banks, guint n_banks)
{
  FidelityDump *dump = g_new (FidelityDump, 1);
  guint n = f->n_layers * f->n_kv_heads;

  *dump = (FidelityDump){ f, banks, n_banks, NULL, NULL, NULL };
  dump->q = g_new (float, (gsize) n * f->n_queries * f->group * f->head_dim);
  dump->answers = g_new (GByteArray *, n);
  dump->states = g_new (GByteArray *, (gsize) n * n_banks);
  for (guint i = 0; i < n; i++)
    dump->answers[i] = g_byte_array_new ();
  for (guint i = 0; i < n * n_banks; i++)
    dump->states[i] = g_byte_array_new ();
  return dump;
}

void
fidelity_dump_free (FidelityDump *dump)
{
  guint n = dump->fidelity->n_layers * dump->fidelity->n_kv_heads;

  for (guint i = 0; i < n; i++)
    g_byte_array_unref (dump->answers[i]);
  for (guint i = 0; i < n * dump->n_banks; i++)
    g_byte_array_unref (dump->states[i]);
  g_free (dump->states);
  g_free (dump->answers);
  g_free (dump->q);
  g_free (dump);
}

static void
put (GByteArray *to, gconstpointer data, gsize size)
{
  g_byte_array_append (to, data, size);
}

void
fidelity_dump_query (FidelityDump *dump, guint head, const LycheeQueries *queries, guint n_keys)
{
  const Fidelity *f = dump->fidelity;
  gsize size = (gsize) f->group * f->head_dim;
  gsize place = (gsize) head * f->n_queries + n_keys - 1 - f->n_tokens;

  memcpy (dump->q + place * size, queries->q, size * sizeof *dump->q);
}

void
fidelity_dump_state (FidelityDump *dump, guint head, guint bank)
{
  GByteArray **last = &dump->states[head * dump->n_banks + bank];
  GByteArray *state = g_byte_array_new ();
  guint32 size;

  policy_state_write (dump->banks[bank]->states[head], state);
  size = state->len;
  if ((*last)->len == size && (size == 0 || !memcmp ((*last)->data, state->data, size))) {
    size = 0;
    put (dump->answers[head], &size, sizeof size);
    g_byte_array_unref (state);
    return;
  }
  put (dump->answers[head], &size, sizeof size);
  put (dump->answers[head], state->data, size);
  g_byte_array_unref (*last);
  *last = state;
}

void
fidelity_dump_answer (
    FidelityDump *dump, guint head, const PolicyChoice *choice, const float *output)
{
  GByteArray *to = dump->answers[head];
  guint32 n_rows = choice->n_rows;

  put (to, &n_rows, sizeof n_rows);
  put (to, choice->rows, n_rows * sizeof *choice->rows);
  put (to, output, (gsize) dump->fidelity->group * dump->fidelity->head_dim * sizeof *output);
}

/* How many of @n items could not be written. @items: NULL where there are none. */
static gsize
write_items (gconstpointer items, gsize size, gsize n, FILE *file)
{
  return n > 0 ? n - fwrite (items, size, n, file) : 0;
}

/* The first part of the file; returns how much of it could not be written. */
static gsize
write_rows (FidelityDump *dump, LycheeCache *cache, FILE *file)
{
  Fidelity *f = dump->fidelity;
  guint n_keys = f->n_tokens + f->n_queries;
  gsize head = (gsize) f->n_queries * f->group * f->head_dim, missing = 0;
  guint32 header[6] = { 0, f->n_kv_heads, f->group, f->head_dim, n_keys, f->n_queries };

  for (guint layer = 0; layer < f->n_layers; layer++)
    header[0] += f->measured[layer];
  missing += 1 - fwrite ("LYQKV1\0", 8, 1, file);
  missing += 1 - fwrite (header, sizeof header, 1, file);
  for (guint32 layer = 0; layer < f->n_layers; layer++)
    if (f->measured[layer])
      missing += 1 - fwrite (&layer, sizeof layer, 1, file);
  for (guint32 position = f->n_tokens; position < n_keys; position++)
    missing += 1 - fwrite (&position, sizeof position, 1, file);
  for (guint layer = 0; layer < f->n_layers; layer++) {
    if (!f->measured[layer])
      continue;
    for (guint part = 0; part < 2; part++)
      for (guint kv_head = 0; kv_head < f->n_kv_heads; kv_head++) {
        LycheeRows rows;

        fidelity_get_rows (f, cache, layer, kv_head, &rows);
        for (guint i = 0; i < n_keys; i++)
          missing += f->head_dim -
                     fwrite (lychee_rows_key (&rows, f->head_dim, i) + part * rows.value_offset,
                         sizeof (guint16), f->head_dim, file);
      }
    missing += f->n_kv_heads - fwrite (dump->q + (gsize) layer * f->n_kv_heads * head,
                                   head * sizeof *dump->q, f->n_kv_heads, file);
  }
  return missing;
}

static gsize
write_seen (FidelityDump *dump, FILE *file)
{
  Fidelity *f = dump->fidelity;
  const guint *ends = (const guint *) (gpointer) f->item_ends->data;
  guint32 n = 0;
  gsize missing = 0;

  /* The text may go on. */
  while (n < f->item_ends->len && (n == 0 || ends[n - 1] < f->n_tokens + f->n_queries))
    n++;
  missing += 1 - fwrite ("LYSEEN1", 8, 1, file);
  missing += 1 - fwrite (&n, sizeof n, 1, file);
  missing += write_items (ends, sizeof *ends, n, file);
  for (guint i = 0; i < f->n_layers * f->n_kv_heads; i++) {
    const PolicyQueriesSeen *seen = &f->seen[i];

    if (!f->measured[i / f->n_kv_heads])
      continue;
    n = seen->rows->len;
    missing += 1 - fwrite (&n, sizeof n, 1, file);
    missing += write_items (seen->rows->data, sizeof (guint), n, file);
    missing += write_items (seen->q->data, sizeof (float), seen->q->len, file);
  }
  return missing;
}

static gsize
write_answers (FidelityDump *dump, FILE *file)
{
  Fidelity *f = dump->fidelity;
  guint32 header[2] = { 0, f->n_budgets };
  gsize missing = 0;

  for (guint b = 0; b < dump->n_banks; b++)
    header[0] += !dump->banks[b]->policy->whole;
  if (header[0] == 0)
    return 0;
  missing += 1 - fwrite ("LYPOL1\0", 8, 1, file);
  missing += 1 - fwrite (header, sizeof header, 1, file);
  missing += f->n_budgets - fwrite (f->budgets, sizeof *f->budgets, f->n_budgets, file);
  for (guint b = 0; b < dump->n_banks; b++) {
    char name[NAME_SIZE] = { 0 };

    if (dump->banks[b]->policy->whole)
      continue;
    g_strlcpy (name, dump->banks[b]->policy->name, sizeof name);
    missing += 1 - fwrite (name, sizeof name, 1, file);
  }
  for (guint head = 0; head < f->n_layers * f->n_kv_heads; head++)
    if (f->measured[head / f->n_kv_heads])
      missing += write_items (dump->answers[head]->data, 1, dump->answers[head]->len, file);
  return missing;
}

void
fidelity_dump_save (FidelityDump *dump, LycheeCache *cache, const char *path)
{
  FILE *file = fopen (path, "wb");
  gsize missing;

  if (!file)
    bench_fail ("cannot write “%s”: %s", path, g_strerror (errno));
  missing = write_rows (dump, cache, file) + write_seen (dump, file) + write_answers (dump, file);
  if (fclose (file) != 0 || missing > 0)
    bench_fail ("cannot write “%s”: %s", path, g_strerror (errno));
}
