/* A pool: the segments of one context and the blocks in them. Everything here happens under the
 * pool's lock and without the driver: what needs the driver is in segment.c, reuse.c and
 * shortage.c.
 *
 * Policy: requests are rounded to 512 bytes. Up to 1 MiB they are carved from segments of 2 MiB
 * (class small), larger ones from segments of 20 MiB or, above 10 MiB, of their own size in whole 2
 * MiB (class large). Best fit within the class; what remains is split off if it is worth a record.
 * Freed blocks merge with free neighbours of their segment. A wholly free segment is idle: kept,
 * and first to be given back.
 *
 * Blocks that other processes may be given are whole segments (class whole): one block of the size
 * asked for, used again for requests of nearly that size, never cut. One that was given away (class
 * once) goes back to the driver when it is free, and so does what the debug aids map for one block.
 *
 * Where a plan of the run is followed (follow.h) its places are a segment or arena of their own
 * (class planned), from which others are served last.
 *
 * With mapped memory a class has arenas (page.h) beside its segments: one huge free block at first,
 * cut to the granule. Where a block goes depends on the free blocks alone, never on what is mapped,
 * so that a program that repeats itself finds its holes backed. Blocks of 2 MiB and more are placed
 * so that they touch no more pages than their size needs.
 *
 * Invariants (gc_pool_validate): the blocks of a segment tile it; no two neighbours are free; free
 * blocks and no others are in the bins of their segment's class; the pagemap knows exactly the
 * starts of the blocks; a segment is in the idle list exactly if its first block is free and spans
 * it, and it may be given back. */
#ifndef GC_POOL_H
#define GC_POOL_H

#include "core/base/bits.h"
#include "core/base/lock.h"
#include "core/base/slab.h"
#include "core/base/status.h"
#include "core/observe/idle.h"
#include "core/observe/stats.h"
#include "core/pool/bins.h"
#include "core/pool/pagemap.h"
#include "core/pool/pages.h"
#include "core/pool/pending.h"
#include "core/pool/segment.h"

#define GC_SMALL_MAX GC_MIB(1)
#define GC_SMALL_SEGMENT GC_MIB(2)
#define GC_LARGE_SEGMENT GC_MIB(20)
#define GC_LARGE_SHARED_MAX GC_MIB(10) /* above: a segment of its own */
#define GC_SEGMENT_UNIT GC_MIB(2)
/* The smallest remainder that becomes a block; below, it stays with the block it would be cut from.
 */
#define GC_SMALL_REMAINDER GC_GRANULE
#define GC_LARGE_REMAINDER GC_KIB(16)
/* A whole segment serves a request that leaves less than this share of it unused. */
#define GC_DEDICATED_WASTE_SHARE 16

struct gc_context;

/* What the pools of one device, or all, have in common. */
struct gc_pool_shared {
    struct gc_host_mem *host; /* of the device */
    struct gc_pagemap *pagemap;
    struct gc_slab *blocks;
    struct gc_slab *segments;
    atomic_uint_fast64_t *next_block_id; /* of the process */
    struct gc_idle *idle;                /* of the device */
    struct gc_idle *quota_idle;          /* of the tenant's share of it; NULL: none */
    struct gc_gauge_cell *pending;       /* of the device, as the next */
    struct gc_gauge_cell *ordered;
    struct gc_gauge_cell *ordered_peaks; /* GC_ORDERED_PEAK_COUNT */
    atomic_uint *synchronous_count;      /* of the process: see gc_core_set_synchronous */
    uint64_t page_bytes;                 /* of mapped memory; 0: there is none */
    bool is_dedicated; /* of the device: every block is a driver allocation of its own */
};

/* The segments of a pool and the lists of their blocks: detached from it while its context may be
 * about to end. */
struct gc_pool_content {
    struct gc_bins bins[GC_CLASS_COUNT];
    struct gc_segment *segments;
    struct gc_segment *planned; /* the one of class planned, if there is one */
    struct gc_segment *idle_oldest;
    struct gc_segment *idle_newest;
    struct gc_block *pending_first; /* lowest stamp first */
    struct gc_block *pending_last;
    uint64_t pending_bytes; /* of the streams' lists too */
};

/* Detached content. The lists of the streams are copied: threads hold pointers to the pool's. */
struct gc_pool_hidden {
    struct gc_pool_content content;
    struct gc_stream_list streams[GC_STREAM_LISTS];
};

struct gc_pool {
    struct gc_lock lock; /* guards all below and the segments and blocks of this pool */
    struct gc_pool_shared shared;
    struct gc_context *context;
    struct gc_pool_content content;
    uint64_t unfenced_bytes; /* became pending since the last fence was recorded */
    uint64_t unfenced_count;
    struct gc_stream_list *streams; /* GC_STREAM_LISTS, of the fences of its context */
    unsigned stream_count;          /* of them that were ever used: the first ones */
    struct gc_block *spares;        /* block records at hand, linked by `next` */
    uint32_t spare_count;
    bool is_dropped; /* the context is gone, or about to be, and with it every segment */
    struct gc_pool_hidden
        *detached;         /* what it had, while that is about to be (core/alloc/teardown.c) */
    bool is_closed;        /* hands nothing out: its tenant is about to be removed */
    uint64_t generation;   /* rises whenever memory becomes free or the pool grows */
    uint64_t pinned_count; /* live blocks that others reach: see gc_core_pin */
    struct gc_pages pages;
    struct gc_block_ids ids;
    uint16_t number; /* of the context, from 1; 0: one too many for threads to keep its blocks */
    atomic_uint_fast64_t tcache_block_bytes; /* the largest that a thread may keep; 0: none */
};

void gc_pool_init(struct gc_pool *pool, struct gc_context *context,
                  const struct gc_pool_shared *shared);
void gc_pool_fini(struct gc_pool *pool);
/* No segments, empty lists. */
void gc_pool_content_init(struct gc_pool_content *content);

/* Rounds a request and chooses its class and the segment it would like. False if 64 bits overflow.
 */
bool gc_pool_specify(uint64_t requested_bytes, uint64_t *bytes,
                     struct gc_segment_spec *segment_spec);

/* Takes the lock, with enough spare records that nothing done under it needs host memory.
 * GC_NO_HOST_MEMORY: not taken. */
enum gc_status gc_pool_acquire(struct gc_pool *pool) GC_CHECKED;
/* Takes the lock where records are only put back. */
void gc_pool_acquire_plain(struct gc_pool *pool);
void gc_pool_release(struct gc_pool *pool);

/* A live block for the claim from the free blocks of `class`, or NULL: the place that best fit
 * names, if it needs no driver call. */
struct gc_block *gc_pool_alloc_locked(struct gc_pool *pool, enum gc_size_class size_class,
                                      const struct gc_alloc_spec *spec);
/* The same from any hole of any class that needs no driver call, however it fits: the last resort.
 * For class whole, from any whole segment. */
struct gc_block *gc_pool_alloc_any_locked(struct gc_pool *pool, enum gc_size_class size_class,
                                          const struct gc_alloc_spec *spec);

/* Where a block would go. */
struct gc_place {
    struct gc_block *free_block;
    uint64_t address; /* in the hole */
};
/* Best fit. `is_tight`: smaller blocks too touch no more pages than they must. False: no hole. */
bool gc_pool_find_place_locked(const struct gc_pool *pool, enum gc_size_class size_class,
                               uint64_t bytes, bool is_tight, struct gc_place *place);
/* The place at an address of the planned segment. False if it is not all free. */
bool gc_pool_find_at_locked(const struct gc_pool *pool, uint64_t address, uint64_t bytes,
                            struct gc_place *place);
/* A live block at the place, or NULL where that needs the driver. */
struct gc_block *gc_pool_alloc_at_locked(struct gc_pool *pool, const struct gc_place *place,
                                         const struct gc_alloc_spec *spec);
/* Takes a block out of the hole: in no bin, state MAPPING. Its pages are the caller's business. */
struct gc_block *gc_pool_split_locked(struct gc_pool *pool, const struct gc_place *place,
                                      uint64_t bytes);
void gc_pool_make_live_locked(struct gc_pool *pool, struct gc_block *block,
                              const struct gc_alloc_spec *spec);
/* A live block: see gc_core_pin. */
void gc_pool_pin_locked(struct gc_pool *pool, struct gc_block *block);
/* The same: see gc_core_set_synchronous. */
void gc_pool_set_synchronous_locked(struct gc_pool *pool, struct gc_block *block, bool is_it);
/* The block is freed, whatever comes of its memory: neither holds any more. */
void gc_pool_clear_flags_locked(struct gc_pool *pool, struct gc_block *block);
/* Puts back what was carved and never became live. */
void gc_pool_unsplit_locked(struct gc_pool *pool, struct gc_block *block);
/* Adds an arena, one free block. */
void gc_pool_add_arena_locked(struct gc_pool *pool, struct gc_arena *arena);
/* An idle block becomes free: merged and put into the bins. */
void gc_pool_free_locked(struct gc_pool *pool, struct gc_block *block);

/* Adds a prepared segment and carves a live block from its start. */
struct gc_block *gc_pool_add_locked(struct gc_pool *pool, struct gc_segment *segment,
                                    const struct gc_alloc_spec *spec);
/* The same without a block: one free one. */
void gc_pool_add_free_locked(struct gc_pool *pool, struct gc_segment *segment);
/* Takes out a segment that consists of one block, which is returned, no longer anywhere. */
struct gc_block *gc_pool_remove_locked(struct gc_pool *pool, struct gc_segment *segment);
/* Whether the block is a driver allocation of its own. */
bool gc_pool_is_dedicated_locked(const struct gc_block *block);
/* Such a live block is given to other processes. */
void gc_pool_export_locked(struct gc_block *block);
/* Puts back what gc_pool_remove_locked took. */
void gc_pool_restore_locked(struct gc_pool *pool, struct gc_segment *segment,
                            struct gc_block *block, enum gc_block_state state);
void gc_pool_free_record_locked(struct gc_pool *pool, struct gc_block *block);

/* Memory of the pool has become idle, or is no more. */
static inline void gc_pool_add_idle(const struct gc_pool_shared *shared, uint64_t bytes)
{
    gc_idle_add(shared->idle, bytes);
    if (shared->quota_idle != NULL)
        gc_idle_add(shared->quota_idle, bytes);
}

static inline void gc_pool_sub_idle(const struct gc_pool_shared *shared, uint64_t bytes)
{
    gc_idle_sub(shared->idle, bytes);
    if (shared->quota_idle != NULL)
        gc_idle_sub(shared->quota_idle, bytes);
}

/* A stream-ordered block is live no more. */
void gc_pool_uncount_ordered(const struct gc_pool_shared *shared, uint64_t bytes);

/* Pending blocks, by stamp. */
struct gc_pending {
    struct gc_block *first;
    struct gc_block *last;
};
/* `stamp` is the count of work.h that the block's free was stamped with; stamps need not come in
 * order. */
void gc_pool_push_pending_locked(struct gc_pool *pool, struct gc_block *block, uint64_t epoch);
/* A block has come into a list of pending ones, or left it. */
void gc_pool_count_pending_locked(struct gc_pool *pool, const struct gc_block *block);
void gc_pool_uncount_pending_locked(struct gc_pool *pool, const struct gc_block *block);
/* Takes out all with stamps up to `retired`, of the streams' lists too; they stay in state pending.
 */
struct gc_pending gc_pool_remove_pending_locked(struct gc_pool *pool, uint64_t completed);
/* They are idle: gives them all. True if a segment is to go back for it. */
bool gc_pool_free_pending_locked(struct gc_pool *pool, struct gc_pending pending);

/* Free memory that is there, and the longest piece of it that needs no driver call. Walks all
 * blocks where there are arenas. */
struct gc_free_sums {
    uint64_t free_bytes;
    uint64_t largest_bytes;
};
struct gc_free_sums gc_pool_measure_locked(const struct gc_pool *pool);

/* Walks everything, O(blocks log blocks): true if all invariants hold. */
bool gc_pool_validate(struct gc_pool *pool);

/* ---- inside the room: pool.c for place.c; the pool's lock is held ---- */

/* A block record, of which gc_pool_acquire saw to it that there are enough. */
struct gc_block *gc_pool_pop_record_locked(struct gc_pool *pool);
/* The block becomes free as it is, not merged: into the bins, and its segment idle if it is all of
 * it. */
void gc_pool_bin_locked(struct gc_pool *pool, struct gc_block *block);
/* A free block leaves the bins, and its segment the idle ones. */
void gc_pool_unbin_locked(struct gc_pool *pool, struct gc_block *block);
/* Cuts the end off a block that is in no bin and makes it a free block, if it is worth one. */
void gc_pool_split_off_locked(struct gc_pool *pool, struct gc_block *block, uint64_t bytes);
/* The segment joins the idle ones, as the newest; it was none of them. */
void gc_pool_set_idle_locked(struct gc_pool *pool, struct gc_segment *segment);

#endif
