/* The helper's step: what others ask for is given, what this process waits for is brought back or
 * asked for, and its work is watched. It never waits for another process. */
#include "core/turns/turns.h"

#include "core/backing/host.h"
#include "core/backing/kept.h"
#include "core/base/bits.h"
#include "core/base/clock.h"
#include "core/device/tenant.h"
#include "core/pause/away.h"
#include "core/pause/pause.h"
#include "core/turns/state.h"

#include <stddef.h>

#define SAMPLE_NS (2 * GC_NS_PER_MS) /* at most so often; it costs a fence in each context */
/* Gaps in the work of a busy process: so long at first, and at most. */
#define GAP_LEAST_NS (5 * GC_NS_PER_MS)
#define GAP_MOST_NS (100 * GC_NS_PER_MS)
/* Steps: while it waits; while it has work, or waits for others' requests. */
#define WAITING_MS 1
#define WATCHING_MS 20
#define RESTING_MS 200
#define EMPTY_NS (30 * GC_NS_PER_S) /* host memory without content is kept so long */

/* ---- the next turn ---- */

/* What is resident of a stuck process is for others. */
static void set_stuck(struct gc_turns *turns, bool is_stuck)
{
    atomic_store_explicit(&turns->slot->turn.is_stuck, is_stuck ? 1U : 0U, memory_order_seq_cst);
}

/* Whether nobody can give what is missing, the process's own tenants neither. */
static bool is_hopeless(struct gc_turns *turns, struct gc_device *device, uint64_t missing)
{
    if (missing == 0 || !gc_turns_is_first(turns, device) || gc_turns_ask(turns, device, missing) ||
        gc_turns_leave_tenant(turns, device))
        return false;
    gc_turns_log_vain(turns, device, missing);
    return true;
}

/* Asks for what is lacking, and swaps in what has room. */
static void bring_back(struct gc_turns *turns, struct gc_device *device, uint32_t row)
{
    const uint64_t missing = gc_away_missing(device, NULL);
    gc_turns_store(&turns->slot->turn.need[row], missing);
    const bool is_stuck = is_hopeless(turns, device, missing);
    set_stuck(turns, is_stuck);
    if (is_stuck || (missing > 0 && !gc_account_has_room(device->budget.account,
                                                         gc_min_u64(missing, GC_PAGE_BYTES_MIN))))
        return;
    turns->in_ns += gc_turns_swap_in(turns, device, NULL);
    gc_turns_store(&turns->slot->turn.need[row], gc_away_missing(device, NULL));
}

/* A process that left without work and soon had some again was busy, with gaps: from now on it
 * counts as idle only after longer ones. */
static void learn_gap(struct gc_turns *turns)
{
    gc_ledger_word *word = &turns->slot->turn.gap_ns;
    const uint64_t demanded_ns = atomic_load_explicit(&turns->demanded_ns, memory_order_relaxed);
    const uint64_t gap_ns = gc_sub_or_zero_u64(demanded_ns, turns->idle_ns);
    if (turns->idle_ns == 0)
        return;
    gc_turns_store(word, gap_ns <= GAP_MOST_NS / 2
                             ? gc_max_u64(gc_ledger_load(word), 2 * gap_ns)
                             : gc_max_u64(gc_ledger_load(word) / 2, GAP_LEAST_NS));
}

/* All that it queued for is resident. */
static void begin_quantum(struct gc_turns *turns)
{
    gc_turns_store(&turns->slot->turn.begin_ns, gc_clock_ns());
    gc_turns_store(&turns->slot->turn.idle_ns, 0);
    turns->has_queued = false;
}

/* All is resident: a new turn. */
static void begin_turn(struct gc_turns *turns)
{
    struct gc_ledger_turn_row *row = &turns->slot->turn;
    const uint64_t least_ns = turns->core->options->quantum_ms * GC_NS_PER_MS;
    const uint64_t exchange_ns = gc_max_u64(turns->out_ns, turns->in_ns);
    gc_turns_store(&row->quantum_ns, gc_max_u64(least_ns, GC_TURN_QUANTUM_TIMES * exchange_ns));
    begin_quantum(turns);
    gc_turns_store(&row->not_before_ns, 0);
    gc_turns_add(&row->exchange_count, 1);
    learn_gap(turns);
    gc_turns_end_waiting(turns);
    gc_turns_set_state(turns, GC_TURN_IN);
}

static void come_back(struct gc_turns *turns)
{
    if (gc_pause_is_any(turns->core))
        return;
    /* Without demand only what needs no driver call: all was freed meanwhile. */
    const bool is_demanded = atomic_load_explicit(&turns->is_demanded, memory_order_acquire) ||
                             gc_turns_wants_more(turns);
    if (!is_demanded && gc_turns_publish_away(turns) > 0) {
        gc_turns_set_state(turns, GC_TURN_AWAY);
        return;
    }
    gc_turns_set_state(turns, GC_TURN_WAITING);
    gc_turns_take_ticket(turns);
    for (int i = 0; i < GC_DEVICE_MAX; i++) {
        uint32_t row;
        struct gc_device *device = gc_turns_device(turns, i, &row);
        if (device != NULL)
            bring_back(turns, device, row);
    }
    (void)gc_turns_publish_away(turns);
    /* First: a thread that finds the gate closed later demands again. */
    atomic_store_explicit(&turns->is_demanded, false, memory_order_seq_cst);
    if (gc_away_end(turns->core, NULL))
        begin_turn(turns);
    else if (is_demanded)
        atomic_store_explicit(&turns->is_demanded, true, memory_order_release);
}

static void demand(struct gc_core *core, struct gc_tenant *tenant)
{
    struct gc_turns *turns = core->turns;
    if (tenant != NULL && gc_tenant_is_away(tenant))
        gc_turns_demand_tenant(turns, tenant);
    if (atomic_exchange_explicit(&turns->is_demanded, true, memory_order_seq_cst))
        return;
    if (atomic_load_explicit(&turns->demanded_ns, memory_order_relaxed) == 0)
        atomic_store_explicit(&turns->demanded_ns, gc_clock_ns(), memory_order_relaxed);
    gc_ledger_wake(&turns->client->ledger, turns->client->ledger.own);
}

/* ---- requests of the program's threads ---- */

/* Whether the group could have so much more of this process, if all others gave all. */
static bool could_fit(const struct gc_device *device, uint64_t bytes)
{
    struct gc_account *account = device->budget.account;
    uint64_t sum;
    return gc_add_u64(gc_account_of(account, account->ledger->own), bytes, &sum) &&
           sum <= gc_account_limit(account);
}

/* The process's own tenants give first, and need no ticket for it. What they will give does not
 * count as hope for others' memory: what the process needs beside theirs must fit. */
static bool must_ask(struct gc_turns *turns, struct gc_device *device, uint64_t need,
                     enum gc_turns_room *room)
{
    *room = need == 0 ? GC_TURNS_ROOM : gc_turns_make_room(turns, device, need);
    return *room == GC_TURNS_NO_ROOM || (*room == GC_TURNS_ROOM_LATER && could_fit(device, need));
}

/* True: the process waits. */
static bool serve_want(struct gc_turns *turns, struct gc_device *device, uint32_t row)
{
    struct gc_group_client *client = turns->client;
    enum gc_turns_room room;
    const uint64_t want = gc_group_wanted(client, row);
    const uint64_t need = gc_turns_need(turns, device, want);
    const bool asks = must_ask(turns, device, need, &room);
    gc_turns_store(&turns->slot->turn.need[row], asks ? need : 0);
    if (want == 0)
        gc_group_set_hopeless(client, row, false);
    if (!asks) {
        turns->asking[row].vain_ns = 0;
        if (need > 0)
            gc_turns_begin_waiting(turns);
        return need > 0;
    }
    gc_turns_take_ticket(turns);
    if (room == GC_TURNS_ROOM_LATER)
        turns->asking[row].vain_ns = 0;
    if (!gc_turns_is_first(turns, device) || gc_turns_ask(turns, device, need))
        return true;
    gc_turns_log_vain(turns, device, need);
    if (!gc_turns_set_stuck(turns))
        gc_group_set_hopeless(client, row, true);
    return true;
}

/* A process that has its turn keeps its ticket for the quantum: what it needs more of then comes
 * before what others wait for. A request that has queued is a turn, too: a program that starts
 * takes many blocks. Others' turns come before the next one, as that draws a new ticket. It works
 * with gaps. */
static void serve_wants(struct gc_turns *turns)
{
    bool is_any = false;
    for (int i = 0; i < GC_DEVICE_MAX; i++) {
        uint32_t row;
        struct gc_device *device = gc_turns_device(turns, i, &row);
        if (device != NULL)
            is_any |= serve_want(turns, device, row);
    }
    if (is_any)
        return;
    gc_turns_end_waiting(turns);
    if (turns->has_queued) {
        begin_quantum(turns);
        gc_turns_store(&turns->slot->turn.gap_ns, GAP_MOST_NS);
    }
    if (!gc_turns_is_in_quantum(turns))
        gc_turn_drop(&turns->client->ledger);
}

/* ---- the host store ---- */

static void trim_host(struct gc_turns *turns, uint64_t now_ns)
{
    if (gc_scope_is_away(turns->core, NULL) || gc_host_bytes(turns->core) == 0)
        turns->empty_ns = 0;
    else if (turns->empty_ns == 0)
        turns->empty_ns = now_ns;
    if (turns->empty_ns == 0 || now_ns < turns->empty_ns + EMPTY_NS)
        return;
    turns->empty_ns = now_ns;
    gc_kept_sweep(turns->core);
    (void)gc_host_trim(turns->core);
}

/* ---- steps ---- */

static bool has_device(const struct gc_turns *turns)
{
    uint32_t row;
    for (int i = 0; i < GC_DEVICE_MAX; i++)
        if (gc_turns_device(turns, i, &row) != NULL)
            return true;
    return false;
}

static uint32_t timeout_ms(const struct gc_turns *turns)
{
    const struct gc_ledger_turn_row *row = &turns->slot->turn;
    if (gc_ledger_load(&row->waiting_ns) != 0)
        return WAITING_MS;
    return gc_turns_state(turns) == GC_TURN_IN ? WATCHING_MS : RESTING_MS;
}

static uint32_t step(struct gc_core *core)
{
    struct gc_turns *turns = core->turns;
    const uint64_t now_ns = gc_clock_ns();
    gc_turns_beat(turns);
    if (!has_device(turns))
        return RESTING_MS;
    if (gc_turns_state(turns) == GC_TURN_NONE) {
        gc_turns_store(&turns->slot->turn.begin_ns, now_ns);
        gc_turns_set_state(turns, GC_TURN_IN);
    }
    gc_turns_review_refusal(turns);
    gc_turns_give_all(turns);
    if (gc_scope_is_away(core, NULL)) {
        come_back(turns);
    } else {
        if (now_ns >= turns->sampled_ns + SAMPLE_NS)
            gc_turns_watch(turns, now_ns);
        gc_turns_serve_tenants(turns);
        serve_wants(turns);
        (void)gc_turns_publish_away(turns);
    }
    trim_host(turns, now_ns);
    return timeout_ms(turns);
}

void gc_turns_join(struct gc_core *core)
{
    struct gc_group_client *client = gc_group_client_of(core);
    if (client == NULL || !client->has_group ||
        (core->options->overcommit & GC_OVERCOMMIT_SWAP) == 0)
        return;
    struct gc_turns *turns = gc_host_mem_map(&core->host, sizeof(*turns));
    if (turns == NULL)
        return;
    turns->core = core;
    turns->client = client;
    turns->slot = gc_ledger_own_slot(&client->ledger);
    for (uint32_t i = 0; i < GC_LEDGER_DEVICES; i++)
        turns->asking[i].slot = GC_LEDGER_NONE;
    atomic_store_explicit(&turns->slot->turn.priority, (uint32_t)core->options->priority,
                          memory_order_relaxed);
    gc_turns_store(&turns->slot->turn.gap_ns, GAP_LEAST_NS);
    gc_turns_store(&turns->slot->turn.quantum_ns, core->options->quantum_ms * GC_NS_PER_MS);
    core->turns = turns;
    core->host_budget.has_reserve = true;
    core->demand = demand;
    gc_serve_set_step(core, step);
    gc_serve_register(core, GC_REQUEST_GIVE, gc_turns_respond, turns);
}

void gc_turns_fini(struct gc_core *core)
{
    if (core->turns != NULL)
        gc_host_mem_unmap(&core->host, core->turns, sizeof(*core->turns));
    core->turns = NULL;
    core->demand = NULL;
}
