#include "core/observe/trace_reader.h"

#include "core/observe/stacks.h"
#include "core/observe/trace_format.h"

#include <string.h>

/* True if `count` names that end with NUL fit between the header's fixed part and its end. */
static bool names_fit(const char *names, size_t bytes, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        const char *end = memchr(names, '\0', bytes);
        if (end == NULL)
            return false;
        bytes -= (size_t)(end - names) + 1;
        names = end + 1;
    }
    return true;
}

enum gc_status gc_trace_reader_init(struct gc_trace_reader *reader, const void *data, size_t bytes,
                                    const char **why)
{
    struct gc_trace_header header;
    *why = "not a gpucache trace";
    if (bytes < sizeof(header))
        return GC_FORMAT;
    memcpy(&header, data, sizeof(header));
    if (memcmp(header.magic, GC_TRACE_MAGIC, sizeof(header.magic)) != 0)
        return GC_FORMAT;
    *why = "a trace of another version of gpucache";
    if (header.version < GC_TRACE_VERSION_OLDEST || header.version > GC_TRACE_VERSION_STACKS ||
        header.record_bytes != sizeof(struct gc_trace_file_record))
        return GC_FORMAT;
    *why = "the trace's header is damaged";
    if (header.header_bytes < sizeof(header) || header.header_bytes > bytes ||
        header.header_bytes > GC_TRACE_HEADER_BYTES_MAX || header.api_count > UINT16_MAX)
        return GC_FORMAT;
    const char *names = (const char *)data + sizeof(header);
    if (!names_fit(names, header.header_bytes - sizeof(header), header.api_count))
        return GC_FORMAT;
    *reader = (struct gc_trace_reader){
        .data = data,
        .bytes = bytes,
        .position = header.header_bytes,
        .names = names,
        .version = header.version,
        .api_count = (uint16_t)header.api_count,
        .pid = header.pid,
        .start_unix = header.start_unix,
    };
    *why = NULL;
    return GC_OK;
}

/* Whether the record has an op of the file's version and valid fields. */
static bool is_number(uint64_t number)
{
    return number > 0 && number < GC_TRACE_NUMBERS_MAX;
}

static bool makes_sense_of_stacks(const struct gc_trace_file_record *record)
{
    if (record->op == GC_TRACE_TEXT)
        return is_number(record->thread) && record->api % GC_TRACE_PAYLOAD_BYTES == 0 &&
               record->api < GC_STACK_TEXT_BYTES;
    if (record->op == GC_TRACE_FRAMES)
        return is_number(record->thread) && record->api % GC_TRACE_PAYLOAD_FRAMES == 0 &&
               record->api < GC_STACK_FRAMES_MAX;
    return record->op == GC_TRACE_STACK && is_number(record->bytes);
}

static bool makes_sense(const struct gc_trace_reader *reader,
                        const struct gc_trace_file_record *record)
{
    if (record->op >= GC_TRACE_ALLOC && record->op <= GC_TRACE_OOM)
        return record->api < reader->api_count;
    if (reader->version < 2)
        return false;
    if (record->op == GC_TRACE_LEVELS)
        return true;
    if (record->op > GC_TRACE_UNMAP)
        return reader->version >= GC_TRACE_VERSION_STACKS && makes_sense_of_stacks(record);
    return (record->op == GC_TRACE_MAP || record->op == GC_TRACE_UNMAP) && record->bytes > 0 &&
           record->address <= UINT64_MAX - record->bytes && record->stream <= GC_TRACE_PAGES;
}

bool gc_trace_reader_next_any(struct gc_trace_reader *reader, struct gc_trace_event *event)
{
    struct gc_trace_file_record record;
    while (reader->bytes - reader->position >= sizeof(record)) {
        memcpy(&record, reader->data + reader->position, sizeof(record));
        reader->position += sizeof(record);
        if (!makes_sense(reader, &record)) {
            reader->skipped++;
            continue;
        }
        *event = (struct gc_trace_event){
            .op = record.op,
            .device = record.device,
            .api = record.api,
            .thread = record.thread,
            .address = record.address,
            .bytes = record.bytes,
            .stream = record.stream,
            .time_ns = record.time_ns,
        };
        return true;
    }
    reader->torn = reader->position != reader->bytes;
    return false;
}

bool gc_trace_reader_next(struct gc_trace_reader *reader, struct gc_trace_event *event)
{
    while (gc_trace_reader_next_any(reader, event)) {
        if (event->op <= GC_TRACE_OOM)
            return true;
    }
    return false;
}

const char *gc_trace_reader_api_name(const struct gc_trace_reader *reader, uint16_t api)
{
    const char *name = reader->names;
    if (api >= reader->api_count)
        return "?";
    for (uint16_t i = 0; i < api; i++)
        name += strlen(name) + 1;
    return name;
}
