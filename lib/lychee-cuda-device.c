/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Loads the CUDA module, and looks after a device's memory. */

#define _GNU_SOURCE /* dladdr */
#include "lychee-cuda-device.h"

#include "lychee-enums.h"

#include <dlfcn.h>
#include <gmodule.h>

#define MODULE_NAME "liblychee-cuda.so"
#define ARENA_SIZE ((gsize) 4 << 20)
#define RECORD_STEP 256

static GMutex devices_lock;
static GHashTable *devices; /* ordinal -> LycheeCuda, not owned */

/* Where the module is: beside the library, where its private libraries are; in a build folder, or
 * for a test, where LYCHEE_CUDA_MODULE says. (transfer full) */
static char *
find_module (void)
{
  const char *variable = g_getenv ("LYCHEE_CUDA_MODULE");
  g_autofree char *folder = NULL;
  Dl_info info;

  if (variable && *variable)
    return g_strdup (variable);
  if (!dladdr ((gconstpointer) (gsize) lychee_cuda_open, &info) || !info.dli_fname)
    return g_strdup (MODULE_NAME);
  folder = g_path_get_dirname (info.dli_fname);
  return g_build_filename (folder, "lychee-1.0", MODULE_NAME, NULL);
}

static const LycheeCudaApi *
load (gboolean *built, GError **error)
{
  static const LycheeCudaApi *api; /* under devices_lock; the module stays, as CUDA wants it */
  g_autofree char *path = NULL;
  GModule *module;
  gpointer symbol;

  *built = TRUE;
  if (api)
    return api;
  path = find_module ();
  if (!g_file_test (path, G_FILE_TEST_EXISTS)) {
    *built = FALSE;
    g_set_error (error, LYCHEE_BACKEND_ERROR, LYCHEE_BACKEND_ERROR_UNAVAILABLE,
        "There is no CUDA module “%s”: build Lychee with -Dcuda=enabled, or set backend to auto or "
        "cpu",
        path);
    return NULL;
  }
  module = g_module_open (path, G_MODULE_BIND_LOCAL);
  if (!module) {
    g_set_error (error, LYCHEE_BACKEND_ERROR, LYCHEE_BACKEND_ERROR_UNAVAILABLE,
        "The CUDA module cannot be loaded: %s", g_module_error ());
    return NULL;
  }
  if (!g_module_symbol (module, LYCHEE_CUDA_SYMBOL, &symbol) ||
      ((LycheeCudaGetApi) symbol) ()->abi != LYCHEE_CUDA_ABI) {
    g_set_error (error, LYCHEE_BACKEND_ERROR, LYCHEE_BACKEND_ERROR_UNAVAILABLE,
        "“%s” is not the CUDA module of this version of Lychee", path);
    g_module_close (module);
    return NULL;
  }
  g_module_make_resident (module);
  api = ((LycheeCudaGetApi) symbol) ();
  return api;
}

void
lychee_cuda_set_error (GError **error, const LycheeCudaError *from, const char *doing)
{
  LycheeBackendError code = LYCHEE_BACKEND_ERROR_COMPUTE;

  switch (from->status) {
  case LYCHEE_CUDA_UNAVAILABLE:
    code = LYCHEE_BACKEND_ERROR_UNAVAILABLE;
    break;
  case LYCHEE_CUDA_UNSUPPORTED:
    code = LYCHEE_BACKEND_ERROR_UNSUPPORTED;
    break;
  case LYCHEE_CUDA_NO_MEMORY:
    code = LYCHEE_BACKEND_ERROR_NO_MEMORY;
    break;
  case LYCHEE_CUDA_OK:
  case LYCHEE_CUDA_FAILED:
    break;
  }
  g_set_error (error, LYCHEE_BACKEND_ERROR, code, "%s: %s", doing, from->message);
}

LycheeCuda *
lychee_cuda_open (guint ordinal, gboolean *built, GError **error)
{
  LycheeCudaError local = { 0 };
  LycheeCudaDevice *device;
  const LycheeCudaApi *api;
  LycheeCuda *cuda;

  g_mutex_lock (&devices_lock);
  api = load (built, error);
  if (!devices)
    devices = g_hash_table_new (NULL, NULL);
  cuda = g_hash_table_lookup (devices, GUINT_TO_POINTER (ordinal));
  if (cuda) {
    cuda->refs++;
  } else if (api && api->open (ordinal, &device, &local) != 0) {
    lychee_cuda_set_error (error, &local, "No CUDA device can be used");
  } else if (api) {
    cuda = g_new0 (LycheeCuda, 1);
    cuda->refs = 1;
    cuda->ordinal = ordinal;
    cuda->api = api;
    cuda->device = device;
    g_mutex_init (&cuda->lock);
    g_mutex_init (&cuda->peers_lock);
    cuda->spare_pages = g_hash_table_new_full (
        g_int64_hash, g_int64_equal, g_free, (GDestroyNotify) g_ptr_array_unref);
    cuda->records = g_hash_table_new (NULL, NULL);
    cuda->arenas = g_ptr_array_new ();
    cuda->spare_records = g_new0 (GPtrArray *, LYCHEE_CUDA_MAX_RECORD / RECORD_STEP + 1);
    g_hash_table_insert (devices, GUINT_TO_POINTER (ordinal), cuda);
  }
  if (g_hash_table_size (devices) == 0)
    g_clear_pointer (&devices, g_hash_table_unref);
  g_mutex_unlock (&devices_lock);
  return cuda;
}

LycheeCuda *
lychee_cuda_ref (LycheeCuda *cuda)
{
  g_mutex_lock (&devices_lock);
  cuda->refs++;
  g_mutex_unlock (&devices_lock);
  return cuda;
}

/* With the lock. */
static gsize
drop_spare_pages (LycheeCuda *cuda)
{
  GHashTableIter iter;
  gpointer pages;
  gsize n = 0;

  g_hash_table_iter_init (&iter, cuda->spare_pages);
  while (g_hash_table_iter_next (&iter, NULL, &pages)) {
    GPtrArray *spare = pages;

    for (guint i = 0; i < spare->len; i++)
      cuda->api->free (cuda->device, spare->pdata[i]);
    n += spare->len;
    g_hash_table_iter_remove (&iter);
  }
  return n;
}

void
lychee_cuda_unref (LycheeCuda *cuda)
{
  gboolean last;

  g_mutex_lock (&devices_lock);
  last = --cuda->refs == 0;
  if (last) {
    g_hash_table_remove (devices, GUINT_TO_POINTER (cuda->ordinal));
    if (g_hash_table_size (devices) == 0)
      g_clear_pointer (&devices, g_hash_table_unref);
  }
  g_mutex_unlock (&devices_lock);
  if (!last)
    return;
  drop_spare_pages (cuda);
  g_hash_table_unref (cuda->spare_pages);
  for (guint i = 0; i < cuda->arenas->len; i++)
    cuda->api->free (cuda->device, cuda->arenas->pdata[i]);
  g_ptr_array_unref (cuda->arenas);
  for (guint i = 0; i <= LYCHEE_CUDA_MAX_RECORD / RECORD_STEP; i++)
    g_clear_pointer (&cuda->spare_records[i], g_ptr_array_unref);
  g_free (cuda->spare_records);
  g_hash_table_unref (cuda->records);
  cuda->api->close (cuda->device);
  g_mutex_clear (&cuda->lock);
  g_mutex_clear (&cuda->peers_lock);
  g_free (cuda);
}

/* With the lock: asks once more when spare pages were given back. */
static gpointer
alloc (LycheeCuda *cuda, gsize size, const char *what, GError **error)
{
  LycheeCudaError local = { 0 };
  gpointer memory;

  if (cuda->api->alloc (cuda->device, size, &memory, &local) == 0 ||
      (drop_spare_pages (cuda) > 0 && cuda->api->alloc (cuda->device, size, &memory, &local) == 0))
    return memory;
  lychee_cuda_set_error (error, &local, what);
  return NULL;
}

gpointer
lychee_cuda_alloc_page (LycheeCuda *cuda, gsize size, GError **error)
{
  gint64 key = size;
  GPtrArray *spare;
  gpointer memory;

  g_mutex_lock (&cuda->lock);
  spare = g_hash_table_lookup (cuda->spare_pages, &key);
  if (spare && spare->len > 0)
    memory = g_ptr_array_steal_index_fast (spare, spare->len - 1);
  else
    memory = alloc (cuda, size,
        "The KV cache does not fit on the CUDA device: read less, or set backend to cpu", error);
  g_mutex_unlock (&cuda->lock);
  return memory;
}

void
lychee_cuda_free_page (LycheeCuda *cuda, gsize size, gpointer memory)
{
  gint64 key = size;
  GPtrArray *spare;

  g_mutex_lock (&cuda->lock);
  spare = g_hash_table_lookup (cuda->spare_pages, &key);
  if (!spare) {
    spare = g_ptr_array_new ();
    g_hash_table_insert (cuda->spare_pages, g_memdup2 (&key, sizeof key), spare);
  }
  g_ptr_array_add (spare, memory);
  g_mutex_unlock (&cuda->lock);
}

gpointer
lychee_cuda_alloc_record (LycheeCuda *cuda, gsize size, GError **error)
{
  gsize step = (size + RECORD_STEP - 1) / RECORD_STEP;
  GPtrArray *spare = cuda->spare_records[step];
  guint8 *arena;

  if (spare && spare->len > 0)
    return g_ptr_array_steal_index_fast (spare, spare->len - 1);
  if (step * RECORD_STEP > cuda->arena_left) {
    arena = alloc (cuda, ARENA_SIZE,
        "The index does not fit on the CUDA device: read less, or set backend to cpu", error);
    if (!arena)
      return NULL;
    g_ptr_array_add (cuda->arenas, arena);
    cuda->arena_left = ARENA_SIZE;
  }
  arena = cuda->arenas->pdata[cuda->arenas->len - 1];
  cuda->arena_left -= step * RECORD_STEP;
  return arena + cuda->arena_left;
}

void
lychee_cuda_free_record (LycheeCuda *cuda, gsize size, gpointer memory)
{
  gsize step = (size + RECORD_STEP - 1) / RECORD_STEP;

  if (!cuda->spare_records[step])
    cuda->spare_records[step] = g_ptr_array_new ();
  g_ptr_array_add (cuda->spare_records[step], memory);
}
