/* An iteration that deviates from its plan goes on by lifetimes: the entries that are long-lived,
 * the entry whose lifetime is assumed for a request of another size, and both kinds' places. */
#include "core/base/bits.h"
#include "core/base/sort.h"
#include "core/device/registry.h"
#include "core/plan/lifetimes.h"
#include "core/plan/match.h"
#include "tests/unit/cmocka_all.h"
#include "tests/unit/workbench.h"

#define PAIRS 12U
#define COUNT (2 * PAIRS)
#define LASTING (GC_MIB(1) + GC_KIB(512))
#define BRIEF GC_MIB(3)
#define PEAK (BRIEF + PAIRS * LASTING)
#define PLACES GC_MIB(22) /* in pages */
#define UNPLANNED 3U

/* In turn a long-lived entry, and a short-lived one at the bottom. */
static struct gc_plan_entry entries[COUNT];
static const struct gc_plan plan = {.entries = entries,
                                    .count = COUNT,
                                    .stream_count = 1,
                                    .end_time = COUNT,
                                    .device = GC_PLAN_DEVICE_ANY,
                                    .peak_bytes = PEAK};

static int make_plan(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < PAIRS; i++) {
        const uint32_t time = 2 * i;
        entries[time] = (struct gc_plan_entry){
            .bytes = LASTING, .offset = BRIEF + i * LASTING, .lower = time, .upper = COUNT};
        entries[time + 1] =
            (struct gc_plan_entry){.bytes = BRIEF, .lower = time + 1, .upper = time + 2};
    }
    return 0;
}

/* ---- lifetimes ---- */

static void keys_are_sorted(void **state)
{
    uint64_t keys[200];
    (void)state;
    for (uint32_t count = 0; count <= 200; count += 25) {
        uint64_t sum = 0;
        for (uint32_t i = 0; i < count; i++)
            sum += keys[i] = gc_mix_u64(count + i) % 64;
        gc_sort_keys(keys, count);
        for (uint32_t i = 0; i < count; i++) {
            assert_true(i == 0 || keys[i - 1] <= keys[i]);
            sum -= keys[i];
        }
        assert_int_equal(sum, 0);
    }
}

static void blocks_at_the_fullest_time_point_are_long_lived(void **state)
{
    struct gc_host_mem host = {.bytes = 0};
    uint32_t fullest;
    (void)state;
    assert_int_equal(gc_lifetimes_find_peak(&plan, &host, &fullest), GC_OK);
    assert_int_equal(fullest, COUNT - 1);
    for (uint32_t i = 0; i < COUNT; i++)
        assert_int_equal(gc_lifetimes_is_long(&plan, &entries[i], fullest),
                         i % 2 == 0 || i == COUNT - 1);
    /* One that ends when another begins leaves before that. */
    static const struct gc_plan_entry turns[] = {{.bytes = 1024, .lower = 0, .upper = 5},
                                                 {.bytes = 1536, .lower = 5, .upper = 9}};
    const struct gc_plan two = {.entries = turns, .count = 2, .end_time = 9};
    assert_int_equal(gc_lifetimes_find_peak(&two, &host, &fullest), GC_OK);
    assert_int_equal(fullest, 5);
    /* One that lives into the next iteration is there at both ends. */
    static const struct gc_plan_entry round[] = {{.bytes = 1024, .lower = 7, .upper = 12},
                                                 {.bytes = 1536, .lower = 4, .upper = 6},
                                                 {.bytes = 512, .lower = 2, .upper = 4}};
    const struct gc_plan loop = {.entries = round, .count = 3, .loop_time = 2, .end_time = 10};
    assert_int_equal(gc_lifetimes_find_peak(&loop, &host, &fullest), GC_OK);
    assert_int_equal(fullest, 2); /* 1024 of the iteration before, and 512 */
    for (uint32_t time = 2; time < 10; time++)
        assert_int_equal(gc_lifetimes_is_long(&loop, &round[0], time), time < 4 || time >= 7);
    assert_int_equal(gc_host_mem_bytes(&host), 0);
}

static void another_size_stands_for_the_next_entry_like_it(void **state)
{
    struct gc_host_mem host = {.bytes = 0};
    struct gc_match match;
    (void)state;
    assert_int_equal(gc_match_init(&match, &plan, &host), GC_OK);
    assert_int_equal(gc_match_guess(&match, LASTING + 512), 0);
    assert_int_equal(gc_match_guess(&match, BRIEF - 4096), 1);
    assert_int_equal(gc_match_guess(&match, 512), GC_PLAN_NONE);
    assert_int_equal(gc_match_guess(&match, 4 * BRIEF), GC_PLAN_NONE);
    assert_int_equal(gc_match_guess(&match, UINT64_MAX - 511), GC_PLAN_NONE);
    assert_int_equal(gc_match_next(&match, LASTING, 0, true), 0);
    assert_int_equal(gc_match_guess(&match, LASTING + 512), 2);
    gc_match_fini(&match);
}

/* ---- places ---- */

static void open_bench(struct workbench *bench, bool has_mapping)
{
    const struct workbench_setup setup = {.mode = GC_MODE_CACHE,
                                          .capacity_bytes = GC_MIB(256),
                                          .trim_percent = 100,
                                          .has_mapping = has_mapping,
                                          .plan = &plan};
    workbench_open(bench, &setup);
}

/* Requests that are in no plan. */
static void alloc_unplanned(struct workbench *bench, uint64_t *addresses)
{
    for (unsigned i = 0; i < UNPLANNED; i++)
        addresses[i] = workbench_alloc(bench, 0, 777);
}

/* The rest of an iteration whose first entry is there. */
static void go_on(struct workbench *bench, uint64_t *lasting, uint64_t *short_lived)
{
    for (unsigned i = 0; i < PAIRS; i++) {
        if (i > 0)
            lasting[i] = workbench_alloc(bench, 0, LASTING);
        short_lived[i] = workbench_alloc(bench, 0, BRIEF);
        workbench_check(bench);
        workbench_free(bench, short_lived[i]);
    }
}

/* A bench, and an iteration in it with unplanned allocations after its first entry. */
static void deviate(struct workbench *bench, bool has_mapping, uint64_t *lasting,
                    uint64_t *short_lived, uint64_t *unplanned)
{
    open_bench(bench, has_mapping);
    lasting[0] = workbench_alloc(bench, 0, LASTING);
    alloc_unplanned(bench, unplanned);
    go_on(bench, lasting, short_lived);
}

static void an_iteration_that_deviated_packs_long_lived_blocks_behind_the_places(void **state)
{
    struct workbench bench;
    uint64_t lasting[PAIRS];
    uint64_t short_lived[PAIRS];
    uint64_t unplanned[UNPLANNED];
    (void)state;
    deviate(&bench, true, lasting, short_lived, unplanned);
    const uint64_t base = lasting[0] - BRIEF;
    /* The last short-lived one is there at the fullest time point. */
    for (unsigned i = 1; i < PAIRS; i++) {
        assert_int_equal(lasting[i], base + PLACES + (i - 1) * LASTING);
        assert_true(short_lived[i - 1] >= base && short_lived[i - 1] + BRIEF <= base + PLACES);
    }
    const struct gc_follow_figures figures = workbench_figures(&bench).plan;
    assert_int_equal(figures.followed_count, 1);
    assert_int_equal(figures.unmatched_count, UNPLANNED);
    assert_int_equal(figures.departed_count, COUNT - 1);
    workbench_close(&bench);
}

static void the_next_round_follows_again(void **state)
{
    struct workbench bench;
    uint64_t lasting[PAIRS];
    uint64_t short_lived[PAIRS];
    uint64_t unplanned[UNPLANNED];
    (void)state;
    deviate(&bench, true, lasting, short_lived, unplanned);
    const uint64_t base = lasting[0] - BRIEF;
    for (unsigned i = 0; i < PAIRS; i++)
        workbench_free(&bench, lasting[i]);
    for (unsigned i = 0; i < UNPLANNED; i++)
        workbench_free(&bench, unplanned[i]);
    lasting[0] = workbench_alloc(&bench, 0, LASTING);
    go_on(&bench, lasting, short_lived);
    for (unsigned i = 0; i < PAIRS; i++) {
        assert_int_equal(lasting[i], base + entries[(size_t)2 * i].offset);
        assert_int_equal(short_lived[i], base);
    }
    workbench_close(&bench);
}

static void few_deviations_leave_the_rest_in_place(void **state)
{
    struct workbench bench;
    uint64_t lasting[PAIRS];
    uint64_t short_lived[PAIRS];
    (void)state;
    open_bench(&bench, true);
    lasting[0] = workbench_alloc(&bench, 0, LASTING);
    (void)workbench_alloc(&bench, 0, 777);
    go_on(&bench, lasting, short_lived);
    for (unsigned i = 0; i < PAIRS; i++)
        assert_int_equal(lasting[i], lasting[0] + i * LASTING);
    assert_int_equal(workbench_figures(&bench).plan.departed_count, 0);
    workbench_close(&bench);
}

static void plain_memory_is_filled_from_both_ends(void **state)
{
    struct workbench bench;
    uint64_t lasting[PAIRS];
    uint64_t short_lived[PAIRS];
    uint64_t unplanned[UNPLANNED];
    (void)state;
    deviate(&bench, false, lasting, short_lived, unplanned);
    const uint64_t base = lasting[0] - BRIEF;
    assert_int_equal(workbench_figures(&bench).plan.departed_count, COUNT - 1);
    assert_int_equal(lasting[1], base + PEAK - LASTING);
    for (unsigned i = 1; i < PAIRS - 2; i++) {
        assert_int_equal(lasting[i], lasting[1] - (i - 1) * LASTING);
        assert_true(short_lived[i] >= base && short_lived[i] + BRIEF <= lasting[PAIRS - 3]);
    }
    workbench_close(&bench);
}

/* Requests as they come; what is refused is left out. Returns whether the driver failed a call. */
static bool go_with_failure(uint64_t call)
{
    struct workbench bench;
    uint64_t address;
    open_bench(&bench, true);
    sim_driver_fail(&bench.sim, call, false, SIM_BROKEN);
    for (unsigned i = 0; i < COUNT; i++) {
        const uint64_t bytes = i < 1 + UNPLANNED && i > 0 ? 777 : i % 2 == 0 ? LASTING : BRIEF;
        const enum gc_status status = workbench_try_alloc(&bench, 0, bytes, &address);
        assert_true(status == GC_OK || status == GC_DRIVER);
        workbench_check(&bench);
    }
    const bool has_failed = bench.sim.failed_count > 0;
    sim_driver_fail(&bench.sim, 0, false, 0);
    workbench_close(&bench);
    return has_failed;
}

static void any_failing_call_leaves_all_in_order(void **state)
{
    uint64_t call = 1;
    (void)state;
    while (go_with_failure(call))
        call++;
    assert_true(call > 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_are_sorted),
        cmocka_unit_test(blocks_at_the_fullest_time_point_are_long_lived),
        cmocka_unit_test(another_size_stands_for_the_next_entry_like_it),
        cmocka_unit_test(an_iteration_that_deviated_packs_long_lived_blocks_behind_the_places),
        cmocka_unit_test(the_next_round_follows_again),
        cmocka_unit_test(few_deviations_leave_the_rest_in_place),
        cmocka_unit_test(plain_memory_is_filled_from_both_ends),
        cmocka_unit_test(any_failing_call_leaves_all_in_order),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("stray_life", tests, make_plan, NULL);
}
