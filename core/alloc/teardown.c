/* Context teardown, in two phases around the driver's call.
 *
 * begin, before the call: detaches the content of the context's pools, so that none of their
 * addresses is known when the driver reuses them for another context; then closes the context's
 * gate and drains it (as percpu_ref does). A thread that allocates, frees or looks up meanwhile
 * finds nothing and waits for the decision (core/device/wait.h). finish, after the driver
 * succeeded: destroys everything. cancel, after the driver refused: reattaches the content. */
#include "core/alloc/teardown.h"

#include "core/backing/change.h"
#include "core/backing/range.h"
#include "core/backing/spill.h"
#include "core/base/assert.h"
#include "core/debug/debug.h"
#include "core/device/registry.h"
#include "core/direct/direct.h"
#include "core/follow/follow.h"
#include "core/reclaim/defer.h"
#include "core/reclaim/reconcile.h"
#include "core/reclaim/release.h"
#include "core/reclaim/tcache.h"
#include "core/share/share.h"

#include <stddef.h>
#include <string.h>

/* ---- detach and reattach ---- */

static void empty_lists_locked(struct gc_pool *pool)
{
    gc_pool_content_init(&pool->content);
    memset(pool->streams, 0, pool->stream_count * sizeof(*pool->streams));
}

static void move_content_locked(struct gc_pool *pool, struct gc_pool_detached *detached)
{
    detached->content = pool->content;
    memcpy(detached->streams, pool->streams, pool->stream_count * sizeof(*pool->streams));
    empty_lists_locked(pool);
}

static void move_back_locked(struct gc_pool *pool, const struct gc_pool_detached *detached)
{
    pool->content = detached->content;
    memcpy(pool->streams, detached->streams, pool->stream_count * sizeof(*pool->streams));
}

static void end_detached(struct gc_core *core)
{
    atomic_fetch_sub_explicit(&core->detached_count, 1, memory_order_release);
}

/* Enters every block of the pool into the pagemap, or removes it: while the driver's context is
 * there, since then the addresses may be another pool's, which has another lock. */
static void set_known_locked(struct gc_pool *pool, bool is_known)
{
    for (struct gc_segment *segment = pool->content.segments; segment != NULL;
         segment = segment->next) {
        for (struct gc_block *block = segment->first; block != NULL; block = block->next) {
            if (is_known)
                gc_pagemap_set(pool->shared.pagemap, block->address, block, GC_PAGEMAP_SHARED);
            else
                gc_pagemap_clear(pool->shared.pagemap, block->address, GC_PAGEMAP_SHARED);
        }
    }
}

/* Stops the thread caches, so that no thread is between finding and claiming a block of the pool,
 * and locks the pool. Undoes both while it waits for a change of mappings. */
static void stop_and_lock(struct gc_context *context,
                          bool (*is_quiet_locked)(struct gc_pool *, void *), void *argument)
{
    struct gc_pool *pool = &context->pool;
    for (;;) {
        gc_tcache_stop_all(context->core);
        gc_tcache_flush_context(context);
        gc_pool_acquire_plain(pool);
        if (is_quiet_locked(pool, argument))
            return;
        gc_pool_release(pool);
        gc_tcache_resume_all(context->core);
        gc_change_wait(pool);
    }
}

static void unlock_and_resume(struct gc_context *context)
{
    gc_pool_release(&context->pool);
    gc_tcache_resume_all(context->core);
}

static bool is_unchanged_locked(struct gc_pool *pool, void *unused)
{
    (void)unused;
    return !gc_change_is_active_locked(pool);
}

/* The entry of a live block. */
static struct gc_entry live_entry(const struct gc_block *block)
{
    return (struct gc_entry){
        .address = block->address,
        .requested_bytes = block->live.requested_bytes,
        .bytes = block->bytes,
        .api = block->api,
    };
}

/* Traces that a live block, or a segment of driver memory, is destroyed with its context
 * (`is_destroyed`), or exists again after a cancelled teardown. */
static void trace_block(struct gc_context *context, const struct gc_block *block, bool is_destroyed)
{
    const struct gc_entry entry = live_entry(block);
    gc_device_observe(context->device, is_destroyed ? GC_TRACE_FREE : GC_TRACE_ALLOC, &entry);
}

static void trace_segment(struct gc_context *context, const struct gc_segment *segment,
                          bool is_destroyed)
{
    if (segment->is_spilled)
        return;
    gc_device_trace_memory(context->device, is_destroyed ? GC_TRACE_UNMAP : GC_TRACE_MAP,
                           GC_TRACE_SEGMENT, segment->address, segment->bytes);
}

/* Emits the trace events of a detached pool, in which a failed free may make a block live again.
 * Must run before the driver can reuse its addresses, so that the trace has the free before the
 * next alloc. */
static void trace_detached(struct gc_context *context, const struct gc_pool_detached *detached,
                           bool is_destroyed)
{
    for (const struct gc_segment *segment = detached->content.segments; segment != NULL;
         segment = segment->next) {
        if (!is_destroyed && segment->arena == NULL)
            trace_segment(context, segment, is_destroyed);
        for (const struct gc_block *block = segment->first; block != NULL; block = block->next)
            if (block->state == GC_BLOCK_LIVE)
                trace_block(context, block, is_destroyed);
        if (is_destroyed && segment->arena == NULL)
            trace_segment(context, segment, is_destroyed);
    }
}

/* Detaches the pool: it serves nothing, takes no frees, and no address of it is found. */
static void detach(struct gc_context *context)
{
    struct gc_pool *pool = &context->pool;
    stop_and_lock(context, is_unchanged_locked, NULL);
    const bool is_detached = !pool->is_dropped;
    if (is_detached) {
        /* First: a thread that finds no block reads this count, then searches the detached pools.
         */
        atomic_fetch_add_explicit(&context->core->detached_count, 1, memory_order_seq_cst);
        set_known_locked(pool, false);
        pool->detached = context->detached_room;
        move_content_locked(pool, pool->detached);
        pool->is_dropped = true;
    }
    unlock_and_resume(context);
    if (is_detached)
        trace_detached(context, context->detached_room, true);
}

/* Undoes detach. */
static void reattach(struct gc_context *context)
{
    struct gc_pool *pool = &context->pool;
    struct gc_pool_detached *detached = pool->detached; /* only the tearing thread changes it */
    if (detached == NULL)
        return;
    trace_detached(context, detached, false);
    gc_pool_acquire_plain(pool);
    move_back_locked(pool, detached);
    set_known_locked(pool, true);
    atomic_fetch_add_explicit(&context->core->reattach_count, 1, memory_order_release);
    pool->detached = NULL;
    pool->is_dropped = false;
    gc_pool_release(pool);
    end_detached(context->core);
}

static void drop_worker(struct gc_context *context, const struct gc_context *worker)
{
    struct gc_pool *pool = &context->pool;
    gc_pool_acquire_plain(pool);
    if (pool->detached != NULL)
        move_back_locked(pool, pool->detached);
    gc_pending_drop_worker_locked(pool, worker);
    if (pool->detached != NULL)
        move_content_locked(pool, pool->detached);
    gc_pool_release(pool);
}

static void drop_streams_of_device(struct gc_device *device, const struct gc_context *worker)
{
    for (struct gc_context *context = gc_context_first(device); context != NULL;
         context = gc_context_next(context))
        drop_worker(context, worker);
}

/* Blocks of any context that were freed in the order of this context's streams no longer wait for
 * the fences of those streams, which are destroyed with it. */
static void drop_streams(const struct gc_context *head)
{
    for (int i = 0; i < GC_DEVICE_MAX; i++) {
        struct gc_device *device = gc_device_find(head->core, i);
        if (device != NULL)
            drop_streams_of_device(device, head);
    }
}

void gc_teardown_close_stream(struct gc_context *context, uint64_t stream)
{
    struct gc_pool *pool = &context->pool;
    gc_pool_acquire_plain(pool);
    gc_fence_wait_streams_locked(context); /* else the stream's fence would not be recorded */
    const bool is_listed = gc_pending_has_stream_locked(pool, stream);
    gc_pool_release(pool);
    if (is_listed)
        gc_fence_record_streams(context, stream);
    gc_pool_acquire_plain(pool);
    gc_fence_wait_streams_locked(context);
    if (pool->detached != NULL)
        move_back_locked(pool, pool->detached);
    gc_pending_close_stream_locked(pool, stream);
    gc_follow_close_stream_locked(context, stream);
    if (pool->detached != NULL)
        move_content_locked(pool, pool->detached);
    gc_pool_release(pool);
}

/* ---- dropping ---- */

/* Removes a block from all accounts and returns the next of its segment. A live block is pushed on
 * `destroyed`, linked by `previous`, to be traced without the lock. */
static struct gc_block *drop_block_locked(struct gc_context *context, struct gc_block *block,
                                          struct gc_block **destroyed)
{
    struct gc_pool *pool = &context->pool;
    struct gc_block *next = block->next;
    gc_pool_clear_flags_locked(pool, block);
    if (block->state == GC_BLOCK_PENDING)
        gc_stats_sub_gauge(pool->shared.pending, block->bytes);
    /* The thread that frees a FREEING block counts it. */
    if (block->state != GC_BLOCK_LIVE) {
        gc_pool_free_record_locked(pool, block);
        return next;
    }
    const struct gc_entry entry = live_entry(block);
    gc_quota_drop_live(context->device, context->quota, &entry);
    if (block->is_ordered)
        gc_pool_uncount_ordered(&pool->shared, entry.bytes);
    atomic_store_explicit(&block->segment, NULL, memory_order_release);
    block->previous = *destroyed;
    *destroyed = block;
    return next;
}

static void free_destroyed(struct gc_context *context, struct gc_block *block, bool was_traced)
{
    while (block != NULL) {
        struct gc_block *next = block->previous;
        if (!was_traced)
            trace_block(context, block, true);
        gc_slab_free(context->pool.shared.blocks, block);
        block = next;
    }
}

static bool detach_leftovers_locked(struct gc_pool *pool, void *leftovers)
{
    return gc_change_detach_leftovers_locked(pool, leftovers);
}

/* Frees the records: the memory was destroyed with the driver's context, or is on the host. */
static void free_segments(struct gc_context *context, struct gc_segment *segment, bool was_traced)
{
    while (segment != NULL) {
        struct gc_segment *next = segment->next;
        if (segment->is_spilled)
            gc_spill_drop(context, segment);
        else if (!was_traced)
            trace_segment(context, segment, true);
        gc_slab_free(&context->device->segments, segment);
        segment = next;
    }
}

/* Removes all segments from the pool and the accounts. Returns those of driver memory. */
static struct gc_segment *drop_segments_locked(struct gc_context *context,
                                               struct gc_block **destroyed)
{
    struct gc_pool *pool = &context->pool;
    struct gc_segment *removed = NULL;
    struct gc_segment *next;
    for (struct gc_segment *segment = pool->content.segments; segment != NULL; segment = next) {
        next = segment->next;
        if (segment->is_idle)
            gc_pool_sub_idle(&pool->shared, gc_segment_idle_bytes(segment));
        for (struct gc_block *block = segment->first; block != NULL;)
            block = drop_block_locked(context, block, destroyed);
        atomic_store_explicit(&segment->pool, NULL, memory_order_release);
        if (segment->arena != NULL)
            continue; /* destroyed with its arena: gc_change_destroy_leftovers */
        if (!segment->is_spilled)
            gc_context_uncharge(context, segment->bytes);
        segment->next = removed;
        removed = segment;
    }
    empty_lists_locked(pool);
    return removed;
}

/* Empties the pool permanently. Mapped memory is not destroyed with the driver's context: it is
 * unmapped and released here. */
static void drop_pool(struct gc_context *context)
{
    struct gc_pool *pool = &context->pool;
    struct gc_leftovers leftovers;
    stop_and_lock(context, detach_leftovers_locked, &leftovers);
    struct gc_pool_detached *detached = pool->detached;
    if (detached != NULL)
        move_back_locked(pool, detached);
    else
        set_known_locked(pool, false);
    pool->detached = NULL;
    pool->is_dropped = true;
    struct gc_block *destroyed = NULL;
    struct gc_segment *removed = drop_segments_locked(context, &destroyed);
    gc_pool_free_spares_locked(pool);
    context->peer_count = 0;
    unlock_and_resume(context);
    if (detached != NULL) {
        gc_gate_set(&context->head->gate, GC_GATE_GONE); /* wakes gc_wait_lock_after_teardown */
        end_detached(context->core);
    }
    gc_slab_free(&context->core->detached_rooms, context->detached_room);
    context->detached_room = NULL;
    free_destroyed(context, destroyed, detached != NULL);
    gc_fence_drop(context);
    free_segments(context, removed, detached != NULL);
    gc_change_destroy_leftovers(context, &leftovers);
}

static void drop_direct(void *argument, const struct gc_direct *direct)
{
    (void)argument;
    gc_direct_destroyed(direct);
}

static void drop_record(struct gc_context *record)
{
    drop_pool(record);
    if (record->core->debug != NULL)
        gc_debug_drop_context(record);
}

/* The claimed gate excludes a teardown of the handle, which would detach this pool. */
bool gc_teardown_drop_record(struct gc_context *record)
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

/* ---- the two phases ---- */

/* Releases the idle memory of device-owned pools that no context uses any more: all work that could
 * use it was destroyed with its contexts. */
static void empty_ordered(struct gc_context *ordered)
{
    for (struct gc_context *record = ordered; record != NULL;
         record = gc_context_next_record(record)) {
        struct gc_wait_set set;
        gc_pool_acquire_plain(&record->pool);
        const bool is_unused =
            gc_peers_wait_begin_locked(record, &set) && set.count == 0 && set.everyone == NULL;
        gc_peers_wait_end(&set);
        gc_pool_release(&record->pool);
        int ignored;
        if (is_unused && gc_fence_synchronize(record, GC_FOREVER, &ignored) == GC_OK) {
            gc_defer_collect(record);
            gc_release_pool(record);
        }
    }
}

/* A teardown removes peers: device-owned pools may have become unused. */
static void empty_all_ordered(struct gc_core *core)
{
    for (int i = 0; i < GC_DEVICE_MAX; i++) {
        const struct gc_device *device = gc_device_find(core, i);
        if (device != NULL)
            empty_ordered(gc_device_ordered(device));
    }
}

struct gc_context *gc_teardown_begin(struct gc_core *core, uint64_t handle)
{
    struct gc_context *head = gc_context_find(core, handle);
    while (head != NULL && !gc_gate_claim(&head->gate))
        head = gc_context_find(core, handle); /* destroyed; the handle may be reused */
    if (head == NULL)
        return NULL;
    for (struct gc_context *record = head; record != NULL; record = gc_context_next_record(record))
        if (!head->is_device)
            gc_defer_wait_peers(record);
    /* Before the gate closes: a thread that changes mappings may have to enter it to finish. */
    for (struct gc_context *record = head; record != NULL; record = gc_context_next_record(record))
        detach(record);
    gc_gate_close(&head->gate);
    drop_streams(head);
    return head;
}

void gc_teardown_cancel(struct gc_context *head)
{
    for (struct gc_context *record = head; record != NULL; record = gc_context_next_record(record))
        reattach(record);
    gc_gate_set(&head->gate, GC_GATE_OPEN);
}

/* The driver may reuse the handle at any moment: another context may have it once this one is
 * claimed. Records of direct memory go by the context, so they are removed after that. */
void gc_teardown_finish(struct gc_context *head)
{
    struct gc_context *record = gc_context_claim_handle(head);
    gc_tracker_remove_context(&head->core->tracker, head, drop_direct, NULL);
    gc_gate_set(&head->gate, GC_GATE_GONE);
    for (; record != NULL; record = record->next_dropped)
        drop_record(record);
    gc_range_release_kept(head);
    gc_import_drop_context(head->core, head);
    gc_reconcile_forget(head->device);
    if (!head->is_device)
        empty_all_ordered(head->core);
}
