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

#include "core/base/bits.h"
#include "core/device/submit.h"

#include <sched.h>

#define STREAMS_MAX 256
#ifndef CONTEXT_EVENTS_SINCE /* a build without them: tests/gpu/fences.c */
#define CONTEXT_EVENTS_SINCE 12050
#endif
#define COUNTERS 1024 /* of work; a power of two */

static atomic_bool is_incomplete;
static atomic_uint recording_count;
static atomic_uint_fast64_t counters[COUNTERS];
/* Of work in the legacy stream and in threads' own ones: shared with no listed stream, whose work
 * would have the legacy stream asked. */
static atomic_uint_fast64_t legacy_count;
static atomic_uint_fast64_t anywhere_count; /* work in several or unknown streams */

void gc_stream_list_set_incomplete(void)
{
    atomic_store_explicit(&is_incomplete, true, memory_order_relaxed);
}

void gc_stream_list_start(void)
{
    gc_shim.has_context_events =
        GC_HAVE(cuCtxRecordEvent) && gc_resolve_driver_version() >= CONTEXT_EVENTS_SINCE;
}

/* ---- counts of work ---- */

static atomic_uint_fast64_t *counter_of(uint64_t key)
{
    const uint64_t stream = key & ~GC_STREAM_UNORDERED;

    if (key == GC_STREAM_OTHER)
        return &anywhere_count;
    if (stream == GC_STREAM_LEGACY || stream == GC_STREAM_PER_THREAD)
        return &legacy_count;
    return &counters[gc_mix_u64(stream) % COUNTERS];
}

void gc_stream_list_count(uint64_t stream)
{
    /* Release: pairs with the acquire in count_of. */
    atomic_fetch_add_explicit(counter_of(stream), 1, memory_order_release);
}

/* Work in this count is in the driver's hands, and in what is recorded in the stream from now on.
 */
static uint64_t count_of(uint64_t stream)
{
    return atomic_load_explicit(counter_of(stream), memory_order_acquire) +
           atomic_load_explicit(&anywhere_count, memory_order_acquire);
}

/* ---- which streams there are ---- */

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
    if (context == NULL || !gc_handles_set(GC_HANDLE_STREAM, (uintptr_t)stream,
                                           gc_context_handle(context), count_of((uintptr_t)stream)))
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

CUstream gc_stream_copy(uint64_t context, bool is_out)
{
    return own_stream(is_out ? GC_HANDLE_COPY_OUT : GC_HANDLE_COPY_IN, context);
}

static CUresult join(uint64_t context, CUstream joining, CUstream stream, CUevent event)
{
    CUresult result = GC_CALL(gc_driver_device(context), cuEventRecord, event, stream);

    return result == CUDA_SUCCESS ? GC_USE(cuStreamWaitEvent, joining, event, 0) : result;
}

/* A stream with new work, and the count of that. */
struct busy_stream {
    CUstream stream;
    uint64_t count;
};

/* The listed streams of the context that have got work since they were joined last. Returns how
 * many streams the context has; more than STREAMS_MAX: not all were looked at. */
static size_t find_busy_locked(uint64_t context, struct busy_stream *busy, size_t *busy_count)
{
    uint64_t streams[STREAMS_MAX];
    const size_t count = gc_handles_collect_locked(GC_HANDLE_STREAM, context, streams, STREAMS_MAX);

    *busy_count = 0;
    for (size_t i = 0; i < count && i < STREAMS_MAX; i++) {
        const uint64_t work_count = count_of(streams[i]);
        if (gc_handles_find_locked(GC_HANDLE_STREAM, streams[i])->extra != work_count)
            busy[(*busy_count)++] = (struct busy_stream){
                (CUstream)(uintptr_t)streams[i], work_count}; /* NOLINT: handles are integers */
    }
    return count;
}

/* The joining stream waits for all the work in the count. Other records may have raised it. */
static void set_joined_locked(enum gc_handle_kind kind, uint64_t key, uint64_t work_count)
{
    struct gc_handle *entry = gc_handles_find_locked(kind, key);

    if (entry != NULL)
        entry->extra = gc_max_u64(entry->extra, work_count);
}

static bool has_legacy_work(uint64_t context, uint64_t work_count)
{
    struct gc_handle joining;

    return !gc_handles_get(GC_HANDLE_JOIN, context, &joining) || joining.extra != work_count;
}

/* The legacy stream is joined first: all blocking streams wait for what is recorded there. */
static CUresult record_all(uint64_t context, CUevent event, const struct busy_stream *busy,
                           size_t busy_count)
{
    CUstream joining = joining_stream(context);
    CUresult result = joining == NULL ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;
    /* The legacy stream waits for the threads' own ones. */
    const uint64_t legacy_work = count_of(GC_STREAM_LEGACY);

    if (result == CUDA_SUCCESS && has_legacy_work(context, legacy_work))
        result = join(context, joining, CU_STREAM_LEGACY, event);
    for (size_t i = 0; result == CUDA_SUCCESS && i < busy_count; i++)
        result = join(context, joining, busy[i].stream, event);
    if (result != CUDA_SUCCESS)
        return result;
    gc_handles_lock();
    set_joined_locked(GC_HANDLE_JOIN, context, legacy_work);
    for (size_t i = 0; i < busy_count; i++)
        set_joined_locked(GC_HANDLE_STREAM, (uintptr_t)busy[i].stream, busy[i].count);
    gc_handles_unlock();
    return GC_CALL(gc_driver_device(context), cuEventRecord, event, joining);
}

static bool may_miss_some(void)
{
    return atomic_load_explicit(&is_incomplete, memory_order_relaxed) ||
           atomic_load_explicit(&gc_core_submissions(gc_shim.core)->is_conservative,
                                memory_order_relaxed);
}

CUresult gc_stream_list_record(uint64_t context, CUevent event)
{
    struct busy_stream busy[STREAMS_MAX];
    size_t busy_count;
    CUresult result = CUDA_ERROR_NOT_SUPPORTED;

    /* Sequentially consistent, as in gc_stream_list_remove: either that function sees the count, or
     * this one does not find the stream. */
    atomic_fetch_add_explicit(&recording_count, 1, memory_order_seq_cst);
    gc_handles_lock();
    const size_t count = find_busy_locked(context, busy, &busy_count);
    gc_handles_unlock();
    if (count <= STREAMS_MAX && !may_miss_some())
        result = record_all(context, event, busy, busy_count);
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

/* Whether the joining stream waits for all of the stream's work. False: the queued work of the
 * stream would not be waited for. */
static bool join_rest(CUstream stream, const struct gc_handle *entry)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    CUresult result = CUDA_ERROR_NOT_SUPPORTED;
    bool pushed;

    if (entry->extra == count_of((uintptr_t)stream))
        return true;
    /* An event recorded in a capturing stream would be captured. Captures in other streams do not
     * matter here. */
    if (GC_USE(cuStreamIsCapturing, stream, &status) != CUDA_SUCCESS ||
        status != CU_STREAM_CAPTURE_STATUS_NONE ||
        gc_driver_enter_context(entry->value, &pushed) != CUDA_SUCCESS)
        return false;
    result = join_last(entry->value, stream);
    gc_driver_leave_context(pushed);
    return result == CUDA_SUCCESS;
}

void gc_stream_list_remove(CUstream stream)
{
    struct gc_handle found;

    if (!gc_stream_list_is_needed() || !gc_handles_get(GC_HANDLE_STREAM, (uintptr_t)stream, &found))
        return;
    if (!join_rest(stream, &found))
        gc_stream_list_set_incomplete();
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
    gc_handles_remove_locked(GC_HANDLE_COPY_OUT, context, NULL);
    gc_handles_remove_locked(GC_HANDLE_COPY_IN, context, NULL);
    gc_handles_unlock();
}
