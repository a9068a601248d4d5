/* The solver's view of a problem. Only the solver includes it.
 *
 * Time is cut to sections: the maximal sets of buffers that are alive together, in order (the
 * maximal cliques of an interval graph). Two buffers overlap in time if and only if they share a
 * section. Where no buffer lives on from one section to the next the problem splits into
 * components, each solved alone.
 *
 * In a component all offsets are multiples of `granule`, so sizes are counted in whole granules;
 * `slack` is the excess of the last granule. */
#ifndef GC_PLANNER_PLACE_H
#define GC_PLANNER_PLACE_H

#include "core/base/region.h"
#include "core/plan/placement.h"

#include <stdbool.h>
#include <stdint.h>

struct gc_place_item {
    uint32_t first; /* alive in sections first … last of its component */
    uint32_t last;
    uint64_t bytes; /* whole granules, not 0 */
    uint64_t slack;
    uint64_t alignment; /* at least 1 */
    uint64_t fixed;     /* or GC_PLACEMENT_FREE */
};

struct gc_place_component {
    const struct gc_placement_problem *problem;
    struct gc_place_item *items;
    uint32_t *buffers; /* item → buffer of the problem */
    uint32_t count;
    uint32_t section_count;
    uint32_t fixed_count;
    uint64_t granule;
    uint64_t unit;     /* an item that rests on others ends at a multiple of this, less a slack */
    uint64_t *loads;   /* bytes alive in each section */
    uint64_t bound;    /* no placement has a lower peak */
    uint64_t *offsets; /* the best known */
    uint64_t peak;
};

struct gc_place_components {
    struct gc_place_component *components;
    uint32_t count;
};

/* GC_OVERFLOW: sizes and alignments together, and so offsets, could pass 64 bits. Buffers of 0
 * bytes are in no component. */
enum gc_status gc_place_prepare(struct gc_region *region,
                                const struct gc_placement_problem *problem,
                                struct gc_place_components *components) GC_CHECKED;

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

/* ---- one run of the solver: the state of its components, and when it has to stop ---- */

struct gc_place_run {
    struct gc_region *region;
    const struct gc_placement_problem *problem;
    const struct gc_placement_options *options;
    struct gc_place_components components;
    uint64_t bound;  /* the highest of the components: no placement has a lower peak */
    uint64_t target; /* a peak that is good enough: the bound, or the capacity */
    const struct gc_place_component *component; /* the one in work, of the highest peak */
    uint64_t second;                            /* the highest peak of the others */
    uint64_t nodes;
    uint64_t watch_at; /* nodes */
    bool stopped;
    bool is_late; /* set by the watch: no time for optional work */
};

/* Polls the watch; false: time is up. */
bool gc_place_run_poll(struct gc_place_run *run);
/* Counts steps and polls the watch periodically; false: the budget is spent or time is up. */
bool gc_place_run_step(struct gc_place_run *run, uint64_t nodes);

#endif
