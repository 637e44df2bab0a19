/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Sessions on the disk. */
#include "lychee-chunk-private.h"
#include "lychee-file.h"
#include "lychee-model-private.h"
#include "lychee-session-private.h"

#include <string.h>

/* Kinds of sections, beside those of the cache: each a GVariant. */
#define SECTION_META 16
#define SECTION_CHUNKS 17
#define CHUNK_TYPE "(uaymsmsttyd)"
#define PART_TYPE "(tuu)" /* LycheeChunkPart */

/* Errors of the file become the session's. */
static void
translate_error (GError **error)
{
  LycheeSessionError code;

  if (!error || !*error || (*error)->domain != LYCHEE_FILE_ERROR)
    return;
  code = (*error)->code == LYCHEE_FILE_ERROR_WRITE     ? LYCHEE_SESSION_ERROR_WRITE
         : (*error)->code == LYCHEE_FILE_ERROR_READ    ? LYCHEE_SESSION_ERROR_READ
         : (*error)->code == LYCHEE_FILE_ERROR_VERSION ? LYCHEE_SESSION_ERROR_VERSION
                                                       : LYCHEE_SESSION_ERROR_DAMAGED;
  (*error)->domain = LYCHEE_SESSION_ERROR;
  (*error)->code = code;
}

static GVariant *
describe_chunks (LycheeCache *cache)
{
  GVariantBuilder b;
  LycheeChunk *chunk;
  guint position;

  g_variant_builder_init (&b, G_VARIANT_TYPE ("a" CHUNK_TYPE));
  for (guint i = 0; (chunk = lychee_cache_get_chunk (cache, i, &position)); i++) {
    GVariant *ids = g_variant_new_fixed_array (
        G_VARIANT_TYPE_BYTE, chunk->ids, chunk->n_ids * sizeof (gint32), 1);

    g_variant_builder_add (&b, "(u@aymsmsttyd)", position, ids, chunk->text, chunk->speaker,
        chunk->pts, chunk->duration, (guchar) chunk->boundary, (double) chunk->drift);
    lychee_chunk_unref (chunk);
  }
  return g_variant_builder_end (&b);
}

/* Where in each chunk other cues begin. */
static GVariant *
describe_parts (LycheeCache *cache)
{
  GVariantBuilder b;
  LycheeChunk *chunk;

  G_STATIC_ASSERT (sizeof (LycheeChunkPart) == 16);
  g_variant_builder_init (&b, G_VARIANT_TYPE ("aa" PART_TYPE));
  for (guint i = 0; (chunk = lychee_cache_get_chunk (cache, i, NULL)); i++) {
    guint n;
    const LycheeChunkPart *parts = lychee_chunk_get_parts (chunk, &n);

    g_variant_builder_add_value (
        &b, g_variant_new_fixed_array (G_VARIANT_TYPE (PART_TYPE), parts, n, sizeof *parts));
    lychee_chunk_unref (chunk);
  }
  return g_variant_builder_end (&b);
}

static GVariant *
describe (LycheeSession *s, LycheeCache *cache, LycheeChatFormat template)
{
  const LycheeCacheIndexing *indexing = lychee_cache_get_indexing (cache);
  LycheeCacheExtent extent;
  guint n_start;
  const gint32 *start = lychee_cache_get_start (cache, &n_start);
  guint64 left_out, forgotten;
  GVariantBuilder b;

  lychee_cache_get_extent (cache, &extent);
  lychee_cache_get_lost (cache, &left_out, &forgotten);
  g_variant_builder_init (&b, G_VARIANT_TYPE_VARDICT);
  g_variant_builder_add (
      &b, "{sv}", "model", g_variant_new_string (lychee_model_get_id (s->model)));
  g_variant_builder_add (&b, "{sv}", "model-name",
      g_variant_new_string (
          lychee_model_get_name (s->model) ? lychee_model_get_name (s->model) : ""));
  g_variant_builder_add (&b, "{sv}", "type",
      g_variant_new_string (lychee_cache_get_form (cache) == LYCHEE_ROW_Q8_0 ? "q8_0" : "f16"));
  g_variant_builder_add (
      &b, "{sv}", "page-tokens", g_variant_new_uint32 (LYCHEE_CACHE_PAGE_TOKENS));
  g_variant_builder_add (&b, "{sv}", "template", g_variant_new_uint32 (template));
  g_variant_builder_add (
      &b, "{sv}", "system-prompt", g_variant_new_string (s->system_prompt ? s->system_prompt : ""));
  g_variant_builder_add (
      &b, "{sv}", "max-context", g_variant_new_uint32 (lychee_cache_get_max_tokens (cache)));
  g_variant_builder_add (
      &b, "{sv}", "rope-context", g_variant_new_uint32 (lychee_cache_get_rope_context (cache)));
  g_variant_builder_add (
      &b, "{sv}", "packed", g_variant_new_boolean (lychee_cache_get_packed (cache)));
  g_variant_builder_add (&b, "{sv}", "bare", g_variant_new_boolean (lychee_cache_is_bare (cache)));
  g_variant_builder_add (
      &b, "{sv}", "bare-indexes", g_variant_new_uint32 (lychee_cache_get_n_bare_indexes (cache)));
  g_variant_builder_add (&b, "{sv}", "indexed", g_variant_new_boolean (indexing != NULL));
  if (indexing) {
    g_variant_builder_add (&b, "{sv}", "granularity", g_variant_new_uint32 (indexing->granularity));
    g_variant_builder_add (&b, "{sv}", "sinks", g_variant_new_uint32 (indexing->sinks));
    g_variant_builder_add (&b, "{sv}", "window", g_variant_new_uint32 (indexing->window));
  }
  g_variant_builder_add (&b, "{sv}", "length", g_variant_new_uint32 (extent.length));
  g_variant_builder_add (&b, "{sv}", "head", g_variant_new_uint32 (extent.head));
  g_variant_builder_add (&b, "{sv}", "skip", g_variant_new_uint32 (extent.skip));
  g_variant_builder_add (
      &b, "{sv}", "limited", g_variant_new_boolean (lychee_cache_get_local_window (cache) > 0));
  g_variant_builder_add (&b, "{sv}", "local-begin", g_variant_new_uint32 (extent.local_begin));
  g_variant_builder_add (&b, "{sv}", "tokens-left-out", g_variant_new_uint64 (left_out));
  g_variant_builder_add (&b, "{sv}", "tokens-forgotten", g_variant_new_uint64 (forgotten));
  g_variant_builder_add (&b, "{sv}", "start",
      g_variant_new_fixed_array (G_VARIANT_TYPE_INT32, start, n_start, sizeof *start));
  g_variant_builder_add (&b, "{sv}", "parts", describe_parts (cache));
  return g_variant_builder_end (&b);
}

/* Takes @variant. */
static gboolean
write_variant (LycheeFileWriter *writer, guint32 kind, GVariant *variant, GError **error)
{
  g_autoptr (GVariant) own = g_variant_ref_sink (variant);
  g_autoptr (GBytes) bytes = g_variant_get_data_as_bytes (own);

  lychee_file_writer_begin (writer, kind, 0);
  return lychee_file_writer_write (
             writer, g_bytes_get_data (bytes, NULL), g_bytes_get_size (bytes), error) &&
         lychee_file_writer_end (writer, error);
}

/**
 * lychee_session_save:
 * @session: a session
 * @path: (type filename): a file
 * @cancellable: (nullable): a cancellable
 * @error: return location for an error
 *
 * Writes what was read: keys and values, index, texts and times. What
 * [method@Session.append_text] holds back is not in it: call [method@Session.flush] before.
 *
 * The file at @path is replaced when all of the new one is on the disk; whatever goes wrong, there
 * is the old one or the new one. It holds the transcript: keep it as you would keep that.
 *
 * May be called in any thread; reading and answering go on meanwhile.
 *
 * Returns: FALSE with %LYCHEE_SESSION_ERROR_WRITE, %LYCHEE_SESSION_ERROR_EMPTY where nothing was
 *   read, %LYCHEE_CACHE_ERROR_NO_MEMORY, or %G_IO_ERROR_CANCELLED
 */
gboolean
lychee_session_save (
    LycheeSession *session, const char *path, GCancellable *cancellable, GError **error)
{
  LycheeChatFormat template;
  g_autoptr (LycheeCache) cache = NULL;
  g_autoptr (LycheeCache) fork = NULL;
  g_autoptr (LycheeFileWriter) writer = NULL;
  gboolean ok;

  g_return_val_if_fail (LYCHEE_IS_SESSION (session), FALSE);
  g_return_val_if_fail (path != NULL, FALSE);

  cache = lychee_session_ref_cache (session, &template);
  fork = lychee_cache_fork (cache, error);
  if (!fork)
    return FALSE;
  if (lychee_cache_get_length (fork) == 0) {
    g_set_error_literal (error, LYCHEE_SESSION_ERROR, LYCHEE_SESSION_ERROR_EMPTY,
        "There is nothing to save: nothing was read");
    return FALSE;
  }
  writer = lychee_file_writer_new (path, error);
  ok = writer && lychee_cache_save (fork, writer, cancellable, error) &&
       write_variant (writer, SECTION_CHUNKS, describe_chunks (fork), error) &&
       write_variant (writer, SECTION_META, describe (session, fork, template), error) &&
       lychee_file_writer_finish (writer, error);
  if (!ok)
    translate_error (error);
  return ok;
}

/* (transfer full) (nullable): NULL where the section is not there, or is nothing of that type. */
static GVariant *
read_variant (LycheeFile *file, guint32 kind, const char *type)
{
  gsize size;
  gconstpointer data = lychee_file_get (file, kind, 0, &size);
  g_autoptr (GBytes) bytes = NULL;
  g_autoptr (GVariant) variant = NULL;

  if (!data)
    return NULL;
  bytes = g_bytes_new (data, size);
  variant = g_variant_ref_sink (g_variant_new_from_bytes (G_VARIANT_TYPE (type), bytes, FALSE));
  return g_variant_is_normal_form (variant) ? g_steal_pointer (&variant) : NULL;
}

typedef struct {
  const char *model, *model_name, *type, *system_prompt;
  guint page_tokens, template, max_context, rope_context, n_bare_indexes;
  guint granularity, sinks, window;
  LycheeCacheExtent extent;
  gboolean packed, bare, indexed, limited; /* local layers keep only their window */
  guint64 left_out, forgotten;
} Description;

/* Whether @value is one of the enumeration, whatever was added to that. */
static gboolean
is_value (GType type, guint value)
{
  GEnumClass *enumeration = g_type_class_ref (type);
  gboolean known = value <= G_MAXINT && g_enum_get_value (enumeration, value) != NULL;

  g_type_class_unref (enumeration);
  return known;
}

static gboolean
parse_description (GVariant *meta, Description *d)
{
  *d = (Description){ 0 };
  if (!g_variant_lookup (meta, "model", "&s", &d->model) ||
      !g_variant_lookup (meta, "model-name", "&s", &d->model_name) ||
      !g_variant_lookup (meta, "type", "&s", &d->type) ||
      !g_variant_lookup (meta, "system-prompt", "&s", &d->system_prompt) ||
      !g_variant_lookup (meta, "page-tokens", "u", &d->page_tokens) ||
      !g_variant_lookup (meta, "template", "u", &d->template) ||
      !g_variant_lookup (meta, "max-context", "u", &d->max_context) ||
      !g_variant_lookup (meta, "rope-context", "u", &d->rope_context) ||
      !g_variant_lookup (meta, "packed", "b", &d->packed) ||
      !g_variant_lookup (meta, "indexed", "b", &d->indexed) ||
      !g_variant_lookup (meta, "length", "u", &d->extent.length) ||
      !g_variant_lookup (meta, "head", "u", &d->extent.head) ||
      !g_variant_lookup (meta, "skip", "u", &d->extent.skip) ||
      !g_variant_lookup (meta, "tokens-left-out", "t", &d->left_out) ||
      !g_variant_lookup (meta, "tokens-forgotten", "t", &d->forgotten))
    return FALSE;
  if (d->indexed && (!g_variant_lookup (meta, "granularity", "u", &d->granularity) ||
                        !g_variant_lookup (meta, "sinks", "u", &d->sinks) ||
                        !g_variant_lookup (meta, "window", "u", &d->window)))
    return FALSE;
  /* Where nothing is said of it, packed positions were so from the first token on. */
  if (!g_variant_lookup (meta, "bare", "b", &d->bare) ||
      !g_variant_lookup (meta, "bare-indexes", "u", &d->n_bare_indexes)) {
    d->bare = d->packed;
    d->n_bare_indexes = G_MAXUINT;
  }
  /* Where nothing is said of it, all is held. */
  g_variant_lookup (meta, "limited", "b", &d->limited);
  g_variant_lookup (meta, "local-begin", "u", &d->extent.local_begin);
  return is_value (LYCHEE_TYPE_CHAT_FORMAT, d->template) &&
         d->template != LYCHEE_CHAT_FORMAT_AUTO &&
         is_value (LYCHEE_TYPE_GRANULARITY, d->granularity) && d->sinks <= 65536 &&
         d->window <= 65536 && d->max_context > 0 && d->max_context <= 1u << 24 &&
         d->extent.length > 0;
}

/* Whether ids are those of the model. */
static gboolean
check_ids (LycheeSession *s, const gint32 *ids, gsize n)
{
  gint32 n_vocab = lychee_model_get_n_vocab (s->model);

  for (gsize i = 0; i < n; i++)
    if (ids[i] < 0 || ids[i] >= n_vocab)
      return FALSE;
  return TRUE;
}

/* Whether each is at a later token of the chunk than the one before, and at a character of its
 * text.
 */
static gboolean
check_parts (const LycheeChunkPart *parts, gsize n, gsize n_ids, const char *text)
{
  gsize length = strlen (text), byte = 0, token = 0;

  for (gsize i = 0; i < n; i++) {
    if (parts[i].token <= token || parts[i].token >= n_ids || parts[i].byte < byte ||
        parts[i].byte > length || ((guchar) text[parts[i].byte] & 0xc0) == 0x80)
      return FALSE;
    token = parts[i].token;
    byte = parts[i].byte;
  }
  return TRUE;
}

/* Lists the chunks in the cache: they follow each other up to its end. @parts (nullable): of each
 * of them, where there are any. */
static gboolean
load_chunks (LycheeSession *s, LycheeCache *cache, GVariant *chunks, GVariant *parts)
{
  guint length = lychee_cache_get_length (cache), at = 0, n = 0, position, head, skip;
  const char *text, *speaker;
  guint64 pts, duration;
  guchar boundary;
  double drift;
  GVariant *bytes;
  GVariantIter iter;
  gboolean ok = TRUE;

  lychee_cache_get_hole (cache, &head, &skip);
  at = head + skip;
  if (parts && g_variant_n_children (parts) != g_variant_n_children (chunks))
    return FALSE;
  g_variant_iter_init (&iter, chunks);
  while (ok && g_variant_iter_next (&iter, "(u@aym&sm&sttyd)", &position, &bytes, &text, &speaker,
                   &pts, &duration, &boundary, &drift)) {
    gsize size;
    gconstpointer data = g_variant_get_fixed_array (bytes, &size, 1);
    g_autofree gint32 *ids = g_memdup2 (data, size);
    gsize n_ids = size / sizeof *ids, n_own = 0;
    g_autoptr (GVariant) own = parts ? g_variant_get_child_value (parts, n) : NULL;
    const LycheeChunkPart *of = own ? g_variant_get_fixed_array (own, &n_own, sizeof *of) : NULL;

    ok = text && size % sizeof *ids == 0 && n_ids > 0 && position >= at && position <= length &&
         n_ids <= length - position && is_value (LYCHEE_TYPE_BOUNDARY, boundary) &&
         check_ids (s, ids, n_ids) && check_parts (of, n_own, n_ids, text);
    if (ok) {
      g_autoptr (LycheeChunk) chunk = lychee_chunk_new_in_parts (
          ids, n_ids, text, speaker, pts, duration, boundary, (float) drift, n++, of, n_own);

      lychee_cache_add_chunk (cache, chunk, position);
      at = position + n_ids;
    }
    g_variant_unref (bytes);
  }
  return ok;
}

/* (transfer full) (nullable): the cache that @file holds. */
static LycheeCache *
load_cache (LycheeSession *s, LycheeFile *file, GVariant *meta, const Description *d,
    const char *path, GError **error)
{
  g_autoptr (GVariant) chunks = read_variant (file, SECTION_CHUNKS, "a" CHUNK_TYPE);
  g_autoptr (GVariant) start = g_variant_lookup_value (meta, "start", G_VARIANT_TYPE ("ai"));
  g_autoptr (GVariant) parts =
      g_variant_lookup_value (meta, "parts", G_VARIANT_TYPE ("aa" PART_TYPE));
  g_autoptr (LycheeCache) cache = NULL;
  LycheeRowForm form = g_str_equal (d->type, "q8_0") ? LYCHEE_ROW_Q8_0 : LYCHEE_ROW_F16;
  const gint32 *ids = NULL;
  gsize n_ids = 0;

  if (chunks && start)
    ids = g_variant_get_fixed_array (start, &n_ids, sizeof *ids);
  if (lychee_cache_has_form (lychee_model_get_head_dim (s->model), form) && chunks && start &&
      n_ids <= d->extent.length && check_ids (s, ids, n_ids) &&
      (d->extent.skip == 0 || d->extent.head == n_ids)) {
    cache = lychee_cache_new (lychee_model_get_n_layers (s->model),
        lychee_model_get_n_kv_heads (s->model), lychee_model_get_head_dim (s->model),
        d->max_context, s->max_memory);
    lychee_cache_set_rope_context (cache, d->rope_context);
    lychee_cache_set_packed (cache, d->packed);
    if (d->packed && d->bare)
      lychee_cache_set_bare (cache, d->n_bare_indexes);
    lychee_cache_set_form (cache, form);
    if (d->limited)
      lychee_model_limit_layers (s->model, cache);
    if (d->indexed) {
      LycheeCacheIndexing indexing = { d->granularity, d->sinks, d->window };

      lychee_model_describe_indexing (s->model, &indexing);
      lychee_cache_enable_index (cache, &indexing);
    }
    if (!lychee_cache_load (cache, file, &d->extent, error)) {
      g_prefix_error (error, "“%s”: ", path);
      return NULL;
    }
    if (load_chunks (s, cache, chunks, parts)) {
      lychee_cache_set_start (cache, ids, n_ids);
      lychee_cache_count_lost (cache, d->left_out, d->forgotten);
      return g_steal_pointer (&cache);
    }
  }
  g_set_error (error, LYCHEE_FILE_ERROR, LYCHEE_FILE_ERROR_DAMAGED,
      "“%s” cannot be used: what is in it does not fit together", path);
  return NULL;
}

/* Puts the loaded cache in the place of the session's own. With reading held. */
static void
take_cache (LycheeSession *s, LycheeCache *cache, const Description *d)
{
  g_autoptr (LycheeCache) old = NULL;

  lychee_session_text_forget (s);
  g_mutex_lock (&s->lock);
  old = s->cache;
  s->cache = g_object_ref (cache);
  s->template = d->template;
  if (d->indexed) {
    s->granularity = d->granularity;
    s->sinks = d->sinks;
    s->window = d->window;
  }
  g_free (s->system_prompt);
  s->system_prompt = g_strdup (d->system_prompt);
  s->begun = TRUE;
  g_mutex_unlock (&s->lock);
}

/**
 * lychee_session_load:
 * @session: a session
 * @path: (type filename): a file that [method@Session.save] wrote
 * @cancellable: (nullable): a cancellable
 * @error: return location for an error
 *
 * Goes on where the saved session stopped: in place of what this one has read. Nothing is read
 * again, and the next answer is the one that the saved session would have given.
 *
 * The file is mapped: it is read as it is needed, and must not be altered in place while the
 * session lives; saving to the same path makes a new file, and is safe. What reading depends on is
 * taken from the file: system-prompt, template, max-context, positions, cache-type, granularity,
 * sinks and window.
 *
 * May be called in any thread. Answers under way are not affected.
 *
 * Returns: FALSE, and the session is as it was, with %LYCHEE_SESSION_ERROR_READ,
 *   %LYCHEE_SESSION_ERROR_DAMAGED (cut short or altered), %LYCHEE_SESSION_ERROR_VERSION,
 *   %LYCHEE_SESSION_ERROR_MODEL (saved with another model), %LYCHEE_CACHE_ERROR_NO_MEMORY
 *   (max-memory), or %G_IO_ERROR_CANCELLED
 */
gboolean
lychee_session_load (
    LycheeSession *session, const char *path, GCancellable *cancellable, GError **error)
{
  g_autoptr (LycheeFile) file = NULL;
  g_autoptr (GVariant) meta = NULL;
  g_autoptr (LycheeCache) cache = NULL;
  const char *const types[] = { "f16", "q8_0", NULL };
  Description d;

  g_return_val_if_fail (LYCHEE_IS_SESSION (session), FALSE);
  g_return_val_if_fail (path != NULL, FALSE);

  file = lychee_file_open (path, cancellable, error);
  if (!file) {
    translate_error (error);
    return FALSE;
  }
  meta = read_variant (file, SECTION_META, "a{sv}");
  if (!meta || !parse_description (meta, &d)) {
    g_set_error (error, LYCHEE_SESSION_ERROR, LYCHEE_SESSION_ERROR_DAMAGED,
        "“%s” cannot be used: it does not say what is in it", path);
    return FALSE;
  }
  if (strcmp (d.model, lychee_model_get_id (session->model)) != 0) {
    g_set_error (error, LYCHEE_SESSION_ERROR, LYCHEE_SESSION_ERROR_MODEL,
        "“%s” was saved with another model (%s, %s): load that one, not “%s” (%s)", path,
        *d.model_name ? d.model_name : "without a name", d.model,
        lychee_model_get_path (session->model), lychee_model_get_id (session->model));
    return FALSE;
  }
  if (!g_strv_contains (types, d.type) || d.page_tokens != LYCHEE_CACHE_PAGE_TOKENS) {
    g_set_error (error, LYCHEE_SESSION_ERROR, LYCHEE_SESSION_ERROR_VERSION,
        "“%s” was saved by another version of Lychee", path);
    return FALSE;
  }
  cache = load_cache (session, file, meta, &d, path, error);
  if (!cache) {
    translate_error (error);
    return FALSE;
  }
  g_mutex_lock (&session->reading);
  take_cache (session, cache, &d);
  g_mutex_unlock (&session->reading);
  return TRUE;
}
