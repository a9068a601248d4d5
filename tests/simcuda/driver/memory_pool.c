/* Stream-ordered memory: pools, and when freed memory may be used again.
 *
 * A pool reserves pages of SIM_PAGE and hands out multiples of SIM_UNIT. Freed memory waits in a
 * list per stream. An allocation may take from it at once on the same stream, on another stream
 * that is ordered behind the free, or once the free has passed; each as the pool's attributes
 * allow. The engine's position queries are called with sim_memory_lock held; they call nothing
 * back.
 *
 * Host and managed memory takes no capacity of a device. */
#include "memory_pool.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/* A shared pool's file: sparse, so that each address is an offset in it. */
#define FILE_BYTES (UINT64_C(1) << 47)

/* Pages that pools hold: addresses are checked against these, since memory freed on a stream may
 * still be in use by what was queued before. */
struct pages {
    struct sim_node node;
    struct sim_pool *pool;
};

static struct sim_tree pools, pool_pages; /* sim_memory_lock */
static struct sim_pool *defaults[SIM_POOL_PLACES], *currents[SIM_POOL_PLACES];

#define POOL(node) SIM_CONTAINER(node, struct sim_pool, node)
#define PAGES(node) SIM_CONTAINER(node, struct pages, node)

/* ---- the set of pools ---- */

struct sim_pool *sim_pool_find(CUmemoryPool handle)
{
    struct sim_node *node = sim_tree_find(&pools, (uint64_t)(uintptr_t)handle);

    return node == NULL || POOL(node)->is_destroyed ? NULL : POOL(node);
}

CUmemoryPool sim_pool_handle(struct sim_pool *pool)
{
    return (CUmemoryPool)(void *)pool;
}

bool sim_pool_can_decompress(const struct sim_pool *pool)
{
    return (pool->props.usage & CU_MEM_POOL_CREATE_USAGE_HW_DECOMPRESS) != 0;
}

unsigned sim_pool_handle_types(const struct sim_pool *pool)
{
    return (unsigned)pool->props.handleTypes;
}

bool sim_pool_is_managed(const struct sim_pool *pool)
{
    return (int)pool->props.allocType == SIM_POOL_MANAGED;
}

bool sim_pool_is_host(const struct sim_pool *pool)
{
    return pool->device == NULL && !sim_pool_is_managed(pool);
}

struct sim_pool *sim_pool_new(const CUmemPoolProps *props)
{
    bool is_device = props->location.type == CU_MEM_LOCATION_TYPE_DEVICE;
    struct sim_pool *pool = calloc(1, sizeof *pool);
    char name[64];

    if (pool == NULL)
        return NULL;
    pool->fd = -1;
    pool->props = *props;
    if (is_device && !sim_pool_is_managed(pool))
        pool->device = sim_device(props->location.id);
    if (props->handleTypes != CU_MEM_HANDLE_TYPE_NONE) {
        snprintf(name, sizeof name, "simcuda-pool-%d", pool->device ? pool->device->ordinal : -1);
        pool->fd = sim_space_open_file(name, FILE_BYTES);
        if (pool->fd < 0) {
            free(pool);
            return NULL;
        }
    }
    pool->follows_events = 1;
    pool->is_opportunistic = 1;
    pool->adds_dependencies = 1;
    pool->node.start = (uint64_t)(uintptr_t)pool;
    pool->node.end = pool->node.start + 1;
    sim_tree_insert(&pools, &pool->node);
    return pool;
}

/* ---- places ---- */

/* Behind the devices' pinned and managed memory: the host's, those of its one NUMA node, and
 * managed memory that prefers no place. */
unsigned sim_pool_place(const CUmemLocation *location, CUmemAllocationType type)
{
    bool is_managed = (int)type == SIM_POOL_MANAGED;
    unsigned odd = 2 * SIM_MAX_DEVICES;

    if (location == NULL || ((int)type != SIM_POOL_PINNED && !is_managed))
        return SIM_POOL_PLACES;
    switch ((int)location->type) {
    case SIM_LOCATION_NONE:
        return is_managed ? odd + 4 : SIM_POOL_PLACES;
    case SIM_LOCATION_DEVICE:
        return sim_device(location->id) == NULL
                   ? SIM_POOL_PLACES
                   : (unsigned)location->id + is_managed * SIM_MAX_DEVICES;
    case SIM_LOCATION_HOST:
        return odd + is_managed;
    case SIM_LOCATION_NUMA:
        return location->id == 0 ? odd + 2 + is_managed : SIM_POOL_PLACES;
    default:
        return SIM_POOL_PLACES;
    }
}

static CUmemPoolProps props_of(unsigned place)
{
    static const int locations[] = {SIM_LOCATION_HOST, SIM_LOCATION_HOST, SIM_LOCATION_NUMA,
                                    SIM_LOCATION_NUMA, SIM_LOCATION_NONE};
    unsigned odd = 2 * SIM_MAX_DEVICES;
    bool is_managed = place >= odd ? place - odd == 4 || place % 2 == 1 : place >= SIM_MAX_DEVICES;
    CUmemPoolProps props = {
        .allocType = (CUmemAllocationType)(is_managed ? SIM_POOL_MANAGED : SIM_POOL_PINNED)};

    props.location.type =
        (CUmemLocationType)(place >= odd ? locations[place - odd] : SIM_LOCATION_DEVICE);
    props.location.id = place >= odd ? 0 : (int)(place % SIM_MAX_DEVICES);
    return props;
}

struct sim_pool *sim_pool_default(unsigned place)
{
    CUmemPoolProps props = props_of(place);

    if (defaults[place] == NULL) {
        defaults[place] = sim_pool_new(&props);
        if (defaults[place] != NULL)
            defaults[place]->is_default = true;
    }
    return defaults[place];
}

struct sim_pool *sim_pool_current(unsigned place)
{
    return currents[place] != NULL ? currents[place] : sim_pool_default(place);
}

void sim_pool_set_current(unsigned place, struct sim_pool *pool)
{
    currents[place] = pool;
}

/* ---- pages ---- */

static bool is_open_to(const struct sim_pool *pool, const struct sim_device *device, bool is_write)
{
    uint64_t bit = UINT64_C(1) << (device->ordinal & 63);

    return pool->device == device || sim_pool_is_managed(pool) ||
           ((is_write ? pool->writers : pool->readers) & bit) != 0;
}

/* `device` NULL: the host, which copies where the device has no access. */
static bool owns(const struct sim_device *device, uint64_t address, uint64_t bytes, bool is_write)
{
    for (;;) {
        struct sim_node *node = sim_tree_find(&pool_pages, address);
        const struct sim_pool *pool = node == NULL ? NULL : PAGES(node)->pool;

        if (pool == NULL ||
            !(device == NULL ? sim_pool_is_host(pool) : is_open_to(pool, device, is_write)))
            return false;
        if (bytes <= node->end - address)
            return true;
        bytes -= node->end - address;
        address = node->end;
    }
}

bool sim_pool_owns(const struct sim_context *context, uint64_t address, uint64_t bytes,
                   bool is_write)
{
    return owns(context->device, address, bytes, is_write);
}

bool sim_pool_owns_on_host(uint64_t address, uint64_t bytes)
{
    return owns(NULL, address, bytes, false);
}

static void insert_pages(struct pages *pages, struct sim_pool *pool, uint64_t start, uint64_t end)
{
    pages->pool = pool;
    pages->node.start = start;
    pages->node.end = end;
    sim_tree_insert(&pool_pages, &pages->node);
}

/* Whether the pool may reserve so much more. */
static bool fits(const struct sim_pool *pool, uint64_t bytes)
{
#if CUDA_VERSION >= 12020
    uint64_t most = pool->props.maxSize;

    if (most != 0)
        return bytes <= most && pool->reserved_bytes <= most - bytes;
#endif
    return bytes <= UINT64_MAX - pool->reserved_bytes;
}

static CUresult show(const struct sim_pool *pool, uint64_t address, uint64_t bytes)
{
    return pool->fd < 0 ? sim_space_commit(address, bytes)
                        : sim_space_map(address, bytes, pool->fd, address, PROT_READ | PROT_WRITE);
}

static void hide(const struct sim_pool *pool, uint64_t address, uint64_t bytes)
{
    if (pool->fd < 0) {
        sim_space_decommit(address, bytes);
        return;
    }
    sim_space_unmap(address, bytes);
    fallocate(pool->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)address, (off_t)bytes);
}

static CUresult grow(struct sim_pool *pool, uint64_t bytes)
{
    uint64_t span = sim_round_up(bytes, SIM_PAGE), address;
    struct pages *pages;
    CUresult result;

    if (pool->is_imported)
        return CUDA_ERROR_INVALID_VALUE; /* "do not support creating new allocations" */
    if (span == 0 || !fits(pool, span))
        return CUDA_ERROR_OUT_OF_MEMORY;
    pages = calloc(1, sizeof *pages);
    if (pages == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    result = pool->device == NULL ? CUDA_SUCCESS : sim_capacity_take(pool->device, span);
    if (result != CUDA_SUCCESS)
        goto fail_pages;
    result = sim_space_take(span, SIM_PAGE, false, &address);
    if (result != CUDA_SUCCESS)
        goto fail_capacity;
    result = show(pool, address, span);
    if (result != CUDA_SUCCESS)
        goto fail_space;
    insert_pages(pages, pool, address, address + span);
    pool->reserved_bytes += span;
    if (pool->reserved_bytes > pool->reserved_high)
        pool->reserved_high = pool->reserved_bytes;
    sim_ranges_give(&pool->free, &address, &span);
    return CUDA_SUCCESS;

fail_space:
    sim_space_give(address, span);
fail_capacity:
    if (pool->device != NULL)
        sim_capacity_return(pool->device, span);
fail_pages:
    free(pages);
    return result;
}

/* Takes [start, end), all of which the pool holds, out of the set of pages. */
static bool cut_pages(uint64_t start, uint64_t end)
{
    while (start < end) {
        struct sim_node *node = sim_tree_find(&pool_pages, start);
        struct pages *pages = PAGES(node);
        uint64_t low = pages->node.start, high = pages->node.end;
        uint64_t stop = high < end ? high : end;
        struct pages *second = NULL;

        if (low < start && stop < high) {
            second = calloc(1, sizeof *second);
            if (second == NULL)
                return false;
        }
        sim_tree_remove(&pool_pages, &pages->node);
        if (second != NULL)
            insert_pages(second, pages->pool, stop, high);
        if (low < start)
            insert_pages(pages, pages->pool, low, start);
        else if (stop < high)
            insert_pages(pages, pages->pool, stop, high);
        else
            free(pages);
        start = stop;
    }
    return true;
}

void sim_pool_trim(struct sim_pool *pool, uint64_t keep)
{
    uint64_t start, bytes, from = 0;

    while (pool->reserved_bytes > keep && sim_ranges_next(&pool->free, from, &start, &bytes)) {
        uint64_t low = sim_round_up(start, SIM_PAGE);
        uint64_t high = (start + bytes) / SIM_PAGE * SIM_PAGE;

        from = start + bytes;
        if (low >= high)
            continue;
        if (high - low > pool->reserved_bytes - keep)
            high = low + sim_round_up(pool->reserved_bytes - keep, SIM_PAGE);
        if (!sim_ranges_take_at(&pool->free, low, high - low) || !cut_pages(low, high))
            return;
        hide(pool, low, high - low);
        sim_space_give(low, high - low);
        if (pool->device != NULL)
            sim_capacity_return(pool->device, high - low);
        pool->reserved_bytes -= high - low;
    }
}

/* ---- what was freed ---- */

static struct sim_freed *find_freed(struct sim_pool *pool, struct sim_stream *stream)
{
    struct sim_freed *freed;

    for (freed = pool->freed; freed != NULL; freed = freed->next)
        if (freed->stream == stream)
            return freed;
    freed = calloc(1, sizeof *freed);
    if (freed == NULL)
        return NULL;
    freed->stream = stream;
    freed->last = &freed->first;
    freed->next = pool->freed;
    pool->freed = freed;
    return freed;
}

static void take_out(struct sim_freed *freed, struct sim_pending **link)
{
    struct sim_pending *pending = *link;

    *link = pending->next;
    if (*link == NULL)
        freed->last = link;
    free(pending);
}

static void make_free(struct sim_pool *pool, struct sim_freed *freed, struct sim_pending **link)
{
    uint64_t start = (*link)->start, bytes = (*link)->bytes;

    take_out(freed, link);
    sim_ranges_give(&pool->free, &start, &bytes);
}

void sim_pool_reap(struct sim_pool *pool)
{
    for (struct sim_freed *freed = pool->freed; freed != NULL; freed = freed->next)
        while (freed->first != NULL && sim_stream_has_passed(freed->stream, freed->first->position))
            make_free(pool, freed, &freed->first);
}

struct sim_stream *sim_pool_pending_stream(const struct sim_pool *pool)
{
    for (const struct sim_freed *freed = pool->freed; freed != NULL; freed = freed->next)
        if (freed->first != NULL)
            return freed->stream;
    return NULL;
}

/* Takes from one pending range; what is left of it stays pending. */
static bool take_pending(struct sim_freed *freed, struct sim_stream *stream, uint64_t bytes,
                         uint64_t *address)
{
    for (struct sim_pending **link = &freed->first; *link != NULL; link = &(*link)->next) {
        struct sim_pending *pending = *link;

        if (freed->stream != stream &&
            !sim_stream_is_ordered(freed->stream, pending->position, stream))
            return false; /* later frees are not ordered either */
        if (pending->bytes < bytes)
            continue;
        *address = pending->start;
        pending->start += bytes;
        pending->bytes -= bytes;
        if (pending->bytes == 0)
            take_out(freed, link);
        return true;
    }
    return false;
}

/* The stream's own memory first: it is idle by order, and likely warm. */
static bool take_freed(struct sim_pool *pool, struct sim_stream *stream, uint64_t bytes,
                       uint64_t *address)
{
    for (struct sim_freed *freed = pool->freed; freed != NULL; freed = freed->next)
        if (freed->stream == stream && take_pending(freed, stream, bytes, address))
            return true;
    return false;
}

static bool take_ordered(struct sim_pool *pool, struct sim_stream *stream, uint64_t bytes,
                         uint64_t *address)
{
    for (struct sim_freed *freed = pool->freed; freed != NULL; freed = freed->next)
        if (freed->stream != stream && freed->first != NULL &&
            take_pending(freed, stream, bytes, address))
            return true;
    return false;
}

CUresult sim_pool_allot(struct sim_pool *pool, uint64_t bytes, struct sim_stream *stream,
                        uint64_t *address)
{
    CUresult result;

    if (take_freed(pool, stream, bytes, address))
        return CUDA_SUCCESS;
    if (pool->is_opportunistic)
        sim_pool_reap(pool);
    if (sim_ranges_take(&pool->free, bytes, SIM_UNIT, address))
        return CUDA_SUCCESS;
    if (pool->follows_events && take_ordered(pool, stream, bytes, address))
        return CUDA_SUCCESS;
    result = grow(pool, bytes);
    if (result == CUDA_SUCCESS && !sim_ranges_take(&pool->free, bytes, SIM_UNIT, address))
        result = CUDA_ERROR_OUT_OF_MEMORY;
    return result;
}

/* ---- frees and ends ---- */

static void release_when_unused(struct sim_pool *pool)
{
    if (!pool->is_destroyed || pool->block_count != 0 || sim_pool_pending_stream(pool) != NULL)
        return;
    sim_pool_trim(pool, 0);
    sim_tree_remove(&pools, &pool->node);
    sim_ranges_fini(&pool->free);
    while (pool->freed != NULL) {
        struct sim_freed *freed = pool->freed;

        pool->freed = freed->next;
        free(freed);
    }
    if (pool->fd >= 0)
        close(pool->fd);
    free(pool);
}

void sim_pool_import_dropped(struct sim_pool *pool)
{
    pool->block_count--;
    release_when_unused(pool);
}

void sim_pool_retire(struct sim_pool *pool)
{
    for (unsigned place = 0; place < SIM_POOL_PLACES; place++)
        if (currents[place] == pool)
            currents[place] = NULL;
    pool->is_destroyed = true;
    sim_pool_reap(pool);
    release_when_unused(pool);
}

void sim_pool_free_locked(struct sim_block *block, struct sim_stream *stream, uint64_t position)
{
    struct sim_pool *pool = block->pool;
    uint64_t start = block->node.start, bytes = block->span;
    struct sim_freed *freed = stream == NULL ? NULL : find_freed(pool, stream);
    struct sim_pending *pending = freed == NULL ? NULL : calloc(1, sizeof *pending);

    sim_block_remove(block);
    free(block);
    pool->used_bytes -= bytes;
    pool->block_count--;
    if (pending == NULL) {
        sim_ranges_give(&pool->free, &start, &bytes);
        return;
    }
    pending->start = start;
    pending->bytes = bytes;
    pending->position = position;
    *freed->last = pending;
    freed->last = &pending->next;
}

void sim_memory_drop_stream(struct sim_stream *stream)
{
    pthread_mutex_lock(&sim_memory_lock);
    for (struct sim_node *node = sim_tree_lower_bound(&pools, 0, 0); node != NULL;
         node = sim_tree_lower_bound(&pools, node->end, 0)) {
        struct sim_freed **link = &POOL(node)->freed;

        while (*link != NULL && (*link)->stream != stream)
            link = &(*link)->next;
        if (*link != NULL) {
            struct sim_freed *freed = *link;

            while (freed->first != NULL)
                make_free(POOL(node), freed, &freed->first);
            *link = freed->next;
            free(freed);
        }
    }
    pthread_mutex_unlock(&sim_memory_lock);
}

/* Visits the device's pools, and those of no device; sim_use_lock held for writing if pages may go.
 */
static void trim_device_locked(const struct sim_device *device)
{
    struct sim_node *node = sim_tree_lower_bound(&pools, 0, 0);

    while (node != NULL) {
        struct sim_pool *pool = POOL(node);

        node = sim_tree_lower_bound(&pools, node->end, 0);
        if (pool->device != NULL && pool->device != device)
            continue;
        sim_pool_reap(pool);
        sim_pool_trim(pool, pool->threshold);
        release_when_unused(pool);
    }
}

void sim_memory_synchronized(struct sim_context *context)
{
    bool has_pages;

    pthread_mutex_lock(&sim_memory_lock);
    has_pages = pool_pages.count != 0;
    pthread_mutex_unlock(&sim_memory_lock);
    if (!has_pages)
        return;
    pthread_rwlock_wrlock(&sim_use_lock);
    pthread_mutex_lock(&sim_memory_lock);
    trim_device_locked(context->device);
    pthread_mutex_unlock(&sim_memory_lock);
    pthread_rwlock_unlock(&sim_use_lock);
}
