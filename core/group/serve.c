/* Requests from outside: see member.h. */
#define _GNU_SOURCE
#include "core/base/assert.h"
#include "core/base/bits.h"
#include "core/device/publish.h"
#include "core/device/registry.h"
#include "core/device/tenant.h"
#include "core/device/wait.h"
#include "core/group/group.h"
#include "core/io/text.h"
#include "core/reclaim/limit.h"
#include "core/reclaim/reclaim.h"
#include "core/reclaim/release.h"
#include "core/reclaim/tcache.h"

#include <stdio.h>
#include <time.h>

#define BIT(ask) (UINT32_C(1) << (ask))
#define HELPER_ASKS (~BIT(GC_ASK_LIMIT)) /* what threads of the program leave to the helper */
#define PAUSE_NS 1000000                 /* while another thread serves */
#define CHECK_EVERY 64                   /* calls; a system call each time */
#define END_PAUSES 100                   /* so often at most when the process ends */
#define ROUNDS_MAX 16                    /* of a thread of the program */

static struct gc_ledger_slot *own_slot(const struct gc_member *member)
{
    return gc_ledger_slot(&member->ledger, member->ledger.own);
}

static void answer(struct gc_member *member, enum gc_ledger_ask ask, enum gc_ledger_result result,
                   const char *text)
{
    gc_ledger_answer(&member->ledger, ask, result, text);
}

static void answer_given(struct gc_member *member, enum gc_ledger_ask ask, uint64_t bytes)
{
    char text[GC_LEDGER_ANSWER_BYTES];
    char size[GC_TEXT_SIZE_BYTES];
    snprintf(text, sizeof(text), "%s given back", gc_text_size(bytes, size));
    answer(member, ask, GC_ANSWER_DONE, text);
}

/* The thread that answers has its own work to do; who asked asks again. */
#define SERVE_NS UINT64_C(250000000)

/* ---- each kind ---- */

static void serve_trim(struct gc_member *member)
{
    struct gc_core *core = member->core;
    uint64_t given = 0;
    for (int i = 0; i < GC_DEVICE_MAX; i++) {
        struct gc_device *device = gc_core_find_device(core, i);
        if (device != NULL)
            given += gc_core_empty(core, device);
    }
    answer_given(member, GC_ASK_TRIM, given);
}

static uint64_t give_room(struct gc_device *device, uint64_t wanted)
{
    if (wanted == 0)
        return 0;
    gc_magazine_flush_device(device, NULL);
    uint64_t given = gc_shortage_give_back(device, NULL, 0, wanted);
    if (given < wanted && gc_shortage_resolve(device, NULL, SERVE_NS))
        given += gc_shortage_give_back(device, NULL, 0, wanted - given);
    return given;
}

static void serve_room(struct gc_member *member)
{
    struct gc_ledger_slot *slot = own_slot(member);
    uint64_t given = 0;
    for (int i = 0; i < GC_DEVICE_MAX; i++) {
        struct gc_device *device = gc_core_find_device(member->core, i);
        if (device != NULL && device->ledger_row != GC_LEDGER_NONE)
            given += give_room(device, atomic_exchange_explicit(&slot->room[device->ledger_row], 0,
                                                                memory_order_relaxed));
    }
    answer_given(member, GC_ASK_ROOM, given);
}

static void keep_late_limits(struct gc_member *member, const struct gc_ledger_slot *slot,
                             uint64_t mask)
{
    for (uint32_t row = 0; row < GC_LEDGER_DEVICES; row++)
        if ((mask >> row & 1) != 0)
            atomic_store_explicit(&member->late_limits[row],
                                  atomic_load_explicit(&slot->limits[row], memory_order_relaxed),
                                  memory_order_relaxed);
    /* Release: pairs with the acquire in member.c's take_late_limit. */
    atomic_fetch_or_explicit(&member->late_mask, mask, memory_order_release);
}

/* No limit is UINT64_MAX, here as there; nothing at all is as good as a byte. */
static void serve_limit(struct gc_member *member)
{
    struct gc_ledger_slot *slot = own_slot(member);
    /* Acquire: pairs with the release of who asked. */
    uint64_t mask = atomic_exchange_explicit(&slot->limit_mask, 0, memory_order_acquire);
    uint64_t excess = 0;
    char text[GC_LEDGER_ANSWER_BYTES] = "the limit is in force";
    char size[GC_TEXT_SIZE_BYTES];
    for (int i = 0; i < GC_DEVICE_MAX; i++) {
        struct gc_device *device = gc_core_find_device(member->core, i);
        if (device == NULL || device->ledger_row == GC_LEDGER_NONE ||
            (mask >> device->ledger_row & 1) == 0)
            continue;
        mask &= ~(UINT64_C(1) << device->ledger_row);
        const uint64_t limit =
            atomic_load_explicit(&slot->limits[device->ledger_row], memory_order_relaxed);
        gc_core_set_limit(member->core, device, gc_max_u64(limit, 1));
        excess += gc_device_excess_bytes(device);
    }
    keep_late_limits(member, slot, mask);
    if (excess > 0)
        snprintf(text, sizeof(text), "the limit is in force; %s more than that are in use",
                 gc_text_size(excess, size));
    answer(member, GC_ASK_LIMIT, GC_ANSWER_DONE, text);
}

static void serve_handler(struct gc_member *member, enum gc_ledger_ask ask)
{
    /* Acquire: pairs with the release in gc_core_set_ask_function. */
    gc_ask_function *function =
        atomic_load_explicit(&member->handlers[ask].function, memory_order_acquire);
    char text[GC_LEDGER_ANSWER_BYTES] = "";
    char tenant[GC_LEDGER_NAME_BYTES];
    if (function == NULL) {
        answer(member, ask, GC_ANSWER_REFUSED, "this process cannot do that");
        return;
    }
    gc_ledger_get_text(tenant, sizeof(tenant), own_slot(member)->asked_tenant);
    const bool drop =
        atomic_load_explicit(&own_slot(member)->asked_drop, memory_order_relaxed) != 0;
    const enum gc_ledger_result result =
        function(member->handlers[ask].argument, ask, tenant, drop, text);
    answer(member, ask, result, text);
}

static void write_tenant(void *argument, struct gc_tenant *tenant)
{
    (void)argument;
    gc_member_write_tenant(tenant);
}

/* Figures; and where the group's limit may have been changed, what it takes to keep it. */
static void settle_all(struct gc_member *member, bool may_be_over)
{
    struct gc_core *core = member->core;
    const uint64_t now_ns = gc_core_now_ns(core);
    for (int i = 0; i < GC_DEVICE_MAX; i++) {
        struct gc_device *device = gc_core_find_device(core, i);
        if (device == NULL)
            continue;
        if (may_be_over) {
            if (device->budget.account != NULL)
                atomic_store_explicit(&device->is_group_over, true, memory_order_relaxed);
            gc_magazine_flush_device(device, NULL);
            (void)gc_device_settle(device);
        }
        gc_member_write(device, now_ns);
    }
    gc_core_visit_tenants(core, write_tenant, NULL);
}

/* ---- one at a time ---- */

static void serve_once(struct gc_member *member, uint32_t mine)
{
    struct gc_ledger_slot *slot = own_slot(member);
    /* Acquire: pairs with the releases of who asks; the bits of every bump read here are there. */
    const uint32_t control = atomic_load_explicit(&slot->control, memory_order_acquire);
    const uint32_t all = atomic_fetch_and_explicit(&slot->asked, ~mine, memory_order_acquire);
    const uint32_t asked = all & mine;
    if ((asked & BIT(GC_ASK_LIMIT)) != 0)
        serve_limit(member);
    if ((asked & BIT(GC_ASK_ROOM)) != 0)
        serve_room(member);
    if ((asked & BIT(GC_ASK_TRIM)) != 0)
        serve_trim(member);
    if ((asked & BIT(GC_ASK_PAUSE)) != 0)
        serve_handler(member, GC_ASK_PAUSE);
    if ((asked & BIT(GC_ASK_RESUME)) != 0)
        serve_handler(member, GC_ASK_RESUME);
    settle_all(member, (all & (BIT(GC_ASK_LIMIT) | BIT(GC_ASK_REFRESH))) != 0);
    if ((asked & BIT(GC_ASK_REFRESH)) != 0)
        answer(member, GC_ASK_REFRESH, GC_ANSWER_DONE, "");
    atomic_store_explicit(&member->watch->seen, control, memory_order_relaxed);
    if (mine == UINT32_MAX)
        gc_ledger_served(&member->ledger, control);
}

/* False: another thread is at it. */
static bool serve(struct gc_member *member, uint32_t mine)
{
    GC_ASSERT(gc_lock_held_count() == 0);
    if (atomic_exchange_explicit(&member->is_serving, true, memory_order_acquire))
        return false;
    for (int i = 0; i < ROUNDS_MAX && gc_watch_is_asked(member->watch); i++)
        serve_once(member, mine);
    atomic_store_explicit(&member->is_serving, false, memory_order_release);
    return true;
}

/* Somebody removes the file, or at the user's last logout the system does (RemoveIPC). Members go
 * on with what they have open; those that come later make a new one. */
static void check_name(struct gc_member *member)
{
    if (gc_ledger_is_removed(&member->ledger))
        gc_log_once(member->core->log, &member->removal_said,
                    member->has_group ? GC_LOG_WARN : GC_LOG_INFO,
                    "%s was removed or replaced: programs that start from now on do not know of "
                    "this one, and its group's limit does not hold with them",
                    member->ledger.path);
}

/* A program may close descriptors that it does not know. The slot stays ours, but the dead could
 * not be told from the living. */
static void check_descriptor(struct gc_member *member)
{
    if (gc_ledger_is_intact(&member->ledger) ||
        atomic_exchange_explicit(&member->is_serving, true, memory_order_acquire))
        return;
    if (!gc_ledger_is_intact(&member->ledger) && !gc_ledger_repair(&member->ledger))
        gc_log_once(
            member->core->log, &member->loss_said, GC_LOG_WARN,
            "the program closed the descriptor of %s, which is not to be had again: what dead "
            "members held stays counted",
            member->ledger.path);
    atomic_store_explicit(&member->is_serving, false, memory_order_release);
}

bool gc_member_serve(struct gc_core *core)
{
    struct gc_member *member = core->member;
    if (member == NULL || !gc_watch_is_asked(member->watch))
        return false;
    return serve(member, gc_core_serves_in_threads(core) ? UINT32_MAX : ~HELPER_ASKS);
}

void gc_core_serve(struct gc_core *core)
{
    if (core->member == NULL)
        return;
    if (atomic_fetch_add_explicit(&core->member->checks, 1, memory_order_relaxed) % CHECK_EVERY ==
        0) {
        check_descriptor(core->member);
        check_name(core->member);
    }
    if (gc_member_serve(core) && gc_core_serves_in_threads(core))
        gc_core_await_resume(core);
}

void gc_core_set_ask_function(struct gc_core *core, enum gc_ledger_ask ask,
                              gc_ask_function *function, void *argument)
{
    if (core->member == NULL)
        return;
    core->member->handlers[ask].argument = argument;
    atomic_store_explicit(&core->member->handlers[ask].function, function, memory_order_release);
}

/* ---- the helper ---- */

bool gc_core_wants_helper(const struct gc_core *core)
{
    return core->member != NULL && core->member->has_group;
}

static void sleep_ns(long ns)
{
    const struct timespec pause = {0, ns};
    nanosleep(&pause, NULL);
}

void gc_core_help(struct gc_core *core)
{
    struct gc_member *member = core->member;
    struct gc_ledger_slot *slot = own_slot(member);
    uint32_t served = atomic_load_explicit(&slot->served, memory_order_relaxed);
    atomic_store_explicit(&core->serves_in_threads, false, memory_order_relaxed);
    atomic_fetch_or_explicit(&slot->flags, GC_LEDGER_HAS_HELPER, memory_order_relaxed);
    while (!atomic_load_explicit(&member->is_leaving, memory_order_acquire)) {
        const uint32_t control = atomic_load_explicit(&slot->control, memory_order_acquire);
        if (control == served) {
            gc_ledger_await_request(&member->ledger, control);
            continue;
        }
        if (atomic_exchange_explicit(&member->is_serving, true, memory_order_acquire)) {
            sleep_ns(PAUSE_NS);
            continue;
        }
        if (!atomic_load_explicit(&member->is_leaving, memory_order_acquire))
            serve_once(member, UINT32_MAX);
        served = atomic_load_explicit(&slot->served, memory_order_relaxed);
        atomic_store_explicit(&member->is_serving, false, memory_order_release);
    }
}

/* Whoever is in the middle of it keeps `is_serving`, which is not given back after that. */
void gc_core_end_help(struct gc_core *core)
{
    struct gc_member *member = core->member;
    if (member == NULL)
        return;
    atomic_store_explicit(&member->is_leaving, true, memory_order_release);
    for (int i = 0;
         i < END_PAUSES && atomic_load_explicit(&member->is_serving, memory_order_acquire); i++)
        sleep_ns(PAUSE_NS);
}
