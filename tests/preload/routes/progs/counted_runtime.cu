/* A runtime API program that counts what it allocates by entry point and prints the counts as JSON. */
#include <cuda_runtime.h>

#include <stdio.h>
#include <stdlib.h>

#define BLOCKS 40
#define CHECK(call)                                                                                \
    do {                                                                                           \
        cudaError_t error_ = (call);                                                               \
        if (error_ != cudaSuccess) {                                                               \
            fprintf(stderr, "line %d: %s: %d\n", __LINE__, #call, (int)error_);                    \
            exit(EXIT_FAILURE);                                                                    \
        }                                                                                          \
    } while (0)

static __global__ void touch(unsigned char *bytes)
{
    bytes[threadIdx.x] = 1;
}

int main(void)
{
    unsigned plain = 0, pitched = 0, managed = 0, async = 0;
    void *blocks[BLOCKS];
    size_t pitch = 0;
    cudaStream_t stream;
    for (unsigned round = 0; round < 5; round++) {
        for (unsigned i = 0; i < BLOCKS; i++, plain++) {
            CHECK(cudaMalloc(&blocks[i], ((size_t)1000 << (i % 14)) + i));
            touch<<<1, 32>>>((unsigned char *)blocks[i]);
        }
        for (unsigned i = 0; i < BLOCKS; i++)
            CHECK(cudaFree(blocks[(i * 7) % BLOCKS]));
        CHECK(cudaDeviceSynchronize());
    }
    for (unsigned i = 0; i < 6; i++, pitched++) {
        CHECK(cudaMallocPitch(&blocks[0], &pitch, 100 + i, 50));
        CHECK(cudaFree(blocks[0]));
    }
    for (unsigned i = 0; i < 3; i++, managed++) {
        CHECK(cudaMallocManaged(&blocks[0], 100000));
        CHECK(cudaFree(blocks[0]));
    }
    CHECK(cudaStreamCreate(&stream));
    for (unsigned i = 0; i < 9; i++, async++) {
        CHECK(cudaMallocAsync(&blocks[0], 50000, stream));
        CHECK(cudaFreeAsync(blocks[0], stream));
    }
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaMalloc(&blocks[0], 4242)); /* never freed */
    plain++;
    printf("{\"cudaMalloc\": %u, \"cudaMallocPitch\": %u, \"cudaMallocManaged\": %u, \"cudaMallocAsync\": %u}\n", plain,
           pitched, managed, async);
    return EXIT_SUCCESS;
}
