/* Memory that the driver takes for itself: found by the process's figure, charged, given up. */
#include "core/base/bits.h"
#include "core/base/clock.h"
#include "core/device/registry.h"
#include "core/reclaim/reconcile.h"
#include "tests/unit/cmocka_all.h"
#include "tests/unit/workbench.h"

#define LIMIT GC_MIB(512)

static void open_limited(struct workbench *bench)
{
    const struct workbench_setup setup = {.mode = GC_MODE_CACHE,
                                          .capacity_bytes = GC_MIB(1024),
                                          .limit_bytes = LIMIT,
                                          .trim_percent = 100,
                                          .has_mapping = true,
                                          .is_fenced = true};
    workbench_open(bench, &setup);
    bench->sim.knows_process = true;
}

static void pass_time(struct workbench *bench, uint64_t ms)
{
    atomic_fetch_add(&bench->sim.clock_ahead_ns, ms * GC_NS_PER_MS);
}

/* Two comparisons, each when it is due. */
static void compare_twice(struct workbench *bench)
{
    for (int i = 0; i < 2; i++) {
        pass_time(bench, 1000);
        gc_reconcile_update(bench->device);
    }
}

static uint64_t driver_bytes(struct workbench *bench)
{
    const struct gc_device_snapshot figures = workbench_figures(bench);
    assert_int_equal(figures.driver.current, figures.direct_bytes[GC_DIRECT_DRIVER]);
    return figures.driver.current;
}

static void the_rest_is_the_drivers(void **state)
{
    struct workbench bench;
    (void)state;
    open_limited(&bench);
    const uint64_t live = workbench_alloc(&bench, 0, GC_MIB(64));
    compare_twice(&bench);
    assert_int_equal(driver_bytes(&bench), 0); /* all is explained */
    atomic_store(&bench.sim.own_bytes, GC_MIB(300));
    compare_twice(&bench);
    assert_int_equal(driver_bytes(&bench), GC_MIB(300));
    assert_int_equal(gc_device_reserved_bytes(bench.device), GC_MIB(364));
    assert_int_equal(workbench_figures(&bench).reserved.peak, GC_MIB(364));
    atomic_store(&bench.sim.own_bytes, GC_MIB(100));
    compare_twice(&bench);
    assert_int_equal(driver_bytes(&bench), GC_MIB(100));
    assert_int_equal(workbench_figures(&bench).driver.peak, GC_MIB(300));
    workbench_free(&bench, live);
    workbench_close(&bench);
}

static void it_counts_in_the_limit(void **state)
{
    struct workbench bench;
    uint64_t refused = 0;
    (void)state;
    open_limited(&bench);
    workbench_free(&bench, workbench_alloc(&bench, 0, GC_MIB(256))); /* idle */
    atomic_store(&bench.sim.own_bytes, GC_MIB(400));
    compare_twice(&bench);
    const uint64_t live = workbench_alloc(&bench, 0, GC_MIB(16)); /* idle memory gave way */
    assert_true(gc_device_reserved_bytes(bench.device) <= LIMIT);
    assert_status(workbench_try_alloc(&bench, 0, GC_MIB(112), &refused), GC_OUT_OF_MEMORY);
    uint64_t available = 0;
    assert_status(
        gc_available_bytes(bench.core, bench.device, NULL, &available, &bench.driver_code), GC_OK);
    assert_int_equal(available, LIMIT - GC_MIB(416));
    workbench_free(&bench, live);
    workbench_close(&bench);
}

/* The limit has no room for all of it: nothing passes the limit, requests fail, and what becomes
 * free is the driver's. */
static void more_than_the_limit(void **state)
{
    struct workbench bench;
    uint64_t refused = 0;
    (void)state;
    open_limited(&bench);
    const uint64_t live = workbench_alloc(&bench, 0, GC_MIB(200));
    const uint64_t other_live = workbench_alloc(&bench, 0, GC_MIB(100));
    atomic_store(&bench.sim.own_bytes, GC_MIB(400));
    compare_twice(&bench);
    assert_int_equal(driver_bytes(&bench), LIMIT - GC_MIB(300));
    assert_int_equal(gc_device_reserved_bytes(bench.device), LIMIT);
    assert_status(workbench_try_alloc(&bench, 0, GC_KIB(4), &refused), GC_OUT_OF_MEMORY);
    workbench_free(&bench, live);
    assert_status(workbench_try_alloc(&bench, 0, GC_MIB(14), &refused), GC_OUT_OF_MEMORY);
    workbench_free(&bench, workbench_alloc(&bench, 0, GC_MIB(12))); /* what remains of the 200 */
    compare_twice(&bench);
    assert_int_equal(driver_bytes(&bench), GC_MIB(400));
    assert_true(gc_device_reserved_bytes(bench.device) <= LIMIT);
    atomic_store(&bench.sim.own_bytes, 0);
    workbench_free(&bench, workbench_alloc(&bench, 0, GC_MIB(300))); /* the request looks again */
    assert_int_equal(driver_bytes(&bench), 0);
    workbench_free(&bench, other_live);
    workbench_close(&bench);
}

static struct workbench *other;

/* Another thread's allocation becomes visible in one figure only. */
static void allocate_meanwhile(struct sim_driver *sim)
{
    sim->during_process = NULL;
    workbench_free(other, workbench_alloc_whole(other, 1, GC_MIB(128)));
    gc_reclaim_trim(other->core, other->device, 0);
}

static void memory_that_comes_and_goes_meanwhile_is_not_the_drivers(void **state)
{
    struct workbench bench;
    (void)state;
    open_limited(&bench);
    other = &bench;
    atomic_store(&bench.sim.own_bytes, GC_MIB(64)); /* seen by one comparison alone */
    pass_time(&bench, 1000);
    gc_reconcile_update(bench.device);
    assert_int_equal(driver_bytes(&bench), 0);
    atomic_store(&bench.sim.own_bytes, GC_MIB(32));
    pass_time(&bench, 1000);
    gc_reconcile_update(bench.device);
    assert_int_equal(driver_bytes(&bench), GC_MIB(32)); /* what both have seen */
    for (int i = 0; i < 2; i++) {
        bench.sim.during_process = i == 0 ? allocate_meanwhile : NULL;
        pass_time(&bench, 1000);
        gc_reconcile_update(bench.device);
        assert_int_equal(driver_bytes(&bench), GC_MIB(32));
    }
    assert_null(bench.sim.during_process);
    assert_int_equal(driver_bytes(&bench), GC_MIB(32));
    workbench_close(&bench);
}

/* Waits between comparisons grow while nothing changes. */
static void comparisons_are_few(void **state)
{
    struct workbench bench;
    unsigned count = 0;
    (void)state;
    open_limited(&bench);
    for (unsigned i = 0; i < 10000; i++) {
        uint64_t due = atomic_load(&bench.device->reconcile_ns);
        pass_time(&bench, 1);
        gc_reconcile_update(bench.device);
        count += atomic_load(&bench.device->reconcile_ns) != due;
    }
    assert_in_range(count, 10, 25); /* 10 s: eight short waits, then one a second */
    workbench_close(&bench);
}

static void a_context_takes_the_drivers_memory_along(void **state)
{
    struct workbench bench;
    (void)state;
    open_limited(&bench);
    atomic_store(&bench.sim.own_bytes, GC_MIB(200));
    compare_twice(&bench);
    assert_int_equal(driver_bytes(&bench), GC_MIB(200));
    atomic_store(&bench.sim.own_bytes, GC_MIB(50));
    workbench_drop(&bench, 2);
    assert_int_equal(driver_bytes(&bench), 0);
    compare_twice(&bench);
    assert_int_equal(driver_bytes(&bench), GC_MIB(50)); /* of the other contexts */
    workbench_close(&bench);
}

static void the_end_takes_one_comparison(void **state)
{
    struct workbench bench;
    (void)state;
    open_limited(&bench);
    atomic_store(&bench.sim.own_bytes, GC_MIB(200));
    gc_reconcile_finish(bench.core);
    assert_int_equal(driver_bytes(&bench), GC_MIB(200));
    atomic_store(&bench.sim.own_bytes, 0);
    compare_twice(&bench);
    workbench_drop(&bench, 2); /* does not wait for a comparison that never ends */
    assert_int_equal(driver_bytes(&bench), GC_MIB(200));
    workbench_close(&bench);
}

static void an_unknown_figure_changes_nothing(void **state)
{
    struct workbench bench;
    (void)state;
    open_limited(&bench);
    atomic_store(&bench.sim.own_bytes, GC_MIB(200));
    compare_twice(&bench);
    bench.sim.knows_process = false;
    atomic_store(&bench.sim.own_bytes, GC_MIB(300));
    compare_twice(&bench);
    assert_int_equal(driver_bytes(&bench), GC_MIB(200));
    workbench_close(&bench);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_rest_is_the_drivers),
        cmocka_unit_test(it_counts_in_the_limit),
        cmocka_unit_test(more_than_the_limit),
        cmocka_unit_test(memory_that_comes_and_goes_meanwhile_is_not_the_drivers),
        cmocka_unit_test(comparisons_are_few),
        cmocka_unit_test(a_context_takes_the_drivers_memory_along),
        cmocka_unit_test(the_end_takes_one_comparison),
        cmocka_unit_test(an_unknown_figure_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
