/* usage: extents alignment SEED: blocks of many sizes, whose alignment is checked; extents blocks
 * SEED: the same, and prints each that is live at the end; extents MIB…: prints the result of each
 * request. */
/* link: -l:libcuda.so.1 */
#include <cuda.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define BLOCKS 400
#define MIB ((size_t)1 << 20)

static uint64_t alignment_of(size_t bytes)
{
    if (bytes < MIB)
        return 512;
    return bytes % (2 * MIB) == 0 ? 2 * MIB : 64 << 10;
}

/* Every third size is whole MiB; every second block is freed again, so that gaps are reused. */
static int make_blocks(int prints)
{
    CUdeviceptr blocks[BLOCKS] = {0};
    size_t sizes[BLOCKS] = {0};
    unsigned wrong = 0;
    for (unsigned i = 0; i < 4 * BLOCKS; i++) {
        const unsigned at = (unsigned)rand() % BLOCKS;
        CUdeviceptr *block = &blocks[at];
        size_t bytes = 1 + (size_t)rand() % ((size_t)1 << (8 + rand() % 17));
        if (i % 3 == 0)
            bytes = (bytes + MIB - 1) / MIB * MIB;
        if (*block != 0 && cuMemFree(*block) != CUDA_SUCCESS)
            return 1;
        *block = 0;
        if (cuMemAlloc(block, bytes) != CUDA_SUCCESS)
            return 1;
        sizes[at] = bytes;
        wrong += *block % alignment_of(bytes) != 0;
    }
    for (unsigned i = 0; i < BLOCKS && prints; i++)
        if (blocks[i] != 0)
            printf("%llu %zu\n", blocks[i], sizes[i]);
    if (!prints)
        printf("wrong %u\n", wrong);
    return 0;
}

static int alloc_each(char **sizes)
{
    for (; *sizes != NULL; sizes++) {
        CUdeviceptr block;
        printf("%s: %d\n", *sizes, (int)cuMemAlloc(&block, strtoul(*sizes, NULL, 10) * MIB));
    }
    return 0;
}

int main(int argc, char **argv)
{
    CUcontext context;
    srand(argc > 2 ? (unsigned)atoi(argv[2]) : 1);
    if (argc < 2 || cuInit(0) != CUDA_SUCCESS ||
        cuDevicePrimaryCtxRetain(&context, 0) != CUDA_SUCCESS ||
        cuCtxSetCurrent(context) != CUDA_SUCCESS)
        return 1;
    return argv[1][0] == 'a' || argv[1][0] == 'b' ? make_blocks(argv[1][0] == 'b')
                                                  : alloc_each(&argv[1]);
}
