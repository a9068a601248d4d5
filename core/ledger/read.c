/* Readers of the ledger's rows. Other processes may be writing them: each field is read once. */
#include "core/ledger/ledger.h"

#include "core/ledger/account.h"

#include <string.h>

#define UUID_PREFIX_LENGTH 4 /* "GPU-" or "MIG-": CUDA uses the former for instances too */

bool gc_ledger_read_process(const struct gc_ledger *ledger, uint32_t number,
                            struct gc_ledger_process *process)
{
    if (number >= gc_ledger_slot_high(ledger) || !gc_ledger_is_held(ledger, number))
        return false;
    const struct gc_ledger_slot *slot = gc_ledger_get_slot(ledger, number);
    /* Acquire: pairs with the release of the process that filled the slot in. */
    const uint32_t pid = atomic_load_explicit(&slot->pid, memory_order_acquire);
    if (pid == 0 || pid > INT32_MAX)
        return false; /* the slot is just being filled in */
    *process = (struct gc_ledger_process){
        .slot = number,
        .generation = gc_ledger_load_half(&slot->generation),
        .pid = (int)pid,
        .mode = gc_ledger_load_half(&slot->mode),
        .is_paused = gc_ledger_load_half(&slot->is_paused) != 0,
        .has_helper = (gc_ledger_load_half(&slot->flags) & GC_LEDGER_HAS_HELPER) != 0,
        .device_mask = gc_ledger_load(&slot->device_mask),
        .start_unix = gc_ledger_load(&slot->start_unix),
        .figures_ns = gc_ledger_load(&slot->figures_ns),
    };
    gc_ledger_get_text(process->program, sizeof(process->program), slot->program);
    gc_ledger_get_text(process->tenant, sizeof(process->tenant), slot->tenant);
    gc_ledger_get_text(process->group, sizeof(process->group), slot->group);
    return true;
}

static void read_words(const gc_ledger_word *words, struct gc_ledger_figures *figures)
{
#define GC_LEDGER_FIGURE(field) figures->field = gc_ledger_load(&words[GC_LEDGER_FIGURE_##field]);
#include "core/ledger/figures.def"
#undef GC_LEDGER_FIGURE
}

bool gc_ledger_read_figures(const struct gc_ledger *ledger, uint32_t slot, uint32_t device,
                            struct gc_ledger_figures *figures)
{
    if (slot >= gc_ledger_slot_high(ledger) || device >= GC_LEDGER_DEVICES)
        return false;
    const struct gc_ledger_slot *from = gc_ledger_get_slot(ledger, slot);
    if ((gc_ledger_load(&from->device_mask) >> device & 1) == 0)
        return false;
    read_words(from->figures[device].words, figures);
    return true;
}

bool gc_ledger_read_tenant(const struct gc_ledger *ledger, uint32_t slot, uint32_t index,
                           struct gc_ledger_tenant *tenant)
{
    if (slot >= gc_ledger_slot_high(ledger) || index >= GC_LEDGER_TENANTS)
        return false;
    const struct gc_ledger_tenant_row *row = &gc_ledger_get_slot(ledger, slot)->tenants[index];
    /* Acquire: pairs with the release of the process that filled the row in. */
    if (atomic_load_explicit(&row->in_use, memory_order_acquire) == 0)
        return false;
    const uint32_t device = gc_ledger_load_half(&row->device);
    tenant->device = device < GC_LEDGER_DEVICES ? device : GC_LEDGER_NONE;
    tenant->is_paused = gc_ledger_load_half(&row->is_paused) != 0;
    tenant->is_away = gc_ledger_load_half(&row->is_away) != 0;
    gc_ledger_get_text(tenant->name, sizeof(tenant->name), row->name);
    read_words(row->words, &tenant->figures);
    return true;
}

/* Since a time; 0: there is none. At least 1, so that the two differ. */
static uint64_t since(const gc_ledger_word *word, uint64_t now_ns)
{
    const uint64_t begin = gc_ledger_load(word);
    return begin == 0 ? 0 : begin < now_ns ? now_ns - begin : 1;
}

bool gc_ledger_read_turn(const struct gc_ledger *ledger, uint32_t slot, uint64_t now_ns,
                         struct gc_ledger_turn *turn)
{
    if (slot >= gc_ledger_slot_high(ledger))
        return false;
    const struct gc_ledger_turn_row *row = &gc_ledger_get_slot(ledger, slot)->turn;
    const uint32_t state = gc_ledger_load_half(&row->state);
    if (state == GC_TURN_NONE || state >= GC_TURN_STATE_COUNT)
        return false;
    *turn = (struct gc_ledger_turn){
        .state = (enum gc_turn_state)state,
        .priority = gc_ledger_load_half(&row->priority),
        .is_pinned = gc_ledger_load_half(&row->is_pinned) != 0,
        .idle_ns = since(&row->idle_ns, now_ns),
        .waiting_ns = since(&row->waiting_ns, now_ns),
        .waited_ns = gc_ledger_load(&row->waited_ns),
        .quantum_ns = gc_ledger_load(&row->quantum_ns),
        .exchange_count = gc_ledger_load(&row->exchange_count),
        .out_bytes = gc_ledger_load(&row->out_bytes),
        .in_bytes = gc_ledger_load(&row->in_bytes),
        .host_bytes =
            gc_ledger_load(&ledger->file->accounts[GC_LEDGER_HOST][slot]) & GC_LEDGER_BYTES_MASK,
    };
    if (__builtin_add_overflow(turn->waited_ns, turn->waiting_ns, &turn->waited_ns))
        turn->waited_ns = UINT64_MAX;
    return true;
}

bool gc_ledger_read_device(const struct gc_ledger *ledger, uint32_t index,
                           struct gc_ledger_device *device)
{
    if (index >= GC_LEDGER_DEVICES || gc_ledger_load(&ledger->file->devices[index].key) == 0)
        return false;
    const struct gc_ledger_device_row *row = &ledger->file->devices[index];
    device->total_bytes = gc_ledger_load(&row->total_bytes);
    gc_ledger_get_text(device->uuid, sizeof(device->uuid), row->uuid);
    gc_ledger_get_text(device->name, sizeof(device->name), row->name);
    return true;
}

static void reap_all(const struct gc_ledger *ledger, uint64_t key)
{
    bool has_dying;
    for (uint32_t i = 0; i < GC_LEDGER_DEVICES; i++)
        if (gc_ledger_load(&ledger->file->devices[i].key) != 0)
            gc_account_reap(ledger, i, key, &has_dying);
}

static uint32_t count_members(const struct gc_ledger *ledger, uint64_t key)
{
    const uint32_t high = gc_ledger_slot_high(ledger);
    uint32_t count = 0;
    for (uint32_t i = 0; i < high; i++)
        if (gc_ledger_load(&ledger->file->group_keys[i]) == key && gc_ledger_is_held(ledger, i))
            count++;
    return count;
}

static uint64_t group_key(const struct gc_ledger *ledger, uint32_t index)
{
    return index < GC_LEDGER_GROUPS ? gc_ledger_load(&ledger->file->groups[index].key) : 0;
}

bool gc_ledger_read_group_row(const struct gc_ledger *ledger, uint32_t index,
                              struct gc_ledger_group *group)
{
    const uint64_t key = group_key(ledger, index);
    if (key == 0)
        return false;
    const struct gc_ledger_group_row *row = &ledger->file->groups[index];
    *group = (struct gc_ledger_group){.member_count = 0};
    gc_ledger_get_text(group->name, sizeof(group->name), row->name);
    for (uint32_t i = 0; i < GC_LEDGER_DEVICES; i++) {
        const uint64_t limit = gc_ledger_load(&row->limits[i]);
        group->limits[i] = limit != 0 ? limit : UINT64_MAX;
        group->peaks[i] = gc_ledger_load(&row->peaks[i]);
        if (gc_ledger_load(&ledger->file->devices[i].key) != 0)
            group->held[i] = gc_account_sum(ledger, i, key);
    }
    return true;
}

bool gc_ledger_read_group(const struct gc_ledger *ledger, uint32_t index,
                          struct gc_ledger_group *group)
{
    const uint64_t key = group_key(ledger, index);
    if (key != 0)
        reap_all(ledger, key);
    if (!gc_ledger_read_group_row(ledger, index, group))
        return false;
    group->member_count = count_members(ledger, key);
    return true;
}

/* ---- one group on one device ---- */

static bool is_same_device(const char *a, const char *b)
{
    return strlen(a) > UUID_PREFIX_LENGTH && strlen(b) > UUID_PREFIX_LENGTH &&
           strcmp(a + UUID_PREFIX_LENGTH, b + UUID_PREFIX_LENGTH) == 0;
}

static bool find_row(const struct gc_ledger *ledger, const char *group_name, const char *uuid,
                     struct gc_ledger_group_use *share)
{
    const uint32_t row = gc_ledger_find_group(ledger, group_name);
    struct gc_ledger_device device;
    struct gc_ledger_group group;
    if (row == GC_LEDGER_NONE)
        return false;
    for (uint32_t i = 0; i < GC_LEDGER_DEVICES; i++) {
        if (!gc_ledger_read_device(ledger, i, &device) || !is_same_device(device.uuid, uuid))
            continue;
        if (!gc_ledger_read_group(ledger, row, &group))
            return false;
        *share = (struct gc_ledger_group_use){group.limits[i], group.held[i], group.member_count};
        return true;
    }
    return false;
}

bool gc_ledger_read_group_use(const char *folder, const char *group, const char *uuid,
                              struct gc_ledger_group_use *share)
{
    struct gc_ledger ledger;
    char reason[GC_LEDGER_REASON_BYTES];
    if (gc_ledger_open(folder, false, &ledger, reason) != GC_OK)
        return false;
    const bool is_found = find_row(&ledger, group, uuid, share);
    gc_ledger_close(&ledger);
    return is_found;
}
