/* Layers by the shapes of tensors, and the classes that keep a cache. */
#include "tests/unit/cmocka_all.h"

#include "core/arch/shapes.h"
#include "tests/unit/arch_sample.h"

#include <string.h>

#define TENSOR_MAX 64

static struct gc_model_tensor tensors[TENSOR_MAX];
static uint64_t dims[TENSOR_MAX][3];
static struct gc_model model;
static struct gc_arch arch;
static struct gc_shapes shapes;
static struct gc_layers layers;
static struct gc_notes notes;

static int clear(void **state)
{
    (void)state;
    memset(&model, 0, sizeof(model));
    memset(&notes, 0, sizeof(notes));
    model.tensors = tensors;
    return 0;
}

/* A tensor of two or, with `last`, of three dimensions. */
static void add(const char *name, uint64_t rows, uint64_t columns, uint64_t last)
{
    const uint32_t at = model.tensor_count++;
    assert_true(at < TENSOR_MAX);
    dims[at][0] = rows;
    dims[at][1] = columns;
    dims[at][2] = last;
    tensors[at] = (struct gc_model_tensor){.name = name,
                                           .dims = dims[at],
                                           .dim_count = last > 0 ? 3 : 2,
                                           .dtype = GC_DTYPE_BF16,
                                           .elements = rows * columns * (last > 0 ? last : 1),
                                           .alias_of = GC_MODEL_NONE};
}

static void make(enum gc_arch_names names, const char *text)
{
    arch_sample(&arch, names, text);
    arch.is_gguf = names == GC_ARCH_NAMES_GGUF;
    gc_arch_complete(&arch);
    gc_shapes_read(&model, gc_arch_given(&arch, GC_ARCH_HIDDEN), &shapes);
    gc_shapes_complete(&shapes, &arch);
    gc_arch_note_defaults(&arch, &notes);
    gc_layers_make(&arch, &layers, &notes);
    gc_shapes_apply(&shapes, &arch, &layers, &notes);
}

static uint64_t row(uint32_t index)
{
    const struct gc_layer *layer = &layers.items[index];
    return (uint64_t)layer->kv_heads * (layer->key_dim + layer->value_dim);
}

/* As LLaVA's configuration: the language model is named, and nothing of it is said. */
static void a_nested_configuration_without_values(void **state)
{
    (void)state;
    add("vision_tower.encoder.layers.0.self_attn.k_proj.weight", 1024, 1024, 0);
    add("vision_tower.encoder.layers.0.self_attn.v_proj.weight", 1024, 1024, 0);
    add("vision_tower.encoder.layers.23.mlp.fc1.weight", 4096, 1024, 0);
    add("language_model.model.embed_tokens.weight", 32064, 512, 0);
    add("language_model.model.layers.0.self_attn.q_proj.weight", 512, 512, 0);
    add("language_model.model.layers.0.self_attn.k_proj.weight", 128, 512, 0);
    add("language_model.model.layers.0.self_attn.v_proj.weight", 128, 512, 0);
    add("language_model.model.layers.1.self_attn.k_proj.weight", 256, 512, 0);
    add("language_model.model.layers.1.self_attn.v_proj.weight", 256, 512, 0);
    add("language_model.model.layers.1.mlp.up_proj.weight", 1376, 512, 0);
    make(GC_ARCH_NAMES_HF, "architectures=LlavaForConditionalGeneration model_type=llava "
                           "text_config.model_type=llama");
    assert_int_equal(layers.count, 2);
    assert_int_equal(layers.hidden, 512);
    assert_int_equal(layers.vocab, 32064);
    assert_int_equal(row(0), 2 * 128);
    assert_int_equal(row(1), 2 * 256);
    assert_int_equal(layers.items[1].intermediate, 1376);
    assert_int_equal(layers.unknown & (GC_UNKNOWN_KV | GC_UNKNOWN_KEPT | GC_UNKNOWN_LAYERS), 0);
}

static bool is_noted(const char *text)
{
    for (uint32_t i = 0; i < notes.count; i++) {
        if (strstr(notes.texts[i], text) != NULL)
            return true;
    }
    return false;
}

static void the_tensors_count_where_both_speak(void **state)
{
    (void)state;
    add("model.layers.0.self_attn.k_proj.weight", 64, 256, 0);
    add("model.layers.0.self_attn.v_proj.weight", 48, 256, 0);
    make(GC_ARCH_NAMES_HF, "architectures=LlamaForCausalLM model_type=llama num_hidden_layers=1 "
                           "hidden_size=256 num_attention_heads=8 num_key_value_heads=8");
    assert_int_equal(row(0), 64 + 48);
    assert_true(is_noted("the tensors have 112 elements, the configuration 512"));
    clear(NULL);
    add("model.layers.0.self_attn.k_proj.weight", 256, 256, 0);
    make(GC_ARCH_NAMES_HF, "architectures=LlamaForCausalLM model_type=llama num_hidden_layers=1 "
                           "hidden_size=256 num_attention_heads=8 num_key_value_heads=8");
    assert_int_equal(row(0), 512);
    assert_false(is_noted("the tensors have"));
}

/* Queries, keys and values in one tensor: GPT-2's as columns, Falcon's with one head for all. */
static void one_tensor_for_three(void **state)
{
    (void)state;
    add("transformer.h.0.attn.c_attn.weight", 768, 2304, 0);
    add("transformer.h.0.attn.c_proj.weight", 768, 768, 0);
    add("transformer.h.0.mlp.c_fc.weight", 768, 3072, 0);
    make(GC_ARCH_NAMES_HF, "architectures=GPT2LMHeadModel model_type=gpt2 n_layer=1 n_embd=768");
    assert_int_equal(row(0), 2 * 768);
    assert_int_equal(layers.items[0].intermediate, 3072);
    clear(NULL);
    add("transformer.h.0.self_attention.query_key_value.weight", 4672, 4544, 0);
    add("transformer.h.0.self_attention.dense.weight", 4544, 4544, 0);
    make(GC_ARCH_NAMES_HF, "architectures=FalconForCausalLM model_type=falcon hidden_size=4544");
    assert_int_equal(row(0), 2 * 64);
}

/* Linear attention: a matrix for each head in 32 bits, and the tokens of its convolutions.
 */
static void states_by_their_tensors(void **state)
{
    (void)state;
    add("model.layers.0.self_attn.q_proj.weight", 256, 512, 0);
    add("model.layers.0.self_attn.k_proj.weight", 256, 512, 0);
    add("model.layers.0.self_attn.v_proj.weight", 512, 512, 0);
    add("model.layers.0.self_attn.A_log", 1, 8, 0);
    add("model.layers.0.self_attn.conv1d.weight", 1024, 1, 4);
    add("model.layers.1.self_attn.k_proj.weight", 64, 512, 0);
    make(GC_ARCH_NAMES_HF,
         "architectures=OlmoHybridForCausalLM model_type=olmo_hybrid "
         "num_attention_heads=8 num_key_value_heads=1 layer_types=linear_attention,full_attention");
    assert_int_equal(layers.items[0].size.wide, 256 * 512 / 8);
    assert_int_equal(layers.items[0].size.native, 1024 * 4);
    assert_false(layers.items[0].has_attention);
    assert_int_equal(row(1), 128);
    assert_int_equal(layers.unknown & GC_UNKNOWN_SIZES, 0);
}

/* An index key only where there is an index, and the encoder's length only where it is fixed. */
static void index_and_source(void **state)
{
    (void)state;
    add("model.layers.0.self_attn.kv_a_proj_with_mqa.weight", 576, 512, 0);
    add("model.layers.0.self_attn.indexer.wk.weight", 128, 512, 0);
    add("model.layers.1.self_attn.kv_a_proj_with_mqa.weight", 576, 512, 0);
    make(GC_ARCH_NAMES_HF, "architectures=DeepseekV32ForCausalLM model_type=deepseek_v32 "
                           "num_hidden_layers=2 hidden_size=512 num_attention_heads=8 "
                           "kv_lora_rank=512 qk_rope_head_dim=64 index_head_dim=128");
    assert_int_equal(layers.items[0].index_dim, 128);
    assert_int_equal(layers.items[1].index_dim, 0);
    clear(NULL);
    add("model.encoder.conv1.weight", 64, 80, 3);
    add("model.decoder.layers.0.self_attn.k_proj.weight", 64, 64, 0);
    add("model.decoder.layers.0.encoder_attn.k_proj.weight", 64, 64, 0);
    make(GC_ARCH_NAMES_HF,
         "architectures=Speech2TextForConditionalGeneration model_type=speech_to_text "
         "is_encoder_decoder=true decoder_layers=1 d_model=64 decoder_attention_heads=4 "
         "encoder_attention_heads=4 max_source_positions=6000");
    assert_true(layers.has_cross_attention && layers.is_source_unknown);
    assert_true(layers.unknown & GC_UNKNOWN_KEPT);
    add("model.encoder.embed_positions.weight", 6000, 64, 0);
    make(GC_ARCH_NAMES_HF,
         "architectures=WhisperForConditionalGeneration model_type=whisper "
         "is_encoder_decoder=true decoder_layers=1 d_model=64 decoder_attention_heads=4 "
         "encoder_attention_heads=4 max_source_positions=6000");
    assert_false(layers.is_source_unknown);
    assert_int_equal(layers.source_tokens, 6000);
}

static bool keeps(const char *text)
{
    arch_sample(&arch, GC_ARCH_NAMES_HF, text);
    return gc_arch_keeps_cache(&arch);
}

static void classes_that_generate_keep_a_cache(void **state)
{
    (void)state;
    assert_true(keeps("architectures=LlamaForCausalLM vocab_size=8"));
    assert_true(keeps("architectures=GPT2LMHeadModel use_cache=false"));
    assert_true(keeps("architectures=MarianMTModel is_encoder_decoder=true"));
    assert_true(keeps("architectures=BertLMHeadModel type_vocab_size=2 is_decoder=true"));
    assert_true(keeps("architectures=LlamaModel vocab_size=8 use_cache=true"));
    assert_true(keeps("architectures=BartModel vocab_size=8 is_encoder_decoder=true"));
    assert_true(keeps("hidden_size=8 text_config.vocab_size=8"));
    assert_true(keeps("architectures=LlamaForSequenceClassification model_type=llama"));
    assert_true(keeps("architectures=Qwen3ForTokenClassification model_type=qwen3"));
}

static void other_classes_keep_none(void **state)
{
    (void)state;
    assert_false(keeps("architectures=BertForMaskedLM type_vocab_size=2 use_cache=true"));
    assert_false(keeps("architectures=BertLMHeadModel type_vocab_size=2 is_decoder=false"));
    assert_false(keeps("architectures=BertForSequenceClassification model_type=bert"));
    assert_false(keeps("architectures=BartForSequenceClassification model_type=bart "
                       "is_encoder_decoder=true"));
    assert_false(keeps("architectures=LlamaForSequenceClassification model_type=llama "
                       "use_cache=false"));
    assert_false(keeps("architectures=ViTModel hidden_size=8"));
    assert_false(keeps("architectures=EuroBertModel use_cache=true vocab_size=9 mask_token_id=7"));
    assert_false(keeps("architectures=DetrModel is_encoder_decoder=true"));
    assert_false(keeps("architectures=OpenAIGPTLMHeadModel model_type=openai-gpt"));
}

/* llama.cpp: latents only with key_length_mla; no window of Phi-3; none for encoders. */
static void gguf_as_llama_cpp_keeps_it(void **state)
{
    (void)state;
    make(GC_ARCH_NAMES_GGUF,
         "general.architecture=deepseek2 deepseek2.block_count=2 deepseek2.embedding_length=512 "
         "deepseek2.attention.head_count=16 deepseek2.attention.head_count_kv=16 "
         "deepseek2.attention.kv_lora_rank=512 deepseek2.rope.dimension_count=64 "
         "deepseek2.attention.key_length=192 deepseek2.attention.value_length=128");
    assert_false(layers.items[0].is_mla);
    assert_int_equal(row(0), 16 * (192 + 128));
    make(GC_ARCH_NAMES_GGUF,
         "general.architecture=deepseek2 deepseek2.block_count=2 deepseek2.embedding_length=512 "
         "deepseek2.attention.head_count=16 deepseek2.attention.head_count_kv=1 "
         "deepseek2.attention.kv_lora_rank=512 deepseek2.rope.dimension_count=64 "
         "deepseek2.attention.key_length=576 deepseek2.attention.value_length=512 "
         "deepseek2.attention.key_length_mla=192 deepseek2.attention.value_length_mla=128");
    assert_true(layers.items[0].is_mla);
    make(GC_ARCH_NAMES_GGUF,
         "general.architecture=minicpm3 minicpm3.block_count=2 minicpm3.embedding_length=2560 "
         "minicpm3.attention.head_count=40 minicpm3.attention.head_count_kv=40 "
         "minicpm3.attention.kv_lora_rank=256 minicpm3.rope.dimension_count=32 "
         "minicpm3.attention.key_length=96");
    assert_int_equal(row(0), 40 * (96 + 64));
    make(GC_ARCH_NAMES_GGUF, "general.architecture=phi3 phi3.block_count=2 "
                             "phi3.embedding_length=64 phi3.attention.head_count=4 "
                             "phi3.attention.sliding_window=2047");
    assert_int_equal(layers.items[0].window, 0);
    assert_int_equal(layers.unknown & GC_UNKNOWN_KEPT, 0);
    make(GC_ARCH_NAMES_GGUF, "general.architecture=t5encoder t5encoder.block_count=2");
    assert_false(layers.has_kv_cache);
}

/* Hunyuan Large: two layers with the same keys and values. */
static void layers_in_runs_share(void **state)
{
    (void)state;
    make(GC_ARCH_NAMES_HF, "model_type=hunyuan num_hidden_layers=4 hidden_size=64 use_cla=true "
                           "num_attention_heads=4 cla_share_factor=2");
    assert_false(layers.items[0].shares_kv || layers.items[2].shares_kv);
    assert_true(layers.items[1].shares_kv && layers.items[3].shares_kv);
}

/* A type that nobody measured is a bound unless its tensors show all keys and values. */
static void unmeasured_types_are_told(void **state)
{
    static const char text[] = "architectures=NewForCausalLM model_type=of_nobody hidden_size=64 "
                               "num_hidden_layers=2 num_attention_heads=4";
    (void)state;
    make(GC_ARCH_NAMES_HF, text);
    assert_true(layers.unknown & GC_UNKNOWN_KEPT);
    assert_true(is_noted("of_nobody"));
    clear(NULL);
    add("model.layers.0.attention.wk.weight", 64, 64, 0);
    add("model.layers.1.attention.wk.weight", 64, 64, 0);
    make(GC_ARCH_NAMES_HF, text);
    assert_int_equal(layers.unknown & GC_UNKNOWN_KEPT, 0);
    assert_true(is_noted("of_nobody"));
}

/* Packed weights: their shapes are not the matrices'. */
static void packed_weights_say_nothing(void **state)
{
    (void)state;
    add("model.layers.0.self_attn.k_proj.qweight", 32, 64, 0);
    tensors[0].dtype = GC_DTYPE_I32;
    add("model.layers.0.self_attn.v_proj.weight", 64, 64, 0);
    make(GC_ARCH_NAMES_HF, "architectures=LlamaForCausalLM model_type=llama hidden_size=256 "
                           "num_hidden_layers=1 num_attention_heads=8");
    assert_true(shapes.is_packed);
    assert_int_equal(row(0), 512);
}

/* Defaults are for what neither the configuration nor the shapes tell. */
static void shapes_come_before_defaults(void **state)
{
    (void)state;
    add("token_embd.weight", 3200, 512, 0);
    add("blk.0.attn_k.weight", 384, 512, 0);
    make(GC_ARCH_NAMES_GGUF, "general.architecture=gemma3 gemma3.block_count=1 "
                             "gemma3.embedding_length=512");
    assert_int_equal(layers.vocab, 3200);
    assert_false(is_noted("vocabulary"));
    clear(NULL);
    add("model.embed_tokens.weight", 100, 64, 0);
    add("model.layers.0.self_attn.k_proj.weight", 32, 64, 0);
    make(GC_ARCH_NAMES_HF, "architectures=Gemma3ForCausalLM model_type=gemma3_text");
    assert_int_equal(layers.vocab, 100);
    assert_int_equal(layers.hidden, 64);
    assert_int_equal(layers.count, 1);
    assert_false(is_noted("vocabulary"));
    clear(NULL);
    make(GC_ARCH_NAMES_HF, "architectures=Gemma3ForCausalLM model_type=gemma3_text");
    assert_int_equal(layers.vocab, 262208);
    assert_true(is_noted("vocabulary"));
}

int main(void)
{
    cmocka_set_message_output(CM_OUTPUT_TAP);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_nested_configuration_without_values, clear),
        cmocka_unit_test_setup(the_tensors_count_where_both_speak, clear),
        cmocka_unit_test_setup(one_tensor_for_three, clear),
        cmocka_unit_test_setup(states_by_their_tensors, clear),
        cmocka_unit_test_setup(index_and_source, clear),
        cmocka_unit_test_setup(classes_that_generate_keep_a_cache, clear),
        cmocka_unit_test_setup(other_classes_keep_none, clear),
        cmocka_unit_test_setup(gguf_as_llama_cpp_keeps_it, clear),
        cmocka_unit_test_setup(layers_in_runs_share, clear),
        cmocka_unit_test_setup(unmeasured_types_are_told, clear),
        cmocka_unit_test_setup(packed_weights_say_nothing, clear),
        cmocka_unit_test_setup(shapes_come_before_defaults, clear),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
