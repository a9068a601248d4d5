#!/bin/bash
# Tenants: the API's answers, limits and addresses of their own, every way to take memory, and GPUCACHE_TENANTS with real
# shared objects.
# timeout: 180
# without: SIMCUDA_PEERS=none "two devices, two contexts of one" because memory is not mapped there: it is charged by the segment
. "$(dirname "$0")/../../lib.sh"
export SIMCUDA_MEMORY=2GiB SIMCUDA_WORK_US=100 GPUCACHE_REPORT=none
program=$BUILD_DIR/tests/preload/tenants
one=$TMP/libtenant-one.so
two=$TMP/libtenant-two.so.1
for object in "$one" "$two"; do
    cp "$BUILD_DIR/tests/preload/libtenant.so" "$object"
done

# silent COMMAND…: it ends with 0 and prints nothing.
silent() {
    local output status
    output=$("$@" 2>&1)
    status=$?
    [ $status -eq 0 ] && [ -z "$output" ] && return 0
    printf '%s\nexit status %s\n' "$output" $status
    return 1
}

# ---- by the API ----

for backend in auto driver; do
    export GPUCACHE_BACKEND=$backend
    for case in api frees forked; do
        ok "$case, backend $backend" silent preloaded timeout 20 "$program" $case
    done
    ok "limits, backend $backend" silent refusing preloaded timeout 20 "$program" limits
    ok "threads come and go while it does, backend $backend" silent preloaded timeout 60 "$program" churn
    ok "the current one changes from call to call, backend $backend" silent preloaded timeout 20 "$program" switches "$one"
    # A line reports the requests of PyTorch and CuPy that failed.
    GPUCACHE_LOG=error ok "every way to take memory, backend $backend" silent preloaded timeout 20 "$program" ways "$one"
done
unset GPUCACHE_BACKEND
for setting in GPUCACHE_REUSE=sync GPUCACHE_MODE=track; do
    ok "limits, $setting" silent refusing preloaded env $setting timeout 20 "$program" limits
    ok "frees, $setting" silent preloaded env $setting timeout 20 "$program" frees
done
for case in figures capacity; do
    ok "exact $case" silent preloaded timeout 20 "$BUILD_DIR/tests/preload/tenant_exact" $case
done
GPUCACHE_MODE=off ok "mode off: the API returns it, the driver serves" silent preloaded timeout 20 "$program" off
simulated "$BUILD_DIR/tests/preload/public_api" has_mapping "$LIB" > /dev/null 2>&1
if [ $? -ne 77 ]; then
    SIMCUDA_DEVICES=2 ok "two devices, two contexts of one" silent refusing preloaded timeout 20 "$program" devices
    ok "capacities" silent refusing preloaded timeout 20 "$program" capacities
    for case in ranges info; do
        ok "$case" silent preloaded timeout 20 "$program" $case
    done
    ok "a graph that is run after its tenant is gone" silent \
        preloaded timeout 20 "$BUILD_DIR/tests/preload/tenant_exact" graph
else
    skip "devices, ranges, capacities, free memory" "the library does not map memory on this device"
fi

# ---- by the object that called ----

export GPUCACHE_TENANTS="one=libtenant-one.so:60MiB,two=libtenant-two.so:60MiB,rest=*:1GiB" GPUCACHE_LOG=error
for backend in auto driver; do
    GPUCACHE_BACKEND=$backend ok "two objects, each with a limit, backend $backend" silent \
        preloaded timeout 20 "$program" rules "$one" "$two"
done
same=$(preloaded timeout 20 "$program" reload "$one" "$two")
is "objects that come and go: each allocation is the right one's" $? 0
ok "objects that come and go: at the same addresses" test "$same" -gt 0
for _ in 1 2 3; do
    ok "a constructor allocates while another thread does" silent preloaded timeout 20 "$program" early "$one" "$two"
done
for bad in "one=libtenant-one.so:64MiB;two=*:64MiB" "one=lib*.so:64MiB" "one=*:64MiB,two=libtenant-one.so:1GiB"; do
    GPUCACHE_TENANTS=$bad not_ok "$bad refuses CUDA" preloaded timeout 20 "$program" rules "$one" "$two"
done
GPUCACHE_TENANTS="one=libtenant-one.so:64MiB,one=*:32MiB" not_ok "two sizes of one name refuse CUDA" \
    preloaded timeout 20 "$program" rules "$one" "$two"
done_testing
