/* SPDX-License-Identifier: LGPL-2.1-or-later */

/**
 * LycheeAnswer:
 *
 * An answer, or as much of one as was given, with what it rests on and what it cost.
 *
 * Immutable: it may be used in any thread.
 */

#include "lychee-answer-private.h"

/* LycheeFinish */

G_DEFINE_ENUM_TYPE (LycheeFinish, lychee_finish,
    { LYCHEE_FINISH_STOP, "The model, or a stop string, ended it", "stop" },
    { LYCHEE_FINISH_LENGTH, "The limit or the context did", "length" },
    { LYCHEE_FINISH_CANCELLED, "The caller did", "cancelled" },
    { LYCHEE_FINISH_REPETITION, "It said the same again and again", "repetition" })

/**
 * lychee_finish_to_string:
 * @finish: why an answer ended
 *
 * What to call @finish in a message or a file.
 *
 * Returns: (nullable): the nick of @finish ("stop"), a static string; %NULL where @finish is none
 *   of the enumeration
 */
const char *
lychee_finish_to_string (LycheeFinish finish)
{
  GEnumClass *enum_class = g_type_class_ref (LYCHEE_TYPE_FINISH);
  GEnumValue *value = g_enum_get_value (enum_class, finish);
  const char *nick = value ? value->value_nick : NULL;

  /* A static type's class stays, and with it the nick. */
  g_type_class_unref (enum_class);
  return nick;
}

/* LycheeEvidence: holds on to the chunk, whose text and speaker it shows, or has its own. */

typedef struct {
  LycheeEvidence evidence;
  LycheeChunk *chunk; /* (nullable) */
  char *speaker, *text;
} Evidence;

G_DEFINE_BOXED_TYPE (LycheeEvidence, lychee_evidence, lychee_evidence_ref, lychee_evidence_unref)

LycheeEvidence *
lychee_evidence_new (LycheeChunk *chunk, guint64 position, double weight)
{
  Evidence *e = g_atomic_rc_box_new0 (Evidence);

  e->chunk = lychee_chunk_ref (chunk);
  e->evidence.position = position;
  e->evidence.n_tokens = chunk->n_ids;
  e->evidence.start = chunk->pts;
  e->evidence.end = LYCHEE_TIME_NONE;
  if (chunk->pts != LYCHEE_TIME_NONE && chunk->duration != LYCHEE_TIME_NONE)
    e->evidence.end = chunk->pts + chunk->duration;
  e->evidence.speaker = chunk->speaker;
  e->evidence.text = chunk->text;
  e->evidence.weight = weight;
  return &e->evidence;
}

LycheeEvidence *
lychee_evidence_new_quote (const LycheeEvidence *quote)
{
  Evidence *e = g_atomic_rc_box_new0 (Evidence);

  e->speaker = g_strdup (quote->speaker);
  e->text = g_strdup (quote->text);
  e->evidence = *quote;
  e->evidence.speaker = e->speaker;
  e->evidence.text = e->text;
  return &e->evidence;
}

/**
 * lychee_evidence_ref:
 * @evidence: a piece of evidence
 *
 * Adds a reference; from any thread.
 *
 * Returns: (transfer full): @evidence
 */
LycheeEvidence *
lychee_evidence_ref (LycheeEvidence *evidence)
{
  g_return_val_if_fail (evidence != NULL, NULL);
  return g_atomic_rc_box_acquire (evidence);
}

static void
clear_evidence (gpointer data)
{
  Evidence *e = data;

  g_clear_pointer (&e->chunk, lychee_chunk_unref);
  g_free (e->speaker);
  g_free (e->text);
}

/**
 * lychee_evidence_unref:
 * @evidence: (transfer full): a piece of evidence
 *
 * Drops a reference; from any thread.
 */
void
lychee_evidence_unref (LycheeEvidence *evidence)
{
  g_return_if_fail (evidence != NULL);
  g_atomic_rc_box_release_full (evidence, clear_evidence);
}

/* LycheeAnswer */

enum {
  PROP_0,
  PROP_TEXT,
  PROP_FINISH,
  PROP_TRUNCATED,
  PROP_EVIDENCE,
  PROP_TRANSCRIPT_TOKENS,
  PROP_PROMPT_TOKENS,
  PROP_ANSWER_TOKENS,
  PROP_SECONDS_TO_FIRST,
  PROP_SECONDS,
  N_PROPS
};

static GParamSpec *props[N_PROPS];

G_DEFINE_FINAL_TYPE (LycheeAnswer, lychee_answer, G_TYPE_OBJECT)

static void
lychee_answer_init (LycheeAnswer *answer)
{
  answer->evidence = g_ptr_array_new_with_free_func ((GDestroyNotify) lychee_evidence_unref);
}

static void
lychee_answer_finalize (GObject *object)
{
  LycheeAnswer *answer = LYCHEE_ANSWER (object);

  g_free (answer->text);
  g_ptr_array_unref (answer->evidence);
  G_OBJECT_CLASS (lychee_answer_parent_class)->finalize (object);
}

static void
lychee_answer_get_property (GObject *object, guint id, GValue *value, GParamSpec *pspec)
{
  LycheeAnswer *answer = LYCHEE_ANSWER (object);

  switch (id) {
  case PROP_TEXT:
    g_value_set_string (value, answer->text);
    break;
  case PROP_FINISH:
    g_value_set_enum (value, answer->finish);
    break;
  case PROP_TRUNCATED:
    g_value_set_boolean (value, answer->truncated);
    break;
  case PROP_EVIDENCE:
    g_value_set_boxed (value, answer->evidence);
    break;
  case PROP_TRANSCRIPT_TOKENS:
    g_value_set_uint (value, answer->transcript_tokens);
    break;
  case PROP_PROMPT_TOKENS:
    g_value_set_uint (value, answer->prompt_tokens);
    break;
  case PROP_ANSWER_TOKENS:
    g_value_set_uint (value, answer->answer_tokens);
    break;
  case PROP_SECONDS_TO_FIRST:
    g_value_set_double (value, answer->seconds_to_first);
    break;
  case PROP_SECONDS:
    g_value_set_double (value, answer->seconds);
    break;
  default:
    G_OBJECT_WARN_INVALID_PROPERTY_ID (object, id, pspec);
  }
}

static void
lychee_answer_class_init (LycheeAnswerClass *klass)
{
  GObjectClass *object = G_OBJECT_CLASS (klass);
  GParamFlags flags = G_PARAM_READABLE | G_PARAM_STATIC_STRINGS;

  object->finalize = lychee_answer_finalize;
  object->get_property = lychee_answer_get_property;

  /**
   * LycheeAnswer:text:
   *
   * What was answered.
   */
  props[PROP_TEXT] = g_param_spec_string ("text", "Text", "What was answered", NULL, flags);
  /**
   * LycheeAnswer:finish:
   *
   * Why it ended.
   */
  props[PROP_FINISH] = g_param_spec_enum (
      "finish", "Finish", "Why it ended", LYCHEE_TYPE_FINISH, LYCHEE_FINISH_STOP, flags);
  /**
   * LycheeAnswer:truncated:
   *
   * Whether some of the transcript was left out or forgotten.
   */
  props[PROP_TRUNCATED] = g_param_spec_boolean ("truncated", "Truncated",
      "Whether some of the transcript was left out or forgotten", FALSE, flags);
  /**
   * LycheeAnswer:evidence: (type GLib.PtrArray(LycheeEvidence))
   *
   * The chunks that the answer rests on, most important first.
   */
  props[PROP_EVIDENCE] = g_param_spec_boxed ("evidence", "Evidence",
      "The chunks that the answer rests on, most important first", G_TYPE_PTR_ARRAY, flags);
  /**
   * LycheeAnswer:transcript-tokens:
   *
   * Tokens of the transcript that was asked.
   */
  props[PROP_TRANSCRIPT_TOKENS] = g_param_spec_uint ("transcript-tokens", "Transcript tokens",
      "Tokens of the transcript that was asked", 0, G_MAXUINT, 0, flags);
  /**
   * LycheeAnswer:prompt-tokens:
   *
   * Tokens read for the question.
   */
  props[PROP_PROMPT_TOKENS] = g_param_spec_uint (
      "prompt-tokens", "Prompt tokens", "Tokens read for the question", 0, G_MAXUINT, 0, flags);
  /**
   * LycheeAnswer:answer-tokens:
   *
   * Tokens of the answer.
   */
  props[PROP_ANSWER_TOKENS] = g_param_spec_uint (
      "answer-tokens", "Answer tokens", "Tokens of the answer", 0, G_MAXUINT, 0, flags);
  /**
   * LycheeAnswer:seconds-to-first:
   *
   * From asking to the first token.
   */
  props[PROP_SECONDS_TO_FIRST] = g_param_spec_double ("seconds-to-first", "Seconds to first",
      "From asking to the first token", 0, G_MAXDOUBLE, 0, flags);
  /**
   * LycheeAnswer:seconds:
   *
   * From asking to the end.
   */
  props[PROP_SECONDS] = g_param_spec_double (
      "seconds", "Seconds", "From asking to the end", 0, G_MAXDOUBLE, 0, flags);
  g_object_class_install_properties (object, N_PROPS, props);
}

/**
 * lychee_answer_get_text:
 * @answer: an answer
 *
 * Gets what was answered, valid UTF-8.
 *
 * Returns: (transfer none): what was answered, valid UTF-8
 */
const char *
lychee_answer_get_text (LycheeAnswer *answer)
{
  g_return_val_if_fail (LYCHEE_IS_ANSWER (answer), NULL);
  return answer->text;
}

/**
 * lychee_answer_get_finish:
 * @answer: an answer
 *
 * Gets why it ended.
 *
 * Returns: why it ended
 */
LycheeFinish
lychee_answer_get_finish (LycheeAnswer *answer)
{
  g_return_val_if_fail (LYCHEE_IS_ANSWER (answer), LYCHEE_FINISH_CANCELLED);
  return answer->finish;
}

/**
 * lychee_answer_get_truncated:
 * @answer: an answer
 *
 * Gets whether some of the transcript had been left out or forgotten when it was asked.
 *
 * Returns: whether some of the transcript had been left out or forgotten when it was asked
 *   ([property@Session:overflow])
 */
gboolean
lychee_answer_get_truncated (LycheeAnswer *answer)
{
  g_return_val_if_fail (LYCHEE_IS_ANSWER (answer), FALSE);
  return answer->truncated;
}

/**
 * lychee_answer_get_evidence:
 * @answer: an answer
 *
 * Gets the chunks that question and answer attended to more than any question does: as many as
 * [property@Question:evidence] asked for, or fewer where there are not so many.
 *
 * Returns: (transfer none) (element-type LycheeEvidence): the evidence, most important first
 */
GPtrArray *
lychee_answer_get_evidence (LycheeAnswer *answer)
{
  g_return_val_if_fail (LYCHEE_IS_ANSWER (answer), NULL);
  return answer->evidence;
}

/**
 * lychee_answer_get_transcript_tokens:
 * @answer: an answer
 *
 * Gets how long the transcript was that was asked, without the prompt.
 *
 * Returns: tokens of the transcript that was asked, without those of the prompt
 */
guint
lychee_answer_get_transcript_tokens (LycheeAnswer *answer)
{
  g_return_val_if_fail (LYCHEE_IS_ANSWER (answer), 0);
  return answer->transcript_tokens;
}

/**
 * lychee_answer_get_prompt_tokens:
 * @answer: an answer
 *
 * Gets how much was read for the question.
 *
 * Returns: tokens read for the question
 */
guint
lychee_answer_get_prompt_tokens (LycheeAnswer *answer)
{
  g_return_val_if_fail (LYCHEE_IS_ANSWER (answer), 0);
  return answer->prompt_tokens;
}

/**
 * lychee_answer_get_answer_tokens:
 * @answer: an answer
 *
 * Gets how long the answer is.
 *
 * Returns: tokens of the answer
 */
guint
lychee_answer_get_answer_tokens (LycheeAnswer *answer)
{
  g_return_val_if_fail (LYCHEE_IS_ANSWER (answer), 0);
  return answer->answer_tokens;
}

/**
 * lychee_answer_get_seconds_to_first:
 * @answer: an answer
 *
 * Gets how long the first token took.
 *
 * Returns: seconds from asking to the first token
 */
double
lychee_answer_get_seconds_to_first (LycheeAnswer *answer)
{
  g_return_val_if_fail (LYCHEE_IS_ANSWER (answer), 0);
  return answer->seconds_to_first;
}

/**
 * lychee_answer_get_seconds:
 * @answer: an answer
 *
 * Gets how long the answer took.
 *
 * Returns: seconds from asking to the end
 */
double
lychee_answer_get_seconds (LycheeAnswer *answer)
{
  g_return_val_if_fail (LYCHEE_IS_ANSWER (answer), 0);
  return answer->seconds;
}
