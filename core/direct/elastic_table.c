/* The table of elastic pools: records, handles and references. A handle is the number and the
 * generation of a slot, so no handle is used again. An operation holds a reference while it runs;
 * destroying a pool waits for all references. */
#include "core/device/registry.h"
#include "core/direct/elastic_pool.h"

#include <stddef.h>

#define SLOT_BITS 16
#define SLOT_MASK ((UINT64_C(1) << SLOT_BITS) - 1)
_Static_assert(GC_ELASTIC_MAX <= SLOT_MASK, "a slot's number, from 1, fits its bits");

struct slot {
    struct gc_elastic *pool; /* NULL: not in use */
    uint64_t generation;
    uint32_t reference_count;
    bool is_closing; /* one thread destroys the pool; others do not find it */
};

struct gc_elastic_table {
    struct slot slots[GC_ELASTIC_MAX];
};

/* ---- records ---- */

static uint64_t pages_bytes(const struct gc_elastic *pool)
{
    return pool->page_count * sizeof(*pool->pages);
}

static uint64_t unmapped_bytes(const struct gc_elastic *pool)
{
    return pool->page_count * sizeof(*pool->unmapped);
}

void gc_elastic_destroy_record(struct gc_elastic *pool)
{
    struct gc_host_mem *host = &pool->device->host;
    if (pool->quota != NULL)
        atomic_fetch_sub_explicit(&pool->quota->elastic_count, 1, memory_order_relaxed);
    gc_host_mem_unmap(host, pool->unmapped, unmapped_bytes(pool));
    gc_host_mem_unmap(host, pool->pages, pages_bytes(pool));
    gc_host_mem_unmap(host, pool, sizeof(*pool));
}

struct gc_elastic *gc_elastic_create_record(struct gc_device *device, uint64_t page_count,
                                            uint64_t page_bytes)
{
    struct gc_elastic *pool = gc_host_mem_map(&device->host, sizeof(*pool));
    if (pool == NULL)
        return NULL;
    pool->device = device;
    pool->page_bytes = page_bytes;
    pool->page_count = (uint32_t)page_count;
    pool->idle_first = GC_ELASTIC_PAGE_NONE;
    pool->idle_last = GC_ELASTIC_PAGE_NONE;
    pool->pages = gc_host_mem_map(&device->host, pages_bytes(pool));
    if (pool->pages == NULL)
        goto fail_pages;
    pool->unmapped = gc_host_mem_map(&device->host, unmapped_bytes(pool));
    if (pool->unmapped == NULL)
        goto fail_unmapped;
    gc_lock_init(&pool->lock, GC_RANK_ELASTIC);
    return pool;

fail_unmapped:
    gc_host_mem_unmap(&device->host, pool->pages, pages_bytes(pool));
fail_pages:
    gc_host_mem_unmap(&device->host, pool, sizeof(*pool));
    return NULL;
}

/* ---- the table ---- */

static uint64_t handle_of(uint32_t index, const struct slot *slot)
{
    return (slot->generation << SLOT_BITS) | (index + 1);
}

/* The slot of the handle; NULL if there is none. */
static struct slot *slot_of_locked(struct gc_core *core, uint64_t handle)
{
    const uint64_t number = handle & SLOT_MASK;
    if (core->elastics == NULL || number == 0 || number > GC_ELASTIC_MAX)
        return NULL;
    struct slot *slot = &core->elastics->slots[number - 1];
    return slot->pool != NULL && slot->generation == handle >> SLOT_BITS ? slot : NULL;
}

struct gc_elastic *gc_elastic_acquire(struct gc_core *core, uint64_t handle)
{
    struct gc_elastic *pool = NULL;
    gc_lock_acquire(&core->elastic_lock);
    struct slot *slot = slot_of_locked(core, handle);
    if (slot != NULL && !slot->is_closing) {
        slot->reference_count++;
        pool = slot->pool;
    }
    gc_lock_release(&core->elastic_lock);
    return pool;
}

void gc_elastic_release(struct gc_core *core, struct gc_elastic *pool)
{
    gc_lock_acquire(&core->elastic_lock);
    struct slot *slot = &core->elastics->slots[pool->slot];
    if (--slot->reference_count == 0 && slot->is_closing)
        gc_lock_broadcast(&core->elastic_changed);
    gc_lock_release(&core->elastic_lock);
}

static bool matches(const struct slot *slot, const struct gc_device *device,
                    const struct gc_quota *quota)
{
    return slot->pool != NULL && !slot->is_closing && slot->pool->device == device &&
           (quota == NULL || slot->pool->quota == quota);
}

struct gc_elastic *gc_elastic_acquire_next(struct gc_core *core, const struct gc_device *device,
                                           const struct gc_quota *quota, uint32_t *index)
{
    struct gc_elastic *pool = NULL;
    gc_lock_acquire(&core->elastic_lock);
    for (; core->elastics != NULL && pool == NULL && *index < GC_ELASTIC_MAX; ++*index) {
        struct slot *slot = &core->elastics->slots[*index];
        if (matches(slot, device, quota)) {
            slot->reference_count++;
            pool = slot->pool;
        }
    }
    gc_lock_release(&core->elastic_lock);
    return pool;
}

void gc_elastic_init_table(struct gc_core *core)
{
    gc_lock_init(&core->elastic_lock, GC_RANK_ELASTIC_LIST);
}

enum gc_status gc_elastic_make_table(struct gc_core *core)
{
    gc_lock_acquire(&core->elastic_lock);
    const bool is_there = core->elastics != NULL;
    gc_lock_release(&core->elastic_lock);
    if (is_there)
        return GC_OK;
    struct gc_elastic_table *table = gc_host_mem_map(&core->host, sizeof(*table));
    if (table == NULL)
        return GC_NO_HOST_MEMORY;
    gc_lock_acquire(&core->elastic_lock);
    const bool is_first = core->elastics == NULL;
    if (is_first)
        core->elastics = table;
    gc_lock_release(&core->elastic_lock);
    if (!is_first)
        gc_host_mem_unmap(&core->host, table, sizeof(*table));
    return GC_OK;
}

enum gc_status gc_elastic_add(struct gc_core *core, struct gc_elastic *pool, uint64_t *handle)
{
    enum gc_status status = GC_NO_HOST_MEMORY;
    gc_lock_acquire(&core->elastic_lock);
    for (uint32_t i = 0; i < GC_ELASTIC_MAX && status != GC_OK; i++) {
        struct slot *slot = &core->elastics->slots[i];
        if (slot->pool != NULL)
            continue;
        slot->pool = pool;
        pool->slot = i;
        slot->generation++;
        slot->reference_count = 0;
        slot->is_closing = false;
        *handle = handle_of(i, slot);
        status = GC_OK;
    }
    gc_lock_release(&core->elastic_lock);
    return status;
}

struct gc_elastic *gc_elastic_begin_close(struct gc_core *core, uint64_t handle)
{
    struct gc_elastic *pool = NULL;
    gc_lock_acquire(&core->elastic_lock);
    struct slot *slot = slot_of_locked(core, handle);
    if (slot != NULL && !slot->is_closing) {
        slot->is_closing = true;
        while (slot->reference_count > 0)
            gc_lock_wait(&core->elastic_lock, &core->elastic_changed);
        pool = slot->pool;
    }
    gc_lock_release(&core->elastic_lock);
    return pool;
}

void gc_elastic_end_close(struct gc_core *core, uint64_t handle, bool is_destroyed)
{
    gc_lock_acquire(&core->elastic_lock);
    struct slot *slot = slot_of_locked(core, handle);
    slot->is_closing = false;
    if (is_destroyed)
        slot->pool = NULL;
    gc_lock_release(&core->elastic_lock);
}

void gc_elastic_fini(struct gc_core *core)
{
    struct gc_elastic_table *table = core->elastics;
    for (uint32_t i = 0; table != NULL && i < GC_ELASTIC_MAX; i++) {
        if (table->slots[i].pool != NULL)
            gc_elastic_destroy_record(table->slots[i].pool);
    }
    if (table != NULL)
        gc_host_mem_unmap(&core->host, table, sizeof(*table));
}

enum gc_status gc_elastic_find_device(struct gc_core *core, uint64_t handle,
                                      struct gc_device **device)
{
    struct gc_elastic *pool = gc_elastic_acquire(core, handle);
    if (pool == NULL)
        return GC_INVALID_HANDLE;
    *device = pool->device;
    gc_elastic_release(core, pool);
    return GC_OK;
}
