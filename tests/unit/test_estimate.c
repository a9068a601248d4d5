/* The estimate as a whole: weights by layer, devices, overhead, what is not known; whether it fits,
 * and counter-offers over random configurations. */
#include "tests/unit/cmocka_all.h"

#include "core/bits.h"
#include "core/estimator/estimator.h"
#include "core/estimator/fits.h"
#include "core/estimator/tally.h"
#include "tests/unit/arch_sample.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

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

static void names_tell_layers_and_experts(void **state)
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
        const struct gc_weight_place place = gc_weight_place(cases[i].name);
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
        const struct gc_dtype_info *info = gc_dtype_info((enum gc_dtype)dtype);
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
    struct gc_estimator *estimator;
    arch_sample(&arch, GC_ARCH_NAMES_HF, text);
    assert_int_equal(gc_estimator_open_arch(&arch, &estimator), GC_OK);
    return estimator;
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
    assert_int_equal(estimate.coverage_thousandths, 1000);
    assert_int_equal(estimate.unknown_parts, 0);
    assert_int_equal(estimate.total.parts[GC_ESTIMATE_kv_cache], MIB(2048));
    assert_int_equal(estimate.total.parts[GC_ESTIMATE_activation],
                     UINT64_C(4096) * 2 * (2 * 4096 + 3 * 11008) + 32000 * 4);
    for (int part = 0; part < GC_ESTIMATE_PART_COUNT; part++)
        sum += estimate.total.parts[part];
    assert_int_equal(estimate.total.peak_bytes, sum);
    request.chunk_tokens = 512;
    request.seq_len = 1024;
    assert_int_equal(gc_estimator_run(estimator, &request, &estimate), GC_OK);
    assert_int_equal(estimate.total.parts[GC_ESTIMATE_kv_cache], MIB(512));
    assert_int_equal(estimate.total.parts[GC_ESTIMATE_activation],
                     UINT64_C(512) * 2 * (2 * 4096 + 3 * 11008) + 32000 * 4);
    request.seq_len = 8192;
    assert_int_equal(gc_estimator_run(estimator, &request, &estimate), GC_OK);
    assert_int_equal(estimate.notes.count, 1);
    gc_estimator_close(estimator);
}

/* What nobody says is no number: it is told, and the part is a lower bound. */
static void unknown_types_and_contexts_are_told(void **state)
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
    assert_int_equal(estimate.unknown_parts, 0);
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

/* Each device has a share of every matrix; vectors, and heads that are fewer than devices, whole.
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

/* As many as floor((budget - rest) / (layers · expert bytes)) says. */
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
        struct gc_budget budget;
        struct gc_offers offers;
        gc_budget_set_all(&budget, none.total.peak_bytes + beyond);
        assert_int_equal(gc_offers_find(estimator, &request, &budget, &offers), GC_OK);
        assert_int_equal(offers.resident_experts.value, gc_min_u64(want, EXPERTS));
        assert_int_equal(offers.resident_experts.state,
                         want >= EXPERTS ? GC_OFFER_ALL : GC_OFFER_SOME);
    }
    struct gc_budget budget;
    struct gc_offers offers;
    gc_budget_set_all(&budget, none.total.peak_bytes - 1);
    assert_int_equal(gc_offers_find(estimator, &request, &budget, &offers), GC_OK);
    assert_int_equal(offers.resident_experts.state, GC_OFFER_NOT_ANY);
    gc_estimator_close(estimator);
}

/* ---- fits ---- */

static void deficits(void **state)
{
    struct gc_estimate estimate = {.device_count = 3};
    struct gc_budget budget;
    struct gc_fit fit;
    (void)state;
    for (unsigned i = 0; i < 3; i++)
        estimate.devices[i].peak_bytes = MIB(100) * (i + 1);
    estimate.devices[2].parts[GC_ESTIMATE_kv_cache] = 5;
    gc_budget_set_all(&budget, MIB(300));
    gc_fits(&estimate, &budget, &fit);
    assert_true(fit.fits);
    assert_int_equal(fit.budget_bytes, MIB(900));
    budget.device_bytes[1] = MIB(150);
    budget.device_bytes[2] = MIB(300) - 1;
    gc_fits(&estimate, &budget, &fit);
    assert_false(fit.fits);
    assert_int_equal(fit.deficit_bytes, MIB(50) + 1);
    assert_int_equal(fit.device, 1);
    assert_int_equal(fit.device_deficit_bytes, MIB(50));
    budget.device_bytes[2] = 0;
    gc_fits(&estimate, &budget, &fit);
    assert_int_equal(fit.device, 2);
    assert_int_equal(fit.largest, GC_ESTIMATE_kv_cache);
    gc_budget_set_all(&budget, GC_BUDGET_NONE);
    gc_fits(&estimate, &budget, &fit);
    assert_true(fit.fits);
    assert_int_equal(fit.budget_bytes, GC_BUDGET_NONE);
}

static uint64_t seed;

static uint64_t random_below(uint64_t bound)
{
    seed += UINT64_C(0x9e3779b97f4a7c15);
    return gc_mix_u64(seed) % bound;
}

static uint64_t random_power(unsigned low, unsigned high)
{
    return UINT64_C(1) << (low + random_below(high - low + 1));
}

static void random_arch(char *text, size_t bytes)
{
    const uint64_t heads = random_power(2, 6);
    int used =
        snprintf(text, bytes,
                 "torch_dtype=bfloat16 num_hidden_layers=%u hidden_size=%u num_attention_heads=%u "
                 "num_key_value_heads=%u intermediate_size=%u vocab_size=%u",
                 (unsigned)(1 + random_below(100)), (unsigned)(heads * random_power(5, 7)),
                 (unsigned)heads, (unsigned)gc_min_u64(heads, random_power(0, 6)),
                 (unsigned)(64 + random_below(30000)), (unsigned)(100 + random_below(200000)));
    if (random_below(3) > 0)
        used += snprintf(text + used, bytes - (size_t)used, " max_position_embeddings=%u",
                         (unsigned)(1 + random_below(1000000)));
    if (random_below(3) == 0)
        used += snprintf(text + used, bytes - (size_t)used,
                         " sliding_window=%u sliding_window_pattern=%u",
                         (unsigned)random_power(5, 14), (unsigned)random_below(8));
    if (random_below(5) == 0)
        used += snprintf(text + used, bytes - (size_t)used,
                         " kv_lora_rank=512 qk_rope_head_dim=64 qk_nope_head_dim=128 "
                         "v_head_dim=128");
    if (random_below(5) == 0)
        used += snprintf(text + used, bytes - (size_t)used,
                         " attn_layer_period=%u mamba_d_state=16 mamba_d_conv=4 mamba_expand=2",
                         (unsigned)(1 + random_below(8)));
    assert_true((size_t)used < bytes);
}

static bool fits(const struct gc_estimator *estimator, const struct gc_estimate_request *request,
                 const struct gc_budget *budget)
{
    struct gc_estimate estimate;
    struct gc_fit fit;
    if (gc_estimator_run(estimator, request, &estimate) != GC_OK)
        return false;
    gc_fits(&estimate, budget, &fit);
    return fit.fits;
}

/* The offer fits and one more does not; "not any" means that 1 does not, "all" that the most does.
 */
static void check_offer(const struct gc_estimator *estimator, struct gc_estimate_request *request,
                        const struct gc_budget *budget, const struct gc_offer *offer,
                        uint64_t *field)
{
    *field = offer->state == GC_OFFER_NOT_ANY ? 1 : offer->value;
    const bool now = fits(estimator, request, budget);
    (*field)++;
    const bool more = fits(estimator, request, budget);
    switch (offer->state) {
    case GC_OFFER_NOT_ANY:
        assert_false(now);
        break;
    case GC_OFFER_SOME:
        assert_true(now);
        assert_false(more);
        break;
    case GC_OFFER_ALL:
        assert_true(now);
        break;
    case GC_OFFER_NONE:
        break;
    }
}

static void check_kv_offer(const struct gc_estimator *estimator,
                           const struct gc_estimate_request *request,
                           const struct gc_budget *budget, const struct gc_offer *offer)
{
    struct gc_estimate_request smaller = *request;
    smaller.kv_dtype = (enum gc_dtype)offer->value;
    if (offer->state == GC_OFFER_SOME) {
        assert_false(fits(estimator, request, budget));
        assert_true(fits(estimator, &smaller, budget));
    } else if (offer->state == GC_OFFER_ALL) {
        assert_true(fits(estimator, request, budget));
    }
}

static void check_random(unsigned *seen)
{
    char text[512];
    struct gc_estimate_request request;
    struct gc_budget budget;
    struct gc_offers offers;
    random_arch(text, sizeof(text));
    struct gc_estimator *estimator = open_arch(text);
    gc_estimate_request_init(&request);
    request.batch = 1 + random_below(64);
    request.seq_len = 1 + random_below(200000);
    request.chunk_tokens = random_below(2) * (1 + random_below(8192));
    request.scores_materialised = random_below(4) == 0;
    request.device_count = (uint32_t)(random_below(2) == 0 ? 1 : 1 + random_below(8));
    request.split = random_below(2) == 0 ? GC_SPLIT_LAYERS : GC_SPLIT_TENSOR;
    gc_budget_set_all(&budget, random_power(28, 40) + random_below(1U << 28));
    assert_int_equal(gc_offers_find(estimator, &request, &budget, &offers), GC_OK);
    struct gc_estimate_request changed = request;
    check_offer(estimator, &changed, &budget, &offers.batch, &changed.batch);
    changed = request;
    check_offer(estimator, &changed, &budget, &offers.seq_len, &changed.seq_len);
    check_kv_offer(estimator, &request, &budget, &offers.kv_dtype);
    seen[offers.batch.state]++;
    seen[4 + offers.seq_len.state]++;
    seen[8 + offers.kv_dtype.state]++;
    gc_estimator_close(estimator);
}

static void offers_are_exact_over_random_configurations(void **state)
{
    const char *given = getenv("GC_TEST_SEED");
    unsigned seen[12] = {0};
    (void)state;
    seed = given != NULL ? strtoull(given, NULL, 10) : (uint64_t)time(NULL);
    print_message("# GC_TEST_SEED=%llu\n", (unsigned long long)seed);
    for (int i = 0; i < 1000; i++)
        check_random(seen);
    assert_true(seen[GC_OFFER_NOT_ANY] > 10 && seen[GC_OFFER_SOME] > 100);
    assert_true(seen[4 + GC_OFFER_SOME] > 100 && seen[4 + GC_OFFER_ALL] > 10);
    assert_true(seen[8 + GC_OFFER_SOME] > 10 && seen[8 + GC_OFFER_ALL] > 100);
}

/* ---- values at the ends of their ranges ---- */

static uint64_t random_value(const struct gc_arch_key_row *row)
{
    switch (random_below(4)) {
    case 0:
        return row->minimum;
    case 1:
        return row->maximum;
    case 2:
        return row->minimum + random_below(row->maximum - row->minimum + 1);
    default:
        return gc_min_u64(row->maximum, row->minimum + random_below(100));
    }
}

static void set_random_key(struct gc_arch *made, enum gc_arch_key key)
{
    const struct gc_arch_place place = {.key = key, .rank = 1};
    const struct gc_arch_key_row *row = gc_arch_key_row(key);
    const bool is_flag = row->type == GC_ARCH_TYPE_FLAG;
    const uint32_t count = row->type == GC_ARCH_TYPE_INDEXES ||
                                   (row->type == GC_ARCH_TYPE_LAYERS && random_below(2) == 0)
                               ? (uint32_t)(1 + random_below(GC_ARCH_LAYER_MAX))
                               : 0;
    if (row->type == GC_ARCH_TYPE_WORD || row->type == GC_ARCH_TYPE_KINDS)
        return;
    for (uint32_t i = 0; i < (count > 0 ? count : 1); i++) {
        const struct gc_arch_value value = {
            .type = is_flag ? GC_ARCH_VALUE_BOOL : GC_ARCH_VALUE_UINT, .number = random_value(row)};
        assert_int_equal(gc_arch_config_set(made, &place, count > 0 ? i : GC_ARCH_SINGLE, &value),
                         GC_OK);
    }
}

/* Whatever a file says: parts that add up, or an error that names one. */
static void extreme_configurations_add_up_or_overflow(void **state)
{
    unsigned seen[GC_STATUS_COUNT] = {0};
    (void)state;
    for (int round = 0; round < 300; round++) {
        struct gc_estimator *estimator;
        struct gc_estimate_request request;
        struct gc_estimate estimate;
        uint64_t sum = 0;
        memset(&arch, 0, sizeof(arch));
        for (int key = 0; key < GC_ARCH_KEY_COUNT; key++) {
            if (random_below(2) == 0)
                set_random_key(&arch, (enum gc_arch_key)key);
        }
        assert_int_equal(gc_estimator_open_arch(&arch, &estimator), GC_OK);
        gc_estimate_request_init(&request);
        request.batch = 1 + random_below(GC_ESTIMATE_COUNT_MAX) * random_below(2);
        request.seq_len = random_below(UINT32_MAX) * random_below(2);
        request.dtype = random_below(2) == 0 ? GC_DTYPE_F64 : GC_DTYPE_Q4_0;
        request.device_count = (uint32_t)(1 + random_below(GC_ESTIMATE_DEVICE_MAX));
        request.split = random_below(2) == 0 ? GC_SPLIT_LAYERS : GC_SPLIT_TENSOR;
        request.scores_materialised = random_below(2) == 0;
        const enum gc_status status = gc_estimator_run(estimator, &request, &estimate);
        assert_true(status == GC_OK || status == GC_OVERFLOW);
        assert_true(estimate.overflowed < GC_ESTIMATE_PART_COUNT);
        seen[status]++;
        for (int part = 0; part < GC_ESTIMATE_PART_COUNT; part++)
            sum += estimate.total.parts[part];
        if (status == GC_OK)
            assert_int_equal(sum, estimate.total.peak_bytes);
        gc_estimator_close(estimator);
    }
    assert_true(seen[GC_OK] > 20 && seen[GC_OVERFLOW] > 20);
}

/* ---- the count with a limit ---- */

static void tally_counts_and_refuses(void **state)
{
    struct gc_tally tally;
    (void)state;
    gc_tally_init(&tally, 100);
    assert_int_equal(gc_tally_allocate(&tally, 60), GC_OK);
    assert_true(gc_tally_would_fit(&tally, 40));
    assert_false(gc_tally_would_fit(&tally, 41));
    assert_false(gc_tally_would_fit(&tally, UINT64_MAX));
    assert_int_equal(gc_tally_allocate(&tally, 41), GC_OUT_OF_MEMORY);
    assert_int_equal(gc_tally_allocate(&tally, UINT64_MAX), GC_OUT_OF_MEMORY);
    assert_int_equal(gc_tally_free(&tally, 61), GC_INVALID_ARGUMENT);
    assert_int_equal(gc_tally_free(&tally, 60), GC_OK);
    assert_int_equal(gc_tally_current(&tally), 0);
    assert_int_equal(gc_tally_peak(&tally), 60);
    gc_tally_reset(&tally);
    assert_int_equal(gc_tally_peak(&tally), 0);
    gc_tally_init(&tally, UINT64_MAX);
    assert_int_equal(gc_tally_allocate(&tally, UINT64_MAX), GC_OK);
    assert_int_equal(gc_tally_allocate(&tally, 1), GC_OUT_OF_MEMORY);
}

int main(void)
{
    cmocka_set_message_output(CM_OUTPUT_TAP);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_tell_layers_and_experts),
        cmocka_unit_test(weights_of_every_type),
        cmocka_unit_test(weights_in_another_type),
        cmocka_unit_test(sums_beyond_64_bits_are_errors),
        cmocka_unit_test(parts_of_a_transformer),
        cmocka_unit_test(unknown_types_and_contexts_are_told),
        cmocka_unit_test(counts_out_of_range_are_refused),
        cmocka_unit_test(devices_share_layers),
        cmocka_unit_test(devices_share_each_layer),
        cmocka_unit_test(experts_elsewhere),
        cmocka_unit_test(resident_experts_by_the_formula),
        cmocka_unit_test(deficits),
        cmocka_unit_test(offers_are_exact_over_random_configurations),
        cmocka_unit_test(extreme_configurations_add_up_or_overflow),
        cmocka_unit_test(tally_counts_and_refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
