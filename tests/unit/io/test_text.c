/* Text helpers and the process description. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/io/process.h"
#include "core/io/text.h"
#include "tests/unit/scratch.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static unsigned distance(const char *a, const char *b)
{
    const unsigned forth = gc_text_distance(a, strlen(a), b, strlen(b));
    assert_int_equal(forth, gc_text_distance(b, strlen(b), a, strlen(a)));
    return forth;
}

static void distances(void **state)
{
    char long_text[200];
    (void)state;
    assert_int_equal(distance("", ""), 0);
    assert_int_equal(distance("abc", ""), 3);
    assert_int_equal(distance("limit", "limit"), 0);
    assert_int_equal(distance("limit", "limt"), 1);
    assert_int_equal(distance("limit", "limmit"), 1);
    assert_int_equal(distance("limit", "lumit"), 1);
    assert_int_equal(distance("limit", "lmiit"), 1);
    assert_int_equal(distance("kitten", "sitting"), 3);
    memset(long_text, 'a', sizeof(long_text));
    assert_int_equal(gc_text_distance(long_text, sizeof(long_text), "", 0), GC_TEXT_DISTANCE_MAX);
}

static void sizes_for_people(void **state)
{
    static const struct {
        uint64_t bytes;
        const char *text;
    } cases[] = {
        {0, "0 B"},
        {1023, "1023 B"},
        {1024, "1.0 KiB"},
        {1536, "1.5 KiB"},
        {UINT64_C(1) << 20, "1.0 MiB"},
        {(UINT64_C(1) << 20) - 1, "1024.0 KiB"},
        {UINT64_C(80) << 30, "80.0 GiB"},
        {UINT64_MAX, "16.0 EiB"},
    };
    char text[GC_TEXT_SIZE_BYTES];
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        assert_string_equal(gc_text_size(cases[i].bytes, text), cases[i].text);
}

static void shown_text_is_cut_and_printable(void **state)
{
    char text[8];
    (void)state;
    assert_string_equal(gc_text_printable("abcdefg", 7, text, sizeof(text)), "abcdefg");
    assert_string_equal(gc_text_printable("abcdefgh", 8, text, sizeof(text)), "abcd...");
    assert_string_equal(gc_text_printable("a\n\x7f"
                                          "b",
                                          4, text, sizeof(text)),
                        "a??b");
}

static void words_are_whole(void **state)
{
    (void)state;
    assert_int_equal(gc_text_find_word("cache, track, off", "off", 3), 2);
    assert_int_equal(gc_text_find_word("cache, track, off", "of", 2), -1);
    assert_int_equal(gc_text_find_word("cache, track, off", "", 0), -1);
    assert_int_equal(gc_text_find_word("a,b", "b", 1), 1);
}

static void expand(const char *pattern, const char *wanted)
{
    const struct gc_process process = {.program = "a/b", .host = "node-1", .pid = 42};
    char path[64];
    assert_int_equal(gc_process_expand(&process, pattern, path, sizeof(path)), GC_OK);
    assert_string_equal(path, wanted);
}

static void paths_are_expanded(void **state)
{
    const struct gc_process process = {.program = "abc", .host = "node-1", .pid = 42};
    char path[8];
    (void)state;
    expand("/tmp/%n-%h-%p.json", "/tmp/a_b-node-1-42.json");
    expand("100%%", "100%");
    expand("%x%", "%x%");
    expand("", "");
    assert_int_equal(gc_process_expand(&process, "1234567", path, sizeof(path)), GC_OK);
    assert_int_equal(gc_process_expand(&process, "12345678", path, sizeof(path)), GC_FORMAT);
    assert_int_equal(gc_process_expand(&process, "12345%n", path, sizeof(path)), GC_FORMAT);
}

static void this_process_is_described(void **state)
{
    static struct gc_process process;
    char host[256];
    (void)state;
    gc_process_describe(&process);
    assert_string_equal(process.program, "test_text");
    assert_non_null(strstr(process.command, "test_text"));
    assert_int_equal(process.pid, getpid());
    assert_int_equal(gethostname(host, sizeof(host)), 0);
    assert_string_equal(process.host, host);
}

static void spans_are_short(void **state)
{
    static const struct {
        uint64_t ns;
        const char *text;
    } cases[] = {{0, "0 ns"},
                 {999, "999 ns"},
                 {1000, "1.0 us"},
                 {1549, "1.5 us"},
                 {1550, "1.6 us"},
                 {999949, "999.9 us"},
                 {999950, "1.0 ms"},
                 {22738464, "22.7 ms"},
                 {59994999999, "60.0 s"},
                 {UINT64_MAX, "18446744073.7 s"}};
    char text[GC_TEXT_SPAN_BYTES];
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        assert_string_equal(gc_text_span(cases[i].ns, text), cases[i].text);
}

int main(void)
{
    cmocka_set_message_output(CM_OUTPUT_TAP);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(spans_are_short),
        cmocka_unit_test(distances),
        cmocka_unit_test(sizes_for_people),
        cmocka_unit_test(shown_text_is_cut_and_printable),
        cmocka_unit_test(words_are_whole),
        cmocka_unit_test(paths_are_expanded),
        cmocka_unit_test(this_process_is_described),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
