/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* What llama.cpp says to the same ids: reads the logits that `lychee-bench logits --raw` wrote,
 * lets libllama compute its own, and prints how far they are apart. Built and run by
 * tests/compare-llama, which finds a llama.cpp; no part of the build. */

#include "log-sum-exp.h"

#include <llama.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void
quiet (enum ggml_log_level level, const char *text, void *data)
{
  (void) data;
  if (level >= GGML_LOG_LEVEL_ERROR)
    fputs (text, stderr);
}

static void
die (const char *what)
{
  fprintf (stderr, "compare-llama: %s\n", what);
  exit (1);
}

static int
best (const float *x, int n)
{
  int at = 0;

  for (int i = 1; i < n; i++)
    if (x[i] > x[at])
      at = i;
  return at;
}

/* MODEL LOGITS N_CONTEXT YARN_FACTOR ID... ; YARN_FACTOR 0: as the file says. */
int
main (int argc, char **argv)
{
  struct llama_model_params model_params = llama_model_default_params ();
  struct llama_context_params params = llama_context_default_params ();
  struct llama_model *model;
  struct llama_context *context;
  int n = argc - 5, n_vocab, n_same = 0;
  double largest = 0, squares = 0, size = 0, divergence = 0, worst = 0, factor;
  llama_token *ids;
  float *ours;
  FILE *file;

  if (n < 1)
    die ("usage: compare-llama MODEL LOGITS N_CONTEXT YARN_FACTOR ID...");
  ids = malloc (n * sizeof *ids);
  for (int i = 0; i < n; i++)
    ids[i] = atoi (argv[i + 5]);
  llama_log_set (quiet, NULL);
  llama_backend_init ();
  model_params.n_gpu_layers = 0;
  model_params.use_extra_bufts = false; /* weights as they are in the file */
  model = llama_model_load_from_file (argv[1], model_params);
  if (!model)
    die ("llama.cpp cannot load the model");
  params.n_ctx = atoi (argv[3]);
  params.n_batch = params.n_ubatch = 512;
  params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
  params.swa_full = true;
  params.n_threads = params.n_threads_batch = 2;
  factor = atof (argv[4]);
  if (factor > 0) {
    params.rope_scaling_type = LLAMA_ROPE_SCALING_TYPE_YARN;
    params.rope_freq_scale = 1 / factor;
  }
  context = llama_init_from_model (model, params);
  if (!context)
    die ("llama.cpp cannot make a context");
  n_vocab = llama_vocab_n_tokens (llama_model_get_vocab (model));
  ours = malloc ((size_t) n_vocab * sizeof *ours);
  file = fopen (argv[2], "rb");
  if (!file || !ours)
    die ("cannot read the logits");

  for (int first = 0; first < n; first += 256) {
    int now = n - first < 256 ? n - first : 256;
    struct llama_batch batch = llama_batch_init (now, 0, 1);

    for (int i = 0; i < now; i++) {
      batch.token[i] = ids[first + i];
      batch.pos[i] = first + i;
      batch.n_seq_id[i] = 1;
      batch.seq_id[i][0] = 0;
      batch.logits[i] = 1;
    }
    batch.n_tokens = now;
    if (llama_decode (context, batch) != 0)
      die ("llama.cpp cannot compute");
    for (int i = 0; i < now; i++) {
      const float *theirs = llama_get_logits_ith (context, i);
      double their_sum, our_sum, d = 0;

      if (fread (ours, sizeof *ours, n_vocab, file) != (size_t) n_vocab)
        die ("there are fewer logits than ids");
      their_sum = log_sum_exp (theirs, n_vocab);
      our_sum = log_sum_exp (ours, n_vocab);
      for (int v = 0; v < n_vocab; v++) {
        double difference = fabs (ours[v] - theirs[v]);
        double p = theirs[v] - their_sum, q = ours[v] - our_sum;

        largest = fmax (largest, difference);
        squares += difference * difference;
        size += theirs[v] * theirs[v];
        d += exp (p) * (p - q);
      }
      divergence += d / n;
      worst = fmax (worst, d);
      n_same += best (ours, n_vocab) == best (theirs, n_vocab);
    }
    llama_batch_free (batch);
  }
  printf ("positions %d, same best id %d, largest difference %.4f, rms difference / rms %.5f, "
          "KL divergence mean %.2e, worst %.2e\n",
      n, n_same, largest, sqrt (squares / size), divergence, worst);
  fclose (file);
  llama_free (context);
  llama_model_free (model);
  return 0;
}
