/* link: -l:libcuda.so.1 */
/* Prints what the driver API answers to right and wrong uses of memory: error codes and facts that
 * are the same whoever serves the memory. Run without the library and in each of its modes, the
 * output must be the same. */
#include "tests/preload/progs/program.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define CHUNK_BYTES ((size_t)256 << 20)
#define CHUNKS_MAX 128

static void print_result(const char *what, CUresult result)
{
    printf("%s: %d\n", what, (int)result);
}

static void before_start(void)
{
    CUdeviceptr block = 0;
    size_t free_bytes = 0, total_bytes = 0;
    CUcontext context = NULL;
    print_result("alloc before initialisation", cuMemAlloc(&block, 4096));
    print_result("free before initialisation", cuMemFree(0x1000));
    print_result("memory info before initialisation", cuMemGetInfo(&free_bytes, &total_bytes));
    CHECK(cuInit(0));
    print_result("alloc without a context", cuMemAlloc(&block, 4096));
    print_result("free without a context", cuMemFree(0x1000));
    print_result("memory info without a context", cuMemGetInfo(&free_bytes, &total_bytes));
    print_result("current context", cuCtxGetCurrent(&context));
    printf("there is none: %d\n", context == NULL);
}

static void sizes(void)
{
    static const size_t bytes[] = {1,       511,     512,     4096,         65536,
                                   1000003, 2097152, 5000000, 64 * 1048576, 200 * 1048576 + 1};
    CUdeviceptr block = 0;
    unsigned char got[3] = {0, 0, 0};
    for (size_t i = 0; i < sizeof(bytes) / sizeof(bytes[0]); i++) {
        CUdeviceptr base = 0;
        size_t range_bytes = 0;
        block = program_alloc(bytes[i]);
        CHECK(cuMemsetD8(block, (unsigned char)(i + 1), bytes[i]));
        CHECK(cuMemcpyDtoH(got, block + bytes[i] - 1, 1));
        CHECK(cuMemGetAddressRange(&base, &range_bytes, block + bytes[i] / 2));
        printf("%zu bytes: aligned %d, last byte %d, range starts at the block %d, is %zu bytes\n",
               bytes[i], block % 256 == 0, got[0], base == block, range_bytes);
        CHECK(cuMemFree(block));
    }
    block = 77;
    print_result("alloc of 0 bytes", cuMemAlloc(&block, 0));
    print_result("alloc of 2^63 bytes", cuMemAlloc(&block, (size_t)1 << 63));
    print_result("alloc of 2^64 - 1 bytes", cuMemAlloc(&block, SIZE_MAX));
    print_result("alloc of more than there is", cuMemAlloc(&block, (size_t)1 << 45));
    print_result("alloc to nowhere", cuMemAlloc(NULL, 4096));
}

static void wrong_frees(void)
{
    int host = 0;
    CUdeviceptr base = 0;
    size_t range_bytes = 0;
    CUdeviceptr block = program_alloc(1 << 20), other = program_alloc(1 << 20),
                large = program_alloc(50 << 20);
    print_result("free of an interior pointer", cuMemFree(block + 512));
    print_result("free of an interior pointer of a large block", cuMemFree(large + (20 << 20)));
    print_result("free", cuMemFree(block));
    print_result("double free", cuMemFree(block));
    print_result("free of a large block", cuMemFree(large));
    print_result("double free of a large block", cuMemFree(large));
    print_result("free of NULL", cuMemFree(0));
    print_result("free of nonsense", cuMemFree(0x1234));
    print_result("free of host memory", cuMemFree((CUdeviceptr)(uintptr_t)&host));
    print_result("range of what is free", cuMemGetAddressRange(&base, &range_bytes, block));
    print_result("range of nonsense", cuMemGetAddressRange(&base, &range_bytes, 0x1234));
    print_result("the other block is intact", cuMemsetD8(other, 1, 1 << 20));
    print_result("free of the other block", cuMemFree(other));
}

static void attributes(void)
{
    unsigned type = 0;
    CUdeviceptr start = 0, pointer = 0;
    size_t range_bytes = 0;
    unsigned long long id[2] = {0, 0};
    CUcontext context = NULL, current = NULL;
    CUdeviceptr block = program_alloc(100000), other = program_alloc(100000);
    CHECK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, block + 5));
    CHECK(cuPointerGetAttribute(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, block + 5));
    CHECK(cuPointerGetAttribute(&range_bytes, CU_POINTER_ATTRIBUTE_RANGE_SIZE, block + 5));
    CHECK(cuPointerGetAttribute(&pointer, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, block + 5));
    CHECK(cuPointerGetAttribute(&id[0], CU_POINTER_ATTRIBUTE_BUFFER_ID, block));
    CHECK(cuPointerGetAttribute(&id[1], CU_POINTER_ATTRIBUTE_BUFFER_ID, other));
    CHECK(cuPointerGetAttribute(&context, CU_POINTER_ATTRIBUTE_CONTEXT, block));
    CHECK(cuCtxGetCurrent(&current));
    printf(
        "attributes: type %u, starts at the block %d, %zu bytes, pointer %d, own ids %d, context %d\n",
        type, start == block, range_bytes, pointer == block + 5, id[0] != id[1],
        context == current);
    CHECK(cuMemFree(block));
    print_result("attribute of what is free",
                 cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, block));
    CHECK(cuMemFree(other));
}

static void other_ways(void)
{
    CUdeviceptr block = 0;
    size_t pitch = 0;
    CUstream stream = NULL;
    print_result("pitched", cuMemAllocPitch(&block, &pitch, 1000, 10, 4));
    printf("pitch %zu\n", pitch);
    print_result("free of it", cuMemFree(block));
    print_result("pitched with a bad element", cuMemAllocPitch(&block, &pitch, 1000, 10, 3));
    print_result("pitched of no width", cuMemAllocPitch(&block, &pitch, 0, 10, 4));
    print_result("managed", cuMemAllocManaged(&block, 1 << 20, CU_MEM_ATTACH_GLOBAL));
    memset((void *)(uintptr_t)block, 3, 1 << 20);
    print_result("free of it", cuMemFree(block));
    print_result("managed with a bad flag", cuMemAllocManaged(&block, 1 << 20, 77));
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    print_result("on a stream", cuMemAllocAsync(&block, 1 << 20, stream));
    print_result("free of it on the stream", cuMemFreeAsync(block, stream));
    print_result("on a stream", cuMemAllocAsync(&block, 1 << 20, stream));
    print_result("stream", cuStreamSynchronize(stream));
    print_result("plain free of it", cuMemFree(block));
    block = program_alloc(1 << 20);
    print_result("plain memory freed on a stream", cuMemFreeAsync(block, stream));
    print_result("stream", cuStreamSynchronize(stream));
    print_result("and then again", cuMemFree(block));
    CHECK(cuStreamDestroy(stream));
}

/* Memory runs out at the same place, and freed memory can be allocated again. */
static void exhaustion(void)
{
    static CUdeviceptr chunks[CHUNKS_MAX];
    CUresult result = CUDA_SUCCESS;
    for (int round = 0; round < 3; round++) {
        unsigned count = 0;
        while (count < CHUNKS_MAX &&
               (result = cuMemAlloc(&chunks[count], CHUNK_BYTES)) == CUDA_SUCCESS)
            count++;
        printf("round %d: %u chunks, then %d\n", round, count, (int)result);
        while (count > 0)
            CHECK(cuMemFree(chunks[--count]));
        /* Many small ones must not stand in the way of the next round. */
        for (unsigned i = 0; i < CHUNKS_MAX; i++)
            chunks[i] = program_alloc(300000 + i * 4096);
        for (unsigned i = 0; i < CHUNKS_MAX; i++)
            CHECK(cuMemFree(chunks[i]));
    }
}

static void memory_info(void)
{
    size_t total[3], available[3];
    CHECK(cuMemGetInfo(&available[0], &total[0]));
    CUdeviceptr block = program_alloc(CHUNK_BYTES);
    CHECK(cuMemGetInfo(&available[1], &total[1]));
    CHECK(cuMemFree(block));
    CHECK(cuMemGetInfo(&available[2], &total[2]));
    printf("memory info: total %zu, the same after %d, taken %zu, back %d\n", total[0],
           total[0] == total[2], available[0] - available[1], available[0] == available[2]);
}

static void contexts(void)
{
    CUdevice device = 0;
    CUcontext primary = NULL, context = NULL;
    CUdeviceptr of_primary, block, late;
    CHECK(cuDeviceGet(&device, 0));
    CHECK(cuCtxGetCurrent(&primary));
    of_primary = program_alloc(123456);
    CHECK(cuCtxCreate(&context, NULL, 0, device));
    block = program_alloc(234567);
    late = program_alloc(345678);
    print_result("free in another context", cuMemFree(of_primary));
    CHECK(cuCtxSetCurrent(primary));
    print_result("free from another context", cuMemFree(late));
    CHECK(cuCtxSetCurrent(NULL));
    print_result("free with no context current", cuMemFree(block));
    CHECK(cuCtxSetCurrent(context));
    block = program_alloc(234567);
    print_result("destroy a context with a live block", cuCtxDestroy(context));
    CHECK(cuCtxSetCurrent(primary));
    print_result("free of what went with it", cuMemFree(block));
    block = program_alloc(4096);
    print_result("reset", cuDevicePrimaryCtxReset(device));
    print_result("free after the reset", cuMemFree(block));
    print_result("alloc after the reset", cuMemAlloc(&block, 4096));
}

int main(void)
{
    before_start();
    program_start();
    sizes();
    wrong_frees();
    attributes();
    other_ways();
    memory_info();
    exhaustion();
    contexts();
    return EXIT_SUCCESS;
}
