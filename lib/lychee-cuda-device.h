/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <gio/gio.h>

#include "lychee-cuda.h"

G_BEGIN_DECLS

/* The library's side of a CUDA device: the module that is loaded for it, its memory for pages and
 * index records, and errors. One for each device of the process, shared, and never unloaded while
 * anyone has it. Any thread. */
typedef struct {
  /*< private >*/
  guint refs; /* under the lock of all */
  guint ordinal;
  const LycheeCudaApi *api;
  LycheeCudaDevice *device;
  GMutex lock;             /* of what follows */
  GHashTable *spare_pages; /* size -> GPtrArray of memory that may be used again */
  GHashTable *records;     /* LycheeNode -> Record */
  GPtrArray *arenas;       /* memory that records lie in */
  gsize arena_left;
  GPtrArray **spare_records; /* by size */
  GMutex peers_lock;         /* of the peers of pages */
} LycheeCuda;

/* (transfer full) (nullable). @built: (out): whether there is a module at all. */
LycheeCuda *lychee_cuda_open (guint ordinal, gboolean *built, GError **error);
LycheeCuda *lychee_cuda_ref (LycheeCuda *cuda);
void lychee_cuda_unref (LycheeCuda *cuda);

/* @from of the module as a GError; @doing: what could not be done. */
void lychee_cuda_set_error (GError **error, const LycheeCudaError *from, const char *doing);

/* Memory for a page; what is freed is kept for the next one of its size. */
gpointer lychee_cuda_alloc_page (LycheeCuda *cuda, gsize size, GError **error);
void lychee_cuda_free_page (LycheeCuda *cuda, gsize size, gpointer memory);

/* Memory for a record, in arenas. @size: of at most LYCHEE_CUDA_MAX_RECORD bytes. With the lock. */
#define LYCHEE_CUDA_MAX_RECORD (1u << 20)
gpointer lychee_cuda_alloc_record (LycheeCuda *cuda, gsize size, GError **error);
void lychee_cuda_free_record (LycheeCuda *cuda, gsize size, gpointer memory);

G_DEFINE_AUTOPTR_CLEANUP_FUNC (LycheeCuda, lychee_cuda_unref)

G_END_DECLS
