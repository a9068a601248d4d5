/* The end of the time of the one stream: see work.h. */
#include "core/work.h"

#include "core/instance.h"

void gc_work_leave_single(struct gc_core *core)
{
    /* Every free waits, so nothing was handed out that is not idle. */
    atomic_store_explicit(&core->work.is_single, false, memory_order_seq_cst);
}

bool gc_core_set_conservative(struct gc_core *core)
{
    const bool was =
        atomic_exchange_explicit(&core->work.is_conservative, true, memory_order_seq_cst);
    gc_work_leave_single(core);
    return !was;
}
