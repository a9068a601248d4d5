/* Captures begun and ended: driver/capture_guard.h keeps the count. */
#include "shim/account/device.h"
#include "shim/driver/capture_guard.h"
#include "shim/life/life.h"
#include "shim/real/resolve.h"
#include "shim/wrap/relieve.h"
#include "shim/wrap/submit.h"

/* One wrapper body for the six flavours. */
#define BEGIN_CAPTURE(symbol, is_per_thread, mode, ...)                                            \
    do {                                                                                           \
        if (!gc_life_ready())                                                                      \
            return GC_FORWARD(symbol, __VA_ARGS__);                                                \
        /* Captured work runs later, beside other work: one stream's order is not enough.          \
         * And no capture begins while memory moves: the moves would end the capture. */           \
        struct gc_submissions *work;                                                               \
        CUresult result = gc_shim_submit_enter(GC_STREAM_NONE, &work, GC_CALLER);                  \
        if (result != CUDA_SUCCESS)                                                                \
            return result;                                                                         \
        gc_shim_enter(GC_API_##symbol);                                                            \
        CUstream key = gc_capture_stream_handle(stream, is_per_thread);                            \
        bool is_new = !gc_capture_is_stream_capturing(key);                                        \
        struct gc_context *context = is_new ? gc_account_stream_context(key) : NULL;               \
        gc_capture_begin(key, context, mode);                                                      \
        result =                                                                                   \
            GC_CALL_RELIEVED(context ? gc_context_device(context) : NULL, symbol, __VA_ARGS__);    \
        if (result != CUDA_SUCCESS && context != NULL)                                             \
            (void)gc_capture_end(key, NULL);                                                       \
        gc_shim_submit_leave(work);                                                                \
        gc_shim_leave();                                                                           \
        return result;                                                                             \
    } while (0)

GC_EXPORT
CUresult cuStreamBeginCapture(CUstream stream)
{
    BEGIN_CAPTURE(cuStreamBeginCapture, false, CU_STREAM_CAPTURE_MODE_GLOBAL, stream);
}

GC_EXPORT
CUresult cuStreamBeginCapture_ptsz(CUstream stream)
{
    BEGIN_CAPTURE(cuStreamBeginCapture_ptsz, true, CU_STREAM_CAPTURE_MODE_GLOBAL, stream);
}

GC_EXPORT
CUresult cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode)
{
    BEGIN_CAPTURE(cuStreamBeginCapture_v2, false, mode, stream, mode);
}

GC_EXPORT
CUresult cuStreamBeginCapture_v2_ptsz(CUstream stream, CUstreamCaptureMode mode)
{
    BEGIN_CAPTURE(cuStreamBeginCapture_v2_ptsz, true, mode, stream, mode);
}

GC_EXPORT
CUresult cuStreamBeginCaptureToGraph(CUstream stream, CUgraph graph,
                                     const CUgraphNode *dependencies, const CUgraphEdgeData *edges,
                                     size_t count, CUstreamCaptureMode mode)
{
    BEGIN_CAPTURE(cuStreamBeginCaptureToGraph, false, mode, stream, graph, dependencies, edges,
                  count, mode);
}

GC_EXPORT
CUresult cuStreamBeginCaptureToGraph_ptsz(CUstream stream, CUgraph graph,
                                          const CUgraphNode *dependencies,
                                          const CUgraphEdgeData *edges, size_t count,
                                          CUstreamCaptureMode mode)
{
    BEGIN_CAPTURE(cuStreamBeginCaptureToGraph_ptsz, true, mode, stream, graph, dependencies, edges,
                  count, mode);
}

/* After EndCapture: the capture is over unless the driver reports that the stream still captures
 * (EndCapture was called by the wrong thread, or with a fork unjoined). */
static void end_unless_capturing(CUstream stream, CUresult result)
{
    if (result == CUDA_SUCCESS || result == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED ||
        !gc_capture_is_stream_capturing(stream))
        (void)gc_capture_end(stream, NULL);
}

GC_EXPORT
CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph)
{
    if (!gc_life_ready())
        return GC_FORWARD(cuStreamEndCapture, stream, graph);
    gc_shim_enter(GC_API_cuStreamEndCapture);
    CUresult result =
        GC_CALL_RELIEVED(gc_account_current_device(), cuStreamEndCapture, stream, graph);
    end_unless_capturing(gc_capture_stream_handle(stream, false), result);
    gc_shim_leave();
    return result;
}

GC_EXPORT
CUresult cuStreamEndCapture_ptsz(CUstream stream, CUgraph *graph)
{
    if (!gc_life_ready())
        return GC_FORWARD(cuStreamEndCapture_ptsz, stream, graph);
    gc_shim_enter(GC_API_cuStreamEndCapture_ptsz);
    CUresult result =
        GC_CALL_RELIEVED(gc_account_current_device(), cuStreamEndCapture_ptsz, stream, graph);
    end_unless_capturing(gc_capture_stream_handle(stream, true), result);
    gc_shim_leave();
    return result;
}
