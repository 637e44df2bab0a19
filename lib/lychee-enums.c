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

G_DEFINE_ENUM_TYPE (LycheeCacheType, lychee_cache_type,
    G_DEFINE_ENUM_VALUE (LYCHEE_CACHE_TYPE_F16, "f16"),
    G_DEFINE_ENUM_VALUE (LYCHEE_CACHE_TYPE_Q8_0, "q8_0"))

G_DEFINE_ENUM_TYPE (LycheePositions, lychee_positions,
    G_DEFINE_ENUM_VALUE (LYCHEE_POSITIONS_AUTO, "auto"),
    G_DEFINE_ENUM_VALUE (LYCHEE_POSITIONS_ABSOLUTE, "absolute"),
    G_DEFINE_ENUM_VALUE (LYCHEE_POSITIONS_PACKED, "packed"))

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

G_DEFINE_ENUM_TYPE (LycheeEmbedding, lychee_embedding,
    G_DEFINE_ENUM_VALUE (LYCHEE_EMBEDDING_TABLE, "table"),
    G_DEFINE_ENUM_VALUE (LYCHEE_EMBEDDING_SHALLOW, "shallow"))

G_DEFINE_ENUM_TYPE (LycheeBackendError, lychee_backend_error,
    G_DEFINE_ENUM_VALUE (LYCHEE_BACKEND_ERROR_UNAVAILABLE, "unavailable"),
    G_DEFINE_ENUM_VALUE (LYCHEE_BACKEND_ERROR_UNSUPPORTED, "unsupported"),
    G_DEFINE_ENUM_VALUE (LYCHEE_BACKEND_ERROR_NO_MEMORY, "no-memory"),
    G_DEFINE_ENUM_VALUE (LYCHEE_BACKEND_ERROR_COMPUTE, "compute"))

G_DEFINE_ENUM_TYPE (LycheeChatFormat, lychee_chat_format,
    G_DEFINE_ENUM_VALUE (LYCHEE_CHAT_FORMAT_AUTO, "auto"),
    G_DEFINE_ENUM_VALUE (LYCHEE_CHAT_FORMAT_PLAIN, "plain"),
    G_DEFINE_ENUM_VALUE (LYCHEE_CHAT_FORMAT_CHATML, "chatml"),
    G_DEFINE_ENUM_VALUE (LYCHEE_CHAT_FORMAT_LLAMA2, "llama2"),
    G_DEFINE_ENUM_VALUE (LYCHEE_CHAT_FORMAT_LLAMA3, "llama3"),
    G_DEFINE_ENUM_VALUE (LYCHEE_CHAT_FORMAT_GEMMA, "gemma"),
    G_DEFINE_ENUM_VALUE (LYCHEE_CHAT_FORMAT_MISTRAL, "mistral"),
    G_DEFINE_ENUM_VALUE (LYCHEE_CHAT_FORMAT_QWEN3, "qwen3"),
    G_DEFINE_ENUM_VALUE (LYCHEE_CHAT_FORMAT_PHI3, "phi3"),
    G_DEFINE_ENUM_VALUE (LYCHEE_CHAT_FORMAT_PHI4, "phi4"),
    G_DEFINE_ENUM_VALUE (LYCHEE_CHAT_FORMAT_GRANITE, "granite"))

/* The formatter would take the name for an expression. */
/* clang-format off */
/**
 * lychee_cache_error_quark:
 *
 * The domain of errors of the kind LycheeCacheError.
 *
 * Returns: a quark
 */
G_DEFINE_QUARK (lychee-cache-error-quark, lychee_cache_error)
/* clang-format on */

G_DEFINE_ENUM_TYPE (LycheeCacheError, lychee_cache_error,
    G_DEFINE_ENUM_VALUE (LYCHEE_CACHE_ERROR_FULL, "full"),
    G_DEFINE_ENUM_VALUE (LYCHEE_CACHE_ERROR_NO_MEMORY, "no-memory"))
