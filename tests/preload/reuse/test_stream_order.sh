#!/bin/bash
# Stream-ordered memory: a block freed behind queued work serves its stream at once, without a call that would move memory or
# wait, and nobody else before that work is done; what calls answer is what they answer without the library.
# timeout: 400
# without: SIMCUDA_PEERS=none "two devices: what was served before is opened with the pool" because no pool is opened to a device
. "$(dirname "$0")/../../lib.sh"
program=$BUILD_DIR/tests/preload/stream_order
report=$TMP/report.json
journal=$TMP/journal
export GPUCACHE_REPORT=$report
# What it may cost: asking what the stream and its device's pool are.
asked='^cu(StreamGetFlags|CtxGetCurrent|DeviceGetMemPool|DeviceGetDefaultMemPool|MemsetD8Async|MemcpyDtoHAsync_v2)$'

for backend in vmm driver; do
    export GPUCACHE_BACKEND=$backend
    for bytes in 512 100000 8388608; do
        rm -f "$journal"
        output=$(SIMCUDA_WORK_US=2000 SIMCUDA_JOURNAL=$journal preloaded timeout 120 "$program" reuse $bytes 2>&1)
        is "$backend, $bytes bytes: who gets what and what it holds is right" "$?:$output" "0:busy 1"
        # Its own allocations go with their context, which such memory outlives.
        [ $backend = driver ] || is "$backend, $bytes bytes: a stream gets its memory back without a driver call" \
            "$(awk '$3 == "cuDriverGetVersion" {n++; next} n > 0 {print n, $3}' "$journal" |
                awk -v last="$(grep -c cuDriverGetVersion "$journal")" '$1 == last - 1 {print $2}' |
                grep -Ev "$asked" | sort | uniq -c)" ""
        is "$backend, $bytes bytes: whether the driver's own pool was used" \
            "$(grep -q 'cuMem\(Alloc\|Free\)Async' "$journal" && echo driver || echo vmm)" $backend
        ok "$backend, $bytes bytes: a graph's block has no other work" env SIMCUDA_WORK_US=2000 LD_LIBRARY_PATH="$SIM_DIR" \
            LD_PRELOAD="$LIB" timeout 120 "$program" capture $bytes
        is "$backend, $bytes bytes: every block was freed" "$(json "$report" 'd["leak_count"]')" 0
    done
    is "$backend: calls answer as without the library" "$(preloaded timeout 120 "$program" codes 2>&1)" \
        "$(simulated timeout 120 "$program" codes 2>&1)"
done
export SIMCUDA_DEVICES=2 GPUCACHE_BACKEND=vmm GPUCACHE_LOG=error # devices that are no peers are warned of
is "two devices: calls answer as without the library" "$(preloaded timeout 120 "$program" devices 2>&1)" \
    "$(simulated timeout 120 "$program" devices 2>&1)"
rm -f "$journal"
SIMCUDA_JOURNAL=$journal preloaded timeout 120 "$program" devices >"$TMP/answers" 2>&1
is "two devices: what was served before is opened with the pool" \
    "$(awk '$3 == "cuMemPoolSetAccess" {seen = 1} seen && $3 == "cuDriverGetVersion" {exit} seen && $3 == "cuMemSetAccess" {print $3}' \
        "$journal" | sort -u)" cuMemSetAccess
done_testing
