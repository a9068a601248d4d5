/* The edge of core: allocation and free as the shim asks for them. Everything that a request passes
 * is in this order here: round, bins, driver, shortage. */
#include "core/core.h"

#include "core/arena.h"
#include "core/bits.h"
#include "core/check.h"
#include "core/debug.h"
#include "core/elastic.h"
#include "core/instance.h"
#include "core/magazine.h"
#include "core/member.h"
#include "core/tenant_record.h"

#include <stddef.h>

/* Idle whole segments that stay where others are wanted: this share of the most that was live, and
 * this much. */
#define WHOLE_IDLE_SHARE 2
#define WHOLE_IDLE_MIN GC_MIB(128)

static uint64_t counters_bytes(const struct gc_core *core)
{
    return gc_max_u64(core->api_count, 1) * sizeof(*core->process_driver_calls);
}

enum gc_status gc_core_create(const struct gc_core_config *config, struct gc_core **created)
{
    struct gc_host host = {0};
    struct gc_core *core = gc_host_map(&host, sizeof(*core));
    if (core == NULL)
        return GC_NO_HOST_MEMORY;
    core->driver = *config->driver;
    core->options = config->options;
    core->log = config->log;
    core->trace = config->trace;
    core->mode = config->options->mode;
    core->api_names = config->api_names;
    core->api_count = config->api_count;
    core->next_block_id = 1;
    atomic_init(&core->work.is_single, true);
    gc_host_count(&core->host, gc_host_bytes(&host));
    core->process_driver_calls = gc_host_map(&core->host, counters_bytes(core));
    if (core->process_driver_calls == NULL)
        goto fail_counters;
    if (gc_pagemap_init(&core->pagemap, &core->host) != GC_OK)
        goto fail_pagemap;
    gc_tracker_init(&core->tracker, &core->host);
    gc_lock_init(&core->registry, GC_RANK_REGISTRY);
    gc_lock_init(&core->elastic_lock, GC_RANK_ELASTIC_LIST);
    pthread_cond_init(&core->elastic_changed, NULL);
    gc_caches_init(core);
    if (gc_debug_init(core) != GC_OK)
        goto fail_debug;
    *created = core;
    return GC_OK;

fail_debug:
    gc_caches_fini(core);
    gc_lock_fini(&core->registry);
    gc_tracker_fini(&core->tracker);
    gc_pagemap_fini(&core->pagemap);

fail_pagemap:
    gc_host_unmap(&core->host, core->process_driver_calls, counters_bytes(core));
fail_counters:
    gc_host_unmap(&host, core, sizeof(*core));
    return GC_NO_HOST_MEMORY;
}

void gc_core_destroy(struct gc_core *core)
{
    if (core == NULL)
        return;
    gc_elastic_fini(core);
    while (core->all_contexts != NULL) {
        struct gc_context *context = core->all_contexts;
        core->all_contexts = context->next_of_all;
        gc_arena_forget(&context->pool);
        gc_pool_fini(&context->pool);
        gc_host_unmap(&core->host, context, sizeof(*context));
    }
    for (int i = 0; i < GC_DEVICE_MAX; i++) {
        struct gc_device *device = gc_core_find_device(core, i);
        if (device != NULL)
            gc_device_fini(device);
    }
    gc_member_fini(core);
    gc_tenants_fini(core);
    gc_caches_fini(core);
    gc_debug_fini(core);
    gc_tracker_fini(&core->tracker);
    gc_pagemap_fini(&core->pagemap);
    gc_lock_fini(&core->registry);
    gc_host_unmap(&core->host, core->process_driver_calls, counters_bytes(core));
    struct gc_host host = {gc_host_bytes(&core->host)};
    gc_host_unmap(&host, core, sizeof(*core));
}

struct gc_work *gc_core_work(struct gc_core *core)
{
    return &core->work;
}

static uint64_t now_ns(const struct gc_core *core)
{
    return core->driver.clock_ns(core->driver.self);
}

/* ---- allocation ---- */

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
    if (order->plan.class != GC_CLASS_ONCE && !is_suspect(order))
        status = take_free(order, false); /* the hot path: one lock, no driver */
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
    const uint64_t start_ns = now_ns(core);
    struct order order;
    if (request->bytes == 0)
        return GC_INVALID_ARGUMENT;
    gc_core_serve(core);
    enum gc_status status = make_order(core, context, request, &order);
    if (status == GC_OK)
        status = serve(&order);
    if (status == GC_DRIVER)
        *driver_code = order.refusal.driver_code;
    struct gc_entry entry = {.requested_bytes = request->bytes,
                             .bytes = order.claim.bytes,
                             .stream = request->stream,
                             .api = request->api};
    if (status == GC_OUT_OF_MEMORY && !request->is_trial) {
        gc_share_note_oom(device, context->share, &entry);
        gc_member_write(device, now_ns(core));
    }
    if (status != GC_OK)
        return status;
    entry.address = order.address;
    if (core->debug != NULL)
        gc_debug_handed(context, order.address, order.claim.bytes, request->bytes);
    gc_share_note_hit(device, context->share, order.is_hit);
    gc_device_trace(device, GC_TRACE_ALLOC, &entry);
    *address = order.address;
    const uint64_t end_ns = now_ns(core);
    gc_hist_add(&core->alloc_ns, end_ns - start_ns);
    gc_member_write(device, end_ns);
    return GC_OK;
}

/* ---- free and find ---- */

/* A candidate that was found without a lock: takes its pool's lock. NULL if it is stale. The
 * acquires pair with the releases in pool.c, where a record is put to a new use. */
static struct gc_pool *lock_pool_of(struct gc_block *block)
{
    struct gc_segment *segment = atomic_load_explicit(&block->segment, memory_order_acquire);
    struct gc_pool *pool =
        segment == NULL ? NULL : atomic_load_explicit(&segment->pool, memory_order_acquire);
    if (pool == NULL)
        return NULL;
    gc_pool_acquire_plain(pool);
    if (atomic_load_explicit(&block->segment, memory_order_acquire) == segment &&
        atomic_load_explicit(&segment->pool, memory_order_acquire) == pool)
        return pool;
    gc_pool_release(pool);
    return NULL;
}

static struct gc_block *nearest(const struct gc_core *core, uint64_t address, uint64_t *start)
{
    struct gc_block *block = gc_pagemap_get(&core->pagemap, address);
    *start = address;
    return block != NULL ? block : gc_pagemap_find(&core->pagemap, address, start);
}

enum gc_status gc_core_lock_block(struct gc_core *core, uint64_t address, bool interior,
                                  struct gc_block **block)
{
    for (;;) {
        uint64_t start;
        struct gc_block *found = nearest(core, address, &start);
        if (found == NULL)
            return GC_NOT_OURS;
        struct gc_pool *pool = lock_pool_of(found);
        if (pool == NULL)
            continue; /* it is vanishing this moment */
        /* With the lock the pool's blocks stand still; is it the nearest one now? */
        uint64_t start_now;
        const bool is_stable =
            nearest(core, address, &start_now) == found && start_now == found->address;
        const bool is_inside = is_stable && address - start_now < found->bytes;
        if (is_inside && (interior || address == start_now)) {
            *block = found;
            return GC_OK;
        }
        gc_pool_release(pool);
        if (is_stable)
            return is_inside ? GC_INVALID_POINTER : GC_NOT_OURS;
    }
}

static struct gc_pool *pool_of_locked(const struct gc_block *block)
{
    struct gc_segment *segment = atomic_load_explicit(&block->segment, memory_order_relaxed);
    return atomic_load_explicit(&segment->pool, memory_order_relaxed);
}

static enum gc_status refuse_free(struct gc_core *core, uint64_t address)
{
    struct gc_block *block;
    if (gc_core_lock_block(core, address, true, &block) == GC_OK) {
        struct gc_pool *pool = pool_of_locked(block);
        gc_pool_release(pool);
        gc_counter_add(&pool->context->device->stats.invalid_free_count, 1);
    }
    return GC_INVALID_POINTER;
}

/* Takes a live block from the program, with its pool's lock; *is_cached: it is in a magazine. */
static enum gc_status take_live(struct gc_core *core, uint64_t address, struct gc_block **block,
                                bool *is_cached)
{
    const enum gc_status status = gc_core_lock_block(core, address, false, block);
    uint8_t state = GC_BLOCK_LIVE;
    *is_cached = false;
    if (status != GC_OK)
        return status;
    /* Against a thread that frees it without the lock. */
    if (atomic_compare_exchange_strong_explicit(&(*block)->state, &state, GC_BLOCK_FREEING,
                                                memory_order_acq_rel, memory_order_relaxed))
        return GC_OK;
    *is_cached = state == GC_BLOCK_CACHED;
    gc_pool_release(pool_of_locked(*block));
    return GC_INVALID_POINTER;
}

static enum gc_status free_block(struct gc_core *core, uint64_t address, uint64_t stream,
                                 int *driver_code)
{
    const uint64_t start_ns = now_ns(core);
    struct gc_block *block;
    bool is_cached;
    enum gc_status status = take_live(core, address, &block, &is_cached);
    if (is_cached) {
        /* Maybe for a moment only: another thread, that frees an address twice, had found a record
         * which is this block's by now. It gives way. */
        gc_caches_stop(core);
        status = take_live(core, address, &block, &is_cached);
        gc_caches_resume(core);
    }
    if (status == GC_INVALID_POINTER)
        return refuse_free(core, address);
    if (status != GC_OK)
        return status;
    struct gc_context *context = pool_of_locked(block)->context;
    status = gc_reuse_free_unlock(context, block, stream, driver_code);
    if (status == GC_OK) {
        const uint64_t end_ns = now_ns(core);
        gc_hist_add(&core->free_ns, end_ns - start_ns);
        gc_member_write(context->device, end_ns);
    }
    return status;
}

/* A free is counted for the device; figures by entry point are those of allocations. */
enum gc_status gc_core_free(struct gc_core *core, uint64_t address, uint16_t api, int *driver_code)
{
    if (core->debug != NULL)
        gc_debug_before_free(core, address, api);
    return free_block(core, address, 0, driver_code);
}

enum gc_status gc_core_free_ordered(struct gc_core *core, uint64_t address, uint64_t stream,
                                    uint16_t api, int *driver_code)
{
    if (core->debug == NULL)
        return free_block(core, address, stream, driver_code);
    /* What is looked at when it is idle must not serve before. */
    gc_debug_before_free(core, address, api);
    return free_block(core, address, 0, driver_code);
}

static bool is_live_now(struct gc_block *block)
{
    const uint8_t state = atomic_load_explicit(&block->state, memory_order_acquire);
    return state == GC_BLOCK_LIVE || state == GC_BLOCK_FREEING;
}

/* Threads free and allocate without the pool's lock: what was read counts if the block was the same
 * live one before and after. */
static bool read_claim(struct gc_block *block, uint64_t *requested_bytes, uint64_t *id)
{
    if (!is_live_now(block))
        return false;
    *id = __atomic_load_n(&block->live.id, __ATOMIC_ACQUIRE);
    *requested_bytes = __atomic_load_n(&block->live.requested_bytes, __ATOMIC_ACQUIRE);
    return __atomic_load_n(&block->live.id, __ATOMIC_RELAXED) == *id && is_live_now(block);
}

enum gc_status gc_core_find_block(struct gc_core *core, uint64_t address,
                                  struct gc_block_info *info)
{
    struct gc_block *block;
    enum gc_status status = gc_core_lock_block(core, address, true, &block);
    if (status != GC_OK)
        return status;
    struct gc_pool *pool = pool_of_locked(block);
    const struct gc_segment *segment = atomic_load_explicit(&block->segment, memory_order_relaxed);
    uint64_t requested_bytes, id;
    const bool is_live = read_claim(block, &requested_bytes, &id);
    /* What rounding added is nobody's. */
    if (is_live && address - block->address < requested_bytes) {
        *info = (struct gc_block_info){
            .address = block->address,
            .bytes = requested_bytes,
            .capacity = block->bytes,
            .segment_address = segment->address,
            .segment_bytes = segment->bytes,
            .is_mapped = segment->arena != NULL,
            .is_whole = gc_pool_is_whole_locked(pool, block),
            .context = pool->context->handle,
            .owner = pool->context,
            .id = id,
            .api = block->api,
            .is_ordered = block->is_ordered,
        };
    } else {
        status = GC_INVALID_POINTER;
    }
    gc_pool_release(pool);
    return status;
}

enum gc_status gc_core_record_stream(struct gc_core *core, uint64_t address, uint64_t stream)
{
    struct gc_block *block;
    (void)stream; /* which one does not matter: the free waits for all */
    const enum gc_status status = gc_core_lock_block(core, address, false, &block);
    if (status != GC_OK)
        return status;
    struct gc_pool *pool = pool_of_locked(block);
    const bool is_live = is_live_now(block);
    if (is_live)
        block->is_shared = true;
    gc_pool_release(pool);
    return is_live ? GC_OK : GC_INVALID_POINTER;
}

uint64_t gc_device_ordered_bytes(const struct gc_device *device)
{
    return atomic_load_explicit(&device->stats.ordered.current, memory_order_relaxed);
}

uint64_t gc_device_ordered_mark_bytes(const struct gc_device *device, enum gc_ordered_mark mark)
{
    return atomic_load_explicit(&device->ordered_marks[mark].peak, memory_order_relaxed);
}

void gc_device_reset_ordered_mark(struct gc_device *device, enum gc_ordered_mark mark)
{
    gc_gauge_reset_peak(&device->ordered_marks[mark]);
}

static void close_stream_of_device(struct gc_device *device, uint64_t stream)
{
    for (struct gc_context *context = gc_context_first(device); context != NULL;
         context = gc_context_next(context)) {
        gc_pool_acquire_plain(&context->pool);
        gc_stream_close_locked(&context->pool, stream);
        gc_pool_release(&context->pool);
    }
}

void gc_core_close_stream(struct gc_core *core, uint64_t stream)
{
    for (int i = 0; i < GC_DEVICE_MAX; i++) {
        struct gc_device *device = gc_core_find_device(core, i);
        if (device != NULL)
            close_stream_of_device(device, stream);
    }
}

void gc_core_retire(struct gc_core *core, struct gc_context *context, uint64_t epoch)
{
    (void)core;
    for (struct gc_context *record = context->head; record != NULL;
         record = gc_context_next_record(record))
        gc_reuse_retire(record, epoch);
}

uint64_t gc_core_trim(struct gc_core *core, struct gc_device *device, uint64_t keep_bytes)
{
    (void)core;
    gc_magazine_flush_device(device, NULL);
    return gc_shortage_give_back(device, NULL, keep_bytes, UINT64_MAX);
}
