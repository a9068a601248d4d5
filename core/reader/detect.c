#include "core/reader/detect.h"

#include "core/io/text.h"
#include "core/reader/json_reader.h"

#include <string.h>

/* Unsupported files that users try, by their first bytes. */
static const struct {
    const char *bytes;
    uint8_t offset;
    uint8_t count;
    const char *what;
} unsupported_signatures[] = {
    {"PK\003\004", 0, 4, "a zip archive, as PyTorch's .pt and .bin files are"},
    {"\200\002", 0, 2, "a Python pickle, as old PyTorch files are"},
    {"\211HDF\r\n\032\n", 0, 8, "an HDF5 file, as Keras's are"},
    {"version https://git-lfs", 0, 23, "a Git LFS pointer, not the model it stands for"},
    {"ORTM", 4, 4, "an ONNX Runtime .ort file"},
    {"TFL3", 4, 4, "a TensorFlow Lite file"},
    {"lmgg", 0, 4, "a GGML file older than GGUF"},
    {"tjgg", 0, 4, "a GGML file older than GGUF"},
    {"fmgg", 0, 4, "a GGML file older than GGUF"},
    {"algg", 0, 4, "a GGML adapter older than GGUF"},
    {"\223NUMPY", 0, 6, "a NumPy array"},
};

static bool begins_json(const unsigned char *view, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (view[i] != ' ' && view[i] != '\n' && view[i] != '\r' && view[i] != '\t')
            return view[i] == '{' || (view[i] == 0xef && i == 0);
    }
    return false;
}

/* By a signature that only one format has. */
static enum gc_file_kind kind_by_content(const unsigned char *view, size_t count, uint64_t bytes)
{
    uint64_t length = 0;
    for (size_t i = 0; i < 8 && i < count; i++)
        length |= (uint64_t)view[i] << (8 * i);
    if (count >= 4 && memcmp(view, "GGUF", 4) == 0)
        return GC_FILE_GGUF;
    if (count > 8 && view[8] == '{' && length <= bytes - 8 &&
        length <= GC_SAFETENSORS_HEADER_BYTES_MAX)
        return GC_FILE_SAFETENSORS;
    return begins_json(view, count) ? GC_FILE_JSON : GC_FILE_UNKNOWN;
}

static const char *unsupported_kind(const unsigned char *view, size_t count)
{
    for (size_t i = 0; i < sizeof(unsupported_signatures) / sizeof(*unsupported_signatures); i++) {
        const size_t end =
            (size_t)unsupported_signatures[i].offset + unsupported_signatures[i].count;
        if (count >= end &&
            memcmp(view + unsupported_signatures[i].offset, unsupported_signatures[i].bytes,
                   unsupported_signatures[i].count) == 0)
            return unsupported_signatures[i].what;
    }
    return NULL;
}

static enum gc_file_kind kind_by_name(const char *name, const unsigned char *view, size_t count)
{
    if (gc_text_has_ending(name, strlen(name), ".safetensors"))
        return GC_FILE_SAFETENSORS;
    if (gc_text_has_ending(name, strlen(name), ".json"))
        return GC_FILE_JSON;
    if (gc_text_has_ending(name, strlen(name), ".gguf"))
        return GC_FILE_GGUF;
    /* ModelProto begins with its ir_version, field 1, a small number. */
    if (gc_text_has_ending(name, strlen(name), ".onnx") ||
        (count >= 2 && view[0] == 0x08 && view[1] < 0x40))
        return GC_FILE_ONNX;
    return GC_FILE_UNKNOWN;
}

enum gc_status gc_detect_format(struct gc_source *source, const char *name, enum gc_file_kind *kind)
{
    static const char accepted[] =
        "safetensors, GGUF, ONNX, a config.json and a JSON description are accepted";
    const unsigned char *view;
    size_t count;
    const enum gc_status status = gc_source_more(source, 0, &view, &count);
    if (status != GC_OK)
        return status;
    if (count == 0)
        return gc_reader_fail(source->reader, GC_FORMAT, source->path, "the file is empty; %s",
                              accepted);
    *kind = kind_by_content(view, count, source->bytes);
    if (*kind != GC_FILE_UNKNOWN)
        return GC_OK;
    const char *what = unsupported_kind(view, count);
    if (what != NULL)
        return gc_reader_fail(source->reader, GC_FORMAT, source->path, "%s; %s", what, accepted);
    *kind = kind_by_name(name, view, count);
    if (*kind != GC_FILE_UNKNOWN)
        return GC_OK;
    return gc_reader_fail(source->reader, GC_FORMAT, source->path, "byte 0: of no known format; %s",
                          accepted);
}

static enum gc_json_kind kind_of_key(const struct gc_json_token *key)
{
    if (gc_json_token_is(key, "weight_map"))
        return GC_JSON_KIND_INDEX;
    if (gc_json_token_is(key, "model_type") || gc_json_token_is(key, "architectures"))
        return GC_JSON_KIND_CONFIGURATION;
    return GC_JSON_KIND_DESCRIPTION;
}

enum gc_status gc_detect_json(struct gc_source *source, enum gc_json_kind *kind)
{
    struct gc_json_reader json;
    struct gc_json_token token;
    gc_json_reader_init(&json, source, 0, source->bytes);
    json.takes_python = true;
    *kind = GC_JSON_KIND_DESCRIPTION;
    enum gc_status status = gc_json_reader_next(&json, &token);
    if (status != GC_OK || token.event != GC_JSON_BEGIN_OBJECT)
        return status;
    for (;;) {
        status = gc_json_reader_next(&json, &token);
        if (status != GC_OK || token.event == GC_JSON_END_OBJECT)
            return status;
        *kind = kind_of_key(&token);
        if (*kind != GC_JSON_KIND_DESCRIPTION || gc_json_token_is(&token, "tensors"))
            return GC_OK;
        status = gc_json_reader_next(&json, &token);
        if (status == GC_OK)
            status = gc_json_reader_skip(&json, &token);
        if (status != GC_OK)
            return status;
    }
}
