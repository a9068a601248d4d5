/* Address ranges: reserved from the driver, filled with arenas, freed. A pool reserves as many as
 * it needs, one arena each; a tenant's pool reserves one, which its arenas tile. */
#include "core/backing/range.h"

#include "core/backing/change.h"
#include "core/base/bits.h"
#include "core/device/registry.h"
#include "core/device/tenant.h"

#include <stddef.h>

static uint64_t whole_pages(uint64_t bytes, uint64_t page_bytes)
{
    return (bytes + page_bytes - 1) / page_bytes * page_bytes;
}

/* Reserves as many addresses as the driver allows: halves the size while it refuses. */
static int reserve_range(struct gc_context *context, uint64_t needed, uint64_t *address,
                         uint64_t *bytes)
{
    const struct gc_driver *driver = &context->core->driver;
    const uint64_t page = context->pool.pages.page_bytes;
    const uint64_t least = whole_pages(needed, page);
    const uint64_t most = whole_pages(context->device->info.total_bytes, page);
    for (*bytes = gc_max_u64(GC_ARENA_TIMES * most, least);;
         *bytes = gc_max_u64(whole_pages(*bytes / 2, page), least)) {
        const int code = GC_CALL_IF_OPEN(
            context, driver->address_reserve(driver->self, context->handle, *bytes, page, address));
        if (code == 0 || *bytes == least)
            return code;
    }
}

/* Creates an arena over reserved addresses, not yet in the pool. NULL: no host memory. */
static struct gc_arena *create_arena(struct gc_context *context, enum gc_size_class size_class,
                                     uint64_t address, uint64_t bytes)
{
    const uint64_t slot_count = bytes / context->pool.pages.page_bytes;
    struct gc_segment *segment = gc_slab_alloc(&context->device->segments);
    if (segment == NULL)
        return NULL;
    struct gc_arena *arena = gc_host_mem_reserve(gc_arena_host_bytes(slot_count));
    if (arena == NULL) {
        gc_slab_free(&context->device->segments, segment);
        return NULL;
    }
    *arena = (struct gc_arena){.segment = segment,
                               .slots = (struct gc_mapping **)(arena + 1),
                               .slot_count = slot_count,
                               .prepared_end = address};
    segment->address = address;
    segment->bytes = bytes;
    segment->size_class = (uint8_t)size_class;
    /* For the start of the arena's one free block. */
    if (gc_pagemap_prepare(&context->core->pagemap, address, GC_GRANULE) == GC_OK)
        return arena;
    gc_change_destroy_arena(context, arena);
    return NULL;
}

/* A driver that reserves no addresses at all is not called again. Only the thread that has the
 * change adds arenas. */
static enum gc_status record_failure(struct gc_context *context)
{
    struct gc_pages *pages = &context->pool.pages;
    if (pages->arenas == NULL) {
        atomic_store_explicit(&pages->is_refused, true, memory_order_relaxed);
        gc_log_write(context->core->log, GC_LOG_WARN,
                     "device %d reserves no address range to map memory in: plain "
                     "allocations are used",
                     context->device->info.ordinal);
    }
    return GC_DRIVER;
}

/* Adds arenas, which tile a range, to the pool. `is_only`: the pool has no other range. */
static enum gc_status add_arenas(struct gc_context *context, struct gc_arena *const *arenas,
                                 uint32_t count, bool is_only)
{
    struct gc_pool *pool = &context->pool;
    const enum gc_status status = gc_pool_acquire(pool);
    if (status != GC_OK)
        return status;
    for (uint32_t i = 0; i < count; i++) {
        gc_pool_add_arena_locked(pool, arenas[i]);
        gc_host_mem_count(&context->device->host, gc_arena_host_bytes(0));
        if (is_only)
            pool->pages.range_bytes += arenas[i]->segment->bytes;
    }
    if (is_only)
        pool->pages.range_address = arenas[0]->segment->address;
    gc_pool_release(pool);
    return GC_OK;
}

/* Fills a reserved range with neighbouring arenas of `sizes` bytes; on failure frees the range. */
static enum gc_status fill_range(struct gc_context *context, uint64_t address,
                                 const uint64_t *sizes, const enum gc_size_class *classes,
                                 uint32_t count, bool is_only)
{
    const struct gc_driver *driver = &context->core->driver;
    struct gc_arena *arenas[GC_CLASS_CUT_COUNT] = {NULL};
    uint64_t bytes = 0;
    uint32_t made = 0;
    enum gc_status status = GC_OK;
    while (made < count) {
        arenas[made] = create_arena(context, classes[made], address + bytes, sizes[made]);
        if (arenas[made] == NULL)
            break;
        bytes += sizes[made++];
    }
    if (made == count)
        status = add_arenas(context, arenas, count, is_only);
    if (made == count && status == GC_OK)
        return GC_OK;
    for (bytes = 0; count > 0; count--) {
        bytes += sizes[count - 1];
        if (count <= made)
            gc_change_destroy_arena(context, arenas[count - 1]);
    }
    /* If the driver refuses, addresses are lost, but no memory. */
    (void)driver->address_free(driver->self, context->handle, address, bytes);
    return GC_NO_HOST_MEMORY;
}

/* Reserves all addresses of a tenant at once. Small blocks have an arena of their own, so that they
 * do not fragment that of the large ones. */
static enum gc_status add_only_range(struct gc_context *context)
{
    static const enum gc_size_class classes[] = {GC_CLASS_LARGE, GC_CLASS_SMALL};
    const struct gc_driver *driver = &context->core->driver;
    const uint64_t page = context->pool.pages.page_bytes;
    const uint64_t capacity = gc_tenant_capacity_bytes(context->tenant, context->device);
    const uint64_t sizes[] = {whole_pages(capacity, page),
                              whole_pages(capacity / GC_ARENA_SMALL_DIVISOR + 1, page)};
    uint64_t address = 0;
    if (context->pool.pages.range_bytes != 0)
        return GC_OUT_OF_MEMORY;
    if (GC_CALL_IF_OPEN(context, driver->address_reserve(driver->self, context->handle,
                                                         sizes[0] + sizes[1], page, &address)) != 0)
        return record_failure(context);
    return fill_range(context, address, sizes, classes, 2, true);
}

enum gc_status gc_range_add(struct gc_context *context, enum gc_size_class size_class,
                            uint64_t bytes)
{
    uint64_t address = 0;
    uint64_t range_bytes;
    if (context->tenant != NULL)
        return add_only_range(context);
    if (reserve_range(context, bytes, &address, &range_bytes) != 0)
        return record_failure(context);
    return fill_range(context, address, &range_bytes, &size_class, 1, false);
}

/* Reserves twice the planned bytes, or else just those. */
static int reserve_planned(struct gc_context *context, uint64_t places_bytes, uint64_t *address,
                           uint64_t *bytes)
{
    const struct gc_driver *driver = &context->core->driver;
    const uint64_t page = context->pool.pages.page_bytes;
    if (gc_add_u64(places_bytes, places_bytes, bytes) &&
        GC_CALL_IF_OPEN(context, driver->address_reserve(driver->self, context->handle, *bytes,
                                                         page, address)) == 0)
        return 0;
    *bytes = places_bytes;
    return GC_CALL_IF_OPEN(
        context, driver->address_reserve(driver->self, context->handle, *bytes, page, address));
}

enum gc_status gc_range_add_planned(struct gc_context *context, uint64_t bytes)
{
    const struct gc_driver *driver = &context->core->driver;
    const uint64_t places_bytes = whole_pages(bytes, context->pool.pages.page_bytes);
    struct gc_arena *arena = NULL;
    uint64_t address = 0;
    uint64_t range_bytes;
    if (reserve_planned(context, places_bytes, &address, &range_bytes) != 0)
        return GC_DRIVER;
    if (gc_pagemap_prepare(&context->core->pagemap, address, places_bytes) == GC_OK)
        arena = create_arena(context, GC_CLASS_PLANNED, address, range_bytes);
    if (arena != NULL) {
        arena->prepared_end = address + places_bytes;
        if (add_arenas(context, &arena, 1, false) == GC_OK)
            return GC_OK;
        gc_change_destroy_arena(context, arena);
    }
    (void)driver->address_free(driver->self, context->handle, address, range_bytes);
    return GC_NO_HOST_MEMORY;
}

/* Removes the arenas of a pool that has no pages; each has one free block. */
static struct gc_arena *remove_arenas_locked(struct gc_pool *pool, struct gc_block **blocks)
{
    struct gc_arena *arenas = pool->pages.arenas;
    for (struct gc_arena *arena = arenas; arena != NULL; arena = arena->next)
        *blocks++ = gc_pool_remove_locked(pool, arena->segment);
    pool->pages.arenas = NULL;
    return arenas;
}

static void add_arenas_locked(struct gc_pool *pool, struct gc_arena *arenas,
                              struct gc_block *const *blocks)
{
    pool->pages.arenas = arenas;
    for (struct gc_arena *arena = arenas; arena != NULL; arena = arena->next)
        gc_pool_restore_locked(pool, arena->segment, *blocks++, GC_BLOCK_FREE);
}

static void drop_range(struct gc_context *context, struct gc_arena *arenas,
                       struct gc_block *const *blocks)
{
    struct gc_pool *pool = &context->pool;
    gc_pool_acquire_plain(pool);
    pool->pages.range_address = 0;
    pool->pages.range_bytes = 0;
    for (struct gc_arena *arena = arenas; arena != NULL; arena = arena->next)
        gc_pool_free_record_locked(pool, *blocks++);
    gc_pool_release(pool);
    while (arenas != NULL) {
        struct gc_arena *next = arenas->next;
        gc_host_mem_uncount(&context->device->host, gc_arena_host_bytes(arenas->touched_count));
        gc_change_destroy_arena(context, arenas);
        arenas = next;
    }
}

/* Without host memory for the record the range stays reserved permanently. */
static void keep_range(struct gc_context *head, uint64_t address, uint64_t bytes)
{
    struct gc_core *core = head->core;
    struct gc_range *range = gc_slab_alloc(&core->range_records);
    atomic_fetch_add_explicit(&core->kept_range_count, 1, memory_order_relaxed);
    if (range == NULL)
        return;
    gc_pool_acquire_plain(&head->pool);
    *range = (struct gc_range){head->kept_ranges, address, bytes};
    head->kept_ranges = range;
    gc_pool_release(&head->pool);
}

void gc_range_release_kept(struct gc_context *head)
{
    struct gc_core *core = head->core;
    gc_pool_acquire_plain(&head->pool);
    struct gc_range *range = head->kept_ranges;
    head->kept_ranges = NULL;
    gc_pool_release(&head->pool);
    while (range != NULL) {
        struct gc_range *next = range->next;
        (void)core->driver.address_free(core->driver.self, head->handle, range->address,
                                        range->bytes);
        atomic_fetch_sub_explicit(&core->kept_range_count, 1, memory_order_relaxed);
        gc_slab_free(&core->range_records, range);
        range = next;
    }
}

/* A graph captured with memory of the range may still run. The driver must not reuse the addresses
 * then: the graph would write to other memory. With nothing mapped there its launch fails. */
static int free_range(struct gc_context *context, uint64_t address, uint64_t bytes)
{
    struct gc_core *core = context->core;
    gc_pagemap_drop(&core->pagemap, address, bytes);
    if (!atomic_load_explicit(&core->has_captured, memory_order_relaxed))
        return core->driver.address_free(core->driver.self, context->handle, address, bytes);
    keep_range(context->head, address, bytes);
    return 0;
}

enum gc_status gc_range_release(struct gc_context *context)
{
    struct gc_pool *pool = &context->pool;
    struct gc_block *blocks[GC_CLASS_CUT_COUNT] = {NULL};
    struct gc_change change;
    enum gc_status status = gc_change_begin(context, &change);
    if (status != GC_OK)
        return status == GC_DRIVER ? GC_CAPTURING : status;
    gc_pool_acquire_plain(pool);
    const uint64_t address = pool->pages.range_address;
    const uint64_t bytes = pool->pages.range_bytes;
    struct gc_arena *arenas = bytes == 0 ? NULL : remove_arenas_locked(pool, blocks);
    gc_pool_release(pool);
    if (bytes != 0 && free_range(context, address, bytes) != 0) {
        gc_pool_acquire_plain(pool);
        add_arenas_locked(pool, arenas, blocks);
        gc_pool_release(pool);
        status = GC_DRIVER;
    } else {
        drop_range(context, arenas, blocks);
    }
    gc_change_end(&change);
    return status;
}

void gc_ranges_init(struct gc_core *core)
{
    gc_slab_init_small(&core->range_records, &core->host, sizeof(struct gc_range));
}

void gc_ranges_fini(struct gc_core *core)
{
    gc_slab_fini(&core->range_records);
}
