/* The end of the time of the one stream, and of counting that misses nothing: see work.h. */
#include "core/work.h"

#include "core/check.h"
#include "core/instance.h"

#include <stddef.h>

static bool quiesce_device(struct gc_device *device, int *driver_code)
{
    bool is_idle = true;
    for (struct gc_context *context = gc_context_first(device); context != NULL;
         context = gc_context_next(context))
        is_idle &= gc_reuse_quiesce(context, driver_code);
    return is_idle;
}

bool gc_work_leave_single(struct gc_core *core, int *driver_code)
{
    struct gc_work *work = &core->work;
    bool is_idle = true;
    *driver_code = 0;
    if (atomic_load_explicit(&work->has_left, memory_order_acquire))
        return true;
    GC_ASSERT(gc_lock_held_count() == 0);
    /* Sequentially consistent: the partner is gc_context_may_reuse. */
    atomic_store_explicit(&work->is_single, false, memory_order_seq_cst);
    for (int i = 0; i < GC_DEVICE_MAX; i++) {
        struct gc_device *device = gc_core_find_device(core, i);
        if (device != NULL)
            is_idle &= quiesce_device(device, driver_code);
    }
    if (!is_idle) {
        /* No stream is the only one any more, so all work comes here first. Another thread may have
         * been luckier. */
        atomic_store_explicit(&work->only_stream, GC_STREAM_OTHER, memory_order_relaxed);
        return atomic_load_explicit(&work->has_left, memory_order_acquire);
    }
    /* Release: pairs with the acquire in gc_work_begin. */
    atomic_store_explicit(&work->has_left, true, memory_order_release);
    return true;
}

bool gc_core_set_conservative(struct gc_core *core)
{
    const bool was =
        atomic_exchange_explicit(&core->work.is_conservative, true, memory_order_seq_cst);
    int ignored; /* work that comes before it is idle is held up */
    (void)gc_work_leave_single(core, &ignored);
    return !was;
}
