#include "core/pool/pending.h"

#include "core/base/assert.h"
#include "core/base/bits.h"
#include "core/pool/pool.h"

#include <stddef.h>

static void count_pending_locked(struct gc_pool *pool, const struct gc_block *block)
{
    pool->content.pending_bytes += block->bytes;
    pool->unfenced_bytes += block->bytes;
    pool->unfenced_count++;
    gc_stats_add_gauge(pool->shared.pending, block->bytes);
}

static void uncount_pending_locked(struct gc_pool *pool, const struct gc_block *block)
{
    pool->content.pending_bytes -= block->bytes;
    gc_stats_sub_gauge(pool->shared.pending, block->bytes);
}

/* The list of a stream; stream 0: an unused list. */
static struct gc_stream_list *find_list(struct gc_pool *pool, uint64_t stream)
{
    for (unsigned i = 0; i < pool->stream_count; i++) {
        if (pool->streams[i].stream == stream && !pool->streams[i].is_ended)
            return &pool->streams[i];
    }
    if (stream != 0 || pool->stream_count == GC_STREAM_LISTS)
        return NULL;
    return &pool->streams[pool->stream_count++];
}

static void empty_list(struct gc_stream_list *list)
{
    *list = (struct gc_stream_list){.serial = list->serial + 1};
}

/* ---- the groups of a list ---- */

static struct gc_bins *tree_of(struct gc_stream_group *group, const struct gc_segment *segment)
{
    return &group->trees[gc_min_u64(segment->size_class, GC_CLASS_PLANNED)];
}

static void start_group(struct gc_stream_group *group, uint64_t epoch)
{
    *group = (struct gc_stream_group){.epoch = epoch};
    for (unsigned i = 0; i < GC_STREAM_TREES; i++)
        group->trees[i] = (struct gc_bins){.by_address = true, .is_pending = true};
}

/* The group of a block freed now, the youngest. */
static struct gc_stream_group *start_or_raise_group(struct gc_stream_list *list, uint64_t epoch)
{
    struct gc_stream_group *group = &list->groups[list->group_count];
    if (list->group_count == 0 ||
        (list->group_count < GC_STREAM_GROUPS && epoch > group[-1].epoch)) {
        list->group_count++;
        start_group(group, epoch);
        return group;
    }
    group[-1].epoch = gc_max_u64(group[-1].epoch, epoch);
    return &group[-1];
}

static bool is_empty(const struct gc_stream_group *group)
{
    for (unsigned i = 0; i < GC_STREAM_TREES; i++) {
        if (group->trees[i].root != NULL)
            return false;
    }
    return true;
}

/* A list that becomes empty is free for another stream. */
static void drop_empty_groups(struct gc_stream_list *list)
{
    unsigned count = 0;
    for (unsigned i = 0; i < list->group_count; i++) {
        if (is_empty(&list->groups[i]))
            continue;
        if (count != i)
            list->groups[count] = list->groups[i];
        count++;
    }
    list->group_count = count;
    if (count == 0)
        empty_list(list);
}

/* Removes a block of the group; NULL: it is empty. */
static struct gc_block *pop(struct gc_stream_group *group)
{
    for (unsigned i = 0; i < GC_STREAM_TREES; i++) {
        struct gc_block *block = group->trees[i].root;
        if (block == NULL)
            continue;
        gc_bins_remove(&group->trees[i], block);
        return block;
    }
    return NULL;
}

static void insert(struct gc_bins *tree, struct gc_block *block)
{
    gc_block_set_state(block, GC_BLOCK_PENDING);
    gc_bins_insert(tree, block);
}

/* ---- freed in a stream's order, and allocated again ---- */

/* The tree that has the neighbour, in the segment, of a block freed now, if the neighbour shall go
 * to the youngest group with it. `freed`: the block's own bytes. */
static struct gc_bins *find_joinable(struct gc_stream_list *list, const struct gc_segment *segment,
                                     const struct gc_block *neighbour, uint64_t freed)
{
    if (neighbour == NULL || neighbour->state != GC_BLOCK_PENDING ||
        segment->size_class >= GC_CLASS_PLANNED)
        return NULL;
    for (unsigned i = list->group_count; i > 0; i--) {
        struct gc_bins *tree = tree_of(&list->groups[i - 1], segment);
        const bool is_youngest = i == list->group_count;
        if ((is_youngest || neighbour->bytes <= freed) && gc_bins_has(tree, neighbour))
            return tree;
    }
    return NULL;
}

/* Whether the block, between one freed now and pending memory of its stream, is a gap that
 * alignment left: of little use to others. Shorter than a page, it lies in pages that its
 * neighbours use, so it is neither unmapped nor excluded, and changes no page's use. */
static bool is_gap(const struct gc_block *block, uint64_t freed)
{
    return block != NULL && block->state == GC_BLOCK_FREE && block->bytes <= freed &&
           block->bytes < GC_PAGE_BYTES_MIN;
}

/* Adds the gap behind the block to it: pending memory. */
static void join_gap_locked(struct gc_pool *pool, struct gc_block *block)
{
    gc_pool_unbin_locked(pool, block->next);
    count_pending_locked(pool, block->next);
    gc_pool_join_locked(pool, block);
}

static void join_above_locked(struct gc_pool *pool, struct gc_stream_list *list,
                              struct gc_block *block, uint64_t freed)
{
    const bool has_gap = is_gap(block->next, freed);
    struct gc_block *above = has_gap ? block->next->next : block->next;
    struct gc_bins *tree = find_joinable(list, gc_block_segment(block), above, freed);
    if (tree == NULL)
        return;
    gc_bins_remove(tree, above);
    if (has_gap)
        join_gap_locked(pool, block);
    gc_pool_join_locked(pool, block);
}

/* Returns the block that begins lowest. */
static struct gc_block *join_below_locked(struct gc_pool *pool, struct gc_stream_list *list,
                                          struct gc_block *block, uint64_t freed)
{
    const bool has_gap = is_gap(block->previous, freed);
    struct gc_block *below = has_gap ? block->previous->previous : block->previous;
    struct gc_bins *tree = find_joinable(list, gc_block_segment(block), below, freed);
    if (tree == NULL)
        return block;
    gc_bins_remove(tree, below);
    if (has_gap)
        join_gap_locked(pool, below);
    gc_pool_join_locked(pool, below);
    return below;
}

bool gc_pending_push_stream_locked(struct gc_pool *pool, struct gc_context *worker, uint64_t stream,
                                   struct gc_block *block, uint64_t epoch)
{
    struct gc_stream_list *list = find_list(pool, stream);
    if (list == NULL)
        list = find_list(pool, 0);
    if (list == NULL)
        return false;
    list->stream = stream;
    list->worker = worker;
    count_pending_locked(pool, block);
    struct gc_stream_group *group = start_or_raise_group(list, epoch);
    const uint64_t freed = block->bytes;
    join_above_locked(pool, list, block, freed);
    block = join_below_locked(pool, list, block, freed);
    insert(tree_of(group, gc_block_segment(block)), block);
    drop_empty_groups(list);
    return true;
}

/* The lowest place in the list: its group; NULL: none. */
static struct gc_stream_group *find_place(const struct gc_pool *pool, struct gc_stream_list *list,
                                          unsigned tree, uint64_t bytes, struct gc_place *place)
{
    struct gc_stream_group *best = NULL;
    for (unsigned i = 0; i < list->group_count; i++) {
        struct gc_stream_group *group = &list->groups[i];
        struct gc_place found;
        if (gc_pool_find_pending_locked(pool, &group->trees[tree], bytes, &found) &&
            (best == NULL || found.address < place->address)) {
            best = group;
            *place = found;
        }
    }
    return best;
}

/* The parts of the block that are not allocated stay in its tree. */
static struct gc_block *take_place(struct gc_pool *pool, struct gc_bins *tree,
                                   const struct gc_place *place, uint64_t bytes)
{
    struct gc_block *block = place->free_block;
    gc_bins_remove(tree, block);
    if (place->address > block->address) {
        struct gc_block *front = block;
        block = gc_pool_split_end_locked(pool, front, place->address - front->address);
        insert(tree, front);
    }
    struct gc_block *rest = gc_pool_split_rest_locked(pool, block, bytes);
    if (rest != NULL)
        insert(tree, rest);
    uncount_pending_locked(pool, block);
    return block;
}

/* Memory of the epoch serves the request before its work has completed, in its stream's order. */
static void note_reuse(struct gc_pool *pool, const struct gc_alloc_spec *spec, uint64_t epoch)
{
    if (!spec->is_ordered)
        pool->ordered_epoch = gc_max_u64(pool->ordered_epoch, epoch);
}

struct gc_block *gc_pending_alloc_locked(struct gc_pool *pool, const struct gc_alloc_spec *spec)
{
    struct gc_stream_list *list = spec->stream == 0 ? NULL : find_list(pool, spec->stream);
    const unsigned tree = spec->bytes <= GC_SMALL_MAX ? GC_CLASS_SMALL : GC_CLASS_LARGE;
    struct gc_place place;
    if (list == NULL)
        return NULL;
    struct gc_stream_group *group = find_place(pool, list, tree, spec->bytes, &place);
    if (group == NULL)
        return NULL;
    note_reuse(pool, spec, group->epoch);
    struct gc_block *block = take_place(pool, &group->trees[tree], &place, spec->bytes);
    drop_empty_groups(list);
    return block;
}

static bool lies_in(const struct gc_block *block, uint64_t address, uint64_t bytes)
{
    return block->address >= address && block->address - address < bytes &&
           block->bytes <= bytes - (block->address - address);
}

static void append(struct gc_pending *taken, struct gc_block *block)
{
    block->pending.next = NULL;
    if (taken->last != NULL)
        taken->last->pending.next = block;
    else
        taken->first = block;
    taken->last = block;
}

/* The first block of the group in the range; NULL: none. */
static struct gc_block *first_in(const struct gc_stream_group *group, uint64_t address,
                                 uint64_t bytes)
{
    struct gc_block *block =
        gc_bins_first_fit(&group->trees[GC_CLASS_PLANNED], address, GC_GRANULE);
    return block != NULL && lies_in(block, address, bytes) ? block : NULL;
}

static uint64_t bytes_in(const struct gc_stream_group *group, uint64_t address, uint64_t bytes)
{
    uint64_t sum = 0;
    for (const struct gc_block *block = first_in(group, address, bytes);
         block != NULL && lies_in(block, address, bytes);
         block = gc_bins_next(&group->trees[GC_CLASS_PLANNED], block))
        sum += block->bytes;
    return sum;
}

bool gc_pending_remove_range_locked(struct gc_pool *pool, const struct gc_alloc_spec *spec,
                                    uint64_t address, uint64_t pending_bytes,
                                    struct gc_pending *taken)
{
    struct gc_stream_list *list = spec->stream == 0 ? NULL : find_list(pool, spec->stream);
    uint64_t found_bytes = 0;
    if (list == NULL)
        return false;
    for (unsigned i = 0; i < list->group_count; i++)
        found_bytes += bytes_in(&list->groups[i], address, spec->bytes);
    if (found_bytes != pending_bytes)
        return false;
    for (unsigned i = 0; i < list->group_count; i++) {
        struct gc_stream_group *group = &list->groups[i];
        struct gc_block *block;
        while ((block = first_in(group, address, spec->bytes)) != NULL) {
            gc_bins_remove(&group->trees[GC_CLASS_PLANNED], block);
            note_reuse(pool, spec, group->epoch);
            append(taken, block);
        }
    }
    drop_empty_groups(list);
    return true;
}

/* Removes the groups with completed epochs from all lists of streams and appends their blocks to
 * `taken`. */
static void remove_completed_locked(struct gc_pool *pool, uint64_t completed,
                                    struct gc_pending *taken)
{
    for (unsigned i = 0; i < pool->stream_count; i++) {
        struct gc_stream_list *list = &pool->streams[i];
        const uint64_t idle = gc_max_u64(completed, list->passed);
        if (list->group_count == 0 || list->groups[0].epoch > idle)
            continue;
        for (unsigned j = 0; j < list->group_count && list->groups[j].epoch <= idle; j++) {
            struct gc_block *block;
            while ((block = pop(&list->groups[j])) != NULL)
                append(taken, block);
        }
        drop_empty_groups(list);
    }
}

bool gc_pending_has_stream_locked(struct gc_pool *pool, uint64_t stream)
{
    return stream != 0 && find_list(pool, stream) != NULL;
}

static void dissolve(struct gc_pool *pool, struct gc_stream_list *list)
{
    for (unsigned i = 0; i < list->group_count; i++) {
        struct gc_block *block;
        while ((block = pop(&list->groups[i])) != NULL) {
            uncount_pending_locked(pool, block);
            gc_pending_push_locked(pool, block, list->groups[i].epoch);
        }
    }
    empty_list(list);
}

void gc_pending_close_stream_locked(struct gc_pool *pool, uint64_t stream)
{
    struct gc_stream_list *list = stream == 0 ? NULL : find_list(pool, stream);
    if (list == NULL)
        return;
    if (list->is_marked && list->groups[list->group_count - 1].epoch <= list->covered)
        list->is_ended = true;
    else
        dissolve(pool, list);
}

void gc_pending_drop_worker_locked(struct gc_pool *pool, const struct gc_context *worker)
{
    for (unsigned i = 0; i < pool->stream_count; i++) {
        if (pool->streams[i].worker == worker)
            dissolve(pool, &pool->streams[i]);
    }
}

/* ---- the common list, by epoch ---- */

/* An epoch below the last one's is raised to keep the list in order: the block waits a little
 * longer. */
void gc_pending_push_locked(struct gc_pool *pool, struct gc_block *block, uint64_t epoch)
{
    struct gc_block *last = pool->content.pending_last;
    gc_block_set_state(block, GC_BLOCK_PENDING);
    block->pending.next = NULL;
    block->pending.epoch = last == NULL ? epoch : gc_max_u64(epoch, last->pending.epoch);
    if (last != NULL)
        last->pending.next = block;
    else
        pool->content.pending_first = block;
    pool->content.pending_last = block;
    count_pending_locked(pool, block);
}

struct gc_pending gc_pending_remove_locked(struct gc_pool *pool, uint64_t completed)
{
    struct gc_pending taken = {NULL, NULL};
    struct gc_block *block = pool->content.pending_first;
    while (block != NULL && block->pending.epoch <= completed) {
        taken.last = block;
        block = block->pending.next;
    }
    if (taken.last != NULL) {
        taken.first = pool->content.pending_first;
        taken.last->pending.next = NULL;
        pool->content.pending_first = block;
        if (block == NULL)
            pool->content.pending_last = NULL;
    }
    remove_completed_locked(pool, completed, &taken);
    return taken;
}

bool gc_pending_free_locked(struct gc_pool *pool, struct gc_pending pending)
{
    bool any_uncached = false;
    struct gc_block *block = pending.first;
    while (block != NULL) {
        struct gc_block *next = block->pending.next;
        any_uncached |= gc_block_segment(block)->size_class == GC_CLASS_UNCACHED;
        uncount_pending_locked(pool, block);
        gc_pool_free_locked(pool, block);
        block = next;
    }
    return any_uncached;
}
