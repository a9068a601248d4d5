#!/bin/bash
# GPUCACHE_MANAGED: managed memory is counted alone, counted against the limit, or refused, by each way to it. (The context takes 64 MiB of
# the limit of 128 MiB: one block of 48 MiB fits.)
. "$(dirname "$0")/../../lib.sh"
program=$BUILD_DIR/tests/preload/managed
report=$TMP/report.json
run() { preloaded SIMCUDA_MEMORY=1GiB GPUCACHE_LIMIT=128MiB GPUCACHE_REPORT="$report" "$@" 2> "$TMP/err"; }
left() { json "$report" '[d["reserved_bytes"]["current"] - d["context_bytes"]["current"] - d["idle_bytes"], d["direct_bytes"]["managed"], d["leak_count"]]'; }

for way in direct runtime pool; do
    made=''
    [ $way != pool ] || made='0 '
    for mode in cache track; do
        is "$way, $mode: count limits nothing" "$(run GPUCACHE_MODE=$mode "$program" $way)" "${made}0 0 0 0"
        is "$way, $mode: limit" "$(run GPUCACHE_MODE=$mode GPUCACHE_MANAGED=limit "$program" $way)" "${made}0 2 2 0"
        is "  nothing stays charged" "$(left)" "[0, 0, 0]"
        ok "  the limit holds" test "$(json "$report" 'd["reserved_bytes"]["peak"]')" -le $((128 << 20))
        refused='801 801 0 801'
        [ $way != pool ] || refused='801 -1 -1 0 -1'
        is "$way, $mode: deny" "$(run GPUCACHE_MODE=$mode GPUCACHE_MANAGED=deny "$program" $way)" "$refused"
        is "  it is said once" "$(grep -c 'managed memory is refused (GPUCACHE_MANAGED=deny)' "$TMP/err")" 1
    done
done
is "with spill managed memory beyond the limit is granted" "$(run GPUCACHE_MANAGED=limit GPUCACHE_OVERCOMMIT=spill "$program" direct)" "0 0 0 0"
is "  what fits is charged: plain memory has to spill" "$(json "$report" 'd["spill_count"]')" 1
is "  nothing stays charged" "$(left)" "[0, 0, 0]"
run GPUCACHE_MANAGED=limit GPUCACHE_TENANTS='some=*:40MiB' "$program" direct > "$TMP/out"
is "a tenant's limit counts, too" "$(cat "$TMP/out")" "2 2 2 2"
done_testing
