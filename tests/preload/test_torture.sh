#!/bin/bash
# The torture test of reuse (progs/torture.c), some seconds of it: memory that is freed while work is queued never becomes
# another block's too early, with each backend and with peers. And it finds the fault in a library that does not wait: one
# is built here from a copy of the sources in which one check is missing. `make torture` is the long run.
# timeout: 400
. "$(dirname "$0")/../lib.sh"
program=$BUILD_DIR/tests/preload/torture
seed=${TORTURE_SEED:-$RANDOM}
threads=4

# tortured LIBRARY EVENTS SECONDS ARGUMENT…: the program under that library; prints what it did.
tortured() {
    local library=$1
    shift
    env LD_LIBRARY_PATH="$SIM_DIR" LD_PRELOAD="$library" SIMCUDA_WORK_US="${work_us:-50}" GPUCACHE_LIMIT=320MiB \
        GPUCACHE_REPORT="$TMP/report.json" timeout 120 "$program" "$1" "$2" "$seed" $threads "${@:3}" 2>&1
}

ok "without the library nothing is corrupt: the test itself is right, seed $seed" tortured "" 4000 3
for backend in vmm driver whole; do
    export GPUCACHE_BACKEND=$backend
    output=$(tortured "$LIB" 1000000 4)
    is "$backend: nothing is corrupt, seed $seed" "$?" 0
    echo "# ${output//$'\n'/$'\n'# }"
    is "$backend: every block was freed" "$(json "$TMP/report.json" '[d["leak_count"], d["requested_bytes"]["current"]]')" '[0, 0]'
    is "$backend: the limit held" "$(json "$TMP/report.json" '0 < d["reserved_bytes"]["peak"] <= d["limit_bytes"]')" true
    output=$(work_us=0 tortured "$LIB" 1000000 3 peers)
    is "$backend, with copies between contexts: nothing is corrupt, seed $seed" "$?" 0
    echo "# ${output//$'\n'/$'\n'# }"
done
unset GPUCACHE_BACKEND

output=$(TORTURE_DRIVER_ONLY=1 SIMCUDA_DRIVER_VERSION=12000 tortured "$LIB" 1000000 2)
is "a driver that cannot mark all work of a context: nothing is corrupt, seed $seed" "$?" 0

export TORTURE_DRIVER_ONLY=1 TORTURE_NO_THREAD_STREAMS=1 SIMCUDA_DRIVER_VERSION=12000
output=$(tortured "$LIB" 1000000 3)
is "the same with streams that are all known: nothing is corrupt, seed $seed" "$?" 0
like "there fences are events on every stream" "$(json "$TMP/report.json" 'd["driver_calls"]')" '"cuEventRecord": [0-9]{2}'
unset TORTURE_DRIVER_ONLY TORTURE_NO_THREAD_STREAMS SIMCUDA_DRIVER_VERSION

# broken NAME FILE EXPRESSION: a copy of the library with EXPRESSION (of sed) applied to FILE, which must change it, fails.
copy=$TMP/copy
mkdir "$copy"
cp -r "$ROOT"/{Makefile,VERSION,scripts,core,shim} "$copy"
for cuda in /usr/local/cuda "$ROOT/build/cuda" /usr; do
    [ -e "$cuda/include/cuda.h" ] && break
done
broken() {
    local output
    sed -i "$3" "$copy/$2"
    if cmp -s "$ROOT/$2" "$copy/$2"; then
        ok "$1: $2 has the place to break" false
        return
    fi
    output=$(make -C "$copy" -j2 CUDA_HOME="$cuda" CFLAGS=-O1 build/libgpucache.so 2>&1) || echo "$output" | tail -20
    output=$(work_us=400 tortured "$copy/build/libgpucache.so" 100000 20)
    is "$1: found" "$?" 1
    like "$1: by what a block held, or by an access to memory that is gone" "$output" '^corrupt: |CUDA error 700'
    cp "$ROOT/$2" "$copy/$2"
}
broken "fences that count as done at once" shim/driver_fence.c 's/result = GC_CALL(gc_driver_device(context), cuEventQuery,/result = CUDA_SUCCESS; (void)(/'
broken "freed memory that counts as idle at once" core/context.h \
    's/return stamp <= atomic_load_explicit(&context->retired, memory_order_acquire);/(void)context; (void)stamp; return true;/'
done_testing
