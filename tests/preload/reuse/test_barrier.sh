#!/bin/bash
# A free is no barrier, and reports no error of earlier work; with GPUCACHE_REUSE=sync it is and does, as the driver's.
. "$(dirname "$0")/../../lib.sh"

program=$BUILD_DIR/tests/preload/barrier
export SIMCUDA_WORK_US=100000 GPUCACHE_REPORT=none
simulated "$program" > "$TMP/plain"
is "the driver's free waits for earlier work and returns its error" "$(cat "$TMP/plain")" "results after the free: there
results after synchronization: there
the free returns 700
synchronization returns 700"
for backend in vmm driver; do
    is "with GPUCACHE_REUSE=sync as the driver, $backend" "$(preloaded env GPUCACHE_REUSE=sync GPUCACHE_BACKEND=$backend "$program")" "$(cat "$TMP/plain")"
    is "else it returns at once, $backend" "$(preloaded env GPUCACHE_BACKEND=$backend "$program")" "results after the free: not yet
results after synchronization: there
the free returns 0
synchronization returns 700"
done
is "without a cache as the driver" "$(preloaded env GPUCACHE_MODE=track "$program")" "$(cat "$TMP/plain")"
done_testing
