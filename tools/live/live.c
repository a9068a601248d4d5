#include "tools/live/live.h"

#include "core/base/clock.h"
#include "core/config/options.h"
#include "core/io/text.h"
#include "core/ledger/process.h"
#include "tools/base/columns.h"

#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

extern char **environ;

enum gc_status live_find_place(struct live_place *place, char reason[GC_LEDGER_REASON_BYTES])
{
    /* Errors in other settings are reported by the library. */
    struct gc_log log = {.level = GC_LOG_ERROR, .fd = -1};
    struct gc_options *options;
    char folder[GC_LEDGER_PATH_BYTES];
    const enum gc_status status = gc_options_load(environ, &log, &options);
    if (status != GC_OK) {
        snprintf(reason, GC_LEDGER_REASON_BYTES, "%s", gc_status_text(status));
        return status;
    }
    snprintf(place->folder, sizeof(place->folder), "%s",
             gc_ledger_folder(options->ledger, options->node, folder));
    snprintf(place->root, sizeof(place->root), "%s", options->node);
    gc_options_free(options);
    return GC_OK;
}

enum gc_status live_open_node(struct node *node, bool is_of_all_users,
                              char reason[GC_LEDGER_REASON_BYTES])
{
    struct live_place place;
    enum gc_status status = live_find_place(&place, reason);
    if (status != GC_OK)
        return status;
    if (!is_of_all_users)
        return node_open_own(node, place.folder, reason);
    status = node_open_all(node, place.root);
    if (status != GC_OK)
        snprintf(reason, GC_LEDGER_REASON_BYTES, "%s", gc_status_text(status));
    return status;
}

int live_check_root(const struct tool_command *command)
{
    if (geteuid() == 0)
        return TOOL_DONE;
    return tool_fail(command,
                     "--all-users and --user are for root: other users' ledgers are closed to you");
}

const char *live_show(const char *name, char text[LIVE_SHOWN_BYTES])
{
    columns_fit(name, GC_LEDGER_NAME_BYTES, columns_is_utf8(), text, LIVE_SHOWN_BYTES);
    return text;
}

void live_describe(const struct live_client *client, char text[2 * LIVE_SHOWN_BYTES])
{
    char name[LIVE_SHOWN_BYTES];
    size_t used = 0;
    if (client->tenant[0] != '\0')
        used = (size_t)snprintf(text, LIVE_SHOWN_BYTES, "tenant %s of ",
                                live_show(client->tenant, name));
    snprintf(text + used, 2 * LIVE_SHOWN_BYTES - used, "process %d (%s)", client->process.pid,
             live_show(client->process.tenant, name));
}

bool live_parse_seconds(const char *text, uint32_t *ms)
{
    struct gc_decimal decimal;
    const char *end;
    if (!gc_text_decimal(text, &end, &decimal) || *end != '\0')
        return false;
    const double seconds = gc_text_decimal_value(&decimal);
    if (seconds > 86400)
        return false;
    *ms = (uint32_t)(seconds * 1000 + 0.5);
    return true;
}

/* ---- /proc ---- */

static bool is_of_own_namespace(const struct gc_ledger *ledger, uint32_t slot)
{
    static uint64_t own;
    const struct gc_ledger_slot *row = gc_ledger_get_slot(ledger, slot);
    if (own == 0)
        own = gc_ledger_pid_namespace();
    return atomic_load_explicit(&row->pid_namespace, memory_order_relaxed) == own;
}

bool live_is_stopped(const struct gc_ledger *ledger, uint32_t slot, int pid)
{
    const struct gc_ledger_slot *row = gc_ledger_get_slot(ledger, slot);
    return is_of_own_namespace(ledger, slot) &&
           gc_ledger_process_is_stopped(
               (uint32_t)pid, atomic_load_explicit(&row->start_ticks, memory_order_relaxed));
}

/* ---- the processes that a word means ---- */

static bool add_client(struct live_target *target, const struct gc_ledger_process *process,
                       const char *tenant)
{
    struct live_client *clients =
        reallocarray(target->clients, target->count + 1, sizeof(*clients));
    if (clients == NULL)
        return false;
    target->clients = clients;
    struct live_client *client = &clients[target->count++];
    *client = (struct live_client){.process = *process};
    snprintf(client->tenant, sizeof(client->tenant), "%s", tenant);
    return true;
}

void live_target_fini(struct live_target *target)
{
    free(target->clients);
    *target = (struct live_target){.clients = NULL};
}

static bool add_by_pid(const struct gc_ledger *ledger, const struct gc_ledger_process *process,
                       uint64_t pid, struct live_target *target)
{
    if ((uint64_t)process->pid != pid)
        return true;
    /* The process of our own PID namespace takes precedence. */
    if (target->count > 0 && is_of_own_namespace(ledger, target->clients[0].process.slot))
        return true;
    if (is_of_own_namespace(ledger, process->slot))
        target->count = 0;
    return add_client(target, process, "");
}

static bool add_by_tenant(const struct gc_ledger *ledger, const struct gc_ledger_process *process,
                          const char *name, struct live_target *target)
{
    if (strcmp(process->tenant, name) == 0)
        return add_client(target, process, "");
    for (uint32_t i = 0; i < GC_LEDGER_TENANTS; i++) {
        struct gc_ledger_tenant tenant;
        if (gc_ledger_read_tenant(ledger, process->slot, i, &tenant) &&
            strcmp(tenant.name, name) == 0)
            return add_client(target, process, name);
    }
    return true;
}

struct wanted {
    bool has_pid;
    uint64_t pid;
    const char *group;  /* NULL: not a group */
    const char *tenant; /* NULL: not a tenant */
};

/* Collects all live processes that match. False if memory runs out. */
static bool collect(const struct gc_ledger *ledger, const struct wanted *wanted,
                    struct live_target *by_pid, struct live_target *by_name)
{
    const uint32_t high = gc_ledger_slot_high(ledger);
    for (uint32_t slot = 0; slot < high; slot++) {
        struct gc_ledger_process process;
        if (!gc_ledger_read_process(ledger, slot, &process))
            continue;
        if (wanted->has_pid && !add_by_pid(ledger, &process, wanted->pid, by_pid))
            return false;
        if (wanted->group != NULL && strcmp(process.group, wanted->group) == 0 &&
            !add_client(by_name, &process, ""))
            return false;
        if (wanted->tenant != NULL && !add_by_tenant(ledger, &process, wanted->tenant, by_name))
            return false;
    }
    return true;
}

/* Reports why no process under the library has the PID. */
static int fail_pid(const struct tool_command *command, uint64_t pid, bool is_of_all_users)
{
    char path[64];
    struct stat info;
    snprintf(path, sizeof(path), "/proc/%llu", (unsigned long long)pid);
    if (pid == 0 || pid > INT32_MAX || stat(path, &info) != 0)
        return tool_fail(command, "no process has the PID %llu", (unsigned long long)pid);
    if (info.st_uid != geteuid() && !is_of_all_users)
        return tool_fail(command,
                         geteuid() == 0 ? "process %llu belongs to another user: --all-users"
                                        : "process %llu belongs to another user",
                         (unsigned long long)pid);
    return tool_fail(command, "process %llu uses no device under the library",
                     (unsigned long long)pid);
}

/* The process that is listed under the name; 0: none, or several. */
static int pid_by_name(const struct gc_ledger *ledger, const char *name)
{
    const uint32_t high = gc_ledger_slot_high(ledger);
    int pid = 0;
    for (uint32_t slot = 0; slot < high; slot++) {
        struct gc_ledger_process process;
        if (!gc_ledger_read_process(ledger, slot, &process) || strcmp(process.tenant, name) != 0)
            continue;
        if (pid != 0)
            return 0;
        pid = process.pid;
    }
    return pid;
}

/* `ledger` is NULL if there is no ledger. */
static int fail_name(const struct tool_command *command, const struct gc_ledger *ledger,
                     const struct wanted *wanted)
{
    char shown[LIVE_SHOWN_BYTES];
    if (wanted->has_pid)
        return fail_pid(command, wanted->pid, false);
    const int pid =
        ledger != NULL && wanted->group != NULL ? pid_by_name(ledger, wanted->group) : 0;
    if (pid != 0)
        return tool_fail(command, "no group is called %s, but process %d is: give its PID",
                         live_show(wanted->group, shown), pid);
    return tool_fail(command, "no %s is called %s", wanted->group != NULL ? "group" : "tenant",
                     live_show(wanted->group != NULL ? wanted->group : wanted->tenant, shown));
}

static int choose(const struct tool_command *command, const struct gc_ledger *ledger,
                  const char *word, const struct wanted *wanted, struct live_target *by_pid,
                  struct live_target *by_name)
{
    const bool has_group =
        wanted->group != NULL && gc_ledger_find_group(ledger, wanted->group) != GC_LEDGER_NONE;
    const bool has_name = by_name->count > 0 || has_group;
    const char *kind = wanted->group != NULL ? "group" : "tenant";
    if (by_pid->count > 1)
        return tool_fail(command, "%zu processes have the PID %llu, none in this PID namespace",
                         by_pid->count, (unsigned long long)wanted->pid);
    if (by_pid->count > 0 && has_name)
        return tool_fail(command, "%s is a process and a %s: write pid:%s or %s:%s", word, kind,
                         word, kind, word);
    if (has_name && wanted->group != NULL) {
        by_name->is_group = true;
        snprintf(by_name->group, sizeof(by_name->group), "%s", wanted->group);
    }
    if (by_pid->count > 0 || has_name)
        return TOOL_DONE;
    return fail_name(command, ledger, wanted);
}

/* The kinds that the word can mean, by its prefix or its digits. */
static int read_word(const struct tool_command *command, const char *word, enum live_kind kind,
                     struct wanted *wanted)
{
    const char *prefix = kind == LIVE_GROUP ? "group:" : "tenant:";
    const char *name = NULL;
    *wanted = (struct wanted){.has_pid = false};
    if (strncmp(word, "pid:", 4) == 0) {
        wanted->has_pid = gc_text_uint(word + 4, strlen(word + 4), &wanted->pid);
        if (!wanted->has_pid)
            return tool_usage(command, "%s is not a PID", word);
    } else if (strncmp(word, prefix, strlen(prefix)) == 0) {
        name = word + strlen(prefix);
    } else {
        wanted->has_pid = gc_text_uint(word, strlen(word), &wanted->pid);
        name = word;
    }
    if (name != NULL && name[0] == '\0')
        return tool_usage(command, "a name is missing");
    if (kind == LIVE_GROUP)
        wanted->group = name;
    else
        wanted->tenant = name;
    return TOOL_DONE;
}

int live_find(const struct tool_command *command, const struct gc_ledger *ledger, const char *word,
              enum live_kind kind, struct live_target *target)
{
    struct wanted wanted;
    struct live_target by_name = {.clients = NULL};
    *target = (struct live_target){.clients = NULL};
    int status = read_word(command, word, kind, &wanted);
    if (status != TOOL_DONE)
        return status;
    if (!collect(ledger, &wanted, target, &by_name))
        status = tool_fail(command, "%s", gc_status_text(GC_NO_HOST_MEMORY));
    else
        status = choose(command, ledger, word, &wanted, target, &by_name);
    if (target->count == 0) {
        free(target->clients);
        *target = by_name;
    } else {
        live_target_fini(&by_name);
    }
    return status;
}

int live_find_device(const struct tool_command *command, const struct gc_ledger *ledger,
                     const char *word, uint32_t *device)
{
    uint64_t number;
    uint32_t count = 0;
    *device = GC_LEDGER_NONE;
    if (word == NULL)
        return TOOL_DONE;
    const bool is_number = gc_text_uint(word, strlen(word), &number);
    for (uint32_t i = 0; i < GC_LEDGER_DEVICES; i++) {
        struct gc_ledger_device row;
        if (gc_ledger_read_device(ledger, i, &row) &&
            (is_number ? number == i : strncmp(row.uuid, word, strlen(word)) == 0)) {
            *device = i;
            count++;
        }
    }
    if (count == 1)
        return TOOL_DONE;
    return tool_fail(command,
                     count == 0 ? "no device is %s; gpucache top --once lists them"
                                : "the UUIDs of several devices begin with %s",
                     word);
}

/* ---- requests ---- */

void live_begin(struct live_wait *wait)
{
    wait->until_ms = gc_clock_ms() + wait->timeout_ms;
}

static uint32_t left_ms(const struct live_wait *wait)
{
    const int64_t left = wait->until_ms - gc_clock_ms();
    return left > 0 ? (uint32_t)left : 0;
}

int live_request(const struct tool_command *command, const struct gc_ledger *ledger,
                 struct live_client *client, const struct gc_ledger_request *request)
{
    char described[2 * LIVE_SHOWN_BYTES];
    if (gc_ledger_send_request(ledger, client->process.slot, client->process.generation, request,
                               &client->ticket))
        return TOOL_DONE;
    live_describe(client, described);
    return tool_fail(command, "%s ended meanwhile", described);
}

/* Reports why there is no answer. */
static int fail_late(const struct tool_command *command, const struct gc_ledger *ledger,
                     const struct live_client *client, const struct live_wait *wait)
{
    const char *why =
        "it has no group, so it answers when it next allocates or submits work; the request stays";
    char described[2 * LIVE_SHOWN_BYTES];
    live_describe(client, described);
    if (live_is_stopped(ledger, client->process.slot, client->process.pid))
        why = "it is stopped by a signal, and answers when it goes on; the request stays";
    else if (client->process.has_helper)
        why = "it is busy, and the request stays";
    return tool_fail(command, "%s did not answer within %u.%u s: %s", described,
                     wait->timeout_ms / 1000, wait->timeout_ms % 1000 / 100, why);
}

int live_wait_response(const struct tool_command *command, const struct gc_ledger *ledger,
                       const struct live_client *client, const struct live_wait *wait,
                       char text[GC_LEDGER_RESPONSE_BYTES])
{
    char described[2 * LIVE_SHOWN_BYTES];
    char shown[LIVE_SHOWN_BYTES];
    text[0] = '\0';
    const enum gc_ledger_result result =
        gc_ledger_wait_response(ledger, &client->ticket, left_ms(wait), text);
    live_describe(client, described);
    switch (result) {
    case GC_RESPONSE_DONE:
        return TOOL_DONE;
    case GC_RESPONSE_REFUSED:
        columns_fit(text, GC_LEDGER_RESPONSE_BYTES, columns_is_utf8(), shown, sizeof(shown));
        return tool_fail(command, "%s refused: %s", described, shown);
    case GC_RESPONSE_ENDED:
        return tool_fail(command, "%s ended before it answered", described);
    case GC_RESPONSE_NONE:
        break;
    }
    return fail_late(command, ledger, client, wait);
}

/* ---- figures before and after ---- */

#define REFRESH_MS 200 /* least time, enough for a busy process */

/* Requests fresh figures of all processes at once, and waits for those that come in time. */
static void refresh(struct live_session *session, struct live_client *clients, size_t count,
                    uint32_t timeout_ms)
{
    const struct gc_ledger_request request = {.kind = GC_REQUEST_REFRESH, .device = GC_LEDGER_NONE};
    struct live_wait wait = {.timeout_ms = timeout_ms > REFRESH_MS ? timeout_ms : REFRESH_MS};
    live_begin(&wait);
    for (size_t i = 0; i < count; i++) {
        const struct gc_ledger_process *process = &clients[i].process;
        clients[i].is_requested =
            !live_is_stopped(&session->ledger, process->slot, process->pid) &&
            gc_ledger_send_request(&session->ledger, process->slot, process->generation, &request,
                                   &clients[i].ticket) &&
            process->has_helper;
    }
    for (size_t i = 0; i < count; i++) {
        if (clients[i].is_requested)
            (void)gc_ledger_wait_response(&session->ledger, &clients[i].ticket, left_ms(&wait),
                                          NULL);
        clients[i].is_requested = false;
    }
}

static void read_client(struct live_session *session, const struct live_client *client, bool before,
                        struct live_change changes[GC_LEDGER_DEVICES])
{
    for (uint32_t i = 0; i < GC_LEDGER_DEVICES; i++) {
        struct live_change *change = &changes[i];
        struct gc_ledger_figures *figures = before ? &change->before : &change->after;
        const bool is_used =
            gc_ledger_read_figures(&session->ledger, client->process.slot, i, figures);
        change->is_used = before ? is_used : change->is_used && is_used;
    }
}

void live_write_change(struct gc_writer *out, const char *name, uint64_t before, uint64_t after)
{
    char text[GC_TEXT_SIZE_BYTES];
    gc_writer_text(out, name);
    gc_writer_text(out, before == UINT64_MAX ? "none" : gc_text_size(before, text));
    gc_writer_text(out, " -> ");
    gc_writer_text(out, after == UINT64_MAX ? "none" : gc_text_size(after, text));
}

/* Prints a line too for a process that uses none of the devices. */
static void write_client(struct live_session *session, const struct live_client *client,
                         bool limits, const struct live_change changes[GC_LEDGER_DEVICES])
{
    char described[2 * LIVE_SHOWN_BYTES];
    struct gc_writer *out = &session->out;
    bool has_device = false;
    live_describe(client, described);
    for (uint32_t i = 0; i < GC_LEDGER_DEVICES; i++) {
        const struct live_change *change = &changes[i];
        if (!change->is_used || (session->device != GC_LEDGER_NONE && session->device != i))
            continue;
        has_device = true;
        gc_writer_text(out, described);
        gc_writer_text(out, ", device ");
        gc_writer_uint(out, i);
        if (limits)
            live_write_change(out, ": limit ", change->before.limit, change->after.limit);
        live_write_change(out, limits ? ", reserved " : ": reserved ", change->before.reserved,
                          change->after.reserved);
        live_write_change(out, ", idle ", change->before.idle, change->after.idle);
        gc_writer_char(out, '\n');
    }
    if (has_device)
        return;
    gc_writer_text(out, described);
    gc_writer_text(out, ": uses no device yet\n");
}

/* ---- a command ---- */

/* ---- the ledger that has the target ---- */

static int find_own(struct live_session *session, const char *word, enum live_kind kind)
{
    char reason[GC_LEDGER_REASON_BYTES];
    struct wanted wanted;
    const int status = read_word(session->command, word, kind, &wanted);
    if (status != TOOL_DONE)
        return status;
    const enum gc_status opened = live_open_node(&session->node, false, reason);
    if (opened == GC_NOT_OURS)
        return fail_name(session->command, NULL, &wanted);
    if (opened != GC_OK)
        return tool_fail(session->command, "%s", reason);
    session->ledger = session->node.ledgers[0].ledger;
    return live_find(session->command, &session->ledger, word, kind, &session->target);
}

static bool is_of_user(const struct node_ledger *ledger, const char *user)
{
    uint64_t number;
    return user == NULL || strcmp(ledger->user, user) == 0 ||
           (gc_text_uint(user, strlen(user), &number) && number == ledger->uid);
}

/* The ledger's process with this PID here. False if memory runs out. */
static bool collect_pid(const struct node_ledger *ledger, struct host_table *hosts, uint64_t pid,
                        struct live_target *target)
{
    const uint32_t high = gc_ledger_slot_high(&ledger->ledger);
    for (uint32_t slot = 0; slot < high; slot++) {
        struct gc_ledger_process process;
        struct host_process found;
        if (!gc_ledger_read_process(&ledger->ledger, slot, &process))
            continue;
        host_process_find(hosts, &ledger->ledger, &process, ledger->uid, &found);
        if (found.pid != 0 && (uint64_t)found.pid == pid && !add_client(target, &process, ""))
            return false;
    }
    return true;
}

/* The ledgers of the wanted users that have what the word means; the target is the first one's. */
static bool collect_all(struct live_session *session, const struct wanted *wanted, bool is_pid,
                        size_t *count, size_t ledgers[2])
{
    struct host_table hosts;
    bool is_done = true;
    host_table_init(&hosts);
    *count = 0;
    for (size_t i = 0; i < session->node.count && is_done; i++) {
        const struct node_ledger *ledger = &session->node.ledgers[i];
        struct live_target target = {.clients = NULL}, ignored = {.clients = NULL};
        struct wanted names = *wanted;
        names.has_pid = false;
        if (!is_of_user(ledger, session->users.name))
            continue;
        is_done = is_pid ? collect_pid(ledger, &hosts, wanted->pid, &target)
                         : collect(&ledger->ledger, &names, &ignored, &target);
        if (target.count == 0 || *count > 0) {
            if (target.count > 0 && (*count)++ == 1)
                ledgers[1] = i;
            live_target_fini(&target);
            continue;
        }
        ledgers[(*count)++] = i;
        session->target = target;
        session->ledger = ledger->ledger;
    }
    host_table_fini(&hosts);
    return is_done;
}

static int find_in_all(struct live_session *session, const char *word, enum live_kind kind)
{
    const struct tool_command *command = session->command;
    char reason[GC_LEDGER_REASON_BYTES], shown[LIVE_SHOWN_BYTES];
    struct wanted wanted;
    size_t count, ledgers[2] = {0, 0};
    int status = read_word(command, word, kind, &wanted);
    if (status == TOOL_DONE)
        status = live_check_root(command);
    if (status != TOOL_DONE)
        return status;
    if (live_open_node(&session->node, true, reason) != GC_OK)
        return tool_fail(command, "%s", reason);
    if (!collect_all(session, &wanted, wanted.has_pid, &count, ledgers))
        return tool_fail(command, "%s", gc_status_text(GC_NO_HOST_MEMORY));
    if (count == 0 && wanted.has_pid)
        return fail_pid(command, wanted.pid, true);
    if (count == 0)
        return fail_name(command, NULL, &wanted);
    if (count > 1)
        return tool_fail(
            command,
            "the ledgers of %s and of %s (%s) both have a %s %s: give the PIDs, or --user if they are two",
            session->node.ledgers[ledgers[0]].user, session->node.ledgers[ledgers[1]].user,
            session->node.ledgers[ledgers[1]].ledger.path, kind == LIVE_GROUP ? "group" : "tenant",
            live_show(word, shown));
    if (!wanted.has_pid && wanted.group != NULL) {
        session->target.is_group = true;
        snprintf(session->target.group, sizeof(session->target.group), "%s", wanted.group);
    }
    return TOOL_DONE;
}

int live_session_open(struct live_session *session, const char *word, enum live_kind kind,
                      const char *timeout)
{
    gc_writer_init(&session->out, STDOUT_FILENO);
    if (timeout != NULL && !live_parse_seconds(timeout, &session->wait.timeout_ms))
        return tool_usage(session->command,
                          "--timeout %s is not valid; accepted: seconds, 0 to 86400", timeout);
    setlocale(LC_CTYPE, "");
    return session->users.all || session->users.name != NULL ? find_in_all(session, word, kind)
                                                             : find_own(session, word, kind);
}

int live_session_close(struct live_session *session, int status)
{
    const int finished = tool_finish(session->command, &session->out);
    live_target_fini(&session->target);
    node_close(&session->node);
    return status != TOOL_DONE ? status : finished;
}

void live_write_line(struct gc_writer *out, const struct live_client *client, const char *text)
{
    char described[2 * LIVE_SHOWN_BYTES];
    char shown[LIVE_SHOWN_BYTES];
    live_describe(client, described);
    gc_writer_text(out, described);
    gc_writer_text(out, ": ");
    gc_writer_text(out, live_show(text, shown));
    gc_writer_char(out, '\n');
}

static const char not_awaited[] = "request left, answer not awaited";

int live_request_all(struct live_session *session,
                     int (*send)(struct live_session *session, struct live_client *client))
{
    int status = TOOL_DONE;
    live_begin(&session->wait);
    for (size_t i = 0; i < session->target.count; i++) {
        struct live_client *client = &session->target.clients[i];
        client->is_requested = send(session, client) == TOOL_DONE;
        if (!client->is_requested)
            status = TOOL_FAILED;
    }
    for (size_t i = 0; i < session->target.count; i++) {
        const struct live_client *client = &session->target.clients[i];
        char text[GC_LEDGER_RESPONSE_BYTES];
        if (!client->is_requested)
            continue;
        if (session->wait.timeout_ms == 0)
            live_write_line(&session->out, client, not_awaited);
        else if (live_wait_response(session->command, &session->ledger, client, &session->wait,
                                    text) == TOOL_DONE)
            live_write_line(&session->out, client, text[0] != '\0' ? text : "done");
        else
            status = TOOL_FAILED;
    }
    return status;
}

/* ---- a round ---- */

int live_round_open(struct live_session *session, struct live_round *round)
{
    const size_t count = session->target.count + 1;
    round->changes = calloc(count, sizeof(*round->changes));
    if (round->changes == NULL)
        return tool_fail(session->command, "%s", gc_status_text(GC_NO_HOST_MEMORY));
    refresh(session, session->target.clients, session->target.count, REFRESH_MS);
    for (size_t i = 0; i < session->target.count; i++)
        read_client(session, &session->target.clients[i], true, round->changes[i]);
    live_begin(&session->wait);
    return TOOL_DONE;
}

int live_round_collect(struct live_session *session, struct live_round *round)
{
    int status = TOOL_DONE;
    for (size_t i = 0; i < session->target.count; i++) {
        struct live_client *client = &session->target.clients[i];
        char text[GC_LEDGER_RESPONSE_BYTES];
        if (!client->is_requested)
            continue;
        if (session->wait.timeout_ms == 0) {
            live_write_line(&session->out, client, not_awaited);
            continue;
        }
        client->is_requested = false;
        const int answer =
            live_wait_response(session->command, &session->ledger, client, &session->wait, text);
        if (answer != TOOL_DONE) {
            status = answer;
            continue;
        }
        /* The process has just answered, so its new figures are worth the rest of the time. */
        refresh(session, client, 1, left_ms(&session->wait));
        read_client(session, client, false, round->changes[i]);
        client->has_response = true;
    }
    return status;
}

void live_round_print(struct live_session *session, const struct live_round *round, bool limits)
{
    for (size_t i = 0; i < session->target.count; i++)
        if (session->target.clients[i].has_response)
            write_client(session, &session->target.clients[i], limits, round->changes[i]);
}

void live_round_close(struct live_round *round)
{
    free(round->changes);
}

int live_round_request(struct live_session *session, size_t index,
                       const struct gc_ledger_request *request)
{
    struct live_client *client = &session->target.clients[index];
    const int status = live_request(session->command, &session->ledger, client, request);
    client->is_requested = status == TOOL_DONE;
    return status;
}
