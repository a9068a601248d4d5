/* A segment: one allocation of the driver, or a range of addresses (page.h), tiled by blocks.
 * core/backing/segment.h obtains it from the driver and returns it.
 *
 * A segment is in its pool's list from the moment it is added until it is removed, both under the
 * pool's lock. Who removed it settles its account; a pool whose context is dropped removes all at
 * once. */
#ifndef GC_SEGMENT_H
#define GC_SEGMENT_H

#include "core/base/status.h"
#include "core/pool/block.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gc_arena;
struct gc_pool;

enum gc_size_class {
    GC_CLASS_SMALL, /* requests up to GC_SMALL_MAX */
    GC_CLASS_LARGE,
    GC_CLASS_PLANNED,   /* places of a plan (follow.h), and what finds no other */
    GC_CLASS_CUT_COUNT, /* so far: blocks are cut from segments, and merged */
    /* One block each, at the base of the driver's allocation: what other processes can open. */
    GC_CLASS_DEDICATED = GC_CLASS_CUT_COUNT,
    /* One block each that serves once: never handed out again, goes back once it is free. Others
     * may have it open, or there is no cache, or its memory is less than its bytes (debug_map.c).
     */
    GC_CLASS_UNCACHED,
    GC_CLASS_COUNT
};

struct gc_segment {
    struct gc_segment *previous; /* in the pool; a free record's link */
    struct gc_segment *next;
    _Atomic(struct gc_pool *) pool; /* for lock-free readers, as a block's `segment` */
    uint64_t address;
    uint64_t bytes; /* what is charged; of an arena, its addresses */
    struct gc_block *first;
    struct gc_segment *idle_previous; /* among the pool's idle segments, the longest idle first */
    struct gc_segment *idle_next;
    struct gc_arena
        *arena;         /* its pages, if it is a range of addresses; NULL: the driver's memory */
    uint8_t size_class; /* enum gc_size_class: which bins its free blocks are in */
    bool is_idle;       /* wholly free: in the idle list */
    bool is_plain; /* of class once: the driver's own free judges and waits, as without a cache */
    bool is_own_mapping; /* its memory is pages that the debug aids mapped for its one block */
    uint8_t unused[52];
};
_Static_assert(sizeof(struct gc_segment) == 128, "two cache lines");

/* The segment and the pool of a block that keeps them: its pool's lock is held, or nobody else may
 * touch the block. */
static inline struct gc_segment *gc_block_segment(const struct gc_block *block)
{
    return atomic_load_explicit(&block->segment, memory_order_relaxed);
}

static inline struct gc_pool *gc_block_pool(const struct gc_block *block)
{
    return atomic_load_explicit(&gc_block_segment(block)->pool, memory_order_relaxed);
}

static inline bool gc_block_spans_segment(const struct gc_block *block)
{
    return block->previous == NULL && block->next == NULL;
}

/* What is asked of the driver for one request. */
struct gc_segment_spec {
    uint64_t driver_bytes;
    uint64_t bytes; /* driver_bytes in whole granules */
    enum gc_size_class size_class;
    bool is_own_mapping;     /* debug_map.c */
    bool is_plain;           /* as a segment's */
    bool is_tight;           /* of mapped memory, no page more than must be */
    uint64_t at;             /* an address of class planned, there or not at all; 0: anywhere */
    uint64_t expected_bytes; /* mapped memory that the run's plan needs; 0: no plan is kept to */
};

/* What a live block remembers of its request. */
struct gc_alloc_spec {
    uint64_t bytes;           /* rounded to granules */
    uint64_t requested_bytes; /* as the program said */
    uint64_t stream;
    uint16_t api;
    bool is_ordered;
};

#endif
