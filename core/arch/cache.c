/* Whether a model keeps a cache: by its class, as named in "architectures", else by the class that
 * transformers has for its type (arch_measured.def), and for other types by the keys of its
 * configuration that only decoders have. */
#include "core/arch/arch.h"

#include <string.h>

static bool has_any(const char *text, const char *const *parts, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (strstr(text, parts[i]) != NULL)
            return true;
    }
    return false;
}

#define COUNT(parts) (sizeof(parts) / sizeof((parts)[0]))

/* Classes that generate, by their names in transformers and in remote code. */
static bool is_generating(const char *name)
{
    static const char *const parts[] = {
        "ForCausalLM",     "LMHead",         "Generation",  "ImageTextToText", "Seq2Seq",
        "VisionText2Text", "Vision2Text",    "Vision2Seq",  "SpeechToText",    "Text2Text",
        "TextToSpeech",    "SpeechToSpeech", "TextToText",  "TextToWaveform",  "MTModel",
        "EncoderDecoder",  "DoubleHeads",    "CausalModel", "ChatModel",       "ChatGLM"};
    const size_t length = strlen(name);
    return has_any(name, parts, COUNT(parts)) ||
           (length > 7 && strcmp(name + length - 7, "Decoder") == 0);
}

/* Classes for one pass: a head for a task, an encoder. */
static bool is_for_task(const char *name)
{
    static const char *const parts[] = {"For", "Encoder", "Backbone", "Embedding", "Retriev"};
    return has_any(name, parts, COUNT(parts));
}

/* llama.cpp makes no memory for these (llama_model::create_memory). */
static bool is_gguf_encoder(const struct gc_arch *arch)
{
    static const char types[] =
        "bert, nomic-bert, nomic-bert-moe, jina-bert-v2, jina-bert-v3, neo-bert, eurobert, "
        "modern-bert, gemma-embedding, t5encoder, wavtokenizer-dec, dream, llada, llada-moe, rnd1";
    return gc_arch_is_type(arch, types);
}

/* Classes that generate and pass everything through again for each token. */
static bool is_cacheless(const struct gc_arch *arch)
{
    static const char types[] = "openai-gpt, xlm, flaubert";
    return gc_arch_is_type(arch, types);
}

enum by_type {
    BY_TYPE_UNKNOWN,
    BY_TYPE_KEEPS,
    BY_TYPE_KEEPS_NOTHING,
};

/* What the class of a type keeps, as the type's own configuration has it. */
static enum by_type find_type(const struct gc_arch *arch)
{
#define GC_ARCH_MEASURED(measured, types)
#define GC_ARCH_KEEPS(types) {BY_TYPE_KEEPS, types},
#define GC_ARCH_KEEPS_NOTHING(types) {BY_TYPE_KEEPS_NOTHING, types},
    static const struct {
        enum by_type keeps;
        const char *types;
    } rows[] = {
#include "core/arch/arch_measured.def"
    };
#undef GC_ARCH_MEASURED
#undef GC_ARCH_KEEPS
#undef GC_ARCH_KEEPS_NOTHING
    for (size_t i = 0; i < COUNT(rows); i++) {
        if (gc_arch_is_type(arch, rows[i].types))
            return rows[i].keeps;
    }
    return BY_TYPE_UNKNOWN;
}

/* Of a model without a head, or a configuration without a class. */
static bool keeps_bare(const struct gc_arch *arch, bool is_pair)
{
    const bool has_class = gc_arch_known(arch, GC_ARCH_CLASS);
    const enum by_type by_type = find_type(arch);
    if (by_type == BY_TYPE_KEEPS_NOTHING || (by_type == BY_TYPE_KEEPS && !has_class))
        return by_type == BY_TYPE_KEEPS;
    if (!has_class && gc_arch_number(arch, GC_ARCH_DECODER, 1) == 0 && !is_pair)
        return false;
    if (gc_arch_known(arch, GC_ARCH_MASK_TOKEN))
        return false; /* it guesses hidden tokens from both sides */
    if (!has_class || gc_arch_number(arch, GC_ARCH_USE_CACHE, 0) != 0)
        return true;
    return gc_arch_known(arch, GC_ARCH_VOCAB) && (is_pair || gc_arch_known(arch, GC_ARCH_KV_HEADS));
}

/* A head on a decoder, which keeps what it would for the next token all the same. */
static bool is_on_decoder(const struct gc_arch *arch)
{
    static const char *const parts[] = {"ForSequenceClassification", "ForTokenClassification",
                                        "ForQuestionAnswering"};
    return has_any(arch->class_name, parts, COUNT(parts)) && find_type(arch) == BY_TYPE_KEEPS &&
           gc_arch_number(arch, GC_ARCH_USE_CACHE, 1) != 0;
}

bool gc_arch_keeps_cache(const struct gc_arch *arch)
{
    const bool is_decoder = gc_arch_number(arch, GC_ARCH_DECODER, 0) != 0;
    const bool is_pair = gc_arch_number(arch, GC_ARCH_ENCODER_DECODER, 0) != 0;
    const bool is_generator = is_generating(arch->class_name);
    if (arch->is_gguf)
        return gc_arch_number(arch, GC_ARCH_CAUSAL, 1) != 0 && !is_gguf_encoder(arch);
    if (is_cacheless(arch))
        return false;
    /* BERT and its kin are decoders only where they are configured so. */
    if (gc_arch_known(arch, GC_ARCH_TYPE_VOCAB) && !is_decoder && !(is_pair && is_generator))
        return false;
    if (is_generator)
        return true;
    if (is_for_task(arch->class_name))
        return !is_pair && is_on_decoder(arch);
    return is_decoder || keeps_bare(arch, is_pair);
}
