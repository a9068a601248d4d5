/* Reads a native trace (trace_format.h) from memory. Every read is bounded by the buffer; a hostile
 * file can at worst be refused or yield odd events. Not thread-safe; the buffer is borrowed. */
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
    const char *names; /* api_count of them, each closed by NUL */
    uint16_t api_count;
    uint32_t version;
    uint64_t pid;
    uint64_t start_unix;
    uint64_t skipped; /* records that made no sense */
    bool torn;        /* the last record is incomplete; known once all were read */
};

/* GC_FORMAT with *why (static text) if it is no trace of a version known here. */
enum gc_status gc_trace_reader_init(struct gc_trace_reader *reader, const void *data, size_t bytes,
                                    const char **why) GC_CHECKED;
/* False at the end. Records with an unknown op or entry point, or of no sense, are skipped and
 * counted. */
bool gc_trace_reader_next_any(struct gc_trace_reader *reader, struct gc_trace_event *event);
/* The same for what the program did alone: allocations, frees, failed requests. */
bool gc_trace_reader_next(struct gc_trace_reader *reader, struct gc_trace_event *event);
/* "?" for a number without a name. Walks the names: not for inner loops. */
const char *gc_trace_reader_api_name(const struct gc_trace_reader *reader, uint16_t api);

#endif
