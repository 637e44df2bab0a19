/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* lychee-bench needle: whether a model finds facts in a long text, and which ways of reading
 * sparsely still do. Nothing is generated: the model is given the beginning of a sentence that the
 * text has, and is right where the word that ends it is likelier than the words that end other such
 * sentences. So a small model can be measured, too, and by how much it is right. */

#include "fidelity.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Tokens that are kept for a question. */
#define QUESTION_TOKENS 64
#define MAX_FACTS 20
#define MAX_TEXTS 100

static const char *const people[] = { "Marta", "Edwin", "Farida", "Oskar", "Yvonne", "Tomasz",
  "Ingrid", "Hugo", "Salma", "Pieter", "Noemi", "Rashid" };
static const char *const places[] = { "boat house", "chapel", "print shop", "orchard", "depot",
  "observatory", "mill", "library", "greenhouse", "workshop", "museum", "harbour office" };
/* Where the keys are; each begins with another token in all vocabularies that were tried, and those
 * that do not are left out. */
static const char *const things[] = { "bucket", "piano", "carpet", "clock", "bench", "barrel",
  "statue", "lantern", "mirror", "ladder", "basket", "chimney", "pillow", "wheel", "drawer",
  "fountain", "blanket", "kettle", "saddle", "anchor" };

/* What fills the text between the facts: somebody does something about something. */
static const char *const subjects[] = { "The committee", "The treasurer", "One of the drivers",
  "The older members", "Our neighbour", "The caretaker", "A visitor", "The new trainee",
  "The council", "The supplier", "Nobody", "The youngest", "The choir", "The inspector" };
static const char *const verbs[] = { "asked about", "complained about", "postponed", "paid for",
  "wrote a long letter about", "was pleased with", "measured", "forgot", "explained",
  "made a list of", "argued over", "photographed", "repaired", "counted" };
static const char *const objects[] = { "the leaking roof", "the minutes of last spring",
  "the seedlings", "the second invoice", "the bus timetable", "the paint on the north wall",
  "the lost umbrellas", "the water bill", "the new chairs", "the noise at night",
  "the path along the river", "the broken gate", "the harvest supper", "the insurance" };
static const char *const endings[] = { "because the weather had turned",
  "before the meeting closed", "after a long pause", "although it was not on the agenda",
  "for the third time this year", "and nobody objected", "while the others were having tea",
  "as had been agreed in March", "without saying why", "so that the matter could rest",
  "and it took most of the evening", "which came as a surprise", "in spite of the cold",
  "to everyone's relief" };

#define PICK(rand, list) list[g_rand_int_range (rand, 0, G_N_ELEMENTS (list))]

typedef struct {
  guint person, place, thing; /* of the lists above; things by their number among the usable */
  double depth;               /* 0: at the beginning, 1: at the end */
} Fact;

typedef struct {
  Bench bench;
  char *model_path;
  guint budget;
  guint seed;
  guint n_texts; /* of each length, with other facts in each */
  gboolean sparse, packed;
  char *policies;
  Fact facts[MAX_FACTS];
  guint n_facts;
  const char *things[G_N_ELEMENTS (things)];
  gint32 first[G_N_ELEMENTS (things)]; /* token that each begins with */
  guint n_things;
} Needle;

typedef struct {
  guint rank;    /* of the right word among all, 1: the likeliest */
  double margin; /* ln of its likelihood over that of the likeliest other */
} Found;

static GArray *
encode (LycheeModel *model, const char *text)
{
  GArray *ids = g_array_new (FALSE, FALSE, sizeof (gint32));

  lychee_tokenizer_encode (
      lychee_model_get_tokenizer (model), text, strlen (text), LYCHEE_TOKENIZER_NONE, ids);
  return ids;
}

static char *
make_question (const Fact *fact)
{
  return g_strdup_printf (
      "%s keeps the spare key of the %s under the", people[fact->person], places[fact->place]);
}

/* The words whose first tokens, behind the question's last word, are all different. */
static void
choose_things (Needle *n, LycheeModel *model)
{
  for (guint i = 0; i < G_N_ELEMENTS (things); i++) {
    g_autofree char *with = g_strdup_printf ("under the %s", things[i]);
    g_autoptr (GArray) before = encode (model, "under the"), ids = encode (model, with);
    gboolean is_new = ids->len > before->len;

    for (guint j = 0; is_new && j < n->n_things; j++)
      is_new = n->first[j] != g_array_index (ids, gint32, before->len);
    if (!is_new)
      continue;
    n->first[n->n_things] = g_array_index (ids, gint32, before->len);
    n->things[n->n_things++] = things[i];
  }
  if (n->n_things < n->n_facts)
    bench_fail (
        "the model's vocabulary has only %u usable words for %u facts", n->n_things, n->n_facts);
}

static void
choose_facts (Needle *n, const char *depths)
{
  g_autoptr (GArray) percents = bench_parse_numbers ("--depths", depths);

  if (percents->len > MAX_FACTS)
    bench_fail ("--depths: at most %d", MAX_FACTS);
  n->n_facts = percents->len;
  for (guint i = 0; i < n->n_facts; i++) {
    guint percent = g_array_index (percents, guint, i);

    if (percent > 100)
      bench_fail ("--depths: %u is no percentage", percent);
    n->facts[i].depth = percent / 100.0;
  }
}

/* Who keeps what where in the text of this seed: nobody and nothing is alike in two facts. */
static void
mix_facts (Needle *n, guint seed)
{
  for (guint i = 0; i < n->n_facts; i++) {
    n->facts[i].person = i % G_N_ELEMENTS (people);
    n->facts[i].place = (i * 5 + i / G_N_ELEMENTS (people) + seed) % G_N_ELEMENTS (places);
    n->facts[i].thing = (i + seed - 1) % n->n_things;
  }
}

/* A text of @n_tokens or a few more, with the facts at their depths. */
static char *
make_text (Needle *n, LycheeModel *model, guint n_tokens, guint seed)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed (seed);
  GString *text = g_string_new (NULL);
  gboolean told[MAX_FACTS] = { FALSE };
  guint length = 0;

  /* A fact needs room, and the last one must be inside. A sentence has a token more or less by
   * itself than in its place. */
  while (length < 1.05 * n_tokens + QUESTION_TOKENS) {
    g_autoptr (GString) sentence = g_string_new (NULL);
    g_autoptr (GArray) ids = NULL;

    for (guint i = 0; i < n->n_facts; i++) {
      g_autofree char *question = NULL;

      if (told[i] || length < n->facts[i].depth * (n_tokens - 3.0 * QUESTION_TOKENS))
        continue;
      told[i] = TRUE;
      question = make_question (&n->facts[i]);
      g_string_append_printf (sentence, " %s %s.", question, n->things[n->facts[i].thing]);
    }
    g_string_append_printf (sentence, "%s%s %s %s %s.",
        g_rand_int_range (rand, 0, 6) == 0 ? "\n\n" : " ", PICK (rand, subjects),
        PICK (rand, verbs), PICK (rand, objects), PICK (rand, endings));
    ids = encode (model, sentence->str);
    length += ids->len;
    g_string_append (text, sentence->str);
  }
  return g_string_free (text, FALSE);
}

/* Asks for one fact over what is read, attention by @run (NULL: by the library's own). */
static Found
ask (Needle *n, Fidelity *f, FidelityRun *run, const Fact *fact)
{
  LycheeAttention *attention = lychee_forward_get_attention (f->forward);
  g_autofree char *question = make_question (fact);
  g_autofree char *text = g_strdup_printf ("\n\n%s", question);
  g_autoptr (GArray) ids = encode (f->model, text);
  g_autoptr (GError) error = NULL;
  g_autoptr (LycheeCache) fork = lychee_cache_fork (f->cache, &error);
  const float *logits = NULL;
  float right, other = -INFINITY;
  Found found = { 1, 0 };

  if (!fork || ids->len > QUESTION_TOKENS)
    bench_fail ("%s", fork ? "the question is too long" : error->message);
  lychee_attention_set_func (attention, run ? fidelity_answer : NULL, run);
  for (guint i = 0; i < ids->len; i++)
    if (!lychee_forward_run (f->forward, fork, &g_array_index (ids, gint32, i), 1,
            i + 1 < ids->len ? LYCHEE_OUTPUT_NONE : LYCHEE_OUTPUT_LAST, &logits, NULL, &error))
      bench_fail ("%s", error->message);
  lychee_attention_set_func (attention, NULL, NULL);
  right = logits[n->first[fact->thing]];
  for (guint i = 0; i < n->n_things; i++) {
    float logit = logits[n->first[i]];

    if (i == fact->thing)
      continue;
    found.rank += logit >= right;
    other = MAX (other, logit);
  }
  found.margin = right - other;
  return found;
}

static void
print_result (Needle *n, const char *policy, guint n_tokens, const Found *found)
{
  double rank = 0, margin = 0;
  guint n_first = 0, n_asked = n->n_facts * n->n_texts;

  for (guint i = 0; i < n_asked; i++) {
    rank += found[i].rank / (double) n_asked;
    margin += found[i].margin / n_asked;
    n_first += found[i].rank == 1;
    if (n->bench.json)
      printf ("{\"tokens\": %u, \"policy\": \"%s\", \"budget\": %u, \"depth\": %.2f, \"rank\": %u, "
              "\"words\": %u, \"margin\": %.4f}\n",
          n_tokens, policy, n->budget, n->facts[i % n->n_facts].depth, found[i].rank, n->n_things,
          found[i].margin);
  }
  if (!n->bench.json) {
    printf ("%8u %-14s %5u/%u %9.2f %9.2f  ", n_tokens, policy, n_first, n_asked, rank, margin);
    for (guint i = 0; i < n->n_facts; i++) {
      double at_depth = 0;

      for (guint text = 0; text < n->n_texts; text++)
        at_depth += found[text * n->n_facts + i].rank / (double) n->n_texts;
      printf (" %.3g", at_depth);
    }
    putchar ('\n');
  }
  fflush (stdout);
}

/* Asks for all facts, attention by @policy (NULL: by the library's own). */
static void
ask_all (Needle *n, Fidelity *f, const Policy *policy, Found *found)
{
  const LycheeAttentionOptions options = { .sparse = TRUE, .budget = n->budget, .rest = TRUE };
  g_autoptr (PolicyBank) bank = policy ? fidelity_new_bank (f, policy, TRUE) : NULL;

  if (policy)
    policy_bank_update (bank, f->cache, policy_state_prefill);
  else
    lychee_attention_set_options (lychee_forward_get_attention (f->forward), &options);
  for (guint i = 0; i < n->n_facts; i++) {
    g_autoptr (PolicyBank) own = policy ? policy_bank_copy (bank) : NULL;
    FidelityRun run = { own, n->budget, f->n_kv_heads };

    if (policy && policy->whole)
      run.budget = f->n_tokens + QUESTION_TOKENS;
    found[i] = ask (n, f, policy ? &run : NULL, &n->facts[i]);
  }
}

/* Reads the text of one seed, once for all policies: @found is [policy][text][fact]. */
static void
measure_text (Needle *n, guint n_tokens, guint number, Found *found)
{
  g_autofree char *budgets = g_strdup_printf ("%u", n->budget), *text = NULL;
  Fidelity f = { .bench = n->bench,
    .n_tokens = n_tokens - QUESTION_TOKENS,
    .n_queries = QUESTION_TOKENS,
    .sparse = n->sparse,
    .packed = n->packed };
  guint n_policies;
  GError *error = NULL;
  int file;

  {
    g_autoptr (LycheeModel) model = lychee_model_new_from_file (n->model_path, &error);

    if (!model)
      bench_fail ("%s", error->message);
    if (n->n_things == 0)
      choose_things (n, model);
    mix_facts (n, n->seed + number);
    text = make_text (n, model, n_tokens, n->seed + number);
  }
  file = g_file_open_tmp ("lychee-needle-XXXXXX", &f.text_path, &error);
  if (file < 0 || !g_file_set_contents (f.text_path, text, -1, &error))
    bench_fail ("%s", error->message);
  close (file);
  f.bench.model_path = g_strdup (n->model_path);
  fidelity_choose (&f, n->policies, budgets);
  fidelity_open (&f, NULL);
  unlink (f.text_path);
  lychee_cache_set_rope_context (f.cache, n->packed ? 0 : n_tokens);
  fidelity_read (&f, f.n_tokens);
  n_policies = n->packed ? 1 : f.policies->len;
  for (guint p = 0; p < n_policies; p++)
    ask_all (n, &f, n->packed ? NULL : g_ptr_array_index (f.policies, p),
        found + ((gsize) p * n->n_texts + number) * n->n_facts);
  if (number + 1 == n->n_texts)
    for (guint p = 0; p < n_policies; p++)
      print_result (n,
          n->packed ? "packed" : ((const Policy *) g_ptr_array_index (f.policies, p))->name,
          n_tokens, found + (gsize) p * n->n_texts * n->n_facts);
  fidelity_close (&f);
}

static void
measure (Needle *n, guint n_tokens)
{
  guint n_policies = 0;
  g_autofree Found *found = NULL;

  while (policy_list ()[n_policies])
    n_policies++;
  found = g_new0 (Found, (gsize) n_policies * n->n_texts * n->n_facts);
  for (guint text = 0; text < n->n_texts; text++)
    measure_text (n, n_tokens, text, found);
}

int
bench_needle (int argc, char **argv)
{
  Needle n = { .budget = LYCHEE_DEFAULT_BUDGET };
  char *lengths = NULL, *depths = NULL, *prefill = NULL;
  gint budget = LYCHEE_DEFAULT_BUDGET, seed = 1, n_texts = 1;
  g_autoptr (GArray) list = NULL;
  const GOptionEntry entries[] = {
    { "lengths", 'n', 0, G_OPTION_ARG_STRING, &lengths,
        "tokens of the text (default 4096,8192); more than the model was trained for are stretched",
        "N,N,..." },
    { "depths", 'd', 0, G_OPTION_ARG_STRING, &depths,
        "where the facts are, in percent (default 5,20,35,50,65,80,95)", "N,N,..." },
    { "policies", 'p', 0, G_OPTION_ARG_STRING, &n.policies,
        "which ways of reading, see lychee-bench fidelity --help (default all)", "NAME,NAME,..." },
    { "budget", 'b', 0, G_OPTION_ARG_INT, &budget, "tokens to read (default 1024)", "N" },
    { "seed", 's', 0, G_OPTION_ARG_INT, &seed, "another text (default 1)", "N" },
    { "texts", 0, 0, G_OPTION_ARG_INT, &n_texts,
        "so many texts of each length, with other facts in each (default 1)", "N" },
    { "prefill", 0, 0, G_OPTION_ARG_STRING, &prefill,
        "how the texts are read, dense or sparse (default dense)", "MODE" },
    { "packed", 0, 0, G_OPTION_ARG_NONE, &n.packed,
        "read and ask with packed positions, in place of the policies", NULL },
    { NULL },
  };

  bench_parse (&n.bench, entries,
      "Puts facts into a long text, reads it, and asks for each fact's last word: its rank among "
      "the words of all facts and others, and how much likelier it is than the best of these.",
      &argc, &argv);
  list = bench_parse_numbers ("--lengths", lengths ? lengths : "4096,8192");
  for (guint i = 0; i < list->len; i++)
    if (g_array_index (list, guint, i) < 8 * QUESTION_TOKENS)
      bench_fail ("--lengths: %d tokens or more", 8 * QUESTION_TOKENS);
  n.budget = MAX (budget, FIDELITY_SINKS + FIDELITY_WINDOW + 1);
  n.sparse = bench_parse_prefill (prefill);
  n.seed = MAX (seed, 1);
  n.n_texts = CLAMP (n_texts, 1, MAX_TEXTS);
  n.model_path = g_steal_pointer (&n.bench.model_path);
  choose_facts (&n, depths ? depths : "5,20,35,50,65,80,95");
  if (!n.bench.json)
    printf ("  tokens policy         first  mean rank    margin   ranks by depth\n");
  for (guint i = 0; i < list->len; i++)
    measure (&n, g_array_index (list, guint, i));
  g_free (n.model_path);
  g_free (n.policies);
  g_free (prefill);
  g_free (lengths);
  g_free (depths);
  return 0;
}
