/* gpucache cdi: writes the specification, or runs one of its hooks. */
#include "tools/cdi/cdi.h"

#include "tools/base/library.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DEFAULT_NODE "/run/gpucache"
#define DEFAULT_SIZES                                                                              \
    "512MiB,1GiB,2GiB,3GiB,4GiB,5GiB,6GiB,7GiB,8GiB,10GiB,12GiB,14GiB,16GiB,20GiB,24GiB,28GiB,"    \
    "32GiB,40GiB,48GiB,56GiB,64GiB,72GiB,80GiB,96GiB,112GiB,128GiB,160GiB,192GiB"

/* The name that stays through updates, where it leads to the same file: a package's library is a
 * link to a file with the version in its name. */
static void prefer_plain_name(char library[PATH_MAX])
{
    char plain[PATH_MAX];
    struct stat one;
    struct stat other;
    const char *slash = strrchr(library, '/');
    const int length =
        snprintf(plain, sizeof(plain), "%.*s/libgpucache.so", (int)(slash - library), library);
    if (length < PATH_MAX && stat(plain, &one) == 0 && stat(library, &other) == 0 &&
        one.st_dev == other.st_dev && one.st_ino == other.st_ino)
        memcpy(library, plain, (size_t)length + 1);
}

static int find_library(const char *given, char library[PATH_MAX])
{
    char reason[PATH_MAX + 128];
    if (given == NULL) {
        if (!library_find(library, reason))
            return tool_fail(&tool_command_cdi, "%s", reason);
        prefer_plain_name(library);
        return TOOL_DONE;
    }
    if (given[0] != '/' || strlen(given) >= PATH_MAX)
        return tool_refuse(&tool_command_cdi, "--library", given, "an absolute path");
    if (access(given, R_OK) != 0)
        return tool_fail(&tool_command_cdi, "%s: %s", given, strerror(errno));
    memcpy(library, given, strlen(given) + 1);
    return TOOL_DONE;
}

static int write_specification(const struct cdi_settings *settings, const char *path)
{
    struct gc_writer out;
    int status = cdi_spec_check(settings);
    if (status == TOOL_DONE)
        status = tool_output_open(&tool_command_cdi, path, NULL, &out);
    if (status != TOOL_DONE)
        return status;
    status = cdi_spec_write(settings, &out);
    const int closed = tool_output_close(&tool_command_cdi, path, &out);
    return status == TOOL_DONE ? closed : status;
}

static int choose(const char *action, const struct cdi_settings *given, const char *output)
{
    char library[PATH_MAX];
    struct cdi_settings settings = *given;
    if (strcmp(action, "remove") == 0)
        return cdi_hook_remove(given);
    const int status = find_library(given->library, library);
    if (status != TOOL_DONE)
        return status;
    settings.library = library;
    return strcmp(action, "create") == 0 ? cdi_hook_create(&settings)
                                         : write_specification(&settings, output);
}

static int run(int argc, char **argv)
{
    const char *from_environment = getenv("GPUCACHE_NODE");
    struct cdi_settings settings = {.sizes = NULL};
    const char *output = NULL;
    const struct tool_option options[] = {
        {.name = "--node", .value = &settings.node},
        {.name = "--library", .value = &settings.library},
        {.name = "--sizes", .value = &settings.sizes},
        {.name = "--output", .value = &output},
        {.name = "--with-tool", .flag = &settings.with_tool},
    };
    const bool is_hook =
        argc > 1 && (strcmp(argv[1], "create") == 0 || strcmp(argv[1], "remove") == 0);
    const int skipped = is_hook ? 1 : 0;
    int next;
    const int status = tool_parse(&tool_command_cdi, options, sizeof(options) / sizeof(options[0]),
                                  argc - skipped, argv + skipped, &next);
    if (status != TOOL_DONE || next == 0)
        return status;
    if (next + skipped < argc)
        return tool_usage(&tool_command_cdi, "%s: create, remove or no word is accepted",
                          argv[next + skipped]);
    if (settings.sizes == NULL)
        settings.sizes = DEFAULT_SIZES;
    if (settings.node == NULL)
        settings.node = from_environment != NULL && from_environment[0] != '\0' ? from_environment
                                                                                : DEFAULT_NODE;
    if (settings.node[0] != '/')
        return tool_refuse(&tool_command_cdi, "--node", settings.node, "an absolute path");
    return choose(is_hook ? argv[1] : "", &settings, output == NULL ? "-" : output);
}

const struct tool_command tool_command_cdi = {
    .name = "cdi",
    .synopsis = "[create|remove] [OPTIONS]",
    .summary = "device memory as a device of containers: writes a CDI specification",
    .help = "  --output FILE   default: standard output; engines read /etc/cdi/gpucache.json\n"
            "  --sizes LIST    names of the devices: 512MiB,2GiB,24GiB; default: steps from\n"
            "                  512MiB to 192GiB\n"
            "  --library FILE  the library; default: the one that belongs to this tool\n"
            "  --with-tool     containers get this tool, too; its libraries are the image's\n"
            "  --node FOLDER   folder of the machine's ledgers; default: GPUCACHE_NODE, else\n"
            "                  /run/gpucache\n"
            "\n"
            "A container then has 2 GiB of each device that it sees:\n"
            "  podman run --device nvidia.com/gpu=0 --device gpucache.dev/memory=2GiB ...\n"
            "create and remove are the hooks that the specification names: the runtime calls\n"
            "them, with the container's state on standard input. A container whose hook fails\n"
            "does not start.\n",
    .run = run,
};
