#define _GNU_SOURCE
#include "core/group/group.h"

#include "core/base/bits.h"
#include "core/device/publish.h"
#include "core/device/registry.h"
#include "core/io/text.h"
#include "core/ledger/process.h"

#include <stddef.h>
#include <time.h>
#include <unistd.h>

/* ---- joining ---- */

static void fill_slot(struct gc_group_client *client, const char *program)
{
    struct gc_ledger *ledger = &client->ledger;
    struct gc_ledger_slot *slot = gc_ledger_own_slot(ledger);
    const struct gc_options *options = client->core->options;
    const uint32_t pid = (uint32_t)getpid();
    const char *tenant = options->tenant[0] != '\0' ? options->tenant : program;
    gc_ledger_set_text(slot->program, sizeof(slot->program), program);
    gc_ledger_set_text(slot->tenant, sizeof(slot->tenant), tenant);
    gc_ledger_set_text(slot->group, sizeof(slot->group), options->group);
    atomic_store_explicit(&slot->mode, (uint32_t)options->mode, memory_order_relaxed);
    atomic_store_explicit(&slot->start_ticks, gc_ledger_start_ticks(pid), memory_order_relaxed);
    atomic_store_explicit(&slot->pid_namespace, gc_ledger_pid_namespace(), memory_order_relaxed);
    atomic_store_explicit(&slot->start_unix, (uint64_t)time(NULL), memory_order_relaxed);
    if (client->has_group)
        atomic_store_explicit(&ledger->file->group_keys[ledger->own], gc_ledger_key(options->group),
                              memory_order_seq_cst);
    /* Release: pairs with the acquire in gc_ledger_read_process. */
    atomic_store_explicit(&slot->pid, pid, memory_order_release);
}

static bool acquire_slot(struct gc_group_client *client)
{
    const struct gc_core *core = client->core;
    char reason[GC_LEDGER_REASON_BYTES], place[GC_LEDGER_PATH_BYTES];
    const char *folder = gc_ledger_folder(core->options->ledger, core->options->node, place);
    if (gc_ledger_open(folder, true, &client->ledger, reason) != GC_OK) {
        gc_log_write(core->log, GC_LOG_WARN, "no ledger: %s; limits hold in this process alone",
                     reason);
        return false;
    }
    if (!gc_ledger_acquire_slot(&client->ledger)) {
        gc_log_write(
            core->log, GC_LOG_WARN,
            "no ledger: %s has no free slot, or no memory for one (accepted: %d processes); "
            "limits hold in this process alone",
            client->ledger.path, GC_LEDGER_SLOTS);
        gc_ledger_close(&client->ledger);
        return false;
    }
    return true;
}

void gc_group_join(struct gc_core *core, const char *program, struct gc_doorbell *doorbell)
{
    struct gc_group_client *client = gc_host_mem_map(&core->host, sizeof(*client));
    if (client == NULL)
        return;
    client->core = core;
    client->doorbell = doorbell;
    client->has_group = core->options->group[0] != '\0';
    if (!acquire_slot(client)) {
        gc_host_mem_unmap(&core->host, client, sizeof(*client));
        return;
    }
    fill_slot(client, program);
    const struct gc_ledger_slot *slot = gc_ledger_own_slot(&client->ledger);
    doorbell->control = &slot->control;
    /* The first gc_group_serve serves requests that arrived since the slot was claimed. */
    atomic_store_explicit(&doorbell->seen,
                          atomic_load_explicit(&slot->served, memory_order_relaxed),
                          memory_order_relaxed);
    core->ledger = &client->ledger;
    if (client->has_group)
        gc_host_budget_join(&core->host_budget, &client->ledger, core->options->group);
    atomic_store_explicit(&core->serves_in_threads, true, memory_order_relaxed);
}

void gc_group_leave_child(struct gc_core *core)
{
    struct gc_group_client *client = gc_group_client_of(core);
    if (client == NULL || client->ledger.fd < 0)
        return;
    if (gc_ledger_is_intact(&client->ledger))
        close(client->ledger.fd);
    client->ledger.fd = -1;
}

void gc_group_fini(struct gc_core *core)
{
    static const _Atomic uint32_t no_requests;
    struct gc_group_client *client = gc_group_client_of(core);
    if (client == NULL)
        return;
    core->ledger = NULL;
    core->host_budget.is_shared = false;
    atomic_store_explicit(&core->serves_in_threads, false, memory_order_relaxed);
    client->doorbell->control = &no_requests;
    atomic_store_explicit(&client->doorbell->seen, 0, memory_order_relaxed);
    gc_ledger_close(&client->ledger);
    gc_host_mem_unmap(&core->host, client, sizeof(*client));
}

/* ---- a device ---- */

/* Where processes take turns, what they may have resident together is at least less than the
 * device: the driver keeps some for itself. */
#define LEFT_DIVISOR 50
#define LEFT_BYTES (UINT64_C(512) << 20)
#define LEFT_MOST_DIVISOR 8

static uint64_t turns_limit_of(const struct gc_device *device)
{
    const uint64_t total = device->info.total_bytes;
    return total -
           gc_min_u64(gc_max_u64(total / LEFT_DIVISOR, LEFT_BYTES), total / LEFT_MOST_DIVISOR);
}

static uint64_t group_limit_of(const struct gc_device *device)
{
    const struct gc_options *options = device->core->options;
    const uint64_t limit = gc_size_spec_resolve(&options->group_limit, device->info.ordinal,
                                                device->info.uuid, device->info.total_bytes);
    if (limit == UINT64_MAX && options->group_limit.count > 0)
        gc_log_write(device->core->log, GC_LOG_WARN,
                     "GPUCACHE_GROUP_LIMIT has no entry for device %d (%s): it sets no limit there",
                     device->info.ordinal, device->info.uuid);
    if (limit == UINT64_MAX && options->group[0] != '\0' &&
        (options->overcommit & GC_OVERCOMMIT_SWAP) != 0)
        return turns_limit_of(device);
    return limit;
}

/* 0: none. */
static uint64_t guarantee_of(const struct gc_device *device)
{
    const uint64_t bytes =
        gc_size_spec_resolve(&device->core->options->guarantee, device->info.ordinal,
                             device->info.uuid, device->info.total_bytes);
    return bytes == UINT64_MAX ? 0 : bytes;
}

/* What does not fit beside the guarantees of the others is not guaranteed: the first ones hold. */
void gc_group_guarantee(struct gc_device *device)
{
    struct gc_account *account = &device->account;
    const uint64_t wanted = guarantee_of(device);
    const uint64_t limit = gc_account_limit(account);
    uint64_t sum;
    if (wanted == 0 && account->guarantee_bytes == 0)
        return;
    const uint64_t others =
        gc_sub_or_zero_u64(gc_account_guarantees(account), account->guarantee_bytes);
    const bool fits = gc_add_u64(others, wanted, &sum) && sum <= limit;
    if (!fits)
        gc_log_once(device->core->log, &gc_group_client_of(device->core)->guarantee_logged,
                    GC_LOG_WARN,
                    "GPUCACHE_GUARANTEE: %s on device %d does not fit beside the %s that other "
                    "processes of group %s may always have (its limit is %s): nothing is kept for "
                    "this process",
                    GC_TEXT_SIZE(wanted), device->info.ordinal, GC_TEXT_SIZE(others),
                    account->group, GC_TEXT_SIZE(limit));
    if (account->guarantee_bytes != (fits ? wanted : 0))
        gc_account_set_guarantee(account, fits ? wanted : 0);
}

/* Without a group, or without its account, the limit applies to this process alone. */
static void limit_alone(struct gc_device *device, uint64_t limit)
{
    if (guarantee_of(device) != 0)
        gc_log_write(device->core->log, GC_LOG_WARN,
                     "GPUCACHE_GUARANTEE: this process has no group on device %d, so nothing is "
                     "kept for it (accepted: with GPUCACHE_GROUP)",
                     device->info.ordinal);
    if (limit >= gc_budget_limit(&device->budget))
        return;
    gc_log_write(device->core->log, GC_LOG_WARN,
                 "GPUCACHE_GROUP_LIMIT: %s, so this process alone is held to %llu MiB on device %d",
                 device->core->options->group[0] == '\0'
                     ? "there is no GPUCACHE_GROUP"
                     : "the group's account could not be opened",
                 (unsigned long long)(limit >> 20), device->info.ordinal);
    gc_budget_set_limit(&device->budget, limit);
}

/* Whether a process of the group has applied a limit on the device, its own or one set by a tool.
 * Processes that are still joining do not count: each sets its own limit, and the last limit set
 * holds. */
static bool is_agreed(const struct gc_ledger *ledger, uint64_t key, uint32_t row)
{
    const uint32_t high = gc_ledger_slot_high(ledger);
    for (uint32_t i = 0; i < high; i++)
        if (atomic_load_explicit(&ledger->file->group_keys[i], memory_order_seq_cst) == key &&
            (atomic_load_explicit(&ledger->file->slots[i].agreed_mask, memory_order_relaxed) >>
                 row &
             1) != 0 &&
            gc_ledger_is_held(ledger, i))
            return true;
    return false;
}

/* The limit of the group's first process holds, or a later limit set by a tool; the limit ends with
 * the group's last process. */
static void limit_group(struct gc_device *device, uint64_t limit)
{
    struct gc_account *account = &device->account;
    const uint64_t old_limit = gc_account_limit(account);
    struct gc_ledger *ledger = account->ledger;
    if (!is_agreed(ledger, account->group_key, device->ledger_row))
        gc_account_set_limit(account, limit);
    else if (old_limit != limit && limit != UINT64_MAX &&
             !gc_account_set_first_limit(account, limit))
        gc_log_write(
            device->core->log, GC_LOG_INFO,
            "group %s keeps its limit on device %d (%llu MiB, unless it was removed): this "
            "process's GPUCACHE_GROUP_LIMIT is ignored",
            account->group, device->info.ordinal,
            (unsigned long long)(gc_account_limit(account) >> 20));
    atomic_fetch_or_explicit(&gc_ledger_own_slot(ledger)->agreed_mask,
                             UINT64_C(1) << device->ledger_row, memory_order_seq_cst);
}

static void join_group(struct gc_device *device, const struct gc_ledger_device *described,
                       uint64_t limit)
{
    struct gc_group_client *client = gc_group_client_of(device->core);
    if (!gc_account_open(&device->account, &client->ledger, described,
                         device->core->options->group)) {
        gc_log_write(
            device->core->log, GC_LOG_WARN,
            "%s is full: no row for device %d and group %s (at most %d devices, %d groups); "
            "limits hold in this process alone",
            client->ledger.path, device->info.ordinal, device->core->options->group,
            GC_LEDGER_DEVICES, GC_LEDGER_GROUPS);
        limit_alone(device, limit);
        return;
    }
    device->ledger_row = gc_account_row(&device->account);
    /* Also uncharges memory of this process from before an exec. */
    bool has_dying;
    (void)gc_account_reap(&client->ledger, device->ledger_row, device->account.group_key,
                          &has_dying);
    limit_group(device, limit);
    gc_group_guarantee(device);
    device->account.takes_turns = (device->core->options->overcommit & GC_OVERCOMMIT_SWAP) != 0;
    device->budget.account = &device->account;
    atomic_store_explicit(&device->is_group_over, true, memory_order_relaxed); /* check it */
}

static void write_device(struct gc_device *device, const struct gc_ledger_device *described)
{
    struct gc_ledger *ledger = device->core->ledger;
    device->ledger_row = gc_ledger_find_or_add_device(ledger, described);
    if (device->ledger_row != GC_LEDGER_NONE)
        atomic_fetch_or_explicit(&gc_ledger_own_slot(ledger)->device_mask,
                                 UINT64_C(1) << device->ledger_row, memory_order_seq_cst);
}

static void apply_late_limit(struct gc_device *device)
{
    struct gc_group_client *client = gc_group_client_of(device->core);
    const uint64_t bit = UINT64_C(1) << device->ledger_row;
    if ((atomic_fetch_and_explicit(&client->late_mask, ~bit, memory_order_acquire) & bit) != 0)
        gc_budget_set_limit(
            &device->budget,
            atomic_load_explicit(&client->late_limits[device->ledger_row], memory_order_relaxed));
}

void gc_group_attach(struct gc_core *core, struct gc_device *device)
{
    struct gc_ledger_device described = {.total_bytes = device->info.total_bytes};
    const uint64_t limit = group_limit_of(device);
    device->ledger_row = GC_LEDGER_NONE;
    if (core->ledger == NULL) {
        limit_alone(device, limit);
        return;
    }
    if (!gc_ledger_is_intact(core->ledger))
        (void)gc_ledger_repair(core->ledger);
    gc_ledger_get_text(described.uuid, sizeof(described.uuid), device->info.uuid);
    gc_ledger_get_text(described.name, sizeof(described.name), device->info.name);
    if (gc_group_client_of(core)->has_group) {
        join_group(device, &described, limit);
    } else {
        write_device(device, &described);
        limit_alone(device, limit);
    }
    if (device->ledger_row != GC_LEDGER_NONE)
        apply_late_limit(device);
    gc_publish_device(device, gc_core_now_ns(core));
}

uint32_t gc_group_row(const struct gc_core *core)
{
    return gc_ledger_find_group(core->ledger, core->options->group);
}

/* ---- contexts ---- */

/* A context needs at most this fraction of the device: a larger figure is not believed. */
#define CONTEXT_DIVISOR 8

bool gc_group_shares_device(const struct gc_device *device)
{
    const struct gc_group_client *client = gc_group_client_of(device->core);
    if (client == NULL || device->ledger_row == GC_LEDGER_NONE)
        return false;
    const struct gc_ledger *ledger = &client->ledger;
    const uint32_t high = gc_ledger_slot_high(ledger);
    if (client->has_group)
        return true; /* others may join at any time */
    for (uint32_t i = 0; i < high; i++)
        if (i != ledger->own &&
            (atomic_load_explicit(&ledger->file->slots[i].device_mask, memory_order_relaxed) >>
                 device->ledger_row &
             1) != 0 &&
            gc_ledger_is_held(ledger, i))
            return true;
    return false;
}

static bool is_believed(uint64_t context_bytes, uint64_t total_bytes)
{
    return context_bytes <= total_bytes / CONTEXT_DIVISOR;
}

uint64_t gc_group_context_bytes(const struct gc_device *device)
{
    const struct gc_account *account = device->budget.account;
    if (account == NULL)
        return 0;
    const uint32_t row = gc_account_row(account);
    const uint64_t bytes = atomic_load_explicit(&account->ledger->file->devices[row].context_bytes,
                                                memory_order_relaxed);
    return is_believed(bytes, device->info.total_bytes) ? bytes : 0;
}

uint64_t gc_group_measured_context_bytes(const struct gc_core *core, const char *uuid,
                                         uint64_t total_bytes)
{
    const uint64_t bytes = core->ledger != NULL ? gc_ledger_context_bytes(core->ledger, uuid) : 0;
    return is_believed(bytes, total_bytes) ? bytes : 0;
}

void gc_group_set_context_bytes(struct gc_device *device, uint64_t bytes)
{
    const struct gc_group_client *client = gc_group_client_of(device->core);
    if (client != NULL && device->ledger_row != GC_LEDGER_NONE &&
        is_believed(bytes, device->info.total_bytes))
        atomic_store_explicit(&client->ledger.file->devices[device->ledger_row].context_bytes,
                              bytes, memory_order_relaxed);
}
