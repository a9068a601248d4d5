/* Requests between processes: the arguments are written first, then the bit, then the control word
 * is incremented and its futex woken. A requester that dies in between leaves a bit that is seen at
 * the next increment. */
#define _GNU_SOURCE
#include "core/ledger/ledger.h"

#include "core/base/bits.h"
#include "core/base/clock.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define POLL_MS 50 /* between two checks whether the process is alive */

/* Not private: the word is in a mapped file. */
static void futex_wake(gc_ledger_half *word)
{
    const int saved_errno = errno;
    syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
    errno = saved_errno;
}

static void futex_wait(gc_ledger_half *word, uint32_t value, uint32_t timeout_ms)
{
    const struct timespec most = {timeout_ms / 1000, (long)(timeout_ms % 1000) * 1000000};
    const int saved_errno = errno;
    syscall(SYS_futex, word, FUTEX_WAIT, value, timeout_ms != UINT32_MAX ? &most : NULL, NULL, 0);
    errno = saved_errno;
}

static void store_limit(struct gc_ledger_slot *slot, const struct gc_ledger_request *request)
{
    uint64_t mask = 0;
    for (uint32_t i = 0; i < GC_LEDGER_DEVICES; i++) {
        if (request->device != GC_LEDGER_NONE && request->device != i)
            continue;
        atomic_store_explicit(&slot->limits[i], request->bytes, memory_order_relaxed);
        mask |= UINT64_C(1) << i;
    }
    atomic_fetch_or_explicit(&slot->limit_mask, mask, memory_order_release);
}

static void raise_to(gc_ledger_word *words, const struct gc_ledger_request *request)
{
    if (request->device >= GC_LEDGER_DEVICES)
        return;
    gc_ledger_word *room = &words[request->device];
    uint64_t now = atomic_load_explicit(room, memory_order_relaxed);
    while (now < request->bytes &&
           !atomic_compare_exchange_weak_explicit(room, &now, request->bytes, memory_order_relaxed,
                                                  memory_order_relaxed))
        ;
}

bool gc_ledger_send_request(const struct gc_ledger *ledger, uint32_t number, uint32_t generation,
                            const struct gc_ledger_request *request,
                            struct gc_ledger_ticket *ticket)
{
    struct gc_ledger_slot *slot = gc_ledger_get_slot(ledger, number);
    if (number >= gc_ledger_slot_high(ledger) || (unsigned)request->kind >= GC_REQUEST_COUNT ||
        !gc_ledger_is_held(ledger, number) ||
        atomic_load_explicit(&slot->generation, memory_order_relaxed) != generation)
        return false;
    if (request->kind == GC_REQUEST_LIMIT)
        store_limit(slot, request);
    if (request->kind == GC_REQUEST_ROOM)
        raise_to(slot->room, request);
    if (request->kind == GC_REQUEST_GIVE)
        raise_to(slot->turn.give, request);
    if (request->kind == GC_REQUEST_PAUSE || request->kind == GC_REQUEST_RESUME)
        gc_ledger_set_text(slot->request_tenant, sizeof(slot->request_tenant),
                           request->tenant != NULL ? request->tenant : "");
    if (request->kind == GC_REQUEST_PAUSE)
        atomic_store_explicit(&slot->request_drop, request->drop, memory_order_relaxed);
    /* Release: pairs with the acquire of the serving thread, which then sees the arguments. */
    atomic_fetch_or_explicit(&slot->requests, UINT32_C(1) << request->kind, memory_order_release);
    const uint32_t bumped = atomic_fetch_add_explicit(&slot->control, 1, memory_order_release) + 1;
    futex_wake(&slot->control);
    *ticket = (struct gc_ledger_ticket){number, generation, bumped, request->kind};
    return true;
}

bool gc_ledger_pin(const struct gc_ledger *ledger, uint32_t number, uint32_t generation,
                   bool is_pinned)
{
    if (number >= gc_ledger_slot_high(ledger) || !gc_ledger_is_held(ledger, number))
        return false;
    struct gc_ledger_slot *slot = gc_ledger_get_slot(ledger, number);
    if (atomic_load_explicit(&slot->generation, memory_order_relaxed) != generation)
        return false;
    atomic_store_explicit(&slot->turn.is_pinned, is_pinned, memory_order_relaxed);
    return true;
}

static bool is_served(struct gc_ledger_slot *slot, uint32_t number)
{
    /* Acquire: pairs with the release in gc_ledger_set_served: the response is complete. */
    const uint32_t served = atomic_load_explicit(&slot->served, memory_order_acquire);
    return (int32_t)(served - number) >= 0;
}

static enum gc_ledger_result read_response(const struct gc_ledger_slot *slot,
                                           const struct gc_ledger_ticket *ticket,
                                           char text[GC_LEDGER_RESPONSE_BYTES])
{
    const struct gc_ledger_response_row *row = &slot->responses[ticket->kind];
    const uint32_t code = atomic_load_explicit(&row->code, memory_order_relaxed);
    if (text != NULL)
        gc_ledger_get_text(text, GC_LEDGER_RESPONSE_BYTES, row->text);
    return code == GC_RESPONSE_REFUSED ? GC_RESPONSE_REFUSED : GC_RESPONSE_DONE;
}

enum gc_ledger_result gc_ledger_wait_response(const struct gc_ledger *ledger,
                                              const struct gc_ledger_ticket *ticket,
                                              uint32_t timeout_ms,
                                              char text[GC_LEDGER_RESPONSE_BYTES])
{
    struct gc_ledger_slot *slot = gc_ledger_get_slot(ledger, ticket->slot);
    const int64_t end_ms = gc_clock_ms() + timeout_ms;
    if (text != NULL)
        text[0] = '\0';
    for (;;) {
        const uint32_t served = atomic_load_explicit(&slot->served, memory_order_acquire);
        if (!gc_ledger_is_held(ledger, ticket->slot) ||
            atomic_load_explicit(&slot->generation, memory_order_relaxed) != ticket->generation)
            return GC_RESPONSE_ENDED;
        if (is_served(slot, ticket->number))
            return read_response(slot, ticket, text);
        const int64_t now = gc_clock_ms();
        if (now >= end_ms)
            return GC_RESPONSE_NONE;
        futex_wait(&slot->served, served, (uint32_t)gc_min_u64((uint64_t)(end_ms - now), POLL_MS));
    }
}

/* ---- the serving process ---- */

void gc_ledger_wait_request(const struct gc_ledger *ledger, uint32_t seen, uint32_t timeout_ms)
{
    struct gc_ledger_slot *slot = gc_ledger_own_slot(ledger);
    futex_wait(&slot->control, seen, timeout_ms);
}

void gc_ledger_wake(const struct gc_ledger *ledger, uint32_t number)
{
    struct gc_ledger_slot *slot = gc_ledger_get_slot(ledger, number);
    atomic_fetch_add_explicit(&slot->control, 1, memory_order_release);
    futex_wake(&slot->control);
}

void gc_ledger_respond(const struct gc_ledger *ledger, enum gc_ledger_request_kind kind,
                       enum gc_ledger_result result, const char *text)
{
    struct gc_ledger_response_row *row = &gc_ledger_own_slot(ledger)->responses[kind];
    gc_ledger_set_text(row->text, sizeof(row->text), text);
    atomic_store_explicit(&row->code, (uint32_t)result, memory_order_relaxed);
}

void gc_ledger_set_served(const struct gc_ledger *ledger, uint32_t control)
{
    struct gc_ledger_slot *slot = gc_ledger_own_slot(ledger);
    /* Release: pairs with the acquire in gc_ledger_wait_response. */
    atomic_store_explicit(&slot->served, control, memory_order_release);
    futex_wake(&slot->served);
}

/* ---- the limit of a group ---- */

/* A process that starts to use one of the devices later finds the limit already applied. */
static void wake_clients(const struct gc_ledger *ledger, uint64_t key, uint64_t device_mask)
{
    const struct gc_ledger_request request = {.kind = GC_REQUEST_REFRESH};
    const uint32_t high = gc_ledger_slot_high(ledger);
    for (uint32_t i = 0; i < high; i++) {
        struct gc_ledger_slot *slot = gc_ledger_get_slot(ledger, i);
        struct gc_ledger_ticket ticket;
        if (gc_ledger_load(&ledger->file->group_keys[i]) != key || !gc_ledger_is_held(ledger, i))
            continue;
        atomic_fetch_or_explicit(&slot->agreed_mask, device_mask, memory_order_seq_cst);
        (void)gc_ledger_send_request(ledger, i, gc_ledger_load_half(&slot->generation), &request,
                                     &ticket);
    }
}

bool gc_ledger_limit_group(const struct gc_ledger *ledger, const char *name, uint32_t device,
                           uint64_t bytes)
{
    const uint32_t row = gc_ledger_find_group(ledger, name);
    if (row == GC_LEDGER_NONE || (device >= GC_LEDGER_DEVICES && device != GC_LEDGER_NONE))
        return false;
    const uint64_t mask = device == GC_LEDGER_NONE ? UINT64_MAX : UINT64_C(1) << device;
    /* A limit of 0 is stored as 1: 0 means none. */
    for (uint32_t i = 0; i < GC_LEDGER_DEVICES; i++)
        if ((mask >> i & 1) != 0)
            atomic_store_explicit(&ledger->file->groups[row].limits[i], gc_max_u64(bytes, 1),
                                  memory_order_seq_cst);
    wake_clients(ledger, gc_ledger_load(&ledger->file->groups[row].key), mask);
    return true;
}
