#include "core/formats/description.h"

#include "core/reader/json_meta.h"

#include <string.h>

#define DIMS_MAX 64

struct entry {
    struct gc_model_tensor tensor;
    uint64_t dims[DIMS_MAX];
    bool has_shape;
};

static enum gc_status fail(struct gc_json_reader *json, const struct entry *entry,
                           const struct gc_json_token *token, const char *what)
{
    const uint32_t index = json->source->reader->tensor_count;
    const char *name = entry->tensor.name != NULL ? entry->tensor.name : "";
    return gc_source_fail(json->source, token->offset, "tensors[%u] \"%s\": %s", index,
                          GC_READER_SHOWN(name, strlen(name)), what);
}

static enum gc_status read_shape(struct gc_json_reader *json, struct entry *entry)
{
    static const char what[] = "its shape is no array of at most 64 whole numbers";
    struct gc_json_token token;
    enum gc_status status = gc_json_reader_next(json, &token);
    if (status == GC_OK && token.event != GC_JSON_BEGIN_ARRAY)
        return fail(json, entry, &token, what);
    for (;;) {
        if (status == GC_OK)
            status = gc_json_reader_next(json, &token);
        if (status != GC_OK || token.event == GC_JSON_END_ARRAY)
            return status;
        if (entry->tensor.dim_count == DIMS_MAX ||
            !gc_json_token_uint(&token, &entry->dims[entry->tensor.dim_count]))
            return fail(json, entry, &token, what);
        entry->tensor.dim_count++;
    }
}

static enum gc_status read_string(struct gc_json_reader *json, const struct entry *entry,
                                  const char *what, struct gc_json_token *token)
{
    const enum gc_status status = gc_json_reader_next(json, token);
    if (status == GC_OK && (token->event != GC_JSON_STRING || token->cut))
        return fail(json, entry, token, what);
    return status;
}

static enum gc_status read_alias(struct gc_json_reader *json, struct entry *entry)
{
    const struct gc_reader *reader = json->source->reader;
    struct gc_json_token token;
    enum gc_status status = read_string(json, entry, "alias_of is no name", &token);
    if (status != GC_OK)
        return status;
    const struct gc_strmap_entry *name =
        gc_strmap_find(&reader->tensor_names, token.text, token.length);
    if (name == NULL)
        return fail(json, entry, &token, "alias_of names no tensor before it");
    entry->tensor.alias_of = reader->tensors[name->value].alias_of != GC_MODEL_NONE
                                 ? reader->tensors[name->value].alias_of
                                 : name->value;
    return GC_OK;
}

static enum gc_status read_member(struct gc_json_reader *json, struct entry *entry,
                                  const struct gc_json_token *key)
{
    struct gc_model_tensor *tensor = &entry->tensor;
    struct gc_json_token token;
    enum gc_status status;
    if (gc_json_token_is(key, "name") && tensor->name == NULL) {
        status = read_string(json, entry, "its name is no string", &token);
        return status != GC_OK ? status
                               : gc_reader_text(json->source->reader, json->source->path, "tensor",
                                                token.text, token.length, &tensor->name);
    }
    if (gc_json_token_is(key, "dtype") && tensor->dtype == GC_DTYPE_NONE) {
        status = read_string(json, entry, "its dtype is no string", &token);
        if (status != GC_OK)
            return status;
        tensor->dtype = gc_dtype_from_word(token.text, token.length);
        if (tensor->dtype != GC_DTYPE_NONE && gc_dtype_get_info(tensor->dtype)->block_bytes > 0)
            return GC_OK;
        return fail(json, entry, &token,
                    "its dtype is not known; f32, bf16, int8, q4_k and the like are accepted");
    }
    if (gc_json_token_is(key, "shape") && !entry->has_shape) {
        entry->has_shape = true;
        return read_shape(json, entry);
    }
    if (gc_json_token_is(key, "alias_of") && tensor->alias_of == GC_MODEL_NONE)
        return read_alias(json, entry);
    return fail(json, entry, key,
                "a key that is there twice or not known; name, dtype, shape and alias_of are");
}

static enum gc_status read_entry(struct gc_json_reader *json, const struct gc_json_token *begin)
{
    struct gc_reader *reader = json->source->reader;
    const char *path = json->source->path;
    struct gc_json_token token;
    struct entry entry;
    memset(&entry, 0, sizeof(entry));
    entry.tensor.dtype = GC_DTYPE_NONE;
    entry.tensor.alias_of = GC_MODEL_NONE;
    entry.tensor.file = json->source->file;
    entry.tensor.offset = GC_MODEL_NO_OFFSET;
    entry.tensor.dims = entry.dims;
    for (;;) {
        const enum gc_status status = gc_json_reader_next(json, &token);
        if (status != GC_OK)
            return status;
        if (token.event == GC_JSON_END_OBJECT)
            break;
        const enum gc_status taken = read_member(json, &entry, &token);
        if (taken != GC_OK)
            return taken;
    }
    if (entry.tensor.name == NULL || entry.tensor.dtype == GC_DTYPE_NONE || !entry.has_shape)
        return fail(json, &entry, begin, "name, dtype and shape are needed");
    const enum gc_status status = gc_reader_size_tensor(reader, path, &entry.tensor);
    if (status != GC_OK)
        return status;
    if (entry.tensor.alias_of != GC_MODEL_NONE &&
        entry.tensor.bytes > reader->tensors[entry.tensor.alias_of].bytes)
        return fail(json, &entry, begin, "it is larger than the tensor it is an alias of");
    const uint64_t dims_bytes = entry.tensor.dim_count * sizeof(*entry.dims);
    uint64_t *dims = gc_reader_alloc(reader, path, dims_bytes);
    if (dims == NULL)
        return gc_reader_no_memory(reader, path);
    memcpy(dims, entry.dims, dims_bytes);
    entry.tensor.dims = dims;
    return gc_reader_add_tensor(reader, path, &entry.tensor, true);
}

static enum gc_status read_tensors(struct gc_json_reader *json)
{
    struct gc_json_token token;
    enum gc_status status = gc_json_reader_next(json, &token);
    if (status == GC_OK && token.event != GC_JSON_BEGIN_ARRAY)
        return gc_source_fail(json->source, token.offset, "tensors: %s where an array is expected",
                              gc_json_token_name(&token));
    while (status == GC_OK) {
        status = gc_json_reader_next(json, &token);
        if (status != GC_OK || token.event == GC_JSON_END_ARRAY)
            break;
        if (token.event != GC_JSON_BEGIN_OBJECT)
            return gc_source_fail(json->source, token.offset,
                                  "tensors[%u]: %s where an object is expected",
                                  json->source->reader->tensor_count, gc_json_token_name(&token));
        status = read_entry(json, &token);
    }
    return status;
}

enum gc_status gc_description_read(struct gc_source *source)
{
    struct gc_reader *reader = source->reader;
    struct gc_json_reader json;
    struct gc_json_token token;
    bool has_tensors = false;
    gc_json_reader_init(&json, source, 0, source->bytes);
    json.takes_python = true; /* as in the config.json that the config may come from */
    enum gc_status status = gc_reader_add_file(reader, source->path, source->bytes, &source->file);
    if (status == GC_OK)
        status = gc_json_reader_next(&json, &token);
    if (status == GC_OK && token.event != GC_JSON_BEGIN_OBJECT)
        return gc_source_fail(json.source, token.offset, "%s where an object is expected",
                              gc_json_token_name(&token));
    while (status == GC_OK) {
        status = gc_json_reader_next(&json, &token);
        if (status != GC_OK || token.event == GC_JSON_END_OBJECT)
            break;
        if (gc_json_token_is(&token, "tensors") && !has_tensors) {
            has_tensors = true;
            status = read_tensors(&json);
        } else if (gc_json_token_is(&token, "config") && !reader->model->has_config) {
            reader->model->has_config = true;
            status = gc_json_meta_read(&json, NULL, true);
        } else {
            return gc_source_fail(json.source, token.offset,
                                  "\"%s\": a key that is there twice or not known; a "
                                  "description has tensors and config, an index weight_map",
                                  GC_READER_SHOWN(token.text, token.length));
        }
    }
    if (status == GC_OK)
        status = gc_json_reader_next(&json, &token);
    if (status == GC_OK && !has_tensors)
        status = gc_reader_fail(reader, GC_FORMAT, source->path,
                                "no \"tensors\": a description of a model has them");
    return status;
}
