# SPDX-License-Identifier: LGPL-2.1-or-later
# Holds gpu-bench's figures, a line of JSON each, against the targets (docs/cuda.md), and says what to
# look at where one is missed. Prints a table; with -v json=FILE also writes a line of JSON for each.

# The number of field @name of the line, or "" if there is none.
function get(name, part) {
  if (!match($0, "\"" name "\": -?[0-9.e+-]+"))
    return ""
  part = substr($0, RSTART, RLENGTH)
  sub(/.*: /, "", part)
  return part + 0
}

function judge(name, wanted, measured, met, advice) {
  printf "%-58s %10s %12s   %s\n", name, wanted, measured == "" ? "-" : measured, \
    measured == "" ? "not measured" : met ? "met" : "NOT MET"
  if (measured != "" && !met)
    printf "    %s\n", advice
  if (json != "")
    printf "{\"what\": \"target\", \"name\": \"%s\", \"wanted\": \"%s\", \"measured\": \"%s\", \"met\": %s}\n", \
      name, wanted, measured, measured == "" ? "null" : met ? "true" : "false" >> json
}

/"what": "attention"/ {
  n = get("tokens")
  if (get("batch") == 1) {
    speedup[n] = get("speedup")
    if (n >= 8192 && n % 1024 == 0 && (bandwidth == "" || get("of_bandwidth") < bandwidth))
      bandwidth = get("of_bandwidth")
    if (n >= 2048 && (search == "" || get("search_us") > search))
      search = get("search_us")
  }
}

/"what": "model"/ {
  n = get("tokens") * get("batch")
  own = get("speedup")
  if (get("tokens") == 65536 && get("batch") > 1 && (batched == "" || own > batched))
    batched = own
  if (get("tokens") < 2048)
    next
  # A token below that number of tokens is decoded densely, whatever is asked for.
  if (n > 16384 && (slowest == "" || own < slowest)) {
    slowest = own
    slowest_at = get("batch") " x " get("tokens")
  }
  if (get("batch") == 1 && own >= 1 && (crosses == "" || n < crosses))
    crosses = n
}

END {
  printf "%-58s %10s %12s\n", "target", "wanted", "measured"
  judge("sparse attention with its search, times dense, at 32k", ">= 6", speedup[32768], speedup[32768] >= 6, \
    "look at search_us against sparse_us: which of both is more than docs/cuda.md counts")
  judge("the same at 64k", ">= 10", speedup[65536], speedup[65536] >= 10, \
    "the same; nsys profile gpu-bench tells the kernels apart")
  judge("dense attention from 8k, of the memory's bandwidth", ">= 0.80", bandwidth, bandwidth >= 0.8, \
    "ncu gpu-bench: occupancy of attend_kernel (4 blocks a processor are planned: MAX_RESIDENT) and its splits")
  judge("search at any length to 128k, microseconds", "< 15", search, search < 15, \
    "ncu gpu-bench: barriers and waits of search_kernel; docs/cuda.md counts them step by step")
  judge("a token of 8B at 64k, several sequences, sparse against dense", ">= 3.6", batched, batched >= 3.6, \
    "as for attention; else what is not attention (nsys: gaps between kernels of the graph)")
  judge("a token of 8B, sparse never slower (the least)", ">= 1", slowest, slowest >= 1, \
    "at " slowest_at ": set LYCHEE_CUDA_SPARSE_FROM, and SPARSE_FROM in lib/lychee-backend-cuda.c, to where they cross")
  if (crosses != "")
    printf "one sequence is no slower sparse from %d tokens on; it is decoded densely up to 16384 (SPARSE_FROM)\n", crosses
}
