/* What a pool has is moved out of it, record by record as it lies, and out of the pagemap: who
 * takes, frees or asks meanwhile finds nothing, and waits until it is known what comes of it. */
#include "core/alloc/detach.h"

#include "core/backing/change.h"
#include "core/base/assert.h"
#include "core/device/registry.h"
#include "core/follow/follow.h"
#include "core/reclaim/tcache.h"

#include <stddef.h>
#include <time.h>

#define PAUSE_NS 50000
/* How long others wait for what comes of an end: at a process's end the thread may be stuck in a
 * driver that is no more. */
#define PATIENCE_NS UINT64_C(10000000000)

void gc_pool_empty_lists_locked(struct gc_pool *pool)
{
    for (unsigned class = 0; class < GC_CLASS_COUNT; class ++)
        pool->bins[class] = (struct gc_bins){.by_address = pool->bins[class].by_address};
    pool->segments = NULL;
    pool->planned = NULL;
    pool->idle_oldest = NULL;
    pool->idle_newest = NULL;
    pool->pending_first = NULL;
    pool->pending_last = NULL;
    pool->pending_bytes = 0;
    for (unsigned i = 0; i < pool->stream_count; i++)
        pool->streams[i] = (struct gc_stream_list){0};
}

static void move_out_locked(struct gc_pool *pool, struct gc_pool_hidden *hidden)
{
    for (unsigned class = 0; class < GC_CLASS_COUNT; class ++)
        hidden->bins[class] = pool->bins[class];
    hidden->segments = pool->segments;
    hidden->planned = pool->planned;
    hidden->idle_oldest = pool->idle_oldest;
    hidden->idle_newest = pool->idle_newest;
    hidden->pending_first = pool->pending_first;
    hidden->pending_last = pool->pending_last;
    hidden->pending_bytes = pool->pending_bytes;
    for (unsigned i = 0; i < pool->stream_count; i++)
        hidden->streams[i] = pool->streams[i];
    gc_pool_empty_lists_locked(pool);
}

void gc_pool_move_back_locked(struct gc_pool *pool, const struct gc_pool_hidden *hidden)
{
    for (unsigned class = 0; class < GC_CLASS_COUNT; class ++)
        pool->bins[class] = hidden->bins[class];
    pool->segments = hidden->segments;
    pool->planned = hidden->planned;
    pool->idle_oldest = hidden->idle_oldest;
    pool->idle_newest = hidden->idle_newest;
    pool->pending_first = hidden->pending_first;
    pool->pending_last = hidden->pending_last;
    pool->pending_bytes = hidden->pending_bytes;
    for (unsigned i = 0; i < pool->stream_count; i++)
        pool->streams[i] = hidden->streams[i];
}

void gc_context_discard_hidden(struct gc_core *core, struct gc_pool_hidden *hidden)
{
    if (hidden == NULL)
        return;
    atomic_fetch_sub_explicit(&core->hidden_count, 1, memory_order_release);
    gc_host_unmap(&core->host, hidden, sizeof(*hidden));
}

void gc_pool_set_known_locked(struct gc_pool *pool, bool is_known)
{
    for (struct gc_segment *segment = pool->segments; segment != NULL; segment = segment->next) {
        for (struct gc_block *block = segment->first; block != NULL; block = block->next) {
            if (is_known)
                gc_pagemap_set(pool->shared.pagemap, block->address, block);
            else if (gc_pagemap_get(pool->shared.pagemap, block->address) == block)
                gc_pagemap_clear(pool->shared.pagemap, block->address);
        }
    }
}

void gc_context_stop_and_lock(struct gc_context *context,
                              bool (*is_quiet_locked)(struct gc_pool *, void *), void *argument)
{
    struct gc_pool *pool = &context->pool;
    for (;;) {
        gc_caches_stop(context->core);
        gc_magazine_empty_context(context);
        gc_pool_acquire_plain(pool);
        if (is_quiet_locked(pool, argument))
            return;
        gc_pool_release(pool);
        gc_caches_resume(context->core);
        gc_arena_await_change(pool);
    }
}

void gc_context_unlock_and_resume(struct gc_context *context)
{
    gc_pool_release(&context->pool);
    gc_caches_resume(context->core);
}

static bool is_unchanged_locked(struct gc_pool *pool, void *unused)
{
    (void)unused;
    return !gc_arena_is_changing_locked(pool);
}

struct gc_entry gc_block_live_entry(const struct gc_block *block)
{
    return (struct gc_entry){
        .address = block->address,
        .requested_bytes = block->live.requested_bytes,
        .bytes = block->bytes,
        .api = block->api,
    };
}

void gc_context_tell_block(struct gc_context *context, const struct gc_block *block, bool goes)
{
    const struct gc_entry entry = gc_block_live_entry(block);
    gc_device_observe(context->device, goes ? GC_TRACE_FREE : GC_TRACE_ALLOC, &entry);
}

void gc_context_tell_segment(struct gc_context *context, const struct gc_segment *segment,
                             bool goes)
{
    gc_device_trace_memory(context->device, goes ? GC_TRACE_UNMAP : GC_TRACE_MAP, GC_TRACE_SEGMENT,
                           segment->address, segment->bytes);
}

/* What is hidden stands still. Told before the driver gives its addresses to others, that are to be
 * told of later. */
static void tell_hidden(struct gc_context *context, const struct gc_pool_hidden *hidden, bool goes)
{
    for (const struct gc_segment *segment = hidden->segments; segment != NULL;
         segment = segment->next) {
        if (!goes && segment->arena == NULL)
            gc_context_tell_segment(context, segment, goes);
        for (const struct gc_block *block = segment->first; block != NULL; block = block->next)
            if (block->state == GC_BLOCK_LIVE)
                gc_context_tell_block(context, block, goes);
        if (goes && segment->arena == NULL)
            gc_context_tell_segment(context, segment, goes);
    }
}

void gc_context_hide(struct gc_context *context)
{
    struct gc_pool *pool = &context->pool;
    struct gc_pool_hidden *hidden = gc_host_map(&context->core->host, sizeof(*hidden));
    if (hidden == NULL)
        return;
    gc_context_stop_and_lock(context, is_unchanged_locked, NULL);
    const bool is_hidden = !pool->is_dropped;
    if (is_hidden) {
        /* First: who does not find a block looks at this, then for the hidden. */
        atomic_fetch_add_explicit(&context->core->hidden_count, 1, memory_order_seq_cst);
        gc_pool_set_known_locked(pool, false);
        move_out_locked(pool, hidden);
        pool->hidden = hidden;
        pool->is_dropped = true;
    }
    gc_context_unlock_and_resume(context);
    if (is_hidden)
        tell_hidden(context, hidden, true);
    else
        gc_host_unmap(&context->core->host, hidden, sizeof(*hidden));
}

void gc_context_show(struct gc_context *context)
{
    struct gc_pool *pool = &context->pool;
    struct gc_pool_hidden *hidden = pool->hidden; /* whose end it is alone changes it */
    if (hidden == NULL)
        return;
    tell_hidden(context, hidden, false);
    gc_pool_acquire_plain(pool);
    gc_pool_move_back_locked(pool, hidden);
    gc_pool_set_known_locked(pool, true);
    atomic_fetch_add_explicit(&context->core->shown_count, 1, memory_order_release);
    pool->hidden = NULL;
    pool->is_dropped = false;
    gc_pool_release(pool);
    gc_context_discard_hidden(context->core, hidden);
}

static void forget_worker(struct gc_context *context, const struct gc_context *worker)
{
    struct gc_pool *pool = &context->pool;
    gc_pool_acquire_plain(pool);
    if (pool->hidden != NULL)
        gc_pool_move_back_locked(pool, pool->hidden);
    gc_stream_forget_locked(pool, worker);
    if (pool->hidden != NULL)
        move_out_locked(pool, pool->hidden);
    gc_pool_release(pool);
}

static void forget_streams(struct gc_device *device, const struct gc_context *worker)
{
    for (struct gc_context *context = gc_context_first(device); context != NULL;
         context = gc_context_next(context))
        forget_worker(context, worker);
}

void gc_context_forget_streams(const struct gc_context *head)
{
    for (int i = 0; i < GC_DEVICE_MAX; i++) {
        struct gc_device *device = gc_core_find_device(head->core, i);
        if (device != NULL)
            forget_streams(device, head);
    }
}

void gc_context_close_stream(struct gc_context *context, uint64_t stream)
{
    struct gc_pool *pool = &context->pool;
    gc_pool_acquire_plain(pool);
    gc_fence_await_streams_locked(context); /* or its mark would not be made */
    const bool is_listed = gc_stream_has_list_locked(pool, stream);
    gc_pool_release(pool);
    if (is_listed)
        gc_fence_mark_streams(context, stream);
    gc_pool_acquire_plain(pool);
    gc_fence_await_streams_locked(context);
    if (pool->hidden != NULL)
        gc_pool_move_back_locked(pool, pool->hidden);
    gc_stream_close_locked(pool, stream);
    gc_follow_close_stream_locked(context, stream);
    if (pool->hidden != NULL)
        move_out_locked(pool, pool->hidden);
    gc_pool_release(pool);
}

/* ---- others meanwhile ---- */

/* Most often the driver destroys the context. Where it declines, or somebody holds a primary
 * context unseen, others may use it as ever, and must not be told that it is gone. */
void gc_context_lock_decided(struct gc_context *context)
{
    const struct timespec moment = {0, PAUSE_NS};
    const struct gc_driver *driver = &context->core->driver;
    GC_ASSERT(gc_lock_held_count() == 0); /* who ends it needs them */
    const uint64_t end_ns = driver->clock_ns(driver->self) + PATIENCE_NS;
    gc_pool_acquire_plain(&context->pool);
    while (context->pool.hidden != NULL) {
        gc_pool_release(&context->pool);
        nanosleep(&moment, NULL);
        const bool is_over = driver->clock_ns(driver->self) >= end_ns;
        gc_pool_acquire_plain(&context->pool);
        if (is_over)
            break;
    }
}

bool gc_context_await_end(struct gc_context *context, unsigned shown_count)
{
    gc_context_lock_decided(context);
    const bool stays = !context->pool.is_dropped;
    gc_pool_release(&context->pool);
    return stays && gc_core_shown_count(context->core) != shown_count;
}

static bool hides_locked(const struct gc_pool *pool, uint64_t address)
{
    const struct gc_segment *segment = pool->hidden == NULL ? NULL : pool->hidden->segments;
    while (segment != NULL && address - segment->address >= segment->bytes)
        segment = segment->next;
    return segment != NULL;
}

static enum gc_hidden await_address(struct gc_context *context, uint64_t address)
{
    gc_pool_acquire_plain(&context->pool);
    const bool is_hidden = hides_locked(&context->pool, address);
    gc_pool_release(&context->pool);
    if (!is_hidden)
        return GC_HIDDEN_NOT;
    gc_context_lock_decided(context);
    const bool is_decided = !hides_locked(&context->pool, address);
    gc_pool_release(&context->pool);
    return is_decided ? GC_HIDDEN_DECIDED : GC_HIDDEN_STILL;
}

enum gc_hidden gc_core_await_hidden(struct gc_core *core, uint64_t address)
{
    if (atomic_load_explicit(&core->hidden_count, memory_order_acquire) == 0)
        return GC_HIDDEN_NOT;
    for (int i = 0; i < GC_DEVICE_MAX; i++) {
        struct gc_device *device = gc_core_find_device(core, i);
        struct gc_context *context = device == NULL ? NULL : gc_context_first(device);
        for (; context != NULL; context = gc_context_next(context)) {
            const enum gc_hidden hidden = await_address(context, address);
            if (hidden != GC_HIDDEN_NOT)
                return hidden;
        }
    }
    return GC_HIDDEN_NOT;
}
