/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* lychee-bench fidelity --from: attention alone, on keys, values and queries that --dump wrote: no
 * model has to read a text again. */

#include "fidelity.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define PAGE_SHIFT 24 /* all rows are in one page */
#define MAX_HEADS 65536

typedef struct {
  const char *path;
  FILE *file;
} Reader;

/* @to: NULL where there are none. */
static void
take (Reader *reader, gpointer to, gsize size, gsize n)
{
  if (n > 0 && fread (to, size, n, reader->file) != n)
    bench_fail ("“%s” is cut off", reader->path);
}

static guint32
take_u32 (Reader *reader)
{
  guint32 n;

  take (reader, &n, sizeof n, 1);
  return n;
}

static guint
place (const Fidelity *f, guint layer, guint kv_head)
{
  return layer * f->n_kv_heads + kv_head;
}

/* What heads of the last layer that is dumped, and of those before it, need. */
static void
read_header (Reader *reader, Fidelity *f, guint n_queries)
{
  char magic[8];
  guint32 header[6];
  g_autofree guint32 *layers = NULL;

  take (reader, magic, sizeof magic, 1);
  if (memcmp (magic, "LYQKV1\0", sizeof magic) != 0)
    bench_fail ("“%s” is nothing that --dump wrote", reader->path);
  take (reader, header, sizeof header, 1);
  f->n_kv_heads = header[1];
  f->group = header[2];
  f->head_dim = header[3];
  f->n_keys = header[4];
  f->n_dumped = header[5];
  if (header[0] == 0 || f->n_kv_heads == 0 || header[0] > MAX_HEADS / f->n_kv_heads ||
      f->group == 0 || f->group > LYCHEE_ATTENTION_MAX_GROUP || f->head_dim < 8 ||
      f->head_dim > 256 || f->head_dim % 8 != 0 || f->n_dumped == 0 ||
      f->n_keys >= 1u << PAGE_SHIFT || f->n_keys <= f->n_dumped)
    bench_fail ("“%s” has dimensions that do not go together", reader->path);
  layers = g_new (guint32, header[0]);
  take (reader, layers, sizeof *layers, header[0]);
  f->n_layers = layers[header[0] - 1] + 1;
  if (f->n_layers > MAX_HEADS / f->n_kv_heads)
    bench_fail ("“%s” has no layer %u", reader->path, f->n_layers - 1);
  f->measured = g_new0 (gboolean, f->n_layers);
  for (guint i = 0; i < header[0]; i++) {
    if (layers[i] >= f->n_layers || (i > 0 && layers[i] <= layers[i - 1]))
      bench_fail ("“%s”: its layers are not in order", reader->path);
    f->measured[layers[i]] = TRUE;
  }
  f->n_tokens = f->n_keys - f->n_dumped;
  f->n_queries = MIN (n_queries, f->n_dumped);
  for (guint i = 0; i < f->n_dumped; i++)
    if (take_u32 (reader) != f->n_tokens + i)
      bench_fail ("“%s”: its queries are not the last tokens", reader->path);
}

static void
read_layer (Reader *reader, Fidelity *f, guint layer)
{
  gsize n = (gsize) f->n_keys * f->head_dim;

  for (guint kv_head = 0; kv_head < f->n_kv_heads; kv_head++) {
    DumpedHead *head = &f->dumped[place (f, layer, kv_head)];

    head->page = g_new (guint16, 2 * n);
    head->rows = (LycheeRows){ (const guint16 *const *) &head->page, PAGE_SHIFT, n };
    take (reader, head->page, sizeof *head->page, n);
  }
  for (guint kv_head = 0; kv_head < f->n_kv_heads; kv_head++)
    take (reader, f->dumped[place (f, layer, kv_head)].page + n, sizeof (guint16), n);
  n = (gsize) f->n_dumped * f->group * f->head_dim;
  for (guint kv_head = 0; kv_head < f->n_kv_heads; kv_head++) {
    DumpedHead *head = &f->dumped[place (f, layer, kv_head)];

    head->q = g_new (float, n);
    take (reader, head->q, sizeof *head->q, n);
  }
}

/* Dumps of other programs end before this: chunks are then of equal length, and the index has seen
 * no query. */
static void
read_seen (Reader *reader, Fidelity *f)
{
  char magic[8];
  guint32 n;

  if (fread (magic, 1, sizeof magic, reader->file) != sizeof magic ||
      memcmp (magic, "LYSEEN1", sizeof magic) != 0)
    return;
  n = take_u32 (reader);
  if (n > f->n_keys)
    bench_fail ("“%s” has more chunks than keys", reader->path);
  g_array_set_size (f->item_ends, n);
  take (reader, f->item_ends->data, sizeof (guint32), n);
  for (guint i = 1; i < n; i++)
    if (g_array_index (f->item_ends, guint, i) <= g_array_index (f->item_ends, guint, i - 1))
      bench_fail ("“%s”: its chunks are not in order", reader->path);
  for (guint i = 0; i < f->n_layers * f->n_kv_heads; i++) {
    if (!f->measured[i / f->n_kv_heads])
      continue;
    n = take_u32 (reader);
    if (n > f->n_keys)
      bench_fail ("“%s” has seen more queries than there are", reader->path);
    g_array_set_size (f->seen[i].rows, n);
    take (reader, f->seen[i].rows->data, sizeof (guint32), n);
    g_array_set_size (f->seen[i].q, n * f->head_dim);
    take (reader, f->seen[i].q->data, sizeof (float), (gsize) n * f->head_dim);
  }
}

void
fidelity_open_dump (Fidelity *f, const char *path, guint n_queries)
{
  Reader reader = { path, fopen (path, "rb") };
  guint n;

  if (!reader.file)
    bench_fail ("cannot read “%s”: %s", path, g_strerror (errno));
  g_clear_pointer (&f->bench.model_path, g_free); /* nobody loads it */
  read_header (&reader, f, n_queries);
  n = f->n_layers * f->n_kv_heads;
  f->dumped = g_new0 (DumpedHead, n);
  f->item_ends = g_array_new (FALSE, FALSE, sizeof (guint));
  fidelity_new_seen (f);
  for (guint layer = 0; layer < f->n_layers; layer++)
    if (f->measured[layer])
      read_layer (&reader, f, layer);
  read_seen (&reader, f);
  fclose (reader.file);
}

static void
print_row (const Fidelity *f, const char *path, const Policy *policy, guint budget,
    const FidelityScore *score, double metadata)
{
  if (f->bench.json)
    printf ("{\"policy\": \"%s\", \"budget\": %u, \"mass\": %.6f, \"error\": %.6f, "
            "\"nodes_scored\": %.1f, \"metadata\": %.6f, \"tokens\": %u, \"queries\": %u, "
            "\"dump\": \"%s\"}\n",
        policy->name, budget, score->mass, score->error, score->nodes_scored, metadata, f->n_tokens,
        f->n_queries, path);
  else
    printf ("%-14s %7u %7.4f %8.4f %8.1f %8.2f%%\n", policy->name, budget, score->mass,
        score->error, score->nodes_scored, 100 * metadata);
}

void
fidelity_replay (Fidelity *f, const char *path, const char *dump_path)
{
  g_autoptr (GPtrArray) banks = g_ptr_array_new_with_free_func ((GDestroyNotify) policy_bank_free);
  g_autofree double *metadata = g_new (double, f->policies->len);
  g_autoptr (FidelityDump) dump = NULL;
  g_autofree float *output = g_new (float, f->group * f->head_dim);
  FidelityMeasure measure;

  for (guint b = 0; b < f->policies->len; b++) {
    PolicyBank *bank = fidelity_new_bank (f, f->policies->pdata[b], TRUE);

    for (guint i = 0; i < bank->n; i++)
      if (bank->states[i])
        policy_state_prefill (bank->states[i], &f->dumped[i].rows, f->n_tokens);
    metadata[b] = policy_bank_get_metadata (bank, f, f->n_tokens);
    g_ptr_array_add (banks, bank);
  }
  fidelity_measure_init (&measure, f, (PolicyBank *const *) banks->pdata, banks->len);
  if (dump_path)
    measure.dump = dump = fidelity_dump_new (f, measure.banks, banks->len);
  for (guint i = 0; i < f->n_queries; i++)
    for (guint at = 0; at < f->n_layers * f->n_kv_heads; at++) {
      const DumpedHead *head = &f->dumped[at];
      LycheeQueries queries = { f->group, f->head_dim, 1 / sqrtf (f->head_dim) };

      if (!head->page)
        continue;
      queries.q = head->q + (gsize) i * f->group * f->head_dim;
      fidelity_measure (at / f->n_kv_heads, at % f->n_kv_heads, &queries, &head->rows,
          f->n_tokens + i + 1, output, &measure);
    }
  if (dump_path)
    fidelity_dump_save (dump, NULL, dump_path);
  if (!f->bench.json)
    printf ("“%s”, %u tokens and %u queries\n\n%-14s %7s %7s %8s %8s %9s\n", path, f->n_tokens,
        f->n_queries, "policy", "budget", "mass", "error", "nodes", "metadata");
  for (guint b = 0; b < banks->len; b++) {
    const Policy *policy = f->policies->pdata[b];

    for (guint k = 0; k < fidelity_get_n_budgets (f, policy); k++) {
      FidelityScore score = fidelity_measure_get (&measure, b, k);

      print_row (f, path, policy, policy->whole ? f->n_tokens + f->n_queries : f->budgets[k],
          &score, metadata[b]);
    }
  }
  fidelity_measure_clear (&measure);
}
