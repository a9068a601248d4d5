#include "core/pool/pending.h"

#include "core/base/assert.h"
#include "core/base/bits.h"
#include "core/pool/pool.h"

#include <stddef.h>

/* Blocks of a list that one request checks. A program that repeats itself finds its block early. */
#define SEARCH_MAX 32
/* A block may exceed the request by this fraction of the request. */
#define WASTE_DIVISOR 16
/* Blocks of a list that a request for a planned place checks. */
#define RANGE_SEARCH_MAX 256

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

/* Appends a block to a list, and counts it. An epoch below the last one's is raised to keep the
 * list in order: the block waits a little longer. */
static void push_locked(struct gc_pool *pool, struct gc_block **first, struct gc_block **last,
                        struct gc_block *block, uint64_t epoch)
{
    gc_block_set_state(block, GC_BLOCK_PENDING);
    block->pending.next = NULL;
    block->pending.epoch = *last == NULL ? epoch : gc_max_u64(epoch, (*last)->pending.epoch);
    if (*last != NULL)
        (*last)->pending.next = block;
    else
        *first = block;
    *last = block;
    count_pending_locked(pool, block);
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
    push_locked(pool, &list->first, &list->last, block, epoch);
    return true;
}

/* Planned places serve only their plan, dedicated segments only requests for dedicated memory. */
static bool fits(const struct gc_pool *pool, const struct gc_block *block, uint64_t bytes)
{
    const struct gc_segment *segment = gc_block_segment(block);
    if (segment->size_class >= GC_CLASS_PLANNED)
        return false;
    return block->bytes >= bytes && block->bytes - bytes <= bytes / WASTE_DIVISOR &&
           gc_pool_may_serve_again_locked(pool, block, bytes);
}

/* The block serves the request before its work has completed, in its stream's order. */
static void note_reuse(struct gc_pool *pool, const struct gc_alloc_spec *spec,
                       const struct gc_block *block)
{
    if (!spec->is_ordered)
        pool->ordered_epoch = gc_max_u64(pool->ordered_epoch, block->pending.epoch);
}

struct gc_block *gc_pending_alloc_locked(struct gc_pool *pool, const struct gc_alloc_spec *spec)
{
    struct gc_stream_list *list = spec->stream == 0 ? NULL : find_list(pool, spec->stream);
    struct gc_block *previous = NULL;
    struct gc_block *block = list == NULL ? NULL : list->first;
    for (unsigned i = 0; block != NULL && !fits(pool, block, spec->bytes); i++) {
        if (i == SEARCH_MAX)
            return NULL;
        previous = block;
        block = block->pending.next;
    }
    if (block == NULL)
        return NULL;
    if (previous != NULL)
        previous->pending.next = block->pending.next;
    else
        list->first = block->pending.next;
    if (list->last == block)
        list->last = previous;
    if (list->first == NULL)
        empty_list(list);
    uncount_pending_locked(pool, block);
    note_reuse(pool, spec, block);
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

bool gc_pending_remove_range_locked(struct gc_pool *pool, const struct gc_alloc_spec *spec,
                                    uint64_t address, uint64_t pending_bytes,
                                    struct gc_pending *taken)
{
    struct gc_stream_list *list = spec->stream == 0 ? NULL : find_list(pool, spec->stream);
    const uint64_t bytes = spec->bytes;
    uint64_t found_bytes = 0;
    unsigned checked = 0;
    if (list == NULL)
        return false;
    for (const struct gc_block *block = list->first; block != NULL && checked++ < RANGE_SEARCH_MAX;
         block = block->pending.next)
        found_bytes += lies_in(block, address, bytes) ? block->bytes : 0;
    if (found_bytes != pending_bytes)
        return false;
    struct gc_block **link = &list->first;
    list->last = NULL;
    while (*link != NULL) {
        struct gc_block *block = *link;
        if (found_bytes > 0 && lies_in(block, address, bytes)) {
            found_bytes -= block->bytes;
            *link = block->pending.next;
            note_reuse(pool, spec, block);
            append(taken, block);
        } else {
            list->last = block;
            link = &block->pending.next;
        }
    }
    if (list->first == NULL)
        empty_list(list);
    return true;
}

/* Removes the blocks with completed epochs from all lists of streams and appends them to `taken`. A
 * list that becomes empty is free for another stream. */
static void remove_completed_locked(struct gc_pool *pool, uint64_t completed,
                                    struct gc_pending *taken)
{
    for (unsigned i = 0; i < pool->stream_count; i++) {
        struct gc_stream_list *list = &pool->streams[i];
        const uint64_t idle = gc_max_u64(completed, list->passed);
        while (list->first != NULL && list->first->pending.epoch <= idle) {
            struct gc_block *block = list->first;
            list->first = block->pending.next;
            append(taken, block);
        }
        if (list->first == NULL)
            empty_list(list);
    }
}

bool gc_pending_has_stream_locked(struct gc_pool *pool, uint64_t stream)
{
    return stream != 0 && find_list(pool, stream) != NULL;
}

static void dissolve(struct gc_pool *pool, struct gc_stream_list *list)
{
    struct gc_block *block = list->first;
    empty_list(list);
    while (block != NULL) {
        struct gc_block *next = block->pending.next;
        uncount_pending_locked(pool, block);
        gc_pending_push_locked(pool, block, block->pending.epoch);
        block = next;
    }
}

void gc_pending_close_stream_locked(struct gc_pool *pool, uint64_t stream)
{
    struct gc_stream_list *list = stream == 0 ? NULL : find_list(pool, stream);
    if (list == NULL)
        return;
    if (list->is_marked && list->last->pending.epoch <= list->covered)
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

void gc_pending_push_locked(struct gc_pool *pool, struct gc_block *block, uint64_t epoch)
{
    push_locked(pool, &pool->content.pending_first, &pool->content.pending_last, block, epoch);
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
