/* More is held than a limit allows, or than is to stay idle: threads keep nothing then, idle memory
 * goes back to the driver, and pending memory is waited for. Nothing live is taken away. */
#include "core/reclaim/limit.h"

#include "core/base/bits.h"
#include "core/device/registry.h"
#include "core/device/tenant_record.h"
#include "core/reclaim/defer.h"
#include "core/reclaim/reclaim.h"
#include "core/reclaim/release.h"
#include "core/reclaim/tcache.h"

#include <stddef.h>

static uint64_t excess_of(const struct gc_device *device, const struct gc_share *share)
{
    return share == NULL ? gc_device_excess_bytes(device) : gc_share_excess_bytes(share);
}

/* While too much is held, what threads free goes to the pool, and from there back to the driver. */
static void note_over_limit(struct gc_device *device, atomic_bool *is_known, bool is_over)
{
    if (atomic_load_explicit(is_known, memory_order_relaxed) == is_over)
        return;
    atomic_store_explicit(is_known, is_over, memory_order_relaxed);
    gc_magazine_size_all(device);
}

static void trim_all(struct gc_device *device, struct gc_share *share)
{
    gc_magazine_flush_device(device, share);
    gc_release_excess(device, share);
}

/* False if more is still held. */
static bool settle(struct gc_device *device, struct gc_share *share, atomic_bool *is_known)
{
    note_over_limit(device, is_known, excess_of(device, share) > 0);
    if (!atomic_load_explicit(is_known, memory_order_relaxed))
        return true;
    trim_all(device, share);
    if (excess_of(device, share) > 0 && gc_shortage_resolve(device, share, GC_TURN_NS))
        trim_all(device, share);
    note_over_limit(device, is_known, excess_of(device, share) > 0);
    return excess_of(device, share) == 0;
}

bool gc_device_settle(struct gc_device *device)
{
    if (!settle(device, NULL, &device->is_over_limit))
        return false;
    if (atomic_load_explicit(&device->is_group_over, memory_order_relaxed))
        atomic_store_explicit(&device->is_group_over, false, memory_order_relaxed);
    return true;
}

bool gc_share_settle(struct gc_share *share)
{
    return settle(share->device, share, &share->is_over_limit);
}

bool gc_shortage_settle(struct gc_context *context)
{
    return gc_device_settle(context->device) &&
           (context->share == NULL || gc_share_settle(context->share));
}

/* ---- on demand ---- */

uint64_t gc_core_trim(struct gc_core *core, struct gc_device *device, uint64_t keep_bytes)
{
    gc_magazine_flush_device(device, NULL);
    for (struct gc_context *context = gc_context_first(device); context != NULL;
         context = gc_context_next(context))
        gc_reuse_look(context);
    if (!gc_work_is_settled(core))
        return 0;
    return gc_shortage_give_back(device, NULL, keep_bytes, UINT64_MAX);
}

uint64_t gc_core_empty(struct gc_core *core, struct gc_device *device)
{
    gc_shortage_resolve(device, NULL, GC_SHORT_NS);
    return gc_core_trim(core, device, 0);
}

/* ---- new limits ---- */

void gc_core_set_limit(struct gc_core *core, struct gc_device *device, uint64_t limit_bytes)
{
    (void)core;
    gc_device_set_limit(device, limit_bytes);
    (void)gc_device_settle(device); /* what is live stays */
    gc_magazine_size_all(device);
}

static void apply_limit(struct gc_share *share)
{
    (void)gc_share_settle(share); /* what is live stays */
    gc_magazine_size_all(share->device);
}

void gc_tenant_set_limit(struct gc_tenant *tenant, uint64_t limit_bytes)
{
    gc_lock_acquire(&tenant->core->registry);
    atomic_store_explicit(&tenant->limit_bytes, limit_bytes, memory_order_relaxed);
    for (int i = 0; i < GC_DEVICE_MAX; i++) {
        struct gc_share *share = gc_tenant_share_at(tenant, i);
        if (share != NULL)
            gc_budget_set_limit(&share->budget, limit_bytes);
    }
    gc_lock_release(&tenant->core->registry);
    for (int i = 0; i < GC_DEVICE_MAX; i++) {
        struct gc_share *share = gc_tenant_share_at(tenant, i);
        if (share != NULL)
            apply_limit(share);
    }
}
