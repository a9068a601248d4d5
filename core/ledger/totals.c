/* Counters that outlive their process. They stay in the slot of a process that ended, until the
 * next owner of the slot folds them into the totals of their group: so a process that is killed
 * loses none that it had published. A reader adds the totals and all slots; a fold that happens
 * meanwhile makes it read again. */
#include "core/ledger/ledger.h"

#include "core/base/bits.h"
#include "core/base/clock.h"

#include <sched.h>
#include <string.h>

#define READ_NS_MAX (20 * GC_NS_PER_MS) /* another user may feign a fold for ever */
#define FOLD_NS_MAX GC_NS_PER_S /* a process that was killed in a fold leaves it open for ever */

/* ---- folding ---- */

static const enum gc_ledger_figure figure_of[] = {
#define GC_LEDGER_FIGURE(field)
#define GC_LEDGER_COUNTER(field) [GC_LEDGER_COUNTER_##field] = GC_LEDGER_FIGURE_##field,
#include "core/ledger/figures.def"
#undef GC_LEDGER_FIGURE
};

/* The totals' row of a slot's group, by its key. A group that has lost its row counts as none. */
static uint32_t totals_row(const struct gc_ledger *ledger, uint64_t group_key)
{
    for (uint32_t i = 0; group_key != 0 && i < GC_LEDGER_GROUPS; i++)
        if (gc_ledger_load(&ledger->file->groups[i].key) == group_key)
            return i;
    return GC_LEDGER_GROUPS;
}

static void move_word(gc_ledger_word *from, gc_ledger_word *to)
{
    const uint64_t value = atomic_exchange_explicit(from, 0, memory_order_relaxed);
    if (value != 0)
        atomic_fetch_add_explicit(to, value, memory_order_relaxed);
}

void gc_ledger_fold(const struct gc_ledger *ledger, uint32_t number)
{
    struct gc_ledger_file *file = ledger->file;
    struct gc_ledger_slot *slot = gc_ledger_get_slot(ledger, number);
    const uint64_t devices = gc_ledger_load(&slot->device_mask);
    const uint32_t group = totals_row(ledger, gc_ledger_load(&file->group_keys[number]));
    struct gc_ledger_turn_total_row *turns = &file->turn_totals[group];
    atomic_store_explicit(&file->fold_ns, gc_clock_ns(), memory_order_relaxed);
    atomic_fetch_add_explicit(&file->folds_begun, 1, memory_order_seq_cst);
    for (uint32_t i = 0; i < GC_LEDGER_DEVICES; i++)
        for (uint32_t k = 0; (devices >> i & 1) != 0 && k < GC_LEDGER_COUNTER_COUNT; k++)
            move_word(&slot->figures[i].words[figure_of[k]], &file->totals[group][i].counters[k]);
    move_word(&slot->turn.exchange_count, &turns->exchange_count);
    move_word(&slot->turn.out_bytes, &turns->out_bytes);
    move_word(&slot->turn.in_bytes, &turns->in_bytes);
    move_word(&slot->turn.waited_ns, &turns->waited_ns);
    atomic_fetch_add_explicit(&file->folds_ended, 1, memory_order_seq_cst);
}

/* ---- reading ---- */

static void add_word(uint64_t *sum, const gc_ledger_word *word)
{
    if (!gc_add_u64(*sum, gc_ledger_load(word), sum))
        *sum = UINT64_MAX;
}

static void add_slot(const struct gc_ledger *ledger, uint32_t number,
                     struct gc_ledger_totals totals[GC_LEDGER_DEVICES],
                     struct gc_ledger_turn_totals *turns)
{
    const struct gc_ledger_slot *slot = gc_ledger_get_slot(ledger, number);
    const uint64_t devices = gc_ledger_load(&slot->device_mask);
    for (uint32_t i = 0; i < GC_LEDGER_DEVICES; i++) {
        if ((devices >> i & 1) == 0)
            continue;
#define GC_LEDGER_FIGURE(field)
#define GC_LEDGER_COUNTER(field)                                                                   \
    add_word(&totals[i].field, &slot->figures[i].words[GC_LEDGER_FIGURE_##field]);
#include "core/ledger/figures.def"
#undef GC_LEDGER_FIGURE
    }
    add_word(&turns->exchange_count, &slot->turn.exchange_count);
    add_word(&turns->out_bytes, &slot->turn.out_bytes);
    add_word(&turns->in_bytes, &slot->turn.in_bytes);
    add_word(&turns->waited_ns, &slot->turn.waited_ns);
}

static void read_once(const struct gc_ledger *ledger, uint32_t index,
                      struct gc_ledger_totals totals[GC_LEDGER_DEVICES],
                      struct gc_ledger_turn_totals *turns)
{
    const struct gc_ledger_file *file = ledger->file;
    const uint32_t high = gc_ledger_slot_high(ledger);
    const struct gc_ledger_turn_total_row *ended = &file->turn_totals[index];
    for (uint32_t i = 0; i < GC_LEDGER_DEVICES; i++) {
        const gc_ledger_word *counters = file->totals[index][i].counters;
        totals[i] = (struct gc_ledger_totals){
#define GC_LEDGER_FIGURE(field)
#define GC_LEDGER_COUNTER(field) .field = gc_ledger_load(&counters[GC_LEDGER_COUNTER_##field]),
#include "core/ledger/figures.def"
#undef GC_LEDGER_FIGURE
        };
    }
    *turns = (struct gc_ledger_turn_totals){
        .exchange_count = gc_ledger_load(&ended->exchange_count),
        .out_bytes = gc_ledger_load(&ended->out_bytes),
        .in_bytes = gc_ledger_load(&ended->in_bytes),
        .waited_ns = gc_ledger_load(&ended->waited_ns),
    };
    const uint64_t key = index < GC_LEDGER_GROUPS ? gc_ledger_load(&file->groups[index].key) : 0;
    for (uint32_t i = 0; i < high; i++) {
        const uint64_t slot_key = gc_ledger_load(&file->group_keys[i]);
        if (index < GC_LEDGER_GROUPS ? slot_key == key
                                     : totals_row(ledger, slot_key) == GC_LEDGER_GROUPS)
            add_slot(ledger, i, totals, turns);
    }
}

void gc_ledger_read_totals(const struct gc_ledger *ledger, uint32_t index,
                           struct gc_ledger_totals totals[GC_LEDGER_DEVICES],
                           struct gc_ledger_turn_totals *turns)
{
    const struct gc_ledger_file *file = ledger->file;
    const uint64_t end_ns = gc_clock_ns() + READ_NS_MAX;
    for (;;) {
        const uint32_t ended = atomic_load_explicit(&file->folds_ended, memory_order_seq_cst);
        const uint32_t begun = atomic_load_explicit(&file->folds_begun, memory_order_seq_cst);
        const uint64_t now_ns = gc_clock_ns();
        const bool is_old = now_ns - gc_ledger_load(&file->fold_ns) > FOLD_NS_MAX;
        read_once(ledger, index <= GC_LEDGER_GROUPS ? index : GC_LEDGER_GROUPS, totals, turns);
        atomic_thread_fence(memory_order_seq_cst);
        if (((begun == ended || is_old) &&
             begun == atomic_load_explicit(&file->folds_begun, memory_order_seq_cst)) ||
            now_ns >= end_ns)
            return;
        sched_yield();
    }
}
