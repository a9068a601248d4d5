/* The native trace file, version 2; 3 if it has call stacks. Little-endian, as all supported
 * machines.
 *
 *   header   struct gc_trace_header, then api_count names, each ending with NUL, then zeros up to
 *            header_bytes (a multiple of 8)
 *   records  struct gc_trace_file_record, one after the other, to the end of the file
 *
 * Version 1 had GC_TRACE_ALLOC, _FREE and _OOM alone; it is still read.
 * A recorder that was killed may leave a partial record at the end: readers ignore it. */
#ifndef GC_TRACE_FORMAT_H
#define GC_TRACE_FORMAT_H

#include <stdint.h>

#define GC_TRACE_MAGIC "GPUCTRC\n"
#define GC_TRACE_VERSION 2U
#define GC_TRACE_VERSION_STACKS 3U
#define GC_TRACE_VERSION_OLDEST 1U
#define GC_TRACE_HEADER_BYTES_MAX (4U << 20)

/* Of GC_TRACE_TEXT and GC_TRACE_FRAMES: bytes of a text, or numbers of texts, in the fields
 * address, bytes and stream. */
#define GC_TRACE_PAYLOAD_BYTES 24U
#define GC_TRACE_PAYLOAD_FRAMES 6U
#define GC_TRACE_NUMBERS_MAX (1U << 17) /* texts and stacks have numbers below it */

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the trace format is little-endian"
#endif

struct gc_trace_header {
    char magic[8];
    uint32_t version;
    uint32_t header_bytes;
    uint32_t record_bytes;
    uint32_t api_count;
    uint64_t pid;
    uint64_t start_unix; /* seconds */
};

struct gc_trace_file_record {
    uint8_t op; /* enum gc_trace_op */
    uint8_t device;
    uint16_t api; /* entry point of ALLOC, FREE, OOM; else 0 */
    uint32_t thread;
    uint64_t address;
    uint64_t bytes;
    uint64_t stream;
    uint64_t time_ns;
};

_Static_assert(sizeof(struct gc_trace_header) == 40, "the header is packed");
_Static_assert(sizeof(struct gc_trace_file_record) == 40, "a record is packed");

#endif
