/* The end of a context.
 *
 * Begun before the driver is asked: what its pools have is hidden, so that no address of theirs is
 * known when the driver gives it to another context; then its door is closed. Finished after the
 * driver did it: all goes. Cancelled where it declined: what was hidden is shown again. */
#include "core/alloc/detach.h"
#include "core/backing/change.h"
#include "core/backing/range.h"
#include "core/base/assert.h"
#include "core/debug/debug.h"
#include "core/device/registry.h"
#include "core/direct/direct.h"
#include "core/reclaim/defer.h"
#include "core/reclaim/reclaim.h"

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
    struct gc_door *door = &record->head->door;
    if (!gc_door_claim(door))
        return false;
    const bool is_mine = gc_context_claim_record(record);
    if (is_mine)
        drop_record(record);
    gc_door_reopen(door);
    return is_mine;
}

/* ---- the end ---- */

/* Nothing has to be waited for: all work that could use it went with its contexts. */
static void empty_ordered(struct gc_context *ordered)
{
    for (struct gc_context *record = ordered; record != NULL;
         record = gc_context_next_record(record)) {
        struct gc_wait_set set;
        gc_pool_acquire_plain(&record->pool);
        const bool is_unused =
            gc_context_wait_begin_locked(record, &set) && set.count == 0 && set.everyone == NULL;
        gc_context_wait_end(&set);
        gc_pool_release(&record->pool);
        int ignored;
        if (is_unused && gc_fence_synchronize(record, GC_FOREVER, &ignored) == GC_OK) {
            gc_reuse_collect(record);
            gc_shortage_empty_pool(record);
        }
    }
}

/* The end of a context took peers away: memory of devices that no context uses any more goes back.
 */
static void empty_all_ordered(struct gc_core *core)
{
    for (int i = 0; i < GC_DEVICE_MAX; i++) {
        const struct gc_device *device = gc_core_find_device(core, i);
        if (device != NULL)
            empty_ordered(gc_device_ordered(device));
    }
}

struct gc_context *gc_core_end_begin(struct gc_core *core, uint64_t handle)
{
    struct gc_context *head = gc_core_find_context(core, handle);
    while (head != NULL && !gc_door_claim(&head->door))
        head = gc_core_find_context(core, handle); /* it went; another may have the handle now */
    if (head == NULL)
        return NULL;
    for (struct gc_context *record = head; record != NULL; record = gc_context_next_record(record))
        if (!head->is_device)
            gc_reuse_await_others(record);
    /* First, since who changes mappings may have to go in to end it. */
    for (struct gc_context *record = head; record != NULL; record = gc_context_next_record(record))
        gc_context_hide(record);
    gc_door_close(&head->door);
    gc_context_forget_streams(head);
    return head;
}

void gc_core_end_cancel(struct gc_context *head)
{
    for (struct gc_context *record = head; record != NULL; record = gc_context_next_record(record))
        gc_context_show(record);
    gc_door_reopen(&head->door);
}

/* The driver may give the handle to another context at any moment: what goes by the handle goes
 * while it is still known for this one, whose door others wait at. */
void gc_core_end_finish(struct gc_context *head)
{
    if (head->handle != 0) /* 0 marks records that outlive contexts */
        gc_tracker_remove_context(&head->core->tracker, head->handle, drop_direct, NULL);
    struct gc_context *record = gc_context_claim_handle(head);
    gc_door_remove(&head->door);
    for (; record != NULL; record = record->next_dropped)
        drop_record(record);
    gc_range_return_given_up(head);
    if (!head->is_device)
        empty_all_ordered(head->core);
}

void gc_core_drop_context(struct gc_core *core, uint64_t handle)
{
    struct gc_context *head = gc_core_end_begin(core, handle);
    if (head != NULL)
        gc_core_end_finish(head);
}
