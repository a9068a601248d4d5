/* link: -l:libcuda.so.1 */
/* Works with cached memory in every way that asks the driver for something, whatever fails of it.
 * usage: pool_faults [once]
 *
 * Sizes of all kinds on two streams, freed with work queued; out of memory; a capture; memory of
 * streams; a second context that ends with blocks in it. An allocation may fail, with an error a
 * driver could give; what the blocks hold must be right all the same. `once`: as only one call
 * failed, the last allocation must succeed. Prints how many bytes the device gave out at the end:
 * the accounts must agree with that. */
#include "tests/preload/progs/program.h"
#include "tests/simcuda/driver/query.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define BLOCKS 32
#define EDGE_BYTES 4096
#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

struct block {
    CUdeviceptr address;
    size_t bytes;
    unsigned mark;
    CUstream stream;
    unsigned *seen; /* pinned: its first and last word as its stream saw them */
};

static CUstream streams[2];
static struct block blocks[BLOCKS];
static unsigned next_mark = 1;
static unsigned *pinned;
static size_t kept_bytes; /* that would not be freed */

static bool is_given(CUresult result, const char *call)
{
    if (result == CUDA_SUCCESS)
        return true;
    if (result != CUDA_ERROR_OUT_OF_MEMORY && result != CUDA_ERROR_UNKNOWN) {
        fprintf(stderr, "%s: CUDA error %d\n", call, (int)result);
        exit(EXIT_FAILURE);
    }
    return false;
}

/* Written and read by the block's stream, which is not waited for. */
static void use(struct block *block)
{
    block->mark = next_mark++;
    const size_t edge = block->bytes < EDGE_BYTES ? block->bytes : EDGE_BYTES;
    CHECK(cuMemsetD32Async(block->address, block->mark, edge / 4, block->stream));
    CHECK(cuMemsetD32Async(block->address + block->bytes - edge, block->mark, edge / 4,
                           block->stream));
    CHECK(cuMemcpyDtoHAsync(&block->seen[0], block->address, 4, block->stream));
    CHECK(cuMemcpyDtoHAsync(&block->seen[1], block->address + block->bytes - 4, 4, block->stream));
}

static bool take(unsigned index, size_t bytes)
{
    struct block *block = &blocks[index];

    block->seen = &pinned[2 * index];
    block->stream = streams[index % 2];
    block->bytes = bytes;
    if (!is_given(cuMemAlloc(&block->address, bytes), "cuMemAlloc")) {
        block->address = 0;
        return false;
    }
    use(block);
    return true;
}

/* The contents are looked at when all is done. A free that the driver refused is tried again. */
static void release_memory(unsigned index)
{
    struct block *block = &blocks[index];

    if (block->address == 0)
        return;
    if (!is_given(cuMemFree(block->address), "cuMemFree") &&
        !is_given(cuMemFree(block->address), "cuMemFree"))
        kept_bytes += block->bytes;
    block->address = 0;
}

static void look(void)
{
    for (unsigned i = 0; i < 2; i++)
        CHECK(cuStreamSynchronize(streams[i]));
    for (unsigned i = 0; i < BLOCKS; i++)
        if (blocks[i].mark != 0 &&
            (blocks[i].seen[0] != blocks[i].mark || blocks[i].seen[1] != blocks[i].mark)) {
            fprintf(stderr, "block %u of %zu bytes held %08x and %08x, not %08x\n", i,
                    blocks[i].bytes, blocks[i].seen[0], blocks[i].seen[1], blocks[i].mark);
            exit(EXIT_FAILURE);
        }
    for (unsigned i = 0; i < BLOCKS; i++)
        blocks[i].mark = 0;
}

/* Takes all, frees every second with its work queued, takes larger ones in their place. */
static void sizes(size_t bytes, size_t step)
{
    for (unsigned i = 0; i < BLOCKS; i++)
        take(i, bytes + i * step);
    look();
    for (unsigned i = 0; i < BLOCKS; i++)
        if (blocks[i].address != 0)
            use(&blocks[i]);
    for (unsigned i = 0; i < BLOCKS; i += 2)
        release_memory(i);
    look();
    for (unsigned i = 0; i < BLOCKS; i += 2)
        take(i, 2 * bytes + i * step);
    look();
    for (unsigned i = 0; i < BLOCKS; i++)
        release_memory(i);
}

/* More than there is: the last ones fail, or make idle memory move. */
static void fill_device(void)
{
    for (unsigned i = 0; i < BLOCKS; i++)
        take(i, 8 * MIB);
    look();
    for (unsigned i = 0; i < BLOCKS; i += 2)
        release_memory(i);
    for (unsigned i = 0; i < BLOCKS; i += 8)
        take(i, 26 * MIB);
    look();
    for (unsigned i = 0; i < BLOCKS; i++)
        release_memory(i);
}

static void capture(void)
{
    CUgraphExec exec;
    CUgraph graph;

    take(1, 100 * KIB);
    CHECK(cuStreamBeginCapture(streams[0], CU_STREAM_CAPTURE_MODE_RELAXED));
    bool is_taken = take(0, 3 * MIB);
    release_memory(1);
    CHECK(cuStreamEndCapture(streams[0], &graph));
    CHECK(cuGraphInstantiate(&exec, graph, 0));
    for (unsigned i = 0; i < 2; i++) {
        if (is_taken)
            blocks[0].seen[0] = blocks[0].seen[1] = 0;
        CHECK(cuGraphLaunch(exec, streams[0]));
        look();
    }
    CHECK(cuGraphExecDestroy(exec));
    CHECK(cuGraphDestroy(graph));
    release_memory(0);
}

static void ordered(void)
{
    CUdeviceptr block;

    for (unsigned i = 0; i < 4; i++)
        if (is_given(cuMemAllocAsync(&block, MIB + i, streams[i % 2]), "cuMemAllocAsync")) {
            CHECK(cuMemsetD8Async(block, 1, MIB, streams[i % 2]));
            if (!is_given(cuMemFreeAsync(block, streams[i % 2]), "cuMemFreeAsync") &&
                !is_given(cuMemFreeAsync(block, streams[i % 2]), "cuMemFreeAsync"))
                kept_bytes += MIB + i;
        }
}

static void passing_context(CUcontext context)
{
    CUdeviceptr block;

    if (context == NULL)
        return;
    CHECK(cuCtxPushCurrent(context));
    for (unsigned i = 0; i < 4; i++)
        if (is_given(cuMemAlloc(&block, (i + 1) * 300 * KIB), "cuMemAlloc"))
            CHECK(cuMemsetD8Async(block, 1, 300 * KIB, NULL));
    CHECK(cuCtxDestroy(context));
}

int main(int argument_count, char **arguments)
{
    const bool is_once = argument_count > 1 && strcmp(arguments[1], "once") == 0;
    CUcontext other = NULL;
    uint64_t used, total;

    program_start();
    if (is_given(cuCtxCreate(&other, NULL, 0, 0), "cuCtxCreate"))
        CHECK(cuCtxPopCurrent(NULL));
    for (unsigned i = 0; i < 2; i++)
        CHECK(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
    CHECK(cuMemHostAlloc((void **)&pinned, 2 * BLOCKS * sizeof(unsigned), 0));
    sizes(512, 512);
    sizes(64 * KIB, 20 * KIB);
    sizes(2 * MIB, 4 * KIB);
    fill_device();
    capture();
    ordered();
    passing_context(other);
    fill_device();
    if (is_once && !take(0, 40 * MIB)) {
        fprintf(stderr, "no memory though nothing fails any more\n");
        return EXIT_FAILURE;
    }
    look();
    release_memory(0);
    if (!simcuda_device_memory(0, &used, &total))
        return EXIT_FAILURE;
    printf("%llu %zu\n", (unsigned long long)used, kept_bytes);
    return EXIT_SUCCESS;
}
