/* Prints the memory figures of every call of both APIs that has them: "NAME total free" in bytes.
 * Before and after an allocation of argv[1] MiB, after its free, and with a block of 11 MiB then;
 * with the runtime's properties of the device. */
#include <cuda.h>
#include <cuda_runtime.h>

#include <stdio.h>
#include <stdlib.h>

#define CHECK(call)                                                                                \
    do {                                                                                           \
        int error_ = (int)(call);                                                                  \
        if (error_ != 0) {                                                                         \
            fprintf(stderr, "line %d: %s: %d\n", __LINE__, #call, error_);                         \
            exit(EXIT_FAILURE);                                                                    \
        }                                                                                          \
    } while (0)

typedef CUresult (*mem_get_info)(size_t *, size_t *);
typedef CUresult (*device_total_mem)(size_t *, CUdevice);

static void *entry_point(const char *name)
{
    void *found = NULL;
    cudaDriverEntryPointQueryResult status;
    CHECK(cudaGetDriverEntryPointByVersion(name, &found, 3020, cudaEnableDefault, &status));
    return found;
}

static void print_result(const char *when)
{
    size_t available = 0, total = 0;
    cudaDeviceProp properties;
    CHECK(cudaMemGetInfo(&available, &total));
    printf("%s cudaMemGetInfo %zu %zu\n", when, total, available);
    CHECK(((mem_get_info)entry_point("cuMemGetInfo"))(&available, &total));
    printf("%s cuMemGetInfo %zu %zu\n", when, total, available);
    CHECK(((device_total_mem)entry_point("cuDeviceTotalMem"))(&total, 0));
    printf("%s cuDeviceTotalMem %zu\n", when, total);
    CHECK(cudaGetDeviceProperties(&properties, 0));
    printf("%s cudaGetDeviceProperties %zu\n", when, properties.totalGlobalMem);
}

int main(int argc, char **argv)
{
    void *block = NULL;
    CHECK(cudaFree(NULL)); /* the context is there from here on */
    print_result("start");
    cudaError_t result = cudaMalloc(&block, (argc > 1 ? strtoull(argv[1], NULL, 10) : 0) << 20);
    printf("cudaMalloc %d\n", (int)result);
    if (result != cudaSuccess)
        return 0;
    print_result("held");
    CHECK(cudaFree(block));
    print_result("freed");
    CHECK(cudaMalloc(&block, 11 << 20));
    print_result("beside");
    return 0;
}
