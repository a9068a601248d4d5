/* core/gpucache.h: tenants, over core/device/tenant.h and the handles of shim/account/tenant.c. */
#include "core/reclaim/limit.h"
#include "shim/account/tenant.h"
#include "shim/public/public.h"

#include <string.h>

#define CAPACITY_MAX (UINT64_C(1) << 46) /* a good part of the addresses that a process has */

gpucache_status gpucache_tenant_register(const char *name, uint64_t capacity_bytes,
                                         uint64_t limit_bytes, gpucache_tenant *tenant)
{
    const struct gc_tenant_config config = {
        .name = name, .capacity_bytes = capacity_bytes, .limit_bytes = limit_bytes};
    struct gc_tenant *added;
    gpucache_status status;
    uint64_t handle;

    if (name == NULL || tenant == NULL || limit_bytes == 0 || capacity_bytes > CAPACITY_MAX)
        return GPUCACHE_INVALID_ARGUMENT;
    status = gc_public_start();
    if (status != GPUCACHE_OK)
        return status;
    status = gc_public_status(gc_tenant_add(gc_shim.core, &config, &added), 0);
    if (status != GPUCACHE_OK)
        return status;
    handle = gc_tenants_publish(added, false);
    if (handle == 0) { /* the place of a tenant just removed is not free yet */
        (void)!gc_tenant_remove(gc_shim.core, added);
        return GPUCACHE_TOO_MANY;
    }
    *tenant = handle;
    return GPUCACHE_OK;
}

gpucache_status gpucache_tenant_unregister(gpucache_tenant tenant)
{
    struct gc_public_call call = {.context = NULL};
    struct gc_tenant *found;
    enum gc_status status;
    const gpucache_status state = gc_public_state();

    if (state != GPUCACHE_OK)
        return state;
    status = gc_tenants_close_begin(tenant, &found);
    if (status != GC_OK)
        return gc_public_status(status, 0);
    gc_public_enter_context(NULL, NULL, GC_API_COUNT, &call);
    status = gc_tenant_remove(gc_shim.core, found);
    gc_public_leave(&call);
    gc_tenants_close_end(tenant, status == GC_OK);
    return gc_public_status(status, 0);
}

gpucache_status gpucache_tenant_find(const char *name, gpucache_tenant *tenant)
{
    const gpucache_status status = gc_public_start();
    uint64_t found;

    if (name == NULL || tenant == NULL)
        return GPUCACHE_INVALID_ARGUMENT;
    if (status != GPUCACHE_OK)
        return status;
    found = gc_tenants_find_name(name);
    if (found == 0)
        return GPUCACHE_NOT_FOUND;
    *tenant = found;
    return GPUCACHE_OK;
}

gpucache_status gpucache_tenant_set_current(gpucache_tenant tenant, gpucache_tenant *previous)
{
    const uint64_t before = gc_thread.tenant_handle;
    gpucache_status status = gc_public_state();

    /* Before the start there are no tenants, and none is current. */
    if (status == GPUCACHE_NOT_READY && tenant == 0)
        status = GPUCACHE_OK;
    else if (status == GPUCACHE_OK)
        status = gc_public_status(gc_tenants_set_current(tenant), 0);
    if (status == GPUCACHE_OK && previous != NULL)
        *previous = before;
    return status;
}

gpucache_status gpucache_tenant_get_current(gpucache_tenant *tenant)
{
    const gpucache_status status = gc_public_state();

    if (tenant == NULL)
        return GPUCACHE_INVALID_ARGUMENT;
    if (status != GPUCACHE_OK && status != GPUCACHE_NOT_READY)
        return status;
    *tenant = gc_thread.tenant_handle;
    return GPUCACHE_OK;
}

gpucache_status gpucache_tenant_set_limit(gpucache_tenant tenant, uint64_t limit_bytes)
{
    struct gc_public_call call = {.context = NULL};
    struct gc_tenant *found;
    const gpucache_status state = gc_public_state();

    if (limit_bytes == 0)
        return GPUCACHE_INVALID_ARGUMENT;
    if (state != GPUCACHE_OK)
        return state;
    if (gc_tenants_find(tenant, &found) != GC_OK)
        return GPUCACHE_INVALID_HANDLE;
    gc_public_enter_context(NULL, NULL, GC_API_COUNT, &call);
    gc_limit_set_tenant(found, limit_bytes);
    gc_public_leave(&call);
    return GPUCACHE_OK;
}

static void fill(struct gpucache_tenant_statistics *to, const struct gc_tenant_figures *from)
{
    *to = (struct gpucache_tenant_statistics){
        .capacity_bytes = from->capacity_bytes,
        .limit_bytes = from->limit_bytes,
        .requested_bytes = from->requested.current,
        .requested_peak_bytes = from->requested.peak,
        .allocated_bytes = from->allocated.current,
        .allocated_peak_bytes = from->allocated.peak,
        .reserved_bytes = from->reserved.current,
        .reserved_peak_bytes = from->reserved.peak,
        .pending_bytes = from->pending_bytes,
        .idle_bytes = from->idle_bytes,
        .alloc_count = from->alloc_count,
        .free_count = from->free_count,
        .hit_count = from->hit_count,
        .miss_count = from->miss_count,
        .oom_count = from->oom_count,
        .is_paused = from->is_paused,
        .base = (void *)(uintptr_t)from->base_address, /* NOLINT: addresses are integers in core */
    };
}

gpucache_status gpucache_tenant_get_statistics(gpucache_tenant tenant, int device,
                                               struct gpucache_tenant_statistics *figures)
{
    struct gpucache_tenant_statistics now;
    struct gc_tenant_figures read;
    struct gc_device *found_device = NULL;
    struct gc_tenant *found;
    gpucache_status status = gc_public_state();

    if (figures == NULL || figures->struct_bytes < sizeof(figures->struct_bytes))
        return GPUCACHE_INVALID_ARGUMENT;
    if (status == GPUCACHE_OK)
        status = gc_public_status(gc_tenants_find(tenant, &found), 0);
    if (status == GPUCACHE_OK && device != GPUCACHE_ALL_DEVICES)
        status = gc_public_find_device(device, &found_device);
    if (status != GPUCACHE_OK)
        return status;
    gc_tcache_flush_all_stats(gc_shim.core);
    (void)gc_tenant_read(found, found_device, &read); /* where it was not used, zeros */
    if (read.capacity_bytes == 0 && found_device != NULL)
        read.capacity_bytes = gc_tenant_capacity_bytes(found, found_device);
    fill(&now, &read);
    now.struct_bytes = figures->struct_bytes < sizeof(now) ? figures->struct_bytes : sizeof(now);
    memcpy(figures, &now, now.struct_bytes);
    return GPUCACHE_OK;
}
