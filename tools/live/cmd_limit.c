/* gpucache limit, gpucache trim: change a limit, or release idle memory to the driver, in a
 * running process or in a whole group. They print a line for each device: before -> after. */
#include "core/config/options.h"
#include "tools/live/live.h"

#include <stdio.h>
#include <string.h>

/* ---- trim ---- */

static int trim(struct live_session *session)
{
    const struct gc_ledger_request request = {.kind = GC_REQUEST_TRIM, .device = GC_LEDGER_NONE};
    struct live_round round;
    char shown[LIVE_SHOWN_BYTES];
    int status = live_round_open(session, &round);
    if (status == TOOL_DONE) {
        for (size_t i = 0; i < session->target.count; i++) {
            if (live_round_request(session, i, &request) != TOOL_DONE)
                status = TOOL_FAILED;
        }
        if (live_round_collect(session, &round) != TOOL_DONE)
            status = TOOL_FAILED;
        live_round_print(session, &round, false);
        if (session->target.count == 0) {
            gc_writer_text(&session->out, "group ");
            gc_writer_text(&session->out, live_show(session->target.group, shown));
            gc_writer_text(&session->out, " has no processes\n");
        }
    }
    live_round_close(&round);
    return status;
}

/* ---- limit ---- */

/* The size as bytes on a device; UINT64_MAX: no limit. */
static uint64_t size_on(const struct live_session *session, const struct gc_size_spec *size,
                        uint32_t device)
{
    struct gc_ledger_device row;
    const bool known = gc_ledger_read_device(&session->ledger, device, &row);
    return gc_size_spec_resolve(size, 0, NULL, known ? row.total_bytes : 0);
}

static bool is_percent(const struct gc_size_spec *size)
{
    return size->count > 0 && size->entries[0].is_percent;
}

/* Sends one request, or for a percentage one for each device that the process uses. */
static int limit_client(struct live_session *session, const struct gc_size_spec *size)
{
    const struct live_client *client = &session->target.clients[0];
    struct gc_ledger_request request = {.kind = GC_REQUEST_LIMIT, .device = session->device};
    if (!is_percent(size) || session->device != GC_LEDGER_NONE) {
        request.bytes = size_on(session, size, session->device);
        return live_round_request(session, 0, &request);
    }
    int status = TOOL_DONE;
    if (client->process.device_mask == 0)
        return tool_fail(session->command,
                         "process %d uses no device yet, so a percentage has no size: give a size",
                         client->process.pid);
    for (uint32_t i = 0; i < GC_LEDGER_DEVICES && status == TOOL_DONE; i++) {
        if ((client->process.device_mask >> i & 1) == 0)
            continue;
        request.device = i;
        request.bytes = size_on(session, size, i);
        status = live_round_request(session, 0, &request);
    }
    return status;
}

static int limit_process(struct live_session *session, const struct gc_size_spec *size)
{
    struct live_round round;
    int status = live_round_open(session, &round);
    if (status == TOOL_DONE)
        status = limit_client(session, size);
    if (status == TOOL_DONE)
        status = live_round_collect(session, &round);
    live_round_print(session, &round, true);
    live_round_close(&round);
    return status;
}

static bool read_group(const struct live_session *session, struct gc_ledger_group *group)
{
    const uint32_t row = gc_ledger_find_group(&session->ledger, session->target.group);
    return row != GC_LEDGER_NONE && gc_ledger_read_group(&session->ledger, row, group);
}

static int set_group(struct live_session *session, const struct gc_size_spec *size)
{
    bool done = true;
    if (session->device != GC_LEDGER_NONE || !is_percent(size)) {
        done = gc_ledger_limit_group(&session->ledger, session->target.group, session->device,
                                     size_on(session, size, session->device));
    } else {
        for (uint32_t i = 0; i < GC_LEDGER_DEVICES; i++) {
            struct gc_ledger_device device;
            if (gc_ledger_read_device(&session->ledger, i, &device))
                done = gc_ledger_limit_group(&session->ledger, session->target.group, i,
                                             size_on(session, size, i)) &&
                       done;
        }
    }
    return done ? TOOL_DONE
                : tool_fail(session->command, "the group's last process ended meanwhile");
}

/* Sends requests to the processes on devices where the group is above its limit; *asked: there is
 * such a process. */
static int request_clients(struct live_session *session, struct live_round *round,
                           const struct gc_ledger_group *group, enum gc_ledger_request_kind kind,
                           bool *asked)
{
    const struct gc_ledger_request request = {.kind = kind, .device = GC_LEDGER_NONE};
    int status = TOOL_DONE;
    uint64_t over = 0;
    for (uint32_t i = 0; i < GC_LEDGER_DEVICES; i++)
        over |= (uint64_t)(group->held[i] > group->limits[i]) << i;
    *asked = false;
    for (size_t i = 0; i < session->target.count; i++) {
        if ((session->target.clients[i].process.device_mask & over) == 0)
            continue;
        *asked = true;
        if (live_round_request(session, i, &request) != TOOL_DONE)
            status = TOOL_FAILED;
    }
    if (live_round_collect(session, round) != TOOL_DONE)
        status = TOOL_FAILED;
    return status;
}

/* The helper thread of a process releases the excess. If the group is still above its limit, all
 * idle memory is requested. */
static int finish_clients(struct live_session *session, struct live_round *round,
                          struct gc_ledger_group *group)
{
    bool asked;
    int status = request_clients(session, round, group, GC_REQUEST_REFRESH, &asked);
    if (status == TOOL_DONE && asked && session->wait.timeout_ms > 0 && read_group(session, group))
        status = request_clients(session, round, group, GC_REQUEST_TRIM, &asked);
    return status;
}

static void write_group(struct live_session *session, const struct gc_ledger_group *before,
                        const struct gc_ledger_group *after)
{
    char shown[LIVE_SHOWN_BYTES];
    struct gc_writer *out = &session->out;
    for (uint32_t i = 0; i < GC_LEDGER_DEVICES; i++) {
        struct gc_ledger_device device;
        if (!gc_ledger_read_device(&session->ledger, i, &device) ||
            (session->device != GC_LEDGER_NONE && session->device != i))
            continue;
        gc_writer_text(out, "group ");
        gc_writer_text(out, live_show(session->target.group, shown));
        gc_writer_text(out, ", device ");
        gc_writer_uint(out, i);
        live_write_change(out, ": limit ", before->limits[i], after->limits[i]);
        live_write_change(out, ", reserved ", before->held[i], after->held[i]);
        gc_writer_char(out, '\n');
    }
}

static int limit_group(struct live_session *session, const struct gc_size_spec *size)
{
    struct live_round round = {.changes = NULL};
    struct gc_ledger_group before, after;
    char shown[LIVE_SHOWN_BYTES];
    if (session->target.count == 0)
        return tool_fail(
            session->command,
            "group %s has no processes; its first process sets the limit, by GPUCACHE_GROUP_LIMIT",
            live_show(session->target.group, shown));
    if (!read_group(session, &before))
        return tool_fail(session->command, "the group's last process ended meanwhile");
    int status = live_round_open(session, &round);
    if (status == TOOL_DONE)
        status = set_group(session, size);
    if (status == TOOL_DONE && read_group(session, &after)) {
        status = finish_clients(session, &round, &after);
        live_round_print(session, &round, false);
        if (read_group(session, &after))
            write_group(session, &before, &after);
    }
    live_round_close(&round);
    return status;
}

/* ---- the command line ---- */

static int run_limit(int argc, char **argv)
{
    struct live_session session = {.command = &tool_command_limit,
                                   .device = GC_LEDGER_NONE,
                                   .wait = {.timeout_ms = LIVE_TIMEOUT_MS}};
    const char *device = NULL, *timeout = NULL;
    struct gc_size_spec size = {.count = 0};
    struct tool_words words = {.most = 2, .names = {"a process or group", "a size"}};
    const struct tool_option options[] = {LIVE_USER_OPTIONS(session.users),
                                          {.name = "--device", .value = &device},
                                          {.name = "--timeout", .value = &timeout}};
    int status = tool_parse_words(session.command, options, sizeof(options) / sizeof(options[0]),
                                  argc, argv, &words);
    if (status != TOOL_DONE || words.helped)
        return status;
    if (strcmp(words.words[1], "none") != 0 &&
        gc_size_spec_parse(words.words[1], false, &size) != GC_OK)
        return tool_usage(session.command,
                          "%s is not a limit; accepted: a size or percentage above 0, none",
                          words.words[1]);
    status = live_session_open(&session, words.words[0], LIVE_GROUP, timeout);
    if (status == TOOL_DONE)
        status = live_find_device(session.command, &session.ledger, device, &session.device);
    if (status == TOOL_DONE)
        status =
            session.target.is_group ? limit_group(&session, &size) : limit_process(&session, &size);
    return live_session_close(&session, status);
}

static int run_trim(int argc, char **argv)
{
    struct live_session session = {.command = &tool_command_trim,
                                   .device = GC_LEDGER_NONE,
                                   .wait = {.timeout_ms = LIVE_TIMEOUT_MS}};
    const char *timeout = NULL;
    struct tool_words words = {.most = 1, .names = {"a process or group"}};
    const struct tool_option options[] = {LIVE_USER_OPTIONS(session.users),
                                          {.name = "--timeout", .value = &timeout}};
    int status = tool_parse_words(session.command, options, sizeof(options) / sizeof(options[0]),
                                  argc, argv, &words);
    if (status != TOOL_DONE || words.helped)
        return status;
    status = live_session_open(&session, words.words[0], LIVE_GROUP, timeout);
    if (status == TOOL_DONE)
        status = trim(&session);
    return live_session_close(&session, status);
}

#define TARGET_HELP                                                                                \
    "A number is the PID of a process, another word the name of a group; pid:N and\n"              \
    "group:NAME are unambiguous. A process of a group answers at once, one without a\n"            \
    "group when it next allocates or submits work; an unanswered request stays.\n"                 \
    "\n"                                                                                           \
    "Exit status 1: there is no such process or group, or not all answered in time.\n"

const struct tool_command tool_command_limit = {
    .name = "limit",
    .synopsis = "PID|GROUP SIZE [--device D] [--timeout S]",
    .summary = "change the limit of a running process or group",
    .help =
        "  --device D     only on this device: its number in gpucache top, its UUID or\n"
        "                 its beginning\n"
        "  --timeout S    seconds to wait for the answer (5); 0: not at all\n" LIVE_USERS_HELP "\n"
        "SIZE is a size or a percentage of the device's memory; none removes the\n"
        "limit. Live memory is never taken: if the usage is above the limit, idle memory\n"
        "is released and new requests fail until it is below. Prints a line for each\n"
        "device: before -> after.\n"
        "\n" TARGET_HELP,
    .run = run_limit,
};

const struct tool_command tool_command_trim = {
    .name = "trim",
    .synopsis = "PID|GROUP [--timeout S]",
    .summary = "release the idle memory of a running process or group to the driver",
    .help =
        "  --timeout S    seconds to wait for the answer (5); 0: not at all\n" LIVE_USERS_HELP "\n"
        "Prints a line for each device of each process: before -> after.\n"
        "\n" TARGET_HELP,
    .run = run_trim,
};
