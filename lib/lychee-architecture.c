/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include "lychee-architecture.h"

#include <string.h>

/* Sources: the models' published configurations and papers (Qwen 2 and 3, Gemma 2's and
 * 3's reports, Phi-3's, Granite 3's), and the keys and tensor names by which llama.cpp writes them
 * into GGUF. Gemma's norms have their "1 +" in the file, and Gemma 27B is the one that is "wide".
 */
static const LycheeArchitecture architectures[] = {
  { .name = "llama", .known_as = "llama 1 to 3, mistral, SmolLM" },
  { .name = "qwen2", .known_as = "Qwen 2, 2.5", .rope_halves = TRUE },
  { .name = "qwen3", .known_as = "Qwen 3", .rope_halves = TRUE, .qk_norm = TRUE },
  { .name = "gemma2",
      .known_as = "Gemma 2",
      .activation = LYCHEE_ACTIVATION_GELU,
      .rope_halves = TRUE,
      .post_norm = TRUE,
      .embedding_sqrt = TRUE,
      .window_period = 2,
      .window = 4096,
      .attention_cap = 50,
      .logit_cap = 30,
      .wide_layers = 46 },
  { .name = "gemma3",
      .known_as = "Gemma 3",
      .activation = LYCHEE_ACTIVATION_GELU,
      .rope_halves = TRUE,
      .qk_norm = TRUE,
      .post_norm = TRUE,
      .embedding_sqrt = TRUE,
      .window_period = 6,
      .local_rope_base = 10000,
      .wide_layers = 62 },
  { .name = "phi3", .known_as = "Phi 3, 4", .rope_halves = TRUE, .fused_gate = TRUE },
  { .name = "granite", .known_as = "Granite 3, dense", .multipliers = TRUE },
};

const LycheeArchitecture *
lychee_architecture_find (const char *name)
{
  for (guint i = 0; i < G_N_ELEMENTS (architectures); i++)
    if (strcmp (architectures[i].name, name) == 0)
      return &architectures[i];
  return NULL;
}

char *
lychee_architecture_list (void)
{
  GString *list = g_string_new (NULL);

  for (guint i = 0; i < G_N_ELEMENTS (architectures); i++)
    g_string_append_printf (
        list, "%s%s (%s)", i > 0 ? ", " : "", architectures[i].name, architectures[i].known_as);
  return g_string_free (list, FALSE);
}
