/* Core from many threads: against a limit, across contexts, with captures, trims, look-ups and a
 * context that is dropped and comes back. Clean under the thread sanitizer. Eight threads, about a
 * second. */
#include "core/base/bits.h"
#include "core/device/registry.h"
#include "tests/unit/cmocka_all.h"
#include "tests/unit/workbench.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define THREADS 8
#define ROUNDS 6000
#define HELD_MAX 12

struct team {
    struct workbench bench;
    atomic_uint unexpected; /* statuses that must not be */
    atomic_uint served;
    atomic_uint short_of_memory;
    /* One slot each: a block allocated by one thread that any other may free. */
    _Atomic uint64_t shared[16];
};

struct worker {
    struct team *team;
    pthread_t thread;
    struct gc_tcache *cache; /* only the pool's hits use it */
    unsigned seed;
    pthread_barrier_t *all_done; /* whoever is ready first keeps its blocks, so memory is short */
    uint64_t held[HELD_MAX];
    unsigned count;
};

static uint64_t draw_bytes(struct worker *worker)
{
    return (uint64_t)rand_r(&worker->seed) %
               (rand_r(&worker->seed) % 4 == 0 ? GC_MIB(6) : GC_KIB(64)) +
           1;
}

static void expect(struct team *team, enum gc_status status, enum gc_status expected)
{
    if (status != expected)
        atomic_fetch_add(&team->unexpected, 1);
}

static void worker_free(struct worker *worker, uint64_t address)
{
    struct gc_core *core = worker->team->bench.core;
    int code;
    if (!gc_tcache_free_to_pool(core, worker->cache, address))
        expect(worker->team, gc_free(core, address, API_OTHER, &code), GC_OK);
}

static void worker_alloc(struct worker *worker)
{
    struct team *team = worker->team;
    struct workbench *bench = &team->bench;
    const unsigned context = (unsigned)rand_r(&worker->seed) % 2;
    const struct gc_request request = {.bytes = draw_bytes(worker),
                                       .is_dedicated = rand_r(&worker->seed) % 50 == 0};
    uint64_t address = GC_ADDRESS_NONE;
    int code;
    if (!request.is_dedicated)
        address = gc_tcache_alloc_from_pool(worker->cache, bench->contexts[context], request.bytes,
                                            request.api);
    const enum gc_status status =
        address != GC_ADDRESS_NONE
            ? GC_OK
            : gc_alloc(bench->core, bench->contexts[context], &request, &address, &code);
    if (status == GC_OUT_OF_MEMORY) {
        atomic_fetch_add(&team->short_of_memory, 1);
        return;
    }
    expect(team, status, GC_OK);
    if (status != GC_OK)
        return;
    atomic_fetch_add(&team->served, 1);
    sim_driver_expect_idle(&bench->sim, address, request.bytes);
    sim_driver_submit(&bench->sim, context + 1, address, request.bytes);
    if (rand_r(&worker->seed) % 3 == 0)
        address = atomic_exchange(&team->shared[(unsigned)rand_r(&worker->seed) % 16], address);
    if (address == 0)
        return;
    if (worker->count == HELD_MAX)
        worker_free(worker, address);
    else
        worker->held[worker->count++] = address;
}

static void worker_look(struct worker *worker)
{
    struct gc_block_info info;
    if (worker->count == 0)
        return;
    const uint64_t address = worker->held[(unsigned)rand_r(&worker->seed) % worker->count];
    expect(worker->team, gc_lookup_block(worker->team->bench.core, address, &info), GC_OK);
    if (info.address != address)
        atomic_fetch_add(&worker->team->unexpected, 1);
    /* Addresses of others come and go; any answer but a crash will do. */
    (void)!gc_lookup_block(worker->team->bench.core, address + GC_MIB(1), &info);
}

static void *work(void *argument)
{
    struct worker *worker = argument;
    worker->cache = gc_tcache_create(worker->team->bench.core);
    for (unsigned i = 0; i < ROUNDS; i++) {
        const int kind = rand_r(&worker->seed) % 100;
        if (kind < 50)
            worker_alloc(worker);
        else if (kind < 90 && worker->count > 0)
            worker_free(worker, worker->held[--worker->count]);
        else if (kind < 98)
            worker_look(worker);
        else if (kind < 99)
            gc_reclaim_trim(worker->team->bench.core, worker->team->bench.device, GC_MIB(8));
        else
            (void)workbench_figures(&worker->team->bench);
    }
    pthread_barrier_wait(worker->all_done);
    while (worker->count > 0)
        worker_free(worker, worker->held[--worker->count]);
    gc_tcache_destroy(worker->team->bench.core, worker->cache);
    return NULL;
}

static void run_team(struct team *team, struct worker *workers)
{
    pthread_barrier_t all_done;
    pthread_barrier_init(&all_done, NULL, THREADS);
    for (unsigned i = 0; i < THREADS; i++) {
        workers[i] = (struct worker){.team = team, .seed = i + 1, .all_done = &all_done};
        assert_int_equal(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
    }
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(workers[i].thread, NULL);
    pthread_barrier_destroy(&all_done);
}

static void run_threads_share_a_limit(bool has_mapping)
{
    const uint64_t limit = has_mapping ? GC_MIB(12) : GC_MIB(48); /* less is wasted */
    const struct workbench_setup setup = {.mode = GC_MODE_CACHE,
                                          .capacity_bytes = GC_MIB(512),
                                          .limit_bytes = limit,
                                          .trim_percent = 50,
                                          .has_mapping = has_mapping};
    static struct team team;
    static struct worker workers[THREADS];
    memset(&team, 0, sizeof(team));
    workbench_open(&team.bench, &setup);
    run_team(&team, workers);
    for (unsigned i = 0; i < 16; i++) {
        if (team.shared[i] != 0)
            workbench_free(&team.bench, team.shared[i]);
    }
    assert_int_equal(team.unexpected, 0);
    assert_true(team.served > 1000);
    assert_true(team.short_of_memory > 0);
    const struct gc_device_snapshot figures = workbench_figures(&team.bench);
    assert_int_equal(figures.requested.current, 0);
    assert_int_equal(figures.allocated.current, 0);
    assert_int_equal(figures.oom_count, team.short_of_memory);
    assert_true(figures.reserved.peak <= limit);
    assert_true(team.bench.sim.peak_bytes <= limit);
    gc_reclaim_trim(team.bench.core, team.bench.device, 0);
    assert_int_equal(workbench_figures(&team.bench).reserved.current, 0);
    workbench_close(&team.bench);
}

static void threads_share_a_limit(void **state)
{
    (void)state;
    run_threads_share_a_limit(false);
    run_threads_share_a_limit(true);
}

/* Each thread keeps at most its share, so nothing may ever fail, whatever the others have idle. */
static void *churn(void *argument)
{
    struct worker *worker = argument;
    struct workbench *bench = &worker->team->bench;
    worker->cache = gc_tcache_create(bench->core);
    for (unsigned i = 0; i < 300; i++) {
        const struct gc_request request = {
            .bytes = GC_MIB(11) + (uint64_t)(rand_r(&worker->seed) % 2) * GC_MIB(20)};
        struct gc_context *context = bench->contexts[(unsigned)rand_r(&worker->seed) % 3];
        uint64_t address;
        int code;
        const enum gc_status status = gc_alloc(bench->core, context, &request, &address, &code);
        expect(worker->team, status, GC_OK);
        if (status == GC_OK)
            worker_free(worker, address);
    }
    gc_tcache_destroy(bench->core, worker->cache);
    return NULL;
}

static void run_idle_memory_of_others_never_makes_a_request_fail(bool has_mapping)
{
    const struct workbench_setup setup = {.mode = GC_MODE_CACHE,
                                          .capacity_bytes = GC_MIB(1024),
                                          .limit_bytes = GC_MIB(2 * 32),
                                          .trim_percent = 100,
                                          .has_mapping = has_mapping};
    static struct team team;
    static struct worker workers[2];
    memset(&team, 0, sizeof(team));
    workbench_open(&team.bench, &setup);
    for (unsigned i = 0; i < 2; i++) {
        workers[i] = (struct worker){.team = &team, .seed = i + 77};
        assert_int_equal(pthread_create(&workers[i].thread, NULL, churn, &workers[i]), 0);
    }
    for (unsigned i = 0; i < 2; i++)
        pthread_join(workers[i].thread, NULL);
    assert_int_equal(team.unexpected, 0);
    assert_int_equal(workbench_figures(&team.bench).oom_count, 0);
    workbench_close(&team.bench);
}

static void idle_memory_of_others_never_makes_a_request_fail(void **state)
{
    (void)state;
    run_idle_memory_of_others_never_makes_a_request_fail(false);
    run_idle_memory_of_others_never_makes_a_request_fail(true);
}

struct capturer {
    struct workbench bench;
    atomic_bool is_over;
    atomic_bool is_capturing;
    atomic_uint torn; /* synchronisations inside a capture */
    atomic_uint waits;
};

/* A synchronisation that takes its time, so that captures begin in the middle of it. */
static void watch_synchronize(void *argument, enum sim_call call, uint64_t context)
{
    struct capturer *capturer = argument;
    const struct timespec while_busy = {0, 20000};
    if (call != SIM_SYNCHRONIZE || context != 1)
        return;
    atomic_fetch_add(&capturer->waits, 1);
    nanosleep(&while_busy, NULL);
    if (atomic_load(&capturer->is_capturing))
        atomic_fetch_add(&capturer->torn, 1);
}

static void *free_all_the_time(void *argument)
{
    struct capturer *capturer = argument;
    while (!atomic_load(&capturer->is_over))
        workbench_free(&capturer->bench, workbench_alloc(&capturer->bench, 0, 4096));
    return NULL;
}

static void capture_never_meets_a_synchronisation(void **state)
{
    const struct timespec while_capturing = {0, 30000};
    static struct capturer capturer;
    pthread_t threads[2];
    (void)state;
    workbench_open_plain(&capturer.bench);
    capturer.bench.sim.hook = watch_synchronize;
    capturer.bench.sim.hook_argument = &capturer;
    for (unsigned i = 0; i < 2; i++)
        pthread_create(&threads[i], NULL, free_all_the_time, &capturer);
    for (unsigned i = 0; i < 2000 || atomic_load(&capturer.waits) <= 100; i++) {
        gc_capture_begin_context(capturer.bench.contexts[0]);
        atomic_store(&capturer.is_capturing, true);
        nanosleep(&while_capturing, NULL);
        atomic_store(&capturer.is_capturing, false);
        gc_capture_end_context(capturer.bench.contexts[0]);
        nanosleep(&while_capturing, NULL);
    }
    atomic_store(&capturer.is_over, true);
    for (unsigned i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(capturer.torn, 0);
    workbench_close(&capturer.bench);
}

struct dropper {
    struct workbench bench;
    _Atomic(struct gc_context *) context;
    _Atomic uint64_t published;
    atomic_bool is_over;
    atomic_bool is_ending; /* the driver is destroying the context */
    atomic_uint call_count;
    atomic_uint unexpected;
};

/* Calls that work without a context may be made at any time. */
static bool needs_context(enum sim_call call)
{
    return call != SIM_PAGE_UNMAP && call != SIM_PAGE_RELEASE && call != SIM_ADDRESS_FREE;
}

static void watch_doomed(void *argument, enum sim_call call, uint64_t context)
{
    struct dropper *dropper = argument;
    const struct timespec while_inside = {0, 20000};
    if (context != 1 || !needs_context(call))
        return;
    atomic_fetch_add(&dropper->call_count, 1);
    nanosleep(&while_inside, NULL);
    if (atomic_load(&dropper->is_ending))
        atomic_fetch_add(&dropper->unexpected, 1);
}

static void destroy_doomed(struct dropper *dropper)
{
    const struct timespec while_ending = {0, 20000};
    struct gc_context *ending = gc_teardown_begin(dropper->bench.core, 1);
    assert_ptr_equal(ending, dropper->bench.contexts[0]);
    atomic_store(&dropper->is_ending, true);
    nanosleep(&while_ending, NULL);
    sim_driver_drop_context(&dropper->bench.sim, 1);
    atomic_store(&dropper->is_ending, false);
    gc_teardown_finish(ending);
}

static void *use_doomed(void *argument)
{
    struct dropper *dropper = argument;
    while (!atomic_load(&dropper->is_over)) {
        const struct gc_request request = {.bytes = 4096};
        struct gc_block_info info;
        uint64_t address;
        int code;
        const enum gc_status status = gc_alloc(dropper->bench.core, atomic_load(&dropper->context),
                                               &request, &address, &code);
        if (status != GC_OK && status != GC_INVALID_ARGUMENT && status != GC_OUT_OF_MEMORY &&
            (status != GC_DRIVER || code != SIM_CONTEXT_IS_GONE))
            atomic_fetch_add(&dropper->unexpected, 1);
        if (status != GC_OK)
            continue;
        (void)!gc_lookup_block(dropper->bench.core, atomic_exchange(&dropper->published, address),
                               &info);
        const enum gc_status freed = gc_free(dropper->bench.core, address, 0, &code);
        /* After a drop the address is unknown, or another thread's already. */
        if (freed != GC_OK && freed != GC_NOT_OURS && freed != GC_INVALID_POINTER &&
            freed != GC_DRIVER)
            atomic_fetch_add(&dropper->unexpected, 1);
    }
    return NULL;
}

static void run_contexts_come_and_go_under_use(bool has_mapping)
{
    const struct workbench_setup setup = {.mode = GC_MODE_CACHE,
                                          .capacity_bytes = GC_MIB(512),
                                          .trim_percent = 100,
                                          .has_mapping = has_mapping};
    static struct dropper dropper;
    pthread_t threads[3];
    memset(&dropper, 0, sizeof(dropper));
    workbench_open(&dropper.bench, &setup);
    atomic_store(&dropper.context, dropper.bench.contexts[0]);
    dropper.bench.sim.hook = watch_doomed;
    dropper.bench.sim.hook_argument = &dropper;
    for (unsigned i = 0; i < 3; i++)
        pthread_create(&threads[i], NULL, use_doomed, &dropper);
    for (unsigned i = 0; i < 200; i++) {
        struct gc_context *fresh;
        destroy_doomed(&dropper);
        assert_status(gc_setup_add_context(dropper.bench.core, 1, dropper.bench.device, &fresh),
                      GC_OK);
        dropper.bench.contexts[0] = fresh;
        atomic_store(&dropper.context, fresh);
        const unsigned before = atomic_load(&dropper.call_count);
        while (atomic_load(&dropper.call_count) == before)
            sched_yield(); /* until it is in use */
    }
    atomic_store(&dropper.is_over, true);
    for (unsigned i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(dropper.unexpected, 0);
    workbench_drop(&dropper.bench, 0);
    const struct gc_device_snapshot figures = workbench_figures(&dropper.bench);
    assert_int_equal(figures.requested.current, 0);
    assert_int_equal(figures.reserved.current, 0);
    assert_int_equal(figures.idle_bytes, 0);
    workbench_close(&dropper.bench);
}

static void contexts_come_and_go_under_use(void **state)
{
    (void)state;
    run_contexts_come_and_go_under_use(false);
    run_contexts_come_and_go_under_use(true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_share_a_limit),
        cmocka_unit_test(idle_memory_of_others_never_makes_a_request_fail),
        cmocka_unit_test(capture_never_meets_a_synchronisation),
        cmocka_unit_test(contexts_come_and_go_under_use),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("core_threads", tests, NULL, NULL);
}
