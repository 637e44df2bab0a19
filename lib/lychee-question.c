/* SPDX-License-Identifier: LGPL-2.1-or-later */

/**
 * LycheeQuestion:
 *
 * What to ask about a transcript, and how it is to be answered.
 *
 * A question may be asked any number of times ([method@Session.ask]). Asking takes a copy: what is
 * set later holds for the next time.
 *
 * Not thread safe: whoever sets something sees to it that nobody else uses the question meanwhile.
 */

#include "lychee-question-private.h"

#define DEFAULT_EVIDENCE 3

struct _LycheeQuestion {
  GObject parent_instance;

  char *prompt;
  char *system_prompt;
  guint64 from;
  guint64 to;
  guint64 from_token;
  guint64 to_token;
  guint max_tokens;
  LycheeSampler *sampler;
  char **stop;
  char *language;
  guint evidence;
  double contrast;
  guint quotes;
};

enum {
  PROP_0,
  PROP_PROMPT,
  PROP_SYSTEM_PROMPT,
  PROP_FROM,
  PROP_TO,
  PROP_MAX_TOKENS,
  PROP_SAMPLER,
  PROP_STOP,
  PROP_LANGUAGE,
  PROP_EVIDENCE,
  PROP_CONTRAST,
  PROP_QUOTES,
  N_PROPS
};

static GParamSpec *props[N_PROPS];
static guint progress_signal;

G_DEFINE_FINAL_TYPE (LycheeQuestion, lychee_question, G_TYPE_OBJECT)

static void
lychee_question_init (LycheeQuestion *question)
{
  question->to_token = G_MAXUINT64;
}

static void
lychee_question_finalize (GObject *object)
{
  LycheeQuestion *q = LYCHEE_QUESTION (object);

  g_free (q->prompt);
  g_free (q->system_prompt);
  g_clear_object (&q->sampler);
  g_strfreev (q->stop);
  g_free (q->language);
  G_OBJECT_CLASS (lychee_question_parent_class)->finalize (object);
}

static void
lychee_question_set_property (GObject *object, guint id, const GValue *value, GParamSpec *pspec)
{
  LycheeQuestion *q = LYCHEE_QUESTION (object);

  switch (id) {
  case PROP_PROMPT:
    lychee_question_set_prompt (q, g_value_get_string (value));
    break;
  case PROP_SYSTEM_PROMPT:
    lychee_question_set_system_prompt (q, g_value_get_string (value));
    break;
  case PROP_FROM:
    lychee_question_set_range (q, g_value_get_uint64 (value), q->to);
    break;
  case PROP_TO:
    lychee_question_set_range (q, q->from, g_value_get_uint64 (value));
    break;
  case PROP_MAX_TOKENS:
    lychee_question_set_max_tokens (q, g_value_get_uint (value));
    break;
  case PROP_SAMPLER:
    lychee_question_set_sampler (q, g_value_get_object (value));
    break;
  case PROP_STOP:
    lychee_question_set_stop (q, g_value_get_boxed (value));
    break;
  case PROP_LANGUAGE:
    lychee_question_set_language (q, g_value_get_string (value));
    break;
  case PROP_EVIDENCE:
    lychee_question_set_evidence (q, g_value_get_uint (value));
    break;
  case PROP_CONTRAST:
    lychee_question_set_contrast (q, g_value_get_double (value));
    break;
  case PROP_QUOTES:
    lychee_question_set_quotes (q, g_value_get_uint (value));
    break;
  default:
    G_OBJECT_WARN_INVALID_PROPERTY_ID (object, id, pspec);
  }
}

static void
lychee_question_get_property (GObject *object, guint id, GValue *value, GParamSpec *pspec)
{
  LycheeQuestion *q = LYCHEE_QUESTION (object);

  switch (id) {
  case PROP_PROMPT:
    g_value_set_string (value, q->prompt);
    break;
  case PROP_SYSTEM_PROMPT:
    g_value_set_string (value, q->system_prompt);
    break;
  case PROP_FROM:
    g_value_set_uint64 (value, q->from);
    break;
  case PROP_TO:
    g_value_set_uint64 (value, q->to);
    break;
  case PROP_MAX_TOKENS:
    g_value_set_uint (value, q->max_tokens);
    break;
  case PROP_SAMPLER:
    g_value_set_object (value, q->sampler);
    break;
  case PROP_STOP:
    g_value_set_boxed (value, q->stop);
    break;
  case PROP_LANGUAGE:
    g_value_set_string (value, q->language);
    break;
  case PROP_EVIDENCE:
    g_value_set_uint (value, q->evidence);
    break;
  case PROP_CONTRAST:
    g_value_set_double (value, q->contrast);
    break;
  case PROP_QUOTES:
    g_value_set_uint (value, q->quotes);
    break;
  default:
    G_OBJECT_WARN_INVALID_PROPERTY_ID (object, id, pspec);
  }
}

static void
lychee_question_class_init (LycheeQuestionClass *klass)
{
  GObjectClass *object = G_OBJECT_CLASS (klass);
  GParamFlags flags =
      G_PARAM_READWRITE | G_PARAM_CONSTRUCT | G_PARAM_STATIC_STRINGS | G_PARAM_EXPLICIT_NOTIFY;

  object->finalize = lychee_question_finalize;
  object->set_property = lychee_question_set_property;
  object->get_property = lychee_question_get_property;

  /**
   * LycheeQuestion:prompt:
   *
   * What is asked, in plain words.
   */
  props[PROP_PROMPT] = g_param_spec_string ("prompt", "Prompt", "What is asked", "", flags);
  /**
   * LycheeQuestion:system-prompt:
   *
   * What the model is told ahead of the prompt, for this question alone. It follows the transcript,
   * in the user's turn: what stands before the transcript is [property@Session:system-prompt],
   * which was read once and for all.
   */
  props[PROP_SYSTEM_PROMPT] = g_param_spec_string ("system-prompt", "System prompt",
      "What the model is told ahead of the prompt, for this question alone", NULL, flags);
  /**
   * LycheeQuestion:from:
   *
   * Nanoseconds of stream time: what was said before is not seen. %LYCHEE_TIME_NONE: from the
   * beginning.
   */
  props[PROP_FROM] = g_param_spec_uint64 ("from", "From",
      "Stream time in nanoseconds before which nothing is seen; the largest number: no limit", 0,
      G_MAXUINT64, LYCHEE_TIME_NONE, flags);
  /**
   * LycheeQuestion:to:
   *
   * Nanoseconds of stream time: what was said then and later is not seen. %LYCHEE_TIME_NONE: to the
   * end.
   */
  props[PROP_TO] = g_param_spec_uint64 ("to", "To",
      "Stream time in nanoseconds from which on nothing is seen; the largest number: no limit", 0,
      G_MAXUINT64, LYCHEE_TIME_NONE, flags);
  /**
   * LycheeQuestion:max-tokens:
   *
   * Tokens of the answer at the most; 0: as many as the context has room for.
   */
  props[PROP_MAX_TOKENS] = g_param_spec_uint ("max-tokens", "Maximum tokens",
      "Most tokens of the answer; 0: as many as the context has room for", 0, G_MAXUINT, 0, flags);
  /**
   * LycheeQuestion:sampler:
   *
   * How tokens are chosen; %NULL: greedily. Its settings are used, not its state.
   */
  props[PROP_SAMPLER] = g_param_spec_object (
      "sampler", "Sampler", "How tokens are chosen; none: greedily", LYCHEE_TYPE_SAMPLER, flags);
  /**
   * LycheeQuestion:stop:
   *
   * The answer ends before the first of these strings that it would say.
   */
  props[PROP_STOP] = g_param_spec_boxed (
      "stop", "Stop", "The answer ends before any of these strings", G_TYPE_STRV, flags);
  /**
   * LycheeQuestion:language:
   *
   * The language to answer in: a BCP 47 tag ("fr", "pt-BR") or a name ("French"); %NULL: the
   * model's choice. It is asked for in words, so it is as good as the model is.
   */
  props[PROP_LANGUAGE] = g_param_spec_string ("language", "Language",
      "The language to answer in: a tag such as fr, or a name; none: the model's choice", NULL,
      flags);
  /**
   * LycheeQuestion:evidence:
   *
   * How many pieces of evidence the answer is to have; 0: none, at no cost. Where max-memory leaves
   * no room to look for them there are none.
   */
  props[PROP_EVIDENCE] = g_param_spec_uint ("evidence", "Evidence",
      "Pieces of evidence that the answer is to have", 0, G_MAXUINT, DEFAULT_EVIDENCE, flags);
  /**
   * LycheeQuestion:contrast:
   *
   * How much of what the model would have said without the transcript counts against it; 0:
   * nothing. Each token's logit is raised by so many times the difference of its log probabilities
   * with the transcript and without (context-aware decoding, arXiv 2305.14739). What is invented is
   * as likely without the transcript, what was said is not: answers keep closer to it. The model
   * computes each token twice, the second time over the question alone. Where max-memory leaves no
   * room for that, the answer goes without.
   */
  props[PROP_CONTRAST] = g_param_spec_double ("contrast", "Contrast",
      "How much what the model would say without the transcript counts against it; 0: nothing", 0,
      10, 0, flags);
  /**
   * LycheeQuestion:quotes:
   *
   * How many sentences of the transcript, word for word, are to be the answer, at most one for each
   * 48 tokens; 0: none, the model writes it. They are those that the question's attention turns to
   * most, found as evidence is, in the order in which they were said, a line each: time, speaker,
   * words. For each two of them the transcript is cut in one part more, each of which is asked
   * about by itself, so that they come from all of it. They are [property@Answer:evidence], too, in
   * place of what evidence asks for; what says how the model writes does not matter to them. A
   * small model whose own words are inventions still knows where to look.
   */
  props[PROP_QUOTES] = g_param_spec_uint ("quotes", "Quotes",
      "Sentences of the transcript, word for word, that are the answer; 0: the model writes it", 0,
      G_MAXUINT, 0, flags);
  g_object_class_install_properties (object, N_PROPS, props);

  /**
   * LycheeQuestion::progress:
   * @question: the question that was asked
   * @so_far: the answer as it would be if it were cancelled now
   *
   * Tells how an answer comes about: when the question was read, and each four tokens after that.
   * That is when its evidence changes, which says where the model looks
   * ([property@Answer:evidence]; nothing is found out for it that nobody is connected to).
   *
   * Emitted where pieces of the text are told: in the thread of [method@Session.ask], in the main
   * context of [method@Session.ask_async]. What is asked of several sessions at a time is told in
   * no order.
   */
  progress_signal = g_signal_new ("progress", LYCHEE_TYPE_QUESTION, G_SIGNAL_RUN_LAST, 0, NULL,
      NULL, NULL, G_TYPE_NONE, 1, LYCHEE_TYPE_ANSWER);
}

gboolean
lychee_question_is_watched (LycheeQuestion *question)
{
  return g_signal_has_handler_pending (question, progress_signal, 0, FALSE);
}

void
lychee_question_emit_progress (LycheeQuestion *question, LycheeAnswer *so_far)
{
  g_signal_emit (question, progress_signal, 0, so_far);
}

/**
 * lychee_question_new:
 * @prompt: what is asked
 *
 * Makes a question about all that was said.
 *
 * Returns: (transfer full): a question
 */
LycheeQuestion *
lychee_question_new (const char *prompt)
{
  return g_object_new (LYCHEE_TYPE_QUESTION, "prompt", prompt, NULL);
}

/**
 * lychee_question_copy:
 * @question: a question
 *
 * Copies a question.
 *
 * Returns: (transfer full): a question with the same settings, and a sampler of its own
 */
LycheeQuestion *
lychee_question_copy (LycheeQuestion *question)
{
  g_autoptr (LycheeSampler) sampler = NULL;
  LycheeQuestion *copy;

  g_return_val_if_fail (LYCHEE_IS_QUESTION (question), NULL);

  if (question->sampler)
    sampler = lychee_sampler_copy (question->sampler);
  copy = g_object_new (LYCHEE_TYPE_QUESTION, "prompt", question->prompt, "system-prompt",
      question->system_prompt, "from", question->from, "to", question->to, "max-tokens",
      question->max_tokens, "sampler", sampler, "stop", question->stop, "language",
      question->language, "evidence", question->evidence, "contrast", question->contrast, "quotes",
      question->quotes, NULL);
  lychee_question_set_tokens (copy, question->from_token, question->to_token);
  return copy;
}

void
lychee_question_set_tokens (LycheeQuestion *question, guint64 from, guint64 to)
{
  question->from_token = from;
  question->to_token = to;
}

void
lychee_question_get_tokens (LycheeQuestion *question, guint64 *from, guint64 *to)
{
  *from = question->from_token;
  *to = question->to_token;
}

/* Takes over text, which goes into a prompt and must be UTF-8. */
static void
set_text (LycheeQuestion *question, char **to, const char *text, guint prop)
{
  if (*to && g_strcmp0 (*to, text) == 0)
    return;
  g_free (*to);
  *to = text ? g_utf8_make_valid (text, -1) : NULL;
  g_object_notify_by_pspec (G_OBJECT (question), props[prop]);
}

/**
 * lychee_question_set_prompt:
 * @question: a question
 * @prompt: (nullable): what is asked; what is not UTF-8 in it becomes U+FFFD
 *
 * Sets [property@Question:prompt].
 */
void
lychee_question_set_prompt (LycheeQuestion *question, const char *prompt)
{
  g_return_if_fail (LYCHEE_IS_QUESTION (question));
  set_text (question, &question->prompt, prompt ? prompt : "", PROP_PROMPT);
}

/**
 * lychee_question_get_prompt:
 * @question: a question
 *
 * Gets what is asked.
 *
 * Returns: (transfer none): what is asked
 */
const char *
lychee_question_get_prompt (LycheeQuestion *question)
{
  g_return_val_if_fail (LYCHEE_IS_QUESTION (question), NULL);
  return question->prompt;
}

/**
 * lychee_question_set_system_prompt:
 * @question: a question
 * @system_prompt: (nullable): what the model is told ahead of the prompt
 *
 * Sets [property@Question:system-prompt].
 */
void
lychee_question_set_system_prompt (LycheeQuestion *question, const char *system_prompt)
{
  g_return_if_fail (LYCHEE_IS_QUESTION (question));
  set_text (question, &question->system_prompt, system_prompt, PROP_SYSTEM_PROMPT);
}

/**
 * lychee_question_get_system_prompt:
 * @question: a question
 *
 * Gets what the model is told ahead of the prompt.
 *
 * Returns: (transfer none) (nullable): what the model is told ahead of the prompt
 */
const char *
lychee_question_get_system_prompt (LycheeQuestion *question)
{
  g_return_val_if_fail (LYCHEE_IS_QUESTION (question), NULL);
  return question->system_prompt;
}

/**
 * lychee_question_set_range:
 * @question: a question
 * @from: in nanoseconds of stream time, or %LYCHEE_TIME_NONE for the beginning
 * @to: in nanoseconds of stream time, or %LYCHEE_TIME_NONE for the end
 *
 * Has the question be about what was said from @from on and before @to: chunks that lie in it, at
 * least in part. Chunks without times belong to the range of the chunks around them.
 */
void
lychee_question_set_range (LycheeQuestion *question, guint64 from, guint64 to)
{
  g_return_if_fail (LYCHEE_IS_QUESTION (question));

  if (question->from != from) {
    question->from = from;
    g_object_notify_by_pspec (G_OBJECT (question), props[PROP_FROM]);
  }
  if (question->to != to) {
    question->to = to;
    g_object_notify_by_pspec (G_OBJECT (question), props[PROP_TO]);
  }
}

/**
 * lychee_question_get_range:
 * @question: a question
 * @from: (out) (optional): where it begins, or %LYCHEE_TIME_NONE
 * @to: (out) (optional): where it ends, or %LYCHEE_TIME_NONE
 *
 * Gets the time that the question is about.
 */
void
lychee_question_get_range (LycheeQuestion *question, guint64 *from, guint64 *to)
{
  g_return_if_fail (LYCHEE_IS_QUESTION (question));

  if (from)
    *from = question->from;
  if (to)
    *to = question->to;
}

/**
 * lychee_question_set_max_tokens:
 * @question: a question
 * @max_tokens: tokens of the answer at the most, or 0
 *
 * Sets [property@Question:max-tokens].
 */
void
lychee_question_set_max_tokens (LycheeQuestion *question, guint max_tokens)
{
  g_return_if_fail (LYCHEE_IS_QUESTION (question));

  if (question->max_tokens == max_tokens)
    return;
  question->max_tokens = max_tokens;
  g_object_notify_by_pspec (G_OBJECT (question), props[PROP_MAX_TOKENS]);
}

/**
 * lychee_question_get_max_tokens:
 * @question: a question
 *
 * Gets how long the answer may become.
 *
 * Returns: tokens of the answer at the most, or 0
 */
guint
lychee_question_get_max_tokens (LycheeQuestion *question)
{
  g_return_val_if_fail (LYCHEE_IS_QUESTION (question), 0);
  return question->max_tokens;
}

/**
 * lychee_question_set_sampler:
 * @question: a question
 * @sampler: (nullable): how tokens are chosen
 *
 * Sets [property@Question:sampler].
 */
void
lychee_question_set_sampler (LycheeQuestion *question, LycheeSampler *sampler)
{
  g_return_if_fail (LYCHEE_IS_QUESTION (question));
  g_return_if_fail (sampler == NULL || LYCHEE_IS_SAMPLER (sampler));

  if (g_set_object (&question->sampler, sampler))
    g_object_notify_by_pspec (G_OBJECT (question), props[PROP_SAMPLER]);
}

/**
 * lychee_question_get_sampler:
 * @question: a question
 *
 * Gets how tokens are chosen.
 *
 * Returns: (transfer none) (nullable): how tokens are chosen
 */
LycheeSampler *
lychee_question_get_sampler (LycheeQuestion *question)
{
  g_return_val_if_fail (LYCHEE_IS_QUESTION (question), NULL);
  return question->sampler;
}

/**
 * lychee_question_set_stop:
 * @question: a question
 * @stop: (nullable) (array zero-terminated=1): strings that end the answer; empty ones are ignored
 *
 * Sets [property@Question:stop].
 */
void
lychee_question_set_stop (LycheeQuestion *question, const char *const *stop)
{
  g_return_if_fail (LYCHEE_IS_QUESTION (question));

  g_strfreev (question->stop);
  question->stop = g_strdupv ((char **) stop);
  g_object_notify_by_pspec (G_OBJECT (question), props[PROP_STOP]);
}

/**
 * lychee_question_get_stop:
 * @question: a question
 *
 * Gets what ends the answer.
 *
 * Returns: (transfer none) (nullable) (array zero-terminated=1): strings that end the answer
 */
const char *const *
lychee_question_get_stop (LycheeQuestion *question)
{
  g_return_val_if_fail (LYCHEE_IS_QUESTION (question), NULL);
  return (const char *const *) question->stop;
}

/**
 * lychee_question_set_language:
 * @question: a question
 * @language: (nullable): a BCP 47 tag or a name
 *
 * Sets [property@Question:language].
 */
void
lychee_question_set_language (LycheeQuestion *question, const char *language)
{
  g_return_if_fail (LYCHEE_IS_QUESTION (question));
  set_text (question, &question->language, language, PROP_LANGUAGE);
}

/**
 * lychee_question_get_language:
 * @question: a question
 *
 * Gets the language to answer in.
 *
 * Returns: (transfer none) (nullable): the language to answer in
 */
const char *
lychee_question_get_language (LycheeQuestion *question)
{
  g_return_val_if_fail (LYCHEE_IS_QUESTION (question), NULL);
  return question->language;
}

/**
 * lychee_question_set_evidence:
 * @question: a question
 * @evidence: how many pieces of evidence the answer is to have
 *
 * Sets [property@Question:evidence].
 */
void
lychee_question_set_evidence (LycheeQuestion *question, guint evidence)
{
  g_return_if_fail (LYCHEE_IS_QUESTION (question));

  if (question->evidence == evidence)
    return;
  question->evidence = evidence;
  g_object_notify_by_pspec (G_OBJECT (question), props[PROP_EVIDENCE]);
}

/**
 * lychee_question_get_evidence:
 * @question: a question
 *
 * Gets how many pieces of evidence the answer is to have.
 *
 * Returns: how many pieces of evidence the answer is to have
 */
guint
lychee_question_get_evidence (LycheeQuestion *question)
{
  g_return_val_if_fail (LYCHEE_IS_QUESTION (question), 0);
  return question->evidence;
}

/**
 * lychee_question_set_contrast:
 * @question: a question
 * @contrast: 0 to 10; 0: none
 *
 * Sets [property@Question:contrast].
 */
void
lychee_question_set_contrast (LycheeQuestion *question, double contrast)
{
  g_return_if_fail (LYCHEE_IS_QUESTION (question));
  g_return_if_fail (contrast >= 0 && contrast <= 10);

  if (question->contrast == contrast)
    return;
  question->contrast = contrast;
  g_object_notify_by_pspec (G_OBJECT (question), props[PROP_CONTRAST]);
}

/**
 * lychee_question_get_contrast:
 * @question: a question
 *
 * Gets how much of what the model would have said without the transcript counts against it.
 *
 * Returns: 0 to 10
 */
double
lychee_question_get_contrast (LycheeQuestion *question)
{
  g_return_val_if_fail (LYCHEE_IS_QUESTION (question), 0);
  return question->contrast;
}

/**
 * lychee_question_set_quotes:
 * @question: a question
 * @quotes: how many sentences of the transcript are the answer, or 0
 *
 * Sets [property@Question:quotes].
 */
void
lychee_question_set_quotes (LycheeQuestion *question, guint quotes)
{
  g_return_if_fail (LYCHEE_IS_QUESTION (question));

  if (question->quotes == quotes)
    return;
  question->quotes = quotes;
  g_object_notify_by_pspec (G_OBJECT (question), props[PROP_QUOTES]);
}

/**
 * lychee_question_get_quotes:
 * @question: a question
 *
 * Gets how many sentences of the transcript are the answer.
 *
 * Returns: how many sentences of the transcript are the answer; 0: the model writes it
 */
guint
lychee_question_get_quotes (LycheeQuestion *question)
{
  g_return_val_if_fail (LYCHEE_IS_QUESTION (question), 0);
  return question->quotes;
}
