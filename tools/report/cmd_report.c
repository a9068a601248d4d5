/* gpucache report: shows a JSON report, with the code that the library writes reports with. */
#include "core/report/html.h"
#include "core/report/tables.h"
#include "tools/base/tool.h"
#include "tools/report/report_load.h"
#include "tools/trace/trace_page.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

typedef enum gc_status writer(const struct gc_report *report, int fd);

static int write_out(const struct report_loaded *loaded, writer *write, const char *path,
                     const struct tool_file *input)
{
    struct gc_writer out;
    const int status = tool_output_open(&tool_command_report, path, input, &out);
    if (status != TOOL_DONE)
        return status;
    if (write(&loaded->report, out.fd) != GC_OK)
        out.error = errno;
    return tool_output_close(&tool_command_report, path, &out);
}

static int load(const struct tool_file *file, struct report_loaded *loaded)
{
    char why[256];
    if (file->bytes == 0)
        return tool_fail(&tool_command_report, "%s: the file is empty", file->path);
    if (report_load(file->data, file->bytes, loaded, why, sizeof(why)) != GC_OK)
        return tool_fail(&tool_command_report, "%s: %s%s", file->path, why,
                         tool_file_hint(file, TOOL_REPORT));
    return TOOL_DONE;
}

/* ---- the page ---- */

#define SIDES_MAX 2

/* A report, and the trace of the same run if given. */
struct side {
    const char *path;
    const char *trace_path; /* NULL: none */
    struct tool_file file;
    struct tool_file trace_file;
    struct report_loaded loaded;
    bool is_loaded;
    struct gc_trace_reader trace;
};

static int open_trace(struct side *side)
{
    const char *why;
    if (side->trace_path == NULL)
        return TOOL_DONE;
    const int status = tool_map(&tool_command_report, side->trace_path, &side->trace_file);
    if (status != TOOL_DONE)
        return status;
    if (gc_trace_reader_init(&side->trace, side->trace_file.data, side->trace_file.bytes, &why) !=
        GC_OK)
        return tool_fail(&tool_command_report, "%s: %s%s", side->trace_path,
                         side->trace_file.bytes == 0 ? "the file is empty" : why,
                         tool_file_hint(&side->trace_file, TOOL_TRACE));
    return TOOL_DONE;
}

static int open_side(struct side *side)
{
    int status = tool_map(&tool_command_report, side->path, &side->file);
    if (status == TOOL_DONE)
        status = load(&side->file, &side->loaded);
    side->is_loaded = status == TOOL_DONE;
    return status == TOOL_DONE ? open_trace(side) : status;
}

static void close_side(struct side *side)
{
    if (side->is_loaded)
        report_unload(&side->loaded);
    tool_unmap(&side->file);
    tool_unmap(&side->trace_file);
}

static enum gc_status write_side(const struct side *side, struct gc_json *json)
{
    enum gc_status status = GC_OK;
    const char *name = strrchr(side->path, '/');
    gc_json_begin_object(json, GC_JSON_LINES);
    gc_json_write_string(json, "name", name != NULL ? name + 1 : side->path);
    gc_json_key(json, "report");
    gc_report_write_json_to(&side->loaded.report, json);
    gc_json_key(json, "trace");
    if (side->trace_path == NULL)
        gc_json_null(json);
    else
        status = trace_page_write(side->trace, side->loaded.stacks.symbols, json);
    gc_json_end_object(json);
    return status;
}

static int write_page(const struct side *sides, size_t count, const char *path)
{
    struct gc_writer out;
    struct gc_json json;
    enum gc_status put = GC_OK;
    int status = TOOL_DONE;
    for (size_t i = 1; status == TOOL_DONE && i < count; i++)
        status = tool_output_check(&tool_command_report, path, &sides[i].file);
    for (size_t i = 0; status == TOOL_DONE && i < count; i++)
        status = tool_output_check(&tool_command_report, path, &sides[i].trace_file);
    if (status == TOOL_DONE)
        status = tool_output_open(&tool_command_report, path, &sides[0].file, &out);
    if (status != TOOL_DONE)
        return status;
    gc_html_begin(&json, &out);
    for (size_t i = 0; put == GC_OK && i < count; i++)
        put = write_side(&sides[i], &json);
    gc_html_end(&json);
    status = tool_output_close(&tool_command_report, path, &out);
    if (put != GC_OK)
        return tool_fail(&tool_command_report, "%s", gc_status_text(put));
    return status;
}

/* ---- the command ---- */

struct request {
    bool json;
    bool symbols; /* name the functions in stacks */
    const char *prom;
    const char *html;
};

static int show(const struct request *request, const struct side *sides, size_t count)
{
    const struct side *side = &sides[0];
    int status = TOOL_DONE;
    if (request->prom != NULL)
        status = write_out(&side->loaded, gc_report_write_prom, request->prom, &side->file);
    if (status == TOOL_DONE && request->html != NULL)
        status = write_page(sides, count, request->html);
    if (status == TOOL_DONE && request->json)
        status = write_out(&side->loaded, gc_report_write_json, "-", NULL);
    else if (status == TOOL_DONE && request->prom == NULL && request->html == NULL)
        status = write_out(&side->loaded, gc_report_write_text, "-", NULL);
    return status;
}

/* Call sites on one line of the source are one, once they have their lines. */
static int name_frames(struct report_loaded *loaded)
{
    if (!report_stacks_name(&loaded->stacks))
        return tool_fail(&tool_command_report, "out of memory");
    for (uint32_t i = 0; i < loaded->snapshot.device_count; i++)
        loaded->leaks[i].group_count =
            gc_report_join_leaks(&loaded->report, (struct gc_leak_group *)loaded->leaks[i].groups,
                                 loaded->leaks[i].group_count);
    return TOOL_DONE;
}

static bool is_standard(const char *path)
{
    return path != NULL && strcmp(path, "-") == 0;
}

static int check(const struct request *request, const struct tool_list *traces, size_t count)
{
    if (request->json + is_standard(request->prom) + is_standard(request->html) > 1)
        return tool_usage(&tool_command_report,
                          "only one of --json, --prom -, --html - can write to standard output");
    if (request->html == NULL && count > 1)
        return tool_usage(&tool_command_report,
                          "two reports can only be compared on a page: add --html OUT");
    if (request->html == NULL && traces->count > 0)
        return tool_usage(&tool_command_report, "--trace goes with --html");
    if (traces->count > count)
        return tool_usage(&tool_command_report, "more traces than reports");
    return TOOL_DONE;
}

static int run(int argc, char **argv)
{
    struct request request = {.json = false};
    struct tool_list traces = {.count = 0};
    const struct tool_option options[] = {{.name = "--json", .flag = &request.json},
                                          {.name = "--symbols", .flag = &request.symbols},
                                          {.name = "--prom", .value = &request.prom, .bare = "-"},
                                          {.name = "--html", .value = &request.html},
                                          {.name = "--trace", .list = &traces}};
    struct tool_words words = {.most = SIDES_MAX, .one_is_enough = true, .names = {"a file"}};
    struct side sides[SIDES_MAX];
    memset(sides, 0, sizeof(sides));
    int status = tool_parse_words(&tool_command_report, options,
                                  sizeof(options) / sizeof(options[0]), argc, argv, &words);
    if (status != TOOL_DONE || words.helped)
        return status;
    status = check(&request, &traces, words.count);
    for (size_t i = 0; status == TOOL_DONE && i < words.count; i++) {
        sides[i].path = words.words[i];
        sides[i].trace_path = i < traces.count ? traces.values[i] : NULL;
        status = open_side(&sides[i]);
        if (status == TOOL_DONE && request.symbols)
            status = name_frames(&sides[i].loaded);
    }
    if (status == TOOL_DONE)
        status = show(&request, sides, words.count);
    for (size_t i = 0; i < SIDES_MAX; i++)
        close_side(&sides[i]);
    return status;
}

const struct tool_command tool_command_report = {
    .name = "report",
    .synopsis = "FILE [OTHER] [OPTIONS]",
    .summary = "show a JSON report as text, as a page or in another format",
    .help = "  --html OUT      a page for any browser, which needs no network; with two\n"
            "                  reports it compares them\n"
            "  --trace FILE    with --html: the trace of the same run, for memory over\n"
            "                  time; repeated: that of the second report\n"
            "  --symbols       call stacks with the names and lines that the programs' files\n"
            "                  have\n"
            "  --json          print it as JSON again, checked, keys in the schema's order\n"
            "  --prom [OUT]    as Prometheus' text format, for node_exporter's textfile\n"
            "                  collector\n"
            "\n"
            "OUT - is standard output.\n",
    .run = run,
};
