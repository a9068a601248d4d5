/* The JSON reader against jansson: what one takes the other takes, and they see the same. */
#include "core/reader/json_reader.h"
#include "tests/unit/cmocka_all.h"
#include "tests/unit/reader_bench.h"
#include "tests/unit/scratch.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static struct reader_bench bench;

static int setup(void **state)
{
    (void)state;
    reader_bench_begin(&bench);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    reader_bench_end(&bench);
    return 0;
}

/* The reader's value that begins with `token`, as jansson would build it; NULL on an error. */
static json_t *build(struct gc_json_reader *reader, const struct gc_json_token *token)
{
    json_t *stack[GC_JSON_READER_DEPTH_MAX + 1] = {NULL};
    char key[4096] = "";
    struct gc_json_token next = *token;
    unsigned depth = 0;
    for (;;) {
        json_t *value = NULL;
        switch (next.event) {
        case GC_JSON_KEY:
            memcpy(key, next.text, next.length);
            key[next.length] = '\0';
            break;
        case GC_JSON_BEGIN_OBJECT:
            value = json_object();
            break;
        case GC_JSON_BEGIN_ARRAY:
            value = json_array();
            break;
        case GC_JSON_STRING:
            value = json_stringn(next.text, next.length);
            break;
        case GC_JSON_INTEGER:
            value = json_integer(next.negative ? (json_int_t)-next.magnitude
                                               : (json_int_t)next.magnitude);
            break;
        case GC_JSON_REAL:
            value = json_real(next.real);
            break;
        case GC_JSON_BOOL:
            value = json_boolean(next.truth);
            break;
        case GC_JSON_NULL:
            value = json_null();
            break;
        default:
            depth--;
        }
        if (value != NULL && depth > 0) {
            if (json_is_object(stack[depth - 1]))
                json_object_set_new(stack[depth - 1], key, value);
            else
                json_array_append_new(stack[depth - 1], value);
        } else if (value != NULL) {
            stack[0] = value;
        }
        if (next.event == GC_JSON_BEGIN_OBJECT || next.event == GC_JSON_BEGIN_ARRAY)
            stack[depth++] = value;
        if (depth == 0)
            return stack[0];
        if (gc_json_reader_next(reader, &next) != GC_OK) {
            json_decref(stack[0]);
            return NULL;
        }
    }
}

static bool same(const json_t *a, const json_t *b)
{
    if (json_is_real(a) && json_is_real(b)) {
        const double x = json_real_value(a);
        const double y = json_real_value(b);
        return x == y || fabs(x - y) <= fabs(y) * 1e-15;
    }
    if (json_typeof(a) != json_typeof(b))
        return false;
    if (json_is_array(a)) {
        bool equal = json_array_size(a) == json_array_size(b);
        for (size_t i = 0; equal && i < json_array_size(a); i++)
            equal = same(json_array_get(a, i), json_array_get(b, i));
        return equal;
    }
    if (!json_is_object(a))
        return json_equal(a, b) != 0;
    bool equal = json_object_size(a) == json_object_size(b);
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)a, key, value)
    {
        const json_t *other = json_object_get(b, key);
        equal = equal && other != NULL && same(value, other);
    }
    return equal;
}

/* Reads it with both, from a window in which it begins at any place. */
static void compare(const char *text, size_t length)
{
    json_error_t error;
    struct gc_source source;
    struct gc_json_reader reader;
    struct gc_json_token token;
    json_t *want = json_loadb(text, length, JSON_DECODE_ANY | JSON_ALLOW_NUL, &error);
    reader_bench_forget(&bench);
    reader_bench_source(&bench, text, length, &source);
    gc_json_reader_init(&reader, &source, 0, length);
    json_t *got = NULL;
    if (gc_json_reader_next(&reader, &token) == GC_OK)
        got = build(&reader, &token);
    if (got != NULL && gc_json_reader_next(&reader, &token) != GC_OK) {
        json_decref(got);
        got = NULL;
    }
    gc_source_close(&source);
    if (got == NULL && want != NULL)
        fail_msg("refused (%s): %s", bench.error.text, text);
    if (got != NULL && want == NULL)
        fail_msg("taken, jansson says %s: %s", error.text, text);
    if (got != NULL && !same(got, want))
        fail_msg("read otherwise: %s", text);
    json_decref(got);
    json_decref(want);
}

static void agrees_on_examples(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "{}",
        "[]",
        "0",
        "-0",
        "-1",
        "1.5",
        "1e3",
        "-2.5E-7",
        "123456789012345678",
        "\"\"",
        "true",
        "false",
        "null",
        " [ 1 , 2 ] ",
        "{\"a\":{\"b\":[{}]}}",
        "[\"\\u00e9\\ud83d\\ude00\\n\\/\"]",
        "[\"\xc3\xa4\xf0\x9f\x98\x80\"]",
        "",
        " ",
        "[",
        "]",
        "{",
        "}",
        "[1,]",
        "{\"a\":1,}",
        "[,1]",
        "{\"a\"}",
        "{a:1}",
        "{\"a\" 1}",
        "01",
        "+1",
        "1.",
        ".5",
        "1e",
        "1e+",
        "- 1",
        "NaN",
        "Infinity",
        "tru",
        "True",
        "nulll",
        "[1 2]",
        "\"a",
        "\"\\x\"",
        "\"\\u12g4\"",
        "\"\t\"",
        "\"\\ud800\"",
        "\"\\udc00\"",
        "\"\\ud800\\u0041\"",
        "\"\xff\"",
        "\"\xed\xa0\x80\"",
        "// c\n1",
        "{}{}",
        "1 2",
        "[1]x",
        "\xef\xbb\xbf{}",
        "[1}",
        "{\"a\":1]",
        "'a'",
        "\"\\",
        "\"\\u",
        "[\"a\",\"a\"]",
        "5e-324",
        "1.7976931348623157e308",
        "2.2250738585072014e-308",
        "0.1",
        "123.456e-7",
        "0.000000000000000000000000000000000001",
        "179769313486231570000000000000000000000.5",
    };
    for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++)
        compare(texts[i], strlen(texts[i]));
}

/* Random mutations of a text with everything in it. */
static void agrees_at_random(void **state)
{
    (void)state;
    static const char whole[] =
        "{\"name\": \"w\\u00e9\\n\xc3\xa4\", \"list\": [1, -2.5e3, true, null, []], "
        "\"in\": {\"a\": {\"b\": \"\\ud83d\\ude00\"}, \"c\": 12345678901234}}";
    static const char bytes[] = "{}[]\",:\\u0123456789eE+-.truefalsn \n\t\xc3\xa4\xff\x01";
    struct scratch_random random = {3};
    for (int round = 0; round < 4000; round++) {
        char text[sizeof(whole)];
        memcpy(text, whole, sizeof(whole));
        size_t length = sizeof(whole) - 1;
        for (unsigned long long changes = scratch_next(&random) % 3 + 1; changes > 0; changes--) {
            const size_t at = (size_t)(scratch_next(&random) % length);
            text[at] = bytes[scratch_next(&random) % (sizeof(bytes) - 1)];
        }
        if (scratch_next(&random) % 4 == 0)
            length = (size_t)(scratch_next(&random) % length);
        text[length] = '\0';
        /* Where jansson stops at limits of its own (reals out of range), they may differ. */
        if (strstr(text, "3e") == NULL && strstr(text, "e3") == NULL && strchr(text, 'E') == NULL)
            compare(text, length);
    }
}

/* Strings and numbers that lie across the window's end, wherever it falls. */
static void windows_do_not_show(void **state)
{
    (void)state;
    static const char piece[] =
        "[\"plain\",\"\xf0\x9f\x98\x80\\ud83d\\ude00\",-123.25e2,true,{\"k\":null}]";
    const size_t piece_bytes = sizeof(piece) - 1;
    char *text = malloc(GC_SOURCE_WINDOW_BYTES * 2);
    for (size_t shift = 0; shift <= piece_bytes; shift++) {
        /* The first read ends at 4 KiB, the next ones further on. */
        for (size_t edge = 4096; edge <= 32768; edge *= 2) {
            const size_t blanks = edge - shift;
            memset(text, ' ', blanks);
            memcpy(text + blanks, piece, piece_bytes);
            compare(text, blanks + piece_bytes);
        }
    }
    free(text);
}

static void numbers_are_exact(void **state)
{
    (void)state;
    static const char text[] =
        "[18446744073709551615, 18446744073709551616, -9223372036854775808, 1e2, 1.0, "
        "1.5, -1, 9007199254740991.0, 1e400, -1e400, 0e999999999999999999999]";
    struct gc_source source;
    struct gc_json_reader reader;
    struct gc_json_token token[11];
    uint64_t value;
    reader_bench_source(&bench, text, sizeof(text) - 1, &source);
    gc_json_reader_init(&reader, &source, 0, sizeof(text) - 1);
    assert_int_equal(gc_json_reader_next(&reader, &token[0]), GC_OK);
    for (int i = 0; i < 11; i++)
        assert_int_equal(gc_json_reader_next(&reader, &token[i]), GC_OK);
    assert_true(token[0].event == GC_JSON_INTEGER && token[0].magnitude == UINT64_MAX);
    assert_true(gc_json_token_uint(&token[0], &value) && value == UINT64_MAX);
    assert_true(token[1].event == GC_JSON_REAL && token[1].real == 18446744073709551616.0);
    assert_false(gc_json_token_uint(&token[1], &value));
    assert_true(token[2].negative && token[2].magnitude == UINT64_C(1) << 63);
    assert_true(gc_json_token_uint(&token[3], &value) && value == 100);
    assert_true(gc_json_token_uint(&token[4], &value) && value == 1);
    assert_false(gc_json_token_uint(&token[5], &value));
    assert_false(gc_json_token_uint(&token[6], &value));
    assert_true(gc_json_token_uint(&token[7], &value) && value == 9007199254740991);
    assert_true(isinf(token[8].real) && token[9].real < 0);
    assert_false(gc_json_token_uint(&token[8], &value));
    assert_true(token[10].real == 0);
    gc_source_close(&source);
}

static enum gc_status skip_all(const char *text, size_t length)
{
    struct gc_source source;
    struct gc_json_reader reader;
    struct gc_json_token token;
    reader_bench_forget(&bench);
    reader_bench_source(&bench, text, length, &source);
    gc_json_reader_init(&reader, &source, 0, length);
    enum gc_status status = gc_json_reader_next(&reader, &token);
    if (status == GC_OK)
        status = gc_json_reader_skip(&reader, &token);
    if (status == GC_OK)
        status = gc_json_reader_next(&reader, &token);
    if (status == GC_OK)
        assert_int_equal(token.event, GC_JSON_END);
    gc_source_close(&source);
    return status;
}

static void depth_is_bounded(void **state)
{
    (void)state;
    static const char nested[] = "{\"a\": [1, {\"b\": 2}], \"c\": {}}";
    char text[1000];
    for (size_t depth = 1; depth < 100; depth++) {
        memset(text, '[', depth);
        memset(text + depth, ']', depth);
        assert_int_equal(skip_all(text, depth * 2),
                         depth <= GC_JSON_READER_DEPTH_MAX ? GC_OK : GC_FORMAT);
    }
    assert_non_null(strstr(bench.error.text, "nested deeper than 64 levels"));
    assert_int_equal(skip_all(nested, strlen(nested)), GC_OK);
}

static void long_strings_are_cut(void **state)
{
    (void)state;
    const size_t length = 3 << 20;
    char *text = malloc(length);
    struct gc_source source;
    struct gc_json_reader reader;
    struct gc_json_token token;
    memset(text, 'x', length);
    text[0] = text[length - 1] = '"';
    reader_bench_source(&bench, text, length, &source);
    gc_json_reader_init(&reader, &source, 0, length);
    assert_int_equal(gc_json_reader_next(&reader, &token), GC_OK);
    assert_true(token.cut && token.length <= GC_JSON_READER_TEXT_MAX);
    assert_int_equal(gc_json_reader_next(&reader, &token), GC_OK);
    assert_int_equal(token.event, GC_JSON_END);
    gc_source_close(&source);
    free(text);
}

/* Only the stretch is read: what stands around it is somebody else's. */
static void a_stretch_is_all_there_is(void **state)
{
    (void)state;
    struct gc_source source;
    struct gc_json_reader reader;
    struct gc_json_token token;
    reader_bench_source(&bench, "xx[12]34", 8, &source);
    gc_json_reader_init(&reader, &source, 2, 6);
    assert_int_equal(gc_json_reader_next(&reader, &token), GC_OK);
    assert_int_equal(token.offset, 2);
    assert_int_equal(gc_json_reader_skip(&reader, &token), GC_OK);
    assert_int_equal(gc_json_reader_next(&reader, &token), GC_OK);
    gc_json_reader_init(&reader, &source, 2, 4);
    assert_int_equal(gc_json_reader_next(&reader, &token), GC_OK);
    assert_int_equal(gc_json_reader_next(&reader, &token), GC_OK);
    assert_int_equal(token.magnitude, 1);
    assert_int_equal(gc_json_reader_next(&reader, &token), GC_FORMAT);
    assert_string_equal(bench.error.text,
                        "bench: byte 4: the JSON ends where ',' or ']' is expected");
    gc_source_close(&source);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(agrees_on_examples, setup, teardown),
        cmocka_unit_test_setup_teardown(agrees_at_random, setup, teardown),
        cmocka_unit_test_setup_teardown(windows_do_not_show, setup, teardown),
        cmocka_unit_test_setup_teardown(numbers_are_exact, setup, teardown),
        cmocka_unit_test_setup_teardown(depth_is_bounded, setup, teardown),
        cmocka_unit_test_setup_teardown(long_strings_are_cut, setup, teardown),
        cmocka_unit_test_setup_teardown(a_stretch_is_all_there_is, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
