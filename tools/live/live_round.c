#include "tools/live/live_round.h"

#include "core/io/text.h"

#include <stdlib.h>

#define REFRESH_MS 200 /* at least, also for a process that is busy */

/* ---- figures before and after ---- */

/* Asks for fresh figures, of all at once, and waits for those that come in time. */
static void refresh(struct live_session *session, struct live_member *members, size_t count,
                    uint32_t timeout_ms)
{
    const struct gc_ledger_request request = {.ask = GC_ASK_REFRESH, .device = GC_LEDGER_NONE};
    struct live_wait wait = {.timeout_ms = timeout_ms > REFRESH_MS ? timeout_ms : REFRESH_MS};
    live_begin(&wait);
    for (size_t i = 0; i < count; i++) {
        const struct gc_ledger_process *process = &members[i].process;
        members[i].is_asked = !live_is_stopped(&session->ledger, process->slot, process->pid) &&
                              gc_ledger_ask(&session->ledger, process->slot, process->generation,
                                            &request, &members[i].ticket) &&
                              process->has_helper;
    }
    for (size_t i = 0; i < count; i++) {
        if (members[i].is_asked)
            (void)gc_ledger_await(&session->ledger, &members[i].ticket, live_left_ms(&wait), NULL);
        members[i].is_asked = false;
    }
}

static void read_member(struct live_session *session, const struct live_member *member, bool before,
                        struct live_change changes[GC_LEDGER_DEVICES])
{
    for (uint32_t i = 0; i < GC_LEDGER_DEVICES; i++) {
        struct live_change *change = &changes[i];
        struct gc_ledger_figures *figures = before ? &change->before : &change->after;
        const bool is_used =
            gc_ledger_read_figures(&session->ledger, member->process.slot, i, figures);
        change->is_used = before ? is_used : change->is_used && is_used;
    }
}

void live_put_change(struct gc_out *out, const char *name, uint64_t before, uint64_t after)
{
    char text[GC_TEXT_SIZE_BYTES];
    gc_out_text(out, name);
    gc_out_text(out, before == UINT64_MAX ? "none" : gc_text_size(before, text));
    gc_out_text(out, " -> ");
    gc_out_text(out, after == UINT64_MAX ? "none" : gc_text_size(after, text));
}

/* Says so where the process has no device that is spoken of. */
static void put_member(struct live_session *session, const struct live_member *member, bool limits,
                       const struct live_change changes[GC_LEDGER_DEVICES])
{
    char who[2 * LIVE_SHOWN_BYTES];
    struct gc_out *out = &session->out;
    bool has_device = false;
    live_describe(member, who);
    for (uint32_t i = 0; i < GC_LEDGER_DEVICES; i++) {
        const struct live_change *change = &changes[i];
        if (!change->is_used || (session->device != GC_LEDGER_NONE && session->device != i))
            continue;
        has_device = true;
        gc_out_text(out, who);
        gc_out_text(out, ", device ");
        gc_out_uint(out, i);
        if (limits)
            live_put_change(out, ": limit ", change->before.limit, change->after.limit);
        live_put_change(out, limits ? ", reserved " : ": reserved ", change->before.reserved,
                        change->after.reserved);
        live_put_change(out, ", idle ", change->before.idle, change->after.idle);
        gc_out_char(out, '\n');
    }
    if (has_device)
        return;
    gc_out_text(out, who);
    gc_out_text(out, ": uses no device yet\n");
}

static void put_asked(struct live_session *session, const struct live_member *member)
{
    char who[2 * LIVE_SHOWN_BYTES];
    live_describe(member, who);
    gc_out_text(&session->out, who);
    gc_out_text(&session->out, ": asked, not waited for\n");
}

/* ---- members ---- */

int live_round_open(struct live_session *session, struct live_round *round)
{
    const size_t count = session->target.count + 1;
    round->changes = calloc(count, sizeof(*round->changes));
    if (round->changes == NULL)
        return tool_fail(session->command, "%s", gc_status_text(GC_NO_HOST_MEMORY));
    refresh(session, session->target.members, session->target.count, REFRESH_MS);
    for (size_t i = 0; i < session->target.count; i++)
        read_member(session, &session->target.members[i], true, round->changes[i]);
    live_begin(&session->wait);
    return TOOL_DONE;
}

int live_round_hear(struct live_session *session, struct live_round *round)
{
    int status = TOOL_DONE;
    for (size_t i = 0; i < session->target.count; i++) {
        struct live_member *member = &session->target.members[i];
        char text[GC_LEDGER_ANSWER_BYTES];
        if (!member->is_asked)
            continue;
        if (session->wait.timeout_ms == 0) {
            put_asked(session, member);
            continue;
        }
        member->is_asked = false;
        const int answer =
            live_await(session->command, &session->ledger, member, &session->wait, text);
        if (answer != TOOL_DONE) {
            status = answer;
            continue;
        }
        /* It has just answered: what it holds now is worth the rest of the time. */
        refresh(session, member, 1, live_left_ms(&session->wait));
        read_member(session, member, false, round->changes[i]);
        member->is_heard = true;
    }
    return status;
}

void live_round_print(struct live_session *session, const struct live_round *round, bool limits)
{
    for (size_t i = 0; i < session->target.count; i++)
        if (session->target.members[i].is_heard)
            put_member(session, &session->target.members[i], limits, round->changes[i]);
}

void live_round_close(struct live_round *round)
{
    free(round->changes);
}

int live_round_ask(struct live_session *session, size_t index,
                   const struct gc_ledger_request *request)
{
    struct live_member *member = &session->target.members[index];
    const int status = live_ask(session->command, &session->ledger, member, request);
    member->is_asked = status == TOOL_DONE;
    return status;
}
