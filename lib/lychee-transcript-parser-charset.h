/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "lychee-tokenizer-utf8.h"
#include "lychee-transcript-parser-private.h"

G_BEGIN_DECLS

/* Which encoding bytes are of. Names that are handed out are static. */

/* A name that stays, (nullable) NULL where @encoding is NULL, empty or no encoding. */
const char *lychee_charset_intern (const char *encoding);
/* Whether ASCII is the same in it, in any place: not so for UTF-16, ISO-2022 and the like. */
gboolean lychee_charset_extends_ascii (const char *encoding);
/* Bytes that every character has a multiple of. */
guint lychee_charset_get_unit (const char *encoding);

/* (nullable): by the byte order mark at the beginning; @mark: its length. */
const char *lychee_charset_of_mark (const guint8 *data, gsize length, guint *mark);
/* Whether bytes may follow that make the beginning a byte order mark, a longer one, or UTF-16. */
gboolean lychee_charset_mark_may_follow (const guint8 *data, gsize length);
/* (nullable): UTF-16 of a byte order by where the zeros are. */
const char *lychee_charset_of_zeros (const guint8 *data, gsize length);

/* Whether bytes without a byte order mark are no text in any encoding, as programs, sound, pictures
 * and compressed files are not. */
gboolean lychee_charset_is_binary (const guint8 *data, gsize length);
/* (nullable): what kind of document begins with these bytes, where it is none of plain text. */
const char *lychee_charset_document (const guint8 *data, gsize length);

/* Counts on over bytes in any pieces. */
void lychee_charset_count (
    LycheeUtf8 *utf8, const guint8 *data, gsize length, LycheeUtf8Counts *counts);
gboolean lychee_charset_is_utf8 (const LycheeUtf8Counts *counts);

/* The encoding of bytes that are not UTF-8: what was asked for, that of the locale, what the bytes
 * look like, windows-1252. @requested: (nullable). */
const char *lychee_charset_choose (
    const char *requested, const guint8 *data, gsize length, gboolean *guessed);

G_END_DECLS
