/* gpucache pin, gpucache evict: processes that take turns in their group's memory
 * (GPUCACHE_OVERCOMMIT=swap). A pinned one is not asked for its memory; one that is evicted gives
 * up all that may go, and is back at its next work. */
#include "core/base/clock.h"
#include "tools/live/live.h"

/* TOOL_FAILED with a line if the target is none that takes turns. */
static int check_client(const struct live_session *session, const struct live_client *client)
{
    struct gc_ledger_turn turn;
    char described[2 * LIVE_SHOWN_BYTES];
    live_describe(client, described);
    if (client->tenant[0] != '\0')
        return tool_fail(session->command, "%s: a process takes its turns as a whole: give its PID",
                         described);
    if (!gc_ledger_read_turn(&session->ledger, client->process.slot, gc_clock_ns(), &turn))
        return tool_fail(session->command,
                         "%s takes no turns: it was not started with a group and "
                         "GPUCACHE_OVERCOMMIT=swap",
                         described);
    return TOOL_DONE;
}

static int open_session(struct live_session *session, const char *word, const char *timeout)
{
    int status = live_session_open(session, word, LIVE_TENANT, timeout);
    for (size_t i = 0; i < session->target.count && status == TOOL_DONE; i++)
        status = check_client(session, &session->target.clients[i]);
    return status;
}

/* ---- pin ---- */

static int pin_all(struct live_session *session, bool is_pinned)
{
    int status = TOOL_DONE;
    for (size_t i = 0; i < session->target.count; i++) {
        const struct live_client *client = &session->target.clients[i];
        char described[2 * LIVE_SHOWN_BYTES];
        live_describe(client, described);
        if (!gc_ledger_pin(&session->ledger, client->process.slot, client->process.generation,
                           is_pinned))
            status = tool_fail(session->command, "%s ended meanwhile", described);
        else
            live_write_line(&session->out, client,
                            is_pinned ? "pinned: no other process gets its memory"
                                      : "not pinned: it takes turns with the others");
    }
    return status;
}

static int run_pin(int argc, char **argv)
{
    struct live_session session = {.command = &tool_command_pin, .device = GC_LEDGER_NONE};
    struct tool_words words = {.most = 1, .names = {"a process"}};
    bool off = false;
    const struct tool_option options[] = {LIVE_USER_OPTIONS(session.users),
                                          {.name = "--off", .flag = &off}};
    int status = tool_parse_words(session.command, options, sizeof(options) / sizeof(options[0]),
                                  argc, argv, &words);
    if (status != TOOL_DONE || words.helped)
        return status;
    status = open_session(&session, words.words[0], NULL);
    if (status == TOOL_DONE)
        status = pin_all(&session, !off);
    return live_session_close(&session, status);
}

/* ---- evict ---- */

/* One request for each device that the process uses. */
static int send(struct live_session *session, struct live_client *client)
{
    struct gc_ledger_request request = {.kind = GC_REQUEST_GIVE, .bytes = UINT64_MAX};
    int status = TOOL_DONE;
    for (uint32_t i = 0; i < GC_LEDGER_DEVICES && status == TOOL_DONE; i++) {
        if ((client->process.device_mask >> i & 1) == 0)
            continue;
        request.device = i;
        status = live_request(session->command, &session->ledger, client, &request);
    }
    return status;
}

static int run_evict(int argc, char **argv)
{
    struct live_session session = {.command = &tool_command_evict,
                                   .device = GC_LEDGER_NONE,
                                   .wait = {.timeout_ms = LIVE_MOVE_TIMEOUT_MS}};
    struct tool_words words = {.most = 1, .names = {"a process"}};
    const char *timeout = NULL;
    const struct tool_option options[] = {LIVE_USER_OPTIONS(session.users),
                                          {.name = "--timeout", .value = &timeout}};
    int status = tool_parse_words(session.command, options, sizeof(options) / sizeof(options[0]),
                                  argc, argv, &words);
    if (status != TOOL_DONE || words.helped)
        return status;
    status = open_session(&session, words.words[0], timeout);
    if (status == TOOL_DONE)
        status = live_request_all(&session, send);
    return live_session_close(&session, status);
}

#define TARGET_HELP                                                                                \
    "A number is a PID, another word the name a process is shown under\n"                          \
    "(GPUCACHE_TENANT, else the program's name); all with that name are meant.\n"                  \
    "pid:N and tenant:NAME are unambiguous.\n"                                                     \
    "\n"                                                                                           \
    "Exit status 1: there is no such process, it takes no turns, "

const struct tool_command tool_command_pin = {
    .name = "pin",
    .synopsis = "PID|NAME [--off]",
    .summary = "keep the memory of a process that takes turns on the device",
    .help = "  --off          it takes turns again\n" LIVE_USERS_HELP "\n"
            "With GPUCACHE_OVERCOMMIT=swap: other processes of the group get none of its\n"
            "memory but what is idle. The others need room for their turns beside it.\n"
            "\n" TARGET_HELP "or it ended.\n",
    .run = run_pin,
};

const struct tool_command tool_command_evict = {
    .name = "evict",
    .synopsis = "PID|NAME [--timeout S]",
    .summary = "send the memory of a process that takes turns to host memory",
    .help =
        "  --timeout S    seconds to wait for the answer (60); 0: not at all\n" LIVE_USERS_HELP "\n"
        "With GPUCACHE_OVERCOMMIT=swap: at once, also where no other process needs the\n"
        "room. The answer comes when it has left, with what stays. It comes back when the process next works; gpucache pause keeps it away\n"
        "until gpucache resume.\n"
        "\n" TARGET_HELP "the request was\n"
        "refused (the reason is printed), or there was no answer.\n",
    .run = run_evict,
};
