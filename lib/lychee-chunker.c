/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "lychee-chunker.h"

#include "lychee-text-properties.h"

#include <math.h>
#include <string.h>

/**
 * LycheeChunker:
 *
 * Cuts a stream of tokens at natural places.
 *
 * A chunk has [property@Lychee.Chunker:min-tokens] to [property@Lychee.Chunker:max-tokens] tokens
 * and ends at the strongest delimiter in that range: the end of a sentence before a clause mark
 * before the end of a word before anything else. Of equals the latest is taken, those before a
 * space ahead of those behind it, since the space belongs to the next word. A paragraph and a
 * change of speaker end a chunk at once, however short it is.
 *
 * Places are judged by the Unicode properties of the text around them, in all scripts, so text
 * need not be of one language. A place is settled once the text behind it has said what it is
 * (the next character, or the one behind a space or quotation mark), at most eight tokens later;
 * so the chunks depend on the sequence of tokens alone.
 *
 * Text may be given in parts of characters: a character's text is in the chunk that holds the last
 * of its tokens. What is not UTF-8 becomes U+FFFD, and so does NUL, since text is a C string.
 */

#define DEFAULT_MIN_TOKENS 8
#define DEFAULT_MAX_TOKENS 16
#define MAX_MAX_TOKENS 65536
/* Tokens that a place waits to be settled. */
#define MAX_WAIT 8
/* Bytes of closed chunks that are kept to judge the first places of the open one. */
#define CONTEXT_BYTES 128

typedef struct {
  gint32 id;
  gboolean empty;   /* brought no bytes: a control token, or the rest of a character */
  gboolean partial; /* ends inside a character */
  gsize end;        /* where its whole characters end in the text */
  guint64 pts;
  guint64 duration;
  LycheeBoundary boundary; /* of the place behind it; set once settled */
  float drift;
  gint rank; /* better places are higher */
} OpenToken;

struct _LycheeChunker {
  GObject parent;

  guint min_tokens;
  guint max_tokens;

  GArray *tokens;  /* of OpenToken: those of no chunk yet */
  guint n_settled; /* places behind the first so many tokens are settled */
  GString *text;   /* some text of closed chunks, then that of the open tokens: valid UTF-8 */
  gsize start;     /* where the open tokens' text begins in it */
  char partial[8]; /* the bytes of a character that has begun */
  guint n_partial;
  char *speaker; /* of all open tokens */
  GArray *ids;   /* scratch */
  guint64 number;
};

enum {
  PROP_MIN_TOKENS = 1,
  PROP_MAX_TOKENS,
  N_PROPS,
};

static GParamSpec *props[N_PROPS];

G_DEFINE_FINAL_TYPE (LycheeChunker, lychee_chunker, G_TYPE_OBJECT)

static OpenToken *
get_token (LycheeChunker *chunker, guint i)
{
  return &g_array_index (chunker->tokens, OpenToken, i);
}

/* Appends bytes in any pieces to the text, as whole characters. Returns whether one of them lets
 * the places before it be settled. */
static gboolean
append_text (LycheeChunker *chunker, const char *bytes, gsize length)
{
  gsize from = chunker->text->len;
  const char *at;

  while (length > 0) {
    const char *end;
    gsize taken;

    if (chunker->n_partial == 0) {
      g_utf8_validate_len (bytes, length, &end);
      g_string_append_len (chunker->text, bytes, end - bytes);
      length -= end - bytes;
      bytes = end;
      if (length == 0)
        break;
    }
    /* One byte at a time, over what is invalid or cut. */
    chunker->partial[chunker->n_partial++] = *bytes++;
    length--;
    while (chunker->n_partial > 0) {
      /* To GLib, NUL is the end of the text, not a character. */
      gunichar c = memchr (chunker->partial, '\0', chunker->n_partial) != NULL
                       ? (gunichar) -1
                       : g_utf8_get_char_validated (chunker->partial, chunker->n_partial);

      if (c == (gunichar) -2)
        break;
      taken = c == (gunichar) -1 ? 1 : g_utf8_skip[(guchar) chunker->partial[0]];
      g_string_append_unichar (chunker->text, c == (gunichar) -1 ? 0xFFFD : c);
      chunker->n_partial -= taken;
      memmove (chunker->partial, chunker->partial + taken, chunker->n_partial);
    }
  }
  for (at = chunker->text->str + from; *at != '\0'; at = g_utf8_next_char (at))
    if (lychee_text_is_decisive (g_utf8_get_char (at)))
      return TRUE;
  return FALSE;
}

/* A character that was begun will not be finished. */
static void
abandon_partial (LycheeChunker *chunker)
{
  if (chunker->n_partial == 0)
    return;
  chunker->n_partial = 0;
  if (chunker->tokens->len > 0) {
    OpenToken *last = get_token (chunker, chunker->tokens->len - 1);

    g_string_append_unichar (chunker->text, 0xFFFD);
    last->end = chunker->text->len;
    last->partial = FALSE;
  }
}

/* Semantic drift at the place behind token @i: what else than text can make a boundary. The
 * structural detector computes none. */
static float
measure_drift (LycheeChunker *chunker, guint i)
{
  return NAN;
}

/* Judges the place behind token @i, all of the text that can matter being there. */
static void
settle_place (LycheeChunker *chunker, guint i)
{
  OpenToken *token = get_token (chunker, i);
  const OpenToken *next = i + 1 < chunker->tokens->len ? get_token (chunker, i + 1) : NULL;
  LycheeTextPlace place = { LYCHEE_BOUNDARY_NONE, LYCHEE_TEXT_JOINT_CHARACTER, FALSE };

  token->drift = measure_drift (chunker, i);
  if (!token->partial && !(next != NULL && next->empty))
    place = lychee_text_examine (chunker->text->str, chunker->text->len, token->end,
        next != NULL ? next->end : chunker->text->len);
  token->boundary = place.boundary;
  token->rank = place.joint != LYCHEE_TEXT_JOINT_NONE
                    ? -(gint) place.joint
                    : 2 * (gint) place.boundary + !place.after_space;
}

static gboolean
has_words (LycheeChunker *chunker, gsize end)
{
  for (gsize at = chunker->start; at < end; at += g_utf8_skip[(guchar) chunker->text->str[at]])
    if (!lychee_text_is_space (g_utf8_get_char (chunker->text->str + at)))
      return TRUE;
  return FALSE;
}

/* Closes the first @n open tokens into a chunk. */
static void
close_chunk (LycheeChunker *chunker, guint n, LycheeBoundary boundary, GPtrArray *chunks)
{
  gsize end = get_token (chunker, n - 1)->end;
  guint64 pts = LYCHEE_TIME_NONE, end_time = LYCHEE_TIME_NONE, duration = LYCHEE_TIME_NONE;
  g_autofree char *text = g_strndup (chunker->text->str + chunker->start, end - chunker->start);
  gsize keep;

  g_array_set_size (chunker->ids, 0);
  for (guint i = 0; i < n; i++) {
    const OpenToken *token = get_token (chunker, i);

    g_array_append_val (chunker->ids, token->id);
    if (token->pts == LYCHEE_TIME_NONE)
      continue;
    if (pts == LYCHEE_TIME_NONE)
      pts = token->pts;
    if (token->duration != LYCHEE_TIME_NONE) {
      guint64 token_end = token->duration < LYCHEE_TIME_NONE - token->pts
                              ? token->pts + token->duration
                              : LYCHEE_TIME_NONE - 1;

      if (end_time == LYCHEE_TIME_NONE || token_end > end_time)
        end_time = token_end;
    }
  }
  if (end_time != LYCHEE_TIME_NONE)
    duration = end_time > pts ? end_time - pts : 0;

  g_ptr_array_add (
      chunks, lychee_chunk_new ((const gint32 *) chunker->ids->data, n, text, chunker->speaker, pts,
                  duration, boundary, get_token (chunker, n - 1)->drift, chunker->number++));

  g_array_remove_range (chunker->tokens, 0, n);
  chunker->n_settled -= MIN (n, chunker->n_settled);
  keep = end > CONTEXT_BYTES ? end - CONTEXT_BYTES : 0;
  while (keep < end && ((guchar) chunker->text->str[keep] & 0xC0) == 0x80)
    keep++;
  g_string_erase (chunker->text, 0, keep);
  chunker->start = end - keep;
  for (guint i = 0; i < chunker->tokens->len; i++)
    get_token (chunker, i)->end -= keep;
}

/* The number of tokens up to the first paragraph among the settled places, or 0. */
static guint
find_paragraph (LycheeChunker *chunker)
{
  guint n = MIN (chunker->n_settled, chunker->max_tokens);

  for (guint i = 0; i < n; i++) {
    OpenToken *token = get_token (chunker, i);

    if (token->boundary != LYCHEE_BOUNDARY_PARAGRAPH)
      continue;
    if (has_words (chunker, token->end))
      return i + 1;
    /* Empty lines with nothing before them part nothing. */
    token->boundary = LYCHEE_BOUNDARY_WORD;
    token->rank = 2 * LYCHEE_BOUNDARY_WORD;
  }
  return 0;
}

/* The best number of tokens for a chunk of @low to @high. */
static guint
find_best (LycheeChunker *chunker, guint low, guint high)
{
  guint best = high;

  for (guint n = high; n >= MAX (low, 1); n--)
    if (get_token (chunker, n - 1)->rank > get_token (chunker, best - 1)->rank)
      best = n;
  return best;
}

/* Closes every chunk that is settled. */
static void
close_settled (LycheeChunker *chunker, GPtrArray *chunks)
{
  for (;;) {
    guint n = find_paragraph (chunker);

    if (n == 0 && chunker->n_settled >= chunker->max_tokens)
      n = find_best (chunker, MIN (chunker->min_tokens, chunker->max_tokens), chunker->max_tokens);
    if (n == 0)
      break;
    close_chunk (chunker, n, get_token (chunker, n - 1)->boundary, chunks);
  }
}

/* Closes all open tokens; the last chunk's boundary is @boundary. */
static void
close_all (LycheeChunker *chunker, LycheeBoundary boundary, GPtrArray *chunks)
{
  abandon_partial (chunker);
  for (guint i = chunker->n_settled; i < chunker->tokens->len; i++)
    settle_place (chunker, i);
  /* The last place is what the caller says, whatever the text. */
  if (chunker->tokens->len > 0)
    chunker->n_settled = chunker->tokens->len - 1;

  while (chunker->tokens->len > 0) {
    guint n_open = chunker->tokens->len, min = MIN (chunker->min_tokens, chunker->max_tokens);
    guint n = find_paragraph (chunker), high = chunker->max_tokens;

    if (n == 0 && n_open > chunker->max_tokens) {
      /* Leave the last chunk its minimum, if that can be. */
      if (n_open >= 2 * min)
        high = MIN (high, n_open - min);
      n = find_best (chunker, min, high);
    }
    if (n == 0)
      break;
    close_chunk (chunker, n, get_token (chunker, n - 1)->boundary, chunks);
  }
  if (chunker->tokens->len > 0)
    close_chunk (chunker, chunker->tokens->len, boundary, chunks);

  /* What comes next does not go on with this text. */
  g_string_truncate (chunker->text, 0);
  chunker->start = 0;
  chunker->n_settled = 0;
}

/**
 * lychee_chunker_new:
 * @min_tokens: the fewest tokens of a chunk
 * @max_tokens: the most tokens of a chunk
 *
 * Returns: (transfer full): a chunker with nothing open
 */
LycheeChunker *
lychee_chunker_new (guint min_tokens, guint max_tokens)
{
  return g_object_new (
      LYCHEE_TYPE_CHUNKER, "min-tokens", min_tokens, "max-tokens", max_tokens, NULL);
}

/**
 * lychee_chunker_push:
 * @chunker: a chunker
 * @token: the next token
 * @chunks: (element-type LycheeChunk): where settled chunks are appended (transfer full)
 *
 * Gives a token to the chunker.
 */
void
lychee_chunker_push (LycheeChunker *chunker, const LycheeChunkerToken *token, GPtrArray *chunks)
{
  OpenToken open = { 0 };
  gboolean decisive;

  g_return_if_fail (LYCHEE_IS_CHUNKER (chunker));
  g_return_if_fail (token != NULL && chunks != NULL);
  g_return_if_fail (token->text != NULL || token->text_length == 0);

  if (token->paragraph)
    close_all (chunker, LYCHEE_BOUNDARY_PARAGRAPH, chunks);
  if (g_strcmp0 (token->speaker, chunker->speaker) != 0) {
    close_all (chunker, LYCHEE_BOUNDARY_SPEAKER, chunks);
    g_free (chunker->speaker);
    chunker->speaker = g_strdup (token->speaker);
  }

  decisive = append_text (chunker, token->text, token->text_length);
  open.id = token->id;
  open.empty = token->text_length == 0;
  open.partial = chunker->n_partial > 0;
  open.end = chunker->text->len;
  open.pts = token->pts;
  open.duration = token->duration;
  g_array_append_val (chunker->tokens, open);

  if (decisive || chunker->tokens->len - chunker->n_settled > MAX_WAIT)
    for (; chunker->n_settled + 1 < chunker->tokens->len; chunker->n_settled++)
      settle_place (chunker, chunker->n_settled);
  close_settled (chunker, chunks);
}

/**
 * lychee_chunker_drain:
 * @chunker: a chunker
 * @chunks: (element-type LycheeChunk): where the chunks are appended (transfer full)
 *
 * Closes the open tokens: the stream ended, is silent, or is flushed out. Chunk numbers go on.
 */
void
lychee_chunker_drain (LycheeChunker *chunker, GPtrArray *chunks)
{
  g_return_if_fail (LYCHEE_IS_CHUNKER (chunker));
  g_return_if_fail (chunks != NULL);

  close_all (chunker, LYCHEE_BOUNDARY_END, chunks);
}

/**
 * lychee_chunker_reset:
 * @chunker: a chunker
 *
 * Forgets the open tokens and the speaker; chunk numbers start at 0 again.
 */
void
lychee_chunker_reset (LycheeChunker *chunker)
{
  g_return_if_fail (LYCHEE_IS_CHUNKER (chunker));

  g_array_set_size (chunker->tokens, 0);
  g_string_truncate (chunker->text, 0);
  g_clear_pointer (&chunker->speaker, g_free);
  chunker->start = 0;
  chunker->n_settled = 0;
  chunker->n_partial = 0;
  chunker->number = 0;
}

/**
 * lychee_chunker_get_n_open:
 * @chunker: a chunker
 *
 * Returns: tokens that are in no chunk yet
 */
guint
lychee_chunker_get_n_open (LycheeChunker *chunker)
{
  g_return_val_if_fail (LYCHEE_IS_CHUNKER (chunker), 0);
  return chunker->tokens->len;
}

static void
lychee_chunker_set_property (GObject *object, guint id, const GValue *value, GParamSpec *pspec)
{
  LycheeChunker *chunker = LYCHEE_CHUNKER (object);

  switch (id) {
  case PROP_MIN_TOKENS:
    chunker->min_tokens = g_value_get_uint (value);
    break;
  case PROP_MAX_TOKENS:
    chunker->max_tokens = g_value_get_uint (value);
    break;
  default:
    G_OBJECT_WARN_INVALID_PROPERTY_ID (object, id, pspec);
  }
}

static void
lychee_chunker_get_property (GObject *object, guint id, GValue *value, GParamSpec *pspec)
{
  LycheeChunker *chunker = LYCHEE_CHUNKER (object);

  switch (id) {
  case PROP_MIN_TOKENS:
    g_value_set_uint (value, chunker->min_tokens);
    break;
  case PROP_MAX_TOKENS:
    g_value_set_uint (value, chunker->max_tokens);
    break;
  default:
    G_OBJECT_WARN_INVALID_PROPERTY_ID (object, id, pspec);
  }
}

static void
lychee_chunker_finalize (GObject *object)
{
  LycheeChunker *chunker = LYCHEE_CHUNKER (object);

  g_array_unref (chunker->tokens);
  g_array_unref (chunker->ids);
  g_string_free (chunker->text, TRUE);
  g_free (chunker->speaker);
  G_OBJECT_CLASS (lychee_chunker_parent_class)->finalize (object);
}

static void
lychee_chunker_class_init (LycheeChunkerClass *klass)
{
  GObjectClass *object_class = G_OBJECT_CLASS (klass);
  GParamFlags flags = G_PARAM_READWRITE | G_PARAM_CONSTRUCT | G_PARAM_STATIC_STRINGS;

  object_class->set_property = lychee_chunker_set_property;
  object_class->get_property = lychee_chunker_get_property;
  object_class->finalize = lychee_chunker_finalize;

  /**
   * LycheeChunker:min-tokens:
   *
   * The fewest tokens of a chunk, but at a paragraph, a change of speaker or the end. More than
   * max-tokens counts as max-tokens.
   */
  props[PROP_MIN_TOKENS] = g_param_spec_uint ("min-tokens", "Minimum tokens",
      "The fewest tokens of a chunk that no paragraph, speaker or end cuts short", 1,
      MAX_MAX_TOKENS, DEFAULT_MIN_TOKENS, flags);
  /**
   * LycheeChunker:max-tokens:
   *
   * The most tokens of a chunk.
   */
  props[PROP_MAX_TOKENS] = g_param_spec_uint ("max-tokens", "Maximum tokens",
      "The most tokens of a chunk", 1, MAX_MAX_TOKENS, DEFAULT_MAX_TOKENS, flags);
  g_object_class_install_properties (object_class, N_PROPS, props);
}

static void
lychee_chunker_init (LycheeChunker *chunker)
{
  chunker->tokens = g_array_new (FALSE, FALSE, sizeof (OpenToken));
  chunker->ids = g_array_new (FALSE, FALSE, sizeof (gint32));
  chunker->text = g_string_new (NULL);
}
