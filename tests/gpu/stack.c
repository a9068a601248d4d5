/* A full cache, then work for which the driver itself needs device memory: a kernel with 64 KiB of
 * stack, a stream, an event, a module. Made to run under the library; without it nothing is cached
 * and everything fits. */
#include "tests/gpu/gpu.h"

#define BLOCKS_MAX 4096
#define BLOCK (64 * MIB)

int main(void)
{
    static CUdeviceptr blocks[BLOCKS_MAX];
    unsigned count = 0;
    uint32_t index = 3;
    CUdeviceptr to = 0;
    void *parameters[] = {&index, &to};
    size_t before = 0, available = 0, total;
    uint64_t ns = 0;
    CUstream stream;
    CUevent event;
    CUmodule module = NULL;

    gpu_open();
    CU(cuMemAlloc, &to, 4096);
    CU(cuMemsetD8, to, 0, 4096);
    CUfunction kernel = gpu_kernel("deep_stack");
    CU(cuMemGetInfo, &before, &total);
    gpu_launch(gpu_kernel("spin"), 1, 1, NULL, (void *[]){&ns});
    CU(cuCtxSynchronize);
    CU(cuMemGetInfo, &available, &total);
    row((double)before - (double)available, "bytes", "first_launch");
    while (count < BLOCKS_MAX && cu.cuMemAlloc(&blocks[count], BLOCK) == CUDA_SUCCESS)
        count++;
    for (unsigned i = 0; i < count; i++)
        CU(cuMemFree, blocks[i]);
    CU(cuMemGetInfo, &available, &total);
    row((double)count * (double)BLOCK / (double)GIB, "GiB", "cached");
    row((double)available / (double)GIB, "GiB", "free");
    CUresult code = cu.cuLaunchKernel(kernel, 264, 1, 1, 256, 1, 1, 0, NULL, parameters, NULL);
    row_code(code, "launch");
    code = cu.cuCtxSynchronize();
    row_code(code, "launch.ends");
    if (code == CUDA_SUCCESS) {
        CU(cuMemcpyDtoH, &index, to, sizeof(index));
        row(index, "word", "launch.result");
    }
    row_code(cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "stream");
    row_code(cu.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), "event");
    module = gpu_load_module("kernels.ptx");
    row(module != NULL, "yes", "module");
    row_code(cu.cuMemAlloc(&blocks[0], BLOCK), "alloc_after");
    return EXIT_SUCCESS;
}
