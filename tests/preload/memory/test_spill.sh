#!/bin/bash
# GPUCACHE_OVERCOMMIT=spill: a program that needs more than its limit, or the device, keeps the rest in host memory; every byte is where
# it was written; the report says what lay there. (The context takes 64 MiB of the limit.)
# timeout: 240
. "$(dirname "$0")/../../lib.sh"
program=$BUILD_DIR/tests/preload/spill
report=$TMP/report.json
run() { preloaded SIMCUDA_MEMORY=512MiB GPUCACHE_LIMIT=128MiB GPUCACHE_REPORT="$report" GPUCACHE_OVERCOMMIT=spill GPUCACHE_HOST_LIMIT=1GiB "$@" 2> "$TMP/err"; }
figure() { json "$report" "d[\"$1\"]"; }
value() { json "$report" "$1"; }

for backend in vmm driver; do
    for way in driver runtime async; do
        if [ "$backend $way" = "driver async" ]; then # stream-ordered memory is the driver's own there
            continue
        fi
        is "backend $backend, $way: every byte is there" "$(run GPUCACHE_BACKEND=$backend "$program" $way) $?" "1 0"
        like "  it is said once" "$(grep -c 'lie in host memory now' "$TMP/err") $(cat "$TMP/err")" '^1 '
        is "  all went back" "$(value 'd["spilled_bytes"]["current"]')" 0
        ok "  it was 96 MiB at least" test "$(value 'd["spilled_bytes"]["peak"]')" -ge $((96 << 20))
        ok "  the device held no more than the limit" test "$(value 'd["reserved_bytes"]["peak"]')" -le $((128 << 20))
        is "  nothing was refused" "$(figure oom_count)" 0
    done
done
run GPUCACHE_BACKEND=vmm "$program" driver > /dev/null
moves() { json "$report" 'sorted({(b["api"], b["reason"], b["moved"]) for b in d["spilled"]})'; }
is "with mapped memory older blocks give way" "$(moves)" '[["cuMemAlloc_v2", "limit", true]]'
run GPUCACHE_BACKEND=vmm "$program" async > /dev/null
is "  stream-ordered ones, too" "$(moves)" '[["cuMemAllocAsync", "limit", true]]'
is "  as many as make room together: every byte is there" "$(run GPUCACHE_BACKEND=vmm "$program" many) $?" "1 0"
is "  and no more" "$(json "$report" '[(b["bytes"] >> 20, b["moved"]) for b in d["spilled"]]')" '[[6, true], [6, true], [6, true], [6, true]]'
for way in driver async; do
    is "a tenant's own give way for it, $way: every byte is there" "$(run GPUCACHE_BACKEND=vmm GPUCACHE_TENANTS='all=*:56MiB' "$program" $way) $?" "1 0"
    like "  by its limit" "$(moves)" '^\[\["cuMemAlloc(_v2|Async)", "tenant", true\]\]$'
done
is "  not where it has none that suffice" "$(run GPUCACHE_BACKEND=vmm GPUCACHE_TENANTS='all=*:20MiB' "$program" oom)" "served 0, 1"
run GPUCACHE_BACKEND=driver "$program" driver > /dev/null
is "  with driver allocations the request does" "$(json "$report" 'sorted({b["moved"] for b in d["spilled"]})')" '[false]'
for backend in vmm driver; do
    is "$backend: threads whose blocks move under their work" "$(run GPUCACHE_BACKEND=$backend timeout 100 "$BUILD_DIR/tests/preload/spill_threads" 150) $?" "done 0"
    is "  all went back" "$(json "$report" '[d["spilled_bytes"]["current"], d["leak_count"], d["oom_count"]]')" "[0, 0, 0]"
    ok "  it was some" test "$(json "$report" 'd["spill_count"]')" -gt 10
done
is "a driver without such pages: host allocations" \
    "$(run SIMCUDA_DRIVER_VERSION=12010 GPUCACHE_BACKEND=vmm "$program" driver) $(value 'd["driver_calls"].get("cuMemHostAlloc", 0) > 0')" "1 true"
run GPUCACHE_BACKEND=vmm "$program" driver > /dev/null
is "the report lists each block" "$(json "$report" 'len(d["spilled"])') $(json "$report" 'd["spill_count"]')" "12 12"
is "  with what it is and why" "$(json "$report" 'sorted({(b["bytes"], b["api"], b["reason"], b["end_s"] > b["at_s"], b["cost_ms"] > 0) for b in d["spilled"]})')" \
    '[[25165824, "cuMemAlloc_v2", "limit", true, true]]'
"$TOOL" report "$report" > "$TMP/text"
like "the text lists them" "$(cat "$TMP/text")" '^     at [0-9.]+ s to [0-9.]+ s: 24.0 MiB, limit full, [0-9.]+ .s, moved$'
like "  and says which limit would do" "$(tr '\n' ' ' < "$TMP/text" | tr -s ' ')" '96.0 MiB lay in host memory on device 0: a limit of 2[0-9][0-9].[0-9] MiB would end it'
limit=$(tr '\n' ' ' < "$TMP/text" | sed -n 's/.*a limit of \([0-9.]*\) MiB would end it.*/\1/p')
run GPUCACHE_LIMIT="${limit}MiB" "$program" oom > /dev/null
is "  which is true" "$(json "$report" 'd["spill_count"]')" 0
is "a device that is full" "$(run SIMCUDA_MEMORY=128MiB GPUCACHE_LIMIT=512MiB "$program" oom) $(json "$report" 'd["spilled"][0]["reason"]')" "served 6, 1 device"
is "a group that is full" "$(run GPUCACHE_LIMIT=400MiB GPUCACHE_GROUP=some GPUCACHE_GROUP_LIMIT=128MiB "$program" oom) $(json "$report" 'd["spilled"][0]["reason"]')" \
    "served 6, 1 group"
is "an export is refused" "$(run "$program" ipc) $?" "1 0"
like "  with the reason" "$(cat "$TMP/err")" 'lies in host memory \(GPUCACHE_OVERCOMMIT=spill\) and cannot be exported'
is "the host's limit holds" "$(run GPUCACHE_HOST_LIMIT=64MiB "$program" oom)" "served 4, 1"
is "without the option memory is refused" "$(run GPUCACHE_OVERCOMMIT=off "$program" oom)" "served 2, 1"
is "  swap alone spills nothing" "$(run GPUCACHE_OVERCOMMIT=swap "$program" oom)" "served 2, 1"
is "swap,spill does" "$(run GPUCACHE_OVERCOMMIT=swap,spill "$program" oom)" "served 6, 1"
run GPUCACHE_DEBUG=poison "$program" oom > "$TMP/out"
is "the debug aids refuse" "$(cat "$TMP/out")" "served 2, 1"
like "  and say so" "$(cat "$TMP/err")" 'GPUCACHE_OVERCOMMIT=spill has no effect with GPUCACHE_DEBUG'
done_testing
