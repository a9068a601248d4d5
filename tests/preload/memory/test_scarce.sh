#!/bin/bash
# Host memory runs out, at every point: mappings fail from the N-th on, permanently and for a moment, and address space is limited.
# The program never crashes or hangs and never reads what it did not write. And ten thousand threads leave nothing behind.
# timeout: 300
. "$(dirname "$0")/../../lib.sh"
progs=$BUILD_DIR/tests/preload
trace=$TMP/trace

# starve SETTINGS: all points; prints what went wrong.
starve() {
    local settings=$1 at span out status
    for span in 1 1000000; do
        for at in $(seq 0 $((span == 1 ? 1 : 3)) 24) 36 60; do
            # shellcheck disable=SC2086 # words
            out=$(preloaded $settings LD_PRELOAD="$progs/libscarce.so:$LIB" SCARCE_AT="$at" SCARCE_FOR="$span" \
                GPUCACHE_REPORT="$TMP/r.json" timeout -s KILL 30 "$progs/scarce" 2> "$TMP/err")
            status=$?
            [ $status -eq 0 ] || echo "mapping $at, $span times: status $status: $out $(tail -1 "$TMP/err")"
        done
    done
}
for settings in GPUCACHE_MODE=cache GPUCACHE_MODE=track GPUCACHE_BACKEND=driver \
    "GPUCACHE_TRACE=$trace GPUCACHE_STACKS=all" "GPUCACHE_GROUP=scarce GPUCACHE_LIMIT=1GiB GPUCACHE_TENANTS=all=*:900MiB" GPUCACHE_DEBUG=poison; do
    is "mappings fail: ${settings//$TMP\//}" "$(starve "$settings")" ""
done
wrong=''
for mib in 4 5 6 8 12 16 24 32 48 64; do
    pages=$(preloaded "$progs/starved" $((mib << 20)) 2>&1) || wrong="$wrong $mib: $pages"
done
is "little address space: cuInit answers" "$wrong" ""
for settings in GPUCACHE_MODE=cache GPUCACHE_MODE=track "GPUCACHE_STACKS=all GPUCACHE_TENANTS=all=*:1GiB"; do
    # shellcheck disable=SC2086 # words
    ok "10,000 threads: $settings" preloaded $settings GPUCACHE_REPORT=none timeout 100 "$progs/many_threads" 10000
done

# ---- memory that cannot be recorded is given back; if the driver refuses that, its charge stays ----
entries="cuMemAlloc_v2 cuMemAlloc cuMemAllocPitch cuArrayCreate cuArray3DCreate cuMipmappedArrayCreate cuMemCreate"
UNIT=2097152 # what the simulated driver takes at least
unrecorded() {
    SIMCUDA_MEMORY=2GiB GPUCACHE_MODE=track GPUCACHE_REPORT="$TMP/r.json" preloaded "$progs/unrecorded" > "$TMP/out" 2> "$TMP/err"
    # shellcheck disable=SC2086 # words
    is "without host memory for records$1: each call's result" "$(sed '$d' "$TMP/out")" "$(printf "%s $2\n" $entries; echo cuMemAllocFromPoolAsync 2)"
    local held reserved
    held=$(sed -n 's/^held //p' "$TMP/out")
    reserved=$(json "$TMP/r.json" 'd["reserved_bytes"]["current"]')
    ok "  the accounts agree with the driver: $reserved, $held" test $((held > reserved ? held - reserved : reserved - held)) -lt $UNIT
    like "  it is said" "$(cat "$TMP/err")" '^gpucache: an allocation of cuMemAlloc_v2 cannot be recorded: no host memory'
}
unrecorded '' 2
SIMCUDA_FAIL=cuMemFree_v2@1+,cuMemFree@1+,cuArrayDestroy@1+,cuMipmappedArrayDestroy@1+,cuMemRelease@1+ unrecorded ', and the driver keeps all' 0
done_testing
