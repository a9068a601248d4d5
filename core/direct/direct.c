/* Direct memory: what the program takes from the driver by other ways than the pool. The caller
 * charges it before it asks the driver and records it afterwards; the record carries the charge
 * until it goes. */
#include "core/direct/direct.h"
#include "core/base/bits.h"
#include "core/device/publish.h"
#include "core/device/registry.h"
#include "core/group/group.h"
#include "core/io/text.h"
#include "core/reclaim/reclaim.h"

#include <stddef.h>

bool gc_direct_is_allocation(enum gc_direct_kind kind)
{
    switch (kind) {
    case GC_DIRECT_MEMORY:
    case GC_DIRECT_MANAGED:
    case GC_DIRECT_ASYNC:
    case GC_DIRECT_HANDLE:
    case GC_DIRECT_ARRAY:
    case GC_DIRECT_GRAPH:
        return true;
    case GC_DIRECT_POOL:
    case GC_DIRECT_CONTEXT:
    case GC_DIRECT_MODULE:
    case GC_DIRECT_HOST:
    case GC_DIRECT_IMPORT:
    case GC_DIRECT_ELASTIC:
    case GC_DIRECT_KIND_COUNT:
        break;
    }
    return false;
}

/* What the record occupies: its charge, or what was asked for where nothing is charged. */
static uint64_t bytes_of(const struct gc_direct *direct)
{
    return direct->charged_bytes != 0 ? direct->charged_bytes : direct->requested_bytes;
}

static struct gc_entry entry_of(const struct gc_direct *direct)
{
    const struct gc_entry entry = {
        .address = direct->key,
        .requested_bytes = direct->requested_bytes,
        .bytes = gc_max_u64(bytes_of(direct), direct->requested_bytes),
        .api = direct->api,
    };
    return entry;
}

/* ---- charges ---- */

/* To other processes. */
static void show(struct gc_device *device)
{
    if (device != NULL && device->core->member != NULL)
        gc_member_write(device, gc_core_now_ns(device->core));
}

static bool try_reserve(struct gc_core *core, struct gc_device *device, struct gc_share *share,
                        uint64_t bytes, bool is_trial)
{
    struct gc_shortage shortage;
    struct gc_held held;
    struct gc_decline decline = {0};
    struct gc_room room = {.is_short = is_trial};
    gc_core_serve(core);
    if (gc_share_reserve(device, share, bytes, &held, &decline))
        return true;
    if (bytes <= gc_share_limit_bytes(device, share)) {
        gc_shortage_begin(&shortage, device, share, NULL);
        while (gc_shortage_relieve(&shortage, bytes, &decline)) {
            if (shortage.attempts == 1)
                gc_counter_add(&device->stats.retry_count, 1);
            if (gc_share_reserve(device, share, bytes, &held, &decline))
                return true;
        }
        do {
            if (gc_share_reserve(device, share, bytes, &held, &decline))
                return true;
        } while (!decline.is_share_short && gc_member_make_room(device, bytes, &room));
    }
    return false;
}

bool gc_core_try_reserve(struct gc_core *core, struct gc_device *device, struct gc_share *share,
                         uint64_t bytes)
{
    return try_reserve(core, device, share, bytes, true);
}

enum gc_status gc_core_reserve(struct gc_core *core, struct gc_device *device,
                               struct gc_share *share, uint64_t bytes)
{
    const struct gc_entry entry = {.requested_bytes = bytes, .api = GC_API_NONE};
    if (try_reserve(core, device, share, bytes, false))
        return GC_OK;
    gc_share_note_oom(device, share, &entry);
    show(device);
    return GC_OUT_OF_MEMORY;
}

void gc_core_confirm(struct gc_core *core, struct gc_device *device, struct gc_share *share)
{
    const struct gc_held held = {0, 0};
    (void)core;
    gc_share_confirm(device, share, &held);
}

void gc_core_unreserve(struct gc_core *core, struct gc_device *device, struct gc_share *share,
                       uint64_t bytes)
{
    (void)core;
    if (bytes != 0)
        gc_share_release(device, share, bytes);
}

void gc_core_adjust(struct gc_core *core, struct gc_device *device, int64_t bytes)
{
    if (bytes >= 0) {
        char limit[GC_TEXT_SIZE_BYTES];
        gc_budget_charge(&device->budget, (uint64_t)bytes);
        if (device->budget.account != NULL)
            atomic_store_explicit(&device->is_group_over, true, memory_order_relaxed);
        if (gc_budget_held(&device->budget) > gc_budget_limit(&device->budget))
            gc_log_once(core->log, &device->over_limit_said, GC_LOG_WARN,
                        "device %d: a context, module or graph took the process above its limit of "
                        "%s; nothing more is given until it is below",
                        device->info.ordinal,
                        gc_text_size(gc_budget_limit(&device->budget), limit));
    } else
        gc_device_release_measured(device, 0 - (uint64_t)bytes);
}

bool gc_core_relieve(struct gc_core *core, struct gc_device *device, uint64_t wanted_bytes)
{
    struct gc_shortage shortage;
    const struct gc_decline decline = {0};
    (void)core;
    gc_shortage_begin(&shortage, device, NULL, NULL);
    const bool changed = gc_shortage_relieve(&shortage, wanted_bytes, &decline);
    if (changed)
        gc_counter_add(&device->stats.retry_count, 1);
    return changed;
}

/* ---- records ---- */

/* Takes the record's figures, but for its charge, out of the accounts. */
static void uncount(const struct gc_direct *direct, bool is_freed)
{
    struct gc_device *device = direct->device;
    const struct gc_entry entry = entry_of(direct);
    if (device == NULL)
        return;
    if (!gc_direct_is_allocation(direct->kind))
        gc_device_note_other_gone(device, &entry);
    else if (is_freed)
        gc_share_note_free(device, direct->share, &entry);
    else
        gc_share_note_vanished(device, direct->share, &entry);
    atomic_fetch_sub_explicit(&device->direct_bytes[direct->kind], bytes_of(direct),
                              memory_order_relaxed);
    if (direct->kind == GC_DIRECT_CONTEXT)
        gc_gauge_sub(&device->stats.context, bytes_of(direct));
}

static void settle(const struct gc_direct *direct, bool is_freed)
{
    uncount(direct, is_freed);
    if (direct->device != NULL && direct->charged_bytes != 0)
        gc_share_release(direct->device, direct->share, direct->charged_bytes);
}

void gc_direct_vanished(const struct gc_direct *direct)
{
    settle(direct, false);
}

enum gc_status gc_core_track(struct gc_core *core, const struct gc_direct *direct)
{
    struct gc_device *device = direct->device;
    struct gc_direct old;
    bool replaced;
    if ((unsigned)direct->kind >= GC_DIRECT_KIND_COUNT)
        return GC_INVALID_ARGUMENT;
    /* Counted first: another thread may untrack it as soon as it is in the table. */
    const struct gc_entry entry = entry_of(direct);
    if (device != NULL) {
        atomic_fetch_add_explicit(&device->direct_bytes[direct->kind], bytes_of(direct),
                                  memory_order_relaxed);
        if (direct->kind == GC_DIRECT_CONTEXT)
            gc_gauge_add(&device->stats.context, bytes_of(direct));
        if (gc_direct_is_allocation(direct->kind)) {
            gc_share_note_alloc(device, direct->share, &entry);
            gc_share_note_hit(device, direct->share, false);
        } else {
            gc_device_note_other(device, &entry);
        }
    }
    const enum gc_status status = gc_tracker_add(&core->tracker, direct, &replaced, &old);
    if (status != GC_OK) {
        uncount(direct, false); /* the charge stays with the caller */
        return status;
    }
    if (replaced)
        settle(&old, false);
    if (device != NULL && gc_direct_is_allocation(direct->kind))
        gc_device_observe(device, GC_TRACE_ALLOC, &entry);
    show(device);
    return GC_OK;
}

enum gc_status gc_core_untrack(struct gc_core *core, enum gc_direct_kind kind, uint64_t key,
                               struct gc_direct *direct)
{
    struct gc_direct removed;
    if (!gc_tracker_remove(&core->tracker, kind, key, &removed))
        return GC_NOT_OURS;
    settle(&removed, true);
    show(removed.device);
    if (direct != NULL)
        *direct = removed;
    return GC_OK;
}

enum gc_status gc_core_find_direct(struct gc_core *core, enum gc_direct_kind kind, uint64_t key,
                                   struct gc_direct *direct)
{
    return gc_tracker_find(&core->tracker, kind, key, direct) ? GC_OK : GC_NOT_OURS;
}
