/* Allocations that deviate from a plan: served between the plan's places where that takes less new
 * memory, from the pool where it does not. */
#include "core/base/bits.h"
#include "core/device/registry.h"
#include "core/plan/plan.h"
#include "tests/unit/cmocka_all.h"
#include "tests/unit/workbench.h"

#define ENDS GC_MIB(3)
#define BETWEEN GC_MIB(2)
#define ODD (GC_MIB(1) + GC_KIB(512))
#define LATER_COUNT 80

/* Three in a row, whose borders lie within pages. */
static const struct gc_plan_entry row_entries[] = {
    {.bytes = ENDS, .offset = 0, .lower = 0, .upper = 3},
    {.bytes = BETWEEN, .offset = ENDS, .lower = 1, .upper = 3},
    {.bytes = ENDS, .offset = ENDS + BETWEEN, .lower = 2, .upper = 3},
};
static const struct gc_plan row = {.entries = row_entries,
                                   .count = 3,
                                   .stream_count = 1,
                                   .end_time = 3,
                                   .device = GC_PLAN_DEVICE_ANY,
                                   .peak_bytes = GC_MIB(8)};

static void open_bench(struct workbench *bench, const struct gc_plan *plan, bool has_mapping)
{
    const struct workbench_setup setup = {.mode = GC_MODE_CACHE,
                                          .capacity_bytes = GC_MIB(256),
                                          .trim_percent = 100,
                                          .has_mapping = has_mapping,
                                          .plan = plan};
    workbench_open(bench, &setup);
}

/* The three of the row; the one between is freed. Returns the address of the first. */
static uint64_t open_row(struct workbench *bench, bool has_mapping, uint64_t *third)
{
    open_bench(bench, &row, has_mapping);
    const uint64_t first = workbench_alloc(bench, 0, ENDS);
    const uint64_t second = workbench_alloc(bench, 0, BETWEEN);
    *third = workbench_alloc(bench, 0, ENDS);
    assert_int_equal(second, first + ENDS);
    assert_int_equal(*third, second + BETWEEN);
    workbench_free(bench, second);
    return first;
}

static uint64_t reserved(struct workbench *bench)
{
    return gc_device_reserved_bytes(bench->device);
}

static void a_free_block_between_pages_in_use_costs_nothing(void **state)
{
    struct workbench bench;
    uint64_t third;
    (void)state;
    for (unsigned has_mapping = 0; has_mapping < 2; has_mapping++) {
        const uint64_t first = open_row(&bench, has_mapping != 0, &third);
        const uint64_t calls = bench.sim.total_calls;
        const uint64_t odd = workbench_alloc(&bench, 0, ODD);
        assert_true(odd >= first + ENDS && odd + ODD <= third);
        assert_int_equal(bench.sim.total_calls, calls);
        assert_int_equal(reserved(&bench), GC_MIB(8));
        assert_int_equal(workbench_figures(&bench).plan.unmatched_count, 1);
        workbench_check(&bench);
        /* The allocation whose place it takes is served elsewhere. */
        const uint64_t second = workbench_alloc(&bench, 0, BETWEEN);
        assert_true(second + BETWEEN <= first || second >= first + GC_MIB(8));
        workbench_check(&bench);
        workbench_close(&bench);
    }
}

static void what_does_not_fit_between_is_from_the_pool(void **state)
{
    struct workbench bench;
    uint64_t third;
    (void)state;
    for (unsigned has_mapping = 0; has_mapping < 2; has_mapping++) {
        const uint64_t first = open_row(&bench, has_mapping != 0, &third);
        const uint64_t big = workbench_alloc(&bench, 0, BETWEEN + 512);
        assert_true(big + BETWEEN <= first || big >= first + GC_MIB(8));
        workbench_check(&bench);
        workbench_close(&bench);
    }
}

/* A small block of unknown life is not put where the plan is about to go. */
static void small_blocks_keep_off_what_comes_next(void **state)
{
    struct workbench bench;
    uint64_t third;
    (void)state;
    const uint64_t first = open_row(&bench, true, &third);
    const uint64_t small = workbench_alloc(&bench, 0, 777);
    assert_true(small < first || small >= first + GC_MIB(8));
    assert_int_equal(reserved(&bench), GC_MIB(8) + GC_MIB(2));
    workbench_close(&bench);
}

/* Two places, and many small ones elsewhere that come next. */
static void make_later(struct gc_plan_entry *entries, struct gc_plan *plan)
{
    entries[0] = (struct gc_plan_entry){.bytes = ENDS, .upper = LATER_COUNT};
    entries[1] = (struct gc_plan_entry){.bytes = ENDS, .offset = ENDS, .lower = 1, .upper = 2};
    for (uint32_t i = 2; i < LATER_COUNT; i++)
        entries[i] =
            (struct gc_plan_entry){.bytes = 512, .offset = GC_MIB(6), .lower = i, .upper = i + 1};
    *plan = (struct gc_plan){.entries = entries,
                             .count = LATER_COUNT,
                             .stream_count = 1,
                             .end_time = LATER_COUNT,
                             .device = GC_PLAN_DEVICE_ANY,
                             .peak_bytes = GC_MIB(6) + 512};
}

static void small_blocks_fill_pages_that_the_plan_leaves_for_long(void **state)
{
    struct gc_plan_entry entries[LATER_COUNT];
    struct gc_plan plan;
    struct workbench bench;
    (void)state;
    make_later(entries, &plan);
    open_bench(&bench, &plan, true);
    const uint64_t first = workbench_alloc(&bench, 0, ENDS);
    workbench_free(&bench, workbench_alloc(&bench, 0, ENDS));
    const uint64_t before = reserved(&bench);
    assert_int_equal(workbench_alloc(&bench, 0, 777), first + ENDS);
    assert_int_equal(reserved(&bench), before);
    workbench_check(&bench);
    workbench_close(&bench);
}

/* Whichever allocations deviate, and whenever they are freed: blocks never overlap, and all comes
 * back. */
static void random_deviations_leave_all_in_order(void **state)
{
    enum { LIVE = 24, ROUNDS = 4000 };
    uint64_t live[LIVE] = {0};
    struct gc_plan_entry entries[LATER_COUNT];
    struct gc_plan plan;
    struct workbench bench;
    uint64_t seed = 20;
    (void)state;
    make_later(entries, &plan);
    for (unsigned n = 0; n < ROUNDS; n++) {
        if (n % (ROUNDS / 4) == 0) {
            if (n > 0)
                workbench_close(&bench);
            open_bench(&bench, n % (ROUNDS / 2) == 0 ? &plan : &row, n < ROUNDS / 2);
            for (unsigned i = 0; i < LIVE; i++)
                live[i] = 0;
        }
        seed = gc_mix_u64(seed + n);
        uint64_t *slot = &live[seed % LIVE];
        const uint64_t bytes =
            (seed & (1U << 20)) != 0 ? entries[seed >> 32 & 3].bytes : 1 + (seed >> 32) % GC_MIB(4);
        if (*slot != 0)
            workbench_free(&bench, *slot);
        *slot = *slot != 0 ? 0 : workbench_alloc(&bench, 0, bytes);
        if (n % 16 == 0)
            workbench_check(&bench);
    }
    for (unsigned i = 0; i < LIVE; i++) {
        if (live[i] != 0)
            workbench_free(&bench, live[i]);
    }
    gc_reclaim_trim(bench.core, bench.device, 0);
    assert_int_equal(reserved(&bench), 0);
    workbench_close(&bench);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_free_block_between_pages_in_use_costs_nothing),
        cmocka_unit_test(what_does_not_fit_between_is_from_the_pool),
        cmocka_unit_test(small_blocks_keep_off_what_comes_next),
        cmocka_unit_test(small_blocks_fill_pages_that_the_plan_leaves_for_long),
        cmocka_unit_test(random_deviations_leave_all_in_order),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("stray", tests, NULL, NULL);
}
