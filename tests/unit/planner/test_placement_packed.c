/* Placements that fill every moment: rectangles cut to pieces, whose best peak is known, with steps
 * for no more than a look or two; and what is done when there is no time. */
#include "core/base/bits.h"
#include "core/plan/placement.h"
#include "tests/unit/cmocka_all.h"
#include "tests/unit/scratch.h"

#include <string.h>

#define COUNT_MAX 20000U
#define SIDE (UINT64_C(1) << 32)

static struct gc_region region;
static struct gc_placement_buffer buffers[COUNT_MAX];
static uint64_t cuts[COUNT_MAX]; /* where each was cut from */
static struct gc_placement_problem problem;
static struct gc_placement placement;
static struct scratch_random generator;

static int setup(void **state)
{
    (void)state;
    gc_region_init(&region, GC_MIB(512));
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    gc_region_fini(&region);
    return 0;
}

/* In [1, limit). */
static uint64_t draw(uint64_t limit)
{
    return 1 + scratch_next(&generator) % (limit - 1);
}

static void set(uint32_t i, uint64_t lower, uint64_t upper, uint64_t offset, uint64_t bytes)
{
    buffers[i] = (struct gc_placement_buffer){
        .lower = lower, .upper = upper, .bytes = bytes, .fixed = GC_PLACEMENT_FREE};
    cuts[i] = offset;
}

static void cut_in_two(uint32_t i)
{
    const struct gc_placement_buffer all = buffers[i];
    const uint64_t offset = cuts[i];
    const uint32_t added = problem.count++;
    if (scratch_next(&generator) % 2 == 0) {
        const uint64_t time = all.lower + draw(all.upper - all.lower);
        set(i, all.lower, time, offset, all.bytes);
        set(added, time, all.upper, offset, all.bytes);
    } else {
        const uint64_t bytes = draw(all.bytes);
        set(i, all.lower, all.upper, offset, bytes);
        set(added, all.lower, all.upper, offset + bytes, all.bytes - bytes);
    }
}

/* Five around each other, as no sequence of cuts from side to side makes them. */
static void cut_to_pinwheel(uint32_t i)
{
    const struct gc_placement_buffer all = buffers[i];
    const uint64_t offset = cuts[i];
    const uint64_t first = all.lower + draw((all.upper - all.lower) / 2);
    const uint64_t second = all.upper - draw((all.upper - all.lower) / 2);
    const uint64_t low = draw(all.bytes / 2);
    const uint64_t high = all.bytes - draw(all.bytes / 2);
    const uint32_t added = problem.count;
    problem.count += 4;
    set(i, all.lower, second, offset, low);
    set(added, second, all.upper, offset, high);
    set(added + 1, first, all.upper, offset + high, all.bytes - high);
    set(added + 2, all.lower, first, offset + low, all.bytes - low);
    set(added + 3, first, second, offset + low, high - low);
}

/* A rectangle of `time` and `bytes`; of three pieces the largest is cut next. */
static void cut(uint32_t count, uint64_t time, uint64_t bytes, unsigned pinwheels_pct)
{
    problem = (struct gc_placement_problem){buffers, 1, GC_PLACEMENT_UNLIMITED};
    set(0, 0, time, 0, bytes);
    while (problem.count + 4 < count) {
        uint32_t chosen = 0;
        double most = 0;
        for (unsigned n = 0; n < 3; n++) {
            const uint32_t i = (uint32_t)(scratch_next(&generator) % problem.count);
            const double area =
                (double)(buffers[i].upper - buffers[i].lower) * (double)buffers[i].bytes;
            if (area <= most || buffers[i].upper - buffers[i].lower < 8 || buffers[i].bytes < 8)
                continue;
            most = area;
            chosen = i;
        }
        if (most == 0)
            continue;
        if (scratch_next(&generator) % 100 < pinwheels_pct)
            cut_to_pinwheel(chosen);
        else
            cut_in_two(chosen);
    }
    for (uint32_t i = problem.count; i-- > 1;) {
        const uint32_t other = (uint32_t)(scratch_next(&generator) % (i + 1));
        const struct gc_placement_buffer kept = buffers[i];
        buffers[i] = buffers[other];
        buffers[other] = kept;
    }
}

static uint64_t most_alive(void)
{
    uint64_t most = 0;
    for (uint32_t i = 0; i < problem.count; i++) {
        uint64_t alive = 0;
        for (uint32_t n = 0; n < problem.count; n++)
            if (buffers[n].lower <= buffers[i].lower && buffers[n].upper > buffers[i].lower)
                alive += buffers[n].bytes;
        most = gc_max_u64(most, alive);
    }
    return most;
}

/* Solved to the optimum in at most so many steps of each buffer. */
static void expect_optimum(uint64_t bytes, uint64_t steps)
{
    struct gc_placement_fault fault;
    uint64_t peak = 0;
    const struct gc_placement_options options = {.seed = 1, .node_max = steps * problem.count};
    assert_int_equal(gc_placement_solve(&region, &problem, &options, &placement), GC_OK);
    assert_int_equal(gc_placement_check(&region, &problem, placement.offsets, &peak, &fault),
                     GC_OK);
    assert_int_equal(peak, placement.peak_bytes);
    assert_int_equal(placement.peak_bytes, bytes);
    assert_true(placement.optimal);
}

static void rectangles_cut_from_side_to_side(void **state)
{
    (void)state;
    generator = (struct scratch_random){3};
    for (uint32_t count = 50; count <= COUNT_MAX; count *= 20) {
        cut(count, SIDE, SIDE, 0);
        expect_optimum(SIDE, 40);
    }
}

static void rectangles_cut_to_pinwheels(void **state)
{
    (void)state;
    generator = (struct scratch_random){5};
    for (uint32_t count = 50; count <= COUNT_MAX; count *= 20) {
        cut(count, SIDE, SIDE, 100);
        expect_optimum(SIDE, 40);
        cut(count, SIDE, SIDE, 30);
        expect_optimum(SIDE, 40);
    }
}

/* Many begin and end at one time, and many are as large as others. */
static void coarse_rectangles(void **state)
{
    (void)state;
    unsigned solved = 0;
    for (unsigned round = 0; round < 10; round++) {
        generator = (struct scratch_random){round + 1};
        cut(600, 1500, 400, round % 2 * 30);
        const struct gc_placement_options options = {.seed = round, .node_max = 400000};
        assert_int_equal(gc_placement_solve(&region, &problem, &options, &placement), GC_OK);
        solved += placement.optimal;
    }
    assert_true(solved >= 8);
}

/* A few of the pieces are not there, some shorter or smaller. */
static void rectangles_with_holes(void **state)
{
    (void)state;
    for (unsigned round = 0; round < 8; round++) {
        generator = (struct scratch_random){round + 1};
        cut(1000, SIDE, SIDE, round % 2 * 30);
        problem.count -= 10;
        for (uint32_t i = 0; i < 5; i++) {
            buffers[i].upper -= (buffers[i].upper - buffers[i].lower) / 3;
            buffers[5 + i].bytes -= buffers[5 + i].bytes / 3;
        }
        expect_optimum(most_alive(), 60);
    }
}

static void alignment_is_kept_in_a_perfect_one(void **state)
{
    (void)state;
    generator = (struct scratch_random){8};
    cut(2000, SIDE, SIDE, 30);
    for (uint32_t i = 0; i < problem.count; i++) {
        buffers[i].bytes *= 256;
        buffers[i].alignment = 256;
    }
    expect_optimum(SIDE * 256, 40);
}

static void the_same_again(void **state)
{
    (void)state;
    generator = (struct scratch_random){21};
    cut(600, 900, 300, 30);
    const struct gc_placement_options options = {.seed = 4, .node_max = 60000};
    assert_int_equal(gc_placement_solve(&region, &problem, &options, &placement), GC_OK);
    const struct gc_placement once = placement;
    assert_int_equal(gc_placement_solve(&region, &problem, &options, &placement), GC_OK);
    assert_int_equal(placement.nodes, once.nodes);
    assert_memory_equal(placement.offsets, once.offsets, problem.count * sizeof(uint64_t));
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

/* However little time there is, there is a plan, and no pass is ended first. */
static void a_late_pass_is_cut_short(void **state)
{
    (void)state;
    struct gc_placement_fault fault;
    uint64_t peak;
    generator = (struct scratch_random){1};
    problem = (struct gc_placement_problem){buffers, COUNT_MAX, GC_PLACEMENT_UNLIMITED};
    for (uint32_t i = 0; i < COUNT_MAX; i++) {
        const uint64_t lower = draw(SIDE);
        set(i, lower, lower + draw(SIDE / 16), 0, draw(GC_MIB(1)));
        buffers[i].alignment = i % 3 == 0 ? 64 : 1;
        if (i % 1000 == 0)
            buffers[i].fixed = (uint64_t)i * GC_MIB(64);
    }
    for (unsigned look_max = 1; look_max < 400; look_max *= 7) {
        struct clock clock = {.look_max = look_max};
        const struct gc_placement_options options = {.watch = watch, .watch_argument = &clock};
        assert_int_equal(gc_placement_solve(&region, &problem, &options, &placement), GC_OK);
        assert_int_equal(gc_placement_check(&region, &problem, placement.offsets, &peak, &fault),
                         GC_OK);
        assert_int_equal(clock.looks, look_max);
        assert_true(placement.nodes < COUNT_MAX);
        assert_int_equal(peak, placement.peak_bytes);
    }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(rectangles_cut_from_side_to_side),
        TEST(rectangles_cut_to_pinwheels),
        TEST(coarse_rectangles),
        TEST(rectangles_with_holes),
        TEST(alignment_is_kept_in_a_perfect_one),
        TEST(the_same_again),
        TEST(a_late_pass_is_cut_short),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
