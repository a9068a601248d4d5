/* Readings of the free memory of a device: at most one a second, by a thread that frees into the
 * pool or from a full cache of its own. And the idle memory that is spare: the least of the present
 * period and the one before, PERIOD_NS each, a sliding minimum of two buckets. */
#include "core/reclaim/leave.h"

#include "core/base/bits.h"
#include "core/base/clock.h"
#include "core/device/registry.h"
#include "core/reclaim/tcache.h"

#include <stddef.h>

#define UPDATE_NS (1000 * GC_NS_PER_MS) /* between readings */
#define PERIOD_NS (10000 * GC_NS_PER_MS)

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
    if (gc_device_lacking_bytes(device) > 0)
        gc_tcache_flush_device(device, NULL); /* a cached block may be large */
}

void gc_leave_observe(struct gc_device *device)
{
    const uint64_t now_ns = gc_core_now_ns(device->core);
    uint64_t start_ns = atomic_load_explicit(&device->idle_period_ns, memory_order_relaxed);
    if (now_ns - start_ns < PERIOD_NS ||
        !atomic_compare_exchange_strong_explicit(&device->idle_period_ns, &start_ns, now_ns,
                                                 memory_order_relaxed, memory_order_relaxed))
        return; /* another thread starts the period */
    atomic_store_explicit(&device->idle_before_bytes, gc_idle_start_period(&device->idle),
                          memory_order_relaxed);
}

/* Another thread's need at the same moment may be lost: then that much is released once more. */
void gc_leave_note_release(struct gc_device *device, uint64_t least_bytes, uint64_t bytes)
{
    const uint64_t before = atomic_load_explicit(&device->idle_before_bytes, memory_order_relaxed);
    atomic_store_explicit(&device->idle.least_bytes, gc_sub_or_zero_u64(least_bytes, bytes),
                          memory_order_relaxed);
    atomic_store_explicit(&device->idle_before_bytes, gc_sub_or_zero_u64(before, bytes),
                          memory_order_relaxed);
}
