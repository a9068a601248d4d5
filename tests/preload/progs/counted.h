/* A driver API program that counts what it does by entry point and prints the counts as JSON. The
 * including file defines how each entry point is reached, by a macro D(name): the symbol itself, or
 * a pointer looked up. */
#ifndef COUNTED_H
#define COUNTED_H

#include "counted_entries.h"

#include <stdio.h>
#include <stdlib.h>

#define COUNTED_BLOCKS 40

static void counted_check(CUresult result, const char *call)
{
    if (result == CUDA_SUCCESS)
        return;
    fprintf(stderr, "%s: CUDA error %d\n", call, (int)result);
    exit(EXIT_FAILURE);
}
#define CHECK(call) counted_check((call), #call)

static int counted_run(void)
{
    unsigned plain = 0, pitched = 0, managed = 0, async = 0, arrays = 0;
    CUdeviceptr blocks[COUNTED_BLOCKS];
    CUdevice device = 0;
    CUcontext context = NULL;
    CUstream stream = NULL;
    CUarray array = NULL;
    CUDA_ARRAY_DESCRIPTOR shape = {
        .Width = 64, .Height = 64, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1};
    size_t pitch = 0, free_bytes = 0, total_bytes = 0;

    CHECK(D(cuInit)(0));
    CHECK(D(cuDeviceGet)(&device, 0));
    CHECK(D(cuDevicePrimaryCtxRetain)(&context, device));
    CHECK(D(cuCtxSetCurrent)(context));
    for (unsigned round = 0; round < 5; round++) {
        for (unsigned i = 0; i < COUNTED_BLOCKS; i++) {
            CHECK(D(cuMemAlloc_v2)(&blocks[i], ((size_t)1000 << (i % 14)) + i));
            CHECK(D(cuMemsetD8_v2)(blocks[i], 1, 1000));
            plain++;
        }
        for (unsigned i = 0; i < COUNTED_BLOCKS; i++)
            CHECK(D(cuMemFree_v2)(blocks[(i * 7) % COUNTED_BLOCKS]));
        CHECK(D(cuCtxSynchronize)());
    }
    for (unsigned i = 0; i < 6; i++, pitched++) {
        CHECK(D(cuMemAllocPitch_v2)(&blocks[0], &pitch, 100 + i, 50, 4));
        CHECK(D(cuMemFree_v2)(blocks[0]));
    }
    for (unsigned i = 0; i < 3; i++, managed++) {
        CHECK(D(cuMemAllocManaged)(&blocks[0], 100000, CU_MEM_ATTACH_GLOBAL));
        CHECK(D(cuMemFree_v2)(blocks[0]));
    }
    CHECK(D(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
    for (unsigned i = 0; i < 9; i++, async++) {
        CHECK(D(cuMemAllocAsync)(&blocks[0], 50000, stream));
        CHECK(D(cuMemFreeAsync)(blocks[0], stream));
    }
    CHECK(D(cuStreamSynchronize)(stream));
    CHECK(D(cuStreamDestroy_v2)(stream));
    for (unsigned i = 0; i < 2; i++, arrays++) {
        CHECK(D(cuArrayCreate_v2)(&array, &shape));
        CHECK(D(cuArrayDestroy)(array));
    }
    CHECK(D(cuMemGetInfo_v2)(&free_bytes, &total_bytes));
    CHECK(D(cuMemAlloc_v2)(&blocks[0], 4242)); /* never freed */
    plain++;
    printf("{\"cuMemAlloc_v2\": %u, \"cuMemAllocPitch_v2\": %u, \"cuMemAllocManaged\": %u, "
           "\"cuMemAllocAsync\": %u, \"cuArrayCreate_v2\": %u}\n",
           plain, pitched, managed, async, arrays);
    return EXIT_SUCCESS;
}

#endif
