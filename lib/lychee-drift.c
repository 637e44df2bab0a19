/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* A token's vector is its row in the model's table of input embeddings. Taken as they are, these
 * rows tell little of a subject: most of a row is common to all tokens, and most tokens of speech
 * ("and", "you", "it") belong to every subject. Each step below is worth having, by the chance that
 * a true change of subject drifts more than another place (docs/experiments.md, "Chunks"):
 *
 * - the table's mean and its strongest directions are taken out of each row (as "all but the top"
 *   does, Mu and Viswanath, arXiv:1702.01417), and rows are brought to length 1;
 * - frequent tokens weigh little: a / (a + p), p being how frequent a token is (SIF weights, Arora
 *   et al., ICLR 2017). No corpus is at hand, but training a vocabulary hands out ids in order of
 *   frequency, so p is taken from Zipf's law: p ~ 1 / id, and the weight is id / (id + HALF);
 * - the mean of all that was said so far is taken out too: the talk's overall subject is on both
 *   sides of every place;
 * - tokens count less the further they are from the place.
 *
 * A vector may also be what the model's first layers make of the token among those before it. The
 * steps are the same: what is common to all is then found by running the layers over samples. */

#include "lychee-drift.h"

#include "lychee-forward.h"
#include "lychee-model-private.h"

#include <math.h>
#include <string.h>

/* Of the table: rows to find its directions by, how many, and rounds of subspace iteration. */
#define N_SAMPLES 1024
#define N_DIRECTIONS 16
#define N_ROUNDS 6
/* The id whose weight is one half. */
#define HALF 926.0f
/* Tokens after which half of the mean so far is taken out. */
#define MEAN_TOKENS 100
/* What drift is like before anything was measured: as if it had been seen so often. */
#define USUAL_MEAN 0.9
#define USUAL_DEVIATION 0.12
#define USUAL_COUNT 64

/* Tokens that layers see, at most; then they begin anew. */
#define WINDOW 256

/* Floats that are computed at a time, anywhere in memory. */
#define BLOCK 4
typedef float Block __attribute__ ((vector_size (BLOCK * sizeof (float)), aligned (4), may_alias));

struct _LycheeDrift {
  LycheeModel *model;
  guint n;      /* dimensions */
  guint stride; /* of vectors: n and zeros, whole blocks */
  guint after;
  float *mean;       /* [n] of the table */
  float *directions; /* [n][N_DIRECTIONS], columns orthonormal or zero */

  float *rows; /* ring of the vectors of the last tokens; [stride] each */
  guint n_rows;
  guint64 n_tokens;
  float *sum; /* [n] of all vectors so far; and their weight */
  double weight;
  float *side[2]; /* [stride] scratch */

  double n_values, values, squares; /* measured drift */

  LycheeForward *forward; /* NULL where vectors are from the table */
  LycheeCache *cache;
  gint32 waiting[LYCHEE_DRIFT_BATCH];
  guint n_waiting;
};

static void
read_row (LycheeDrift *drift, gint32 id, float *row)
{
  struct ggml_tensor *table = lychee_model_get_tensors (drift->model)->embedding;
  const char *data = (const char *) table->data + id * table->nb[1];

  if (table->type == GGML_TYPE_F32)
    memcpy (row, data, drift->n * sizeof *row);
  else
    ggml_get_type_traits (table->type)->to_float (data, row, drift->n);
}

/* What the layers make of @n tokens, [n][drift->n], until they run again; NULL where they fail. */
static const float *
run_layers (LycheeDrift *drift, const gint32 *ids, guint n)
{
  g_autoptr (GError) error = NULL;
  const float *states = NULL;

  if (lychee_cache_get_length (drift->cache) + n > WINDOW)
    lychee_cache_truncate (drift->cache, 0);
  if (!lychee_forward_run (
          drift->forward, drift->cache, ids, n, LYCHEE_OUTPUT_STATES, &states, NULL, &error))
    g_warning ("No drift is measured over %u tokens: %s", n, error->message);
  return states;
}

/* to += share from; @n is whole blocks */
static inline void
add_share (float *to, const float *from, float share, guint n)
{
  for (guint i = 0; i < n; i += BLOCK)
    *(Block *) (to + i) += share * *(const Block *) (from + i);
}

static float
length_of (const float *row, guint n)
{
  double sum = 0;

  for (guint i = 0; i < n; i++)
    sum += (double) row[i] * row[i];
  return sqrt (sum);
}

/* [n][N_DIRECTIONS]^T x -> [N_DIRECTIONS] */
static void
project (const LycheeDrift *drift, const float *row, float *shares)
{
  memset (shares, 0, N_DIRECTIONS * sizeof *shares);
  for (guint i = 0; i < drift->n; i++)
    add_share (shares, drift->directions + i * N_DIRECTIONS, row[i], N_DIRECTIONS);
}

/* Gram and Schmidt. A column that has nothing of its own becomes zero: a direction that is not
 * there. */
static void
make_orthonormal (float *columns, guint n)
{
  for (guint j = 0; j < N_DIRECTIONS; j++) {
    double before = 0, length = 0;

    for (guint i = 0; i < n; i++)
      before += (double) columns[i * N_DIRECTIONS + j] * columns[i * N_DIRECTIONS + j];
    for (guint k = 0; k < j; k++) {
      double share = 0;

      for (guint i = 0; i < n; i++)
        share += (double) columns[i * N_DIRECTIONS + j] * columns[i * N_DIRECTIONS + k];
      for (guint i = 0; i < n; i++)
        columns[i * N_DIRECTIONS + j] -= share * columns[i * N_DIRECTIONS + k];
    }
    for (guint i = 0; i < n; i++)
      length += (double) columns[i * N_DIRECTIONS + j] * columns[i * N_DIRECTIONS + j];
    length = length > 1e-10 * before && length > 0 ? 1 / sqrt (length) : 0;
    for (guint i = 0; i < n; i++)
      columns[i * N_DIRECTIONS + j] *= length;
  }
}

/* Layers over tokens of the whole vocabulary, in an order that is none. */
static void
read_states (LycheeDrift *drift, float *samples, guint n_samples)
{
  guint n_vocab = lychee_model_get_n_vocab (drift->model);
  gint32 ids[LYCHEE_DRIFT_BATCH];

  for (guint i = 0; i < n_samples; i += LYCHEE_DRIFT_BATCH) {
    guint n = MIN (n_samples - i, LYCHEE_DRIFT_BATCH);
    const float *states;

    for (guint j = 0; j < n; j++)
      ids[j] = (guint64) ((i + j) * 389 % n_samples) * n_vocab / n_samples;
    states = run_layers (drift, ids, n);
    if (states != NULL)
      memcpy (samples + (gsize) i * drift->n, states, (gsize) n * drift->n * sizeof *samples);
    else
      memset (samples + (gsize) i * drift->n, 0, (gsize) n * drift->n * sizeof *samples);
  }
}

/* The table's mean and strongest directions, from rows at even distances. */
static void
examine_table (LycheeDrift *drift)
{
  guint n = drift->n, n_vocab = lychee_model_get_n_vocab (drift->model);
  guint n_samples = MIN (n_vocab, N_SAMPLES);
  g_autofree float *samples = g_new (float, (gsize) n_samples *n);
  g_autofree float *next = g_new (float, (gsize) n *N_DIRECTIONS);
  float shares[N_DIRECTIONS];

  if (drift->forward != NULL)
    read_states (drift, samples, n_samples);
  for (guint i = 0; i < n_samples; i++) {
    float *row = samples + (gsize) i * n;

    if (drift->forward == NULL)
      read_row (drift, (guint64) i * n_vocab / n_samples, row);
    for (guint d = 0; d < n; d++)
      drift->mean[d] += row[d] / n_samples;
  }
  for (guint i = 0; i < n_samples; i++)
    for (guint d = 0; d < n; d++)
      samples[(gsize) i * n + d] -= drift->mean[d];

  /* Fewer directions than there is room for, where the table is that small. */
  for (guint j = 0; j < MIN (N_DIRECTIONS, MIN (n, n_samples) / 4); j++)
    for (guint d = 0; d < n; d++)
      drift->directions[d * N_DIRECTIONS + j] =
          samples[(gsize) (j * n_samples / N_DIRECTIONS) * n + d];
  make_orthonormal (drift->directions, n);
  for (guint round = 0; round < N_ROUNDS; round++) {
    memset (next, 0, (gsize) n * N_DIRECTIONS * sizeof *next);
    for (guint i = 0; i < n_samples; i++) {
      const float *row = samples + (gsize) i * n;

      project (drift, row, shares);
      for (guint d = 0; d < n; d++)
        add_share (next + d * N_DIRECTIONS, shares, row[d], N_DIRECTIONS);
    }
    memcpy (drift->directions, next, (gsize) n * N_DIRECTIONS * sizeof *next);
    make_orthonormal (drift->directions, n);
  }
}

LycheeDrift *
lychee_drift_new (LycheeModel *model, guint after, guint n_layers)
{
  LycheeDrift *drift = g_new0 (LycheeDrift, 1);
  guint n = lychee_model_get_hparams (model)->n_embd;

  drift->model = g_object_ref (model);
  drift->n = n;
  drift->after = MAX (after, LYCHEE_DRIFT_MIN_AFTER);
  drift->mean = g_new0 (float, n);
  drift->directions = g_new0 (float, (gsize) n *N_DIRECTIONS);
  drift->n_rows = LYCHEE_DRIFT_BEFORE + drift->after + LYCHEE_DRIFT_BATCH;
  drift->stride = (n + BLOCK - 1) / BLOCK * BLOCK;
  drift->rows = g_new0 (float, (gsize) drift->n_rows * drift->stride);
  drift->sum = g_new (float, n);
  drift->side[0] = g_new (float, drift->stride);
  drift->side[1] = g_new (float, drift->stride);
  if (n_layers > 0) {
    const LycheeHparams *hp = lychee_model_get_hparams (model);
    LycheeExecutor *executor = lychee_executor_get (0);

    n_layers = MIN (n_layers, hp->n_layers);
    drift->forward = lychee_forward_new_shallow (model, executor, n_layers);
    drift->cache = lychee_cache_new (n_layers, hp->n_kv_heads, hp->head_dim, WINDOW, G_MAXUINT64);
    lychee_executor_unref (executor);
  }
  examine_table (drift);
  lychee_drift_reset (drift);
  return drift;
}

void
lychee_drift_free (LycheeDrift *drift)
{
  g_clear_pointer (&drift->forward, lychee_forward_free);
  g_clear_object (&drift->cache);
  g_object_unref (drift->model);
  g_free (drift->mean);
  g_free (drift->directions);
  g_free (drift->rows);
  g_free (drift->sum);
  g_free (drift->side[0]);
  g_free (drift->side[1]);
  g_free (drift);
}

void
lychee_drift_reset (LycheeDrift *drift)
{
  drift->n_tokens = 0;
  drift->n_waiting = 0;
  if (drift->cache != NULL)
    lychee_cache_truncate (drift->cache, 0);
  memset (drift->sum, 0, drift->n * sizeof *drift->sum);
  drift->weight = 0;
  drift->n_values = USUAL_COUNT;
  drift->values = USUAL_COUNT * USUAL_MEAN;
  drift->squares = USUAL_COUNT * (USUAL_MEAN * USUAL_MEAN + USUAL_DEVIATION * USUAL_DEVIATION);
}

static float *
get_row (const LycheeDrift *drift, guint64 token)
{
  return drift->rows + (gsize) (token % drift->n_rows) * drift->stride;
}

/* Adds token @id with its vector, @state or NULL for the table's row. */
static void
add_token (LycheeDrift *drift, gint32 id, const float *state)
{
  float *row = get_row (drift, drift->n_tokens);
  float shares[N_DIRECTIONS], weight, length;
  guint n = drift->n;

  if (id < 0 || (guint) id >= lychee_model_get_n_vocab (drift->model) ||
      (drift->forward != NULL && state == NULL)) {
    memset (row, 0, n * sizeof *row);
    drift->n_tokens++;
    return;
  }
  if (state != NULL)
    memcpy (row, state, n * sizeof *row);
  else
    read_row (drift, id, row);
  for (guint i = 0; i < n; i++)
    row[i] -= drift->mean[i];
  project (drift, row, shares);
  for (guint i = 0; i < n; i++) {
    Block part = { 0 };

    for (guint j = 0; j < N_DIRECTIONS; j += BLOCK)
      part += *(const Block *) (shares + j) *
              *(const Block *) (drift->directions + i * N_DIRECTIONS + j);
    row[i] -= part[0] + part[1] + part[2] + part[3];
  }
  length = length_of (row, n);
  weight = length > 0 && isfinite (length) ? id / (id + HALF) : 0;
  for (guint i = 0; i < n; i++)
    row[i] = weight > 0 ? row[i] * (weight / length) : 0;

  for (guint i = 0; i < n; i++)
    drift->sum[i] += row[i];
  drift->weight += weight;
  if (drift->weight > 0) {
    float common =
        drift->n_tokens / (drift->n_tokens + (float) MEAN_TOKENS) * weight / drift->weight;
    for (guint i = 0; i < n; i++)
      row[i] -= common * drift->sum[i];
  }
  drift->n_tokens++;
}

void
lychee_drift_push (LycheeDrift *drift, gint32 id)
{
  if (drift->forward == NULL) {
    add_token (drift, id, NULL);
    return;
  }
  drift->waiting[drift->n_waiting++] = id;
  if (drift->n_waiting == LYCHEE_DRIFT_BATCH)
    lychee_drift_settle (drift);
}

guint
lychee_drift_get_n_waiting (LycheeDrift *drift)
{
  return drift->n_waiting;
}

void
lychee_drift_settle (LycheeDrift *drift)
{
  guint n_vocab = lychee_model_get_n_vocab (drift->model);
  gint32 ids[LYCHEE_DRIFT_BATCH];
  const float *states;

  if (drift->n_waiting == 0)
    return;
  /* An unknown id means nothing, but has a place. */
  for (guint i = 0; i < drift->n_waiting; i++)
    ids[i] = drift->waiting[i] >= 0 && (guint) drift->waiting[i] < n_vocab ? drift->waiting[i] : 0;
  states = run_layers (drift, ids, drift->n_waiting);
  for (guint i = 0; i < drift->n_waiting; i++)
    add_token (drift, drift->waiting[i], states != NULL ? states + (gsize) i * drift->n : NULL);
  drift->n_waiting = 0;
}

float
lychee_drift_measure (LycheeDrift *drift, guint n_after)
{
  guint64 place = drift->n_tokens - n_after;
  guint n = drift->n, n_before = MIN (place, LYCHEE_DRIFT_BEFORE);
  float *before = drift->side[0], *after = drift->side[1];
  double product = 0, length;

  g_return_val_if_fail (
      n_after <= drift->after + LYCHEE_DRIFT_BATCH && n_after <= drift->n_tokens, NAN);
  if (n_before < LYCHEE_DRIFT_MIN_AFTER || n_after < LYCHEE_DRIFT_MIN_AFTER)
    return NAN;

  memset (before, 0, drift->stride * sizeof *before);
  memset (after, 0, drift->stride * sizeof *after);
  for (guint j = 0; j < n_before; j++)
    add_share (
        before, get_row (drift, place - 1 - j), 1 - (float) j / LYCHEE_DRIFT_BEFORE, drift->stride);
  for (guint j = 0; j < MIN (n_after, drift->after); j++)
    add_share (after, get_row (drift, place + j), 1 - (float) j / drift->after, drift->stride);
  for (guint i = 0; i < n; i++)
    product += (double) before[i] * after[i];
  length = (double) length_of (before, n) * length_of (after, n);
  return length > 0 ? 1 - CLAMP (product / length, -1, 1) : NAN;
}

float
lychee_drift_rate (LycheeDrift *drift, float value)
{
  double mean, variance;

  if (isnan (value))
    return NAN;
  drift->n_values++;
  drift->values += value;
  drift->squares += (double) value * value;
  mean = drift->values / drift->n_values;
  variance = drift->squares / drift->n_values - mean * mean;
  return variance > 0 ? (value - mean) / sqrt (variance) : 0;
}
