#!/bin/bash
# Whole programs of both APIs, each using most of what there is: they print the same without the library and in each of its
# modes, and the report agrees with the program's own counts and with the driver's journal, entry point by entry point.
# timeout: 400
. "$(dirname "$0")/../lib.sh"
export SIMCUDA_MEMORY=4GiB

# What the program counted itself of the entry points that allocate device memory, as counts.py wants it.
own_counts() {
    python3 -c '
import json, sys
wanted = {"cudaMalloc", "cudaMallocPitch", "cudaMalloc3D", "cudaMallocManaged", "cudaMallocAsync", "cudaMallocArray",
          "cudaMalloc3DArray", "cuMemAllocManaged", "cuMemAllocAsync", "cuMemCreate",
          "cuMemAlloc_v2", "cuMemAllocPitch_v2", "cuArrayCreate_v2"}
counts = {}
for line in sys.stdin:
    words = line.split()
    if words[:1] == ["count"] and words[1] in wanted:
        counts[words[1]] = int(words[2])
if "cudaMalloc" in counts:
    counts["cudaMalloc"] -= 1  # one is of 0 bytes: it succeeds and allocates nothing
if sys.argv[1:] == ["static"]:
    # Two entry points of a runtime that is part of the program are one of the driver.
    counts["cudaMallocPitch"] = counts.get("cudaMallocPitch", 0) + counts.pop("cudaMalloc3D", 0)
    counts = {n: c for n, c in counts.items() if not n.endswith("Array")}
print(json.dumps(counts))' "$@"
}

for program in vector-shared vector-static driver_linked driver_dlopen; do
    path=$BUILD_DIR/tests/clients/$program
    if [ ! -x "$path" ]; then
        skip "$program" "not built: there is no nvcc here"
        continue
    fi
    flags=() kind=()
    [ $program != vector-static ] || flags=(--static-runtime) kind=(static)
    plain=$(simulated "$path" 2>&1)
    is "$program: runs without the library" "$?" 0
    for mode in off track cache; do
        report=$TMP/$program.$mode.json
        journal=$TMP/$program.$mode.journal
        out=$(GPUCACHE_MODE=$mode GPUCACHE_REPORT=$report SIMCUDA_JOURNAL=$journal preloaded "$path" 2>&1)
        is "$program, mode $mode: prints the same" "$out" "$plain"
        [ $mode != off ] || continue
        ok "$program, mode $mode: report, program and journal agree" \
            python3 "$ROOT/tests/preload/routes/counts.py" "$report" "$journal" "$(own_counts "${kind[@]}" <<< "$out")" "${flags[@]}"
    done
done
done_testing
