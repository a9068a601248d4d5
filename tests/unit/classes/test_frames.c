/* Places of a class, and the conditions under which they are all that can be the peak. */
#include "tests/unit/cmocka_all.h"

#include "core/classes/frames.h"

static struct gc_frames frames;

static void a_condition_is_no_place(void **state)
{
    struct gc_frame_load load = {.batch = 3, .tokens = 25, .element_bytes = 2, .shards = 1};
    uint64_t bytes;
    (void)state;
    frames = (struct gc_frames){
        .count = 2,
        .is_exact = true,
        .items = {{.text = "D*B*S"}, {.text = "(4*S)//max(1,100)", .is_condition = true}},
    };
    assert_int_equal(gc_frames_bytes(&frames, &load, &bytes), GC_OK);
    assert_int_equal(bytes, 150);
    assert_true(gc_frames_are_exact(&frames, &load));
    load.tokens = 24;
    assert_false(gc_frames_are_exact(&frames, &load));
    load.tokens = 1000000;
    assert_int_equal(gc_frames_bytes(&frames, &load, &bytes), GC_OK);
    assert_int_equal(bytes, 6000000);
    assert_true(gc_frames_are_exact(&frames, &load));
    frames.is_exact = false;
    assert_false(gc_frames_are_exact(&frames, &load));
}

static void a_condition_that_is_unknown_does_not_hold(void **state)
{
    const struct gc_frame_load load = {.batch = 1, .tokens = 1, .element_bytes = 2, .shards = 1};
    (void)state;
    frames = (struct gc_frames){
        .count = 1,
        .is_exact = true,
        .items = {{.text = "S//0", .is_condition = true}},
    };
    assert_false(gc_frames_are_exact(&frames, &load));
}

static void a_place_less_than_nothing_is_none_and_told(void **state)
{
    struct gc_frame_load load = {.batch = 1, .tokens = 9, .element_bytes = 2, .shards = 1};
    uint64_t bytes;
    (void)state;
    frames = (struct gc_frames){
        .count = 2,
        .is_exact = true,
        .items = {{.text = "D*B*S"}, {.text = "D*(100*B-10*S)"}},
    };
    assert_int_equal(gc_frames_bytes(&frames, &load, &bytes), GC_OK);
    assert_int_equal(bytes, 20);
    assert_true(gc_frames_are_exact(&frames, &load));
    load.tokens = 11;
    assert_int_equal(gc_frames_bytes(&frames, &load, &bytes), GC_OK);
    assert_int_equal(bytes, 22);
    assert_false(gc_frames_are_exact(&frames, &load));
}

static void scores_are_a_place_of_their_own(void **state)
{
    struct gc_frame_load load = {.batch = 3, .tokens = 1, .element_bytes = 2, .shards = 1};
    uint64_t bytes;
    (void)state;
    frames = (struct gc_frames){.count = 1, .scores = 1001, .items = {{.text = "D*B*S*1000"}}};
    assert_int_equal(gc_frames_bytes(&frames, &load, &bytes), GC_OK);
    assert_int_equal(bytes, 6006);
    load.tokens = 2;
    assert_int_equal(gc_frames_bytes(&frames, &load, &bytes), GC_OK);
    assert_int_equal(bytes, 12000);
    load.tokens = 1;
    load.shards = 2;
    assert_int_equal(gc_frames_bytes(&frames, &load, &bytes), GC_OK);
    assert_int_equal(bytes, 3006);
    frames.scores = UINT64_MAX;
    assert_int_equal(gc_frames_bytes(&frames, &load, &bytes), GC_OVERFLOW);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_condition_is_no_place),
        cmocka_unit_test(a_condition_that_is_unknown_does_not_hold),
        cmocka_unit_test(a_place_less_than_nothing_is_none_and_told),
        cmocka_unit_test(scores_are_a_place_of_their_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
