/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* lychee-bench chunks: where a text is cut, and how good the cuts are: how well they agree with
 * given changes of topic, and what granularity=chunk loses with them. */

#include "fidelity.h"

#include "lychee-chunker.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const struct {
  LycheeDetector detector;
  const char *name;
} detectors[] = {
  { LYCHEE_DETECTOR_STRUCTURE, "structure" },
  { LYCHEE_DETECTOR_SEMANTIC, "semantic" },
  { LYCHEE_DETECTOR_BOTH, "both" },
};

typedef struct {
  Bench bench;
  char **files;
  char *topics_path, *only;
  gboolean plain, retrieval, shallow;
  gint min_tokens, max_tokens, lookahead, n_tokens, n_queries;
  double threshold;
  char *budgets, *layers;

  GString *text;
  GArray *topics; /* of guint: tokens before each change of topic */
} Chunks;

GPtrArray *
bench_chunk (
    LycheeTokenizer *tokenizer, LycheeChunker *chunker, const char *text, gsize length, GArray *ids)
{
  g_autoptr (LycheeEncoder) encoder = lychee_encoder_new (tokenizer, LYCHEE_TOKENIZER_NONE);
  g_autoptr (GArray) tokens = g_array_new (FALSE, FALSE, sizeof (LycheeToken));
  GPtrArray *chunks = g_ptr_array_new_with_free_func ((GDestroyNotify) lychee_chunk_unref);

  lychee_encoder_push (encoder, text, length, tokens);
  lychee_encoder_finish (encoder, tokens);
  for (guint i = 0; i < tokens->len; i++) {
    const LycheeToken *token = &g_array_index (tokens, LycheeToken, i);
    LycheeChunkerToken place = { .id = token->id,
      .text = text + token->offset,
      .text_length = token->length,
      .pts = LYCHEE_TIME_NONE,
      .duration = LYCHEE_TIME_NONE };

    if (ids)
      g_array_append_val (ids, token->id);
    lychee_chunker_push (chunker, &place, chunks);
  }
  lychee_chunker_drain (chunker, chunks);
  return chunks;
}

static GPtrArray *
cut (Chunks *c, LycheeModel *model, LycheeDetector detector, guint *n_tokens, double *seconds)
{
  g_autoptr (LycheeChunker) chunker = g_object_new (LYCHEE_TYPE_CHUNKER, "min-tokens",
      c->min_tokens, "max-tokens", c->max_tokens, "model", model, "detector", detector, "threshold",
      c->threshold, "lookahead", c->lookahead, "embedding",
      c->shallow ? LYCHEE_EMBEDDING_SHALLOW : LYCHEE_EMBEDDING_TABLE, NULL);
  g_autoptr (GArray) ids = g_array_new (FALSE, FALSE, sizeof (gint32));
  double from = bench_now ();
  GPtrArray *chunks =
      bench_chunk (lychee_model_get_tokenizer (model), chunker, c->text->str, c->text->len, ids);

  *n_tokens = ids->len;
  *seconds = (bench_now () - from) / 1e3;
  return chunks;
}

/* As a recogniser gives it: small letters, no marks but those inside of words, no lines. */
static void
make_plain (GString *text)
{
  g_autofree char *small = g_utf8_strdown (text->str, text->len);
  gboolean gap = FALSE;

  g_string_truncate (text, 0);
  for (const char *at = small; *at != '\0'; at = g_utf8_next_char (at)) {
    gunichar c = g_utf8_get_char (at), next = g_utf8_get_char (g_utf8_next_char (at));
    gboolean inner = strchr ("'-.,:", (int) (c < 0x80 ? c : ' ')) && text->len > 0 && !gap &&
                     g_unichar_isalnum (next);

    if (!g_unichar_isspace (c) && (!g_unichar_ispunct (c) || inner)) {
      if (gap && text->len > 0)
        g_string_append_c (text, ' ');
      g_string_append_unichar (text, c);
      gap = FALSE;
    } else {
      gap = TRUE;
    }
  }
}

static GString *
read_file (const char *path, gboolean plain)
{
  g_autoptr (GError) error = NULL;
  char *contents;
  gsize length;
  GString *text;

  if (!g_file_get_contents (path, &contents, &length, &error))
    bench_fail ("%s", error->message);
  text = g_string_new_len (contents, length);
  g_free (contents);
  if (!g_utf8_validate (text->str, text->len, NULL))
    bench_fail ("“%s” is not UTF-8", path);
  if (plain)
    make_plain (text);
  return text;
}

/* The topics' file has a line for each topic, the words that it begins with. */
static void
read_topics (Chunks *c, LycheeModel *model)
{
  g_autoptr (LycheeEncoder) encoder =
      lychee_encoder_new (lychee_model_get_tokenizer (model), LYCHEE_TOKENIZER_NONE);
  g_autoptr (GArray) tokens = g_array_new (FALSE, FALSE, sizeof (LycheeToken));
  g_autoptr (GString) file = read_file (c->topics_path, FALSE);
  g_auto (GStrv) lines = g_strsplit (file->str, "\n", -1);
  const char *at = c->text->str;
  guint i_token = 0;

  lychee_encoder_push (encoder, c->text->str, c->text->len, tokens);
  lychee_encoder_finish (encoder, tokens);
  c->topics = g_array_new (FALSE, FALSE, sizeof (guint));
  for (char **line = lines; *line; line++) {
    g_autoptr (GString) words = g_string_new (g_strstrip (*line));
    const char *found;
    guint64 offset;

    if (c->plain)
      make_plain (words);
    if (words->len == 0)
      continue;
    found = strstr (at, words->str);
    if (!found)
      bench_fail (
          "“%s”: “%s” is not in the text behind the topic before it", c->topics_path, words->str);
    offset = found - c->text->str;
    while (i_token < tokens->len) {
      const LycheeToken *token = &g_array_index (tokens, LycheeToken, i_token);

      if (token->offset + token->length > offset)
        break;
      i_token++;
    }
    if (i_token > 0)
      g_array_append_val (c->topics, i_token);
    at = found + words->len;
  }
  if (c->topics->len == 0)
    bench_fail ("“%s” has no topic but the first", c->topics_path);
}

/* Places 0 .. n, how many of @ends lie in 1 .. i. */
static guint *
count_ends (GArray *ends, guint n)
{
  guint *counts = g_new0 (guint, n + 1);

  for (guint i = 0; i < ends->len; i++)
    counts[g_array_index (ends, guint, i)] = 1;
  for (guint i = 1; i <= n; i++)
    counts[i] += counts[i - 1];
  return counts;
}

/* How often two places half a topic apart are wrongly held to be of one topic or of two (Pk,
 * Beeferman et al., 1999), or have another number of changes between them (WindowDiff, Pevzner and
 * Hearst, 2002). 0 is best; to see no change at all gives about 0.5. */
static void
compare_topics (GArray *topics, GArray *found, guint n, double *pk, double *window_diff)
{
  g_autofree guint *a = count_ends (topics, n), *b = count_ends (found, n);
  guint k = MAX (1, (n + topics->len + 1) / (2 * (topics->len + 1)));
  guint n_wrong = 0, n_differ = 0, n_places = 0;

  for (guint i = 0; i + k < n; i++, n_places++) {
    guint in_a = a[i + k] - a[i], in_b = b[i + k] - b[i];

    n_wrong += (in_a > 0) != (in_b > 0);
    n_differ += in_a != in_b;
  }
  *pk = (double) n_wrong / MAX (n_places, 1);
  *window_diff = (double) n_differ / MAX (n_places, 1);
}

static void
print_chunks (Chunks *c, LycheeModel *model, LycheeDetector detector)
{
  guint n_tokens;
  double seconds;
  g_autoptr (GPtrArray) chunks = cut (c, model, detector, &n_tokens, &seconds);

  for (guint i = 0; i < chunks->len; i++) {
    const LycheeChunk *chunk = chunks->pdata[i];
    char drift[G_ASCII_DTOSTR_BUF_SIZE] = "null";

    if (!isnan (chunk->drift))
      g_ascii_formatd (drift, sizeof drift, "%.4f", chunk->drift);
    if (c->bench.json) {
      g_autoptr (GString) quoted = g_string_new (NULL);

      for (const char *at = chunk->text; *at != '\0'; at++) {
        if (*at == '"' || *at == '\\')
          g_string_append_c (quoted, '\\');
        if ((guchar) *at < 0x20)
          g_string_append_printf (quoted, "\\u%04x", *at);
        else
          g_string_append_c (quoted, *at);
      }
      printf ("{\"chunk\": %u, \"tokens\": %u, \"boundary\": \"%s\", \"drift\": %s, \"text\": "
              "\"%s\"}\n",
          i, chunk->n_ids, lychee_boundary_to_string (chunk->boundary), drift, quoted->str);
    } else {
      g_autoptr (GString) line = g_string_new (chunk->text);

      g_string_replace (line, "\n", "⏎", 0);
      printf ("%5u %3u  %-9s %6s  %s\n", i, chunk->n_ids,
          lychee_boundary_to_string (chunk->boundary), isnan (chunk->drift) ? "-" : drift,
          line->str);
    }
  }
}

static void
print_detectors (Chunks *c, LycheeModel *model)
{
  for (guint i = 0; i < G_N_ELEMENTS (detectors); i++) {
    guint n_tokens, end = 0;
    double seconds, pk = NAN, window_diff = NAN;
    g_autoptr (GPtrArray) chunks = cut (c, model, detectors[i].detector, &n_tokens, &seconds);
    g_autoptr (GArray) found = g_array_new (FALSE, FALSE, sizeof (guint));

    if (c->only && !g_str_equal (c->only, detectors[i].name))
      continue;
    for (guint j = 0; j < chunks->len; j++) {
      const LycheeChunk *chunk = chunks->pdata[j];

      end += chunk->n_ids;
      if (end < n_tokens && (chunk->boundary == LYCHEE_BOUNDARY_DRIFT ||
                                chunk->boundary == LYCHEE_BOUNDARY_PARAGRAPH))
        g_array_append_val (found, end);
    }
    compare_topics (c->topics, found, n_tokens, &pk, &window_diff);
    if (c->bench.json)
      printf ("{\"detector\": \"%s\", \"tokens\": %u, \"chunks\": %u, \"topics\": %u, \"found\": "
              "%u, \"pk\": %.4f, \"window_diff\": %.4f, \"tokens_per_second\": %.0f}\n",
          detectors[i].name, n_tokens, chunks->len, c->topics->len, found->len, pk, window_diff,
          n_tokens / seconds);
    else
      printf ("%-10s %7u %7u %7u %6u %7.4f %11.4f %9.0f\n", detectors[i].name, n_tokens,
          chunks->len, c->topics->len, found->len, pk, window_diff, n_tokens / seconds);
  }
}

static void
print_retrieval (Chunks *c)
{
  Fidelity f = { .bench = c->bench,
    .text_path = g_strdup (c->files[0]),
    .n_tokens = c->n_tokens,
    .n_queries = c->n_queries };
  GArray *ends[G_N_ELEMENTS (detectors)];
  g_autoptr (GPtrArray) banks = g_ptr_array_new_with_free_func ((GDestroyNotify) policy_bank_free);
  FidelityMeasure measure;

  fidelity_choose (&f, "lycheecluster", c->budgets);
  fidelity_open (&f, c->layers);
  fidelity_read (&f, f.n_tokens);
  for (guint i = 0; i < G_N_ELEMENTS (detectors); i++) {
    g_autoptr (LycheeChunker) chunker = g_object_new (LYCHEE_TYPE_CHUNKER, "min-tokens",
        c->min_tokens, "max-tokens", c->max_tokens, "model", f.model, "detector",
        detectors[i].detector, "threshold", c->threshold, "lookahead", c->lookahead, "embedding",
        c->shallow ? LYCHEE_EMBEDDING_SHALLOW : LYCHEE_EMBEDDING_TABLE, NULL);
    PolicyBank *bank;

    fidelity_cut (&f, chunker);
    bank = fidelity_new_bank (&f, f.policies->pdata[0], TRUE);
    policy_bank_update (bank, f.cache, policy_state_prefill);
    g_ptr_array_add (banks, bank);
    ends[i] = g_steal_pointer (&f.item_ends); /* the banks look at it */
  }
  fidelity_measure_init (&measure, &f, (PolicyBank *const *) banks->pdata, banks->len);
  fidelity_decode (&f, f.cache, f.n_queries, fidelity_measure, &measure, NULL, NULL);
  if (!c->bench.json)
    printf ("\n%-10s %7s %7s %8s %7s\n", "detector", "chunks", "budget", "error", "mass");
  for (guint i = 0; i < banks->len; i++)
    for (guint k = 0; k < f.n_budgets; k++) {
      FidelityScore score = fidelity_measure_get (&measure, i, k);

      printf (c->bench.json ? "{\"detector\": \"%s\", \"chunks\": %u, \"budget\": %u, \"error\": "
                              "%.6f, \"mass\": %.6f}\n"
                            : "%-10s %7u %7u %8.4f %7.4f\n",
          detectors[i].name, ends[i]->len, f.budgets[k], score.error, score.mass);
    }
  fidelity_measure_clear (&measure);
  g_ptr_array_set_size (banks, 0);
  for (guint i = 0; i < G_N_ELEMENTS (detectors); i++)
    g_array_unref (ends[i]);
  fidelity_close (&f);
}

int
bench_chunks (int argc, char **argv)
{
  Chunks c = { .min_tokens = 8,
    .max_tokens = 16,
    .lookahead = 32,
    .threshold = 1.75,
    .n_tokens = 8000,
    .n_queries = 96 };
  LycheeDetector detector = LYCHEE_DETECTOR_BOTH;
  const GOptionEntry entries[] = { { "shallow", 0, 0, G_OPTION_ARG_NONE, &c.shallow,
                                       "measure drift by the model's first layers, not its table",
                                       NULL },
    { "topics", 0, 0, G_OPTION_ARG_FILENAME, &c.topics_path,
        "compare detectors with the topics that begin with the words "
        "that the lines of FILE have",
        "FILE" },
    { "retrieval", 0, 0, G_OPTION_ARG_NONE, &c.retrieval,
        "compare what granularity=chunk loses under each detector", NULL },
    { "detector", 0, 0, G_OPTION_ARG_STRING, &c.only, "structure, semantic or both", "NAME" },
    { "threshold", 0, 0, G_OPTION_ARG_DOUBLE, &c.threshold,
        "standard deviations of drift (default 1.75)", "X" },
    { "lookahead", 0, 0, G_OPTION_ARG_INT, &c.lookahead, "tokens behind a place (default 32)",
        "N" },
    { "min-tokens", 0, 0, G_OPTION_ARG_INT, &c.min_tokens, "of a chunk (default 8)", "N" },
    { "max-tokens", 0, 0, G_OPTION_ARG_INT, &c.max_tokens, "of a chunk (default 16)", "N" },
    { "plain", 0, 0, G_OPTION_ARG_NONE, &c.plain,
        "leave out marks, lines and capitals, as recognisers do", NULL },
    { "tokens", 'n', 0, G_OPTION_ARG_INT, &c.n_tokens,
        "with --retrieval, tokens before the first query (default 8000)", "N" },
    { "queries", 'q', 0, G_OPTION_ARG_INT, &c.n_queries,
        "with --retrieval, tokens that are queries (default 96)", "N" },
    { "budgets", 'b', 0, G_OPTION_ARG_STRING, &c.budgets,
        "with --retrieval, keys that are read (default 256,512,1024)", "N,N,..." },
    { "layers", 'l', 0, G_OPTION_ARG_STRING, &c.layers,
        "with --retrieval, layers that are measured (default all)", "N,N,..." },
    { G_OPTION_REMAINING, 0, 0, G_OPTION_ARG_FILENAME_ARRAY, &c.files, NULL, "FILE" }, { NULL } };
  g_autoptr (LycheeModel) model = NULL;

  bench_parse (&c.bench, entries,
      "Prints the chunks of a text: number, tokens, what marks the end, drift there, text.\n"
      "With --topics or --retrieval, compares the detectors instead.",
      &argc, &argv);
  if (!c.files || !c.files[0] || c.files[1])
    bench_fail ("chunks reads one file");
  if (c.only) {
    guint i = 0;

    while (i < G_N_ELEMENTS (detectors) && !g_str_equal (c.only, detectors[i].name))
      i++;
    if (i == G_N_ELEMENTS (detectors))
      bench_fail ("--detector: “%s” is none of structure, semantic, both", c.only);
    detector = detectors[i].detector;
  }
  c.min_tokens = CLAMP (c.min_tokens, 1, 4096);
  c.max_tokens = CLAMP (c.max_tokens, 1, 4096);
  c.lookahead = CLAMP (c.lookahead, 8, 512);
  c.threshold = CLAMP (c.threshold, 0, 100);
  if (!c.budgets)
    c.budgets = g_strdup ("256,512,1024");

  c.text = read_file (c.files[0], c.plain);
  if (c.topics_path || !c.retrieval)
    model = bench_load (&c.bench);
  if (c.topics_path) {
    read_topics (&c, model);
    if (!c.bench.json)
      printf ("%-10s %7s %7s %7s %6s %7s %11s %9s\n", "detector", "tokens", "chunks", "topics",
          "found", "Pk", "WindowDiff", "tokens/s");
    print_detectors (&c, model);
  } else if (!c.retrieval) {
    print_chunks (&c, model, detector);
  }
  if (c.retrieval)
    print_retrieval (&c);
  g_string_free (c.text, TRUE);
  g_clear_pointer (&c.topics, g_array_unref);
  g_clear_pointer (&c.bench.model_path, g_free);
  g_strfreev (c.files);
  g_free (c.topics_path);
  g_free (c.only);
  g_free (c.budgets);
  g_free (c.layers);
  return 0;
}
