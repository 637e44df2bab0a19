/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "lychee-transcript-parser-private.h"

#include "lychee-tokenizer-utf8.h"
#include "lychee-transcript-parser-charset.h"

#include <errno.h>
#include <string.h>

/* Bytes of any encoding into UTF-8, in any pieces.
 *
 * A byte order mark decides. Without one, text is UTF-8 as long as it can be. At a byte that is
 * not, what was read so far counts: where there were more characters of several bytes than broken
 * ones, the text is UTF-8 with a fault, and U+FFFD takes the fault's place. Where there were not, a
 * stretch of bytes is held back and decides with them; else all that follows is of the legacy
 * encoding. What came before was ASCII, which is the same in both. */

/* Bytes that show whether text is UTF-16 without a mark. */
#define PROBE_LENGTH 64
/* Of the beginning, what shows whether it is text, and when that is looked at first. */
#define HEAD_LENGTH 4096
#define FIRST_JUDGEMENT 256

typedef enum {
  STATE_START,   /* nothing is known */
  STATE_UTF8,    /* so far */
  STATE_HOLDING, /* a stretch of bytes is to decide */
  STATE_CERTAIN, /* UTF-8, faults or not */
  STATE_ICONV,
} State;

struct _LycheeTranscriptDecoder {
  const char *requested; /* canonical, or NULL */
  const char *preset;
  gboolean preset_guessed;
  gsize patience;

  State state;
  GByteArray *raw; /* not decoded yet */
  GIConv iconv;
  guint unit;           /* bytes to skip over a fault */
  const char *encoding; /* what was settled on */
  gboolean guessed;
  LycheeUtf8Counts counts;
  guint64 replaced;
  guint64 controls;
  GByteArray *head;     /* the beginning, until it is long enough to judge; then NULL */
  gsize next_judgement; /* at so many bytes of it */
  gboolean binary;
  const char *document;
};

LycheeTranscriptDecoder *
lychee_transcript_decoder_new (const char *encoding, gsize patience)
{
  LycheeTranscriptDecoder *decoder = g_new0 (LycheeTranscriptDecoder, 1);

  decoder->requested = lychee_charset_intern (encoding);
  decoder->patience = patience;
  decoder->raw = g_byte_array_new ();
  decoder->iconv = (GIConv) -1;
  /* In an encoding that is unlike ASCII, bytes may look like anything. */
  if (decoder->requested == NULL || lychee_charset_extends_ascii (decoder->requested))
    decoder->head = g_byte_array_new ();
  return decoder;
}

void
lychee_transcript_decoder_free (LycheeTranscriptDecoder *decoder)
{
  if (decoder->iconv != (GIConv) -1)
    g_iconv_close (decoder->iconv);
  g_byte_array_unref (decoder->raw);
  g_clear_pointer (&decoder->head, g_byte_array_unref);
  g_free (decoder);
}

void
lychee_transcript_decoder_preset (
    LycheeTranscriptDecoder *decoder, const char *encoding, gboolean guessed)
{
  decoder->preset = encoding;
  decoder->preset_guessed = guessed;
}

void
lychee_transcript_decoder_report (LycheeTranscriptDecoder *decoder, LycheeTranscriptReport *report)
{
  report->replaced = decoder->replaced;
  report->controls = decoder->controls;
  report->encoding = decoder->encoding != NULL     ? decoder->encoding
                     : decoder->counts.n_valid > 0 ? "UTF-8"
                                                   : NULL;
  report->guessed = decoder->guessed;
  report->binary = decoder->binary;
  report->document = decoder->document;
}

/* Appends valid UTF-8 without what is no text: control characters, byte order marks. A page's end
 * is a line's. */
static void
append_clean (LycheeTranscriptDecoder *decoder, const char *text, gsize length, GString *out)
{
  gsize done = 0;

  for (gsize i = 0; i < length; i++) {
    guchar c = text[i];
    guint skip = 0;

    if (G_UNLIKELY (c < 0x20 && c != '\n' && c != '\r' && c != '\t'))
      skip = 1;
    else if (G_UNLIKELY (c == 0x7f))
      skip = 1;
    else if (G_UNLIKELY (c == 0xef) && length - i >= 3 && memcmp (text + i, "\xef\xbb\xbf", 3) == 0)
      skip = 3;
    if (G_LIKELY (skip == 0))
      continue;
    g_string_append_len (out, text + done, i - done);
    if (c == '\f' || c == '\v')
      g_string_append_c (out, '\n');
    else if (skip == 1 && c != 0x1a) /* which ends text files of old systems */
      decoder->controls++;
    i += skip - 1;
    done = i + 1;
  }
  g_string_append_len (out, text + done, length - done);
}

static void
append_replacement (LycheeTranscriptDecoder *decoder, GString *out)
{
  g_string_append (out, "\xef\xbf\xbd");
  decoder->replaced++;
}

static void
start_iconv (LycheeTranscriptDecoder *decoder, const char *encoding, gboolean guessed)
{
  decoder->state = STATE_ICONV;
  decoder->encoding = encoding;
  decoder->guessed = guessed;
  decoder->unit = lychee_charset_get_unit (encoding);
  decoder->iconv = g_iconv_open ("UTF-8", encoding);
  if (decoder->iconv == (GIConv) -1) { /* not possible for what the charset functions name */
    decoder->state = STATE_CERTAIN;
    decoder->encoding = "UTF-8";
  }
}

/* Settles on UTF-8 or starts to convert. */
static void
settle (LycheeTranscriptDecoder *decoder, const char *encoding, gboolean guessed)
{
  if (strcmp (encoding, "UTF-8") == 0) {
    decoder->state = STATE_CERTAIN;
    decoder->encoding = encoding;
  } else {
    start_iconv (decoder, encoding, guessed);
  }
}

/* Returns FALSE where more bytes are needed. */
static gboolean
decode_start (LycheeTranscriptDecoder *decoder, gboolean at_end)
{
  const guint8 *data = decoder->raw->data;
  gsize length = decoder->raw->len;
  guint mark = 0;
  const char *encoding = lychee_charset_of_mark (data, length, &mark);

  if (!at_end && lychee_charset_mark_may_follow (data, length))
    return FALSE;
  if (encoding != NULL) {
    g_byte_array_remove_range (decoder->raw, 0, mark);
    settle (decoder, encoding, FALSE);
    return TRUE;
  }
  if (length >= 2 && (data[0] == 0) != (data[1] == 0)) {
    if (!at_end && length < PROBE_LENGTH)
      return FALSE;
    encoding = lychee_charset_of_zeros (data, MIN (length, PROBE_LENGTH));
    if (encoding != NULL) {
      settle (decoder, encoding, FALSE);
      return TRUE;
    }
  }
  if (decoder->requested != NULL && !lychee_charset_extends_ascii (decoder->requested))
    settle (decoder, decoder->requested, FALSE);
  else if (decoder->preset != NULL)
    settle (decoder, decoder->preset, decoder->preset_guessed);
  else
    decoder->state = STATE_UTF8;
  return TRUE;
}

/* Decides over what is held. Returns FALSE where more bytes are needed. */
static gboolean
decode_held (LycheeTranscriptDecoder *decoder, gboolean at_end)
{
  LycheeUtf8Counts counts = decoder->counts;
  LycheeUtf8 utf8 = { 0 };
  const char *encoding;
  gboolean guessed;

  if (!at_end && decoder->raw->len < decoder->patience)
    return FALSE;
  lychee_charset_count (&utf8, decoder->raw->data, decoder->raw->len, &counts);
  if (lychee_charset_is_utf8 (&counts)) {
    decoder->state = STATE_CERTAIN;
    decoder->encoding = "UTF-8";
  } else {
    encoding =
        lychee_charset_choose (decoder->requested, decoder->raw->data, decoder->raw->len, &guessed);
    settle (decoder, encoding, guessed);
  }
  return TRUE;
}

/* Returns FALSE where more bytes are needed. */
static gboolean
decode_utf8 (LycheeTranscriptDecoder *decoder, gboolean at_end, GString *out)
{
  const guint8 *data = decoder->raw->data;
  gsize length = decoder->raw->len;
  gsize at = 0;
  gboolean more = FALSE;

  while (at < length) {
    const char *end;
    LycheeUtf8 utf8 = { 0 };
    LycheeUtf8Char c[2];
    gsize stop;
    guint n = 0;

    g_utf8_validate_len ((const char *) data + at, length - at, &end);
    stop = (const guint8 *) end - data;
    for (gsize i = at; i < stop; i++)
      decoder->counts.n_valid += data[i] >= 0xc2;
    append_clean (decoder, (const char *) data + at, stop - at, out);
    at = stop;
    if (at == length)
      break;
    if (data[at] == 0) {
      decoder->controls++;
      at++;
      continue;
    }
    while (n == 0 && stop < length)
      n = lychee_utf8_push (&utf8, data[stop++], c);
    if (n == 0 && !at_end)
      break; /* the character may be whole with the next bytes */
    if (n == 0)
      lychee_utf8_finish (&utf8, c);
    decoder->counts.n_broken++;
    if (decoder->state == STATE_UTF8 && !lychee_charset_is_utf8 (&decoder->counts)) {
      decoder->counts.n_broken--; /* it is counted with what is held */
      decoder->state = STATE_HOLDING;
      more = TRUE;
      break;
    }
    append_replacement (decoder, out);
    at += c[0].n_source;
  }
  if (at > 0)
    g_byte_array_remove_range (decoder->raw, 0, at);
  return more;
}

static void
decode_iconv (LycheeTranscriptDecoder *decoder, gboolean at_end, GString *out)
{
  char *in = (char *) decoder->raw->data;
  gsize left = decoder->raw->len;
  char buffer[4096];

  while (left > 0) {
    char *to = buffer;
    gsize room = sizeof buffer;
    gsize done = g_iconv (decoder->iconv, &in, &left, &to, &room);
    int reason = errno;

    append_clean (decoder, buffer, to - buffer, out);
    if (done != (gsize) -1 || reason == E2BIG)
      continue;
    if (reason == EINVAL && !at_end)
      break; /* the character may be whole with the next bytes */
    append_replacement (decoder, out);
    in += MIN (left, decoder->unit);
    left -= MIN (left, decoder->unit);
    g_iconv (decoder->iconv, NULL, NULL, NULL, NULL);
  }
  if (at_end) { /* some encodings keep a character back, to combine it */
    char *to = buffer;
    gsize room = sizeof buffer;

    g_iconv (decoder->iconv, NULL, NULL, &to, &room);
    append_clean (decoder, buffer, to - buffer, out);
  }
  g_byte_array_remove_range (decoder->raw, 0, decoder->raw->len - left);
}

static void
decode (LycheeTranscriptDecoder *decoder, gboolean at_end, GString *out)
{
  gboolean more = decoder->raw->len > 0;

  while (more) {
    switch (decoder->state) {
    case STATE_START:
      more = decode_start (decoder, at_end);
      break;
    case STATE_HOLDING:
      more = decode_held (decoder, at_end);
      break;
    case STATE_UTF8:
    case STATE_CERTAIN:
      more = decode_utf8 (decoder, at_end, out);
      break;
    case STATE_ICONV:
      decode_iconv (decoder, at_end, out);
      more = FALSE;
      break;
    }
  }
}

/* Looks at the beginning as it grows: what is no text should not be taken for it for long. */
static void
judge_head (LycheeTranscriptDecoder *decoder, const guint8 *data, gsize length)
{
  if (decoder->head == NULL)
    return;
  g_byte_array_append (decoder->head, data, MIN (length, HEAD_LENGTH - decoder->head->len));
  decoder->document = lychee_charset_document (decoder->head->data, decoder->head->len);
  if (decoder->document != NULL) {
    decoder->binary = TRUE;
  } else if (decoder->head->len >= decoder->next_judgement) {
    decoder->binary = lychee_charset_is_binary (decoder->head->data, decoder->head->len);
    decoder->next_judgement = MAX (decoder->head->len * 2, FIRST_JUDGEMENT);
    decoder->next_judgement = MIN (decoder->next_judgement, HEAD_LENGTH);
  }
  if (decoder->head->len == HEAD_LENGTH || decoder->binary)
    g_clear_pointer (&decoder->head, g_byte_array_unref);
}

void
lychee_transcript_decoder_push (
    LycheeTranscriptDecoder *decoder, const guint8 *data, gsize length, GString *text)
{
  judge_head (decoder, data, length);
  g_byte_array_append (decoder->raw, data, length);
  decode (decoder, FALSE, text);
}

void
lychee_transcript_decoder_finish (LycheeTranscriptDecoder *decoder, GString *text)
{
  if (decoder->head != NULL)
    decoder->binary = lychee_charset_is_binary (decoder->head->data, decoder->head->len);
  decode (decoder, TRUE, text);
}
