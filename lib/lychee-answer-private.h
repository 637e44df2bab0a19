/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "lychee-answer.h"

G_BEGIN_DECLS

struct _LycheeAnswer {
  GObject parent_instance;

  /* Set before anyone else has it, never again. */
  char *text;
  LycheeFinish finish;
  gboolean truncated;
  GPtrArray *evidence; /* of LycheeEvidence */
  guint transcript_tokens;
  guint prompt_tokens;
  guint answer_tokens;
  double seconds_to_first;
  double seconds;
};

/* That @chunk, which begins at @position, has a share of @weight. */
LycheeEvidence *lychee_evidence_new (LycheeChunk *chunk, guint64 position, double weight);
/* A copy of @quote, with its texts. (transfer full) */
LycheeEvidence *lychee_evidence_new_quote (const LycheeEvidence *quote);

G_END_DECLS
