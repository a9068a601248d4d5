/* NVML's stand-in: its start and end, and that it reports the same devices and the same memory as
 * the driver. */
/* link: -Wl,--no-as-needed -l:libnvidia-ml.so.1 -l:libcuda.so.1 */
#include "tests/unit/sim_test.h"

#include "tests/simcuda/nvml/nvml_abi.h"

#include <stdio.h>
#include <string.h>

#define DEVICE_BYTES (UINT64_C(1) << 30)
#define BLOCK_BYTES (UINT64_C(64) << 20)

static int start(void **state)
{
    (void)state;
    return (int)nvmlInit_v2();
}

static int stop(void **state)
{
    (void)state;
    return (int)nvmlShutdown();
}

static void nothing_works_before_init(void **state)
{
    nvmlMemory_v2_t memory = {0};
    nvmlDevice_t device;
    char version[32];
    unsigned count;

    (void)state;
    assert_int_equal(nvmlSystemGetNVMLVersion(version, 32), NVML_SUCCESS); /* but this */
    assert_int_equal(nvmlShutdown(), NVML_SUCCESS);
    assert_int_equal(nvmlDeviceGetMemoryInfo_v2(NULL, &memory), NVML_ERROR_UNINITIALIZED);
    assert_int_equal(nvmlDeviceGetCount_v2(&count), NVML_ERROR_UNINITIALIZED);
    assert_int_equal(nvmlDeviceGetHandleByIndex_v2(0, &device), NVML_ERROR_UNINITIALIZED);
}

static void inits_are_counted(void **state)
{
    unsigned count;

    (void)state;
    assert_int_equal(nvmlInit(), NVML_SUCCESS);
    assert_int_equal(nvmlInitWithFlags(0), NVML_SUCCESS);
    assert_int_equal(nvmlShutdown(), NVML_SUCCESS);
    assert_int_equal(nvmlDeviceGetCount(&count), NVML_SUCCESS);
    assert_int_equal(nvmlShutdown(), NVML_SUCCESS);
    assert_int_equal(nvmlDeviceGetCount(&count), NVML_ERROR_UNINITIALIZED);
}

static void devices_are_the_drivers(void **state)
{
    char text[96], wanted[48];
    nvmlDevice_t device, again;
    unsigned count, index;
    int version = 0;
    CUuuid uuid;

    (void)state;
    assert_int_equal(nvmlDeviceGetCount_v2(&count), NVML_SUCCESS);
    assert_int_equal(count, 2);
    assert_int_equal(nvmlDeviceGetHandleByIndex_v2(2, &device), NVML_ERROR_INVALID_ARGUMENT);
    assert_int_equal(nvmlDeviceGetHandleByIndex_v2(1, &device), NVML_SUCCESS);
    assert_int_equal(nvmlDeviceGetIndex(device, &index), NVML_SUCCESS);
    assert_int_equal(index, 1);
    assert_int_equal(nvmlDeviceGetIndex((nvmlDevice_t)text, &index), NVML_ERROR_INVALID_ARGUMENT);

    assert_cuda(cuInit(0));
    assert_cuda(cuDeviceGetUuid(&uuid, 1));
    strcpy(wanted, "GPU-");
    for (int i = 0; i < 16; i++) {
        if (i == 4 || i == 6 || i == 8 || i == 10)
            strcat(wanted, "-");
        sprintf(wanted + strlen(wanted), "%02x", (unsigned char)uuid.bytes[i]);
    }
    assert_int_equal(nvmlDeviceGetUUID(device, text, sizeof(text)), NVML_SUCCESS);
    assert_string_equal(text, wanted);
    assert_int_equal(nvmlDeviceGetUUID(device, text, 40), NVML_ERROR_INSUFFICIENT_SIZE);
    assert_int_equal(nvmlDeviceGetHandleByUUID(wanted, &again), NVML_SUCCESS);
    assert_ptr_equal(again, device);
    assert_int_equal(nvmlDeviceGetHandleByUUID("GPU-none", &again), NVML_ERROR_NOT_FOUND);

    assert_cuda(cuDeviceGetName(wanted, sizeof(wanted), 1));
    assert_int_equal(nvmlDeviceGetName(device, text, sizeof(text)), NVML_SUCCESS);
    assert_string_equal(text, wanted);
    assert_int_equal(nvmlSystemGetCudaDriverVersion(&version), NVML_SUCCESS);
    assert_int_equal(version, 13000);
    assert_int_equal(nvmlSystemGetDriverVersion(text, sizeof(text)), NVML_SUCCESS);
}

static uint64_t used_bytes(unsigned index)
{
    nvmlMemory_v2_t second = {.version = NVML_MEMORY_V2};
    nvmlMemory_t first;
    nvmlDevice_t device;

    assert_int_equal(nvmlDeviceGetHandleByIndex(index, &device), NVML_SUCCESS);
    assert_int_equal(nvmlDeviceGetMemoryInfo(device, &first), NVML_SUCCESS);
    assert_int_equal(nvmlDeviceGetMemoryInfo_v2(device, &second), NVML_SUCCESS);
    assert_int_equal(first.total, DEVICE_BYTES);
    assert_int_equal(first.used + first.free, first.total);
    assert_int_equal(second.used, first.used);
    second.version = 1;
    assert_int_equal(nvmlDeviceGetMemoryInfo_v2(device, &second),
                     NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    return first.used;
}

static unsigned processes_of(unsigned index, nvmlProcessInfo_v2_t infos[4])
{
    unsigned count = 4;
    nvmlDevice_t device;

    assert_int_equal(nvmlDeviceGetHandleByIndex(index, &device), NVML_SUCCESS);
    assert_int_equal(nvmlDeviceGetComputeRunningProcesses_v3(device, &count, infos), NVML_SUCCESS);
    return count;
}

static void memory_is_what_the_driver_holds(void **state)
{
    nvmlProcessInfo_v2_t infos[4];
    uint64_t before = used_bytes(0), other = used_bytes(1);
    unsigned count = 0;
    nvmlDevice_t device;
    CUdeviceptr block;

    assert_int_equal(processes_of(0, infos), 0);
    assert_int_equal(make_context(state), 0);
    assert_cuda(cuMemAlloc(&block, BLOCK_BYTES));
    assert_true(used_bytes(0) >= before + BLOCK_BYTES);
    assert_int_equal(used_bytes(1), other);
    assert_int_equal(processes_of(0, infos), 1);
    assert_int_equal(infos[0].pid, getpid());
    assert_int_equal(infos[0].usedGpuMemory, used_bytes(0));
    assert_int_equal(processes_of(1, infos), 0);

    assert_int_equal(nvmlDeviceGetHandleByIndex(0, &device), NVML_SUCCESS);
    assert_int_equal(nvmlDeviceGetComputeRunningProcesses_v3(device, &count, NULL),
                     NVML_ERROR_INSUFFICIENT_SIZE);
    assert_int_equal(count, 1);
    assert_cuda(cuMemFree(block));
    assert_int_equal(drop_context(state), 0);
    assert_int_equal(used_bytes(0), before);
    assert_int_equal(processes_of(0, infos), 0);
}

static void places_and_kinds_are_the_drivers(void **state)
{
    unsigned architecture;
    nvmlDevice_t device, again;
    nvmlUtilization_t rates;
    nvmlPciInfo_t pci;
    unsigned value = 1, count = 1;
    int major, minor, wanted;
    char text[32];

    (void)state;
    assert_cuda(cuInit(0));
    assert_int_equal(nvmlDeviceGetHandleByIndex_v2(1, &device), NVML_SUCCESS);
    assert_int_equal(nvmlDeviceGetPciInfo_v3(device, &pci), NVML_SUCCESS);
    assert_cuda(cuDeviceGetPCIBusId(text, sizeof(text), 1));
    assert_string_equal(pci.busIdLegacy, text);
    assert_int_equal(nvmlDeviceGetHandleByPciBusId_v2(pci.busId, &again), NVML_SUCCESS);
    assert_ptr_equal(again, device);
    assert_int_equal(nvmlDeviceGetHandleByPciBusId_v2("0000:ff:00.0", &again),
                     NVML_ERROR_NOT_FOUND);
    assert_int_equal(nvmlDeviceGetArchitecture(device, &architecture), NVML_SUCCESS);
    assert_int_equal(architecture, 9); /* NVML_DEVICE_ARCH_HOPPER */
    assert_int_equal(nvmlDeviceGetCudaComputeCapability(device, &major, &minor), NVML_SUCCESS);
    assert_cuda(cuDeviceGetAttribute(&wanted, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 1));
    assert_int_equal(major, wanted);
    assert_int_equal(nvmlDeviceGetMinorNumber(device, &value), NVML_SUCCESS);
    assert_int_equal(value, 1);
    assert_int_equal(nvmlDeviceGetUtilizationRates(device, &rates), NVML_SUCCESS);
    assert_int_equal(nvmlDeviceGetGraphicsRunningProcesses_v3(device, &count, NULL), NVML_SUCCESS);
    assert_int_equal(count, 0);
    assert_int_equal(nvmlSystemGetProcessName((unsigned)getpid(), text, sizeof(text)),
                     NVML_SUCCESS);
    assert_int_equal(nvmlSystemGetProcessName(~0u, text, sizeof(text)), NVML_ERROR_NOT_FOUND);
}

/* The function writes the older, shorter layout and nothing behind it. */
static void places_in_the_older_layout(void **state)
{
    struct {
        nvmlPciInfo_v2_t pci;
        unsigned behind;
    } old = {.pci = {.reserved = {7, 7, 7, 7}}, .behind = 7};
    nvmlPciInfo_t pci;
    nvmlDevice_t device;

    (void)state;
    assert_int_equal(nvmlDeviceGetHandleByIndex_v2(1, &device), NVML_SUCCESS);
    assert_int_equal(nvmlDeviceGetPciInfo_v3(device, &pci), NVML_SUCCESS);
    assert_int_equal(nvmlDeviceGetPciInfo_v2(device, &old.pci), NVML_SUCCESS);
    assert_string_equal(old.pci.busId, pci.busIdLegacy);
    assert_int_equal(old.pci.domain, pci.domain);
    assert_int_equal(old.pci.bus, pci.bus);
    assert_int_equal(old.pci.device, pci.device);
    assert_int_equal(old.pci.pciSubSystemId, pci.pciSubSystemId);
    assert_int_equal(old.behind, 7);
    assert_int_equal(nvmlDeviceGetPciInfo(device, &old.pci), NVML_SUCCESS);
    assert_int_equal(nvmlDeviceGetPciInfo_v2(device, NULL), NVML_ERROR_INVALID_ARGUMENT);
}

nvmlReturn_t nvmlDeviceGetNvLinkRemoteDeviceType(nvmlDevice_t device, unsigned link,
                                                 unsigned *type);
nvmlReturn_t nvmlDeviceGetGpuFabricInfoV(nvmlDevice_t device, void *info);

/* "NVML_ERROR_NOT_SUPPORTED if the device does not support it": no link leaves a device. */
static void nothing_is_linked(void **state)
{
    nvmlDevice_t device;
    unsigned type = 7;

    (void)state;
    assert_int_equal(nvmlDeviceGetHandleByIndex_v2(0, &device), NVML_SUCCESS);
    assert_int_equal(nvmlDeviceGetNvLinkRemoteDeviceType(device, 0, &type),
                     NVML_ERROR_NOT_SUPPORTED);
    assert_int_equal(nvmlDeviceGetGpuFabricInfoV(device, &type), NVML_ERROR_NOT_SUPPORTED);
    assert_int_equal(nvmlDeviceGetGpuFabricInfoV(NULL, &type), NVML_ERROR_INVALID_ARGUMENT);
    assert_int_equal(type, 7);
}

static void drivers_have_a_branch(void **state)
{
    nvmlSystemDriverBranchInfo_v1_t branch = {.version = NVML_DRIVER_BRANCH_V1};

    (void)state;
    assert_int_equal(nvmlSystemGetDriverBranch(&branch, sizeof(branch.branch)), NVML_SUCCESS);
    assert_string_equal(branch.branch, "r000_00");
    assert_int_equal(nvmlSystemGetDriverBranch(&branch, 7), NVML_ERROR_INSUFFICIENT_SIZE);
    branch.version = 1;
    assert_int_equal(nvmlSystemGetDriverBranch(&branch, sizeof(branch.branch)),
                     NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    assert_int_equal(nvmlSystemGetDriverBranch(NULL, 80), NVML_ERROR_INVALID_ARGUMENT);
}

static void order_may_be_another_than_the_drivers(void **state)
{
    char first[96], last[96];
    nvmlDevice_t device;
    unsigned index;

    (void)state;
    assert_int_equal(nvmlDeviceGetHandleByIndex_v2(0, &device), NVML_SUCCESS);
    assert_int_equal(nvmlDeviceGetUUID(device, first, sizeof(first)), NVML_SUCCESS);
    setenv("SIMCUDA_NVML_ORDER", "reverse", 1);
    assert_int_equal(nvmlDeviceGetIndex(device, &index), NVML_SUCCESS);
    assert_int_equal(index, 1);
    assert_int_equal(nvmlDeviceGetHandleByIndex_v2(1, &device), NVML_SUCCESS);
    assert_int_equal(nvmlDeviceGetUUID(device, last, sizeof(last)), NVML_SUCCESS);
    assert_string_equal(first, last);
    unsetenv("SIMCUDA_NVML_ORDER");
}

static void errors_have_texts(void **state)
{
    (void)state;
    assert_string_equal(nvmlErrorString(NVML_SUCCESS), "Success");
    assert_true(strlen(nvmlErrorString(NVML_ERROR_UNINITIALIZED)) > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_works_before_init),
        cmocka_unit_test(inits_are_counted),
        cmocka_unit_test(errors_have_texts),
        cmocka_unit_test_setup_teardown(devices_are_the_drivers, start, stop),
        cmocka_unit_test_setup_teardown(places_and_kinds_are_the_drivers, start, stop),
        cmocka_unit_test_setup_teardown(places_in_the_older_layout, start, stop),
        cmocka_unit_test_setup_teardown(nothing_is_linked, start, stop),
        cmocka_unit_test_setup_teardown(drivers_have_a_branch, start, stop),
        cmocka_unit_test_setup_teardown(order_may_be_another_than_the_drivers, start, stop),
        cmocka_unit_test_setup_teardown(memory_is_what_the_driver_holds, start, stop),
    };

    setenv("SIMCUDA_DEVICES", "2", 1);
    setenv("SIMCUDA_MEMORY", "1GiB", 1);
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
