#!/bin/bash
# Files that are written: a link is never followed, a full disk costs what was to be written and never the
# program, and with raised privileges no path of the environment is opened.
. "$(dirname "$0")/../lib.sh"
program=$BUILD_DIR/tests/preload/life
run() { preloaded "$@" timeout 60 "$program" threads; }

# ---- what the commands are fed ----
out=$(run GPUCACHE_REPORT="$TMP/r.json" GPUCACHE_TRACE="$TMP/t" 2>&1)
is "a run" "$out" "freed by neighbours"
printf 'id,lower,upper,size\n1,0,5,100\n2,3,9,200\n' > "$TMP/p.csv"
commands=("trace $TMP/t --csv" "trace $TMP/t --perfetto" "trace $TMP/t --pickle" "trace $TMP/t --rmm" "trace $TMP/t --html"
    "report $TMP/r.json --html" "plan $TMP/p.csv --output" "plan $TMP/p.csv --svg" "plan $TMP/t --output")

# ---- links ----
for command in "${commands[@]}"; do
    echo precious > "$TMP/precious"
    rm -f "$TMP/link"
    ln -s precious "$TMP/link"
    # shellcheck disable=SC2086 # words
    out=$("$TOOL" $command "$TMP/link" 2>&1)
    is "a link, ${command//$TMP\//}: refused" "$?" 1
    like "a link, ${command//$TMP\//}: why" "$out" 'is a symbolic link, not followed'
    is "a link, ${command//$TMP\//}: what it names is as it was" "$(cat "$TMP/precious")" precious
done
for setting in REPORT TRACE; do
    out=$(run GPUCACHE_REPORT=none "GPUCACHE_$setting=$TMP/link" 2>&1)
    like "a link, GPUCACHE_$setting: not followed" "$out" 'is a symbolic link, not followed'
    like "a link, GPUCACHE_$setting: the program did its work" "$out" 'freed by neighbours'
    is "a link, GPUCACHE_$setting: what it names is as it was" "$(cat "$TMP/precious")" precious
done
out=$(run GPUCACHE_REPORT=none GPUCACHE_TRACE="$TMP/precious" 2>&1)
is "a trace does not replace what is no trace" "$(cat "$TMP/precious")" precious
ok "names in /dev are followed" sh -c "'$TOOL' trace '$TMP/t' --csv /dev/stdout | grep -q '^op,id'"

# ---- no room ----
for command in "${commands[@]}"; do
    # shellcheck disable=SC2086 # words
    out=$("$TOOL" $command /dev/full 2>&1)
    is "a full disk, ${command//$TMP\//}: logged" "$?" 1
    like "a full disk, ${command//$TMP\//}: why" "$out" 'No space left'
done
out=$(run GPUCACHE_REPORT=/dev/full 2>&1)
is "a full disk for the report: the program's status" "$?" 0
like "a full disk for the report: one line" "$out" '^gpucache: report /dev/full: No space left on device'
if unshare -m true 2> /dev/null; then
    out=$(export -f run preloaded; export LIB SIM_DIR program; unshare -m bash -c "mkdir '$TMP/small' && \
        mount -t tmpfs -o size=16k none '$TMP/small' && run GPUCACHE_TRACE='$TMP/small/t' GPUCACHE_REPORT='$TMP/small/r.json'" 2>&1)
    is "a small disk: the program's status" "$?" 0
    like "a small disk: the program did its work" "$out" 'freed by neighbours'
    like "a small disk: logged" "$out" 'No space left'
else
    skip "a small disk" "no mount namespace can be made here"
fi

# ---- raised privileges ----
if [ "$(id -u)" -eq 0 ] && command -v setpriv > /dev/null; then
    chmod 755 "$TMP"
    mkdir -m 777 "$TMP/open"
    cp "$SIM_DIR/libcuda.so.1" "$LIB" "$TMP/"
    cp "$LIB" "$TMP/libgpucache.so.0"
    "${CC:-gcc}" -o "$TMP/secure" "$BUILD_DIR/obj/tests/preload/progs/secure.o" "$TMP/libgpucache.so" -L"$SIM_DIR" \
        -l:libcuda.so.1 -Wl,--no-as-needed,-rpath,"$TMP"
    for bits in 4755 755; do
        chmod $bits "$TMP/secure"
        rm -rf "$TMP"/open/*
        out=$(cd /; GPUCACHE_LEDGER=$TMP/open/ledger GPUCACHE_TRACE=$TMP/open/trace GPUCACHE_REPORT=$TMP/open/r.json \
            setpriv --reuid=65534 --regid=65534 --clear-groups "$TMP/secure" 2>&1)
        like "with mode $bits: it runs" "$out" allocated
        [ $bits = 4755 ] || is "without privileges: files are written" "$(cd "$TMP/open" && echo *)" "ledger r.json trace"
        [ $bits = 755 ] || is "with privileges: no file of the environment's is" "$(ls "$TMP/open")" ""
    done
else
    skip "raised privileges" "needs root and setpriv"
fi
done_testing
