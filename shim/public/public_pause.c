/* core/gpucache.h: pause and resume, and what need not be copied for them. */
#include "core/backing/kept.h"
#include "core/pause/pause.h"
#include "shim/account/tenant.h"
#include "shim/public/public.h"
#include "shim/real/resolve.h"

static gpucache_status status_of(const struct gc_swap_result *result)
{
    switch (result->refusal) {
    case GC_SWAP_OK:
        return GPUCACHE_OK;
    case GC_SWAP_AGAIN:
        return GPUCACHE_PAUSED;
    case GC_SWAP_CAPTURES:
        return GPUCACHE_CAPTURING;
    case GC_SWAP_HOST:
        return GPUCACHE_NO_HOST_MEMORY;
    case GC_SWAP_FULL:
        return GPUCACHE_OUT_OF_MEMORY;
    case GC_SWAP_BUSY:
        return GPUCACHE_BUSY;
    case GC_SWAP_UNSEEN:
        return GPUCACHE_NOT_SUPPORTED;
    case GC_SWAP_DRIVER:
        return gc_public_status(GC_DRIVER, result->driver_code);
    default:
        return GPUCACHE_PINNED;
    }
}

static gpucache_status end(const struct gc_swap_result *result, uint64_t *moved_bytes)
{
    const gpucache_status status = status_of(result);

    gc_shim_leave();
    if (status == GPUCACHE_OK && moved_bytes != NULL)
        *moved_bytes = result->moved_bytes;
    return status;
}

/* Tenant NULL: the process. */
static gpucache_status pause_it(struct gc_tenant *tenant, int keep_content, uint32_t timeout_ms,
                                uint64_t *moved_bytes)
{
    /* Without a preload the program itself must submit nothing meanwhile. */
    const struct gc_pause_request request = {.tenant = tenant,
                                             .keeps_content = keep_content != 0,
                                             .is_vouched = !gc_resolve_is_interposing(),
                                             .timeout_ms = timeout_ms};
    struct gc_swap_result result;

    gc_shim_enter(GC_API_COUNT);
    (void)!gc_pause(gc_shim.core, &request, &result);
    return end(&result, moved_bytes);
}

static gpucache_status resume_it(struct gc_tenant *tenant, uint64_t *moved_bytes)
{
    struct gc_swap_result result;

    gc_shim_enter(GC_API_COUNT);
    (void)!gc_pause_resume(gc_shim.core, tenant, &result);
    return end(&result, moved_bytes);
}

gpucache_status gpucache_pause(int keep_content, uint32_t timeout_ms, uint64_t *moved_bytes)
{
    const gpucache_status state = gc_public_state();

    return state != GPUCACHE_OK ? state : pause_it(NULL, keep_content, timeout_ms, moved_bytes);
}

gpucache_status gpucache_resume(uint64_t *moved_bytes)
{
    const gpucache_status state = gc_public_state();

    return state != GPUCACHE_OK ? state : resume_it(NULL, moved_bytes);
}

static gpucache_status find(gpucache_tenant handle, struct gc_tenant **tenant)
{
    const gpucache_status state = gc_public_state();

    if (state != GPUCACHE_OK)
        return state;
    return gc_public_status(gc_tenants_find(handle, tenant), 0);
}

gpucache_status gpucache_tenant_pause(gpucache_tenant tenant, int keep_content, uint32_t timeout_ms,
                                      uint64_t *moved_bytes)
{
    struct gc_tenant *found;
    const gpucache_status status = find(tenant, &found);

    return status != GPUCACHE_OK ? status : pause_it(found, keep_content, timeout_ms, moved_bytes);
}

gpucache_status gpucache_tenant_resume(gpucache_tenant tenant, uint64_t *moved_bytes)
{
    struct gc_tenant *found;
    const gpucache_status status = find(tenant, &found);

    return status != GPUCACHE_OK ? status : resume_it(found, moved_bytes);
}

gpucache_status gpucache_advise(const void *address, size_t bytes, int advice)
{
    const gpucache_status state = gc_public_state();
    enum gc_status status;

    if (address == NULL || bytes == 0 ||
        (advice != GPUCACHE_ADVICE_CHANGING && advice != GPUCACHE_ADVICE_UNCHANGING))
        return GPUCACHE_INVALID_ARGUMENT;
    if (state == GPUCACHE_DISABLED && !gc_shim.is_refused)
        return GPUCACHE_OK;
    if (state != GPUCACHE_OK || gc_shim.options->mode != GC_MODE_CACHE)
        return state;
    gc_shim_enter(GC_API_COUNT);
    status = advice == GPUCACHE_ADVICE_UNCHANGING
                 ? gc_kept_declare(gc_shim.core, (uintptr_t)address, bytes)
                 : gc_kept_take_back(gc_shim.core, (uintptr_t)address, bytes);
    gc_shim_leave();
    return gc_public_status(status, 0);
}
