/* Events: a record keeps the points that were the end of the work then; the event is complete when
 * they have passed. An event that was never recorded is complete. */
#define _GNU_SOURCE
#include "tests/simcuda/driver/engine_lazy.h"

#include <stdlib.h>
#include <string.h>

#define SIM_EVENT_FLAGS                                                                            \
    ((unsigned)(CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS))

static struct engine_pool event_pool = {.object_bytes = sizeof(struct sim_event)};
static uint64_t next_record_id = 1;

CUresult event_check(CUevent handle, struct sim_event **event)
{
    struct sim_event *candidate = (struct sim_event *)handle;
    CUresult result = sim_check_init();

    if (result)
        return result;
    if (!candidate)
        return CUDA_ERROR_INVALID_HANDLE;
    engine_lock();
    bool is_live = candidate->magic == SIM_MAGIC_EVENT;
    struct sim_context *owner = is_live ? candidate->context : NULL;
    engine_unlock();
    if (!is_live)
        return CUDA_ERROR_INVALID_HANDLE;
    *event = candidate;
    return context_is_live(owner) ? CUDA_SUCCESS : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

static void unlink_locked(struct sim_event *event)
{
    if (event->previous)
        event->previous->next = event->next;
    else if (event->context->engine)
        event->context->engine->events = event->next;
    if (event->next)
        event->next->previous = event->previous;
    event->points.count = 0;
    event->known.count = 0;
    if (event->place)
        event_place_give_locked(event->place);
    engine_pool_give(&event_pool, event);
}

void event_drop_context_locked(struct sim_context *context)
{
    while (context->engine->events)
        unlink_locked(context->engine->events);
}

CUresult event_create(struct sim_context *context, unsigned flags, struct event_place *place,
                      CUevent *handle)
{
    context = sim_context_root(context);
    CUresult result = lazy_take_slice(context, LAZY_EVENT_BYTES);
    if (result)
        return result;
    engine_lock();
    if (!context->engine) { /* destroyed by another thread meanwhile */
        engine_unlock();
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    }
    if (flags & CU_EVENT_INTERPROCESS)
        place = event_place_take_locked();
    bool is_possible = place || !(flags & CU_EVENT_INTERPROCESS);
    struct sim_event *event = is_possible ? engine_pool_take(&event_pool) : NULL;
    if (event) {
        struct sim_event fresh = {.magic = SIM_MAGIC_EVENT,
                                  .context = context,
                                  .flags = flags,
                                  .place = place,
                                  .next = context->engine->events,
                                  .points = event->points,
                                  .known = event->known,
                                  .capture_nodes = event->capture_nodes,
                                  .capture_capacity = event->capture_capacity};
        *event = fresh;
        if (event->next)
            event->next->previous = event;
        context->engine->events = event;
    } else if (place) {
        event_place_give_locked(place);
    }
    engine_unlock();
    *handle = (CUevent)event;
    return event ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

SIM_API(cuEventCreate, (CUevent * handle, unsigned int flags), (handle, flags), "%u", flags)
{
    struct sim_context *context;
    CUresult result = sim_current(&context);
    if (result)
        return result;
    if (!handle || (flags & ~SIM_EVENT_FLAGS))
        return CUDA_ERROR_INVALID_VALUE;
    /* "CU_EVENT_INTERPROCESS must be specified with CU_EVENT_DISABLE_TIMING" */
    if ((flags & CU_EVENT_INTERPROCESS) && !(flags & CU_EVENT_DISABLE_TIMING))
        return CUDA_ERROR_INVALID_VALUE;
    return event_create(context, flags, NULL, handle);
}

/* May be called before the event is complete; what waits for it goes on waiting. */
static CUresult destroy(CUevent handle)
{
    struct sim_event *event;
    CUresult result = event_check(handle, &event);
    if (result)
        return result;
    struct sim_context *context = event->context;
    engine_lock();
    unlink_locked(event);
    engine_unlock();
    lazy_give_slice(context, LAZY_EVENT_BYTES);
    return sim_sticky(context);
}

SIM_API(cuEventDestroy, (CUevent event), (event), "%p", (void *)event)
{
    return destroy(event);
}

SIM_API(cuEventDestroy_v2, (CUevent event), (event), "%p", (void *)event)
{
    return destroy(event);
}

/* ---- recording ---- */

struct completion {
    struct sim_event *event;
    uint64_t record_id;
    struct event_place *place;
    uint64_t number; /* at the place */
};

/* Runs in the stream: notes the time, unless the event was recorded again or is gone. */
static CUresult run_completion(struct sim_context *context, void *argument)
{
    const struct completion *completion = argument;
    (void)context;
    engine_lock();
    if (completion->event->record_id == completion->record_id)
        completion->event->done_ns = engine_now_ns();
    engine_unlock();
    if (completion->place)
        event_place_complete(completion->place, completion->number);
    return CUDA_SUCCESS;
}

/* A fresh record that captures nothing yet; its number at the event's place, if it has one. */
static uint64_t begin_record_locked(struct sim_event *event)
{
    event->was_recorded = true;
    event->record_id = next_record_id++;
    event->done_ns = 0;
    event->points.count = 0;
    event->known.count = 0;
    event->capture_id = 0;
    event->capture_count = 0;
    return event->place ? event_place_begin(event->place) : 0;
}

static void end_record_locked(struct sim_event *event, uint64_t number)
{
    event->done_ns = engine_now_ns();
    if (event->place)
        event_place_complete(event->place, number);
}

CUresult event_record_locked(struct sim_event *event, struct sim_stream *stream)
{
    uint64_t position;

    uint64_t number = begin_record_locked(event);
    if (stream_is_clear_locked(stream)) {
        end_record_locked(event, number);
        return CUDA_SUCCESS;
    }
    struct completion *completion = malloc(sizeof *completion);
    if (!completion)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *completion = (struct completion){event, event->record_id, event->place, number};
    struct sim_op op = {
        .run = run_completion, .release = free, .argument = completion, .is_instant = true};
    CUresult result = stream_queue_locked(
        stream, &(struct stream_work){.op = op, .position = &position, .even_if_poisoned = true});
    if (result) {
        free(completion);
        return result;
    }
    if (!stream_known_locked(stream, &event->known) ||
        !points_add(&event->points, stream, position))
        return CUDA_ERROR_OUT_OF_MEMORY;
    return CUDA_SUCCESS;
}

static CUresult record(CUevent handle, CUstream stream_handle, unsigned flags, bool per_thread)
{
    struct sim_stream *stream;
    struct sim_event *event;
    CUresult result = sim_stream_resolve(stream_handle, per_thread, &stream);
    if (result)
        return result;
    if (flags & ~(unsigned)CU_EVENT_RECORD_EXTERNAL)
        return CUDA_ERROR_INVALID_VALUE;
    result = event_check(handle, &event);
    if (result)
        return result;
    /* "hEvent and hStream must be from the same context" */
    if (event->context != sim_context_root(stream->context))
        return CUDA_ERROR_INVALID_HANDLE;
    engine_lock();
    result = capture_check_use_locked(stream);
    if (result == CUDA_SUCCESS && stream->capture && flags)
        result = capture_add_locked(stream, event_record_node(event));
    else if (result == CUDA_SUCCESS && stream->capture)
        result = capture_record_event_locked(stream, event);
    else if (result == CUDA_SUCCESS)
        result = event_record_locked(event, stream);
    engine_unlock();
    return result;
}

SIM_API_THREAD(cuEventRecord, _ptsz, (CUevent event, CUstream stream), (event, stream), "%p %p",
               (void *)event, (void *)stream)
{
    return record(event, stream, 0, per_thread);
}

SIM_API_THREAD(cuEventRecordWithFlags, _ptsz, (CUevent event, CUstream stream, unsigned int flags),
               (event, stream, flags), "%p %p %u", (void *)event, (void *)stream, flags)
{
    return record(event, stream, flags, per_thread);
}

/* All activities of the context at this moment, of a primary one's green contexts too. */
CUresult event_record_context(struct sim_context *context, CUevent handle)
{
    struct sim_event *event;
    CUresult result = sim_sticky(context);
    if (result == CUDA_SUCCESS)
        result = event_check(handle, &event);
    if (result)
        return result;
    if (event->context != sim_context_root(context))
        return CUDA_ERROR_INVALID_HANDLE;
    engine_lock();
    result = capture_check_sync_locked(context, NULL);
    if (result == CUDA_SUCCESS) {
        uint64_t number = begin_record_locked(event);
        bool fits = context_points_locked(context, &event->points);
        /* The work that an earlier cuCtxWaitEvent ordered in front of later work belongs to it. */
        for (struct sim_context *part = context; part; part = green_next_locked(context, part))
            fits = points_merge(&event->points, &part->engine->barrier) && fits;
        if (!fits || !points_merge(&event->known, &event->points))
            result = CUDA_ERROR_OUT_OF_MEMORY;
        if (event->place) /* nothing in a stream tells the other processes: wait here */
            points_wait_locked(&event->points);
        if (points_passed_locked(&event->points))
            end_record_locked(event, number);
    }
    engine_unlock();
    return result;
}

/* The context of cuCtxRecordEvent and cuCtxWaitEvent. */
static CUresult find_context(CUcontext handle, struct sim_context **context)
{
    CUresult result = check_version(12050);
    if (result)
        return result;
    return handle ? sim_context_check(handle, context) : sim_current(context);
}

SIM_API(cuCtxRecordEvent, (CUcontext handle, CUevent event), (handle, event), "%p %p",
        (void *)handle, (void *)event)
{
    struct sim_context *context;
    CUresult result = find_context(handle, &context);
    return result ? result : event_record_context(context, event);
}

/* ---- waiting ---- */

/* The last record, of this process or another, is complete. */
static bool has_passed_locked(const struct sim_event *event)
{
    return points_passed_locked(&event->points) &&
           (!event->place || event_place_has_passed(event->place, event_place_last(event->place)));
}

CUresult event_wait(struct sim_stream *stream, struct sim_event *event, unsigned flags)
{
    engine_lock();
    CUresult result = capture_check_use_locked(stream);
    if (result == CUDA_SUCCESS && stream->capture && flags) {
        result = capture_add_locked(stream, event_wait_node(event));
    } else if (result == CUDA_SUCCESS && (stream->capture || event->capture_id)) {
        result = capture_wait_event_locked(stream, event);
    } else if (result == CUDA_SUCCESS && !has_passed_locked(event)) {
        struct stream_work work = {.op = {.is_instant = true}, .after = &event->points};
        if (event->place)
            result = event_place_wait_op(event->place, &work.op);
        if (result == CUDA_SUCCESS)
            result = stream_queue_locked(stream, &work);
        if (result && work.op.release)
            work.op.release(work.op.argument);
        if (result == CUDA_SUCCESS && !points_merge(&stream->known, &event->known))
            result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    engine_unlock();
    return result;
}

CUresult event_wait_context(struct sim_context *context, CUevent handle)
{
    struct sim_event *event;
    CUresult result = sim_sticky(context);
    if (result == CUDA_SUCCESS)
        result = event_check(handle, &event);
    if (result)
        return result;
    if (event->place) /* other processes' work is no point of a stream: wait here */
        event_place_wait(event->place, event_place_last(event->place));
    engine_lock();
    result = capture_check_sync_locked(context, NULL);
    if (result == CUDA_SUCCESS && event->capture_id)
        result = capture_refuse_event_locked(event);
    for (struct sim_context *part = context; part && result == CUDA_SUCCESS;
         part = green_next_locked(context, part))
        if (!points_merge(&part->engine->barrier, &event->points))
            result = CUDA_ERROR_OUT_OF_MEMORY;
    engine_unlock();
    return result;
}

SIM_API(cuCtxWaitEvent, (CUcontext handle, CUevent event), (handle, event), "%p %p", (void *)handle,
        (void *)event)
{
    struct sim_context *context;
    CUresult result = find_context(handle, &context);
    return result ? result : event_wait_context(context, event);
}

/* Queries and synchronisations are unsafe calls during a capture, and impossible for a captured
 * event. */
static CUresult check_host_use(CUevent handle, struct sim_event **event)
{
    CUresult result = event_check(handle, event);
    if (result)
        return result;
    result = sim_sticky((*event)->context);
    if (result)
        return result;
    engine_lock();
    result = (*event)->capture_id ? CUDA_ERROR_CAPTURED_EVENT : capture_check_unsafe_locked();
    if (result == CUDA_ERROR_CAPTURED_EVENT)
        capture_refuse_event_locked(*event);
    engine_unlock();
    return result;
}

static void note_time_locked(struct sim_event *event)
{
    if (event->was_recorded && event->done_ns == 0 && points_passed_locked(&event->points))
        event->done_ns = engine_now_ns();
}

SIM_API(cuEventQuery, (CUevent handle), (handle), "%p", (void *)handle)
{
    struct sim_event *event;
    CUresult result = check_host_use(handle, &event);
    if (result)
        return result;
    engine_lock();
    bool is_done = has_passed_locked(event);
    note_time_locked(event);
    engine_unlock();
    if (!is_done)
        return CUDA_ERROR_NOT_READY;
    return sim_sticky(event->context);
}

SIM_API(cuEventSynchronize, (CUevent handle), (handle), "%p", (void *)handle)
{
    struct sim_event *event;
    CUresult result = check_host_use(handle, &event);
    if (result)
        return result;
    struct sim_points points = {0};
    struct sim_context *context = event->context;
    if (event->place)
        event_place_wait(event->place, event_place_last(event->place));
    engine_lock();
    if (!points_merge(&points, &event->points))
        result = CUDA_ERROR_OUT_OF_MEMORY;
    points_wait_locked(&points);
    if (event->magic == SIM_MAGIC_EVENT)
        note_time_locked(event);
    engine_unlock();
    points_free(&points);
    if (result == CUDA_SUCCESS)
        result = sim_sticky(context);
    if (result == CUDA_SUCCESS)
        sim_memory_synchronized(context);
    return result;
}

/* INVALID_HANDLE: never recorded, or without timing. NOT_READY: not both complete. */
static CUresult elapsed(float *milliseconds, CUevent start_handle, CUevent end_handle)
{
    struct sim_event *start, *end;
    CUresult result = event_check(start_handle, &start);
    if (result == CUDA_SUCCESS)
        result = event_check(end_handle, &end);
    if (result == CUDA_SUCCESS)
        result = sim_sticky(start->context);
    if (result)
        return result;
    if (!milliseconds)
        return CUDA_ERROR_INVALID_VALUE;
    engine_lock();
    note_time_locked(start);
    note_time_locked(end);
    if (start->capture_id || end->capture_id)
        result = CUDA_ERROR_CAPTURED_EVENT;
    else if (!start->was_recorded || !end->was_recorded || start->context != end->context ||
             ((start->flags | end->flags) & CU_EVENT_DISABLE_TIMING))
        result = CUDA_ERROR_INVALID_HANDLE;
    else if (start->done_ns == 0 || end->done_ns == 0)
        result = CUDA_ERROR_NOT_READY;
    else
        *milliseconds = (float)((double)((int64_t)(end->done_ns - start->done_ns)) / 1e6);
    engine_unlock();
    return result;
}

SIM_API(cuEventElapsedTime, (float *milliseconds, CUevent start, CUevent end),
        (milliseconds, start, end), "%p %p", (void *)start, (void *)end)
{
    return elapsed(milliseconds, start, end);
}

SIM_API(cuEventElapsedTime_v2, (float *milliseconds, CUevent start, CUevent end),
        (milliseconds, start, end), "%p %p", (void *)start, (void *)end)
{
    return elapsed(milliseconds, start, end);
}

/* ---- events as graph nodes ---- */

static CUresult run_record_node(struct sim_context *context, void *argument)
{
    struct sim_event *event = argument;
    (void)context;
    engine_lock();
    if (event->magic == SIM_MAGIC_EVENT)
        end_record_locked(event, begin_record_locked(event));
    engine_unlock();
    return CUDA_SUCCESS;
}

static CUresult run_wait_node(struct sim_context *context, void *argument)
{
    struct sim_event *event = argument;
    struct sim_points points = {0};
    (void)context;
    engine_lock();
    bool is_live = event->magic == SIM_MAGIC_EVENT;
    const struct event_place *place = is_live ? event->place : NULL;
    if (is_live && points_merge(&points, &event->points))
        points_wait_locked(&points);
    engine_unlock();
    points_free(&points);
    if (place)
        event_place_wait(place, event_place_last(place));
    return CUDA_SUCCESS;
}

struct graph_work event_record_node(struct sim_event *event)
{
    return (struct graph_work){
        .op = {.run = run_record_node, .argument = event, .is_instant = true},
        .type = CU_GRAPH_NODE_TYPE_EVENT_RECORD};
}

struct graph_work event_wait_node(struct sim_event *event)
{
    return (struct graph_work){.op = {.run = run_wait_node, .argument = event, .is_instant = true},
                               .type = CU_GRAPH_NODE_TYPE_WAIT_EVENT};
}
