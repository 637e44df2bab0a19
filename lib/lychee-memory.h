/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "lychee-cpu-kernels.h"
#include "lychee-model.h"

G_BEGIN_DECLS

/* Bytes that the process may still take: the least of what the system has available and what the
 * control groups (v1 or v2) that it belongs to leave of their limits. What is cached of files
 * counts as available. G_MAXUINT64: nothing says so. @root: where /proc and /sys are looked for, ""
 * but in tests. */
guint64 lychee_memory_get_available (const char *root);

/* Bytes that reading @n_tokens with @model will have taken in the end. */
typedef struct {
  guint64 weights;
  guint64 cache; /* keys and values */
  guint64 index;
} LycheeMemoryNeed;

/* @whole: layers with a sliding window keep all (a device's do). @form: of the cache. @max_cache:
 * limit of cache and index together, 0: none. */
void lychee_memory_estimate (LycheeModel *model, guint n_tokens, gboolean whole, LycheeRowForm form,
    guint64 max_cache, LycheeMemoryNeed *need);
guint64 lychee_memory_sum (const LycheeMemoryNeed *need);

G_END_DECLS
