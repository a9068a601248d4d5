/* Solving, with a deadline and a progress line on the terminal; then the check. */
#include "core/base/bits.h"
#include "core/base/clock.h"
#include "core/io/text.h"
#include "tools/plan/plan.h"

#include <string.h>
#include <unistd.h>

#define SHOW_EVERY_NS (100 * GC_NS_PER_MS)
/* What comes after the placement, as multiples of the reading (profiles of 1M buffers). */
#define CHECKS_COST 2
#define TEXT_COST 1
#define CSV_COST 2
#define JSON_COST 5
#define SVG_COST 6

struct progress {
    uint64_t begin_ns;
    uint64_t deadline_ns; /* from the start */
    uint64_t shown_ns;
    uint64_t base_bytes;
    bool is_shown; /* stderr is a terminal */
};

/* ---- the line ---- */

static void print_progress(const struct progress *progress, uint64_t lower_bound_bytes,
                           uint64_t peak_bytes, uint64_t nodes, uint64_t elapsed_ns)
{
    struct gc_writer out;
    char size[GC_TEXT_SIZE_BYTES];
    gc_writer_init(&out, STDERR_FILENO);
    gc_writer_text(&out, "\r\033[K");
    gc_writer_fixed(&out, elapsed_ns / SHOW_EVERY_NS, 1);
    gc_writer_text(&out, " s: lower bound ");
    gc_writer_text(&out, gc_text_size(lower_bound_bytes + progress->base_bytes, size));
    if (peak_bytes != GC_PLACEMENT_UNLIMITED) {
        gc_writer_text(&out, ", best peak ");
        gc_writer_text(&out, gc_text_size(peak_bytes + progress->base_bytes, size));
    }
    gc_writer_text(&out, ", ");
    gc_writer_uint(&out, nodes);
    gc_writer_text(&out, " steps of search");
    (void)!gc_writer_flush(&out);
}

static void wipe(const struct progress *progress)
{
    if (progress->shown_ns > 0)
        (void)!gc_writer_write_all(STDERR_FILENO, "\r\033[K", 4);
}

static bool watch(void *argument, uint64_t lower_bound_bytes, uint64_t peak_bytes, uint64_t nodes)
{
    struct progress *progress = argument;
    const uint64_t elapsed_ns = gc_clock_ns() - progress->begin_ns;
    if (progress->is_shown && elapsed_ns >= progress->shown_ns + SHOW_EVERY_NS) {
        print_progress(progress, lower_bound_bytes, peak_bytes, nodes, elapsed_ns);
        progress->shown_ns = elapsed_ns;
    }
    return elapsed_ns < progress->deadline_ns;
}

/* ---- solving ---- */

static int fail_solve(const struct plan_request *request, struct plan_subject *subject,
                      enum gc_status status)
{
    const struct gc_placement_problem problem = {subject->buffers, subject->count,
                                                 GC_PLACEMENT_UNLIMITED};
    struct gc_placement_fault fault;
    uint64_t peak_bytes;
    if (status == GC_INVALID_ARGUMENT &&
        gc_placement_check(&subject->region, &problem, NULL, &peak_bytes, &fault) == status) {
        char first[48];
        char second[48];
        const char *a = subject->labels[fault.first].name;
        const char *b = subject->labels[fault.second].name;
        return tool_fail(request->command, "%s: buffer %s%s%s: %s", request->path,
                         gc_text_printable(a, strlen(a), first, sizeof(first)),
                         fault.first == fault.second ? "" : " and ",
                         fault.first == fault.second
                             ? ""
                             : gc_text_printable(b, strlen(b), second, sizeof(second)),
                         fault.what);
    }
    return tool_fail(request->command, "%s: %s", request->path, gc_status_text(status));
}

static enum gc_status solve(void *argument, struct gc_region *region,
                            const struct gc_placement_problem *problem,
                            const struct gc_placement_options *options,
                            struct gc_placement *placement)
{
    const struct plan_request *request = argument;
    return plan_threads_solve(region, problem, options, request->threads, placement);
}

static int solve_rest(const struct plan_request *request, struct plan_subject *subject,
                      struct progress *progress, struct gc_placement *placement)
{
    const uint64_t capacity = request->capacity_bytes;
    const struct gc_placement_problem problem = {
        .buffers = subject->buffers + subject->base_count,
        .count = subject->count - subject->base_count,
        .capacity_bytes = capacity == GC_PLACEMENT_UNLIMITED
                              ? capacity
                              : gc_sub_or_zero_u64(capacity, subject->base_bytes),
    };
    struct plan_request on_threads = *request;
    const struct gc_placement_options options = {.seed = request->seed,
                                                 .node_max = request->node_max,
                                                 .watch = watch,
                                                 .watch_argument = progress};
    const enum gc_status status =
        subject->source->place != NULL
            ? subject->source->place(subject, problem.capacity_bytes, &options, solve, &on_threads,
                                     placement)
            : solve(&on_threads, &subject->region, &problem, &options, placement);
    wipe(progress);
    return status == GC_OK ? TOOL_DONE : fail_solve(request, subject, status);
}

/* Checks the whole placement with code that shares nothing with the solver. */
static int check(const struct plan_request *request, struct plan_subject *subject,
                 struct plan_result *result)
{
    const struct gc_placement_problem problem = {subject->buffers, subject->count,
                                                 GC_PLACEMENT_UNLIMITED};
    struct gc_placement_fault fault = {.what = ""};
    const enum gc_status status = gc_placement_check(&subject->region, &problem, result->offsets,
                                                     &result->peak_bytes, &fault);
    struct gc_plan_error error = {.text = ""};
    if (status == GC_OK && (subject->source->check == NULL ||
                            subject->source->check(subject, result->offsets, &error) == GC_OK))
        return TOOL_DONE;
    if (status == GC_OK)
        return tool_fail(request->command, "%s: a defect: the plan is not valid (%s)",
                         request->path, error.text);
    return tool_fail(request->command,
                     "%s: a defect: the plan is not valid (buffers %u and %u: %s)", request->path,
                     (unsigned)fault.first, (unsigned)fault.second, fault.what);
}

bool plan_output_is_json(const struct plan_request *request)
{
    static const char ENDING[] = ".json";
    const size_t most = sizeof(ENDING) - 1;
    const size_t length = request->output != NULL ? strlen(request->output) : 0;
    return length >= most && gc_text_equal_nocase(request->output + length - most, ENDING, most);
}

static uint64_t cost_after(const struct plan_request *request)
{
    uint64_t cost = CHECKS_COST + (request->json ? JSON_COST : TEXT_COST);
    if (request->output != NULL)
        cost += plan_output_is_json(request) ? JSON_COST : CSV_COST;
    return cost + (request->svg != NULL ? SVG_COST : 0);
}

int plan_solve(const struct plan_request *request, struct plan_subject *subject,
               struct plan_result *result)
{
    struct gc_placement placement = {.offsets = NULL};
    const uint64_t begin_ns = gc_clock_ns();
    const uint64_t read_ns = gc_sub_or_zero_u64(begin_ns - request->begin_ns, subject->spent_ns);
    const uint64_t apart_ns = (1 + cost_after(request)) * read_ns + subject->spent_ns;
    struct progress progress = {.begin_ns = begin_ns,
                                .deadline_ns = gc_sub_or_zero_u64(request->deadline_ns, apart_ns),
                                .base_bytes = subject->base_bytes,
                                .is_shown = isatty(STDERR_FILENO) == 1};
    int status = solve_rest(request, subject, &progress, &placement);
    if (status != TOOL_DONE)
        return status;
    *result = (struct plan_result){
        .offsets = gc_region_alloc(&subject->region, (uint64_t)subject->count * sizeof(uint64_t)),
        .lower_bound_bytes = subject->base_bytes + placement.lower_bound_bytes,
        .nodes = placement.nodes,
        .solve_ns = gc_clock_ns() - progress.begin_ns + subject->spent_ns,
        .optimal = placement.optimal,
    };
    if (result->offsets == NULL)
        return fail_solve(request, subject, GC_NO_HOST_MEMORY);
    for (uint32_t i = 0; i < subject->count; i++)
        result->offsets[i] = i < subject->base_count
                                 ? subject->buffers[i].fixed
                                 : subject->base_bytes + placement.offsets[i - subject->base_count];
    status = check(request, subject, result);
    result->fits = result->peak_bytes <= request->capacity_bytes;
    return status;
}
