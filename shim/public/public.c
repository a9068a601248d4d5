/* How a call of core/gpucache.h begins and ends.
 *
 * Without a preload no wrapper sees the program's captures. A capture in the stream that a call
 * names is announced to core during the call, and the thread's capture mode is always relaxed, not
 * only during known captures. Nor is peer access seen when the program gives it: the contexts that
 * calls are served in are peers from the start, where their devices can be. */
#include "shim/public/public.h"
#include "shim/account/device.h"
#include "shim/account/peer.h"
#include "shim/account/tenant.h"
#include "shim/driver/backend.h"
#include "shim/life/life.h"
#include "shim/real/resolve.h"

static __thread int last_driver_error __attribute__((tls_model("initial-exec")));
/* The reference that keeps a device's primary context for the life of the process. */
static atomic_bool is_retained[GC_PUBLIC_DEVICES];
/* Without a preload: the context of each device that the last call there was served in. */
static _Atomic(struct gc_context *) served[GC_PUBLIC_DEVICES];

gpucache_status gc_public_state(void)
{
    switch (gc_shim_life()) {
    case GC_LIFE_READY:
        return GPUCACHE_OK;
    case GC_LIFE_OFF:
        return GPUCACHE_DISABLED;
    case GC_LIFE_CHILD:
        return GPUCACHE_FORKED;
    case GC_LIFE_NEW:
        break;
    }
    return GPUCACHE_NOT_READY;
}

gpucache_status gc_public_start(void)
{
    if (!gc_life_ready()) {
        const gpucache_status state = gc_public_state();
        return state == GPUCACHE_OK ? GPUCACHE_NOT_READY : state; /* called from inside a call */
    }
    return GPUCACHE_OK;
}

gpucache_status gc_public_find_device(int ordinal, struct gc_device **device)
{
    const gpucache_status state = gc_public_state();
    if (state != GPUCACHE_OK)
        return state;
    *device = gc_device_find(gc_shim.core, ordinal);
    if (*device != NULL)
        return GPUCACHE_OK;
    return ordinal < 0 ? GPUCACHE_INVALID_DEVICE : GPUCACHE_NOT_READY;
}

int gpucache_driver_error(void)
{
    return last_driver_error;
}

gpucache_status gc_public_status(enum gc_status status, int driver_code)
{
    switch (status) {
    case GC_OK:
        return GPUCACHE_OK;
    case GC_OUT_OF_MEMORY:
        return GPUCACHE_OUT_OF_MEMORY;
    case GC_NOT_OURS:
    case GC_INVALID_POINTER:
        return GPUCACHE_INVALID_POINTER;
    case GC_INVALID_ARGUMENT:
        return GPUCACHE_INVALID_ARGUMENT;
    case GC_NO_HOST_MEMORY:
        return GPUCACHE_NO_HOST_MEMORY;
    case GC_INVALID_HANDLE:
        return GPUCACHE_INVALID_HANDLE;
    case GC_OUT_OF_RANGE:
        return GPUCACHE_OUT_OF_RANGE;
    case GC_MISALIGNED:
        return GPUCACHE_MISALIGNED;
    case GC_ALREADY_MAPPED:
        return GPUCACHE_ALREADY_MAPPED;
    case GC_NOT_MAPPED:
        return GPUCACHE_NOT_MAPPED;
    case GC_CAPTURING:
        return GPUCACHE_CAPTURING;
    case GC_NOT_SUPPORTED:
        return GPUCACHE_NOT_SUPPORTED;
    case GC_ALREADY_EXISTS:
        return GPUCACHE_ALREADY_EXISTS;
    case GC_TOO_MANY:
        return GPUCACHE_TOO_MANY;
    case GC_BUSY:
        return GPUCACHE_BUSY;
    default:
        last_driver_error = driver_code;
        return GPUCACHE_DRIVER_ERROR;
    }
}

static bool has_no_room(uint64_t limit, uint64_t reserved, uint64_t bytes)
{
    return limit != GPUCACHE_NO_LIMIT && (reserved >= limit || bytes > limit - reserved);
}

static bool tenant_has_no_room(struct gc_device *device, uint64_t bytes)
{
    struct gc_tenant *tenant = gc_tenants_of_call();
    struct gc_tenant_figures figures;

    return tenant != NULL && gc_tenant_read(tenant, device, &figures) &&
           has_no_room(figures.limit_bytes, figures.reserved.current, bytes);
}

gpucache_status gc_public_alloc_status(enum gc_status status, int driver_code,
                                       struct gc_device *device, uint64_t bytes)
{
    const uint64_t limit = gc_device_limit_bytes(device);
    const uint64_t reserved = gc_device_reserved_bytes(device);
    if (status == GC_OUT_OF_MEMORY &&
        (has_no_room(limit, reserved, bytes) || tenant_has_no_room(device, bytes)))
        return GPUCACHE_LIMIT_REACHED;
    return gc_public_status(status, driver_code);
}

/* ---- contexts ---- */

/* Whether the device's memory is served in the context that is current already. */
static bool is_current(int ordinal)
{
    CUcontext context = NULL;
    CUdevice device;

    return GC_USE(cuCtxGetCurrent, &context) == CUDA_SUCCESS && context != NULL &&
           GC_USE(cuCtxGetDevice, &device) == CUDA_SUCCESS && device == ordinal;
}

static gpucache_status fail(CUresult result)
{
    if (result == CUDA_ERROR_INVALID_DEVICE)
        return GPUCACHE_INVALID_DEVICE;
    if (result == CUDA_ERROR_OUT_OF_MEMORY)
        return GPUCACHE_OUT_OF_MEMORY;
    if (result == CUDA_ERROR_NOT_INITIALIZED || result == CUDA_ERROR_NO_DEVICE ||
        result == CUDA_ERROR_NOT_SUPPORTED || result == CUDA_ERROR_NOT_FOUND)
        return GPUCACHE_NOT_READY;
    return gc_public_status(GC_DRIVER, (int)result);
}

/* Made through the library's own wrappers, so that the context is measured and recorded as any
 * other. One reference stays; that of a later call is dropped once the context is current. */
static gpucache_status push_primary(int ordinal)
{
    CUcontext context = NULL;
    CUresult result;

    result = cuDevicePrimaryCtxRetain(&context, ordinal);
    if (result == CUDA_ERROR_NOT_INITIALIZED) {
        result = cuInit(0);
        if (result == CUDA_SUCCESS)
            result = cuDevicePrimaryCtxRetain(&context, ordinal);
    }
    if (result != CUDA_SUCCESS)
        return fail(result);
    result = GC_USE(cuCtxPushCurrent_v2, context);
    if (result != CUDA_SUCCESS || atomic_exchange(&is_retained[ordinal], true)) {
        if (GC_HAVE(cuDevicePrimaryCtxRelease_v2))
            (void)cuDevicePrimaryCtxRelease_v2(ordinal);
        else
            (void)cuDevicePrimaryCtxRelease(ordinal);
    }
    return result == CUDA_SUCCESS ? GPUCACHE_OK : fail(result);
}

gpucache_status gc_public_push(int ordinal, bool *is_pushed)
{
    *is_pushed = false;
    if (ordinal < 0 || ordinal >= GC_PUBLIC_DEVICES)
        return GPUCACHE_INVALID_DEVICE;
    if (is_current(ordinal))
        return GPUCACHE_OK;
    const gpucache_status status = push_primary(ordinal);
    *is_pushed = status == GPUCACHE_OK;
    return status;
}

void gc_public_pop(bool is_pushed)
{
    CUcontext popped;

    if (is_pushed && GC_USE(cuCtxPopCurrent_v2, &popped) != CUDA_SUCCESS)
        gc_log_write(
            &gc_shim.log, GC_LOG_WARN,
            "cuCtxPopCurrent failed: a context of the library's may stay current in this thread");
}

static bool captures_unseen(CUstream stream)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;

    if (gc_resolve_is_interposing() || stream == NULL || stream == CU_STREAM_LEGACY)
        return false;
    return GC_USE(cuStreamIsCapturing, stream, &status) == CUDA_SUCCESS &&
           status != CU_STREAM_CAPTURE_STATUS_NONE;
}

void gc_public_enter_context(struct gc_context *context, CUstream stream, enum gc_api api,
                             struct gc_public_call *call)
{
    call->api = gc_shim_enter(api);
    call->context = context;
    call->is_capture = context != NULL && captures_unseen(stream);
    if (call->is_capture)
        gc_capture_begin_context(context);
    call->mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    call->is_relaxed = !gc_resolve_is_interposing() &&
                       GC_USE(cuThreadExchangeStreamCaptureMode, &call->mode) == CUDA_SUCCESS;
}

/* Of two threads that enter contexts of two devices for the first time, one sees the other's: each
 * stores its own first (sequentially consistent). */
static void add_peers_unseen(struct gc_context *context, int ordinal)
{
    if (gc_resolve_is_interposing() || atomic_load(&served[ordinal]) == context)
        return;
    atomic_store(&served[ordinal], context);
    for (int i = 0; i < GC_PUBLIC_DEVICES; i++) {
        struct gc_context *other = i == ordinal ? NULL : atomic_load(&served[i]);

        if (other != NULL && gc_backend_can_access(ordinal, i))
            gc_peer_add(other, context);
        if (other != NULL && gc_backend_can_access(i, ordinal))
            gc_peer_add(context, other);
    }
}

gpucache_status gc_public_enter(int ordinal, CUstream stream, enum gc_api api,
                                struct gc_public_call *call)
{
    gpucache_status status = gc_public_start();

    *call = (struct gc_public_call){.context = NULL};
    if (status != GPUCACHE_OK)
        return status;
    status = gc_public_push(ordinal, &call->is_pushed);
    if (status != GPUCACHE_OK)
        return status;
    gc_public_enter_context(NULL, NULL, api, call);
    call->context = gc_account_current_context();
    if (call->context != NULL)
        add_peers_unseen(call->context, ordinal);
    call->is_capture = call->context != NULL && captures_unseen(stream);
    if (call->is_capture)
        gc_capture_begin_context(call->context);
    if (call->context != NULL)
        return GPUCACHE_OK;
    gc_public_leave(call);
    return GPUCACHE_NOT_READY;
}

void gc_public_leave(struct gc_public_call *call)
{
    if (call->is_capture)
        gc_capture_end_context(call->context);
    if (call->is_relaxed)
        (void)GC_USE(cuThreadExchangeStreamCaptureMode, &call->mode);
    gc_shim_leave();
    gc_public_pop(call->is_pushed);
}
