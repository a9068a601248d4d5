/* core/gpucache.h: memory in the order of a stream, also with the signatures that PyTorch, CuPy and
 * RMM call. In mode off the driver serves them, so that a program that uses the library as its
 * allocator still runs. */
#include "shim/account/device.h"
#include "shim/account/direct.h"
#include "shim/account/mempool.h"
#include "shim/account/peer.h"
#include "shim/account/tenant.h"
#include "shim/driver/capture_guard.h"
#include "shim/driver/driver.h"
#include "shim/public/public.h"
#include "shim/real/resolve.h"
#include "shim/wrap/relieve.h"

#define RECLAIM_ATTEMPTS 4 /* reclaims from other kinds of memory per request */

#define IS_STREAM_ID (UINT64_C(1) << 63) /* no handle has this bit */

/* Core's key for a stream; 0: its order is unknown. The per-thread default stream is a different
 * one in every thread, so its name implies no order. Where streams may be destroyed unseen the key
 * is the stream's ID: the driver reuses handles, never IDs. Captured work runs with its graph, not
 * behind the work that the stream has queued. */
static uint64_t order_of(gpucache_stream stream, const struct gc_public_call *call)
{
    unsigned long long id;

    if (call->is_capture ||
        gc_capture_is_stream_capturing(gc_capture_stream_handle((CUstream)stream, false)))
        return 0;
    if (gc_shim.options->mode != GC_MODE_CACHE) /* the driver's own free gets the handle */
        return (uintptr_t)gc_capture_stream_handle((CUstream)stream, false);
    if (stream == NULL || (CUstream)stream == CU_STREAM_LEGACY)
        return (uintptr_t)CU_STREAM_LEGACY;
    if ((CUstream)stream == CU_STREAM_PER_THREAD)
        return 0;
    if (gc_resolve_is_interposing())
        return (uintptr_t)stream;
    return GC_USE(cuStreamGetId, (CUstream)stream, &id) == CUDA_SUCCESS ? id | IS_STREAM_ID : 0;
}

/* ---- mode off ---- */

static gpucache_status alloc_from_driver(void **pointer, size_t bytes, int device)
{
    CUdeviceptr address = 0;
    bool is_pushed = false;
    gpucache_status status = gc_public_push(device, &is_pushed);
    CUresult result;

    if (status != GPUCACHE_OK)
        return status;
    result = GC_FORWARD(cuMemAlloc_v2, &address, bytes);
    gc_public_pop(is_pushed);
    if (result == CUDA_ERROR_OUT_OF_MEMORY)
        return GPUCACHE_OUT_OF_MEMORY;
    if (result != CUDA_SUCCESS)
        return gc_public_status(GC_DRIVER, (int)result);
    *pointer = (void *)(uintptr_t)address; /* NOLINT: device addresses travel as integers */
    return GPUCACHE_OK;
}

/* The driver's free waits for the work that uses the memory. */
static gpucache_status free_to_driver(void *pointer)
{
    const CUdeviceptr address = (uintptr_t)pointer;
    CUcontext current = NULL;
    bool is_pushed = false;
    gpucache_status status = GPUCACHE_OK;
    CUresult result;

    /* Any context will do: the driver finds the memory's own. */
    if (GC_USE(cuCtxGetCurrent, &current) != CUDA_SUCCESS || current == NULL)
        status = gc_public_push(0, &is_pushed);
    if (status != GPUCACHE_OK)
        return status;
    result = GC_FORWARD(cuMemFree_v2, address);
    gc_public_pop(is_pushed);
    if (result == CUDA_ERROR_INVALID_VALUE)
        return GPUCACHE_INVALID_POINTER;
    return result == CUDA_SUCCESS ? GPUCACHE_OK : gc_public_status(GC_DRIVER, (int)result);
}

/* ---- from the pool ---- */

static enum gc_status alloc_from_pool(const struct gc_public_call *call, struct gc_request *request,
                                      uint64_t *address, int *driver_code)
{
    struct gc_context *target = gc_tenants_target(call->context);

    if (target == NULL)
        return GC_NO_HOST_MEMORY;
    request->is_trial = gc_mempool_may_reclaim();
    gc_tcache_flush_stats(gc_thread.tcache);
    enum gc_status status = gc_alloc(gc_shim.core, target, request, address, driver_code);
    for (int i = 0; status == GC_OUT_OF_MEMORY && request->is_trial; i++) {
        request->is_trial =
            i < RECLAIM_ATTEMPTS && gc_mempool_reclaim(gc_context_device(call->context));
        status = gc_alloc(gc_shim.core, target, request, address, driver_code);
    }
    return status;
}

static gpucache_status alloc_as(enum gc_api api, void **pointer, size_t bytes, int device,
                                gpucache_stream stream)
{
    struct gc_public_call call;
    uint64_t address = 0;
    int driver_code = 0;
    gpucache_status status;

    *pointer = NULL;
    if (bytes == 0)
        return GPUCACHE_OK;
    status = gc_public_enter(device, (CUstream)stream, api, &call);
    if (status == GPUCACHE_DISABLED && !gc_shim.is_refused)
        return alloc_from_driver(pointer, bytes, device);
    if (status != GPUCACHE_OK)
        return status;
    struct gc_request request = {
        .bytes = bytes,
        .stream = order_of(stream, &call),
        .api = (uint16_t)call.api,
        .is_dedicated = atomic_load_explicit(&gc_shim.ipc_used, memory_order_relaxed),
    };
    status = gc_public_alloc_status(alloc_from_pool(&call, &request, &address, &driver_code),
                                    driver_code, gc_context_device(call.context), bytes);
    gc_public_leave(&call);
    if (status == GPUCACHE_OK)
        *pointer = (void *)(uintptr_t)address; /* NOLINT: as above */
    return status;
}

gpucache_status gpucache_malloc(void **pointer, size_t bytes, int device, gpucache_stream stream)
{
    if (pointer == NULL)
        return GPUCACHE_INVALID_ARGUMENT;
    GC_SET_CALLER();
    return alloc_as(GC_API_gpucache_malloc, pointer, bytes, device, stream);
}

/* The context of a live block, or the record that stands for its device; NULL if there is none. */
static struct gc_context *owner_of(uint64_t address)
{
    struct gc_block_info info;

    if (gc_lookup_block(gc_shim.core, address, &info) != GC_OK || info.address != address)
        return NULL;
    return gc_context_find(gc_shim.core, info.context);
}

/* A free in `owner` also waits for the work of the stream's context. */
static void record_stream(struct gc_context *owner, gpucache_stream stream)
{
    if (stream != NULL && (CUstream)stream != CU_STREAM_LEGACY &&
        (CUstream)stream != CU_STREAM_PER_THREAD)
        gc_peer_add(owner, gc_account_stream_context((CUstream)stream));
}

/* Memory that the program allocated with the driver, in mode `track`. False: it is none. */
static bool free_direct(uint64_t address, int *driver_code)
{
    struct gc_direct_release release;
    bool is_pushed;

    if (gc_shim.options->mode != GC_MODE_TRACK)
        return false;
    gc_direct_free_begin(&release, address);
    if (!release.is_marked)
        return false;
    CUresult result =
        gc_driver_enter_context(gc_direct_context_handle(&release.direct), &is_pushed);
    if (result == CUDA_SUCCESS) {
        result = GC_CALL(release.direct.device, cuMemFree_v2, address);
        gc_driver_leave_context(is_pushed);
    }
    gc_direct_free_end(&release, result == CUDA_SUCCESS);
    *driver_code = (int)result;
    return true;
}

gpucache_status gpucache_free(void *pointer, gpucache_stream stream)
{
    const uint64_t address = (uintptr_t)pointer;
    struct gc_public_call call = {.context = NULL};
    struct gc_context *owner;
    uint64_t order = 0; /* 0 for a device's own record: all contexts' streams use its memory */
    enum gc_status status;
    gpucache_status state;
    int driver_code = 0;

    if (pointer == NULL)
        return GPUCACHE_OK;
    state = gc_public_state();
    if (state == GPUCACHE_DISABLED && !gc_shim.is_refused)
        return free_to_driver(pointer);
    if (state != GPUCACHE_OK)
        return state;
    owner = owner_of(address);
    const bool is_of_device = owner != NULL && gc_context_is_of_device(owner);
    gc_public_enter_context(is_of_device ? NULL : owner, (CUstream)stream, GC_API_gpucache_malloc,
                            &call);
    record_stream(owner, stream);
    if (!is_of_device)
        order = order_of(stream, &call);
    gc_tcache_flush_stats(gc_thread.tcache);
    /* Without a cache: the driver's free in a stream would need a current context. */
    status =
        gc_shim.options->mode == GC_MODE_CACHE
            ? gc_free_ordered(gc_shim.core, address, NULL, order, (uint16_t)call.api, &driver_code)
            : gc_free(gc_shim.core, address, (uint16_t)call.api, &driver_code);
    if (status == GC_NOT_OURS && free_direct(address, &driver_code))
        status = driver_code == CUDA_SUCCESS ? GC_OK : GC_DRIVER;
    if (status == GC_NOT_OURS)
        gc_debug_report_unknown_free(gc_shim.core, address, (uint16_t)call.api);
    gc_public_leave(&call);
    return gc_public_status(status, driver_code);
}

gpucache_status gpucache_record_stream(void *pointer, gpucache_stream stream)
{
    struct gc_public_call call = {.context = NULL};
    struct gc_block_info info;
    struct gc_direct direct;
    const gpucache_status state = gc_public_state();
    enum gc_status status;

    if (pointer == NULL)
        return GPUCACHE_INVALID_POINTER;
    if (state == GPUCACHE_DISABLED && !gc_shim.is_refused)
        return GPUCACHE_OK; /* the driver's free waits for every stream */
    if (state != GPUCACHE_OK)
        return state;
    gc_public_enter_context(NULL, (CUstream)stream, GC_API_gpucache_malloc, &call);
    status = gc_lookup_block(gc_shim.core, (uintptr_t)pointer, &info);
    if (status == GC_NOT_OURS && gc_shim.options->mode == GC_MODE_TRACK &&
        gc_direct_find_address(gc_shim.core, (uintptr_t)pointer, &direct) == GC_OK) {
        gc_public_leave(&call);
        return GPUCACHE_OK; /* the driver's free waits for every stream */
    }
    if (status == GC_OK)
        record_stream(gc_context_find(gc_shim.core, info.context), stream);
    if (status == GC_OK && info.address != (uintptr_t)pointer)
        status = GC_INVALID_POINTER;
    if (status == GC_OK)
        status = gc_free_record_stream(gc_shim.core, info.address, order_of(stream, &call));
    gc_public_leave(&call);
    return gc_public_status(status, 0);
}

/* ---- signatures of others ---- */

/* PyTorch and CuPy accept NULL and go on: the log line is the only record of why the program
 * fails. */
static enum gc_log_level level_of(enum gc_api api, gpucache_status status)
{
    const bool is_short = status == GPUCACHE_OUT_OF_MEMORY || status == GPUCACHE_LIMIT_REACHED;

    if (status == GPUCACHE_FORKED || (is_short && api == GC_API_gpucache_rmm_allocate))
        return GC_LOG_INFO;
    return is_short ? GC_LOG_WARN : GC_LOG_ERROR;
}

static void *alloc_or_null(enum gc_api api, size_t bytes, int device, gpucache_stream stream)
{
    void *pointer = NULL;
    const gpucache_status status = alloc_as(api, &pointer, bytes, device, stream);

    if (status != GPUCACHE_OK)
        gc_log_write(&gc_shim.log, level_of(api, status), "%s: %zu bytes on device %d: %s",
                     gc_shim_api_names[api], bytes, device, gpucache_status_text(status));
    return pointer;
}

static void free_or_log(const char *name, void *pointer, gpucache_stream stream)
{
    const gpucache_status status = gpucache_free(pointer, stream);

    if (status != GPUCACHE_OK)
        gc_log_write(&gc_shim.log, GC_LOG_ERROR, "%s: %p: %s", name, pointer,
                     gpucache_status_text(status));
}

void *gpucache_torch_malloc(ptrdiff_t bytes, int device, gpucache_stream stream)
{
    GC_SET_CALLER();
    return bytes <= 0 ? NULL
                      : alloc_or_null(GC_API_gpucache_torch_malloc, (size_t)bytes, device, stream);
}

void gpucache_torch_free(void *pointer, ptrdiff_t bytes, int device, gpucache_stream stream)
{
    (void)bytes;
    (void)device;
    free_or_log("gpucache_torch_free", pointer, stream);
}

void gpucache_torch_record_stream(void *pointer, gpucache_stream stream)
{
    const gpucache_status status = gpucache_record_stream(pointer, stream);

    if (status != GPUCACHE_OK)
        gc_log_write(&gc_shim.log, GC_LOG_ERROR, "gpucache_torch_record_stream: %p: %s", pointer,
                     gpucache_status_text(status));
}

void gpucache_torch_reset(void)
{
    (void)gpucache_empty_cache(GPUCACHE_ALL_DEVICES, NULL); /* nothing to empty is no failure */
}

void gpucache_torch_memory_fraction(double fraction, int device)
{
    struct gc_public_call call;
    gpucache_status status = GPUCACHE_INVALID_ARGUMENT;

    if (fraction > 0.0 && fraction <= 1.0)
        status = gc_public_enter(device, NULL, GC_API_gpucache_torch_malloc, &call);
    if (status == GPUCACHE_OK) {
        struct gc_device *found = gc_context_device(call.context);
        const uint64_t total = gc_device_get_info(found)->total_bytes;
        gc_limit_set(gc_shim.core, found, (uint64_t)((double)total * fraction));
        gc_public_leave(&call);
    } else if (status != GPUCACHE_DISABLED) {
        gc_log_write(&gc_shim.log, GC_LOG_ERROR, "gpucache_torch_memory_fraction: %g: %s", fraction,
                     gpucache_status_text(status));
    }
}

/* NULL: any stream. The per-thread default stream implies no order (order_of). */
static gpucache_stream stream_of(const void *param)
{
    return param == NULL ? (gpucache_stream)CU_STREAM_PER_THREAD
                         : ((const struct gpucache_cupy_param *)param)->stream;
}

void *gpucache_cupy_malloc(void *param, size_t bytes, int device)
{
    GC_SET_CALLER();
    return alloc_or_null(GC_API_gpucache_cupy_malloc, bytes, device, stream_of(param));
}

void gpucache_cupy_free(void *param, void *pointer, int device)
{
    (void)device;
    free_or_log("gpucache_cupy_free", pointer, stream_of(param));
}

static int device_of(const void *device)
{
    CUdevice current = 0;

    if (device != NULL)
        return *(const int *)device;
    if (gc_public_state() == GPUCACHE_NOT_READY)
        (void)gc_public_start(); /* finds the driver, which is called next */
    return GC_USE(cuCtxGetDevice, &current) == CUDA_SUCCESS ? current : 0;
}

void *gpucache_rmm_allocate(size_t bytes, gpucache_stream stream, void *device)
{
    GC_SET_CALLER();
    return alloc_or_null(GC_API_gpucache_rmm_allocate, bytes, device_of(device), stream);
}

void gpucache_rmm_deallocate(void *pointer, size_t bytes, gpucache_stream stream, void *device)
{
    (void)bytes;
    (void)device;
    free_or_log("gpucache_rmm_deallocate", pointer, stream);
}
