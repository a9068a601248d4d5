/* The pool's list of pending blocks: freed, and idle once their stamp is retired. */
#include "core/pool/pool.h"

#include "core/base/assert.h"
#include "core/base/bits.h"

#include <stddef.h>

void gc_pool_count_pending_locked(struct gc_pool *pool, const struct gc_block *block)
{
    pool->content.pending_bytes += block->bytes;
    pool->unfenced_bytes += block->bytes;
    pool->unfenced_count++;
    gc_gauge_add(pool->shared.pending, block->bytes);
}

void gc_pool_uncount_pending_locked(struct gc_pool *pool, const struct gc_block *block)
{
    pool->content.pending_bytes -= block->bytes;
    gc_gauge_sub(pool->shared.pending, block->bytes);
}

void gc_pool_push_pending_locked(struct gc_pool *pool, struct gc_block *block, uint64_t stamp)
{
    struct gc_block *last = pool->content.pending_last;
    gc_block_set_state(block, GC_BLOCK_PENDING);
    block->pending.next = NULL;
    /* A stamp that comes late is raised, so that the list stays in order: it waits a little longer.
     */
    block->pending.stamp = last == NULL ? stamp : gc_max_u64(stamp, last->pending.stamp);
    if (last != NULL)
        last->pending.next = block;
    else
        pool->content.pending_first = block;
    pool->content.pending_last = block;
    gc_pool_count_pending_locked(pool, block);
}

struct gc_pending gc_pool_take_pending_locked(struct gc_pool *pool, uint64_t retired)
{
    struct gc_pending taken = {NULL, NULL};
    struct gc_block *block = pool->content.pending_first;
    while (block != NULL && block->pending.stamp <= retired) {
        taken.last = block;
        block = block->pending.next;
    }
    if (taken.last != NULL) {
        taken.first = pool->content.pending_first;
        taken.last->pending.next = NULL;
        pool->content.pending_first = block;
        if (block == NULL)
            pool->content.pending_last = NULL;
    }
    gc_stream_take_retired_locked(pool, retired, &taken);
    return taken;
}

bool gc_pool_give_pending_locked(struct gc_pool *pool, struct gc_pending pending)
{
    bool any_once = false;
    struct gc_block *block = pending.first;
    while (block != NULL) {
        struct gc_block *next = block->pending.next;
        any_once |= gc_block_segment(block)->class == GC_CLASS_ONCE;
        gc_pool_uncount_pending_locked(pool, block);
        gc_pool_give_locked(pool, block);
        block = next;
    }
    return any_once;
}
