/* The streams that capture: see capture_guard.h. While a stream captures core synchronises nothing,
 * the library's own driver calls relax the thread's capture mode, and calls that a capture forbids
 * are refused though core would serve them.
 *
 * A capture ends by EndCapture (also of an invalidated one), with its stream or its context
 * destroyed, or with the thread in whose own stream the capture is. */
#include "shim/driver/capture_guard.h"
#include "core/base/bits.h"
#include "shim/handles.h"
#include "shim/real/resolve.h"
#include "shim/real/thread_end.h"

static atomic_uint capture_count; /* streams capturing in the process */

/* The fields of a capture's entry besides its context: GC_HANDLE_CAPTURE's `extra`. */
#define MODE_BITS 2 /* CUstreamCaptureMode */
#define MODE_MASK ((1U << MODE_BITS) - 1)
#define OWN_STREAM (UINT64_C(1) << MODE_BITS) /* the capture is in the thread's own stream */
#define THREAD_SHIFT (MODE_BITS + 1)          /* the number of the thread that began the capture */

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
    guard->before = guard->mode;
}

void gc_capture_restore(struct gc_capture_guard *guard)
{
    if (guard->is_exchanged)
        (void)GC_USE(cuThreadExchangeStreamCaptureMode, &guard->mode);
}

CUstream gc_capture_stream_handle(CUstream stream, bool is_per_thread)
{
    if (stream != NULL)
        return stream;
    return is_per_thread ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY;
}

bool gc_capture_is_stream_capturing(CUstream stream)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;

    if (!gc_capture_is_any() || stream == CU_STREAM_LEGACY)
        return false;
    return GC_USE(cuStreamIsCapturing, stream, &status) == CUDA_SUCCESS &&
           status != CU_STREAM_CAPTURE_STATUS_NONE;
}

/* ---- calls that captures forbid ---- */

struct capture_caller {
    uint64_t thread;
    CUstreamCaptureMode mode;
};

/* The rules of cuThreadExchangeStreamCaptureMode, for a thread that is not relaxed. */
static bool is_in_the_way(const struct gc_handle *capture, const void *argument)
{
    const struct capture_caller *capture_caller = argument;
    const unsigned mode = capture->extra & MODE_MASK;

    return capture->extra >> THREAD_SHIFT == capture_caller->thread
               ? mode != CU_STREAM_CAPTURE_MODE_RELAXED
               : mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
                     capture_caller->mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
}

CUresult gc_capture_check(void)
{
    struct gc_capture_guard guard;
    CUdeviceptr refused = 0;

    if (!gc_capture_is_any())
        return CUDA_SUCCESS;
    gc_capture_relax(&guard); /* reads the thread's mode */
    gc_capture_restore(&guard);
    if (!guard.is_exchanged || guard.before == CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_SUCCESS;
    const struct capture_caller capture_caller = {gc_shim_thread_number(), guard.before};
    gc_handles_lock();
    const bool is_forbidden =
        gc_handles_search_locked(GC_HANDLE_CAPTURE, is_in_the_way, &capture_caller) != NULL;
    gc_handles_unlock();
    if (!is_forbidden)
        return CUDA_SUCCESS;
    /* The driver refuses this call as it would the program's, and ends the same captures. */
    CUresult result = GC_CALL(NULL, cuMemAlloc_v2, &refused, 1);
    if (result == CUDA_SUCCESS)
        (void)GC_CALL(NULL, cuMemFree_v2, refused);
    return result == CUDA_ERROR_OUT_OF_MEMORY ? CUDA_SUCCESS : result;
}

/* ---- which streams capture ---- */

/* CU_STREAM_PER_THREAD is a different stream in each thread and context. */
static uint64_t key_of(CUstream stream)
{
    CUcontext context = NULL;

    if (stream != CU_STREAM_PER_THREAD)
        return (uintptr_t)stream;
    (void)GC_USE(cuCtxGetCurrent, &context);
    return gc_mix_u64(gc_shim_thread_number()) ^ (uintptr_t)context;
}

static void count_begin(CUstream stream, struct gc_context *context, uint64_t extra)
{
    if (context == NULL ||
        !gc_handles_set(GC_HANDLE_CAPTURE, key_of(stream), (uintptr_t)context, extra))
        return;
    atomic_fetch_add_explicit(&capture_count, 1, memory_order_relaxed);
    gc_capture_begin_context(context);
}

static void end_one(const struct gc_handle *removed)
{
    atomic_fetch_sub_explicit(&capture_count, 1, memory_order_relaxed);
    gc_capture_end_context((struct gc_context *)(uintptr_t)removed->value);
}

bool gc_capture_end(CUstream stream, struct gc_handle *removed)
{
    struct gc_handle ended;

    if (!gc_handles_remove(GC_HANDLE_CAPTURE, key_of(stream), &ended))
        return false;
    end_one(&ended);
    if (removed != NULL)
        *removed = ended;
    return true;
}

void gc_capture_put_back(CUstream stream, const struct gc_handle *removed)
{
    count_begin(stream, (struct gc_context *)(uintptr_t)removed->value, removed->extra);
}

/* Ends the captures for which `matches` returns true. */
static void end_all(bool (*matches)(const struct gc_handle *, const void *), const void *argument)
{
    struct gc_handle removed;
    bool any = true;

    while (any) {
        gc_handles_lock();
        const struct gc_handle *found =
            gc_handles_search_locked(GC_HANDLE_CAPTURE, matches, argument);
        any = found != NULL;
        if (any) {
            removed = *found;
            gc_handles_remove_locked(GC_HANDLE_CAPTURE, removed.key, NULL);
        }
        gc_handles_unlock();
        if (any)
            end_one(&removed);
    }
}

static bool is_of_context(const struct gc_handle *handle, const void *context)
{
    return handle->value == (uintptr_t)context;
}

void gc_capture_drop_context(struct gc_context *context)
{
    end_all(is_of_context, context);
}

/* ---- the end of a thread, and of the captures in its own stream ---- */

static bool is_of_own_stream(const struct gc_handle *handle, const void *number)
{
    return (handle->extra & OWN_STREAM) != 0 &&
           handle->extra >> THREAD_SHIFT == *(const uint64_t *)number;
}

void gc_capture_end_thread(void)
{
    if (gc_shim_life() == GC_LIFE_READY && gc_capture_is_any())
        end_all(is_of_own_stream, &gc_thread.number);
}

/* The `extra` of the capture's entry. */
static uint64_t extra_of(CUstream stream, CUstreamCaptureMode mode)
{
    const uint64_t extra = gc_shim_thread_number() << THREAD_SHIFT | ((unsigned)mode & MODE_MASK);

    if (stream != CU_STREAM_PER_THREAD)
        return extra;
    (void)gc_thread_watch_end();
    return extra | OWN_STREAM;
}

void gc_capture_begin(CUstream stream, struct gc_context *context, CUstreamCaptureMode mode)
{
    count_begin(stream, context, extra_of(stream, mode));
}
