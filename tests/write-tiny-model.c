/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Writes the tests' tiny model to a file, for tests that are not C programs.
 * Usage: write-tiny-model FILE */

#include "tiny-model.h"

int
main (int argc, char **argv)
{
  LycheeTinyModel tiny = LYCHEE_TINY_MODEL_INIT;
  g_autofree char *dir = NULL;
  g_autofree char *name = NULL;
  g_autofree char *path = NULL;

  if (argc != 2) {
    g_printerr ("Usage: write-tiny-model FILE\n");
    return 2;
  }
  dir = g_path_get_dirname (argv[1]);
  name = g_path_get_basename (argv[1]);
  path = lychee_tiny_model_write (&tiny, dir, name);
  return 0;
}
