/* One round of a command: figures before, a request to every member that is meant, their answers,
 * figures after, a line a device. Members are asked all at once and heard one after the other. */
#ifndef GC_LIVE_ROUND_H
#define GC_LIVE_ROUND_H

#include "tools/live/live.h"

/* What a device's figures of a process or group were, and are. */
struct live_change {
    bool is_used;
    struct gc_ledger_figures before;
    struct gc_ledger_figures after;
};

struct live_session {
    const struct tool_command *command;
    struct gc_ledger ledger;
    bool is_open;
    struct live_target target;
    struct live_wait wait;
    uint32_t device; /* of --device; GC_LEDGER_NONE: all */
    struct gc_out out;
};

struct live_round {
    struct live_change (*changes)[GC_LEDGER_DEVICES]; /* by member */
};

/* Reads what is there before; TOOL_FAILED with a line. live_round_close in either case. */
int live_round_open(struct live_session *session, struct live_round *round) GC_CHECKED;
void live_round_close(struct live_round *round);
int live_round_ask(struct live_session *session, size_t index,
                   const struct gc_ledger_request *request) GC_CHECKED;
/* Waits for those that were asked; TOOL_FAILED, with a line each, if one has not done it. */
int live_round_hear(struct live_session *session, struct live_round *round) GC_CHECKED;
/* A line a device of each that has answered. `limits`: with the limit. */
void live_round_print(struct live_session *session, const struct live_round *round, bool limits);
/* "name before -> after"; UINT64_MAX is none. */
void live_put_change(struct gc_out *out, const char *name, uint64_t before, uint64_t after);

#endif
