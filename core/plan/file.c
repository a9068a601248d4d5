/* Plan files: writes and reads them, and checks every rule of the format. */
#define _GNU_SOURCE /* statx */
#include "core/base/bits.h"
#include "core/plan/placement.h"
#include "core/plan/plan.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Bound of the memory for a check. */
#define SCRATCH_BYTES_MAX (UINT64_C(1) << 30)
#define FILE_BYTES_MAX                                                                             \
    (sizeof(struct gc_plan_header) + (uint64_t)GC_PLAN_ENTRIES_MAX * sizeof(struct gc_plan_entry))

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the plan file is little-endian"
#endif

__attribute__((format(printf, 3, 4))) static enum gc_status fail(struct gc_plan_error *error,
                                                                 enum gc_status status,
                                                                 const char *format, ...)
{
    va_list list;
    va_start(list, format);
    vsnprintf(error->text, sizeof(error->text), format, list);
    va_end(list);
    return status;
}

/* ---- the checksum ---- */

/* FNV-1a over words of 64 bits. */
static uint64_t add_words(uint64_t sum, const void *data, uint64_t bytes)
{
    const unsigned char *at = data;
    for (uint64_t i = 0; i < bytes; i += sizeof(uint64_t)) {
        uint64_t word;
        memcpy(&word, at + i, sizeof(word));
        sum = gc_hash_fnv1a(sum, word);
        sum ^= sum >> 32;
    }
    return sum;
}

uint64_t gc_plan_checksum(const struct gc_plan_header *header, const void *entries)
{
    struct gc_plan_header plain = *header;
    plain.checksum = 0;
    const uint64_t sum = add_words(GC_HASH_FNV1A, &plain, sizeof(plain));
    return add_words(sum, entries, (uint64_t)header->count * sizeof(struct gc_plan_entry));
}

/* ---- writing ---- */

void gc_plan_write(const struct gc_plan *plan, struct gc_writer *out)
{
    struct gc_plan_header header = {
        .version = GC_PLAN_VERSION,
        .header_bytes = sizeof(header),
        .entry_bytes = sizeof(struct gc_plan_entry),
        .count = plan->count,
        .loop_start = plan->loop_start,
        .stream_count = plan->stream_count,
        .end_time = plan->end_time,
        .device = plan->device,
        .peak_bytes = plan->peak_bytes,
        .loop_time = plan->loop_time,
    };
    memcpy(header.magic, GC_PLAN_MAGIC, sizeof(header.magic));
    header.checksum = gc_plan_checksum(&header, plan->entries);
    gc_writer_bytes(out, (const char *)&header, sizeof(header));
    gc_writer_bytes(out, (const char *)plan->entries, (size_t)plan->count * sizeof(*plan->entries));
}

/* ---- rules ---- */

static enum gc_status check_head(const struct gc_plan *plan, struct gc_plan_error *error)
{
    if (plan->count == 0 || plan->count > GC_PLAN_ENTRIES_MAX)
        return fail(error, GC_FORMAT, "%u entries; accepted: 1 to %u", plan->count,
                    GC_PLAN_ENTRIES_MAX);
    if (plan->loop_start >= plan->count)
        return fail(error, GC_FORMAT, "repeats from entry %u on; there are %u", plan->loop_start,
                    plan->count);
    if (plan->loop_time > plan->end_time)
        return fail(error, GC_FORMAT, "repeats from time %u on; it ends at %u", plan->loop_time,
                    plan->end_time);
    if (plan->stream_count == 0 || plan->stream_count > GC_PLAN_STREAMS_MAX)
        return fail(error, GC_FORMAT, "%u streams; accepted: 1 to %u", plan->stream_count,
                    GC_PLAN_STREAMS_MAX);
    if (plan->device < GC_PLAN_DEVICE_ANY || plan->device > 255)
        return fail(error, GC_FORMAT, "device %d; accepted: 0 to 255, or -1 for any", plan->device);
    if (plan->peak_bytes == 0 || plan->peak_bytes % GC_PLAN_UNIT_BYTES != 0 ||
        plan->peak_bytes > INT64_MAX)
        return fail(error, GC_FORMAT, "a peak of %llu bytes; accepted: multiples of %u, above 0",
                    (unsigned long long)plan->peak_bytes, GC_PLAN_UNIT_BYTES);
    return GC_OK;
}

/* An entry of the loop may live into the next iteration, until its successor is made there. */
static bool has_life(const struct gc_plan *plan, uint32_t i)
{
    const struct gc_plan_entry *entry = &plan->entries[i];
    if (entry->lower >= entry->upper || entry->lower >= plan->end_time)
        return false;
    if (i < plan->loop_start)
        return entry->upper <= plan->end_time;
    return entry->lower >= plan->loop_time &&
           (entry->upper <= plan->end_time ||
            entry->upper - entry->lower <= plan->end_time - plan->loop_time);
}

static enum gc_status check_entry(const struct gc_plan *plan, uint32_t i,
                                  struct gc_plan_error *error)
{
    const struct gc_plan_entry *entry = &plan->entries[i];
    if (entry->bytes == 0 || entry->bytes % GC_PLAN_UNIT_BYTES != 0)
        return fail(error, GC_FORMAT, "entry %u: %llu bytes; accepted: multiples of %u, above 0", i,
                    (unsigned long long)entry->bytes, GC_PLAN_UNIT_BYTES);
    if (entry->offset % GC_PLAN_UNIT_BYTES != 0)
        return fail(error, GC_FORMAT, "entry %u: at offset %llu, which is no multiple of %u", i,
                    (unsigned long long)entry->offset, GC_PLAN_UNIT_BYTES);
    if (entry->offset > plan->peak_bytes || entry->bytes > plan->peak_bytes - entry->offset)
        return fail(error, GC_FORMAT, "entry %u: reaches beyond the peak of %llu bytes", i,
                    (unsigned long long)plan->peak_bytes);
    if (!has_life(plan, i))
        return fail(error, GC_FORMAT, "entry %u: alive from %u to %u, of %u", i, entry->lower,
                    entry->upper, plan->end_time);
    if (entry->stream >= plan->stream_count)
        return fail(error, GC_FORMAT, "entry %u: stream %u; there are %u", i, entry->stream,
                    plan->stream_count);
    if (entry->unused != 0)
        return fail(error, GC_FORMAT, "entry %u: its last word is %u; accepted: 0", i,
                    entry->unused);
    return GC_OK;
}

/* The buffers alive in one pass, as a placement; at most two for each entry. */
struct pass {
    struct gc_placement_buffer *buffers;
    uint64_t *offsets;
    uint32_t *entries;
    uint32_t count;
};

static void add_part(struct pass *pass, const struct gc_plan *plan, uint32_t entry, uint32_t lower,
                     uint32_t upper)
{
    const uint32_t at = pass->count++;
    pass->buffers[at] = (struct gc_placement_buffer){.lower = lower,
                                                     .upper = upper,
                                                     .bytes = plan->entries[entry].bytes,
                                                     .fixed = GC_PLACEMENT_FREE};
    pass->offsets[at] = plan->entries[entry].offset;
    pass->entries[at] = entry;
}

/* The first pass goes from the run's start to the end. */
static void add_first(struct pass *pass, const struct gc_plan *plan)
{
    for (uint32_t i = 0; i < plan->count; i++) {
        const struct gc_plan_entry *entry = &plan->entries[i];
        add_part(pass, plan, i, entry->lower,
                 entry->upper < plan->end_time ? entry->upper : plan->end_time);
    }
}

/* A later pass goes through the loop alone: of earlier entries those are left that live to the end.
 */
static void add_later(struct pass *pass, const struct gc_plan *plan)
{
    for (uint32_t i = 0; i < plan->count; i++) {
        const struct gc_plan_entry *entry = &plan->entries[i];
        const uint32_t end = plan->end_time;
        if (i < plan->loop_start && entry->upper < end)
            continue;
        add_part(pass, plan, i, entry->lower > plan->loop_time ? entry->lower : plan->loop_time,
                 entry->upper < end ? entry->upper : end);
        if (entry->upper > end)
            add_part(pass, plan, i, plan->loop_time, plan->loop_time + (entry->upper - end));
    }
}

static enum gc_status check_pass(struct gc_region *region, const struct pass *pass,
                                 uint64_t *peak_bytes, struct gc_plan_error *error)
{
    const struct gc_placement_problem problem = {
        .buffers = pass->buffers, .count = pass->count, .capacity_bytes = GC_PLACEMENT_UNLIMITED};
    struct gc_placement_fault fault = {.what = "are not valid"};
    const enum gc_status status =
        gc_placement_check(region, &problem, pass->offsets, peak_bytes, &fault);
    if (status == GC_OK || status == GC_NO_HOST_MEMORY)
        return status;
    return fail(error, GC_FORMAT, "entries %u and %u: %s", pass->entries[fault.first],
                pass->entries[fault.second], fault.what);
}

/* Checks the offsets by the validator of placements. */
static enum gc_status check_overlap(struct gc_region *region, const struct gc_plan *plan,
                                    struct gc_plan_error *error)
{
    const uint64_t room = (uint64_t)plan->count * 2;
    struct pass pass = {.buffers = gc_region_alloc(region, room * sizeof(*pass.buffers)),
                        .offsets = gc_region_alloc(region, room * sizeof(*pass.offsets)),
                        .entries = gc_region_alloc(region, room * sizeof(*pass.entries))};
    uint64_t peak_bytes;
    uint64_t ignored;
    if (pass.buffers == NULL || pass.offsets == NULL || pass.entries == NULL)
        return GC_NO_HOST_MEMORY;
    add_first(&pass, plan);
    enum gc_status status = check_pass(region, &pass, &peak_bytes, error);
    if (status != GC_OK)
        return status;
    pass.count = 0;
    add_later(&pass, plan);
    status = check_pass(region, &pass, &ignored, error);
    if (status != GC_OK)
        return status;
    if (peak_bytes != plan->peak_bytes)
        return fail(error, GC_FORMAT,
                    "the header's peak is %llu bytes; that of the entries is %llu",
                    (unsigned long long)plan->peak_bytes, (unsigned long long)peak_bytes);
    return GC_OK;
}

enum gc_status gc_plan_check(const struct gc_plan *plan, struct gc_plan_error *error)
{
    struct gc_region scratch;
    enum gc_status status = check_head(plan, error);
    for (uint32_t i = 0; status == GC_OK && i < plan->count; i++)
        status = check_entry(plan, i, error);
    if (status != GC_OK)
        return status;
    gc_region_init(&scratch, SCRATCH_BYTES_MAX);
    status = check_overlap(&scratch, plan, error);
    gc_region_fini(&scratch);
    return status;
}

/* ---- reading ---- */

static enum gc_status check_frame(const struct gc_plan_header *header, const unsigned char *data,
                                  size_t bytes, struct gc_plan_error *error)
{
    if (header->version != GC_PLAN_VERSION)
        return fail(error, GC_FORMAT, "a plan of version %u; accepted: %u", header->version,
                    GC_PLAN_VERSION);
    if (header->header_bytes != sizeof(*header) ||
        header->entry_bytes != sizeof(struct gc_plan_entry))
        return fail(error, GC_FORMAT, "a header of %u bytes and entries of %u; accepted: %zu, %zu",
                    header->header_bytes, header->entry_bytes, sizeof(*header),
                    sizeof(struct gc_plan_entry));
    if (header->unused != 0)
        return fail(error, GC_FORMAT, "the header's last word is not 0");
    const uint64_t whole = sizeof(*header) + (uint64_t)header->count * sizeof(struct gc_plan_entry);
    if (whole != bytes)
        return fail(error, GC_FORMAT, "%zu bytes; with %u entries it has %llu", bytes,
                    header->count, (unsigned long long)whole);
    if (gc_plan_checksum(header, data + sizeof(*header)) != header->checksum)
        return fail(error, GC_FORMAT, "its content does not agree with its checksum");
    return GC_OK;
}

enum gc_status gc_plan_read(struct gc_region *region, const void *data, size_t bytes,
                            struct gc_plan *plan, struct gc_plan_error *error)
{
    struct gc_plan_header header;
    *error = (struct gc_plan_error){.text = ""};
    if (bytes < sizeof(header) || memcmp(data, GC_PLAN_MAGIC, sizeof(header.magic)) != 0)
        return fail(error, GC_FORMAT, "no plan of a run: `gpucache plan TRACE --output` makes one");
    memcpy(&header, data, sizeof(header));
    enum gc_status status = check_frame(&header, data, bytes, error);
    if (status != GC_OK)
        return status;
    *plan = (struct gc_plan){
        .count = header.count,
        .loop_start = header.loop_start,
        .stream_count = header.stream_count,
        .end_time = header.end_time,
        .device = header.device,
        .peak_bytes = header.peak_bytes,
        .loop_time = header.loop_time,
    };
    status = check_head(plan, error);
    if (status != GC_OK)
        return status;
    void *entries = gc_region_alloc(region, bytes - sizeof(header));
    if (entries == NULL)
        return GC_NO_HOST_MEMORY;
    memcpy(entries, (const unsigned char *)data + sizeof(header), bytes - sizeof(header));
    plan->entries = entries;
    return gc_plan_check(plan, error);
}

/* ---- a path ---- */

static enum gc_status fail_file(struct gc_plan_error *error)
{
    return fail(error, GC_IO, "cannot be read: %s",
                errno == ENOENT   ? "there is no such file"
                : errno == EACCES ? "permission"
                                  : "it is no file");
}

/* Reads a whole regular file into the region. */
static enum gc_status read_whole(struct gc_region *region, int fd, void **data, size_t *bytes,
                                 struct gc_plan_error *error)
{
    struct statx info; /* older than glibc's fstat symbol */
    if (statx(fd, "", AT_EMPTY_PATH, STATX_TYPE | STATX_SIZE, &info) != 0)
        return fail_file(error);
    if (!S_ISREG(info.stx_mode))
        return fail(error, GC_IO, "is no regular file");
    if (info.stx_size > FILE_BYTES_MAX)
        return fail(error, GC_FORMAT, "%llu bytes; no plan has more than %llu",
                    (unsigned long long)info.stx_size, (unsigned long long)FILE_BYTES_MAX);
    *data = gc_region_alloc(region, info.stx_size);
    if (*data == NULL)
        return GC_NO_HOST_MEMORY;
    *bytes = 0;
    while (*bytes < info.stx_size) {
        const ssize_t got = read(fd, (char *)*data + *bytes, info.stx_size - *bytes);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return fail_file(error);
        if (got == 0)
            break; /* truncated meanwhile: the reader reports it */
        *bytes += (size_t)got;
    }
    return GC_OK;
}

enum gc_status gc_plan_load(struct gc_region *region, const char *path, struct gc_plan *plan,
                            struct gc_plan_error *error)
{
    struct gc_region scratch;
    void *data = NULL;
    size_t bytes = 0;
    *error = (struct gc_plan_error){.text = ""};
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return fail_file(error);
    gc_region_init(&scratch, SCRATCH_BYTES_MAX);
    enum gc_status status = read_whole(&scratch, fd, &data, &bytes, error);
    close(fd);
    if (status == GC_OK)
        status = gc_plan_read(region, data, bytes, plan, error);
    gc_region_fini(&scratch);
    return status;
}
