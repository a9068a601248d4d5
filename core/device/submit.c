/* Single-stream mode, its end, and the fence in the single stream: see submit.h. */
#include "core/device/submit.h"

#include "core/base/assert.h"
#include "core/base/bits.h"
#include "core/device/registry.h"

#include <sched.h>
#include <stddef.h>
#include <time.h>

/* The longest wait for memory whose release can be postponed. */
#define TRIM_NS UINT64_C(10000000)
/* The stream fence is owned for a short time, unless the driver blocks its owner. */
#define LOCK_YIELDS 100
#define LOCK_PAUSE_NS 50000

static bool may_be_only(uint64_t stream)
{
    return stream != GC_STREAM_NONE && stream != GC_STREAM_PER_THREAD &&
           (stream & GC_STREAM_UNORDERED) == 0;
}

/* ---- the stream fence ---- */

/* A spin lock with back-off: no ranked lock is held across driver calls. */
static void lock_fence(struct gc_submissions *work)
{
    const struct timespec pause = {0, LOCK_PAUSE_NS};
    for (unsigned i = 0;
         atomic_exchange_explicit(&work->stream_fence.is_locked, true, memory_order_acquire); i++) {
        if (i < LOCK_YIELDS)
            sched_yield();
        else
            nanosleep(&pause, NULL);
    }
}

static void unlock_fence(struct gc_submissions *work)
{
    atomic_store_explicit(&work->stream_fence.is_locked, false, memory_order_release);
}

static void raise_reused(struct gc_context *head, uint64_t *reused_epoch)
{
    for (struct gc_context *record = head; record != NULL;
         record = gc_context_next_record(record)) {
        const uint64_t highest = atomic_load_explicit(&record->reused_epoch, memory_order_seq_cst);
        if (!gc_context_has_completed(record, highest) && !gc_context_is_dropped(record))
            *reused_epoch = gc_max_u64(*reused_epoch, highest);
    }
}

/* Finds the context whose memory, or whose device's, was reused in the single stream's order and is
 * not known to be idle; *reused_epoch: the highest epoch of such memory. NULL: none. */
static struct gc_context *find_reused(struct gc_submissions *work, uint64_t *reused_epoch)
{
    struct gc_context *freed_context =
        atomic_load_explicit(&work->freed_context, memory_order_seq_cst);
    *reused_epoch = 0;
    if (freed_context != NULL)
        freed_context = gc_context_worker(freed_context);
    if (freed_context == NULL || gc_context_is_gone(freed_context))
        return NULL;
    raise_reused(freed_context->head, reused_epoch);
    raise_reused(gc_device_ordered(freed_context->device), reused_epoch);
    return *reused_epoch == 0 ? NULL : freed_context->head;
}

/* The caller owns the stream fence. Records it if the last recording does not cover all reused
 * memory; *is_needed: reused memory may not be idle. False: the fence could not be recorded. */
static bool record_fence(struct gc_core *core, bool *is_needed)
{
    struct gc_submissions *work = &core->work;
    const struct gc_driver *driver = &core->driver;
    uint64_t reused_epoch;
    struct gc_context *context = find_reused(work, &reused_epoch);
    struct gc_context *fenced_context =
        atomic_load_explicit(&work->stream_fence.context, memory_order_relaxed);
    *is_needed = context != NULL;
    if (context == NULL ||
        (context == fenced_context &&
         reused_epoch <= atomic_load_explicit(&work->stream_fence.covered, memory_order_relaxed)))
        return true;
    const uint64_t stream = atomic_load_explicit(&work->only_stream, memory_order_relaxed);
    if (driver->stream_record == NULL || !may_be_only(stream))
        return false;
    const uint64_t covered = gc_submit_close_epoch(work);
    uint64_t fence = context == fenced_context ? work->stream_fence.fence : 0;
    if (GC_CALL_IF_OPEN(context,
                        driver->stream_record(driver->self, context->handle, stream, &fence)) != 0)
        return false;
    work->stream_fence.fence = fence;
    atomic_store_explicit(&work->stream_fence.context, context, memory_order_relaxed);
    atomic_store_explicit(&work->stream_fence.covered, covered, memory_order_relaxed);
    return true;
}

/* All work of the process before the fence is completed: all went to the single stream. */
static void complete_fence(struct gc_core *core, uint64_t covered)
{
    struct gc_submissions *work = &core->work;
    for (int i = 0; i < GC_DEVICE_MAX; i++) {
        const struct gc_device *device = gc_device_find(core, i);
        struct gc_context *context = device == NULL ? NULL : gc_context_first(device);
        for (; context != NULL; context = gc_context_next(context))
            gc_context_raise_completed(context, covered);
    }
    /* No fence is recorded after the one that other work waits for. Release: pairs with the acquire
     * in gc_submit_begin. */
    if (atomic_load_explicit(&work->stream_fence.is_waited_for, memory_order_acquire) &&
        covered == atomic_load_explicit(&work->stream_fence.covered, memory_order_relaxed))
        atomic_store_explicit(&work->multi_stream, true, memory_order_release);
}

/* Queries the fence, or waits for it for limit_ns. Returns the driver's code; 0: all work before
 * the fence is completed, and `completed` has been raised. */
static int poll_fence(struct gc_core *core, uint64_t limit_ns)
{
    const struct gc_driver *driver = &core->driver;
    struct gc_submissions *work = &core->work;
    /* A consistent copy: another thread may record the fence anew during the driver call. */
    lock_fence(work);
    struct gc_context *context =
        atomic_load_explicit(&work->stream_fence.context, memory_order_relaxed);
    const uint64_t fence = work->stream_fence.fence;
    const uint64_t covered =
        atomic_load_explicit(&work->stream_fence.covered, memory_order_relaxed);
    unlock_fence(work);
    const int code = GC_CALL_IF_OPEN(
        context, limit_ns != 0 ? driver->fence_wait(driver->self, context->handle, fence, limit_ns)
                               : driver->fence_query(driver->self, context->handle, fence));
    if (code != 0 && code != driver->context_is_gone)
        return code;
    complete_fence(core, covered);
    return 0;
}

/* False: *driver_code is the driver's error, 0 after a timeout. */
static bool wait_fence(struct gc_core *core, uint64_t limit_ns, int *driver_code)
{
    const int code = poll_fence(core, limit_ns);
    *driver_code = code == core->driver.not_ready ? 0 : code;
    return code == 0;
}

/* ---- the end of the mode ---- */

static bool quiesce_device(struct gc_device *device, int *driver_code)
{
    bool is_idle = true;
    for (struct gc_context *context = gc_context_first(device); context != NULL;
         context = gc_context_next(context))
        is_idle &= gc_submit_quiesce(context, driver_code);
    return is_idle;
}

/* No stream is the only one any more: handles are reused, and NULL is a different stream in each
 * context. */
static void drop_only_stream(struct gc_submissions *work)
{
    atomic_store_explicit(&work->only_stream, GC_STREAM_OTHER, memory_order_relaxed);
    atomic_store_explicit(&work->quick_stream, GC_STREAM_CHECK, memory_order_relaxed);
}

/* Ends the mode without a stream fence: waits for all work. */
static bool wait_for_all(struct gc_core *core, int *driver_code)
{
    struct gc_submissions *work = &core->work;
    bool is_idle = true;
    for (int i = 0; i < GC_DEVICE_MAX; i++) {
        struct gc_device *device = gc_device_find(core, i);
        if (device != NULL)
            is_idle &= quiesce_device(device, driver_code);
    }
    if (!is_idle) /* another thread may have succeeded */
        return atomic_load_explicit(&work->multi_stream, memory_order_acquire);
    /* Release: pairs with the acquire in gc_submit_begin. */
    atomic_store_explicit(&work->multi_stream, true, memory_order_release);
    return true;
}

static bool is_over(const struct gc_submissions *work)
{
    return atomic_load_explicit(&work->multi_stream, memory_order_acquire) ||
           atomic_load_explicit(&work->stream_fence.is_waited_for, memory_order_acquire);
}

bool gc_submit_leave_single_stream(struct gc_core *core, int *driver_code)
{
    struct gc_submissions *work = &core->work;
    bool is_needed = false;
    *driver_code = 0;
    if (is_over(work))
        return true;
    GC_ASSERT(gc_lock_held_count() == 0);
    lock_fence(work);
    /* Sequentially consistent: the partner is gc_context_may_reuse. */
    atomic_fetch_or_explicit(&work->reuse_blocked, GC_SUBMIT_MULTI_STREAM, memory_order_seq_cst);
    if (!is_over(work) && record_fence(core, &is_needed))
        atomic_store_explicit(is_needed ? &work->stream_fence.is_waited_for : &work->multi_stream,
                              true, memory_order_release);
    drop_only_stream(work);
    unlock_fence(work);
    return is_over(work) || wait_for_all(core, driver_code);
}

void gc_submit_close_stream(struct gc_core *core, uint64_t stream)
{
    int ignored; /* after a failure gc_submit_begin tries again before work for another stream */
    if (atomic_load_explicit(&core->work.only_stream, memory_order_relaxed) == stream)
        (void)gc_submit_leave_single_stream(core, &ignored);
}

bool gc_submit_end_single_stream(struct gc_core *core, int *driver_code)
{
    struct gc_submissions *work = &core->work;
    if (!gc_submit_leave_single_stream(core, driver_code))
        return false;
    if (atomic_load_explicit(&work->multi_stream, memory_order_acquire))
        return true;
    return wait_fence(core, GC_FOREVER, driver_code);
}

/* Whether all memory of the context that was reused in stream order is idle. */
static bool is_reuse_idle(const struct gc_context *context, uint64_t reused_epoch)
{
    return gc_context_has_completed(context, reused_epoch) ||
           atomic_load_explicit(&context->core->work.multi_stream, memory_order_acquire);
}

/* Waits for all work if no stream fence can be recorded. */
static bool quiesce(struct gc_context *context, uint64_t limit_ns, int *driver_code)
{
    struct gc_core *core = context->core;
    struct gc_submissions *work = &core->work;
    /* Sequentially consistent: the partner is gc_context_may_reuse. */
    const uint64_t reused_epoch =
        atomic_load_explicit(&context->reused_epoch, memory_order_seq_cst);
    bool is_needed = false;
    if (is_reuse_idle(context, reused_epoch) || gc_context_is_dropped(context))
        return true;
    lock_fence(work);
    const bool has_fence = is_over(work) || record_fence(core, &is_needed);
    unlock_fence(work);
    if (has_fence &&
        atomic_load_explicit(&work->stream_fence.context, memory_order_relaxed) != NULL)
        return wait_fence(core, limit_ns, driver_code) && is_reuse_idle(context, reused_epoch);
    if (gc_fence_synchronize(context, limit_ns, driver_code) != GC_OK)
        return false;
    return is_reuse_idle(context, reused_epoch);
}

bool gc_submit_quiesce(struct gc_context *context, int *driver_code)
{
    return quiesce(context, GC_RECLAIM_WAIT_NS, driver_code);
}

static bool wait_reused(struct gc_core *core, uint64_t limit_ns)
{
    uint64_t ignored_epoch;
    int ignored;
    struct gc_context *context = find_reused(&core->work, &ignored_epoch);
    return context == NULL || quiesce(context, limit_ns, &ignored);
}

bool gc_submit_wait_reused(struct gc_core *core)
{
    return wait_reused(core, GC_RECLAIM_WAIT_NS);
}

bool gc_submit_try_wait_reused(struct gc_core *core)
{
    return wait_reused(core, TRIM_NS);
}

bool gc_submit_wait_reused_for(struct gc_core *core, uint64_t limit_ns)
{
    return wait_reused(core, limit_ns);
}

/* ---- before work is submitted ---- */

/* Whether all work so far went to this stream. The first work sets it. */
static bool is_only(struct gc_submissions *work, uint64_t stream)
{
    uint64_t only = GC_STREAM_NONE;
    return may_be_only(stream) &&
           (atomic_compare_exchange_strong_explicit(&work->only_stream, &only, stream,
                                                    memory_order_relaxed, memory_order_relaxed) ||
            only == stream);
}

/* Before work for the single stream. If recording fails, the end of the mode retries it. */
static void record_before_work(struct gc_core *core, uint64_t stream)
{
    struct gc_submissions *work = &core->work;
    bool ignored;
    lock_fence(work);
    if (!is_over(work)) {
        /* Sequentially consistent, as in gc_submit_request_fence. */
        atomic_store_explicit(&work->quick_stream, stream, memory_order_seq_cst);
        (void)record_fence(core, &ignored);
    }
    unlock_fence(work);
}

/* Before work for another stream, while the fence may not be completed. */
static bool wait_on_fence(struct gc_core *core, uint64_t stream, int *driver_code)
{
    struct gc_submissions *work = &core->work;
    const struct gc_driver *driver = &core->driver;
    struct gc_context *context =
        atomic_load_explicit(&work->stream_fence.context, memory_order_relaxed);
    if (poll_fence(core, 0) == 0)
        return true;
    if (stream == GC_STREAM_OTHER)
        return wait_fence(core, GC_FOREVER, driver_code);
    *driver_code =
        GC_CALL_IF_OPEN(context, driver->stream_wait(driver->self, stream & ~GC_STREAM_UNORDERED,
                                                     work->stream_fence.fence));
    return *driver_code == 0 || *driver_code == driver->context_is_gone;
}

bool gc_submit_begin(struct gc_core *core, uint64_t stream, int *driver_code)
{
    struct gc_submissions *work = &core->work;
    *driver_code = 0;
    /* Acquire: pairs with the release in complete_fence and wait_for_all. */
    if (atomic_load_explicit(&work->multi_stream, memory_order_acquire))
        return true;
    /* Work for the single stream is submitted also while another thread ends the mode. */
    if (is_only(work, stream)) {
        record_before_work(core, stream);
        return true;
    }
    if (!gc_submit_leave_single_stream(core, driver_code))
        return false;
    return stream == GC_STREAM_NONE ||
           atomic_load_explicit(&work->multi_stream, memory_order_acquire) ||
           wait_on_fence(core, stream, driver_code);
}

/* The reach of work that is not counted is unknown. */
static void set_roaming(struct gc_context *context, void *unused)
{
    (void)unused;
    gc_context_set_roaming(context);
}

bool gc_submit_set_conservative(struct gc_core *core)
{
    const bool was =
        atomic_exchange_explicit(&core->work.is_conservative, true, memory_order_seq_cst);
    int ignored; /* after a failure gc_submit_begin tries again before work for another stream */
    (void)gc_submit_leave_single_stream(core, &ignored);
    gc_contexts_visit(core, set_roaming, NULL);
    return !was;
}
