/* A model's configuration as its file says it: each value with a flag whether it was said at all.
 *
 * Readers of config.json and of GGUF metadata look each name up (gc_model_key_find) and hand the
 * value over (gc_model_config_set); nothing is derived or assumed here. The names stand in
 * model_keys.def. The estimator makes layers of it.
 *
 * A plain structure without pointers, about 50 KiB: it belongs into the model's own memory, not on
 * a stack. Nothing here allocates. */
#ifndef GC_MODEL_CONFIG_H
#define GC_MODEL_CONFIG_H

#include "core/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GC_MODEL_LAYER_MAX 1024U
#define GC_MODEL_WORD_BYTES 48

enum gc_model_key {
#define GC_MODEL_KEY(name, ...) GC_MODEL_##name,
#include "core/model_keys.def"
#undef GC_MODEL_KEY
    GC_MODEL_KEY_COUNT
};

/* Lists and words have room of their own. */
#define GC_MODEL_LIST_NUMBER(name)
#define GC_MODEL_LIST_FLAG(name)
#define GC_MODEL_LIST_WORD(name)
#define GC_MODEL_LIST_LAYERS(name) GC_MODEL_LIST_OF_##name,
#define GC_MODEL_LIST_INDEXES(name) GC_MODEL_LIST_OF_##name,
#define GC_MODEL_LIST_KINDS(name) GC_MODEL_LIST_OF_##name,
enum gc_model_list {
#define GC_MODEL_KEY(name, type, ...) GC_MODEL_LIST_##type(name)
#include "core/model_keys.def"
#undef GC_MODEL_KEY
    GC_MODEL_LIST_COUNT
};

enum gc_model_key_type {
    GC_MODEL_TYPE_NUMBER,
    GC_MODEL_TYPE_FLAG,
    GC_MODEL_TYPE_LAYERS,
    GC_MODEL_TYPE_INDEXES,
    GC_MODEL_TYPE_KINDS,
    GC_MODEL_TYPE_WORD,
};

/* What a layer is, of the words that configurations use. */
enum gc_model_kind {
    GC_MODEL_KIND_UNKNOWN,   /* a word that is not known here */
    GC_MODEL_KIND_FULL,      /* attention to the whole context */
    GC_MODEL_KIND_WINDOW,    /* attention to a sliding window */
    GC_MODEL_KIND_CHUNK,     /* attention within a chunk */
    GC_MODEL_KIND_ATTENTION, /* attention; the windows' keys say which */
    GC_MODEL_KIND_STATE,     /* a state-space layer */
    GC_MODEL_KIND_LINEAR,    /* linear attention */
    GC_MODEL_KIND_RECURRENT, /* a linear recurrent unit */
    GC_MODEL_KIND_CONVOLUTION,
    GC_MODEL_KIND_DENSE,   /* feed-forward alone */
    GC_MODEL_KIND_EXPERTS, /* experts alone */
    GC_MODEL_KIND_HYBRID,  /* state and attention in one layer */
};

/* One row of model_keys.def. */
struct gc_model_key_row {
    const char *hf;
    const char *gguf;
    const char *text;
    enum gc_model_key_type type;
    uint64_t minimum;
    uint64_t maximum;
};
const struct gc_model_key_row *gc_model_key_row(enum gc_model_key key);

struct gc_model_field {
    uint64_t value;      /* of a NUMBER, FLAG or LAYERS; unspecified unless known */
    uint32_t item_count; /* of a list; 0: one value for all */
    uint8_t rank;
    bool known;
};

struct gc_model_config {
    struct gc_model_field fields[GC_MODEL_KEY_COUNT];
    uint32_t items[GC_MODEL_LIST_COUNT][GC_MODEL_LAYER_MAX]; /* by gc_model_list */
    char type[GC_MODEL_WORD_BYTES];
    char dtype[GC_MODEL_WORD_BYTES];
    char quantisation[GC_MODEL_WORD_BYTES];
};

enum gc_model_names {
    GC_MODEL_NAMES_HF,   /* config.json; objects joined by a dot: "text_config.hidden_size" */
    GC_MODEL_NAMES_GGUF, /* "llama.block_count" */
};

/* Where a value belongs, and how much its name counts: a name in the language model's own object
 * counts more than the same one outside, an earlier one in the table more than a later one. */
struct gc_model_place {
    enum gc_model_key key;
    uint8_t rank;
};

/* False if nobody here wants to know this name. Thread-safe, as are all here. */
bool gc_model_key_find(enum gc_model_names names, const char *name, size_t length,
                       struct gc_model_place *place);
/* Whether an object of config.json with this name ("text_config") may hold names that are wanted;
 * a reader may skip all others. */
bool gc_model_key_enters(const char *name, size_t length);

enum gc_model_value_type {
    GC_MODEL_VALUE_UINT,
    GC_MODEL_VALUE_BOOL,
    GC_MODEL_VALUE_TEXT,  /* not closed by NUL */
    GC_MODEL_VALUE_NULL,  /* said to be none: the value stays unknown */
    GC_MODEL_VALUE_OTHER, /* a negative number, a fraction, an object */
};

struct gc_model_value {
    enum gc_model_value_type type;
    uint64_t number; /* of UINT; 1 or 0 of BOOL */
    const char *text;
    size_t length;
};

#define GC_MODEL_SINGLE UINT32_MAX

/* Takes one value, or item `index` of a list, counted from 0 and given in order (the first drops
 * what was there); GC_MODEL_SINGLE for a value outside a list. What a name of higher rank said
 * stays.
 * GC_FORMAT if the value is of a kind that the key does not take, GC_OUT_OF_RANGE if it leaves the
 * row's range or the list is too long; the key is unknown then. The caller says so with its place:
 * gc_model_key_accepts tells what would have been taken. */
enum gc_status gc_model_config_set(struct gc_model_config *config,
                                   const struct gc_model_place *place, uint32_t index,
                                   const struct gc_model_value *value) GC_CHECKED;

/* "an integer, 1 to 1024", for messages. */
#define GC_MODEL_ACCEPTS_BYTES 128
const char *gc_model_key_accepts(enum gc_model_key key, char text[GC_MODEL_ACCEPTS_BYTES]);

static inline bool gc_model_known(const struct gc_model_config *config, enum gc_model_key key)
{
    return config->fields[key].known;
}

/* The value; `otherwise` where it is not known. A list's value is 0. */
static inline uint64_t gc_model_number(const struct gc_model_config *config, enum gc_model_key key,
                                       uint64_t otherwise)
{
    return config->fields[key].known ? config->fields[key].value : otherwise;
}

/* The items of a LAYERS, INDEXES or KINDS key, *count of them; NULL and 0 if there is no list. */
const uint32_t *gc_model_items(const struct gc_model_config *config, enum gc_model_key key,
                               uint32_t *count);

/* What a LAYERS key says of layer `index`; false if it is unknown or its list is too short. */
bool gc_model_layer_number(const struct gc_model_config *config, enum gc_model_key key,
                           uint32_t index, uint64_t *value);

#endif
