#include "core/device/fence.h"

#include "core/base/assert.h"
#include "core/base/bits.h"
#include "core/device/registry.h"

#include <stddef.h>
#include <time.h>

#define STREAMS_POLL_NS 50000

static const struct gc_driver *driver_of(const struct gc_context *context)
{
    return &context->core->driver;
}

static void record_failure(struct gc_context *context)
{
    if (!gc_context_is_gone(context))
        gc_context_set_faulted(context, true);
}

/* Releases a fence to the driver; a fence of a destroyed context was destroyed with it. */
static void release_member(const struct gc_fence_member *member)
{
    const struct gc_driver *driver = driver_of(member->context);
    if (!gc_gate_enter(&member->context->head->gate))
        return;
    driver->fence_release(driver->self, member->context->handle, member->handle);
    gc_gate_leave(&member->context->head->gate);
}

static void release_members(const struct gc_fence *fence)
{
    for (uint32_t i = 0; i < fence->count; i++)
        release_member(&fence->members[i]);
}

/* ---- ownership of the ring ---- */

/* Makes the calling thread the owner of the ring. False: another thread owns it, or the context is
 * dropped. */
static bool begin_driver_calls(struct gc_context *context)
{
    gc_pool_acquire_plain(&context->pool);
    struct gc_fences *fences = context->fences;
    const bool is_free = !context->pool.is_dropped && !fences->is_ring_owned;
    if (is_free) {
        fences->is_ring_owned = true;
        fences->covered_bytes = context->pool.unfenced_bytes;
        fences->covered_count = context->pool.unfenced_count;
    }
    gc_pool_release(&context->pool);
    return is_free;
}

/* Closes the epoch, then reads the set: the context of any work of a closed epoch was listed before
 * that work was submitted, so it is in the set. False: a context of the set captures. */
static bool begin_wait(struct gc_context *context, struct gc_wait_set *set, uint64_t *epoch)
{
    *epoch = gc_submit_close_epoch(&context->core->work);
    gc_pool_acquire_plain(&context->pool);
    const bool may_wait = gc_peers_wait_begin_locked(context, set);
    gc_pool_release(&context->pool);
    return may_wait;
}

static void end_driver_calls(struct gc_context *context, bool is_recorded)
{
    struct gc_pool *pool = &context->pool;
    struct gc_fences *fences = context->fences;
    gc_pool_acquire_plain(pool);
    if (is_recorded) {
        /* The fence does not cover blocks that became pending after its epoch was read. */
        fences->count++;
        pool->unfenced_bytes -= fences->covered_bytes;
        pool->unfenced_count -= fences->covered_count;
        fences->considered_bytes = 0;
        fences->considered_count = 0;
    }
    fences->is_ring_owned = false;
    /* Once both flags are set neither is cleared. The thread that sets the pool's flag calls
     * gc_fence_drop, too; before that other threads may read the ring. */
    const bool is_dropped = gc_context_is_dropped(context) && pool->is_dropped;
    gc_pool_release(pool);
    if (is_dropped)
        gc_fence_drop(context);
}

/* ---- recording ---- */

static int record_member(struct gc_context *member, struct gc_fence *fence)
{
    const struct gc_driver *driver = driver_of(member);
    uint64_t handle = 0;
    gc_counter_add(&member->device->stats.fence_count, 1);
    const int code =
        GC_CALL_IF_OPEN(member, driver->fence_record(driver->self, member->handle, &handle));
    if (code == 0)
        fence->members[fence->count++] = (struct gc_fence_member){member, handle};
    else if (code == driver->context_is_gone)
        return 0; /* its work was destroyed with it */
    else if (code != driver->not_supported && code != driver->out_of_memory)
        record_failure(member);
    return code;
}

/* The epoch was read first: work submitted during the driver call is not counted in it. */
static int record_all(const struct gc_wait_set *set, uint64_t epoch, struct gc_fence *fence)
{
    int code = 0;
    fence->count = 0;
    fence->epoch = epoch;
    for (uint32_t i = 0; code == 0 && i < set->count; i++) {
        if (!gc_context_is_gone(set->contexts[i]))
            code = record_member(set->contexts[i], fence);
    }
    if (code != 0)
        release_members(fence);
    return code;
}

/* From now on the thread caches keep no block: every free reaches the pool, which waits for the
 * work that may use the block. */
static void set_fenceless(struct gc_context *context)
{
    atomic_store_explicit(&context->is_fenceless, true, memory_order_relaxed);
    gc_context_size_tcache(context);
}

/* For the owner of the ring. False: the ring is full, a capture forbids it, or the driver failed.
 */
static bool record_next(struct gc_context *context)
{
    const struct gc_driver *driver = driver_of(context);
    struct gc_fences *fences = context->fences;
    struct gc_wait_set set = {.count = 0};
    uint64_t epoch;
    int code = driver->not_ready;
    if (gc_context_is_fenceless(context) || fences->count == GC_FENCES_MAX ||
        atomic_load_explicit(&context->core->capture_count, memory_order_relaxed) > 0 ||
        !begin_wait(context, &set, &epoch))
        return false;
    const bool is_listed = set.everyone == NULL; /* a fence has a fixed number of members */
    if (is_listed) {
        code =
            record_all(&set, epoch, &fences->ring[(fences->first + fences->count) % GC_FENCES_MAX]);
        atomic_store_explicit(&fences->is_refused, code != 0 && code == driver->out_of_memory,
                              memory_order_relaxed);
        atomic_store_explicit(&fences->is_tried, true, memory_order_relaxed);
        if (code != 0 && code == driver->not_supported)
            set_fenceless(context);
    }
    gc_peers_wait_end(&set);
    return is_listed && code == 0;
}

bool gc_fence_record(struct gc_context *context)
{
    if (driver_of(context)->fence_record == NULL || !begin_driver_calls(context))
        return false;
    GC_ASSERT(gc_lock_held_count() == 0);
    const bool is_recorded = record_next(context);
    end_driver_calls(context, is_recorded);
    return is_recorded;
}

/* ---- queries ---- */

/* `limit_ns`: 0 queries, any other value waits. */
static int poll(const struct gc_driver *driver, uint64_t context, uint64_t fence, uint64_t limit_ns)
{
    return limit_ns == 0 ? driver->fence_query(driver->self, context, fence)
                         : driver->fence_wait(driver->self, context, fence, limit_ns);
}

/* Whether all members of the fence have completed; those of a destroyed context have. */
static bool is_complete(const struct gc_fence *fence, uint64_t limit_ns, bool *is_under_way)
{
    for (uint32_t i = 0; i < fence->count; i++) {
        struct gc_context *member = fence->members[i].context;
        const struct gc_driver *driver = driver_of(member);
        gc_counter_add(&member->device->stats.fence_count, 1);
        const int code = GC_CALL_IF_OPEN(
            member, poll(driver, member->handle, fence->members[i].handle, limit_ns));
        *is_under_way |= code == driver->not_ready;
        if (code == driver->not_ready)
            return false;
        if (code != 0 && code != driver->context_is_gone) {
            record_failure(member);
            return false;
        }
    }
    return true;
}

/* Removes the completed oldest fence from the ring. */
static void complete_oldest(struct gc_context *context)
{
    struct gc_fences *fences = context->fences;
    const struct gc_fence *fence = &fences->ring[fences->first];
    release_members(fence);
    gc_context_raise_completed(context, fence->epoch);
    gc_pool_acquire_plain(&context->pool);
    fences->first = (fences->first + 1) % GC_FENCES_MAX;
    fences->count--;
    gc_pool_release(&context->pool);
}

/* Whether a fence is open, or another thread may be recording one. A hint. */
static bool has_open(struct gc_context *context)
{
    gc_pool_acquire_plain(&context->pool);
    const struct gc_fences *fences = context->fences;
    const bool any = !context->pool.is_dropped && (fences->count > 0 || fences->is_ring_owned);
    gc_pool_release(&context->pool);
    return any;
}

/* Another thread owns the ring: sleeps 1 ms if the caller waits. False: the pool is dropped. */
static bool sleep_if_waiting(struct gc_context *context, uint64_t limit_ns)
{
    const struct timespec pause = {0, 1000000};
    gc_pool_acquire_plain(&context->pool);
    const bool is_there = !context->pool.is_dropped;
    gc_pool_release(&context->pool);
    if (is_there && limit_ns != 0)
        nanosleep(&pause, NULL);
    return is_there;
}

static bool poll_oldest(struct gc_context *context, uint64_t limit_ns, bool *is_under_way)
{
    bool any = false;
    if (!has_open(context))
        return false;
    if (!begin_driver_calls(context)) {
        *is_under_way |= sleep_if_waiting(context, limit_ns);
        return false;
    }
    GC_ASSERT(gc_lock_held_count() == 0);
    struct gc_fences *fences = context->fences;
    while (fences->count > 0) {
        const struct gc_fence *fence = &fences->ring[fences->first];
        /* Another wait may have completed it since. */
        const bool is_known = gc_context_has_completed(context, fence->epoch);
        if (!is_known && ((any && limit_ns != 0) || !is_complete(fence, limit_ns, is_under_way)))
            break;
        any |= !is_known;
        complete_oldest(context);
    }
    end_driver_calls(context, false);
    return any;
}

bool gc_fence_poll(struct gc_context *context)
{
    bool ignored = false;
    return poll_oldest(context, 0, &ignored);
}

uint64_t gc_fence_oldest_epoch(struct gc_context *context)
{
    uint64_t epoch = 0;
    gc_pool_acquire_plain(&context->pool);
    const struct gc_fences *fences = context->fences;
    if (!context->pool.is_dropped && fences->count > 0)
        epoch = fences->ring[fences->first].epoch;
    gc_pool_release(&context->pool);
    return epoch;
}

bool gc_fence_wait_oldest(struct gc_context *context, uint64_t limit_ns, bool *is_under_way)
{
    return poll_oldest(context, limit_ns, is_under_way);
}

/* ---- stream fences ---- */

/* False: another thread owns the stream fences, the context is dropped, or a context of the set
 * captures. Captures are not checked without a set. */
static bool begin_streams(struct gc_context *context, struct gc_wait_set *set)
{
    gc_pool_acquire_plain(&context->pool);
    const bool is_free = !context->pool.is_dropped && !context->fences->are_streams_owned &&
                         (set == NULL || gc_peers_wait_begin_locked(context, set));
    if (is_free)
        context->fences->are_streams_owned = true;
    gc_pool_release(&context->pool);
    return is_free;
}

static void end_streams(struct gc_context *context)
{
    gc_pool_acquire_plain(&context->pool);
    context->fences->are_streams_owned = false;
    const bool is_dropped = gc_context_is_dropped(context) && context->pool.is_dropped;
    gc_pool_release(&context->pool);
    if (is_dropped)
        gc_fence_drop(context);
}

void gc_fence_wait_streams_locked(struct gc_context *context)
{
    const struct timespec pause = {0, STREAMS_POLL_NS};
    while (!context->pool.is_dropped && context->fences->are_streams_owned) {
        gc_pool_release(&context->pool);
        nanosleep(&pause, NULL);
        gc_pool_acquire_plain(&context->pool);
    }
}

/* Closes the epoch for the fence recorded next, which covers seen->covered; a block freed later has
 * a higher epoch, even if no work is counted before: the program may make the stream wait for other
 * work and then free. False: the list needs no fence. */
static bool begin_stream_fences(struct gc_context *context, const struct gc_stream_list *list,
                                uint64_t only, struct gc_stream_list *seen)
{
    gc_pool_acquire_plain(&context->pool);
    *seen = *list;
    const bool is_wanted = !context->pool.is_dropped && list->stream != GC_STREAM_NONE &&
                           !list->is_ended &&
                           (only == GC_STREAM_NONE ? !list->is_marked : list->stream == only);
    if (is_wanted)
        seen->covered = gc_submit_advance(&context->core->work);
    gc_pool_release(&context->pool);
    if (is_wanted)
        gc_submitter_barrier(&context->core->work);
    return is_wanted;
}

/* The list may serve another stream now: compare the serial. */
static void end_stream_fences(struct gc_context *context, struct gc_stream_list *list,
                              const struct gc_stream_list *seen)
{
    gc_pool_acquire_plain(&context->pool);
    if (!context->pool.is_dropped && list->serial == seen->serial) {
        list->is_marked = true;
        list->covered = seen->covered;
    }
    gc_pool_release(&context->pool);
}

/* Reuses the list's fence if it belongs to the stream's context. */
static bool record_stream(const struct gc_stream_list *list, struct gc_fence_member *fence)
{
    struct gc_context *worker = list->worker;
    const struct gc_driver *driver = driver_of(worker);
    if (fence->handle != 0 && fence->context != worker) {
        release_member(fence);
        fence->handle = 0;
    }
    fence->context = worker;
    return GC_CALL_IF_OPEN(worker, driver->stream_record(driver->self, worker->handle, list->stream,
                                                         &fence->handle)) == 0;
}

void gc_fence_record_streams(struct gc_context *context, uint64_t only)
{
    struct gc_wait_set set = {.count = 0};
    struct gc_stream_list seen;
    if (driver_of(context)->stream_record == NULL || !begin_streams(context, &set))
        return;
    for (unsigned i = 0; i < context->pool.stream_count; i++) {
        struct gc_stream_list *list = &context->pool.streams[i];
        if (begin_stream_fences(context, list, only, &seen) &&
            record_stream(&seen, &context->fences->stream_fences[i]))
            end_stream_fences(context, list, &seen);
    }
    gc_peers_wait_end(&set);
    end_streams(context);
}

/* False for a destroyed context: work that its stream waited for in other contexts may still run.
 */
static bool is_passed(const struct gc_fence_member *fence, uint64_t limit_ns, bool *is_under_way)
{
    const struct gc_driver *driver = driver_of(fence->context);
    const int code = GC_CALL_IF_OPEN(fence->context,
                                     poll(driver, fence->context->handle, fence->handle, limit_ns));
    *is_under_way |= code == driver->not_ready;
    return code == 0;
}

static bool is_marked(struct gc_context *context, const struct gc_stream_list *list,
                      struct gc_stream_list *seen)
{
    gc_pool_acquire_plain(&context->pool);
    *seen = *list;
    gc_pool_release(&context->pool);
    return seen->stream != GC_STREAM_NONE && seen->is_marked;
}

static void complete_fence(struct gc_context *context, struct gc_stream_list *list,
                           const struct gc_stream_list *seen)
{
    gc_pool_acquire_plain(&context->pool);
    if (list->serial == seen->serial) {
        list->is_marked = false;
        list->passed = seen->covered;
    }
    gc_pool_release(&context->pool);
}

bool gc_fence_poll_streams(struct gc_context *context, uint64_t limit_ns, bool *is_under_way)
{
    struct gc_stream_list seen;
    bool any = false;
    bool is_late = false;
    if (driver_of(context)->stream_record == NULL)
        return false;
    if (!begin_streams(context, NULL)) {
        *is_under_way |= sleep_if_waiting(context, limit_ns);
        return false;
    }
    for (unsigned i = 0; i < context->pool.stream_count; i++) {
        struct gc_stream_list *list = &context->pool.streams[i];
        if (!is_marked(context, list, &seen) ||
            !is_passed(&context->fences->stream_fences[i], any || is_late ? 0 : limit_ns, &is_late))
            continue;
        complete_fence(context, list, &seen);
        any = true;
    }
    end_streams(context);
    *is_under_way |= is_late;
    return any;
}

/* Pops the oldest open fence; frees the ring if none is open. False: no fence is left, or another
 * thread owns the ring and calls gc_fence_drop when it ends. */
static bool pop_oldest_locked(struct gc_context *context, struct gc_fence *fence)
{
    struct gc_fences *fences = context->fences;
    if (fences == NULL || fences->is_ring_owned || fences->are_streams_owned)
        return false;
    if (fences->count == 0) {
        context->fences = NULL;
        context->pool.stream_count = 0;
        gc_slab_free(&context->core->fence_rings, fences);
        return false;
    }
    *fence = fences->ring[fences->first];
    fences->first = (fences->first + 1) % GC_FENCES_MAX;
    fences->count--;
    return true;
}

/* Pops a fence of the stream lists; false: none is left. */
static bool pop_stream_fence(struct gc_context *context, struct gc_fence_member *fence)
{
    fence->handle = 0;
    gc_pool_acquire_plain(&context->pool);
    struct gc_fences *fences = context->fences;
    for (unsigned i = 0; fences != NULL && !fences->are_streams_owned && i < GC_STREAM_LISTS; i++) {
        if (fences->stream_fences[i].handle == 0)
            continue;
        *fence = fences->stream_fences[i];
        fences->stream_fences[i].handle = 0;
        break;
    }
    gc_pool_release(&context->pool);
    return fence->handle != 0;
}

void gc_fence_drop(struct gc_context *context)
{
    struct gc_fence fence;
    struct gc_fence_member stream_fence;
    while (pop_stream_fence(context, &stream_fence))
        release_member(&stream_fence);
    for (;;) {
        gc_pool_acquire_plain(&context->pool);
        const bool any = pop_oldest_locked(context, &fence);
        gc_pool_release(&context->pool);
        if (!any)
            return;
        release_members(&fence);
    }
}

void gc_fence_record_pending(struct gc_context *context)
{
    gc_pool_acquire_plain(&context->pool);
    const bool is_fenced = context->pool.unfenced_count == 0;
    gc_pool_release(&context->pool);
    if (is_fenced)
        return;
    (void)gc_fence_poll(context); /* the ring may be full */
    gc_fence_record(context);
}

/* ---- waits for all work ---- */

/* A bounded wait: the driver's fence_wait has a limit, its synchronize has none. */
static int wait_by_fence(struct gc_context *context, uint64_t limit_ns)
{
    const struct gc_driver *driver = driver_of(context);
    struct gc_fence_member member = {.context = context};
    int code = GC_CALL_IF_OPEN(context,
                               driver->fence_record(driver->self, context->handle, &member.handle));
    if (code != 0)
        return code;
    code = GC_CALL_IF_OPEN(
        context, driver->fence_wait(driver->self, context->handle, member.handle, limit_ns));
    release_member(&member);
    return code;
}

/* Waits until end_ns; GC_FOREVER: unbounded. */
static enum gc_status wait_one(struct gc_context *context, uint64_t end_ns, int *driver_code)
{
    const struct gc_driver *driver = driver_of(context);
    if (context->is_device || gc_context_is_gone(context))
        return GC_OK;
    gc_counter_add(&context->device->stats.fence_count, 1);
    const bool has_end = end_ns != GC_FOREVER && driver->fence_record != NULL;
    const int code =
        has_end ? wait_by_fence(context, gc_sub_or_zero_u64(end_ns, gc_core_now_ns(context->core)))
                : GC_CALL_IF_OPEN(context, driver->synchronize(driver->self, context->handle));
    if (code == 0 || code == driver->context_is_gone)
        return GC_OK;
    if (has_end && (code == driver->not_ready || code == driver->not_supported ||
                    code == driver->out_of_memory))
        return GC_BUSY;
    record_failure(context);
    *driver_code = code;
    return GC_DRIVER;
}

static enum gc_status wait_everyone(struct gc_core *core, uint64_t end_ns, int *driver_code)
{
    enum gc_status status = GC_OK;
    for (int i = 0; i < GC_DEVICE_MAX && status == GC_OK; i++) {
        const struct gc_device *device = gc_device_find(core, i);
        struct gc_context *context = device == NULL ? NULL : gc_context_first(device);
        for (; context != NULL && status == GC_OK; context = gc_context_next(context))
            status = wait_one(context, end_ns, driver_code);
    }
    return status;
}

static enum gc_status wait_set(const struct gc_wait_set *set, uint64_t end_ns, int *driver_code)
{
    enum gc_status status = GC_OK;
    GC_ASSERT(gc_lock_held_count() == 0);
    if (set->everyone != NULL)
        return wait_everyone(set->everyone, end_ns, driver_code);
    for (uint32_t i = 0; i < set->count && status == GC_OK; i++)
        status = wait_one(set->contexts[i], end_ns, driver_code);
    return status;
}

enum gc_status gc_fence_wait_set(const struct gc_wait_set *set, int *driver_code)
{
    return wait_set(set, GC_FOREVER, driver_code);
}

enum gc_status gc_fence_synchronize(struct gc_context *context, uint64_t limit_ns, int *driver_code)
{
    struct gc_wait_set set = {.count = 0};
    uint64_t epoch;
    if (!begin_wait(context, &set, &epoch))
        return GC_CAPTURING;
    const uint64_t end_ns =
        limit_ns == GC_FOREVER ? GC_FOREVER : gc_core_now_ns(context->core) + limit_ns;
    const enum gc_status status = wait_set(&set, end_ns, driver_code);
    gc_peers_wait_end(&set);
    if (status == GC_OK)
        gc_context_raise_completed(context, epoch);
    return status;
}
