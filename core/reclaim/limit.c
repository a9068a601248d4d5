/* Enforces the limits of devices and tenants. While a device or quota is over its limit, thread
 * caches keep nothing, idle memory is released to the driver and pending blocks are waited for;
 * live blocks stay. At most one bounded wait (GC_RECLAIM_STEP_NS) per call. */
#include "core/reclaim/limit.h"

#include "core/backing/kept.h"
#include "core/base/bits.h"
#include "core/device/registry.h"
#include "core/device/tenant.h"
#include "core/reclaim/defer.h"
#include "core/reclaim/reclaim.h"
#include "core/reclaim/release.h"
#include "core/reclaim/tcache.h"

#include <stddef.h>

static uint64_t excess_of(const struct gc_device *device, const struct gc_quota *quota)
{
    return quota == NULL ? gc_device_excess_bytes(device) : gc_quota_excess_bytes(quota);
}

/* While over the limit, threads free to the pool, which releases to the driver. */
static void set_over_limit(struct gc_device *device, atomic_bool *is_known, bool is_over)
{
    if (atomic_load_explicit(is_known, memory_order_relaxed) == is_over)
        return;
    atomic_store_explicit(is_known, is_over, memory_order_relaxed);
    gc_device_size_tcaches(device);
}

static void trim_all(struct gc_device *device, struct gc_quota *quota)
{
    gc_tcache_flush_device(device, quota);
    gc_release_excess(device, quota);
}

/* False: still over the limit. */
static bool enforce(struct gc_device *device, struct gc_quota *quota, atomic_bool *is_known)
{
    set_over_limit(device, is_known, excess_of(device, quota) > 0);
    if (!atomic_load_explicit(is_known, memory_order_relaxed))
        return true;
    trim_all(device, quota);
    if (excess_of(device, quota) > 0 && gc_reclaim_collect(device, quota, GC_RECLAIM_STEP_NS))
        trim_all(device, quota);
    set_over_limit(device, is_known, excess_of(device, quota) > 0);
    return excess_of(device, quota) == 0;
}

bool gc_limit_enforce_device(struct gc_device *device)
{
    if (!enforce(device, NULL, &device->is_over_limit))
        return false;
    if (atomic_load_explicit(&device->is_group_over, memory_order_relaxed))
        atomic_store_explicit(&device->is_group_over, false, memory_order_relaxed);
    return true;
}

/* As gc_limit_enforce_device, for a tenant's quota. */
static bool enforce_quota(struct gc_quota *quota)
{
    return enforce(quota->device, quota, &quota->is_over_limit);
}

bool gc_limit_enforce(struct gc_context *context)
{
    return gc_limit_enforce_device(context->device) &&
           (context->quota == NULL || enforce_quota(context->quota));
}

/* ---- on demand ---- */

uint64_t gc_reclaim_trim(struct gc_core *core, struct gc_device *device, uint64_t keep_bytes)
{
    gc_tcache_flush_device(device, NULL);
    for (struct gc_context *context = gc_context_first(device); context != NULL;
         context = gc_context_next(context))
        gc_defer_poll(context);
    if (!gc_submit_try_wait_reused(core))
        return 0;
    const uint64_t released = gc_release_idle(device, NULL, keep_bytes, UINT64_MAX);
    for (struct gc_context *context = gc_context_first(device); context != NULL;
         context = gc_context_next(context))
        gc_defer_release_uncached(context); /* host memory, which is not counted as idle */
    return released;
}

uint64_t gc_reclaim_empty(struct gc_core *core, struct gc_device *device)
{
    gc_reclaim_collect(device, NULL, GC_RECLAIM_WAIT_NS);
    return gc_reclaim_trim(core, device, 0);
}

void gc_reclaim_empty_host(struct gc_core *core)
{
    (void)gc_kept_purge(core, UINT64_MAX);
    (void)gc_host_trim(core);
}

/* ---- new limits ---- */

void gc_limit_set(struct gc_core *core, struct gc_device *device, uint64_t limit_bytes)
{
    (void)core;
    gc_device_set_limit(device, limit_bytes);
    (void)gc_limit_enforce_device(device); /* live blocks stay */
    gc_device_size_tcaches(device);
}

static void apply_limit(struct gc_quota *quota)
{
    (void)enforce_quota(quota); /* live blocks stay */
    gc_device_size_tcaches(quota->device);
}

void gc_limit_set_tenant(struct gc_tenant *tenant, uint64_t limit_bytes)
{
    gc_lock_acquire(&tenant->core->registry);
    atomic_store_explicit(&tenant->limit_bytes, limit_bytes, memory_order_relaxed);
    for (int i = 0; i < GC_DEVICE_MAX; i++) {
        struct gc_quota *quota = gc_tenant_quota_at(tenant, i);
        if (quota != NULL)
            gc_budget_set_limit(&quota->budget, limit_bytes);
    }
    gc_lock_release(&tenant->core->registry);
    for (int i = 0; i < GC_DEVICE_MAX; i++) {
        struct gc_quota *quota = gc_tenant_quota_at(tenant, i);
        if (quota != NULL)
            apply_limit(quota);
    }
}
