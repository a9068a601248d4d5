/* Blocks freed in the order of a stream: at once for that stream, for others when their work is
 * done. */
#include "core/base/bits.h"
#include "core/device/registry.h"
#include "tests/unit/cmocka_all.h"
#include "tests/unit/workbench.h"

#define STREAM_A UINT64_C(0xa000)
#define STREAM_B UINT64_C(0xb000)

/* In the first context; queued work may use what it gets, in the same stream. */
static uint64_t alloc_in(struct workbench *bench, uint64_t bytes, uint64_t stream)
{
    const struct gc_request request = {
        .bytes = bytes, .stream = stream, .api = API_MALLOC, .is_ordered = true};
    uint64_t address = 0;
    assert_status(
        gc_alloc(bench->core, bench->contexts[0], &request, &address, &bench->driver_code), GC_OK);
    return address;
}

static void free_in(struct workbench *bench, uint64_t address, uint64_t stream)
{
    assert_status(
        gc_free_ordered(bench->core, address, NULL, stream, API_MALLOC, &bench->driver_code),
        GC_OK);
}

/* Freed in its stream, with work queued. */
static uint64_t free_busy_in(struct workbench *bench, uint64_t bytes, uint64_t stream)
{
    const uint64_t address = alloc_in(bench, bytes, stream);
    sim_driver_submit(&bench->sim, 1, address, bytes);
    free_in(bench, address, stream);
    return address;
}

static void same_stream_gets_it_at_once(void **state)
{
    struct workbench bench;
    (void)state;
    workbench_open_fenced(&bench, GC_MIB(1024));
    const uint64_t a = alloc_in(&bench, 4096, STREAM_A);
    uint64_t calls = 0;
    for (unsigned i = 0; i < 100; i++) {
        if (i == 1) /* the first free finds out whether there are fences */
            calls = bench.sim.total_calls;
        sim_driver_submit(&bench.sim, 1, a, 4096);
        free_in(&bench, a, STREAM_A);
        assert_int_equal(workbench_figures(&bench).pending.current, 4096);
        assert_int_equal(workbench_figures(&bench).ordered.current, 0);
        workbench_check(&bench);
        assert_int_equal(alloc_in(&bench, 4096, STREAM_A), a);
        assert_int_equal(workbench_figures(&bench).ordered.current, 4096);
        assert_int_equal(workbench_figures(&bench).pending.current, 0);
    }
    assert_int_equal(bench.sim.total_calls, calls);
    sim_driver_complete(&bench.sim, 1);
    workbench_close(&bench);
}

static void other_streams_get_it_when_its_work_is_done(void **state)
{
    struct workbench bench;
    (void)state;
    workbench_open_fenced(&bench, GC_MIB(1024));
    const uint64_t a = free_busy_in(&bench, 4096, STREAM_A);
    const uint64_t b = alloc_in(&bench, 4096, STREAM_B);
    assert_int_not_equal(b, a);
    assert_int_not_equal(workbench_alloc(&bench, 0, 4096), a);
    workbench_retire(&bench);
    assert_int_equal(workbench_figures(&bench).pending.current, 0);
    assert_int_equal(alloc_in(&bench, 4096, STREAM_B), a);
    workbench_close(&bench);
}

static void recorded_streams_are_waited_for(void **state)
{
    struct workbench bench;
    (void)state;
    workbench_open_fenced(&bench, GC_MIB(1024));
    const uint64_t a = alloc_in(&bench, 4096, STREAM_A);
    assert_status(gc_free_record_stream(bench.core, a, STREAM_B), GC_OK);
    sim_driver_submit(&bench.sim, 1, a, 4096);
    free_in(&bench, a, STREAM_A);
    assert_int_not_equal(alloc_in(&bench, 4096, STREAM_A), a);
    assert_status(gc_free_record_stream(bench.core, a, STREAM_B), GC_INVALID_POINTER);
    assert_status(gc_free_record_stream(bench.core, 4096, STREAM_B), GC_NOT_OURS);
    workbench_retire(&bench);
    /* The next owner starts anew. */
    const uint64_t again = alloc_in(&bench, 4096, STREAM_A);
    assert_int_equal(again, a);
    sim_driver_submit(&bench.sim, 1, a, 4096);
    free_in(&bench, a, STREAM_A);
    assert_int_equal(alloc_in(&bench, 4096, STREAM_A), a);
    sim_driver_complete(&bench.sim, 1);
    workbench_close(&bench);
}

static void destroyed_stream_leaves_ordinary_memory(void **state)
{
    struct workbench bench;
    (void)state;
    workbench_open_fenced(&bench, GC_MIB(1024));
    const uint64_t a = free_busy_in(&bench, 4096, STREAM_A);
    gc_core_close_stream(bench.core, STREAM_A);
    gc_core_close_stream(bench.core, STREAM_B);
    workbench_check(&bench);
    /* The handle is another stream's now. */
    assert_int_not_equal(alloc_in(&bench, 4096, STREAM_A), a);
    assert_int_equal(workbench_figures(&bench).pending.current, 4096);
    sim_driver_complete(&bench.sim, 1);
    workbench_close(&bench);
}

/* A thread that destroys a stream need not have its context current. */
static void destroyed_stream_is_closed_in_every_context(void **state)
{
    struct workbench bench;
    const struct gc_request request = {
        .bytes = 4096, .stream = STREAM_A, .api = API_MALLOC, .is_ordered = true};
    uint64_t a = 0;
    uint64_t b = 0;
    (void)state;
    workbench_open_fenced(&bench, GC_MIB(1024));
    assert_status(gc_alloc(bench.core, bench.contexts[1], &request, &a, &bench.driver_code), GC_OK);
    sim_driver_submit(&bench.sim, 2, a, 4096);
    free_in(&bench, a, STREAM_A);
    gc_core_close_stream(bench.core, STREAM_A);
    workbench_check(&bench);
    assert_status(gc_alloc(bench.core, bench.contexts[1], &request, &b, &bench.driver_code), GC_OK);
    assert_int_not_equal(a, b);
    sim_driver_complete(&bench.sim, 2);
    workbench_close(&bench);
}

static void lists_run_out_without_harm(void **state)
{
    struct workbench bench;
    uint64_t blocks[2 * GC_STREAM_LISTS];
    (void)state;
    workbench_open_fenced(&bench, GC_MIB(1024));
    for (unsigned i = 0; i < 2 * GC_STREAM_LISTS; i++) {
        blocks[i] = alloc_in(&bench, 4096, STREAM_A + i);
        sim_driver_submit(&bench.sim, 1, blocks[i], 4096);
    }
    for (unsigned i = 0; i < 2 * GC_STREAM_LISTS; i++)
        free_in(&bench, blocks[i], STREAM_A + i);
    workbench_check(&bench);
    assert_int_equal(workbench_figures(&bench).pending.current, 2 * GC_STREAM_LISTS * 4096);
    assert_int_equal(alloc_in(&bench, 4096, STREAM_A), blocks[0]);
    assert_int_not_equal(alloc_in(&bench, 4096, STREAM_A + 2 * GC_STREAM_LISTS - 1),
                         blocks[2 * GC_STREAM_LISTS - 1]);
    workbench_retire(&bench);
    assert_int_equal(workbench_figures(&bench).pending.current, 0);
    workbench_close(&bench);
}

static void reclaim_takes_what_streams_hold(void **state)
{
    struct workbench bench;
    (void)state;
    workbench_open_fenced(&bench, GC_MIB(1024));
    free_busy_in(&bench, GC_MIB(900), STREAM_A);
    workbench_alloc(&bench, 1, GC_MIB(900));
    workbench_close(&bench);
}

static void dropped_context_takes_its_lists_along(void **state)
{
    struct workbench bench;
    (void)state;
    workbench_open_fenced(&bench, GC_MIB(1024));
    const uint64_t a = alloc_in(&bench, 4096, STREAM_A);
    alloc_in(&bench, 8192, STREAM_A);
    sim_driver_submit(&bench.sim, 1, a, 4096);
    free_in(&bench, a, STREAM_A);
    workbench_drop(&bench, 0);
    assert_int_equal(workbench_figures(&bench).pending.current, 0);
    assert_int_equal(workbench_figures(&bench).ordered.current, 0);
    workbench_close(&bench);
}

/* Blocks count with their bytes, rounded up, as in the driver's pools. The program resets each of
 * its marks by itself; the report's peak stays. */
static void marks_are_reset_one_by_one(void **state)
{
    struct workbench bench;
    (void)state;
    workbench_open_fenced(&bench, GC_MIB(1024));
    struct gc_device *device = gc_context_device(bench.contexts[0]);
    const uint64_t a = alloc_in(&bench, 8000, STREAM_A);
    const uint64_t b = alloc_in(&bench, 4096, STREAM_A);
    free_in(&bench, a, STREAM_A);
    gc_core_reset_ordered_peak(device, GC_ORDERED_USED);
    assert_int_equal(gc_core_ordered_peak_bytes(device, GC_ORDERED_USED), 4096);
    assert_int_equal(gc_core_ordered_peak_bytes(device, GC_ORDERED_RESERVED), 8192 + 4096);
    assert_int_equal(workbench_figures(&bench).ordered.peak, 8192 + 4096);
    free_in(&bench, b, STREAM_A);
    gc_core_reset_ordered_peak(device, GC_ORDERED_RESERVED);
    assert_int_equal(gc_core_ordered_peak_bytes(device, GC_ORDERED_RESERVED), 0);
    assert_int_equal(gc_core_ordered_peak_bytes(device, GC_ORDERED_USED), 4096);
    workbench_close(&bench);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_stream_gets_it_at_once),
        cmocka_unit_test(other_streams_get_it_when_its_work_is_done),
        cmocka_unit_test(recorded_streams_are_waited_for),
        cmocka_unit_test(destroyed_stream_leaves_ordinary_memory),
        cmocka_unit_test(destroyed_stream_is_closed_in_every_context),
        cmocka_unit_test(lists_run_out_without_harm),
        cmocka_unit_test(marks_are_reset_one_by_one),
        cmocka_unit_test(reclaim_takes_what_streams_hold),
        cmocka_unit_test(dropped_context_takes_its_lists_along),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("stream", tests, NULL, NULL);
}
