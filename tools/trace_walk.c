#include "tools/trace_walk.h"

#include "tools/trace_ledger.h"

#include <stdlib.h>
#include <string.h>

struct walk {
    struct trace_ledger ledger;
    struct gc_out *csv;
    struct trace_sum *sum;
    uint64_t next_id;
};

static void write_row(struct walk *walk, char op, const struct trace_allocation *allocation,
                      const struct gc_trace_event *event)
{
    struct gc_out *csv = walk->csv;
    const uint64_t first_ns = walk->sum->first_ns;
    if (csv == NULL)
        return;
    gc_out_char(csv, op);
    gc_out_char(csv, ',');
    gc_out_uint(csv, allocation->id);
    gc_out_char(csv, ',');
    gc_out_uint(csv, allocation->bytes);
    gc_out_char(csv, ',');
    gc_out_uint(csv, event->stream);
    gc_out_char(csv, ',');
    gc_out_uint(csv, event->time_ns > first_ns ? (event->time_ns - first_ns) / 1000 : 0);
    gc_out_char(csv, '\n');
}

/* Takes the address out of the ledger if it is live. */
static bool end_life(struct walk *walk, const struct gc_trace_event *event)
{
    struct trace_allocation ended;
    if (!trace_ledger_remove(&walk->ledger, event->address, &ended))
        return false;
    walk->sum->live_bytes -= ended.bytes;
    write_row(walk, 'f', &ended, event);
    return true;
}

static enum gc_status see_alloc(struct walk *walk, const struct gc_trace_event *event)
{
    struct trace_sum *sum = walk->sum;
    const struct trace_allocation begun = {
        .address = event->address, .id = walk->next_id, .bytes = event->bytes, .api = event->api};
    if (end_life(walk, event))
        sum->implied_frees++;
    const enum gc_status status = trace_ledger_add(&walk->ledger, &begun);
    if (status != GC_OK)
        return status;
    walk->next_id++;
    write_row(walk, 'a', &begun, event);
    sum->allocs++;
    sum->apis[event->api].count++;
    sum->apis[event->api].bytes += event->bytes;
    sum->live_bytes += event->bytes;
    if (sum->live_bytes > sum->peak_bytes) {
        sum->peak_bytes = sum->live_bytes;
        sum->peak_count = walk->ledger.count;
    }
    return GC_OK;
}

static enum gc_status see(struct walk *walk, const struct gc_trace_event *event)
{
    struct trace_sum *sum = walk->sum;
    if (sum->events++ == 0)
        sum->first_ns = event->time_ns;
    if (event->time_ns > sum->last_ns)
        sum->last_ns = event->time_ns;
    switch (event->op) {
    case GC_TRACE_ALLOC:
        return see_alloc(walk, event);
    case GC_TRACE_FREE:
        if (end_life(walk, event))
            sum->frees++;
        else
            sum->unknown_frees++;
        return GC_OK;
    default:
        sum->ooms++;
        return GC_OK;
    }
}

enum gc_status trace_walk(struct gc_trace_reader *reader, struct gc_out *csv, struct trace_sum *sum)
{
    struct walk walk = {.csv = csv, .sum = sum, .next_id = 1};
    struct gc_trace_event event;
    enum gc_status status = GC_OK;
    memset(sum, 0, sizeof(*sum));
    sum->apis = calloc((size_t)reader->api_count + 1, sizeof(*sum->apis));
    if (sum->apis == NULL)
        return GC_NO_HOST_MEMORY;
    if (csv != NULL)
        gc_out_text(csv, "op,id,bytes,stream,time_us\n");
    while (status == GC_OK && gc_trace_reader_next(reader, &event))
        status = see(&walk, &event);
    sum->live_count = walk.ledger.count;
    trace_ledger_fini(&walk.ledger);
    if (status != GC_OK)
        trace_sum_fini(sum);
    return status;
}

void trace_sum_fini(struct trace_sum *sum)
{
    free(sum->apis);
    sum->apis = NULL;
}
