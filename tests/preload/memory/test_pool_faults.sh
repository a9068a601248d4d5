#!/bin/bash
# Every driver call that the cache makes is made to fail, the first time, some later time and permanently, with either backend.
# Whatever fails: an allocation gives a code of the driver's, what blocks hold stays right, after one failure all goes on,
# and at the end the accounts agree with the device.
# timeout: 400
# without: SIMCUDA_LAZY because it compares the accounts with the device, where memory that is taken lazily is in no account
. "$(dirname "$0")/../../lib.sh"
export SIMCUDA_MEMORY=2GiB SIMCUDA_WORK_US=5
FAULTS=$BUILD_DIR/tests/preload/pool_faults
REPORT=$TMP/report.json
# What the program calls itself and cannot do without, or what no account can be kept without.
NOT_TRIED=" cuInit cuDeviceGet cuDevicePrimaryCtxRetain cuCtxSetCurrent cuCtxGetCurrent cuCtxGetDevice cuMemGetInfo_v2 "
NOT_TRIED+="cuStreamCreate cuMemHostAlloc cuMemsetD32Async cuMemsetD8Async cuMemcpyDtoHAsync_v2 cuStreamSynchronize "
NOT_TRIED+="cuStreamBeginCapture_v2 cuStreamEndCapture cuGraphInstantiate cuGraphInstantiateWithFlags cuGraphLaunch cuGraphExecDestroy "
NOT_TRIED+="cuGraphDestroy cuCtxDestroy_v2 cuDeviceTotalMem_v2 cuCtxPushCurrent_v2 cuCtxPopCurrent_v2 cuMemPoolGetAttribute "
NOT_TRIED+="cuThreadExchangeStreamCaptureMode cuDeviceGetGraphMemAttribute "
# The driver rounds to 2 MiB; a small segment of plain memory is charged as it is when only its exact size was available.
UNIT=2097152

# check FAILURE [once]: runs the program with it; prints the error.
# shellcheck disable=SC2317 # called through ok
check() {
    local held kept
    rm -f "$REPORT"
    held=$(env GPUCACHE_LIMIT=264MiB GPUCACHE_REPORT="$REPORT" LD_LIBRARY_PATH="$SIM_DIR" SIMCUDA_FAIL="$1" LD_PRELOAD="$LIB" \
        timeout 120 "$FAULTS" ${2:+"$2"} 2>"$TMP/errors") || { echo "$1: ended with $?: $held"; cat "$TMP/errors"; return 1; }
    kept=${held#* }
    held=${held% *}
    [ "$(json "$REPORT" "abs(d['reserved_bytes']['current'] - $held) < $UNIT and d['reserved_bytes']['peak'] <= d['limit_bytes'] and d['requested_bytes']['current'] == $kept")" = true ] && return 0
    echo "$1: the device gave out $held, $kept bytes could not be freed; the accounts:"
    json "$REPORT" '[d["reserved_bytes"], d["allocated_bytes"], d["requested_bytes"]]'
    return 1
}

for backend in vmm driver; do
    export GPUCACHE_BACKEND=$backend
    ok "$backend: nothing fails, the accounts agree with the device" check cuInit@999 once
    env SIMCUDA_JOURNAL="$TMP/journal.$backend" GPUCACHE_LIMIT=264MiB GPUCACHE_REPORT=none LD_LIBRARY_PATH="$SIM_DIR" \
        LD_PRELOAD="$LIB" "$FAULTS" >/dev/null 2>&1
    mapfile -t entries < <(awk '{print $3}' "$TMP/journal.$backend" | sort -u)
    for entry in "${entries[@]}"; do
        [[ $NOT_TRIED == *" $entry "* ]] && continue
        count=$(awk -v entry="$entry" '$3 == entry' "$TMP/journal.$backend" | wc -l)
        ok "$backend: $entry fails, of $count" eval "check $entry@1 once &&
            check $entry@$(((count + 1) / 2)) once && check $entry@$(((count * 3 + 3) / 4)) once && check $entry@1+"
    done
done
done_testing
