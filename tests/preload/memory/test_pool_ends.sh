#!/bin/bash
# A pool is destroyed beside another thread's trim: no call of the library's names a pool that the driver has destroyed.
. "$(dirname "$0")/../../lib.sh"
export SIMCUDA_LATENCY=cuMemPoolTrimTo=200,cuMemPoolGetAttribute=50 GPUCACHE_REPORT=none
journal=$TMP/journal
is "pools end beside trims" \
    "$(SIMCUDA_JOURNAL=$journal GPUCACHE_LIMIT=112MiB preloaded timeout 100 "$BUILD_DIR/tests/preload/pool_ends" 2>&1 | without_refusals)" "done"
ok "they were trimmed" grep -q ' cuMemPoolTrimTo 0' "$journal"
is "no call named one that was gone" "$(awk '$3 ~ /^cuMemPool/ && $4 != 0 {print $3, $4}' "$journal" | sort | uniq -c)" ""
done_testing
