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

G_DEFINE_ENUM_TYPE (LycheeOverflow, lychee_overflow,
    G_DEFINE_ENUM_VALUE (LYCHEE_OVERFLOW_ERROR, "error"),
    G_DEFINE_ENUM_VALUE (LYCHEE_OVERFLOW_STOP_READING, "stop-reading"),
    G_DEFINE_ENUM_VALUE (LYCHEE_OVERFLOW_FORGET_OLDEST, "forget-oldest"))

G_DEFINE_ENUM_TYPE (LycheeBackendType, lychee_backend_type,
    G_DEFINE_ENUM_VALUE (LYCHEE_BACKEND_AUTO, "auto"),
    G_DEFINE_ENUM_VALUE (LYCHEE_BACKEND_CPU, "cpu"),
    G_DEFINE_ENUM_VALUE (LYCHEE_BACKEND_CUDA, "cuda"))

G_DEFINE_ENUM_TYPE (LycheeDetector, lychee_detector,
    G_DEFINE_ENUM_VALUE (LYCHEE_DETECTOR_STRUCTURE, "structure"),
    G_DEFINE_ENUM_VALUE (LYCHEE_DETECTOR_SEMANTIC, "semantic"),
    G_DEFINE_ENUM_VALUE (LYCHEE_DETECTOR_BOTH, "both"))
