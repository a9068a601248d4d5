/* Whole segments, which other processes can open: cached and used again at nearly their size, never
 * split, and released once they were exported. */
#include "core/base/bits.h"
#include "core/device/registry.h"
#include "tests/unit/cmocka_all.h"
#include "tests/unit/workbench.h"

#define STREAM_A UINT64_C(0xa000)

/* Work of the first context uses the block. */
static void work_on(struct workbench *bench, uint64_t address, uint64_t bytes, uint64_t stream)
{
    assert_true(gc_submit_begin(bench->core, stream, &bench->driver_code));
    sim_driver_submit(&bench->sim, 1, address, bytes);
}

static enum gc_status export(struct workbench *bench, uint64_t address) {
    return gc_export_block(bench->core, address, &bench->driver_code);
}

static void whole_block_serves_again_without_the_driver(void **state)
{
    struct workbench bench;
    (void)state;
    workbench_open_fenced(&bench, GC_MIB(1024));
    const uint64_t block = workbench_alloc_whole(&bench, 0, 1000);
    const uint64_t calls = bench.sim.total_calls;
    for (unsigned i = 0; i < 100; i++) {
        workbench_free(&bench, block);
        workbench_check(&bench);
        assert_int_equal(workbench_figures(&bench).idle_bytes, 1024);
        assert_int_equal(workbench_alloc_whole(&bench, 0, 1024 - i), block);
    }
    assert_int_equal(bench.sim.total_calls, calls);
    assert_int_equal(workbench_figures(&bench).hit_count, 100);
    workbench_free(&bench, block);
    assert_int_equal(gc_reclaim_trim(bench.core, bench.device, 0), 1024);
    assert_int_equal(bench.sim.used_bytes, 0);
    workbench_close(&bench);
}

static void whole_block_serves_nearly_its_size_only(void **state)
{
    struct workbench bench;
    (void)state;
    workbench_open_fenced(&bench, GC_MIB(1024));
    const uint64_t block = workbench_alloc_whole(&bench, 0, GC_MIB(16));
    workbench_free(&bench, block);
    const uint64_t smaller = workbench_alloc_whole(&bench, 0, GC_MIB(15) - 512);
    assert_int_not_equal(smaller, block);
    workbench_free(&bench, smaller);
    assert_int_not_equal(workbench_alloc_whole(&bench, 0, GC_MIB(16) + 512), block);
    assert_int_equal(workbench_alloc_whole(&bench, 0, GC_MIB(15)), block);
    struct gc_block_info info;
    assert_status(gc_lookup_block(bench.core, block, &info), GC_OK);
    assert_int_equal(info.bytes, GC_MIB(15));
    assert_int_equal(info.capacity, GC_MIB(16)); /* not cut */
    assert_true(info.is_dedicated);
    workbench_check(&bench);
    workbench_close(&bench);
}

static void the_kinds_do_not_mix(void **state)
{
    struct workbench bench;
    (void)state;
    workbench_open_fenced(&bench, GC_MIB(1024));
    workbench_free(&bench, workbench_alloc(&bench, 0, 4096));
    const uint64_t whole = workbench_alloc_whole(&bench, 0, 4096);
    assert_int_equal(bench.sim.calls[SIM_MEM_ALLOC], 2);
    workbench_free(&bench, whole);
    assert_int_not_equal(workbench_alloc(&bench, 0, 4096), whole);
    assert_int_equal(bench.sim.calls[SIM_MEM_ALLOC], 2);
    workbench_close(&bench);
}

static void exported_block_goes_back_when_freed(void **state)
{
    struct workbench bench;
    (void)state;
    workbench_open_fenced(&bench, GC_MIB(1024));
    const uint64_t block = workbench_alloc_whole(&bench, 0, 5000);
    workbench_export(&bench, block + 4999);
    workbench_export(&bench, block); /* as often as it likes */
    workbench_free(&bench, block);
    assert_int_equal(bench.sim.used_bytes, 0);
    assert_int_equal(workbench_figures(&bench).reserved.current, 0);
    workbench_close(&bench);
}

static void exported_block_in_use_goes_back_when_its_work_is_done(void **state)
{
    struct workbench bench;
    (void)state;
    workbench_open_fenced(&bench, GC_MIB(1024));
    const uint64_t block = workbench_alloc_whole(&bench, 0, 5000);
    workbench_export(&bench, block);
    work_on(&bench, block, 5000, GC_STREAM_OTHER);
    workbench_free(&bench, block);
    assert_int_equal(bench.sim.used_bytes, 5120);
    assert_int_not_equal(workbench_alloc_whole(&bench, 0, 5000), block);
    workbench_retire(&bench);
    assert_int_equal(bench.sim.used_bytes, 5120); /* the second one */
    assert_int_equal(workbench_figures(&bench).idle_bytes, 0);
    workbench_close(&bench);
}

/* The driver would not take it back: it waits in the pool for the next time. */
static void exported_block_is_not_taken_while_the_driver_keeps_it(void **state)
{
    struct workbench bench;
    (void)state;
    workbench_open_fenced(&bench, GC_MIB(1024));
    const uint64_t block = workbench_alloc_whole(&bench, 0, 5000);
    workbench_export(&bench, block);
    work_on(&bench, block, 5000, GC_STREAM_OTHER);
    workbench_free(&bench, block);
    sim_driver_complete(&bench.sim, 1);
    sim_driver_fail(&bench.sim, 1, true, SIM_BROKEN);
    gc_core_complete(bench.core, bench.contexts[0], gc_context_epoch(bench.contexts[0]));
    sim_driver_fail(&bench.sim, 0, false, 0);
    assert_int_equal(bench.sim.used_bytes, 5120);
    assert_int_not_equal(workbench_alloc_whole(&bench, 0, 5000), block);
    assert_int_not_equal(workbench_alloc(&bench, 0, 5000), block);
    workbench_check(&bench);
    assert_int_equal(gc_reclaim_trim(bench.core, bench.device, 0), 5120);
    workbench_close(&bench);
}

static void split_blocks_are_not_exported(void **state)
{
    struct workbench bench;
    struct gc_block_info info;
    (void)state;
    workbench_open_fenced(&bench, GC_MIB(1024));
    const uint64_t first = workbench_alloc(&bench, 0, 4096);
    assert_status(gc_lookup_block(bench.core, first, &info), GC_OK);
    assert_int_equal(info.address, info.segment_address);
    assert_false(info.is_dedicated);
    assert_status(export(&bench, first), GC_NOT_SUPPORTED);
    workbench_free(&bench, first);
    assert_status(export(&bench, first), GC_INVALID_POINTER);
    assert_status(export(&bench, 4096), GC_NOT_OURS);
    assert_int_equal(workbench_alloc(&bench, 0, 4096), first);
    workbench_close(&bench);
}

/* A whole block served in the order of the one stream: its former life may not be over, and other
 * processes do not follow that order. */
static void export_waits_for_the_former_life(void **state)
{
    struct workbench bench;
    (void)state;
    workbench_open_fenced(&bench, GC_MIB(1024));
    workbench_pretend_one_stream(&bench);
    const uint64_t block = workbench_alloc_whole(&bench, 0, 5000);
    work_on(&bench, block, 5000, STREAM_A);
    workbench_free(&bench, block);
    assert_int_equal(workbench_alloc_whole(&bench, 0, 5000), block);
    assert_int_equal(bench.sim.calls[SIM_FENCE_WAIT], 0);
    workbench_capture(&bench, 0, true); /* that a wait by looks does no harm */
    workbench_export(&bench, block);
    workbench_capture(&bench, 0, false);
    assert_int_equal(bench.sim.calls[SIM_FENCE_WAIT], 1);
    workbench_export(&bench, block);
    assert_int_equal(bench.sim.calls[SIM_FENCE_WAIT], 1);
    assert_int_equal(bench.sim.calls[SIM_SYNCHRONIZE], 0);
    sim_driver_expect_idle(&bench.sim, block, 5000);
    workbench_close(&bench);
}

/* Where all blocks are whole, a thread keeps freed ones, but none that was given away. */
static void threads_keep_whole_blocks(void **state)
{
    const struct workbench_setup setup = {.mode = GC_MODE_CACHE,
                                          .capacity_bytes = UINT64_C(16) << 30,
                                          .trim_percent = 100,
                                          .is_fenced = true,
                                          .is_dedicated = true};
    struct workbench bench;
    (void)state;
    workbench_open(&bench, &setup);
    struct gc_tcache *cache = gc_tcache_create(bench.core);
    assert_non_null(cache);
    const uint64_t block = workbench_alloc(&bench, 0, 5000); /* whole without being asked */
    assert_true(gc_tcache_free(bench.core, cache, block));
    assert_int_equal(gc_tcache_alloc_bytes(cache, bench.contexts[0], 4999, API_MALLOC), block);
    workbench_export(&bench, block);
    assert_false(gc_tcache_free(bench.core, cache, block));
    workbench_free(&bench, block);
    assert_int_equal(gc_tcache_alloc_bytes(cache, bench.contexts[0], 5000, API_MALLOC),
                     GC_ADDRESS_NONE);
    gc_tcache_destroy(bench.core, cache);
    assert_int_equal(bench.sim.used_bytes, 0);
    workbench_close(&bench);
}

static void idle_dedicated_blocks_are_released(void **state)
{
    const struct workbench_setup setup = {.mode = GC_MODE_CACHE,
                                          .capacity_bytes = GC_MIB(64),
                                          .limit_bytes = GC_MIB(48),
                                          .trim_percent = 100,
                                          .is_fenced = true};
    struct workbench bench;
    (void)state;
    workbench_open(&bench, &setup);
    const uint64_t first = workbench_alloc_whole(&bench, 0, GC_MIB(20));
    const uint64_t second = workbench_alloc_whole(&bench, 0, GC_MIB(20));
    workbench_free(&bench, first);
    workbench_free(&bench, second);
    workbench_alloc_whole(&bench, 0, GC_MIB(45));
    assert_int_equal(bench.sim.used_bytes, GC_MIB(45));
    assert_int_equal(workbench_figures(&bench).oom_count, 0);
    workbench_check(&bench);
    workbench_close(&bench);
}

static void idle_whole_blocks_of_many_sizes_stay_bounded(void **state)
{
    struct workbench bench;
    (void)state;
    workbench_open_fenced(&bench, GC_MIB(1024));
    for (unsigned i = 0; i < 40; i++)
        workbench_free(&bench, workbench_alloc_whole(&bench, 0, GC_MIB(20 + 2 * i)));
    /* Half of the peak of 98 MiB and 128 MiB more idle, and the last. */
    assert_true(workbench_figures(&bench).reserved.peak <= GC_MIB(49 + 128 + 98));
    assert_true(workbench_figures(&bench).idle_bytes >= GC_MIB(128));
    workbench_close(&bench);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_block_serves_again_without_the_driver),
        cmocka_unit_test(whole_block_serves_nearly_its_size_only),
        cmocka_unit_test(the_kinds_do_not_mix),
        cmocka_unit_test(exported_block_goes_back_when_freed),
        cmocka_unit_test(exported_block_in_use_goes_back_when_its_work_is_done),
        cmocka_unit_test(exported_block_is_not_taken_while_the_driver_keeps_it),
        cmocka_unit_test(split_blocks_are_not_exported),
        cmocka_unit_test(export_waits_for_the_former_life),
        cmocka_unit_test(threads_keep_whole_blocks),
        cmocka_unit_test(idle_dedicated_blocks_are_released),
        cmocka_unit_test(idle_whole_blocks_of_many_sizes_stay_bounded),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("export", tests, NULL, NULL);
}
