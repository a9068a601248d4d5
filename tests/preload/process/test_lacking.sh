#!/bin/bash
# A program that lacks something (progs/lacking.c): files may not grow, few descriptors, little address space or stack, standard
# streams that are closed, a full or read-only disk. It does its work and ends as without the library; what was to be written
# is whole or not there; nothing of ours is in the program's files, nothing of the program's in ours.
# timeout: 300
. "$(dirname "$0")/../../lib.sh"
program=$BUILD_DIR/tests/preload/lacking
own=$TMP/own
line="a line of the program's own"

# lacks NAME SHELL [SETTING…]: under what the SHELL line takes away.
lacks() {
    local name=$1 shell=$2 out status want
    shift 2
    rm -rf "$TMP/out"
    mkdir "$TMP/out"
    simulated bash -c "$shell"$'\nexec "$@"' - timeout 60 "$program" "$own" > /dev/null 2>&1
    want=$?
    out=$(env LD_LIBRARY_PATH="$SIM_DIR" GPUCACHE_REPORT="$TMP/out/r.json" GPUCACHE_TRACE="$TMP/out/t" GPUCACHE_STACKS=all \
        GPUCACHE_GROUP=lacking GPUCACHE_LIMIT=1GiB GPUCACHE_LEDGER="$TMP/out/ledger" "$@" bash -c "$shell"$'\nexec "$@"' - \
        timeout 60 env LD_PRELOAD="$LIB" "$program" "$own" 2>&1)
    status=$?
    is "$name: ends with $want" "$status $([ $status -eq $want ] || echo "$out" | tail -3)" "$want "
    is "$name: the program's file is its own" "$(cat "$own")" "$line"
    [ ! -e "$TMP/out/r.json" ] || ok "$name: the report is whole" python3 -m json.tool "$TMP/out/r.json"
    # Of a trace whose head found no room nothing can be read.
    [ "$(stat -c %s "$TMP/out/t" 2> /dev/null || echo 0)" -le 16384 ] || ok "$name: the trace can be read" "$TOOL" trace "$TMP/out/t"
    is "$name: nothing half-written stays" "$(find "$TMP/out" -type f -name '*.tmp' -o -type f -name '.*')" ""
}

for blocks in 1 8 16 64 512; do # of 1024 bytes
    lacks "files of $blocks KiB at most" "ulimit -S -f $blocks"
done
for files in 6 7 8 10 16; do
    lacks "$files descriptors" "ulimit -n $files"
done
for kib in 100 128 256 1024; do
    lacks "a stack of $kib KiB" "ulimit -s $kib"
done
for streams in "0<&-" "1>&-" "2>&-" "1>&- 2>&-" "0<&- 1>&- 2>&-" "0<&- 1>&- 2>&-"; do
    lacks "closed: $streams" "exec $streams"
done
for gib in 66 70 100; do # the driver's and our ranges
    lacks "$gib GiB of addresses" "ulimit -v $((gib << 20))"
done
if unshare -m true 2> /dev/null; then
    full="mount -t tmpfs -o size=16k none '$TMP/out'"
    lacks "a full disk" "exec unshare -m bash -c \"$full; exec \\\"\\\$@\\\"\" - \"\$@\""
    lacks "a disk that is read-only" "exec unshare -m bash -c \"mount -t tmpfs -o ro none '$TMP/out'; exec \\\"\\\$@\\\"\" - \"\$@\"" \
        TMPDIR="$TMP/out"
else
    skip "a full disk" "no mount namespace can be made here"
fi
done_testing
