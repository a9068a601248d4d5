#!/bin/bash
# NVML's rows of a device's processes are parts of the memory row's used bytes, in any ABI: this process's less its idle
# memory, another's the driver's. And the tables know each function of NVML that tells a process's memory.
. "$(dirname "$0")/../../lib.sh"
cat > "$TMP/program.c" << 'END'
#include "tests/preload/progs/program.h"
#include "tests/simcuda/nvml/nvml_abi.h"
#include <unistd.h>
#include <string.h>
static unsigned long long sum;
static void show(const char *abi, unsigned pid, unsigned long long used)
{
    printf("%s %s %llu\n", abi, pid == (unsigned)getpid() ? "own" : "other", used >> 20);
    sum += used;
}
static void compare(const char *abi, const nvmlMemory_v2_t *memory)
{
    if (sum > memory->used)
        printf("%s: the rows are more than the memory row's %llu\n", abi, memory->used >> 20);
    sum = 0;
}
/* Prints the rows in each ABI, and a line where they exceed the memory row: MIB [hold | free | half]. `monitor`: without CUDA. */
int main(int argc, char **argv)
{
    nvmlProcessInfo_v1_t first[8];
    nvmlProcessInfo_v2_t later[8];
    nvmlProcessDetail_v1_t detail[8];
    nvmlProcessDetailList_v1_t details = {.version = NVML_PROCESS_DETAIL_LIST_V1, .numProcArrayEntries = 8, .procArray = detail};
    nvmlMemory_v2_t memory = {.version = NVML_MEMORY_V2};
    unsigned counts[3] = {8, 8, 8};
    nvmlDevice_t device;
    CUdeviceptr block;
    CUcontext context;
    if (argc > 1 && strcmp(argv[1], "monitor") != 0) {
        CHECK(cuInit(0));
        CHECK(cuDevicePrimaryCtxRetain(&context, 0));
        CHECK(cuCtxSetCurrent(context));
        CHECK(cuMemAlloc(&block, (size_t)atoi(argv[1]) << 20));
    }
    if (argc > 2 && strcmp(argv[2], "free") == 0) {
        CHECK(cuMemFree(block));
    } else if (argc > 2) {
        if (strcmp(argv[2], "idle") == 0)
            CHECK(cuMemFree(block));
        puts("holding");
        fflush(stdout);
        pause();
    }
    if (nvmlInit_v2() || nvmlDeviceGetHandleByIndex_v2(0, &device) || nvmlDeviceGetMemoryInfo_v2(device, &memory) ||
        nvmlDeviceGetComputeRunningProcesses(device, &counts[0], first) ||
        nvmlDeviceGetRunningProcessDetailList(device, &details))
        return 1;
    for (unsigned i = 0; i < counts[0]; i++)
        show("v1", first[i].pid, first[i].usedGpuMemory);
    compare("v1", &memory);
    for (int v = 2; v < 4; v++) {
        if ((v == 2 ? nvmlDeviceGetComputeRunningProcesses_v2 : nvmlDeviceGetComputeRunningProcesses_v3)(device, &counts[v - 1], later))
            return 1;
        for (unsigned i = 0; i < counts[v - 1]; i++)
            show(v == 2 ? "v2" : "v3", later[i].pid, later[i].usedGpuMemory);
        compare(v == 2 ? "v2" : "v3", &memory);
    }
    for (unsigned i = 0; i < details.numProcArrayEntries; i++)
        show("list", detail[i].pid, detail[i].usedGpuMemory);
    compare("list", &memory);
    return 0;
}
END
ok "the program builds" "${CC:-cc}" -I"$ROOT" -isystem "${CUDA_HOME:-/usr/local/cuda}/include" -o "$TMP/program" "$TMP/program.c" \
    "$SIM_DIR/libcuda.so.1" "$SIM_DIR/libnvidia-ml.so.1"
export GPUCACHE_REPORT=none SIMCUDA_MEMORY=4GiB
rows() { printf 'v1 %s\nv2 %s\nv3 %s\nlist %s' "$1" "$1" "$1" "$1"; }
is "without the library" "$(simulated "$TMP/program" 100)" "$(rows "own 164")"
for limit in "" 1GiB; do
    name=${limit:+limit $limit}
    name=${name:-no limit}
    export GPUCACHE_LIMIT=$limit
    [ -n "$limit" ] || unset GPUCACHE_LIMIT
    is "$name: memory in use" "$(preloaded "$TMP/program" 100)" "$(rows "own 164")"
    is "$name: idle memory" "$(preloaded "$TMP/program" 100 free)" "$(rows "own 64")"
    is "$name, mode off: NVML's own" "$(GPUCACHE_MODE=off preloaded "$TMP/program" 100)" "$(rows "own 164")"
done
unset GPUCACHE_LIMIT
# Another process, with the same device.
export SIMCUDA_SHARED=processes$$
holder=
# hold NAME=VALUE… -- MIB HOW: the other process, which holds memory until the next one.
hold() {
    [ -z "$holder" ] || { kill "$holder"; wait "$holder" 2> /dev/null; }
    local settings=()
    while [ "$1" != -- ]; do settings+=("$1") && shift; done
    shift
    : > "$TMP/holder"
    env LD_LIBRARY_PATH="$SIM_DIR" "${settings[@]}" "$TMP/program" "$@" > "$TMP/holder" &
    holder=$!
    for ((i = 0; i < 400; i++)); do
        grep -qs '^holding' "$TMP/holder" && break
        sleep 0.05
    done
}
others() { sort -u | grep -v own; }
hold A=1 -- 200 hold
is "another process's row is the driver's" "$(preloaded "$TMP/program" 100 free | others)" $'list other 264\nv1 other 264\nv2 other 264\nv3 other 264'
is "under a limit too" "$(GPUCACHE_LIMIT=1GiB preloaded "$TMP/program" 100 free | others | grep -v rows)" \
    $'list other 264\nv1 other 264\nv2 other 264\nv3 other 264'
hold A=1 -- 2000 hold
is "a monitor with a limit" "$(GPUCACHE_LIMIT=1GiB preloaded "$TMP/program" monitor | grep -v rows)" "$(rows "other 2064")"
is "a monitor without one" "$(preloaded "$TMP/program" monitor)" "$(rows "other 2064")"
# A group of two, both with idle memory.
grouped=(LD_PRELOAD="$LIB" GPUCACHE_GROUP=rows GPUCACHE_GROUP_LIMIT=3GiB)
hold "${grouped[@]}" -- 1000 idle
is "a group of two" "$(env LD_LIBRARY_PATH="$SIM_DIR" "${grouped[@]}" "$TMP/program" 1000 free | sort -u)" \
    "$(printf '%s other 1064\n%s own 64\n' list list v1 v1 v2 v2 v3 v3)"
hold "${grouped[@]}" -- 1000 hold
is "and of one that uses its memory" "$(env LD_LIBRARY_PATH="$SIM_DIR" "${grouped[@]}" "$TMP/program" 1000 | sort -u)" \
    "$(printf '%s other 1064\n%s own 1064\n' list list v1 v1 v2 v2 v3 v3)"
kill "$holder"
wait "$holder" 2> /dev/null
# Each function of NVML by whose name it tells of processes and their memory is wrapped, or known not to.
cat > "$TMP/known" << 'END'
nvmlDeviceGetProcessUtilization percentages
nvmlDeviceGetProcessesUtilizationInfo percentages
nvmlDeviceGetAccountingStats the peak over a process's life, where root has switched accounting on
nvmlDeviceGetAccountingStats_v2 likewise
nvmlDeviceGetBAR1MemoryInfo the window into the device, not its memory
END
is "every function of NVML about processes is known" "$({
    for library in "$SIM_DIR/libnvidia-ml.so.1" "$ROOT"/build/nvidia/driver/libnvidia-ml.so.1; do
        [ ! -f "$library" ] || nm -D --defined-only "$library" | awk '{ print $NF }'
    done
    header=${CUDA_HOME:-/usr/local/cuda}/include/nvml.h
    [ ! -f "$header" ] || grep -o 'DECLDIR *nvml[A-Za-z0-9_]*' "$header" | awk '{ print $NF }'
} | sort -u | grep -E '^nvmlDeviceGet.*(Process|MemoryInfo|AccountingStats)' | grep -v Vgpu | while read -r name; do
    grep -q "^$name " "$TMP/known" || grep -q "^NVML($name," "$ROOT/shim/api.def" || echo "$name"
done)" ""
done_testing
