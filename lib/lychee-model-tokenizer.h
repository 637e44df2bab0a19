/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "lychee-model.h"
#include "lychee-tokenizer.h"

G_BEGIN_DECLS

/* (transfer none): the model's tokenizer. Apart from lychee-model.h, since programs give text. */
LYCHEE_API LycheeTokenizer *lychee_model_get_tokenizer (LycheeModel *model);

G_END_DECLS
