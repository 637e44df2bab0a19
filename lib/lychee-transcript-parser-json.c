/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "lychee-transcript-parser-json.h"
#include "lychee-transcript-parser-json-words.h"
#include "lychee-transcript-parser-private.h"

#include <string.h>

/* The JSON of speech recognisers. They all have objects that have a text and times, or a list of
 * words with times, or both, under many names and at any depth; and most say the same words more
 * than once: as a whole, as segments, as words. What is said is taken from one of them:
 *
 * - an object's own text and times rather than the words within it, which give the times that it
 *   lacks;
 * - where two members of an object both have cues, the first that has times;
 * - of alternatives, the first.
 *
 * Text without any time is kept until its outermost object has ended without a cue that has one. */

/* Words that are kept until it is known whether their object has a text of its own. */
#define MAX_WORDS 65536
/* Text without times that is kept until it is known whether there are times. */
#define MAX_UNTIMED (16 * 1024 * 1024)
#define MAX_KEY 32

typedef enum {
  ROLE_NONE,
  ROLE_TEXT,
  ROLE_WORD,
  ROLE_PIECE, /* a text to be put behind the one before as it is */
  ROLE_START,
  ROLE_END,
  ROLE_DURATION,
  ROLE_START_MS,
  ROLE_END_MS,
  ROLE_DURATION_MS,
  ROLE_SPEAKER,
  ROLE_NAME,
  ROLE_LANGUAGE,
  ROLE_PARTIAL,
  ROLE_FINAL,
  ROLE_TYPE,
  ROLE_OFFSETS,   /* an object that has the times */
  ROLE_TIMESTAMP, /* an array of start and end, or of arrays of word, start and end */
  ROLE_WORDS,
  ROLE_ALTERNATIVES,
  ROLE_IGNORED,
} Role;

static const struct {
  const char *key;
  Role role;
} roles[] = {
  { "text", ROLE_TEXT },
  { "transcript", ROLE_TEXT },
  { "content", ROLE_TEXT },
  { "body", ROLE_TEXT },
  { "display", ROLE_TEXT },
  { "sentence", ROLE_TEXT },
  { "utterance", ROLE_TEXT },
  { "caption", ROLE_TEXT },
  { "word", ROLE_WORD },
  { "punctuated_word", ROLE_WORD },
  { "utf8", ROLE_PIECE },
  { "value", ROLE_PIECE },
  { "start", ROLE_START },
  { "start_time", ROLE_START },
  { "startTime", ROLE_START },
  { "startOffset", ROLE_START },
  { "begin", ROLE_START },
  { "from", ROLE_START },
  { "ts", ROLE_START },
  { "offset", ROLE_START },
  { "end", ROLE_END },
  { "end_time", ROLE_END },
  { "endTime", ROLE_END },
  { "endOffset", ROLE_END },
  { "end_ts", ROLE_END },
  { "to", ROLE_END },
  { "stop", ROLE_END },
  { "duration", ROLE_DURATION },
  { "dur", ROLE_DURATION },
  { "start_ms", ROLE_START_MS },
  { "startMs", ROLE_START_MS },
  { "tStartMs", ROLE_START_MS },
  { "end_ms", ROLE_END_MS },
  { "endMs", ROLE_END_MS },
  { "duration_ms", ROLE_DURATION_MS },
  { "durationMs", ROLE_DURATION_MS },
  { "dDurationMs", ROLE_DURATION_MS },
  { "speaker", ROLE_SPEAKER },
  { "speaker_label", ROLE_SPEAKER },
  { "speakerLabel", ROLE_SPEAKER },
  { "speaker_id", ROLE_SPEAKER },
  { "speakerId", ROLE_SPEAKER },
  { "speaker_name", ROLE_SPEAKER },
  { "speakerName", ROLE_SPEAKER },
  { "speaker_tag", ROLE_SPEAKER },
  { "speakerTag", ROLE_SPEAKER },
  { "spk", ROLE_SPEAKER },
  { "name", ROLE_NAME },
  { "language", ROLE_LANGUAGE },
  { "language_code", ROLE_LANGUAGE },
  { "lang", ROLE_LANGUAGE },
  { "partial", ROLE_PARTIAL },
  { "is_final", ROLE_FINAL },
  { "isFinal", ROLE_FINAL },
  { "final", ROLE_FINAL },
  { "type", ROLE_TYPE },
  { "message_type", ROLE_TYPE },
  { "offsets", ROLE_OFFSETS },
  { "timestamp", ROLE_TIMESTAMP },
  { "timestamps", ROLE_TIMESTAMP },
  { "words", ROLE_WORDS },
  { "word_segments", ROLE_WORDS },
  { "items", ROLE_WORDS },
  { "elements", ROLE_WORDS },
  { "segs", ROLE_WORDS },
  { "result", ROLE_WORDS },
  { "alternatives", ROLE_ALTERNATIVES },
  { "nBest", ROLE_ALTERNATIVES },
  { "NBest", ROLE_ALTERNATIVES },
  { "hypotheses", ROLE_ALTERNATIVES },
  { "tokens", ROLE_IGNORED },
  { "speaker_labels", ROLE_IGNORED },
};

typedef struct {
  gboolean array;
  Role role; /* what the container is in its parent */
  char key[MAX_KEY];

  GString *text; /* NULL where there is none */
  Role text_role;
  char *speaker;
  LycheeJsonTime start;
  LycheeJsonTime end;
  LycheeJsonTime duration;
  gboolean partial;
  gboolean punctuation;
  guint n_values; /* of an array */

  LycheeJsonWords *words; /* NULL where there are none */
  char words_from[MAX_KEY];
  GPtrArray *untimed; /* of LycheeCue; NULL where there are none */
  gsize untimed_bytes;
  char untimed_from[MAX_KEY];
  gboolean has_source; /* a member has given cues: only that one may give more */
  char source[MAX_KEY];
} Frame;

typedef struct {
  LycheeTranscriptReader reader;
  LycheeJsonScanner *scanner;
  GHashTable *roles;
  GQueue frames; /* of Frame, the innermost first; the last stands for the whole input */
  gboolean milliseconds;
  guint64 n_replaced;
} JsonReader;

static Role
role_of (JsonReader *self, const char *key)
{
  return key != NULL ? GPOINTER_TO_UINT (g_hash_table_lookup (self->roles, key)) : ROLE_NONE;
}

static Frame *
frame_new (const char *key, Role role, gboolean array)
{
  Frame *frame = g_new0 (Frame, 1);

  frame->array = array;
  frame->role = role;
  g_strlcpy (frame->key, key != NULL ? key : "", sizeof frame->key);
  return frame;
}

static void
frame_free (Frame *frame)
{
  if (frame->text != NULL)
    g_string_free (frame->text, TRUE);
  g_free (frame->speaker);
  g_clear_pointer (&frame->words, lychee_json_words_free);
  g_clear_pointer (&frame->untimed, g_ptr_array_unref);
  g_free (frame);
}

static Frame *
innermost (JsonReader *self)
{
  return g_queue_peek_head (&self->frames);
}

/* The speaker of the innermost frame that has one. */
static const char *
find_speaker (JsonReader *self)
{
  for (GList *item = self->frames.head; item != NULL; item = item->next)
    if (((Frame *) item->data)->speaker != NULL)
      return ((Frame *) item->data)->speaker;
  return NULL;
}

/* Whether @frame is of a hypothesis, or within one. */
static gboolean
is_partial (JsonReader *self, Frame *frame)
{
  gboolean partial = frame->partial;

  for (GList *item = self->frames.head; item != NULL && !partial; item = item->next)
    partial = ((Frame *) item->data)->partial;
  return partial;
}

/* Whether @key may be where the cues of @frame come from. It is, from then on; what other members
 * gave, and was kept, is the same once more. */
static gboolean
claim_source (Frame *frame, const char *key)
{
  if (frame->has_source)
    return strcmp (frame->source, key) == 0;
  frame->has_source = TRUE;
  g_strlcpy (frame->source, key, sizeof frame->source);
  if (strcmp (frame->words_from, key) != 0)
    g_clear_pointer (&frame->words, lychee_json_words_free);
  if (strcmp (frame->untimed_from, key) != 0)
    g_clear_pointer (&frame->untimed, g_ptr_array_unref);
  return TRUE;
}

/* Whether cues from within the innermost frame are wanted. */
static gboolean
claim (JsonReader *self)
{
  for (GList *item = self->frames.head; item->next != NULL; item = item->next) {
    Frame *frame = item->next->data;

    if (!frame->array && !claim_source (frame, ((Frame *) item->data)->key))
      return FALSE;
  }
  return TRUE;
}

static void
give_cue (JsonReader *self, LycheeCue *cue)
{
  LycheeTranscriptOutput *output = self->reader.output;

  if (lychee_transcript_is_blank (cue->text, strlen (cue->text))) {
    output->report->empty++;
    lychee_cue_free (cue);
  } else if (cue->start == LYCHEE_TIME_NONE && cue->end == LYCHEE_TIME_NONE) {
    lychee_transcript_order_drain (output->order, output->cues);
    g_ptr_array_add (output->cues, cue);
  } else {
    lychee_transcript_order_add (output->order, cue, output->cues);
  }
}

/* Gives the words that make whole cues, or all. */
static void
give_words (JsonReader *self, Frame *frame, gboolean all)
{
  g_autoptr (GPtrArray) cues = g_ptr_array_new ();

  if (frame->words == NULL)
    return;
  if (!claim (self) || (!frame->array && !claim_source (frame, frame->words_from))) {
    g_clear_pointer (&frame->words, lychee_json_words_free);
    return;
  }
  lychee_json_words_group (frame->words, find_speaker (self), &self->milliseconds, all, cues);
  for (guint i = 0; i < cues->len; i++)
    give_cue (self, g_ptr_array_index (cues, i));
}

static void
give_untimed (JsonReader *self, Frame *frame)
{
  g_autoptr (GPtrArray) untimed = g_steal_pointer (&frame->untimed);

  frame->untimed_bytes = 0;
  if (untimed == NULL || !claim (self) ||
      (!frame->array && !claim_source (frame, frame->untimed_from)))
    return;
  g_ptr_array_set_free_func (untimed, NULL);
  for (guint i = 0; i < untimed->len; i++)
    give_cue (self, g_ptr_array_index (untimed, i));
}

/* Nothing around it can have a text or times: what comes is handed out as it comes. */
static gboolean
is_outermost (JsonReader *self, Frame *frame)
{
  for (GList *item = g_queue_find (&self->frames, frame); item != NULL; item = item->next)
    if (!((Frame *) item->data)->array && item->next != NULL)
      return FALSE;
  return TRUE;
}

static void
add_word (JsonReader *self, const char *key, const LycheeJsonWord *word)
{
  Frame *parent = innermost (self);

  if (!parent->array && parent->has_source && strcmp (parent->source, key) != 0)
    return;
  if (parent->words == NULL || strcmp (parent->words_from, key) != 0) {
    if (parent->words != NULL) /* the first list of words is as good as another */
      return;
    parent->words = lychee_json_words_new ();
    g_strlcpy (parent->words_from, key, sizeof parent->words_from);
  }
  lychee_json_words_add (parent->words, word);
  if (is_outermost (self, parent) || lychee_json_words_get_n (parent->words) > MAX_WORDS)
    give_words (self, parent, FALSE);
}

static void
add_untimed (JsonReader *self, const char *key, LycheeCue *cue)
{
  Frame *parent = innermost (self);

  if (!parent->array && ((parent->has_source && strcmp (parent->source, key) != 0) ||
                            (parent->untimed != NULL && strcmp (parent->untimed_from, key) != 0))) {
    lychee_cue_free (cue);
    return;
  }
  if (parent->untimed == NULL)
    parent->untimed = g_ptr_array_new_with_free_func ((GDestroyNotify) lychee_cue_free);
  g_strlcpy (parent->untimed_from, key, sizeof parent->untimed_from);
  g_ptr_array_add (parent->untimed, cue);
  parent->untimed_bytes += strlen (cue->text) + sizeof *cue;
  if (is_outermost (self, parent) || parent->untimed_bytes > MAX_UNTIMED)
    give_untimed (self, parent);
}

/* Brings what an array or a nameless object has collected to what it is in. */
static void
pass_on (JsonReader *self, Frame *frame)
{
  Frame *parent = innermost (self);

  if (frame->words != NULL) {
    g_clear_pointer (&frame->untimed, g_ptr_array_unref); /* the same words, without times */
    if (parent->words == NULL &&
        !(parent->has_source && !parent->array && strcmp (parent->source, frame->key) != 0)) {
      lychee_json_words_inherit (frame->words, frame->speaker);
      parent->words = g_steal_pointer (&frame->words);
      g_strlcpy (parent->words_from, frame->key, sizeof parent->words_from);
      if (is_outermost (self, parent) || lychee_json_words_get_n (parent->words) > MAX_WORDS)
        give_words (self, parent, FALSE);
    } else if (parent->words != NULL && strcmp (parent->words_from, frame->key) == 0) {
      lychee_json_words_inherit (frame->words, frame->speaker);
      lychee_json_words_append (parent->words, frame->words);
      if (is_outermost (self, parent) || lychee_json_words_get_n (parent->words) > MAX_WORDS)
        give_words (self, parent, FALSE);
    }
  }
  if (frame->untimed != NULL) {
    g_autoptr (GPtrArray) untimed = g_steal_pointer (&frame->untimed);

    g_ptr_array_set_free_func (untimed, NULL);
    for (guint i = 0; i < untimed->len; i++) {
      LycheeCue *cue = g_ptr_array_index (untimed, i);

      if (cue->speaker == NULL)
        cue->speaker = g_strdup (frame->speaker);
      add_untimed (self, frame->key, cue);
    }
  }
}

/* An object that has no text takes the one that was found within it, if it has times. */
static void
adopt_untimed (Frame *frame)
{
  if (frame->text != NULL || frame->untimed == NULL || frame->words != NULL || frame->has_source ||
      !(frame->start.known || frame->punctuation))
    return;
  frame->text = g_string_new (NULL);
  frame->text_role = ROLE_TEXT;
  for (guint i = 0; i < frame->untimed->len; i++) {
    LycheeCue *cue = g_ptr_array_index (frame->untimed, i);

    if (i > 0)
      g_string_append_c (frame->text, ' ');
    g_string_append (frame->text, cue->text);
    if (frame->speaker == NULL)
      frame->speaker = g_strdup (cue->speaker);
  }
  g_clear_pointer (&frame->untimed, g_ptr_array_unref);
}

static gboolean
is_word (JsonReader *self, Frame *frame)
{
  Frame *parent = innermost (self);

  return frame->text_role == ROLE_WORD || frame->text_role == ROLE_PIECE ||
         (parent->array && parent->role == ROLE_WORDS && frame->text_role == ROLE_TEXT);
}

/* An object that has a text and times, or words that have. */
static void
give_object (JsonReader *self, Frame *frame)
{
  LycheeCue *cue;

  if (frame->text == NULL) {
    lychee_json_words_set_span (frame->words, &frame->start, &frame->end);
    give_words (self, frame, TRUE);
    return;
  }
  if (!claim (self))
    return;
  if (frame->words != NULL && !frame->start.known &&
      lychee_json_words_give_times (frame->words, frame->text->str, find_speaker (self))) {
    give_words (self, frame, TRUE);
    return;
  }
  if (frame->words != NULL)
    lychee_json_words_get_span (frame->words, &frame->start, &frame->end);
  cue = lychee_json_cue_new (
      frame->text->str, find_speaker (self), &frame->start, &frame->end, &self->milliseconds);
  if (is_partial (self, frame))
    cue->flags |= LYCHEE_CUE_PARTIAL;
  give_cue (self, cue);
}

static void
end_object (JsonReader *self, Frame *frame)
{
  Frame *parent = innermost (self);

  if (frame->role == ROLE_OFFSETS || frame->role == ROLE_TIMESTAMP) {
    if (frame->start.known && !parent->array) {
      parent->start = frame->start;
      parent->end = frame->end;
      if (frame->role == ROLE_OFFSETS) {
        parent->start.unit = LYCHEE_JSON_MILLISECONDS;
        parent->end.unit = LYCHEE_JSON_MILLISECONDS;
      }
    }
    return;
  }
  if (frame->role == ROLE_SPEAKER) {
    if (parent->speaker == NULL)
      parent->speaker = g_steal_pointer (&frame->speaker);
    return;
  }
  if (frame->start.known && frame->duration.known && !frame->end.known) {
    frame->end = frame->duration;
    frame->end.value += frame->start.value;
  }
  adopt_untimed (frame);
  if (frame->has_source) { /* the cues have been given */
    g_queue_push_head (&self->frames, frame);
    if (frame->words != NULL)
      give_words (self, frame, TRUE);
    give_untimed (self, frame);
    g_queue_pop_head (&self->frames);
    return;
  }
  if (frame->text != NULL && is_word (self, frame)) {
    add_word (self, frame->key,
        &(LycheeJsonWord){ frame->text->str, frame->speaker, frame->start, frame->end,
            frame->punctuation, frame->text_role == ROLE_PIECE });
    return;
  }
  if (frame->text != NULL && !frame->start.known && frame->words == NULL) {
    LycheeCue *cue = lychee_cue_new (
        frame->text->str, frame->text->len, frame->speaker, LYCHEE_TIME_NONE, LYCHEE_TIME_NONE);

    if (is_partial (self, frame))
      cue->flags |= LYCHEE_CUE_PARTIAL;
    add_untimed (self, frame->key, cue);
    return;
  }
  if (frame->text != NULL || (frame->words != NULL && frame->start.known)) {
    g_queue_push_head (&self->frames, frame);
    give_object (self, frame);
    g_queue_pop_head (&self->frames);
    return;
  }
  pass_on (self, frame);
}

/* ["word", 0.1, 0.5] */
static void
end_array (JsonReader *self, Frame *frame)
{
  Frame *parent = innermost (self);

  if (frame->text != NULL && frame->start.known && parent->array) {
    add_word (self, frame->key,
        &(LycheeJsonWord){ frame->text->str, NULL, frame->start, frame->end, FALSE, FALSE });
  } else if (frame->role == ROLE_TIMESTAMP && frame->start.known && !parent->array) {
    parent->start = frame->start;
    parent->end = frame->end;
  } else {
    pass_on (self, frame);
  }
}

static gboolean
on_begin (gpointer user_data, const char *key, gboolean array)
{
  JsonReader *self = user_data;
  Frame *parent = innermost (self);
  Role role = parent->array ? parent->role : role_of (self, key);

  parent->n_values++;
  if (role == ROLE_IGNORED)
    return FALSE;
  if (parent->array && parent->role == ROLE_ALTERNATIVES && parent->n_values > 1)
    return FALSE;
  g_queue_push_head (&self->frames, frame_new (parent->array ? parent->key : key, role, array));
  return TRUE;
}

static void
on_end (gpointer user_data)
{
  JsonReader *self = user_data;
  Frame *frame = g_queue_pop_head (&self->frames);

  if (frame->array)
    end_array (self, frame);
  else
    end_object (self, frame);
  frame_free (frame);
}

static gboolean
on_wants_string (gpointer user_data, const char *key)
{
  JsonReader *self = user_data;
  Frame *frame = innermost (self);
  Role role = role_of (self, key);

  if (frame->array)
    return TRUE;
  return role != ROLE_NONE && role != ROLE_IGNORED;
}

static void
set_text (JsonReader *self, Frame *frame, Role role, const char *text, gsize length)
{
  if (frame->text == NULL) {
    frame->text = g_string_new_len (text, length);
  } else if (frame->text_role == ROLE_TEXT && role == ROLE_TEXT &&
             frame->text->len + length <= LYCHEE_CUE_MAX_LENGTH) {
    /* A long string comes in pieces; of two members that have a text, the first counts. */
    if (frame->text->len >= LYCHEE_LINE_MAX_LENGTH)
      g_string_append_len (frame->text, text, length);
    return;
  } else if (frame->text_role == ROLE_TEXT && role == ROLE_TEXT &&
             frame->text->len >= LYCHEE_LINE_MAX_LENGTH) {
    LycheeCue *cue =
        lychee_cue_new (frame->text->str, -1, frame->speaker, LYCHEE_TIME_NONE, LYCHEE_TIME_NONE);

    cue->flags |= LYCHEE_CUE_CONTINUES;
    if (claim (self))
      give_cue (self, cue);
    else
      lychee_cue_free (cue);
    g_string_truncate (frame->text, 0);
    g_string_append_len (frame->text, text, length);
    return;
  } else {
    g_string_truncate (frame->text, 0);
    g_string_append_len (frame->text, text, length);
  }
  frame->text_role = role;
}

static void
set_time (Frame *frame, Role role, const char *text)
{
  gboolean milliseconds = role == ROLE_START_MS || role == ROLE_END_MS || role == ROLE_DURATION_MS;
  LycheeJsonTime time;

  if (!lychee_json_time_parse (text, milliseconds, &time))
    return;
  if (role == ROLE_START || role == ROLE_START_MS) {
    if (!frame->start.known)
      frame->start = time;
  } else if (role == ROLE_END || role == ROLE_END_MS) {
    if (!frame->end.known)
      frame->end = time;
  } else {
    frame->duration = time;
  }
}

static void
set_speaker (Frame *frame, const char *text)
{
  if (frame->speaker != NULL || *text == '\0' || strlen (text) > 256)
    return;
  /* A number alone is no name. */
  frame->speaker = strspn (text, "0123456789") == strlen (text)
                       ? g_strdup_printf ("Speaker %s", text)
                       : g_strdup (text);
}

static void
on_array_value (Frame *frame, const char *text, gboolean string)
{
  LycheeJsonTime time;

  frame->n_values++;
  if (string && frame->text == NULL && frame->n_values == 1) {
    frame->text = g_string_new (text);
    frame->text_role = ROLE_WORD;
  } else if (!string && (frame->text != NULL || frame->role == ROLE_TIMESTAMP) &&
             lychee_json_time_parse (text, FALSE, &time)) {
    if (!frame->start.known)
      frame->start = time;
    else if (!frame->end.known)
      frame->end = time;
  }
}

static void
on_string (gpointer user_data, const char *key, char *text, gsize length)
{
  JsonReader *self = user_data;
  Frame *frame = innermost (self);
  Role role = role_of (self, key);

  if (frame->array) {
    on_array_value (frame, text, TRUE);
    return;
  }
  switch (role) {
  case ROLE_PIECE:
    if (frame->role != ROLE_WORDS)
      break;
    G_GNUC_FALLTHROUGH;
  case ROLE_TEXT:
  case ROLE_WORD:
    set_text (self, frame, role, text, length);
    break;
  case ROLE_PARTIAL:
    set_text (self, frame, ROLE_TEXT, text, length);
    frame->partial = TRUE;
    break;
  case ROLE_START:
  case ROLE_END:
  case ROLE_DURATION:
  case ROLE_START_MS:
  case ROLE_END_MS:
  case ROLE_DURATION_MS:
    set_time (frame, role, text);
    break;
  case ROLE_SPEAKER:
    set_speaker (frame, text);
    break;
  case ROLE_NAME:
    if (frame->role == ROLE_SPEAKER) {
      g_clear_pointer (&frame->speaker, g_free);
      set_speaker (frame, text);
    }
    break;
  case ROLE_LANGUAGE:
    if (self->reader.output->language == NULL && length >= 2 && length < 32)
      self->reader.output->language = g_strdup (text);
    break;
  case ROLE_TYPE:
    if (strstr (text, "artial") != NULL || strcmp (text, "interim") == 0)
      frame->partial = TRUE;
    else if (g_str_has_prefix (text, "punct"))
      frame->punctuation = TRUE;
    break;
  default:
    break;
  }
}

static void
on_literal (gpointer user_data, const char *key, const char *text)
{
  JsonReader *self = user_data;
  Frame *frame = innermost (self);
  Role role = role_of (self, key);

  if (frame->array) {
    on_array_value (frame, text, FALSE);
    return;
  }
  if (role == ROLE_FINAL && strcmp (text, "false") == 0)
    frame->partial = TRUE;
  else if (role == ROLE_PARTIAL && g_ascii_strcasecmp (text, "true") == 0)
    frame->partial = TRUE;
  else if (role == ROLE_SPEAKER && g_ascii_isdigit (*text))
    set_speaker (frame, text);
  else if (role >= ROLE_START && role <= ROLE_DURATION_MS)
    set_time (frame, role, text);
}

static void
count_replaced (JsonReader *self)
{
  guint64 n = lychee_json_scanner_get_n_replaced (self->scanner);

  self->reader.output->report->replaced += n - self->n_replaced;
  self->n_replaced = n;
}

static void
json_reader_push (LycheeTranscriptReader *reader, const char *text, gsize length)
{
  JsonReader *self = (JsonReader *) reader;

  lychee_json_scanner_push (self->scanner, text, length);
  count_replaced (self);
}

static void
json_reader_finish (LycheeTranscriptReader *reader)
{
  JsonReader *self = (JsonReader *) reader;
  Frame *outermost;

  lychee_json_scanner_finish (self->scanner);
  count_replaced (self);
  outermost = innermost (self);
  give_words (self, outermost, TRUE);
  give_untimed (self, outermost);
}

static void
json_reader_free (LycheeTranscriptReader *reader)
{
  JsonReader *self = (JsonReader *) reader;

  lychee_json_scanner_free (self->scanner);
  g_queue_clear_full (&self->frames, (GDestroyNotify) frame_free);
  g_hash_table_unref (self->roles);
  g_free (self);
}

LycheeTranscriptReader *
lychee_transcript_reader_new_json (LycheeTranscriptOutput *output)
{
  static const LycheeJsonEvents events = { on_begin, on_end, on_wants_string, on_string,
    on_literal };
  JsonReader *self = g_new0 (JsonReader, 1);

  self->reader.push = json_reader_push;
  self->reader.finish = json_reader_finish;
  self->reader.free = json_reader_free;
  self->reader.output = output;
  self->reader.takes_text = TRUE;
  self->scanner = lychee_json_scanner_new (&events, self);
  self->roles = g_hash_table_new (g_str_hash, g_str_equal);
  for (guint i = 0; i < G_N_ELEMENTS (roles); i++)
    g_hash_table_insert (self->roles, (gpointer) roles[i].key, GUINT_TO_POINTER (roles[i].role));
  g_queue_init (&self->frames);
  g_queue_push_head (&self->frames, frame_new ("", ROLE_NONE, TRUE));
  return &self->reader;
}
