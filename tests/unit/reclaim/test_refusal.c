/* The line of a refused request: the bound that had no room, its figures, and how often it comes.
 */
#include "core/base/bits.h"
#include "core/base/clock.h"
#include "core/device/registry.h"
#include "core/io/text.h"
#include "core/reclaim/refusal.h"
#include "tests/unit/cmocka_all.h"
#include "tests/unit/scratch.h"
#include "tests/unit/workbench.h"

#include <stdlib.h>
#include <string.h>

static struct gc_log log_to_file = {.level = GC_LOG_WARN};

static int open_log(void **state)
{
    (void)state;
    log_to_file.fd = scratch_fd();
    return 0;
}

static void open_bench(struct workbench *bench, uint64_t limit_bytes)
{
    const struct workbench_setup setup = {.mode = GC_MODE_CACHE,
                                          .capacity_bytes = GC_MIB(512),
                                          .limit_bytes = limit_bytes,
                                          .trim_percent = 100,
                                          .has_mapping = true,
                                          .is_fenced = true,
                                          .log = &log_to_file};
    scratch_reset(log_to_file.fd);
    workbench_open(bench, &setup);
    bench->options->set_mask |= UINT64_C(1) << GC_OPTION_LIMIT;
}

static void refuse(struct workbench *bench, uint64_t bytes)
{
    uint64_t address;
    assert_status(workbench_try_alloc(bench, 0, bytes, &address), GC_OUT_OF_MEMORY);
}

/* The lines since the last call. */
static void expect_lines(const char *expected)
{
    size_t bytes;
    char *text = scratch_read(log_to_file.fd, &bytes);
    assert_string_equal(text, expected);
    free(text);
    scratch_reset(log_to_file.fd);
}

static void own_limit_is_named_with_its_figures(void **state)
{
    struct workbench bench;
    (void)state;
    open_bench(&bench, GC_MIB(256));
    const uint64_t live = workbench_alloc(&bench, 0, GC_MIB(200));
    refuse(&bench, GC_MIB(100));
    expect_lines("gpucache: device 0: 100.0 MiB refused: limit 256.0 MiB (GPUCACHE_LIMIT), live "
                 "200.0 MiB, idle 0 B, largest free 0 B; 300.0 MiB would have done\n");
    workbench_free(&bench, live);
    workbench_close(&bench);
}

static void limit_of_the_tool_is_named(void **state)
{
    struct workbench bench;
    (void)state;
    open_bench(&bench, GC_MIB(256));
    gc_limit_set(bench.core, bench.device, GC_MIB(50));
    refuse(&bench, GC_MIB(60));
    expect_lines("gpucache: device 0: 60.0 MiB refused: limit 50.0 MiB (gpucache limit), live 0 B, "
                 "idle 0 B, largest free 0 B; 60.0 MiB would have done\n");
    workbench_close(&bench);
}

static void larger_than_the_device_is_said(void **state)
{
    struct workbench bench;
    (void)state;
    open_bench(&bench, 0);
    refuse(&bench, GC_MIB(1024));
    expect_lines("gpucache: device 0: 1.0 GiB refused: the device has 512.0 MiB\n");
    workbench_close(&bench);
}

static void full_device_is_said(void **state)
{
    struct workbench bench;
    (void)state;
    open_bench(&bench, 0);
    const uint64_t live = workbench_alloc(&bench, 0, GC_MIB(500));
    refuse(&bench, GC_MIB(20));
    expect_lines("gpucache: device 0: 20.0 MiB refused: the device has 12.0 MiB free of 512.0 MiB, "
                 "live 500.0 MiB, idle 0 B, largest free 0 B, other processes and contexts 0 B; "
                 "8.0 MiB more would have done\n");
    workbench_free(&bench, live);
    workbench_close(&bench);
}

static void fail_creation(void *argument, enum sim_call call, uint64_t context)
{
    struct workbench *bench = argument;
    (void)context;
    if (call == SIM_PAGE_CREATE || call == SIM_MEM_ALLOC)
        sim_driver_fail(&bench->sim, 1, false, bench->core->driver.out_of_memory);
}

/* The limit and the device have room, and would have had for the bytes that idle memory takes. */
static void refusal_of_the_driver_is_not_the_limits(void **state)
{
    struct workbench bench;
    (void)state;
    open_bench(&bench, GC_MIB(256));
    bench.sim.hook = fail_creation;
    bench.sim.hook_argument = &bench;
    refuse(&bench, GC_MIB(20));
    bench.sim.hook = NULL;
    expect_lines("gpucache: device 0: 20.0 MiB refused: the device has 512.0 MiB free of 512.0 "
                 "MiB, live 0 B, idle 0 B, largest free 0 B, other processes 0 B; the driver "
                 "refused it all the same\n");
    workbench_close(&bench);
}

static void addresses_of_a_tenant_are_not_its_limit(void **state)
{
    struct workbench bench;
    uint64_t address;
    (void)state;
    open_bench(&bench, 0);
    struct gc_tenant *tenant = workbench_add_tenant(&bench, "narrow", GC_MIB(40), GC_MIB(400));
    struct gc_context *record = workbench_record(&bench, tenant, 0);
    const uint64_t live = workbench_alloc_in(&bench, record, GC_MIB(40));
    assert_status(workbench_try_alloc_in(&bench, record, GC_MIB(30), &address), GC_OUT_OF_MEMORY);
    expect_lines("gpucache: device 0: 30.0 MiB refused: addresses for 40.0 MiB of tenant narrow, "
                 "live 40.0 MiB, idle 0 B, largest free 0 B; a larger capacity would have done\n");
    workbench_free(&bench, live);
    workbench_close(&bench);
}

/* Another thread has released memory since. */
static void room_that_came_too_late_is_said(void **state)
{
    const struct gc_charge_failure limit_short = {0};
    const struct gc_entry entry = {.requested_bytes = GC_MIB(20)};
    struct workbench bench;
    (void)state;
    open_bench(&bench, GC_MIB(256));
    gc_refusal_count(bench.device, NULL, &entry, GC_MIB(20), &limit_short);
    expect_lines("gpucache: device 0: 20.0 MiB refused: the device has 512.0 MiB free of 512.0 "
                 "MiB, live 0 B, idle 0 B, largest free 0 B, other processes 0 B; a limit had no "
                 "room for it, and has by now\n");
    workbench_close(&bench);
}

static void line_comes_once_a_minute_with_a_count(void **state)
{
    struct workbench bench;
    (void)state;
    open_bench(&bench, GC_MIB(256));
    for (int i = 0; i < 4; i++)
        refuse(&bench, GC_MIB(300));
    expect_lines("gpucache: device 0: 300.0 MiB refused: limit 256.0 MiB (GPUCACHE_LIMIT), live "
                 "0 B, idle 0 B, largest free 0 B; 300.0 MiB would have done\n");
    atomic_fetch_add(&bench.sim.clock_ahead_ns, 59 * GC_NS_PER_S);
    refuse(&bench, GC_MIB(300));
    expect_lines("");
    atomic_fetch_add(&bench.sim.clock_ahead_ns, 2 * GC_NS_PER_S);
    refuse(&bench, GC_MIB(300));
    expect_lines("gpucache: device 0: 300.0 MiB refused: limit 256.0 MiB (GPUCACHE_LIMIT), live "
                 "0 B, idle 0 B, largest free 0 B; 300.0 MiB would have done (4 more since the "
                 "last line)\n");
    workbench_close(&bench);
}

/* A size that is shown rounded up is never below the size, and is shown as itself. */
static void rounded_sizes_are_read_back(void **state)
{
    struct scratch_random random = {7};
    char text[GC_TEXT_SIZE_BYTES], again[GC_TEXT_SIZE_BYTES];
    (void)state;
    for (int i = 0; i < 100000; i++) {
        const uint64_t bytes = scratch_next(&random) >> (4 + scratch_next(&random) % 60);
        const uint64_t rounded = gc_text_round_up(bytes);
        const long double shown = strtold(gc_text_size(rounded, text), NULL);
        static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
        unsigned shift = 0;
        while (strcmp(strchr(text, ' ') + 1, units[shift / 10]) != 0)
            shift += 10;
        const long double value = shown * (long double)(UINT64_C(1) << shift);
        assert_true(value + 1.0L >= (long double)bytes);
        assert_true(rounded >= bytes);
        assert_string_equal(gc_text_size(gc_text_round_up(rounded), again), text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(own_limit_is_named_with_its_figures),
        cmocka_unit_test(limit_of_the_tool_is_named),
        cmocka_unit_test(larger_than_the_device_is_said),
        cmocka_unit_test(full_device_is_said),
        cmocka_unit_test(refusal_of_the_driver_is_not_the_limits),
        cmocka_unit_test(addresses_of_a_tenant_are_not_its_limit),
        cmocka_unit_test(room_that_came_too_late_is_said),
        cmocka_unit_test(line_comes_once_a_minute_with_a_count),
        cmocka_unit_test(rounded_sizes_are_read_back),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("refusal", tests, open_log, NULL);
}
