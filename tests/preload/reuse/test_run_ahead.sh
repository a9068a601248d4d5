#!/bin/bash
# Stream-ordered memory of varying sizes, allocated and freed while the device is held up: what is reserved stays near what is
# live, and every block holds what its stream wrote. Memory that is freed serves its stream at once, in parts and coalesced.
# timeout: 200
. "$(dirname "$0")/../../lib.sh"
program=$BUILD_DIR/tests/preload/run_ahead
report=$TMP/report.json
export GPUCACHE_REPORT=$report GPUCACHE_BACKEND=vmm

for case in "1 155" "2 205" "4 260"; do # streams do not share what is pending
    read -r streams most <<<"$case"
    live=$(preloaded timeout 90 "$program" "$streams" 2>"$TMP/errors")
    is "$streams streams: each block holds what its stream wrote" "$?:$(cat "$TMP/errors")" "0:"
    percent=$(($(json "$report" 'd["reserved_bytes"]["peak"]') * 100 / ${live:-1}))
    ok "$streams streams: reserved is $percent % of live, at most $most" test "$percent" -le "$most"
done
done_testing
