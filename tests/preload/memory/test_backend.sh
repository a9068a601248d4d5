#!/bin/bash
# The backend that a device gets, and its reason in the report.
. "$(dirname "$0")/../../lib.sh"

program=$BUILD_DIR/tests/preload/counted_linked
# backend NAME=VALUE…: "backend: reason; pages", of the device and of the process.
backend() {
    rm -f "$TMP/report.json"
    env LD_LIBRARY_PATH="$SIM_DIR" LD_PRELOAD="$LIB" GPUCACHE_REPORT="$TMP/report.json" "$@" > "$TMP/out" 2>&1 || cat "$TMP/out"
    json "$TMP/report.json" '[d["backend"], r["backend"], d["backend_reason"]]' | tr -d '[]"'
}
pages() { json "$TMP/report.json" 'd["driver_calls"].get("cuMemMap", 0) > 0'; }

is "mapped where the device can" "$(backend "$program")" "vmm, vmm, the device maps memory"
is "and it is used" "$(pages)" true
is "not where it cannot" "$(backend SIMCUDA_ATTRIBUTES=102=0 "$program")" \
    "driver, driver, the device or its driver cannot map memory"
is "and none is mapped" "$(pages)" false
is "also if it is asked for" "$(backend GPUCACHE_BACKEND=vmm SIMCUDA_ATTRIBUTES=102=0 "$program" | tail -n 1)" \
    "driver, driver, the device or its driver cannot map memory"
is "not if the setting requires it" "$(backend GPUCACHE_BACKEND=driver "$program")" "driver, driver, GPUCACHE_BACKEND=driver"
is "not where nothing is cached" "$(backend GPUCACHE_MODE=track "$program")" "driver, driver, GPUCACHE_MODE=track"
is "not under a multi-process server" "$(backend SIMCUDA_ATTRIBUTES=133=1 "$program")" \
    "driver, driver, the device is shared by a multi-process server"
is "but if the setting requires it" "$(backend GPUCACHE_BACKEND=vmm SIMCUDA_ATTRIBUTES=133=1 "$program")" \
    "vmm, vmm, GPUCACHE_BACKEND=vmm"
is "not for a program that exports memory" "$(backend "$BUILD_DIR/tests/preload/exporter")" \
    "driver, driver, the program exports memory: it imports cuIpcGetMemHandle"
is "but if the setting requires it: to processes under the library" \
    "$(backend GPUCACHE_BACKEND=vmm "$BUILD_DIR/tests/preload/exporter")" "vmm, vmm, GPUCACHE_BACKEND=vmm"
is "where pages have no descriptors, once not" \
    "$(backend GPUCACHE_BACKEND=vmm SIMCUDA_ATTRIBUTES=103=0 "$BUILD_DIR/tests/preload/exporter" refused)" \
    "vmm, vmm, GPUCACHE_BACKEND=vmm"
is "nor where the driver creates no such pages" \
    "$(backend GPUCACHE_BACKEND=vmm SIMCUDA_FAIL=cuMemCreate@1=801,cuMemCreate@2=801 "$BUILD_DIR/tests/preload/exporter" refused)" \
    "vmm, vmm, GPUCACHE_BACKEND=vmm"

# ---- devices that are no peers: all that plain memory allows is allowed ----

no_access="no peer access between it and device 1, which is visible"
is "not beside a device without peer access" "$(backend SIMCUDA_DEVICES=2 SIMCUDA_PEERS=none "$program")" \
    "driver, driver, $no_access"
is "but with that device alone" "$(backend SIMCUDA_PEERS=none "$program")" "vmm, vmm, the device maps memory"
is "and beside one with it" "$(backend SIMCUDA_DEVICES=2 SIMCUDA_PEERS=all "$program")" "vmm, vmm, the device maps memory"
is "and if the setting requires it" "$(backend SIMCUDA_DEVICES=2 SIMCUDA_PEERS=none GPUCACHE_BACKEND=vmm "$program")" \
    "vmm, vmm, GPUCACHE_BACKEND=vmm, although most copies to and from device 1 fail: no peer access"
like "  with a line" "$(SIMCUDA_DEVICES=2 SIMCUDA_PEERS=none GPUCACHE_BACKEND=vmm GPUCACHE_REPORT=none \
    preloaded "$program" 2>&1)" 'device 0 has no peer access with device 1.*copies of mapped memory between them are errors'
is "  none where there is access" "$(SIMCUDA_DEVICES=2 SIMCUDA_PEERS=all GPUCACHE_BACKEND=vmm GPUCACHE_REPORT=none preloaded "$program" 2>&1 |
    grep -c 'peer access')" 0
kinds=$BUILD_DIR/tests/preload/kinds
without=$(LD_LIBRARY_PATH=$SIM_DIR SIMCUDA_DEVICES=2 SIMCUDA_PEERS=none "$kinds" copies 2>&1)
is "copies without the library" "$(printf '%s\n' "$without" | grep -c ' 0$')" 16
is "every copy is as without it" "$(SIMCUDA_DEVICES=2 SIMCUDA_PEERS=none GPUCACHE_REPORT=none preloaded "$kinds" copies 2>&1)" "$without"
is "and between peers" "$(SIMCUDA_DEVICES=2 SIMCUDA_PEERS=all GPUCACHE_REPORT=none preloaded "$kinds" copies 2>&1)" "$without"

# ---- the flags of pages ----

# told NAME=VALUE…: the attributes that a block has; calls that map memory must be there.
told() { backend "$@" "$kinds" attributes > /dev/null && cat "$TMP/out"; }
alike="alike 1 base 1 size 5242880 numbers 1"
is "attributes are the block's" "$(told SIMCUDA_RDMA=none)" "$alike rdma 0 decompress 0"
is "network cards reach pages where they can" "$(told SIMCUDA_RDMA=yes)" "$alike rdma 1 decompress 0"
is "not where a page could have one address only" "$(told SIMCUDA_RDMA=once)" "$alike rdma 0 decompress 0"
is "nor where such pages have none" "$(told SIMCUDA_RDMA=refused)" "$alike rdma 0 decompress 0"
is "  and it is mapped memory" "$(pages)" true
is "  no context counts as faulted for that: pages serve the next request" "$(json "$TMP/report.json" '"cuMemAlloc_v2" not in d["driver_calls"]')" true
is "nor where memory with the flag cannot be created" "$(told SIMCUDA_RDMA=yes SIMCUDA_FAIL=cuMemCreate@1=CUDA_ERROR_NOT_SUPPORTED)" "$alike rdma 0 decompress 0"
is "a trial that lacks memory says nothing: the next page is tried" "$(told SIMCUDA_RDMA=yes SIMCUDA_FAIL=cuMemSetAccess@1=CUDA_ERROR_OUT_OF_MEMORY)" "$alike rdma 1 decompress 0"
is "the decompression engine reaches them" "$(told SIMCUDA_RDMA=none SIMCUDA_ATTRIBUTES=136=4,137=4194304)" "$alike rdma 0 decompress 1"
done_testing
