/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Text to chunks: what the elements lycheetokenizer and lycheechunker do in a pipeline. */
#include "lychee-chunker.h"
#include "lychee-session-private.h"
#include "lychee-text-join.h"

#include <string.h>

/* Text that was given together. */
typedef struct {
  char *speaker;
  guint64 start, end; /* in time */
  guint64 stop;       /* where it ends in all text, in bytes */
} Piece;

struct _LycheeSessionText {
  LycheeEncoder *encoder;
  LycheeChunker *chunker;
  GQueue pieces;    /* of Piece: those that tokens may still come of */
  GByteArray *held; /* text that tokens may still come of */
  guint64 held_at;  /* where it begins in all text */
  guint64 length;   /* of all text */
  LycheeTextJoiner *joiner;
  GArray *tokens;    /* of LycheeToken */
  GPtrArray *chunks; /* settled, and not read yet */
};

static void
piece_free (gpointer data)
{
  g_free (((Piece *) data)->speaker);
  g_free (data);
}

static LycheeSessionText *
text_new (LycheeSession *s)
{
  LycheeSessionText *text = g_new0 (LycheeSessionText, 1);

  text->encoder = lychee_encoder_new (lychee_model_get_tokenizer (s->model), LYCHEE_TOKENIZER_NONE);
  text->chunker = g_object_new (LYCHEE_TYPE_CHUNKER, NULL);
  text->joiner = lychee_text_joiner_new ();
  g_queue_init (&text->pieces);
  text->held = g_byte_array_new ();
  text->tokens = g_array_new (FALSE, FALSE, sizeof (LycheeToken));
  text->chunks = g_ptr_array_new_with_free_func ((GDestroyNotify) lychee_chunk_unref);
  return text;
}

void
lychee_session_text_free (LycheeSessionText *text)
{
  lychee_encoder_free (text->encoder);
  g_object_unref (text->chunker);
  g_queue_clear_full (&text->pieces, piece_free);
  g_byte_array_unref (text->held);
  lychee_text_joiner_free (text->joiner);
  g_array_unref (text->tokens);
  g_ptr_array_unref (text->chunks);
  g_free (text);
}

void
lychee_session_text_forget (LycheeSession *session)
{
  g_clear_pointer (&session->text, lychee_session_text_free);
}

/* The piece that the token's last byte is of: a word that begins with the space behind another
 * piece is not of that. */
static const Piece *
piece_of (LycheeSessionText *text, const LycheeToken *token)
{
  Piece *piece = g_queue_peek_head (&text->pieces);

  while (piece->stop < token->offset + token->length && text->pieces.length > 1) {
    piece_free (g_queue_pop_head (&text->pieces));
    piece = g_queue_peek_head (&text->pieces);
  }
  return piece;
}

/* Hands the tokens that are settled to the chunker. */
static void
chunk_tokens (LycheeSessionText *text)
{
  guint64 done = text->held_at;

  for (guint i = 0; i < text->tokens->len; i++) {
    const LycheeToken *token = &g_array_index (text->tokens, LycheeToken, i);
    const Piece *piece = piece_of (text, token);
    LycheeChunkerToken to = {
      .id = token->id,
      .text = (const char *) text->held->data + (token->offset - text->held_at),
      .text_length = token->length,
      .speaker = piece->speaker,
      .pts = piece->start,
      .duration = LYCHEE_TIME_NONE,
    };

    if (piece->start != LYCHEE_TIME_NONE && piece->end != LYCHEE_TIME_NONE)
      to.duration = piece->end - MIN (piece->start, piece->end);
    lychee_chunker_push (text->chunker, &to, text->chunks);
    done = MAX (done, token->offset + token->length);
  }
  g_array_set_size (text->tokens, 0);
  g_byte_array_remove_range (text->held, 0, done - text->held_at);
  text->held_at = done;
}

static void
push_bytes (LycheeSessionText *text, const char *bytes, gsize length)
{
  g_byte_array_append (text->held, (const guint8 *) bytes, length);
  text->length += length;
  lychee_encoder_push (text->encoder, bytes, length, text->tokens);
}

/* Takes in a piece of text, which is valid UTF-8 and not empty. */
static void
push_text (
    LycheeSessionText *text, const char *bytes, const char *speaker, guint64 start, guint64 end)
{
  Piece *before = g_queue_peek_tail (&text->pieces), *piece = g_new0 (Piece, 1);
  g_autoptr (GString) labelled = g_string_new (bytes);
  const char *between = lychee_text_joiner_add (
      text->joiner, labelled, speaker, start != LYCHEE_TIME_NONE, TRUE, NULL);

  push_bytes (text, between, strlen (between));
  if (before)
    before->stop = text->length;
  push_bytes (text, labelled->str, labelled->len);
  *piece = (Piece){ speaker && *speaker ? g_strdup (speaker) : NULL, start, end, text->length };
  g_queue_push_tail (&text->pieces, piece);
  chunk_tokens (text);
}

/* Reads the chunks that are settled; those that cannot be read are kept for the next time. */
static gboolean
read_settled (LycheeSession *s, GCancellable *cancellable, GError **error)
{
  GPtrArray *chunks = s->text->chunks;
  gboolean ok = TRUE;
  guint n = 0;

  while (
      n < chunks->len && (ok = lychee_session_read_chunk (s, chunks->pdata[n], cancellable, error)))
    n++;
  if (n > 0)
    g_ptr_array_remove_range (chunks, 0, n);
  return ok;
}

/**
 * lychee_session_append_text:
 * @session: a session
 * @text: the next piece of the transcript; what is not UTF-8 in it becomes U+FFFD
 * @speaker: (nullable): who says it
 * @start: when it begins, in nanoseconds of stream time, or %LYCHEE_TIME_NONE
 * @end: when it ends, or %LYCHEE_TIME_NONE
 * @cancellable: (nullable): a cancellable
 * @error: return location for an error
 *
 * Reads a piece of the transcript: a word, a line, or all of it.
 *
 * Pieces may be cut anywhere, inside a word too, where they have no times. Those with times are
 * cues and are joined as the element lycheetokenizer joins them: lines and sentences by a new line,
 * words that come one by one as their script has it. Where the speaker changes, a new line begins
 * with the speaker's name, unless @text itself begins with it.
 *
 * The last words are held back until what follows shows that they are whole: when nothing follows,
 * call [method@Session.flush]. On an error, what was not read is kept, and the next call begins
 * with it; the text must not be given again.
 *
 * May be called in any thread; calls from several take turns.
 *
 * Returns: FALSE with an error as from [method@Session.append], or %G_IO_ERROR_CANCELLED
 */
gboolean
lychee_session_append_text (LycheeSession *session, const char *text, const char *speaker,
    guint64 start, guint64 end, GCancellable *cancellable, GError **error)
{
  g_autofree char *valid = NULL, *name = NULL;
  gboolean ok;

  g_return_val_if_fail (LYCHEE_IS_SESSION (session), FALSE);
  g_return_val_if_fail (text != NULL, FALSE);

  valid = g_utf8_make_valid (text, -1);
  name = speaker ? g_utf8_make_valid (speaker, -1) : NULL;
  g_mutex_lock (&session->reading);
  if (!session->text)
    session->text = text_new (session);
  if (*valid)
    push_text (session->text, valid, name, start, end);
  ok = read_settled (session, cancellable, error);
  g_mutex_unlock (&session->reading);
  return ok;
}

/**
 * lychee_session_flush:
 * @session: a session
 * @cancellable: (nullable): a cancellable
 * @error: return location for an error
 *
 * Reads the text that [method@Session.append_text] held back. What comes then begins a new word and
 * a new chunk.
 *
 * May be called in any thread.
 *
 * Returns: FALSE with an error as from [method@Session.append_text]
 */
gboolean
lychee_session_flush (LycheeSession *session, GCancellable *cancellable, GError **error)
{
  gboolean ok = TRUE;

  g_return_val_if_fail (LYCHEE_IS_SESSION (session), FALSE);

  g_mutex_lock (&session->reading);
  if (session->text) {
    lychee_encoder_finish (session->text->encoder, session->text->tokens);
    chunk_tokens (session->text);
    lychee_chunker_drain (session->text->chunker, session->text->chunks);
    ok = read_settled (session, cancellable, error);
  }
  g_mutex_unlock (&session->reading);
  return ok;
}
