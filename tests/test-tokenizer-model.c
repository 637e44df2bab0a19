/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The vocabularies of real models: ids that other programs computed, and text from and to them cut
 * anywhere. Skipped where the environment does not name the model's file. */
#include "tokenizer-fixture.h"

typedef struct {
  const char *name;
  const char *variable; /* of the environment, naming the file */
  const char *data;
} Model;

static const Model models[] = {
  { "smollm2", "LYCHEE_TEST_MODEL", "smollm2-tokens.tsv" },
  { "gemma3", "LYCHEE_TEST_MODEL_GEMMA3", "gemma3-tokens.tsv" },
};

typedef struct {
  const Model *model;
  char *text;
  GArray *ids;
} Row;

static LycheeTokenizer *tokenizers[G_N_ELEMENTS (models)];

static void
row_free (gpointer data)
{
  Row *row = data;
  g_free (row->text);
  g_array_unref (row->ids);
  g_free (row);
}

/* The tokenizer of @model; each file is read once. NULL, and the test skipped, without one. */
static LycheeTokenizer *
get_tokenizer (const Model *model)
{
  LycheeTokenizer **tokenizer = &tokenizers[model - models];
  const char *path = g_getenv (model->variable);

  if (path == NULL || *path == '\0') {
    g_autofree char *reason = g_strdup_printf ("%s is not set", model->variable);
    g_test_skip (reason);
    return NULL;
  }
  if (*tokenizer == NULL) {
    const struct gguf_init_params params = { .no_alloc = true };
    struct gguf_context *gguf = gguf_init_from_file (path, params);
    g_assert_nonnull (gguf);
    *tokenizer = tokenizer_from_gguf (gguf);
  }
  return *tokenizer;
}

static void
test_encode (gconstpointer data)
{
  const Row *row = data;
  LycheeTokenizer *tokenizer = get_tokenizer (row->model);
  g_autoptr (GArray) ids = new_ids ();

  if (tokenizer == NULL)
    return;
  lychee_tokenizer_encode (tokenizer, row->text, -1, LYCHEE_TOKENIZER_NONE, ids);
  assert_same_ids (row->text, ids, row->ids);
}

static void
test_cuts (gconstpointer data)
{
  const Row *row = data;
  LycheeTokenizer *tokenizer = get_tokenizer (row->model);

  if (tokenizer == NULL)
    return;
  check_cuts (tokenizer, row->text, strlen (row->text), LYCHEE_TOKENIZER_NONE);
  check_cuts (tokenizer, row->text, strlen (row->text), LYCHEE_TOKENIZER_SPECIAL);
}

static void
test_decode (gconstpointer data)
{
  const Row *row = data;
  LycheeTokenizer *tokenizer = get_tokenizer (row->model);

  if (tokenizer != NULL)
    check_decode (tokenizer, row->ids, row->text, strlen (row->text));
}

static void
test_smollm2_control (void)
{
  LycheeTokenizer *tokenizer = get_tokenizer (&models[0]);
  g_autoptr (GArray) ids = new_ids ();
  static const gint32 expected[] = { 1, 4093, 198, 6004, 2, 198 };

  if (tokenizer == NULL)
    return;
  lychee_tokenizer_encode (
      tokenizer, "<|im_start|>user\nhi<|im_end|>\n", -1, LYCHEE_TOKENIZER_SPECIAL, ids);
  g_assert_cmpmem (ids->data, ids->len * sizeof (gint32), expected, sizeof expected);
  g_autofree char *text =
      lychee_tokenizer_decode (tokenizer, expected, 6, LYCHEE_TOKENIZER_SPECIAL);
  g_assert_cmpstr (text, ==, "<|im_start|>user\nhi<|im_end|>\n");
  g_autofree char *plain = lychee_tokenizer_decode (tokenizer, expected, 6, LYCHEE_TOKENIZER_NONE);
  g_assert_cmpstr (plain, ==, "user\nhi\n");
}

static void
test_smollm2_metadata (void)
{
  LycheeTokenizer *tokenizer = get_tokenizer (&models[0]);

  if (tokenizer == NULL)
    return;
  g_assert_cmpuint (lychee_tokenizer_get_n_vocab (tokenizer), ==, 49152);
  g_assert_cmpint (lychee_tokenizer_get_bos (tokenizer), ==, 1);
  g_assert_cmpint (lychee_tokenizer_get_eos (tokenizer), ==, 2);
  g_assert_false (lychee_tokenizer_get_add_bos (tokenizer));
  g_assert_true (lychee_tokenizer_is_end (tokenizer, 0));
  g_assert_false (lychee_tokenizer_is_end (tokenizer, 1));
  g_assert_true (lychee_tokenizer_is_end (tokenizer, 2));
  g_assert_true (lychee_tokenizer_is_control (tokenizer, 16));
  g_assert_false (lychee_tokenizer_is_control (tokenizer, 17));
  g_assert_cmpint (lychee_tokenizer_lookup (tokenizer, "\u0120the"), ==, 260);
}

/* A million bytes of each, at once; the ids give the text back. */
static void
test_smollm2_linear (void)
{
  LycheeTokenizer *tokenizer = get_tokenizer (&models[0]);
  static const char *const units[] = { "a", " ", "\n", "'", "ab", "\U0001f469\u200d\U0001f467 ",
    "\u65e5\u672c\u8a9e", "The quick brown fox jumps over the lazy dog. " };

  if (tokenizer == NULL)
    return;
  for (guint i = 0; i < G_N_ELEMENTS (units); i++) {
    g_autoptr (GString) text = g_string_new (NULL);
    g_autoptr (GArray) ids = new_ids ();
    double seconds;
    while (text->len < 1000000)
      g_string_append (text, units[i]);
    seconds = get_cpu_time ();
    lychee_tokenizer_encode (tokenizer, text->str, (gssize) text->len, 0, ids);
    seconds = get_cpu_time () - seconds;
    g_assert_cmpfloat (seconds, <, 30 * 5); /* under sanitizers, too */
    g_test_message ("\"%s\": %u tokens in %.3f s", units[i], ids->len, seconds);
    check_decode (tokenizer, ids, text->str, text->len);
  }
}

/* One test each for the texts of the file: a C string with escapes, a tab, ids. */
static void
add_rows (const Model *model, GPtrArray *rows)
{
  g_autofree char *path =
      g_test_build_filename (G_TEST_DIST, "data", "tokenizer", model->data, NULL);
  g_autofree char *contents = NULL;
  g_autoptr (GError) error = NULL;

  g_file_get_contents (path, &contents, NULL, &error);
  g_assert_no_error (error);
  g_auto (GStrv) lines = g_strsplit (contents, "\n", -1);
  for (guint i = 0, n = 1; lines[i] != NULL; i++) {
    if (*lines[i] == '#' || *lines[i] == '\0')
      continue;
    g_auto (GStrv) columns = g_strsplit (lines[i], "\t", 2);
    g_auto (GStrv) numbers = g_strsplit (columns[1], " ", -1);
    Row *row = g_new (Row, 1);
    g_ptr_array_add (rows, row);
    *row = (Row){ model, g_strcompress (columns[0]), new_ids () };
    for (guint j = 0; numbers[j] != NULL; j++) {
      gint32 id = (gint32) g_ascii_strtoll (numbers[j], NULL, 10);
      g_array_append_val (row->ids, id);
    }
    g_autofree char *encode = g_strdup_printf ("/%s/encode/%u", model->name, n);
    g_autofree char *cuts = g_strdup_printf ("/%s/cuts/%u", model->name, n);
    g_autofree char *decode = g_strdup_printf ("/%s/decode/%u", model->name, n);
    g_test_add_data_func (encode, row, test_encode);
    g_test_add_data_func (cuts, row, test_cuts);
    g_test_add_data_func (decode, row, test_decode);
    n++;
  }
}

int
main (int argc, char *argv[])
{
  g_autoptr (GPtrArray) rows = g_ptr_array_new_with_free_func (row_free);

  g_test_init (&argc, &argv, NULL);
  for (guint i = 0; i < G_N_ELEMENTS (models); i++)
    add_rows (&models[i], rows);
  g_test_add_func ("/smollm2/control", test_smollm2_control);
  g_test_add_func ("/smollm2/metadata", test_smollm2_metadata);
  g_test_add_func ("/smollm2/linear", test_smollm2_linear);
  int result = g_test_run ();
  for (guint i = 0; i < G_N_ELEMENTS (models); i++)
    g_clear_object (&tokenizers[i]);
  return result;
}
