/* For the fuzzers of model files: writes the input where a model could be, opens it, and looks at
 * all that comes of it. The folder lives in memory where there is such a place, and goes at exit.
 */
#ifndef GC_FUZZ_MODEL_INPUT_H
#define GC_FUZZ_MODEL_INPUT_H

#include "core/estimator/fit.h"
#include "core/estimator/present.h"
#include "core/estimator/train.h"
#include "core/model/model.h"

#include <fcntl.h>
#include <jansson.h>
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

/* The output of `write`, in a buffer that the next call uses again. */
static const char *written(void (*write)(struct gc_writer *out, const struct gc_answer *answer),
                           const struct gc_answer *answer, size_t *bytes)
{
    static char text[1 << 20];
    static struct gc_writer out;
    static FILE *file;
    if (file == NULL)
        file = tmpfile();
    must(file != NULL);
    const int fd = fileno(file);
    must(ftruncate(fd, 0) == 0 && lseek(fd, 0, SEEK_SET) == 0);
    gc_writer_init(&out, fd);
    write(&out, answer);
    must(gc_writer_flush(&out) == GC_OK);
    const ssize_t got = pread(fd, text, sizeof(text), 0);
    must(got > 0 && (size_t)got < sizeof(text));
    *bytes = (size_t)got;
    return text;
}

static void write_json(struct gc_writer *out, const struct gc_answer *answer)
{
    struct gc_json json;
    gc_json_init(&json, out);
    gc_present_json(&json, answer);
}

/* Foreign text may be anywhere in it: the JSON is strict, the text has no control characters. */
static void look_at_answer(const struct gc_answer *answer)
{
    size_t bytes;
    const char *text = written(write_json, answer, &bytes);
    json_t *parsed = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, NULL);
    must(parsed != NULL);
    json_decref(parsed);
    text = written(gc_present_text, answer, &bytes);
    for (size_t i = 0; i < bytes; i++)
        must((unsigned char)text[i] >= ' ' || text[i] == '\n');
}

/* A request that follows from the model's counts, so that inputs reach every engine, kind of
 * quantised file and split; `memory`: of each device. */
static struct gc_estimate_request request_for(const struct gc_model *model, const uint64_t *memory)
{
    const uint32_t metas = model->meta_count;
    const uint32_t tensors = model->tensor_count;
    struct gc_estimate_request request;
    gc_estimate_request_init(&request);
    request.batch = tensors % 5 + 1;
    request.device_count = metas % 4 + 1;
    request.split = tensors % 2 == 0 ? GC_SPLIT_LAYERS : GC_SPLIT_TENSOR;
    request.engine = (enum gc_engine)((metas + tensors) % (GC_ENGINE_COUNT + 1));
    request.mix = (enum gc_mix)(metas / 2 % (GC_MIX_COUNT + 1));
    request.scores_materialised = metas % 3 == 1;
    request.memory_bytes = metas % 2 == 0 ? memory : NULL;
    if (tensors % 3 == 1)
        request.device_layers = metas;
    request.dims = "batch=2,height=224";
    return request;
}

/* A training run that follows from them. */
static struct gc_estimate_request training_for(const struct gc_model *model)
{
    const uint32_t metas = model->meta_count;
    const uint32_t tensors = model->tensor_count;
    struct gc_estimate_request request;
    gc_estimate_request_init(&request);
    request.batch = tensors % 5 + 1;
    request.training.optimiser = (enum gc_optimiser)(tensors % GC_OPTIMISER_COUNT);
    request.training.is_mixed = metas % 2 == 0;
    request.training.is_checkpointed = metas % 3 == 0;
    request.training.lora_rank = tensors % 3;
    if (metas % 4 > 0) {
        request.device_count = metas % 4 + 1;
        request.training.zero_stage = tensors % (GC_TRAINING_ZERO_MAX + 1);
    }
    return request;
}

/* Whatever a file holds, its estimate adds up, or an error names the part that does not. */
static void estimate_request(const struct gc_model *model, const struct gc_estimator *estimator,
                             const struct gc_estimate_request *request)
{
    static struct gc_estimate estimate;
    struct gc_estimate_budget budget;
    struct gc_suggestions suggestions;
    struct gc_fit fit;
    uint64_t sum = 0;
    const enum gc_status status = gc_estimator_run(estimator, request, &estimate);
    must(status == GC_OK || status == GC_OVERFLOW);
    for (unsigned part = 0; status == GC_OK && part < GC_ESTIMATE_PART_COUNT; part++)
        sum += estimate.total.parts[part];
    must(status != GC_OK || sum == estimate.total.peak_bytes);
    gc_fit_set_budget(&budget, UINT64_C(1) << 33);
    gc_fit_check(&estimate, &budget, &fit);
    must(gc_fit_suggest(estimator, request, &budget, &suggestions) == GC_OK);
    if (status == GC_OK)
        look_at_answer(&(struct gc_answer){.model = model->path,
                                           .estimate = &estimate,
                                           .fit = &fit,
                                           .budget = &budget,
                                           .suggestions = &suggestions});
}

static void estimate_model(const struct gc_model *model, enum gc_dtype dtype)
{
    static uint64_t memory[GC_ESTIMATE_DEVICE_MAX];
    struct gc_estimator *estimator;
    if (gc_estimator_open(model, dtype, &estimator) != GC_OK)
        return;
    for (unsigned i = 0; i < GC_ESTIMATE_DEVICE_MAX; i++)
        memory[i] = UINT64_C(1) << 33;
    const struct gc_estimate_request request = request_for(model, memory);
    const struct gc_estimate_request training = training_for(model);
    estimate_request(model, estimator, &request);
    if (gc_train_find_refusal(estimator, &training) == NULL)
        estimate_request(model, estimator, &training);
    gc_estimator_close(estimator);
}

/* Opens `name` in the folder, or the folder itself where it is "". */
static inline void open_model(const char *name)
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
    estimate_model(model, GC_DTYPE_NONE);
    estimate_model(model, GC_DTYPE_Q4_0);
    for (uint32_t i = 0; i < model->meta_count; i++) {
        seen += look_at_value(&model->metas[i].value);
        must(gc_model_find_meta(model, model->metas[i].key) == &model->metas[i].value);
    }
    for (uint32_t i = 0; i < model->value_count; i++) {
        for (uint32_t k = 0; k < model->values[i].dim_count; k++)
            seen += model->values[i].symbols[k] != NULL ? strlen(model->values[i].symbols[k])
                                                        : model->values[i].dims[k] & 1;
    }
    for (uint32_t i = 0; i < model->warning_count; i++)
        must(strchr(model->warnings[i], '\n') == NULL);
    static volatile size_t sink;
    sink = seen;
    (void)sink;
    gc_model_close(model);
}

#endif
