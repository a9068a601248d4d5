/* Requests idle memory from other processes of the group (see group.h), those with most first. A
 * stopped process delays this by at most GPUCACHE_WAIT or, once a second, IDLE_WAIT_NS if it has
 * idle memory; a dying one by DYING_WAIT_NS if longer. */
#define _GNU_SOURCE
#include "core/base/assert.h"
#include "core/base/bits.h"
#include "core/base/clock.h"
#include "core/device/registry.h"
#include "core/device/tenant.h"
#include "core/group/group.h"
#include "core/io/log.h"
#include "core/io/text.h"
#include "core/ledger/turn.h"

#include <time.h>

#define TRIES_AT_ONCE 3 /* attempts of a request that does not wait */
#define TURN_TRIES 16   /* attempts of a request that has its turn */
#define REQUESTS_MAX 16 /* processes asked at a time for the idle memory they publish */
#define REQUEST_AGAIN_NS (20 * GC_NS_PER_MS) /* between requests: idle memory changes */
#define POLL_NS UINT64_C(500000)             /* between two checks */
#define DYING_WAIT_NS (100 * GC_NS_PER_MS)   /* least wait for memory of a process that is dying */
#define IDLE_WAIT_NS (100 * GC_NS_PER_MS)    /* least wait for idle memory that others have */
#define IDLE_AGAIN_NS GC_NS_PER_S            /* after such a wait in vain, none for so long */

static void sleep_poll(void)
{
    const struct timespec pause = {0, (long)POLL_NS};
    nanosleep(&pause, NULL);
}

/* ---- requests ---- */

static uint64_t idle_of(const struct gc_account *account, uint32_t slot)
{
    struct gc_ledger_figures figures;
    uint64_t idle;
    if (!gc_ledger_read_figures(account->ledger, slot, gc_account_row(account), &figures))
        return 0;
    if (!gc_add_u64(figures.idle, figures.pending, &idle))
        idle = UINT64_MAX;
    return gc_min_u64(idle, gc_account_spare(account, slot));
}

static void send_request(const struct gc_account *account, uint32_t slot, uint64_t bytes)
{
    const struct gc_ledger_request request = {
        .kind = GC_REQUEST_ROOM, .device = gc_account_row(account), .bytes = bytes};
    const uint32_t generation = atomic_load_explicit(
        &gc_ledger_get_slot(account->ledger, slot)->generation, memory_order_relaxed);
    struct gc_ledger_ticket ticket;
    (void)gc_ledger_send_request(account->ledger, slot, generation, &request, &ticket);
}

/* The next process after (`below`, `after`), ordered by published idle memory, most first, then by
 * slot. */
static uint32_t most_idle(const struct gc_account *account, uint64_t below, uint32_t after,
                          uint64_t *idle)
{
    const uint32_t high = gc_ledger_slot_high(account->ledger);
    uint32_t found = GC_LEDGER_NONE;
    *idle = 0;
    for (uint32_t i = 0; i < high; i++) {
        const uint64_t bytes = gc_account_is_other(account, i) ? idle_of(account, i) : 0;
        if (bytes > *idle && (bytes < below || (bytes == below && i > after))) {
            *idle = bytes;
            found = i;
        }
    }
    return found;
}

uint64_t gc_borrow_idle(const struct gc_device *device)
{
    const struct gc_account *account = device->budget.account;
    const uint32_t high = gc_ledger_slot_high(account->ledger);
    uint64_t sum = 0;
    for (uint32_t i = 0; i < high; i++)
        if (gc_account_is_other(account, i) && !gc_add_u64(sum, idle_of(account, i), &sum))
            sum = UINT64_MAX;
    return sum;
}

/* Published figures may be old. If they sum to less than `wanted`, the rest is requested from every
 * process. */
static void send_requests(const struct gc_account *account, uint64_t wanted)
{
    const uint32_t high = gc_ledger_slot_high(account->ledger);
    uint64_t below = UINT64_MAX;
    uint32_t slot = GC_LEDGER_NONE;
    for (int i = 0; i < REQUESTS_MAX && wanted > 0; i++) {
        uint64_t idle;
        slot = most_idle(account, below, slot, &idle);
        if (slot == GC_LEDGER_NONE)
            break;
        send_request(account, slot, gc_min_u64(idle, wanted));
        wanted = gc_sub_or_zero_u64(wanted, idle);
        below = idle;
    }
    for (uint32_t i = 0; wanted > 0 && i < high; i++)
        if (gc_account_is_other(account, i) && gc_account_of(account, i) > 0)
            send_request(account, i, wanted);
}

uint64_t gc_borrow_request(struct gc_device *device, uint64_t bytes)
{
    const uint64_t idle = gc_borrow_idle(device);
    send_requests(device->budget.account, bytes);
    return idle;
}

/* The bytes to request: the excess over the group's limit; `bytes` if there is no excess, for then
 * the device itself is full. */
static uint64_t lacking(struct gc_account *account, uint64_t bytes)
{
    uint64_t sum;
    if (!gc_add_u64(gc_account_held(account), bytes, &sum))
        return bytes;
    const uint64_t over = gc_sub_or_zero_u64(sum, gc_account_limit(account));
    return over == 0 ? bytes : over;
}

/* ---- waiting ---- */

/* Whether the idle memory that others published would do. */
static bool may_come(const struct gc_device *device, uint64_t bytes)
{
    const uint64_t vain_ns =
        atomic_load_explicit(&gc_group_client_of(device->core)->vain_ns, memory_order_relaxed);
    return (vain_ns == 0 || gc_clock_ns() > vain_ns + IDLE_AGAIN_NS) &&
           gc_borrow_idle(device) >= lacking(device->budget.account, bytes);
}

static void begin(struct gc_device *device, uint64_t bytes, struct gc_borrow *borrow)
{
    struct gc_account *account = device->budget.account;
    const uint64_t wait_ms = borrow->is_short ? 0 : device->core->options->wait_ms;
    const uint64_t now_ns = gc_clock_ns();
    bool has_dying;
    (void)gc_account_reap(account->ledger, gc_account_row(account), account->group_key, &has_dying);
    borrow->end_ns = now_ns + wait_ms * GC_NS_PER_MS;
    if (borrow->is_short)
        return;
    if (has_dying)
        borrow->end_ns = gc_max_u64(borrow->end_ns, now_ns + DYING_WAIT_NS);
    borrow->awaits_idle = may_come(device, bytes);
    if (borrow->awaits_idle)
        borrow->end_ns = gc_max_u64(borrow->end_ns, now_ns + IDLE_WAIT_NS);
}

/* A process that is stopped has idle memory that does not come. */
static void end_in_vain(const struct gc_device *device, const struct gc_borrow *borrow)
{
    if (borrow->awaits_idle)
        atomic_store_explicit(&gc_group_client_of(device->core)->vain_ns, gc_clock_ns(),
                              memory_order_relaxed);
}

static void send_rarely(struct gc_account *account, uint64_t bytes, struct gc_borrow *borrow)
{
    const uint64_t now = gc_clock_ns();
    bool has_dying;
    if (borrow->requested_ns != 0 && now - borrow->requested_ns < REQUEST_AGAIN_NS)
        return;
    borrow->requested_ns = now;
    (void)gc_account_reap(account->ledger, gc_account_row(account), account->group_key, &has_dying);
    send_requests(account, lacking(account, bytes));
}

static bool borrow_idle(struct gc_device *device, uint64_t bytes, struct gc_borrow *borrow)
{
    struct gc_account *account = device->budget.account;
    GC_ASSERT(gc_lock_held_count() == 0);
    if (account == NULL || bytes > gc_device_limit_bytes(device))
        return false;
    const bool is_first = borrow->count++ == 0;
    if (is_first) {
        begin(device, bytes, borrow);
        if (gc_account_has_room(account, bytes) && gc_account_limit(account) != UINT64_MAX)
            return true;
    }
    do {
        gc_serve_requests(device->core);
        send_rarely(account, bytes, borrow);
        gc_tenants_count_away(device);
        if (gc_budget_free_bytes(&device->budget) < bytes)
            return false; /* the process's own limit is too low */
        if (gc_clock_ns() < borrow->end_ns)
            sleep_poll();
        else if (borrow->count > TRIES_AT_ONCE || !gc_account_has_room(account, bytes)) {
            end_in_vain(device, borrow);
            return false;
        } else
            return true;
    } while (!gc_account_has_room(account, bytes));
    return true;
}

/* ---- turns ---- */

/* Without a helper, as while the process starts, a thread that waits makes its steps. */
static bool takes_turns(const struct gc_group_client *client, const struct gc_borrow *borrow)
{
    return client != NULL && client->step != NULL && !borrow->is_short && !gc_serve_is_helper();
}

static void want(struct gc_group_client *client, struct gc_device *device, uint64_t bytes,
                 struct gc_borrow *borrow)
{
    if (borrow->wanted != 0)
        return;
    borrow->wanted = bytes;
    if (borrow->tenant != NULL)
        gc_tenant_begin_wanting(borrow->tenant, device, bytes);
    atomic_fetch_add_explicit(&client->wanted[gc_account_row(device->budget.account)], bytes,
                              memory_order_seq_cst);
    gc_ledger_wake(&client->ledger, client->ledger.own);
}

/* Could the group hold it, if all others gave all they have, other tenants of this process, too?
 * Memory of no tenant stays: each tenant must fit beside it, else it could not come back. */
static bool could_fit(const struct gc_device *device, uint64_t bytes,
                      const struct gc_tenant *tenant)
{
    struct gc_account *account = device->budget.account;
    const uint64_t own = gc_account_of(account, account->ledger->own);
    const uint64_t others = gc_tenants_resident_bytes(device->core, device, tenant);
    const uint64_t beside = tenant == NULL ? gc_tenants_largest_bytes(device->core, device) : 0;
    uint64_t sum;
    return gc_add_u64(gc_sub_or_zero_u64(own, others), bytes, &sum) &&
           gc_add_u64(sum, beside, &sum) && sum <= gc_account_limit(account);
}

/* Memory that cannot go again must leave room for each of the others, which else could not come
 * back. */
static bool leaves_room(const struct gc_device *device, uint64_t bytes,
                        const struct gc_borrow *borrow)
{
    struct gc_account *account = device->budget.account;
    char size[GC_TEXT_SIZE_BYTES];
    char held[GC_TEXT_SIZE_BYTES];
    char limit[GC_TEXT_SIZE_BYTES];
    uint64_t sum;
    if (!borrow->is_fixed)
        return true;
    const uint64_t largest = gc_turn_largest_other(
        account->ledger, account->group_key, gc_account_row(account), gc_account_limit(account));
    if (gc_add_u64(largest, bytes, &sum) && sum <= gc_account_limit(account))
        return true;
    gc_log_once(device->core->log, &gc_group_client_of(device->core)->fixed_logged, GC_LOG_WARN,
                "device %d: refused %s for a context or other memory that cannot be swapped: "
                "another process holds %s, which could not come back beside it (the group's limit "
                "is %s)",
                device->info.ordinal, gc_text_size(bytes, size), gc_text_size(largest, held),
                gc_text_size(gc_account_limit(account), limit));
    return false;
}

/* The helper asks others for their memory; it stays announced until gc_borrow_end. */
static bool wait_turn(struct gc_device *device, uint64_t bytes, struct gc_borrow *borrow)
{
    struct gc_group_client *client = gc_group_client_of(device->core);
    struct gc_account *account = device->budget.account;
    if (!takes_turns(client, borrow))
        return false;
    gc_tenants_count_away(device);
    while (could_fit(device, bytes, borrow->tenant) && leaves_room(device, bytes, borrow) &&
           gc_budget_free_bytes(&device->budget) >= bytes &&
           !gc_group_is_hopeless(client, gc_account_row(account))) {
        want(client, device, bytes, borrow);
        sleep_poll();
        if (gc_core_serves_in_threads(device->core))
            gc_serve_step(device->core); /* see takes_turns */
        if (gc_account_has_room(account, bytes))
            return borrow->room_count++ < TURN_TRIES; /* else the device itself is full */
    }
    return false;
}

bool gc_borrow_step(struct gc_device *device, uint64_t bytes, struct gc_borrow *borrow)
{
    return borrow_idle(device, bytes, borrow) ||
           (device->budget.account != NULL && wait_turn(device, bytes, borrow));
}

void gc_borrow_end(struct gc_device *device, const struct gc_borrow *borrow)
{
    struct gc_group_client *client = gc_group_client_of(device->core);
    if (borrow->wanted == 0)
        return;
    atomic_fetch_sub_explicit(&client->wanted[gc_account_row(device->budget.account)],
                              borrow->wanted, memory_order_seq_cst);
    if (borrow->tenant != NULL)
        gc_tenant_end_wanting(borrow->tenant, device, borrow->wanted);
    gc_ledger_wake(&client->ledger, client->ledger.own);
}
