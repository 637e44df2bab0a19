/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "lychee-types.h"

G_BEGIN_DECLS

/* What goes between two pieces of a transcript (words, sentences, lines) that were given apart: "",
 * " " or "\n"; a static string. Neither piece has white space where they meet. */
LYCHEE_API const char *lychee_text_get_separator (
    const char *before, gsize before_length, const char *after, gsize after_length);

/* Whether @text begins by naming @speaker: "Ann: good morning". */
LYCHEE_API gboolean lychee_text_names_speaker (const char *text, gsize length, const char *speaker);

G_END_DECLS
