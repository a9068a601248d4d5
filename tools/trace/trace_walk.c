#include "tools/trace/trace_walk.h"

#include <stdlib.h>
#include <string.h>

#define ANNOUNCED_MAX 256U

struct walk {
    struct trace_ledger ledger;
    struct trace_space spaces[TRACE_DEVICES];
    const struct trace_sink *sink;
    struct trace_state state;
    struct trace_sum *sum;
    uint64_t next_id;
    /* Stacks whose allocations follow, at most one for each thread: a ring. */
    struct {
        uint64_t address;
        uint32_t stack;
        uint8_t device;
    } announced[ANNOUNCED_MAX];
    unsigned announced_count;
};

static enum gc_status emit(const struct walk *walk, enum gc_trace_op op,
                           const struct trace_allocation *allocation,
                           const struct gc_trace_event *event)
{
    const uint64_t first_ns = walk->sum->first_ns;
    const bool has_begun = walk->sum->events > 0 && event->time_ns > first_ns;
    const struct trace_step step = {
        .op = op,
        .event = event,
        .allocation = allocation,
        .time_ns = has_begun ? event->time_ns - first_ns : 0,
    };
    if (walk->sink == NULL || walk->sink->on_step == NULL)
        return GC_OK;
    return walk->sink->on_step(walk->sink->self, &walk->state, &step);
}

/* Removes the address from the ledger if it is live. */
static enum gc_status end_life(struct walk *walk, const struct gc_trace_event *event, bool *ended)
{
    struct trace_allocation allocation;
    *ended = trace_ledger_remove(&walk->ledger, event->address, &allocation);
    if (!*ended)
        return GC_OK;
    walk->sum->live_bytes -= allocation.bytes;
    return emit(walk, GC_TRACE_FREE, &allocation, event);
}

static void announce_stack(struct walk *walk, const struct gc_trace_event *event)
{
    const unsigned at = walk->announced_count++ % ANNOUNCED_MAX;
    walk->announced[at].address = event->address;
    walk->announced[at].stack = (uint32_t)event->bytes;
    walk->announced[at].device = event->device;
}

/* The stack that was announced last for the allocation; 0: none. */
static uint32_t take_stack(struct walk *walk, const struct gc_trace_event *event)
{
    const unsigned all =
        walk->announced_count < ANNOUNCED_MAX ? walk->announced_count : ANNOUNCED_MAX;
    for (unsigned i = 1; i <= all; i++) {
        const unsigned at = (walk->announced_count - i) % ANNOUNCED_MAX;
        if (walk->announced[at].address == event->address &&
            walk->announced[at].device == event->device && walk->announced[at].stack != 0) {
            const uint32_t stack = walk->announced[at].stack;
            walk->announced[at].stack = 0;
            return stack;
        }
    }
    return 0;
}

static enum gc_status visit_alloc(struct walk *walk, const struct gc_trace_event *event)
{
    struct trace_sum *sum = walk->sum;
    const struct trace_allocation begun = {
        .address = event->address,
        .id = walk->next_id,
        .bytes = event->bytes,
        .stream = event->stream,
        .begin_ns = event->time_ns > sum->first_ns ? event->time_ns - sum->first_ns : 0,
        .thread = event->thread,
        .stack = take_stack(walk, event),
        .api = event->api,
        .device = event->device,
        .is_apart = trace_space_find(&walk->spaces[event->device], event->address) == NULL,
    };
    bool ended;
    enum gc_status status = end_life(walk, event, &ended);
    sum->implied_frees += ended;
    if (status == GC_OK)
        status = trace_ledger_add(&walk->ledger, &begun);
    if (status != GC_OK)
        return status;
    walk->next_id++;
    sum->allocs++;
    sum->apis[event->api].count++;
    sum->apis[event->api].bytes += event->bytes;
    sum->live_bytes += event->bytes;
    if (sum->live_bytes > sum->peak_bytes) {
        sum->peak_bytes = sum->live_bytes;
        sum->peak_count = walk->ledger.count;
    }
    return emit(walk, GC_TRACE_ALLOC, &begun, event);
}

static enum gc_status visit_free(struct walk *walk, const struct gc_trace_event *event)
{
    bool ended;
    const enum gc_status status = end_life(walk, event, &ended);
    if (ended)
        walk->sum->frees++;
    else
        walk->sum->unknown_frees++;
    return status;
}

static enum gc_status visit_memory(struct walk *walk, const struct gc_trace_event *event)
{
    struct trace_space *space = &walk->spaces[event->device];
    enum gc_status status = GC_OK;
    if (event->op == GC_TRACE_MAP)
        status =
            trace_space_add(space, event->address, event->bytes, event->stream == GC_TRACE_PAGES);
    else if (event->op == GC_TRACE_UNMAP)
        status = trace_space_remove(space, event->address, event->bytes);
    return status == GC_OK ? emit(walk, event->op, NULL, event) : status;
}

static enum gc_status see(struct walk *walk, const struct gc_trace_event *event)
{
    struct trace_sum *sum = walk->sum;
    if (event->op == GC_TRACE_STACK)
        announce_stack(walk, event);
    if (event->op > GC_TRACE_UNMAP)
        return GC_OK;
    if (event->op > GC_TRACE_OOM)
        return visit_memory(walk, event);
    if (sum->events++ == 0)
        sum->first_ns = event->time_ns;
    if (event->time_ns > sum->last_ns)
        sum->last_ns = event->time_ns;
    if (event->op == GC_TRACE_ALLOC)
        return visit_alloc(walk, event);
    if (event->op == GC_TRACE_FREE)
        return visit_free(walk, event);
    sum->ooms++;
    return emit(walk, GC_TRACE_OOM, NULL, event);
}

enum gc_status trace_walk(struct gc_trace_reader *reader, const struct trace_sink *sink,
                          struct trace_sum *sum)
{
    struct walk *walk = calloc(1, sizeof(*walk));
    struct gc_trace_event event;
    enum gc_status status = GC_OK;
    memset(sum, 0, sizeof(*sum));
    if (walk == NULL)
        return GC_NO_HOST_MEMORY;
    *walk = (struct walk){.sink = sink, .sum = sum, .next_id = 1};
    walk->state = (struct trace_state){reader, sum, &walk->ledger, walk->spaces};
    sum->apis = calloc((size_t)reader->api_count + 1, sizeof(*sum->apis));
    if (sum->apis == NULL)
        status = GC_NO_HOST_MEMORY;
    while (status == GC_OK && gc_trace_reader_next_any(reader, &event))
        status = see(walk, &event);
    sum->live_count = walk->ledger.count;
    if (status == GC_OK && sink != NULL && sink->end != NULL)
        status = sink->end(sink->self, &walk->state);
    for (int i = 0; i < TRACE_DEVICES; i++)
        trace_space_fini(&walk->spaces[i]);
    trace_ledger_fini(&walk->ledger);
    free(walk);
    if (status != GC_OK)
        trace_sum_fini(sum);
    return status;
}

void trace_sum_fini(struct trace_sum *sum)
{
    free(sum->apis);
    sum->apis = NULL;
}

uint64_t trace_sum_duration_ns(const struct trace_sum *sum)
{
    return sum->last_ns > sum->first_ns ? sum->last_ns - sum->first_ns : 0;
}
