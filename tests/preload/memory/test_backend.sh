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
is "but if the setting requires it" "$(backend GPUCACHE_BACKEND=vmm "$BUILD_DIR/tests/preload/exporter" mapped)" \
    "vmm, vmm, GPUCACHE_BACKEND=vmm"
done_testing
