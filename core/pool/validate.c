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

static bool check_extent(const struct gc_extent *extent)
{
    uint32_t mappings = 0;
    for (const struct gc_mapping *mapping = extent->mappings; mapping != NULL;
         mapping = mapping->next) {
        REQUIRE(mapping->extent == extent && gc_pages_stage(mapping) == GC_MAPPING_NONE);
        mappings++;
    }
    REQUIRE(mappings == extent->mapping_count);
    if (extent->is_host)
        return extent->is_away && !extent->is_listed && mappings == 1 &&
               extent->user == extent->mappings && extent->used_count <= extent->page_count;
    REQUIRE(extent->is_listed == (extent->used_count == 0));
    REQUIRE((extent->user == NULL) == (extent->used_count == 0));
    REQUIRE(extent->used_count <= extent->page_count && extent->page_count > 0);
    return true;
}

/* Whether a block that is not free overlaps the slot. `*block`: the first that may; moves on. */
static bool is_used(const struct gc_block **block, uint64_t start, uint64_t end)
{
    while (*block != NULL && (*block)->address + (*block)->bytes <= start)
        *block = (*block)->next;
    for (const struct gc_block *touch = *block; touch != NULL && touch->address < end;
         touch = touch->next) {
        if (touch->state != GC_BLOCK_FREE)
            return true;
    }
    return false;
}

/* Whether the kind of a free block is that of its slots. */
static bool check_kind(const struct gc_pool *pool, const struct gc_block *block)
{
    const struct gc_segment *segment = gc_block_segment(block);
    enum gc_free_kind kind;
    if (!gc_segment_has_kinds(segment))
        return block->free_kind == GC_FREE_PLAIN;
    REQUIRE(gc_pages_kind_end_locked(pool, block, &kind) >= block->address + block->bytes);
    REQUIRE(block->free_kind == (uint8_t)kind);
    if (kind == GC_FREE_BACKED)
        return true;
    const uint64_t page_bytes = pool->pages.page_bytes;
    const uint64_t offset = block->address - segment->address;
    REQUIRE(offset % page_bytes == 0 && block->bytes % page_bytes == 0);
    if (kind == GC_FREE_UNMAPPED)
        return true;
    const struct gc_mapping *mapping = segment->arena->slots[offset / page_bytes];
    return mapping->excluded == block && mapping->first == offset / page_bytes &&
           mapping->extent->page_count == block->bytes / page_bytes;
}

static bool check_kinds(const struct gc_pool *pool)
{
    for (const struct gc_segment *segment = pool->content.segments; segment != NULL;
         segment = segment->next) {
        for (const struct gc_block *block = segment->first; block != NULL; block = block->next)
            REQUIRE(block->state != GC_BLOCK_FREE || check_kind(pool, block));
    }
    return true;
}

/* Walks slots and blocks in parallel. Sums: of extents, each at the slots of its user, or at its
 * first mapping if it has none. */
static bool check_arena(const struct gc_pool *pool, const struct gc_arena *arena, uint64_t *used,
                        uint64_t *stuck)
{
    const uint64_t page_bytes = pool->pages.page_bytes;
    const struct gc_block *block = arena->segment->first;
    uint64_t used_here = 0; /* slots of the current mapping */
    for (uint64_t i = 0; i < arena->touched_count; i++) {
        const uint64_t start = arena->segment->address + i * page_bytes;
        const struct gc_mapping *mapping = arena->slots[i];
        const bool is_it = is_used(&block, start, start + page_bytes);
        if (mapping == NULL) {
            REQUIRE(!is_it);
            continue;
        }
        const struct gc_extent *extent = mapping->extent;
        REQUIRE(mapping->arena == arena && i >= mapping->first &&
                i < mapping->first + extent->page_count);
        REQUIRE(!is_it || (mapping->has_access && extent->user == mapping));
        used_here = i == mapping->first ? is_it : used_here + is_it;
        if (i + 1 < mapping->first + extent->page_count)
            continue;
        REQUIRE(check_extent(extent));
        REQUIRE(used_here == (extent->user == mapping ? extent->used_count : 0));
        if (extent->is_host)
            continue;
        *used += used_here;
        *stuck += extent->user == mapping ? extent->page_count - used_here : 0;
    }
    while (block != NULL && block->state == GC_BLOCK_FREE)
        block = block->next;
    /* The last block that is used may end in the last slot. */
    return block == NULL || block->address + block->bytes <=
                                arena->segment->address + arena->touched_count * page_bytes;
}

static bool validate_pages_locked(const struct gc_pool *pool)
{
    const struct gc_pages *pages = &pool->pages;
    uint64_t used = 0;
    uint64_t idle = 0;
    uint64_t stuck = 0;
    if (pages->is_changing)
        return true; /* during a change of mappings the invariants need not hold */
    REQUIRE(check_kinds(pool));
    for (unsigned i = 0; i < 2 * GC_IDLE_LISTS; i++) {
        for (const struct gc_extent *extent = pages->idle[i % 2][i / 2].oldest; extent != NULL;
             extent = extent->next) {
            REQUIRE(extent->is_listed && extent->is_small == (i % 2 != 0) && check_extent(extent));
            idle += extent->page_count;
        }
    }
    for (const struct gc_arena *arena = pages->arenas; arena != NULL; arena = arena->next)
        REQUIRE(check_arena(pool, arena, &used, &stuck));
    REQUIRE(idle == pages->idle_count);
    REQUIRE(stuck == pages->stuck_count);
    REQUIRE(used + stuck + idle == pages->count);
    return true;
}

/* ---- the pool ---- */

/* Sums over the segments. */
struct sums {
    uint64_t free_count[GC_CLASS_COUNT][GC_FREE_TREES + 1];
    uint64_t free_bytes[GC_CLASS_COUNT][GC_FREE_TREES + 1];
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
        REQUIRE(!is_free || previous == NULL || previous->state != GC_BLOCK_FREE ||
                previous->free_kind != block->free_kind || block->free_kind == GC_FREE_EXCLUDED);
        if (is_free) {
            sums->free_count[segment->size_class][block->free_kind]++;
            sums->free_bytes[segment->size_class][block->free_kind] += block->bytes;
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
    REQUIRE(!segment->is_spilled ||
            (segment->arena == NULL && segment->size_class == GC_CLASS_UNCACHED &&
             segment->first->next == NULL));
    if (segment->is_idle)
        sums->idle_count++;
    return true;
}

/* The common list of pending blocks, in order of epoch. */
static bool check_pending(const struct gc_pool_content *content, struct sums *sums)
{
    const struct gc_block *last = content->pending_last;
    for (const struct gc_block *block = content->pending_first; block != NULL;
         block = block->pending.next) {
        REQUIRE(block->state == GC_BLOCK_PENDING && sums->pending_count > 0);
        REQUIRE(block->pending.next != NULL
                    ? block->pending.epoch <= block->pending.next->pending.epoch
                    : block == last);
        sums->pending_count--;
    }
    return true;
}

static bool check_stream(const struct gc_stream_list *list, struct sums *sums)
{
    REQUIRE((list->stream == 0) == (list->group_count == 0));
    for (unsigned i = 0; i < list->group_count; i++) {
        const struct gc_stream_group *group = &list->groups[i];
        uint64_t count = 0;
        REQUIRE(i == 0 || list->groups[i - 1].epoch < group->epoch);
        for (unsigned j = 0; j < GC_STREAM_TREES; j++) {
            const struct gc_bins *tree = &group->trees[j];
            REQUIRE(tree->is_pending && tree->by_address);
            REQUIRE(gc_bins_validate(tree));
            for (const struct gc_block *block = gc_bins_next_fit(tree, NULL, GC_GRANULE);
                 block != NULL; block = gc_bins_next(tree, block))
                REQUIRE(gc_min_u64(gc_block_segment(block)->size_class, GC_CLASS_PLANNED) == j);
            count += tree->count;
        }
        REQUIRE(count > 0 && count <= sums->pending_count);
        sums->pending_count -= count;
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
    for (unsigned i = 0; i < GC_CLASS_COUNT * GC_FREE_TREES; i++) {
        const struct gc_bins *bins = &pool->content.bins[i / GC_FREE_TREES][i % GC_FREE_TREES];
        REQUIRE(gc_bins_validate(bins));
        REQUIRE(bins->count == sums.free_count[i / GC_FREE_TREES][i % GC_FREE_TREES]);
        REQUIRE(bins->bytes == sums.free_bytes[i / GC_FREE_TREES][i % GC_FREE_TREES]);
    }
    for (const struct gc_segment *segment = pool->content.idle_oldest; segment != NULL;
         segment = segment->idle_next) {
        REQUIRE(segment->is_idle && sums.idle_count > 0);
        sums.idle_count--;
    }
    REQUIRE(sums.idle_count == 0);
    REQUIRE(validate_pages_locked(pool));
    REQUIRE(check_pending(&pool->content, &sums));
    for (unsigned i = 0; i < pool->stream_count; i++)
        REQUIRE(check_stream(&pool->streams[i], &sums));
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
