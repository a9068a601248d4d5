/* Reads a native trace (trace_format.h) from memory. Every read is bounded by the buffer: a hostile
 * file fails to open or yields odd events, nothing worse. Not thread-safe; the buffer is
 * borrowed. */
#ifndef GC_TRACE_READER_H
#define GC_TRACE_READER_H

#include "core/base/status.h"
#include "core/observe/trace.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gc_trace_reader {
    const unsigned char *data;
    size_t bytes;
    size_t position;
    const char *names; /* api_count names, each ending with NUL */
    uint16_t api_count;
    uint32_t version;
    uint64_t pid;
    uint64_t start_unix;
    uint64_t skipped; /* invalid records */
    bool torn;        /* the last record is incomplete; known after all were read */
};

/* GC_FORMAT with *why (static text) if the data is no trace of a known version. */
enum gc_status gc_trace_reader_init(struct gc_trace_reader *reader, const void *data, size_t bytes,
                                    const char **why) GC_CHECKED;
/* False at the end. Invalid records, and those with an unknown op or entry point, are skipped and
 * counted. */
bool gc_trace_reader_next_any(struct gc_trace_reader *reader, struct gc_trace_event *event);
/* The next event of the program itself: an allocation, a free or a failed request. */
bool gc_trace_reader_next(struct gc_trace_reader *reader, struct gc_trace_event *event);
/* "?" for a number without a name. Walks the names: not for inner loops. */
const char *gc_trace_reader_api_name(const struct gc_trace_reader *reader, uint16_t api);

#endif
