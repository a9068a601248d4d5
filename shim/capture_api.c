/* Captures: which streams capture, so that core synchronises nothing in their contexts and our own
 * driver calls relax the thread's capture mode.
 *
 * A capture is counted from before the driver begins it until it is over, however it ends:
 * EndCapture (also of an invalidated one), its stream destroyed, its context gone. */
#include "shim/direct.h"
#include "shim/handles.h"
#include "shim/mempool.h"
#include "shim/stream_list.h"
#include "shim/submit.h"

static atomic_uint capture_count; /* streams capturing in the process */

bool gc_capture_is_any(void)
{
    return atomic_load_explicit(&capture_count, memory_order_relaxed) != 0;
}

void gc_capture_relax(struct gc_capture_guard *guard)
{
    guard->is_exchanged = false;
    if (!gc_capture_is_any())
        return;
    guard->mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    guard->is_exchanged = GC_USE(cuThreadExchangeStreamCaptureMode, &guard->mode) == CUDA_SUCCESS;
}

void gc_capture_restore(struct gc_capture_guard *guard)
{
    if (guard->is_exchanged)
        (void)GC_USE(cuThreadExchangeStreamCaptureMode, &guard->mode);
}

CUstream gc_stream_explicit(CUstream stream, bool is_per_thread)
{
    if (stream != NULL)
        return stream;
    return is_per_thread ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY;
}

bool gc_stream_is_capturing(CUstream stream)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;

    if (!gc_capture_is_any() || stream == CU_STREAM_LEGACY)
        return false;
    return GC_USE(cuStreamIsCapturing, stream, &status) == CUDA_SUCCESS &&
           status != CU_STREAM_CAPTURE_STATUS_NONE;
}

/* The per-thread stream is another one in each thread. */
static uint64_t key_of(CUstream stream)
{
    return stream == CU_STREAM_PER_THREAD ? (uintptr_t)&gc_thread : (uintptr_t)stream;
}

static void count_begin(CUstream stream, struct gc_context *context)
{
    if (context == NULL ||
        !gc_handles_put(GC_HANDLE_CAPTURE, key_of(stream), (uintptr_t)context, 0))
        return;
    atomic_fetch_add_explicit(&capture_count, 1, memory_order_relaxed);
    gc_context_capture_begin(context);
}

/* The context of the capture that was counted; NULL if none was. */
static struct gc_context *count_end(CUstream stream)
{
    struct gc_handle removed;

    if (!gc_handles_remove(GC_HANDLE_CAPTURE, key_of(stream), &removed))
        return NULL;
    struct gc_context *context = (struct gc_context *)(uintptr_t)removed.value;
    atomic_fetch_sub_explicit(&capture_count, 1, memory_order_relaxed);
    gc_context_capture_end(context);
    return context;
}

static bool is_of_context(const struct gc_handle *handle, const void *context)
{
    return handle->value == (uintptr_t)context;
}

void gc_capture_drop_context(struct gc_context *context)
{
    for (;;) {
        gc_handles_lock();
        const struct gc_handle *found =
            gc_handles_search_locked(GC_HANDLE_CAPTURE, is_of_context, context);
        bool is_found = found != NULL;
        if (is_found)
            gc_handles_remove_locked(GC_HANDLE_CAPTURE, found->key, NULL);
        gc_handles_unlock();
        if (!is_found)
            return;
        atomic_fetch_sub_explicit(&capture_count, 1, memory_order_relaxed);
        gc_context_capture_end(context);
    }
}

/* One wrapper body for the six flavours. */
#define BEGIN_CAPTURE(symbol, is_per_thread, ...)                                                  \
    do {                                                                                           \
        if (!gc_shim_ready())                                                                      \
            return GC_FORWARD(symbol, __VA_ARGS__);                                                \
        /* What is captured runs later, beside other work: one stream's order is not enough. And   \
         * none begins while memory moves, which would end it. */                                  \
        struct gc_work *work;                                                                      \
        CUresult result = gc_submit_enter(GC_STREAM_NONE, &work, GC_CALLER);                       \
        if (result != CUDA_SUCCESS)                                                                \
            return result;                                                                         \
        gc_shim_enter(GC_API_##symbol);                                                            \
        CUstream key = gc_stream_explicit(stream, is_per_thread);                                  \
        bool is_new = !gc_stream_is_capturing(key);                                                \
        struct gc_context *context = is_new ? gc_shim_stream_context(key) : NULL;                  \
        count_begin(key, context);                                                                 \
        result = GC_CALL(context ? gc_context_device(context) : NULL, symbol, __VA_ARGS__);        \
        if (result != CUDA_SUCCESS && context != NULL)                                             \
            count_end(key);                                                                        \
        gc_submit_leave(work);                                                                     \
        gc_shim_leave();                                                                           \
        return result;                                                                             \
    } while (0)

GC_EXPORT
CUresult cuStreamBeginCapture(CUstream stream)
{
    BEGIN_CAPTURE(cuStreamBeginCapture, false, stream);
}

GC_EXPORT
CUresult cuStreamBeginCapture_ptsz(CUstream stream)
{
    BEGIN_CAPTURE(cuStreamBeginCapture_ptsz, true, stream);
}

GC_EXPORT
CUresult cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode)
{
    BEGIN_CAPTURE(cuStreamBeginCapture_v2, false, stream, mode);
}

GC_EXPORT
CUresult cuStreamBeginCapture_v2_ptsz(CUstream stream, CUstreamCaptureMode mode)
{
    BEGIN_CAPTURE(cuStreamBeginCapture_v2_ptsz, true, stream, mode);
}

GC_EXPORT
CUresult cuStreamBeginCaptureToGraph(CUstream stream, CUgraph graph,
                                     const CUgraphNode *dependencies, const CUgraphEdgeData *edges,
                                     size_t count, CUstreamCaptureMode mode)
{
    BEGIN_CAPTURE(cuStreamBeginCaptureToGraph, false, stream, graph, dependencies, edges, count,
                  mode);
}

GC_EXPORT
CUresult cuStreamBeginCaptureToGraph_ptsz(CUstream stream, CUgraph graph,
                                          const CUgraphNode *dependencies,
                                          const CUgraphEdgeData *edges, size_t count,
                                          CUstreamCaptureMode mode)
{
    BEGIN_CAPTURE(cuStreamBeginCaptureToGraph_ptsz, true, stream, graph, dependencies, edges, count,
                  mode);
}

/* After EndCapture: the capture is over unless the driver says the stream still captures (it was
 * asked by the wrong thread, or with a fork unjoined). */
static void end_unless_capturing(CUstream stream, CUresult result)
{
    if (result == CUDA_SUCCESS || result == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED ||
        !gc_stream_is_capturing(stream))
        count_end(stream);
}

GC_EXPORT
CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph)
{
    if (!gc_shim_ready())
        return GC_FORWARD(cuStreamEndCapture, stream, graph);
    gc_shim_enter(GC_API_cuStreamEndCapture);
    CUresult result = GC_CALL(gc_shim_current_device(), cuStreamEndCapture, stream, graph);
    end_unless_capturing(gc_stream_explicit(stream, false), result);
    gc_shim_leave();
    return result;
}

GC_EXPORT
CUresult cuStreamEndCapture_ptsz(CUstream stream, CUgraph *graph)
{
    if (!gc_shim_ready())
        return GC_FORWARD(cuStreamEndCapture_ptsz, stream, graph);
    gc_shim_enter(GC_API_cuStreamEndCapture_ptsz);
    CUresult result = GC_CALL(gc_shim_current_device(), cuStreamEndCapture_ptsz, stream, graph);
    end_unless_capturing(gc_stream_explicit(stream, true), result);
    gc_shim_leave();
    return result;
}

/* A destroyed stream takes its capture along. The count goes first: the driver may give the handle
 * to another thread's new stream at once. */
#define DESTROY_STREAM(symbol)                                                                     \
    do {                                                                                           \
        if (!gc_shim_ready())                                                                      \
            return GC_FORWARD(symbol, stream);                                                     \
        gc_shim_enter(GC_API_##symbol);                                                            \
        gc_work_close_stream(gc_shim.core, gc_submit_key(stream, false));                          \
        gc_stream_close(stream);                                                                   \
        struct gc_context *context = gc_capture_is_any() ? count_end(stream) : NULL;               \
        gc_stream_list_remove(stream);                                                             \
        CUresult result = GC_CALL(gc_shim_current_device(), symbol, stream);                       \
        if (result != CUDA_SUCCESS)                                                                \
            count_begin(stream, context);                                                          \
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
