/* Pairs of cudaMalloc and cudaFree. */
#include <cuda_runtime_api.h>

#include <stdio.h>
#include <stdlib.h>

#include "tests/bench/pairs.h"

static void *pair_alloc(size_t bytes)
{
    void *block = NULL;
    const cudaError_t error = cudaMalloc(&block, bytes);
    if (error != cudaSuccess) {
        fprintf(stderr, "cudaMalloc of %zu bytes: error %d\n", bytes, (int)error);
        exit(EXIT_FAILURE);
    }
    return block;
}

static void pair_free(void *block)
{
    const cudaError_t error = cudaFree(block);
    if (error != cudaSuccess) {
        fprintf(stderr, "cudaFree: error %d\n", (int)error);
        exit(EXIT_FAILURE);
    }
}

static void pair_start(void)
{
    if (cudaSetDevice(0) != cudaSuccess)
        exit(EXIT_FAILURE);
    pair_free(pair_alloc(512));
}
