/* Traces for gpucache plan: the trace is read as by replay, its steps are found, and the
 * placement is written as a plan that the library follows. */
#include "tools/plan/plan.h"

#include "core/io/text.h"
#include "core/observe/trace_format.h"
#include "core/schedule/run_place.h"
#include "tools/replay/replay_trace.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LABEL_BYTES 32

static bool begins_with(const struct tool_file *file, const char *text)
{
    const size_t length = strlen(text);
    return file->bytes >= length && memcmp(file->data, text, length) == 0;
}

static bool accepts(const struct tool_file *file)
{
    return begins_with(file, GC_TRACE_MAGIC) || begins_with(file, REPLAY_CSV_HEADER) ||
           begins_with(file, REPLAY_RMM_HEADER) ||
           (file->bytes > 0 && replay_trace_is_pickle(file->data));
}

static int fail_status(const struct plan_request *request, enum gc_status status)
{
    switch (status) {
    case GC_TOO_MANY:
        return tool_fail(
            request->command,
            "%s: more than %u events, or more than %u allocations in a step: too many for a plan",
            request->path, GC_RUN_EVENTS_MAX, GC_PLAN_ENTRIES_MAX);
    case GC_FORMAT:
        return tool_fail(request->command, "%s: the sizes add up to 2^63 bytes or more",
                         request->path);
    default:
        return tool_fail(request->command, "%s: %s", request->path, gc_status_text(status));
    }
}

/* ---- reading ---- */

static enum gc_status copy_events(struct gc_region *region, const struct replay_trace *trace,
                                  struct gc_run_event **events)
{
    const size_t count = trace->count - trace->closing;
    *events = gc_region_alloc(region, count * sizeof(**events));
    if (*events == NULL)
        return GC_NO_HOST_MEMORY;
    for (size_t i = 0; i < count; i++)
        (*events)[i] = (struct gc_run_event){.bytes = trace->events[i].bytes,
                                             .stream = trace->events[i].stream,
                                             .slot = trace->events[i].slot};
    return GC_OK;
}

struct run {
    struct gc_run_problem problem;
    int device;
    uint64_t event_count;
};

/* Named by their number in the plan: a trace has no names. */
static enum gc_status label(struct plan_subject *subject, const struct gc_run_problem *problem)
{
    subject->labels = gc_region_alloc(&subject->region, problem->count * sizeof(*subject->labels));
    subject->groups = gc_region_alloc(&subject->region, problem->count);
    char *names = gc_region_alloc(&subject->region, (uint64_t)problem->count * LABEL_BYTES);
    if (subject->labels == NULL || subject->groups == NULL || names == NULL)
        return GC_NO_HOST_MEMORY;
    subject->group[0].name = "before the steps";
    subject->group[1].name = problem->steps.period != 0 ? "of a step" : "of the run";
    subject->group_count = 2;
    for (uint32_t i = 0; i < problem->count; i++) {
        const bool is_of_loop = i >= problem->loop_start;
        char *name = names + (size_t)i * LABEL_BYTES;
        snprintf(name, LABEL_BYTES, "%u", i);
        subject->labels[i] = (struct plan_label){.name = name};
        subject->groups[i] = is_of_loop;
        subject->group[is_of_loop].bytes += problem->entries[i].bytes;
        subject->group[is_of_loop].count++;
        subject->total_bytes += problem->entries[i].bytes;
    }
    return GC_OK;
}

static enum gc_status make_subject(const struct replay_trace *trace, struct plan_subject *subject)
{
    struct gc_run_event *events;
    struct run *run = gc_region_alloc(&subject->region, sizeof(*run));
    if (run == NULL)
        return GC_NO_HOST_MEMORY;
    enum gc_status status = copy_events(&subject->region, trace, &events);
    if (status == GC_OK)
        status = gc_run_problem_make(&subject->region, events, trace->count - trace->closing,
                                     trace->slot_count, &run->problem);
    if (status != GC_OK)
        return status;
    run->device = trace->device;
    run->event_count = trace->count - trace->closing;
    subject->own = run;
    subject->buffers = run->problem.buffers;
    subject->count = run->problem.count;
    subject->time_unit = "events";
    subject->coverage_thousandths = 1000;
    return label(subject, &run->problem);
}

/* Events of the file that are not in the plan. */
static void add_missing_note(const struct replay_trace *trace, struct gc_notes *notes)
{
    char number[GC_NOTE_NUMBER_BYTES];
    char device[GC_NOTE_NUMBER_BYTES];
    if (trace->elsewhere > 0)
        gc_notes_add(notes, gc_note_number(trace->elsewhere, number),
                     " events of other devices are left out: the plan is device ",
                     gc_note_number((uint64_t)trace->device, device), "'s", NULL);
    if (trace->torn)
        gc_notes_add(notes, "the trace is incomplete: later events are not in the plan", NULL);
}

static int read_trace(const struct plan_request *request, const struct tool_file *file,
                      struct plan_subject *subject)
{
    struct replay_trace trace;
    struct replay_error error;
    int result = TOOL_DONE;
    enum gc_status status = replay_trace_read(file->data, file->bytes, -1, &trace, &error);
    if (status == GC_FORMAT && error.line > 0) {
        result = tool_fail(request->command, "%s: line %llu: %s", request->path,
                           (unsigned long long)error.line, error.text);
    } else if (status != GC_OK) {
        result = tool_fail(request->command, "%s: %s", request->path,
                           status == GC_FORMAT ? error.text : gc_status_text(status));
    } else {
        add_missing_note(&trace, &subject->notes);
        status = make_subject(&trace, subject);
        if (status != GC_OK)
            result = fail_status(request, status);
    }
    replay_trace_fini(&trace);
    return result;
}

/* ---- output ---- */

static enum gc_status place(struct plan_subject *subject, uint64_t capacity_bytes,
                            const struct gc_placement_options *options, gc_run_solve *solve,
                            void *argument, struct gc_placement *placement)
{
    const struct run *run = subject->own;
    return gc_run_place(&subject->region, &run->problem, capacity_bytes, options, solve, argument,
                        placement);
}

static enum gc_status check(const struct plan_subject *subject, const uint64_t *offsets,
                            struct gc_plan_error *error)
{
    struct run *run = subject->own;
    struct gc_plan plan;
    gc_run_problem_plan(&run->problem, offsets, run->device, &plan);
    return gc_plan_check(&plan, error);
}

static int write_plan(const struct plan_request *request, const struct plan_subject *subject,
                      const struct plan_result *result, struct gc_writer *out)
{
    struct run *run = subject->own;
    struct gc_plan plan;
    (void)request;
    gc_run_problem_plan(&run->problem, result->offsets, run->device, &plan);
    gc_plan_write(&plan, out);
    return TOOL_DONE;
}

static void write_text(struct gc_writer *out, const struct plan_subject *subject,
                       const struct plan_result *result)
{
    const struct run *run = subject->own;
    const struct gc_run_steps *steps = &run->problem.steps;
    char size[GC_TEXT_SIZE_BYTES];
    (void)result;
    gc_writer_text(out, "steps");
    gc_writer_pad(out, 16);
    if (steps->period == 0) {
        gc_writer_text(out, "none found: the whole run is one");
    } else {
        gc_writer_text(out, "about ");
        gc_writer_uint(out, steps->count);
        gc_writer_text(out, " of ");
        gc_writer_uint(out, steps->period);
        gc_writer_text(out, " events, behind ");
        gc_writer_uint(out, steps->start);
    }
    gc_writer_text(out, "\nlong-lived");
    gc_writer_pad(out, 16);
    gc_writer_uint(out, run->problem.lasting_count);
    gc_writer_text(out, " of ");
    gc_writer_uint(out, run->problem.count);
    gc_writer_text(out, " allocations, ");
    gc_writer_text(out, gc_text_size(run->problem.lasting_bytes, size));
    if (run->problem.crossing_count > 0) {
        gc_writer_text(out, "\ncross a step");
        gc_writer_pad(out, 16);
        gc_writer_uint(out, run->problem.crossing_count);
        gc_writer_text(out, " allocations, ");
        gc_writer_text(out, gc_text_size(run->problem.crossing_bytes, size));
        gc_writer_text(out, ": in the next step until their free");
    }
    gc_writer_char(out, '\n');
    plan_write_size(out, "run's peak", run->problem.run_peak_bytes, "");
}

static void write_json(struct gc_json *json, const struct plan_subject *subject,
                       const struct plan_result *result)
{
    const struct run *run = subject->own;
    const struct gc_run_steps *steps = &run->problem.steps;
    (void)result;
    gc_json_write_uint(json, "events", run->event_count);
    gc_json_write_uint(json, "steps", steps->period == 0 ? 1 : steps->count);
    gc_json_write_uint(json, "step_events", steps->period == 0 ? run->event_count : steps->period);
    gc_json_write_uint(json, "step_start", steps->start);
    gc_json_write_uint(json, "lasting_count", run->problem.lasting_count);
    gc_json_write_uint(json, "lasting_bytes", run->problem.lasting_bytes);
    gc_json_write_uint(json, "crossing_count", run->problem.crossing_count);
    gc_json_write_uint(json, "crossing_bytes", run->problem.crossing_bytes);
    gc_json_write_uint(json, "steps_planned", run->problem.rounds);
    gc_json_write_uint(json, "end", run->problem.end_time);
    gc_json_write_uint(json, "peak_live_bytes", run->problem.run_peak_bytes);
}

const struct plan_source plan_source_trace = {
    .what = "a recorded run",
    .accepts = accepts,
    .read = read_trace,
    .place = place,
    .check = check,
    .write = write_plan,
    .write_text = write_text,
    .write_json = write_json,
};
