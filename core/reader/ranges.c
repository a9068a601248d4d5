#include "core/reader/ranges.h"

#include <string.h>

/* By file, offset, size, then original order. */
static bool comes_before(const struct gc_model_tensor *tensors, uint32_t a, uint32_t b)
{
    const struct gc_model_tensor *x = &tensors[a];
    const struct gc_model_tensor *y = &tensors[b];
    if (x->file != y->file)
        return x->file < y->file;
    if (x->offset != y->offset)
        return x->offset < y->offset;
    return x->stored_bytes != y->stored_bytes ? x->stored_bytes < y->stored_bytes : a < b;
}

static void sift_down(const struct gc_model_tensor *tensors, uint32_t *order, uint32_t at,
                      uint32_t count)
{
    const uint32_t moved = order[at];
    for (;;) {
        uint32_t child = at * 2 + 1;
        if (child >= count)
            break;
        if (child + 1 < count && comes_before(tensors, order[child], order[child + 1]))
            child++;
        if (!comes_before(tensors, moved, order[child]))
            break;
        order[at] = order[child];
        at = child;
    }
    order[at] = moved;
}

/* Heapsort: in place, and O(n log n) for every input a file can contain. */
static void sort(const struct gc_model_tensor *tensors, uint32_t *order, uint32_t count)
{
    bool sorted = true;
    for (uint32_t i = 1; i < count && sorted; i++)
        sorted = comes_before(tensors, order[i - 1], order[i]);
    if (sorted)
        return;
    for (uint32_t i = count / 2; i-- > 0;)
        sift_down(tensors, order, i, count);
    for (uint32_t last = count - 1; last > 0; last--) {
        const uint32_t top = order[0];
        order[0] = order[last];
        order[last] = top;
        sift_down(tensors, order, 0, last);
    }
}

#define SHOWN_NAME(tensor) GC_READER_SHOWN((tensor)->name, strlen((tensor)->name))

static enum gc_status check_gap(struct gc_reader *reader, const struct gc_ranges *ranges,
                                uint32_t file, uint64_t from, uint64_t to)
{
    const char *path = reader->files[file].path;
    if ((ranges->is_header_alone && to < from) || to - from <= ranges->slack)
        return GC_OK;
    if (ranges->gaps_are_errors)
        return gc_reader_fail(reader, GC_FORMAT, path,
                              "byte %llu: %llu bytes up to byte %llu belong to no tensor; tensors "
                              "without gaps between them are accepted",
                              (unsigned long long)from, (unsigned long long)(to - from),
                              (unsigned long long)to);
    gc_reader_warn(reader, path, "byte %llu: %llu bytes belong to no tensor",
                   (unsigned long long)from, (unsigned long long)(to - from));
    return GC_OK;
}

static enum gc_status check_bounds(struct gc_reader *reader, const struct gc_ranges *ranges,
                                   const struct gc_model_tensor *tensor)
{
    const struct gc_model_file *file = &reader->files[tensor->file];
    const uint64_t bytes = ranges->is_header_alone ? UINT64_MAX : file->bytes;
    if (tensor->offset >= ranges->begin && tensor->offset <= bytes &&
        tensor->stored_bytes <= bytes - tensor->offset)
        return GC_OK;
    return gc_reader_fail(
        reader, GC_FORMAT, file->path,
        "tensor \"%s\": its %llu bytes at byte %llu leave the data, which is bytes "
        "%llu to %llu: the file is cut short, or the offset wrong",
        SHOWN_NAME(tensor), (unsigned long long)tensor->stored_bytes,
        (unsigned long long)tensor->offset, (unsigned long long)ranges->begin,
        (unsigned long long)file->bytes);
}

/* Goes through the tensors in order, file by file. */
static enum gc_status walk(struct gc_reader *reader, const struct gc_ranges *ranges,
                           const uint32_t *order, uint32_t count)
{
    const struct gc_model_tensor *before = NULL;
    uint64_t end = ranges->begin;
    for (uint32_t i = 0; i < count; i++) {
        struct gc_model_tensor *tensor = &reader->tensors[order[i]];
        enum gc_status status = check_bounds(reader, ranges, tensor);
        if (status == GC_OK && before != NULL && before->file != tensor->file) {
            status =
                check_gap(reader, ranges, before->file, end, reader->files[before->file].bytes);
            before = NULL;
            end = ranges->begin;
        }
        if (status != GC_OK)
            return status;
        if (before != NULL && tensor->offset == before->offset &&
            tensor->stored_bytes == before->stored_bytes) {
            tensor->alias_of = (uint32_t)(before - reader->tensors);
            continue;
        }
        if (before != NULL && tensor->offset < end)
            return gc_reader_fail(
                reader, GC_FORMAT, reader->files[tensor->file].path,
                "tensors \"%s\" and \"%s\" overlap at byte %llu; tensors apart, or "
                "the very same bytes, are accepted",
                SHOWN_NAME(before), SHOWN_NAME(tensor), (unsigned long long)tensor->offset);
        status = check_gap(reader, ranges, tensor->file, end, tensor->offset);
        if (status != GC_OK)
            return status;
        end = tensor->offset + tensor->stored_bytes;
        before = tensor;
    }
    return before == NULL
               ? GC_OK
               : check_gap(reader, ranges, before->file, end, reader->files[before->file].bytes);
}

enum gc_status gc_ranges_check(struct gc_reader *reader, const struct gc_ranges *ranges)
{
    const uint32_t all = reader->tensor_count - ranges->first;
    uint32_t count = 0;
    uint32_t *order = gc_reader_alloc(reader, reader->model->path, all * sizeof(*order));
    if (order == NULL)
        return gc_reader_no_memory(reader, reader->model->path);
    for (uint32_t i = ranges->first; i < reader->tensor_count; i++) {
        const struct gc_model_tensor *tensor = &reader->tensors[i];
        if (tensor->offset != GC_MODEL_NO_OFFSET && tensor->stored_bytes > 0)
            order[count++] = i;
    }
    sort(reader->tensors, order, count);
    return walk(reader, ranges, order, count);
}
