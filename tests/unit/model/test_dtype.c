/* The table of element types: sizes, and the names each format has for them. */
#include "core/model/dtype.h"
#include "tests/unit/cmocka_all.h"

#include <string.h>

static void bytes_are_whole_blocks(void **state)
{
    (void)state;
    static const struct {
        enum gc_dtype dtype;
        uint64_t elements;
        uint64_t bytes;
    } cases[] = {
        {GC_DTYPE_F32, 0, 0},
        {GC_DTYPE_F32, 3, 12},
        {GC_DTYPE_BF16, 5, 10},
        {GC_DTYPE_U4, 1, 1},
        {GC_DTYPE_I4, 3, 2},
        {GC_DTYPE_U2, 5, 2},
        {GC_DTYPE_F4, 7, 4},
        {GC_DTYPE_F6_E2M3, 1, 1},
        {GC_DTYPE_F6_E2M3, 2, 2},
        {GC_DTYPE_F6_E3M2, 3, 3},
        {GC_DTYPE_F6_E3M2, 5, 4},
        {GC_DTYPE_Q4_0, 32, 18},
        {GC_DTYPE_Q4_0, 33, 36},
        {GC_DTYPE_Q6_K, 256, 210},
        {GC_DTYPE_MXFP4, 64, 34},
        {GC_DTYPE_NVFP4, 64, 36},
        {GC_DTYPE_C128, 2, 32},
        {GC_DTYPE_BOOL, 9, 9},
        {GC_DTYPE_F8_E4M3, 11, 11},
        {GC_DTYPE_IQ1_S, 1, 50},
        {GC_DTYPE_U8, UINT64_MAX, UINT64_MAX},
        {GC_DTYPE_U4, UINT64_MAX, UINT64_C(1) << 63},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        uint64_t bytes = 77;
        assert_true(gc_dtype_bytes(cases[i].dtype, cases[i].elements, &bytes));
        assert_int_equal(bytes, cases[i].bytes);
    }
}

static void bytes_that_overflow_are_reported(void **state)
{
    (void)state;
    uint64_t bytes;
    assert_true(gc_dtype_bytes(GC_DTYPE_F32, UINT64_MAX / 4, &bytes));
    assert_false(gc_dtype_bytes(GC_DTYPE_F32, UINT64_MAX / 4 + 1, &bytes));
    assert_false(gc_dtype_bytes(GC_DTYPE_Q8_0, UINT64_MAX, &bytes));
    assert_false(gc_dtype_bytes(GC_DTYPE_TEXT, 1, &bytes));
    assert_false(gc_dtype_bytes(GC_DTYPE_NONE, 1, &bytes));
}

/* Each name leads back to its type, and no two types share one. */
static void names_are_unique(void **state)
{
    (void)state;
    for (unsigned i = 0; i < GC_DTYPE_COUNT; i++) {
        const enum gc_dtype dtype = (enum gc_dtype)i;
        const struct gc_dtype_info *info = gc_dtype_get_info(dtype);
        assert_int_equal(gc_dtype_from_word(info->name, strlen(info->name)), dtype);
        if (info->safetensors[0] != '\0')
            assert_int_equal(
                gc_dtype_from_safetensors(info->safetensors, strlen(info->safetensors)), dtype);
        if (info->gguf >= 0)
            assert_int_equal(gc_dtype_from_gguf((uint32_t)info->gguf), dtype);
        if (info->onnx >= 0)
            assert_int_equal(gc_dtype_from_onnx((uint64_t)info->onnx), dtype);
        for (const char *word = info->words; *word != '\0';) {
            const size_t length = strcspn(word, " ");
            assert_int_equal(gc_dtype_from_word(word, length), dtype);
            word += length;
            word += strspn(word, " ");
        }
    }
}

static void words_ignore_case_and_torch(void **state)
{
    (void)state;
    assert_int_equal(gc_dtype_from_word("torch.bfloat16", 14), GC_DTYPE_BF16);
    assert_int_equal(gc_dtype_from_word("Float8_E4M3FN", 13), GC_DTYPE_F8_E4M3);
    assert_int_equal(gc_dtype_from_word("Q4_K", 4), GC_DTYPE_Q4_K);
    assert_int_equal(gc_dtype_from_word("f8", 2), GC_DTYPE_F8_E4M3);
    assert_int_equal(gc_dtype_from_word("f3", 2), GC_DTYPE_NONE);
    assert_int_equal(gc_dtype_from_word("", 0), GC_DTYPE_NONE);
    assert_int_equal(gc_dtype_from_word("torch.", 6), GC_DTYPE_NONE);
    assert_int_equal(gc_dtype_from_safetensors("", 0), GC_DTYPE_NONE);
    assert_int_equal(gc_dtype_from_safetensors("f32", 3), GC_DTYPE_NONE);
    assert_int_equal(gc_dtype_from_gguf(UINT32_MAX), GC_DTYPE_NONE);
    assert_int_equal(gc_dtype_from_onnx(UINT64_MAX), GC_DTYPE_NONE);
}

static void no_type_has_no_size(void **state)
{
    (void)state;
    assert_string_equal(gc_dtype_name(GC_DTYPE_NONE), "?");
    assert_string_equal(gc_dtype_name((enum gc_dtype)1000), "?");
    assert_int_equal(gc_dtype_get_info(GC_DTYPE_NONE)->block_bytes, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_are_whole_blocks),
        cmocka_unit_test(bytes_that_overflow_are_reported),
        cmocka_unit_test(names_are_unique),
        cmocka_unit_test(words_ignore_case_and_torch),
        cmocka_unit_test(no_type_has_no_size),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
