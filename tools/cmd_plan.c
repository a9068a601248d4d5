/* gpucache plan: memory whose lifetimes are known, placed before it is used. */
#include "core/text.h"
#include "tools/plan.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define REGION_BYTES_MAX (UINT64_C(8) << 30)

/* The first that accepts a file reads it. */
static const struct plan_source *const sources[] = {
    &plan_source_trace,
    &plan_source_graph,
    &plan_source_problem,
};

#define SOURCE_COUNT (sizeof(sources) / sizeof(sources[0]))

/* ---- files that are written ---- */

static bool ends_in(const char *path, const char *ending)
{
    const size_t length = strlen(path);
    const size_t most = strlen(ending);
    return length >= most && gc_text_equal_nocase(path + length - most, ending, most);
}

static int fail_memory(const char *path)
{
    return tool_fail(&tool_command_plan, "%s: %s", path, gc_status_text(GC_NO_HOST_MEMORY));
}

static int write_output(struct gc_out *out, const struct plan_view *view)
{
    const struct plan_source *source = view->subject->source;
    const char *path = view->request->output;
    if (ends_in(path, ".json")) {
        plan_put_json(out, view);
        return TOOL_DONE;
    }
    if (source->write != NULL)
        return source->write(view->request, view->subject, view->result, out);
    return plan_put_csv(out, view) ? TOOL_DONE : fail_memory(path);
}

static int write_picture(struct gc_out *out, const struct plan_view *view)
{
    return plan_put_svg(out, view) ? TOOL_DONE : fail_memory(view->request->svg);
}

static int fail_file(const char *path)
{
    return tool_fail(&tool_command_plan, "%s: %s", path, tool_output_error(errno));
}

/* Emptied only when it is known not to be the input, which is read from meanwhile. */
static int open_output(const char *path, const struct tool_file *input, int *fd)
{
    struct stat info;
    *fd = open(path, tool_output_flags(path), 0666);
    if (*fd < 0)
        return fail_file(path);
    int status = TOOL_DONE;
    const bool is_told = fstat(*fd, &info) == 0;
    if (is_told && (unsigned long long)info.st_dev == input->device &&
        (unsigned long long)info.st_ino == input->inode)
        status = tool_fail(&tool_command_plan, "%s: is what is planned itself", path);
    else if (!is_told || (S_ISREG(info.st_mode) && ftruncate(*fd, 0) != 0))
        status = fail_file(path);
    if (status != TOOL_DONE)
        close(*fd);
    return status;
}

static int write_file(const char *path, const struct tool_file *input, const struct plan_view *view,
                      int (*write)(struct gc_out *, const struct plan_view *))
{
    struct gc_out out;
    int fd;
    int status = open_output(path, input, &fd);
    if (status != TOOL_DONE)
        return status;
    gc_out_init(&out, fd);
    status = write(&out, view);
    if (gc_out_flush(&out) != GC_OK && status == TOOL_DONE)
        status = fail_file(path);
    if (close(fd) != 0 && status == TOOL_DONE)
        status = fail_file(path);
    return status;
}

/* ---- the command ---- */

static int print(const struct plan_view *view)
{
    struct gc_out out;
    gc_out_init(&out, STDOUT_FILENO);
    if (view->request->json)
        plan_put_json(&out, view);
    else
        plan_put_text(&out, view);
    return tool_finish(&tool_command_plan, &out);
}

static int show(const struct plan_request *request, const struct tool_file *file,
                struct plan_subject *subject, const struct plan_result *result)
{
    struct plan_view view = {.request = request, .subject = subject, .result = result};
    int status = TOOL_DONE;
    if (!plan_reuse_find(subject, result, &view.reuse))
        return fail_memory(request->path);
    if (request->output != NULL)
        status = write_file(request->output, file, &view, write_output);
    if (status == TOOL_DONE && request->svg != NULL)
        status = write_file(request->svg, file, &view, write_picture);
    return status == TOOL_DONE ? print(&view) : status;
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
        return tool_fail(&tool_command_plan,
                         "%s: not known; accepted: an ONNX model, a placement problem "
                         "(id,lower,upper,size), a trace",
                         request->path);
    gc_region_init(&subject.region, REGION_BYTES_MAX);
    int status = subject.source->read(request, file, &subject);
    if (status == TOOL_DONE)
        status = plan_solve(request, &subject, &result);
    if (status == TOOL_DONE)
        status = show(request, file, &subject, &result);
    if (subject.source->close != NULL)
        subject.source->close(&subject);
    gc_region_fini(&subject.region);
    return status == TOOL_DONE && !result.fits ? TOOL_DOES_NOT_FIT : status;
}

static int run(int argc, char **argv)
{
    static struct plan_request request;
    struct tool_file file;
    int status = plan_setup_parse(argc, argv, &request);
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
    .summary = "place memory whose lifetimes are known",
    .help = "FILE, by its content: an ONNX model; a placement problem, CSV with the columns\n"
            "id,lower,upper,size (a buffer lives in [lower, upper); alignment and offset,\n"
            "where it must be, may be columns too); a trace.\n"
            "\n"
            "  --capacity S    any placement within it will do; exit status 3 if none was\n"
            "                  found\n"
            "  --output F      the plan: JSON if F ends in .json, else the problem's CSV with\n"
            "                  offsets; of a trace what GPUCACHE_PLAN follows\n"
            "  --svg F         a picture: time across, address up\n"
            "  --deadline SEC  how long to search for a better placement (10)\n"
            "  --threads N     threads that search (1)\n"
            "  --seed N        where the search starts (0)\n"
            "  --nodes N       how many steps it takes at most: with one thread the same plan\n"
            "                  comes out each time\n"
            "  --alignment N   of each offset (256 in graphs, 1 in problems)\n"
            "  --json          print one JSON object\n"
            "\n"
            "Of graphs:\n"
            "  --dim name=N    an open dimension; may be repeated\n"
            "  --batch N       dimensions that are named batch, N and the like (1)\n"
            "  --seq-len N     dimensions that are named seq_len and the like\n"
            "  --strict        refuse a graph that has a tensor of unknown size\n"
            "  --weights W, --inputs W, --outputs W\n"
            "                  keep: they are there throughout; use: from when they are made\n"
            "                  or first read to their last use; leave: not planned (keep)\n"
            "  --no-in-place   no operator writes over what it reads\n",
    .run = run,
};
