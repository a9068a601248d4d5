/* A driver API program: contexts, allocations of every kind, copies, streams, events, virtual
 * memory, pools, arrays, a captured graph. The including file defines how each entry point is
 * reached, by a macro D(name): the symbol itself, or a pointer looked up. */
#ifndef DRIVER_CLIENT_H
#define DRIVER_CLIENT_H

#include "tests/clients/client.h"
#include "tests/clients/driver_entries.h"

#define CALL(name, ...) client_call(#name, (int)D(name)(__VA_ARGS__), __LINE__)

#define CLIENT_BYTES ((size_t)256 * 1024)
#define CLIENT_WIDTH 300
#define CLIENT_HEIGHT 70

static unsigned char client_from[CLIENT_BYTES], client_to[CLIENT_BYTES];

static void client_begin(unsigned seed)
{
    client_fill(client_from, CLIENT_BYTES, seed);
    memset(client_to, 0, CLIENT_BYTES);
}

static void client_vectors(void)
{
    CUdeviceptr blocks[24], base, block;
    size_t bytes;

    for (int round = 0; round < 20; round++) {
        for (size_t i = 0; i < 24; i++)
            CALL(cuMemAlloc_v2, &blocks[i], (i + 1) * 3000);
        for (int i = 0; i < 24; i++)
            CALL(cuMemFree_v2, blocks[(i * 5) % 24]);
    }
    client_begin(1);
    CALL(cuMemAlloc_v2, &block, CLIENT_BYTES);
    CALL(cuMemGetAddressRange_v2, &base, &bytes, block + 1000);
    REQUIRE(base == block && bytes >= CLIENT_BYTES);
    CALL(cuMemcpyHtoD_v2, block, client_from, CLIENT_BYTES);
    CALL(cuMemsetD8_v2, block + 100, 7, 1000);
    CALL(cuMemcpyDtoD_v2, block + 8192, block, 4096);
    CALL(cuMemcpyDtoH_v2, client_to, block, CLIENT_BYTES);
    client_result("vectors", client_to, CLIENT_BYTES);
    CALL(cuMemFree_v2, block);
}

static void client_plane(void)
{
    CUDA_MEMCPY2D copy;
    CUdeviceptr plane;
    size_t pitch;

    client_begin(2);
    CALL(cuMemAllocPitch_v2, &plane, &pitch, CLIENT_WIDTH, CLIENT_HEIGHT, 4);
    memset(&copy, 0, sizeof(copy));
    copy.srcMemoryType = CU_MEMORYTYPE_HOST;
    copy.srcHost = client_from;
    copy.srcPitch = CLIENT_WIDTH;
    copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.dstDevice = plane;
    copy.dstPitch = pitch;
    copy.WidthInBytes = CLIENT_WIDTH;
    copy.Height = CLIENT_HEIGHT;
    CALL(cuMemcpy2D_v2, &copy);
    memset(&copy, 0, sizeof(copy));
    copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.srcDevice = plane;
    copy.srcPitch = pitch;
    copy.dstMemoryType = CU_MEMORYTYPE_HOST;
    copy.dstHost = client_to;
    copy.dstPitch = CLIENT_WIDTH;
    copy.WidthInBytes = CLIENT_WIDTH;
    copy.Height = CLIENT_HEIGHT;
    CALL(cuMemcpy2D_v2, &copy);
    client_result("plane", client_to, (size_t)CLIENT_WIDTH * CLIENT_HEIGHT);
    CALL(cuMemFree_v2, plane);
}

static void client_array(void)
{
    CUDA_ARRAY_DESCRIPTOR shape = {
        .Width = 64, .Height = 32, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1};
    CUDA_MEMCPY2D copy;
    CUarray array;

    client_begin(3);
    CALL(cuArrayCreate_v2, &array, &shape);
    memset(&copy, 0, sizeof(copy));
    copy.srcMemoryType = CU_MEMORYTYPE_HOST;
    copy.srcHost = client_from;
    copy.srcPitch = 256;
    copy.dstMemoryType = CU_MEMORYTYPE_ARRAY;
    copy.dstArray = array;
    copy.WidthInBytes = 256;
    copy.Height = 32;
    CALL(cuMemcpy2D_v2, &copy);
    memset(&copy, 0, sizeof(copy));
    copy.srcMemoryType = CU_MEMORYTYPE_ARRAY;
    copy.srcArray = array;
    copy.dstMemoryType = CU_MEMORYTYPE_HOST;
    copy.dstHost = client_to;
    copy.dstPitch = 256;
    copy.WidthInBytes = 256;
    copy.Height = 32;
    CALL(cuMemcpy2D_v2, &copy);
    client_result("array", client_to, 256 * 32);
    CALL(cuArrayDestroy, array);
}

static void client_streams(void)
{
    CUstream first, second;
    CUdeviceptr block;
    CUevent event;
    void *pinned;

    client_begin(4);
    CALL(cuStreamCreate, &first, CU_STREAM_DEFAULT);
    CALL(cuStreamCreate, &second, CU_STREAM_NON_BLOCKING);
    CALL(cuEventCreate, &event, CU_EVENT_DISABLE_TIMING);
    CALL(cuMemHostAlloc, &pinned, CLIENT_BYTES, 0);
    CALL(cuMemAlloc_v2, &block, CLIENT_BYTES);
    memcpy(pinned, client_from, CLIENT_BYTES);
    CALL(cuMemcpyHtoDAsync_v2, block, pinned, CLIENT_BYTES, first);
    CALL(cuEventRecord, event, first);
    CALL(cuStreamWaitEvent, second, event, 0);
    CALL(cuMemsetD8Async, block, 3, 64, second);
    CALL(cuMemcpyDtoHAsync_v2, pinned, block, CLIENT_BYTES, second);
    CALL(cuStreamSynchronize, second);
    CALL(cuEventSynchronize, event);
    client_result("streams", pinned, CLIENT_BYTES);
    for (int i = 0; i < 30; i++) {
        CUdeviceptr ordered;

        CALL(cuMemAllocAsync, &ordered, CLIENT_BYTES, first);
        CALL(cuMemsetD8Async, ordered, (unsigned char)i, CLIENT_BYTES, first);
        CALL(cuMemFreeAsync, ordered, first);
    }
    CALL(cuStreamSynchronize, first);
    CALL(cuMemFree_v2, block);
    CALL(cuMemFreeHost, pinned);
    CALL(cuEventDestroy_v2, event);
    CALL(cuStreamDestroy_v2, first);
    CALL(cuStreamDestroy_v2, second);
}

static void client_managed(void)
{
    CUdeviceptr shared;
    unsigned char *view;

    client_begin(5);
    CALL(cuMemAllocManaged, &shared, CLIENT_BYTES, CU_MEM_ATTACH_GLOBAL);
    view = (unsigned char *)(uintptr_t)shared;
    memcpy(view, client_from, CLIENT_BYTES);
    CALL(cuMemsetD8_v2, shared, 1, 128);
    CALL(cuCtxSynchronize);
    client_result("managed", view, CLIENT_BYTES);
    CALL(cuMemFree_v2, shared);
}

static void client_virtual(CUdevice device)
{
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}};
    CUmemAccessDesc access = {.location = prop.location,
                              .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle handles[2];
    CUdeviceptr range;
    size_t granularity;

    client_begin(6);
    CALL(cuMemGetAllocationGranularity, &granularity, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
    CALL(cuMemAddressReserve, &range, 2 * granularity, 0, 0, 0);
    for (size_t i = 0; i < 2; i++) {
        CALL(cuMemCreate, &handles[i], granularity, &prop, 0);
        CALL(cuMemMap, range + i * granularity, granularity, 0, handles[i], 0);
    }
    CALL(cuMemSetAccess, range, 2 * granularity, &access, 1);
    /* Across the seam of the two. */
    CALL(cuMemcpyHtoD_v2, range + granularity - CLIENT_BYTES / 2, client_from, CLIENT_BYTES);
    CALL(cuMemcpyDtoH_v2, client_to, range + granularity - CLIENT_BYTES / 2, CLIENT_BYTES);
    client_result("virtual", client_to, CLIENT_BYTES);
    CALL(cuMemUnmap, range, 2 * granularity);
    CALL(cuMemRelease, handles[0]);
    CALL(cuMemRelease, handles[1]);
    CALL(cuMemAddressFree, range, 2 * granularity);
}

static void client_graph(void)
{
    CUdeviceptr block;
    CUgraphExec exec;
    CUstream stream;
    CUgraph graph;

    client_begin(7);
    CALL(cuMemAlloc_v2, &block, CLIENT_BYTES);
    CALL(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    CALL(cuStreamBeginCapture_v2, stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    CALL(cuMemcpyHtoDAsync_v2, block, client_from, CLIENT_BYTES, stream);
    CALL(cuMemsetD8Async, block + 512, 4, 512, stream);
    CALL(cuMemcpyDtoHAsync_v2, client_to, block, CLIENT_BYTES, stream);
    CALL(cuStreamEndCapture, stream, &graph);
    REQUIRE(client_to[0] == 0 && client_to[CLIENT_BYTES - 1] == 0);
    CALL(cuGraphInstantiateWithFlags, &exec, graph, 0);
    for (int i = 0; i < 3; i++)
        CALL(cuGraphLaunch, exec, stream);
    CALL(cuStreamSynchronize, stream);
    client_result("graph", client_to, CLIENT_BYTES);
    CALL(cuGraphExecDestroy, exec);
    CALL(cuGraphDestroy, graph);
    CALL(cuStreamDestroy_v2, stream);
    CALL(cuMemFree_v2, block);
}

static int client_run(void)
{
    CUcontext context;
    CUdevice device;
    size_t free_bytes, total_bytes, device_bytes;
    int version, count;

    CALL(cuInit, 0);
    CALL(cuDriverGetVersion, &version);
    CALL(cuDeviceGetCount, &count);
    REQUIRE(version >= 12000 && count >= 1);
    CALL(cuDeviceGet, &device, 0);
    CALL(cuDeviceTotalMem_v2, &device_bytes, device);
    CALL(cuDevicePrimaryCtxRetain, &context, device);
    CALL(cuCtxSetCurrent, context);
    CALL(cuMemGetInfo_v2, &free_bytes, &total_bytes);
    REQUIRE(free_bytes <= total_bytes && total_bytes == device_bytes);
    client_vectors();
    client_plane();
    client_array();
    client_streams();
    client_managed();
    client_virtual(device);
    client_graph();
    CALL(cuCtxSynchronize);
    CALL(cuDevicePrimaryCtxRelease_v2, device);
    return client_finish();
}

#endif
