/* The tenants of a process take turns in its memory, as processes do in that of their group. A
 * tenant that needs more than the group has room for gets it from the process's other tenants,
 * first from those that submit nothing, then from those whose quantum is over. Memory of no tenant
 * stays. */
#include "core/device/publish.h"
#include "core/device/tenant.h"

#include "core/base/bits.h"
#include "core/base/clock.h"
#include "core/pause/away.h"
#include "core/pause/pause.h"
#include "core/turns/state.h"

#include <stddef.h>

/* A tenant that submits nothing for so long is without work. Work under way is not known by tenant:
 * all of it is waited for. */
#define IDLE_NS (100 * GC_NS_PER_MS)
#define STUCK_NS GC_NS_PER_S
/* During that wait no thread submits work. The next attempt comes so many times later than it
 * took. */
#define DRAIN_TIMES 5

static uint64_t load(const _Atomic uint64_t *word)
{
    return atomic_load_explicit(word, memory_order_relaxed);
}

void gc_turns_demand_tenant(struct gc_turns *turns, struct gc_tenant *tenant)
{
    uint64_t none = 0;
    if (atomic_compare_exchange_strong_explicit(&tenant->turn.demanded_ns, &none, gc_clock_ns(),
                                                memory_order_seq_cst, memory_order_relaxed))
        gc_ledger_wake(&turns->client->ledger, turns->client->ledger.own);
}

/* ---- the tenant that needs memory ---- */

struct finding {
    uint64_t now_ns;
    uint64_t since_ns;
    struct gc_tenant *tenant;
};

/* Since when a thread needs the tenant's memory, or pages for it; 0: none does. */
static uint64_t needy_since(const struct gc_tenant *tenant)
{
    const uint64_t demanded_ns = gc_tenant_is_away(tenant) ? load(&tenant->turn.demanded_ns) : 0;
    if (demanded_ns != 0 || atomic_load_explicit(&tenant->turn.wanting, memory_order_seq_cst) == 0)
        return demanded_ns;
    return load(&tenant->turn.wanted_ns);
}

static void find(void *argument, struct gc_tenant *tenant)
{
    struct finding *finding = argument;
    const uint64_t since_ns = needy_since(tenant);
    if (since_ns == 0 || since_ns >= finding->since_ns || gc_tenant_is_paused(tenant) ||
        finding->now_ns < tenant->turn.stuck_ns)
        return;
    finding->since_ns = since_ns;
    finding->tenant = tenant;
}

/* The tenant that needs memory longest. */
static struct gc_tenant *find_needy(const struct gc_turns *turns)
{
    struct finding finding = {.now_ns = gc_clock_ns(), .since_ns = UINT64_MAX};
    gc_tenants_visit(turns->core, find, &finding);
    return finding.tenant;
}

static uint64_t wanted_bytes(const struct gc_tenant *tenant, const struct gc_device *device)
{
    const struct gc_quota *quota = gc_tenant_quota_at(tenant, device->info.ordinal);
    return quota == NULL ? 0 : atomic_load_explicit(&quota->wanted, memory_order_relaxed);
}

struct counting {
    const struct gc_device *device;
    uint64_t bytes;
};

/* ---- giving ---- */

struct giving {
    struct gc_device *device;
    struct gc_tenant *needy;
    uint64_t now_ns;
    uint64_t least_ns;   /* of a quantum */
    uint64_t guarded_ns; /* since when work is looked at */
    uint64_t bytes;      /* of all that may give, now or later */
    struct gc_tenant *chosen;
    uint64_t rank[2]; /* of the chosen one; less is first */
    bool has_later;
};

static uint64_t quantum_ns(const struct giving *giving, const struct gc_tenant *tenant)
{
    return gc_max_u64(giving->least_ns, GC_TURN_QUANTUM_TIMES * tenant->turn.exchange_ns);
}

/* Whether the tenant may give now, and its rank: those away, of which a part is resident; those
 * without work, the longest first; busy ones, the earliest turn first. */
static bool may_give(const struct giving *giving, const struct gc_tenant *tenant, uint64_t rank[2])
{
    const uint64_t seen_ns = gc_max_u64(load(&tenant->turn.worked_ns), giving->guarded_ns);
    const uint64_t worked_ns = gc_max_u64(seen_ns, tenant->turn.begin_ns);
    const bool is_idle = giving->now_ns >= worked_ns + IDLE_NS;
    rank[0] = gc_tenant_is_away(tenant) ? 0 : is_idle ? 1 : 2;
    rank[1] = rank[0] == 1 ? worked_ns : tenant->turn.begin_ns;
    return rank[0] < 2 || giving->now_ns >= tenant->turn.begin_ns + quantum_ns(giving, tenant);
}

/* Since when the tenants' work is looked at; while the gate is open it is not. */
static uint64_t guarded_since(const struct gc_turns *turns)
{
    return gc_gate_mode_of(gc_gate_read(&turns->core->work.gate)) == GC_GATE_OPEN
               ? gc_clock_ns()
               : turns->guarded_ns;
}

/* The one that comes first by its rank. */
static void choose(struct giving *giving, struct gc_tenant *tenant, const uint64_t rank[2])
{
    if (giving->chosen != NULL &&
        (giving->rank[0] < rank[0] || (giving->rank[0] == rank[0] && giving->rank[1] <= rank[1])))
        return;
    giving->chosen = tenant;
    giving->rank[0] = rank[0];
    giving->rank[1] = rank[1];
}

static void rate(void *argument, struct gc_tenant *tenant)
{
    struct giving *giving = argument;
    const uint64_t bytes = gc_tenant_resident_bytes(tenant, giving->device);
    const bool is_late = giving->now_ns < tenant->turn.not_before_ns;
    uint64_t rank[2];
    if (tenant == giving->needy || bytes == 0 || !gc_tenant_is_open(tenant) ||
        gc_tenant_is_paused(tenant) || (is_late && tenant->turn.is_fixed))
        return;
    giving->bytes += bytes;
    if (is_late || !may_give(giving, tenant, rank)) {
        giving->has_later = true;
        return;
    }
    choose(giving, tenant, rank);
}

static void refuse(struct gc_turns *turns, struct gc_tenant *tenant, enum gc_swap_refusal refusal,
                   uint64_t took_ns)
{
    tenant->turn.is_fixed = !gc_turns_is_passing(refusal);
    tenant->turn.not_before_ns =
        gc_clock_ns() + gc_max_u64(gc_turns_again_ns(turns, refusal), DRAIN_TIMES * took_ns);
}

static bool leave(struct gc_turns *turns, struct gc_tenant *tenant)
{
    struct gc_swap_result result;
    const uint64_t begin_ns = gc_clock_ns();
    if (gc_tenant_is_away(tenant))
        return true;
    turns->guarded_ns = guarded_since(turns);
    /* A thread that finds the tenant away from now on demands. */
    atomic_store_explicit(&tenant->turn.demanded_ns, 0, memory_order_seq_cst);
    if (!gc_turns_leave(turns, tenant, &result)) {
        refuse(turns, tenant, result.refusal, gc_clock_ns() - begin_ns);
        return false;
    }
    tenant->turn.exchange_ns = 0;
    return true;
}

static bool give(struct gc_turns *turns, struct gc_device *device, struct gc_tenant *tenant,
                 uint64_t bytes, bool is_exchange)
{
    struct gc_swap_result result;
    if (!leave(turns, tenant))
        return false;
    tenant->turn.exchange_ns +=
        gc_turns_swap_out(turns, device, tenant, bytes, is_exchange, &result);
    gc_publish_tenant(tenant);
    if (result.refusal != GC_SWAP_OK)
        refuse(turns, tenant, result.refusal, 0);
    return result.refusal == GC_SWAP_OK;
}

enum gc_turns_room gc_turns_make_room(struct gc_turns *turns, struct gc_device *device,
                                      uint64_t need)
{
    struct gc_account *account = device->budget.account;
    const uint64_t lacking = gc_turns_lacking(device, need);
    const uint64_t own = gc_account_of(account, account->ledger->own);
    struct giving giving = {.device = device,
                            .needy = find_needy(turns),
                            .now_ns = gc_clock_ns(),
                            .guarded_ns = guarded_since(turns),
                            .least_ns = turns->core->options->quantum_ms * GC_NS_PER_MS};
    uint64_t most;
    gc_tenants_visit(turns->core, rate, &giving);
    /* Else memory would move in vain. */
    if (lacking == 0 || giving.bytes == 0 ||
        !gc_add_u64(giving.bytes, gc_sub_or_zero_u64(gc_account_held(account), own), &most) ||
        most < lacking)
        return GC_TURNS_NO_ROOM;
    if (giving.chosen != NULL && give(turns, device, giving.chosen, lacking,
                                      giving.needy != NULL && gc_tenant_is_away(giving.needy))) {
        if (giving.needy != NULL && !gc_tenant_is_away(giving.needy))
            giving.needy->turn.begin_ns = gc_clock_ns(); /* a tenant that grows keeps it, too */
        return GC_TURNS_ROOM;
    }
    return giving.has_later || giving.chosen != NULL ? GC_TURNS_ROOM_LATER : GC_TURNS_NO_ROOM;
}

bool gc_turns_give_idle(struct gc_turns *turns, struct gc_device *device, uint64_t bytes)
{
    struct giving giving = {.device = device,
                            .now_ns = gc_clock_ns(),
                            .guarded_ns = guarded_since(turns),
                            .least_ns = UINT64_MAX / 2};
    gc_tenants_visit(turns->core, rate, &giving);
    return giving.chosen != NULL && give(turns, device, giving.chosen, bytes, false);
}

/* ---- a process that comes back ---- */

struct parting {
    struct giving giving;
    uint32_t in_count; /* tenants with memory of the device that come back with the process */
};

static void rate_parting(void *argument, struct gc_tenant *tenant)
{
    struct parting *parting = argument;
    struct giving *giving = &parting->giving;
    const bool is_away = gc_tenant_is_away(tenant);
    const uint64_t bytes = gc_tenant_resident_bytes(tenant, giving->device) +
                           (is_away ? 0 : gc_away_missing(giving->device, tenant));
    uint64_t rank[2];
    if (bytes == 0 || !gc_tenant_is_open(tenant) || gc_tenant_is_paused(tenant))
        return;
    parting->in_count += is_away ? 0 : 1;
    (void)may_give(giving, tenant, rank);
    choose(giving, tenant, rank);
}

bool gc_turns_leave_tenant(struct gc_turns *turns, struct gc_device *device)
{
    struct parting parting = {.giving = {.device = device, .now_ns = gc_clock_ns()}};
    gc_tenants_visit(turns->core, rate_parting, &parting);
    struct gc_tenant *tenant = parting.giving.chosen;
    if (tenant == NULL || (!gc_tenant_is_away(tenant) && parting.in_count < 2) ||
        !leave(turns, tenant))
        return false;
    const uint64_t lacking = gc_turns_lacking(device, gc_away_missing(device, NULL));
    return lacking == 0 || gc_tenant_resident_bytes(tenant, device) == 0 ||
           give(turns, device, tenant, lacking, true);
}

/* ---- coming back ---- */

static void begin_stay(struct gc_turns *turns, struct gc_tenant *tenant)
{
    tenant->turn.begin_ns = gc_clock_ns();
    tenant->turn.not_before_ns = 0;
    gc_turns_add(&turns->slot->turn.exchange_count, 1);
    gc_publish_tenant(tenant);
}

static uint64_t missing_bytes(const struct gc_turns *turns, const struct gc_tenant *tenant)
{
    uint64_t sum = 0;
    for (int i = 0; i < GC_DEVICE_MAX; i++) {
        uint32_t row;
        struct gc_device *device = gc_turns_device(turns, i, &row);
        sum += device == NULL ? 0 : gc_away_missing(device, tenant);
    }
    return sum;
}

/* What has room; without demand only what needs none. */
static void bring_back(struct gc_turns *turns, struct gc_tenant *tenant)
{
    for (int i = 0; i < GC_DEVICE_MAX; i++) {
        uint32_t row;
        struct gc_device *device = gc_turns_device(turns, i, &row);
        const uint64_t missing = device == NULL ? 0 : gc_away_missing(device, tenant);
        if (device != NULL &&
            (missing == 0 ||
             gc_account_has_room(device->budget.account, gc_min_u64(missing, GC_PAGE_BYTES_MIN))))
            tenant->turn.exchange_ns += gc_turns_swap_in(turns, device, tenant);
    }
    /* First: a thread that finds the tenant away later demands again. */
    const uint64_t since_ns =
        atomic_exchange_explicit(&tenant->turn.demanded_ns, 0, memory_order_seq_cst);
    if (gc_away_end(turns->core, tenant))
        begin_stay(turns, tenant);
    else if (since_ns != 0)
        atomic_store_explicit(&tenant->turn.demanded_ns, since_ns, memory_order_seq_cst);
}

struct returning {
    struct gc_turns *turns;
    const struct gc_tenant *needy;
};

static void serve(void *argument, struct gc_tenant *tenant)
{
    const struct returning *returning = argument;
    if (gc_tenant_is_away(tenant) && !gc_tenant_is_paused(tenant) &&
        (tenant == returning->needy || missing_bytes(returning->turns, tenant) == 0))
        bring_back(returning->turns, tenant);
}

void gc_turns_serve_tenants(struct gc_turns *turns)
{
    struct returning returning = {turns, find_needy(turns)};
    if (!gc_pause_is_any(turns->core))
        gc_tenants_visit(turns->core, serve, &returning);
}

static void sub_wanted(void *argument, struct gc_tenant *tenant)
{
    struct counting *counting = argument;
    counting->bytes = gc_sub_or_zero_u64(counting->bytes, wanted_bytes(tenant, counting->device));
}

uint64_t gc_turns_need(const struct gc_turns *turns, struct gc_device *device, uint64_t wanted)
{
    const struct gc_tenant *needy = find_needy(turns);
    struct counting of_none = {device, wanted};
    gc_tenants_visit(turns->core, sub_wanted, &of_none);
    if (needy == NULL)
        return of_none.bytes;
    return of_none.bytes + (gc_tenant_is_away(needy) ? gc_away_missing(device, needy)
                                                     : wanted_bytes(needy, device));
}

bool gc_turns_set_stuck(struct gc_turns *turns)
{
    struct gc_tenant *needy = find_needy(turns);
    if (needy == NULL || !gc_tenant_is_away(needy))
        return false;
    needy->turn.stuck_ns = gc_clock_ns() + STUCK_NS;
    return true;
}
