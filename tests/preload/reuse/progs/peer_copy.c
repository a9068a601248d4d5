/* link: -l:libcuda.so.1 */
/* A copy between contexts is queued and its source freed at once, by the source's owner. The next
 * blocks that are allocated and filled must not reach the copy. argv[1]: how the source's memory is
 * reached: "copy" (cuMemcpyPeerAsync), "copy3d", "unified", "plain", "plain2d", "plain3d" (by
 * address alone), none of which needs peer access; "access" (a plain copy with it), "disabled" (the
 * same, taken away while the copy is queued); "stream" (a copy within the owner's memory, by a
 * stream of the other context). "fill": the work is a fill of the source. Prints how many bytes of
 * the copy are wrong. */
#include <cuda.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BYTES (size_t)(1 << 20)
#define ROUNDS 8

#define CHECK(call)                                                                                \
    do {                                                                                           \
        CUresult error_ = (call);                                                                  \
        if (error_ != CUDA_SUCCESS) {                                                              \
            fprintf(stderr, "line %d: %s: %d\n", __LINE__, #call, (int)error_);                    \
            exit(EXIT_FAILURE);                                                                    \
        }                                                                                          \
    } while (0)

static CUcontext owner, worker;
static CUstream stream; /* of worker */

static void queue_copy(const char *way, CUdeviceptr to, CUdeviceptr from)
{
    CUDA_MEMCPY3D_PEER box = {
        .srcMemoryType = CU_MEMORYTYPE_DEVICE,
        .srcDevice = from,
        .srcContext = owner,
        .srcPitch = BYTES,
        .dstMemoryType = CU_MEMORYTYPE_DEVICE,
        .dstDevice = to,
        .dstContext = worker,
        .dstPitch = BYTES,
        .WidthInBytes = BYTES,
        .Height = 1,
        .Depth = 1,
    };

    CUDA_MEMCPY2D flat = {
        .srcMemoryType = CU_MEMORYTYPE_UNIFIED,
        .srcDevice = from,
        .srcPitch = BYTES,
        .dstMemoryType = CU_MEMORYTYPE_DEVICE,
        .dstDevice = to,
        .dstPitch = BYTES,
        .WidthInBytes = BYTES,
        .Height = 1,
    };
    CUDA_MEMCPY3D deep = {
        .srcMemoryType = CU_MEMORYTYPE_DEVICE,
        .srcDevice = from,
        .srcPitch = BYTES,
        .dstMemoryType = CU_MEMORYTYPE_UNIFIED,
        .dstDevice = to,
        .dstPitch = BYTES,
        .WidthInBytes = BYTES,
        .Height = 1,
        .Depth = 1,
    };

    if (strcmp(way, "copy") == 0)
        CHECK(cuMemcpyPeerAsync(to, worker, from, owner, BYTES, stream));
    else if (strcmp(way, "copy3d") == 0)
        CHECK(cuMemcpy3DPeerAsync(&box, stream));
    else if (strcmp(way, "unified") == 0)
        CHECK(cuMemcpyAsync(to, from, BYTES, stream));
    else if (strcmp(way, "plain2d") == 0)
        CHECK(cuMemcpy2DAsync(&flat, stream));
    else if (strcmp(way, "plain3d") == 0)
        CHECK(cuMemcpy3DAsync(&deep, stream));
    else
        CHECK(cuMemcpyDtoDAsync(to, from, BYTES, stream));
}

/* A fill that comes late would reach the next block. */
static size_t fill_late(void)
{
    unsigned char *got = malloc(BYTES);
    CUdeviceptr from, next;
    size_t wrong = 0;

    CHECK(cuCtxSetCurrent(owner));
    CHECK(cuMemAlloc(&from, BYTES));
    CHECK(cuCtxSetCurrent(worker));
    for (int i = 0; i < 4; i++)
        CHECK(cuMemsetD8Async(from, 1, BYTES, stream));
    CHECK(cuCtxSetCurrent(owner));
    CHECK(cuMemFree(from));
    CHECK(cuMemAlloc(&next, BYTES));
    CHECK(cuMemsetD8(next, 2, BYTES));
    CHECK(cuCtxSynchronize());
    CHECK(cuCtxSetCurrent(worker));
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuCtxSetCurrent(owner));
    CHECK(cuMemcpyDtoH(got, next, BYTES));
    for (size_t k = 0; k < BYTES; k++)
        wrong += got[k] != 2;
    free(got);
    return wrong;
}

int main(int argc, char **argv)
{
    const char *way = argc > 1 ? argv[1] : "copy";
    unsigned char *got = malloc(BYTES);
    CUdeviceptr to, from, next;
    size_t wrong = 0;

    CHECK(cuInit(0));
    CHECK(cuDevicePrimaryCtxRetain(&owner, 0));
    CHECK(cuDevicePrimaryCtxRetain(&worker, 1));
    CHECK(cuCtxSetCurrent(worker));
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    if (strcmp(way, "fill") == 0) {
        printf("wrong %zu\n", fill_late());
        return 0;
    }
    if (strcmp(way, "stream") == 0)
        CHECK(cuCtxSetCurrent(owner));
    CHECK(cuMemAlloc(&to, BYTES));
    for (int i = 0; i < ROUNDS; i++) {
        if (strcmp(way, "disabled") == 0 || (strcmp(way, "access") == 0 && i == 0))
            CHECK(cuCtxEnablePeerAccess(owner, 0));
        CHECK(cuCtxSetCurrent(owner));
        CHECK(cuMemAlloc(&from, BYTES));
        CHECK(cuMemsetD8(from, 1, BYTES));
        CHECK(cuCtxSynchronize());
        if (strcmp(way, "stream") != 0)
            CHECK(cuCtxSetCurrent(worker));
        queue_copy(way, to, from);
        if (strcmp(way, "disabled") == 0)
            CHECK(cuCtxDisablePeerAccess(owner));
        CHECK(cuCtxSetCurrent(owner));
        CHECK(cuMemFree(from));
        CHECK(cuMemAlloc(&next, BYTES));
        CHECK(cuMemsetD8(next, 2, BYTES));
        CHECK(cuCtxSynchronize());
        CHECK(cuCtxSetCurrent(worker));
        CHECK(cuStreamSynchronize(stream));
        CHECK(cuMemcpyDtoH(got, to, BYTES));
        for (size_t k = 0; k < BYTES; k++)
            wrong += got[k] != 1;
        CHECK(cuCtxSetCurrent(owner));
        CHECK(cuMemFree(next));
        CHECK(cuCtxSetCurrent(worker));
    }
    printf("wrong %zu\n", wrong);
    free(got);
    return 0;
}
