/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <gst/gst.h>

#include "lychee-cache.h"
#include "lychee-holder.h"

G_BEGIN_DECLS

#define LYCHEE_KV_MEMORY_TYPE "LycheeKV"
#define LYCHEE_CAPS_FEATURE_MEMORY_KV "memory:LycheeKV"

#define LYCHEE_TYPE_KV_ALLOCATOR (lychee_kv_allocator_get_type ())
G_DECLARE_FINAL_TYPE (LycheeKVAllocator, lychee_kv_allocator, LYCHEE, KV_ALLOCATOR, GstAllocator)

LycheeKVAllocator *lychee_kv_allocator_new (LycheeHolder *holder);

GstMemory *lychee_kv_memory_new (
    LycheeKVAllocator *allocator, LycheeCache *cache, guint first, guint n);
gboolean lychee_is_kv_memory (GstMemory *memory);
LycheeCache *lychee_kv_memory_get_cache (GstMemory *memory);
gboolean lychee_kv_memory_get_range (GstMemory *memory, guint *first, guint *n);

G_END_DECLS
