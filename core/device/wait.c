/* Waits for another thread's decision, a teardown's, a resume or a turn, on the futex of the gate
 * that the other thread sets. */
#include "core/device/wait.h"

#include "core/base/assert.h"
#include "core/device/registry.h"
#include "core/device/tenant.h"

#include <stddef.h>

/* The interval of reads of the driver's clock, which may be ahead of the futex's clock. */
#define CLOCK_MS 100
/* The longest wait for a teardown: at process exit the tearing thread may be stuck in a driver that
 * is unloaded. */
#define PATIENCE_NS UINT64_C(10000000000)
/* The interval in which a thread that waits for a resume serves requests, without a helper thread.
 */
#define LISTEN_MS 20

/* ---- context teardown ---- */

/* Most teardowns finish. If the driver refuses, or an unseen owner retains a primary context, other
 * threads may still use the context and must not get an error. */
void gc_wait_lock_after_teardown(struct gc_context *context)
{
    struct gc_gate *gate = &context->head->gate;
    GC_ASSERT(gc_lock_held_count() == 0); /* the tearing thread needs them */
    const uint64_t end_ns = gc_core_now_ns(context->core) + PATIENCE_NS;
    bool is_over = false;
    gc_pool_acquire_plain(&context->pool);
    while (context->pool.detached != NULL && !is_over) {
        /* Read under the lock: the tearing thread sets the gate after it has attached or dropped
         * the pool under the lock, so no wake-up is lost. */
        const uint32_t word = gc_gate_read(gate);
        gc_pool_release(&context->pool);
        gc_gate_wait(gate, word, CLOCK_MS);
        is_over = gc_core_now_ns(context->core) >= end_ns;
        gc_pool_acquire_plain(&context->pool);
    }
}

bool gc_wait_teardown(struct gc_context *context, unsigned reattach_count)
{
    gc_wait_lock_after_teardown(context);
    const bool is_alive = !context->pool.is_dropped;
    gc_pool_release(&context->pool);
    return is_alive && gc_core_reattach_count(context->core) != reattach_count;
}

static bool is_detached_locked(const struct gc_pool *pool, uint64_t address)
{
    const struct gc_segment *segment =
        pool->detached == NULL ? NULL : pool->detached->content.segments;
    while (segment != NULL && address - segment->address >= segment->bytes)
        segment = segment->next;
    return segment != NULL;
}

static enum gc_detached wait_address(struct gc_context *context, uint64_t address)
{
    gc_pool_acquire_plain(&context->pool);
    const bool is_detached = is_detached_locked(&context->pool, address);
    gc_pool_release(&context->pool);
    if (!is_detached)
        return GC_DETACHED_NOT;
    gc_wait_lock_after_teardown(context);
    const bool is_decided = !is_detached_locked(&context->pool, address);
    gc_pool_release(&context->pool);
    return is_decided ? GC_DETACHED_RESOLVED : GC_DETACHED_STILL;
}

enum gc_detached gc_wait_detached(struct gc_core *core, uint64_t address)
{
    if (atomic_load_explicit(&core->detached_count, memory_order_acquire) == 0)
        return GC_DETACHED_NOT;
    for (int i = 0; i < GC_DEVICE_MAX; i++) {
        struct gc_device *device = gc_device_find(core, i);
        struct gc_context *context = device == NULL ? NULL : gc_context_first(device);
        for (; context != NULL; context = gc_context_next(context)) {
            const enum gc_detached detached = wait_address(context, address);
            if (detached != GC_DETACHED_NOT)
                return detached;
        }
    }
    return GC_DETACHED_NOT;
}

/* ---- pause ---- */

static void wait_change(struct gc_core *core, uint32_t word)
{
    const bool is_server = gc_core_serves_in_threads(core);
    if (is_server)
        core->serve(core);
    gc_gate_wait(&core->work.gate, word, is_server ? LISTEN_MS : GC_GATE_FOREVER);
}

void gc_wait_resume(struct gc_core *core)
{
    uint32_t word;
    GC_ASSERT(gc_lock_held_count() == 0);
    while (gc_gate_mode_of(word = gc_gate_read(&core->work.gate)) == GC_GATE_CLOSED) {
        if (core->demand != NULL)
            core->demand(core, NULL);
        wait_change(core, word);
    }
}

void gc_wait_tenant(struct gc_core *core, struct gc_tenant *tenant)
{
    GC_ASSERT(gc_lock_held_count() == 0);
    for (;;) {
        const uint32_t word = gc_gate_read(&core->work.gate);
        if (!gc_tenant_is_out(tenant))
            return;
        if (gc_tenant_is_away(tenant) && core->demand != NULL)
            core->demand(core, tenant);
        wait_change(core, word);
    }
}
