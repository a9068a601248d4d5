/* Captures: while one is under way the library makes no driver call that waits. A capture may
 * spread to streams of any context, so all contexts count as capturing. */
#include "core/base/assert.h"
#include "core/base/clock.h"
#include "core/device/registry.h"

#include <stddef.h>
#include <time.h>

/* A capture waits so long for waits under way, by the clock. */
#define CAPTURE_WAIT_NS (2000 * GC_NS_PER_MS)
#define CAPTURE_PAUSE_NS 50000

/* ---- captures ---- */

/* Whether a wait for any context is under way. */
static bool is_waited_for(struct gc_core *core)
{
    bool is_waited = atomic_load_explicit(&core->everyone_count, memory_order_seq_cst) != 0;
    gc_lock_acquire(&core->registry);
    for (const struct gc_context *record = core->all_contexts; record != NULL && !is_waited;
         record = record->next_of_all)
        is_waited = atomic_load_explicit(&record->wait_count, memory_order_seq_cst) != 0;
    gc_lock_release(&core->registry);
    return is_waited;
}

/* Records fences for pending blocks: inside the capture none can be recorded. */
static void record_pending(struct gc_core *core)
{
    for (int i = 0; i < GC_DEVICE_MAX; i++) {
        const struct gc_device *device = gc_device_find(core, i);
        struct gc_context *context = device == NULL ? NULL : gc_context_first(device);
        for (; context != NULL; context = gc_context_next(context))
            gc_fence_record_pending(context);
    }
}

void gc_capture_begin_context(struct gc_context *context)
{
    struct timespec pause = {0, CAPTURE_PAUSE_NS};
    struct gc_core *core = context->core;
    int ignored;
    (void)gc_submit_leave_single_stream(core, &ignored); /* inside the capture it could not wait */
    /* If calls bypass the library the capture may have begun already. */
    if (!atomic_load_explicit(&core->work.is_conservative, memory_order_relaxed))
        record_pending(core);
    atomic_store_explicit(&core->has_captured, true, memory_order_relaxed);
    gc_lock_acquire(&core->registry); /* a record added meanwhile starts with the same count */
    for (struct gc_context *record = core->all_contexts; record != NULL;
         record = record->next_of_all)
        atomic_fetch_add_explicit(&record->capture_count, 1, memory_order_seq_cst);
    atomic_fetch_add_explicit(&core->capture_count, 1, memory_order_seq_cst);
    gc_lock_release(&core->registry);
    /* A synchronisation that ended inside the capture would invalidate the capture. No wait begins
     * any more. One under way may depend on the device, so the time is bounded. A longer wait asks
     * fences only, which harms no capture in relaxed mode. */
    const uint64_t end_ns = gc_core_now_ns(core) + CAPTURE_WAIT_NS;
    while (is_waited_for(core) && gc_core_now_ns(core) < end_ns)
        nanosleep(&pause, NULL);
}

void gc_capture_end_context(struct gc_context *context)
{
    struct gc_core *core = context->core;
    gc_lock_acquire(&core->registry);
    if (atomic_load_explicit(&core->capture_count, memory_order_relaxed) > 0) {
        for (struct gc_context *record = core->all_contexts; record != NULL;
             record = record->next_of_all)
            atomic_fetch_sub_explicit(&record->capture_count, 1, memory_order_relaxed);
        atomic_fetch_sub_explicit(&core->capture_count, 1, memory_order_relaxed);
    }
    gc_lock_release(&core->registry);
}

bool gc_capture_is_of_context(const struct gc_context *context)
{
    if (context->is_device) /* any capturing context may use its memory */
        return atomic_load_explicit(&context->core->capture_count, memory_order_relaxed) > 0;
    return atomic_load_explicit(&context->capture_count, memory_order_relaxed) > 0;
}

void gc_capture_relax_begin(struct gc_core *core)
{
    atomic_fetch_add_explicit(&core->everyone_count, 1, memory_order_seq_cst);
}

void gc_capture_relax_end(struct gc_core *core)
{
    atomic_fetch_sub_explicit(&core->everyone_count, 1, memory_order_seq_cst);
}
