/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What answers from it. */
#include "lychee-answer-private.h"
#include "lychee-contrast.h"
#include "lychee-evidence.h"
#include "lychee-question-private.h"
#include "lychee-quotes.h"
#include "lychee-repeats.h"
#include "lychee-session-private.h"

#include <string.h>
#include <unicode/uloc.h>

#define SPARSEST 48  /* tokens for each sentence that is quoted: two from a part, */
#define MOST_LATE 24 /* which ends so many chunks later, if a sentence does then */

/* Whether nothing was said: no chunk, or only white space. */
static gboolean
is_empty (LycheeCache *cache)
{
  LycheeChunk *chunk;
  gboolean empty = TRUE;

  for (guint i = 0; empty && (chunk = lychee_cache_get_chunk (cache, i, NULL)); i++) {
    const char *at = chunk->text;

    while (*at && g_unichar_isspace (g_utf8_get_char (at)))
      at = g_utf8_next_char (at);
    empty = *at == '\0' && chunk->text[0] != '\0';
    lychee_chunk_unref (chunk);
  }
  return empty;
}

static LycheeWorker *
take_worker (LycheeSession *s, GError **error)
{
  LycheeWorker *worker;

  g_mutex_lock (&s->lock);
  worker = g_queue_pop_head (&s->idle);
  g_mutex_unlock (&s->lock);
  return worker ? worker : lychee_worker_new (s->backend, error);
}

static void
give_worker (LycheeSession *s, LycheeWorker *worker)
{
  g_mutex_lock (&s->lock);
  g_queue_push_head (&s->idle, worker);
  g_mutex_unlock (&s->lock);
}

/* What is put to the model. (transfer full) */
static char *
write_prompt (LycheeQuestion *question)
{
  const char *system_prompt = lychee_question_get_system_prompt (question);
  const char *language = lychee_question_get_language (question);
  GString *text = g_string_new (system_prompt);

  if (text->len > 0)
    g_string_append (text, "\n\n");
  g_string_append (text, lychee_question_get_prompt (question));
  if (language && *language) {
    UErrorCode status = U_ZERO_ERROR;
    UChar wide[128];
    gint32 n = uloc_getDisplayName (language, "en", wide, G_N_ELEMENTS (wide), &status);
    g_autofree char *narrow =
        U_SUCCESS (status) ? g_utf16_to_utf8 (wide, n, NULL, NULL, NULL) : NULL;

    /* What ICU does not know it gives back. */
    g_string_append_printf (text, " Answer in %s.", narrow ? narrow : language);
  }
  return g_string_free (text, FALSE);
}

/* The text of an answer on its way to the caller. */
typedef struct {
  GString *text;
  gsize told; /* bytes that the caller has */
  const char *const *stop;
  LycheeTextFunc func;
  gpointer user_data;
} Speech;

/* A model may say NUL, which would end the string that it is in. */
static void
replace_nul (GString *text, gsize from)
{
  for (gsize at = from; at < text->len; at++)
    if (text->str[at] == '\0') {
      g_string_erase (text, at, 1);
      g_string_insert_unichar (text, at, 0xFFFD);
      at += 2;
    }
}

/* Cuts what is not told yet before the first stop string in it. */
static gboolean
cut_at_stop (Speech *speech)
{
  const char *rest = speech->text->str + speech->told, *first = NULL;

  for (guint i = 0; speech->stop && speech->stop[i]; i++) {
    const char *at = *speech->stop[i] ? strstr (rest, speech->stop[i]) : NULL;

    if (at && (!first || at < first))
      first = at;
  }
  if (first)
    g_string_truncate (speech->text, first - speech->text->str);
  return first != NULL;
}

/* Where that ends which no stop string can begin in. */
static gsize
end_of_certain (Speech *speech)
{
  gsize end = speech->text->len;

  for (guint i = 0; speech->stop && speech->stop[i]; i++) {
    gsize length = strlen (speech->stop[i]), n = MIN (length, speech->text->len - speech->told);

    for (; n > 0; n--)
      if (memcmp (speech->text->str + speech->text->len - n, speech->stop[i], n) == 0) {
        end = MIN (end, speech->text->len - n);
        break;
      }
  }
  return end;
}

/* Tells the caller what is certain, or at the end all. FALSE: it does not want more. */
static gboolean
tell (Speech *speech, gboolean all)
{
  gsize end = all ? speech->text->len : end_of_certain (speech);
  g_autofree char *piece = NULL;

  if (end <= speech->told)
    return TRUE;
  piece = g_strndup (speech->text->str + speech->told, end - speech->told);
  speech->told = end;
  return !speech->func || speech->func (piece, speech->user_data);
}

typedef struct {
  LycheeSession *session;
  LycheeChatFormat template;
  LycheeWorker *worker;
  LycheeCache *tail;
  LycheeSampler *sampler;
  guint max_tokens;
  Speech speech;
  gint64 begun;
  LycheeAnswer *answer;
  GCancellable *cancellable;
  LycheeEvidenceFinder *finder; /* (nullable) */
  LycheeContrast *contrast;     /* (nullable) */
  guint n_evidence;
  LycheeQuestion *watched;
  LycheeProgressFunc progress;
} Asking;

/* Tells those who watch what the answer is so far. */
static void
tell_progress (Asking *a)
{
  g_autoptr (LycheeAnswer) so_far = NULL;
  const LycheeAnswer *from = a->answer;

  if (!lychee_question_is_watched (a->watched))
    return;
  so_far = g_object_new (LYCHEE_TYPE_ANSWER, NULL);
  so_far->text = g_strndup (a->speech.text->str, a->speech.told);
  so_far->finish = LYCHEE_FINISH_CANCELLED;
  so_far->truncated = from->truncated;
  so_far->transcript_tokens = from->transcript_tokens;
  so_far->prompt_tokens = from->prompt_tokens;
  so_far->answer_tokens = from->answer_tokens;
  so_far->seconds_to_first = from->seconds_to_first;
  so_far->seconds = (g_get_monotonic_time () - a->begun) / 1e6;
  if (a->finder && lychee_worker_collect_weights (a->worker, NULL))
    lychee_evidence_finder_get (a->finder, a->n_evidence, so_far->evidence);
  for (guint i = 0; !a->finder && i < from->evidence->len; i++) /* quotes */
    g_ptr_array_add (so_far->evidence, lychee_evidence_ref (from->evidence->pdata[i]));
  a->progress (so_far, a->speech.user_data);
}

/* The ids of a prompt, as they follow the transcript. (transfer full) */
static GArray *
encode_prompt (Asking *a, const char *prompt)
{
  GArray *ids = g_array_new (FALSE, FALSE, sizeof (gint32));

  lychee_chat_format_append_suffix (
      a->template, lychee_model_get_tokenizer (a->session->model), prompt, ids);
  return ids;
}

/* How many of @ids are of the prompt: those behind are the template's, the same for every one. */
static guint
count_own (const GArray *ids, const GArray *others)
{
  guint n = 0;

  while (n + 1 < MIN (ids->len, others->len) &&
         g_array_index (ids, gint32, ids->len - 1 - n) ==
             g_array_index (others, gint32, others->len - 1 - n))
    n++;
  return ids->len - n;
}

/* Whether @local is only that there is no memory for a contrast: the answer goes on without. */
static gboolean
drop_contrast (Asking *a, GError *local, GError **error)
{
  g_clear_pointer (&a->contrast, lychee_contrast_free);
  if (!g_error_matches (local, LYCHEE_CACHE_ERROR, LYCHEE_CACHE_ERROR_NO_MEMORY)) {
    g_propagate_error (error, local);
    return FALSE;
  }
  g_error_free (local);
  return TRUE;
}

/* Computes @said with and without the transcript, and chooses what follows it. When there is no
 * memory for both, the contrast is gone, and @id is left as it is. */
static gboolean
choose_by_contrast (Asking *a, gint32 said, gint32 *id, GError **error)
{
  const float *logits;
  GError *local = NULL;

  /* The contrast first: where it has no memory the tail is as before. */
  if (!lychee_contrast_follow (a->contrast, said, a->cancellable, &local) ||
      !lychee_worker_run (
          a->worker, a->tail, &said, 1, LYCHEE_OUTPUT_LAST, &logits, a->cancellable, &local))
    return drop_contrast (a, local, error);
  *id = lychee_sampler_sample (a->sampler, lychee_contrast_apply (a->contrast, logits),
      lychee_model_get_n_vocab (a->session->model));
  return TRUE;
}

static gboolean
choose_next (Asking *a, gint32 said, gint32 *id, GError **error)
{
  if (a->contrast && !choose_by_contrast (a, said, id, error))
    return FALSE;
  return a->contrast || lychee_worker_run_choosing (
                            a->worker, a->tail, &said, 1, a->sampler, id, a->cancellable, error);
}

/* Generates until the model, the limits, the caller or an error ends it. */
static gboolean
generate (Asking *a, const float *logits, GError **error)
{
  LycheeTokenizer *tokenizer = lychee_model_get_tokenizer (a->session->model);
  g_autoptr (LycheeDecoder) decoder = lychee_decoder_new (tokenizer);
  guint n_vocab = lychee_model_get_n_vocab (a->session->model);
  LycheeAttentionOptions options = lychee_session_get_options (a->session, FALSE);
  g_autoptr (LycheeRepeats) repeats = lychee_repeats_new ();
  LycheeAnswer *answer = a->answer;
  GString *text = a->speech.text;
  gint32 id;

  tell_progress (a);
  if (a->contrast)
    logits = lychee_contrast_apply (a->contrast, logits);
  id = lychee_sampler_sample (a->sampler, logits, n_vocab);
  lychee_worker_set_options (a->worker, &options);
  for (;;) {
    gsize had = text->len;
    gboolean looked_at;

    if (answer->answer_tokens == 0)
      answer->seconds_to_first = (g_get_monotonic_time () - a->begun) / 1e6;
    if (id < 0) {
      g_set_error_literal (error, LYCHEE_MODEL_ERROR, LYCHEE_MODEL_ERROR_COMPUTE,
          "The model's output is not a number: the file is broken or of an unknown kind");
      return FALSE;
    }
    if (lychee_tokenizer_is_end (tokenizer, id)) {
      answer->finish = LYCHEE_FINISH_STOP;
      break;
    }
    answer->answer_tokens++;
    lychee_decoder_push (decoder, id, text);
    replace_nul (text, had);
    if (cut_at_stop (&a->speech)) {
      answer->finish = tell (&a->speech, TRUE) ? LYCHEE_FINISH_STOP : LYCHEE_FINISH_CANCELLED;
      return TRUE;
    }
    if (!tell (&a->speech, FALSE)) {
      answer->finish = LYCHEE_FINISH_CANCELLED;
      return TRUE;
    }
    if (lychee_repeats_note (repeats, id, text->str + had)) {
      answer->finish = LYCHEE_FINISH_REPETITION;
      break;
    }
    if ((a->max_tokens > 0 && answer->answer_tokens >= a->max_tokens) ||
        lychee_cache_get_n_held (a->tail) == lychee_cache_get_max_tokens (a->tail)) {
      answer->finish = LYCHEE_FINISH_LENGTH;
      break;
    }
    looked_at = answer->answer_tokens % LYCHEE_EVIDENCE_STEP == 1;
    lychee_worker_pause_weights (a->worker, !a->finder || !looked_at);
    if (!choose_next (a, id, &id, error))
      return FALSE;
    if (looked_at)
      tell_progress (a);
  }
  lychee_decoder_finish (decoder, text);
  if (cut_at_stop (&a->speech))
    answer->finish = LYCHEE_FINISH_STOP;
  if (!tell (&a->speech, TRUE))
    answer->finish = LYCHEE_FINISH_CANCELLED;
  return TRUE;
}

/* Not an error to the caller: what was said so far is the answer. */
static gboolean
forgive_cancel (Asking *a, GError **error)
{
  if (!g_error_matches (*error, G_IO_ERROR, G_IO_ERROR_CANCELLED))
    return FALSE;
  g_clear_error (error);
  a->answer->finish = LYCHEE_FINISH_CANCELLED;
  return TRUE;
}

/* Whether a chunk lies in from .. to, at least in part. */
static gboolean
is_in_range (const LycheeChunk *chunk, guint64 from, guint64 to)
{
  guint64 end;

  if (chunk->pts == LYCHEE_TIME_NONE)
    return FALSE;
  end = lychee_chunk_get_end (chunk);
  return (from == LYCHEE_TIME_NONE || chunk->pts >= from || end > from) &&
         (to == LYCHEE_TIME_NONE || chunk->pts < to);
}

/* Cuts the fork down to the transcript's tokens @begin .. @end - 1; @begin 0: from the first on. */
static gboolean
cut_to_tokens (Asking *a, guint begin, guint end, GError **error)
{
  if (end < lychee_cache_get_length (a->tail)) {
    if (!lychee_session_cut (a->session, a->worker, a->tail, end, a->cancellable, error))
      return FALSE;
    if (lychee_cache_get_length (a->tail) != end) {
      g_set_error_literal (error, LYCHEE_CACHE_ERROR, LYCHEE_CACHE_ERROR_NO_MEMORY,
          "There is no memory left to ask about a part of the transcript: raise max-memory");
      return FALSE;
    }
  }
  return begin == 0 ||
         lychee_session_forget (a->session, a->worker, a->tail, begin, a->cancellable, error);
}

/* Cuts the fork down to what was said in the time, or the tokens, that is asked about. */
static gboolean
cut_to_range (Asking *a, LycheeQuestion *question, GError **error)
{
  guint begin = 0, end = 0, position, first = 0, start;
  guint64 from, to, from_token, to_token;
  LycheeChunk *chunk;
  gboolean tokens;

  lychee_question_get_range (question, &from, &to);
  lychee_question_get_tokens (question, &from_token, &to_token);
  tokens = from_token > 0 || to_token < G_MAXUINT64;
  if (from == LYCHEE_TIME_NONE && to == LYCHEE_TIME_NONE && !tokens)
    return TRUE;
  lychee_cache_get_start (a->tail, &start);
  for (guint i = 0; (chunk = lychee_cache_get_chunk (a->tail, i, &position)); i++) {
    if (i == 0)
      first = position;
    if (tokens ? position - start >= from_token && position - start < to_token
               : is_in_range (chunk, from, to)) {
      if (end == 0)
        begin = position;
      end = position + chunk->n_ids;
    }
    lychee_chunk_unref (chunk);
  }
  if (end == 0) {
    g_autofree char *since =
        from != LYCHEE_TIME_NONE ? lychee_time_format (from) : g_strdup ("the beginning");
    g_autofree char *until =
        to != LYCHEE_TIME_NONE ? lychee_time_format (to) : g_strdup ("the end");

    g_set_error (error, LYCHEE_SESSION_ERROR, LYCHEE_SESSION_ERROR_EMPTY,
        "There is nothing to answer from: nothing was said from %s to %s", since, until);
    return FALSE;
  }
  return cut_to_tokens (a, begin <= first ? 0 : begin, end, error);
}

/* Whether the question fits behind what @tail holds. */
static gboolean
check_room (LycheeSession *s, LycheeCache *tail, const GArray *ids, GError **error)
{
  guint max = lychee_cache_get_max_tokens (tail), left = max - lychee_cache_get_n_held (tail);

  if (ids->len == 0)
    g_set_error (error, LYCHEE_SESSION_ERROR, LYCHEE_SESSION_ERROR_NO_ROOM,
        "The question has no tokens: the vocabulary of “%s” has none for it",
        lychee_model_get_path (s->model));
  else if (ids->len >= left)
    g_set_error (error, LYCHEE_SESSION_ERROR, LYCHEE_SESSION_ERROR_NO_ROOM,
        "The question has %u tokens, and %u of the context's %u are left: ask a shorter one, or "
        "raise reserve",
        ids->len, left, max);
  else
    return TRUE;
  return FALSE;
}

/* Has the attention of a question about nothing in particular noted, over a fork of the fork: what
 * is answered must not depend on it. Where there is no memory for that there is no evidence. */
static gboolean
watch_nothing (Asking *a, const GArray *ids, guint n, GError **error)
{
  g_autoptr (GError) local = NULL;
  g_autoptr (LycheeCache) fork = lychee_cache_fork (a->tail, &local);

  lychee_evidence_finder_watch (a->finder, a->worker, LYCHEE_EVIDENCE_NOTHING);
  if (fork && lychee_session_prefill (a->session, a->worker, fork, (const gint32 *) ids->data, n,
                  LYCHEE_OUTPUT_NONE, NULL, a->cancellable, &local))
    return TRUE;
  if (g_error_matches (local, LYCHEE_CACHE_ERROR, LYCHEE_CACHE_ERROR_NO_MEMORY)) {
    lychee_worker_set_weights (a->worker, NULL);
    g_clear_pointer (&a->finder, lychee_evidence_finder_free);
    return TRUE;
  }
  g_propagate_error (error, g_steal_pointer (&local));
  return FALSE;
}

/* Reads the question without the transcript. */
static gboolean
begin_contrast (Asking *a, LycheeWorker *worker, const GArray *ids, double strength, GError **error)
{
  guint room = lychee_cache_get_max_tokens (a->tail) - lychee_cache_get_n_held (a->tail);
  guint n_more = a->max_tokens > 0 ? MIN (a->max_tokens, room) : room;
  GError *local = NULL;

  a->contrast = lychee_contrast_new (a->session, worker, a->tail, (const gint32 *) ids->data,
      ids->len, n_more, strength, a->cancellable, &local);
  return a->contrast || drop_contrast (a, local, error);
}

/* Reads the question, over the fork; what it looks at is noted if evidence is asked for. @logits:
 * (out): what follows it, until the next pass. */
static gboolean
read_question (Asking *a, const GArray *ids, const float **logits, GError **error)
{
  g_autoptr (GArray) nothing = encode_prompt (a, LYCHEE_EVIDENCE_NOTHING_PROMPT);
  guint n = count_own (ids, nothing);
  gboolean ok;

  if (a->n_evidence > 0) {
    a->finder = lychee_evidence_finder_new (a->tail, lychee_model_get_n_heads (a->session->model));
    if (!watch_nothing (a, nothing, count_own (nothing, ids), error))
      return FALSE;
    if (a->finder)
      lychee_evidence_finder_watch (a->finder, a->worker, LYCHEE_EVIDENCE_QUESTION);
  }
  ok = lychee_session_prefill (a->session, a->worker, a->tail, (const gint32 *) ids->data, n,
      LYCHEE_OUTPUT_NONE, NULL, a->cancellable, error);
  lychee_worker_pause_weights (a->worker, TRUE);
  return ok && (!logits || lychee_session_prefill (a->session, a->worker, a->tail,
                               (const gint32 *) ids->data + n, ids->len - n, LYCHEE_OUTPUT_LAST,
                               logits, a->cancellable, error));
}

/* The model's own words. */
static gboolean
write_answer (Asking *a, LycheeQuestion *question, const GArray *ids, GError **error)
{
  double strength = lychee_question_get_contrast (question);
  g_autoptr (LycheeWorker) bare = NULL;
  const float *logits = NULL;
  gboolean ok = read_question (a, ids, &logits, error);

  if (ok && a->finder)
    lychee_evidence_finder_watch (a->finder, a->worker, LYCHEE_EVIDENCE_ANSWER);
  if (ok && strength > 0)
    ok = (bare = take_worker (a->session, error)) && begin_contrast (a, bare, ids, strength, error);
  ok = ok && generate (a, logits, error);
  g_clear_pointer (&a->contrast, lychee_contrast_free);
  if (bare)
    give_worker (a->session, g_steal_pointer (&bare));
  if (a->finder && (ok || !error || g_error_matches (*error, G_IO_ERROR, G_IO_ERROR_CANCELLED)) &&
      lychee_worker_collect_weights (a->worker, NULL))
    lychee_evidence_finder_get (a->finder, a->n_evidence, a->answer->evidence);
  return ok;
}

/* The chunks of @tail, with their weights. @begin: where positions count from. (transfer full) */
static LycheeQuotable *
list_quotable (LycheeCache *tail, LycheeEvidenceFinder *finder, guint begin, guint *n_chunks)
{
  g_autofree guint *places = lychee_cache_list_chunks (tail, n_chunks);
  g_autofree double *weights = lychee_evidence_finder_get_weights (finder);
  LycheeQuotable *chunks = g_new (LycheeQuotable, *n_chunks);
  guint n_tokens = places[2 * *n_chunks - 1] - places[0];
  double all = 0;

  for (guint i = 0; i < *n_chunks; i++)
    all += weights[i];
  for (guint i = 0; i < *n_chunks; i++) {
    /* A question turns to no chunk more than any does where there is but one. */
    double weight = all > 0 ? weights[i] : (double) (places[2 * i + 1] - places[2 * i]) / n_tokens;

    chunks[i] =
        (LycheeQuotable){ lychee_cache_get_chunk (tail, i, NULL), places[2 * i] - begin, weight };
  }
  return chunks;
}

/* All chunks of what is asked about, and which of them are asked about by themselves. */
typedef struct {
  const guint *places; /* [n_chunks][2]: where they begin and end */
  guint n_chunks, begin, end;
} Part;

/* Whether a sentence goes on behind the chunk before @chunk. */
static gboolean
is_cut (LycheeCache *cache, guint chunk, guint n_chunks)
{
  g_autoptr (LycheeChunk) last = NULL;

  if (chunk == 0 || chunk == n_chunks)
    return FALSE;
  last = lychee_cache_get_chunk (cache, chunk - 1, NULL);
  return last->boundary < LYCHEE_BOUNDARY_SENTENCE || last->boundary == LYCHEE_BOUNDARY_DRIFT;
}

/* The end of a part that is to end before chunk @chunk, or where a sentence ends soon after. */
static guint
find_part_end (LycheeCache *cache, guint chunk, guint n_chunks)
{
  for (guint i = chunk; i <= MIN (chunk + MOST_LATE, n_chunks); i++)
    if (!is_cut (cache, i, n_chunks))
      return i;
  return chunk;
}

/* Appends the @n sentences of @part that the question turns to. */
static gboolean
quote_part (Asking *a, const Part *part, const GArray *ids, guint n, GError **error)
{
  guint begin = part->begin > 0 ? part->places[2 * part->begin] : 0;
  g_autoptr (LycheeCache) tail = lychee_cache_fork (a->tail, error);
  g_autofree LycheeQuotable *chunks = NULL;
  Asking asking = *a;
  guint n_chunks;
  gboolean ok;

  asking.tail = tail;
  asking.finder = NULL;
  asking.n_evidence = 1; /* has attention noted */
  ok = tail && cut_to_tokens (&asking, begin, part->places[2 * part->end - 1], error) &&
       read_question (&asking, ids, NULL, error);
  if (ok && !asking.finder) {
    g_set_error_literal (error, LYCHEE_CACHE_ERROR, LYCHEE_CACHE_ERROR_NO_MEMORY,
        "There is no memory left to look for quotes: raise max-memory");
    ok = FALSE;
  }
  ok = ok && lychee_worker_collect_weights (a->worker, error);
  if (ok) {
    chunks = list_quotable (tail, asking.finder, part->places[0], &n_chunks);
    lychee_quotes_choose (chunks, n_chunks, is_cut (a->tail, part->begin, part->n_chunks),
        is_cut (a->tail, part->end, part->n_chunks), n, a->answer->evidence);
    for (guint i = 0; i < n_chunks; i++)
      lychee_chunk_unref (chunks[i].chunk);
  }
  lychee_worker_set_weights (a->worker, NULL);
  g_clear_pointer (&asking.finder, lychee_evidence_finder_free);
  return ok;
}

/* The transcript's own words: of each of its parts the sentences that the question turns to. */
static gboolean
quote_answer (Asking *a, guint n_quotes, const GArray *ids, GError **error)
{
  Part part = { 0 };
  g_autofree guint *places = lychee_cache_list_chunks (a->tail, &part.n_chunks);
  guint n_tokens = places[2 * part.n_chunks - 1] - places[0], told = 0;
  guint64 n_parts;

  n_quotes = MIN (n_quotes, MAX (1, n_tokens / SPARSEST));
  n_parts = ((guint64) n_quotes + 1) / 2;
  part.places = places;
  a->answer->finish = LYCHEE_FINISH_STOP;
  tell_progress (a);
  for (guint64 i = 0; i < n_parts && part.end < part.n_chunks; i++) {
    guint n = (guint) (n_quotes * (i + 1) / n_parts - told);

    part.begin = part.end;
    while (
        part.end < part.n_chunks && places[2 * part.end] - places[0] < n_tokens * (i + 1) / n_parts)
      part.end++;
    part.end = find_part_end (a->tail, part.end, part.n_chunks);
    if (part.end == part.begin) /* one chunk can be longer than a part */
      continue;
    if (!quote_part (a, &part, ids, n, error))
      return FALSE;
    if (told == 0)
      a->answer->seconds_to_first = (g_get_monotonic_time () - a->begun) / 1e6;
    for (; told < a->answer->evidence->len; told++) {
      g_autofree char *line = lychee_quote_to_line (a->answer->evidence->pdata[told]);

      g_string_append (a->speech.text, line);
    }
    if (!tell (&a->speech, TRUE)) {
      a->answer->finish = LYCHEE_FINISH_CANCELLED;
      return TRUE;
    }
    tell_progress (a);
  }
  return TRUE;
}

/* Answers, over a fork of its own. */
static gboolean
answer_question (Asking *a, LycheeQuestion *question, GError **error)
{
  g_autofree char *prompt = write_prompt (question);
  guint n_quotes = lychee_question_get_quotes (question);
  g_autoptr (GArray) ids = NULL;
  guint64 left_out, forgotten;

  if (!cut_to_range (a, question, error))
    return FALSE;
  ids = encode_prompt (a, prompt);
  if (!check_room (a->session, a->tail, ids, error))
    return FALSE;
  lychee_cache_get_lost (a->tail, &left_out, &forgotten);
  a->answer->truncated = left_out > 0 || forgotten > 0;
  a->answer->transcript_tokens = lychee_session_count_transcript (a->tail);
  a->answer->prompt_tokens = ids->len;
  return n_quotes > 0 ? quote_answer (a, n_quotes, ids, error)
                      : write_answer (a, question, ids, error);
}

LycheeAnswer *
lychee_session_answer (LycheeSession *session, LycheeQuestion *asked, LycheeTextFunc func,
    LycheeQuestion *watched, LycheeProgressFunc progress, gpointer user_data,
    GCancellable *cancellable, GError **error)
{
  g_autoptr (LycheeSampler) sampler = NULL;
  g_autoptr (LycheeAnswer) answer = NULL;
  g_autoptr (LycheeCache) cache = NULL, tail = NULL;
  g_autoptr (GError) local = NULL;
  Asking a = { .session = session, .begun = g_get_monotonic_time (), .cancellable = cancellable };
  gboolean ok;

  if (!lychee_session_check_ready (session, error))
    return NULL;
  cache = lychee_session_ref_cache (session, &a.template);
  tail = lychee_cache_fork (cache, error);
  if (!tail)
    return NULL;
  if (is_empty (tail)) {
    g_set_error_literal (error, LYCHEE_SESSION_ERROR, LYCHEE_SESSION_ERROR_EMPTY,
        "There is no transcript to answer from: nothing was said");
    return NULL;
  }

  a.worker = take_worker (session, error);
  if (!a.worker)
    return NULL;
  sampler = lychee_question_get_sampler (asked) ? g_object_ref (lychee_question_get_sampler (asked))
                                                : lychee_sampler_new ();
  answer = g_object_new (LYCHEE_TYPE_ANSWER, NULL);
  a.tail = tail;
  a.sampler = sampler;
  a.max_tokens = lychee_question_get_max_tokens (asked);
  a.answer = answer;
  a.n_evidence = lychee_question_get_evidence (asked);
  a.watched = watched;
  a.progress = progress;
  a.speech = (Speech){ g_string_new (NULL), 0, lychee_question_get_stop (asked), func, user_data };
  ok = answer_question (&a, asked, &local);
  lychee_worker_set_weights (a.worker, NULL);
  g_clear_pointer (&a.finder, lychee_evidence_finder_free);
  lychee_session_collect_stats (session, a.worker);
  give_worker (session, a.worker);

  /* What the caller was not told, for it might have become a stop string, was not said. */
  g_string_truncate (a.speech.text, a.speech.told);
  answer->text = g_string_free (a.speech.text, FALSE);
  answer->seconds = (g_get_monotonic_time () - a.begun) / 1e6;
  if (!ok && !forgive_cancel (&a, &local)) {
    g_propagate_error (error, g_steal_pointer (&local));
    return NULL;
  }
  return g_steal_pointer (&answer);
}

/* A caller of lychee_session_ask(). */
typedef struct {
  LycheeTextFunc func;
  gpointer user_data;
  LycheeQuestion *question;
} Caller;

static gboolean
tell_caller (const char *text, gpointer user_data)
{
  Caller *caller = user_data;

  return !caller->func || caller->func (text, caller->user_data);
}

static void
emit_progress (LycheeAnswer *so_far, gpointer user_data)
{
  lychee_question_emit_progress (((Caller *) user_data)->question, so_far);
}

/**
 * lychee_session_ask:
 * @session: a session
 * @question: what to ask about the transcript
 * @func: (nullable) (scope call) (closure user_data): called with each piece of the answer, in this
 *   thread
 * @user_data: for @func
 * @cancellable: (nullable): a cancellable, taken note of within a token
 * @error: return location for an error
 *
 * Asks about what has been read up to now; what is read meanwhile is not seen. Blocks until the
 * answer is complete. Takes turns, token by token, with whatever else the session or others
 * compute.
 *
 * May be called in any thread, in several at the same time, and while another one appends.
 *
 * Returns: (transfer full): the answer; a cancelled one has what was said so far. %NULL
 *   with %LYCHEE_SESSION_ERROR_EMPTY (nothing was said, or not in the time that is asked about),
 *   %LYCHEE_SESSION_ERROR_NO_ROOM (the question is too long for what is left of the context),
 *   %LYCHEE_SESSION_ERROR_TEMPLATE (the model's chat template is not
 *   known), %LYCHEE_CACHE_ERROR_NO_MEMORY (max-memory, or the machine's), any code of
 *   %LYCHEE_BACKEND_ERROR, %LYCHEE_MODEL_ERROR_COMPUTE
 */
LycheeAnswer *
lychee_session_ask (LycheeSession *session, LycheeQuestion *question, LycheeTextFunc func,
    gpointer user_data, GCancellable *cancellable, GError **error)
{
  g_autoptr (LycheeQuestion) asked = NULL;
  Caller caller = { func, user_data, question };

  g_return_val_if_fail (LYCHEE_IS_SESSION (session), NULL);
  g_return_val_if_fail (LYCHEE_IS_QUESTION (question), NULL);

  asked = lychee_question_copy (question);
  return lychee_session_answer (
      session, asked, tell_caller, question, emit_progress, &caller, cancellable, error);
}
