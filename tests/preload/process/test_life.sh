#!/bin/bash
# How processes begin, multiply and end: fork, exec, threads, constructors, exit from a thread, _exit, dlclose, contexts
# destroyed with live blocks. Each runs as it does without the library and leaves the report it should, or none.
# timeout: 400
. "$(dirname "$0")/../../lib.sh"
life=$BUILD_DIR/tests/preload/life

# way NAME STATUS EXPRESSION [ARGUMENT]: the program prints and ends the same without and with the library, in both modes, with
# nothing on stderr. EXPRESSION holds for its report `r`, `d` being the device's row; `none`: it must leave no report.
way() {
    local name=$1 want_status=$2 expression=$3 argument=${4:-} without with status mode reports
    without=$(timeout 120 env LD_LIBRARY_PATH="$SIM_DIR" "$life" "$name" ${argument:+"$argument"} 2>&1)
    is "$name: ends with $want_status without the library" "$?" "$want_status"
    for mode in cache track; do
        rm -rf "$TMP/reports"
        mkdir "$TMP/reports"
        with=$(GPUCACHE_MODE=$mode GPUCACHE_REPORT=$TMP/reports/%p.json \
            timeout 120 env LD_LIBRARY_PATH="$SIM_DIR" LD_PRELOAD="$LIB" "$life" "$name" ${argument:+"$argument"} 2>&1)
        status=$?
        is "$name, $mode: ends with $want_status" "$status" "$want_status"
        is "$name, $mode: prints the same" "$with" "$without"
        reports=("$TMP"/reports/*)
        if [ "$expression" = none ]; then
            ok "$name, $mode: leaves no report" test ! -e "${reports[0]}"
        elif [ ! -e "${reports[0]}" ]; then
            ok "$name, $mode: leaves a report" false
        else
            is "$name, $mode: number of reports" "${#reports[@]}" "${want_reports:-1}"
            is "$name, $mode: the report holds: $expression" "$(json "${reports[0]}" "$expression")" true
        fi
    done
}

balanced='d["leak_count"] == 0 and d["requested_bytes"]["current"] == 0 and d["alloc_count"] == d["free_count"]'
way fork 0 "d['alloc_count'] == 2 and $balanced"
way fork 0 "d['alloc_count'] == 2 and $balanced" raw
want_reports=2 way fork-first 0 "d['alloc_count'] == 1 and $balanced"
way exec 0 "d['alloc_count'] == 1 and $balanced" /bin/true
way threads 0 "d['alloc_count'] == 1600 and $balanced"
way start-together 0 "d['alloc_count'] == 8 and $balanced"
way exit-from-thread 6 "d['alloc_count'] == 1 and $balanced"
way main-ends-first 0 "d['alloc_count'] == 1 and $balanced"
way quick-end 9 none
way killed 137 none
way late-handler 0 'd["alloc_count"] >= 1 and d["leak_count"] == 0'
export LIFE_CONSTRUCTOR=1
way constructor 0 'd["alloc_count"] == 2'
unset LIFE_CONSTRUCTOR
way dlclose 0 'd["alloc_count"] == 3 and d["leak_count"] == 1 and d["leak_bytes"] == 3333' "$BUILD_DIR/tests/preload/libplugin.so"
way context-destroyed 0 'd["alloc_count"] == 201 and d["leak_count"] == 0 and d["requested_bytes"]["current"] == 0'
done_testing
