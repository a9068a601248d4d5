/* The bytes that allocations could get now, for cuMemGetInfo: free room in the limits and on the
 * device, idle memory, memory that becomes idle once pending work has completed, and free memory
 * beside live blocks. A pending block next to a live one in its segment or page does not count: its
 * memory cannot be released.
 *
 * Free memory beside live blocks: a segment of driver memory with a live block cannot be released,
 * but its free blocks serve requests of the pool's own. They count in whole units of 2 MiB, as
 * mapped memory does in whole pages. So the sum can be had in pieces. The largest single request
 * that succeeds is the larger of the longest such block and of the rest; in mapped memory, where
 * pages are lent to any addresses, it is the sum.
 *
 * O(pending blocks and their free neighbours, and free blocks of 2 MiB and more). */
#include "core/base/bits.h"
#include "core/device/registry.h"
#include "core/reclaim/leave.h"
#include "core/reclaim/reconcile.h"
#include "core/reclaim/tcache.h"

#include <stddef.h>

static bool is_unused(const struct gc_block *block)
{
    return block->state == GC_BLOCK_FREE || block->state == GC_BLOCK_PENDING;
}

static const struct gc_block *last_of_run(const struct gc_block *block)
{
    while (block->next != NULL && is_unused(block->next))
        block = block->next;
    return block;
}

/* The bytes that become idle with the run of pending and free blocks around `block`: counted at the
 * first pending block of the run, 0 at the others. */
static uint64_t run_bytes(const struct gc_pool *pool, const struct gc_block *block)
{
    const struct gc_segment *segment = gc_block_segment(block);
    const struct gc_block *first = block;
    while (first->previous != NULL && is_unused(first->previous)) {
        first = first->previous;
        if (first->state == GC_BLOCK_PENDING)
            return 0;
    }
    const struct gc_block *last = last_of_run(block);
    if (segment->arena != NULL)
        return gc_pages_count_freed_locked(pool, segment->arena, first->address,
                                           last->address + last->bytes - first->address) *
               pool->pages.page_bytes;
    const bool is_whole = first->previous == NULL && last->next == NULL;
    return is_whole ? segment->bytes : 0;
}

/* Whether the free block is in driver memory that a live block keeps; else it is counted as idle,
 * or with its run. */
static bool is_beside_live(const struct gc_block *block)
{
    const struct gc_block *first = block;
    if (gc_block_segment(block)->arena != NULL)
        return false;
    while (first->previous != NULL && is_unused(first->previous))
        first = first->previous;
    return first->previous != NULL || last_of_run(block)->next != NULL;
}

static uint64_t pool_beside_bytes(struct gc_pool *pool)
{
    uint64_t bytes = 0;
    gc_pool_acquire_plain(pool);
    for (unsigned i = 0; i < GC_CLASS_CUT_COUNT && !pool->is_closed; i++) {
        const struct gc_bins *bins = &pool->content.bins[i][GC_FREE_PLAIN];
        for (const struct gc_block *block = gc_bins_next_fit(bins, NULL, GC_SEGMENT_UNIT);
             block != NULL; block = gc_bins_next_fit(bins, block, GC_SEGMENT_UNIT))
            if (is_beside_live(block))
                bytes += block->bytes / GC_SEGMENT_UNIT * GC_SEGMENT_UNIT;
    }
    gc_pool_release(pool);
    return bytes;
}

/* Free memory beside live blocks of the quota's own pools; without one, of the pools that no tenant
 * has: a pool serves no other's requests. */
static uint64_t beside_bytes(struct gc_device *device, const struct gc_quota *quota)
{
    uint64_t bytes = 0;
    for (struct gc_context *context = gc_context_first(device); context != NULL;
         context = gc_context_next(context))
        if (context->quota == quota)
            bytes += pool_beside_bytes(&context->pool);
    return bytes;
}

static uint64_t list_bytes(const struct gc_pool *pool, const struct gc_block *first)
{
    uint64_t bytes = 0;
    for (const struct gc_block *block = first; block != NULL; block = block->pending.next)
        bytes += run_bytes(pool, block);
    return bytes;
}

static uint64_t stream_bytes(const struct gc_pool *pool, const struct gc_stream_list *list)
{
    uint64_t bytes = 0;
    for (unsigned i = 0; i < list->group_count; i++) {
        for (unsigned j = 0; j < GC_STREAM_TREES; j++) {
            const struct gc_bins *tree = &list->groups[i].trees[j];
            for (const struct gc_block *block = gc_bins_next_fit(tree, NULL, GC_GRANULE);
                 block != NULL; block = gc_bins_next(tree, block))
                bytes += run_bytes(pool, block);
        }
    }
    return bytes;
}

static uint64_t pool_bytes(struct gc_pool *pool)
{
    gc_pool_acquire_plain(pool);
    uint64_t bytes = list_bytes(pool, pool->content.pending_first);
    for (unsigned i = 0; i < pool->stream_count; i++)
        bytes += stream_bytes(pool, &pool->streams[i]);
    gc_pool_release(pool);
    return bytes;
}

/* Idle now, or once pending work has completed; at most the bytes held. */
static uint64_t spare_bytes(struct gc_device *device, const struct gc_quota *quota)
{
    const struct gc_budget *budget = quota == NULL ? &device->budget : &quota->budget;
    uint64_t bytes = gc_quota_idle_bytes(device, quota);
    for (struct gc_context *context = gc_context_first(device); context != NULL;
         context = gc_context_next(context))
        if (gc_context_is_of_quota(context, quota))
            bytes += pool_bytes(&context->pool);
    return gc_min_u64(bytes, gc_budget_held(budget));
}

/* Lowers the figure to the room in the limit once `spare` of the bytes held are released. False:
 * more is held than the limit allows; then no request is served, not even from free blocks. */
static bool apply_limit(uint64_t limit, uint64_t held, uint64_t spare, uint64_t *available)
{
    const uint64_t used = gc_sub_or_zero_u64(held, spare);
    *available = gc_min_u64(*available, gc_sub_or_zero_u64(limit, used));
    return used <= limit;
}

static bool apply_budget(const struct gc_budget *budget, uint64_t spare, uint64_t *available)
{
    return apply_limit(gc_budget_room(budget), gc_budget_held(budget), spare, available);
}

/* Of this process, in host memory until its next turn. */
static uint64_t away_bytes(const struct gc_account *account)
{
    return gc_ledger_load(&gc_ledger_own_slot(account->ledger)->turn.away[gc_account_row(account)]);
}

/* Where processes take turns others give way: what this one may hold in all counts, with what of
 * its own is away. */
static bool apply_turns(struct gc_device *device, uint64_t spare, uint64_t *available)
{
    struct gc_account *account = device->budget.account;
    const uint64_t away = away_bytes(account);
    uint64_t held = gc_account_of(account, account->ledger->own);
    if (!gc_add_u64(held, away, &held))
        held = UINT64_MAX;
    *available = gc_sub_or_zero_u64(*available, away);
    return apply_limit(gc_account_limit(account), held, spare, available);
}

void gc_available_mem_info(struct gc_core *core, struct gc_device *device,
                           const struct gc_quota *quota, uint64_t *free_bytes,
                           uint64_t *total_bytes)
{
    (void)core;
    gc_reconcile_update(device);
    gc_device_note_free(device, *free_bytes);
    gc_tcache_flush_device(device, NULL); /* cached blocks count as idle */
    struct gc_account *account = device->budget.account;
    /* An allocation waits for pending blocks before it fails, so they count as free. */
    const uint64_t spare = spare_bytes(device, NULL);
    const bool takes_turns = account != NULL && account->takes_turns;
    uint64_t available;
    if (takes_turns || !gc_add_u64(*free_bytes, spare, &available))
        available = UINT64_MAX;
    bool is_served = apply_budget(&device->budget, spare, &available);
    if (takes_turns)
        is_served &= apply_turns(device, spare, &available);
    else if (account != NULL)
        is_served &=
            apply_limit(gc_account_limit(account), gc_account_held(account), spare, &available);
    if (quota != NULL)
        is_served &= apply_budget(&quota->budget, spare_bytes(device, quota), &available);
    /* Charged already: within every limit. */
    if (is_served && !gc_add_u64(available, beside_bytes(device, quota), &available))
        available = UINT64_MAX;
    *total_bytes = gc_min_u64(*total_bytes, gc_quota_limit_bytes(device, quota));
    *free_bytes = gc_min_u64(available, *total_bytes);
}

enum gc_status gc_available_bytes(struct gc_core *core, struct gc_device *device,
                                  const struct gc_quota *quota, uint64_t *available_bytes,
                                  int *driver_code)
{
    uint64_t free_bytes =
        gc_sub_or_zero_u64(device->info.total_bytes, gc_budget_held(&device->budget));
    uint64_t total_bytes = device->info.total_bytes;
    int code;
    if (!gc_leave_read(device, &free_bytes, &total_bytes, &code) && code != 0) {
        *driver_code = code;
        return GC_DRIVER;
    }
    gc_available_mem_info(core, device, quota, &free_bytes, &total_bytes);
    *available_bytes = free_bytes;
    return GC_OK;
}
