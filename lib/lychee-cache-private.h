/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "lychee-cache.h"
#include "lychee-index.h"

G_BEGIN_DECLS

#define LYCHEE_CACHE_PAGE_SHIFT 8
#define LYCHEE_CACHE_PAGE_TOKENS (1u << LYCHEE_CACHE_PAGE_SHIFT)

/* Inside a page: [layer][kv-head][K then V][token][head-dim], so that the keys of a head that one
 * page holds are one run, and a key's value lies a fixed distance behind it. */

/* The rows of a layer and KV head. Valid as long as the cache is, for tokens that are reserved. */
void lychee_cache_get_rows (LycheeCache *cache, guint layer, guint kv_head, LycheeRows *rows);

/* The key of a token that is reserved but not yet committed, for writing (its value lies
 * @value_offset of the rows behind it). */
guint16 *lychee_cache_get_writable (LycheeCache *cache, guint layer, guint kv_head, guint token);

G_END_DECLS
