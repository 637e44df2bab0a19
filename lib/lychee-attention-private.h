/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "lychee-attention.h"

#include <time.h>

G_BEGIN_DECLS

/* What the parts of attention share: lychee-attention.c plans a pass and stores its keys and values
 * (step 1), -attend.c answers its queries (steps 2 and 3), -rows.c loads rows that are not kept as
 * they are read. */

/* Tokens whose queries are answered together, sharing each read of a key. */
#define BLOCK_TOKENS 16
/* Keys of a unit of sparse attention. */
#define GATHER_KEYS 256
#define CACHE_LINE 64

/* A thread's share of the counters, on cache lines of its own. */
typedef struct {
  LycheeAttentionStats stats;
  guint8 padding[2 * CACHE_LINE - sizeof (LycheeAttentionStats) % CACHE_LINE];
} Counters;

/* The tokens of a block and a KV head: one selection. */
typedef struct {
  LycheeSelection *selection;
  float *q;     /* [queries][head_dim] */
  guint sinks;  /* tokens at the beginning that are always read */
  guint recent; /* place of the run at the end that is read without the index */
  /* With packed positions: */
  LycheePlaces places;
  guint32 *distances; /* of the selection's rows */
  guint n_distances;  /* that there is room for */
  guint farthest;     /* distance behind which the sinks stand */
} Job;

/* How the layers of one kind are answered in a pass. */
typedef struct {
  gboolean func;   /* by the function: a unit is a whole job */
  gboolean sparse; /* through the index */
  guint split_keys;
  guint n_splits; /* units of a job */
} Plan;

/* With packed positions, from what stands where its token does: */
typedef enum {
  LYCHEE_TURN_QUERY, /* a query, to be compared with keys at their distances from the origin */
  LYCHEE_TURN_AIM,   /* a query, for an index */
  LYCHEE_TURN_BACK,  /* a key, to stand nowhere */
  LYCHEE_TURNS
} LycheeTurn;

/* Rows that are loaded at a time. */
#define LYCHEE_LOAD_ROWS 64

/* Rows on their way to the queries, one after the other; a thread's own. */
typedef struct {
  guint16 *k, *v; /* [LYCHEE_LOAD_ROWS][head_dim], f16 */
  float *keys;    /* [LYCHEE_LOAD_ROWS][head_dim] */
  float *queries; /* [BLOCK_TOKENS][group][head_dim], turned; with packed positions */
} LycheeLoadedRows;

struct _LycheeAttention {
  const LycheeCpuKernels *kernels;
  guint n_layers;
  guint n_heads;
  guint n_kv_heads;
  guint group; /* query heads that share a KV head */
  guint head_dim;
  float scale;
  float cap;       /* 0: none */
  gboolean *local; /* [n_layers] */
  guint window;    /* keys that a local layer's token sees, its own included */
  guint *global;   /* [n_global] the layers that are not local, ascending */
  guint n_global;
  LycheeAttentionOptions options;
  guint n_threads;
  Counters *counters; /* [n_threads] */
  gboolean timing;
  LycheeAttentionFunc func;
  gpointer func_data;
  LycheeKeyFunc key_func; /* NULL: keys are read where they lie */
  gpointer key_data;
  LycheeLoadedRows *loaded;   /* [n_threads], memory only with the function, or packed */
  const LycheePacked *packed; /* NULL: absolute positions */
  guint range;                /* positions that the model knows */
  guint near;                 /* distance that is kept in this pass; G_MAXUINT: all are */
  float *turns;               /* [token][LYCHEE_TURNS] */
  gsize turns_size;
  LycheeAttentionWeights weights; /* n_rows is 0: not wanted */

  LycheeCache *cache; /* of the pass under way, not owned */
  guint first;        /* row of the pass's first token */
  /* A token's place is its row less the rows before it that were forgotten: @skip of them, behind
   * the @head first ones. */
  guint head;
  guint skip;
  guint place;       /* of the pass's first token */
  guint local_begin; /* first place that local layers hold */
  guint n_tokens;
  guint n_blocks; /* of tokens */
  guint n_jobs;   /* KV heads x blocks */
  Plan plans[2];  /* of global and of local layers */
  guint unit_queries;
  guint audit_layer; /* of this pass, n_layers: none */
  guint64 n_sparse;  /* passes of one token */

  gint *next_unit;   /* [n_layers], atomic */
  gint *next_upkeep; /* [n_layers], atomic */
  gint *found;       /* [n_layers][n_jobs], atomic: the job's search is done */
  gsize found_size;
  Job *jobs;
  guint jobs_size;
  float *partial; /* [job][split] { m [queries], l [queries], o [queries][head_dim] } */
  gsize partial_size;

  GArray *item_ends; /* of guint: items to be indexed in this pass end here */
  gboolean placed;   /* a device has found where they go: */
  LycheeIndexPlaces places;
  GMutex error_lock;
  GError *error;
};

static inline guint64
now (LycheeAttention *a)
{
  struct timespec t;

  if (!a->timing)
    return 0;
  clock_gettime (CLOCK_MONOTONIC, &t);
  return (guint64) t.tv_sec * 1000000000 + t.tv_nsec;
}

static inline gsize
unit_size (LycheeAttention *a)
{
  return (gsize) a->unit_queries * (a->head_dim + 2);
}

/* First key that a local layer's token at @position sees. */
static inline guint
window_begin (LycheeAttention *a, guint position)
{
  return MAX (position + 1 - MIN (position + 1, a->window), a->local_begin);
}

/* Whether the layer's rows are not read in place. */
static inline gboolean
loads_rows (LycheeAttention *a, guint layer)
{
  return a->packed ? !a->local[layer] : a->key_func != NULL;
}

/* Where rows are not read in place: fetches rows @ids, which stand at @places (distances, with
 * packed positions), into memory of @thread's own, where they stay until the next load. @n is at
 * most LYCHEE_LOAD_ROWS. */
const LycheeLoadedRows *lychee_attention_load (LycheeAttention *a, guint layer,
    const LycheeRows *rows, const guint32 *ids, const guint32 *places, guint n, guint thread);

/* Packed positions, in -rows.c. Distances count from the block's origin, BLOCK_TOKENS behind its
 * first token. Before a pass, when it is known how much of the context there will be: */
void lychee_attention_plan_turns (LycheeAttention *a);
/* The longest distance of this pass. */
guint lychee_attention_get_most (LycheeAttention *a);
/* @q [n_tokens][group][head_dim] of a block, turned, in @thread's own memory. */
const float *lychee_attention_turn (LycheeAttention *a, LycheeTurn turn, const float *q,
    guint first_token, guint n_tokens, guint thread);
/* A key of the pass's own tokens, as it is to be kept, in @thread's own memory. */
const float *lychee_attention_turn_back (
    LycheeAttention *a, const float *key, guint token, guint thread);
/* The distances of what was found. */
void lychee_attention_pack (LycheeAttention *a, Job *job, guint first_position);
/* By how many places the sinks are moved, to stand behind these. */
guint lychee_attention_get_shift (LycheeAttention *a, const Job *job, guint first_position);

/* The rows of a KV head that have a job's weights. */
typedef struct {
  const LycheeAttentionWeights *weights;
  LycheeQueries queries; /* of any number of tokens, a group each */
  const LycheeRows *rows;
  guint layer, thread;
  guint origin; /* with packed positions; else 0 */
} LycheeWeighing;

/* Adds to @sum [group][n_bins] what rows @begin to the last that counts, and those of @found that
 * count (@distances: with packed positions), have of the softmax whose largest logits and sums
 * @softmax has. */
void lychee_attention_weigh (LycheeAttention *a, const LycheeWeighing *weighing,
    const LycheeSoftmax *softmax, guint begin, const guint32 *found, const guint32 *distances,
    guint n_found, float *sum);

G_END_DECLS
