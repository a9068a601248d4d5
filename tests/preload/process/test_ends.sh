#!/bin/bash
# Unusual ends: exit in a handler, in a signal handler wherever the program was, with threads at work, during a capture, while
# paused; aborts and signals; destructors that free; a driver that was closed. The program ends as it does without the library,
# at once, and leaves one whole report or none.
# timeout: 400
. "$(dirname "$0")/../../lib.sh"
ends=$BUILD_DIR/tests/preload/ends
object=$BUILD_DIR/tests/preload/libends.so
more=(GPUCACHE_GROUP=ends GPUCACHE_STACKS=all)

# run NAME STATUS REPORT COMMAND…: REPORT is `none` or an expression that holds.
run() {
    local name=$1 want_status=$2 expression=$3 mode without with status reports
    shift 3
    without=$(simulated timeout 60 "$@" 2>&1)
    is "$name: ends with $want_status without the library" "$?" "$want_status"
    for mode in cache track; do
        rm -rf "$TMP/reports"
        mkdir "$TMP/reports"
        with=$(preloaded GPUCACHE_MODE=$mode GPUCACHE_REPORT="$TMP/reports/%p.json" GPUCACHE_TRACE="$TMP/trace" "${more[@]}" \
            timeout 60 "$@" 2>&1)
        status=$?
        is "$name, $mode: ends with $want_status" "$status" "$want_status"
        is "$name, $mode: prints the same" "$with" "$without"
        reports=("$TMP"/reports/*)
        if [ "$expression" = none ]; then
            ok "$name, $mode: leaves no report" test ! -e "${reports[0]}"
        else
            is "$name, $mode: one report" "${#reports[@]}" 1
            is "$name, $mode: the report holds: $expression" "$(json "${reports[0]}" "$expression")" true
        fi
        ok "$name, $mode: the trace is whole" "$TOOL" trace "$TMP/trace"
    done
}
run exit-in-handler 8 'd["alloc_count"] == 2 and d["leak_count"] == 1' "$ends" exit-in-handler
run during-capture 0 'd["leak_bytes"] == 1 << 20' "$ends" during-capture
run context-gone 0 'd["alloc_count"] == 1 and d["leak_count"] == 0' "$ends" context-gone
run main-returns 3 'd["alloc_count"] > 0' "$ends" main-returns
run quick-exit 5 none "$ends" quick-exit
run abort 134 none "$ends" abort
run term 143 none "$ends" term
run driver-closed 0 'd["leak_bytes"] == 1 << 20' "$BUILD_DIR/tests/preload/driver_closed"
run object 0 'd["alloc_count"] >= 1' "$ends" object "$object"
run object-threads 0 'd["alloc_count"] == 48' "$ends" object-threads "$object"
run closed-object 0 'd["alloc_count"] == 3 and d["leak_bytes"] == 1 << 20' "$ends" closed-object "$object"
# Contexts end in other threads, or under the signal handler that exits: at once, with a whole report or a word why not.
for settings in GPUCACHE_MODE=cache GPUCACHE_BACKEND=driver "GPUCACHE_STACKS=all GPUCACHE_GROUP=ends"; do
    wrong=''
    for us in $(seq 0 5137 28000); do
        for way in while-ending:3 signal-while-ending:4; do
            rm -f "$TMP/ending.json"
            # shellcheck disable=SC2086 # words
            out=$(preloaded $settings GPUCACHE_REPORT="$TMP/ending.json" timeout -s KILL 20 "$ends" "${way%:*}" "$us" 2>&1)
            status=$?
            [ "$status" = "${way#*:}" ] || wrong="$wrong $way $us:$status:$out"
            if [ -e "$TMP/ending.json" ]; then
                python3 -m json.tool "$TMP/ending.json" > /dev/null || wrong="$wrong $way $us:report"
            elif [[ $out != *"in the middle of"* ]]; then
                wrong="$wrong $way $us:silent:$out"
            fi
        done
    done
    is "contexts end at the end, $settings" "$wrong" ""
done
for order in "$LIB:$object" "$object:$LIB"; do
    out=$(preloaded GPUCACHE_REPORT="$TMP/r.json" LD_PRELOAD="$order" timeout 60 "$ends" object "$object" 2>&1)
    is "a destructor of another preload: ${order##*/} last" "$out" $'the destructor\'s free: ok\nits allocation: ok'
done
out=$(preloaded GPUCACHE_REPORT="$TMP/paused.json" "${more[@]}" timeout 60 "$ends" while-paused 2>&1)
is "while paused, with threads waiting: ends" "$? $out" "0 paused"
is "while paused: a report" "$(json "$TMP/paused.json" 'd["alloc_count"] > 0')" true

# An exit in a signal handler, wherever the program is: as often as not in the middle of an allocation.
for settings in GPUCACHE_MODE=cache GPUCACHE_MODE=track "GPUCACHE_MODE=cache GPUCACHE_TRACE=$TMP/signal.trace" \
    "GPUCACHE_STACKS=all GPUCACHE_GROUP=ends"; do
    wrong='' whole=0
    for us in $(seq 0 2137 49000); do
        rm -f "$TMP/signal.json"
        # shellcheck disable=SC2086 # words
        out=$(preloaded $settings GPUCACHE_REPORT="$TMP/signal.json" timeout -s KILL 10 "$ends" exit-in-signal "$us" 2>&1)
        status=$?
        [ "$status" = 4 ] || wrong="$wrong $us:$status"
        if [ -e "$TMP/signal.json" ]; then
            python3 -m json.tool "$TMP/signal.json" > /dev/null || wrong="$wrong $us:report"
            whole=$((whole + 1))
        elif [[ $out != *"in the middle of"* ]]; then
            wrong="$wrong $us:silent:$out"
        fi
    done
    is "exit in a signal handler, ${settings//$TMP\//}: always ends, with a report or a word why not" "$wrong" ""
    ok "exit in a signal handler, ${settings//$TMP\//}: $whole reports" test "$whole" -gt 0
done
# Inside a walk of the loaded objects, whose lock the end of the process would wait for.
wrong='' whole=0
for n in 1 2 3 17 100; do
    rm -f "$TMP/walk.json"
    out=$(LD_LIBRARY_PATH="$SIM_DIR" GPUCACHE_STACKS=all GPUCACHE_REPORT="$TMP/walk.json" timeout -s KILL 60 env \
        LD_PRELOAD="$BUILD_DIR/tests/preload/libwalk.so:$LIB" WALK_AT=$n "$ends" exit-in-signal 50000000 2>&1)
    status=$?
    if [ -e "$TMP/walk.json" ]; then
        whole=$((whole + 1))
    elif [[ $out != *"in the middle of"* ]]; then
        wrong="$wrong $n:silent:$out"
    fi
    [ $status = 4 ] || wrong="$wrong $n:$status"
done
is "exit in a signal handler inside the dynamic linker's lock: always ends, with a report or a word why not" "$wrong" ""
ok "exit in a signal handler inside the dynamic linker's lock: $whole reports" test $whole -gt 0
is "a report of it: whole, with addresses where frames have no name" \
    "$(json "$TMP/walk.json" 'd["leak_count"] >= 1 and len(d["leaks"][0]["stack"]) > 0' 2>&1)" true
done_testing
