#!/bin/bash
# cuMemGetInfo, cuDeviceTotalMem and the runtime's counterparts agree with the limit and with each other: total is the
# smaller of limit and device, free is what a malloc could get, idle cached memory included, never negative.
# timeout: 400
. "$(dirname "$0")/../../lib.sh"
export SIMCUDA_MEMORY=4GiB GPUCACHE_REPORT=none
MIB=1048576

for kind in shared static; do
    PROGRAM=$BUILD_DIR/tests/preload/meminfo-$kind
    if [ ! -x "$PROGRAM" ]; then
        skip "meminfo-$kind" "not built: there is no nvcc here"
        continue
    fi
    # totals OUTPUT: the different totals in it. free_at WHEN OUTPUT: the different free figures.
    totals() { grep -v cudaMalloc <<< "$1" | awk '{print $3}' | sort -u | xargs; }
    free_at() { awk -v when="$1" '$1 == when && NF == 4 {print $4}' <<< "$2" | sort -u | xargs; }

    plain=$(simulated "$PROGRAM" 100 2>&1)
    is "$kind: without the library there is one total" "$(totals "$plain")" $((4096 * MIB))
    for mode in off track cache; do
        out=$(GPUCACHE_MODE=$mode preloaded "$PROGRAM" 100 2>&1)
        is "$kind, $mode: no limit, the same total" "$(totals "$out")" $((4096 * MIB))
        is "$kind, $mode: no limit, the same free memory after a free" "$(free_at freed "$out")" "$(free_at freed "$plain")"
        is "$kind, $mode: no limit, as much less while it is held" \
            $(($(free_at start "$out") - $(free_at held "$out"))) $((100 * MIB))
    done
    for backend in vmm driver; do
        out=$(GPUCACHE_BACKEND=$backend preloaded "$PROGRAM" 1000 2>&1)
        is "$kind, backend $backend: a small block in a large idle segment takes its own pages alone" \
            $(($(free_at start "$out") - $(free_at beside "$out"))) $((12 * MIB))
    done
    GPUCACHE_REPORT=$TMP/report.json preloaded "$PROGRAM" 1 > "$TMP/out" 2>&1
    uuid=$(json "$TMP/report.json" 'd["uuid"]')
    for mode in track cache; do
        for limit in 1GiB 25% 0=1GiB 0=25%,1=2GiB "$uuid=1GiB" "0=1GiB,3GiB"; do
            out=$(GPUCACHE_MODE=$mode GPUCACHE_LIMIT=$limit preloaded "$PROGRAM" 100 2>&1)
            is "$kind, $mode, limit $limit: the total everywhere" "$(totals "$out")" $((1024 * MIB))
            is "$kind, $mode, limit $limit: free memory is back after a free" "$(free_at freed "$out")" "$(free_at start "$out")"
            is "$kind, $mode, limit $limit: less while it is held" \
                $(($(free_at start "$out") - $(free_at held "$out"))) $((100 * MIB))
        done
        out=$(GPUCACHE_MODE=$mode GPUCACHE_LIMIT=1GiB preloaded "$PROGRAM" 1000 2>&1)
        is "$kind, $mode: free memory is what a malloc can get: more is refused" "$(grep cudaMalloc <<< "$out")" "cudaMalloc 2"
        most=$(($(free_at start "$out") / MIB))
        out=$(GPUCACHE_MODE=$mode GPUCACHE_LIMIT=1GiB preloaded "$PROGRAM" $most 2>&1)
        is "$kind, $mode: all that is free can be allocated" "$(grep cudaMalloc <<< "$out")" "cudaMalloc 0"
        out=$(GPUCACHE_MODE=$mode GPUCACHE_LIMIT=64TiB preloaded "$PROGRAM" 100 2>&1)
        is "$kind, $mode: a limit above the device is the device" "$(totals "$out")" $((4096 * MIB))
        out=$(GPUCACHE_MODE=$mode GPUCACHE_LIMIT=8MiB preloaded "$PROGRAM" 100 2>&1)
        is "$kind, $mode: a limit below what the context takes leaves nothing free" "$(free_at start "$out")" 0
        is "$kind, $mode: and an allocation is out of memory" "$(grep cudaMalloc <<< "$out")" "cudaMalloc 2"
        out=$(GPUCACHE_MODE=$mode CUDA_DEVICE_MEMORY_LIMIT=1024m preloaded "$PROGRAM" 100 2>&1)
        is "$kind, $mode: CUDA_DEVICE_MEMORY_LIMIT" "$(totals "$out")" $((1024 * MIB))
    done
done
done_testing
