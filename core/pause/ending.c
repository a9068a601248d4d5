/* Memory that is out, and no helper thread that would bring it back: it could not be started, or it
 * has ended with the process, and a destructor that runs later, or a thread for which one waits,
 * submits work. The thread that waits for the memory does what is to be done.
 *
 * Nobody can be expected to resume a process that ends, so it resumes itself. Most processes end at
 * once, with threads that wait: their memory stays out. */
#include "core/pause/ending.h"

#include "core/base/clock.h"
#include "core/device/publish.h"
#include "core/device/registry.h"
#include "core/device/tenant.h"
#include "core/group/group.h"
#include "core/pause/pause.h"
#include "core/pause/scope.h"
#include "core/pause/swap.h"

#include <stddef.h>

#define PATIENCE_NS GC_NS_PER_S /* an end that takes longer waits for what waits here */

/* ---- no driver ---- */

static bool is_shut_down(const struct gc_core *core)
{
    const struct gc_driver *driver = &core->driver;
    return driver->is_shut_down != NULL && driver->is_shut_down(driver->self);
}

static void forget_pause(void *argument, struct gc_tenant *tenant)
{
    (void)argument;
    atomic_store_explicit(&tenant->turn.is_away, false, memory_order_seq_cst);
    if (gc_tenant_is_paused(tenant))
        gc_publish_tenant_paused(tenant, false);
}

/* The driver refuses all work: what waits may go on, and sees its error. */
static void open_for_good(struct gc_core *core)
{
    struct gc_swap_result ignored;
    if (!gc_scope_begin_moving(core, &ignored))
        return;
    atomic_store_explicit(&core->is_shut_down, true, memory_order_relaxed);
    atomic_store_explicit(&core->is_paused, false, memory_order_relaxed);
    atomic_store_explicit(&core->is_away, false, memory_order_relaxed);
    gc_tenants_visit(core, forget_pause, NULL);
    gc_scope_set_gate(core);
    (void)gc_scope_end_moving(core, true);
}

/* ---- the process's own resume ---- */

static void resume(struct gc_core *core, struct gc_tenant *tenant)
{
    struct gc_swap_result ignored;
    if (gc_pause_resume(core, tenant, &ignored))
        gc_log_write(core->log, GC_LOG_WARN,
                     "paused, but the process ends, and work of a destructor waits: resumed");
}

static void resume_tenant(void *argument, struct gc_tenant *tenant)
{
    if (gc_tenant_is_paused(tenant))
        resume(argument, tenant);
}

static void resume_all(struct gc_core *core)
{
    if (gc_pause_is_any(core))
        resume(core, NULL);
    gc_tenants_visit(core, resume_tenant, core);
}

void gc_ending_serve(struct gc_core *core)
{
    const uint64_t ending_ns = atomic_load_explicit(&core->ending_ns, memory_order_acquire);
    (void)gc_group_serve(core);
    if (ending_ns != 0 && is_shut_down(core)) {
        open_for_good(core);
        return;
    }
    if (ending_ns != 0 && gc_clock_ns() < ending_ns + PATIENCE_NS)
        return;
    if (ending_ns != 0)
        resume_all(core);
    gc_serve_step(core);
}
