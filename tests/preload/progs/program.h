/* Common to the preload test programs: checked driver calls. Programs link the driver (link:
 * -l:libcuda.so.1). */
#ifndef PROGRAM_H
#define PROGRAM_H

#include <cuda.h>

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define CHECK(call) program_check((call), #call, __LINE__)

static inline void program_check(CUresult result, const char *call, int line)
{
    if (result == CUDA_SUCCESS)
        return;
    fprintf(stderr, "line %d: %s: CUDA error %d\n", line, call, (int)result);
    exit(EXIT_FAILURE);
}

static inline uint64_t program_now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* Initialises and makes device 0's primary context current. */
static inline CUcontext program_start(void)
{
    CUdevice device = 0;
    CUcontext context = NULL;
    CHECK(cuInit(0));
    CHECK(cuDeviceGet(&device, 0));
    CHECK(cuDevicePrimaryCtxRetain(&context, device));
    CHECK(cuCtxSetCurrent(context));
    return context;
}

static inline CUdeviceptr program_alloc(size_t bytes)
{
    CUdeviceptr block = 0;
    CHECK(cuMemAlloc(&block, bytes));
    return block;
}

/* Of the device, by cuMemGetInfo. */
static inline size_t program_held_bytes(void)
{
    size_t free_bytes = 0, total_bytes = 0;
    CHECK(cuMemGetInfo(&free_bytes, &total_bytes));
    return total_bytes - free_bytes;
}

#endif
