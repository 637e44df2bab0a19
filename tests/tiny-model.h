/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <ggml.h>
#include <glib.h>

G_BEGIN_DECLS

/* A small model with random weights, as a real GGUF file: every byte is a token, some merges on
 * top, chatml. For tests of everything that does not need sense from a model. */
typedef struct {
  guint seed;
  const char *architecture; /* NULL: llama */
  guint n_layers;
  guint n_embd;
  guint n_heads;
  guint n_kv_heads;
  guint head_dim; /* need not be n_embd / n_heads */
  guint n_ff;
  guint n_context;
  enum ggml_type type; /* of the matrices */
  gboolean tied;       /* no output matrix of its own */
  gboolean rope_factors;
  gboolean biases;
  float rope_freq_base; /* 0: the key is left out */
  gboolean no_template; /* without a chat template */
  guint n_rot;          /* 0: head_dim */
  guint window;         /* of the layers that have one */
  const char *scaling;  /* rope.scaling.type: NULL, linear, yarn, longrope */
  float scaling_factor;
  guint n_original; /* positions before scaling; longrope's factors differ at it */
  float attention_cap;
  float logit_cap;
  gboolean fused; /* queries, keys and values in one matrix; phi3's are */
} LycheeTinyModel;

#define LYCHEE_TINY_MODEL_INIT                                                                     \
  {                                                                                                \
    .seed = 1, .n_layers = 2, .n_embd = 64, .n_heads = 4, .n_kv_heads = 2, .head_dim = 16,         \
    .n_ff = 96, .n_context = 2048, .type = GGML_TYPE_F32, .tied = FALSE, .rope_freq_base = 10000   \
  }

/* Writes the file @dir/@name; returns its path (transfer full). Aborts the test on failure. */
char *lychee_tiny_model_write (const LycheeTinyModel *tiny, const char *dir, const char *name);

/* Splits a file as gguf-split does; returns the first part's path (transfer full). */
char *lychee_tiny_model_split (const char *path, guint n_parts);

/* The default one in @dir. */
char *lychee_test_write_tiny_model (const char *dir, guint seed, GError **error);

/* Removes a directory and what is in it. */
void lychee_test_remove_dir (const char *dir);

G_END_DECLS
