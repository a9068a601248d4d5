#!/bin/bash
# Every driver call of a program that takes memory in every direct way is made to fail, the first time, a later
# time and permanently. Whatever fails, the accounts agree with the driver's bytes afterwards.
# timeout: 400
# without: SIMCUDA_LAZY because it compares the accounts with the device, where memory that is taken lazily is in no account
. "$(dirname "$0")/../../lib.sh"
export SIMCUDA_MEMORY=2GiB GPUCACHE_MODE=track
FAULTS=$BUILD_DIR/tests/preload/direct_faults
REPORT=$TMP/report.json
# Without these neither the program nor the library can know what the driver holds.
UNKNOWABLE=" cuInit cuDeviceGet cuDevicePrimaryCtxRetain cuCtxSetCurrent cuCtxGetCurrent cuCtxGetDevice cuMemGetInfo_v2 "
UNKNOWABLE+="cuMemPoolGetAttribute cuDeviceGetGraphMemAttribute cuDeviceTotalMem_v2 "
UNIT=2097152 # what the simulated driver takes at least; a charge of less is not rounded up to it

# check FAILURE: runs the program with it; prints the error.
# shellcheck disable=SC2317 # called through ok
check() {
    local held reserved
    rm -f "$REPORT"
    held=$(refusing env GPUCACHE_REPORT="$REPORT" LD_LIBRARY_PATH="$SIM_DIR" SIMCUDA_FAIL="$1" LD_PRELOAD="$LIB" \
        timeout 120 "$FAULTS" 2>&1) || { echo "$1: ended with $?: $held" && return 1; }
    [ -e "$REPORT" ] || return 0 # nothing was taken at all
    reserved=$(grep -o '"reserved_bytes": *{[^}]*' "$REPORT" | head -1 | grep -o '"current": *[0-9]*' | grep -o '[0-9]*')
    [ $((held - reserved)) -lt "$UNIT" ] && [ $((reserved - held)) -lt "$UNIT" ] && return 0
    echo "$1: the driver holds $held, the accounts have $reserved"
    return 1
}

env LD_LIBRARY_PATH="$SIM_DIR" SIMCUDA_JOURNAL="$TMP/journal" GPUCACHE_REPORT=none LD_PRELOAD="$LIB" "$FAULTS" >/dev/null
ok "nothing fails: the accounts agree with the driver" check cuInit@999
entries=$(awk '{print $3}' "$TMP/journal" | sort -u)
for entry in $entries; do
    [[ $UNKNOWABLE == *" $entry "* ]] && continue
    count=$(awk -v entry="$entry" '$3 == entry' "$TMP/journal" | wc -l)
    ok "$entry fails" eval "check $entry@1 && check $entry@$(((count + 1) / 2)) && check $entry@$count && check $entry@1+"
done
done_testing
