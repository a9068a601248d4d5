/* The path of one allocation after a miss of the thread cache: round, planned place, free blocks,
 * then pending blocks, the driver, reclaim. Placement is core/pool/place.c's; the bounds are
 * those of core/reclaim/reclaim.c. */
#include "core/alloc/spill.h"
#include "core/backing/change.h"
#include "core/backing/segment.h"
#include "core/base/bits.h"
#include "core/debug/debug.h"
#include "core/debug/guard.h"
#include "core/device/publish.h"
#include "core/device/registry.h"
#include "core/device/tenant.h"
#include "core/device/wait.h"
#include "core/follow/follow.h"
#include "core/group/group.h"
#include "core/pause/pause.h"
#include "core/reclaim/defer.h"
#include "core/reclaim/limit.h"
#include "core/reclaim/reclaim.h"
#include "core/reclaim/reconcile.h"
#include "core/reclaim/refusal.h"
#include "core/reclaim/release.h"
#include "core/reclaim/tcache.h"
#include "core/share/share.h"

#include <stddef.h>

/* Idle dedicated bytes that a request for another size leaves: a fraction of the peak, plus an
 * amount. */
#define DEDICATED_IDLE_DIVISOR 2
#define DEDICATED_IDLE_MIN GC_MIB(128)
/* Attempts at a plain driver allocation: other threads may take the memory released before each. */
#define PLAIN_ATTEMPTS 8

/* One allocation request. */
struct alloc_request {
    struct gc_context *context;
    struct gc_alloc_spec spec;
    struct gc_segment_spec segment_spec; /* the preferred segment */
    uint64_t address;
    bool is_hit;
    bool is_trial;
    bool is_too_large;                 /* for the limit or the device, whatever else is free */
    struct gc_segment_failure failure; /* of the last attempt */
};

/* A block freed in the request's own stream comes first: no other stream can use it yet. */
static struct gc_block *alloc_ordered_or_free(struct alloc_request *alloc)
{
    struct gc_pool *pool = &alloc->context->pool;
    struct gc_block *block = NULL;
    if (alloc->segment_spec.size_class != GC_CLASS_DEDICATED)
        block = gc_pending_alloc_locked(pool, &alloc->spec);
    if (block == NULL)
        return gc_pool_alloc_locked(pool, alloc->segment_spec.size_class, &alloc->spec);
    gc_pool_make_live_locked(pool, block, &alloc->spec);
    return block;
}

enum source {
    FROM_CLASS, /* the request's own */
    FROM_PLANNED,
    FROM_ANY /* the last resort */
};

static enum gc_status alloc_from_free_block(struct alloc_request *alloc, enum source source)
{
    struct gc_context *context = alloc->context;
    struct gc_pool *pool = &context->pool;
    enum gc_status status = gc_pool_acquire(pool);
    if (status != GC_OK)
        return status;
    const struct gc_block *block = NULL;
    if (pool->is_dropped || pool->is_closed)
        status = GC_INVALID_ARGUMENT;
    else if (source == FROM_PLANNED)
        block = gc_pool_alloc_planned_locked(pool, &alloc->spec);
    else if (source == FROM_ANY)
        block = gc_pool_alloc_any_locked(pool, alloc->segment_spec.size_class, &alloc->spec);
    else
        block = alloc_ordered_or_free(alloc);
    if (block != NULL) {
        const struct gc_entry entry = {block->address, alloc->spec.requested_bytes, block->bytes,
                                       alloc->spec.stream, alloc->spec.api};
        alloc->address = block->address;
        alloc->is_hit = true;
        gc_context_count_alloc(context, &entry);
    } else if (status == GC_OK) {
        status = GC_OUT_OF_MEMORY;
    }
    gc_pool_release(pool);
    return status;
}

typedef enum gc_status create_memory(struct gc_context *context,
                                     const struct gc_segment_spec *segment_spec,
                                     const struct gc_alloc_spec *spec, uint64_t *address,
                                     struct gc_segment_failure *failure);

/* The smallest segment for the request. False: the preferred one is as small. Always true with
 * mapped memory, where is_tight alone may help. */
static bool make_exact(const struct alloc_request *alloc, struct gc_segment_spec *exact)
{
    *exact = alloc->segment_spec;
    exact->is_tight = true;
    exact->bytes = alloc->spec.bytes;
    if (alloc->spec.bytes > GC_SMALL_MAX &&
        !gc_round_up_u64(alloc->spec.bytes, GC_SEGMENT_UNIT, &exact->bytes))
        return false;
    exact->driver_bytes = exact->bytes;
    return exact->bytes < alloc->segment_spec.bytes || alloc->context->pool.pages.page_bytes != 0;
}

static enum gc_status alloc_new(struct alloc_request *alloc, create_memory *create)
{
    struct gc_segment_spec exact;
    enum gc_status status = create(alloc->context, &alloc->segment_spec, &alloc->spec,
                                   &alloc->address, &alloc->failure);
    if (status != GC_OUT_OF_MEMORY || alloc->segment_spec.bytes == alloc->spec.bytes ||
        !make_exact(alloc, &exact))
        return status;
    return create(alloc->context, &exact, &alloc->spec, &alloc->address, &alloc->failure);
}

/* The request's planned place. GC_OUT_OF_MEMORY: there is none, or it is in use. */
static enum gc_status follow_plan(struct alloc_request *alloc)
{
    if (alloc->context->core->follow == NULL || alloc->segment_spec.size_class > GC_CLASS_LARGE)
        return GC_OUT_OF_MEMORY;
    return gc_follow_alloc(alloc->context, &alloc->spec, &alloc->address, &alloc->is_hit);
}

/* The context's work failed, perhaps permanently. The driver itself then fails every call, so
 * nothing is served from the cache until the driver has allocated again. */
static bool is_faulted(const struct alloc_request *alloc)
{
    return atomic_load_explicit(&alloc->context->is_faulted, memory_order_relaxed);
}

static enum gc_status call_driver_first(struct alloc_request *alloc)
{
    enum gc_status status = alloc_new(alloc, gc_segment_create);
    if (status == GC_OK)
        gc_context_set_faulted(alloc->context, false);
    return status;
}

/* A dedicated segment serves one size, so a program with varying sizes would collect idle segments:
 * above half of the peak (plus DEDICATED_IDLE_MIN) the longest idle ones are released first. */
static enum gc_status alloc_dedicated(struct alloc_request *alloc)
{
    struct gc_device *device = alloc->context->device;
    struct gc_quota *quota = alloc->context->quota;
    const uint64_t need = gc_quota_peak_with(device, quota, alloc->segment_spec.bytes);
    const uint64_t idle = gc_quota_idle_bytes(device, quota);
    const uint64_t keep = need / DEDICATED_IDLE_DIVISOR + DEDICATED_IDLE_MIN;
    if (idle > keep)
        gc_release_idle(device, quota, keep, idle - keep);
    return alloc_new(alloc, gc_segment_create);
}

/* One attempt: free blocks, completed pending blocks, thread caches, the driver. */
static enum gc_status attempt(struct alloc_request *alloc)
{
    if (is_faulted(alloc) && alloc->segment_spec.size_class != GC_CLASS_UNCACHED)
        return call_driver_first(alloc);
    if (alloc->segment_spec.size_class == GC_CLASS_UNCACHED)
        return gc_segment_create(alloc->context, &alloc->segment_spec, &alloc->spec,
                                 &alloc->address, &alloc->failure);
    enum gc_status status = alloc_from_free_block(alloc, FROM_CLASS);
    if (status == GC_OUT_OF_MEMORY && gc_defer_reclaim(alloc->context, alloc->segment_spec.bytes))
        status = alloc_from_free_block(alloc, FROM_CLASS);
    /* Blocks in other threads' caches before new memory. */
    if (status == GC_OUT_OF_MEMORY &&
        gc_tcache_flush_device(alloc->context->device, alloc->context->quota)) {
        gc_defer_reclaim(alloc->context, alloc->segment_spec.bytes);
        status = alloc_from_free_block(alloc, FROM_CLASS);
    }
    /* Planned memory that the plan does not use now. */
    if (status == GC_OUT_OF_MEMORY && gc_follow_has_segment(alloc->context))
        status = alloc_from_free_block(alloc, FROM_PLANNED);
    if (status != GC_OUT_OF_MEMORY)
        return status;
    return alloc->segment_spec.size_class == GC_CLASS_DEDICATED ? alloc_dedicated(alloc)
                                                                : alloc_new(alloc, gc_map_alloc);
}

static bool reclaim_driver(const struct alloc_request *alloc)
{
    const struct gc_device *device = alloc->context->device;
    const struct gc_driver *driver = &device->core->driver;
    return !alloc->failure.charge_failure.is_quota_short &&
           alloc->segment_spec.bytes <= gc_device_total_bytes(device) && driver->reclaim != NULL &&
           driver->reclaim(driver->self, alloc->context->handle, alloc->segment_spec.bytes);
}

/* During a capture no pending block completes. The driver then serves a request and later frees it,
 * as without the library. Exception: a stream-ordered request has its stream's order or comes from
 * the driver's pool. */
static bool is_beside_capture(const struct alloc_request *alloc)
{
    const struct gc_context *context = alloc->context;
    return gc_capture_is_of_context(context) && context->core->debug == NULL &&
           !alloc->spec.is_ordered;
}

static enum gc_status alloc_plain(struct alloc_request *alloc)
{
    struct gc_context *context = alloc->context;
    const struct gc_segment_spec plain = {.size_class = GC_CLASS_UNCACHED,
                                          .is_plain = true,
                                          .bytes = alloc->spec.bytes,
                                          .driver_bytes = alloc->spec.requested_bytes};
    enum gc_status status = GC_OUT_OF_MEMORY;
    bool goes_on = true;
    for (unsigned i = 0; goes_on && i < PLAIN_ATTEMPTS; i++) {
        status = gc_segment_create(context, &plain, &alloc->spec, &alloc->address, &alloc->failure);
        goes_on = status == GC_OUT_OF_MEMORY &&
                  gc_reclaim_release_wanted(context->device, context->quota, plain.bytes);
    }
    return status;
}

/* What suffices for the request: others give no more than that. */
static uint64_t least_bytes(const struct alloc_request *alloc)
{
    uint64_t bytes;
    if (alloc->segment_spec.size_class > GC_CLASS_LARGE ||
        !gc_round_up_u64(alloc->spec.bytes, GC_SEGMENT_UNIT, &bytes))
        return alloc->segment_spec.bytes;
    return gc_min_u64(bytes, alloc->segment_spec.bytes);
}

static enum gc_status serve_borrowing(struct alloc_request *alloc, struct gc_borrow *borrow)
{
    struct gc_device *device = alloc->context->device;
    struct gc_reclaim reclaim;
    enum gc_status status = GC_OUT_OF_MEMORY;
    /* A limit was set below the bytes held. If the limit is the group's, other processes may have
     * idle memory. */
    while (!gc_limit_enforce(alloc->context))
        if (gc_device_excess_bytes(device) == 0 ||
            !gc_borrow_step(device, least_bytes(alloc), borrow))
            return GC_OUT_OF_MEMORY;
    if (alloc->segment_spec.size_class != GC_CLASS_UNCACHED && !is_faulted(alloc)) {
        status = follow_plan(alloc);
        if (status == GC_OUT_OF_MEMORY && is_beside_capture(alloc))
            status = alloc_plain(alloc);
        if (status == GC_OUT_OF_MEMORY)
            status =
                alloc_from_free_block(alloc, FROM_CLASS); /* the hot path: one lock, no driver */
    }
    if (status != GC_OUT_OF_MEMORY)
        return status;
    gc_reconcile_update(device);
    gc_import_finish_closes(device->core);
    gc_reclaim_begin(&reclaim, device, alloc->context->quota, &alloc->context->pool);
    status = attempt(alloc);
    while (status == GC_OUT_OF_MEMORY &&
           gc_reclaim_step(&reclaim, alloc->segment_spec.bytes, &alloc->failure.charge_failure)) {
        if (reclaim.attempts == 1)
            gc_counter_add(&device->stats.retry_count, 1);
        status = attempt(alloc);
    }
    if (status == GC_OUT_OF_MEMORY && reclaim_driver(alloc))
        status = attempt(alloc);
    /* Last resort: a free block of any size class that needs no driver call. */
    if (status == GC_OUT_OF_MEMORY && alloc->segment_spec.size_class != GC_CLASS_UNCACHED)
        status = alloc_from_free_block(alloc, FROM_ANY);
    while (status == GC_OUT_OF_MEMORY && !alloc->failure.charge_failure.is_quota_short &&
           gc_borrow_step(device, least_bytes(alloc), borrow))
        status = attempt(alloc);
    return status;
}

static enum gc_status serve(struct alloc_request *alloc)
{
    struct gc_borrow borrow = {.is_short = alloc->is_trial, .tenant = alloc->context->tenant};
    const enum gc_status status = serve_borrowing(alloc, &borrow);
    gc_borrow_end(alloc->context->device, &borrow);
    return status;
}

/* Retries the request if the context's teardown was cancelled: during one it serves nothing. */
static enum gc_status serve_across_teardown(struct alloc_request *alloc)
{
    enum gc_status status;
    unsigned reattach_count;
    do {
        reattach_count = gc_core_reattach_count(alloc->context->core);
        status = serve(alloc);
    } while (status == GC_INVALID_ARGUMENT && gc_wait_teardown(alloc->context, reattach_count));
    if (status == GC_OUT_OF_MEMORY && gc_reconcile_again(alloc->context->device))
        status = serve(alloc);
    return status;
}

static enum gc_status spill(struct alloc_request *alloc)
{
    enum gc_status status;
    unsigned reattach_count;
    do {
        reattach_count = gc_core_reattach_count(alloc->context->core);
        status = gc_spill_alloc(alloc->context, &alloc->spec, &alloc->address);
    } while (status == GC_INVALID_ARGUMENT && gc_wait_teardown(alloc->context, reattach_count));
    return status;
}

/* On the device, or where that has no room for it, in host memory. */
static enum gc_status serve_anywhere(struct alloc_request *alloc)
{
    enum gc_status status = alloc->is_too_large ? GC_OUT_OF_MEMORY : serve_across_teardown(alloc);
    if (status != GC_OUT_OF_MEMORY || alloc->is_trial)
        return status;
    if (!alloc->is_too_large && gc_spill_make_room(alloc->context, &alloc->spec))
        status = serve_across_teardown(alloc);
    return status == GC_OUT_OF_MEMORY ? spill(alloc) : status;
}

static enum gc_status make_request(struct gc_core *core, struct gc_context *context,
                                   const struct gc_request *request, struct alloc_request *alloc)
{
    *alloc = (struct alloc_request){.context = context, .is_trial = request->is_trial};
    if (!gc_pool_specify(request->bytes, &alloc->spec.bytes, &alloc->segment_spec))
        return GC_OUT_OF_MEMORY;
    /* The request can never fit: no idle memory is released. */
    alloc->is_too_large = alloc->spec.bytes > gc_quota_total_bytes(context->device, context->quota);
    if (alloc->is_too_large && !gc_spill_alloc_is_on(core))
        return GC_OUT_OF_MEMORY;
    alloc->spec.requested_bytes = request->bytes;
    alloc->spec.stream = request->stream;
    alloc->spec.api = request->api;
    alloc->spec.is_ordered = request->is_ordered;
    if (core->mode != GC_MODE_CACHE) {
        alloc->segment_spec.size_class = GC_CLASS_UNCACHED;
        alloc->segment_spec.driver_bytes = request->bytes;
        alloc->segment_spec.bytes = alloc->spec.bytes;
    } else if (request->is_dedicated ||
               (context->device->info.is_dedicated && !request->is_ordered)) {
        alloc->segment_spec.size_class = GC_CLASS_DEDICATED;
        alloc->segment_spec.driver_bytes = alloc->spec.bytes;
        alloc->segment_spec.bytes = alloc->spec.bytes;
    } else if (core->debug != NULL) {
        (void)gc_guard_specify(context, &alloc->spec, &alloc->segment_spec);
    }
    return GC_OK;
}

enum gc_status gc_alloc(struct gc_core *core, struct gc_context *context,
                        const struct gc_request *request, uint64_t *address, int *driver_code)
{
    struct gc_device *device = context->device;
    const uint64_t start_ns = gc_core_now_ns(core);
    struct alloc_request alloc;
    if (request->bytes == 0)
        return GC_INVALID_ARGUMENT;
    gc_serve_requests(core);
    if (context->tenant != NULL)
        gc_wait_tenant(core, context->tenant);
    enum gc_status status = make_request(core, context, request, &alloc);
    if (status == GC_OK)
        status = serve_anywhere(&alloc);
    if (status == GC_DRIVER)
        *driver_code = alloc.failure.driver_code;
    struct gc_entry entry = {.requested_bytes = request->bytes,
                             .bytes = alloc.spec.bytes,
                             .stream = request->stream,
                             .api = request->api};
    if (status == GC_OUT_OF_MEMORY && !request->is_trial) {
        gc_refusal_count(device, context->quota, &entry,
                         gc_max_u64(request->bytes, least_bytes(&alloc)),
                         &alloc.failure.charge_failure);
        gc_publish_device(device, gc_core_now_ns(core));
        gc_publish_record(context);
    }
    if (status != GC_OK)
        return status;
    entry.address = alloc.address;
    if (core->debug != NULL)
        gc_debug_on_alloc(context, alloc.address, alloc.spec.bytes, request->bytes);
    gc_quota_count_hit(device, context->quota, alloc.is_hit);
    gc_device_observe(device, GC_TRACE_ALLOC, &entry);
    *address = alloc.address;
    const uint64_t end_ns = gc_core_now_ns(core);
    gc_histogram_add(&core->alloc_ns, end_ns - start_ns);
    gc_publish_device(device, end_ns);
    gc_publish_record(context);
    return GC_OK;
}
