#include "core/pause/away.h"

#include "core/base/bits.h"
#include "core/device/registry.h"
#include "core/device/tenant.h"

#include <stddef.h>

/* ---- the end of the turn ---- */

static bool is_unseen(const struct gc_core *core, struct gc_swap_result *result)
{
    if (!atomic_load_explicit(&core->work.is_conservative, memory_order_seq_cst))
        return false;
    result->refusal = GC_SWAP_UNSEEN;
    return true;
}

static bool set_away(struct gc_core *core, struct gc_tenant *tenant, struct gc_swap_result *result)
{
    if (tenant == NULL)
        atomic_store_explicit(&core->is_away, true, memory_order_relaxed);
    else if (!gc_tenant_begin_away(tenant))
        result->refusal = GC_SWAP_AGAIN; /* it is being removed */
    return result->refusal == GC_SWAP_OK;
}

static bool begin(struct gc_core *core, struct gc_tenant *tenant,
                  const struct gc_scope_deadline *deadline, struct gc_swap_result *result)
{
    if (is_unseen(core, result))
        return false;
    result->refusal = gc_scope_check(core, tenant);
    if (result->refusal != GC_SWAP_OK)
        return false;
    gc_submitter_close_gate(&core->work);
    /* Again: a thread that sets the flag later finds the gate closed, and waits. */
    const bool is_done = !is_unseen(core, result) &&
                         gc_scope_drain(core, tenant, deadline, result) &&
                         set_away(core, tenant, result);
    if (!is_done || tenant != NULL)
        gc_scope_set_gate(core);
    return is_done;
}

bool gc_away_begin(struct gc_core *core, struct gc_tenant *tenant, uint64_t timeout_ms,
                   void (*waiting)(void *argument), void *argument, struct gc_swap_result *result)
{
    struct gc_scope_deadline deadline = gc_scope_deadline_in(core, timeout_ms);
    deadline.waiting = waiting;
    deadline.argument = argument;
    return gc_scope_begin_moving(core, result) &&
           gc_scope_end_moving(core, begin(core, tenant, &deadline, result));
}

/* ---- parts ---- */

/* Calls for each context of one device. */
struct moving {
    struct gc_device *device;
    struct gc_swap_spec spec; /* what is left to do */
    struct gc_swap_result *result;
};

static bool move(struct gc_context *context, struct moving *moving,
                 bool (*swap)(struct gc_context *context, const struct gc_swap_spec *spec,
                              struct gc_swap_result *result))
{
    struct gc_swap_result one;
    const bool is_done = swap(context, &moving->spec, &one);
    moving->result->refusal = one.refusal;
    moving->result->driver_code = one.driver_code;
    moving->result->moved_bytes += one.moved_bytes;
    moving->spec.wanted_bytes = gc_sub_or_zero_u64(moving->spec.wanted_bytes, one.moved_bytes);
    return gc_scope_is_moved(context, is_done, moving->result);
}

static bool give(struct gc_context *context, void *argument)
{
    struct moving *moving = argument;
    return context->device != moving->device || moving->spec.wanted_bytes == 0 ||
           move(context, moving, gc_swap_out);
}

static bool come_back(struct gc_context *context, void *argument)
{
    struct moving *moving = argument;
    return context->device != moving->device || !gc_swap_is_out(context) ||
           move(context, moving, gc_swap_in_part);
}

bool gc_away_give(struct gc_device *device, const struct gc_tenant *tenant,
                  const struct gc_swap_spec *spec, struct gc_swap_result *result)
{
    struct moving moving = {device, *spec, result};
    moving.spec.is_drained = tenant != NULL; /* others submit work meanwhile */
    return gc_scope_begin_moving(device->core, result) &&
           gc_scope_end_moving(device->core, gc_scope_visit(device->core, tenant, give, &moving));
}

bool gc_away_return(struct gc_device *device, const struct gc_tenant *tenant,
                    const struct gc_swap_spec *spec, struct gc_swap_result *result)
{
    struct gc_core *core = device->core;
    struct moving moving = {device, *spec, result};
    return gc_scope_begin_moving(core, result) &&
           gc_scope_end_moving(core, gc_scope_visit_in(core, tenant, come_back, &moving));
}

struct counting {
    const struct gc_device *device;
    uint64_t bytes;
};

static bool count_missing(struct gc_context *context, void *argument)
{
    struct counting *counting = argument;
    if (context->device == counting->device)
        counting->bytes += gc_swap_missing_bytes(context);
    return true;
}

uint64_t gc_away_missing(struct gc_device *device, const struct gc_tenant *tenant)
{
    struct counting counting = {device, 0};
    (void)gc_scope_visit_in(device->core, tenant, count_missing, &counting);
    return counting.bytes;
}

/* ---- the next turn ---- */

static bool is_in(struct gc_context *context, void *argument)
{
    (void)argument;
    return !gc_swap_is_out(context);
}

/* A pause that began meanwhile keeps the gate closed. */
static bool end(struct gc_core *core, struct gc_tenant *tenant)
{
    if (!gc_scope_visit_in(core, tenant, is_in, NULL))
        return false;
    /* Sequentially consistent, as the gate's word, which changes after it. */
    atomic_store_explicit(tenant == NULL ? &core->is_away : &tenant->turn.is_away, false,
                          memory_order_seq_cst);
    gc_scope_set_gate(core);
    return true;
}

bool gc_away_end(struct gc_core *core, struct gc_tenant *tenant)
{
    struct gc_swap_result ignored;
    return gc_scope_begin_moving(core, &ignored) && gc_scope_end_moving(core, end(core, tenant));
}
