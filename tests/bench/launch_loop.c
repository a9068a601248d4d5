/* link: -l:libcuda.so.1 */
/* A program's plainest loop: allocate, launch a kernel that uses it, free; kernels go to two
 * streams in turn. usage: launch_loop ITERATIONS. Prints `launch_loop value ns`, an iteration's
 * time. */
#include <cuda.h>

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define CHECK(call) check((call), #call)

static void check(CUresult result, const char *call)
{
    if (result == CUDA_SUCCESS)
        return;
    fprintf(stderr, "%s: error %d\n", call, (int)result);
    exit(EXIT_FAILURE);
}

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

static void iterate(CUfunction kernel, const CUstream streams[2], unsigned long i)
{
    const size_t bytes = (size_t)4096 << i % 9;
    CUdeviceptr block = 0;
    void *parameters[] = {&block};
    CHECK(cuMemAlloc(&block, bytes));
    CHECK(cuLaunchKernel(kernel, 1, 1, 1, 32, 1, 1, 0, streams[i % 2], parameters, NULL));
    CHECK(cuMemFree(block));
}

int main(int argc, char **argv)
{
    static const char ptx[] = ".version 8.0\n.target sm_50\n.address_size 64\n"
                              ".visible .entry k(.param .u64 p)\n{\n ret;\n}\n";
    const unsigned long count = argc > 1 ? strtoul(argv[1], NULL, 10) : 10000;
    CUdevice device = 0;
    CUcontext context = NULL;
    CUmodule module = NULL;
    CUfunction kernel = NULL;
    CUstream streams[2];
    CHECK(cuInit(0));
    CHECK(cuDeviceGet(&device, 0));
    CHECK(cuDevicePrimaryCtxRetain(&context, device));
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuModuleLoadData(&module, ptx));
    CHECK(cuModuleGetFunction(&kernel, module, "k"));
    for (int i = 0; i < 2; i++)
        CHECK(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
    const uint64_t start = now_ns();
    for (unsigned long i = 0; i < count; i++)
        iterate(kernel, streams, i);
    printf("launch_loop %.1f ns\n", (double)(now_ns() - start) / (double)(count > 0 ? count : 1));
    CHECK(cuCtxSynchronize());
    return 0;
}
