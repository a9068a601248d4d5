/* Segments of a pool: added, removed, put back, given away.
 *
 * `segment` of a block and `pool` of a segment are stored with release: the partners are the
 * acquires in block.c's lock_pool_of, which follows them without a lock. */
#include "core/pool/pool_block.h"

#include "core/base/assert.h"

#include <stddef.h>

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
