/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "lychee-enums.h"

G_DEFINE_ENUM_TYPE (LycheeAttentionMode, lychee_attention_mode,
    G_DEFINE_ENUM_VALUE (LYCHEE_ATTENTION_DENSE, "dense"),
    G_DEFINE_ENUM_VALUE (LYCHEE_ATTENTION_SPARSE, "sparse"))

G_DEFINE_ENUM_TYPE (LycheeGranularity, lychee_granularity,
    G_DEFINE_ENUM_VALUE (LYCHEE_GRANULARITY_TOKEN, "token"),
    G_DEFINE_ENUM_VALUE (LYCHEE_GRANULARITY_CHUNK, "chunk"))

G_DEFINE_ENUM_TYPE (LycheeRest, lychee_rest, G_DEFINE_ENUM_VALUE (LYCHEE_REST_ESTIMATE, "estimate"),
    G_DEFINE_ENUM_VALUE (LYCHEE_REST_DROP, "drop"))

G_DEFINE_ENUM_TYPE (LycheeBackendType, lychee_backend_type,
    G_DEFINE_ENUM_VALUE (LYCHEE_BACKEND_AUTO, "auto"),
    G_DEFINE_ENUM_VALUE (LYCHEE_BACKEND_CPU, "cpu"),
    G_DEFINE_ENUM_VALUE (LYCHEE_BACKEND_CUDA, "cuda"))
