/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Each kind of cutting text into words, with a small vocabulary: ids that another program computed
 * (tests/tokenizer-reference.py), at once and cut anywhere. */
#include "tokenizer-fixture.h"

typedef struct {
  const char *pre;
  char *text;
  GArray *ids;
} Row;

static Fixture *fixture;

static void
test_row (gconstpointer data)
{
  const Row *row = data;
  g_autoptr (LycheeTokenizer) tokenizer =
      tokenizer_from_gguf (fixture_to_gguf (fixture, "gpt2", row->pre));
  g_autoptr (GArray) ids = new_ids ();

  lychee_tokenizer_encode (tokenizer, row->text, -1, LYCHEE_TOKENIZER_NONE, ids);
  assert_same_ids (row->text, ids, row->ids);
  check_cuts (tokenizer, row->text, strlen (row->text), LYCHEE_TOKENIZER_NONE);
}

static void
row_free (gpointer data)
{
  Row *row = data;

  g_free (row->text);
  g_array_unref (row->ids);
  g_free (row);
}

int
main (int argc, char *argv[])
{
  g_autoptr (GPtrArray) rows = g_ptr_array_new_with_free_func (row_free);
  g_autofree char *path = NULL, *contents = NULL;
  g_auto (GStrv) lines = NULL;
  g_autoptr (GError) error = NULL;
  int result;

  g_test_init (&argc, &argv, NULL);
  fixture = fixture_new ();
  for (guint byte = 0; byte < 256; byte++) {
    g_autoptr (GString) spelling = g_string_new (NULL);

    append_byte (spelling, (guint8) byte);
    fixture_add (fixture, spelling->str, NORMAL, 0);
  }
  path = g_test_build_filename (G_TEST_DIST, "data", "tokenizer", "reference.tsv", NULL);
  g_file_get_contents (path, &contents, NULL, &error);
  g_assert_no_error (error);
  lines = g_strsplit (contents, "\n", -1);
  for (guint i = 0; lines[i]; i++) {
    g_auto (GStrv) columns = g_strsplit (lines[i], "\t", -1);

    if (g_strcmp0 (columns[0], "merge") == 0) {
      g_auto (GStrv) sides = g_strsplit (columns[1], " ", 2);
      g_autofree char *merged = g_strconcat (sides[0], sides[1], NULL);

      fixture_add_merge (fixture, sides[0], sides[1]);
      if (fixture_id (fixture, merged) < 0)
        fixture_add (fixture, merged, NORMAL, 0);
    } else if (g_strcmp0 (columns[0], "ids") == 0) {
      g_auto (GStrv) numbers = g_strsplit (columns[3], " ", -1);
      g_autofree char *name = g_strdup_printf ("/reference/%s/%u", columns[1], rows->len);
      Row *row = g_new (Row, 1);

      *row = (Row){ g_intern_string (columns[1]), g_strcompress (columns[2]), new_ids () };
      for (guint j = 0; numbers[j] && *numbers[j]; j++) {
        gint32 id = (gint32) g_ascii_strtoll (numbers[j], NULL, 10);

        g_array_append_val (row->ids, id);
      }
      g_ptr_array_add (rows, row);
      g_test_add_data_func (name, row, test_row);
    }
  }
  g_assert_cmpuint (rows->len, >, 100);
  result = g_test_run ();
  fixture_free (fixture);
  return result;
}
