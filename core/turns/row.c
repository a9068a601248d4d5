/* The process's row of turns in the ledger: its state, its work, what is away, its ticket. */
#include "core/base/bits.h"
#include "core/base/clock.h"
#include "core/device/context.h"
#include "core/device/fence.h"
#include "core/device/publish.h"
#include "core/device/tenant.h"
#include "core/pause/away.h"
#include "core/turns/state.h"

#include <stddef.h>

struct gc_device *gc_turns_device(const struct gc_turns *turns, int ordinal, uint32_t *row)
{
    struct gc_device *device = gc_device_find(turns->core, ordinal);
    if (device == NULL || device->budget.account == NULL)
        return NULL;
    *row = gc_account_row(device->budget.account);
    return device;
}

void gc_turns_set_state(struct gc_turns *turns, enum gc_turn_state state)
{
    atomic_store_explicit(&turns->slot->turn.state, (uint32_t)state, memory_order_seq_cst);
}

enum gc_turn_state gc_turns_state(const struct gc_turns *turns)
{
    return (enum gc_turn_state)gc_ledger_load_half(&turns->slot->turn.state);
}

/* ---- work ---- */

struct watching {
    uint64_t submitted;
    bool is_idle;
};

/* Asks the fences; records one where none is open. */
static void watch_context(struct gc_context *context, void *argument)
{
    struct watching *watching = argument;
    if (gc_context_is_dropped(context) || context->is_device)
        return;
    (void)gc_fence_poll(context);
    if (gc_context_has_completed(context, watching->submitted))
        return;
    watching->is_idle = false;
    if (gc_fence_oldest_epoch(context) == 0)
        (void)gc_fence_record(context);
}

/* Whether all work that was submitted so far is done; work that is not counted never is. */
static bool has_no_work(struct gc_core *core)
{
    struct watching watching = {
        .submitted = atomic_load_explicit(&core->work.submitted, memory_order_seq_cst),
        .is_idle = !atomic_load_explicit(&core->work.is_conservative, memory_order_relaxed)};
    gc_contexts_visit(core, watch_context, &watching);
    return watching.is_idle &&
           watching.submitted == atomic_load_explicit(&core->work.submitted, memory_order_seq_cst);
}

/* A fence closes the epoch before it is recorded: work submitted after it has a later one, so the
 * answer is exact but for a submission at this moment. */
void gc_turns_watch(struct gc_turns *turns, uint64_t now_ns)
{
    struct gc_ledger_turn_row *row = &turns->slot->turn;
    turns->sampled_ns = now_ns;
    if (!has_no_work(turns->core))
        gc_turns_store(&row->idle_ns, 0);
    else if (gc_ledger_load(&row->idle_ns) == 0)
        gc_turns_store(&row->idle_ns, now_ns);
}

/* ---- figures ---- */

struct counting {
    struct gc_device *device;
    uint64_t bytes;
};

static void add_away(void *argument, struct gc_tenant *tenant)
{
    struct counting *away = argument;
    if (gc_tenant_is_away(tenant) && !gc_tenant_is_paused(tenant))
        away->bytes += gc_away_missing(away->device, tenant);
}

/* What is out, of each device. Returns what a turn of the process lacks: not that of tenants that
 * are away. */
uint64_t gc_turns_publish_away(struct gc_turns *turns)
{
    uint64_t sum = 0;
    for (int i = 0; i < GC_DEVICE_MAX; i++) {
        uint32_t row;
        struct gc_device *device = gc_turns_device(turns, i, &row);
        if (device == NULL)
            continue;
        const uint64_t missing = gc_away_missing(device, NULL);
        struct counting away = {device, missing};
        gc_tenants_visit(turns->core, add_away, &away);
        gc_publish_device(device, gc_core_now_ns(turns->core)); /* the peak first: turn.h */
        gc_turns_store(&turns->slot->turn.away[row], away.bytes);
        sum += missing;
    }
    return sum;
}

/* The contexts that move cannot be counted. */
void gc_turns_publish_moved(struct gc_turns *turns, struct gc_device *device, uint64_t bytes,
                            bool is_out)
{
    gc_ledger_word *away = &turns->slot->turn.away[gc_account_row(device->budget.account)];
    const uint64_t before = gc_ledger_load(away);
    gc_publish_device(device, gc_core_now_ns(turns->core));
    gc_turns_store(away, is_out ? before + bytes : gc_sub_or_zero_u64(before, bytes));
}

void gc_turns_begin_waiting(struct gc_turns *turns)
{
    struct gc_ledger_turn_row *row = &turns->slot->turn;
    if (gc_ledger_load(&row->waiting_ns) == 0)
        gc_turns_store(&row->waiting_ns, gc_clock_ns());
}

void gc_turns_take_ticket(struct gc_turns *turns)
{
    gc_turns_begin_waiting(turns);
    if (gc_ledger_load(&turns->slot->turn.ticket) == 0) {
        gc_turn_draw(&turns->client->ledger, gc_group_row(turns->core));
        turns->has_queued = true;
    }
}

void gc_turns_end_waiting(struct gc_turns *turns)
{
    struct gc_ledger_turn_row *row = &turns->slot->turn;
    const uint64_t since = gc_ledger_load(&row->waiting_ns);
    if (since != 0)
        gc_turns_add(&row->waited_ns, gc_clock_ns() - since);
    gc_turns_store(&row->waiting_ns, 0);
}

bool gc_turns_is_in_quantum(const struct gc_turns *turns)
{
    const struct gc_ledger_turn_row *row = &turns->slot->turn;
    return gc_clock_ns() < gc_ledger_load(&row->begin_ns) + gc_ledger_load(&row->quantum_ns);
}

/* Whether a thread waits for more memory: it is served when the rest is back. */
bool gc_turns_wants_more(const struct gc_turns *turns)
{
    for (int i = 0; i < GC_DEVICE_MAX; i++) {
        uint32_t row;
        if (gc_turns_device(turns, i, &row) != NULL && gc_group_wanted(turns->client, row) > 0)
            return true;
    }
    return false;
}
