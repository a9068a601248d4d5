/* A model's configuration as in its file: each value with a flag whether the file has it.
 *
 * arch_keys.def has the names in config.json and in GGUF metadata. Only arch_families.def and
 * arch_defaults.def add defaults; layers.h derives the layers.
 *
 * A plain structure without pointers, about 50 KiB: too large for a stack. Nothing here allocates;
 * thread-safe if the structure is not shared. */
#ifndef GC_ARCH_H
#define GC_ARCH_H

#include "core/arch/notes.h"
#include "core/base/status.h"
#include "core/model/model.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GC_ARCH_LAYER_MAX 1024U
#define GC_ARCH_WORD_BYTES 96

enum gc_arch_key {
#define GC_ARCH_KEY(name, ...) GC_ARCH_##name,
#include "core/arch/arch_keys.def"
#undef GC_ARCH_KEY
    GC_ARCH_KEY_COUNT
};

/* Lists and words are stored outside the fields. */
#define GC_ARCH_LIST_NUMBER(name)
#define GC_ARCH_LIST_FLAG(name)
#define GC_ARCH_LIST_WORD(name)
#define GC_ARCH_LIST_LAYERS(name) GC_ARCH_LIST_OF_##name,
#define GC_ARCH_LIST_INDEXES(name) GC_ARCH_LIST_OF_##name,
#define GC_ARCH_LIST_KINDS(name) GC_ARCH_LIST_OF_##name,
enum gc_arch_list {
#define GC_ARCH_KEY(name, type, ...) GC_ARCH_LIST_##type(name)
#include "core/arch/arch_keys.def"
#undef GC_ARCH_KEY
    GC_ARCH_LIST_COUNT
};

enum gc_arch_key_type {
    GC_ARCH_TYPE_NUMBER,
    GC_ARCH_TYPE_FLAG,
    GC_ARCH_TYPE_LAYERS,
    GC_ARCH_TYPE_INDEXES,
    GC_ARCH_TYPE_KINDS,
    GC_ARCH_TYPE_WORD,
};

/* The kind of a layer, from the words in configurations. */
enum gc_arch_kind {
    GC_ARCH_KIND_UNKNOWN,   /* an unknown word */
    GC_ARCH_KIND_FULL,      /* attention to the whole context */
    GC_ARCH_KIND_WINDOW,    /* attention to a sliding window */
    GC_ARCH_KIND_CHUNK,     /* attention within a chunk */
    GC_ARCH_KIND_ATTENTION, /* attention; the window keys decide the kind */
    GC_ARCH_KIND_STATE, /* a state of fixed size: state space, linear attention, a recurrent unit */
    GC_ARCH_KIND_CONVOLUTION,
    GC_ARCH_KIND_DENSE,         /* feed-forward only */
    GC_ARCH_KIND_EXPERTS,       /* experts only */
    GC_ARCH_KIND_HYBRID,        /* state and attention in one layer */
    GC_ARCH_KIND_HYBRID_WINDOW, /* state and attention to a sliding window in one layer */
};

/* One row of arch_keys.def. */
struct gc_arch_key_row {
    const char *hf;
    const char *gguf;
    const char *text;
    enum gc_arch_key_type type;
    uint64_t minimum;
    uint64_t maximum;
};
const struct gc_arch_key_row *gc_arch_key_row(enum gc_arch_key key);

/* Tensors' shapes outrank what is not given. */
enum gc_arch_origin {
    GC_ARCH_GIVEN,
    GC_ARCH_OF_FAMILY,
    GC_ARCH_OF_CLASS,
};

struct gc_arch_field {
    uint64_t value;      /* of a NUMBER, FLAG or LAYERS; unspecified unless known */
    uint32_t item_count; /* of a list; 0: one value for all */
    uint8_t rank;
    bool known;
    enum gc_arch_origin origin;
    bool is_null; /* given as null: the class's default does not apply */
};

struct gc_arch {
    struct gc_arch_field fields[GC_ARCH_KEY_COUNT];
    uint32_t items[GC_ARCH_LIST_COUNT][GC_ARCH_LAYER_MAX]; /* by gc_arch_list */
    char type[GC_ARCH_WORD_BYTES];
    char class_name[GC_ARCH_WORD_BYTES];
    char dtype[GC_ARCH_WORD_BYTES];
    char quantisation[GC_ARCH_WORD_BYTES];
    bool is_gguf;
    bool has_hidden_kinds; /* the class computes the kinds of layers in a way of its own */
    bool has_own_layers;   /* some layers have values of their own, which are not read */
};

enum gc_arch_names {
    GC_ARCH_NAMES_HF,   /* config.json; objects joined by a dot: "text_config.hidden_size" */
    GC_ARCH_NAMES_GGUF, /* "llama.block_count" */
};

/* The key of a name, and the name's rank: a name in the language model's own object outranks the
 * same name outside, an earlier name in the table outranks a later one. */
struct gc_arch_place {
    enum gc_arch_key key;
    uint8_t rank;
};

/* The lengths of names, as bits, for each first character: most keys of a large configuration are
 * no name. */
struct gc_arch_index {
    enum gc_arch_names names;
    uint64_t lengths[UINT8_MAX + 1];
};

void gc_arch_index_init(struct gc_arch_index *index, enum gc_arch_names names);

/* False if no key has this name. */
bool gc_arch_key_find(const struct gc_arch_index *index, const char *name, size_t length,
                      struct gc_arch_place *place);

enum gc_arch_value_type {
    GC_ARCH_VALUE_UINT,
    GC_ARCH_VALUE_BOOL,
    GC_ARCH_VALUE_TEXT,  /* not NUL-terminated */
    GC_ARCH_VALUE_NULL,  /* null in the file: the value stays unknown */
    GC_ARCH_VALUE_OTHER, /* a negative number, a fraction, an object */
};

struct gc_arch_value {
    enum gc_arch_value_type type;
    uint64_t number; /* of UINT; 1 or 0 of BOOL */
    const char *text;
    size_t length;
};

#define GC_ARCH_SINGLE UINT32_MAX

/* Sets one value, or item `index` of a list, counted from 0 and given in order (item 0 clears the
 * list); GC_ARCH_SINGLE for a value outside a list. A value from a name of higher rank stays.
 * GC_FORMAT if the key does not accept this type of value, GC_OUT_OF_RANGE if the value is out of
 * the row's range or the list is too long; the key is then unknown. The caller reports it, with
 * gc_arch_key_accepts for the accepted form. */
enum gc_status gc_arch_config_set(struct gc_arch *config, const struct gc_arch_place *place,
                                  uint32_t index, const struct gc_arch_value *value) GC_CHECKED;

/* "an integer, 1 to 1024", for messages. */
#define GC_ARCH_ACCEPTS_BYTES 128
const char *gc_arch_key_accepts(enum gc_arch_key key, char text[GC_ARCH_ACCEPTS_BYTES]);

static inline bool gc_arch_known(const struct gc_arch *config, enum gc_arch_key key)
{
    return config->fields[key].known;
}

/* The value; `otherwise` if unknown. A list's value is 0. */
static inline uint64_t gc_arch_number(const struct gc_arch *config, enum gc_arch_key key,
                                      uint64_t otherwise)
{
    return config->fields[key].known ? config->fields[key].value : otherwise;
}

/* The items of a LAYERS, INDEXES or KINDS key, *count of them; NULL and 0 if there is no list. */
const uint32_t *gc_arch_items(const struct gc_arch *config, enum gc_arch_key key, uint32_t *count);

/* The value of a LAYERS key for layer `index`; false if it is unknown or its list is too short. */
bool gc_arch_layer_number(const struct gc_arch *config, enum gc_arch_key key, uint32_t index,
                          uint64_t *value);

/* Reading a configuration from a model's metadata. */

/* `arch` must be zeroed. Invalid values are skipped, each with a note of its name and the accepted
 * form. Then the defaults for absent values are set. */
void gc_arch_read(const struct gc_model *model, struct gc_arch *arch, struct gc_notes *notes);

/* Whether the model's type is one of these, between commas or blanks. */
bool gc_arch_is_type(const struct gc_arch *arch, const char *types);

/* The program that quantised the weights, by the configuration; NULL: none. */
const struct gc_meta_value *gc_arch_quant_method(const struct gc_model *model);

/* Adds a note if all tensors are of adapters (LoRA, IA3): the base model is in another file. */
void gc_arch_note_adapters(const struct gc_model *model, struct gc_notes *notes);

/* Sets the defaults only; for configurations made by hand. */
void gc_arch_complete(struct gc_arch *arch);

/* Notes of the defaults that are left, once the tensors' shapes have set what they tell. */
void gc_arch_note_defaults(const struct gc_arch *arch, struct gc_notes *notes);

/* A NUMBER that is no default, or 0. */
uint64_t gc_arch_given(const struct gc_arch *arch, enum gc_arch_key key);

/* True if a run keeps keys, values or states for the next token: of a class that generates, as its
 * name says, and of a model without a head where its configuration has a use for a cache. Classes
 * for other tasks never do. GGUF: as llama.cpp does. */
bool gc_arch_keeps_cache(const struct gc_arch *arch);

#endif
