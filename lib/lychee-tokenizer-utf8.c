/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "lychee-tokenizer-utf8.h"

/* Begins a character with @byte; the ranges are table 3-7 of the Unicode Standard. */
static guint
begin (LycheeUtf8 *utf8, guint8 byte, LycheeUtf8Char *out)
{
  utf8->low = 0x80;
  utf8->high = 0xbf;
  utf8->n_seen = 1;
  if (byte >= 0xc2 && byte <= 0xdf) {
    utf8->n_left = 1;
    utf8->c = byte & 0x1f;
  } else if (byte >= 0xe0 && byte <= 0xef) {
    utf8->n_left = 2;
    utf8->c = byte & 0x0f;
    if (byte == 0xe0)
      utf8->low = 0xa0;
    else if (byte == 0xed)
      utf8->high = 0x9f;
  } else if (byte >= 0xf0 && byte <= 0xf4) {
    utf8->n_left = 3;
    utf8->c = byte & 0x07;
    if (byte == 0xf0)
      utf8->low = 0x90;
    else if (byte == 0xf4)
      utf8->high = 0x8f;
  } else {
    utf8->n_seen = 0;
    if (byte < 0x80)
      *out = (LycheeUtf8Char){ byte, 1, FALSE };
    else
      *out = (LycheeUtf8Char){ LYCHEE_UTF8_REPLACEMENT, 1, TRUE };
    return 1;
  }
  return 0;
}

guint
lychee_utf8_push (LycheeUtf8 *utf8, guint8 byte, LycheeUtf8Char out[2])
{
  if (utf8->n_seen == 0)
    return begin (utf8, byte, out);
  if (byte < utf8->low || byte > utf8->high) {
    out[0] = (LycheeUtf8Char){ LYCHEE_UTF8_REPLACEMENT, utf8->n_seen, TRUE };
    return 1 + begin (utf8, byte, out + 1);
  }
  utf8->low = 0x80;
  utf8->high = 0xbf;
  utf8->c = utf8->c << 6 | (byte & 0x3f);
  utf8->n_seen++;
  if (--utf8->n_left > 0)
    return 0;
  out[0] = (LycheeUtf8Char){ utf8->c, utf8->n_seen, FALSE };
  utf8->n_seen = 0;
  return 1;
}

guint
lychee_utf8_finish (LycheeUtf8 *utf8, LycheeUtf8Char out[1])
{
  if (utf8->n_seen == 0)
    return 0;
  out[0] = (LycheeUtf8Char){ LYCHEE_UTF8_REPLACEMENT, utf8->n_seen, TRUE };
  utf8->n_seen = 0;
  return 1;
}
