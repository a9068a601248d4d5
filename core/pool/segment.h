/* A segment: one driver allocation, or a range of addresses with mapped pages (pages.h), tiled by
 * blocks. core/backing/segment.h allocates it from the driver and releases it.
 *
 * A segment is in its pool's list from gc_pool_add_locked to gc_pool_remove_locked. The thread that
 * removes it uncharges its bytes. A pool whose context is dropped removes all its segments at once.
 */
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
    GC_CLASS_PLANNED, /* places of a plan (core/follow), and requests that fit nowhere else */
    /* Classes below this one: blocks are split from segments, and coalesce. */
    GC_CLASS_CUT_COUNT,
    /* One block per segment, at the base of the driver's allocation: other processes can open it.
     */
    GC_CLASS_DEDICATED = GC_CLASS_CUT_COUNT,
    /* One block per segment, used once: released when it is freed. Another process may have it
     * open, or there is no cache, or only part of its bytes has memory (core/debug/guard.h). */
    GC_CLASS_UNCACHED,
    GC_CLASS_COUNT
};

struct gc_segment {
    struct gc_segment *previous; /* in the pool; also the link of a spare record */
    struct gc_segment *next;
    _Atomic(struct gc_pool *) pool; /* for lock-free readers, as gc_block.segment */
    uint64_t address;
    uint64_t bytes; /* charged bytes; of an arena, its addresses */
    struct gc_block *first;
    struct gc_segment *idle_previous; /* the pool's idle segments, the longest idle first */
    struct gc_segment *idle_next;
    /* Its pages, if the segment is a range of addresses; NULL: driver memory. */
    struct gc_arena *arena;
    uint8_t size_class; /* enum gc_size_class: the bins of its free blocks */
    bool is_idle;       /* one free block: in the idle list */
    /* Class uncached: the driver's own free decides and waits, as without a cache. */
    bool is_plain;
    /* Its memory is pages that the debug aids mapped for its one block. */
    bool is_own_mapping;
    /* Its memory is on the host, uncharged, and serves its one block (core/backing/spill.h). */
    bool is_spilled;
    bool is_host_allocation; /* spilled: by host_alloc, not mapped */
    uint8_t unused[50];
};
_Static_assert(sizeof(struct gc_segment) == 128, "two cache lines");

/* The segment and the pool of a block whose segment cannot change: its pool's lock is held, or no
 * other thread may use the block. */
static inline struct gc_segment *gc_block_segment(const struct gc_block *block)
{
    return atomic_load_explicit(&block->segment, memory_order_relaxed);
}

static inline struct gc_pool *gc_block_pool(const struct gc_block *block)
{
    return atomic_load_explicit(&gc_block_segment(block)->pool, memory_order_relaxed);
}

/* Whether the free blocks of the segment are of kinds (enum gc_free_kind), by their mappings. */
static inline bool gc_segment_has_kinds(const struct gc_segment *segment)
{
    return segment->arena != NULL && segment->size_class != GC_CLASS_PLANNED;
}

/* The bytes of the device that are idle while the segment is. */
static inline uint64_t gc_segment_idle_bytes(const struct gc_segment *segment)
{
    return segment->is_spilled ? 0 : segment->bytes;
}

static inline bool gc_block_spans_segment(const struct gc_block *block)
{
    return block->previous == NULL && block->next == NULL;
}

/* The segment to request from the driver for one allocation. */
struct gc_segment_spec {
    uint64_t driver_bytes;
    uint64_t bytes; /* driver_bytes in whole granules */
    enum gc_size_class size_class;
    bool is_own_mapping; /* core/debug/guard.h */
    bool is_spilled;     /* core/backing/spill.h */
    bool is_plain;       /* as in gc_segment */
    bool is_tight;       /* mapped memory: as few pages as possible */
    /* An address of class planned, and no other; 0: anywhere. */
    uint64_t at;
    /* Mapped memory that the run's plan needs; 0: no plan is followed. */
    uint64_t expected_bytes;
};

/* The properties of a request that its live block keeps. */
struct gc_alloc_spec {
    uint64_t bytes;           /* rounded to granules */
    uint64_t requested_bytes; /* as the program requested */
    uint64_t stream;
    uint16_t api;
    bool is_ordered;
};

#endif
