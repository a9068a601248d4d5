/* Training of whole models: parts of a model made by hand, its phases, what is refused, and what an
 * estimate of inference tells of training. */
#include "tests/unit/cmocka_all.h"

#include "core/estimator/estimator.h"
#include "core/estimator/fit.h"
#include "core/estimator/train.h"

#include <string.h>

#define WIDTH 512
#define WIDER 2048
#define LAYERS 3
#define VOCAB 3000
#define LAYER_ELEMENTS (UINT64_C(2) * WIDTH * WIDER + WIDTH)
#define ELEMENTS (UINT64_C(2) * VOCAB * WIDTH + LAYERS * LAYER_ELEMENTS)
#define ADAPTERS(rank) ((uint64_t)(rank)*LAYERS * 2 * (WIDTH + WIDER))

static const char *const names[] = {
    "model.embed_tokens.weight",           "lm_head.weight",
    "model.layers.0.mlp.up_proj.weight",   "model.layers.0.mlp.down_proj.weight",
    "model.layers.0.input_norm.weight",    "model.layers.1.mlp.up_proj.weight",
    "model.layers.1.mlp.down_proj.weight", "model.layers.1.input_norm.weight",
    "model.layers.2.mlp.up_proj.weight",   "model.layers.2.mlp.down_proj.weight",
    "model.layers.2.input_norm.weight",
};
#define TENSORS (sizeof(names) / sizeof(names[0]))

static struct gc_model_tensor tensors[TENSORS];
static struct gc_model model;
static struct gc_estimator *estimator;
static struct gc_estimate_request request;
static struct gc_estimate estimate;

static const uint64_t *dims_of(const char *name)
{
    static const uint64_t embedding[] = {VOCAB, WIDTH};
    static const uint64_t up[] = {WIDER, WIDTH};
    static const uint64_t down[] = {WIDTH, WIDER};
    static const uint64_t norm[] = {WIDTH, 1};
    return strstr(name, "up_proj") != NULL     ? up
           : strstr(name, "down_proj") != NULL ? down
           : strstr(name, "norm") != NULL      ? norm
                                               : embedding;
}

static void open_model(enum gc_model_format format, enum gc_dtype stored, enum gc_dtype asked)
{
    gc_estimator_close(estimator);
    for (size_t i = 0; i < TENSORS; i++) {
        const uint64_t *dims = dims_of(names[i]);
        tensors[i] = (struct gc_model_tensor){
            .name = names[i],
            .dims = dims,
            .dim_count = strstr(names[i], "norm") != NULL ? 1 : 2,
            .dtype = stored,
            .elements = dims[0] * dims[1],
            .alias_of = GC_MODEL_NONE,
        };
        assert_true(gc_dtype_bytes(stored, tensors[i].elements, &tensors[i].bytes));
    }
    model = (struct gc_model){.format = format,
                              .tensors = tensors,
                              .tensor_count = TENSORS,
                              .totals = {.parameters = ELEMENTS}};
    assert_int_equal(gc_estimator_open(&model, asked, &estimator), GC_OK);
    gc_estimate_request_init(&request);
    request.overhead_millionths = 0;
    request.context_bytes = 0;
    request.seq_len = 16;
    request.training.optimiser = GC_OPTIMISER_ADAMW_FOREACH;
}

static int close_model(void **state)
{
    (void)state;
    gc_estimator_close(estimator);
    estimator = NULL;
    return 0;
}

static void run(void)
{
    assert_int_equal(gc_estimator_run(estimator, &request, &estimate), GC_OK);
}

static void check_parts(uint64_t weights, uint64_t gradients, uint64_t states, uint64_t temporary)
{
    const uint64_t *parts = estimate.devices[0].parts;
    assert_int_equal(parts[GC_ESTIMATE_weight], weights);
    assert_int_equal(parts[GC_ESTIMATE_gradient], gradients);
    assert_int_equal(parts[GC_ESTIMATE_optimiser_state], states);
    assert_int_equal(parts[GC_ESTIMATE_temporary], temporary);
    assert_int_equal(estimate.devices[0].peak_bytes,
                     weights + gradients + states + temporary + parts[GC_ESTIMATE_input]);
    assert_int_equal(estimate.step_bytes, estimate.devices[0].peak_bytes);
}

static void the_step_has_all_gradients(void **state)
{
    (void)state;
    open_model(GC_MODEL_SAFETENSORS, GC_DTYPE_BF16, GC_DTYPE_NONE);
    run();
    check_parts(2 * ELEMENTS, 2 * ELEMENTS, 4 * ELEMENTS, 2 * ELEMENTS);
    assert_int_equal(estimate.backward_bytes,
                     6 * ELEMENTS + estimate.total.parts[GC_ESTIMATE_input]);
    assert_int_equal(estimate.trained_parameters, ELEMENTS);
    assert_int_equal(estimate.training_at_least_bytes, 0);
    assert_int_equal(estimate.total.parts[GC_ESTIMATE_kv_cache], 0);
    request.training.is_mixed = true;
    run();
    check_parts(4 * ELEMENTS, 4 * ELEMENTS, 8 * ELEMENTS, 4 * ELEMENTS);
    open_model(GC_MODEL_SAFETENSORS, GC_DTYPE_BF16, GC_DTYPE_F32);
    request.training.optimiser = GC_OPTIMISER_SGD_MOMENTUM;
    run();
    check_parts(4 * ELEMENTS, 4 * ELEMENTS, 4 * ELEMENTS, 0);
}

/* Adapters of 16-bit weights are in 32 bits. */
static void adapters_alone_have_gradients_and_states(void **state)
{
    const uint64_t trained = ADAPTERS(16);
    (void)state;
    open_model(GC_MODEL_SAFETENSORS, GC_DTYPE_F16, GC_DTYPE_NONE);
    request.training.lora_rank = 16;
    run();
    check_parts(2 * ELEMENTS + 4 * trained, 4 * trained, 8 * trained, 4 * trained);
    assert_int_equal(estimate.trained_parameters, trained);
}

static void devices_have_parts_of_a_model(void **state)
{
    (void)state;
    open_model(GC_MODEL_SAFETENSORS, GC_DTYPE_BF16, GC_DTYPE_NONE);
    request.training.zero_stage = 0;
    request.device_count = 4;
    request.training.optimiser = GC_OPTIMISER_ADAMW;
    run();
    check_parts(2 * ELEMENTS, 2 * ELEMENTS, 4 * ELEMENTS, 2 * ELEMENTS);
    assert_int_equal(estimate.total.peak_bytes, 4 * estimate.devices[0].peak_bytes);
    request.training.zero_stage = 3;
    run();
    assert_int_equal(estimate.devices[3].parts[GC_ESTIMATE_optimiser_state],
                     3 * ELEMENTS); /* twice in 32 bits, and the parameters */
    assert_int_equal(estimate.devices[3].parts[GC_ESTIMATE_weight], ELEMENTS / 2);
}

/* Of a file without a configuration: the passes are not known. */
static void inference_tells_what_training_takes(void **state)
{
    (void)state;
    open_model(GC_MODEL_SAFETENSORS, GC_DTYPE_BF16, GC_DTYPE_NONE);
    request.training.optimiser = GC_OPTIMISER_NONE;
    run();
    assert_int_equal(estimate.training_at_least_bytes, 8 * ELEMENTS);
    request.engine = GC_ENGINE_LLAMA_CPP; /* which computes in 32 bits */
    run();
    assert_int_equal(estimate.training_at_least_bytes, 8 * ELEMENTS);
    open_model(GC_MODEL_GGUF, GC_DTYPE_BF16, GC_DTYPE_NONE);
    request.training.optimiser = GC_OPTIMISER_NONE;
    run();
    assert_int_equal(estimate.training_at_least_bytes, 0);
}

static void check_refused(const char *word)
{
    const char *why = gc_train_find_refusal(estimator, &request);
    if (why == NULL || strstr(why, word) == NULL)
        fail_msg("wanted %s: %s", word, why != NULL ? why : "not refused");
    assert_int_equal(gc_estimator_run(estimator, &request, &estimate), GC_INVALID_ARGUMENT);
    gc_estimate_request_init(&request);
    request.training.optimiser = GC_OPTIMISER_SGD;
}

static void what_cannot_be_trained_is_refused(void **state)
{
    (void)state;
    open_model(GC_MODEL_GGUF, GC_DTYPE_F16, GC_DTYPE_NONE);
    check_refused("GGUF");
    open_model(GC_MODEL_SAFETENSORS, GC_DTYPE_F16, GC_DTYPE_F8_E4M3);
    check_refused("--dtype");
    open_model(GC_MODEL_SAFETENSORS, GC_DTYPE_F16, GC_DTYPE_F32);
    request.training.is_mixed = true;
    check_refused("16 bits");
    request.mix = GC_MIX_NF4;
    check_refused("--lora");
    request.device_count = 2;
    check_refused("--zero");
    request.training.zero_stage = 1;
    check_refused("--devices");
    request.engine = GC_ENGINE_VLLM;
    check_refused("--engine");
    request.device_layers = 3;
    check_refused("--gpu-layers");
    request.resident_experts = 3;
    check_refused("--resident-experts");
    request.split = GC_SPLIT_LAYERS;
    check_refused("--split");
    request.fraction = 500;
    check_refused("--utilisation");
    request.training.optimiser = GC_OPTIMISER_NONE;
    request.training.lora_rank = 3;
    check_refused("--train");
    open_model(GC_MODEL_SAFETENSORS, GC_DTYPE_I8, GC_DTYPE_NONE);
    check_refused("");
}

/* Each suggestion fits, with all else unchanged. */
static void suggestions_fit(void **state)
{
    struct gc_estimate_budget budget;
    struct gc_suggestions suggestions;
    struct gc_fit fit;
    (void)state;
    open_model(GC_MODEL_SAFETENSORS, GC_DTYPE_BF16, GC_DTYPE_NONE);
    gc_fit_set_budget(&budget, 15 * ELEMENTS / 2);
    assert_int_equal(gc_fit_suggest(estimator, &request, &budget, &suggestions), GC_OK);
    assert_int_equal(suggestions.optimiser.state, GC_SUGGESTION_SOME);
    assert_int_equal(suggestions.optimiser.value, GC_OPTIMISER_ADAMW_8BIT);
    assert_int_equal(suggestions.kv_dtype.state, GC_SUGGESTION_NONE);
    assert_int_equal(suggestions.layer_devices.state, GC_SUGGESTION_NONE);
    request.training.optimiser = (enum gc_optimiser)suggestions.optimiser.value;
    run();
    gc_fit_check(&estimate, &budget, &fit);
    assert_true(fit.fits);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(the_step_has_all_gradients, close_model),
        cmocka_unit_test_teardown(adapters_alone_have_gradients_and_states, close_model),
        cmocka_unit_test_teardown(devices_have_parts_of_a_model, close_model),
        cmocka_unit_test_teardown(inference_tells_what_training_takes, close_model),
        cmocka_unit_test_teardown(what_cannot_be_trained_is_refused, close_model),
        cmocka_unit_test_teardown(suggestions_fit, close_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
