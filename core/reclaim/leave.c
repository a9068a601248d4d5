/* Readings of the free memory of a device: at most one a second, by a thread that frees into the
 * pool or from a full cache of its own. */
#include "core/reclaim/leave.h"

#include "core/base/clock.h"
#include "core/device/registry.h"

#include <stddef.h>

#define UPDATE_NS (1000 * GC_NS_PER_MS) /* between readings */

bool gc_leave_read(struct gc_device *device, uint64_t *free_bytes, uint64_t *total_bytes, int *code)
{
    const struct gc_driver *driver = &device->core->driver;
    bool is_queried = false;
    *code = 0;
    for (const struct gc_context *context = gc_context_first(device);
         context != NULL && !is_queried; context = gc_context_next(context)) {
        if (context->is_device)
            continue;
        const int answer = GC_CALL_IF_OPEN(
            context, driver->mem_info(driver->self, context->handle, free_bytes, total_bytes));
        is_queried = answer != gc_context_closed_code(context);
        if (is_queried)
            *code = answer;
    }
    return is_queried && *code == 0;
}

void gc_leave_update(struct gc_device *device, bool may_read_clock)
{
    uint64_t free_bytes = 0;
    uint64_t total_bytes = 0;
    int code;
    uint64_t read_ns = atomic_load_explicit(&device->others_ns, memory_order_relaxed);
    if ((!may_read_clock && read_ns != 0) || device->leave_bytes == 0 ||
        gc_idle_bytes(&device->idle) == 0)
        return;
    const uint64_t now_ns = gc_core_now_ns(device->core);
    if (now_ns - read_ns < UPDATE_NS ||
        !atomic_compare_exchange_strong_explicit(&device->others_ns, &read_ns, now_ns,
                                                 memory_order_relaxed, memory_order_relaxed))
        return; /* recent, or another thread reads */
    if (gc_leave_read(device, &free_bytes, &total_bytes, &code))
        gc_device_note_free(device, free_bytes);
}
