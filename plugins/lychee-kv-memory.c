/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "lychee-kv-memory.h"

GST_DEBUG_CATEGORY_STATIC (lychee_kv_memory_debug);
#define GST_CAT_DEFAULT lychee_kv_memory_debug

/* A view: which tokens of which cache. The rows lie in pages, layer by layer and head by head, so
 * there is no one run of bytes to point at; mapping for reading makes one, which lives until the
 * last unmap. What is in a cache never changes, so a view is read-only; a copy of it is plain
 * system memory, which may be written. */
typedef struct {
  GstMemory memory;
  /* of the whole view only; a shared part reads its parent's */
  LycheeCache *cache;
  guint first;
  guint n;
  GMutex lock;
  guint n_maps;  /* under lock */
  guint16 *rows; /* under lock: NULL while n_maps is 0 */
} LycheeKVMemory;

struct _LycheeKVAllocator {
  GstAllocator parent;

  GMutex lock;          /* of what follows */
  LycheeHolder *holder; /* (nullable): views are of the host's memory alone */
  char *device;         /* (nullable): that it has been on */
  guint64 held;
};

enum { PROP_0, PROP_DEVICE, PROP_HELD, N_PROPS };

static GParamSpec *props[N_PROPS];

G_DEFINE_TYPE_WITH_CODE (LycheeKVAllocator, lychee_kv_allocator, GST_TYPE_ALLOCATOR,
    GST_DEBUG_CATEGORY_INIT (lychee_kv_memory_debug, "lycheekvmemory", 0, "Views into a KV cache"))

static LycheeKVMemory *
whole (GstMemory *memory)
{
  return (LycheeKVMemory *) (memory->parent != NULL ? memory->parent : memory);
}

static gpointer
kv_map (GstMemory *memory, gsize maxsize, GstMapFlags flags)
{
  LycheeKVMemory *self = whole (memory);
  gpointer data;

  /* Shared parts carry the read-only flag too, but a lock flag can be asked for without it. */
  if ((flags & GST_MAP_WRITE) != 0) {
    GST_DEBUG ("a view into a KV cache cannot be mapped for writing");
    return NULL;
  }

  g_mutex_lock (&self->lock);
  if (self->rows == NULL) {
    /* A cache that was cut back does not hold these rows any more. */
    if (lychee_cache_get_length (self->cache) < (guint64) self->first + self->n) {
      GST_WARNING (
          "tokens %u to %u are not in the cache any more", self->first, self->first + self->n);
      g_mutex_unlock (&self->lock);
      return NULL;
    }
    self->rows = g_try_malloc (self->memory.maxsize);
    if (self->rows == NULL) {
      GST_ERROR ("no memory for a copy of %" G_GSIZE_FORMAT " bytes", self->memory.maxsize);
      g_mutex_unlock (&self->lock);
      return NULL;
    }
    lychee_cache_read (self->cache, self->first, self->n, self->rows);
  }
  self->n_maps++;
  data = self->rows;
  g_mutex_unlock (&self->lock);
  return data;
}

static void
kv_unmap (GstMemory *memory)
{
  LycheeKVMemory *self = whole (memory);
  guint16 *rows = NULL;

  g_mutex_lock (&self->lock);
  if (--self->n_maps == 0)
    rows = g_steal_pointer (&self->rows);
  g_mutex_unlock (&self->lock);
  g_free (rows);
}

static GstMemory *
kv_share (GstMemory *memory, gssize offset, gssize size)
{
  LycheeKVMemory *self = g_new0 (LycheeKVMemory, 1);

  if (size == -1)
    size = memory->size - offset;
  g_mutex_init (&self->lock);
  gst_memory_init (&self->memory,
      GST_MINI_OBJECT_FLAGS (memory) | GST_MINI_OBJECT_FLAG_LOCK_READONLY, memory->allocator,
      &whole (memory)->memory, memory->maxsize, memory->align, memory->offset + offset, size);
  return &self->memory;
}

static gboolean
kv_is_span (GstMemory *a, GstMemory *b, gsize *offset)
{
  /* Only parts of one view follow each other: two views are two layer-major arrays. */
  if (a->parent == NULL || a->parent != b->parent || a->offset + a->size != b->offset)
    return FALSE;
  if (offset != NULL)
    *offset = a->offset - a->parent->offset;
  return TRUE;
}

static GstMemory *
kv_alloc (GstAllocator *allocator, gsize size, GstAllocationParams *params)
{
  g_warning ("The LycheeKV allocator makes views only: use lychee_kv_memory_new ()");
  return NULL;
}

static void
kv_free (GstAllocator *allocator, GstMemory *memory)
{
  LycheeKVMemory *self = (LycheeKVMemory *) memory;

  g_warn_if_fail (self->n_maps == 0);
  g_clear_object (&self->cache);
  g_mutex_clear (&self->lock);
  g_free (self);
}

static void
lychee_kv_allocator_get_property (GObject *object, guint id, GValue *value, GParamSpec *pspec)
{
  LycheeKVAllocator *self = LYCHEE_KV_ALLOCATOR (object);

  g_mutex_lock (&self->lock);
  if (id == PROP_DEVICE)
    g_value_set_string (value, self->device);
  else
    g_value_set_uint64 (value, self->held);
  g_mutex_unlock (&self->lock);
}

static void
lychee_kv_allocator_finalize (GObject *object)
{
  LycheeKVAllocator *self = LYCHEE_KV_ALLOCATOR (object);

  g_clear_pointer (&self->holder, lychee_holder_free);
  g_free (self->device);
  g_mutex_clear (&self->lock);
  G_OBJECT_CLASS (lychee_kv_allocator_parent_class)->finalize (object);
}

static void
lychee_kv_allocator_class_init (LycheeKVAllocatorClass *klass)
{
  GstAllocatorClass *allocator_class = GST_ALLOCATOR_CLASS (klass);
  GObjectClass *object_class = G_OBJECT_CLASS (klass);

  object_class->get_property = lychee_kv_allocator_get_property;
  object_class->finalize = lychee_kv_allocator_finalize;
  allocator_class->alloc = kv_alloc;
  allocator_class->free = kv_free;

  /* For an application that looks where keys and values are. */
  props[PROP_DEVICE] =
      g_param_spec_string ("device", "Device", "What has what is viewed besides the host, or NULL",
          NULL, G_PARAM_READABLE | G_PARAM_STATIC_STRINGS);
  props[PROP_HELD] = g_param_spec_uint64 ("held", "Held",
      "Tokens of the cache that was viewed last that the device has", 0, G_MAXUINT64, 0,
      G_PARAM_READABLE | G_PARAM_STATIC_STRINGS);
  g_object_class_install_properties (object_class, N_PROPS, props);
}

static void
lychee_kv_allocator_init (LycheeKVAllocator *self)
{
  GstAllocator *allocator = GST_ALLOCATOR_CAST (self);

  g_mutex_init (&self->lock);
  allocator->mem_type = LYCHEE_KV_MEMORY_TYPE;
  allocator->mem_map = kv_map;
  allocator->mem_unmap = kv_unmap;
  allocator->mem_share = kv_share;
  allocator->mem_is_span = kv_is_span;
  /* mem_copy stays GStreamer's: with CUSTOM_ALLOC it maps and copies to system memory. */
  GST_OBJECT_FLAG_SET (self, GST_ALLOCATOR_FLAG_CUSTOM_ALLOC);
}

/**
 * lychee_kv_allocator_new:
 * @holder: (transfer full) (nullable): what keeps the caches that are viewed in the memory of a
 *   device, or %NULL: they are the host's alone
 *
 * Makes an allocator for the element that will read keys and values, which proposes it upstream: so
 * they are where that computes, from the moment when they are there. With a @holder, making a view
 * brings onto the device what it has not yet of the cache; where that has no more memory they are
 * the host's alone from then on.
 *
 * Returns: (transfer full): an allocator of views into KV caches
 */
LycheeKVAllocator *
lychee_kv_allocator_new (LycheeHolder *holder)
{
  LycheeKVAllocator *self = g_object_new (LYCHEE_TYPE_KV_ALLOCATOR, NULL);

  self->holder = holder;
  if (holder != NULL)
    self->device = g_strdup (lychee_holder_get_name (holder));
  return gst_object_ref_sink (self);
}

/* Brings the rows of @cache onto the device. */
static void
hold (LycheeKVAllocator *self, LycheeCache *cache)
{
  g_autoptr (GError) error = NULL;

  g_mutex_lock (&self->lock);
  if (self->holder != NULL) {
    self->held = lychee_holder_hold (self->holder, cache, &error);
    if (error != NULL) {
      GST_WARNING_OBJECT (self, "%s", error->message);
      g_clear_pointer (&self->holder, lychee_holder_free);
      g_clear_pointer (&self->device, g_free);
    }
  }
  g_mutex_unlock (&self->lock);
}

/**
 * lychee_kv_memory_new:
 * @allocator: an allocator
 * @cache: (transfer none): a cache; a reference is taken
 * @first: position of the first token
 * @n: how many tokens; they are in @cache
 *
 * Makes a view of tokens @first to @first + @n - 1, in the thread that appends to @cache. Nothing
 * is copied to the host until it is mapped; mapping gives values as [layer][K then
 * V][kv-head][token][head-dim], of the type that the caps say: f16, or q8_0's blocks of 34 bytes
 * for 32 values each.
 *
 * Returns: (transfer full): the memory
 */
GstMemory *
lychee_kv_memory_new (LycheeKVAllocator *allocator, LycheeCache *cache, guint first, guint n)
{
  LycheeKVMemory *self;
  gsize size;

  g_return_val_if_fail (LYCHEE_IS_KV_ALLOCATOR (allocator), NULL);
  g_return_val_if_fail (LYCHEE_IS_CACHE (cache), NULL);

  hold (allocator, cache);
  self = g_new0 (LycheeKVMemory, 1);
  size = (gsize) n * lychee_cache_get_token_bytes (cache);
  gst_memory_init (&self->memory, GST_MEMORY_FLAG_READONLY, GST_ALLOCATOR_CAST (allocator), NULL,
      size, sizeof (guint16) - 1, 0, size);
  g_mutex_init (&self->lock);
  self->cache = g_object_ref (cache);
  self->first = first;
  self->n = n;
  return &self->memory;
}

gboolean
lychee_is_kv_memory (GstMemory *memory)
{
  return memory != NULL && gst_memory_is_type (memory, LYCHEE_KV_MEMORY_TYPE);
}

/* (transfer none) */
LycheeCache *
lychee_kv_memory_get_cache (GstMemory *memory)
{
  g_return_val_if_fail (lychee_is_kv_memory (memory), NULL);

  return whole (memory)->cache;
}

/* Which tokens the view shows; FALSE for a part of a view, which is a range of bytes only. */
gboolean
lychee_kv_memory_get_range (GstMemory *memory, guint *first, guint *n)
{
  g_return_val_if_fail (lychee_is_kv_memory (memory), FALSE);

  if (memory->parent != NULL)
    return FALSE;
  *first = whole (memory)->first;
  *n = whole (memory)->n;
  return TRUE;
}
