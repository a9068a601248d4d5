/* Reads a model's metadata into its configuration. */
#include "core/arch/arch.h"

#include "core/arch/notes.h"
#include "core/io/text.h"

#include <string.h>

static struct gc_arch_value value_of(const struct gc_meta_value *meta)
{
    struct gc_arch_value value = {.type = GC_ARCH_VALUE_OTHER};
    switch (meta->kind) {
    case GC_META_NULL:
        value.type = GC_ARCH_VALUE_NULL;
        break;
    case GC_META_BOOL:
        value.type = GC_ARCH_VALUE_BOOL;
        value.number = meta->unsigned_value;
        break;
    case GC_META_INTEGER:
    case GC_META_REAL:
        if (gc_meta_uint(meta, &value.number))
            value.type = GC_ARCH_VALUE_UINT;
        break;
    case GC_META_TEXT:
        value.type = GC_ARCH_VALUE_TEXT;
        value.text = meta->text;
        value.length = strlen(meta->text);
        break;
    case GC_META_ARRAY:
        break;
    }
    return value;
}

static enum gc_status set_from_meta(struct gc_arch *arch, const struct gc_arch_place *place,
                                    const struct gc_meta_value *meta)
{
    if (meta->kind != GC_META_ARRAY) {
        const struct gc_arch_value value = value_of(meta);
        return gc_arch_config_set(arch, place, GC_ARCH_SINGLE, &value);
    }
    if (meta->count > GC_ARCH_LAYER_MAX || meta->kept < meta->count)
        return GC_OUT_OF_RANGE;
    for (uint64_t i = 0; i < meta->count; i++) {
        const struct gc_arch_value value = value_of(&meta->items[i]);
        const enum gc_status status = gc_arch_config_set(arch, place, (uint32_t)i, &value);
        if (status != GC_OK)
            return status;
    }
    return GC_OK;
}

static void note_rejected(struct gc_notes *notes, const char *name, enum gc_arch_key key)
{
    char shown[80];
    char accepts[GC_ARCH_ACCEPTS_BYTES];
    gc_notes_add(
        notes, gc_text_printable(name, strlen(name), shown, sizeof(shown)),
        ": not understood, taken as unknown; accepted: ", gc_arch_key_accepts(key, accepts), NULL);
}

/* ---- the whole ---- */

static void note_dtype(const struct gc_arch *arch, struct gc_notes *notes)
{
    char shown[GC_ARCH_WORD_BYTES * 2];
    const size_t length = strlen(arch->dtype);
    const enum gc_dtype dtype = gc_dtype_from_word(arch->dtype, length);
    const struct gc_dtype_info *info = gc_dtype_get_info(dtype);
    if (length > 0 &&
        (dtype == GC_DTYPE_NONE || info->kind != GC_DTYPE_CLASS_FLOAT || info->block_elements != 1))
        gc_notes_add(notes, "torch_dtype ",
                     gc_text_printable(arch->dtype, length, shown, sizeof(shown)),
                     ": not a type to compute in; the weights' type is taken, if it is one", NULL);
}

static void read_vocabulary(const struct gc_model *model, struct gc_arch *arch)
{
    const struct gc_meta_value *words = gc_model_find_meta(model, "tokenizer.ggml.tokens");
    if (gc_arch_known(arch, GC_ARCH_VOCAB) || words == NULL || words->kind != GC_META_ARRAY ||
        words->count == 0)
        return;
    arch->fields[GC_ARCH_VOCAB] = (struct gc_arch_field){.value = words->count, .known = true};
}

/* True if there are keys of a nested object: "vision_config.hidden_size". */
static bool has_section(const struct gc_model *model, const char *prefix)
{
    const size_t length = strlen(prefix);
    for (uint32_t i = 0; i < model->meta_count; i++) {
        if (strncmp(model->metas[i].key, prefix, length) == 0)
            return true;
    }
    return false;
}

const struct gc_meta_value *gc_arch_quant_method(const struct gc_model *model)
{
    return gc_model_find_meta(model, "quantization_config.quant_method");
}

static bool has_packed_weights(const struct gc_model *model)
{
    if (gc_arch_quant_method(model) == NULL)
        return false;
    for (uint32_t i = 0; i < model->tensor_count; i++) {
        const struct gc_model_tensor *tensor = &model->tensors[i];
        if (tensor->dim_count >= 2 &&
            (tensor->dtype == GC_DTYPE_I32 || tensor->dtype == GC_DTYPE_U8))
            return true;
    }
    return false;
}

/* True if there are values of single layers: "per_layer_config.05.head_dim". */
static bool has_own_layers(const struct gc_model *model)
{
    return has_section(model, "per_layer_config.") ||
           has_section(model, "text_config.per_layer_config.");
}

/* Notes on parts of the model that the figures do not cover. */
static void note_beyond(const struct gc_model *model, struct gc_notes *notes)
{
    if (has_section(model, "vision_config.") || has_section(model, "audio_config."))
        gc_notes_add(notes,
                     "the encoder of images or sound: its weights are counted, what it works in is "
                     "not",
                     NULL);
    if (has_packed_weights(model))
        gc_notes_add(notes,
                     "weights are packed, several in an integer: their bytes are exact, the number "
                     "of parameters is that of the integers",
                     NULL);
}

/* Gemma's window is as wide to both sides where each token sees those behind it too. */
static void read_bidirectional(const struct gc_model *model, struct gc_arch *arch)
{
    static const char types[] = "gemma3, gemma3_text, gemma4, gemma4_text";
    struct gc_arch_field *window = &arch->fields[GC_ARCH_WINDOW];
    const struct gc_meta_value *both = gc_model_find_meta(model, "use_bidirectional_attention");
    if (both == NULL)
        both = gc_model_find_meta(model, "text_config.use_bidirectional_attention");
    if (both != NULL && window->known && gc_arch_is_type(arch, types) &&
        (both->kind == GC_META_TEXT ? strcmp(both->text, "all") == 0
                                    : both->kind == GC_META_BOOL && both->unsigned_value != 0))
        window->value = window->value / 2 + 1;
}

void gc_arch_note_adapters(const struct gc_model *model, struct gc_notes *notes)
{
    for (uint32_t i = 0; i < model->tensor_count; i++) {
        const char *name = model->tensors[i].name;
        if (strstr(name, "lora_") == NULL && strstr(name, "ia3_") == NULL)
            return;
    }
    if (model->tensor_count > 0)
        gc_notes_add(notes, "these are adapters alone: the model they belong to is not counted",
                     NULL);
}

void gc_arch_read(const struct gc_model *model, struct gc_arch *arch, struct gc_notes *notes)
{
    const enum gc_arch_names names =
        model->format == GC_MODEL_GGUF ? GC_ARCH_NAMES_GGUF : GC_ARCH_NAMES_HF;
    if (!model->has_config)
        return;
    struct gc_arch_index index;
    gc_arch_index_init(&index, names);
    arch->is_gguf = names == GC_ARCH_NAMES_GGUF;
    for (uint32_t i = 0; i < model->meta_count; i++) {
        const struct gc_meta *meta = &model->metas[i];
        struct gc_arch_place place;
        if (gc_arch_key_find(&index, meta->key, strlen(meta->key), &place) &&
            set_from_meta(arch, &place, &meta->value) != GC_OK)
            note_rejected(notes, meta->key, place.key);
    }
    read_vocabulary(model, arch);
    gc_arch_complete(arch);
    if (names != GC_ARCH_NAMES_HF)
        return;
    read_bidirectional(model, arch);
    arch->has_own_layers = has_own_layers(model);
    note_dtype(arch, notes);
    note_beyond(model, notes);
}
