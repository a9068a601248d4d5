/* The end of the time of the one stream, and of counting that misses nothing: see work.h. */
#include "core/work.h"

#include "core/check.h"
#include "core/instance.h"

#include <stddef.h>

static bool quiesce_device(struct gc_device *device)
{
    bool is_idle = true;
    /* Acquire: pairs with the release in context.c's link_context. */
    struct gc_context *context = atomic_load_explicit(&device->contexts, memory_order_acquire);
    while (context != NULL) {
        is_idle &= gc_reuse_quiesce(context);
        context = atomic_load_explicit(&context->next_in_device, memory_order_acquire);
    }
    return is_idle;
}

void gc_work_leave_single(struct gc_core *core)
{
    struct gc_work *work = &core->work;
    bool is_idle = true;
    if (atomic_load_explicit(&work->has_left, memory_order_acquire))
        return;
    GC_ASSERT(gc_lock_held_count() == 0);
    /* Sequentially consistent: the partner is gc_context_may_reuse. */
    atomic_store_explicit(&work->is_single, false, memory_order_seq_cst);
    for (int i = 0; i < GC_DEVICE_MAX; i++) {
        struct gc_device *device = gc_core_find_device(core, i);
        if (device != NULL)
            is_idle &= quiesce_device(device);
    }
    /* If the driver failed, or a capture forbade to wait, the next call tries again. Release: pairs
     * with the acquire in gc_work_begin. */
    if (is_idle)
        atomic_store_explicit(&work->has_left, true, memory_order_release);
}

bool gc_core_set_conservative(struct gc_core *core)
{
    const bool was =
        atomic_exchange_explicit(&core->work.is_conservative, true, memory_order_seq_cst);
    gc_work_leave_single(core);
    return !was;
}
