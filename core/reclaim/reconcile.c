/* The memory that the driver takes for itself, in calls that report none: code that is loaded at a
 * kernel's first launch, local memory, buffers of printf and malloc, channels. Its size is what the
 * system counts for this process (NVML's figure) beyond what the account holds. It is charged as
 * the device's `driver` bytes, part of reserved: so limits, queries and figures have it. Where the
 * limit has no room for it, new charges fail and idle memory is released until there is.
 *
 * Threads that allocate from the driver or free into the pool say that a comparison is due; a
 * thread of the platform makes it, since the system may take milliseconds. Between two are 5 ms;
 * each that changes nothing doubles the wait, up to a second; all take a hundredth of the time at
 * most.
 *
 * Other threads take and release memory meanwhile. It is charged before it is taken and uncharged
 * after its release, so the most bytes held during the comparison explain all of it, and now and
 * then more. Contexts and modules are charged after they were made. Therefore the bytes change only
 * as far as two successive comparisons agree (the median of the last two and the present value).
 * Managed and imported memory, which is not charged, may be in the system's figure in part: its
 * whole size is left out. So is the rest of pages that the driver gives to its own allocations, and
 * anything below 16 MiB. So the bytes are rather too low than too high, by which requests would
 * fail. */
#include "core/reclaim/reconcile.h"

#include "core/base/bits.h"
#include "core/base/clock.h"
#include "core/device/registry.h"

#include <stddef.h>
#include <time.h>

#define WAIT_NS_MIN (5 * GC_NS_PER_MS)
#define WAIT_NS_MAX (1000 * GC_NS_PER_MS)
#define COST_FACTOR 100
#define DRIVER_PAGE_BYTES (UINT64_C(2) << 20)
/* Less is noise: memory comes and goes between the reading of two figures. */
#define IGNORED_BYTES (UINT64_C(16) << 20)
#define AGAIN_PAUSES 50 /* of a millisecond, for a comparison that a request waits for */

static uint64_t direct_bytes(const struct gc_device *device, enum gc_direct_kind kind)
{
    return atomic_load_explicit(&device->direct_bytes[kind], memory_order_relaxed);
}

/* What the limit has no room for is charged by a later comparison. */
static void set_bytes(struct gc_device *device, uint64_t bytes)
{
    const uint64_t before = direct_bytes(device, GC_DIRECT_DRIVER);
    const uint64_t found = gc_sub_or_zero_u64(bytes, before);
    const uint64_t charged = gc_budget_charge_found(&device->budget, found);
    if (found > 0 && device->budget.account != NULL)
        atomic_store_explicit(&device->is_group_over, true, memory_order_relaxed);
    if (bytes < before) {
        gc_stats_sub_gauge(&device->stats.driver, before - bytes);
        gc_device_uncharge_measured(device, before - bytes);
    } else {
        gc_stats_add_gauge(&device->stats.driver, charged);
    }
    atomic_store_explicit(&device->direct_bytes[GC_DIRECT_DRIVER],
                          gc_min_u64(bytes, before + charged), memory_order_relaxed);
}

/* The driver gives whole pages to allocations of its own: half a page and more stand alone, smaller
 * ones share pages, which are taken to be half full at least. */
static uint64_t rounding_of(uint64_t bytes)
{
    const uint64_t rest = bytes % DRIVER_PAGE_BYTES;
    if (bytes < DRIVER_PAGE_BYTES / 2)
        return bytes;
    return rest == 0 ? 0 : DRIVER_PAGE_BYTES - rest;
}

struct rounding {
    const struct gc_device *device;
    uint64_t bytes;
};

static void add_direct(void *argument, const struct gc_direct *direct)
{
    struct rounding *rounding = argument;
    if (direct->device == rounding->device &&
        (direct->kind == GC_DIRECT_MEMORY || direct->kind == GC_DIRECT_ARRAY))
        rounding->bytes += rounding_of(direct->charged_bytes);
}

/* What the driver's allocations take beyond the bytes that are charged for them. */
static uint64_t rounding_bytes(struct gc_device *device)
{
    struct rounding rounding = {device, 0};
    for (struct gc_context *context = gc_context_first(device); context != NULL;
         context = gc_context_next(context)) {
        gc_pool_acquire_plain(&context->pool);
        for (const struct gc_segment *segment = context->pool.content.segments; segment != NULL;
             segment = segment->next)
            if (segment->arena == NULL)
                rounding.bytes += rounding_of(segment->bytes);
        gc_pool_release(&context->pool);
    }
    gc_tracker_visit(&device->core->tracker, add_direct, &rounding);
    return rounding.bytes;
}

/* With GPUCACHE_MANAGED=limit they are charged, but for those that spill. */
static uint64_t uncharged_managed_bytes(const struct gc_device *device)
{
    const struct gc_options *options = device->core->options;
    const bool is_charged =
        options->managed == GC_MANAGED_LIMIT && (options->overcommit & GC_OVERCOMMIT_SPILL) == 0;
    return is_charged ? 0 : direct_bytes(device, GC_DIRECT_MANAGED);
}

/* What the account does not explain of the process's figure. False: that is not known. */
static bool read_rest(struct gc_device *device, uint64_t *rest_bytes)
{
    const struct gc_driver *driver = &device->core->driver;
    const uint64_t charged = direct_bytes(device, GC_DIRECT_DRIVER);
    uint64_t process_bytes;
    gc_budget_watch(&device->budget);
    if (!driver->process_bytes(driver->self, device->info.ordinal, &process_bytes))
        return false;
    const uint64_t explained = gc_sub_or_zero_u64(gc_budget_highest(&device->budget), charged) +
                               uncharged_managed_bytes(device) +
                               direct_bytes(device, GC_DIRECT_IMPORT);
    *rest_bytes = gc_sub_or_zero_u64(process_bytes, explained);
    if (*rest_bytes > 0)
        *rest_bytes = gc_sub_or_zero_u64(*rest_bytes, rounding_bytes(device));
    if (*rest_bytes < IGNORED_BYTES)
        *rest_bytes = 0;
    return true;
}

static void wait_until(struct gc_device *device, uint64_t ns)
{
    atomic_store_explicit(&device->reconcile_ns, ns, memory_order_relaxed);
}

/* False: another thread compares, or the process ends. Sequentially consistent, as is_stale: a
 * thread that finds one of the two set leaves the rest to the thread that sees the other. */
static bool begin(struct gc_device *device)
{
    return !atomic_flag_test_and_set_explicit(&device->is_reconciling, memory_order_seq_cst);
}

static void start_anew(struct gc_device *device)
{
    set_bytes(device, 0);
    device->reconcile_rest_bytes = 0;
    device->reconcile_wait_ns = 0;
    wait_until(device, 0);
}

static void end(struct gc_device *device)
{
    do {
        if (atomic_exchange_explicit(&device->is_stale, false, memory_order_seq_cst))
            start_anew(device);
        atomic_flag_clear_explicit(&device->is_reconciling, memory_order_seq_cst);
    } while (atomic_load_explicit(&device->is_stale, memory_order_seq_cst) && begin(device));
}

static uint64_t median(uint64_t a, uint64_t b, uint64_t c)
{
    return gc_max_u64(gc_min_u64(a, b), gc_min_u64(gc_max_u64(a, b), c));
}

static void compare(struct gc_device *device)
{
    const uint64_t start_ns = gc_core_now_ns(device->core);
    const uint64_t last_bytes = device->reconcile_rest_bytes;
    uint64_t rest_bytes;
    uint64_t wait_ns = WAIT_NS_MAX;
    if (read_rest(device, &rest_bytes)) {
        set_bytes(device, median(direct_bytes(device, GC_DIRECT_DRIVER), last_bytes, rest_bytes));
        device->reconcile_rest_bytes = rest_bytes;
        wait_ns = rest_bytes == last_bytes ? gc_min_u64(2 * device->reconcile_wait_ns, WAIT_NS_MAX)
                                           : WAIT_NS_MIN;
    }
    const uint64_t end_ns = gc_core_now_ns(device->core);
    device->reconcile_wait_ns =
        gc_max_u64(gc_max_u64(wait_ns, WAIT_NS_MIN), (end_ns - start_ns) * COST_FACTOR);
    wait_until(device, end_ns + device->reconcile_wait_ns);
    atomic_fetch_add_explicit(&device->comparison_count, 1, memory_order_relaxed);
}

void gc_reconcile_compare(struct gc_core *core)
{
    for (int i = 0; i < GC_DEVICE_MAX; i++) {
        struct gc_device *device = gc_device_find(core, i);
        if (device == NULL ||
            !atomic_exchange_explicit(&device->is_comparison_due, false, memory_order_relaxed) ||
            !begin(device))
            continue;
        compare(device);
        end(device);
    }
}

void gc_reconcile_update(struct gc_device *device)
{
    const struct gc_driver *driver = &device->core->driver;
    if (driver->process_bytes == NULL)
        return;
    const uint64_t now_ns = gc_core_now_ns(device->core);
    if (now_ns < atomic_load_explicit(&device->reconcile_ns, memory_order_relaxed))
        return;
    wait_until(device, now_ns + WAIT_NS_MAX); /* until the comparison sets it */
    atomic_store_explicit(&device->is_comparison_due, true, memory_order_relaxed);
    if (driver->compare_soon != NULL)
        driver->compare_soon(driver->self, device->info.ordinal);
    else
        gc_reconcile_compare(device->core);
}

/* The driver's bytes, with what the limit has no room for. */
static uint64_t found_bytes(const struct gc_device *device)
{
    return direct_bytes(device, GC_DIRECT_DRIVER) + gc_budget_limit(&device->budget) -
           gc_budget_room(&device->budget);
}

/* A comparison that is made now, and waited for. */
static void compare_now(struct gc_device *device)
{
    const struct timespec pause = {.tv_nsec = GC_NS_PER_MS};
    const unsigned count = atomic_load_explicit(&device->comparison_count, memory_order_relaxed);
    wait_until(device, 0);
    gc_reconcile_update(device);
    for (int i = 0; i < AGAIN_PAUSES &&
                    atomic_load_explicit(&device->comparison_count, memory_order_relaxed) == count;
         i++)
        nanosleep(&pause, NULL);
}

bool gc_reconcile_again(struct gc_device *device)
{
    const uint64_t before = found_bytes(device);
    if (device->core->driver.process_bytes == NULL || before == 0)
        return false;
    const uint64_t now_ns = gc_core_now_ns(device->core);
    const uint64_t last_ns =
        atomic_exchange_explicit(&device->again_ns, now_ns, memory_order_relaxed);
    if (last_ns != 0 && now_ns - last_ns < WAIT_NS_MAX)
        return false;
    compare_now(device);
    compare_now(device); /* one alone changes nothing */
    return found_bytes(device) < before;
}

void gc_reconcile_forget(struct gc_device *device)
{
    atomic_store_explicit(&device->is_stale, true, memory_order_seq_cst);
    if (begin(device))
        end(device);
}

void gc_reconcile_finish(struct gc_core *core)
{
    uint64_t rest_bytes;
    for (int i = 0; i < GC_DEVICE_MAX && core->driver.process_bytes != NULL; i++) {
        struct gc_device *device = gc_device_find(core, i);
        if (device == NULL || !begin(device))
            continue;
        /* The flag stays set: no comparison follows. */
        if (gc_context_first(device) != NULL && read_rest(device, &rest_bytes))
            set_bytes(device, rest_bytes);
    }
}
