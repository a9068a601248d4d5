/* Bookkeeping of mapped memory: idle pages, uses of slots, victims, mappings, figures. */
#include "core/pool/pages.h"

#include "core/base/assert.h"
#include "core/base/bits.h"
#include "core/base/host_mem.h"
#include "core/pool/pool.h"

#include <stddef.h>

void gc_pages_slots(const struct gc_pool *pool, const struct gc_arena *arena, uint64_t address,
                    uint64_t bytes, uint64_t *first, uint64_t *end)
{
    const uint64_t offset = address - arena->segment->address;
    *first = offset / pool->pages.page_bytes;
    *end = (offset + bytes - 1) / pool->pages.page_bytes + 1;
}

/* ---- the idle lists ---- */

static struct gc_page_list *list_of(struct gc_pages *pages, const struct gc_page *page)
{
    return &pages->idle[page->mapping_count != 0];
}

static void list_add(struct gc_pages *pages, struct gc_page *page)
{
    struct gc_page_list *list = list_of(pages, page);
    GC_ASSERT(!page->is_listed);
    page->is_listed = true;
    page->next = NULL;
    page->previous = list->newest;
    if (list->newest != NULL)
        list->newest->next = page;
    else
        list->oldest = page;
    list->newest = page;
    pages->idle_count++;
    pages->small_idle_count += page->is_small;
}

static void list_remove(struct gc_pages *pages, struct gc_page *page)
{
    struct gc_page_list *list = list_of(pages, page);
    GC_ASSERT(page->is_listed);
    page->is_listed = false;
    if (page->previous != NULL)
        page->previous->next = page->next;
    else
        list->oldest = page->next;
    if (page->next != NULL)
        page->next->previous = page->previous;
    else
        list->newest = page->previous;
    pages->idle_count--;
    pages->small_idle_count -= page->is_small;
}

void gc_pages_make_idle_locked(struct gc_pool *pool, struct gc_page *page)
{
    page->user = NULL;
    list_add(&pool->pages, page);
}

static void set_user(struct gc_pages *pages, struct gc_page *page, struct gc_slot *user)
{
    list_remove(pages, page);
    page->user = user;
}

bool gc_pages_publish_idle_locked(struct gc_pool *pool, uint64_t before)
{
    const uint64_t now = pool->pages.idle_count;
    const uint64_t page_bytes = pool->pages.page_bytes;
    if (now < before)
        gc_pool_sub_idle(&pool->shared, (before - now) * page_bytes);
    if (now <= before)
        return false;
    gc_pool_add_idle(&pool->shared, (now - before) * page_bytes);
    return true;
}

/* ---- use ---- */

/* Counts a use of the slot. False if it is not backed. */
static bool try_use(struct gc_pages *pages, struct gc_slot *slot)
{
    if (!gc_slot_is_backed(slot))
        return false;
    if (slot->use_count++ == 0)
        set_user(pages, slot->page, slot);
    return true;
}

static void unuse(struct gc_pool *pool, struct gc_slot *slot)
{
    GC_ASSERT(slot->use_count > 0);
    if (--slot->use_count == 0 && slot->page != NULL && slot->page->user == slot)
        gc_pages_make_idle_locked(pool, slot->page);
}

bool gc_pages_try_use_locked(struct gc_pool *pool, struct gc_arena *arena, uint64_t address,
                             uint64_t bytes)
{
    struct gc_pages *pages = &pool->pages;
    const uint64_t before = pages->idle_count;
    uint64_t first;
    uint64_t end;
    gc_pages_slots(pool, arena, address, bytes, &first, &end);
    uint64_t i = first;
    while (i < end && try_use(pages, &arena->slots[i]))
        i++;
    if (i < end) {
        while (i-- > first)
            unuse(pool, &arena->slots[i]);
        return false; /* the idle pages are the same as before */
    }
    gc_pages_publish_idle_locked(pool, before);
    return true;
}

bool gc_pages_are_backed_locked(const struct gc_pool *pool, const struct gc_arena *arena,
                                uint64_t address, uint64_t bytes)
{
    uint64_t i;
    uint64_t end;
    gc_pages_slots(pool, arena, address, bytes, &i, &end);
    while (i < end && gc_slot_is_backed(&arena->slots[i]))
        i++;
    return i == end;
}

uint64_t gc_pages_use_locked(struct gc_pool *pool, struct gc_arena *arena, uint64_t address,
                             uint64_t bytes)
{
    struct gc_pages *pages = &pool->pages;
    const uint64_t before = pages->idle_count;
    uint64_t first;
    uint64_t end;
    uint64_t needed = 0;
    gc_pages_slots(pool, arena, address, bytes, &first, &end);
    for (uint64_t i = first; i < end; i++) {
        struct gc_slot *slot = &arena->slots[i];
        if (try_use(pages, slot))
            continue;
        GC_ASSERT(slot->use_count == 0);
        slot->use_count = 1;
        slot->stage = GC_SLOT_PENDING;
        slot->is_changing = true;
        needed++;
    }
    if (arena->touched_count < end) {
        gc_host_mem_count(pool->shared.host,
                          gc_arena_host_bytes(end) - gc_arena_host_bytes(arena->touched_count));
        arena->touched_count = end;
    }
    gc_pages_publish_idle_locked(pool, before);
    return needed;
}

bool gc_pages_unuse_locked(struct gc_pool *pool, struct gc_arena *arena, uint64_t address,
                           uint64_t bytes)
{
    const uint64_t before = pool->pages.idle_count;
    uint64_t first;
    uint64_t end;
    gc_pages_slots(pool, arena, address, bytes, &first, &end);
    for (uint64_t i = first; i < end; i++)
        unuse(pool, &arena->slots[i]);
    return gc_pages_publish_idle_locked(pool, before);
}

/* ---- victims ---- */

/* An idle page with the wanted number of mappings, at slot `i` of any arena. */
static struct gc_page *idle_at(const struct gc_pages *pages, uint64_t i,
                               struct gc_victim_search *search)
{
    for (const struct gc_arena *arena = pages->arenas; arena != NULL; arena = arena->next) {
        struct gc_page *page = i < arena->touched_count ? arena->slots[i].page : NULL;
        if (page == NULL || !page->is_listed || (page->is_small && !search->takes_small))
            continue;
        if (page->mapping_count == search->mapping_count)
            return page;
        if (page->mapping_count > search->mapping_count && page->mapping_count < search->fewest)
            search->fewest = page->mapping_count;
    }
    return NULL;
}

static uint64_t highest_touched(const struct gc_pages *pages)
{
    uint64_t highest = 0;
    for (const struct gc_arena *arena = pages->arenas; arena != NULL; arena = arena->next)
        highest = gc_max_u64(highest, arena->touched_count);
    return highest;
}

/* Walks the slots from the top, once per number of mappings that occurs: a search for many victims
 * passes each slot a few times in all. */
static struct gc_page *find_mapped(const struct gc_pages *pages, struct gc_victim_search *search)
{
    for (;;) {
        while (search->below > 0) {
            struct gc_page *page = idle_at(pages, search->below - 1, search);
            if (page != NULL)
                return page; /* another arena may have a victim at the same index: keep `below` */
            search->below--;
        }
        GC_ASSERT(search->fewest != UINT32_MAX || !search->takes_small);
        const bool is_over = search->fewest == UINT32_MAX;
        *search = (struct gc_victim_search){.below = highest_touched(pages),
                                            .mapping_count = is_over ? 1 : search->fewest,
                                            .fewest = UINT32_MAX,
                                            .takes_small = search->takes_small || is_over};
    }
}

struct gc_page *gc_pages_remap_locked(struct gc_pool *pool, struct gc_victim_search *search,
                                      struct gc_slot *slot)
{
    struct gc_pages *pages = &pool->pages;
    GC_ASSERT(pages->idle_count > 0);
    struct gc_page *page = pages->idle[0].oldest;
    if (page == NULL)
        page = find_mapped(pages, search);
    set_user(pages, page, slot);
    return page;
}

struct gc_page *gc_pages_pop_idle_locked(struct gc_pool *pool)
{
    struct gc_pages *pages = &pool->pages;
    struct gc_page *page = pages->idle[0].oldest;
    if (page == NULL)
        page = pages->idle[1].oldest;
    if (page != NULL)
        set_user(pages, page, &pages->purge);
    return page;
}

/* ---- mappings ---- */

void gc_pages_attach_locked(struct gc_slot *slot, struct gc_page *page, bool has_access,
                            bool is_small)
{
    GC_ASSERT(slot->page == NULL && !page->is_listed);
    slot->page = page;
    slot->has_access = has_access;
    slot->next = page->first;
    page->first = slot;
    page->mapping_count++;
    page->is_small |= is_small;
}

void gc_pages_detach_locked(struct gc_pool *pool, struct gc_slot *slot)
{
    struct gc_page *page = slot->page;
    const bool was_listed = page->is_listed;
    struct gc_slot **link = &page->first;
    if (was_listed) /* the page may move to the other list */
        list_remove(&pool->pages, page);
    while (*link != slot)
        link = &(*link)->next;
    *link = slot->next;
    if (--page->mapping_count == 0)
        page->is_small = false;
    slot->page = NULL;
    slot->next = NULL;
    slot->has_access = false;
    if (was_listed)
        list_add(&pool->pages, page);
}

/* ---- figures ---- */

/* Whether another slot of the run from `start` to `slot` needs the same page. */
static bool is_twice(const struct gc_slot *start, const struct gc_slot *slot)
{
    const struct gc_slot *other = slot->page->first;
    while (other != NULL && !(other >= start && other < slot))
        other = other->next;
    return other != NULL;
}

/* The bytes of the free block in slot `i`. */
static uint64_t overlap(const struct gc_pool *pool, const struct gc_arena *arena, uint64_t i,
                        const struct gc_block *free_block)
{
    const uint64_t start = arena->segment->address + i * pool->pages.page_bytes;
    return gc_min_u64(start + pool->pages.page_bytes, free_block->address + free_block->bytes) -
           gc_max_u64(start, free_block->address);
}

static void measure_free(const struct gc_pool *pool, const struct gc_arena *arena,
                         const struct gc_block *free_block, struct gc_free_sums *sums)
{
    uint64_t first;
    uint64_t end;
    uint64_t run = 0;
    gc_pages_slots(pool, arena, free_block->address, free_block->bytes, &first, &end);
    const struct gc_slot *start = &arena->slots[first];
    for (uint64_t i = first; i < gc_min_u64(end, arena->touched_count); i++) {
        const struct gc_slot *slot = &arena->slots[i];
        if (!gc_slot_is_backed(slot) || is_twice(start, slot)) {
            run = 0;
            start = slot + 1;
            continue;
        }
        const uint64_t bytes = overlap(pool, arena, i, free_block);
        run += bytes;
        sums->largest_bytes = gc_max_u64(sums->largest_bytes, run);
        if (slot->use_count > 0)
            sums->free_bytes += bytes; /* idle pages are counted as a whole below */
    }
}

static void measure_segment(const struct gc_pool *pool, const struct gc_segment *segment,
                            struct gc_free_sums *sums)
{
    for (const struct gc_block *block = segment->first; block != NULL; block = block->next) {
        if (block->state != GC_BLOCK_FREE)
            continue;
        if (segment->arena != NULL) {
            measure_free(pool, segment->arena, block, sums);
        } else {
            sums->free_bytes += block->bytes;
            sums->largest_bytes = gc_max_u64(sums->largest_bytes, block->bytes);
        }
    }
}

struct gc_free_sums gc_pool_measure_locked(const struct gc_pool *pool)
{
    struct gc_free_sums sums = {0, 0};
    if (pool->pages.arenas == NULL) {
        for (unsigned size_class = 0; size_class < GC_CLASS_COUNT; size_class++) {
            sums.free_bytes += pool->content.bins[size_class].bytes;
            sums.largest_bytes = gc_max_u64(sums.largest_bytes,
                                            gc_bins_largest_bytes(&pool->content.bins[size_class]));
        }
        return sums;
    }
    for (const struct gc_segment *segment = pool->content.segments; segment != NULL;
         segment = segment->next)
        measure_segment(pool, segment, &sums);
    sums.free_bytes += pool->pages.idle_count * pool->pages.page_bytes;
    return sums;
}
