/* Opens a model: detects the format, calls its reader, adds up the totals. */
#include "core/model/model.h"

#include "core/base/bits.h"
#include "core/formats/description.h"
#include "core/formats/gguf.h"
#include "core/formats/hf.h"
#include "core/formats/safetensors.h"
#include "core/onnx/onnx.h"
#include "core/reader/detect.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

/* The model and its region; the region contains this struct. */
struct owner {
    struct gc_model model;
    struct gc_region region;
    struct gc_strmap meta_names;
};

/* ---- reading ---- */

static enum gc_status read_safetensors(struct gc_source *source, const struct gc_folder *folder,
                                       bool index, bool whole_folder)
{
    struct gc_reader *reader = source->reader;
    reader->model->format = GC_MODEL_SAFETENSORS;
    enum gc_status status = index ? gc_safetensors_read_index(source, folder)
                                  : gc_safetensors_read(source, GC_MODEL_NONE);
    if (status == GC_OK)
        status = gc_hf_read_config(reader, folder, whole_folder);
    if (status == GC_OK)
        gc_hf_note_tie(reader, source->path);
    return status;
}

static enum gc_status read_configuration(struct gc_source *source)
{
    struct gc_model *model = source->reader->model;
    model->format = GC_MODEL_CONFIGURATION;
    enum gc_status status =
        gc_reader_add_file(source->reader, source->path, source->bytes, &source->file);
    if (status == GC_OK)
        status = gc_hf_read_config_file(source);
    model->has_config = status == GC_OK;
    if (status == GC_OK &&
        gc_strmap_find(&source->reader->meta_names, "model_type", strlen("model_type")) == NULL &&
        gc_strmap_find(&source->reader->meta_names, "architectures", strlen("architectures")) ==
            NULL)
        return gc_reader_fail(
            source->reader, GC_FORMAT, source->path,
            "neither model_type nor architectures: it does not say of which model "
            "it is the configuration");
    return status;
}

static enum gc_status read_source(struct gc_source *source, const struct gc_folder *folder,
                                  const char *name, bool whole_folder)
{
    struct gc_model *model = source->reader->model;
    enum gc_file_kind kind = GC_FILE_UNKNOWN;
    enum gc_json_kind json = GC_JSON_KIND_DESCRIPTION;
    enum gc_status status = gc_detect_format(source, name, &kind);
    if (status == GC_OK && kind == GC_FILE_JSON)
        status = gc_detect_json(source, &json);
    if (status != GC_OK)
        return status;
    if (kind == GC_FILE_SAFETENSORS || json == GC_JSON_KIND_INDEX)
        return read_safetensors(source, folder, json == GC_JSON_KIND_INDEX, whole_folder);
    if (kind == GC_FILE_GGUF) {
        model->format = GC_MODEL_GGUF;
        return gc_gguf_read(source, folder, name);
    }
    if (kind == GC_FILE_ONNX) {
        model->format = GC_MODEL_ONNX;
        return gc_onnx_read(source, folder);
    }
    if (json == GC_JSON_KIND_CONFIGURATION || strcmp(name, "config.json") == 0)
        return read_configuration(source);
    model->format = GC_MODEL_PLAIN;
    return gc_description_read(source);
}

static enum gc_status read_folder(struct gc_reader *reader, const char *path)
{
    struct gc_folder folder;
    struct gc_source source;
    enum gc_hf_kind kind;
    const char *name;
    enum gc_status status = gc_source_open_folder(reader, path, &folder);
    if (status != GC_OK)
        return status;
    status = gc_hf_find(reader, &folder, &name, &kind);
    if (status == GC_OK)
        status = gc_source_open_in(reader, &folder, name, path, "the folder", &source);
    if (status == GC_OK) {
        status = read_source(&source, &folder, name, true);
        gc_source_close(&source);
    }
    gc_source_close_folder(&folder);
    return status;
}

static enum gc_status read_file(struct gc_reader *reader, const char *path)
{
    struct gc_folder folder;
    struct gc_source source;
    const char *name;
    enum gc_status status = gc_source_open_with_folder(reader, path, &source, &folder, &name);
    if (status != GC_OK)
        return status;
    status = read_source(&source, &folder, name, false);
    gc_source_close_folder(&folder);
    gc_source_close(&source);
    return status;
}

static enum gc_status read_path(struct gc_reader *reader, const char *path)
{
    uint32_t mode;
    uint64_t bytes;
    if (gc_source_stat(AT_FDCWD, path, 0, &mode, &bytes) == 0 && S_ISDIR(mode))
        return read_folder(reader, path);
    return read_file(reader, path);
}

/* ---- totals ---- */

static enum gc_status add_up(struct gc_reader *reader, struct gc_model_totals *totals)
{
    *totals = (struct gc_model_totals){0};
    for (uint32_t i = 0; i < reader->tensor_count; i++) {
        const struct gc_model_tensor *tensor = &reader->tensors[i];
        const bool alias = tensor->alias_of != GC_MODEL_NONE;
        const bool counted = !alias && tensor->dtype != GC_DTYPE_TEXT;
        uint64_t *bytes = alias ? &totals->alias_bytes : &totals->weight_bytes;
        if (!gc_add_u64(*bytes, tensor->bytes, bytes) ||
            !gc_add_u64(totals->parameters, counted ? tensor->elements : 0, &totals->parameters) ||
            !gc_add_u64(totals->stored_bytes, alias ? 0 : tensor->stored_bytes,
                        &totals->stored_bytes))
            return gc_reader_fail(reader, GC_FORMAT, reader->model->path,
                                  "tensor \"%s\": with it the sum of all tensors overflows 64 bits",
                                  GC_READER_SHOWN(tensor->name, strlen(tensor->name)));
    }
    return GC_OK;
}

/* An ONNX model may have operators only; in other formats a file without tensors and configuration
 * is an error. */
static enum gc_status check_content(struct gc_reader *reader)
{
    const struct gc_model *model = reader->model;
    if (reader->tensor_count > 0 || model->has_config || model->indexed_tensors > 0 ||
        model->format == GC_MODEL_ONNX)
        return GC_OK;
    return gc_reader_fail(reader, GC_FORMAT, model->path,
                          "no tensors and no configuration: nothing is known of a model");
}

static void move_results(struct gc_reader *reader, void *memory)
{
    struct owner *owner = memory;
    struct gc_model *model = &owner->model;
    model->tensors = reader->tensors;
    model->tensor_count = reader->tensor_count;
    model->files = reader->files;
    model->file_count = reader->file_count;
    model->metas = reader->metas;
    model->meta_count = reader->meta_count;
    model->values = reader->values;
    model->value_count = reader->value_count;
    model->warnings = reader->warnings;
    model->warning_count = reader->warning_count;
    model->header_bytes = reader->header_bytes;
    model->memory_bytes = gc_region_bytes(&reader->region);
    owner->meta_names = reader->meta_names;
    model->meta_names = &owner->meta_names;
    owner->region = reader->region;
}

static enum gc_status read_model(struct gc_reader *reader, void *memory)
{
    struct owner *owner = memory;
    reader->model = &owner->model;
    reader->model->path = reader->path;
    enum gc_status status = read_path(reader, reader->path);
    if (status == GC_OK)
        status = add_up(reader, &owner->model.totals);
    return status == GC_OK ? check_content(reader) : status;
}

enum gc_status gc_model_open(const char *path, const struct gc_model_limits *limits,
                             struct gc_model **model, struct gc_model_error *error)
{
    static const struct gc_reading reading = {sizeof(struct owner), read_model, move_results};
    void *memory;
    const enum gc_status status = gc_reader_run(&reading, path, limits, error, &memory);
    *model = memory == NULL ? NULL : &((struct owner *)memory)->model;
    return status;
}

void gc_model_close(struct gc_model *model)
{
    if (model == NULL)
        return;
    /* The region contains its own struct: copy it before unmapping. */
    struct gc_region region = ((struct owner *)model)->region;
    gc_region_fini(&region);
}

const struct gc_meta_value *gc_model_find_meta(const struct gc_model *model, const char *key)
{
    if (model->meta_names != NULL) {
        const struct gc_strmap_entry *name = gc_strmap_find(model->meta_names, key, strlen(key));
        return name != NULL ? &model->metas[name->value].value : NULL;
    }
    for (uint32_t i = 0; i < model->meta_count; i++) {
        if (strcmp(model->metas[i].key, key) == 0)
            return &model->metas[i].value;
    }
    return NULL;
}
