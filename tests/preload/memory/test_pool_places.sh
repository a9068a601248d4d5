#!/bin/bash
# Stream-ordered pools beside a device's own: memory of the host and managed memory is not a device's, whoever made the
# pool; memory of a shared pool counts in the process that made it, and not in the one that opened it.
. "$(dirname "$0")/../../lib.sh"
PLACES=$BUILD_DIR/tests/preload/pool_places
REPORT=$TMP/report.json OTHER=$TMP/other.json
MIB=1048576

# held REPORT: the bytes of stream-ordered allocations, of handles, of driver allocations and of imported memory.
held() { json "$1" '[d["direct_bytes"][kind] for kind in ("async", "handle", "memory", "import")]'; }
# taken REPORT: the bytes taken from the driver, but for the context.
taken() { json "$1" 'd["reserved_bytes"]["current"] - d["context_bytes"]["current"]'; }

ok "places, without the library" simulated "$PLACES" places
ok "shared, without the library" simulated "$PLACES" shared
for mode in track cache; do
    ok "$mode: 2 GiB of host and managed memory under a limit of 128 MiB" \
        preloaded GPUCACHE_MODE=$mode GPUCACHE_LIMIT=128MiB GPUCACHE_REPORT="$REPORT" "$PLACES" places
    is "$mode: none was refused, none of it is left" "$(json "$REPORT" '[d["oom_count"], d["direct_bytes"]["async"], d["direct_bytes"]["pool"]]')" "[0, 0, 0]"
    for backend in auto driver; do
        ok "$mode, $backend: a shared pool, and events between the processes" preloaded GPUCACHE_MODE=$mode \
            GPUCACHE_BACKEND=$backend GPUCACHE_REPORT="$REPORT" REPORT_OF_IMPORTER="$OTHER" "$PLACES" shared
        is "$mode, $backend: all is freed, here" "$(held "$REPORT") $(json "$REPORT" 'd["leak_count"]')" "[0, 0, 0, 0] 0"
        is "$mode, $backend: and there" "$(held "$OTHER") $(json "$OTHER" 'd["leak_count"]')" "[0, 0, 0, 0] 0"
    done
done
# Without a cache all memory that is taken is in use.
ok "memory that both hold at the end" preloaded GPUCACHE_MODE=track GPUCACHE_LIMIT=1GiB \
    GPUCACHE_REPORT="$REPORT" REPORT_OF_IMPORTER="$OTHER" "$PLACES" held
is "counts where it was made" "$(held "$REPORT") $(taken "$REPORT")" "[$((8 * MIB)), 0, 0, 0] $((8 * MIB))"
is "and not where it was opened" "$(held "$OTHER") $(taken "$OTHER")" "[0, 0, 0, 0] 0"
done_testing
