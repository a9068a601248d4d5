/* The plan of a run, and its file: the run's allocations in the order in which they were made, each
 * with its place in one arena.
 *
 * The entries from `loop_start` on repeat: entry `loop_start` follows the last one, and `loop_time`
 * follows end_time. Without a repetition both are 0. Lifetimes are those of the recorded run, in
 * events. An entry of the loop may live beyond end_time, into the next iteration: then it is also
 * alive in [loop_time, loop_time + upper - end_time) of each iteration but the first. No two
 * entries that are alive at once overlap, in the first iteration and in later ones, and none
 * reaches beyond the peak: the reader checks all of it, whatever the source of the file. A wrong
 * plan can cost time or memory, never correctness.
 *
 * The file, version 2, little-endian: struct gc_plan_header, then `count` of struct gc_plan_entry,
 * and nothing else. docs/plan-file.md describes each field. */
#ifndef GC_PLAN_H
#define GC_PLAN_H

#include "core/base/region.h"
#include "core/base/status.h"
#include "core/io/writer.h"

#include <stddef.h>
#include <stdint.h>

#define GC_PLAN_MAGIC "GPUCPLN\n"
#define GC_PLAN_VERSION 2U
#define GC_PLAN_ENTRIES_MAX (1U << 20)
#define GC_PLAN_UNIT_BYTES 512U /* sizes and offsets are multiples of it */
#define GC_PLAN_STREAMS_MAX 64U /* stream numbers; the last one stands for all further streams */
#define GC_PLAN_DEVICE_ANY (-1)
/* The largest region that the entries of a plan need. */
#define GC_PLAN_REGION_BYTES_MAX (UINT64_C(64) << 20)

struct gc_plan_header {
    char magic[8];
    uint32_t version;
    uint32_t header_bytes;
    uint32_t entry_bytes;
    uint32_t count;
    uint32_t loop_start;
    uint32_t stream_count;
    uint32_t end_time;
    int32_t device;
    uint64_t peak_bytes;
    uint64_t checksum; /* of the file with this field as 0: gc_plan_checksum */
    uint32_t loop_time;
    uint32_t unused; /* 0 */
};
_Static_assert(sizeof(struct gc_plan_header) == 64, "the header is packed");

struct gc_plan_entry {
    uint64_t bytes; /* rounded up to the unit */
    uint64_t offset;
    uint32_t lower; /* alive in [lower, upper) */
    uint32_t upper;
    uint32_t stream; /* by first appearance, from 1; 0: no stream was given */
    uint32_t unused; /* 0 */
};
_Static_assert(sizeof(struct gc_plan_entry) == 32, "an entry is packed");

struct gc_plan {
    const struct gc_plan_entry *entries;
    uint32_t count;
    uint32_t loop_start;
    uint32_t stream_count; /* stream numbers are lower */
    uint32_t loop_time;
    uint32_t end_time; /* an iteration's end */
    int32_t device;    /* ordinal, or GC_PLAN_DEVICE_ANY */
    uint64_t peak_bytes;
};

struct gc_plan_error {
    char text[256]; /* place, fault, accepted values */
};

/* Reads a file's content; copies the entries into `region`. GC_FORMAT with *error;
 * GC_NO_HOST_MEMORY. */
enum gc_status gc_plan_read(struct gc_region *region, const void *data, size_t bytes,
                            struct gc_plan *plan, struct gc_plan_error *error) GC_CHECKED;
/* Reads the file at a path. Also GC_IO, with *error. */
enum gc_status gc_plan_load(struct gc_region *region, const char *path, struct gc_plan *plan,
                            struct gc_plan_error *error) GC_CHECKED;
/* Checks a plan in memory by all rules of the reader. */
enum gc_status gc_plan_check(const struct gc_plan *plan, struct gc_plan_error *error) GC_CHECKED;
void gc_plan_write(const struct gc_plan *plan, struct gc_writer *out);

/* The checksum of a file with header->count entries, which need not be aligned. */
uint64_t gc_plan_checksum(const struct gc_plan_header *header, const void *entries);

#endif
