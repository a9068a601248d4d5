/* Direct reclaim, so that unused memory never causes an out-of-memory. The caller has tried the
 * free blocks and polled the fences. The steps, with a new attempt by the caller after each that
 * changed something: release idle memory, as much as is wanted; wait for pending blocks, the oldest
 * first; release all idle memory, since the driver's may be fragmented; wait for releases of other
 * threads.
 *
 * A request that exceeds its tenant's own limit reclaims from and waits for that tenant only.
 * Bound: ATTEMPTS_MAX steps and GC_RECLAIM_WAIT_NS of waiting in all. */
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

/* The first attempts release only the wanted bytes. */
#define PARTIAL_ATTEMPTS 1
/* From this attempt on each one waits for and releases everything: other threads take the memory
 * that becomes free. */
#define PATIENT_ATTEMPTS 8
/* Other threads may take the freed memory after each attempt; then the request fails, as it might
 * without the library. */
#define ATTEMPTS_MAX 64

bool gc_reclaim_release_wanted(struct gc_device *device, struct gc_quota *quota,
                               uint64_t wanted_bytes)
{
    if (gc_release_idle(device, quota, 0, wanted_bytes) > 0)
        return true;
    (void)gc_tcache_flush_device(device, quota);
    for (struct gc_context *context = gc_context_first(device); context != NULL;
         context = gc_context_next(context))
        if (gc_context_is_of_quota(context, quota))
            gc_defer_poll(context);
    return gc_release_idle(device, quota, 0, wanted_bytes) > 0;
}

static uint64_t left_ns(const struct gc_device *device, uint64_t end_ns)
{
    return gc_sub_or_zero_u64(end_ns, gc_core_now_ns(device->core));
}

bool gc_reclaim_collect(struct gc_device *device, struct gc_quota *quota, uint64_t limit_ns)
{
    const uint64_t end_ns = gc_core_now_ns(device->core) + limit_ns;
    bool any = gc_tcache_flush_device(device, quota);
    for (struct gc_context *context = gc_context_first(device); context != NULL;
         context = gc_context_next(context))
        any |= gc_context_is_of_quota(context, quota) &&
               gc_defer_drain(context, left_ns(device, end_ns));
    return any;
}

/* ---- a request that is out of memory ---- */

static bool update(uint64_t *known, uint64_t now)
{
    const bool has_risen = *known != now;
    *known = now;
    return has_risen;
}

/* Reads the generations. True if one that matters to `scope` has risen since the last call. */
static bool record_generations(struct gc_reclaim *reclaim, const struct gc_quota *scope)
{
    uint64_t of_pool = 0;
    uint64_t of_quota = 0;
    const bool has_device =
        update(&reclaim->device_generation, gc_idle_generation(&reclaim->device->idle));
    if (reclaim->quota != NULL)
        of_quota = gc_idle_generation(&reclaim->quota->idle);
    if (reclaim->pool != NULL) {
        gc_pool_acquire_plain(reclaim->pool);
        of_pool = reclaim->pool->generation;
        gc_pool_release(reclaim->pool);
    }
    const bool has_quota = update(&reclaim->quota_generation, of_quota);
    const bool has_pool = update(&reclaim->pool_generation, of_pool);
    return has_pool || (scope != NULL ? has_quota : has_device);
}

void gc_reclaim_begin(struct gc_reclaim *reclaim, struct gc_device *device, struct gc_quota *quota,
                      struct gc_pool *pool)
{
    *reclaim = (struct gc_reclaim){.device = device,
                                   .quota = quota,
                                   .pool = pool,
                                   .end_ns = gc_core_now_ns(device->core) + GC_RECLAIM_WAIT_NS};
    record_generations(reclaim, NULL);
}

/* Discounts rollbacks of the request's own charges, which raise the generations: no change. */
static void discount(struct gc_reclaim *reclaim, const struct gc_charge_failure *charge_failure)
{
    const uint64_t both = charge_failure->rollback_count - reclaim->seen.rollback_count;
    const uint64_t quota_only =
        charge_failure->quota_rollback_count - reclaim->seen.quota_rollback_count;
    reclaim->device_generation += both;
    if (reclaim->quota != NULL)
        reclaim->quota_generation += both + quota_only;
    reclaim->seen = *charge_failure;
}

/* How long the request may still wait. After one request waited to the end without result, no
 * request waits until more becomes free or pending. */
static uint64_t patience_ns(const struct gc_reclaim *reclaim)
{
    const struct gc_device *device = reclaim->device;
    return atomic_load_explicit(&device->is_exhausted, memory_order_relaxed)
               ? 0
               : left_ns(device, reclaim->end_ns);
}

static void set_exhausted(const struct gc_reclaim *reclaim, const struct gc_quota *scope)
{
    if (scope == NULL && !reclaim->is_brief && left_ns(reclaim->device, reclaim->end_ns) == 0)
        atomic_store_explicit(&reclaim->device->is_exhausted, true, memory_order_relaxed);
}

/* Waits a little for each context, the request's own first, so that one whose work never ends does
 * not delay the others. */
static bool wait_step(const struct gc_reclaim *reclaim, struct gc_quota *scope, uint64_t limit_ns,
                      bool *is_under_way)
{
    bool any = reclaim->pool != NULL &&
               gc_defer_wait_oldest(reclaim->pool->context, limit_ns, is_under_way);
    for (struct gc_context *context = gc_context_first(reclaim->device); !any && context != NULL;
         context = gc_context_next(context))
        any = gc_context_is_of_quota(context, scope) &&
              gc_defer_wait_oldest(context, limit_ns, is_under_way);
    return any;
}

/* Waits until something becomes free, or the request's time is over. */
static bool wait_for_oldest(const struct gc_reclaim *reclaim, struct gc_quota *scope)
{
    struct gc_device *device = reclaim->device;
    bool any = gc_tcache_flush_device(device, scope);
    bool is_under_way = true;
    if (any) /* flushed blocks may be pending */
        gc_device_clear_exhausted(device);
    for (struct gc_context *context = gc_context_first(device); context != NULL;
         context = gc_context_next(context))
        any |= gc_context_is_of_quota(context, scope) && gc_defer_collect(context);
    bool is_over = false;
    while (!any && is_under_way && !is_over) {
        const uint64_t limit_ns = gc_min_u64(GC_RECLAIM_STEP_NS, patience_ns(reclaim));
        is_under_way = false;
        any = wait_step(reclaim, scope, limit_ns, &is_under_way);
        is_over = limit_ns == 0;
    }
    if (is_over && !any)
        set_exhausted(reclaim, scope);
    /* Contexts without fences. */
    for (struct gc_context *context = gc_context_first(device); !any && !is_over && context != NULL;
         context = gc_context_next(context))
        any =
            gc_context_is_of_quota(context, scope) && gc_defer_drain(context, patience_ns(reclaim));
    return any;
}

/* False: nothing changed. */
static bool reclaim_once(const struct gc_reclaim *reclaim, struct gc_quota *scope,
                         uint64_t wanted_bytes)
{
    struct gc_device *device = reclaim->device;
    if (reclaim->attempts >= PATIENT_ATTEMPTS)
        return gc_reclaim_collect(device, scope, patience_ns(reclaim)) |
               (gc_release_idle(device, scope, 0, UINT64_MAX) > 0);
    if (reclaim->attempts < PARTIAL_ATTEMPTS && gc_release_idle(device, scope, 0, wanted_bytes) > 0)
        return true;
    return wait_for_oldest(reclaim, scope) || gc_release_idle(device, scope, 0, UINT64_MAX) > 0;
}

bool gc_reclaim_relieve(struct gc_device *device, uint64_t wanted_bytes, uint64_t limit_ns)
{
    const struct gc_charge_failure charge_failure = {0};
    const uint64_t end_ns = gc_core_now_ns(device->core) + limit_ns;
    struct gc_reclaim reclaim;
    /* Memory that was reused in one stream's order is released once its work has ended. */
    if (limit_ns < GC_RECLAIM_WAIT_NS && !gc_submit_wait_reused_for(device->core, limit_ns))
        return false;
    if (gc_reclaim_release_wanted(device, NULL, wanted_bytes))
        return true;
    gc_reclaim_begin(&reclaim, device, NULL, NULL);
    reclaim.attempts = PATIENT_ATTEMPTS;
    reclaim.end_ns = gc_min_u64(reclaim.end_ns, end_ns);
    reclaim.is_brief = limit_ns < GC_RECLAIM_WAIT_NS;
    return gc_reclaim_step(&reclaim, wanted_bytes, &charge_failure);
}

bool gc_reclaim_step(struct gc_reclaim *reclaim, uint64_t wanted_bytes,
                     const struct gc_charge_failure *charge_failure)
{
    struct gc_device *device = reclaim->device;
    struct gc_quota *scope = charge_failure->is_quota_short ? reclaim->quota : NULL;
    if (reclaim->attempts >= ATTEMPTS_MAX)
        return false;
    discount(reclaim, charge_failure);
    bool changed = reclaim_once(reclaim, scope, wanted_bytes);
    if (!changed)
        changed = gc_device_wait_releases(device, scope, patience_ns(reclaim));
    if (!changed)
        set_exhausted(reclaim, scope);
    changed |= record_generations(reclaim, scope);
    reclaim->attempts++;
    return changed;
}
