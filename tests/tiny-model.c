/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include "tiny-model.h"

#include <gguf.h>
#include <glib/gstdio.h>
#include <math.h>
#include <string.h>

static const char chatml[] =
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + "
    "'<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}"
    "{% endif %}";

static const char *const specials[] = { "<|endoftext|>", "<|im_start|>", "<|im_end|>" };

/* In the byte-level alphabet, where Ġ is the space. */
static const char *const merges[] = { "h e", "t he", "Ġ t", "Ġt he", "i n", "e r", "o u", "Ġ a",
  "a n", "an d", "Ġ s", "Ġs a" };

/* GPT-2's byte-level alphabet: printable bytes stand for themselves, the rest for U+0100 on. */
static gunichar
byte_to_char (guint byte)
{
  guint next = 256;

  for (guint b = 0; b <= byte; b++) {
    gboolean itself = (b >= '!' && b <= '~') || (b >= 0xa1 && b <= 0xac) || b >= 0xae;

    if (b == byte)
      return itself ? b : next;
    if (!itself)
      next++;
  }
  g_assert_not_reached ();
}

static void
add_vocabulary (struct gguf_context *gguf)
{
  g_autoptr (GPtrArray) tokens = g_ptr_array_new_with_free_func (g_free);
  g_autoptr (GArray) types = g_array_new (FALSE, FALSE, sizeof (gint32));
  const gint32 normal = 1, control = 3;

  for (guint i = 0; i < G_N_ELEMENTS (specials); i++) {
    g_ptr_array_add (tokens, g_strdup (specials[i]));
    g_array_append_val (types, control);
  }
  for (guint b = 0; b < 256; b++) {
    char utf8[8] = { 0 };

    g_unichar_to_utf8 (byte_to_char (b), utf8);
    g_ptr_array_add (tokens, g_strdup (utf8));
    g_array_append_val (types, normal);
  }
  for (guint i = 0; i < G_N_ELEMENTS (merges); i++) {
    const char *space = strchr (merges[i], ' ');

    g_ptr_array_add (
        tokens, g_strdup_printf ("%.*s%s", (int) (space - merges[i]), merges[i], space + 1));
    g_array_append_val (types, normal);
  }
  gguf_set_val_str (gguf, "tokenizer.ggml.model", "gpt2");
  gguf_set_val_str (gguf, "tokenizer.ggml.pre", "smollm");
  gguf_set_arr_str (gguf, "tokenizer.ggml.tokens", (const char **) tokens->pdata, tokens->len);
  gguf_set_arr_data (gguf, "tokenizer.ggml.token_type", GGUF_TYPE_INT32, types->data, types->len);
  gguf_set_arr_str (gguf, "tokenizer.ggml.merges", (const char **) merges, G_N_ELEMENTS (merges));
  gguf_set_val_u32 (gguf, "tokenizer.ggml.bos_token_id", 1);
  gguf_set_val_u32 (gguf, "tokenizer.ggml.eos_token_id", 2);
  gguf_set_val_bool (gguf, "tokenizer.ggml.add_bos_token", false);
}

static double
normal (GRand *rand)
{
  double u = g_rand_double (rand) + 1e-12, v = g_rand_double (rand);

  return sqrt (-2 * log (u)) * cos (2 * G_PI * v);
}

/* What is in the files of an architecture; written down apart from the library's table. */
typedef struct {
  const char *name;
  gboolean qkv_biases;
  gboolean qk_norms;
  gboolean post_norms;
  gboolean fused;
  gboolean multipliers;
} Kind;

static const Kind kinds[] = {
  { "llama" },
  { "qwen2", .qkv_biases = TRUE },
  { "qwen3", .qk_norms = TRUE },
  { "gemma2", .post_norms = TRUE },
  { "gemma3", .qk_norms = TRUE, .post_norms = TRUE },
  { "phi3", .fused = TRUE },
  { "granite", .multipliers = TRUE },
};

static const Kind *
get_kind (const LycheeTinyModel *t)
{
  for (guint i = 0; i < G_N_ELEMENTS (kinds); i++)
    if (g_str_equal (kinds[i].name, t->architecture ? t->architecture : "llama"))
      return &kinds[i];
  g_assert_not_reached ();
}

typedef struct {
  struct gguf_context *gguf;
  struct ggml_context *tensors;
  GRand *rand;
} Writer;

/* Random numbers of the mean and deviation given. */
static void
add_tensor (Writer *w, const char *name, enum ggml_type type, gint64 columns, gint64 rows,
    double mean, double deviation)
{
  struct ggml_tensor *tensor = rows > 1 ? ggml_new_tensor_2d (w->tensors, type, columns, rows)
                                        : ggml_new_tensor_1d (w->tensors, type, columns);
  g_autofree float *values = g_new (float, columns *rows);

  for (gint64 i = 0; i < columns * rows; i++)
    values[i] = mean + deviation * normal (w->rand);
  ggml_set_name (tensor, name);
  if (type == GGML_TYPE_F32)
    memcpy (tensor->data, values, columns * rows * sizeof *values);
  else
    ggml_quantize_chunk (type, values, tensor->data, 0, rows, columns, NULL);
  gguf_add_tensor (w->gguf, tensor);
}

static void
add_layer (Writer *w, const LycheeTinyModel *t, guint layer)
{
  const Kind *kind = get_kind (t);
  gint64 n_q = t->n_heads * t->head_dim, n_kv = t->n_kv_heads * t->head_dim;
  gboolean fused = t->fused || kind->fused;
  gboolean separate_b = (t->biases && !fused) || kind->qkv_biases;
  double of_embd = 1 / sqrt (t->n_embd);
  const struct {
    const char *name;
    enum ggml_type type;
    gint64 columns, rows;
    double mean, deviation;
    gboolean wanted;
  } tensors[] = {
    { "attn_norm.weight", GGML_TYPE_F32, t->n_embd, 1, 1, 0.1, TRUE },
    { "attn_q.weight", t->type, t->n_embd, n_q, 0, 1.2 * of_embd, !fused },
    { "attn_k.weight", t->type, t->n_embd, n_kv, 0, 1.2 * of_embd, !fused },
    { "attn_v.weight", t->type, t->n_embd, n_kv, 0, of_embd, !fused },
    { "attn_qkv.weight", t->type, t->n_embd, n_q + 2 * n_kv, 0, 1.2 * of_embd, fused },
    { "attn_output.weight", t->type, n_q, t->n_embd, 0, 0.25 / sqrt (n_q), TRUE },
    { "attn_q.bias", GGML_TYPE_F32, n_q, 1, 0, 0.1, separate_b },
    { "attn_k.bias", GGML_TYPE_F32, n_kv, 1, 0, 0.1, separate_b },
    { "attn_v.bias", GGML_TYPE_F32, n_kv, 1, 0, 0.1, separate_b },
    { "attn_qkv.bias", GGML_TYPE_F32, n_q + 2 * n_kv, 1, 0, 0.1, t->fused && t->biases },
    { "attn_output.bias", GGML_TYPE_F32, t->n_embd, 1, 0, 0.1, t->biases },
    { "attn_q_norm.weight", GGML_TYPE_F32, t->head_dim, 1, 1.2, 0.1, kind->qk_norms },
    { "attn_k_norm.weight", GGML_TYPE_F32, t->head_dim, 1, 1.2, 0.1, kind->qk_norms },
    { "post_attention_norm.weight", GGML_TYPE_F32, t->n_embd, 1, 0.3, 0.05, kind->post_norms },
    { "ffn_norm.weight", GGML_TYPE_F32, t->n_embd, 1, 1, 0.1, TRUE },
    { "ffn_gate.weight", t->type, t->n_embd, t->n_ff, 0, of_embd, !kind->fused },
    { "ffn_up.weight", t->type, t->n_embd, kind->fused ? 2 * t->n_ff : t->n_ff, 0, of_embd, TRUE },
    { "ffn_down.weight", t->type, t->n_ff, t->n_embd, 0, 1 / sqrt (t->n_ff), TRUE },
    { "ffn_gate.bias", GGML_TYPE_F32, t->n_ff, 1, 0, 0.1, t->biases && !kind->fused },
    { "ffn_up.bias", GGML_TYPE_F32, t->n_ff, 1, 0, 0.1, t->biases && !kind->fused },
    { "ffn_down.bias", GGML_TYPE_F32, t->n_embd, 1, 0, 0.1, t->biases },
    { "post_ffw_norm.weight", GGML_TYPE_F32, t->n_embd, 1, 0.3, 0.05, kind->post_norms },
  };

  for (guint i = 0; i < G_N_ELEMENTS (tensors); i++) {
    g_autofree char *name = g_strdup_printf ("blk.%u.%s", layer, tensors[i].name);

    if (tensors[i].wanted)
      add_tensor (w, name, tensors[i].type, tensors[i].columns, tensors[i].rows, tensors[i].mean,
          tensors[i].deviation);
  }
}

static void
set_uint (Writer *w, const char *architecture, const char *key, guint value)
{
  g_autofree char *name = g_strdup_printf ("%s.%s", architecture, key);

  gguf_set_val_u32 (w->gguf, name, value);
}

static void
set_float (Writer *w, const char *architecture, const char *key, float value)
{
  g_autofree char *name = g_strdup_printf ("%s.%s", architecture, key);

  gguf_set_val_f32 (w->gguf, name, value);
}

static void
add_keys (Writer *w, const LycheeTinyModel *t)
{
  const Kind *kind = get_kind (t);
  const char *a = kind->name;

  gguf_set_val_str (w->gguf, "general.architecture", a);
  gguf_set_val_str (w->gguf, "general.name", "tiny");
  set_uint (w, a, "block_count", t->n_layers);
  set_uint (w, a, "context_length", t->n_context);
  set_uint (w, a, "embedding_length", t->n_embd);
  set_uint (w, a, "feed_forward_length", t->n_ff);
  set_uint (w, a, "attention.head_count", t->n_heads);
  set_uint (w, a, "attention.head_count_kv", t->n_kv_heads);
  set_uint (w, a, "attention.key_length", t->head_dim);
  set_uint (w, a, "attention.value_length", t->head_dim);
  set_uint (w, a, "rope.dimension_count", t->n_rot > 0 ? t->n_rot : t->head_dim);
  set_float (w, a, "attention.layer_norm_rms_epsilon", 1e-5f);
  if (t->rope_freq_base > 0)
    set_float (w, a, "rope.freq_base", t->rope_freq_base);
  if (t->window > 0)
    set_uint (w, a, "attention.sliding_window", t->window);
  if (t->scaling) {
    g_autofree char *name = g_strdup_printf ("%s.rope.scaling.type", a);

    gguf_set_val_str (w->gguf, name, t->scaling);
    if (t->scaling_factor > 0)
      set_float (w, a, "rope.scaling.factor", t->scaling_factor);
  }
  if (t->n_original > 0) {
    set_uint (w, a, "rope.scaling.original_context_length", t->n_original);
    if (g_strcmp0 (t->scaling, "longrope") == 0)
      set_float (w, a, "rope.scaling.attn_factor", 1.1f);
  }
  if (t->attention_cap > 0)
    set_float (w, a, "attn_logit_softcapping", t->attention_cap);
  if (t->logit_cap > 0)
    set_float (w, a, "final_logit_softcapping", t->logit_cap);
  if (kind->multipliers) {
    set_float (w, a, "embedding_scale", 1.5f);
    set_float (w, a, "attention.scale", 0.2f);
    set_float (w, a, "residual_scale", 0.4f);
    set_float (w, a, "logit_scale", 3.0f);
  }
}

char *
lychee_tiny_model_write (const LycheeTinyModel *t, const char *dir, const char *name)
{
  guint n_vocab = G_N_ELEMENTS (specials) + 256 + G_N_ELEMENTS (merges);
  guint n_rot = t->n_rot > 0 ? t->n_rot : t->head_dim;
  gsize n_weights =
      (gsize) t->n_layers * (t->n_embd * (t->n_heads * t->head_dim * 2 +
                                             t->n_kv_heads * t->head_dim * 2 + t->n_ff * 3 + 24) +
                                t->n_ff * 2) +
      (gsize) n_vocab * t->n_embd * 2 + 4096;
  struct ggml_init_params params = { .mem_size = n_weights * sizeof (float) + (1 << 20) };
  Writer w = { gguf_init_empty (), ggml_init (params), g_rand_new_with_seed (t->seed) };
  char *path = g_build_filename (dir, name, NULL);

  add_keys (&w, t);
  if (!t->no_template)
    gguf_set_val_str (w.gguf, "tokenizer.chat_template", chatml);
  /* So that two seeds give two model ids. */
  gguf_set_val_u32 (w.gguf, "general.seed", t->seed);
  add_vocabulary (w.gguf);

  add_tensor (&w, "token_embd.weight", t->type, t->n_embd, n_vocab, 0, 1);
  for (guint i = 0; i < t->n_layers; i++)
    add_layer (&w, t, i);
  add_tensor (&w, "output_norm.weight", GGML_TYPE_F32, t->n_embd, 1, 1, 0.1);
  if (!t->tied)
    add_tensor (&w, "output.weight", t->type, t->n_embd, n_vocab, 0, 1 / sqrt (t->n_embd));
  if (t->rope_factors)
    add_tensor (&w, "rope_freqs.weight", GGML_TYPE_F32, n_rot / 2, 1, 2, 0.2);
  if (g_strcmp0 (t->scaling, "longrope") == 0) {
    add_tensor (&w, "rope_factors_short.weight", GGML_TYPE_F32, n_rot / 2, 1, 1.2, 0.05);
    add_tensor (&w, "rope_factors_long.weight", GGML_TYPE_F32, n_rot / 2, 1, 4, 0.5);
  }
  if (!gguf_write_to_file (w.gguf, path, false))
    g_error ("cannot write %s", path);

  g_rand_free (w.rand);
  gguf_free (w.gguf);
  ggml_free (w.tensors);
  return path;
}

char *
lychee_tiny_model_split (const char *path, guint n_parts)
{
  struct ggml_context *tensors = NULL;
  struct gguf_init_params params = { .no_alloc = false, .ctx = &tensors };
  struct gguf_context *gguf = gguf_init_from_file (path, params);
  gint64 n = gguf_get_n_tensors (gguf);
  g_autofree char *stem = g_strndup (path, strlen (path) - strlen (".gguf"));

  for (guint i = 0; i < n_parts; i++) {
    g_autofree char *name = g_strdup_printf ("%s-%05u-of-%05u.gguf", stem, i + 1, n_parts);
    struct gguf_context *part = gguf_init_empty ();

    if (i == 0)
      gguf_set_kv (part, gguf);
    gguf_set_val_u16 (part, "split.no", i);
    gguf_set_val_u16 (part, "split.count", n_parts);
    gguf_set_val_i32 (part, "split.tensors.count", n);
    for (gint64 t = n * i / n_parts; t < n * (i + 1) / n_parts; t++)
      gguf_add_tensor (part, ggml_get_tensor (tensors, gguf_get_tensor_name (gguf, t)));
    if (!gguf_write_to_file (part, name, false))
      g_error ("cannot write %s", name);
    gguf_free (part);
  }
  gguf_free (gguf);
  ggml_free (tensors);
  return g_strdup_printf ("%s-00001-of-%05u.gguf", stem, n_parts);
}

char *
lychee_test_write_tiny_model (const char *dir, guint seed, GError **error)
{
  LycheeTinyModel tiny = LYCHEE_TINY_MODEL_INIT;
  g_autofree char *name = g_strdup_printf ("tiny-%u.gguf", seed);

  tiny.seed = seed;
  return lychee_tiny_model_write (&tiny, dir, name);
}

void
lychee_test_remove_dir (const char *dir)
{
  GDir *open = g_dir_open (dir, 0, NULL);
  const char *name;

  while (open && (name = g_dir_read_name (open))) {
    g_autofree char *path = g_build_filename (dir, name, NULL);

    if (g_file_test (path, G_FILE_TEST_IS_DIR))
      lychee_test_remove_dir (path);
    else
      g_remove (path);
  }
  if (open)
    g_dir_close (open);
  g_rmdir (dir);
}
