/* Serves the requests of other processes and of the tool (see group.h). One thread at a time:
 * is_serving is a try-lock, so a thread of the program never waits for another one. */
#define _GNU_SOURCE
#include "core/base/assert.h"
#include "core/base/bits.h"
#include "core/base/clock.h"
#include "core/device/publish.h"
#include "core/device/registry.h"
#include "core/device/tenant.h"
#include "core/device/wait.h"
#include "core/group/group.h"
#include "core/io/text.h"
#include "core/reclaim/limit.h"
#include "core/reclaim/reclaim.h"
#include "core/reclaim/reconcile.h"
#include "core/reclaim/release.h"
#include "core/reclaim/tcache.h"

#include <stdio.h>
#include <time.h>

#define BIT(kind) (UINT32_C(1) << (kind))
/* Requests that threads of the program leave to the helper. */
#define HELPER_REQUESTS (~BIT(GC_REQUEST_LIMIT))
#define PAUSE_NS 1000000 /* between two attempts while another thread serves */
#define END_PAUSES 100   /* pauses at most, when the process ends */
#define CHECK_EVERY 64   /* calls of gc_serve_requests by a thread; a check is a system call */
#define SERVE_MAX 16     /* times that a thread of the program serves in one call */
/* Longest wait for GC_REQUEST_ROOM: the thread has its own work, the requester tries again. */
#define SERVE_NS UINT64_C(250000000)

static void respond(struct gc_group_client *client, enum gc_ledger_request_kind kind,
                    enum gc_ledger_result result, const char *text)
{
    gc_ledger_respond(&client->ledger, kind, result, text);
}

static void respond_released(struct gc_group_client *client, enum gc_ledger_request_kind kind,
                             uint64_t bytes)
{
    char text[GC_LEDGER_RESPONSE_BYTES];
    char size[GC_TEXT_SIZE_BYTES];
    snprintf(text, sizeof(text), "%s released", gc_text_size(bytes, size));
    respond(client, kind, GC_RESPONSE_DONE, text);
}

/* ---- each kind ---- */

static void serve_trim(struct gc_group_client *client)
{
    struct gc_core *core = client->core;
    uint64_t released = 0;
    for (int i = 0; i < GC_DEVICE_MAX; i++) {
        struct gc_device *device = gc_device_find(core, i);
        if (device != NULL)
            released += gc_reclaim_empty(core, device);
    }
    gc_reclaim_empty_host(core);
    respond_released(client, GC_REQUEST_TRIM, released);
}

static uint64_t release_room(struct gc_device *device, uint64_t wanted)
{
    if (wanted == 0)
        return 0;
    gc_tcache_flush_device(device, NULL);
    uint64_t released = gc_release_idle(device, NULL, 0, wanted);
    if (released < wanted && gc_reclaim_collect(device, NULL, SERVE_NS))
        released += gc_release_idle(device, NULL, 0, wanted - released);
    return released;
}

static void serve_room(struct gc_group_client *client)
{
    struct gc_ledger_slot *slot = gc_ledger_own_slot(&client->ledger);
    uint64_t released = 0;
    for (int i = 0; i < GC_DEVICE_MAX; i++) {
        struct gc_device *device = gc_device_find(client->core, i);
        if (device != NULL && device->ledger_row != GC_LEDGER_NONE)
            released +=
                release_room(device, atomic_exchange_explicit(&slot->room[device->ledger_row], 0,
                                                              memory_order_relaxed));
    }
    respond_released(client, GC_REQUEST_ROOM, released);
}

static void store_late_limits(struct gc_group_client *client, const struct gc_ledger_slot *slot,
                              uint64_t mask)
{
    for (uint32_t row = 0; row < GC_LEDGER_DEVICES; row++)
        if ((mask >> row & 1) != 0)
            atomic_store_explicit(&client->late_limits[row],
                                  atomic_load_explicit(&slot->limits[row], memory_order_relaxed),
                                  memory_order_relaxed);
    /* Release: pairs with the acquire in group.c's apply_late_limit. */
    atomic_fetch_or_explicit(&client->late_mask, mask, memory_order_release);
}

/* UINT64_MAX means no limit in the ledger and in core. A limit of 0 becomes one byte. */
static void serve_limit(struct gc_group_client *client)
{
    struct gc_ledger_slot *slot = gc_ledger_own_slot(&client->ledger);
    /* Acquire: pairs with the release in gc_ledger_send_request. */
    uint64_t mask = atomic_exchange_explicit(&slot->limit_mask, 0, memory_order_acquire);
    uint64_t excess = 0;
    char text[GC_LEDGER_RESPONSE_BYTES] = "the limit is in force";
    char size[GC_TEXT_SIZE_BYTES];
    for (int i = 0; i < GC_DEVICE_MAX; i++) {
        struct gc_device *device = gc_device_find(client->core, i);
        if (device == NULL || device->ledger_row == GC_LEDGER_NONE ||
            (mask >> device->ledger_row & 1) == 0)
            continue;
        mask &= ~(UINT64_C(1) << device->ledger_row);
        const uint64_t limit =
            atomic_load_explicit(&slot->limits[device->ledger_row], memory_order_relaxed);
        gc_limit_set(client->core, device, gc_max_u64(limit, 1));
        excess += gc_device_excess_bytes(device);
    }
    store_late_limits(client, slot, mask);
    if (excess > 0)
        snprintf(text, sizeof(text), "the limit is in force; %s above it are in use",
                 gc_text_size(excess, size));
    respond(client, GC_REQUEST_LIMIT, GC_RESPONSE_DONE, text);
}

static void serve_handler(struct gc_group_client *client, enum gc_ledger_request_kind kind)
{
    /* Acquire: pairs with the release in gc_serve_register. */
    gc_request_function *function =
        atomic_load_explicit(&client->handlers[kind].function, memory_order_acquire);
    char text[GC_LEDGER_RESPONSE_BYTES] = "";
    char tenant[GC_LEDGER_NAME_BYTES];
    if (function == NULL) {
        respond(client, kind, GC_RESPONSE_REFUSED, "this process cannot do that");
        return;
    }
    gc_ledger_get_text(tenant, sizeof(tenant), gc_ledger_own_slot(&client->ledger)->request_tenant);
    const bool drop = atomic_load_explicit(&gc_ledger_own_slot(&client->ledger)->request_drop,
                                           memory_order_relaxed) != 0;
    const enum gc_ledger_result result =
        function(client->handlers[kind].argument, kind, tenant, drop, text);
    respond(client, kind, result, text);
}

static void write_tenant(void *argument, struct gc_tenant *tenant)
{
    (void)argument;
    gc_publish_tenant(tenant);
}

/* Publishes the figures. Where the group's limit may have changed, enforces it first. */
static void flush_all(struct gc_group_client *client, bool may_be_over)
{
    struct gc_core *core = client->core;
    const uint64_t now_ns = gc_core_now_ns(core);
    for (int i = 0; i < GC_DEVICE_MAX; i++) {
        struct gc_device *device = gc_device_find(core, i);
        if (device == NULL)
            continue;
        if (may_be_over) {
            if (device->budget.account != NULL) {
                atomic_store_explicit(&device->is_group_over, true, memory_order_relaxed);
                gc_group_guarantee(device);
            }
            gc_tcache_flush_device(device, NULL);
            (void)gc_limit_enforce_device(device);
        }
        gc_reconcile_update(device);
        gc_publish_device(device, now_ns);
    }
    gc_tenants_visit(core, write_tenant, NULL);
}

/* ---- one at a time ---- */

static void serve_once(struct gc_group_client *client, uint32_t mine)
{
    struct gc_ledger_slot *slot = gc_ledger_own_slot(&client->ledger);
    /* Acquire: pairs with the releases in gc_ledger_send_request. The bit of each request that the
     * value read here counts is visible. */
    const uint32_t control = atomic_load_explicit(&slot->control, memory_order_acquire);
    const uint32_t all = atomic_fetch_and_explicit(&slot->requests, ~mine, memory_order_acquire);
    const uint32_t requests = all & mine;
    if ((requests & BIT(GC_REQUEST_LIMIT)) != 0)
        serve_limit(client);
    if ((requests & BIT(GC_REQUEST_ROOM)) != 0)
        serve_room(client);
    if ((requests & BIT(GC_REQUEST_TRIM)) != 0)
        serve_trim(client);
    if ((requests & BIT(GC_REQUEST_PAUSE)) != 0)
        serve_handler(client, GC_REQUEST_PAUSE);
    if ((requests & BIT(GC_REQUEST_RESUME)) != 0)
        serve_handler(client, GC_REQUEST_RESUME);
    if ((requests & BIT(GC_REQUEST_GIVE)) != 0)
        serve_handler(client, GC_REQUEST_GIVE);
    flush_all(client, (all & (BIT(GC_REQUEST_LIMIT) | BIT(GC_REQUEST_REFRESH))) != 0);
    if ((requests & BIT(GC_REQUEST_REFRESH)) != 0)
        respond(client, GC_REQUEST_REFRESH, GC_RESPONSE_DONE, "");
    atomic_store_explicit(&client->doorbell->seen, control, memory_order_relaxed);
    if (mine == UINT32_MAX)
        gc_ledger_set_served(&client->ledger, control);
}

/* False: another thread serves. */
static bool serve(struct gc_group_client *client, uint32_t mine)
{
    GC_ASSERT(gc_lock_held_count() == 0);
    if (atomic_exchange_explicit(&client->is_serving, true, memory_order_acquire))
        return false;
    for (int i = 0; i < SERVE_MAX && gc_doorbell_is_rung(client->doorbell); i++)
        serve_once(client, mine);
    atomic_store_explicit(&client->is_serving, false, memory_order_release);
    return true;
}

/* The file may be removed, by hand or by the system at the user's last logout (RemoveIPC).
 * Processes of the group go on with the file they have open; later ones make a new file. */
static void check_name(struct gc_group_client *client)
{
    if (gc_ledger_is_removed(&client->ledger))
        gc_log_once(client->core->log, &client->removal_logged,
                    client->has_group ? GC_LOG_WARN : GC_LOG_INFO,
                    "%s was removed or replaced: programs that start from now on do not see "
                    "this one, and the group's limit does not include them",
                    client->ledger.path);
}

/* A program may close descriptors that it did not open. The process keeps its slot. But processes
 * that died look alive: without the descriptor their locks cannot be tested. */
static void check_descriptor(struct gc_group_client *client)
{
    if (gc_ledger_is_intact(&client->ledger) ||
        atomic_exchange_explicit(&client->is_serving, true, memory_order_acquire))
        return;
    if (!gc_ledger_is_intact(&client->ledger) && !gc_ledger_repair(&client->ledger))
        gc_log_once(
            client->core->log, &client->loss_logged, GC_LOG_WARN,
            "the program closed %s and it could not be reopened: memory of processes that died "
            "stays charged to the group",
            client->ledger.path);
    atomic_store_explicit(&client->is_serving, false, memory_order_release);
}

bool gc_group_serve(struct gc_core *core)
{
    struct gc_group_client *client = gc_group_client_of(core);
    if (client == NULL || !gc_doorbell_is_rung(client->doorbell))
        return false;
    return serve(client, gc_core_serves_in_threads(core) ? UINT32_MAX : ~HELPER_REQUESTS);
}

void gc_serve_requests(struct gc_core *core)
{
    static __thread unsigned calls __attribute__((tls_model("initial-exec")));
    struct gc_group_client *client = gc_group_client_of(core);
    if (client == NULL)
        return;
    if (calls++ % CHECK_EVERY == 0) {
        check_descriptor(client);
        check_name(client);
    }
    if (gc_group_serve(core) && gc_core_serves_in_threads(core))
        gc_wait_resume(core);
}

void gc_serve_register(struct gc_core *core, enum gc_ledger_request_kind kind,
                       gc_request_function *function, void *argument)
{
    struct gc_group_client *client = gc_group_client_of(core);
    if (client == NULL)
        return;
    client->handlers[kind].argument = argument;
    atomic_store_explicit(&client->handlers[kind].function, function, memory_order_release);
}

/* ---- the helper ---- */

bool gc_serve_wants_helper(const struct gc_core *core)
{
    const struct gc_group_client *client = gc_group_client_of(core);
    return client != NULL && client->has_group;
}

static void sleep_ns(long ns)
{
    const struct timespec pause = {0, ns};
    nanosleep(&pause, NULL);
}

static __thread bool is_helper __attribute__((tls_model("initial-exec")));

bool gc_serve_is_helper(void)
{
    return is_helper;
}

void gc_serve_set_step(struct gc_core *core, gc_serve_step_function *step)
{
    gc_group_client_of(core)->step = step;
}

void gc_serve_step(struct gc_core *core)
{
    struct gc_group_client *client = gc_group_client_of(core);
    if (client == NULL || client->step == NULL ||
        atomic_exchange_explicit(&client->is_serving, true, memory_order_acquire))
        return;
    /* Acquire: pairs with the release in hand_over, after the helper's last step. */
    if (atomic_load_explicit(&core->serves_in_threads, memory_order_acquire)) {
        is_helper = true;
        (void)client->step(core);
        is_helper = false;
    }
    atomic_store_explicit(&client->is_serving, false, memory_order_release);
}

/* The threads' steps are over. */
static void take_over(struct gc_group_client *client)
{
    while (atomic_exchange_explicit(&client->is_serving, true, memory_order_acquire))
        sleep_ns(PAUSE_NS);
    atomic_store_explicit(&client->core->serves_in_threads, false, memory_order_relaxed);
    atomic_store_explicit(&client->is_serving, false, memory_order_release);
}

/* Threads that wait serve from now on. */
static void hand_over(struct gc_core *core)
{
    atomic_store_explicit(&core->serves_in_threads, true, memory_order_release);
    gc_gate_rouse(&core->work.gate);
}

static bool is_ending(const struct gc_core *core)
{
    return atomic_load_explicit(&core->ending_ns, memory_order_acquire) != 0;
}

void gc_serve_help(struct gc_core *core)
{
    struct gc_group_client *client = gc_group_client_of(core);
    struct gc_ledger_slot *slot = gc_ledger_own_slot(&client->ledger);
    is_helper = true;
    uint32_t served = atomic_load_explicit(&slot->served, memory_order_relaxed);
    take_over(client);
    atomic_fetch_or_explicit(&slot->flags, GC_LEDGER_HAS_HELPER, memory_order_relaxed);
    while (!is_ending(core)) {
        const uint32_t control = atomic_load_explicit(&slot->control, memory_order_acquire);
        const uint32_t timeout_ms = client->step != NULL ? client->step(core) : UINT32_MAX;
        if (control == served) {
            gc_ledger_wait_request(&client->ledger, control, timeout_ms);
            continue;
        }
        if (atomic_exchange_explicit(&client->is_serving, true, memory_order_acquire)) {
            sleep_ns(PAUSE_NS);
            continue;
        }
        if (!is_ending(core))
            serve_once(client, UINT32_MAX);
        served = atomic_load_explicit(&slot->served, memory_order_relaxed);
        atomic_store_explicit(&client->is_serving, false, memory_order_release);
    }
    hand_over(core);
}

/* The counters as they end: the ledger keeps them. */
static void publish_last(struct gc_core *core)
{
    for (int i = 0; i < GC_DEVICE_MAX; i++) {
        struct gc_device *device = gc_device_find(core, i);
        if (device == NULL)
            continue;
        gc_tcache_flush_device(device, NULL);
        gc_publish_device(device, gc_core_now_ns(core));
    }
}

/* Waits until no thread serves. A thread that is still at work after the last pause keeps
 * `is_serving`. */
void gc_serve_end_help(struct gc_core *core)
{
    struct gc_group_client *client = gc_group_client_of(core);
    atomic_store_explicit(&core->ending_ns, gc_clock_ns(), memory_order_release);
    if (client == NULL || gc_core_serves_in_threads(core))
        hand_over(core);
    if (client == NULL)
        return;
    gc_ledger_wake(&client->ledger, client->ledger.own);
    for (int i = 0;
         i < END_PAUSES && atomic_load_explicit(&client->is_serving, memory_order_acquire); i++)
        sleep_ns(PAUSE_NS);
    publish_last(core);
}
