/* gpucache plan: places buffers with known lifetimes before the run. */
#include "core/io/text.h"
#include "core/plan/plan.h"
#include "tools/plan/plan.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define REGION_BYTES_MAX (UINT64_C(8) << 30)

/* The first source that accepts a file reads it. */
static const struct plan_source *const sources[] = {
    &plan_source_trace,
    &plan_source_graph,
    &plan_source_problem,
};

#define SOURCE_COUNT (sizeof(sources) / sizeof(sources[0]))

/* ---- files that are written ---- */

static int fail_memory(const char *path)
{
    return tool_fail(&tool_command_plan, "%s: %s", path, gc_status_text(GC_NO_HOST_MEMORY));
}

static int write_output(struct gc_writer *out, const struct plan_view *view)
{
    const struct plan_source *source = view->subject->source;
    if (plan_output_is_json(view->request)) {
        plan_write_json(out, view);
        return TOOL_DONE;
    }
    if (source->write != NULL)
        return source->write(view->request, view->subject, view->result, out);
    return plan_write_csv(out, view) ? TOOL_DONE : fail_memory(view->request->output);
}

static int write_picture(struct gc_writer *out, const struct plan_view *view)
{
    return plan_write_svg(out, view) ? TOOL_DONE : fail_memory(view->request->svg);
}

/* True if both paths name one file: the picture would overwrite the plan. */
static bool is_same_file(const char *a, const char *b)
{
    struct stat first;
    struct stat second;
    return stat(a, &first) == 0 && stat(b, &second) == 0 && S_ISREG(first.st_mode) &&
           first.st_dev == second.st_dev && first.st_ino == second.st_ino;
}

static bool is_standard_output(const char *path)
{
    return path != NULL && strcmp(path, "-") == 0;
}

static int write_file(const char *path, const struct tool_file *input, const struct plan_view *view,
                      int (*write)(struct gc_writer *, const struct plan_view *))
{
    struct gc_writer out;
    int status = tool_output_open(&tool_command_plan, path, input, &out);
    if (status != TOOL_DONE)
        return status;
    status = write(&out, view);
    const int closed = tool_output_close(&tool_command_plan, path, &out);
    return status == TOOL_DONE ? closed : status;
}

static int write_files(const struct tool_file *input, const struct plan_view *view)
{
    const struct plan_request *request = view->request;
    int status = TOOL_DONE;
    if (request->output != NULL)
        status = write_file(request->output, input, view, write_output);
    if (status != TOOL_DONE || request->svg == NULL)
        return status;
    if (request->output != NULL && !is_standard_output(request->output) &&
        !is_standard_output(request->svg) && is_same_file(request->output, request->svg))
        return tool_fail(&tool_command_plan,
                         "%s: was already written by --output; name another file", request->svg);
    return write_file(request->svg, input, view, write_picture);
}

/* ---- the command ---- */

static int print(const struct plan_view *view)
{
    struct gc_writer out;
    gc_writer_init(&out, STDOUT_FILENO);
    if (view->request->json)
        plan_write_json(&out, view);
    else
        plan_write_text(&out, view);
    return tool_finish(&tool_command_plan, &out);
}

static int print_result(const struct plan_request *request, const struct tool_file *file,
                        struct plan_subject *subject, const struct plan_result *result)
{
    struct plan_view view = {.request = request, .subject = subject, .result = result};
    if ((request->json || plan_output_is_json(request)) &&
        !plan_reuse_find(subject, result, &view.reuse))
        return fail_memory(request->path);
    const int status = write_files(file, &view);
    if (status != TOOL_DONE || is_standard_output(request->output) ||
        is_standard_output(request->svg))
        return status;
    return print(&view);
}

static int refuse_file(const struct plan_request *request, const struct tool_file *file)
{
    const size_t length = strlen(GC_PLAN_MAGIC);
    if (file->bytes >= length && memcmp(file->data, GC_PLAN_MAGIC, length) == 0)
        return tool_fail(&tool_command_plan,
                         "%s: is a plan already, for GPUCACHE_PLAN and gpucache replay --plan",
                         request->path);
    return tool_fail(&tool_command_plan,
                     "%s: %s; accepted: an ONNX model, a placement problem "
                     "(id,lower,upper,size), a trace%s",
                     request->path, file->bytes == 0 ? "the file is empty" : "unknown format",
                     tool_file_hint(file, TOOL_TRACE));
}

static int plan(const struct plan_request *request, const struct tool_file *file)
{
    static struct plan_subject subject;
    struct plan_result result = {.fits = false};
    for (size_t i = 0; i < SOURCE_COUNT && subject.source == NULL; i++) {
        if (sources[i]->accepts(file))
            subject.source = sources[i];
    }
    if (subject.source == NULL)
        return refuse_file(request, file);
    const int checked = plan_setup_check(request, subject.source);
    if (checked != TOOL_DONE)
        return checked;
    gc_region_init(&subject.region, REGION_BYTES_MAX);
    int status = subject.source->read(request, file, &subject);
    if (status == TOOL_DONE)
        status = plan_solve(request, &subject, &result);
    if (status == TOOL_DONE)
        status = print_result(request, file, &subject, &result);
    if (subject.source->close != NULL)
        subject.source->close(&subject);
    gc_region_fini(&subject.region);
    return status == TOOL_DONE && !result.fits ? TOOL_DOES_NOT_FIT : status;
}

static int run(int argc, char **argv)
{
    static struct plan_request request;
    struct tool_file file;
    int status = plan_setup_parse(&tool_command_plan, argc, argv, &request);
    if (status != TOOL_DONE || request.path == NULL)
        return status;
    status = tool_map(&tool_command_plan, request.path, &file);
    if (status != TOOL_DONE)
        return status;
    status = plan(&request, &file);
    tool_unmap(&file);
    return status;
}

const struct tool_command tool_command_plan = {
    .name = "plan",
    .synopsis = "FILE [OPTIONS]",
    .summary = "place buffers with known lifetimes",
    .help = "FILE, by its content: an ONNX model; a placement problem, CSV with the columns\n"
            "id,lower,upper,size (a buffer lives in [lower, upper); alignment and offset,\n"
            "where it must be, may be columns too); a trace.\n"
            "\n"
            "  --capacity S    accept any placement within S; exit status 3 if none was\n"
            "                  found\n"
            "  --output F      the plan: JSON if F ends in .json, else the problem's CSV with\n"
            "                  offsets; of a trace a plan for GPUCACHE_PLAN; - is standard\n"
            "                  output, which then has nothing else\n"
            "  --svg F         a picture: time across, address up\n"
            "  --deadline SEC  time for the command, reading and writing included (10)\n"
            "  --threads N     threads that search (1)\n"
            "  --seed N        seed of the search (0)\n"
            "  --nodes N       at most N search steps: with one thread the plan is\n"
            "                  reproducible\n"
            "  --alignment N   alignment of each offset (256 in graphs, 1 in problems)\n"
            "  --json          print one JSON object\n"
            "\n"
            "For graphs:\n"
            "  --dim name=N    an open dimension; may be repeated\n"
            "  --batch N       dimensions named batch, N and the like (1)\n"
            "  --seq-len N     dimensions named seq_len and the like\n"
            "  --strict        refuse a graph that has a tensor of unknown size\n"
            "  --weights W, --inputs W, --outputs W\n"
            "                  keep: live throughout; use: from their creation or first read\n"
            "                  to their last use; leave: not planned (keep)\n"
            "  --no-in-place   no operator overwrites its inputs\n"
            "  --reorder       run the nodes in another valid order, with a lower peak\n"
            "  --recompute B   run cheap nodes again instead of keeping their results; B:\n"
            "                  the extra work, in operations and in bytes moved: 10%\n",
    .run = run,
};
