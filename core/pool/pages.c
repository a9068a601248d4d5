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
    const unsigned shift = pool->pages.page_shift;
    const uint64_t base = arena->segment->address;
    const uint64_t offset = address - base;
    const uint64_t first = offset >> shift;
    const uint64_t end = ((offset + bytes - 1) >> shift) + 1;
    return (struct gc_span){.arena = arena,
                            .first = first,
                            .end = end,
                            .own_first = first + (used_below > base + (first << shift)),
                            .own_end = end - (used_above < base + (end << shift)),
                            .whole_first = (offset + page_bytes - 1) >> shift,
                            .whole_end = (offset + bytes) >> shift};
}

/* One free neighbour is passed over. A second one is of another kind, and between two kinds lies
 * the border of a slot: taken as used it shares nothing. */
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

struct gc_span gc_pages_span_of_block_locked(const struct gc_pool *pool,
                                             const struct gc_block *block)
{
    return span_of(pool, gc_block_segment(block)->arena, block->address, block->bytes,
                   used_below(block), used_above(block));
}

struct gc_span gc_pages_span_of_place_locked(const struct gc_pool *pool,
                                             const struct gc_place *place, uint64_t bytes)
{
    return span_of(pool, gc_block_segment(place->free_block)->arena, place->address, bytes,
                   used_below(place->free_block), used_above(place->free_block));
}

uint64_t gc_pages_empty_end(const struct gc_arena *arena, uint64_t first, uint64_t end)
{
    const uint64_t touched = gc_min_u64(end, arena->touched_count);
    while (first < touched && arena->slots[first] == NULL)
        first++;
    return first < touched ? first : end;
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
    struct gc_extent_list *list = &pages->idle[extent->is_small][list_of(extent->page_count)];
    GC_ASSERT(!extent->is_listed && extent->used_count == 0);
    extent->is_listed = true;
    extent->next = NULL;
    extent->previous = list->newest;
    if (list->newest != NULL)
        list->newest->next = extent;
    else
        list->oldest = extent;
    list->newest = extent;
    pages->idle_count += extent->page_count;
}

static void list_remove(struct gc_pages *pages, struct gc_extent *extent)
{
    struct gc_extent_list *list = &pages->idle[extent->is_small][list_of(extent->page_count)];
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
    pages->idle_count -= extent->page_count;
}

static void set_small(struct gc_pages *pages, struct gc_extent *extent, bool is_small)
{
    const bool is_listed = extent->is_listed;
    if (extent->is_small == is_small)
        return;
    if (is_listed)
        list_remove(pages, extent);
    extent->is_small = is_small;
    if (is_listed)
        list_add(pages, extent);
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

/* Extents of a list that are compared: enough to prefer few mappings, few enough to be quick. */
#define IDLE_LOOKS 64

static bool is_better(const struct gc_extent *extent, const struct gc_extent *best, bool wants_most)
{
    if (best == NULL)
        return true;
    if (extent->page_count != best->page_count)
        return (extent->page_count > best->page_count) == wants_most;
    return extent->mapping_count < best->mapping_count;
}

static struct gc_extent *best_of_list(const struct gc_extent_list *list, uint64_t least,
                                      uint64_t most, bool wants_most)
{
    struct gc_extent *best = NULL;
    struct gc_extent *extent = list->oldest;
    for (unsigned n = 0; extent != NULL && (n < IDLE_LOOKS || best == NULL); n++) {
        if (extent->page_count >= least && extent->page_count <= most &&
            is_better(extent, best, wants_most))
            best = extent;
        extent = extent->next;
    }
    return best;
}

struct gc_extent *gc_pages_largest_idle_locked(const struct gc_pool *pool, bool is_small,
                                               uint64_t most)
{
    struct gc_extent *best = NULL;
    for (unsigned i = list_of(most) + 1; i-- > 0 && best == NULL;)
        best = best_of_list(&pool->pages.idle[is_small][i], 0, most, true);
    return best;
}

struct gc_extent *gc_pages_smallest_idle_locked(const struct gc_pool *pool, bool is_small,
                                                uint64_t least)
{
    struct gc_extent *best = NULL;
    for (unsigned i = list_of(least); i < GC_IDLE_LISTS && best == NULL; i++)
        best = best_of_list(&pool->pages.idle[is_small][i], least, UINT64_MAX, false);
    return best;
}

/* ---- excluded mappings ---- */

uint64_t gc_pages_address_of(const struct gc_pool *pool, const struct gc_mapping *mapping)
{
    return mapping->arena->segment->address + mapping->first * pool->pages.page_bytes;
}

/* The slots of a mapping that serves nobody are free: they leave the backed block around them,
 * which needs two records. */
static void exclude(struct gc_pool *pool, struct gc_mapping *mapping, struct gc_block *backed)
{
    const struct gc_place place = {backed, gc_pages_address_of(pool, mapping)};
    mapping->excluded =
        gc_pool_split_locked(pool, &place, mapping->extent->page_count * pool->pages.page_bytes);
    gc_pool_bin_locked(pool, mapping->excluded, GC_FREE_EXCLUDED);
}

static void find_and_exclude(struct gc_pool *pool, struct gc_mapping *mapping)
{
    const struct gc_segment *segment = mapping->arena->segment;
    const struct gc_bins *bins = &pool->content.bins[segment->size_class][GC_FREE_BACKED];
    if (mapping->excluded == NULL && gc_segment_has_kinds(segment))
        exclude(pool, mapping, gc_bins_at(bins, gc_pages_address_of(pool, mapping)));
}

static void include(struct gc_pool *pool, struct gc_mapping *mapping)
{
    struct gc_block *block = mapping->excluded;
    if (block == NULL || !mapping->has_access || gc_pages_stage(mapping) != GC_MAPPING_NONE)
        return;
    mapping->excluded = NULL;
    gc_pool_merge_locked(pool, block, GC_FREE_BACKED);
}

bool gc_pages_try_exclude_locked(struct gc_pool *pool, struct gc_mapping *mapping)
{
    if (!gc_pool_has_records_locked(pool, 2))
        return false;
    find_and_exclude(pool, mapping);
    return true;
}

bool gc_pages_try_exclude_in_locked(struct gc_pool *pool, struct gc_mapping *mapping,
                                    struct gc_block *backed)
{
    if (!gc_pool_has_records_locked(pool, 2))
        return false;
    exclude(pool, mapping, backed);
    return true;
}

void gc_pages_make_idle_locked(struct gc_pool *pool, struct gc_extent *extent)
{
    extent->user = NULL;
    list_add(&pool->pages, extent);
    for (struct gc_mapping *mapping = extent->mappings; mapping != NULL; mapping = mapping->next)
        include(pool, mapping);
}

bool gc_pages_try_take_locked(struct gc_pool *pool, struct gc_extent *extent)
{
    if (!gc_pool_has_records_locked(pool, 2 * extent->mapping_count))
        return false;
    list_remove(&pool->pages, extent);
    for (struct gc_mapping *mapping = extent->mappings; mapping != NULL; mapping = mapping->next)
        find_and_exclude(pool, mapping);
    return true;
}

void gc_pages_take_dropped_locked(struct gc_pool *pool, struct gc_extent *extent)
{
    list_remove(&pool->pages, extent);
}

void gc_pages_set_excluded_locked(const struct gc_pool *pool, struct gc_block *block)
{
    const struct gc_arena *arena = gc_block_segment(block)->arena;
    const uint64_t slot = (block->address - arena->segment->address) / pool->pages.page_bytes;
    arena->slots[slot]->excluded = block;
}

/* ---- use ---- */

static enum gc_free_kind kind_of(const struct gc_mapping *mapping)
{
    if (mapping == NULL)
        return GC_FREE_UNMAPPED;
    return mapping->has_access && mapping->excluded == NULL ? GC_FREE_BACKED : GC_FREE_EXCLUDED;
}

/* The slot to try next where an idle extent of several pages has pages that the block would not
 * fill, or 0. */
static uint64_t end_if_partial(const struct gc_span *span, const struct gc_mapping *mapping,
                               uint64_t first)
{
    if (mapping->first < span->first)
        return gc_pages_end_of(mapping);
    if (mapping->first < span->whole_first || gc_pages_end_of(mapping) > span->whole_end)
        return first + 1;
    return 0;
}

/* Whether the block would keep more pages of the idle extent from others than may stick; of none,
 * not even a part of a page that it uses. */
static bool sticks(const struct gc_span *span, const struct gc_mapping *mapping, uint64_t may_stick)
{
    const uint64_t first = gc_max_u64(mapping->first, span->first);
    const uint64_t end = gc_min_u64(gc_pages_end_of(mapping), span->end);
    const uint64_t page_count = mapping->extent->page_count;
    return page_count > 1 && (may_stick == 0 || page_count - (end - first) > may_stick);
}

/* As gc_pages_obstacle_locked for one mapping, the next slot to try; 0: no obstacle. `walk`: the
 * number of this walk over mappings, by which it finds a second mapping of one extent. */
static uint64_t slot_past(const struct gc_span *span, struct gc_mapping *mapping, uint64_t first,
                          uint64_t may_stick, uint64_t walk, struct gc_mapping **useless)
{
    struct gc_extent *extent = mapping->extent;
    if (!gc_pages_can_serve(mapping)) {
        *useless = extent->user != mapping ? mapping : NULL;
        return gc_pages_end_of(mapping);
    }
    if (extent->user == mapping)
        return 0;
    if (extent->mapping_count > 1) {
        if (extent->walk == walk)
            return extent->walk_end;
        extent->walk = walk;
        extent->walk_end = gc_pages_end_of(mapping);
    }
    return sticks(span, mapping, may_stick) ? end_if_partial(span, mapping, first) : 0;
}

uint64_t gc_pages_obstacle_locked(struct gc_pool *pool, const struct gc_span *span,
                                  uint64_t may_stick, uint32_t *looks, struct gc_mapping **useless)
{
    struct gc_mapping *const *slots = span->arena->slots;
    const uint64_t walk = ++pool->pages.walk_count;
    uint32_t looked = 0;
    uint64_t next = 0;
    *useless = NULL;
    for (uint64_t i = span->first; i < span->end && next == 0;) {
        struct gc_mapping *mapping = slots[i];
        looked++;
        if (mapping == NULL) {
            i = gc_pages_empty_end(span->arena, i, span->end);
            continue;
        }
        next = slot_past(span, mapping, i, may_stick, walk, useless);
        i = gc_pages_end_of(mapping);
    }
    *looks += looked;
    return next == 0 ? 0 : span->arena->segment->address + next * pool->pages.page_bytes;
}

uint64_t gc_pages_several_locked(const struct gc_pool *pool, const struct gc_span *span)
{
    const struct gc_mapping *mapping = span->arena->slots[span->first];
    if (mapping == NULL || gc_pages_end_of(mapping) >= span->end)
        return 0;
    return span->arena->segment->address + gc_pages_end_of(mapping) * pool->pages.page_bytes;
}

bool gc_pages_are_usable_locked(struct gc_pool *pool, const struct gc_span *span)
{
    struct gc_mapping *useless;
    uint32_t looks = 0;
    for (uint64_t i = span->first; i < span->end; i = gc_pages_run_end(span->arena, i, span->end)) {
        if (span->arena->slots[i] == NULL)
            return false;
    }
    return gc_pages_obstacle_locked(pool, span, UINT64_MAX, &looks, &useless) == 0;
}

static uint64_t stuck_count(const struct gc_extent *extent)
{
    return extent->used_count == 0 || extent->is_away ? 0 : extent->page_count - extent->used_count;
}

/* `extent` has `count` pages more in use, through the mapping. */
static void add_uses(struct gc_pool *pool, struct gc_mapping *mapping, uint64_t count)
{
    struct gc_pages *pages = &pool->pages;
    struct gc_extent *extent = mapping->extent;
    pages->stuck_count -= stuck_count(extent);
    if (extent->is_listed)
        list_remove(pages, extent);
    GC_ASSERT(extent->user == NULL || extent->user == mapping);
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
    const uint64_t own_first = gc_max_u64(first, span->own_first);
    const uint64_t own_end = gc_min_u64(end, span->own_end);
    if (own_first < own_end)
        add_uses(pool, span->arena->slots[first], own_end - own_first);
}

void gc_pages_use_all_locked(struct gc_pool *pool, const struct gc_span *span)
{
    const uint64_t before = pool->pages.idle_count;
    uint64_t end;
    for (uint64_t i = span->own_first; i < span->own_end; i = end) {
        end = gc_pages_run_end(span->arena, i, span->own_end);
        if (span->arena->slots[i] != NULL)
            add_uses(pool, span->arena->slots[i], end - i);
    }
    gc_pages_publish_idle_locked(pool, before);
}

bool gc_pages_unuse_locked(struct gc_pool *pool, const struct gc_span *span)
{
    const uint64_t before = pool->pages.idle_count;
    uint64_t end;
    for (uint64_t i = span->own_first; i < span->own_end; i = end) {
        struct gc_mapping *mapping = span->arena->slots[i];
        end = gc_pages_run_end(span->arena, i, span->own_end);
        if (mapping != NULL && mapping->extent->user == mapping)
            sub_uses(pool, mapping->extent, end - i);
    }
    return gc_pages_publish_idle_locked(pool, before);
}

uint64_t gc_pages_kind_end_locked(const struct gc_pool *pool, const struct gc_block *block,
                                  enum gc_free_kind *kind)
{
    const uint64_t page_bytes = pool->pages.page_bytes;
    const struct gc_arena *arena = gc_block_segment(block)->arena;
    const uint64_t base = arena->segment->address;
    const uint64_t slots_end = (block->address + block->bytes - base + page_bytes - 1) / page_bytes;
    uint64_t i = (block->address - base) / page_bytes;
    *kind = kind_of(arena->slots[i]);
    do
        i = gc_pages_run_end(arena, i, slots_end);
    while (i < slots_end && *kind != GC_FREE_EXCLUDED && kind_of(arena->slots[i]) == *kind);
    return base + i * page_bytes;
}

bool gc_pages_are_backed_locked(struct gc_pool *pool, struct gc_arena *arena, uint64_t address,
                                uint64_t bytes)
{
    const struct gc_span span = span_of(pool, arena, address, bytes, 0, UINT64_MAX);
    return gc_pages_are_usable_locked(pool, &span);
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
        if (mapping != NULL && mapping->extent->user == mapping && !mapping->extent->is_away &&
            mapping->first >= first && gc_pages_end_of(mapping) <= end)
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

static void set_slots(struct gc_mapping *mapping)
{
    struct gc_arena *arena = mapping->arena;
    const uint64_t end = gc_pages_end_of(mapping);
    for (uint64_t i = mapping->first; i < end; i++) {
        GC_ASSERT(arena->slots[i] == NULL);
        arena->slots[i] = mapping;
    }
}

void gc_pages_restore_slots_locked(struct gc_pool *pool, struct gc_mapping *mapping)
{
    set_slots(mapping);
    gc_pages_keep_locked(pool, mapping);
}

void gc_pages_keep_locked(struct gc_pool *pool, struct gc_mapping *mapping)
{
    if (mapping->extent->is_listed)
        include(pool, mapping);
}

void gc_pages_clear_slots_locked(const struct gc_mapping *mapping)
{
    struct gc_arena *arena = mapping->arena;
    const uint64_t end = gc_pages_end_of(mapping);
    for (uint64_t i = mapping->first; i < end; i++) {
        if (arena->slots[i] == mapping)
            arena->slots[i] = NULL;
    }
}

void gc_pages_attach_locked(struct gc_pool *pool, struct gc_mapping *mapping)
{
    struct gc_extent *extent = mapping->extent;
    set_slots(mapping);
    mapping->next = extent->mappings;
    extent->mappings = mapping;
    pool->pages.mapping_count++;
    extent->mapping_count++;
    if (mapping->arena->segment->size_class == GC_CLASS_SMALL)
        set_small(&pool->pages, extent, true);
}

/* A backed block has no unmapped slots. */
static bool is_in_backed_block(const struct gc_pool *pool, const struct gc_mapping *mapping)
{
    const struct gc_segment *segment = mapping->arena->segment;
    const uint64_t address = gc_pages_address_of(pool, mapping);
    const struct gc_block *block =
        gc_bins_at(&pool->content.bins[segment->size_class][GC_FREE_BACKED], address);
    return gc_segment_has_kinds(segment) && block != NULL &&
           address < block->address + block->bytes;
}

void gc_pages_detach_locked(struct gc_pool *pool, struct gc_mapping *mapping)
{
    struct gc_extent *extent = mapping->extent;
    struct gc_mapping **link = &extent->mappings;
    while (*link != mapping)
        link = &(*link)->next;
    *link = mapping->next;
    pool->pages.mapping_count--;
    if (--extent->mapping_count == 0)
        set_small(&pool->pages, extent, false);
    gc_pages_clear_slots_locked(mapping);
    GC_ASSERT(mapping->excluded != NULL || !is_in_backed_block(pool, mapping));
    if (mapping->excluded != NULL)
        gc_pool_merge_locked(pool, mapping->excluded, GC_FREE_UNMAPPED);
}

/* ---- figures ---- */

/* Walks the runs of the free block: the bytes beside used ones in used pages, and the longest piece
 * that needs no driver call. */
static void measure_free(const struct gc_pool *pool, const struct gc_block *free_block,
                         struct gc_free_sums *sums)
{
    const struct gc_span span = gc_pages_span_of_block_locked(pool, free_block);
    const uint64_t page_bytes = pool->pages.page_bytes;
    const uint64_t base = span.arena->segment->address;
    const uint64_t touched = gc_min_u64(span.end, span.arena->touched_count);
    uint64_t length = 0;
    uint64_t end;
    for (uint64_t i = span.first; i < touched; i = end) {
        const struct gc_mapping *mapping = span.arena->slots[i];
        end = gc_pages_run_end(span.arena, i, touched);
        if (mapping == NULL || !gc_pages_can_serve(mapping)) {
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
            const struct gc_bins *bins = &pool->content.bins[size_class][GC_FREE_PLAIN];
            sums.free_bytes += bins->bytes;
            sums.largest_bytes = gc_max_u64(sums.largest_bytes, gc_bins_largest_bytes(bins));
        }
        return sums;
    }
    for (const struct gc_segment *segment = pool->content.segments; segment != NULL;
         segment = segment->next)
        measure_segment(pool, segment, &sums);
    sums.free_bytes += pool->pages.idle_count * pool->pages.page_bytes;
    return sums;
}
