#include "core/pause/scope.h"

#include "core/base/assert.h"
#include "core/device/registry.h"
#include "core/device/tenant.h"

#include <stddef.h>
#include <time.h>

#define POLL_NS 200000
#define DRAIN_SLICE_MS 10 /* between two checks of the deadline */

bool gc_scope_begin_moving(struct gc_core *core, struct gc_swap_result *result)
{
    GC_ASSERT(gc_lock_held_count() == 0);
    *result = (struct gc_swap_result){.refusal = GC_SWAP_BUSY};
    if (atomic_exchange_explicit(&core->is_moving, true, memory_order_acquire))
        return false;
    result->refusal = GC_SWAP_OK;
    return true;
}

bool gc_scope_end_moving(struct gc_core *core, bool is_done)
{
    atomic_store_explicit(&core->is_moving, false, memory_order_release);
    return is_done;
}

bool gc_scope_is_away(const struct gc_core *core, const struct gc_tenant *tenant)
{
    return atomic_load_explicit(&core->is_away, memory_order_relaxed) ||
           (tenant != NULL && gc_tenant_is_away(tenant));
}

static bool is_paused(const struct gc_core *core)
{
    return atomic_load_explicit(&core->is_paused, memory_order_relaxed);
}

/* ---- contexts ---- */

static bool is_of_paused_tenant(const struct gc_context *context)
{
    return context->tenant != NULL && gc_tenant_is_paused(context->tenant);
}

static bool is_in_scope(const struct gc_context *context, const struct gc_tenant *tenant)
{
    return !gc_context_is_dropped(context) &&
           (tenant != NULL ? context->tenant == tenant : !is_of_paused_tenant(context));
}

static bool visit_all(struct gc_core *core, gc_scope_visit_function *visit, void *argument)
{
    for (int i = 0; i < GC_DEVICE_MAX; i++) {
        const struct gc_device *device = gc_device_find(core, i);
        struct gc_context *context = device == NULL ? NULL : gc_context_first(device);
        for (; context != NULL; context = gc_context_next(context))
            if (!gc_context_is_dropped(context) && !visit(context, argument))
                return false;
    }
    return true;
}

struct visiting {
    const struct gc_tenant *tenant;
    gc_scope_visit_function *visit;
    void *argument;
};

static bool visit_one(struct gc_context *context, void *argument)
{
    const struct visiting *visiting = argument;
    return !is_in_scope(context, visiting->tenant) || visiting->visit(context, visiting->argument);
}

bool gc_scope_visit(struct gc_core *core, const struct gc_tenant *tenant,
                    gc_scope_visit_function *visit, void *argument)
{
    struct visiting visiting = {tenant, visit, argument};
    return visit_all(core, visit_one, &visiting);
}

bool gc_scope_is_moved(const struct gc_context *context, bool is_done,
                       struct gc_swap_result *result)
{
    if (is_done || !gc_context_is_gone(context))
        return is_done;
    result->refusal = GC_SWAP_OK;
    result->driver_code = 0;
    return true;
}

static bool visit_in(struct gc_context *context, void *argument)
{
    const struct visiting *visiting = argument;
    const bool is_away =
        visiting->tenant == NULL && context->tenant != NULL && gc_tenant_is_away(context->tenant);
    return is_away || visit_one(context, argument);
}

bool gc_scope_visit_in(struct gc_core *core, const struct gc_tenant *tenant,
                       gc_scope_visit_function *visit, void *argument)
{
    struct visiting visiting = {tenant, visit, argument};
    return visit_all(core, visit_in, &visiting);
}

/* ---- checks ---- */

/* What is out already, in a turn that ended, can be joined by the rest. */
static bool check(struct gc_context *context, void *argument)
{
    enum gc_swap_refusal *refusal = argument;
    const bool is_out = gc_scope_is_away(context->core, context->tenant) && gc_swap_is_out(context);
    *refusal = is_out ? GC_SWAP_OK : gc_swap_check(context);
    return *refusal == GC_SWAP_OK;
}

/* Waiting for the context's work would invalidate the capture. */
static bool check_capture(struct gc_context *context, void *argument)
{
    enum gc_swap_refusal *refusal = argument;
    if (gc_capture_is_of_context(context))
        *refusal = GC_SWAP_CAPTURES;
    return *refusal == GC_SWAP_OK;
}

bool gc_scope_is_capturing(struct gc_core *core)
{
    enum gc_swap_refusal refusal = GC_SWAP_OK;
    return !visit_all(core, check_capture, &refusal);
}

enum gc_swap_refusal gc_scope_check(struct gc_core *core, const struct gc_tenant *tenant)
{
    enum gc_swap_refusal refusal = GC_SWAP_OK;
    if (gc_scope_visit(core, tenant, check, &refusal))
        (void)visit_all(core, check_capture, &refusal);
    return refusal;
}

/* ---- waits with a deadline ---- */

struct gc_scope_deadline gc_scope_deadline_in(const struct gc_core *core, uint64_t timeout_ms)
{
    const struct gc_driver *driver = &core->driver;
    return (struct gc_scope_deadline){.driver = driver,
                                      .end_ns = driver->clock_ns(driver->self) +
                                                timeout_ms * UINT64_C(1000000)};
}

static bool is_over(const struct gc_scope_deadline *deadline)
{
    if (deadline->waiting != NULL)
        deadline->waiting(deadline->argument);
    return deadline->driver->clock_ns(deadline->driver->self) >= deadline->end_ns;
}

/* The driver's code once the fence has completed; not_ready: the deadline passed. */
static int wait_fence(struct gc_context *context, uint64_t fence,
                      const struct gc_scope_deadline *deadline)
{
    const struct gc_driver *driver = &context->core->driver;
    const struct timespec pause = {0, POLL_NS};
    for (;;) {
        const int code =
            GC_CALL_IF_OPEN(context, driver->fence_query(driver->self, context->handle, fence));
        if (code != driver->not_ready || is_over(deadline))
            return code;
        nanosleep(&pause, NULL);
    }
}

static void release_fence(struct gc_context *context, uint64_t fence)
{
    const struct gc_driver *driver = &context->core->driver;
    if (!gc_gate_enter(&context->head->gate))
        return;
    driver->fence_release(driver->self, context->handle, fence);
    gc_gate_leave(&context->head->gate);
}

/* Waits for all work of the context: with a fence, or if the driver has none, by synchronising. */
static bool wait_idle(struct gc_context *context, const struct gc_scope_deadline *deadline,
                      struct gc_swap_result *result)
{
    const struct gc_driver *driver = &context->core->driver;
    uint64_t fence = 0;
    int code =
        driver->fence_record == NULL
            ? driver->not_supported
            : GC_CALL_IF_OPEN(context, driver->fence_record(driver->self, context->handle, &fence));
    if (code == 0) {
        code = wait_fence(context, fence, deadline);
        release_fence(context, fence);
    } else if (driver->fence_record == NULL || code == driver->not_supported) {
        code = GC_CALL_IF_OPEN(context, driver->synchronize(driver->self, context->handle));
    }
    if (code == driver->context_is_gone)
        code = 0; /* its work was destroyed with it */
    result->driver_code = code == driver->not_ready ? 0 : code;
    if (code == 0)
        return true;
    result->refusal = code == driver->not_ready ? GC_SWAP_BUSY : GC_SWAP_DRIVER;
    return false;
}

struct waiting {
    const struct gc_scope_deadline *deadline;
    struct gc_swap_result *result;
};

/* Records of a handle share their work: only heads wait. */
static bool wait_context(struct gc_context *context, void *argument)
{
    const struct waiting *waiting = argument;
    return context->is_device || context->head != context ||
           wait_idle(context, waiting->deadline, waiting->result);
}

/* Waits until no thread is inside the gate. */
static bool drain_gate(struct gc_core *core, const struct gc_scope_deadline *deadline)
{
    while (!gc_submitter_drain_gate(&core->work, DRAIN_SLICE_MS))
        if (is_over(deadline))
            return false;
    return true;
}

static bool wait_all(struct gc_core *core, const struct gc_scope_deadline *deadline,
                     struct gc_swap_result *result)
{
    struct waiting waiting = {deadline, result};
    return result->refusal == GC_SWAP_OK && visit_all(core, wait_context, &waiting);
}

bool gc_scope_drain(struct gc_core *core, const struct gc_tenant *tenant,
                    const struct gc_scope_deadline *deadline, struct gc_swap_result *result)
{
    result->refusal = drain_gate(core, deadline) ? gc_scope_check(core, tenant) : GC_SWAP_BUSY;
    return wait_all(core, deadline, result);
}

bool gc_scope_quiesce(struct gc_core *core, const struct gc_scope_deadline *deadline,
                      struct gc_swap_result *result)
{
    result->refusal = !drain_gate(core, deadline)   ? GC_SWAP_BUSY
                      : gc_scope_is_capturing(core) ? GC_SWAP_CAPTURES
                                                    : GC_SWAP_OK;
    return wait_all(core, deadline, result);
}

/* ---- the gate ---- */

static void set_out(void *argument, struct gc_tenant *tenant)
{
    *(bool *)argument |= gc_tenant_is_out(tenant);
}

void gc_scope_set_gate(struct gc_core *core)
{
    bool is_any_out = false;
    gc_tenants_visit(core, set_out, &is_any_out);
    gc_gate_set(&core->work.gate, is_paused(core) || gc_scope_is_away(core, NULL) ? GC_GATE_CLOSED
                                  : is_any_out                                    ? GC_GATE_GUARDED
                                                                                  : GC_GATE_OPEN);
}
