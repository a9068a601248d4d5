/* Calls of other threads under way while a context ends, or does not after all. */
#include "core/alloc/teardown.h"
#include "core/backing/change.h"
#include "core/base/bits.h"
#include "core/debug/debug.h"
#include "core/device/registry.h"
#include "core/device/tenant.h"
#include "core/follow/follow.h"
#include "core/reclaim/defer.h"
#include "core/reclaim/tcache.h"
#include "tests/unit/cmocka_all.h"
#include "tests/unit/workbench.h"

#include <pthread.h>
#include <sched.h>
#include <time.h>
#include <unistd.h>

#define STREAM UINT64_C(0xa000)
#define FREEING_THREADS 4
#define PATIENCE_S 60 /* a hang ends the test */

static void open_bench(struct workbench *bench, bool has_mapping, const struct gc_plan *plan)
{
    const struct workbench_setup setup = {.mode = GC_MODE_CACHE,
                                          .capacity_bytes = GC_MIB(512),
                                          .trim_percent = 100,
                                          .is_fenced = true,
                                          .has_mapping = has_mapping,
                                          .plan = plan};
    workbench_open(bench, &setup);
}

static void pause_a_moment(void)
{
    const struct timespec moment = {0, 20000000};
    nanosleep(&moment, NULL);
}

static bool is_hidden(struct gc_context *context)
{
    gc_pool_acquire_plain(&context->pool);
    const bool is_it = context->pool.detached != NULL;
    gc_pool_release(&context->pool);
    return is_it;
}

/* ---- a thread at the driver ---- */

/* Another thread means to end the first context while this one is inside a call of the driver. */
struct ending {
    struct workbench bench;
    pthread_t thread;
    enum sim_call call; /* which; SIM_CALL_COUNT: that has been */
    bool is_gone;
    bool is_slow; /* decided only after the others have lost patience */
    atomic_bool may_decide;
};

static void *end_it(void *argument)
{
    struct ending *ending = argument;
    struct gc_context *head = gc_teardown_begin(ending->bench.core, 1);
    pause_a_moment();
    while (ending->is_slow && !atomic_load(&ending->may_decide)) {
        atomic_fetch_add(&ending->bench.sim.clock_ahead_ns, UINT64_C(1000000000));
        pause_a_moment();
    }
    if (ending->is_gone) {
        sim_driver_drop_context(&ending->bench.sim, 1);
        gc_teardown_finish(head);
    } else {
        gc_teardown_cancel(head);
    }
    return NULL;
}

static void begin_end(void *argument, enum sim_call call, uint64_t context)
{
    struct ending *ending = argument;
    if (call != ending->call || context != 1)
        return;
    ending->call = SIM_CALL_COUNT;
    pthread_create(&ending->thread, NULL, end_it, ending);
    while (!is_hidden(ending->bench.contexts[0]))
        sched_yield();
}

static void set_ending(struct ending *ending, enum sim_call call, bool is_gone)
{
    ending->call = call;
    ending->is_gone = is_gone;
    ending->bench.sim.hook_argument = ending;
    ending->bench.sim.hook = begin_end;
}

/* The debug aid fills the block while the context is torn down. The free is counted once and never
 * becomes the driver's: until the teardown is decided, the pool has the address. */
static void inspect(bool is_gone, bool is_slow)
{
    static struct ending ending;
    const struct workbench_setup setup = {.mode = GC_MODE_CACHE,
                                          .capacity_bytes = GC_MIB(512),
                                          .trim_percent = 100,
                                          .is_fenced = true,
                                          .has_mapping = true,
                                          .debug = GC_DEBUG_POISON};
    workbench_open(&ending.bench, &setup);
    ending.is_slow = is_slow;
    atomic_store(&ending.may_decide, false);
    const uint64_t address = workbench_alloc(&ending.bench, 0, 4096);
    set_ending(&ending, SIM_FILL, is_gone);
    assert_status(workbench_try_free(&ending.bench, address), GC_OK);
    atomic_store(&ending.may_decide, true);
    pthread_join(ending.thread, NULL);
    assert_int_equal(workbench_figures(&ending.bench).free_count, 1);
    assert_int_equal(workbench_figures(&ending.bench).requested.current, 0);
    if (!is_gone && !is_slow) {
        workbench_check(&ending.bench);
        assert_int_equal(workbench_alloc(&ending.bench, 0, 4096), address);
    }
    workbench_close(&ending.bench);
}

static void a_free_that_is_inspected_stays_with_the_pool(void **state)
{
    (void)state;
    inspect(false, false);
    inspect(true, false);
    inspect(false, true);
    inspect(true, true);
}

static void requests_are_served_where_the_context_stays(void **state)
{
    static struct ending ending;
    uint64_t address;
    (void)state;
    open_bench(&ending.bench, false, NULL);
    set_ending(&ending, SIM_MEM_ALLOC, false);
    assert_status(workbench_try_alloc(&ending.bench, 0, GC_MIB(3), &address), GC_OK);
    pthread_join(ending.thread, NULL);
    workbench_check(&ending.bench);
    workbench_free(&ending.bench, address);
    workbench_close(&ending.bench);
}

static void the_next_context_follows_though_the_places_were_being_made(void **state)
{
    static const struct gc_plan_entry entries[] = {
        {.bytes = GC_MIB(3), .offset = 0, .lower = 0, .upper = 2},
        {.bytes = GC_MIB(1), .offset = GC_MIB(3), .lower = 1, .upper = 3},
    };
    static const struct gc_plan plan = {.entries = entries,
                                        .count = 2,
                                        .stream_count = 1,
                                        .end_time = 3,
                                        .device = GC_PLAN_DEVICE_ANY,
                                        .peak_bytes = GC_MIB(4)};
    static struct ending ending;
    uint64_t address;
    (void)state;
    open_bench(&ending.bench, false, &plan);
    set_ending(&ending, SIM_MEM_ALLOC, true);
    assert_status(workbench_try_alloc(&ending.bench, 0, GC_MIB(3), &address), GC_INVALID_ARGUMENT);
    pthread_join(ending.thread, NULL);
    const uint64_t first = workbench_alloc(&ending.bench, 1, GC_MIB(3));
    assert_int_equal(workbench_alloc(&ending.bench, 1, GC_MIB(1)), first + GC_MIB(3));
    assert_int_equal(workbench_figures(&ending.bench).plan.followed_count, 2);
    workbench_close(&ending.bench);
}

/* ---- a context that stays ---- */

static uint64_t alloc_in_stream(struct workbench *bench)
{
    const struct gc_request request = {
        .bytes = 4096, .stream = STREAM, .api = API_MALLOC, .is_ordered = true};
    uint64_t address = 0;
    assert_status(
        gc_alloc(bench->core, bench->contexts[0], &request, &address, &bench->driver_code), GC_OK);
    return address;
}

/* The handle is another stream's by the time the context turns out to stay. */
static void a_stream_that_goes_meanwhile_orders_nothing(void **state)
{
    struct workbench bench;
    (void)state;
    open_bench(&bench, false, NULL);
    const uint64_t busy = alloc_in_stream(&bench);
    sim_driver_submit(&bench.sim, 1, busy, 4096);
    assert_status(gc_free_ordered(bench.core, busy, NULL, STREAM, API_MALLOC, &bench.driver_code),
                  GC_OK);
    struct gc_context *ending = gc_teardown_begin(bench.core, 1);
    gc_core_close_stream(bench.core, STREAM);
    gc_teardown_cancel(ending);
    workbench_check(&bench);
    assert_int_not_equal(alloc_in_stream(&bench), busy);
    sim_driver_complete(&bench.sim, 1);
    workbench_close(&bench);
}

struct deed {
    struct workbench *bench;
    struct gc_context *peer;
};

/* Does it in another thread while the first context is about to end, and then stays. */
static void do_while_it_may_end(struct deed *deed, void *(*run)(void *))
{
    pthread_t thread;
    struct gc_context *ending = gc_teardown_begin(deed->bench->core, 1);
    pthread_create(&thread, NULL, run, deed);
    pause_a_moment();
    gc_teardown_cancel(ending);
    pthread_join(thread, NULL);
    workbench_check(deed->bench);
}

static void *add_peer(void *argument)
{
    struct deed *deed = argument;
    gc_backing_add_peer(deed->bench->contexts[0], deed->peer);
    return NULL;
}

static void a_peer_gets_access_where_it_stays(void **state)
{
    const struct gc_device_info info = {.ordinal = 3, .total_bytes = GC_MIB(64)};
    struct workbench bench;
    struct gc_device *device;
    struct deed deed = {.bench = &bench};
    (void)state;
    open_bench(&bench, true, NULL);
    assert_status(gc_setup_add_device(bench.core, &info, &device), GC_OK);
    assert_status(gc_setup_add_context(bench.core, 9, device, &deed.peer), GC_OK);
    const uint64_t address = workbench_alloc(&bench, 0, GC_MIB(5));
    do_while_it_may_end(&deed, add_peer);
    assert_true(sim_driver_is_open_to(&bench.sim, 3, address, GC_MIB(5)));
    workbench_close(&bench);
}

/* ---- records and caches ---- */

/* Between the moment from which a record is dropped and its pool's end, which needs the caches. */
struct claiming {
    struct workbench bench;
    struct gc_context *record;
    pthread_t dropper;
    pthread_t stopper;
    atomic_uint step;
};

static void *stop_caches(void *argument)
{
    struct claiming *claiming = argument;
    gc_tcache_stop_all(claiming->bench.core);
    atomic_store(&claiming->step, 1);
    while (atomic_load(&claiming->step) == 1)
        sched_yield();
    gc_tcache_resume_all(claiming->bench.core);
    return NULL;
}

static void *drop_it(void *argument)
{
    struct claiming *claiming = argument;
    (void)gc_teardown_drop_record(claiming->record);
    return NULL;
}

static void claim_at_fence(void *argument, enum sim_call call, uint64_t context)
{
    struct claiming *claiming = argument;
    (void)context;
    if (call != SIM_FENCE_RECORD)
        return;
    pthread_create(&claiming->dropper, NULL, drop_it, claiming);
    while (!gc_context_is_dropped(claiming->record))
        sched_yield();
}

static void fences_stay_until_the_pool_goes(void **state)
{
    static struct claiming claiming;
    struct workbench *bench = &claiming.bench;
    (void)state;
    open_bench(bench, false, NULL);
    struct gc_tenant *tenant = workbench_add_tenant(bench, "one", GC_MIB(32), GC_MIB(32));
    claiming.record = workbench_record(bench, tenant, 0);
    workbench_free(bench, workbench_alloc_in(bench, claiming.record, 4096));
    pthread_create(&claiming.stopper, NULL, stop_caches, &claiming);
    while (atomic_load(&claiming.step) == 0)
        sched_yield();
    bench->sim.hook_argument = &claiming;
    bench->sim.hook = claim_at_fence;
    assert_true(gc_fence_record(claiming.record));
    assert_non_null(claiming.record->fences);
    (void)gc_defer_reclaim(claiming.record, 4096);
    bench->sim.hook = NULL;
    atomic_store(&claiming.step, 2);
    pthread_join(claiming.stopper, NULL);
    pthread_join(claiming.dropper, NULL);
    assert_null(claiming.record->fences);
    workbench_close(bench);
}

struct twice {
    struct workbench bench;
    atomic_uint_fast64_t address; /* 0: none may be freed again */
    atomic_uint inside_count;
    atomic_uint freed_count;
    atomic_bool is_over;
};

/* Frees an address that is in another thread's cache, so that all caches are stopped for the
 * look-up. */
static void *free_again(void *argument)
{
    struct twice *twice = argument;
    int code;
    while (!atomic_load(&twice->is_over)) {
        while (atomic_load(&twice->address) == 0 && !atomic_load(&twice->is_over))
            sched_yield();
        atomic_fetch_add(&twice->inside_count, 1);
        const uint64_t address = atomic_load(&twice->address);
        if (address != 0) {
            (void)!gc_free(twice->bench.core, address, API_OTHER, &code);
            atomic_fetch_add(&twice->freed_count, 1);
        }
        atomic_fetch_sub(&twice->inside_count, 1);
    }
    return NULL;
}

/* A block that is in a cache when its context ends is freed again all the while. */
static void end_while_it_is_freed(struct twice *twice, struct gc_tcache *cache, uint64_t handle)
{
    struct workbench *bench = &twice->bench;
    const struct gc_request request = {.bytes = 4096, .api = API_MALLOC};
    struct gc_context *context;
    uint64_t address;
    int code;
    assert_status(gc_setup_add_context(bench->core, handle, bench->device, &context), GC_OK);
    assert_status(gc_alloc(bench->core, context, &request, &address, &code), GC_OK);
    assert_true(gc_tcache_free(bench->core, cache, address));
    atomic_store(&twice->freed_count, 0);
    atomic_store(&twice->address, address);
    while (atomic_load(&twice->freed_count) < FREEING_THREADS)
        sched_yield();
    struct gc_context *ending = gc_teardown_begin(bench->core, handle);
    sim_driver_drop_context(&bench->sim, handle);
    gc_teardown_finish(ending);
    atomic_store(&twice->address, 0);
    while (atomic_load(&twice->inside_count) != 0)
        sched_yield();
}

static void a_second_free_does_not_hold_up_an_end(void **state)
{
    static struct twice twice;
    pthread_t threads[FREEING_THREADS];
    (void)state;
    open_bench(&twice.bench, false, NULL);
    struct gc_tcache *cache = gc_tcache_create(twice.bench.core);
    for (unsigned i = 0; i < FREEING_THREADS; i++)
        pthread_create(&threads[i], NULL, free_again, &twice);
    for (uint64_t handle = 100; handle < 200; handle++)
        end_while_it_is_freed(&twice, cache, handle);
    atomic_store(&twice.is_over, true);
    for (unsigned i = 0; i < FREEING_THREADS; i++)
        pthread_join(threads[i], NULL);
    gc_tcache_destroy(twice.bench.core, cache);
    workbench_close(&twice.bench);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(requests_are_served_where_the_context_stays),
        cmocka_unit_test(the_next_context_follows_though_the_places_were_being_made),
        cmocka_unit_test(a_stream_that_goes_meanwhile_orders_nothing),
        cmocka_unit_test(a_peer_gets_access_where_it_stays),
        cmocka_unit_test(fences_stay_until_the_pool_goes),
        cmocka_unit_test(a_free_that_is_inspected_stays_with_the_pool),
        cmocka_unit_test(a_second_free_does_not_hold_up_an_end),
    };
    alarm(PATIENCE_S);
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("context_end_races", tests, NULL, NULL);
}
