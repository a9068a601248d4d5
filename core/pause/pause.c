#include "core/pause/pause.h"

#include "core/base/assert.h"
#include "core/device/lookup.h"
#include "core/device/publish.h"
#include "core/device/registry.h"
#include "core/device/tenant.h"
#include "core/group/group.h"
#include "core/pause/scope.h"
#include "core/pause/swap.h"

#include <stddef.h>

/* ---- state ---- */

bool gc_pause_is_any(const struct gc_core *core)
{
    return atomic_load_explicit(&core->is_paused, memory_order_relaxed);
}

struct gc_tenant *gc_pause_find(struct gc_core *core, uint64_t address)
{
    struct gc_block *block;
    struct gc_tenant *tenant = NULL;
    if (address == 0 || gc_lookup_lock_block(core, address, &block) != GC_OK)
        return NULL;
    struct gc_pool *pool = gc_block_pool(block);
    tenant = pool->context->tenant;
    gc_pool_release(pool);
    return tenant != NULL && gc_tenant_is_out(tenant) ? tenant : NULL;
}

/* ---- pause ---- */

struct pausing {
    struct gc_core *core;
    const struct gc_pause_request *request;
    struct gc_scope_deadline deadline;
    struct gc_swap_result *result;
};

static bool fail(struct gc_swap_result *result, enum gc_swap_refusal refusal)
{
    result->refusal = refusal;
    return false;
}

static bool swap_out(struct gc_context *context, void *argument)
{
    struct pausing *pausing = argument;
    struct gc_swap_result one;
    const bool is_done = gc_swap_out_all(context, pausing->request->keeps_content, &one);
    pausing->result->refusal = one.refusal;
    pausing->result->driver_code = one.driver_code;
    pausing->result->moved_bytes += one.moved_bytes;
    return gc_scope_is_moved(context, is_done, pausing->result);
}

static bool swap_in(struct gc_context *context, void *argument)
{
    struct gc_swap_result *result = argument;
    struct gc_swap_result one;
    if (!gc_swap_is_out(context))
        return true;
    const bool is_done = gc_swap_in(context, &one);
    result->refusal = one.refusal;
    result->driver_code = one.driver_code;
    result->moved_bytes += one.moved_bytes;
    return gc_scope_is_moved(context, is_done, result);
}

static bool swap_in_scope(struct gc_core *core, const struct gc_tenant *tenant,
                          struct gc_swap_result *result)
{
    return gc_scope_visit_in(core, tenant, swap_in, result);
}

/* Bytes that are still reserved after the swap. */
static uint64_t reserved_bytes(struct gc_core *core, struct gc_tenant *tenant)
{
    struct gc_tenant_figures figures;
    uint64_t bytes = 0;
    if (tenant != NULL)
        return gc_tenant_read(tenant, NULL, &figures) ? figures.reserved.current : 0;
    for (int i = 0; i < GC_DEVICE_MAX; i++) {
        const struct gc_device *device = gc_device_find(core, i);
        bytes += device == NULL ? 0 : gc_device_reserved_bytes(device);
    }
    return bytes;
}

static void publish_paused(struct gc_core *core, struct gc_tenant *tenant, bool is_paused)
{
    if (tenant != NULL) {
        gc_publish_tenant_paused(tenant, is_paused);
        return;
    }
    atomic_store_explicit(&core->is_paused, is_paused, memory_order_relaxed);
    gc_publish_paused(core, is_paused);
}

/* Call with the gate closed. True: all memory of the scope is swapped out. */
static bool swap_out_scope(struct pausing *pausing)
{
    struct gc_core *core = pausing->core;
    const struct gc_tenant *tenant = pausing->request->tenant;
    return gc_scope_drain(core, tenant, &pausing->deadline, pausing->result) &&
           gc_scope_visit(core, tenant, swap_out, pausing);
}

/* True: the scope is paused. Also true if only a part was swapped out and cannot be swapped in
 * again: the caller resumes the scope later. What a turn's end had taken out stays out. */
static bool pause_scope(struct pausing *pausing)
{
    struct gc_core *core = pausing->core;
    struct gc_tenant *tenant = pausing->request->tenant;
    struct gc_swap_result *result = pausing->result;
    result->refusal = gc_scope_check(core, tenant);
    if (result->refusal != GC_SWAP_OK)
        return false;
    gc_submitter_close_gate(&core->work);
    if (!swap_out_scope(pausing)) {
        const struct gc_swap_result why = *result;
        if (gc_scope_is_away(core, tenant) || swap_in_scope(core, tenant, result)) {
            *result = why;
            result->moved_bytes = 0;
            return false;
        }
        result->refusal = GC_SWAP_OK;
    }
    result->stays_bytes = reserved_bytes(core, tenant);
    return true;
}

static bool begin_pause(struct gc_core *core, const struct gc_pause_request *request,
                        struct gc_swap_result *result)
{
    if (!request->is_vouched &&
        atomic_load_explicit(&core->work.is_conservative, memory_order_relaxed))
        return fail(result, GC_SWAP_UNSEEN);
    if (request->tenant == NULL && gc_pause_is_any(core))
        return fail(result, GC_SWAP_AGAIN);
    return request->tenant == NULL || gc_tenant_begin_pause(request->tenant) == GC_OK ||
           fail(result, GC_SWAP_AGAIN);
}

static bool pause_alone(struct gc_core *core, const struct gc_pause_request *request,
                        struct gc_swap_result *result)
{
    struct pausing pausing = {.core = core, .request = request, .result = result};
    GC_ASSERT(gc_lock_held_count() == 0);
    *result = (struct gc_swap_result){.refusal = GC_SWAP_OK};
    if (!begin_pause(core, request, result))
        return false;
    pausing.deadline = gc_scope_deadline_in(core, request->timeout_ms);
    /* A pause of the process has swapped out the tenant's pools, too; a turn's end, a part. */
    const bool is_out =
        request->tenant != NULL && (gc_pause_is_any(core) || gc_scope_is_away(core, NULL));
    const bool is_done = is_out || pause_scope(&pausing);
    publish_paused(core, request->tenant, is_done);
    gc_scope_set_gate(core);
    return is_done;
}

/* ---- resume ---- */

/* Where the process takes turns, memory comes back in its turn: work waits until then. */
static void leave_to_turn(struct gc_core *core, struct gc_tenant *tenant)
{
    if (tenant == NULL)
        atomic_store_explicit(&core->is_away, true, memory_order_relaxed);
    else
        atomic_store_explicit(&tenant->turn.is_away, true, memory_order_seq_cst);
    publish_paused(core, tenant, false);
    gc_scope_set_gate(core);
    core->demand(core, tenant);
}

static bool resume_alone(struct gc_core *core, struct gc_tenant *tenant,
                         struct gc_swap_result *result)
{
    GC_ASSERT(gc_lock_held_count() == 0);
    *result = (struct gc_swap_result){.refusal = GC_SWAP_OK};
    if (!(tenant == NULL ? gc_pause_is_any(core) : gc_tenant_is_paused(tenant)))
        return fail(result, GC_SWAP_AGAIN);
    if (core->demand != NULL) {
        leave_to_turn(core, tenant);
        return true;
    }
    /* While the process is paused, or away, the memory stays out: its return swaps it in. */
    const bool is_later =
        tenant != NULL && (gc_pause_is_any(core) || gc_scope_is_away(core, tenant));
    if (!is_later && !swap_in_scope(core, tenant, result))
        return false;
    publish_paused(core, tenant, false);
    gc_scope_set_gate(core);
    return true;
}

/* ---- one at a time ---- */

bool gc_pause(struct gc_core *core, const struct gc_pause_request *request,
              struct gc_swap_result *result)
{
    return gc_scope_begin_moving(core, result) &&
           gc_scope_end_moving(core, pause_alone(core, request, result));
}

bool gc_pause_resume(struct gc_core *core, struct gc_tenant *tenant, struct gc_swap_result *result)
{
    return gc_scope_begin_moving(core, result) &&
           gc_scope_end_moving(core, resume_alone(core, tenant, result));
}

/* ---- a moment without work ---- */

static bool run_without_work(struct pausing *pausing, bool (*function)(void *argument),
                             void *argument)
{
    struct gc_core *core = pausing->core;
    if (gc_scope_is_capturing(core))
        return false;
    gc_submitter_close_gate(&core->work);
    const bool is_done =
        gc_scope_quiesce(core, &pausing->deadline, pausing->result) && function(argument);
    gc_scope_set_gate(core);
    return is_done;
}

bool gc_pause_during(struct gc_core *core, uint32_t timeout_ms, bool (*function)(void *argument),
                     void *argument)
{
    const struct gc_pause_request request = {.keeps_content = true, .timeout_ms = timeout_ms};
    struct gc_swap_result result;
    struct pausing pausing = {.core = core, .request = &request, .result = &result};
    GC_ASSERT(gc_lock_held_count() == 0);
    if (atomic_load_explicit(&core->work.is_conservative, memory_order_relaxed) ||
        gc_pause_is_any(core) || !gc_scope_begin_moving(core, &result))
        return false;
    if (gc_scope_is_away(core, NULL))
        return gc_scope_end_moving(core, false);
    pausing.deadline = gc_scope_deadline_in(core, timeout_ms);
    return gc_scope_end_moving(core, run_without_work(&pausing, function, argument));
}
