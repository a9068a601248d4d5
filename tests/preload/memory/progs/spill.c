/* Memory beyond the limit (GPUCACHE_OVERCOMMIT=spill): through the driver's calls or the runtime's
 * every byte is where it was written, across blocks on the device and on the host.
 * usage: spill driver|runtime|async|many|ipc|oom. Prints how many bytes the device holds at the
 * end. */
/* link: -l:libcuda.so.1 -l:libcudart.so.13 */
#include "tests/preload/progs/program.h"

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <string.h>

#define MIB ((size_t)1 << 20)
#define BLOCK (24 * MIB)
#define BLOCKS 6 /* of which two fit beside the context in 128 MiB */

#define CHECK_RUNTIME(call) program_check((CUresult)(call), #call, __LINE__)
#define EXPECT(condition)                                                                          \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "line %d: not so: %s\n", __LINE__, #condition);                        \
            exit(EXIT_FAILURE);                                                                    \
        }                                                                                          \
    } while (0)

static unsigned char *host;

static unsigned char pattern(size_t block, size_t i)
{
    return (unsigned char)(block * 37 + i * 11 + (i >> 12));
}

static void fill_host(size_t block)
{
    for (size_t i = 0; i < BLOCK; i++)
        host[i] = pattern(block, i);
}

static void expect_pattern(size_t block)
{
    for (size_t i = 0; i < BLOCK; i++)
        if (host[i] != pattern(block, i)) {
            fprintf(stderr, "block %zu: byte %zu is %u\n", block, i, host[i]);
            exit(EXIT_FAILURE);
        }
}

static void expect_device_memory(CUdeviceptr block)
{
    unsigned type = 0, managed = 7;
    int ordinal = -1;
    CUdeviceptr base = 0, device = 0, start = 0;
    size_t bytes = 0, range = 0;
    void *pointer = NULL;
    CUpointer_attribute names[] = {
        CU_POINTER_ATTRIBUTE_MEMORY_TYPE,      CU_POINTER_ATTRIBUTE_HOST_POINTER,
        CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,   CU_POINTER_ATTRIBUTE_IS_MANAGED,
        CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, CU_POINTER_ATTRIBUTE_RANGE_SIZE};
    void *values[] = {&type, &pointer, &ordinal, &managed, &start, &range};

    CHECK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, block + 5));
    EXPECT(type == CU_MEMORYTYPE_DEVICE);
    CHECK(cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, block));
    EXPECT((managed & 255) == 0);
    CHECK(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, block));
    EXPECT(ordinal == 0);
    CHECK(cuPointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, block + 9));
    EXPECT(device == block + 9);
    EXPECT(cuPointerGetAttribute(&pointer, CU_POINTER_ATTRIBUTE_HOST_POINTER, block) ==
           CUDA_ERROR_INVALID_VALUE);
    CHECK(cuMemGetAddressRange(&base, &bytes, block + BLOCK - 1));
    EXPECT(base == block && bytes == BLOCK);
    type = 0, ordinal = -1;
    CHECK(cuPointerGetAttributes(6, names, values, block + 3));
    EXPECT(type == CU_MEMORYTYPE_DEVICE && pointer == NULL && ordinal == 0);
    EXPECT((managed & 255) == 0 && start == block && range == BLOCK);
}

static void expect_runtime_device_memory(void *block)
{
    struct cudaPointerAttributes attributes;

    CHECK_RUNTIME(cudaPointerGetAttributes(&attributes, block));
    EXPECT(attributes.type == cudaMemoryTypeDevice && attributes.device == 0);
    EXPECT(attributes.devicePointer == block && attributes.hostPointer == NULL);
}

/* Every block has its pattern; copies between all neighbours, fills in the middle. */
static void use_driver(CUdeviceptr *blocks)
{
    for (size_t k = 0; k < BLOCKS; k++) {
        fill_host(k);
        CHECK(cuMemcpyHtoD(blocks[k], host, BLOCK));
    }
    for (size_t k = 0; k < BLOCKS; k++) {
        memset(host, 0, BLOCK);
        CHECK(cuMemcpyDtoH(host, blocks[k], BLOCK));
        expect_pattern(k);
    }
    for (size_t k = 0; k + 1 < BLOCKS; k++) {
        CHECK(cuMemcpyDtoD(blocks[k + 1], blocks[k], BLOCK));
        CHECK(cuCtxSynchronize());
    }
    CHECK(cuMemcpyDtoH(host, blocks[BLOCKS - 1], BLOCK));
    expect_pattern(0);
    for (size_t k = 0; k < BLOCKS; k++) {
        CHECK(cuMemsetD8(blocks[k] + 1000, (unsigned char)(200 + k), 5000));
        CHECK(cuMemsetD32(blocks[k] + 8 * MIB, 0x01020304u, 1000));
    }
    for (size_t k = 0; k < BLOCKS; k++)
        CHECK(cuMemcpy(blocks[k] + 16 * MIB, blocks[(k + 1) % BLOCKS] + 1000, 100));
    for (size_t k = 0; k < BLOCKS; k++) {
        CHECK(cuMemcpyDtoH(host, blocks[k], BLOCK));
        EXPECT(host[999] == pattern(0, 999) && host[6000] == pattern(0, 6000));
        EXPECT(host[1000] == 200 + k && host[5999] == 200 + k);
        EXPECT(host[8 * MIB] == 4 && host[8 * MIB + 3999] == 1);
        EXPECT(host[16 * MIB] == 200 + (k + 1) % BLOCKS);
    }
}

static size_t device_bytes(void)
{
    size_t free_bytes = 0, total_bytes = 0;
    CHECK(cuMemGetInfo(&free_bytes, &total_bytes));
    EXPECT(total_bytes <= 128 * MIB);
    return total_bytes - free_bytes;
}

static void through_the_driver(void)
{
    CUdeviceptr blocks[BLOCKS];

    for (int round = 0; round < 3; round++) {
        for (size_t k = 0; k < BLOCKS; k++) {
            blocks[k] = program_alloc(BLOCK);
            expect_device_memory(blocks[k]);
        }
        use_driver(blocks);
        for (size_t k = 0; k < BLOCKS; k++)
            CHECK(cuMemFree(blocks[(k + (size_t)round) % BLOCKS]));
    }
}

static void through_the_runtime(void)
{
    void *blocks[BLOCKS];
    CUdeviceptr addresses[BLOCKS];
    cudaStream_t stream;

    CHECK_RUNTIME(cudaStreamCreate(&stream));
    for (size_t k = 0; k < BLOCKS; k++) {
        CHECK_RUNTIME(cudaMalloc(&blocks[k], BLOCK));
        expect_runtime_device_memory(blocks[k]);
        addresses[k] = (CUdeviceptr)(uintptr_t)blocks[k];
        fill_host(k);
        CHECK_RUNTIME(cudaMemcpy(blocks[k], host, BLOCK, cudaMemcpyHostToDevice));
    }
    for (size_t k = 0; k < BLOCKS; k++) {
        memset(host, 0, BLOCK);
        CHECK_RUNTIME(cudaMemcpy(host, blocks[k], BLOCK, cudaMemcpyDefault));
        expect_pattern(k);
        CHECK_RUNTIME(cudaMemsetAsync(blocks[k], (int)k + 1, BLOCK, stream));
        CHECK_RUNTIME(cudaMemcpyAsync(host, blocks[k], BLOCK, cudaMemcpyDeviceToHost, stream));
        CHECK_RUNTIME(cudaStreamSynchronize(stream));
        EXPECT(host[0] == k + 1 && host[BLOCK - 1] == k + 1);
    }
    CHECK_RUNTIME(cudaMemcpy(blocks[0], blocks[BLOCKS - 1], BLOCK, cudaMemcpyDeviceToDevice));
    CHECK_RUNTIME(cudaMemcpy(host, blocks[0], BLOCK, cudaMemcpyDeviceToHost));
    EXPECT(host[0] == BLOCKS && host[BLOCK - 1] == BLOCKS);
    use_driver(addresses);
    for (size_t k = 0; k < BLOCKS; k++)
        CHECK_RUNTIME(cudaFree(blocks[k]));
}

/* In the order of a stream: each free comes while the copies before it may run. */
static void in_stream_order(void)
{
    CUdeviceptr blocks[BLOCKS];
    CUstream stream;

    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (int round = 0; round < 4; round++) {
        for (size_t k = 0; k < BLOCKS; k++) {
            CHECK(cuMemAllocAsync(&blocks[k], BLOCK, stream));
            CHECK(cuMemsetD8Async(blocks[k], (unsigned char)(k + 1), BLOCK, stream));
        }
        for (size_t k = 0; k + 1 < BLOCKS; k++)
            CHECK(cuMemcpyDtoDAsync(blocks[k], blocks[k + 1], BLOCK / 2, stream));
        for (size_t k = 0; k < BLOCKS; k++) {
            CHECK(cuMemcpyDtoHAsync(host, blocks[k], BLOCK, stream));
            CHECK(cuStreamSynchronize(stream));
            EXPECT(host[0] == (k + 1 < BLOCKS ? k + 2 : k + 1) && host[BLOCK - 1] == k + 1);
            CHECK(cuMemFreeAsync(blocks[k], stream));
        }
        CHECK(cuStreamSynchronize(stream));
    }
    CHECK(cuStreamDestroy(stream));
}

/* Blocks that only together make room for a large one. */
static void many_for_one(void)
{
    enum { MANY = 8, PART = 6 * MIB };
    CUdeviceptr blocks[MANY];

    for (int k = 0; k < MANY; k++) {
        blocks[k] = program_alloc(PART);
        CHECK(cuMemsetD8(blocks[k], (unsigned char)(k + 1), PART));
    }
    const CUdeviceptr large = program_alloc(40 * MIB);
    CHECK(cuMemsetD8(large, 99, 40 * MIB));
    for (int k = 0; k < MANY; k++) {
        CHECK(cuMemcpyDtoH(host, blocks[k], PART));
        for (size_t i = 0; i < PART; i++)
            EXPECT(host[i] == k + 1);
        CHECK(cuMemFree(blocks[k]));
    }
    CHECK(cuMemFree(large));
}

static void export(void)
{
    CUdeviceptr plain = program_alloc(BLOCK), other = program_alloc(BLOCK);
    CUdeviceptr spilled = program_alloc(BLOCK);
    CUipcMemHandle handle;

    EXPECT(cuIpcGetMemHandle(&handle, spilled) == CUDA_ERROR_NOT_SUPPORTED);
    CHECK(cuMemsetD8(spilled, 3, BLOCK));
    CHECK(cuMemFree(spilled));
    CHECK(cuMemFree(other));
    CHECK(cuMemFree(plain));
}

/* The host's limit is 64 MiB, too: two blocks and a half. */
static void out_of_memory(void)
{
    CUdeviceptr blocks[BLOCKS] = {0};
    unsigned served = 0;

    for (size_t k = 0; k < BLOCKS; k++)
        served += cuMemAlloc(&blocks[k], BLOCK) == CUDA_SUCCESS;
    printf("served %u, ", served);
    for (size_t k = 0; k < BLOCKS; k++)
        if (blocks[k] != 0)
            CHECK(cuMemFree(blocks[k]));
}

int main(int argc, char **argv)
{
    const char *way = argc == 2 ? argv[1] : "";

    host = malloc(BLOCK);
    if (host == NULL)
        return 2;
    program_start();
    if (strcmp(way, "driver") == 0)
        through_the_driver();
    else if (strcmp(way, "runtime") == 0)
        through_the_runtime();
    else if (strcmp(way, "async") == 0)
        in_stream_order();
    else if (strcmp(way, "many") == 0)
        many_for_one();
    else if (strcmp(way, "ipc") == 0)
        export();
    else if (strcmp(way, "oom") == 0)
        out_of_memory();
    else
        return 2;
    printf("%d\n", device_bytes() <= 128 * MIB);
    free(host);
    return EXIT_SUCCESS;
}
