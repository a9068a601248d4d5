/* A pool: its lock, its spare block records, and its blocks: split, coalesced, binned. */
#include "core/pool/pool.h"

#include "core/base/assert.h"

#include <stddef.h>

/* Records that one hold of the lock needs: a segment's first block, and one for each split. */
#define SPARES_NEEDED 3
/* Records move to and from the device's slab in batches of this size. */
#define SPARES_BATCH 32
/* Spare records that a pool keeps, so that runs of requests and of frees leave the slab alone. */
#define SPARES_MAX 512
/* The largest excess of a block in a thread cache over its request: gc_block.slack. */
#define SLACK_MAX ((uint64_t)UINT8_MAX << GC_GRANULE_BITS)

void gc_pool_content_init(struct gc_pool_content *content)
{
    *content = (struct gc_pool_content){.bins[GC_CLASS_PLANNED][GC_FREE_PLAIN].by_address = true};
    for (unsigned i = 0; i < GC_CLASS_COUNT; i++) {
        content->bins[i][GC_FREE_BACKED].by_address = true;
        content->bins[i][GC_FREE_UNMAPPED].by_address = true;
    }
}

void gc_pool_init(struct gc_pool *pool, struct gc_context *context,
                  const struct gc_pool_shared *shared)
{
    *pool = (struct gc_pool){.shared = *shared, .context = context};
    pool->pages.page_bytes = shared->page_bytes;
    pool->pages.page_shift = shared->page_bytes == 0 ? 0 : gc_top_bit_u64(shared->page_bytes);
    gc_pool_content_init(&pool->content);
    gc_lock_init(&pool->lock, GC_RANK_POOL);
}

bool gc_pool_specify(uint64_t requested_bytes, uint64_t *bytes,
                     struct gc_segment_spec *segment_spec)
{
    if (!gc_round_up_u64(requested_bytes, GC_GRANULE, bytes))
        return false;
    *segment_spec = (struct gc_segment_spec){.size_class = *bytes <= GC_SMALL_MAX ? GC_CLASS_SMALL
                                                                                  : GC_CLASS_LARGE};
    if (*bytes <= GC_SMALL_MAX)
        segment_spec->bytes = GC_SMALL_SEGMENT;
    else if (*bytes <= GC_LARGE_SHARED_MAX)
        segment_spec->bytes = GC_LARGE_SEGMENT;
    else if (!gc_round_up_u64(*bytes, GC_SEGMENT_UNIT, &segment_spec->bytes))
        return false;
    segment_spec->driver_bytes = segment_spec->bytes;
    return true;
}

/* ---- lock and records ---- */

static void push_record(struct gc_pool *pool, struct gc_block *block)
{
    block->next = pool->spares;
    pool->spares = block;
    pool->spare_count++;
}

struct gc_block *gc_pool_pop_record_locked(struct gc_pool *pool)
{
    struct gc_block *block = pool->spares;
    GC_ASSERT(block != NULL);
    pool->spares = block->next;
    pool->spare_count--;
    return block;
}

/* Whether `needed` records are spare; takes them from the slab. */
static bool refill_locked(struct gc_pool *pool, uint32_t needed)
{
    if (GC_LIKELY(pool->spare_count >= needed))
        return true;
    while (pool->spare_count < needed + SPARES_BATCH) {
        struct gc_block *block = gc_slab_try_alloc(pool->shared.blocks);
        if (block == NULL)
            break;
        push_record(pool, block);
    }
    return pool->spare_count >= needed;
}

/* Without the lock: false if host memory has no records. */
static bool grow_slab(struct gc_pool *pool)
{
    void *record = gc_slab_alloc(pool->shared.blocks);
    if (record != NULL)
        gc_slab_free(pool->shared.blocks, record);
    return record != NULL;
}

bool gc_pool_has_records_locked(const struct gc_pool *pool, uint32_t count)
{
    return pool->spare_count >= SPARES_NEEDED + pool->spares_kept + count;
}

void gc_pool_want_records_locked(struct gc_pool *pool)
{
    pool->spares_wanted = 2 * pool->spares_wanted + SPARES_BATCH;
}

enum gc_status gc_pool_acquire(struct gc_pool *pool)
{
    for (bool has_memory = true;;) {
        gc_lock_acquire(&pool->lock);
        if (!has_memory)
            pool->spares_wanted = 0; /* for one request; others go on */
        if (refill_locked(pool, SPARES_NEEDED + pool->spares_kept + pool->spares_wanted))
            return GC_OK;
        gc_lock_release(&pool->lock);
        if (!has_memory)
            return GC_NO_HOST_MEMORY;
        has_memory = grow_slab(pool);
    }
}

void gc_pool_acquire_to_exclude(struct gc_pool *pool)
{
    for (;;) {
        gc_lock_acquire(&pool->lock);
        const uint32_t count = (uint32_t)gc_min_u64(2 * pool->pages.mapping_count, UINT32_MAX / 2);
        if (refill_locked(pool, SPARES_NEEDED + pool->spares_kept + count))
            return;
        gc_lock_release(&pool->lock);
        if (!grow_slab(pool))
            break;
    }
    gc_lock_acquire(&pool->lock);
}

void gc_pool_acquire_plain(struct gc_pool *pool)
{
    gc_lock_acquire(&pool->lock);
}

void gc_pool_release(struct gc_pool *pool)
{
    gc_lock_release(&pool->lock);
}

void gc_pool_free_record_locked(struct gc_pool *pool, struct gc_block *block)
{
    atomic_store_explicit(&block->segment, NULL, memory_order_release);
    push_record(pool, block);
    while (pool->spare_count > SPARES_MAX + pool->spares_kept + pool->spares_wanted)
        gc_slab_free(pool->shared.blocks, gc_pool_pop_record_locked(pool));
}

void gc_pool_free_spares_locked(struct gc_pool *pool)
{
    pool->spares_wanted = 0;
    while (pool->spare_count > 0)
        gc_slab_free(pool->shared.blocks, gc_pool_pop_record_locked(pool));
}

/* ---- blocks ---- */

/* Appends a segment to the idle list. */
static void set_idle_locked(struct gc_pool *pool, struct gc_segment *segment)
{
    GC_ASSERT(!segment->is_idle);
    segment->is_idle = true;
    segment->idle_next = NULL;
    segment->idle_previous = pool->content.idle_newest;
    if (pool->content.idle_newest != NULL)
        pool->content.idle_newest->idle_next = segment;
    else
        pool->content.idle_oldest = segment;
    pool->content.idle_newest = segment;
    gc_pool_add_idle(&pool->shared, gc_segment_idle_bytes(segment));
}

static void clear_idle(struct gc_pool *pool, struct gc_segment *segment)
{
    GC_ASSERT(segment->is_idle);
    segment->is_idle = false;
    if (segment->idle_previous != NULL)
        segment->idle_previous->idle_next = segment->idle_next;
    else
        pool->content.idle_oldest = segment->idle_next;
    if (segment->idle_next != NULL)
        segment->idle_next->idle_previous = segment->idle_previous;
    else
        pool->content.idle_newest = segment->idle_previous;
    gc_pool_sub_idle(&pool->shared, gc_segment_idle_bytes(segment));
}

static struct gc_bins *bins_of(struct gc_pool *pool, const struct gc_segment *segment,
                               enum gc_free_kind kind)
{
    return &pool->content.bins[segment->size_class][kind];
}

void gc_pool_bin_locked(struct gc_pool *pool, struct gc_block *block, enum gc_free_kind kind)
{
    struct gc_segment *segment = gc_block_segment(block);
    gc_block_set_state(block, GC_BLOCK_FREE);
    block->free_kind = (uint8_t)kind & 3U;
    if (kind < GC_FREE_TREES)
        gc_bins_insert(bins_of(pool, segment, kind), block);
    if (gc_block_spans_segment(block) && segment->arena == NULL)
        set_idle_locked(pool, segment);
}

void gc_pool_unbin_locked(struct gc_pool *pool, struct gc_block *block)
{
    struct gc_segment *segment = gc_block_segment(block);
    if (block->free_kind < GC_FREE_TREES)
        gc_bins_remove(bins_of(pool, segment, block->free_kind), block);
    if (segment->is_idle)
        clear_idle(pool, segment);
}

static enum gc_pagemap_owner owner_of(const struct gc_segment *segment, uint64_t address)
{
    return segment->arena == NULL ? GC_PAGEMAP_SHARED
                                  : gc_pagemap_owner_in(address, segment->address, segment->bytes);
}

static void set_start(struct gc_pool *pool, uint64_t address, struct gc_block *block)
{
    gc_pagemap_set(pool->shared.pagemap, address, block,
                   owner_of(gc_block_segment(block), address));
}

static void clear_start(struct gc_pool *pool, const struct gc_block *block)
{
    gc_pagemap_clear(pool->shared.pagemap, block->address,
                     owner_of(gc_block_segment(block), block->address));
}

static void link_after(struct gc_block *block, struct gc_block *added)
{
    added->previous = block;
    added->next = block->next;
    if (block->next != NULL)
        block->next->previous = added;
    block->next = added;
}

/* Splits `bytes` off the start of a free block of an arena, whose bounds the caller changes. */
static struct gc_block *split_before(struct gc_pool *pool, struct gc_block *free_block,
                                     uint64_t bytes)
{
    struct gc_block *block = gc_pool_pop_record_locked(pool);
    block->address = free_block->address;
    block->bytes = bytes;
    gc_block_set_state(block, GC_BLOCK_MAPPING);
    atomic_store_explicit(&block->segment, gc_block_segment(free_block), memory_order_release);
    block->next = free_block;
    block->previous = free_block->previous;
    if (block->previous != NULL)
        block->previous->next = block;
    else
        gc_block_segment(free_block)->first = block;
    free_block->previous = block;
    set_start(pool, block->address, block);
    set_start(pool, block->address + bytes, free_block);
    return block;
}

static void unlink_block(struct gc_block *block)
{
    struct gc_segment *segment = gc_block_segment(block);
    if (block->previous != NULL)
        block->previous->next = block->next;
    else
        segment->first = block->next;
    if (block->next != NULL)
        block->next->previous = block->previous;
}

static bool is_never_cut(const struct gc_segment *segment)
{
    return segment->size_class >= GC_CLASS_CUT_COUNT;
}

static uint64_t least_remainder(const struct gc_segment *segment)
{
    if (is_never_cut(segment))
        return UINT64_MAX;
    return segment->size_class != GC_CLASS_LARGE || segment->arena != NULL ? GC_SMALL_REMAINDER
                                                                           : GC_LARGE_REMAINDER;
}

struct gc_block *gc_pool_split_end_locked(struct gc_pool *pool, struct gc_block *block,
                                          uint64_t bytes)
{
    struct gc_block *rest = gc_pool_pop_record_locked(pool);
    rest->address = block->address + bytes;
    rest->bytes = block->bytes - bytes;
    gc_block_set_state(rest, GC_BLOCK_MAPPING);
    atomic_store_explicit(&rest->segment, gc_block_segment(block), memory_order_release);
    block->bytes = bytes;
    link_after(block, rest);
    set_start(pool, rest->address, rest);
    return rest;
}

struct gc_block *gc_pool_split_rest_locked(struct gc_pool *pool, struct gc_block *block,
                                           uint64_t bytes)
{
    return block->bytes - bytes >= least_remainder(gc_block_segment(block))
               ? gc_pool_split_end_locked(pool, block, bytes)
               : NULL;
}

void gc_pool_split_off_locked(struct gc_pool *pool, struct gc_block *block, uint64_t bytes)
{
    struct gc_block *rest = gc_pool_split_rest_locked(pool, block, bytes);
    if (rest != NULL)
        gc_pool_bin_locked(pool, rest, GC_FREE_PLAIN);
}

static void count_ordered(const struct gc_pool_shared *shared, uint64_t bytes)
{
    gc_stats_add_gauge(shared->ordered, bytes);
    for (int i = 0; i < GC_ORDERED_PEAK_COUNT; i++)
        gc_stats_add_gauge(&shared->ordered_peaks[i], bytes);
}

void gc_pool_uncount_ordered(const struct gc_pool_shared *shared, uint64_t bytes)
{
    gc_stats_sub_gauge(shared->ordered, bytes);
    for (int i = 0; i < GC_ORDERED_PEAK_COUNT; i++)
        gc_stats_sub_gauge(&shared->ordered_peaks[i], bytes);
}

void gc_pool_pin_locked(struct gc_pool *pool, struct gc_block *block)
{
    pool->pinned_count += !block->is_pinned;
    block->is_pinned = true;
    atomic_store_explicit(&block->tcache_number, 0, memory_order_relaxed);
}

void gc_pool_set_synchronous_locked(struct gc_pool *pool, struct gc_block *block, bool is_it)
{
    if (block->is_synchronous == is_it)
        return;
    block->is_synchronous = is_it;
    if (is_it)
        atomic_fetch_add_explicit(pool->shared.synchronous_count, 1, memory_order_relaxed);
    else
        atomic_fetch_sub_explicit(pool->shared.synchronous_count, 1, memory_order_relaxed);
    atomic_store_explicit(&block->tcache_number, 0, memory_order_relaxed);
}

void gc_pool_clear_flags_locked(struct gc_pool *pool, struct gc_block *block)
{
    gc_pool_set_synchronous_locked(pool, block, false);
    pool->pinned_count -= block->is_pinned;
    block->is_pinned = false;
    block->is_exported = false;
    block->is_spilled = false;
    block->is_held = false;
}

static bool lies_in_several(const struct gc_pool *pool, const struct gc_block *block)
{
    const struct gc_segment *segment = gc_block_segment(block);
    const uint64_t offset = block->address - segment->address;
    if (segment->arena == NULL)
        return false;
    const struct gc_mapping *mapping = segment->arena->slots[offset >> pool->pages.page_shift];
    const uint64_t end = ((offset + block->bytes - 1) >> pool->pages.page_shift) + 1;
    return mapping != NULL && gc_pages_end_of(mapping) < end;
}

bool gc_pool_may_serve_again_locked(const struct gc_pool *pool, const struct gc_block *block)
{
    return !gc_pool_wants_one_extent(pool, block->bytes) || !lies_in_several(pool, block);
}

/* The number of the context whose thread caches may take the block once it is freed; 0: none may.
 * Thread caches hold one kind of block per context, dedicated or not. */
static uint16_t tcache_number_of(const struct gc_pool *pool, const struct gc_block *block)
{
    const struct gc_segment *segment = gc_block_segment(block);
    const bool is_dedicated = segment->size_class == GC_CLASS_DEDICATED;
    const bool may_enter =
        pool->number != 0 &&
        block->bytes <= atomic_load_explicit(&pool->tcache_block_bytes, memory_order_relaxed) &&
        segment->size_class != GC_CLASS_UNCACHED && is_dedicated == pool->shared.is_dedicated &&
        (!is_dedicated || block->bytes - block->live.requested_bytes <= SLACK_MAX) &&
        (block->bytes < GC_PAGE_BYTES_MIN || gc_pool_may_serve_again_locked(pool, block));
    const unsigned large = block->bytes > GC_SMALL_MAX ? GC_BLOCK_LARGE : 0;
    return may_enter ? (uint16_t)(pool->number | large) : 0;
}

void gc_pool_make_live_locked(struct gc_pool *pool, struct gc_block *block,
                              const struct gc_alloc_spec *spec)
{
    GC_ASSERT(block->bytes >= spec->bytes);
    block->live.requested_bytes = spec->requested_bytes;
    block->live.id = gc_block_next_id(&pool->ids, pool->shared.next_block_id);
    block->api = spec->api;
    GC_ASSERT(!block->is_pinned && !block->is_synchronous && !block->is_exported);
    block->is_shared = false;
    block->is_spilled = false;
    block->is_ordered = spec->is_ordered;
    if (spec->is_ordered)
        count_ordered(&pool->shared, block->bytes);
    atomic_store_explicit(&block->tcache_number,
                          spec->is_ordered ? 0 : tcache_number_of(pool, block),
                          memory_order_relaxed);
    gc_block_set_state(block, GC_BLOCK_LIVE);
}

static struct gc_block *split_of_segment(struct gc_pool *pool, const struct gc_place *place,
                                         uint64_t bytes)
{
    struct gc_block *block = place->free_block;
    gc_pool_unbin_locked(pool, block);
    if (place->address > block->address) {
        struct gc_block *front = block;
        block = gc_pool_split_end_locked(pool, front, place->address - front->address);
        gc_pool_bin_locked(pool, front, GC_FREE_PLAIN);
    }
    gc_block_set_state(block, GC_BLOCK_MAPPING);
    gc_pool_split_off_locked(pool, block, bytes);
    return block;
}

/* A free block of an arena stays in its bins, with other bounds, unless all of it is taken. */
static struct gc_block *split_of_arena(struct gc_pool *pool, const struct gc_place *place,
                                       uint64_t bytes)
{
    struct gc_block *free_block = place->free_block;
    const struct gc_segment *segment = gc_block_segment(free_block);
    const enum gc_free_kind kind = free_block->free_kind;
    const uint64_t front_bytes = place->address - free_block->address;
    const uint64_t rest_bytes = free_block->bytes - front_bytes - bytes;
    if (front_bytes == 0 && rest_bytes == 0) {
        gc_pool_unbin_locked(pool, free_block);
        gc_block_set_state(free_block, GC_BLOCK_MAPPING);
        return free_block;
    }
    struct gc_bins *bins = bins_of(pool, segment, kind);
    if (front_bytes == 0) { /* the free block becomes the rest */
        struct gc_block *block = split_before(pool, free_block, bytes);
        gc_bins_resize(bins, free_block, place->address + bytes, rest_bytes);
        return block;
    }
    const uint64_t all_bytes = free_block->bytes;
    struct gc_block *block = gc_pool_split_end_locked(pool, free_block, front_bytes);
    free_block->bytes = all_bytes;
    gc_bins_resize(bins, free_block, free_block->address, front_bytes);
    if (rest_bytes > 0)
        gc_pool_bin_locked(pool, gc_pool_split_end_locked(pool, block, bytes), kind);
    return block;
}

struct gc_block *gc_pool_split_locked(struct gc_pool *pool, const struct gc_place *place,
                                      uint64_t bytes)
{
    return gc_block_segment(place->free_block)->arena == NULL ? split_of_segment(pool, place, bytes)
                                                              : split_of_arena(pool, place, bytes);
}

/* Removes the record of a block whose bytes a neighbour gets. Returns the bytes. */
static uint64_t remove_record(struct gc_pool *pool, struct gc_block *block)
{
    const uint64_t bytes = block->bytes;
    clear_start(pool, block);
    unlink_block(block);
    gc_pool_free_record_locked(pool, block);
    return bytes;
}

struct gc_block *gc_pool_split_unmapped_locked(struct gc_pool *pool, const struct gc_place *place)
{
    struct gc_block *block = place->free_block;
    if (block->free_kind == GC_FREE_UNMAPPED) {
        gc_pool_unbin_locked(pool, block);
        gc_block_set_state(block, GC_BLOCK_MAPPING);
        return block;
    }
    struct gc_block *unmapped = block->next;
    GC_ASSERT(unmapped->state == GC_BLOCK_FREE && unmapped->free_kind == GC_FREE_UNMAPPED);
    block = split_of_arena(pool, place, block->address + block->bytes - place->address);
    gc_pool_unbin_locked(pool, unmapped);
    block->bytes += remove_record(pool, unmapped);
    return block;
}

void gc_pool_return_unmapped_locked(struct gc_pool *pool, struct gc_block *block, uint64_t bytes)
{
    GC_ASSERT(block->state == GC_BLOCK_MAPPING);
    if (block->bytes > bytes)
        gc_pool_bin_locked(pool, gc_pool_split_end_locked(pool, block, bytes), GC_FREE_UNMAPPED);
}

static struct gc_block *mergeable(struct gc_block *neighbour, enum gc_free_kind kind)
{
    return neighbour != NULL && neighbour->state == GC_BLOCK_FREE &&
                   neighbour->free_kind == (uint8_t)kind && kind != GC_FREE_EXCLUDED
               ? neighbour
               : NULL;
}

void gc_pool_join_locked(struct gc_pool *pool, struct gc_block *block)
{
    block->bytes += remove_record(pool, block->next);
}

/* Coalesces the block with its free neighbours and bins the result. */
static void merge_of_segment(struct gc_pool *pool, struct gc_block *block)
{
    struct gc_block *next = mergeable(block->next, GC_FREE_PLAIN);
    struct gc_block *previous = mergeable(block->previous, GC_FREE_PLAIN);
    if (next != NULL) {
        gc_pool_unbin_locked(pool, next);
        gc_pool_join_locked(pool, block);
    }
    if (previous != NULL) {
        gc_pool_unbin_locked(pool, previous);
        gc_pool_join_locked(pool, previous);
        block = previous;
    }
    gc_pool_bin_locked(pool, block, GC_FREE_PLAIN);
}

/* As merge_of_segment; a neighbour stays in its bins, with other bounds. */
static void merge_of_arena(struct gc_pool *pool, struct gc_block *block, enum gc_free_kind kind)
{
    struct gc_bins *bins = bins_of(pool, gc_block_segment(block), kind);
    struct gc_block *next = mergeable(block->next, kind);
    struct gc_block *previous = mergeable(block->previous, kind);
    if (previous != NULL) {
        uint64_t bytes = previous->bytes + remove_record(pool, block);
        if (next != NULL) {
            gc_pool_unbin_locked(pool, next);
            bytes += remove_record(pool, next);
        }
        gc_bins_resize(bins, previous, previous->address, bytes);
    } else if (next != NULL) {
        const uint64_t address = block->address;
        const uint64_t bytes = block->bytes;
        clear_start(pool, next);
        set_start(pool, address, next); /* over the block's own */
        unlink_block(block);
        gc_pool_free_record_locked(pool, block);
        gc_bins_resize(bins, next, address, bytes + next->bytes);
    } else {
        gc_pool_bin_locked(pool, block, kind);
    }
}

void gc_pool_merge_locked(struct gc_pool *pool, struct gc_block *block, enum gc_free_kind kind)
{
    if (gc_block_segment(block)->arena == NULL)
        merge_of_segment(pool, block);
    else
        merge_of_arena(pool, block, kind);
}
