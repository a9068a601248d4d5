#include "tools/replay/replay_builder.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The ledger's id is slot + 1; 0 is an empty entry. */
#define SLOT_MAX (UINT32_MAX - 1)

void replay_builder_init(struct replay_builder *builder, struct replay_trace *trace)
{
    *builder = (struct replay_builder){.trace = trace};
    *trace = (struct replay_trace){.device = -1};
}

static enum gc_status append(struct replay_builder *builder, const struct replay_event *event)
{
    struct replay_trace *trace = builder->trace;
    if (trace->count == builder->room) {
        const size_t room = builder->room > 0 ? builder->room * 2 : 4096;
        struct replay_event *events = reallocarray(trace->events, room, sizeof(*events));
        if (events == NULL)
            return GC_NO_HOST_MEMORY;
        trace->events = events;
        builder->room = room;
    }
    trace->events[trace->count++] = *event;
    return GC_OK;
}

/* One entry for each slot, so that a push cannot fail. */
static enum gc_status pop_slot(struct replay_builder *builder, uint32_t *slot)
{
    struct replay_trace *trace = builder->trace;
    if (builder->free_count > 0) {
        *slot = builder->free_slots[--builder->free_count];
        return GC_OK;
    }
    if (trace->slot_count == SLOT_MAX)
        return GC_NO_HOST_MEMORY;
    if ((trace->slot_count & (trace->slot_count - 1)) == 0) {
        const size_t room = trace->slot_count > 0 ? (size_t)trace->slot_count * 2 : 1;
        uint32_t *slots = reallocarray(builder->free_slots, room, sizeof(*slots));
        if (slots == NULL)
            return GC_NO_HOST_MEMORY;
        builder->free_slots = slots;
    }
    *slot = trace->slot_count++;
    return GC_OK;
}

/* Appends the free of an allocation that the ledger held under a key. */
static enum gc_status end_life(struct replay_builder *builder, const struct trace_allocation *ended,
                               uint64_t stream)
{
    const uint32_t slot = (uint32_t)(ended->id - 1);
    builder->live_bytes -= ended->bytes;
    builder->free_slots[builder->free_count++] = slot;
    return append(builder, &(struct replay_event){.stream = stream, .slot = slot});
}

bool replay_builder_is_live(const struct replay_builder *builder, uint64_t key)
{
    return trace_ledger_find(&builder->live, key) != NULL;
}

enum gc_status replay_builder_alloc(struct replay_builder *builder, uint64_t key, uint64_t bytes,
                                    uint64_t stream)
{
    struct replay_trace *trace = builder->trace;
    struct trace_allocation ended;
    enum gc_status status = GC_OK;
    uint32_t slot;
    uint64_t live;
    if (trace_ledger_remove(&builder->live, key, &ended)) {
        trace->implied_frees++;
        status = end_life(builder, &ended, stream);
    }
    if (status == GC_OK && __builtin_add_overflow(builder->live_bytes, bytes, &live))
        status = GC_FORMAT;
    if (status == GC_OK)
        status = pop_slot(builder, &slot);
    if (status != GC_OK)
        return status;
    const struct trace_allocation begun = {
        .address = key, .id = (uint64_t)slot + 1, .bytes = bytes};
    status = trace_ledger_add(&builder->live, &begun);
    if (status != GC_OK)
        return status;
    trace->allocs++;
    builder->live_bytes = live;
    if (live > trace->peak_live_bytes)
        trace->peak_live_bytes = live;
    return append(builder, &(struct replay_event){.bytes = bytes, .stream = stream, .slot = slot});
}

enum gc_status replay_builder_free(struct replay_builder *builder, uint64_t key, uint64_t stream)
{
    struct trace_allocation ended;
    if (trace_ledger_remove(&builder->live, key, &ended))
        return end_life(builder, &ended, stream);
    builder->trace->unknown_frees++;
    return GC_OK;
}

enum gc_status replay_builder_close(struct replay_builder *builder)
{
    struct replay_trace *trace = builder->trace;
    enum gc_status status = GC_OK;
    trace->closing = builder->live.count;
    if (trace->closing == 0)
        return GC_OK;
    uint64_t *streams = calloc(trace->slot_count, sizeof(*streams));
    bool *is_live = calloc(trace->slot_count, sizeof(*is_live));
    if (streams == NULL || is_live == NULL)
        status = GC_NO_HOST_MEMORY;
    for (size_t i = 0; status == GC_OK && i < trace->count; i++) {
        is_live[trace->events[i].slot] = trace->events[i].bytes > 0;
        streams[trace->events[i].slot] = trace->events[i].stream;
    }
    for (uint32_t slot = 0; status == GC_OK && slot < trace->slot_count; slot++) {
        if (is_live[slot])
            status = append(builder, &(struct replay_event){.stream = streams[slot], .slot = slot});
    }
    free(streams);
    free(is_live);
    return status;
}

void replay_builder_fini(struct replay_builder *builder)
{
    trace_ledger_fini(&builder->live);
    free(builder->free_slots);
    builder->free_slots = NULL;
}

void replay_trace_fini(struct replay_trace *trace)
{
    free(trace->events);
    trace->events = NULL;
}

enum gc_status replay_refuse(struct replay_error *error, uint64_t line, const char *format, ...)
{
    va_list arguments;
    error->line = line;
    va_start(arguments, format);
    vsnprintf(error->text, sizeof(error->text), format, arguments);
    va_end(arguments);
    return GC_FORMAT;
}
