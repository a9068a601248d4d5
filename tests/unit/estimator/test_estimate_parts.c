/* Layers of known architectures, and the formulas of an estimate's parts against published figures.
 */
#include "tests/unit/cmocka_all.h"

#include "core/arch/arch.h"
#include "core/estimator/formulas.h"
#include "tests/unit/arch_sample.h"

#include <string.h>

static struct gc_arch arch;
static struct gc_layers layers;
static struct gc_notes notes;

static void make(enum gc_arch_names names, const char *text)
{
    memset(&notes, 0, sizeof(notes));
    arch_sample(&arch, names, text);
    gc_arch_complete(&arch);
    gc_arch_note_defaults(&arch, &notes);
    gc_layers_make(&arch, &layers, &notes);
}

static struct gc_estimate_load work_of(uint64_t batch, uint64_t tokens, enum gc_dtype dtype)
{
    return (struct gc_estimate_load){.batch = batch,
                                     .context_tokens = tokens,
                                     .step_tokens = tokens,
                                     .dtype = dtype,
                                     .kv_dtype = dtype,
                                     .shards = 1};
}

typedef enum gc_status layer_bytes(const struct gc_layers *all, const struct gc_layer *layer,
                                   const struct gc_estimate_load *work, uint64_t *bytes);

static uint64_t sum_layers(layer_bytes *count, const struct gc_estimate_load *work)
{
    uint64_t total = 0;
    for (uint32_t i = 0; i < layers.count; i++) {
        uint64_t bytes;
        assert_int_equal(count(&layers, &layers.items[i], work, &bytes), GC_OK);
        total += bytes;
    }
    return total;
}

static uint64_t kv_bytes(const struct gc_estimate_load *work)
{
    return sum_layers(gc_formula_kv_layer_bytes, work);
}

static uint64_t state_bytes(const struct gc_estimate_load *work)
{
    return sum_layers(gc_formula_state_layer_bytes, work);
}

/* Layers with a window of this many tokens. */
static uint32_t windowed(uint32_t window)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < layers.count; i++)
        count += layers.items[i].has_attention && layers.items[i].window == window;
    return count;
}

static uint32_t with_state(enum gc_state_kind kind)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < layers.count; i++)
        count += layers.items[i].state == kind;
    return count;
}

static const char llama2[] = "model_type=llama num_hidden_layers=32 hidden_size=4096 "
                             "num_attention_heads=32 intermediate_size=11008 vocab_size=32000 "
                             "max_position_embeddings=4096";

/* Llama 2 7B: 2 GiB for 4096 tokens of 16 bits; Llama 3 8B, with 8 heads: 1 GiB for 8192. */
static void heads_of_their_own_or_in_groups(void **state)
{
    struct gc_estimate_load work = work_of(1, 4096, GC_DTYPE_F16);
    (void)state;
    make(GC_ARCH_NAMES_HF, llama2);
    assert_int_equal(layers.unknown, 0);
    assert_int_equal(kv_bytes(&work), UINT64_C(2) << 30);
    make(GC_ARCH_NAMES_GGUF,
         "general.architecture=llama llama.block_count=32 llama.embedding_length=4096 "
         "llama.attention.head_count=32 llama.attention.head_count_kv=8 "
         "llama.feed_forward_length=14336 llama.vocab_size=128256 llama.context_length=8192");
    work.context_tokens = 8192;
    assert_int_equal(layers.unknown, 0);
    assert_int_equal(kv_bytes(&work), UINT64_C(1) << 30);
    work.batch = 3;
    assert_int_equal(kv_bytes(&work), UINT64_C(3) << 30);
}

/* One head for all, whatever n_head_kv is; not so in the second architecture. */
static void falcon(void **state)
{
    const struct gc_estimate_load work = work_of(1, 1, GC_DTYPE_BF16);
    (void)state;
    make(GC_ARCH_NAMES_HF, "model_type=falcon num_hidden_layers=32 hidden_size=4544 "
                           "num_attention_heads=71 num_kv_heads=71 multi_query=true "
                           "new_decoder_architecture=false ffn_hidden_size=18176 vocab_size=65024");
    assert_int_equal(layers.unknown, 0);
    assert_int_equal(kv_bytes(&work), 32 * 2 * 64 * 2);
    make(GC_ARCH_NAMES_HF, "model_type=falcon num_hidden_layers=60 hidden_size=8192 "
                           "num_attention_heads=128 num_kv_heads=8 multi_query=true "
                           "new_decoder_architecture=true vocab_size=65024");
    assert_int_equal(kv_bytes(&work), UINT64_C(60) * 8 * 2 * 64 * 2);
}

/* DeepSeek-V3: 61 layers of 512 + 64 elements: 70,272 bytes a token in 16 bits. */
static void latent_attention(void **state)
{
    const struct gc_estimate_load work = work_of(1, 1000, GC_DTYPE_BF16);
    (void)state;
    make(GC_ARCH_NAMES_HF,
         "model_type=deepseek_v3 num_hidden_layers=61 hidden_size=7168 num_attention_heads=128 "
         "num_key_value_heads=128 kv_lora_rank=512 qk_rope_head_dim=64 qk_nope_head_dim=128 "
         "v_head_dim=128 q_lora_rank=1536 intermediate_size=18432 n_routed_experts=256 "
         "num_experts_per_tok=8 n_shared_experts=1 moe_intermediate_size=2048 "
         "first_k_dense_replace=3 moe_layer_freq=1 vocab_size=129280");
    assert_int_equal(layers.unknown, 0);
    assert_int_equal(kv_bytes(&work), 70272 * 1000);
    assert_int_equal(layers.expert_layer_count, 58);
    assert_false(layers.items[2].experts);
    assert_true(layers.items[3].experts);
    make(GC_ARCH_NAMES_GGUF,
         "general.architecture=deepseek2 deepseek2.block_count=61 deepseek2.embedding_length=7168 "
         "deepseek2.attention.head_count=128 deepseek2.attention.head_count_kv=1 "
         "deepseek2.attention.key_length=576 deepseek2.attention.value_length=512 "
         "deepseek2.attention.key_length_mla=192 deepseek2.attention.value_length_mla=128 "
         "deepseek2.attention.kv_lora_rank=512 deepseek2.rope.dimension_count=64 "
         "deepseek2.feed_forward_length=18432 deepseek2.vocab_size=129280");
    assert_int_equal(layers.unknown, 0);
    assert_int_equal(kv_bytes(&work), 70272 * 1000);
    assert_int_equal(layers.latent_key_dim, 192);
}

static void windows_by_pattern(void **state)
{
    const struct gc_estimate_load work = work_of(1, 32768, GC_DTYPE_BF16);
    (void)state;
    /* Gemma 3 4B: five layers of 1024 tokens, then one of all; its file leaves heads out. */
    make(GC_ARCH_NAMES_HF, "model_type=gemma3 text_config.model_type=gemma3_text "
                           "text_config.hidden_size=2560 text_config.intermediate_size=10240 "
                           "text_config.num_hidden_layers=34 text_config.sliding_window=1024");
    assert_int_equal(layers.unknown, 0);
    assert_int_equal(windowed(1024), 29);
    assert_int_equal(windowed(0), 5);
    assert_int_equal(kv_bytes(&work), UINT64_C(4) * 256 * 2 * 2 * (29 * 1024 + 5 * 32768));
    assert_true(notes.count >= 4);
    /* Gemma 2: every other layer, the first with a window. */
    make(GC_ARCH_NAMES_HF, "model_type=gemma2 num_hidden_layers=42 hidden_size=3584 head_dim=256 "
                           "num_attention_heads=16 num_key_value_heads=8 sliding_window=4096");
    assert_int_equal(layers.items[0].window, 4096);
    assert_int_equal(layers.items[1].window, 0);
    assert_int_equal(windowed(4096), 21);
    /* Mistral 7B: all layers. Qwen 2: none unless it has the key, then from a layer on. */
    make(GC_ARCH_NAMES_HF, "model_type=mistral num_hidden_layers=32 hidden_size=4096 "
                           "num_attention_heads=32 num_key_value_heads=8 sliding_window=4096");
    assert_int_equal(kv_bytes(&work), UINT64_C(32) * 4096 * 8 * 128 * 2 * 2);
    make(GC_ARCH_NAMES_HF, "model_type=qwen2 num_hidden_layers=28 sliding_window=131072 "
                           "use_sliding_window=false max_window_layers=28");
    assert_int_equal(windowed(0), 28);
    make(GC_ARCH_NAMES_HF, "model_type=qwen2 num_hidden_layers=28 sliding_window=512 "
                           "use_sliding_window=true max_window_layers=21");
    assert_int_equal(windowed(512), 7);
    assert_int_equal(layers.items[20].window, 0);
    /* The defaults of a family are reported where they matter, and not where they do not. */
    make(GC_ARCH_NAMES_HF, "model_type=qwen2 num_hidden_layers=28");
    assert_int_equal(notes.count, 1);
    make(GC_ARCH_NAMES_HF, "model_type=qwen2 num_hidden_layers=28 sliding_window=512");
    assert_int_equal(notes.count, 2);
    assert_int_equal(windowed(0), 28);
    /* GGUF may have it for each layer. */
    make(GC_ARCH_NAMES_GGUF, "gemma3.block_count=3 gemma3.attention.sliding_window=512 "
                             "gemma3.attention.sliding_window_pattern=true,true,false");
    assert_int_equal(windowed(512), 2);
}

static void windows_by_word_and_chunk(void **state)
{
    (void)state;
    make(GC_ARCH_NAMES_HF,
         "model_type=gpt_oss num_hidden_layers=4 sliding_window=128 "
         "layer_types=sliding_attention,full_attention,sliding_attention,full_attention");
    assert_int_equal(windowed(128), 2);
    make(GC_ARCH_NAMES_HF, "text_config.model_type=llama4_text text_config.num_hidden_layers=8 "
                           "text_config.no_rope_layers=1,1,1,0,1,1,1,0");
    assert_int_equal(windowed(8192), 6);
    assert_int_equal(layers.items[3].window, 0);
    make(GC_ARCH_NAMES_HF, "model_type=llama4_text num_hidden_layers=8");
    assert_int_equal(windowed(8192), 6);
}

/* Gemma 3n E4B: the last 15 of 35 layers keep nothing of their own. */
static void layers_that_share(void **state)
{
    const struct gc_estimate_load work = work_of(1, 100, GC_DTYPE_BF16);
    (void)state;
    make(GC_ARCH_NAMES_HF, "text_config.model_type=gemma3n_text text_config.num_hidden_layers=35 "
                           "text_config.hidden_size=2048 text_config.num_attention_heads=8 "
                           "text_config.num_key_value_heads=2 text_config.head_dim=256 "
                           "text_config.sliding_window=512 text_config.num_kv_shared_layers=15");
    assert_int_equal(kv_bytes(&work), 100 * 20 * 2 * 256 * 2 * 2);
}

/* Jamba: attention at 4, 12, 20, 28 of 32; experts in every second layer from 1. */
static void jamba(void **state)
{
    const struct gc_estimate_load work = work_of(2, 1000, GC_DTYPE_BF16);
    (void)state;
    make(GC_ARCH_NAMES_HF,
         "model_type=jamba num_hidden_layers=32 hidden_size=4096 num_attention_heads=32 "
         "num_key_value_heads=8 intermediate_size=14336 vocab_size=65536 attn_layer_period=8 "
         "attn_layer_offset=4 expert_layer_period=2 expert_layer_offset=1 num_experts=16 "
         "num_experts_per_tok=2 mamba_d_state=16 mamba_d_conv=4 mamba_expand=2 "
         "sliding_window=null");
    assert_int_equal(layers.unknown, 0);
    assert_int_equal(windowed(0), 4);
    assert_true(layers.items[12].has_attention && !layers.items[13].has_attention);
    assert_int_equal(with_state(GC_STATE_SPACE), 28);
    assert_int_equal(layers.expert_layer_count, 16);
    assert_int_equal(kv_bytes(&work), UINT64_C(2) * 1000 * 4 * 8 * 128 * 2 * 2);
    assert_int_equal(state_bytes(&work), 2 * 28 * (8192 * 4 * 2 + 8192 * 16 * 4));
}

static void state_space_models(void **state)
{
    const struct gc_estimate_load work = work_of(1, 100, GC_DTYPE_BF16);
    (void)state;
    make(GC_ARCH_NAMES_HF, "model_type=mamba num_hidden_layers=64 hidden_size=2560 "
                           "intermediate_size=5120 state_size=16 conv_kernel=4 vocab_size=50280");
    assert_int_equal(layers.unknown, 0);
    assert_int_equal(kv_bytes(&work), 0);
    assert_int_equal(state_bytes(&work), 64 * (5120 * 4 * 2 + 5120 * 16 * 4));
    make(GC_ARCH_NAMES_HF,
         "model_type=mamba2 num_hidden_layers=64 hidden_size=4096 num_heads=128 head_dim=64 "
         "state_size=128 n_groups=8 expand=2 conv_kernel=4 vocab_size=32768");
    assert_int_equal(layers.unknown, 0);
    assert_int_equal(state_bytes(&work),
                     UINT64_C(64) * ((8192 + 2 * 8 * 128) * 4 * 2 + 8192 * 128 * 4));
    /* Nemotron-H by letters: state, feed-forward, attention. */
    make(GC_ARCH_NAMES_HF,
         "model_type=nemotron_h num_hidden_layers=5 hidden_size=4096 num_attention_heads=32 "
         "num_key_value_heads=8 head_dim=128 intermediate_size=21504 ssm_state_size=128 "
         "conv_kernel=4 mamba_num_heads=128 mamba_head_dim=64 n_groups=8 "
         "hybrid_override_pattern=M-M*-");
    assert_int_equal(with_state(GC_STATE_SPACE), 2);
    assert_int_equal(kv_bytes(&work), 100 * 8 * 128 * 2 * 2);
    /* Qwen3-Next: every fourth layer has attention, the others gated delta. */
    make(GC_ARCH_NAMES_HF,
         "model_type=qwen3_next num_hidden_layers=48 hidden_size=2048 num_attention_heads=16 "
         "num_key_value_heads=2 head_dim=256 linear_num_value_heads=32 linear_num_key_heads=16 "
         "linear_key_head_dim=128 linear_value_head_dim=128 linear_conv_kernel_dim=4");
    assert_int_equal(windowed(0), 12);
    assert_true(layers.items[3].has_attention);
    assert_int_equal(state_bytes(&work), UINT64_C(36) * (8192 * 4 * 2 + 4096 * 128 * 4));
}

static void hybrids_of_other_kinds(void **state)
{
    const struct gc_estimate_load work = work_of(1, 5000, GC_DTYPE_BF16);
    (void)state;
    make(GC_ARCH_NAMES_HF,
         "model_type=recurrent_gemma num_hidden_layers=26 hidden_size=2560 num_attention_heads=10 "
         "num_key_value_heads=1 attention_window_size=2048 lru_width=2560 conv1d_width=4 "
         "head_dim=256 block_types=recurrent,recurrent,attention");
    assert_int_equal(windowed(2048), 8);
    assert_int_equal(with_state(GC_STATE_RECURRENT), 18);
    assert_int_equal(kv_bytes(&work), UINT64_C(8) * 2048 * 256 * 2 * 2);
    assert_int_equal(state_bytes(&work), 18 * (2560 * 3 * 2 + 2560 * 4));
    make(GC_ARCH_NAMES_GGUF, "general.architecture=lfm2 lfm2.block_count=4 "
                             "lfm2.embedding_length=2048 lfm2.attention.head_count=32 "
                             "lfm2.attention.head_count_kv=0,0,8,0 lfm2.shortconv.l_cache=3");
    assert_int_equal(with_state(GC_STATE_CONVOLUTION), 3);
    assert_int_equal(kv_bytes(&work), UINT64_C(5000) * 8 * 64 * 2 * 2);
    make(GC_ARCH_NAMES_GGUF, "general.architecture=rwkv6 rwkv6.block_count=2 "
                             "rwkv6.embedding_length=2048 rwkv6.wkv.head_size=64");
    assert_int_equal(state_bytes(&work), 2 * (2048 * 64 + 2 * 2048) * 4);
    make(GC_ARCH_NAMES_HF, "model_type=bert num_hidden_layers=12 hidden_size=768 "
                           "num_attention_heads=12 intermediate_size=3072 vocab_size=30522 "
                           "type_vocab_size=2");
    assert_int_equal(kv_bytes(&work), 0);
    assert_int_equal(layers.unknown, 0);
}

/* Blocks are whole for each token: 8 heads of 80 in q8_0 take 20 blocks, 8 of 72 take 18. */
static void quantised_keys_and_values(void **state)
{
    struct gc_estimate_load work = work_of(1, 7, GC_DTYPE_F16);
    uint64_t bytes;
    (void)state;
    make(GC_ARCH_NAMES_HF, llama2);
    work.kv_dtype = GC_DTYPE_Q8_0;
    assert_int_equal(kv_bytes(&work), 7 * 32 * 2 * (4096 / 32) * 34);
    work.kv_dtype = GC_DTYPE_Q4_0;
    assert_int_equal(kv_bytes(&work), 7 * 32 * 2 * (4096 / 32) * 18);
    layers.items[0].kv_heads = 1;
    layers.items[0].key_dim = 33;
    layers.items[0].value_dim = 1;
    assert_int_equal(gc_formula_kv_token_bytes(&layers, &layers.items[0], GC_DTYPE_Q8_0, 1, &bytes),
                     GC_OK);
    assert_int_equal(bytes, 3 * 34);
}

static void what_is_missing_is_unknown(void **state)
{
    (void)state;
    make(GC_ARCH_NAMES_HF, "");
    assert_true(layers.unknown & GC_UNKNOWN_LAYERS);
    make(GC_ARCH_NAMES_HF, "num_hidden_layers=2 hidden_size=64");
    assert_true(layers.unknown & GC_UNKNOWN_KV);
    assert_true(layers.unknown & GC_UNKNOWN_VOCAB);
    make(GC_ARCH_NAMES_HF, "num_hidden_layers=2 layer_types=attention,conformer");
    assert_true(layers.unknown & GC_UNKNOWN_KINDS);
    make(GC_ARCH_NAMES_HF, "num_hidden_layers=2 layers_block_type=mamba,mamba");
    assert_true(layers.unknown & GC_UNKNOWN_SIZES);
    make(GC_ARCH_NAMES_HF, "model_type=musicgen num_layers=2 is_encoder_decoder=true");
    assert_true(layers.unknown & GC_UNKNOWN_ENCODER);
}

/* T5-small: 6 layers of 8 heads of 64, keys and values of 2 · 512 for each token of either side.
 * Whisper tiny: 4 layers of 384, an encoder of 1500 tokens whatever the context. */
static void cross_attention_has_keys_and_values_of_its_own(void **state)
{
    struct gc_estimate_load work = work_of(2, 100, GC_DTYPE_F16);
    (void)state;
    make(GC_ARCH_NAMES_HF, "model_type=t5 is_encoder_decoder=true num_layers=6 num_heads=8 d_kv=64 "
                           "d_model=512 d_ff=2048 vocab_size=32128");
    assert_int_equal(layers.unknown, 0);
    assert_int_equal(sum_layers(gc_formula_kv_layer_bytes, &work),
                     UINT64_C(2) * 6 * 1024 * (100 + 100) * 2);
    make(GC_ARCH_NAMES_HF,
         "model_type=whisper is_encoder_decoder=true encoder_layers=6 decoder_layers=4 "
         "encoder_attention_heads=6 decoder_attention_heads=6 encoder_ffn_dim=1536 "
         "decoder_ffn_dim=1536 d_model=384 max_source_positions=1500 max_target_positions=448 "
         "vocab_size=51865");
    assert_int_equal(layers.unknown, 0);
    assert_int_equal(layers.count, 4);
    assert_int_equal(layers.positions, 448);
    assert_int_equal(sum_layers(gc_formula_kv_layer_bytes, &work),
                     UINT64_C(2) * 4 * 768 * (100 + 1500) * 2);
    const struct gc_estimate_load encoder = gc_encoder_work(&layers, &work);
    assert_int_equal(encoder.step_tokens, 1500);
}

/* Models that an estimate must not take for a plain stack of attention without a remark. */
static void unclear_parts_are_reported(void **state)
{
    (void)state;
    make(GC_ARCH_NAMES_HF, "model_type=musicgen is_encoder_decoder=true "
                           "decoder.is_encoder_decoder=false decoder.num_hidden_layers=2");
    assert_true(layers.unknown & GC_UNKNOWN_ENCODER);
    make(GC_ARCH_NAMES_HF, "model_type=xlstm num_hidden_layers=2 hidden_size=64 num_heads=4");
    assert_true(layers.unknown & GC_UNKNOWN_SIZES);
    assert_false(layers.items[0].has_attention);
    make(GC_ARCH_NAMES_HF, "model_type=of_nobody num_hidden_layers=2 hidden_size=64 "
                           "num_attention_heads=4 sliding_window=128");
    assert_true(layers.unknown & GC_UNKNOWN_KEPT);
    make(GC_ARCH_NAMES_HF, "model_type=mistral num_hidden_layers=2 hidden_size=64 "
                           "num_attention_heads=4 sliding_window=128");
    assert_false(layers.unknown & GC_UNKNOWN_KEPT);
    make(GC_ARCH_NAMES_HF, "model_type=of_nobody num_hidden_layers=2 hidden_size=64 "
                           "num_attention_heads=4 mamba_d_state=16");
    assert_true(layers.unknown & GC_UNKNOWN_STATE);
    arch_sample(&arch, GC_ARCH_NAMES_HF, llama2);
    arch.has_own_layers = true;
    gc_layers_make(&arch, &layers, &notes);
    assert_true(layers.unknown & GC_UNKNOWN_KEPT);
}

/* Words of MiniMax, Kimi, Ring and LongCat for the layers with attention. */
static void layers_by_names_of_few(void **state)
{
    const struct gc_estimate_load work = work_of(1, 10, GC_DTYPE_BF16);
    (void)state;
    make(GC_ARCH_NAMES_HF, "num_hidden_layers=4 hidden_size=64 num_attention_heads=4 "
                           "attn_type_list=0,1,0,1");
    assert_true(!layers.items[0].has_attention && layers.items[3].has_attention);
    make(GC_ARCH_NAMES_HF, "num_hidden_layers=4 hidden_size=64 num_attention_heads=4 "
                           "linear_attn_config.full_attn_layers=2,3");
    assert_true(layers.items[1].has_attention && !layers.items[3].has_attention);
    make(GC_ARCH_NAMES_HF, "num_hidden_layers=4 hidden_size=64 num_attention_heads=4 "
                           "layer_group_size=2");
    assert_true(!layers.items[0].has_attention && layers.items[3].has_attention);
    make(GC_ARCH_NAMES_HF, "model_type=longcat_flash num_layers=3 hidden_size=64 "
                           "num_attention_heads=4 kv_lora_rank=30 qk_rope_head_dim=2");
    assert_int_equal(kv_bytes(&work), 10 * 3 * 2 * 32 * 2);
    make(GC_ARCH_NAMES_HF, "model_type=nemotron_h layers_block_type=mamba,attention,moe "
                           "hidden_size=64 num_attention_heads=4");
    assert_int_equal(layers.count, 3);
    make(GC_ARCH_NAMES_HF, "num_hidden_layers=1 hidden_size=64 num_attention_heads=4 head_dim=16 "
                           "v_head_dim=8");
    assert_int_equal(kv_bytes(&work), 10 * 4 * (16 + 8) * 2);
    make(GC_ARCH_NAMES_HF, "model_type=bert is_decoder=true num_hidden_layers=1 hidden_size=64 "
                           "num_attention_heads=4");
    assert_int_equal(kv_bytes(&work), 10 * 64 * 2 * 2);
}

static void attention_with_and_without_scores(void **state)
{
    struct gc_estimate_load work = work_of(2, 4096, GC_DTYPE_F16);
    uint64_t bytes;
    (void)state;
    make(GC_ARCH_NAMES_HF, llama2);
    assert_int_equal(gc_formula_attention_scores_bytes(&layers.items[0], &work, &bytes), GC_OK);
    assert_int_equal(bytes, UINT64_C(2) * 4096 * 32 * 8);
    work.scores_materialised = true;
    assert_int_equal(gc_formula_attention_scores_bytes(&layers.items[0], &work, &bytes), GC_OK);
    assert_int_equal(bytes, UINT64_C(2) * 4096 * 32 * 4096 * 2);
}

static void working_set_of_a_layer(void **state)
{
    struct gc_estimate_load work = work_of(1, 100, GC_DTYPE_F16);
    uint64_t bytes;
    (void)state;
    make(GC_ARCH_NAMES_HF, llama2);
    assert_int_equal(gc_formula_activation_layer_bytes(&layers, &layers.items[0], &work, &bytes),
                     GC_OK);
    assert_int_equal(bytes, 100 * 2 * (4 * 4096 + 3 * 11008));
    work.shards = 4;
    assert_int_equal(gc_formula_activation_layer_bytes(&layers, &layers.items[0], &work, &bytes),
                     GC_OK);
    assert_int_equal(bytes, 100 * 2 * 7 * 4096);
    assert_int_equal(gc_formula_logits_bytes(&layers, &work, &bytes), GC_OK);
    assert_int_equal(bytes, 32000 * 4);
    assert_int_equal(gc_formula_input_bytes(&work, &bytes), GC_OK);
    assert_int_equal(bytes, 100 * 24);
}

static void assert_counts(uint32_t dense, uint32_t experts, uint32_t attention, uint32_t state,
                          uint32_t convolution)
{
    assert_int_equal(gc_layers_count(&layers, GC_LAYER_DENSE), dense);
    assert_int_equal(gc_layers_count(&layers, GC_LAYER_EXPERTS), experts);
    assert_int_equal(gc_layers_count(&layers, GC_LAYER_ATTENTION), attention);
    assert_int_equal(gc_layers_count(&layers, GC_LAYER_STATE), state);
    assert_int_equal(gc_layers_count(&layers, GC_LAYER_CONVOLUTION), convolution);
}

/* Jamba has a feed-forward part in every layer, Nemotron-H a layer for each part, Mamba none. */
static void layers_are_counted_by_part(void **state)
{
    (void)state;
    make(GC_ARCH_NAMES_HF,
         "model_type=jamba num_hidden_layers=32 hidden_size=4096 num_attention_heads=32 "
         "num_experts=16 num_experts_per_tok=2 expert_layer_period=2 expert_layer_offset=1 "
         "attn_layer_period=8 attn_layer_offset=4 mamba_d_state=16 intermediate_size=14336");
    assert_counts(16, 16, 4, 28, 0);
    make(GC_ARCH_NAMES_HF, "model_type=nemotron_h num_hidden_layers=9 hidden_size=4096 "
                           "num_attention_heads=32 n_routed_experts=8 num_experts_per_tok=2 "
                           "ssm_state_size=128 hybrid_override_pattern=MM-M*-MEM");
    assert_counts(2, 1, 1, 5, 0);
    make(GC_ARCH_NAMES_HF, "model_type=deepseek_v3 num_hidden_layers=61 hidden_size=7168 "
                           "num_attention_heads=128 n_routed_experts=256 num_experts_per_tok=8 "
                           "first_k_dense_replace=3 kv_lora_rank=512 qk_rope_head_dim=64");
    assert_counts(3, 58, 61, 0, 0);
    make(GC_ARCH_NAMES_HF, "model_type=lfm2 num_hidden_layers=3 hidden_size=2048 conv_L_cache=3 "
                           "num_attention_heads=32 layer_types=conv,full_attention,conv");
    assert_counts(3, 0, 1, 0, 2);
    make(GC_ARCH_NAMES_HF, "model_type=mamba num_hidden_layers=24 hidden_size=768 state_size=16");
    assert_counts(0, 0, 0, 24, 0);
}

int main(void)
{
    cmocka_set_message_output(CM_OUTPUT_TAP);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(heads_of_their_own_or_in_groups),
        cmocka_unit_test(falcon),
        cmocka_unit_test(latent_attention),
        cmocka_unit_test(windows_by_pattern),
        cmocka_unit_test(windows_by_word_and_chunk),
        cmocka_unit_test(layers_that_share),
        cmocka_unit_test(jamba),
        cmocka_unit_test(state_space_models),
        cmocka_unit_test(hybrids_of_other_kinds),
        cmocka_unit_test(quantised_keys_and_values),
        cmocka_unit_test(what_is_missing_is_unknown),
        cmocka_unit_test(cross_attention_has_keys_and_values_of_its_own),
        cmocka_unit_test(layers_are_counted_by_part),
        cmocka_unit_test(unclear_parts_are_reported),
        cmocka_unit_test(layers_by_names_of_few),
        cmocka_unit_test(attention_with_and_without_scores),
        cmocka_unit_test(working_set_of_a_layer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
