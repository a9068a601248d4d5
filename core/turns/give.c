/* What other processes, or the tool, ask this one to give up. */
#include "core/base/bits.h"
#include "core/base/clock.h"
#include "core/io/text.h"
#include "core/pause/away.h"
#include "core/reclaim/release.h"
#include "core/turns/state.h"

#include <stddef.h>
#include <stdio.h>

static uint64_t resident_bytes(const struct gc_turns *turns)
{
    uint64_t sum = 0;
    for (int i = 0; i < GC_DEVICE_MAX; i++) {
        const struct gc_device *device = gc_device_find(turns->core, i);
        sum += device == NULL ? 0 : gc_device_reserved_bytes(device);
    }
    return sum;
}

static void refuse(struct gc_turns *turns, enum gc_swap_refusal refusal)
{
    atomic_store_explicit(&turns->slot->turn.refusal, (uint32_t)refusal, memory_order_relaxed);
    atomic_store_explicit(&turns->slot->turn.is_passing, gc_turns_is_passing(refusal),
                          memory_order_relaxed);
    gc_turns_store(&turns->slot->turn.not_before_ns,
                   gc_clock_ns() + gc_turns_again_ns(turns, refusal));
    turns->refused_bytes = resident_bytes(turns);
}

/* A process that had nothing to give, and has more now, may be asked again. */
void gc_turns_review_refusal(struct gc_turns *turns)
{
    const struct gc_ledger_turn_row *row = &turns->slot->turn;
    if (gc_ledger_load(&row->not_before_ns) != 0 &&
        gc_ledger_load_half(&row->refusal) == GC_SWAP_EMPTY &&
        resident_bytes(turns) > turns->refused_bytes)
        gc_turns_store(&turns->slot->turn.not_before_ns, 0);
}

/* Whether the first process in the queue is within its guarantee, and this one is beyond its own.
 */
static bool must_yield(struct gc_device *device)
{
    struct gc_account *account = device->budget.account;
    return gc_turn_must_yield(account->ledger, account->group_key, gc_account_row(account),
                              gc_account_limit(account));
}

/* Whether the process is to give memory of the device at all. */
static bool may_give(struct gc_turns *turns, struct gc_device *device, bool is_forced)
{
    const struct gc_ledger_turn_row *row = &turns->slot->turn;
    if (gc_scope_is_away(turns->core, NULL))
        return true;
    if (gc_ledger_load_half(&row->is_pinned) != 0)
        return false;
    if (is_forced)
        return true;
    const uint64_t now_ns = gc_clock_ns();
    gc_turns_watch(turns, now_ns);
    if (gc_turn_is_protected(&turns->client->ledger, turns->client->ledger.own, device->ledger_row,
                             now_ns))
        return false;
    return gc_turn_idle_since(row, now_ns) != 0 || !gc_turns_is_in_quantum(turns) ||
           must_yield(device);
}

/* The turn ends: its ticket, too, unless it waits. */
static bool leave(struct gc_turns *turns)
{
    struct gc_swap_result result;
    if (gc_scope_is_away(turns->core, NULL))
        return true;
    /* A thread that finds the gate closed from now on demands. */
    atomic_store_explicit(&turns->is_demanded, false, memory_order_seq_cst);
    atomic_store_explicit(&turns->demanded_ns, 0, memory_order_relaxed);
    if (!gc_turns_leave(turns, NULL, &result)) {
        refuse(turns, result.refusal);
        return false;
    }
    turns->out_ns = 0;
    turns->in_ns = 0;
    turns->idle_ns = gc_ledger_load(&turns->slot->turn.idle_ns);
    if (!gc_turns_wants_more(turns))
        gc_turn_drop(&turns->client->ledger);
    if (turns->idle_ns == 0)
        gc_turns_store(&turns->slot->turn.idle_ns, gc_clock_ns());
    return true;
}

static enum gc_turn_state state_after(const struct gc_turns *turns, enum gc_turn_state before)
{
    if (!gc_scope_is_away(turns->core, NULL))
        return GC_TURN_IN;
    return before == GC_TURN_WAITING ? GC_TURN_WAITING : GC_TURN_AWAY;
}

static void give(struct gc_turns *turns, struct gc_device *device, uint64_t bytes)
{
    const enum gc_turn_state before = gc_turns_state(turns);
    gc_turns_set_state(turns, GC_TURN_LEAVING);
    if (leave(turns)) {
        struct gc_swap_result result;
        turns->out_ns += gc_turns_swap_out(turns, device, NULL, bytes, false, &result);
        if (result.refusal != GC_SWAP_OK)
            refuse(turns, result.refusal);
    }
    if (gc_turns_publish_away(turns) == 0 && gc_scope_is_away(turns->core, NULL))
        (void)gc_away_end(turns->core, NULL); /* nothing could go */
    gc_turns_set_state(turns, state_after(turns, before));
}

void gc_turns_give_all(struct gc_turns *turns)
{
    for (int i = 0; i < GC_DEVICE_MAX; i++) {
        uint32_t row;
        struct gc_device *device = gc_turns_device(turns, i, &row);
        const uint64_t bytes =
            device == NULL
                ? 0
                : atomic_exchange_explicit(&turns->slot->turn.give[row], 0, memory_order_acquire);
        if (bytes == 0 || !may_give(turns, device, bytes == UINT64_MAX))
            continue;
        const uint64_t before = gc_device_reserved_bytes(device);
        const uint64_t idle = gc_release_idle(device, NULL, 0, bytes);
        if (idle < bytes && bytes != UINT64_MAX && !gc_scope_is_away(turns->core, NULL) &&
            gc_turns_give_idle(turns, device, bytes - idle))
            continue; /* it is asked again, if more is lacking */
        if (idle < bytes)
            give(turns, device, bytes == UINT64_MAX ? bytes : bytes - idle);
        else
            gc_turns_wake_waiting(turns);
        if (bytes == UINT64_MAX)
            turns->evicted += gc_sub_or_zero_u64(before, gc_device_reserved_bytes(device));
    }
}

/* Answers the tool, which asks for all of it; other processes do not read the answer. */
enum gc_ledger_result gc_turns_respond(void *argument, enum gc_ledger_request_kind kind,
                                       const char *tenant, bool drop, char *text)
{
    struct gc_turns *turns = argument;
    const struct gc_ledger_turn_row *row = &turns->slot->turn;
    char left[GC_TEXT_SIZE_BYTES];
    char stays[GC_TEXT_SIZE_BYTES];
    (void)kind;
    (void)tenant;
    (void)drop;
    gc_turns_give_all(turns);
    const uint64_t evicted = turns->evicted;
    const bool is_pinned = gc_ledger_load_half(&row->is_pinned) != 0;
    turns->evicted = 0;
    if (evicted > 0 || (gc_scope_is_away(turns->core, NULL) && !is_pinned)) {
        snprintf(text, GC_LEDGER_RESPONSE_BYTES, "evicted: %s left the device, %s stays",
                 gc_text_size(evicted, left), gc_text_size(resident_bytes(turns), stays));
        return GC_RESPONSE_DONE;
    }
    snprintf(text, GC_LEDGER_RESPONSE_BYTES, "%s",
             is_pinned
                 ? "it is pinned"
                 : gc_swap_refusal_text((enum gc_swap_refusal)gc_ledger_load_half(&row->refusal)));
    return GC_RESPONSE_REFUSED;
}
