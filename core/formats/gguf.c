#include "core/formats/gguf.h"

#include "core/base/bits.h"
#include "core/reader/json_meta.h"
#include "core/reader/ranges.h"
#include "core/reader/source.h"

#include <stdio.h>
#include <string.h>

#define GC_GGUF_TEXT_MAX 65535 /* of a key or a name: the format's own bound */

struct gc_gguf {
    struct gc_source *source;
    struct gc_reader *reader;
    uint64_t position; /* in the file, of the next byte to read */
    const char *what;  /* name of the item being read, for messages */
    uint64_t tensor_count;
    uint64_t key_count;
    uint64_t alignment;
    uint64_t split_count; /* 0: no shards */
    uint64_t split_number;
    uint64_t split_tensors; /* of all shards; 0: unknown */
};

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

static enum gc_status read_view(struct gc_gguf *gguf, size_t bytes, const unsigned char **view)
{
    const enum gc_status status =
        gc_source_view(gguf->source, gguf->position, bytes, gguf->what, view);
    if (status == GC_OK)
        gguf->position += bytes;
    return status;
}

static enum gc_status read_word(struct gc_gguf *gguf, size_t bytes, uint64_t *value)
{
    const unsigned char *view;
    const enum gc_status status = read_view(gguf, bytes, &view);
    *value = 0;
    for (size_t i = 0; status == GC_OK && i < bytes; i++)
        *value |= (uint64_t)view[i] << (8 * i);
    return status;
}

static enum gc_status read_u32(struct gc_gguf *gguf, uint32_t *value)
{
    uint64_t word;
    const enum gc_status status = read_word(gguf, 4, &word);
    *value = (uint32_t)word;
    return status;
}

static enum gc_status read_u64(struct gc_gguf *gguf, uint64_t *value)
{
    return read_word(gguf, 8, value);
}

/* Skips `bytes`. */
static enum gc_status pass(struct gc_gguf *gguf, uint64_t bytes)
{
    if (bytes > gguf->source->bytes - gguf->position)
        return gc_source_fail(gguf->source, gguf->position,
                              "%s: %llu bytes, and the file ends at byte %llu", gguf->what,
                              (unsigned long long)bytes, (unsigned long long)gguf->source->bytes);
    gguf->position += bytes;
    return GC_OK;
}

static enum gc_status read_text(struct gc_gguf *gguf, const char **text, size_t *length)
{
    const uint64_t offset = gguf->position;
    const unsigned char *view;
    uint64_t bytes;
    enum gc_status status = read_u64(gguf, &bytes);
    if (status != GC_OK)
        return status;
    if (bytes == 0 || bytes > GC_GGUF_TEXT_MAX)
        return gc_source_fail(gguf->source, offset,
                              "%s: a name of %llu bytes; 1 to %d are accepted", gguf->what,
                              (unsigned long long)bytes, GC_GGUF_TEXT_MAX);
    status = read_view(gguf, (size_t)bytes, &view);
    *text = (const char *)view;
    *length = (size_t)bytes;
    return status;
}

/* A text value, cut to the length that metas keep. Text that is not UTF-8 is dropped. */
static enum gc_status read_text_value(struct gc_gguf *gguf, bool keep, struct gc_meta_value *value)
{
    const unsigned char *view;
    uint64_t bytes;
    value->kind = GC_META_TEXT;
    enum gc_status status = read_u64(gguf, &bytes);
    if (status == GC_OK && !keep)
        return pass(gguf, bytes);
    const uint64_t kept = gc_min_u64(bytes, GC_META_TEXT_MAX);
    if (status == GC_OK)
        status = read_view(gguf, (size_t)kept, &view);
    if (status != GC_OK)
        return status;
    size_t length = strnlen((const char *)view, (size_t)kept);
    while (length > 0 && length < bytes && (view[length - 1] & 0x80) != 0)
        length--; /* never cut inside a character */
    if (!gc_reader_is_utf8((const char *)view, length))
        length = 0;
    value->cut = length < bytes;
    value->text = gc_region_text(&gguf->reader->region, (const char *)view, length);
    if (value->text == NULL)
        return gc_reader_no_memory(gguf->reader, gguf->source->path);
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

static enum gc_status read_scalar(struct gc_gguf *gguf, uint32_t type, struct gc_meta_value *value)
{
    uint64_t word;
    float narrow;
    const enum gc_status status = read_word(gguf, type_bytes[type], &word);
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

static enum gc_status read_array_head(struct gc_gguf *gguf, struct array *array)
{
    const uint64_t offset = gguf->position;
    enum gc_status status = read_u32(gguf, &array->type);
    if (status == GC_OK)
        status = check_type(gguf, offset, array->type);
    if (status == GC_OK)
        status = read_u64(gguf, &array->count);
    if (status != GC_OK)
        return status;
    /* Each element takes at least this many bytes: a count beyond the file's end fails before the
     * loop. */
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
        status = read_u64(gguf, &bytes);
        if (status == GC_OK)
            status = pass(gguf, bytes);
    }
    return status;
}

/* Skips the elements of an array, nested arrays included. */
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
        status = read_array_head(gguf, &here);
        if (status != GC_OK)
            return status;
    }
}

static enum gc_status read_array(struct gc_gguf *gguf, bool keep, struct gc_meta_value *value)
{
    struct array array;
    enum gc_status status = read_array_head(gguf, &array);
    if (status != GC_OK)
        return status;
    value->kind = GC_META_ARRAY;
    value->count = array.count;
    if (!keep || array.count > GC_META_ITEMS_MAX || array.type == TYPE_ARRAY) {
        value->cut = array.count > 0;
        return pass_array(gguf, &array);
    }
    struct gc_meta_value *items =
        gc_reader_alloc(gguf->reader, gguf->source->path, array.count * sizeof(*items));
    if (items == NULL)
        return gc_reader_no_memory(gguf->reader, gguf->source->path);
    for (uint64_t i = 0; i < array.count && status == GC_OK; i++)
        status = array.type == TYPE_TEXT ? read_text_value(gguf, true, &items[i])
                                         : read_scalar(gguf, array.type, &items[i]);
    value->items = items;
    value->kept = array.count;
    return status;
}

/* ---- keys ---- */

static enum gc_status read_head(struct gc_gguf *gguf)
{
    const unsigned char *magic;
    uint32_t version;
    gguf->what = "the header";
    gguf->alignment = 32;
    enum gc_status status = read_view(gguf, 4, &magic);
    if (status == GC_OK && memcmp(magic, "GGUF", 4) != 0)
        return gc_source_fail(gguf->source, 0, "no GGUF file: it does not begin with \"GGUF\"");
    if (status == GC_OK)
        status = read_u32(gguf, &version);
    if (status != GC_OK)
        return status;
    if (version != 0 && (version & 0xffff) == 0)
        return gc_source_fail(
            gguf->source, 4, "a big-endian GGUF file (version %u); little-endian ones are accepted",
            __builtin_bswap32(version));
    if (version != 2 && version != 3)
        return gc_source_fail(gguf->source, 4, "GGUF version %u; 2 and 3 are accepted", version);
    status = read_u64(gguf, &gguf->tensor_count);
    if (status == GC_OK)
        status = read_u64(gguf, &gguf->key_count);
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

static enum gc_status record_alignment(struct gc_gguf *gguf, uint64_t offset,
                                       const struct gc_meta_value *value)
{
    uint64_t number;
    if (!gc_meta_uint(value, &number) || number == 0 || (number & (number - 1)) != 0 ||
        number > UINT32_MAX)
        return gc_source_fail(gguf->source, offset, "general.alignment is no power of two");
    gguf->alignment = number;
    return GC_OK;
}

/* Records the few keys that the reader itself needs. */
static enum gc_status record_key(struct gc_gguf *gguf, const char *key, size_t length,
                                 uint64_t offset, const struct gc_meta_value *value)
{
    static const char alignment[] = "general.alignment";
    static const char count[] = "split.count";
    static const char number[] = "split.no";
    static const char tensors[] = "split.tensors.count";
    uint64_t *to = NULL;
    if (length == sizeof(alignment) - 1 && memcmp(key, alignment, length) == 0)
        return record_alignment(gguf, offset, value);
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
    char what[GC_READER_SHOWN_BYTES + 8] = "key \"";
    struct gc_meta meta = {0};
    const char *text = "";
    size_t length = 0;
    uint32_t type = 0;
    gguf->what = "a key";
    enum gc_status status = read_text(gguf, &text, &length);
    if (status == GC_OK && keep)
        status = gc_reader_text(gguf->reader, gguf->source->path, "key", text, length, &meta.key);
    if (status != GC_OK)
        return status;
    gc_reader_show(text, length, what + 5, GC_READER_SHOWN_BYTES);
    strcat(what, "\"");
    gguf->what = what;
    const size_t short_length = length < sizeof(name) ? length : 0;
    memcpy(name, text, short_length);
    const uint64_t offset = gguf->position;
    status = read_u32(gguf, &type);
    if (status == GC_OK)
        status = check_type(gguf, offset, type);
    if (status == GC_OK)
        status = type == TYPE_TEXT    ? read_text_value(gguf, keep, &meta.value)
                 : type == TYPE_ARRAY ? read_array(gguf, keep, &meta.value)
                                      : read_scalar(gguf, type, &meta.value);
    if (status == GC_OK)
        status = record_key(gguf, name, short_length, offset, &meta.value);
    if (status == GC_OK && keep)
        status = gc_reader_add_meta(gguf->reader, gguf->source->path, &meta);
    gguf->what = "a key";
    return status;
}

static enum gc_status read_keys(struct gc_gguf *gguf, bool keep)
{
    enum gc_status status = GC_OK;
    for (uint64_t i = 0; i < gguf->key_count && status == GC_OK; i++)
        status = read_key(gguf, keep);
    return status;
}

#define DIMS_MAX 4 /* ggml's own */
#define NAME_BYTES_MAX 255

/* Reverses the file's dimensions, which are innermost first, to outermost first. */
static enum gc_status read_dims(struct gc_gguf *gguf, struct gc_model_tensor *tensor,
                                const char *shown)
{
    uint64_t offset = gguf->position;
    enum gc_status status = read_u32(gguf, &tensor->dim_count);
    if (status != GC_OK)
        return status;
    if (tensor->dim_count > DIMS_MAX)
        return gc_source_fail(gguf->source, offset,
                              "tensor \"%s\": %u dimensions; 0 to %d are accepted", shown,
                              tensor->dim_count, DIMS_MAX);
    uint64_t *dims =
        gc_reader_alloc(gguf->reader, gguf->source->path, tensor->dim_count * sizeof(*dims));
    if (dims == NULL)
        return gc_reader_no_memory(gguf->reader, gguf->source->path);
    tensor->dims = dims;
    for (uint32_t i = tensor->dim_count; i-- > 0;) {
        offset = gguf->position;
        status = read_u64(gguf, &dims[i]);
        if (status != GC_OK)
            return status;
        if (dims[i] > INT64_MAX)
            return gc_source_fail(gguf->source, offset,
                                  "tensor \"%s\": a negative dimension, or one of 2^63 or more",
                                  shown);
    }
    return GC_OK;
}

static enum gc_status read_type(struct gc_gguf *gguf, struct gc_model_tensor *tensor,
                                const char *shown)
{
    const uint64_t offset = gguf->position;
    uint32_t type;
    const enum gc_status status = read_u32(gguf, &type);
    if (status != GC_OK)
        return status;
    tensor->dtype = gc_dtype_from_gguf(type);
    if (tensor->dtype == GC_DTYPE_NONE)
        return gc_source_fail(gguf->source, offset, "tensor \"%s\": type %u is not known", shown,
                              type);
    const uint64_t block = gc_dtype_get_info(tensor->dtype)->block_elements;
    const uint64_t row = tensor->dim_count > 0 ? tensor->dims[tensor->dim_count - 1] : 1;
    if (row % block != 0)
        return gc_source_fail(gguf->source, offset,
                              "tensor \"%s\": rows of %llu elements; %s has blocks of %llu", shown,
                              (unsigned long long)row, gc_dtype_name(tensor->dtype),
                              (unsigned long long)block);
    return GC_OK;
}

static enum gc_status read_tensor(struct gc_gguf *gguf)
{
    struct gc_reader *reader = gguf->reader;
    struct gc_model_tensor tensor = {.file = gguf->source->file, .alias_of = GC_MODEL_NONE};
    const char *text = NULL;
    size_t length = 0;
    gguf->what = "a tensor's description";
    enum gc_status status = read_text(gguf, &text, &length);
    if (status == GC_OK)
        status = gc_reader_text(reader, gguf->source->path, "tensor", text, length, &tensor.name);
    if (status != GC_OK)
        return status;
    const char *shown = GC_READER_SHOWN(tensor.name, length);
    status = read_dims(gguf, &tensor, shown);
    if (status == GC_OK)
        status = read_type(gguf, &tensor, shown);
    const uint64_t offset = gguf->position;
    if (status == GC_OK)
        status = read_u64(gguf, &tensor.offset);
    if (status == GC_OK)
        status = gc_reader_size_tensor(reader, gguf->source->path, &tensor);
    if (status != GC_OK)
        return status;
    if (tensor.offset % gguf->alignment != 0)
        return gc_source_fail(
            gguf->source, offset, "tensor \"%s\": its offset %llu is no multiple of %llu", shown,
            (unsigned long long)tensor.offset, (unsigned long long)gguf->alignment);
    tensor.stored_bytes = tensor.bytes;
    return gc_reader_add_tensor(reader, gguf->source->path, &tensor, true);
}

/* Offsets are relative to the start of the data, which is known only now. */
static enum gc_status place_tensors(struct gc_gguf *gguf, uint32_t first)
{
    struct gc_reader *reader = gguf->reader;
    uint64_t begin;
    if (!gc_round_up_u64(gguf->position, gguf->alignment, &begin))
        return gc_source_fail(gguf->source, gguf->position, "the data begins beyond 2^64");
    for (uint32_t i = first; i < reader->tensor_count; i++) {
        struct gc_model_tensor *tensor = &reader->tensors[i];
        if (!gc_add_u64(begin, tensor->offset, &tensor->offset) ||
            tensor->offset == GC_MODEL_NO_OFFSET)
            return gc_reader_fail(reader, GC_FORMAT, gguf->source->path,
                                  "tensor \"%s\": its offset overflows 64 bits",
                                  GC_READER_SHOWN(tensor->name, strlen(tensor->name)));
    }
    const struct gc_ranges ranges = {
        .first = first,
        .begin = begin,
        .slack = gguf->alignment - 1,
    };
    if (gguf->source->bytes < begin && reader->tensor_count > first)
        return gc_source_fail(gguf->source, gguf->source->bytes,
                              "the file ends before its data, which begins at byte %llu",
                              (unsigned long long)begin);
    return gc_ranges_check(reader, &ranges);
}

static enum gc_status read_tensors(struct gc_gguf *gguf)
{
    const uint32_t first = gguf->reader->tensor_count;
    enum gc_status status = gc_reader_add_file(gguf->reader, gguf->source->path,
                                               gguf->source->bytes, &gguf->source->file);
    for (uint64_t i = 0; i < gguf->tensor_count && status == GC_OK; i++)
        status = read_tensor(gguf);
    return status == GC_OK ? place_tensors(gguf, first) : status;
}

/* ---- shards ---- */

/* "-00001-of-00003.gguf" for shard 0 of 3. */
#define TAIL_BYTES 21
static void write_tail(char tail[TAIL_BYTES + 16], uint64_t number, uint64_t count)
{
    snprintf(tail, TAIL_BYTES + 16, "-%05u-of-%05u.gguf", (unsigned)number + 1, (unsigned)count);
}

struct shards {
    struct gc_reader *reader;
    const struct gc_folder *folder;
    const char *named_by; /* the file given by the caller */
    char name[NAME_BYTES_MAX + 1];
    size_t stem; /* bytes of the name before the tail */
    uint64_t count;
    uint64_t number; /* of the file given by the caller */
    uint64_t tensors;
};

static enum gc_status prepare_shards(struct shards *shards, const struct gc_gguf *gguf,
                                     const char *name)
{
    char tail[TAIL_BYTES + 16];
    const size_t length = strlen(name);
    if (gguf->split_number >= gguf->split_count || gguf->split_count > gguf->reader->limits.files ||
        gguf->split_count > 99999)
        return gc_reader_fail(
            gguf->reader, GC_FORMAT, gguf->source->path,
            "split.no is %llu and split.count %llu: a shard below the count, and at "
            "most %u shards, are accepted",
            (unsigned long long)gguf->split_number, (unsigned long long)gguf->split_count,
            gguf->reader->limits.files);
    write_tail(tail, gguf->split_number, gguf->split_count);
    const size_t tail_length = strlen(tail);
    if (length <= tail_length || length > NAME_BYTES_MAX ||
        strcmp(name + length - tail_length, tail) != 0)
        return gc_reader_fail(
            gguf->reader, GC_FORMAT, gguf->source->path,
            "shard %llu of %llu by its keys: its name should end in \"%s\" so that "
            "the others can be found",
            (unsigned long long)gguf->split_number + 1, (unsigned long long)gguf->split_count,
            tail);
    memcpy(shards->name, name, length + 1);
    shards->stem = length - tail_length;
    shards->count = gguf->split_count;
    shards->number = gguf->split_number;
    shards->tensors = gguf->split_tensors;
    return GC_OK;
}

static enum gc_status read_shard(struct shards *shards, struct gc_source *source, uint64_t number)
{
    struct gc_gguf gguf = {.source = source, .reader = shards->reader};
    enum gc_status status = read_head(&gguf);
    if (status == GC_OK)
        status = read_keys(&gguf, number == 0);
    if (status == GC_OK && (gguf.split_count != shards->count || gguf.split_number != number))
        return gc_reader_fail(shards->reader, GC_FORMAT, source->path,
                              "by its keys it is shard %llu of %llu, by its name %llu of %llu",
                              (unsigned long long)gguf.split_number + 1,
                              (unsigned long long)gguf.split_count, (unsigned long long)number + 1,
                              (unsigned long long)shards->count);
    return status == GC_OK ? read_tensors(&gguf) : status;
}

static enum gc_status read_shards(struct shards *shards, struct gc_source *own)
{
    enum gc_status status = GC_OK;
    for (uint64_t i = 0; i < shards->count && status == GC_OK; i++) {
        struct gc_source source;
        if (i == shards->number) {
            status = read_shard(shards, own, i);
            continue;
        }
        char tail[TAIL_BYTES + 16];
        write_tail(tail, i, shards->count);
        memcpy(shards->name + shards->stem, tail, strlen(tail) + 1);
        status = gc_source_open_in(shards->reader, shards->folder, shards->name, shards->named_by,
                                   "split.count", &source);
        if (status != GC_OK)
            break;
        status = read_shard(shards, &source, i);
        gc_source_close(&source);
    }
    if (status != GC_OK || shards->tensors == 0 || shards->tensors == shards->reader->tensor_count)
        return status;
    return gc_reader_fail(shards->reader, GC_FORMAT, shards->named_by,
                          "split.tensors.count is %llu, and the shards have %u tensors",
                          (unsigned long long)shards->tensors, shards->reader->tensor_count);
}

enum gc_status gc_gguf_read(struct gc_source *source, const struct gc_folder *folder,
                            const char *name)
{
    struct gc_reader *reader = source->reader;
    struct gc_gguf gguf = {.source = source, .reader = reader};
    enum gc_status status = read_head(&gguf);
    if (status == GC_OK)
        status = read_keys(&gguf, true);
    reader->model->has_config = true;
    if (status != GC_OK)
        return status;
    if (gguf.split_count <= 1)
        return read_tensors(&gguf);
    /* Starts over at the first shard, whose keys are the model's. */
    struct shards shards = {.reader = reader, .folder = folder, .named_by = source->path};
    status = prepare_shards(&shards, &gguf, name);
    reader->meta_count = 0;
    gc_strmap_init(&reader->meta_names);
    return status == GC_OK ? read_shards(&shards, source) : status;
}
