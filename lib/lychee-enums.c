/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "lychee-enums.h"

G_DEFINE_ENUM_TYPE (LycheeAttentionMode, lychee_attention_mode,
    { LYCHEE_ATTENTION_DENSE, "All tokens before", "dense" },
    { LYCHEE_ATTENTION_SPARSE, "What the index finds, within the budget", "sparse" })

G_DEFINE_ENUM_TYPE (LycheeGranularity, lychee_granularity,
    { LYCHEE_GRANULARITY_TOKEN, "Tokens, the most faithful", "token" },
    { LYCHEE_GRANULARITY_CHUNK, "Whole chunks, the smaller index", "chunk" })

G_DEFINE_ENUM_TYPE (LycheeRest, lychee_rest,
    { LYCHEE_REST_ESTIMATE, "Counts by its means", "estimate" },
    { LYCHEE_REST_DROP, "Does not count", "drop" })

G_DEFINE_ENUM_TYPE (LycheeCacheType, lychee_cache_type,
    { LYCHEE_CACHE_TYPE_F16, "Half floats", "f16" },
    { LYCHEE_CACHE_TYPE_Q8_0, "8 bits and a scale, about half the memory", "q8_0" })

G_DEFINE_ENUM_TYPE (LycheePositions, lychee_positions,
    { LYCHEE_POSITIONS_AUTO, "Packed where the length is not known, else absolute", "auto" },
    { LYCHEE_POSITIONS_ABSOLUTE, "The places in the transcript", "absolute" },
    { LYCHEE_POSITIONS_PACKED, "Never more than the model knows, for any length", "packed" })

G_DEFINE_ENUM_TYPE (LycheeOverflow, lychee_overflow, { LYCHEE_OVERFLOW_ERROR, "An error", "error" },
    { LYCHEE_OVERFLOW_STOP_READING, "What comes is left out", "stop-reading" },
    { LYCHEE_OVERFLOW_FORGET_OLDEST, "The oldest is forgotten", "forget-oldest" })

G_DEFINE_ENUM_TYPE (LycheeBackendType, lychee_backend_type,
    { LYCHEE_BACKEND_AUTO, "A CUDA device if there is one, else the processor", "auto" },
    { LYCHEE_BACKEND_CPU, "The processor", "cpu" },
    { LYCHEE_BACKEND_CUDA, "A CUDA device", "cuda" })

G_DEFINE_ENUM_TYPE (LycheeDetector, lychee_detector,
    { LYCHEE_DETECTOR_STRUCTURE, "What is written: paragraphs, speakers, sentences", "structure" },
    { LYCHEE_DETECTOR_SEMANTIC, "Where the subject changes", "semantic" },
    { LYCHEE_DETECTOR_BOTH, "What is written, and where the subject changes", "both" })

G_DEFINE_ENUM_TYPE (LycheeEmbedding, lychee_embedding,
    { LYCHEE_EMBEDDING_TABLE, "The token's vector in the model's table", "table" },
    { LYCHEE_EMBEDDING_SHALLOW, "What the model's first layers make of it", "shallow" })

G_DEFINE_ENUM_TYPE (LycheeBackendError, lychee_backend_error,
    { LYCHEE_BACKEND_ERROR_UNAVAILABLE, "No module, driver or device", "unavailable" },
    { LYCHEE_BACKEND_ERROR_UNSUPPORTED, "The device cannot run this", "unsupported" },
    { LYCHEE_BACKEND_ERROR_NO_MEMORY, "The device has not enough memory", "no-memory" },
    { LYCHEE_BACKEND_ERROR_COMPUTE, "The device failed", "compute" })

G_DEFINE_ENUM_TYPE (LycheeChatFormat, lychee_chat_format,
    { LYCHEE_CHAT_FORMAT_AUTO, "The one of the model's file", "auto" },
    { LYCHEE_CHAT_FORMAT_PLAIN, "None: base models", "plain" },
    { LYCHEE_CHAT_FORMAT_CHATML, "ChatML", "chatml" },
    { LYCHEE_CHAT_FORMAT_LLAMA2, "Llama 2", "llama2" },
    { LYCHEE_CHAT_FORMAT_LLAMA3, "Llama 3", "llama3" },
    { LYCHEE_CHAT_FORMAT_GEMMA, "Gemma", "gemma" },
    { LYCHEE_CHAT_FORMAT_MISTRAL, "Mistral", "mistral" },
    { LYCHEE_CHAT_FORMAT_QWEN3, "Qwen 3, not thinking aloud", "qwen3" },
    { LYCHEE_CHAT_FORMAT_PHI3, "Phi 3", "phi3" }, { LYCHEE_CHAT_FORMAT_PHI4, "Phi 4", "phi4" },
    { LYCHEE_CHAT_FORMAT_GRANITE, "Granite", "granite" })

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
    { LYCHEE_CACHE_ERROR_FULL, "The positions are used up", "full" },
    { LYCHEE_CACHE_ERROR_NO_MEMORY, "The memory is used up", "no-memory" })
