#!/bin/bash
# Mapped memory as real devices want it: few handles for a large block, none for one that cannot fit; alignment as large blocks have.
. "$(dirname "$0")/../../lib.sh"

program=$BUILD_DIR/tests/preload/extents
run() { env LD_LIBRARY_PATH="$SIM_DIR" LD_PRELOAD="$LIB" GPUCACHE_REPORT="$TMP/report.json" "$@" 2>&1; }
calls() { json "$TMP/report.json" "d[\"driver_calls\"].get(\"$1\", 0)"; }

is "8 GiB are there" "$(run SIMCUDA_MEMORY=16GiB "$program" 8192)" "8192: 0"
is "in one handle, mapped and opened by one call each" "$(calls cuMemCreate) $(calls cuMemMap) $(calls cuMemSetAccess)" "1 1 1"
is "twelve more are refused" "$(run SIMCUDA_MEMORY=16GiB "$program" 8192 12288)" "$(printf '8192: 0\n12288: 2')"
is "after few calls" "$(($(calls cuMemCreate) <= 4))" 1
is "beyond a limit too" "$(run SIMCUDA_MEMORY=16GiB GPUCACHE_LIMIT=10GiB "$program" 8192 4096)" "$(printf '8192: 0\n4096: 2')"
is "without a call" "$(calls cuMemCreate) $(calls cuMemAlloc_v2)" "1 0"
is "what fits in smaller pieces is there" "$(run SIMCUDA_MEMORY=16GiB "$program" 2048 512 512 6144)" \
    "$(printf '2048: 0\n512: 0\n512: 0\n6144: 0')"
is "at most 100 handles a GiB" "$(($(calls cuMemCreate) <= 900))" 1

for backend in vmm driver; do
    for seed in 1 2 3; do
        is "$backend: blocks are aligned by their size, seed $seed" \
            "$(run SIMCUDA_MEMORY=16GiB GPUCACHE_BACKEND=$backend "$program" alignment $seed)" "wrong 0"
    done
done
done_testing
