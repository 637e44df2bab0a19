/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include "lychee-file.h"

#include <errno.h>
#include <fcntl.h>
#include <glib/gstdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

/* Of the first section, and of those behind it for as long as their sizes are multiples of it, as
 * those of pages are; of any other section. */
#define FIRST 4096u
#define ALIGNMENT 64u
#define BYTE_ORDER_MARK 0x01020304u
#define VERSION 2u
/* Bytes between two looks at the cancellable. */
#define CHECK_STEP ((gsize) 16 << 20)

/* As PNG's: whoever takes the file for text damages it. */
static const guint8 magic[8] = { 0x8c, 'L', 'Y', 'C', '\r', '\n', 0x1a, '\n' };

/* The formatter would take the name for an expression. */
/* clang-format off */
G_DEFINE_QUARK (lychee-file-error-quark, lychee_file_error)
/* clang-format on */

typedef struct {
  guint8 magic[8];
  guint32 byte_order;
  guint32 version;
  guint64 size;
  guint64 table;
  guint32 n_sections;
  guint32 table_crc;
  guint32 reserved;
  guint32 crc; /* of what is before it */
} Header;

typedef struct {
  guint32 kind, number;
  guint64 offset, size;
  guint32 crc; /* with the zeros behind it */
  guint32 reserved;
} Section;

struct _LycheeFileWriter {
  char *path, *temporary;
  int fd;
  guint64 at;
  GArray *sections; /* of Section; the last one is being written */
};

struct _LycheeFile {
  gatomicrefcount refs;
  guint8 *data;
  gsize size;
  const Section *sections;
  guint n_sections;
};

static guint32
add_crc (guint32 crc, gconstpointer data, gsize size)
{
  const guint8 *p = data;

  while (size > 0) {
    uInt now = MIN (size, G_MAXINT32);

    crc = crc32 (crc, p, now);
    p += now;
    size -= now;
  }
  return crc;
}

static void
set_errno_error (GError **error, LycheeFileError code, const char *what, const char *path)
{
  g_set_error (error, LYCHEE_FILE_ERROR, code, "%s “%s”: %s", what, path, g_strerror (errno));
}

/* Writing */

LycheeFileWriter *
lychee_file_writer_new (const char *path, GError **error)
{
  LycheeFileWriter *w = g_new0 (LycheeFileWriter, 1);

  w->path = g_strdup (path);
  w->temporary = g_strconcat (path, ".XXXXXX", NULL);
  w->fd = g_mkstemp_full (w->temporary, O_RDWR | O_CLOEXEC, 0666);
  w->sections = g_array_new (FALSE, FALSE, sizeof (Section));
  w->at = FIRST; /* the header comes last */
  if (w->fd >= 0 && lseek (w->fd, w->at, SEEK_SET) >= 0)
    return w;
  set_errno_error (error, LYCHEE_FILE_ERROR_WRITE, "Cannot write", path);
  lychee_file_writer_free (w);
  return NULL;
}

void
lychee_file_writer_free (LycheeFileWriter *w)
{
  if (w->fd >= 0) {
    close (w->fd);
    g_unlink (w->temporary);
  }
  g_array_unref (w->sections);
  g_free (w->path);
  g_free (w->temporary);
  g_free (w);
}

static gboolean
write_all (LycheeFileWriter *w, gconstpointer data, gsize size, GError **error)
{
  const guint8 *p = data;

  while (size > 0) {
    gssize n = write (w->fd, p, size);

    if (n < 0 && errno == EINTR)
      continue;
    if (n < 0) {
      set_errno_error (error, LYCHEE_FILE_ERROR_WRITE, "Cannot write", w->path);
      return FALSE;
    }
    p += n;
    size -= n;
    w->at += n;
  }
  return TRUE;
}

void
lychee_file_writer_begin (LycheeFileWriter *w, guint32 kind, guint32 number)
{
  Section section = { .kind = kind, .number = number, .offset = w->at };

  g_array_append_val (w->sections, section);
}

gboolean
lychee_file_writer_write (LycheeFileWriter *w, gconstpointer data, gsize size, GError **error)
{
  Section *section = &g_array_index (w->sections, Section, w->sections->len - 1);

  section->crc = add_crc (section->crc, data, size);
  section->size += size;
  return write_all (w, data, size, error);
}

gboolean
lychee_file_writer_end (LycheeFileWriter *w, GError **error)
{
  static const guint8 zeros[ALIGNMENT];
  Section *section = &g_array_index (w->sections, Section, w->sections->len - 1);
  gsize n = -w->at % ALIGNMENT;

  section->crc = add_crc (section->crc, zeros, n);
  return write_all (w, zeros, n, error);
}

/* Has the directory's new entry on the disk too; where that cannot be, it will be later. */
static void
sync_directory (const char *path)
{
  g_autofree char *directory = g_path_get_dirname (path);
  int fd = g_open (directory, O_RDONLY | O_CLOEXEC, 0);

  if (fd < 0)
    return;
  fsync (fd);
  close (fd);
}

gboolean
lychee_file_writer_finish (LycheeFileWriter *w, GError **error)
{
  guint8 first[FIRST] = { 0 };
  Header header = { .byte_order = BYTE_ORDER_MARK,
    .version = VERSION,
    .table = w->at,
    .n_sections = w->sections->len };
  gsize size = w->sections->len * sizeof (Section);
  gboolean ok;

  memcpy (header.magic, magic, sizeof magic);
  header.size = w->at + size;
  header.table_crc = add_crc (0, w->sections->data, size);
  header.crc = add_crc (0, &header, G_STRUCT_OFFSET (Header, crc));
  memcpy (first, &header, sizeof header);
  if (!write_all (w, w->sections->data, size, error))
    return FALSE;
  ok = lseek (w->fd, 0, SEEK_SET) == 0;
  if (ok && !write_all (w, first, sizeof first, error))
    return FALSE;
  ok = ok && fsync (w->fd) == 0 && g_rename (w->temporary, w->path) == 0;
  if (!ok) {
    set_errno_error (error, LYCHEE_FILE_ERROR_WRITE, "Cannot write", w->path);
    return FALSE;
  }
  close (w->fd);
  w->fd = -1;
  sync_directory (w->path);
  return TRUE;
}

/* Reading */

LycheeFile *
lychee_file_ref (LycheeFile *file)
{
  g_atomic_ref_count_inc (&file->refs);
  return file;
}

void
lychee_file_unref (LycheeFile *file)
{
  if (!g_atomic_ref_count_dec (&file->refs))
    return;
  if (file->data)
    munmap (file->data, file->size);
  g_free (file);
}

static gboolean
map (LycheeFile *file, const char *path, GError **error)
{
  int fd = g_open (path, O_RDONLY | O_CLOEXEC, 0);
  struct stat status;
  gboolean ok = fd >= 0 && fstat (fd, &status) == 0;

  if (ok && !S_ISREG (status.st_mode)) {
    errno = S_ISDIR (status.st_mode) ? EISDIR : EINVAL;
    ok = FALSE;
  }
  if (ok && status.st_size > 0) {
    gpointer data;

    file->size = status.st_size;
    data = mmap (NULL, file->size, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    ok = data != MAP_FAILED;
    file->data = ok ? data : NULL;
  }
  if (!ok)
    set_errno_error (error, LYCHEE_FILE_ERROR_READ, "Cannot read", path);
  if (fd >= 0)
    close (fd);
  return ok;
}

/* What is wrong with the header and the table, or NULL. */
static const char *
check_header (LycheeFile *file, const Header *header)
{
  if (header->crc != add_crc (0, header, G_STRUCT_OFFSET (Header, crc)))
    return "its beginning was altered";
  if (header->size != file->size)
    return header->size > file->size ? "its end is missing" : "something was added to it";
  for (gsize i = sizeof *header; i < FIRST; i++)
    if (file->data[i] != 0)
      return "its beginning was altered";
  if (header->table < FIRST || header->table % ALIGNMENT != 0 || header->table > file->size ||
      file->size - header->table != header->n_sections * (guint64) sizeof (Section))
    return "its table of contents does not fit";
  file->sections = (const Section *) (gpointer) (file->data + header->table);
  file->n_sections = header->n_sections;
  if (header->table_crc != add_crc (0, file->sections, file->size - header->table))
    return "its table of contents was altered";
  return NULL;
}

/* Sections lie one behind the other, so that no byte is without a checksum. */
static const char *
check_sections (LycheeFile *file, guint64 end, GCancellable *cancellable, GError **error)
{
  guint64 at = FIRST;

  for (guint i = 0; i < file->n_sections; i++) {
    const Section *s = &file->sections[i];
    guint64 next = i + 1 < file->n_sections ? s[1].offset : end, padded;
    guint32 crc = 0;

    if (s->offset != at || next < at || next > end || s->size > next - at)
      return "its table of contents does not fit";
    padded = next - at;
    if (padded != (s->size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT)
      return "its table of contents does not fit";
    for (guint64 done = 0; done < padded; done += CHECK_STEP) {
      if (g_cancellable_set_error_if_cancelled (cancellable, error))
        return "";
      crc = add_crc (crc, file->data + at + done, MIN (padded - done, CHECK_STEP));
    }
    if (crc != s->crc)
      return "it was altered";
    at = next;
  }
  return at == end ? NULL : "its table of contents does not fit";
}

LycheeFile *
lychee_file_open (const char *path, GCancellable *cancellable, GError **error)
{
  g_autoptr (LycheeFile) file = g_new0 (LycheeFile, 1);
  GError *cancelled = NULL;
  const char *wrong = NULL;
  const Header *header;

  g_atomic_ref_count_init (&file->refs);
  if (!map (file, path, error))
    return NULL;
  header = (const Header *) (gpointer) file->data;
  if (file->size < FIRST || memcmp (header->magic, magic, sizeof magic) != 0) {
    wrong = file->size > 0 && file->size < FIRST &&
                    memcmp (file->data, magic, MIN (file->size, sizeof magic)) == 0
                ? "its end is missing"
                : "it is no saved session";
  } else if (header->byte_order != BYTE_ORDER_MARK || header->version != VERSION) {
    if (header->crc == add_crc (0, header, G_STRUCT_OFFSET (Header, crc)) ||
        header->byte_order == GUINT32_SWAP_LE_BE (BYTE_ORDER_MARK)) {
      g_set_error (error, LYCHEE_FILE_ERROR, LYCHEE_FILE_ERROR_VERSION, "“%s” was saved %s", path,
          header->byte_order != BYTE_ORDER_MARK ? "on a machine with another byte order"
                                                : "by another version of Lychee");
      return NULL;
    }
    wrong = "its beginning was altered";
  } else {
    wrong = check_header (file, header);
    if (!wrong)
      wrong = check_sections (file, header->table, cancellable, &cancelled);
  }
  if (cancelled) {
    g_propagate_error (error, cancelled);
    return NULL;
  }
  if (wrong) {
    g_set_error (error, LYCHEE_FILE_ERROR, LYCHEE_FILE_ERROR_DAMAGED, "“%s” cannot be used: %s",
        path, wrong);
    return NULL;
  }
  return g_steal_pointer (&file);
}

gpointer
lychee_file_get (LycheeFile *file, guint32 kind, guint32 number, gsize *size)
{
  for (guint i = 0; i < file->n_sections; i++)
    if (file->sections[i].kind == kind && file->sections[i].number == number) {
      *size = file->sections[i].size;
      return file->data + file->sections[i].offset;
    }
  return NULL;
}
