#!/bin/bash
# Drivers without an event for a whole context: a fence asks only the streams that have had work since the last one, and the
# legacy stream, which all blocking ones wait for, only where it, or a thread's own stream, was used.
# timeout: 300
. "$(dirname "$0")/../../lib.sh"
program=$BUILD_DIR/tests/preload/overlap
journal=$TMP/journal
export GPUCACHE_REPORT=none SIMCUDA_MEMORY=1GiB

for version in 11080 12040 13000; do
    is "driver $version: the test itself is right, without the library" \
        "$(SIMCUDA_DRIVER_VERSION=$version simulated timeout 40 "$program" quiet 2>&1)" "done"
    for backend in vmm driver; do
        is "driver $version, $backend: a stream that stands still holds no other one up" \
            "$(GPUCACHE_BACKEND=$backend SIMCUDA_DRIVER_VERSION=$version preloaded timeout 40 "$program" held 2>&1)" "done"
    done
done

# recorded CASE: the streams in which events were recorded between the program's two marks, each with how often.
recorded() {
    rm -f "$journal"
    SIMCUDA_DRIVER_VERSION=12040 SIMCUDA_JOURNAL=$journal preloaded timeout 40 "$program" "$1" >"$TMP/out" 2>&1
    awk -v last="$(grep -c ' cuDriverGetVersion ' "$journal")" '$3 == "cuDriverGetVersion" {n++; next}
        n == last - 1 && $3 == "cuEventRecord" {count[$6]++} END {for (stream in count) print stream, count[stream]}' "$journal"
}
recorded quiet >"$TMP/quiet"
sed 's/^/# /' "$TMP/quiet"
# Streams may share a counter: one in a hundred runs has an idle one asked as well.
ok "idle streams: the one with work is asked, the library's own, hardly any other" test "$(wc -l <"$TMP/quiet")" -le 4
ok "once for each fence" test "$(awk '{print $2}' "$TMP/quiet" | sort -n | tail -1)" -le 200
is "the legacy stream is left alone" "$(grep -c '^0x1 ' "$TMP/quiet")" 0
for case in legacy own; do
    recorded $case >"$TMP/out.$case"
    is "$case: the legacy stream is asked once" "$(grep '^0x1 ' "$TMP/out.$case")" "0x1 1"
    ok "$case: besides the other two" test "$(wc -l <"$TMP/out.$case")" -le 5
done
done_testing
