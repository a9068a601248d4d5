/* Limits that change while memory is held, what could be had, and peaks that start again. */
#include "core/bits.h"
#include "core/instance.h"
#include "tests/unit/cmocka_all.h"
#include "tests/unit/workbench.h"

static uint64_t held(struct workbench *bench)
{
    return gc_device_reserved_bytes(bench->device);
}

static void lower_limit_takes_idle_memory_and_nothing_else(void **state)
{
    struct workbench bench;
    (void)state;
    workbench_open_plain(&bench);
    const uint64_t kept = workbench_alloc(&bench, 0, GC_MIB(64));
    workbench_free(&bench, workbench_alloc(&bench, 1, GC_MIB(128)));
    gc_core_set_limit(bench.core, bench.device, GC_MIB(100));
    assert_int_equal(held(&bench), GC_MIB(64));
    assert_int_equal(gc_device_limit_bytes(bench.device), GC_MIB(100));
    workbench_free(&bench, workbench_alloc(&bench, 0, GC_MIB(30)));
    gc_core_set_limit(bench.core, bench.device, GC_MIB(10)); /* below what is live */
    assert_int_equal(held(&bench), GC_MIB(64));
    workbench_free(&bench, kept);
    workbench_free(&bench, workbench_alloc(&bench, 0, GC_MIB(8)));
    assert_true(held(&bench) <= GC_MIB(10));
    gc_core_set_limit(bench.core, bench.device, UINT64_MAX);
    workbench_free(&bench, workbench_alloc(&bench, 0, GC_MIB(500)));
    workbench_close(&bench);
}

static void nothing_is_handed_out_above_the_limit(void **state)
{
    struct workbench bench;
    uint64_t blocks[3];
    uint64_t refused = 0;
    (void)state;
    workbench_open_plain(&bench);
    for (unsigned i = 0; i < 3; i++)
        blocks[i] = workbench_alloc(&bench, 0, GC_KIB(100));
    workbench_free(&bench, blocks[1]); /* a hole among what is live */
    const uint64_t before = held(&bench);
    gc_core_set_limit(bench.core, bench.device, GC_KIB(512));
    assert_status(workbench_try_alloc(&bench, 0, GC_KIB(100), &refused), GC_OUT_OF_MEMORY);
    assert_int_equal(held(&bench), before);
    assert_int_equal(workbench_figures(&bench).oom_count, 1);
    gc_core_set_limit(bench.core, bench.device, before);
    blocks[1] = workbench_alloc(&bench, 0, GC_KIB(100)); /* at the limit is not above it */
    for (unsigned i = 0; i < 3; i++)
        workbench_free(&bench, blocks[i]);
    workbench_close(&bench);
}

static void what_could_be_had(void **state)
{
    struct workbench bench;
    uint64_t available = 0;
    (void)state;
    workbench_open_plain(&bench);
    assert_status(gc_core_available(bench.core, bench.device, &available, &bench.driver_code),
                  GC_OK);
    assert_int_equal(available, GC_MIB(1024));
    const uint64_t block = workbench_alloc(&bench, 0, GC_MIB(24));
    workbench_free(&bench, workbench_alloc(&bench, 0, GC_MIB(100))); /* idle cache is free */
    gc_core_set_limit(bench.core, bench.device, GC_MIB(200));
    assert_status(gc_core_available(bench.core, bench.device, &available, &bench.driver_code),
                  GC_OK);
    assert_int_equal(available, GC_MIB(176));
    sim_driver_fail(&bench.sim, 1, false, SIM_BROKEN);
    assert_status(gc_core_available(bench.core, bench.device, &available, &bench.driver_code),
                  GC_DRIVER);
    assert_int_equal(bench.driver_code, SIM_BROKEN);
    for (unsigned i = 0; i < WORKBENCH_CONTEXTS; i++)
        workbench_drop(&bench, i);
    (void)block;
    assert_status(/* no context to ask in: by the accounts */
                  gc_core_available(bench.core, bench.device, &available, &bench.driver_code),
                  GC_OK);
    assert_int_equal(available, GC_MIB(200));
    workbench_close(&bench);
}

static void peaks_start_again(void **state)
{
    struct workbench bench;
    (void)state;
    workbench_open_plain(&bench);
    const uint64_t small = workbench_alloc(&bench, 0, GC_MIB(4));
    workbench_free(&bench, workbench_alloc(&bench, 0, GC_MIB(400)));
    gc_core_reset_peaks(bench.core, bench.device);
    struct gc_device_snapshot figures = workbench_figures(&bench);
    assert_int_equal(figures.requested.peak, GC_MIB(4));
    assert_int_equal(figures.reserved.peak, figures.reserved.current);
    assert_int_equal(workbench_api_figures(&bench, API_MALLOC).peak_bytes, GC_MIB(4));
    workbench_free(&bench, workbench_alloc(&bench, 0, GC_MIB(20)));
    figures = workbench_figures(&bench);
    assert_int_equal(figures.requested.peak, GC_MIB(24));
    assert_true(gc_core_empty(bench.core, bench.device) >= GC_MIB(400));
    workbench_free(&bench, small);
    workbench_close(&bench);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lower_limit_takes_idle_memory_and_nothing_else),
        cmocka_unit_test(nothing_is_handed_out_above_the_limit),
        cmocka_unit_test(what_could_be_had),
        cmocka_unit_test(peaks_start_again),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("limits", tests, NULL, NULL);
}
