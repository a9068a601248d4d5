#!/bin/bash
# A fence covers the work of every stream, of whatever kind: on drivers that have events for a whole context, and on older
# ones, where events on all streams are joined. A library that leaves some of them out is found: built here from a copy.
# timeout: 400
. "$(dirname "$0")/../../lib.sh"
program=$BUILD_DIR/tests/preload/fenced_streams
export GPUCACHE_LIMIT=1GiB

fenced() { # LIBRARY VERSION
    LD_LIBRARY_PATH="$SIM_DIR" LD_PRELOAD="$1" SIMCUDA_DRIVER_VERSION=$2 GPUCACHE_REPORT="$TMP/report.json" \
        timeout 120 "$program" 2>&1
}

for backend in vmm driver; do
    for version in 12000 13000; do
        is "$backend, driver $version: not too early, and not never" "$(GPUCACHE_BACKEND=$backend fenced "$LIB" $version)" "6 of 6"
    done
done
fenced "$LIB" 12000 > "$TMP/out"
is "the older driver was asked for events on streams" "$(json "$TMP/report.json" 'd["driver_calls"].get("cuEventRecord", 0) > 10')" true

. "$(dirname "$0")/copy.sh"
# broken NAME EXPRESSION KINDS: the copy with EXPRESSION (of sed) applied to shim/driver/stream_list.c hands these kinds out too early.
broken() {
    local found
    sed -i "$2" "$COPY/shim/driver/stream_list.c"
    if cmp -s "$ROOT/shim/driver/stream_list.c" "$COPY/shim/driver/stream_list.c"; then
        ok "$1: there is a place to break" false
        return
    fi
    build_copy
    # On a loaded machine the held-up work may be done before the memory is asked for: that proves nothing, once more then.
    for _ in 1 2 3 4; do
        found=$(fenced "$COPY/build/libgpucache.so" 12000 | sed -n 's/^kind \(.\): reused too early$/\1/p' | tr -d '\n')
        [ "$found" = "$3" ] && break
    done
    is "$1: found" "$found" "$3"
    cp "$ROOT/shim/driver/stream_list.c" "$COPY/shim/driver/stream_list.c"
}
broken "the legacy stream left out" 's/result = join(context, joining, CU_STREAM_LEGACY, event);/result = CUDA_SUCCESS;/' 0
broken "the listed streams left out" 's/result == CUDA_SUCCESS && i < busy_count; i++/false \&\& i < busy_count; i++/' 1235
broken "a destroyed stream left out" 's/result = join_last(entry->value, stream);/result = CUDA_SUCCESS;/' 4
broken "streams that count as joined" 's/->extra != work_count)/->extra > work_count)/' 1235
broken "a destroyed stream that counts as joined" 's/if (entry->extra == count_of((uintptr_t)stream))/if (true)/' 4
broken "the legacy stream that counts as joined" 's/|| joining.extra != work_count/|| joining.extra > work_count/' 0
broken "streams that nothing waits for" \
    's/return result == CUDA_SUCCESS ? GC_USE(cuStreamWaitEvent, joining, event, 0) : result;/(void)joining; return result;/' 012345
done_testing
