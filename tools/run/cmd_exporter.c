/* gpucache exporter: starts gpucache-exporter, which a package of its own brings, since it needs a
 * library for HTTP. */
#include "tools/base/tool.h"
#include "tools/run/exporter.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define PROGRAM "gpucache-exporter"

/* Beside the tool, or where the build leaves it. */
static const char *const places[] = {"", "engines/exporter/"};

/* Returns only if the program is not there. */
static void start_from(const char *folder, char **argv)
{
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        char path[4352];
        snprintf(path, sizeof(path), "%.4096s/%s" PROGRAM, folder, places[i]);
        execv(path, argv);
    }
}

static int run(int argc, char **argv)
{
    char self[4096];
    const ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);
    int next;
    if (argc == 2 && strcmp(argv[1], "--help") == 0)
        return tool_parse(&tool_command_exporter, NULL, 0, argc, argv, &next);
    if (length > 0) {
        self[length] = '\0';
        *strrchr(self, '/') = '\0';
        start_from(self, argv);
    }
    execvp(PROGRAM, argv);
    return tool_fail(&tool_command_exporter,
                     PROGRAM ": %s; it comes with the package gpucache-exporter, or make exporter",
                     strerror(errno));
}

const struct tool_command tool_command_exporter = {
    .name = "exporter",
    .synopsis = EXPORTER_SYNOPSIS,
    .summary = EXPORTER_SUMMARY,
    .help = EXPORTER_HELP,
    .run = run,
};
