/* Hits in the bins: requests and frees that the context's pool serves at once, under its lock
 * alone. A wrapper calls these first, before it asks the runtime or the driver anything. What is
 * not plain (a tenant's gate, a plan, a trace, an excess over a limit, a capture, a fault) is left
 * to gc_alloc and gc_free, with nothing changed.
 *
 * Times and the figures of other processes are samples: a clock costs as much as a hit. */
#include "core/device/lookup.h"
#include "core/device/publish.h"
#include "core/device/registry.h"
#include "core/reclaim/defer.h"

#include <stddef.h>

/* One call in so many is timed: gc_histogram_sample. */
struct sample {
    uint64_t calls; /* that this one stands for; 0: it is not timed */
    uint64_t start_ns;
};

static inline struct sample sample_begin(const struct gc_core *core)
{
    const uint64_t calls = gc_histogram_sample();
    return (struct sample){calls, calls == 0 ? 0 : gc_core_now_ns(core)};
}

static void sample_end(struct gc_context *context, struct gc_histogram *histogram,
                       const struct sample *sample)
{
    if (GC_LIKELY(sample->calls == 0))
        return;
    const uint64_t end_ns = gc_core_now_ns(context->core);
    gc_histogram_add_many(histogram, end_ns - sample->start_ns, sample->calls);
    gc_publish_device(context->device, end_ns);
    gc_publish_record(context);
}

/* Whether the pool may serve as a thread cache may, and nothing observes. */
static inline bool is_plain(const struct gc_context *context)
{
    const struct gc_core *core = context->core;
    return core->has_tcaches && !core->is_observed &&
           !atomic_load_explicit(&context->is_faulted, memory_order_relaxed) &&
           !gc_capture_is_of_context(context);
}

static inline bool may_alloc(const struct gc_context *context)
{
    const struct gc_device *device = context->device;
    return is_plain(context) && context->core->follow == NULL && context->tenant == NULL &&
           !device->info.is_dedicated &&
           !atomic_load_explicit(&device->is_over_limit, memory_order_relaxed) &&
           gc_device_excess_bytes(device) == 0;
}

uint64_t gc_hit_alloc(struct gc_context *context, uint64_t bytes, uint16_t api)
{
    struct gc_pool *pool = &context->pool;
    struct gc_alloc_spec spec = {.requested_bytes = bytes, .api = api};
    struct gc_segment_spec segment_spec;
    const struct gc_block *block = NULL;
    if (bytes == 0 || !may_alloc(context) || !gc_pool_specify(bytes, &spec.bytes, &segment_spec))
        return GC_ADDRESS_NONE;
    const struct sample sample = sample_begin(context->core);
    if (gc_pool_acquire(pool) != GC_OK)
        return GC_ADDRESS_NONE;
    if (!pool->is_dropped && !pool->is_closed)
        block = gc_pool_alloc_locked(pool, segment_spec.size_class, &spec);
    if (block == NULL) {
        gc_pool_release(pool);
        return GC_ADDRESS_NONE;
    }
    const struct gc_entry entry = {block->address, bytes, block->bytes, GC_STREAM_NONE, api};
    gc_context_count_alloc(context, &entry);
    gc_pool_release(pool);
    gc_quota_count_hit(context->device, NULL, true);
    sample_end(context, &context->core->alloc_ns, &sample);
    return entry.address;
}

/* Whether the free of the block is short: it waits for nothing. */
static bool may_free(const struct gc_context *context, const struct gc_block *block)
{
    const struct gc_segment *segment = gc_block_segment(block);
    return is_plain(context) && !context->is_device && !gc_context_is_fenceless(context) &&
           segment->size_class != GC_CLASS_UNCACHED && !segment->is_plain && !block->is_ordered;
}

bool gc_hit_free(struct gc_core *core, uint64_t address)
{
    const struct gc_defer_order order = {.stream = GC_STREAM_NONE, .api = GC_API_NONE};
    uint8_t state = GC_BLOCK_LIVE;
    struct gc_block *block;
    int ignored;
    const struct sample sample = sample_begin(core);
    const enum gc_lookup found = gc_lookup_lock(core, address, false, &block);
    if (found != GC_LOOKUP_START && found != GC_LOOKUP_INSIDE)
        return false;
    struct gc_context *context = gc_block_pool(block)->context;
    /* Races with a thread that frees the block into its cache, without the lock. */
    if (found == GC_LOOKUP_INSIDE || !may_free(context, block) ||
        !atomic_compare_exchange_strong_explicit(&block->state, &state, GC_BLOCK_FREEING,
                                                 memory_order_acq_rel, memory_order_relaxed)) {
        gc_pool_release(&context->pool);
        return false;
    }
    /* It may fail all the same where the driver refused a fence meanwhile. */
    if (gc_defer_free_unlock(context, block, &order, NULL, &ignored) != GC_OK)
        return false;
    sample_end(context, &core->free_ns, &sample);
    return true;
}
