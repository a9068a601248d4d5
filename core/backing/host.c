#include "core/backing/host.h"

#include "core/base/bits.h"
#include "core/base/slab.h"
#include "core/device/registry.h"
#include "core/io/log.h"
#include "core/io/meminfo.h"

#include <stddef.h>

/* Where processes take turns, of the bound: a chunk is held until all in it is back. */
#define CHUNK_PARTS 16

_Static_assert(GC_HOST_CHUNK_BYTES / GC_HOST_UNIT_BYTES <= 32, "the units of a chunk fit a bitmap");

struct gc_host_chunk {
    struct gc_host_chunk *next;
    uint8_t *memory;
    uint64_t bytes;
    uint32_t used;             /* bit i: unit i has content, or is about to get it */
    struct gc_context *pinner; /* the head of the context that pinned it; NULL: not pinned */
};

struct gc_host_store {
    struct gc_lock lock; /* guards the list and the chunks' bitmaps */
    struct gc_host_chunk *chunks;
    struct gc_slab records;     /* of chunks */
    atomic_uint_fast64_t bytes; /* of the chunks */
    atomic_bool is_unpinnable;  /* pinning failed once */
    atomic_bool is_exchange;    /* gc_host_set_exchange */
    atomic_flag was_logged;
    atomic_flag was_full_logged;
};

/* Units of a chunk that follow each other. */
struct run {
    struct gc_host_chunk *chunk;
    uint32_t first;
    uint32_t count; /* 0: none */
};

static uint32_t mask_of(uint32_t first, uint32_t count)
{
    return (uint32_t)(((UINT64_C(1) << count) - 1) << first);
}

static uint32_t units_of(uint64_t bytes)
{
    return (uint32_t)((bytes + GC_HOST_UNIT_BYTES - 1) / GC_HOST_UNIT_BYTES);
}

/* ---- the bound ---- */

uint64_t gc_host_bytes(const struct gc_core *core)
{
    return atomic_load_explicit(&core->host_store->bytes, memory_order_relaxed);
}

static bool charge(struct gc_core *core, uint64_t bytes)
{
    if (!gc_host_budget_try_charge(
            &core->host_budget, bytes,
            atomic_load_explicit(&core->host_store->is_exchange, memory_order_relaxed)))
        return false;
    atomic_fetch_add_explicit(&core->host_store->bytes, bytes, memory_order_relaxed);
    return true;
}

static void uncharge(struct gc_core *core, uint64_t bytes)
{
    atomic_fetch_sub_explicit(&core->host_store->bytes, bytes, memory_order_relaxed);
    gc_host_budget_uncharge(&core->host_budget, bytes);
}

void gc_host_set_exchange(struct gc_core *core, bool is_exchange)
{
    atomic_store_explicit(&core->host_store->is_exchange, is_exchange, memory_order_relaxed);
}

void gc_host_log_full(struct gc_core *core)
{
    gc_log_once(core->log, &core->host_store->was_full_logged, GC_LOG_WARN,
                "host memory is full: %llu of %llu MiB for swapped and spilled memory are taken, "
                "%llu MiB are free: what has no room there stays on the device "
                "(GPUCACHE_HOST_LIMIT)",
                (unsigned long long)(gc_host_budget_sum(&core->host_budget) >> 20),
                (unsigned long long)(gc_host_budget_limit(&core->host_budget) >> 20),
                (unsigned long long)(gc_meminfo_available_bytes() >> 20));
}

/* ---- chunks ---- */

static void pin(struct gc_context *worker, struct gc_host_chunk *chunk)
{
    struct gc_host_store *store = worker->core->host_store;
    const struct gc_driver *driver = &worker->core->driver;
    chunk->pinner = NULL;
    if (driver->host_pin == NULL || worker->is_device ||
        atomic_load_explicit(&store->is_unpinnable, memory_order_relaxed))
        return;
    const int code = GC_CALL_IF_OPEN(
        worker, driver->host_pin(driver->self, worker->handle, chunk->memory, chunk->bytes));
    if (code == 0)
        chunk->pinner = worker->head;
    if (code == 0 || gc_context_is_dropped(worker))
        return;
    atomic_store_explicit(&store->is_unpinnable, true, memory_order_relaxed);
    gc_log_once(
        worker->core->log, &store->was_logged, GC_LOG_INFO,
        "host memory for swapped pages cannot be pinned (code %d): their copies take longer", code);
}

/* False: the driver still has the memory pinned. */
static bool unpin(struct gc_core *core, const struct gc_host_chunk *chunk)
{
    const struct gc_driver *driver = &core->driver;
    if (chunk->pinner == NULL)
        return true;
    const int code = GC_CALL_IF_OPEN(
        chunk->pinner, driver->host_unpin(driver->self, chunk->pinner->handle, chunk->memory));
    return code == 0 || code == driver->context_is_gone;
}

static struct gc_host_chunk *map_chunk(struct gc_core *core, uint64_t bytes)
{
    struct gc_host_store *store = core->host_store;
    struct gc_host_chunk *chunk = gc_slab_alloc(&store->records);
    if (chunk == NULL)
        return NULL;
    *chunk =
        (struct gc_host_chunk){.bytes = bytes, .memory = gc_host_mem_map_huge(&core->host, bytes)};
    if (chunk->memory != NULL)
        return chunk;
    gc_slab_free(&store->records, chunk);
    return NULL;
}

static void unmap_chunk(struct gc_core *core, struct gc_host_chunk *chunk)
{
    gc_host_mem_unmap(&core->host, chunk->memory, chunk->bytes);
    gc_slab_free(&core->host_store->records, chunk);
}

/* A chunk of at least `least` bytes; NULL: the bound is reached, or the kernel has no memory. */
static struct gc_host_chunk *create_chunk(struct gc_context *worker, uint64_t least)
{
    struct gc_core *core = worker->core;
    struct gc_host_budget *budget = &core->host_budget;
    const uint64_t part =
        budget->has_reserve ? gc_host_budget_limit(budget) / CHUNK_PARTS : UINT64_MAX;
    uint64_t bytes = GC_HOST_CHUNK_BYTES;
    while (bytes > GC_HOST_UNIT_BYTES && bytes > part)
        bytes /= 2;
    for (bytes = gc_max_u64(bytes, least); bytes >= least; bytes /= 2) {
        if (!charge(core, bytes))
            continue;
        struct gc_host_chunk *chunk = map_chunk(core, bytes);
        if (chunk != NULL) {
            pin(worker, chunk);
            return chunk;
        }
        uncharge(core, bytes);
    }
    return NULL;
}

static void link_locked(struct gc_host_store *store, struct gc_host_chunk *chunk)
{
    chunk->next = store->chunks;
    store->chunks = chunk;
}

/* ---- units ---- */

/* The first run of `wanted` free units, or else the longest. */
static struct run longest_run(struct gc_host_chunk *chunk, uint32_t wanted)
{
    const uint32_t count = (uint32_t)(chunk->bytes / GC_HOST_UNIT_BYTES);
    struct run best = {.chunk = chunk};
    struct run now = {.chunk = chunk};
    for (uint32_t i = 0; i < count && best.count < wanted; i++) {
        if ((chunk->used >> i & 1) != 0) {
            now = (struct run){.chunk = chunk, .first = i + 1};
            continue;
        }
        now.count++;
        if (now.count > best.count)
            best = now;
    }
    return best;
}

/* The first run of `wanted` units, or else the longest of whole pages. */
static struct run find_locked(const struct gc_host_store *store, uint32_t wanted,
                              uint32_t units_per_page)
{
    struct run best = {.chunk = NULL};
    for (struct gc_host_chunk *chunk = store->chunks; chunk != NULL && best.count < wanted;
         chunk = chunk->next) {
        struct run run = longest_run(chunk, wanted);
        run.count -= run.count % units_per_page;
        if (run.count > best.count)
            best = run;
    }
    return best;
}

static struct run take_locked(struct gc_host_store *store, uint32_t wanted, uint32_t units_per_page)
{
    const struct run run = find_locked(store, wanted, units_per_page);
    if (run.count > 0)
        run.chunk->used |= mask_of(run.first, run.count);
    return run;
}

/* Units of a new chunk. */
static struct run take_new(struct gc_context *worker, uint32_t wanted, uint32_t units_per_page)
{
    struct gc_host_store *store = worker->core->host_store;
    struct run run = {.chunk = create_chunk(worker, units_per_page * GC_HOST_UNIT_BYTES)};
    if (run.chunk == NULL)
        return run;
    run.count = (uint32_t)gc_min_u64(wanted, run.chunk->bytes / GC_HOST_UNIT_BYTES);
    run.chunk->used = mask_of(0, run.count);
    gc_lock_acquire(&store->lock);
    link_locked(store, run.chunk);
    gc_lock_release(&store->lock);
    return run;
}

/* The context that pinned the chunk is destroyed, or could not pin. Nothing else may be copied to
 * or from it meanwhile. */
static void pin_again(struct gc_context *worker, const struct run *run)
{
    struct gc_host_store *store = worker->core->host_store;
    struct gc_host_chunk *chunk = run->chunk;
    gc_lock_acquire(&store->lock);
    const bool is_alone = chunk->used == mask_of(run->first, run->count);
    gc_lock_release(&store->lock);
    if (is_alone && (chunk->pinner == NULL || gc_context_is_dropped(chunk->pinner)))
        pin(worker, chunk);
}

bool gc_host_take(struct gc_context *worker, uint64_t bytes, struct gc_host_piece *piece)
{
    struct gc_host_store *store = worker->core->host_store;
    const uint64_t page_bytes = worker->device->info.page_bytes;
    const uint32_t units_per_page = page_bytes > GC_HOST_UNIT_BYTES ? units_of(page_bytes) : 1;
    const uint64_t most = gc_min_u64(bytes, GC_HOST_CHUNK_BYTES);
    gc_lock_acquire(&store->lock);
    struct run run = take_locked(store, units_of(most), units_per_page);
    gc_lock_release(&store->lock);
    if (run.count > 0)
        pin_again(worker, &run);
    else
        run = take_new(worker, units_of(most), units_per_page);
    if (run.chunk == NULL)
        return false;
    *piece = (struct gc_host_piece){.memory = run.chunk->memory + run.first * GC_HOST_UNIT_BYTES,
                                    .bytes = gc_min_u64(most, run.count * GC_HOST_UNIT_BYTES),
                                    .chunk = run.chunk};
    return true;
}

void gc_host_give(struct gc_core *core, const struct gc_host_piece *piece)
{
    struct gc_host_store *store = core->host_store;
    struct gc_host_chunk *chunk = piece->chunk;
    const uint32_t first =
        (uint32_t)((uint64_t)(piece->memory - chunk->memory) / GC_HOST_UNIT_BYTES);
    const uint32_t mask = mask_of(first, units_of(piece->bytes));
    gc_lock_acquire(&store->lock);
    GC_ASSERT((chunk->used & mask) == mask);
    chunk->used &= ~mask;
    gc_lock_release(&store->lock);
}

/* ---- the end of chunks ---- */

static struct gc_host_chunk *remove_free_locked(struct gc_host_store *store)
{
    struct gc_host_chunk *removed = NULL;
    struct gc_host_chunk **link = &store->chunks;
    while (*link != NULL) {
        struct gc_host_chunk *chunk = *link;
        if (chunk->used != 0) {
            link = &chunk->next;
            continue;
        }
        *link = chunk->next;
        chunk->next = removed;
        removed = chunk;
    }
    return removed;
}

uint64_t gc_host_trim(struct gc_core *core)
{
    struct gc_host_store *store = core->host_store;
    uint64_t bytes = 0;
    gc_lock_acquire(&store->lock);
    struct gc_host_chunk *chunk = remove_free_locked(store);
    gc_lock_release(&store->lock);
    for (struct gc_host_chunk *next; chunk != NULL; chunk = next) {
        next = chunk->next;
        if (unpin(core, chunk)) {
            const uint64_t chunk_bytes = chunk->bytes;
            unmap_chunk(core, chunk);
            uncharge(core, chunk_bytes);
            bytes += chunk_bytes;
            continue;
        }
        gc_lock_acquire(&store->lock);
        link_locked(store, chunk);
        gc_lock_release(&store->lock);
    }
    return bytes;
}

enum gc_status gc_host_create(struct gc_core *core)
{
    struct gc_host_store *store = gc_host_mem_map(&core->host, sizeof(*store));
    if (store == NULL)
        return GC_NO_HOST_MEMORY;
    gc_lock_init(&store->lock, GC_RANK_HOST);
    gc_slab_init_small(&store->records, &core->host, sizeof(struct gc_host_chunk));
    core->host_store = store;
    return GC_OK;
}

void gc_host_destroy(struct gc_core *core)
{
    struct gc_host_store *store = core->host_store;
    for (struct gc_host_chunk *chunk = store->chunks, *next; chunk != NULL; chunk = next) {
        next = chunk->next;
        unmap_chunk(core, chunk);
    }
    gc_slab_fini(&store->records);
    gc_host_mem_unmap(&core->host, store, sizeof(*store));
    core->host_store = NULL;
}
