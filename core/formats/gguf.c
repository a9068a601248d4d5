#include "core/formats/gguf.h"

#include "core/base/bits.h"
#include "core/formats/gguf_keys.h"
#include "core/formats/ranges.h"

#include <stdio.h>
#include <string.h>

#define DIMS_MAX 4 /* ggml's own */
#define NAME_BYTES_MAX 255

/* The file's dimensions, innermost first, as everywhere else: outermost first. */
static enum gc_status read_dims(struct gc_gguf *gguf, struct gc_model_tensor *tensor,
                                const char *shown)
{
    uint64_t offset = gguf->position;
    enum gc_status status = gc_gguf_u32(gguf, &tensor->dim_count);
    if (status != GC_OK)
        return status;
    if (tensor->dim_count > DIMS_MAX)
        return gc_source_fail(gguf->source, offset,
                              "tensor \"%s\": %u dimensions; 0 to %d are accepted", shown,
                              tensor->dim_count, DIMS_MAX);
    uint64_t *dims =
        gc_load_alloc(gguf->load, gguf->source->path, tensor->dim_count * sizeof(*dims));
    if (dims == NULL)
        return gc_load_no_memory(gguf->load, gguf->source->path);
    tensor->dims = dims;
    for (uint32_t i = tensor->dim_count; i-- > 0;) {
        offset = gguf->position;
        status = gc_gguf_u64(gguf, &dims[i]);
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
    const enum gc_status status = gc_gguf_u32(gguf, &type);
    if (status != GC_OK)
        return status;
    tensor->dtype = gc_dtype_from_gguf(type);
    if (tensor->dtype == GC_DTYPE_NONE)
        return gc_source_fail(gguf->source, offset, "tensor \"%s\": type %u is not known", shown,
                              type);
    const uint64_t block = gc_dtype_info(tensor->dtype)->block_elements;
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
    struct gc_load *load = gguf->load;
    struct gc_model_tensor tensor = {.file = gguf->source->file, .alias_of = GC_MODEL_NONE};
    const char *text;
    size_t length;
    gguf->what = "a tensor's description";
    enum gc_status status = gc_gguf_text(gguf, &text, &length);
    if (status == GC_OK)
        status = gc_load_text(load, gguf->source->path, "tensor", text, length, &tensor.name);
    if (status != GC_OK)
        return status;
    const char *shown = GC_LOAD_SHOWN(tensor.name, length);
    status = read_dims(gguf, &tensor, shown);
    if (status == GC_OK)
        status = read_type(gguf, &tensor, shown);
    const uint64_t offset = gguf->position;
    if (status == GC_OK)
        status = gc_gguf_u64(gguf, &tensor.offset);
    if (status == GC_OK)
        status = gc_load_size_tensor(load, gguf->source->path, &tensor);
    if (status != GC_OK)
        return status;
    if (tensor.offset % gguf->alignment != 0)
        return gc_source_fail(
            gguf->source, offset, "tensor \"%s\": its offset %llu is no multiple of %llu", shown,
            (unsigned long long)tensor.offset, (unsigned long long)gguf->alignment);
    tensor.stored_bytes = tensor.bytes;
    return gc_load_add_tensor(load, gguf->source->path, &tensor, true);
}

/* Offsets count from where the data begins, which is known only now. */
static enum gc_status place_tensors(struct gc_gguf *gguf, uint32_t first)
{
    struct gc_load *load = gguf->load;
    uint64_t begin;
    if (!gc_round_up_u64(gguf->position, gguf->alignment, &begin))
        return gc_source_fail(gguf->source, gguf->position, "the data begins beyond 2^64");
    for (uint32_t i = first; i < load->tensor_count; i++) {
        struct gc_model_tensor *tensor = &load->tensors[i];
        if (!gc_add_u64(begin, tensor->offset, &tensor->offset) ||
            tensor->offset == GC_MODEL_NO_OFFSET)
            return gc_load_fail(load, GC_FORMAT, gguf->source->path,
                                "tensor \"%s\": its offset overflows 64 bits",
                                GC_LOAD_SHOWN(tensor->name, strlen(tensor->name)));
    }
    const struct gc_ranges ranges = {
        .first = first,
        .begin = begin,
        .slack = gguf->alignment - 1,
    };
    if (gguf->source->bytes < begin && load->tensor_count > first)
        return gc_source_fail(gguf->source, gguf->source->bytes,
                              "the file ends before its data, which begins at byte %llu",
                              (unsigned long long)begin);
    return gc_ranges_check(load, &ranges);
}

static enum gc_status read_tensors(struct gc_gguf *gguf)
{
    const uint32_t first = gguf->load->tensor_count;
    enum gc_status status =
        gc_load_add_file(gguf->load, gguf->source->path, gguf->source->bytes, &gguf->source->file);
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
    struct gc_load *load;
    const struct gc_folder *folder;
    const char *named_by; /* the file that was asked for */
    char name[NAME_BYTES_MAX + 1];
    size_t stem; /* bytes of the name before the tail */
    uint64_t count;
    uint64_t number; /* of the file that was asked for */
    uint64_t tensors;
};

static enum gc_status prepare_shards(struct shards *shards, const struct gc_gguf *gguf,
                                     const char *name)
{
    char tail[TAIL_BYTES + 16];
    const size_t length = strlen(name);
    if (gguf->split_number >= gguf->split_count || gguf->split_count > gguf->load->limits.files ||
        gguf->split_count > 99999)
        return gc_load_fail(
            gguf->load, GC_FORMAT, gguf->source->path,
            "split.no is %llu and split.count %llu: a shard below the count, and at "
            "most %u shards, are accepted",
            (unsigned long long)gguf->split_number, (unsigned long long)gguf->split_count,
            gguf->load->limits.files);
    write_tail(tail, gguf->split_number, gguf->split_count);
    const size_t tail_length = strlen(tail);
    if (length <= tail_length || length > NAME_BYTES_MAX ||
        strcmp(name + length - tail_length, tail) != 0)
        return gc_load_fail(gguf->load, GC_FORMAT, gguf->source->path,
                            "shard %llu of %llu by its keys: its name should end in \"%s\" so that "
                            "the others can be found",
                            (unsigned long long)gguf->split_number + 1,
                            (unsigned long long)gguf->split_count, tail);
    memcpy(shards->name, name, length + 1);
    shards->stem = length - tail_length;
    shards->count = gguf->split_count;
    shards->number = gguf->split_number;
    shards->tensors = gguf->split_tensors;
    return GC_OK;
}

static enum gc_status read_shard(struct shards *shards, struct gc_source *source, uint64_t number)
{
    struct gc_gguf gguf = {.source = source, .load = shards->load};
    enum gc_status status = gc_gguf_read_head(&gguf);
    if (status == GC_OK)
        status = gc_gguf_read_keys(&gguf, number == 0);
    if (status == GC_OK && (gguf.split_count != shards->count || gguf.split_number != number))
        return gc_load_fail(shards->load, GC_FORMAT, source->path,
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
        status = gc_source_open_in(shards->load, shards->folder, shards->name, shards->named_by,
                                   "split.count", &source);
        if (status != GC_OK)
            break;
        status = read_shard(shards, &source, i);
        gc_source_close(&source);
    }
    if (status != GC_OK || shards->tensors == 0 || shards->tensors == shards->load->tensor_count)
        return status;
    return gc_load_fail(shards->load, GC_FORMAT, shards->named_by,
                        "split.tensors.count is %llu, and the shards have %u tensors",
                        (unsigned long long)shards->tensors, shards->load->tensor_count);
}

enum gc_status gc_gguf_read(struct gc_source *source, const struct gc_folder *folder,
                            const char *name)
{
    struct gc_load *load = source->load;
    struct gc_gguf gguf = {.source = source, .load = load};
    enum gc_status status = gc_gguf_read_head(&gguf);
    if (status == GC_OK)
        status = gc_gguf_read_keys(&gguf, true);
    load->model->has_config = true;
    if (status != GC_OK)
        return status;
    if (gguf.split_count <= 1)
        return read_tensors(&gguf);
    /* From the first shard on: its keys are the model's. */
    struct shards shards = {.load = load, .folder = folder, .named_by = source->path};
    status = prepare_shards(&shards, &gguf, name);
    load->meta_count = 0;
    gc_names_init(&load->meta_names);
    return status == GC_OK ? read_shards(&shards, source) : status;
}
