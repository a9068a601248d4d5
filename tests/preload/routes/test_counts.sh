#!/bin/bash
# The calls in the report are those of the program and those that the driver saw, entry point by entry point: for
# programs of the driver API (linked, and by dlopen) and of the runtime (shared, and static).
# timeout: 400
. "$(dirname "$0")/../../lib.sh"

for program in counted_linked counted_dlopen counted_runtime-shared counted_runtime-static; do
    path=$BUILD_DIR/tests/preload/$program
    if [ ! -x "$path" ]; then
        skip "$program" "not built: there is no nvcc here"
        continue
    fi
    flags=()
    [ $program != counted_runtime-static ] || flags=(--static-runtime)
    for mode in cache track limited; do
        # With a limit the context is measured and charged: under its own entry point, not that of the program's first call.
        limit=()
        [ $mode != limited ] || limit=(GPUCACHE_LIMIT=2GiB)
        report=$TMP/$program.$mode.json
        journal=$TMP/$program.$mode.journal
        counted=$(env "${limit[@]}" GPUCACHE_MODE="${mode/limited/cache}" GPUCACHE_REPORT="$report" SIMCUDA_JOURNAL="$journal" \
            LD_LIBRARY_PATH="$SIM_DIR" LD_PRELOAD="$LIB" "$path")
        is "$program, mode $mode: runs" "$?" 0 || continue
        ok "$program, mode $mode: report, program and journal agree" \
            python3 "$ROOT/tests/preload/routes/counts.py" "$report" "$journal" "$counted" "${flags[@]}"
        is "$program, mode $mode: the one block never freed is the leak" \
            "$(json "$report" '[[l["bytes"] for l in d["leaks"]], d["leak_count"], d["leak_bytes"]]')" '[[4242], 1, 4242]'
    done
    calls() { json "$TMP/$program.$1.json" 'sum(n for e, n in d["driver_calls"].items() if e.startswith("cuMemAlloc_"))'; }
    ok "$program: the cache asks the driver less: $(calls cache) against $(calls track)" \
        test "$(calls cache)" -lt $(($(calls track) / 4))
done
done_testing
