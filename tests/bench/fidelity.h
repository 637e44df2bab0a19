/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "bench.h"
#include "lychee-cache-private.h"
#include "exact-attention.h"
#include "lychee-attention.h"
#include "policies.h"

G_BEGIN_DECLS

/* What the two parts of the command share: a model reading a text, and the policies' states for all
 * layers and KV heads. */

#define FIDELITY_SINKS 16
#define FIDELITY_WINDOW 64

/* Of one layer and KV head, out of a file. */
typedef struct {
  guint16 *page; /* [K then V][n_keys][head_dim] */
  LycheeRows rows;
  float *q; /* [n_dumped][group][head_dim] */
} DumpedHead;

typedef struct {
  Bench bench;
  char *text_path;
  guint n_tokens;   /* read before the first query */
  guint n_queries;  /* tokens that follow, one at a time */
  gboolean sparse;  /* the text is read through an index, the queries as ever */
  gboolean packed;  /* with packed positions, and sparsely */
  gboolean stretch; /* where the model was not trained for so many positions, it is stretched */
  guint *budgets;
  guint n_budgets;
  GPtrArray *policies; /* of const Policy */

  LycheeModel *model;
  LycheeExecutor *executor;
  LycheeForward *forward;
  LycheeCache *cache;
  guint n_layers, n_kv_heads, group, head_dim;
  GArray *ids;             /* of gint32: the text */
  GArray *item_ends;       /* of guint: where its chunks end, by the chunker */
  gboolean *measured;      /* [n_layers] */
  PolicyQueriesSeen *seen; /* [n_layers][n_kv_heads] */
  DumpedHead *dumped;      /* [n_layers][n_kv_heads] in place of model and cache (nullable) */
  guint n_keys, n_dumped;  /* in the file; n_dumped of them are queries, too */
} Fidelity;

/* What is measured; first of all. Exits with a message on error. */
void fidelity_choose (Fidelity *fidelity, const char *policies, const char *budgets);
/* Loads model and text; exits with a message on error. @layers: "all" or a list. */
void fidelity_open (Fidelity *fidelity, const char *layers);
/* Reads what --dump wrote instead; at most @n_queries are asked. */
void fidelity_open_dump (Fidelity *fidelity, const char *path, guint n_queries);
void fidelity_new_seen (Fidelity *fidelity); /* none yet */
/* Keys and values, of a dump or of @cache. */
void fidelity_get_rows (
    Fidelity *fidelity, LycheeCache *cache, guint layer, guint kv_head, LycheeRows *rows);
void fidelity_close (Fidelity *fidelity);

/* Reads the text's ids, and where @chunker cuts it, which policies by chunks go by. Done by open
 * with a chunker that goes by structure. */
void fidelity_cut (Fidelity *fidelity, LycheeChunker *chunker);

/* Reads the text up to @n_tokens into the cache. */
void fidelity_read (Fidelity *fidelity, guint n_tokens);

/* The states of one policy: [layer][kv-head]; NULL in layers that are left out. */
typedef struct {
  const Policy *policy;
  guint n;
  PolicyState **states;
} PolicyBank;

typedef void (*PolicyStateFunc) (PolicyState *state, const LycheeRows *rows, guint n_tokens);

/* @only_measured: none for the other layers. */
PolicyBank *fidelity_new_bank (Fidelity *fidelity, const Policy *policy, gboolean only_measured);
PolicyBank *policy_bank_copy (const PolicyBank *bank);
void policy_bank_free (PolicyBank *bank);
/* Calls @func, prefill, feed or build, on all states with what @cache holds. */
void policy_bank_update (PolicyBank *bank, LycheeCache *cache, PolicyStateFunc func);
/* Bytes for a byte of f16 keys and values of @n_tokens. */
double policy_bank_get_metadata (const PolicyBank *bank, const Fidelity *fidelity, guint n_tokens);

/* How many budgets it is tried with: of those that read everything, one. */
guint fidelity_get_n_budgets (const Fidelity *fidelity, const Policy *policy);

/* Feeds the next @n ids of the text to @cache one at a time, attention answered by @func. */
typedef void (*FidelityLogitsFunc) (guint i, const float *logits, gpointer user_data);
void fidelity_decode (Fidelity *fidelity, LycheeCache *cache, guint n, LycheeAttentionFunc func,
    gpointer func_data, FidelityLogitsFunc logits_func, gpointer logits_data);

/* A LycheeAttentionFunc: attention by one policy; @run is a FidelityRun. */
typedef struct {
  PolicyBank *bank; /* not owned */
  guint budget;
  guint n_kv_heads;
} FidelityRun;
void fidelity_answer (guint layer, guint kv_head, const LycheeQueries *queries,
    const LycheeRows *rows, guint n_keys, float *output, gpointer run);

/* Means over queries, layers, KV heads and their query heads. */
typedef struct {
  double mass, error, nodes_scored;
  guint n;
} FidelityScore;

/* What a measurement saw and what came of it, to be written to a file; what belongs to one head, by
 * one thread at a time. @head: layer n_kv_heads + KV head; of each query its state and its answers
 * by all banks that do not read everything, in their order. */
typedef struct _FidelityDump FidelityDump;
FidelityDump *fidelity_dump_new (Fidelity *fidelity, PolicyBank *const *banks, guint n_banks);
void fidelity_dump_free (FidelityDump *dump);
void fidelity_dump_query (
    FidelityDump *dump, guint head, const LycheeQueries *queries, guint n_keys);
void fidelity_dump_state (FidelityDump *dump, guint head, guint bank);
void fidelity_dump_answer (
    FidelityDump *dump, guint head, const PolicyChoice *choice, const float *output);
/* @cache: (nullable) where there is a dump. Exits with a message on error. */
void fidelity_dump_save (FidelityDump *dump, LycheeCache *cache, const char *path);

/* Dense attention that, beside, lets policies answer the same queries, and compares. */
typedef struct {
  Fidelity *fidelity;
  PolicyBank *const *banks; /* not owned */
  guint n_banks;
  FidelityDump *dump;  /* (nullable), not owned */
  FidelityScore *sums; /* [layer][kv-head][bank][budget] */
} FidelityMeasure;

void fidelity_measure_init (
    FidelityMeasure *measure, Fidelity *fidelity, PolicyBank *const *banks, guint n_banks);
void fidelity_measure_clear (FidelityMeasure *measure);
/* A LycheeAttentionFunc; @measure is a FidelityMeasure. */
void fidelity_measure (guint layer, guint kv_head, const LycheeQueries *queries,
    const LycheeRows *rows, guint n_keys, float *output, gpointer measure);
FidelityScore fidelity_measure_get (const FidelityMeasure *measure, guint bank, guint budget);

/* Prints what each policy's attention is worth on what fidelity_open_dump () has read from @path.
 */
void fidelity_replay (Fidelity *fidelity, const char *path, const char *dump_path);

/* Prints what each policy's error is at @n_points of the text, and that of one built afresh. */
void fidelity_drift (Fidelity *fidelity, guint n_points);

G_DEFINE_AUTOPTR_CLEANUP_FUNC (PolicyBank, policy_bank_free)
G_DEFINE_AUTOPTR_CLEANUP_FUNC (FidelityDump, fidelity_dump_free)

G_END_DECLS
