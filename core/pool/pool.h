/* A pool: the segments of one context and their blocks. An allocator with coalescing; all calls
 * need the pool's lock and make no driver call: core/backing and core/reclaim make those.
 *
 * Policy: requests are rounded up to 512 bytes. Requests up to 1 MiB are split from segments of 2
 * MiB (class small); larger ones from segments of 20 MiB or, above 10 MiB, of their own size in
 * whole 2 MiB (class large). Driver memory: best fit within the class; a remainder that is worth a
 * record is split off. Freed blocks coalesce with free neighbours of their segment. A wholly free
 * segment is idle: cached, and released first.
 *
 * Class dedicated: blocks that other processes can open are whole segments, one block of the
 * requested size. They are reused for requests of nearly that size and never split. Class uncached:
 * an exported block is released to the driver when it is freed, and so is a mapping of the debug
 * aids.
 *
 * Class planned: the places of a followed plan (core/follow) are a segment or arena of their own,
 * which serves other requests last.
 *
 * With mapped memory a class has arenas (pages.h) beside its segments: one huge unmapped block at
 * first, split by granules. Requests take the lowest backed place, else the lowest unmapped one;
 * mappings stay where they are, so that a program that repeats itself finds its places backed.
 * Blocks of 2 MiB and more are placed so that they overlap as few pages as their size allows.
 *
 * Alignment: 2 MiB for whole multiples of 2 MiB, 64 KiB from 1 MiB on, else 512 bytes.
 *
 * Invariants (gc_pool_validate): the blocks of a segment tile it; no two free neighbours are of one
 * kind, unless excluded; the bins hold the free blocks, by class and kind, and no others; the
 * pagemap has exactly the starts of the blocks; a segment of driver memory is in the idle list
 * exactly if one free block spans it. */
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
#define GC_LARGE_SHARED_MAX GC_MIB(10) /* larger: a segment of its own */
#define GC_SEGMENT_UNIT GC_MIB(2)
/* The smallest remainder that is split off; a smaller one stays in the block. */
#define GC_SMALL_REMAINDER GC_GRANULE
#define GC_LARGE_REMAINDER GC_KIB(16)
/* A dedicated segment serves a request that leaves at most this fraction of the segment unused. */
#define GC_DEDICATED_WASTE_DIVISOR 16

struct gc_context;

/* References that the pools of one device, or of all, have in common. */
struct gc_pool_shared {
    struct gc_host_mem *host; /* of the device */
    struct gc_pagemap *pagemap;
    struct gc_slab *blocks;
    struct gc_slab *segments;
    atomic_uint_fast64_t *next_block_id; /* of the process */
    struct gc_idle *idle;                /* of the device */
    struct gc_idle *quota_idle;          /* of the tenant's quota; NULL: none */
    struct gc_gauge_cell *pending;       /* of the device */
    struct gc_gauge_cell *ordered;       /* of the device */
    struct gc_gauge_cell *ordered_peaks; /* of the device: GC_ORDERED_PEAK_COUNT */
    atomic_uint *synchronous_count;      /* of the process; see gc_export_set_synchronous */
    const atomic_bool *is_registered;    /* of the process; see gc_export_expect_registration */
    uint64_t page_bytes;                 /* size of a mapped page; 0: no mapped memory */
    /* Every block is a driver allocation of its own; a property of the device. */
    bool is_dedicated;
};

/* The segments of a pool and the lists of their blocks; detached from the pool while a teardown of
 * its context is undecided. */
struct gc_pool_content {
    struct gc_bins bins[GC_CLASS_COUNT][GC_FREE_TREES];
    struct gc_segment *segments;
    struct gc_segment *planned; /* of class planned; NULL: none */
    struct gc_segment *idle_oldest;
    struct gc_segment *idle_newest;
    struct gc_block *pending_first; /* lowest epoch first */
    struct gc_block *pending_last;
    uint64_t pending_bytes; /* those in stream lists included */
};

/* Detached content, with a copy of the stream lists: threads hold pointers to the pool's own. */
struct gc_pool_detached {
    struct gc_pool_content content;
    struct gc_stream_list streams[GC_STREAM_LISTS];
};

struct gc_pool {
    struct gc_pool_shared shared;
    struct gc_context *context;
    uint16_t number; /* of the context, from 1; 0: no thread cache takes its blocks */
    atomic_uint_fast64_t tcache_block_bytes; /* the largest block of a thread cache; 0: none */
    /* Guards all below, and the segments and blocks of this pool. */
    _Alignas(64) struct gc_lock lock;
    struct gc_pool_content content;
    uint64_t unfenced_bytes; /* became pending since the last fence */
    uint64_t unfenced_count;
    struct gc_stream_list *streams; /* GC_STREAM_LISTS; part of the context's gc_fences */
    unsigned stream_count;          /* elements used so far */
    /* The highest epoch of a block that served a request, none of cudaMallocAsync's, in its
     * stream's order before its work had completed. */
    uint64_t ordered_epoch;
    struct gc_block *spares; /* spare block records, linked by `next` */
    uint32_t spare_count;
    uint32_t spares_wanted; /* by a request that lacked them */
    uint32_t spares_kept;   /* for the change of mappings under way */
    /* The context's teardown has finished or is undecided; meanwhile the pool has no segments. */
    bool is_dropped;
    /* Its content while a teardown is undecided (core/alloc/teardown.c); else NULL. */
    struct gc_pool_detached *detached;
    bool is_closed;        /* serves no request: its tenant is being removed */
    uint64_t generation;   /* rises when memory becomes free or the pool grows */
    uint64_t pinned_count; /* live blocks with is_pinned: see gc_export_pin */
    struct gc_pages pages;
    struct gc_block_ids ids;
};

void gc_pool_init(struct gc_pool *pool, struct gc_context *context,
                  const struct gc_pool_shared *shared);
/* Empty content. */
void gc_pool_content_init(struct gc_pool_content *content);

/* Rounds a request, and chooses its class and the preferred segment. False if 64 bits overflow. */
bool gc_pool_specify(uint64_t requested_bytes, uint64_t *bytes,
                     struct gc_segment_spec *segment_spec);

/* Takes the lock, with enough spare records that nothing under it needs host memory.
 * GC_NO_HOST_MEMORY: not taken. */
enum gc_status gc_pool_acquire(struct gc_pool *pool) GC_CHECKED;
/* Whether so many records are spare beyond those that each hold of the lock may need. */
bool gc_pool_has_records_locked(const struct gc_pool *pool, uint32_t count);
/* A request lacked records: from now on gc_pool_acquire provides more, twice as many each time. */
void gc_pool_want_records_locked(struct gc_pool *pool);
/* Takes the lock, with the records for excluding every mapping, as far as host memory has them. */
void gc_pool_acquire_to_exclude(struct gc_pool *pool);
/* For a pool that is dropped. */
void gc_pool_free_spares_locked(struct gc_pool *pool);
/* Takes the lock where no record is needed. */
void gc_pool_acquire_plain(struct gc_pool *pool);
void gc_pool_release(struct gc_pool *pool);

/* Allocates the lowest backed place of the class, else the best fit in driver memory: a live block;
 * NULL if there is none. */
struct gc_block *gc_pool_alloc_locked(struct gc_pool *pool, enum gc_size_class size_class,
                                      const struct gc_alloc_spec *spec);
/* As gc_pool_alloc_locked, in mapped memory alone. The last resort looks at all of it. */
struct gc_block *gc_pool_alloc_backed_locked(struct gc_pool *pool, enum gc_size_class size_class,
                                             bool is_last_resort, const struct gc_alloc_spec *spec);
/* Planned memory that the plan does not use now and that needs no driver call. */
struct gc_block *gc_pool_alloc_planned_locked(struct gc_pool *pool,
                                              const struct gc_alloc_spec *spec);
/* The last resort: any free block of any class that needs no driver call, however it fits. For
 * class dedicated: any dedicated segment. */
struct gc_block *gc_pool_alloc_any_locked(struct gc_pool *pool, enum gc_size_class size_class,
                                          const struct gc_alloc_spec *spec);

/* A free block, and the address in it at which a new block would start. */
struct gc_place {
    struct gc_block *free_block;
    uint64_t address; /* in the free block */
};
/* A search in mapped memory. */
struct gc_search {
    struct gc_place place;
    struct gc_span span; /* of the block there */
    uint32_t looks;      /* at free blocks and mappings */
    bool is_last_resort; /* looks at all, and minds no shortness of room, nor one extent */
};

/* Whether a block of `bytes` shall lie in one extent: others may register it as one piece. So it
 * has no place of a plan, where extents are shared with neighbours. */
static inline bool gc_pool_wants_one_extent(const struct gc_pool *pool, uint64_t bytes)
{
    return bytes >= GC_PAGE_BYTES_MIN && pool->pages.page_bytes != 0 &&
           atomic_load_explicit(pool->shared.is_registered, memory_order_relaxed);
}

/* Whether a freed block may serve again as it lies. */
bool gc_pool_may_serve_again_locked(const struct gc_pool *pool, const struct gc_block *block);
/* Live blocks that may not serve again as they lie enter no thread cache. Call with the caches
 * stopped. O(blocks). */
void gc_pool_bar_from_caches_locked(struct gc_pool *pool);

/* The lowest unmapped place: free_block is an unmapped block, or the backed one below it, into
 * which the block may fit wholly. `is_tight`: blocks below 2 MiB overlap as few pages as possible
 * too. False: no addresses. */
bool gc_pool_find_unmapped_locked(struct gc_pool *pool, enum gc_size_class size_class,
                                  uint64_t bytes, bool is_tight, struct gc_search *search);
/* The place that gc_pool_alloc_locked would choose. May exclude mappings. */
bool gc_pool_find_backed_locked(struct gc_pool *pool, enum gc_size_class size_class, uint64_t bytes,
                                struct gc_place *place);
/* The place at an address of the planned segment. False if it is not wholly free. */
bool gc_pool_find_at_locked(const struct gc_pool *pool, uint64_t address, uint64_t bytes,
                            struct gc_place *place);
/* Allocates the place: a live block; NULL if it needs a driver call or is not wholly in the free
 * block. */
struct gc_block *gc_pool_alloc_at_locked(struct gc_pool *pool, const struct gc_place *place,
                                         const struct gc_alloc_spec *spec);
/* Splits a block from the free block: in no bin, state MAPPING. The caller counts the use of its
 * pages. */
struct gc_block *gc_pool_split_locked(struct gc_pool *pool, const struct gc_place *place,
                                      uint64_t bytes);
void gc_pool_make_live_locked(struct gc_pool *pool, struct gc_block *block,
                              const struct gc_alloc_spec *spec);
/* Pins a live block: see gc_export_pin. */
void gc_pool_pin_locked(struct gc_pool *pool, struct gc_block *block);
/* Sets or clears is_synchronous of a live block: see gc_export_set_synchronous. */
void gc_pool_set_synchronous_locked(struct gc_pool *pool, struct gc_block *block, bool is_it);
/* Clears the flags of a block that is freed: pinned, synchronous, exported, held. */
void gc_pool_clear_flags_locked(struct gc_pool *pool, struct gc_block *block);
/* Splits a block from an unmapped place, up to the end of the unmapped block. */
struct gc_block *gc_pool_split_unmapped_locked(struct gc_pool *pool, const struct gc_place *place);
/* Gives the unmapped end of such a block back: from `bytes` on. */
void gc_pool_return_unmapped_locked(struct gc_pool *pool, struct gc_block *block, uint64_t bytes);
/* Frees the mapped end of a split block, from `bytes` on. Needs one record. */
void gc_pool_trim_locked(struct gc_pool *pool, struct gc_block *block, uint64_t bytes);
/* Coalesces a split block that never became live: each part by its slots. Needs two records for
 * each of its mappings, and one. */
void gc_pool_unsplit_locked(struct gc_pool *pool, struct gc_block *block);
/* Adds an arena as one free block. */
void gc_pool_add_arena_locked(struct gc_pool *pool, struct gc_arena *arena);
/* Frees a block whose work has completed: coalesces it with free neighbours and bins it. */
void gc_pool_free_locked(struct gc_pool *pool, struct gc_block *block);

/* Adds a prepared segment and splits a live block from its start. */
struct gc_block *gc_pool_add_locked(struct gc_pool *pool, struct gc_segment *segment,
                                    const struct gc_alloc_spec *spec);
/* Adds a prepared segment as one free block. */
void gc_pool_add_free_locked(struct gc_pool *pool, struct gc_segment *segment);
/* Removes a segment that consists of one block, and returns that block. */
struct gc_block *gc_pool_remove_locked(struct gc_pool *pool, struct gc_segment *segment);
/* Whether the block is a driver allocation of its own. */
bool gc_pool_is_dedicated_locked(const struct gc_block *block);
/* Makes a dedicated live block uncached: another process is about to open it. */
void gc_pool_export_locked(struct gc_block *block);
/* Undoes gc_pool_remove_locked. */
void gc_pool_restore_locked(struct gc_pool *pool, struct gc_segment *segment,
                            struct gc_block *block, enum gc_block_state state);
void gc_pool_free_record_locked(struct gc_pool *pool, struct gc_block *block);

/* Counts idle memory of the pool, for the device and the quota. */
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

/* Uncounts a stream-ordered block that is no longer live. */
void gc_pool_uncount_ordered(const struct gc_pool_shared *shared, uint64_t bytes);

/* Free memory, and the longest piece of it that needs no driver call. Walks all blocks where there
 * are arenas. */
struct gc_free_sums {
    uint64_t free_bytes;
    uint64_t largest_bytes;
};
struct gc_free_sums gc_pool_measure_locked(const struct gc_pool *pool);

/* Validates, O(blocks log blocks): true if all invariants hold. */
bool gc_pool_validate(struct gc_pool *pool);

/* ---- inside the room, for its other files; the pool's lock is held ---- */

/* Pops a spare record; gc_pool_acquire made sure that there are enough. */
struct gc_block *gc_pool_pop_record_locked(struct gc_pool *pool);
/* Bins a block without coalescing. If it spans its segment, the segment becomes idle. */
void gc_pool_bin_locked(struct gc_pool *pool, struct gc_block *block, enum gc_free_kind kind);
/* Coalesces a block, in no bin, with its free neighbours of the kind, and bins the result. */
void gc_pool_merge_locked(struct gc_pool *pool, struct gc_block *block, enum gc_free_kind kind);
/* Unbins a free block; its segment is idle no longer. */
void gc_pool_unbin_locked(struct gc_pool *pool, struct gc_block *block);
/* Splits a block that is in no bin; the second part is in none either. */
struct gc_block *gc_pool_split_end_locked(struct gc_pool *pool, struct gc_block *block,
                                          uint64_t bytes);
/* As that, if the second part is worth a record; else NULL. */
struct gc_block *gc_pool_split_rest_locked(struct gc_pool *pool, struct gc_block *block,
                                           uint64_t bytes);
/* Splits off and bins the end of a block that is in no bin, if it is worth a record. */
void gc_pool_split_off_locked(struct gc_pool *pool, struct gc_block *block, uint64_t bytes);
/* Adds the next block to the block; both are in no bin. */
void gc_pool_join_locked(struct gc_pool *pool, struct gc_block *block);
/* The lowest place in pending blocks, which are by address. False: none. */
bool gc_pool_find_pending_locked(const struct gc_pool *pool, const struct gc_bins *bins,
                                 uint64_t bytes, struct gc_place *place);

#endif
