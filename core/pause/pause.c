#include "core/pause/pause.h"

#include "core/base/assert.h"
#include "core/device/lookup.h"
#include "core/device/publish.h"
#include "core/device/registry.h"
#include "core/device/tenant.h"
#include "core/group/group.h"
#include "core/pause/swap.h"

#include <stddef.h>
#include <time.h>

#define POLL_NS 200000
#define DRAIN_SLICE_MS 10 /* between two checks of the deadline */

/* ---- all contexts ---- */

/* False ends the walk. */
typedef bool visit_context(struct gc_context *context, void *argument);

/* Visits the contexts of one tenant, or all. False if a visit returned false. A context that is
 * torn down meanwhile may or may not be visited. */
static bool visit_scope(struct gc_core *core, const struct gc_tenant *tenant, visit_context *visit,
                        void *argument)
{
    for (int i = 0; i < GC_DEVICE_MAX; i++) {
        const struct gc_device *device = gc_device_find(core, i);
        struct gc_context *context = device == NULL ? NULL : gc_context_first(device);
        for (; context != NULL; context = gc_context_next(context))
            if ((tenant == NULL || context->tenant == tenant) && !gc_context_is_dropped(context) &&
                !visit(context, argument))
                return false;
    }
    return true;
}

/* ---- waits with a deadline ---- */

struct deadline {
    const struct gc_driver *driver;
    uint64_t end_ns;
};

static bool is_over(const struct deadline *deadline)
{
    return deadline->driver->clock_ns(deadline->driver->self) >= deadline->end_ns;
}

/* The driver's code once the fence has completed; not_ready: the deadline passed. */
static int wait_fence(struct gc_context *context, uint64_t fence, const struct deadline *deadline)
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
static bool wait_idle(struct gc_context *context, const struct deadline *deadline,
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
    return tenant != NULL && gc_tenant_is_paused(tenant) ? tenant : NULL;
}

/* ---- pause ---- */

struct pausing {
    struct gc_core *core;
    const struct gc_pause_request *request;
    struct deadline deadline;
    struct gc_swap_result *result;
};

static bool fail(struct gc_swap_result *result, enum gc_swap_refusal refusal)
{
    result->refusal = refusal;
    return false;
}

/* The pools of paused tenants are swapped out before the process's pause and stay so after its
 * resume. */
static bool is_of_paused_tenant(const struct gc_context *context)
{
    return context->tenant != NULL && gc_tenant_is_paused(context->tenant);
}

static bool is_skipped(const struct gc_context *context, const struct gc_tenant *tenant)
{
    return tenant == NULL && is_of_paused_tenant(context);
}

static bool check(struct gc_context *context, void *argument)
{
    struct pausing *pausing = argument;
    if (is_skipped(context, pausing->request->tenant))
        return true;
    pausing->result->refusal = gc_swap_check(context);
    return pausing->result->refusal == GC_SWAP_OK;
}

/* Waiting for the context's work would invalidate the capture. */
static bool check_capture(struct gc_context *context, void *argument)
{
    struct pausing *pausing = argument;
    return !gc_capture_is_of_context(context) || fail(pausing->result, GC_SWAP_CAPTURES);
}

/* Checks that the pools can be swapped out and that all work can be waited for. */
static bool check_all(struct pausing *pausing)
{
    struct gc_core *core = pausing->core;
    return visit_scope(core, pausing->request->tenant, check, pausing) &&
           visit_scope(core, NULL, check_capture, pausing);
}

/* Work of any tenant may use the memory. Records of a handle share their work: only heads wait. */
static bool wait_context(struct gc_context *context, void *argument)
{
    struct pausing *pausing = argument;
    return context->is_device || context->head != context ||
           wait_idle(context, &pausing->deadline, pausing->result);
}

/* Memory of a context that was destroyed meanwhile need not be moved. */
static bool is_done_or_destroyed(const struct gc_context *context, bool is_done,
                                 struct gc_swap_result *result)
{
    if (is_done || !gc_context_is_gone(context))
        return is_done;
    result->refusal = GC_SWAP_OK;
    result->driver_code = 0;
    return true;
}

static bool swap_out(struct gc_context *context, void *argument)
{
    struct pausing *pausing = argument;
    struct gc_swap_result one;
    if (is_skipped(context, pausing->request->tenant))
        return true;
    const bool is_done = gc_swap_out(context, pausing->request->keeps_content, &one);
    pausing->result->refusal = one.refusal;
    pausing->result->driver_code = one.driver_code;
    pausing->result->moved_bytes += one.moved_bytes;
    return is_done_or_destroyed(context, is_done, pausing->result);
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
    return is_done_or_destroyed(context, is_done, result);
}

static bool swap_in_unless_paused(struct gc_context *context, void *argument)
{
    return is_of_paused_tenant(context) || swap_in(context, argument);
}

static bool swap_in_scope(struct gc_core *core, const struct gc_tenant *tenant,
                          struct gc_swap_result *result)
{
    return visit_scope(core, tenant, tenant == NULL ? swap_in_unless_paused : swap_in, result);
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

/* Waits until no thread is inside the gate. */
static bool drain_gate(struct gc_core *core, const struct deadline *deadline)
{
    while (!gc_submitter_drain_gate(&core->work, DRAIN_SLICE_MS))
        if (is_over(deadline))
            return false;
    return true;
}

static void set_paused(void *argument, struct gc_tenant *tenant)
{
    *(bool *)argument |= gc_tenant_is_paused(tenant);
}

/* Sets the gate's mode by the pauses now in force. Waiting threads check the mode again. */
static void set_gate(struct gc_core *core)
{
    bool is_any_paused = false;
    gc_tenants_visit(core, set_paused, &is_any_paused);
    gc_gate_set(&core->work.gate, gc_pause_is_any(core) ? GC_GATE_CLOSED
                                  : is_any_paused       ? GC_GATE_GUARDED
                                                        : GC_GATE_OPEN);
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
    if (!drain_gate(core, &pausing->deadline))
        return fail(pausing->result, GC_SWAP_BUSY);
    return check_all(pausing) && visit_scope(core, NULL, wait_context, pausing) &&
           visit_scope(core, tenant, swap_out, pausing);
}

/* True: the scope is paused. Also true if only a part was swapped out and cannot be swapped in
 * again: the caller resumes the scope later. */
static bool pause_scope(struct pausing *pausing)
{
    struct gc_core *core = pausing->core;
    struct gc_tenant *tenant = pausing->request->tenant;
    struct gc_swap_result *result = pausing->result;
    if (!check_all(pausing))
        return false;
    gc_submitter_close_gate(&core->work);
    if (!swap_out_scope(pausing)) {
        const struct gc_swap_result why = *result;
        if (swap_in_scope(core, tenant, result)) {
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
    const struct gc_driver *driver = &core->driver;
    struct pausing pausing = {.core = core, .request = request, .result = result};
    GC_ASSERT(gc_lock_held_count() == 0);
    *result = (struct gc_swap_result){.refusal = GC_SWAP_OK};
    if (!begin_pause(core, request, result))
        return false;
    pausing.deadline = (struct deadline){driver, driver->clock_ns(driver->self) +
                                                     request->timeout_ms * UINT64_C(1000000)};
    /* A pause of the process has swapped out the tenant's pools, too. */
    const bool is_swapped_out = request->tenant != NULL && gc_pause_is_any(core);
    const bool is_done = is_swapped_out || pause_scope(&pausing);
    publish_paused(core, request->tenant, is_done);
    set_gate(core);
    return is_done;
}

/* ---- resume ---- */

static bool resume_alone(struct gc_core *core, struct gc_tenant *tenant,
                         struct gc_swap_result *result)
{
    GC_ASSERT(gc_lock_held_count() == 0);
    *result = (struct gc_swap_result){.refusal = GC_SWAP_OK};
    if (!(tenant == NULL ? gc_pause_is_any(core) : gc_tenant_is_paused(tenant)))
        return fail(result, GC_SWAP_AGAIN);
    /* While the process is paused the memory stays out: the process's resume swaps it in. */
    const bool is_later = tenant != NULL && gc_pause_is_any(core);
    if (!is_later && !swap_in_scope(core, tenant, result))
        return false;
    publish_paused(core, tenant, false);
    set_gate(core);
    return true;
}

/* ---- one at a time ---- */

static bool begin_moving(struct gc_core *core, struct gc_swap_result *result)
{
    *result = (struct gc_swap_result){.refusal = GC_SWAP_BUSY};
    return !atomic_exchange_explicit(&core->is_moving, true, memory_order_acquire);
}

static bool end_moving(struct gc_core *core, bool is_done)
{
    atomic_store_explicit(&core->is_moving, false, memory_order_release);
    return is_done;
}

bool gc_pause(struct gc_core *core, const struct gc_pause_request *request,
              struct gc_swap_result *result)
{
    return begin_moving(core, result) && end_moving(core, pause_alone(core, request, result));
}

bool gc_pause_resume(struct gc_core *core, struct gc_tenant *tenant, struct gc_swap_result *result)
{
    return begin_moving(core, result) && end_moving(core, resume_alone(core, tenant, result));
}
