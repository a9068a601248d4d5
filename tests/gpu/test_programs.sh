#!/bin/bash
# On a GPU, with NVIDIA's own driver and runtime: programs run under the library as they do without it.
# timeout: 400
. "$(dirname "$0")/../lib.sh"
. "$ROOT/scripts/gpu-env.sh"
if ! has_gpu; then
    skip "programs on a GPU" "there is no NVIDIA GPU here"
    done_testing
fi
use_toolkit_libraries

# The program's lines but the measured time.
result() { "$@" 2>&1 | grep -v '^malloc'; }

for program in train-shared train-nvidia train_driver; do
    path=$BUILD_DIR/tests/demo/$program
    if [ ! -x "$path" ]; then
        skip "$program" "not built (no nvcc)"
        continue
    fi
    without=$(result "$path")
    like "$program: memory is right without the library" "$without" '^wrong bytes +0$'
    for mode in off track cache; do
        with=$(result env LD_PRELOAD="$LIB" GPUCACHE_MODE=$mode GPUCACHE_REPORT="$TMP/report.json" "$path")
        is "$program: the same in mode $mode" "$with" "$without"
        if [ $mode != off ]; then
            is "$program: every allocation is counted in mode $mode" "$(json "$TMP/report.json" 'd["alloc_count"] >= 4000')" true
            is "$program: nothing leaks in mode $mode" "$(json "$TMP/report.json" 'd["leak_count"]')" 0
        fi
        rm -f "$TMP/report.json"
    done
    with=$(LD_PRELOAD="$LIB" GPUCACHE_LIMIT=8MiB GPUCACHE_REPORT="$TMP/report.json" "$path" 2>&1)
    is "$program: a limit too small ends it with its own error" "$?" 1
    like "$program: and the error is out of memory" "$with" 'out of memory|CUDA error 2'
    is "$program: reserved stays below the limit" "$(json "$TMP/report.json" 'd["reserved_bytes"]["peak"] <= 8 << 20')" true
    rm -f "$TMP/report.json"
done
done_testing
