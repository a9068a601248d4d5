/* link: -l:libcuda.so.1 */
/* Pairs of cuMemAlloc and cuMemFree. */
#include <cuda.h>

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/bench/pairs.h"

#define CHECK(call) check((call), #call)

static void check(CUresult result, const char *call)
{
    if (result == CUDA_SUCCESS)
        return;
    fprintf(stderr, "%s: error %d\n", call, (int)result);
    exit(EXIT_FAILURE);
}

static void *pair_alloc(size_t bytes)
{
    CUdeviceptr block = 0;
    CHECK(cuMemAlloc(&block, bytes));
    return (void *)(uintptr_t)block;
}

static void pair_free(void *block)
{
    CHECK(cuMemFree((CUdeviceptr)(uintptr_t)block));
}

static void pair_start(void)
{
    CUdevice device = 0;
    CUcontext context = NULL;
    CHECK(cuInit(0));
    CHECK(cuDeviceGet(&device, 0));
    CHECK(cuDevicePrimaryCtxRetain(&context, device));
    CHECK(cuCtxSetCurrent(context));
    pair_free(pair_alloc(512));
}
