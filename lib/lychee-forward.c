/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include "lychee-forward.h"

#include "lychee-attention.h"
#include "lychee-model-private.h"

#include <ggml-alloc.h>
#include <ggml-cpu.h>
#include <ggml.h>

/* Graphs are kept for the shapes in use: decode, chunks of each length, pieces of longer texts. */
#define N_GRAPHS 16
/* Nodes and leaves of a layer, generously, and those around the layers. */
#define NODES_PER_LAYER 48
#define NODES_AROUND 64

typedef struct _Graphs Graphs;

typedef struct {
  Graphs *graphs;
  guint layer;
} Node;

typedef struct {
  guint n_tokens;
  LycheeOutput output;
  guint n_context; /* that its ropes are for */
  guint64 last_used;
  struct ggml_context *context;
  struct ggml_cgraph *graph;
  struct ggml_tensor *ids;
  struct ggml_tensor *positions;
  struct ggml_tensor *result; /* logits, or the last store */
} Graph;

/* What all forwards of a model over one executor share: since that runs one graph at a time, one
 * set of graphs with one buffer does for any number of sessions. In the executor's turn, but for
 * refs. */
struct _Graphs {
  guint refs; /* under the registry's lock */
  LycheeModel *model;
  LycheeExecutor *executor;
  guint n_layers;
  LycheeAttention *attention; /* of the forward whose pass is under way */
  Node *nodes;                /* [n_layers], what the custom operations are handed */
  struct ggml_gallocr *allocator;
  Graph list[N_GRAPHS];
  guint64 n_runs;
};

struct _LycheeForward {
  Graphs *graphs;
  LycheePacked *packed; /* NULL until it is needed */
  LycheeAttention *attention;
  float *result; /* of the last pass */
  gsize result_size;
};

static GMutex registry_lock;
static GSList *registry; /* of Graphs, not owned */

static void
graph_clear (Graph *graph)
{
  g_clear_pointer (&graph->context, ggml_free);
  graph->graph = NULL;
  graph->last_used = 0;
}

static Graphs *
graphs_get (LycheeModel *model, LycheeExecutor *executor, guint n_layers)
{
  Graphs *graphs = NULL;

  g_mutex_lock (&registry_lock);
  for (GSList *l = registry; l && !graphs; l = l->next) {
    Graphs *g = l->data;

    if (g->model == model && g->executor == executor && g->n_layers == n_layers)
      graphs = g;
  }
  if (!graphs) {
    graphs = g_new0 (Graphs, 1);
    graphs->model = g_object_ref (model);
    graphs->executor = lychee_executor_ref (executor);
    graphs->n_layers = n_layers;
    graphs->nodes = g_new (Node, n_layers);
    for (guint i = 0; i < n_layers; i++)
      graphs->nodes[i] = (Node){ graphs, i };
    graphs->allocator = ggml_gallocr_new (ggml_backend_cpu_buffer_type ());
    registry = g_slist_prepend (registry, graphs);
  }
  graphs->refs++;
  g_mutex_unlock (&registry_lock);
  return graphs;
}

static void
graphs_unref (Graphs *graphs)
{
  gboolean last;

  g_mutex_lock (&registry_lock);
  last = --graphs->refs == 0;
  if (last)
    registry = g_slist_remove (registry, graphs);
  g_mutex_unlock (&registry_lock);
  if (!last)
    return;
  for (guint i = 0; i < N_GRAPHS; i++)
    graph_clear (&graphs->list[i]);
  ggml_gallocr_free (graphs->allocator);
  lychee_executor_unref (graphs->executor);
  g_object_unref (graphs->model);
  g_free (graphs->nodes);
  g_free (graphs);
}

static const LycheePacked *
get_packed (LycheeModel *model, LycheePacked **packed)
{
  const LycheeHparams *hp = lychee_model_get_hparams (model);

  if (!*packed) {
    g_autofree double *frequencies = g_new (double, hp->n_rot / 2 + 1);

    lychee_model_get_frequencies (model, FALSE, 0, frequencies);
    *packed = lychee_packed_new (frequencies, hp->n_rot / 2,
        lychee_model_get_description (model)->rope_halves, hp->head_dim,
        lychee_attention_get_farthest (hp->n_context));
  }
  return *packed;
}

const LycheePacked *
lychee_forward_pack (LycheeModel *model, LycheePacked **packed, LycheeCache *cache, guint n)
{
  g_autoptr (GError) error = NULL;

  lychee_cache_lock_index (cache);
  if (lychee_cache_get_packed (cache) && !lychee_cache_is_bare (cache) &&
      lychee_cache_get_n_held (cache) + n > lychee_model_get_n_context (model) &&
      !lychee_cache_turn_back (
          cache, get_packed (model, packed), lychee_model_get_local_layers (model), &error))
    g_debug ("%s: keys stay as they are until the next pass", error->message);
  lychee_cache_unlock_index (cache);
  return lychee_cache_is_bare (cache) ? get_packed (model, packed) : NULL;
}

LycheeForward *
lychee_forward_new (LycheeModel *model, LycheeExecutor *executor)
{
  return lychee_forward_new_shallow (model, executor, lychee_model_get_hparams (model)->n_layers);
}

LycheeForward *
lychee_forward_new_shallow (LycheeModel *model, LycheeExecutor *executor, guint n_layers)
{
  const LycheeHparams *hp = lychee_model_get_hparams (model);
  LycheeForward *f = g_new0 (LycheeForward, 1);

  n_layers = MIN (n_layers, hp->n_layers);
  f->graphs = graphs_get (model, executor, n_layers);
  f->attention = lychee_attention_new (n_layers, hp->n_heads, hp->n_kv_heads, hp->head_dim,
      lychee_executor_get_n_threads (executor));
  lychee_attention_set_layers (f->attention, lychee_model_get_local_layers (model), hp->window,
      hp->attention_scale, hp->attention_cap);
  return f;
}

void
lychee_forward_free (LycheeForward *f)
{
  lychee_attention_free (f->attention);
  g_clear_pointer (&f->packed, lychee_packed_free);
  graphs_unref (f->graphs);
  g_free (f->result);
  g_free (f);
}

/* The custom operations. The barrier that ggml puts between nodes is the one that attention needs
 * between its steps. */

static void
op_store (struct ggml_tensor *dst, int thread, int n_threads, void *data)
{
  Node *node = data;

  lychee_attention_store (node->graphs->attention, node->layer, dst->src[0]->data,
      dst->src[1]->data, thread, n_threads);
}

static void
op_attend (struct ggml_tensor *dst, int thread, int n_threads, void *data)
{
  Node *node = data;

  lychee_attention_attend (node->graphs->attention, node->layer, dst->src[0]->data, thread);
}

static void
op_merge (struct ggml_tensor *dst, int thread, int n_threads, void *data)
{
  Node *node = data;

  lychee_attention_merge (node->graphs->attention, node->layer, dst->data, thread, n_threads);
}

static struct ggml_tensor *
custom (struct ggml_context *c, gint64 ne0, gint64 ne1, struct ggml_tensor *a,
    struct ggml_tensor *b, ggml_custom_op_t op, Node *node)
{
  struct ggml_tensor *args[] = { a, b };

  return ggml_custom_4d (
      c, GGML_TYPE_F32, ne0, ne1, 1, 1, args, b ? 2 : 1, op, GGML_N_TASKS_MAX, node);
}

/* @weight (nullable): not normed */
static struct ggml_tensor *
norm (struct ggml_context *c, const LycheeHparams *hp, struct ggml_tensor *x,
    struct ggml_tensor *weight)
{
  return weight ? ggml_mul (c, ggml_rms_norm (c, x, hp->norm_eps), weight) : x;
}

static struct ggml_tensor *
scale (struct ggml_context *c, struct ggml_tensor *x, float factor)
{
  return factor == 1 ? x : ggml_scale (c, x, factor);
}

/* weight x + bias */
static struct ggml_tensor *
project (struct ggml_context *c, struct ggml_tensor *weight, struct ggml_tensor *bias,
    struct ggml_tensor *x)
{
  x = ggml_mul_mat (c, weight, x);
  return bias ? ggml_add (c, x, bias) : x;
}

/* Queries or keys: [head_dim x heads][n] -> the same, each head normed where @weight is one, and
 * rotated by its token's position */
static struct ggml_tensor *
rotate (struct ggml_context *c, const LycheeHparams *hp, const LycheeRope *r, struct ggml_tensor *x,
    guint n_heads, struct ggml_tensor *weight, struct ggml_tensor *positions)
{

  x = norm (c, hp, ggml_reshape_3d (c, x, hp->head_dim, n_heads, x->ne[1]), weight);
  return ggml_rope_ext (c, x, positions, r->factors, r->n_rot, r->mode, r->n_context, r->freq_base,
      r->freq_scale, r->ext_factor, r->attn_factor, r->beta_fast, r->beta_slow);
}

static struct ggml_tensor *
feed_forward (
    struct ggml_context *c, LycheeModel *model, const LycheeLayer *layer, struct ggml_tensor *x)
{
  struct ggml_tensor *gate = project (c, layer->gate, layer->gate_b, x);
  struct ggml_tensor *up = project (c, layer->up, layer->up_b, x);

  if (lychee_model_get_description (model)->activation == LYCHEE_ACTIVATION_GELU)
    x = ggml_geglu_split (c, gate, up);
  else
    x = ggml_swiglu_split (c, gate, up);
  return project (c, layer->down, layer->down_b, x);
}

static struct ggml_tensor *
get_logits (struct ggml_context *c, LycheeModel *model, struct ggml_tensor *x)
{
  const LycheeHparams *hp = lychee_model_get_hparams (model);
  const LycheeTensors *t = lychee_model_get_tensors (model);

  x = project (c, t->output, t->output_b, norm (c, hp, x, t->output_norm));
  x = scale (c, x, hp->logit_scale);
  if (hp->logit_cap > 0)
    x = ggml_scale (c, ggml_tanh (c, ggml_scale (c, x, 1 / hp->logit_cap)), hp->logit_cap);
  return x;
}

static struct ggml_tensor *
last_column (struct ggml_context *c, struct ggml_tensor *x)
{
  return ggml_view_2d (c, x, x->ne[0], 1, x->nb[1], (x->ne[1] - 1) * x->nb[1]);
}

static void
build (Graphs *graphs, Graph *g)
{
  LycheeModel *model = graphs->model;
  const LycheeHparams *hp = lychee_model_get_hparams (model);
  gsize n_nodes = graphs->n_layers * NODES_PER_LAYER + NODES_AROUND;
  struct ggml_init_params params = {
    .mem_size = n_nodes * ggml_tensor_overhead () + ggml_graph_overhead_custom (n_nodes, false),
    .no_alloc = true,
  };
  struct ggml_context *c = ggml_init (params);
  struct ggml_tensor *x;
  LycheeRope ropes[2]; /* of global and of local layers */

  for (guint local = 0; local < 2; local++)
    lychee_model_get_rope (model, local, g->n_context, &ropes[local]);

  g->context = c;
  g->graph = ggml_new_graph_custom (c, n_nodes, false);
  g->ids = ggml_new_tensor_1d (c, GGML_TYPE_I32, g->n_tokens);
  g->positions = ggml_new_tensor_1d (c, GGML_TYPE_I32, g->n_tokens);
  ggml_set_input (g->ids);
  ggml_set_input (g->positions);
  x = ggml_get_rows (c, lychee_model_get_tensors (model)->embedding, g->ids);
  x = scale (c, x, hp->embedding_scale);

  for (guint i = 0; i < graphs->n_layers; i++) {
    const LycheeLayer *layer = lychee_model_get_layer (model, i);
    const LycheeRope *rope = &ropes[layer->local ? 1 : 0];
    gboolean is_last = i == graphs->n_layers - 1;
    struct ggml_tensor *normed = norm (c, hp, x, layer->attn_norm);
    struct ggml_tensor *k = project (c, layer->k, layer->k_b, normed);
    struct ggml_tensor *v = project (c, layer->v, layer->v_b, normed);
    struct ggml_tensor *q, *y;

    k = rotate (c, hp, rope, k, hp->n_kv_heads, layer->k_norm, g->positions);
    y = custom (c, 1, 1, k, v, op_store, &graphs->nodes[i]);
    if (is_last && g->output == LYCHEE_OUTPUT_NONE) {
      g->result = y; /* the cache has all that anyone will read */
      break;
    }
    q = project (c, layer->q, layer->q_b, normed);
    q = rotate (c, hp, rope, q, hp->n_heads, layer->q_norm, g->positions);
    y = custom (c, 1, 1, q, y, op_attend, &graphs->nodes[i]);
    y = custom (
        c, (gint64) hp->head_dim * hp->n_heads, g->n_tokens, y, NULL, op_merge, &graphs->nodes[i]);
    if (is_last && g->output == LYCHEE_OUTPUT_LAST && g->n_tokens > 1) {
      y = last_column (c, y);
      x = last_column (c, x);
    }
    y = norm (c, hp, project (c, layer->o, layer->o_b, y), layer->attn_post_norm);
    x = ggml_add (c, x, scale (c, y, hp->residual_scale));
    y = feed_forward (c, model, layer, norm (c, hp, x, layer->ffn_norm));
    y = norm (c, hp, y, layer->ffn_post_norm);
    x = ggml_add (c, x, scale (c, y, hp->residual_scale));
  }

  if (g->output == LYCHEE_OUTPUT_STATES)
    g->result = x;
  else if (g->output != LYCHEE_OUTPUT_NONE)
    g->result = get_logits (c, model, x);
  ggml_set_output (g->result);
  ggml_build_forward_expand (g->graph, g->result);
}

/* The graph for such a pass, with memory for it. All graphs lie in one buffer, one over the other.
 */
static Graph *
get_graph (Graphs *graphs, guint n_tokens, LycheeOutput output, guint n_context, GError **error)
{
  Graph *graph = &graphs->list[0];
  gsize had;

  for (guint i = 0; i < N_GRAPHS; i++) {
    Graph *g = &graphs->list[i];

    if (g->graph && g->n_tokens == n_tokens && g->output == output && g->n_context == n_context) {
      g->last_used = ++graphs->n_runs;
      return g;
    }
    if (g->last_used < graph->last_used)
      graph = g;
  }
  graph_clear (graph);
  graph->n_tokens = n_tokens;
  graph->output = output;
  graph->n_context = n_context;
  build (graphs, graph);
  had = ggml_gallocr_get_buffer_size (graphs->allocator, 0);
  if (!ggml_gallocr_alloc_graph (graphs->allocator, graph->graph)) {
    for (guint i = 0; i < N_GRAPHS; i++)
      graph_clear (&graphs->list[i]);
    g_set_error (error, LYCHEE_CACHE_ERROR, LYCHEE_CACHE_ERROR_NO_MEMORY,
        "The system has no memory to compute %u tokens at a time", n_tokens);
    return NULL;
  }
  /* The buffer is another one: what lay in the old one is to be laid out again. */
  if (ggml_gallocr_get_buffer_size (graphs->allocator, 0) != had)
    for (guint i = 0; i < N_GRAPHS; i++)
      if (&graphs->list[i] != graph)
        graph_clear (&graphs->list[i]);
  graph->last_used = ++graphs->n_runs;
  return graph;
}

LycheeAttention *
lychee_forward_get_attention (LycheeForward *f)
{
  return f->attention;
}

gsize
lychee_forward_get_bytes (LycheeForward *f)
{
  return sizeof *f + f->result_size + lychee_attention_get_bytes (f->attention);
}

/* What the pass gave: the next one, of whichever forward, writes over it. */
static void
copy_result (LycheeForward *f, const struct ggml_tensor *result)
{
  gsize size = ggml_nbytes (result);

  if (size > f->result_size) {
    g_free (f->result);
    f->result = g_malloc (size);
    f->result_size = size;
  }
  memcpy (f->result, result->data, size);
}

/* In the executor's turn. */
static gboolean
run (LycheeForward *f, LycheeCache *cache, const gint32 *ids, guint n, LycheeOutput output,
    gboolean wants_result, GCancellable *cancellable, GError **error)
{
  guint first = lychee_cache_get_length (cache);
  Graph *graph = get_graph (f->graphs, n, output, lychee_cache_get_rope_context (cache), error);
  gint32 *positions;
  gboolean ok;

  if (!graph)
    return FALSE;
  memcpy (graph->ids->data, ids, n * sizeof *ids);
  positions = graph->positions->data;
  for (guint i = 0; i < n; i++)
    positions[i] = lychee_cache_get_origin (cache) + first + i;
  f->graphs->attention = f->attention;
  lychee_cache_lock_index (cache);
  lychee_attention_prepare (f->attention, cache, n);
  ok = lychee_executor_compute (f->graphs->executor, graph->graph, cancellable, error);
  ok = lychee_attention_finish (f->attention, ok ? error : NULL) && ok;
  lychee_cache_unlock_index (cache);
  if (ok && wants_result)
    copy_result (f, graph->result);
  return ok;
}

gboolean
lychee_forward_run (LycheeForward *f, LycheeCache *cache, const gint32 *ids, guint n,
    LycheeOutput output, const float **logits, GCancellable *cancellable, GError **error)
{
  gint32 n_vocab = lychee_model_get_n_vocab (f->graphs->model);
  gboolean wants_result = logits && output != LYCHEE_OUTPUT_NONE, ok;

  g_return_val_if_fail (n > 0 && n <= LYCHEE_FORWARD_MAX_TOKENS, FALSE);

  for (guint i = 0; i < n; i++)
    if (ids[i] < 0 || ids[i] >= n_vocab) {
      g_set_error (error, LYCHEE_MODEL_ERROR, LYCHEE_MODEL_ERROR_INVALID,
          "Token id %d is not in the model's vocabulary of %d", ids[i], n_vocab);
      return FALSE;
    }
  if (!lychee_cache_reserve (cache, n, error))
    return FALSE;
  lychee_attention_set_packed (f->attention,
      lychee_forward_pack (f->graphs->model, &f->packed, cache, n),
      lychee_model_get_n_context (f->graphs->model));
  if (!lychee_executor_begin (f->graphs->executor, cancellable, error))
    return FALSE;
  ok = run (f, cache, ids, n, output, wants_result, cancellable, error);
  lychee_executor_end (f->graphs->executor);
  if (!ok)
    return FALSE;
  lychee_cache_commit (cache, n);
  if (logits)
    *logits = wants_result ? f->result : NULL;
  return TRUE;
}
