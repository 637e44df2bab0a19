/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "lychee-chat-template.h"

#include <string.h>

/* The formats are facts about how models were trained; their sources are the chat templates that
 * the models' makers publish: SmolLM2, Qwen 2 and others (chatml), Qwen 3 (chatml with thoughts),
 * Phi 3, Phi 4, Granite 3, Llama 2 chat, Llama 3 instruct, Gemma 2 and 3, Mistral instruct (v1, v3,
 * v7, each with a SentencePiece or a "tekken" vocabulary). tests/test-chat-template.c has what
 * those render. */

/**
 * lychee_chat_format_detect:
 * @template_source: (nullable): Jinja source, as in a GGUF's `tokenizer.chat_template`
 *
 * Tells the format by the control tokens that the template writes.
 *
 * Returns: the format, or %LYCHEE_CHAT_FORMAT_AUTO where it is none of these
 */
LycheeChatFormat
lychee_chat_format_detect (const char *template_source)
{
  const char *s = template_source;

  if (s == NULL)
    return LYCHEE_CHAT_FORMAT_AUTO;
  if (strstr (s, "<|im_start|>") != NULL) {
    if (strstr (s, "<|im_end|>") == NULL)
      return LYCHEE_CHAT_FORMAT_AUTO;
    if (strstr (s, "<|im_sep|>") != NULL)
      return LYCHEE_CHAT_FORMAT_PHI4;
    return strstr (s, "enable_thinking") != NULL && strstr (s, "</think>") != NULL
               ? LYCHEE_CHAT_FORMAT_QWEN3
               : LYCHEE_CHAT_FORMAT_CHATML;
  }
  if (strstr (s, "<|start_of_role|>") != NULL && strstr (s, "<|end_of_role|>") != NULL)
    return LYCHEE_CHAT_FORMAT_GRANITE;
  if (strstr (s, "<|assistant|>") != NULL && strstr (s, "<|end|>") != NULL)
    return LYCHEE_CHAT_FORMAT_PHI3;
  if (strstr (s, "<|start_header_id|>") != NULL && strstr (s, "<|eot_id|>") != NULL)
    return LYCHEE_CHAT_FORMAT_LLAMA3;
  if (strstr (s, "<start_of_turn>") != NULL && strstr (s, "<end_of_turn>") != NULL)
    return LYCHEE_CHAT_FORMAT_GEMMA;
  if (strstr (s, "[INST]") != NULL && strstr (s, "[/INST]") != NULL)
    return strstr (s, "<<SYS>>") != NULL ? LYCHEE_CHAT_FORMAT_LLAMA2 : LYCHEE_CHAT_FORMAT_MISTRAL;
  return LYCHEE_CHAT_FORMAT_AUTO;
}

/**
 * lychee_chat_format_from_string:
 * @name: (nullable): "chatml", "llama2", ...
 *
 * Returns: the format of that nick, or %LYCHEE_CHAT_FORMAT_AUTO where there is none
 */
LycheeChatFormat
lychee_chat_format_from_string (const char *name)
{
  GEnumClass *enum_class;
  GEnumValue *value;
  LycheeChatFormat format;

  if (name == NULL)
    return LYCHEE_CHAT_FORMAT_AUTO;
  enum_class = g_type_class_ref (LYCHEE_TYPE_CHAT_FORMAT);
  value = g_enum_get_value_by_nick (enum_class, name);
  format = value != NULL ? (LycheeChatFormat) value->value : LYCHEE_CHAT_FORMAT_AUTO;
  g_type_class_unref (enum_class);
  return format;
}

/**
 * lychee_chat_format_to_string:
 * @format: a format
 *
 * Returns: (nullable): its nick, a static string; %NULL where @format is none of the enumeration
 */
const char *
lychee_chat_format_to_string (LycheeChatFormat format)
{
  GEnumClass *enum_class = g_type_class_ref (LYCHEE_TYPE_CHAT_FORMAT);
  GEnumValue *value = g_enum_get_value (enum_class, format);
  const char *nick = value != NULL ? value->value_nick : NULL;

  g_type_class_unref (enum_class);
  return nick;
}

/* Gathers plain text so that neighbours are encoded as one: words may be merged over the seam. */
typedef struct {
  LycheeTokenizer *tokenizer;
  GArray *ids;
  GString *plain;
} Builder;

static void
builder_init (Builder *builder, LycheeTokenizer *tokenizer, GArray *ids)
{
  builder->tokenizer = tokenizer;
  builder->ids = ids;
  builder->plain = g_string_new (NULL);
}

static void
builder_flush (Builder *builder)
{
  if (builder->plain->len > 0)
    lychee_tokenizer_encode (builder->tokenizer, builder->plain->str, builder->plain->len,
        LYCHEE_TOKENIZER_NONE, builder->ids);
  g_string_truncate (builder->plain, 0);
}

static void
builder_finish (Builder *builder)
{
  builder_flush (builder);
  g_string_free (builder->plain, TRUE);
}

static void
add_plain (Builder *builder, const char *text)
{
  g_string_append (builder->plain, text);
}

/* A control token where the vocabulary has it, else the same text in ordinary tokens, as the models
 * without it were trained. */
static void
add_control (Builder *builder, const char *piece)
{
  gint32 id = lychee_tokenizer_lookup (builder->tokenizer, piece);

  if (id < 0) {
    add_plain (builder, piece);
    return;
  }
  builder_flush (builder);
  g_array_append_val (builder->ids, id);
}

/* Formats whose turns are all of one kind. */
typedef struct {
  LycheeChatFormat format;
  const char *open;    /* before the role; NULL: the role is a control token, <|role|> */
  const char *sep;     /* a control token behind the role, or NULL */
  const char *newline; /* plain text behind the role */
  const char *end;
  const char *between; /* plain text behind the end */
} Turns;

static const Turns turns[] = {
  { LYCHEE_CHAT_FORMAT_CHATML, "<|im_start|>", NULL, "\n", "<|im_end|>", "\n" },
  { LYCHEE_CHAT_FORMAT_QWEN3, "<|im_start|>", NULL, "\n", "<|im_end|>", "\n" },
  /* Its tokenizer drops the newline that the template has behind each control token. */
  { LYCHEE_CHAT_FORMAT_PHI3, NULL, NULL, "", "<|end|>", "" },
  { LYCHEE_CHAT_FORMAT_PHI4, "<|im_start|>", "<|im_sep|>", "", "<|im_end|>", "" },
  { LYCHEE_CHAT_FORMAT_GRANITE, "<|start_of_role|>", "<|end_of_role|>", "", "<|end_of_text|>",
      "\n" },
};

static const Turns *
get_turns (LycheeChatFormat format)
{
  for (guint i = 0; i < G_N_ELEMENTS (turns); i++)
    if (turns[i].format == format)
      return &turns[i];
  return NULL;
}

static void
begin_turn (Builder *builder, const Turns *t, const char *role)
{
  if (t->open) {
    add_control (builder, t->open);
    add_plain (builder, role);
  } else {
    g_autofree char *control = g_strdup_printf ("<|%s|>", role);

    add_control (builder, control);
  }
  if (t->sep)
    add_control (builder, t->sep);
  add_plain (builder, t->newline);
}

static void
end_turn (Builder *builder, const Turns *t)
{
  add_control (builder, t->end);
  add_plain (builder, t->between);
}

/* Adds @text without the white space at its ends, where the format's templates trim it. */
static void
add_trimmed (Builder *builder, const char *text, gboolean start, gboolean end)
{
  const char *last = text + strlen (text);

  while (start && *text != '\0' && g_unichar_isspace (g_utf8_get_char (text)))
    text = g_utf8_next_char (text);
  while (end && last > text) {
    const char *before = g_utf8_prev_char (last);

    if (!g_unichar_isspace (g_utf8_get_char (before)))
      break;
    last = before;
  }
  g_string_append_len (builder->plain, text, last - text);
}

/* Mistral's formats differ by vocabulary: SentencePiece ones put a space after the control tokens;
 * the first ones have no control tokens, and a space before the closing mark as well. */
static gboolean
mistral_has_control (LycheeTokenizer *tokenizer)
{
  return lychee_tokenizer_lookup (tokenizer, "[INST]") >= 0;
}

static const char *
mistral_space (LycheeTokenizer *tokenizer)
{
  return !mistral_has_control (tokenizer) || lychee_tokenizer_lookup (tokenizer, "\u2581") >= 0
             ? " "
             : "";
}

/**
 * lychee_chat_format_append_prefix:
 * @format: a format that is not %LYCHEE_CHAT_FORMAT_AUTO
 * @tokenizer: the model's tokenizer
 * @system: (nullable): what the system says, plain text
 * @lead: (nullable): plain text before the transcript
 * @ids: (element-type gint32): where the ids are appended
 *
 * Appends what comes before the transcript: BOS if the tokenizer's metadata wants it, the system's
 * turn, the start of the user's turn and @lead.
 */
void
lychee_chat_format_append_prefix (LycheeChatFormat format, LycheeTokenizer *tokenizer,
    const char *system, const char *lead, GArray *ids)
{
  Builder b;
  gint32 bos;

  g_return_if_fail (format > LYCHEE_CHAT_FORMAT_AUTO && format <= LYCHEE_CHAT_FORMAT_GRANITE);
  g_return_if_fail (tokenizer != NULL && ids != NULL);

  bos = lychee_tokenizer_get_bos (tokenizer);
  if (lychee_tokenizer_get_add_bos (tokenizer) && bos >= 0)
    g_array_append_val (ids, bos);
  if (lead == NULL)
    lead = "";

  builder_init (&b, tokenizer, ids);
  switch (format) {
  case LYCHEE_CHAT_FORMAT_CHATML:
  case LYCHEE_CHAT_FORMAT_QWEN3:
  case LYCHEE_CHAT_FORMAT_PHI3:
  case LYCHEE_CHAT_FORMAT_PHI4:
  case LYCHEE_CHAT_FORMAT_GRANITE:
    if (system != NULL) {
      begin_turn (&b, get_turns (format), "system");
      add_plain (&b, system);
      end_turn (&b, get_turns (format));
    }
    begin_turn (&b, get_turns (format), "user");
    add_plain (&b, lead);
    break;
  case LYCHEE_CHAT_FORMAT_LLAMA2:
    add_control (&b, "[INST]");
    add_plain (&b, " ");
    if (system != NULL) {
      add_control (&b, "<<SYS>>");
      add_plain (&b, "\n");
      add_plain (&b, system);
      add_plain (&b, "\n");
      add_control (&b, "<</SYS>>");
      add_plain (&b, "\n\n");
    }
    add_trimmed (&b, lead, system == NULL, FALSE);
    break;
  case LYCHEE_CHAT_FORMAT_LLAMA3:
    if (system != NULL) {
      add_control (&b, "<|start_header_id|>");
      add_plain (&b, "system");
      add_control (&b, "<|end_header_id|>");
      add_plain (&b, "\n\n");
      add_trimmed (&b, system, TRUE, TRUE);
      add_control (&b, "<|eot_id|>");
    }
    add_control (&b, "<|start_header_id|>");
    add_plain (&b, "user");
    add_control (&b, "<|end_header_id|>");
    add_plain (&b, "\n\n");
    add_trimmed (&b, lead, TRUE, FALSE);
    break;
  case LYCHEE_CHAT_FORMAT_GEMMA:
    add_control (&b, "<start_of_turn>");
    add_plain (&b, "user\n");
    if (system != NULL) {
      add_plain (&b, system);
      add_plain (&b, "\n\n");
    }
    add_trimmed (&b, lead, TRUE, FALSE);
    break;
  case LYCHEE_CHAT_FORMAT_MISTRAL:
    if (system != NULL && lychee_tokenizer_lookup (tokenizer, "[SYSTEM_PROMPT]") >= 0) {
      add_control (&b, "[SYSTEM_PROMPT]");
      add_plain (&b, mistral_space (tokenizer));
      add_plain (&b, system);
      add_control (&b, "[/SYSTEM_PROMPT]");
      system = NULL;
    }
    add_control (&b, "[INST]");
    add_plain (&b, mistral_space (tokenizer));
    if (system != NULL) {
      add_plain (&b, system);
      add_plain (&b, "\n\n");
    }
    add_plain (&b, lead);
    break;
  case LYCHEE_CHAT_FORMAT_PLAIN:
  default:
    if (system != NULL) {
      add_plain (&b, system);
      add_plain (&b, "\n\n");
    }
    add_plain (&b, lead);
    break;
  }
  builder_finish (&b);
}

/**
 * lychee_chat_format_append_suffix:
 * @format: a format that is not %LYCHEE_CHAT_FORMAT_AUTO
 * @tokenizer: the model's tokenizer
 * @question: plain text
 * @ids: (element-type gint32): where the ids are appended
 *
 * Appends what comes after the transcript: an empty line, @question, the end of the user's turn and
 * the start of the assistant's.
 */
void
lychee_chat_format_append_suffix (
    LycheeChatFormat format, LycheeTokenizer *tokenizer, const char *question, GArray *ids)
{
  Builder b;

  g_return_if_fail (format > LYCHEE_CHAT_FORMAT_AUTO && format <= LYCHEE_CHAT_FORMAT_GRANITE);
  g_return_if_fail (tokenizer != NULL && question != NULL && ids != NULL);

  builder_init (&b, tokenizer, ids);
  add_plain (&b, "\n\n");
  switch (format) {
  case LYCHEE_CHAT_FORMAT_CHATML:
  case LYCHEE_CHAT_FORMAT_QWEN3:
  case LYCHEE_CHAT_FORMAT_PHI3:
  case LYCHEE_CHAT_FORMAT_PHI4:
  case LYCHEE_CHAT_FORMAT_GRANITE:
    add_plain (&b, question);
    end_turn (&b, get_turns (format));
    begin_turn (&b, get_turns (format), "assistant");
    if (format == LYCHEE_CHAT_FORMAT_QWEN3) { /* as with enable_thinking=false */
      add_control (&b, "<think>");
      add_plain (&b, "\n\n");
      add_control (&b, "</think>");
      add_plain (&b, "\n\n");
    }
    break;
  case LYCHEE_CHAT_FORMAT_LLAMA2:
    add_trimmed (&b, question, FALSE, TRUE);
    add_plain (&b, " ");
    add_control (&b, "[/INST]");
    break;
  case LYCHEE_CHAT_FORMAT_LLAMA3:
    add_trimmed (&b, question, FALSE, TRUE);
    add_control (&b, "<|eot_id|>");
    add_control (&b, "<|start_header_id|>");
    add_plain (&b, "assistant");
    add_control (&b, "<|end_header_id|>");
    add_plain (&b, "\n\n");
    break;
  case LYCHEE_CHAT_FORMAT_GEMMA:
    add_trimmed (&b, question, FALSE, TRUE);
    add_control (&b, "<end_of_turn>");
    add_plain (&b, "\n");
    add_control (&b, "<start_of_turn>");
    add_plain (&b, "model\n");
    break;
  case LYCHEE_CHAT_FORMAT_MISTRAL:
    add_plain (&b, question);
    if (!mistral_has_control (tokenizer))
      add_plain (&b, " ");
    add_control (&b, "[/INST]");
    break;
  case LYCHEE_CHAT_FORMAT_PLAIN:
  default:
    add_plain (&b, question);
    add_plain (&b, "\n");
    break;
  }
  builder_finish (&b);
}
