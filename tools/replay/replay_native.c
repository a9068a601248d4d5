/* The native format (GPUCACHE_TRACE): the events of one device. */
#include "core/observe/trace_reader.h"
#include "tools/replay/replay_trace.h"

#define DEVICES 256

/* The device with the most events, the lowest of equals; -1: no events. */
static int busiest_device(struct gc_trace_reader reader)
{
    uint64_t counts[DEVICES] = {0};
    struct gc_trace_event event;
    int busiest = -1;
    while (gc_trace_reader_next(&reader, &event))
        counts[event.device]++;
    for (int i = 0; i < DEVICES; i++) {
        if (counts[i] > (busiest < 0 ? 0 : counts[busiest]))
            busiest = i;
    }
    return busiest;
}

static enum gc_status read_event(struct replay_builder *builder, const struct gc_trace_event *event)
{
    if (event->op == GC_TRACE_FREE)
        return replay_builder_free(builder, event->address, event->stream);
    if (event->op == GC_TRACE_ALLOC && event->bytes > 0)
        return replay_builder_alloc(builder, event->address, event->bytes, event->stream);
    builder->trace->left_out++;
    return GC_OK;
}

enum gc_status replay_read_native(const void *data, size_t bytes, int device,
                                  struct replay_builder *builder, struct replay_error *error)
{
    struct replay_trace *trace = builder->trace;
    struct gc_trace_reader reader;
    struct gc_trace_event event;
    const char *why;
    if (gc_trace_reader_init(&reader, data, bytes, &why) != GC_OK)
        return replay_refuse(error, 0, "%s", why);
    trace->format = "gpucache trace";
    trace->device = device >= 0 ? device : busiest_device(reader);
    while (gc_trace_reader_next(&reader, &event)) {
        enum gc_status status = GC_OK;
        if (event.device == trace->device) {
            status = read_event(builder, &event);
        } else {
            trace->left_out++;
            trace->elsewhere += event.op == GC_TRACE_ALLOC || event.op == GC_TRACE_FREE;
        }
        if (status != GC_OK)
            return status;
    }
    trace->left_out += reader.skipped;
    trace->torn = reader.torn;
    return GC_OK;
}
