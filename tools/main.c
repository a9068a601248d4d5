/* The gpucache command: finds the subcommand and calls it. */
#include "core/config/options.h"
#include "core/io/text.h"
#include "tools/base/tool.h"

#include <string.h>
#include <unistd.h>

static const struct tool_command help_command = {.name = "--help"};
static const struct tool_command version_command = {.name = "--version"};

static const struct tool_command *const commands[] = {
    &tool_command_run,    &tool_command_report, &tool_command_trace, &tool_command_replay,
    &tool_command_top,    &tool_command_limit,  &tool_command_trim,  &tool_command_pause,
    &tool_command_resume, &tool_command_pin,    &tool_command_evict, &tool_command_estimate,
    &tool_command_plan,   &tool_command_doctor, &tool_command_cdi,   &tool_command_exporter,
};

#define COMMAND_COUNT (sizeof(commands) / sizeof(commands[0]))

static const struct tool_command *find_command(const char *name)
{
    for (size_t i = 0; i < COMMAND_COUNT; i++) {
        if (strcmp(commands[i]->name, name) == 0)
            return commands[i];
    }
    return NULL;
}

static void print_overview(struct gc_writer *out)
{
    gc_writer_text(
        out, "usage: gpucache COMMAND [ARGUMENTS]\n"
             "\n"
             "Runs CUDA programs under a caching, counting, limiting layer over device memory.\n"
             "\n");
    for (size_t i = 0; i < COMMAND_COUNT; i++) {
        gc_writer_text(out, "  ");
        gc_writer_text(out, commands[i]->name);
        gc_writer_pad(out, 12);
        gc_writer_text(out, commands[i]->summary);
        gc_writer_char(out, '\n');
    }
    gc_writer_text(out,
                   "\n"
                   "gpucache COMMAND --help lists its options; gpucache help options lists the\n"
                   "environment variables of the library; gpucache --version prints the version.\n"
                   "Exit status: 0 done, 1 it failed, 2 usage, 3 does not fit.\n");
}

static void print_options(struct gc_writer *out)
{
    gc_writer_text(
        out,
        "Environment variables of the library, also KEY=value lines of its configuration file.\n"
        "Sizes: a number with K M G T, Ki Mi Gi Ti, KiB MiB GiB TiB (1024) or KB MB GB TB\n"
        "(1000), or a percentage of the device's memory.\n");
    for (int i = 0; i < GC_OPTION_COUNT; i++) {
        const struct gc_option_row *row = gc_options_get_row((enum gc_option)i);
        gc_writer_text(out, "\n");
        gc_writer_text(out, row->name);
        gc_writer_char(out, '\n');
        tool_print_wrapped(out, 4, row->help);
        gc_writer_text(out, "    accepts:");
        tool_print_wrapped(out, 4, row->accepts);
        if (row->default_text[0] != '\0') {
            gc_writer_text(out, "    default: ");
            gc_writer_text(out, row->default_text);
            gc_writer_char(out, '\n');
        }
        if (row->closed)
            gc_writer_text(out,
                           "    an invalid value makes cuInit fail (CUDA_ERROR_INVALID_VALUE)\n");
        if (row->gated)
            gc_writer_text(
                out, "    an invalid value makes cuInit fail (CUDA_ERROR_INVALID_VALUE) where\n"
                     "    GPUCACHE_GATE is neither off nor warn\n");
    }
    gc_writer_text(out, "\nCUDA_DEVICE_MEMORY_LIMIT, CUDA_DEVICE_MEMORY_LIMIT_<i>\n"
                        "    the limit, for all devices or one, where GPUCACHE_LIMIT is not set\n");
}

static int unknown_command(const char *name)
{
    char shown[GC_TEXT_DISTANCE_MAX];
    struct tool_nearest nearest = {.word = shown};
    struct gc_writer out;
    gc_text_printable(name, strlen(name), shown, sizeof(shown));
    tool_nearest_add(&nearest, "help");
    tool_nearest_add(&nearest, "--version");
    tool_nearest_add(&nearest, "--help");
    for (size_t i = 0; i < COMMAND_COUNT; i++)
        tool_nearest_add(&nearest, commands[i]->name);
    gc_writer_init(&out, STDERR_FILENO);
    gc_writer_text(&out, "gpucache: unknown command ");
    gc_writer_text(&out, shown);
    if (nearest.name != NULL) {
        gc_writer_text(&out, "; nearest: ");
        gc_writer_text(&out, nearest.name);
    }
    gc_writer_text(&out, "; see gpucache --help\n");
    (void)!gc_writer_flush(&out);
    return TOOL_USAGE;
}

static int help(int argc, char **argv)
{
    struct gc_writer out;
    gc_writer_init(&out, STDOUT_FILENO);
    if (argc > 2) {
        (void)tool_fail(&help_command, "one command, not also %s", argv[2]);
        return TOOL_USAGE;
    }
    if (argc < 2 || strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "help") == 0) {
        print_overview(&out);
    } else if (strcmp(argv[1], "options") == 0) {
        print_options(&out);
    } else {
        const struct tool_command *command = find_command(argv[1]);
        if (command == NULL)
            return unknown_command(argv[1]);
        tool_print_help(&out, command);
    }
    return tool_finish(&help_command, &out);
}

static int version(void)
{
    struct gc_writer out;
    gc_writer_init(&out, STDOUT_FILENO);
    gc_writer_text(&out, "gpucache " GC_VERSION "\n");
    return tool_finish(&version_command, &out);
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        struct gc_writer out;
        gc_writer_init(&out, STDERR_FILENO);
        print_overview(&out);
        (void)!gc_writer_flush(&out);
        return TOOL_USAGE;
    }
    const char *name = argv[1];
    if (strcmp(name, "--version") == 0 || strcmp(name, "-V") == 0)
        return version();
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0)
        return help(1, argv + 1);
    if (strcmp(name, "help") == 0)
        return help(argc - 1, argv + 1);
    const struct tool_command *command = find_command(name);
    if (command == NULL)
        return unknown_command(name);
    return command->run(argc - 1, argv + 1);
}
