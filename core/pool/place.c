/* Where a block goes: best fit over the free blocks of its class, by addresses alone; and the last
 * resort, any hole that is backed. */
#include "core/pool/pool.h"

#include "core/base/assert.h"

#include <stddef.h>

/* Holes that are looked at because a block might fit between the pages of them. */
#define FIT_TRIES 256

/* Where in the hole a block of `bytes` would start; false if it does not fit. */
static bool fit(const struct gc_pool *pool, struct gc_block *hole, uint64_t bytes, bool is_tight,
                struct gc_place *place)
{
    const uint64_t page = pool->pages.page_bytes;
    uint64_t address = hole->address;
    if (gc_block_segment(hole)->arena != NULL && (bytes >= GC_PAGE_BYTES_MIN || is_tight)) {
        const uint64_t needed = (bytes + page - 1) / page * page;
        if (address % page + bytes > needed)
            address = (address + page - 1) / page * page;
    }
    *place = (struct gc_place){hole, address};
    return address - hole->address + bytes <= hole->bytes;
}

bool gc_pool_find_place_locked(const struct gc_pool *pool, enum gc_class class, uint64_t bytes,
                               bool is_tight, struct gc_place *place)
{
    const struct gc_bins *bins = &pool->content.bins[class];
    struct gc_block *hole = gc_bins_best_fit(bins, bytes);
    for (unsigned i = 0; hole != NULL && i < FIT_TRIES; i++) {
        if (fit(pool, hole, bytes, is_tight, place))
            return true;
        hole = gc_bins_next(bins, hole);
    }
    hole = gc_bins_best_fit(bins, bytes + pool->pages.page_bytes);
    return hole != NULL && fit(pool, hole, bytes, is_tight, place);
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
struct gc_block *gc_pool_take_place_locked(struct gc_pool *pool, const struct gc_place *place,
                                           const struct gc_claim *claim)
{
    struct gc_segment *segment = gc_block_segment(place->hole);
    if (segment->arena != NULL &&
        !gc_pages_try_use_locked(pool, segment->arena, place->address, claim->bytes))
        return NULL;
    struct gc_block *block = gc_pool_carve_locked(pool, place, claim->bytes);
    GC_ASSERT(segment->class != GC_CLASS_ONCE);
    gc_pool_make_live_locked(pool, block, claim);
    return block;
}

struct gc_block *gc_pool_take_locked(struct gc_pool *pool, enum gc_class class,
                                     const struct gc_claim *claim)
{
    struct gc_place place;
    if (!gc_pool_find_place_locked(pool, class, claim->bytes, false, &place))
        return NULL;
    const uint64_t waste = place.hole->bytes - claim->bytes;
    if (class == GC_CLASS_WHOLE && waste > place.hole->bytes / GC_WHOLE_WASTE_SHARE)
        return NULL;
    return gc_pool_take_place_locked(pool, &place, claim);
}

/* At the hole's start, at its first page and at its end. */
static struct gc_block *take_in_hole(struct gc_pool *pool, struct gc_block *hole,
                                     const struct gc_claim *claim)
{
    const struct gc_place last = {hole, hole->address + hole->bytes - claim->bytes};
    struct gc_place place;
    struct gc_block *block = NULL;
    for (unsigned is_tight = 0; block == NULL && is_tight < 2; is_tight++) {
        if (fit(pool, hole, claim->bytes, is_tight != 0, &place))
            block = gc_pool_take_place_locked(pool, &place, claim);
    }
    return block != NULL ? block : gc_pool_take_place_locked(pool, &last, claim);
}

struct gc_block *gc_pool_take_any_locked(struct gc_pool *pool, enum gc_class class,
                                         const struct gc_claim *claim)
{
    struct gc_block *block = NULL;
    for (unsigned i = class == GC_CLASS_WHOLE ? GC_CLASS_WHOLE : 0;
         block == NULL && i <= GC_CLASS_WHOLE; i++) {
        const struct gc_bins *bins = &pool->content.bins[i];
        struct gc_block *hole = gc_bins_best_fit(bins, claim->bytes);
        while (hole != NULL &&
               (hole->bytes < claim->bytes || (block = take_in_hole(pool, hole, claim)) == NULL))
            hole = gc_bins_next(bins, hole);
    }
    return block;
}
