/* gpucache run: sets the library's variables and LD_PRELOAD, then becomes the program. */
#include "core/config/options.h"
#include "core/io/text.h"
#include "tools/base/library.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define STATUS_CANNOT_START 126
#define STATUS_NOT_FOUND 127

struct settings {
    const char *limit;
    const char *mode;
    const char *report;
    const char *trace;
    const char *model;
    const char *budget;
    const char *gate;
};

static int set_variable(const char *name, const char *value)
{
    if (setenv(name, value, 1) == 0)
        return TOOL_DONE;
    return tool_fail(&tool_command_run, "%s: %s", name, strerror(errno));
}

static int set_preload(void)
{
    char library[PATH_MAX];
    char reason[PATH_MAX + 128];
    if (!library_find(library, reason))
        return tool_fail(&tool_command_run, "%s", reason);
    if (strpbrk(library, " :") != NULL)
        return tool_fail(&tool_command_run,
                         "%s: LD_PRELOAD cannot name a path with a blank or a colon; put the "
                         "library elsewhere",
                         library);
    const char *before = getenv("LD_PRELOAD");
    if (before == NULL || before[0] == '\0')
        return set_variable("LD_PRELOAD", library);
    const size_t bytes = strlen(library) + strlen(before) + 2;
    char *joined = malloc(bytes);
    if (joined == NULL)
        return tool_fail(&tool_command_run, "%s", strerror(ENOMEM));
    snprintf(joined, bytes, "%s:%s", library, before);
    const int status = set_variable("LD_PRELOAD", joined);
    free(joined);
    return status;
}

/* Makes a relative path absolute, since the program may change its folder. A '%' in the current
 * folder is escaped: it is not a pattern. */
static int write_path(const char *name, const char *path)
{
    char folder[PATH_MAX];
    char full[2 * PATH_MAX + 2];
    size_t used = 0;
    if (path[0] == '/')
        return set_variable(name, path);
    if (getcwd(folder, sizeof(folder)) == NULL)
        return tool_fail(&tool_command_run, "the current folder: %s", strerror(errno));
    for (const char *p = folder; *p != '\0'; p++) {
        if (*p == '%')
            full[used++] = '%';
        full[used++] = *p;
    }
    if (used + strlen(path) + 2 > GC_OPTION_PATH_BYTES)
        return tool_fail(&tool_command_run, "%s: the path is too long", path);
    full[used++] = '/';
    memcpy(full + used, path, strlen(path) + 1);
    return set_variable(name, full);
}

static bool is_stream(const char *report)
{
    return gc_text_find_word("stderr, stdout, none", report, strlen(report)) >= 0;
}

static int check_gate(const struct settings *settings)
{
    struct gc_size_spec budget;
    const struct gc_option_row *gate = gc_options_get_row(GC_OPTION_GATE);
    if (settings->budget != NULL && gc_size_spec_parse(settings->budget, true, &budget) != GC_OK)
        return tool_usage(&tool_command_run, "--budget %s is not valid; accepted: %s",
                          settings->budget, gc_options_get_row(GC_OPTION_BUDGET)->accepts);
    if (settings->gate != NULL &&
        gc_text_find_word(gate->accepts, settings->gate, strlen(settings->gate)) < 0)
        return tool_usage(&tool_command_run, "--gate %s is not valid; accepted: %s", settings->gate,
                          gate->accepts);
    if (settings->model == NULL && (settings->budget != NULL || settings->gate != NULL))
        return tool_usage(&tool_command_run, "--budget and --gate need --model");
    return TOOL_DONE;
}

static int check(const struct settings *settings)
{
    struct gc_size_spec limit;
    const struct gc_option_row *mode = gc_options_get_row(GC_OPTION_MODE);
    if (settings->limit != NULL && gc_size_spec_parse(settings->limit, true, &limit) != GC_OK)
        return tool_usage(&tool_command_run, "--limit %s is not valid; accepted: %s",
                          settings->limit, gc_options_get_row(GC_OPTION_LIMIT)->accepts);
    if (settings->mode != NULL &&
        gc_text_find_word(mode->accepts, settings->mode, strlen(settings->mode)) < 0)
        return tool_usage(&tool_command_run, "--mode %s is not valid; accepted: %s", settings->mode,
                          mode->accepts);
    return check_gate(settings);
}

/* A model's path has no patterns: it is only made absolute. */
static int write_model(const char *path)
{
    char full[PATH_MAX];
    if (realpath(path, full) == NULL)
        return tool_fail(&tool_command_run, "%s: %s", path, strerror(errno));
    return set_variable("GPUCACHE_MODEL", full);
}

static int apply_gate(const struct settings *settings)
{
    int status = TOOL_DONE;
    if (settings->model != NULL)
        status = write_model(settings->model);
    if (status == TOOL_DONE && settings->budget != NULL)
        status = set_variable("GPUCACHE_BUDGET", settings->budget);
    if (status == TOOL_DONE && settings->gate != NULL)
        status = set_variable("GPUCACHE_GATE", settings->gate);
    return status;
}

static int apply(const struct settings *settings)
{
    int status = set_preload();
    if (status == TOOL_DONE && settings->limit != NULL)
        status = set_variable("GPUCACHE_LIMIT", settings->limit);
    if (status == TOOL_DONE && settings->mode != NULL)
        status = set_variable("GPUCACHE_MODE", settings->mode);
    if (status == TOOL_DONE && settings->report != NULL)
        status = is_stream(settings->report) ? set_variable("GPUCACHE_REPORT", settings->report)
                                             : write_path("GPUCACHE_REPORT", settings->report);
    if (status == TOOL_DONE && settings->trace != NULL)
        status = write_path("GPUCACHE_TRACE", settings->trace);
    return status == TOOL_DONE ? apply_gate(settings) : status;
}

static int parse(int argc, char **argv, struct settings *settings, int *next)
{
    const struct tool_option options[] = {
        {.name = "--limit", .value = &settings->limit},
        {.name = "--mode", .value = &settings->mode},
        {.name = "--report", .value = &settings->report},
        {.name = "--trace", .value = &settings->trace},
        {.name = "--model", .value = &settings->model},
        {.name = "--budget", .value = &settings->budget},
        {.name = "--gate", .value = &settings->gate},
    };
    return tool_parse(&tool_command_run, options, sizeof(options) / sizeof(options[0]), argc, argv,
                      next);
}

/* Reports the command that did not start, and why. Words before the "--" that look like a
 * command are usually an option's value in two words ("--limit 8 GB -- PROGRAM"). */
static int fail_command(char **words, bool is_marked, int error)
{
    bool is_marked_later = false;
    for (char **word = words; *word != NULL; word++)
        is_marked_later = is_marked_later || strcmp(*word, "--") == 0;
    const char *reason = error == ENOENT && strchr(words[0], '/') == NULL
                             ? "no such program in PATH"
                             : strerror(error);
    tool_fail(&tool_command_run, "%s: %s%s", words[0], reason,
              error == ENOENT && !is_marked && is_marked_later
                  ? "; only options with one-word values may come before --"
                  : "");
    return error == ENOENT ? STATUS_NOT_FOUND : STATUS_CANNOT_START;
}

static int run(int argc, char **argv)
{
    struct settings settings = {.limit = NULL};
    int next;
    int status = parse(argc, argv, &settings, &next);
    if (status != TOOL_DONE || next == 0)
        return status;
    if (next == argc || argv[next][0] == '\0')
        return tool_usage(&tool_command_run, "a command is missing");
    status = check(&settings);
    if (status == TOOL_DONE)
        status = apply(&settings);
    if (status != TOOL_DONE)
        return status;
    execvp(argv[next], argv + next);
    return fail_command(argv + next, strcmp(argv[next - 1], "--") == 0, errno);
}

const struct tool_command tool_command_run = {
    .name = "run",
    .synopsis = "[OPTIONS] -- COMMAND...",
    .summary = "run a program under the library",
    .help = "  --limit SIZE    hard limit on device memory: 4GiB, 80%, 0=8GiB,1=50%\n"
            "  --mode MODE     cache, track (count and limit only) or off\n"
            "  --report FILE   stderr, stdout, none or a path; by its ending .json,\n"
            "                  .html, .prom, else text\n"
            "  --trace FILE    record every allocation event\n"
            "  --model FILE    estimate this model's memory when CUDA is initialised\n"
            "  --budget SIZE   memory it must fit in, per device too; default: the limit,\n"
            "                  else the device\n"
            "  --gate GATE     if it does not fit: off, warn, deny (CUDA) or exit (with 3)\n"
            "\n"
            "They set GPUCACHE_LIMIT, GPUCACHE_MODE and so on; see gpucache help options for\n"
            "these and the others. The exit status is the program's, or as a shell's: 127 not\n"
            "found, 126 cannot be started.\n",
    .run = run,
};
