#include "core/device/fence.h"

#include "core/base/assert.h"
#include "core/device/registry.h"

#include <stddef.h>
#include <time.h>

#define STREAMS_PAUSE_NS 50000

static const struct gc_driver *driver_of(const struct gc_context *context)
{
    return &context->core->driver;
}

static void record_failure(struct gc_context *context)
{
    if (!gc_context_is_gone(context))
        gc_context_set_faulted(context, true);
}

/* Goes back to the driver; that of a context that is gone went with it. */
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

/* ---- one thread at the driver ---- */

/* Takes the ring for the calling thread and reads the count of work. False: another has it, the
 * context is gone, or a context of the set captures; without a set captures are not asked for.
 *
 * The count comes before the set, under one lock: a peer whose work is in the count was added
 * before that work was submitted, so it is in the set. */
static bool begin_asking(struct gc_context *context, struct gc_wait_set *set, uint64_t *epoch)
{
    gc_pool_acquire_plain(&context->pool);
    struct gc_fences *fences = context->fences;
    *epoch = gc_submit_count(&context->core->work);
    const bool is_free = !context->pool.is_dropped && !fences->is_asking &&
                         (set == NULL || gc_context_wait_begin_locked(context, set));
    if (is_free) {
        fences->is_asking = true;
        fences->covered_bytes = context->pool.unfenced_bytes;
        fences->covered_count = context->pool.unfenced_count;
    }
    gc_pool_release(&context->pool);
    return is_free;
}

static void end_asking(struct gc_context *context, bool is_recorded)
{
    struct gc_pool *pool = &context->pool;
    struct gc_fences *fences = context->fences;
    gc_pool_acquire_plain(pool);
    if (is_recorded) {
        /* What became pending since the mark was read is not covered. */
        fences->count++;
        pool->unfenced_bytes -= fences->covered_bytes;
        pool->unfenced_count -= fences->covered_count;
        fences->considered_bytes = 0;
        fences->considered_count = 0;
    }
    fences->is_asking = false;
    /* For good, and who drops the pool has been there or comes: until then others look at the ring.
     */
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
        return 0; /* its work went with it */
    else if (code != driver->not_supported && code != driver->out_of_memory)
        record_failure(member);
    return code;
}

/* The mark was read first: what is submitted while the driver is asked is not counted in it. */
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

/* What a thread frees must come to the pool from now on, where it waits. */
static void set_fenceless(struct gc_context *context)
{
    atomic_store_explicit(&context->is_fenceless, true, memory_order_relaxed);
    gc_context_size_tcache(context);
}

bool gc_fence_record(struct gc_context *context)
{
    const struct gc_driver *driver = driver_of(context);
    struct gc_wait_set set = {.count = 0};
    uint64_t epoch;
    if (driver->fence_record == NULL || !begin_asking(context, &set, &epoch))
        return false;
    GC_ASSERT(gc_lock_held_count() == 0);
    struct gc_fences *fences = context->fences;
    bool is_recorded = false;
    /* More contexts than a fence has room for are waited for. */
    if (!gc_context_is_fenceless(context) && set.everyone == NULL &&
        fences->count < GC_FENCES_MAX) {
        struct gc_fence *fence = &fences->ring[(fences->first + fences->count) % GC_FENCES_MAX];
        const int code = record_all(&set, epoch, fence);
        is_recorded = code == 0;
        fences->is_tried = true;
        if (code != 0 && code == driver->not_supported)
            set_fenceless(context);
    }
    gc_context_wait_end(&set);
    end_asking(context, is_recorded);
    return is_recorded;
}

/* ---- asking ---- */

/* `limit_ns`: 0 asks, anything else waits. */
static int poll(const struct gc_driver *driver, uint64_t context, uint64_t fence, uint64_t limit_ns)
{
    return limit_ns == 0 ? driver->fence_query(driver->self, context, fence)
                         : driver->fence_wait(driver->self, context, fence, limit_ns);
}

/* Whether all members of the fence are through. A context that is gone took its work along. */
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

/* Takes the completed oldest fence out of the ring. */
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

/* Whether there is anything to ask about, or another thread may be recording it; a moment's answer.
 */
static bool has_open(struct gc_context *context)
{
    gc_pool_acquire_plain(&context->pool);
    const struct gc_fences *fences = context->fences;
    const bool any = !context->pool.is_dropped && (fences->count > 0 || fences->is_asking);
    gc_pool_release(&context->pool);
    return any;
}

/* Another thread is at it: a moment goes by, for one that waits. False: the pool is dropped. */
static bool wait_briefly(struct gc_context *context, uint64_t limit_ns)
{
    const struct timespec moment = {0, 1000000};
    gc_pool_acquire_plain(&context->pool);
    const bool is_there = !context->pool.is_dropped;
    gc_pool_release(&context->pool);
    if (is_there && limit_ns != 0)
        nanosleep(&moment, NULL);
    return is_there;
}

static bool poll_oldest(struct gc_context *context, uint64_t limit_ns, bool *is_under_way)
{
    uint64_t epoch;
    bool any = false;
    if (!has_open(context))
        return false;
    if (!begin_asking(context, NULL, &epoch)) {
        *is_under_way |= wait_briefly(context, limit_ns);
        return false;
    }
    GC_ASSERT(gc_lock_held_count() == 0);
    struct gc_fences *fences = context->fences;
    while (fences->count > 0) {
        const struct gc_fence *fence = &fences->ring[fences->first];
        /* A wait since then may have answered already. */
        const bool is_known = gc_context_has_completed(context, fence->epoch);
        if (!is_known && ((any && limit_ns != 0) || !is_complete(fence, limit_ns, is_under_way)))
            break;
        any |= !is_known;
        complete_oldest(context);
    }
    end_asking(context, false);
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

/* ---- single streams ---- */

/* False: another thread is at it, the context is gone, or a context of the set captures; without a
 * set captures are not asked for. */
static bool begin_streams(struct gc_context *context, struct gc_wait_set *set)
{
    gc_pool_acquire_plain(&context->pool);
    const bool is_free = !context->pool.is_dropped && !context->fences->is_at_streams &&
                         (set == NULL || gc_context_wait_begin_locked(context, set));
    if (is_free)
        context->fences->is_at_streams = true;
    gc_pool_release(&context->pool);
    return is_free;
}

static void end_streams(struct gc_context *context)
{
    gc_pool_acquire_plain(&context->pool);
    context->fences->is_at_streams = false;
    const bool is_dropped = gc_context_is_dropped(context) && context->pool.is_dropped;
    gc_pool_release(&context->pool);
    if (is_dropped)
        gc_fence_drop(context);
}

void gc_fence_wait_streams_locked(struct gc_context *context)
{
    const struct timespec moment = {0, STREAMS_PAUSE_NS};
    while (!context->pool.is_dropped && context->fences->is_at_streams) {
        gc_pool_release(&context->pool);
        nanosleep(&moment, NULL);
        gc_pool_acquire_plain(&context->pool);
    }
}

/* What a mark that is made now covers: a block that is freed after this has a higher stamp. False:
 * the list has nothing to be marked. */
static bool begin_stream_fences(struct gc_context *context, const struct gc_stream_list *list,
                                uint64_t only, struct gc_stream_list *seen)
{
    gc_pool_acquire_plain(&context->pool);
    *seen = *list;
    const bool is_wanted = !context->pool.is_dropped && list->stream != GC_STREAM_NONE &&
                           !list->is_ended &&
                           (only == GC_STREAM_NONE ? !list->is_marked : list->stream == only);
    if (is_wanted) {
        seen->covered = gc_submit_count(&context->core->work);
        gc_submit_end(&context->core->work);
    }
    gc_pool_release(&context->pool);
    return is_wanted;
}

/* The list may be another stream's by now. */
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

/* What is at hand serves again where it is of the stream's context. */
static bool record_stream(const struct gc_stream_list *list, struct gc_fence_member *epoch)
{
    struct gc_context *worker = list->worker;
    const struct gc_driver *driver = driver_of(worker);
    if (epoch->handle != 0 && epoch->context != worker) {
        release_member(epoch);
        epoch->handle = 0;
    }
    epoch->context = worker;
    return GC_CALL_IF_OPEN(worker, driver->stream_record(driver->self, worker->handle, list->stream,
                                                         &epoch->handle)) == 0;
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
    gc_context_wait_end(&set);
    end_streams(context);
}

/* Not where the context is gone: what its stream waited for in others may go on. */
static bool is_passed(const struct gc_fence_member *epoch, uint64_t limit_ns, bool *is_under_way)
{
    const struct gc_driver *driver = driver_of(epoch->context);
    const int code = GC_CALL_IF_OPEN(epoch->context,
                                     poll(driver, epoch->context->handle, epoch->handle, limit_ns));
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
        *is_under_way |= wait_briefly(context, limit_ns);
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

/* The oldest open fence leaves the ring; without any the ring goes. False: there is none, or
 * somebody is asking, who comes here when he has done. */
static bool pop_oldest_locked(struct gc_context *context, struct gc_fence *fence)
{
    struct gc_fences *fences = context->fences;
    if (fences == NULL || fences->is_asking || fences->is_at_streams)
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

/* False: there is no mark of the lists any more. */
static bool remove_stream_fence(struct gc_context *context, struct gc_fence_member *epoch)
{
    epoch->handle = 0;
    gc_pool_acquire_plain(&context->pool);
    struct gc_fences *fences = context->fences;
    for (unsigned i = 0; fences != NULL && !fences->is_at_streams && i < GC_STREAM_LISTS; i++) {
        if (fences->stream_fences[i].handle == 0)
            continue;
        *epoch = fences->stream_fences[i];
        fences->stream_fences[i].handle = 0;
        break;
    }
    gc_pool_release(&context->pool);
    return epoch->handle != 0;
}

void gc_fence_drop(struct gc_context *context)
{
    struct gc_fence fence;
    struct gc_fence_member epoch;
    while (remove_stream_fence(context, &epoch))
        release_member(&epoch);
    for (;;) {
        gc_pool_acquire_plain(&context->pool);
        const bool any = pop_oldest_locked(context, &fence);
        gc_pool_release(&context->pool);
        if (!any)
            return;
        release_members(&fence);
    }
}

void gc_fence_mark_pending(struct gc_context *context)
{
    gc_pool_acquire_plain(&context->pool);
    const bool is_fenced = context->pool.unfenced_count == 0;
    gc_pool_release(&context->pool);
    if (is_fenced)
        return;
    (void)gc_fence_poll(context); /* the ring may be full */
    gc_fence_record(context);
}

/* ---- waiting for everything ---- */

/* Of the driver's waits those for fences have an end. */
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

static enum gc_status wait_one(struct gc_context *context, uint64_t limit_ns, int *driver_code)
{
    const struct gc_driver *driver = driver_of(context);
    if (context->is_device || gc_context_is_gone(context))
        return GC_OK;
    gc_counter_add(&context->device->stats.fence_count, 1);
    const bool has_end = limit_ns != GC_FOREVER && driver->fence_record != NULL;
    const int code =
        has_end ? wait_by_fence(context, limit_ns)
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

static enum gc_status wait_everyone(struct gc_core *core, uint64_t limit_ns, int *driver_code)
{
    enum gc_status status = GC_OK;
    for (int i = 0; i < GC_DEVICE_MAX && status == GC_OK; i++) {
        const struct gc_device *device = gc_core_find_device(core, i);
        struct gc_context *context = device == NULL ? NULL : gc_context_first(device);
        for (; context != NULL && status == GC_OK; context = gc_context_next(context))
            status = wait_one(context, limit_ns, driver_code);
    }
    return status;
}

static enum gc_status wait_set(const struct gc_wait_set *set, uint64_t limit_ns, int *driver_code)
{
    enum gc_status status = GC_OK;
    GC_ASSERT(gc_lock_held_count() == 0);
    if (set->everyone != NULL)
        return wait_everyone(set->everyone, limit_ns, driver_code);
    for (uint32_t i = 0; i < set->count && status == GC_OK; i++)
        status = wait_one(set->contexts[i], limit_ns, driver_code);
    return status;
}

enum gc_status gc_fence_wait_set(const struct gc_wait_set *set, int *driver_code)
{
    return wait_set(set, GC_FOREVER, driver_code);
}

enum gc_status gc_fence_synchronize(struct gc_context *context, uint64_t limit_ns, int *driver_code)
{
    struct gc_wait_set set = {.count = 0};
    gc_pool_acquire_plain(&context->pool);
    const uint64_t epoch = gc_submit_count(&context->core->work); /* before the set, as above */
    const bool may_wait = gc_context_wait_begin_locked(context, &set);
    gc_pool_release(&context->pool);
    if (!may_wait)
        return GC_CAPTURING;
    const enum gc_status status = wait_set(&set, limit_ns, driver_code);
    gc_context_wait_end(&set);
    if (status == GC_OK)
        gc_context_raise_completed(context, epoch);
    return status;
}
