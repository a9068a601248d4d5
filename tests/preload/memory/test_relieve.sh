#!/bin/bash
# The driver runs out of memory in each call in turn: the cache gives its idle memory back, and the call is made
# again, or once only where shim/once.def says so.
# timeout: 400
# waits: for a program that needs less for a while
. "$(dirname "$0")/../../lib.sh"

program=$BUILD_DIR/tests/preload/relieve
with() { env LD_LIBRARY_PATH="$SIM_DIR" LD_PRELOAD="$LIB" GPUCACHE_REPORT=none SIMCUDA_MEMORY=130MiB SIMCUDA_JOURNAL="$TMP/journal" "$@" 2>&1; }

with "$program" ready
declare -A before
while read -r entry count; do before[$entry]=$count; done < <(awk '{ n[$3]++ } END { for (e in n) print e, n[e] }' "$TMP/journal")
nm -D --defined-only "$SIM_DIR/libcuda.so.1" | awk '{print $NF}' | sort > "$TMP/offered"

# attempt ENTRY: `again` or `once`, as the journal says; `never` if the driver did not see the call.
attempt() {
    rm -f "$TMP/journal"
    SIMCUDA_FAIL="$1@$((${before[$1]:-0} + 1))=CUDA_ERROR_OUT_OF_MEMORY" with "$program" "$1" > "$TMP/result"
    # A call that crashes on its empty arguments does so the second time: the injected failure looks at none.
    [ $? -lt 128 ] || { echo again && return; }
    awk -v entry="$1" '$3 == entry && failed { again = 1 } $3 == entry && $4 == 2 { failed = 1 }
        END { print !failed ? "never" : again ? "again" : "once" }' "$TMP/journal"
}

wrong='' unseen='' count=0
while read -r entry want; do
    grep -q -x "$entry" "$TMP/offered" || continue
    got=$(attempt "$entry")
    case $got in
    never) unseen+="$entry " ;;
    "$want") count=$((count + 1)) ;;
    *) wrong+="$entry: $got, not $want"$'\n' ;;
    esac
done < <(simulated "$program" names)
is "after out of memory each call is made again, or once where that might do harm" "$wrong" ""
is "calls that the driver never sees" "$unseen" ""
ok "$count calls" test "$count" -gt 250

# What stays idle, of 64 MiB on a device with 2 MiB besides, once the program has needed less for a while.
idle() { GPUCACHE_REPORT=$TMP/$1.json preloaded env SIMCUDA_MEMORY=130MiB "${@:2}" "$program" spare > /dev/null && json "$TMP/$1.json" 'd["reserved_bytes"]["current"] - d["context_bytes"]["current"] >> 20' > "$TMP/$1"; }
idle default &
idle thirty GPUCACHE_LEAVE=30MiB &
idle zero GPUCACHE_LEAVE=0 &
wait
is "idle memory leaves the device an eighth of its memory" "$(cat "$TMP/default")" 48
is "or as much as was asked for" "$(cat "$TMP/thirty")" 36
is "or nothing" "$(cat "$TMP/zero")" 64
# 120 MiB in each pass, of 122 that the context leaves.
calls() { GPUCACHE_REPORT=$TMP/cycle.json preloaded env SIMCUDA_MEMORY=186MiB "$@" "$program" cycle > /dev/null && json "$TMP/cycle.json" 'sum(d["driver_calls"].get(c, 0) for c in ("cuMemCreate", "cuMemMap", "cuMemRelease", "cuMemAlloc_v2", "cuMemFree_v2"))'; }
is "a program that repeats itself near the device's size: as if nothing were left free" \
    "$(calls GPUCACHE_LEAVE=16MiB)" "$(calls GPUCACHE_LEAVE=0)"
done_testing
