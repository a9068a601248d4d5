/* Device memory whose content is known: each block is filled with its number on a stream and looked
 * at before it is freed. The sum of what is live is kept, to be held against the library's figures.
 */
#ifndef BLOCKS_H
#define BLOCKS_H

#include "tests/preload/progs/public.h"

#include <cuda_runtime_api.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>

#define WINDOW_WORDS 64

enum how { BY_DRIVER, BY_RUNTIME, BY_PITCH, BY_STREAM, HOW_COUNT };

struct block {
    CUdeviceptr address;
    size_t bytes; /* as asked for, a multiple of 4 */
    enum how how;
    uint32_t number;
};

static struct {
    atomic_uint_fast64_t live_bytes;
    atomic_uint_fast64_t verified_count;
    atomic_uint_fast64_t corrupt_count;
    atomic_uint_fast64_t refused_count; /* no memory: a limit is in force */
    atomic_uint next_number;
} totals;

static inline void block_fill(const struct block *block, CUstream stream)
{
    CHECK(cuMemsetD32Async(block->address, block->number, block->bytes / 4, stream));
}

static inline bool block_refused(CUresult result, const char *call, int line)
{
    if (result == CUDA_ERROR_OUT_OF_MEMORY) {
        atomic_fetch_add(&totals.refused_count, 1);
        return true;
    }
    program_check(result, call, line);
    return false;
}

static inline CUresult block_ask(struct block *block, CUstream stream)
{
    size_t pitch;
    CUresult result;

    switch (block->how) {
    case BY_RUNTIME:
        return (CUresult)cudaMalloc((void **)&block->address, block->bytes);
    case BY_PITCH:
        result = cuMemAllocPitch(&block->address, &pitch, 512, (block->bytes + 511) / 512, 4);
        block->bytes = (block->bytes + 511) / 512 * pitch;
        return result;
    case BY_STREAM:
        return cuMemAllocAsync(&block->address, block->bytes, stream);
    default:
        return cuMemAlloc(&block->address, block->bytes);
    }
}

/* False: there was no memory. */
static inline bool block_take(struct block *block, enum how how, size_t bytes, CUstream stream)
{
    *block = (struct block){.bytes = bytes & ~(size_t)3, .how = how};
    if (block_refused(block_ask(block, stream), "allocate", __LINE__)) {
        block->address = 0;
        return false;
    }
    atomic_fetch_add(&totals.live_bytes, block->bytes);
    block->number = atomic_fetch_add(&totals.next_number, 1) * 2654435761U | 1;
    block_fill(block, stream);
    return true;
}

/* The content of a few places of it; waits for the stream. */
static inline void block_look(const struct block *block, CUstream stream)
{
    uint32_t seen[WINDOW_WORDS];
    const size_t window = block->bytes < sizeof(seen) ? block->bytes : sizeof(seen);
    const size_t places[] = {0, (block->bytes - window) / 2 & ~(size_t)3, block->bytes - window};

    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        CHECK(cuMemcpyDtoHAsync(seen, block->address + places[i], window, stream));
        CHECK(cuStreamSynchronize(stream));
        for (size_t word = 0; word < window / 4; word++)
            if (seen[word] != block->number) {
                atomic_fetch_add(&totals.corrupt_count, 1);
                return;
            }
    }
    atomic_fetch_add(&totals.verified_count, 1);
}

static inline void block_give(struct block *block, CUstream stream)
{
    if (block->address == 0)
        return;
    block_look(block, stream);
    block_fill(block, stream); /* work that is queued when it is freed */
    if (block->how == BY_STREAM)
        CHECK(cuMemFreeAsync(block->address, stream));
    else if (block->how == BY_RUNTIME)
        CHECK((CUresult)cudaFree((void *)block->address));
    else
        CHECK(cuMemFree(block->address));
    atomic_fetch_sub(&totals.live_bytes, block->bytes);
    block->address = 0;
}

#endif
