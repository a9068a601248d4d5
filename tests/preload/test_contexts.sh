#!/bin/bash
# What contexts take is in the account once: also in a group, where room is reserved before one is made.
. "$(dirname "$0")/../lib.sh"
context=$((64 << 20)) page=$((2 << 20)) # of the simulated device
# of LIMIT [VARIABLE=VALUE…]: what the program says, and the most that contexts took and that was held.
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
done_testing
