#!/bin/bash
# What contexts take is in the account once: also in a group, where room is reserved before one is made.
. "$(dirname "$0")/../../lib.sh"
context=$((64 << 20)) page=$((2 << 20)) # of the simulated device
# of LIMIT [VARIABLE=VALUE…]: the output of the program, and the most that contexts took and that was held.
of() {
    local limit=$1
    shift
    preloaded GPUCACHE_LIMIT="$limit" GPUCACHE_REPORT="$TMP/r.json" "$@" "$BUILD_DIR/tests/preload/contexts" 2>&1
    json "$TMP/r.json" '[d["context_bytes"]["peak"], d["reserved_bytes"]["peak"], d["reserved_bytes"]["current"]]'
}
room=$((3 * context + page))
all="[$((3 * context)), $room, 0]"
is "without a group" "$(of $room)" "$all"
is "in a group, the first to know what one takes" "$(of $room GPUCACHE_GROUP=g)" "$all"
is "in a group, known before" "$(of $room GPUCACHE_GROUP=g)" "$all"
refused=$(of 4GiB GPUCACHE_GROUP=h GPUCACHE_GROUP_LIMIT=$((3 * context - 1)) | tr '\n' ' ')
like "one too many for a group's limit is refused" "$refused" \
    "cuDevicePrimaryCtxRetain.*error 2.*\[$((2 * context)), $((2 * context)), $((2 * context))\]"

# What goes with its context is live no more: in the report, its call sites and the trace. No free is counted.
for backend in vmm driver whole; do
    preloaded GPUCACHE_BACKEND=$backend GPUCACHE_STACKS=all GPUCACHE_TRACE="$TMP/t.$backend" GPUCACHE_REPORT="$TMP/r.json" \
        "$BUILD_DIR/tests/preload/contexts" leave
    is "$backend: left in a context: the report" \
        "$(json "$TMP/r.json" '[d["alloc_count"], d["free_count"], d["requested_bytes"]["current"], d["leak_count"]]')" "[4, 0, 0, 0]"
    is "$backend: left in a context: its call sites" \
        "$(json "$TMP/r.json" '[len(d["call_sites"]), sum(s["current_bytes"] for s in d["call_sites"])]')" "[4, 0]"
    "$TOOL" trace "$TMP/t.$backend" --json > "$TMP/t.json"
    is "$backend: left in a context: the trace" "$(json "$TMP/t.json" '[r["alloc_count"], r["live_bytes"]]')" "[4, 0]"
done
done_testing
