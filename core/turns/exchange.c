/* Memory out and in, of the process or of one of its tenants. */
#include "core/backing/host.h"
#include "core/backing/kept.h"
#include "core/base/bits.h"
#include "core/base/clock.h"
#include "core/device/tenant.h"
#include "core/pause/away.h"
#include "core/turns/state.h"

#include <stddef.h>

/* Of memory that moves at once: part of the whole, so that both directions of the link are busy
 * soon, and large enough to make the calls of a chunk small beside it. */
#define CHUNK_PARTS 16
#define CHUNK_LEAST (UINT64_C(32) << 20)
#define CHUNK_MOST (UINT64_C(256) << 20)
#define DRAIN_MS 2000 /* for work under way */

static void beat(void *argument)
{
    struct gc_turns *turns = argument;
    gc_turns_beat(turns);
}

static uint64_t chunk_bytes(uint64_t whole)
{
    return gc_min_u64(gc_max_u64(whole / CHUNK_PARTS, CHUNK_LEAST), CHUNK_MOST);
}

static uint64_t held_bytes(const struct gc_device *device, const struct gc_tenant *tenant)
{
    return tenant == NULL ? gc_device_reserved_bytes(device)
                          : gc_tenant_resident_bytes(tenant, device);
}

/* ---- out ---- */

bool gc_turns_leave(struct gc_turns *turns, struct gc_tenant *tenant, struct gc_swap_result *result)
{
    return gc_away_begin(turns->core, tenant, DRAIN_MS, beat, turns, result);
}

/* A part of an exchange, as it moves. */
struct moving {
    struct gc_turns *turns;
    struct gc_device *device;
};

static void gave(void *argument, uint64_t bytes)
{
    const struct moving *moving = argument;
    gc_turns_beat(moving->turns);
    gc_turns_add(&moving->turns->slot->turn.out_bytes, bytes);
    gc_tenants_count_away(moving->device);
    gc_turns_publish_moved(moving->turns, moving->device, bytes, true);
    gc_turns_wake_waiting(moving->turns);
}

/* Memory that goes so that other memory comes back may use the reserve of host memory. */
static bool is_for_return(const struct gc_turns *turns, const struct gc_device *device)
{
    struct gc_account *account = device->budget.account;
    return gc_turn_head_returns(&turns->client->ledger, account->group_key, gc_account_row(account),
                                gc_account_limit(account));
}

uint64_t gc_turns_swap_out(struct gc_turns *turns, struct gc_device *device,
                           const struct gc_tenant *tenant, uint64_t bytes, bool is_exchange,
                           struct gc_swap_result *result)
{
    const uint64_t before = held_bytes(device, tenant);
    struct moving moving = {turns, device};
    const struct gc_swap_spec spec = {.keeps_content = true,
                                      .wanted_bytes = bytes,
                                      .chunk_bytes = chunk_bytes(gc_min_u64(bytes, before)),
                                      .moved = gave,
                                      .argument = &moving};
    const uint64_t begin_ns = gc_clock_ns();
    gc_host_set_exchange(turns->core, is_exchange || is_for_return(turns, device));
    const bool is_done = gc_away_give(device, tenant, &spec, result);
    gc_host_set_exchange(turns->core, false);
    const uint64_t took_ns = gc_clock_ns() - begin_ns;
    const uint64_t gone = gc_sub_or_zero_u64(before, held_bytes(device, tenant));
    if (is_done || (result->refusal == GC_SWAP_HOST && gone > 0))
        result->refusal = gone > 0 ? GC_SWAP_OK : GC_SWAP_EMPTY;
    gc_log_write(turns->core->log, GC_LOG_DEBUG,
                 "device %d: %s: asked for %llu MiB, gave %llu of %llu MiB in %llu us: %s",
                 device->info.ordinal, tenant == NULL ? "the process" : gc_tenant_name(tenant),
                 (unsigned long long)(bytes >> 20), (unsigned long long)(gone >> 20),
                 (unsigned long long)(before >> 20), (unsigned long long)(took_ns / 1000),
                 gc_swap_refusal_text(result->refusal));
    gc_turns_wake_waiting(turns);
    return took_ns;
}

/* ---- in ---- */

/* A process that gives in exchange for it needs the host memory. */
static void free_host(struct gc_core *core, uint64_t bytes)
{
    if (!gc_host_budget_is_tight(&core->host_budget))
        return;
    (void)gc_kept_purge(core, bytes);
    (void)gc_host_trim(core);
}

static void came(void *argument, uint64_t bytes)
{
    const struct moving *moving = argument;
    gc_turns_beat(moving->turns);
    gc_turns_add(&moving->turns->slot->turn.in_bytes, bytes);
    gc_tenants_count_away(moving->device);
    gc_turns_publish_moved(moving->turns, moving->device, bytes, false);
    free_host(moving->turns->core, bytes);
}

uint64_t gc_turns_swap_in(struct gc_turns *turns, struct gc_device *device,
                          const struct gc_tenant *tenant)
{
    struct moving moving = {turns, device};
    const struct gc_swap_spec spec = {.is_return = true,
                                      .chunk_bytes = chunk_bytes(gc_away_missing(device, tenant)),
                                      .moved = came,
                                      .argument = &moving};
    struct gc_swap_result result;
    const uint64_t begin_ns = gc_clock_ns();
    (void)gc_away_return(device, tenant, &spec, &result);
    return result.moved_bytes > 0 ? gc_clock_ns() - begin_ns : 0;
}
