/* The table of guarded blocks, their mapping and the quarantine of their addresses: see guard.h. */
#include "core/debug/guard.h"

#include "core/base/assert.h"

#include <stddef.h>

#define BUCKETS 65536
#define QUARANTINE_MAX 65536                     /* ranges */
#define QUARANTINE_BYTES_MAX ((uint64_t)8 << 40) /* addresses */

struct map {
    struct map *next;
    struct gc_context *context;
    uint64_t address; /* of the block */
    uint64_t range;
    uint64_t page_bytes;
    uint64_t bytes; /* of its pages */
    bool has_edge;
};

struct quarantined {
    struct gc_context *context;
    uint64_t range;
    uint64_t bytes;
};

struct gc_guard_table {
    struct gc_lock lock; /* guards all below */
    struct gc_slab records;
    uint64_t quarantine_bytes;
    uint64_t quarantine_first; /* number of the oldest range */
    uint64_t quarantine_next;
    struct map *buckets[BUCKETS];
    struct quarantined quarantined[QUARANTINE_MAX];
};

static struct gc_guard_table *table_of(const struct gc_core *core)
{
    return core->debug->guard;
}

enum gc_status gc_guard_create(struct gc_core *core, struct gc_guard_table **created)
{
    struct gc_guard_table *maps = gc_host_mem_map(&core->host, sizeof(*maps));
    if (maps == NULL)
        return GC_NO_HOST_MEMORY;
    gc_lock_init(&maps->lock, GC_RANK_DEBUG);
    gc_slab_init(&maps->records, &core->host, sizeof(struct map));
    *created = maps;
    return GC_OK;
}

void gc_guard_destroy(struct gc_core *core, struct gc_guard_table *maps)
{
    gc_slab_fini(&maps->records);
    gc_host_mem_unmap(&core->host, maps, sizeof(*maps));
}

/* ---- the table ---- */

static struct map **bucket_of(struct gc_guard_table *maps, uint64_t address)
{
    return &maps->buckets[(address / GC_GRANULE * UINT64_C(0x9e3779b97f4a7c15) >> 32) % BUCKETS];
}

static void add_map(struct gc_guard_table *maps, struct map *map)
{
    gc_lock_acquire(&maps->lock);
    struct map **bucket = bucket_of(maps, map->address);
    map->next = *bucket;
    *bucket = map;
    gc_lock_release(&maps->lock);
}

static struct map **find_locked(struct gc_guard_table *maps, uint64_t address)
{
    struct map **link = bucket_of(maps, address);
    while (*link != NULL && (*link)->address != address)
        link = &(*link)->next;
    return link;
}

static struct map *pop_map(struct gc_guard_table *maps, uint64_t address)
{
    gc_lock_acquire(&maps->lock);
    struct map **link = find_locked(maps, address);
    struct map *map = *link;
    if (map != NULL)
        *link = map->next;
    gc_lock_release(&maps->lock);
    return map;
}

bool gc_guard_has(struct gc_core *core, uint64_t address)
{
    struct gc_guard_table *maps = table_of(core);
    gc_lock_acquire(&maps->lock);
    const bool has = *find_locked(maps, address) != NULL;
    gc_lock_release(&maps->lock);
    return has;
}

void gc_guard_set_edge(struct gc_core *core, uint64_t address)
{
    struct gc_guard_table *maps = table_of(core);
    gc_lock_acquire(&maps->lock);
    struct map *map = *find_locked(maps, address);
    if (map != NULL)
        map->has_edge = true;
    gc_lock_release(&maps->lock);
}

bool gc_guard_has_edge(struct gc_core *core, uint64_t address)
{
    struct gc_guard_table *maps = table_of(core);
    gc_lock_acquire(&maps->lock);
    const struct map *map = *find_locked(maps, address);
    const bool has = map != NULL && map->has_edge;
    gc_lock_release(&maps->lock);
    return has;
}

/* ---- addresses of freed blocks ---- */

/* Adds a range. True if the quarantine was full: *old is the range that left it. */
static bool quarantine(struct gc_guard_table *maps, const struct quarantined *range,
                       struct quarantined *old)
{
    gc_lock_acquire(&maps->lock);
    const bool is_full = maps->quarantine_next - maps->quarantine_first == QUARANTINE_MAX ||
                         (maps->quarantine_next > maps->quarantine_first &&
                          maps->quarantine_bytes + range->bytes > QUARANTINE_BYTES_MAX);
    if (is_full) {
        *old = maps->quarantined[maps->quarantine_first++ % QUARANTINE_MAX];
        maps->quarantine_bytes -= old->bytes;
    }
    maps->quarantined[maps->quarantine_next++ % QUARANTINE_MAX] = *range;
    maps->quarantine_bytes += range->bytes;
    gc_lock_release(&maps->lock);
    return is_full;
}

static void free_range(struct gc_context *context, uint64_t range, uint64_t bytes)
{
    const struct gc_driver *driver = &context->core->driver;
    (void)driver->address_free(driver->self, context->handle, range, bytes);
}

static void release_map(struct gc_context *context, const struct map *map)
{
    const struct quarantined range = {context, map->range, map->bytes + 2 * map->page_bytes};
    struct quarantined old;
    if ((context->core->debug->flags & GC_DEBUG_UAF) == 0)
        free_range(context, range.range, range.bytes);
    else if (quarantine(table_of(context->core), &range, &old))
        free_range(old.context, old.range, old.bytes);
}

/* ---- memory ---- */

bool gc_guard_specify(struct gc_context *context, struct gc_alloc_spec *spec,
                      struct gc_segment_spec *segment_spec)
{
    const struct gc_device *device = context->device;
    uint64_t bytes;
    /* No memory is mapped during a capture. */
    if (!gc_debug_maps_blocks(context->core) || !device->info.has_mapping ||
        gc_capture_is_of_context(context) ||
        !gc_round_up_u64(spec->bytes, gc_max_u64(device->info.page_bytes, GC_SEGMENT_UNIT), &bytes))
        return false;
    segment_spec->driver_bytes = spec->bytes;
    segment_spec->bytes = bytes;
    segment_spec->size_class = GC_CLASS_UNCACHED;
    segment_spec->is_own_mapping = true;
    spec->bytes = bytes;
    return true;
}

/* Grants access to the devices of the context and of its peers. */
static int set_access(struct gc_context *context, const struct map *map)
{
    const struct gc_driver *driver = &context->core->driver;
    int ordinals[GC_PEER_MAX];
    uint32_t count = 0;
    gc_pool_acquire_plain(&context->pool);
    for (uint32_t i = 0; i < context->peer_count; i++)
        if (context->peers[i]->device != context->device)
            ordinals[count++] = context->peers[i]->device->info.ordinal;
    gc_pool_release(&context->pool);
    return GC_CALL_IF_OPEN(context, driver->page_set_access(driver->self, context->handle,
                                                            map->range + map->page_bytes,
                                                            map->bytes, ordinals, count));
}

/* Another thread may free a block meanwhile; the driver's error for it is ignored. */
void gc_guard_grant_access(struct gc_context *context)
{
    struct gc_guard_table *maps = table_of(context->core);
    for (unsigned i = 0; i < BUCKETS; i++) {
        for (unsigned place = 0;; place++) {
            struct map copy;
            gc_lock_acquire(&maps->lock);
            const struct map *map = maps->buckets[i];
            for (unsigned k = 0; map != NULL && k < place; k++)
                map = map->next;
            if (map != NULL)
                copy = *map;
            gc_lock_release(&maps->lock);
            if (map == NULL)
                break;
            if (copy.context == context)
                (void)set_access(context, &copy);
        }
    }
}

/* Commits the pages of a reserved range. The mapping keeps the memory after its handle is released.
 */
static int commit(struct gc_context *context, struct map *map)
{
    const struct gc_driver *driver = &context->core->driver;
    const uint64_t pages = map->range + map->page_bytes;
    uint64_t handle = 0;
    int code = GC_CALL_IF_OPEN(
        context, driver->page_create(driver->self, context->handle, map->bytes, &handle));
    if (code != 0)
        return code;
    code = GC_CALL_IF_OPEN(
        context, driver->page_map(driver->self, context->handle, pages, map->bytes, handle));
    if (code != 0)
        goto fail_map;
    code = set_access(context, map);
    if (code == 0)
        code = driver->page_release(driver->self, context->handle, handle);
    if (code == 0)
        return 0;
    (void)driver->page_unmap(driver->self, context->handle, pages, map->bytes);
fail_map:
    (void)driver->page_release(driver->self, context->handle, handle);
    return code;
}

/* Covers peers that were added before the map was in the table. */
static void grant_to_peers(struct gc_context *context, const struct map *map)
{
    gc_pool_acquire_plain(&context->pool);
    const bool has_peers = context->peer_count > 0;
    gc_pool_release(&context->pool);
    if (has_peers)
        (void)set_access(context, map);
}

bool gc_guard_mem_alloc(struct gc_context *context, const struct gc_segment_spec *segment_spec,
                        uint64_t *address, int *code)
{
    struct gc_core *core = context->core;
    struct gc_guard_table *maps = table_of(core);
    const struct gc_driver *driver = &core->driver;
    if (!segment_spec->is_own_mapping)
        return false;
    struct map *map = gc_slab_alloc(&maps->records);
    *code = driver->out_of_memory;
    if (map == NULL)
        return true;
    *map = (struct map){
        .context = context,
        .page_bytes = gc_max_u64(context->device->info.page_bytes, GC_SEGMENT_UNIT),
        .bytes = segment_spec->bytes,
    };
    *code = GC_CALL_IF_OPEN(context, driver->address_reserve(driver->self, context->handle,
                                                             map->bytes + 2 * map->page_bytes,
                                                             map->page_bytes, &map->range));
    if (*code != 0)
        goto fail_reserve;
    *code = commit(context, map);
    if (*code != 0)
        goto fail_commit;
    map->address = map->range + map->page_bytes + map->bytes - segment_spec->driver_bytes;
    *address = map->address;
    const struct map copy = *map; /* a teardown of the context may free the map in the table */
    add_map(maps, map);
    grant_to_peers(context, &copy);
    return true;

fail_commit:
    free_range(context, map->range, map->bytes + 2 * map->page_bytes);
fail_reserve:
    gc_slab_free(&maps->records, map);
    return true;
}

bool gc_guard_mem_free(struct gc_context *context, uint64_t address, int *code)
{
    struct gc_guard_table *maps = table_of(context->core);
    const struct gc_driver *driver = &context->core->driver;
    struct map *map = pop_map(maps, address);
    if (map == NULL)
        return false;
    *code =
        driver->page_unmap(driver->self, context->handle, map->range + map->page_bytes, map->bytes);
    if (*code != 0) {
        add_map(maps, map);
        return true;
    }
    release_map(context, map);
    gc_slab_free(&maps->records, map);
    return true;
}

/* Pops a map of the context: destroying a driver context does not unmap it. */
static struct map *pop_map_of(struct gc_guard_table *maps, const struct gc_context *context)
{
    struct map *found = NULL;
    gc_lock_acquire(&maps->lock);
    for (unsigned i = 0; i < BUCKETS && found == NULL; i++) {
        struct map **link = &maps->buckets[i];
        while (*link != NULL && (*link)->context != context)
            link = &(*link)->next;
        found = *link;
        if (found != NULL)
            *link = found->next;
    }
    gc_lock_release(&maps->lock);
    return found;
}

void gc_guard_drop_context(struct gc_context *context)
{
    struct gc_guard_table *maps = table_of(context->core);
    const struct gc_driver *driver = &context->core->driver;
    for (struct map *map = pop_map_of(maps, context); map != NULL;
         map = pop_map_of(maps, context)) {
        (void)driver->page_unmap(driver->self, context->handle, map->range + map->page_bytes,
                                 map->bytes);
        release_map(context, map);
        gc_slab_free(&maps->records, map);
    }
}
