/* gpucache pause, gpucache resume: move the device memory of a process or tenant to host memory
 * and back. The process decides what can move; its answer is printed. */
#include "tools/live/live.h"

#include <locale.h>
#include <string.h>
#include <unistd.h>

/* Long enough to copy many GiB. */
#define MOVE_TIMEOUT_MS 60000

struct move {
    const struct tool_command *command;
    enum gc_ledger_request_kind kind;
    bool drops;
    struct live_wait wait;
};

static void write_answer(struct gc_writer *out, const struct live_client *client, const char *text)
{
    char name[2 * LIVE_SHOWN_BYTES];
    char shown[LIVE_SHOWN_BYTES];
    live_describe(client, name);
    gc_writer_text(out, name);
    gc_writer_text(out, ": ");
    gc_writer_text(out, live_show(text, shown));
    gc_writer_char(out, '\n');
}

/* Sends all requests before the first answer is awaited, so that processes copy in parallel. */
static int move_all(const struct move *move, const struct gc_ledger *ledger,
                    struct live_target *target, struct gc_writer *out)
{
    struct live_wait wait = move->wait;
    int status = TOOL_DONE;
    live_begin(&wait);
    for (size_t i = 0; i < target->count; i++) {
        struct live_client *client = &target->clients[i];
        const struct gc_ledger_request request = {
            .kind = move->kind,
            .device = GC_LEDGER_NONE,
            .drop = move->drops,
            .tenant = client->tenant[0] != '\0' ? client->tenant : NULL,
        };
        client->is_requested = live_request(move->command, ledger, client, &request) == TOOL_DONE;
        if (!client->is_requested)
            status = TOOL_FAILED;
    }
    for (size_t i = 0; i < target->count; i++) {
        const struct live_client *client = &target->clients[i];
        char text[GC_LEDGER_RESPONSE_BYTES];
        if (!client->is_requested)
            continue;
        if (wait.timeout_ms == 0)
            write_answer(out, client, "request left, answer not awaited");
        else if (live_wait_response(move->command, ledger, client, &wait, text) == TOOL_DONE)
            write_answer(out, client, text[0] != '\0' ? text : "done");
        else
            status = TOOL_FAILED;
    }
    return status;
}

static int run(struct move *move, const struct tool_option *options, size_t count, int argc,
               char **argv, const char *const *timeout)
{
    struct tool_words words = {.most = 1, .names = {"a process or tenant"}};
    struct live_target target;
    struct gc_ledger ledger;
    struct gc_writer out;
    int status = tool_parse_words(move->command, options, count, argc, argv, &words);
    if (status != TOOL_DONE || words.helped)
        return status;
    move->wait.timeout_ms = MOVE_TIMEOUT_MS;
    if (*timeout != NULL && !live_parse_seconds(*timeout, &move->wait.timeout_ms))
        return tool_usage(move->command, "--timeout %s is not valid; accepted: seconds, 0 to 86400",
                          *timeout);
    setlocale(LC_CTYPE, "");
    status = live_connect(move->command, words.words[0], LIVE_TENANT, &ledger);
    if (status != TOOL_DONE)
        return status;
    gc_writer_init(&out, STDOUT_FILENO);
    status = live_find(move->command, &ledger, words.words[0], LIVE_TENANT, &target);
    if (status == TOOL_DONE)
        status = move_all(move, &ledger, &target, &out);
    const int finished = tool_finish(move->command, &out);
    live_target_fini(&target);
    gc_ledger_close(&ledger);
    return status != TOOL_DONE ? status : finished;
}

static int run_pause(int argc, char **argv)
{
    struct move move = {.command = &tool_command_pause, .kind = GC_REQUEST_PAUSE};
    const char *timeout = NULL;
    const struct tool_option options[] = {{.name = "--timeout", .value = &timeout},
                                          {.name = "--drop", .flag = &move.drops}};
    return run(&move, options, sizeof(options) / sizeof(options[0]), argc, argv, &timeout);
}

static int run_resume(int argc, char **argv)
{
    struct move move = {.command = &tool_command_resume, .kind = GC_REQUEST_RESUME};
    const char *timeout = NULL;
    const struct tool_option options[] = {{.name = "--timeout", .value = &timeout}};
    return run(&move, options, sizeof(options) / sizeof(options[0]), argc, argv, &timeout);
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
    .help = "  --drop         discard the content: nothing is copied\n"
            "  --timeout S    seconds to wait for the answer (60); 0: not at all\n"
            "\n"
            "Addresses stay; work submitted meanwhile waits until gpucache resume.\n"
            "\n" TARGET_HELP,
    .run = run_pause,
};

const struct tool_command tool_command_resume = {
    .name = "resume",
    .synopsis = "PID|TENANT [--timeout S]",
    .summary = "move the memory of a paused process or tenant back to the device",
    .help = "  --timeout S    seconds to wait for the answer (60); 0: not at all\n"
            "\n" TARGET_HELP,
    .run = run_resume,
};
