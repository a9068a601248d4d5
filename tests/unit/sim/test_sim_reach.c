/* The simulated device: what work may reach, by whichever way it names its memory. Two devices that
 * can decompress. */
#include "tests/unit/sim_memory_test.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/wait.h>
#include <unistd.h>

static CUcontext here, there; /* the devices' primary contexts; `here` is current */

static void wait_for_flag(void *flag)
{
    while (!atomic_load((atomic_bool *)flag))
        usleep(100);
}

static CUstream new_stream(CUcontext context)
{
    CUstream stream;
    CUcontext popped;

    MUST(cuCtxPushCurrent(context));
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    MUST(cuCtxPopCurrent(&popped));
    return stream;
}

/* The other device's context fails in some tests: it starts again. */
static void restart(CUcontext *context, CUdevice device)
{
    MUST(cuDevicePrimaryCtxReset(device));
    MUST(cuDevicePrimaryCtxRelease(device));
    MUST(cuDevicePrimaryCtxRetain(context, device));
    if (device == 0)
        MUST(cuCtxSetCurrent(*context));
}

static CUdeviceptr memory_of(CUcontext context, size_t bytes)
{
    CUdeviceptr address;
    CUcontext popped;

    MUST(cuCtxPushCurrent(context));
    MUST(cuMemAlloc(&address, bytes));
    MUST(cuMemsetD8(address, 0, bytes));
    MUST(cuCtxSynchronize());
    MUST(cuCtxPopCurrent(&popped));
    return address;
}

/* ---- values ---- */

/* cuStreamWaitValue32: "Work ordered after the operation will block until the given condition on
 * the memory is satisfied", wherever the memory is and whoever writes. */
static void values_on_host_and_device(void **state)
{
    CUstream waiting = new_stream(here), writing = new_stream(here);
    CUdeviceptr device = memory_of(here, 64);
    uint32_t *host;

    (void)state;
    MUST(cuMemHostAlloc((void **)&host, 64, 0));
    host[0] = 0;
    MUST(cuStreamWaitValue32(waiting, (CUdeviceptr)(uintptr_t)host, 5, CU_STREAM_WAIT_VALUE_EQ));
    MUST(cuStreamWaitValue64(waiting, device, 7, CU_STREAM_WAIT_VALUE_GEQ));
    MUST(cuStreamWriteValue32(waiting, device + 8, 9, 0));
    usleep(2000);
    MUST_BE(CUDA_ERROR_NOT_READY, cuStreamQuery(waiting));
    __atomic_store_n(host, 5, __ATOMIC_RELEASE);
    usleep(2000);
    MUST_BE(CUDA_ERROR_NOT_READY, cuStreamQuery(waiting));
    MUST(cuStreamWriteValue64(writing, device, 8, 0));
    MUST(cuStreamSynchronize(waiting));
    assert_int_equal(byte_at(device + 8), 9);
    MUST(cuMemFreeHost(host));
    MUST(cuMemFree(device));
    MUST(cuStreamDestroy(waiting));
    MUST(cuStreamDestroy(writing));
}

/* An address is checked when the operation runs. */
static void values_of_memory_that_is_gone(void **state)
{
    (void)state;
    for (int is_wait = 0; is_wait < 2; is_wait++) {
        CUstream stream = new_stream(there);
        CUdeviceptr gone = memory_of(there, 4 * MIB);

        MUST(cuMemFree(gone));
        MUST(is_wait ? cuStreamWaitValue32(stream, gone, 0, 0)
                     : cuStreamWriteValue32(stream, gone, 0, 0));
        MUST_BE(CUDA_ERROR_ILLEGAL_ADDRESS, cuStreamSynchronize(stream));
        restart(&there, 1);
    }
}

static void values_of_another_device(void **state)
{
    CUdeviceptr far = memory_of(here, 64);
    CUstream stream = new_stream(there);
    CUcontext popped;

    (void)state;
    MUST(cuCtxPushCurrent(there));
    MUST(cuCtxEnablePeerAccess(here, 0));
    MUST(cuStreamWriteValue32(stream, far, 3, 0));
    MUST(cuStreamSynchronize(stream));
    MUST(cuCtxDisablePeerAccess(here));
    MUST(cuStreamWriteValue32(stream, far, 4, 0));
    MUST_BE(CUDA_ERROR_ILLEGAL_ADDRESS, cuStreamSynchronize(stream));
    MUST(cuCtxPopCurrent(&popped));
    assert_int_equal(byte_at(far), 3);
    MUST(cuMemFree(far));
    restart(&there, 1);
}

static CUstreamBatchMemOpParams write_of(CUdeviceptr address, uint32_t value)
{
    CUstreamBatchMemOpParams operation;

    memset(&operation, 0, sizeof operation);
    operation.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
    operation.writeValue.address = address;
    operation.writeValue.value = value;
    return operation;
}

/* A batch is one operation: refused as a whole, captured as one node. */
static void batches_of_values(void **state)
{
    CUdeviceptr device = memory_of(here, 64);
    CUstream stream = new_stream(here);
    CUstreamBatchMemOpParams operations[256];
    CUDA_BATCH_MEM_OP_NODE_PARAMS parameters = {here, 2, operations, 0}, read;
    CUgraphNode node, nodes[4];
    CUgraphExec exec;
    CUgraph graph;
    size_t count = 4;

    (void)state;
    for (int i = 0; i < 256; i++)
        operations[i] = write_of(device, (uint32_t)i);
    MUST_BE(CUDA_ERROR_INVALID_VALUE, cuStreamBatchMemOp(stream, 256, operations, 0));
    operations[1].operation = CU_STREAM_MEM_OP_BARRIER;
    operations[2].writeValue.address += 1;
    operations[0].writeValue.value = 9;
    MUST_BE(CUDA_ERROR_INVALID_VALUE, cuStreamBatchMemOp(stream, 3, operations, 0));
    MUST(cuStreamSynchronize(stream));
    assert_int_equal(byte_at(device), 0);
    MUST(cuStreamBatchMemOp(stream, 2, operations, 0));
    MUST(cuStreamSynchronize(stream));
    assert_int_equal(byte_at(device), 9);
    MUST(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    MUST(cuStreamBatchMemOp(stream, 2, operations, 0));
    MUST(cuStreamEndCapture(stream, &graph));
    MUST(cuGraphGetNodes(graph, nodes, &count));
    assert_int_equal(count, 1);
    MUST(cuGraphDestroy(graph));
    /* A node of its own. */
    MUST(cuGraphCreate(&graph, 0));
    operations[0].writeValue.value = 11;
    MUST(cuGraphAddBatchMemOpNode(&node, graph, NULL, 0, &parameters));
    operations[0].writeValue.value = 12; /* the node has its own list */
    MUST(cuGraphBatchMemOpNodeGetParams(node, &read));
    assert_int_equal(read.count, 2);
    assert_int_equal(read.paramArray[0].writeValue.value, 11);
    MUST(cuGraphInstantiate(&exec, graph, 0));
    MUST(cuGraphLaunch(exec, stream));
    MUST(cuStreamSynchronize(stream));
    assert_int_equal(byte_at(device), 11);
    MUST(cuGraphExecBatchMemOpNodeSetParams(exec, node, &parameters));
    MUST(cuGraphLaunch(exec, stream));
    MUST(cuStreamSynchronize(stream));
    assert_int_equal(byte_at(device), 12);
    MUST(cuGraphExecDestroy(exec));
    MUST(cuGraphDestroy(graph));
    MUST(cuMemFree(device));
    MUST(cuStreamDestroy(stream));
}

/* ---- nodes and copies of other contexts ---- */

static CUdeviceptr pooled_of(CUcontext context, CUstream stream, unsigned char value)
{
    CUdeviceptr address;

    (void)context;
    MUST(cuMemAllocAsync(&address, 4096, stream));
    MUST(cuMemsetD8Async(address, value, 4096, stream));
    MUST(cuStreamSynchronize(stream));
    return address;
}

/* "ctx: Context on which to run the node": the launching stream's device has no access to that
 * memory. */
static void nodes_run_in_their_context(void **state)
{
    CUstream far = new_stream(there), stream = new_stream(here);
    CUdeviceptr x = pooled_of(there, far, 5), y = pooled_of(there, far, 6);
    CUDA_MEMSET_NODE_PARAMS fill = {
        .dst = x, .elementSize = 1, .value = 7, .width = 4, .height = 1};
    CUDA_MEMCPY3D copy = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                          .srcDevice = x,
                          .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                          .dstDevice = y,
                          .WidthInBytes = 4096,
                          .Height = 1,
                          .Depth = 1};
    CUstreamBatchMemOpParams write = write_of(x + 64, 8);
    CUDA_BATCH_MEM_OP_NODE_PARAMS batch = {there, 1, &write, 0};
    CUgraphNode first, second, last;
    CUgraphExec exec;
    CUgraph graph;
    CUcontext popped;

    (void)state;
    MUST(cuGraphCreate(&graph, 0));
    MUST(cuGraphAddMemsetNode(&first, graph, NULL, 0, &fill, there));
    MUST(cuGraphAddBatchMemOpNode(&second, graph, &first, 1, &batch));
    MUST(cuGraphAddMemcpyNode(&last, graph, &second, 1, &copy, there));
    fill.value = 9;
    MUST(cuGraphMemsetNodeSetParams(first, &fill)); /* keeps the context */
    MUST(cuGraphInstantiate(&exec, graph, 0));
    MUST(cuGraphLaunch(exec, stream));
    MUST(cuStreamSynchronize(stream));
    MUST(cuCtxPushCurrent(there));
    assert_int_equal(byte_at(y), 9);
    assert_int_equal(byte_at(y + 4), 5);
    assert_int_equal(byte_at(y + 64), 8);
    MUST(cuCtxPopCurrent(&popped));
    MUST(cuGraphExecMemsetNodeSetParams(exec, first, &fill, here));
    MUST(cuGraphLaunch(exec, stream));
    MUST_BE(CUDA_ERROR_ILLEGAL_ADDRESS, cuStreamSynchronize(stream));
    MUST(cuGraphExecDestroy(exec));
    MUST(cuGraphDestroy(graph));
    MUST(cuMemFreeAsync(x, far));
    MUST(cuMemFreeAsync(y, far));
    MUST(cuStreamSynchronize(far));
    MUST(cuStreamDestroy(far));
    restart(&here, 0);
}

/* A capture that spans contexts: each node runs in the context of the stream that it came from. */
static void captured_nodes_run_in_their_context(void **state)
{
    CUstream far = new_stream(there), stream = new_stream(here), other = new_stream(here);
    CUdeviceptr x = pooled_of(there, far, 1), y = pooled_of(here, stream, 2);
    CUevent fork, join;
    CUgraphExec exec;
    CUgraph graph;
    CUcontext popped;

    (void)state;
    MUST(cuEventCreate(&fork, CU_EVENT_DISABLE_TIMING));
    MUST(cuCtxPushCurrent(there));
    MUST(cuEventCreate(&join, CU_EVENT_DISABLE_TIMING));
    MUST(cuCtxPopCurrent(&popped));
    MUST(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    MUST(cuMemsetD8Async(y, 3, 4096, stream));
    MUST(cuEventRecord(fork, stream));
    MUST(cuStreamWaitEvent(far, fork, 0));
    MUST(cuCtxPushCurrent(there));
    MUST(cuMemsetD8Async(x, 4, 4096, far));
    MUST(cuEventRecord(join, far));
    MUST(cuCtxPopCurrent(&popped));
    MUST(cuStreamWaitEvent(stream, join, 0));
    MUST(cuStreamEndCapture(stream, &graph));
    MUST(cuGraphInstantiate(&exec, graph, 0));
    MUST(cuGraphLaunch(exec, other));
    MUST(cuStreamSynchronize(other));
    assert_int_equal(byte_at(y), 3);
    MUST(cuCtxPushCurrent(there));
    assert_int_equal(byte_at(x), 4);
    MUST(cuCtxPopCurrent(&popped));
    MUST(cuGraphExecDestroy(exec));
    MUST(cuGraphDestroy(graph));
    MUST(cuMemFreeAsync(x, far));
    MUST(cuMemFreeAsync(y, stream));
    MUST(cuEventDestroy(fork));
    MUST(cuEventDestroy(join));
    MUST(cuStreamSynchronize(far));
    MUST(cuStreamSynchronize(stream));
    MUST(cuStreamDestroy(far));
    MUST(cuStreamDestroy(stream));
    MUST(cuStreamDestroy(other));
}

/* cuMemcpyPeer names a context for each side, and each reaches its own. */
static void peer_copies_need_no_access(void **state)
{
    CUstream far = new_stream(there), stream = new_stream(here);
    CUdeviceptr x = pooled_of(there, far, 5), y = pooled_of(here, stream, 6);
    CUDA_MEMCPY3D_PEER back = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                               .srcDevice = y,
                               .srcContext = here,
                               .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                               .dstDevice = x + 64,
                               .dstContext = there,
                               .WidthInBytes = 64,
                               .Height = 1,
                               .Depth = 1};
    CUcontext popped;

    (void)state;
    MUST(cuMemcpyPeerAsync(y, here, x, there, 32, stream));
    MUST(cuMemcpy3DPeerAsync(&back, stream));
    MUST(cuStreamSynchronize(stream));
    assert_int_equal(byte_at(y), 5);
    assert_int_equal(byte_at(y + 32), 6);
    MUST(cuCtxPushCurrent(there));
    assert_int_equal(byte_at(x + 96), 6);
    MUST(cuCtxPopCurrent(&popped));
    MUST(cuMemFreeAsync(x, far));
    MUST(cuMemFreeAsync(y, stream));
    MUST(cuStreamSynchronize(far));
    MUST(cuStreamDestroy(far));
    MUST(cuStreamDestroy(stream));
}

/* A count that no list can have is refused, not read. */
static void counts_without_sense(void **state)
{
    CUstream stream = new_stream(here);
    CUdeviceptr to = memory_of(here, 64), from = to + 32;
    size_t bytes = 16, index = 0, failed;
    CUmemcpyAttributes attributes = {.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM};
    CUDA_MEMCPY3D_BATCH_OP op;
    CUmemDecompressParams parameters;

    (void)state;
    memset(&op, 0, sizeof op);
    memset(&parameters, 0, sizeof parameters);
    MUST_BE(CUDA_ERROR_INVALID_VALUE,
            cuMemcpyBatchAsync(&to, &from, &bytes, SIZE_MAX, &attributes, &index, 1, stream));
    MUST_BE(CUDA_ERROR_INVALID_VALUE,
            cuMemcpyBatchAsync(&to, &from, &bytes, SIZE_MAX / 8, &attributes, &index, 1, stream));
    MUST_BE(CUDA_ERROR_INVALID_VALUE, cuMemcpy3DBatchAsync(SIZE_MAX, &op, 0, stream));
    MUST_BE(CUDA_ERROR_INVALID_VALUE,
            cuMemBatchDecompressAsync(&parameters, SIZE_MAX, 0, &failed, stream));
    MUST(cuMemcpyBatchAsync(&to, &from, &bytes, 1, &attributes, &index, 1, stream));
    MUST(cuStreamSynchronize(stream));
    MUST(cuMemFree(to));
    MUST(cuStreamDestroy(stream));
}

/* ---- memory of pools ---- */

/* "cuCtxDestroy() will not destroy memory allocations by cuMemAllocAsync()"; cudaDeviceReset alike.
 */
static void pool_memory_outlives_contexts(void **state)
{
    CUcontext context, popped;
    CUdeviceptr first, second;
    size_t before = free_bytes();
    CUmemoryPool pool;
    uint64_t used;

    (void)state;
    MUST(cuCtxCreate(&context, NULL, 0, 0));
    MUST(cuMemAllocAsync(&first, 4096, NULL));
    MUST(cuMemsetD8Async(first, 3, 4096, NULL));
    MUST(cuCtxDestroy(context));
    assert_int_equal(byte_at(first), 3);
    MUST(cuMemFreeAsync(first, NULL));
    MUST(cuCtxSynchronize());
    assert_int_equal(free_bytes(), before);
    /* The other device's primary context ends. */
    MUST(cuCtxPushCurrent(there));
    MUST(cuMemAllocAsync(&second, 4096, NULL));
    MUST(cuMemsetD8Async(second, 4, 4096, NULL));
    MUST(cuCtxPopCurrent(&popped));
    restart(&there, 1);
    MUST(cuDeviceGetDefaultMemPool(&pool, 1));
    MUST(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used));
    assert_int_equal(used, 4096);
    MUST(cuCtxPushCurrent(there));
    assert_int_equal(byte_at(second), 4);
    MUST(cuMemFreeAsync(second, NULL));
    MUST(cuCtxSynchronize());
    MUST(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &used));
    assert_int_equal(used, 0);
    MUST(cuCtxPopCurrent(&popped));
}

/* ---- SYNC_MEMOPS ---- */

struct slow {
    atomic_bool is_open;
    CUcontext context;
    CUdeviceptr to;
    atomic_bool has_returned;
    CUresult (*operate)(CUdeviceptr to);
};

static void *operate(void *argument)
{
    struct slow *slow = argument;

    cuCtxSetCurrent(slow->context);
    assert_int_equal(slow->operate(slow->to), CUDA_SUCCESS);
    atomic_store(&slow->has_returned, true);
    return NULL;
}

/* Whether an operation returns while the legacy stream is held up. */
static bool returns_at_once(CUresult (*call)(CUdeviceptr), CUdeviceptr to)
{
    struct slow slow = {.context = here, .to = to, .operate = call};
    pthread_t thread;
    bool has_returned;

    MUST(cuLaunchHostFunc(NULL, wait_for_flag, &slow.is_open));
    assert_int_equal(pthread_create(&thread, NULL, operate, &slow), 0);
    for (int i = 0; i < 100 && !atomic_load(&slow.has_returned); i++)
        usleep(500);
    has_returned = atomic_load(&slow.has_returned);
    atomic_store(&slow.is_open, true);
    assert_int_equal(pthread_join(thread, NULL), 0);
    MUST(cuCtxSynchronize());
    return has_returned;
}

static CUresult copy(CUdeviceptr to)
{
    return cuMemcpyDtoD(to, to + 32, 16);
}

static CUresult copy_async(CUdeviceptr to)
{
    return cuMemcpyDtoDAsync(to, to + 32, 16, NULL);
}

static CUresult fill(CUdeviceptr to)
{
    return cuMemsetD8(to, 1, 16);
}

static CUresult set_synchronous(CUdeviceptr to)
{
    const unsigned on = 1;

    return cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, to);
}

static CUresult copy_and_set(CUdeviceptr to)
{
    CUresult result = copy(to);

    return result ? result : set_synchronous(to);
}

static CUresult get_tokens(CUdeviceptr to)
{
    CUDA_POINTER_ATTRIBUTE_P2P_TOKENS tokens = {0, 0};
    CUresult result = cuPointerGetAttribute(&tokens, CU_POINTER_ATTRIBUTE_P2P_TOKENS, to);

    assert_true(tokens.p2pToken != 0);
    return result;
}

/* "ensures that synchronous memory operations initiated on the region … will always synchronize":
 * of memory, of a context, and as a side effect of its tokens. */
static void synchronous_memory_operations(void **state)
{
    CUdeviceptr memory = memory_of(here, 64), with_tokens = memory_of(here, 64), pooled;
    unsigned flags;

    (void)state;
    assert_true(returns_at_once(copy, memory));
    assert_true(returns_at_once(fill, memory));
    assert_true(returns_at_once(set_synchronous, memory)); /* nothing is pending */
    assert_false(returns_at_once(copy, memory));
    assert_false(returns_at_once(fill, memory));
    assert_true(returns_at_once(copy_async, memory)); /* asynchronous ones stay so */
    assert_true(returns_at_once(get_tokens, with_tokens));
    assert_false(returns_at_once(copy, with_tokens));
    MUST(cuMemFree(with_tokens));
    with_tokens = memory_of(here, 64);
    assert_true(returns_at_once(copy, with_tokens));
    /* "the function does not return until those memory operations are complete" */
    assert_false(returns_at_once(copy_and_set, with_tokens));
    MUST(cuMemFree(with_tokens));
    with_tokens = memory_of(here, 64);
    MUST(cuCtxGetFlags(&flags));
    MUST(cuCtxSetFlags(flags | CU_CTX_SYNC_MEMOPS));
    assert_false(returns_at_once(copy, with_tokens));
    assert_false(returns_at_once(fill, with_tokens));
    assert_true(returns_at_once(copy_async, with_tokens));
    MUST(cuCtxSetFlags(flags));
    assert_true(returns_at_once(copy, with_tokens));
    MUST(cuMemAllocAsync(&pooled, 64, NULL));
    MUST_BE(CUDA_ERROR_INVALID_VALUE,
            cuPointerGetAttribute(&flags, CU_POINTER_ATTRIBUTE_P2P_TOKENS, pooled));
    MUST(cuMemFreeAsync(pooled, NULL));
    MUST(cuMemFree(memory));
    MUST(cuMemFree(with_tokens));
}

/* ---- devices that CUDA knows nothing of ---- */

static void check_export(CUdeviceptr address, size_t bytes)
{
    const char text[] = "from the network";
    char back[sizeof text];
    int fd = -1;
    off_t base;

    MUST(
        cuMemGetHandleForAddressRange(&fd, address, bytes, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0));
    base = lseek(fd, 0, SEEK_CUR);
    /* Over the whole range, in no stream. */
    for (size_t at = 0; at + sizeof text <= bytes; at += bytes / 4 - 8) {
        assert_int_equal(pwrite(fd, text, sizeof text, base + (off_t)at), sizeof text);
        MUST(cuMemcpyDtoH(back, address + at, sizeof back));
        assert_string_equal(back, text);
    }
    MUST(cuMemsetD8(address, 7, bytes));
    MUST(cuCtxSynchronize());
    assert_int_equal(pread(fd, back, 1, base + (off_t)bytes - 1), 1);
    assert_int_equal(back[0], 7);
    assert_int_equal(close(fd), 0);
}

static void exported_memory(void **state)
{
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
                              .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle handles[3];
    CUdeviceptr plain = memory_of(here, 4 * MIB), range;
    int fd, first;
    char byte = 1;

    (void)state;
    check_export(plain, 4 * MIB);
    check_export(plain + 8192, 4096);
    MUST_BE(CUDA_ERROR_INVALID_VALUE,
            cuMemGetHandleForAddressRange(&fd, plain + 512, 4096,
                                          CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0));
    MUST_BE(
        CUDA_ERROR_INVALID_VALUE,
        cuMemGetHandleForAddressRange(&fd, plain, 8 * MIB, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0));
    MUST(cuMemFree(plain));
    MUST(cuMemAddressReserve(&range, 3 * PAGE, 0, 0, 0));
    for (int i = 0; i < 3; i++)
        MUST(cuMemCreate(&handles[i], PAGE, &prop, 0));
    for (int i = 0; i < 3; i++) /* the pieces are not in order */
        MUST(cuMemMap(range + (size_t)i * PAGE, PAGE, 0, handles[2 - i], 0));
    MUST(cuMemSetAccess(range, 3 * PAGE, &access, 1));
    check_export(range, 3 * PAGE);
    check_export(range + PAGE, PAGE);
    /* The physical memory is named: another mapping at its addresses does not matter. */
    MUST(
        cuMemGetHandleForAddressRange(&first, range, PAGE, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0));
    MUST(cuMemUnmap(range, 3 * PAGE));
    MUST_BE(
        CUDA_ERROR_INVALID_VALUE,
        cuMemGetHandleForAddressRange(&fd, range, PAGE, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0));
    MUST(cuMemMap(range, PAGE, 0, handles[0], 0));
    MUST(cuMemSetAccess(range, PAGE, &access, 1));
    MUST(cuMemsetD8(range, 0, PAGE));
    MUST(cuCtxSynchronize());
    assert_int_equal(pwrite(first, &byte, 1, lseek(first, 0, SEEK_CUR)), 1);
    assert_int_equal(byte_at(range), 0);
    assert_int_equal(close(first), 0);
    MUST(cuMemUnmap(range, PAGE));
    for (int i = 0; i < 3; i++)
        MUST(cuMemRelease(handles[i]));
    MUST(cuMemAddressFree(range, 3 * PAGE));
}

/* ---- decompression ---- */

/* "abcabcabc…", 300 bytes: three literals and a match that overlaps itself, then the last bytes as
 * literals, as the format demands. */
static const unsigned char packed[] = {0x3f, 'a',  'b', 'c', 3,   0,   255,
                                       18,   0x50, 'a', 'b', 'c', 'a', 'b'};
#define MATCH_BYTES (15 + 255 + 18 + 4)
#define UNPACKED_BYTES (3 + MATCH_BYTES + 5)

static void decompression(void **state)
{
    CUdeviceptr from = memory_of(here, 4096), to = memory_of(here, 4096);
    CUstream stream = new_stream(here);
    CUmemDecompressParams list[2];
    unsigned char out[UNPACKED_BYTES + 1];
    uint32_t bytes;
    size_t failed = 7;
    unsigned capable;

    (void)state;
    memset(list, 0, sizeof list);
    MUST(cuMemcpyHtoD(from, packed, sizeof packed));
    list[0] = (CUmemDecompressParams){.srcNumBytes = sizeof packed,
                                      .dstNumBytes = 4000,
                                      .dstActBytes = (cuuint32_t *)(uintptr_t)(to + 4088),
                                      .src = (const void *)(uintptr_t)from,
                                      .dst = (void *)(uintptr_t)to,
                                      .algo = CU_MEM_DECOMPRESS_ALGORITHM_LZ4};
    list[1] = list[0];
    MUST(cuPointerGetAttribute(&capable, CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE, to));
    assert_int_equal(capable, 1);
    MUST(cuMemBatchDecompressAsync(list, 1, 0, NULL, stream));
    MUST(cuStreamSynchronize(stream));
    MUST(cuMemcpyDtoH(&bytes, to + 4088, sizeof bytes));
    assert_int_equal(bytes, UNPACKED_BYTES);
    MUST(cuMemcpyDtoH(out, to, sizeof out));
    for (int i = 0; i < 3 + MATCH_BYTES; i++)
        assert_int_equal(out[i], "abc"[i % 3]);
    assert_memory_equal(out + 3 + MATCH_BYTES, "abcab", 5);
    assert_int_equal(out[UNPACKED_BYTES], 0);
    list[1].algo = CU_MEM_DECOMPRESS_ALGORITHM_SNAPPY;
    MUST_BE(CUDA_ERROR_INVALID_VALUE, cuMemBatchDecompressAsync(list, 2, 0, &failed, stream));
    assert_int_equal(failed, 1);
    list[1] = list[0];
    list[1].dst = out; /* not the device's */
    MUST_BE(CUDA_ERROR_INVALID_VALUE, cuMemBatchDecompressAsync(list, 2, 0, &failed, stream));
    MUST_BE(CUDA_ERROR_INVALID_VALUE, cuMemBatchDecompressAsync(list, 1, 1, &failed, stream));
    assert_int_equal(failed, SIZE_MAX);
    /* Addresses are checked when the batch runs. */
    atomic_bool is_open = false;
    MUST(cuLaunchHostFunc(stream, wait_for_flag, &is_open));
    MUST(cuMemBatchDecompressAsync(list, 1, 0, &failed, stream));
    MUST(cuMemFreeAsync(to, NULL));
    MUST(cuStreamSynchronize(NULL));
    atomic_store(&is_open, true);
    MUST_BE(CUDA_ERROR_ILLEGAL_ADDRESS, cuStreamSynchronize(stream));
    restart(&here, 0);
}

/* An H200 has no engine for it. */
static int check_without_decompression(void)
{
    CUmemDecompressParams parameters;
    CUdeviceptr address;
    unsigned capable = 7;

    memset(&parameters, 0, sizeof parameters);
    return start_device("1") || cuMemAlloc(&address, 64) ||
           cuPointerGetAttribute(&capable, CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE,
                                 address) ||
           capable != 0 ||
           cuMemBatchDecompressAsync(&parameters, 1, 0, NULL, NULL) != CUDA_ERROR_NOT_SUPPORTED;
}

static int child_status;

static void no_decompression_by_default(void **state)
{
    (void)state;
    assert_int_equal(child_status, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_decompression_by_default),
        cmocka_unit_test(values_on_host_and_device),
        cmocka_unit_test(values_of_memory_that_is_gone),
        cmocka_unit_test(values_of_another_device),
        cmocka_unit_test(batches_of_values),
        cmocka_unit_test(nodes_run_in_their_context),
        cmocka_unit_test(captured_nodes_run_in_their_context),
        cmocka_unit_test(peer_copies_need_no_access),
        cmocka_unit_test(counts_without_sense),
        cmocka_unit_test(pool_memory_outlives_contexts),
        cmocka_unit_test(synchronous_memory_operations),
        cmocka_unit_test(exported_memory),
        cmocka_unit_test(decompression),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);
    pid_t child = fork();
    if (child == 0)
        _exit(check_without_decompression());
    waitpid(child, &child_status, 0);
    setenv("SIMCUDA_ATTRIBUTES", "136=4,137=4194304", 1);
    if (start_device("2") != 0 || cuCtxGetCurrent(&here) || cuDevicePrimaryCtxRetain(&there, 1))
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
