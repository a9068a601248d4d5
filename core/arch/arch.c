/* Reads a model's metadata into its configuration: names to keys, values to fields; then the
 * family's defaults for absent values. */
#include "core/arch/arch.h"

#include "core/arch/notes.h"
#include "core/io/text.h"

#include <limits.h>
#include <string.h>

/* The list of each key; GC_ARCH_LIST_COUNT for keys without one. */
#define LIST_INDEX_NUMBER(name) GC_ARCH_LIST_COUNT
#define LIST_INDEX_FLAG(name) GC_ARCH_LIST_COUNT
#define LIST_INDEX_WORD(name) GC_ARCH_LIST_COUNT
#define LIST_INDEX_LAYERS(name) GC_ARCH_LIST_OF_##name
#define LIST_INDEX_INDEXES(name) GC_ARCH_LIST_OF_##name
#define LIST_INDEX_KINDS(name) GC_ARCH_LIST_OF_##name

static const struct gc_arch_key_row rows[] = {
#define GC_ARCH_KEY(name, type, minimum, maximum, hf, gguf, text)                                  \
    {hf, gguf, text, GC_ARCH_TYPE_##type, minimum, maximum},
#include "core/arch/arch_keys.def"
#undef GC_ARCH_KEY
};

static const enum gc_arch_list lists[] = {
#define GC_ARCH_KEY(name, type, ...) LIST_INDEX_##type(name),
#include "core/arch/arch_keys.def"
#undef GC_ARCH_KEY
};

const struct gc_arch_key_row *gc_arch_key_row(enum gc_arch_key key)
{
    return &rows[key];
}

/* ---- names ---- */

/* Objects that hold a language model's own configuration. */
#define TEXT_OBJECTS                                                                               \
    "config, text_config, llm_config, language_config, language_model, thinker_config, decoder"

/* Rank of a name: the deepest object counts most, then the position in the table's row. */
#define RANK_OBJECT 64
#define RANK_NAME 32

/* Strips a language model's objects from the front; returns their number. */
static unsigned strip_objects(const char **name, size_t *length)
{
    unsigned depth = 0;
    for (;;) {
        const char *dot = memchr(*name, '.', *length);
        if (dot == NULL || gc_text_find_word(TEXT_OBJECTS, *name, (size_t)(dot - *name)) < 0)
            return depth;
        *length -= (size_t)(dot + 1 - *name);
        *name = dot + 1;
        depth++;
    }
}

/* GGUF names begin with the architecture, which may be any word; general ones with "general". */
static bool strip_architecture(const char **name, size_t *length)
{
    static const char general[] = "general.";
    const char *dot = memchr(*name, '.', *length);
    if (*length >= sizeof(general) - 1 && memcmp(*name, general, sizeof(general) - 1) == 0)
        return true;
    if (dot == NULL)
        return false;
    *length -= (size_t)(dot + 1 - *name);
    *name = dot + 1;
    return true;
}

static const char *names_of(enum gc_arch_names names, int key)
{
    return names == GC_ARCH_NAMES_HF ? rows[key].hf : rows[key].gguf;
}

/* For each first character the lengths of the names, as bits: most keys of a large configuration
 * are no name. */
struct name_lengths {
    uint64_t bits[UCHAR_MAX + 1];
};

#define LENGTH_BIT(length) (UINT64_C(1) << ((length) % 64))

static void set_lengths(enum gc_arch_names names, struct name_lengths *lengths)
{
    memset(lengths, 0, sizeof(*lengths));
    for (int key = 0; key < GC_ARCH_KEY_COUNT; key++) {
        for (const char *at = names_of(names, key); *at != '\0'; at += strspn(at, ", ")) {
            const size_t length = strcspn(at, ", ");
            lengths->bits[(unsigned char)*at] |= LENGTH_BIT(length);
            at += length;
        }
    }
}

static bool find_name(enum gc_arch_names names, const struct name_lengths *lengths,
                      const char *name, size_t length, struct gc_arch_place *place)
{
    unsigned depth = 0;
    if (names == GC_ARCH_NAMES_HF)
        depth = strip_objects(&name, &length);
    else if (!strip_architecture(&name, &length))
        return false;
    if (length == 0 || (lengths->bits[(unsigned char)*name] & LENGTH_BIT(length)) == 0)
        return false;
    for (int key = 0; key < GC_ARCH_KEY_COUNT; key++) {
        const char *words = names_of(names, key);
        const int at = gc_text_find_word(words, name, length);
        if (at < 0)
            continue;
        place->key = (enum gc_arch_key)key;
        place->rank = (uint8_t)((depth < 3 ? depth : 3) * RANK_OBJECT + (RANK_NAME - (unsigned)at));
        return true;
    }
    return false;
}

bool gc_arch_key_find(enum gc_arch_names names, const char *name, size_t length,
                      struct gc_arch_place *place)
{
    struct name_lengths lengths;
    set_lengths(names, &lengths);
    return find_name(names, &lengths, name, length, place);
}

/* ---- values ---- */

struct kind_word {
    const char *word;
    enum gc_arch_kind kind;
};

static const struct kind_word kind_words[] = {
    {"full_attention", GC_ARCH_KIND_FULL},
    {"sliding_attention", GC_ARCH_KIND_WINDOW},
    {"chunked_attention", GC_ARCH_KIND_CHUNK},
    {"indexed_attention", GC_ARCH_KIND_FULL}, /* reads few tokens but keeps all */
    {"attention", GC_ARCH_KIND_ATTENTION},
    {"mamba", GC_ARCH_KIND_STATE},
    {"mamba2", GC_ARCH_KIND_STATE},
    {"linear_attention", GC_ARCH_KIND_STATE},
    {"recurrent", GC_ARCH_KIND_STATE},
    {"minimax_m3_sparse", GC_ARCH_KIND_FULL},
    {"deepseek_sparse_attention", GC_ARCH_KIND_FULL},
    {"qwen_sparse_attention", GC_ARCH_KIND_FULL},
    {"reference_sliding_attention", GC_ARCH_KIND_FULL}, /* keeps the whole prompt */
    {"conv", GC_ARCH_KIND_CONVOLUTION},
    {"mlp", GC_ARCH_KIND_DENSE},
    {"moe", GC_ARCH_KIND_EXPERTS},
    {"dense", GC_ARCH_KIND_DENSE},
    {"sparse", GC_ARCH_KIND_EXPERTS},
    {"hybrid", GC_ARCH_KIND_HYBRID},
    {"hybrid_sliding", GC_ARCH_KIND_HYBRID_WINDOW},
    /* One letter for each layer, as Nemotron-H spells it. */
    {"*", GC_ARCH_KIND_ATTENTION},
    {"M", GC_ARCH_KIND_STATE},
    {"-", GC_ARCH_KIND_DENSE},
    {"E", GC_ARCH_KIND_EXPERTS},
};

static enum gc_arch_kind kind_of(const char *word, size_t length)
{
    for (size_t i = 0; i < sizeof(kind_words) / sizeof(kind_words[0]); i++) {
        if (strlen(kind_words[i].word) == length && memcmp(kind_words[i].word, word, length) == 0)
            return kind_words[i].kind;
    }
    return GC_ARCH_KIND_UNKNOWN;
}

static char *word_of(struct gc_arch *config, enum gc_arch_key key)
{
    if (key == GC_ARCH_TYPE)
        return config->type;
    if (key == GC_ARCH_CLASS)
        return config->class_name;
    return key == GC_ARCH_DTYPE ? config->dtype : config->quantisation;
}

/* Of a list the first word counts. */
static enum gc_status set_word(struct gc_arch *config, enum gc_arch_key key, uint32_t index,
                               const struct gc_arch_value *value)
{
    if (index != GC_ARCH_SINGLE && key != GC_ARCH_CLASS)
        return GC_FORMAT;
    if (index != GC_ARCH_SINGLE && index > 0)
        return GC_OK;
    if (value->type != GC_ARCH_VALUE_TEXT)
        return GC_FORMAT;
    char *word = word_of(config, key);
    if (!gc_text_copy(word, GC_ARCH_WORD_BYTES, value->text, value->length))
        return GC_OUT_OF_RANGE;
    config->fields[key].known = true;
    return GC_OK;
}

static enum gc_status set_item(struct gc_arch *config, enum gc_arch_key key, uint32_t index,
                               uint32_t item)
{
    struct gc_arch_field *field = &config->fields[key];
    if (index == 0)
        field->item_count = 0;
    if (index != field->item_count)
        return GC_FORMAT;
    if (index >= GC_ARCH_LAYER_MAX)
        return GC_OUT_OF_RANGE;
    config->items[lists[key]][index] = item;
    field->item_count = index + 1;
    field->value = 0;
    field->known = true;
    return GC_OK;
}

static enum gc_status set_kinds(struct gc_arch *config, enum gc_arch_key key, uint32_t index,
                                const struct gc_arch_value *value)
{
    if (value->type != GC_ARCH_VALUE_TEXT)
        return GC_FORMAT;
    if (index != GC_ARCH_SINGLE)
        return set_item(config, key, index, kind_of(value->text, value->length));
    for (size_t i = 0; i < value->length; i++) {
        const enum gc_status status =
            i < GC_ARCH_LAYER_MAX ? set_item(config, key, (uint32_t)i, kind_of(value->text + i, 1))
                                  : GC_OUT_OF_RANGE;
        if (status != GC_OK)
            return status;
    }
    return GC_OK;
}

static enum gc_status set_number(struct gc_arch *config, enum gc_arch_key key, uint32_t index,
                                 const struct gc_arch_value *value)
{
    const struct gc_arch_key_row *row = &rows[key];
    struct gc_arch_field *field = &config->fields[key];
    const bool is_flag = value->type == GC_ARCH_VALUE_BOOL;
    const bool takes_flag = row->type == GC_ARCH_TYPE_FLAG || row->type == GC_ARCH_TYPE_LAYERS;
    if (is_flag ? !takes_flag : value->type != GC_ARCH_VALUE_UINT || row->type == GC_ARCH_TYPE_FLAG)
        return GC_FORMAT;
    if (value->number < row->minimum || value->number > row->maximum)
        return GC_OUT_OF_RANGE;
    if (index != GC_ARCH_SINGLE) {
        if (row->type == GC_ARCH_TYPE_NUMBER || row->type == GC_ARCH_TYPE_FLAG)
            return GC_FORMAT;
        return set_item(config, key, index, (uint32_t)value->number);
    }
    if (row->type == GC_ARCH_TYPE_INDEXES)
        return GC_FORMAT;
    field->value = value->number;
    field->item_count = 0;
    field->known = true;
    return GC_OK;
}

enum gc_status gc_arch_config_set(struct gc_arch *config, const struct gc_arch_place *place,
                                  uint32_t index, const struct gc_arch_value *value)
{
    struct gc_arch_field *field = &config->fields[place->key];
    enum gc_status status;
    if (value->type == GC_ARCH_VALUE_NULL) {
        field->is_null = true;
        return GC_OK;
    }
    const bool is_pair = place->key == GC_ARCH_ENCODER_DECODER && value->number != 0;
    if (place->rank < field->rank && !is_pair)
        return GC_OK;
    /* The class is the whole model's, not that of its language model. */
    if (place->key == GC_ARCH_CLASS && place->rank >= RANK_OBJECT)
        return GC_OK;
    /* A decoder's own object has is_encoder_decoder false; the outer model still has an encoder. */
    if (place->key == GC_ARCH_ENCODER_DECODER && field->known && field->value != 0)
        return GC_OK;
    field->rank = place->rank;
    switch (rows[place->key].type) {
    case GC_ARCH_TYPE_WORD:
        status = set_word(config, place->key, index, value);
        break;
    case GC_ARCH_TYPE_KINDS:
        status = set_kinds(config, place->key, index, value);
        break;
    default:
        status = set_number(config, place->key, index, value);
    }
    if (status != GC_OK)
        field->known = false;
    return status;
}

const char *gc_arch_key_accepts(enum gc_arch_key key, char text[GC_ARCH_ACCEPTS_BYTES])
{
    static const char *const forms[] = {
        [GC_ARCH_TYPE_NUMBER] = "an integer",
        [GC_ARCH_TYPE_FLAG] = "true or false",
        [GC_ARCH_TYPE_LAYERS] = "an integer, or one for each layer",
        [GC_ARCH_TYPE_INDEXES] = "a list of layer numbers",
        [GC_ARCH_TYPE_KINDS] = "a word for each layer, at most 1024",
        [GC_ARCH_TYPE_WORD] = "a word of at most 95 characters",
    };
    const enum gc_arch_key_type type = rows[key].type;
    const bool has_range =
        type == GC_ARCH_TYPE_NUMBER || type == GC_ARCH_TYPE_LAYERS || type == GC_ARCH_TYPE_INDEXES;
    char number[GC_NOTE_NUMBER_BYTES];
    char *at = stpcpy(text, forms[type]);
    if (has_range) {
        at = stpcpy(at, ", ");
        at = stpcpy(at, gc_note_number(rows[key].minimum, number));
        at = stpcpy(at, " to ");
        stpcpy(at, gc_note_number(rows[key].maximum, number));
    }
    return text;
}

/* ---- reading ---- */

const uint32_t *gc_arch_items(const struct gc_arch *config, enum gc_arch_key key, uint32_t *count)
{
    const struct gc_arch_field *field = &config->fields[key];
    *count = field->known && lists[key] != GC_ARCH_LIST_COUNT ? field->item_count : 0;
    return *count > 0 ? config->items[lists[key]] : NULL;
}

bool gc_arch_layer_number(const struct gc_arch *config, enum gc_arch_key key, uint32_t index,
                          uint64_t *value)
{
    uint32_t count;
    const uint32_t *items = gc_arch_items(config, key, &count);
    if (items != NULL) {
        if (index >= count)
            return false;
        *value = items[index];
        return true;
    }
    if (!config->fields[key].known)
        return false;
    *value = config->fields[key].value;
    return true;
}

/* ---- values ---- */

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

/* ---- defaults ---- */

struct family_row {
    const char *types;
    enum gc_arch_key key;
    uint64_t value;
};

#define GC_ARCH_FAMILY(types, key, value) {types, GC_ARCH_##key, value},
#define GC_ARCH_CYCLE(types, words)
#define GC_ARCH_DERIVED(types, key)
static const struct family_row family_rows[] = {
#include "core/arch/arch_families.def"
};
static const struct family_row class_rows[] = {
#include "core/arch/arch_defaults.def"
};
#undef GC_ARCH_FAMILY
#undef GC_ARCH_CYCLE
#undef GC_ARCH_DERIVED

/* The kinds of layers by the class: words again and again; NULL: in a way of its own. */
struct kinds_row {
    const char *types;
    const char *words;
};

#define GC_ARCH_FAMILY(types, key, value)
#define GC_ARCH_CYCLE(types, words) {types, words},
#define GC_ARCH_DERIVED(types, key) {types, NULL},
static const struct kinds_row kinds_rows[] = {
#include "core/arch/arch_defaults.def"
};
#undef GC_ARCH_FAMILY
#undef GC_ARCH_CYCLE
#undef GC_ARCH_DERIVED

/* A pattern has no meaning without its window, or if the configuration lists each layer. */
static bool is_needed(const struct gc_arch *arch, enum gc_arch_key key)
{
    if (gc_arch_known(arch, key) || arch->fields[key].is_null)
        return false;
    if ((key == GC_ARCH_WINDOW_PATTERN || key == GC_ARCH_WINDOW_USED) &&
        !gc_arch_known(arch, GC_ARCH_WINDOW) && !gc_arch_known(arch, GC_ARCH_CHUNK))
        return false;
    if (key == GC_ARCH_WINDOW_PATTERN || key == GC_ARCH_WINDOW_USED ||
        key == GC_ARCH_ATTENTION_PERIOD)
        return !gc_arch_known(arch, GC_ARCH_KINDS) && !gc_arch_known(arch, GC_ARCH_NO_ROPE_LAYERS);
    if (key == GC_ARCH_HEAD_DIM)
        return !gc_arch_known(arch, GC_ARCH_KEY_DIM);
    return key != GC_ARCH_MULTI_QUERY || !gc_arch_known(arch, GC_ARCH_KV_HEADS);
}

/* ---- encoder and decoder ---- */

/* Sets `shared` to the decoder's own value where the configuration has one. */
static void override_from(struct gc_arch *arch, enum gc_arch_key shared, enum gc_arch_key own)
{
    if (gc_arch_known(arch, own))
        arch->fields[shared] =
            (struct gc_arch_field){.value = arch->fields[own].value, .known = true};
}

/* A value given once for both is the encoder's too. */
static void default_to(struct gc_arch *arch, enum gc_arch_key own, enum gc_arch_key shared)
{
    if (!gc_arch_known(arch, own) && gc_arch_known(arch, shared))
        arch->fields[own] =
            (struct gc_arch_field){.value = arch->fields[shared].value, .known = true};
}

/* Of a decoder with layers of its own, with its encoder or without it. */
static void complete_pair(struct gc_arch *arch)
{
    if (!gc_arch_keeps_cache(arch) || (!gc_arch_known(arch, GC_ARCH_DECODER_LAYERS) &&
                                       gc_arch_number(arch, GC_ARCH_ENCODER_DECODER, 0) == 0))
        return;
    default_to(arch, GC_ARCH_ENCODER_LAYERS, GC_ARCH_LAYER_COUNT);
    default_to(arch, GC_ARCH_ENCODER_HEADS, GC_ARCH_HEADS);
    default_to(arch, GC_ARCH_ENCODER_INTERMEDIATE, GC_ARCH_INTERMEDIATE);
    override_from(arch, GC_ARCH_LAYER_COUNT, GC_ARCH_DECODER_LAYERS);
    override_from(arch, GC_ARCH_HEADS, GC_ARCH_DECODER_HEADS);
    override_from(arch, GC_ARCH_INTERMEDIATE, GC_ARCH_DECODER_INTERMEDIATE);
    override_from(arch, GC_ARCH_POSITIONS, GC_ARCH_TARGET_POSITIONS);
}

static bool is_of_type(const struct gc_arch *arch, const char *types)
{
    const size_t length = strlen(arch->type);
    return length > 0 && gc_text_find_word(types, arch->type, length) >= 0;
}

static void complete_families(struct gc_arch *arch, struct gc_notes *notes)
{
    for (size_t i = 0; i < sizeof(family_rows) / sizeof(family_rows[0]); i++) {
        const struct family_row *row = &family_rows[i];
        char number[GC_NOTE_NUMBER_BYTES];
        if (!is_of_type(arch, row->types) || !is_needed(arch, row->key))
            continue;
        arch->fields[row->key] = (struct gc_arch_field){.value = row->value, .known = true};
        gc_notes_add(notes, gc_arch_key_row(row->key)->text, ": not given, ",
                     gc_note_number(row->value, number), " as ", arch->type, " has it", NULL);
    }
}

/* True if another value tells the kinds of layers. */
static bool has_kinds(const struct gc_arch *arch)
{
    static const enum gc_arch_key keys[] = {GC_ARCH_KINDS,
                                            GC_ARCH_KIND_CYCLE,
                                            GC_ARCH_WINDOW_PATTERN,
                                            GC_ARCH_NO_ROPE_LAYERS,
                                            GC_ARCH_ATTENTION_PERIOD,
                                            GC_ARCH_ATTENTION_FLAGS,
                                            GC_ARCH_ATTENTION_LAYERS,
                                            GC_ARCH_ATTENTION_NUMBERS};
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        if (gc_arch_known(arch, keys[i]))
            return true;
    }
    return false;
}

static void complete_kinds(struct gc_arch *arch)
{
    for (size_t i = 0; i < sizeof(kinds_rows) / sizeof(kinds_rows[0]); i++) {
        const struct kinds_row *row = &kinds_rows[i];
        if (!is_of_type(arch, row->types) || has_kinds(arch))
            continue;
        arch->has_hidden_kinds = row->words == NULL;
        uint32_t index = 0;
        for (const char *at = row->words; at != NULL && *at != '\0';) {
            const size_t length = strcspn(at, ",");
            (void)!set_item(arch, GC_ARCH_KIND_CYCLE, index++, kind_of(at, length));
            at += length;
            at += strspn(at, ", ");
        }
        return;
    }
}

static void complete_class(struct gc_arch *arch, struct gc_notes *notes)
{
    char number[GC_NOTE_NUMBER_BYTES];
    uint64_t count = 0;
    for (size_t i = 0; i < sizeof(class_rows) / sizeof(class_rows[0]); i++) {
        const struct family_row *row = &class_rows[i];
        if (!is_of_type(arch, row->types) || !is_needed(arch, row->key))
            continue;
        arch->fields[row->key] =
            (struct gc_arch_field){.value = row->value, .known = true, .is_default = true};
        count += rows[row->key].type != GC_ARCH_TYPE_FLAG;
    }
    if (count > 0)
        gc_notes_add(notes, "values that the configuration lacks: ", gc_note_number(count, number),
                     "; they are those of ", arch->type, "'s class", NULL);
}

void gc_arch_complete(struct gc_arch *arch, struct gc_notes *notes)
{
    complete_families(arch, notes);
    if (!arch->is_gguf) {
        complete_kinds(arch);
        complete_class(arch, notes);
    }
    complete_pair(arch);
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
    struct name_lengths lengths;
    set_lengths(names, &lengths);
    arch->is_gguf = names == GC_ARCH_NAMES_GGUF;
    for (uint32_t i = 0; i < model->meta_count; i++) {
        const struct gc_meta *meta = &model->metas[i];
        struct gc_arch_place place;
        if (find_name(names, &lengths, meta->key, strlen(meta->key), &place) &&
            set_from_meta(arch, &place, &meta->value) != GC_OK)
            note_rejected(notes, meta->key, place.key);
    }
    read_vocabulary(model, arch);
    gc_arch_complete(arch, notes);
    if (names != GC_ARCH_NAMES_HF)
        return;
    arch->has_own_layers = has_own_layers(model);
    note_dtype(arch, notes);
    note_beyond(model, notes);
}
