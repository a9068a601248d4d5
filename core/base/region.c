#include "core/base/region.h"

#include "core/base/bits.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#define ALIGNMENT 16
#define CHUNK_BYTES_MIN GC_KIB(64)
#define CHUNK_BYTES_MAX GC_MIB(2)
#define GROWTH_DIVISOR 16 /* a chunk is this fraction (1/n) of all earlier ones, within bounds */
#define LARGE_DIVISOR 8   /* a request above this fraction (1/n) of a chunk is large */

/* The head of a chunk, inside the chunk; `used` and `bytes` include it. */
struct gc_region_chunk {
    struct gc_region_chunk *next;
    uint64_t bytes;
    uint64_t used;
    uint64_t last; /* where the last allocation begins */
};

#define HEAD_BYTES ((sizeof(struct gc_region_chunk) + ALIGNMENT - 1) & ~(uint64_t)(ALIGNMENT - 1))

void gc_region_init(struct gc_region *region, uint64_t bytes_max)
{
    *region = (struct gc_region){.bytes_max = bytes_max};
}

void gc_region_fini(struct gc_region *region)
{
    while (region->chunks != NULL) {
        struct gc_region_chunk *chunk = region->chunks;
        region->chunks = chunk->next;
        gc_host_mem_unmap(&region->host, chunk, chunk->bytes);
    }
}

/* Populating pages at once is much cheaper than a fault for each; the end of a large chunk may
 * never be used. Headers and kernels before 5.14 lack the call. */
static void populate(void *memory, uint64_t bytes)
{
    const int saved_errno = errno;
    if (bytes >= CHUNK_BYTES_MAX)
        madvise(memory, bytes, MADV_HUGEPAGE);
#ifdef MADV_POPULATE_WRITE
    madvise(memory, gc_min_u64(bytes, CHUNK_BYTES_MAX), MADV_POPULATE_WRITE);
#endif
    errno = saved_errno;
}

/* Adds a chunk for at least `bytes`, a fraction of all earlier ones, within bounds. A large request
 * gets a chunk of its own, behind the first one if that has more room: no end is lost. */
static struct gc_region_chunk *add_chunk(struct gc_region *region, uint64_t bytes)
{
    const uint64_t held = gc_host_mem_bytes(&region->host);
    uint64_t want = gc_min_u64(gc_max_u64(held / GROWTH_DIVISOR, CHUNK_BYTES_MIN), CHUNK_BYTES_MAX);
    if (!gc_add_u64(bytes, HEAD_BYTES, &bytes))
        return NULL;
    const bool is_large = bytes > want / LARGE_DIVISOR;
    want = is_large ? bytes : want;
    if (!gc_round_up_u64(want, GC_KIB(4), &want))
        return NULL;
    if (held > region->bytes_max || want > region->bytes_max - held) {
        region->full = true;
        return NULL;
    }
    struct gc_region_chunk *chunk = gc_host_mem_map(&region->host, want);
    if (chunk == NULL)
        return NULL;
    populate(chunk, want);
    struct gc_region_chunk *first = region->chunks;
    *chunk = (struct gc_region_chunk){.bytes = want, .used = HEAD_BYTES};
    if (is_large && first != NULL && first->bytes - first->used > want - bytes) {
        chunk->next = first->next;
        first->next = chunk;
    } else {
        chunk->next = first;
        region->chunks = chunk;
    }
    return chunk;
}

void *gc_region_alloc(struct gc_region *region, uint64_t bytes)
{
    struct gc_region_chunk *chunk = region->chunks;
    if (!gc_round_up_u64(bytes, ALIGNMENT, &bytes))
        return NULL;
    if (chunk == NULL || bytes > chunk->bytes - chunk->used) {
        chunk = add_chunk(region, bytes);
        if (chunk == NULL)
            return NULL;
    }
    chunk->last = chunk->used;
    chunk->used += bytes;
    return (char *)chunk + chunk->last;
}

void *gc_region_grow(struct gc_region *region, void *old, uint64_t old_bytes, uint64_t new_bytes)
{
    struct gc_region_chunk *chunk = region->chunks;
    uint64_t rounded;
    if (new_bytes < old_bytes || !gc_round_up_u64(new_bytes, ALIGNMENT, &rounded))
        return NULL;
    if (old != NULL && chunk != NULL && (char *)chunk + chunk->last == (char *)old &&
        rounded <= chunk->bytes - chunk->last) {
        chunk->used = chunk->last + rounded;
        return old;
    }
    void *memory = gc_region_alloc(region, new_bytes);
    if (memory != NULL && old != NULL)
        memcpy(memory, old, old_bytes);
    return memory;
}

const char *gc_region_text(struct gc_region *region, const char *text, size_t length)
{
    char *copy = gc_region_alloc(region, (uint64_t)length + 1);
    if (copy != NULL)
        memcpy(copy, text, length);
    return copy;
}

uint64_t gc_region_bytes(const struct gc_region *region)
{
    return gc_host_mem_bytes(&region->host);
}
