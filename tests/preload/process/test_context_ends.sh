#!/bin/bash
# Contexts come and go in several threads (progs/context_ends.c): blocks hold what they should, no call of a right program fails,
# the driver is asked nothing in a context that ends or is gone, and a new context with an old one's handle or addresses gets
# nothing of its. A program that uses contexts which others destroy goes on.
# timeout: 200
. "$(dirname "$0")/../../lib.sh"
program=$BUILD_DIR/tests/preload/context_ends
seed=${TORTURE_SEED:-$RANDOM}
export GPUCACHE_LIMIT=900MiB SIMCUDA_WORK_US=20 GPUCACHE_REPORT=$TMP/report.json

for backend in vmm driver whole; do
    export GPUCACHE_BACKEND=$backend
    rm -f "$TMP/journal"
    output=$(SIMCUDA_JOURNAL=$TMP/journal preloaded timeout 60 "$program" 2 "$seed" 4 2>&1)
    is "$backend: all went well, seed $seed" "$?" 0
    echo "# $output"
    is "$backend: no call was made on a context that is gone" "$(awk '$4 == 709 || $4 == 700 || $4 == 400' "$TMP/journal")" ""
    is "$backend: nothing stays" \
        "$(json "$TMP/report.json" '[d["leak_count"], d["requested_bytes"]["current"], d["reserved_bytes"]["current"]]')" '[0, 0, 0]'
    output=$(SIMCUDA_REUSE_CONTEXTS=1 preloaded timeout 60 "$program" 2 "$seed" 4 2>&1)
    is "$backend, handles serve again: all went well, seed $seed" "$?" 0
    echo "# $output"
    is "$backend, handles serve again: nothing stays" \
        "$(json "$TMP/report.json" '[d["leak_count"], d["requested_bytes"]["current"], d["reserved_bytes"]["current"]]')" '[0, 0, 0]'
    for reuse in 0 1; do
        output=$(SIMCUDA_REUSE_CONTEXTS=$reuse preloaded timeout 60 "$program" 1 "$seed" 4 reckless 2>&1)
        is "$backend, contexts of others ($reuse): the program goes on, seed $seed" "$?" 0
    done
done
export GPUCACHE_BACKEND=driver
for settings in GPUCACHE_MODE=track GPUCACHE_REUSE=sync GPUCACHE_DEBUG=poison "GPUCACHE_GROUP=ends GPUCACHE_TENANTS=all=*:800MiB" \
    "GPUCACHE_TRACE=$TMP/trace GPUCACHE_STACKS=all"; do
    # shellcheck disable=SC2086 # words
    output=$(env $settings SIMCUDA_REUSE_CONTEXTS=1 LD_LIBRARY_PATH="$SIM_DIR" LD_PRELOAD="$LIB" \
        timeout 60 "$program" 1 "$seed" 4 2>&1)
    is "${settings//$TMP\//}: all went well, seed $seed" "$? ${output%%[^a-z]*}" "0 created"
done
done_testing
