#!/bin/bash
# A program gets the same results and the same error codes without the library and with it in each mode, for right
# and wrong uses alike.
# timeout: 400
. "$(dirname "$0")/../../lib.sh"
export SIMCUDA_MEMORY=4GiB

# compare PROGRAM
compare() {
    local program=$1 path=$BUILD_DIR/tests/preload/$1 without with mode
    if [ ! -x "$path" ]; then
        skip "$program" "not built: there is no nvcc here"
        return
    fi
    without=$(simulated "$path" 2>&1)
    is "$program: runs without the library" "$?" 0 || printf '%s\n' "$without" | sed 's/^/# /'
    for mode in off track cache; do
        with=$(GPUCACHE_MODE=$mode GPUCACHE_REPORT=none refusing preloaded "$path" 2>&1)
        is "$program, mode $mode: ends the same way" "$?" 0
        if [ "$with" = "$without" ]; then
            ok "$program, mode $mode: the same answers" true
        else
            ok "$program, mode $mode: the same answers" diff -u --label without --label "$mode" \
                <(printf '%s\n' "$without") <(printf '%s\n' "$with")
        fi
    done
}

compare modes
compare states
compare states_runtime
compare modes_runtime-shared
compare modes_runtime-static
done_testing
