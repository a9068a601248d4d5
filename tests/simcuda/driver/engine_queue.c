/* Points, and the queues behind streams: what runs when.
 *
 * Each stream is a first-in first-out queue with a worker thread. An item carries the points that
 * must have passed before it runs, found when it is queued: events waited for, the context's
 * barrier, and between the legacy stream and blocking streams everything submitted earlier. Whoever
 * waits, worker or caller, sleeps on one condition that every completed item signals. */
#define _GNU_SOURCE
#include "tests/simcuda/driver/engine.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SIM_SHORT_NS 50000 /* an operation that waited for nothing */

struct sim_item {
    struct sim_item *next;
    uint64_t position;
    struct sim_op op;
    bool even_if_poisoned, takes_time;
    struct sim_points after;
};

static pthread_cond_t progress = PTHREAD_COND_INITIALIZER;
static struct engine_pool stream_pool = {.object_bytes = sizeof(struct sim_stream)};
static uint64_t next_stream_id = 1;
static __thread bool in_worker __attribute__((tls_model("initial-exec")));

bool engine_in_callback(void)
{
    return in_worker;
}

void engine_enter_callbacks(void)
{
    in_worker = true;
}

/* ---- points ---- */

static bool has_passed(struct sim_point point)
{
    return point.stream->completed >= point.position;
}

/* Drops what has passed, so that sets stay as small as the number of busy streams. */
static void points_prune(struct sim_points *points)
{
    size_t kept = 0;
    for (size_t i = 0; i < points->count; i++)
        if (!has_passed(points->items[i]))
            points->items[kept++] = points->items[i];
    points->count = kept;
}

bool points_passed_locked(const struct sim_points *points)
{
    for (size_t i = 0; i < points->count; i++)
        if (!has_passed(points->items[i]))
            return false;
    return true;
}

bool points_add(struct sim_points *points, struct sim_stream *stream, uint64_t position)
{
    if (stream->completed >= position)
        return true;
    for (size_t i = 0; i < points->count; i++)
        if (points->items[i].stream == stream) {
            if (points->items[i].position < position)
                points->items[i].position = position;
            return true;
        }
    points_prune(points);
    if (!engine_grow((void **)&points->items, &points->capacity, points->count,
                     sizeof(struct sim_point)))
        return false;
    points->items[points->count++] = (struct sim_point){stream, position};
    return true;
}

bool points_merge(struct sim_points *points, const struct sim_points *more)
{
    bool fits = true;
    for (size_t i = 0; more && i < more->count; i++)
        fits = points_add(points, more->items[i].stream, more->items[i].position) && fits;
    return fits;
}

void points_free(struct sim_points *points)
{
    free(points->items);
    *points = (struct sim_points){0};
}

bool points_wait_locked(const struct sim_points *points)
{
    while (!points_passed_locked(points)) {
        if (engine_is_down())
            return false;
        pthread_cond_wait(&progress, engine_mutex());
    }
    return true;
}

/* ---- which work waits for which ---- */

static bool is_blocking(const struct sim_stream *stream)
{
    return !stream->is_legacy && !(stream->flags & CU_STREAM_NON_BLOCKING);
}

/* The legacy stream waits for all blocking streams and they wait for it. */
static bool add_legacy_rules(struct sim_stream *stream, struct sim_points *points)
{
    struct sim_engine_context *engine = stream->context->engine;
    bool fits = true;

    if (stream->is_legacy) {
        for (struct sim_stream *other = engine->streams; other; other = other->next)
            if (is_blocking(other))
                fits = points_add(points, other, other->submitted) && fits;
    } else if (is_blocking(stream) && engine->legacy) {
        fits = points_add(points, engine->legacy, engine->legacy->submitted);
    }
    return fits;
}

bool stream_points_locked(struct sim_stream *stream, struct sim_points *points)
{
    bool fits = points_add(points, stream, stream->submitted);
    return stream->is_legacy ? add_legacy_rules(stream, points) && fits : fits;
}

bool stream_known_locked(struct sim_stream *stream, struct sim_points *points)
{
    return points_merge(points, &stream->known) && add_legacy_rules(stream, points) &&
           points_add(points, stream, stream->submitted);
}

bool context_points_locked(struct sim_context *context, struct sim_points *points)
{
    bool fits = true;
    for (struct sim_context *part = context; part; part = green_next_locked(context, part))
        for (struct sim_stream *stream = part->engine->streams; stream; stream = stream->next)
            fits = points_add(points, stream, stream->submitted) && fits;
    return fits;
}

/* ---- the worker ---- */

void stream_spend_us(uint64_t us)
{
    struct timespec pause = {(time_t)(us / 1000000), (long)(us % 1000000) * 1000};
    if (us)
        while (nanosleep(&pause, &pause) && errno == EINTR)
            ;
}

void stream_take_time(void)
{
    stream_spend_us(sim_settings()->work_us);
}

/* Nothing of a context runs once an error has stuck to it, but the program's stream callbacks do.
 */
static void run_item(struct sim_context *context, struct sim_item *item)
{
    const uint64_t begin_ns = engine_now_ns();

    if (item->takes_time)
        stream_take_time();
    if (item->op.run && (item->even_if_poisoned || sim_sticky(context) == CUDA_SUCCESS)) {
        CUresult result = item->op.run(context, item->op.argument);
        if (result)
            sim_poison(context, result);
    }
    if (item->op.release)
        item->op.release(item->op.argument);
    sim_link_end_item(!item->takes_time && engine_now_ns() - begin_ns < SIM_SHORT_NS);
}

/* The next item, its dependencies met; NULL when the stream or the process ends. */
static struct sim_item *next_item_locked(struct sim_stream *stream)
{
    while (!stream->head && !stream->is_closing)
        pthread_cond_wait(&stream->wake, engine_mutex());
    struct sim_item *item = stream->head;
    if (item && !points_passed_locked(&item->after))
        sim_link_break();
    if (!item || !points_wait_locked(&item->after))
        return NULL;
    stream->head = item->next;
    return item;
}

static void unlink_locked(const struct sim_stream *stream)
{
    struct sim_stream **link = &stream->context->engine->streams;
    while (*link && *link != stream)
        link = &(*link)->next;
    if (*link)
        *link = stream->next;
}

/* The last of a closed stream: nothing is queued, nobody can name it. Until now its context's
 * synchronisations and its legacy stream waited for what it still ran. */
static void destroy_stream(struct sim_stream *stream)
{
    sim_memory_drop_stream(stream);
    engine_lock();
    unlink_locked(stream);
    engine_pool_give(&stream_pool, stream);
    pthread_cond_broadcast(&progress);
    engine_unlock();
}

static void *work(void *argument)
{
    struct sim_stream *stream = argument;
    struct sim_item *item;

    in_worker = true;
    engine_lock();
    while ((item = next_item_locked(stream))) {
        engine_unlock();
        if (!engine_is_down())
            run_item(stream->context, item);
        points_free(&item->after);
        engine_lock();
        stream->completed = item->position;
        pthread_cond_broadcast(&progress);
        free(item);
    }
    engine_unlock();
    if (!engine_is_down())
        destroy_stream(stream);
    return NULL;
}

static bool start_worker_locked(struct sim_stream *stream)
{
    pthread_attr_t attributes;
    pthread_t thread;
    sigset_t all, before;

    if (stream->has_worker)
        return true;
    if (pthread_attr_init(&attributes))
        return false;
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    sigfillset(&all); /* the program's signals belong to its own threads */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    stream->has_worker = pthread_create(&thread, &attributes, work, stream) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return stream->has_worker;
}

CUresult stream_queue_locked(struct sim_stream *stream, const struct stream_work *request)
{
    struct sim_item *item;

    /* Another thread destroyed the context, or the stream, since the call looked it up. */
    if (stream->magic != SIM_MAGIC_STREAM || stream->context->engine == NULL)
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    item = calloc(1, sizeof *item);
    if (!item)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (!points_merge(&item->after, &stream->context->engine->barrier) ||
        !points_merge(&item->after, request->after) || !add_legacy_rules(stream, &item->after) ||
        !start_worker_locked(stream)) {
        points_free(&item->after);
        free(item);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    item->op = request->op;
    item->even_if_poisoned = request->even_if_poisoned;
    item->takes_time = !request->op.is_instant;
    item->position = ++stream->submitted;
    if (request->position)
        *request->position = item->position;
    if (stream->head)
        stream->tail->next = item;
    else
        stream->head = item;
    stream->tail = item;
    pthread_cond_signal(&stream->wake);
    return CUDA_SUCCESS;
}

/* ---- the life of a queue ---- */

struct sim_stream *stream_create_locked(struct sim_context *context, unsigned flags, int priority)
{
    struct sim_stream *stream = engine_pool_take(&stream_pool);
    if (!stream)
        return NULL;
    /* Positions go on where they were, and the array of known points is kept. */
    struct sim_stream fresh = {.magic = SIM_MAGIC_STREAM,
                               .context = context,
                               .next = context->engine->streams,
                               .flags = flags,
                               .priority = priority,
                               .id = next_stream_id++,
                               .submitted = stream->submitted,
                               .completed = stream->completed,
                               .known = stream->known,
                               .wake = PTHREAD_COND_INITIALIZER,
                               .capture_nodes = stream->capture_nodes,
                               .capture_capacity = stream->capture_capacity,
                               .capture_edges = stream->capture_edges};
    *stream = fresh;
    stream->known.count = 0;
    context->engine->streams = stream;
    return stream;
}

void stream_close(struct sim_stream *stream)
{
    engine_lock();
    capture_leave_locked(stream);
    stream->magic = SIM_MAGIC_DEAD;
    stream->is_closing = true;
    bool has_worker = stream->has_worker;
    if (has_worker)
        pthread_cond_signal(&stream->wake);
    engine_unlock();
    if (!has_worker)
        destroy_stream(stream);
}

/* Operations that wait for the program end by themselves, as the context is marked destroyed. */
void context_stop_streams(struct sim_context *context)
{
    struct sim_points points = {0};

    engine_lock();
    capture_invalidate_context_locked(context);
    context_points_locked(context, &points);
    points_wait_locked(&points);
    points_free(&points);
    while (context->engine->streams && !engine_is_down()) {
        struct sim_stream *stream = context->engine->streams;
        while (stream && stream->is_closing)
            stream = stream->next;
        if (!stream) {
            pthread_cond_wait(&progress, engine_mutex());
            continue;
        }
        engine_unlock();
        stream_close(stream);
        engine_lock();
    }
    context->engine->legacy = NULL;
    engine_unlock();
}

/* ---- what the memory part asks ---- */

CUresult sim_context_wait(struct sim_context *context)
{
    struct sim_points points = {0};

    engine_lock();
    if (context->engine == NULL) { /* destroyed since it was looked up */
        engine_unlock();
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    }
    bool fits = context_points_locked(context, &points);
    points_wait_locked(&points);
    engine_unlock();
    points_free(&points);
    return fits ? sim_sticky(context) : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult sim_stream_wait(struct sim_stream *stream)
{
    struct sim_points points = {0};

    engine_lock();
    CUresult result = capture_check_sync_locked(stream->context, stream);
    if (result == CUDA_SUCCESS) {
        result = stream_points_locked(stream, &points) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
        points_wait_locked(&points);
    }
    engine_unlock();
    points_free(&points);
    return result ? result : sim_sticky(stream->context);
}

void sim_stream_note_synchronous(struct sim_stream *stream)
{
    engine_lock();
    struct sim_engine_context *engine = sim_context_root(stream->context)->engine;
    if (engine)
        points_add(&engine->synchronous, stream, stream->submitted);
    engine_unlock();
}

void sim_context_wait_synchronous(struct sim_context *context)
{
    struct sim_points points = {0};

    engine_lock();
    struct sim_engine_context *engine = sim_context_root(context)->engine;
    if (engine && points_merge(&points, &engine->synchronous))
        points_wait_locked(&points);
    engine_unlock();
    points_free(&points);
}

bool sim_stream_is_idle(struct sim_stream *stream)
{
    struct sim_points points = {0};

    engine_lock();
    bool is_idle = stream_points_locked(stream, &points) && points_passed_locked(&points);
    engine_unlock();
    points_free(&points);
    return is_idle;
}

bool stream_is_clear_locked(struct sim_stream *stream)
{
    struct sim_points before = {0};
    bool is_clear = stream_known_locked(stream, &before) &&
                    points_merge(&before, &stream->context->engine->barrier) &&
                    points_passed_locked(&before);
    points_free(&before);
    return is_clear;
}

CUresult sim_stream_mark(struct sim_stream *stream, uint64_t *position)
{
    engine_lock();
    CUresult result = capture_check_use_locked(stream);
    if (result == CUDA_SUCCESS && stream_is_clear_locked(stream))
        *position = stream->submitted; /* it would be done at once */
    else if (result == CUDA_SUCCESS)
        result = stream_queue_locked(
            stream, &(struct stream_work){.op = {.is_instant = true}, .position = position});
    engine_unlock();
    return result;
}

bool sim_stream_has_passed(struct sim_stream *stream, uint64_t position)
{
    engine_lock();
    bool passed = stream->completed >= position;
    engine_unlock();
    return passed;
}

static bool points_cover(const struct sim_points *points, struct sim_point point)
{
    for (size_t i = 0; i < points->count; i++)
        if (points->items[i].stream == point.stream && points->items[i].position >= point.position)
            return true;
    return false;
}

bool sim_stream_is_ordered(struct sim_stream *earlier, uint64_t position, struct sim_stream *later)
{
    struct sim_point point = {earlier, position};

    engine_lock();
    bool ordered = earlier == later || has_passed(point) || points_cover(&later->known, point) ||
                   points_cover(&later->context->engine->barrier, point);
    if (!ordered && earlier->context == later->context)
        ordered = (later->is_legacy && is_blocking(earlier)) ||
                  (earlier->is_legacy && is_blocking(later));
    engine_unlock();
    return ordered;
}
