/* The demo as a CUDA runtime program: cudaMalloc, a kernel, copies. It knows nothing of the library. */
#include "demo/workload.h"

#include <cuda_runtime.h>

#define CHECK(call)                                                                                \
    do {                                                                                           \
        cudaError_t error_ = (call);                                                               \
        if (error_ != cudaSuccess) {                                                               \
            fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(error_));                        \
            exit(EXIT_FAILURE);                                                                    \
        }                                                                                          \
    } while (0)

/* Leaves every byte as it is, but has to read and write them all. */
static __global__ void touch(unsigned char *bytes, size_t count)
{
    size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i < count)
        bytes[i] = (unsigned char)(bytes[i] ^ (unsigned char)(i >> 60));
}

static void *workload_alloc(size_t bytes)
{
    void *block = NULL;
    CHECK(cudaMalloc(&block, bytes));
    return block;
}

static void workload_fill(void *block, unsigned char value, size_t bytes)
{
    CHECK(cudaMemsetAsync(block, value, bytes, 0));
    touch<<<(unsigned)((bytes + 255) / 256), 256>>>((unsigned char *)block, bytes);
    CHECK(cudaGetLastError());
}

static void workload_read(unsigned char *to, const void *block, size_t bytes)
{
    CHECK(cudaMemcpy(to, block, bytes, cudaMemcpyDeviceToHost));
}

static void workload_free(void *block)
{
    CHECK(cudaFree(block));
}

int main(int argc, char **argv)
{
    int device = 0;
    cudaDeviceProp properties;
    CHECK(cudaGetDevice(&device));
    CHECK(cudaGetDeviceProperties(&properties, device));
    return workload_run(properties.name, argc, argv);
}
