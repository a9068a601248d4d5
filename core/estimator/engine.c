/* Sizes by engine: engines.def as tables, a run's plan, and the parts that engines compute in ways
 * of their own. */
#include "core/estimator/engine.h"

#include "core/base/bits.h"
#include "core/io/text.h"
#include "core/model/checked.h"

#include <string.h>

#define GIB(count) ((uint64_t)(count) << 30)
#define MIB(count) ((uint64_t)(count) << 20)

struct engine_row {
    const char *name;
    uint32_t block;
    uint32_t fraction;
    uint32_t overhead;
    bool profiles;
};

static const struct engine_row rows[] = {
#define GC_ENGINE(id, name, block, fraction, overhead, profiles)                                   \
    {name, block, fraction, overhead, profiles},
#include "core/estimator/engines.def"
};

struct tier_row {
    enum gc_engine engine;
    uint64_t from;
    uint64_t devices;
    uint64_t tokens;
    uint64_t sequences;
    uint64_t captures;
};

static const struct tier_row tiers[] = {
#define GC_ENGINE_TIER(id, from, devices, tokens, sequences, captures)                             \
    {GC_ENGINE_##id, from, devices, tokens, sequences, captures},
#include "core/estimator/engines.def"
};

struct windows_row {
    enum gc_engine engine;
    uint32_t share;
    const char *types;
};

static const struct windows_row windows[] = {
#define GC_ENGINE_WINDOWS(id, share, types) {GC_ENGINE_##id, share, types},
#include "core/estimator/engines.def"
};

const char *gc_engine_name(enum gc_engine engine)
{
    return (unsigned)engine < GC_ENGINE_COUNT ? rows[engine].name : NULL;
}

const char *gc_engine_names(void)
{
    static const char names[] = ""
#define GC_ENGINE(id, name, ...) ", " name
#include "core/estimator/engines.def"
        ;
    return &names[2];
}

enum gc_engine gc_engine_from_word(const char *word)
{
    const int at = gc_text_find_word(gc_engine_names(), word, strlen(word));
    return at >= 0 ? (enum gc_engine)at : GC_ENGINE_BY_FILES;
}

uint64_t gc_engine_overhead(enum gc_engine engine)
{
    return rows[engine].overhead;
}

uint64_t gc_engine_block_tokens(enum gc_engine engine)
{
    return rows[engine].block;
}

bool gc_engine_has_pool(enum gc_engine engine)
{
    return engine == GC_ENGINE_VLLM || engine == GC_ENGINE_SGLANG ||
           engine == GC_ENGINE_TENSORRT_LLM;
}

/* ---- the plan ---- */

static const struct tier_row *tier_of(enum gc_engine engine, const struct gc_engine_load *load)
{
    const bool is_unknown = load->memory_bytes == 0;
    const uint64_t gib = is_unknown ? GC_ENGINE_NO_MEMORY : load->memory_bytes >> 30;
    const uint64_t devices = load->is_tensor_split ? load->device_count : 1;
    for (size_t i = 0; i < sizeof(tiers) / sizeof(tiers[0]); i++) {
        if (tiers[i].engine == engine && gib >= tiers[i].from && devices >= tiers[i].devices &&
            is_unknown == (tiers[i].from == GC_ENGINE_NO_MEMORY))
            return &tiers[i];
    }
    return &tiers[0];
}

static uint32_t window_share(enum gc_engine engine, const char *type)
{
    for (size_t i = 0; i < sizeof(windows) / sizeof(windows[0]); i++) {
        const char *types = windows[i].types;
        if (windows[i].engine == engine &&
            (types[0] == '\0' || gc_text_find_word(types, type, strlen(type)) >= 0))
            return windows[i].share;
    }
    return 0;
}

static uint64_t multiply(uint64_t a, uint64_t b)
{
    uint64_t product;
    return gc_mul_u64(a, b, &product) ? product : UINT64_MAX;
}

/* Sizes of SGLang's steps of prompts that are recorded as graphs (cuda_graph_hook.py): up to the
 * chunk, with latent attention to 8192; none in a pipeline. */
static uint64_t sglang_prompt_captures(uint64_t chunk, const struct gc_engine_load *load)
{
    static const uint64_t ranges[][3] = {
        {4, 32, 4},      {48, 256, 16},     {288, 512, 32},
        {576, 1024, 64}, {1280, 4096, 256}, {4608, UINT32_MAX, 512},
    };
    const uint64_t most = load->is_mla ? gc_min_u64(chunk, 8192) : chunk;
    uint64_t count = 0;
    if (load->device_count > 1 && !load->is_tensor_split)
        return 0;
    for (size_t i = 0; i < sizeof(ranges) / sizeof(ranges[0]); i++) {
        const uint64_t last = gc_min_u64(most, ranges[i][1]);
        if (last >= ranges[i][0])
            count += (last - ranges[i][0]) / ranges[i][2] + 1;
    }
    return count;
}

/* SGLang's mem_fraction_static (memory_hook.py): of the memory without 512 MiB, 1.5 MiB for each
 * token of a step, 2 MiB for each sequence in a graph, 8 MiB for each recorded prompt (1.5 GiB with
 * latent attention), 1 GiB for each eight devices; without 10 GiB at least above 60 GiB. */
static uint32_t sglang_fraction(const struct tier_row *tier, uint64_t chunk,
                                const struct gc_engine_load *load)
{
    const uint64_t memory = load->memory_bytes;
    const uint64_t prompts = sglang_prompt_captures(chunk, load);
    const uint64_t tokens = gc_max_u64(chunk, 2048);
    uint64_t reserve = MIB(512) + tokens * MIB(3) / 2 + tier->sequences * MIB(2) +
                       load->device_count * MIB(128) +
                       (load->is_mla && prompts > 0 ? MIB(1536) : prompts * MIB(8));
    if (memory == 0)
        return 950;
    if (memory > GIB(60))
        reserve = gc_max_u64(reserve, GIB(10));
    /* In thousandths, rounded; memory in MiB. */
    const uint64_t left = gc_sub_or_zero_u64(memory, reserve) >> 20;
    return (uint32_t)((left * 1000 + (memory >> 21)) / (memory >> 20));
}

/* Without a cache there are no chunks: each sequence is computed at once. */
static uint64_t tokens_of(const struct engine_row *row, const struct tier_row *tier,
                          const struct gc_engine_load *load)
{
    const uint64_t asked = load->chunk_tokens > 0 ? load->chunk_tokens : tier->tokens;
    const uint64_t most = load->has_kv_cache ? asked : gc_max_u64(asked, load->seq_len);
    const uint64_t sequences = row->profiles ? tier->sequences : load->batch;
    const uint64_t context =
        row->block > 1 ? gc_divide_up_u64(load->seq_len, row->block) * (uint64_t)row->block
                       : load->seq_len;
    return gc_min_u64(most, multiply(gc_max_u64(sequences, load->batch), context));
}

/* Differences between engines that no table has. */
static void set_own(const struct tier_row *tier, const struct gc_engine_load *load,
                    struct gc_engine_plan *plan)
{
    const uint64_t chunk = load->chunk_tokens > 0 ? load->chunk_tokens : tier->tokens;
    const uint64_t stages = load->is_tensor_split ? 1 : load->device_count;
    switch (plan->engine) {
    case GC_ENGINE_VLLM:
        plan->output_rows = gc_min_u64(plan->step_tokens, tier->sequences);
        plan->steps = stages + 1;
        break;
    case GC_ENGINE_SGLANG:
        plan->captures += sglang_prompt_captures(chunk, load);
        if (load->fraction == 0)
            plan->fraction = sglang_fraction(tier, chunk, load);
        break;
    case GC_ENGINE_LLAMA_CPP:
        plan->output_rows = plan->step_tokens;
        /* ggml_backend_sched: four copies of the inputs between the stages of a pipeline. */
        plan->context_copies = stages > 1 ? 4 : 1;
        break;
    default:
        break;
    }
}

void gc_engine_make_plan(enum gc_engine engine, const struct gc_engine_load *load,
                         struct gc_engine_plan *plan)
{
    const struct engine_row *row = &rows[engine];
    const struct tier_row *tier = tier_of(engine, load);
    *plan = (struct gc_engine_plan){
        .engine = engine,
        .step_tokens = tier->tokens > 0 ? tokens_of(row, tier, load) : 0,
        .output_rows = load->batch,
        .captures = tier->captures,
        .context_copies = 1,
        .steps = 1,
        .window_share = window_share(engine, load->type),
        .fraction = load->fraction > 0 ? load->fraction : row->fraction,
        .memory_bytes = load->memory_bytes,
    };
    set_own(tier, load, plan);
}

/* ---- the cache ---- */

uint64_t gc_engine_round(const struct gc_engine_plan *plan, uint64_t tokens)
{
    const uint64_t block = rows[plan->engine].block;
    return multiply(gc_divide_up_u64(tokens, block), block);
}

/* llama.cpp: window + ubatch (llama-kv-cache-iswa.cpp). vLLM: window - 1 + steps, and one more
 * block (kv_cache_interface.py, SlidingWindowSpec). A share of the context: of a pool of its own,
 * which holds the window too (pool_configurator.py). */
struct gc_layer gc_engine_kept_layer(const struct gc_engine_plan *plan,
                                     const struct gc_layer *layer, uint64_t context)
{
    struct gc_layer kept = *layer;
    if (layer->is_repeated && plan->engine == GC_ENGINE_TRANSFORMERS)
        kept.kv_heads = layer->heads;
    if (layer->window == 0 || plan->step_tokens == 0)
        return kept;
    uint64_t tokens = layer->window + multiply(plan->steps, plan->step_tokens);
    if (plan->engine == GC_ENGINE_VLLM)
        tokens = gc_min_u64(tokens - 1, context) + rows[plan->engine].block;
    tokens = gc_max_u64(tokens, multiply(context, plan->window_share) / 1000);
    tokens = gc_min_u64(gc_engine_round(plan, tokens), UINT32_MAX);
    kept.window = (uint32_t)tokens;
    return kept;
}

/* ---- a step ---- */

struct gc_estimate_load gc_engine_step(const struct gc_engine_plan *plan,
                                       const struct gc_estimate_load *work)
{
    struct gc_estimate_load step = *work;
    if (plan->step_tokens > 0) {
        step.batch = 1;
        step.step_tokens = plan->step_tokens;
    }
    return step;
}

static uint64_t expert_elements(const struct gc_layers *layers, uint32_t shards)
{
    const uint64_t shared = layers->shared_intermediate > 0
                                ? layers->shared_intermediate
                                : layers->shared_experts * layers->expert_intermediate;
    const uint64_t width = layers->experts_used * layers->expert_intermediate;
    const uint64_t wide = 3 * layers->hidden + 3 * gc_divide_up_u64(width + shared, shards);
    return gc_max_u64(wide, (4 + 2 * layers->experts_used) * layers->hidden);
}

static uint64_t attention_elements(const struct gc_layers *layers, const struct gc_layer *layer,
                                   uint32_t shards)
{
    const uint64_t heads = gc_divide_up_u64(layer->heads, shards);
    const uint64_t kv_heads = gc_divide_up_u64(layer->kv_heads, shards);
    const uint64_t query =
        heads * (layer->is_mla ? layers->latent_key_dim : (uint64_t)layer->key_dim);
    const uint64_t cached = layer->is_mla
                                ? layers->kv_rank + layers->rope_dim
                                : kv_heads * ((uint64_t)layer->key_dim + layer->value_dim);
    if (!layer->has_attention)
        return 0;
    return 2 * layers->hidden + 2 * query + cached + gc_min_u64(cached, query);
}

/* Of the parts of a layer without scores, one after the other. */
static uint64_t other_elements(const struct gc_layers *layers, const struct gc_layer *layer,
                               uint32_t shards)
{
    uint64_t elements =
        layer->experts ? expert_elements(layers, shards)
                       : 3 * layers->hidden + 3 * gc_divide_up_u64(layer->intermediate, shards);
    if (layer->state != GC_STATE_NONE)
        elements = gc_max_u64(
            elements, 3 * layers->hidden +
                          3 * gc_divide_up_u64(layers->state_channels[layer->state], shards));
    return elements;
}

enum gc_status gc_engine_compute_bytes(const struct gc_engine_plan *plan,
                                       const struct gc_layers *layers, const struct gc_layer *layer,
                                       const struct gc_estimate_load *work, uint64_t *bytes)
{
    struct gc_sum sum = {false};
    const uint64_t row = sizeof(float) * plan->step_tokens;
    const uint64_t heads = gc_divide_up_u64(layer->heads, work->shards);
    const uint64_t pairs =
        gc_sum_mul(&sum, plan->step_tokens, layer->has_attention ? work->context_tokens : 0);
    const uint64_t mask = gc_sum_mul(&sum, pairs, work->scores_materialised ? 4 : 2);
    const uint64_t inputs = gc_sum_add(&sum, mask, gc_sum_mul(&sum, row, layers->hidden));
    const uint64_t scores =
        work->scores_materialised ? gc_sum_mul(&sum, pairs, heads * sizeof(float)) : 0;
    const uint64_t attention = gc_sum_add(
        &sum, scores, gc_sum_mul(&sum, row, attention_elements(layers, layer, work->shards)));
    const uint64_t other = gc_sum_mul(&sum, row, other_elements(layers, layer, work->shards));
    *bytes = gc_sum_add(&sum, gc_max_u64(attention, other), mask);
    *bytes = gc_sum_add(&sum, *bytes, gc_sum_mul(&sum, inputs, plan->context_copies - 1));
    return gc_sum_status(&sum);
}

enum gc_status gc_engine_output_bytes(const struct gc_engine_plan *plan,
                                      const struct gc_layers *layers, uint32_t shards,
                                      uint64_t *bytes)
{
    struct gc_sum sum = {false};
    const uint64_t row =
        (layers->has_kv_cache ? gc_divide_up_u64(layers->vocab, shards) : 0) + layers->hidden;
    *bytes = gc_sum_mul(&sum, plan->output_rows, row * sizeof(float));
    return gc_sum_status(&sum);
}

/* Of one captured step of one layer, from vLLM's own figures: "PIECEWISE=51, FULL=35 … 0.73 GiB"
 * for 32 layers, 0.36 GiB for 16 captures of 64 (vLLM pull request 39559, gpustack/runner 251). */
#define GRAPH_LAYER_BYTES (UINT64_C(280) << 10)

uint64_t gc_engine_graph_bytes(const struct gc_engine_plan *plan, uint32_t layers)
{
    return plan->captures * layers * GRAPH_LAYER_BYTES;
}

/* ---- the share of a device's memory ---- */

/* Parts outside of weights and cache. */
static uint64_t work_bytes(const struct gc_estimate_sizes *sizes, uint64_t context)
{
    const uint64_t kept = sizes->parts[GC_ESTIMATE_weight] + sizes->parts[GC_ESTIMATE_kv_cache] +
                          sizes->parts[GC_ESTIMATE_state];
    return gc_sub_or_zero_u64(sizes->peak_bytes, kept + context);
}

static uint64_t beside(uint64_t bytes, uint32_t fraction)
{
    return (uint64_t)((unsigned __int128)bytes * (1000 - fraction) / 1000);
}

/* vLLM: all but a context is within the fraction of the whole memory (gpu_worker.py). SGLang:
 * weights and cache are within the fraction of what is free before them (kv_pool_runtime.py).
 * TensorRT-LLM: the cache is within the fraction of what is free after all else (_util.py). */
uint64_t gc_engine_unusable_bytes(const struct gc_engine_plan *plan, uint64_t memory,
                                  uint64_t context, const struct gc_estimate_sizes *sizes)
{
    const uint64_t free_bytes = gc_sub_or_zero_u64(memory, context);
    const uint64_t work = work_bytes(sizes, context);
    if (memory == UINT64_MAX)
        return 0;
    switch (plan->engine) {
    case GC_ENGINE_VLLM:
        return gc_sub_or_zero_u64(beside(memory, plan->fraction), context);
    case GC_ENGINE_SGLANG:
        return gc_sub_or_zero_u64(beside(free_bytes, plan->fraction), work);
    case GC_ENGINE_TENSORRT_LLM:
        return beside(gc_sub_or_zero_u64(free_bytes, work + sizes->parts[GC_ESTIMATE_weight]),
                      plan->fraction);
    default:
        return beside(memory, plan->fraction);
    }
}
