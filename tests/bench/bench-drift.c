/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* lychee-bench fidelity --drift: whether what is kept up to date token by token stays as good as
 * what is built afresh. */

#include "fidelity.h"

#include <stdio.h>

static void
print_row (Fidelity *f, const Policy *policy, guint position, guint budget,
    const FidelityScore *streamed, const FidelityScore *built)
{
  double ratio = built ? streamed->error / built->error : 1;

  if (f->bench.json) {
    printf (
        "{\"position\": %u, \"policy\": \"%s\", \"budget\": %u, \"mass\": %.6f, \"error\": %.6f, ",
        position, policy->name, budget, streamed->mass, streamed->error);
    if (built)
      printf ("\"error_afresh\": %.6f, \"ratio\": %.4f, ", built->error, ratio);
    printf ("\"nodes_scored\": %.1f, \"queries\": %u, \"model\": \"%s\"}\n", streamed->nodes_scored,
        f->n_queries, lychee_model_get_id (f->model));
  } else {
    printf ("%8u  %-14s %7u %7.4f %8.4f", position, policy->name, budget, streamed->mass,
        streamed->error);
    if (built)
      printf (" %8.4f %7.3f\n", built->error, ratio);
    else
      printf (" %8s %7s\n", "-", "-");
  }
  fflush (stdout);
}

/* Queries at the cache's end, for the @n streamed banks and others built for the occasion. */
static void
measure_point (Fidelity *f, GPtrArray *streamed)
{
  guint position = lychee_cache_get_length (f->cache), n = streamed->len;
  g_autoptr (GPtrArray) banks = g_ptr_array_new ();
  g_autoptr (GPtrArray) built = g_ptr_array_new_with_free_func ((GDestroyNotify) policy_bank_free);
  g_autofree guint *place = g_new0 (guint, n); /* of the bank built beside it; 0: none */
  FidelityMeasure measure;

  for (guint b = 0; b < n; b++)
    g_ptr_array_add (banks, streamed->pdata[b]);
  for (guint b = 0; b < n; b++) {
    const Policy *policy = ((PolicyBank *) streamed->pdata[b])->policy;

    if (!policy->build)
      continue;
    place[b] = banks->len;
    g_ptr_array_add (built, fidelity_new_bank (f, policy, TRUE));
    policy_bank_update (built->pdata[built->len - 1], f->cache, policy_state_build);
    g_ptr_array_add (banks, built->pdata[built->len - 1]);
  }
  fidelity_measure_init (&measure, f, (PolicyBank *const *) banks->pdata, banks->len);
  fidelity_decode (f, f->cache, f->n_queries, fidelity_measure, &measure, NULL, NULL);
  for (guint b = 0; b < n; b++) {
    const Policy *policy = ((PolicyBank *) streamed->pdata[b])->policy;

    for (guint k = 0; k < fidelity_get_n_budgets (f, policy); k++) {
      FidelityScore one = fidelity_measure_get (&measure, b, k), other = { 0 };

      if (place[b] > 0)
        other = fidelity_measure_get (&measure, place[b], k);
      print_row (f, policy, position, policy->whole ? position : f->budgets[k], &one,
          place[b] > 0 ? &other : NULL);
    }
  }
  fidelity_measure_clear (&measure);
}

void
fidelity_drift (Fidelity *f, guint n_points)
{
  g_autoptr (GPtrArray) banks = g_ptr_array_new_with_free_func ((GDestroyNotify) policy_bank_free);

  if (!f->bench.json) {
    printf ("%s reads “%s”; error as it is after streaming, and of the same built afresh at that "
            "point\n",
        lychee_model_get_name (f->model), f->text_path);
    if (f->n_tokens > lychee_model_get_n_context (f->model))
      printf ("The model was trained for %u positions, and is stretched\n",
          lychee_model_get_n_context (f->model));
    printf ("\n%8s  %-14s %7s %7s %8s %8s %7s\n", "position", "policy", "budget", "mass", "error",
        "afresh", "ratio");
  }
  for (guint b = 0; b < f->policies->len; b++)
    g_ptr_array_add (banks, fidelity_new_bank (f, f->policies->pdata[b], TRUE));
  for (guint point = 0; point < n_points; point++) {
    guint end = (guint) ((guint64) f->n_tokens * (point + 1) / n_points);
    PolicyStateFunc update = point == 0 ? policy_state_prefill : policy_state_feed;

    fidelity_read (f, end);
    for (guint b = 0; b < banks->len; b++)
      policy_bank_update (banks->pdata[b], f->cache, update);
    measure_point (f, banks);
  }
}
