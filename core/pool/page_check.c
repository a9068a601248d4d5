/* What can be said about mapped memory by walking it: sums for the figures, and the invariants of
 * page.h. */

#include "core/pool/pool.h"

#include "core/base/bits.h"

#include <stddef.h>

/* Leaves the walker at the first thing that is wrong. */
#define REQUIRE(condition)                                                                         \
    do {                                                                                           \
        if (!(condition))                                                                          \
            return false;                                                                          \
    } while (0)

/* ---- sums ---- */

/* Whether another slot of the run from `start` to `slot` would take the same page. */
static bool is_twice(const struct gc_slot *start, const struct gc_slot *slot)
{
    const struct gc_slot *other = slot->page->first;
    while (other != NULL && !(other >= start && other < slot))
        other = other->next;
    return other != NULL;
}

/* The part of [address, address + bytes) in slot `i`. */
static uint64_t overlap(const struct gc_pool *pool, const struct gc_arena *arena, uint64_t i,
                        const struct gc_block *free_block)
{
    const uint64_t start = arena->segment->address + i * pool->pages.page_bytes;
    return gc_min_u64(start + pool->pages.page_bytes, free_block->address + free_block->bytes) -
           gc_max_u64(start, free_block->address);
}

static void measure_free(const struct gc_pool *pool, const struct gc_arena *arena,
                         const struct gc_block *free_block, struct gc_free_sums *sums)
{
    uint64_t first;
    uint64_t end;
    uint64_t run = 0;
    gc_pages_slots(pool, arena, free_block->address, free_block->bytes, &first, &end);
    const struct gc_slot *start = &arena->slots[first];
    for (uint64_t i = first; i < gc_min_u64(end, arena->touched_count); i++) {
        const struct gc_slot *slot = &arena->slots[i];
        if (!gc_slot_is_backed(slot) || is_twice(start, slot)) {
            run = 0;
            start = slot + 1;
            continue;
        }
        const uint64_t bytes = overlap(pool, arena, i, free_block);
        run += bytes;
        sums->largest_bytes = gc_max_u64(sums->largest_bytes, run);
        if (slot->use_count > 0)
            sums->free_bytes += bytes; /* of idle pages all is counted below, once */
    }
}

static void measure_segment(const struct gc_pool *pool, const struct gc_segment *segment,
                            struct gc_free_sums *sums)
{
    for (const struct gc_block *block = segment->first; block != NULL; block = block->next) {
        if (block->state != GC_BLOCK_FREE)
            continue;
        if (segment->arena != NULL) {
            measure_free(pool, segment->arena, block, sums);
        } else {
            sums->free_bytes += block->bytes;
            sums->largest_bytes = gc_max_u64(sums->largest_bytes, block->bytes);
        }
    }
}

struct gc_free_sums gc_pool_measure_locked(const struct gc_pool *pool)
{
    struct gc_free_sums sums = {0, 0};
    if (pool->pages.arenas == NULL) {
        for (unsigned size_class = 0; size_class < GC_CLASS_COUNT; size_class++) {
            sums.free_bytes += pool->content.bins[size_class].bytes;
            sums.largest_bytes = gc_max_u64(sums.largest_bytes,
                                            gc_bins_largest_bytes(&pool->content.bins[size_class]));
        }
        return sums;
    }
    for (const struct gc_segment *segment = pool->content.segments; segment != NULL;
         segment = segment->next)
        measure_segment(pool, segment, &sums);
    sums.free_bytes += pool->pages.idle_count * pool->pages.page_bytes;
    return sums;
}

/* ---- invariants ---- */

static bool check_slot(const struct gc_slot *slot, uint64_t uses)
{
    const struct gc_page *page = slot->page;
    REQUIRE(slot->use_count == uses);
    if (page == NULL) {
        REQUIRE(!slot->has_access && slot->use_count == 0);
        return true;
    }
    REQUIRE((slot->use_count > 0) == (page->user == slot));
    REQUIRE(slot->use_count == 0 || slot->has_access);
    const struct gc_slot *listed = page->first;
    while (listed != NULL && listed != slot)
        listed = listed->next;
    REQUIRE(listed == slot);
    return true;
}

static bool check_page(const struct gc_page *page)
{
    uint32_t mappings = 0;
    for (const struct gc_slot *slot = page->first; slot != NULL; slot = slot->next) {
        REQUIRE(slot->page == page);
        mappings++;
    }
    REQUIRE(mappings == page->mapping_count);
    REQUIRE(page->is_listed == (page->user == NULL));
    return true;
}

/* Walks slots and blocks side by side. */
static bool check_arena(const struct gc_pool *pool, const struct gc_arena *arena,
                        uint64_t *used_pages)
{
    const uint64_t page_bytes = pool->pages.page_bytes;
    const struct gc_block *block = arena->segment->first;
    for (uint64_t i = 0; i < arena->slot_count; i++) {
        const uint64_t start = arena->segment->address + i * page_bytes;
        uint64_t uses = 0;
        for (const struct gc_block *touch = block;
             touch != NULL && touch->address < start + page_bytes; touch = touch->next)
            uses += touch->state != GC_BLOCK_FREE;
        while (block != NULL && block->address + block->bytes <= start + page_bytes)
            block = block->next;
        if (i >= arena->touched_count) {
            REQUIRE(uses == 0);
            return block == NULL || block->next == NULL;
        }
        REQUIRE(check_slot(&arena->slots[i], uses));
        REQUIRE(arena->slots[i].page == NULL || check_page(arena->slots[i].page));
        *used_pages += arena->slots[i].use_count > 0;
    }
    return true;
}

bool gc_pages_validate_locked(const struct gc_pool *pool)
{
    const struct gc_pages *pages = &pool->pages;
    uint64_t used = 0;
    uint64_t idle = 0;
    uint64_t small = 0;
    if (pages->is_changing)
        return true; /* as told by who changes them */
    for (unsigned list = 0; list < 2; list++) {
        for (const struct gc_page *page = pages->idle[list].oldest; page != NULL;
             page = page->next) {
            REQUIRE(page->is_listed && (page->mapping_count != 0) == (list != 0));
            REQUIRE(check_page(page));
            idle++;
            small += page->is_small;
        }
    }
    for (const struct gc_arena *arena = pages->arenas; arena != NULL; arena = arena->next)
        REQUIRE(check_arena(pool, arena, &used));
    REQUIRE(idle == pages->idle_count);
    REQUIRE(small == pages->small_idle_count);
    REQUIRE(used + idle == pages->count);
    return true;
}
