/* What is done before a request fails, so that memory which nobody uses never causes an
 * out-of-memory. The caller has looked at free memory and at fences that have completed; then: give
 * idle memory back, as much as is wanted; wait for what is pending, the oldest first; give
 * everything idle back, as the driver may be fragmented; wait for give-backs that other threads
 * have under way. The caller tries again after each step that changed something.
 *
 * A tenant whose own limit is what is short asks and waits for nobody but itself. */
#include "core/reclaim/reclaim.h"
#include "core/backing/change.h"
#include "core/backing/segment.h"
#include "core/base/assert.h"
#include "core/base/bits.h"
#include "core/device/registry.h"
#include "core/reclaim/defer.h"
#include "core/reclaim/release.h"
#include "core/reclaim/tcache.h"

#include <stddef.h>

/* At first idle memory is given back as far as is wanted. */
#define PARTIAL_ATTEMPTS 1
/* From here on everything is waited for and given back each time: others take what comes. */
#define PATIENT_ATTEMPTS 8
/* Others may take every time what was made free; then the request fails, as it might without a
 * cache. */
#define ATTEMPTS_MAX 64

/* Whether the context is one of those that are asked. */
static bool is_asked(const struct gc_context *context, const struct gc_share *share)
{
    return share == NULL || context->share == share;
}

bool gc_shortage_give_idle(struct gc_device *device, struct gc_share *share, uint64_t wanted_bytes)
{
    if (gc_shortage_give_back(device, share, 0, wanted_bytes) > 0)
        return true;
    (void)gc_magazine_flush_device(device, share);
    for (struct gc_context *context = gc_context_first(device); context != NULL;
         context = gc_context_next(context))
        if (is_asked(context, share))
            gc_reuse_look(context);
    return gc_shortage_give_back(device, share, 0, wanted_bytes) > 0;
}

static uint64_t left_ns(const struct gc_device *device, uint64_t end_ns)
{
    return gc_sub_or_zero_u64(end_ns, gc_core_now_ns(device->core));
}

bool gc_shortage_resolve(struct gc_device *device, struct gc_share *share, uint64_t limit_ns)
{
    const uint64_t end_ns = gc_core_now_ns(device->core) + limit_ns;
    bool any = gc_magazine_flush_device(device, share);
    for (struct gc_context *context = gc_context_first(device); context != NULL;
         context = gc_context_next(context))
        any |= is_asked(context, share) && gc_reuse_drain(context, left_ns(device, end_ns));
    return any;
}

/* ---- a request that is short ---- */

static bool update(uint64_t *known, uint64_t now)
{
    const bool has_risen = *known != now;
    *known = now;
    return has_risen;
}

/* Reads the generations, and says whether one that matters to `scope` has risen since the last
 * time. */
static bool note_generations(struct gc_shortage *shortage, const struct gc_share *scope)
{
    uint64_t of_pool = 0;
    uint64_t of_share = 0;
    const bool has_device =
        update(&shortage->device_generation, gc_supply_generation(&shortage->device->supply));
    if (shortage->share != NULL)
        of_share = gc_supply_generation(&shortage->share->supply);
    if (shortage->pool != NULL) {
        gc_pool_acquire_plain(shortage->pool);
        of_pool = shortage->pool->generation;
        gc_pool_release(shortage->pool);
    }
    const bool has_share = update(&shortage->share_generation, of_share);
    const bool has_pool = update(&shortage->pool_generation, of_pool);
    return has_pool || (scope != NULL ? has_share : has_device);
}

void gc_shortage_begin(struct gc_shortage *shortage, struct gc_device *device,
                       struct gc_share *share, struct gc_pool *pool)
{
    *shortage = (struct gc_shortage){.device = device,
                                     .share = share,
                                     .pool = pool,
                                     .end_ns = gc_core_now_ns(device->core) + GC_SHORT_NS};
    note_generations(shortage, NULL);
}

/* What the request itself released is no news. */
static void discount(struct gc_shortage *shortage, const struct gc_decline *decline)
{
    const uint64_t both = decline->rollback_count - shortage->seen.rollback_count;
    const uint64_t share_only = decline->share_rollback_count - shortage->seen.share_rollback_count;
    shortage->device_generation += both;
    if (shortage->share != NULL)
        shortage->share_generation += both + share_only;
    shortage->seen = *decline;
}

/* How long the request may still wait. Where one waited in vain none waits until more becomes free
 * or pending: its call may ask several times, and so may those that come. */
static uint64_t patience_ns(const struct gc_shortage *shortage)
{
    const struct gc_device *device = shortage->device;
    return atomic_load_explicit(&device->is_stuck, memory_order_relaxed)
               ? 0
               : left_ns(device, shortage->end_ns);
}

static void note_stuck(const struct gc_shortage *shortage, const struct gc_share *scope)
{
    if (scope == NULL && left_ns(shortage->device, shortage->end_ns) == 0)
        atomic_store_explicit(&shortage->device->is_stuck, true, memory_order_relaxed);
}

/* Of all contexts a little each, the request's own first, so that one whose work goes on for ever
 * does not hold the others up. */
static bool wait_in_turn(const struct gc_shortage *shortage, struct gc_share *scope,
                         uint64_t limit_ns, bool *is_under_way)
{
    bool any = shortage->pool != NULL &&
               gc_reuse_wait_oldest(shortage->pool->context, limit_ns, is_under_way);
    for (struct gc_context *context = gc_context_first(shortage->device); !any && context != NULL;
         context = gc_context_next(context))
        any = is_asked(context, scope) && gc_reuse_wait_oldest(context, limit_ns, is_under_way);
    return any;
}

/* Waits no longer than it takes until something becomes free. */
static bool wait_for_oldest(const struct gc_shortage *shortage, struct gc_share *scope)
{
    struct gc_device *device = shortage->device;
    bool any = gc_magazine_flush_device(device, scope);
    bool is_under_way = true;
    if (any) /* it may be pending now */
        gc_device_note_change(device);
    for (struct gc_context *context = gc_context_first(device); context != NULL;
         context = gc_context_next(context))
        any |= is_asked(context, scope) && gc_reuse_collect(context);
    bool is_over = false;
    while (!any && is_under_way && !is_over) {
        const uint64_t limit_ns = gc_min_u64(GC_TURN_NS, patience_ns(shortage));
        is_under_way = false;
        any = wait_in_turn(shortage, scope, limit_ns, &is_under_way);
        is_over = limit_ns == 0;
    }
    if (is_over && !any)
        note_stuck(shortage, scope);
    /* Where there are no fences. */
    for (struct gc_context *context = gc_context_first(device); !any && !is_over && context != NULL;
         context = gc_context_next(context))
        any = is_asked(context, scope) && gc_reuse_drain(context, patience_ns(shortage));
    return any;
}

/* One step; false if it changed nothing. */
static bool make_room(const struct gc_shortage *shortage, struct gc_share *scope,
                      uint64_t wanted_bytes)
{
    struct gc_device *device = shortage->device;
    if (shortage->attempts >= PATIENT_ATTEMPTS)
        return gc_shortage_resolve(device, scope, patience_ns(shortage)) |
               (gc_shortage_give_back(device, scope, 0, UINT64_MAX) > 0);
    if (shortage->attempts < PARTIAL_ATTEMPTS &&
        gc_shortage_give_back(device, scope, 0, wanted_bytes) > 0)
        return true;
    return wait_for_oldest(shortage, scope) ||
           gc_shortage_give_back(device, scope, 0, UINT64_MAX) > 0;
}

bool gc_shortage_relieve(struct gc_shortage *shortage, uint64_t wanted_bytes,
                         const struct gc_decline *decline)
{
    struct gc_device *device = shortage->device;
    struct gc_share *scope = decline->is_share_short ? shortage->share : NULL;
    if (shortage->attempts >= ATTEMPTS_MAX)
        return false;
    discount(shortage, decline);
    bool changed = make_room(shortage, scope, wanted_bytes);
    if (!changed)
        changed = gc_device_await_give_backs(device, scope, left_ns(device, shortage->end_ns));
    if (!changed)
        note_stuck(shortage, scope);
    changed |= note_generations(shortage, scope);
    shortage->attempts++;
    return changed;
}
