#!/bin/bash
# Graphs captured with allocations, frees and launches inside, by several threads in every mode: the captures survive, and
# what the graphs compute is right each time they run, also where memory is short.
# timeout: 400
. "$(dirname "$0")/../../lib.sh"
program=$BUILD_DIR/tests/preload/capture_alloc
report=$TMP/report.json
for mode in global thread relaxed; do
    ok "$mode: the test itself is right, without the library" env LD_LIBRARY_PATH="$SIM_DIR" SIMCUDA_WORK_US=30 \
        timeout 120 "$program" 3 4 $mode
    ok "$mode: nothing is taken or freed inside" env LD_LIBRARY_PATH="$SIM_DIR" LD_PRELOAD="$LIB" GPUCACHE_REPORT=none \
        SIMCUDA_WORK_US=30 timeout 120 "$program" 3 4 $mode plain
    for backend in vmm driver; do
        for limit in 16GiB 240MiB; do
            ok "$mode, $backend, limit $limit: captures survive, contents are right" \
                env GPUCACHE_BACKEND=$backend GPUCACHE_LIMIT=$limit GPUCACHE_REPORT="$report" SIMCUDA_WORK_US=30 \
                LD_LIBRARY_PATH="$SIM_DIR" LD_PRELOAD="$LIB" timeout 120 "$program" 3 6 $mode
            is "$mode, $backend, limit $limit: every block was freed" "$(json "$report" 'd["leak_count"]')" 0
        done
    done
    ok "$mode, one thread after another: captures survive" env GPUCACHE_REPORT=none SIMCUDA_WORK_US=30 \
        LD_LIBRARY_PATH="$SIM_DIR" LD_PRELOAD="$LIB" timeout 120 "$program" 1 20 $mode
done
done_testing
