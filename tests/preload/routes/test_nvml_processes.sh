#!/bin/bash
# NVML's rows of a device's processes: the row of this process does not exceed the memory row's used bytes, in any ABI, when
# memory is idle in the cache; another process's row is the driver's.
. "$(dirname "$0")/../../lib.sh"
cat > "$TMP/program.c" << 'END'
#include "tests/preload/progs/program.h"
#include "tests/simcuda/nvml/nvml_abi.h"
#include <unistd.h>
#include <string.h>
/* Prints this process's row in each ABI, "more" if it exceeds the memory row; and the other process's row. */
int main(int argc, char **argv)
{
    nvmlProcessInfo_v1_t first[8];
    nvmlProcessInfo_v2_t later[8];
    nvmlMemory_v2_t memory = {.version = NVML_MEMORY_V2};
    unsigned counts[3] = {8, 8, 8};
    nvmlDevice_t device;
    CUdeviceptr block;
    CUcontext context;
    CHECK(cuInit(0));
    CHECK(cuDevicePrimaryCtxRetain(&context, 0));
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuMemAlloc(&block, (size_t)atoi(argv[1]) << 20));
    if (argc > 2 && strcmp(argv[2], "free") == 0) {
        CHECK(cuMemFree(block));
    } else if (argc > 2) {
        puts("holding");
        fflush(stdout);
        pause();
    }
    if (nvmlInit_v2() || nvmlDeviceGetHandleByIndex_v2(0, &device) || nvmlDeviceGetMemoryInfo_v2(device, &memory) ||
        nvmlDeviceGetComputeRunningProcesses(device, &counts[0], first))
        return 1;
    for (unsigned i = 0; i < counts[0]; i++)
        printf("v1 %s %llu %s\n", first[i].pid == (unsigned)getpid() ? "own" : "other", first[i].usedGpuMemory >> 20,
               first[i].usedGpuMemory > memory.used ? "more" : "fits");
    for (int v = 2; v < 4; v++) {
        if ((v == 2 ? nvmlDeviceGetComputeRunningProcesses_v2 : nvmlDeviceGetComputeRunningProcesses_v3)(device, &counts[v - 1], later))
            return 1;
        for (unsigned i = 0; i < counts[v - 1]; i++)
            printf("v%d %s %llu %s\n", v, later[i].pid == (unsigned)getpid() ? "own" : "other", later[i].usedGpuMemory >> 20,
                   later[i].usedGpuMemory > memory.used ? "more" : "fits");
    }
    return 0;
}
END
ok "the program builds" "${CC:-cc}" -I"$ROOT" -isystem "${CUDA_HOME:-/usr/local/cuda}/include" -o "$TMP/program" "$TMP/program.c" \
    "$SIM_DIR/libcuda.so.1" "$SIM_DIR/libnvidia-ml.so.1"
export GPUCACHE_REPORT=none SIMCUDA_MEMORY=4GiB
rows() { printf 'v1 %s\nv2 %s\nv3 %s' "$1" "$1" "$1"; }
is "without the library" "$(simulated "$TMP/program" 100)" "$(rows "own 164 fits")"
for limit in "" 1GiB; do
    name=${limit:+limit $limit}
    name=${name:-no limit}
    export GPUCACHE_LIMIT=$limit
    [ -n "$limit" ] || unset GPUCACHE_LIMIT
    is "$name: memory in use" "$(preloaded "$TMP/program" 100)" "$(rows "own 164 fits")"
    is "$name: idle memory" "$(preloaded "$TMP/program" 100 free)" "$(rows "own 64 fits")"
    is "$name, mode off: NVML's own" "$(GPUCACHE_MODE=off preloaded "$TMP/program" 100)" "$(rows "own 164 fits")"
done
unset GPUCACHE_LIMIT
# Another process, with the same device.
export SIMCUDA_SHARED=processes$$
env LD_LIBRARY_PATH="$SIM_DIR" "$TMP/program" 200 hold > "$TMP/holder" &
holder=$!
for ((i = 0; i < 400; i++)); do
    grep -qs '^holding' "$TMP/holder" && break
    sleep 0.05
done
is "another process's row is the driver's" "$(GPUCACHE_LIMIT=1GiB preloaded "$TMP/program" 100 free | sort -u | grep other | cut -d' ' -f1-3)" \
    $'v1 other 264\nv2 other 264\nv3 other 264'
kill $holder
wait $holder 2> /dev/null
done_testing
