#!/bin/bash
# 64 processes of one group on one device allocate and free at random under the group's limit. A third is killed, new
# ones are started; then the same with processes that are stopped and go on. The total of all processes never exceeds the
# limit, nobody hangs, and the ledger returns to zero. GROUP_SECONDS: how long both take together (15).
# timeout: 400
# without: SIMCUDA_LAZY "kill: the limit was never exceeded" because memory that is taken lazily is in no account
# without: SIMCUDA_LAZY "stop: the limit was never exceeded" because memory that is taken lazily is in no account
. "$(dirname "$0")/../../lib.sh"

seconds=${GROUP_SECONDS:-15}
members=64
context=$((64 << 20)) # of the simulated device
limit=$((members * context + (400 << 20)))
stop_seconds=$((seconds / 3))
for how in kill stop; do
    [ $how = kill ] && span=$((seconds - stop_seconds)) || span=$stop_seconds
    seen=$TMP/$how.json
    # shellcheck disable=SC2016 # for the inner shell
    ok "$how: $members processes for $span s" \
        bash -c 'timeout 180 python3 "$@" > "$0"' "$seen" "$ROOT/tests/preload/memory/group.py" "$BUILD_DIR" "$span" $members $how $limit
    echo "# $(cat "$seen")"
    is "$how: nobody hung" "$(json "$seen" 'r["hung"]')" 0
    is "$how: nobody saw anything wrong" "$(json "$seen" 'r["failed"]')$(json "$seen" 'r["complaints"]')" '0[]'
    is "$how: the limit was never exceeded" "$(json "$seen" 'r["most"] <= r["limit"]')" true
    ok "$how: and was met" test "$(json "$seen" 'r["failures"] > 0 and r["most"] > r["limit"] * 0.9 and r["samples"] > 100')" = true
    ok "$how: they got something" test "$(json "$seen" 'r["allocations"] > 100 and r["kills"] + r["stops"] > 10')" = true
    is "$how: the device has all back" "$(json "$seen" 'r["last"]')" 0
    is "$how: and the ledger is empty" \
        "$("$BUILD_DIR/tests/preload/group_state" torture 2>&1)" "members 0 held 0 limit $limit"
done
done_testing
