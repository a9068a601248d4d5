/* Limits that change while memory is held, available bytes, and peaks that start again. */
#include "core/base/bits.h"
#include "core/device/registry.h"
#include "core/reclaim/leave.h"
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
    gc_limit_set(bench.core, bench.device, GC_MIB(100));
    assert_int_equal(held(&bench), GC_MIB(64));
    assert_int_equal(gc_device_limit_bytes(bench.device), GC_MIB(100));
    workbench_free(&bench, workbench_alloc(&bench, 0, GC_MIB(30)));
    gc_limit_set(bench.core, bench.device, GC_MIB(10)); /* below what is live */
    assert_int_equal(held(&bench), GC_MIB(64));
    workbench_free(&bench, kept);
    workbench_free(&bench, workbench_alloc(&bench, 0, GC_MIB(8)));
    assert_true(held(&bench) <= GC_MIB(10));
    gc_limit_set(bench.core, bench.device, UINT64_MAX);
    workbench_free(&bench, workbench_alloc(&bench, 0, GC_MIB(500)));
    workbench_close(&bench);
}

static void nothing_is_served_above_the_limit(void **state)
{
    struct workbench bench;
    uint64_t blocks[3];
    uint64_t refused = 0;
    (void)state;
    workbench_open_plain(&bench);
    for (unsigned i = 0; i < 3; i++)
        blocks[i] = workbench_alloc(&bench, 0, GC_KIB(100));
    workbench_free(&bench, blocks[1]); /* a free block between live ones */
    const uint64_t before = held(&bench);
    gc_limit_set(bench.core, bench.device, GC_KIB(512));
    assert_status(workbench_try_alloc(&bench, 0, GC_KIB(100), &refused), GC_OUT_OF_MEMORY);
    assert_int_equal(held(&bench), before);
    assert_int_equal(workbench_figures(&bench).oom_count, 1);
    gc_limit_set(bench.core, bench.device, before);
    blocks[1] = workbench_alloc(&bench, 0, GC_KIB(100)); /* at the limit is not above it */
    for (unsigned i = 0; i < 3; i++)
        workbench_free(&bench, blocks[i]);
    workbench_close(&bench);
}

static void available_bytes(void **state)
{
    struct workbench bench;
    uint64_t available = 0;
    (void)state;
    workbench_open_plain(&bench);
    assert_status(
        gc_available_bytes(bench.core, bench.device, NULL, &available, &bench.driver_code), GC_OK);
    assert_int_equal(available, GC_MIB(1024));
    const uint64_t block = workbench_alloc(&bench, 0, GC_MIB(24));
    workbench_free(&bench, workbench_alloc(&bench, 0, GC_MIB(100))); /* idle cache is free */
    gc_limit_set(bench.core, bench.device, GC_MIB(200));
    assert_status(
        gc_available_bytes(bench.core, bench.device, NULL, &available, &bench.driver_code), GC_OK);
    assert_int_equal(available, GC_MIB(176));
    sim_driver_fail(&bench.sim, 1, false, SIM_BROKEN);
    assert_status(
        gc_available_bytes(bench.core, bench.device, NULL, &available, &bench.driver_code),
        GC_DRIVER);
    assert_int_equal(bench.driver_code, SIM_BROKEN);
    for (unsigned i = 0; i < WORKBENCH_CONTEXTS; i++)
        workbench_drop(&bench, i);
    (void)block;
    assert_status(/* no context to ask in: by the accounts */
                  gc_available_bytes(bench.core, bench.device, NULL, &available,
                                     &bench.driver_code),
                  GC_OK);
    assert_int_equal(available, GC_MIB(200));
    workbench_close(&bench);
}

/* Nor by a thread's own cache, as long as more is held than the limit allows. */
static void threads_keep_nothing_above_the_limit(void **state)
{
    struct workbench bench;
    uint64_t address = 0;
    const struct gc_request request = {.bytes = GC_KIB(4), .api = API_MALLOC};
    const struct workbench_setup setup = {.mode = GC_MODE_CACHE,
                                          .capacity_bytes = GC_MIB(1024),
                                          .trim_percent = 100,
                                          .is_fenced = true};
    (void)state;
    workbench_open(&bench, &setup);
    struct gc_tcache *tcache = gc_tcache_create(bench.core);
    const uint64_t kept = workbench_alloc(&bench, 0, GC_MIB(64));
    const uint64_t block = workbench_alloc(&bench, 0, GC_KIB(4));
    const uint64_t other = workbench_alloc(&bench, 0, GC_KIB(4));
    assert_true(gc_tcache_free(bench.core, tcache, block));
    assert_true(gc_tcache_alloc(tcache, bench.contexts[0], &request, &address));
    assert_true(gc_tcache_free(bench.core, tcache, address));
    gc_limit_set(bench.core, bench.device, GC_MIB(10));
    assert_false(gc_tcache_alloc(tcache, bench.contexts[0], &request, &address));
    assert_true(gc_tcache_free(bench.core, tcache, other));
    assert_false(gc_tcache_alloc(tcache, bench.contexts[0], &request, &address));
    workbench_free(&bench, kept);
    address = workbench_alloc(&bench, 0, GC_KIB(4)); /* within the limit again */
    gc_limit_set(bench.core, bench.device, UINT64_MAX);
    workbench_free(&bench, address);
    address = workbench_alloc(&bench, 0, GC_KIB(4));
    assert_true(gc_tcache_free(bench.core, tcache, address));
    assert_true(gc_tcache_alloc(tcache, bench.contexts[0], &request, &address));
    assert_true(gc_tcache_free(bench.core, tcache, address));
    gc_tcache_destroy(bench.core, tcache);
    workbench_close(&bench);
}

static uint64_t available_now(struct workbench *bench)
{
    uint64_t available = 0;
    assert_status(
        gc_available_bytes(bench->core, bench->device, NULL, &available, &bench->driver_code),
        GC_OK);
    return available;
}

/* Pending memory counts as far as it gives room to any request. */
static void available_bytes_once_work_is_done(void **state)
{
    for (unsigned has_mapping = 0; has_mapping < 2; has_mapping++) {
        const struct workbench_setup setup = {.mode = GC_MODE_CACHE,
                                              .capacity_bytes = GC_MIB(1024),
                                              .limit_bytes = GC_MIB(100),
                                              .trim_percent = 100,
                                              .has_mapping = has_mapping != 0,
                                              .is_fenced = true};
        struct workbench bench;
        uint64_t blocks[3];
        (void)state;
        workbench_open(&bench, &setup);
        for (unsigned i = 0; i < 3; i++) {
            blocks[i] = workbench_alloc(&bench, 0, GC_MIB(5));
            sim_driver_submit(&bench.sim, 1, blocks[i], GC_MIB(5));
        }
        const uint64_t at_first = available_now(&bench);
        workbench_free(&bench, blocks[0]);
        workbench_free(&bench, blocks[1]);
        const uint64_t pending = available_now(&bench);
        /* Ten at the front of a segment of twenty; or five whole pages. */
        assert_int_equal(pending - at_first, has_mapping != 0 ? GC_MIB(10) : 0);
        workbench_retire(&bench);
        /* In driver memory ten beside the live block, which serve requests of up to ten. */
        assert_int_equal(available_now(&bench), at_first + GC_MIB(10));
        sim_driver_submit(&bench.sim, 1, blocks[2], GC_MIB(5));
        workbench_free(&bench, blocks[2]);
        assert_int_equal(workbench_figures(&bench).pending.current, GC_MIB(5));
        assert_int_equal(available_now(&bench), GC_MIB(100));
        workbench_alloc(&bench, 0, GC_MIB(100));
        workbench_close(&bench);
    }
}

/* A small live block keeps a large segment of the driver's: the rest of it serves requests. */
static void memory_beside_live_blocks_is_available(void **state)
{
    struct workbench bench;
    uint64_t refused;
    (void)state;
    workbench_open_plain(&bench);
    gc_limit_set(bench.core, bench.device, GC_MIB(200));
    workbench_free(&bench, workbench_alloc(&bench, 0, GC_MIB(200)));
    workbench_alloc(&bench, 0, GC_MIB(11));
    assert_int_equal(held(&bench), GC_MIB(200));
    assert_int_equal(available_now(&bench), GC_MIB(188)); /* whole units of 2 MiB */
    const uint64_t large = workbench_alloc(&bench, 0, GC_MIB(180));
    assert_int_equal(available_now(&bench), GC_MIB(8));
    workbench_free(&bench, large);
    gc_limit_set(bench.core, bench.device, GC_MIB(199)); /* above the limit none is served */
    assert_int_equal(available_now(&bench), 0);
    assert_status(workbench_try_alloc(&bench, 0, GC_MIB(2), &refused), GC_OUT_OF_MEMORY);
    gc_limit_set(bench.core, bench.device, GC_MIB(200));
    workbench_close(&bench);
}

/* The driver gives two megabytes at a time: what is charged is what the device gave. */
static void larger_segments_are_charged_in_whole_units(void **state)
{
    const struct workbench_setup setup = {.mode = GC_MODE_CACHE,
                                          .capacity_bytes = GC_MIB(1024),
                                          .limit_bytes = GC_MIB(9),
                                          .trim_percent = 100};
    struct workbench bench;
    uint64_t refused;
    (void)state;
    workbench_open(&bench, &setup);
    workbench_alloc(&bench, 0, GC_MIB(5) - 100);
    assert_int_equal(held(&bench), GC_MIB(6));
    assert_status(workbench_try_alloc(&bench, 0, GC_MIB(2) + 600, &refused), GC_OUT_OF_MEMORY);
    workbench_alloc(&bench, 0, GC_KIB(1400));
    assert_int_equal(held(&bench), GC_MIB(8));
    workbench_alloc(&bench, 0, GC_KIB(800)); /* small ones share a unit of the driver's */
    assert_true(held(&bench) <= GC_MIB(9));
    workbench_close(&bench);
}

/* Two periods pass in which the program needs little. */
static void pass_time(struct workbench *bench)
{
    for (unsigned i = 0; i < 3; i++) {
        atomic_fetch_add(&bench->sim.clock_ahead_ns, UINT64_C(11000000000));
        workbench_free(bench, workbench_alloc(bench, 0, GC_MIB(4)));
    }
}

/* A program that repeats itself near the device's size finds the memory of its last pass. */
static void memory_of_the_last_pass_stays(void **state)
{
    for (unsigned has_mapping = 0; has_mapping < 2; has_mapping++) {
        const struct workbench_setup setup = {.mode = GC_MODE_CACHE,
                                              .capacity_bytes = GC_MIB(1024),
                                              .leave_bytes = GC_MIB(128),
                                              .trim_percent = 100,
                                              .has_mapping = has_mapping != 0};
        struct workbench bench;
        uint64_t blocks[8];
        uint64_t calls = 0;
        (void)state;
        workbench_open(&bench, &setup);
        for (unsigned pass = 0; pass < 20; pass++) {
            for (unsigned i = 0; i < 8; i++)
                blocks[i] = workbench_alloc(&bench, 0, GC_MIB(124));
            for (unsigned i = 0; i < 8; i++)
                workbench_free(&bench, blocks[i]);
            atomic_fetch_add(&bench.sim.clock_ahead_ns, UINT64_C(3000000000));
            const uint64_t now = bench.sim.calls[SIM_MEM_ALLOC] + bench.sim.calls[SIM_PAGE_CREATE] +
                                 bench.sim.calls[SIM_PAGE_MAP];
            if (pass > 0)
                assert_int_equal(now, calls);
            calls = now;
        }
        assert_true(held(&bench) > GC_MIB(900));
        pass_time(&bench); /* it ends that */
        assert_true(held(&bench) <= GC_MIB(896));
        workbench_close(&bench);
    }
}

/* Idle memory leaves the device room; a request may use that room. */
static void idle_memory_leaves_the_device_room(void **state)
{
    for (unsigned has_mapping = 0; has_mapping < 2; has_mapping++) {
        const struct workbench_setup setup = {.mode = GC_MODE_CACHE,
                                              .capacity_bytes = GC_MIB(1024),
                                              .leave_bytes = GC_MIB(128),
                                              .trim_percent = 100,
                                              .has_mapping = has_mapping != 0};
        struct workbench bench;
        uint64_t blocks[8];
        (void)state;
        workbench_open(&bench, &setup);
        for (unsigned i = 0; i < 8; i++)
            blocks[i] = workbench_alloc(&bench, 0, GC_MIB(124));
        assert_true(held(&bench) > GC_MIB(900));
        for (unsigned i = 0; i < 8; i++)
            workbench_free(&bench, blocks[i]);
        pass_time(&bench);
        assert_true(held(&bench) <= GC_MIB(896));
        assert_true(held(&bench) >= GC_MIB(700)); /* no more than whole segments too much */
        /* Another process takes 100 MiB of it: the next reading shows it. */
        const uint64_t before = held(&bench);
        gc_device_note_free(bench.device, GC_MIB(1024) - before - GC_MIB(100));
        pass_time(&bench);
        assert_true(held(&bench) + GC_MIB(100) <= GC_MIB(896));
        workbench_close(&bench);
    }
}

/* The reading is renewed by frees, at most once a second. */
static void readings_are_renewed_by_frees(void **state)
{
    const struct workbench_setup setup = {.mode = GC_MODE_CACHE,
                                          .capacity_bytes = GC_MIB(1024),
                                          .leave_bytes = GC_MIB(128),
                                          .trim_percent = 100};
    struct workbench bench;
    (void)state;
    workbench_open(&bench, &setup);
    workbench_free(&bench, workbench_alloc(&bench, 0, GC_MIB(4))); /* a segment for what follows */
    workbench_free(&bench, workbench_alloc(&bench, 0, GC_MIB(800)));
    assert_true(held(&bench) >= GC_MIB(800));
    bench.sim.used_bytes += GC_MIB(200); /* another process's */
    for (unsigned i = 0; i < 3; i++) {   /* the program needs little */
        gc_leave_observe(bench.device);
        bench.sim.clock_ahead_ns += UINT64_C(11000000000);
    }
    for (unsigned i = 0; i < 64; i++)
        workbench_free(&bench, workbench_alloc(&bench, 0, GC_MIB(4)));
    assert_true(bench.sim.calls[SIM_MEM_INFO] == 2); /* the first free read, too */
    assert_true(held(&bench) <= GC_MIB(1024 - 200 - 128));
    for (unsigned i = 0; i < 640; i++)
        workbench_free(&bench, workbench_alloc(&bench, 0, GC_MIB(4)));
    assert_true(bench.sim.calls[SIM_MEM_INFO] == 2);
    bench.sim.used_bytes -= GC_MIB(200);
    workbench_close(&bench);
}

static void default_room_fits_the_device(void **state)
{
    static const struct {
        uint64_t device;
        uint64_t leave;
    } sizes[] = {{GC_MIB(64), GC_MIB(8)},
                 {GC_MIB(1024), GC_MIB(128)},
                 {GC_MIB(16384), GC_MIB(512)},
                 {GC_MIB(1024) * 141, GC_MIB(1024) * 141 / 50}};
    (void)state;
    for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        struct workbench bench;
        struct gc_device *device;
        workbench_open_plain(&bench);
        bench.options->leave.count = 0;
        const struct gc_device_info info = {.ordinal = 1, .total_bytes = sizes[i].device};
        assert_status(gc_setup_add_device(bench.core, &info, &device), GC_OK);
        assert_int_equal(device->leave_bytes, sizes[i].leave);
        workbench_close(&bench);
    }
}

static void peaks_start_again(void **state)
{
    struct workbench bench;
    (void)state;
    workbench_open_plain(&bench);
    const uint64_t small = workbench_alloc(&bench, 0, GC_MIB(4));
    workbench_free(&bench, workbench_alloc(&bench, 0, GC_MIB(400)));
    gc_snapshot_reset_peaks(bench.core, bench.device);
    struct gc_device_snapshot figures = workbench_figures(&bench);
    assert_int_equal(figures.requested.peak, GC_MIB(4));
    assert_int_equal(figures.reserved.peak, figures.reserved.current);
    assert_int_equal(workbench_api_figures(&bench, API_MALLOC).peak_bytes, GC_MIB(4));
    workbench_free(&bench, workbench_alloc(&bench, 0, GC_MIB(20)));
    figures = workbench_figures(&bench);
    assert_int_equal(figures.requested.peak, GC_MIB(24));
    assert_true(gc_reclaim_empty(bench.core, bench.device) >= GC_MIB(400));
    workbench_free(&bench, small);
    workbench_close(&bench);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lower_limit_takes_idle_memory_and_nothing_else),
        cmocka_unit_test(nothing_is_served_above_the_limit),
        cmocka_unit_test(available_bytes),
        cmocka_unit_test(threads_keep_nothing_above_the_limit),
        cmocka_unit_test(available_bytes_once_work_is_done),
        cmocka_unit_test(memory_beside_live_blocks_is_available),
        cmocka_unit_test(larger_segments_are_charged_in_whole_units),
        cmocka_unit_test(memory_of_the_last_pass_stays),
        cmocka_unit_test(idle_memory_leaves_the_device_room),
        cmocka_unit_test(readings_are_renewed_by_frees),
        cmocka_unit_test(default_room_fits_the_device),
        cmocka_unit_test(peaks_start_again),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("limits", tests, NULL, NULL);
}
