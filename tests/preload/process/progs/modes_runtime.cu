/* Prints what the runtime API answers to right and wrong uses of memory. Run without the library and in each of its
 * modes, the output must be the same. */
#include <cuda_runtime.h>

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define CHECK(call)                                                                                \
    do {                                                                                           \
        cudaError_t error_ = (call);                                                               \
        if (error_ != cudaSuccess) {                                                               \
            fprintf(stderr, "line %d: %s: %d\n", __LINE__, #call, (int)error_);                    \
            exit(EXIT_FAILURE);                                                                    \
        }                                                                                          \
    } while (0)

static void print_result(const char *what, cudaError_t result)
{
    printf("%s: %d, last error %d\n", what, (int)result, (int)cudaGetLastError());
}

static void right_uses(void)
{
    static const size_t sizes[] = {1, 512, 100000, 2097152, 70000000};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        char *block = NULL;
        unsigned char got = 0;
        CHECK(cudaMalloc((void **)&block, sizes[i]));
        CHECK(cudaMemset(block, (int)i + 1, sizes[i]));
        CHECK(cudaMemcpy(&got, block + sizes[i] - 1, 1, cudaMemcpyDeviceToHost));
        printf("%zu bytes: aligned %d, last byte %d\n", sizes[i], (uintptr_t)block % 256 == 0, got);
        CHECK(cudaFree(block));
    }
    size_t pitch = 0, before = 0, after = 0, total = 0;
    void *block = NULL;
    CHECK(cudaMallocPitch(&block, &pitch, 1000, 10));
    printf("pitch %zu\n", pitch);
    CHECK(cudaFree(block));
    CHECK(cudaMemGetInfo(&before, &total));
    CHECK(cudaMalloc(&block, 64 << 20));
    CHECK(cudaFree(block));
    CHECK(cudaMemGetInfo(&after, &total));
    printf("total %zu, free again %d\n", total, before == after);
}

static void wrong_uses(void)
{
    char *block = NULL;
    void *out = (void *)1;
    int host = 0;
    print_result("malloc of 0 bytes", cudaMalloc(&out, 0));
    printf("gives NULL: %d\n", out == NULL);
    print_result("malloc of 2^63 bytes", cudaMalloc(&out, (size_t)1 << 63));
    print_result("malloc of more than there is", cudaMalloc(&out, (size_t)1 << 45));
    print_result("free of NULL", cudaFree(NULL));
    CHECK(cudaMalloc((void **)&block, 1 << 20));
    print_result("free of an interior pointer", cudaFree(block + 512));
    print_result("free", cudaFree(block));
    print_result("double free", cudaFree(block));
    print_result("free of host memory", cudaFree(&host));
}

int main(void)
{
    void *block = NULL;
    right_uses();
    wrong_uses();
    CHECK(cudaMalloc(&block, 4096));
    print_result("reset", cudaDeviceReset());
    print_result("free after the reset", cudaFree(block));
    print_result("malloc after the reset", cudaMalloc(&block, 4096));
    print_result("free", cudaFree(block));
    return EXIT_SUCCESS;
}
