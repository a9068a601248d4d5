/* Memory that grows and goes at once, and the table of names that lives in it. */
#include "core/base/bits.h"
#include "core/base/region.h"
#include "core/base/strmap.h"
#include "tests/unit/cmocka_all.h"
#include "tests/unit/scratch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct gc_region region;

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
    assert_int_equal(gc_region_bytes(&region), 0);
    return 0;
}

/* Many allocations of all sizes: each zeroed, aligned, and none over another. */
static void allocations_are_apart(void **state)
{
    (void)state;
    struct scratch_random random = {42};
    struct {
        unsigned char *memory;
        size_t bytes;
        unsigned char mark;
    } blocks[2000];
    for (size_t i = 0; i < 2000; i++) {
        blocks[i].bytes = (size_t)(scratch_next(&random) % (i % 50 == 0 ? 200000 : 200));
        blocks[i].mark = (unsigned char)(scratch_next(&random) | 1);
        blocks[i].memory = gc_region_alloc(&region, blocks[i].bytes);
        assert_non_null(blocks[i].memory);
        assert_int_equal((uintptr_t)blocks[i].memory % 16, 0);
        for (size_t k = 0; k < blocks[i].bytes; k++)
            assert_int_equal(blocks[i].memory[k], 0);
        memset(blocks[i].memory, blocks[i].mark, blocks[i].bytes);
    }
    for (size_t i = 0; i < 2000; i++) {
        for (size_t k = 0; k < blocks[i].bytes; k++)
            assert_int_equal(blocks[i].memory[k], blocks[i].mark);
    }
}

static void growing_keeps_the_content(void **state)
{
    (void)state;
    static const char digits[] = {'0', '1', '2', '3', '4', '5', '6', '7', '8', '9'};
    char *memory = gc_region_grow(&region, NULL, 0, 10);
    memcpy(memory, digits, sizeof(digits));
    char *larger = gc_region_grow(&region, memory, 10, 100);
    assert_ptr_equal(larger, memory); /* nothing behind it: in place */
    assert_int_equal(larger[50], 0);
    assert_non_null(gc_region_alloc(&region, 1));
    larger = gc_region_grow(&region, memory, 100, 1000);
    assert_ptr_not_equal(larger, memory);
    assert_memory_equal(larger, digits, sizeof(digits));
    for (int i = 10; i < 1000; i++)
        assert_int_equal(larger[i], 0);
    larger = gc_region_grow(&region, larger, 1000, GC_MIB(5));
    assert_memory_equal(larger, digits, sizeof(digits));
    assert_null(gc_region_grow(&region, larger, 10, 5));
}

static void the_limit_holds(void **state)
{
    (void)state;
    assert_null(gc_region_alloc(&region, GC_MIB(65)));
    assert_true(region.full);
    assert_null(gc_region_alloc(&region, UINT64_MAX));
    assert_null(gc_region_alloc(&region, UINT64_MAX - 30));
    unsigned count = 0;
    while (gc_region_alloc(&region, GC_KIB(100)) != NULL)
        count++;
    assert_in_range(count, 550, 655);
    assert_true(gc_region_bytes(&region) <= GC_MIB(64));
}

static void texts_are_closed(void **state)
{
    (void)state;
    const char *text = gc_region_text(&region, "abcdef", 3);
    assert_string_equal(text, "abc");
    assert_string_equal(gc_region_text(&region, "", 0), "");
}

/* Against a plain list, names with NULs, prefixes of each other and the empty one among them. */
static void names_are_found(void **state)
{
    (void)state;
    enum { COUNT = 5000 };
    struct gc_strmap names;
    struct scratch_random random = {7};
    static char texts[COUNT][32];
    static bool known[COUNT];
    gc_strmap_init(&names);
    assert_null(gc_strmap_find(&names, "x", 1));
    for (int i = 0; i < COUNT; i++)
        snprintf(texts[i], sizeof(texts[i]), "%.*s%d", i % 20, "layers.weight.a.b.c.d", i);
    for (int round = 0; round < 20000; round++) {
        const int i = (int)(scratch_next(&random) % COUNT);
        bool added;
        const struct gc_strmap_entry *found = gc_strmap_find(&names, texts[i], strlen(texts[i]));
        assert_int_equal(found != NULL, known[i]);
        if (found != NULL)
            assert_int_equal(found->value, i);
        struct gc_strmap_entry *put =
            gc_strmap_find_or_add(&names, &region, texts[i], strlen(texts[i]), &added);
        assert_int_equal(added, !known[i]);
        put->value = (uint32_t)i;
        known[i] = true;
    }
    const uint32_t used = names.used;
    assert_true(gc_strmap_add(&names, &region, "", 0, 99));
    assert_int_equal(gc_strmap_find(&names, "", 0)->value, 99);
    assert_null(gc_strmap_find(&names, "\0", 1));
    assert_null(gc_strmap_find(&names, texts[1], strlen(texts[1]) + 1));
    assert_int_equal(names.used, used + 1);
    assert_true(names.used <= names.slot_count / 3 * 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(allocations_are_apart, setup, teardown),
        cmocka_unit_test_setup_teardown(growing_keeps_the_content, setup, teardown),
        cmocka_unit_test_setup_teardown(the_limit_holds, setup, teardown),
        cmocka_unit_test_setup_teardown(texts_are_closed, setup, teardown),
        cmocka_unit_test_setup_teardown(names_are_found, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
