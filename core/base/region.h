/* An arena allocator (region): allocations are only added, and all are freed together. Chunks come
 * from the kernel and are counted, up to a limit. For data built while a file is read. Not
 * thread-safe. */
#ifndef GC_REGION_H
#define GC_REGION_H

#include "core/base/host_mem.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gc_region_chunk;

struct gc_region {
    struct gc_host_mem host; /* the mapped chunks */
    struct gc_region_chunk *chunks;
    uint64_t bytes_max;
    bool full; /* an allocation failed because of the limit, not the kernel */
};

void gc_region_init(struct gc_region *region, uint64_t bytes_max);
void gc_region_fini(struct gc_region *region);

/* Zeroed and aligned to 16; NULL if no memory is left. A request of 0 bytes gets an address. */
void *gc_region_alloc(struct gc_region *region, uint64_t bytes);
/* At least `new_bytes` that begin with the old_bytes of `old` (NULL: none); the rest is zeroed. If
 * `old` is the last allocation it grows in place, else its memory stays used until the region
 * ends. */
void *gc_region_grow(struct gc_region *region, void *old, uint64_t old_bytes, uint64_t new_bytes);
/* A copy that ends with NUL. */
const char *gc_region_text(struct gc_region *region, const char *text, size_t length);
uint64_t gc_region_bytes(const struct gc_region *region);

#endif
