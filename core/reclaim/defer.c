/* How freed memory becomes free memory.
 *
 * Reuse `fence`: a free never waits. The block is stamped with the count of work (work.h). If that
 * is retired, or all work goes to one stream, the block goes into the bins at once, else to the
 * pool's pending list, by stamp. Fences (fence.h) are recorded when enough is pending, or when
 * memory is wanted; what they retire is collected into the bins.
 *
 * Reuse `sync`: a free marks its block FREEING, so that no second free of it gets through, and
 * waits outside the lock until all work submitted to the context and its peers before is done. If
 * the wait fails the block is live as before. In a capture nothing may be waited for, and a free in
 * a stream's order never waits: the block is pending.
 *
 * Without a cache, and of what is taken while something captures (alloc.c), each block is an
 * allocation of the driver's, whose own free does what it does without us. */
#include "core/reclaim/defer.h"
#include "core/backing/segment.h"
#include "core/base/assert.h"
#include "core/base/bits.h"
#include "core/device/registry.h"
#include "core/device/wait.h"
#include "core/reclaim/release.h"
#include "core/reclaim/tcache.h"

#include <stddef.h>
#include <time.h>

/* A fence is recorded once this much became pending since the last one: often enough that pending
 * memory stays small beside the device, seldom enough that a program which frees at every step
 * makes less than one call for a hundred of them. */
#define FENCE_COUNT 512
#define FENCE_SHARE 16
/* Beyond this share of the device pending memory is waited for rather than more taken: for a while,
 * since the work may go on for as long as the program does. */
#define PENDING_SHARE 8
#define PENDING_WAIT_NS UINT64_C(250000000)
/* And fences are asked again each time this share was missed. */
#define POLL_SHARE 2048

/* The longest idle segment that serves once, out of the pool. */
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

/* Gives back what serves once and became idle with what was pending. */
static void release_uncached(struct gc_context *context)
{
    bool goes_on = true;
    while (goes_on) {
        struct gc_block *block = NULL;
        gc_device_release_begin(context->device, context->quota);
        gc_core_relaxed_begin(context->core);
        struct gc_segment *segment = remove_uncached(context, &block);
        goes_on = segment != NULL && gc_segment_release(context, segment, block, NULL) == 0;
        gc_core_relaxed_end(context->core);
        gc_device_release_end(context->device, context->quota);
    }
}

/* ---- pending memory ---- */

bool gc_defer_collect(struct gc_context *context)
{
    struct gc_pool *pool = &context->pool;
    bool any_uncached = false;
    gc_pool_acquire_plain(pool);
    const struct gc_pending pending = gc_pool_remove_pending_locked(
        pool, atomic_load_explicit(&context->completed, memory_order_acquire));
    if (pending.first != NULL)
        any_uncached = gc_pool_free_pending_locked(pool, pending);
    gc_pool_release(pool);
    if (any_uncached)
        release_uncached(context);
    if (pending.first == NULL)
        return false;
    gc_device_clear_exhausted(context->device);
    gc_reclaim_trim(context);
    return true;
}

/* A moment's view. */
struct backlog {
    uint64_t bytes;
    uint64_t unfenced_bytes;
    uint64_t unfenced_count;
    uint32_t open_fences;
};

static struct backlog poll(struct gc_context *context)
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

/* Of what the context's memory may come to. */
static uint64_t part_of(const struct gc_context *context, uint64_t parts)
{
    return gc_quota_total_bytes(context->device, context->quota) / parts;
}

static bool is_synchronous(const struct gc_context *context)
{
    return context->core->options->reuse == GC_REUSE_SYNC;
}

void gc_defer_poll(struct gc_context *context)
{
    if (poll(context).bytes == 0 || gc_defer_collect(context))
        return;
    gc_fence_record(context);
    if (gc_fence_poll(context))
        gc_defer_collect(context);
}

/* Streams are looked at one by one where a fence of all of them is not passed. */
static bool poll_streams(struct gc_context *context)
{
    bool ignored;
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
    const struct backlog backlog = poll(context);
    if (backlog.bytes == 0)
        return false;
    if (backlog.open_fences == 0)
        gc_fence_record(context);
    const bool is_passed = gc_fence_wait_oldest(context, limit_ns, is_under_way);
    if (is_passed && gc_defer_collect(context))
        return true;
    *is_under_way |= is_passed; /* what is pending is behind it */
    return wait_for_streams(context, *is_under_way ? 0 : gc_min_u64(limit_ns, GC_RECLAIM_STEP_NS),
                            is_under_way);
}

/* Waits for all that is pending, for about limit_ns. *is_exhausted: that took longer. */
static bool wait_out(struct gc_context *context, uint64_t limit_ns, bool *is_exhausted)
{
    const uint64_t start_ns = gc_core_now_ns(context->core);
    bool any = false;
    bool goes_on = true;
    *is_exhausted = false;
    while (goes_on && !*is_exhausted && poll(context).bytes > 0) {
        bool is_under_way = false;
        const bool is_freed =
            gc_defer_wait_oldest(context, gc_min_u64(limit_ns, GC_RECLAIM_STEP_NS), &is_under_way);
        any |= is_freed;
        goes_on = is_freed || is_under_way;
        *is_exhausted = gc_core_now_ns(context->core) - start_ns >= limit_ns;
    }
    return any;
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
    if (is_exhausted || !has_no_fences(context) || poll(context).bytes == 0)
        return any;
    return gc_fence_synchronize(context, limit_ns, &ignored) == GC_OK && gc_defer_collect(context);
}

/* Without fences all that is pending is waited for, as a plain driver's free does. */
static enum gc_status wait_all(struct gc_context *context, int *driver_code)
{
    const enum gc_status status = gc_fence_synchronize(context, GC_FOREVER, driver_code);
    if (status == GC_OK)
        gc_defer_collect(context);
    return status;
}

/* Whether the work of `waited` is all that may use the context's memory. A moment's answer. */
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

/* While anything captures no fence is made for what was freed since. Not for ever: the thread that
 * waits may be the one that captures. */
static void wait_captures(struct gc_context *context)
{
    const struct timespec moment = {0, 1000000};
    const uint64_t end_ns = gc_core_now_ns(context->core) + GC_RECLAIM_WAIT_NS;
    while (poll(context).bytes > 0 && gc_context_is_capturing(context) &&
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
    if (!is_exhausted && poll(context).bytes > 0) /* no fence could be recorded */
        (void)wait_all(context, &ignored);
}

/* Too much is pending: waits for the oldest of it, once. If its work goes on for longer there is
 * fresh memory, or the request waits where it is short (shortage.c). */
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

/* Asking is dear where many small requests miss while the device lags behind: it is done again once
 * what has missed since makes a difference. */
static bool is_worth_asking(struct gc_context *context, uint64_t wanted_bytes)
{
    gc_pool_acquire_plain(&context->pool);
    struct gc_fences *fences = context->fences;
    if (context->pool.is_dropped) {
        gc_pool_release(&context->pool);
        return false;
    }
    fences->missed_bytes = gc_min_u64(UINT64_MAX - wanted_bytes, fences->missed_bytes);
    fences->missed_bytes += wanted_bytes;
    const bool is_worth = fences->missed_bytes >= part_of(context, POLL_SHARE);
    if (is_worth)
        fences->missed_bytes = 0;
    gc_pool_release(&context->pool);
    return is_worth;
}

bool gc_defer_reclaim(struct gc_context *context, uint64_t wanted_bytes)
{
    struct backlog backlog = poll(context);
    if (backlog.bytes == 0)
        return false;
    if (gc_defer_collect(context))
        return true;
    if (backlog.open_fences > 0 && is_worth_asking(context, wanted_bytes) &&
        ((gc_fence_poll(context) && gc_defer_collect(context)) || poll_streams(context)))
        return true;
    backlog = poll(context);
    if (backlog.bytes > part_of(context, PENDING_SHARE))
        return wait_a_while(context);
    if (backlog.open_fences == 0 && backlog.unfenced_count > 0)
        gc_fence_record(context); /* for the next one that misses */
    return false;
}

/* Whether so much became pending since this was last asked. Where no fence can be recorded, since
 * the ring is full or something captures, asking again at each free would be dear. */
static bool is_fence_due(struct gc_context *context)
{
    struct gc_pool *pool = &context->pool;
    gc_pool_acquire_plain(pool);
    struct gc_fences *fences = context->fences;
    /* The first one finds out whether there are fences: not where captures go unseen. */
    const bool is_first =
        !pool->is_dropped && !fences->is_tried &&
        !atomic_load_explicit(&context->core->work.is_conservative, memory_order_relaxed);
    const bool is_due =
        !pool->is_dropped &&
        (is_first || pool->unfenced_count - fences->considered_count >= FENCE_COUNT ||
         pool->unfenced_bytes - fences->considered_bytes >= part_of(context, FENCE_SHARE));
    if (is_due) {
        fences->considered_count = pool->unfenced_count;
        fences->considered_bytes = pool->unfenced_bytes;
    }
    gc_pool_release(pool);
    return is_due;
}

/* Blocks became pending: what their number calls for. */
static void consider_fence(struct gc_context *context)
{
    if (!is_fence_due(context))
        return;
    if (gc_fence_poll(context))
        gc_defer_collect(context);
    else if (poll(context).open_fences > 0)
        poll_streams(context);
    gc_fence_record(context);
}

void gc_defer_on_flush(struct gc_context *context)
{
    gc_device_clear_exhausted(context->device);
    consider_fence(context);
    gc_reclaim_trim(context);
}

/* A wait that the driver let through counts in a capture too: what is captured is no work yet. */
void gc_defer_complete(struct gc_context *context, const struct gc_context *waited, uint64_t epoch)
{
    const bool has_completed = is_all_of(context, waited);
    if (!has_completed)
        return;
    gc_context_raise_completed(context, epoch);
    gc_defer_collect(context);
}

/* ---- frees ---- */

/* The program's free is done, whenever the memory becomes idle. */
static enum gc_status free_pending(struct gc_context *context, struct gc_block *block,
                                   const struct gc_entry *entry, struct gc_context *worker,
                                   uint64_t epoch)
{
    struct gc_pool *pool = &context->pool;
    gc_context_count_free(context, entry);
    gc_wait_lock_after_teardown(context);
    if (!pool->is_dropped)
        gc_pool_clear_flags_locked(pool, block);
    /* Of a stream: where the block was freed in its order, and no other stream uses it. */
    if (!pool->is_dropped && (entry->stream == 0 || !gc_stream_list_push_locked(
                                                        pool, worker, entry->stream, block, epoch)))
        gc_pool_push_pending_locked(pool, block, epoch);
    gc_pool_release(pool);
    gc_device_clear_exhausted(context->device);
    consider_fence(context);
    return GC_OK;
}

/* The block is idle, or the driver waits itself: its segment goes back. */
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
    if (!pool->is_dropped) {
        gc_pool_clear_flags_locked(pool, block);
        gc_pool_free_locked(pool, block);
    }
    gc_pool_release(pool);
}

/* The wait failed: the program still has the block, unless its context went. */
static void revive(struct gc_context *context, struct gc_block *block, const struct gc_entry *entry)
{
    struct gc_pool *pool = &context->pool;
    gc_wait_lock_after_teardown(context);
    const bool alive = !pool->is_dropped;
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
                            gc_submit_free_epoch(&context->core->work));
    if (status != GC_OK) {
        revive(context, block, entry);
        return status;
    }
    if (is_uncached)
        return free_uncached(context, block, entry, driver_code);
    free_pooled(context, block, entry);
    gc_reclaim_trim(context);
    return GC_OK;
}

/* Of memory of a device the mark (work.h) is made in the context that uses it now: a later one does
 * not know the one stream. */
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

enum gc_status gc_defer_free_unlock(struct gc_context *context, struct gc_block *block,
                                    struct gc_context *worker, uint64_t stream, int *driver_code)
{
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
    gc_block_set_state(block, GC_BLOCK_FREEING); /* keeps it away from others while it is noted */
    if (block->is_ordered)
        gc_pool_uncount_ordered(&context->pool.shared, entry.requested_bytes);
    block->is_ordered = false; /* if the free fails the block stays, plain from now on */
    gc_pool_release(&context->pool);
    if (is_driven)
        return free_uncached(context, block, &entry, driver_code);
    if (is_synchronous(context) && stream == GC_STREAM_NONE)
        return free_waiting(context, block, &entry, is_uncached, driver_code);
    const uint64_t epoch = gc_submit_free_epoch(&context->core->work);
    if (is_uncached && gc_context_has_completed(context, epoch))
        return free_uncached(context, block, &entry, driver_code);
    /* In the order of a stream it serves that stream: who gets it otherwise would have to follow. A
     * plain driver waits for nothing then. */
    const bool is_in_order = stream != GC_STREAM_NONE && !gc_context_has_completed(context, epoch);
    if (is_uncached || is_in_order || !may_reuse(context, epoch)) {
        if (gc_context_is_fenceless(context) && stream == GC_STREAM_NONE)
            return free_waiting(context, block, &entry, is_uncached, driver_code);
        const enum gc_status status = free_pending(
            context, block, &entry, worker == NULL ? context->head : worker->head, epoch);
        int ignored; /* it stays pending */
        if (gc_context_is_fenceless(context) && stream == GC_STREAM_NONE)
            (void)wait_all(context, &ignored); /* it turned out to be so just now */
        return status;
    }
    free_pooled(context, block, &entry);
    gc_reclaim_trim(context);
    return GC_OK;
}
