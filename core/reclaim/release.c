/* Releases idle memory to the driver, least recently used first: the idle segments of each pool,
 * then its idle pages, then the registered shrinkers (the pattern of Linux). Waits for nothing;
 * live and cached blocks stay. */
#include "core/reclaim/release.h"

#include "core/backing/change.h"
#include "core/backing/segment.h"
#include "core/base/assert.h"
#include "core/base/bits.h"
#include "core/device/registry.h"
#include "core/reclaim/leave.h"
#include "core/reclaim/reconcile.h"

#include <stddef.h>

#define CLOCK_CALLS 64 /* of gc_release_trim, between looks at the clock */

void gc_release_add_shrinker(struct gc_core *core, gc_shrink_function *shrink)
{
    GC_ASSERT(core->shrinker_count < GC_SHRINKER_MAX);
    core->shrinkers[core->shrinker_count++] = shrink;
}

/* Releases the longest idle segment of a pool, or if it has none up to `enough_bytes` of idle
 * pages. Returns the bytes released: 0 if there are none or the driver refused. */
static uint64_t release_oldest(struct gc_context *context, uint64_t enough_bytes)
{
    struct gc_device *device = context->device;
    struct gc_pool *pool = &context->pool;
    struct gc_block *block = NULL;
    uint64_t bytes = 0;
    gc_device_release_begin(device, context->quota);
    gc_capture_relax_begin(device->core);
    gc_pool_acquire_plain(pool);
    struct gc_segment *segment = pool->content.idle_oldest;
    if (segment != NULL) {
        bytes = segment->bytes;
        block = gc_pool_remove_locked(pool, segment);
    }
    gc_pool_release(pool);
    if (segment != NULL && gc_segment_release(context, segment, block, NULL) != 0)
        bytes = 0;
    if (segment == NULL)
        bytes = gc_unmap_release_idle(context, enough_bytes);
    gc_capture_relax_end(device->core);
    if (bytes != 0)
        gc_counter_add(&device->stats.trim_count, 1);
    gc_device_release_end(device, context->quota);
    return bytes;
}

uint64_t gc_release_idle(struct gc_device *device, struct gc_quota *quota, uint64_t keep_bytes,
                         uint64_t enough_bytes)
{
    const uint64_t least_bytes =
        atomic_load_explicit(&device->idle.least_bytes, memory_order_relaxed);
    uint64_t released = 0;
    for (struct gc_context *context = gc_context_first(device); context != NULL;
         context = gc_context_next(context)) {
        if (!gc_context_is_of_quota(context, quota))
            continue;
        while (released < enough_bytes && gc_quota_idle_bytes(device, quota) > keep_bytes) {
            const uint64_t excess =
                gc_sub_or_zero_u64(gc_quota_idle_bytes(device, quota), keep_bytes);
            const uint64_t bytes =
                release_oldest(context, gc_min_u64(enough_bytes - released, excess));
            if (bytes == 0)
                break;
            released += bytes;
        }
    }
    for (unsigned i = 0; i < device->core->shrinker_count && released < enough_bytes; i++)
        released += device->core->shrinkers[i](device, quota, keep_bytes, enough_bytes - released);
    if (released > 0)
        gc_leave_note_release(device, least_bytes, released);
    return released;
}

void gc_release_pool(struct gc_context *context)
{
    while (release_oldest(context, UINT64_MAX) > 0)
        ;
}

/* ---- limits ---- */

static uint64_t idle_limit_of(const struct gc_device *device, const struct gc_quota *quota)
{
    if (quota == NULL)
        return gc_device_idle_limit_bytes(device);
    const uint64_t excess = gc_quota_excess_bytes(quota);
    return excess == 0 ? UINT64_MAX
                       : gc_sub_or_zero_u64(gc_quota_idle_bytes(device, quota), excess);
}

void gc_release_excess(struct gc_device *device, struct gc_quota *quota)
{
    const uint64_t keep_bytes = idle_limit_of(device, quota);
    if (gc_quota_idle_bytes(device, quota) > keep_bytes && gc_submit_try_wait_reused(device->core))
        gc_release_idle(device, quota, keep_bytes, UINT64_MAX);
}

/* True now and then. A lost count moves a look at the clock, no more. */
static bool may_read_clock(struct gc_device *device)
{
    const unsigned calls = atomic_load_explicit(&device->trim_calls, memory_order_relaxed) + 1;
    atomic_store_explicit(&device->trim_calls, calls, memory_order_relaxed);
    return calls % CLOCK_CALLS == 0;
}

void gc_release_trim(struct gc_context *context)
{
    const bool is_turn = may_read_clock(context->device);
    if (is_turn)
        gc_reconcile_update(context->device);
    gc_leave_update(context->device, is_turn);
    if (gc_device_lacking_bytes(context->device) > 0)
        gc_leave_observe(context->device);
    gc_release_excess(context->device, NULL);
    if (context->quota != NULL)
        gc_release_excess(context->device, context->quota);
}
