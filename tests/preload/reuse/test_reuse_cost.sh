#!/bin/bash
# Freeing waits for nothing: a block whose work is queued is freed at once, another is had meanwhile, and both hold what they
# should. A loop of allocation, launch and free on two streams asks the driver next to nothing, and what it holds is bounded.
# timeout: 400
. "$(dirname "$0")/../../lib.sh"
program=$BUILD_DIR/tests/preload/reuse_cost
report=$TMP/report.json
journal=$TMP/journal
export GPUCACHE_REPORT=$report

for backend in vmm driver; do
    export GPUCACHE_BACKEND=$backend
    for bytes in 512 100000 8388608; do
        rm -f "$journal"
        output=$(SIMCUDA_JOURNAL=$journal preloaded "$program" free $bytes 2>&1)
        is "$backend, $bytes bytes: neither a free nor an allocation waits, and contents are right" "$?" 0
        is "$backend, $bytes bytes: the work was still queued" "$output" 'busy 1'
        is "$backend, $bytes bytes: the driver was asked to wait for nothing but by the program" \
            "$(awk '$3 ~ /Synchronize/ {print $3}' "$journal" | sort | uniq -c | awk '{print $1, $2}')" "1 cuCtxSynchronize"
    done
    for bytes in 512 65536 1000000; do
        rm -f "$journal"
        output=$(SIMCUDA_JOURNAL=$journal preloaded "$program" loop 10000 $bytes 2>&1)
        is "$backend, $bytes bytes: the loop ends ($output)" "$?" 0
        # Between the last two marks, without the program's own launches, and without memory that is taken because this
        # machine lags behind: that is bounded below. Asking whose context is current asks the device nothing.
        awk '$3 == "cuDriverGetVersion" {held = now; now = ""; next} $3 !~ /^cuLaunch(Kernel|HostFunc)|^cuCtxGetCurrent$|^cuMem(Create|Map|SetAccess|Alloc_v2)$/ {now = now "\n" $3}
            END {print held}' "$journal" | sed '/^$/d' >"$TMP/calls"
        calls=$(wc -l <"$TMP/calls")
        ok "$backend, $bytes bytes: at most 1 call per 100 iterations: $calls in 10000" test "$calls" -le 100
        sort "$TMP/calls" | uniq -c | sed 's/^/# /'
        peak=$(json "$report" 'd["reserved_bytes"]["peak"]')
        ok "$backend, $bytes bytes: what is held is bounded: $peak" test "$peak" -lt $((2500 << 20))
    done
done
done_testing
