#!/bin/bash
# Memory that the driver takes for itself (code at a kernel's first launch) is found by NVML's figure for the process: it
# counts in the limit, in queries, in the report and in gpucache top.
. "$(dirname "$0")/../../lib.sh"

program=$BUILD_DIR/tests/preload/driver_memory
lazy=$((96 << 20)) limit=$((512 << 20))
run() { preloaded env SIMCUDA_LAZY=96MiB GPUCACHE_LIMIT=512MiB GPUCACHE_REPORT="$TMP/report.json" "$@"; }
number() { json "$TMP/report.json" "$1"; }

out=$(run "$program" $lazy $limit 2>&1)
like "the query of free memory knows of it" "$out" "found yes"
like "what the device holds of the process stays within the limit" "$out" "within the limit yes"
like "the limit can be used" "$out" "near the limit yes"
is "the report has it, and its peak" "$(number "[$lazy <= d['driver_bytes'][k] <= $lazy + (8 << 20) for k in ('current', 'peak')]")" "[true, true]"
is "as memory outside the pool" "$(number "d['direct_bytes']['driver'] == d['driver_bytes']['current']")" true
is "and part of what is reserved" "$(number "d['reserved_bytes']['current'] - d['driver_bytes']['current'] - d['context_bytes']['current'] >= $limit / 2")" true
like "its text names it" "$("$TOOL" report "$TMP/report.json")" "^ +driver +[0-9]+.*taken by the driver"

# A group's limit has it too.
out=$(preloaded env SIMCUDA_LAZY=96MiB GPUCACHE_GROUP=driver GPUCACHE_GROUP_LIMIT=512MiB GPUCACHE_REPORT=none "$program" $lazy $limit 2>&1 | without_refusals)
is "in a group" "$(tr '\n' ' ' <<< "$out")" "found yes within the limit yes near the limit yes "

# Without a limit nothing of the driver's is measured: NVML stays away.
out=$(preloaded env SIMCUDA_LAZY=96MiB GPUCACHE_REPORT="$TMP/report.json" SIMCUDA_JOURNAL="$TMP/journal" "$BUILD_DIR/tests/demo/train_driver" 2000 2>&1)
is "without a limit it is not measured" "$(number "d['driver_bytes']['peak']")" 0

# gpucache top, of a process that goes on.
run env GPUCACHE_GROUP=one "$program" $lazy $limit stay > "$TMP/out" 2>&1 &
child=$!
for _ in $(seq 300); do
    grep -q near "$TMP/out" && break
    sleep 0.1
done
"$TOOL" top --once --json > "$TMP/top.json"
is "gpucache top shows it" "$(python3 -c 'import json, sys; print([96 <= d["driver_bytes"] >> 20 <= 104 for p in json.load(sys.stdin)["processes"] for d in p["devices"]])' < "$TMP/top.json")" "[True]"
like "in its table too" "$("$TOOL" top --once)" "DRIVER"
kill $child
wait $child 2> /dev/null
done_testing
