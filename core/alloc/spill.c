/* Which memory gives way: older blocks that together are as large as what is lacking
 * (pause/move.h), or the request itself, which then lies in host memory from the start: nothing
 * waits and nothing is copied. It is served under the pool's change, so that no capture begins
 * meanwhile and its peers are those of that time. */
#include "core/alloc/spill.h"

#include "core/backing/change.h"
#include "core/backing/spill.h"
#include "core/base/bits.h"
#include "core/device/registry.h"
#include "core/io/text.h"
#include "core/pause/move.h"
#include "core/reclaim/defer.h"

#include <stddef.h>

#define MOVE_PAUSES 9 /* the time without moves after one that failed, in times of that one */

bool gc_spill_alloc_is_on(const struct gc_core *core)
{
    return (core->options->overcommit & GC_OVERCOMMIT_SPILL) != 0 && core->mode == GC_MODE_CACHE &&
           core->debug == NULL;
}

void gc_spill_alloc_check(const struct gc_core *core)
{
    if ((core->options->overcommit & GC_OVERCOMMIT_SPILL) == 0 || gc_spill_alloc_is_on(core))
        return;
    gc_log_write(core->log, GC_LOG_WARN,
                 "GPUCACHE_OVERCOMMIT=spill has no effect with %s: memory that does not fit is "
                 "refused",
                 core->debug != NULL ? "GPUCACHE_DEBUG" : "GPUCACHE_MODE=track");
}

/* No memory is mapped during a capture. */
static bool may_spill(const struct gc_context *context)
{
    return gc_spill_alloc_is_on(context->core) && !gc_capture_is_of_context(context);
}

/* What `bytes` more are beyond the limit. */
static uint64_t excess(uint64_t held, uint64_t bytes, uint64_t limit)
{
    return gc_sub_or_zero_u64(bytes, gc_sub_or_zero_u64(limit, held));
}

/* Why the bytes have no room, and *lacking, how much of it: all, where only the device is full. */
static enum gc_spill_reason reason_of(const struct gc_context *context, uint64_t bytes,
                                      uint64_t *lacking)
{
    const struct gc_device *device = context->device;
    const struct gc_quota *quota = context->quota;
    struct gc_account *account = device->budget.account;
    const uint64_t of[GC_SPILL_DEVICE] = {
        [GC_SPILL_LIMIT] =
            excess(gc_budget_held(&device->budget), bytes, gc_device_own_limit_bytes(device)),
        [GC_SPILL_GROUP] = account == NULL
                               ? 0
                               : excess(gc_account_held(account), bytes, gc_account_limit(account)),
        [GC_SPILL_TENANT] = quota == NULL ? 0
                                          : excess(gc_budget_held(&quota->budget), bytes,
                                                   gc_budget_limit(&quota->budget)),
    };
    enum gc_spill_reason reason = GC_SPILL_DEVICE;
    *lacking = 0;
    for (unsigned i = 0; i < GC_SPILL_DEVICE; i++) {
        if (of[i] <= *lacking)
            continue;
        reason = (enum gc_spill_reason)i;
        *lacking = of[i];
    }
    if (reason == GC_SPILL_DEVICE)
        *lacking = bytes;
    return reason;
}

static void log_first(const struct gc_context *context, const struct gc_spilled *spilled)
{
    static const char *const whats[GC_SPILL_REASON_COUNT] = {
        [GC_SPILL_LIMIT] = "the limit",
        [GC_SPILL_GROUP] = "the group's limit",
        [GC_SPILL_TENANT] = "the tenant's limit",
        [GC_SPILL_DEVICE] = "the device",
    };
    struct gc_device *device = context->device;
    char size[GC_TEXT_SIZE_BYTES];
    if (gc_counter_read(&device->stats.spill_count) != 0)
        return;
    gc_log_write(context->core->log, GC_LOG_WARN,
                 "device %d: %s is full: %s lie in host memory now, which is slower; the report "
                 "lists such memory (GPUCACHE_OVERCOMMIT=spill)",
                 device->info.ordinal, whats[spilled->reason], gc_text_size(spilled->bytes, size));
}

static void record(struct gc_context *context, const struct gc_spilled *spilled)
{
    gc_spills_add(&context->core->spills, &context->core->host, spilled);
    log_first(context, spilled);
    gc_counter_add(&context->device->stats.spill_count, 1);
}

static enum gc_status create(struct gc_context *context, struct gc_alloc_spec *spec,
                             uint64_t *address)
{
    const uint64_t start_ns = gc_core_now_ns(context->core);
    uint64_t ignored;
    struct gc_segment_failure failure = {0};
    const struct gc_segment_spec segment_spec = {
        .size_class = GC_CLASS_UNCACHED, .is_spilled = true, .bytes = spec->bytes};
    struct gc_spilled spilled = {
        .bytes = spec->bytes,
        .span_bytes = spec->bytes,
        .at_ns = start_ns,
        .ordinal = context->device->info.ordinal,
        .api = spec->api,
        .reason = (uint8_t)reason_of(context, spec->bytes, &ignored),
    };
    const enum gc_status status =
        gc_segment_create(context, &segment_spec, spec, address, &failure);
    if (status == GC_OK) {
        spilled.address = *address;
        spilled.cost_ns = gc_core_now_ns(context->core) - start_ns;
        record(context, &spilled);
    } else if (status == GC_DRIVER) {
        gc_log_write(context->core->log, GC_LOG_WARN,
                     "device %d: no host memory for a request that does not fit (driver code %d)",
                     context->device->info.ordinal, failure.driver_code);
    }
    return status;
}

static bool may_move(const struct gc_core *core, uint64_t now_ns)
{
    return now_ns >= atomic_load_explicit(&core->spills.move_after_ns, memory_order_relaxed);
}

/* A move that failed held the program's work back: such waits take a tenth of the time at most. */
static void put_off_moves(struct gc_core *core, uint64_t start_ns)
{
    const uint64_t now_ns = gc_core_now_ns(core);
    atomic_store_explicit(&core->spills.move_after_ns, now_ns + MOVE_PAUSES * (now_ns - start_ns),
                          memory_order_relaxed);
}

struct making_room {
    struct gc_context *context;
    uint64_t since_ns; /* the block before, or the begin */
    enum gc_spill_reason reason;
    uint64_t device_bytes;
};

static void note_moved(void *argument, const struct gc_moved *moved)
{
    struct making_room *making = argument;
    const uint64_t now_ns = gc_core_now_ns(making->context->core);
    const struct gc_spilled spilled = {
        .address = moved->address,
        .bytes = moved->moved_bytes,
        .span_bytes = moved->block_bytes,
        .at_ns = making->since_ns,
        .cost_ns = now_ns - making->since_ns,
        .ordinal = making->context->device->info.ordinal,
        .api = moved->api,
        .reason = (uint8_t)making->reason,
        .is_moved = true,
    };
    record(making->context, &spilled);
    making->since_ns = now_ns;
    making->device_bytes += moved->device_bytes;
}

bool gc_spill_make_room(struct gc_context *context, const struct gc_alloc_spec *spec)
{
    const uint64_t start_ns = gc_core_now_ns(context->core);
    struct making_room making = {.context = context, .since_ns = start_ns};
    uint64_t bytes;
    uint64_t lacking;
    if (!may_spill(context) || !may_move(context->core, start_ns) ||
        !gc_spill_round(context, spec->bytes, &bytes))
        return false;
    making.reason = reason_of(context, bytes, &lacking);
    if (!gc_move_blocks(context, lacking, note_moved, &making)) {
        put_off_moves(context->core, start_ns);
        return false;
    }
    return making.device_bytes > 0;
}

enum gc_status gc_spill_alloc(struct gc_context *context, struct gc_alloc_spec *spec,
                              uint64_t *address)
{
    struct gc_change change;
    struct gc_alloc_spec whole = *spec;
    /* All addresses of a tenant lie in its range. */
    if (!may_spill(context) || context->tenant != NULL ||
        !gc_spill_round(context, spec->bytes, &whole.bytes))
        return GC_OUT_OF_MEMORY;
    gc_defer_release_uncached(context); /* host memory that a failure has left */
    if (gc_change_begin(context, &change) != GC_OK)
        return GC_OUT_OF_MEMORY;
    const enum gc_status status = create(context, &whole, address);
    gc_change_end(&change);
    if (status == GC_OK)
        *spec = whole;
    return status == GC_OK || status == GC_INVALID_ARGUMENT ? status : GC_OUT_OF_MEMORY;
}
