/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "lychee-transcript-parser-json-words.h"

G_BEGIN_DECLS

typedef enum {
  LYCHEE_TABLE_OTHER,
  LYCHEE_TABLE_TEXT,
  LYCHEE_TABLE_WORD,
  LYCHEE_TABLE_SPEAKER,
  LYCHEE_TABLE_START, /* from here on: times */
  LYCHEE_TABLE_END,
  LYCHEE_TABLE_DURATION,
  LYCHEE_TABLE_FROM,
  LYCHEE_TABLE_TO,
  LYCHEE_TABLE_N_ROLES
} LycheeTableRole;

/* What the column with the title @title is. @unit: of times, where the title tells; @weak: whether
 * tables of other things have such a column, too. */
LycheeTableRole lychee_table_role_of (const char *title, LycheeJsonUnit *unit, gboolean *weak);

G_END_DECLS
