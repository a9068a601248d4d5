/* gpucache report: a JSON report for people, by the code that the library writes reports with. */
#include "tools/report_load.h"
#include "tools/tool.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

typedef enum gc_status writer(const struct gc_report *report, int fd);

static int write_out(const struct report_loaded *loaded, writer *write, const char *path,
                     const struct tool_file *input)
{
    struct gc_out out;
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
        return tool_fail(&tool_command_report, "%s: %s", file->path, why);
    return TOOL_DONE;
}

static int run(int argc, char **argv)
{
    bool json = false;
    bool symbols = false;
    const char *path;
    const char *prom = NULL;
    const struct tool_option options[] = {{.name = "--json", .flag = &json},
                                          {.name = "--symbols", .flag = &symbols},
                                          {.name = "--prom", .value = &prom, .bare = "-"},
                                          {.name = "--html", .absent = true}};
    struct tool_file file;
    struct report_loaded loaded;
    int status = tool_parse_file(&tool_command_report, options,
                                 sizeof(options) / sizeof(options[0]), argc, argv, &path);
    if (status != TOOL_DONE || path == NULL)
        return status;
    if (json && prom != NULL && strcmp(prom, "-") == 0)
        return tool_usage(&tool_command_report, "two of them both print on standard output");
    status = tool_map(&tool_command_report, path, &file);
    if (status != TOOL_DONE)
        return status;
    status = load(&file, &loaded);
    if (status != TOOL_DONE)
        goto unmap;
    if (symbols && !report_stacks_name(&loaded.stacks)) {
        status = tool_fail(&tool_command_report, "out of memory");
        goto unload;
    }
    if (prom != NULL)
        status = write_out(&loaded, gc_report_write_prom, prom, &file);
    if (status == TOOL_DONE && (json || prom == NULL))
        status = write_out(&loaded, json ? gc_report_write_json : gc_report_write_text, "-", NULL);
unload:
    report_unload(&loaded);
unmap:
    tool_unmap(&file);
    return status;
}

const struct tool_command tool_command_report = {
    .name = "report",
    .synopsis = "FILE [--json] [--prom [OUT]] [--symbols]",
    .summary = "show a JSON report as text, or in another format",
    .help =
        "  --json          print it as JSON again, checked, keys in the schema's order\n"
        "  --prom [OUT]    as Prometheus' text format, for node_exporter's textfile collector\n"
        "  --symbols       functions and lines of C, C++ and the like in stacks, from the programs'\n"
        "                  files, which must be those that ran; debug information gives the lines\n"
        "\n"
        "Without OUT, or with -, it goes to standard output.\n",
    .run = run,
};
