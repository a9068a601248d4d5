#include "core/formats/gguf_keys.h"

#include "core/base/bits.h"
#include "core/formats/json_meta.h"

#include <string.h>

#define ARRAY_DEPTH_MAX 8

enum type {
    TYPE_U8,
    TYPE_I8,
    TYPE_U16,
    TYPE_I16,
    TYPE_U32,
    TYPE_I32,
    TYPE_F32,
    TYPE_BOOL,
    TYPE_TEXT,
    TYPE_ARRAY,
    TYPE_U64,
    TYPE_I64,
    TYPE_F64,
    TYPE_COUNT,
};

static const uint8_t type_bytes[TYPE_COUNT] = {
    [TYPE_U8] = 1,  [TYPE_I8] = 1,   [TYPE_U16] = 2, [TYPE_I16] = 2, [TYPE_U32] = 4, [TYPE_I32] = 4,
    [TYPE_F32] = 4, [TYPE_BOOL] = 1, [TYPE_U64] = 8, [TYPE_I64] = 8, [TYPE_F64] = 8,
};

/* ---- values ---- */

static enum gc_status take(struct gc_gguf *gguf, size_t bytes, const unsigned char **view)
{
    const enum gc_status status =
        gc_source_view(gguf->source, gguf->position, bytes, gguf->what, view);
    if (status == GC_OK)
        gguf->position += bytes;
    return status;
}

static enum gc_status take_word(struct gc_gguf *gguf, size_t bytes, uint64_t *value)
{
    const unsigned char *view;
    const enum gc_status status = take(gguf, bytes, &view);
    *value = 0;
    for (size_t i = 0; status == GC_OK && i < bytes; i++)
        *value |= (uint64_t)view[i] << (8 * i);
    return status;
}

enum gc_status gc_gguf_u32(struct gc_gguf *gguf, uint32_t *value)
{
    uint64_t word;
    const enum gc_status status = take_word(gguf, 4, &word);
    *value = (uint32_t)word;
    return status;
}

enum gc_status gc_gguf_u64(struct gc_gguf *gguf, uint64_t *value)
{
    return take_word(gguf, 8, value);
}

/* Goes past `bytes` that need not be looked at. */
static enum gc_status pass(struct gc_gguf *gguf, uint64_t bytes)
{
    if (bytes > gguf->source->bytes - gguf->position)
        return gc_source_fail(gguf->source, gguf->position,
                              "%s: %llu bytes, and the file ends at byte %llu", gguf->what,
                              (unsigned long long)bytes, (unsigned long long)gguf->source->bytes);
    gguf->position += bytes;
    return GC_OK;
}

enum gc_status gc_gguf_text(struct gc_gguf *gguf, const char **text, size_t *length)
{
    const uint64_t offset = gguf->position;
    const unsigned char *view;
    uint64_t bytes;
    enum gc_status status = gc_gguf_u64(gguf, &bytes);
    if (status != GC_OK)
        return status;
    if (bytes == 0 || bytes > GC_GGUF_TEXT_MAX)
        return gc_source_fail(gguf->source, offset,
                              "%s: a name of %llu bytes; 1 to %d are accepted", gguf->what,
                              (unsigned long long)bytes, GC_GGUF_TEXT_MAX);
    status = take(gguf, (size_t)bytes, &view);
    *text = (const char *)view;
    *length = (size_t)bytes;
    return status;
}

/* A text value: as much of it as metas keep. What is no UTF-8 is left out. */
static enum gc_status take_text_value(struct gc_gguf *gguf, bool keep, struct gc_meta_value *value)
{
    const unsigned char *view;
    uint64_t bytes;
    value->kind = GC_META_TEXT;
    enum gc_status status = gc_gguf_u64(gguf, &bytes);
    if (status == GC_OK && !keep)
        return pass(gguf, bytes);
    const uint64_t kept = gc_min_u64(bytes, GC_META_TEXT_MAX);
    if (status == GC_OK)
        status = take(gguf, (size_t)kept, &view);
    if (status != GC_OK)
        return status;
    size_t length = strnlen((const char *)view, (size_t)kept);
    while (length > 0 && length < bytes && (view[length - 1] & 0x80) != 0)
        length--; /* no half a character at the end */
    if (!gc_load_is_utf8((const char *)view, length))
        length = 0;
    value->cut = length < bytes;
    value->text = gc_region_text(&gguf->load->region, (const char *)view, length);
    if (value->text == NULL)
        return gc_load_no_memory(gguf->load, gguf->source->path);
    return pass(gguf, bytes - kept);
}

static void set_integer(struct gc_meta_value *value, uint64_t word, unsigned bits)
{
    const uint64_t sign = UINT64_C(1) << (bits - 1);
    const uint64_t mask = sign | (sign - 1);
    value->kind = GC_META_INTEGER;
    value->negative = (word & sign) != 0;
    value->unsigned_value = value->negative ? (~word & mask) + 1 : word;
    value->real = value->negative ? -(double)value->unsigned_value : (double)value->unsigned_value;
}

static enum gc_status take_scalar(struct gc_gguf *gguf, uint32_t type, struct gc_meta_value *value)
{
    uint64_t word;
    float narrow;
    const enum gc_status status = take_word(gguf, type_bytes[type], &word);
    if (status != GC_OK)
        return status;
    switch ((enum type)type) {
    case TYPE_I8:
    case TYPE_I16:
    case TYPE_I32:
    case TYPE_I64:
        set_integer(value, word, 8U * type_bytes[type]);
        break;
    case TYPE_F32: {
        const uint32_t bits = (uint32_t)word;
        memcpy(&narrow, &bits, sizeof(narrow));
        value->kind = GC_META_REAL;
        value->real = (double)narrow;
        break;
    }
    case TYPE_F64:
        value->kind = GC_META_REAL;
        memcpy(&value->real, &word, sizeof(value->real));
        break;
    case TYPE_BOOL:
        value->kind = GC_META_BOOL;
        value->unsigned_value = word != 0;
        break;
    default:
        value->kind = GC_META_INTEGER;
        value->unsigned_value = word;
        value->real = (double)word;
    }
    return GC_OK;
}

/* ---- arrays ---- */

struct array {
    uint32_t type;
    uint64_t count;
};

static enum gc_status check_type(const struct gc_gguf *gguf, uint64_t offset, uint32_t type)
{
    if (type < TYPE_COUNT)
        return GC_OK;
    return gc_source_fail(gguf->source, offset, "%s: a value of type %u; 0 to %d are accepted",
                          gguf->what, type, TYPE_COUNT - 1);
}

static enum gc_status take_array_head(struct gc_gguf *gguf, struct array *array)
{
    const uint64_t offset = gguf->position;
    enum gc_status status = gc_gguf_u32(gguf, &array->type);
    if (status == GC_OK)
        status = check_type(gguf, offset, array->type);
    if (status == GC_OK)
        status = gc_gguf_u64(gguf, &array->count);
    if (status != GC_OK)
        return status;
    /* Each element takes some bytes: what cannot be there is not counted through. */
    const uint64_t least = array->type == TYPE_TEXT    ? 8
                           : array->type == TYPE_ARRAY ? 12
                                                       : type_bytes[array->type];
    if (array->count > (gguf->source->bytes - gguf->position) / least)
        return gc_source_fail(gguf->source, offset,
                              "%s: an array of %llu elements, more than the rest of the file holds",
                              gguf->what, (unsigned long long)array->count);
    return GC_OK;
}

static enum gc_status pass_texts(struct gc_gguf *gguf, uint64_t count)
{
    enum gc_status status = GC_OK;
    for (uint64_t i = 0; i < count && status == GC_OK; i++) {
        uint64_t bytes;
        status = gc_gguf_u64(gguf, &bytes);
        if (status == GC_OK)
            status = pass(gguf, bytes);
    }
    return status;
}

/* Goes past the elements of an array, arrays within it included. */
static enum gc_status pass_array(struct gc_gguf *gguf, const struct array *array)
{
    uint64_t left[ARRAY_DEPTH_MAX];
    struct array here = *array;
    uint32_t depth = 0;
    for (;;) {
        enum gc_status status = GC_OK;
        if (here.type == TYPE_ARRAY) {
            if (depth == ARRAY_DEPTH_MAX)
                return gc_source_fail(gguf->source, gguf->position,
                                      "%s: arrays nested deeper than %d", gguf->what,
                                      ARRAY_DEPTH_MAX);
            left[depth++] = here.count;
        } else if (here.type == TYPE_TEXT) {
            status = pass_texts(gguf, here.count);
        } else {
            status = pass(gguf, here.count * type_bytes[here.type]);
        }
        while (depth > 0 && left[depth - 1] == 0)
            depth--;
        if (status != GC_OK || depth == 0)
            return status;
        left[depth - 1]--;
        status = take_array_head(gguf, &here);
        if (status != GC_OK)
            return status;
    }
}

static enum gc_status take_array(struct gc_gguf *gguf, bool keep, struct gc_meta_value *value)
{
    struct array array;
    enum gc_status status = take_array_head(gguf, &array);
    if (status != GC_OK)
        return status;
    value->kind = GC_META_ARRAY;
    value->count = array.count;
    if (!keep || array.count > GC_META_ITEMS_MAX || array.type == TYPE_ARRAY) {
        value->cut = array.count > 0;
        return pass_array(gguf, &array);
    }
    struct gc_meta_value *items =
        gc_load_alloc(gguf->load, gguf->source->path, array.count * sizeof(*items));
    if (items == NULL)
        return gc_load_no_memory(gguf->load, gguf->source->path);
    for (uint64_t i = 0; i < array.count && status == GC_OK; i++)
        status = array.type == TYPE_TEXT ? take_text_value(gguf, true, &items[i])
                                         : take_scalar(gguf, array.type, &items[i]);
    value->items = items;
    value->kept = array.count;
    return status;
}

/* ---- keys ---- */

enum gc_status gc_gguf_read_head(struct gc_gguf *gguf)
{
    const unsigned char *magic;
    uint32_t version;
    gguf->what = "the header";
    gguf->alignment = 32;
    enum gc_status status = take(gguf, 4, &magic);
    if (status == GC_OK && memcmp(magic, "GGUF", 4) != 0)
        return gc_source_fail(gguf->source, 0, "no GGUF file: it does not begin with \"GGUF\"");
    if (status == GC_OK)
        status = gc_gguf_u32(gguf, &version);
    if (status != GC_OK)
        return status;
    if (version != 0 && (version & 0xffff) == 0)
        return gc_source_fail(
            gguf->source, 4, "a big-endian GGUF file (version %u); little-endian ones are accepted",
            __builtin_bswap32(version));
    if (version != 2 && version != 3)
        return gc_source_fail(gguf->source, 4, "GGUF version %u; 2 and 3 are accepted", version);
    status = gc_gguf_u64(gguf, &gguf->tensor_count);
    if (status == GC_OK)
        status = gc_gguf_u64(gguf, &gguf->key_count);
    if (status != GC_OK)
        return status;
    /* A key takes 13 bytes at least, a tensor's description 25. */
    const uint64_t rest = gguf->source->bytes - gguf->position;
    if (gguf->key_count > rest / 13 || gguf->tensor_count > rest / 25)
        return gc_source_fail(
            gguf->source, 8, "%llu tensors and %llu keys, more than a file of %llu bytes holds",
            (unsigned long long)gguf->tensor_count, (unsigned long long)gguf->key_count,
            (unsigned long long)gguf->source->bytes);
    return GC_OK;
}

static enum gc_status note_alignment(struct gc_gguf *gguf, uint64_t offset,
                                     const struct gc_meta_value *value)
{
    uint64_t number;
    if (!gc_meta_uint(value, &number) || number == 0 || (number & (number - 1)) != 0 ||
        number > UINT32_MAX)
        return gc_source_fail(gguf->source, offset, "general.alignment is no power of two");
    gguf->alignment = number;
    return GC_OK;
}

/* The few keys that reading itself needs. */
static enum gc_status note(struct gc_gguf *gguf, const char *key, size_t length, uint64_t offset,
                           const struct gc_meta_value *value)
{
    static const char alignment[] = "general.alignment";
    static const char count[] = "split.count";
    static const char number[] = "split.no";
    static const char tensors[] = "split.tensors.count";
    uint64_t *to = NULL;
    if (length == sizeof(alignment) - 1 && memcmp(key, alignment, length) == 0)
        return note_alignment(gguf, offset, value);
    if (length == sizeof(count) - 1 && memcmp(key, count, length) == 0)
        to = &gguf->split_count;
    else if (length == sizeof(number) - 1 && memcmp(key, number, length) == 0)
        to = &gguf->split_number;
    else if (length == sizeof(tensors) - 1 && memcmp(key, tensors, length) == 0)
        to = &gguf->split_tensors;
    if (to != NULL && !gc_meta_uint(value, to))
        return gc_source_fail(gguf->source, offset, "%s is no whole number", gguf->what);
    return GC_OK;
}

static enum gc_status read_key(struct gc_gguf *gguf, bool keep)
{
    char name[64];
    char what[GC_LOAD_SHOWN_BYTES + 8] = "key \"";
    struct gc_meta meta = {0};
    const char *text = "";
    size_t length = 0;
    uint32_t type = 0;
    gguf->what = "a key";
    enum gc_status status = gc_gguf_text(gguf, &text, &length);
    if (status == GC_OK && keep)
        status = gc_load_text(gguf->load, gguf->source->path, "key", text, length, &meta.key);
    if (status != GC_OK)
        return status;
    gc_load_show(text, length, what + 5, GC_LOAD_SHOWN_BYTES);
    strcat(what, "\"");
    gguf->what = what;
    const size_t short_length = length < sizeof(name) ? length : 0;
    memcpy(name, text, short_length);
    const uint64_t offset = gguf->position;
    status = gc_gguf_u32(gguf, &type);
    if (status == GC_OK)
        status = check_type(gguf, offset, type);
    if (status == GC_OK)
        status = type == TYPE_TEXT    ? take_text_value(gguf, keep, &meta.value)
                 : type == TYPE_ARRAY ? take_array(gguf, keep, &meta.value)
                                      : take_scalar(gguf, type, &meta.value);
    if (status == GC_OK)
        status = note(gguf, name, short_length, offset, &meta.value);
    if (status == GC_OK && keep)
        status = gc_load_add_meta(gguf->load, gguf->source->path, &meta);
    gguf->what = "a key";
    return status;
}

enum gc_status gc_gguf_read_keys(struct gc_gguf *gguf, bool keep)
{
    enum gc_status status = GC_OK;
    for (uint64_t i = 0; i < gguf->key_count && status == GC_OK; i++)
        status = read_key(gguf, keep);
    return status;
}
