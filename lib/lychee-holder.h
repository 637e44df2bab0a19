/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "lychee-cache.h"
#include "lychee-model.h"

G_BEGIN_DECLS

/* Keeps caches in the memory of a device, so that whoever answers there finds them: each row is
 * copied once, when it is held or when the device computes it. The host has them too, for the
 * index, for saving and for whoever reads them. One thread at a time. */
typedef struct _LycheeHolder LycheeHolder;

/* On the device that sessions of @model with this @backend compute on. (transfer full) (nullable):
 * with @error, or without one if that is the processor. Loads the model's weights onto the device,
 * where these sessions will find them. */
LYCHEE_API LycheeHolder *lychee_holder_new (
    LycheeModel *model, LycheeBackendType backend, guint cuda_device, GError **error);
LYCHEE_API void lychee_holder_free (LycheeHolder *holder);
/* For people: the device's. (transfer none) */
LYCHEE_API const char *lychee_holder_get_name (LycheeHolder *holder);

/* Copies what the device has not yet of @cache, which no other thread changes. Returns how many of
 * its tokens are there: 0 for caches of a form that devices do not read, or with @error. */
LYCHEE_API guint lychee_holder_hold (LycheeHolder *holder, LycheeCache *cache, GError **error);

G_DEFINE_AUTOPTR_CLEANUP_FUNC (LycheeHolder, lychee_holder_free)

G_END_DECLS
