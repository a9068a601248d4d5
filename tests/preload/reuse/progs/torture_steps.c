/* Which step comes next. */
#include "torture.h"

static struct block *some_slot(struct worker *worker)
{
    return worker->slots[pick(worker, SLOTS)];
}

/* A block that is there; the slot is filled first where there is none. */
static struct block *some_live(struct worker *worker)
{
    const unsigned first = (unsigned)pick(worker, SLOTS);

    for (unsigned i = 0; i < SLOTS; i++)
        if (worker->slots[(first + i) % SLOTS]->address != 0)
            return worker->slots[(first + i) % SLOTS];
    return NULL;
}

static unsigned lane_for(struct worker *worker, const struct block *block, unsigned ways)
{
    const unsigned context = some_context(worker);

    return some_lane(worker, may_touch(worker, block, context, ways) ? context : block->context);
}

/* The first work on a block that was just allocated. */
static void begin_block(struct worker *worker, struct block *block)
{
    struct effect effect;

    if (with(worker, WITH_exported) && chance(worker, 15) && !worker->is_holding) /* it may wait */
        export_block(worker, block);
    if (!block->is_written) {
        const unsigned lane = lane_for(worker, block, TO_FILL);
        fill_whole(worker, block, &effect);
        queue(worker, lane, &effect);
    }
}

static void take_step(struct worker *worker)
{
    struct block *block = some_slot(worker);

    if (block->address == 0 && take_block(worker, block))
        begin_block(worker, block);
}

static void give_step(struct worker *worker)
{
    struct block *block = some_live(worker);

    if (block == NULL || (worker->is_holding && !with(worker, WITH_mixed) &&
                          block->how != BY_STREAM && block->how != BY_POOL))
        return;
    if (chance(worker, 75))
        check_block(worker, lane_for(worker, block, TO_READ), block);
    give_block(worker, block);
}

/* Freed behind its last work, whatever that was, and taken again at once. */
static void renew(struct worker *worker, struct block *block)
{
    give_block(worker, block);
    if (take_again(worker, block))
        begin_block(worker, block);
}

static void renew_step(struct worker *worker)
{
    const unsigned lane = some_lane(worker, some_context(worker));
    struct effect effect;

    if (!choose_effect(worker, context_of(lane), &effect))
        return;
    queue(worker, lane, &effect);
    renew(worker, effect.from != NULL && chance(worker, 30) ? effect.from : effect.to);
}

static void launch_step(struct worker *worker)
{
    struct block *block = launch_graph(worker);

    if (block != NULL && !worker->is_holding && chance(worker, 30))
        renew(worker, block);
}

static void work_step(struct worker *worker)
{
    const unsigned lane = some_lane(worker, some_context(worker));
    struct effect effect;

    if (choose_effect(worker, context_of(lane), &effect))
        queue(worker, lane, &effect);
}

static void check_step(struct worker *worker)
{
    struct block *block = some_live(worker);

    if (block != NULL && block->is_written)
        check_block(worker, lane_for(worker, block, TO_READ), block);
}

static void wait_step(struct worker *worker)
{
    struct block *block = some_live(worker);

    if (chance(worker, 30))
        wait_for_context(worker, some_context(worker));
    else if (chance(worker, 50) && worker->check_count > 0)
        end_check(worker);
    else if (block != NULL)
        wait_for_block(worker, block);
}

static void passing_step(struct worker *worker)
{
    const unsigned context = some_context(worker);

    if (worker->lanes[context * STREAMS + PASSING].is_open)
        close_passing(worker, context);
    else
        open_passing(worker, context);
}

static void do_nothing(void *argument)
{
    (void)argument;
}

static void host_step(struct worker *worker)
{
    const unsigned lane = some_lane(worker, some_context(worker));
    const struct calls *calls = some_calls(worker);

    enter(worker, context_of(lane));
    CHECK(calls->call_host(stream_of(worker, lane, calls), do_nothing, NULL));
    add_work(worker, lane);
}

static void trim_step(struct worker *worker)
{
    const struct world *world = worker->world;
    CUmemoryPool pool =
        world->pools[1] != NULL && chance(worker, 50) ? world->pools[1] : world->pools[0];
    CHECK(cuMemPoolTrimTo(pool, chance(worker, 50) ? 0 : 4u << 20));
}

static void export_step(struct worker *worker)
{
    struct block *block = some_live(worker);

    if (block != NULL)
        export_block(worker, block);
}

static void handle_step(struct worker *worker)
{
    struct block *block = some_live(worker);

    if (block != NULL)
        ask_for_handle(worker, block);
}

static const struct step {
    const char *name;
    void (*run)(struct worker *worker);
    enum aspect aspect; /* ASPECTS: always */
    unsigned weight;
    bool may_wait; /* not while a stream is held */
} steps[] = {
    {"take", take_step, ASPECTS, 30, false},
    {"give", give_step, ASPECTS, 16, false},
    {"renew", renew_step, ASPECTS, 14, true},
    {"work", work_step, ASPECTS, 40, false},
    {"check", check_step, ASPECTS, 8, false},
    {"wait", wait_step, WITH_synchronous, 2, true},
    {"passing", passing_step, WITH_passing, 5, false},
    {"host", host_step, WITH_host, 3, false},
    {"hold", hold_some_stream, WITH_held, 2, true},
    {"trim", trim_step, WITH_trim, 1, false},
    {"export", export_step, WITH_exported, 1, true},
    {"handle", handle_step, WITH_handles, 1, true},
    {"build", build_graph, WITH_graphs, 4, true},
    {"capture", capture_graph, WITH_captures, 3, true},
    {"change", change_graph, WITH_changes, 4, true},
    {"launch", launch_step, ASPECTS, 12, false},
};

void do_step(struct worker *worker)
{
    unsigned total = 0;

    if (worker->is_holding && worker->step >= worker->hold_end)
        release_hold(worker);
    for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++)
        if (steps[i].aspect == ASPECTS || with(worker, steps[i].aspect))
            total += steps[i].weight;
    uint64_t choice = pick(worker, total);
    for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
        const struct step *step = &steps[i];
        if (step->aspect != ASPECTS && !with(worker, step->aspect))
            continue;
        if (choice >= step->weight) {
            choice -= step->weight;
            continue;
        }
        if (worker->is_holding && step->may_wait)
            return;
        atomic_store(&worker->doing, step->name);
        step->run(worker);
        return;
    }
}
