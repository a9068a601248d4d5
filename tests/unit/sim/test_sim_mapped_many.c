/* Mapped memory as a cache uses it: one handle at several addresses, ranges of many mappings, tens
 * of thousands of them, and the errors of devices without it. */
#include "tests/unit/sim_memory_test.h"

#include <stdint.h>
#include <stdio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define HANDLES 20000
#define VIEWS 3
#define KERNEL_MAPPINGS_MAX 50000 /* of the 65530 that Linux allows a process */

static const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                         .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};

static void allow(CUdeviceptr address, size_t bytes, int device)
{
    CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
                              .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};

    MUST(cuMemSetAccess(address, bytes, &access, 1));
}

static CUdeviceptr reserve(size_t bytes)
{
    CUdeviceptr address;

    MUST(cuMemAddressReserve(&address, bytes, 0, 0, 0));
    return address;
}

/* "An allocation can be mapped at several addresses": all of them show the same content. */
static void aliases_share_content(void **state)
{
    CUmemGenericAllocationHandle handle;
    CUdeviceptr base = reserve(3 * PAGE);
    size_t before = free_bytes();

    (void)state;
    MUST(cuMemCreate(&handle, PAGE, &prop, 0));
    for (unsigned i = 0; i < 3; i++)
        MUST(cuMemMap(base + i * PAGE, PAGE, 0, handle, 0));
    allow(base, 3 * PAGE, 0);
    MUST(cuMemRelease(handle));
    MUST(cuMemsetD8(base + 100, 7, 1));
    MUST(cuMemsetD8(base + PAGE + 101, 8, 1));
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(byte_at(base + i * PAGE + 100), 7);
        assert_int_equal(byte_at(base + i * PAGE + 101), 8);
    }
    assert_int_equal(free_bytes(), before - PAGE);
    MUST(cuMemUnmap(base, 2 * PAGE));
    assert_int_equal(byte_at(base + 2 * PAGE + 100), 7);
    assert_int_equal(free_bytes(), before - PAGE);
    MUST(cuMemUnmap(base + 2 * PAGE, PAGE));
    assert_int_equal(free_bytes(), before);
    MUST(cuMemAddressFree(base, 3 * PAGE));
}

/* cuMemUnmap and cuMemSetAccess take ranges of whole mappings, one or many. */
static void ranges_are_whole_mappings(void **state)
{
    CUmemGenericAllocationHandle handles[3];
    CUdeviceptr base = reserve(6 * PAGE);

    (void)state;
    for (unsigned i = 0; i < 3; i++) {
        MUST(cuMemCreate(&handles[i], 2 * PAGE, &prop, 0));
        MUST(cuMemMap(base + i * 2 * PAGE, 2 * PAGE, 0, handles[i], 0));
    }
    allow(base, 6 * PAGE, 0);
    MUST(cuMemsetD8(base, 5, 6 * PAGE));
    MUST_BE(CUDA_ERROR_INVALID_VALUE, cuMemUnmap(base + PAGE, 2 * PAGE));
    MUST_BE(CUDA_ERROR_INVALID_VALUE, cuMemUnmap(base, 3 * PAGE));
    assert_int_equal(byte_at(base + 6 * PAGE - 1), 5);
    MUST(cuMemUnmap(base, 4 * PAGE));
    assert_int_equal(byte_at(base + 4 * PAGE), 5);
    MUST(cuMemUnmap(base + 4 * PAGE, 2 * PAGE));
    for (unsigned i = 0; i < 3; i++)
        MUST(cuMemRelease(handles[i]));
    MUST(cuMemAddressFree(base, 6 * PAGE));
}

static unsigned kernel_mappings(void)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    unsigned lines = 0;
    int letter;

    assert_non_null(maps);
    while ((letter = getc(maps)) != EOF)
        lines += letter == '\n';
    fclose(maps);
    return lines;
}

static CUdeviceptr view_of(CUdeviceptr base, unsigned handle, unsigned view)
{
    /* Each view in another order, so that neighbours in one are none in the next. */
    static const unsigned steps[VIEWS] = {1, 3, 7}; /* prime to HANDLES */
    const unsigned place = (handle * steps[view] + view * 7919) % HANDLES;

    return base + ((size_t)view * HANDLES + place) * PAGE;
}

static void map_many(CUdeviceptr base)
{
    for (unsigned i = 0; i < HANDLES; i++) {
        CUmemGenericAllocationHandle handle;

        MUST(cuMemCreate(&handle, PAGE, &prop, 0));
        for (unsigned view = 0; view < VIEWS; view++)
            MUST(cuMemMap(view_of(base, i, view), PAGE, 0, handle, 0));
        MUST(cuMemRelease(handle));
    }
    allow(base, (size_t)VIEWS * HANDLES * PAGE, 0);
}

/* The kernel's limit of mappings is no limit of the device's. */
static void very_many_mappings(void **state)
{
    CUdeviceptr base = reserve((size_t)VIEWS * HANDLES * PAGE);
    const time_t start = time(NULL);

    (void)state;
    map_many(base);
    for (unsigned i = 0; i < HANDLES; i++)
        MUST(cuMemsetD32Async(view_of(base, i, i % VIEWS) + 64, i, 2, NULL));
    MUST(cuCtxSynchronize());
    for (unsigned i = 0; i < HANDLES; i++) {
        unsigned value;

        MUST(cuMemcpyDtoH(&value, view_of(base, i, (i + 1) % VIEWS) + 64, sizeof value));
        assert_int_equal(value, i);
    }
    assert_in_range(kernel_mappings(), 0, KERNEL_MAPPINGS_MAX);
    MUST(cuMemUnmap(base, (size_t)VIEWS * HANDLES * PAGE));
    MUST(cuMemAddressFree(base, (size_t)VIEWS * HANDLES * PAGE));
    assert_in_range(time(NULL) - start, 0, 30);
}

/* Another device reaches a mapping when it was given access, whatever peers are enabled. */
static void peers_need_access(void **state)
{
    CUmemGenericAllocationHandle handle;
    CUdeviceptr base = reserve(PAGE), other;
    CUcontext context, own;

    (void)state;
    MUST(cuCtxGetCurrent(&own));
    MUST(cuMemCreate(&handle, PAGE, &prop, 0));
    MUST(cuMemMap(base, PAGE, 0, handle, 0));
    allow(base, PAGE, 0);
    MUST(cuMemsetD8(base, 3, PAGE));
    MUST(cuCtxSynchronize());
    MUST(cuDevicePrimaryCtxRetain(&context, 1));
    MUST(cuCtxSetCurrent(context));
    MUST(cuMemAlloc(&other, PAGE));
    assert_int_not_equal(cuMemcpyDtoD(other, base, PAGE), CUDA_SUCCESS);
    allow(base, PAGE, 1);
    MUST(cuMemcpyDtoD(other, base, PAGE));
    assert_int_equal(byte_at(other + PAGE - 1), 3);
    MUST(cuMemFree(other));
    MUST(cuDevicePrimaryCtxRelease(1));
    MUST(cuCtxSetCurrent(own));
    MUST(cuMemUnmap(base, PAGE));
    MUST(cuMemRelease(handle));
    MUST(cuMemAddressFree(base, PAGE));
}

/* In a child of its own: settings are read once. */
static int without_mapping(void)
{
    CUmemGenericAllocationHandle handle;
    CUdeviceptr address;
    size_t granularity;
    int can_map = 1, rdma = 0;

    setenv("SIMCUDA_ATTRIBUTES", "102=0,110=1", 1);
    if (start_device("1") ||
        cuDeviceGetAttribute(&can_map, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
                             0) ||
        cuDeviceGetAttribute(&rdma, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, 0))
        return 1;
    if (can_map != 0 || rdma != 1)
        return 2;
    return cuMemCreate(&handle, PAGE, &prop, 0) != CUDA_ERROR_NOT_SUPPORTED ||
           cuMemAddressReserve(&address, PAGE, 0, 0, 0) != CUDA_ERROR_NOT_SUPPORTED ||
           cuMemGetAllocationGranularity(&granularity, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM) !=
               CUDA_ERROR_NOT_SUPPORTED;
}

static int child_status;

static void devices_that_cannot_map(void **state)
{
    (void)state;
    assert_int_equal(child_status, 0);
}

static int setup(void **state)
{
    const pid_t child = fork();

    (void)state;
    setenv("SIMCUDA_MEMORY", "64GiB", 1);
    if (child == 0)
        _exit(without_mapping());
    if (child < 0 || waitpid(child, &child_status, 0) != child)
        return 1;
    if (start_device("2"))
        return 1;
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(devices_that_cannot_map),   cmocka_unit_test(aliases_share_content),
        cmocka_unit_test(ranges_are_whole_mappings), cmocka_unit_test(peers_need_access),
        cmocka_unit_test(very_many_mappings),
    };

    return cmocka_run_group_tests(tests, setup, NULL);
}
