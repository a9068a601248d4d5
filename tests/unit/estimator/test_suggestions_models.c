/* Counter-offers of whole models over 1,000 random ones: weights with experts or without, every
 * kind of attention, types of the cache to start from, devices with budgets of their own. At the
 * offer all devices fit, at one more one does not, nor at any larger number that is tried.
 * GC_TEST_SEED repeats a run. */
#include "tests/unit/cmocka_all.h"

#include "core/base/bits.h"
#include "core/estimator/fit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ROUNDS 1000
#define TENSORS_MAX 4096
#define METAS_MAX 48
#define LAYERS_MAX 24

static uint64_t seed;

static uint64_t random_below(uint64_t bound)
{
    seed += UINT64_C(0x9e3779b97f4a7c15);
    return gc_mix_u64(seed) % bound;
}

static bool one_in(uint64_t count)
{
    return random_below(count) == 0;
}

static uint64_t random_power(unsigned low, unsigned high)
{
    return UINT64_C(1) << (low + random_below(high - low + 1));
}

/* ---- a model in memory ---- */

static struct gc_model model;
static struct gc_meta metas[METAS_MAX];
static struct gc_meta_value kinds[LAYERS_MAX];
static struct gc_model_tensor tensors[TENSORS_MAX];
static char names[TENSORS_MAX][64];
static const uint64_t dims[2] = {1, 1};

static void add_number(const char *key, uint64_t number)
{
    assert_true(model.meta_count < METAS_MAX);
    metas[model.meta_count++] =
        (struct gc_meta){key, {.kind = GC_META_INTEGER, .unsigned_value = number}};
}

static void add_text(const char *key, const char *text)
{
    assert_true(model.meta_count < METAS_MAX);
    metas[model.meta_count++] = (struct gc_meta){key, {.kind = GC_META_TEXT, .text = text}};
}

static void add_kinds(uint64_t layers, const char *one, const char *other, uint64_t period)
{
    for (uint64_t i = 0; i < layers; i++)
        kinds[i] = (struct gc_meta_value){.kind = GC_META_TEXT,
                                          .text = (i + 1) % period == 0 ? other : one};
    assert_true(model.meta_count < METAS_MAX);
    metas[model.meta_count++] = (struct gc_meta){
        "layer_types", {.kind = GC_META_ARRAY, .items = kinds, .count = layers, .kept = layers}};
}

static void add_tensor(uint64_t layer, const char *what, uint64_t expert, uint64_t elements,
                       enum gc_dtype dtype)
{
    const uint32_t at = model.tensor_count++;
    uint64_t bytes;
    assert_true(at < TENSORS_MAX);
    assert_true(gc_dtype_bytes(dtype, elements, &bytes));
    if (layer == UINT64_MAX)
        (void)snprintf(names[at], sizeof(names[at]), "%s", what);
    else if (expert == UINT64_MAX)
        (void)snprintf(names[at], sizeof(names[at]), "model.layers.%u.%s", (unsigned)layer, what);
    else
        (void)snprintf(names[at], sizeof(names[at]), "model.layers.%u.mlp.experts.%u.%s",
                       (unsigned)layer, (unsigned)expert, what);
    tensors[at] = (struct gc_model_tensor){.name = names[at],
                                           .dims = dims,
                                           .dim_count = 2,
                                           .dtype = dtype,
                                           .elements = elements,
                                           .bytes = bytes,
                                           .file = GC_MODEL_NONE,
                                           .alias_of = GC_MODEL_NONE};
    model.totals.weight_bytes += bytes;
    model.totals.parameters += elements;
}

static void add_weights(uint64_t layers, uint64_t hidden, uint64_t experts)
{
    static const enum gc_dtype types[] = {GC_DTYPE_BF16, GC_DTYPE_F16, GC_DTYPE_F32, GC_DTYPE_Q4_K,
                                          GC_DTYPE_F8_E4M3};
    const enum gc_dtype dtype = types[random_below(sizeof(types) / sizeof(types[0]))];
    const uint64_t matrix = hidden * hidden;
    add_tensor(UINT64_MAX, "model.embed_tokens.weight", UINT64_MAX, hidden * 32000, dtype);
    for (uint64_t i = 0; i < layers; i++) {
        add_tensor(i, "self_attn.q_proj.weight", UINT64_MAX, matrix * 4, dtype);
        if (experts == 0)
            add_tensor(i, "mlp.up_proj.weight", UINT64_MAX, matrix * 12, dtype);
        for (uint64_t k = 0; k < experts; k++)
            add_tensor(i, "up_proj.weight", k, matrix, dtype);
    }
    add_tensor(UINT64_MAX, "lm_head.weight", UINT64_MAX, hidden * 32000, dtype);
}

enum kind { PLAIN, WINDOWS, CHUNKS, LATENT, STATES, EXPERTS, KIND_COUNT };

static void add_kind(enum kind kind, uint64_t layers)
{
    switch (kind) {
    case WINDOWS:
        add_number("sliding_window", random_power(5, 14));
        if (one_in(2))
            add_number("sliding_window_pattern", random_below(8));
        else
            add_kinds(layers, "sliding_attention", "full_attention", 1 + random_below(6));
        break;
    case CHUNKS:
        add_text("model_type", "llama4_text");
        add_number("attention_chunk_size", random_power(8, 14));
        break;
    case LATENT:
        add_number("kv_lora_rank", random_power(7, 9));
        add_number("qk_rope_head_dim", 64);
        add_number("qk_nope_head_dim", 128);
        add_number("v_head_dim", 128);
        break;
    case STATES:
        add_kinds(layers, "mamba", "attention", 1 + random_below(8));
        add_number("mamba_d_state", random_power(4, 7));
        add_number("mamba_d_conv", 4);
        add_number("mamba_expand", 2);
        break;
    default:
        break;
    }
}

static void make_model(enum kind kind)
{
    const uint64_t layers = 1 + random_below(LAYERS_MAX);
    const uint64_t heads = random_power(2, 5);
    const uint64_t hidden = heads * random_power(5, 7);
    const uint64_t experts = kind == EXPERTS || one_in(6) ? 2 + random_below(60) : 0;
    model = (struct gc_model){.format = GC_MODEL_SAFETENSORS,
                              .path = "random",
                              .tensors = tensors,
                              .metas = metas,
                              .has_config = true};
    add_number("num_hidden_layers", layers);
    add_number("hidden_size", hidden);
    add_number("num_attention_heads", heads);
    add_number("num_key_value_heads", gc_min_u64(heads, random_power(0, 5)));
    add_number("intermediate_size", 64 + random_below(16000));
    add_number("vocab_size", 32000);
    if (!one_in(3))
        add_number("max_position_embeddings", 1 + random_below(1000000));
    if (experts > 0) {
        add_number("num_local_experts", experts);
        add_number("num_experts_per_tok", 1 + random_below(experts));
    }
    add_kind(kind, layers);
    add_weights(layers, hidden, experts);
}

/* ---- what is asked ---- */

static void make_request(struct gc_estimate_request *request, struct gc_estimate_budget *budget)
{
    static const enum gc_dtype types[] = {GC_DTYPE_NONE, GC_DTYPE_F32,     GC_DTYPE_BF16,
                                          GC_DTYPE_Q8_0, GC_DTYPE_F8_E4M3, GC_DTYPE_Q4_0};
    gc_estimate_request_init(request);
    request->batch = 1 + random_below(64);
    request->seq_len = one_in(4) ? 0 : 1 + random_below(200000);
    request->chunk_tokens = random_below(2) * (1 + random_below(8192));
    request->dtype = GC_DTYPE_BF16;
    request->kv_dtype = types[random_below(sizeof(types) / sizeof(types[0]))];
    request->scores_materialised = one_in(4);
    request->device_count = (uint32_t)(one_in(2) ? 1 : 1 + random_below(8));
    request->split = one_in(2) ? GC_SPLIT_LAYERS : GC_SPLIT_TENSOR;
    request->overhead_millionths = random_below(3) * random_below(400000);
    request->context_bytes = random_below(2) * random_below(UINT64_C(1) << 29);
    gc_fit_set_budget(budget, random_power(26, 38) + random_below(1U << 28));
    for (uint32_t i = 0; one_in(2) && i < request->device_count; i++)
        budget->device_bytes[i] = one_in(5) ? GC_ESTIMATE_NO_BUDGET : random_power(28, 38);
}

/* Near what is needed, where offers are neither all nor nothing. */
static void tighten(const struct gc_estimator *estimator, struct gc_estimate_request *request,
                    struct gc_estimate_budget *budget)
{
    struct gc_estimate estimate;
    if (one_in(4))
        return;
    if (model.tensor_count > 10 * LAYERS_MAX || one_in(2))
        request->batch = 1;
    if (request->batch == 1 || one_in(2))
        request->seq_len = 1 + random_below(4096);
    if (gc_estimator_run(estimator, request, &estimate) != GC_OK)
        return;
    for (uint32_t i = 0; i < estimate.device_count; i++)
        budget->device_bytes[i] = estimate.devices[i].peak_bytes / 100 * (30 + random_below(80));
}

/* Device by device, not by gc_fit_check. */
static bool fits(const struct gc_estimator *estimator, const struct gc_estimate_request *request,
                 const struct gc_estimate_budget *budget)
{
    struct gc_estimate estimate;
    bool all = gc_estimator_run(estimator, request, &estimate) == GC_OK;
    for (uint32_t i = 0; all && i < estimate.device_count; i++)
        all = estimate.devices[i].peak_bytes <= budget->device_bytes[i];
    return all;
}

static bool fits_with(const struct gc_estimator *estimator, struct gc_estimate_request request,
                      const struct gc_estimate_budget *budget, size_t field, uint64_t value)
{
    memcpy((char *)&request + field, &value, sizeof(value));
    return fits(estimator, &request, budget);
}

/* `smallest`: the first number that is tried; `most`: the largest there is. */
static void check_offer(const struct gc_estimator *estimator,
                        const struct gc_estimate_request *request,
                        const struct gc_estimate_budget *budget,
                        const struct gc_suggestion *suggestion, size_t field, uint64_t smallest,
                        uint64_t most)
{
    uint64_t first = suggestion->value + 1;
    if (suggestion->state == GC_SUGGESTION_NONE)
        return;
    if (suggestion->state == GC_SUGGESTION_NOTHING_FITS)
        first = smallest;
    else
        assert_true(fits_with(estimator, *request, budget, field, suggestion->value));
    if (suggestion->state == GC_SUGGESTION_ALL) {
        assert_int_equal(suggestion->value, most);
        return;
    }
    assert_true(first <= most);
    assert_false(fits_with(estimator, *request, budget, field, first));
    for (int i = 0; i < 8; i++)
        assert_false(fits_with(estimator, *request, budget, field,
                               first + random_below(most - first + 1) / random_power(0, 20)));
}

/* The type offered fits and no wider one of those that are offered does. */
static void check_type(const struct gc_estimator *estimator,
                       const struct gc_estimate_request *request,
                       const struct gc_estimate_budget *budget,
                       const struct gc_suggestion *suggestion)
{
    static const enum gc_dtype widest_first[] = {GC_DTYPE_F16,  GC_DTYPE_Q8_0, GC_DTYPE_F8_E4M3,
                                                 GC_DTYPE_Q5_1, GC_DTYPE_Q5_0, GC_DTYPE_Q4_1,
                                                 GC_DTYPE_Q4_0};
    struct gc_estimate estimate;
    struct gc_estimate_request changed = *request;
    if (gc_estimator_run(estimator, request, &estimate) != GC_OK)
        return;
    const uint64_t now = estimate.total.parts[GC_ESTIMATE_kv_cache];
    if (suggestion->state == GC_SUGGESTION_ALL)
        assert_true(fits(estimator, request, budget));
    if (suggestion->state == GC_SUGGESTION_SOME || suggestion->state == GC_SUGGESTION_NOTHING_FITS)
        assert_false(fits(estimator, request, budget));
    for (size_t i = 0; i < sizeof(widest_first) / sizeof(widest_first[0]); i++) {
        if (suggestion->state != GC_SUGGESTION_SOME &&
            suggestion->state != GC_SUGGESTION_NOTHING_FITS)
            return;
        changed.kv_dtype = widest_first[i];
        const bool fit = fits(estimator, &changed, budget);
        if (suggestion->state == GC_SUGGESTION_SOME &&
            (enum gc_dtype)suggestion->value == widest_first[i]) {
            assert_true(fit);
            return;
        }
        assert_int_equal(gc_estimator_run(estimator, &changed, &estimate), GC_OK);
        assert_false(fit && estimate.total.parts[GC_ESTIMATE_kv_cache] < now);
    }
    assert_int_equal(suggestion->state, GC_SUGGESTION_NOTHING_FITS);
}

static void check_model(enum kind kind, unsigned seen[4][4])
{
    struct gc_estimator *estimator;
    struct gc_estimate_request request;
    struct gc_estimate estimate;
    struct gc_estimate_budget budget;
    struct gc_suggestions suggestions;
    make_model(kind);
    make_request(&request, &budget);
    assert_int_equal(
        gc_estimator_open(&model, one_in(4) ? GC_DTYPE_F16 : GC_DTYPE_NONE, &estimator), GC_OK);
    tighten(estimator, &request, &budget);
    assert_int_equal(gc_fit_suggest(estimator, &request, &budget, &suggestions), GC_OK);
    const bool ran = gc_estimator_run(estimator, &request, &estimate) == GC_OK;
    const uint64_t positions = ran && estimate.positions > 0 ? estimate.positions : 0;
    check_offer(estimator, &request, &budget, &suggestions.batch,
                offsetof(struct gc_estimate_request, batch), 1, GC_ESTIMATE_COUNT_MAX);
    if (ran)
        check_offer(estimator, &request, &budget, &suggestions.seq_len,
                    offsetof(struct gc_estimate_request, seq_len), 1,
                    positions > 0 ? positions : GC_ESTIMATE_COUNT_MAX);
    if (ran)
        check_offer(estimator, &request, &budget, &suggestions.resident_experts,
                    offsetof(struct gc_estimate_request, resident_experts), 0, estimate.experts);
    check_type(estimator, &request, &budget, &suggestions.kv_dtype);
    seen[0][suggestions.batch.state]++;
    seen[1][suggestions.seq_len.state]++;
    seen[2][suggestions.resident_experts.state]++;
    seen[3][suggestions.kv_dtype.state]++;
    gc_estimator_close(estimator);
}

static void offers_are_the_largest_that_fit(void **state)
{
    const char *given = getenv("GC_TEST_SEED");
    unsigned seen[4][4] = {{0}};
    (void)state;
    seed = given != NULL ? strtoull(given, NULL, 10) : (uint64_t)time(NULL);
    print_message("# GC_TEST_SEED=%llu\n", (unsigned long long)seed);
    for (unsigned i = 0; i < ROUNDS; i++)
        check_model((enum kind)(i % KIND_COUNT), seen);
    for (unsigned i = 0; i < 4; i++)
        print_message("# suggestion %u: none %u, not any %u, some %u, all %u\n", i, seen[i][0],
                      seen[i][1], seen[i][2], seen[i][3]);
    for (unsigned i = 0; i < 4; i++)
        assert_true(seen[i][GC_SUGGESTION_NOTHING_FITS] > 10 && seen[i][GC_SUGGESTION_SOME] > 10);
}

int main(void)
{
    cmocka_set_message_output(CM_OUTPUT_TAP);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(offers_are_the_largest_that_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
