/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "lychee-chunk-private.h"
#include "lychee-chunker.h"

#include "lychee-drift.h"
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
 * With a [property@Lychee.Chunker:model] it also looks for places where the subject changes, which
 * need no mark in the text: speech recognisers often give none. At each place between two words,
 * *drift* is 1 - cos of the mean of the tokens' vectors before it and behind it (see
 * [property@Lychee.Chunker:lookahead]). Where it is [property@Lychee.Chunker:threshold] standard
 * deviations above what is usual in this talk, and nowhere near is it higher, a chunk ends, with
 * boundary %LYCHEE_BOUNDARY_DRIFT. The end of a sentence, a paragraph or a change of speaker close
 * by is taken ahead of another place.
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

#define DEFAULT_THRESHOLD 1.75
#define DEFAULT_LOOKAHEAD 32
/* What embedding=shallow runs: more cost more and find less. */
#define SHALLOW_LAYERS 1
#define MAX_LOOKAHEAD 512
/* A change of subject is where drift is highest among so many tokens to both sides. */
#define PEAK_TOKENS 16
/* What a mark at a place is worth, in standard deviations of drift, when the place of a change of
 * subject is chosen. */
static const float mark_worth[] = {
  [LYCHEE_BOUNDARY_NONE] = 0,
  [LYCHEE_BOUNDARY_WORD] = 0,
  [LYCHEE_BOUNDARY_CLAUSE] = 0.25f,
  [LYCHEE_BOUNDARY_SENTENCE] = 1,
  [LYCHEE_BOUNDARY_SPEAKER] = 1.5f,
  [LYCHEE_BOUNDARY_PARAGRAPH] = 2,
};

typedef struct {
  gint32 id;
  gboolean empty;   /* brought no bytes: a control token, or the rest of a character */
  gboolean partial; /* ends inside a character */
  gsize end;        /* where its whole characters end in the text */
  guint64 pts;
  guint64 duration;
  GRefString *speaker;
  /* Of the place behind it, once settled: */
  LycheeBoundary boundary;
  gboolean forced; /* a paragraph or change of speaker that the source told of */
  gint rank;       /* better places are higher; where they are 0 or less, nothing ends */
  /* and once measured: */
  float drift;
  float rate; /* drift in standard deviations above what is usual */
  float peak; /* what makes it a change of subject; -INFINITY: nothing */
  gboolean subject_changes;
} OpenToken;

struct _LycheeChunker {
  GObject parent;

  guint min_tokens;
  guint max_tokens;
  double threshold;
  guint lookahead;
  LycheeDetector detector;
  LycheeEmbedding embedding;
  LycheeModel *model;
  LycheeDrift *drift; /* NULL where drift is not looked for */

  GArray *tokens;                  /* of OpenToken: those of no chunk yet */
  guint n_settled;                 /* places behind the first so many tokens are settled, */
  guint n_measured;                /* behind so many drift is known, */
  guint n_known;                   /* behind so many both, */
  guint n_decided;                 /* and behind so many whether the subject changes */
  float closed_peaks[PEAK_TOKENS]; /* of the places before the open tokens, latest last */
  GString *text;   /* some text of closed chunks, then that of the open tokens: valid UTF-8 */
  gsize start;     /* where the open tokens' text begins in it */
  gsize run;       /* where what goes on without a paragraph or change of speaker begins */
  char partial[8]; /* the bytes of a character that has begun */
  guint n_partial;
  GRefString *speaker; /* of the last token */
  GArray *ids;         /* scratch */
  guint64 number;
};

enum {
  PROP_MIN_TOKENS = 1,
  PROP_MAX_TOKENS,
  PROP_MODEL,
  PROP_DETECTOR,
  PROP_EMBEDDING,
  PROP_THRESHOLD,
  PROP_LOOKAHEAD,
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

/* Judges the place behind token @i, all of the text that can matter being there. */
static void
settle_place (LycheeChunker *chunker, guint i)
{
  OpenToken *token = get_token (chunker, i);
  const OpenToken *next = i + 1 < chunker->tokens->len ? get_token (chunker, i + 1) : NULL;
  LycheeTextPlace place = { LYCHEE_BOUNDARY_NONE, LYCHEE_TEXT_JOINT_CHARACTER, FALSE };
  const char *text = chunker->text->str + chunker->run;
  gsize length = chunker->text->len - chunker->run;

  if (!token->partial && !(next != NULL && next->empty))
    place = lychee_text_examine (
        text, length, token->end - chunker->run, next != NULL ? next->end - chunker->run : length);
  token->boundary = place.boundary;
  token->rank = place.joint != LYCHEE_TEXT_JOINT_NONE
                    ? -(gint) place.joint
                    : 2 * (gint) place.boundary + !place.after_space;
}

/* Measures the drift of the next place, @n_after tokens behind it being known. */
static void
measure_place (LycheeChunker *chunker, guint n_after)
{
  OpenToken *token = get_token (chunker, chunker->n_measured++);

  token->drift = lychee_drift_measure (chunker->drift, n_after);
  /* What is measured over less is not to be compared. */
  if (n_after >= chunker->lookahead)
    token->rate = lychee_drift_rate (chunker->drift, token->drift);
}

/* What speaks for a change of subject at the next place. */
static void
find_peak (LycheeChunker *chunker)
{
  OpenToken *token = get_token (chunker, chunker->n_known++);

  token->peak = -INFINITY;
  if (token->boundary == LYCHEE_BOUNDARY_NONE || !(token->rate > chunker->threshold))
    return;
  token->peak = token->rate;
  if (chunker->detector == LYCHEE_DETECTOR_BOTH)
    token->peak += mark_worth[token->boundary];
}

/* Whether the subject changes at the next place: nowhere near does more speak for it, and shortly
 * before not as much. */
static void
decide_place (LycheeChunker *chunker)
{
  guint i = chunker->n_decided++;
  OpenToken *token = get_token (chunker, i);
  guint end = MIN (i + PEAK_TOKENS + 1, chunker->n_known);

  if (token->peak == -INFINITY)
    return;
  for (guint j = 1; j <= PEAK_TOKENS; j++) {
    float peak =
        j <= i ? get_token (chunker, i - j)->peak : chunker->closed_peaks[PEAK_TOKENS - (j - i)];

    if (peak >= token->peak)
      return;
  }
  for (guint j = i + 1; j < end; j++)
    if (get_token (chunker, j)->peak > token->peak)
      return;
  token->subject_changes = TRUE;
}

static gboolean
has_words (LycheeChunker *chunker, gsize end)
{
  for (gsize at = chunker->start; at < end; at += g_utf8_skip[(guchar) chunker->text->str[at]])
    if (!lychee_text_is_space (g_utf8_get_char (chunker->text->str + at)))
      return TRUE;
  return FALSE;
}

static void
clear_token (gpointer data)
{
  OpenToken *token = data;

  g_clear_pointer (&token->speaker, g_ref_string_release);
}

static void
keep_peak (LycheeChunker *chunker, float peak)
{
  memmove (chunker->closed_peaks, chunker->closed_peaks + 1,
      (PEAK_TOKENS - 1) * sizeof *chunker->closed_peaks);
  chunker->closed_peaks[PEAK_TOKENS - 1] = peak;
}

/* Notes where token @i begins, if it is the first of a cue that begins later than the one before,
 * which began at @before. A token that has bytes of both is the earlier one's. */
static void
note_part (LycheeChunker *chunker, guint i, guint64 before, const char *text, GArray *parts)
{
  const OpenToken *token = get_token (chunker, i);
  LycheeChunkPart part = { token->pts, i, 0 };

  if (before == LYCHEE_TIME_NONE || token->pts <= before)
    return;
  part.byte = get_token (chunker, i - 1)->end - chunker->start;
  if (g_utf8_validate (text, part.byte, NULL))
    g_array_append_val (parts, part);
}

/* Closes the first @n open tokens into a chunk. */
static void
close_chunk (LycheeChunker *chunker, guint n, LycheeBoundary boundary, GPtrArray *chunks)
{
  gsize end = get_token (chunker, n - 1)->end;
  guint64 pts = LYCHEE_TIME_NONE, end_time = LYCHEE_TIME_NONE, duration = LYCHEE_TIME_NONE;
  g_autofree char *text = g_strndup (chunker->text->str + chunker->start, end - chunker->start);
  g_autoptr (GArray) parts = g_array_new (FALSE, FALSE, sizeof (LycheeChunkPart));
  guint64 last = LYCHEE_TIME_NONE;
  gsize keep;

  g_array_set_size (chunker->ids, 0);
  for (guint i = 0; i < n; i++) {
    const OpenToken *token = get_token (chunker, i);

    keep_peak (chunker, token->peak);
    g_array_append_val (chunker->ids, token->id);
    if (token->pts == LYCHEE_TIME_NONE)
      continue;
    if (pts == LYCHEE_TIME_NONE)
      pts = token->pts;
    note_part (chunker, i, last, text, parts);
    last = token->pts;
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

  g_ptr_array_add (chunks, lychee_chunk_new_in_parts ((const gint32 *) chunker->ids->data, n, text,
                               get_token (chunker, n - 1)->speaker, pts, duration, boundary,
                               get_token (chunker, n - 1)->drift, chunker->number++,
                               (const LycheeChunkPart *) parts->data, parts->len));

  g_array_remove_range (chunker->tokens, 0, n);
  chunker->n_settled -= MIN (n, chunker->n_settled);
  chunker->n_measured -= MIN (n, chunker->n_measured);
  chunker->n_known -= MIN (n, chunker->n_known);
  chunker->n_decided -= MIN (n, chunker->n_decided);
  keep = end > CONTEXT_BYTES ? end - CONTEXT_BYTES : 0;
  while (keep < end && ((guchar) chunker->text->str[keep] & 0xC0) == 0x80)
    keep++;
  g_string_erase (chunker->text, 0, keep);
  chunker->start = end - keep;
  chunker->run -= MIN (keep, chunker->run);
  for (guint i = 0; i < chunker->tokens->len; i++)
    get_token (chunker, i)->end -= keep;
}

/* What ends a chunk behind token @i however short it is; NONE: nothing does. */
static LycheeBoundary
get_hard_end (LycheeChunker *chunker, guint i)
{
  OpenToken *token = get_token (chunker, i);

  if (token->forced)
    return token->subject_changes ? LYCHEE_BOUNDARY_DRIFT : token->boundary;
  if (token->boundary != LYCHEE_BOUNDARY_PARAGRAPH || chunker->detector == LYCHEE_DETECTOR_SEMANTIC)
    return LYCHEE_BOUNDARY_NONE;
  if (has_words (chunker, token->end))
    return token->subject_changes ? LYCHEE_BOUNDARY_DRIFT : LYCHEE_BOUNDARY_PARAGRAPH;
  /* Empty lines with nothing before them part nothing. */
  token->boundary = LYCHEE_BOUNDARY_WORD;
  token->rank = 2 * LYCHEE_BOUNDARY_WORD;
  return LYCHEE_BOUNDARY_NONE;
}

/* The number of tokens up to the first place among the first @n where a chunk has to end, or 0.
 * A change of subject asks for the chunk's minimum, @min. */
static guint
find_end (LycheeChunker *chunker, guint min, guint n)
{
  n = MIN (n, chunker->tokens->len);
  for (guint i = 0; i < n; i++)
    if (get_hard_end (chunker, i) != LYCHEE_BOUNDARY_NONE ||
        (i + 1 >= min && get_token (chunker, i)->subject_changes))
      return i + 1;
  return 0;
}

/* How good an end of a chunk the place behind token @i is. */
static float
get_worth (LycheeChunker *chunker, guint i)
{
  const OpenToken *token = get_token (chunker, i);

  if (chunker->drift == NULL || chunker->detector != LYCHEE_DETECTOR_SEMANTIC || token->rank < 2)
    return token->rank;
  return 2 + (isnan (token->rate) ? 0 : CLAMP (token->rate + 8, 0, 16));
}

/* The best number of tokens for a chunk of @low to @high. */
static guint
find_best (LycheeChunker *chunker, guint low, guint high)
{
  guint best = high;

  for (guint n = high; n >= MAX (low, 1); n--)
    if (get_worth (chunker, n - 1) > get_worth (chunker, best - 1))
      best = n;
  return best;
}

static void
close_before (LycheeChunker *chunker, guint n, GPtrArray *chunks)
{
  const OpenToken *token = get_token (chunker, n - 1);

  close_chunk (
      chunker, n, token->subject_changes ? LYCHEE_BOUNDARY_DRIFT : token->boundary, chunks);
}

/* Closes every chunk that is settled. */
static void
close_settled (LycheeChunker *chunker, GPtrArray *chunks)
{
  guint max = chunker->max_tokens, min = MIN (chunker->min_tokens, max);

  for (;;) {
    guint n_ready = chunker->drift != NULL ? chunker->n_decided : chunker->n_settled;
    /* Seeing that far ahead, a chunk leaves its minimum to the one that has to end there. */
    guint see = chunker->drift != NULL ? max + min : max;
    guint end, n;

    n = find_end (chunker, min, MIN (n_ready, max));
    if (n == 0 && n_ready >= see) {
      end = find_end (chunker, min, see);
      n = find_best (chunker, min, end > 0 ? CLAMP (end - min, min, max) : max);
    }
    if (n == 0)
      break;
    close_before (chunker, n, chunks);
  }
}

/* Settles and decides all open places but the last one, no more text being to come. */
static void
settle_all (LycheeChunker *chunker)
{
  guint n = chunker->tokens->len;

  for (; chunker->n_settled < n; chunker->n_settled++)
    settle_place (chunker, chunker->n_settled);
  if (chunker->drift == NULL)
    return;
  lychee_drift_settle (chunker->drift);
  while (chunker->n_measured < n)
    measure_place (chunker, n - 1 - chunker->n_measured);
  while (chunker->n_known < n)
    find_peak (chunker);
  while (chunker->n_decided < n)
    decide_place (chunker);
}

/* Closes all open tokens; the last chunk's boundary is @boundary. */
static void
close_all (LycheeChunker *chunker, LycheeBoundary boundary, GPtrArray *chunks)
{
  guint max = chunker->max_tokens, min = MIN (chunker->min_tokens, max);

  abandon_partial (chunker);
  settle_all (chunker);
  while (chunker->tokens->len > 0) {
    guint n_open = chunker->tokens->len;
    /* The last place is what the caller says, whatever the text. */
    guint n = find_end (chunker, min, MIN (n_open - 1, max)), high = max;

    if (n == 0 && n_open > max) {
      guint end = find_end (chunker, min, MIN (n_open - 1, max + min));

      /* Leave the last chunk its minimum, if that can be. */
      if (n_open >= 2 * min)
        high = MIN (high, n_open - min);
      if (end > 0 && chunker->drift != NULL)
        high = MIN (high, MAX (end - min, min));
      n = find_best (chunker, min, high);
    }
    if (n == 0)
      break;
    close_before (chunker, n, chunks);
  }
  if (chunker->tokens->len > 0)
    close_chunk (chunker, chunker->tokens->len, boundary, chunks);

  /* What comes next does not go on with this text. */
  g_string_truncate (chunker->text, 0);
  chunker->start = 0;
  chunker->run = 0;
}

/* The source says that what comes is another paragraph or speaker than the open tokens. */
static void
end_run (LycheeChunker *chunker, LycheeBoundary boundary, GPtrArray *chunks)
{
  OpenToken *last;

  if (chunker->drift == NULL) {
    close_all (chunker, boundary, chunks);
    return;
  }
  /* Its drift is not known yet. */
  abandon_partial (chunker);
  if (chunker->tokens->len == 0)
    return;
  for (; chunker->n_settled < chunker->tokens->len; chunker->n_settled++)
    settle_place (chunker, chunker->n_settled);
  last = get_token (chunker, chunker->tokens->len - 1);
  last->forced = TRUE;
  last->boundary = MAX (boundary, last->boundary);
  last->rank = 2 * (gint) last->boundary;
  chunker->run = chunker->text->len;
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
  guint n_seen;

  g_return_if_fail (LYCHEE_IS_CHUNKER (chunker));
  g_return_if_fail (token != NULL && chunks != NULL);
  g_return_if_fail (token->text != NULL || token->text_length == 0);

  if (token->paragraph)
    end_run (chunker, LYCHEE_BOUNDARY_PARAGRAPH, chunks);
  if (g_strcmp0 (token->speaker, chunker->speaker) != 0) {
    end_run (chunker, LYCHEE_BOUNDARY_SPEAKER, chunks);
    g_clear_pointer (&chunker->speaker, g_ref_string_release);
    if (token->speaker != NULL)
      chunker->speaker = g_ref_string_new (token->speaker);
  }

  decisive = append_text (chunker, token->text, token->text_length);
  open.id = token->id;
  open.empty = token->text_length == 0;
  open.partial = chunker->n_partial > 0;
  open.end = chunker->text->len;
  open.pts = token->pts;
  open.duration = token->duration;
  open.speaker = chunker->speaker != NULL ? g_ref_string_acquire (chunker->speaker) : NULL;
  open.drift = open.rate = NAN;
  open.peak = -INFINITY;
  g_array_append_val (chunker->tokens, open);

  if (decisive || chunker->tokens->len - chunker->n_settled > MAX_WAIT)
    for (; chunker->n_settled + 1 < chunker->tokens->len; chunker->n_settled++)
      settle_place (chunker, chunker->n_settled);
  if (chunker->drift != NULL) {
    lychee_drift_push (chunker->drift, token->id);
    n_seen = chunker->tokens->len - lychee_drift_get_n_waiting (chunker->drift);
    while (chunker->n_measured + chunker->lookahead < n_seen)
      measure_place (chunker, n_seen - 1 - chunker->n_measured);
    while (chunker->n_known < MIN (chunker->n_settled, chunker->n_measured))
      find_peak (chunker);
    while (chunker->n_decided + PEAK_TOKENS < chunker->n_known)
      decide_place (chunker);
  }
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
 * lychee_chunker_hasten:
 * @chunker: a chunker
 * @n_tokens: how many of the open tokens must not wait any longer
 * @chunks: (element-type LycheeChunk): where the chunks are appended (transfer full)
 *
 * Closes chunks until the first @n_tokens open tokens are in one. Each ends at the best place that
 * there is up to now; the rest stays open, and what is said about its places may yet change. Where
 * these are all, as lychee_chunker_drain(): nothing was said for a while.
 */
void
lychee_chunker_hasten (LycheeChunker *chunker, guint n_tokens, GPtrArray *chunks)
{
  guint max, min, n_left, n_settled;

  g_return_if_fail (LYCHEE_IS_CHUNKER (chunker));
  g_return_if_fail (chunks != NULL);

  if (n_tokens >= chunker->tokens->len && chunker->n_partial == 0) {
    close_all (chunker, LYCHEE_BOUNDARY_END, chunks);
    return;
  }
  max = chunker->max_tokens;
  min = MIN (chunker->min_tokens, max);
  n_left = chunker->tokens->len - MIN (n_tokens, chunker->tokens->len);
  n_settled = chunker->n_settled;
  for (guint i = n_settled; i < chunker->tokens->len; i++)
    settle_place (chunker, i);
  while (chunker->tokens->len > n_left) {
    /* Of the last place it is not known what it is before more is said. */
    guint n_known = chunker->tokens->len - 1;
    guint n = find_end (chunker, min, MIN (n_known, max));

    if (n == 0)
      n = n_known >= min ? find_best (chunker, min, MIN (n_known, max)) : n_known + 1;
    close_before (chunker, n, chunks);
    n_settled -= MIN (n, n_settled);
  }
  chunker->n_settled = n_settled;
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
  g_clear_pointer (&chunker->speaker, g_ref_string_release);
  if (chunker->drift != NULL)
    lychee_drift_reset (chunker->drift);
  for (guint i = 0; i < PEAK_TOKENS; i++)
    chunker->closed_peaks[i] = -INFINITY;
  chunker->start = 0;
  chunker->run = 0;
  chunker->n_settled = 0;
  chunker->n_measured = 0;
  chunker->n_known = 0;
  chunker->n_decided = 0;
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
  case PROP_MODEL:
    chunker->model = g_value_dup_object (value);
    break;
  case PROP_DETECTOR:
    chunker->detector = g_value_get_enum (value);
    break;
  case PROP_EMBEDDING:
    chunker->embedding = g_value_get_enum (value);
    break;
  case PROP_THRESHOLD:
    chunker->threshold = g_value_get_double (value);
    break;
  case PROP_LOOKAHEAD:
    chunker->lookahead = g_value_get_uint (value);
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
  case PROP_MODEL:
    g_value_set_object (value, chunker->model);
    break;
  case PROP_DETECTOR:
    g_value_set_enum (value, chunker->detector);
    break;
  case PROP_EMBEDDING:
    g_value_set_enum (value, chunker->embedding);
    break;
  case PROP_THRESHOLD:
    g_value_set_double (value, chunker->threshold);
    break;
  case PROP_LOOKAHEAD:
    g_value_set_uint (value, chunker->lookahead);
    break;
  default:
    G_OBJECT_WARN_INVALID_PROPERTY_ID (object, id, pspec);
  }
}

static void
lychee_chunker_constructed (GObject *object)
{
  LycheeChunker *chunker = LYCHEE_CHUNKER (object);

  G_OBJECT_CLASS (lychee_chunker_parent_class)->constructed (object);
  if (chunker->model != NULL && chunker->detector != LYCHEE_DETECTOR_STRUCTURE)
    chunker->drift = lychee_drift_new (chunker->model, chunker->lookahead,
        chunker->embedding == LYCHEE_EMBEDDING_SHALLOW ? SHALLOW_LAYERS : 0);
}

static void
lychee_chunker_finalize (GObject *object)
{
  LycheeChunker *chunker = LYCHEE_CHUNKER (object);

  g_array_unref (chunker->tokens);
  g_array_unref (chunker->ids);
  g_string_free (chunker->text, TRUE);
  g_clear_pointer (&chunker->speaker, g_ref_string_release);
  g_clear_pointer (&chunker->drift, lychee_drift_free);
  g_clear_object (&chunker->model);
  G_OBJECT_CLASS (lychee_chunker_parent_class)->finalize (object);
}

static void
lychee_chunker_class_init (LycheeChunkerClass *klass)
{
  GObjectClass *object_class = G_OBJECT_CLASS (klass);
  GParamFlags flags = G_PARAM_READWRITE | G_PARAM_CONSTRUCT | G_PARAM_STATIC_STRINGS;
  GParamFlags fixed = G_PARAM_READWRITE | G_PARAM_CONSTRUCT_ONLY | G_PARAM_STATIC_STRINGS;

  object_class->set_property = lychee_chunker_set_property;
  object_class->get_property = lychee_chunker_get_property;
  object_class->constructed = lychee_chunker_constructed;
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
  /**
   * LycheeChunker:model:
   *
   * The model whose tokens these are. Without one, chunks are cut by structure, whatever the
   * detector.
   */
  props[PROP_MODEL] = g_param_spec_object (
      "model", "Model", "The model whose tokens these are", LYCHEE_TYPE_MODEL, fixed);
  /**
   * LycheeChunker:detector:
   *
   * What it looks for.
   */
  props[PROP_DETECTOR] = g_param_spec_enum ("detector", "Detector", "What it looks for",
      LYCHEE_TYPE_DETECTOR, LYCHEE_DETECTOR_BOTH, fixed);
  /**
   * LycheeChunker:embedding:
   *
   * What stands for a token's meaning. With %LYCHEE_EMBEDDING_SHALLOW chunks come up to 16 tokens
   * later.
   */
  props[PROP_EMBEDDING] = g_param_spec_enum ("embedding", "Embedding",
      "What stands for a token's meaning", LYCHEE_TYPE_EMBEDDING, LYCHEE_EMBEDDING_TABLE, fixed);
  /**
   * LycheeChunker:threshold:
   *
   * How many standard deviations drift must be above its mean for a change of subject. Mean and
   * deviation are those of the talk up to there, since they differ from talk to talk and model to
   * model.
   */
  props[PROP_THRESHOLD] = g_param_spec_double ("threshold", "Threshold",
      "Standard deviations above the mean drift at which the subject changes", 0, 100,
      DEFAULT_THRESHOLD, flags);
  /**
   * LycheeChunker:lookahead:
   *
   * Tokens behind a place that are read to judge its drift. More finds changes of subject better,
   * but each chunk waits for them: until so many tokens and 40 more have come, or the chunker is
   * drained.
   */
  props[PROP_LOOKAHEAD] = g_param_spec_uint ("lookahead", "Lookahead",
      "Tokens behind a place that are read to judge its drift", LYCHEE_DRIFT_MIN_AFTER,
      MAX_LOOKAHEAD, DEFAULT_LOOKAHEAD, fixed);
  g_object_class_install_properties (object_class, N_PROPS, props);
}

static void
lychee_chunker_init (LycheeChunker *chunker)
{
  chunker->tokens = g_array_new (FALSE, FALSE, sizeof (OpenToken));
  g_array_set_clear_func (chunker->tokens, clear_token);
  chunker->ids = g_array_new (FALSE, FALSE, sizeof (gint32));
  chunker->text = g_string_new (NULL);
  for (guint i = 0; i < PEAK_TOKENS; i++)
    chunker->closed_peaks[i] = -INFINITY;
}
