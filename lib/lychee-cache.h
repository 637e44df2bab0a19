/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "lychee-enums.h"

G_BEGIN_DECLS

#define LYCHEE_TYPE_CACHE (lychee_cache_get_type ())
LYCHEE_API
G_DECLARE_FINAL_TYPE (LycheeCache, lychee_cache, LYCHEE, CACHE, GObject)

/* An append-only KV store: K and V, f16, of every token, layer and KV head, in pages that are
 * allocated as it grows, and the list of the chunks that it holds.
 *
 * One thread at a time appends. Any thread may fork, read the length, read rows below a length that
 * it has seen, and list chunks, while another appends. */
LYCHEE_API LycheeCache *lychee_cache_new (
    guint n_layers, guint n_kv_heads, guint head_dim, guint max_tokens, guint64 max_bytes);

LYCHEE_API guint lychee_cache_get_n_layers (LycheeCache *cache);
LYCHEE_API guint lychee_cache_get_n_kv_heads (LycheeCache *cache);
LYCHEE_API guint lychee_cache_get_head_dim (LycheeCache *cache);
/* Tokens whose K and V are there for every layer. */
LYCHEE_API guint lychee_cache_get_length (LycheeCache *cache);
LYCHEE_API guint lychee_cache_get_max_tokens (LycheeCache *cache);
LYCHEE_API guint64 lychee_cache_get_bytes (LycheeCache *cache);
LYCHEE_API guint64 lychee_cache_get_max_bytes (LycheeCache *cache);

/* A snapshot that can grow a private tail: shares every full page, copies the open one.
 * (transfer full) (nullable): NULL with NO_MEMORY. Its limits are those of @cache. */
LYCHEE_API LycheeCache *lychee_cache_fork (LycheeCache *cache, GError **error);

/* Makes room for @n tokens after the length; FULL or NO_MEMORY otherwise, and nothing has changed.
 */
LYCHEE_API gboolean lychee_cache_reserve (LycheeCache *cache, guint n, GError **error);
/* Publishes @n tokens that were written after the length. */
LYCHEE_API void lychee_cache_commit (LycheeCache *cache, guint n);
/* Cuts the cache to @length tokens, and forgets the chunks that do not fit whole. */
LYCHEE_API void lychee_cache_truncate (LycheeCache *cache, guint length);

/* Notes that @chunk's tokens are those from @position on. */
LYCHEE_API void lychee_cache_add_chunk (LycheeCache *cache, LycheeChunk *chunk, guint position);
LYCHEE_API guint lychee_cache_get_n_chunks (LycheeCache *cache);
/* (transfer full) (nullable); @position (out) (optional) */
LYCHEE_API LycheeChunk *lychee_cache_get_chunk (LycheeCache *cache, guint i, guint *position);

/* Copies tokens first .. first + n - 1 to @to as [layer][K then V][kv-head][token][head-dim], f16.
 */
LYCHEE_API void lychee_cache_read (LycheeCache *cache, guint first, guint n, guint16 *to);
LYCHEE_API gsize lychee_cache_get_token_bytes (LycheeCache *cache);

G_END_DECLS
