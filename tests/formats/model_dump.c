/* Prints what the library makes of a model as one JSON object, for tests in other languages.
 * usage: model_dump [--brief] PATH. Exit status 1, and the error alone on stderr, if it is refused.
 */
#include "core/io/json.h"
#include "core/model/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static struct gc_writer out;
static struct gc_json json;

static void put_value(const struct gc_meta_value *value)
{
    char number[40];
    switch (value->kind) {
    case GC_META_NULL:
        gc_json_null(&json);
        break;
    case GC_META_BOOL:
        gc_json_bool(&json, value->unsigned_value != 0);
        break;
    case GC_META_INTEGER:
        if (value->negative)
            gc_json_int(&json, (int64_t)-value->unsigned_value);
        else
            gc_json_uint(&json, value->unsigned_value);
        break;
    case GC_META_REAL:
        /* JSON knows no infinity: as text, for Python to read. */
        snprintf(number, sizeof(number), "%.17g", value->real);
        gc_json_string(&json, number);
        break;
    case GC_META_TEXT:
        gc_json_string(&json, value->text);
        break;
    default:
        gc_json_begin_array(&json, GC_JSON_LINE);
        for (uint64_t i = 0; i < value->kept; i++) {
            if (value->items[i].kind != GC_META_ARRAY)
                put_value(&value->items[i]);
        }
        gc_json_end_array(&json);
    }
}

static void put_metas(const struct gc_model *model)
{
    gc_json_key(&json, "metas");
    gc_json_begin_object(&json, GC_JSON_LINES);
    for (uint32_t i = 0; i < model->meta_count; i++) {
        gc_json_key(&json, model->metas[i].key);
        put_value(&model->metas[i].value);
    }
    gc_json_end_object(&json);
}

static void put_dims(const uint64_t *dims, uint32_t count, const char *const *symbols)
{
    gc_json_begin_array(&json, GC_JSON_LINE);
    for (uint32_t i = 0; i < count; i++) {
        if (dims[i] != GC_MODEL_UNKNOWN_DIM || symbols == NULL)
            gc_json_uint(&json, dims[i]);
        else if (symbols[i] != NULL)
            gc_json_string(&json, symbols[i]);
        else
            gc_json_null(&json);
    }
    gc_json_end_array(&json);
}

static void put_tensors(const struct gc_model *model)
{
    gc_json_key(&json, "tensors");
    gc_json_begin_array(&json, GC_JSON_LINES);
    for (uint32_t i = 0; i < model->tensor_count; i++) {
        const struct gc_model_tensor *tensor = &model->tensors[i];
        gc_json_begin_object(&json, GC_JSON_LINE);
        gc_json_write_string(&json, "name", tensor->name);
        gc_json_write_string(&json, "dtype", gc_dtype_name(tensor->dtype));
        gc_json_key(&json, "shape");
        put_dims(tensor->dims, tensor->dim_count, NULL);
        gc_json_write_uint(&json, "elements", tensor->elements);
        gc_json_write_uint(&json, "bytes", tensor->bytes);
        gc_json_write_uint(&json, "stored_bytes", tensor->stored_bytes);
        gc_json_write_uint(&json, "file", tensor->file);
        gc_json_key(&json, "offset");
        if (tensor->offset == GC_MODEL_NO_OFFSET)
            gc_json_null(&json);
        else
            gc_json_uint(&json, tensor->offset);
        gc_json_key(&json, "alias_of");
        if (tensor->alias_of == GC_MODEL_NONE)
            gc_json_null(&json);
        else
            gc_json_string(&json, model->tensors[tensor->alias_of].name);
        gc_json_end_object(&json);
    }
    gc_json_end_array(&json);
}

static void put_values(const struct gc_model *model)
{
    static const char *const kinds[] = {"input", "output", "inner"};
    gc_json_key(&json, "ports");
    gc_json_begin_array(&json, GC_JSON_LINES);
    for (uint32_t i = 0; i < model->value_count; i++) {
        const struct gc_model_value *declared = &model->values[i];
        gc_json_begin_object(&json, GC_JSON_LINE);
        gc_json_write_string(&json, "name", declared->name);
        gc_json_write_string(&json, "kind", kinds[declared->kind]);
        gc_json_write_string(&json, "dtype", gc_dtype_name(declared->dtype));
        gc_json_key(&json, "shape");
        if (declared->has_shape)
            put_dims(declared->dims, declared->dim_count, declared->symbols);
        else
            gc_json_null(&json);
        gc_json_end_object(&json);
    }
    gc_json_end_array(&json);
}

/* "VmHWM:    1234 kB" of /proc/self/status: of this program, not of the one that started it. */
static uint64_t peak_resident_bytes(void)
{
    char line[256];
    unsigned long long kilobytes = 0;
    FILE *file = fopen("/proc/self/status", "r");
    while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
        if (strncmp(line, "VmHWM:", 6) == 0)
            kilobytes = strtoull(line + 6, NULL, 10);
    }
    if (file != NULL)
        fclose(file);
    return kilobytes * 1024;
}

static const char *const format_names[] = {
    [GC_MODEL_SAFETENSORS] = "safetensors",
    [GC_MODEL_GGUF] = "gguf",
    [GC_MODEL_ONNX] = "onnx",
    [GC_MODEL_PLAIN] = "plain",
    [GC_MODEL_CONFIGURATION] = "configuration",
};

static void put_model(const struct gc_model *model, uint64_t ns, uint64_t cpu_ns, bool brief)
{
    gc_json_begin_object(&json, GC_JSON_LINES);
    gc_json_write_string(&json, "format", format_names[model->format]);
    gc_json_write_uint(&json, "weight_bytes", model->totals.weight_bytes);
    gc_json_write_uint(&json, "parameters", model->totals.parameters);
    gc_json_write_uint(&json, "stored_bytes", model->totals.stored_bytes);
    gc_json_write_uint(&json, "alias_bytes", model->totals.alias_bytes);
    gc_json_write_uint(&json, "tensor_count", model->tensor_count);
    gc_json_write_uint(&json, "header_bytes", model->header_bytes);
    gc_json_write_uint(&json, "memory_bytes", model->memory_bytes);
    gc_json_write_uint(&json, "resident_bytes", peak_resident_bytes());
    gc_json_write_uint(&json, "ns", ns);
    gc_json_write_uint(&json, "cpu_ns", cpu_ns);
    gc_json_key(&json, "has_config");
    gc_json_bool(&json, model->has_config);
    gc_json_key(&json, "files");
    gc_json_begin_array(&json, GC_JSON_LINES);
    for (uint32_t i = 0; i < model->file_count; i++)
        gc_json_string(&json, model->files[i].path);
    gc_json_end_array(&json);
    gc_json_key(&json, "warnings");
    gc_json_begin_array(&json, GC_JSON_LINES);
    for (uint32_t i = 0; i < model->warning_count; i++)
        gc_json_string(&json, model->warnings[i]);
    gc_json_end_array(&json);
    if (!brief) {
        put_metas(model);
        put_values(model);
        put_tensors(model);
    }
    gc_json_end_object(&json);
}

static uint64_t now_ns(clockid_t clock)
{
    struct timespec time;
    clock_gettime(clock, &time);
    return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

int main(int argc, char **argv)
{
    struct gc_model *model;
    struct gc_model_error error;
    const bool brief = argc == 3 && strcmp(argv[1], "--brief") == 0;
    if (argc != (brief ? 3 : 2)) {
        fputs("usage: model_dump [--brief] PATH\n", stderr);
        return 2;
    }
    const uint64_t cpu_begin = now_ns(CLOCK_PROCESS_CPUTIME_ID);
    const uint64_t begin = now_ns(CLOCK_MONOTONIC);
    if (gc_model_open(argv[argc - 1], NULL, &model, &error) != GC_OK) {
        fprintf(stderr, "%s\n", error.text);
        return 1;
    }
    const uint64_t ns = now_ns(CLOCK_MONOTONIC) - begin;
    const uint64_t cpu_ns = now_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu_begin;
    gc_writer_init(&out, 1);
    gc_json_init(&json, &out);
    put_model(model, ns, cpu_ns, brief);
    gc_model_close(model);
    return gc_writer_flush(&out) == GC_OK ? 0 : 1;
}
