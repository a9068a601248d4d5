/* Managed memory by each way to it: usage: managed direct|runtime|pool. Prints the result of a
 * first and a second block of 48 MiB, of 48 MiB of plain memory beside them, and of a block after
 * the first has been freed. */
/* link: -l:libcuda.so.1 -l:libcudart.so.13 */
#include "tests/preload/progs/program.h"

#include <cuda_runtime_api.h>
#include <string.h>

#define BYTES ((size_t)48 << 20)

static const char *way;
static CUmemoryPool pool;

static int allocate(CUdeviceptr *block)
{
    void *memory = NULL;
    int result;

    if (strcmp(way, "direct") == 0) {
        result = (int)cuMemAllocManaged(block, BYTES, CU_MEM_ATTACH_GLOBAL);
    } else if (strcmp(way, "runtime") == 0) {
        result = (int)cudaMallocManaged(&memory, BYTES, cudaMemAttachGlobal);
        *block = (CUdeviceptr)(uintptr_t)memory;
    } else {
        result = pool == NULL ? -1 : (int)cuMemAllocFromPoolAsync(block, BYTES, pool, NULL);
        CHECK(cuStreamSynchronize(NULL));
    }
    if (result == 0)
        ((unsigned char *)(uintptr_t)*block)[BYTES - 1] = 1; /* the host reaches it */
    return result;
}

static void release(CUdeviceptr block)
{
    if (strcmp(way, "runtime") == 0) {
        program_check((CUresult)cudaFree((void *)(uintptr_t)block), "cudaFree", __LINE__);
    } else if (strcmp(way, "direct") == 0) {
        CHECK(cuMemFree(block));
    } else {
        CHECK(cuMemFreeAsync(block, NULL));
        CHECK(cuStreamSynchronize(NULL));
        CHECK(cuMemPoolTrimTo(pool, 0));
    }
}

int main(int argc, char **argv)
{
    const CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_MANAGED,
                                  .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    CUdeviceptr first = 0, second = 0, plain = 0, third = 0;
    int results[4];

    way = argc == 2 ? argv[1] : "";
    program_start();
    if (strcmp(way, "pool") == 0)
        printf("%d ", (int)cuMemPoolCreate(&pool, &props));
    results[0] = allocate(&first);
    results[1] = allocate(&second);
    results[2] = (int)cuMemAlloc(&plain, BYTES);
    if (results[2] == 0)
        CHECK(cuMemFree(plain));
    if (results[0] == 0)
        release(first);
    results[3] = allocate(&third);
    printf("%d %d %d %d\n", results[0], results[1], results[2], results[3]);
    if (results[1] == 0)
        release(second);
    if (results[3] == 0)
        release(third);
    if (pool != NULL)
        CHECK(cuMemPoolDestroy(pool));
    return EXIT_SUCCESS;
}
