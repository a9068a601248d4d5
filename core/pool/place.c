/* Placement: best fit over the free blocks of a class, by addresses alone; as the last resort any
 * free block that needs no driver call. The second half of the file adds, removes, restores and
 * exports segments.
 *
 * gc_block.segment and gc_segment.pool are stored with release: the partners are the acquires in
 * core/device/lookup.c, lock_pool_of, which follows them without a lock. */
#include "core/pool/pool.h"

#include "core/base/assert.h"

#include <stddef.h>

/* Free blocks that are tried where alignment to pages may prevent a fit. */
#define FIT_TRIES 256

/* Sets *place to where a block of `bytes` would start in the free block. False: it does not fit. */
static bool fit(const struct gc_pool *pool, struct gc_block *free_block, uint64_t bytes,
                bool is_tight, struct gc_place *place)
{
    const uint64_t page = pool->pages.page_bytes;
    uint64_t address = free_block->address;
    if (gc_block_segment(free_block)->arena != NULL && (bytes >= GC_PAGE_BYTES_MIN || is_tight)) {
        const uint64_t needed = (bytes + page - 1) / page * page;
        if (address % page + bytes > needed)
            address = (address + page - 1) / page * page;
    }
    *place = (struct gc_place){free_block, address};
    return address - free_block->address + bytes <= free_block->bytes;
}

bool gc_pool_find_place_locked(const struct gc_pool *pool, enum gc_size_class size_class,
                               uint64_t bytes, bool is_tight, struct gc_place *place)
{
    const struct gc_bins *bins = &pool->content.bins[size_class];
    struct gc_block *free_block = gc_bins_best_fit(bins, bytes);
    for (unsigned i = 0; free_block != NULL && i < FIT_TRIES; i++) {
        if (fit(pool, free_block, bytes, is_tight, place))
            return true;
        free_block = gc_bins_next(bins, free_block);
    }
    free_block = gc_bins_best_fit(bins, bytes + pool->pages.page_bytes);
    return free_block != NULL && fit(pool, free_block, bytes, is_tight, place);
}

bool gc_pool_find_at_locked(const struct gc_pool *pool, uint64_t address, uint64_t bytes,
                            struct gc_place *place)
{
    struct gc_block *block = gc_bins_at(&pool->content.bins[GC_CLASS_PLANNED], address);
    if (block == NULL || gc_block_segment(block) != pool->content.planned)
        return false;
    *place = (struct gc_place){block, address};
    return bytes <= block->bytes && address - block->address <= block->bytes - bytes;
}

struct gc_block *gc_pool_alloc_at_locked(struct gc_pool *pool, const struct gc_place *place,
                                         const struct gc_alloc_spec *spec)
{
    struct gc_segment *segment = gc_block_segment(place->free_block);
    if (segment->arena != NULL) {
        const struct gc_span span = gc_span_of_place_locked(pool, place, spec->bytes);
        if (!gc_pages_try_use_locked(pool, &span))
            return NULL;
    }
    struct gc_block *block = gc_pool_split_locked(pool, place, spec->bytes);
    GC_ASSERT(segment->size_class != GC_CLASS_UNCACHED);
    gc_pool_make_live_locked(pool, block, spec);
    return block;
}

struct gc_block *gc_pool_alloc_locked(struct gc_pool *pool, enum gc_size_class size_class,
                                      const struct gc_alloc_spec *spec)
{
    struct gc_place place;
    if (!gc_pool_find_place_locked(pool, size_class, spec->bytes, false, &place))
        return NULL;
    const uint64_t waste = place.free_block->bytes - spec->bytes;
    if (size_class == GC_CLASS_DEDICATED &&
        waste > place.free_block->bytes / GC_DEDICATED_WASTE_DIVISOR)
        return NULL;
    return gc_pool_alloc_at_locked(pool, &place, spec);
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
        if (fit(pool, free_block, spec->bytes, is_tight != 0, &place))
            block = gc_pool_alloc_at_locked(pool, &place, spec);
    }
    return block != NULL ? block : gc_pool_alloc_at_locked(pool, &last, spec);
}

struct gc_block *gc_pool_alloc_any_locked(struct gc_pool *pool, enum gc_size_class size_class,
                                          const struct gc_alloc_spec *spec)
{
    struct gc_block *block = NULL;
    for (unsigned i = size_class == GC_CLASS_DEDICATED ? GC_CLASS_DEDICATED : 0;
         block == NULL && i <= GC_CLASS_DEDICATED; i++) {
        const struct gc_bins *bins = &pool->content.bins[i];
        struct gc_block *free_block = gc_bins_best_fit(bins, spec->bytes);
        while (free_block != NULL && (free_block->bytes < spec->bytes ||
                                      (block = alloc_in_block(pool, free_block, spec)) == NULL))
            free_block = gc_bins_next(bins, free_block);
    }
    return block;
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
    gc_pagemap_set(pool->shared.pagemap, block->address, block);
    return block;
}

static void add_free(struct gc_pool *pool, struct gc_segment *segment, struct gc_arena *arena)
{
    struct gc_block *block = gc_pool_pop_record_locked(pool);
    segment->arena = arena;
    segment->is_idle = false;
    segment->is_plain = false;
    segment->is_own_mapping = false;
    link_segment(pool, segment, block);
    gc_pool_bin_locked(pool, block);
    gc_pagemap_set(pool->shared.pagemap, block->address, block);
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
    gc_pagemap_clear(pool->shared.pagemap, block->address);
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
    return segment->arena == NULL && !segment->is_own_mapping && gc_block_spans_segment(block) &&
           !block->is_ordered;
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
        gc_pool_bin_locked(pool, block);
    gc_pagemap_set(pool->shared.pagemap, block->address, block);
}
