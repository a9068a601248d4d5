/* The steps before a request fails, the exactness of limits, and the free memory that a program
 * sees.
 */
#include "core/base/bits.h"
#include "core/core.h"
#include "core/pool/pool.h"
#include "core/reclaim/reclaim.h"
#include "tests/unit/cmocka_all.h"
#include "tests/unit/workbench.h"

#include <stdlib.h>

static void idle_memory_never_makes_a_request_fail(void **state)
{
    struct workbench bench;
    (void)state;
    workbench_open_limited(&bench, GC_MIB(100));
    for (unsigned i = 0; i < 3; i++) { /* cache of all sizes in all contexts */
        const uint64_t a = workbench_alloc(&bench, i, GC_MIB(30));
        const uint64_t b = workbench_alloc(&bench, i, 512);
        workbench_free(&bench, a);
        workbench_free(&bench, b);
    }
    workbench_alloc(&bench, 2, GC_MIB(100));
    const struct gc_device_snapshot figures = workbench_figures(&bench);
    assert_int_equal(figures.reserved.current, GC_MIB(100));
    assert_int_equal(figures.trim_count, 6);
    assert_int_equal(figures.retry_count, 1);
    assert_int_equal(figures.oom_count, 0);
    workbench_close(&bench);
}

/* A program that tries sizes until one fits keeps its cache meanwhile. */
static void a_request_above_the_limit_releases_nothing(void **state)
{
    struct workbench bench;
    uint64_t address;
    (void)state;
    workbench_open_limited(&bench, GC_MIB(100));
    workbench_free(&bench, workbench_alloc(&bench, 0, GC_MIB(60)));
    assert_status(workbench_try_alloc(&bench, 0, GC_MIB(100) + 1, &address), GC_OUT_OF_MEMORY);
    const struct gc_device_snapshot figures = workbench_figures(&bench);
    assert_int_equal(figures.reserved.current, GC_MIB(60));
    assert_int_equal(figures.trim_count, 0);
    assert_int_equal(figures.oom_count, 1);
    workbench_alloc(&bench, 0, GC_MIB(100));
    workbench_close(&bench);
}

static void an_out_of_memory_of_the_driver_releases_idle_memory_too(void **state)
{
    const struct workbench_setup setup = {
        .mode = GC_MODE_CACHE, .capacity_bytes = GC_MIB(64), .trim_percent = 100};
    struct workbench bench;
    uint64_t address;
    (void)state;
    workbench_open(&bench, &setup);
    workbench_free(&bench, workbench_alloc(&bench, 0, GC_MIB(60)));
    workbench_free(&bench, workbench_alloc(&bench, 1, GC_MIB(64)));
    const uint64_t all = workbench_alloc(&bench, 2, GC_MIB(64));
    assert_status(workbench_try_alloc(&bench, 0, 1, &address), GC_OUT_OF_MEMORY);
    assert_int_equal(bench.sim.used_bytes, GC_MIB(64));
    workbench_free(&bench, all);
    workbench_alloc(&bench, 0, 1);
    workbench_close(&bench);
}

static void exact_size_is_taken_where_comfort_has_no_room(void **state)
{
    struct workbench bench;
    uint64_t address;
    (void)state;
    workbench_open_limited(&bench, GC_MIB(6));
    workbench_alloc(&bench, 0, GC_MIB(3)); /* not 20 MiB, but whole units */
    assert_int_equal(workbench_figures(&bench).reserved.current, GC_MIB(4));
    workbench_alloc(&bench, 1, GC_MIB(1));
    assert_int_equal(workbench_figures(&bench).reserved.current, GC_MIB(6));
    assert_status(workbench_try_alloc(&bench, 2, 512, &address), GC_OUT_OF_MEMORY);
    workbench_alloc(&bench, 1, GC_MIB(1));
    workbench_close(&bench);
}

static void limit_holds_to_the_last_granule(void **state)
{
    struct workbench bench;
    uint64_t address;
    unsigned count = 0;
    (void)state;
    workbench_open_limited(&bench, GC_MIB(3));
    while (workbench_try_alloc(&bench, 0, 512, &address) == GC_OK)
        count++;
    assert_int_equal(count, GC_MIB(3) / 512);
    assert_int_equal(workbench_figures(&bench).allocated.current, GC_MIB(3));
    workbench_close(&bench);
}

static void small_request_uses_a_large_free_block_before_it_fails(void **state)
{
    struct workbench bench;
    (void)state;
    workbench_open_limited(&bench, GC_MIB(20));
    const uint64_t large = workbench_alloc(&bench, 0, GC_MIB(5));
    const uint64_t small = workbench_alloc(&bench, 0, 512);
    assert_true(small > large && small < large + GC_MIB(20));
    workbench_free(&bench, small);
    workbench_close(&bench);
}

static void trim_threshold_releases_at_once(void **state)
{
    const struct workbench_setup setup = {.mode = GC_MODE_CACHE,
                                          .capacity_bytes = GC_MIB(1000),
                                          .limit_bytes = GC_MIB(100),
                                          .trim_percent = 25};
    struct workbench bench;
    (void)state;
    workbench_open(&bench, &setup);
    const uint64_t a = workbench_alloc(&bench, 0, GC_MIB(24));
    const uint64_t b = workbench_alloc(&bench, 0, GC_MIB(12));
    workbench_free(&bench, b);
    assert_int_equal(workbench_figures(&bench).idle_bytes, GC_MIB(12));
    workbench_free(&bench, a); /* 36 MiB idle: more than 25; the longest idle goes */
    assert_int_equal(workbench_figures(&bench).idle_bytes, GC_MIB(24));
    assert_int_equal(workbench_figures(&bench).trim_count, 1);
    assert_int_equal(gc_reclaim_trim(bench.core, bench.device, 0), GC_MIB(24));
    assert_int_equal(bench.sim.used_bytes, 0);
    workbench_close(&bench);
}

static void mem_info_counts_idle_memory_as_free(void **state)
{
    struct workbench bench;
    uint64_t free_bytes = GC_MIB(400);
    uint64_t total_bytes = GC_MIB(512);
    (void)state;
    workbench_open_limited(&bench, GC_MIB(100));
    workbench_alloc(&bench, 0, GC_MIB(30));
    workbench_free(&bench, workbench_alloc(&bench, 0, GC_MIB(40)));
    gc_available_mem_info(bench.core, bench.device, NULL, &free_bytes, &total_bytes);
    assert_int_equal(total_bytes, GC_MIB(100));
    assert_int_equal(free_bytes, GC_MIB(70));
    free_bytes = GC_MIB(8); /* others fill the device */
    gc_available_mem_info(bench.core, bench.device, NULL, &free_bytes, &total_bytes);
    assert_int_equal(free_bytes, GC_MIB(48));
    gc_direct_adjust_device(bench.core, bench.device,
                            (int64_t)GC_MIB(500)); /* beyond the limit: never negative */
    gc_available_mem_info(bench.core, bench.device, NULL, &free_bytes, &total_bytes);
    assert_int_equal(free_bytes, 0);
    gc_direct_adjust_device(bench.core, bench.device, -(int64_t)GC_MIB(500));
    bench.device = gc_device_find(bench.core, 0);
    sim_driver_check(&bench.sim);
    gc_core_destroy(bench.core); /* the peak is past the limit on purpose: no workbench_close */
    free(bench.options);
    sim_driver_fini(&bench.sim);
}

/* ---- patience ---- */

/* 60 of 100 MiB are pending, and the clock shows that waits for them time out. */
static void open_endless(struct workbench *bench)
{
    const struct workbench_setup setup = {.mode = GC_MODE_CACHE,
                                          .capacity_bytes = GC_MIB(512),
                                          .limit_bytes = GC_MIB(100),
                                          .trim_percent = 100,
                                          .is_fenced = true};
    workbench_open(bench, &setup);
    (void)workbench_free_busy(bench, 1, GC_MIB(60));
    bench->sim.wait_ns = UINT64_MAX;
}

/* Since the last call. */
static uint64_t waited_ns(struct workbench *bench)
{
    static uint64_t before_ns;
    const uint64_t now_ns = atomic_load(&bench->sim.clock_ahead_ns);
    const uint64_t waited = now_ns - before_ns;
    before_ns = now_ns;
    return waited;
}

/* The test itself takes some of the time; one wait may begin before the request's time does. */
static void assert_waited_to_the_end(struct workbench *bench)
{
    assert_in_range(waited_ns(bench), GC_RECLAIM_WAIT_NS / 2,
                    GC_RECLAIM_WAIT_NS + GC_RECLAIM_STEP_NS);
}

static void a_request_waits_to_the_end_and_the_next_does_not(void **state)
{
    struct workbench bench;
    uint64_t address;
    (void)state;
    open_endless(&bench);
    (void)waited_ns(&bench);
    assert_status(workbench_try_alloc(&bench, 0, GC_MIB(60), &address), GC_OUT_OF_MEMORY);
    assert_waited_to_the_end(&bench);
    assert_status(workbench_try_alloc(&bench, 0, GC_MIB(60), &address), GC_OUT_OF_MEMORY);
    assert_int_equal(waited_ns(&bench), 0);
    (void)workbench_free_busy(&bench, 1, GC_MIB(1)); /* more is pending: it may be worth a wait */
    assert_status(workbench_try_alloc(&bench, 0, GC_MIB(60), &address), GC_OUT_OF_MEMORY);
    assert_waited_to_the_end(&bench);
    workbench_free(&bench, workbench_alloc(&bench, 0, GC_MIB(2)));
    bench.sim.wait_ns = GC_RECLAIM_STEP_NS / 2; /* the work has an end after all */
    workbench_alloc(&bench, 0, GC_MIB(60));
    workbench_close(&bench);
}

/* Other threads free memory between the steps, and others take it: the request goes on, and does
 * not wait again for as long. */
static void the_steps_of_a_request_share_one_end(void **state)
{
    enum { STEPS = 20 };
    const struct gc_charge_failure charge_failure = {0};
    struct workbench bench;
    struct gc_reclaim reclaim;
    (void)state;
    open_endless(&bench);
    (void)waited_ns(&bench);
    gc_reclaim_begin(&reclaim, bench.device, NULL, NULL);
    for (unsigned i = 0; i < STEPS; i++) {
        (void)workbench_free_busy(&bench, 1, 4096);
        (void)gc_reclaim_step(&reclaim, GC_MIB(60), &charge_failure);
    }
    assert_int_equal(reclaim.attempts, STEPS);
    assert_waited_to_the_end(&bench);
    gc_reclaim_begin(&reclaim, bench.device, NULL, NULL);
    (void)workbench_free_busy(&bench, 1, 4096);
    (void)gc_reclaim_step(&reclaim, GC_MIB(60), &charge_failure);
    assert_waited_to_the_end(&bench); /* another request's */
    bench.sim.wait_ns = 0;
    workbench_retire(&bench);
    workbench_close(&bench);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(idle_memory_never_makes_a_request_fail),
        cmocka_unit_test(a_request_above_the_limit_releases_nothing),
        cmocka_unit_test(an_out_of_memory_of_the_driver_releases_idle_memory_too),
        cmocka_unit_test(exact_size_is_taken_where_comfort_has_no_room),
        cmocka_unit_test(limit_holds_to_the_last_granule),
        cmocka_unit_test(small_request_uses_a_large_free_block_before_it_fails),
        cmocka_unit_test(trim_threshold_releases_at_once),
        cmocka_unit_test(mem_info_counts_idle_memory_as_free),
        cmocka_unit_test(a_request_waits_to_the_end_and_the_next_does_not),
        cmocka_unit_test(the_steps_of_a_request_share_one_end),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("shortage", tests, NULL, NULL);
}
