/* Stream-ordered memory of a device: it stays when a context ends, all contexts of the device are
 * waited for, also those that come later, and nothing of it is the driver's own allocation. */
#include "core/base/bits.h"
#include "core/device/registry.h"
#include "core/pause/swap.h"
#include "core/reclaim/defer.h"
#include "tests/unit/cmocka_all.h"
#include "tests/unit/workbench.h"

#define BYTES GC_MIB(4)
#define MARK UINT64_C(0x5EED)
#define FIRST UINT64_C(1) /* handles of the bench's contexts */
#define SECOND UINT64_C(2)
#define LATER UINT64_C(7)
#define STREAM UINT64_C(0xa000)

static struct gc_context *open_bench(struct workbench *bench)
{
    const struct workbench_setup setup = {.mode = GC_MODE_CACHE,
                                          .capacity_bytes = GC_MIB(256),
                                          .trim_percent = 100,
                                          .has_mapping = true,
                                          .is_fenced = true};
    workbench_open(bench, &setup);
    return gc_context_ordered(bench->contexts[0]);
}

static bool is_known(struct workbench *bench, uint64_t address)
{
    struct gc_block_info info;
    return gc_lookup_block(bench->core, address, &info) == GC_OK;
}

static void it_is_one_for_all_contexts_of_a_device(void **state)
{
    struct workbench bench;
    (void)state;
    const struct gc_context *ordered = open_bench(&bench);
    assert_non_null(ordered);
    assert_true(gc_context_is_of_device(ordered));
    for (unsigned i = 0; i < WORKBENCH_CONTEXTS; i++)
        assert_ptr_equal(gc_context_ordered(bench.contexts[i]), ordered);
    workbench_close(&bench);
}

static void it_stays_when_a_context_ends(void **state)
{
    struct workbench bench;
    (void)state;
    struct gc_context *ordered = open_bench(&bench);
    const uint64_t small = workbench_alloc_in(&bench, ordered, 4096);
    const uint64_t large = workbench_alloc_in(&bench, ordered, BYTES);
    const uint64_t plain = workbench_alloc(&bench, 0, BYTES);
    sim_driver_put(&bench.sim, large, MARK);
    workbench_drop(&bench, 0);
    assert_false(is_known(&bench, plain));
    assert_true(is_known(&bench, small) && is_known(&bench, large));
    assert_int_equal(sim_driver_get(&bench.sim, large), MARK);
    sim_driver_submit(&bench.sim, SECOND, large, BYTES);
    workbench_free(&bench, large);
    workbench_free(&bench, small);
    sim_driver_complete(&bench.sim, SECOND);
    workbench_drop(&bench, 1);
    workbench_check(&bench);
    workbench_drop(&bench, 2);
    assert_int_equal(workbench_figures(&bench).reserved.current, 0); /* no context could use it */
    workbench_close(&bench);
}

/* Work in the context `handle` is not done: nobody gets the memory, and none of it is unmapped. */
static void expect_waiting_for(struct workbench *bench, struct gc_context *ordered, uint64_t handle)
{
    const uint64_t block = workbench_alloc_in(bench, ordered, BYTES);
    sim_driver_submit(&bench->sim, handle, block, BYTES);
    workbench_free(bench, block);
    sim_driver_complete(&bench->sim, FIRST);
    gc_core_complete(bench->core, bench->contexts[0], gc_context_epoch(bench->contexts[0]));
    (void)gc_reclaim_trim(bench->core, bench->device, 0);
    const uint64_t other = workbench_alloc_in(bench, ordered, BYTES);
    assert_int_not_equal(other, block);
    sim_driver_complete(&bench->sim, handle);
    assert_true(gc_reclaim_trim(bench->core, bench->device, 0) >= BYTES);
    workbench_free(bench, other);
    (void)gc_reclaim_trim(bench->core, bench->device, 0);
    workbench_check(bench);
}

static void a_free_waits_for_every_context(void **state)
{
    struct workbench bench;
    (void)state;
    struct gc_context *ordered = open_bench(&bench);
    struct gc_context *later;
    expect_waiting_for(&bench, ordered, SECOND);
    assert_status(gc_setup_add_context(bench.core, LATER, bench.device, &later), GC_OK);
    expect_waiting_for(&bench, ordered, LATER);
    workbench_drop(&bench, (unsigned)LATER - 1);
    workbench_close(&bench);
}

/* Another thread comes while the context's memory goes. */
static void ask_meanwhile(void *argument, enum sim_call call, uint64_t context)
{
    struct gc_context *ordered = argument;
    bool ignored = false;
    (void)context;
    if (call != SIM_PAGE_UNMAP)
        return;
    (void)gc_fence_poll_streams(ordered, 0, &ignored);
    (void)gc_defer_collect(ordered);
}

/* The work that a stream was ordered behind may go on in other contexts when its own one ends. */
static void a_mark_goes_with_its_context(void **state)
{
    struct workbench bench;
    (void)state;
    struct gc_context *ordered = open_bench(&bench);
    (void)workbench_alloc(&bench, 1, BYTES); /* that goes */
    const uint64_t block = workbench_alloc_in(&bench, ordered, BYTES);
    sim_driver_submit(&bench.sim, FIRST, block, BYTES);
    assert_status(gc_free_ordered(bench.core, block, bench.contexts[1], STREAM, API_MALLOC,
                                  &bench.driver_code),
                  GC_OK);
    gc_fence_record_streams(ordered, GC_STREAM_NONE);
    bench.sim.hook = ask_meanwhile;
    bench.sim.hook_argument = ordered;
    workbench_drop(&bench, 1);
    bench.sim.hook = NULL;
    gc_defer_poll(ordered);
    const uint64_t other = workbench_alloc_in(&bench, ordered, BYTES);
    assert_int_not_equal(other, block);
    sim_driver_complete(&bench.sim, FIRST);
    workbench_free(&bench, other);
    (void)gc_reclaim_trim(bench.core, bench.device, 0);
    workbench_check(&bench);
    workbench_close(&bench);
}

/* Where one context alone is there its own wait is enough. */
static void a_wait_for_the_only_context_retires_it(void **state)
{
    struct workbench bench;
    (void)state;
    struct gc_context *ordered = open_bench(&bench);
    workbench_drop(&bench, 1);
    workbench_drop(&bench, 2);
    const uint64_t block = workbench_alloc_in(&bench, ordered, BYTES);
    sim_driver_submit(&bench.sim, FIRST, block, BYTES);
    workbench_free(&bench, block);
    workbench_retire(&bench);
    assert_int_equal(workbench_alloc_in(&bench, ordered, BYTES), block);
    workbench_free(&bench, block);
    workbench_retire(&bench);
    workbench_close(&bench);
}

static void a_capture_leaves_it_to_the_driver(void **state)
{
    struct workbench bench;
    uint64_t address;
    (void)state;
    struct gc_context *ordered = open_bench(&bench);
    workbench_capture(&bench, 1, true);
    assert_status(workbench_try_alloc_in(&bench, ordered, BYTES, &address), GC_NOT_SUPPORTED);
    workbench_capture(&bench, 1, false);
    workbench_free(&bench, workbench_alloc_in(&bench, ordered, BYTES));
    workbench_close(&bench);
}

static void it_is_swapped_out_and_back(void **state)
{
    struct workbench bench;
    struct gc_swap_result result;
    (void)state;
    struct gc_context *ordered = open_bench(&bench);
    const uint64_t block = workbench_alloc_in(&bench, ordered, BYTES);
    sim_driver_put(&bench.sim, block, MARK);
    assert_true(gc_swap_out_all(ordered, true, &result));
    assert_int_equal(workbench_figures(&bench).reserved.current, 0);
    assert_true(gc_swap_in(ordered, &result));
    assert_int_equal(sim_driver_get(&bench.sim, block), MARK);
    workbench_free(&bench, block);
    workbench_close(&bench);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_is_one_for_all_contexts_of_a_device),
        cmocka_unit_test(it_stays_when_a_context_ends),
        cmocka_unit_test(a_free_waits_for_every_context),
        cmocka_unit_test(a_mark_goes_with_its_context),
        cmocka_unit_test(a_wait_for_the_only_context_retires_it),
        cmocka_unit_test(a_capture_leaves_it_to_the_driver),
        cmocka_unit_test(it_is_swapped_out_and_back),
    };
    return cmocka_run_group_tests_name("ordered", tests, NULL, NULL);
}
