/* link: -l:libcuda.so.1 */
/* Takes and gives device memory in every direct way, whatever fails: usage: direct_faults
 *
 * A call that succeeded is undone; a refused undoing leaves the memory with the driver. At the end
 * prints how many bytes more the driver holds than at the start: the accounts must agree. */
#include "tests/preload/progs/program.h"

#include <stdint.h>
#include <string.h>

#define MIB ((size_t)1 << 20)

static const CUmemAllocationProp device_memory = {
    .type = CU_MEM_ALLOCATION_TYPE_PINNED,
    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
};
static const CUmemPoolProps device_pool = {
    .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
};

static int works(CUresult result)
{
    return result == CUDA_SUCCESS;
}

static void plain(void)
{
    CUdeviceptr block;
    size_t pitch;

    if (works(cuMemAlloc(&block, 4 * MIB)))
        cuMemFree(block);
    if (works(cuMemAllocPitch(&block, &pitch, 1024, 2048, 4)))
        cuMemFree(block);
    if (works(cuMemAllocManaged(&block, MIB, CU_MEM_ATTACH_GLOBAL)))
        cuMemFree(block);
}

static void arrays(void)
{
    CUDA_ARRAY_DESCRIPTOR plane = {
        .Width = 512, .Height = 512, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 4};
    CUDA_ARRAY3D_DESCRIPTOR solid = {.Width = 128,
                                     .Height = 64,
                                     .Depth = 64,
                                     .Format = CU_AD_FORMAT_UNSIGNED_INT8,
                                     .NumChannels = 4};
    CUmipmappedArray mipmap;
    CUarray array;

    if (works(cuArrayCreate(&array, &plane)))
        cuArrayDestroy(array);
    if (works(cuArray3DCreate(&array, &solid)))
        cuArrayDestroy(array);
    if (works(cuMipmappedArrayCreate(&mipmap, &solid, 4)))
        cuMipmappedArrayDestroy(mipmap);
}

/* Two handles side by side; each step is done as far as the one before it worked. */
static void physical(void)
{
    CUmemGenericAllocationHandle handles[2], again;
    CUdeviceptr range;
    int mapped = 0;

    if (!works(cuMemAddressReserve(&range, 8 * MIB, 0, 0, 0)))
        return;
    for (int i = 0; i < 2; i++) {
        if (!works(cuMemCreate(&handles[i], 4 * MIB, &device_memory, 0)))
            break;
        mapped += works(cuMemMap(range + (size_t)i * 4 * MIB, 4 * MIB, 0, handles[i], 0));
        cuMemRelease(handles[i]);
        if (mapped <= i)
            break;
    }
    if (mapped > 0 && works(cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)range)))
        cuMemRelease(again);
    if (mapped > 0)
        cuMemUnmap(range, (size_t)mapped * 4 * MIB);
    cuMemAddressFree(range, 8 * MIB);
}

static void shared(void)
{
    CUmemAllocationProp prop = device_memory;
    CUmemGenericAllocationHandle handle, imported;
    int fd = -1;

    prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    if (!works(cuMemCreate(&handle, 2 * MIB, &prop, 0)))
        return;
    if (works(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                           0)) &&
        works(cuMemImportFromShareableHandle(&imported, (void *)(uintptr_t)fd,
                                             CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)))
        cuMemRelease(imported);
    cuMemRelease(handle);
}

static void ordered(CUstream stream)
{
    CUmemoryPool pool;
    CUdeviceptr block;

    for (int i = 0; i < 2; i++)
        if (works(cuMemAllocAsync(&block, 6 * MIB, stream)))
            cuMemFreeAsync(block, stream);
    if (works(cuMemAllocAsync(&block, 6 * MIB, stream)))
        cuMemFree(block);
    if (works(cuMemPoolCreate(&pool, &device_pool))) {
        if (works(cuMemAllocFromPoolAsync(&block, 10 * MIB, pool, stream)))
            cuMemFreeAsync(block, stream);
        cuStreamSynchronize(stream);
        cuMemPoolTrimTo(pool, 0);
        cuMemPoolDestroy(pool);
    }
}

/* Memory of a graph, captured and by a node of its own. */
static void graphs(CUstream stream)
{
    CUDA_MEM_ALLOC_NODE_PARAMS node_memory = {.poolProps = device_pool, .bytesize = 4 * MIB};
    CUgraph graph = NULL;
    CUgraphNode node, end;
    CUgraphExec exec;
    CUdeviceptr block;

    if (works(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL))) {
        if (works(cuMemAllocAsync(&block, 6 * MIB, stream)))
            cuMemFreeAsync(block, stream);
        if (works(cuMemAlloc(&block, 100)))
            cuMemFree(block);
        if (works(cuStreamEndCapture(stream, &graph)) &&
            works(cuGraphInstantiate(&exec, graph, 0))) {
            cuGraphLaunch(exec, stream);
            cuStreamSynchronize(stream);
            cuGraphExecDestroy(exec);
        }
        if (graph != NULL)
            cuGraphDestroy(graph);
    }
    if (works(cuGraphCreate(&graph, 0))) {
        if (works(cuGraphAddMemAllocNode(&node, graph, NULL, 0, &node_memory)) &&
            works(cuGraphAddMemFreeNode(&end, graph, &node, 1, node_memory.dptr)) &&
            works(cuGraphInstantiate(&exec, graph, 0))) {
            cuGraphLaunch(exec, stream);
            cuStreamSynchronize(stream);
            cuGraphExecDestroy(exec);
        }
        cuGraphDestroy(graph);
    }
    cuDeviceGraphMemTrim(0);
}

/* A second context, destroyed with what was taken in it. */
static void contexts(void)
{
    CUDA_ARRAY_DESCRIPTOR plane = {
        .Width = 512, .Height = 512, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 4};
    CUcontext before, own;
    CUdeviceptr block;
    CUarray array;

    CHECK(cuCtxGetCurrent(&before));
    if (!works(cuCtxCreate(&own, NULL, 0, 0)))
        return;
    (void)cuMemAlloc(&block, MIB);
    (void)cuMemAllocManaged(&block, MIB, CU_MEM_ATTACH_GLOBAL);
    (void)cuArrayCreate(&array, &plane);
    cuCtxDestroy(own);
    CHECK(cuCtxSetCurrent(before));
}

int main(void)
{
    CUstream stream = NULL;
    CUdeviceptr block;

    program_start();
    size_t start_bytes = program_held_bytes();
    if (works(cuMemAlloc(&block, 512)))
        cuMemFree(block);
    plain();
    arrays();
    physical();
    shared();
    if (works(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING))) {
        ordered(stream);
        graphs(stream);
        cuStreamSynchronize(stream);
        cuStreamDestroy(stream);
    }
    contexts();
    cuCtxSynchronize();
    printf("%zu\n", program_held_bytes() - start_bytes);
    return EXIT_SUCCESS;
}
