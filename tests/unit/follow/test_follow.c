/* A plan of the run that is followed: blocks at their planned places as long as these are free and
 * idle, and everything else from the pool, with the reason counted. */
#include "core/base/bits.h"
#include "core/device/registry.h"
#include "core/follow/follow.h"
#include "core/pause/swap.h"
#include "tests/unit/cmocka_all.h"
#include "tests/unit/workbench.h"

#include <string.h>

#define STREAM_A UINT64_C(0xa000)
#define STREAM_B UINT64_C(0xb000)
#define FIRST GC_MIB(3)
#define SECOND GC_MIB(1)
#define THIRD GC_MIB(2)

/* The third takes the first one's place, over and over. */
static const struct gc_plan_entry entries[] = {
    {.bytes = FIRST, .offset = 0, .lower = 0, .upper = 2},
    {.bytes = SECOND, .offset = FIRST, .lower = 1, .upper = 5},
    {.bytes = THIRD, .offset = 512, .lower = 3, .upper = 4},
};
static const struct gc_plan plan = {.entries = entries,
                                    .count = 3,
                                    .stream_count = 1,
                                    .end_time = 5,
                                    .device = GC_PLAN_DEVICE_ANY,
                                    .peak_bytes = GC_MIB(4)};

/* Work of stream A. */
static const struct gc_plan_entry ordered_entries[] = {
    {.bytes = SECOND, .offset = 0, .lower = 0, .upper = 1, .stream = 1},
    {.bytes = SECOND, .offset = SECOND, .lower = 0, .upper = 1, .stream = 1},
    {.bytes = THIRD, .offset = 0, .lower = 1, .upper = 2, .stream = 1},
    {.bytes = FIRST, .offset = 0, .lower = 2, .upper = 3},
};
static const struct gc_plan ordered_plan = {.entries = ordered_entries,
                                            .count = 4,
                                            .stream_count = 2,
                                            .end_time = 3,
                                            .device = 0,
                                            .peak_bytes = FIRST};

static struct gc_follow_figures figures_of(struct workbench *bench)
{
    return workbench_figures(bench).plan;
}

static void open_bench(struct workbench *bench, const struct gc_plan *followed, bool has_mapping,
                       bool is_fenced)
{
    const struct workbench_setup setup = {.mode = GC_MODE_CACHE,
                                          .capacity_bytes = GC_MIB(256),
                                          .trim_percent = 100,
                                          .has_mapping = has_mapping,
                                          .is_fenced = is_fenced,
                                          .plan = followed};
    workbench_open(bench, &setup);
}

static uint64_t alloc_in(struct workbench *bench, uint64_t bytes, uint64_t stream)
{
    const struct gc_request request = {
        .bytes = bytes, .stream = stream, .api = API_MALLOC, .is_ordered = stream != 0};
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

static void go_round(bool has_mapping)
{
    struct workbench bench;
    open_bench(&bench, &plan, has_mapping, false);
    uint64_t base = 0;
    for (unsigned round = 0; round < 5; round++) {
        const uint64_t first = workbench_alloc(&bench, 0, FIRST - 100);
        base = round == 0 ? first : base;
        assert_int_equal(first, base);
        const uint64_t second = workbench_alloc(&bench, 0, SECOND);
        assert_int_equal(second, base + FIRST);
        workbench_free(&bench, first);
        const uint64_t third = workbench_alloc(&bench, 0, THIRD);
        assert_int_equal(third, base + 512);
        workbench_check(&bench);
        workbench_free(&bench, third);
        workbench_free(&bench, second);
    }
    const struct gc_device_snapshot figures = workbench_figures(&bench);
    assert_int_equal(figures.plan.entry_count, 3);
    assert_int_equal(figures.plan.followed_count, 15);
    assert_int_equal(figures.plan.followed_bytes, 5 * (FIRST + SECOND + THIRD));
    assert_int_equal(figures.plan.used_bytes, GC_MIB(4));
    assert_int_equal(figures.plan.iterations, 5);
    assert_int_equal(figures.reserved.peak, GC_MIB(4)); /* the plan's peak and not a byte more */
    workbench_close(&bench);
}

static void blocks_get_their_places_in_mapped_memory(void **state)
{
    (void)state;
    go_round(true);
}

static void blocks_get_their_places_in_one_driver_allocation(void **state)
{
    (void)state;
    go_round(false);
}

static bool is_in_one_handle(struct workbench *bench, uint64_t address, uint64_t bytes)
{
    return sim_driver_translate(&bench->sim, address, bytes).bytes == bytes;
}

/* Places of a plan share handles with their neighbours. */
static void blocks_for_network_cards_have_no_places(void **state)
{
    struct workbench bench;
    (void)state;
    open_bench(&bench, &plan, true, false);
    const uint64_t base = workbench_alloc(&bench, 0, FIRST);
    assert_false(is_in_one_handle(&bench, base, FIRST));
    workbench_free(&bench, base);
    gc_export_expect_registration(bench.core);
    for (unsigned round = 0; round < 3; round++) {
        const uint64_t first = workbench_alloc(&bench, 0, FIRST);
        assert_true(is_in_one_handle(&bench, first, FIRST));
        const uint64_t other = workbench_alloc(&bench, 0, FIRST - 1000); /* is in no plan */
        assert_true(is_in_one_handle(&bench, other, FIRST - 1000));
        const uint64_t second = workbench_alloc(&bench, 0, SECOND);
        workbench_free(&bench, first);
        const uint64_t third = workbench_alloc(&bench, 0, THIRD);
        assert_true(is_in_one_handle(&bench, third, THIRD));
        workbench_check(&bench);
        workbench_free(&bench, third);
        workbench_free(&bench, second);
        workbench_free(&bench, other);
    }
    assert_true(figures_of(&bench).registered_count > 0);
    workbench_close(&bench);
}

static void a_place_in_use_is_left_alone(void **state)
{
    struct workbench bench;
    (void)state;
    open_bench(&bench, &plan, true, false);
    const uint64_t first = workbench_alloc(&bench, 0, FIRST);
    (void)workbench_alloc(&bench, 0, SECOND);
    const uint64_t third = workbench_alloc(&bench, 0, THIRD); /* the first is there still */
    assert_true(third + THIRD <= first || third >= first + GC_MIB(4));
    assert_int_equal(figures_of(&bench).occupied_count, 1);
    assert_int_equal(figures_of(&bench).occupied_bytes, THIRD);
    assert_int_equal(figures_of(&bench).followed_count, 2);
    workbench_close(&bench);
}

static void sizes_that_are_not_in_the_plan_go_to_the_pool(void **state)
{
    struct workbench bench;
    (void)state;
    open_bench(&bench, &plan, true, false);
    const uint64_t first = workbench_alloc(&bench, 0, FIRST);
    const uint64_t other = workbench_alloc(&bench, 0, 777);
    assert_true(other < first || other >= first + GC_MIB(4));
    assert_int_equal(workbench_alloc(&bench, 0, SECOND), first + FIRST);
    assert_int_equal(figures_of(&bench).unmatched_count, 1);
    assert_int_equal(figures_of(&bench).unmatched_bytes, 1024);
    workbench_close(&bench);
}

/* With several streams a freed block waits for its fence: its place is not taken before. */
static void a_place_is_not_taken_before_it_is_idle(void **state)
{
    struct workbench bench;
    (void)state;
    open_bench(&bench, &plan, true, true);
    const uint64_t first = workbench_alloc(&bench, 0, FIRST);
    (void)workbench_alloc(&bench, 0, SECOND);
    sim_driver_submit(&bench.sim, 1, first, FIRST);
    workbench_free(&bench, first);
    const uint64_t third = workbench_alloc(&bench, 0, THIRD);
    assert_int_not_equal(third, first + 512);
    assert_int_equal(figures_of(&bench).pending_count, 1);
    workbench_free(&bench, third);
    workbench_retire(&bench);
    assert_int_equal(workbench_alloc(&bench, 0, FIRST), first);
    workbench_close(&bench);
}

/* The order of the stream covers its own blocks, at once and without a call; nobody else's. */
static void a_stream_takes_the_places_it_freed(void **state)
{
    struct workbench bench;
    (void)state;
    for (unsigned has_mapping = 0; has_mapping < 2; has_mapping++) {
        open_bench(&bench, &ordered_plan, has_mapping != 0, true);
        const uint64_t a = alloc_in(&bench, SECOND, STREAM_A);
        const uint64_t b = alloc_in(&bench, SECOND, STREAM_A);
        assert_int_equal(b, a + SECOND);
        sim_driver_submit(&bench.sim, 1, a, GC_MIB(2));
        free_in(&bench, a, STREAM_A);
        free_in(&bench, b, STREAM_A);
        assert_int_equal(workbench_figures(&bench).pending.current, GC_MIB(2));
        const uint64_t calls = bench.sim.total_calls;
        assert_int_equal(alloc_in(&bench, THIRD, STREAM_A), a); /* over both */
        assert_int_equal(bench.sim.total_calls, calls);
        workbench_check(&bench);
        free_in(&bench, a, STREAM_A);
        assert_int_not_equal(workbench_alloc(&bench, 0, FIRST), a); /* of no stream: waits */
        assert_int_equal(figures_of(&bench).pending_count, 1);
        assert_int_equal(figures_of(&bench).followed_count, 3);
        workbench_check(&bench);
        sim_driver_complete(&bench.sim, 1);
        workbench_close(&bench);
    }
}

/* One of two blocks at the place is of another stream. */
static void a_place_that_another_stream_freed_is_waited_for(void **state)
{
    struct workbench bench;
    (void)state;
    open_bench(&bench, &ordered_plan, true, true);
    const uint64_t a = alloc_in(&bench, SECOND, STREAM_A);
    const uint64_t b = alloc_in(&bench, SECOND, STREAM_A);
    sim_driver_submit(&bench.sim, 1, a, GC_MIB(2));
    free_in(&bench, a, STREAM_A);
    free_in(&bench, b, STREAM_B);
    assert_int_not_equal(alloc_in(&bench, THIRD, STREAM_A), a);
    assert_int_equal(figures_of(&bench).pending_count, 1);
    assert_int_equal(workbench_figures(&bench).pending.current, GC_MIB(2));
    sim_driver_complete(&bench.sim, 1);
    workbench_close(&bench);
}

/* Memory that a graph may use at any time is not of the plan. */
static void captures_take_nothing_from_the_plan(void **state)
{
    struct workbench bench;
    (void)state;
    open_bench(&bench, &plan, true, false);
    const uint64_t first = workbench_alloc(&bench, 0, FIRST);
    workbench_capture(&bench, 0, true);
    const uint64_t second = workbench_alloc(&bench, 0, SECOND);
    assert_int_not_equal(second, first + FIRST);
    workbench_capture(&bench, 0, false);
    assert_int_equal(figures_of(&bench).capture_count, 1);
    workbench_close(&bench);
}

static void one_context_follows_and_the_next_one_after_it(void **state)
{
    struct workbench bench;
    (void)state;
    open_bench(&bench, &plan, true, false);
    (void)workbench_alloc(&bench, 1, FIRST);
    (void)workbench_alloc(&bench, 0, FIRST); /* not the plan's: context 1 was first */
    assert_int_equal(figures_of(&bench).followed_count, 1);
    assert_int_equal(figures_of(&bench).occupied_count, 0);
    workbench_drop(&bench, 1);
    const uint64_t first = workbench_alloc(&bench, 2, FIRST);
    assert_int_equal(workbench_alloc(&bench, 2, SECOND), first + FIRST);
    assert_int_equal(figures_of(&bench).followed_count, 3);
    workbench_close(&bench);
}

static void other_devices_and_tenants_follow_nothing(void **state)
{
    struct gc_plan elsewhere = plan;
    struct workbench bench;
    (void)state;
    elsewhere.device = 3;
    open_bench(&bench, &elsewhere, true, false);
    (void)workbench_alloc(&bench, 0, FIRST);
    assert_int_equal(figures_of(&bench).entry_count, 0);
    workbench_close(&bench);
    open_bench(&bench, &plan, true, false);
    struct gc_tenant *tenant = workbench_add_tenant(&bench, "one", GC_MIB(32), GC_MIB(32));
    (void)workbench_alloc_in(&bench, workbench_record(&bench, tenant, 0), FIRST);
    assert_int_equal(figures_of(&bench).entry_count, 0);
    workbench_close(&bench);
}

static void debug_aids_and_no_cache_follow_nothing(void **state)
{
    struct workbench_setup setup = {
        .mode = GC_MODE_TRACK, .capacity_bytes = GC_MIB(256), .trim_percent = 100, .plan = &plan};
    struct workbench bench;
    (void)state;
    workbench_open(&bench, &setup);
    (void)workbench_alloc(&bench, 0, FIRST);
    assert_int_equal(figures_of(&bench).entry_count, 0);
    workbench_close(&bench);
    setup.mode = GC_MODE_CACHE;
    setup.debug = GC_DEBUG_POISON;
    workbench_open(&bench, &setup);
    (void)workbench_alloc(&bench, 0, FIRST);
    assert_int_equal(figures_of(&bench).entry_count, 0);
    workbench_close(&bench);
}

/* Memory that is exported to other processes is a driver allocation of its own, as usual. */
static void whole_blocks_are_not_of_the_plan(void **state)
{
    struct workbench bench;
    (void)state;
    open_bench(&bench, &plan, true, false);
    const uint64_t first = workbench_alloc(&bench, 0, FIRST);
    const uint64_t whole = workbench_alloc_whole(&bench, 0, SECOND);
    assert_true(whole < first || whole >= first + GC_MIB(4));
    workbench_export(&bench, whole);
    assert_int_equal(workbench_alloc(&bench, 0, SECOND), first + FIRST);
    workbench_close(&bench);
}

/* A block that is the whole of the plan's allocation may be given away; the plan gets another. */
static void an_exported_segment_is_no_longer_the_plans(void **state)
{
    static const struct gc_plan_entry whole[] = {{.bytes = GC_MIB(4), .upper = 1}};
    struct gc_plan single = plan;
    struct workbench bench;
    (void)state;
    single.entries = whole;
    single.count = 1;
    open_bench(&bench, &single, false, false);
    const uint64_t first = workbench_alloc(&bench, 0, GC_MIB(4));
    workbench_export(&bench, first);
    const uint64_t second = workbench_alloc(&bench, 0, GC_MIB(4));
    assert_int_not_equal(second, first);
    assert_int_equal(figures_of(&bench).followed_count, 2);
    workbench_free(&bench, first);
    workbench_free(&bench, second);
    assert_int_equal(workbench_alloc(&bench, 0, GC_MIB(4)), second);
    workbench_close(&bench);
}

/* Trimmed away, the places come back with the next round. */
static void places_that_were_released_come_again(void **state)
{
    struct workbench bench;
    (void)state;
    for (unsigned has_mapping = 0; has_mapping < 2; has_mapping++) {
        open_bench(&bench, &plan, has_mapping != 0, false);
        workbench_free(&bench, workbench_alloc(&bench, 0, FIRST));
        gc_reclaim_trim(bench.core, bench.device, 0);
        assert_int_equal(gc_device_reserved_bytes(bench.device), 0);
        workbench_free(&bench, workbench_alloc(&bench, 0, SECOND));
        workbench_free(&bench, workbench_alloc(&bench, 0, THIRD));
        assert_int_equal(figures_of(&bench).followed_count, 3);
        workbench_check(&bench);
        workbench_close(&bench);
    }
}

/* No room for the plan: the pool serves what fits, and later the plan gets its room. */
static void a_limit_holds_against_the_plan(void **state)
{
    const struct workbench_setup setup = {.mode = GC_MODE_CACHE,
                                          .capacity_bytes = GC_MIB(64),
                                          .limit_bytes = FIRST,
                                          .trim_percent = 100,
                                          .plan = &plan};
    struct workbench bench;
    (void)state;
    workbench_open(&bench, &setup);
    workbench_free(&bench, workbench_alloc(&bench, 0, SECOND));
    assert_true(figures_of(&bench).memory_count > 0);
    gc_limit_set(bench.core, bench.device, GC_MIB(32));
    workbench_free(&bench, workbench_alloc(&bench, 0, THIRD));
    workbench_free(&bench, workbench_alloc(&bench, 0, FIRST));
    /* The third is the last of its round: asked for again from there on. */
    assert_int_equal(figures_of(&bench).followed_count, 2);
    workbench_close(&bench);
}

/* Memory that the plan holds and does not use serves what finds no other. */
static void idle_places_serve_others_before_there_is_none(void **state)
{
    const struct workbench_setup setup = {.mode = GC_MODE_CACHE,
                                          .capacity_bytes = GC_MIB(64),
                                          .limit_bytes = GC_MIB(4),
                                          .trim_percent = 100,
                                          .plan = &plan};
    struct workbench bench;
    (void)state;
    workbench_open(&bench, &setup);
    const uint64_t first = workbench_alloc(&bench, 0, FIRST);
    const uint64_t other = workbench_alloc(&bench, 0, 12345);
    assert_true(other >= first + FIRST && other < first + GC_MIB(4));
    workbench_close(&bench);
}

/* Pause and resume: the addresses stay. */
static void places_survive_a_swap(void **state)
{
    struct gc_swap_result result;
    struct workbench bench;
    (void)state;
    open_bench(&bench, &plan, true, false);
    const uint64_t first = workbench_alloc(&bench, 0, FIRST);
    assert_true(gc_swap_out_all(bench.contexts[0], true, &result));
    assert_int_equal(bench.sim.used_bytes, 0);
    assert_true(gc_swap_in(bench.contexts[0], &result));
    assert_int_equal(workbench_alloc(&bench, 0, SECOND), first + FIRST);
    workbench_close(&bench);
}

/* Threads keep nothing for themselves, so that the plan sees every request. */
static void threads_keep_no_blocks(void **state)
{
    struct workbench bench;
    uint64_t address;
    (void)state;
    open_bench(&bench, &plan, true, true);
    struct gc_tcache *cache = gc_tcache_create(bench.core);
    const struct gc_request request = {.bytes = 512, .api = API_MALLOC};
    for (unsigned i = 0; i < 10; i++) {
        assert_false(gc_tcache_alloc(cache, bench.contexts[0], &request, &address));
        address = workbench_alloc(&bench, 0, 512);
        assert_false(gc_tcache_free(bench.core, cache, address));
        workbench_free(&bench, address);
    }
    gc_tcache_destroy(bench.core, cache);
    workbench_close(&bench);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_get_their_places_in_mapped_memory),
        cmocka_unit_test(blocks_get_their_places_in_one_driver_allocation),
        cmocka_unit_test(blocks_for_network_cards_have_no_places),
        cmocka_unit_test(a_place_in_use_is_left_alone),
        cmocka_unit_test(sizes_that_are_not_in_the_plan_go_to_the_pool),
        cmocka_unit_test(a_place_is_not_taken_before_it_is_idle),
        cmocka_unit_test(a_stream_takes_the_places_it_freed),
        cmocka_unit_test(a_place_that_another_stream_freed_is_waited_for),
        cmocka_unit_test(captures_take_nothing_from_the_plan),
        cmocka_unit_test(one_context_follows_and_the_next_one_after_it),
        cmocka_unit_test(other_devices_and_tenants_follow_nothing),
        cmocka_unit_test(debug_aids_and_no_cache_follow_nothing),
        cmocka_unit_test(whole_blocks_are_not_of_the_plan),
        cmocka_unit_test(an_exported_segment_is_no_longer_the_plans),
        cmocka_unit_test(places_that_were_released_come_again),
        cmocka_unit_test(a_limit_holds_against_the_plan),
        cmocka_unit_test(idle_places_serve_others_before_there_is_none),
        cmocka_unit_test(places_survive_a_swap),
        cmocka_unit_test(threads_keep_no_blocks),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("follow", tests, NULL, NULL);
}
