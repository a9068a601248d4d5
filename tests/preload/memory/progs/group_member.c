/* link: -l:libcuda.so.1 */
/* A process of a group: takes and frees memory at random: group_member SECONDS MOST_BYTES SEED
 *
 * Blocks are filled and read back; the only failure allowed is CUDA_ERROR_OUT_OF_MEMORY, and
 * cuMemGetInfo never shows more than the total. Frees all at the end, unless the seed leaves that
 * to the driver. Prints `allocations N failures N longest_ms N`. */
#include "tests/preload/progs/program.h"

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#define BLOCKS 12
#define MIB ((size_t)1 << 20)

static struct block {
    CUdeviceptr address;
    size_t bytes;
    unsigned char value;
} blocks[BLOCKS];

static void put_back(struct block *block)
{
    unsigned char last;
    CHECK(cuMemcpyDtoH(&last, block->address + block->bytes - 1, 1));
    if (last != block->value) {
        fprintf(stderr, "a block of %zu bytes was written by another\n", block->bytes);
        exit(EXIT_FAILURE);
    }
    CHECK(cuMemFree(block->address));
    block->address = 0;
}

/* False: there was no room. */
static bool take(struct block *block, size_t most, unsigned *seed)
{
    size_t available, total;
    block->bytes = 1 + (size_t)rand_r(seed) % most;
    const CUresult result = cuMemAlloc(&block->address, block->bytes);
    if (result == CUDA_ERROR_OUT_OF_MEMORY) {
        block->address = 0;
        return false;
    }
    program_check(result, "cuMemAlloc", __LINE__);
    block->value = (unsigned char)rand_r(seed);
    CHECK(cuMemsetD8(block->address, block->value, block->bytes));
    CHECK(cuMemGetInfo(&available, &total));
    if (available > total) {
        fprintf(stderr, "%zu bytes free of %zu\n", available, total);
        exit(EXIT_FAILURE);
    }
    return true;
}

static bool start(uint64_t end_ms)
{
    const struct timespec pause = {0, 20000000};
    CUcontext context;
    CHECK(cuInit(0));
    CUresult result = cuDevicePrimaryCtxRetain(&context, 0);
    for (; result == CUDA_ERROR_OUT_OF_MEMORY && program_now_ms() < end_ms; nanosleep(&pause, NULL))
        result = cuDevicePrimaryCtxRetain(&context, 0);
    if (result == CUDA_ERROR_OUT_OF_MEMORY)
        return false;
    program_check(result, "cuDevicePrimaryCtxRetain", __LINE__);
    CHECK(cuCtxSetCurrent(context));
    return true;
}

int main(int argc, char **argv)
{
    if (argc != 4)
        return 2;
    const uint64_t end_ms = program_now_ms() + (uint64_t)(atof(argv[1]) * 1000);
    const size_t most = (size_t)strtoull(argv[2], NULL, 0);
    unsigned seed = (unsigned)strtoul(argv[3], NULL, 0);
    unsigned long allocations = 0, failures = 0, longest_ms = 0;
    if (!start(end_ms))
        return EXIT_SUCCESS; /* there never was room for its context */
    while (program_now_ms() < end_ms) {
        struct block *block = &blocks[(unsigned)rand_r(&seed) % BLOCKS];
        const struct timespec pause = {0, (long)((unsigned)rand_r(&seed) % 4000) * 1000};
        if (block->address != 0) {
            put_back(block);
        } else {
            const uint64_t start_ms = program_now_ms();
            const bool has_room = take(block, most, &seed);
            const unsigned long took_ms = program_now_ms() - start_ms;
            allocations += has_room;
            failures += !has_room;
            longest_ms = took_ms > longest_ms ? took_ms : longest_ms;
        }
        nanosleep(&pause, NULL);
    }
    for (unsigned i = 0; i < BLOCKS && seed % 3 != 0; i++)
        if (blocks[i].address != 0)
            put_back(&blocks[i]);
    printf("allocations %lu failures %lu longest_ms %lu\n", allocations, failures, longest_ms);
    return EXIT_SUCCESS;
}
