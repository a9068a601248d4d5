#!/bin/bash
# The long run of the torture test: TORTURE_EVENTS (1,000,000) with each backend, without and with peers by turns.
. "$(dirname "$0")/../lib.sh"
seed=${TORTURE_SEED:-$(date +%s)}
events=${TORTURE_EVENTS:-1000000}
for backend in ${TORTURE_BACKENDS:-vmm driver}; do
    for peers in "" peers; do
        output=$(env GPUCACHE_BACKEND="$backend" GPUCACHE_LIMIT="${TORTURE_LIMIT:-512MiB}" GPUCACHE_REPORT="$TMP/report.json" \
            SIMCUDA_WORK_US="${SIMCUDA_WORK_US:-20}" LD_LIBRARY_PATH="$SIM_DIR" LD_PRELOAD="$LIB" \
            "$BUILD_DIR/tests/preload/torture" $((events / 2)) 3600 "$seed" 4 $peers 2>&1)
        is "$backend $peers: nothing is corrupt, seed $seed" "$?" 0
        printf '%s\n' "$output" | sed 's/^/# /'
        is "$backend $peers: every block was freed" "$(json "$TMP/report.json" '[d["leak_count"], d["requested_bytes"]["current"]]')" '[0, 0]'
        seed=$((seed + 1))
    done
done
done_testing
