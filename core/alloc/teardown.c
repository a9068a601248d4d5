/* The end of a context.
 *
 * Begun before the driver is asked: what its pools have is hidden, so that no address of theirs is
 * known when the driver gives it to another context; then its gate is closed. Finished after the
 * driver did it: all goes. Cancelled where it declined: what was hidden is shown again. */
#include "core/alloc/detach.h"
#include "core/backing/change.h"
#include "core/backing/range.h"
#include "core/base/assert.h"
#include "core/debug/debug.h"
#include "core/device/registry.h"

#include <stddef.h>

/* ---- dropping ---- */

/* Takes a block out of all accounts; the next of its segment is returned. What was live is kept
 * in `vanished`, linked by `previous`, until the lock is not held. */
static struct gc_block *drop_block_locked(struct gc_context *context, struct gc_block *block,
                                          struct gc_block **vanished)
{
    struct gc_pool *pool = &context->pool;
    struct gc_block *next = block->next;
    gc_pool_unmark_locked(pool, block);
    if (block->state == GC_BLOCK_PENDING)
        gc_gauge_sub(pool->shared.pending, block->bytes);
    /* A block that is being freed is settled by the thread that frees it. */
    if (block->state != GC_BLOCK_LIVE) {
        gc_pool_put_record_locked(pool, block);
        return next;
    }
    const struct gc_entry entry = gc_block_live_entry(block);
    gc_share_uncount_vanished(context->device, context->share, &entry);
    if (block->is_ordered)
        gc_pool_uncount_ordered(&pool->shared, entry.requested_bytes);
    atomic_store_explicit(&block->segment, NULL, memory_order_release);
    block->previous = *vanished;
    *vanished = block;
    return next;
}

static void put_vanished(struct gc_context *context, struct gc_block *block, bool is_told)
{
    while (block != NULL) {
        struct gc_block *next = block->previous;
        if (!is_told)
            gc_context_tell_block(context, block, true);
        gc_slab_put(context->pool.shared.blocks, block);
        block = next;
    }
}

static bool take_remains_locked(struct gc_pool *pool, void *remains)
{
    return gc_arena_take_remains_locked(pool, remains);
}

/* Their memory went with the driver's context. */
static void put_segments(struct gc_context *context, struct gc_segment *segment, bool is_told)
{
    while (segment != NULL) {
        struct gc_segment *next = segment->next;
        if (!is_told)
            gc_context_tell_segment(context, segment, true);
        gc_slab_put(&context->device->segments, segment);
        segment = next;
    }
}

/* Takes all segments out of the pool and the accounts; those of the driver's own memory are
 * returned. */
static struct gc_segment *drop_segments_locked(struct gc_context *context,
                                               struct gc_block **vanished)
{
    struct gc_pool *pool = &context->pool;
    struct gc_segment *gone = NULL;
    struct gc_segment *next;
    for (struct gc_segment *segment = pool->segments; segment != NULL; segment = next) {
        next = segment->next;
        if (segment->is_idle)
            gc_pool_sub_idle(&pool->shared, segment->bytes);
        for (struct gc_block *block = segment->first; block != NULL;)
            block = drop_block_locked(context, block, vanished);
        atomic_store_explicit(&segment->pool, NULL, memory_order_release);
        if (segment->arena != NULL)
            continue; /* buried with the pages */
        gc_context_release(context, segment->bytes);
        segment->next = gone;
        gone = segment;
    }
    gc_pool_empty_lists_locked(pool);
    return gone;
}

static void put_spares_locked(struct gc_pool *pool)
{
    while (pool->spares != NULL) {
        struct gc_block *record = pool->spares;
        pool->spares = record->next;
        gc_slab_put(pool->shared.blocks, record);
    }
    pool->spare_count = 0;
}

/* Empties the pool for good. Mapped memory does not go with the driver's context. */
static void drop_pool(struct gc_context *context)
{
    struct gc_pool *pool = &context->pool;
    struct gc_arena_remains remains;
    gc_context_stop_and_lock(context, take_remains_locked, &remains);
    struct gc_pool_hidden *hidden = pool->hidden;
    if (hidden != NULL)
        gc_pool_move_back_locked(pool, hidden);
    else
        gc_pool_set_known_locked(pool, false);
    pool->hidden = NULL;
    pool->is_dropped = true;
    struct gc_block *vanished = NULL;
    struct gc_segment *gone = drop_segments_locked(context, &vanished);
    put_spares_locked(pool);
    context->peer_count = 0;
    gc_context_unlock_and_resume(context);
    gc_context_discard_hidden(context->core, hidden);
    put_vanished(context, vanished, hidden != NULL);
    gc_fence_forget(context);
    put_segments(context, gone, hidden != NULL);
    gc_arena_bury(context, &remains);
}

static void drop_direct(void *argument, const struct gc_direct *direct)
{
    (void)argument;
    gc_direct_vanished(direct);
}

static void drop_record(struct gc_context *record)
{
    drop_pool(record);
    if (record->core->debug != NULL)
        gc_debug_drop_context(record);
}

/* Nobody means to end the context meanwhile, who would hide what goes here. */
bool gc_context_drop_record(struct gc_context *record)
{
    struct gc_gate *gate = &record->head->gate;
    if (!gc_gate_claim(gate))
        return false;
    const bool is_mine = gc_context_claim_record(record);
    if (is_mine)
        drop_record(record);
    gc_gate_set(gate, GC_GATE_OPEN);
    return is_mine;
}

/* ---- the end ---- */

struct gc_context *gc_core_end_begin(struct gc_core *core, uint64_t handle)
{
    struct gc_context *head = gc_core_find_context(core, handle);
    while (head != NULL && !gc_gate_claim(&head->gate))
        head = gc_core_find_context(core, handle); /* it went; another may have the handle now */
    if (head == NULL)
        return NULL;
    for (struct gc_context *record = head; record != NULL; record = gc_context_next_record(record))
        if (!head->is_device)
            gc_reuse_await_others(record);
    /* First, since who changes mappings may have to go in to end it. */
    for (struct gc_context *record = head; record != NULL; record = gc_context_next_record(record))
        gc_context_hide(record);
    gc_gate_close(&head->gate);
    gc_context_forget_streams(head);
    return head;
}

void gc_core_end_cancel(struct gc_context *head)
{
    for (struct gc_context *record = head; record != NULL; record = gc_context_next_record(record))
        gc_context_show(record);
    gc_gate_set(&head->gate, GC_GATE_OPEN);
}

/* The driver may give the handle to another context at any moment: what goes by the handle goes
 * while it is still known for this one, whose gate other threads wait at. */
void gc_core_end_finish(struct gc_context *head)
{
    if (head->handle != 0) /* 0 marks records that outlive contexts */
        gc_tracker_remove_context(&head->core->tracker, head->handle, drop_direct, NULL);
    struct gc_context *record = gc_context_claim_handle(head);
    gc_gate_set(&head->gate, GC_GATE_GONE);
    for (; record != NULL; record = record->next_dropped)
        drop_record(record);
    gc_range_return_given_up(head);
    if (!head->is_device)
        gc_contexts_empty_ordered(head->core);
}

void gc_core_drop_context(struct gc_core *core, uint64_t handle)
{
    struct gc_context *head = gc_core_end_begin(core, handle);
    if (head != NULL)
        gc_core_end_finish(head);
}
