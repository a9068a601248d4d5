/* The reader of placement problems: accepted files, and the errors of refused ones. */
#include "core/base/bits.h"
#include "core/planner/placement_csv.h"
#include "tests/unit/cmocka_all.h"

#include <stdio.h>
#include <string.h>

static struct gc_region region;
static struct gc_placement_csv csv;
static struct gc_placement_csv_error error;

static int setup(void **state)
{
    (void)state;
    gc_region_init(&region, GC_MIB(64));
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    gc_region_fini(&region);
    return 0;
}

static enum gc_status read_text(const char *text)
{
    return gc_placement_csv_read(&region, text, strlen(text), &csv, &error);
}

static void columns_are_found_by_name(void **state)
{
    (void)state;
    assert_int_equal(read_text("id,lower,upper,size\n7,1,3,100\n\n3\" y,0,18446744073709551615,0"),
                     GC_OK);
    assert_int_equal(csv.count, 2);
    assert_string_equal(csv.ids[0], "7");
    assert_string_equal(csv.ids[1], "3\" y");
    assert_int_equal(csv.buffers[0].lower, 1);
    assert_int_equal(csv.buffers[0].upper, 3);
    assert_int_equal(csv.buffers[0].bytes, 100);
    assert_int_equal(csv.buffers[0].alignment, 0);
    assert_true(csv.buffers[0].fixed == GC_PLACEMENT_FREE);
    assert_true(csv.buffers[1].upper == UINT64_MAX);
    assert_false(csv.has_alignment || csv.has_offset);

    assert_int_equal(read_text("offset,size,id,alignment,upper,lower\r\n,5,a,64,9,8\r\n"
                               "12,6,b,,4,3\r\n"),
                     GC_OK);
    assert_int_equal(csv.count, 2);
    assert_true(csv.has_alignment && csv.has_offset);
    assert_true(csv.buffers[0].fixed == GC_PLACEMENT_FREE);
    assert_int_equal(csv.buffers[0].alignment, 64);
    assert_int_equal(csv.buffers[0].lower, 8);
    assert_int_equal(csv.buffers[1].fixed, 12);
    assert_int_equal(csv.buffers[1].alignment, 0);
}

static void many_rows_are_kept(void **state)
{
    (void)state;
    static char text[200000];
    size_t length = strlen(strcpy(text, "id,lower,upper,size\n"));
    for (unsigned i = 0; i < 5000; i++)
        length += (size_t)snprintf(text + length, sizeof(text) - length, "%u,%u,%u,%u\n", i, i,
                                   i + 1, i * 3);
    assert_int_equal(read_text(text), GC_OK);
    assert_int_equal(csv.count, 5000);
    for (unsigned i = 0; i < 5000; i++) {
        assert_int_equal(csv.buffers[i].lower, i);
        assert_int_equal(csv.buffers[i].bytes, i * 3);
    }
    assert_string_equal(csv.ids[4999], "4999");
}

static void a_mistake_is_named_with_its_line(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t line;
        const char *expected;
    } cases[] = {
        {"", 1, "an empty file"},
        {"id,lower,upper\n", 1, "lacks size"},
        {"id,lower,upper,size,size\n", 1, "column 5, \"size\", is there already"},
        {"id,lower,upper,size,weight\n", 1, "column 5, \"weight\", is not known"},
        {"id,lower,upper,size,alignment,offset,offset\n", 1, "column 7"},
        {"1,2,3,4\n", 1, "column 1, \"1\", is not known"},
        {"id,lower,upper,size\n1,2,3\n", 2, "3 fields; accepted: 4"},
        {"id,lower,upper,size\n1,2,3,4,5,6,7,8\n", 2, "8 fields; accepted: 4"},
        {"id,lower,upper,size\n\n1,2,3,4\n\n1,2,3,4\n", 5, "id \"1\" is there already"},
        {"id,lower,upper,size\n,2,3,4\n", 2, "id \"\""},
        {"id,lower,upper,size\n1,2,2,4\n", 2, "lower 2, upper 2; accepted: lower below upper"},
        {"id,lower,upper,size\n1,-2,2,4\n", 2, "lower \"-2\" is not valid"},
        {"id,lower,upper,size\n1,1,2,\n", 2, "size \"\" is not valid; accepted: a decimal number"},
        {"id,lower,upper,size\n1,1,2,18446744073709551616\n", 2, "size"},
        {"id,lower,upper,size\n1,1, 2,1\n", 2, "upper \" 2\""},
        {"id,lower,upper,size,offset\n1,1,2,1,18446744073709551615\n", 2, "too large"},
        {"id,lower,upper,size,offset\n1,1,2,1,x\n", 2, "decimal number or nothing"},
        {"id,lower,upper,size\n\"a,b\",1,2,1\n", 2, "a field in quotes"},
        {"id,lower,upper,size\n1,1,2,\"1\"\n", 2, "a field in quotes"},
        {"\"id\",lower,upper,size\n", 1, "a field in quotes"},
        {"id,lower,upper,size,alignment\n1,1,2,1,0\n", 2, "alignment 0 is not valid"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_int_equal(read_text(cases[i].text), GC_FORMAT);
        assert_int_equal(error.line, cases[i].line);
        if (strstr(error.text, cases[i].expected) == NULL)
            fail_msg("\"%s\" does not say \"%s\"", error.text, cases[i].expected);
    }
}

static void memory_is_limited(void **state)
{
    (void)state;
    struct gc_region small;
    const char text[] = "id,lower,upper,size\n1,2,3,4\n";
    gc_region_init(&small, 16);
    assert_int_equal(gc_placement_csv_read(&small, text, strlen(text), &csv, &error),
                     GC_NO_HOST_MEMORY);
    assert_int_equal(error.line, 2);
    gc_region_fini(&small);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(columns_are_found_by_name, setup, teardown),
        cmocka_unit_test_setup_teardown(many_rows_are_kept, setup, teardown),
        cmocka_unit_test_setup_teardown(a_mistake_is_named_with_its_line, setup, teardown),
        cmocka_unit_test_setup_teardown(memory_is_limited, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
