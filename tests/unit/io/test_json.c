/* The JSON writer and the output under it, read back with a parser that is not ours. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/io/json.h"
#include "tests/unit/scratch.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct gc_writer out;
static struct gc_json json;

static int setup(void **state)
{
    (void)state;
    gc_writer_init(&out, scratch_fd());
    gc_json_init(&json, &out);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    close(out.fd);
    return 0;
}

static char *written(void)
{
    assert_int_equal(gc_writer_flush(&out), GC_OK);
    return scratch_read(out.fd, NULL);
}

static json_t *parsed(void)
{
    json_error_t error;
    char *text = written();
    json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, &error);
    if (root == NULL)
        fail_msg("%s in: %s", error.text, text);
    free(text);
    return root;
}

static void containers_nest(void **state)
{
    (void)state;
    gc_json_begin_object(&json, GC_JSON_LINES);
    gc_json_write_uint(&json, "a", UINT64_MAX / 2);
    gc_json_key(&json, "b");
    gc_json_begin_array(&json, GC_JSON_LINE);
    gc_json_int(&json, INT64_MIN);
    gc_json_bool(&json, true);
    gc_json_bool(&json, false);
    gc_json_null(&json);
    gc_json_begin_object(&json, GC_JSON_LINES);
    gc_json_end_object(&json);
    gc_json_fixed(&json, 1500007, 6);
    gc_json_end_array(&json);
    gc_json_write_null(&json, "c");
    gc_json_key(&json, "d");
    gc_json_begin_array(&json, GC_JSON_LINES);
    gc_json_end_array(&json);
    gc_json_end_object(&json);
    char *text = written();
    assert_string_equal(text, "{\n  \"a\": 9223372036854775807,\n"
                              "  \"b\": [-9223372036854775808, true, false, null, {}, 1.500007],\n"
                              "  \"c\": null,\n  \"d\": []\n}\n");
    free(text);
    json_decref(parsed());
}

static void strings_come_back(void **state)
{
    static const char *const strings[] = {
        "",
        "plain",
        "quote \" backslash \\ slash /",
        "line\nbreak\ttab\r\b\f\x01\x1f\x7f",
        "\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80",
        "</script>",
    };
    (void)state;
    gc_json_begin_array(&json, GC_JSON_LINES);
    for (size_t i = 0; i < sizeof(strings) / sizeof(strings[0]); i++)
        gc_json_string(&json, strings[i]);
    gc_json_string(&json, NULL);
    gc_json_end_array(&json);
    json_t *root = parsed();
    for (size_t i = 0; i < sizeof(strings) / sizeof(strings[0]); i++)
        assert_string_equal(json_string_value(json_array_get(root, i)), strings[i]);
    assert_string_equal(json_string_value(json_array_get(root, 6)), "");
    json_decref(root);
}

static void invalid_utf8_is_replaced(void **state)
{
#define R "\xef\xbf\xbd"
    static const struct {
        const char *from;
        const char *to;
    } cases[] = {
        {"a\xff"
         "b",
         "a" R "b"},
        {"\x80", R},
        {"\xc3", R},
        {"\xc3(", R "("},
        {"\xc0\xaf", R R},             /* overlong */
        {"\xe0\x80\xaf", R R R},       /* overlong */
        {"\xed\xa0\x80", R R R},       /* surrogate */
        {"\xf4\x90\x80\x80", R R R R}, /* above U+10FFFF */
        {"\xf0\x9f\x98", R R R},       /* cut off */
        {"\xe2\x82\"", R R "\""},
    };
    (void)state;
    gc_json_begin_array(&json, GC_JSON_LINES);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        gc_json_string(&json, cases[i].from);
    gc_json_end_array(&json);
    json_t *root = parsed();
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        assert_string_equal(json_string_value(json_array_get(root, i)), cases[i].to);
    json_decref(root);
}

static void any_bytes_make_json(void **state)
{
    struct scratch_random random = {0x5eed77};
    (void)state;
    gc_json_begin_array(&json, GC_JSON_LINES);
    for (int i = 0; i < 2000; i++) {
        char text[9];
        for (size_t j = 0; j < 8; j++)
            text[j] = (char)(scratch_next(&random) >> 11);
        text[8] = '\0';
        gc_json_string(&json, text);
    }
    gc_json_end_array(&json);
    json_t *root = parsed();
    assert_int_equal(json_array_size(root), 2000);
    json_decref(root);
}

static void failed_writes_are_remembered(void **state)
{
    const int full = open("/dev/full", O_WRONLY);
    (void)state;
    assert_true(full >= 0);
    gc_writer_init(&out, full);
    for (int i = 0; i < 10000; i++)
        gc_writer_text(&out, "0123456789");
    errno = 0;
    assert_int_equal(gc_writer_flush(&out), GC_IO);
    assert_int_equal(errno, ENOSPC);
}

static void columns_line_up(void **state)
{
    (void)state;
    gc_writer_text(&out, "ab");
    gc_writer_right(&out, 8, "12");
    gc_writer_right(&out, 8, "x");
    gc_writer_char(&out, '\n');
    gc_writer_pad(&out, 2);
    gc_writer_hex(&out, 0);
    gc_writer_char(&out, ' ');
    gc_writer_hex(&out, UINT64_MAX);
    gc_writer_char(&out, ' ');
    gc_writer_fixed(&out, 7, 3);
    gc_writer_fixed(&out, 12, 0);
    char *text = written();
    assert_string_equal(text, "ab    12 x\n  0x0 0xffffffffffffffff 0.00712");
    free(text);
}

int main(void)
{
    cmocka_set_message_output(CM_OUTPUT_TAP);
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(containers_nest),
        TEST(strings_come_back),
        TEST(invalid_utf8_is_replaced),
        TEST(any_bytes_make_json),
        TEST(failed_writes_are_remembered),
        TEST(columns_line_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
