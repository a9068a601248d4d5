#!/bin/bash
# The gpucache command: every mistake on its command line, its exit statuses, and a run from start to report.
# shellcheck disable=SC2016
. "$(dirname "$0")/../../lib.sh"
cd "$TMP" || exit 1

# fails WANT_STATUS WANT_REGEX ARGUMENTS…: one line on stderr that matches, nothing on stdout, that status.
fails() {
    local want=$1 regex=$2 status shown
    shift 2
    shown=${*//[[:cntrl:]]/?}
    "$TOOL" "$@" > out 2> err
    status=$?
    is "gpucache $shown: exit status" "$status" "$want"
    is "gpucache $shown: one line" "$(wc -l < err)" 1
    is "gpucache $shown: nothing on stdout" "$(cat out)" ""
    like "gpucache $shown: names the error" "$(cat err)" "$regex"
}

# ---- the command line ----
"$TOOL" > out 2> err
is "without arguments: usage" $? 2
like "without arguments: shows the usage" "$(cat err)" '^usage: gpucache COMMAND'
is "--version" "$("$TOOL" --version)" "gpucache $(cat "$ROOT/VERSION")"
ok "--help" "$TOOL" --help
like "--help names every command" "$("$TOOL" --help)" '^  doctor  +check the library'
is "--help fits 80 columns" "$("$TOOL" --help | awk 'length > 80')" ""
like "help options lists variables" "$("$TOOL" help options)" '^GPUCACHE_LIMIT$'
is "help options fits 84 columns" "$("$TOOL" help options | awk 'length > 84 && NR > 5')" ""
for command in run report trace estimate plan replay top limit trim pause resume doctor; do
    like "$command --help" "$("$TOOL" $command --help)" "^usage: gpucache $command "
    is "help $command is the same" "$("$TOOL" help $command)" "$("$TOOL" $command --help)"
    is "$command --help fits 80 columns" "$("$TOOL" $command --help | awk 'length > 80')" ""
done
for option in train engine; do
    accepted=$("$TOOL" estimate x "--$option" x 2>&1 | sed -n 's/.*accepted: \(.*\); see .*/\1/p')
    like "estimate --help names all that --$option accepts" "${accepted:-nothing}: $("$TOOL" estimate --help | tr -s ' \n' ' ')" \
        "^([^:]+): .* --$option .*\1"
done
fails 2 'unknown command runn; nearest: run' runn
fails 2 'unknown command qwertz; see gpucache --help' qwertz
fails 2 'one command, not also x' help run x
fails 2 'unknown command --nonsense' --nonsense
fails 2 'unknown command x' help x
"$TOOL" --help > /dev/full 2> err
is "a full standard output is a failure" $? 1
# Into a pipe that nobody reads: the end that other programs have, without a word.
unread='import os, subprocess, sys; ends = os.pipe(); os.close(ends[0])
print(subprocess.run(sys.argv[1:], stdout=ends[1]).returncode)'
is "standard output that nobody reads" "$(python3 -c "$unread" "$TOOL" help options 2>&1)" -13

# ---- top, limit, trim, pause, resume ----
export GPUCACHE_LEDGER=$TMP/ledger
fails 2 '--interval 0 is not valid; accepted: seconds, 0.1 to 60' top --interval 0
fails 2 '--sort size is not valid; accepted: reserved, live' top --sort size
fails 2 'unexpected argument x' top x
fails 1 'no device is 3; gpucache top --once lists them' top --once --device 3
is "top: nobody there: the head alone" "$("$TOOL" top --once | wc -l)" 1
is "top: nobody there: JSON" "$("$TOOL" top --json | tr -d ' \n' | sed 's/.*"devices"/"devices"/')" \
    '"devices":[],"groups":[],"processes":[]}'
fails 2 'a process or group is missing' limit
fails 2 'a size is missing' limit train
fails 2 'one size, not also y' limit train 4g y
for size in 0 4x -1 0=4g,1=5g; do
    fails 2 "($size is not a limit; accepted: a size or percentage above 0, none|unknown option)" limit train $size
done
fails 2 '--timeout x is not valid; accepted: seconds' limit train 4g --timeout x
for command in trim pause resume; do
    fails 2 'is missing' $command
    fails 2 '--timeout -1 is not valid; accepted: seconds, 0 to 86400' $command x --timeout=-1
    fails 2 'pid:x is not a PID' $command pid:x
    fails 1 'no process has the PID 4194999' $command 4194999
    fails 1 'no (group|tenant) is called nobody' $command nobody
done
fails 2 'unknown option --drop' resume x --drop
mkdir -m 755 loose
GPUCACHE_LEDGER=$TMP/loose fails 1 'loose' top --once
ok "no command makes a ledger" test ! -e "$TMP/ledger"

# ---- run ----
fails 2 'a command is missing; see gpucache run --help' run
fails 2 'a command is missing' run --
fails 2 'a command is missing' run --limit 4GiB
fails 2 '--limit needs a value' run --limit
fails 2 '--limit needs a value' run --limit= -- true
fails 2 '--limit 0m is not valid; accepted: a size' run --limit 0m -- true
fails 2 '--limit is given twice' run --limit 1g --limit 2g -- true
fails 2 '--mode fast is not valid; accepted: cache, track, off' run --mode fast -- true
fails 2 '--gate shut is not valid; accepted: off, warn, deny, exit' run --model m --gate shut -- true
fails 2 '--budget x is not valid' run --model m --budget x -- true
fails 2 'need --model' run --gate deny -- true
fails 1 'no-model: No such file or directory' run --model no-model -- true
fails 2 'unknown option --bogus' run --bogus -- true
fails 2 'unknown option --limt; nearest: --limit' run --limt 1g -- true
fails 2 '--report needs a value' run --report --limit 1g -- true
fails 2 '--trace needs a value' run --trace -- true
ok "no option is taken for a file" test ! -e ./--limit -a ! -e ./--
fails 2 'a command is missing' run ''
fails 127 'no-such-program: no such program in PATH$' run -- no-such-program
fails 127 'no/such: No such file or directory$' run -- no/such
fails 127 'GB: no such program in PATH; only options with one-word values may come before --' run --limit 8 GB -- true
touch not-executable
fails 126 'not-executable: Permission denied' run -- ./not-executable
"$TOOL" run -- sh -c 'exit 37'
is "run: exit status of the program" $? 37
is "run: -- may be left out" "$("$TOOL" run echo a --limit b)" "a --limit b"
show='echo "$LD_PRELOAD|$GPUCACHE_LIMIT|$GPUCACHE_MODE|$GPUCACHE_REPORT|$GPUCACHE_TRACE"'
is "run: sets the variables" \
    "$("$TOOL" run --limit 0=1g,1=50% --mode=track --report r.json --trace /t -- sh -c "$show")" \
    "$(realpath "$LIB")|0=1g,1=50%|track|$TMP/r.json|/t"
is "run: streams stay streams" "$("$TOOL" run --report none -- sh -c 'echo $GPUCACHE_REPORT')" none
mkdir 'a%p'
is "run: a percent sign in the folder is no pattern" \
    "$(cd 'a%p' && "$TOOL" run --report r -- sh -c 'echo "$GPUCACHE_REPORT"')" "$TMP/a%%p/r"
is "run: an older preload stays behind" "$(LD_PRELOAD=libm.so.6 "$TOOL" run -- sh -c 'echo "$LD_PRELOAD"')" \
    "$(realpath "$LIB"):libm.so.6"
mkdir -p prefix/bin prefix/lib
cp "$TOOL" prefix/bin/
cp "$LIB" prefix/lib/
is "run: finds the installed library" "$(prefix/bin/gpucache run -- sh -c 'echo "$LD_PRELOAD"')" \
    "$TMP/prefix/lib/libgpucache.so"
rm prefix/lib/libgpucache.so
prefix/bin/gpucache run -- true 2> err
is "run: no library is a failure" $? 1
like "run: names the searched folders" "$(cat err)" 'libgpucache.so is neither beside'
is "run: a program without CUDA prints nothing" "$("$TOOL" run --limit 1g --trace t -- true 2>&1; ls t 2> /dev/null)" ""

# ---- report and trace: files that are none ----
: > empty
head -c 4096 /dev/urandom > noise
mkfifo fifo
for command in report trace; do
    fails 2 'a file is missing' $command
    fails 2 'unknown option --bogus' $command --bogus noise
    fails 2 '--html needs a value' $command noise --html
    fails 1 'missing: No such file or directory' $command missing
    fails 1 'empty: the file is empty' $command empty
    fails 1 "$TMP: not a regular file" $command "$TMP"
    fails 1 'fifo: not a regular file' $command fifo
    fails 2 'an empty word is not a file' $command ''
    fails 2 'standard input is not read' $command -
    fails 1 '^gpucache [a-z]+: a\?\[31mb\?c: No such' $command $'a\e[31mb\nc'
done
fails 2 'one file, not also noise' trace empty noise
fails 2 'at most 2 files, not also c' report a b c
fails 2 'two reports can only be compared on a page' report empty noise
fails 2 '--trace goes with --html' report noise --trace empty
fails 2 'more traces than reports' report noise --trace a --trace b --html x
ok "nothing was written" test ! -e x
fails 1 'noise: not JSON' report noise
fails 1 'noise: not a gpucache trace' trace noise
echo '{"schema": "other"}' > other.json
fails 1 'other.json: its schema is other, not gpucache-report/1' report other.json
fails 2 'can write to standard output' trace noise --csv - --json

# ---- from start to report ----
client=$BUILD_DIR/tests/preload/tools_client
if [ ! -e "$SIM_DIR/libcuda.so.1" ]; then
    skip "a run on the simulated device" "$SIM_DIR/libcuda.so.1 is not built"
    done_testing
fi
simulated "$TOOL" run --limit 72MiB --report r.json --trace t -- "$client" 4 3 9 > out 2> err
is "run on the device: the program's status" $? 5
is "run on the device: the limit holds" "$(cat out)" "$(printf 'init 0\nalloc 0\nalloc 0\nalloc 2\nfree 0')"
like "run on the device: why a request was refused" "$(cat err)" '^gpucache: device 0: 9.0 MiB refused: limit 72.0 MiB .GPUCACHE_LIMIT., .*; 82.0 MiB would have done$'
is "run on the device: nothing else on stderr" "$(wc -l < err)" 1
is "report: the limit" "$(json r.json 'd["limit_bytes"]')" $((72 << 20))
is "report: what was asked for" "$(json r.json 'd["by_api"]["cuMemAlloc_v2"]["bytes"]')" $((7 << 20))
is "report: out of memory" "$(json r.json 'd["oom_count"]')" 1
is "report: the leak" "$(json r.json '[l["bytes"] for l in d["leaks"] if l["api"] == "cuMemAlloc_v2"]')" "[$((3 << 20))]"
"$TOOL" report r.json > text
is "report as text: the verdict is the first line" "$(head -1 text)" \
    "== gpucache: out of memory: 1 request refused on device 0, limit 72.0 MiB"
like "report as text" "$(cat text)" '^   program    tools_client, pid [0-9]+, gpucache '
like "report as text: the limit" "$(cat text)" 'limit 72.0 MiB'
like "report as text: what to do" "$(tr -s ' \n' ' ' < text)" '1 request ran out of memory on device 0, the largest of 9.0 MiB: raise GPUCACHE_LIMIT from 72.0 MiB to at least 82.0 MiB'
is "report as text: 80 columns" "$(awk 'length > 80' text)" ""
# On a terminal it has colour, unless the user or the terminal has none.
shown() { env "$@" script -qec "$TOOL report r.json" /dev/null < /dev/null | grep -c "$(printf '\033')"; }
if command -v script > /dev/null; then
    ok "report on a terminal: colour" test "$(shown TERM=xterm)" -gt 2
    is "report on a terminal: NO_COLOR" "$(shown TERM=xterm NO_COLOR=1)" 0
    is "report on a terminal that shows none" "$(shown TERM=dumb)" 0
    is "report on a terminal: the same words" "$(TERM=xterm script -qec "$TOOL report r.json" /dev/null < /dev/null |
        sed 's/\x1b\[[0-9;]*m//g; s/\r$//')" "$(cat text)"
else
    skip "the report on a terminal" "script (Debian: bsdutils) is not installed"
fi
"$TOOL" report r.json --json > again.json
is "report --json: the same content" "$(json again.json r)" "$(json r.json r)"
# Addresses, times and the order of equal rows differ from run to run.
alike() { sed '2,5d;/: p50 /d;s/0x[0-9a-f]*//' "$@" | sort; }
is "the library prints what the tool prints" \
    "$(simulated "$TOOL" run --limit 72MiB -- "$client" 4 3 9 2>&1 > out | without_refusals | alike)" "$(alike text)"
"$TOOL" trace t --csv t.csv
is "trace --csv: status" $? 0
is "trace --csv: rows" "$(cut -d, -f1-3 t.csv)" \
    "$(printf 'op,id,bytes\na,1,%d\na,2,%d\nf,1,%d' $((4 << 20)) $((3 << 20)) $((4 << 20)))"
is "trace --csv -: the same" "$("$TOOL" trace t --csv -)" "$(cat t.csv)"
is "trace --csv: the same" "$("$TOOL" trace t --csv)" "$(cat t.csv)"
"$TOOL" trace t --json > t.json
is "trace --json: sums" "$(json t.json '[r["alloc_count"], r["free_count"], r["oom_count"], r["peak_live_bytes"]]')" \
    "[2, 1, 1, $((7 << 20))]"
is "trace --perfetto, --rmm, --pickle: each into its file" \
    "$("$TOOL" trace t --perfetto t.perfetto --rmm t.rmm --pickle t.pickle && ls t.perfetto t.rmm t.pickle)" \
    "$(printf 't.perfetto\nt.pickle\nt.rmm')"
fails 2 '--pickle needs a value' trace t --pickle
fails 1 'both: was already written by another option' trace t --csv both --rmm both
fails 1 'both: was already written by another option' report r.json --prom both --html ./both
fails 1 'r.json: not a gpucache trace; it is a report, for gpucache report' trace r.json
fails 1 't: not JSON.*; it is a trace, for gpucache trace' report t
fails 1 'it is a report, for gpucache report' replay r.json
fails 1 'a trace; it is a report, for gpucache report' plan r.json
fails 1 't: the trace has no allocation of device 3' replay t --device 3
fails 1 't.csv: has no devices: --device does not apply' replay t.csv --device 0
fails 2 'can write to standard output' trace t --csv --rmm
"$TOOL" report r.json --prom r.prom
like "report --prom" "$(cat r.prom)" '^gpucache_oom_total\{program="tools_client",pid="[0-9]+",device="0"\} 1$'
fails 1 'r.json: is the input file' report r.json --prom r.json
for input in r.json t again.json; do
    fails 1 "$input: is the input file" report r.json again.json --trace t --html $input
done
fails 1 'r.json: not a gpucache trace' report r.json --trace r.json --html page.html
ok "the report is still whole" "$TOOL" report r.json
"$TOOL" report r.json --html page.html --trace t
is "report --html: a whole page" "$(head -n 1 page.html) $(tail -n 1 page.html)" '<!doctype html> </html>'
is "report --html -: the same" "$("$TOOL" report r.json --html - --trace t | cksum)" "$(cksum < page.html)"
is "report --html: asks for nothing from elsewhere" "$(grep -cE '(src|href|url)[=(] *.?(https?:)?//' page.html)" 0
"$TOOL" report r.json --html /dev/full 2> err
is "report --html to a full disk: status" $? 1
fails 2 'can write to standard output' report r.json --prom --json
like "trace: the summary" "$("$TOOL" trace t)" '^peak live bytes +7340032 \(7.0 MiB\) in 2 allocations$'
fails 1 't: is the input file' trace t --csv t
ok "the trace is still whole" "$TOOL" trace t
fails 1 'No such file or directory' trace t --csv missing/t.csv
"$TOOL" trace t --csv /dev/full 2> err
is "trace --csv to a full disk: status" $? 1
is "a bad limit refuses CUDA" "$(simulated env GPUCACHE_LIMIT=0m LD_PRELOAD="$LIB" "$client" 1 2> err)" "init 1"
is "a bad limit: one line" "$(wc -l < err)" 1
done_testing
