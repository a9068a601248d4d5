#include "core/formats/safetensors.h"

#include "core/base/bits.h"
#include "core/io/text.h"
#include "core/reader/detect.h"
#include "core/reader/json_meta.h"
#include "core/reader/json_reader.h"
#include "core/reader/ranges.h"

#include <string.h>

#define DIMS_MAX 64
#define NAME_BYTES_HERE 256 /* of a name, on the stack */

struct header {
    struct gc_json_reader json;
    struct gc_source *source;
    uint64_t data; /* where the tensors' bytes begin */
    uint64_t data_bytes;
    uint32_t shard;
    uint64_t foreign; /* tensors missing from the index */
    const char *foreign_name;
    bool is_alone; /* the file ends behind its header */
};

/* One tensor's description while it is read. */
struct entry {
    struct gc_model_tensor tensor;
    uint64_t dims[DIMS_MAX];
    uint64_t begin;
    uint64_t end;
    bool has_dtype;
    bool has_shape;
    bool has_offsets;
};

static enum gc_status fail_entry(struct header *header, const struct entry *entry,
                                 const struct gc_json_token *token, const char *what)
{
    const char *name = entry->tensor.name;
    return gc_source_fail(header->json.source, token->offset, "tensor \"%s\": %s",
                          GC_READER_SHOWN(name, strlen(name)), what);
}

static enum gc_status expect(struct header *header, const struct entry *entry,
                             enum gc_json_event event, const char *what,
                             struct gc_json_token *token)
{
    const enum gc_status status = gc_json_reader_next(&header->json, token);
    if (status == GC_OK && token->event != event)
        return fail_entry(header, entry, token, what);
    return status;
}

static enum gc_status read_dtype(struct header *header, struct entry *entry)
{
    struct gc_json_token token;
    enum gc_status status = expect(header, entry, GC_JSON_STRING, "its dtype is no string", &token);
    if (status != GC_OK)
        return status;
    entry->tensor.dtype = gc_dtype_from_safetensors(token.text, token.length);
    if (entry->tensor.dtype != GC_DTYPE_NONE)
        return GC_OK;
    const char *name = entry->tensor.name;
    return gc_source_fail(header->json.source, token.offset,
                          "tensor \"%s\": dtype \"%s\" is not known; F32, BF16, F8_E4M3, I64 "
                          "and the like are accepted",
                          GC_READER_SHOWN(name, strlen(name)),
                          GC_READER_SHOWN(token.text, token.length));
}

/* An array of at most `max` whole numbers. */
static enum gc_status read_numbers(struct header *header, struct entry *entry, const char *what,
                                   uint64_t *numbers, uint32_t max, uint32_t *count)
{
    struct gc_json_token token;
    *count = 0;
    enum gc_status status = expect(header, entry, GC_JSON_BEGIN_ARRAY, what, &token);
    for (;;) {
        if (status == GC_OK)
            status = gc_json_reader_next(&header->json, &token);
        if (status != GC_OK || token.event == GC_JSON_END_ARRAY)
            return status;
        if (*count == max || token.event != GC_JSON_INTEGER || token.negative)
            return fail_entry(header, entry, &token, what);
        numbers[(*count)++] = token.magnitude;
    }
}

static enum gc_status read_offsets(struct header *header, struct entry *entry)
{
    static const char what[] = "its data_offsets are not two whole numbers, begin and end";
    uint64_t numbers[2];
    uint32_t count;
    const uint64_t offset = header->json.position;
    const enum gc_status status = read_numbers(header, entry, what, numbers, 2, &count);
    if (status != GC_OK)
        return status;
    const struct gc_json_token token = {.offset = offset};
    if (count != 2)
        return fail_entry(header, entry, &token, what);
    entry->begin = numbers[0];
    entry->end = numbers[1];
    if (entry->begin > entry->end)
        return fail_entry(header, entry, &token, "its data_offsets end before they begin");
    return GC_OK;
}

static enum gc_status read_member(struct header *header, struct entry *entry,
                                  const struct gc_json_token *key)
{
    static const char shape[] = "its shape is no array of at most 64 whole numbers";
    struct gc_json_token token;
    bool *seen = gc_json_token_is(key, "dtype")          ? &entry->has_dtype
                 : gc_json_token_is(key, "shape")        ? &entry->has_shape
                 : gc_json_token_is(key, "data_offsets") ? &entry->has_offsets
                                                         : NULL;
    if (seen == NULL) {
        const enum gc_status status = gc_json_reader_next(&header->json, &token);
        return status != GC_OK ? status : gc_json_reader_skip(&header->json, &token);
    }
    if (*seen)
        return fail_entry(header, entry, key, "the same key twice");
    *seen = true;
    if (seen == &entry->has_dtype)
        return read_dtype(header, entry);
    if (seen == &entry->has_offsets)
        return read_offsets(header, entry);
    return read_numbers(header, entry, shape, entry->dims, DIMS_MAX, &entry->tensor.dim_count);
}

/* Checks the size from dtype and shape against the size from the offsets. */
static enum gc_status check_entry(struct header *header, struct entry *entry)
{
    struct gc_reader *reader = header->source->reader;
    struct gc_model_tensor *tensor = &entry->tensor;
    const char *path = header->source->path;
    enum gc_status status = gc_reader_size_tensor(reader, path, tensor);
    if (status != GC_OK)
        return status;
    tensor->stored_bytes = entry->end - entry->begin;
    if (tensor->stored_bytes != tensor->bytes)
        return gc_reader_fail(
            reader, GC_FORMAT, path,
            "tensor \"%s\": its data_offsets span %llu bytes, its shape and dtype "
            "need %llu",
            GC_READER_SHOWN(tensor->name, strlen(tensor->name)),
            (unsigned long long)tensor->stored_bytes, (unsigned long long)tensor->bytes);
    header->is_alone = header->is_alone || (header->data_bytes == 0 && entry->end > 0);
    if (!header->is_alone && entry->end > header->data_bytes)
        return gc_reader_fail(
            reader, GC_FORMAT, path,
            "tensor \"%s\": its data_offsets end at %llu, the data has %llu bytes: "
            "the file is cut short, or the offset wrong",
            GC_READER_SHOWN(tensor->name, strlen(tensor->name)), (unsigned long long)entry->end,
            (unsigned long long)header->data_bytes);
    tensor->offset = header->data + entry->begin;
    return GC_OK;
}

/* Checks the tensor's name against the index. */
static enum gc_status check_promise(struct header *header, const struct entry *entry,
                                    const struct gc_strmap_entry *known)
{
    const char *name = entry->tensor.name;
    if (header->shard == GC_MODEL_NONE ||
        (known != NULL && known->value == (header->shard | GC_READER_PROMISED)))
        return GC_OK;
    if (known == NULL) {
        header->foreign++;
        header->foreign_name = name;
        return GC_OK;
    }
    return gc_reader_fail(header->source->reader, GC_FORMAT, header->source->path,
                          "tensor \"%s\": %s", GC_READER_SHOWN(name, strlen(name)),
                          (known->value & GC_READER_PROMISED) != 0
                              ? "the index names another file for it"
                              : "it is there twice");
}

/* Adds a complete entry to the list, with a copy of its name. */
static enum gc_status add_entry(struct header *header, struct entry *entry, size_t length,
                                uint32_t hash)
{
    struct gc_reader *reader = header->source->reader;
    const char *path = header->source->path;
    struct gc_model_tensor *tensor = &entry->tensor;
    struct gc_strmap_entry *known =
        gc_strmap_find_hashed(&reader->tensor_names, tensor->name, length, hash);
    enum gc_status status = GC_OK;
    if (known != NULL)
        tensor->name = known->text;
    else
        status = gc_reader_text(reader, path, "tensor", tensor->name, length, &tensor->name);
    if (status == GC_OK)
        status = check_promise(header, entry, known);
    if (status != GC_OK)
        return status;
    const uint64_t dims_bytes = tensor->dim_count * sizeof(*entry->dims);
    uint64_t *dims = gc_reader_alloc(reader, path, dims_bytes);
    if (dims == NULL)
        return gc_reader_no_memory(reader, path);
    memcpy(dims, entry->dims, dims_bytes);
    tensor->dims = dims;
    return header->shard != GC_MODEL_NONE && known != NULL
               ? gc_reader_redeem(reader, path, tensor, known)
               : gc_reader_add_tensor(reader, path, tensor, true);
}

static enum gc_status read_members(struct header *header, struct entry *entry,
                                   const struct gc_json_token *key, uint32_t hash)
{
    const uint64_t offset = key->offset;
    struct gc_json_token token;
    enum gc_status status = expect(header, entry, GC_JSON_BEGIN_OBJECT, "it is no object", &token);
    while (status == GC_OK) {
        status = gc_json_reader_next(&header->json, &token);
        if (status != GC_OK || token.event == GC_JSON_END_OBJECT)
            break;
        status = read_member(header, entry, &token);
        if (entry->has_shape && !entry->has_offsets)
            gc_strmap_prefetch_text(&header->source->reader->tensor_names, hash);
    }
    if (status != GC_OK)
        return status;
    token.offset = offset;
    if (!entry->has_dtype || !entry->has_shape || !entry->has_offsets)
        return fail_entry(header, entry, &token,
                          "it lacks a key; dtype, shape and data_offsets are needed");
    return check_entry(header, entry);
}

static enum gc_status read_entry(struct header *header, const struct gc_json_token *key)
{
    struct gc_reader *reader = header->source->reader;
    const size_t length = key->length;
    char name[NAME_BYTES_HERE];
    struct entry entry;
    memset(&entry.tensor, 0, sizeof(entry.tensor));
    entry.has_dtype = entry.has_shape = entry.has_offsets = false;
    entry.tensor.dims = entry.dims;
    entry.tensor.file = header->source->file;
    entry.tensor.alias_of = GC_MODEL_NONE;
    entry.tensor.name = name;
    enum gc_status status = GC_OK;
    if (key->cut)
        return gc_source_fail(header->json.source, key->offset, "a name longer than %d bytes",
                              GC_JSON_READER_TEXT_MAX);
    /* The next token overwrites the key's text. A long or invalid name is copied to the region now.
     */
    if (length < sizeof(name) && memchr(key->text, '\0', length) == NULL)
        gc_text_copy(name, sizeof(name), key->text, length);
    else
        status = gc_reader_text(reader, header->source->path, "tensor", key->text, length,
                                &entry.tensor.name);
    if (status != GC_OK)
        return status;
    const uint32_t hash = gc_strmap_hash(&reader->tensor_names, key->text, length);
    gc_strmap_prefetch(&reader->tensor_names, hash);
    status = read_members(header, &entry, key, hash);
    return status == GC_OK ? add_entry(header, &entry, length, hash) : status;
}

static enum gc_status read_header(struct header *header)
{
    struct gc_json_token token;
    bool has_metadata = false;
    enum gc_status status = gc_json_reader_next(&header->json, &token);
    if (status == GC_OK && token.event != GC_JSON_BEGIN_OBJECT)
        return gc_source_fail(header->json.source, token.offset, "the header is no JSON object");
    while (status == GC_OK) {
        status = gc_json_reader_next(&header->json, &token);
        if (status != GC_OK || token.event == GC_JSON_END_OBJECT)
            break;
        if (!gc_json_token_is(&token, "__metadata__")) {
            status = read_entry(header, &token);
        } else if (has_metadata) {
            return gc_source_fail(header->json.source, token.offset, "__metadata__ twice");
        } else {
            has_metadata = true;
            /* Shards repeat the metadata: only the first shard's is kept. */
            status = gc_json_meta_read(&header->json, "__metadata__",
                                       header->shard == GC_MODEL_NONE || header->shard == 0);
        }
    }
    /* Only blanks may follow. */
    return status != GC_OK ? status : gc_json_reader_next(&header->json, &token);
}

/* The eight bytes before the header. */
static enum gc_status read_length(struct header *header)
{
    struct gc_source *source = header->source;
    const unsigned char *view;
    uint64_t length = 0;
    enum gc_status status = gc_source_view(source, 0, 8, "the header's length", &view);
    if (status != GC_OK)
        return status;
    for (unsigned i = 0; i < 8; i++)
        length |= (uint64_t)view[i] << (8 * i);
    if (length > GC_SAFETENSORS_HEADER_BYTES_MAX || length < 2)
        return gc_reader_fail(
            source->reader, GC_FORMAT, source->path,
            "byte 0: a header of %llu bytes; 2 to %llu are accepted%s", (unsigned long long)length,
            (unsigned long long)GC_SAFETENSORS_HEADER_BYTES_MAX,
            (length >> 32) != 0 && (uint32_t)length == 0 ? " (a big-endian length?)" : "");
    if (length > source->bytes - 8)
        return gc_reader_fail(source->reader, GC_FORMAT, source->path,
                              "byte 0: a header of %llu bytes, and the file has %llu: cut short",
                              (unsigned long long)length, (unsigned long long)source->bytes);
    header->data = 8 + length;
    header->data_bytes = source->bytes - header->data;
    source->ahead = header->data;
    return GC_OK;
}

enum gc_status gc_safetensors_read(struct gc_source *source, uint32_t shard)
{
    struct gc_reader *reader = source->reader;
    struct header header = {.source = source, .shard = shard};
    const uint32_t first = reader->tensor_count;
    enum gc_status status = gc_reader_add_file(reader, source->path, source->bytes, &source->file);
    if (status == GC_OK)
        status = read_length(&header);
    if (status != GC_OK)
        return status;
    gc_json_reader_init(&header.json, source, 8, header.data);
    status = read_header(&header);
    if (status != GC_OK)
        return status;
    if (header.foreign > 0)
        gc_reader_warn(reader, source->path,
                       "%llu tensors that the index does not name, \"%s\" among them; counted",
                       (unsigned long long)header.foreign,
                       GC_READER_SHOWN(header.foreign_name, strlen(header.foreign_name)));
    if (header.is_alone)
        gc_reader_warn(reader, source->path,
                       "the file is its header alone: the tensors' bytes are not there");
    if (reader->tensor_count == first && header.data_bytes > 0)
        return gc_reader_fail(
            reader, GC_FORMAT, source->path, "byte %llu: %llu bytes of data and no tensor",
            (unsigned long long)header.data, (unsigned long long)header.data_bytes);
    const struct gc_ranges ranges = {
        .first = first,
        .begin = header.data,
        .gaps_are_errors = true,
        .is_header_alone = header.is_alone,
    };
    return gc_ranges_check(reader, &ranges);
}

/* Shards by an index. The index promises each name to a shard; the shard's own header redeems it. A
 * promised tensor that is missing or in another shard is an error. */

struct index {
    struct gc_json_reader json;
    struct gc_reader *reader;
    const char *path;
    struct gc_strmap shards; /* file name → its number */
    const char **shard_names;
    uint32_t shard_count;
    uint32_t shard_room;
    bool has_map;
    bool has_total;
    uint64_t total_bytes;
};

/* The number of the shard that the index gives for a tensor. */
static enum gc_status number_shard(struct index *index, const struct gc_json_token *token,
                                   uint32_t *number)
{
    const struct gc_strmap_entry *known =
        gc_strmap_find(&index->shards, token->text, token->length);
    const char *name;
    if (known != NULL) {
        *number = known->value;
        return GC_OK;
    }
    if (gc_text_has_ending(token->text, token->length, ".bin") ||
        gc_text_has_ending(token->text, token->length, ".pt"))
        return gc_source_fail(index->json.source, token->offset,
                              "weight_map: \"%s\" is a PyTorch pickle; safetensors files are "
                              "accepted",
                              GC_READER_SHOWN(token->text, token->length));
    if (token->cut || token->length >= 4096)
        return gc_source_fail(index->json.source, token->offset,
                              "weight_map: a file name longer than 4095 bytes");
    if (index->shard_count >= index->reader->limits.files)
        return gc_reader_fail(index->reader, GC_OUT_OF_RANGE, index->path,
                              "weight_map names more than %u files", index->reader->limits.files);
    enum gc_status status = gc_reader_text(index->reader, index->path, "weight_map: file",
                                           token->text, token->length, &name);
    if (status == GC_OK)
        status =
            gc_reader_grow(index->reader, index->path, (void **)&index->shard_names,
                           index->shard_count, &index->shard_room, sizeof(*index->shard_names));
    if (status != GC_OK)
        return status;
    *number = index->shard_count;
    if (!gc_strmap_add(&index->shards, &index->reader->region, name, token->length, *number))
        return gc_reader_no_memory(index->reader, index->path);
    index->shard_names[index->shard_count++] = name;
    return GC_OK;
}

static enum gc_status read_promise(struct index *index, const struct gc_json_token *key)
{
    struct gc_reader *reader = index->reader;
    struct gc_json_token token;
    const char *name;
    uint32_t number = 0;
    if (key->cut)
        return gc_source_fail(index->json.source, key->offset, "a name longer than %d bytes",
                              GC_JSON_READER_TEXT_MAX);
    const size_t length = key->length;
    if (reader->tensor_names.used >= reader->limits.tensors)
        return gc_reader_fail(reader, GC_OUT_OF_RANGE, index->path,
                              "weight_map names more than %u tensors", reader->limits.tensors);
    const uint32_t hash = gc_strmap_hash(&reader->tensor_names, key->text, length);
    gc_strmap_prefetch(&reader->tensor_names, hash);
    const uint64_t offset = key->offset;
    enum gc_status status = gc_reader_text(reader, index->path, "tensor", key->text, length, &name);
    if (status == GC_OK)
        status = gc_json_reader_next(&index->json, &token);
    if (status != GC_OK)
        return status;
    if (token.event != GC_JSON_STRING)
        return gc_source_fail(index->json.source, token.offset,
                              "weight_map: tensor \"%s\": %s where a file name is expected",
                              GC_READER_SHOWN(name, length), gc_json_token_name(&token));
    status = number_shard(index, &token, &number);
    if (status != GC_OK)
        return status;
    bool added;
    struct gc_strmap_entry *promise = gc_strmap_find_or_add_hashed(
        &reader->tensor_names, &reader->region, name, length, hash, &added);
    if (promise == NULL)
        return gc_reader_no_memory(reader, index->path);
    if (!added)
        return gc_source_fail(index->json.source, offset,
                              "weight_map: tensor \"%s\" is there twice",
                              GC_READER_SHOWN(name, length));
    promise->value = number | GC_READER_PROMISED;
    return GC_OK;
}

/* Calls `take` for each member of an object. */
static enum gc_status each_member(struct index *index, const char *what,
                                  enum gc_status (*take)(struct index *,
                                                         const struct gc_json_token *))
{
    struct gc_json_token token;
    enum gc_status status = gc_json_reader_next(&index->json, &token);
    if (status == GC_OK && token.event != GC_JSON_BEGIN_OBJECT)
        return gc_source_fail(index->json.source, token.offset,
                              "%s: %s where an object is expected", what,
                              gc_json_token_name(&token));
    while (status == GC_OK) {
        status = gc_json_reader_next(&index->json, &token);
        if (status != GC_OK || token.event == GC_JSON_END_OBJECT)
            break;
        status = take(index, &token);
    }
    return status;
}

static enum gc_status read_metadata(struct index *index, const struct gc_json_token *key)
{
    struct gc_json_token token;
    const bool is_total = gc_json_token_is(key, "total_size");
    enum gc_status status = gc_json_reader_next(&index->json, &token);
    if (status == GC_OK && is_total)
        index->has_total = gc_json_token_uint(&token, &index->total_bytes);
    return status != GC_OK ? status : gc_json_reader_skip(&index->json, &token);
}

static enum gc_status read_top_member(struct index *index, const struct gc_json_token *key)
{
    struct gc_json_token token;
    if (gc_json_token_is(key, "metadata"))
        return each_member(index, "metadata", read_metadata);
    if (gc_json_token_is(key, "weight_map")) {
        if (index->has_map)
            return gc_source_fail(index->json.source, key->offset, "weight_map is there twice");
        index->has_map = true;
        return each_member(index, "weight_map", read_promise);
    }
    const enum gc_status status = gc_json_reader_next(&index->json, &token);
    return status != GC_OK ? status : gc_json_reader_skip(&index->json, &token);
}

/* An index whose files are all still elsewhere is a model by itself: by its total size, or by the
 * configuration beside it. */
static bool is_alone(const struct index *index, const struct gc_folder *folder)
{
    for (uint32_t i = 0; i < index->shard_count; i++) {
        if (gc_source_folder_has(folder, index->shard_names[i]))
            return false;
    }
    return index->total_bytes > 0 ||
           (index->shard_count > 0 && gc_source_folder_has(folder, "config.json"));
}

static void count_beside(const struct gc_strmap *names, struct gc_model *model)
{
    for (uint32_t i = 0; i < names->slot_count; i++) {
        const char *name = names->slots[i].text;
        if (name == NULL)
            continue;
        model->indexed_frequencies += gc_text_has_ending(name, strlen(name), ".inv_freq");
        model->indexed_predictions += gc_model_is_prediction(name);
    }
}

static enum gc_status take_index_alone(struct index *index)
{
    struct gc_model *model = index->reader->model;
    count_beside(&index->reader->tensor_names, model);
    model->indexed_bytes = index->total_bytes;
    model->indexed_tensors = index->reader->tensor_names.used;
    gc_strmap_init(&index->reader->tensor_names); /* none is a tensor */
    gc_reader_warn(index->reader, index->path,
                   index->total_bytes > 0
                       ? "none of its files is there: the bytes of the weights are its total_size"
                       : "none of its files is there, and it states no total_size");
    return GC_OK;
}

static enum gc_status read_shards(struct index *index, const struct gc_folder *folder)
{
    for (uint32_t i = 0; i < index->shard_count; i++) {
        struct gc_source source;
        enum gc_status status = gc_source_open_in(index->reader, folder, index->shard_names[i],
                                                  index->path, "weight_map", &source);
        if (status != GC_OK)
            return status;
        status = gc_safetensors_read(&source, i);
        gc_source_close(&source);
        if (status != GC_OK)
            return status;
    }
    return GC_OK;
}

static enum gc_status check_promises(struct index *index)
{
    const struct gc_strmap *names = &index->reader->tensor_names;
    for (uint32_t i = 0; i < names->slot_count; i++) {
        const struct gc_strmap_entry *name = &names->slots[i];
        if (name->text == NULL || (name->value & GC_READER_PROMISED) == 0)
            continue;
        const char *shard = index->shard_names[name->value & ~GC_READER_PROMISED];
        return gc_reader_fail(
            index->reader, GC_FORMAT, index->path, "weight_map: tensor \"%s\" is not in \"%s\"",
            GC_READER_SHOWN(name->text, strlen(name->text)), GC_READER_SHOWN(shard, strlen(shard)));
    }
    return GC_OK;
}

/* A wrong total does not affect the headers: a warning only. */
static enum gc_status check_total(struct index *index)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < index->reader->tensor_count; i++) {
        if (!gc_add_u64(bytes, index->reader->tensors[i].bytes, &bytes))
            return GC_OK; /* overflow: the totals fail later, with a message */
    }
    if (index->has_total && bytes != index->total_bytes)
        gc_reader_warn(index->reader, index->path,
                       "metadata: total_size is %llu, the tensors have %llu bytes",
                       (unsigned long long)index->total_bytes, (unsigned long long)bytes);
    return GC_OK;
}

enum gc_status gc_safetensors_read_index(struct gc_source *source, const struct gc_folder *folder)
{
    struct index index = {.reader = source->reader, .path = source->path};
    struct gc_json_token token;
    gc_strmap_init(&index.shards);
    gc_json_reader_init(&index.json, source, 0, source->bytes);
    enum gc_status status = each_member(&index, "the index", read_top_member);
    if (status == GC_OK)
        status = gc_json_reader_next(&index.json, &token);
    if (status == GC_OK && !index.has_map)
        status = gc_reader_fail(source->reader, GC_FORMAT, source->path,
                                "no weight_map: an index of safetensors shards has one");
    if (status == GC_OK && is_alone(&index, folder))
        return take_index_alone(&index);
    if (status == GC_OK)
        status = gc_reader_expect_tensors(source->reader, source->path,
                                          source->reader->tensor_names.used);
    if (status == GC_OK)
        status = read_shards(&index, folder);
    if (status == GC_OK)
        status = check_promises(&index);
    return status == GC_OK ? check_total(&index) : status;
}
