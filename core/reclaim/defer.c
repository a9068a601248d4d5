/* Deferred frees: epoch-based reclamation, where an epoch is the time between two fences (device
 * events) and completes when a fence behind its work does.
 *
 * Reuse `fence`: a free never waits. The block gets the current epoch (core/device/submit.h). If
 * that has completed, or in single-stream mode, the block goes into the bins at once, else to the
 * pool's pending list, by epoch. Fences (core/device/fence.h) are recorded when enough is pending
 * or memory is wanted; blocks whose epoch they complete are collected into the bins. Bound: one
 * fence per FENCE_COUNT blocks or 1/FENCE_DIVISOR of the device.
 *
 * Reuse `sync`: a free sets its block FREEING, so that a second free is refused, and waits without
 * the lock until all work submitted before to the context and its peers has completed. If the wait
 * fails the block is live again. The block is pending instead during a capture, when nothing may be
 * waited for, and after a free in a stream's order, which never waits.
 *
 * In mode `track`, and for memory allocated beside a capture (core/alloc/alloc.c), each block is a
 * driver allocation, and the driver's own free has its usual effect. */
#include "core/reclaim/defer.h"
#include "core/backing/segment.h"
#include "core/backing/spill.h"
#include "core/base/assert.h"
#include "core/base/bits.h"
#include "core/debug/debug.h"
#include "core/device/lookup.h"
#include "core/device/registry.h"
#include "core/device/wait.h"
#include "core/reclaim/release.h"
#include "core/reclaim/tcache.h"

#include <stddef.h>
#include <time.h>

/* A fence is recorded once so many blocks, or this fraction of the device, became pending since the
 * last one: pending memory stays small, and a program makes less than one call per 100 frees. */
#define FENCE_COUNT 512
#define FENCE_DIVISOR 16
/* While more than this fraction of the device is pending, an allocation waits for pending blocks
 * first; for a bounded time, since the work may last as long as the program. */
#define PENDING_WAIT_DIVISOR 8
#define PENDING_WAIT_NS UINT64_C(250000000)
/* Fences are polled again after misses that sum to this fraction of the device. */
#define POLL_DIVISOR 2048

/* Removes the longest idle uncached segment from the pool. */
static struct gc_segment *remove_uncached(struct gc_context *context, struct gc_block **block)
{
    struct gc_pool *pool = &context->pool;
    gc_pool_acquire_plain(pool);
    struct gc_segment *segment = pool->content.idle_oldest;
    while (segment != NULL && segment->size_class != GC_CLASS_UNCACHED)
        segment = segment->idle_next;
    if (segment != NULL)
        *block = gc_pool_remove_locked(pool, segment);
    gc_pool_release(pool);
    return segment;
}

void gc_defer_release_uncached(struct gc_context *context)
{
    bool goes_on = true;
    while (goes_on) {
        struct gc_block *block = NULL;
        gc_device_release_begin(context->device, context->quota);
        gc_capture_relax_begin(context->core);
        struct gc_segment *segment = remove_uncached(context, &block);
        goes_on = segment != NULL && gc_segment_release(context, segment, block, NULL) == 0;
        gc_capture_relax_end(context->core);
        gc_device_release_end(context->device, context->quota);
    }
    gc_spill_collect(context);
}

/* ---- pending memory ---- */

bool gc_defer_collect(struct gc_context *context)
{
    struct gc_pool *pool = &context->pool;
    bool any_uncached = false;
    gc_pool_acquire_plain(pool);
    const struct gc_pending pending = gc_pending_remove_locked(
        pool, atomic_load_explicit(&context->completed, memory_order_acquire));
    if (pending.first != NULL)
        any_uncached = gc_pending_free_locked(pool, pending) || pool->pages.hosted != NULL;
    gc_pool_release(pool);
    if (any_uncached)
        gc_defer_release_uncached(context);
    if (pending.first == NULL)
        return false;
    gc_device_clear_exhausted(context->device);
    gc_release_trim(context);
    return true;
}

/* A snapshot. */
struct backlog {
    uint64_t bytes;
    uint64_t unfenced_bytes;
    uint64_t unfenced_count;
    uint32_t open_fences;
};

static struct backlog read_backlog(struct gc_context *context)
{
    struct gc_pool *pool = &context->pool;
    gc_pool_acquire_plain(pool);
    const struct backlog backlog = {
        .bytes = pool->content.pending_bytes,
        .unfenced_bytes = pool->unfenced_bytes,
        .unfenced_count = pool->unfenced_count,
        .open_fences = pool->is_dropped ? 0 : context->fences->count,
    };
    gc_pool_release(pool);
    return backlog;
}

/* A fraction of the most that the context may hold. */
static uint64_t fraction_of(const struct gc_context *context, uint64_t divisor)
{
    return gc_quota_total_bytes(context->device, context->quota) / divisor;
}

static bool is_synchronous(const struct gc_context *context)
{
    return context->core->options->reuse == GC_REUSE_SYNC;
}

void gc_defer_poll(struct gc_context *context)
{
    if (read_backlog(context).bytes == 0 || gc_defer_collect(context))
        return;
    gc_fence_record(context);
    if (gc_fence_poll(context))
        gc_defer_collect(context);
}

/* Polls the streams one by one, while a fence behind all of them has not completed. */
static bool poll_streams(struct gc_context *context)
{
    bool ignored = false;
    if (gc_fence_poll_streams(context, 0, &ignored) && gc_defer_collect(context))
        return true;
    gc_fence_record_streams(context, GC_STREAM_NONE);
    return false;
}

static bool wait_for_streams(struct gc_context *context, uint64_t limit_ns, bool *is_under_way)
{
    gc_fence_record_streams(context, GC_STREAM_NONE);
    const bool is_passed = gc_fence_poll_streams(context, limit_ns, is_under_way);
    if (is_passed && gc_defer_collect(context))
        return true;
    *is_under_way |= is_passed;
    return false;
}

bool gc_defer_wait_oldest(struct gc_context *context, uint64_t limit_ns, bool *is_under_way)
{
    const struct backlog backlog = read_backlog(context);
    if (backlog.bytes == 0)
        return false;
    if (backlog.open_fences == 0)
        gc_fence_record(context);
    const bool is_passed = gc_fence_wait_oldest(context, limit_ns, is_under_way);
    if (is_passed && gc_defer_collect(context))
        return true;
    /* A fence completed, but the pending blocks have later epochs. */
    *is_under_way |= is_passed;
    return wait_for_streams(context, *is_under_way ? 0 : gc_min_u64(limit_ns, GC_RECLAIM_STEP_NS),
                            is_under_way);
}

/* Waits for all pending blocks, for about limit_ns. *is_exhausted: limit_ns has passed. */
static bool wait_out(struct gc_context *context, uint64_t limit_ns, bool *is_exhausted)
{
    const uint64_t start_ns = gc_core_now_ns(context->core);
    bool any = false;
    bool goes_on = true;
    *is_exhausted = false;
    while (goes_on && !*is_exhausted && read_backlog(context).bytes > 0) {
        bool is_under_way = false;
        const bool is_freed =
            gc_defer_wait_oldest(context, gc_min_u64(limit_ns, GC_RECLAIM_STEP_NS), &is_under_way);
        any |= is_freed;
        goes_on = is_freed || is_under_way;
        *is_exhausted = gc_core_now_ns(context->core) - start_ns >= limit_ns;
    }
    return any;
}

/* The driver had no memory for the last fence: its synchronisation needs none. */
static bool is_fence_refused(struct gc_context *context)
{
    gc_pool_acquire_plain(&context->pool);
    const bool is_refused =
        !context->pool.is_dropped &&
        atomic_load_explicit(&context->fences->is_refused, memory_order_relaxed);
    gc_pool_release(&context->pool);
    return is_refused;
}

static bool has_no_fences(const struct gc_context *context)
{
    return context->core->driver.fence_record == NULL || gc_context_is_fenceless(context) ||
           context->is_crowded;
}

bool gc_defer_drain(struct gc_context *context, uint64_t limit_ns)
{
    bool is_exhausted;
    int ignored;
    const bool any = wait_out(context, limit_ns, &is_exhausted);
    if (is_exhausted || read_backlog(context).bytes == 0)
        return any;
    /* The last way of a request: as long as the plain driver's free would have waited. */
    if (!has_no_fences(context) && is_fence_refused(context) && limit_ns > GC_RELIEF_WAIT_NS)
        limit_ns = GC_FOREVER;
    else if (!has_no_fences(context))
        return any;
    return gc_fence_synchronize(context, limit_ns, &ignored) == GC_OK && gc_defer_collect(context);
}

/* Without fences: waits for all work, as the driver's own free does. */
static enum gc_status wait_all(struct gc_context *context, int *driver_code)
{
    const enum gc_status status = gc_fence_synchronize(context, GC_FOREVER, driver_code);
    if (status == GC_OK)
        gc_defer_collect(context);
    return status;
}

/* Whether only work of `waited`'s driver context may use the context's memory. A snapshot. */
static bool is_all_of(struct gc_context *context, const struct gc_context *waited)
{
    gc_pool_acquire_plain(&context->pool);
    bool is_all = !context->is_crowded && (context->is_device || context->head == waited->head);
    for (uint32_t i = 0; i < context->peer_count; i++)
        is_all &=
            gc_context_is_dropped(context->peers[i]) || context->peers[i]->head == waited->head;
    gc_pool_release(&context->pool);
    for (const struct gc_context *roaming = gc_context_first_roaming(context->core);
         roaming != NULL; roaming = gc_context_next_roaming(roaming))
        is_all &= roaming == waited->head;
    return is_all;
}

/* During a capture no fence can be recorded behind later frees: waits until it ends. Bounded, since
 * the waiting thread may be the one that captures. */
static void wait_captures(struct gc_context *context)
{
    const struct timespec moment = {0, 1000000};
    const uint64_t end_ns = gc_core_now_ns(context->core) + GC_RECLAIM_WAIT_NS;
    while (read_backlog(context).bytes > 0 && gc_capture_is_of_context(context) &&
           gc_core_now_ns(context->core) < end_ns) {
        nanosleep(&moment, NULL);
        gc_defer_poll(context);
    }
}

void gc_defer_wait_peers(struct gc_context *context)
{
    bool is_exhausted;
    int ignored;
    if (is_all_of(context, context))
        return;
    gc_tcache_flush_device(context->device, NULL);
    wait_captures(context);
    gc_tcache_flush_device(context->device, NULL);
    (void)wait_out(context, GC_RECLAIM_WAIT_NS, &is_exhausted);
    if (!is_exhausted && read_backlog(context).bytes > 0) /* no fence could be recorded */
        (void)wait_all(context, &ignored);
}

/* Too much is pending: waits for the oldest blocks, but only once while the same fence is the
 * oldest (stuck_epoch). If their work lasts longer the request gets new memory, or waits in reclaim
 * (reclaim.c). */
static bool wait_a_while(struct gc_context *context)
{
    const uint64_t oldest = gc_fence_oldest_epoch(context);
    bool is_under_way = false;
    if (oldest != 0 && oldest == atomic_load_explicit(&context->stuck_epoch, memory_order_relaxed))
        return false;
    const bool any = gc_defer_wait_oldest(context, PENDING_WAIT_NS, &is_under_way);
    if (is_under_way)
        atomic_store_explicit(&context->stuck_epoch, gc_fence_oldest_epoch(context),
                              memory_order_relaxed);
    return any || (!is_under_way && gc_defer_drain(context, PENDING_WAIT_NS));
}

/* Polling is expensive if many small requests miss while the device lags behind: fences are polled
 * again once 1/POLL_DIVISOR of the device has been missed. */
static bool is_poll_due(struct gc_context *context, uint64_t wanted_bytes)
{
    gc_pool_acquire_plain(&context->pool);
    struct gc_fences *fences = context->fences;
    if (context->pool.is_dropped) {
        gc_pool_release(&context->pool);
        return false;
    }
    fences->missed_bytes = gc_min_u64(UINT64_MAX - wanted_bytes, fences->missed_bytes);
    fences->missed_bytes += wanted_bytes;
    const bool is_due = fences->missed_bytes >= fraction_of(context, POLL_DIVISOR);
    if (is_due)
        fences->missed_bytes = 0;
    gc_pool_release(&context->pool);
    return is_due;
}

bool gc_defer_reclaim(struct gc_context *context, uint64_t wanted_bytes)
{
    struct backlog backlog = read_backlog(context);
    if (backlog.bytes == 0)
        return false;
    if (gc_defer_collect(context))
        return true;
    if (backlog.open_fences > 0 && is_poll_due(context, wanted_bytes) &&
        ((gc_fence_poll(context) && gc_defer_collect(context)) || poll_streams(context)))
        return true;
    backlog = read_backlog(context);
    if (backlog.bytes > fraction_of(context, PENDING_WAIT_DIVISOR))
        return wait_a_while(context);
    if (backlog.open_fences == 0 && backlog.unfenced_count > 0)
        gc_fence_record(context); /* for the next miss */
    return false;
}

/* Whether enough became pending since this function last returned true. If no fence can be recorded
 * (the ring is full, or a capture is on) trying at each free would be expensive. */
static bool is_fence_due(struct gc_context *context)
{
    struct gc_pool *pool = &context->pool;
    gc_pool_acquire_plain(pool);
    struct gc_fences *fences = context->fences;
    /* The first fence shows whether fences work; not tried in conservative mode, in which a capture
     * may go unnoticed. */
    const bool is_first =
        !pool->is_dropped && !atomic_load_explicit(&fences->is_tried, memory_order_relaxed) &&
        !atomic_load_explicit(&context->core->work.is_conservative, memory_order_relaxed);
    const bool is_due =
        !pool->is_dropped &&
        (is_first || pool->unfenced_count - fences->considered_count >= FENCE_COUNT ||
         pool->unfenced_bytes - fences->considered_bytes >= fraction_of(context, FENCE_DIVISOR));
    if (is_due) {
        fences->considered_count = pool->unfenced_count;
        fences->considered_bytes = pool->unfenced_bytes;
    }
    gc_pool_release(pool);
    return is_due;
}

/* Blocks became pending: records a fence if one is due. */
static void consider_fence(struct gc_context *context)
{
    if (!is_fence_due(context))
        return;
    if (gc_fence_poll(context))
        gc_defer_collect(context);
    else if (read_backlog(context).open_fences > 0)
        poll_streams(context);
    gc_fence_record(context);
}

void gc_defer_on_flush(struct gc_context *context)
{
    gc_device_clear_exhausted(context->device);
    consider_fence(context);
    gc_release_trim(context);
}

/* A synchronisation that succeeded counts during a capture, too: captured work is not submitted
 * yet. */
void gc_defer_complete(struct gc_context *context, const struct gc_context *waited, uint64_t epoch)
{
    const bool has_completed = is_all_of(context, waited);
    if (!has_completed)
        return;
    gc_context_raise_completed(context, epoch);
    gc_defer_collect(context);
}

/* ---- frees ---- */

/* Whether another process has the block open: then the block stays FREEING, and gc_defer_free_held
 * ends the free. */
static bool hold_locked(struct gc_context *context, struct gc_block *block)
{
    block->is_held = block->is_exported && gc_opens_has(&context->core->opens, 0, block->live.id);
    return block->is_held;
}

/* The free is counted at once; the memory becomes idle later. */
static enum gc_status free_pending(struct gc_context *context, struct gc_block *block,
                                   const struct gc_entry *entry, struct gc_context *worker,
                                   uint64_t epoch)
{
    struct gc_pool *pool = &context->pool;
    gc_context_count_free(context, entry);
    gc_wait_lock_after_teardown(context);
    const bool is_going = !pool->is_dropped && !hold_locked(context, block);
    if (is_going)
        gc_pool_clear_flags_locked(pool, block);
    /* Into the stream's list if the block was freed in that order and no other stream uses it. */
    if (is_going && (entry->stream == 0 ||
                     !gc_pending_push_stream_locked(pool, worker, entry->stream, block, epoch)))
        gc_pending_push_locked(pool, block, epoch);
    gc_pool_release(pool);
    gc_device_clear_exhausted(context->device);
    consider_fence(context);
    return GC_OK;
}

/* The block is idle, or the driver's free waits: releases its segment. */
static enum gc_status free_uncached(struct gc_context *context, struct gc_block *block,
                                    const struct gc_entry *entry, int *driver_code)
{
    struct gc_device *device = context->device;
    struct gc_pool *pool = &context->pool;
    struct gc_segment *segment = NULL;
    int code = 0;
    gc_context_count_free(context, entry);
    gc_device_release_begin(device, context->quota);
    gc_wait_lock_after_teardown(context);
    if (!pool->is_dropped) {
        gc_pool_clear_flags_locked(pool, block);
        segment = gc_block_segment(block);
        gc_pool_remove_locked(pool, segment);
    }
    gc_pool_release(pool);
    if (segment != NULL)
        code = gc_segment_release(context, segment, block, entry);
    gc_device_release_end(device, context->quota);
    if (code == 0)
        return GC_OK;
    gc_device_observe(device, GC_TRACE_ALLOC, entry);
    *driver_code = code;
    return GC_DRIVER;
}

static void free_pooled(struct gc_context *context, struct gc_block *block,
                        const struct gc_entry *entry)
{
    struct gc_pool *pool = &context->pool;
    gc_context_count_free(context, entry);
    gc_wait_lock_after_teardown(context);
    if (!pool->is_dropped && !hold_locked(context, block)) {
        gc_pool_clear_flags_locked(pool, block);
        gc_pool_free_locked(pool, block);
    }
    gc_pool_release(pool);
}

/* Work of this process that was submitted since the free may use the memory that the other process
 * wrote: the block gets the epoch of now. */
void gc_defer_free_held(struct gc_core *core, uint64_t address, uint64_t id)
{
    struct gc_block *block;
    if (gc_lookup_lock_block(core, address, &block) != GC_OK)
        return; /* destroyed with its context */
    struct gc_pool *pool = gc_block_pool(block);
    struct gc_context *context = pool->context;
    const bool is_going = block->address == address && block->is_held && block->live.id == id &&
                          !gc_opens_has(&core->opens, 0, id);
    if (is_going) {
        gc_pool_clear_flags_locked(pool, block);
        gc_pending_push_locked(pool, block, gc_submit_epoch_of_free(&core->work));
    }
    gc_pool_release(pool);
    if (!is_going)
        return;
    gc_device_clear_exhausted(context->device);
    gc_defer_poll(context);
}

/* The wait failed: the block is live again, unless its context was destroyed. It is live in a pool
 * whose teardown is undecided, too: the teardown counts it, or the program may free it later. */
static void revive(struct gc_context *context, struct gc_block *block, const struct gc_entry *entry)
{
    struct gc_pool *pool = &context->pool;
    gc_wait_lock_after_teardown(context);
    const bool alive = !pool->is_dropped || pool->detached != NULL;
    if (alive)
        gc_block_set_state(block, GC_BLOCK_LIVE);
    gc_pool_release(pool);
    if (!alive)
        gc_context_count_destroyed(context, entry);
}

static enum gc_status free_waiting(struct gc_context *context, struct gc_block *block,
                                   const struct gc_entry *entry, bool is_uncached, int *driver_code)
{
    const enum gc_status status = wait_all(context, driver_code);
    if (status == GC_CAPTURING)
        return free_pending(context, block, entry, context->head,
                            gc_submit_epoch_of_free(&context->core->work));
    if (status != GC_OK) {
        revive(context, block, entry);
        return status;
    }
    if (is_uncached)
        return free_uncached(context, block, entry, driver_code);
    const bool is_moved = block->is_spilled;
    free_pooled(context, block, entry);
    if (is_moved)
        gc_spill_collect(context);
    gc_release_trim(context);
    return GC_OK;
}

/* Memory in a device's pool: freed_context (core/device/submit.h) is set to a driver context of the
 * device that exists now, for a fence in the single stream; a context made later does not know that
 * stream. */
static bool may_reuse(struct gc_context *context, uint64_t epoch)
{
    struct gc_submissions *work = &context->core->work;
    const bool may = gc_context_may_reuse(context, work, epoch);
    if (context->is_device &&
        atomic_load_explicit(&work->freed_context, memory_order_relaxed) == context)
        atomic_store_explicit(&work->freed_context, gc_context_worker(context),
                              memory_order_seq_cst);
    return may;
}

/* Counts the free and bins the block, if it may be reused at once and nothing is observed: one lock
 * for the look-up, the figures and the bins. False: nothing is changed. */
static bool free_locked(struct gc_context *context, struct gc_block *block, uint64_t stream,
                        const struct gc_entry *entry)
{
    struct gc_submissions *work = &context->core->work;
    struct gc_pool *pool = &context->pool;
    if (context->core->is_observed || context->core->debug != NULL || context->is_device ||
        block->is_exported || stream != GC_STREAM_NONE ||
        !gc_context_may_reuse(context, work, gc_submit_epoch_of_free(work)))
        return false;
    gc_quota_count_unobserved_free(context->device, context->quota, entry);
    gc_pool_clear_flags_locked(pool, block);
    gc_pool_free_locked(pool, block);
    return true;
}

enum gc_status gc_defer_free_unlock(struct gc_context *context, struct gc_block *block,
                                    const struct gc_defer_order *order,
                                    const struct gc_block_info *found, int *driver_code)
{
    const uint64_t stream = order->stream;
    const struct gc_context *worker = order->worker != NULL ? order->worker : context;
    const struct gc_segment *segment = gc_block_segment(block);
    const bool is_uncached = segment->size_class == GC_CLASS_UNCACHED;
    const bool is_driven = context->core->mode != GC_MODE_CACHE || segment->is_plain;
    const bool is_pooled = !is_uncached && !block->is_shared && !is_synchronous(context);
    const bool is_named = stream != GC_STREAM_OTHER && (is_pooled || is_driven);
    const struct gc_entry entry = {
        .address = block->address,
        .requested_bytes = block->live.requested_bytes,
        .bytes = block->bytes,
        .stream = is_named ? stream : GC_STREAM_NONE,
        .api = block->api,
    };
    if (block->is_ordered)
        gc_pool_uncount_ordered(&context->pool.shared, entry.bytes);
    block->is_ordered = false; /* if the free fails the block stays live, as a plain one */
    const bool is_freed = is_pooled && !is_driven && free_locked(context, block, stream, &entry);
    gc_pool_release(&context->pool);
    if (is_freed) {
        gc_release_trim(context);
        return GC_OK;
    }
    if (found != NULL)
        gc_debug_before_free(found, order->api);
    if (is_driven)
        return free_uncached(context, block, &entry, driver_code);
    if (is_synchronous(context) && stream == GC_STREAM_NONE)
        return free_waiting(context, block, &entry, is_uncached, driver_code);
    const uint64_t epoch = gc_submit_epoch_of_free(&context->core->work);
    if (is_uncached && gc_context_has_completed(context, epoch))
        return free_uncached(context, block, &entry, driver_code);
    /* A block freed in a stream's order is reused in that stream; other streams would have to wait
     * for it. The driver's own free does not wait either. */
    const bool is_in_order = stream != GC_STREAM_NONE && !gc_context_has_completed(context, epoch);
    const bool is_moved = !is_pooled && block->is_spilled;
    if (is_uncached || is_in_order || is_moved || !may_reuse(context, epoch)) {
        if (gc_context_is_fenceless(context) && stream == GC_STREAM_NONE)
            return free_waiting(context, block, &entry, is_uncached, driver_code);
        const enum gc_status status = free_pending(context, block, &entry, worker->head, epoch);
        int ignored; /* on failure the block stays pending */
        if (gc_context_is_fenceless(context) && stream == GC_STREAM_NONE)
            (void)wait_all(context, &ignored); /* recording a fence failed just now */
        if (is_moved)
            (void)gc_defer_collect(context); /* its work may have completed before */
        return status;
    }
    free_pooled(context, block, &entry);
    gc_release_trim(context);
    return GC_OK;
}
