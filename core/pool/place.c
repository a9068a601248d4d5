/* Placement. In mapped memory: the lowest backed address where the block fits, else the lowest
 * unmapped one; a program that repeats itself then finds its places backed. In driver memory: best
 * fit. As the last resort any free block that needs no driver call. The rest of the file frees
 * blocks, and adds, removes, restores and exports segments.
 *
 * gc_block.segment and gc_segment.pool are stored with release: the partners are the acquires in
 * core/device/lookup.c, lock_pool_of, which follows them without a lock. */
#include "core/pool/pool.h"

#include "core/base/assert.h"

#include <stddef.h>

/* Free blocks of driver memory that are tried where alignment may prevent a fit. */
#define FIT_TRIES 256
/* Places in the pending blocks of a group that are tried likewise. */
#define PENDING_TRIES 64
/* Mappings that a request looks at before it prefers unmapped addresses. */
#define LOOKS_MAX 512
/* Unmapped blocks, from the lowest, that are compared with the backed one below. */
#define UNMAPPED_TRIES 64

/* Real drivers align memory of 2 MiB and more so; GPUDirect maps ranges of 64 KiB. */
static uint64_t alignment_of(uint64_t bytes)
{
    if (bytes < GC_MIB(1))
        return GC_GRANULE;
    return bytes % GC_MIB(2) == 0 ? GC_MIB(2) : GC_KIB(64);
}

/* The lowest address from `address` on where a block may start. */
static uint64_t fit(const struct gc_pool *pool, const struct gc_segment *segment, uint64_t address,
                    uint64_t bytes, bool is_tight)
{
    const uint64_t page_mask = pool->pages.page_bytes - 1;
    const uint64_t alignment_mask = alignment_of(bytes) - 1;
    if (segment->size_class >= GC_CLASS_CUT_COUNT)
        return address; /* aligned as the driver does */
    address = (address + alignment_mask) & ~alignment_mask;
    if (segment->arena != NULL && (bytes >= GC_PAGE_BYTES_MIN || is_tight)) {
        const uint64_t needed = (bytes + page_mask) & ~page_mask;
        if ((address & page_mask) + bytes > needed)
            address = (address + page_mask) & ~page_mask;
    }
    return address;
}

static bool is_within(const struct gc_block *free_block, uint64_t address, uint64_t bytes)
{
    const uint64_t offset = address - free_block->address;
    return bytes <= free_block->bytes && offset <= free_block->bytes - bytes;
}

/* Where a block of `bytes` would start in the free block, if that is long enough. */
static inline struct gc_place place_in(const struct gc_pool *pool, struct gc_block *free_block,
                                       uint64_t bytes, bool is_tight)
{
    return (struct gc_place){
        free_block, fit(pool, gc_block_segment(free_block), free_block->address, bytes, is_tight)};
}

/* Sets *place to that. False: it does not fit. */
static bool fit_block(const struct gc_pool *pool, struct gc_block *free_block, uint64_t bytes,
                      bool is_tight, struct gc_place *place)
{
    *place = place_in(pool, free_block, bytes, is_tight);
    return is_within(free_block, place->address, bytes);
}

/* Best fit in driver memory. */
static bool find_plain(const struct gc_pool *pool, enum gc_size_class size_class, uint64_t bytes,
                       struct gc_place *place)
{
    const struct gc_bins *bins = &pool->content.bins[size_class][GC_FREE_PLAIN];
    struct gc_block *free_block = gc_bins_best_fit(bins, bytes);
    for (unsigned i = 0; free_block != NULL && i < FIT_TRIES; i++) {
        if (fit_block(pool, free_block, bytes, false, place))
            return true;
        free_block = gc_bins_next(bins, free_block);
    }
    free_block = gc_bins_best_fit(bins, bytes + GC_MIB(2));
    return free_block != NULL && fit_block(pool, free_block, bytes, false, place);
}

/* As fit_block, in pending memory: all of its slots have mappings that serve. */
static bool fit_pending(const struct gc_pool *pool, struct gc_block *block, uint64_t bytes,
                        int *tries, struct gc_place *place)
{
    const struct gc_segment *segment = gc_block_segment(block);
    const bool wants_one = segment->arena != NULL && gc_pool_wants_one_extent(pool, bytes);
    *place = place_in(pool, block, bytes, false);
    for (; is_within(block, place->address, bytes) && *tries > 0; --*tries) {
        uint64_t next = 0;
        if (wants_one) {
            const struct gc_span span = gc_pages_span_of_place_locked(pool, place, bytes);
            next = gc_pages_several_locked(pool, &span);
        }
        if (next == 0)
            return true;
        place->address = fit(pool, segment, next, bytes, false);
    }
    return false;
}

bool gc_pool_find_pending_locked(const struct gc_pool *pool, const struct gc_bins *bins,
                                 uint64_t bytes, struct gc_place *place)
{
    struct gc_block *block = gc_bins_first_fit(bins, 0, bytes);
    int tries = PENDING_TRIES;
    for (; block != NULL && tries > 0; tries--) {
        if (fit_pending(pool, block, bytes, &tries, place))
            return true;
        block = gc_bins_next_fit(bins, block, bytes);
    }
    tries = PENDING_TRIES;
    block = gc_bins_first_fit(bins, 0, bytes + GC_MIB(2));
    return block != NULL && fit_pending(pool, block, bytes, &tries, place);
}

/* Moves the place up to where the block has no obstacle. A mapping that serves nobody is excluded:
 * the place goes on in the free block behind it. False: no place. */
static bool pass_obstacles(struct gc_pool *pool, uint64_t bytes, bool is_tight, uint64_t limit,
                           struct gc_search *search)
{
    struct gc_place *place = &search->place;
    const struct gc_segment *segment = gc_block_segment(place->free_block);
    const uint64_t end = place->free_block->address + place->free_block->bytes;
    const bool is_bounded = !search->is_last_resort && segment->size_class != GC_CLASS_SMALL;
    const uint64_t may_stick = is_bounded ? gc_pages_may_stick(&pool->pages) : UINT64_MAX;
    const bool wants_one = !search->is_last_resort && gc_pool_wants_one_extent(pool, bytes);
    while (place->address < end && place->address <= limit && limit - place->address >= bytes &&
           (search->looks < LOOKS_MAX || search->is_last_resort)) {
        struct gc_mapping *useless;
        search->span = gc_pages_span_of_place_locked(pool, place, bytes);
        uint64_t next =
            gc_pages_obstacle_locked(pool, &search->span, may_stick, &search->looks, &useless);
        if (next == 0 && wants_one)
            next = gc_pages_several_locked(pool, &search->span);
        if (next == 0)
            return true;
        if (useless != NULL && gc_pages_try_exclude_in_locked(pool, useless, place->free_block)) {
            if (next >= end)
                return false;
            search->looks++;
            place->free_block = useless->excluded->next;
        }
        place->address = fit(pool, segment, next, bytes, is_tight);
    }
    return false;
}

/* The lowest backed place; the last resort looks at all. */
static bool find_backed(struct gc_pool *pool, enum gc_size_class size_class, uint64_t bytes,
                        struct gc_search *search)
{
    const struct gc_bins *bins = &pool->content.bins[size_class][GC_FREE_BACKED];
    struct gc_block *free_block = gc_bins_first_fit(bins, 0, bytes);
    search->looks = 0;
    while (free_block != NULL && (search->looks < LOOKS_MAX || search->is_last_resort)) {
        const uint64_t end = free_block->address + free_block->bytes;
        search->looks++;
        search->place = place_in(pool, free_block, bytes, false);
        if (pass_obstacles(pool, bytes, false, end, search))
            return true;
        free_block = gc_bins_first_fit(bins, end, bytes);
    }
    return false;
}

/* The place at an unmapped block that starts as low as possible in the backed block below it. */
static bool fit_unmapped(struct gc_pool *pool, struct gc_block *unmapped, uint64_t bytes,
                         bool is_tight, struct gc_search *search)
{
    struct gc_block *below = unmapped->previous;
    if (!gc_pool_wants_one_extent(pool, bytes) && below != NULL && below->state == GC_BLOCK_FREE &&
        below->free_kind == GC_FREE_BACKED) {
        search->place = place_in(pool, below, bytes, is_tight);
        if (pass_obstacles(pool, bytes, is_tight, unmapped->address + unmapped->bytes, search))
            return true;
    }
    return fit_block(pool, unmapped, bytes, is_tight, &search->place);
}

bool gc_pool_find_unmapped_locked(struct gc_pool *pool, enum gc_size_class size_class,
                                  uint64_t bytes, bool is_tight, struct gc_search *search)
{
    const struct gc_bins *bins = &pool->content.bins[size_class][GC_FREE_UNMAPPED];
    struct gc_block *unmapped = gc_bins_first_fit(bins, 0, GC_GRANULE);
    for (unsigned i = 0; unmapped != NULL && i < UNMAPPED_TRIES; i++) {
        if (fit_unmapped(pool, unmapped, bytes, is_tight, search))
            return true;
        unmapped = gc_bins_next(bins, unmapped);
    }
    unmapped = gc_bins_first_fit(bins, 0, bytes);
    return unmapped != NULL && fit_unmapped(pool, unmapped, bytes, is_tight, search);
}

bool gc_pool_find_backed_locked(struct gc_pool *pool, enum gc_size_class size_class, uint64_t bytes,
                                struct gc_place *place)
{
    struct gc_search search = {.is_last_resort = false};
    const bool is_found = find_backed(pool, size_class, bytes, &search) ||
                          find_plain(pool, size_class, bytes, &search.place);
    *place = search.place;
    return is_found;
}

bool gc_pool_find_at_locked(const struct gc_pool *pool, uint64_t address, uint64_t bytes,
                            struct gc_place *place)
{
    struct gc_block *block =
        gc_bins_at(&pool->content.bins[GC_CLASS_PLANNED][GC_FREE_PLAIN], address);
    if (block == NULL || gc_block_segment(block) != pool->content.planned)
        return false;
    *place = (struct gc_place){block, address};
    return is_within(block, address, bytes);
}

/* Allocates a place without obstacles. `span`: NULL in driver memory. */
static struct gc_block *take_place(struct gc_pool *pool, const struct gc_place *place,
                                   const struct gc_span *span, const struct gc_alloc_spec *spec)
{
    struct gc_block *block = gc_pool_split_locked(pool, place, spec->bytes);
    if (span != NULL)
        gc_pages_use_all_locked(pool, span);
    GC_ASSERT(gc_block_segment(block)->size_class != GC_CLASS_UNCACHED);
    gc_pool_make_live_locked(pool, block, spec);
    return block;
}

struct gc_block *gc_pool_alloc_at_locked(struct gc_pool *pool, const struct gc_place *place,
                                         const struct gc_alloc_spec *spec)
{
    if (!is_within(place->free_block, place->address, spec->bytes))
        return NULL;
    if (gc_block_segment(place->free_block)->arena == NULL)
        return take_place(pool, place, NULL, spec);
    const struct gc_span span = gc_pages_span_of_place_locked(pool, place, spec->bytes);
    return gc_pages_are_usable_locked(pool, &span) ? take_place(pool, place, &span, spec) : NULL;
}

struct gc_block *gc_pool_alloc_backed_locked(struct gc_pool *pool, enum gc_size_class size_class,
                                             bool is_last_resort, const struct gc_alloc_spec *spec)
{
    struct gc_search search = {.is_last_resort = is_last_resort};
    return find_backed(pool, size_class, spec->bytes, &search)
               ? take_place(pool, &search.place, &search.span, spec)
               : NULL;
}

struct gc_block *gc_pool_alloc_locked(struct gc_pool *pool, enum gc_size_class size_class,
                                      const struct gc_alloc_spec *spec)
{
    struct gc_place place;
    struct gc_block *block = gc_pool_alloc_backed_locked(pool, size_class, false, spec);
    if (block != NULL || !find_plain(pool, size_class, spec->bytes, &place))
        return block;
    const uint64_t waste = place.free_block->bytes - spec->bytes;
    if (size_class == GC_CLASS_DEDICATED &&
        waste > place.free_block->bytes / GC_DEDICATED_WASTE_DIVISOR)
        return NULL;
    return take_place(pool, &place, NULL, spec);
}

/* Tries the start of the free block, its first page boundary and its end. */
static struct gc_block *alloc_in_block(struct gc_pool *pool, struct gc_block *free_block,
                                       const struct gc_alloc_spec *spec)
{
    const struct gc_place last = {free_block,
                                  free_block->address + free_block->bytes - spec->bytes};
    struct gc_place place;
    struct gc_block *block = NULL;
    for (unsigned is_tight = 0; block == NULL && is_tight < 2; is_tight++) {
        if (fit_block(pool, free_block, spec->bytes, is_tight != 0, &place))
            block = gc_pool_alloc_at_locked(pool, &place, spec);
    }
    return block != NULL || last.address % alignment_of(spec->bytes) != 0
               ? block
               : gc_pool_alloc_at_locked(pool, &last, spec);
}

static struct gc_block *alloc_in_bins(struct gc_pool *pool, const struct gc_bins *bins,
                                      const struct gc_alloc_spec *spec)
{
    struct gc_block *block = NULL;
    struct gc_block *free_block = NULL;
    while (block == NULL && (free_block = gc_bins_next_fit(bins, free_block, spec->bytes)) != NULL)
        block = alloc_in_block(pool, free_block, spec);
    return block;
}

struct gc_block *gc_pool_alloc_planned_locked(struct gc_pool *pool,
                                              const struct gc_alloc_spec *spec)
{
    return alloc_in_bins(pool, &pool->content.bins[GC_CLASS_PLANNED][GC_FREE_PLAIN], spec);
}

void gc_pool_bar_from_caches_locked(struct gc_pool *pool)
{
    for (struct gc_segment *segment = pool->content.segments; segment != NULL;
         segment = segment->next)
        for (struct gc_block *block = segment->first; block != NULL; block = block->next)
            if (block->state == GC_BLOCK_LIVE && !gc_pool_may_serve_again_locked(pool, block))
                atomic_store_explicit(&block->tcache_number, 0, memory_order_relaxed);
}

struct gc_block *gc_pool_alloc_any_locked(struct gc_pool *pool, enum gc_size_class size_class,
                                          const struct gc_alloc_spec *spec)
{
    struct gc_block *block = NULL;
    for (unsigned i = size_class == GC_CLASS_DEDICATED ? GC_CLASS_DEDICATED : 0;
         block == NULL && i <= GC_CLASS_DEDICATED; i++) {
        block = gc_pool_alloc_backed_locked(pool, i, true, spec);
        if (block == NULL)
            block = alloc_in_bins(pool, &pool->content.bins[i][GC_FREE_PLAIN], spec);
    }
    return block;
}

/* ---- blocks: freed, trimmed, undone ---- */

void gc_pool_free_locked(struct gc_pool *pool, struct gc_block *block)
{
    const struct gc_segment *segment = gc_block_segment(block);
    GC_ASSERT(block->state != GC_BLOCK_FREE);
    if (segment->arena != NULL) {
        const struct gc_span span = gc_pages_span_of_block_locked(pool, block);
        gc_pages_unuse_locked(pool, &span);
    }
    gc_pool_merge_locked(pool, block,
                         gc_segment_has_kinds(segment) ? GC_FREE_BACKED : GC_FREE_PLAIN);
    pool->generation++;
}

void gc_pool_trim_locked(struct gc_pool *pool, struct gc_block *block, uint64_t bytes)
{
    GC_ASSERT(block->state == GC_BLOCK_MAPPING);
    if (block->bytes > bytes)
        gc_pool_free_locked(pool, gc_pool_split_end_locked(pool, block, bytes));
}

/* Bins the parts of the block by their slots. */
static void merge_by_slots(struct gc_pool *pool, struct gc_block *block)
{
    const uint64_t end = block->address + block->bytes;
    enum gc_free_kind kind;
    for (uint64_t address = block->address; address < end;) {
        address = gc_min_u64(end, gc_pages_kind_end_locked(pool, block, &kind));
        struct gc_block *rest = NULL;
        if (address < end)
            rest = gc_pool_split_end_locked(pool, block, address - block->address);
        if (kind == GC_FREE_EXCLUDED)
            gc_pages_set_excluded_locked(pool, block);
        gc_pool_merge_locked(pool, block, kind);
        block = rest;
    }
}

void gc_pool_unsplit_locked(struct gc_pool *pool, struct gc_block *block)
{
    GC_ASSERT(block->state == GC_BLOCK_MAPPING);
    if (gc_segment_has_kinds(gc_block_segment(block)))
        merge_by_slots(pool, block);
    else
        gc_pool_merge_locked(pool, block, GC_FREE_PLAIN);
}

/* ---- segments: added, removed, restored, exported ---- */

static void link_segment(struct gc_pool *pool, struct gc_segment *segment, struct gc_block *block)
{
    segment->first = block;
    segment->previous = NULL;
    segment->next = pool->content.segments;
    if (pool->content.segments != NULL)
        pool->content.segments->previous = segment;
    pool->content.segments = segment;
    block->previous = NULL;
    block->next = NULL;
    block->address = segment->address;
    block->bytes = segment->bytes;
    if (segment->size_class == GC_CLASS_PLANNED)
        pool->content.planned = segment;
    atomic_store_explicit(&segment->pool, pool, memory_order_release);
    atomic_store_explicit(&block->segment, segment, memory_order_release);
    pool->generation++;
}

struct gc_block *gc_pool_add_locked(struct gc_pool *pool, struct gc_segment *segment,
                                    const struct gc_alloc_spec *spec)
{
    struct gc_block *block = gc_pool_pop_record_locked(pool);
    segment->arena = NULL;
    segment->is_idle = false;
    link_segment(pool, segment, block);
    gc_pool_split_off_locked(pool, block, spec->bytes);
    gc_pool_make_live_locked(pool, block, spec);
    gc_pagemap_set(pool->shared.pagemap, block->address, block, GC_PAGEMAP_SHARED);
    return block;
}

static void add_free(struct gc_pool *pool, struct gc_segment *segment, struct gc_arena *arena)
{
    struct gc_block *block = gc_pool_pop_record_locked(pool);
    segment->arena = arena;
    segment->is_idle = false;
    segment->is_plain = false;
    segment->is_own_mapping = false;
    segment->is_spilled = false;
    link_segment(pool, segment, block);
    gc_pool_bin_locked(pool, block,
                       gc_segment_has_kinds(segment) ? GC_FREE_UNMAPPED : GC_FREE_PLAIN);
    gc_pagemap_set(pool->shared.pagemap, block->address, block, GC_PAGEMAP_SHARED);
}

void gc_pool_add_arena_locked(struct gc_pool *pool, struct gc_arena *arena)
{
    arena->next = pool->pages.arenas;
    pool->pages.arenas = arena;
    add_free(pool, arena->segment, arena);
}

void gc_pool_add_free_locked(struct gc_pool *pool, struct gc_segment *segment)
{
    add_free(pool, segment, NULL);
}

struct gc_block *gc_pool_remove_locked(struct gc_pool *pool, struct gc_segment *segment)
{
    struct gc_block *block = segment->first;
    GC_ASSERT(gc_block_spans_segment(block));
    if (block->state == GC_BLOCK_FREE)
        gc_pool_unbin_locked(pool, block);
    gc_pagemap_clear(pool->shared.pagemap, block->address, GC_PAGEMAP_SHARED);
    if (segment->previous != NULL)
        segment->previous->next = segment->next;
    else
        pool->content.segments = segment->next;
    if (segment->next != NULL)
        segment->next->previous = segment->previous;
    if (pool->content.planned == segment)
        pool->content.planned = NULL;
    segment->first = NULL;
    atomic_store_explicit(&segment->pool, NULL, memory_order_release);
    atomic_store_explicit(&block->segment, NULL, memory_order_release);
    return block;
}

bool gc_pool_is_dedicated_locked(const struct gc_block *block)
{
    const struct gc_segment *segment = gc_block_segment(block);
    return segment->arena == NULL && !segment->is_own_mapping && !segment->is_spilled &&
           gc_block_spans_segment(block) && !block->is_ordered;
}

void gc_pool_export_locked(struct gc_block *block)
{
    struct gc_segment *segment = gc_block_segment(block);
    struct gc_pool *pool = atomic_load_explicit(&segment->pool, memory_order_relaxed);
    if (pool->content.planned == segment)
        pool->content.planned = NULL;
    segment->size_class = GC_CLASS_UNCACHED;
    segment->is_plain = false;
    atomic_store_explicit(&block->tcache_number, 0, memory_order_relaxed);
}

void gc_pool_restore_locked(struct gc_pool *pool, struct gc_segment *segment,
                            struct gc_block *block, enum gc_block_state state)
{
    link_segment(pool, segment, block);
    gc_block_set_state(block, state);
    if (state == GC_BLOCK_FREE)
        gc_pool_bin_locked(pool, block, block->free_kind);
    gc_pagemap_set(pool->shared.pagemap, block->address, block, GC_PAGEMAP_SHARED);
}
