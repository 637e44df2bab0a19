/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Sessions on the disk: what is loaded goes on as if nothing had been; what was cut short or
 * altered is refused. And forks of sessions. */

#include "lychee-chunk-private.h"
#include "lychee-file.h"
#include "lychee-forward.h"
#include "session-fixture.h"
#include "tiny-model.h"

#include <glib/gstdio.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#define SECOND G_GUINT64_CONSTANT (1000000000)
#define MUTATIONS 3000

static char *dir;
static LycheeModel *model;

static LycheeModel *
load_model (guint seed)
{
  LycheeTinyModel tiny = LYCHEE_TINY_MODEL_INIT;
  g_autofree char *path = NULL;
  LycheeModel *loaded;

  tiny.seed = seed;
  /* The id is that of the description, not of the weights. */
  tiny.n_ff = 96 + 32 * seed;
  path = lychee_tiny_model_write (&tiny, dir, "model.gguf");
  loaded = lychee_model_new_from_file (path, NULL);
  g_assert_nonnull (loaded);
  g_unlink (path);
  return loaded;
}

static void
read_chunks (LycheeSession *session, guint first, guint n)
{
  for (guint i = first; i < first + n; i++) {
    gint32 ids[12];
    g_autofree char *text = g_strdup_printf ("words %u", i);
    const LycheeChunkPart part = { i * SECOND + SECOND / 2, 6, 5 };
    g_autoptr (LycheeChunk) chunk = NULL;
    g_autoptr (GError) error = NULL;

    for (guint j = 0; j < G_N_ELEMENTS (ids); j++)
      ids[j] = (i * 37 + j * 11) % 200 + 3;
    chunk =
        lychee_chunk_new_in_parts (ids, G_N_ELEMENTS (ids), text, i % 3 ? "Ann" : NULL, i * SECOND,
            i % 5 ? SECOND : LYCHEE_TIME_NONE, LYCHEE_BOUNDARY_WORD, i / 100.0, i, &part, i % 2);
    lychee_session_append (session, chunk, NULL, &error);
    g_assert_no_error (error);
  }
}

static LycheeSession *
new_session (LycheeGranularity granularity)
{
  return g_object_new (LYCHEE_TYPE_SESSION, "model", model, "reserve", 200, "granularity",
      granularity, "budget", 200, "system-prompt", "Be kind.", "overflow",
      LYCHEE_OVERFLOW_FORGET_OLDEST, "max-context", 1100, NULL);
}

/* The logits of a token that follows what the session has read. */
static void
assert_same_logits (LycheeSession *a, LycheeSession *b, gboolean sparse)
{
  g_autoptr (LycheeExecutor) executor = lychee_executor_get (1);
  const LycheeAttentionOptions options = { .sparse = sparse, .budget = 200, .rest = TRUE };
  LycheeSession *sessions[] = { a, b };
  guint n_vocab = lychee_model_get_n_vocab (model);
  g_autofree float *first = NULL;

  for (guint i = 0; i < 2; i++) {
    g_autoptr (LycheeForward) forward = lychee_forward_new (model, executor);
    g_autoptr (LycheeCache) fork = lychee_cache_fork (lychee_session_get_cache (sessions[i]), NULL);
    const float *logits;
    const gint32 ids[] = { 40 };

    lychee_attention_set_options (lychee_forward_get_attention (forward), &options);
    g_assert_true (
        lychee_forward_run (forward, fork, ids, 1, LYCHEE_OUTPUT_LAST, &logits, NULL, NULL));
    if (i == 0)
      first = g_memdup2 (logits, n_vocab * sizeof *logits);
    else
      g_assert_cmpmem (first, n_vocab * sizeof *first, logits, n_vocab * sizeof *logits);
  }
}

static void
assert_same (LycheeSession *a, LycheeSession *b)
{
  LycheeCache *cache[] = { lychee_session_get_cache (a), lychee_session_get_cache (b) };

  assert_same_logits (a, b, FALSE);
  assert_same_logits (a, b, TRUE);
  g_assert_cmpuint (lychee_cache_get_n_chunks (cache[0]), ==, lychee_cache_get_n_chunks (cache[1]));
  for (guint i = 0; i < lychee_cache_get_n_chunks (cache[0]); i++) {
    guint at[2], n_parts[2];
    g_autoptr (LycheeChunk) one = lychee_cache_get_chunk (cache[0], i, &at[0]);
    g_autoptr (LycheeChunk) other = lychee_cache_get_chunk (cache[1], i, &at[1]);

    g_assert_cmpuint (at[0], ==, at[1]);
    g_assert_cmpmem (one->ids, one->n_ids * 4, other->ids, other->n_ids * 4);
    g_assert_cmpstr (one->text, ==, other->text);
    g_assert_cmpstr (one->speaker, ==, other->speaker);
    g_assert_cmpuint (one->pts, ==, other->pts);
    g_assert_cmpuint (one->duration, ==, other->duration);
    g_assert_cmpint (one->boundary, ==, other->boundary);
    g_assert_cmpfloat (one->drift, ==, other->drift);
    const LycheeChunkPart *parts[] = { lychee_chunk_get_parts (one, &n_parts[0]),
      lychee_chunk_get_parts (other, &n_parts[1]) };

    g_assert_cmpmem (parts[0], n_parts[0] * sizeof **parts, parts[1], n_parts[1] * sizeof **parts);
  }
}

static char *
save (LycheeSession *session)
{
  char *path = g_build_filename (dir, "session", NULL);
  g_autoptr (GError) error = NULL;

  lychee_session_save (session, path, NULL, &error);
  g_assert_no_error (error);
  return path;
}

/* For transcripts of many lengths, some of which have forgotten their beginning: loaded, it is the
 * same, and stays the same while both go on. */
static void
test_round (gconstpointer data)
{
  const guint lengths[] = { 1, 18, 60, 70, 200 };

  for (guint i = 0; i < G_N_ELEMENTS (lengths); i++) {
    g_autoptr (LycheeSession) session = new_session (GPOINTER_TO_UINT (data));
    g_autoptr (LycheeSession) loaded = g_object_new (LYCHEE_TYPE_SESSION, "model", model, "reserve",
        200, "overflow", LYCHEE_OVERFLOW_FORGET_OLDEST, NULL);
    g_autofree char *path = NULL, *one = NULL, *other = NULL;
    g_autoptr (GError) error = NULL;

    read_chunks (session, 0, lengths[i]);
    path = save (session);
    g_assert_true (lychee_session_load (loaded, path, NULL, &error));
    g_assert_no_error (error);
    /* The file may go: what is mapped stays. */
    g_unlink (path);
    g_object_set (loaded, "budget", 200, NULL);
    assert_same (session, loaded);
    one = ask_text (session, 20);
    other = ask_text (loaded, 20);
    g_assert_cmpstr (one, ==, other);
    if (lengths[i] < 70) {
      read_chunks (session, lengths[i], 15);
      read_chunks (loaded, lengths[i], 15);
      assert_same (session, loaded);
    }
  }
}

/* Whatever chat template it was read with, a session is loaded with that. */
static void
test_templates (void)
{
  g_autoptr (GEnumClass) formats = g_type_class_ref (LYCHEE_TYPE_CHAT_FORMAT);

  for (guint i = 0; i < formats->n_values; i++) {
    LycheeChatFormat format = formats->values[i].value, loaded_format;
    g_autoptr (LycheeSession) session =
        g_object_new (LYCHEE_TYPE_SESSION, "model", model, "template", format, NULL);
    g_autoptr (LycheeSession) loaded = lychee_session_new (model);
    g_autofree char *path = NULL;
    g_autoptr (GError) error = NULL;

    if (format == LYCHEE_CHAT_FORMAT_AUTO)
      continue;
    read_chunks (session, 0, 2);
    path = save (session);
    lychee_session_load (loaded, path, NULL, &error);
    if (error)
      g_error ("%s: %s", formats->values[i].value_nick, error->message);
    g_object_get (loaded, "template", &loaded_format, NULL);
    g_assert_cmpint (loaded_format, ==, format);
    assert_same (session, loaded);
  }
}

/* A file has what was read, and little else: keys and values of each token, its indexes and a few
 * bytes for each chunk. */
static void
test_size (void)
{
  const guint lengths[] = { 1, 4, 18, 22, 70 };

  for (guint i = 0; i < G_N_ELEMENTS (lengths); i++) {
    g_autoptr (LycheeSession) session = new_session (LYCHEE_GRANULARITY_TOKEN);
    LycheeCache *cache = lychee_session_get_cache (session);
    guint64 used, index;
    g_autofree char *path = NULL;
    GStatBuf status;

    read_chunks (session, 0, lengths[i]);
    path = save (session);
    g_assert_cmpint (g_stat (path, &status), ==, 0);
    index = lychee_cache_get_index_bytes (cache);
    used = lychee_cache_get_length (cache) * lychee_cache_get_token_bytes (cache);
    g_assert_cmpint (status.st_size, >, used);
    g_assert_cmpint (status.st_size, <, used + index + 200 * lengths[i] + 8192);
  }
}

static void
assert_refused (LycheeSession *session, const char *path, const char *why)
{
  LycheeCache *cache = lychee_session_get_cache (session);
  guint length = lychee_cache_get_length (cache);
  g_autoptr (GError) error = NULL;

  if (lychee_session_load (session, path, NULL, &error))
    g_error ("%s was loaded", why);
  if (!g_error_matches (error, LYCHEE_SESSION_ERROR, LYCHEE_SESSION_ERROR_DAMAGED) &&
      !g_error_matches (error, LYCHEE_SESSION_ERROR, LYCHEE_SESSION_ERROR_VERSION))
    g_error ("%s: %s", why, error->message);
  g_assert_nonnull (strstr (error->message, path));
  g_assert_true (lychee_session_get_cache (session) == cache);
  g_assert_cmpuint (lychee_cache_get_length (cache), ==, length);
}

static char *
write_file (const guint8 *data, gsize size)
{
  char *path = g_build_filename (dir, "mutated", NULL);
  FILE *file = g_fopen (path, "wb");

  g_assert_nonnull (file);
  g_assert_cmpuint (fwrite (data, 1, size, file), ==, size);
  fclose (file);
  return path;
}

static void
write_byte (const char *path, gsize at, guint8 value)
{
  FILE *file = g_fopen (path, "r+b");

  g_assert_nonnull (file);
  g_assert_cmpint (fseek (file, at, SEEK_SET), ==, 0);
  g_assert_cmpint (fputc (value, file), ==, value);
  g_assert_cmpint (fclose (file), ==, 0);
}

/* A session that was saved, what the file has, and another session, which altered files are loaded
 * into. */
typedef struct {
  LycheeSession *live;
  char *before; /* that it answers */
  char *path;
  guint8 *data; /* [size] */
  gsize size;
} Saved;

static void
saved_init (Saved *saved, guint n_chunks)
{
  g_autoptr (LycheeSession) session = new_session (LYCHEE_GRANULARITY_TOKEN);

  saved->live = new_session (LYCHEE_GRANULARITY_TOKEN);
  read_chunks (session, 0, n_chunks);
  read_chunks (saved->live, 50, 5);
  saved->before = ask_text (saved->live, 20);
  saved->path = save (session);
  g_assert_true (g_file_get_contents (saved->path, (char **) &saved->data, &saved->size, NULL));
}

/* The live session is as it was. */
static void
saved_clear (Saved *saved)
{
  g_autofree char *after = ask_text (saved->live, 20);

  g_assert_cmpstr (saved->before, ==, after);
  g_object_unref (saved->live);
  g_free (saved->before);
  g_free (saved->path);
  g_free (saved->data);
}

/* Any byte altered, any cut, anything added: refused, and the session is as it was. */
static void
test_mutated (void)
{
  Saved saved;

  saved_init (&saved, 10);
  for (guint i = 0; i < MUTATIONS; i++) {
    g_autofree guint8 *mutated = NULL;
    g_autofree char *file = NULL, *why = NULL;
    gsize n = saved.size, at = g_test_rand_int_range (0, saved.size);

    if (i % 3 == 0) /* the beginning and the end, where there is most to go wrong */
      at = i % 2 ? at % 4096 : saved.size - 1 - at % 2048;
    if (i % 10 > 2) {
      guint8 altered = saved.data[at] ^ 1 << g_test_rand_int_range (0, 8);

      why = g_strdup_printf ("altered at %zu", at);
      write_byte (saved.path, at, altered);
      assert_refused (saved.live, saved.path, why);
      write_byte (saved.path, at, saved.data[at]);
      continue;
    }
    mutated = g_memdup2 (saved.data, saved.size);
    if (i % 10 == 1) {
      n = at;
      why = g_strdup_printf ("cut to %zu bytes", n);
    } else {
      n = at + (saved.size - at) / 2;
      memmove (mutated + at, mutated + n, saved.size - n);
      n = at + saved.size - n;
      why = g_strdup_printf ("without bytes from %zu on", at);
      if (n == saved.size)
        continue;
    }
    file = write_file (mutated, n);
    assert_refused (saved.live, file, why);
  }
  {
    g_autofree guint8 *longer = g_malloc0 (saved.size + 1);
    g_autofree char *file = NULL;

    memcpy (longer, saved.data, saved.size);
    file = write_file (longer, saved.size + 1);
    assert_refused (saved.live, file, "one byte longer");
  }
  saved_clear (&saved);
}

/* The checksums of a file set right, as somebody would who means harm. */
static void
set_checksums (guint8 *data, gsize size)
{
  guint64 table;
  guint32 n, crc;

  memcpy (&table, data + 24, 8);
  memcpy (&n, data + 32, 4);
  table = MIN (table, size);
  n = MIN (n, (size - table) / 32);
  for (guint32 i = 0; i < n; i++) {
    guint8 *section = data + table + 32 * i;
    guint64 from = 4096, to = table; /* as a reader who takes the first for granted goes by it */

    if (i > 0)
      memcpy (&from, section + 8, 8);
    if (i + 1 < n)
      memcpy (&to, section + 40, 8);
    if (from > to || to > size)
      continue;
    crc = crc32 (0, data + from, to - from);
    memcpy (section + 24, &crc, 4);
  }
  crc = crc32 (0, data + table, size - table);
  memcpy (data + 36, &crc, 4);
  crc = crc32 (0, data, 44);
  memcpy (data + 44, &crc, 4);
}

/* Whatever is in a file, it is refused, or used without harm. */
static void
test_hostile (gconstpointer granularity)
{
  g_autoptr (LycheeSession) session = new_session (GPOINTER_TO_UINT (granularity));
  g_autofree char *path = NULL;
  g_autofree guint8 *data = NULL;
  LycheeCache *cache = lychee_session_get_cache (session);
  guint64 pages_end;
  guint n_loaded = 0, n_refused = 0;
  gsize size;

  read_chunks (session, 0, 40);
  path = save (session);
  g_assert_true (g_file_get_contents (path, (char **) &data, &size, NULL));
  pages_end = 4096 + lychee_cache_get_length (cache) * lychee_cache_get_token_bytes (cache);
  g_assert_cmpuint (size, >, pages_end);
  for (guint i = 0; i < MUTATIONS / 5; i++) {
    g_autoptr (LycheeSession) loaded = lychee_session_new (model);
    g_autofree guint8 *mutated = g_memdup2 (data, size);
    g_autofree char *file = NULL;

    for (gint n = g_test_rand_int_range (1, 4); n > 0; n--) {
      /* Behind the pages, where any value is as good as another. */
      gsize at = g_test_rand_int_range (pages_end, size);

      mutated[at] = g_test_rand_bit () ? g_test_rand_int () : mutated[at] ^ 0x80;
    }
    set_checksums (mutated, size);
    file = write_file (mutated, size);
    if (lychee_session_load (loaded, file, NULL, NULL)) {
      g_autoptr (LycheeQuestion) question =
          g_object_new (LYCHEE_TYPE_QUESTION, "prompt", "?", "max-tokens", 2, NULL);
      g_autoptr (LycheeAnswer) answer = NULL;

      n_loaded++;
      if (i % 8 > 0)
        continue;
      g_object_set (loaded, "budget", 100, NULL);
      answer = lychee_session_ask (loaded, question, NULL, NULL, NULL, NULL);
      lychee_session_truncate (loaded, 20 * SECOND);
    } else {
      n_refused++;
    }
  }
  g_assert_cmpuint (n_loaded, >, 0);
  g_assert_cmpuint (n_refused, >, 0);
}

/* Kinds of sections, and the parts of a file: see lychee-file.c. */
enum { HEADER = 0, PAGE = 1, INDEX = 2, META = 16, CHUNKS = 17 };

#define TABLE_AT 24
#define N_AT 32
#define SECTION_SIZE 32
#define NUMBER 4
#define OFFSET 8
#define SIZE 16

/* One number of a file altered: in the header, or in the first section of a kind in the table. */
static const struct {
  const char *name;
  guint where, at, width;
  gboolean add; /* to what is there */
  guint64 value;
  gboolean harmless; /* with the checksums set right it may be loaded */
} numbers[] = {
  { "no magic", HEADER, 0, 4, FALSE, 0 },
  { "version 0", HEADER, 12, 4, FALSE, 0 },
  { "the version before", HEADER, 12, 4, TRUE, -1 },
  { "the version after", HEADER, 12, 4, TRUE, 1 },
  { "the last version", HEADER, 12, 4, FALSE, G_MAXUINT32 },
  { "no byte order", HEADER, 8, 4, FALSE, 0 },
  { "the other byte order", HEADER, 8, 4, FALSE, 0x04030201 },
  { "no size", HEADER, 16, 8, FALSE, 0 },
  { "a smaller size", HEADER, 16, 8, TRUE, -64 },
  { "a larger size", HEADER, 16, 8, TRUE, 64 },
  { "size 2^63", HEADER, 16, 8, FALSE, G_GUINT64_CONSTANT (1) << 63 },
  { "size 2^64 - 1", HEADER, 16, 8, FALSE, G_MAXUINT64 },
  { "the table at 0", HEADER, TABLE_AT, 8, FALSE, 0 },
  { "the table earlier", HEADER, TABLE_AT, 8, TRUE, -SECTION_SIZE },
  { "the table later", HEADER, TABLE_AT, 8, TRUE, SECTION_SIZE },
  { "the table at 2^63", HEADER, TABLE_AT, 8, FALSE, G_GUINT64_CONSTANT (1) << 63 },
  { "the table at 2^64 - 64", HEADER, TABLE_AT, 8, FALSE, -G_GUINT64_CONSTANT (64) },
  { "no sections", HEADER, N_AT, 4, FALSE, 0 },
  { "a section less", HEADER, N_AT, 4, TRUE, -1 },
  { "a section more", HEADER, N_AT, 4, TRUE, 1 },
  { "2^31 sections", HEADER, N_AT, 4, FALSE, G_GUINT64_CONSTANT (1) << 31 },
  { "2^32 - 1 sections", HEADER, N_AT, 4, FALSE, G_MAXUINT32 },
  { "page at 0", PAGE, OFFSET, 8, FALSE, 0 },
  { "page earlier", PAGE, OFFSET, 8, TRUE, -64 },
  { "page later", PAGE, OFFSET, 8, TRUE, 64 },
  { "index at 2^63", INDEX, OFFSET, 8, FALSE, G_GUINT64_CONSTANT (1) << 63 },
  { "index at 2^63 - 64", INDEX, OFFSET, 8, FALSE, (G_GUINT64_CONSTANT (1) << 63) - 64 },
  { "index at 2^64 - 64", INDEX, OFFSET, 8, FALSE, -G_GUINT64_CONSTANT (64) },
  { "index over what is before", INDEX, OFFSET, 8, TRUE, -4096 },
  { "chunks later", CHUNKS, OFFSET, 8, TRUE, 64 },
  { "page of no size", PAGE, SIZE, 8, FALSE, 0 },
  { "page of a smaller size", PAGE, SIZE, 8, TRUE, -1 },
  { "page of a larger size", PAGE, SIZE, 8, TRUE, 4096 },
  { "page of size 2^63", PAGE, SIZE, 8, FALSE, G_GUINT64_CONSTANT (1) << 63 },
  { "page of size 2^64 - 1", PAGE, SIZE, 8, FALSE, G_MAXUINT64 },
  { "index of size 2^64 - 63", INDEX, SIZE, 8, FALSE, -G_GUINT64_CONSTANT (63) },
  { "index of a smaller size", INDEX, SIZE, 8, TRUE, -1 },
  { "chunks of a smaller size", CHUNKS, SIZE, 8, TRUE, -1 },
  { "description of no size", META, SIZE, 8, FALSE, 0 },
  { "page for an index", PAGE, 0, 4, FALSE, INDEX },
  { "page of no kind", PAGE, 0, 4, FALSE, G_MAXUINT32 },
  { "page of another number", PAGE, NUMBER, 4, FALSE, 1 },
  { "page of number 2^32 - 1", PAGE, NUMBER, 4, FALSE, G_MAXUINT32 },
  { "index for a page", INDEX, 0, 4, FALSE, PAGE },
  { "index of another number", INDEX, NUMBER, 4, FALSE, 1 },
  { "description for chunks", META, 0, 4, FALSE, CHUNKS },
  { "chunks for a description", CHUNKS, 0, 4, FALSE, META },
  { "an unused number", META, 28, 4, FALSE, 77, TRUE },
};

/* The entry in the table of the first section of a kind. */
static guint8 *
find_section (guint8 *data, guint kind)
{
  guint64 table;
  guint32 n, found;

  memcpy (&table, data + TABLE_AT, 8);
  memcpy (&n, data + N_AT, 4);
  for (guint i = 0; i < n; i++) {
    memcpy (&found, data + table + SECTION_SIZE * i, 4);
    if (found == kind)
      return data + table + SECTION_SIZE * i;
  }
  g_assert_not_reached ();
}

/* Whatever was made of a file: refused with a reason, or of use without harm. */
static void
assert_harmless (const char *path, const char *why)
{
  g_autoptr (LycheeSession) loaded = lychee_session_new (model);
  g_autoptr (GError) error = NULL;

  if (lychee_session_load (loaded, path, NULL, &error)) {
    g_object_set (loaded, "budget", 100, NULL);
    g_free (ask_text (loaded, 2));
    read_chunks (loaded, 100, 2);
    g_free (save (loaded));
    lychee_session_truncate (loaded, 20 * SECOND);
  } else if (error->domain != LYCHEE_SESSION_ERROR || !strstr (error->message, path)) {
    g_error ("%s: %s", why, error->message);
  }
}

/* Every number by which a reader goes, altered by itself: refused, with the file's checksums as
 * they were and with checksums that are right. */
static void
test_numbers (void)
{
  Saved saved;

  saved_init (&saved, 40);
  for (guint i = 0; i < G_N_ELEMENTS (numbers); i++)
    for (guint right = 0; right < 2; right++) {
      g_autofree guint8 *altered = g_memdup2 (saved.data, saved.size);
      guint8 *at = numbers[i].where == HEADER ? altered : find_section (altered, numbers[i].where);
      guint64 value = 0;
      g_autofree char *file = NULL;

      at += numbers[i].at;
      if (numbers[i].add)
        memcpy (&value, at, numbers[i].width); /* little endian, as the file is */
      value += numbers[i].value;
      memcpy (at, &value, numbers[i].width);
      if (right)
        set_checksums (altered, saved.size);
      file = write_file (altered, saved.size);
      if (right && numbers[i].harmless)
        assert_harmless (file, numbers[i].name);
      else
        assert_refused (saved.live, file, numbers[i].name);
    }
  saved_clear (&saved);
}

/* A file of the given sections of another one, in that order, with checksums that are right. */
static GByteArray *
arrange (const guint8 *data, const guint *order, guint n)
{
  GByteArray *to = g_byte_array_new ();
  g_autofree guint8 *entries = g_malloc0 (SECTION_SIZE * MAX (n, 1));
  guint32 n_from, n_sections = n;
  guint64 table, new_table, new_size;

  memcpy (&table, data + TABLE_AT, 8);
  memcpy (&n_from, data + N_AT, 4);
  g_byte_array_append (to, data, 4096);
  for (guint i = 0; i < n; i++) {
    const guint8 *entry = data + table + SECTION_SIZE * order[i];
    guint64 from, end = table, at = to->len;

    g_assert_cmpuint (order[i], <, n_from);
    memcpy (&from, entry + OFFSET, 8);
    if (order[i] + 1 < n_from)
      memcpy (&end, entry + SECTION_SIZE + OFFSET, 8);
    g_byte_array_append (to, data + from, end - from);
    memcpy (entries + SECTION_SIZE * i, entry, SECTION_SIZE);
    memcpy (entries + SECTION_SIZE * i + OFFSET, &at, 8);
  }
  new_table = to->len;
  g_byte_array_append (to, entries, SECTION_SIZE * n);
  new_size = to->len;
  memcpy (to->data + 16, &new_size, 8);
  memcpy (to->data + TABLE_AT, &new_table, 8);
  memcpy (to->data + N_AT, &n_sections, 4);
  set_checksums (to->data, to->len);
  return to;
}

/* Sections left out, doubled, exchanged and in another order, each file right by its checksums; and
 * files that end where a section does. */
static void
test_sections (void)
{
  Saved saved;
  g_autofree guint *order = NULL;
  guint64 table;
  guint32 n;

  saved_init (&saved, 40);
  memcpy (&table, saved.data + TABLE_AT, 8);
  memcpy (&n, saved.data + N_AT, 4);
  order = g_new (guint, n + 1);
  for (guint i = 0; i < n; i++)
    order[i] = i;
  {
    g_autoptr (GByteArray) same = arrange (saved.data, order, n);

    g_assert_cmpmem (
        same->data, same->len, saved.data, saved.size); /* so it is the altering that is refused */
  }
  for (guint i = 0; i < n; i++) {
    g_autofree char *why = g_strdup_printf ("section %u", i), *file = NULL;
    g_autofree guint8 *swapped = g_memdup2 (saved.data, saved.size);
    guint8 kind[8], *entry = swapped + table + SECTION_SIZE * i;
    g_autoptr (GByteArray) without = NULL, doubled = NULL, moved = NULL;
    guint64 end;

    /* Left out. */
    for (guint j = i; j + 1 < n; j++)
      order[j] = j + 1;
    without = arrange (saved.data, order, n - 1);
    file = write_file (without->data, without->len);
    assert_refused (saved.live, file, why);
    /* Doubled, the second at the end. */
    for (guint j = 0; j < n; j++)
      order[j] = j;
    order[n] = i;
    doubled = arrange (saved.data, order, n + 1);
    g_free (write_file (doubled->data, doubled->len));
    assert_harmless (file, why);
    /* In another place. */
    order[i] = 0;
    order[0] = i;
    moved = arrange (saved.data, order, n);
    g_free (write_file (moved->data, moved->len));
    assert_harmless (file, why);
    order[0] = 0;
    order[i] = i;
    /* Called what the next one is, and the reverse. */
    if (i + 1 < n) {
      memcpy (kind, entry, 8);
      memcpy (entry, entry + SECTION_SIZE, 8);
      memcpy (entry + SECTION_SIZE, kind, 8);
      set_checksums (swapped, saved.size);
      g_free (write_file (swapped, saved.size));
      assert_harmless (file, why);
    }
    /* The file ends where the section does, and one byte before and behind. */
    end = table;
    if (i + 1 < n)
      memcpy (&end, saved.data + table + SECTION_SIZE * (i + 1) + OFFSET, 8);
    for (gint more = -1; more <= 1; more++) {
      g_autofree guint8 *cut = g_memdup2 (saved.data, end + more);
      guint64 length = end + more;

      g_free (write_file (cut, length));
      assert_refused (saved.live, file, why);
      memcpy (cut + 16, &length, 8);
      set_checksums (cut, length);
      g_free (write_file (cut, length));
      assert_refused (saved.live, file, why);
    }
  }
  saved_clear (&saved);
}

/* A file that says to be far larger than any disk is refused at once, whatever it says of itself.
 */
static void
test_huge (void)
{
  g_autoptr (LycheeSession) session = new_session (LYCHEE_GRANULARITY_TOKEN);
  const guint64 sizes[] = { G_GUINT64_CONSTANT (1) << 40, G_GUINT64_CONSTANT (1) << 43,
    G_GUINT64_CONSTANT (1) << 46, G_MAXINT64 };
  g_autofree char *path = NULL;
  g_autofree guint8 *data = NULL;
  gsize size;

  read_chunks (session, 0, 4);
  path = save (session);
  g_assert_true (g_file_get_contents (path, (char **) &data, &size, NULL));
  for (guint i = 0; i < G_N_ELEMENTS (sizes); i++)
    for (guint told = 0; told < 2; told++) {
      g_autofree char *file = NULL;
      g_autoptr (GError) error = NULL;

      if (told)
        memcpy (data + 16, &sizes[i], 8);
      set_checksums (data, size);
      file = write_file (data, size);
      if (truncate (file, sizes[i]) != 0) /* not on this file system */
        continue;
      g_assert_false (lychee_session_load (session, file, NULL, &error));
      g_assert_true (g_error_matches (error, LYCHEE_SESSION_ERROR, LYCHEE_SESSION_ERROR_DAMAGED) ||
                     g_error_matches (error, LYCHEE_SESSION_ERROR, LYCHEE_SESSION_ERROR_READ));
      g_assert_nonnull (strstr (error->message, file));
      g_assert_cmpint (g_unlink (file), ==, 0);
    }
}

static void
test_errors (void)
{
  g_autoptr (LycheeSession) session = new_session (LYCHEE_GRANULARITY_TOKEN);
  g_autoptr (LycheeModel) other_model = load_model (2);
  g_autoptr (LycheeSession) other = lychee_session_new (other_model);
  g_autoptr (LycheeSession) small =
      g_object_new (LYCHEE_TYPE_SESSION, "model", model, "max-memory", (guint64) 70000, NULL);
  g_autofree char *path = NULL, *again = NULL;
  g_autofree char *missing = g_build_filename (dir, "no", "such", NULL);
  g_autofree char *text = g_build_filename (dir, "text", NULL);
  g_autoptr (GCancellable) cancelled = g_cancellable_new ();
  g_autoptr (GError) error = NULL;

  g_assert_false (lychee_session_save (session, text, NULL, &error));
  g_assert_error (error, LYCHEE_SESSION_ERROR, LYCHEE_SESSION_ERROR_EMPTY);
  g_clear_error (&error);
  read_chunks (session, 0, 40);
  g_assert_false (lychee_session_save (session, missing, NULL, &error));
  g_assert_error (error, LYCHEE_SESSION_ERROR, LYCHEE_SESSION_ERROR_WRITE);
  g_clear_error (&error);
  g_assert_false (lychee_session_load (session, missing, NULL, &error));
  g_assert_error (error, LYCHEE_SESSION_ERROR, LYCHEE_SESSION_ERROR_READ);
  g_clear_error (&error);
  g_assert_false (lychee_session_load (session, dir, NULL, &error));
  g_assert_error (error, LYCHEE_SESSION_ERROR, LYCHEE_SESSION_ERROR_READ);
  g_clear_error (&error);
  g_assert_true (g_file_set_contents (text, "Words, words, words.", -1, NULL));
  assert_refused (session, text, "a text");
  g_assert_true (g_file_set_contents (text, "", -1, NULL));
  assert_refused (session, text, "an empty file");

  path = save (session);
  g_assert_false (lychee_session_load (other, path, NULL, &error));
  g_assert_error (error, LYCHEE_SESSION_ERROR, LYCHEE_SESSION_ERROR_MODEL);
  g_clear_error (&error);
  g_assert_false (lychee_session_load (small, path, NULL, &error));
  g_assert_error (error, LYCHEE_CACHE_ERROR, LYCHEE_CACHE_ERROR_NO_MEMORY);
  g_clear_error (&error);
  /* Cancelled, it leaves what was there, and nothing else. */
  g_cancellable_cancel (cancelled);
  read_chunks (session, 40, 1);
  g_assert_false (lychee_session_save (session, path, cancelled, &error));
  g_assert_error (error, G_IO_ERROR, G_IO_ERROR_CANCELLED);
  g_clear_error (&error);
  g_assert_false (lychee_session_load (session, path, cancelled, &error));
  g_assert_error (error, G_IO_ERROR, G_IO_ERROR_CANCELLED);
  g_clear_error (&error);
  g_assert_true (lychee_session_load (session, path, NULL, NULL));
  g_assert_cmpuint (lychee_cache_get_n_chunks (lychee_session_get_cache (session)), ==, 40);
  /* Over the file that is mapped. */
  read_chunks (session, 40, 5);
  again = save (session);
  g_assert_true (lychee_session_load (session, again, NULL, NULL));
  g_assert_cmpuint (lychee_cache_get_n_chunks (lychee_session_get_cache (session)), ==, 45);
  {
    g_autoptr (GDir) listing = g_dir_open (dir, 0, NULL);
    const char *name;

    while ((name = g_dir_read_name (listing)))
      g_assert_true (g_str_equal (name, "session") || g_str_equal (name, "text") ||
                     g_str_equal (name, "mutated"));
  }
}

static gpointer
save_often (gpointer data)
{
  for (guint i = 0; i < 10; i++)
    g_free (save (data));
  return NULL;
}

/* A session may be saved while it reads and answers. */
static void
test_busy (void)
{
  g_autoptr (LycheeSession) session = new_session (LYCHEE_GRANULARITY_TOKEN), loaded = NULL;
  g_autofree char *path = NULL;
  GThread *thread;

  read_chunks (session, 0, 1);
  thread = g_thread_new ("save", save_often, session);
  read_chunks (session, 1, 60);
  g_free (ask_text (session, 20));
  g_thread_join (thread);
  path = g_build_filename (dir, "session", NULL);
  loaded = lychee_session_new (model);
  g_assert_true (lychee_session_load (loaded, path, NULL, NULL));
  g_free (ask_text (loaded, 20));
}

/* A fork has what was read, shares it, and goes its own way. */
static void
test_fork (void)
{
  g_autoptr (LycheeSession) session = new_session (LYCHEE_GRANULARITY_TOKEN), fork = NULL;
  g_autoptr (LycheeSession) straight = new_session (LYCHEE_GRANULARITY_TOKEN);
  g_autoptr (LycheeSession) aside = new_session (LYCHEE_GRANULARITY_TOKEN);
  g_autofree char *prompt = NULL;
  guint budget;

  read_chunks (session, 0, 40);
  fork = lychee_session_fork (session, NULL);
  assert_same (session, fork);
  g_object_get (fork, "system-prompt", &prompt, "budget", &budget, NULL);
  g_assert_cmpstr (prompt, ==, "Be kind.");
  g_assert_cmpuint (budget, ==, 200);
  read_chunks (session, 40, 10);
  read_chunks (fork, 60, 10);
  read_chunks (straight, 0, 50);
  read_chunks (aside, 0, 40);
  read_chunks (aside, 60, 10);
  assert_same (session, straight);
  assert_same (fork, aside);
}

int
main (int argc, char **argv)
{
  int result;

  g_test_init (&argc, &argv, NULL);
  dir = g_dir_make_tmp ("lychee-save-XXXXXX", NULL);
  model = load_model (1);
  g_test_add_data_func (
      "/save/round/token", GUINT_TO_POINTER (LYCHEE_GRANULARITY_TOKEN), test_round);
  g_test_add_data_func (
      "/save/round/chunk", GUINT_TO_POINTER (LYCHEE_GRANULARITY_CHUNK), test_round);
  g_test_add_func ("/save/templates", test_templates);
  g_test_add_func ("/save/size", test_size);
  g_test_add_func ("/save/mutated", test_mutated);
  g_test_add_func ("/save/numbers", test_numbers);
  g_test_add_func ("/save/sections", test_sections);
  g_test_add_func ("/save/huge", test_huge);
  g_test_add_data_func (
      "/save/hostile/token", GUINT_TO_POINTER (LYCHEE_GRANULARITY_TOKEN), test_hostile);
  g_test_add_data_func (
      "/save/hostile/chunk", GUINT_TO_POINTER (LYCHEE_GRANULARITY_CHUNK), test_hostile);
  g_test_add_func ("/save/errors", test_errors);
  g_test_add_func ("/save/busy", test_busy);
  g_test_add_func ("/save/fork", test_fork);
  result = g_test_run ();
  g_object_unref (model);
  lychee_test_remove_dir (dir);
  g_free (dir);
  return result;
}
