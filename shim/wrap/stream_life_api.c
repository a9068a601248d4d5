/* Streams as the program makes and destroys them. */
#include "shim/account/device.h"
#include "shim/driver/capture_guard.h"
#include "shim/driver/stream_list.h"
#include "shim/handles.h"
#include "shim/life/life.h"
#include "shim/real/resolve.h"
#include "shim/wrap/relieve.h"
#include "shim/wrap/submit.h"

#define CREATE_STREAM(symbol, ...)                                                                 \
    do {                                                                                           \
        if (!gc_life_ready())                                                                      \
            return GC_FORWARD(symbol, __VA_ARGS__);                                                \
        gc_shim_enter(GC_API_##symbol);                                                            \
        struct gc_context *context = gc_account_current_context();                                 \
        CUresult result =                                                                          \
            GC_CALL_RELIEVED(context ? gc_context_device(context) : NULL, symbol, __VA_ARGS__);    \
        if (result == CUDA_SUCCESS)                                                                \
            gc_stream_list_add(*stream, context);                                                  \
        gc_shim_leave();                                                                           \
        return result;                                                                             \
    } while (0)

GC_EXPORT
CUresult cuStreamCreate(CUstream *stream, unsigned flags)
{
    CREATE_STREAM(cuStreamCreate, stream, flags);
}

GC_EXPORT
CUresult cuStreamCreateWithPriority(CUstream *stream, unsigned flags, int priority)
{
    CREATE_STREAM(cuStreamCreateWithPriority, stream, flags, priority);
}

GC_EXPORT
CUresult cuGreenCtxStreamCreate(CUstream *stream, CUgreenCtx context, unsigned flags, int priority)
{
    CUcontext handle;

    if (!gc_life_ready())
        return GC_FORWARD(cuGreenCtxStreamCreate, stream, context, flags, priority);
    gc_stream_list_set_incomplete();
    gc_shim_enter(GC_API_cuGreenCtxStreamCreate);
    CUresult result = GC_CALL_RELIEVED(gc_account_current_device(), cuGreenCtxStreamCreate, stream,
                                       context, flags, priority);
    if (result == CUDA_SUCCESS && GC_USE(cuCtxFromGreenCtx, &handle, context) == CUDA_SUCCESS)
        gc_stream_list_add_green(*stream, handle);
    gc_shim_leave();
    return result;
}

/* Destroying a stream ends its capture. The capture's entry is removed first: the driver may reuse
 * the handle for another thread's new stream at once. */
#define DESTROY_STREAM(symbol)                                                                     \
    do {                                                                                           \
        if (!gc_life_ready())                                                                      \
            return GC_FORWARD(symbol, stream);                                                     \
        gc_shim_enter(GC_API_##symbol);                                                            \
        gc_submit_close_stream(gc_shim.core, gc_shim_submit_key(stream, false));                   \
        gc_stream_close(stream);                                                                   \
        struct gc_handle capture;                                                                  \
        bool is_capturing = gc_capture_is_any() && gc_capture_end(stream, &capture);               \
        gc_stream_list_remove(stream);                                                             \
        (void)gc_handles_remove(GC_HANDLE_GREEN_STREAM, (uintptr_t)stream, NULL);                  \
        CUresult result = GC_CALL_RELIEVED(gc_account_current_device(), symbol, stream);           \
        if (result != CUDA_SUCCESS && is_capturing)                                                \
            gc_capture_put_back(stream, &capture);                                                 \
        gc_shim_leave();                                                                           \
        return result;                                                                             \
    } while (0)

GC_EXPORT
CUresult cuStreamDestroy(CUstream stream)
{
    DESTROY_STREAM(cuStreamDestroy);
}

GC_EXPORT
CUresult cuStreamDestroy_v2(CUstream stream)
{
    DESTROY_STREAM(cuStreamDestroy_v2);
}
