/* Memory that is only ever added to and goes all at once: chunks straight from the kernel, counted,
 * with an upper limit. For what is built while a file is read. Not thread-safe. */
#ifndef GC_REGION_H
#define GC_REGION_H

#include "core/base/host_mem.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gc_region_chunk;

struct gc_region {
    struct gc_host_mem host; /* what is held, chunk by chunk */
    struct gc_region_chunk *chunks;
    uint64_t bytes_max;
    bool full; /* the limit, not the kernel, refused */
};

void gc_region_init(struct gc_region *region, uint64_t bytes_max);
void gc_region_fini(struct gc_region *region);

/* Zeroed, aligned to 16; NULL if there is no more. A request of 0 bytes gives an address. */
void *gc_region_alloc(struct gc_region *region, uint64_t bytes);
/* At least `new_bytes` with the content of `old` (old_bytes of it), what is new zeroed. `old`, NULL
 * for none, is grown in place where it is the last thing allocated, else lost. */
void *gc_region_grow(struct gc_region *region, void *old, uint64_t old_bytes, uint64_t new_bytes);
/* A copy closed by NUL. */
const char *gc_region_text(struct gc_region *region, const char *text, size_t length);
uint64_t gc_region_bytes(const struct gc_region *region);

#endif
