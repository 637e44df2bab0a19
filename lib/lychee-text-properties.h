/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "lychee-types.h"

G_BEGIN_DECLS

/* What Unicode text looks like at a place between two of its bytes. Private to the library. */

/* What a cut at a place would part, worst last. */
typedef enum {
  LYCHEE_TEXT_JOINT_NONE,
  LYCHEE_TEXT_JOINT_MARK,      /* a mark from the word that it follows */
  LYCHEE_TEXT_JOINT_CHARACTER, /* what is read as one character: base and marks, an emoji */
} LycheeTextJoint;

/* What is known of a place, see lychee_text_examine(). */
typedef struct {
  LycheeBoundary boundary; /* NONE, WORD, CLAUSE, SENTENCE or PARAGRAPH */
  LycheeTextJoint joint;   /* NONE unless boundary is NONE */
  gboolean after_space;    /* behind a space that the next word would better begin with */
} LycheeTextPlace;

/* A line or paragraph separator of any kind; a space or one of those (no-break spaces are none,
 * since they bind; ZERO WIDTH SPACE is one, since it parts). */
gboolean lychee_text_is_newline (gunichar c);
gboolean lychee_text_is_space (gunichar c);
/* Whether what follows @c decides nothing more about a place before @c: not so for spaces, and for
 * quotation marks that may open or close. */
gboolean lychee_text_is_decisive (gunichar c);

/* Of a script that puts no space between words; a mark that belongs to what is before it without a
 * space; one that belongs so to what is behind it. Quotation marks that may do either do neither.
 */
gboolean lychee_text_is_unspaced (gunichar c);
gboolean lychee_text_closes (gunichar c);
gboolean lychee_text_opens (gunichar c);

/* Examines the place before byte @position of @text, which is valid UTF-8 of @length bytes, with
 * @position between two characters; @next_place: the next position at which a boundary could lie
 * (the end of the next token). What is behind @length is taken to be the end of the text. */
LycheeTextPlace lychee_text_examine (
    const char *text, gsize length, gsize position, gsize next_place);

G_END_DECLS
