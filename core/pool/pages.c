/* Bookkeeping of mapped memory: uses of extents, idle extents, mappings, figures. */
#include "core/pool/pages.h"

#include "core/base/assert.h"
#include "core/base/bits.h"
#include "core/pool/pool.h"

#include <stddef.h>

/* ---- spans ---- */

/* `used_below`: where the used neighbour below ends; `used_above`: where the one above starts. */
static struct gc_span span_of(const struct gc_pool *pool, struct gc_arena *arena, uint64_t address,
                              uint64_t bytes, uint64_t used_below, uint64_t used_above)
{
    const uint64_t page_bytes = pool->pages.page_bytes;
    const uint64_t base = arena->segment->address;
    const uint64_t first = (address - base) / page_bytes;
    const uint64_t end = (address - base + bytes - 1) / page_bytes + 1;
    return (struct gc_span){.arena = arena,
                            .first = first,
                            .end = end,
                            .is_first_shared = used_below > base + first * page_bytes,
                            .is_last_shared = used_above < base + end * page_bytes,
                            .whole_first = (address - base + page_bytes - 1) / page_bytes,
                            .whole_end = (address - base + bytes) / page_bytes};
}

/* Two neighbours are never free both: at most one free block lies between two used ones. */
static uint64_t used_below(const struct gc_block *block)
{
    const struct gc_block *previous = block->previous;
    if (previous != NULL && previous->state == GC_BLOCK_FREE)
        previous = previous->previous;
    return previous == NULL ? 0 : previous->address + previous->bytes;
}

static uint64_t used_above(const struct gc_block *block)
{
    const struct gc_block *next = block->next;
    if (next != NULL && next->state == GC_BLOCK_FREE)
        next = next->next;
    return next == NULL ? UINT64_MAX : next->address;
}

struct gc_span gc_span_of_block_locked(const struct gc_pool *pool, const struct gc_block *block)
{
    return span_of(pool, gc_block_segment(block)->arena, block->address, block->bytes,
                   used_below(block), used_above(block));
}

struct gc_span gc_span_of_place_locked(const struct gc_pool *pool, const struct gc_place *place,
                                       uint64_t bytes)
{
    return span_of(pool, gc_block_segment(place->free_block)->arena, place->address, bytes,
                   used_below(place->free_block), used_above(place->free_block));
}

uint64_t gc_pages_run_end(const struct gc_arena *arena, uint64_t first, uint64_t end)
{
    const struct gc_mapping *mapping = arena->slots[first];
    if (mapping != NULL)
        return gc_min_u64(end, mapping->first + mapping->extent->page_count);
    while (first < end && arena->slots[first] == NULL)
        first++;
    return first;
}

/* The slots of [first, end) that only the span's block uses. */
static uint64_t own_count(const struct gc_span *span, uint64_t first, uint64_t end)
{
    const bool has_first = span->is_first_shared && first == span->first;
    const bool has_last = span->is_last_shared && end == span->end;
    const uint64_t shared = (uint64_t)has_first + (uint64_t)has_last;
    return end - first - gc_min_u64(end - first, shared);
}

/* ---- idle extents ---- */

static unsigned list_of(uint64_t page_count)
{
    const unsigned doubling = 63U - (unsigned)__builtin_clzll(page_count | 1);
    if (doubling < 2)
        return (unsigned)page_count;
    const unsigned list = 4 + (doubling - 2) * 4 + (unsigned)(page_count >> (doubling - 2) & 3);
    return list < GC_IDLE_LISTS ? list : GC_IDLE_LISTS - 1;
}

static void list_add(struct gc_pages *pages, struct gc_extent *extent)
{
    const unsigned i = list_of(extent->page_count);
    struct gc_extent_list *list = &pages->idle[i];
    GC_ASSERT(!extent->is_listed && extent->used_count == 0);
    extent->is_listed = true;
    extent->next = NULL;
    extent->previous = list->newest;
    if (list->newest != NULL)
        list->newest->next = extent;
    else
        list->oldest = extent;
    list->newest = extent;
    pages->idle_lists |= UINT64_C(1) << i;
    pages->idle_count += extent->page_count;
}

static void list_remove(struct gc_pages *pages, struct gc_extent *extent)
{
    const unsigned i = list_of(extent->page_count);
    struct gc_extent_list *list = &pages->idle[i];
    GC_ASSERT(extent->is_listed);
    extent->is_listed = false;
    if (extent->previous != NULL)
        extent->previous->next = extent->next;
    else
        list->oldest = extent->next;
    if (extent->next != NULL)
        extent->next->previous = extent->previous;
    else
        list->newest = extent->previous;
    if (list->oldest == NULL)
        pages->idle_lists &= ~(UINT64_C(1) << i);
    pages->idle_count -= extent->page_count;
}

void gc_pages_make_idle_locked(struct gc_pool *pool, struct gc_extent *extent)
{
    extent->user = NULL;
    list_add(&pool->pages, extent);
}

void gc_pages_take_locked(struct gc_pool *pool, struct gc_extent *extent)
{
    list_remove(&pool->pages, extent);
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

static bool is_better(const struct gc_extent *extent, const struct gc_extent *best, bool wants_most)
{
    if (best == NULL || extent->is_small != best->is_small)
        return best == NULL || best->is_small;
    if (extent->page_count != best->page_count)
        return (extent->page_count > best->page_count) == wants_most;
    return extent->mapping_count < best->mapping_count;
}

struct gc_extent *gc_pages_largest_idle_locked(const struct gc_pool *pool, uint64_t most)
{
    struct gc_extent *best = NULL;
    for (unsigned i = list_of(most) + 1; i-- > 0 && (best == NULL || best->is_small);) {
        for (struct gc_extent *extent = pool->pages.idle[i].oldest; extent != NULL;
             extent = extent->next)
            if (extent->page_count <= most && is_better(extent, best, true))
                best = extent;
    }
    return best;
}

struct gc_extent *gc_pages_smallest_idle_locked(const struct gc_pool *pool, uint64_t least)
{
    struct gc_extent *best = NULL;
    for (unsigned i = list_of(least); i < GC_IDLE_LISTS && (best == NULL || best->is_small); i++) {
        for (struct gc_extent *extent = pool->pages.idle[i].oldest; extent != NULL;
             extent = extent->next)
            if (extent->page_count >= least && is_better(extent, best, false))
                best = extent;
    }
    return best;
}

/* ---- use ---- */

bool gc_pages_would_stick_locked(const struct gc_pool *pool, uint64_t count)
{
    return count > 0 && pool->pages.stuck_count + count > pool->pages.stuck_max;
}

uint64_t gc_span_whole_count(const struct gc_span *span, uint64_t first, uint64_t end)
{
    const uint64_t whole_first = gc_max_u64(first, span->whole_first);
    const uint64_t whole_end = gc_min_u64(end, span->whole_end);
    return whole_first < whole_end ? whole_end - whole_first : 0;
}

static bool can_serve(const struct gc_mapping *mapping)
{
    const struct gc_extent *extent = mapping->extent;
    return mapping->has_access && mapping->stage == GC_MAPPING_NONE && !extent->is_away &&
           (extent->user == mapping || (extent->user == NULL && extent->is_listed));
}

bool gc_pages_is_usable_locked(const struct gc_pool *pool, const struct gc_span *span,
                               const struct gc_mapping *mapping, uint64_t first, uint64_t end)
{
    const struct gc_extent *extent = mapping->extent;
    return can_serve(mapping) &&
           (extent->user != NULL || extent->page_count == 1 ||
            !gc_pages_would_stick_locked(pool, extent->page_count -
                                                   gc_span_whole_count(span, first, end)));
}

static uint64_t stuck_count(const struct gc_extent *extent)
{
    return extent->used_count == 0 || extent->is_away ? 0 : extent->page_count - extent->used_count;
}

/* `extent` has `count` pages more in use, through the mapping. */
static void add_uses(struct gc_pages *pages, struct gc_mapping *mapping, uint64_t count)
{
    struct gc_extent *extent = mapping->extent;
    pages->stuck_count -= stuck_count(extent);
    if (extent->is_listed)
        list_remove(pages, extent);
    extent->user = mapping;
    extent->used_count += count;
    pages->stuck_count += stuck_count(extent);
}

static void sub_uses(struct gc_pool *pool, struct gc_extent *extent, uint64_t count)
{
    GC_ASSERT(extent->used_count >= count);
    pool->pages.stuck_count -= stuck_count(extent);
    extent->used_count -= count;
    pool->pages.stuck_count += stuck_count(extent);
    if (extent->used_count == 0 && !extent->is_away)
        gc_pages_make_idle_locked(pool, extent);
}

void gc_pages_drop_uses_locked(struct gc_pool *pool, struct gc_extent *extent)
{
    pool->pages.stuck_count -= stuck_count(extent);
    extent->used_count = 0;
    extent->user = NULL;
}

void gc_pages_use_locked(struct gc_pool *pool, const struct gc_span *span, uint64_t first,
                         uint64_t end)
{
    const uint64_t count = own_count(span, first, end);
    if (count > 0)
        add_uses(&pool->pages, span->arena->slots[first], count);
}

/* Undoes the uses of the slots [span->first, end). */
static void unuse_until(struct gc_pool *pool, const struct gc_span *span, uint64_t end)
{
    uint64_t run_end;
    for (uint64_t i = span->first; i < end; i = run_end) {
        struct gc_mapping *mapping = span->arena->slots[i];
        run_end = gc_pages_run_end(span->arena, i, end);
        const uint64_t count = own_count(span, i, run_end);
        if (mapping != NULL && mapping->extent->user == mapping && count > 0)
            sub_uses(pool, mapping->extent, count);
    }
}

bool gc_pages_try_use_locked(struct gc_pool *pool, const struct gc_span *span)
{
    const uint64_t before = pool->pages.idle_count;
    uint64_t end;
    for (uint64_t i = span->first; i < span->end; i = end) {
        end = gc_pages_run_end(span->arena, i, span->end);
        const struct gc_mapping *mapping = span->arena->slots[i];
        if (mapping == NULL || !gc_pages_is_usable_locked(pool, span, mapping, i, end)) {
            unuse_until(pool, span, i);
            return false; /* as many idle pages as before */
        }
        gc_pages_use_locked(pool, span, i, end);
    }
    gc_pages_publish_idle_locked(pool, before);
    return true;
}

bool gc_pages_unuse_locked(struct gc_pool *pool, const struct gc_span *span)
{
    const uint64_t before = pool->pages.idle_count;
    unuse_until(pool, span, span->end);
    return gc_pages_publish_idle_locked(pool, before);
}

bool gc_pages_are_backed_locked(const struct gc_pool *pool, struct gc_arena *arena,
                                uint64_t address, uint64_t bytes)
{
    const struct gc_span span = span_of(pool, arena, address, bytes, 0, UINT64_MAX);
    uint64_t i = span.first;
    uint64_t end;
    for (; i < span.end; i = end) {
        end = gc_pages_run_end(arena, i, span.end);
        if (arena->slots[i] == NULL ||
            !gc_pages_is_usable_locked(pool, &span, arena->slots[i], i, end))
            break;
    }
    return i == span.end;
}

uint64_t gc_pages_count_freed_locked(const struct gc_pool *pool, struct gc_arena *arena,
                                     uint64_t address, uint64_t bytes)
{
    const uint64_t page_bytes = pool->pages.page_bytes;
    const uint64_t offset = address - arena->segment->address;
    const uint64_t end = gc_min_u64((offset + bytes) / page_bytes, arena->touched_count);
    const uint64_t first = (offset + page_bytes - 1) / page_bytes;
    uint64_t count = 0;
    /* Live neighbours use the slots around [first, end), so an extent that sticks out is theirs
     * too. */
    for (uint64_t i = first; i < end; i = gc_pages_run_end(arena, i, end)) {
        const struct gc_mapping *mapping = arena->slots[i];
        if (mapping != NULL && mapping->extent->user == mapping && mapping->first >= first &&
            mapping->first + mapping->extent->page_count <= end)
            count += mapping->extent->page_count;
    }
    return count;
}

void gc_pages_set_away_locked(struct gc_pool *pool, struct gc_extent *extent, bool is_away)
{
    pool->pages.stuck_count -= stuck_count(extent);
    extent->is_away = is_away;
    pool->pages.stuck_count += stuck_count(extent);
}

/* ---- mappings ---- */

void gc_pages_restore_slots_locked(struct gc_mapping *mapping)
{
    struct gc_arena *arena = mapping->arena;
    const uint64_t end = mapping->first + mapping->extent->page_count;
    for (uint64_t i = mapping->first; i < end; i++) {
        GC_ASSERT(arena->slots[i] == NULL);
        arena->slots[i] = mapping;
    }
}

void gc_pages_clear_slots_locked(const struct gc_mapping *mapping)
{
    struct gc_arena *arena = mapping->arena;
    const uint64_t end = mapping->first + mapping->extent->page_count;
    for (uint64_t i = mapping->first; i < end; i++) {
        if (arena->slots[i] == mapping)
            arena->slots[i] = NULL;
    }
}

void gc_pages_attach_locked(struct gc_mapping *mapping)
{
    struct gc_extent *extent = mapping->extent;
    gc_pages_restore_slots_locked(mapping);
    mapping->next = extent->mappings;
    extent->mappings = mapping;
    extent->mapping_count++;
    extent->is_small |= mapping->arena->segment->size_class == GC_CLASS_SMALL;
}

void gc_pages_detach_locked(struct gc_mapping *mapping)
{
    struct gc_extent *extent = mapping->extent;
    struct gc_mapping **link = &extent->mappings;
    while (*link != mapping)
        link = &(*link)->next;
    *link = mapping->next;
    if (--extent->mapping_count == 0)
        extent->is_small = false;
    gc_pages_clear_slots_locked(mapping);
}

/* ---- figures ---- */

/* Walks the runs of the free block: the bytes beside used ones in used pages, and the longest piece
 * that needs no driver call. */
static void measure_free(const struct gc_pool *pool, const struct gc_block *free_block,
                         struct gc_free_sums *sums)
{
    const struct gc_span span = gc_span_of_block_locked(pool, free_block);
    const uint64_t page_bytes = pool->pages.page_bytes;
    const uint64_t base = span.arena->segment->address;
    const uint64_t touched = gc_min_u64(span.end, span.arena->touched_count);
    uint64_t length = 0;
    uint64_t end;
    for (uint64_t i = span.first; i < touched; i = end) {
        const struct gc_mapping *mapping = span.arena->slots[i];
        end = gc_pages_run_end(span.arena, i, touched);
        if (mapping == NULL || !can_serve(mapping)) {
            length = 0;
            continue;
        }
        const uint64_t from = gc_max_u64(base + i * page_bytes, free_block->address);
        const uint64_t to =
            gc_min_u64(base + end * page_bytes, free_block->address + free_block->bytes);
        length += to - from;
        sums->largest_bytes = gc_max_u64(sums->largest_bytes, length);
        if (mapping->extent->user == mapping)
            sums->free_bytes += to - from; /* idle extents are counted as a whole below */
    }
}

static void measure_segment(const struct gc_pool *pool, const struct gc_segment *segment,
                            struct gc_free_sums *sums)
{
    for (const struct gc_block *block = segment->first; block != NULL; block = block->next) {
        if (block->state != GC_BLOCK_FREE)
            continue;
        if (segment->arena != NULL) {
            measure_free(pool, block, sums);
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
