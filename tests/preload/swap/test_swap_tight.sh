#!/bin/bash
# Two programs that just fit alone beside the other's context take turns: nothing is refused for a segment larger than needed.
# timeout: 200
. "$(dirname "$0")/../../lib.sh"
export GPUCACHE_LEDGER=$TMP/ledger SIMCUDA_SHARED=tight-$$ GPUCACHE_GROUP=tight GPUCACHE_GROUP_LIMIT=224MiB GPUCACHE_OVERCOMMIT=swap
export GPUCACHE_REPORT=none
pids=()
for name in first second; do
    preloaded timeout 90 "$BUILD_DIR/tests/demo/train_driver" 12000 > "$TMP/$name" 2>&1 &
    pids+=($!)
done
for i in 0 1; do
    wait "${pids[i]}"
    is "program $i: nothing is refused" "$?" 0
done
is "nobody complains" "$(grep -h gpucache "$TMP/first" "$TMP/second")" ""
rm -f "/dev/shm/simcuda-$UID-tight-$$"
done_testing
