/* Idle memory goes back to the driver: of each pool the segment that is idle longest, then its idle
 * pages; then what registered shrinkers have. Waits for nothing, and takes no block from anybody.
 */
#include "core/reclaim/release.h"

#include "core/backing/change.h"
#include "core/backing/segment.h"
#include "core/base/assert.h"
#include "core/base/bits.h"
#include "core/device/registry.h"

#include <stddef.h>

void gc_core_add_shrinker(struct gc_core *core, gc_shrink_function *shrink)
{
    GC_ASSERT(core->shrinker_count < GC_SHRINKER_MAX);
    core->shrinkers[core->shrinker_count++] = shrink;
}

/* Whether the context is one of those that are asked. */
static bool is_asked(const struct gc_context *context, const struct gc_share *share)
{
    return share == NULL || context->share == share;
}

/* Gives back the longest idle segment of a pool, or up to `enough_bytes` of idle pages: its bytes,
 * or 0 if there is none or the driver refused. */
static uint64_t give_back_oldest(struct gc_context *context, uint64_t enough_bytes)
{
    struct gc_device *device = context->device;
    struct gc_pool *pool = &context->pool;
    struct gc_block *block = NULL;
    uint64_t bytes = 0;
    gc_device_give_back_begin(device, context->share);
    gc_core_look_begin(device->core);
    gc_pool_acquire_plain(pool);
    struct gc_segment *segment = pool->content.idle_oldest;
    if (segment != NULL) {
        bytes = segment->bytes;
        block = gc_pool_remove_locked(pool, segment);
    }
    gc_pool_release(pool);
    if (segment != NULL && gc_segment_give_back(context, segment, block, NULL) != 0)
        bytes = 0;
    if (segment == NULL)
        bytes = gc_arena_give_back(context, enough_bytes);
    gc_core_look_end(device->core);
    if (bytes != 0)
        gc_counter_add(&device->stats.trim_count, 1);
    gc_device_give_back_end(device, context->share);
    return bytes;
}

uint64_t gc_shortage_give_back(struct gc_device *device, struct gc_share *share,
                               uint64_t keep_bytes, uint64_t enough_bytes)
{
    uint64_t given = 0;
    for (struct gc_context *context = gc_context_first(device); context != NULL;
         context = gc_context_next(context)) {
        if (!is_asked(context, share))
            continue;
        while (given < enough_bytes && gc_share_idle_bytes(device, share) > keep_bytes) {
            const uint64_t excess =
                gc_sub_or_zero_u64(gc_share_idle_bytes(device, share), keep_bytes);
            const uint64_t bytes =
                give_back_oldest(context, gc_min_u64(enough_bytes - given, excess));
            if (bytes == 0)
                break;
            given += bytes;
        }
    }
    for (unsigned i = 0; i < device->core->shrinker_count && given < enough_bytes; i++)
        given += device->core->shrinkers[i](device, share, keep_bytes, enough_bytes - given);
    return given;
}

void gc_shortage_empty_pool(struct gc_context *context)
{
    while (give_back_oldest(context, UINT64_MAX) > 0)
        ;
}

/* ---- more is held than a limit allows ---- */

static uint64_t keep_of(const struct gc_device *device, const struct gc_share *share)
{
    if (share == NULL)
        return gc_device_keep_bytes(device);
    const uint64_t excess = gc_share_excess_bytes(share);
    return excess == 0 ? UINT64_MAX
                       : gc_sub_or_zero_u64(gc_share_idle_bytes(device, share), excess);
}

void gc_release_excess(struct gc_device *device, struct gc_share *share)
{
    const uint64_t keep_bytes = keep_of(device, share);
    if (gc_share_idle_bytes(device, share) > keep_bytes && gc_work_is_settled(device->core))
        gc_shortage_give_back(device, share, keep_bytes, UINT64_MAX);
}

void gc_shortage_trim(struct gc_context *context)
{
    gc_release_excess(context->device, NULL);
    if (context->share != NULL)
        gc_release_excess(context->device, context->share);
}
