/* A block: a range of a segment, live or free. The 64-byte record is in host memory; the memory it
 * describes is never accessed. The blocks of a segment tile it and are linked in order of address.
 *
 * The lock of the pool that owns the segment guards all fields but two. Lock-free readers load
 * `segment` to find that lock; it is NULL while the record is in no segment. `state` leaves LIVE by
 * compare-and-swap only: the thread that frees the block does it, with or without the lock. While
 * `state` is CACHED, the thread whose cache holds the block owns the union, `api` and `slack`. */
#ifndef GC_BLOCK_H
#define GC_BLOCK_H

#include "core/base/bits.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct gc_segment;

enum gc_block_state {
    GC_BLOCK_FREE,    /* idle, in the bins */
    GC_BLOCK_LIVE,    /* allocated to the program */
    GC_BLOCK_FREEING, /* one thread waits until the block's work has completed */
    GC_BLOCK_PENDING, /* freed; in the pool's list until a fence or a synchronisation completes */
    GC_BLOCK_CACHED,  /* freed; in a thread's cache */
    GC_BLOCK_MAPPING, /* one thread is mapping its pages */
};

/* Kinds of free blocks. Two neighbours are of different kinds, or both excluded. */
enum gc_free_kind {
    GC_FREE_PLAIN,    /* driver memory, or planned addresses, whose mappings do not matter */
    GC_FREE_BACKED,   /* mapped; no driver call is needed, unless an extent is in use elsewhere */
    GC_FREE_UNMAPPED, /* whole slots without a mapping */
    GC_FREE_TREES,    /* kinds below this one are in bins */
    /* The slots of one mapping that cannot serve: its extent is used through another one. */
    GC_FREE_EXCLUDED = GC_FREE_TREES
};

struct gc_block {
    struct gc_block *previous; /* in the segment; in the slab, links free records */
    struct gc_block *next;
    _Atomic(struct gc_segment *) segment;
    uint64_t address;
    uint64_t bytes; /* capacity, a multiple of the granule */
    union {
        struct {
            uint64_t requested_bytes;
            uint64_t id;
        } live; /* and freeing */
        struct {
            struct gc_block *left;
            struct gc_block *right;
        } bin; /* free, or pending in a stream's order: see bins.h */
        struct {
            struct gc_block *next;
            uint64_t epoch; /* see core/device/submit.h */
        } pending;          /* also CACHED, while its work has not completed */
        struct {
            struct gc_block *next;
            uint64_t size; /* of its last request, rounded up */
        } ready;           /* CACHED and idle */
    };
    union {
        struct {
            uint16_t api;
            /* While CACHED and not idle: granules beyond the rounded request. */
            uint8_t slack;
            /* While LIVE: counted as stream-ordered. Never in a thread cache. */
            bool is_ordered;
        };
        uint32_t longest; /* as `bin`: the longest block of its subtree, in granules */
    };
    _Atomic uint8_t state; /* enum gc_block_state */
    uint8_t free_kind : 2; /* while FREE: enum gc_free_kind */
    /* While LIVE. */
    bool is_shared : 1; /* other streams use the block too */
    /* The next two are valid while LIVE or FREEING. A block with is_pinned or is_synchronous is
     * never in a thread cache. */
    /* Other processes or devices access its memory in ways that a pause cannot stop. */
    bool is_pinned : 1;
    /* Copies and fills of the block are complete when their calls return. */
    bool is_synchronous : 1;
    /* The next two are valid while LIVE or FREEING. Other processes may open the block. */
    bool is_exported : 1;
    /* Part of its memory was moved to the host. Never in a thread cache. */
    bool is_spilled : 1;
    /* FREEING: another process has the freed block open (core/reclaim/defer.c). */
    bool is_held : 1;
    /* While LIVE: the number of its context, with GC_BLOCK_LARGE for a block above GC_SMALL_MAX; 0:
     * no thread cache may take the block once it is freed. Lock-free readers use it as a hint. */
    _Atomic uint16_t tcache_number;
};
#define GC_BLOCK_LARGE (1U << 15)
_Static_assert(sizeof(struct gc_block) == 64, "a block record is one cache line");

/* Under the pool's lock. Release: a thread that finds the block LIVE without the lock sees the
 * record's other fields. */
static inline void gc_block_set_state(struct gc_block *block, enum gc_block_state state)
{
    atomic_store_explicit(&block->state, (uint8_t)state, memory_order_release);
}

#define GC_BLOCK_IDS_BATCH 1024

/* A batch of ids reserved from the process's counter. Its owner hands them out without atomics. */
struct gc_block_ids {
    uint64_t next;
    uint64_t end;
};

/* Afterwards the batch has at least one id. */
static inline void gc_block_refill_ids(struct gc_block_ids *ids, atomic_uint_fast64_t *process_ids)
{
    if (GC_LIKELY(ids->next != ids->end))
        return;
    ids->next = atomic_fetch_add_explicit(process_ids, GC_BLOCK_IDS_BATCH, memory_order_relaxed);
    ids->end = ids->next + GC_BLOCK_IDS_BATCH;
}

static inline uint64_t gc_block_next_id(struct gc_block_ids *ids, atomic_uint_fast64_t *process_ids)
{
    gc_block_refill_ids(ids, process_ids);
    return ids->next++;
}

#endif
