/* The estimate as a whole: weights by layer, devices, overhead, what is not known; whether it fits,
 * and counter-offers over random configurations. */
#include "tests/unit/cmocka_all.h"

#include "core/base/bits.h"
#include "core/estimator/estimator.h"
#include "core/estimator/fit.h"
#include "tests/unit/arch_sample.h"

#include <stdio.h>
#include <string.h>

#define MIB(n) (UINT64_C(n) << 20)

/* ---- a model made by hand ---- */

#define TENSOR_MAX 4096

static struct gc_model_tensor tensors[TENSOR_MAX];
static char names[TENSOR_MAX][96];
static const uint64_t matrix_dims[2] = {1, 1};
static struct gc_model model;

static void clear_model(void)
{
    memset(&model, 0, sizeof(model));
    model.format = GC_MODEL_SAFETENSORS;
    model.tensors = tensors;
}

static void add_tensor(const char *name, enum gc_dtype dtype, uint64_t elements, uint32_t dims)
{
    struct gc_model_tensor *tensor = &tensors[model.tensor_count];
    (void)snprintf(names[model.tensor_count], sizeof(names[0]), "%s", name);
    *tensor = (struct gc_model_tensor){.name = names[model.tensor_count],
                                       .dims = matrix_dims,
                                       .dim_count = dims,
                                       .dtype = dtype,
                                       .elements = elements,
                                       .alias_of = GC_MODEL_NONE};
    assert_true(gc_dtype_bytes(dtype, elements, &tensor->bytes));
    model.tensor_count++;
    model.totals.parameters += elements;
}

static struct gc_estimator *open_weights(enum gc_dtype dtype)
{
    struct gc_estimator *estimator;
    assert_int_equal(gc_estimator_open(&model, dtype, &estimator), GC_OK);
    return estimator;
}

/* ---- names ---- */

static void names_give_layers_and_experts(void **state)
{
    static const struct {
        const char *name;
        uint32_t layer;
        bool expert;
        bool last;
    } cases[] = {
        {"model.embed_tokens.weight", GC_WEIGHT_NO_LAYER, false, false},
        {"lm_head.weight", GC_WEIGHT_NO_LAYER, false, true},
        {"model.norm.weight", GC_WEIGHT_NO_LAYER, false, true},
        {"model.layers.12.self_attn.q_proj.weight", 12, false, false},
        {"model.layers.3.mlp.experts.17.up_proj.weight", 3, true, false},
        {"model.layers.3.mlp.shared_experts.up_proj.weight", 3, false, false},
        {"model.layers.3.block_sparse_moe.experts.0.w1.weight", 3, true, false},
        {"model.layers.0.block_sparse_moe.input_linear.weight", 0, true, false},
        {"model.layers.7.mlp.experts.gate_up_proj", 7, true, false},
        {"language_model.model.layers.7.mlp.gate.weight", 7, false, false},
        {"blk.30.ffn_gate_exps.weight", 30, true, false},
        {"blk.30.ffn_gate_shexp.weight", 30, false, false},
        {"blk.30.ffn_gate.5.weight", 30, true, false},
        {"blk.30.ffn_gate_inp.weight", 30, false, false},
        {"token_embd.weight", GC_WEIGHT_NO_LAYER, false, false},
        {"output.weight", GC_WEIGHT_NO_LAYER, false, true},
        {"transformer.h.5.attn.c_attn.weight", 5, false, false},
        {"layers.99999.x", GC_WEIGHT_NO_LAYER, false, false},
        {"", GC_WEIGHT_NO_LAYER, false, false},
        {"...", GC_WEIGHT_NO_LAYER, false, false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const struct gc_weight_place place = gc_weight_find_place(cases[i].name);
        if (place.layer != cases[i].layer || place.expert != cases[i].expert ||
            place.last != cases[i].last)
            fail_msg("%s: layer %u expert %d last %d", cases[i].name, place.layer, place.expert,
                     place.last);
    }
}

static void weights_of_every_type(void **state)
{
    struct gc_estimate_request request;
    struct gc_estimate estimate;
    uint64_t want = 0;
    (void)state;
    clear_model();
    gc_estimate_request_init(&request);
    for (int dtype = 0; dtype < GC_DTYPE_COUNT; dtype++) {
        const struct gc_dtype_info *info = gc_dtype_get_info((enum gc_dtype)dtype);
        if (info->block_bytes == 0)
            continue;
        add_tensor("x", (enum gc_dtype)dtype, UINT64_C(1000) * info->block_elements, 2);
        want += UINT64_C(1000) * info->block_bytes;
    }
    struct gc_estimator *estimator = open_weights(GC_DTYPE_NONE);
    assert_int_equal(gc_estimator_run(estimator, &request, &estimate), GC_OK);
    assert_int_equal(estimate.total.parts[GC_ESTIMATE_weight], want);
    assert_int_equal(estimate.total.parts[GC_ESTIMATE_overhead],
                     (want + 9) / 10 + GC_ESTIMATE_CONTEXT_BYTES);
    assert_int_equal(estimate.coverage_thousandths, 1000 / 6);
    assert_true(estimate.notes.count > 0);
    gc_estimator_close(estimator);
}

/* Floating-point weights in another type; integers and quantised blocks stay; aliases are free. */
static void weights_in_another_type(void **state)
{
    struct gc_estimate_request request;
    struct gc_estimate estimate;
    (void)state;
    clear_model();
    gc_estimate_request_init(&request);
    add_tensor("a", GC_DTYPE_F32, 100, 2);
    add_tensor("b", GC_DTYPE_I8, 100, 2);
    add_tensor("c", GC_DTYPE_Q8_0, 320, 2);
    add_tensor("d", GC_DTYPE_F32, 100, 2);
    tensors[3].alias_of = 0;
    struct gc_estimator *estimator = open_weights(GC_DTYPE_F16);
    assert_int_equal(gc_estimator_run(estimator, &request, &estimate), GC_OK);
    assert_int_equal(estimate.total.parts[GC_ESTIMATE_weight], 200 + 100 + 340);
    assert_int_equal(estimate.tensor_count, 3);
    gc_estimator_close(estimator);
}

static void sums_beyond_64_bits_are_errors(void **state)
{
    struct gc_estimator *estimator;
    struct gc_estimate_request request;
    struct gc_estimate estimate;
    (void)state;
    clear_model();
    add_tensor("a", GC_DTYPE_U8, UINT64_C(1) << 63, 2);
    add_tensor("b", GC_DTYPE_U8, UINT64_C(1) << 63, 2);
    assert_int_equal(gc_estimator_open(&model, GC_DTYPE_NONE, &estimator), GC_OVERFLOW);
    assert_null(estimator);
    model.tensor_count = 1;
    estimator = open_weights(GC_DTYPE_NONE);
    gc_estimate_request_init(&request);
    request.overhead_millionths = 2000000;
    assert_int_equal(gc_estimator_run(estimator, &request, &estimate), GC_OVERFLOW);
    assert_int_equal(estimate.overflowed, GC_ESTIMATE_overhead);
    gc_estimator_close(estimator);
}

/* ---- a model with layers ---- */

static struct gc_arch arch;

static struct gc_estimator *open_arch(const char *text)
{
    arch_sample(&arch, GC_ARCH_NAMES_HF, text);
    return arch_sample_open(&arch);
}

static const char llama2[] =
    "model_type=llama torch_dtype=float16 num_hidden_layers=32 hidden_size=4096 "
    "num_attention_heads=32 intermediate_size=11008 vocab_size=32000 max_position_embeddings=4096";

static void parts_of_a_transformer(void **state)
{
    struct gc_estimator *estimator = open_arch(llama2);
    struct gc_estimate_request request;
    struct gc_estimate estimate;
    uint64_t sum = 0;
    (void)state;
    gc_estimate_request_init(&request);
    assert_int_equal(gc_estimator_run(estimator, &request, &estimate), GC_OK);
    assert_int_equal(estimate.seq_len, 4096);
    assert_int_equal(estimate.coverage_thousandths, 833);
    assert_int_equal(estimate.unknown_parts, 1U << GC_ESTIMATE_activation); /* a general formula */
    assert_int_equal(estimate.total.parts[GC_ESTIMATE_kv_cache], MIB(2048));
    assert_int_equal(estimate.total.parts[GC_ESTIMATE_activation],
                     UINT64_C(4096) * 2 * (4 * 4096 + 3 * 11008) + 32000 * 4);
    for (int part = 0; part < GC_ESTIMATE_PART_COUNT; part++)
        sum += estimate.total.parts[part];
    assert_int_equal(estimate.total.peak_bytes, sum);
    request.chunk_tokens = 512;
    request.seq_len = 1024;
    assert_int_equal(gc_estimator_run(estimator, &request, &estimate), GC_OK);
    assert_int_equal(estimate.total.parts[GC_ESTIMATE_kv_cache], MIB(512));
    assert_int_equal(estimate.total.parts[GC_ESTIMATE_activation],
                     UINT64_C(512) * 2 * (4 * 4096 + 3 * 11008) + 32000 * 4);
    request.seq_len = 8192;
    assert_int_equal(gc_estimator_run(estimator, &request, &estimate), GC_OK);
    assert_int_equal(estimate.notes.count, 2);
    gc_estimator_close(estimator);
}

/* A missing value is no number: it is reported, and the part is a lower bound. */
static void unknown_types_and_contexts_are_reported(void **state)
{
    struct gc_estimator *estimator =
        open_arch("model_type=llama num_hidden_layers=32 hidden_size=4096 num_attention_heads=32 "
                  "intermediate_size=11008 vocab_size=32000");
    struct gc_estimate_request request;
    struct gc_estimate estimate;
    (void)state;
    gc_estimate_request_init(&request);
    assert_int_equal(gc_estimator_run(estimator, &request, &estimate), GC_OK);
    assert_int_equal(estimate.seq_len, 0);
    assert_true(estimate.unknown_parts >> GC_ESTIMATE_kv_cache & 1);
    assert_true(estimate.unknown_parts >> GC_ESTIMATE_input & 1);
    assert_true(estimate.coverage_thousandths < 500);
    request.seq_len = 4096;
    request.kv_dtype = GC_DTYPE_F16;
    assert_int_equal(gc_estimator_run(estimator, &request, &estimate), GC_OK);
    assert_int_equal(estimate.total.parts[GC_ESTIMATE_kv_cache], MIB(2048));
    assert_false(estimate.unknown_parts >> GC_ESTIMATE_kv_cache & 1);
    assert_true(estimate.unknown_parts >> GC_ESTIMATE_activation & 1);
    request.dtype = GC_DTYPE_F16;
    assert_int_equal(gc_estimator_run(estimator, &request, &estimate), GC_OK);
    assert_int_equal(estimate.unknown_parts, 1U << GC_ESTIMATE_activation);
    gc_estimator_close(estimator);
}

static void counts_out_of_range_are_refused(void **state)
{
    struct gc_estimator *estimator = open_arch(llama2);
    struct gc_estimate_request request;
    struct gc_estimate estimate;
    (void)state;
    gc_estimate_request_init(&request);
    request.batch = 0;
    assert_int_equal(gc_estimator_run(estimator, &request, &estimate), GC_INVALID_ARGUMENT);
    request.batch = 1;
    request.device_count = GC_ESTIMATE_DEVICE_MAX + 1;
    assert_int_equal(gc_estimator_run(estimator, &request, &estimate), GC_INVALID_ARGUMENT);
    request.device_count = 1;
    request.seq_len = UINT32_MAX;
    request.batch = GC_ESTIMATE_COUNT_MAX;
    assert_int_equal(gc_estimator_run(estimator, &request, &estimate), GC_OVERFLOW);
    assert_int_equal(estimate.overflowed, GC_ESTIMATE_kv_cache);
    gc_estimator_close(estimator);
}

/* ---- devices ---- */

#define LAYERS 10
#define LAYER_ELEMENTS 1000
#define EXPERTS 8
#define EXPERT_ELEMENTS 300

/* Ten layers with experts, an embedding and an output. */
static struct gc_estimator *open_mixture(void)
{
    char name[96];
    clear_model();
    add_tensor("model.embed_tokens.weight", GC_DTYPE_F16, 5000, 2);
    add_tensor("lm_head.weight", GC_DTYPE_F16, 7000, 2);
    for (int layer = 0; layer < LAYERS; layer++) {
        (void)snprintf(name, sizeof(name), "model.layers.%d.self_attn.q_proj.weight", layer);
        add_tensor(name, GC_DTYPE_F16, LAYER_ELEMENTS, 2);
        (void)snprintf(name, sizeof(name), "model.layers.%d.norm.weight", layer);
        add_tensor(name, GC_DTYPE_F16, 10, 1);
        for (int expert = 0; expert < EXPERTS; expert++) {
            (void)snprintf(name, sizeof(name), "model.layers.%d.mlp.experts.%d.w.weight", layer,
                           expert);
            add_tensor(name, GC_DTYPE_F16, EXPERT_ELEMENTS, 2);
        }
    }
    struct gc_estimator *estimator = open_weights(GC_DTYPE_NONE);
    arch_sample(&arch, GC_ARCH_NAMES_HF,
                "model_type=mixtral torch_dtype=float16 num_hidden_layers=10 hidden_size=64 "
                "num_attention_heads=8 num_key_value_heads=2 intermediate_size=128 "
                "vocab_size=1000 max_position_embeddings=4096 num_local_experts=8 "
                "num_experts_per_tok=2");
    estimator->arch = arch;
    estimator->has_layers = true;
    gc_layers_make(&arch, &estimator->layers, &estimator->notes);
    return estimator;
}

/* Each device has its layers; the first the embedding too, the last the output. */
static void devices_share_layers(void **state)
{
    struct gc_estimator *estimator = open_mixture();
    struct gc_estimate_request request;
    struct gc_estimate one;
    struct gc_estimate four;
    const uint64_t layer = (LAYER_ELEMENTS + 10 + EXPERTS * EXPERT_ELEMENTS) * 2;
    static const uint64_t counts[4] = {3, 2, 3, 2};
    (void)state;
    gc_estimate_request_init(&request);
    assert_int_equal(gc_estimator_run(estimator, &request, &one), GC_OK);
    assert_int_equal(one.total.parts[GC_ESTIMATE_weight], 24000 + LAYERS * layer);
    request.device_count = 4;
    assert_int_equal(gc_estimator_run(estimator, &request, &four), GC_OK);
    for (unsigned i = 0; i < 4; i++) {
        const uint64_t extra = i == 0 ? 10000 : i == 3 ? 14000 : 0;
        assert_int_equal(four.devices[i].parts[GC_ESTIMATE_weight], counts[i] * layer + extra);
        assert_int_equal(four.devices[i].parts[GC_ESTIMATE_kv_cache],
                         counts[i] * 4096 * 2 * 16 * 2);
    }
    assert_int_equal(four.total.parts[GC_ESTIMATE_weight], one.total.parts[GC_ESTIMATE_weight]);
    assert_int_equal(four.total.parts[GC_ESTIMATE_kv_cache], one.total.parts[GC_ESTIMATE_kv_cache]);
    gc_estimator_close(estimator);
}

/* The embedding is the output too: the last device has a copy. */
static void the_last_device_has_what_is_tied(void **state)
{
    struct gc_estimator *estimator = open_mixture();
    struct gc_estimate_request request;
    struct gc_estimate estimate;
    (void)state;
    gc_estimate_request_init(&request);
    request.device_count = 2;
    assert_int_equal(gc_estimator_run(estimator, &request, &estimate), GC_OK);
    const uint64_t with_output = estimate.devices[1].parts[GC_ESTIMATE_weight];
    estimator->weights.last.dense_bytes = 0;
    assert_int_equal(gc_estimator_run(estimator, &request, &estimate), GC_OK);
    assert_int_equal(estimate.devices[1].parts[GC_ESTIMATE_weight], with_output - 14000 + 10000);
    request.device_count = 1;
    assert_int_equal(gc_estimator_run(estimator, &request, &estimate), GC_OK);
    assert_int_equal(estimate.total.parts[GC_ESTIMATE_weight], estimator->weights.bytes - 14000);
    gc_estimator_close(estimator);
}

/* Each device has a part of every matrix; vectors, and heads that are fewer than devices, whole.
 */
static void devices_share_each_layer(void **state)
{
    struct gc_estimator *estimator = open_mixture();
    struct gc_estimate_request request;
    struct gc_estimate estimate;
    (void)state;
    gc_estimate_request_init(&request);
    request.split = GC_SPLIT_TENSOR;
    request.device_count = 4;
    assert_int_equal(gc_estimator_run(estimator, &request, &estimate), GC_OK);
    for (unsigned i = 0; i < 4; i++) {
        assert_int_equal(estimate.devices[i].parts[GC_ESTIMATE_weight],
                         10000 / 4 + 14000 / 4 +
                             LAYERS *
                                 (LAYER_ELEMENTS * 2 / 4 + 20 + EXPERTS * EXPERT_ELEMENTS * 2 / 4));
        assert_int_equal(estimate.devices[i].parts[GC_ESTIMATE_kv_cache],
                         UINT64_C(10) * 4096 * 1 * 16 * 2);
    }
    gc_estimator_close(estimator);
}

/* Weights without experts, and so many of each layer. */
static void experts_elsewhere(void **state)
{
    struct gc_estimator *estimator = open_mixture();
    struct gc_estimate_request request;
    struct gc_estimate estimate;
    const uint64_t dense = 24000 + LAYERS * (LAYER_ELEMENTS + 10) * 2;
    (void)state;
    gc_estimate_request_init(&request);
    for (uint64_t resident = 0; resident <= EXPERTS + 1; resident++) {
        request.resident_experts = resident;
        assert_int_equal(gc_estimator_run(estimator, &request, &estimate), GC_OK);
        assert_int_equal(estimate.total.parts[GC_ESTIMATE_weight],
                         dense + LAYERS * gc_min_u64(resident, EXPERTS) * EXPERT_ELEMENTS * 2);
    }
    gc_estimator_close(estimator);
}

/* As many as floor((budget - rest) / (layers · expert bytes)). */
static void resident_experts_by_the_formula(void **state)
{
    struct gc_estimator *estimator = open_mixture();
    struct gc_estimate_request request;
    struct gc_estimate none;
    (void)state;
    gc_estimate_request_init(&request);
    request.overhead_millionths = 0;
    request.context_bytes = 0;
    request.resident_experts = 0;
    assert_int_equal(gc_estimator_run(estimator, &request, &none), GC_OK);
    request.resident_experts = GC_ESTIMATE_ALL_EXPERTS;
    for (uint64_t beyond = 0; beyond < 60000; beyond += 1777) {
        const uint64_t want = beyond / (LAYERS * EXPERT_ELEMENTS * 2);
        struct gc_estimate_budget budget;
        struct gc_suggestions suggestions;
        gc_fit_set_budget(&budget, none.total.peak_bytes + beyond);
        assert_int_equal(gc_fit_suggest(estimator, &request, &budget, &suggestions), GC_OK);
        assert_int_equal(suggestions.resident_experts.value, gc_min_u64(want, EXPERTS));
        assert_int_equal(suggestions.resident_experts.state,
                         want >= EXPERTS ? GC_SUGGESTION_ALL : GC_SUGGESTION_SOME);
    }
    struct gc_estimate_budget budget;
    struct gc_suggestions suggestions;
    gc_fit_set_budget(&budget, none.total.peak_bytes - 1);
    assert_int_equal(gc_fit_suggest(estimator, &request, &budget, &suggestions), GC_OK);
    assert_int_equal(suggestions.resident_experts.state, GC_SUGGESTION_NOTHING_FITS);
    gc_estimator_close(estimator);
}

int main(void)
{
    cmocka_set_message_output(CM_OUTPUT_TAP);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_give_layers_and_experts),
        cmocka_unit_test(weights_of_every_type),
        cmocka_unit_test(weights_in_another_type),
        cmocka_unit_test(sums_beyond_64_bits_are_errors),
        cmocka_unit_test(parts_of_a_transformer),
        cmocka_unit_test(unknown_types_and_contexts_are_reported),
        cmocka_unit_test(counts_out_of_range_are_refused),
        cmocka_unit_test(devices_share_layers),
        cmocka_unit_test(the_last_device_has_what_is_tied),
        cmocka_unit_test(devices_share_each_layer),
        cmocka_unit_test(experts_elsewhere),
        cmocka_unit_test(resident_experts_by_the_formula),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
