/* NVML's stand-in on a device that processes share: each that holds memory is listed. */
/* link: -Wl,--no-as-needed -l:libnvidia-ml.so.1 -l:libcuda.so.1 */
#include "tests/unit/sim_test.h"

#include "tests/simcuda/nvml/nvml_abi.h"

#include <stdio.h>
#include <sys/wait.h>

#define BLOCK_BYTES (UINT64_C(64) << 20)

static uint64_t used_bytes(unsigned index)
{
    nvmlMemory_t memory;
    nvmlDevice_t device;

    assert_int_equal(nvmlDeviceGetHandleByIndex(index, &device), NVML_SUCCESS);
    assert_int_equal(nvmlDeviceGetMemoryInfo(device, &memory), NVML_SUCCESS);
    return memory.used;
}

static unsigned processes_of(unsigned index, nvmlProcessInfo_v2_t infos[4])
{
    unsigned count = 4;
    nvmlDevice_t device;

    assert_int_equal(nvmlDeviceGetHandleByIndex(index, &device), NVML_SUCCESS);
    assert_int_equal(nvmlDeviceGetComputeRunningProcesses_v3(device, &count, infos), NVML_SUCCESS);
    return count;
}

/* The child holds memory, the parent looks. */
static int hold_memory(int ready, int done)
{
    CUdeviceptr block;
    char byte;

    if (make_context(NULL) || cuMemAlloc(&block, BLOCK_BYTES) || write(ready, "r", 1) != 1)
        return 1;
    return read(done, &byte, 1) != 0; /* until the parent closes it */
}

static void processes_of_a_shared_device_are_all_seen(void **state)
{
    nvmlProcessInfo_v2_t infos[4];
    int ready[2], done[2], status;
    char name[48], byte;
    pid_t child;

    (void)state;
    snprintf(name, sizeof(name), "nvml-%d", (int)getpid());
    setenv("SIMCUDA_SHARED", name, 1);
    assert_int_equal(pipe(ready) | pipe(done), 0);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        close(done[1]);
        _exit(hold_memory(ready[1], done[0]));
    }
    close(done[0]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    assert_int_equal(nvmlInit(), NVML_SUCCESS);
    assert_int_equal(processes_of(0, infos), 1);
    assert_int_equal(infos[0].pid, child);
    assert_true(infos[0].usedGpuMemory >= BLOCK_BYTES);
    assert_int_equal(infos[0].usedGpuMemory, used_bytes(0));
    close(done[1]);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(processes_of(0, infos), 0);
    assert_int_equal(used_bytes(0), 0);
    assert_int_equal(nvmlShutdown(), NVML_SUCCESS);
    snprintf(name, sizeof(name), "/dev/shm/simcuda-%u-nvml-%d", (unsigned)getuid(), (int)getpid());
    unlink(name);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(processes_of_a_shared_device_are_all_seen),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
