/* Where a block goes: best fit over the free blocks of its class, by addresses alone; and the last
 * resort, any hole that is backed. */
#include "core/pool/pool.h"

#include "core/base/assert.h"

#include <stddef.h>

/* Holes that are looked at because a block might fit between the pages of them. */
#define FIT_TRIES 256

/* Where in the hole a block of `bytes` would start; false if it does not fit. */
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

/* A live block at the place, unless it needs the driver. */
struct gc_block *gc_pool_alloc_at_locked(struct gc_pool *pool, const struct gc_place *place,
                                         const struct gc_alloc_spec *spec)
{
    struct gc_segment *segment = gc_block_segment(place->free_block);
    if (segment->arena != NULL &&
        !gc_pages_try_use_locked(pool, segment->arena, place->address, spec->bytes))
        return NULL;
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
        waste > place.free_block->bytes / GC_DEDICATED_WASTE_SHARE)
        return NULL;
    return gc_pool_alloc_at_locked(pool, &place, spec);
}

/* At the hole's start, at its first page and at its end. */
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
