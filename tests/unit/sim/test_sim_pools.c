/* Stream-ordered pools beside a device's own: on the host, of managed memory, and shared between
 * processes. */
#include "tests/unit/sim_child.h"

#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/wait.h>

static struct child other;

static CUmemPoolProps props_of(CUmemLocationType type, CUmemAllocationType kind)
{
    CUmemPoolProps props = {.allocType = kind};

    props.location.type = type;
    return props;
}

static CUmemPoolProps device_props(CUmemAllocationHandleType types)
{
    CUmemPoolProps props = props_of(CU_MEM_LOCATION_TYPE_DEVICE, CU_MEM_ALLOCATION_TYPE_PINNED);

    props.handleTypes = types;
    return props;
}

static CUresult create(CUmemLocationType type, CUmemAllocationType kind, CUmemoryPool *pool)
{
    CUmemPoolProps props = props_of(type, kind);

    return cuMemPoolCreate(pool, &props);
}

static int attribute(CUpointer_attribute name, CUdeviceptr pointer)
{
    uint64_t value = 0;

    MUST(cuPointerGetAttribute(&value, name, pointer));
    return (int)(uint32_t)value;
}

/* "In the case of pools created with HOST_NUMA or HOST, their default accessibility will be from
 * the host CPU"; no device memory is taken. */
static void host_pools_hold_host_memory(void **state)
{
    const CUmemLocationType types[] = {CU_MEM_LOCATION_TYPE_HOST, CU_MEM_LOCATION_TYPE_HOST_NUMA};
    CUmemLocation device = {.type = CU_MEM_LOCATION_TYPE_DEVICE}, home;
    CUmemAccessDesc open = {.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemAccess_flags access;

    (void)state;
    for (int i = 0; i < 2; i++) {
        size_t before = free_bytes();
        CUmemoryPool pool, owner;
        CUdeviceptr pointer;

        MUST(create(types[i], CU_MEM_ALLOCATION_TYPE_PINNED, &pool));
        MUST(cuMemAllocFromPoolAsync(&pointer, 4 * MIB, pool, NULL));
        MUST(cuStreamSynchronize(NULL));
        assert_int_equal(free_bytes(), before);
        memset((void *)(uintptr_t)pointer, 5, 4 * MIB);
        assert_int_equal(attribute(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, pointer), CU_MEMORYTYPE_HOST);
        MUST(cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, pointer));
        assert_ptr_equal(owner, pool);
        MUST(cuMemPoolGetAccess(&access, pool, &device));
        assert_int_equal(access, CU_MEM_ACCESS_FLAGS_PROT_NONE);
        home = (CUmemLocation){.type = types[i]};
        MUST(cuMemPoolGetAccess(&access, pool, &home));
        assert_int_equal(access, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
        MUST_BE(CUDA_ERROR_INVALID_VALUE, cuMemsetD8(pointer, 6, MIB));
        /* The host copies, where the device has no access: cuda-core's tests. */
        MUST(cuMemcpyAsync(pointer, pointer + MIB, MIB, NULL));
        MUST(cuStreamSynchronize(NULL));
        open.location = device;
        MUST(cuMemPoolSetAccess(pool, &open, 1));
        MUST(cuMemsetD8(pointer, 6, MIB));
        MUST(cuCtxSynchronize());
        assert_int_equal(*(unsigned char *)(uintptr_t)(pointer + MIB - 1), 6);
        assert_int_equal(*(unsigned char *)(uintptr_t)(pointer + MIB), 5);
        MUST(cuMemFreeAsync(pointer, NULL));
        MUST(cuStreamSynchronize(NULL));
        MUST(cuMemPoolDestroy(pool));
    }
}

static void managed_pools_hold_managed_memory(void **state)
{
    size_t before = free_bytes();
    CUmemoryPool pool;
    CUdeviceptr pointer;
    CUmemLocation device = {.type = CU_MEM_LOCATION_TYPE_DEVICE};

    (void)state;
    MUST(create(CU_MEM_LOCATION_TYPE_NONE, CU_MEM_ALLOCATION_TYPE_MANAGED, &pool));
    MUST(cuMemAllocFromPoolAsync(&pointer, 4 * MIB, pool, NULL));
    MUST(cuMemsetD8Async(pointer, 7, 4 * MIB, NULL));
    MUST(cuStreamSynchronize(NULL));
    assert_int_equal(((unsigned char *)(uintptr_t)pointer)[4 * MIB - 1], 7);
    assert_int_equal(attribute(CU_POINTER_ATTRIBUTE_IS_MANAGED, pointer), 1);
    assert_int_equal(free_bytes(), before);
    MUST(cuMemPrefetchAsync(pointer, MIB, device, 0, NULL));
    MUST(cuMemFree(pointer));
    MUST(cuMemPoolDestroy(pool));
}

static void properties_are_checked(void **state)
{
    CUmemPoolProps props = props_of(CU_MEM_LOCATION_TYPE_HOST, CU_MEM_ALLOCATION_TYPE_PINNED);
    CUmemoryPool pool;

    (void)state;
    props.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    MUST_BE(CUDA_ERROR_INVALID_VALUE, cuMemPoolCreate(&pool, &props));
    MUST_BE(CUDA_ERROR_INVALID_VALUE,
            create(CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT, CU_MEM_ALLOCATION_TYPE_PINNED, &pool));
    MUST_BE(CUDA_ERROR_INVALID_VALUE,
            create(CU_MEM_LOCATION_TYPE_NONE, CU_MEM_ALLOCATION_TYPE_PINNED, &pool));
    props = props_of(CU_MEM_LOCATION_TYPE_HOST_NUMA, CU_MEM_ALLOCATION_TYPE_PINNED);
    props.location.id = 1;
    MUST_BE(CUDA_ERROR_INVALID_VALUE, cuMemPoolCreate(&pool, &props));
    props = props_of(CU_MEM_LOCATION_TYPE_DEVICE, CU_MEM_ALLOCATION_TYPE_MANAGED);
    props.maxSize = MIB;
    MUST_BE(CUDA_ERROR_INVALID_VALUE, cuMemPoolCreate(&pool, &props));
    props.maxSize = 0;
    props.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    MUST_BE(CUDA_ERROR_INVALID_VALUE, cuMemPoolCreate(&pool, &props));
}

/* "If the location type is DEVICE and the allocation type is PINNED, this API is the equivalent of
 * calling cuDeviceSetMemPool." */
static void each_place_has_a_default_and_a_current_pool(void **state)
{
    const struct {
        CUmemLocationType type;
        CUmemAllocationType kind;
    } places[] = {{CU_MEM_LOCATION_TYPE_DEVICE, CU_MEM_ALLOCATION_TYPE_PINNED},
                  {CU_MEM_LOCATION_TYPE_DEVICE, CU_MEM_ALLOCATION_TYPE_MANAGED},
                  {CU_MEM_LOCATION_TYPE_HOST, CU_MEM_ALLOCATION_TYPE_PINNED},
                  {CU_MEM_LOCATION_TYPE_HOST, CU_MEM_ALLOCATION_TYPE_MANAGED},
                  {CU_MEM_LOCATION_TYPE_HOST_NUMA, CU_MEM_ALLOCATION_TYPE_PINNED},
                  {CU_MEM_LOCATION_TYPE_HOST_NUMA, CU_MEM_ALLOCATION_TYPE_MANAGED},
                  {CU_MEM_LOCATION_TYPE_NONE, CU_MEM_ALLOCATION_TYPE_MANAGED}};
    CUmemoryPool defaults[7], pool, current;

    (void)state;
    for (int i = 0; i < 7; i++) {
        CUmemLocation place = {.type = places[i].type};

        MUST(cuMemGetDefaultMemPool(&defaults[i], &place, places[i].kind));
        for (int j = 0; j < i; j++)
            assert_ptr_not_equal(defaults[i], defaults[j]);
        MUST_BE(CUDA_ERROR_INVALID_VALUE, cuMemPoolDestroy(defaults[i]));
        MUST(create(places[i].type, places[i].kind, &pool));
        MUST(cuMemSetMemPool(&place, places[i].kind, pool));
        MUST(cuMemGetMemPool(&current, &place, places[i].kind));
        assert_ptr_equal(current, pool);
        MUST(cuDeviceGetMemPool(&current, 0));
        assert_ptr_equal(current, i == 0 ? pool : defaults[0]);
        if (i > 0)
            MUST_BE(CUDA_ERROR_INVALID_VALUE, cuDeviceSetMemPool(0, pool));
        MUST(cuMemPoolDestroy(pool)); /* the default one is current again */
        MUST(cuMemGetMemPool(&current, &place, places[i].kind));
        assert_ptr_equal(current, defaults[i]);
    }
    MUST(cuDeviceGetDefaultMemPool(&pool, 0));
    assert_ptr_equal(pool, defaults[0]);
}

/* ---- shared ---- */

struct offer {
    CUmemPoolPtrExportData small, large, foreign;
};

/* Makes memory for the other process, then looks whether that wrote into it. */
static void run_exporter(int socket)
{
    CUmemPoolProps props = device_props(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    CUdeviceptr first, small, large, elsewhere;
    CUmemoryPool pool, second;
    struct offer offer;
    unsigned char seen[2];
    char done;
    int fd;

    if (cuMemPoolCreate(&pool, &props) || cuMemPoolCreate(&second, &props) ||
        cuMemAllocFromPoolAsync(&first, 700, pool, NULL) ||
        cuMemAllocFromPoolAsync(&small, 700, pool, NULL) ||
        cuMemAllocFromPoolAsync(&large, 5 * MIB, pool, NULL) ||
        cuMemAllocFromPoolAsync(&elsewhere, 700, second, NULL) ||
        cuMemsetD8Async(small, 21, 700, NULL) || cuMemsetD8Async(large, 22, 5 * MIB, NULL) ||
        cuStreamSynchronize(NULL) || cuMemPoolExportPointer(&offer.small, small) ||
        cuMemPoolExportPointer(&offer.large, large) ||
        cuMemPoolExportPointer(&offer.foreign, elsewhere) ||
        cuMemPoolExportToShareableHandle(&fd, pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0))
        _exit(5);
    send_all(socket, &offer, sizeof offer);
    send_descriptor(socket, fd);
    hear(socket, &done, 1);
    cuMemcpyDtoH(&seen[0], small + 699, 1);
    cuMemcpyDtoH(&seen[1], large, 1);
    send_all(socket, seen, sizeof seen);
    hear(socket, &done, 1);
}

static void pools_are_opened_in_another_process(void **state)
{
    size_t before = free_bytes(), size;
    CUdeviceptr small, large, pointer;
    CUmemoryPool pool, owner;
    CUcontext current;
    struct offer offer;
    unsigned char seen[2];
    int fd;

    (void)state;
    go(other);
    hear(other.socket, &offer, sizeof offer);
    fd = receive_descriptor(other.socket);
    MUST(cuMemPoolImportFromShareableHandle(&pool, (void *)(intptr_t)fd,
                                            CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    close(fd);
    /* No context is wanted: INVALID_CONTEXT is not among the documented errors. */
    MUST(cuCtxPopCurrent(&current));
    MUST(cuMemPoolImportPointer(&small, pool, &offer.small));
    MUST(cuPointerGetAttribute(&size, CU_POINTER_ATTRIBUTE_RANGE_SIZE, small));
    assert_int_equal(size, 700);
    MUST(cuCtxPushCurrent(current));
    MUST(cuMemPoolImportPointer(&large, pool, &offer.large));
    MUST_BE(CUDA_ERROR_INVALID_VALUE, cuMemPoolImportPointer(&pointer, pool, &offer.foreign));
    assert_int_equal(byte_at(small + 699), 21);
    assert_int_equal(byte_at(large + 5 * MIB - 1), 22);
    MUST(cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, large));
    assert_ptr_equal(owner, pool);
    assert_int_equal(free_bytes(), before); /* the exporter's capacity, on a device of its own */
    MUST(cuMemsetD8(small + 699, 31, 1));
    MUST(cuMemsetD8(large, 32, 1));
    MUST(cuCtxSynchronize());
    send_all(other.socket, "d", 1);
    hear(other.socket, seen, sizeof seen);
    assert_int_equal(seen[0], 31);
    assert_int_equal(seen[1], 32);

    /* "Imported memory pools do not support creating new allocations." */
    MUST_BE(CUDA_ERROR_INVALID_VALUE, cuMemAllocFromPoolAsync(&pointer, 64, pool, NULL));
    MUST_BE(CUDA_ERROR_INVALID_VALUE, cuDeviceSetMemPool(0, pool));
    MUST_BE(CUDA_ERROR_INVALID_VALUE, cuMemPoolExportToShareableHandle(
                                          &fd, pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    MUST_BE(CUDA_ERROR_INVALID_VALUE, cuMemPoolExportPointer(&offer.small, small));
    MUST_BE(CUDA_ERROR_INVALID_VALUE, cuIpcCloseMemHandle(small));
    MUST(cuMemPoolDestroy(pool)); /* what was imported stays */
    assert_int_equal(byte_at(large), 32);
    MUST(cuMemFree(large));
    MUST(cuMemFreeAsync(small, NULL));
    MUST(cuStreamSynchronize(NULL));
    MUST_BE(CUDA_ERROR_INVALID_VALUE, cuMemFree(small));
    send_all(other.socket, "q", 1);
    waitpid(other.pid, NULL, 0);
}

static void only_pools_made_for_it_are_shared(void **state)
{
    CUmemPoolProps props = device_props(CU_MEM_HANDLE_TYPE_NONE);
    CUmemPoolPtrExportData data;
    CUdeviceptr pointer;
    CUmemoryPool pool;
    int fd, types;

    (void)state;
    MUST(cuDeviceGetAttribute(&types, CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES, 0));
    assert_int_equal(types, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    MUST(cuMemPoolCreate(&pool, &props));
    MUST(cuMemAllocFromPoolAsync(&pointer, 700, pool, NULL));
    MUST_BE(CUDA_ERROR_INVALID_VALUE, cuMemPoolExportToShareableHandle(
                                          &fd, pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    MUST_BE(CUDA_ERROR_INVALID_VALUE, cuMemPoolExportPointer(&data, pointer));
    MUST(cuMemFreeAsync(pointer, NULL));
    MUST(cuStreamSynchronize(NULL));
    MUST(cuMemPoolDestroy(pool));
    fd = open("/dev/null", O_RDONLY);
    MUST_BE(CUDA_ERROR_INVALID_VALUE,
            cuMemPoolImportFromShareableHandle(&pool, (void *)(intptr_t)fd,
                                               CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    close(fd);
}

/* A shared pool's memory comes and goes as any other pool's: reused in stream order, trimmed, zero
 * again when it returns. */
static void shared_pools_work_as_others(void **state)
{
    CUmemPoolProps props = device_props(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    size_t before = free_bytes();
    CUdeviceptr first, second;
    CUmemoryPool pool;

    (void)state;
    MUST(cuMemPoolCreate(&pool, &props));
    MUST(cuMemAllocFromPoolAsync(&first, 8 * MIB, pool, NULL));
    assert_int_equal(before - free_bytes(), 8 * MIB);
    MUST(cuMemsetD8Async(first, 9, 8 * MIB, NULL));
    MUST(cuMemFreeAsync(first, NULL));
    MUST(cuMemAllocFromPoolAsync(&second, 8 * MIB, pool, NULL));
    assert_int_equal(first, second);
    assert_int_equal(byte_at(second + 8 * MIB - 1), 9);
    MUST(cuMemFreeAsync(second, NULL));
    MUST(cuStreamSynchronize(NULL));
    MUST(cuMemPoolTrimTo(pool, 0));
    assert_int_equal(free_bytes(), before);
    MUST(cuMemAllocFromPoolAsync(&first, 8 * MIB, pool, NULL));
    assert_int_equal(byte_at(first), 0);
    MUST(cuMemFree(first));
    MUST(cuMemPoolDestroy(pool));
    assert_int_equal(free_bytes(), before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(host_pools_hold_host_memory),
        cmocka_unit_test(managed_pools_hold_managed_memory),
        cmocka_unit_test(properties_are_checked),
        cmocka_unit_test(each_place_has_a_default_and_a_current_pool),
        cmocka_unit_test(only_pools_made_for_it_are_shared),
        cmocka_unit_test(shared_pools_work_as_others),
        cmocka_unit_test(pools_are_opened_in_another_process),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);
    other = fork_child(run_exporter);
    if (start_device("1") != 0)
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
