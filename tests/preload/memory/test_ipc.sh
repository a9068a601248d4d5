#!/bin/bash
# Memory given to another process by handle: what that sees, and what the cache does with such blocks.
. "$(dirname "$0")/../../lib.sh"
IPC=$BUILD_DIR/tests/preload/ipc
REPORT=$TMP/report.json

# gives NAME [NAME=VALUE…] -- [plain]: the program runs under the library and is content.
gives() {
    local name=$1 settings=()
    shift
    while [ "$1" != -- ]; do settings+=("$1"); shift; done
    shift
    rm -f "$REPORT"
    ok "$name" preloaded GPUCACHE_REPORT="$REPORT" "${settings[@]}" "$IPC" "$@"
}
# Idle memory goes back in a stream of the library's own.
calls() { json "$REPORT" "' '.join(str(sum(d['driver_calls'].get(name, 0) for name in names)) for names in (['cuMemAlloc_v2'], ['cuMemFree_v2', 'cuMemFreeAsync']))"; }

ok "without the library" simulated "$IPC"
gives "a plain process opens what it is given" -- plain
# One large block serves 21 times, is given away and goes back; of three small ones one does; 20 follow that are
# exported one by one, each new and each released.
is "  blocks serve again, and those that were given away go back" "$(calls)" "24 22"
is "  what is cached is the two others" "$(json "$REPORT" 'd["idle_bytes"]')" 2048
is "  nothing is lost" "$(json "$REPORT" 'f"""{d["requested_bytes"]["current"]} {d["leak_count"]} {d["hit_count"]}"""')" "0 0 20"
gives "a process under the library opens it too" --
gives "mapped memory, to a process under the library" GPUCACHE_BACKEND=vmm --
is "  nothing is lost" "$(json "$REPORT" 'f"""{d["requested_bytes"]["current"]} {d["leak_count"]}"""')" "0 0"
gives "GPUCACHE_BACKEND=whole" GPUCACHE_BACKEND=whole -- plain
is "  reports it" "$(json "$REPORT" '[d["backend"], d["backend_reason"]]')" '["driver", "GPUCACHE_BACKEND=whole"]'
gives "under a limit" GPUCACHE_LIMIT=100MiB -- plain
is "  which holds" "$(json "$REPORT" 'd["reserved_bytes"]["peak"] <= 100 << 20')" true
gives "under a limit that has no room for idle blocks" GPUCACHE_LIMIT=$(((64 << 20) + (4 << 20))) -- plain
gives "with frees that wait" GPUCACHE_REUSE=sync -- plain
is "  the same blocks are cached" "$(calls)" "24 22"
gives "with nothing kept" GPUCACHE_TRIM=0% -- plain
is "  nothing idle is left" "$(json "$REPORT" 'd["idle_bytes"]')" 0
GPUCACHE_TRACE=$TMP/run.trace GPUCACHE_REPORT=none preloaded "$IPC" plain > "$TMP/out" 2>&1
ok "its run is planned" "$TOOL" plan "$TMP/run.trace" --output "$TMP/run.plan" --deadline 1
for backend in auto driver; do
    gives "by a plan, $backend" GPUCACHE_BACKEND=$backend GPUCACHE_PLAN="$TMP/run.plan" -- plain
    is "  of which such blocks are no part" "$(json "$REPORT" 'd["plan"]')" null
    gives "by a plan, $backend, to a process that has one too" GPUCACHE_BACKEND=$backend GPUCACHE_PLAN="$TMP/run.plan" --
    is "  nothing is lost" "$(json "$REPORT" 'f"""{d["requested_bytes"]["current"]} {d["leak_count"]}"""')" "0 0"
done
gives "tracked" GPUCACHE_MODE=track -- plain
gives "with poisoned memory" GPUCACHE_DEBUG=poison -- plain
gives "with guards and watched frees" GPUCACHE_DEBUG=guard,uaf -- plain
done_testing
