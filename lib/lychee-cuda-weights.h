/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "lychee-cuda-batch.h"
#include "lychee-model-private.h"

G_BEGIN_DECLS

/* A model's weights on a device, and where all meet that decode it there. They are kept as long as
 * the model is, for it is sessions that come and go: a decoder makes one for each question.
 * (transfer none) (nullable) */
LycheeCudaModel *lychee_cuda_weights_get (
    LycheeCuda *cuda, LycheeModel *model, LycheeCudaBatch **batch, GError **error);

G_END_DECLS
