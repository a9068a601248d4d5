/* A PyTorch memory snapshot: the state at the end (segments and their blocks), and the history of
 * each device. The trace is walked once for the end and once for each device's history.
 *
 * The viewer goes back from the end, and looks up each block's segment. So each block needs a
 * segment: an allocation outside the pools' memory gets its own segment, which begins and ends with
 * it. A free is written as free_requested and free_completed at once: the trace does not record
 * when it completed. */
#include "tools/pickle/pickle_write.h"
#include "tools/trace/trace_export.h"

#include <stdlib.h>
#include <string.h>

#define LIST_FLUSH 500

/* Repeated words, and their memo numbers. */
#define WORDS(X)                                                                                   \
    X(action)                                                                                      \
    X(addr)                                                                                        \
    X(address)                                                                                     \
    X(active_allocated)                                                                            \
    X(active_size)                                                                                 \
    X(alloc)                                                                                       \
    X(allocated_size)                                                                              \
    X(blocks)                                                                                      \
    X(device)                                                                                      \
    X(device_free)                                                                                 \
    X(filename)                                                                                    \
    X(frames)                                                                                      \
    X(free_completed)                                                                              \
    X(free_requested)                                                                              \
    X(inactive)                                                                                    \
    X(is_expandable)                                                                               \
    X(large)                                                                                       \
    X(line)                                                                                        \
    X(name)                                                                                        \
    X(oom)                                                                                         \
    X(requested_size)                                                                              \
    X(segment_alloc)                                                                               \
    X(segment_free)                                                                                \
    X(segment_map)                                                                                 \
    X(segment_pool_id)                                                                             \
    X(segment_type)                                                                                \
    X(segment_unmap)                                                                               \
    X(size)                                                                                        \
    X(state)                                                                                       \
    X(stream)                                                                                      \
    X(time_us)                                                                                     \
    X(total_size)

enum word {
#define X(word) WORD_##word,
    WORDS(X)
#undef X
        WORD_COUNT
};

static const char *const word_texts[] = {
#define X(word) #word,
    WORDS(X)
#undef X
};

/* Memo numbers of entry points follow those of the words; an entry point with too high a number is
 * written in full each time. */
#define NO_FRAMES WORD_COUNT
#define FRAMES_FIRST (WORD_COUNT + 1)

struct snapshot {
    struct pickle_writer writer;
    const char **api_names;
    uint64_t start_us;
    unsigned device;  /* device of the history */
    unsigned pending; /* members of the list since it was flushed */
    unsigned device_count;
    uint64_t free_bytes; /* capacity or limit recorded in the trace; 0: none */
};

static void write_word(struct snapshot *snapshot, enum word word)
{
    pickle_put_word(&snapshot->writer, word, word_texts[word]);
}

static void write_number(struct snapshot *snapshot, enum word key, uint64_t value)
{
    write_word(snapshot, key);
    pickle_put_int(&snapshot->writer, value);
}

static void begin_member(struct snapshot *snapshot)
{
    if (snapshot->pending++ == LIST_FLUSH) {
        pickle_flush_list(&snapshot->writer);
        snapshot->pending = 1;
    }
    pickle_begin_dict(&snapshot->writer);
}

/* A call site is the entry point that the program called. */
static void write_frames(struct snapshot *snapshot, const struct trace_allocation *allocation)
{
    struct pickle_writer *writer = &snapshot->writer;
    const unsigned number = allocation != NULL ? FRAMES_FIRST + allocation->api : NO_FRAMES;
    write_word(snapshot, WORD_frames);
    if (pickle_recall(writer, number))
        return;
    pickle_begin_list(writer);
    if (allocation != NULL) {
        pickle_begin_dict(writer);
        write_word(snapshot, WORD_filename);
        pickle_put_text(writer, "entry point");
        write_number(snapshot, WORD_line, 0);
        write_word(snapshot, WORD_name);
        pickle_put_text(writer, snapshot->api_names[allocation->api]);
        pickle_end_dict(writer);
    }
    pickle_end_list(writer);
    pickle_keep(writer, number);
}

/* ---- the end ---- */

static int by_address(const void *a, const void *b)
{
    const struct trace_allocation *const *left = a;
    const struct trace_allocation *const *right = b;
    return ((*left)->address > (*right)->address) - ((*left)->address < (*right)->address);
}

/* The live allocations of the device by rising address; NULL if memory runs out. */
static const struct trace_allocation **sort_live(const struct trace_ledger *ledger, unsigned device,
                                                 size_t *count)
{
    const struct trace_allocation **live = malloc((ledger->count + 1) * sizeof(*live));
    *count = 0;
    for (size_t i = 0; live != NULL && i < ledger->capacity; i++) {
        if (ledger->slots[i].id != 0 && ledger->slots[i].device == device)
            live[(*count)++] = &ledger->slots[i];
    }
    if (live != NULL)
        qsort(live, *count, sizeof(*live), by_address);
    return live;
}

static void write_block(struct snapshot *snapshot, uint64_t address, uint64_t bytes,
                        const struct trace_allocation *allocation)
{
    if (bytes == 0)
        return;
    begin_member(snapshot);
    write_number(snapshot, WORD_address, address);
    write_number(snapshot, WORD_size, bytes);
    write_number(snapshot, WORD_requested_size, allocation != NULL ? allocation->bytes : bytes);
    write_word(snapshot, WORD_state);
    write_word(snapshot, allocation != NULL ? WORD_active_allocated : WORD_inactive);
    write_frames(snapshot, allocation);
    pickle_end_dict(&snapshot->writer);
}

/* The blocks tile the segment; the part of an allocation beyond the segment, or inside the block
 * before it, is left out. */
static void write_blocks(struct snapshot *snapshot, const struct trace_range *range,
                         const struct trace_allocation *const *live, size_t count)
{
    const uint64_t end = range->address + range->bytes;
    uint64_t at = range->address;
    write_word(snapshot, WORD_blocks);
    pickle_begin_list(&snapshot->writer);
    snapshot->pending = 0;
    for (size_t i = 0; i < count; i++) {
        const uint64_t begin = live[i]->address > at ? live[i]->address : at;
        const uint64_t room = end - begin;
        write_block(snapshot, at, begin - at, NULL);
        write_block(snapshot, begin, live[i]->bytes < room ? live[i]->bytes : room, live[i]);
        at = begin + (live[i]->bytes < room ? live[i]->bytes : room);
    }
    write_block(snapshot, at, end - at, NULL);
    pickle_end_list(&snapshot->writer);
}

static void write_segment(struct snapshot *snapshot, unsigned device,
                          const struct trace_range *range,
                          const struct trace_allocation *const *live, size_t count)
{
    struct pickle_writer *writer = &snapshot->writer;
    uint64_t bytes = 0;
    for (size_t i = 0; i < count; i++)
        bytes += live[i]->bytes;
    pickle_begin_dict(writer);
    write_number(snapshot, WORD_device, device);
    write_number(snapshot, WORD_address, range->address);
    write_number(snapshot, WORD_total_size, range->bytes);
    write_number(snapshot, WORD_allocated_size, bytes);
    write_number(snapshot, WORD_active_size, bytes);
    write_number(snapshot, WORD_requested_size, bytes);
    write_number(snapshot, WORD_stream, 0);
    write_word(snapshot, WORD_segment_type);
    write_word(snapshot, WORD_large);
    write_word(snapshot, WORD_segment_pool_id);
    pickle_put_pair(writer, 0, 0);
    write_word(snapshot, WORD_is_expandable);
    pickle_put_bool(writer, range->is_pages);
    write_frames(snapshot, NULL);
    write_blocks(snapshot, range, live, count);
    pickle_end_dict(writer);
    pickle_flush_list(writer);
}

static enum gc_status write_device_end(struct snapshot *snapshot, const struct trace_state *state,
                                       unsigned device)
{
    const struct trace_space *space = &state->spaces[device];
    size_t count;
    const struct trace_allocation **live = sort_live(state->ledger, device, &count);
    size_t at = 0;
    if (live == NULL)
        return GC_NO_HOST_MEMORY;
    for (size_t i = 0; i < count; i++) {
        const struct trace_range own = {live[i]->address, live[i]->bytes, false};
        if (live[i]->is_apart && own.bytes > 0)
            write_segment(snapshot, device, &own, &live[i], 1);
        else if (!live[i]->is_apart)
            live[at++] = live[i];
    }
    count = at;
    at = 0;
    for (size_t i = 0; i < space->count; i++) {
        const struct trace_range *range = &space->ranges[i];
        while (at < count && live[at]->address < range->address)
            at++;
        const size_t first = at;
        while (at < count && live[at]->address < range->address + range->bytes)
            at++;
        write_segment(snapshot, device, range, live + first, at - first);
    }
    free(live);
    return GC_OK;
}

static enum gc_status write_devices(void *self, const struct trace_state *state,
                                    const struct trace_step *step)
{
    struct snapshot *snapshot = self;
    (void)state;
    if (step->event->device >= snapshot->device_count)
        snapshot->device_count = step->event->device + 1U;
    return GC_OK;
}

static enum gc_status end_segments(void *self, const struct trace_state *state)
{
    struct snapshot *snapshot = self;
    enum gc_status status = GC_OK;
    for (unsigned i = 0; status == GC_OK && i < snapshot->device_count; i++)
        status = write_device_end(snapshot, state, i);
    return status;
}

/* ---- the history ---- */

static void write_event(struct snapshot *snapshot, enum word action, uint64_t address,
                        uint64_t bytes, const struct trace_step *step)
{
    const bool has_stream = step->op <= GC_TRACE_OOM;
    begin_member(snapshot);
    write_word(snapshot, WORD_action);
    write_word(snapshot, action);
    if (action == WORD_oom)
        write_number(snapshot, WORD_device_free, snapshot->free_bytes);
    else
        write_number(snapshot, WORD_addr, address);
    write_number(snapshot, WORD_size, bytes);
    write_number(snapshot, WORD_stream, has_stream ? step->event->stream : 0);
    write_number(snapshot, WORD_time_us, snapshot->start_us + step->time_ns / 1000);
    write_frames(snapshot, step->allocation);
    pickle_end_dict(&snapshot->writer);
}

static void write_life(struct snapshot *snapshot, const struct trace_step *step)
{
    const struct trace_allocation *allocation = step->allocation;
    const uint64_t address = allocation->address;
    const uint64_t bytes = allocation->bytes;
    if (step->op == GC_TRACE_ALLOC) {
        if (allocation->is_apart)
            write_event(snapshot, WORD_segment_alloc, address, bytes, step);
        write_event(snapshot, WORD_alloc, address, bytes, step);
        return;
    }
    write_event(snapshot, WORD_free_requested, address, bytes, step);
    write_event(snapshot, WORD_free_completed, address, bytes, step);
    if (allocation->is_apart)
        write_event(snapshot, WORD_segment_free, address, bytes, step);
}

static enum gc_status write_history_step(void *self, const struct trace_state *state,
                                         const struct trace_step *step)
{
    struct snapshot *snapshot = self;
    const struct gc_trace_event *event = step->event;
    const bool is_pages = event->stream == GC_TRACE_PAGES;
    (void)state;
    if ((step->allocation != NULL ? step->allocation->device : event->device) != snapshot->device)
        return GC_OK;
    if (step->allocation != NULL) {
        write_life(snapshot, step);
        return GC_OK;
    }
    switch (step->op) {
    case GC_TRACE_OOM:
        write_event(snapshot, WORD_oom, 0, event->bytes, step);
        break;
    case GC_TRACE_LEVELS:
        snapshot->free_bytes = event->stream != UINT64_MAX && event->stream > event->address
                                   ? event->stream - event->address
                                   : 0;
        break;
    case GC_TRACE_MAP:
        write_event(snapshot, is_pages ? WORD_segment_map : WORD_segment_alloc, event->address,
                    event->bytes, step);
        break;
    case GC_TRACE_UNMAP:
        write_event(snapshot, is_pages ? WORD_segment_unmap : WORD_segment_free, event->address,
                    event->bytes, step);
        break;
    default:
        break;
    }
    return GC_OK;
}

static enum gc_status walk_once(struct gc_trace_reader reader, const struct trace_sink *sink)
{
    struct trace_sum sum;
    const enum gc_status status = trace_walk(&reader, sink, &sum);
    if (status == GC_OK)
        trace_sum_fini(&sum);
    return status;
}

static enum gc_status write_histories(struct snapshot *snapshot, struct gc_trace_reader reader)
{
    const struct trace_sink history = {snapshot, write_history_step, NULL};
    enum gc_status status = GC_OK;
    for (unsigned i = 0; status == GC_OK && i < snapshot->device_count; i++) {
        snapshot->device = i;
        snapshot->pending = 0;
        snapshot->free_bytes = 0;
        pickle_begin_list(&snapshot->writer);
        status = walk_once(reader, &history);
        pickle_end_list(&snapshot->writer);
        pickle_flush_list(&snapshot->writer);
    }
    return status;
}

enum gc_status trace_export_pickle(struct gc_trace_reader reader, struct gc_writer *out)
{
    const struct trace_sink segments = {NULL, write_devices, end_segments};
    struct snapshot snapshot = {.start_us = reader.start_unix % 10000000000 * 1000000,
                                .api_names = trace_api_names(&reader)};
    struct trace_sink sink = segments;
    if (snapshot.api_names == NULL)
        return GC_NO_HOST_MEMORY;
    sink.self = &snapshot;
    pickle_begin(&snapshot.writer, out);
    pickle_begin_dict(&snapshot.writer);
    pickle_put_text(&snapshot.writer, "segments");
    pickle_begin_list(&snapshot.writer);
    enum gc_status status = walk_once(reader, &sink);
    pickle_end_list(&snapshot.writer);
    pickle_put_text(&snapshot.writer, "device_traces");
    pickle_begin_list(&snapshot.writer);
    if (status == GC_OK)
        status = write_histories(&snapshot, reader);
    pickle_end_list(&snapshot.writer);
    pickle_end_dict(&snapshot.writer);
    pickle_end(&snapshot.writer);
    free(snapshot.api_names);
    return status;
}
