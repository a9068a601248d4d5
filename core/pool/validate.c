/* Validators of the invariants that pool.h and pages.h name. For the tests: O(blocks log blocks +
 * slots). */
#include "core/pool/pool.h"

#include <stddef.h>

/* Returns false from the validator if the condition fails. */
#define REQUIRE(condition)                                                                         \
    do {                                                                                           \
        if (!(condition))                                                                          \
            return false;                                                                          \
    } while (0)

/* ---- mapped memory ---- */

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

/* Walks slots and blocks in parallel. */
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

static bool validate_pages_locked(const struct gc_pool *pool)
{
    const struct gc_pages *pages = &pool->pages;
    uint64_t used = 0;
    uint64_t idle = 0;
    uint64_t small = 0;
    if (pages->is_changing)
        return true; /* during a change of mappings the invariants need not hold */
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

/* ---- the pool ---- */

/* Sums over the segments. */
struct sums {
    uint64_t free_count[GC_CLASS_COUNT];
    uint64_t free_bytes[GC_CLASS_COUNT];
    uint64_t idle_count;
    uint64_t pending_count;
    uint64_t pending_bytes;
};

static bool check_segment(const struct gc_pool *pool, const struct gc_segment *segment,
                          struct sums *sums)
{
    uint64_t address = segment->address;
    const struct gc_block *previous = NULL;
    REQUIRE(segment->first != NULL);
    REQUIRE(atomic_load(&segment->pool) == pool);
    for (const struct gc_block *block = segment->first; block != NULL; block = block->next) {
        const bool is_free = block->state == GC_BLOCK_FREE;
        REQUIRE(block->previous == previous);
        REQUIRE(block->address == address);
        REQUIRE(block->bytes > 0 && block->bytes % GC_GRANULE == 0);
        REQUIRE(atomic_load(&block->segment) == segment);
        REQUIRE(gc_pagemap_get(pool->shared.pagemap, address) == block);
        REQUIRE(!is_free || previous == NULL || previous->state != GC_BLOCK_FREE);
        if (is_free) {
            sums->free_count[segment->size_class]++;
            sums->free_bytes[segment->size_class] += block->bytes;
        }
        if (block->state == GC_BLOCK_PENDING) {
            sums->pending_count++;
            sums->pending_bytes += block->bytes;
        }
        address += block->bytes;
        previous = block;
    }
    REQUIRE(segment->first != NULL && address == segment->address + segment->bytes);
    REQUIRE(segment->is_idle == (segment->first->state == GC_BLOCK_FREE &&
                                 segment->first->next == NULL && segment->arena == NULL));
    if (segment->is_idle)
        sums->idle_count++;
    return true;
}

/* One list of pending blocks, in order of epoch. */
static bool check_pending(const struct gc_block *first, const struct gc_block *last,
                          struct sums *sums)
{
    for (const struct gc_block *block = first; block != NULL; block = block->pending.next) {
        REQUIRE(block->state == GC_BLOCK_PENDING && sums->pending_count > 0);
        REQUIRE(block->pending.next != NULL
                    ? block->pending.epoch <= block->pending.next->pending.epoch
                    : block == last);
        sums->pending_count--;
    }
    return true;
}

static bool validate_locked(const struct gc_pool *pool)
{
    struct sums sums = {0};
    const struct gc_segment *previous = NULL;
    for (const struct gc_segment *segment = pool->content.segments; segment != NULL;
         segment = segment->next) {
        REQUIRE(segment->previous == previous);
        REQUIRE(check_segment(pool, segment, &sums));
        previous = segment;
    }
    for (unsigned size_class = 0; size_class < GC_CLASS_COUNT; size_class++) {
        REQUIRE(gc_bins_validate(&pool->content.bins[size_class]));
        REQUIRE(pool->content.bins[size_class].count == sums.free_count[size_class]);
        REQUIRE(pool->content.bins[size_class].bytes == sums.free_bytes[size_class]);
    }
    for (const struct gc_segment *segment = pool->content.idle_oldest; segment != NULL;
         segment = segment->idle_next) {
        REQUIRE(segment->is_idle && sums.idle_count > 0);
        sums.idle_count--;
    }
    REQUIRE(sums.idle_count == 0);
    REQUIRE(validate_pages_locked(pool));
    REQUIRE(check_pending(pool->content.pending_first, pool->content.pending_last, &sums));
    for (unsigned i = 0; i < pool->stream_count; i++) {
        const struct gc_stream_list *list = &pool->streams[i];
        REQUIRE((list->stream == 0) == (list->first == NULL));
        REQUIRE(check_pending(list->first, list->last, &sums));
    }
    REQUIRE(sums.pending_count == 0 && sums.pending_bytes == pool->content.pending_bytes);
    return true;
}

bool gc_pool_validate(struct gc_pool *pool)
{
    gc_pool_acquire_plain(pool);
    const bool is_valid = validate_locked(pool);
    gc_pool_release(pool);
    return is_valid;
}
