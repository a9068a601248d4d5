#!/bin/bash
# The preload matrix: every wrapped entry point by every way a program can find it; the pool's calls by every way and
# from every place, each answering as without the library and counted once; and what dlsym means to everyone else.
# timeout: 400
. "$(dirname "$0")/../../lib.sh"
progs=$BUILD_DIR/tests/preload
export LD_LIBRARY_PATH=$SIM_DIR

# ---- every row, by every way ----

for way in dlsym global next proc1 proc2 runtime; do
    plain=$("$progs/matrix" $way | tail -n 1)
    is "every row by $way: as many as the driver has, all wrapped" \
        "$(LD_PRELOAD=$LIB GPUCACHE_REPORT=none "$progs/matrix" $way 2>&1)" "$plain"
    ok "every row by $way: there are some" test "${plain%% *}" -gt 10
done

# ---- the pool's calls, by every way, from every place ----

plain=$("$progs/routes" linked main)
counts='[(a["count"], a["bytes"]) for n in ("cuMemAlloc_v2", "cuMemAllocPitch_v2", "cuMemAllocManaged")
    for a in [d["by_api"].get(n, {"count": 0, "bytes": 0})]]'
for way in linked dlsym global next proc1 proc2; do
    for place in main thread constructor fork; do
        rm -f "$TMP"/*.json
        with=$(refusing env GPUCACHE_REPORT="$TMP/%p.json" LD_PRELOAD="$LIB" timeout 120 "$progs/routes" $way $place 2>&1)
        is "calls $way from $place: answers as without the library" "$with" "$plain"
        reports=("$TMP"/*.json)
        is "calls $way from $place: one report" "${#reports[@]}" 1
        is "calls $way from $place: counted once each" "$(json "${reports[0]}" "$counts")" \
            "[[3, $((1 + 5000 + (33 << 20)))], [1, $((1024 * 30))], [1, 4096]]"
    done
done
for mode in track off; do
    is "mode $mode: answers as without the library" \
        "$(GPUCACHE_MODE=$mode GPUCACHE_REPORT=none LD_PRELOAD=$LIB "$progs/routes" proc2 main 2>&1)" "$plain"
done

# ---- what a name means ----

ok "dlsym, dlvsym, RTLD_NEXT, RTLD_DEFAULT and dlerror keep their meaning" \
    env LD_PRELOAD="$LIB" GPUCACHE_REPORT=none "$progs/lookups" "$progs/libnames.so"
ok "a debugger's environment, bound at start" \
    env LD_BIND_NOW=1 LD_PRELOAD="$LIB" GPUCACHE_REPORT=none "$progs/lookups" "$progs/libnames.so"

# ---- another preload library that wraps dlsym ----

for order in "$progs/libhook.so $LIB" "$LIB $progs/libhook.so"; do
    rm -f "$TMP"/*.json
    with=$(refusing env GPUCACHE_REPORT="$TMP/%p.json" LD_PRELOAD="$order" timeout 120 "$progs/routes" dlsym main 2>&1)
    is "beside a library that wraps dlsym (${order##*/} last): the same answers" "$with" "$plain"
    is "beside a library that wraps dlsym (${order##*/} last): counted" \
        "$(json "$(echo "$TMP"/*.json)" 'd["by_api"]["cuMemAlloc_v2"]["count"]')" 3
done

# ---- a library that brings the runtime along, in its own scope, and uses it under the dynamic linker's lock ----

for pause in 0 5 10; do
    rm -f "$TMP"/*.json
    with=$(LOADED_PAUSE_MS=$pause GPUCACHE_REPORT=$TMP/%p.json LD_PRELOAD=$LIB timeout 120 "$progs/loaded" "$progs/libloaded.so" 2>&1)
    is "library loaded late, pause $pause: runs" "$with" $'thread: 0\nrun: 0'
    is "library loaded late, pause $pause: counted as the runtime's calls" \
        "$(json "$(echo "$TMP"/*.json)" '[d["by_api"]["cudaMalloc"]["count"], d["leak_count"]]')" "[2, 0]"
done

# ---- programs without CUDA ----

unset LD_LIBRARY_PATH
is "true prints nothing" "$(LD_PRELOAD=$LIB GPUCACHE_LIMIT=nonsense GPUCACHE_REPORT=stdout true 2>&1)" ""
is "bash runs" "$(LD_PRELOAD=$LIB bash -c 'echo $((6 * 7)); type -t cd' 2>&1)" $'42\nbuiltin'
is "python imports what it loads" "$(LD_PRELOAD=$LIB python3 -c 'import ctypes, ssl, sqlite3; print(ctypes.CDLL(None).getpid() > 0)' 2>&1)" True
done_testing
