/* For the fuzzers of model files: writes the input where a model could be, opens it, and looks at
 * all that comes of it. The folder lives in memory where there is such a place, and goes at exit.
 */
#ifndef GC_FUZZ_MODEL_INPUT_H
#define GC_FUZZ_MODEL_INPUT_H

#include "core/model.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char folder[64];

static void remove_folder(void)
{
    char command[96];
    snprintf(command, sizeof(command), "rm -rf '%s'", folder);
    if (system(command) != 0) /* NOLINT(cert-env33-c) */
        perror(folder);
}

static void put_file(const char *name, const void *data, size_t bytes)
{
    char path[128];
    if (folder[0] == '\0') {
        snprintf(folder, sizeof(folder), "%s/gpucache-fuzz.XXXXXX",
                 access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
        if (mkdtemp(folder) == NULL)
            abort();
        atexit(remove_folder);
    }
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, data, bytes) != (ssize_t)bytes)
        abort();
    close(fd);
}

static void must(bool holds)
{
    if (!holds)
        abort();
}

static size_t look_at_value(const struct gc_meta_value *value)
{
    size_t seen = 0;
    if (value->kind == GC_META_TEXT)
        seen += strlen(value->text);
    if (value->kind != GC_META_ARRAY)
        return seen;
    must(value->kept <= value->count);
    for (uint64_t i = 0; i < value->kept; i++) {
        must(value->items[i].kind != GC_META_ARRAY);
        if (value->items[i].kind == GC_META_TEXT)
            seen += strlen(value->items[i].text);
    }
    return seen;
}

static void look_at_tensors(const struct gc_model *model)
{
    uint64_t weights = 0;
    uint64_t aliases = 0;
    for (uint32_t i = 0; i < model->tensor_count; i++) {
        const struct gc_model_tensor *tensor = &model->tensors[i];
        uint64_t elements = 1;
        uint64_t bytes = 0;
        for (uint32_t k = 0; k < tensor->dim_count; k++)
            elements *= tensor->dims[k];
        must(elements == tensor->elements);
        must(gc_dtype_bytes(tensor->dtype, elements, &bytes) || tensor->dtype == GC_DTYPE_TEXT);
        must(bytes == tensor->bytes);
        must(gc_model_tensor(model, tensor->name) != NULL);
        must(tensor->file < model->file_count);
        must(tensor->offset == GC_MODEL_NO_OFFSET || tensor->stored_bytes == 0 ||
             tensor->offset + tensor->stored_bytes <= model->files[tensor->file].bytes);
        must(tensor->alias_of == GC_MODEL_NONE || tensor->alias_of < model->tensor_count);
        if (tensor->alias_of == GC_MODEL_NONE)
            weights += tensor->bytes;
        else
            aliases += tensor->bytes;
    }
    must(weights == model->totals.weight_bytes && aliases == model->totals.alias_bytes);
}

/* Opens `name` in the folder, or the folder itself where it is "". */
static void open_model(const char *name)
{
    /* Small bounds: an input that makes the library work long is found by its time. */
    const struct gc_model_limits limits = {
        .memory_bytes = 32U << 20, .header_bytes = 64U << 20, .tensors = 10000, .files = 16};
    size_t seen = 0;
    struct gc_model_error error;
    struct gc_model *model;
    char path[128];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    const enum gc_status status = gc_model_open(path, &limits, &model, &error);
    if (status != GC_OK) {
        must(model == NULL && error.text[0] != '\0' && strchr(error.text, '\n') == NULL);
        must(strlen(error.text) < sizeof(error.text));
        return;
    }
    must(model->memory_bytes <= limits.memory_bytes + (1U << 20));
    look_at_tensors(model);
    for (uint32_t i = 0; i < model->meta_count; i++) {
        seen += look_at_value(&model->metas[i].value);
        must(gc_model_meta(model, model->metas[i].key) == &model->metas[i].value);
    }
    for (uint32_t i = 0; i < model->port_count; i++) {
        for (uint32_t k = 0; k < model->ports[i].dim_count; k++)
            seen += model->ports[i].symbols[k] != NULL ? strlen(model->ports[i].symbols[k])
                                                       : model->ports[i].dims[k] & 1;
    }
    for (uint32_t i = 0; i < model->warning_count; i++)
        must(strchr(model->warnings[i], '\n') == NULL);
    static volatile size_t sink;
    sink = seen;
    (void)sink;
    gc_model_close(model);
}

#endif
