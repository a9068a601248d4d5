/* A block: a piece of a segment, live or free. 64 bytes on the host; the memory it speaks of is
 * never touched. The blocks of a segment tile it and are linked in order of address.
 *
 * All fields belong to the lock of the pool that owns the segment, but for two. `segment` is what
 * lock-free readers load to find that lock; it is NULL while the record is in no segment. `state`
 * leaves LIVE by compare-and-swap only, by whoever frees the block, with or without the lock; while
 * it is CACHED the record's union, `api` and `slack` belong to the thread whose magazine has it. */
#ifndef GC_BLOCK_H
#define GC_BLOCK_H

#include "core/base/bits.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct gc_segment;

enum gc_block_state {
    GC_BLOCK_FREE,    /* idle; in the bins */
    GC_BLOCK_LIVE,    /* the program has it */
    GC_BLOCK_FREEING, /* one thread is waiting until it is idle */
    GC_BLOCK_PENDING, /* freed, waits in the pool's list for a fence or a synchronisation */
    GC_BLOCK_CACHED,  /* freed, in a thread's magazine */
    GC_BLOCK_MAPPING, /* one thread is mapping its pages */
};

struct gc_block {
    struct gc_block *previous; /* in the segment; a free record's link */
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
            struct gc_block *left; /* smaller or lower */
            struct gc_block *right;
        } bin;
        struct {
            struct gc_block *next;
            uint64_t epoch; /* of work.h */
        } pending;          /* and cached, while it is not idle */
        struct {
            struct gc_block *next;
            uint64_t size; /* that it was last asked for, rounded */
        } ready;           /* cached and idle */
    };
    uint16_t api;
    _Atomic uint8_t state; /* enum gc_block_state */
    uint8_t slack;         /* while cached and not idle: granules beyond that size */
    /* These three while live. */
    bool is_shared : 1; /* other streams use it too */
    /* These two while freeing, too; with either it is never in a magazine. */
    bool is_pinned : 1;      /* others reach its memory by ways that no pause sees */
    bool is_synchronous : 1; /* copies and fills of it are done when they return */
    bool is_ordered;         /* while live: counted as stream-ordered; never in a magazine */
    /* While live: the number of its context; 0: a freed block is not for a magazine. Lock-free
     * readers take it as a hint. */
    _Atomic uint16_t tcache_number;
};
_Static_assert(sizeof(struct gc_block) == 64, "a block record is one cache line");

/* Under the pool's lock. Release: who finds it live without the lock sees what it is. */
static inline void gc_block_set_state(struct gc_block *block, enum gc_block_state state)
{
    atomic_store_explicit(&block->state, (uint8_t)state, memory_order_release);
}

#define GC_BLOCK_IDS_BATCH 1024

/* Ids at hand: a range taken from the process's, who owns it takes them without atomics. */
struct gc_block_ids {
    uint64_t next;
    uint64_t end;
};

/* There is one at hand after it. */
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
