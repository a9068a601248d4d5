/* Stream-ordered memory: pools, and when freed memory may be used again.
 *
 * A pool reserves pages of SIM_PAGE and hands out multiples of SIM_UNIT. Freed memory waits in a
 * list per stream. An allocation may take from it at once on the same stream, on another stream
 * that is ordered behind the free, or once the free has passed; each as the pool's attributes
 * allow. The engine's position queries are called with sim_memory_lock held; they call nothing
 * back. */
#include "memory_pool.h"

#include <stdlib.h>

/* Pages that pools hold: addresses are checked against these, since memory freed on a stream may
 * still be in use by what was queued before. */
struct pages {
    struct sim_node node;
    struct sim_pool *pool;
};

static struct sim_tree pools, pool_pages; /* sim_memory_lock */
static struct sim_pool *defaults[SIM_MAX_DEVICES], *currents[SIM_MAX_DEVICES];

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

struct sim_pool *sim_pool_new(struct sim_device *device, const CUmemPoolProps *props)
{
    struct sim_pool *pool = calloc(1, sizeof *pool);

    if (pool == NULL)
        return NULL;
    pool->device = device;
    pool->props = *props;
    pool->follows_events = 1;
    pool->is_opportunistic = 1;
    pool->adds_dependencies = 1;
    pool->node.start = (uint64_t)(uintptr_t)pool;
    pool->node.end = pool->node.start + 1;
    sim_tree_insert(&pools, &pool->node);
    return pool;
}

struct sim_pool *sim_pool_default(struct sim_device *device)
{
    struct sim_pool **pool = &defaults[device->ordinal % SIM_MAX_DEVICES];
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED};

    if (*pool == NULL) {
        props.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
        props.location.id = device->ordinal;
        *pool = sim_pool_new(device, &props);
        if (*pool != NULL)
            (*pool)->is_default = true;
    }
    return *pool;
}

struct sim_pool *sim_pool_current(struct sim_device *device)
{
    struct sim_pool *pool = currents[device->ordinal % SIM_MAX_DEVICES];

    return pool != NULL ? pool : sim_pool_default(device);
}

void sim_pool_set_current(struct sim_device *device, struct sim_pool *pool)
{
    currents[device->ordinal % SIM_MAX_DEVICES] = pool;
}

/* ---- pages ---- */

bool sim_pool_owns(const struct sim_context *context, uint64_t address, uint64_t bytes,
                   bool is_write)
{
    uint64_t bit = UINT64_C(1) << (context->device->ordinal & 63);

    for (;;) {
        struct sim_node *node = sim_tree_find(&pool_pages, address);
        const struct sim_pool *pool = node == NULL ? NULL : PAGES(node)->pool;

        if (pool == NULL || (pool->device != context->device &&
                             ((is_write ? pool->writers : pool->readers) & bit) == 0))
            return false;
        if (bytes <= node->end - address)
            return true;
        bytes -= node->end - address;
        address = node->end;
    }
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

static CUresult grow(struct sim_pool *pool, uint64_t bytes)
{
    uint64_t span = sim_round_up(bytes, SIM_PAGE), address;
    struct pages *pages;
    CUresult result;

    if (span == 0 || !fits(pool, span))
        return CUDA_ERROR_OUT_OF_MEMORY;
    pages = calloc(1, sizeof *pages);
    if (pages == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    result = sim_capacity_take(pool->device, span);
    if (result != CUDA_SUCCESS)
        goto fail_pages;
    result = sim_space_take(span, SIM_PAGE, false, &address);
    if (result != CUDA_SUCCESS)
        goto fail_capacity;
    result = sim_space_commit(address, span);
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
        sim_space_decommit(low, high - low);
        sim_space_give(low, high - low);
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
    free(pool);
}

void sim_pool_retire(struct sim_pool *pool)
{
    if (sim_pool_current(pool->device) == pool)
        sim_pool_set_current(pool->device, NULL);
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

/* Visits the device's pools; sim_use_lock held for writing if pages may go. */
static void trim_device_locked(const struct sim_device *device)
{
    struct sim_node *node = sim_tree_lower_bound(&pools, 0, 0);

    while (node != NULL) {
        struct sim_pool *pool = POOL(node);

        node = sim_tree_lower_bound(&pools, node->end, 0);
        if (pool->device != device)
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
