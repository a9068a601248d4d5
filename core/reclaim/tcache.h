/* Thread caches (Bonwick's magazines): freed blocks that a thread keeps, one magazine per context,
 * so that a free and the next allocation of that size take no lock and call nothing. A thread's
 * magazines and figures are in its struct gc_tcache.
 *
 * A magazine holds blocks in state CACHED: ready ones in bins, matched by exact size, and pending
 * ones in a list by epoch, which become ready once their epoch has completed. Blocks beyond the
 * magazine's capacity are flushed to the pool in batches.
 *
 * Ownership: the owner sets is_busy while it uses the cache, and clears it again if the mode is
 * STOPPED. A thread that needs the caches of others stops them all (an asymmetric barrier): it
 * holds gc_core.tcaches_lock, sets every mode to STOPPED, makes every processor see that
 * (membarrier) and waits until no owner is busy. Meanwhile owners use the pools. If the kernel
 * refuses membarrier, at the start or later, each owner makes a fence of its own
 * (GC_TCACHE_FENCED). An owner takes a pool's lock while busy, so a thread that holds a pool's lock
 * must not stop the caches (deadlock). */
#ifndef GC_TCACHE_H
#define GC_TCACHE_H

#include "core/core.h"
#include "core/device/context.h"
#include "core/pool/block.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define GC_TCACHE_LARGE 128 /* the bin of all blocks above GC_SMALL_MAX */
#define GC_TCACHE_BINS (GC_TCACHE_LARGE + 1)
#define GC_TCACHE_APIS 8
#define GC_TCACHE_CONTEXTS 4

/* A gauge's change since it was last merged, and its highest change meanwhile. */
struct gc_local_gauge {
    int64_t delta;
    int64_t peak;
};

struct gc_local_api {
    uint16_t api;
    uint64_t count;
    uint64_t bytes;
    struct gc_local_gauge live;
};

/* Consecutive allocations and frees of one entry point: a hit updates only these figures. */
struct gc_streak {
    uint64_t alloc_bytes; /* requested by its allocations */
    uint64_t freed_bytes; /* requested by the blocks it freed */
    int64_t peak;         /* highest alloc_bytes - freed_bytes */
    uint64_t count;       /* of allocations */
    uint16_t api;
};

/* One magazine. `allocated` is not counted separately: its change is base_bytes - cached_bytes,
 * since each hit moves one block out of the cache and each free moves one into it. */
struct gc_tcache_context {
    struct gc_context *context;        /* NULL: unused */
    atomic_uint_fast64_t cached_bytes; /* of all blocks here; other threads read it as a hint */
    int64_t base_bytes; /* cached_bytes at the last merge, less the bytes flushed since */
    int64_t min_bytes;  /* lowest cached_bytes since that merge, less the bytes flushed since */
    struct gc_streak streak;
    uint64_t free_count;
    uint16_t number;                /* of the context; GC_TCACHE_UNUSED */
    struct gc_block *pending_first; /* lowest epoch first */
    struct gc_block *pending_last;
    uint64_t pending_bytes;
    uint64_t merged_pending_bytes; /* the part that the device's gauge includes */
    uint32_t pending_count;
    uint32_t victim;        /* the bin to flush next */
    uint64_t large_address; /* the large block freed last */
    uint32_t large_streak;  /* consecutive frees of that block */
    uint64_t unmerged_max;  /* the change of `allocated` that is merged at once */
    uint64_t alloc_count;   /* before the current streak; so are `requested` and `apis` */
    struct gc_local_gauge requested;
    uint32_t api_mask; /* a bit for each of `apis` that has figures */
    struct gc_local_api apis[GC_TCACHE_APIS];
    struct gc_block *bins[GC_TCACHE_BINS];
};

enum gc_tcache_mode { /* whether the owner may enter */
                      GC_TCACHE_OPEN,
                      GC_TCACHE_FENCED,  /* open; without membarrier: the owner makes a fence of its
                                            own */
                      GC_TCACHE_STOPPED, /* the caches are stopped */
};

struct gc_tcache {
    _Alignas(64) atomic_bool is_busy;
    _Atomic uint8_t mode; /* enum gc_tcache_mode */
    bool is_observed;     /* copy of gc_core.is_observed */
    uint32_t until_sample;
    struct gc_tcache_context
        *last; /* the magazine that served last; the others' figures are merged */
    struct gc_block_ids ids;
    struct gc_core *core;
    pthread_t owner;
    bool is_used; /* guarded by gc_core.tcaches_lock, as is `next` */
    _Atomic(struct gc_tcache *) next;
    struct gc_tcache_context contexts[GC_TCACHE_CONTEXTS];
};

/* ---- for gc_core_create and gc_core_destroy ---- */

void gc_tcache_init(struct gc_core *core);
void gc_tcache_fini(struct gc_core *core);

/* ---- caches of all threads; no lock of rank POOL or above may be held ---- */

/* From stop to resume all threads allocate and free through the pools: blocks change state under
 * the pools' locks only, and all figures are in the devices' gauges. */
void gc_tcache_stop_all(struct gc_core *core);
void gc_tcache_resume_all(struct gc_core *core);
/* Flushes the device's blocks from all caches to the pools: ready ones into the bins, the others
 * into the pending lists. `quota`: only its blocks; NULL: all. True if there were any. Cheap while
 * the caches are empty. */
bool gc_tcache_flush_device(struct gc_device *device, const struct gc_quota *quota);
/* Flushes one context that is about to be dropped. Call with the caches stopped. */
void gc_tcache_flush_context(struct gc_context *context);

/* ---- for tcache*.c; the caller is the busy owner, or stopped the caches ---- */

/* The owner's side of the barrier on a kernel without membarrier. */
bool gc_tcache_enter_fenced(struct gc_tcache *tcache);
/* Merges the figures into the device's. */
void gc_tcache_merge_stats(struct gc_tcache_context *tctx);
/* Flushes all blocks and detaches the magazine from its context. True if there were blocks. */
bool gc_tcache_flush(struct gc_tcache_context *tctx);

#endif
