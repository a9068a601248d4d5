#include "core/backing/kept.h"

#include "core/base/assert.h"
#include "core/base/bits.h"
#include "core/device/lookup.h"
#include "core/device/registry.h"

#include <stddef.h>
#include <string.h>

#define RANGES_MAX (UINT64_C(1) << 20)
#define SWEEP_LEAST 64
#define HOST_PAGE_BYTES UINT64_C(4096)

struct range {
    uint64_t first;
    uint64_t end;
    uint64_t id; /* of its block */
    uint64_t page_bytes;
    struct gc_copy *copies; /* is_complete */
};

struct gc_kept {
    struct gc_lock lock; /* guards the fields below */
    uint64_t count;
    uint64_t counted_bytes; /* of `ranges`, as host memory */
    uint64_t sweep_count;   /* so many ranges are swept before more are added */
    struct range *ranges;   /* room for RANGES_MAX */
};

/* NULL: nothing was ever declared. */
static struct gc_kept *kept_of(struct gc_core *core)
{
    /* Acquire: pairs with the release in create. */
    return atomic_load_explicit(&core->kept, memory_order_acquire);
}

static void destroy(struct gc_core *core, struct gc_kept *kept)
{
    gc_host_mem_unreserve(kept->ranges, RANGES_MAX * sizeof(*kept->ranges));
    gc_host_mem_uncount(&core->host, kept->counted_bytes);
    gc_host_mem_unmap(&core->host, kept, sizeof(*kept));
}

static struct gc_kept *create(struct gc_core *core)
{
    struct gc_kept *kept = gc_host_mem_map(&core->host, sizeof(*kept));
    if (kept == NULL)
        return NULL;
    gc_lock_init(&kept->lock, GC_RANK_KEPT);
    kept->sweep_count = SWEEP_LEAST;
    kept->ranges = gc_host_mem_reserve(RANGES_MAX * sizeof(*kept->ranges));
    if (kept->ranges == NULL) {
        gc_host_mem_unmap(&core->host, kept, sizeof(*kept));
        return NULL;
    }
    struct gc_kept *other = NULL;
    if (atomic_compare_exchange_strong_explicit(&core->kept, &other, kept, memory_order_acq_rel,
                                                memory_order_acquire))
        return kept;
    destroy(core, kept);
    return other;
}

/* ---- copies ---- */

static uint64_t end_of(const struct gc_copy *copy)
{
    return copy->address + copy->piece.bytes;
}

/* The part of the range that is whole pages: [*first, *end), perhaps none. */
static void get_pages(const struct range *range, uint64_t *first, uint64_t *end)
{
    *first = (range->first + range->page_bytes - 1) & ~(range->page_bytes - 1);
    *end = range->end & ~(range->page_bytes - 1);
}

static bool has_pages_of(const struct range *range, const struct gc_copy *copy)
{
    uint64_t first, end;
    get_pages(range, &first, &end);
    return copy->address >= first && end_of(copy) <= end;
}

/* In order of address. */
static void insert_copy(struct gc_copy **copies, struct gc_copy *copy)
{
    while (*copies != NULL && (*copies)->address < copy->address)
        copies = &(*copies)->next;
    GC_ASSERT(*copies == NULL || end_of(copy) <= (*copies)->address);
    copy->next = *copies;
    *copies = copy;
}

static struct gc_copy *pop_copy(struct gc_copy **copies)
{
    struct gc_copy *copy = *copies;
    *copies = copy->next;
    copy->next = NULL;
    return copy;
}

static void push_copy(struct gc_copy **copies, struct gc_copy *copy)
{
    copy->next = *copies;
    *copies = copy;
}

/* ---- ranges ---- */

/* The index of the first range whose end is above the address. */
static uint64_t find_locked(const struct gc_kept *kept, uint64_t address)
{
    uint64_t low = 0;
    uint64_t high = kept->count;
    while (low < high) {
        const uint64_t middle = low + (high - low) / 2;
        if (kept->ranges[middle].end > address)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* The range, unless it has changed its block or its beginning. */
static struct range *find_same_locked(const struct gc_kept *kept, const struct range *range)
{
    const uint64_t i = find_locked(kept, range->first);
    return i < kept->count && kept->ranges[i].first == range->first &&
                   kept->ranges[i].id == range->id
               ? &kept->ranges[i]
               : NULL;
}

static struct range remove_locked(struct gc_kept *kept, uint64_t i)
{
    const struct range removed = kept->ranges[i];
    kept->count--;
    memmove(&kept->ranges[i], &kept->ranges[i + 1], (kept->count - i) * sizeof(*kept->ranges));
    return removed;
}

/* False: there is no room. */
static bool insert_locked(struct gc_core *core, struct gc_kept *kept, const struct range *range)
{
    const uint64_t i = find_locked(kept, range->first);
    if (kept->count == RANGES_MAX)
        return false;
    memmove(&kept->ranges[i + 1], &kept->ranges[i], (kept->count - i) * sizeof(*kept->ranges));
    kept->ranges[i] = *range;
    kept->count++;
    if (kept->count * sizeof(*kept->ranges) > kept->counted_bytes) {
        gc_host_mem_count(&core->host, HOST_PAGE_BYTES);
        kept->counted_bytes += HOST_PAGE_BYTES;
    }
    return true;
}

/* Moves the copies that lie in whole pages of `to` from the list to it. */
static void deal_copies(struct gc_copy **copies, struct range *to)
{
    struct gc_copy *rest = NULL;
    while (*copies != NULL) {
        struct gc_copy *copy = pop_copy(copies);
        if (has_pages_of(to, copy))
            insert_copy(&to->copies, copy);
        else
            push_copy(&rest, copy);
    }
    *copies = rest;
}

/* One of the two parts of a range that was cut. One without room is no longer declared. */
static void insert_part_locked(struct gc_core *core, struct gc_kept *kept, struct range *part,
                               struct gc_copy **copies)
{
    if (part->first >= part->end)
        return;
    deal_copies(copies, part);
    if (!insert_locked(core, kept, part))
        *copies = gc_copy_join(part->copies, *copies);
}

/* Cuts [first, end) out of all ranges. Returns the copies that have no range any more. */
static struct gc_copy *cut_locked(struct gc_core *core, struct gc_kept *kept, uint64_t first,
                                  uint64_t end)
{
    struct gc_copy *freed = NULL;
    for (uint64_t i = find_locked(kept, first); i < kept->count && kept->ranges[i].first < end;
         i = find_locked(kept, first)) {
        struct range old = remove_locked(kept, i);
        struct range left = old, right = old;
        left.end = gc_min_u64(old.end, first);
        right.first = gc_max_u64(old.first, end);
        left.copies = right.copies = NULL;
        insert_part_locked(core, kept, &left, &old.copies);
        insert_part_locked(core, kept, &right, &old.copies);
        freed = gc_copy_join(old.copies, freed);
    }
    return freed;
}

/* ---- blocks ---- */

/* Whether the range's block lives. While a teardown is undecided it does not: waiting for it could
 * be waiting for the caller. */
static bool is_live(struct gc_core *core, const struct range *range)
{
    struct gc_block *block;
    struct gc_block_info info;
    const enum gc_lookup found = gc_lookup_lock(core, range->first, false, &block);
    if (found != GC_LOOKUP_START && found != GC_LOOKUP_INSIDE)
        return false;
    struct gc_pool *pool = gc_block_pool(block);
    const bool is_same =
        gc_lookup_describe_locked(block, range->first, &info) && info.id == range->id;
    gc_pool_release(pool);
    return is_same;
}

static void drop(struct gc_core *core, struct gc_kept *kept, const struct range *range)
{
    struct gc_copy *freed = NULL;
    gc_lock_acquire(&kept->lock);
    const struct range *same = find_same_locked(kept, range);
    if (same != NULL)
        freed = remove_locked(kept, (uint64_t)(same - kept->ranges)).copies;
    gc_lock_release(&kept->lock);
    gc_copy_free(core, freed);
}

/* The first range with addresses in [first, end). */
static bool get_next(struct gc_kept *kept, uint64_t first, uint64_t end, struct range *range)
{
    gc_lock_acquire(&kept->lock);
    const uint64_t i = find_locked(kept, first);
    const bool is_any = i < kept->count && kept->ranges[i].first < end;
    if (is_any)
        *range = kept->ranges[i];
    gc_lock_release(&kept->lock);
    return is_any;
}

/* As that, of a live block; the others are dropped. */
static bool get_next_live(struct gc_core *core, struct gc_kept *kept, uint64_t first, uint64_t end,
                          struct range *range)
{
    while (get_next(kept, first, end, range)) {
        if (is_live(core, range))
            return true;
        drop(core, kept, range);
    }
    return false;
}

static void sweep(struct gc_core *core, struct gc_kept *kept)
{
    struct range range;
    for (uint64_t at = 0; get_next_live(core, kept, at, UINT64_MAX, &range); at = range.end)
        ;
}

void gc_kept_sweep(struct gc_core *core)
{
    struct gc_kept *kept = kept_of(core);
    if (kept != NULL)
        sweep(core, kept);
}

/* ---- declarations ---- */

/* The range of a block that the program names. GC_OK with an empty range: its memory is the
 * driver's, and never swapped. */
static enum gc_status find_range(struct gc_core *core, uint64_t address, uint64_t bytes,
                                 struct range *range)
{
    struct gc_block_info info;
    uint64_t end;
    const enum gc_status status = gc_lookup_block(core, address, &info);
    if (status != GC_OK)
        return status;
    if (!gc_add_u64(address, bytes, &end) || end > info.address + info.bytes)
        return GC_OUT_OF_RANGE;
    /* What rounding added is nobody else's. */
    if (end == info.address + info.bytes)
        end = info.address + info.capacity;
    *range = (struct range){.first = address,
                            .end = info.is_mapped ? end : address,
                            .id = info.id,
                            .page_bytes = info.owner->device->info.page_bytes};
    return GC_OK;
}

/* Ranges of the block that overlap the new one or touch it become part of it; others that it
 * overlaps are of blocks that are gone. */
static bool add_locked(struct gc_core *core, struct gc_kept *kept, struct range *range,
                       struct gc_copy **freed)
{
    const uint64_t first = range->first == 0 ? 0 : range->first - 1;
    for (uint64_t i = find_locked(kept, first);
         i < kept->count && kept->ranges[i].first <= range->end;) {
        if (kept->ranges[i].id != range->id &&
            (kept->ranges[i].end == range->first || kept->ranges[i].first == range->end)) {
            i++; /* a neighbour */
            continue;
        }
        struct range old = remove_locked(kept, i);
        if (old.id == range->id) {
            range->first = gc_min_u64(range->first, old.first);
            range->end = gc_max_u64(range->end, old.end);
            range->copies = gc_copy_join(range->copies, old.copies);
        } else {
            *freed = gc_copy_join(*freed, old.copies);
        }
    }
    if (insert_locked(core, kept, range))
        return true;
    *freed = gc_copy_join(*freed, range->copies);
    return false;
}

enum gc_status gc_kept_declare(struct gc_core *core, uint64_t address, uint64_t bytes)
{
    struct range range;
    struct gc_copy *freed = NULL;
    const enum gc_status status = find_range(core, address, bytes, &range);
    if (status != GC_OK || range.first == range.end)
        return status;
    struct gc_kept *kept = kept_of(core);
    if (kept == NULL)
        kept = create(core);
    if (kept == NULL)
        return GC_NO_HOST_MEMORY;
    gc_lock_acquire(&kept->lock);
    const bool is_due = kept->count >= kept->sweep_count;
    gc_lock_release(&kept->lock);
    if (is_due)
        sweep(core, kept);
    gc_lock_acquire(&kept->lock);
    if (is_due)
        kept->sweep_count = gc_max_u64(SWEEP_LEAST, 2 * kept->count);
    const bool is_added = add_locked(core, kept, &range, &freed);
    gc_lock_release(&kept->lock);
    gc_copy_free(core, freed);
    return is_added ? GC_OK : GC_NO_HOST_MEMORY;
}

void gc_kept_forget(struct gc_core *core, uint64_t address, uint64_t bytes)
{
    struct gc_kept *kept = kept_of(core);
    if (kept == NULL)
        return;
    gc_lock_acquire(&kept->lock);
    struct gc_copy *freed = cut_locked(core, kept, address, address + bytes);
    gc_lock_release(&kept->lock);
    gc_copy_free(core, freed);
}

enum gc_status gc_kept_take_back(struct gc_core *core, uint64_t address, uint64_t bytes)
{
    struct range range;
    const enum gc_status status = find_range(core, address, bytes, &range);
    if (status == GC_OK)
        gc_kept_forget(core, range.first, range.end - range.first);
    return status;
}

/* ---- swap-out ---- */

/* Moves the range's copies that lie in [first, end) to the list. */
static void detach_copies(struct gc_kept *kept, const struct range *range, uint64_t first,
                          uint64_t end, struct gc_copy **list)
{
    gc_lock_acquire(&kept->lock);
    struct range *same = find_same_locked(kept, range);
    struct gc_copy **link = same == NULL ? NULL : &same->copies;
    while (link != NULL && *link != NULL) {
        if ((*link)->address < first || end_of(*link) > end) {
            link = &(*link)->next;
            continue;
        }
        insert_copy(list, pop_copy(link));
    }
    gc_lock_release(&kept->lock);
}

struct gc_copy *gc_kept_take(struct gc_core *core, uint64_t address, uint64_t bytes)
{
    struct gc_kept *kept = kept_of(core);
    struct gc_copy *taken = NULL;
    struct range range;
    if (kept == NULL)
        return NULL;
    for (uint64_t at = address; get_next_live(core, kept, at, address + bytes, &range);
         at = range.end)
        detach_copies(kept, &range, address, address + bytes, &taken);
    for (struct gc_copy *copy = taken; copy != NULL; copy = copy->next) {
        gc_copy_set_kept(copy, false);
        gc_counter_add(&copy->device->stats.uncopied_bytes, copy->piece.bytes);
    }
    return taken;
}

bool gc_kept_is_any(struct gc_core *core)
{
    return kept_of(core) != NULL;
}

bool gc_kept_has(struct gc_core *core, uint64_t address, uint64_t bytes)
{
    struct gc_kept *kept = kept_of(core);
    const uint64_t end = address + bytes;
    if (kept == NULL)
        return false;
    gc_lock_acquire(&kept->lock);
    for (uint64_t i = find_locked(kept, address);
         i < kept->count && kept->ranges[i].first < end && address < end; i++)
        for (const struct gc_copy *copy = kept->ranges[i].copies;
             copy != NULL && copy->address <= address; copy = copy->next)
            address = gc_max_u64(address, end_of(copy));
    gc_lock_release(&kept->lock);
    return address >= end;
}

/* ---- swap-in ---- */

/* The next declared pages in [*first, end), and their range. */
static bool get_next_pages(struct gc_core *core, struct gc_kept *kept, uint64_t *first,
                           uint64_t *end, struct range *range)
{
    uint64_t pages_first, pages_end;
    for (uint64_t at = *first; get_next_live(core, kept, at, *end, range); at = range->end) {
        get_pages(range, &pages_first, &pages_end);
        pages_first = gc_max_u64(pages_first, *first);
        pages_end = gc_min_u64(pages_end, *end);
        if (pages_first >= pages_end)
            continue;
        *first = pages_first;
        *end = pages_end;
        return true;
    }
    return false;
}

/* False: the range is not what it was. */
static bool attach_copy(struct gc_kept *kept, const struct range *range, struct gc_copy *copy)
{
    gc_lock_acquire(&kept->lock);
    struct range *same = find_same_locked(kept, range);
    const bool may = same != NULL && has_pages_of(same, copy);
    if (may) {
        copy->is_complete = true;
        gc_copy_set_kept(copy, true);
        insert_copy(&same->copies, copy);
    }
    gc_lock_release(&kept->lock);
    return may;
}

/* Keeps the declared pages of one copy, the rest is added to the list. */
static void keep_parts(struct gc_core *core, struct gc_kept *kept, struct gc_copy *copy,
                       struct gc_copy **rest)
{
    while (copy != NULL) {
        struct range range;
        struct gc_copy *behind = NULL;
        uint64_t first = copy->address;
        uint64_t end = end_of(copy);
        const bool is_any = get_next_pages(core, kept, &first, &end, &range);
        const bool is_cut_here = is_any && first == copy->address;
        const uint64_t cut = is_cut_here ? end : first;
        if (is_any && cut != end_of(copy)) {
            behind = gc_copy_cut(core, copy, cut - copy->address);
            if (behind == NULL) { /* no record */
                push_copy(rest, copy);
                return;
            }
        }
        if (!is_cut_here || !attach_copy(kept, &range, copy))
            push_copy(rest, copy);
        copy = behind;
    }
}

struct gc_copy *gc_kept_keep(struct gc_core *core, struct gc_copy *copies)
{
    struct gc_kept *kept = kept_of(core);
    struct gc_copy *rest = NULL;
    if (kept == NULL)
        return copies;
    while (copies != NULL)
        keep_parts(core, kept, pop_copy(&copies), &rest);
    return rest;
}

/* ---- the end of copies ---- */

uint64_t gc_kept_purge(struct gc_core *core, uint64_t bytes)
{
    struct gc_kept *kept = kept_of(core);
    struct gc_copy *freed = NULL;
    uint64_t freed_bytes = 0;
    if (kept == NULL)
        return 0;
    gc_lock_acquire(&kept->lock);
    for (uint64_t i = 0; i < kept->count; i++)
        while (kept->ranges[i].copies != NULL && freed_bytes < bytes) {
            freed_bytes += kept->ranges[i].copies->piece.bytes;
            push_copy(&freed, pop_copy(&kept->ranges[i].copies));
        }
    gc_lock_release(&kept->lock);
    gc_copy_free(core, freed);
    return freed_bytes;
}

void gc_kept_destroy(struct gc_core *core)
{
    if (kept_of(core) != NULL)
        destroy(core, kept_of(core));
}
