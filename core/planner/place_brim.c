#include "core/planner/place_brim.h"

#include "core/base/bits.h"

#include <string.h>

#define OPEN_MAX 256U     /* holes at one time */
#define ITEMS_PER_HOLE 4U /* at least, on average */
#define HOLES_MIN 16U

struct holes {
    struct gc_place_brim *brim;
    uint32_t open[OPEN_MAX]; /* leaves */
    uint32_t open_count;
    uint32_t room;    /* leaves there may be */
    uint64_t *needs;  /* how much more is alive than before, where it is more: from low to high */
    uint32_t *needed; /* with which moment; of equal ones the earlier first */
    uint32_t need_count;
};

/* Times to moments: from one at which something begins or ends to the next. */
static enum gc_status cut_time(struct gc_place_brim *brim, struct gc_region *region,
                               const struct gc_placement_problem *problem,
                               const struct gc_place_part *part)
{
    struct gc_place_sorter sorter;
    const uint32_t count = part->count;
    uint32_t *order = gc_region_alloc(region, 2 * (uint64_t)count * sizeof(*order));
    if (count > UINT32_MAX / 4)
        return GC_TOO_MANY;
    if (order == NULL || !gc_place_sorter_init(&sorter, region, 2 * count))
        return GC_NO_HOST_MEMORY;
    for (uint32_t i = 0; i < count; i++) {
        const struct gc_placement_buffer *buffer = &problem->buffers[part->buffers[i]];
        brim->leaves[i].bytes = part->items[i].bytes;
        order[2 * i] = 2 * i;
        order[2 * i + 1] = 2 * i + 1;
        sorter.keys[2 * i] = buffer->lower;
        sorter.keys[2 * i + 1] = buffer->upper;
    }
    gc_place_sort(&sorter, order, 2 * count);
    uint32_t moment = 0;
    for (uint32_t n = 0; n < 2 * count; n++) {
        moment += n > 0 && sorter.keys[n] != sorter.keys[n - 1];
        struct gc_place_brim_leaf *leaf = &brim->leaves[order[n] / 2];
        if (order[n] % 2 == 0)
            leaf->first = moment;
        else
            leaf->last = moment - 1;
    }
    brim->moment_count = moment;
    return GC_OK;
}

static bool open_hole(struct holes *holes, uint64_t bytes, uint32_t first)
{
    struct gc_place_brim *brim = holes->brim;
    if (holes->open_count == OPEN_MAX || brim->leaf_count == holes->room)
        return false;
    holes->open[holes->open_count++] = brim->leaf_count;
    brim->leaves[brim->leaf_count++] =
        (struct gc_place_brim_leaf){bytes, first, brim->moment_count - 1};
    return true;
}

/* At a later moment exactly as many bytes of holes end. */
static bool is_needed(const struct holes *holes, uint64_t bytes, uint32_t moment)
{
    uint32_t at = 0;
    for (uint32_t left = holes->need_count; left > 0;) {
        const uint32_t half = left / 2;
        const bool is_below =
            holes->needs[at + half] < bytes ||
            (holes->needs[at + half] == bytes && holes->needed[at + half] <= moment);
        at += is_below ? half + 1 : 0;
        left = is_below ? left - half - 1 : half;
    }
    return at < holes->need_count && holes->needs[at] == bytes;
}

static uint64_t bytes_of(const struct holes *holes, uint32_t n)
{
    return holes->brim->leaves[holes->open[n]].bytes;
}

static void close_hole(struct holes *holes, uint32_t n, uint32_t moment)
{
    holes->brim->leaves[holes->open[n]].last = moment - 1;
    holes->open[n] = holes->open[--holes->open_count];
}

/* So many bytes of holes begin: one, or one that is larger in the place of another that ends, if
 * its size is that of what ends later. */
static bool open_holes(struct holes *holes, uint64_t bytes, uint32_t moment)
{
    for (uint32_t n = 0; n < holes->open_count && !is_needed(holes, bytes, moment); n++) {
        const uint64_t larger = bytes_of(holes, n) + bytes;
        if (!is_needed(holes, larger, moment))
            continue;
        close_hole(holes, n, moment);
        return open_hole(holes, larger, moment);
    }
    return open_hole(holes, bytes, moment);
}

/* The hole to end for so many bytes: as large; or what it is larger by ends later; else the
 * smallest that is larger, else the largest. */
static uint32_t choose_hole(const struct holes *holes, uint64_t bytes, uint32_t moment)
{
    uint32_t best = 0;
    for (uint32_t n = 0; n < holes->open_count; n++) {
        const uint64_t here = bytes_of(holes, n);
        const uint64_t there = bytes_of(holes, best);
        if (here == bytes || (here > bytes && is_needed(holes, here - bytes, moment)))
            return n;
        if (here > bytes ? there < bytes || here < there : here > there)
            best = n;
    }
    return best;
}

/* So many bytes of holes end. What is left of a larger one ends too and begins anew: it may be
 * elsewhere then. */
static bool close_holes(struct holes *holes, uint64_t bytes, uint32_t moment)
{
    struct gc_place_brim *brim = holes->brim;
    while (bytes > 0) {
        const uint32_t n = choose_hole(holes, bytes, moment);
        struct gc_place_brim_leaf *hole = &brim->leaves[holes->open[n]];
        const uint64_t left = gc_sub_or_zero_u64(hole->bytes, bytes);
        const uint32_t first = hole->first;
        hole->bytes -= left;
        bytes -= hole->bytes;
        close_hole(holes, n, moment);
        if (left == 0)
            continue;
        if (!open_hole(holes, left, first))
            return false;
        close_hole(holes, holes->open_count - 1, moment);
        if (!open_hole(holes, left, moment))
            return false;
    }
    return true;
}

/* Writes what each moment lacks, and lists by how much less than before. */
static enum gc_status measure(struct holes *holes, struct gc_region *region, uint64_t *lacks)
{
    const struct gc_place_brim *brim = holes->brim;
    struct gc_place_sorter sorter;
    uint64_t fullest = 0;
    holes->needed = gc_region_alloc(region, brim->moment_count * sizeof(*holes->needed));
    if (holes->needed == NULL || !gc_place_sorter_init(&sorter, region, brim->moment_count))
        return GC_NO_HOST_MEMORY;
    /* Differences first, then what is alive, then what lacks. */
    for (uint32_t i = 0; i < brim->item_count; i++) {
        lacks[brim->leaves[i].first] += brim->leaves[i].bytes;
        lacks[brim->leaves[i].last + 1] -= brim->leaves[i].bytes;
    }
    for (uint32_t m = 0; m < brim->moment_count; m++) {
        lacks[m] += m > 0 ? lacks[m - 1] : 0;
        fullest = gc_max_u64(fullest, lacks[m]);
    }
    for (uint32_t m = 0; m < brim->moment_count; m++) {
        lacks[m] = fullest - lacks[m];
        if (m == 0 || lacks[m - 1] <= lacks[m])
            continue;
        sorter.keys[holes->need_count] = lacks[m - 1] - lacks[m];
        holes->needed[holes->need_count++] = m;
    }
    gc_place_sort(&sorter, holes->needed, holes->need_count);
    holes->needs = sorter.keys;
    return GC_OK;
}

static enum gc_status fill_holes(struct gc_place_brim *brim, struct gc_region *region,
                                 struct holes *holes)
{
    uint64_t *lacks = gc_region_alloc(region, (brim->moment_count + UINT64_C(1)) * sizeof(*lacks));
    uint64_t before = 0;
    if (lacks == NULL)
        return GC_NO_HOST_MEMORY;
    const enum gc_status status = measure(holes, region, lacks);
    if (status != GC_OK)
        return status;
    for (uint32_t m = 0; m < brim->moment_count; m++) {
        const uint64_t here = lacks[m];
        if (here > before ? !open_holes(holes, here - before, m)
                          : !close_holes(holes, before - here, m))
            return GC_TOO_MANY;
        before = here;
    }
    return GC_OK;
}

/* Leaves by their first moment, or by their last. */
static void list(const struct gc_place_brim *brim, bool by_last, uint32_t *begin, uint32_t *leaves)
{
    uint32_t *ends = begin + 1; /* moves to where each ends as it is filled */
    memset(begin, 0, (brim->moment_count + UINT64_C(2)) * sizeof(*begin));
    for (uint32_t i = 0; i < brim->leaf_count; i++)
        ends[(by_last ? brim->leaves[i].last : brim->leaves[i].first) + 1]++;
    for (uint32_t m = 1; m <= brim->moment_count; m++)
        ends[m] += ends[m - 1];
    for (uint32_t i = 0; i < brim->leaf_count; i++)
        leaves[ends[by_last ? brim->leaves[i].last : brim->leaves[i].first]++] = i;
}

static enum gc_status list_all(struct gc_place_brim *brim, struct gc_region *region)
{
    const uint64_t begin_bytes = (brim->moment_count + UINT64_C(2)) * sizeof(uint32_t);
    const uint64_t leaf_bytes = brim->leaf_count * sizeof(uint32_t);
    brim->start_begin = gc_region_alloc(region, begin_bytes);
    brim->end_begin = gc_region_alloc(region, begin_bytes);
    brim->starts = gc_region_alloc(region, leaf_bytes);
    brim->ends = gc_region_alloc(region, leaf_bytes);
    if (brim->start_begin == NULL || brim->end_begin == NULL || brim->starts == NULL ||
        brim->ends == NULL)
        return GC_NO_HOST_MEMORY;
    list(brim, false, brim->start_begin, brim->starts);
    list(brim, true, brim->end_begin, brim->ends);
    return GC_OK;
}

void gc_place_brim_turn(struct gc_place_brim *brim)
{
    for (uint32_t i = 0; i < brim->leaf_count; i++) {
        struct gc_place_brim_leaf *leaf = &brim->leaves[i];
        const uint32_t first = leaf->first;
        leaf->first = brim->moment_count - 1 - leaf->last;
        leaf->last = brim->moment_count - 1 - first;
    }
    list(brim, false, brim->start_begin, brim->starts);
    list(brim, true, brim->end_begin, brim->ends);
}

enum gc_status gc_place_brim_init(struct gc_place_brim *brim, struct gc_region *region,
                                  const struct gc_placement_problem *problem,
                                  const struct gc_place_part *part)
{
    const uint32_t hole_max = part->count / ITEMS_PER_HOLE + HOLES_MIN;
    struct holes holes = {.brim = brim, .room = part->count + hole_max};
    *brim = (struct gc_place_brim){.item_count = part->count, .leaf_count = part->count};
    brim->leaves = gc_region_alloc(region, holes.room * sizeof(*brim->leaves));
    if (brim->leaves == NULL)
        return GC_NO_HOST_MEMORY;
    enum gc_status status = cut_time(brim, region, problem, part);
    if (status == GC_OK)
        status = fill_holes(brim, region, &holes);
    return status == GC_OK ? list_all(brim, region) : status;
}
