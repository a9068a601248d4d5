/* Asks other processes of the group for memory: one at a time, the next when the one before has
 * given, cannot, or makes no progress. */
#include "core/backing/host.h"
#include "core/base/bits.h"
#include "core/base/clock.h"
#include "core/io/text.h"
#include "core/pause/swap.h"
#include "core/turns/state.h"

#include <stdio.h>

/* A process that is asked and releases nothing for so long is left alone for as long. */
#define PATIENCE_NS (3 * GC_NS_PER_S)
#define VAIN_NS (GC_NS_PER_S / 2) /* nobody could give for so long: hopeless */
#define LOG_AGAIN_NS (60 * GC_NS_PER_S)
#define ROOM_AGAIN_NS (20 * GC_NS_PER_MS)
#define WAKE_AGAIN_NS (10 * GC_NS_PER_MS)
/* The next attempt after a refusal: of what passes soon, of work that did not end in time, and of
 * what lasts. */
#define AGAIN_SOON_NS (100 * GC_NS_PER_MS)
#define AGAIN_BUSY_NS GC_NS_PER_S
#define AGAIN_LATE_NS (5 * GC_NS_PER_S)
#define ROOM_WAIT_NS (5 * GC_NS_PER_MS) /* idle memory may come */

bool gc_turns_is_first(const struct gc_turns *turns, struct gc_device *device)
{
    struct gc_account *account = device->budget.account;
    return !gc_turn_has_earlier(&turns->client->ledger, account->group_key, gc_account_row(account),
                                gc_account_limit(account));
}

void gc_turns_wake_waiting(const struct gc_turns *turns)
{
    const struct gc_ledger *ledger = &turns->client->ledger;
    const uint64_t key = gc_ledger_load(&ledger->file->group_keys[ledger->own]);
    const uint32_t high = gc_ledger_slot_high(ledger);
    for (uint32_t i = 0; i < high; i++)
        if (i != ledger->own && gc_ledger_load(&ledger->file->group_keys[i]) == key &&
            gc_ledger_load(&gc_ledger_get_slot(ledger, i)->turn.ticket) != 0)
            gc_ledger_wake(ledger, i);
}

/* ---- why not ---- */

bool gc_turns_is_passing(enum gc_swap_refusal refusal)
{
    return refusal == GC_SWAP_BUSY || refusal == GC_SWAP_CAPTURES || refusal == GC_SWAP_AGAIN;
}

static const char *text_of(const struct gc_turns *turns, uint32_t slot,
                           enum gc_turn_obstacle obstacle)
{
    const struct gc_ledger_turn_row *row = &gc_ledger_get_slot(&turns->client->ledger, slot)->turn;
    switch (obstacle) {
    case GC_TURN_NO_PART:
        return "it does not overcommit";
    case GC_TURN_STOPPED:
        return "it is stopped";
    case GC_TURN_PINNED:
        return "it is pinned";
    case GC_TURN_REFUSED:
        return gc_swap_refusal_text((enum gc_swap_refusal)gc_ledger_load_half(&row->refusal));
    case GC_TURN_GUARANTEED:
        return "it is within its guarantee";
    case GC_TURN_EARLIER:
        return "it waits, too";
    case GC_TURN_IN_QUANTUM:
        return "its turn is not over";
    case GC_TURN_MAY_GIVE:
    case GC_TURN_HOLDS_NOTHING:
        break;
    }
    return "it gives nothing";
}

#define HOLDERS_BYTES 512

/* Who holds what, and why it cannot go; cut to size. */
static void list_holders(const struct gc_turns *turns, const struct gc_account *account, char *text)
{
    const struct gc_ledger *ledger = &turns->client->ledger;
    const uint32_t high = gc_ledger_slot_high(ledger);
    size_t used = 0;
    text[0] = '\0';
    for (uint32_t i = 0; i < high && used < HOLDERS_BYTES; i++) {
        struct gc_turn_rank ignored;
        char name[GC_LEDGER_NAME_BYTES];
        char size[GC_TEXT_SIZE_BYTES];
        const struct gc_ledger_slot *slot = gc_ledger_get_slot(ledger, i);
        if (!gc_account_is_other(account, i) || gc_account_of(account, i) == 0)
            continue;
        const enum gc_turn_obstacle obstacle =
            gc_turn_rate(ledger, i, gc_account_row(account), gc_clock_ns(), &ignored);
        gc_ledger_get_text(name, sizeof(name), slot->tenant);
        const int n =
            snprintf(text + used, HOLDERS_BYTES - used, "%s%s (pid %u) holds %s: %s",
                     used > 0 ? "; " : "", name, gc_ledger_load_half(&slot->pid),
                     gc_text_size(gc_account_of(account, i), size), text_of(turns, i, obstacle));
        used += n > 0 ? (size_t)n : 0;
    }
}

void gc_turns_log_vain(struct gc_turns *turns, struct gc_device *device, uint64_t need)
{
    struct gc_turns_asking *asking = &turns->asking[gc_account_row(device->budget.account)];
    const uint64_t now_ns = gc_clock_ns();
    char holders[HOLDERS_BYTES];
    char size[GC_TEXT_SIZE_BYTES];
    if (asking->logged_ns != 0 && now_ns < asking->logged_ns + LOG_AGAIN_NS)
        return;
    asking->logged_ns = now_ns;
    list_holders(turns, device->budget.account, holders);
    gc_log_write(turns->core->log, GC_LOG_WARN,
                 "device %d: no process of the group can give up %s: %s", device->info.ordinal,
                 gc_text_size(gc_turns_lacking(device, need), size),
                 holders[0] != '\0' ? holders : "none holds any");
}

/* ---- idle cached memory ---- */

/* True: some process has idle memory and was just asked for it. */
static bool await_idle(struct gc_device *device, struct gc_turns_asking *asking, uint64_t lacking,
                       uint64_t now_ns)
{
    if (now_ns >= asking->room_ns + ROOM_AGAIN_NS) {
        asking->room_ns = now_ns;
        return gc_borrow_request(device, lacking) > 0;
    }
    return now_ns < asking->room_ns + ROOM_WAIT_NS && gc_borrow_idle(device) > 0;
}

/* ---- pages ---- */

/* Whether the process that was asked is about to give. */
static bool is_giving(const struct gc_turns *turns, const struct gc_account *account,
                      struct gc_turns_asking *asking, uint64_t now_ns)
{
    if (asking->slot == GC_LEDGER_NONE)
        return false;
    const struct gc_ledger_slot *slot = gc_ledger_get_slot(&turns->client->ledger, asking->slot);
    const uint64_t held = gc_account_of(account, asking->slot);
    if (held < asking->held) {
        asking->held = held;
        asking->progress_ns = now_ns;
    }
    return held > 0 && gc_turn_is_alive(slot, now_ns) &&
           (gc_ledger_load(&slot->turn.give[gc_account_row(account)]) != 0 ||
            gc_ledger_load_half(&slot->turn.state) == GC_TURN_LEAVING);
}

/* What busy processes publish of their work may be old: they look again. */
static void wake_busy(const struct gc_turns *turns, const struct gc_account *account,
                      struct gc_turns_asking *asking, uint64_t now_ns)
{
    const struct gc_ledger *ledger = &turns->client->ledger;
    const uint32_t high = gc_ledger_slot_high(ledger);
    if (now_ns < asking->woken_ns + WAKE_AGAIN_NS)
        return;
    asking->woken_ns = now_ns;
    for (uint32_t i = 0; i < high; i++)
        if (gc_account_is_other(account, i) &&
            gc_ledger_load_half(&gc_ledger_get_slot(ledger, i)->turn.state) == GC_TURN_IN)
            gc_ledger_wake(ledger, i);
}

static void send(const struct gc_turns *turns, const struct gc_account *account,
                 struct gc_turns_asking *asking, uint64_t bytes, uint64_t now_ns)
{
    const struct gc_ledger *ledger = &turns->client->ledger;
    const struct gc_ledger_request request = {
        .kind = GC_REQUEST_GIVE, .device = gc_account_row(account), .bytes = bytes};
    struct gc_ledger_ticket ignored;
    asking->held = gc_account_of(account, asking->slot);
    asking->progress_ns = now_ns;
    if (!gc_ledger_send_request(
            ledger, asking->slot,
            gc_ledger_load_half(&gc_ledger_get_slot(ledger, asking->slot)->generation), &request,
            &ignored))
        asking->slot = GC_LEDGER_NONE;
}

uint64_t gc_turns_lacking(struct gc_device *device, uint64_t need)
{
    struct gc_account *account = device->budget.account;
    uint64_t sum;
    if (!gc_add_u64(gc_account_held(account), need, &sum))
        return need;
    return gc_sub_or_zero_u64(sum, gc_account_limit(account));
}

bool gc_turns_ask(struct gc_turns *turns, struct gc_device *device, uint64_t need)
{
    struct gc_account *account = device->budget.account;
    struct gc_turns_asking *asking = &turns->asking[gc_account_row(account)];
    const uint64_t now_ns = gc_clock_ns();
    bool has_dying;
    bool is_hopeful;
    const uint64_t lacking = gc_turns_lacking(device, need);
    if (lacking == 0) {
        asking->vain_ns = 0;
        return true;
    }
    (void)gc_account_reap(account->ledger, gc_account_row(account), account->group_key, &has_dying);
    if (await_idle(device, asking, lacking, now_ns))
        return true;
    if (is_giving(turns, account, asking, now_ns)) {
        if (now_ns < asking->progress_ns + PATIENCE_NS)
            return true;
        turns->skip_ns[asking->slot] = now_ns + PATIENCE_NS;
    }
    const struct gc_turn_need needed = {account->group_key, gc_account_row(account), need,
                                        gc_account_limit(account)};
    asking->slot = gc_turn_choose(account->ledger, &needed, now_ns, turns->skip_ns, &is_hopeful);
    if (asking->slot != GC_LEDGER_NONE)
        send(turns, account, asking, lacking, now_ns);
    else
        wake_busy(turns, account, asking, now_ns);
    if (is_hopeful || has_dying) {
        asking->vain_ns = 0;
        return true;
    }
    if (asking->vain_ns == 0)
        asking->vain_ns = now_ns;
    const uint64_t wait_ns = turns->core->options->wait_ms * GC_NS_PER_MS;
    return now_ns < asking->vain_ns + gc_max_u64(VAIN_NS, wait_ns);
}

/* ---- host memory ---- */

/* A trim gives up all that holds no content of memory that is out. What others have may be content,
 * so they are asked rarely. */
static bool ask_host(struct gc_turns *turns)
{
    const uint64_t now_ns = gc_clock_ns();
    const bool is_late =
        turns->host_asked_ns == 0 || now_ns >= turns->host_asked_ns + AGAIN_LATE_NS;
    const struct gc_ledger *ledger = &turns->client->ledger;
    const uint64_t key = gc_ledger_load(&ledger->file->group_keys[ledger->own]);
    const uint32_t high = gc_ledger_slot_high(ledger);
    const struct gc_ledger_request request = {.kind = GC_REQUEST_TRIM};
    bool is_any = false;
    for (uint32_t i = 0; is_late && i < high; i++) {
        const struct gc_ledger_slot *slot = gc_ledger_get_slot(ledger, i);
        struct gc_ledger_ticket ignored;
        if (i != ledger->own && gc_ledger_load(&ledger->file->group_keys[i]) == key &&
            gc_ledger_load_half(&slot->turn.state) == GC_TURN_IN &&
            gc_account_of(&turns->core->host_budget.account, i) > 0)
            is_any |= gc_ledger_send_request(ledger, i, gc_ledger_load_half(&slot->generation),
                                             &request, &ignored);
    }
    if (is_any)
        turns->host_asked_ns = now_ns;
    else
        gc_host_log_full(turns->core);
    return is_any;
}

uint64_t gc_turns_again_ns(struct gc_turns *turns, enum gc_swap_refusal refusal)
{
    if (refusal == GC_SWAP_BUSY)
        return AGAIN_BUSY_NS;
    return gc_turns_is_passing(refusal) || (refusal == GC_SWAP_HOST && ask_host(turns))
               ? AGAIN_SOON_NS
               : AGAIN_LATE_NS;
}
