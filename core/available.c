/* What a malloc could get now: room in the limit and on the device, idle memory, and what will be
 * idle once pending work is done. Pending blocks beside live ones, in a segment or a page, are not
 * counted: they serve again, but give no room to others. Nor is what a graph may use for ever. */
#include "core/bits.h"
#include "core/instance.h"
#include "core/magazine.h"

#include <stddef.h>

static bool is_unused(const struct gc_block *block)
{
    return block->state == GC_BLOCK_FREE || block->state == GC_BLOCK_PENDING;
}

/* The whole pages of [start, end) that are in use, so by pending blocks only. */
static uint64_t pages_between(const struct gc_pool *pool, const struct gc_arena *arena,
                              uint64_t start, uint64_t end)
{
    const uint64_t page_bytes = pool->pages.page_bytes;
    const uint64_t base = arena->segment->address;
    const uint64_t last = gc_min_u64((end - base) / page_bytes, arena->touched_count);
    uint64_t count = 0;
    for (uint64_t i = (start - base + page_bytes - 1) / page_bytes; i < last; i++)
        count += arena->slots[i].use_count > 0 && !arena->slots[i].is_kept;
    return count * page_bytes;
}

/* What becomes idle with the pending blocks of the run that `block` is in. The first pending one
 * speaks for all. */
static uint64_t run_bytes(const struct gc_pool *pool, const struct gc_block *block)
{
    const struct gc_segment *segment = atomic_load_explicit(&block->segment, memory_order_relaxed);
    const struct gc_block *first = block;
    const struct gc_block *last = block;
    while (first->previous != NULL && is_unused(first->previous)) {
        first = first->previous;
        if (first->state == GC_BLOCK_PENDING)
            return 0;
    }
    while (last->next != NULL && is_unused(last->next))
        last = last->next;
    if (segment->arena != NULL)
        return pages_between(pool, segment->arena, first->address, last->address + last->bytes);
    const bool is_whole = first->previous == NULL && last->next == NULL;
    return is_whole && !segment->is_kept ? segment->bytes : 0;
}

static uint64_t list_bytes(const struct gc_pool *pool, const struct gc_block *first)
{
    uint64_t bytes = 0;
    for (const struct gc_block *block = first; block != NULL; block = block->pending.next)
        bytes += run_bytes(pool, block);
    return bytes;
}

static uint64_t pool_bytes(struct gc_pool *pool)
{
    gc_pool_acquire_plain(pool);
    uint64_t bytes = list_bytes(pool, pool->pending_first);
    for (unsigned i = 0; i < GC_STREAM_LISTS; i++)
        bytes += list_bytes(pool, pool->streams[i].first);
    gc_pool_release(pool);
    return bytes;
}

/* Idle once pending work is done. */
static uint64_t soon_idle_bytes(struct gc_device *device)
{
    uint64_t bytes = 0;
    for (struct gc_context *context = gc_context_first(device); context != NULL;
         context = gc_context_next(context))
        bytes += pool_bytes(&context->pool);
    return bytes;
}

void gc_core_mem_info(struct gc_core *core, struct gc_device *device, uint64_t *free_bytes,
                      uint64_t *total_bytes)
{
    (void)core;
    gc_magazine_flush_device(device); /* what is idle there shall count as idle */
    struct gc_account *account = device->budget.account;
    /* A malloc that is short waits for what is pending, so that counts as free too. */
    const uint64_t idle = gc_min_u64(gc_device_idle_bytes(device) + soon_idle_bytes(device),
                                     gc_budget_held(&device->budget));
    const uint64_t used = gc_sub_or_zero_u64(gc_budget_held(&device->budget), idle);
    uint64_t available;
    if (!gc_add_u64(*free_bytes, idle, &available))
        available = UINT64_MAX;
    available = gc_min_u64(available, gc_sub_or_zero_u64(gc_device_own_limit_bytes(device), used));
    if (account != NULL) {
        const uint64_t used_by_all = gc_sub_or_zero_u64(gc_account_held(account), idle);
        available =
            gc_min_u64(available, gc_sub_or_zero_u64(gc_account_limit(account), used_by_all));
    }
    *total_bytes = gc_min_u64(*total_bytes, gc_device_limit_bytes(device));
    *free_bytes = gc_min_u64(available, *total_bytes);
}
