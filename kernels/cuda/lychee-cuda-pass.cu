/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What is done for a pass. The decoding of a token is captured as a graph, in which all that
 * changes from token to token lies in device memory. */

#include "lychee-cuda-worker.h"

#include <limits.h>
#include <math.h>
#include <string.h>

/* Tokens that there is an output of: the last ones. */
static int
count_outputs (const LycheeCudaPlan &plan)
{
  if (plan.output == LYCHEE_CUDA_OUTPUT_NONE)
    return 0;
  return plan.output == LYCHEE_CUDA_OUTPUT_ALL || lychee_cuda_is_separate (plan) ? plan.n_tokens
                                                                                 : 1;
}

/* The memory that choosing @n tokens needs. */
static int
need_choice (LycheeCudaWorker *w, size_t n, LycheeCudaError *error)
{
  size_t n_vocab = (size_t) w->model->hparams.n_vocab;
  size_t tiles = (n_vocab + LYCHEE_CUDA_SAMPLE_TILE - 1) / LYCHEE_CUDA_SAMPLE_TILE;

  return lychee_cuda_need (w, &w->penalised, n * (size_t) w->n_history * 4, false, error) ||
         lychee_cuda_need (w, &w->tile_max, n * tiles * 4, false, error) ||
         lychee_cuda_need (w, &w->masses, n * LYCHEE_N_BUCKETS * 8, false, error) ||
         lychee_cuda_need (w, &w->counts, n * LYCHEE_N_BUCKETS * 4, false, error) ||
         lychee_cuda_need (w, &w->members, n * n_vocab * 4, false, error) ||
         lychee_cuda_need (w, &w->chosen, n * 4, false, error) ||
         lychee_cuda_need (w, &w->chosen_host, n * 4, true, error);
}

static int
need_plan (LycheeCudaWorker *w, const LycheeCudaPlan &plan, LycheeCudaError *error)
{
  const LycheeCudaHparams &h = w->model->hparams;
  size_t n_rows = (size_t) plan.n_tokens * h.n_heads;
  size_t splits = (size_t) plan.n_splits, outputs = (size_t) count_outputs (plan);

  if ((size_t) plan.n_window_splits > splits)
    splits = (size_t) plan.n_window_splits;
  if ((size_t) (plan.n_sparse_splits + plan.n_rest_splits) > splits)
    splits = (size_t) (plan.n_sparse_splits + plan.n_rest_splits);
  if (lychee_cuda_need (w, &w->m, splits * n_rows * 4, false, error) ||
      lychee_cuda_need (w, &w->l, splits * n_rows * 4, false, error) ||
      lychee_cuda_need (w, &w->o, splits * n_rows * (size_t) h.head_dim * 4, false, error) ||
      lychee_cuda_need (w, &w->logits, outputs * (size_t) h.n_vocab * 4, false, error) ||
      lychee_cuda_need (w, &w->logits_host, outputs * (size_t) h.n_vocab * 4, true, error))
    return error->status;
  if ((plan.output == LYCHEE_CUDA_OUTPUT_CHOSEN && need_choice (w, outputs, error)) ||
      (plan.weigh && lychee_cuda_need (w, &w->log_mass, n_rows * 4, false, error)))
    return error->status;
  if (!plan.sparse)
    return 0;
  size_t jobs = (size_t) h.n_kv_heads * lychee_cuda_divide_up (plan.n_tokens, plan.block_tokens);
  size_t queries = jobs * plan.block_tokens * (h.n_heads / h.n_kv_heads);
  size_t nodes = (size_t) plan.max_nodes, leaves = (size_t) plan.max_leaves;
  return lychee_cuda_need (w, &w->selection, jobs * sizeof (LycheeCudaSelection), false, error) ||
         lychee_cuda_need (w, &w->selected, jobs * plan.budget * 4, false, error) ||
         lychee_cuda_need (w, &w->z, queries * nodes * 4, false, error) ||
         lychee_cuda_need (w, &w->weight, queries * nodes * 4, false, error) ||
         lychee_cuda_need (w, &w->most, queries * 4, false, error) ||
         lychee_cuda_need (w, &w->count, jobs * nodes * 4, false, error) ||
         lychee_cuda_need (w, &w->opened, jobs * nodes * 8, false, error) ||
         lychee_cuda_need (w, &w->leaf_weight, queries * leaves * 4, false, error) ||
         lychee_cuda_need (w, &w->leaf_rank, queries * leaves * 4, false, error) ||
         lychee_cuda_need (w, &w->leaf_node, jobs * leaves * 4, false, error) ||
         lychee_cuda_need (w, &w->leaf_count, jobs * leaves * 4, false, error) ||
         lychee_cuda_need (w, &w->leaf_read, jobs * leaves * 4, false, error) ||
         lychee_cuda_need (
             w, &w->density, jobs * (nodes > leaves ? nodes : leaves) * 4, false, error);
}

/* Lays the block out in which all lies that the host says of a pass. Where things are depends on
 * the plan alone. */
static int
lay_out_control (LycheeCudaWorker *w, const LycheeCudaPass *pass, LycheeCudaError *error)
{
  const LycheeCudaHparams &h = w->model->hparams;
  size_t n = (size_t) pass->n_sequences, n_heads = n * (size_t) h.n_layers * h.n_kv_heads;
  size_t n_frequency = (size_t) h.n_rot / 2 + 1;

  for (int i = 0; i < pass->n_sequences; i++) {
    const LycheeCudaSequence &s = pass->sequences[i];

    if (s.n_pages > w->n_pages)
      w->n_pages = lychee_cuda_round_up (s.n_pages);
    if (s.sampling && s.sampling->n_history > w->n_history)
      w->n_history = lychee_cuda_round_up (s.sampling->n_history);
  }
  w->sampling_at = (n * sizeof (LycheeCudaStep) + 63) / 64 * 64;
  w->ids_at = w->sampling_at + n * sizeof (LycheeCudaSampling);
  w->frequency_at = w->ids_at + LYCHEE_CUDA_MAX_TOKENS * sizeof (int);
  w->heads_at = w->frequency_at + 2 * n_frequency * sizeof (double);
  w->history_at = w->heads_at + n_heads * sizeof (LycheeCudaHead);
  w->pages_at = w->history_at + n * (size_t) w->n_history * sizeof (int);
  w->control_size = w->pages_at + n * (size_t) w->n_pages * sizeof (void *);
  return lychee_cuda_need (w, &w->control, w->control_size, false, error) ||
         lychee_cuda_need (w, &w->control_host, w->control_size, true, error) ||
         /* What comes later has a place of its own: the block is being copied then. */
         (pass->index &&
             lychee_cuda_need (w, &w->heads_host, n_heads * sizeof (LycheeCudaHead), true, error));
}

/* One copy brings it all. */
static int
fill_control (LycheeCudaWorker *w, const LycheeCudaPass *pass, LycheeCudaError *error)
{
  const LycheeCudaHparams &h = w->model->hparams;
  size_t n_heads = (size_t) h.n_layers * h.n_kv_heads;
  size_t n_frequency = (size_t) h.n_rot / 2 + 1;
  size_t n_pages = 0; /* of the last sequence: what follows them need not be copied */
  char *host;

  if (lay_out_control (w, pass, error))
    return error->status;
  host = lychee_cuda_get<char> (w->control_host);
  memcpy (host + w->ids_at, pass->ids, (size_t) pass->n_tokens * sizeof (int));
  for (size_t i = 0; i < 2; i++)
    if (pass->frequency[i])
      memcpy (host + w->frequency_at + i * n_frequency * sizeof (double), pass->frequency[i],
          n_frequency * sizeof (double));
  for (size_t i = 0; i < (size_t) pass->n_sequences; i++) {
    const LycheeCudaSequence &s = pass->sequences[i];
    LycheeCudaStep step = { s.first, pass->n_sequences > 1 ? 1 : pass->n_tokens, s.head, s.skip,
      s.origin };

    memcpy (host + i * sizeof step, &step, sizeof step);
    if (s.heads)
      memcpy (host + w->heads_at + i * n_heads * sizeof (LycheeCudaHead), s.heads,
          n_heads * sizeof (LycheeCudaHead));
    if (pass->output == LYCHEE_CUDA_OUTPUT_CHOSEN) {
      memcpy (host + w->sampling_at + i * sizeof *s.sampling, s.sampling, sizeof *s.sampling);
      if (s.sampling->n_history > 0)
        memcpy (host + w->history_at + i * (size_t) w->n_history * sizeof (int), s.history,
            (size_t) s.sampling->n_history * sizeof (int));
    }
    n_pages = (size_t) s.n_pages;
    memcpy (host + w->pages_at + i * (size_t) w->n_pages * sizeof (void *), s.pages,
        n_pages * sizeof (void *));
  }
  n_pages += (size_t) (pass->n_sequences - 1) * (size_t) w->n_pages;
  return lychee_cuda_check (
      (int) cudaMemcpyAsync (w->control.data, host, w->pages_at + n_pages * sizeof (void *),
          cudaMemcpyHostToDevice, w->stream),
      "the CUDA device failed in copying", error);
}

/* 16-bit units of the keys and values of the pass's tokens in a layer, as the host has them. */
static size_t
count_row_units (const LycheeCudaWorker *w, const LycheeCudaPlan &plan)
{
  const LycheeCudaHparams &h = w->model->hparams;

  return (size_t) 2 * h.n_kv_heads * plan.n_tokens * lychee_cuda_row_units (plan.type, h.head_dim);
}

/* The pass */

/* c [n][rows] = x [n][columns] times the transpose of the matrix [rows][columns], or added to c. */
static int
multiply (LycheeCudaWorker *w, const void *matrix, int rows, int columns, const void *x, int n,
    float *c, bool add, LycheeCudaError *error)
{
  cudaDataType_t type = w->model->hparams.type == LYCHEE_CUDA_F16 ? CUDA_R_16F : CUDA_R_16BF;
  float one = 1, beta = add ? 1.0f : 0.0f;
  cublasStatus_t status = cublasGemmEx (w->blas, CUBLAS_OP_T, CUBLAS_OP_N, rows, n, columns, &one,
      matrix, type, columns, x, type, columns, &beta, c, CUDA_R_32F, rows, CUBLAS_COMPUTE_32F,
      CUBLAS_GEMM_DEFAULT);

  if (status == CUBLAS_STATUS_SUCCESS)
    return 0;
  return lychee_cuda_fail (error, LYCHEE_CUDA_FAILED,
      "cuBLAS failed in a product of %d x %d x %d (status %d)", rows, n, columns, (int) status);
}

static int
check_kernel (int code, const char *name, LycheeCudaError *error)
{
  if (code) /* or the next launch would seem to fail */
    cudaGetLastError ();
  return code ? lychee_cuda_fail (error, LYCHEE_CUDA_FAILED, "the CUDA kernel %s failed: %s", name,
                    cudaGetErrorString ((cudaError_t) code))
              : 0;
}

static int
norm (LycheeCudaWorker *w, const float *x, const float *bias, const float *weight, int rows,
    void *output, float *add, LycheeCudaError *error)
{
  const LycheeCudaHparams &h = w->model->hparams;
  LycheeCudaNorm params = { h.type, rows, h.n_embd, h.norm_eps, x, bias, weight, output, add,
    h.residual_scale };

  return check_kernel (lychee_cuda_norm (&params, w->stream), "norm", error);
}

/* x += what @matrix makes of @from, through the bias and norm that may come between. */
static int
add_product (LycheeCudaWorker *w, const void *matrix, int columns, const void *from,
    const float *bias, const float *post_norm, int rows, float *x, LycheeCudaError *error)
{
  const LycheeCudaHparams &h = w->model->hparams;
  bool direct = !bias && !post_norm && h.residual_scale == 1;
  float *to = direct ? x : lychee_cuda_get<float> (w->y);

  return multiply (w, matrix, h.n_embd, columns, from, rows, to, direct, error) ||
         (!direct && norm (w, to, bias, post_norm, rows, nullptr, x, error));
}

/* Bytes from a page's begin to a layer's keys and values. */
static size_t
get_layer_offset (const LycheeCudaWorker *w, const LycheeCudaPlan &plan, int layer)
{
  const LycheeCudaHparams &h = w->model->hparams;

  return (size_t) layer * h.n_kv_heads * 2 * lychee_cuda_part_size (plan.type, h.head_dim);
}

/* Tokens that are read for together. */
static int
get_block_tokens (const LycheeCudaPlan &plan)
{
  return lychee_cuda_is_separate (plan) ? 1 : plan.sparse ? plan.block_tokens : plan.n_tokens;
}

/* The origin is so many places behind the first token of a block. */
static int
get_behind (const LycheeCudaPlan &plan)
{
  bool whole = !plan.sparse && !lychee_cuda_is_separate (plan); /* is one block */

  return whole && plan.n_tokens > LYCHEE_CUDA_BEHIND ? plan.n_tokens : LYCHEE_CUDA_BEHIND;
}

static LycheeCudaTurn
describe_turn (const LycheeCudaWorker *w, const LycheeCudaPlan &plan)
{
  const LycheeCudaHparams &h = w->model->hparams;
  LycheeCudaTurn turn = { plan.range, get_behind (plan), h.n_rot, h.neox,
    lychee_cuda_get<float> (w->low), lychee_cuda_get<float> (w->high) };

  return turn;
}

static LycheeCudaAttend
describe_attention (LycheeCudaWorker *w, const LycheeCudaPlan &plan, int layer)
{
  const LycheeCudaHparams &h = w->model->hparams;
  LycheeCudaAttend a = {};
  char *control = lychee_cuda_get<char> (w->control);

  a.type = plan.type;
  a.head_dim = h.head_dim;
  a.n_heads = h.n_heads;
  a.n_kv_heads = h.n_kv_heads;
  a.scale = h.attention_scale;
  a.q = lychee_cuda_get<float> (w->q);
  a.step = reinterpret_cast<LycheeCudaStep *> (control);
  a.pages = reinterpret_cast<void **> (control + w->pages_at);
  a.layer_offset = get_layer_offset (w, plan, layer);
  a.heads = reinterpret_cast<LycheeCudaHead *> (control + w->heads_at) + layer * h.n_kv_heads;
  a.m = lychee_cuda_get<float> (w->m);
  a.l = lychee_cuda_get<float> (w->l);
  a.o = lychee_cuda_get<float> (w->o);
  a.n_tokens = plan.n_tokens;
  a.separate = lychee_cuda_is_separate (plan);
  a.page_stride = w->n_pages;
  a.head_stride = h.n_layers * h.n_kv_heads;
  if (lychee_cuda_is_packed (plan) && !w->model->layers[layer].local)
    a.turn = describe_turn (w, plan);
  return a;
}

static int
merge (LycheeCudaWorker *w, const LycheeCudaPlan &plan, int n_splits, LycheeCudaType type,
    void *output, float *log_mass, int n_exact, LycheeCudaError *error)
{
  const LycheeCudaHparams &h = w->model->hparams;
  LycheeCudaMerge params = { type, h.head_dim, h.n_heads, h.n_kv_heads, plan.n_tokens, n_splits,
    lychee_cuda_get<float> (w->m), lychee_cuda_get<float> (w->l), lychee_cuda_get<float> (w->o),
    output, log_mass, n_exact };

  return check_kernel (lychee_cuda_merge (&params, w->stream), "merge", error);
}

/* Whether attention of a layer that is not local is added up. */
static bool
is_weighed (const LycheeCudaPlan &plan, int layer)
{
  return plan.weigh && layer >= plan.weigh_begin && layer < plan.weigh_end;
}

/* Adds up what has just been merged. */
static int
weigh (LycheeCudaWorker *w, const LycheeCudaPlan &plan, int layer, const LycheeCudaAttend &a,
    LycheeCudaError *error)
{
  const LycheeCudaHparams &h = w->model->hparams;
  LycheeCudaWeigh params = { plan.type, h.head_dim, h.n_heads, h.n_kv_heads, plan.n_tokens,
    a.block_tokens, a.scale, a.q, a.step, a.pages, a.layer_offset, a.selection, a.selected,
    a.budget, lychee_cuda_get<float> (w->log_mass), plan.weigh_first, plan.weigh_rows,
    plan.weigh_bins, lychee_cuda_get<unsigned> (w->bins),
    lychee_cuda_get<unsigned long long> (w->sums) +
        (size_t) (layer - plan.weigh_begin) * h.n_heads * plan.weigh_bins,
    a.turn };

  return check_kernel (lychee_cuda_weigh (&params, w->stream), "weigh", error);
}

static int
attend_dense (LycheeCudaWorker *w, const LycheeCudaPlan &plan, int layer, bool local,
    LycheeCudaType type, void *output, float *log_mass, LycheeCudaError *error)
{
  const LycheeCudaHparams &h = w->model->hparams;
  LycheeCudaAttend a = describe_attention (w, plan, layer);
  bool weighed;
  int code;

  a.block_tokens = a.separate ? 1 : plan.n_tokens;
  a.window = local ? h.window : 0;
  a.n_splits = local ? plan.n_window_splits : plan.n_splits;
  code = a.separate || a.turn.range > 0 || lychee_cuda_has_few_queries (w, plan.type, plan.n_tokens)
             ? lychee_cuda_attend (&a, w->stream)
             : lychee_cuda_attend_chunk (&a, w->stream);
  weighed = !log_mass && !local && is_weighed (plan, layer);
  if (weighed)
    log_mass = lychee_cuda_get<float> (w->log_mass);
  return check_kernel (code, "attend", error) ||
         merge (w, plan, a.n_splits, type, output, log_mass, a.n_splits, error) ||
         (weighed && weigh (w, plan, layer, a, error));
}

static int
attend_sparse (LycheeCudaWorker *w, const LycheeCudaPlan &plan, int layer, bool audited,
    LycheeCudaError *error)
{
  const LycheeCudaHparams &h = w->model->hparams;
  LycheeCudaAttend a = describe_attention (w, plan, layer);
  LycheeCudaSearch s = { h.head_dim, h.n_heads, h.n_kv_heads, plan.n_tokens, plan.block_tokens,
    h.attention_scale, a.turn.range > 0 ? lychee_cuda_get<float> (w->aim) : a.q, a.step, a.heads,
    plan.sinks, plan.budget, plan.beam, plan.rest, plan.max_nodes, plan.max_leaves,
    lychee_cuda_get<LycheeCudaSelection> (w->selection), lychee_cuda_get<int> (w->selected),
    lychee_cuda_get<float> (w->z), lychee_cuda_get<float> (w->weight),
    lychee_cuda_get<float> (w->most), lychee_cuda_get<int> (w->count),
    lychee_cuda_get<int> (w->opened), lychee_cuda_get<float> (w->leaf_weight),
    lychee_cuda_get<float> (w->leaf_rank), lychee_cuda_get<int> (w->leaf_node),
    lychee_cuda_get<int> (w->leaf_count), lychee_cuda_get<int> (w->leaf_read),
    lychee_cuda_get<float> (w->density), lychee_cuda_get<unsigned long long> (w->counters),
    a.separate, a.head_stride };
  int n_splits = plan.n_sparse_splits + plan.n_rest_splits;

  a.block_tokens = plan.block_tokens;
  a.n_splits = plan.n_sparse_splits;
  a.selection = s.selection;
  a.selected = s.selected;
  a.budget = plan.budget;
  a.n_rest_splits = plan.n_rest_splits;
  a.weight = s.weight;
  a.most = s.most;
  a.max_nodes = plan.max_nodes;
  if (check_kernel (plan.chunks ? lychee_cuda_search_chunks (&s, w->stream)
                                : lychee_cuda_search (&s, w->stream),
          "search", error) ||
      check_kernel (lychee_cuda_attend (&a, w->stream), "attend", error) ||
      merge (w, plan, n_splits, h.type, w->attended.data,
          is_weighed (plan, layer) ? lychee_cuda_get<float> (w->log_mass) : nullptr, n_splits,
          error) ||
      (is_weighed (plan, layer) && weigh (w, plan, layer, a, error)))
    return error->status;
  if (!audited)
    return 0;
  /* Once more in float32, and densely. */
  float *output = lychee_cuda_get<float> (w->audit), *mass = lychee_cuda_get<float> (w->audit_mass);
  size_t n_q = (size_t) h.n_heads * h.head_dim;
  return merge (w, plan, n_splits, LYCHEE_CUDA_F32, output, mass, plan.n_sparse_splits, error) ||
         attend_dense (
             w, plan, layer, false, LYCHEE_CUDA_F32, output + n_q, mass + h.n_heads, error);
}

static int
run_layer (
    LycheeCudaWorker *w, const LycheeCudaPlan &plan, int i, int audit_layer, LycheeCudaError *error)
{
  const LycheeCudaHparams &h = w->model->hparams;
  const LycheeCudaLayer &layer = w->model->layers[i];
  char *control = lychee_cuda_get<char> (w->control);
  int n = plan.n_tokens, n_q = h.n_heads * h.head_dim, n_kv = h.n_kv_heads * h.head_dim;
  bool is_last = i == h.n_layers - 1;
  float *x = lychee_cuda_get<float> (w->x);
  uint16_t *attended = lychee_cuda_get<uint16_t> (w->attended);

  if (norm (w, x, nullptr, layer.attn_norm, n, w->normed.data, nullptr, error) ||
      multiply (w, layer.qkv, n_q + 2 * n_kv, h.n_embd, w->normed.data, n,
          lychee_cuda_get<float> (w->qkv), false, error))
    return error->status;
  LycheeCudaRope rope = { plan.type, h.head_dim, h.n_heads, h.n_kv_heads, n, h.n_rot, h.neox,
    h.norm_eps, lychee_cuda_get<float> (w->qkv), layer.qkv_b, layer.q_norm, layer.k_norm,
    lychee_cuda_get<float> (w->turns[layer.local]), reinterpret_cast<LycheeCudaStep *> (control),
    reinterpret_cast<void **> (control + w->pages_at), get_layer_offset (w, plan, i),
    lychee_cuda_get<float> (w->q),
    lychee_cuda_get<uint16_t> (w->rows) + (size_t) i * count_row_units (w, plan),
    lychee_cuda_is_separate (plan), w->n_pages };
  if (lychee_cuda_is_packed (plan) && !layer.local) {
    /* Indexes whose turn has not come are over keys that are rotated, as queries are otherwise. */
    rope.packed = 1;
    rope.table = lychee_cuda_get<float> (w->turns[2]);
    rope.aim_table = lychee_cuda_get<float> (w->turns[i < plan.n_fresh ? 3 : 0]);
    rope.aim = plan.sparse ? lychee_cuda_get<float> (w->aim) : nullptr;
  }
  if (check_kernel (lychee_cuda_rope (&rope, w->stream), "rope", error))
    return error->status;
  if (is_last && plan.output == LYCHEE_CUDA_OUTPUT_NONE)
    return 0; /* the cache has all that anyone will read */
  if (plan.sparse && !layer.local
          ? attend_sparse (w, plan, i, i == audit_layer, error)
          : attend_dense (w, plan, i, layer.local, h.type, attended, nullptr, error))
    return error->status;
  if (is_last) {
    int skipped = n - count_outputs (plan);

    attended += (size_t) skipped * n_q;
    x += (size_t) skipped * h.n_embd;
    n -= skipped;
  }
  LycheeCudaGate gate = { h.type, h.activation, n, h.n_ff, lychee_cuda_get<float> (w->gate_up),
    layer.gate_up_b, w->activated.data };
  return add_product (w, layer.o, n_q, attended, layer.o_b, layer.attn_post_norm, n, x, error) ||
         norm (w, x, nullptr, layer.ffn_norm, n, w->normed.data, nullptr, error) ||
         multiply (w, layer.gate_up, 2 * h.n_ff, h.n_embd, w->normed.data, n,
             lychee_cuda_get<float> (w->gate_up), false, error) ||
         check_kernel (lychee_cuda_gate (&gate, w->stream), "gate", error) ||
         add_product (w, layer.down, h.n_ff, w->activated.data, layer.down_b, layer.ffn_post_norm,
             n, x, error);
}

static int
begin_layers (LycheeCudaWorker *w, const LycheeCudaPlan &plan, LycheeCudaError *error)
{
  const LycheeCudaHparams &h = w->model->hparams;
  char *control = lychee_cuda_get<char> (w->control);
  LycheeCudaEmbed embed = { h.type, plan.n_tokens, h.n_embd,
    reinterpret_cast<int *> (control + w->ids_at), w->model->embedding, h.embedding_scale,
    lychee_cuda_get<float> (w->x) };

  if (lychee_cuda_check ((int) cudaMemsetAsync (w->counters.data, 0,
                             (size_t) plan.n_sequences * sizeof (LycheeCudaCounters), w->stream),
          "the CUDA device failed", error) ||
      check_kernel (lychee_cuda_embed (&embed, w->stream), "embed", error))
    return error->status;
  for (int local = 0; local < 2; local++) {
    LycheeCudaRopeTable table = { plan.n_tokens, h.n_rot / 2,
      reinterpret_cast<LycheeCudaStep *> (control),
      reinterpret_cast<double *> (control + w->frequency_at) + local * (h.n_rot / 2 + 1),
      lychee_cuda_get<float> (w->turns[local]), lychee_cuda_is_separate (plan) };

    if ((!local || lychee_cuda_has_local (w->model)) &&
        check_kernel (lychee_cuda_rope_table (&table, w->stream), "rope_table", error))
      return error->status;
  }
  if (!lychee_cuda_is_packed (plan))
    return 0;
  LycheeCudaPackedTable packed = { plan.n_tokens, h.n_rot / 2,
    reinterpret_cast<LycheeCudaStep *> (control),
    reinterpret_cast<double *> (control + w->frequency_at), lychee_cuda_is_separate (plan),
    plan.range, get_behind (plan), get_block_tokens (plan), plan.window,
    lychee_cuda_get<float> (w->turns[2]), lychee_cuda_get<float> (w->turns[3]) };
  return check_kernel (lychee_cuda_packed_table (&packed, w->stream), "packed_table", error);
}

/* What packed positions need, and others do not; with the control block on its way. */
static int
need_turns (LycheeCudaWorker *w, const LycheeCudaPass *pass, LycheeCudaError *error)
{
  const LycheeCudaHparams &h = w->model->hparams;
  size_t pair = 2 * sizeof (float), n = (size_t) pass->n_tokens, n_pairs = (size_t) h.n_rot / 2;
  int n_high = lychee_cuda_count_high (pass->range);

  if (lychee_cuda_need (w, &w->turns[2], n * n_pairs * pair, false, error) ||
      lychee_cuda_need (w, &w->turns[3], n * n_pairs * pair, false, error) ||
      lychee_cuda_need (w, &w->aim, n * (size_t) h.n_heads * h.head_dim * 4, false, error) ||
      lychee_cuda_need (w, &w->low, LYCHEE_CUDA_TURN_LOW * n_pairs * pair, false, error) ||
      lychee_cuda_need (w, &w->high, (size_t) n_high * n_pairs * pair, false, error))
    return error->status;
  if (w->turns_range == pass->range)
    return 0;
  LycheeCudaTurns turns = { h.n_rot / 2, n_high,
    reinterpret_cast<double *> (lychee_cuda_get<char> (w->control) + w->frequency_at),
    lychee_cuda_get<float> (w->low), lychee_cuda_get<float> (w->high) };
  if (check_kernel (lychee_cuda_turns (&turns, w->stream), "turns", error))
    return error->status;
  w->turns_range = pass->range;
  return 0;
}

/* The token that follows, of the logits of each sequence. */
static int
choose (LycheeCudaWorker *w, const LycheeCudaPlan &plan, LycheeCudaError *error)
{
  char *control = lychee_cuda_get<char> (w->control);
  LycheeCudaSample sample = { w->model->hparams.n_vocab,
    reinterpret_cast<LycheeCudaSampling *> (control + w->sampling_at),
    reinterpret_cast<int *> (control + w->history_at),
    lychee_cuda_get<unsigned long long> (w->table), lychee_cuda_get<float> (w->logits),
    lychee_cuda_get<float> (w->penalised), lychee_cuda_get<float> (w->tile_max),
    lychee_cuda_get<unsigned long long> (w->masses), lychee_cuda_get<unsigned> (w->counts),
    lychee_cuda_get<int> (w->members), lychee_cuda_get<int> (w->chosen), plan.n_sequences,
    w->n_history };

  return check_kernel (lychee_cuda_sample (&sample, w->stream), "sample", error) ||
         lychee_cuda_check (
             (int) cudaMemcpyAsync (w->chosen_host.data, w->chosen.data,
                 (size_t) plan.n_sequences * sizeof (int), cudaMemcpyDeviceToHost, w->stream),
             "the CUDA device failed in copying", error);
}

static int
finish_layers (LycheeCudaWorker *w, const LycheeCudaPlan &plan, LycheeCudaError *error)
{
  const LycheeCudaHparams &h = w->model->hparams;
  int n = count_outputs (plan);
  float *x = lychee_cuda_get<float> (w->x) + (size_t) (plan.n_tokens - n) * h.n_embd;
  size_t rows = (size_t) h.n_layers * count_row_units (w, plan) * sizeof (uint16_t);

  if (plan.output != LYCHEE_CUDA_OUTPUT_NONE) {
    LycheeCudaLogits logits = { n, h.n_vocab, w->model->output_b, h.logit_scale, h.logit_cap,
      lychee_cuda_get<float> (w->logits) };

    if (norm (w, x, nullptr, w->model->output_norm, n, w->normed.data, nullptr, error) ||
        multiply (w, w->model->output, h.n_vocab, h.n_embd, w->normed.data, n,
            lychee_cuda_get<float> (w->logits), false, error) ||
        ((logits.bias || logits.scale != 1 || logits.cap > 0) &&
            check_kernel (lychee_cuda_logits (&logits, w->stream), "logits", error)) ||
        (plan.output == LYCHEE_CUDA_OUTPUT_CHOSEN
                ? choose (w, plan, error)
                : lychee_cuda_check (
                      (int) cudaMemcpyAsync (w->logits_host.data, w->logits.data,
                          (size_t) n * h.n_vocab * 4, cudaMemcpyDeviceToHost, w->stream),
                      "the CUDA device failed in copying", error)))
      return error->status;
  }
  return lychee_cuda_check ((int) cudaMemcpyAsync (w->rows_host.data, w->rows.data, rows,
                                cudaMemcpyDeviceToHost, w->stream),
             "the CUDA device failed in copying", error) ||
         lychee_cuda_check ((int) cudaMemcpyAsync (w->counters_host.data, w->counters.data,
                                (size_t) plan.n_sequences * sizeof (LycheeCudaCounters),
                                cudaMemcpyDeviceToHost, w->stream),
             "the CUDA device failed in copying", error);
}

static int
run_layers (LycheeCudaWorker *w, const LycheeCudaPlan &plan, const LycheeCudaPass *pass,
    LycheeCudaError *error)
{
  const LycheeCudaHparams &h = w->model->hparams;
  size_t heads_size = (size_t) h.n_kv_heads * sizeof (LycheeCudaHead);

  if (begin_layers (w, plan, error))
    return error->status;
  for (int i = 0; i < h.n_layers; i++) {
    if (pass->index && !w->model->layers[i].local) {
      size_t at = (size_t) i * heads_size;
      char *host = lychee_cuda_get<char> (w->heads_host) + at;

      if (pass->index (pass->index_data, i, reinterpret_cast<LycheeCudaHead *> (host)))
        return lychee_cuda_fail (error, LYCHEE_CUDA_FAILED, "the pass was given up");
      if (lychee_cuda_check (
              (int) cudaMemcpyAsync (lychee_cuda_get<char> (w->control) + w->heads_at + at, host,
                  heads_size, cudaMemcpyHostToDevice, w->stream),
              "the CUDA device failed in copying", error))
        return error->status;
    }
    if (run_layer (w, plan, i, pass->audit_layer, error))
      return error->status;
  }
  return finish_layers (w, plan, error);
}

/* Captures the pass, which the device has run before. */
static int
capture (LycheeCudaWorker *w, const LycheeCudaPlan &plan, const LycheeCudaPass *pass,
    cudaGraphExec_t *exec, LycheeCudaError *error)
{
  cudaGraph_t captured = nullptr;
  int status;

  {
    std::lock_guard<std::mutex> guard (w->model->device->whole);

    if (lychee_cuda_check (
            (int) cudaStreamBeginCapture (w->stream, cudaStreamCaptureModeThreadLocal),
            "a CUDA graph cannot be captured", error))
      return error->status;
    status = run_layers (w, plan, pass, error);
    /* Capturing has to end also when what was captured failed. */
    if (lychee_cuda_check ((int) cudaStreamEndCapture (w->stream, &captured),
            "a CUDA graph cannot be captured", error))
      status = error->status;
  }
  if (!status)
    status = lychee_cuda_check (
        (int) cudaGraphInstantiate (exec, captured, 0), "a CUDA graph cannot be made", error);
  if (captured)
    cudaGraphDestroy (captured);
  return status;
}

/* The first pass of its kind runs as it is: kernels and cuBLAS load what they need then, which not
 * every driver can do while it captures, and many kinds are there once only. The second one is
 * captured. A graph is a matter of speed: without one all goes on. */
static int
run_graph (LycheeCudaWorker *w, const LycheeCudaPlan &plan, const LycheeCudaPass *pass,
    LycheeCudaError *error)
{
  LycheeCudaGraph *graph = nullptr, *oldest = &w->graphs[0];
  LycheeCudaError ignored;

  if (w->no_graphs)
    return run_layers (w, plan, pass, error);
  for (LycheeCudaGraph &g : w->graphs) {
    if (g.last_used > 0 && memcmp (&g.plan, &plan, sizeof plan) == 0)
      graph = &g;
    if (g.last_used < oldest->last_used)
      oldest = &g;
  }
  if (!graph) {
    if (oldest->exec)
      cudaGraphExecDestroy (oldest->exec);
    oldest->exec = nullptr;
    oldest->plan = plan;
    oldest->last_used = ++w->n_runs;
    return run_layers (w, plan, pass, error);
  }
  graph->last_used = ++w->n_runs;
  if (!graph->exec && capture (w, plan, pass, &graph->exec, &ignored)) {
    graph->exec = nullptr;
    w->no_graphs = true;
    return run_layers (w, plan, pass, error);
  }
  return lychee_cuda_check (
      (int) cudaGraphLaunch (graph->exec, w->stream), "a CUDA graph failed", error);
}

/* What sparse attention missed: means over the heads. */
static void
finish_audit (LycheeCudaWorker *w, LycheeCudaResult *result)
{
  const LycheeCudaHparams &h = w->model->hparams;
  size_t n_q = (size_t) h.n_heads * h.head_dim;
  const float *got = lychee_cuda_get<float> (w->audit_host), *wanted = got + n_q,
              *mass = wanted + n_q;

  result->audited = 1;
  for (int head = 0; head < h.n_heads; head++) {
    double distance = 0, length = 0,
           missed = 1 - exp ((double) mass[head] - mass[h.n_heads + head]);

    for (int d = 0; d < h.head_dim; d++) {
      double x = got[head * h.head_dim + d], y = wanted[head * h.head_dim + d];

      distance += (x - y) * (x - y);
      length += y * y;
    }
    result->missed_mass += (missed > 0 ? missed : 0) / h.n_heads;
    result->error += length > 0 ? sqrt (distance / length) / h.n_heads : 0;
  }
}

int
lychee_cuda_worker_run (LycheeCudaWorker *w, const LycheeCudaPass *pass, LycheeCudaResult *result,
    LycheeCudaError *error)
{
  const LycheeCudaHparams &h = w->model->hparams;
  size_t n_q = (size_t) h.n_heads * h.head_dim;
  bool audited = pass->sparse && pass->audit_layer >= 0 && pass->n_tokens == 1;
  LycheeCudaPass now = *pass;
  LycheeCudaPlan plan;
  int status;

  memset (result, 0, sizeof *result);
  if (pass->type != LYCHEE_CUDA_F16 &&
      (pass->type != LYCHEE_CUDA_Q8_0 || h.head_dim % LYCHEE_CUDA_BLOCK_VALUES != 0))
    return lychee_cuda_fail (error, LYCHEE_CUDA_UNSUPPORTED,
        "keys and values of type %d, of %d dimensions", (int) pass->type, h.head_dim);
  if (pass->n_sequences != 1 &&
      (pass->n_sequences != pass->n_tokens || pass->n_sequences > LYCHEE_CUDA_MAX_SEQUENCES ||
          pass->index || pass->weigh || pass->audit_layer >= 0))
    return lychee_cuda_fail (error, LYCHEE_CUDA_UNSUPPORTED,
        "%d tokens of %d sequences cannot be computed in one pass", pass->n_tokens,
        pass->n_sequences);
  lychee_cuda_use (w->model->device);
  if (!audited)
    now.audit_layer = -1;
  if (lychee_cuda_need_blas (w, error) || lychee_cuda_need_tokens (w, pass->n_tokens, error) ||
      fill_control (w, pass, error))
    return error->status;
  if (pass->range > 0 && need_turns (w, pass, error)) {
    cudaStreamSynchronize (w->stream);
    return error->status;
  }
  plan = lychee_cuda_make_plan (w, pass);
  if (need_plan (w, plan, error) ||
      (audited &&
          (lychee_cuda_need (w, &w->audit, 2 * n_q * 4, false, error) ||
              lychee_cuda_need (w, &w->audit_mass, 2 * (size_t) h.n_heads * 4, false, error) ||
              lychee_cuda_need (w, &w->audit_host, 2 * (n_q + h.n_heads) * 4, true, error)))) {
    cudaStreamSynchronize (w->stream);
    return error->status;
  }
  plan.generation = w->generation;
  if (pass->n_tokens == pass->n_sequences && pass->output != LYCHEE_CUDA_OUTPUT_NONE &&
      !pass->index && !audited)
    status = run_graph (w, plan, &now, error);
  else
    status = run_layers (w, plan, &now, error);
  if (!status && audited) {
    char *host = lychee_cuda_get<char> (w->audit_host);

    status = lychee_cuda_check ((int) cudaMemcpyAsync (host, w->audit.data, 2 * n_q * 4,
                                    cudaMemcpyDeviceToHost, w->stream),
                 "the CUDA device failed in copying", error) ||
             lychee_cuda_check ((int) cudaMemcpyAsync (host + 2 * n_q * 4, w->audit_mass.data,
                                    2 * (size_t) h.n_heads * 4, cudaMemcpyDeviceToHost, w->stream),
                 "the CUDA device failed in copying", error);
  }
  /* Also after a failure: what was begun must not go on with memory that is used again. */
  int finished = (int) cudaStreamSynchronize (w->stream);
  if (status || lychee_cuda_check (finished, "the CUDA device failed", error))
    return error->status;
  result->counters = lychee_cuda_get<LycheeCudaCounters> (w->counters_host);
  result->rows = lychee_cuda_get<uint16_t> (w->rows_host);
  if (pass->output == LYCHEE_CUDA_OUTPUT_CHOSEN) {
    int *chosen = lychee_cuda_get<int> (w->chosen_host);

    for (int i = 0; i < pass->n_sequences; i++)
      chosen[i] = chosen[i] == INT_MAX ? -1 : chosen[i];
    result->chosen = chosen;
  } else if (pass->output != LYCHEE_CUDA_OUTPUT_NONE)
    result->logits = lychee_cuda_get<float> (w->logits_host);
  if (audited)
    finish_audit (w, result);
  return 0;
}
