/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Writes the tests' tiny model to a file, for tests that are not C programs, and for comparison.
 * Usage: write-tiny-model FILE [ARCHITECTURE] */

#include "tiny-model.h"

int
main (int argc, char **argv)
{
  LycheeTinyModel tiny = LYCHEE_TINY_MODEL_INIT;
  g_autofree char *dir = NULL;
  g_autofree char *name = NULL;
  g_autofree char *path = NULL;

  if (argc != 2 && argc != 3) {
    g_printerr ("Usage: write-tiny-model FILE [ARCHITECTURE]\n");
    return 2;
  }
  if (argc == 3)
    tiny.architecture = argv[2];
  if (g_strcmp0 (tiny.architecture, "gemma3") == 0) {
    tiny.n_layers = 7; /* of which the sixth sees everything */
    tiny.rope_freq_base = 1000000;
    tiny.window = 24;
  }
  if (g_strcmp0 (tiny.architecture, "gemma2") == 0) {
    tiny.tied = TRUE; /* as all of them are, and llama.cpp takes no other */
    tiny.window = 24;
  }
  dir = g_path_get_dirname (argv[1]);
  name = g_path_get_basename (argv[1]);
  path = lychee_tiny_model_write (&tiny, dir, name);
  return 0;
}
