/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <glib.h>

G_BEGIN_DECLS

/* Whether an answer says the same again and again. Private to the library; not thread safe. */
typedef struct _LycheeRepeats LycheeRepeats;

/* Up to so many tokens that are said three times over, one behind the other, are a circle, when
 * they are repeated for LYCHEE_REPEATS_CIRCLE tokens at least. */
#define LYCHEE_REPEATS_MAX_PERIOD 128
#define LYCHEE_REPEATS_CIRCLE 32
/* So many tokens with letters in them, and what stands between them, may be said twice, wherever
 * that is. A list, a table, lines of JSON have the same in each item too, but little of it in
 * words; where characters are tokens this is a sentence. */
#define LYCHEE_REPEATS_WORDS 20

LycheeRepeats *lychee_repeats_new (void);
void lychee_repeats_free (LycheeRepeats *repeats);

/* Notes the answer's next token, and what it adds to the text: nothing where that is not a whole
 * character yet. Whether the answer goes in circles, or has said its end twice before. Takes time
 * in proportion to the tokens noted. */
gboolean lychee_repeats_note (LycheeRepeats *repeats, gint32 id, const char *said);

G_DEFINE_AUTOPTR_CLEANUP_FUNC (LycheeRepeats, lychee_repeats_free)

G_END_DECLS
