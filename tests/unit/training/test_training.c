/* The formulas of training against sums made by hand over the same tensors. */
#include "tests/unit/cmocka_all.h"

#include "core/training/lora.h"
#include "core/training/rows.h"
#include "core/training/training.h"

#include <stdio.h>
#include <string.h>

/* ---- a model: an embedding, two layers with a wide and a square matrix and a norm ---- */

#define VOCAB 1000
#define WIDTH 96
#define WIDER 256
#define LAYERS 2

struct shape {
    const char *name;
    uint64_t rows;
    uint64_t columns; /* 0: a vector */
};

static const struct shape shapes[] = {
    {"model.embed_tokens.weight", VOCAB, WIDTH},
    {"model.layers.0.mlp.up_proj.weight", WIDER, WIDTH},
    {"model.layers.0.self_attn.q_proj.weight", WIDTH, WIDTH},
    {"model.layers.0.norm.weight", WIDTH, 0},
    {"model.layers.1.mlp.up_proj.weight", WIDER, WIDTH},
    {"model.layers.1.self_attn.q_proj.weight", WIDTH, WIDTH},
    {"model.layers.1.norm.weight", WIDTH, 0},
    {"lm_head.weight", VOCAB, WIDTH},
};
#define SHAPES (sizeof(shapes) / sizeof(shapes[0]))
#define LAYER_ELEMENTS (WIDER * WIDTH + WIDTH * WIDTH + WIDTH)
#define ELEMENTS (UINT64_C(2) * VOCAB * WIDTH + LAYERS * LAYER_ELEMENTS)

static struct gc_model_tensor tensors[SHAPES + 2];
static uint64_t dims[SHAPES + 2][2];
static struct gc_model model;

static void set_tensor(size_t at, const struct shape *shape, enum gc_dtype dtype)
{
    dims[at][0] = shape->rows;
    dims[at][1] = shape->columns;
    tensors[at] = (struct gc_model_tensor){
        .name = shape->name,
        .dims = dims[at],
        .dim_count = shape->columns > 0 ? 2 : 1,
        .dtype = dtype,
        .elements = shape->rows * (shape->columns > 0 ? shape->columns : 1),
        .alias_of = GC_MODEL_NONE,
    };
    assert_true(gc_dtype_bytes(dtype, tensors[at].elements, &tensors[at].bytes));
}

/* And two tensors that are not trained: a buffer of floats, a mask. */
static struct gc_training_sums count(enum gc_dtype dtype)
{
    static const struct shape mean = {"bn.running_mean", 7, 0};
    static const struct shape mask = {"attn.bias", 5, 5};
    struct gc_training_sums sums;
    uint64_t others;
    for (size_t i = 0; i < SHAPES; i++)
        set_tensor(i, &shapes[i], GC_DTYPE_F32);
    set_tensor(SHAPES, &mean, GC_DTYPE_F32);
    set_tensor(SHAPES + 1, &mask, GC_DTYPE_U8);
    model = (struct gc_model){.tensors = tensors, .tensor_count = SHAPES + 2};
    assert_int_equal(gc_training_sums_count(&model, dtype, &sums, &others), GC_OK);
    assert_int_equal(others, 7 * 4 + 25);
    assert_int_equal(sums.elements, ELEMENTS);
    return sums;
}

static uint64_t states(enum gc_optimiser optimiser, const struct gc_training_sums *sums)
{
    uint64_t bytes;
    assert_int_equal(gc_optimiser_state_bytes(optimiser, sums, &bytes), GC_OK);
    return bytes;
}

static uint64_t step(enum gc_optimiser optimiser, const struct gc_training_sums *sums)
{
    uint64_t bytes;
    assert_int_equal(gc_optimiser_step_bytes(optimiser, sums, &bytes), GC_OK);
    return bytes;
}

static void optimisers_keep_what_their_sources_say(void **state)
{
    const struct gc_training_sums wide = count(GC_DTYPE_NONE);
    const struct gc_training_sums half = count(GC_DTYPE_BF16);
    uint64_t factored = 0;
    uint64_t eight = 0;
    (void)state;
    for (size_t i = 0; i < SHAPES; i++) {
        const uint64_t columns = shapes[i].columns;
        const uint64_t elements = shapes[i].rows * (columns > 0 ? columns : 1);
        factored += 4 * (columns > 0 ? shapes[i].rows + columns : shapes[i].rows);
        eight += i == 0 || elements < 4096 ? 8 * elements
                                           : 2 * elements + 2 * 4 * ((elements + 255) / 256);
    }
    assert_int_equal(states(GC_OPTIMISER_ADAMW_FOREACH, &wide), 8 * ELEMENTS);
    assert_int_equal(states(GC_OPTIMISER_ADAMW, &half), 4 * ELEMENTS);
    assert_int_equal(states(GC_OPTIMISER_SGD, &wide), 0);
    assert_int_equal(states(GC_OPTIMISER_SGD_MOMENTUM, &half), 2 * ELEMENTS);
    assert_int_equal(states(GC_OPTIMISER_ADAFACTOR, &half), factored);
    assert_int_equal(states(GC_OPTIMISER_ADAMW_8BIT, &wide), eight);
    assert_int_equal(states(GC_OPTIMISER_ADAMW_8BIT, &half), eight);
}

/* The two largest tensors, embedding and output, are of one size but far apart in the step. */
static void steps_have_temporaries(void **state)
{
    const struct gc_training_sums wide = count(GC_DTYPE_NONE);
    const struct gc_training_sums half = count(GC_DTYPE_F16);
    (void)state;
    assert_int_equal(step(GC_OPTIMISER_ADAMW_FOREACH, &wide), 4 * ELEMENTS);
    assert_int_equal(step(GC_OPTIMISER_ADAMW, &wide), 0);
    assert_int_equal(step(GC_OPTIMISER_SGD_MOMENTUM, &wide), 0);
    assert_int_equal(step(GC_OPTIMISER_ADAFACTOR, &wide), 8 * VOCAB * WIDTH);
    assert_int_equal(step(GC_OPTIMISER_ADAFACTOR, &half), 16 * VOCAB * WIDTH);
}

/* Single tensors, two outside of layers, one in each of two layers; smaller ones of one layer. */
static void temporaries_meet_within_a_layer(void **state)
{
    struct gc_training_sums sums = {0};
    const struct gc_training_tensor sizes[] = {{10000, 200, 4, false, 0},
                                               {6000, 160, 4, false, 1},
                                               {8000, 160, 4, false, 0},
                                               {7000, 160, 4, false, 1},
                                               {7000, 160, 4, false, 2}};
    (void)state;
    assert_int_equal(gc_training_sums_add(&sums, &sizes[0], 1), GC_OK);
    assert_int_equal(gc_training_sums_add(&sums, &sizes[1], 5), GC_OK);
    assert_int_equal(gc_training_sums_add(&sums, &sizes[2], 2), GC_OK);
    assert_int_equal(gc_training_sums_add(&sums, &sizes[3], 1), GC_OK);
    assert_int_equal(gc_training_sums_add(&sums, &sizes[4], 1), GC_OK);
    assert_int_equal(gc_training_largest(&sums), 10000);
    assert_int_equal(gc_training_largest_pair(&sums), 6000);
    assert_int_equal(step(GC_OPTIMISER_ADAFACTOR, &sums), 8 * 10000);
    assert_int_equal(gc_training_sums_add(&sums, &sizes[3], 1), GC_OK);
    assert_int_equal(step(GC_OPTIMISER_ADAFACTOR, &sums), 12 * 7000);
}

static void only_the_largest_sizes_are_kept(void **state)
{
    struct gc_training_sums sums = {0};
    (void)state;
    for (uint64_t i = 1; i <= 30; i++) {
        const struct gc_training_tensor one = {(i * 7) % 31, 1, 4, false, i};
        assert_int_equal(gc_training_sums_add(&sums, &one, 1), GC_OK);
    }
    for (unsigned i = 0; i < GC_TRAINING_SIZE_MAX; i++)
        assert_int_equal(sums.sizes[i].elements, 30 - i);
    assert_int_equal(gc_training_largest_pair(&sums), 0);
}

/* ---- devices ---- */

static struct gc_training_need need_of(uint32_t stage, bool mixed, uint32_t devices)
{
    struct gc_training training = {GC_OPTIMISER_ADAMW, mixed, false, stage, 0};
    const bool has_masters = gc_training_is_divided(&training);
    const enum gc_dtype dtype = mixed || has_masters ? GC_DTYPE_F32 : GC_DTYPE_BF16;
    struct gc_training_model of = {
        .trained = count(dtype), .has_masters = has_masters, .frozen_bytes = 53};
    struct gc_training_need need;
    assert_int_equal(gc_training_find_need(&training, &of, devices, &need), GC_OK);
    return need;
}

static void check_need(uint32_t stage, bool mixed, uint32_t devices,
                       const struct gc_training_need *want)
{
    const struct gc_training_need need = need_of(stage, mixed, devices);
    if (memcmp(&need, want, sizeof(need)) != 0)
        fail_msg("stage %u, mixed %d: weights %lu gradients %lu states %lu buffers %lu backward "
                 "%lu step %lu",
                 stage, mixed, need.weights, need.gradients, need.states, need.buffers,
                 need.backward, need.step);
}

#define BUCKET UINT64_C(1000000000) /* 5e8 elements of two bytes */

static void stages_divide_what_they_say(void **state)
{
    const uint64_t e = ELEMENTS;
    (void)state;
    check_need(GC_TRAINING_NO_ZERO, false, 1,
               &(struct gc_training_need){2 * e + 53, 2 * e, 4 * e, 0, 0, 0});
    check_need(GC_TRAINING_NO_ZERO, true, 1,
               &(struct gc_training_need){4 * e + 53, 4 * e, 8 * e, 0, 0, 0});
    check_need(0, false, 4, &(struct gc_training_need){2 * e + 53, 2 * e, 4 * e, 2 * e, 0, 0});
    /* DeepSpeed's estimate_zero2_model_states_mem_needs: 4·E + 16·E / N; here gradients are divided
     * as well, and those in 32 bits are there in the step alone. */
    for (int mixed = 0; mixed < 2; mixed++) {
        const struct gc_training_need first = {2 * e + 53, 2 * e, 3 * e, BUCKET, 0, e};
        const struct gc_training_need second = {2 * e + 53, e / 2, 3 * e, BUCKET, 0, e};
        const struct gc_training_need third = {(2 * e + 53 + 3) / 4, e / 2, 3 * e, BUCKET,
                                               2 * e + 53,           e};
        check_need(1, mixed == 1, 4, &first);
        check_need(2, mixed == 1, 4, &second);
        check_need(3, mixed == 1, 4, &third);
    }
}

/* Of a large model a billion parameters are gathered at most, and a billion are stepped at once,
 * with the last tensor's part. */
static void stage_3_has_limits(void **state)
{
    const struct gc_training training = {GC_OPTIMISER_ADAMW_FOREACH, false, false, 3, 0};
    struct gc_training_model of = {.has_masters = true};
    const struct gc_training_tensor layer = {UINT64_C(100000000), 20000, 4, false, 1};
    struct gc_training_need need;
    (void)state;
    assert_int_equal(gc_training_sums_add(&of.trained, &layer, 70), GC_OK);
    assert_int_equal(gc_training_find_need(&training, &of, 8, &need), GC_OK);
    assert_int_equal(need.weights, UINT64_C(14000000000) / 8);
    assert_int_equal(need.backward, UINT64_C(2000000000));
    assert_int_equal(need.step, UINT64_C(7000000000) / 8 * 8);
    assert_int_equal(gc_training_find_need(&training, &of, 2, &need), GC_OK);
    assert_int_equal(need.step, UINT64_C(1050000000) * 8);
}

/* ---- adapters ---- */

static void adapters_stand_beside_the_matrices_of_the_layers(void **state)
{
    struct gc_lora lora;
    struct gc_training_sums sums;
    const uint64_t rank = 8;
    (void)state;
    (void)count(GC_DTYPE_NONE);
    gc_lora_read(&model, &lora);
    assert_int_equal(lora.shape_count, 2);
    assert_int_equal(gc_lora_sums(&lora, rank, 2, &sums), GC_OK);
    assert_int_equal(sums.elements, LAYERS * rank * (WIDER + WIDTH + WIDTH + WIDTH));
    assert_int_equal(sums.bytes, 2 * sums.elements);
    assert_int_equal(sums.factored, LAYERS * (WIDER + 3 * WIDTH + 4 * rank));
    assert_int_equal(gc_training_largest(&sums), rank * WIDER);
}

static void names_tell_layers(void **state)
{
    const uint64_t third = gc_training_layer("model.layers.3.mlp.up_proj.weight");
    (void)state;
    assert_int_not_equal(third, 0);
    assert_int_equal(gc_training_layer("model.layers.3.mlp.experts.7.w1.weight"), third);
    assert_int_not_equal(gc_training_layer("model.layers.31.mlp.up_proj.weight"), third);
    assert_int_not_equal(gc_training_layer("encoder.layers.3.mlp.up_proj.weight"), third);
    assert_int_equal(gc_training_layer("lm_head.weight"), 0);
    assert_int_equal(gc_training_layer("conv2d.weight"), 0);
}

static void names_tell_embeddings(void **state)
{
    static const char *const embeddings[] = {
        "model.embed_tokens.weight", "transformer.wte.weight", "shared.weight",
        "bert.embeddings.word_embeddings.weight",
        "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight"};
    static const char *const others[] = {"lm_head.weight", "model.layers.0.mlp.up_proj.weight",
                                         "weight", "bert.embeddings.LayerNorm.weight"};
    (void)state;
    for (size_t i = 0; i < sizeof(embeddings) / sizeof(embeddings[0]); i++)
        assert_true(gc_training_is_embedding(embeddings[i]));
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        assert_false(gc_training_is_embedding(others[i]));
}

/* ---- rows ---- */

static struct gc_training_rows rows;

static void set_row(uint32_t at, const char *flags, const char *text)
{
    (void)snprintf(rows.items[at].flags, sizeof(rows.items[at].flags), "%s", flags);
    (void)snprintf(rows.items[at].text, sizeof(rows.items[at].text), "%s", text);
    rows.count = at + 1;
}

static void the_largest_row_of_the_kind_counts(void **state)
{
    const struct gc_training_kind kind = {'p', 'a', 'n', 'f'};
    const struct gc_training_kind eager = {'p', 'e', 'n', 'f'};
    const struct gc_training_kind adapters = {'w', 'a', 'n', 'l'};
    const struct gc_frame_load load = {.batch = 3, .tokens = 10, .element_bytes = 2, .rank = 4};
    struct gc_training_place place;
    (void)state;
    set_row(0, "pwanf", "D*B*S*100|4*B*S|B*S|0");
    set_row(1, "pwanf", "D*B*S*50|0|8*B*S|*");
    set_row(2, "panlf", "B|0|0|S");
    set_row(3, "wacl", "R*1000000|0|0|*");
    assert_true(gc_training_rows_have(&rows, &kind));
    assert_false(gc_training_rows_have(&rows, &eager));
    assert_false(gc_training_rows_have(&rows, &adapters));
    assert_int_equal(gc_training_rows_largest(&rows, &kind, &load, 100, 1, &place), GC_OK);
    assert_int_equal(place.saved, 6000);
    assert_int_equal(place.loss, 120);
    assert_int_equal(place.work, 30);
    assert_int_equal(place.gradients, 0);
    assert_int_equal(gc_training_rows_largest(&rows, &kind, &load, 5000, 1, &place), GC_OK);
    assert_int_equal(place.saved, 3000);
    assert_int_equal(place.gradients, 5000);
    /* A quarter of the gradients on each device is not enough for the second row. */
    assert_int_equal(gc_training_rows_largest(&rows, &kind, &load, 1250, 4, &place), GC_OK);
    assert_int_equal(place.saved, 6000);
}

static void rows_that_are_no_rows_are_refused(void **state)
{
    static const char *const bad[] = {"1|2|3", "1|2|3|4|5", "1|2|3+|4", "|||"};
    const struct gc_training_kind kind = {'p', 'a', 'n', 'f'};
    const struct gc_frame_load load = {.batch = 1, .tokens = 1, .element_bytes = 2};
    struct gc_training_place place;
    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        set_row(0, "panf", bad[i]);
        assert_int_not_equal(gc_training_rows_largest(&rows, &kind, &load, 1, 1, &place), GC_OK);
    }
}

/* Negative, or with a name that nothing stands for: the others are a lower bound. */
static void rows_without_a_value_are_left_out(void **state)
{
    static const char *const bad[] = {"1|2|S*(1-B)|4", "9|x|3|4"};
    const struct gc_training_kind kind = {'p', 'a', 'n', 'f'};
    const struct gc_frame_load load = {.batch = 2, .tokens = 5, .element_bytes = 2};
    struct gc_training_place place;
    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        set_row(0, "panf", bad[i]);
        set_row(1, "panf", "B*S|1|0|0");
        assert_int_equal(gc_training_rows_largest(&rows, &kind, &load, 1, 1, &place), GC_OK);
        assert_int_equal(place.saved, 10);
        assert_true(place.is_partial);
    }
    set_row(0, "panf", "B*S|1|0|0");
    assert_int_equal(gc_training_rows_largest(&rows, &kind, &load, 1, 1, &place), GC_OK);
    assert_false(place.is_partial);
}

/* A class all of whose rows are of other configurations. */
static void rows_of_nothing_are_partial(void **state)
{
    const struct gc_training_kind kind = {'p', 'a', 'n', 'f'};
    const struct gc_frame_load load = {.batch = 2, .tokens = 5, .element_bytes = 2};
    struct gc_training_place place;
    (void)state;
    set_row(0, "panf", "0*(B*S)|0|0|0");
    assert_int_equal(gc_training_rows_largest(&rows, &kind, &load, 1, 1, &place), GC_OK);
    assert_true(place.is_partial);
}

static void conditions_that_do_not_hold_are_found(void **state)
{
    const struct gc_frame_load load = {.batch = 2, .tokens = 5, .element_bytes = 2};
    const struct gc_training_condition *unmet;
    uint32_t next = 0;
    (void)state;
    memset(&rows, 0, sizeof(rows));
    rows.conditions[0] = (struct gc_training_condition){"hidden_act", true, "1+0"};
    rows.conditions[1] =
        (struct gc_training_condition){"sliding_window", false, "max(0,min(1,max(0,4-S)))"};
    rows.conditions[2] = (struct gc_training_condition){"dropout", true, "0"};
    rows.condition_count = 3;
    unmet = gc_training_rows_unmet(&rows, &load, &next);
    assert_ptr_equal(unmet, &rows.conditions[1]);
    unmet = gc_training_rows_unmet(&rows, &load, &next);
    assert_ptr_equal(unmet, &rows.conditions[2]);
    assert_null(gc_training_rows_unmet(&rows, &load, &next));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(optimisers_keep_what_their_sources_say),
        cmocka_unit_test(steps_have_temporaries),
        cmocka_unit_test(temporaries_meet_within_a_layer),
        cmocka_unit_test(only_the_largest_sizes_are_kept),
        cmocka_unit_test(stages_divide_what_they_say),
        cmocka_unit_test(stage_3_has_limits),
        cmocka_unit_test(adapters_stand_beside_the_matrices_of_the_layers),
        cmocka_unit_test(names_tell_layers),
        cmocka_unit_test(names_tell_embeddings),
        cmocka_unit_test(the_largest_row_of_the_kind_counts),
        cmocka_unit_test(rows_that_are_no_rows_are_refused),
        cmocka_unit_test(rows_without_a_value_are_left_out),
        cmocka_unit_test(rows_of_nothing_are_partial),
        cmocka_unit_test(conditions_that_do_not_hold_are_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
