/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "lychee-cache-private.h"
#include "lychee-cuda-device.h"

G_BEGIN_DECLS

/* What a device has of a cache. Pages are both in the host's memory, where the index is kept and
 * from where they are saved, and on the device; forks share them in both. So are the index's coarse
 * nodes, which never change: a device gets each of them once. */

/* How the device has keys and values. */
LycheeCudaType lychee_cuda_mirror_get_type (LycheeCache *cache);

/* Brings all rows of @cache onto the device, and makes room for @n more. @pages: one pointer a
 * page, NULL where it was forgotten. */
gboolean lychee_cuda_mirror_pages (LycheeCuda *cuda, LycheeCudaWorker *worker, LycheeCache *cache,
    guint n, GPtrArray *pages, GError **error);
/* Copies what a pass computed, [layers][K, V][kv-heads][n_rows][row], into the host's pages:
 * @n rows from @at on are the cache's. */
void lychee_cuda_mirror_store (
    LycheeCuda *cuda, LycheeCache *cache, const guint16 *rows, guint n, guint at, guint n_rows);

/* The indexes of all layers, as far as the device has them; FALSE: not all of them as they are now.
 * @heads: [n_layers][n_kv_heads], without nodes for layers that have no index. */
gboolean lychee_cuda_mirror_find_indexes (
    LycheeCuda *cuda, LycheeCache *cache, LycheeCudaHead *heads);
/* Brings a layer's indexes onto the device. @heads: [n_kv_heads]. */
gboolean lychee_cuda_mirror_index (LycheeCuda *cuda, LycheeCudaWorker *worker, LycheeCache *cache,
    guint layer, LycheeCudaHead *heads, GError **error);

G_END_DECLS
