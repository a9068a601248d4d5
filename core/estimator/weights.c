#include "core/estimator/weights.h"
#include "core/base/bits.h"
#include "core/io/text.h"

#include <string.h>

/* ---- names ---- */

struct word {
    const char *text;
    size_t length;
};

#define WORD(text)                                                                                 \
    {                                                                                              \
        text, sizeof(text) - 1                                                                     \
    }

static const struct word layer_words[] = {WORD("layers"), WORD("h"),     WORD("blk"),
                                          WORD("blocks"), WORD("block"), WORD("layer")};
static const struct word last_words[] = {
    WORD("lm_head"),    WORD("output"),         WORD("output_norm"), WORD("final_layernorm"),
    WORD("ln_f"),       WORD("norm_f"),         WORD("embed_out"),   WORD("norm"),
    WORD("final_norm"), WORD("embedding_norm"), WORD("score")};
static const struct word embedding_words[] = {WORD("token_embd"),    WORD("token_embd_norm"),
                                              WORD("position_embd"), WORD("token_types"),
                                              WORD("embed_tokens"),  WORD("wte"),
                                              WORD("wpe"),           WORD("word_embeddings")};
static const struct word fused_words[] = {WORD("input_linear"), WORD("output_linear")};
static const struct word numbered_words[] = {WORD("ffn_gate"), WORD("ffn_up"), WORD("ffn_down")};

#define COUNT(words) (sizeof(words) / sizeof((words)[0]))

/* Names of matrices by kind, as the part before "weight". */
struct kind_word {
    struct word word;
    enum gc_weight_kind kind;
};

static const struct kind_word kind_words[] = {
    {WORD("k_proj"), GC_WEIGHT_KEY},
    {WORD("attn_k"), GC_WEIGHT_KEY},
    {WORD("v_proj"), GC_WEIGHT_VALUE},
    {WORD("attn_v"), GC_WEIGHT_VALUE},
    {WORD("qkv_proj"), GC_WEIGHT_QKV},
    {WORD("attn_qkv"), GC_WEIGHT_QKV},
    {WORD("query_key_value"), GC_WEIGHT_QKV},
    {WORD("c_attn"), GC_WEIGHT_QKV},
    {WORD("Wqkv"), GC_WEIGHT_QKV},
    {WORD("o_proj"), GC_WEIGHT_ATTENTION_OUTPUT},
    {WORD("attn_output"), GC_WEIGHT_ATTENTION_OUTPUT},
    {WORD("out_proj"), GC_WEIGHT_ATTENTION_OUTPUT},
    {WORD("down_proj"), GC_WEIGHT_DOWN},
    {WORD("ffn_down"), GC_WEIGHT_DOWN},
    {WORD("ffn_down_exps"), GC_WEIGHT_DOWN},
    {WORD("ffn_down_shexp"), GC_WEIGHT_DOWN},
    {WORD("w2"), GC_WEIGHT_DOWN},
    {WORD("fc2"), GC_WEIGHT_DOWN},
    {WORD("fc_out"), GC_WEIGHT_DOWN},
    {WORD("dense_4h_to_h"), GC_WEIGHT_DOWN},
    {WORD("output_linear"), GC_WEIGHT_DOWN},
    {WORD("ffn_gate_inp"), GC_WEIGHT_ROUTER},
    {WORD("router"), GC_WEIGHT_ROUTER},
    {WORD("gate"), GC_WEIGHT_ROUTER},
};

/* The next part of a name between dots or slashes; false at its end. */
static bool next_word(const char **name, struct word *word)
{
    const char *at = *name;
    if (*at == '\0')
        return false;
    word->text = at;
    while (*at != '\0' && *at != '.' && *at != '/')
        at++;
    word->length = (size_t)(at - word->text);
    *name = *at != '\0' ? at + 1 : at;
    return true;
}

static bool is_word(const struct word *word, const struct word *other)
{
    return word->length == other->length && memcmp(word->text, other->text, word->length) == 0;
}

static bool is_one_of(const struct word *word, const struct word *words, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (is_word(word, &words[i]))
            return true;
    }
    return false;
}

static bool ends_in(const struct word *word, const struct word *end)
{
    return word->length >= end->length &&
           memcmp(word->text + word->length - end->length, end->text, end->length) == 0;
}

/* "experts" with or without a number behind it; GGUF's "ffn_up_exps"; older GGUF's "ffn_up.3",
 * a tensor for each expert; Granite's fused pair. */
static bool is_expert(const struct word *before, const struct word *word, bool is_number)
{
    static const struct word experts = WORD("experts");
    static const struct word packed = WORD("_exps");
    static const struct word sparse = WORD("block_sparse_moe");
    if (is_word(word, &experts) || ends_in(word, &packed))
        return true;
    if (is_word(before, &sparse) && is_one_of(word, fused_words, COUNT(fused_words)))
        return true;
    return is_number && is_one_of(before, numbered_words, COUNT(numbered_words));
}

static enum gc_weight_kind kind_of(const struct word *word)
{
    for (size_t i = 0; i < COUNT(kind_words); i++) {
        if (is_word(word, &kind_words[i].word))
            return kind_words[i].kind;
    }
    return GC_WEIGHT_MATRIX;
}

/* Called for each of many tensors, so it must be fast. */
struct gc_weight_place gc_weight_find_place(const char *name)
{
    struct gc_weight_place place = {.layer = GC_WEIGHT_NO_LAYER};
    static const struct word weight = WORD("weight");
    struct word before = {"", 0};
    struct word named = {"", 0}; /* the last part that is not "weight" */
    struct word word;
    bool is_last = false;
    while (next_word(&name, &word)) {
        uint64_t number;
        const bool is_number = gc_text_uint(word.text, word.length, &number);
        if (is_number && place.layer == GC_WEIGHT_NO_LAYER &&
            is_one_of(&before, layer_words, COUNT(layer_words)) && number < GC_ARCH_LAYER_MAX)
            place.layer = (uint32_t)number;
        place.expert = place.expert || is_expert(&before, &word, is_number);
        is_last = is_last || is_one_of(&word, last_words, COUNT(last_words));
        if (!is_word(&word, &weight))
            named = word;
        before = word;
    }
    place.kind = kind_of(&named);
    place.embedding = place.layer == GC_WEIGHT_NO_LAYER &&
                      is_one_of(&named, embedding_words, COUNT(embedding_words));
    place.last = is_last && place.layer == GC_WEIGHT_NO_LAYER;
    place.expert = place.expert && place.layer != GC_WEIGHT_NO_LAYER;
    return place;
}

/* ---- sums ---- */

static enum gc_status dtype_bytes(enum gc_dtype dtype, uint64_t elements, uint64_t *bytes)
{
    if (gc_dtype_get_info(dtype)->block_bytes == 0)
        return GC_NOT_SUPPORTED;
    return gc_dtype_bytes(dtype, elements, bytes) ? GC_OK : GC_OVERFLOW;
}

static bool is_float(enum gc_dtype dtype)
{
    return gc_dtype_get_info(dtype)->kind == GC_DTYPE_CLASS_FLOAT;
}

static enum gc_status tensor_bytes(const struct gc_model_tensor *tensor, enum gc_dtype dtype,
                                   uint64_t *bytes)
{
    *bytes = tensor->bytes;
    if (dtype == GC_DTYPE_NONE || !is_float(tensor->dtype))
        return GC_OK;
    return dtype_bytes(dtype, tensor->elements, bytes);
}

static struct gc_weight_share *share_of(struct gc_weights *weights,
                                        const struct gc_weight_place *place)
{
    if (place->layer == GC_WEIGHT_NO_LAYER)
        return place->last        ? &weights->last
               : place->embedding ? &weights->embedding
                                  : &weights->first;
    if (place->layer >= weights->layer_count)
        weights->layer_count = place->layer + 1;
    return &weights->layers[place->layer];
}

/* Rows are the last dimension, of GGUF's too. */
static void add_elements(struct gc_weight_elements *elements, const struct gc_model_tensor *tensor,
                         const struct gc_weight_place *place)
{
    const bool is_odd = tensor->dim_count > 0 && tensor->dims[tensor->dim_count - 1] % 256 != 0;
    if (tensor->dim_count < 2) {
        elements->vector += tensor->elements;
        return;
    }
    (place->expert ? elements->expert : elements->dense)[place->kind] += tensor->elements;
    if (is_odd)
        (place->expert ? elements->odd_expert : elements->odd_dense)[place->kind] +=
            tensor->elements;
}

static bool is_packed_matrix(const struct gc_model_tensor *tensor)
{
    return tensor->dim_count >= 2 &&
           gc_dtype_get_info(tensor->dtype)->kind == GC_DTYPE_CLASS_INTEGER;
}

/* The total is checked; the parts are below it. */
static enum gc_status add(struct gc_weights *weights, const struct gc_model_tensor *tensor,
                          uint64_t bytes)
{
    const struct gc_weight_place place = gc_weight_find_place(tensor->name);
    struct gc_weight_share *share = share_of(weights, &place);
    if (!gc_add_u64(weights->bytes, bytes, &weights->bytes))
        return GC_OVERFLOW;
    if (place.expert) {
        share->expert_bytes += bytes;
        weights->expert_bytes += bytes;
    } else if (tensor->dim_count < 2) {
        share->replicated_bytes += bytes;
    } else {
        share->dense_bytes += bytes;
    }
    add_elements(&share->elements, tensor, &place);
    weights->is_quantised =
        weights->is_quantised || (tensor->dim_count >= 2 && !is_float(tensor->dtype));
    weights->is_packed = weights->is_packed || is_packed_matrix(tensor);
    weights->tensors++;
    return GC_OK;
}

enum gc_status gc_weights_count(const struct gc_model *model, enum gc_dtype dtype,
                                struct gc_weights *weights)
{
    memset(weights, 0, sizeof(*weights));
    weights->parameters = model->totals.parameters;
    for (uint32_t i = 0; i < model->tensor_count; i++) {
        const struct gc_model_tensor *tensor = &model->tensors[i];
        uint64_t bytes;
        if (tensor->alias_of != GC_MODEL_NONE)
            continue;
        enum gc_status status = tensor_bytes(tensor, dtype, &bytes);
        if (status == GC_OK)
            status = add(weights, tensor, bytes);
        if (status != GC_OK)
            return status;
    }
    return GC_OK;
}

enum gc_dtype gc_weights_main_dtype(const struct gc_model *model)
{
    uint64_t sums[GC_DTYPE_COUNT] = {0};
    enum gc_dtype main_dtype = GC_DTYPE_NONE;
    for (uint32_t i = 0; i < model->tensor_count; i++) {
        const struct gc_model_tensor *tensor = &model->tensors[i];
        if (tensor->alias_of != GC_MODEL_NONE || tensor->dim_count < 2 || !is_float(tensor->dtype))
            continue;
        if (!gc_add_u64(sums[tensor->dtype], tensor->bytes, &sums[tensor->dtype]))
            sums[tensor->dtype] = UINT64_MAX;
        if (main_dtype == GC_DTYPE_NONE || sums[tensor->dtype] > sums[main_dtype])
            main_dtype = tensor->dtype;
    }
    return main_dtype;
}
