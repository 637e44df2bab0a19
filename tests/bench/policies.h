/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "lychee-index.h"

G_BEGIN_DECLS

/* Ways to choose what attention reads of a long cache, ours and published ones, behind one
 * interface, so that a measurement treats all of them alike:
 *
 * - The first @sinks keys and the last @window ones (the query's own token among them) are always
 *   read and are inside the budget; a policy chooses among the rows between. Where all keys fit
 *   into the budget, all are read.
 * - One choice serves all query heads of a KV group. A head's estimates become shares of its
 *   attention (softmax over the units, each counted with its size), shares per row are summed over
 *   the heads, and the units are ranked by that (policy_rank). For one head this is the order that
 *   each method publishes. LycheeIndex does it by itself: alike, and with granularity chunk by sums
 *   of exp (bound).
 * - The last unit is cut where the budget ends, so that each policy reads all that it may. */

/* Queries that were asked while the text was read: what an index may see of them. */
typedef struct {
  GArray *rows; /* of guint: where, ascending */
  GArray *q;    /* of float [query][head_dim] */
} PolicyQueriesSeen;

/* Of one layer and KV head. */
typedef struct {
  guint head_dim;
  float scale; /* of q.k */
  guint sinks;
  guint window;
  guint32 seed;
  const guint *item_ends; /* where the text's chunks end, ascending */
  guint n_item_ends;
  const PolicyQueriesSeen *seen; /* (nullable) */
} PolicySpec;

/* Queries that share a choice. */
typedef struct {
  const LycheeQueries *queries;
  const LycheeRows *rows;
  guint n_keys;        /* 0 .. n_keys - 1 are visible */
  guint budget;        /* rows to read in all */
  const float *logits; /* [n_queries][n_keys] scale q.k; may be NULL unless the policy is exact */
} PolicyQuery;

typedef struct {
  guint32 *rows; /* [budget] room, to be filled by the policy */
  guint n_rows;
  guint nodes_scored; /* estimates that were computed for a query */
} PolicyChoice;

typedef struct {
  const char *name;
  const char *summary;
  gconstpointer params; /* what @open is given */
  gboolean whole;       /* reads everything at any budget */
  gboolean exact;       /* looks at all keys' logits */
  gboolean q8_0;        /* rows are as a cache of this type keeps them */

  /* What a policy keeps of one layer and KV head; NULL where it keeps nothing. */
  gpointer (*open) (const PolicySpec *spec, gconstpointer params);
  gpointer (*copy) (gconstpointer state);
  void (*close) (gpointer state);
  /* @n_tokens are there at once: a prompt. For an empty state. */
  void (*prefill) (gpointer state, const LycheeRows *rows, guint n_tokens);
  /* @n_tokens are there now: some more than the last time. */
  void (*feed) (gpointer state, const LycheeRows *rows, guint n_tokens);
  /* As @prefill, but as good as it can be made knowing everything; NULL where there is no
   * difference between this and what was fed. */
  void (*build) (gpointer state, const LycheeRows *rows, guint n_tokens);
  /* Bytes of metadata, vectors as half floats and row numbers in two bytes. */
  gsize (*get_bytes) (gconstpointer state);
  /* Chooses at most @budget of the rows begin .. end - 1. */
  void (*select) (gpointer state, const PolicyQuery *query, guint begin, guint end, guint budget,
      PolicyChoice *choice);
  /* Adds what the last @select left out as an estimate; NULL: it is dropped. */
  void (*rest) (gpointer state, const PolicyQuery *query, LycheeSoftmax *softmax);
  /* Appends what @select goes by, in numbers of 32 bits, for fidelity-check.py; NULL: it goes by
   * nothing but the rows. */
  void (*write) (gconstpointer state, GByteArray *to);
} Policy;

extern const Policy policy_dense, policy_window, policy_oracle;
extern const Policy policy_quest;
extern const Policy policy_clusterkv;
extern const Policy policy_chunk, policy_token, policy_token_drop;

/* Everything, out of a cache-type=q8_0: not one of the list, since heads must be of a multiple of
 * 32 dimensions for it. */
extern const Policy policy_q8_0;

/* All but that one; (array zero-terminated=1). */
const Policy *const *policy_list (void);
const Policy *policy_find (const char *name); /* NULL: there is none */

/* A policy at work on one layer and KV head. */
typedef struct _PolicyState PolicyState;

PolicyState *policy_state_new (const Policy *policy, const PolicySpec *spec);
PolicyState *policy_state_copy (const PolicyState *state);
void policy_state_free (PolicyState *state);
void policy_state_prefill (PolicyState *state, const LycheeRows *rows, guint n_tokens);
void policy_state_feed (PolicyState *state, const LycheeRows *rows, guint n_tokens);
void policy_state_build (PolicyState *state, const LycheeRows *rows, guint n_tokens);
gsize policy_state_get_bytes (const PolicyState *state);
void policy_state_write (const PolicyState *state, GByteArray *to);

/* Answers @query: output [n_queries][head_dim], and in @choice all rows that were read, each once,
 * sinks first. @choice->rows: [MIN (budget, n_keys)], or [n_keys] for a policy that is whole. */
void policy_state_answer (
    PolicyState *state, const PolicyQuery *query, float *output, PolicyChoice *choice);

/* Puts the numbers of the best @n_best of @n units into @order, best first, equals in their order.
 * z is [n_queries][n] estimates of a row's logit in a unit, @sizes (nullable: 1 each) the units'
 * rows. */
void policy_rank (
    const float *z, guint n_queries, guint n, const guint *sizes, guint n_best, guint32 *order);

G_DEFINE_AUTOPTR_CLEANUP_FUNC (PolicyState, policy_state_free)

G_END_DECLS
