/* A store of records of one size, cut from chunks of host memory and reused for ever: a record's
 * memory stays readable until the store ends, so a lock-free reader with a stale pointer reads
 * something old, never something unmapped.
 *
 * Taking and putting are O(1) under the store's lock. The kernel is asked for a chunk outside it. A
 * free record's first word links it; the rest keeps what it held. */
#ifndef GC_SLAB_H
#define GC_SLAB_H

#include "core/base/host_mem.h"
#include "core/base/lock.h"
#include "core/base/status.h"

#include <stdint.h>

#define GC_SLAB_CHUNK_BYTES (UINT64_C(64) << 10)
/* For stores of a few records. */
#define GC_SLAB_SMALL_CHUNK_BYTES (UINT64_C(16) << 10)

struct gc_slab_link;

struct gc_slab {
    struct gc_host_mem *host;
    struct gc_lock lock; /* guards all below */
    struct gc_slab_link *free;
    struct gc_slab_link *chunks;
    uint32_t record_bytes;
    uint32_t chunk_bytes;
};

/* record_bytes: a multiple of 8, at least 8. */
void gc_slab_init(struct gc_slab *slab, struct gc_host_mem *host, uint32_t record_bytes);
void gc_slab_init_small(struct gc_slab *slab, struct gc_host_mem *host, uint32_t record_bytes);
void gc_slab_fini(struct gc_slab *slab);
/* A record, never cleared; NULL if host memory ran out. Holds no lock when it asks the kernel. */
void *gc_slab_alloc(struct gc_slab *slab);
/* The same from what the store has already: NULL if that is nothing. May be called under other
 * locks. */
void *gc_slab_try_alloc(struct gc_slab *slab);
void gc_slab_free(struct gc_slab *slab, void *record);

#endif
