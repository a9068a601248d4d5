/* gpucache top: device memory by process and group, live on a terminal, once as text, or as
 * JSON. */
#include "core/io/text.h"
#include "tools/base/tool.h"
#include "tools/live/top_prom.h"
#include "tools/live/top_source.h"
#include "tools/live/top_text.h"

#include <errno.h>
#include <locale.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

struct request {
    struct top_order order;
    unsigned interval_ms;
    const char *device; /* NULL: all */
    bool once;
    bool json;
    bool is_of_all_users;
    const char *prom; /* the file of --prom, "-": standard output; NULL: none */
};

/* Finds the device of --device: its number, its UUID or a prefix of it. TOOL_FAILED with a line. */
static int find_device(const struct top_view *view, const char *text, size_t *index)
{
    char shown[64];
    uint64_t number;
    const bool is_number = gc_text_uint(text, strlen(text), &number);
    size_t count = 0;
    for (size_t i = 0; i < view->device_count; i++) {
        const bool fits = is_number ? view->devices[i].number == number
                                    : strncmp(view->devices[i].uuid, text, strlen(text)) == 0;
        if (fits) {
            *index = i;
            count++;
        }
    }
    if (count == 1)
        return TOOL_DONE;
    return tool_fail(&tool_command_top,
                     count == 0 ? "no device is %s; gpucache top --once lists them"
                                : "the UUIDs of several devices begin with %s",
                     gc_text_printable(text, strlen(text), shown, sizeof(shown)));
}

static unsigned terminal_width(void)
{
    struct winsize size;
    if (isatty(STDOUT_FILENO) != 1 || ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0)
        return 0;
    return size.ws_col;
}

static int print(const struct request *request, const struct top_source *source,
                 const struct top_view *view)
{
    struct gc_writer out;
    struct top_order order = request->order;
    if (request->device != NULL && find_device(view, request->device, &order.device) != TOOL_DONE)
        return TOOL_FAILED;
    if (request->prom != NULL && strcmp(request->prom, "-") != 0)
        return top_prom_save(request->prom, view, &source->node) == GC_OK
                   ? TOOL_DONE
                   : tool_fail(&tool_command_top, "%s: %s", request->prom, strerror(errno));
    gc_writer_init(&out, STDOUT_FILENO);
    const enum gc_status status =
        request->prom != NULL ? top_prom_write(&out, view, &source->node, false)
        : request->json
            ? top_json_print(&out, view, &order, top_source_path(source), (uint64_t)time(NULL))
            : top_text_print(&out, view, &order, terminal_width());
    if (status != GC_OK)
        return tool_fail(&tool_command_top, "%s", gc_status_text(status));
    return tool_finish(&tool_command_top, &out);
}

static int print_once(const struct request *request, struct top_source *source)
{
    struct top_view view;
    const char *why = NULL;
    top_view_init(&view);
    const enum gc_status status = source->reader.read(&source->reader, &view, &why);
    const int printed =
        status == GC_OK ? print(request, source, &view) : tool_fail(&tool_command_top, "%s", why);
    top_view_fini(&view);
    return printed;
}

/* A terminal without cursor movement: prints one table after the other. */
static int print_on(const struct request *request, struct top_source *source)
{
    for (;;) {
        const int status = print_once(request, source);
        if (status != TOOL_DONE)
            return status;
        if (write(STDOUT_FILENO, "\n", 1) != 1)
            return tool_fail(&tool_command_top, "standard output: %s", strerror(errno));
        (void)poll(NULL, 0, (int)request->interval_ms);
    }
}

static int show(struct request *request, struct top_source *source)
{
    int signal_number = 0;
    if (request->device != NULL) {
        struct top_view view;
        const char *why = NULL;
        top_view_init(&view);
        const int status = source->reader.read(&source->reader, &view, &why) == GC_OK
                               ? find_device(&view, request->device, &request->order.device)
                               : tool_fail(&tool_command_top, "%s", why);
        top_view_fini(&view);
        if (status != TOOL_DONE)
            return status;
    }
    switch (
        top_screen_run(&source->reader, &request->order, request->interval_ms, &signal_number)) {
    case TOP_SCREEN_NO_TERMINAL:
        return print_on(request, source);
    case TOP_SCREEN_SIGNAL:
        raise(signal_number);
        return TOOL_FAILED;
    case TOP_SCREEN_QUIT:
        break;
    }
    return TOOL_DONE;
}

/* ---- the command line ---- */

/* Seconds with decimals, 0.1 to 60. */
static bool parse_interval(const char *text, unsigned *ms)
{
    struct gc_decimal decimal;
    const char *end;
    if (!gc_text_decimal(text, &end, &decimal) || *end != '\0')
        return false;
    const double seconds = gc_text_decimal_value(&decimal);
    if (seconds < 0.1 || seconds > 60)
        return false;
    *ms = (unsigned)(seconds * 1000 + 0.5);
    return true;
}

static int run(int argc, char **argv)
{
    struct request request = {.order = {.device = TOP_NONE}, .interval_ms = 1000};
    struct top_source source;
    const char *interval = NULL, *sort = NULL;
    int next;
    const struct tool_option options[] = {
        {.name = "--once", .flag = &request.once},
        {.name = "--json", .flag = &request.json},
        {.name = "--prom", .value = &request.prom},
        {.name = "--all-users", .flag = &request.is_of_all_users},
        {.name = "--interval", .value = &interval},
        {.name = "--sort", .value = &sort},
        {.name = "--reverse", .flag = &request.order.reverse},
        {.name = "--device", .value = &request.device},
        {.name = "--group", .value = &request.order.group},
        {.name = "--user", .value = &request.order.user},
    };
    int status = tool_parse(&tool_command_top, options, sizeof(options) / sizeof(options[0]), argc,
                            argv, &next);
    if (status != TOOL_DONE || next == 0)
        return status;
    if (next < argc)
        return tool_usage(&tool_command_top, "unexpected argument %s", argv[next]);
    if (interval != NULL && !parse_interval(interval, &request.interval_ms))
        return tool_refuse(&tool_command_top, "--interval", interval, "seconds, 0.1 to 60");
    if (sort != NULL && !top_sort_find(sort, &request.order.sort))
        return tool_refuse(
            &tool_command_top, "--sort", sort,
            "reserved, live, idle, limit, refused, peak, hits, pid, name, user, group, "
            "device");
    if (request.prom != NULL && (request.json || request.once))
        return tool_usage(&tool_command_top, "--prom FILE writes metrics instead of %s",
                          request.json ? "--json" : "--once");
    request.is_of_all_users |= request.order.user != NULL;
    if (request.is_of_all_users && live_check_root(&tool_command_top) != TOOL_DONE)
        return TOOL_FAILED;
    setlocale(LC_CTYPE, "");
    top_source_init(&source, request.is_of_all_users);
    status = request.once || request.json || request.prom != NULL || isatty(STDOUT_FILENO) != 1
                 ? print_once(&request, &source)
                 : show(&request, &source);
    top_source_fini(&source);
    return status;
}

const struct tool_command tool_command_top = {
    .name = "top",
    .synopsis = "[--once] [--json] [OPTIONS]",
    .summary = "live view of processes and groups, of this user or of all",
    .help = "  --once           print the table once and end; also where standard output is\n"
            "                   no terminal\n"
            "  --json           print one JSON object and end\n"
            "  --interval S     seconds between readings, 0.1 to 60 (1)\n"
            "  --prom FILE      write Prometheus' metrics into FILE at once, for the textfile\n"
            "                   collector of node_exporter, and end; -: standard output\n"
            "  --all-users      every user's processes, jobs and containers; for root\n"
            "  --sort WORD      reserved, live, idle, limit, refused, peak, hits, pid, name,\n"
            "                   user, group, device\n"
            "  --reverse        reverse the order\n"
            "  --device D       only this device: its number in the table, its UUID or its\n"
            "                   beginning\n"
            "  --group NAME     only this group\n"
            "  --user NAME      only this user; for root\n"
            "\n"
            "LIVE is requested and not freed, RESVD is reserved from the driver, IDLE is the\n"
            "cached part of RESVD, RES% the part of the memory that is on the device.\n"
            "The key ? lists the keys.\n",
    .run = run,
};
