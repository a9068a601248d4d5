/* Reading a file through its window: against the file itself, and files that change meanwhile. */
#include "core/base/bits.h"
#include "tests/unit/cmocka_all.h"
#include "tests/unit/reader_bench.h"
#include "tests/unit/scratch.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static struct reader_bench bench;
static struct gc_source source;
static unsigned char content[1 << 20];

static int setup(void **state)
{
    (void)state;
    struct scratch_random random = {1};
    for (size_t i = 0; i < sizeof(content); i++)
        content[i] = (unsigned char)scratch_next(&random);
    reader_bench_begin(&bench);
    reader_bench_source(&bench, content, sizeof(content), &source);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    gc_source_close(&source);
    reader_bench_end(&bench);
    return 0;
}

/* Views of any size anywhere: forward, backward, in sequence. */
static void views_show_the_file(void **state)
{
    (void)state;
    struct scratch_random random = {2};
    uint64_t offset = 0;
    for (int round = 0; round < 3000; round++) {
        const unsigned char *view;
        const size_t limit = round % 10 == 0 ? GC_SOURCE_WINDOW_BYTES : 3000;
        size_t bytes = (size_t)(scratch_next(&random) % (limit + 1));
        if (round % 3 == 0)
            offset = scratch_next(&random) % sizeof(content);
        bytes = (size_t)gc_min_u64(bytes, sizeof(content) - offset);
        assert_int_equal(gc_source_view(&source, offset, bytes, "a test", &view), GC_OK);
        assert_memory_equal(view, content + offset, bytes);
        offset += bytes;
    }
}

static void more_is_what_is_there(void **state)
{
    (void)state;
    uint64_t offset = 0;
    for (;;) {
        const unsigned char *view;
        size_t count;
        assert_int_equal(gc_source_more(&source, offset, &view, &count), GC_OK);
        if (count == 0)
            break;
        assert_memory_equal(view, content + offset, count);
        offset += count;
    }
    assert_int_equal(offset, sizeof(content));
    assert_int_equal(bench.reader.header_bytes, sizeof(content)); /* each byte once */
}

static void the_end_is_reported(void **state)
{
    (void)state;
    const unsigned char *view;
    assert_int_equal(gc_source_view(&source, sizeof(content), 0, "a test", &view), GC_OK);
    assert_int_equal(gc_source_view(&source, sizeof(content) - 3, 4, "a test", &view), GC_FORMAT);
    assert_string_equal(bench.error.text,
                        "bench: byte 1048573: the file ends at byte 1048576, within a test");
    reader_bench_forget(&bench);
    assert_int_equal(gc_source_view(&source, UINT64_MAX, 1, "a test", &view), GC_FORMAT);
}

/* Another process cuts the file: an error, where a mapping would be a signal. */
static void a_file_that_shrinks_is_an_error(void **state)
{
    (void)state;
    const unsigned char *view;
    assert_int_equal(gc_source_view(&source, 0, 100, "a test", &view), GC_OK);
    assert_int_equal(ftruncate(source.fd, 500000), 0);
    assert_int_equal(gc_source_view(&source, 400000, 1000, "a test", &view), GC_OK);
    assert_int_equal(gc_source_view(&source, 600000, 10, "a test", &view), GC_IO);
    assert_string_equal(bench.error.text,
                        "bench: byte 600000: the file became shorter while it was read");
}

static void reading_is_bounded(void **state)
{
    (void)state;
    const unsigned char *view;
    bench.reader.limits.header_bytes = 10000;
    enum gc_status status = GC_OK;
    for (uint64_t offset = 0; offset < sizeof(content) && status == GC_OK; offset += 1000)
        status = gc_source_view(&source, offset, 1000, "a test", &view);
    assert_int_equal(status, GC_OUT_OF_RANGE);
    assert_non_null(strstr(bench.error.text, "10000 bytes of headers"));
}

static void only_the_first_error_is_kept(void **state)
{
    (void)state;
    assert_int_equal(gc_reader_fail(&bench.reader, GC_IO, "a", "first"), GC_IO);
    assert_int_equal(gc_reader_fail(&bench.reader, GC_FORMAT, "b", "second"), GC_FORMAT);
    assert_string_equal(bench.error.text, "a: first");
}

static void messages_stay_one_line_of_text(void **state)
{
    (void)state;
    char shown[32];
    assert_string_equal(gc_reader_show("a\nb\x7f\xff", 5, shown, sizeof(shown)), "a?b??");
    assert_string_equal(gc_reader_show("\xc3\xa4\xe4\xb8\xad", 5, shown, sizeof(shown)),
                        "\xc3\xa4\xe4\xb8\xad");
    char text[100];
    memset(text, 'x', sizeof(text));
    assert_int_equal(strlen(gc_reader_show(text, sizeof(text), shown, sizeof(shown))), 31);
    assert_string_equal(shown + 28, "...");
    /* Never half a character, whatever the size. */
    for (size_t size = 8; size < 20; size++) {
        gc_reader_show("\xe4\xb8\xad\xe4\xb8\xad\xe4\xb8\xad\xe4\xb8\xad\xe4\xb8\xad", 15, shown,
                       size);
        assert_true(strlen(shown) < size && gc_reader_is_utf8(shown, strlen(shown)));
    }
    char path[5000];
    memset(path, 'p', sizeof(path) - 1);
    path[sizeof(path) - 1] = '\0';
    gc_reader_fail(&bench.reader, GC_IO, path, "what was wrong");
    assert_non_null(strstr(bench.error.text, "ppp: what was wrong"));
}

static void utf8_is_checked(void **state)
{
    (void)state;
    static const char *const good[] = {
        "", "abcdefghijkl", "\xc3\xa4", "\xed\x9f\xbf", "\xf4\x8f\xbf\xbf", "12345678\xc2\x80"};
    static const char *const bad[] = {"\x80",         "\xc0\x80",         "\xc3",
                                      "\xe0\x80\x80", "\xed\xa0\x80",     "\xf4\x90\x80\x80",
                                      "\xff",         "12345678\xe4\xb8", "\xf5\x80\x80\x80"};
    for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++)
        assert_true(gc_reader_is_utf8(good[i], strlen(good[i])));
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
        assert_false(gc_reader_is_utf8(bad[i], strlen(bad[i])));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(views_show_the_file, setup, teardown),
        cmocka_unit_test_setup_teardown(more_is_what_is_there, setup, teardown),
        cmocka_unit_test_setup_teardown(the_end_is_reported, setup, teardown),
        cmocka_unit_test_setup_teardown(a_file_that_shrinks_is_an_error, setup, teardown),
        cmocka_unit_test_setup_teardown(reading_is_bounded, setup, teardown),
        cmocka_unit_test_setup_teardown(only_the_first_error_is_kept, setup, teardown),
        cmocka_unit_test_setup_teardown(messages_stay_one_line_of_text, setup, teardown),
        cmocka_unit_test(utf8_is_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
