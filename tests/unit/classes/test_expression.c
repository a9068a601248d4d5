/* Expressions of the tables of architectures. */
#include "tests/unit/cmocka_all.h"

#include "core/classes/expression.h"

#include <string.h>

static bool is_text(const char *text, size_t length, const char *other)
{
    return strlen(other) == length && memcmp(text, other, length) == 0;
}

/* h = 64, ratio = 2.5, none = 0, kinds = [a, b-c, a], act = "gated-gelu". */
static bool find(const struct gc_expression_names *names, const struct gc_expression_name *name,
                 double *value)
{
    (void)names;
    const bool is_kinds = is_text(name->name, name->length, "kinds");
    const bool is_value = name->part == GC_EXPRESSION_VALUE;
    if (name->part == GC_EXPRESSION_LENGTH && is_kinds) {
        *value = 3;
    } else if (name->part == GC_EXPRESSION_ITEM && is_kinds) {
        *value = is_text(name->item, name->item_length, "a")     ? 2
                 : is_text(name->item, name->item_length, "b-c") ? 1
                                                                 : 0;
    } else if (name->part == GC_EXPRESSION_EQUAL && is_text(name->name, name->length, "act")) {
        *value = is_text(name->item, name->item_length, "gated-gelu");
    } else if (is_value && is_text(name->name, name->length, "h")) {
        *value = 64;
    } else if (is_value && is_text(name->name, name->length, "text.ratio")) {
        *value = 2.5;
    } else if (is_value && is_text(name->name, name->length, "none")) {
        *value = 0;
    } else {
        return false;
    }
    return true;
}

static const struct gc_expression_names names = {find};

static void values(void **state)
{
    static const struct {
        const char *text;
        double value;
    } rows[] = {
        {"7", 7},
        {"1.25", 1.25},
        {"1+2*3-4", 3},
        {"(1+2)*3", 9},
        {"7-2-1", 4},
        {"100/8/2", 6.25},
        {"100//8*2", 24},
        {"-7//2", -4},
        {"-7%4", 1},
        {"h*text.ratio", 160},
        {"-h+1", -63},
        {"!h+!none+!absent", 2},
        {"?h+?none+?absent", 1},
        {"or(none,5)+or(absent,h)+or(h,1)", 133},
        {"min(3,h)+max(3,h)", 67},
        {"#kinds", 3},
        {"kinds[a]*10+kinds[b-c]", 21},
        {"(act=gated-gelu)+2", 3},
        {"act=relu", 0},
        {"none*absent+1", 1},
        {"absent*0", 0},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        double value;
        if (gc_expression_evaluate(rows[i].text, strlen(rows[i].text), &names, &value) != GC_OK)
            fail_msg("%s failed", rows[i].text);
        if (value != rows[i].value)
            fail_msg("%s is %f, not %f", rows[i].text, value, rows[i].value);
    }
}

static void failures(void **state)
{
    static const struct {
        const char *text;
        enum gc_status status;
    } rows[] = {
        {"", GC_FORMAT},
        {"1+", GC_FORMAT},
        {"(1", GC_FORMAT},
        {"1)", GC_FORMAT},
        {"1 + 2", GC_FORMAT},
        {"h[a", GC_FORMAT},
        {"sum(1,2)", GC_FORMAT},
        {"min(1)", GC_FORMAT},
        {"#", GC_FORMAT},
        {"absent", GC_NOT_SUPPORTED},
        {"absent+1", GC_NOT_SUPPORTED},
        {"1/none", GC_NOT_SUPPORTED},
        {"9007199254740993*2", GC_OVERFLOW},
        {"h-65", GC_NOT_SUPPORTED},
    };
    char deep[1000];
    uint64_t value;
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        if (gc_expression_size(rows[i].text, strlen(rows[i].text), &names, &value) !=
            rows[i].status)
            fail_msg("%s does not fail as it should", rows[i].text);
    }
    memset(deep, '(', sizeof(deep));
    assert_int_equal(gc_expression_size(deep, sizeof(deep), &names, &value), GC_FORMAT);
}

/* Only `length` bytes are read. */
static void ends_at_its_length(void **state)
{
    uint64_t value;
    (void)state;
    assert_int_equal(gc_expression_size("h*2*absent", 3, &names, &value), GC_OK);
    assert_int_equal(value, 128);
    assert_int_equal(gc_expression_size("text.ratio*3", 12, &names, &value), GC_OK);
    assert_int_equal(value, 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values),
        cmocka_unit_test(failures),
        cmocka_unit_test(ends_at_its_length),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
