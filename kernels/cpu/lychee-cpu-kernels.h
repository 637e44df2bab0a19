/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <glib.h>
#include <math.h>

G_BEGIN_DECLS

/* The CPU kernels: one source, compiled per instruction set, chosen at run time.
 *
 * Shapes are row-major, innermost last; f16 rows are IEEE half floats in guint16, `head_dim` of
 * them, contiguous. All arithmetic is float32. No kernel allocates, locks or keeps state, so all of
 * them may run on any number of threads at once; the result of a call depends on its arguments
 * alone. */

/* How keys and values are kept. Rows of either are counted in 16-bit units. */
typedef enum {
  LYCHEE_ROW_F16,
  LYCHEE_ROW_Q8_0, /* as ggml has it: blocks of 32 values, each a half float and 32 bytes; value =
                      half float x byte. head_dim is a multiple of 32 */
} LycheeRowForm;

#define LYCHEE_Q8_VALUES 32
#define LYCHEE_Q8_UNITS 17 /* 16-bit units of a block */

static inline gsize
lychee_row_size (LycheeRowForm form, guint head_dim)
{
  return form == LYCHEE_ROW_F16 ? head_dim : head_dim / LYCHEE_Q8_VALUES * LYCHEE_Q8_UNITS;
}

/* Queries that share one KV head: the heads of a group, times the tokens of a chunk. */
typedef struct {
  guint n_queries;
  guint head_dim; /* any multiple of 8 from 8 to 256; 64, 80, 96, 128 and 256 are tuned */
  float scale;    /* usually 1 / sqrt (head_dim); applied to q.k */
  const float *q; /* [n_queries][head_dim] */
  /* Logits of attend, attend_gather and attend_groups are cap tanh (scale q.k / cap), as Gemma 2
   * has them; 0: scale q.k. (Nodes are scored without it: see lychee_cap_logit ().) */
  float cap;
} LycheeQueries;

/* Softmax being accumulated (running maximum, as in online softmax, Milakov and Gimelshein 2018):
 * output = o / l. A state that has seen nothing has m = -inf, l = 0, o = 0. */
typedef struct {
  float *m; /* [n_queries] largest logit */
  float *l; /* [n_queries] sum of exp (logit - m) */
  float *o; /* [n_queries][head_dim] sum of exp (logit - m) value */
} LycheeSoftmax;

typedef struct _LycheeCpuKernels LycheeCpuKernels;

struct _LycheeCpuKernels {
  const char *name; /* "generic", "avx2", "avx512", "neon" */

  /* The same where rows are of the form q8_0, for all that takes rows: attend, attend_gather,
   * dot_rows, sum_rows, turn_rows, read_row, write_row; what is said of f16 rows below holds for
   * these. NULL in those kernels themselves. */
  const LycheeCpuKernels *q8_0;

  /* Exact attention over @n_keys consecutive rows: key i at k + i * head_dim, value i at v + i *
   * head_dim. @visible: NULL, or for each query how many of these keys, from the first on, it may
   * see (causal mask inside a chunk; 0 leaves the query's state untouched). */
  void (*attend) (const LycheeQueries *queries, const guint16 *k, const guint16 *v, guint n_keys,
      const guint32 *visible, LycheeSoftmax *softmax);

  /* The same over rows anywhere: key i at rows[i], value i at rows[i] + value_offset (elements).
   * Prefetches ahead. */
  void (*attend_gather) (const LycheeQueries *queries, const guint16 *const *rows,
      gsize value_offset, guint n_keys, LycheeSoftmax *softmax);

  /* Groups of keys that count as their mean: logit = scale q.k + log_n, value v, all float32.
   * k and v are [n][head_dim]. */
  void (*attend_groups) (const LycheeQueries *queries, const float *k, const float *v,
      const float *log_n, guint n, LycheeSoftmax *softmax);

  /* Groups whose weights are known: o[query] += factor[query] times the sum of weight[query][group]
   * value_scale[group] value[group]. value is [n][head_dim], o is [n_queries][head_dim], weight
   * rows are @stride floats apart. */
  void (*add_values) (guint n_queries, guint head_dim, const float *weight, gsize stride,
      const float *factor, const gint8 *value, const float *value_scale, guint n, float *o);

  /* Of logits z: most[query], the largest; weight[query][node] = exp (z - most); density[node] =
   * the sum over queries of weight over the sum of all weights, by count[node]: which part of the
   * queries' attention each row of the node gets. Nothing in density of a query whose logits are
   * not numbers. z and weight rows are @stride floats apart; they may be the
   * same. */
  void (*weigh_nodes) (guint n_queries, const float *z, gsize stride, const float *count, guint n,
      float *weight, float *most, float *density);

  /* The densest nodes (of equals the first), as few as together count @target rows, or all; in any
   * order, but that the least dense one comes last if there are @target rows, since it may be
   * needed in part. Returns how many are in @chosen, which has room for @n. Densities are not
   * negative, counts whole, and sums of counts exact up to 2^24. */
  guint (*select_nodes) (
      const float *density, const float *count, guint n, guint target, guint32 *chosen);

  /* z[query][node] = scale q.centroid + log_n + (variance ? scale sqrt (q^2 . variance) : 0);
   * centroid and variance are [n][head_dim], z rows are @z_stride floats apart. */
  void (*score_nodes) (const LycheeQueries *queries, const float *centroid, const float *variance,
      const float *log_n, guint n, float *z, gsize z_stride);

  /* The same for 8-bit centroids, one scale each: centroid = centroid_scale[i] * bytes. No
   * variance. */
  void (*score_leaves) (const LycheeQueries *queries, const gint8 *centroid,
      const float *centroid_scale, const float *log_n, guint n, float *z, gsize z_stride);

  /* z[query][node] += scale code_scale[node] q.code, for 4-bit codes anywhere: code[node] is
   * [head_dim / 2], element i in the low half of byte i, element i + head_dim / 2 in the high half,
   * each + 8. */
  void (*score_packed) (const LycheeQueries *queries, const guint8 *const *code,
      const float *code_scale, guint n, float *z, gsize z_stride);

  /* dots[row][c] = rows[row] . centers[c], for 2-means and descent: f16 rows, n_centers float32
   * centers [n_centers][head_dim]. */
  void (*dot_rows) (const guint16 *const *rows, guint n_rows, const float *centers, guint n_centers,
      guint head_dim, float *dots);

  /* sum[d] += row[d] (f16 row) over all rows, in order; *squares (NULL: not wanted) = the sum of
   * row . row. */
  void (*sum_rows) (
      const guint16 *const *rows, guint n_rows, guint head_dim, float *sum, float *squares);

  /* A row as floats, and back: rounded to the nearest that the form has. Of q8_0, a block with a
   * value that is not finite has a scale that is not. */
  void (*read_row) (const guint16 *row, guint head_dim, float *to);
  void (*write_row) (const float *from, guint head_dim, guint16 *row);

  /* Rotary embedding in two steps: pairs of elements (i and i + n_pairs with @halves, else
   * neighbours) of row or key k are turned by @low[k] and by @high[k], each [2][n] cosines and
   * sines. With @halves n is n_pairs; else it is 2 n_pairs: each number twice, the sine of the
   * first of a pair negative. At most 128 pairs. turn_rows writes half floats [n_rows][head_dim];
   * @keys are [n_keys][head_dim]. */
  void (*turn_rows) (const guint16 *const *rows, guint n_rows, guint head_dim, guint n_pairs,
      gboolean halves, const float *const *low, const float *const *high, guint16 *to);
  void (*turn_keys) (float *keys, guint n_keys, guint head_dim, guint n_pairs, gboolean halves,
      const float *const *low, const float *const *high);

  void (*f32_to_f16) (const float *from, guint16 *to, gsize n); /* round to nearest even */
  void (*f16_to_f32) (const guint16 *from, float *to, gsize n);
};

static inline const LycheeCpuKernels *
lychee_cpu_kernels_for (const LycheeCpuKernels *kernels, LycheeRowForm form)
{
  return form == LYCHEE_ROW_F16 ? kernels : kernels->q8_0;
}

/* cap tanh (logit / cap) */
static inline float
lychee_cap_logit (float logit, float cap)
{
  return cap * tanhf (logit / cap);
}

/* The best set that this processor runs, or the one that LYCHEE_CPU_KERNELS=name asks for (a
 * warning if it cannot be had). Chosen once. */
const LycheeCpuKernels *lychee_cpu_kernels_get (void);
/* The plain C reference that the others are tested against; always there. */
const LycheeCpuKernels *lychee_cpu_kernels_get_reference (void);
/* All sets that were built and that this processor runs; (array zero-terminated=1). */
const LycheeCpuKernels *const *lychee_cpu_kernels_list (void);

/* Softmax states: set to "seen nothing"; add @from to @into (exactly as if @into had seen both);
 * write o / l to @output [n_queries][head_dim] (0 where nothing was seen). */
void lychee_softmax_init (LycheeSoftmax *softmax, guint n_queries, guint head_dim);
void lychee_softmax_merge (
    LycheeSoftmax *into, const LycheeSoftmax *from, guint n_queries, guint head_dim);
void lychee_softmax_finish (
    const LycheeSoftmax *softmax, guint n_queries, guint head_dim, float *output);

G_END_DECLS
