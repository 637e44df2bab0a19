/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <glib.h>

G_BEGIN_DECLS

/* A stream of bytes into characters, one byte at a time. What is not UTF-8 becomes U+FFFD: one for
 * each maximal part of a character that was broken off and one for each other stray byte (the
 * substitution that the Unicode Standard recommends, chapter 3.9). */

#define LYCHEE_UTF8_REPLACEMENT 0xfffd

typedef struct {
  gunichar c;
  guint8 n_source; /* bytes of input that it stands for */
  guint8 broken;   /* those bytes were not UTF-8 */
} LycheeUtf8Char;

/* All zero is a fresh one. */
typedef struct {
  gunichar c;
  guint8 n_seen; /* bytes of the character that is being read */
  guint8 n_left; /* continuation bytes it still needs */
  guint8 low;    /* what the next byte may be */
  guint8 high;
} LycheeUtf8;

/* Takes one byte; gives the characters (0 to 2) that are complete with it. */
guint lychee_utf8_push (LycheeUtf8 *utf8, guint8 byte, LycheeUtf8Char out[2]);
/* The input ends: gives the broken character (0 or 1) that was held back. Fresh afterwards. */
guint lychee_utf8_finish (LycheeUtf8 *utf8, LycheeUtf8Char out[1]);

/* Bytes of @c as UTF-8. */
static inline guint
lychee_utf8_length (gunichar c)
{
  return c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
}

static inline gboolean
lychee_utf8_is_continuation (guint8 byte)
{
  return (byte & 0xc0) == 0x80;
}

G_END_DECLS
