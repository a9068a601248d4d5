/* Primary contexts and green ones, which are parts of them.
 *
 * A primary context is destroyed when the driver reports it inactive: other holders keep it.
 * Holders are counted as far as their calls pass the wrappers. */
#include "shim/account/contexts.h"
#include "shim/account/device.h"
#include "shim/account/measure.h"
#include "shim/account/primary.h"
#include "shim/driver/stream_list.h"
#include "shim/handles.h"
#include "shim/life/life.h"
#include "shim/real/resolve.h"
#include "shim/wrap/relieve.h"
#include "shim/wrap/submit.h"

/* ---- retained, released, reset ---- */

static CUresult retain(CUcontext *context, CUdevice ordinal, struct gc_device *device)
{
    const bool is_new = device != NULL && !gc_primary_is_active(ordinal);
    struct gc_measure measure;
    uint64_t expected;

    if (!gc_contexts_charge(is_new ? device : NULL, &expected))
        return CUDA_ERROR_OUT_OF_MEMORY;
    gc_measure_begin(&measure, is_new ? device : NULL);
    CUresult result = GC_CALL_RELIEVED(device, cuDevicePrimaryCtxRetain, context, ordinal);
    int64_t taken = gc_measure_end(&measure);
    const bool is_had = result == CUDA_SUCCESS && device != NULL && context != NULL;
    if (result == CUDA_SUCCESS)
        gc_primary_count_holds(ordinal, 1);
    if (is_new)
        taken = gc_contexts_commit(device, expected, &measure, is_had ? taken : 0);
    if (is_had) {
        (void)gc_handles_set(GC_HANDLE_PRIMARY, gc_primary_key(ordinal), (uintptr_t)*context, 0);
        if (is_new)
            gc_contexts_add(*context, device, GC_API_cuDevicePrimaryCtxRetain, taken);
    }
    return result;
}

GC_EXPORT
CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice ordinal)
{
    if (!gc_life_ready())
        return GC_FORWARD(cuDevicePrimaryCtxRetain, context, ordinal);
    gc_shim_enter(GC_API_cuDevicePrimaryCtxRetain);
    struct gc_device *device = gc_account_device(ordinal);
    gc_primary_lock(ordinal);
    CUresult result = retain(context, ordinal, device);
    gc_primary_unlock(ordinal);
    gc_shim_leave();
    return result;
}

/* The table keeps the handle: a context that is reset, or retained again, has the same one. */
static struct gc_context *begin_end(CUdevice ordinal)
{
    struct gc_handle primary;

    return gc_handles_get(GC_HANDLE_PRIMARY, gc_primary_key(ordinal), &primary)
               ? gc_contexts_end_begin((CUcontext)(uintptr_t)primary.value)
               : NULL;
}

/* Begins the teardown, and waits for calls inside the context, if begin_release has not. */
static void finish_release(CUdevice ordinal, struct gc_context *ending, CUresult result)
{
    const bool is_gone = result == CUDA_SUCCESS && !gc_primary_is_active(ordinal);

    if (result != CUDA_SUCCESS)
        gc_primary_count_holds(ordinal, 1);
    if (is_gone && ending == NULL)
        ending = begin_end(ordinal);
    gc_contexts_end(ending, is_gone);
}

/* Waits for calls inside the context only where the context may be destroyed: a release that leaves
 * it to other holders returns at once. */
static struct gc_context *begin_release(CUdevice ordinal)
{
    return gc_primary_count_holds(ordinal, -1) <= 0 ? begin_end(ordinal) : NULL;
}

static void finish_reset(CUdevice ordinal, struct gc_context *ending, CUresult result)
{
    (void)ordinal;
    gc_contexts_end(ending, result == CUDA_SUCCESS);
}

#define END_PRIMARY(symbol, begin, finish)                                                         \
    do {                                                                                           \
        if (!gc_life_ready())                                                                      \
            return GC_FORWARD(symbol, ordinal);                                                    \
        gc_shim_enter(GC_API_##symbol);                                                            \
        struct gc_device *device = gc_account_device(ordinal);                                     \
        gc_primary_lock(ordinal);                                                                  \
        struct gc_context *ending = begin(ordinal);                                                \
        CUresult result = GC_CALL_RELIEVED(device, symbol, ordinal);                               \
        finish(ordinal, ending, result);                                                           \
        gc_primary_unlock(ordinal);                                                                \
        gc_shim_leave();                                                                           \
        return result;                                                                             \
    } while (0)

GC_EXPORT
CUresult cuDevicePrimaryCtxRelease(CUdevice ordinal)
{
    END_PRIMARY(cuDevicePrimaryCtxRelease, begin_release, finish_release);
}

GC_EXPORT
CUresult cuDevicePrimaryCtxRelease_v2(CUdevice ordinal)
{
    END_PRIMARY(cuDevicePrimaryCtxRelease_v2, begin_release, finish_release);
}

GC_EXPORT
CUresult cuDevicePrimaryCtxReset(CUdevice ordinal)
{
    END_PRIMARY(cuDevicePrimaryCtxReset, begin_end, finish_reset);
}

GC_EXPORT
CUresult cuDevicePrimaryCtxReset_v2(CUdevice ordinal)
{
    END_PRIMARY(cuDevicePrimaryCtxReset_v2, begin_end, finish_reset);
}

/* ---- green contexts ----
 *
 * A green context is a part of a device's primary context: it uses the same memory, and work in
 * either may touch any of it. So core treats it as the primary context. But each green context has
 * a default stream of its own, under the same handle. */

/* Recorded under both handles: streams report the CUcontext, a destruction names the CUgreenCtx. */
static void add_created(CUgreenCtx green, CUdevice ordinal)
{
    CUcontext context;

    (void)gc_handles_set(GC_HANDLE_GREEN, (uintptr_t)green, gc_primary_key(ordinal), 0);
    if (GC_USE(cuCtxFromGreenCtx, &context, green) == CUDA_SUCCESS)
        gc_primary_add_green(context, ordinal);
}

/* A green context holds its primary context, which is created, measured and recorded first. */
static CUresult create_green(CUgreenCtx *green, CUdevResourceDesc description, CUdevice ordinal,
                             unsigned flags, struct gc_device *device)
{
    CUcontext primary;
    CUresult result = retain(&primary, ordinal, device);

    if (result != CUDA_SUCCESS)
        return result;
    result = GC_CALL_RELIEVED(device, cuGreenCtxCreate, green, description, ordinal, flags);
    if (result == CUDA_SUCCESS) {
        add_created(*green, ordinal);
        (void)GC_CALL_RELIEVED(device, cuDevicePrimaryCtxRelease_v2, ordinal); /* held by `green` */
    } else {
        struct gc_context *ending = begin_release(ordinal);
        finish_release(ordinal, ending,
                       GC_CALL_RELIEVED(device, cuDevicePrimaryCtxRelease_v2, ordinal));
    }
    return result;
}

GC_EXPORT
CUresult cuGreenCtxCreate(CUgreenCtx *green, CUdevResourceDesc description, CUdevice ordinal,
                          unsigned flags)
{
    struct gc_submissions *work;

    if (!gc_life_ready() || green == NULL || !GC_HAVE(cuGreenCtxCreate))
        return GC_FORWARD(cuGreenCtxCreate, green, description, ordinal, flags);
    /* Two default streams, and one of them cannot be joined from the primary context. */
    (void)gc_shim_submit_begin(GC_STREAM_NONE, &work);
    gc_stream_list_set_incomplete();
    gc_shim_enter(GC_API_cuGreenCtxCreate);
    struct gc_device *device = gc_account_device(ordinal);
    gc_primary_lock(ordinal);
    CUresult result = create_green(green, description, ordinal, flags, device);
    gc_primary_unlock(ordinal);
    gc_shim_leave();
    return result;
}

/* A green context's streams are destroyed with it. */
static void end_green(CUcontext context)
{
    uint64_t stream;

    gc_handles_lock();
    while (gc_handles_collect_locked(GC_HANDLE_GREEN_STREAM, (uintptr_t)context, &stream, 1) > 0) {
        gc_handles_remove_locked(GC_HANDLE_GREEN_STREAM, stream, NULL);
        gc_handles_unlock();
        gc_stream_end((CUstream)(uintptr_t)stream); /* NOLINT: an integer */
        gc_handles_lock();
    }
    gc_handles_remove_locked(GC_HANDLE_GREEN, (uintptr_t)context, NULL);
    gc_handles_unlock();
}

GC_EXPORT
CUresult cuGreenCtxDestroy(CUgreenCtx green)
{
    struct gc_handle known;
    CUcontext context;

    if (!gc_life_ready() || !gc_handles_get(GC_HANDLE_GREEN, (uintptr_t)green, &known))
        return GC_FORWARD(cuGreenCtxDestroy, green);
    gc_shim_enter(GC_API_cuGreenCtxDestroy);
    const CUdevice ordinal = (CUdevice)(known.value - 1);
    /* Before the driver reuses the handle. */
    if (GC_USE(cuCtxFromGreenCtx, &context, green) == CUDA_SUCCESS)
        end_green(context);
    gc_primary_lock(ordinal);
    struct gc_context *ending = begin_release(ordinal);
    CUresult result = GC_CALL_RELIEVED(gc_account_device(ordinal), cuGreenCtxDestroy, green);
    if (result == CUDA_SUCCESS)
        (void)gc_handles_remove(GC_HANDLE_GREEN, (uintptr_t)green, NULL);
    finish_release(ordinal, ending, result);
    gc_primary_unlock(ordinal);
    gc_shim_leave();
    return result;
}

GC_EXPORT
CUresult cuCtxFromGreenCtx(CUcontext *context, CUgreenCtx green)
{
    CUcontext popped;
    CUdevice ordinal;
    struct gc_handle known;

    if (!gc_life_ready())
        return GC_FORWARD(cuCtxFromGreenCtx, context, green);
    gc_shim_enter(GC_API_cuCtxFromGreenCtx);
    CUresult result =
        GC_CALL_RELIEVED(gc_account_current_device(), cuCtxFromGreenCtx, context, green);
    if (result == CUDA_SUCCESS && context != NULL &&
        !gc_handles_get(GC_HANDLE_GREEN, (uintptr_t)*context, &known) &&
        GC_USE(cuCtxPushCurrent_v2, *context) == CUDA_SUCCESS) {
        if (GC_USE(cuCtxGetDevice, &ordinal) == CUDA_SUCCESS)
            gc_primary_add_green(*context, ordinal);
        (void)GC_USE(cuCtxPopCurrent_v2, &popped);
    }
    gc_shim_leave();
    return result;
}
