/* The table of configuration names: look-up, ranks, ranges, lists. */
#include "tests/unit/cmocka_all.h"

#include "core/arch/arch.h"

#include <stdio.h>
#include <string.h>

static struct gc_arch config;

static int clear(void **state)
{
    (void)state;
    memset(&config, 0, sizeof(config));
    return 0;
}

static bool find(enum gc_arch_names names, const char *name, struct gc_arch_place *place)
{
    struct gc_arch_index index;
    gc_arch_index_init(&index, names);
    return gc_arch_key_find(&index, name, strlen(name), place);
}

static enum gc_status set(const char *name, uint32_t index, struct gc_arch_value value)
{
    struct gc_arch_place place;
    if (!find(GC_ARCH_NAMES_HF, name, &place))
        fail_msg("%s is not known", name);
    return gc_arch_config_set(&config, &place, index, &value);
}

static struct gc_arch_value number(uint64_t value)
{
    return (struct gc_arch_value){.type = GC_ARCH_VALUE_UINT, .number = value};
}

static struct gc_arch_value word(const char *text)
{
    return (struct gc_arch_value){.type = GC_ARCH_VALUE_TEXT, .text = text, .length = strlen(text)};
}

/* Every name of the table leads to its own row. */
static void each_name_is_found(void **state)
{
    unsigned found = 0;
    (void)state;
    for (int key = 0; key < GC_ARCH_KEY_COUNT; key++) {
        const struct gc_arch_key_row *row = gc_arch_key_row((enum gc_arch_key)key);
        for (int names = 0; names < 2; names++) {
            const char *at = names == GC_ARCH_NAMES_HF ? row->hf : row->gguf;
            while (*at != '\0') {
                char name[128];
                struct gc_arch_place place;
                const size_t length = strcspn(at, ", ");
                const bool whole = names == GC_ARCH_NAMES_HF || strncmp(at, "general.", 8) == 0;
                (void)snprintf(name, sizeof(name), "%s%.*s", whole ? "" : "llama.", (int)length,
                               at);
                assert_true(find((enum gc_arch_names)names, name, &place));
                assert_int_equal(place.key, key);
                at += length;
                at += strspn(at, ", ");
                found++;
            }
        }
    }
    assert_true(found > 100);
}

static void unknown_names_are_not_found(void **state)
{
    static const char *const names[] = {"",
                                        ".",
                                        "llama",
                                        "hidden_siz",
                                        "llama.",
                                        "vision_config.hidden_size",
                                        "text_config.",
                                        "hidden_size, n_embd",
                                        "general.name"};
    struct gc_arch_place place;
    (void)state;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        assert_false(find(GC_ARCH_NAMES_HF, names[i], &place));
        assert_false(find(GC_ARCH_NAMES_GGUF, names[i], &place));
    }
}

/* The language model's own object counts more, in whichever order they come. */
static void the_inner_object_counts_more(void **state)
{
    (void)state;
    assert_int_equal(set("text_config.hidden_size", GC_ARCH_SINGLE, number(2560)), GC_OK);
    assert_int_equal(set("hidden_size", GC_ARCH_SINGLE, number(64)), GC_OK);
    assert_int_equal(config.fields[GC_ARCH_HIDDEN].value, 2560);
    assert_int_equal(set("n_embd", GC_ARCH_SINGLE, number(768)), GC_OK);
    assert_int_equal(config.fields[GC_ARCH_HIDDEN].value, 2560);
}

static void lists_and_single_values(void **state)
{
    uint64_t value;
    uint32_t count;
    (void)state;
    assert_int_equal(set("num_key_value_heads", GC_ARCH_SINGLE, number(8)), GC_OK);
    assert_true(gc_arch_layer_number(&config, GC_ARCH_KV_HEADS, 700, &value));
    assert_int_equal(value, 8);
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(set("num_key_value_heads", i, number(i)), GC_OK);
    assert_true(gc_arch_layer_number(&config, GC_ARCH_KV_HEADS, 2, &value));
    assert_int_equal(value, 2);
    assert_false(gc_arch_layer_number(&config, GC_ARCH_KV_HEADS, 3, &value));
    assert_non_null(gc_arch_items(&config, GC_ARCH_KV_HEADS, &count));
    assert_int_equal(count, 3);
    assert_null(gc_arch_items(&config, GC_ARCH_HIDDEN, &count));
    assert_int_equal(set("num_key_value_heads", GC_ARCH_LAYER_MAX + 1, number(1)), GC_FORMAT);
    assert_false(gc_arch_known(&config, GC_ARCH_KV_HEADS));
}

static void too_long_lists_are_refused(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < GC_ARCH_LAYER_MAX; i++)
        assert_int_equal(set("n_head", i, number(1)), GC_OK);
    assert_int_equal(set("n_head", GC_ARCH_LAYER_MAX, number(1)), GC_OUT_OF_RANGE);
    assert_false(gc_arch_known(&config, GC_ARCH_HEADS));
}

static void kinds_by_word_and_by_letter(void **state)
{
    static const enum gc_arch_kind letters[] = {GC_ARCH_KIND_STATE, GC_ARCH_KIND_DENSE,
                                                GC_ARCH_KIND_ATTENTION, GC_ARCH_KIND_EXPERTS,
                                                GC_ARCH_KIND_UNKNOWN};
    uint32_t count;
    (void)state;
    assert_int_equal(set("hybrid_override_pattern", GC_ARCH_SINGLE, word("M-*Ex")), GC_OK);
    const uint32_t *items = gc_arch_items(&config, GC_ARCH_KINDS, &count);
    assert_int_equal(count, 5);
    for (size_t i = 0; i < 5; i++)
        assert_int_equal(items[i], letters[i]);
    assert_int_equal(set("layer_types", 0, word("sliding_attention")), GC_OK);
    items = gc_arch_items(&config, GC_ARCH_KINDS, &count);
    assert_int_equal(count, 1);
    assert_int_equal(items[0], GC_ARCH_KIND_WINDOW);
}

static void wrong_values_are_refused(void **state)
{
    const struct gc_arch_value other = {.type = GC_ARCH_VALUE_OTHER};
    const struct gc_arch_value none = {.type = GC_ARCH_VALUE_NULL};
    const struct gc_arch_value yes = {.type = GC_ARCH_VALUE_BOOL, .number = 1};
    char long_word[GC_ARCH_WORD_BYTES + 1];
    char accepts[GC_ARCH_ACCEPTS_BYTES];
    (void)state;
    assert_int_equal(set("num_hidden_layers", GC_ARCH_SINGLE, number(0)), GC_OUT_OF_RANGE);
    assert_int_equal(set("num_hidden_layers", GC_ARCH_SINGLE, number(1025)), GC_OUT_OF_RANGE);
    assert_int_equal(set("num_hidden_layers", GC_ARCH_SINGLE, other), GC_FORMAT);
    assert_int_equal(set("num_hidden_layers", GC_ARCH_SINGLE, yes), GC_FORMAT);
    assert_int_equal(set("num_hidden_layers", 0, number(1)), GC_FORMAT);
    assert_int_equal(set("num_hidden_layers", GC_ARCH_SINGLE, none), GC_OK);
    assert_false(gc_arch_known(&config, GC_ARCH_LAYER_COUNT));
    assert_int_equal(set("tie_word_embeddings", GC_ARCH_SINGLE, number(1)), GC_FORMAT);
    assert_int_equal(set("tie_word_embeddings", GC_ARCH_SINGLE, yes), GC_OK);
    assert_int_equal(gc_arch_number(&config, GC_ARCH_TIED, 0), 1);
    memset(long_word, 'x', sizeof(long_word));
    long_word[GC_ARCH_WORD_BYTES] = '\0';
    assert_int_equal(set("model_type", GC_ARCH_SINGLE, word(long_word)), GC_OUT_OF_RANGE);
    assert_int_equal(set("model_type", GC_ARCH_SINGLE, word("llama")), GC_OK);
    assert_string_equal(config.type, "llama");
    assert_string_equal(gc_arch_key_accepts(GC_ARCH_LAYER_COUNT, accepts), "an integer, 1 to 1024");
}

/* Every row's text and form fit the space that messages have for them. */
static void every_row_can_be_recognised(void **state)
{
    char accepts[GC_ARCH_ACCEPTS_BYTES];
    (void)state;
    for (int key = 0; key < GC_ARCH_KEY_COUNT; key++) {
        const struct gc_arch_key_row *row = gc_arch_key_row((enum gc_arch_key)key);
        assert_true(strlen(row->text) > 0);
        assert_true(row->hf[0] != '\0' || row->gguf[0] != '\0');
        assert_true(row->minimum <= row->maximum && row->maximum <= UINT32_MAX);
        assert_true(strlen(gc_arch_key_accepts((enum gc_arch_key)key, accepts)) > 0);
    }
}

int main(void)
{
    cmocka_set_message_output(CM_OUTPUT_TAP);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_name_is_found),
        cmocka_unit_test(unknown_names_are_not_found),
        cmocka_unit_test_setup(the_inner_object_counts_more, clear),
        cmocka_unit_test_setup(lists_and_single_values, clear),
        cmocka_unit_test_setup(too_long_lists_are_refused, clear),
        cmocka_unit_test_setup(kinds_by_word_and_by_letter, clear),
        cmocka_unit_test_setup(wrong_values_are_refused, clear),
        cmocka_unit_test(every_row_can_be_recognised),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
