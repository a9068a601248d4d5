#!/bin/bash
# Eight threads allocate against a limit: what is held never exceeds it, every failure is
# CUDA_ERROR_OUT_OF_MEMORY, and the accounts are zero at the end.
# timeout: 400
. "$(dirname "$0")/../../lib.sh"

limit=$((256 << 20))
for mode in cache track; do
    seconds=10
    [ $mode = cache ] || seconds=3
    report=$TMP/$mode.json
    output=$(GPUCACHE_LIMIT=$limit GPUCACHE_MODE=$mode GPUCACHE_REPORT=$report \
        preloaded "$BUILD_DIR/tests/preload/limit_threads" $seconds $limit 2>&1)
    is "mode $mode: the program saw nothing wrong in $seconds s" "$?" 0
    echo "# $output"
    allocations=$(echo "$output" | sed -n 's/.*allocations \([0-9]*\).*/\1/p')
    failures=$(echo "$output" | sed -n 's/.*failures \([0-9]*\).*/\1/p')
    ok "mode $mode: the limit was met: ${failures:-0} failures" test "${failures:-0}" -gt 0
    is "mode $mode: the limit in the report" "$(json "$report" 'd["limit_bytes"]')" $limit
    is "mode $mode: reserved never exceeded it" "$(json "$report" '0 < d["reserved_bytes"]["peak"] <= d["limit_bytes"]')" true
    is "mode $mode: every allocation is counted" "$(json "$report" 'd["alloc_count"]')" "${allocations:-none}"
    is "mode $mode: every failure is counted" "$(json "$report" 'd["oom_count"]')" "${failures:-none}"
    is "mode $mode: as many frees" "$(json "$report" 'd["free_count"]')" "${allocations:-none}"
    is "mode $mode: accounts are zero at the end" \
        "$(json "$report" '[d[g + "_bytes"]["current"] for g in ("requested", "allocated", "reserved", "pending")] + [d["leak_count"]]')" \
        '[0, 0, 0, 0, 0]'
done
done_testing
