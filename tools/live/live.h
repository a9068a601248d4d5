/* Shared by `gpucache top`, `limit`, `trim`, `pause`, `resume`, `pin` and `evict`: the user's
 * ledger, the processes that a word of the command line means, and requests to them.
 *
 * A word of digits is the PID of a process under the library, any other word the name of a group or
 * tenant. `pid:N`, `group:NAME` and `tenant:NAME` are explicit; a number which is both a PID and a
 * name needs one of them. If processes of several PID namespaces have the PID, the one of our own
 * namespace is meant. Among all users' processes a PID is that of this namespace, of a process in a
 * container, too. Names are untrusted text: print them with live_show only. */
#ifndef GC_LIVE_H
#define GC_LIVE_H

#include "core/ledger/ledger.h"
#include "tools/base/tool.h"
#include "tools/node/host_process.h"
#include "tools/node/node.h"

#define LIVE_TIMEOUT_MS 5000
#define LIVE_MOVE_TIMEOUT_MS 60000 /* long enough to copy many GiB */

struct live_client {
    struct gc_ledger_process process;
    char tenant[GC_LEDGER_NAME_BYTES]; /* tenant inside the process; "": the whole process */
    struct gc_ledger_ticket ticket;
    bool is_requested;
    bool has_response; /* the process has answered */
};

struct live_target {
    bool is_group;
    char group[GC_LEDGER_NAME_BYTES];
    struct live_client *clients;
    size_t count;
};

/* The kinds that a name may mean, besides a PID. */
enum live_kind { LIVE_GROUP, LIVE_TENANT };

/* The folder of the user's ledger, and that of all ledgers (GPUCACHE_NODE). */
struct live_place {
    char folder[GC_LEDGER_PATH_BYTES];
    char root[GC_LEDGER_PATH_BYTES];
};
enum gc_status live_find_place(struct live_place *place,
                               char reason[GC_LEDGER_REASON_BYTES]) GC_CHECKED;
/* Opens the user's ledger (GC_NOT_OURS: there is none), or those of all users, which may be none.
 * GC_IO, GC_FORMAT, GC_NO_HOST_MEMORY, with `reason`. */
enum gc_status live_open_node(struct node *node, bool is_of_all_users,
                              char reason[GC_LEDGER_REASON_BYTES]) GC_CHECKED;
/* For --all-users: TOOL_FAILED with a line if the user is not root. */
int live_check_root(const struct tool_command *command) GC_CHECKED;

/* The users that a command is about. */
struct live_users {
    bool all;         /* --all-users */
    const char *name; /* --user: a name or a number; NULL: not given */
};
#define LIVE_USER_OPTIONS(users)                                                                   \
    {.name = "--all-users", .flag = &(users).all},                                                 \
    {                                                                                              \
        .name = "--user", .value = &(users).name                                                   \
    }

#define LIVE_USERS_HELP                                                                            \
    "  --all-users    of every user, job and container; for root. A PID is the one\n"              \
    "                 here, of a process in a container, too\n"                                    \
    "  --user NAME    of this user; for root\n"

/* Finds the processes in the ledger that `word` means; TOOL_FAILED or TOOL_USAGE with a line. Call
 * live_target_fini in either case. */
int live_find(const struct tool_command *command, const struct gc_ledger *ledger, const char *word,
              enum live_kind kind, struct live_target *target) GC_CHECKED;
void live_target_fini(struct live_target *target);

/* The device row of --device: its number in `top`, its UUID or a prefix of it; GC_LEDGER_NONE
 * for NULL. TOOL_FAILED with a line. */
int live_find_device(const struct tool_command *command, const struct gc_ledger *ledger,
                     const char *word, uint32_t *device) GC_CHECKED;

/* Parses seconds with decimals, up to a day. */
bool live_parse_seconds(const char *text, uint32_t *ms);

struct live_wait {
    uint32_t timeout_ms; /* 0: answers are not awaited */
    int64_t until_ms;    /* set by live_begin */
};
void live_begin(struct live_wait *wait);
/* Writes a request into the ledger; TOOL_FAILED with a line if the process has ended. */
int live_request(const struct tool_command *command, const struct gc_ledger *ledger,
                 struct live_client *client, const struct gc_ledger_request *request) GC_CHECKED;
/* TOOL_DONE with the answer's text; TOOL_FAILED with a line if the request was refused, the
 * process has ended, or the time is over. */
int live_wait_response(const struct tool_command *command, const struct gc_ledger *ledger,
                       const struct live_client *client, const struct live_wait *wait,
                       char text[GC_LEDGER_RESPONSE_BYTES]) GC_CHECKED;

/* True if /proc shows that the process is stopped by a signal. */
bool live_is_stopped(const struct gc_ledger *ledger, uint32_t slot, int pid);

/* A name made safe to print. */
#define LIVE_SHOWN_BYTES 512
const char *live_show(const char *name, char text[LIVE_SHOWN_BYTES]);
/* "process 12 (python)", "tenant llama of process 12 (python)". */
void live_describe(const struct live_client *client, char text[2 * LIVE_SHOWN_BYTES]);

/* ---- a command ---- */

/* Figures of a process or group on a device, before and after. */
struct live_change {
    bool is_used;
    struct gc_ledger_figures before;
    struct gc_ledger_figures after;
};

struct live_session {
    const struct tool_command *command;
    struct live_users users;
    struct node node;
    struct gc_ledger ledger; /* the one of `node` that has the target; it belongs to `node` */
    struct live_target target;
    struct live_wait wait;
    uint32_t device; /* of --device; GC_LEDGER_NONE: all */
    bool drops;      /* of --drop */
    struct gc_writer out;
};

/* Connects and finds what `word` means; TOOL_FAILED or TOOL_USAGE with a line, also for a --timeout
 * (NULL: not given, wait.timeout_ms holds) that is none. Call live_session_close in either case. */
int live_session_open(struct live_session *session, const char *word, enum live_kind kind,
                      const char *timeout) GC_CHECKED;
/* Frees all; returns `status`, or TOOL_FAILED if the output could not be written. */
int live_session_close(struct live_session *session, int status);

/* "process 12 (python): text" */
void live_write_line(struct gc_writer *out, const struct live_client *client, const char *text);
/* Has `send` write the requests to each process of the target before the first answer is awaited,
 * so that processes copy in parallel; prints the answers. TOOL_FAILED, with a line for each process
 * that failed. */
int live_request_all(struct live_session *session,
                     int (*send)(struct live_session *session,
                                 struct live_client *client)) GC_CHECKED;

/* One round of a command: figures before, a request to every process of the target, their answers,
 * figures after, a line for each device. All requests are written before the first answer is
 * awaited. */
struct live_round {
    struct live_change (*changes)[GC_LEDGER_DEVICES]; /* by client */
};

/* Reads the figures before the requests; TOOL_FAILED with a line. Call live_round_close in either
 * case. */
int live_round_open(struct live_session *session, struct live_round *round) GC_CHECKED;
void live_round_close(struct live_round *round);
int live_round_request(struct live_session *session, size_t index,
                       const struct gc_ledger_request *request) GC_CHECKED;
/* Waits for the answers; TOOL_FAILED, with a line for each process that failed. */
int live_round_collect(struct live_session *session, struct live_round *round) GC_CHECKED;
/* Prints a line for each device of each process that has answered. `limits`: with the limit. */
void live_round_print(struct live_session *session, const struct live_round *round, bool limits);
/* Prints "name before -> after"; UINT64_MAX is "none". */
void live_write_change(struct gc_writer *out, const char *name, uint64_t before, uint64_t after);

#endif
