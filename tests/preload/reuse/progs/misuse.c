/* link: -l:libcuda.so.1 */
/* A program that uses memory wrongly. usage: misuse none | write-after-free | read-after-free |
 * overrun BYTES | far-overrun | twice | inside [stream]: with memory of a stream's order
 *
 * Prints `result N`: the driver's result of the first wait after the misuse. Then goes on as far as
 * it can: memory is taken again where the freed block lay. */
#include "tests/preload/progs/program.h"

#include <stdbool.h>
#include <string.h>

#define BYTES 100000

static bool is_ordered;

static CUdeviceptr take(void)
{
    CUdeviceptr block = 0;

    CHECK(is_ordered ? cuMemAllocAsync(&block, BYTES, NULL) : cuMemAlloc(&block, BYTES));
    return block;
}

static CUresult give(CUdeviceptr block)
{
    return is_ordered ? cuMemFreeAsync(block, NULL) : cuMemFree(block);
}

static void again(void)
{
    CUdeviceptr block;

    if ((is_ordered ? cuMemAllocAsync(&block, BYTES, NULL) : cuMemAlloc(&block, BYTES)) ==
        CUDA_SUCCESS)
        give(block);
}

int main(int argument_count, char **arguments)
{
    const char *what = argument_count > 1 ? arguments[1] : "";
    unsigned char byte;

    is_ordered = strcmp(arguments[argument_count - 1], "stream") == 0;
    program_start();
    CUdeviceptr other = program_alloc(4096), block = take();
    CHECK(cuMemsetD8(block, 1, BYTES));
    CHECK(cuMemsetD8(other, 2, 4096));
    CHECK(cuCtxSynchronize());
    if (strcmp(what, "overrun") == 0 && argument_count > 2)
        CHECK(cuMemsetD8Async(block + BYTES, 7, strtoull(arguments[2], NULL, 10), NULL));
    if (strcmp(what, "far-overrun") == 0)
        CHECK(cuMemsetD8Async(block + BYTES, 7, 8192, NULL));
    CUresult result = cuCtxSynchronize();
    if (strcmp(what, "inside") == 0)
        printf("free inside %d\n", (int)give(block + 512));
    give(block);
    if (strcmp(what, "write-after-free") == 0)
        cuMemsetD8Async(block + 5, 7, 3, NULL);
    if (strcmp(what, "read-after-free") == 0)
        cuMemcpyDtoHAsync(&byte, block + 5, 1, NULL);
    if (strcmp(what, "twice") == 0)
        printf("second free %d\n", (int)give(block));
    if (result == CUDA_SUCCESS)
        result = cuCtxSynchronize();
    printf("result %d\n", (int)result);
    again();
    cuMemFree(other);
    return EXIT_SUCCESS;
}
