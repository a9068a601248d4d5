/* gpucache pause, gpucache resume: move the device memory of a process or tenant to host memory
 * and back. The process decides what can move; its answer is printed. */
#include "tools/live/live.h"

static int send(struct live_session *session, struct live_client *client)
{
    const struct gc_ledger_request request = {
        .kind = session->command == &tool_command_pause ? GC_REQUEST_PAUSE : GC_REQUEST_RESUME,
        .device = GC_LEDGER_NONE,
        .drop = session->drops,
        .tenant = client->tenant[0] != '\0' ? client->tenant : NULL,
    };
    return live_request(session->command, &session->ledger, client, &request);
}

static int run(struct live_session *session, const struct tool_option *options, size_t count,
               int argc, char **argv, const char *const *timeout)
{
    struct tool_words words = {.most = 1, .names = {"a process or tenant"}};
    int status = tool_parse_words(session->command, options, count, argc, argv, &words);
    if (status != TOOL_DONE || words.helped)
        return status;
    session->wait.timeout_ms = LIVE_MOVE_TIMEOUT_MS;
    status = live_session_open(session, words.words[0], LIVE_TENANT, *timeout);
    if (status == TOOL_DONE)
        status = live_request_all(session, send);
    return live_session_close(session, status);
}

static int run_pause(int argc, char **argv)
{
    struct live_session session = {.command = &tool_command_pause};
    const char *timeout = NULL;
    const struct tool_option options[] = {LIVE_USER_OPTIONS(session.users),
                                          {.name = "--timeout", .value = &timeout},
                                          {.name = "--drop", .flag = &session.drops}};
    return run(&session, options, sizeof(options) / sizeof(options[0]), argc, argv, &timeout);
}

static int run_resume(int argc, char **argv)
{
    struct live_session session = {.command = &tool_command_resume};
    const char *timeout = NULL;
    const struct tool_option options[] = {LIVE_USER_OPTIONS(session.users),
                                          {.name = "--timeout", .value = &timeout}};
    return run(&session, options, sizeof(options) / sizeof(options[0]), argc, argv, &timeout);
}

#define TARGET_HELP                                                                                \
    "A number is the PID of a process, another word the name of a tenant, inside a\n"              \
    "process or the one a process is shown under (GPUCACHE_TENANT, else the\n"                     \
    "program's name); all with that name are meant. pid:N and tenant:NAME are\n"                   \
    "unambiguous.\n"                                                                               \
    "\n"                                                                                           \
    "Exit status 1: no such process or tenant, the request was refused (the reason is\n"           \
    "printed), or there was no answer.\n"

const struct tool_command tool_command_pause = {
    .name = "pause",
    .synopsis = "PID|TENANT [--drop] [--timeout S]",
    .summary = "move the device memory of a process or tenant to host memory",
    .help =
        "  --drop         discard the content: nothing is copied\n"
        "  --timeout S    seconds to wait for the answer (60); 0: not at all\n" LIVE_USERS_HELP "\n"
        "Addresses stay; work submitted meanwhile waits until gpucache resume.\n"
        "\n" TARGET_HELP,
    .run = run_pause,
};

const struct tool_command tool_command_resume = {
    .name = "resume",
    .synopsis = "PID|TENANT [--timeout S]",
    .summary = "move the memory of a paused process or tenant back to the device",
    .help = "  --timeout S    seconds to wait for the answer (60); 0: not at all\n" LIVE_USERS_HELP
            "\n" TARGET_HELP,
    .run = run_resume,
};
