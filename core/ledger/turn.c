#include "core/ledger/turn.h"

#include "core/base/bits.h"
#include "core/base/clock.h"

#include <stddef.h>

/* Equally long without work: within the same one of these. */
#define IDLE_STEP_NS UINT64_C(1000000000)

/* ---- tickets ---- */

void gc_turn_draw(const struct gc_ledger *ledger, uint32_t group_row)
{
    gc_ledger_word *last = &ledger->file->groups[group_row].ticket;
    atomic_store_explicit(&gc_ledger_own_slot(ledger)->turn.ticket,
                          atomic_fetch_add_explicit(last, 1, memory_order_seq_cst) + 1,
                          memory_order_seq_cst);
}

void gc_turn_drop(const struct gc_ledger *ledger)
{
    atomic_store_explicit(&gc_ledger_own_slot(ledger)->turn.ticket, 0, memory_order_seq_cst);
}

bool gc_turn_is_alive(const struct gc_ledger_slot *slot, uint64_t now_ns)
{
    return now_ns < gc_ledger_load(&slot->turn.beat_ns) + GC_TURN_STOPPED_NS;
}

static bool is_of_group(const struct gc_ledger *ledger, uint32_t slot, uint64_t group_key)
{
    return atomic_load_explicit(&ledger->file->group_keys[slot], memory_order_seq_cst) == group_key;
}

static uint64_t held_by(const struct gc_ledger *ledger, uint32_t slot, uint32_t device)
{
    return atomic_load_explicit(&ledger->file->accounts[device][slot], memory_order_seq_cst) &
           GC_LEDGER_BYTES_MASK;
}

static uint64_t need_of(const struct gc_ledger *ledger, uint32_t slot, uint32_t device)
{
    return gc_ledger_load(&gc_ledger_get_slot(ledger, slot)->turn.need[device]);
}

bool gc_turn_is_guaranteed(const struct gc_ledger *ledger, uint32_t slot, uint32_t device)
{
    const uint64_t guarantee =
        atomic_load_explicit(&ledger->file->guarantees[device][slot], memory_order_seq_cst) &
        GC_LEDGER_BYTES_MASK;
    uint64_t sum;
    return guarantee != 0 &&
           gc_add_u64(held_by(ledger, slot, device), need_of(ledger, slot, device), &sum) &&
           sum <= guarantee;
}

/* Whether the process could get what it needs if all others gave all. */
static bool could_fit(const struct gc_ledger *ledger, uint32_t slot, uint32_t device, uint64_t need,
                      uint64_t limit)
{
    uint64_t sum;
    return gc_add_u64(held_by(ledger, slot, device), need, &sum) && sum <= limit;
}

/* A process's place in the queue of a device. Number 0: it has none. */
struct place {
    bool is_guaranteed;
    uint64_t number;
    uint32_t slot;
};

static struct place place_of(const struct gc_ledger *ledger, uint32_t slot, uint32_t device)
{
    return (struct place){
        .is_guaranteed = gc_turn_is_guaranteed(ledger, slot, device),
        .number = atomic_load_explicit(&gc_ledger_get_slot(ledger, slot)->turn.ticket,
                                       memory_order_seq_cst),
        .slot = slot,
    };
}

static bool is_earlier(struct place a, struct place b)
{
    if (a.number == 0 || b.number == 0)
        return a.number != 0;
    if (a.is_guaranteed != b.is_guaranteed)
        return a.is_guaranteed;
    return a.number < b.number || (a.number == b.number && a.slot < b.slot);
}

/* Whether the slot's ticket counts on the device. */
static bool has_ticket(const struct gc_ledger *ledger, uint32_t slot, uint32_t device,
                       uint64_t limit, uint64_t now_ns)
{
    const struct gc_ledger_slot *process = gc_ledger_get_slot(ledger, slot);
    const uint64_t need = need_of(ledger, slot, device);
    return need > 0 && gc_ledger_load_half(&process->turn.is_stuck) == 0 &&
           gc_turn_is_alive(process, now_ns) && could_fit(ledger, slot, device, need, limit);
}

bool gc_turn_has_earlier(const struct gc_ledger *ledger, uint64_t group_key, uint32_t device,
                         uint64_t limit)
{
    const uint32_t high = gc_ledger_slot_high(ledger);
    const struct place own = place_of(ledger, ledger->own, device);
    const uint64_t now_ns = gc_clock_ns();
    for (uint32_t i = 0; i < high; i++)
        if (i != ledger->own && is_of_group(ledger, i, group_key) &&
            is_earlier(place_of(ledger, i, device), own) &&
            has_ticket(ledger, i, device, limit, now_ns))
            return true;
    return false;
}

/* The process with the earliest ticket that needs memory of the device row. */
static struct place find_head(const struct gc_ledger *ledger, uint64_t group_key, uint32_t device,
                              uint64_t limit)
{
    const uint32_t high = gc_ledger_slot_high(ledger);
    const uint64_t now_ns = gc_clock_ns();
    struct place head = {.number = 0};
    for (uint32_t i = 0; i < high; i++) {
        if (!is_of_group(ledger, i, group_key))
            continue;
        const struct place place = place_of(ledger, i, device);
        if (is_earlier(place, head) && has_ticket(ledger, i, device, limit, now_ns))
            head = place;
    }
    return head;
}

bool gc_turn_head_returns(const struct gc_ledger *ledger, uint64_t group_key, uint32_t device,
                          uint64_t limit)
{
    const struct place head = find_head(ledger, group_key, device, limit);
    return head.number != 0 &&
           gc_ledger_load_half(&gc_ledger_get_slot(ledger, head.slot)->turn.state) ==
               GC_TURN_WAITING;
}

bool gc_turn_must_yield(const struct gc_ledger *ledger, uint64_t group_key, uint32_t device,
                        uint64_t limit)
{
    const struct place head = find_head(ledger, group_key, device, limit);
    return head.number != 0 && head.is_guaranteed && head.slot != ledger->own &&
           !gc_turn_is_guaranteed(ledger, ledger->own, device);
}

static uint64_t most_of(const struct gc_ledger *ledger, uint32_t slot, uint32_t device)
{
    const struct gc_ledger_slot *process = gc_ledger_get_slot(ledger, slot);
    if ((gc_ledger_load(&process->device_mask) >> device & 1) == 0)
        return UINT64_MAX;
    return gc_max_u64(gc_ledger_load(&process->figures[device].words[GC_LEDGER_FIGURE_peak]),
                      held_by(ledger, slot, device));
}

uint64_t gc_turn_largest_other(const struct gc_ledger *ledger, uint64_t group_key, uint32_t device,
                               uint64_t limit)
{
    const uint32_t high = gc_ledger_slot_high(ledger);
    uint64_t largest = 0;
    for (uint32_t i = 0; i < high; i++) {
        uint64_t sum;
        if (i == ledger->own || !is_of_group(ledger, i, group_key))
            continue;
        if (!gc_add_u64(held_by(ledger, i, device),
                        gc_ledger_load(&gc_ledger_get_slot(ledger, i)->turn.away[device]), &sum) ||
            sum > limit)
            sum = 0; /* of tenants, which come back one after the other */
        largest = gc_max_u64(largest, gc_min_u64(sum, most_of(ledger, i, device)));
    }
    return largest;
}

/* ---- candidates ---- */

uint64_t gc_turn_idle_since(const struct gc_ledger_turn_row *turn, uint64_t now_ns)
{
    const uint64_t idle_ns = gc_ledger_load(&turn->idle_ns);
    const uint64_t gap_ns =
        gc_ledger_load_half(&turn->state) == GC_TURN_AWAY ? 0 : gc_ledger_load(&turn->gap_ns);
    return idle_ns != 0 && now_ns >= idle_ns + gap_ns ? idle_ns : 0;
}

bool gc_turn_is_protected(const struct gc_ledger *ledger, uint32_t slot, uint32_t device,
                          uint64_t now_ns)
{
    const uint64_t idle_ns = gc_turn_idle_since(&gc_ledger_get_slot(ledger, slot)->turn, now_ns);
    return gc_turn_is_guaranteed(ledger, slot, device) &&
           (idle_ns == 0 || now_ns < idle_ns + GC_TURN_PROTECTED_NS);
}

static enum gc_turn_obstacle obstacle_of(const struct gc_ledger *ledger, uint32_t number,
                                         uint32_t device, uint64_t now_ns)
{
    const struct gc_ledger_slot *slot = gc_ledger_get_slot(ledger, number);
    if (held_by(ledger, number, device) == 0)
        return GC_TURN_HOLDS_NOTHING;
    if (gc_ledger_load_half(&slot->turn.state) == GC_TURN_NONE)
        return GC_TURN_NO_PART;
    if (!gc_turn_is_alive(slot, now_ns))
        return GC_TURN_STOPPED;
    if (gc_ledger_load_half(&slot->turn.is_pinned) != 0 &&
        gc_ledger_load_half(&slot->turn.state) == GC_TURN_IN)
        return GC_TURN_PINNED; /* away, it keeps its memory once all of it is back */
    if (now_ns < gc_ledger_load(&slot->turn.not_before_ns))
        return GC_TURN_REFUSED;
    if (gc_turn_is_protected(ledger, number, device, now_ns))
        return GC_TURN_GUARANTEED;
    return GC_TURN_MAY_GIVE;
}

enum gc_turn_obstacle gc_turn_rate(const struct gc_ledger *ledger, uint32_t number, uint32_t device,
                                   uint64_t now_ns, struct gc_turn_rank *rank)
{
    const struct gc_ledger_turn_row *turn = &gc_ledger_get_slot(ledger, number)->turn;
    const uint64_t priority = gc_ledger_load_half(&turn->priority);
    const enum gc_turn_obstacle obstacle = obstacle_of(ledger, number, device, now_ns);
    const uint64_t idle_ns = gc_turn_idle_since(turn, now_ns);
    if (obstacle != GC_TURN_MAY_GIVE)
        return obstacle;
    if (gc_ledger_load_half(&turn->state) == GC_TURN_WAITING) {
        const struct place place = place_of(ledger, number, device);
        *rank = (struct gc_turn_rank){{1, UINT64_MAX - place.number, number}};
        return gc_ledger_load_half(&turn->is_stuck) == 0 &&
                       is_earlier(place, place_of(ledger, ledger->own, device))
                   ? GC_TURN_EARLIER
                   : GC_TURN_MAY_GIVE;
    }
    if (idle_ns != 0) {
        const uint64_t class = gc_turn_is_guaranteed(ledger, number, device) ? 3 : 0;
        *rank = (struct gc_turn_rank){{class, idle_ns / IDLE_STEP_NS, priority}};
        return GC_TURN_MAY_GIVE;
    }
    const uint64_t begin_ns = gc_ledger_load(&turn->begin_ns);
    *rank = (struct gc_turn_rank){{2, priority, begin_ns}};
    const bool is_over = now_ns >= begin_ns + gc_ledger_load(&turn->quantum_ns) ||
                         place_of(ledger, ledger->own, device).is_guaranteed;
    return is_over ? GC_TURN_MAY_GIVE : GC_TURN_IN_QUANTUM;
}

bool gc_turn_is_before(const struct gc_turn_rank *a, const struct gc_turn_rank *b)
{
    for (unsigned i = 0; i < 3; i++)
        if (a->words[i] != b->words[i])
            return a->words[i] < b->words[i];
    return false;
}

/* Whether the obstacle goes away by itself. */
static bool may_pass(const struct gc_ledger_slot *slot, enum gc_turn_obstacle obstacle)
{
    return obstacle == GC_TURN_IN_QUANTUM || obstacle == GC_TURN_EARLIER ||
           obstacle == GC_TURN_GUARANTEED ||
           (obstacle == GC_TURN_REFUSED && gc_ledger_load_half(&slot->turn.is_passing) != 0);
}

uint32_t gc_turn_choose(const struct gc_ledger *ledger, const struct gc_turn_need *need,
                        uint64_t now_ns, const uint64_t *skip_ns, bool *has_hope)
{
    const uint32_t high = gc_ledger_slot_high(ledger);
    struct gc_turn_rank best;
    uint32_t chosen = GC_LEDGER_NONE;
    uint64_t stuck_bytes = 0; /* what others hold that cannot go */
    for (uint32_t i = 0; i < high; i++) {
        struct gc_turn_rank rank;
        if (i == ledger->own || !is_of_group(ledger, i, need->group_key))
            continue;
        const enum gc_turn_obstacle obstacle = gc_turn_rate(ledger, i, need->device, now_ns, &rank);
        if (obstacle != GC_TURN_MAY_GIVE && !may_pass(gc_ledger_get_slot(ledger, i), obstacle) &&
            !gc_add_u64(stuck_bytes, held_by(ledger, i, need->device), &stuck_bytes))
            stuck_bytes = UINT64_MAX;
        if (obstacle != GC_TURN_MAY_GIVE || (skip_ns != NULL && now_ns < skip_ns[i]))
            continue;
        if (chosen == GC_LEDGER_NONE || gc_turn_is_before(&rank, &best)) {
            chosen = i;
            best = rank;
        }
    }
    uint64_t sum;
    *has_hope = gc_add_u64(need->bytes, stuck_bytes, &sum) &&
                could_fit(ledger, ledger->own, need->device, sum, need->limit);
    return *has_hope ? chosen : GC_LEDGER_NONE;
}
