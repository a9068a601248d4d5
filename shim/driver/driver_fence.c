/* Fences over the real driver. From CUDA 12.5 on, an event that covers all work of a context
 * (cuCtxRecordEvent); before, an event behind one on each of the context's streams (stream_list.h).
 * Where some streams are unknown core gets CUDA_ERROR_NOT_SUPPORTED, and synchronises.
 *
 * Idle events are kept per context and destroyed with it. Core requests no fence while the context
 * captures; releasing an event makes a driver call only where enough are kept already. */
#include "core/base/clock.h"
#include "core/device/submit.h"
#include "shim/driver/capture_guard.h"
#include "shim/driver/driver.h"
#include "shim/driver/stream_list.h"
#include "shim/handles.h"
#include "shim/real/resolve.h"

#include <time.h>

#define EVENTS_PER_CONTEXT 15
#define PAUSE_MIN_NS 20000
#define PAUSE_MAX_NS 1000000

struct event_pool {
    uint64_t count;
    CUevent events[EVENTS_PER_CONTEXT];
};
_Static_assert(sizeof(struct event_pool) <= GC_HANDLE_RECORD_BYTES, "a pool fits a record");

static struct event_pool *find_pool_locked(uint64_t context)
{
    const struct gc_handle *found = gc_handles_find_locked(GC_HANDLE_EVENTS, context);

    return found == NULL ? NULL : (struct event_pool *)(uintptr_t)found->value;
}

/* NULL if none is idle. */
static CUevent pop_idle(uint64_t context)
{
    CUevent event = NULL;

    gc_handles_lock();
    struct event_pool *pool = find_pool_locked(context);
    if (pool != NULL && pool->count > 0)
        event = pool->events[--pool->count];
    gc_handles_unlock();
    return event;
}

/* False: there is no place for the event. */
static bool cache_idle(uint64_t context, CUevent event)
{
    bool is_prepared = gc_handles_prepare(), is_kept;

    gc_handles_lock();
    struct event_pool *pool = find_pool_locked(context);
    if (pool == NULL && is_prepared && (pool = gc_handles_alloc_record_locked()) != NULL)
        gc_handles_set_locked(GC_HANDLE_EVENTS, context, (uintptr_t)pool, 0);
    is_kept = pool != NULL && pool->count < EVENTS_PER_CONTEXT;
    if (is_kept)
        pool->events[pool->count++] = event;
    gc_handles_unlock();
    return is_kept;
}

void gc_driver_fence_drop(uint64_t context)
{
    struct gc_handle removed;

    gc_handles_lock();
    if (gc_handles_remove_locked(GC_HANDLE_EVENTS, context, &removed))
        gc_handles_free_record_locked((void *)(uintptr_t)removed.value);
    gc_handles_unlock();
    gc_stream_list_drop(context);
}

/* An event of the current context. */
static CUresult alloc_event(uint64_t context, CUevent *event)
{
    *event = pop_idle(context);
    if (*event != NULL)
        return CUDA_SUCCESS;
    return GC_CALL(gc_driver_device(context), cuEventCreate, event, CU_EVENT_DISABLE_TIMING);
}

static void free_event(uint64_t context, CUevent event)
{
    /* A destroyed context took its events along, and its handle may already belong to another
     * context. */
    if (gc_driver_device(context) == NULL || cache_idle(context, event))
        return;
    (void)GC_CALL(gc_driver_device(context), cuEventDestroy_v2, event);
}

/* Records an event behind all work of the context, which is current, or of one stream. */
typedef CUresult record_function(uint64_t context, CUstream stream, CUevent event);

static CUresult record_all_work(uint64_t context, CUstream unused, CUevent event)
{
    (void)unused;
    return !gc_stream_list_is_needed()
               ? GC_CALL(gc_driver_device(context), cuCtxRecordEvent, (CUcontext)(uintptr_t)context,
                         event) /* NOLINT: an integer */
               : gc_stream_list_record(context, event);
}

static CUresult record_stream(uint64_t context, CUstream stream, CUevent event)
{
    return GC_CALL(gc_driver_device(context), cuEventRecord, event, stream);
}

/* *fence: 0, or an event to be recorded again. Unchanged where it fails. */
static CUresult record(uint64_t context, CUstream stream, record_function *how, uint64_t *fence)
{
    CUevent event = (CUevent)(uintptr_t)*fence; /* NOLINT: handles are integers */
    struct gc_driver_visit visit;
    CUresult result = gc_driver_enter(context, &visit);

    if (result != CUDA_SUCCESS)
        return result;
    if (event == NULL)
        result = alloc_event(context, &event);
    if (result == CUDA_SUCCESS)
        result = how(context, stream, event);
    if (result == CUDA_SUCCESS)
        *fence = (uintptr_t)event;
    else if (*fence == 0 && event != NULL)
        free_event(context, event);
    gc_driver_leave(&visit);
    return result;
}

static int fence_record(void *self, uint64_t context, uint64_t *fence)
{
    uint64_t made = 0;
    CUresult result = record(context, NULL, record_all_work, &made);

    (void)self;
    if (result == CUDA_SUCCESS)
        *fence = made;
    return (int)result;
}

/* A capture that another thread begins meanwhile waits until the query has ended. */
static CUresult query(uint64_t context, CUevent event)
{
    gc_capture_relax_begin(gc_shim.core);
    CUresult result = (CUresult)GC_CALL_IF_ENTERED(
        context, GC_CALL(gc_driver_device(context), cuEventQuery, event));
    gc_capture_relax_end(gc_shim.core);
    return result;
}

static int fence_query(void *self, uint64_t context, uint64_t fence)
{
    (void)self;
    return (int)query(context, (CUevent)(uintptr_t)fence); /* NOLINT: handles are integers */
}

/* Queries repeatedly, with pauses that grow: the driver's own wait for an event is unbounded, and a
 * capture forbids it. */
static int fence_wait(void *self, uint64_t context, uint64_t fence, uint64_t limit_ns)
{
    const uint64_t start_ns = gc_clock_ns();
    struct timespec pause = {0, PAUSE_MIN_NS};
    int result = fence_query(self, context, fence);

    while (result == CUDA_ERROR_NOT_READY && gc_clock_ns() - start_ns < limit_ns) {
        nanosleep(&pause, NULL);
        if (pause.tv_nsec < PAUSE_MAX_NS)
            pause.tv_nsec *= 2;
        result = fence_query(self, context, fence);
    }
    return result;
}

static void fence_release(void *self, uint64_t context, uint64_t fence)
{
    (void)self;
    free_event(context, (CUevent)(uintptr_t)fence); /* NOLINT: handles are integers */
}

/* ---- the order of one stream ---- */

/* Names of streams besides handles, which are even. A legacy stream's name is odd; the name of a
 * thread's own stream has this bit, the thread's number and the context's. */
#define THREADS_OWN (UINT64_C(1) << 62)
#define NUMBER_BITS 16

uint64_t gc_driver_name_stream(CUstream stream, uint16_t number)
{
    if (number == 0)
        return 0;
    return stream == CU_STREAM_LEGACY
               ? 2 * (uint64_t)number - 1
               : THREADS_OWN | gc_shim_thread_number() << NUMBER_BITS | number;
}

static CUstream stream_of(uint64_t stream)
{
    return (CUstream)(uintptr_t)stream; /* NOLINT: handles are integers */
}

/* False: another thread's own default stream. */
static bool find_stream(uint64_t name, CUstream *stream)
{
    const bool is_threads_own = (name & THREADS_OWN) != 0;

    if (is_threads_own)
        *stream = CU_STREAM_PER_THREAD;
    else
        *stream = (name & 1) != 0 ? CU_STREAM_LEGACY : stream_of(name);
    return !is_threads_own || (name & ~THREADS_OWN) >> NUMBER_BITS == gc_shim_thread_number();
}

static CUresult mark(uint64_t context, CUstream stream, uint64_t *fence)
{
    return gc_capture_is_stream_capturing(stream) ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
                                                  : record(context, stream, record_stream, fence);
}

static int stream_record(void *self, uint64_t context, uint64_t name, uint64_t *fence)
{
    CUstream stream;

    (void)self;
    return find_stream(name, &stream) ? (int)mark(context, stream, fence)
                                      : (int)CUDA_ERROR_NOT_SUPPORTED;
}

static int stream_wait(void *self, uint64_t stream, uint64_t fence)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;

    (void)self;
    /* CUDA_SUCCESS after an error, too: the program's own call returns the stream's error. */
    if (gc_capture_is_any() &&
        (GC_USE(cuStreamIsCapturing, stream_of(stream), &status) != CUDA_SUCCESS ||
         status != CU_STREAM_CAPTURE_STATUS_NONE))
        return CUDA_SUCCESS;
    return (int)GC_USE(cuStreamWaitEvent, stream_of(stream), (CUevent)(uintptr_t)fence,
                       0); /* NOLINT: as above */
}

/* Waits for the fence and releases it, unless its recording failed with `result`. */
static CUresult wait_made(CUresult result, uint64_t context, uint64_t fence, uint64_t limit_ns)
{
    if (result != CUDA_SUCCESS)
        return result;
    result = (CUresult)fence_wait(NULL, context, fence, limit_ns);
    fence_release(NULL, context, fence);
    return result;
}

CUresult gc_driver_wait(uint64_t context, uint64_t limit_ns)
{
    uint64_t fence = 0;

    gc_capture_relax_begin(gc_shim.core);
    CUresult result =
        gc_capture_is_any() ? CUDA_ERROR_NOT_READY : (CUresult)fence_record(NULL, context, &fence);
    gc_capture_relax_end(gc_shim.core);
    return wait_made(result, context, fence, limit_ns);
}

CUresult gc_driver_wait_stream(uint64_t context, CUstream stream, uint64_t limit_ns)
{
    uint64_t fence = 0;
    CUresult result = mark(context, stream, &fence);

    return wait_made(result, context, fence, limit_ns);
}

CUresult gc_driver_place(uint64_t context, CUstream stream)
{
    uint64_t fence = 0;
    CUresult result = mark(context, stream, &fence);

    if (result == CUDA_SUCCESS)
        fence_release(NULL, context, fence);
    return result;
}

void gc_driver_fence_init(struct gc_driver *driver)
{
    driver->not_ready = CUDA_ERROR_NOT_READY;
    driver->not_supported = CUDA_ERROR_NOT_SUPPORTED;
    driver->fence_record = fence_record;
    driver->fence_query = fence_query;
    driver->fence_wait = fence_wait;
    driver->fence_release = fence_release;
    driver->stream_record = stream_record;
    driver->stream_wait = stream_wait;
}
