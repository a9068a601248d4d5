#include "tools/plan/plan_threads.h"

#include "core/base/bits.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define SHARES_MAX 4 /* search orders; further threads differ by their seed */

struct shared {
    const struct gc_placement_problem *problem;
    const struct gc_placement_options *options;
    atomic_bool done;     /* relaxed: a late read costs a few search steps */
    pthread_mutex_t lock; /* guards the fields below and calls of the watch */
    uint64_t bound_bytes;
    uint64_t peak_bytes;
    uint64_t nodes;
};

struct worker {
    struct shared *shared;
    struct gc_region region;
    struct gc_placement_options options;
    struct gc_placement placement;
    enum gc_status status;
    pthread_t thread;
    uint64_t nodes; /* reported so far */
};

static bool is_enough(const struct gc_placement_problem *problem,
                      const struct gc_placement *placement)
{
    return placement->optimal ||
           (problem->capacity_bytes != GC_PLACEMENT_UNLIMITED && placement->fits);
}

/* Reports the best of all threads to the caller's watch. */
static bool watch(void *argument, uint64_t bound_bytes, uint64_t peak_bytes, uint64_t nodes)
{
    struct worker *worker = argument;
    struct shared *shared = worker->shared;
    const struct gc_placement_options *options = shared->options;
    if (atomic_load_explicit(&shared->done, memory_order_relaxed))
        return false;
    pthread_mutex_lock(&shared->lock);
    shared->bound_bytes = gc_max_u64(shared->bound_bytes, bound_bytes);
    shared->peak_bytes = gc_min_u64(shared->peak_bytes, peak_bytes);
    shared->nodes += nodes - worker->nodes;
    worker->nodes = nodes;
    /* One thread has a peak equal to another's lower bound: a proof. */
    bool go_on = shared->bound_bytes < shared->peak_bytes;
    if (go_on && options->watch != NULL)
        go_on = options->watch(options->watch_argument, shared->bound_bytes, shared->peak_bytes,
                               shared->nodes);
    pthread_mutex_unlock(&shared->lock);
    if (!go_on)
        atomic_store_explicit(&shared->done, true, memory_order_relaxed);
    return go_on;
}

static void *work(void *argument)
{
    struct worker *worker = argument;
    struct shared *shared = worker->shared;
    worker->status =
        gc_solve_placement(&worker->region, shared->problem, &worker->options, &worker->placement);
    if (worker->status == GC_OK && is_enough(shared->problem, &worker->placement))
        atomic_store_explicit(&shared->done, true, memory_order_relaxed);
    return NULL;
}

/* The best plan, the highest bound and the sum of all steps; the first thread's status if there is
 * no plan. */
static enum gc_status choose(struct gc_region *region, const struct worker *workers,
                             unsigned threads, const struct gc_placement_problem *problem,
                             struct gc_placement *placement)
{
    const struct worker *best = NULL;
    uint64_t bound_bytes = 0;
    uint64_t nodes = 0;
    for (unsigned i = 0; i < threads; i++) {
        const struct worker *worker = &workers[i];
        if (worker->status != GC_OK)
            continue;
        bound_bytes = gc_max_u64(bound_bytes, worker->placement.lower_bound_bytes);
        nodes += worker->placement.nodes;
        if (best == NULL || worker->placement.peak_bytes < best->placement.peak_bytes)
            best = worker;
    }
    if (best == NULL)
        return workers[0].status;
    *placement = best->placement;
    placement->lower_bound_bytes = bound_bytes;
    placement->optimal = placement->peak_bytes == bound_bytes;
    placement->nodes = nodes;
    placement->offsets = gc_region_alloc(region, problem->count * sizeof(uint64_t));
    if (placement->offsets == NULL)
        return GC_NO_HOST_MEMORY;
    if (problem->count > 0)
        memcpy(placement->offsets, best->placement.offsets, problem->count * sizeof(uint64_t));
    return GC_OK;
}

enum gc_status plan_threads_solve(struct gc_region *region,
                                  const struct gc_placement_problem *problem,
                                  const struct gc_placement_options *options, unsigned threads,
                                  struct gc_placement *placement)
{
    static const struct gc_placement_options defaults;
    struct shared shared = {.problem = problem,
                            .options = options != NULL ? options : &defaults,
                            .lock = PTHREAD_MUTEX_INITIALIZER,
                            .peak_bytes = UINT64_MAX};
    struct worker workers[PLAN_THREADS_MAX] = {0};
    unsigned started = 1;
    if (threads <= 1)
        return gc_solve_placement(region, problem, options, placement);
    threads = threads > PLAN_THREADS_MAX ? PLAN_THREADS_MAX : threads;
    const uint64_t bytes_max =
        gc_sub_or_zero_u64(region->bytes_max, gc_region_bytes(region)) / threads;
    for (unsigned i = 0; i < threads; i++) {
        workers[i] = (struct worker){.shared = &shared, .options = *shared.options};
        workers[i].options.seed += i;
        workers[i].options.share_count = threads < SHARES_MAX ? threads : SHARES_MAX;
        workers[i].options.share_index = i % workers[i].options.share_count;
        workers[i].options.watch = watch;
        workers[i].options.watch_argument = &workers[i];
        gc_region_init(&workers[i].region, bytes_max);
    }
    /* Starts as many threads as possible, besides this one. */
    while (started < threads &&
           pthread_create(&workers[started].thread, NULL, work, &workers[started]) == 0)
        started++;
    work(&workers[0]);
    for (unsigned i = 1; i < started; i++)
        pthread_join(workers[i].thread, NULL);
    const enum gc_status status = choose(region, workers, started, problem, placement);
    for (unsigned i = 0; i < threads; i++)
        gc_region_fini(&workers[i].region);
    return status;
}
