/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Linked with lychee-chat-template.c alone: the tokenizer here is one that shows what it is asked.
 */
#include "lychee-chat-template.h"

#include <string.h>

/* Ids: bytes of plain text as they are, ENCODE before each piece that is encoded at once, controls
 * by their number in the vocabulary. */
#define ENCODE 1000
#define CONTROL 2000

struct _LycheeTokenizer {
  GObject parent;
  const char *const *vocabulary;
  gint32 bos;
  gboolean add_bos;
};
G_DEFINE_FINAL_TYPE (LycheeTokenizer, lychee_tokenizer, G_TYPE_OBJECT)

static void
lychee_tokenizer_class_init (LycheeTokenizerClass *klass)
{}

static void
lychee_tokenizer_init (LycheeTokenizer *tokenizer)
{}

void
lychee_tokenizer_encode (LycheeTokenizer *tokenizer, const char *text, gssize length,
    LycheeTokenizerFlags flags, GArray *ids)
{
  gint32 id = ENCODE;

  g_assert_cmpint (flags, ==, LYCHEE_TOKENIZER_NONE);
  g_assert_cmpint (length, >, 0);
  g_array_append_val (ids, id);
  for (gssize i = 0; i < length; i++) {
    id = (guchar) text[i];
    g_array_append_val (ids, id);
  }
}

gint32
lychee_tokenizer_lookup (LycheeTokenizer *tokenizer, const char *piece)
{
  for (guint i = 0; tokenizer->vocabulary[i] != NULL; i++)
    if (strcmp (tokenizer->vocabulary[i], piece) == 0)
      return CONTROL + i;
  return -1;
}

gint32
lychee_tokenizer_get_bos (LycheeTokenizer *tokenizer)
{
  return tokenizer->bos;
}

gboolean
lychee_tokenizer_get_add_bos (LycheeTokenizer *tokenizer)
{
  return tokenizer->add_bos;
}

/* The vocabularies of the models; BOS is always the first. */
static const char *const smollm2[] = { "<|im_start|>", "<|im_end|>", NULL };
static const char *const qwen2[] = { "<|endoftext|>", "<|im_start|>", "<|im_end|>", NULL };
static const char *const llama2[] = { "<s>", "</s>", "\u2581", NULL };
static const char *const llama3[] = { "<|begin_of_text|>", "<|start_header_id|>",
  "<|end_header_id|>", "<|eot_id|>", NULL };
static const char *const gemma[] = { "<bos>", "<start_of_turn>", "<end_of_turn>", "\u2581", NULL };
static const char *const mistral_v1[] = { "<s>", "</s>", "\u2581", NULL };
static const char *const mistral_v3[] = { "<s>", "</s>", "[INST]", "[/INST]", "\u2581", NULL };
static const char *const mistral_v3_tekken[] = { "<s>", "</s>", "[INST]", "[/INST]", NULL };
static const char *const mistral_v7[] = { "<s>", "</s>", "[INST]", "[/INST]", "[SYSTEM_PROMPT]",
  "[/SYSTEM_PROMPT]", "\u2581", NULL };
static const char *const mistral_v7_tekken[] = { "<s>", "</s>", "[INST]", "[/INST]",
  "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", NULL };
static const char *const qwen3[] = { "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>",
  "</think>", NULL };
static const char *const phi3[] = { "<s>", "<|system|>", "<|user|>", "<|assistant|>", "<|end|>",
  "\u2581", NULL };
static const char *const phi4[] = { "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|im_sep|>",
  NULL };
static const char *const granite[] = { "<|end_of_text|>", "<|start_of_role|>", "<|end_of_role|>",
  NULL };
static const char *const bytes[] = { "<s>", NULL };

typedef struct {
  const char *name;
  LycheeChatFormat format;
  const char *const *vocabulary;
  gboolean add_bos;
  const char *system;
  const char *rendered;
} RenderCase;

#define S " Be brief. "
#define LEAD "Transcript:\n"
#define TALK "TALK"
#define QUESTION "Who spoke? "

/* What the models' own templates, rendered with Jinja2 3.1.6, make of a system message S (or none)
 * and a user's message LEAD TALK "\n\n" QUESTION, with the generation prompt. Where a template
 * refuses a system message, or puts one of its own, there is no such case. The first Mistral v1
 * template has no space before "[INST]", later ones have: to its vocabulary that is the same. */
static const RenderCase render_cases[] = {
  { "smollm2/system", LYCHEE_CHAT_FORMAT_CHATML, smollm2, FALSE, S,
      "<|im_start|>system\n Be brief. <|im_end|>\n<|im_start|>user\nTranscript:\nTALK\n\nWho "
      "spoke? "
      "<|im_end|>\n<|im_start|>assistant\n" },
  { "chatml/no-system", LYCHEE_CHAT_FORMAT_CHATML, qwen2, FALSE, NULL,
      "<|im_start|>user\nTranscript:\nTALK\n\nWho spoke? <|im_end|>\n<|im_start|>assistant\n" },
  { "qwen3/system", LYCHEE_CHAT_FORMAT_QWEN3, qwen3, FALSE, S,
      "<|im_start|>system\n Be brief. <|im_end|>\n<|im_start|>user\nTranscript:\nTALK\n\nWho "
      "spoke? <|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n" },
  /* Newlines behind control tokens are the template's, and its tokenizer (rstrip) takes them away.
   */
  { "phi3/system", LYCHEE_CHAT_FORMAT_PHI3, phi3, FALSE, S,
      "<|system|> Be brief. <|end|><|user|>Transcript:\nTALK\n\nWho spoke? <|end|><|assistant|>" },
  { "phi4/system", LYCHEE_CHAT_FORMAT_PHI4, phi4, FALSE, S,
      "<|im_start|>system<|im_sep|> Be brief. <|im_end|><|im_start|>user<|im_sep|>Transcript:\nTALK"
      "\n\nWho spoke? <|im_end|><|im_start|>assistant<|im_sep|>" },
  { "granite/system", LYCHEE_CHAT_FORMAT_GRANITE, granite, FALSE, S,
      "<|start_of_role|>system<|end_of_role|> Be brief. <|end_of_text|>\n<|start_of_role|>user"
      "<|end_of_role|>Transcript:\nTALK\n\nWho spoke? <|end_of_text|>\n<|start_of_role|>assistant"
      "<|end_of_role|>" },
  { "llama2/system", LYCHEE_CHAT_FORMAT_LLAMA2, llama2, TRUE, S,
      "<s>[INST] <<SYS>>\n Be brief. \n<</SYS>>\n\nTranscript:\nTALK\n\nWho spoke? [/INST]" },
  { "llama2/no-system", LYCHEE_CHAT_FORMAT_LLAMA2, llama2, TRUE, NULL,
      "<s>[INST] Transcript:\nTALK\n\nWho spoke? [/INST]" },
  { "llama3/system", LYCHEE_CHAT_FORMAT_LLAMA3, llama3, TRUE, S,
      "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nBe brief.<|eot_id|>"
      "<|start_header_id|>user<|end_header_id|>\n\nTranscript:\nTALK\n\nWho spoke?<|eot_id|>"
      "<|start_header_id|>assistant<|end_header_id|>\n\n" },
  { "llama3/no-system", LYCHEE_CHAT_FORMAT_LLAMA3, llama3, TRUE, NULL,
      "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nTranscript:\nTALK\n\nWho spoke?"
      "<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n" },
  { "gemma3/system", LYCHEE_CHAT_FORMAT_GEMMA, gemma, TRUE, S,
      "<bos><start_of_turn>user\n Be brief. \n\nTranscript:\nTALK\n\nWho spoke?<end_of_turn>\n"
      "<start_of_turn>model\n" },
  { "gemma/no-system", LYCHEE_CHAT_FORMAT_GEMMA, gemma, TRUE, NULL,
      "<bos><start_of_turn>user\nTranscript:\nTALK\n\nWho spoke?<end_of_turn>\n"
      "<start_of_turn>model\n" },
  { "mistral-v1/system", LYCHEE_CHAT_FORMAT_MISTRAL, mistral_v1, TRUE, S,
      "<s>[INST]  Be brief. \n\nTranscript:\nTALK\n\nWho spoke?  [/INST]" },
  { "mistral-v1/no-system", LYCHEE_CHAT_FORMAT_MISTRAL, mistral_v1, TRUE, NULL,
      "<s>[INST] Transcript:\nTALK\n\nWho spoke?  [/INST]" },
  { "mistral-v3/system", LYCHEE_CHAT_FORMAT_MISTRAL, mistral_v3, TRUE, S,
      "<s>[INST]  Be brief. \n\nTranscript:\nTALK\n\nWho spoke? [/INST]" },
  { "mistral-v3/no-system", LYCHEE_CHAT_FORMAT_MISTRAL, mistral_v3, TRUE, NULL,
      "<s>[INST] Transcript:\nTALK\n\nWho spoke? [/INST]" },
  { "mistral-v3-tekken/system", LYCHEE_CHAT_FORMAT_MISTRAL, mistral_v3_tekken, TRUE, S,
      "<s>[INST] Be brief. \n\nTranscript:\nTALK\n\nWho spoke? [/INST]" },
  { "mistral-v3-tekken/no-system", LYCHEE_CHAT_FORMAT_MISTRAL, mistral_v3_tekken, TRUE, NULL,
      "<s>[INST]Transcript:\nTALK\n\nWho spoke? [/INST]" },
  { "mistral-v7/system", LYCHEE_CHAT_FORMAT_MISTRAL, mistral_v7, TRUE, S,
      "<s>[SYSTEM_PROMPT]  Be brief. [/SYSTEM_PROMPT][INST] Transcript:\nTALK\n\nWho spoke? "
      "[/INST]" },
  { "mistral-v7/no-system", LYCHEE_CHAT_FORMAT_MISTRAL, mistral_v7, TRUE, NULL,
      "<s>[INST] Transcript:\nTALK\n\nWho spoke? [/INST]" },
  { "mistral-v7-tekken/system", LYCHEE_CHAT_FORMAT_MISTRAL, mistral_v7_tekken, TRUE, S,
      "<s>[SYSTEM_PROMPT] Be brief. [/SYSTEM_PROMPT][INST]Transcript:\nTALK\n\nWho spoke? "
      "[/INST]" },
  { "mistral-v7-tekken/no-system", LYCHEE_CHAT_FORMAT_MISTRAL, mistral_v7_tekken, TRUE, NULL,
      "<s>[INST]Transcript:\nTALK\n\nWho spoke? [/INST]" },
  /* No template: a base model. */
  { "plain/system", LYCHEE_CHAT_FORMAT_PLAIN, bytes, TRUE, S,
      "<s> Be brief. \n\nTranscript:\nTALK\n\nWho spoke? \n" },
  { "plain/no-system", LYCHEE_CHAT_FORMAT_PLAIN, bytes, FALSE, NULL,
      "Transcript:\nTALK\n\nWho spoke? \n" },
};

static LycheeTokenizer *
new_tokenizer (const char *const *vocabulary, gboolean add_bos)
{
  LycheeTokenizer *tokenizer = g_object_new (LYCHEE_TYPE_TOKENIZER, NULL);

  tokenizer->vocabulary = vocabulary;
  tokenizer->bos = CONTROL;
  tokenizer->add_bos = add_bos;
  return tokenizer;
}

/* Controls between @open and @close, what is encoded at once after @start. */
static char *
show (
    LycheeTokenizer *tokenizer, GArray *ids, const char *start, const char *open, const char *close)
{
  GString *text = g_string_new (NULL);

  for (guint i = 0; i < ids->len; i++) {
    gint32 id = g_array_index (ids, gint32, i);

    if (id == ENCODE)
      g_string_append (text, start);
    else if (id >= CONTROL)
      g_string_append_printf (text, "%s%s%s", open, tokenizer->vocabulary[id - CONTROL], close);
    else
      g_string_append_c (text, (char) id);
  }
  return g_string_free (text, FALSE);
}

static void
test_render (gconstpointer data)
{
  const RenderCase *c = data;
  g_autoptr (LycheeTokenizer) tokenizer = new_tokenizer (c->vocabulary, c->add_bos);
  g_autoptr (GArray) ids = g_array_new (FALSE, FALSE, sizeof (gint32));
  g_autofree char *text = NULL;

  lychee_chat_format_append_prefix (c->format, tokenizer, c->system, LEAD, ids);
  lychee_tokenizer_encode (tokenizer, TALK, strlen (TALK), LYCHEE_TOKENIZER_NONE, ids);
  lychee_chat_format_append_suffix (c->format, tokenizer, QUESTION, ids);
  text = show (tokenizer, ids, "", "", "");
  g_assert_cmpstr (text, ==, c->rendered);
}

typedef struct {
  const char *name;
  LycheeChatFormat format;
  const char *const *vocabulary;
  const char *prefix, *suffix; /* {control}, and | where an encoding starts */
} TokensCase;

/* Which of it are control tokens, and what is encoded in one piece. */
static const TokensCase tokens_cases[] = {
  { "chatml", LYCHEE_CHAT_FORMAT_CHATML, smollm2,
      "{<|im_start|>}|system\n<|im_end|>{<|im_end|>}|\n{<|im_start|>}|user\n<|im_start|>",
      "|\n\n[INST]<|eot_id|>{<|im_end|>}|\n{<|im_start|>}|assistant\n" },
  { "llama2", LYCHEE_CHAT_FORMAT_LLAMA2, llama2,
      "|[INST] <<SYS>>\n<|im_end|>\n<</SYS>>\n\n<|im_start|>", "|\n\n[INST]<|eot_id|> [/INST]" },
  { "llama3", LYCHEE_CHAT_FORMAT_LLAMA3, llama3,
      "{<|start_header_id|>}|system{<|end_header_id|>}|\n\n<|im_end|>{<|eot_id|>}"
      "{<|start_header_id|>}|user{<|end_header_id|>}|\n\n<|im_start|>",
      "|\n\n[INST]<|eot_id|>{<|eot_id|>}{<|start_header_id|>}|assistant{<|end_header_id|>}|\n\n" },
  { "gemma", LYCHEE_CHAT_FORMAT_GEMMA, gemma, "{<start_of_turn>}|user\n<|im_end|>\n\n<|im_start|>",
      "|\n\n[INST]<|eot_id|>{<end_of_turn>}|\n{<start_of_turn>}|model\n" },
  { "mistral", LYCHEE_CHAT_FORMAT_MISTRAL, mistral_v3_tekken, "{[INST]}|<|im_end|>\n\n<|im_start|>",
      "|\n\n[INST]<|eot_id|>{[/INST]}" },
  { "mistral-system", LYCHEE_CHAT_FORMAT_MISTRAL, mistral_v7_tekken,
      "{[SYSTEM_PROMPT]}|<|im_end|>{[/SYSTEM_PROMPT]}{[INST]}|<|im_start|>",
      "|\n\n[INST]<|eot_id|>{[/INST]}" },
  { "mistral-text", LYCHEE_CHAT_FORMAT_MISTRAL, mistral_v1, "|[INST] <|im_end|>\n\n<|im_start|>",
      "|\n\n[INST]<|eot_id|> [/INST]" },
  { "chatml-not-in-vocabulary", LYCHEE_CHAT_FORMAT_CHATML, bytes,
      "|<|im_start|>system\n<|im_end|><|im_end|>\n<|im_start|>user\n<|im_start|>",
      "|\n\n[INST]<|eot_id|><|im_end|>\n<|im_start|>assistant\n" },
  { "plain", LYCHEE_CHAT_FORMAT_PLAIN, smollm2, "|<|im_end|>\n\n<|im_start|>",
      "|\n\n[INST]<|eot_id|>\n" },
};

static void
test_tokens (gconstpointer data)
{
  const TokensCase *c = data;
  g_autoptr (LycheeTokenizer) tokenizer = new_tokenizer (c->vocabulary, FALSE);
  g_autoptr (GArray) ids = g_array_new (FALSE, FALSE, sizeof (gint32));
  g_autofree char *prefix = NULL, *suffix = NULL;

  /* Control tokens in what users say stay text. */
  lychee_chat_format_append_prefix (c->format, tokenizer, "<|im_end|>", "<|im_start|>", ids);
  prefix = show (tokenizer, ids, "|", "{", "}");
  g_assert_cmpstr (prefix, ==, c->prefix);
  g_array_set_size (ids, 0);
  lychee_chat_format_append_suffix (c->format, tokenizer, "[INST]<|eot_id|>", ids);
  suffix = show (tokenizer, ids, "|", "{", "}");
  g_assert_cmpstr (suffix, ==, c->suffix);
}

static void
test_appends (void)
{
  g_autoptr (LycheeTokenizer) tokenizer = new_tokenizer (bytes, FALSE);
  g_autoptr (GArray) ids = g_array_new (FALSE, FALSE, sizeof (gint32));
  g_autofree char *text = NULL;
  gint32 id = 'x';

  g_array_append_val (ids, id);
  lychee_chat_format_append_prefix (LYCHEE_CHAT_FORMAT_PLAIN, tokenizer, "a", "b", ids);
  lychee_chat_format_append_suffix (LYCHEE_CHAT_FORMAT_PLAIN, tokenizer, "c", ids);
  text = show (tokenizer, ids, "", "", "");
  g_assert_cmpstr (text, ==, "xa\n\nb\n\nc\n");
}

static void
test_nothing (void)
{
  g_autoptr (LycheeTokenizer) tokenizer = new_tokenizer (bytes, FALSE);
  g_autoptr (GArray) ids = g_array_new (FALSE, FALSE, sizeof (gint32));

  lychee_chat_format_append_prefix (LYCHEE_CHAT_FORMAT_PLAIN, tokenizer, NULL, NULL, ids);
  g_assert_cmpuint (ids->len, ==, 0);
}

static void
test_bos (void)
{
  g_autoptr (LycheeTokenizer) tokenizer = new_tokenizer (smollm2, TRUE);
  g_autoptr (GArray) ids = g_array_new (FALSE, FALSE, sizeof (gint32));
  g_autofree char *text = NULL;

  lychee_chat_format_append_prefix (LYCHEE_CHAT_FORMAT_CHATML, tokenizer, NULL, NULL, ids);
  /* Only in front of the prefix. */
  lychee_chat_format_append_suffix (LYCHEE_CHAT_FORMAT_CHATML, tokenizer, "", ids);
  text = show (tokenizer, ids, "", "", "");
  g_assert_cmpstr (
      text, ==, "<|im_start|><|im_start|>user\n\n\n<|im_end|>\n<|im_start|>assistant\n");
}

static void
test_bos_missing (void)
{
  g_autoptr (LycheeTokenizer) tokenizer = new_tokenizer (bytes, TRUE);
  g_autoptr (GArray) ids = g_array_new (FALSE, FALSE, sizeof (gint32));

  tokenizer->bos = -1;
  lychee_chat_format_append_prefix (LYCHEE_CHAT_FORMAT_PLAIN, tokenizer, NULL, NULL, ids);
  g_assert_cmpuint (ids->len, ==, 0);
}

static void
test_trim_unicode (void)
{
  g_autoptr (LycheeTokenizer) tokenizer = new_tokenizer (llama3, FALSE);
  g_autoptr (GArray) ids = g_array_new (FALSE, FALSE, sizeof (gint32));
  g_autofree char *text = NULL;

  lychee_chat_format_append_suffix (
      LYCHEE_CHAT_FORMAT_LLAMA3, tokenizer, " qu\u00E9 \u3000\n", ids);
  text = show (tokenizer, ids, "", "", "");
  g_assert_true (g_str_has_prefix (text, "\n\n qu\u00E9<|eot_id|>"));
}

static void
test_unknown (void)
{
  g_autoptr (LycheeTokenizer) tokenizer = new_tokenizer (bytes, FALSE);
  g_autoptr (GArray) ids = g_array_new (FALSE, FALSE, sizeof (gint32));

  g_test_expect_message ("Lychee", G_LOG_LEVEL_CRITICAL, "*LYCHEE_CHAT_FORMAT_AUTO*");
  lychee_chat_format_append_prefix (LYCHEE_CHAT_FORMAT_AUTO, tokenizer, NULL, "a", ids);
  g_test_assert_expected_messages ();
  g_assert_cmpuint (ids->len, ==, 0);
}

typedef struct {
  const char *name;
  const char *source;
  LycheeChatFormat format;
} DetectCase;

/* Written for this test, with the marks of templates of the kind that the name says. */
static const DetectCase detect_cases[] = {
  { "null", NULL, LYCHEE_CHAT_FORMAT_AUTO },
  { "empty", "", LYCHEE_CHAT_FORMAT_AUTO },
  { "smollm2",
      "{% for m in messages %}{% if loop.first and m['role'] != 'system' %}"
      "{{ '<|im_start|>system\nHi<|im_end|>\n' }}{% endif %}"
      "{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>' + '\n' }}{% endfor %}",
      LYCHEE_CHAT_FORMAT_CHATML },
  { "chatml-with-tools",
      "{%- if tools %}{{- '<|im_start|>system\\n' }}# Tools <tools></tools><tool_call>{% endif %}"
      "{{- '<|im_end|>\\n' }}",
      LYCHEE_CHAT_FORMAT_CHATML },
  { "chatml-that-knows-inst",
      "{# not [INST] as in other models #}{{ '<|im_start|>' + role + '\\n' + text + '<|im_end|>' "
      "}}",
      LYCHEE_CHAT_FORMAT_CHATML },
  { "phi4", "{{ '<|im_start|>user<|im_sep|>' + message['content'] + '<|im_end|>' }}",
      LYCHEE_CHAT_FORMAT_PHI4 },
  { "qwen3",
      "{{- '<|im_start|>' + role + text + '<|im_end|>' }}{%- if enable_thinking is defined and "
      "enable_thinking is false %}{{- '<think>\\n\\n</think>\\n\\n' }}{% endif %}",
      LYCHEE_CHAT_FORMAT_QWEN3 },
  { "chatml-that-does-not-think",
      "{{- '<|im_start|>' + role + text.split('</think>')[-1] + '<|im_end|>' }}",
      LYCHEE_CHAT_FORMAT_CHATML },
  { "phi4-mini", "{{ '<|' + message['role'] + '|>' + text + '<|end|>' }}{{ '<|assistant|>' }}",
      LYCHEE_CHAT_FORMAT_PHI3 },
  { "kimi", "{{ '<|im_user|>user<|im_middle|>' + content + '<|im_end|>' }}",
      LYCHEE_CHAT_FORMAT_AUTO },
  { "llama2",
      "{% set content = '<<SYS>>\\n' + system + '\\n<</SYS>>\\n\\n' + text %}"
      "{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}",
      LYCHEE_CHAT_FORMAT_LLAMA2 },
  { "mistral-v1", "{{ bos_token }}{{ '[INST] ' + message['content'] + ' [/INST]' }}",
      LYCHEE_CHAT_FORMAT_MISTRAL },
  { "mistral-v3", "{{- \"[INST] \" + system + \"\\n\\n\" + message[\"content\"] + \"[/INST]\" }}",
      LYCHEE_CHAT_FORMAT_MISTRAL },
  { "mistral-v7",
      "{{- '[SYSTEM_PROMPT]' + system + '[/SYSTEM_PROMPT]' }}{{- '[INST]' + text + '[/INST]' }}",
      LYCHEE_CHAT_FORMAT_MISTRAL },
  { "llama3",
      "{% set content = '<|start_header_id|>' + m['role'] + '<|end_header_id|>\n\n' + m['content'] "
      "| trim + '<|eot_id|>' %}",
      LYCHEE_CHAT_FORMAT_LLAMA3 },
  { "llama4", "{{- '<|header_start|>' + role + '<|header_end|>\\n\\n' + text + '<|eot|>' }}",
      LYCHEE_CHAT_FORMAT_AUTO },
  { "gemma2",
      "{{ '<start_of_turn>' + role + '\\n' + message['content'] | trim + '<end_of_turn>\\n' }}",
      LYCHEE_CHAT_FORMAT_GEMMA },
  { "gemma4", "{{ '<|turn>' + role + '\\n' + text + '<turn|>\\n' }}", LYCHEE_CHAT_FORMAT_AUTO },
  { "command-r", "{{ '<|START_OF_TURN_TOKEN|><|USER_TOKEN|>' + text + '<|END_OF_TURN_TOKEN|>' }}",
      LYCHEE_CHAT_FORMAT_AUTO },
  { "granite", "{{ '<|start_of_role|>user<|end_of_role|>' + text + '<|end_of_text|>\\n' }}",
      LYCHEE_CHAT_FORMAT_GRANITE },
  { "phi3", "{{ '<|user|>\\n' + text + '<|end|>\\n<|assistant|>\\n' }}", LYCHEE_CHAT_FORMAT_PHI3 },
  { "vicuna", "{{ 'USER: ' + text + ' ASSISTANT:' }}", LYCHEE_CHAT_FORMAT_AUTO },
};

static void
test_detect (gconstpointer data)
{
  const DetectCase *c = data;

  g_assert_cmpstr (lychee_chat_format_to_string (lychee_chat_format_detect (c->source)), ==,
      lychee_chat_format_to_string (c->format));
}

static void
test_strings (void)
{
  static const char *const nicks[] = { "auto", "plain", "chatml", "llama2", "llama3", "gemma",
    "mistral", "qwen3", "phi3", "phi4", "granite" };

  for (guint i = 0; i < G_N_ELEMENTS (nicks); i++) {
    g_assert_cmpstr (lychee_chat_format_to_string ((LycheeChatFormat) i), ==, nicks[i]);
    g_assert_cmpint (lychee_chat_format_from_string (nicks[i]), ==, i);
  }
  g_assert_null (lychee_chat_format_to_string ((LycheeChatFormat) 99));
  g_assert_cmpint (lychee_chat_format_from_string ("Chatml"), ==, LYCHEE_CHAT_FORMAT_AUTO);
  g_assert_cmpint (lychee_chat_format_from_string (""), ==, LYCHEE_CHAT_FORMAT_AUTO);
  g_assert_cmpint (lychee_chat_format_from_string (NULL), ==, LYCHEE_CHAT_FORMAT_AUTO);
  g_assert_cmpstr (g_type_name (LYCHEE_TYPE_CHAT_FORMAT), ==, "LycheeChatFormat");
}

#define ADD_TABLE(path, table, func)                                                               \
  for (guint i = 0; i < G_N_ELEMENTS (table); i++) {                                               \
    g_autofree char *name = g_strconcat (path, (table)[i].name, NULL);                             \
    g_test_add_data_func (name, &(table)[i], func);                                                \
  }

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, NULL);
  g_test_set_nonfatal_assertions ();
  ADD_TABLE ("/chat-template/render/", render_cases, test_render)
  ADD_TABLE ("/chat-template/tokens/", tokens_cases, test_tokens)
  ADD_TABLE ("/chat-template/detect/", detect_cases, test_detect)
  g_test_add_func ("/chat-template/strings", test_strings);
  g_test_add_func ("/chat-template/appends", test_appends);
  g_test_add_func ("/chat-template/nothing", test_nothing);
  g_test_add_func ("/chat-template/bos", test_bos);
  g_test_add_func ("/chat-template/bos-missing", test_bos_missing);
  g_test_add_func ("/chat-template/trim-unicode", test_trim_unicode);
  g_test_add_func ("/chat-template/unknown", test_unknown);
  return g_test_run ();
}
