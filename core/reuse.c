/* How freed memory becomes free memory: reuse `sync`.
 *
 * A free marks its block FREEING, so that no second free of it gets through, and waits outside the
 * lock until all work submitted to the context and its peers before is done. Then the block, and
 * what was pending before that wait began, is idle and goes into the bins. If the wait fails the
 * block is live as before.
 *
 * While one of these contexts captures nothing may be waited for: the block becomes pending. The
 * next free, allocation miss or retirement after the capture ends it. */
#include "core/check.h"
#include "core/instance.h"

#include <stddef.h>

/* Asks all of the set; what was dropped meanwhile has no work any more. */
static enum gc_status wait_idle(const struct gc_wait_set *set, int *driver_code)
{
    GC_ASSERT(gc_lock_held_count() == 0);
    for (uint32_t i = 0; i < set->count; i++) {
        struct gc_context *context = set->contexts[i];
        const struct gc_driver *driver = &context->core->driver;
        if (gc_context_is_dropped(context))
            continue;
        gc_counter_add(&context->device->stats.fence_count, 1);
        const int code = driver->synchronize(driver->self, context->handle);
        if (code != 0 && !gc_context_is_dropped(context)) {
            atomic_store_explicit(&context->is_suspect, true, memory_order_relaxed);
            *driver_code = code;
            return GC_DRIVER;
        }
    }
    return GC_OK;
}

/* Gives back the dedicated segments that became idle with what was pending. */
static void give_back_dedicated(struct gc_context *context)
{
    struct gc_pool *pool = &context->pool;
    bool refused = false;
    while (!refused) {
        struct gc_block *block = NULL;
        gc_device_give_back_begin(context->device);
        gc_pool_acquire_plain(pool);
        struct gc_segment *segment = pool->idle_oldest;
        while (segment != NULL && !segment->is_dedicated)
            segment = segment->idle_next;
        if (segment != NULL)
            block = gc_pool_remove_locked(pool, segment);
        gc_pool_release(pool);
        if (segment != NULL)
            refused = gc_segment_give_back(context, segment, block, NULL) != 0;
        gc_device_give_back_end(context->device);
        if (segment == NULL)
            return;
    }
}

/* Ends the wait for pending blocks that were taken out before it. */
static void settle_pending(struct gc_context *context, struct gc_pending pending, bool is_idle)
{
    struct gc_pool *pool = &context->pool;
    bool any_dedicated = false;
    if (pending.first == NULL)
        return;
    gc_pool_acquire_plain(pool);
    if (!pool->is_dropped && is_idle)
        any_dedicated = gc_pool_give_pending_locked(pool, pending);
    else if (!pool->is_dropped)
        gc_pool_return_pending_locked(pool, pending);
    gc_pool_release(pool);
    if (any_dedicated)
        give_back_dedicated(context);
}

static void trim_to_threshold(struct gc_device *device)
{
    const uint64_t keep_bytes = gc_device_keep_bytes(device);
    if (gc_device_idle_bytes(device) > keep_bytes)
        gc_shortage_give_back(device, keep_bytes, UINT64_MAX);
}

/* The program's free is done, whenever the memory becomes idle. */
static enum gc_status free_later_unlock(struct gc_context *context, struct gc_block *block,
                                        const struct gc_entry *entry)
{
    struct gc_pool *pool = &context->pool;
    block->state = GC_BLOCK_FREEING; /* keeps it away from others while it is noted */
    gc_pool_release(pool);
    gc_device_note_free(context->device, entry);
    gc_pool_acquire_plain(pool);
    if (!pool->is_dropped)
        gc_pool_push_pending_locked(pool, block);
    gc_pool_release(pool);
    return GC_OK;
}

/* The block is idle, or the driver waits itself: its segment goes back. */
static enum gc_status free_dedicated(struct gc_context *context, struct gc_block *block,
                                     const struct gc_entry *entry, int *driver_code)
{
    struct gc_device *device = context->device;
    struct gc_pool *pool = &context->pool;
    struct gc_segment *segment = NULL;
    int code = 0;
    gc_device_note_free(device, entry);
    gc_device_give_back_begin(device);
    gc_pool_acquire_plain(pool);
    if (!pool->is_dropped) {
        segment = atomic_load_explicit(&block->segment, memory_order_relaxed);
        gc_pool_remove_locked(pool, segment);
    }
    gc_pool_release(pool);
    if (segment != NULL)
        code = gc_segment_give_back(context, segment, block, entry);
    gc_device_give_back_end(device);
    if (code == 0) {
        if (context->core->mode != GC_MODE_CACHE)
            gc_reuse_resolve(context); /* nothing else would look at what captures left */
        return GC_OK;
    }
    gc_device_trace(device, GC_TRACE_ALLOC, entry);
    *driver_code = code;
    return GC_DRIVER;
}

static void free_pooled(struct gc_context *context, struct gc_block *block,
                        const struct gc_entry *entry)
{
    struct gc_pool *pool = &context->pool;
    gc_device_note_free(context->device, entry);
    gc_pool_acquire_plain(pool);
    if (!pool->is_dropped)
        gc_pool_give_locked(pool, block);
    gc_pool_release(pool);
}

/* The wait failed: the program still has the block, unless its context went. */
static void revive(struct gc_context *context, struct gc_block *block, const struct gc_entry *entry)
{
    struct gc_pool *pool = &context->pool;
    gc_pool_acquire_plain(pool);
    const bool alive = !pool->is_dropped;
    if (alive)
        block->state = GC_BLOCK_LIVE;
    gc_pool_release(pool);
    if (!alive)
        gc_device_note_vanished(context->device, entry);
}

enum gc_status gc_reuse_free_unlock(struct gc_context *context, struct gc_block *block,
                                    int *driver_code)
{
    struct gc_pool *pool = &context->pool;
    struct gc_pending pending = {NULL, NULL};
    struct gc_wait_set set = {.count = 0};
    const bool is_dedicated =
        atomic_load_explicit(&block->segment, memory_order_relaxed)->is_dedicated;
    const struct gc_entry entry = {
        .address = block->address,
        .requested_bytes = block->live.requested_bytes,
        .bytes = block->bytes,
        .api = block->api,
    };
    if (!gc_context_wait_begin_locked(context, &set))
        return free_later_unlock(context, block, &entry);
    block->state = GC_BLOCK_FREEING;
    if (context->core->mode == GC_MODE_CACHE)
        pending = gc_pool_take_pending_locked(pool, pool->epoch);
    else
        gc_context_wait_end(&set); /* the driver's own free waits, as it would without us */
    gc_pool_release(pool);

    const enum gc_status status = wait_idle(&set, driver_code);
    gc_context_wait_end(&set);
    settle_pending(context, pending, status == GC_OK);
    if (status != GC_OK) {
        revive(context, block, &entry);
        return status;
    }
    if (is_dedicated)
        return free_dedicated(context, block, &entry, driver_code);
    free_pooled(context, block, &entry);
    trim_to_threshold(context->device);
    return GC_OK;
}

void gc_reuse_note_handed(struct gc_context *context)
{
    trim_to_threshold(context->device);
}

bool gc_reuse_resolve(struct gc_context *context)
{
    struct gc_pool *pool = &context->pool;
    struct gc_pending pending = {NULL, NULL};
    struct gc_wait_set set = {.count = 0};
    int ignored;
    gc_pool_acquire_plain(pool);
    if (pool->pending_first != NULL && gc_context_wait_begin_locked(context, &set))
        pending = gc_pool_take_pending_locked(pool, pool->epoch);
    gc_pool_release(pool);
    if (pending.first == NULL) {
        gc_context_wait_end(&set);
        return false;
    }
    const enum gc_status status = wait_idle(&set, &ignored);
    gc_context_wait_end(&set);
    settle_pending(context, pending, status == GC_OK);
    return status == GC_OK;
}

void gc_reuse_retire(struct gc_context *context, uint64_t epoch)
{
    struct gc_pool *pool = &context->pool;
    struct gc_pending pending = {NULL, NULL};
    struct gc_wait_set set;
    gc_pool_acquire_plain(pool);
    /* A peer was not waited for, and in a capture nothing is known of what was captured. */
    if (gc_context_wait_begin_locked(context, &set) && set.count == 1)
        pending = gc_pool_take_pending_locked(pool, epoch);
    gc_context_wait_end(&set);
    gc_pool_release(pool);
    settle_pending(context, pending, true);
    if (pending.first != NULL)
        trim_to_threshold(context->device);
}

bool gc_reuse_quiesce(struct gc_context *context)
{
    /* What is in the bins was waited for. */
    return !gc_context_is_capturing(context);
}
