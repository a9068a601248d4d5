/* Exports with a row for each event: our CSV and RMM's log. */
#include "tools/trace/trace_export.h"

#include <stdlib.h>

static void write_field(struct gc_writer *out, uint64_t value, char end)
{
    gc_writer_uint(out, value);
    gc_writer_char(out, end);
}

static enum gc_status write_csv_row(void *self, const struct trace_state *state,
                                    const struct trace_step *step)
{
    struct gc_writer *out = self;
    (void)state;
    if (step->allocation == NULL)
        return GC_OK;
    gc_writer_text(out, step->op == GC_TRACE_ALLOC ? "a," : "f,");
    write_field(out, step->allocation->id, ',');
    write_field(out, step->allocation->bytes, ',');
    write_field(out, step->event->stream, ',');
    write_field(out, step->time_ns / 1000, '\n');
    return GC_OK;
}

static enum gc_status walk_rows(struct gc_trace_reader *reader, const struct trace_sink *sink)
{
    struct trace_sum sum;
    const enum gc_status status = trace_walk(reader, sink, &sum);
    if (status == GC_OK)
        trace_sum_fini(&sum);
    return status;
}

enum gc_status trace_export_csv(struct gc_trace_reader reader, struct gc_writer *out)
{
    gc_writer_text(out, "op,id,bytes,stream,time_us\n");
    return walk_rows(&reader, &(struct trace_sink){.self = out, .on_step = write_csv_row});
}

/* ---- RMM ---- */

struct rmm_log {
    struct gc_writer *out;
    uint64_t start_s; /* of the day, UTC */
};

static void write_two(struct gc_writer *out, uint64_t value, char end)
{
    gc_writer_char(out, (char)('0' + value / 10 % 10));
    gc_writer_char(out, (char)('0' + value % 10));
    gc_writer_char(out, end);
}

/* Hours, minutes, seconds of the day, microseconds: 13:45:01:000250. */
static void write_time(const struct rmm_log *log, uint64_t time_ns)
{
    const uint64_t seconds = (log->start_s + time_ns / 1000000000) % 86400;
    write_two(log->out, seconds / 3600, ':');
    write_two(log->out, seconds / 60 % 60, ':');
    write_two(log->out, seconds % 60, ':');
    for (uint64_t us = time_ns / 1000 % 1000000, unit = 100000; unit > 0; unit /= 10)
        gc_writer_char(log->out, (char)('0' + us / unit % 10));
    gc_writer_char(log->out, ',');
}

static enum gc_status write_rmm_row(void *self, const struct trace_state *state,
                                    const struct trace_step *step)
{
    const struct rmm_log *log = self;
    struct gc_writer *out = log->out;
    (void)state;
    if (step->op > GC_TRACE_OOM)
        return GC_OK;
    const bool has_failed = step->op == GC_TRACE_OOM;
    write_field(out, step->event->thread, ',');
    write_time(log, step->time_ns);
    gc_writer_text(out, has_failed                   ? "allocate failure,"
                        : step->op == GC_TRACE_ALLOC ? "allocate,"
                                                     : "free,");
    gc_writer_hex(out, has_failed ? 0 : step->allocation->address);
    gc_writer_char(out, ',');
    write_field(out, has_failed ? step->event->bytes : step->allocation->bytes, ',');
    write_field(out, step->event->stream, '\n');
    return GC_OK;
}

enum gc_status trace_export_rmm(struct gc_trace_reader reader, struct gc_writer *out)
{
    struct rmm_log log = {out, reader.start_unix % 86400};
    gc_writer_text(out, "Thread,Time,Action,Pointer,Size,Stream\n");
    return walk_rows(&reader, &(struct trace_sink){.self = &log, .on_step = write_rmm_row});
}

/* ---- shared by the exports ---- */

const char **trace_api_names(const struct gc_trace_reader *reader)
{
    const char **names = calloc((size_t)reader->api_count + 1, sizeof(*names));
    const char *name = reader->names;
    for (uint16_t i = 0; names != NULL && i < reader->api_count; i++) {
        names[i] = name;
        while (*name != '\0')
            name++;
        name++;
    }
    return names;
}
