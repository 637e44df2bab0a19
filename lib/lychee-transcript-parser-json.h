/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <glib.h>

G_BEGIN_DECLS

/* JSON as a stream: text in any pieces gives events, and nothing but the value that is being read
 * is kept. What is broken is read as what it was meant to be; several values may follow each other,
 * as in JSON lines. */

typedef struct {
  /* @key: (nullable): of the value, in an object. Returns whether what is in it is of interest. */
  gboolean (*begin) (gpointer user_data, const char *key, gboolean array);
  void (*end) (gpointer user_data);
  /* Whether the string that comes is of interest: it is kept, else passed over. */
  gboolean (*wants_string) (gpointer user_data, const char *key);
  void (*string) (gpointer user_data, const char *key, char *text, gsize length);
  /* A number, true, false or null, as written. */
  void (*literal) (gpointer user_data, const char *key, const char *text);
} LycheeJsonEvents;

/* Where JSON is broken: @what is static and about that place, or about what is there. */
typedef struct {
  const char *what;
  guint64 line;
  guint64 column;
} LycheeJsonFault;

typedef struct _LycheeJsonScanner LycheeJsonScanner;

LycheeJsonScanner *lychee_json_scanner_new (const LycheeJsonEvents *events, gpointer user_data);
void lychee_json_scanner_free (LycheeJsonScanner *scanner);
void lychee_json_scanner_push (LycheeJsonScanner *scanner, const char *text, gsize length);
/* Ends what is open. */
void lychee_json_scanner_finish (LycheeJsonScanner *scanner);
/* Escapes that stand for no character, read as U+FFFD. */
guint64 lychee_json_scanner_get_n_replaced (LycheeJsonScanner *scanner);
/* (nullable): the first; what only few write, such as comments and keys without quotes, is none. */
const LycheeJsonFault *lychee_json_scanner_get_fault (LycheeJsonScanner *scanner);

G_END_DECLS
