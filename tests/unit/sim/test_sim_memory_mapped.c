/* The simulated device's mapping interface, stream-ordered pools and graph memory, each behaviour
 * as NVIDIA's driver API documentation states it. */
#include "tests/unit/sim_memory_test.h"

#include <setjmp.h>
#include <signal.h>
#include <unistd.h>

static CUmemAllocationProp prop_of(int device, CUmemAllocationHandleType types)
{
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .requestedHandleTypes = types};

    prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    prop.location.id = device;
    return prop;
}

static void allow(CUdeviceptr address, size_t bytes, int device, CUmemAccess_flags flags)
{
    CUmemAccessDesc access = {.flags = flags};

    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.location.id = device;
    MUST(cuMemSetAccess(address, bytes, &access, 1));
}

static CUmemGenericAllocationHandle create(size_t bytes)
{
    const CUmemAllocationProp prop = prop_of(0, CU_MEM_HANDLE_TYPE_NONE);
    CUmemGenericAllocationHandle handle;

    MUST(cuMemCreate(&handle, bytes, &prop, 0));
    return handle;
}

/* ---- the mapping interface ---- */

/* cuMemCreate: "size must be a multiple of the granularity", flags "must be zero". */
static void sizes_follow_the_granularity(void **state)
{
    const CUmemAllocationProp prop = prop_of(0, CU_MEM_HANDLE_TYPE_NONE);
    const CUmemAllocationProp nowhere = prop_of(9, CU_MEM_HANDLE_TYPE_NONE);
    CUmemGenericAllocationHandle handle;
    CUdeviceptr address;
    size_t granularity;

    (void)state;
    MUST(cuMemGetAllocationGranularity(&granularity, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    assert_int_equal(granularity, PAGE);
    MUST_BE(CUDA_ERROR_INVALID_VALUE, cuMemCreate(&handle, PAGE + 4096, &prop, 0));
    MUST_BE(CUDA_ERROR_INVALID_VALUE, cuMemCreate(&handle, PAGE, &prop, 1));
    MUST_BE(CUDA_ERROR_INVALID_VALUE, cuMemCreate(&handle, 0, &prop, 0));
    MUST_BE(CUDA_ERROR_INVALID_DEVICE, cuMemCreate(&handle, PAGE, &nowhere, 0));
    MUST_BE(CUDA_ERROR_OUT_OF_MEMORY, cuMemCreate(&handle, 2048 * MIB, &prop, 0));
    MUST_BE(CUDA_ERROR_INVALID_VALUE, cuMemAddressReserve(&address, 0, 0, 0, 0));
    MUST_BE(CUDA_ERROR_INVALID_VALUE, cuMemAddressReserve(&address, PAGE, 3, 0, 0));
    MUST_BE(CUDA_ERROR_INVALID_VALUE, cuMemRelease(12345));
}

/* cuMemRelease: the memory "will be freed when all outstanding mappings to the memory are unmapped
 * and when all outstanding references to the handle are released". */
static void memory_lives_until_handle_and_mapping_are_gone(void **state)
{
    CUmemGenericAllocationHandle handle = create(4 * PAGE), again;
    size_t before = free_bytes() + 4 * PAGE;
    CUdeviceptr address;

    (void)state;
    MUST(cuMemAddressReserve(&address, 8 * PAGE, 0, 0, 0));
    MUST(cuMemMap(address, 4 * PAGE, 0, handle, 0));
    MUST(cuMemRelease(handle));
    assert_int_equal(free_bytes(), before - 4 * PAGE);
    allow(address, 4 * PAGE, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    MUST(cuMemsetD8(address, 5, 4 * PAGE));
    assert_int_equal(byte_at(address + 3 * PAGE), 5);
    MUST(cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)(address + PAGE)));
    MUST_BE(CUDA_ERROR_INVALID_VALUE, cuMemAddressFree(address, 8 * PAGE));
    MUST(cuMemUnmap(address, 4 * PAGE));
    assert_int_equal(free_bytes(), before - 4 * PAGE);
    MUST(cuMemMap(address + PAGE, 4 * PAGE, 0, again, 0)); /* contents stay, addresses change */
    allow(address + PAGE, 4 * PAGE, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    assert_int_equal(byte_at(address + PAGE), 5);
    MUST(cuMemUnmap(address + PAGE, 4 * PAGE));
    MUST(cuMemRelease(again));
    assert_int_equal(free_bytes(), before);
    MUST_BE(CUDA_ERROR_INVALID_VALUE, cuMemRelease(again));
    MUST(cuMemAddressFree(address, 8 * PAGE));
}

/* cuMemMap: the range must be reserved and free of mappings; "offset ... must be zero". cuMemUnmap:
 * "the entire mapping", never part of one. */
static void mappings_that_are_wrong(void **state)
{
    CUmemGenericAllocationHandle handle = create(2 * PAGE), other = create(PAGE);
    CUdeviceptr address;

    (void)state;
    MUST(cuMemAddressReserve(&address, 4 * PAGE, 0, 0, 0));
    MUST_BE(CUDA_ERROR_INVALID_VALUE, cuMemMap(address + 3 * PAGE, 2 * PAGE, 0, handle, 0));
    MUST_BE(CUDA_ERROR_INVALID_VALUE, cuMemMap(address, PAGE, PAGE, handle, 0));
    MUST_BE(CUDA_ERROR_INVALID_VALUE, cuMemMap(address, 3 * PAGE, 0, handle, 0));
    MUST(cuMemMap(address, 2 * PAGE, 0, handle, 0));
    MUST_BE(CUDA_ERROR_INVALID_VALUE, cuMemMap(address + PAGE, PAGE, 0, other, 0));
    MUST(cuMemMap(address + 2 * PAGE, PAGE, 0, other, 0));
    MUST_BE(CUDA_ERROR_INVALID_VALUE, cuMemUnmap(address, PAGE));
    MUST_BE(CUDA_ERROR_INVALID_VALUE, cuMemUnmap(address, 4 * PAGE));
    MUST(cuMemUnmap(address, 3 * PAGE)); /* several whole mappings at once */
    MUST(cuMemRelease(handle));
    MUST(cuMemRelease(other));
    MUST(cuMemAddressFree(address, 4 * PAGE));
}

/* Access comes with cuMemSetAccess alone: "no access" is what a new mapping has. */
static void access_must_be_given(void **state)
{
    CUmemGenericAllocationHandle handle = create(PAGE);
    const CUmemLocation here = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0};
    unsigned long long flags = 9;
    CUdeviceptr address;

    (void)state;
    MUST(cuMemAddressReserve(&address, PAGE, 0, 0, 0));
    MUST_BE(CUDA_ERROR_INVALID_VALUE, cuMemsetD8(address, 1, 16));
    MUST_BE(CUDA_ERROR_INVALID_VALUE, cuMemGetAccess(&flags, &here, address));
    MUST(cuMemMap(address, PAGE, 0, handle, 0));
    MUST(cuMemGetAccess(&flags, &here, address));
    assert_int_equal(flags, CU_MEM_ACCESS_FLAGS_PROT_NONE);
    MUST_BE(CUDA_ERROR_INVALID_VALUE, cuMemsetD8(address, 1, 16));
    allow(address, PAGE, 0, CU_MEM_ACCESS_FLAGS_PROT_READ);
    MUST_BE(CUDA_ERROR_INVALID_VALUE, cuMemsetD8(address, 1, 16));
    assert_int_equal(byte_at(address), 0);
    allow(address, PAGE, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    MUST(cuMemGetAccess(&flags, &here, address));
    assert_int_equal(flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    MUST(cuMemsetD8(address, 1, 16));
    MUST_BE(CUDA_ERROR_INVALID_VALUE, cuMemFree(address)); /* not cuMemAlloc's */
    MUST(cuCtxSynchronize()); /* fills of device memory do not wait, and unmapping waits for nothing
                               */
    MUST(cuMemUnmap(address, PAGE));
    MUST_BE(CUDA_ERROR_INVALID_VALUE, cuMemsetD8(address, 1, 16));
    MUST(cuMemRelease(handle));
    MUST(cuMemAddressFree(address, PAGE));
}

#if CUDA_VERSION >= 13000
/* cuMemCreate: "To create a CPU allocation targeting a specific host NUMA node, applications must
 * set … type to CU_MEM_LOCATION_TYPE_HOST_NUMA"; with HOST "requestedHandleTypes must be 0";
 * HOST_NUMA_CURRENT is invalid. The device reaches it by cuMemSetAccess, and so does the host, of
 * which "id is ignored". */
static void host_memory_is_mapped_as_the_devices(void **state)
{
    const CUmemLocationType types[] = {CU_MEM_LOCATION_TYPE_HOST_NUMA, CU_MEM_LOCATION_TYPE_HOST};
    const size_t before = free_bytes();
    CUmemAllocationProp prop = prop_of(0, CU_MEM_HANDLE_TYPE_NONE);
    CUmemAccessDesc access[] = {
        {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
         .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE},
        {.location = {.type = CU_MEM_LOCATION_TYPE_HOST, .id = -7},
         .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE},
    };
    CUmemGenericAllocationHandle handle;
    CUdeviceptr address, device;
    unsigned kind;
    int ordinal;

    (void)state;
    MUST(cuMemAlloc(&device, 4 * PAGE));
    MUST(cuMemsetD8(device, 7, 4 * PAGE));
    MUST(cuMemAddressReserve(&address, 4 * PAGE, 0, 0, 0));
    for (int i = 0; i < 2; i++) {
        prop.location.type = types[i];
        MUST(cuMemCreate(&handle, 4 * PAGE, &prop, 0));
        assert_int_equal(before - free_bytes(), 4 * PAGE); /* the device's own */
        MUST(cuMemMap(address, 4 * PAGE, 0, handle, 0));
        MUST(cuMemRelease(handle));
        MUST_BE(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoD(address, device, 100));
        access[1].location.type = types[i];
        MUST(cuMemSetAccess(address, 4 * PAGE, access, 2));
        MUST(cuMemcpyDtoD(address, device, 4 * PAGE));
        MUST(cuCtxSynchronize());
        assert_int_equal(*(unsigned char *)(uintptr_t)(address + 3 * PAGE), 7);
        *(unsigned char *)(uintptr_t)address = 9;
        MUST(cuMemcpyDtoD(device, address, 1));
        assert_int_equal(byte_at(device), 9);
        MUST(cuPointerGetAttribute(&kind, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address));
        assert_int_equal(kind, CU_MEMORYTYPE_HOST);
        MUST(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address));
        assert_int_equal(ordinal, CU_DEVICE_CPU);
        MUST(cuMemUnmap(address, 4 * PAGE));
    }
    prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    MUST_BE(CUDA_ERROR_INVALID_VALUE, cuMemCreate(&handle, PAGE, &prop, 0));
    prop.location.type = CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT;
    prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_NONE;
    MUST_BE(CUDA_ERROR_INVALID_VALUE, cuMemCreate(&handle, PAGE, &prop, 0));
    handle = create(PAGE);
    MUST(cuMemMap(address, PAGE, 0, handle, 0));
    access[1].location.type = CU_MEM_LOCATION_TYPE_HOST_NUMA; /* the memory is a device's */
    MUST_BE(CUDA_ERROR_INVALID_VALUE, cuMemSetAccess(address, PAGE, access, 2));
    MUST(cuMemUnmap(address, PAGE));
    MUST(cuMemRelease(handle));
    MUST(cuMemAddressFree(address, 4 * PAGE));
    MUST(cuMemFree(device));
    assert_int_equal(free_bytes(), before);
}
#endif

static sigjmp_buf fault;

static void on_fault(int number)
{
    (void)number;
    siglongjmp(fault, 1);
}

static int faults(CUdeviceptr address)
{
    if (sigsetjmp(fault, 1) != 0)
        return 1;
    *(volatile char *)(uintptr_t)address;
    return 0;
}

/* A stale address reaches no memory, neither after cuMemFree nor after cuMemUnmap. */
static void stale_addresses_fault(void **state)
{
    CUmemGenericAllocationHandle handle = create(PAGE);
    struct sigaction old, action = {.sa_handler = on_fault};
    CUdeviceptr pointer, address;

    (void)state;
    sigaction(SIGSEGV, &action, &old);
    MUST(cuMemAlloc(&pointer, 4 * MIB));
    MUST(cuMemFree(pointer));
    assert_true(faults(pointer));
    MUST(cuMemAddressReserve(&address, PAGE, 0, 0, 0));
    assert_true(faults(address));
    MUST(cuMemMap(address, PAGE, 0, handle, 0));
    assert_true(faults(address));
    allow(address, PAGE, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    assert_false(faults(address));
    MUST(cuMemUnmap(address, PAGE));
    assert_true(faults(address));
    sigaction(SIGSEGV, &old, NULL);
    MUST(cuMemRelease(handle));
    MUST(cuMemAddressFree(address, PAGE));
}

/* Exporting needs the handle type to have been asked for; what comes back is the same memory. */
static void descriptors_share_memory(void **state)
{
    const CUmemAllocationProp prop = prop_of(0, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    CUmemGenericAllocationHandle handle, same, plain = create(PAGE);
    size_t before = free_bytes();
    int fd = -1;

    (void)state;
    MUST_BE(CUDA_ERROR_INVALID_VALUE,
            cuMemExportToShareableHandle(&fd, plain, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    MUST(cuMemCreate(&handle, PAGE, &prop, 0));
    MUST(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    MUST(cuMemImportFromShareableHandle(&same, (void *)(intptr_t)fd,
                                        CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    close(fd);
    assert_int_equal(free_bytes(), before - PAGE);
    MUST(cuMemRelease(handle));
    assert_int_equal(free_bytes(), before - PAGE);
    MUST(cuMemRelease(same));
    assert_int_equal(free_bytes(), before);
    MUST_BE(CUDA_ERROR_INVALID_VALUE,
            cuMemImportFromShareableHandle(&same, (void *)(intptr_t)0,
                                           CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    MUST(cuMemRelease(plain));
}

/* Mappings made before and after the export, here and by the descriptor, are of the same memory. */
static void exported_memory_keeps_content_and_mappings(void **state)
{
    const CUmemAllocationProp prop = prop_of(0, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    CUmemGenericAllocationHandle handle, same;
    CUdeviceptr range;
    unsigned char value = 0;
    int fd = -1;

    (void)state;
    MUST(cuMemCreate(&handle, PAGE, &prop, 0));
    MUST(cuMemAddressReserve(&range, 2 * PAGE, 0, 0, 0));
    MUST(cuMemMap(range, PAGE, 0, handle, 0));
    allow(range, PAGE, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    MUST(cuMemsetD8(range + PAGE - 1, 7, 1));
    MUST(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    MUST(cuMemcpyDtoH(&value, range + PAGE - 1, 1));
    assert_int_equal(value, 7);
    MUST(cuMemImportFromShareableHandle(&same, (void *)(intptr_t)fd,
                                        CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    close(fd);
    MUST(cuMemMap(range + PAGE, PAGE, 0, same, 0));
    allow(range + PAGE, PAGE, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    MUST(cuMemcpyDtoH(&value, range + 2 * PAGE - 1, 1));
    assert_int_equal(value, 7);
    MUST(cuMemsetD8(range, 9, 1));
    MUST(cuMemcpyDtoH(&value, range + PAGE, 1));
    assert_int_equal(value, 9);
    MUST(cuMemUnmap(range, 2 * PAGE));
    MUST(cuMemRelease(handle));
    MUST(cuMemRelease(same));
    MUST(cuMemAddressFree(range, 2 * PAGE));
}

/* ---- pools ---- */

static uint64_t pool_count(CUmemoryPool pool, CUmemPool_attribute attribute)
{
    cuuint64_t value;

    MUST(cuMemPoolGetAttribute(pool, attribute, &value));
    return value;
}

/* Freed memory is ready at once for its own stream. Release threshold 0: "the next call to stream,
 * event or context synchronize" releases it. */
static void pool_memory_returns_at_synchronisation(void **state)
{
    size_t before = free_bytes();
    CUdeviceptr first, second;
    CUmemoryPool pool;
    CUstream stream;

    (void)state;
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    MUST(cuDeviceGetMemPool(&pool, 0));
    MUST(cuMemAllocAsync(&first, 3 * MIB, stream));
    assert_int_equal(pool_count(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 3 * MIB);
    assert_int_equal(pool_count(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 2 * PAGE);
    assert_int_equal(before - free_bytes(), 2 * PAGE);
    MUST(cuMemsetD8Async(first, 1, 3 * MIB, stream));
    MUST(cuMemFreeAsync(first, stream));
    assert_int_equal(pool_count(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 0);
    MUST(cuMemAllocAsync(&second, 3 * MIB, stream));
    assert_int_equal(first, second);
    MUST_BE(CUDA_ERROR_INVALID_VALUE, cuMemFreeAsync(second + 512, stream));
    MUST(cuMemFreeAsync(second, stream));
    MUST_BE(CUDA_ERROR_INVALID_VALUE, cuMemFreeAsync(second, stream));
    assert_int_equal(before - free_bytes(), 2 * PAGE);
    MUST(cuStreamSynchronize(stream));
    assert_int_equal(free_bytes(), before);
    assert_int_equal(pool_count(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH), 3 * MIB);
    MUST(cuStreamDestroy(stream));
}

/* A threshold keeps memory; cuMemPoolTrimTo releases it. */
static void threshold_keeps_memory(void **state)
{
    cuuint64_t threshold = UINT64_MAX, nothing = 0;
    size_t before = free_bytes();
    CUdeviceptr pointer;
    CUmemoryPool pool;

    (void)state;
    MUST(cuDeviceGetDefaultMemPool(&pool, 0));
    MUST(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
    MUST(cuMemAllocAsync(&pointer, 10 * MIB, NULL));
    MUST(cuMemFree(pointer)); /* cuMemFree takes stream-ordered memory too */
    MUST(cuCtxSynchronize());
    assert_int_equal(before - free_bytes(), 10 * MIB);
    MUST(cuMemPoolTrimTo(pool, 4 * MIB));
    assert_int_equal(before - free_bytes(), 4 * MIB);
    MUST(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &nothing));
    MUST(cuMemPoolTrimTo(pool, 0));
    assert_int_equal(free_bytes(), before);
    threshold = 1; /* "high watermark can only be reset to zero" */
    MUST_BE(CUDA_ERROR_INVALID_VALUE,
            cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &threshold));
    MUST_BE(CUDA_ERROR_INVALID_VALUE,
            cuMemPoolDestroy(pool)); /* "the default pool cannot be destroyed" */
}

/* Memory freed on one stream behind running work: another stream gets it only when it is ordered
 * behind the free. */
static void other_streams_wait_for_order(void **state)
{
    int off = 0, on = 1;
    CUdeviceptr first, unordered, ordered;
    CUstream one, other;
    CUmemoryPool pool;
    CUevent event;

    (void)state;
    MUST(cuDeviceGetMemPool(&pool, 0));
    MUST(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, &off));
    MUST(cuStreamCreate(&one, CU_STREAM_NON_BLOCKING));
    MUST(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    MUST(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    MUST(cuMemAllocAsync(&first, 2 * MIB, one));
    MUST(cuMemsetD8Async(first, 1, 2 * MIB, one));
    MUST(cuMemFreeAsync(first, one));
    MUST(cuMemAllocAsync(&unordered, 2 * MIB, other));
    assert_int_not_equal(unordered, first);
    MUST(cuEventRecord(event, one));
    MUST(cuStreamWaitEvent(other, event, 0));
    MUST(cuMemAllocAsync(&ordered, 2 * MIB, other));
    assert_int_equal(ordered, first);
    MUST(cuMemFreeAsync(unordered, other));
    MUST(cuMemFreeAsync(ordered, other));
    MUST(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, &on));
    MUST(cuCtxSynchronize());
    MUST(cuStreamDestroy(one));
    MUST(cuStreamDestroy(other));
    MUST(cuEventDestroy(event));
}

/* cuMemPoolDestroy: with allocations left it "returns immediately and the resources ... are
 * released automatically". */
static void destroyed_pool_ends_with_its_memory(void **state)
{
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED};
    size_t before = free_bytes();
    CUmemoryPool pool, found;
    CUdeviceptr pointer;

    (void)state;
    props.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    MUST(cuMemPoolCreate(&pool, &props));
    MUST(cuMemAllocFromPoolAsync(&pointer, 100, pool, NULL));
    MUST(cuPointerGetAttribute(&found, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, pointer));
    assert_ptr_equal(found, pool);
    MUST(cuMemPoolDestroy(pool));
    MUST_BE(CUDA_ERROR_INVALID_VALUE, cuMemPoolTrimTo(pool, 0));
    MUST(cuMemsetD8(pointer, 1, 100));
    MUST(cuMemFreeAsync(pointer, NULL));
    MUST(cuCtxSynchronize());
    assert_int_equal(free_bytes(), before);
}

/* A full device: pending frees are waited for, then it is out of memory. */
static void pools_run_out(void **state)
{
    CUdeviceptr first, second;
    size_t before = free_bytes();
    CUstream one, other;

    (void)state;
    MUST(cuStreamCreate(&one, CU_STREAM_NON_BLOCKING));
    MUST(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    MUST(cuMemAllocAsync(&first, 0, one));
    assert_int_equal(first, 0);
    MUST_BE(CUDA_ERROR_OUT_OF_MEMORY, cuMemAllocAsync(&first, (size_t)1 << 62, one));
    MUST(cuMemAllocAsync(&first, 600 * MIB, one));
    MUST_BE(CUDA_ERROR_OUT_OF_MEMORY, cuMemAllocAsync(&second, 600 * MIB, other));
    MUST(cuMemFreeAsync(first, one));
    MUST(cuMemAllocAsync(&second, 600 * MIB, other));
    MUST(cuMemFreeAsync(second, other));
    MUST(cuCtxSynchronize());
    assert_int_equal(free_bytes(), before);
    MUST(cuStreamDestroy(one));
    MUST(cuStreamDestroy(other));
}

/* ---- graph memory ---- */

static uint64_t graph_bytes(CUgraphMem_attribute attribute)
{
    cuuint64_t value;

    MUST(cuDeviceGetGraphMemAttribute(0, attribute, &value));
    return value;
}

/* Captured, allocation and free become nodes: memory is taken by the launch and kept until trimmed.
 */
static void captured_allocations_are_graph_nodes(void **state)
{
    size_t before = free_bytes();
    CUdeviceptr pointer;
    CUstream stream;
    CUgraphExec exec;
    CUgraph graph;

    (void)state;
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    MUST(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    MUST(cuMemAllocAsync(&pointer, 4 * MIB, stream));
    MUST(cuMemsetD8Async(pointer, 6, 4 * MIB, stream));
    MUST(cuMemFreeAsync(pointer, stream));
    MUST(cuStreamEndCapture(stream, &graph));
    MUST(cuGraphInstantiate(&exec, graph, 0));
    assert_int_equal(free_bytes(), before);
    for (int i = 0; i < 3; i++) {
        MUST(cuGraphLaunch(exec, stream));
        MUST(cuStreamSynchronize(stream));
        assert_int_equal(before - free_bytes(), 4 * MIB);
        assert_int_equal(graph_bytes(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT), 0);
    }
    assert_int_equal(graph_bytes(CU_GRAPH_MEM_ATTR_USED_MEM_HIGH), 4 * MIB);
    MUST(cuDeviceGraphMemTrim(0));
    assert_int_equal(free_bytes(), before);
    MUST(cuGraphExecDestroy(exec));
    MUST(cuGraphDestroy(graph));
    MUST(cuStreamDestroy(stream));
}

/* ---- peers and contexts ---- */

static void peers(void **state)
{
    CUcontext here, there;
    CUdeviceptr pointer, other;
    int can = 7;

    (void)state;
    MUST(cuDeviceCanAccessPeer(&can, 0, 1));
    assert_int_equal(can, 1);
    MUST(cuDeviceCanAccessPeer(&can, 0, 0));
    assert_int_equal(can, 0);
    MUST_BE(CUDA_ERROR_INVALID_DEVICE, cuDeviceCanAccessPeer(&can, 0, 2));
    MUST(cuCtxGetCurrent(&here));
    MUST(cuDevicePrimaryCtxRetain(&there, 1));
    MUST_BE(CUDA_ERROR_INVALID_CONTEXT, cuCtxEnablePeerAccess(here, 0));
    MUST_BE(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, cuCtxDisablePeerAccess(there));
    MUST(cuCtxEnablePeerAccess(there, 0));
    MUST_BE(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, cuCtxEnablePeerAccess(there, 0));
    MUST(cuMemAlloc(&pointer, 100));
    MUST(cuCtxPushCurrent(there));
    MUST(cuMemAlloc(&other, 100));
    MUST(cuCtxPopCurrent(NULL));
    MUST(cuMemsetD8(pointer, 8, 100));
    MUST(cuMemcpyPeer(other, there, pointer, here, 100));
    assert_int_equal(byte_at(other + 99), 8);
    MUST(cuCtxDisablePeerAccess(there));
    MUST(cuMemFree(pointer));
    MUST(cuMemFree(other));
    MUST(cuDevicePrimaryCtxRelease(1));
}

/* A context destroyed takes its memory along. */
static void destroyed_context_gives_all_back(void **state)
{
    const CUDA_ARRAY_DESCRIPTOR flat = {
        .Width = 1000, .Height = 1000, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 4};
    size_t before = free_bytes();
    CUdeviceptr small, large;
    CUcontext context;
    CUarray array;
    void *host;

    (void)state;
    MUST(cuCtxCreate(&context, NULL, 0, 0));
    MUST(cuMemAlloc(&small, 10));
    MUST(cuMemAlloc(&large, 10 * MIB));
    MUST(cuMemHostAlloc(&host, 100, 0));
    MUST(cuArrayCreate(&array, &flat));
    assert_true(free_bytes() < before - 26 * MIB);
    MUST(cuCtxDestroy(context));
    assert_int_equal(free_bytes(), before);
    MUST_BE(CUDA_ERROR_INVALID_VALUE, cuMemFree(small));
    MUST_BE(CUDA_ERROR_INVALID_VALUE, cuMemFreeHost(host));
}

/* The last: the context does not survive. An asynchronous operation is checked when it runs, over
 * its whole range, and its error stays. */
static void asynchronous_use_after_unmap_is_sticky(void **state)
{
    CUmemGenericAllocationHandle handle = create(PAGE);
    CUdeviceptr address;
    CUstream stream;

    (void)state;
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    MUST(cuMemAddressReserve(&address, 2 * PAGE, 0, 0, 0));
    MUST(cuMemMap(address, PAGE, 0, handle, 0));
    allow(address, PAGE, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    MUST(cuMemsetD8Async(address, 1, PAGE, stream));
    MUST(cuStreamSynchronize(stream));
    MUST(cuMemsetD8Async(address + 100, 1, PAGE, stream)); /* 100 bytes too far */
    MUST_BE(CUDA_ERROR_ILLEGAL_ADDRESS, cuStreamSynchronize(stream));
    MUST_BE(CUDA_ERROR_ILLEGAL_ADDRESS, cuMemAlloc(&address, 100));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_follow_the_granularity),
        cmocka_unit_test(memory_lives_until_handle_and_mapping_are_gone),
        cmocka_unit_test(mappings_that_are_wrong),
        cmocka_unit_test(access_must_be_given),
#if CUDA_VERSION >= 13000
        cmocka_unit_test(host_memory_is_mapped_as_the_devices),
#endif
        cmocka_unit_test(stale_addresses_fault),
        cmocka_unit_test(descriptors_share_memory),
        cmocka_unit_test(exported_memory_keeps_content_and_mappings),
        cmocka_unit_test(pool_memory_returns_at_synchronisation),
        cmocka_unit_test(threshold_keeps_memory),
        cmocka_unit_test(other_streams_wait_for_order),
        cmocka_unit_test(destroyed_pool_ends_with_its_memory),
        cmocka_unit_test(pools_run_out),
        cmocka_unit_test(captured_allocations_are_graph_nodes),
        cmocka_unit_test(peers),
        cmocka_unit_test(destroyed_context_gives_all_back),
        cmocka_unit_test(asynchronous_use_after_unmap_is_sticky),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);
    if (start_device("2") != 0)
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
