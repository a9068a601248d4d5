/* The configuration's keys by their names, and their values. */
#include "core/arch/arch.h"

#include "core/arch/notes.h"
#include "core/io/text.h"

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

#define LENGTH_BIT(length) (UINT64_C(1) << ((length) % 64))

void gc_arch_index_init(struct gc_arch_index *index, enum gc_arch_names names)
{
    *index = (struct gc_arch_index){.names = names};
    for (int key = 0; key < GC_ARCH_KEY_COUNT; key++) {
        for (const char *at = names_of(names, key); *at != '\0'; at += strspn(at, ", ")) {
            const size_t length = strcspn(at, ", ");
            index->lengths[(unsigned char)*at] |= LENGTH_BIT(length);
            at += length;
        }
    }
}

bool gc_arch_key_find(const struct gc_arch_index *index, const char *name, size_t length,
                      struct gc_arch_place *place)
{
    unsigned depth = 0;
    if (index->names == GC_ARCH_NAMES_HF)
        depth = strip_objects(&name, &length);
    else if (!strip_architecture(&name, &length))
        return false;
    if (length == 0 || (index->lengths[(unsigned char)*name] & LENGTH_BIT(length)) == 0)
        return false;
    for (int key = 0; key < GC_ARCH_KEY_COUNT; key++) {
        const int at = gc_text_find_word(names_of(index->names, key), name, length);
        if (at < 0)
            continue;
        place->key = (enum gc_arch_key)key;
        place->rank = (uint8_t)((depth < 3 ? depth : 3) * RANK_OBJECT + (RANK_NAME - (unsigned)at));
        return true;
    }
    return false;
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

bool gc_arch_is_type(const struct gc_arch *arch, const char *types)
{
    const size_t length = strlen(arch->type);
    return length > 0 && gc_text_find_word(types, arch->type, length) >= 0;
}
