/* gpucache report: a JSON report for people, by the code that the library writes reports with. */
#include "tools/report_load.h"
#include "tools/tool.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

static int print(const struct report_loaded *loaded, bool json)
{
    const enum gc_status status = json ? gc_report_write_json(&loaded->report, STDOUT_FILENO)
                                       : gc_report_write_text(&loaded->report, STDOUT_FILENO);
    if (status == GC_OK)
        return TOOL_DONE;
    return tool_fail(&tool_command_report, "standard output: %s", strerror(errno));
}

static int run(int argc, char **argv)
{
    bool json = false;
    const char *path;
    const struct tool_option options[] = {{.name = "--json", .flag = &json},
                                          {.name = "--html", .absent = true}};
    struct tool_file file;
    struct report_loaded loaded;
    char why[256];
    int status = tool_parse_file(&tool_command_report, options, 2, argc, argv, &path);
    if (status != TOOL_DONE || path == NULL)
        return status;
    status = tool_map(&tool_command_report, path, &file);
    if (status != TOOL_DONE)
        return status;
    if (file.bytes == 0)
        status = tool_fail(&tool_command_report, "%s: the file is empty", path);
    else if (report_load(file.data, file.bytes, &loaded, why, sizeof(why)) != GC_OK)
        status = tool_fail(&tool_command_report, "%s: %s", path, why);
    tool_unmap(&file);
    if (status != TOOL_DONE)
        return status;
    status = print(&loaded, json);
    report_unload(&loaded);
    return status;
}

const struct tool_command tool_command_report = {
    .name = "report",
    .synopsis = "FILE [--json]",
    .summary = "show a JSON report as text",
    .help = "  --json          print it as JSON again, checked, keys in the schema's order\n",
    .run = run,
};
