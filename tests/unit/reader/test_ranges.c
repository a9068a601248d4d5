/* Tensors in a file against a naive look at every pair of them. */
#include "core/reader/ranges.h"
#include "tests/unit/cmocka_all.h"
#include "tests/unit/reader_bench.h"
#include "tests/unit/scratch.h"

#include <stdio.h>
#include <string.h>

static struct reader_bench bench;
static struct gc_reader *const load = &bench.reader;

static int setup(void **state)
{
    (void)state;
    uint32_t file;
    reader_bench_begin(&bench);
    assert_int_equal(gc_reader_add_file(load, "one", 1000, &file), GC_OK);
    assert_int_equal(gc_reader_add_file(load, "two", 1000, &file), GC_OK);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    reader_bench_end(&bench);
    return 0;
}

static void add(uint32_t file, uint64_t offset, uint64_t bytes)
{
    char name[16];
    snprintf(name, sizeof(name), "t%u", load->tensor_count);
    const struct gc_model_tensor tensor = {
        .name = gc_region_text(&load->region, name, strlen(name)),
        .file = file,
        .offset = offset,
        .bytes = bytes,
        .stored_bytes = bytes,
        .alias_of = GC_MODEL_NONE,
    };
    assert_int_equal(gc_reader_add_tensor(load, "x", &tensor, true), GC_OK);
}

static void overlaps_and_gaps_are_named(void **state)
{
    (void)state;
    struct gc_ranges ranges = {.begin = 100, .gaps_are_errors = true};
    add(0, 600, 400);
    add(0, 100, 200);
    add(0, 300, 300);
    assert_int_equal(gc_ranges_check(load, &ranges), GC_OK);
    add(0, 300, 300);
    assert_int_equal(gc_ranges_check(load, &ranges), GC_OK);
    assert_int_equal(load->tensors[3].alias_of, 2);
    add(0, 599, 2);
    assert_int_equal(gc_ranges_check(load, &ranges), GC_FORMAT);
    assert_string_equal(
        bench.error.text,
        "one: tensors \"t2\" and \"t4\" overlap at byte 599; tensors apart, or the very "
        "same bytes, are accepted");
    reader_bench_forget(&bench);
    load->tensor_count--;
    load->tensors[1].stored_bytes = 190;
    assert_int_equal(gc_ranges_check(load, &ranges), GC_FORMAT);
    assert_non_null(strstr(bench.error.text, "one: byte 290: 10 bytes up to byte 300"));
    reader_bench_forget(&bench);
    ranges.slack = 10;
    assert_int_equal(gc_ranges_check(load, &ranges), GC_OK);
    ranges.slack = 9;
    ranges.gaps_are_errors = false;
    assert_int_equal(gc_ranges_check(load, &ranges), GC_OK);
    assert_int_equal(load->warning_count, 1);
    load->tensors[1].offset = 99;
    assert_int_equal(gc_ranges_check(load, &ranges), GC_FORMAT);
    assert_non_null(strstr(bench.error.text, "\"t1\""));
}

static void files_do_not_meet(void **state)
{
    (void)state;
    const struct gc_ranges ranges = {.slack = UINT64_MAX};
    add(0, 0, 600);
    add(1, 0, 600);
    add(1, 600, 400);
    add(GC_MODEL_NONE, GC_MODEL_NO_OFFSET, 5000);
    add(0, 300, 0);
    assert_int_equal(gc_ranges_check(load, &ranges), GC_OK);
    add(1, 999, 2);
    assert_int_equal(gc_ranges_check(load, &ranges), GC_FORMAT);
    assert_non_null(strstr(bench.error.text, "two: tensor \"t5\""));
}

/* The findings expected of the check, pair by pair. */
static bool naive_is_fine(void)
{
    for (uint32_t i = 0; i < load->tensor_count; i++) {
        const struct gc_model_tensor *a = &load->tensors[i];
        if (a->stored_bytes > 0 && a->offset + a->stored_bytes > 1000)
            return false;
        for (uint32_t k = 0; k < i; k++) {
            const struct gc_model_tensor *b = &load->tensors[k];
            const bool same = a->offset == b->offset && a->stored_bytes == b->stored_bytes;
            if (!same && a->file == b->file && a->stored_bytes > 0 && b->stored_bytes > 0 &&
                a->offset < b->offset + b->stored_bytes && b->offset < a->offset + a->stored_bytes)
                return false;
        }
    }
    return true;
}

static uint32_t naive_alias(uint32_t i)
{
    const struct gc_model_tensor *a = &load->tensors[i];
    for (uint32_t k = 0; k < i; k++) {
        const struct gc_model_tensor *b = &load->tensors[k];
        if (a->file == b->file && a->offset == b->offset && a->stored_bytes == b->stored_bytes &&
            a->stored_bytes > 0)
            return k;
    }
    return GC_MODEL_NONE;
}

static void agrees_with_a_look_at_every_pair(void **state)
{
    (void)state;
    struct scratch_random random = {11};
    const struct gc_ranges ranges = {.slack = UINT64_MAX};
    unsigned fine = 0;
    for (int round = 0; round < 3000; round++) {
        const unsigned long long count = scratch_next(&random) % 12 + 1;
        const unsigned long long unit = scratch_next(&random) % 90 + 10;
        load->tensor_count = 0;
        gc_strmap_init(&load->tensor_names);
        for (unsigned long long i = 0; i < count; i++)
            add((uint32_t)(scratch_next(&random) % 2), scratch_next(&random) % (1000 / unit) * unit,
                scratch_next(&random) % 9 == 0 ? unit * 2
                                               : unit * (scratch_next(&random) % 9 != 0));
        reader_bench_forget(&bench);
        const bool want = naive_is_fine();
        assert_int_equal(gc_ranges_check(load, &ranges), want ? GC_OK : GC_FORMAT);
        fine += want;
        for (uint32_t i = 0; want && i < load->tensor_count; i++)
            assert_int_equal(load->tensors[i].alias_of, naive_alias(i));
    }
    assert_in_range(fine, 100, 2900);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(overlaps_and_gaps_are_named, setup, teardown),
        cmocka_unit_test_setup_teardown(files_do_not_meet, setup, teardown),
        cmocka_unit_test_setup_teardown(agrees_with_a_look_at_every_pair, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
