/* Swap-out: check, choose the pages in use, wait for the context's work, copy, unmap, release.
 * Every step may fail; the slots then record which pages are swapped out. */
#include "core/backing/unmap.h"
#include "core/base/assert.h"
#include "core/device/registry.h"
#include "core/io/meminfo.h"
#include "core/pause/swap.h"
#include "core/reclaim/reclaim.h"
#include "core/reclaim/release.h"

#include <stddef.h>

/* Copies may take this much of the available host memory. */
#define HOST_MAX_PERCENT 90

const char *gc_swap_refusal_text(enum gc_swap_refusal refusal)
{
    static const char *const texts[GC_SWAP_REFUSAL_COUNT] = {
        [GC_SWAP_OK] = "done",
        [GC_SWAP_AGAIN] = "it is paused already, or was not",
        [GC_SWAP_CAPTURES] = "a graph is being captured",
        [GC_SWAP_PEERS] = "other devices or contexts have access to the memory",
        [GC_SWAP_EXPORTED] = "other processes or devices may have the memory open",
        [GC_SWAP_NOT_MAPPED] = "the memory is not mapped page by page (backend `driver`)",
        [GC_SWAP_HOST] = "not enough host memory for the copy",
        [GC_SWAP_FULL] = "not enough free memory on the device, or within a limit",
        [GC_SWAP_BUSY] = "work under way did not complete in time",
        [GC_SWAP_UNSEEN] = "work may be submitted that the library does not see",
        [GC_SWAP_DRIVER] = "a driver call failed",
    };
    return (unsigned)refusal < GC_SWAP_REFUSAL_COUNT ? texts[refusal] : "?";
}

bool gc_swap_is_out(struct gc_context *context)
{
    gc_pool_acquire_plain(&context->pool);
    const bool is_swapped = context->pool.pages.swap != NULL;
    gc_pool_release(&context->pool);
    return is_swapped;
}

/* ---- checks ---- */

static bool has_peers_locked(const struct gc_context *context)
{
    bool has_peers = context->is_crowded;
    /* A pause waits for all contexts of a device, so those may access the device's own pool. */
    for (uint32_t i = 0; i < context->peer_count; i++)
        has_peers |= !gc_context_is_dropped(context->peers[i]) &&
                     (!context->is_device || context->peers[i]->device != context->device);
    return has_peers;
}

static enum gc_swap_refusal check_locked(const struct gc_context *context)
{
    const struct gc_pool *pool = &context->pool;
    if (pool->pages.swap != NULL)
        return GC_SWAP_AGAIN;
    if (has_peers_locked(context))
        return GC_SWAP_PEERS;
    bool has_uncached = false;
    bool has_plain = false;
    for (const struct gc_segment *segment = pool->content.segments; segment != NULL;
         segment = segment->next) {
        has_uncached |=
            segment->size_class == GC_CLASS_UNCACHED && !segment->is_idle && !segment->is_plain;
        has_plain |= segment->arena == NULL;
    }
    if (pool->pages.arenas == NULL)
        return has_plain ? GC_SWAP_NOT_MAPPED : GC_SWAP_OK;
    return has_uncached || pool->pinned_count > 0 ? GC_SWAP_EXPORTED : GC_SWAP_OK;
}

enum gc_swap_refusal gc_swap_check(struct gc_context *context)
{
    if (gc_capture_is_of_context(context))
        return GC_SWAP_CAPTURES;
    gc_pool_acquire_plain(&context->pool);
    const enum gc_swap_refusal refusal = check_locked(context);
    gc_pool_release(&context->pool);
    return refusal;
}

/* ---- swap-out ---- */

static struct gc_swap *create_swap(struct gc_context *context, uint64_t slots)
{
    const uint64_t bytes = sizeof(struct gc_swap) + slots * sizeof(struct gc_swapped_slot);
    struct gc_swap *swap = gc_host_mem_map(&context->core->host, bytes);
    if (swap != NULL)
        swap->host_bytes = bytes;
    return swap;
}

/* Adds all slots in use to the swap and their pages to the purge list. */
static void choose_arena_locked(struct gc_swap *swap, struct gc_arena *arena,
                                struct gc_purge_list *purge)
{
    struct gc_pages *pages = &swap->change.context->pool.pages;
    for (uint64_t i = 0; i < arena->touched_count; i++) {
        struct gc_slot *slot = &arena->slots[i];
        struct gc_page *page = slot->page;
        if (slot->use_count == 0 || page == NULL || page->user != slot)
            continue;
        swap->list[swap->count] = (struct gc_swapped_slot){slot, arena, swap->count};
        swap->count++;
        slot->is_changing = true;
        page->user = &pages->purge;
        for (struct gc_slot *mapped = page->first; mapped != NULL; mapped = mapped->next)
            mapped->stage = GC_SLOT_PENDING;
        page->next = purge->first;
        purge->first = page;
    }
}

static void choose(struct gc_swap *swap, struct gc_purge_list *purge)
{
    struct gc_pool *pool = &swap->change.context->pool;
    gc_pool_acquire_plain(pool);
    for (struct gc_arena *arena = pool->pages.arenas; arena != NULL; arena = arena->next)
        choose_arena_locked(swap, arena, purge);
    gc_pool_release(pool);
}

uint64_t gc_swap_address(const struct gc_pool *pool, const struct gc_swapped_slot *swapped)
{
    return swapped->arena->segment->address +
           (uint64_t)(swapped->slot - swapped->arena->slots) * pool->pages.page_bytes;
}

uint64_t gc_swap_run_end(const struct gc_swap *swap, uint64_t i)
{
    do
        i++;
    while (i < swap->count && swap->list[i].slot == swap->list[i - 1].slot + 1 &&
           swap->list[i].number == swap->list[i - 1].number + 1 &&
           swap->list[i].arena == swap->list[i - 1].arena);
    return i;
}

struct gc_context *gc_swap_worker(struct gc_context *context)
{
    struct gc_context *worker = gc_context_worker(context);
    return worker != NULL ? worker : context;
}

static enum gc_swap_refusal save(struct gc_swap *swap, struct gc_swap_result *result)
{
    struct gc_context *context = swap->change.context;
    struct gc_context *worker = gc_swap_worker(context);
    const struct gc_driver *driver = &context->core->driver;
    const uint64_t page_bytes = context->pool.pages.page_bytes;
    uint64_t end;
    swap->copy_bytes = swap->count * page_bytes;
    if (swap->count == 0)
        return GC_SWAP_OK;
    if (swap->copy_bytes > gc_meminfo_available_bytes() / 100 * HOST_MAX_PERCENT)
        return GC_SWAP_HOST;
    swap->copy = gc_host_mem_map(&context->core->host, swap->copy_bytes);
    if (swap->copy == NULL)
        return GC_SWAP_HOST;
    for (uint64_t i = 0; i < swap->count; i = end) {
        end = gc_swap_run_end(swap, i);
        result->driver_code = GC_CALL_IF_OPEN(
            worker, driver->read(driver->self, worker->handle,
                                 gc_swap_address(&context->pool, &swap->list[i]),
                                 (end - i) * page_bytes, swap->copy + i * page_bytes));
        if (result->driver_code != 0)
            return GC_SWAP_DRIVER;
    }
    return GC_SWAP_OK;
}

void gc_swap_commit_page_locked(struct gc_pool *pool, struct gc_slot *slot, struct gc_page *page)
{
    page->user = slot;
    if (slot->use_count == 0)
        gc_pages_make_idle_locked(pool, page);
}

/* Restores the user of each page that stays, its slot; removes the page from the purge list. */
static void return_pages_locked(const struct gc_swap *swap, struct gc_purge_list *purge)
{
    const struct gc_pages *pages = &swap->change.context->pool.pages;
    struct gc_page **link = &purge->first;
    for (uint64_t i = 0; i < swap->count; i++) {
        struct gc_slot *slot = swap->list[i].slot;
        if (slot->stage != GC_SLOT_UNMAPPED)
            slot->page->user = slot;
    }
    while (*link != NULL) {
        if ((*link)->user == &pages->purge)
            link = &(*link)->next;
        else
            *link = (*link)->next;
    }
}

/* Removes from the swap's list the slots whose pages are still mapped. */
static void drop_mapped(struct gc_swap *swap, struct gc_purge_list *purge)
{
    struct gc_pool *pool = &swap->change.context->pool;
    uint64_t kept = 0;
    gc_pool_acquire_plain(pool);
    const uint64_t before = pool->pages.idle_count;
    return_pages_locked(swap, purge);
    for (uint64_t i = 0; i < swap->count; i++) {
        struct gc_slot *slot = swap->list[i].slot;
        if (slot->stage == GC_SLOT_UNMAPPED) {
            swap->list[kept++] = swap->list[i];
            continue;
        }
        gc_unmap_detach_locked(pool, slot->page);
        slot->is_changing = false;
        gc_swap_commit_page_locked(pool, slot, slot->page);
    }
    swap->count = kept;
    gc_pages_publish_idle_locked(pool, before);
    gc_pool_release(pool);
}

/* Releases the unmapped pages. Those that the driver does not release become idle. */
static uint64_t release(struct gc_swap *swap, struct gc_purge_list *purge)
{
    struct gc_pool *pool = &swap->change.context->pool;
    gc_unmap_detach(purge);
    const uint64_t count = gc_unmap_release(purge);
    gc_pool_acquire_plain(pool);
    for (uint64_t i = 0; i < swap->count; i++)
        swap->list[i].slot->stage = GC_SLOT_PENDING;
    pool->pages.count -= count;
    gc_unmap_make_idle_locked(pool, purge->first);
    gc_pool_release(pool);
    if (count > 0)
        gc_change_uncharge_pages(swap->change.context, count);
    return count * pool->pages.page_bytes;
}

/* Undoes `choose`: nothing was unmapped. */
static void undo(struct gc_swap *swap, struct gc_purge_list *purge)
{
    drop_mapped(swap, purge);
    GC_ASSERT(purge->first == NULL && swap->count == 0);
}

static enum gc_swap_refusal swap_out(struct gc_swap *swap, bool keeps_content,
                                     struct gc_swap_result *result)
{
    struct gc_context *context = swap->change.context;
    struct gc_purge_list purge = {.change = swap->change};
    enum gc_swap_refusal refusal = GC_SWAP_OK;
    choose(swap, &purge);
    const enum gc_status status = gc_fence_synchronize(context, GC_FOREVER, &result->driver_code);
    if (status != GC_OK)
        refusal = status == GC_CAPTURING ? GC_SWAP_CAPTURES : GC_SWAP_DRIVER;
    else if (keeps_content)
        refusal = save(swap, result);
    if (refusal != GC_SWAP_OK) {
        undo(swap, &purge);
        return refusal;
    }
    gc_unmap_pages(&purge);
    drop_mapped(swap, &purge);
    result->moved_bytes += release(swap, &purge);
    return GC_SWAP_OK;
}

static bool fail(struct gc_swap_result *result, enum gc_swap_refusal refusal)
{
    result->refusal = refusal;
    return false;
}

/* Swaps out under a change that has begun; on success the change belongs to the swap. */
static enum gc_swap_refusal swap_out_changing(struct gc_change *change, bool keeps_content,
                                              struct gc_swap_result *result)
{
    struct gc_context *context = change->context;
    struct gc_pool *pool = &context->pool;
    /* Only the thread that holds the change creates pages: their count is stable. */
    struct gc_swap *swap = create_swap(context, pool->pages.count);
    if (swap == NULL)
        return GC_SWAP_HOST;
    swap->change = *change;
    swap->change.set = (struct gc_wait_set){.count = 0}; /* the caller keeps the set */
    const enum gc_swap_refusal refusal = swap_out(swap, keeps_content, result);
    if (refusal != GC_SWAP_OK) {
        gc_change_free_swapped(context, swap);
        return refusal;
    }
    gc_pool_acquire_plain(pool);
    pool->pages.swap = swap;
    pthread_cond_broadcast(&pool->pages.changed); /* requests that need no page go on */
    gc_pool_release(pool);
    gc_peers_wait_end(&change->set);
    return GC_SWAP_OK;
}

bool gc_swap_out(struct gc_context *context, bool keeps_content, struct gc_swap_result *result)
{
    struct gc_change change;
    *result = (struct gc_swap_result){.refusal = gc_swap_check(context)};
    if (result->refusal != GC_SWAP_OK)
        return false;
    /* Blocks in thread caches count as used until they are in the pool. */
    (void)gc_reclaim_collect(context->device, context->quota, GC_RECLAIM_WAIT_NS);
    (void)gc_release_idle(context->device, context->quota, 0, UINT64_MAX);
    const enum gc_status status = gc_change_begin(context, &change);
    if (status == GC_DRIVER)
        return fail(result, GC_SWAP_CAPTURES);
    if (status != GC_OK)
        return fail(result, GC_SWAP_AGAIN);
    result->refusal = swap_out_changing(&change, keeps_content, result);
    if (result->refusal != GC_SWAP_OK)
        gc_change_end(&change);
    return result->refusal == GC_SWAP_OK;
}
