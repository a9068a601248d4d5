/* Stream capture: what may be done meanwhile, what becomes a node, what breaks it.
 *
 * A capture is a graph that grows and the streams that take part, each with a frontier: the nodes
 * that its next operation depends on. An event recorded in a capturing stream keeps that stream's
 * frontier; a stream that waits for it joins the capture. A capture that was broken stays, invalid,
 * until it is ended in its origin. */
#define _GNU_SOURCE
#include "tests/simcuda/driver/early.h"
#include "tests/simcuda/driver/engine_thread.h"

#include <stdlib.h>
#include <string.h>

static struct sim_capture *captures; /* those that have not ended */
static uint64_t next_capture_id = 1;

static struct sim_capture *find_locked(uint64_t id)
{
    struct sim_capture *capture = captures;
    while (capture && capture->id != id)
        capture = capture->next;
    return capture;
}

/* ---- prohibitions ---- */

static bool is_blocking_capture(const struct sim_capture *capture,
                                const struct sim_context *context)
{
    for (size_t i = 0; i < capture->stream_count; i++)
        if (capture->streams[i]->context == context &&
            !(capture->streams[i]->flags & CU_STREAM_NON_BLOCKING))
            return true;
    return false;
}

/* The legacy stream would make later work depend on a capturing blocking stream. */
static CUresult check_legacy_locked(struct sim_context *context, bool invalidates)
{
    CUresult result = CUDA_SUCCESS;
    for (struct sim_capture *capture = captures; capture; capture = capture->next)
        if (is_blocking_capture(capture, context)) {
            capture->is_invalid = capture->is_invalid || invalidates;
            result = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
        }
    return result;
}

CUresult capture_check_use_locked(struct sim_stream *stream)
{
    if (stream->capture)
        return stream->capture->is_invalid ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS;
    return stream->is_legacy ? check_legacy_locked(stream->context, true) : CUDA_SUCCESS;
}

void capture_invalidate_context_locked(struct sim_context *context)
{
    for (struct sim_context *part = context; part; part = green_next_locked(context, part))
        for (struct sim_stream *stream = part->engine->streams; stream; stream = stream->next)
            if (stream->capture)
                stream->capture->is_invalid = true;
}

static bool is_capturing_locked(struct sim_context *context)
{
    bool is_capturing = false;
    for (struct sim_context *part = context; part; part = green_next_locked(context, part))
        is_capturing = is_capturing || atomic_load(&part->capturing_count) != 0;
    return is_capturing;
}

CUresult capture_check_sync_locked(struct sim_context *context, struct sim_stream *stream)
{
    if (!stream) {
        if (!is_capturing_locked(context))
            return CUDA_SUCCESS;
        capture_invalidate_context_locked(context);
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    CUresult result = capture_check_use_locked(stream);
    if (result || !stream->capture)
        return result;
    stream->capture->is_invalid = true;
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

/* The rules of cuThreadExchangeStreamCaptureMode: a thread in relaxed mode may do anything; one in
 * thread-local mode is held by its own captures that are not relaxed; one in global mode also by
 * others' global captures. */
CUresult capture_check_unsafe_locked(void)
{
    const struct engine_thread *thread = engine_thread();
    CUstreamCaptureMode mode = thread ? thread->capture_mode : CU_STREAM_CAPTURE_MODE_GLOBAL;
    uint64_t serial = thread ? thread->serial : 0;
    CUresult result = CUDA_SUCCESS;

    if (mode == CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_SUCCESS;
    for (struct sim_capture *capture = captures; capture; capture = capture->next) {
        bool is_own = capture->owner == serial;
        if (is_own ? capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED
                   : mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
                         capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL) {
            capture->is_invalid = true;
            result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        }
    }
    return result;
}

CUresult sim_check_unsafe_call(struct sim_context *context)
{
    (void)context; /* captures of every context count */
    engine_lock();
    CUresult result = capture_check_unsafe_locked();
    engine_unlock();
    return result;
}

SIM_API(cuThreadExchangeStreamCaptureMode, (CUstreamCaptureMode * mode), (mode), "%p", (void *)mode)
{
    /* A mode is the thread's own: it can be set once cuInit was tried. */
    CUresult result = sim_start() == SIM_START_TRIED ? CUDA_SUCCESS : sim_check_init();
    struct engine_thread *thread = engine_thread();
    if (result)
        return result;
    if (!thread)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (!mode || (unsigned)*mode > CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_ERROR_INVALID_VALUE;
    CUstreamCaptureMode before = thread->capture_mode;
    thread->capture_mode = *mode;
    *mode = before;
    return CUDA_SUCCESS;
}

/* ---- frontiers ---- */

static bool frontier_add(struct sim_graph_node ***nodes, size_t *count, size_t *capacity,
                         struct sim_graph_node *node)
{
    for (size_t i = 0; i < *count; i++)
        if ((*nodes)[i] == node)
            return true;
    if (!engine_grow((void **)nodes, capacity, *count, sizeof(struct sim_graph_node *)))
        return false;
    (*nodes)[(*count)++] = node;
    return true;
}

static bool stream_depend(struct sim_stream *stream, struct sim_graph_node *const *nodes,
                          size_t count)
{
    bool fits = true;
    for (size_t i = 0; i < count; i++)
        fits = frontier_add(&stream->capture_nodes, &stream->capture_count,
                            &stream->capture_capacity, nodes[i]) &&
               fits;
    return fits;
}

static CUresult join_locked(struct sim_capture *capture, struct sim_stream *stream)
{
    if (!engine_grow((void **)&capture->streams, &capture->stream_capacity, capture->stream_count,
                     sizeof(struct sim_stream *)))
        return CUDA_ERROR_OUT_OF_MEMORY;
    capture->streams[capture->stream_count++] = stream;
    stream->capture = capture;
    stream->capture_count = 0;
    atomic_fetch_add(&stream->context->capturing_count, 1);
    return CUDA_SUCCESS;
}

CUresult capture_add_locked(struct sim_stream *stream, struct graph_work work)
{
    struct sim_graph_node *node;
    work.context = stream->context;
    CUresult result = graph_add_locked(stream->capture->graph, stream->capture_nodes,
                                       stream->capture_count, work, &node);
    if (result == CUDA_SUCCESS) {
        stream->capture_count = 0;
        if (!stream_depend(stream, &node, 1))
            result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (result)
        stream->capture->is_invalid = true;
    return result;
}

CUresult capture_record_event_locked(struct sim_stream *stream, struct sim_event *event)
{
    event->was_recorded = true;
    event->record_id = 0; /* a completion that is still under way must not count */
    event->points.count = 0;
    event->capture_id = stream->capture->id;
    event->capture_count = 0;
    for (size_t i = 0; i < stream->capture_count; i++)
        if (!frontier_add(&event->capture_nodes, &event->capture_count, &event->capture_capacity,
                          stream->capture_nodes[i]))
            return CUDA_ERROR_OUT_OF_MEMORY;
    return CUDA_SUCCESS;
}

/* The operation needs an event outside its capture: that capture cannot be trusted any more. */
CUresult capture_refuse_event_locked(const struct sim_event *event)
{
    struct sim_capture *capture = find_locked(event->capture_id);
    if (capture)
        capture->is_invalid = true;
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

CUresult capture_wait_event_locked(struct sim_stream *stream, struct sim_event *event)
{
    struct sim_capture *source = event->capture_id ? find_locked(event->capture_id) : NULL;

    if (!event->capture_id) {
        if (!event->was_recorded)
            return CUDA_SUCCESS;
        stream->capture->is_invalid = true;
        return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
    }
    if (!source) /* its capture has ended */
        return CUDA_ERROR_CAPTURED_EVENT;
    if (source->is_invalid)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (stream->is_legacy) {
        source->is_invalid = true;
        return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    }
    if (stream->capture && stream->capture != source) {
        stream->capture->is_invalid = true;
        source->is_invalid = true;
        return CUDA_ERROR_STREAM_CAPTURE_MERGE;
    }
    CUresult result = stream->capture ? CUDA_SUCCESS : join_locked(source, stream);
    if (result == CUDA_SUCCESS &&
        !stream_depend(stream, event->capture_nodes, event->capture_count))
        result = CUDA_ERROR_OUT_OF_MEMORY;
    return result;
}

/* ---- begin and end ---- */

static CUresult begin(CUstream handle, bool per_thread, CUstreamCaptureMode mode,
                      struct sim_graph *graph, struct sim_graph_node *const *nodes,
                      size_t node_count)
{
    struct sim_stream *stream;
    CUresult result = sim_stream_resolve(handle, per_thread, &stream);
    if (result)
        return result;
    if ((unsigned)mode > CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_ERROR_INVALID_VALUE;
    if (stream->is_legacy)
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    const struct engine_thread *thread = engine_thread();
    struct sim_capture *capture = calloc(1, sizeof *capture);
    if (!capture || !thread) {
        free(capture);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    engine_lock();
    if (stream->capture) {
        result = CUDA_ERROR_ILLEGAL_STATE;
        goto fail;
    }
    capture->owns_graph = graph == NULL;
    capture->graph = graph ? graph : graph_create_locked();
    capture->mode = mode;
    capture->owner = thread->serial;
    capture->origin = stream;
    if (!capture->graph || join_locked(capture, stream) ||
        !stream_depend(stream, nodes, node_count)) {
        result = CUDA_ERROR_OUT_OF_MEMORY;
        goto fail;
    }
    capture->id = next_capture_id++;
    capture->next = captures;
    captures = capture;
    engine_unlock();
    return CUDA_SUCCESS;

fail:
    if (capture->graph && capture->owns_graph)
        graph_destroy_locked(capture->graph);
    engine_unlock();
    free(capture->streams);
    free(capture);
    return result;
}

SIM_API_THREAD(cuStreamBeginCapture, _ptsz, (CUstream stream), (stream), "%p", (void *)stream)
{
    return begin(stream, per_thread, CU_STREAM_CAPTURE_MODE_GLOBAL, NULL, NULL, 0);
}

SIM_API_THREAD(cuStreamBeginCapture_v2, _ptsz, (CUstream stream, CUstreamCaptureMode mode),
               (stream, mode), "%p %d", (void *)stream, (int)mode)
{
    return begin(stream, per_thread, mode, NULL, NULL, 0);
}

SIM_API_THREAD(cuStreamBeginCaptureToGraph, _ptsz,
               (CUstream stream, CUgraph graph, const CUgraphNode *dependencies,
                const CUgraphEdgeData *edges, size_t count, CUstreamCaptureMode mode),
               (stream, graph, dependencies, edges, count, mode), "%p %p %zu %d", (void *)stream,
               (void *)graph, count, (int)mode)
{
    struct sim_graph *target;
    CUresult result = graph_check(graph, &target);
    if (result)
        return result;
    if (count > 0 && !dependencies)
        return CUDA_ERROR_INVALID_VALUE;
    (void)edges; /* every edge is a full dependency */
    return begin(stream, per_thread, mode, target,
                 (struct sim_graph_node *const *)(const void *)dependencies, count);
}

/* Whether the other stream's last nodes depend on all work of the stream. */
static bool is_joined_locked(const struct sim_stream *stream, const struct sim_stream *other)
{
    for (size_t i = 0; i < stream->capture_count; i++)
        if (!graph_node_reaches_locked(stream->capture_nodes[i], other->capture_nodes,
                                       other->capture_count))
            return false;
    return true;
}

static bool has_unjoined_locked(const struct sim_capture *capture)
{
    for (size_t i = 0; i < capture->stream_count; i++)
        if (!is_joined_locked(capture->streams[i], capture->origin))
            return true;
    return false;
}

/* Another stream of the capture has all of its work. */
static bool is_dispensable_locked(const struct sim_capture *capture,
                                  const struct sim_stream *stream)
{
    for (size_t i = 0; i < capture->stream_count && stream != capture->origin; i++)
        if (capture->streams[i] != stream && is_joined_locked(stream, capture->streams[i]))
            return true;
    return false;
}

static void leave_one_locked(struct sim_stream *stream)
{
    stream->capture = NULL;
    stream->capture_count = 0;
    atomic_fetch_sub(&stream->context->capturing_count, 1);
}

/* Takes the capture apart; its graph stays. */
static void finish_locked(struct sim_capture *capture)
{
    struct sim_capture **link = &captures;
    while (*link != capture)
        link = &(*link)->next;
    *link = capture->next;
    for (size_t i = 0; i < capture->stream_count; i++)
        leave_one_locked(capture->streams[i]);
    free(capture->streams);
    free(capture);
}

void capture_leave_locked(struct sim_stream *stream)
{
    struct sim_capture *capture = stream->capture;
    if (!capture)
        return;
    /* A stream whose work was joined is not needed any more. */
    capture->is_invalid = capture->is_invalid || !is_dispensable_locked(capture, stream);
    if (capture->origin == stream) {
        if (capture->owns_graph)
            graph_destroy_locked(capture->graph);
        finish_locked(capture);
        return;
    }
    for (size_t i = 0; i < capture->stream_count; i++)
        if (capture->streams[i] == stream)
            capture->streams[i] = capture->streams[--capture->stream_count];
    leave_one_locked(stream);
}

static CUresult end_locked(struct sim_stream *stream, struct sim_graph **graph)
{
    const struct engine_thread *thread = engine_thread();
    struct sim_capture *capture = stream->capture;
    CUresult result = CUDA_SUCCESS;

    if (!capture)
        return CUDA_ERROR_ILLEGAL_STATE;
    if (capture->origin != stream) {
        capture->is_invalid = true;
        return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
    }
    if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED &&
        (!thread || capture->owner != thread->serial))
        return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
    if (capture->is_invalid)
        result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    else if (has_unjoined_locked(capture))
        result = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
    if (result == CUDA_SUCCESS)
        *graph = capture->graph;
    else if (capture->owns_graph)
        graph_destroy_locked(capture->graph);
    finish_locked(capture);
    return result;
}

SIM_API_THREAD(cuStreamEndCapture, _ptsz, (CUstream handle, CUgraph *graph_handle),
               (handle, graph_handle), "%p", (void *)handle)
{
    struct sim_stream *stream;
    struct sim_graph *graph = NULL;
    CUresult result = sim_stream_resolve(handle, per_thread, &stream);
    if (result)
        return result;
    if (!graph_handle)
        return CUDA_ERROR_INVALID_VALUE;
    engine_lock();
    result = end_locked(stream, &graph);
    engine_unlock();
    *graph_handle = (CUgraph)graph;
    return result;
}

/* ---- looking ---- */

struct capture_info {
    CUstreamCaptureStatus status;
    uint64_t id;
    struct sim_graph *graph;
    struct sim_graph_node **nodes;
    const CUgraphEdgeData *edges;
    size_t count;
};

/* Every edge is a full dependency, whose data is 0. */
static const CUgraphEdgeData *edges_locked(struct sim_stream *stream)
{
    size_t bytes = stream->capture_capacity * sizeof *stream->capture_edges;
    CUgraphEdgeData *edges = bytes ? realloc(stream->capture_edges, bytes) : NULL;

    if (edges) {
        memset(edges, 0, bytes);
        stream->capture_edges = edges;
    }
    return edges;
}

static CUresult inspect(CUstream handle, bool per_thread, struct capture_info *info)
{
    struct sim_stream *stream;
    CUresult result = sim_stream_resolve(handle, per_thread, &stream);

    *info = (struct capture_info){.status = CU_STREAM_CAPTURE_STATUS_NONE};
    if (result)
        return result;
    engine_lock();
    struct sim_capture *capture = stream->capture;
    if (capture) {
        *info = (struct capture_info){capture->is_invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                                          : CU_STREAM_CAPTURE_STATUS_ACTIVE,
                                      capture->id,
                                      capture->graph,
                                      stream->capture_nodes,
                                      edges_locked(stream),
                                      stream->capture_count};
    } else if (stream->is_legacy) {
        result = check_legacy_locked(stream->context, false);
    }
    engine_unlock();
    return result;
}

SIM_API_THREAD(cuStreamIsCapturing, _ptsz, (CUstream stream, CUstreamCaptureStatus *status),
               (stream, status), "%p", (void *)stream)
{
    struct capture_info info;
    CUresult result = inspect(stream, per_thread, &info);
    if (result)
        return result;
    if (!status)
        return CUDA_ERROR_INVALID_VALUE;
    *status = info.status;
    return CUDA_SUCCESS;
}

static CUresult give_info(const struct capture_info *info, CUstreamCaptureStatus *status,
                          cuuint64_t *id, CUgraph *graph, const CUgraphNode **nodes, size_t *count)
{
    if (!status)
        return CUDA_ERROR_INVALID_VALUE;
    *status = info->status;
    if (info->status != CU_STREAM_CAPTURE_STATUS_ACTIVE)
        return CUDA_SUCCESS;
    if (id)
        *id = info->id;
    if (graph)
        *graph = (CUgraph)info->graph;
    if (nodes)
        *nodes = (const CUgraphNode *)(const void *)info->nodes;
    if (count)
        *count = info->count;
    return CUDA_SUCCESS;
}

SIM_API_THREAD(cuStreamGetCaptureInfo, _ptsz,
               (CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id),
               (stream, status, id), "%p", (void *)stream)
{
    struct capture_info info;
    CUresult result = inspect(stream, per_thread, &info);
    return result ? result : give_info(&info, status, id, NULL, NULL, NULL);
}

SIM_API_THREAD(cuStreamGetCaptureInfo_v2, _ptsz,
               (CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph,
                const CUgraphNode **nodes, size_t *count),
               (stream, status, id, graph, nodes, count), "%p", (void *)stream)
{
    struct capture_info info;
    CUresult result = inspect(stream, per_thread, &info);
    return result ? result : give_info(&info, status, id, graph, nodes, count);
}

SIM_API_THREAD(cuStreamGetCaptureInfo_v3, _ptsz,
               (CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph,
                const CUgraphNode **nodes, const CUgraphEdgeData **edges, size_t *count),
               (stream, status, id, graph, nodes, edges, count), "%p", (void *)stream)
{
    struct capture_info info;
    CUresult result = inspect(stream, per_thread, &info);
    if (result == CUDA_SUCCESS && edges && !nodes)
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS && edges && info.status == CU_STREAM_CAPTURE_STATUS_ACTIVE)
        *edges = info.edges;
    return result ? result : give_info(&info, status, id, graph, nodes, count);
}

static CUresult update(CUstream handle, bool per_thread, CUgraphNode *nodes, size_t count,
                       unsigned flags)
{
    struct sim_stream *stream;
    CUresult result = sim_stream_resolve(handle, per_thread, &stream);
    if (result)
        return result;
    if ((count && !nodes) || flags > CU_STREAM_SET_CAPTURE_DEPENDENCIES)
        return CUDA_ERROR_INVALID_VALUE;
    engine_lock();
    if (!stream->capture)
        result = CUDA_ERROR_ILLEGAL_STATE;
    else if (stream->capture->is_invalid)
        result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (result == CUDA_SUCCESS) {
        if (flags == CU_STREAM_SET_CAPTURE_DEPENDENCIES)
            stream->capture_count = 0;
        if (!stream_depend(stream, (struct sim_graph_node *const *)(void *)nodes, count))
            result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    engine_unlock();
    return result;
}

SIM_API_THREAD(cuStreamUpdateCaptureDependencies, _ptsz,
               (CUstream stream, CUgraphNode *nodes, size_t count, unsigned int flags),
               (stream, nodes, count, flags), "%p %zu %u", (void *)stream, count, flags)
{
    return update(stream, per_thread, nodes, count, flags);
}

SIM_API_THREAD(cuStreamUpdateCaptureDependencies_v2, _ptsz,
               (CUstream stream, CUgraphNode *nodes, const CUgraphEdgeData *edges, size_t count,
                unsigned int flags),
               (stream, nodes, edges, count, flags), "%p %zu %u", (void *)stream, count, flags)
{
    (void)edges;
    return update(stream, per_thread, nodes, count, flags);
}
