#include "core/base/bits.h"
#include "core/core.h"
#include "core/pool/pool.h"
#include "tests/unit/cmocka_all.h"
#include "tests/unit/workbench.h"

/* ---- serving ---- */

static void freed_memory_serves_the_next_request(void **state)
{
    struct workbench bench;
    (void)state;
    workbench_open_plain(&bench);
    const uint64_t first = workbench_alloc(&bench, 0, 1000);
    workbench_free(&bench, first);
    assert_int_equal(workbench_alloc(&bench, 0, 900), first);
    const struct gc_device_snapshot figures = workbench_figures(&bench);
    assert_int_equal(figures.hit_count, 1);
    assert_int_equal(figures.miss_count, 1);
    assert_int_equal(figures.requested.current, 900);
    assert_int_equal(figures.requested.peak, 1000);
    assert_int_equal(figures.allocated.current, 1024);
    assert_int_equal(bench.sim.calls[SIM_MEM_ALLOC], 1);
    workbench_close(&bench);
}

static void segment_sizes_follow_the_request(void **state)
{
    const struct {
        uint64_t bytes;
        uint64_t reserved;
    } cases[] = {
        {1, GC_MIB(2)},           {GC_MIB(1), GC_MIB(2)},       {GC_MIB(1) + 1, GC_MIB(20)},
        {GC_MIB(10), GC_MIB(20)}, {GC_MIB(10) + 1, GC_MIB(12)}, {GC_MIB(63), GC_MIB(64)}};
    (void)state;
    for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct workbench bench;
        workbench_open_plain(&bench);
        workbench_alloc(&bench, 0, cases[i].bytes);
        assert_int_equal(workbench_figures(&bench).reserved.current, cases[i].reserved);
        workbench_close(&bench);
    }
}

static void best_fit_takes_the_smallest_free_block(void **state)
{
    struct workbench bench;
    (void)state;
    workbench_open_plain(&bench);
    uint64_t blocks[6];
    const uint64_t sizes[6] = {4096, 512, 1024, 512, 2048, 512};
    for (unsigned i = 0; i < 6; i++)
        blocks[i] = workbench_alloc(&bench, 0, sizes[i]);
    workbench_free(&bench, blocks[0]);
    workbench_free(&bench, blocks[2]);
    workbench_free(&bench, blocks[4]);
    assert_int_equal(workbench_alloc(&bench, 0, 1024), blocks[2]);
    assert_int_equal(workbench_alloc(&bench, 0, 1500), blocks[4]);
    assert_int_equal(workbench_alloc(&bench, 0, 512), blocks[4] + 1536);
    assert_int_equal(workbench_alloc(&bench, 0, 4096), blocks[0]);
    workbench_close(&bench);
}

static void neighbours_merge_in_every_order(void **state)
{
    static const unsigned orders[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2},
                                          {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    (void)state;
    for (unsigned i = 0; i < 6; i++) {
        struct workbench bench;
        uint64_t blocks[3];
        workbench_open_plain(&bench);
        for (unsigned j = 0; j < 3; j++)
            blocks[j] = workbench_alloc(&bench, 0, 512);
        for (unsigned j = 0; j < 3; j++) {
            workbench_free(&bench, blocks[orders[i][j]]);
            workbench_check(&bench);
        }
        const struct gc_device_snapshot figures = workbench_figures(&bench);
        assert_int_equal(figures.largest_free_bytes, GC_SMALL_SEGMENT);
        assert_int_equal(figures.idle_bytes, GC_SMALL_SEGMENT);
        workbench_close(&bench);
    }
}

static void impossible_sizes_fail_cleanly(void **state)
{
    const uint64_t sizes[] = {UINT64_MAX, UINT64_MAX - 511, UINT64_MAX - GC_MIB(2),
                              UINT64_C(1) << 63, GC_MIB(1025)};
    struct workbench bench;
    uint64_t address = 7;
    (void)state;
    workbench_open_plain(&bench);
    for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
        assert_status(workbench_try_alloc(&bench, 0, sizes[i], &address), GC_OUT_OF_MEMORY);
    assert_status(workbench_try_alloc(&bench, 0, 0, &address), GC_INVALID_ARGUMENT);
    assert_int_equal(address, 7);
    const struct gc_device_snapshot figures = workbench_figures(&bench);
    assert_int_equal(figures.oom_count, 5);
    assert_int_equal(figures.reserved.current, 0);
    assert_int_equal(figures.alloc_count, 0);
    workbench_close(&bench);
}

/* No limit, and the driver runs out: it is asked for the comfortable size, for the exact one, and
 * no more. */
static void refusal_by_the_driver_is_requested_once_and_leaves_no_mark(void **state)
{
    struct workbench bench;
    (void)state;
    workbench_open_plain(&bench);
    const uint64_t total = gc_device_total_bytes(bench.device);
    const uint64_t half = workbench_alloc(&bench, 0, total / 2);
    uint64_t other;
    const uint64_t asked = bench.sim.calls[SIM_MEM_ALLOC];
    assert_status(workbench_try_alloc(&bench, 0, total / 2 + GC_MIB(4) + 512, &other),
                  GC_OUT_OF_MEMORY);
    assert_true(bench.sim.calls[SIM_MEM_ALLOC] - asked <= 2);
    assert_status(workbench_try_alloc(&bench, 0, UINT64_C(1) << 63, &other), GC_OUT_OF_MEMORY);
    assert_true(bench.sim.calls[SIM_MEM_ALLOC] - asked <= 2);
    const struct gc_device_snapshot figures = workbench_figures(&bench);
    assert_int_equal(figures.reserved.peak, total / 2);
    assert_int_equal(figures.retry_count, 0);
    assert_int_equal(figures.oom_count, 2);
    workbench_free(&bench, half);
    workbench_close(&bench);
}

static void whole_request_has_an_allocation_of_its_own(void **state)
{
    struct workbench bench;
    struct gc_block_info info;
    (void)state;
    workbench_open_plain(&bench);
    workbench_alloc(&bench, 0, 512);
    const uint64_t address = workbench_alloc_whole(&bench, 0, 1000);
    assert_status(gc_lookup_block(bench.core, address + 999, &info), GC_OK);
    assert_int_equal(info.segment_address, address);
    assert_int_equal(info.segment_bytes, 1024);
    assert_int_equal(info.bytes, 1000);
    assert_int_equal(bench.sim.allocations[1].bytes, 1024);
    assert_true(info.is_dedicated);
    workbench_export(&bench, address);
    sim_driver_submit(&bench.sim, 1, address, 1000);
    workbench_free(&bench, address);
    assert_int_equal(bench.sim.calls[SIM_MEM_FREE], 1);
    assert_int_equal(workbench_figures(&bench).reserved.current, GC_SMALL_SEGMENT);
    workbench_close(&bench);
}

static void track_mode_keeps_nothing(void **state)
{
    const struct workbench_setup setup = {.mode = GC_MODE_TRACK,
                                          .capacity_bytes = GC_MIB(64),
                                          .limit_bytes = GC_MIB(8),
                                          .trim_percent = 100};
    struct workbench bench;
    uint64_t address;
    (void)state;
    workbench_open(&bench, &setup);
    const uint64_t first = workbench_alloc(&bench, 0, 5000);
    sim_driver_submit(&bench.sim, 1, first, 5000);
    assert_int_equal(bench.sim.used_bytes, 5000);
    assert_int_equal(workbench_figures(&bench).reserved.current, 5120);
    assert_status(workbench_try_alloc(&bench, 0, GC_MIB(8), &address), GC_OUT_OF_MEMORY);
    workbench_free(&bench, first);
    assert_int_equal(bench.sim.used_bytes, 0);
    assert_int_equal(bench.sim.calls[SIM_SYNCHRONIZE], 0);
    assert_status(workbench_try_free(&bench, first), GC_NOT_OURS);
    workbench_alloc(&bench, 0, GC_MIB(8));
    workbench_close(&bench);
}

/* ---- freeing and finding ---- */

static void wrong_frees_are_distinguished(void **state)
{
    struct workbench bench;
    (void)state;
    workbench_open_plain(&bench);
    const uint64_t a = workbench_alloc(&bench, 0, 4096);
    const uint64_t b = workbench_alloc(&bench, 0, 4096);
    workbench_free(&bench, a);
    assert_status(workbench_try_free(&bench, a), GC_INVALID_POINTER); /* twice */
    assert_status(workbench_try_free(&bench, b + 512),
                  GC_INVALID_POINTER); /* interior, on a granule */
    assert_status(workbench_try_free(&bench, b + 1),
                  GC_INVALID_POINTER); /* interior, off a granule */
    assert_status(workbench_try_free(&bench, b + 8192), GC_INVALID_POINTER); /* never returned */
    assert_int_equal(workbench_figures(&bench).invalid_free_count, 4);
    assert_status(workbench_try_free(&bench, 0), GC_NOT_OURS);
    assert_status(workbench_try_free(&bench, UINT64_MAX), GC_NOT_OURS);
    assert_status(workbench_try_free(&bench, a - 1), GC_NOT_OURS);
    assert_status(workbench_try_free(&bench, a + GC_SMALL_SEGMENT), GC_NOT_OURS);
    assert_int_equal(workbench_figures(&bench).invalid_free_count, 4);
    workbench_free(&bench, b);
    workbench_close(&bench);
}

static void find_answers_for_every_byte(void **state)
{
    struct workbench bench;
    struct gc_block_info info;
    (void)state;
    workbench_open_plain(&bench);
    const uint64_t big = workbench_alloc(&bench, 0, GC_MIB(300));
    const uint64_t small = workbench_alloc(&bench, 1, 700);
    const uint64_t offsets[] = {
        0, 1, 511, 512, GC_MIB(2) - 1, GC_MIB(2), GC_MIB(299), GC_MIB(300) - 1};
    for (unsigned i = 0; i < sizeof(offsets) / sizeof(offsets[0]); i++) {
        assert_status(gc_lookup_block(bench.core, big + offsets[i], &info), GC_OK);
        assert_int_equal(info.address, big);
        assert_int_equal(info.bytes, GC_MIB(300));
        assert_int_equal(info.context, 1);
    }
    assert_status(gc_lookup_block(bench.core, small + 699, &info), GC_OK);
    assert_int_equal(info.capacity, 1024);
    assert_int_equal(info.context, 2);
    /* The bytes that rounding added belong to no block of the program. */
    assert_status(gc_lookup_block(bench.core, small + 700, &info), GC_INVALID_POINTER);
    assert_status(gc_lookup_block(bench.core, small + 1024, &info), GC_INVALID_POINTER);
    assert_status(gc_lookup_block(bench.core, small + GC_SMALL_SEGMENT, &info), GC_NOT_OURS);
    workbench_close(&bench);
}

static void ids_are_never_reused(void **state)
{
    struct workbench bench;
    struct gc_block_info info;
    uint64_t last = 0;
    (void)state;
    workbench_open_plain(&bench);
    for (unsigned i = 0; i < 3000; i++) {
        const uint64_t address = workbench_alloc(&bench, 0, 512);
        assert_status(gc_lookup_block(bench.core, address, &info), GC_OK);
        assert_true(info.id > last);
        last = info.id;
        workbench_free(&bench, address);
    }
    workbench_close(&bench);
}

/* ---- figures ---- */

static void figures_by_entry_point_add_up(void **state)
{
    struct workbench bench;
    (void)state;
    workbench_open_plain(&bench);
    const uint64_t a = workbench_alloc(&bench, 0, 1000);
    const uint64_t b = workbench_alloc(&bench, 0, 3000);
    workbench_free(&bench, a);
    workbench_alloc(&bench, 0, 500);
    struct gc_api_figures figures = workbench_api_figures(&bench, API_MALLOC);
    assert_int_equal(figures.count, 3);
    assert_int_equal(figures.bytes, 4500);
    assert_int_equal(figures.current_bytes, 3500);
    assert_int_equal(figures.peak_bytes, 4000);
    workbench_free(&bench, b);
    gc_device_count_driver_call(bench.core, bench.device, API_OTHER);
    assert_int_equal(workbench_api_figures(&bench, API_OTHER).driver_calls, 1);
    assert_int_equal(workbench_figures(&bench).free_count, 2);
    assert_true(gc_device_was_used(bench.core));
    workbench_close(&bench);
}

struct seen {
    uint64_t bytes[8];
    unsigned count;
};

static void see(void *argument, const struct gc_leak *leak)
{
    struct seen *seen = argument;
    seen->bytes[seen->count++] = leak->bytes;
}

static void leaks_come_largest_first(void **state)
{
    struct workbench bench;
    struct seen seen = {.count = 0};
    (void)state;
    workbench_open_plain(&bench);
    const uint64_t sizes[] = {100, 5000, 300, GC_MIB(3), 700};
    for (unsigned i = 0; i < 5; i++)
        workbench_alloc(&bench, i % 3, sizes[i]);
    workbench_free(&bench, workbench_alloc(&bench, 0, 9999));
    assert_status(gc_snapshot_visit_leaks(bench.core, bench.device, 3, see, &seen), GC_OK);
    assert_int_equal(seen.count, 3);
    assert_int_equal(seen.bytes[0], GC_MIB(3));
    assert_int_equal(seen.bytes[1], 5000);
    assert_int_equal(seen.bytes[2], 700);
    assert_int_equal(workbench_figures(&bench).leak_count, 5);
    workbench_close(&bench);
}

static void create_that_is_never_used_leaves_no_trace(void **state)
{
    struct workbench bench;
    (void)state;
    workbench_open_plain(&bench);
    assert_false(gc_device_was_used(bench.core));
    assert_int_equal(bench.sim.total_calls, 0);
    assert_true(workbench_figures(&bench).host_metadata_bytes < GC_MIB(1));
    workbench_close(&bench);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(freed_memory_serves_the_next_request),
        cmocka_unit_test(segment_sizes_follow_the_request),
        cmocka_unit_test(best_fit_takes_the_smallest_free_block),
        cmocka_unit_test(neighbours_merge_in_every_order),
        cmocka_unit_test(impossible_sizes_fail_cleanly),
        cmocka_unit_test(refusal_by_the_driver_is_requested_once_and_leaves_no_mark),
        cmocka_unit_test(whole_request_has_an_allocation_of_its_own),
        cmocka_unit_test(track_mode_keeps_nothing),
        cmocka_unit_test(wrong_frees_are_distinguished),
        cmocka_unit_test(find_answers_for_every_byte),
        cmocka_unit_test(ids_are_never_reused),
        cmocka_unit_test(figures_by_entry_point_add_up),
        cmocka_unit_test(leaks_come_largest_first),
        cmocka_unit_test(create_that_is_never_used_leaves_no_trace),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("core", tests, NULL, NULL);
}
