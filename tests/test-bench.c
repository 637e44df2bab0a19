/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* lychee-bench as a program, on a tiny model: each command prints the figures that it promises. */

#include "tiny-model.h"

#include <gio/gio.h>
#include <math.h>
#include <string.h>

static char *dir, *model;

/* Runs a command with @input on its standard input; its lines. */
static char **
run (const char *input, int wanted, char **errors, const char *const *arguments)
{
  g_autoptr (GPtrArray) argv = g_ptr_array_new ();
  g_autoptr (GSubprocess) process = NULL;
  g_autoptr (GError) error = NULL;
  g_autofree char *output = NULL, *err = NULL;

  g_ptr_array_add (argv, (char *) g_getenv ("LYCHEE_BENCH"));
  for (guint i = 0; arguments[i]; i++)
    g_ptr_array_add (argv, (char *) arguments[i]);
  g_ptr_array_add (argv, NULL);
  process = g_subprocess_newv ((const char *const *) argv->pdata,
      G_SUBPROCESS_FLAGS_STDIN_PIPE | G_SUBPROCESS_FLAGS_STDOUT_PIPE |
          G_SUBPROCESS_FLAGS_STDERR_PIPE,
      &error);
  g_assert_no_error (error);
  g_subprocess_communicate_utf8 (process, input, NULL, &output, &err, &error);
  g_assert_no_error (error);
  if (wanted == 0)
    g_assert_cmpstr (err, ==, "");
  g_assert_true (g_subprocess_get_if_exited (process));
  g_assert_cmpint (g_subprocess_get_exit_status (process), ==, wanted);
  if (errors)
    *errors = g_steal_pointer (&err);
  return g_strsplit (g_strchomp (output), "\n", -1);
}

/* The number that a JSON line has for @key. */
static double
number (const char *line, const char *key)
{
  g_autofree char *quoted = g_strdup_printf ("\"%s\": ", key);
  const char *at = strstr (line, quoted);

  if (!at)
    g_error ("no %s in %s", key, line);
  return g_ascii_strtod (at + strlen (quoted), NULL);
}

static void
test_tokens (void)
{
  const char *plain[] = { "tokens", "--model", model, NULL };
  const char *special[] = { "tokens", "--model", model, "--special", NULL };
  g_auto (GStrv) a = run ("<|im_end|> the", 0, NULL, plain);
  g_auto (GStrv) b = run ("<|im_end|> the", 0, NULL, special);

  g_assert_cmpuint (g_strv_length (b), ==, 1);
  g_assert_true (g_str_has_prefix (b[0], "[2, "));
  g_assert_cmpstr (a[0], !=, b[0]);
  g_assert_true (g_str_has_suffix (a[0], "]"));
}

static void
test_chunks (void)
{
  g_autofree char *text = g_build_filename (dir, "talk.txt", NULL);
  g_autofree char *topics = g_build_filename (dir, "talk.topics", NULL);
  const char *list[] = { "chunks", "--model", model, "--json", text, NULL };
  const char *compare[] = { "chunks", "--model", model, "--json", "--topics", topics, text, NULL };
  g_auto (GStrv) chunks = NULL, rows = NULL;

  g_assert_true (g_file_set_contents (text,
      "The hat is there. It is a very old hat, and so is the coat.\n\nNow the other thing: we go "
      "to "
      "the sea and then home again.\n",
      -1, NULL));
  g_assert_true (g_file_set_contents (topics, "The hat\nNow the other\n", -1, NULL));
  chunks = run (NULL, 0, NULL, list);
  g_assert_cmpuint (g_strv_length (chunks), >, 2);
  for (guint i = 0; chunks[i]; i++)
    g_assert_cmpfloat (number (chunks[i], "chunk"), ==, i);
  rows = run (NULL, 0, NULL, compare);
  g_assert_cmpuint (g_strv_length (rows), ==, 3);
  /* The empty line is the change, which structure alone finds exactly. */
  g_assert_true (g_str_has_prefix (rows[0], "{\"detector\": \"structure\""));
  g_assert_cmpfloat (number (rows[0], "found"), ==, 1);
  g_assert_cmpfloat (number (rows[0], "pk"), ==, 0);
  g_assert_cmpfloat (number (rows[0], "window_diff"), ==, 0);
}

static void
test_logits (void)
{
  const char *arguments[] = { "logits", "--model", model, "--ids", "5,6,7", "--greedy", "4", NULL };
  g_auto (GStrv) lines = run (NULL, 0, NULL, arguments);

  g_assert_cmpuint (g_strv_length (lines), ==, 5);
  for (guint i = 0; i < 3; i++) {
    g_assert_cmpfloat (number (lines[i], "position"), ==, i);
    g_assert_nonnull (strstr (lines[i], "\"top_ids\": ["));
    g_assert_nonnull (strstr (lines[i], "\"top_logits\": ["));
    number (lines[i], "logsumexp");
  }
  g_assert_cmpfloat (number (lines[3], "mean_nll"), >, 0);
  g_assert_true (g_str_has_prefix (lines[4], "{\"greedy\": ["));
}

static void
test_decode (void)
{
  const char *arguments[] = { "decode", "--model", model, "--depths", "0,1500", "--attention",
    "both", "--bound", "--budget", "256", "--tokens", "5", "--json", NULL };
  g_auto (GStrv) lines = run (NULL, 0, NULL, arguments);

  g_assert_cmpuint (g_strv_length (lines), ==, 4);
  for (guint i = 0; i < 4; i++) {
    g_assert_cmpfloat (number (lines[i], "depth"), ==, i < 2 ? 0 : 1500);
    g_assert_cmpfloat (number (lines[i], "ms_per_token"), >, 0);
    g_assert_cmpfloat (number (lines[i], "tokens_per_second"), >, 0);
    g_assert_cmpfloat (number (lines[i], "attention_over_bandwidth"), >, 0);
  }
  /* Sparse falls back where there is less than the budget, and reads less where there is more. */
  g_assert_nonnull (strstr (lines[1], "\"attention\": \"dense\""));
  g_assert_cmpfloat (number (lines[1], "dense_fallbacks"), >, 0);
  g_assert_nonnull (strstr (lines[3], "\"attention\": \"sparse\""));
  g_assert_cmpfloat (number (lines[3], "dense_fallbacks"), ==, 0);
  g_assert_cmpfloat (number (lines[3], "bytes_read"), <, number (lines[2], "bytes_read") / 2);
  g_assert_cmpfloat (number (lines[2], "loads_ms"), ==, 0);
  g_assert_cmpfloat (number (lines[3], "loads_ms"), >, 0);
}

static void
test_ingest (void)
{
  const char *modes[] = { "dense", "indexed", "sparse" };

  for (guint i = 0; i < G_N_ELEMENTS (modes); i++) {
    const char *arguments[] = { "ingest", "--model", model, "--depths", "1200", "--attention",
      modes[i], "--tokens", "60", "--json", NULL };
    g_auto (GStrv) lines = run (NULL, 0, NULL, arguments);

    g_assert_cmpuint (g_strv_length (lines), ==, 1);
    g_assert_cmpfloat (number (lines[0], "tokens_per_second"), >, 0);
    if (i == 0)
      g_assert_cmpfloat (number (lines[0], "upkeep_share"), ==, 0);
    else
      g_assert_cmpfloat (number (lines[0], "upkeep_share"), >, 0);
  }
}

static void
test_index (void)
{
  const char *options[] = { "--json", "--chunks", "--heads=2" };

  for (guint i = 0; i < G_N_ELEMENTS (options); i++) {
    const char *arguments[] = { "index", "--model", model, "--items", "4096", "--json", options[i],
      NULL };
    g_auto (GStrv) lines = run (NULL, 0, NULL, arguments);

    g_assert_cmpuint (g_strv_length (lines), >=, 2);
    for (guint l = 0; lines[l]; l++) {
      g_assert_cmpfloat (number (lines[l], "head_dim"), ==, i == 2 ? 32 : 16);
      g_assert_cmpfloat (number (lines[l], "percent_of_cache"), >, 0);
      g_assert_cmpfloat (number (lines[l], "us_per_token"), >, 0);
      g_assert_cmpfloat (number (lines[l], "search_us"), >, 0);
    }
  }
}

static void
test_perplexity (void)
{
  g_autofree char *path = g_build_filename (dir, "text.txt", NULL);
  g_autoptr (GString) text = g_string_new (NULL);
  double nll[2];

  for (guint i = 0; i < 1500; i++)
    g_string_append_printf (text, "%u and the %u. ", i * 7919 % 100, i * 31 % 10);
  g_assert_true (g_file_set_contents (path, text->str, -1, NULL));
  for (guint i = 0; i < 2; i++) {
    const char *arguments[] = { "perplexity", "--model", model, "--text", path, "--tokens", "1200",
      "--budget", "512", "--prefill", i == 0 ? "dense" : "sparse", "--json", NULL };
    g_auto (GStrv) lines = run (NULL, 0, NULL, arguments);

    nll[i] = number (lines[g_strv_length (lines) - 1], "mean_nll");
  }
  g_assert_cmpfloat (nll[0], >, 1);
  g_assert_cmpfloat_with_epsilon (nll[0], nll[1], 0.05 * nll[0]);
  g_assert_cmpfloat (nll[0], !=, nll[1]);
}

/* A budget that all fits into makes every way of reading dense; a small one does not. */
static void
test_needle (void)
{
  double dense[3] = { 0 };

  for (guint small = 0; small < 2; small++) {
    const char *arguments[] = { "needle", "--model", model, "--lengths", "600", "--depths",
      "10,50,90", "--policies", "dense,window,quest,token", "--budget", small ? "100" : "1000",
      "--json", NULL };
    g_auto (GStrv) lines = run (NULL, 0, NULL, arguments);
    guint n_different = 0;

    g_assert_cmpuint (g_strv_length (lines), ==, 4 * 3);
    for (guint i = 0; i < 12; i++) {
      double margin = number (lines[i], "margin");

      /* Four words begin with tokens of their own in this vocabulary. */
      g_assert_cmpfloat (number (lines[i], "words"), ==, 4);
      g_assert_cmpfloat (number (lines[i], "rank"), >=, 1);
      g_assert_cmpfloat (number (lines[i], "rank"), <=, 4);
      g_assert_cmpint (number (lines[i], "rank") == 1, ==, margin > 0);
      if (i < 3 && small == 0)
        dense[i] = margin;
      else if (small == 0 || i < 3)
        g_assert_cmpfloat_with_epsilon (margin, dense[i % 3], 1e-3);
      else
        n_different += fabs (margin - dense[i % 3]) > 1e-3;
    }
    g_assert_cmpuint (n_different, >=, small ? 3 : 0);
  }
}

/* Several texts give a line for each fact in each, the same every time; read with packed positions,
 * what fits into the model is as ever. */
static void
test_needle_texts (void)
{
  const char *texts[] = { "needle", "--model", model, "--lengths", "600", "--depths", "20,70",
    "--policies", "dense", "--texts", "2", "--json", NULL };
  const char *packed[] = { "needle", "--model", model, "--lengths", "600", "--depths", "20,70",
    "--packed", "--budget", "1000", "--texts", "2", "--json", NULL };
  g_auto (GStrv) lines = run (NULL, 0, NULL, texts), others = run (NULL, 0, NULL, packed);

  g_assert_cmpuint (g_strv_length (lines), ==, 4);
  g_assert_cmpuint (g_strv_length (others), ==, 4);
  g_assert_cmpfloat (number (lines[0], "margin"), !=, number (lines[2], "margin"));
  for (guint i = 0; i < 4; i++)
    g_assert_cmpfloat_with_epsilon (
        number (others[i], "margin"), number (lines[i], "margin"), 0.02);
}

static void
test_errors (void)
{
  const struct {
    const char *arguments[4];
    const char *named;
  } cases[] = {
    { { "dance" }, "dance" },
    { { "logits", "--model", model }, "--ids" },
    { { "decode", "--model", "/nowhere.gguf" }, "/nowhere.gguf" },
    { { "decode", "--depths", "1,x" }, "--depths" },
    { { "decode", "--attention=some" }, "--attention" },
    { { "fidelity", "--prefill=some" }, "--prefill" },
    { { "perplexity", "--model", model }, "--text" },
    { { "index", "--lawyer=9" }, "--lawyer" },
    { { "index", "--model", model, "--heads=3" }, "--heads" },
    { { "needle", "--lengths=20" }, "--lengths" },
    { { "needle", "--depths=120" }, "--depths" },
  };

  for (guint i = 0; i < G_N_ELEMENTS (cases); i++) {
    const char *arguments[] = { cases[i].arguments[0], cases[i].arguments[1], cases[i].arguments[2],
      cases[i].arguments[3], NULL };
    g_autofree char *errors = NULL;
    g_auto (GStrv) lines = run (NULL, 1, &errors, arguments);

    if (!strstr (errors, cases[i].named))
      g_error ("case %u: no “%s” in “%s”", i, cases[i].named, errors);
  }
}

int
main (int argc, char **argv)
{
  LycheeTinyModel tiny = LYCHEE_TINY_MODEL_INIT;
  int result;

  g_test_init (&argc, &argv, NULL);
  dir = g_dir_make_tmp ("lychee-bench-XXXXXX", NULL);
  model = lychee_tiny_model_write (&tiny, dir, "tiny.gguf");
  g_test_add_func ("/bench/chunks", test_chunks);
  g_test_add_func ("/bench/tokens", test_tokens);
  g_test_add_func ("/bench/logits", test_logits);
  g_test_add_func ("/bench/decode", test_decode);
  g_test_add_func ("/bench/ingest", test_ingest);
  g_test_add_func ("/bench/index", test_index);
  g_test_add_func ("/bench/perplexity", test_perplexity);
  g_test_add_func ("/bench/needle", test_needle);
  g_test_add_func ("/bench/needle/texts", test_needle_texts);
  g_test_add_func ("/bench/errors", test_errors);
  result = g_test_run ();
  lychee_test_remove_dir (dir);
  g_free (model);
  g_free (dir);
  return result;
}
