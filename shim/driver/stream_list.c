/* The list of streams: see stream_list.h.
 *
 * A record reads the list, then calls the driver for its streams without the lock; a thread that
 * destroys a stream takes it off the list and then waits until no record that may know of it is
 * under way. */
#include "shim/driver/stream_list.h"
#include "shim/driver/capture_guard.h"
#include "shim/driver/driver.h"
#include "shim/handles.h"
#include "shim/real/resolve.h"
#include "shim/real/thread_end.h"

#include "core/device/submit.h"

#include <sched.h>

#define STREAMS_MAX 256
#define CONTEXT_EVENTS_SINCE 12050

static atomic_bool is_incomplete;
static atomic_uint recording_count;

void gc_stream_list_set_incomplete(void)
{
    atomic_store_explicit(&is_incomplete, true, memory_order_relaxed);
}

bool gc_stream_list_is_needed(void)
{
    return !GC_HAVE(cuCtxRecordEvent) || gc_resolve_driver_version() < CONTEXT_EVENTS_SINCE;
}

void gc_stream_list_add_own(void)
{
    gc_thread.has_own_stream = true;
    if (gc_stream_list_is_needed() && !gc_thread_watch_end())
        gc_stream_list_set_incomplete();
}

void gc_stream_list_end_thread(void)
{
    if (gc_thread.has_own_stream)
        gc_stream_list_set_incomplete();
    gc_thread.has_own_stream = false;
}

void gc_stream_list_add_green(CUstream stream, CUcontext context)
{
    struct gc_handle green;

    if (gc_handles_get(GC_HANDLE_GREEN, (uintptr_t)context, &green))
        (void)gc_handles_set(GC_HANDLE_GREEN_STREAM, (uintptr_t)stream, (uintptr_t)context, 0);
}

void gc_stream_list_add(CUstream stream, const struct gc_context *context)
{
    CUcontext handle = NULL;

    if (GC_USE(cuCtxGetCurrent, &handle) == CUDA_SUCCESS)
        gc_stream_list_add_green(stream, handle);
    if (!gc_stream_list_is_needed())
        return;
    if (context == NULL ||
        !gc_handles_set(GC_HANDLE_STREAM, (uintptr_t)stream, gc_context_handle(context), 0))
        gc_stream_list_set_incomplete();
}

/* ---- the library's own streams in a context ---- */

/* If two threads create a stream at the same time, both get the one that is inserted first. */
static CUstream insert_own(enum gc_handle_kind kind, uint64_t context, CUstream stream)
{
    bool is_prepared = gc_handles_prepare();

    gc_handles_lock();
    const struct gc_handle *found = gc_handles_find_locked(kind, context);
    if (found != NULL)
        stream = (CUstream)(uintptr_t)found->value;
    else if (!is_prepared || !gc_handles_set_locked(kind, context, (uintptr_t)stream, 0))
        stream = NULL;
    gc_handles_unlock();
    return stream;
}

static CUstream own_stream(enum gc_handle_kind kind, uint64_t context)
{
    struct gc_handle found;
    CUstream stream = NULL;

    if (gc_handles_get(kind, context, &found))
        return (CUstream)(uintptr_t)found.value;
    if (GC_CALL(gc_driver_device(context), cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING) !=
        CUDA_SUCCESS)
        return NULL;
    CUstream kept = insert_own(kind, context, stream);
    if (kept != stream)
        (void)GC_CALL(gc_driver_device(context), cuStreamDestroy_v2, stream);
    return kept;
}

/* The library's stream that waits for all streams of the context. */
static CUstream joining_stream(uint64_t context)
{
    return own_stream(GC_HANDLE_JOIN, context);
}

CUstream gc_stream_idle(uint64_t context)
{
    return own_stream(GC_HANDLE_IDLE, context);
}

static CUresult join(uint64_t context, CUstream joining, CUstream stream, CUevent event)
{
    CUresult result = GC_CALL(gc_driver_device(context), cuEventRecord, event, stream);

    return result == CUDA_SUCCESS ? GC_USE(cuStreamWaitEvent, joining, event, 0) : result;
}

static CUresult record_all(uint64_t context, CUevent event, const uint64_t *streams, size_t count)
{
    CUstream joining = joining_stream(context);
    CUresult result = joining == NULL ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;

    /* The legacy stream waits for all blocking streams, each thread's own one included. */
    if (result == CUDA_SUCCESS)
        result = join(context, joining, CU_STREAM_LEGACY, event);
    for (size_t i = 0; result == CUDA_SUCCESS && i < count; i++)
        result = join(context, joining, (CUstream)(uintptr_t)streams[i], event); /* NOLINT */
    if (result == CUDA_SUCCESS)
        result = GC_CALL(gc_driver_device(context), cuEventRecord, event, joining);
    return result;
}

static bool may_miss_some(void)
{
    return atomic_load_explicit(&is_incomplete, memory_order_relaxed) ||
           atomic_load_explicit(&gc_core_submissions(gc_shim.core)->is_conservative,
                                memory_order_relaxed);
}

CUresult gc_stream_list_record(uint64_t context, CUevent event)
{
    uint64_t streams[STREAMS_MAX];
    CUresult result = CUDA_ERROR_NOT_SUPPORTED;

    /* Sequentially consistent, as in gc_stream_list_remove: either that function sees the count, or
     * this one does not find the stream. */
    atomic_fetch_add_explicit(&recording_count, 1, memory_order_seq_cst);
    gc_handles_lock();
    const size_t count = gc_handles_collect_locked(GC_HANDLE_STREAM, context, streams, STREAMS_MAX);
    gc_handles_unlock();
    if (count <= STREAMS_MAX && !may_miss_some())
        result = record_all(context, event, streams, count);
    atomic_fetch_sub_explicit(&recording_count, 1, memory_order_seq_cst);
    return result;
}

/* ---- the end of a stream, and of a context ---- */

/* Work queued on the stream that is being destroyed completes before anything that is recorded from
 * now on. */
static CUresult join_last(uint64_t context, CUstream stream)
{
    CUstream joining = joining_stream(context);
    CUevent event = NULL;

    if (joining == NULL)
        return CUDA_ERROR_NOT_SUPPORTED;
    CUresult result =
        GC_CALL(gc_driver_device(context), cuEventCreate, &event, CU_EVENT_DISABLE_TIMING);
    if (result != CUDA_SUCCESS)
        return result;
    result = join(context, joining, stream, event);
    (void)GC_CALL(gc_driver_device(context), cuEventDestroy_v2, event);
    return result;
}

void gc_stream_list_remove(CUstream stream)
{
    struct gc_handle found;
    CUresult result = CUDA_ERROR_NOT_SUPPORTED;
    bool pushed;

    if (!gc_stream_list_is_needed() || !gc_handles_get(GC_HANDLE_STREAM, (uintptr_t)stream, &found))
        return;
    if (!gc_capture_is_any() && gc_driver_enter_context(found.value, &pushed) == CUDA_SUCCESS) {
        result = join_last(found.value, stream);
        gc_driver_leave_context(pushed);
    }
    if (result != CUDA_SUCCESS)
        gc_stream_list_set_incomplete(); /* its queued work would not be waited for */
    /* Only now: a concurrent record must find the stream or, in the joining stream, its work. */
    (void)gc_handles_remove(GC_HANDLE_STREAM, (uintptr_t)stream, &found);
    while (atomic_load_explicit(&recording_count, memory_order_seq_cst) != 0)
        sched_yield();
}

/* Needs no current context: a stream may be destroyed in any. */
void gc_stream_close(CUstream stream)
{
    if (stream != CU_STREAM_LEGACY && stream != CU_STREAM_PER_THREAD)
        gc_core_close_stream(gc_shim.core, (uintptr_t)stream);
}

void gc_stream_end(CUstream stream)
{
    gc_stream_close(stream);
    if (gc_capture_is_any())
        (void)gc_capture_end(stream, NULL);
    gc_stream_list_remove(stream);
}

void gc_stream_list_drop(uint64_t context)
{
    uint64_t streams[STREAMS_MAX];
    size_t count;

    gc_handles_lock();
    do {
        count = gc_handles_collect_locked(GC_HANDLE_STREAM, context, streams, STREAMS_MAX);
        for (size_t i = 0; i < count && i < STREAMS_MAX; i++)
            gc_handles_remove_locked(GC_HANDLE_STREAM, streams[i], NULL);
    } while (count > STREAMS_MAX);
    gc_handles_remove_locked(GC_HANDLE_JOIN, context, NULL);
    gc_handles_remove_locked(GC_HANDLE_IDLE, context, NULL);
    gc_handles_unlock();
}
