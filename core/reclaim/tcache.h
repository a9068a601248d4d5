/* Magazines: freed blocks that a thread keeps for itself, one magazine per context, so that a free
 * and the next allocation of that size take no lock and make no call. A thread's magazines and
 * figures are in its struct gc_tcache.
 *
 * A magazine holds blocks in state CACHED: ready ones in bins by size, matched by exact size, and
 * pending ones in a list by stamp, which become ready once their stamp is retired. What exceeds the
 * magazine's bytes goes to the pool in batches.
 *
 * Ownership: the owner raises is_busy for the moment it is inside and gives way if the gate is
 * claimed. Who wants to look into the caches of others stops them all: it holds
 * gc_core.tcaches_lock, claims every gate, makes every processor see it (membarrier) and waits
 * until none is busy. Meanwhile owners take the way through the pool. Where the kernel declines the
 * barrier, at the start or later, owners make a fence of their own each time (GC_TCACHE_FENCED).
 * The owner takes a pool's lock while busy, so nobody stops caches with a pool's lock held. */
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

/* What a gauge gained since it was last merged, and the most it had gained meanwhile. */
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

/* Allocations and frees in a row that were all of one entry point: all that a hit counts. */
struct gc_streak {
    uint64_t alloc_bytes; /* asked for by its allocations */
    uint64_t freed_bytes; /* by what was freed */
    int64_t peak;         /* the most that taken less given came to */
    uint64_t count;       /* of allocations */
    uint16_t api;
};

/* What the owner's allocations and frees come to, `allocated`, needs no count of its own: each
 * takes a block out of cached_bytes or puts it there, so it is base_bytes less these. */
struct gc_tcache_context {
    struct gc_context *context;        /* NULL: unused */
    atomic_uint_fast64_t cached_bytes; /* of all blocks here; others read it as a hint */
    int64_t
        base_bytes;    /* of them when figures were merged last, less what went to the pool since */
    int64_t min_bytes; /* the least they were since, counted alike */
    struct gc_streak streak;
    uint64_t free_count;
    uint16_t number;                /* of the context; GC_TCACHE_UNUSED */
    struct gc_block *pending_first; /* lowest stamp first */
    struct gc_block *pending_last;
    uint64_t pending_bytes;
    uint64_t merged_pending_bytes; /* the part of them that the device's gauge knows of */
    uint32_t pending_count;
    uint32_t victim;        /* the bin that overflows next */
    uint64_t large_address; /* the large block freed last */
    uint32_t large_streak;  /* how often in a row it was that one */
    uint64_t alloc_count;   /* before the run, as are the next two */
    struct gc_local_gauge requested;
    uint32_t api_mask; /* a bit for each of `apis` that counts anything */
    struct gc_local_api apis[GC_TCACHE_APIS];
    struct gc_block *bins[GC_TCACHE_BINS];
};

enum gc_tcache_gate {
    GC_TCACHE_OPEN,
    GC_TCACHE_FENCED,  /* open, but there is no membarrier: the owner makes its own */
    GC_TCACHE_STOPPED, /* the caches are stopped */
};

struct gc_tcache {
    _Alignas(64) atomic_bool is_busy;
    _Atomic uint8_t gate; /* enum gc_tcache_gate */
    bool is_observed;     /* as of the core */
    uint32_t until_sample;
    struct gc_tcache_context *last; /* of its magazines, the one that served last */
    struct gc_block_ids ids;
    struct gc_core *core;
    pthread_t owner;
    bool is_used; /* guarded by gc_core.tcaches_lock, as is `next` */
    _Atomic(struct gc_tcache *) next;
    struct gc_tcache_context contexts[GC_TCACHE_CONTEXTS];
};

/* ---- life of the whole, for gc_core_create and gc_core_destroy ---- */

void gc_tcache_init(struct gc_core *core);
void gc_tcache_fini(struct gc_core *core);

/* ---- others' magazines; no lock of rank POOL or above may be held ---- */

/* From stop to resume no thread allocates or frees but through the pools: blocks change their state
 * under the pools' locks only, and all figures are in the devices' gauges. */
void gc_tcache_stop_all(struct gc_core *core);
void gc_tcache_resume_all(struct gc_core *core);
/* Everything in the magazines goes to the pools: what is ready to the bins, the rest to their
 * pending lists. `share`: what belongs to it only; NULL: all. True if anything went. Cheap where
 * the magazines are empty. */
bool gc_tcache_flush_device(struct gc_device *device, const struct gc_quota *quota);
/* The same for one context, with the caches stopped: it is about to be dropped. */
void gc_tcache_flush_context(struct gc_context *context);

/* ---- for magazine*.c and cache.c; the owner is inside, or the caches are stopped ---- */

/* The figures go to the device. */
void gc_tcache_merge_stats(struct gc_tcache_context *tctx);
/* Hands everything over and forgets the context. True if there was anything. */
bool gc_tcache_flush(struct gc_tcache_context *tctx);

#endif
