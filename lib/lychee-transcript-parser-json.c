/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "lychee-transcript-parser-json.h"
#include "lychee-transcript-parser-json-held.h"
#include "lychee-transcript-parser-json-keys.h"
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
 * Text without any time is kept until its outermost object has ended without a cue that has one;
 * cues are held as long. */

/* Words that are kept until it is known whether their object has a text of its own. */
#define MAX_WORDS 65536
/* Text without times that is kept until it is known whether there are times. */
#define MAX_UNTIMED (16 * 1024 * 1024)
#define MAX_KEY 32

typedef struct {
  gboolean array;
  LycheeJsonKey role; /* what the container is in its parent */
  char key[MAX_KEY];

  GString *text; /* NULL where there is none */
  LycheeJsonKey text_role;
  char *speaker;
  LycheeJsonKey speaker_key; /* how good that is */
  LycheeJsonTime start;
  LycheeJsonTime end;
  LycheeJsonTime duration;
  gboolean partial;
  gboolean word;
  gboolean punctuation;
  guint n_values;            /* of an array */
  LycheeJsonTime numbers[2]; /* before its text, the last two */
  guint n_numbers;
  guint64 held_from;   /* of the cues that are held, the number of the first from within */
  gboolean outermost;  /* nothing is around it */
  gboolean weak_start; /* from members that may be about something else */
  gboolean weak_end;

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
  GQueue frames; /* of Frame, the innermost first; the last stands for the whole input */
  gboolean milliseconds;
  LycheeJsonOrigin origin;
  LycheeJsonHeld *held;
  guint64 n_replaced;
} JsonReader;

static LycheeJsonKey
role_of (const char *key)
{
  LycheeJsonUnit unit;

  return lychee_json_key_lookup (key, &unit);
}

static Frame *
frame_new (const char *key, LycheeJsonKey role, gboolean array)
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
  lychee_json_words_set_speakers (
      frame->words, lychee_json_held_get_turns (self->held), self->milliseconds);
  lychee_json_words_group (frame->words, find_speaker (self), &self->milliseconds, all, cues);
  if (all && !frame->array && frame->text == NULL)
    lychee_json_held_yield_to (self->held, cues);
  for (guint i = 0; i < cues->len; i++)
    lychee_json_held_add (self->held, g_ptr_array_index (cues, i), self->milliseconds);
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
    lychee_json_held_add (self->held, g_ptr_array_index (untimed, i), self->milliseconds);
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
  for (guint i = 1; frame->untimed != NULL && i < frame->untimed->len; i++)
    if (frame->outermost ||
        g_strcmp0 (((LycheeCue *) g_ptr_array_index (frame->untimed, i))->speaker,
            ((LycheeCue *) g_ptr_array_index (frame->untimed, 0))->speaker) != 0)
      return; /* its time is not that of one text */
  if (frame->text != NULL || frame->untimed == NULL || frame->words != NULL || frame->has_source ||
      !(frame->start.known || frame->punctuation))
    return;
  frame->text = g_string_new (NULL);
  frame->text_role = LYCHEE_JSON_KEY_TEXT;
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

static void
set_speaker (Frame *frame, const char *text, LycheeJsonKey key)
{
  if ((frame->speaker != NULL && key <= frame->speaker_key) || strlen (text) > 256 ||
      *text == '\0' || strcmp (text, "?") == 0)
    return;
  g_free (frame->speaker);
  /* A number alone is no name. */
  frame->speaker = strspn (text, "0123456789") == strlen (text)
                       ? g_strdup_printf ("Speaker %s", text)
                       : g_strdup (text);
  frame->speaker_key = key;
}

static gboolean
is_word (JsonReader *self, Frame *frame)
{
  Frame *parent = innermost (self);

  return frame->text_role == LYCHEE_JSON_KEY_WORD || frame->text_role == LYCHEE_JSON_KEY_PIECE ||
         frame->word || frame->punctuation ||
         (parent->array && frame->text_role == LYCHEE_JSON_KEY_TEXT &&
             (parent->role == LYCHEE_JSON_KEY_WORDS || parent->role == LYCHEE_JSON_KEY_TOKENS));
}

/* Whether a token is none of what is said: "<end>", "[_BEG_]" */
static gboolean
is_control (const char *text)
{
  gsize length = strlen (text);

  return length > 2 && ((*text == '<' && text[length - 1] == '>') ||
                           (g_str_has_prefix (text, "[_") && text[length - 1] == ']'));
}

/* An object that has a text and times, or words that have. */
static void
give_object (JsonReader *self, Frame *frame)
{
  const char *speaker;
  LycheeCue *cue;

  if (frame->text == NULL) {
    lychee_json_words_set_span (frame->words, &frame->start, &frame->end);
    give_words (self, frame, TRUE);
    return;
  }
  if (!claim (self))
    return;
  if (frame->words != NULL) {
    lychee_json_words_set_speakers (
        frame->words, lychee_json_held_get_turns (self->held), self->milliseconds);
    if (lychee_json_words_replace (frame->words, frame->text->str, !frame->start.known)) {
      give_words (self, frame, TRUE);
      return;
    }
    lychee_json_words_get_span (frame->words, &frame->start, &frame->end);
  }
  speaker = find_speaker (self);
  if (speaker == NULL && frame->words != NULL)
    speaker = lychee_json_words_get_speaker (frame->words);
  cue = lychee_json_cue_new (
      frame->text->str, speaker, &frame->start, &frame->end, &self->milliseconds);
  if (is_partial (self, frame))
    cue->flags |= LYCHEE_CUE_PARTIAL;
  lychee_json_held_add (self->held, cue, self->milliseconds);
}

static void
end_object (JsonReader *self, Frame *frame)
{
  Frame *parent = innermost (self);

  if (frame->role >= LYCHEE_JSON_KEY_START && frame->role <= LYCHEE_JSON_KEY_END_OFFSET &&
      frame->start.known) { /* a time as an object */
    LycheeJsonTime *time =
        frame->role == LYCHEE_JSON_KEY_START || frame->role == LYCHEE_JSON_KEY_START_OFFSET
            ? &parent->start
        : frame->role == LYCHEE_JSON_KEY_DURATION ? &parent->duration
                                                  : &parent->end;

    if (!time->known)
      *time = frame->start;
    return;
  }
  if ((frame->role == LYCHEE_JSON_KEY_OFFSETS || frame->role == LYCHEE_JSON_KEY_TIMESTAMP) &&
      frame->words == NULL) {
    if (frame->start.known && !parent->array) {
      parent->start = frame->start;
      if (frame->end.known)
        parent->end = frame->end;
      if (frame->role == LYCHEE_JSON_KEY_OFFSETS) {
        parent->start.unit = LYCHEE_JSON_MILLISECONDS;
        parent->end.unit = LYCHEE_JSON_MILLISECONDS;
      }
    }
    return;
  }
  if (frame->role == LYCHEE_JSON_KEY_SPEAKER) {
    if (frame->speaker != NULL)
      set_speaker (parent, frame->speaker, LYCHEE_JSON_KEY_SPEAKER_NAME);
    return;
  }
  if (frame->start.known && frame->duration.known && !frame->end.known)
    frame->end = lychee_json_time_add (&frame->start, &frame->duration);
  lychee_json_held_amend (self->held, frame->held_from, frame->speaker, frame->partial);
  if (frame->speaker != NULL && frame->start.known && frame->text == NULL && frame->words == NULL &&
      frame->untimed == NULL && !frame->has_source) {
    lychee_json_turns_add (lychee_json_held_get_turns (self->held), &frame->start, frame->speaker);
    return;
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
    gboolean fragment = parent->array && parent->role == LYCHEE_JSON_KEY_TOKENS;

    if (!fragment || !is_control (frame->text->str))
      add_word (self, frame->key,
          &(LycheeJsonWord){ frame->text->str, frame->speaker, frame->start, frame->end,
              frame->punctuation, frame->text_role == LYCHEE_JSON_KEY_PIECE || fragment,
              fragment });
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

/* Whether the strings in an array are texts: all that there is, or under a name that says so. */
static gboolean
is_list_of_texts (Frame *frame)
{
  return frame->role == LYCHEE_JSON_KEY_TEXT || frame->outermost;
}

static LycheeCue *
text_cue_new (Frame *frame)
{
  return lychee_cue_new (
      frame->text->str, frame->text->len, frame->speaker, LYCHEE_TIME_NONE, LYCHEE_TIME_NONE);
}

/* ["word", 0.1, 0.5], or [0.1, 0.5, "A sentence."], or some texts. */
static void
end_array (JsonReader *self, Frame *frame)
{
  Frame *parent = innermost (self);

  if (frame->text != NULL && frame->start.known && parent->array) {
    add_word (self, frame->key,
        &(LycheeJsonWord){ .text = frame->text->str, .start = frame->start, .end = frame->end });
  } else if (frame->role == LYCHEE_JSON_KEY_TIMESTAMP && frame->start.known && !parent->array) {
    parent->start = frame->start;
    parent->end = frame->end;
  } else {
    if (frame->text != NULL && frame->words == NULL && is_list_of_texts (frame)) {
      g_queue_push_head (&self->frames, frame);
      add_untimed (self, frame->key, text_cue_new (frame));
      g_queue_pop_head (&self->frames);
    }
    pass_on (self, frame);
  }
}

static gboolean
on_begin (gpointer user_data, const char *key, gboolean array)
{
  JsonReader *self = user_data;
  Frame *parent = innermost (self);
  Frame *frame;
  LycheeJsonKey role = parent->array ? parent->role : role_of (key);

  parent->n_values++;
  if (role == LYCHEE_JSON_KEY_IGNORED)
    return FALSE;
  if (parent->array && parent->role == LYCHEE_JSON_KEY_ALTERNATIVES && parent->n_values > 1)
    return FALSE;
  frame = frame_new (parent->array ? parent->key : key, role, array);
  frame->held_from = lychee_json_held_get_n (self->held);
  frame->outermost = g_queue_get_length (&self->frames) == 1;
  g_queue_push_head (&self->frames, frame);
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
  if (!frame->array && is_outermost (self, innermost (self)))
    lychee_json_held_end (self->held, self->milliseconds);
  frame_free (frame);
}

static gboolean
on_wants_string (gpointer user_data, const char *key)
{
  JsonReader *self = user_data;
  Frame *frame = innermost (self);
  LycheeJsonKey role = role_of (key);

  if (frame->array)
    return TRUE;
  return role != LYCHEE_JSON_KEY_NONE && role != LYCHEE_JSON_KEY_IGNORED;
}

static void
set_text (JsonReader *self, Frame *frame, LycheeJsonKey role, const char *text, gsize length)
{
  if (frame->text == NULL) {
    frame->text = g_string_new_len (text, length);
  } else if (frame->text_role == LYCHEE_JSON_KEY_TEXT && role == LYCHEE_JSON_KEY_TEXT &&
             frame->text->len + length <= LYCHEE_CUE_MAX_LENGTH) {
    /* A long string comes in pieces; of two members that have a text, the first counts. */
    if (frame->text->len >= LYCHEE_LINE_MAX_LENGTH)
      g_string_append_len (frame->text, text, length);
    return;
  } else if (frame->text_role == LYCHEE_JSON_KEY_TEXT && role == LYCHEE_JSON_KEY_TEXT &&
             frame->text->len >= LYCHEE_LINE_MAX_LENGTH) {
    LycheeCue *cue =
        lychee_cue_new (frame->text->str, -1, frame->speaker, LYCHEE_TIME_NONE, LYCHEE_TIME_NONE);

    cue->flags |= LYCHEE_CUE_CONTINUES;
    if (claim (self))
      lychee_json_held_add (self->held, cue, self->milliseconds);
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
set_time (JsonReader *self, Frame *frame, const char *key, const char *text)
{
  LycheeJsonUnit unit;
  LycheeJsonKey role = lychee_json_key_lookup (key, &unit);
  LycheeJsonTime time;
  LycheeJsonTime *into = role == LYCHEE_JSON_KEY_END || role == LYCHEE_JSON_KEY_END_OFFSET
                             ? &frame->end
                         : role == LYCHEE_JSON_KEY_DURATION ? &frame->duration
                                                            : &frame->start;
  gboolean *weak = into == &frame->end ? &frame->weak_end : &frame->weak_start;

  if ((into->known && !*weak) || !lychee_json_time_parse (text, unit, &time))
    return;
  if (into != &frame->duration)
    lychee_json_time_make_relative (&time, &self->origin);
  if (role == LYCHEE_JSON_KEY_SECONDS)
    time.unit = LYCHEE_JSON_SECONDS;
  *into = time;
  *weak = role == LYCHEE_JSON_KEY_TIMESTAMP || role == LYCHEE_JSON_KEY_START_OFFSET ||
          role == LYCHEE_JSON_KEY_END_OFFSET;
}

/* Of a time that is an object, what is below a second. */
static void
set_nanoseconds (Frame *frame, const char *text)
{
  frame->start.value += CLAMP (g_ascii_strtod (text, NULL), 0, 999999999) / 1e9;
  frame->start.unit = LYCHEE_JSON_SECONDS;
  frame->start.known = TRUE;
}

static void
on_array_value (JsonReader *self, Frame *frame, const char *text, gboolean string)
{
  LycheeJsonTime time;

  frame->n_values++;
  if (!string) {
    if (!lychee_json_time_parse (text, LYCHEE_JSON_UNKNOWN, &time))
      return;
    lychee_json_time_make_relative (&time, &self->origin);
    if (frame->text == NULL && frame->role != LYCHEE_JSON_KEY_TIMESTAMP) {
      frame->numbers[0] = frame->numbers[1];
      frame->numbers[1] = time;
      frame->n_numbers++;
    } else if (!frame->start.known) {
      frame->start = time;
    } else if (!frame->end.known) {
      frame->end = time;
    }
  } else if (frame->text == NULL) {
    frame->text = g_string_new (text);
    frame->text_role = LYCHEE_JSON_KEY_WORD;
    if (frame->n_numbers >= 2) {
      frame->start = frame->numbers[0];
      frame->end = frame->numbers[1];
    }
  } else if (!frame->start.known && is_list_of_texts (frame)) {
    add_untimed (self, frame->key, text_cue_new (frame));
    g_string_assign (frame->text, text);
  }
}

static void
on_string (gpointer user_data, const char *key, char *text, gsize length)
{
  JsonReader *self = user_data;
  Frame *frame = innermost (self);
  LycheeJsonKey role = role_of (key);

  if (frame->array) {
    on_array_value (self, frame, text, TRUE);
    return;
  }
  switch (role) {
  case LYCHEE_JSON_KEY_PIECE:
    if (frame->role != LYCHEE_JSON_KEY_WORDS)
      break;
    G_GNUC_FALLTHROUGH;
  case LYCHEE_JSON_KEY_TEXT:
  case LYCHEE_JSON_KEY_WORD:
    /* A word with its punctuation is better than without. */
    if (frame->text == NULL || frame->text_role != LYCHEE_JSON_KEY_WORD ||
        g_ascii_strcasecmp (key, "word") != 0)
      set_text (self, frame, role, text, length);
    break;
  case LYCHEE_JSON_KEY_PARTIAL:
    set_text (self, frame, LYCHEE_JSON_KEY_TEXT, text, length);
    frame->partial = TRUE;
    break;
  case LYCHEE_JSON_KEY_START:
  case LYCHEE_JSON_KEY_END:
  case LYCHEE_JSON_KEY_DURATION:
  case LYCHEE_JSON_KEY_START_OFFSET:
  case LYCHEE_JSON_KEY_END_OFFSET:
  case LYCHEE_JSON_KEY_SECONDS:
  case LYCHEE_JSON_KEY_TIMESTAMP:
    set_time (self, frame, key, text);
    break;
  case LYCHEE_JSON_KEY_SPEAKER_ID:
  case LYCHEE_JSON_KEY_SPEAKER:
  case LYCHEE_JSON_KEY_SPEAKER_NAME:
    set_speaker (frame, text, role);
    break;
  case LYCHEE_JSON_KEY_NAME:
    if (frame->role == LYCHEE_JSON_KEY_SPEAKER)
      set_speaker (frame, text, LYCHEE_JSON_KEY_SPEAKER_NAME);
    break;
  case LYCHEE_JSON_KEY_WORDS:
    if (g_ascii_strcasecmp (key, "words") == 0)
      set_text (self, frame, LYCHEE_JSON_KEY_TEXT, text, length);
    break;
  case LYCHEE_JSON_KEY_LANGUAGE:
    if (self->reader.output->language == NULL && length >= 2 && length < 32)
      self->reader.output->language = g_strdup (text);
    break;
  case LYCHEE_JSON_KEY_TYPE:
    if (strstr (text, "artial") != NULL || strcmp (text, "interim") == 0)
      frame->partial = TRUE;
    else if (g_ascii_strncasecmp (text, "punct", 5) == 0)
      frame->punctuation = TRUE;
    else if (g_ascii_strcasecmp (text, "word") == 0 ||
             g_ascii_strcasecmp (text, "pronunciation") == 0)
      frame->word = TRUE;
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
  LycheeJsonKey role = role_of (key);

  if (frame->array) {
    on_array_value (self, frame, text, FALSE);
    return;
  }
  if (role == LYCHEE_JSON_KEY_FINAL && strcmp (text, "false") == 0)
    frame->partial = TRUE;
  else if (role == LYCHEE_JSON_KEY_PARTIAL && g_ascii_strcasecmp (text, "true") == 0)
    frame->partial = TRUE;
  else if (role >= LYCHEE_JSON_KEY_SPEAKER_ID && role <= LYCHEE_JSON_KEY_SPEAKER_NAME &&
           g_ascii_isdigit (*text))
    set_speaker (frame, text, role);
  else if (role == LYCHEE_JSON_KEY_NANOS)
    set_nanoseconds (frame, text);
  else if ((role >= LYCHEE_JSON_KEY_START && role <= LYCHEE_JSON_KEY_END_OFFSET) ||
           role == LYCHEE_JSON_KEY_SECONDS || role == LYCHEE_JSON_KEY_TIMESTAMP)
    set_time (self, frame, key, text);
}

/* What the scanner met with. */
static void
report (JsonReader *self)
{
  LycheeTranscriptReport *report = self->reader.output->report;
  guint64 n = lychee_json_scanner_get_n_replaced (self->scanner);
  const LycheeJsonFault *fault = lychee_json_scanner_get_fault (self->scanner);

  report->replaced += n - self->n_replaced;
  self->n_replaced = n;
  if (fault != NULL) {
    report->fault = fault->what;
    report->fault_line = fault->line;
    report->fault_column = fault->column;
  }
}

static void
json_reader_push (LycheeTranscriptReader *reader, const char *text, gsize length)
{
  JsonReader *self = (JsonReader *) reader;

  lychee_json_scanner_push (self->scanner, text, length);
  report (self);
}

static void
json_reader_finish (LycheeTranscriptReader *reader)
{
  JsonReader *self = (JsonReader *) reader;
  Frame *outermost;

  lychee_json_scanner_finish (self->scanner);
  report (self);
  outermost = innermost (self);
  give_words (self, outermost, TRUE);
  give_untimed (self, outermost);
  lychee_json_held_end (self->held, self->milliseconds);
}

static void
json_reader_release (LycheeTranscriptReader *reader)
{
  JsonReader *self = (JsonReader *) reader;

  lychee_json_held_give (self->held, self->milliseconds);
}

static void
json_reader_free (LycheeTranscriptReader *reader)
{
  JsonReader *self = (JsonReader *) reader;

  lychee_json_scanner_free (self->scanner);
  g_queue_clear_full (&self->frames, (GDestroyNotify) frame_free);
  lychee_json_held_free (self->held);
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
  self->reader.release = json_reader_release;
  self->reader.free = json_reader_free;
  self->reader.output = output;
  self->reader.takes_text = TRUE;
  self->scanner = lychee_json_scanner_new (&events, self);
  self->held = lychee_json_held_new (output);
  g_queue_init (&self->frames);
  g_queue_push_head (&self->frames, frame_new ("", LYCHEE_JSON_KEY_NONE, TRUE));
  return &self->reader;
}
