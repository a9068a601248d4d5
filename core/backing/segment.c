/* Segments of driver memory: the budget is charged before the driver allocates and uncharged after
 * it has freed, so that the account never is below the memory held. */
#include "core/backing/segment.h"

#include "core/backing/spill.h"
#include "core/base/assert.h"
#include "core/debug/debug.h"
#include "core/debug/guard.h"
#include "core/device/registry.h"
#include "core/device/wait.h"

#include <stddef.h>

/* In place of a driver code: the driver was not called. */
#define NOT_IDLE (-1)

static int call_mem_alloc(struct gc_context *context, const struct gc_segment_spec *segment_spec,
                          uint64_t *address)
{
    const struct gc_driver *driver = &context->core->driver;
    int code;
    *address = 0;
    if (context->core->debug == NULL || !gc_guard_mem_alloc(context, segment_spec, address, &code))
        code = GC_CALL_IF_OPEN(context, driver->mem_alloc(driver->self, context->handle,
                                                          segment_spec->driver_bytes, address));
    if (code == 0)
        gc_device_trace_memory(context->device, GC_TRACE_MAP, GC_TRACE_SEGMENT, *address,
                               segment_spec->bytes);
    return code;
}

/* How the driver frees. */
struct free_mode {
    uint64_t stream; /* in the order of this stream; GC_STREAM_NONE: of none */
    bool is_idle;    /* no work uses the memory; else the free waits, as the program's own */
};

static int mem_free(struct gc_context *context, uint64_t address, struct free_mode mode)
{
    const struct gc_driver *driver = &context->core->driver;
    const uint64_t handle = context->handle;
    if (mode.stream != GC_STREAM_NONE && driver->mem_free_ordered != NULL)
        return GC_CALL_IF_OPEN(
            context, driver->mem_free_ordered(driver->self, handle, address, mode.stream));
    if (mode.is_idle && driver->mem_free_idle != NULL)
        return GC_CALL_IF_OPEN(context, driver->mem_free_idle(driver->self, handle, address));
    return GC_CALL_IF_OPEN(context, driver->mem_free(driver->self, handle, address));
}

static int release_memory(struct gc_context *context, const struct gc_segment *segment,
                          struct free_mode mode)
{
    const struct gc_driver *driver = &context->core->driver;
    const bool is_debugged = context->core->debug != NULL;
    const uint64_t address = segment->address;
    const uint64_t bytes = segment->bytes;
    int code;
    if (segment->is_spilled)
        return gc_spill_release(context, segment);
    if (is_debugged)
        gc_debug_on_release(context, address, bytes);
    if (!is_debugged || !gc_guard_mem_free(context, address, &code))
        code = mem_free(context, address, mode);
    /* The memory was destroyed with its context. For a free in a stream the code may mean the
     * stream's context instead. */
    if (code == driver->context_is_gone && mode.stream == GC_STREAM_NONE)
        code = 0;
    if (code == 0)
        gc_device_trace_memory(context->device, GC_TRACE_UNMAP, GC_TRACE_SEGMENT, address, bytes);
    return code;
}

static void uncharge(struct gc_context *context, const struct gc_segment *segment)
{
    if (!segment->is_spilled)
        gc_context_uncharge(context, segment->bytes);
}

/* The bytes stay charged if the driver does not free the memory: it is still held. */
static void undo_mem_alloc(struct gc_context *context, const struct gc_segment *segment)
{
    const struct free_mode unused = {.stream = GC_STREAM_NONE, .is_idle = true};
    if (release_memory(context, segment, unused) == 0)
        uncharge(context, segment);
}

/* Charges, then allocates from the driver. */
static enum gc_status alloc_on_device(struct gc_context *context,
                                      const struct gc_segment_spec *segment_spec, uint64_t *address,
                                      struct gc_segment_failure *failure)
{
    struct gc_core *core = context->core;
    struct gc_charge held;
    GC_ASSERT(gc_lock_held_count() == 0);
    if (context->is_device) /* driver memory would be destroyed with some context */
        return GC_NOT_SUPPORTED;
    if (!gc_context_charge(context, segment_spec->bytes, &held, &failure->charge_failure))
        return GC_OUT_OF_MEMORY;
    const int code = call_mem_alloc(context, segment_spec, address);
    if (code != 0) {
        gc_context_uncharge(context, segment_spec->bytes);
        failure->charge_failure.rollback_count++;
        failure->charge_failure.is_quota_short = false;
        failure->charge_failure.is_driver_short = true;
        failure->driver_code = code;
        return code == core->driver.out_of_memory ? GC_OUT_OF_MEMORY : GC_DRIVER;
    }
    gc_context_commit(context, &held);
    return GC_OK;
}

static enum gc_status alloc_memory(struct gc_context *context,
                                   const struct gc_segment_spec *segment_spec,
                                   struct gc_segment *segment, struct gc_segment_failure *failure)
{
    const enum gc_status status =
        segment->is_spilled ? gc_spill_create(context, segment, &failure->driver_code)
                            : alloc_on_device(context, segment_spec, &segment->address, failure);
    if (status != GC_OK)
        return status;
    if (gc_pagemap_prepare(&context->core->pagemap, segment->address, segment->bytes) == GC_OK)
        return GC_OK;
    undo_mem_alloc(context, segment);
    return GC_NO_HOST_MEMORY;
}

/* The memory was destroyed with the context, except a debug block with pages of its own. */
static void uncharge_dropped(struct gc_context *context, const struct gc_segment *segment)
{
    int ignored;
    if (segment->is_spilled) {
        gc_spill_drop(context, segment);
        return;
    }
    if (context->core->debug != NULL)
        (void)gc_guard_mem_free(context, segment->address, &ignored);
    gc_device_trace_memory(context->device, GC_TRACE_UNMAP, GC_TRACE_SEGMENT, segment->address,
                           segment->bytes);
    gc_context_uncharge(context, segment->bytes);
}

/* Adds the segment as one live block for `spec`; NULL: as one free block. */
static void add_locked(struct gc_context *context, struct gc_segment *segment,
                       const struct gc_alloc_spec *spec)
{
    if (spec == NULL) {
        gc_pool_add_free_locked(&context->pool, segment);
        return;
    }
    const struct gc_block *block = gc_pool_add_locked(&context->pool, segment, spec);
    const struct gc_entry entry = {block->address, spec->requested_bytes, block->bytes,
                                   spec->stream, spec->api};
    gc_context_count_alloc(context, &entry);
}

static enum gc_status add_to_pool(struct gc_context *context, struct gc_segment *segment,
                                  const struct gc_alloc_spec *spec)
{
    struct gc_pool *pool = &context->pool;
    const enum gc_status status = gc_pool_acquire(pool);
    if (status != GC_OK) {
        undo_mem_alloc(context, segment);
        return status;
    }
    if (pool->is_dropped || pool->is_closed) {
        gc_pool_release(pool);
        if (gc_context_is_gone(context))
            uncharge_dropped(context, segment);
        else
            undo_mem_alloc(context, segment);
        return GC_INVALID_ARGUMENT;
    }
    add_locked(context, segment, spec);
    gc_pool_release(pool);
    return GC_OK;
}

enum gc_status gc_segment_create(struct gc_context *context,
                                 const struct gc_segment_spec *segment_spec,
                                 const struct gc_alloc_spec *spec, uint64_t *address,
                                 struct gc_segment_failure *failure)
{
    struct gc_slab *records = &context->device->segments;
    struct gc_segment *segment = gc_slab_alloc(records);
    if (segment == NULL)
        return GC_NO_HOST_MEMORY;
    segment->bytes = segment_spec->bytes;
    segment->size_class = (uint8_t)segment_spec->size_class;
    segment->is_plain = segment_spec->is_plain;
    segment->is_own_mapping = segment_spec->is_own_mapping;
    segment->is_spilled = segment_spec->is_spilled;
    enum gc_status status = alloc_memory(context, segment_spec, segment, failure);
    if (status != GC_OK)
        goto fail;
    *address = segment->address; /* once it is in the pool another thread may free it */
    status = add_to_pool(context, segment, spec);
    if (status != GC_OK)
        goto fail;
    return GC_OK;

fail:
    gc_slab_free(records, segment);
    return status;
}

enum gc_status gc_segment_create_free(struct gc_context *context,
                                      const struct gc_segment_spec *segment_spec,
                                      struct gc_segment_failure *failure)
{
    uint64_t ignored;
    return gc_segment_create(context, segment_spec, NULL, &ignored, failure);
}

/* The driver refused: puts the segment back into the pool. False: the context, and the memory with
 * it, was destroyed meanwhile. */
static bool restore(struct gc_context *context, struct gc_segment *segment, struct gc_block *block,
                    const struct gc_entry *freed)
{
    struct gc_pool *pool = &context->pool;
    gc_wait_lock_after_teardown(context);
    const bool alive = !pool->is_dropped;
    if (alive) {
        gc_pool_restore_locked(pool, segment, block, freed != NULL ? GC_BLOCK_LIVE : GC_BLOCK_FREE);
        if (freed != NULL)
            gc_context_uncount_free(context, freed);
    }
    gc_pool_release(pool);
    return alive;
}

int gc_segment_release(struct gc_context *context, struct gc_segment *segment,
                       struct gc_block *block, const struct gc_entry *freed)
{
    struct gc_device *device = context->device;
    GC_ASSERT(gc_lock_held_count() == 0);
    /* A block from the bins may be idle in the order of the single stream only. */
    int ignored;
    const bool is_idle = freed != NULL || gc_submit_quiesce(context, &ignored);
    const bool is_driven = context->core->mode != GC_MODE_CACHE || segment->is_plain;
    const struct free_mode mode = {.stream = freed != NULL ? freed->stream : GC_STREAM_NONE,
                                   .is_idle = freed == NULL || !is_driven};
    const int code = is_idle ? release_memory(context, segment, mode) : NOT_IDLE;
    if (code != 0 && restore(context, segment, block, freed))
        return code;
    uncharge(context, segment);
    gc_slab_free(&device->segments, segment);
    gc_slab_free(&device->blocks, block);
    return 0;
}
