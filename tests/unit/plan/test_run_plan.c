/* Plans of runs: the file and everything its reader refuses, the steps of a run, and which entry an
 * allocation is. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/base/bits.h"
#include "core/plan/match.h"
#include "core/schedule/run_place.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define KIB UINT64_C(1024)

/* ---- the file ---- */

/* Three places, of which the first and the third are one after the other. */
static const struct gc_plan_entry sample_entries[] = {
    {.bytes = 4 * KIB, .offset = 0, .lower = 0, .upper = 2},
    {.bytes = 2 * KIB, .offset = 4 * KIB, .lower = 1, .upper = 5, .stream = 1},
    {.bytes = 3 * KIB, .offset = 512, .lower = 3, .upper = 5},
};
static const struct gc_plan sample = {.entries = sample_entries,
                                      .count = 3,
                                      .loop_start = 1,
                                      .stream_count = 2,
                                      .end_time = 5,
                                      .device = 2,
                                      .peak_bytes = 6 * KIB};

struct file {
    struct gc_plan_header header;
    struct gc_plan_entry entries[3];
    unsigned char more[8];
};
#define FILE_BYTES (sizeof(struct gc_plan_header) + 3 * sizeof(struct gc_plan_entry))

static struct file write_sample(void)
{
    struct file file = {.more = {0}};
    struct gc_writer out;
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    gc_writer_init(&out, ends[1]);
    gc_plan_write(&sample, &out);
    assert_int_equal(gc_writer_flush(&out), GC_OK);
    assert_int_equal(read(ends[0], &file, sizeof(file)), FILE_BYTES);
    close(ends[0]);
    close(ends[1]);
    return file;
}

static enum gc_status read_file(const struct file *file, size_t bytes, struct gc_plan_error *error)
{
    struct gc_region region;
    struct gc_plan plan;
    gc_region_init(&region, GC_PLAN_REGION_BYTES_MAX);
    const enum gc_status status = gc_plan_read(&region, file, bytes, &plan, error);
    gc_region_fini(&region);
    return status;
}

static void seal(struct file *file)
{
    file->header.checksum = gc_plan_checksum(&file->header, file->entries);
}

static void refuses(struct file *file, const char *why)
{
    struct gc_plan_error error;
    seal(file);
    if (read_file(file, FILE_BYTES, &error) != GC_FORMAT || strstr(error.text, why) == NULL)
        fail_msg("wanted: %s; got: %s", why, error.text);
    *file = write_sample();
}

static void what_is_written_is_read(void **state)
{
    struct gc_region region;
    struct gc_plan plan;
    struct gc_plan_error error;
    (void)state;
    const struct file file = write_sample();
    gc_region_init(&region, GC_PLAN_REGION_BYTES_MAX);
    assert_int_equal(gc_plan_read(&region, &file, FILE_BYTES, &plan, &error), GC_OK);
    assert_int_equal(plan.count, 3);
    assert_int_equal(plan.loop_start, 1);
    assert_int_equal(plan.stream_count, 2);
    assert_int_equal(plan.end_time, 5);
    assert_int_equal(plan.device, 2);
    assert_int_equal(plan.peak_bytes, 6 * KIB);
    assert_memory_equal(plan.entries, sample_entries, sizeof(sample_entries));
    gc_region_fini(&region);
}

static void every_rule_of_the_file_is_checked(void **state)
{
    struct file file = write_sample();
    (void)state;
    file.header.version = 1;
    refuses(&file, "a plan of version 1; accepted: 2");
    file.header.header_bytes = 72;
    refuses(&file, "a header of 72 bytes and entries of 32");
    file.header.entry_bytes = 24;
    refuses(&file, "entries of 24");
    file.header.loop_time = 6;
    refuses(&file, "repeats from time 6 on; it ends at 5");
    file.header.unused = 1;
    refuses(&file, "the header's last word");
    file.header.count = 0xffffffff;
    file.header.checksum = 0;
    struct gc_plan_error error;
    assert_int_equal(read_file(&file, FILE_BYTES, &error), GC_FORMAT);
    assert_non_null(strstr(error.text, "160 bytes; with 4294967295 entries it has 137438953504"));
    file = write_sample();
    file.header.loop_start = 3;
    refuses(&file, "repeats from entry 3 on; there are 3");
    file.header.stream_count = 65;
    refuses(&file, "65 streams; accepted: 1 to 64");
    file.header.stream_count = 1;
    refuses(&file, "entry 1: stream 1; there are 1");
    file.header.device = 256;
    refuses(&file, "device 256; accepted: 0 to 255");
    file.header.peak_bytes = 6 * KIB + 1;
    refuses(&file, "a peak of 6145 bytes; accepted: multiples of 512");
    file.header.peak_bytes = 7 * KIB;
    refuses(&file, "the header's peak is 7168 bytes; that of the entries is 6144");
    file.header.peak_bytes = 5 * KIB;
    refuses(&file, "entry 1: reaches beyond the peak of 5120 bytes");
    file.entries[0].bytes = 4000;
    refuses(&file, "entry 0: 4000 bytes; accepted: multiples of 512");
    file.entries[0].bytes = 0;
    refuses(&file, "entry 0: 0 bytes");
    file.entries[2].offset = 1;
    refuses(&file, "entry 2: at offset 1");
    file.entries[2].offset = UINT64_MAX - 511;
    refuses(&file, "entry 2: reaches beyond the peak");
    file.entries[2].bytes = UINT64_MAX - 511;
    refuses(&file, "entry 2: reaches beyond the peak");
    file.entries[1].upper = 1;
    refuses(&file, "entry 1: alive from 1 to 1, of 5");
    file.entries[0].upper = 6;
    refuses(&file, "entry 0: alive from 0 to 6, of 5");
    file.entries[1].upper = 7;
    refuses(&file, "entry 1: alive from 1 to 7, of 5");
    file.entries[1].unused = 7;
    refuses(&file, "entry 1: its last word is 7");
    file.entries[0].upper = 4;
    refuses(&file, "entries 0 and 2: ");
}

static void a_file_that_was_cut_or_changed_is_refused(void **state)
{
    const struct file file = write_sample();
    struct gc_plan_error error;
    (void)state;
    assert_int_equal(read_file(&file, FILE_BYTES, &error), GC_OK);
    for (size_t bytes = 0; bytes < FILE_BYTES; bytes++)
        assert_int_equal(read_file(&file, bytes, &error), GC_FORMAT);
    assert_int_equal(read_file(&file, FILE_BYTES + 1, &error), GC_FORMAT);
    for (size_t at = 0; at < FILE_BYTES; at++) {
        struct file changed = file;
        ((unsigned char *)&changed)[at] ^= 0x10;
        assert_int_equal(read_file(&changed, FILE_BYTES, &error), GC_FORMAT);
        assert_true(error.text[0] != '\0');
    }
}

static void what_is_no_readable_file_is_refused(void **state)
{
    struct gc_region region;
    struct gc_plan plan;
    struct gc_plan_error error;
    (void)state;
    gc_region_init(&region, GC_PLAN_REGION_BYTES_MAX);
    assert_int_equal(gc_plan_load(&region, "/nowhere/run.plan", &plan, &error), GC_IO);
    assert_non_null(strstr(error.text, "there is no such file"));
    assert_int_equal(gc_plan_load(&region, "/dev/null", &plan, &error), GC_IO);
    assert_non_null(strstr(error.text, "is no regular file"));
    assert_int_equal(gc_plan_load(&region, "/proc/self/status", &plan, &error), GC_FORMAT);
    gc_region_fini(&region);
}

/* ---- steps ---- */

#define EVENTS_MAX 20000

static struct gc_run_event events[EVENTS_MAX];
static uint32_t event_count;
static uint32_t slot_next;
static struct gc_region region_of_run;
static struct gc_run_problem problem;

static uint32_t make(uint64_t bytes)
{
    events[event_count++] = (struct gc_run_event){.bytes = bytes, .slot = slot_next};
    return slot_next++;
}

static void drop(uint32_t slot)
{
    events[event_count++] = (struct gc_run_event){.slot = slot};
}

static void begin_run(void)
{
    event_count = 0;
    slot_next = 0;
    gc_region_init(&region_of_run, UINT64_C(1) << 28);
}

static void solve_run(void)
{
    assert_int_equal(gc_run_problem_make(&region_of_run, events, event_count, slot_next, &problem),
                     GC_OK);
}

/* Layers forward, and back in the opposite order. */
static void one_step(uint32_t layers)
{
    uint32_t held[32];
    for (uint32_t i = 0; i < layers; i++) {
        held[i] = make((i + 1) * 8 * KIB);
        drop(make((i + 3) * 5 * KIB));
    }
    for (uint32_t i = layers; i-- > 0;)
        drop(held[i]);
}

static void equal_steps_are_found_behind_what_comes_before(void **state)
{
    (void)state;
    begin_run();
    for (uint32_t i = 0; i < 10; i++)
        (void)make((100 + i) * KIB);
    for (uint32_t i = 0; i < 8; i++)
        one_step(12);
    solve_run();
    assert_int_equal(problem.steps.period, 48);
    assert_int_equal(problem.steps.start, 10);
    assert_int_equal(problem.steps.count, 8);
    assert_int_equal(problem.loop_start, 10);
    assert_int_equal(problem.count, 10 + 24);
    assert_int_equal(problem.end_time, 10 + 48);
    assert_int_equal(problem.lasting_count, 10);
    assert_int_equal(problem.rounds, 1);
    gc_region_fini(&region_of_run);
}

static void a_few_deviations_do_not_hide_steps(void **state)
{
    (void)state;
    begin_run();
    for (uint32_t i = 0; i < 20; i++) {
        if (i % 6 == 5)
            drop(make(777 * KIB));
        one_step(12);
        if (i % 7 == 6)
            drop(make(i * 3 * KIB));
    }
    solve_run();
    assert_int_equal(problem.steps.period, 48);
    assert_int_equal(problem.count, problem.loop_start + 24);
    gc_region_fini(&region_of_run);
}

static void steps_that_leave_memory_behind_are_no_steps(void **state)
{
    (void)state;
    begin_run();
    for (uint32_t i = 0; i < 20; i++) {
        one_step(6);
        (void)make(64 * KIB);
    }
    solve_run();
    assert_int_equal(problem.steps.period, 0);
    assert_int_equal(problem.loop_start, 0);
    assert_int_equal(problem.end_time, event_count);
    gc_region_fini(&region_of_run);
}

static void a_run_without_steps_is_one(void **state)
{
    uint64_t random = 7;
    (void)state;
    begin_run();
    for (uint32_t i = 0; i < 500; i++) {
        random = gc_mix_u64(random + i);
        drop(make(1 + random % 1000000));
    }
    solve_run();
    assert_int_equal(problem.steps.period, 0);
    assert_int_equal(problem.count, 500);
    gc_region_fini(&region_of_run);
}

/* As the loss of a training loop: the old one goes when the new one is there. */
static void what_lives_into_the_next_step_makes_two_steps_one(void **state)
{
    uint32_t loss = UINT32_MAX;
    (void)state;
    begin_run();
    for (uint32_t i = 0; i < 8; i++) {
        one_step(12);
        const uint32_t next = make(512);
        if (loss != UINT32_MAX)
            drop(loss);
        loss = next;
        one_step(5);
    }
    solve_run();
    assert_int_equal(problem.rounds, 2);
    assert_int_equal(problem.count - problem.loop_start, 2 * (24 + 1 + 10));
    gc_region_fini(&region_of_run);
}

static enum gc_status solve_on_line(void *argument, struct gc_region *region,
                                    const struct gc_placement_problem *line,
                                    const struct gc_placement_options *options,
                                    struct gc_placement *placement)
{
    (void)argument;
    return gc_solve_placement(region, line, options, placement);
}

static struct gc_placement place_run(void)
{
    const struct gc_placement_options options = {.node_max = 20000};
    struct gc_placement placement;
    struct gc_plan made;
    struct gc_plan_error error = {.text = ""};
    assert_int_equal(gc_run_place(&region_of_run, &problem, GC_PLACEMENT_UNLIMITED, &options,
                                  solve_on_line, NULL, &placement),
                     GC_OK);
    gc_run_problem_plan(&problem, placement.offsets, -1, &made);
    if (gc_plan_check(&made, &error) != GC_OK)
        fail_msg("%s", error.text);
    assert_int_equal(made.peak_bytes, placement.peak_bytes);
    return placement;
}

/* Gradients that are freed in the next step's forward pass, one after the other: there is room for
 * them where the pass has not made its own yet. */
static void what_crosses_a_step_is_planned_round_its_end(void **state)
{
    uint32_t gradients[16];
    uint32_t held[16];
    (void)state;
    begin_run();
    for (uint32_t i = 0; i < 6; i++)
        (void)make((50 + i) * KIB);
    for (uint32_t n = 0; n < 8; n++) {
        for (uint32_t i = 0; i < 16; i++) {
            if (n > 0)
                drop(gradients[i]);
            held[i] = make((20 + i) * KIB);
        }
        for (uint32_t i = 16; i-- > 0;) {
            drop(held[i]);
            gradients[i] = make((10 + i % 3) * KIB);
        }
    }
    solve_run();
    assert_int_equal(problem.rounds, 1);
    assert_int_equal(problem.steps.period, 64);
    assert_int_equal(problem.lasting_count, 6);
    assert_true(problem.crossing_count > 0);
    /* The run's own peak is the bound; with its place for the whole step each would add to it. */
    assert_int_equal(problem.live_bytes, problem.run_peak_bytes);
    const struct gc_placement placement = place_run();
    assert_true(placement.peak_bytes <= problem.live_bytes + problem.live_bytes / 50);
    assert_int_equal(placement.lower_bound_bytes, problem.live_bytes);
    gc_region_fini(&region_of_run);
}

/* A loss that is kept for two and a half steps: three buffers of it are there at once. */
static void what_lives_through_steps_has_as_many_places(void **state)
{
    uint32_t kept[4] = {0};
    (void)state;
    begin_run();
    for (uint32_t n = 0; n < 16; n++) {
        one_step(12);
        if (n >= 3)
            drop(kept[(n - 3) % 4]);
        one_step(3);
        kept[n % 4] = make(100 * KIB);
    }
    solve_run();
    assert_int_equal(problem.rounds, 3);
    const uint32_t of_a_step = (problem.count - problem.loop_start) / 3;
    assert_int_equal(of_a_step, 24 + 6 + 1);
    const struct gc_placement placement = place_run();
    assert_int_equal(problem.live_bytes, problem.run_peak_bytes);
    assert_true(placement.optimal);
    gc_region_fini(&region_of_run);
}

/* A plan that is right in its first iteration only. */
static void a_life_into_the_next_iteration_keeps_its_place(void **state)
{
    static const struct gc_plan_entry wrong[] = {
        {.bytes = KIB, .offset = 0, .lower = 0, .upper = 3},   /* its predecessor */
        {.bytes = KIB, .offset = KIB, .lower = 2, .upper = 4}, /* of the loop */
        {.bytes = KIB, .offset = 0, .lower = 5, .upper = 9},   /* crosses the end, to time 3 */
        {.bytes = KIB, .offset = 2 * KIB, .lower = 6, .upper = 8},
    };
    struct gc_plan_entry changed[4];
    struct gc_plan made = {.entries = changed,
                           .count = 4,
                           .loop_start = 1,
                           .loop_time = 2,
                           .stream_count = 1,
                           .end_time = 8,
                           .device = -1,
                           .peak_bytes = 3 * KIB};
    struct gc_plan_error error = {.text = ""};
    (void)state;
    memcpy(changed, wrong, sizeof(wrong));
    assert_int_equal(gc_plan_check(&made, &error), GC_OK);
    changed[1].offset = 0;
    assert_int_equal(gc_plan_check(&made, &error), GC_FORMAT); /* beside the predecessor */
    changed[1].lower = 3;
    assert_int_equal(gc_plan_check(&made, &error), GC_OK);
    changed[2].upper = 10;
    assert_int_equal(gc_plan_check(&made, &error), GC_FORMAT);
    assert_non_null(strstr(error.text, "entries 1 and 2") ?: strstr(error.text, "entries 2 and 1"));
    changed[2].upper = 12; /* longer than a step */
    assert_int_equal(gc_plan_check(&made, &error), GC_FORMAT);
    assert_non_null(strstr(error.text, "entry 2: alive from 5 to 12, of 8"));
    changed[2].upper = 8;
    changed[0].upper = 9;
    assert_int_equal(gc_plan_check(&made, &error), GC_FORMAT);
    assert_non_null(strstr(error.text, "entry 0: alive from 0 to 9, of 8"));
}

/* ---- matching ---- */

static struct gc_match match;
static struct gc_host_mem host;
static struct gc_plan_entry entries[100];
static struct gc_plan plan;

/* Entries of `sizes` units of 512 bytes each. */
static void begin_match(const unsigned *sizes, uint32_t count, uint32_t loop_start)
{
    for (uint32_t i = 0; i < count; i++)
        entries[i] = (struct gc_plan_entry){.bytes = sizes[i] * UINT64_C(512)};
    plan = (struct gc_plan){
        .entries = entries, .count = count, .loop_start = loop_start, .stream_count = 4};
    assert_int_equal(gc_match_init(&match, &plan, &host), GC_OK);
}

static uint32_t next(unsigned size)
{
    return gc_match_next(&match, size * UINT64_C(512), 0, false);
}

static void order_is_followed_round_and_round(void **state)
{
    static const unsigned sizes[] = {9, 1, 2, 1, 3};
    (void)state;
    begin_match(sizes, 5, 1);
    assert_int_equal(next(9), 0);
    for (uint32_t iteration = 0; iteration < 3; iteration++) {
        assert_int_equal(next(1), 1);
        assert_int_equal(next(2), 2);
        assert_int_equal(next(1), 3);
        assert_int_equal(next(3), 4);
    }
    assert_int_equal(match.iteration_count, 3);
    assert_int_equal(match.resync_count, 0);
    assert_int_equal(next(9), GC_PLAN_NONE); /* what came before the steps is over */
    gc_match_fini(&match);
    assert_int_equal(gc_host_mem_bytes(&host), 0);
}

static void missing_added_and_swapped_ones_cost_nothing(void **state)
{
    unsigned sizes[40];
    (void)state;
    for (uint32_t i = 0; i < 40; i++)
        sizes[i] = i + 1;
    begin_match(sizes, 40, 0);
    assert_int_equal(next(1), 0);
    assert_int_equal(next(3), 2); /* 2 is missing */
    assert_int_equal(next(50), GC_PLAN_NONE);
    assert_int_equal(next(5), 4); /* 4 comes later */
    assert_int_equal(next(4), 3);
    assert_int_equal(next(6), 5);
    assert_int_equal(next(6), GC_PLAN_NONE); /* taken */
    assert_int_equal(next(7), 6);
    for (unsigned i = 7; i < 40; i++)
        assert_int_equal(next(i + 1), i);
    assert_int_equal(next(1), 0);
    gc_match_fini(&match);
}

/* Every third one has the same size: one more of them, or one less, is a matter of its own. */
static void a_surplus_or_missing_one_does_not_shift_the_rest(void **state)
{
    unsigned sizes[90];
    (void)state;
    for (uint32_t i = 0; i < 90; i++)
        sizes[i] = i % 3 == 0 ? 500 : 1 + i;
    begin_match(sizes, 90, 0);
    uint32_t deviated = 0;
    for (uint32_t i = 0; i < 90; i++) {
        if (i == 31)
            (void)next(500);
        if (i == 60)
            continue;
        deviated += next(sizes[i]) != i;
    }
    assert_true(deviated <= 1);
    assert_int_equal(match.resync_count, 0);
    gc_match_fini(&match);
}

static void a_place_far_away_is_found_by_three_sizes(void **state)
{
    unsigned sizes[100];
    (void)state;
    for (uint32_t i = 0; i < 100; i++)
        sizes[i] = i + 1;
    begin_match(sizes, 100, 0);
    assert_int_equal(next(1), 0);
    assert_int_equal(next(60), GC_PLAN_NONE);
    assert_int_equal(next(61), GC_PLAN_NONE);
    assert_int_equal(next(62), 61);
    assert_int_equal(next(63), 62);
    assert_int_equal(match.resync_count, 1);
    assert_int_equal(next(10), GC_PLAN_NONE);
    assert_int_equal(next(11), GC_PLAN_NONE);
    assert_int_equal(next(12), 11);
    gc_match_fini(&match);
}

static void an_idle_run_may_begin_again(void **state)
{
    unsigned sizes[60];
    (void)state;
    for (uint32_t i = 0; i < 60; i++)
        sizes[i] = i + 1;
    begin_match(sizes, 60, 0);
    for (unsigned i = 0; i < 30; i++)
        assert_int_equal(next(i + 1), i);
    assert_int_equal(gc_match_next(&match, 512, 0, false), GC_PLAN_NONE);
    assert_int_equal(gc_match_next(&match, 512, 0, true), 0);
    assert_int_equal(next(2), 1);
    gc_match_fini(&match);
}

static void streams_are_bound_by_their_first_match(void **state)
{
    static const unsigned sizes[] = {1, 2, 3, 1, 2, 3};
    (void)state;
    begin_match(sizes, 6, 0);
    entries[0].stream = entries[3].stream = 1;
    entries[1].stream = entries[4].stream = 2;
    assert_int_equal(gc_match_next(&match, 512, 0, false), GC_PLAN_NONE);
    assert_int_equal(gc_match_next(&match, 512, 77, false), 0);
    assert_int_equal(gc_match_next(&match, 1024, 77, false), GC_PLAN_NONE);
    assert_int_equal(gc_match_next(&match, 1024, 88, false), 1);
    assert_int_equal(next(3), 2);
    assert_int_equal(gc_match_next(&match, 512, 88, false), GC_PLAN_NONE);
    gc_match_close_stream(&match, 77);
    assert_int_equal(gc_match_next(&match, 512, 99, false), 3);
    gc_match_fini(&match);
}

/* Whatever is asked for: an entry that comes back has the size, and none comes twice in an
 * iteration. */
static void any_requests_get_fitting_entries(void **state)
{
    unsigned sizes[100];
    uint64_t random = 99;
    uint64_t matched = 0;
    (void)state;
    for (uint32_t i = 0; i < 100; i++)
        sizes[i] = 1 + (unsigned)(gc_mix_u64(i) % 12);
    begin_match(sizes, 100, 30);
    for (uint32_t n = 0; n < 200000; n++) {
        random = gc_mix_u64(random + n);
        const unsigned size = 1 + (unsigned)(random % 14);
        const uint32_t before = match.iteration;
        const uint32_t i = gc_match_next(&match, size * UINT64_C(512), 0, random % 1000 == 0);
        assert_true(i == GC_PLAN_NONE || (i < 100 && sizes[i] == size));
        assert_true(match.cursor < 100 && match.iteration >= before);
        matched += i != GC_PLAN_NONE;
    }
    assert_true(matched > 20000);
    gc_match_fini(&match);
}

int main(void)
{
    cmocka_set_message_output(CM_OUTPUT_TAP);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_written_is_read),
        cmocka_unit_test(every_rule_of_the_file_is_checked),
        cmocka_unit_test(a_file_that_was_cut_or_changed_is_refused),
        cmocka_unit_test(what_is_no_readable_file_is_refused),
        cmocka_unit_test(equal_steps_are_found_behind_what_comes_before),
        cmocka_unit_test(a_few_deviations_do_not_hide_steps),
        cmocka_unit_test(steps_that_leave_memory_behind_are_no_steps),
        cmocka_unit_test(a_run_without_steps_is_one),
        cmocka_unit_test(what_crosses_a_step_is_planned_round_its_end),
        cmocka_unit_test(what_lives_through_steps_has_as_many_places),
        cmocka_unit_test(a_life_into_the_next_iteration_keeps_its_place),
        cmocka_unit_test(what_lives_into_the_next_step_makes_two_steps_one),
        cmocka_unit_test(order_is_followed_round_and_round),
        cmocka_unit_test(missing_added_and_swapped_ones_cost_nothing),
        cmocka_unit_test(a_surplus_or_missing_one_does_not_shift_the_rest),
        cmocka_unit_test(a_place_far_away_is_found_by_three_sizes),
        cmocka_unit_test(an_idle_run_may_begin_again),
        cmocka_unit_test(streams_are_bound_by_their_first_match),
        cmocka_unit_test(any_requests_get_fitting_entries),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
