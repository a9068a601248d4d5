#!/bin/bash
# core/gpucache.h: every function with right and wrong uses, found by dlsym and linked, under a preload and without, in each
# mode; the header in every language it is for; the signatures that Python's allocators call.
# timeout: 400
# without: SIMCUDA_PEERS=none "opened, cache: figures" because driver allocations are free in part while none is idle
# without: SIMCUDA_PEERS=none "preloaded, cache: pauses" because it pauses mapped memory
# without: SIMCUDA_PEERS=none "opened, cache: pauses" because it pauses mapped memory
. "$(dirname "$0")/../../lib.sh"
export SIMCUDA_DEVICES=2 SIMCUDA_MEMORY=2GiB SIMCUDA_WORK_US=1000 GPUCACHE_REPORT=none
program=$BUILD_DIR/tests/preload/public_api

# silent COMMAND…: it ends with 0 and prints nothing.
silent() {
    local output status
    output=$("$@" 2>&1)
    status=$?
    [ $status -eq 0 ] && [ -z "$output" ] && return 0
    printf '%s\nexit status %s\n' "$output" $status
    return 1
}

mapping=$(simulated "$program" has_mapping "$LIB" > /dev/null 2>&1; echo $?)
for mode in cache track; do
    export GPUCACHE_MODE=$mode
    for case in early memory peers streams figures limits pauses advice elastic forked threads; do
        [[ $case$mode = @(pauses|advice)track ]] && continue # nothing is mapped there
        if [[ $case = elastic || $case = pauses ]] && [ "$mapping" = 77 ]; then
            skip "$case, $mode" "the library does not map memory on this device"
            continue
        fi
        expected=(silent)
        [[ $case = @(memory|limits|elastic) ]] && expected+=(refusing)
        ok "preloaded, $mode: $case" "${expected[@]}" preloaded timeout 120 "$program" $case
        ok "opened, $mode: $case" "${expected[@]}" simulated timeout 120 "$program" $case "$LIB"
    done
    # PyTorch and CuPy do not look for NULL: a request without memory is logged, once for each.
    export GPUCACHE_LOG=error
    ok "preloaded, $mode: signatures" silent preloaded timeout 120 "$program" signatures
    ok "opened, $mode: signatures" silent simulated timeout 120 "$program" signatures "$LIB"
    unset GPUCACHE_LOG
    is "opened, $mode: requests that find no memory are reported" \
        "$(simulated timeout 120 "$program" signatures "$LIB" 2>&1 | cut -d: -f1-4)" \
        "gpucache: device 0: 1.0 PiB refused: the device has 2.0 GiB
gpucache: gpucache_torch_malloc: 1125899906842624 bytes on device 0: the device has no room
gpucache: gpucache_cupy_malloc: 1125899906842624 bytes on device 0: the limit has no room
gpucache: gpucache_cupy_malloc: 1125899906842624 bytes on device 0: the limit has no room"
done
export GPUCACHE_MODE=off
ok "preloaded, off: the driver serves" silent preloaded "$program" off
ok "opened, off: the driver serves" silent simulated "$program" off "$LIB"
unset GPUCACHE_MODE
ok "contexts that go" silent preloaded timeout 120 "$program" contexts
[ "$mapping" = 77 ] || ok "an elastic pool outlives its context" silent preloaded timeout 120 "$program" elastic_reset
ok "a preload comes first" silent preloaded "$program" interposing
ok "a library that was opened does not" silent simulated "$program" interposing "$LIB"
GPUCACHE_REPORT=$TMP/opened.json ok "opened, with a report" simulated "$program" interposing "$LIB"
like "the report says that the program's own calls pass by" "$(json "$TMP/opened.json" 'r["warnings"]')" "the program calls CUDA past this library"
ok "without the library the loader reports it" silent simulated "$program" absent
GPUCACHE_LIMIT=nonsense not_ok "bad settings refuse CUDA" simulated "$program" memory "$LIB"

# ---- the driver failing in the middle of it ----
# A program that hears of it ends by itself: nothing crashes, nothing hangs.
survives() {
    local entry n status
    for entry in cuMemAddressReserve cuMemCreate cuMemMap cuMemSetAccess cuMemUnmap cuMemRelease cuMemAddressFree \
        cuDevicePrimaryCtxRetain cuCtxPushCurrent_v2 cuMemAlloc_v2 cuStreamSynchronize cuCtxSynchronize; do
        for n in 1 2 3+; do
            SIMCUDA_FAIL=$entry@$n "$@" > /dev/null 2>&1
            status=$?
            [ $status -le 1 ] || { echo "$entry@$n: exit status $status"; return 1; }
        done
    done
}
ok "an elastic pool while the driver fails" survives simulated timeout 120 "$program" elastic "$LIB"
ok "memory while the driver fails" survives preloaded timeout 120 "$program" memory

# ---- the header ----
for language in "gcc -x c -std=c99" "gcc -x c -std=c11" "g++ -x c++ -std=c++98" "g++ -x c++ -std=c++20"; do
    for define in -DPLAIN -DGPUCACHE_NO_PROTOTYPES -DGPUCACHE_WANT_LOADER; do
        # shellcheck disable=SC2086
        ok "gpucache.h: $language $define" $language -pedantic -Wall -Wextra -Werror $define -fsyntax-only \
            -include "$ROOT/core/gpucache.h" /dev/null
    done
done
# The list of functions and the declarations agree: a C compiler sees both.
printf '#include "core/gpucache.h"\n#define SAME(result, name, parameters) result name parameters;\nGPUCACHE_FUNCTIONS(SAME)\n' \
    > "$TMP/same.c"
ok "declarations and list agree" gcc -std=c11 -Wall -Werror -fsyntax-only -I"$ROOT" "$TMP/same.c"
names=$(printf '#include "core/gpucache.h"\n#define NAME(result, name, parameters) name;\nGPUCACHE_FUNCTIONS(NAME)\n' |
    gcc -E -P -I"$ROOT" -DGPUCACHE_NO_PROTOTYPES -x c - | tr ';' '\n' | sed -n 's/^ *\(gpucache_[a-z_]*\) *$/\1/p' | sort)
is "every function of the list is exported, and no other" \
    "$(nm -D --defined-only "$LIB" | awk '{print $NF}' | grep ^gpucache_ | sort)" "$names"
is "every declared function is documented in the list" \
    "$(grep -oE '\bgpucache_[a-z_]+\(' <(sed -n '/ifndef GPUCACHE_NO_PROTOTYPES/,/GPUCACHE_NO_PROTOTYPES \*\//p' "$ROOT/core/gpucache.h" |
        grep -vE '^ ?\*|^/\*') | tr -d '(' | sort -u)" "$names"

# ---- from Python, as PyTorch and CuPy call ----
ok "ctypes: the exact signatures, without a preload" simulated python3 "$ROOT/tests/preload/routes/public_api.py" "$LIB"
ok "ctypes: the same under a preload" preloaded python3 "$ROOT/tests/preload/routes/public_api.py" "$LIB"
done_testing
