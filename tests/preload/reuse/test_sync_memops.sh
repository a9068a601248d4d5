#!/bin/bash
# SYNC_MEMOPS is a block's: a block allocated anew does not have it, a hundred thousand that had it leave nothing behind, and once
# none has it any more nothing is waited for on its account. cuPointerGetAttribute: "Querying this attribute" (P2P_TOKENS) "has a side
# effect of setting the attribute CU_POINTER_ATTRIBUTE_SYNC_MEMOPS".
. "$(dirname "$0")/../../lib.sh"
program=$BUILD_DIR/tests/preload/sync_memops
journal=$TMP/journal
export GPUCACHE_REPORT=none

plain=$(simulated timeout 120 "$program" 1 2>&1)
for settings in GPUCACHE_BACKEND=vmm GPUCACHE_BACKEND=driver GPUCACHE_MODE=track; do
    is "$settings: answers are plain CUDA's, nothing is left behind" \
        "$(preloaded "$settings" timeout 120 "$program" 100000 2>&1)" "$plain"
    rm -f "$journal"
    preloaded "$settings" SIMCUDA_JOURNAL="$journal" timeout 120 "$program" 1 >"$TMP/out" 2>&1
    is "$settings: a copy waits for nothing more" \
        "$(awk '$3 == "cuDriverGetVersion" {held = now; now = ""; next} {now = now $3 "\n"} END {printf "%s", held}' "$journal" |
            grep -c Synchronize)" 0
done
tokens=$(simulated timeout 60 "$program" tokens 2>&1)
for settings in GPUCACHE_BACKEND=driver GPUCACHE_BACKEND=whole GPUCACHE_MODE=track; do
    is "$settings: a request for tokens sets it, as in plain CUDA" "$(preloaded "$settings" timeout 60 "$program" tokens 2>&1)" "$tokens"
done
done_testing
