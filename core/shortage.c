/* What is done before a request fails, so that memory which nobody uses never causes an
 * out-of-memory. The caller has looked at free memory and at fences that have completed; then: give
 * idle memory back, as much as is wanted; wait for what is pending, the oldest first; give
 * everything idle back, as the driver may be fragmented; wait for give-backs that other threads
 * have under way. The caller tries again after each step that changed something. */
#include "core/arena.h"
#include "core/bits.h"
#include "core/check.h"
#include "core/elastic.h"
#include "core/instance.h"
#include "core/magazine.h"

#include <stddef.h>

/* At first idle memory is given back as far as is wanted. */
#define PARTIAL_ATTEMPTS 1
/* From here on everything is waited for and given back each time: others take what comes. */
#define PATIENT_ATTEMPTS 8
/* Others may take every time what was made free; then the request fails, as it might without a
 * cache. */
#define ATTEMPTS_MAX 64

/* Gives back the longest idle segment of a pool, or up to `enough_bytes` of idle pages: its bytes,
 * or 0 if there is none or the driver refused. */
static uint64_t give_back_oldest(struct gc_context *context, uint64_t enough_bytes)
{
    struct gc_device *device = context->device;
    struct gc_pool *pool = &context->pool;
    struct gc_block *block = NULL;
    struct gc_wait_set set = {.count = 0};
    uint64_t bytes = 0;
    gc_device_give_back_begin(device);
    gc_pool_acquire_plain(pool);
    /* What would have to be waited for captures: nothing is unmapped then either. */
    struct gc_segment *segment = pool->idle_oldest;
    if (segment != NULL && !gc_context_wait_begin_locked(context, &set))
        segment = NULL;
    if (segment != NULL) {
        bytes = segment->bytes;
        block = gc_pool_remove_locked(pool, segment);
    }
    gc_pool_release(pool);
    if (segment != NULL && gc_segment_give_back(context, segment, block, NULL) != 0)
        bytes = 0;
    gc_context_wait_end(&set);
    if (segment == NULL)
        bytes = gc_arena_give_back(context, enough_bytes);
    if (bytes != 0)
        gc_counter_add(&device->stats.trim_count, 1);
    gc_device_give_back_end(device);
    return bytes;
}

uint64_t gc_shortage_give_back(struct gc_device *device, uint64_t keep_bytes, uint64_t enough_bytes)
{
    uint64_t given = 0;
    for (struct gc_context *context = gc_context_first(device); context != NULL;
         context = gc_context_next(context)) {
        while (given < enough_bytes && gc_device_idle_bytes(device) > keep_bytes) {
            const uint64_t excess = gc_device_idle_bytes(device) - keep_bytes;
            const uint64_t bytes =
                give_back_oldest(context, gc_min_u64(enough_bytes - given, excess));
            if (bytes == 0)
                break;
            given += bytes;
        }
    }
    if (given < enough_bytes)
        given += gc_elastic_give_back(device, keep_bytes, enough_bytes - given);
    return given;
}

void gc_shortage_empty_pool(struct gc_context *context)
{
    while (give_back_oldest(context, UINT64_MAX) > 0)
        ;
}

bool gc_shortage_resolve(struct gc_device *device)
{
    bool any = gc_magazine_flush_device(device);
    for (struct gc_context *context = gc_context_first(device); context != NULL;
         context = gc_context_next(context))
        any |= gc_reuse_drain(context);
    return any;
}

/* Reads both generations, and says whether one has risen since the last time. */
static bool note_generations(struct gc_shortage *shortage)
{
    const uint64_t of_device = gc_supply_generation(&shortage->device->supply);
    uint64_t of_pool = 0;
    if (shortage->pool != NULL) {
        gc_pool_acquire_plain(shortage->pool);
        of_pool = shortage->pool->generation;
        gc_pool_release(shortage->pool);
    }
    const bool risen =
        of_device != shortage->device_generation || of_pool != shortage->pool_generation;
    shortage->device_generation = of_device;
    shortage->pool_generation = of_pool;
    return risen;
}

void gc_shortage_begin(struct gc_shortage *shortage, struct gc_device *device, struct gc_pool *pool)
{
    *shortage = (struct gc_shortage){.device = device, .pool = pool};
    note_generations(shortage);
}

/* Waits no longer than it takes until something becomes free, the request's own context first. */
static bool wait_for_oldest(const struct gc_shortage *shortage)
{
    struct gc_device *device = shortage->device;
    bool any = gc_magazine_flush_device(device);
    for (struct gc_context *context = gc_context_first(device); context != NULL;
         context = gc_context_next(context))
        any |= gc_reuse_collect(context);
    if (!any && shortage->pool != NULL)
        any = gc_reuse_wait_oldest(shortage->pool->context);
    for (struct gc_context *context = gc_context_first(device); !any && context != NULL;
         context = gc_context_next(context))
        any = gc_reuse_wait_oldest(context);
    return any;
}

/* One step; false if it changed nothing. */
static bool make_room(const struct gc_shortage *shortage, uint64_t wanted_bytes)
{
    struct gc_device *device = shortage->device;
    if (shortage->attempts >= PATIENT_ATTEMPTS)
        return gc_shortage_resolve(device) | (gc_shortage_give_back(device, 0, UINT64_MAX) > 0);
    if (shortage->attempts < PARTIAL_ATTEMPTS && gc_shortage_give_back(device, 0, wanted_bytes) > 0)
        return true;
    return wait_for_oldest(shortage) || gc_shortage_give_back(device, 0, UINT64_MAX) > 0;
}

bool gc_shortage_relieve(struct gc_shortage *shortage, uint64_t wanted_bytes,
                         const struct gc_decline *decline)
{
    struct gc_device *device = shortage->device;
    if (shortage->attempts >= ATTEMPTS_MAX)
        return false;
    shortage->device_generation += decline->rollback_count - shortage->rollback_count;
    shortage->rollback_count = decline->rollback_count;
    bool changed = make_room(shortage, wanted_bytes);
    if (!changed)
        changed = gc_device_await_give_backs(device);
    changed |= note_generations(shortage);
    shortage->attempts++;
    return changed;
}

uint64_t gc_core_empty(struct gc_core *core, struct gc_device *device)
{
    gc_shortage_resolve(device);
    return gc_core_trim(core, device, 0);
}

static bool is_over_limit(const struct gc_device *device)
{
    return gc_device_excess_bytes(device) > 0;
}

/* While too much is held, what threads free goes to the pool, and from there back to the driver. */
static void note_over_limit(struct gc_device *device, bool is_over)
{
    if (atomic_load_explicit(&device->is_over_limit, memory_order_relaxed) == is_over)
        return;
    atomic_store_explicit(&device->is_over_limit, is_over, memory_order_relaxed);
    gc_magazine_size_all(device);
}

bool gc_device_settle(struct gc_device *device)
{
    note_over_limit(device, is_over_limit(device));
    if (atomic_load_explicit(&device->is_over_limit, memory_order_relaxed)) {
        gc_core_trim(device->core, device, gc_device_keep_bytes(device));
        if (is_over_limit(device) && gc_shortage_resolve(device))
            gc_core_trim(device->core, device, gc_device_keep_bytes(device));
        note_over_limit(device, is_over_limit(device));
        if (is_over_limit(device))
            return false;
    }
    if (atomic_load_explicit(&device->is_group_over, memory_order_relaxed))
        atomic_store_explicit(&device->is_group_over, false, memory_order_relaxed);
    return true;
}
