/* Placement: every plan is held against a look at all pairs, by code that is neither the solver's
 * nor the validator's. */
#include "core/base/bits.h"
#include "core/plan/placement.h"
#include "core/planner/search.h"
#include "tests/unit/cmocka_all.h"
#include "tests/unit/scratch.h"

#include <string.h>

#define COUNT_MAX 20000
#define SIDE (UINT64_C(1) << 32)

static struct gc_region region;
static struct gc_placement_buffer buffers[COUNT_MAX];
static struct gc_placement_problem problem;
static struct gc_placement placement;

static int setup(void **state)
{
    (void)state;
    gc_region_init(&region, GC_MIB(256));
    memset(buffers, 0, sizeof(buffers));
    problem = (struct gc_placement_problem){buffers, 0, GC_PLACEMENT_UNLIMITED};
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    gc_region_fini(&region);
    return 0;
}

static void add(uint64_t lower, uint64_t upper, uint64_t bytes)
{
    buffers[problem.count++] = (struct gc_placement_buffer){
        .lower = lower, .upper = upper, .bytes = bytes, .fixed = GC_PLACEMENT_FREE};
}

static void add_fixed(uint64_t lower, uint64_t upper, uint64_t bytes, uint64_t offset)
{
    add(lower, upper, bytes);
    buffers[problem.count - 1].fixed = offset;
}

static void add_aligned(uint64_t lower, uint64_t upper, uint64_t bytes, uint64_t alignment)
{
    add(lower, upper, bytes);
    buffers[problem.count - 1].alignment = alignment;
}

/* Are the two in each other's way at these offsets? */
static bool collide(const uint64_t *offsets, uint32_t i, uint32_t j)
{
    const struct gc_placement_buffer *a = &buffers[i];
    const struct gc_placement_buffer *b = &buffers[j];
    return a->lower < b->upper && b->lower < a->upper && a->bytes > 0 && b->bytes > 0 &&
           offsets[i] < offsets[j] + b->bytes && offsets[j] < offsets[i] + a->bytes;
}

static bool is_valid(const uint64_t *offsets)
{
    for (uint32_t i = 0; i < problem.count; i++) {
        if (buffers[i].fixed != GC_PLACEMENT_FREE && offsets[i] != buffers[i].fixed)
            return false;
        if (buffers[i].alignment > 1 && offsets[i] % buffers[i].alignment != 0)
            return false;
        for (uint32_t j = 0; j < i; j++)
            if (collide(offsets, i, j))
                return false;
    }
    return true;
}

/* Solves, and checks all that must hold whatever comes out. */
static void solve_with(const struct gc_placement_options *options)
{
    assert_int_equal(gc_solve_placement(&region, &problem, options, &placement), GC_OK);
    assert_true(is_valid(placement.offsets));
    uint64_t peak = 0;
    for (uint32_t i = 0; i < problem.count; i++)
        if (buffers[i].bytes > 0 && placement.offsets[i] + buffers[i].bytes > peak)
            peak = placement.offsets[i] + buffers[i].bytes;
    assert_int_equal(placement.peak_bytes, peak);
    assert_true(placement.lower_bound_bytes <= peak);
    assert_true(placement.optimal == (placement.lower_bound_bytes == peak));
    assert_true(placement.fits == (peak <= problem.capacity_bytes));
}

static void solve(void)
{
    solve_with(NULL);
}

static void expect_peak(uint64_t bytes)
{
    solve();
    assert_int_equal(placement.peak_bytes, bytes);
    assert_true(placement.optimal);
}

static void nothing_takes_nothing(void **state)
{
    (void)state;
    expect_peak(0);
    add(0, 10, 0);
    add(0, UINT64_MAX, 0);
    expect_peak(0);
    problem.capacity_bytes = 0;
    expect_peak(0);
    assert_true(placement.fits);
}

static void touching_lifetimes_share(void **state)
{
    (void)state;
    add(0, 5, 100);
    add(5, 9, 100);
    add(9, UINT64_MAX, 100);
    expect_peak(100);
    add(4, 6, 7);
    expect_peak(107);
}

static void capacity_at_and_below_the_bound(void **state)
{
    (void)state;
    add(0, 3, 4);
    add(3, 9, 4);
    add(0, 9, 4);
    add(9, 21, 4);
    add(0, 21, 4);
    problem.capacity_bytes = 12;
    solve();
    assert_true(placement.fits);
    assert_int_equal(placement.lower_bound_bytes, 12);
    problem.capacity_bytes = 11;
    solve();
    assert_false(placement.fits);
    assert_int_equal(placement.lower_bound_bytes, 12);
}

static void alignment_is_kept(void **state)
{
    (void)state;
    add_aligned(0, 10, 100, 64);
    add_aligned(0, 10, 100, 64);
    expect_peak(228);
    add_aligned(0, 10, 1, 1000);
    solve();
    add_aligned(0, 5, 3, 7);
    add_aligned(5, 10, 3, 1);
    solve();
}

static void fixed_ones_stay(void **state)
{
    (void)state;
    add_fixed(0, 10, 100, 50);
    add(0, 10, 50);
    add(5, 15, 60);
    add(12, 15, 90);
    expect_peak(210);
    assert_int_equal(placement.offsets[1], 0);
    assert_int_equal(placement.offsets[2], 150);
    add_fixed(20, 30, 5, 1000);
    expect_peak(1005);
}

static void broken_buffers_are_refused(void **state)
{
    (void)state;
    add(5, 5, 1);
    assert_int_equal(gc_solve_placement(&region, &problem, NULL, &placement), GC_INVALID_ARGUMENT);
    buffers[0].lower = 4;
    add_fixed(0, 9, 8, 100);
    add_fixed(8, 10, 8, 107);
    assert_int_equal(gc_solve_placement(&region, &problem, NULL, &placement), GC_INVALID_ARGUMENT);
    buffers[2].fixed = 108;
    solve();
    buffers[2].alignment = 7;
    assert_int_equal(gc_solve_placement(&region, &problem, NULL, &placement), GC_INVALID_ARGUMENT);
}

static void sizes_beyond_64_bits_are_refused(void **state)
{
    (void)state;
    add(0, 5, UINT64_MAX / 2 + 1);
    add(5, 9, UINT64_MAX / 2);
    solve();
    assert_int_equal(placement.peak_bytes, UINT64_MAX / 2 + 1);
    add(0, 2, 1);
    assert_int_equal(gc_solve_placement(&region, &problem, NULL, &placement), GC_OVERFLOW);
    problem.count = 0;
    add_aligned(0, 1, 1, UINT64_MAX);
    add_aligned(0, 1, 1, UINT64_MAX);
    assert_int_equal(gc_solve_placement(&region, &problem, NULL, &placement), GC_OVERFLOW);
    problem.count = 0;
    add_fixed(0, 1, 2, UINT64_MAX - 1);
    assert_int_not_equal(gc_solve_placement(&region, &problem, NULL, &placement), GC_OK);
}

/* Where the memory is enough for best fit, more of it never fails, wherever a search ends by it. */
static void memory_is_limited(void **state)
{
    (void)state;
    const struct gc_placement_options options = {.node_max = 20000};
    uint64_t enough = 0;
    uint64_t peak = 0;
    struct scratch_random random = {7};
    for (uint32_t i = 0; i < 500; i++) {
        const uint64_t lower = scratch_next(&random) % 1000;
        add(lower, lower + 1 + scratch_next(&random) % 50, scratch_next(&random) % 100);
    }
    for (uint64_t limit = 0; enough == 0 || limit < enough + GC_MIB(1); limit += GC_KIB(16)) {
        struct gc_region small;
        gc_region_init(&small, limit);
        const enum gc_status status = gc_solve_placement(&small, &problem, &options, &placement);
        gc_region_fini(&small);
        assert_int_equal(status, enough > 0 || status == GC_OK ? GC_OK : GC_NO_HOST_MEMORY);
        assert_true(limit < GC_MIB(64));
        if (status != GC_OK)
            continue;
        peak = enough == 0 ? placement.peak_bytes : peak;
        enough = enough == 0 ? limit : enough;
        assert_true(placement.peak_bytes <= peak);
    }
    assert_true(placement.peak_bytes < peak);
}

/* ---- at random ---- */

enum kind { PLAIN, ALIGNED, FIXED, KIND_COUNT };

static void fill_randomly(struct scratch_random *random, enum kind kind, uint32_t count,
                          uint64_t times, uint64_t bytes_max)
{
    static const uint64_t alignments[] = {0, 1, 2, 3, 4, 8, 12};
    problem.count = 0;
    for (uint32_t i = 0; i < count; i++) {
        const uint64_t lower = scratch_next(random) % times;
        add(lower, lower + 1 + scratch_next(random) % (times / 2 + 1),
            scratch_next(random) % (bytes_max + 1));
        if (kind == ALIGNED)
            buffers[i].alignment = alignments[scratch_next(random) % 7];
        if (kind == FIXED && scratch_next(random) % 4 == 0)
            buffers[i].fixed = scratch_next(random) % (bytes_max * 3);
    }
    /* Fixed ones that collide become free. */
    for (uint32_t i = 0; kind == FIXED && i < count; i++)
        for (uint32_t j = 0; j < i; j++) {
            const uint64_t offsets[2] = {buffers[i].fixed, buffers[j].fixed};
            if (offsets[0] == GC_PLACEMENT_FREE || offsets[1] == GC_PLACEMENT_FREE)
                continue;
            if (buffers[i].lower < buffers[j].upper && buffers[j].lower < buffers[i].upper &&
                offsets[0] < offsets[1] + buffers[j].bytes &&
                offsets[1] < offsets[0] + buffers[i].bytes)
                buffers[i].fixed = GC_PLACEMENT_FREE;
        }
}

static void random_plans_are_valid(void **state)
{
    (void)state;
    struct scratch_random random = {2026};
    for (unsigned round = 0; round < 150; round++) {
        fill_randomly(&random, (enum kind)(round % KIND_COUNT), 1 + round, 1 + round * 3 % 200,
                      1 + scratch_next(&random) % 1000);
        const struct gc_placement_options options = {.seed = round, .node_max = 2000};
        solve_with(&options);
    }
}

/* The lowest offset of a buffer that no placed one forbids; `placed` are bits of buffers. */
static uint64_t fit(const uint64_t *offsets, uint32_t placed, uint32_t buffer)
{
    const uint64_t unit = buffers[buffer].alignment > 1 ? buffers[buffer].alignment : 1;
    uint64_t trial[8];
    memcpy(trial, offsets, sizeof(trial));
    trial[buffer] = 0;
    for (uint32_t other = 0; other < problem.count; other++) {
        if ((placed >> other & 1) == 0 || !collide(trial, buffer, other))
            continue;
        trial[buffer] = (offsets[other] + buffers[other].bytes + unit - 1) / unit * unit;
        other = UINT32_MAX; /* from the start */
    }
    return trial[buffer];
}

/* The least peak of all orders of first fit, among which is that of a best plan by offset. */
static uint64_t least_peak(uint64_t *offsets, uint32_t placed, uint64_t peak, uint64_t best)
{
    if (peak >= best)
        return best;
    if (placed == (1U << problem.count) - 1)
        return peak;
    for (uint32_t i = 0; i < problem.count; i++) {
        if ((placed >> i & 1) != 0)
            continue;
        offsets[i] = fit(offsets, placed, i);
        const uint64_t end = buffers[i].bytes == 0 ? 0 : offsets[i] + buffers[i].bytes;
        best = least_peak(offsets, placed | 1U << i, end > peak ? end : peak, best);
    }
    return best;
}

static void small_problems_are_solved_to_the_optimum(void **state)
{
    (void)state;
    struct scratch_random random = {404};
    unsigned above_bound = 0;
    for (unsigned round = 0; round < 1500; round++) {
        const enum kind kind = (enum kind)(round % KIND_COUNT);
        fill_randomly(&random, kind, 1 + round % (kind == FIXED ? 8 : 7), 2 + round % 11,
                      1 + round % 17);
        uint64_t offsets[8] = {0};
        uint64_t peak = 0;
        uint32_t placed = 0;
        for (uint32_t i = 0; i < problem.count; i++) {
            if (buffers[i].fixed == GC_PLACEMENT_FREE)
                continue;
            offsets[i] = buffers[i].fixed;
            placed |= 1U << i;
            if (buffers[i].bytes > 0 && offsets[i] + buffers[i].bytes > peak)
                peak = offsets[i] + buffers[i].bytes;
        }
        const uint64_t best = least_peak(offsets, placed, peak, UINT64_MAX);
        const struct gc_placement_options options = {.seed = round};
        problem.capacity_bytes = GC_PLACEMENT_UNLIMITED;
        solve_with(&options);
        if (!placement.optimal || placement.peak_bytes != best)
            fail_msg("round %u: peak %llu, bound %llu, the best is %llu", round,
                     (unsigned long long)placement.peak_bytes,
                     (unsigned long long)placement.lower_bound_bytes, (unsigned long long)best);
        problem.capacity_bytes = best - (best > 0 && round % 2 == 1);
        solve_with(&options);
        assert_true(placement.fits == (problem.capacity_bytes == best));
        above_bound += placement.nodes > 8 * problem.count;
    }
    assert_true(above_bound > 20);
}

/* The bound rises towards the only place of the third one: by halves, as bytes would take too long.
 */
static void a_bound_far_below_the_peak_is_proven(void **state)
{
    (void)state;
    const struct gc_placement_options options = {.node_max = 2000};
    add_aligned(0, 9, 2009, 9);
    add_fixed(0, 9, 10, 18);
    add_aligned(4, 12, 30, UINT64_C(74294967296));
    add_fixed(9, 15, 1, 8);
    solve_with(&options);
    assert_true(placement.optimal);
}

/* The validator against all pairs: valid plans, and the same with one buffer moved. */
static void the_validator_agrees_with_all_pairs(void **state)
{
    (void)state;
    struct scratch_random random = {77};
    unsigned faults = 0;
    for (unsigned round = 0; round < 2000; round++) {
        uint64_t offsets[64];
        uint64_t peak;
        struct gc_placement_fault fault;
        fill_randomly(&random, (enum kind)(round % KIND_COUNT), 2 + round % 60, 1 + round % 30, 9);
        const struct gc_placement_options options = {.node_max = 1};
        solve_with(&options);
        memcpy(offsets, placement.offsets, problem.count * sizeof(offsets[0]));
        offsets[scratch_next(&random) % problem.count] += scratch_next(&random) % 5;
        const bool valid = is_valid(offsets);
        const enum gc_status status = gc_placement_check(&region, &problem, offsets, &peak, &fault);
        assert_int_equal(status, valid ? GC_OK : GC_INVALID_ARGUMENT);
        if (valid)
            continue;
        faults++;
        assert_non_null(fault.what);
        if (strcmp(fault.what, "overlap") == 0)
            assert_true(collide(offsets, fault.first, fault.second));
        else
            assert_int_equal(fault.first, fault.second);
    }
    assert_true(faults > 200 && faults < 1900);
}

static void the_same_again(void **state)
{
    (void)state;
    struct scratch_random random = {21};
    for (uint32_t i = 0; i < 600; i++) {
        const uint64_t lower = scratch_next(&random) % 900;
        add(lower, lower + 1 + scratch_next(&random) % 60, 1 + scratch_next(&random) % 300);
    }
    const struct gc_placement_options options = {.seed = 4, .node_max = 60000};
    solve_with(&options);
    const struct gc_placement once = placement;
    solve_with(&options);
    assert_int_equal(placement.nodes, once.nodes);
    assert_memory_equal(placement.offsets, once.offsets, problem.count * sizeof(uint64_t));
}

/* The peak of a plain allocator: the smallest hole between the live ones, the lowest of several, or
 * the end. Slow and plain. */
static uint64_t best_fit_peak(uint64_t *offsets)
{
    uint32_t live[COUNT_MAX]; /* by offset */
    uint32_t count = 0;
    uint64_t peak = 0;
    for (uint32_t i = 0; i < problem.count; i++) { /* which are in order of time */
        uint32_t kept = 0;
        uint64_t hole = 0;
        uint64_t least = UINT64_MAX;
        for (uint32_t n = 0; n < count; n++)
            if (buffers[live[n]].upper > buffers[i].lower)
                live[kept++] = live[n];
        count = kept;
        for (uint32_t n = 0; n < count; n++) {
            const uint64_t bytes = offsets[live[n]] - hole;
            if (bytes >= buffers[i].bytes && bytes < least) {
                least = bytes;
                offsets[i] = hole;
            }
            hole = offsets[live[n]] + buffers[live[n]].bytes;
        }
        if (least == UINT64_MAX)
            offsets[i] = hole;
        uint32_t at = count++;
        for (; at > 0 && offsets[live[at - 1]] > offsets[i]; at--)
            live[at] = live[at - 1];
        live[at] = i;
        if (offsets[i] + buffers[i].bytes > peak)
            peak = offsets[i] + buffers[i].bytes;
    }
    return peak;
}

static bool never(void *argument, uint64_t bound, uint64_t peak, uint64_t nodes)
{
    (void)argument;
    (void)bound;
    (void)peak;
    (void)nodes;
    return false;
}

/* Without any time the plan is a plain allocator's; with time it is no worse. */
static void no_plan_is_behind_best_fit(void **state)
{
    (void)state;
    static uint64_t offsets[COUNT_MAX];
    const struct gc_placement_options at_once = {.node_max = 1, .watch = never};
    const struct gc_placement_options soon = {.node_max = 5000};
    for (unsigned round = 0; round < 60; round++) {
        struct scratch_random random = {round};
        uint64_t now = 0;
        problem.count = 0;
        for (uint32_t i = 0; i < 20 + 30 * round; i++) {
            now += scratch_next(&random) % 3;
            add(now, now + 1 + (scratch_next(&random) % 40 << scratch_next(&random) % 5),
                1 + scratch_next(&random) % (round % 2 == 0 ? 5 : 5000));
        }
        const uint64_t peak = best_fit_peak(offsets);
        solve_with(&at_once);
        assert_true(placement.peak_bytes <= peak);
        if (problem.count > 32) /* no pass of first fit has ended */
            assert_memory_equal(placement.offsets, offsets, problem.count * sizeof(uint64_t));
        solve_with(&soon);
        assert_true(placement.peak_bytes <= peak);
    }
}

struct clock {
    unsigned looks;
    unsigned look_max;
};

static bool watch(void *argument, uint64_t bound, uint64_t peak, uint64_t nodes)
{
    struct clock *clock = argument;
    (void)nodes;
    assert_true(peak >= bound);
    return ++clock->looks < clock->look_max;
}

/* However little time there is, the solver ends in time and with a plan. */
static void a_late_pass_is_cut_short(void **state)
{
    (void)state;
    struct gc_placement_fault fault;
    struct scratch_random random = {1};
    uint64_t peak;
    for (uint32_t i = 0; i < COUNT_MAX; i++) {
        const uint64_t lower = scratch_next(&random) % SIDE;
        add(lower, lower + 1 + scratch_next(&random) % (SIDE / 16),
            1 + scratch_next(&random) % GC_MIB(1));
        buffers[i].alignment = i % 3 == 0 ? 64 : 1;
        if (i % 1000 == 0)
            buffers[i].fixed = (uint64_t)i * GC_MIB(64);
    }
    for (unsigned look_max = 1; look_max < 400; look_max *= 7) {
        struct clock clock = {.look_max = look_max};
        const struct gc_placement_options options = {.watch = watch, .watch_argument = &clock};
        assert_int_equal(gc_solve_placement(&region, &problem, &options, &placement), GC_OK);
        assert_int_equal(gc_placement_check(&region, &problem, placement.offsets, &peak, &fault),
                         GC_OK);
        assert_int_equal(clock.looks, look_max);
        assert_true(placement.nodes < COUNT_MAX);
        assert_int_equal(peak, placement.peak_bytes);
    }
}

/* All searches share a memo: a failed state of one component must never be another's. */
static void components_have_states_of_their_own(void **state)
{
    (void)state;
    struct gc_place_components components;
    struct gc_place_model models[2];
    add(0, 2, 1);
    add(1, 3, 1);
    add(10, 12, 1);
    add(11, 13, 1);
    assert_int_equal(gc_place_prepare(&region, &problem, &components), GC_OK);
    assert_int_equal(components.count, 2);
    for (uint32_t p = 0; p < 2; p++)
        assert_int_equal(
            gc_model_of_component(&models[p], &region, &components.components[p], 10, 1), GC_OK);
    for (uint32_t i = 0; i < models[0].count; i++)
        for (uint32_t j = 0; j < models[1].count; j++)
            assert_int_not_equal(models[0].marks[i], models[1].marks[j]);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(nothing_takes_nothing),
        TEST(touching_lifetimes_share),
        TEST(capacity_at_and_below_the_bound),
        TEST(alignment_is_kept),
        TEST(fixed_ones_stay),
        TEST(broken_buffers_are_refused),
        TEST(sizes_beyond_64_bits_are_refused),
        TEST(memory_is_limited),
        TEST(random_plans_are_valid),
        TEST(small_problems_are_solved_to_the_optimum),
        TEST(a_bound_far_below_the_peak_is_proven),
        TEST(the_validator_agrees_with_all_pairs),
        TEST(the_same_again),
        TEST(no_plan_is_behind_best_fit),
        TEST(a_late_pass_is_cut_short),
        TEST(components_have_states_of_their_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
