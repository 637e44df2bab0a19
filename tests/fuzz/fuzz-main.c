/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Runs a fuzz target without libFuzzer: over its corpus, then over inputs that are made from the
 * corpus by chance, always the same ones. Prints TAP. Usage: PROGRAM CORPUS [N]. An input that
 * kills the program, or that takes too long, is left in the folder where it runs. */

#include "fuzz.h"

#include <glib.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Seconds that one input may take, under a sanitizer on a busy machine. */
#define MAX_SECONDS 60
#define MAX_SIZE 16384
/* Seconds after which no more inputs are made, however few they were. */
#define MAX_TOTAL 8

static GByteArray *current;

static void
leave_input (void)
{
  g_autofree char *name = g_strdup_printf ("crash-%s-%d", g_get_prgname (), (int) getpid ());

  if (current != NULL && g_file_set_contents (name, (char *) current->data, current->len, NULL))
    g_printerr ("the input is in %s\n", name);
}

static void
on_signal (int number)
{
  leave_input ();
  signal (number, SIG_DFL);
  raise (number);
}

void __sanitizer_set_death_callback (void (*callback) (void)) __attribute__ ((weak));

static void
run (const GByteArray *input)
{
  g_byte_array_set_size (current, 0);
  g_byte_array_append (current, input->data, input->len);
  alarm (MAX_SECONDS);
  LLVMFuzzerTestOneInput (current->data, current->len);
  alarm (0);
}

static int
compare_names (gconstpointer a, gconstpointer b)
{
  return strcmp (*(char *const *) a, *(char *const *) b);
}

static GPtrArray *
read_corpus (const char *path)
{
  GPtrArray *corpus = g_ptr_array_new_with_free_func ((GDestroyNotify) g_byte_array_unref);
  g_autoptr (GError) error = NULL;
  g_autoptr (GDir) dir = g_dir_open (path, 0, &error);
  g_autoptr (GPtrArray) names = g_ptr_array_new_with_free_func (g_free);
  const char *name;

  g_assert_no_error (error);
  while ((name = g_dir_read_name (dir)) != NULL)
    g_ptr_array_add (names, g_build_filename (path, name, NULL));
  g_ptr_array_sort (names, compare_names);
  for (guint i = 0; i < names->len; i++) {
    char *contents;
    gsize length;

    g_assert_true (g_file_get_contents (names->pdata[i], &contents, &length, &error));
    g_ptr_array_add (corpus, g_byte_array_new_take ((guint8 *) contents, length));
  }
  g_assert_cmpuint (corpus->len, >, 0);
  return corpus;
}

static const guint8 odd_bytes[] = { 0, 1, 7, 8, 0x0A, ' ', '.', 0x7F, 0x80, 0xC3, 0xE2, 0xF0, 0xFE,
  0xFF };

static void
mutate (GByteArray *input, GPtrArray *corpus, GRand *rand)
{
  guint n = g_rand_int_range (rand, 1, 8);

  for (guint i = 0; i < n; i++) {
    guint at = input->len > 0 ? g_rand_int_range (rand, 0, input->len) : 0;
    guint length = input->len > at ? g_rand_int_range (rand, 1, MIN (input->len - at, 32) + 1) : 0;
    guint8 byte = g_rand_int_range (rand, 0, 256);
    g_autofree guint8 *piece = length > 0 ? g_memdup2 (input->data + at, length) : NULL;

    switch (g_rand_int_range (rand, 0, 6)) {
    case 0:
      if (length > 0)
        input->data[at] ^= 1 << (byte & 7);
      break;
    case 1:
      if (length > 0)
        input->data[at] = odd_bytes[byte % G_N_ELEMENTS (odd_bytes)];
      break;
    case 2:
      if (length > 0)
        g_byte_array_remove_range (input, at, length);
      break;
    case 3:
      g_byte_array_append (input, &byte, 1);
      break;
    case 4:
      if (length > 0)
        g_byte_array_append (input, piece, length);
      break;
    default: {
      /* The end of this, the beginning of another. */
      const GByteArray *other = corpus->pdata[g_rand_int_range (rand, 0, corpus->len)];
      guint from = other->len > 0 ? g_rand_int_range (rand, 0, other->len) : 0;

      g_byte_array_set_size (input, at);
      g_byte_array_append (input, other->data + from, other->len - from);
    }
    }
  }
  if (input->len > MAX_SIZE)
    g_byte_array_set_size (input, MAX_SIZE);
}

int
main (int argc, char **argv)
{
  g_autoptr (GPtrArray) corpus = NULL;
  g_autoptr (GRand) rand = g_rand_new_with_seed (1);
  g_autofree char *prgname = g_path_get_basename (argv[0]);
  guint n = argc > 2 ? atoi (argv[2]) : 2000, done = 0;
  gint64 until;

  g_set_prgname (prgname);
  current = g_byte_array_new ();
  signal (SIGSEGV, on_signal);
  signal (SIGABRT, on_signal);
  signal (SIGFPE, on_signal);
  signal (SIGALRM, on_signal);
  if (__sanitizer_set_death_callback != NULL)
    __sanitizer_set_death_callback (leave_input);
  LLVMFuzzerInitialize (&argc, &argv);
  corpus = read_corpus (argv[1]);

  puts ("1..2");
  for (guint i = 0; i < corpus->len; i++)
    run (corpus->pdata[i]);
  printf ("ok 1 - %u inputs of the corpus\n", corpus->len);
  fflush (stdout);

  until = g_get_monotonic_time () + MAX_TOTAL * G_USEC_PER_SEC;
  while (done < n && g_get_monotonic_time () < until) {
    const GByteArray *from = corpus->pdata[g_rand_int_range (rand, 0, corpus->len)];
    g_autoptr (GByteArray) input = g_byte_array_new ();

    g_byte_array_append (input, from->data, from->len);
    mutate (input, corpus, rand);
    run (input);
    done++;
  }
  printf ("ok 2 - %u inputs made from it\n", done);
  g_byte_array_unref (current);
  current = NULL;
  return 0;
}
