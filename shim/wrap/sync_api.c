/* Waits of the program that prove freed memory idle. Work submitted while the wait runs is not
 * covered by it, so the epoch is read first. After each wait the driver trims its own pools.
 *
 * A context's wait covers all its streams. A stream's wait proves something only while all work of
 * the process goes to that stream. An event's wait proves nothing here: the time of its record is
 * unknown. */
#include "shim/account/device.h"
#include "shim/account/graph_memory.h"
#include "shim/account/mempool.h"
#include "shim/life/life.h"
#include "shim/real/resolve.h"
#include "shim/wrap/relieve.h"
#include "shim/wrap/submit.h"

static CUresult retire(struct gc_context *context, uint64_t epoch, CUresult result)
{
    if (result != CUDA_SUCCESS)
        return result;
    if (context != NULL)
        gc_core_complete(gc_shim.core, context, epoch);
    gc_mempool_refresh(NULL); /* the driver trims its pools when it synchronises */
    gc_graph_refresh_all();   /* and uncharges the memory of destroyed graphs */
    return result;
}

/* The context that cuCtxSynchronize waits for. NULL for a green context: its wait does not cover
 * all work of its primary context. */
static struct gc_context *waited_context(void)
{
    struct gc_context *context = gc_account_current_context();
    CUcontext handle = NULL;

    if (context == NULL || GC_USE(cuCtxGetCurrent, &handle) != CUDA_SUCCESS ||
        gc_context_handle(context) != (uintptr_t)handle)
        return NULL;
    return context;
}

GC_EXPORT
CUresult cuCtxSynchronize(void)
{
    struct gc_context *context;
    uint64_t epoch;
    CUresult result;

    if (!gc_life_ready())
        return GC_FORWARD(cuCtxSynchronize);
    gc_shim_enter(GC_API_cuCtxSynchronize);
    context = waited_context();
    epoch = context == NULL ? 0 : gc_context_epoch(context);
    result = retire(
        context, epoch,
        GC_CALL_RELIEVED(context == NULL ? NULL : gc_context_device(context), cuCtxSynchronize));
    gc_shim_leave();
    return result;
}

GC_EXPORT
CUresult cuCtxSynchronize_v2(CUcontext handle)
{
    struct gc_context *context;
    uint64_t epoch;
    CUresult result;

    if (!gc_life_ready())
        return GC_FORWARD(cuCtxSynchronize_v2, handle);
    gc_shim_enter(GC_API_cuCtxSynchronize_v2);
    context = handle == NULL ? waited_context()
                             : gc_context_find(gc_shim.core, (uint64_t)(uintptr_t)handle);
    epoch = context == NULL ? 0 : gc_context_epoch(context);
    result = retire(context, epoch,
                    GC_CALL_RELIEVED(context == NULL ? NULL : gc_context_device(context),
                                     cuCtxSynchronize_v2, handle));
    gc_shim_leave();
    return result;
}

/* ---- one stream ---- */

/* Whether all work counted so far went to the stream. */
static bool is_only_stream(uint64_t key)
{
    struct gc_submissions *work = gc_life_submissions();

    return work != NULL && key != GC_STREAM_OTHER && gc_submit_is_only_stream(work, key);
}

#define STREAM_SYNCHRONIZE(symbol, is_per_thread)                                                  \
    do {                                                                                           \
        if (!gc_life_ready())                                                                      \
            return GC_FORWARD(symbol, stream);                                                     \
        gc_shim_enter(GC_API_##symbol);                                                            \
        struct gc_context *context = gc_account_current_context();                                 \
        const uint64_t key = gc_shim_submit_key(stream, is_per_thread);                            \
        bool proves = context != NULL && is_only_stream(key);                                      \
        uint64_t epoch = proves ? gc_context_epoch(context) : 0;                                   \
        /* Again, after the epoch: then true for all work of the epoch. */                         \
        proves = proves && is_only_stream(key);                                                    \
        CUresult result =                                                                          \
            retire(proves ? context : NULL, epoch,                                                 \
                   GC_CALL_RELIEVED(context == NULL ? NULL : gc_context_device(context), symbol,   \
                                    stream));                                                      \
        gc_shim_leave();                                                                           \
        return result;                                                                             \
    } while (0)

GC_EXPORT
CUresult cuStreamSynchronize(CUstream stream)
{
    STREAM_SYNCHRONIZE(cuStreamSynchronize, false);
}

GC_EXPORT
CUresult cuStreamSynchronize_ptsz(CUstream stream)
{
    STREAM_SYNCHRONIZE(cuStreamSynchronize_ptsz, true);
}

GC_EXPORT
CUresult cuEventSynchronize(CUevent event)
{
    if (!gc_life_ready())
        return GC_FORWARD(cuEventSynchronize, event);
    gc_shim_enter(GC_API_cuEventSynchronize);
    CUresult result =
        retire(NULL, 0, GC_CALL_RELIEVED(gc_account_current_device(), cuEventSynchronize, event));
    gc_shim_leave();
    return result;
}
