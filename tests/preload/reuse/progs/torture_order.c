/* The order of work that the program may rely on. Each thread keeps a vector clock for each stream
 * (Fidge and Mattern), of its own work alone: what others queue there only adds to the order.
 *
 * CUDA's rules that are used: a stream is in order; the legacy stream of a context comes behind
 * earlier and before later work of the context's blocking streams; an event orders what waits for
 * it behind what was in its stream; what the host waited for is done. */
#include "torture.h"

#include <sched.h>

static void join(struct clock *clock, const struct clock *other)
{
    for (unsigned i = 0; i < LANES; i++)
        if (clock->at[i] < other->at[i])
            clock->at[i] = other->at[i];
}

/* The work behind which further work on the lane comes. */
static struct clock clock_of(const struct worker *worker, unsigned lane)
{
    const unsigned first = context_of(lane) * STREAMS;
    struct clock clock = worker->lanes[lane].next;

    join(&clock, &worker->host);
    if (lane % STREAMS == LEGACY) {
        for (unsigned i = first; i < first + STREAMS; i++)
            if (worker->lanes[i].is_blocking)
                join(&clock, &worker->lanes[i].tail);
    } else if (worker->lanes[lane].is_blocking) {
        join(&clock, &worker->lanes[first + LEGACY].tail);
    }
    return clock;
}

struct access add_work(struct worker *worker, unsigned lane)
{
    struct lane *own = &worker->lanes[lane];
    struct clock clock = clock_of(worker, lane);

    own->count++;
    clock.at[lane] = own->count;
    own->next = own->tail = clock;
    atomic_fetch_add_explicit(&worker->world->work, 1, memory_order_relaxed);
    return (struct access){lane, own->count};
}

CUstream stream_of(struct worker *worker, unsigned lane, const struct calls *calls)
{
    const bool means_thread = calls == &thread_calls;

    switch (lane % STREAMS) {
    case LEGACY:
        return means_thread || chance(worker, 30) ? CU_STREAM_LEGACY : NULL;
    case PER_THREAD:
        return !means_thread || chance(worker, 30) ? CU_STREAM_PER_THREAD : NULL;
    default:
        return worker->lanes[lane].stream;
    }
}

bool may_use_lane(const struct worker *worker, unsigned lane)
{
    const struct lane *own = &worker->lanes[lane];

    if (!own->is_open)
        return false;
    switch (lane % STREAMS) {
    case LEGACY:
        return with(worker, WITH_legacy) || !with(worker, WITH_streams);
    case PER_THREAD:
        return with(worker, WITH_thread);
    case BLOCKING:
    case NON_BLOCKING:
        return with(worker, WITH_shared);
    case PASSING:
        return true;
    default:
        return with(worker, WITH_streams);
    }
}

unsigned some_lane(struct worker *worker, unsigned context)
{
    const unsigned first = (unsigned)pick(worker, STREAMS);

    for (unsigned i = 0; i < STREAMS; i++) {
        const unsigned lane = context * STREAMS + (first + i) % STREAMS;
        if (may_use_lane(worker, lane))
            return lane;
    }
    return context * STREAMS + LEGACY;
}

/* ---- events ---- */

CUevent record_on(struct worker *worker, unsigned lane)
{
    const unsigned context = context_of(lane);
    CUevent *event = &worker->events[context][worker->next_event[context]++ % EVENTS];
    const struct calls *calls = some_calls(worker);

    enter(worker, context);
    if (*event == NULL)
        CHECK(cuEventCreate(event, CU_EVENT_DISABLE_TIMING));
    CHECK(calls->record(*event, stream_of(worker, lane, calls)));
    return *event;
}

void wait_on(struct worker *worker, unsigned lane, CUevent event)
{
    const struct calls *calls = some_calls(worker);

    enter(worker, context_of(lane));
    CHECK(calls->wait(stream_of(worker, lane, calls), event));
}

bool is_done(const struct worker *worker, struct access access)
{
    return worker->host.at[access.lane] >= access.at;
}

void order_access(struct worker *worker, unsigned lane, struct access access)
{
    const struct lane *before = &worker->lanes[access.lane];
    const struct clock clock = clock_of(worker, lane);

    if (clock.at[access.lane] >= access.at)
        return;
    if (!worker->is_holding && chance(worker, 15)) {
        wait_for(worker, access);
        return;
    }
    const bool is_gone = !before->is_open;
    wait_on(worker, lane, is_gone ? before->last : record_on(worker, access.lane));
    join(&worker->lanes[lane].next, &before->tail);
}

void order_read(struct worker *worker, unsigned lane, const struct block *block)
{
    order_access(worker, lane, block->write);
}

void order_write(struct worker *worker, unsigned lane, const struct block *block)
{
    order_access(worker, lane, block->write);
    for (unsigned i = 0; i < block->read_count; i++)
        order_access(worker, lane, block->reads[i]);
}

void note_read(struct worker *worker, struct block *block, struct access access)
{
    if (block->read_count == READS) { /* the last to be read stands for the others */
        for (unsigned i = 0; i < READS; i++)
            wait_for(worker, block->reads[i]);
        block->read_count = 0;
    }
    block->reads[block->read_count++] = access;
}

void note_write(struct block *block, struct access access)
{
    block->write = access;
    block->read_count = 0;
}

/* ---- the host waits ---- */

/* An event that is recorded now, or the stream itself; what was queued there is done then. */
void wait_for(struct worker *worker, struct access access)
{
    struct lane *lane = &worker->lanes[access.lane];

    if (is_done(worker, access))
        return;
    release_hold(worker);
    if (!lane->is_open) {
        CHECK(cuEventSynchronize(lane->last));
    } else if (chance(worker, 50)) {
        CHECK(cuEventSynchronize(record_on(worker, access.lane)));
    } else {
        const struct calls *calls = some_calls(worker);
        enter(worker, context_of(access.lane));
        CHECK(calls->synchronize(stream_of(worker, access.lane, calls)));
    }
    join(&worker->host, &lane->tail);
}

void wait_for_block(struct worker *worker, const struct block *block)
{
    wait_for(worker, block->write);
    for (unsigned i = 0; i < block->read_count; i++)
        wait_for(worker, block->reads[i]);
}

unsigned waited_with(const struct world *world, unsigned context)
{
    for (unsigned i = 0; i < CONTEXTS; i++)
        if (world->contexts[context].green != NULL && world->contexts[i].is_primary &&
            world->contexts[i].device == world->contexts[context].device)
            return i;
    return context;
}

void wait_for_context(struct worker *worker, unsigned context)
{
    pthread_rwlock_t *captures = &worker->world->captures[waited_with(worker->world, context)];

    release_hold(worker);
    enter(worker, context);
    pthread_rwlock_wrlock(captures);
    CHECK(cuCtxSynchronize());
    pthread_rwlock_unlock(captures);
    for (unsigned i = context * STREAMS; i < (context + 1) * STREAMS; i++)
        join(&worker->host, &worker->lanes[i].tail);
}

/* ---- streams that come and go ---- */

void open_passing(struct worker *worker, unsigned context)
{
    struct lane *lane = &worker->lanes[context * STREAMS + PASSING];
    const bool is_ordered = chance(worker, 50);

    if (lane->last != NULL && !is_ordered)
        wait_for(worker, (struct access){context * STREAMS + PASSING, lane->count});
    enter(worker, context);
    CHECK(cuStreamCreate(&lane->stream, CU_STREAM_NON_BLOCKING));
    lane->is_open = true;
    if (lane->last != NULL && is_ordered)
        wait_on(worker, context * STREAMS + PASSING, lane->last);
    else
        lane->next = lane->tail = worker->host;
}

/* Destroyed while it works: its work goes on. */
void close_passing(struct worker *worker, unsigned context)
{
    struct lane *lane = &worker->lanes[context * STREAMS + PASSING];

    enter(worker, context);
    if (lane->last == NULL)
        CHECK(cuEventCreate(&lane->last, CU_EVENT_DISABLE_TIMING));
    CHECK(cuEventRecord(lane->last, lane->stream));
    CHECK(cuStreamDestroy(lane->stream));
    lane->is_open = false;
}

/* ---- streams that the host holds up ---- */

static void wait_for_flag(void *argument)
{
    const struct hold *hold = argument;

    while (__atomic_load_n(hold->flag, __ATOMIC_ACQUIRE) < hold->value)
        sched_yield();
}

void hold_some_stream(struct worker *worker)
{
    const unsigned lane = some_lane(worker, some_context(worker));
    const struct calls *calls = some_calls(worker);
    struct hold *hold = &worker->holds[++worker->flag_value % 64];

    *hold = (struct hold){worker->flag, worker->flag_value};
    enter(worker, context_of(lane));
    if (with(worker, WITH_host) && chance(worker, 50))
        CHECK(calls->call_host(stream_of(worker, lane, calls), wait_for_flag, hold));
    else
        CHECK(
            calls->hold(stream_of(worker, lane, calls), worker->flag_address, worker->flag_value));
    add_work(worker, lane);
    worker->is_holding = true;
    worker->hold_end = worker->step + 2 + pick(worker, 12);
}

void release_hold(struct worker *worker)
{
    if (!worker->is_holding)
        return;
    __atomic_store_n(worker->flag, worker->flag_value, __ATOMIC_RELEASE);
    worker->is_holding = false;
}
