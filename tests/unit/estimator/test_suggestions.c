/* Whether an estimate fits, and counter-offers over random configurations; configurations at the
 * ends of their ranges. GC_TEST_SEED repeats a run. */
#include "tests/unit/cmocka_all.h"

#include "core/base/bits.h"
#include "core/estimator/fit.h"
#include "tests/unit/arch_sample.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MIB(n) (UINT64_C(n) << 20)

static struct gc_arch arch;

static struct gc_estimator *open_arch(const char *text)
{
    arch_sample(&arch, GC_ARCH_NAMES_HF, text);
    return arch_sample_open(&arch);
}

/* ---- fits ---- */

static void deficits(void **state)
{
    struct gc_estimate estimate = {.device_count = 3};
    struct gc_estimate_budget budget;
    struct gc_fit fit;
    (void)state;
    for (unsigned i = 0; i < 3; i++)
        estimate.devices[i].peak_bytes = MIB(100) * (i + 1);
    for (unsigned i = 0; i < 3; i++)
        estimate.usable_bytes[i] = UINT64_MAX;
    estimate.devices[2].parts[GC_ESTIMATE_kv_cache] = 5;
    gc_fit_set_budget(&budget, MIB(300));
    gc_fit_check(&estimate, &budget, &fit);
    assert_true(fit.fits);
    assert_int_equal(fit.budget_bytes, MIB(900));
    budget.device_bytes[1] = MIB(150);
    budget.device_bytes[2] = MIB(300) - 1;
    gc_fit_check(&estimate, &budget, &fit);
    assert_false(fit.fits);
    assert_int_equal(fit.deficit_bytes, MIB(50) + 1);
    assert_int_equal(fit.device, 1);
    assert_int_equal(fit.device_deficit_bytes, MIB(50));
    budget.device_bytes[2] = 0;
    gc_fit_check(&estimate, &budget, &fit);
    assert_int_equal(fit.device, 2);
    assert_int_equal(fit.largest, GC_ESTIMATE_kv_cache);
    gc_fit_set_budget(&budget, GC_ESTIMATE_NO_BUDGET);
    gc_fit_check(&estimate, &budget, &fit);
    assert_true(fit.fits);
    assert_int_equal(fit.budget_bytes, GC_ESTIMATE_NO_BUDGET);
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
                 const struct gc_estimate_budget *budget)
{
    struct gc_estimate estimate;
    struct gc_fit fit;
    if (gc_estimator_run(estimator, request, &estimate) != GC_OK)
        return false;
    gc_fit_check(&estimate, budget, &fit);
    return fit.fits;
}

/* The offer fits and one more does not; "not any" means that 1 does not, "all" that the most does.
 */
static void check_offer(const struct gc_estimator *estimator, struct gc_estimate_request *request,
                        const struct gc_estimate_budget *budget,
                        const struct gc_suggestion *suggestion, uint64_t *field)
{
    *field = suggestion->state == GC_SUGGESTION_NOTHING_FITS ? 1 : suggestion->value;
    const bool now = fits(estimator, request, budget);
    (*field)++;
    const bool more = fits(estimator, request, budget);
    switch (suggestion->state) {
    case GC_SUGGESTION_NOTHING_FITS:
        assert_false(now);
        break;
    case GC_SUGGESTION_SOME:
        assert_true(now);
        assert_false(more);
        break;
    case GC_SUGGESTION_ALL:
        assert_true(now);
        break;
    case GC_SUGGESTION_NONE:
        break;
    }
}

static void check_kv_offer(const struct gc_estimator *estimator,
                           const struct gc_estimate_request *request,
                           const struct gc_estimate_budget *budget,
                           const struct gc_suggestion *suggestion)
{
    struct gc_estimate_request smaller = *request;
    smaller.kv_dtype = (enum gc_dtype)suggestion->value;
    if (suggestion->state == GC_SUGGESTION_SOME) {
        assert_false(fits(estimator, request, budget));
        assert_true(fits(estimator, &smaller, budget));
    } else if (suggestion->state == GC_SUGGESTION_ALL) {
        assert_true(fits(estimator, request, budget));
    }
}

static void check_random(unsigned *seen)
{
    char text[512];
    struct gc_estimate_request request;
    struct gc_estimate_budget budget;
    struct gc_suggestions suggestions;
    random_arch(text, sizeof(text));
    struct gc_estimator *estimator = open_arch(text);
    gc_estimate_request_init(&request);
    request.batch = 1 + random_below(64);
    request.seq_len = 1 + random_below(200000);
    request.chunk_tokens = random_below(2) * (1 + random_below(8192));
    request.scores_materialised = random_below(4) == 0;
    request.device_count = (uint32_t)(random_below(2) == 0 ? 1 : 1 + random_below(8));
    request.split = random_below(2) == 0 ? GC_SPLIT_LAYERS : GC_SPLIT_TENSOR;
    gc_fit_set_budget(&budget, random_power(28, 40) + random_below(1U << 28));
    assert_int_equal(gc_fit_suggest(estimator, &request, &budget, &suggestions), GC_OK);
    struct gc_estimate_request changed = request;
    check_offer(estimator, &changed, &budget, &suggestions.batch, &changed.batch);
    changed = request;
    check_offer(estimator, &changed, &budget, &suggestions.seq_len, &changed.seq_len);
    check_kv_offer(estimator, &request, &budget, &suggestions.kv_dtype);
    seen[suggestions.batch.state]++;
    seen[4 + suggestions.seq_len.state]++;
    seen[8 + suggestions.kv_dtype.state]++;
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
    assert_true(seen[GC_SUGGESTION_NOTHING_FITS] > 10 && seen[GC_SUGGESTION_SOME] > 100);
    assert_true(seen[4 + GC_SUGGESTION_SOME] > 100 && seen[4 + GC_SUGGESTION_ALL] > 10);
    assert_true(seen[8 + GC_SUGGESTION_SOME] > 10 && seen[8 + GC_SUGGESTION_ALL] > 100);
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

/* Whatever a file holds: parts that add up, or an error that names one. */
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
        estimator = arch_sample_open(&arch);
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

int main(void)
{
    cmocka_set_message_output(CM_OUTPUT_TAP);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(deficits),
        cmocka_unit_test(offers_are_exact_over_random_configurations),
        cmocka_unit_test(extreme_configurations_add_up_or_overflow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
