/* A slab: records of one size, split from chunks of host memory. A record's memory is reused but
 * stays mapped until the slab ends, so a lock-free reader with a stale pointer reads old content,
 * never unmapped memory.
 *
 * Alloc and free are O(1) under the slab's lock. A new chunk is mapped outside the lock, and split
 * as its records are needed: a page of it that has no record yet is not touched. The first word of
 * a free record links the free list; the rest keeps its content. */
#ifndef GC_SLAB_H
#define GC_SLAB_H

#include "core/base/host_mem.h"
#include "core/base/lock.h"
#include "core/base/status.h"

#include <stdbool.h>
#include <stdint.h>

/* Of a chunk, or more where two records need more. */
#define GC_SLAB_CHUNK_BYTES (UINT64_C(64) << 10)
/* For slabs of a few records. */
#define GC_SLAB_SMALL_CHUNK_BYTES (UINT64_C(16) << 10)

struct gc_slab_link;

struct gc_slab {
    struct gc_host_mem *host;
    struct gc_lock lock; /* guards the fields below */
    struct gc_slab_link *free;
    struct gc_slab_link *chunks; /* the newest first */
    char *fresh, *fresh_end;     /* records of the newest that were never used */
    uint32_t record_bytes;
    uint32_t chunk_bytes;
};

/* record_bytes: a multiple of 8, at least 8. */
void gc_slab_init(struct gc_slab *slab, struct gc_host_mem *host, uint32_t record_bytes);
void gc_slab_init_small(struct gc_slab *slab, struct gc_host_mem *host, uint32_t record_bytes);
void gc_slab_fini(struct gc_slab *slab);
/* A record, not cleared; NULL if host memory ran out. Holds no lock while it calls the kernel. */
void *gc_slab_alloc(struct gc_slab *slab);
/* Like gc_slab_alloc, from existing chunks alone; NULL if they are full. May be called under other
 * locks. */
void *gc_slab_try_alloc(struct gc_slab *slab);
/* Adds a chunk of free records: for a caller whose gc_slab_try_alloc found none. False: no host
 * memory. */
bool gc_slab_grow(struct gc_slab *slab);
void gc_slab_free(struct gc_slab *slab, void *record);

#endif
