/* The rules of GPUCACHE_TENANTS: which lists are good, and which object is whose. */
#include "core/config/tenant_rules.h"
#include "tests/unit/cmocka_all.h"

#include <stdio.h>
#include <string.h>

#define GIB (UINT64_C(1) << 30)

static struct gc_tenant_rules rules;

static void parse(const char *text)
{
    assert_int_equal(gc_tenant_rules_parse(text, &rules), GC_OK);
}

static const char *owner_of(const char *path)
{
    const int name = gc_tenant_rules_match(&rules, path);
    return name < 0 ? "" : rules.names[name].text;
}

static void names_have_their_sizes(void **state)
{
    (void)state;
    parse("llama=libllama.so:24GiB,rest=*:2g");
    assert_int_equal(rules.rule_count, 2);
    assert_int_equal(rules.name_count, 2);
    assert_string_equal(rules.names[0].text, "llama");
    assert_int_equal(rules.names[0].limit_bytes, 24 * GIB);
    assert_string_equal(rules.names[1].text, "rest");
    assert_int_equal(rules.names[1].limit_bytes, 2 * GIB);
}

static void objects_match_by_their_file_name(void **state)
{
    (void)state;
    parse("a=libllama.so:1g");
    assert_string_equal(owner_of("libllama.so"), "a");
    assert_string_equal(owner_of("/opt/lib/libllama.so"), "a");
    assert_string_equal(owner_of("/opt/libllama.so/other.so"), "");
    assert_string_equal(owner_of("/opt/lib/mylibllama.so"), "");
    assert_string_equal(owner_of("/opt/lib/libllama.so.bak"), "");
    assert_string_equal(owner_of("/opt/lib/libllama.so2"), "");
    assert_string_equal(owner_of("/opt/lib/libllama"), "");
    assert_string_equal(owner_of(""), "");
}

static void versions_match_the_bare_name(void **state)
{
    (void)state;
    parse("a=libllama.so:1g,b=liblocked.so.2:1g,c=python3:1g");
    assert_string_equal(owner_of("/opt/libllama.so.1"), "a");
    assert_string_equal(owner_of("/opt/libllama.so.1.22.333"), "a");
    assert_string_equal(owner_of("/opt/libllama.so.1."), "");
    assert_string_equal(owner_of("/opt/libllama.so.1.x"), "");
    assert_string_equal(owner_of("/opt/liblocked.so.2"), "b");
    assert_string_equal(owner_of("/opt/liblocked.so.2.1"), "b");
    assert_string_equal(owner_of("/opt/liblocked.so.3"), "");
    assert_string_equal(owner_of("/opt/liblocked.so"), "");
    /* A name that is no shared object has no version. */
    assert_string_equal(owner_of("/usr/bin/python3"), "c");
    assert_string_equal(owner_of("/usr/bin/python3.10"), "");
}

static void the_first_entry_that_matches_decides(void **state)
{
    (void)state;
    parse("a=libx.so.1:1g,b=libx.so:2g,rest=*:3g");
    assert_string_equal(owner_of("libx.so.1"), "a");
    assert_string_equal(owner_of("libx.so.2"), "b");
    assert_string_equal(owner_of("liby.so"), "rest");
    assert_string_equal(owner_of(""), "rest");
}

static void paths_match_where_a_path_is_given(void **state)
{
    (void)state;
    parse("a=/opt/one/libx.so:1g,b=/opt/two/lib:x.so:1g");
    assert_string_equal(owner_of("/opt/one/libx.so"), "a");
    assert_string_equal(owner_of("/opt/one/libx.so.7"), "a");
    assert_string_equal(owner_of("/opt/two/libx.so"), "");
    assert_string_equal(owner_of("/opt/two/lib:x.so"), "b");
}

static void several_objects_are_one_tenant(void **state)
{
    (void)state;
    parse("a=libx.so:1g,b=liby.so:1g,a=libz.so:1024m");
    assert_int_equal(rules.name_count, 2);
    assert_string_equal(owner_of("libz.so"), "a");
    assert_int_equal(gc_tenant_rules_parse("a=libx.so:1g,a=liby.so:2g", &rules), GC_FORMAT);
    /* One name may begin another. */
    parse("ab=libx.so:1g,a=liby.so:2g,abc=libz.so:3g");
    assert_int_equal(rules.name_count, 3);
    assert_string_equal(owner_of("liby.so"), "a");
}

static void bad_lists_are_refused(void **state)
{
    static const char *const bad[] = {"", ",", "a", "a=b", "a=:1g", "a=b:", "a=b:0", "=b:1g",
                                      "a=b:1g,", ",a=b:1g", "a=b:1g,,c=d:1g", "a b=c:1g", ".a=b:1g",
                                      "a/b=c:1g", "a=b:50%", "a=b:-1", "a=:", "a=b:1gx",
                                      "a=b:99999999999999999999", "a=b: 1g",
                                      /* what would leave an object without its limit */
                                      "a= b:1g", "a=b :1g", "a=b\t:1g", "a=b*:1g", "a=**:1g",
                                      "a=b:1g;c=d:1g", "a=*:1g:2g", "a=b:1g:2g",
                                      /* what is never reached */
                                      "a=*:1g,b=c:1g", "a=*:1g,a=*:1g", "a=b:1g,c=b:2g"};
    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        if (gc_tenant_rules_parse(bad[i], &rules) != GC_FORMAT)
            fail_msg("taken: %s", bad[i]);
}

static void there_are_so_many_entries_and_no_more(void **state)
{
    char text[GC_TENANT_RULE_MAX * 16 + 16];
    size_t used = 0;
    (void)state;
    for (int i = 0; i < GC_TENANT_RULE_MAX; i++)
        used += (size_t)snprintf(text + used, sizeof(text) - used, "%sn%d=o%d:1g",
                                 i == 0 ? "" : ",", i, i);
    parse(text);
    assert_int_equal(rules.rule_count, GC_TENANT_RULE_MAX);
    assert_string_equal(owner_of("o63"), "n63");
    snprintf(text + used, sizeof(text) - used, ",x=y:1g");
    assert_int_equal(gc_tenant_rules_parse(text, &rules), GC_FORMAT);
}

static void names_are_plain_and_short(void **state)
{
    char text[GC_OPTION_NAME_BYTES + 16];
    (void)state;
    memset(text, 'n', GC_OPTION_NAME_BYTES);
    snprintf(text + GC_OPTION_NAME_BYTES - 1, 16, "=o:1g");
    parse(text);
    assert_int_equal(strlen(rules.names[0].text), GC_OPTION_NAME_BYTES - 1);
    memset(text, 'n', GC_OPTION_NAME_BYTES);
    snprintf(text + GC_OPTION_NAME_BYTES, 16, "=o:1g");
    assert_int_equal(gc_tenant_rules_parse(text, &rules), GC_FORMAT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_have_their_sizes),
        cmocka_unit_test(objects_match_by_their_file_name),
        cmocka_unit_test(versions_match_the_bare_name),
        cmocka_unit_test(the_first_entry_that_matches_decides),
        cmocka_unit_test(paths_match_where_a_path_is_given),
        cmocka_unit_test(several_objects_are_one_tenant),
        cmocka_unit_test(bad_lists_are_refused),
        cmocka_unit_test(there_are_so_many_entries_and_no_more),
        cmocka_unit_test(names_are_plain_and_short),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
