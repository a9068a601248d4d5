/* The end of a context: refused, and all is as before; done, while the driver gives its addresses
 * to another context; other threads wait until it is known which. */
#define _GNU_SOURCE
#include "core/base/bits.h"
#include "core/device/registry.h"
#include "tests/unit/cmocka_all.h"
#include "tests/unit/workbench.h"

#include <pthread.h>
#include <sched.h>
#include <time.h>

#define BLOCKS 8

static void take_all(struct workbench *bench, unsigned context, uint64_t *addresses)
{
    for (unsigned i = 0; i < BLOCKS; i++)
        addresses[i] = workbench_alloc(bench, context, i % 2 == 0 ? 4096 : GC_MIB(3));
}

static void free_all(struct workbench *bench, const uint64_t *addresses)
{
    for (unsigned i = 0; i < BLOCKS; i++)
        workbench_free(bench, addresses[i]);
}

static void open(struct workbench *bench, bool has_mapping)
{
    const struct workbench_setup setup = {.mode = GC_MODE_CACHE,
                                          .capacity_bytes = GC_MIB(512),
                                          .trim_percent = 100,
                                          .is_fenced = true,
                                          .has_mapping = has_mapping};
    workbench_open(bench, &setup);
}

/* Live, free and pending memory are there again. */
static void run_a_refused_teardown(bool has_mapping)
{
    struct workbench bench;
    uint64_t addresses[BLOCKS];
    open(&bench, has_mapping);
    take_all(&bench, 0, addresses);
    workbench_free(&bench, workbench_alloc(&bench, 0, GC_MIB(5)));
    (void)workbench_free_busy(&bench, 1, GC_MIB(1));
    const struct gc_device_snapshot before = workbench_figures(&bench);
    for (unsigned i = 0; i < 3; i++) {
        struct gc_context *ending = gc_teardown_begin(bench.core, 1);
        assert_ptr_equal(ending, bench.contexts[0]);
        assert_null(ending->pool.content.segments);
        gc_teardown_cancel(ending);
    }
    workbench_check(&bench);
    assert_ptr_equal(gc_context_find(bench.core, 1), bench.contexts[0]);
    const struct gc_device_snapshot after = workbench_figures(&bench);
    assert_int_equal(before.reserved.current, after.reserved.current);
    assert_int_equal(before.requested.current, after.requested.current);
    assert_int_equal(before.idle_bytes, after.idle_bytes);
    free_all(&bench, addresses);
    workbench_retire(&bench);
    take_all(&bench, 0, addresses);
    assert_int_equal(workbench_figures(&bench).reserved.current, before.reserved.current);
    free_all(&bench, addresses);
    workbench_retire(&bench);
    workbench_close(&bench);
}

/* After the driver's call its addresses may be another pool's: they leave the pagemap before. */
static void a_teardown_needs_no_host_memory(void **state)
{
    struct workbench bench;
    (void)state;
    open(&bench, false);
    const uint64_t address = workbench_alloc(&bench, 0, 4096);
    workbench_retire(&bench);
    const uint64_t host_bytes = gc_host_mem_bytes(&bench.core->host);
    struct gc_context *ending = gc_teardown_begin(bench.core, 1);
    assert_non_null(ending->pool.detached);
    assert_null(gc_pagemap_get(&bench.core->pagemap, address));
    assert_int_equal(gc_host_mem_bytes(&bench.core->host), host_bytes);
    gc_teardown_cancel(ending);
    workbench_free(&bench, address);
    workbench_close(&bench);
}

static void a_teardown_that_is_refused_changes_nothing(void **state)
{
    (void)state;
    run_a_refused_teardown(false);
    run_a_refused_teardown(true);
}

/* As soon as the driver has destroyed a context another may get its addresses. */
static void addresses_of_a_gone_context_are_anothers(void **state)
{
    struct workbench bench;
    uint64_t old[BLOCKS];
    uint64_t fresh[BLOCKS];
    (void)state;
    open(&bench, false);
    take_all(&bench, 0, old);
    struct gc_context *ending = gc_teardown_begin(bench.core, 1);
    sim_driver_drop_context(&bench.sim, 1);
    take_all(&bench, 1, fresh);
    assert_int_equal(fresh[0], old[0]);
    gc_teardown_finish(ending);
    workbench_check(&bench);
    for (unsigned i = 0; i < BLOCKS; i++) {
        struct gc_block_info info;
        assert_status(gc_lookup_block(bench.core, fresh[i] + 1, &info), GC_OK);
        assert_int_equal(info.context, 2);
    }
    free_all(&bench, fresh);
    workbench_retire(&bench);
    workbench_close(&bench);
}

struct waiter {
    struct workbench bench;
    uint64_t address;
    uint64_t address_inside;
    atomic_uint step;
    enum gc_status freed;
    enum gc_status taken;
};

static void *free_and_take(void *argument)
{
    struct waiter *waiter = argument;
    atomic_store(&waiter->step, 1);
    waiter->freed = workbench_try_free(&waiter->bench, waiter->address);
    waiter->taken = workbench_try_alloc(&waiter->bench, 0, 4096, &waiter->address);
    atomic_store(&waiter->step, 2);
    return NULL;
}

/* The driver takes its time. */
static void pause_a_moment(void *argument, enum sim_call call, uint64_t context)
{
    const struct timespec moment = {0, 1000000};
    (void)argument, (void)call, (void)context;
    nanosleep(&moment, NULL);
}

/* Frees and allocates in another thread while the teardown is undecided. Returns when that thread
 * has done, and how long after the decision. */
static uint64_t wait_while_it_may_end(struct waiter *waiter, bool is_gone)
{
    const struct timespec moment = {0, 20000000};
    const struct gc_core *core;
    pthread_t thread;
    open(&waiter->bench, true);
    waiter->address = workbench_alloc(&waiter->bench, 0, 4096);
    /* A record that is dropped before the head, whose memory the thread uses. */
    struct gc_tenant *tenant =
        workbench_add_tenant(&waiter->bench, "one", GC_MIB(64), GC_BUDGET_UNLIMITED);
    (void)workbench_alloc_in(&waiter->bench, workbench_record(&waiter->bench, tenant, 0), 4096);
    atomic_store(&waiter->step, 0);
    struct gc_context *ending = gc_teardown_begin(waiter->bench.core, 1);
    pthread_create(&thread, NULL, free_and_take, waiter);
    while (atomic_load(&waiter->step) == 0)
        sched_yield();
    nanosleep(&moment, NULL);
    assert_int_equal(atomic_load(&waiter->step), 1);
    core = waiter->bench.core;
    const uint64_t decided_ns = gc_core_now_ns(core);
    if (is_gone) {
        sim_driver_drop_context(&waiter->bench.sim, 1);
        waiter->bench.sim.hook = pause_a_moment;
        gc_teardown_finish(ending);
    } else {
        gc_teardown_cancel(ending);
    }
    pthread_join(thread, NULL);
    return gc_core_now_ns(core) - decided_ns;
}

static void *free_at_once(void *argument)
{
    struct waiter *waiter = argument;
    waiter->freed = workbench_try_free(&waiter->bench, waiter->address);
    waiter->taken = workbench_try_free(&waiter->bench, waiter->address_inside);
    return NULL;
}

/* The driver would free all of the memory that begins at the address, neighbours too. */
static void what_is_undecided_for_long_is_not_for_the_driver_to_free(void **state)
{
    static struct waiter waiter;
    struct gc_block_info info;
    pthread_t thread;
    (void)state;
    for (unsigned has_mapping = 0; has_mapping < 2; has_mapping++) {
        open(&waiter.bench, has_mapping);
        waiter.address = workbench_alloc(&waiter.bench, 0, 4096);
        waiter.address_inside = workbench_alloc(&waiter.bench, 0, 4096);
        struct gc_context *ending = gc_teardown_begin(waiter.bench.core, 1);
        pthread_create(&thread, NULL, free_at_once, &waiter);
        while (pthread_tryjoin_np(thread, NULL) != 0) {
            const struct timespec moment = {0, 1000000};
            nanosleep(&moment, NULL);
            atomic_fetch_add(&waiter.bench.sim.clock_ahead_ns, UINT64_C(500000000));
        }
        assert_status(waiter.freed, GC_INVALID_POINTER);
        assert_status(waiter.taken, GC_INVALID_POINTER);
        gc_teardown_cancel(ending);
        workbench_check(&waiter.bench);
        assert_status(gc_lookup_block(waiter.bench.core, waiter.address, &info), GC_OK);
        workbench_free(&waiter.bench, waiter.address);
        workbench_free(&waiter.bench, waiter.address_inside);
        workbench_close(&waiter.bench);
    }
}

static void who_uses_it_meanwhile_waits(void **state)
{
    static struct waiter waiter;
    (void)state;
    wait_while_it_may_end(&waiter, false);
    assert_status(waiter.freed, GC_OK);
    assert_status(waiter.taken, GC_OK);
    workbench_free(&waiter.bench, waiter.address);
    workbench_close(&waiter.bench);
    wait_while_it_may_end(&waiter, true);
    assert_status(waiter.freed, GC_NOT_OURS);
    assert_status(waiter.taken, GC_INVALID_ARGUMENT);
    workbench_close(&waiter.bench);
}

/* The decision wakes the waiting thread, which reads the clock every 100 ms: some round is shorter
 * than the rest of that interval. */
static void the_decision_wakes_the_waiting_thread(void **state)
{
    static struct waiter waiter;
    (void)state;
    for (unsigned is_gone = 0; is_gone < 2; is_gone++) {
        uint64_t shortest_ns = UINT64_MAX;
        for (unsigned round = 0; round < 8; round++) {
            const uint64_t ns = wait_while_it_may_end(&waiter, is_gone);
            shortest_ns = gc_min_u64(shortest_ns, ns);
            if (!is_gone)
                workbench_free(&waiter.bench, waiter.address);
            workbench_close(&waiter.bench);
        }
        assert_in_range(shortest_ns, 0, 40000000);
    }
}

/* One thread ends it; the others find it gone. */
static void *end_it(void *argument)
{
    struct gc_context *ending = gc_teardown_begin(argument, 1);
    if (ending != NULL)
        gc_teardown_finish(ending);
    return ending;
}

static void two_ends_at_once_are_one(void **state)
{
    struct workbench bench;
    pthread_t threads[4];
    unsigned count = 0;
    (void)state;
    open(&bench, false);
    (void)workbench_alloc(&bench, 0, 4096);
    sim_driver_drop_context(&bench.sim, 1);
    for (unsigned i = 0; i < 4; i++)
        pthread_create(&threads[i], NULL, end_it, bench.core);
    for (unsigned i = 0; i < 4; i++) {
        void *ended;
        pthread_join(threads[i], &ended);
        count += ended != NULL;
    }
    assert_int_equal(count, 1);
    assert_int_equal(workbench_figures(&bench).reserved.current, 0);
    assert_null(gc_teardown_begin(bench.core, 1));
    workbench_close(&bench);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_teardown_needs_no_host_memory),
        cmocka_unit_test(a_teardown_that_is_refused_changes_nothing),
        cmocka_unit_test(addresses_of_a_gone_context_are_anothers),
        cmocka_unit_test(who_uses_it_meanwhile_waits),
        cmocka_unit_test(the_decision_wakes_the_waiting_thread),
        cmocka_unit_test(what_is_undecided_for_long_is_not_for_the_driver_to_free),
        cmocka_unit_test(two_ends_at_once_are_one),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("context_end", tests, NULL, NULL);
}
