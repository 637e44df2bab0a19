/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <glib.h>

G_BEGIN_DECLS

typedef enum {
  LYCHEE_ACTIVATION_SILU,
  LYCHEE_ACTIVATION_GELU, /* by tanh */
} LycheeActivation;

/* What sets an architecture apart from llama, which is all zero: RMS norms before attention and
 * feed-forward, SwiGLU, neighbouring pairs rotated. Biases and a fused attn_qkv are used wherever a
 * file has them. A new architecture is an entry of the table, and a test. */
typedef struct {
  const char *name;     /* general.architecture */
  const char *known_as; /* (nullable): models of it, for messages */
  LycheeActivation activation;
  gboolean rope_halves;    /* element i is rotated with i + n_rot / 2, not with its neighbour */
  gboolean qk_norm;        /* queries and keys are normed, each head, before rotation */
  gboolean post_norm;      /* attention's and feed-forward's results are normed, too */
  gboolean fused_gate;     /* ffn_up has the gate's rows before its own */
  gboolean embedding_sqrt; /* embeddings are multiplied by sqrt (n_embd) */
  gboolean multipliers;    /* granite's: embedding, attention, residual and logit scales */
  /* Sliding windows: layer i sees everything where i + 1 is a multiple of the period (0: all do);
   * the others see @window tokens unless the file says otherwise. */
  guint window_period;
  guint window;
  float local_rope_base; /* of layers with a window, unscaled; 0: as the others */
  /* cap tanh (z / cap) of the logits of attention and of the vocabulary, where the file does not
   * say otherwise; 0: none */
  float attention_cap, logit_cap;
  /* Models of so many layers scale q.k by 1 / sqrt (n_embd / n_heads); 0: none does. */
  guint wide_layers;
} LycheeArchitecture;

const LycheeArchitecture *lychee_architecture_find (const char *name); /* (nullable) */
/* What there is, as a list for people (transfer full). */
char *lychee_architecture_list (void);

G_END_DECLS
