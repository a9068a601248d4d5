/* The path of one request for memory: everything it passes is in this order here: round, bins,
 * driver, shortage. */
#include "core/backing/change.h"
#include "core/backing/segment.h"
#include "core/base/bits.h"
#include "core/debug/debug.h"
#include "core/device/publish.h"
#include "core/device/registry.h"
#include "core/device/tenant_record.h"
#include "core/device/wait.h"
#include "core/follow/follow.h"
#include "core/group/group.h"
#include "core/pause/pause.h"
#include "core/reclaim/defer.h"
#include "core/reclaim/limit.h"
#include "core/reclaim/reclaim.h"
#include "core/reclaim/release.h"
#include "core/reclaim/tcache.h"

#include <stddef.h>

/* Idle whole segments that stay where others are wanted: this share of the most that was live, and
 * this much. */
#define WHOLE_IDLE_SHARE 2
#define WHOLE_IDLE_MIN GC_MIB(128)
/* Others may take what was given back. */
#define PLAIN_ATTEMPTS 8

/* One request on its way. */
struct order {
    struct gc_context *context;
    struct gc_claim claim;
    struct gc_segment_plan plan; /* the segment it would like */
    uint64_t address;
    bool is_hit;
    bool is_trial;
    struct gc_segment_refusal refusal;
};

/* What was freed in the request's own stream comes first: it is of use to no other. */
static struct gc_block *take_ordered_or_free(struct order *order)
{
    struct gc_pool *pool = &order->context->pool;
    struct gc_block *block = NULL;
    if (order->plan.class != GC_CLASS_WHOLE)
        block = gc_stream_take_locked(pool, order->claim.stream, order->claim.bytes);
    if (block == NULL)
        return gc_pool_take_locked(pool, order->plan.class, &order->claim);
    gc_pool_make_live_locked(pool, block, &order->claim);
    return block;
}

static enum gc_status take_free(struct order *order, bool any_hole)
{
    struct gc_context *context = order->context;
    struct gc_pool *pool = &context->pool;
    enum gc_status status = gc_pool_acquire(pool);
    if (status != GC_OK)
        return status;
    const struct gc_block *block = NULL;
    if (pool->is_dropped || pool->is_closed)
        status = GC_INVALID_ARGUMENT;
    else if (any_hole)
        block = gc_pool_take_any_locked(pool, order->plan.class, &order->claim);
    else
        block = take_ordered_or_free(order);
    if (block != NULL) {
        const struct gc_entry entry = {block->address, order->claim.requested_bytes, block->bytes,
                                       order->claim.stream, order->claim.api};
        order->address = block->address;
        order->is_hit = true;
        gc_context_note_alloc(context, &entry);
    } else if (status == GC_OK) {
        status = GC_OUT_OF_MEMORY;
    }
    gc_pool_release(pool);
    return status;
}

typedef enum gc_status create_memory(struct gc_context *context, const struct gc_segment_plan *plan,
                                     const struct gc_claim *claim, uint64_t *address,
                                     struct gc_segment_refusal *refusal);

/* No room for comfort: just what is needed, in the units in which the driver gives larger amounts
 * anyhow. */
static bool make_exact(const struct order *order, struct gc_segment_plan *exact)
{
    *exact = order->plan;
    exact->is_tight = true;
    exact->bytes = order->claim.bytes;
    if (order->claim.bytes > GC_SMALL_MAX &&
        !gc_round_up_u64(order->claim.bytes, GC_SEGMENT_UNIT, &exact->bytes))
        return false;
    exact->driver_bytes = exact->bytes;
    return exact->bytes < order->plan.bytes || order->context->pool.pages.page_bytes != 0;
}

static enum gc_status take_fresh(struct order *order, create_memory *create)
{
    struct gc_segment_plan exact;
    enum gc_status status =
        create(order->context, &order->plan, &order->claim, &order->address, &order->refusal);
    if (status != GC_OUT_OF_MEMORY || order->plan.bytes == order->claim.bytes ||
        !make_exact(order, &exact))
        return status;
    return create(order->context, &exact, &order->claim, &order->address, &order->refusal);
}

/* The place that a plan of the run has for it. GC_OUT_OF_MEMORY: none, or not now. */
static enum gc_status follow_plan(struct order *order)
{
    if (order->context->core->follow == NULL || order->plan.class > GC_CLASS_LARGE)
        return GC_OUT_OF_MEMORY;
    return gc_follow_alloc(order->context, &order->claim, &order->address, &order->is_hit);
}

/* A context whose work has failed may be beyond repair. The plain driver says so at every call, so
 * nothing is served from the cache until it has given memory again. */
static bool is_suspect(const struct order *order)
{
    return atomic_load_explicit(&order->context->is_suspect, memory_order_relaxed);
}

static enum gc_status ask_driver_first(struct order *order)
{
    enum gc_status status = take_fresh(order, gc_segment_create);
    if (status == GC_OK)
        gc_context_set_suspect(order->context, false);
    return status;
}

/* Whole segments serve one size each, so a program whose sizes vary would collect idle ones of all
 * sizes: beyond half of what it needed at its peak the longest idle go back first. */
static enum gc_status take_whole(struct order *order)
{
    struct gc_device *device = order->context->device;
    struct gc_share *share = order->context->share;
    const uint64_t need = gc_share_need_with(device, share, order->plan.bytes);
    const uint64_t idle = gc_share_idle_bytes(device, share);
    const uint64_t keep = need / WHOLE_IDLE_SHARE + WHOLE_IDLE_MIN;
    if (idle > keep)
        gc_shortage_give_back(device, share, keep, idle - keep);
    return take_fresh(order, gc_segment_create);
}

/* One attempt: free memory, what is pending, the driver. */
static enum gc_status attempt(struct order *order)
{
    if (is_suspect(order) && order->plan.class != GC_CLASS_ONCE)
        return ask_driver_first(order);
    if (order->plan.class == GC_CLASS_ONCE)
        return gc_segment_create(order->context, &order->plan, &order->claim, &order->address,
                                 &order->refusal);
    enum gc_status status = take_free(order, false);
    if (status == GC_OUT_OF_MEMORY && gc_reuse_resolve(order->context, order->plan.bytes))
        status = take_free(order, false);
    /* What other threads keep for themselves is better than new memory. */
    if (status == GC_OUT_OF_MEMORY &&
        gc_magazine_flush_device(order->context->device, order->context->share)) {
        gc_reuse_resolve(order->context, order->plan.bytes);
        status = take_free(order, false);
    }
    /* A plan's places are there already, as long as it does not want them itself. */
    if (status == GC_OUT_OF_MEMORY && gc_follow_has_segment(order->context))
        status = take_free(order, true);
    if (status != GC_OUT_OF_MEMORY)
        return status;
    return order->plan.class == GC_CLASS_WHOLE ? take_whole(order)
                                               : take_fresh(order, gc_arena_create);
}

static bool relieve_driver(const struct order *order)
{
    const struct gc_device *device = order->context->device;
    const struct gc_driver *driver = &device->core->driver;
    return !order->refusal.decline.is_share_short &&
           order->plan.bytes <= gc_device_total_bytes(device) && driver->relieve != NULL &&
           driver->relieve(driver->self, order->context->handle, order->plan.bytes);
}

/* While something captures nothing that is freed becomes free memory. So that memory comes and goes
 * as without us, it is the driver's: an allocation of its own, which the driver frees. What is
 * stream-ordered has the order of its stream, or comes from the driver's pool. */
static bool is_beside_capture(const struct order *order)
{
    const struct gc_context *context = order->context;
    return gc_context_is_capturing(context) && context->core->debug == NULL &&
           !order->claim.is_ordered;
}

static enum gc_status take_plain(struct order *order)
{
    struct gc_context *context = order->context;
    const struct gc_segment_plan plain = {.class = GC_CLASS_ONCE,
                                          .is_plain = true,
                                          .bytes = order->claim.bytes,
                                          .driver_bytes = order->claim.requested_bytes};
    enum gc_status status = GC_OUT_OF_MEMORY;
    bool goes_on = true;
    for (unsigned i = 0; goes_on && i < PLAIN_ATTEMPTS; i++) {
        status =
            gc_segment_create(context, &plain, &order->claim, &order->address, &order->refusal);
        goes_on = status == GC_OUT_OF_MEMORY &&
                  gc_shortage_give_idle(context->device, context->share, plain.bytes);
    }
    return status;
}

static enum gc_status serve(struct order *order)
{
    struct gc_device *device = order->context->device;
    struct gc_shortage shortage;
    struct gc_room room = {.is_short = order->is_trial};
    enum gc_status status = GC_OUT_OF_MEMORY;
    /* A limit was set below what is held. Where it is the group's, others may have idle memory. */
    while (!gc_shortage_settle(order->context))
        if (gc_device_excess_bytes(device) == 0 ||
            !gc_member_make_room(device, order->plan.bytes, &room))
            return GC_OUT_OF_MEMORY;
    if (order->plan.class != GC_CLASS_ONCE && !is_suspect(order)) {
        status = follow_plan(order);
        if (status == GC_OUT_OF_MEMORY && is_beside_capture(order))
            status = take_plain(order);
        if (status == GC_OUT_OF_MEMORY)
            status = take_free(order, false); /* the hot path: one lock, no driver */
    }
    if (status != GC_OUT_OF_MEMORY)
        return status;
    gc_shortage_begin(&shortage, device, order->context->share, &order->context->pool);
    status = attempt(order);
    while (status == GC_OUT_OF_MEMORY &&
           gc_shortage_relieve(&shortage, order->plan.bytes, &order->refusal.decline)) {
        if (shortage.attempts == 1)
            gc_counter_add(&device->stats.retry_count, 1);
        status = attempt(order);
    }
    if (status == GC_OUT_OF_MEMORY && relieve_driver(order))
        status = attempt(order);
    /* A hole that fits badly, or among blocks of the other class, is better than none. */
    if (status == GC_OUT_OF_MEMORY && order->plan.class != GC_CLASS_ONCE)
        status = take_free(order, true);
    while (status == GC_OUT_OF_MEMORY && !order->refusal.decline.is_share_short &&
           gc_member_make_room(device, order->plan.bytes, &room))
        status = attempt(order);
    return status;
}

/* A context that may end serves nothing; it may stay. */
static enum gc_status serve_while_it_stays(struct order *order)
{
    enum gc_status status;
    unsigned shown_count;
    do {
        shown_count = gc_core_shown_count(order->context->core);
        status = serve(order);
    } while (status == GC_INVALID_ARGUMENT && gc_context_await_end(order->context, shown_count));
    return status;
}

static enum gc_status make_order(struct gc_core *core, struct gc_context *context,
                                 const struct gc_request *request, struct order *order)
{
    *order = (struct order){.context = context, .is_trial = request->is_trial};
    if (!gc_pool_plan(request->bytes, &order->claim.bytes, &order->plan))
        return GC_OUT_OF_MEMORY;
    if (order->claim.bytes > context->device->info.total_bytes ||
        (context->share != NULL && order->claim.bytes > gc_budget_limit(&context->share->budget)))
        return GC_OUT_OF_MEMORY; /* it could never fit: no idle memory is given up for it */
    order->claim.requested_bytes = request->bytes;
    order->claim.stream = request->stream;
    order->claim.api = request->api;
    order->claim.is_ordered = request->is_ordered;
    if (core->mode != GC_MODE_CACHE) {
        order->plan.class = GC_CLASS_ONCE;
        order->plan.driver_bytes = request->bytes;
        order->plan.bytes = order->claim.bytes;
    } else if (request->is_whole || (context->device->info.is_whole && !request->is_ordered)) {
        order->plan.class = GC_CLASS_WHOLE;
        order->plan.driver_bytes = order->claim.bytes;
        order->plan.bytes = order->claim.bytes;
    } else if (core->debug != NULL) {
        (void)gc_debug_plan(context, &order->claim, &order->plan);
    }
    return GC_OK;
}

enum gc_status gc_core_alloc(struct gc_core *core, struct gc_context *context,
                             const struct gc_request *request, uint64_t *address, int *driver_code)
{
    struct gc_device *device = context->device;
    const uint64_t start_ns = gc_core_now_ns(core);
    struct order order;
    if (request->bytes == 0)
        return GC_INVALID_ARGUMENT;
    gc_core_serve(core);
    if (context->tenant != NULL)
        gc_core_await_tenant(core, context->tenant);
    enum gc_status status = make_order(core, context, request, &order);
    if (status == GC_OK)
        status = serve_while_it_stays(&order);
    if (status == GC_DRIVER)
        *driver_code = order.refusal.driver_code;
    struct gc_entry entry = {.requested_bytes = request->bytes,
                             .bytes = order.claim.bytes,
                             .stream = request->stream,
                             .api = request->api};
    if (status == GC_OUT_OF_MEMORY && !request->is_trial) {
        gc_share_note_oom(device, context->share, &entry);
        gc_member_write(device, gc_core_now_ns(core));
        gc_member_write_record(context);
    }
    if (status != GC_OK)
        return status;
    entry.address = order.address;
    if (core->debug != NULL)
        gc_debug_handed(context, order.address, order.claim.bytes, request->bytes);
    gc_share_note_hit(device, context->share, order.is_hit);
    gc_device_observe(device, GC_TRACE_ALLOC, &entry);
    *address = order.address;
    const uint64_t end_ns = gc_core_now_ns(core);
    gc_hist_add(&core->alloc_ns, end_ns - start_ns);
    gc_member_write(device, end_ns);
    gc_member_write_record(context);
    return GC_OK;
}
