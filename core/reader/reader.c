#include "core/reader/reader.h"

#include "core/base/bits.h"
#include "core/io/text.h"
#include "core/reader/source.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static struct gc_model_limits limits_or_default(const struct gc_model_limits *limits)
{
    static const struct gc_model_limits defaults = {
        .memory_bytes = GC_MIB(256),
        .header_bytes = GC_MIB(256),
        .tensors = 1U << 20,
        .files = 4096,
    };
    struct gc_model_limits result = limits != NULL ? *limits : defaults;
    if (result.memory_bytes == 0)
        result.memory_bytes = defaults.memory_bytes;
    if (result.header_bytes == 0)
        result.header_bytes = defaults.header_bytes;
    if (result.tensors == 0 || result.tensors >= GC_READER_PROMISED)
        result.tensors = defaults.tensors;
    if (result.files == 0 || result.files >= GC_READER_PROMISED)
        result.files = defaults.files;
    return result;
}

/* The path, cut at its front to fit a message. */
static const char *path_end(const char *path)
{
    const size_t length = strlen(path);
    const size_t shown = GC_MODEL_ERROR_BYTES / 3;
    return length > shown ? path + length - shown : path;
}

/* Bytes of the well-formed UTF-8 sequence at `text`, 0 if there is none (The Unicode Standard,
 * table 3-7). */
static size_t sequence_bytes(const unsigned char *text, size_t length)
{
    const unsigned char lead = text[0];
    if (lead < 0x80)
        return 1;
    const size_t bytes = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
    if (lead < 0xc2 || lead > 0xf4 || bytes > length)
        return 0;
    const unsigned char low = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
    const unsigned char high = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
    if (text[1] < low || text[1] > high)
        return 0;
    for (size_t i = 2; i < bytes; i++) {
        if (text[i] < 0x80 || text[i] > 0xbf)
            return 0;
    }
    return bytes;
}

bool gc_reader_is_utf8(const char *text, size_t length)
{
    for (size_t at = 0; at < length;) {
        uint64_t word;
        if (length - at >= sizeof(word)) {
            memcpy(&word, text + at, sizeof(word));
            if ((word & UINT64_C(0x8080808080808080)) == 0) {
                at += sizeof(word);
                continue;
            }
        }
        const size_t bytes = sequence_bytes((const unsigned char *)text + at, length - at);
        if (bytes == 0)
            return false;
        at += bytes;
    }
    return true;
}

/* Cuts between characters and prints invalid UTF-8 as '?': the message stays one line of text. */
const char *gc_reader_show(const char *from, size_t length, char *to, size_t size)
{
    size_t used = 0;
    for (size_t at = 0; at < length;) {
        const size_t bytes = sequence_bytes((const unsigned char *)from + at, length - at);
        const unsigned char c = (unsigned char)from[at];
        const bool shown = bytes > 0 && c >= ' ' && c != 0x7f;
        const size_t step = bytes > 0 ? bytes : 1;
        if (used + step + sizeof("...") > size) {
            memcpy(to + used, "...", sizeof("..."));
            return to;
        }
        memcpy(to + used, shown ? from + at : "?", shown ? step : 1);
        used += shown ? step : 1;
        at += step;
    }
    to[used] = '\0';
    return to;
}

static void write_line(char *line, size_t size, const char *path, const char *format, va_list list)
{
    char shown[GC_MODEL_ERROR_BYTES / 3 + 8];
    const char *end = path_end(path);
    gc_reader_show(end, strlen(end), shown, sizeof(shown));
    const int head = snprintf(line, size, "%s%s: ", end == path ? "" : "...", shown);
    if (head > 0 && (size_t)head < size)
        vsnprintf(line + head, size - (size_t)head, format, list);
}

enum gc_status gc_reader_fail(struct gc_reader *reader, enum gc_status status, const char *path,
                              const char *format, ...)
{
    if (reader->failed)
        return status;
    va_list list;
    va_start(list, format);
    reader->failed = true;
    write_line(reader->error->text, sizeof(reader->error->text), path, format, list);
    va_end(list);
    return status;
}

enum gc_status gc_reader_no_memory(struct gc_reader *reader, const char *path)
{
    if (!reader->region.full)
        return gc_reader_fail(reader, GC_NO_HOST_MEMORY, path, "no memory to read it with");
    return gc_reader_fail(
        reader, GC_OUT_OF_RANGE, path,
        "its headers need more than the %llu bytes of memory that reading may take",
        (unsigned long long)reader->limits.memory_bytes);
}

void gc_reader_warn(struct gc_reader *reader, const char *path, const char *format, ...)
{
    char line[GC_MODEL_ERROR_BYTES];
    if (reader->warning_count >= GC_READER_WARNINGS_MAX)
        return;
    va_list list;
    va_start(list, format);
    write_line(line, sizeof(line), path, format, list);
    va_end(list);
    if (reader->warning_count + 1 == GC_READER_WARNINGS_MAX)
        gc_text_copy(line, sizeof(line), "further warnings are left out",
                     strlen("further warnings are left out"));
    const char *copy = gc_region_text(&reader->region, line, strlen(line));
    /* Without memory a warning is dropped; an allocation that the model needs fails on its own. */
    if (copy != NULL && reader->warnings != NULL)
        reader->warnings[reader->warning_count++] = copy;
}

void *gc_reader_alloc(struct gc_reader *reader, const char *path, uint64_t bytes)
{
    void *memory = gc_region_alloc(&reader->region, bytes);
    if (memory == NULL)
        (void)gc_reader_no_memory(reader, path);
    return memory;
}

static enum gc_status begin(struct gc_reader *reader, const char *path,
                            const struct gc_model_limits *limits, struct gc_model_error *error,
                            size_t owner_bytes, void **owner)
{
    *reader = (struct gc_reader){.limits = limits_or_default(limits), .error = error};
    error->text[0] = '\0';
    gc_region_init(&reader->region, reader->limits.memory_bytes);
    gc_strmap_init(&reader->tensor_names);
    gc_strmap_init(&reader->meta_names);
    *owner = gc_reader_alloc(reader, path, owner_bytes);
    reader->path = gc_region_text(&reader->region, path, strlen(path));
    reader->warnings =
        gc_reader_alloc(reader, path, GC_READER_WARNINGS_MAX * sizeof(*reader->warnings));
    return *owner != NULL && reader->path != NULL && reader->warnings != NULL
               ? GC_OK
               : gc_reader_no_memory(reader, path);
}

enum gc_status gc_reader_run(const struct gc_reading *reading, const char *path,
                             const struct gc_model_limits *limits, struct gc_model_error *error,
                             void **owner)
{
    const int saved_errno = errno;
    struct gc_reader reader;
    void *memory;
    *owner = NULL;
    enum gc_status status = begin(&reader, path, limits, error, reading->owner_bytes, &memory);
    if (status == GC_OK)
        status = reading->read(&reader, memory);
    gc_reader_end(&reader);
    if (status == GC_OK) {
        reading->move_results(&reader, memory);
        *owner = memory;
    } else {
        gc_region_fini(&reader.region);
    }
    errno = saved_errno;
    return status;
}

void gc_reader_end(struct gc_reader *reader)
{
    if (reader->spare_window != NULL)
        gc_host_mem_unmap(&reader->region.host, reader->spare_window, GC_SOURCE_WINDOW_BYTES);
    reader->spare_window = NULL;
}

enum gc_status gc_reader_text(struct gc_reader *reader, const char *path, const char *what,
                              const char *text, size_t length, const char **copy)
{
    if (memchr(text, '\0', length) != NULL || !gc_reader_is_utf8(text, length))
        return gc_reader_fail(reader, GC_FORMAT, path, "%s \"%s\" is no text: UTF-8 without NUL is",
                              what, GC_READER_SHOWN(text, length));
    *copy = gc_region_text(&reader->region, text, length);
    return *copy != NULL ? GC_OK : gc_reader_no_memory(reader, path);
}

enum gc_status gc_reader_grow(struct gc_reader *reader, const char *path, void **list,
                              uint32_t count, uint32_t *room, size_t element_bytes)
{
    if (count < *room)
        return GC_OK;
    const uint64_t wanted = *room == 0 ? 16 : (uint64_t)*room * 2;
    void *memory =
        wanted > UINT32_MAX
            ? NULL
            : gc_region_grow(&reader->region, *list, count * element_bytes, wanted * element_bytes);
    if (memory == NULL)
        return gc_reader_no_memory(reader, path);
    *list = memory;
    *room = (uint32_t)wanted;
    return GC_OK;
}

enum gc_status gc_reader_add_file(struct gc_reader *reader, const char *path, uint64_t bytes,
                                  uint32_t *file)
{
    if (reader->file_count >= reader->limits.files)
        return gc_reader_fail(reader, GC_OUT_OF_RANGE, path, "the model has more than %u files",
                              reader->limits.files);
    enum gc_status status =
        gc_reader_grow(reader, path, (void **)&reader->files, reader->file_count,
                       &reader->file_room, sizeof(*reader->files));
    if (status != GC_OK)
        return status;
    *file = reader->file_count++;
    reader->files[*file] = (struct gc_model_file){.path = path, .bytes = bytes};
    return GC_OK;
}

enum gc_status gc_reader_size_tensor(struct gc_reader *reader, const char *path,
                                     struct gc_model_tensor *tensor)
{
    uint64_t elements = 1;
    bool fits = true;
    bool empty = false;
    for (uint32_t i = 0; i < tensor->dim_count; i++)
        empty = empty || tensor->dims[i] == 0;
    for (uint32_t i = 0; i < tensor->dim_count && fits && !empty; i++)
        fits = gc_mul_u64(elements, tensor->dims[i], &elements);
    tensor->elements = empty ? 0 : elements;
    tensor->bytes = 0;
    if (fits && tensor->dtype != GC_DTYPE_TEXT)
        fits = gc_dtype_bytes(tensor->dtype, tensor->elements, &tensor->bytes);
    if (fits)
        return GC_OK;
    return gc_reader_fail(reader, GC_FORMAT, path,
                          "tensor \"%s\": its size, the product of its dimensions times %s, "
                          "overflows 64 bits",
                          GC_READER_SHOWN(tensor->name, strlen(tensor->name)),
                          gc_dtype_name(tensor->dtype));
}

enum gc_status gc_reader_expect_tensors(struct gc_reader *reader, const char *path, uint64_t count)
{
    if (count > reader->limits.tensors || reader->tensor_room != 0)
        return GC_OK; /* adding one too many fails later */
    reader->tensors = gc_reader_alloc(reader, path, count * sizeof(*reader->tensors));
    reader->tensor_room = (uint32_t)count;
    return reader->tensors != NULL ? GC_OK : gc_reader_no_memory(reader, path);
}

static enum gc_status append_tensor(struct gc_reader *reader, const char *path,
                                    const struct gc_model_tensor *tensor)
{
    if (reader->tensor_count >= reader->limits.tensors)
        return gc_reader_fail(reader, GC_OUT_OF_RANGE, path, "the model has more than %u tensors",
                              reader->limits.tensors);
    const enum gc_status status =
        gc_reader_grow(reader, path, (void **)&reader->tensors, reader->tensor_count,
                       &reader->tensor_room, sizeof(*reader->tensors));
    if (status == GC_OK)
        reader->tensors[reader->tensor_count++] = *tensor;
    return status;
}

enum gc_status gc_reader_redeem(struct gc_reader *reader, const char *path,
                                const struct gc_model_tensor *tensor, struct gc_strmap_entry *name)
{
    name->value = reader->tensor_count;
    return append_tensor(reader, path, tensor);
}

enum gc_status gc_reader_add_tensor(struct gc_reader *reader, const char *path,
                                    const struct gc_model_tensor *tensor, bool unique)
{
    const size_t length = strlen(tensor->name);
    bool added;
    struct gc_strmap_entry *name =
        gc_strmap_find_or_add(&reader->tensor_names, &reader->region, tensor->name, length, &added);
    if (name == NULL)
        return gc_reader_no_memory(reader, path);
    if (!added && unique)
        return gc_reader_fail(reader, GC_FORMAT, path, "tensor \"%s\" is there twice",
                              GC_READER_SHOWN(tensor->name, length));
    if (added)
        name->value = reader->tensor_count;
    return append_tensor(reader, path, tensor);
}

enum gc_status gc_reader_add_meta(struct gc_reader *reader, const char *path,
                                  const struct gc_meta *meta)
{
    const size_t length = strlen(meta->key);
    if (gc_strmap_find(&reader->meta_names, meta->key, length) != NULL)
        return gc_reader_fail(reader, GC_FORMAT, path, "key \"%s\" is there twice",
                              GC_READER_SHOWN(meta->key, length));
    enum gc_status status =
        gc_reader_grow(reader, path, (void **)&reader->metas, reader->meta_count,
                       &reader->meta_room, sizeof(*reader->metas));
    if (status != GC_OK)
        return status;
    if (!gc_strmap_add(&reader->meta_names, &reader->region, meta->key, length, reader->meta_count))
        return gc_reader_no_memory(reader, path);
    reader->metas[reader->meta_count++] = *meta;
    return GC_OK;
}

enum gc_status gc_reader_add_value(struct gc_reader *reader, const char *path,
                                   const struct gc_model_value *declared)
{
    enum gc_status status =
        gc_reader_grow(reader, path, (void **)&reader->values, reader->value_count,
                       &reader->value_room, sizeof(*reader->values));
    if (status == GC_OK)
        reader->values[reader->value_count++] = *declared;
    return status;
}
