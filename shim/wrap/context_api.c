/* Contexts: created, destroyed, their limits. Primary ones: primary_api.c.
 *
 * A context's own memory is charged by difference. After the driver has destroyed the context, that
 * memory and all else recorded for the context are uncharged. */
#include "shim/account/contexts.h"
#include "shim/account/device.h"
#include "shim/account/direct.h"
#include "shim/account/measure.h"
#include "shim/account/outside.h"
#include "shim/life/life.h"
#include "shim/real/resolve.h"
#include "shim/wrap/relieve.h"

/* ---- create and destroy ---- */

#define CREATE_CONTEXT(symbol, ...)                                                                \
    do {                                                                                           \
        if (!gc_life_ready())                                                                      \
            return GC_FORWARD(symbol, __VA_ARGS__);                                                \
        gc_shim_enter(GC_API_##symbol);                                                            \
        struct gc_device *device = gc_account_device(ordinal);                                     \
        CUresult result = CUDA_ERROR_OUT_OF_MEMORY;                                                \
        if (flags & GC_CTX_SYNC_MEMOPS) /* after a failure the driver returns the error */         \
            (void)gc_outside_expect();                                                             \
        struct gc_measure measure;                                                                 \
        uint64_t expected;                                                                         \
        if (gc_contexts_charge(device, &expected)) {                                               \
            gc_measure_begin(&measure, device);                                                    \
            result = GC_CALL_RELIEVED(device, symbol, __VA_ARGS__);                                \
            int64_t taken = gc_measure_end(&measure);                                              \
            const bool is_made = result == CUDA_SUCCESS && device != NULL && context != NULL;      \
            taken = gc_contexts_commit(device, expected, &measure, is_made ? taken : 0);           \
            if (is_made)                                                                           \
                gc_contexts_add(*context, device, GC_API_##symbol, taken);                         \
        }                                                                                          \
        gc_shim_leave();                                                                           \
        return result;                                                                             \
    } while (0)

GC_EXPORT
CUresult cuCtxCreate(CUcontext *context, unsigned flags, CUdevice ordinal)
{
    CREATE_CONTEXT(cuCtxCreate, context, flags, ordinal);
}

GC_EXPORT
CUresult cuCtxCreate_v2(CUcontext *context, unsigned flags, CUdevice ordinal)
{
    CREATE_CONTEXT(cuCtxCreate_v2, context, flags, ordinal);
}

GC_EXPORT
CUresult cuCtxCreate_v3(CUcontext *context, CUexecAffinityParam *affinity, int affinity_count,
                        unsigned flags, CUdevice ordinal)
{
    CREATE_CONTEXT(cuCtxCreate_v3, context, affinity, affinity_count, flags, ordinal);
}

GC_EXPORT
CUresult cuCtxCreate_v4(CUcontext *context, CUctxCreateParams *params, unsigned flags,
                        CUdevice ordinal)
{
    CREATE_CONTEXT(cuCtxCreate_v4, context, params, flags, ordinal);
}

/* For OpenGL and VDPAU. */
GC_EXPORT
CUresult cuGLCtxCreate(CUcontext *context, unsigned flags, CUdevice ordinal)
{
    CREATE_CONTEXT(cuGLCtxCreate, context, flags, ordinal);
}

GC_EXPORT
CUresult cuGLCtxCreate_v2(CUcontext *context, unsigned flags, CUdevice ordinal)
{
    CREATE_CONTEXT(cuGLCtxCreate_v2, context, flags, ordinal);
}

GC_EXPORT
CUresult cuVDPAUCtxCreate(CUcontext *context, unsigned flags, CUdevice ordinal, cuuint32_t vdpau,
                          void *get_address)
{
    CREATE_CONTEXT(cuVDPAUCtxCreate, context, flags, ordinal, vdpau, get_address);
}

GC_EXPORT
CUresult cuVDPAUCtxCreate_v2(CUcontext *context, unsigned flags, CUdevice ordinal, cuuint32_t vdpau,
                             void *get_address)
{
    CREATE_CONTEXT(cuVDPAUCtxCreate_v2, context, flags, ordinal, vdpau, get_address);
}

#define DESTROY_CONTEXT(symbol)                                                                    \
    do {                                                                                           \
        if (!gc_life_ready())                                                                      \
            return GC_FORWARD(symbol, context);                                                    \
        gc_shim_enter(GC_API_##symbol);                                                            \
        struct gc_context *known = gc_contexts_end_begin(context);                                 \
        CUresult result =                                                                          \
            GC_CALL_RELIEVED(known ? gc_context_device(known) : NULL, symbol, context);            \
        gc_contexts_end(known, result == CUDA_SUCCESS);                                            \
        gc_shim_leave();                                                                           \
        return result;                                                                             \
    } while (0)

GC_EXPORT
CUresult cuCtxDestroy(CUcontext context)
{
    DESTROY_CONTEXT(cuCtxDestroy);
}

GC_EXPORT
CUresult cuCtxDestroy_v2(CUcontext context)
{
    DESTROY_CONTEXT(cuCtxDestroy_v2);
}

GC_EXPORT
CUresult cuCtxAttach(CUcontext *context, unsigned flags)
{
    if (!gc_life_ready())
        return GC_FORWARD(cuCtxAttach, context, flags);
    gc_shim_enter(GC_API_cuCtxAttach);
    CUresult result = GC_CALL_RELIEVED(gc_account_current_device(), cuCtxAttach, context, flags);
    if (result == CUDA_SUCCESS && context != NULL)
        gc_contexts_count_usage(*context, 1);
    gc_shim_leave();
    return result;
}

GC_EXPORT
CUresult cuCtxDetach(CUcontext context)
{
    if (!gc_life_ready())
        return GC_FORWARD(cuCtxDetach, context);
    gc_shim_enter(GC_API_cuCtxDetach);
    struct gc_device *device = gc_account_current_device();
    struct gc_context *ending =
        gc_contexts_count_usage(context, -1) == 0 ? gc_contexts_end_begin(context) : NULL;
    CUresult result = GC_CALL_RELIEVED(device, cuCtxDetach, context);
    if (result != CUDA_SUCCESS)
        gc_contexts_count_usage(context, 1);
    gc_contexts_end(ending, result == CUDA_SUCCESS);
    gc_shim_leave();
    return result;
}

/* ---- limits and peers ---- */

GC_EXPORT
CUresult cuCtxSetLimit(CUlimit limit, size_t value)
{
    if (!gc_life_ready())
        return GC_FORWARD(cuCtxSetLimit, limit, value);
    gc_shim_enter(GC_API_cuCtxSetLimit);
    struct gc_context *context = gc_account_current_context();
    struct gc_device *device = context ? gc_context_device(context) : NULL;
    struct gc_measure measure;
    gc_measure_begin_current(&measure);
    CUresult result = GC_CALL_RELIEVED(device, cuCtxSetLimit, limit, value);
    if (result == CUDA_SUCCESS && context != NULL)
        gc_contexts_add_extra((CUcontext)(uintptr_t)gc_context_handle(context), device,
                              gc_measure_end(&measure));
    gc_shim_leave();
    return result;
}

/* ---- flags of contexts ---- */

#define SET_FLAGS(symbol, ...)                                                                     \
    do {                                                                                           \
        CUresult result = CUDA_SUCCESS;                                                            \
                                                                                                   \
        if (!gc_life_ready() || (flags & GC_CTX_SYNC_MEMOPS) == 0)                                 \
            return GC_FORWARD(symbol, __VA_ARGS__);                                                \
        gc_shim_enter(GC_API_##symbol);                                                            \
        result = gc_outside_expect();                                                              \
        if (result == CUDA_SUCCESS)                                                                \
            result = GC_FORWARD(symbol, __VA_ARGS__);                                              \
        gc_shim_leave();                                                                           \
        return result;                                                                             \
    } while (0)

GC_EXPORT
CUresult cuCtxSetFlags(unsigned flags)
{
    SET_FLAGS(cuCtxSetFlags, flags);
}

GC_EXPORT
CUresult cuDevicePrimaryCtxSetFlags(CUdevice ordinal, unsigned flags)
{
    SET_FLAGS(cuDevicePrimaryCtxSetFlags, ordinal, flags);
}

GC_EXPORT
CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice ordinal, unsigned flags)
{
    SET_FLAGS(cuDevicePrimaryCtxSetFlags_v2, ordinal, flags);
}

/* ---- calls that make another context current ---- */

#define SWITCH(symbol, ...)                                                                        \
    do {                                                                                           \
        gc_thread.is_unconfirmed = 1;                                                              \
        (void)gc_life_ready();                                                                     \
        return GC_FORWARD(symbol, __VA_ARGS__);                                                    \
    } while (0)

/* A context that becomes current is known from then on, however it was made, so that its default
 * stream is not taken for another context's. */
#define MAKE_CURRENT(symbol)                                                                       \
    do {                                                                                           \
        gc_thread.is_unconfirmed = 1;                                                              \
        if (!gc_life_ready())                                                                      \
            return GC_FORWARD(symbol, context);                                                    \
        gc_shim_enter(GC_API_##symbol);                                                            \
        CUresult result = GC_CALL_RELIEVED(NULL, symbol, context);                                 \
        if (result == CUDA_SUCCESS && context != NULL &&                                           \
            gc_context_find(gc_shim.core, (uintptr_t)context) == NULL)                             \
            (void)gc_account_current_context();                                                    \
        gc_shim_leave();                                                                           \
        return result;                                                                             \
    } while (0)

GC_EXPORT
CUresult cuCtxSetCurrent(CUcontext context)
{
    MAKE_CURRENT(cuCtxSetCurrent);
}

GC_EXPORT
CUresult cuCtxPushCurrent(CUcontext context)
{
    MAKE_CURRENT(cuCtxPushCurrent);
}

GC_EXPORT
CUresult cuCtxPushCurrent_v2(CUcontext context)
{
    MAKE_CURRENT(cuCtxPushCurrent_v2);
}

GC_EXPORT
CUresult cuCtxPopCurrent(CUcontext *context)
{
    SWITCH(cuCtxPopCurrent, context);
}

GC_EXPORT
CUresult cuCtxPopCurrent_v2(CUcontext *context)
{
    SWITCH(cuCtxPopCurrent_v2, context);
}
