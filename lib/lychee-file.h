/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <gio/gio.h>

G_BEGIN_DECLS

/* A file of sections, each with a checksum: how sessions are saved. Private to the library.
 *
 *   header   magic, byte order, version, size of the file, where the table is; its own checksum
 *   sections each at a multiple of 64 bytes, filled up with zeros to the next one; the first one at
 *            byte 4,096
 *   table    kind, number, offset, size and CRC-32 of each section
 *
 * Numbers are in the byte order of the machine that wrote the file; another's refuses it. */

#define LYCHEE_FILE_ERROR (lychee_file_error_quark ())

typedef enum {
  LYCHEE_FILE_ERROR_WRITE,   /* the file cannot be written */
  LYCHEE_FILE_ERROR_READ,    /* it cannot be opened or read */
  LYCHEE_FILE_ERROR_DAMAGED, /* it is none of ours, or was cut short or altered */
  LYCHEE_FILE_ERROR_VERSION, /* another version of this library, or another kind of machine, wrote
                                it */
} LycheeFileError;

GQuark lychee_file_error_quark (void);

/* Writes to a temporary file beside @path, which takes its place when all is on the disk; freed
 * before that, it leaves nothing behind. */
typedef struct _LycheeFileWriter LycheeFileWriter;
LycheeFileWriter *lychee_file_writer_new (const char *path, GError **error);
void lychee_file_writer_free (LycheeFileWriter *writer);
void lychee_file_writer_begin (LycheeFileWriter *writer, guint32 kind, guint32 number);
gboolean lychee_file_writer_write (
    LycheeFileWriter *writer, gconstpointer data, gsize size, GError **error);
gboolean lychee_file_writer_end (LycheeFileWriter *writer, GError **error);
gboolean lychee_file_writer_finish (LycheeFileWriter *writer, GError **error);

/* A file in memory: mapped, so that it is read when it is needed and shared with others that have
 * it open; what is written to it is private and never gets into the file. */
typedef struct _LycheeFile LycheeFile;
/* Checks all checksums. */
LycheeFile *lychee_file_open (const char *path, GCancellable *cancellable, GError **error);
LycheeFile *lychee_file_ref (LycheeFile *file);
void lychee_file_unref (LycheeFile *file);
/* (nullable): NULL where there is no such section */
gpointer lychee_file_get (LycheeFile *file, guint32 kind, guint32 number, gsize *size);

G_DEFINE_AUTOPTR_CLEANUP_FUNC (LycheeFileWriter, lychee_file_writer_free)
G_DEFINE_AUTOPTR_CLEANUP_FUNC (LycheeFile, lychee_file_unref)

G_END_DECLS
