/* core/gpucache.h: elastic pools, over core/direct/elastic.h. */
#include "core/direct/elastic.h"
#include "shim/account/tenant.h"
#include "shim/driver/capture_guard.h"
#include "shim/public/public.h"
#include "shim/real/resolve.h"

#include <string.h>

/* Enters in a context of the pool's device. */
static gpucache_status enter(gpucache_elastic pool, CUstream stream, struct gc_public_call *call)
{
    struct gc_device *device;
    const gpucache_status state = gc_public_state();

    if (state != GPUCACHE_OK)
        return state;
    if (gc_elastic_find_device(gc_shim.core, pool, &device) != GC_OK)
        return GPUCACHE_INVALID_HANDLE;
    return gc_public_enter(gc_device_get_info(device)->ordinal, stream,
                           GC_API_gpucache_elastic_allocate, call);
}

static gpucache_status leave(struct gc_public_call *call, enum gc_status status, int driver_code)
{
    gc_public_leave(call);
    return gc_public_status(status, driver_code);
}

gpucache_status gpucache_elastic_create(int device, uint64_t capacity_bytes, uint64_t page_bytes,
                                        unsigned flags, gpucache_elastic *pool, void **base)
{
    struct gc_elastic_setup setup = {
        .capacity_bytes = capacity_bytes,
        .page_bytes = page_bytes,
        .keeps_none = (flags & GPUCACHE_ELASTIC_NO_WARM) != 0,
    };
    struct gc_public_call call;
    enum gc_status result;
    uint64_t address;
    gpucache_status status;
    int code = 0;

    if (pool == NULL || (flags & ~GPUCACHE_ELASTIC_NO_WARM) != 0)
        return GPUCACHE_INVALID_ARGUMENT;
    GC_SET_CALLER();
    status = gc_public_enter(device, NULL, GC_API_gpucache_elastic_allocate, &call);
    if (status != GPUCACHE_OK)
        return status;
    setup.api = (uint16_t)call.api;
    result = gc_tenants_quota(gc_context_device(call.context), &setup.quota);
    if (result == GC_OK)
        result = gc_elastic_create(gc_shim.core, call.context, &setup, pool, &address, &code);
    status = leave(&call, result, code);
    if (status == GPUCACHE_OK && base != NULL)
        *base = (void *)(uintptr_t)address; /* NOLINT: device addresses travel as integers */
    return status;
}

gpucache_status gpucache_elastic_destroy(gpucache_elastic pool)
{
    struct gc_public_call call;
    int code = 0;
    const gpucache_status status = enter(pool, NULL, &call);

    if (status != GPUCACHE_OK)
        return status;
    const enum gc_status result = gc_elastic_destroy(gc_shim.core, call.context, pool, &code);
    return leave(&call, result, code);
}

gpucache_status gpucache_elastic_allocate(gpucache_elastic pool, uint64_t offset, uint64_t bytes)
{
    struct gc_public_call call;
    enum gc_status result;
    gpucache_status status = enter(pool, NULL, &call);
    int code = 0;

    if (status != GPUCACHE_OK)
        return status;
    result = gc_elastic_allocate(gc_shim.core, call.context, pool, offset, bytes, &code);
    status = gc_public_alloc_status(result, code, gc_context_device(call.context), bytes);
    gc_public_leave(&call);
    return status;
}

/* Waits for one stream, unless a capture forbids it. */
static gpucache_status wait_stream(const struct gc_public_call *call, CUstream stream)
{
    struct gc_capture_guard guard;
    CUresult result;

    if (gc_capture_is_of_context(call->context))
        return GPUCACHE_CAPTURING;
    gc_capture_relax(&guard);
    result = GC_CALL(gc_context_device(call->context), cuStreamSynchronize, stream);
    gc_capture_restore(&guard);
    return result == CUDA_SUCCESS ? GPUCACHE_OK : gc_public_status(GC_DRIVER, (int)result);
}

gpucache_status gpucache_elastic_deallocate(gpucache_elastic pool, uint64_t offset, uint64_t bytes,
                                            int wait, gpucache_stream stream)
{
    struct gc_public_call call;
    gpucache_status status;
    int code = 0;

    if (wait < GPUCACHE_WAIT_DEVICE || wait > GPUCACHE_WAIT_NONE)
        return GPUCACHE_INVALID_ARGUMENT;
    status = enter(pool, (CUstream)stream, &call);
    if (status != GPUCACHE_OK)
        return status;
    if (wait == GPUCACHE_WAIT_STREAM)
        status = wait_stream(&call, (CUstream)stream);
    if (status == GPUCACHE_OK)
        status = gc_public_status(gc_elastic_deallocate(gc_shim.core, call.context, pool, offset,
                                                        bytes, wait != GPUCACHE_WAIT_DEVICE, &code),
                                  code);
    gc_public_leave(&call);
    return status;
}

gpucache_status gpucache_elastic_is_mapped(gpucache_elastic pool, uint64_t offset, uint64_t bytes,
                                           int *is_mapped)
{
    bool answer = false;
    gpucache_status status = gc_public_state();

    if (is_mapped == NULL)
        return GPUCACHE_INVALID_ARGUMENT;
    if (status != GPUCACHE_OK)
        return status;
    status = gc_public_status(gc_elastic_is_mapped(gc_shim.core, pool, offset, bytes, &answer), 0);
    if (status == GPUCACHE_OK)
        *is_mapped = answer;
    return status;
}

static void fill(struct gpucache_elastic_statistics *to, const struct gc_elastic_figures *from)
{
    *to = (struct gpucache_elastic_statistics){
        .capacity_bytes = from->capacity_bytes,
        .page_bytes = from->page_bytes,
        .mapped_bytes = from->mapped_bytes,
        .mapped_peak_bytes = from->mapped_peak_bytes,
        .warm_bytes = from->warm_bytes,
        .free_bytes = from->free_bytes,
        .largest_free_bytes = from->largest_free_bytes,
        .fragmentation = from->free_bytes == 0
                             ? 0.0
                             : 1.0 - (double)from->largest_free_bytes / (double)from->free_bytes,
        .allocate_count = from->allocate_count,
        .deallocate_count = from->deallocate_count,
        .map_count = from->map_count,
        .unmap_count = from->unmap_count,
        .create_count = from->create_count,
        .base = (void *)(uintptr_t)from->base, /* NOLINT: as above */
    };
}

gpucache_status gpucache_elastic_get_statistics(gpucache_elastic pool,
                                                struct gpucache_elastic_statistics *figures)
{
    struct gpucache_elastic_statistics now;
    struct gc_elastic_figures read;
    gpucache_status status = gc_public_state();

    if (figures == NULL || figures->struct_bytes < sizeof(figures->struct_bytes))
        return GPUCACHE_INVALID_ARGUMENT;
    if (status == GPUCACHE_OK)
        status = gc_public_status(gc_elastic_read(gc_shim.core, pool, &read), 0);
    if (status != GPUCACHE_OK)
        return status;
    fill(&now, &read);
    now.struct_bytes = figures->struct_bytes < sizeof(now) ? figures->struct_bytes : sizeof(now);
    memcpy(figures, &now, now.struct_bytes);
    return GPUCACHE_OK;
}

gpucache_status gpucache_elastic_compact(gpucache_elastic pool, uint64_t *given_bytes)
{
    struct gc_public_call call;
    uint64_t given = 0;
    int code = 0;
    gpucache_status status = enter(pool, NULL, &call);

    if (status != GPUCACHE_OK)
        return status;
    const enum gc_status result =
        gc_elastic_compact(gc_shim.core, call.context, pool, &given, &code);
    status = leave(&call, result, code);
    if (status == GPUCACHE_OK && given_bytes != NULL)
        *given_bytes = given;
    return status;
}
