/* The bytes that an allocation could get now, for cuMemGetInfo: free room in the limits and on the
 * device, idle memory, and memory that becomes idle once pending work has completed. A pending
 * block next to a live one in its segment or page does not count: its memory cannot be released.
 * O(pending blocks and their free neighbours). */
#include "core/base/bits.h"
#include "core/device/registry.h"
#include "core/reclaim/leave.h"
#include "core/reclaim/tcache.h"

#include <stddef.h>

static bool is_unused(const struct gc_block *block)
{
    return block->state == GC_BLOCK_FREE || block->state == GC_BLOCK_PENDING;
}

/* The bytes of the whole pages in [start, end) that are in use, by pending blocks only. */
static uint64_t pages_between(const struct gc_pool *pool, const struct gc_arena *arena,
                              uint64_t start, uint64_t end)
{
    const uint64_t page_bytes = pool->pages.page_bytes;
    const uint64_t base = arena->segment->address;
    const uint64_t last = gc_min_u64((end - base) / page_bytes, arena->touched_count);
    uint64_t count = 0;
    for (uint64_t i = (start - base + page_bytes - 1) / page_bytes; i < last; i++)
        count += arena->slots[i].use_count > 0;
    return count * page_bytes;
}

/* The bytes that become idle with the run of pending and free blocks around `block`: counted at the
 * first pending block of the run, 0 at the others. */
static uint64_t run_bytes(const struct gc_pool *pool, const struct gc_block *block)
{
    const struct gc_segment *segment = gc_block_segment(block);
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
    const bool is_dedicated = first->previous == NULL && last->next == NULL;
    return is_dedicated ? segment->bytes : 0;
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
    uint64_t bytes = list_bytes(pool, pool->content.pending_first);
    for (unsigned i = 0; i < pool->stream_count; i++)
        bytes += list_bytes(pool, pool->streams[i].first);
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

/* The bytes that a budget still allows, with `spare` of its bytes released. */
static uint64_t room_of(const struct gc_budget *budget, uint64_t spare)
{
    const uint64_t used = gc_sub_or_zero_u64(gc_budget_held(budget), spare);
    return gc_sub_or_zero_u64(gc_budget_limit(budget), used);
}

void gc_available_mem_info(struct gc_core *core, struct gc_device *device,
                           const struct gc_quota *quota, uint64_t *free_bytes,
                           uint64_t *total_bytes)
{
    (void)core;
    gc_device_note_free(device, *free_bytes);
    gc_tcache_flush_device(device, NULL); /* cached blocks count as idle */
    struct gc_account *account = device->budget.account;
    /* An allocation waits for pending blocks before it fails, so they count as free. */
    const uint64_t spare = spare_bytes(device, NULL);
    uint64_t available;
    if (!gc_add_u64(*free_bytes, spare, &available))
        available = UINT64_MAX;
    available = gc_min_u64(available, room_of(&device->budget, spare));
    if (account != NULL) {
        const uint64_t used_by_all = gc_sub_or_zero_u64(gc_account_held(account), spare);
        available =
            gc_min_u64(available, gc_sub_or_zero_u64(gc_account_limit(account), used_by_all));
    }
    if (quota != NULL)
        available = gc_min_u64(available, room_of(&quota->budget, spare_bytes(device, quota)));
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
