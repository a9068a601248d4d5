/* The driver's plain allocation calls: served by core, freed through core. Calls that the driver
 * would refuse (no bytes, no place for the result, no context) go to the driver, which returns its
 * own code.
 *
 * In mode `track` the driver serves cuMemAlloc, and the memory is direct memory: charged before the
 * call, recorded after it. A tenant's requests and pitched ones go through core there as well,
 * which passes them on.
 *
 * The first ABI (cuMemAlloc without a suffix) has 32-bit addresses and sizes, too small for the
 * pool's addresses: those calls go to the driver, and their memory is charged and recorded as
 * direct memory. */
#include "core/base/clock.h"
#include "core/base/histogram.h"
#include "shim/account/device.h"
#include "shim/account/direct.h"
#include "shim/account/hot.h"
#include "shim/account/mempool.h"
#include "shim/account/outside.h"
#include "shim/account/tenant.h"
#include "shim/life/life.h"
#include "shim/real/resolve.h"
#include "shim/wrap/relieve.h"

#define GRANULE 512                    /* what is charged for an allocation is a multiple */
#define RECLAIM_ATTEMPTS 4             /* reclaims from other kinds of memory per request */
#define PITCH_BYTES 512                /* the driver rounds a row up to a multiple of this */
#define PITCH_MAX UINT64_C(2147483647) /* CU_DEVICE_ATTRIBUTE_MAX_PITCH of every device */

GC_EXPORT
CUresult cuInit(unsigned flags)
{
    const bool is_ours = gc_life_ready();

    if (gc_shim.is_refused)
        return CUDA_ERROR_INVALID_VALUE;
    if (!GC_HAVE(cuInit))
        return CUDA_ERROR_NO_DEVICE;
    const CUresult result = GC_FORWARD(cuInit, flags);

    return result == CUDA_SUCCESS && is_ours ? gc_admission_check() : result;
}

/* CUDA_ERROR_NOT_FOUND: there is no context to allocate in; the driver returns the error itself.
 * `missed`: the context whose part of the thread's cache has just missed; NULL: none. */
static CUresult alloc_from_pool(uint64_t bytes, enum gc_api api, const struct gc_context *missed,
                                uint64_t *address)
{
    struct gc_context *head, *context;
    struct gc_request request = {.bytes = bytes, .api = (uint16_t)api};
    int driver_code = CUDA_SUCCESS;
    CUresult result = gc_account_check_state(true, &head);

    if (head == NULL)
        return CUDA_ERROR_NOT_FOUND;
    if (result != CUDA_SUCCESS)
        return result;
    context = gc_tenants_target(head);
    if (context == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    gc_hot_prepare();
    gc_outside_check_thread();
    request.is_dedicated = atomic_load_explicit(&gc_shim.ipc_used, memory_order_relaxed);
    gc_serve_requests(gc_shim.core);
    if (context == missed)
        gc_tcache_flush_stats(gc_thread.tcache);
    else if (gc_tcache_alloc(gc_thread.tcache, context, &request, address))
        return CUDA_SUCCESS;
    request.is_trial = gc_mempool_may_reclaim();
    enum gc_status status = gc_alloc(gc_shim.core, context, &request, address, &driver_code);
    for (int i = 0; status == GC_OUT_OF_MEMORY && request.is_trial; i++) {
        request.is_trial = i < RECLAIM_ATTEMPTS && gc_mempool_reclaim(gc_context_device(context));
        status = gc_alloc(gc_shim.core, context, &request, address, &driver_code);
    }
    return gc_shim_result(status, driver_code);
}

/* ---- mode `track` ---- */

static bool is_tracking(void)
{
    return gc_shim.options->mode == GC_MODE_TRACK;
}

static CUresult charge_tracked(struct gc_direct_request *request, size_t bytes)
{
    const uint64_t charged_bytes = (bytes + GRANULE - 1) / GRANULE * GRANULE;

    if (request->device == NULL)
        return CUDA_SUCCESS; /* the driver returns its own error */
    if (bytes > gc_device_get_info(request->device)->total_bytes)
        return CUDA_ERROR_OUT_OF_MEMORY;
    return gc_direct_charge_untenanted(request, charged_bytes);
}

static CUresult alloc_tracked(CUdeviceptr *dptr, size_t bytes)
{
    const uint64_t timed = gc_histogram_sample(); /* calls; 0: this one is not timed */
    const uint64_t start_ns = timed == 0 ? 0 : gc_clock_ns();
    struct gc_direct_request request;

    gc_direct_begin(&request, GC_API_cuMemAlloc_v2);
    gc_outside_check_thread();
    CUresult result = charge_tracked(&request, bytes);
    if (result == CUDA_SUCCESS)
        result = GC_DIRECT_CALL(&request, bytes, cuMemAlloc_v2, dptr, bytes);
    if (result == CUDA_SUCCESS) {
        if (!gc_direct_record(&request, GC_DIRECT_MEMORY, *dptr, bytes))
            result = GC_DIRECT_GIVE_BACK(&request, cuMemFree_v2, *dptr);
        if (timed != 0)
            gc_direct_time_alloc(gc_shim.core, gc_clock_ns() - start_ns, timed);
    }
    return gc_direct_end(&request, result);
}

/* False: the memory has no record, and is core's or unknown. */
static bool free_tracked(CUdeviceptr dptr, CUresult *result)
{
    struct gc_direct_release release;

    gc_direct_free_begin(&release, dptr);
    if (!release.is_marked)
        return false;
    const uint64_t timed = gc_histogram_sample();
    const uint64_t start_ns = timed == 0 ? 0 : gc_clock_ns();
    *result = GC_CALL_RELIEVED(release.direct.device, cuMemFree_v2, dptr);
    gc_direct_free_end(&release, *result == CUDA_SUCCESS);
    if (timed != 0 && *result == CUDA_SUCCESS)
        gc_direct_time_free(gc_shim.core, gc_clock_ns() - start_ns, timed);
    return true;
}

/* ---- served by core ---- */

/* Beneath a call of the runtime: records the context that served the call. */
static void record_landing(CUcontext handle)
{
    if (gc_thread.outer_api == GC_API_cudaMalloc || gc_thread.outer_api == GC_API_cudaFree)
        gc_thread.landed = handle;
}

static __attribute__((noinline)) CUresult alloc_slow(CUdeviceptr *dptr, size_t bytes,
                                                     const struct gc_context *missed,
                                                     const void *caller)
{
    uint64_t address = 0;
    CUresult result;

    if (!gc_life_ready() || dptr == NULL || bytes == 0)
        return GC_FORWARD(cuMemAlloc_v2, dptr, bytes);
    gc_shim_set_caller(caller);
    if (is_tracking() && gc_tenants_of_call() == NULL)
        return alloc_tracked(dptr, bytes);
    result = alloc_from_pool(bytes, gc_shim_enter(GC_API_cuMemAlloc_v2), missed, &address);
    if (result == CUDA_ERROR_NOT_FOUND) {
        result = GC_FORWARD(cuMemAlloc_v2, dptr, bytes);
    } else if (result == CUDA_SUCCESS) {
        record_landing(gc_thread.handle);
        *dptr = address;
    }
    gc_shim_leave();
    return result;
}

GC_EXPORT
CUresult cuMemAlloc_v2(CUdeviceptr *dptr, size_t bytes)
{
    struct gc_context *target = NULL;
    uint64_t address;
    CUcontext handle;

    if (GC_LIKELY(gc_shim_is_outside() && gc_hot_is_open() && dptr != NULL)) {
        target = gc_hot_target(&handle);
        if (GC_LIKELY(gc_hot_alloc(target, bytes, GC_API_cuMemAlloc_v2, &address))) {
            *dptr = address;
            return CUDA_SUCCESS;
        }
    }
    return alloc_slow(dptr, bytes, target, __builtin_return_address(0));
}

/* The driver's own conditions for a pitched allocation. */
static bool pitch_is_plain(const void *dptr, const void *pitch, size_t width, size_t height,
                           unsigned element)
{
    return dptr != NULL && pitch != NULL && width > 0 && height > 0 &&
           width <= PITCH_MAX - PITCH_BYTES && height <= PITCH_MAX &&
           (element == 4 || element == 8 || element == 16);
}

static uint64_t pitch_of(size_t width)
{
    return (width + PITCH_BYTES - 1) / PITCH_BYTES * PITCH_BYTES;
}

GC_EXPORT
CUresult cuMemAllocPitch_v2(CUdeviceptr *dptr, size_t *pitch, size_t width, size_t height,
                            unsigned element)
{
    uint64_t address = 0, row_bytes;
    CUresult result;

    if (!gc_life_ready() || !pitch_is_plain(dptr, pitch, width, height, element))
        return GC_FORWARD(cuMemAllocPitch_v2, dptr, pitch, width, height, element);
    GC_SET_CALLER();
    row_bytes = pitch_of(width);
    result = alloc_from_pool(row_bytes * height, gc_shim_enter(GC_API_cuMemAllocPitch_v2), NULL,
                             &address);
    if (result == CUDA_ERROR_NOT_FOUND) {
        result = GC_FORWARD(cuMemAllocPitch_v2, dptr, pitch, width, height, element);
    } else if (result == CUDA_SUCCESS) {
        *dptr = address;
        *pitch = row_bytes;
    }
    gc_shim_leave();
    return result;
}

/* As record_landing for a free, which needs no context otherwise. */
static void record_free_landing(void)
{
    CUcontext handle;

    if (gc_thread.outer_api != GC_API_cudaFree)
        return;
    (void)gc_hot_target(&handle);
    if (handle != NULL && handle == gc_thread.handle)
        gc_thread.landed = handle;
}

/* A block that cannot be freed in the thread's state stays allocated. */
static CUresult free_in_state(CUdeviceptr dptr, enum gc_api api)
{
    int driver_code = CUDA_SUCCESS;
    struct gc_context *current;
    CUresult result = CUDA_SUCCESS;

    /* Called by the runtime: the thread's cache may serve this free, too. */
    if (gc_thread.outer_api != GC_API_COUNT && !gc_thread.has_missed &&
        gc_thread.is_unconfirmed == 0 && gc_hot_is_open() && gc_hot_free(dptr)) {
        record_free_landing();
        return CUDA_SUCCESS;
    }
    result = gc_account_check_state(true, &current);
    if (result != CUDA_SUCCESS)
        return result;
    gc_hot_prepare();
    gc_tcache_flush_stats(gc_thread.tcache);
    enum gc_status status = gc_free(gc_shim.core, dptr, (uint16_t)api, &driver_code);
    if (status == GC_NOT_OURS) {
        result = gc_direct_free(dptr, false);
        if (result == CUDA_ERROR_INVALID_VALUE)
            gc_debug_report_unknown_free(gc_shim.core, dptr, (uint16_t)api);
        return result;
    }
    if (status == GC_OK)
        record_free_landing();
    return gc_shim_result(status, driver_code);
}

static __attribute__((noinline)) CUresult free_slow(CUdeviceptr dptr)
{
    CUresult result;

    if (!gc_life_ready() || dptr == 0)
        return GC_FORWARD(cuMemFree_v2, dptr);
    enum gc_api api = gc_shim_enter(GC_API_cuMemFree_v2);
    if (!is_tracking() || !free_tracked(dptr, &result))
        result = free_in_state(dptr, api);
    gc_shim_leave();
    return result;
}

GC_EXPORT
CUresult cuMemFree_v2(CUdeviceptr dptr)
{
    if (GC_LIKELY(gc_shim_is_ready_outside() && gc_hot_is_open() && gc_hot_free(dptr)))
        return CUDA_SUCCESS;
    return free_slow(dptr);
}

/* ---- the first ABI ---- */

GC_EXPORT
CUresult cuMemAlloc(CUdeviceptr_v1 *dptr, unsigned bytes)
{
    struct gc_direct_request request;
    CUresult result;

    if (!gc_life_ready() || dptr == NULL || bytes == 0)
        return GC_FORWARD(cuMemAlloc, dptr, bytes);
    GC_SET_CALLER();
    gc_direct_begin(&request, GC_API_cuMemAlloc);
    result = gc_direct_charge(&request, bytes);
    if (result == CUDA_SUCCESS)
        result = GC_DIRECT_CALL(&request, bytes, cuMemAlloc, dptr, bytes);
    if (result == CUDA_SUCCESS && !gc_direct_record(&request, GC_DIRECT_MEMORY, *dptr, bytes))
        result = GC_DIRECT_GIVE_BACK(&request, cuMemFree, *dptr);
    return gc_direct_end(&request, result);
}

GC_EXPORT
CUresult cuMemAllocPitch(CUdeviceptr_v1 *dptr, unsigned *pitch, unsigned width, unsigned height,
                         unsigned element)
{
    struct gc_direct_request request;
    uint64_t bytes;
    CUresult result;

    if (!gc_life_ready() || !pitch_is_plain(dptr, pitch, width, height, element))
        return GC_FORWARD(cuMemAllocPitch, dptr, pitch, width, height, element);
    bytes = pitch_of(width) * height;
    GC_SET_CALLER();
    gc_direct_begin(&request, GC_API_cuMemAllocPitch);
    result = gc_direct_charge(&request, bytes);
    if (result == CUDA_SUCCESS)
        result =
            GC_DIRECT_CALL(&request, bytes, cuMemAllocPitch, dptr, pitch, width, height, element);
    if (result == CUDA_SUCCESS && !gc_direct_record(&request, GC_DIRECT_MEMORY, *dptr, bytes))
        result = GC_DIRECT_GIVE_BACK(&request, cuMemFree, *dptr);
    return gc_direct_end(&request, result);
}

GC_EXPORT
CUresult cuMemFree(CUdeviceptr_v1 dptr)
{
    CUresult result;

    if (!gc_life_ready() || dptr == 0)
        return GC_FORWARD(cuMemFree, dptr);
    gc_shim_enter(GC_API_cuMemFree);
    result = gc_direct_free(dptr, true);
    gc_shim_leave();
    return result;
}
