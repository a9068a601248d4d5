/* Chrome's trace event JSON, for ui.perfetto.dev and chrome://tracing.
 *
 * A process stands for a device and groups its tracks: counters of live, reserved and pending bytes
 * and of the limit, and an asynchronous slice for each allocation, from request to free.
 * Allocations that are never freed end with the trace, marked so. Times are microseconds since the
 * first event. */
#include "core/io/json.h"
#include "core/io/text.h"
#include "tools/trace/trace_export.h"

#include <stdlib.h>
#include <string.h>

struct perfetto {
    struct gc_json json;
    const char **api_names;
    uint64_t live[TRACE_DEVICES];
    bool is_seen[TRACE_DEVICES];
};

static void write_time(struct gc_json *json, uint64_t time_ns)
{
    gc_json_write_fixed(json, "ts", time_ns, 3);
}

/* Begins an event; its arguments follow. */
static void begin_event(struct perfetto *perfetto, const char *phase, const char *name,
                        unsigned device, uint64_t time_ns)
{
    struct gc_json *json = &perfetto->json;
    gc_json_begin_object(json, GC_JSON_LINE);
    gc_json_write_string(json, "ph", phase);
    gc_json_write_string(json, "name", name);
    gc_json_write_uint(json, "pid", device + 1);
    write_time(json, time_ns);
}

static void end_event(struct perfetto *perfetto)
{
    gc_json_end_object(&perfetto->json);
}

static void write_counter(struct perfetto *perfetto, const char *name, unsigned device,
                          uint64_t time_ns, uint64_t bytes)
{
    struct gc_json *json = &perfetto->json;
    begin_event(perfetto, "C", name, device, time_ns);
    gc_json_open_object(json, "args", GC_JSON_LINE);
    gc_json_write_uint(json, "bytes", bytes);
    gc_json_end_object(json);
    end_event(perfetto);
}

static void write_name(struct perfetto *perfetto, unsigned device, uint64_t time_ns)
{
    struct gc_json *json = &perfetto->json;
    char name[] = "device 255: memory";
    name[7] = (char)('0' + device / 100);
    name[8] = (char)('0' + device / 10 % 10);
    name[9] = (char)('0' + device % 10);
    const char *digits = device >= 100 ? name + 7 : device >= 10 ? name + 8 : name + 9;
    memmove(name + 7, digits, strlen(digits) + 1);
    begin_event(perfetto, "M", "process_name", device, time_ns);
    gc_json_open_object(json, "args", GC_JSON_LINE);
    gc_json_write_string(json, "name", name);
    gc_json_end_object(json);
    end_event(perfetto);
}

static void write_id(struct gc_json *json, const struct trace_allocation *allocation)
{
    gc_json_write_string(json, "cat", "allocation");
    gc_json_write_uint(json, "id", allocation->id);
    gc_json_write_uint(json, "tid", allocation->thread);
}

static void write_begin(struct perfetto *perfetto, const struct trace_allocation *allocation)
{
    struct gc_json *json = &perfetto->json;
    begin_event(perfetto, "b", perfetto->api_names[allocation->api], allocation->device,
                allocation->begin_ns);
    write_id(json, allocation);
    gc_json_open_object(json, "args", GC_JSON_LINE);
    gc_json_write_uint(json, "bytes", allocation->bytes);
    gc_json_write_hex(json, "address", allocation->address);
    gc_json_write_hex(json, "stream", allocation->stream);
    gc_json_write_uint(json, "thread", allocation->thread);
    gc_json_end_object(json);
    end_event(perfetto);
}

static void write_end(struct perfetto *perfetto, const struct trace_allocation *allocation,
                      uint64_t time_ns, bool is_freed)
{
    struct gc_json *json = &perfetto->json;
    begin_event(perfetto, "e", perfetto->api_names[allocation->api], allocation->device, time_ns);
    write_id(json, allocation);
    if (!is_freed) {
        gc_json_open_object(json, "args", GC_JSON_LINE);
        gc_json_write_string(json, "freed", "never");
        gc_json_end_object(json);
    }
    end_event(perfetto);
}

static void write_failure(struct perfetto *perfetto, const struct trace_step *step)
{
    struct gc_json *json = &perfetto->json;
    begin_event(perfetto, "i", "out of memory", step->event->device, step->time_ns);
    gc_json_write_uint(json, "tid", step->event->thread);
    gc_json_write_string(json, "s", "p");
    gc_json_open_object(json, "args", GC_JSON_LINE);
    gc_json_write_uint(json, "bytes", step->event->bytes);
    gc_json_write_string(json, "entry point", perfetto->api_names[step->event->api]);
    gc_json_end_object(json);
    end_event(perfetto);
}

static void write_levels(struct perfetto *perfetto, const struct trace_step *step)
{
    const struct gc_trace_event *event = step->event;
    write_counter(perfetto, "reserved", event->device, step->time_ns, event->address);
    write_counter(perfetto, "pending", event->device, step->time_ns, event->bytes);
    if (event->stream != UINT64_MAX)
        write_counter(perfetto, "limit", event->device, step->time_ns, event->stream);
}

static void write_life(struct perfetto *perfetto, const struct trace_step *step, unsigned device)
{
    if (step->op == GC_TRACE_ALLOC) {
        perfetto->live[device] += step->allocation->bytes;
        write_begin(perfetto, step->allocation);
    } else {
        perfetto->live[device] -= step->allocation->bytes;
        write_end(perfetto, step->allocation, step->time_ns, true);
    }
    write_counter(perfetto, "live", device, step->time_ns, perfetto->live[device]);
}

static enum gc_status on_step(void *self, const struct trace_state *state,
                              const struct trace_step *step)
{
    struct perfetto *perfetto = self;
    const unsigned device =
        step->allocation != NULL ? step->allocation->device : step->event->device;
    (void)state;
    if (!perfetto->is_seen[device])
        write_name(perfetto, device, step->time_ns);
    perfetto->is_seen[device] = true;
    if (step->allocation != NULL)
        write_life(perfetto, step, device);
    else if (step->op == GC_TRACE_OOM)
        write_failure(perfetto, step);
    else if (step->op == GC_TRACE_LEVELS)
        write_levels(perfetto, step);
    return GC_OK;
}

static enum gc_status end(void *self, const struct trace_state *state)
{
    struct perfetto *perfetto = self;
    const struct trace_ledger *ledger = state->ledger;
    for (size_t i = 0; i < ledger->capacity; i++) {
        if (ledger->slots[i].id != 0)
            write_end(perfetto, &ledger->slots[i], trace_sum_duration_ns(state->sum), false);
    }
    return GC_OK;
}

enum gc_status trace_export_perfetto(struct gc_trace_reader reader, struct gc_writer *out)
{
    struct perfetto *perfetto = calloc(1, sizeof(*perfetto));
    const char **names = trace_api_names(&reader);
    enum gc_status status = GC_NO_HOST_MEMORY;
    struct trace_sum sum;
    if (perfetto == NULL || names == NULL)
        goto free_all;
    struct gc_json *json = &perfetto->json;
    perfetto->api_names = names;
    gc_json_init(json, out);
    gc_json_begin_object(json, GC_JSON_LINES);
    gc_json_write_string(json, "displayTimeUnit", "ns");
    gc_json_open_object(json, "otherData", GC_JSON_LINE);
    gc_json_write_string(json, "recorded by", "gpucache");
    gc_json_write_uint(json, "pid", reader.pid);
    gc_json_write_uint(json, "start_unix", reader.start_unix);
    gc_json_end_object(json);
    gc_json_open_array(json, "traceEvents", GC_JSON_LINES);
    status = trace_walk(&reader, &(struct trace_sink){perfetto, on_step, end}, &sum);
    gc_json_end_array(json);
    gc_json_end_object(json);
    if (status == GC_OK)
        trace_sum_fini(&sum);
free_all:
    free(names);
    free(perfetto);
    return status;
}
