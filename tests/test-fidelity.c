/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* lychee-bench fidelity as a program, on a tiny model with random weights: its rows are there, and
 * those whose figures are known are right. */

#include "tiny-model.h"

#include <gio/gio.h>
#include <math.h>
#include <string.h>

#define N_TOKENS 620 /* more keys than one unit of attention has */
#define N_QUERIES 6

typedef struct {
  char *dir, *model, *text;
} Fixture;

static const char *const policies[] = { "dense", "window", "lycheecluster", "quest", "clusterkv",
  "oracle", "token", "token-drop" };

static void
set_up (Fixture *fixture, gconstpointer user_data)
{
  LycheeTinyModel tiny = LYCHEE_TINY_MODEL_INIT;
  g_autoptr (GRand) rand = g_rand_new_with_seed (1);
  g_autoptr (GString) text = g_string_new (NULL);
  g_autoptr (GError) error = NULL;

  fixture->dir = g_dir_make_tmp ("lychee-test-XXXXXX", &error);
  g_assert_no_error (error);
  fixture->model = lychee_tiny_model_write (&tiny, fixture->dir, "tiny.gguf");
  fixture->text = g_build_filename (fixture->dir, "text.txt", NULL);
  while (text->len < 6 * N_TOKENS) {
    for (gint n = g_rand_int_range (rand, 2, 9); n > 0; n--)
      g_string_append_c (text, (char) g_rand_int_range (rand, 'a', 'z' + 1));
    g_string_append (text, g_rand_int_range (rand, 0, 6) ? " " : ". ");
  }
  g_file_set_contents (fixture->text, text->str, text->len, &error);
  g_assert_no_error (error);
}

static void
tear_down (Fixture *fixture, gconstpointer user_data)
{
  lychee_test_remove_dir (fixture->dir);
  g_free (fixture->dir);
  g_free (fixture->model);
  g_free (fixture->text);
}

/* Runs it with @options, words between blanks; returns its lines. */
static char **
run (Fixture *fixture, const char *options, int *status, char **errors)
{
  g_autofree char *line = g_strdup_printf (
      "\"%s\" fidelity --model \"%s\" --text \"%s\" --tokens %u --queries %u --json %s",
      g_getenv ("LYCHEE_BENCH"), fixture->model, fixture->text, N_TOKENS, N_QUERIES, options);
  g_autoptr (GError) error = NULL;
  g_autofree char *output = NULL;

  g_spawn_command_line_sync (line, &output, errors, status, &error);
  g_assert_no_error (error);
  g_strchomp (output);
  return g_strsplit (output, "\n", -1);
}

static char **
run_well (Fixture *fixture, const char *options)
{
  g_autofree char *errors = NULL;
  int status;
  char **lines = run (fixture, options, &status, &errors);

  g_assert_cmpstr (errors, ==, "");
  g_assert_cmpint (status, ==, 0);
  return lines;
}

/* The number that a line says of @key; NaN: none. */
static double
get (const char *line, const char *key)
{
  g_autofree char *quoted = g_strdup_printf ("\"%s\": ", key);
  const char *at = strstr (line, quoted);

  return at ? g_ascii_strtod (at + strlen (quoted), NULL) : (double) NAN;
}

static const char *
find (char **lines, const char *policy, guint budget)
{
  g_autofree char *start = g_strdup_printf ("\"policy\": \"%s\", \"budget\": %u,", policy, budget);

  for (; *lines; lines++)
    if (strstr (*lines, start))
      return *lines;
  g_error ("no row of %s at %u", policy, budget);
}

static void
test_rows (Fixture *fixture, gconstpointer user_data)
{
  static const char *const keys[] = { "mass", "error", "kl", "top1", "perplexity",
    "dense_perplexity", "nodes_scored", "metadata", "tokens", "queries" };
  g_auto (GStrv) lines = run_well (fixture, "--budgets 100,200");

  g_assert_cmpuint (g_strv_length (lines), ==, 2 * (G_N_ELEMENTS (policies) - 1) + 1);
  for (guint p = 0; p < G_N_ELEMENTS (policies); p++)
    for (guint budget = 100; budget <= 200; budget += 100) {
      const char *row = find (lines, policies[p], p == 0 ? N_TOKENS + N_QUERIES : budget);

      for (guint k = 0; k < G_N_ELEMENTS (keys); k++)
        g_assert_true (isfinite (get (row, keys[k])));
      g_assert_cmpfloat (get (row, "mass"), >, 0);
      g_assert_cmpfloat (get (row, "mass"), <=, p == 0 ? 1 : 1 - 1e-6);
      g_assert_cmpfloat (get (row, "tokens"), ==, N_TOKENS);
      g_assert_cmpfloat (get (row, "queries"), ==, N_QUERIES);
      if (p > 0) {
        g_assert_cmpfloat (get (row, "error"), >, 1e-5);
        g_assert_cmpfloat (get (row, "kl"), >, 0);
        g_assert_cmpfloat (get (row, "mass"), <=, get (find (lines, "oracle", budget), "mass"));
      }
    }
}

/* Dense beside dense: no difference. */
static void
test_dense (Fixture *fixture, gconstpointer user_data)
{
  g_auto (GStrv) lines = run_well (fixture, "--policies dense");
  const char *row = find (lines, "dense", N_TOKENS + N_QUERIES);

  g_assert_cmpuint (g_strv_length (lines), ==, 1);
  g_assert_cmpfloat (get (row, "mass"), ==, 1);
  g_assert_cmpfloat (get (row, "error"), <, 1e-5);
  g_assert_cmpfloat (get (row, "kl"), <, 1e-6);
  g_assert_cmpfloat (get (row, "top1"), ==, 1);
  g_assert_cmpfloat_with_epsilon (get (row, "perplexity"), get (row, "dense_perplexity"), 1e-3);
}

/* A cache of 8-bit blocks is nearly a cache of half floats. */
static void
test_q8_0 (Fixture *fixture, gconstpointer user_data)
{
  g_autofree char *usual = fixture->model, *errors = NULL;
  LycheeTinyModel tiny = LYCHEE_TINY_MODEL_INIT;
  g_auto (GStrv) none = NULL, lines = NULL;
  const char *row;
  int status;

  none = run (fixture, "--policies q8_0", &status, &errors);
  g_assert_cmpint (status, !=, 0);
  g_assert_nonnull (strstr (errors, "multiple of 32 dimensions"));
  tiny.head_dim = 32;
  fixture->model = lychee_tiny_model_write (&tiny, fixture->dir, "q8_0.gguf");
  lines = run_well (fixture, "--policies q8_0");
  row = find (lines, "q8_0", N_TOKENS + N_QUERIES);
  g_assert_cmpfloat (get (row, "mass"), >, 1 - 1e-6);
  g_assert_cmpfloat (get (row, "error"), >, 1e-4);
  g_assert_cmpfloat (get (row, "error"), <, 0.03);
  g_assert_cmpfloat (get (row, "kl"), >, 0);
  g_assert_cmpfloat (get (row, "kl"), <, 0.01);
}

/* Where all keys fit into the budget, every policy is dense. */
static void
test_fits (Fixture *fixture, gconstpointer user_data)
{
  g_auto (GStrv) lines = run_well (fixture, "--budgets 1000");

  for (guint p = 1; p < G_N_ELEMENTS (policies); p++) {
    const char *row = find (lines, policies[p], 1000);

    g_assert_cmpfloat (get (row, "mass"), ==, 1);
    g_assert_cmpfloat (get (row, "error"), <, 1e-5);
    g_assert_cmpfloat (get (row, "kl"), <, 1e-6);
    g_assert_cmpfloat (get (row, "nodes_scored"), ==, 0);
  }
}

/* The sum of -ln p of the text's first @n tokens but the first, as another command says it. */
static double
get_nll (Fixture *fixture, guint n)
{
  g_autofree char *line =
      g_strdup_printf ("\"%s\" tokens --model \"%s\"", g_getenv ("LYCHEE_BENCH"), fixture->model);
  g_auto (GStrv) argv = NULL, ids = NULL, lines = NULL;
  g_autoptr (GSubprocess) process = NULL;
  g_autofree char *text = NULL, *list = NULL, *output = NULL, *command = NULL;
  g_autoptr (GString) first = g_string_new (NULL);
  g_autoptr (GError) error = NULL;

  g_file_get_contents (fixture->text, &text, NULL, &error);
  g_assert_no_error (error);
  g_shell_parse_argv (line, NULL, &argv, &error);
  g_assert_no_error (error);
  process = g_subprocess_newv ((const char *const *) argv,
      G_SUBPROCESS_FLAGS_STDIN_PIPE | G_SUBPROCESS_FLAGS_STDOUT_PIPE, &error);
  g_assert_no_error (error);
  g_subprocess_communicate_utf8 (process, text, NULL, &list, NULL, &error);
  g_assert_no_error (error);
  ids = g_strsplit (list + 1, ", ", n + 1);
  for (guint i = 0; i < n; i++)
    g_string_append_printf (first, "%s%s", i > 0 ? "," : "", ids[i]);
  command = g_strdup_printf ("\"%s\" logits --model \"%s\" --ids %s", g_getenv ("LYCHEE_BENCH"),
      fixture->model, first->str);
  g_spawn_command_line_sync (command, &output, NULL, NULL, &error);
  g_assert_no_error (error);
  g_strchomp (output);
  lines = g_strsplit (output, "\n", -1);
  return get (lines[g_strv_length (lines) - 1], "mean_nll") * (n - 1);
}

/* Of the tokens that follow the queries, which is each query's successor. */
static void
test_perplexity (Fixture *fixture, gconstpointer user_data)
{
  g_auto (GStrv) lines = run_well (fixture, "--policies dense");
  double nll = get_nll (fixture, N_TOKENS + N_QUERIES + 1) - get_nll (fixture, N_TOKENS + 1);

  g_assert_cmpfloat_with_epsilon (log (get (lines[0], "dense_perplexity")), nll / N_QUERIES, 0.004);
}

static void
test_drift (Fixture *fixture, gconstpointer user_data)
{
  g_auto (GStrv) lines =
      run_well (fixture, "--drift --points 2 --budgets 120 --policies quest,clusterkv,token");

  g_assert_cmpuint (g_strv_length (lines), ==, 6);
  for (guint i = 0; i < 6; i++) {
    g_assert_cmpfloat (get (lines[i], "position"), ==, N_TOKENS / 2 * (i / 3 + 1));
    g_assert_cmpfloat (get (lines[i], "error"), >, 0);
    /* What Quest keeps is the same however it came about. */
    if (i % 3 == 0)
      g_assert_true (isnan (get (lines[i], "ratio")));
    else
      g_assert_cmpfloat_with_epsilon (
          get (lines[i], "ratio"), get (lines[i], "error") / get (lines[i], "error_afresh"), 1e-3);
  }
  /* Read at once, the first time: clustered alike. */
  g_assert_cmpfloat (get (lines[1], "ratio"), ==, 1);
}

/* What is read sparsely has other keys, but in layer 0, where keys know nothing of attention. */
static void
test_prefill (Fixture *fixture, gconstpointer user_data)
{
  const char *const modes[] = { "dense", "sparse" };

  for (guint layer = 0; layer < 2; layer++) {
    char *data[2];
    gsize size[2];

    for (guint i = 0; i < 2; i++) {
      g_autofree char *path = g_build_filename (fixture->dir, modes[i], NULL);
      g_autofree char *options =
          g_strdup_printf ("--policies dense --tokens 1200 --prefill %s --layers %u --dump \"%s\"",
              modes[i], layer, path);
      g_auto (GStrv) lines = run_well (fixture, options);
      g_autoptr (GError) error = NULL;

      g_assert_cmpuint (g_strv_length (lines), ==, 1);
      g_file_get_contents (path, &data[i], &size[i], &error);
      g_assert_no_error (error);
    }
    g_assert_cmpuint (size[0], ==, size[1]);
    g_assert_true (!memcmp (data[0], data[1], size[0]) == (layer == 0));
    g_free (data[0]);
    g_free (data[1]);
  }
}

static void
test_dump (Fixture *fixture, gconstpointer user_data)
{
  g_autofree char *path = g_build_filename (fixture->dir, "dump", NULL);
  g_autofree char *options = g_strdup_printf ("--policies dense --layers 1 --dump \"%s\"", path);
  g_auto (GStrv) lines = run_well (fixture, options);
  g_autofree char *data = NULL;
  g_autoptr (GError) error = NULL;
  const guint n_keys = N_TOKENS + N_QUERIES;
  guint32 header[8], n;
  gsize length;
  gsize seen = 8 + 4 * (6 + 1 + N_QUERIES) + 2 * (2 * n_keys * 16 * 2) + 2 * N_QUERIES * 2 * 16 * 4;

  g_file_get_contents (path, &data, &length, &error);
  g_assert_no_error (error);
  g_assert_cmpuint (length, >, seen + 8);
  g_assert_cmpmem (data + seen, 8, "LYSEEN1", 8);
  seen += 8;
  for (guint i = 0; i < 3; i++) { /* the text's chunks; each head's queries */
    g_assert_cmpuint (length, >=, seen + 4);
    memcpy (&n, data + seen, 4);
    n = GUINT32_FROM_LE (n);
    g_assert_cmpuint (n, >=, i == 0 ? N_TOKENS / 16 : 0);
    g_assert_cmpuint (n, <, N_TOKENS);
    seen += 4 + 4 * n * (i == 0 ? 1 : 1 + 16);
  }
  g_assert_cmpuint (length, ==, seen);
  g_assert_cmpmem (data, 8, "LYQKV1\0", 8);
  memcpy (header, data + 8, sizeof header);
  for (guint i = 0; i < 8; i++) {
    const guint32 expected[] = { 1, 2, 2, 16, n_keys, N_QUERIES, 1, N_TOKENS };

    g_assert_cmpuint (GUINT32_FROM_LE (header[i]), ==, expected[i]);
  }
}

/* A dump is as good as the model that it is of, and can be written again. */
static void
test_from (Fixture *fixture, gconstpointer user_data)
{
  static const char *const keys[] = { "mass", "error", "nodes_scored", "metadata", "tokens",
    "queries" };
  g_autofree char *one = g_build_filename (fixture->dir, "one", NULL);
  g_autofree char *two = g_build_filename (fixture->dir, "two", NULL);
  g_autofree char *errors = NULL, *cut = NULL;
  g_auto (GStrv) none = NULL;
  int status;

  /* The second time, much of the text is not read. */
  for (guint n = N_TOKENS; n > 0; n = n == N_TOKENS ? 150 : 0) {
    g_autofree char *a = NULL, *b = NULL;
    g_autofree char *write =
        g_strdup_printf ("--tokens %u --budgets 100,140 --dump \"%s\"", n, one);
    g_autofree char *read =
        g_strdup_printf ("--budgets 100,140 --from \"%s\" --dump \"%s\"", one, two);
    g_auto (GStrv) with = run_well (fixture, write), without = run_well (fixture, read);
    gsize length, other;

    g_assert_cmpuint (g_strv_length (with), ==, g_strv_length (without));
    for (guint i = 0; with[i]; i++)
      for (guint k = 0; k < G_N_ELEMENTS (keys); k++)
        g_assert_cmpfloat (get (with[i], keys[k]), ==, get (without[i], keys[k]));
    g_assert_true (g_file_get_contents (one, &a, &length, NULL));
    g_assert_true (g_file_get_contents (two, &b, &other, NULL));
    g_assert_cmpmem (a, length, b, other);
    g_assert_true (g_file_set_contents (two, a, 20000, NULL));
  }
  cut = g_strdup_printf ("--from \"%s\"", two);
  none = run (fixture, cut, &status, &errors);
  g_assert_cmpint (status, !=, 0);
  g_assert_nonnull (strstr (errors, "is cut off"));
}

static void
test_refuses (Fixture *fixture, gconstpointer user_data)
{
  static const char *const cases[][2] = {
    { "--budgets 80", "inside the budget" },
    { "--budgets x", "not a number" },
    { "--policies token,best", "“best” is none of them" },
    { "--layers 2", "layers 0 to 1" },
    { "--tokens 100000", "queries" },
    { "--text /nonexistent", "No such file" },
    { "--from /nonexistent", "No such file" },
    { "--from /bin/sh", "nothing that --dump wrote" },
    { "extra", "not an option" },
  };

  for (guint i = 0; i < G_N_ELEMENTS (cases); i++) {
    g_autofree char *errors = NULL;
    int status;
    g_auto (GStrv) lines = run (fixture, cases[i][0], &status, &errors);

    g_assert_cmpint (status, !=, 0);
    g_assert_cmpstr (lines[0] ? lines[0] : "", ==, "");
    if (!strstr (errors, cases[i][1]))
      g_error ("“%s” says: %s", cases[i][0], errors);
  }
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, NULL);
  g_test_add ("/fidelity/rows", Fixture, NULL, set_up, test_rows, tear_down);
  g_test_add ("/fidelity/dense", Fixture, NULL, set_up, test_dense, tear_down);
  g_test_add ("/fidelity/q8_0", Fixture, NULL, set_up, test_q8_0, tear_down);
  g_test_add ("/fidelity/fits", Fixture, NULL, set_up, test_fits, tear_down);
  g_test_add ("/fidelity/perplexity", Fixture, NULL, set_up, test_perplexity, tear_down);
  g_test_add ("/fidelity/drift", Fixture, NULL, set_up, test_drift, tear_down);
  g_test_add ("/fidelity/prefill", Fixture, NULL, set_up, test_prefill, tear_down);
  g_test_add ("/fidelity/dump", Fixture, NULL, set_up, test_dump, tear_down);
  g_test_add ("/fidelity/from", Fixture, NULL, set_up, test_from, tear_down);
  g_test_add ("/fidelity/refuses", Fixture, NULL, set_up, test_refuses, tear_down);
  return g_test_run ();
}
