/* The solver's view of a problem, shared by its parts; nobody else's.
 *
 * Time is cut to sections: the greatest sets of buffers that are alive together, in order. Two
 * buffers meet in time if and only if they share a section. Where no buffer lives on from one
 * section to the next the problem falls into parts, each solved alone.
 *
 * Within a part all offsets are multiples of `grain`, so sizes are counted in whole grains; `slack`
 * is what the last grain has too much. */
#ifndef GC_PLANNER_PLACE_H
#define GC_PLANNER_PLACE_H

#include "core/plan/placement.h"

#include <stdbool.h>
#include <stdint.h>

struct gc_place_item {
    uint32_t first; /* alive in sections first … last of its part */
    uint32_t last;
    uint64_t bytes; /* whole grains, not 0 */
    uint64_t slack;
    uint64_t alignment;  /* at least 1 */
    uint64_t fixed;      /* or GC_PLACEMENT_FREE */
    uint64_t length;     /* of its life */
    uint64_t contention; /* bytes alive in the fullest of its sections */
};

struct gc_place_part {
    struct gc_place_item *items;
    uint32_t *buffers; /* item → buffer of the problem */
    uint32_t count;
    uint32_t section_count;
    uint32_t fixed_count;
    uint64_t grain;
    uint64_t unit;     /* ends, as far as they rest on others, are multiples of it less a slack */
    uint64_t *loads;   /* bytes alive in each section */
    uint64_t bound;    /* no placement has a lower peak */
    uint64_t *offsets; /* the best known */
    uint64_t peak;
};

/* ---- place_prepare.c ---- */

struct gc_place_parts {
    struct gc_place_part *parts;
    uint32_t count;
};

/* GC_OVERFLOW: sizes and alignments together, and so offsets, could pass 64 bits. Buffers of 0
 * bytes are in no part. */
enum gc_status gc_place_prepare(struct gc_region *region,
                                const struct gc_placement_problem *problem,
                                struct gc_place_parts *parts) GC_CHECKED;

/* Rounds up to any unit but 0; the sum is known to fit. */
static inline uint64_t gc_place_align(uint64_t offset, uint64_t unit)
{
    if ((unit & (unit - 1)) == 0)
        return (offset + unit - 1) & ~(unit - 1);
    const uint64_t rest = offset % unit;
    return rest == 0 ? offset : offset + (unit - rest);
}

static inline uint64_t gc_place_end(const struct gc_place_item *item, uint64_t offset)
{
    return offset + item->bytes - item->slack;
}

/* ---- place_sort.c ---- */

struct gc_place_sorter {
    uint64_t *keys; /* two of each: from one to the other, digit by digit */
    uint64_t *other_keys;
    uint32_t *other_order;
};

bool gc_place_sorter_init(struct gc_place_sorter *sorter, struct gc_region *region, uint32_t count);
/* Sorts `order` by sorter->keys, its neighbours, from low to high; equal ones stay as they are. The
 * keys are sorted with it. */
void gc_place_sort(struct gc_place_sorter *sorter, uint32_t *order, uint32_t count);

#endif
