/* Waits that end with a decision of another thread: whether a context that is about to end does,
 * and when what is paused is resumed. */
#include "core/device/wait.h"

#include "core/base/assert.h"
#include "core/device/registry.h"
#include "core/device/tenant.h"

#include <stddef.h>
#include <time.h>

#define PAUSE_NS 50000
/* How long others wait for the end of a context: at a process's end the thread that ends it may be
 * stuck in a driver that is no more. */
#define PATIENCE_NS UINT64_C(10000000000)
/* How often a thread that waits for a resume looks for requests, where no helper does. */
#define LISTEN_MS 20

/* ---- the end of a context ---- */

/* Most often the driver destroys the context. Where it declines, or somebody holds a primary
 * context unseen, others may use it as ever, and must not be told that it is gone. */
void gc_context_lock_decided(struct gc_context *context)
{
    const struct timespec moment = {0, PAUSE_NS};
    const struct gc_driver *driver = &context->core->driver;
    GC_ASSERT(gc_lock_held_count() == 0); /* who ends it needs them */
    const uint64_t end_ns = driver->clock_ns(driver->self) + PATIENCE_NS;
    gc_pool_acquire_plain(&context->pool);
    while (context->pool.hidden != NULL) {
        gc_pool_release(&context->pool);
        nanosleep(&moment, NULL);
        const bool is_over = driver->clock_ns(driver->self) >= end_ns;
        gc_pool_acquire_plain(&context->pool);
        if (is_over)
            break;
    }
}

bool gc_context_await_end(struct gc_context *context, unsigned shown_count)
{
    gc_context_lock_decided(context);
    const bool stays = !context->pool.is_dropped;
    gc_pool_release(&context->pool);
    return stays && gc_core_shown_count(context->core) != shown_count;
}

static bool hides_locked(const struct gc_pool *pool, uint64_t address)
{
    const struct gc_segment *segment = pool->hidden == NULL ? NULL : pool->hidden->content.segments;
    while (segment != NULL && address - segment->address >= segment->bytes)
        segment = segment->next;
    return segment != NULL;
}

static enum gc_hidden await_address(struct gc_context *context, uint64_t address)
{
    gc_pool_acquire_plain(&context->pool);
    const bool is_hidden = hides_locked(&context->pool, address);
    gc_pool_release(&context->pool);
    if (!is_hidden)
        return GC_HIDDEN_NOT;
    gc_context_lock_decided(context);
    const bool is_decided = !hides_locked(&context->pool, address);
    gc_pool_release(&context->pool);
    return is_decided ? GC_HIDDEN_DECIDED : GC_HIDDEN_STILL;
}

enum gc_hidden gc_core_await_hidden(struct gc_core *core, uint64_t address)
{
    if (atomic_load_explicit(&core->hidden_count, memory_order_acquire) == 0)
        return GC_HIDDEN_NOT;
    for (int i = 0; i < GC_DEVICE_MAX; i++) {
        struct gc_device *device = gc_core_find_device(core, i);
        struct gc_context *context = device == NULL ? NULL : gc_context_first(device);
        for (; context != NULL; context = gc_context_next(context)) {
            const enum gc_hidden hidden = await_address(context, address);
            if (hidden != GC_HIDDEN_NOT)
                return hidden;
        }
    }
    return GC_HIDDEN_NOT;
}

/* ---- what is paused ---- */

static void await_change(struct gc_core *core, uint32_t word)
{
    const bool hears = gc_core_serves_in_threads(core);
    gc_gate_wait(&core->work.gate, word, hears ? LISTEN_MS : GC_GATE_FOREVER);
    if (hears)
        (void)core->serve(core);
}

void gc_core_await_resume(struct gc_core *core)
{
    uint32_t word;
    GC_ASSERT(gc_lock_held_count() == 0);
    while (gc_gate_mode_of(word = gc_gate_read(&core->work.gate)) == GC_GATE_CLOSED)
        await_change(core, word);
}

void gc_core_await_tenant(struct gc_core *core, const struct gc_tenant *tenant)
{
    GC_ASSERT(gc_lock_held_count() == 0);
    for (;;) {
        const uint32_t word = gc_gate_read(&core->work.gate);
        if (!gc_tenant_is_paused(tenant))
            return;
        await_change(core, word);
    }
}
